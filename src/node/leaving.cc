#include "tailcast/node/leaving.h"

namespace tailcast::node {

std::optional<std::string> Leaving::MayEnd(MonotonicTime now, int64_t operations,
                                           bool others) const {
  const std::string left =
      std::to_string(operations) + (operations == 1 ? " operation" : " operations");
  if (!others) return "nobody is there to take its " + left;
  if (!known_) {
    if (now - began_ < options_.unanswered) return std::nullopt;
    return "its scheduler does not answer; it runs " + left;
  }
  if (operations == 0 && now - *known_ >= options_.least) return "others run what it ran";
  if (now - began_ < options_.limit) return std::nullopt;
  return left + " were not taken over in " + std::to_string(options_.limit.millis()) + " ms";
}

}  // namespace tailcast::node
