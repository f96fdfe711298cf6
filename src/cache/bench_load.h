// The load of the benchmarks: what is done, and the loops that do it again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "benchmark/benchmark.h"
#include "tailcast/base/histogram.h"
#include "tailcast/cache/bench_cell.h"

namespace tailcast::cache {

int64_t BenchNanos();  // of the monotonic clock

// Latencies in nanoseconds, as the counters <prefix>p50_us and <prefix>p99_us of a row.
void ReportLatency(benchmark::State& state, const std::string& prefix, const Histogram& nanos);

// Something to do with a client; `done` runs when it is over, also inside the call. Several may be
// under way. Copies are one; they end before their client.
using BenchOperation = std::function<void(std::function<void()> done)>;

// Reads a batch of `chunks` at random out of the newest `mb` MB: on the caller's stack if it can.
BenchOperation ReadChunksOf(BenchClient& client, size_t chunks, uint64_t mb);
// Writes a batch of `chunks` new full chunks.
BenchOperation WriteChunksOf(BenchClient& client, size_t chunks);
// Writes the metadata of a file: 1 KB of lanes, of which one has grown.
BenchOperation WriteLengthsOf(BenchClient& client);
// What a producer's cache sees of a flush of 8 KB (producer/shadow.h): two chunks in one bulk
// write, then, when that was acknowledged, the lengths.
BenchOperation FlushOf(BenchClient& client);

// Closed loop: `in_flight` at a time, the next one when one is over, for that long. Returns how
// many a second. `nanos`: of each; may be null.
double RunClosedLoop(BenchClient& client, const BenchOperation& operation, size_t in_flight,
                     double seconds, Histogram* nanos);
// Open loop: operation k is due at k / rate, whether or not those before it are over, and its
// latency counts from then. Returns how many a second were over. Ends early when `stop` (may be
// null) becomes true.
double RunOpenLoop(BenchClient& client, const BenchOperation& operation, double rate,
                   double seconds, Histogram* nanos, const std::atomic<bool>* stop = nullptr);

}  // namespace tailcast::cache
