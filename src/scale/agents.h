// What real agents do in virtual time: a chain of cells with all their processes, producers in the
// first one and consumers in the last one, and what those asked of the caches for each second. The
// model (reading.h, delay.h) is held against it.
#pragma once

#include <cstdint>

#include "tailcast/base/histogram.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::scale {

struct AgentSetup {
  uint64_t seed = 1;
  int cells = 1;
  Duration link = Duration::Millis(40);  // one way, between neighbours
  int caches = 4;                        // servers of each cell
  int shards = 2;
  int consumers = 8;             // each reads one shard; shards in turns
  int64_t bytes_per_s = 60'000;  // of each shard
  int64_t message_bytes = 1000;
  bool low_latency = false;  // doorbells in place of polls, flushes as soon as may be
  Duration flush;            // 0: the profile's
  Duration poll;             // of consumers; 0: the profile's
  Duration measured = Duration::Seconds(20);
};

// For each consumer and second, but for the last ones.
struct Observed {
  double value_reads = 0;    // of lengths
  double chunk_reads = 0;    // of the data cache
  double wider_reads = 0;    // of those: asked of further replicas, since one had too little
  double payload_bytes = 0;  // of messages
  double read_bytes = 0;     // of the data servers' memory, look-ups included
  double fallbacks = 0;      // reads of the primary layer
  double chunk_writes = 0;   // of the data cache of the first cell, each shard: keys, not copies
  double length_writes = 0;  // of its metadata cache
  Histogram delay_us;        // from Publish to the consumer's hand, of all messages and consumers
};

// Some seconds of CPU time. Internal: the deployment did not start, or a message was lost.
Result<Observed> Observe(const AgentSetup& setup);

}  // namespace tailcast::scale
