// Rows of the benchmark: reads by the client, over each driver, and by its fabric alone.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "benchmark/benchmark.h"
#include "tailcast/base/check.h"
#include "tailcast/cache/bench_cell.h"
#include "tailcast/cache/bench_load.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/fabric/connect.h"

namespace tailcast::cache {
namespace {

// One operation in so many is timed: two looks at the clock take a tenth of a short read.
constexpr uint64_t kTimedEvery = 16;

// Batches of `depth` chunks out of the newest `MB`, one batch at a time.
void ReadChunks(benchmark::State& state, const char* driver) {
  const auto depth = static_cast<size_t>(state.range(0));
  BenchClient client(TheBenchCell(), driver);
  const BenchOperation read = ReadChunksOf(client, depth, static_cast<uint64_t>(state.range(1)));
  Histogram nanos;
  uint64_t batches = 0;
  const CpuMeter cpu(client.cell().pids());
  const Scope scope;
  for (auto _ : state) {
    const int64_t begun = batches % kTimedEvery == 0 ? BenchNanos() : 0;
    bool done = false;
    // In a turn of the loop, as a consumer does.
    client.loop().Post(scope.Bind([&] { read([&] { done = true; }); }));
    client.RunUntil([&] { return done; });
    if (batches++ % kTimedEvery == 0) nanos.Record(BenchNanos() - begun);
  }
  const auto chunks = static_cast<double>(batches * depth);
  cpu.Report(state, chunks);
  ReportLatency(state, "", nanos);
  state.SetItemsProcessed(static_cast<int64_t>(chunks));
  state.counters["failures"] = client.failures();
}
BENCHMARK_CAPTURE(ReadChunks, shm, "shm")
    ->ArgNames({"depth", "MB"})
    ->Args({1, 64})
    ->Args({64, 64})
    ->Args({16, 16})
    ->Args({16, 256})
    ->Args({16, 1024})
    ->UseRealTime();
BENCHMARK_CAPTURE(ReadChunks, tcp, "tcp")
    ->ArgNames({"depth", "MB"})
    ->Args({1, 64})
    ->Args({16, 64})
    ->Args({64, 64})
    ->UseRealTime();

// The same bytes without the client: no look-up, no checksum, no quorum. Batches of `depth` reads
// of 4 KB, at random servers and places of the same amount of memory, one batch at a time.
void FabricRead(benchmark::State& state, const char* driver) {
  constexpr uint64_t kMemory = 64 << 20;
  const auto depth = static_cast<size_t>(state.range(0));
  BenchCell& cell = TheBenchCell();
  const RingConfig ring = cell.data(driver);
  const Scope scope;
  ThreadLoop loop;
  const auto connector = fabric::MakeConnector(&loop);
  std::vector<std::unique_ptr<fabric::Endpoint>> endpoints;
  std::vector<fabric::Completion> completions(depth);
  size_t left = 0;
  const auto poll = [&] {
    for (const auto& endpoint : endpoints) {
      for (size_t n = completions.size(); n == completions.size();) {
        n = endpoint->Poll(completions);
        for (size_t i = 0; i < n; ++i) {
          if (completions[i].status != fabric::ReadStatus::kOk)
            state.SkipWithError("a read failed");
        }
        left -= n;
      }
    }
  };
  for (const Replica& replica : ring.replicas) {
    const size_t before = endpoints.size();
    connector->Connect(replica.fabric_addresses.at(0), Duration::Seconds(10),
                       scope.Bind([&](Result<std::unique_ptr<fabric::Endpoint>> endpoint) {
                         TAILCAST_CHECK(endpoint.ok(), endpoint.status().ToString());
                         endpoints.push_back(std::move(*endpoint));
                       }));
    loop.RunUntil([&] { return endpoints.size() > before; }, loop.Now() + Duration::Seconds(10));
    endpoints.back()->SetReadyCallback(scope.Bind(poll));
  }
  std::vector<char> buffer(depth * kBenchChunk);
  std::vector<std::vector<fabric::ReadDescriptor>> reads(endpoints.size());
  const uint64_t places = kMemory / endpoints.size() / kBenchChunk;
  Rng rng(1);
  Histogram nanos;
  uint64_t batches = 0;
  const CpuMeter cpu(cell.pids());
  for (auto _ : state) {
    const int64_t begun = batches % kTimedEvery == 0 ? BenchNanos() : 0;
    for (size_t i = 0; i < depth; ++i) {
      reads[rng.Below(reads.size())].push_back({layout::kDataRegion, kBenchChunk,
                                                rng.Below(places) * kBenchChunk,
                                                buffer.data() + i * kBenchChunk, i});
    }
    left = depth;
    for (size_t i = 0; i < reads.size(); ++i) {
      if (!reads[i].empty()) endpoints[i]->Read(reads[i]);
      reads[i].clear();
    }
    poll();
    if (left > 0) {
      loop.RunUntil([&] { return left == 0; }, loop.Now() + Duration::Seconds(10));
    }
    if (batches++ % kTimedEvery == 0) nanos.Record(BenchNanos() - begun);
  }
  const auto chunks = static_cast<double>(batches * depth);
  cpu.Report(state, chunks);
  ReportLatency(state, "", nanos);
  state.SetItemsProcessed(static_cast<int64_t>(chunks));
  endpoints.clear();
}
BENCHMARK_CAPTURE(FabricRead, shm, "shm")->ArgName("depth")->Arg(1)->Arg(64)->UseRealTime();
BENCHMARK_CAPTURE(FabricRead, tcp, "tcp")
    ->ArgName("depth")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->UseRealTime();

// A chunk that is read again and again while it grows by 256 bytes: only the suffix moves.
void ReadSuffix(benchmark::State& state) {
  BenchClient client(TheBenchCell(), "shm");
  Rng rng(3);
  const Key key = client.cell().RandomKey(rng, 16);
  std::vector<char> buffer(kBenchChunk);
  ChunkRead prefix{key, 0, kBenchChunk - 256, kBenchChunk - 256, buffer.data()};
  TAILCAST_CHECK(client.data().TryReadChunks(std::span(&prefix, 1)), "missed");
  for (auto _ : state) {
    ChunkRead read{key, kBenchChunk - 256, kBenchChunk, kBenchChunk, buffer.data(), 0, prefix.crc};
    TAILCAST_CHECK(client.data().TryReadChunks(std::span(&read, 1)), "missed");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ReadSuffix);

// A consumer's poll: the lengths of one group of files, joined over two replicas, by callback.
void ReadLengths(benchmark::State& state, const char* driver) {
  BenchClient client(TheBenchCell(), driver);
  const Scope scope;
  const Key key = client.cell().OtherKey();
  bool written = false;
  client.metadata().Mutate({{key, MergeRule::kMaxLanes, false, std::string(1024, 'a')}},
                           Duration::Seconds(1), scope.Bind([&](Status) { written = true; }));
  client.RunUntil([&] { return written; });
  Histogram nanos;
  uint64_t reads = 0;
  const CpuMeter cpu(client.cell().pids());
  for (auto _ : state) {
    const int64_t begun = reads % kTimedEvery == 0 ? BenchNanos() : 0;
    bool done = false;
    client.metadata().ReadValues({{key, MergeRule::kMaxLanes}}, Duration::Seconds(1),
                                 scope.Bind([&](const Result<Values>& values) {
                                   TAILCAST_CHECK(values.ok() && (*values)[0].has_value(),
                                                  "missed");
                                   done = true;
                                 }));
    client.RunUntil([&] { return done; });
    if (reads++ % kTimedEvery == 0) nanos.Record(BenchNanos() - begun);
  }
  cpu.Report(state, static_cast<double>(reads));
  ReportLatency(state, "", nanos);
  state.SetItemsProcessed(static_cast<int64_t>(reads));
}
BENCHMARK_CAPTURE(ReadLengths, shm, "shm")->UseRealTime();
BENCHMARK_CAPTURE(ReadLengths, tcp, "tcp")->UseRealTime();

}  // namespace
}  // namespace tailcast::cache
