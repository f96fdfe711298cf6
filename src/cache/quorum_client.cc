#include "tailcast/cache/quorum_client.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "tailcast/base/scope.h"
#include "tailcast/cache/bulk_writes.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/epoch_watch.h"
#include "tailcast/cache/joined_value.h"
#include "tailcast/cache/key_read.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/read_batch.h"
#include "tailcast/cache/replica_link.h"
#include "tailcast/cache/replica_set.h"
#include "tailcast/cache/watches.h"

namespace tailcast::cache {

// In the order in which they need each other.
struct QuorumClient::Parts {
  Parts(EventLoop& loop, fabric::Connector& fabric, rpc::Connector& rpc,
        QuorumClientOptions options)
      : context(loop, std::move(options)),
        replicas(context, fabric, rpc),
        writes(context, replicas),
        watches(context, replicas) {}

  ClientContext context;
  ReplicaSet replicas;
  BulkWrites writes;
  Watches watches;
  EpochWatch epochs;
  std::unordered_map<const ReadBatch*, std::unique_ptr<ReadBatch>> batches;  // that run
  Scope scope;
};

QuorumClient::QuorumClient(EventLoop* loop, fabric::Connector* fabric, rpc::Connector* rpc,
                           QuorumClientOptions options, RingConfig config)
    : parts_(std::make_unique<Parts>(*loop, *fabric, *rpc, std::move(options))) {
  UpdateRing(std::move(config));
}

QuorumClient::~QuorumClient() = default;

void QuorumClient::UpdateRing(RingConfig config) {
  const ConfigurationId before = parts_->context.configuration.mine();
  parts_->replicas.Update(std::move(config));
  parts_->writes.OnRing();
  if (ReadRing(parts_->context.configuration.mine()) != ReadRing(before)) parts_->watches.OnRing();
  parts_->epochs.OnEpoch(parts_->context.epoch);
}

uint32_t QuorumClient::ready_replicas() const { return parts_->replicas.ready(); }

std::vector<QuorumClient::Connection> QuorumClient::Connections() const {
  std::vector<Connection> connections;
  for (const ReplicaLinkPtr& link : *parts_->replicas.links()) {
    connections.push_back(
        {link->replica().name,
         link->state() == ReplicaLink::State::kReady ? link->way() : fabric::Way{},
         link->writes().way()});
  }
  return connections;
}

const ClientCounters& QuorumClient::counters() const { return parts_->context.counters; }

// ---- Reads ----

namespace {

// The replica that is asked first, if it can be read now and inside the call.
ReplicaLink* ReadyLink(const ReplicaSet& replicas, const Owners& owners) {
  if (owners.count == 0) return nullptr;
  ReplicaLink* const link = replicas.link(owners, 0).get();
  return link->immediate() && link->state() == ReplicaLink::State::kReady ? link : nullptr;
}

}  // namespace

bool QuorumClient::TryReadChunks(std::span<ChunkRead> reads) {
  ClientContext& context = parts_->context;
  const ReplicaSet& replicas = parts_->replicas;
  if (context.immediate_replicas == 0) {
    return std::all_of(reads.begin(), reads.end(),
                       [](const ChunkRead& read) { return read.length >= read.want; });
  }
  bool all = true;
  // Each bucket, and each entry, is in a place of its own that this process has not touched lately:
  // waiting for them one after the other would take as long as copying the chunks.
  struct Ahead {
    Owners owners;
    layout::Location entry;  // where it was, or length 0
  };
  constexpr size_t kAhead = 8, kEntriesAhead = 2;
  Ahead ahead[kAhead];
  size_t buckets = 0, entries = 0;
  for (size_t at = 0; at < reads.size(); ++at) {
    for (; buckets < std::min(at + kAhead, reads.size()); ++buckets) {
      const ChunkRead& read = reads[buckets];
      Ahead& one = ahead[buckets % kAhead];
      one = {replicas.ChunkOwners(read.key), {}};
      ReplicaLink* const link = ReadyLink(replicas, one.owners);
      if (link == nullptr) continue;
      const layout::Generation generation = link->geometry().generation;
      const LocationTable::Slot& place = context.locations.SlotOf(generation, read.key);
      if (place.Holds(generation, read.key)) {
        one.entry = place.location;
      } else {
        link->PrefetchBucket(read);
      }
    }
    for (; entries < std::min(at + kEntriesAhead, reads.size()); ++entries) {
      const Ahead& one = ahead[entries % kAhead];
      ReplicaLink* const link = ReadyLink(replicas, one.owners);
      if (link == nullptr) continue;
      if (one.entry.length > 0) {
        link->PrefetchEntry(reads[entries], one.entry);
      } else {
        link->PrefetchEntry(reads[entries]);
      }
    }
    ChunkRead& read = reads[at];
    if (read.length >= read.want) continue;
    const Owners& owners = ahead[at % kAhead].owners;
    bool hit = false;
    for (uint8_t i = 0; i < owners.count && !hit; ++i) {
      ReplicaLink& link = *replicas.link(owners, i);
      if (!link.immediate() || !link.TryAsk()) continue;
      const KeyAnswer answer = ReadChunkNow(context, link, read);
      if (answer.outcome != KeyOutcome::kFound) continue;
      // A write is announced when two replicas have it: the third may lag, and asking another one
      // here costs less than a turn of the loop.
      hit = read.length >= read.want;
    }
    if (hit) {
      ++context.counters.reads;
      ++context.counters.hits;
    } else {
      all = false;
    }
  }
  return all;
}

template <typename Done>
void QuorumClient::Run(std::unique_ptr<ReadBatch> batch, Duration timeout, Done done) {
  ReadBatch* const running = batch.get();
  parts_->batches.emplace(running, std::move(batch));
  running->Start(timeout, parts_->scope.Bind(
                              [parts = parts_.get(), running, done = std::move(done)]() mutable {
                                const auto found = parts->batches.find(running);
                                const std::unique_ptr<ReadBatch> ended = std::move(found->second);
                                parts->batches.erase(found);
                                done(*ended);
                              }));
}

void QuorumClient::ReadChunks(std::span<ChunkRead> reads, ReadMode mode, Duration timeout,
                              Callback<void()> done) {
  ClientContext& context = parts_->context;
  parts_->replicas.JudgeSpeeds();
  auto batch = std::make_unique<ReadBatch>(context, parts_->replicas, reads.size());
  for (ChunkRead& read : reads) {
    if (read.length >= read.want) continue;
    batch->AddChunk(&read, mode);
    CountBegun(mode, context.counters);
  }
  Run(std::move(batch), timeout, [done = std::move(done)](ReadBatch&) mutable { done(); });
}

void QuorumClient::ReadValues(std::vector<ValueRead> reads, Duration timeout,
                              Callback<void(Result<Values>)> done) {
  ClientContext& context = parts_->context;
  parts_->replicas.JudgeSpeeds();
  auto batch = std::make_unique<ReadBatch>(context, parts_->replicas, reads.size());
  for (const ValueRead& read : reads) batch->AddValue(read);
  context.counters.value_reads += reads.size();
  Run(std::move(batch), timeout,
      [done = std::move(done)](ReadBatch& ended) mutable { done(ended.TakeValues()); });
}

bool QuorumClient::TryReadValues(std::span<const ValueRead> reads, Values& values) {
  ClientContext& context = parts_->context;
  values.resize(reads.size());
  // Who can't read all of them inside the call would read some twice.
  if (context.immediate_replicas < static_cast<int64_t>(parts_->replicas.size())) {
    return reads.empty();
  }
  const uint32_t turn = context.relaxed_values;
  for (size_t i = 0; i < reads.size(); ++i) {
    if (TryReadValue(reads[i], values[i])) continue;
    context.relaxed_values = turn;  // which ReadValues takes
    return false;
  }
  context.counters.value_reads += reads.size();
  context.counters.partial_values += static_cast<uint64_t>(std::count_if(
      values.begin(), values.end(), [](const ValueAnswer& value) { return !value.complete; }));
  return true;
}

// As ReadBatch, of one value whose replicas answer inside the call.
bool QuorumClient::TryReadValue(const ValueRead& read, ValueAnswer& value) {
  ClientContext& context = parts_->context;
  ReplicaSet& replicas = parts_->replicas;
  const uint32_t turn = read.mode == ReadMode::kRelaxed ? context.relaxed_values++ : 0;
  const Owners owners = replicas.OwnersForRead(read.key, /*chunk=*/false, turn);
  const auto [usable, whole] = StandingOf(*replicas.links(), owners);
  JoinedValue joined;
  joined.Reuse(std::move(value.bytes));
  ReadCore core;
  Mask ask = core.Start(ReadCore::Kind::kValue, read.mode, owners.count, usable, whole, 0);
  while (ask != 0) {
    const auto i = static_cast<uint8_t>(std::countr_zero(ask));
    ask &= static_cast<Mask>(ask - 1);
    ReplicaLink& link = *replicas.link(owners, i);
    if (!link.immediate() || !link.TryAsk()) return false;
    std::string_view bytes;
    const KeyAnswer answer = ReadValueNow(context, link, read.key, bytes);
    if (answer.outcome != KeyOutcome::kFound && answer.outcome != KeyOutcome::kAbsent) return false;
    if (answer.saw_bucket) {
      context.values.Remember(read.key).SawDoorbell(i, answer.generation, answer.bucket.doorbell);
    }
    const bool found = answer.outcome == KeyOutcome::kFound;
    if (found) joined.Take(context, read.key, read.rule, link.replica().name, bytes);
    const bool outdated =
        answer.saw_bucket && context.configuration.ReadsNewerRing(answer.bucket.configuration,
                                                                  context.configuration.mine());
    ask |= core.OnAnswer(i, found ? answer.length : 0, outdated);
  }
  if (!core.done() || core.answers() == 0) return false;
  joined.Finish(context, read.key, read.rule);
  value = {joined.TakeBytes(), core.complete()};
  return true;
}

// ---- Writes, watches ----

void QuorumClient::Mutate(std::vector<Mutation> mutations, Duration timeout,
                          Callback<void(Status)> done) {
  parts_->writes.Mutate(std::move(mutations), timeout, std::move(done));
}

void QuorumClient::Drain(Callback<void()> done) { parts_->writes.Drain(std::move(done)); }

uint64_t QuorumClient::WatchValue(Key key, Duration timeout, Callback<void(bool)> notify) {
  return parts_->watches.WatchValue(key, timeout, std::move(notify));
}

void QuorumClient::CancelWatch(uint64_t id) { parts_->watches.CancelWatch(id); }

void QuorumClient::WatchEpoch(Callback<void()> changed) { parts_->epochs.Add(std::move(changed)); }

}  // namespace tailcast::cache
