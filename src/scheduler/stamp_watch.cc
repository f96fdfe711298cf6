#include "tailcast/scheduler/stamp_watch.h"

namespace tailcast::scheduler {

void StampWatch::OnNotice(const stream::ShardId& shard, const stream::Stem& stem, WallTime wall) {
  const auto it = shards_.find(shard);
  if (it == shards_.end()) {  // it may have been there for long
    shards_[shard] = {stem, Duration()};
    return;
  }
  if (stem.seq <= it->second.newest.seq) return;
  const Duration behind = wall - WallTime::FromMicros(stem.created_us);
  it->second = {stem, behind > kBehindMax ? behind : Duration()};
}

void StampWatch::OnListed(const stream::ShardId& shard, const stream::Stem& newest) {
  const auto [it, added] = shards_.try_emplace(shard, Shard{newest, Duration()});
  if (!added && newest.seq > it->second.newest.seq) it->second = {newest, Duration()};
}

void StampWatch::Forget(const stream::StreamId& stream) {
  std::erase_if(shards_, [&](const auto& entry) { return entry.first.stream == stream; });
}

std::vector<StampWatch::Off> StampWatch::All(WallTime wall) const {
  std::vector<Off> all;
  for (const auto& [id, shard] : shards_) {
    const Duration ahead = WallTime::FromMicros(shard.newest.created_us) - wall;
    if (ahead > kAheadMax) {
      all.push_back({id, shard.newest.seq, ahead});
    } else if (shard.behind > Duration()) {
      all.push_back({id, shard.newest.seq, Duration() - shard.behind});
    }
  }
  return all;
}

}  // namespace tailcast::scheduler
