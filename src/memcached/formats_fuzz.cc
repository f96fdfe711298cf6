// An item as a memcached server gave it, and addresses as a person wrote them.
#include "tailcast/base/check.h"

#include <cstring>
#include "tailcast/base/crc32c.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/memcached/item.h"
#include "tailcast/memcached/server_address.h"

namespace tailcast::memcached {
namespace {

constexpr cache::Key kKey = {0x1122334455667788, 0x99aabbccddeeff00};
const ItemFormat& Format() {
  static const ItemFormat format("us");
  return format;
}

void TryItem(std::string_view item) {
  const auto value = Format().Decode(kKey, item);
  if (!value) return;
  TAILCAST_CHECK(value->rule <= cache::MergeRule::kMaxBytes, "no such rule");
  TAILCAST_CHECK(Format().Encode(kKey, value->rule, value->bytes) == item,
                 "an item that decodes encodes to the same bytes");
  TAILCAST_CHECK(!Format().Decode({kKey.hi, kKey.lo + 1}, item), "an item of another key");
}

void TryServers(std::string_view text) {
  const auto servers = ParseServers(text);
  if (!servers.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(servers.status()), "bad input, and nothing else");
    return;
  }
  TAILCAST_CHECK(!servers->empty() && servers->size() <= kServersMax);
  const auto again = ParseServers(FormatServers(*servers));
  TAILCAST_CHECK(again.ok() && *again == *servers, "what was read is written as the same");
}

}  // namespace
}  // namespace tailcast::memcached

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tailcast::memcached::TryItem(bytes);
  tailcast::memcached::TryServers(bytes);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  using namespace tailcast;             // NOLINT(google-build-using-namespace)
  using namespace tailcast::memcached;  // NOLINT(google-build-using-namespace)
  return fuzz::MutateAndRepair(data, size, size_max, seed, [](uint8_t* bytes, size_t count) {
    if (count < kItemHeaderBytes || std::memcmp(bytes, "TCM1", 4) != 0) return;
    const uint32_t key = Crc32c(Format().KeyOf(kKey));
    const char* const covered = reinterpret_cast<const char*>(bytes) + 8;
    fuzz::StoreAt(bytes, 4, Crc32cExtend(key, covered, count - 8));
  });
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace tailcast::memcached;  // NOLINT(google-build-using-namespace)
  return {Format().Encode(kKey, cache::MergeRule::kLongerWins, "some bytes"),
          Format().Encode(kKey, cache::MergeRule::kMaxBytes, ""),
          "memcached:10.0.0.1:11211,cache-2:11211", "memcached:[::1]:11211,/run/memcached.sock"};
}
