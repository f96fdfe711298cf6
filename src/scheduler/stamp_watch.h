// Whose clock is wrong: message files carry in their names when their producers created them, by
// clocks of other hosts. Nothing is decided by that here (retention counts age by another clock,
// retention_core.h), but consumers that begin at a time find their place by it, so people are told
// when it is far from what this host's clock says. Which of the two is right nobody knows.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

class StampWatch {
 public:
  // Stamps only grow, so one that is ahead is said to be so until it is passed.
  static constexpr Duration kAheadMax = Duration::Seconds(10);
  // Of a file that is announced, which may take a while.
  static constexpr Duration kBehindMax = Duration::Seconds(60);

  // The shard's producer has announced a file, or it was found. `wall`: this host's.
  void OnNotice(const stream::ShardId& shard, const stream::Stem& stem, WallTime wall);
  void OnListed(const stream::ShardId& shard, const stream::Stem& newest);
  void Forget(const stream::StreamId& stream);

  struct Off {
    stream::ShardId shard;
    int64_t seq = 0;  // the newest file
    Duration ahead;   // of this host's clock; negative: behind
  };
  std::vector<Off> All(WallTime wall) const;

 private:
  struct Shard {
    stream::Stem newest;
    Duration behind;  // when it was announced; 0: not known, or little
  };
  std::map<stream::ShardId, Shard> shards_;
};

}  // namespace tailcast::scheduler
