// What a consumer counts.
#pragma once

#include <cstdint>

namespace tailcast::consumer {

// Each cause on its own (design rule "nothing silent"). Bytes count data and index.
struct Counters {
  int64_t messages = 0, bytes = 0;  // delivered, headers included
  int64_t cache_bytes = 0, primary_bytes = 0;
  int64_t fetches = 0;
  int64_t polls = 0, poll_failures = 0;  // of the metadata cache
  int64_t rounds_ahead = 0;
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

  Counters& operator+=(const Counters& other);
};

inline Counters& Counters::operator+=(const Counters& other) {
  messages += other.messages;
  bytes += other.bytes;
  cache_bytes += other.cache_bytes;
  primary_bytes += other.primary_bytes;
  fetches += other.fetches;
  polls += other.polls;
  poll_failures += other.poll_failures;
  rounds_ahead += other.rounds_ahead;
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
