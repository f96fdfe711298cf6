// Rows of the benchmark: what writes cost, each alone.
#include "benchmark/benchmark.h"
#include "tailcast/cache/bench_cell.h"
#include "tailcast/cache/bench_load.h"

namespace tailcast::cache {
namespace {

// An operation again and again, the next one when the one before is over.
void OneByOne(benchmark::State& state, BenchClient& client, const BenchOperation& operation,
              size_t items_each) {
  Histogram nanos;
  const CpuMeter cpu(client.cell().pids());
  for (auto _ : state) {
    const int64_t begun = BenchNanos();
    bool done = false;
    operation([&] { done = true; });
    client.RunUntil([&] { return done; });
    nanos.Record(BenchNanos() - begun);
  }
  const auto items = state.iterations() * static_cast<int64_t>(items_each);
  cpu.Report(state, static_cast<double>(items));
  ReportLatency(state, "", nanos);
  state.SetItemsProcessed(items);
  state.counters["failures"] = client.failures();
}

// One value of 1 KB to three replicas: the metadata of a quiet stream.
void MutateValue(benchmark::State& state, const char* driver) {
  BenchClient client(TheBenchCell(), driver);
  OneByOne(state, client, WriteLengthsOf(client), 1);
}
BENCHMARK_CAPTURE(MutateValue, shm, "shm")->UseRealTime();
BENCHMARK_CAPTURE(MutateValue, tcp, "tcp")->UseRealTime();

// A flush of 8 KB, as a producer shadows it. An item is a flush.
void Flush8KB(benchmark::State& state, const char* driver) {
  BenchClient client(TheBenchCell(), driver);
  OneByOne(state, client, FlushOf(client), 1);
}
BENCHMARK_CAPTURE(Flush8KB, shm, "shm")->UseRealTime();
BENCHMARK_CAPTURE(Flush8KB, tcp, "tcp")->UseRealTime();

// New chunks of 4 KB to three replicas, 64 in a bulk write, `in_flight` bulk writes at a time (a
// producer has up to four). An item is a chunk; latencies are those of a bulk write.
void MutateChunks(benchmark::State& state, const char* driver) {
  constexpr size_t kBatch = 64;
  BenchClient client(TheBenchCell(), driver);
  const BenchOperation write = WriteChunksOf(client, kBatch);
  Histogram nanos;
  double items = 0;
  const CpuMeter cpu(client.cell().pids());
  for (auto _ : state) {
    const double seconds = TheBenchOptions().seconds;
    RunClosedLoop(client, write, static_cast<size_t>(state.range(0)), seconds, &nanos);
    items = static_cast<double>(nanos.Count() * kBatch);
  }
  cpu.Report(state, items);
  ReportLatency(state, "", nanos);
  state.SetItemsProcessed(static_cast<int64_t>(items));
  state.counters["failures"] = client.failures();
}
BENCHMARK_CAPTURE(MutateChunks, shm, "shm")
    ->ArgName("in_flight")
    ->Arg(1)
    ->Arg(4)
    ->Iterations(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(MutateChunks, tcp, "tcp")
    ->ArgName("in_flight")
    ->Arg(1)
    ->Arg(4)
    ->Iterations(1)
    ->UseRealTime();

}  // namespace
}  // namespace tailcast::cache
