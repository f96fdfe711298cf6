// The registry's log, as a scheduler finds it on the disk.
#include "tailcast/cell/registry_store.h"

#include <cstring>

#include <google/protobuf/stubs/logging.h>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::cell {
namespace {

constexpr size_t kHeader = 16;

void Try(std::string_view bytes) {
  const Result<RegistryLogContent> content = ParseRegistryLog(bytes, "log");
  if (!content.ok()) {
    TAILCAST_CHECK(IsDataLoss(content.status()), "a damaged log, and nothing else");
    return;
  }
  TAILCAST_CHECK(content->torn_bytes >= 0 &&
                 content->torn_bytes <= static_cast<int64_t>(bytes.size()));
  TAILCAST_CHECK(content->last.has_value() == (content->snapshots > 0));
  TAILCAST_CHECK(content->snapshots * static_cast<int64_t>(kHeader) + content->torn_bytes <=
                 static_cast<int64_t>(bytes.size()));
  // What is before the torn bytes is a whole log, and goes on with the next snapshot.
  std::string log(bytes.substr(0, bytes.size() - static_cast<size_t>(content->torn_bytes)));
  v1::RegistrySnapshot next = content->last.value_or(v1::RegistrySnapshot());
  next.set_sequence(next.sequence() + 1);
  log += EncodeSnapshot(next);
  const Result<RegistryLogContent> again = ParseRegistryLog(log, "log");
  TAILCAST_CHECK(again.ok() && again->torn_bytes == 0 &&
                     again->snapshots == content->snapshots + 1 &&
                     again->last->SerializeAsString() == next.SerializeAsString(),
                 "what was written last is read");
  // An append that was cut off loses nothing of what was there.
  const Result<RegistryLogContent> cut =
      ParseRegistryLog(std::string_view(log).substr(0, log.size() - 1), "log");
  TAILCAST_CHECK(cut.ok() && cut->snapshots == content->snapshots, "the one before stays");
}

}  // namespace
}  // namespace tailcast::cell

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const google::protobuf::LogSilencer quiet;
  tailcast::cell::Try({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Walks from snapshot to snapshot, as far as their lengths fit.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  using tailcast::Crc32c;
  const auto repair = [](uint8_t* bytes, size_t count) {
    for (size_t at = 0; count - at >= tailcast::cell::kHeader;) {
      const char* const header = reinterpret_cast<const char*>(bytes) + at;
      uint32_t length = 0;
      std::memcpy(&length, header + 4, 4);
      if (length > count - at - tailcast::cell::kHeader) return;
      tailcast::fuzz::StoreAt(bytes, at + 8, Crc32c({header + tailcast::cell::kHeader, length}));
      tailcast::fuzz::StoreAt(bytes, at + 12, Crc32c({header, 12}));
      at += tailcast::cell::kHeader + length;
    }
  };
  return tailcast::fuzz::MutateAndRepair(data, size, size_max, seed, repair);
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  v1::RegistrySnapshot snapshot;
  snapshot.set_scheduler_incarnation(3);
  snapshot.set_sequence(9);
  const std::string one = cell::EncodeSnapshot(snapshot);
  snapshot.set_rolled(true);
  const std::string two = one + cell::EncodeSnapshot(snapshot);
  return {one, two, two + one.substr(0, 11), cell::EncodeSnapshot({})};
}
