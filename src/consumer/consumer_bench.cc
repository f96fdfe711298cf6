// What a consumer's CPU does per delivered gigabyte: lengths, chunks with their check sums, index
// records, payload check sums and delivery, over an in-process cache whose reads cost a copy and a
// check sum, as those of shared memory do.
//
//   ./dev bench consumer
//
// One round is what a low-latency consumer does at 40 MB/s: 40 messages of 1 KB appeared (one flush
// per millisecond), it is woken, reads the lengths, then the new chunks. The catch-up case has
// everything there already. Budget: 0.7 CPU seconds per GB, so that 64 processes at 40 MB/s (2.56
// GB/s) fit in two cores.
#include <benchmark/benchmark.h>

#include <deque>
#include <map>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/cache/test_loop.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::consumer {
namespace {

// A primary layer without files: everything is in the cache.
class NoStore : public storage::Store {
 public:
  explicit NoStore(EventLoop* loop) : loop_(loop) {}
  void CreateExclusive(const std::string&, const std::string&, const std::string&,
                       Callback<void(Result<std::unique_ptr<storage::AppendFile>>)> done) override {
    loop_->Post(
        scope_.Bind([done = std::move(done)]() mutable { done(UnavailableError("no store")); }));
  }
  void OpenFencing(const std::string&, const std::string&,
                   Callback<void(Result<std::unique_ptr<storage::AppendFile>>)> done) override {
    loop_->Post(
        scope_.Bind([done = std::move(done)]() mutable { done(UnavailableError("no store")); }));
  }
  void OpenRead(const std::string&, const std::string&,
                Callback<void(Result<std::unique_ptr<storage::ReadFile>>)> done) override {
    loop_->Post(
        scope_.Bind([done = std::move(done)]() mutable { done(NotFoundError("no store")); }));
  }
  void List(const std::string&,
            Callback<void(Result<std::vector<storage::DirEntry>>)> done) override {
    loop_->Post(scope_.Bind(
        [done = std::move(done)]() mutable { done(std::vector<storage::DirEntry>()); }));
  }
  void ListDirs(const std::string&,
                Callback<void(Result<std::vector<std::string>>)> done) override {
    loop_->Post(
        scope_.Bind([done = std::move(done)]() mutable { done(std::vector<std::string>()); }));
  }
  void Delete(const std::string&, const std::string&, Callback<void(Status)> done) override {
    loop_->Post(scope_.Bind([done = std::move(done)]() mutable { done(OkStatus()); }));
  }
  void Identify(const std::string&, const std::string&,
                Callback<void(Result<std::string>)> done) override {
    loop_->Post(
        scope_.Bind([done = std::move(done)]() mutable { done(NotFoundError("no store")); }));
  }
  void DeleteExactly(const std::string& dir, const std::string& name, const std::string&,
                     Callback<void(Status)> done) override {
    Delete(dir, name, std::move(done));
  }
  void Quarantine(const std::string& dir, const std::string& name,
                  Callback<void(Status)> done) override {
    Delete(dir, name, std::move(done));
  }
  void Room(Callback<void(Result<storage::StoreRoom>)> done) override {
    loop_->Post(
        scope_.Bind([done = std::move(done)]() mutable { done(UnimplementedError("no store")); }));
  }

 private:
  EventLoop* loop_;
  const Scope scope_;
};

class Bench {
 public:
  Bench() {
    AgentOptions options;
    options.doorbell = true;
    agent_ = std::make_unique<ConsumerAgent>(stream::CellPorts{&loop_, &store_, &data_, &metadata_},
                                             shard_, options, scope_.Bind([this] { Drain(); }));
  }
  // `flushes` flushes of `messages` messages of `size` bytes.
  void Fill(int flushes, int messages, int64_t size) {
    std::string payload(static_cast<size_t>(size), 'x');
    for (int i = 0; i < flushes; ++i) {
      for (int m = 0; m < messages; ++m) {
        payload[static_cast<size_t>(m) % payload.size()] ^= 1;
        stream::IndexRecord{static_cast<int64_t>(bytes_[0].size()), static_cast<uint32_t>(size),
                            Crc32c(payload), 1000}
            .AppendTo(bytes_[1]);
        bytes_[0] += payload;
      }
      lengths_.emplace_back(bytes_[0].size(), bytes_[1].size());
    }
  }
  // Makes everything up to a flush visible.
  void Publish(size_t flush) {
    const int64_t to[2] = {static_cast<int64_t>(lengths_[flush].first),
                           static_cast<int64_t>(lengths_[flush].second)};
    for (int part = 0; part < 2; ++part) {
      for (int64_t at = written_[part] / 4096 * 4096; at < to[part]; at += 4096) {
        cache_.Apply(
            {keys_.Chunk(1, static_cast<stream::Part>(part), 4096, at / 4096),
             cache::MergeRule::kLongerWins, false,
             bytes_[part].substr(static_cast<size_t>(at),
                                 static_cast<size_t>(std::min<int64_t>(4096, to[part] - at)))});
      }
      written_[part] = to[part];
    }
    stream::PairMetadata metadata;
    metadata.created_us = 1;
    metadata.chunk_size = 4096;
    for (int part = 0; part < 2; ++part) {
      metadata.cache_length[part] = metadata.primary_length[part] = to[part];
    }
    cache_.Apply({keys_.MetadataGroup(1), cache::MergeRule::kMaxLanes, false,
                  stream::EncodePairMetadata(1, metadata)});
  }
  void Start() {
    agent_->Start(StartPoint::Beginning());
    loop_.RunFor(Duration::Millis(1));
  }
  void Drain() {
    while (agent_->Take(messages_, 1 << 20) > 0) {
      for (const Message& m : messages_) delivered_ += static_cast<int64_t>(m.payload.size());
      messages_.clear();
      agent_->Release();
    }
  }
  void RunUntil(int64_t bytes) {
    loop_.RunUntil([&] { return delivered_ >= bytes; }, Duration::Seconds(10));
  }
  int64_t delivered() const { return delivered_; }
  int64_t total(size_t flush) const { return static_cast<int64_t>(lengths_[flush].first); }
  size_t flushes() const { return lengths_.size(); }

 private:
  const stream::ShardId shard_{{"bench", stream::StreamIncarnation{1}}, 0};
  const stream::KeyMaker keys_{shard_};
  cache::TestLoop loop_;
  NoStore store_{&loop_};
  cache::MemoryStore cache_;
  cache::MemoryClient data_{&loop_, &cache_}, metadata_{&loop_, &cache_};
  std::unique_ptr<ConsumerAgent> agent_;
  std::string bytes_[2];
  std::vector<std::pair<size_t, size_t>> lengths_;
  int64_t written_[2] = {0, 0};
  std::vector<Message> messages_;
  int64_t delivered_ = 0;
  const Scope scope_;
};

void Report(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(bytes);
  state.counters["cpu_s_per_GB"] = benchmark::Counter(
      static_cast<double>(bytes) / 1e9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// Woken for each flush of 40 messages of 1 KB.
void BM_Tail(benchmark::State& state) {
  int64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto bench = std::make_unique<Bench>();
    bench->Fill(500, 40, state.range(0));
    bench->Publish(0);
    bench->Start();
    for (size_t flush = 1; flush < bench->flushes(); ++flush) {
      bench->Publish(flush);
      state.ResumeTiming();
      bench->RunUntil(bench->total(flush));
      state.PauseTiming();
    }
    bytes += bench->delivered();
    if (bench->delivered() != bench->total(bench->flushes() - 1)) state.SkipWithError("lost bytes");
    bench.reset();
    state.ResumeTiming();
  }
  Report(state, bytes);
}
BENCHMARK(BM_Tail)->Arg(1000)->Arg(100)->Unit(benchmark::kMillisecond);

// 20 MB are there already.
void BM_CatchUp(benchmark::State& state) {
  int64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto bench = std::make_unique<Bench>();
    bench->Fill(1, static_cast<int>(20'000'000 / state.range(0)), state.range(0));
    bench->Publish(0);
    state.ResumeTiming();
    bench->Start();
    bench->RunUntil(bench->total(0));
    state.PauseTiming();
    bytes += bench->delivered();
    bench.reset();
    state.ResumeTiming();
  }
  Report(state, bytes);
}
BENCHMARK(BM_CatchUp)->Arg(1000)->Arg(100)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tailcast::consumer
