// The tunables of a consumer of one shard, and its counters.
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
  // is away, and how a stream is found whose lengths nobody published.
  Duration primary_poll = Duration::Seconds(1);
  // Algorithm 1's maxDelay.
  Duration delay_max = Duration::Seconds(1);
  // Passive rate limit, bytes per second of data; 0: none. `rate_burst_bytes` may come at once.
  int64_t rate_bytes_per_s = 0;
  int64_t rate_burst_bytes = 64 << 20;
  // Data bytes that one fetch asks for at most; twice as much is kept in memory, besides the
  // largest message, of which a consumer that keeps up touches little. What a round of reads costs
  // is shared by its bytes: over tcp four times as much cost a fifth less.
  int64_t window_bytes = 1 << 20;
  // A message over this is taken for corruption (DataLoss).
  int64_t message_bytes_max = 256 << 20;
  // Chunk size of files whose metadata is not (yet) known.
  int64_t chunk_size = 4096;
  // A heartbeat that did not move for so long, with nothing new, is a stuck path and not a quiet
  // producer.
  Duration stuck_after = Duration::Seconds(5);
  Duration cache_timeout = Duration::Millis(250);
};

// Each cause on its own (design rule "nothing silent"). Bytes count data and index.
struct AgentCounters {
  int64_t messages = 0, bytes = 0;  // delivered payloads
  int64_t cache_bytes = 0, primary_bytes = 0;
  int64_t fetches = 0;
  int64_t polls = 0, poll_failures = 0;  // of the metadata cache
  int64_t notifications = 0, refused_watches = 0;
  int64_t metadata_unknown = 0;  // the metadata cache knew nothing of the file
  int64_t primary_size_polls = 0;
  int64_t fallback_missing_chunk = 0;  // primary reads because chunks were missing
  int64_t fallback_delayed = 0;        // because Algorithm 1 found the cache delayed
  int64_t fallback_no_metadata = 0;    // because the cache layer's length was not known
  int64_t fallback_corrupt = 0;        // because bytes of the cache failed their check
  int64_t primary_errors = 0;
  int64_t short_reads = 0;                       // neither layer had what a length promised
  int64_t short_chunks = 0, missing_chunks = 0;  // of the cache
  int64_t rate_limited = 0;                      // fetches that waited for the rate limit
  int64_t roll_overs = 0;
  int64_t listings = 0;
  int64_t hole_waits = 0;  // a later file is there, the next one is not

  AgentCounters& operator+=(const AgentCounters& other);
};

inline AgentCounters& AgentCounters::operator+=(const AgentCounters& other) {
  messages += other.messages;
  bytes += other.bytes;
  cache_bytes += other.cache_bytes;
  primary_bytes += other.primary_bytes;
  fetches += other.fetches;
  polls += other.polls;
  poll_failures += other.poll_failures;
  notifications += other.notifications;
  refused_watches += other.refused_watches;
  metadata_unknown += other.metadata_unknown;
  primary_size_polls += other.primary_size_polls;
  fallback_missing_chunk += other.fallback_missing_chunk;
  fallback_delayed += other.fallback_delayed;
  fallback_no_metadata += other.fallback_no_metadata;
  fallback_corrupt += other.fallback_corrupt;
  primary_errors += other.primary_errors;
  short_reads += other.short_reads;
  short_chunks += other.short_chunks;
  missing_chunks += other.missing_chunks;
  rate_limited += other.rate_limited;
  roll_overs += other.roll_overs;
  listings += other.listings;
  hole_waits += other.hole_waits;
  return *this;
}

}  // namespace tailcast::consumer
