#include "tailcast/app/shard_ends.h"

#include "tailcast/app/command.h"

namespace tailcast::app {

Result<std::map<int32_t, int64_t>> EndsNow(consumer::Options options) {
  options.start = consumer::StartPoint::End();
  options.resume.clear();
  options.report_as.clear();
  TAILCAST_ASSIGN_OR_RETURN(auto consumer, consumer::Consumer::Open(options));
  std::map<int32_t, int64_t> ends;
  while (ends.size() < consumer->shards().size() && !Interrupted()) {
    TAILCAST_RETURN_IF_ERROR(consumer->Poll(Duration::Millis(10)).status());
    for (int32_t shard : consumer->shards()) {
      if (consumer->shard_status(shard).state == consumer::ShardState::kLocating) continue;
      // What came since it was located counts as well. Of one without files there is nothing.
      const auto position = consumer->position(shard);
      ends.try_emplace(shard, position ? position->number : 0);
    }
  }
  return ends;
}

}  // namespace tailcast::app
