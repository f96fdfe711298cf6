// For tests of reader and writer pools: two cells in virtual time, all processes as in production,
// and a stream of several shards, each with a producer of its own rate in "us" and a consumer in
// "eu".
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/producer/producer.h"
#include "tailcast/world/bounds.h"
#include "tailcast/world/oracles.h"
#include "tailcast/world/programs.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {

struct PoolOptions {
  uint64_t seed = 1;
  int readers = 1, writers = 1;           // of each cell, at first: reader-1, ...
  std::vector<int64_t> bytes_per_second;  // of each shard
  int64_t roll_bytes = 1 << 20;
  int64_t slack = 10'000;       // scheduler::BalanceOptions, for a hundredth of the real traffic
  int64_t slow_after_ms = 200;  // of the topology
};

class Pools {
 public:
  explicit Pools(PoolOptions chosen)
      : options(std::move(chosen)),
        world({.seed = options.seed,
               .cells = {"us", "eu"},
               .link_delay = Duration::Millis(20),
               .caches = CacheKind::kServers}),
        node_(RunNode(world, {.caches = 3,
                              .cache_bytes = 16 << 20,
                              .slow_after_ms = options.slow_after_ms,
                              .balance = scheduler::BalanceOptions{.idle_bytes_per_s = 160,
                                                                   .slack = options.slack}})) {
    for (const std::string cell : {"us", "eu"}) {
      world.Start(cell, "scheduler", node_);
      for (int i = 1; i <= 3; ++i) world.Start(cell, "cache-" + std::to_string(i), node_);
      for (int i = 1; i <= options.readers; ++i) Add(cell, "reader", i);
      for (int i = 1; i <= options.writers; ++i) Add(cell, "writer", i);
    }
    for (size_t shard = 0; shard < options.bytes_per_second.size(); ++shard) {
      lines_.push_back(std::make_unique<Line>(world, "-shard-" + std::to_string(shard)));
      Line& line = *lines_.back();
      line.producer = &line.load.AddProducer("us", RunClient(world));
      line.load.AddConsumer("eu", RunClient(world));
    }
    CreateStream();
  }

  sim::VirtualTime& time() { return world.time(); }
  void Add(const std::string& cell, const std::string& role, int number) {
    world.Start(cell, role + "-" + std::to_string(number), node_);
  }

  // Publishes 20 times a second; looks at what must always hold (oracles.h), and who runs what.
  void Run(Duration time_to_run) {
    const MonotonicTime end = time().now() + time_to_run;
    while (time().now() < end) {
      for (size_t shard = 0; shard < lines_.size(); ++shard) {
        Line& line = *lines_[shard];
        if (const Status taken =
                line.load.Publish(*line.producer, options.bytes_per_second[shard] / 20);
            !taken.ok()) {
          ADD_FAILURE() << "shard " << shard << ": " << taken;
        }
      }
      time().RunFor(Duration::Millis(50));
      world.ReviveDead();
      if (each) each();
    }
    for (auto& line : lines_) EXPECT_EQ(line->oracles->Check(), "");
    EXPECT_EQ(CheckBounds(world), "");
  }
  // Until consumers have everything that was published.
  void Finish() {
    const auto done = [&] {
      return std::all_of(lines_.begin(), lines_.end(), [](const auto& line) {
        return line->load.AllSettled() && line->load.AllGot();
      });
    };
    EXPECT_TRUE(time().RunUntil(done, Duration::Seconds(30))) << "not everything arrived";
    for (const auto& line : lines_) {
      EXPECT_EQ(line->load.failed(), 0);
      EXPECT_EQ(line->load.Incomplete(*line->load.consumers[0]), "");
    }
  }

  // The longest that a message took from Publish until its consumer had it, of those that were
  // published since `from`.
  Duration LongestDelay(MonotonicTime from = MonotonicTime()) const {
    Duration longest;
    for (const auto& line : lines_) {
      const Workload::Consumer& c = *line->load.consumers[0];
      for (size_t i = 0; i < c.got.size(); ++i) {
        const auto id = Workload::IdOf(c.got[i]);
        if (!id) continue;
        const MonotonicTime at = line->load.published.at(*id).at;
        if (at >= from) longest = std::max(longest, c.got_at[i] - at);
      }
    }
    return longest;
  }
  // What each reader of "us" has sent, as its own metric says.
  std::map<std::string, int64_t> SentBytes() const {
    std::map<std::string, int64_t> sent;
    for (const auto& [name, process] : const_cast<Deployment&>(world).cell("us").processes) {
      if (!name.starts_with("reader")) continue;
      for (const MetricSample& m : process->metrics.Snapshot()) {
        if (m.name == "tailcast_reader_sent_bytes_total") sent[name] += m.value;
      }
    }
    return sent;
  }

  std::vector<stream::ShardId> Shards() const {
    std::vector<stream::ShardId> shards;
    for (const auto& line : lines_) shards.push_back(line->load.shard);
    return shards;
  }

  const PoolOptions options;
  Deployment world;
  std::function<void()> each;  // called 20 times a second; may be null

 private:
  struct Line {
    Line(Deployment& deployment, const std::string& suffix) : load(deployment, {}, suffix) {}
    Workload load;
    Workload::Producer* producer = nullptr;
    std::optional<Oracles> oracles;
  };

  void CreateStream() {
    const auto has_view = [](const Process& p) {
      return p.cell_client != nullptr && p.cell_client->has_view();
    };
    const auto views = [&] {
      return std::all_of(lines_.begin(), lines_.end(), [&](const auto& line) {
        return has_view(*line->producer->process) && has_view(*line->load.consumers[0]->process);
      });
    };
    ASSERT_TRUE(time().RunUntil(views, Duration::Seconds(20)));
    v1::StreamConfig request;
    request.set_name("flights");
    request.set_shards(static_cast<int32_t>(lines_.size()));
    request.set_chunk_size(4096);
    std::optional<Result<v1::StreamConfig>> made;
    const Scope scope;
    lines_[0]->producer->process->cell_client->CreateStream(
        request, scope.Bind([&](Result<v1::StreamConfig> r) { made.emplace(std::move(r)); }));
    ASSERT_TRUE(time().RunUntil([&] { return made.has_value(); }, Duration::Seconds(20)));
    ASSERT_TRUE(made->ok()) << made->status();
    for (size_t shard = 0; shard < lines_.size(); ++shard) {
      Line& line = *lines_[shard];
      line.load.shard = {stream::IdOf(**made), static_cast<int32_t>(shard)};
      line.oracles.emplace(
          world, OracleOptions{.source = "us", .shard = line.load.shard, .chunk_size = 4096});
      line.oracles->Watch(line.load);
      producer::AgentOptions producer;
      producer.flush_interval = producer::kLowLatencyFlushInterval;
      producer.self_clocked = true;
      producer.chunk_size = 4096;
      producer.roll_bytes = options.roll_bytes;
      line.load.Open(*line.producer, producer);
      consumer::AgentOptions consumer;
      consumer.doorbell = true;
      consumer.chunk_size = 4096;
      line.load.Start(*line.load.consumers[0], consumer);
    }
    const auto open = [&] {
      return std::all_of(lines_.begin(), lines_.end(), [](const auto& line) {
        return line->producer->opened.has_value() && line->producer->opened->ok();
      });
    };
    ASSERT_TRUE(time().RunUntil(open, Duration::Seconds(20)));
    time().RunFor(Duration::Seconds(3));  // past the grace after a start
  }

  const Program node_;
  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace tailcast::world
