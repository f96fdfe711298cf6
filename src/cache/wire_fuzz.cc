// A batch of keys and values from a peer.
#include "tailcast/cache/wire.h"

#include <google/protobuf/stubs/logging.h>

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::cache::wire {
namespace {

void Try(const v1::CacheBatch& batch) {
  const Status status = Reader::Check(batch);
  if (!status.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(status), "bad input, and nothing else");
    return;
  }
  Reader reader(batch);
  v1::CacheBatch again;
  Entry entry;
  size_t count = 0;
  const std::string_view payload = batch.payload();
  while (reader.Next(entry)) {
    ++count;
    TAILCAST_CHECK(entry.rule <= MergeRule::kMaxBytes, "no such rule");
    TAILCAST_CHECK(entry.value.empty() ||
                       (entry.value.data() >= payload.data() &&
                        entry.value.data() + entry.value.size() <= payload.data() + payload.size()),
                   "a value outside of the batch");
    Append(again, entry.key, entry.rule, entry.erase_or_absent, entry.value, entry.remaining_ms);
  }
  TAILCAST_CHECK(count == reader.size(), "each entry once");
  TAILCAST_CHECK(again.keys() == batch.keys() && again.payload() == batch.payload(),
                 "a batch that is taken is built again as it was");
  TAILCAST_CHECK(again.lengths_size() == batch.lengths_size() &&
                 again.remaining_ms_size() == batch.remaining_ms_size());
  TAILCAST_CHECK(Reader::Check(again).ok());
}

}  // namespace
}  // namespace tailcast::cache::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const google::protobuf::LogSilencer quiet;
  tailcast::v1::CacheBatch batch;
  if (batch.ParseFromArray(data, static_cast<int>(size))) tailcast::cache::wire::Try(batch);
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using cache::MergeRule;
  std::vector<std::string> seeds;
  for (const bool timed : {false, true}) {
    v1::CacheBatch batch;
    const auto remaining = timed ? std::optional<uint32_t>(5000) : std::nullopt;
    cache::wire::Append(batch, {1, 2}, MergeRule::kLongerWins, false, "some bytes", remaining);
    cache::wire::Append(batch, {3, 4}, MergeRule::kMaxLanes, false, std::string(16, 'l'),
                        remaining);
    cache::wire::Append(batch, {5, 6}, MergeRule::kMaxBytes, true, "", remaining);
    if (timed) cache::wire::AppendNotLookedAt(batch, {7, 8});
    seeds.push_back(batch.SerializeAsString());
  }
  return seeds;
}
