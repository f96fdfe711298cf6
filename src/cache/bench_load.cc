#include "tailcast/cache/bench_load.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"

namespace tailcast::cache {
namespace {

constexpr Duration kReadTimeout = Duration::Seconds(1);
constexpr Duration kWriteTimeout = Duration::Seconds(2);
// Of an open loop that falls behind; further operations wait, and their latency grows. As many bulk
// writes of 64 chunks are half of what a client has on its way to a replica (inflight_bytes_max).
constexpr size_t kInFlightMax = 128;
constexpr int kStartsPerTurn = 16;

void MutateOf(QuorumClient& client, const Scope& scope, std::vector<Mutation> mutations,
              std::function<void()> done) {
  client.Mutate(std::move(mutations), kWriteTimeout,
                scope.Bind([done = std::move(done)](const Status&) { done(); }));
}

void WriteNewChunks(BenchClient& client, const Scope& scope, size_t count,
                    std::function<void()> done) {
  BenchCell& cell = client.cell();
  std::vector<Mutation> mutations;
  const uint64_t first = cell.Take(count);
  for (size_t i = 0; i < count; ++i) {
    mutations.push_back({BenchCell::KeyOf(first + i), MergeRule::kLongerWins, false, cell.value()});
  }
  MutateOf(client.data(), scope, std::move(mutations), [&cell, first, done = std::move(done)] {
    cell.Written(first);
    done();
  });
}

// The metadata of one file, which grows.
struct Lengths {
  explicit Lengths(BenchCell& cell) : key(cell.OtherKey()), value(1024, '\0') {}
  std::vector<Mutation> Next() {
    ++step;
    std::memcpy(value.data(), &step, sizeof(step));
    return {{key, MergeRule::kMaxLanes, false, value}};
  }
  const Key key;
  std::string value;
  uint64_t step = 0;
};

}  // namespace

int64_t BenchNanos() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void ReportLatency(benchmark::State& state, const std::string& prefix, const Histogram& nanos) {
  state.counters[prefix + "p50_us"] = static_cast<double>(nanos.Percentile(50)) / 1e3;
  state.counters[prefix + "p99_us"] = static_cast<double>(nanos.Percentile(99)) / 1e3;
}

BenchOperation ReadChunksOf(BenchClient& client, size_t chunks, uint64_t mb) {
  struct Batch {
    std::vector<char> buffer;
    std::vector<ChunkRead> reads;
  };
  struct Reader {
    Rng rng{2};
    std::vector<std::unique_ptr<Batch>> idle;
    Scope scope;
  };
  auto reader = std::make_shared<Reader>();
  return [&client, chunks, mb, reader](std::function<void()> done) {
    std::unique_ptr<Batch> batch;
    if (reader->idle.empty()) {
      batch = std::make_unique<Batch>();
      batch->buffer.resize(chunks * kBenchChunk);
      batch->reads.resize(chunks);
    } else {
      batch = std::move(reader->idle.back());
      reader->idle.pop_back();
    }
    for (size_t i = 0; i < chunks; ++i) {
      batch->reads[i] = {client.cell().RandomKey(reader->rng, mb), 0, kBenchChunk, kBenchChunk,
                         batch->buffer.data() + i * kBenchChunk};
    }
    const std::span<ChunkRead> reads = batch->reads;
    if (client.data().TryReadChunks(reads)) {
      reader->idle.push_back(std::move(batch));
      done();
      return;
    }
    client.data().ReadChunks(reads, ReadMode::kRelaxed, kReadTimeout,
                             reader->scope.Bind([idle = &reader->idle, batch = std::move(batch),
                                                 done = std::move(done)]() mutable {
                               idle->push_back(std::move(batch));
                               done();
                             }));
  };
}

BenchOperation WriteChunksOf(BenchClient& client, size_t chunks) {
  auto scope = std::make_shared<Scope>();
  return [&client, chunks, scope](std::function<void()> done) {
    WriteNewChunks(client, *scope, chunks, std::move(done));
  };
}

BenchOperation WriteLengthsOf(BenchClient& client) {
  struct Writer {
    explicit Writer(BenchCell& cell) : lengths(cell) {}
    Lengths lengths;
    Scope scope;
  };
  auto writer = std::make_shared<Writer>(client.cell());
  return [&client, writer](std::function<void()> done) {
    MutateOf(client.metadata(), writer->scope, writer->lengths.Next(), std::move(done));
  };
}

BenchOperation FlushOf(BenchClient& client) {
  auto scope = std::make_shared<Scope>();
  return [&client, scope, publish = WriteLengthsOf(client)](std::function<void()> done) {
    WriteNewChunks(client, *scope, 2, [publish, done = std::move(done)] { publish(done); });
  };
}

double RunClosedLoop(BenchClient& client, const BenchOperation& operation, size_t in_flight,
                     double seconds, Histogram* nanos) {
  const int64_t start = BenchNanos();
  const int64_t end = start + static_cast<int64_t>(seconds * 1e9);
  const Scope scope;
  int64_t over = 0;
  size_t under_way = 0;
  // On the loop: an operation that is over inside its call must not starve it, nor recurse.
  std::function<void()> next = [&] {
    const int64_t begun = BenchNanos();
    if (begun >= end) return;
    ++under_way;
    operation([&, begun] {
      if (nanos != nullptr) nanos->Record(BenchNanos() - begun);
      ++over;
      --under_way;
      client.loop().Post(scope.Bind([&] { next(); }));
    });
  };
  for (size_t i = 0; i < in_flight; ++i) next();
  client.RunUntil([&] { return under_way == 0 && BenchNanos() >= end; });
  return static_cast<double>(over) * 1e9 / static_cast<double>(BenchNanos() - start);
}

double RunOpenLoop(BenchClient& client, const BenchOperation& operation, double rate,
                   double seconds, Histogram* nanos, const std::atomic<bool>* stop) {
  const int64_t start = BenchNanos();
  const double step = 1e9 / rate;
  const auto due = [&](int64_t k) {
    return start + static_cast<int64_t>(static_cast<double>(k) * step);
  };
  const auto total = static_cast<int64_t>(seconds * rate);
  const auto ended = [&] { return stop != nullptr && stop->load(std::memory_order_relaxed); };
  int64_t begun = 0, over = 0;
  const Scope scope;
  Timer timer(client.loop());
  std::function<void()> turn = [&] {
    for (int i = 0; i < kStartsPerTurn && begun < total && !ended(); ++i) {
      const int64_t intended = due(begun);
      if (intended > BenchNanos() || begun - over >= static_cast<int64_t>(kInFlightMax)) break;
      ++begun;
      operation([&, intended] {
        if (nanos != nullptr) nanos->Record(BenchNanos() - intended);
        ++over;
      });
    }
    if (begun == total || ended()) return;
    const int64_t next = std::max(due(begun), BenchNanos());
    timer.At(MonotonicTime::FromMicros(next / 1000 + 1), scope.Bind([&] { turn(); }));
  };
  turn();
  client.RunUntil([&] { return begun == over && (begun == total || ended()); });
  return static_cast<double>(over) * 1e9 / static_cast<double>(BenchNanos() - start);
}

}  // namespace tailcast::cache
