#include "tailcast/app/shard_ends.h"

#include <cstdio>
#include <string>
#include <utility>

#include "tailcast/app/command.h"
#include "tailcast/stream/names.h"

namespace tailcast::app {
namespace {

// So long an end was not found: worth a word.
constexpr Duration kComplainAfter = Duration::Seconds(5);

// Why the ends that are not in `ends` are not known.
std::string NotFoundYet(const consumer::Consumer& consumer,
                        const std::map<int32_t, int64_t>& ends) {
  for (int32_t shard : consumer.shards()) {
    if (ends.contains(shard)) continue;
    const Status& trouble = consumer.shard_status(shard).trouble;
    const size_t others = consumer.shards().size() - ends.size() - 1;
    return stream::ShardId{consumer.stream(), shard}.ToString() + ": where it ends can't be found" +
           (trouble.ok() ? "" : ": " + trouble.message()) +
           (others > 0 ? "; nor of " + std::to_string(others) + " shards more" : "");
  }
  return "";
}

}  // namespace

Result<std::map<int32_t, int64_t>> EndsNow(consumer::Options options) {
  options.start = consumer::StartPoint::CertainEnd();
  options.resume.clear();
  options.report_as.clear();
  TAILCAST_ASSIGN_OR_RETURN(auto consumer, consumer::Consumer::Open(options));
  std::map<int32_t, int64_t> ends;
  const MonotonicTime begin = ReadMonotonicClock();
  bool complained = false;
  while (!Interrupted()) {
    TAILCAST_RETURN_IF_ERROR(consumer->Poll(Duration::Millis(10)).status());
    for (int32_t shard : consumer->shards()) {
      // What came since it was located counts as well.
      if (const auto position = consumer->position(shard)) {
        ends.try_emplace(shard, position->number);
      } else if (consumer->shard_status(shard).state == consumer::ShardState::kWaiting) {
        ends.try_emplace(shard, 0);  // nothing of it is kept: its next file is waited for
      }
    }
    if (ends.size() == consumer->shards().size()) break;
    const Duration waited = ReadMonotonicClock() - begin;
    if (waited > options.open_timeout) return UnavailableError(NotFoundYet(*consumer, ends));
    if (waited > kComplainAfter && !std::exchange(complained, true)) {
      std::fprintf(stderr, "tailcast: %s; going on to try\n", NotFoundYet(*consumer, ends).c_str());
    }
  }
  return ends;
}

}  // namespace tailcast::app
