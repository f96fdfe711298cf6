// For tests of producers and consumers without a cell's servers: one shard, on one disk and an
// in-memory cache.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "tailcast/base/rng.h"
#include "tailcast/world/deployment.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {

using consumer::ShardState;
using consumer::StartPoint;
using producer::ProducerAgent;
using stream::Part;

constexpr Duration kLong = Duration::Seconds(120);

struct OneCell {
  explicit OneCell(uint64_t seed) : deployment({.seed = seed}) {}
  Deployment deployment;
};

// One shard in one cell without servers: producers and consumers on its disk and an in-memory
// cache.
class OneShard : public OneCell, public Workload {
 public:
  explicit OneShard(uint64_t seed)
      : OneCell(seed),
        Workload(deployment, {{"s", stream::StreamIncarnation{77}}, 0}),
        rng(seed ^ 0x5eed) {}

  static producer::AgentOptions ProducerOptions() {
    producer::AgentOptions options;
    options.flush_interval = Duration::Millis(1);
    options.chunk_size = 256;
    options.roll_bytes = 3000;
    return options;
  }
  static consumer::AgentOptions ConsumerOptions() {
    consumer::AgentOptions options;
    options.poll = Duration::Millis(10);
    options.doorbell = true;
    options.window_bytes = 4096;
    options.chunk_size = 256;
    return options;
  }
  Producer& StartProducer(producer::AgentOptions options) {
    Producer& p = AddProducer("cell", nullptr);
    Open(p, options);
    return p;
  }
  // Opens and waits for the outcome.
  Producer& OpenProducer(producer::AgentOptions options) {
    Producer& p = StartProducer(options);
    EXPECT_TRUE(time.RunUntil([&] { return p.opened.has_value(); }, kLong));
    return p;
  }
  Consumer& StartConsumer(consumer::AgentOptions options,
                          StartPoint start = StartPoint::Beginning()) {
    Consumer& c = AddConsumer("cell", nullptr);
    Start(c, options, start);
    return c;
  }

  sim::VirtualTime& time = deployment.time();
  storage::FakeDisk& disk = *deployment.cell("cell").disk;
  cache::MemoryStore& data = *deployment.cell("cell").data;
  cache::MemoryStore& metadata = *deployment.cell("cell").metadata;
  Rng rng;  // of the test
};

// Publishes `count` messages of about `size` bytes, `gap` apart.
inline void PublishMany(OneShard& w, Workload::Producer& p, int count, int64_t size = 100,
                        Duration gap = Duration::Micros(300)) {
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(w.Publish(p, size).ok());
    w.time.RunFor(gap);
  }
}

#define EXPECT_DELIVERED(w, c, n)                                                            \
  EXPECT_TRUE(                                                                               \
      (w).time.RunUntil([&] { return static_cast<int64_t>((c).got.size()) >= (n); }, kLong)) \
      << (w).Incomplete(c) << " got " << (c).got.size();                                     \
  EXPECT_EQ((w).Incomplete(c), "")

}  // namespace tailcast::world
