// Rows of the benchmark: the latency of one kind of load before and while another one runs beside
// it, on another thread with another client.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"
#include "tailcast/base/check.h"
#include "tailcast/base/thread_priority.h"
#include "tailcast/cache/bench_cell.h"
#include "tailcast/cache/bench_load.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::cache {
namespace {

constexpr double kShareOfAlone = 0.65;
constexpr double kAloneSeconds = 1;     // in which the rate alone is measured
constexpr double kSettleSeconds = 0.5;  // of the load beside, before latencies count
constexpr uint64_t kWorkingSetMb = 64;
constexpr double kForever = 3600;

// A consumer of 4 MB/s reads every 10 ms, and a producer of 4 MB/s flushes 8 KB 512 times a second.
constexpr double kFlushesPerSecond = 512;
constexpr double kReadsPerSecond = 2000;
constexpr double kConsumerBatchesPerSecond = 100;
constexpr size_t kConsumerBatch = 10;

using Body = std::function<void(const std::atomic<bool>& stop)>;

// Runs `body`, which outlives this, on a thread of its own, and stops it.
class Beside {
 public:
  explicit Beside(const Body& body) : thread_([this, &body] { body(stop_); }) {}
  ~Beside() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

enum class As : uint8_t { kConsumer, kProducer };

// Latency of `measured` in an open loop, before and while `beside` runs; as before_p50_us, p50_us
// and so on. On a thread like that of a consumer or a producer.
void BeforeAndWhile(benchmark::State& state, BenchClient& client, As as,
                    const BenchOperation& measured, double rate, const Body& beside) {
  const auto run = [&](double seconds, Histogram* nanos) {
    std::thread([&] {
      if (as == As::kProducer) RunBeforeOthers();
      RunOpenLoop(client, measured, rate, seconds, nanos);
    }).join();
  };
  const double seconds = TheBenchOptions().seconds;
  Histogram before, meanwhile;
  for (auto _ : state) {
    run(kSettleSeconds, nullptr);
    run(seconds, &before);
    const Beside other(beside);
    run(kSettleSeconds, nullptr);
    run(seconds, &meanwhile);
  }
  ReportLatency(state, "before_", before);
  ReportLatency(state, "", meanwhile);
  state.counters["samples"] = static_cast<double>(meanwhile.Count());
  state.counters["failures"] = client.failures();
}

// Single chunks are read, 2,000 a second, while bulk writes of 64 chunks run at 65 % of the rate
// that they reach alone.
void ReadsBesideWrites(benchmark::State& state, const char* driver) {
  BenchCell& cell = TheBenchCell();
  double alone = 0;
  {
    BenchClient writer(cell, driver);
    alone = RunClosedLoop(writer, WriteChunksOf(writer, 64), 4, kAloneSeconds, nullptr);
  }
  std::atomic<double> held{0}, failed{0};
  BenchClient client(cell, driver);
  BeforeAndWhile(state, client, As::kConsumer, ReadChunksOf(client, 1, kWorkingSetMb),
                 kReadsPerSecond, [&](const std::atomic<bool>& stop) {
                   RunBeforeOthers();
                   BenchClient writer(cell, driver);
                   const BenchOperation write = WriteChunksOf(writer, 64);
                   held =
                       RunOpenLoop(writer, write, alone * kShareOfAlone, kForever, nullptr, &stop);
                   failed = writer.failures();
                 });
  state.counters["beside_chunks_per_s"] = held * 64;
  state.counters["beside_of_alone"] = held / alone;
  state.counters["failures"].value += failed;
}
BENCHMARK_CAPTURE(ReadsBesideWrites, shm, "shm")->Iterations(1)->UseRealTime();
BENCHMARK_CAPTURE(ReadsBesideWrites, tcp, "tcp")->Iterations(1)->UseRealTime();

// A producer of 4 MB/s flushes, while batches of 64 chunks are read at 65 % of the rate that they
// reach alone.
void WritesBesideReads(benchmark::State& state, const char* driver) {
  BenchCell& cell = TheBenchCell();
  double alone = 0;
  {
    BenchClient reader(cell, driver);
    const BenchOperation read = ReadChunksOf(reader, 64, kWorkingSetMb);
    alone = RunClosedLoop(reader, read, 1, kAloneSeconds, nullptr);
  }
  std::atomic<double> held{0};
  BenchClient client(cell, driver);
  BeforeAndWhile(state, client, As::kProducer, FlushOf(client), kFlushesPerSecond,
                 [&](const std::atomic<bool>& stop) {
                   BenchClient reader(cell, driver);
                   const BenchOperation read = ReadChunksOf(reader, 64, kWorkingSetMb);
                   held =
                       RunOpenLoop(reader, read, alone * kShareOfAlone, kForever, nullptr, &stop);
                 });
  state.counters["beside_chunks_per_s"] = held * 64;
  state.counters["beside_of_alone"] = held / alone;
}
BENCHMARK_CAPTURE(WritesBesideReads, shm, "shm")->Iterations(1)->UseRealTime();
BENCHMARK_CAPTURE(WritesBesideReads, tcp, "tcp")->Iterations(1)->UseRealTime();

// Consumers of 4 MB/s on one thread, each with its own connections. One stays for half a second to
// one and a half, then another one takes its place.
class Crowd {
 public:
  Crowd(BenchCell& cell, const char* driver, size_t consumers)
      : cell_(cell),
        driver_(driver),
        fabric_(fabric::MakeConnector(&loop_)),
        rpc_(rpc::MakeGrpcConnector(loop_)) {
    for (size_t i = 0; i < consumers; ++i) visitors_.push_back(std::make_unique<Visitor>(loop_));
  }
  ~Crowd() {
    for (auto& visitor : visitors_) visitor->client.reset();
  }

  void Run(const std::atomic<bool>& stop) {
    for (auto& visitor : visitors_) Come(*visitor);
    while (!stop) loop_.RunFor(Duration::Millis(10));
  }
  uint64_t visits() const { return visits_; }
  uint64_t chunks() const { return chunks_; }
  const Histogram& nanos() const { return nanos_; }  // of batches, from when they were due

 private:
  struct Visitor {
    explicit Visitor(EventLoop& loop) : timer(loop) {}
    std::unique_ptr<QuorumClient> client;
    int64_t due = 0, leaves = 0;
    std::vector<char> buffer = std::vector<char>(kConsumerBatch * kBenchChunk);
    std::vector<ChunkRead> reads = std::vector<ChunkRead>(kConsumerBatch);
    Timer timer;
    Scope scope;
  };

  void Come(Visitor& visitor) {
    visitor.client = std::make_unique<QuorumClient>(&loop_, fabric_.get(), rpc_.get(),
                                                    QuorumClientOptions{}, cell_.data(driver_));
    const int64_t now = BenchNanos();
    visitor.due = now + static_cast<int64_t>(rng_.Below(10'000'000));
    visitor.leaves = now + 500'000'000 + static_cast<int64_t>(rng_.Below(1'000'000'000));
    ++visits_;
    Sleep(visitor);
  }
  void Sleep(Visitor& visitor) {
    const int64_t next = std::max(visitor.due, BenchNanos());
    visitor.timer.At(MonotonicTime::FromMicros(next / 1000 + 1),
                     visitor.scope.Bind([&] { Turn(visitor); }));
  }
  void Turn(Visitor& visitor) {
    if (BenchNanos() >= visitor.leaves) {
      visitor.client.reset();
      Come(visitor);
      return;
    }
    for (size_t i = 0; i < kConsumerBatch; ++i) {
      visitor.reads[i] = {cell_.RandomKey(rng_, kWorkingSetMb), 0, kBenchChunk, kBenchChunk,
                          visitor.buffer.data() + i * kBenchChunk};
    }
    if (visitor.client->ready_replicas() == 3 && visitor.client->TryReadChunks(visitor.reads)) {
      OnRead(visitor);
      return;
    }
    visitor.client->ReadChunks(visitor.reads, ReadMode::kRelaxed, Duration::Seconds(1),
                               visitor.scope.Bind([&] { OnRead(visitor); }));
  }
  void OnRead(Visitor& visitor) {
    nanos_.Record(BenchNanos() - visitor.due);
    chunks_ += kConsumerBatch;
    visitor.due += static_cast<int64_t>(1e9 / kConsumerBatchesPerSecond);
    Sleep(visitor);
  }

  BenchCell& cell_;
  const char* const driver_;
  ThreadLoop loop_;
  std::unique_ptr<fabric::Connector> fabric_;
  std::unique_ptr<rpc::Connector> rpc_;
  Rng rng_{7};
  Histogram nanos_;
  uint64_t visits_ = 0, chunks_ = 0;
  std::vector<std::unique_ptr<Visitor>> visitors_;
};

// A producer of 4 MB/s flushes, while 64 consumers of 4 MB/s come and go.
void WritesBesideComingAndGoing(benchmark::State& state, const char* driver) {
  BenchCell& cell = TheBenchCell();
  BenchClient client(cell, driver);
  uint64_t visits = 0, chunks = 0;
  Histogram reads;
  BeforeAndWhile(state, client, As::kProducer, FlushOf(client), kFlushesPerSecond,
                 [&](const std::atomic<bool>& stop) {
                   Crowd crowd(cell, driver, static_cast<size_t>(state.range(0)));
                   crowd.Run(stop);
                   visits = crowd.visits();
                   chunks = crowd.chunks();
                   reads = crowd.nanos();
                 });
  ReportLatency(state, "reader_", reads);
  state.counters["visits"] = static_cast<double>(visits);
  state.counters["beside_chunks"] = static_cast<double>(chunks);
}
BENCHMARK_CAPTURE(WritesBesideComingAndGoing, shm, "shm")
    ->ArgName("readers")
    ->Arg(64)
    ->Iterations(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(WritesBesideComingAndGoing, tcp, "tcp")
    ->ArgName("readers")
    ->Arg(64)
    ->Iterations(1)
    ->UseRealTime();

}  // namespace
}  // namespace tailcast::cache
