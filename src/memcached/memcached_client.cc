#include "tailcast/memcached/memcached_client.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tailcast/base/scope.h"
#include "tailcast/cache/key_read_core.h"
#include "tailcast/cache/value_memory.h"
#include "tailcast/memcached/reads.h"
#include "tailcast/memcached/server_set.h"
#include "tailcast/memcached/writes.h"

namespace tailcast::memcached {

// In the order in which they need each other.
struct MemcachedClient::Parts {
  Parts(EventLoop& loop, ClientOptions given)
      : context{loop, std::move(given), {}, {}},
        values(context.options.remembered_values_max),
        servers(context),
        writes(context, servers) {}

  // Runs the batch; `done` gets it when it has ended.
  template <typename Done>
  void Run(std::unique_ptr<ReadBatch> batch, Duration timeout, Done done) {
    ReadBatch* const running = batch.get();
    batches.emplace(running, std::move(batch));
    running->Start(timeout, scope.Bind([this, running, done = std::move(done)]() mutable {
      const auto found = batches.find(running);
      const std::unique_ptr<ReadBatch> ended = std::move(found->second);
      batches.erase(found);
      done(*ended);
    }));
  }

  ClientContext context;
  cache::ValueMemory values;
  ServerSet servers;
  Writes writes;
  std::unordered_map<const ReadBatch*, std::unique_ptr<ReadBatch>> batches;  // that run
  uint64_t last_watch = 0;
  std::unordered_map<uint64_t, Callback<void(bool)>> watches;  // that are refused on a later turn
  Scope scope;
};

MemcachedClient::MemcachedClient(EventLoop* loop, ClientOptions options)
    : parts_(std::make_unique<Parts>(*loop, std::move(options))) {}

MemcachedClient::~MemcachedClient() = default;

uint32_t MemcachedClient::usable_servers() const { return parts_->servers.usable(); }
const ClientStats& MemcachedClient::stats() const { return parts_->context.stats; }
const cache::ClientCounters& MemcachedClient::counters() const { return parts_->context.counters; }

bool MemcachedClient::TryReadChunks(std::span<cache::ChunkRead> reads) {
  return std::all_of(reads.begin(), reads.end(),
                     [](const cache::ChunkRead& read) { return read.length >= read.want; });
}

void MemcachedClient::ReadChunks(std::span<cache::ChunkRead> reads, cache::ReadMode mode,
                                 Duration timeout, Callback<void()> done) {
  auto batch = std::make_unique<ReadBatch>(parts_->context, parts_->servers, parts_->values, mode);
  for (cache::ChunkRead& read : reads) {
    if (read.length >= read.want) continue;
    batch->AddChunk(&read);
    cache::CountBegun(mode, parts_->context.counters);
  }
  parts_->Run(std::move(batch), timeout, [done = std::move(done)](ReadBatch&) mutable { done(); });
}

void MemcachedClient::ReadValues(std::vector<ValueRead> reads, Duration timeout,
                                 Callback<void(Result<cache::Values>)> done) {
  auto batch = std::make_unique<ReadBatch>(parts_->context, parts_->servers, parts_->values,
                                           cache::ReadMode::kConsistent);
  for (const ValueRead& read : reads) batch->AddValue(read);
  parts_->context.counters.value_reads += reads.size();
  parts_->Run(std::move(batch), timeout,
              [done = std::move(done)](ReadBatch& ended) mutable { done(ended.TakeValues()); });
}

bool MemcachedClient::TryReadValues(std::span<const ValueRead> reads, cache::Values& values) {
  values.clear();
  return reads.empty();
}

void MemcachedClient::Mutate(std::vector<cache::Mutation> mutations, Duration timeout,
                             Callback<void(Status)> done) {
  parts_->writes.Mutate(std::move(mutations), timeout, std::move(done));
}

void MemcachedClient::Drain(Callback<void()> done) { parts_->writes.Drain(std::move(done)); }

uint64_t MemcachedClient::WatchValue(cache::Key, Duration, Callback<void(bool)> notify) {
  ++parts_->context.counters.watches;
  ++parts_->context.counters.watch_refusals;
  const uint64_t id = ++parts_->last_watch;
  parts_->watches.emplace(id, std::move(notify));
  parts_->context.loop.Post(parts_->scope.Bind([parts = parts_.get(), id] {
    auto watch = parts->watches.extract(id);
    if (!watch.empty()) watch.mapped()(false);
  }));
  return id;
}

void MemcachedClient::CancelWatch(uint64_t id) { parts_->watches.erase(id); }

}  // namespace tailcast::memcached
