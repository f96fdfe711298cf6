// The tunables of a consumer of one shard.
#pragma once

#include <cstdint>
#include <optional>

#include "tailcast/base/thread_times.h"
#include "tailcast/base/time.h"

namespace tailcast::consumer {

struct AgentOptions {
  // How often lengths are polled. With `doorbell` a watch on the lengths replaces the polls, and
  // this is what is done where nobody can watch.
  Duration poll = Duration::Millis(100);
  bool doorbell = false;
  // With doorbell: notifications closer than this are taken together.
  Duration doorbell_pause = Duration::Millis(0);
  // With doorbell: how long the agent's thread has run and waited for a processor; then it is set
  // again later while the machine is full (stream/pace_core.h). Null: at once.
  std::optional<ThreadTimes> (*thread_times)() = nullptr;
  // How often the primary layer itself is asked for lengths: the fallback when the metadata cache
  // is away, and how a stream is found whose lengths nobody published. And how often lengths are
  // polled of a file that can't have others.
  Duration primary_poll = Duration::Seconds(1);
  // Algorithm 1's maxDelay.
  Duration delay_max = Duration::Seconds(1);
  // Passive rate limit, bytes per second of data; 0: none. `rate_burst_bytes` may come at once.
  int64_t rate_bytes_per_s = 0;
  int64_t rate_burst_bytes = 64 << 20;
  // Data bytes that one fetch asks for at most; twice as much is kept in memory, besides the
  // largest message, and as much again if the user ever looked at messages while others were read;
  // a consumer that keeps up touches little of it. What a round of reads costs
  // is shared by its bytes: over tcp four times as much cost a fifth less.
  int64_t window_bytes = 1 << 20;
  // A message over this is taken for corruption (DataLoss).
  int64_t message_bytes_max = 256 << 20;
  // Chunk size of files whose metadata is not (yet) known.
  int64_t chunk_size = 4096;
  // A heartbeat that did not move for so long, with nothing new, is a stuck path and not a quiet
  // producer.
  Duration stuck_after = Duration::Seconds(5);
  // On a full machine answers of a large crowd take 250 ms; what is given up as late is paid for,
  // and asked for again. As long as a cache lets a read take (cache::kReadDeadlineMax).
  Duration cache_timeout = Duration::Millis(400);
};

}  // namespace tailcast::consumer
