// What a stream's retention means for its producer: how large a message file becomes, and how much
// may lie in front of one that it opens.
//
// The bound of the disk, in the source: what is kept, the file that was closed last, which is not
// counted before the next one is there, and the file that is open; data and index, and each file
// may be larger by its last message. It holds with either policy, and while nobody is there who
// deletes: with "drop" the producer does not wait for a cell, but for the scheduler, which leaves
// out the cell that lacks the oldest file and lets that go (scheduler/retention_core.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tailcast/proto/cell.pb.h"

namespace tailcast::producer {

struct FileLimits {
  int64_t shard_bytes_max = 0;  // ProducerAgent::SetBytesMax
  int64_t roll_bytes = 0;       // ProducerAgent::SetRollBytes
};

// `roll_bytes`: that the producer is set to.
inline FileLimits LimitsOf(const v1::Retention& retention, int64_t roll_bytes) {
  FileLimits limits{retention.shard_bytes_max(), roll_bytes};
  if (retention.file_bytes() > 0) {
    limits.roll_bytes = retention.file_bytes();
  } else if (limits.shard_bytes_max > 0) {  // only whole files go
    limits.roll_bytes = std::min(roll_bytes, std::max<int64_t>(1, limits.shard_bytes_max / 4));
  }
  return limits;
}

}  // namespace tailcast::producer
