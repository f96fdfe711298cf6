// A message of `tailcast load`, as a consumer got it.
#include "tailcast/app/load_pattern.h"

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::app {
namespace {

void Try(std::string_view bytes) {
  const LoadMessage message = ReadLoadMessage(bytes);
  if (bytes.size() < kLoadHeaderBytes) {
    TAILCAST_CHECK(!message.intact, "too short to be one");
    return;
  }
  std::string again(bytes.size(), '\0');
  FillLoadMessage(again, message.intended_us, message.number);
  TAILCAST_CHECK(message.intact == (again == bytes), "intact is what was sent, byte for byte");
}

}  // namespace
}  // namespace tailcast::app

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::app::Try({reinterpret_cast<const char*>(data), size});
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  std::vector<std::string> seeds;
  for (const size_t size : {16, 17, 23, 24, 100}) {
    std::string message(size, '\0');
    app::FillLoadMessage(message, 1763722199123456, size);
    seeds.push_back(message);
  }
  return seeds;
}
