#include "tailcast/producer/producer_agent.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::producer {

using stream::kParts;
using stream::Part;

namespace {

FAULT_POINT(kSkipFence, "producer.skip_fence", "a recovering opener does not fence the head");
FAULT_POINT(kShadowBeforeFlush, "producer.shadow_before_flush",
            "bytes enter the cache when their append is sent");

// What is shadowed of a file that a dead producer left: its tail, for consumers who were not
// behind.
constexpr int64_t kPredecessorBytesMax = 4 << 20;
// Closed files whose shadow is not finished; older ones are left to the primary layer.
constexpr size_t kShadowsMax = 8;
constexpr int kNotifyAttemptsMax = 12;
}  // namespace

struct ProducerAgent::OpenFile {
  stream::Stem stem;
  std::unique_ptr<storage::AppendFile> handles[kParts];
  std::unique_ptr<ShadowFile> shadow;
  MonotonicTime opened_at;
};

ProducerAgent::ProducerAgent(const stream::CellPorts& ports, stream::ShardId shard,
                             AgentOptions options, Hooks hooks, uint64_t seed)
    : ports_(ports),
      shard_(std::move(shard)),
      options_(options),
      hooks_(std::move(hooks)),
      dir_(stream::ShardDir(shard_)),
      keys_(shard_),
      open_(shard_, OpenOptions{.takeover = options.takeover, .observe = options.observe}, seed),
      append_(AppendOptions{options.flush_interval, options.flush_bytes, options.roll_bytes}) {}

ProducerAgent::~ProducerAgent() {
  if (state_ != State::kStopped) {
    Lose(UnavailableError(shard_.ToString() + ": the producer was destroyed"));
  }
  *alive_ = false;
  for (TimerId timer : {flush_timer_, heartbeat_timer_, close_timer_}) ports_.loop->Cancel(timer);
}

void ProducerAgent::Open(Callback<void(Status)> opened) {
  TAILCAST_CHECK(state_ == State::kOpening && !opened_, "opened twice");
  opened_ = std::move(opened);
  Step(open_.Start());
}

stream::Stem ProducerAgent::current() const { return file_ ? file_->stem : stream::Stem(); }

stream::Position ProducerAgent::durable_position() const {
  return {shard_.stream.incarnation, shard_.shard, append_.durable_number(),
          append_.durable_byte()};
}

// --- Opening: effects of OpenCore ---

void ProducerAgent::Step(OpenEffect effect) {
  const auto guard = std::weak_ptr<bool>(alive_);
  if (state_ == State::kStopped) return;
  switch (effect.kind) {
    case OpenEffect::Kind::kList:
      ports_.store->List(dir_, [this, guard](Result<std::vector<storage::DirEntry>> entries) {
        if (guard.expired()) return;
        Step(open_.OnListed(std::move(entries), ports_.loop->WallNow()));
      });
      return;
    case OpenEffect::Kind::kReadMetadata:
      ReadMetadata(effect.stem.seq);
      return;
    case OpenEffect::Kind::kWait: {
      const MonotonicTime now = ports_.loop->Now();
      if (!effect.status.ok()) {
        if (state_ != State::kOpening && state_ != State::kClosing) state_ = State::kRecovering;
        failing_since_ = std::min(failing_since_, now);
        if (now - failing_since_ > options_.give_up) {
          Stop(UnavailableError(shard_.ToString() + ": the primary layer has failed for " +
                                std::to_string((now - failing_since_).millis() / 1000) +
                                " s: " + effect.status.message()));
          return;
        }
      }
      ports_.loop->After(effect.wait, [this, guard] {
        if (!guard.expired()) Step(open_.OnWaited());
      });
      return;
    }
    case OpenEffect::Kind::kFence:
      if (kSkipFence.planted()) {
        auto& reader = readers_[++last_reader_];
        reader = std::make_unique<stream::RangeReader>(ports_, stream::FileId{shard_, effect.stem},
                                                       effect.part, options_.chunk_size);
        reader->PrimarySize([this, guard](Result<storage::FileSize> size) {
          if (guard.expired()) return;
          Step(open_.OnFenced(
              size.ok() ? Result<int64_t>(size->committed_length) : Result<int64_t>(size.status()),
              ports_.loop->WallNow()));
        });
        return;
      }
      ports_.store->OpenFencing(dir_, FileName(effect.stem, effect.part),
                                [this, guard](Result<std::unique_ptr<storage::AppendFile>> file) {
                                  if (guard.expired()) return;
                                  Result<int64_t> length =
                                      file.ok() ? Result<int64_t>((*file)->committed_length())
                                                : Result<int64_t>(file.status());
                                  Step(open_.OnFenced(std::move(length), ports_.loop->WallNow()));
                                });
      return;
    case OpenEffect::Kind::kReadIndex:
      ReadIndex(effect);
      return;
    case OpenEffect::Kind::kCreate:
      ports_.store->CreateExclusive(
          dir_, FileName(effect.stem, effect.part), CreationKey(effect.stem.seq, effect.part),
          [this, guard, effect](Result<std::unique_ptr<storage::AppendFile>> file) {
            if (!guard.expired()) OnCreated(effect, std::move(file));
          });
      return;
    case OpenEffect::Kind::kOpened:
      OnOpened(effect.stem);
      return;
    case OpenEffect::Kind::kFailed:
      Stop(std::move(effect.status));
      return;
  }
}

void ProducerAgent::ReadMetadata(int64_t seq) {
  ports_.metadata_cache->ReadValues(
      {{keys_.MetadataGroup(seq)}, {keys_.MetadataGroup(seq + 1)}}, Duration::Seconds(1),
      [this, seq, guard = std::weak_ptr<bool>(alive_)](
          Result<std::vector<std::optional<std::string>>> values) {
        if (guard.expired()) return;
        const WallTime now = ports_.loop->WallNow();
        if (!values.ok()) {
          Step(open_.OnMetadata(values.status(), now));
          return;
        }
        std::vector<stream::PairMetadata> metadata;
        for (int64_t i = 0; i < 2; ++i) {
          const auto& value = (*values)[static_cast<size_t>(i)];
          metadata.push_back(value ? stream::DecodePairMetadata(seq + i, *value)
                                   : stream::PairMetadata());
        }
        Step(open_.OnMetadata(std::move(metadata), now));
      });
}

void ProducerAgent::ReadIndex(const OpenEffect& effect) {
  const auto guard = std::weak_ptr<bool>(alive_);
  ports_.store->OpenRead(
      dir_, FileName(effect.stem, effect.part),
      [this, guard, effect](Result<std::unique_ptr<storage::ReadFile>> file) {
        if (guard.expired()) return;
        if (!file.ok()) {
          Step(open_.OnIndexRead(file.status(), ports_.loop->WallNow()));
          return;
        }
        index_reader_ = std::move(*file);
        index_reader_->Read(
            effect.from, effect.to - effect.from, [this, guard, effect](Result<std::string> bytes) {
              if (guard.expired()) return;
              // We are inside the file's callback: it is closed in a turn of its own.
              ports_.loop->Post(
                  [file = std::shared_ptr<storage::ReadFile>(std::move(index_reader_))] {});
              if (bytes.ok() && static_cast<int64_t>(bytes->size()) < effect.to - effect.from) {
                bytes = UnavailableError(FileName(effect.stem, effect.part) +
                                         " reads shorter than it is");
              }
              Step(open_.OnIndexRead(std::move(bytes), ports_.loop->WallNow()));
            });
      });
}

void ProducerAgent::OnCreated(const OpenEffect& effect,
                              Result<std::unique_ptr<storage::AppendFile>> file) {
  if (file.ok() && !effect.helping) {
    created_[static_cast<int>(effect.part)] = std::move(*file);
  }
  Step(open_.OnCreated(file.status()));
}

void ProducerAgent::OnOpened(const stream::Stem& stem) {
  const bool first = opened_ != nullptr;
  const State before = state_;
  failing_since_ = MonotonicTime::Max();
  last_time_us_ = std::max({last_time_us_, open_.last_time_us(), stem.created_us});

  // What came before is closed.
  std::vector<Predecessor> predecessors = open_.predecessors();
  if (file_ != nullptr) {
    const bool drained = append_.drained();
    for (const Predecessor& predecessor : predecessors) {
      if (predecessor.stem != file_->stem) continue;
      ++counters_.files_sealed;
      Notify({{shard_, predecessor.stem}, predecessor.seal}, 0);
      if (drained) file_->shadow->Seal(predecessor.seal);
    }
    if (drained) {
      std::erase_if(predecessors, [&](const Predecessor& p) { return p.stem == file_->stem; });
      AddShadow(std::move(file_->shadow));
    }
    RetireFile();
  }

  AppendEffects effects;
  if (!append_.Open(stem.start_number, stem.start_byte, effects)) {
    Stop(DataLossError(shard_.ToString() + ": file " + std::to_string(stem.seq) +
                       " begins at message " + std::to_string(stem.start_number) + ", but " +
                       std::to_string(append_.durable_number()) +
                       " were acknowledged: the primary layer has lost bytes"));
    return;
  }
  file_ = std::make_unique<OpenFile>();
  file_->stem = stem;
  file_->opened_at = ports_.loop->Now();
  for (int part = 0; part < kParts; ++part) file_->handles[part] = std::move(created_[part]);
  constexpr int64_t kFromBeginning[kParts] = {0, 0};
  file_->shadow = std::make_unique<ShadowFile>(
      ports_, stream::FileId{shard_, stem}, options_.chunk_size, file_->handles[1]->epoch(),
      kFromBeginning, options_.shadow, &shadow_counters_, [this] { MaybeFinishClose(); });
  file_->shadow->PublishNow();
  ++counters_.files_opened;
  for (const Predecessor& predecessor : predecessors) ShadowPredecessor(predecessor);
  Notify({{shard_, stem}, std::nullopt}, 0);
  if (before != State::kClosing) state_ = closing_ ? State::kClosing : State::kOpen;
  fenced_ = index_unknown_ = false;
  append_error_ = OkStatus();
  if (heartbeat_timer_ == 0) Heartbeat();
  Acknowledge(effects.durable);
  if (first) std::exchange(opened_, {})(OkStatus());
  Pump();
  if (hooks_.on_progress) hooks_.on_progress();
}

// --- What a dead producer committed and had not shadowed ---

void ProducerAgent::ShadowPredecessor(const Predecessor& predecessor) {
  ports_.metadata_cache->ReadValues(
      {{keys_.MetadataGroup(predecessor.stem.seq)}}, Duration::Seconds(1),
      [this, predecessor, guard = std::weak_ptr<bool>(alive_)](
          Result<std::vector<std::optional<std::string>>> values) {
        if (guard.expired() || state_ == State::kStopped) return;
        stream::PairMetadata metadata;
        if (values.ok() && (*values)[0]) {
          metadata = stream::DecodePairMetadata(predecessor.stem.seq, *(*values)[0]);
        }
        OnPredecessorMetadata(predecessor, metadata);
      });
}

void ProducerAgent::OnPredecessorMetadata(const Predecessor& predecessor,
                                          const stream::PairMetadata& metadata) {
  const stream::FileId id{shard_, predecessor.stem};
  const int64_t chunk_size = metadata.chunk_size > 0 ? metadata.chunk_size : options_.chunk_size;
  int64_t from[kParts];
  for (int part = 0; part < kParts; ++part) {
    const int64_t seal = predecessor.seal.length[part];
    from[part] = std::clamp<int64_t>(metadata.cache_length[part],
                                     std::max<int64_t>(0, seal - kPredecessorBytesMax), seal);
    from[part] -= from[part] % chunk_size;
  }
  AddShadow(std::make_unique<ShadowFile>(
      ports_, id, chunk_size, static_cast<uint64_t>(metadata.primary_epoch), from, options_.shadow,
      &shadow_counters_, [this] { DropIdleShadows(); }));
  ShadowFile* const shadow = shadows_.back().get();
  shadow->Seal(predecessor.seal);
  for (Part part : {Part::kData, Part::kIndex}) {
    const int64_t begin = from[static_cast<int>(part)];
    const int64_t end = predecessor.seal.length[static_cast<int>(part)];
    if (begin >= end) continue;
    shadow->Expect(part, end);
    const uint64_t number = ++last_reader_;
    auto& reader = readers_[number];
    reader = std::make_unique<stream::RangeReader>(ports_, id, part, chunk_size);
    auto bytes = std::make_shared<std::string>(static_cast<size_t>(end - begin), '\0');
    stream::RangeRequest request;
    request.from = begin;
    request.to = request.primary_limit = end;
    request.destination = bytes->data();
    request.room = end - begin;
    request.owner = bytes;
    const auto answer =
        reader->Read(request, [this, id, part, begin, bytes, number,
                               guard = std::weak_ptr<bool>(alive_)](stream::RangeResult result) {
          if (guard.expired()) return;
          ports_.loop->Post([this, number, guard] {  // not inside its own callback
            if (!guard.expired()) readers_.erase(number);
          });
          for (const auto& candidate : shadows_) {
            if (candidate->file() != id) continue;
            // What could not be read is missing from the cache; the primary layer has it.
            candidate->Expect(part, result.end);
            candidate->OnFlushed(
                part, begin,
                std::string_view(*bytes).substr(0, static_cast<size_t>(result.end - begin)));
            return;
          }
        });
    TAILCAST_CHECK(!answer.has_value(), "the primary layer answers later");
  }
}

void ProducerAgent::AddShadow(std::unique_ptr<ShadowFile> shadow) {
  shadows_.push_back(std::move(shadow));
  if (shadows_.size() > kShadowsMax) {
    ++shadow_counters_.jumps;
    ports_.loop->Post([old = std::shared_ptr<ShadowFile>(std::move(shadows_.front()))] {});
    shadows_.erase(shadows_.begin());
  }
}

void ProducerAgent::DropIdleShadows() {
  for (auto it = shadows_.begin(); it != shadows_.end();) {
    if (!(*it)->idle()) {
      ++it;
      continue;
    }
    // Perhaps inside its own callback: destroyed in a turn of its own.
    ports_.loop->Post([old = std::shared_ptr<ShadowFile>(std::move(*it))] {});
    it = shadows_.erase(it);
  }
  MaybeFinishClose();
}

// --- Appending: effects of AppendCore ---

Status ProducerAgent::Publish(Batch batch) {
  if (state_ == State::kStopped) {
    return FailedPreconditionError(status_.ok() ? shard_.ToString() + ": the producer is closed"
                                                : status_.message());
  }
  if (closing_) return FailedPreconditionError(shard_.ToString() + ": the producer is closing");
  if (opened_ != nullptr || (file_ == nullptr && state_ == State::kOpening)) {
    return FailedPreconditionError(shard_.ToString() + ": the producer is not open yet");
  }
  for (size_t i = 0; i < batch.records.size(); ++i) {
    if (batch.records[i].length <= options_.message_bytes_max) continue;
    ++counters_.refused_size;
    return InvalidArgumentError(
        shard_.ToString() + ": a message of " + std::to_string(batch.records[i].length) +
        " bytes is over the limit of " + std::to_string(options_.message_bytes_max) +
        " bytes (message_bytes_max)");
  }
  const auto bytes = static_cast<int64_t>(batch.bytes.size());
  const int64_t buffered = append_.buffered_bytes();
  // An empty buffer takes anything, so that a large message always gets through.
  if (buffered > 0 && buffered + bytes > options_.buffer_bytes_max) {
    ++counters_.refused_full;
    return ResourceExhaustedError(shard_.ToString() + ": " + std::to_string(buffered) +
                                  " bytes wait for the primary layer, the limit is " +
                                  std::to_string(options_.buffer_bytes_max) +
                                  " (buffer_bytes_max)");
  }
  const int64_t now_us = ports_.loop->WallNow().micros();
  for (Record& record : batch.records) {
    last_time_us_ = std::max(last_time_us_, record.time_us != 0 ? record.time_us : now_us);
    record.time_us = last_time_us_;
  }
  counters_.messages += static_cast<int64_t>(batch.records.size());
  counters_.bytes += bytes;
  append_.Add(std::move(batch));
  Pump();
  return OkStatus();
}

Status ProducerAgent::Publish(std::string_view payload, AckCallback ack) {
  if (static_cast<int64_t>(payload.size()) > options_.message_bytes_max) {
    ++counters_.refused_size;
    return InvalidArgumentError(shard_.ToString() + ": a message of " +
                                std::to_string(payload.size()) + " bytes is over the limit of " +
                                std::to_string(options_.message_bytes_max) +
                                " bytes (message_bytes_max)");
  }
  Batch batch;
  batch.bytes = payload;
  batch.records.push_back({static_cast<uint32_t>(payload.size()), Crc32c(payload), 0});
  if (ack) batch.acks.emplace_back(0, std::move(ack));
  return Publish(std::move(batch));
}

Status ProducerAgent::Append(std::string_view bytes, AckCallback ack) {
  Batch batch;
  batch.bytes = bytes;
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), static_cast<size_t>(options_.message_bytes_max));
    batch.records.push_back({static_cast<uint32_t>(piece), Crc32c(bytes.substr(0, piece)), 0});
    bytes.remove_prefix(piece);
  }
  if (batch.records.empty()) batch.records.push_back({});
  if (ack) batch.acks.emplace_back(static_cast<uint32_t>(batch.records.size() - 1), std::move(ack));
  return Publish(std::move(batch));
}

void ProducerAgent::FlushSoon() {
  append_.FlushSoon();
  Pump();
}

bool ProducerAgent::DueForRoll() const {
  if (append_.index_length() == 0) return false;
  // Who closes opens another file only for what this one has no room for.
  if (closing_) return append_.full() && !append_.started();
  return append_.full() || ports_.loop->Now() - file_->opened_at >= options_.roll_age;
}

void ProducerAgent::Pump() {
  if (file_ == nullptr || !append_.is_open()) return;
  if ((state_ == State::kOpen || state_ == State::kClosing) && DueForRoll()) {
    state_ = State::kRolling;
    append_.Hold(true);
  }
  if (closing_) append_.FlushSoon();
  AppendEffects effects;
  append_.Next(ports_.loop->Now(), effects);
  Run(effects);
  ports_.loop->Cancel(flush_timer_);
  flush_timer_ = 0;
  const MonotonicTime next = append_.NextFlush();
  if (next < MonotonicTime::Max()) {
    flush_timer_ = ports_.loop->At(next, [this] {
      flush_timer_ = 0;
      Pump();
    });
  }
  if (state_ == State::kRolling && append_.drained() && append_.quiet() && append_.is_open()) {
    append_.GiveUp();  // nothing more goes into this file
    const stream::Seal seal{{append_.data_length(), append_.index_length()}};
    Step(open_.StartRoll(file_->stem, seal, append_.last_time_us(), ports_.loop->WallNow()));
  }
  MaybeFinishClose();
}

void ProducerAgent::Run(AppendEffects& effects) {
  if (effects.data) StartAppend(Part::kData, std::move(*effects.data));
  if (effects.index) StartAppend(Part::kIndex, std::move(*effects.index));
}

void ProducerAgent::StartAppend(Part part, AppendEffects::Append append) {
  if (kShadowBeforeFlush.planted()) {
    file_->shadow->OnFlushed(part, append.at, append.bytes);
  }
  file_->handles[static_cast<int>(part)]->AppendAt(
      append.at, std::move(append.bytes),
      [this, part, seq = file_->stem.seq,
       guard = std::weak_ptr<bool>(alive_)](storage::AppendResult result) {
        if (guard.expired() || file_ == nullptr || file_->stem.seq != seq) return;
        OnAppended(part, std::move(result));
      });
}

void ProducerAgent::OnAppended(Part part, storage::AppendResult result) {
  AppendEffects effects;
  if (part == Part::kData)
    append_.OnData(result.outcome, effects);
  else
    append_.OnIndex(result.outcome, effects);
  if (result.outcome != storage::AppendOutcome::kApplied) {
    if (result.outcome == storage::AppendOutcome::kFenced)
      fenced_ = true;
    else if (part == Part::kIndex)
      index_unknown_ = true;
    append_error_ = result.error.ok() && result.outcome == storage::AppendOutcome::kWrongOffset
                        ? InternalError("the file is not as long as its only writer thinks")
                        : result.error;
  }
  ShadowFile& shadow = *file_->shadow;
  if (effects.data_committed) {
    shadow.OnFlushed(Part::kData, effects.data_committed->at, effects.data_committed->bytes);
  }
  if (effects.index_committed) {
    shadow.OnFlushed(Part::kIndex, effects.index_committed->at, effects.index_committed->bytes);
    shadow.OnCommitted(effects.covered_data, append_.index_length());
  }
  Acknowledge(effects.durable);
  if (state_ == State::kStopped || file_ == nullptr) return;
  if (append_.is_open()) {
    Pump();
  } else if (append_.quiet()) {
    OnGivenUp();
  }
  if (!effects.durable.empty() && hooks_.on_progress) hooks_.on_progress();
}

void ProducerAgent::OnGivenUp() {
  if (fenced_) {
    Stop(FailedPreconditionError(shard_.ToString() +
                                 ": fenced: another producer took it over; "
                                 "this one has stopped, and what it did not acknowledge as durable "
                                 "is not in the stream unless reported unknown"));
    return;
  }
  // The append failed or nobody knows: fence our own file to find out, and go on in the next one.
  ++counters_.recoveries;
  if (state_ != State::kClosing) state_ = State::kRecovering;
  failing_since_ = std::min(failing_since_, ports_.loop->Now());
  Step(open_.StartRecovery(file_->stem));
}

void ProducerAgent::Acknowledge(std::vector<Flush>& durable) {
  const auto guard = std::weak_ptr<bool>(alive_);
  for (Flush& flush : durable) {
    ++counters_.flushes;
    counters_.durable += static_cast<int64_t>(flush.batch.records.size());
    Ack ack;
    ack.outcome = AckOutcome::kDurable;
    ack.position = {shard_.stream.incarnation, shard_.shard, flush.first_number, flush.first_byte};
    size_t at = 0;
    for (auto& [index, callback] : flush.batch.acks) {
      for (; at < index; ++at) {
        ++ack.position.number;
        ack.position.byte += flush.batch.records[at].length;
      }
      if (callback) callback(ack);
      if (guard.expired()) return;
    }
  }
}

void ProducerAgent::Lose(const Status& status) {
  AppendCore::Lost lost = append_.TakeAll();
  const auto report = [&](Batch& batch, AckOutcome outcome) {
    (outcome == AckOutcome::kFailed ? counters_.failed : counters_.unknown) +=
        static_cast<int64_t>(batch.records.size());
    Ack ack;
    ack.outcome = outcome;
    ack.error = status;
    for (auto& [index, callback] : batch.acks) {
      if (callback) callback(ack);
    }
  };
  // Fenced before its index record could be appended: no seal will ever cover it.
  const bool certain = fenced_ && !index_unknown_;
  for (Flush& flush : lost.appended) {
    report(flush.batch, certain ? AckOutcome::kFailed : AckOutcome::kUnknown);
  }
  report(lost.waiting, AckOutcome::kFailed);
}

void ProducerAgent::RetireFile() {
  if (file_ == nullptr) return;
  // We may be inside a callback of its handles.
  ports_.loop->Post([old = std::shared_ptr<OpenFile>(std::move(file_))] {});
}

// --- The rest ---

void ProducerAgent::Notify(FileEvent event, int attempt) {
  if (!hooks_.notify) return;
  FileEvent copy = event;
  hooks_.notify(copy, [this, event = std::move(event), attempt,
                       guard = std::weak_ptr<bool>(alive_)](Status status) mutable {
    if (guard.expired() || status.ok()) return;
    ++counters_.notify_failures;
    // A scheduler that was away rebuilds its state from listings, so this need not go on for ever.
    if (attempt >= kNotifyAttemptsMax || state_ == State::kStopped) return;
    const Duration wait =
        std::min(Duration::Millis(50) * (int64_t{1} << attempt), Duration::Seconds(5));
    ports_.loop->After(wait, [this, event = std::move(event), attempt, guard]() mutable {
      if (!guard.expired()) Notify(std::move(event), attempt + 1);
    });
  });
}

void ProducerAgent::Heartbeat() {
  heartbeat_timer_ = ports_.loop->After(options_.heartbeat, [this] {
    heartbeat_timer_ = 0;
    Heartbeat();
  });
  DropIdleShadows();
  if (file_ == nullptr || !append_.is_open()) return;
  ++counters_.heartbeats;
  file_->shadow->Heartbeat(options_.heartbeat);
  Pump();  // an idle file may have come of age
}

void ProducerAgent::Close(Duration shadow_wait, Callback<void(Status)> closed) {
  closed_ = std::move(closed);
  if (state_ == State::kStopped) {
    ports_.loop->Post([this, guard = std::weak_ptr<bool>(alive_)] {
      if (!guard.expired() && closed_) std::exchange(closed_, {})(status_);
    });
    return;
  }
  closing_ = true;
  if (state_ == State::kOpen) state_ = State::kClosing;
  close_timer_ = ports_.loop->After(shadow_wait, [this] {
    close_timer_ = 0;
    MaybeFinishClose();
  });
  // Never inside this call.
  ports_.loop->Post([this, guard = std::weak_ptr<bool>(alive_)] {
    if (!guard.expired()) Pump();
  });
}

void ProducerAgent::MaybeFinishClose() {
  if (!closing_ || state_ == State::kStopped || file_ == nullptr || !append_.is_open() ||
      !append_.empty() || !append_.quiet() || state_ == State::kRolling) {
    return;
  }
  if (!sealed_) {
    sealed_ = true;
    const stream::Seal seal{{append_.data_length(), append_.index_length()}};
    ++counters_.files_sealed;
    Notify({{shard_, file_->stem}, seal}, 0);
    file_->shadow->Seal(seal);
  }
  bool idle = file_->shadow->idle();
  for (const auto& shadow : shadows_) idle = idle && shadow->idle();
  if (close_timer_ == 0) {
    Stop(OkStatus());
  } else if (idle && !draining_) {
    // Two replicas have everything. A consumer may watch the third, and what is still on its way
    // there ends with the caller's clients.
    draining_ = true;
    const auto guard = std::weak_ptr<bool>(alive_);
    ports_.data_cache->Drain([this, guard] {
      if (guard.expired()) return;
      ports_.metadata_cache->Drain([this, guard] {
        if (!guard.expired()) Stop(OkStatus());
      });
    });
  }
}

void ProducerAgent::Stop(Status status) {
  if (state_ == State::kStopped) return;
  state_ = State::kStopped;
  status_ = status;
  for (TimerId timer : {flush_timer_, heartbeat_timer_, close_timer_}) ports_.loop->Cancel(timer);
  flush_timer_ = heartbeat_timer_ = close_timer_ = 0;
  RetireFile();
  const auto guard = std::weak_ptr<bool>(alive_);
  Lose(status);
  if (guard.expired()) return;
  if (opened_) std::exchange(opened_, {})(status);
  if (guard.expired()) return;
  if (closed_) std::exchange(closed_, {})(status);
  if (guard.expired()) return;
  if (hooks_.on_progress) hooks_.on_progress();
}

}  // namespace tailcast::producer
