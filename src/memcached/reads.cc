#include "tailcast/memcached/reads.h"

#include <algorithm>
#include <utility>

#include "tailcast/cache/key_read_core.h"
#include "tailcast/cache/merge.h"

namespace tailcast::memcached {
namespace {

// What a key costs beside its value, and what is set aside for a value whose size is not known.
constexpr uint64_t kKeyBytes = 128, kValueBytes = 1024;
// For callers who would wait for ever.
constexpr Duration kTimeoutMax = Duration::Seconds(3600);

}  // namespace

ReadBatch::ReadBatch(ClientContext& context, ServerSet& servers, cache::ValueMemory& values,
                     cache::ReadMode mode)
    : context_(context),
      servers_(servers),
      values_(values),
      mode_(mode),
      hedge_(context.loop),
      deadline_(context.loop) {}

void ReadBatch::AddChunk(cache::ChunkRead* read) {
  Key& key = keys_.emplace_back();
  key.key = read->key;
  key.chunk = read;
  key.owners = servers_.PreferredOwners(read->key);
}

void ReadBatch::AddValue(const cache::Client::ValueRead& read) {
  Key& key = keys_.emplace_back();
  key.key = read.key;
  key.rule = read.rule;
  key.owners = servers_.PreferredOwners(read.key);
}

void ReadBatch::Start(Duration timeout, Task ended) {
  using Kind = cache::ReadCore::Kind;
  timeout = std::min(timeout, kTimeoutMax);
  ended_ = std::move(ended);
  unfinished_ = keys_.size();
  deadline_at_ = context_.loop.Now() + timeout;
  for (uint32_t i = 0; i < keys_.size(); ++i) {
    Key& key = keys_[i];
    cache::Mask usable = 0;
    for (uint8_t r = 0; r < key.owners.count; ++r) {
      if (servers_.Usable(key.owners.replica[r])) usable |= static_cast<cache::Mask>(1u << r);
    }
    const bool value = key.chunk == nullptr;
    Go(i, key.core.Start(value ? Kind::kValue : Kind::kChunk, mode_, key.owners.count, usable,
                         usable, value ? 0 : key.chunk->want));
  }
  deadline_.At(deadline_at_, scope_.Bind([this] { OnDeadline(); }));
  if (context_.options.hedge_delay < timeout) SetHedge();
  Send();
}

void ReadBatch::Go(uint32_t index, cache::Mask ask) {
  Key& key = keys_[index];
  for (uint8_t replica = 0; ask != 0; ++replica, ask >>= 1) {
    if ((ask & 1) != 0) asks_[key.owners.replica[replica]].push_back({index, replica});
  }
  if (key.core.done()) FinishKey(key);
}

void ReadBatch::Send() {
  if (unfinished_ == 0) return Finish();
  for (auto& [server, asks] : std::exchange(asks_, {})) {
    std::vector<cache::Key> names;
    uint64_t bytes = 0;
    for (const Ask& ask : asks) {
      const Key& key = keys_[ask.key];
      names.push_back(key.key);
      bytes += kKeyBytes + (key.chunk != nullptr ? key.chunk->capacity : kValueBytes);
    }
    auto answered = [this, asks = std::move(asks)](ReadAnswer answer) {
      OnAnswer(asks, std::move(answer));
    };
    servers_.Read(server, std::move(names), bytes, deadline_at_, scope_.Bind(std::move(answered)));
  }
}

void ReadBatch::OnAnswer(const std::vector<Ask>& asks, ReadAnswer answer) {
  for (size_t i = 0; i < asks.size(); ++i) {
    Key& key = keys_[asks[i].key];
    if (key.finished) continue;
    if (answer.outcome != RequestOutcome::kAnswered) {
      Go(asks[i].key, key.core.OnError(asks[i].replica));
    } else {
      Go(asks[i].key, OnValue(key, asks[i].replica, answer.values[i]));
    }
  }
  Send();
}

cache::Mask ReadBatch::OnValue(Key& key, uint8_t replica, ReadAnswer::Value& value) {
  using State = ReadAnswer::Value::State;
  if (value.state == State::kAbsent) return key.core.OnAnswer(replica, 0);
  if (value.state == State::kDamaged || value.rule != key.rule) {
    ++context_.stats.damaged_items;
    return key.core.OnError(replica);
  }
  const auto length = static_cast<uint32_t>(value.bytes.size());
  const std::string& server = servers_.NameOf(key.owners.replica[replica]);
  const size_t had = key.chunk != nullptr    ? std::max(key.chunk->length, key.chunk->have)
                     : key.value.has_value() ? key.value->size()
                                             : 0;
  context_.counters.bytes_read += length;
  bool contradicts = false;
  if (key.chunk != nullptr) {
    const uint32_t before = std::max(key.chunk->length, key.chunk->have);
    contradicts =
        cache::AnswerByRpc(key.chunk, value.bytes).outcome == cache::KeyOutcome::kContradicts;
    context_.counters.useful_bytes += std::max(key.chunk->length, before) - before;
  } else if (!key.value.has_value()) {
    key.value = std::move(value.bytes);
  } else {
    contradicts = MergeInto(key.rule, *key.value, value.bytes) == cache::MutationResult::kMismatch;
  }
  if (!contradicts) {
    if (length > had) key.brought_by = &server;
    return key.core.OnAnswer(replica, length);
  }
  ++(key.chunk != nullptr ? context_.counters.chunk_mismatches
                          : context_.counters.value_mismatches);
  context_.contradictions.Say(
      context_.loop.Now(), key.key,
      std::to_string(length) + " bytes of " + server + " contradict " + std::to_string(had) +
          " bytes " +
          (key.brought_by != nullptr ? "of " + *key.brought_by : "that were read before") +
          "; those stay");
  return key.core.OnError(replica);
}

void ReadBatch::SetHedge() {
  hedge_.After(context_.options.hedge_delay, scope_.Bind([this] { Hedge(); }));
}

void ReadBatch::Hedge() {
  bool more = false;
  for (uint32_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].finished) continue;
    const cache::Mask ask = keys_[i].core.OnHedge();
    if (ask == 0) continue;
    more = true;
    ++context_.counters.hedges;
    Go(i, ask);
  }
  if (more) SetHedge();
  Send();
}

void ReadBatch::OnDeadline() {
  for (Key& key : keys_) {
    if (key.finished) continue;
    ++context_.counters.read_deadline;
    key.core.OnDeadline();
    FinishKey(key);
  }
  Finish();
}

void ReadBatch::FinishKey(Key& key) {
  if (key.finished) return;
  key.finished = true;
  --unfinished_;
  if (key.chunk == nullptr) {
    if (!key.value.has_value()) return;
    if (values_.Join(key.key, key.rule, *key.value) == cache::MutationResult::kMismatch) {
      ++context_.counters.remembered_mismatches;
      context_.contradictions.Say(context_.loop.Now(), key.key,
                                  std::to_string(key.value->size()) +
                                      " bytes contradict what this client was given before");
    }
    return;
  }
  cache::ChunkRead& read = *key.chunk;
  read.length = std::max(read.length, read.have);
  cache::CountEnded(read, mode_, context_.counters);
}

void ReadBatch::Finish() {
  scope_.End();
  hedge_.Cancel();
  deadline_.Cancel();
  context_.loop.Post(std::move(ended_));
}

Result<cache::Values> ReadBatch::TakeValues() {
  cache::Values values;
  values.reserve(keys_.size());
  size_t unanswered = 0;
  for (Key& key : keys_) {
    unanswered += key.core.answers() == 0 ? 1 : 0;
    // As far as these servers go: nobody says which of them began anew.
    values.push_back({std::move(key.value), key.core.complete()});
  }
  if (unanswered > 0) {
    return UnavailableError("no memcached server answered for " + std::to_string(unanswered) +
                            " of " + std::to_string(values.size()) + " values");
  }
  return values;
}

}  // namespace tailcast::memcached
