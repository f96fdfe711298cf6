#include "tailcast/cache/read_batch.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tailcast/base/status.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/key_read.h"
#include "tailcast/cache/server.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {
namespace {

// Chunks of a batch that are asked of the replica that is liked best, at least; as many more of the
// second.
constexpr size_t kChunksTogether = 64;
size_t Together(size_t chunks) {
  const size_t messages = std::max(chunks / kChunksTogether, size_t{1});
  return std::max((chunks + messages - 1) / messages, size_t{1});
}

// Of a value whose length nobody knows: that of metadata, by which its servers are planned.
constexpr uint64_t kValueBytesExpected = 1024;

}  // namespace

ReadBatch::ReadBatch(ClientContext& context, ReplicaSet& replicas, size_t items_max)
    : context_(context),
      replicas_(replicas),
      links_(replicas.links()),
      configuration_(context.configuration.mine()),
      together_(Together(items_max)),
      hedge_(context.loop),
      deadline_(context.loop) {
  items_.reserve(items_max);
}

void ReadBatch::AddChunk(ChunkRead* read, ReadMode mode) {
  Item& item = items_.emplace_back();
  item.key = read->key;
  item.mode = mode;
  item.target.chunk = read;
  item.owners = replicas_.OwnersForRead(item.key, /*chunk=*/true,
                                        static_cast<uint32_t>((items_.size() - 1) / together_));
}

void ReadBatch::AddValue(const Client::ValueRead& read) {
  Item& item = items_.emplace_back();
  item.key = read.key;
  item.rule = read.rule;
  item.mode = read.mode;
  const uint32_t turn = item.mode == ReadMode::kRelaxed ? context_.relaxed_values++ : 0;
  item.owners = replicas_.OwnersForRead(item.key, /*chunk=*/false, turn);
}

void ReadBatch::Start(Duration timeout, Task ended) {
  timeout = std::min(timeout, kReadDeadlineMax);
  deadline_at_ = context_.loop.Now() + timeout;
  ended_ = std::move(ended);
  unfinished_ = items_.size();
  asking_ = true;
  for (uint32_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    context_.hedges.OnRead();
    const auto [usable, whole] = StandingOf(*links_, item.owners);
    const bool value = item.chunk() == nullptr;
    Ask(i, item.core.Start(value ? ReadCore::Kind::kValue : ReadCore::Kind::kChunk, item.mode,
                           item.owners.count, usable, whole, value ? 0 : item.chunk()->want));
    if (!value && item.mode == ReadMode::kRelaxed) Probe(item);
    if (item.core.done()) FinishItem(item);
  }
  asking_ = false;
  if (unfinished_ == 0) return Finish();
  deadline_.At(deadline_at_, asks_.Bind([this] { OnDeadline(); }));
  hedge_after_ = context_.hedges.delay();
  if (hedge_after_ < timeout) SetHedge();
}

void ReadBatch::OnDeadline() {
  for (Item& item : items_) {
    if (item.finished) continue;
    ++context_.counters.read_deadline;
    if (item.chunk() != nullptr) item.chunk()->late = true;
    item.core.OnDeadline();
    FinishItem(item);
  }
  Finish();
}

void ReadBatch::SetHedge() {
  if (!context_.hedges.MayTake(static_cast<int64_t>(unfinished_))) return;
  hedge_.After(hedge_after_, asks_.Bind([this] { Hedge(); }));
}

void ReadBatch::Hedge() {
  if (TimeIsOver()) return;
  int64_t waiting = 0;
  for (const Item& item : items_) {
    if (item.finished || !item.core.CanHedge()) continue;
    ++waiting;
    const Mask slower = item.core.outstanding() & item.reading;
    for (uint8_t r = 0; r < item.owners.count; ++r) {
      if ((slower & (1u << r)) == 0) continue;
      LinkOf(item, r).speed().OnLatency(hedge_after_);
    }
  }
  if (waiting == 0) return;
  if (!context_.hedges.Take(waiting)) {
    context_.counters.hedges_left += waiting;
    return;
  }
  context_.counters.hedges += waiting;
  asking_ = true;
  for (uint32_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    if (item.finished || !item.core.CanHedge()) continue;
    Ask(i, item.core.OnHedge());
    if (item.core.done()) FinishItem(item);
  }
  asking_ = false;
  if (unfinished_ == 0) return Finish();
  hedge_after_ = hedge_after_ * 2;
  SetHedge();
}

void ReadBatch::Probe(const Item& item) {
  for (uint8_t r = 0; r < item.owners.count; ++r) {
    ReplicaLink& link = LinkOf(item, r);
    if (!link.speed().avoided() || link.immediate() || !context_.slots.any_free() ||
        !link.ReadyNow() || !link.speed().TakeProbe(context_.loop.Now()) || !link.TryAsk()) {
      continue;
    }
    ++context_.counters.probe_reads;
    // Into no chunk, as nobody waits for it: the link takes its latency.
    StartKeyRead(context_, link, item.key, nullptr, false, context_.slots.Take(),
                 asks_.Bind([](const KeyAnswer&, std::string_view) {}));
  }
}

void ReadBatch::Ask(uint32_t index, Mask replicas) {
  const bool alone = (replicas & (replicas - 1)) == 0;
  for (uint8_t replica = 0; replicas != 0; ++replica, replicas >>= 1) {
    if ((replicas & 1) != 0) AskOne(index, replica, alone);
  }
}

void ReadBatch::AskOne(uint32_t index, uint8_t replica, bool alone) {
  Item& item = items_[index];
  if (item.finished) return;
  ReplicaLink& link = LinkOf(item, replica);
  if (link.state() == ReplicaLink::State::kConnecting) {
    link.WhenConnected(
        asks_.Bind([this, index, replica, alone] { AskOne(index, replica, alone); }));
    return;
  }
  if (link.state() != ReplicaLink::State::kReady) {
    ++context_.counters.read_not_connected;
    return OnAnswer(index, replica, {}, "");
  }
  if (!link.immediate() && !context_.slots.any_free()) {
    if (context_.slots.Wait(
            asks_.Bind([this, index, replica, alone] { AskOne(index, replica, alone); })))
      return;
    ++context_.counters.read_no_slot;
    return OnAnswer(index, replica, {}, "");
  }
  // It has failed: another read finds out whether it is back.
  if (!link.TryAsk()) {
    ++context_.counters.read_left_alone;
    return OnAnswer(index, replica, {}, "");
  }
  if (link.immediate()) {
    ReleaseLanding(item.target);
    std::string_view value;
    const KeyAnswer answer =
        item.chunk() != nullptr
            ? ReadChunkNow(context_, link, *item.chunk(), item.target.brought_by)
            : ReadValueNow(context_, link, item.key, value);
    return OnAnswer(index, replica, answer, value);
  }
  const bool land = alone && item.reading == 0;
  item.reading |= static_cast<Mask>(1u << replica);
  StartKeyRead(context_, link, item.key, item.chunk() != nullptr ? &item.target : nullptr, land,
               context_.slots.Take(),
               asks_.Bind([this, index, replica](const KeyAnswer& answer, std::string_view value) {
                 items_[index].reading &= static_cast<Mask>(~(1u << replica));
                 OnAnswer(index, replica, answer, value);
               }));
}

bool ReadBatch::IsOutdated(const KeyAnswer& answer) const {
  return answer.saw_bucket &&
         context_.configuration.ReadsNewerRing(answer.bucket.configuration, configuration_);
}

void ReadBatch::OnAnswer(uint32_t index, uint8_t replica, const KeyAnswer& answer,
                         std::string_view value) {
  Item& item = items_[index];
  if (item.finished) return;
  if (item.chunk() == nullptr && answer.saw_bucket) {
    context_.values.Remember(item.key).SawDoorbell(replica, answer.generation,
                                                   answer.bucket.doorbell);
  }
  if (answer.bytes_added > 0) item.target.brought_by = &LinkOf(item, replica).replica().name;
  Mask ask = 0;
  switch (answer.outcome) {
    case KeyOutcome::kFound:
      if (item.chunk() == nullptr) {
        item.value.Take(context_, item.key, item.rule, LinkOf(item, replica).replica().name, value);
      }
      ask = item.core.OnAnswer(replica, answer.length, IsOutdated(answer));
      break;
    case KeyOutcome::kAbsent:
      ask = item.core.OnAnswer(replica, 0, IsOutdated(answer));
      break;
    case KeyOutcome::kOverflowed:
      return AskByRpc(index, replica, answer);
    case KeyOutcome::kTorn:
    case KeyOutcome::kContradicts:
    case KeyOutcome::kFailed:
      // A fabric read's time is as long as a batch's may be: a thread that ran late may see first
      // that it has failed, but it is late.
      if (TimeIsOver()) return;
      ask = item.core.OnError(replica);
      break;
  }
  if (ask != 0) {
    if (TimeIsOver()) return;
    if (item.chunk() != nullptr) ++context_.counters.widened_reads;
    Ask(index, ask);
  }
  if (!item.core.done() || item.finished) return;
  FinishItem(item);
  if (unfinished_ == 0 && !asking_) Finish();
}

void ReadBatch::AskByRpc(uint32_t index, uint8_t replica, const KeyAnswer& seen) {
  ++context_.counters.overflow_reads;
  if (overflowed_.empty()) context_.loop.Post(asks_.Bind([this] { SendOverflowed(); }));
  overflowed_.push_back({index, replica, seen});
}

void ReadBatch::SendOverflowed() {
  std::vector<Overflowed> waiting = std::exchange(overflowed_, {});
  while (!waiting.empty()) {
    // Those of one replica that fit into a call, in order; the others wait for the next round.
    ReplicaLink& link = LinkOf(items_[waiting.front().index], waiting.front().replica);
    std::vector<Overflowed> asks, others;
    uint64_t bytes = 0;
    for (Overflowed& ask : waiting) {
      const Item& item = items_[ask.index];
      if (item.finished) continue;
      const uint64_t expected = item.chunk() != nullptr ? item.chunk()->want : kValueBytesExpected;
      if (&LinkOf(item, ask.replica) != &link || asks.size() == Server::kKeysPerGetMax ||
          (!asks.empty() && bytes + expected > Server::kGetBytesMax)) {
        others.push_back(std::move(ask));
        continue;
      }
      bytes += expected;
      asks.push_back(std::move(ask));
    }
    if (!asks.empty()) SendGet(link, std::move(asks));
    waiting = std::move(others);
  }
}

void ReadBatch::SendGet(ReplicaLink& link, std::vector<Overflowed> asks) {
  if (link.rpc() == nullptr) {
    ++context_.counters.get_no_address;
    for (const Overflowed& ask : asks) OnAnswer(ask.index, ask.replica, {}, "");
    return;
  }
  v1::CacheGetRequest request;
  request.set_incarnation(Raw(link.replica().incarnation));
  request.set_configuration_id(Raw(configuration_));
  for (const Overflowed& ask : asks)
    wire::AppendKey(*request.mutable_keys(), items_[ask.index].key);
  link.rpc()->Call("/" + context_.options.service + "/Get", request.SerializeAsString(),
                   kReadDeadlineMax,
                   asks_.Bind([this, asks = std::move(asks)](const Result<std::string>& reply) {
                     OnGetReply(asks, reply);
                   }));
}

OwnedCounter& ReadBatch::CauseOfGet(const Status& status) {
  ClientCounters& counters = context_.counters;
  switch (CallFailureOf(status)) {
    case CallFailure::kTimeout:
      return counters.get_timeout;
    case CallFailure::kUnreachable:
      return counters.get_unreachable;
    case CallFailure::kOtherIncarnation:
      return counters.get_other_incarnation;
    case CallFailure::kNotServing:
      return counters.get_not_serving;
    case CallFailure::kOldRing:
      return counters.get_old_ring;
    case CallFailure::kBadReply:
      break;
  }
  return counters.get_bad_reply;
}

void ReadBatch::OnGetReply(const std::vector<Overflowed>& asks, const Result<std::string>& reply) {
  v1::CacheBatch values;
  std::map<Key, wire::Entry> entries;
  if (reply.ok() && values.ParseFromString(*reply) && wire::Reader::Check(values).ok()) {
    wire::Reader reader(values);
    wire::Entry entry;
    while (reader.Next(entry)) entries.try_emplace(entry.key, entry);
  }
  // A server that looks at none of them would be asked for ever.
  const bool progress = std::any_of(asks.begin(), asks.end(), [&](const Overflowed& ask) {
    const auto found = entries.find(items_[ask.index].key);
    return found != entries.end() && !found->second.not_looked_at;
  });
  if (!progress) ++CauseOfGet(reply.status());
  for (const Overflowed& ask : asks) {
    Item& item = items_[ask.index];
    if (item.finished) continue;
    const auto found = entries.find(item.key);
    KeyAnswer answer = ask.seen;
    answer.outcome = KeyOutcome::kFailed;
    answer.bytes_added = 0;
    if (found == entries.end() || !progress) {
      OnAnswer(ask.index, ask.replica, answer, "");
      continue;
    }
    const wire::Entry& entry = found->second;
    if (entry.not_looked_at) {
      AskByRpc(ask.index, ask.replica, ask.seen);
      continue;
    }
    if (entry.erase_or_absent) {
      answer.outcome = KeyOutcome::kAbsent;
    } else {
      ReleaseLanding(item.target);
      const KeyAnswer value = AnswerByRpc(item.chunk(), entry.value);
      answer.outcome = value.outcome;
      answer.length = value.length;
      answer.bytes_added = value.bytes_added;
      if (value.outcome == KeyOutcome::kContradicts) {
        SayContradicts(context_, LinkOf(item, ask.replica), *item.chunk(), value.length,
                       item.target.brought_by);
      }
    }
    OnAnswer(ask.index, ask.replica, answer, entry.value);
  }
}

void ReadBatch::FinishItem(Item& item) {
  if (item.finished) return;
  item.finished = true;
  --unfinished_;
  if (item.chunk() == nullptr) return item.value.Finish(context_, item.key, item.rule);
  ReleaseLanding(item.target);
  ChunkRead& read = *item.chunk();
  read.length = std::max(read.length, read.have);
  CountEnded(read, item.mode, context_.counters);
}

void ReadBatch::Finish() {
  asks_.End();
  hedge_.Cancel();
  deadline_.Cancel();
  context_.loop.Post(std::move(ended_));
}

Result<Values> ReadBatch::TakeValues() {
  Values values;
  values.reserve(items_.size());
  size_t unanswered = 0;
  for (Item& item : items_) {
    unanswered += item.core.answers() == 0 ? 1 : 0;
    const bool complete = item.core.complete();
    context_.counters.partial_values += complete ? 0 : 1;
    values.push_back({item.value.TakeBytes(), complete});
  }
  if (unanswered > 0) {
    return UnavailableError("no cache replica answered for " + std::to_string(unanswered) + " of " +
                            std::to_string(values.size()) + " values");
  }
  return values;
}

}  // namespace tailcast::cache
