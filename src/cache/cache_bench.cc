// What does a one-sided read of a chunk cost its reader? Three real servers in a thread of their
// own, one client, every byte validated. On two cores of a cloud machine expect 4 KB chunks over
// shm at 0.3 to 0.6 us hot (16 MB) and about 1 us cold (1 GB). Back of the envelope, hot: copy 4160
// B at 20 GB/s = 0.2 us, crc at 0.02 ns/B = 0.1 us, two lines of index and the calls 0.1 us.
//
//   ./dev bench cache --benchmark_min_time=1 --benchmark_repetitions=3
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client.h"
#include "tailcast/cache/test_cell.h"

namespace tailcast::cache {
namespace {

constexpr uint32_t kChunk = 4096;

struct World {
  World(uint64_t chunks, bool tcp) : cell(3, chunks * (kChunk + 200) * 14 / 10 + (64 << 20), tcp) {
    fabric = fabric::MakeConnector(&loop);
    rpc = rpc::MakeGrpcConnector(loop);
    client = std::make_unique<QuorumClient>(&loop, fabric.get(), rpc.get(), QuorumClientOptions{},
                                            cell.config());
    Rng rng(1);
    std::string value(kChunk, '\0');
    for (char& c : value) c = static_cast<char>(rng.Next());
    for (uint64_t i = 0; i < chunks; i += 256) {
      std::vector<Mutation> mutations;
      for (uint64_t n = i; n < std::min(i + 256, chunks); ++n) {
        keys.push_back({rng.Next(), rng.Next()});
        mutations.push_back({keys.back(), MergeRule::kLongerWins, false, value});
      }
      bool done = false;
      client->Mutate(std::move(mutations), Duration::Seconds(10), scope.Bind([&](Status status) {
        TAILCAST_CHECK(status.ok(), status.ToString());
        done = true;
      }));
      RunUntil([&] { return done; });
    }
    RunUntil([&] { return client->ready_replicas() == 3; });
  }
  ~World() { client.reset(); }
  void RunUntil(const std::function<bool()>& done) {
    TAILCAST_CHECK(loop.RunUntil(done, loop.Now() + Duration::Seconds(60)), "timed out");
  }

  const Scope scope;
  TestCell cell;
  ThreadLoop loop;
  std::unique_ptr<fabric::Connector> fabric;
  std::unique_ptr<rpc::Connector> rpc;
  std::unique_ptr<QuorumClient> client;
  std::vector<Key> keys;
};

// Chunks of a working set in random order, as many consumers see them.
void BM_TryReadChunksShm(benchmark::State& state) {
  World world(static_cast<uint64_t>(state.range(0)) * 1024 * 1024 / kChunk, false);
  std::vector<char> buffer(kChunk * 16);
  std::vector<ChunkRead> reads(16);
  Rng rng(2);
  uint64_t misses = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < reads.size(); ++i) {
      reads[i] = {world.keys[rng.Below(world.keys.size())], 0, kChunk, kChunk,
                  buffer.data() + i * kChunk};
    }
    misses += world.client->TryReadChunks(reads) ? 0 : 1;
  }
  state.SetItemsProcessed(state.iterations() * 16);
  state.SetBytesProcessed(state.iterations() * 16 * kChunk);
  state.counters["misses"] = static_cast<double>(misses);
}
BENCHMARK(BM_TryReadChunksShm)->ArgName("MB")->Arg(16)->Arg(1024);

// The floor: copy and checksum of the same bytes in this process.
void BM_CopyAndChecksum(benchmark::State& state) {
  const uint64_t chunks = static_cast<uint64_t>(state.range(0)) * 1024 * 1024 / kChunk;
  std::vector<char> memory(chunks * kChunk, 'x'), buffer(kChunk * 16);
  Rng rng(2);
  uint32_t sum = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < 16; ++i) {
      std::memcpy(buffer.data() + i * kChunk, memory.data() + rng.Below(chunks) * kChunk, kChunk);
      sum += Crc32cExtend(0, buffer.data() + i * kChunk, kChunk);
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations() * 16);
  state.SetBytesProcessed(state.iterations() * 16 * kChunk);
}
BENCHMARK(BM_CopyAndChecksum)->ArgName("MB")->Arg(16)->Arg(1024);

// A chunk that is read again and again while it grows by 256 bytes: only the suffix moves.
void BM_SuffixShm(benchmark::State& state) {
  World world(1024, false);
  std::vector<char> buffer(kChunk);
  for (auto _ : state) {
    ChunkRead read{world.keys[0], kChunk - 256, kChunk, kChunk, buffer.data()};
    state.PauseTiming();
    ChunkRead prefix{world.keys[0], 0, kChunk, kChunk, buffer.data()};
    TAILCAST_CHECK(world.client->TryReadChunks(std::span(&prefix, 1)), "missed");
    read.crc = Crc32cExtend(0, buffer.data(), kChunk - 256);
    state.ResumeTiming();
    TAILCAST_CHECK(world.client->TryReadChunks(std::span(&read, 1)), "missed");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_SuffixShm)->Iterations(20000);

// A consumer's poll: the lengths of one group of files, joined over two replicas, by callback.
void BM_ReadValuesShm(benchmark::State& state) {
  const Scope scope;
  World world(64, false);
  Rng rng(3);
  const Key key{rng.Next(), rng.Next()};
  bool done = false;
  world.client->Mutate({{key, MergeRule::kMaxLanes, false, std::string(1024, 'a')}},
                       Duration::Seconds(1), scope.Bind([&](Status) { done = true; }));
  world.RunUntil([&] { return done; });
  uint64_t left = 0;
  std::function<void()> next = [&] {
    world.client->ReadValues({{key, MergeRule::kMaxLanes}}, Duration::Seconds(1),
                             scope.Bind([&](auto values) {
                               TAILCAST_CHECK(values.ok() && (*values)[0].has_value(), "missed");
                               if (--left > 0) next();
                             }));
  };
  for (auto _ : state) {
    left = 1000;
    next();
    world.RunUntil([&] { return left == 0; });
  }
  state.SetItemsProcessed(state.iterations() * 1000);
}
BENCHMARK(BM_ReadValuesShm);

// Batches of 64 over the tcp engine, one batch at a time: depth 64.
void BM_ReadChunksTcp(benchmark::State& state) {
  const Scope scope;
  const auto depth = static_cast<size_t>(state.range(0));
  World world(4096, true);
  std::vector<char> buffer(kChunk * depth);
  std::vector<ChunkRead> reads(depth);
  Rng rng(2);
  uint64_t left = 0;
  std::function<void()> next = [&] {
    for (size_t i = 0; i < depth; ++i) {
      reads[i] = {world.keys[rng.Below(world.keys.size())], 0, kChunk, kChunk,
                  buffer.data() + i * kChunk};
    }
    world.client->ReadChunks(reads, ReadMode::kRelaxed, Duration::Seconds(1), scope.Bind([&] {
      if (--left > 0) next();
    }));
  };
  for (auto _ : state) {
    left = 100;
    next();
    world.RunUntil([&] { return left == 0; });
  }
  state.SetItemsProcessed(state.iterations() * 100 * static_cast<int64_t>(depth));
  state.counters["misses"] = static_cast<double>(world.client->counters().misses);
}
BENCHMARK(BM_ReadChunksTcp)->ArgName("depth")->Arg(1)->Arg(16)->Arg(64)->UseRealTime();

// What a flush of a quiet stream costs: one small value to three replicas, one call after the
// other. All threads of client and servers count.
void BM_MutateOneValue(benchmark::State& state) {
  const Scope scope;
  World world(64, false);
  Rng rng(3);
  const Key key{rng.Next(), rng.Next()};
  uint64_t step = 0;
  for (auto _ : state) {
    bool done = false;
    std::string value(1024, '\0');
    std::memcpy(value.data(), &++step, 8);
    world.client->Mutate({{key, MergeRule::kMaxLanes, false, value}}, Duration::Seconds(1),
                         scope.Bind([&](Status) { done = true; }));
    world.RunUntil([&] { return done; });
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["failures"] = static_cast<double>(world.client->counters().mutation_failures);
}
BENCHMARK(BM_MutateOneValue)->UseRealTime()->MeasureProcessCPUTime();

// Bulk writes of 64 full chunks to three replicas over gRPC.
void BM_MutateChunks(benchmark::State& state) {
  const Scope scope;
  World world(65536, false);
  const std::string value(kChunk, 'v');
  Rng rng(9);
  for (auto _ : state) {
    std::vector<Mutation> mutations;
    for (int i = 0; i < 64; ++i) {
      mutations.push_back({{rng.Next(), rng.Next()}, MergeRule::kLongerWins, false, value});
    }
    bool done = false;
    world.client->Mutate(std::move(mutations), Duration::Seconds(5),
                         scope.Bind([&](Status) { done = true; }));
    world.RunUntil([&] { return done; });
  }
  state.SetItemsProcessed(state.iterations() * 64);
  state.counters["failures"] = static_cast<double>(world.client->counters().mutation_failures);
}
BENCHMARK(BM_MutateChunks)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
}  // namespace tailcast::cache
