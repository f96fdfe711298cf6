#include "tailcast/producer/producer_agent.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::producer {

using stream::kParts;
using stream::Part;

namespace {

FAULT_POINT(kShadowBeforeFlush, "producer.shadow_before_flush",
            "bytes enter the cache when their append is sent");
FAULT_POINT(kForgetEpoch, "producer.forget_epoch",
            "nothing is published again when the caches have begun a new epoch");

}  // namespace

// The callbacks of its handles end with it: a file that was left answers nobody.
struct ProducerAgent::OpenFile {
  Scope& scope() { return scope_; }
  std::unique_ptr<storage::AppendFile> handles[kParts];
  std::unique_ptr<ShadowFile> shadow;
  Scope scope_;
};

ProducerAgent::ProducerAgent(const stream::CellPorts& ports, stream::ShardId shard,
                             AgentOptions options, Hooks hooks, uint64_t seed)
    : ports_(ports),
      options_(options),
      hooks_(std::move(hooks)),
      core_(std::move(shard),
            ProducerCoreOptions{.append = {.flush_interval = options.flush_interval,
                                           .flush_bytes = options.flush_bytes,
                                           .roll_bytes = options.roll_bytes,
                                           .self_clocked = options.self_clocked},
                                .retry = {.give_up = options.give_up},
                                .buffer_bytes_max = options.buffer_bytes_max,
                                .buffer_messages_max = options.buffer_messages_max,
                                .message_bytes_max = options.message_bytes_max,
                                .roll_age = options.roll_age}),
      // One flush is read by many: it gives way later than they, and at its longest before they do.
      pace_({.pause_max = options.flush_interval,
             .percent_longest = 90,
             .runs_before_others = options.runs_before_others}),
      flush_timer_(*ports.loop),
      heartbeat_timer_(*ports.loop),
      close_timer_(*ports.loop) {
  notifier_ = std::make_unique<Notifier>(*ports.loop, std::move(hooks_.notify),
                                         scope_.Bind([this] { FinishClose(); }));
  closed_files_ =
      std::make_unique<ClosedFiles>(ports_, core_.shard(), options_.chunk_size, options_.shadow,
                                    &shadow_counters_, scope_.Bind([this] { FinishClose(); }));
  opener_ = std::make_unique<Opener>(
      ports_, core_.shard(),
      OpenOptions{.takeover = options_.takeover,
                  .observe = options_.observe,
                  .chunk_size = options_.chunk_size_by_rate ? options_.chunk_size : 0},
      seed, scope_.Bind([this](const OpenEffect& effect) { OnOpenEvent(effect); }));
  ports_.metadata_cache->WatchEpoch(scope_.Bind([this] { PublishAgain(); }));
}

ProducerAgent::~ProducerAgent() {
  if (state() == State::kStopped) return;
  const Status status = UnavailableError(shard().ToString() + ": the producer was destroyed");
  ReportLost(core_.Stop(status), status);
}

void ProducerAgent::Open(Callback<void(Status)> opened) {
  TAILCAST_CHECK(state() == State::kOpening && !opened_, "opened twice");
  opened_ = std::move(opened);
  opener_->Start();
}

AgentCounters ProducerAgent::counters() const {
  return {core_.counters(), heartbeats_, notifier_->failures()};
}

Status ProducerAgent::Publish(Batch batch) {
  TAILCAST_RETURN_IF_ERROR(core_.Publish(std::move(batch), ports_.loop->WallNow().micros()));
  if (state() == State::kAppending) DoWork();  // else they wait for the next file
  return OkStatus();
}

Status ProducerAgent::Publish(std::string_view payload, AckCallback ack, std::string_view headers) {
  TAILCAST_RETURN_IF_ERROR(core_.CheckSize(static_cast<int64_t>(headers.size() + payload.size())));
  Batch batch;
  batch.bytes.append(headers).append(payload);
  batch.messages.push_back(MessageOf(headers, payload));
  if (ack) batch.acks.emplace_back(0, std::move(ack));
  return Publish(std::move(batch));
}

Status ProducerAgent::Append(std::string_view bytes, AckCallback ack) {
  Batch batch;
  batch.bytes = bytes;
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), static_cast<size_t>(options_.message_bytes_max));
    batch.messages.push_back(MessageOf({}, bytes.substr(0, piece)));
    bytes.remove_prefix(piece);
  }
  if (batch.messages.empty()) batch.messages.push_back({});
  if (ack)
    batch.acks.emplace_back(static_cast<uint32_t>(batch.messages.size() - 1), std::move(ack));
  return Publish(std::move(batch));
}

void ProducerAgent::FlushSoon() {
  core_.FlushSoon();
  if (state() == State::kAppending) DoWork();
}

void ProducerAgent::Close(Duration shadow_wait, Callback<void(Status)> closed) {
  closed_ = std::move(closed);
  // Never inside this call.
  if (state() == State::kStopped) {
    ports_.loop->Post(scope_.Bind([this] {
      if (closed_) std::exchange(closed_, {})(status());
    }));
    return;
  }
  core_.Close(ports_.loop->Now(), shadow_wait);
  close_timer_.After(shadow_wait, scope_.Bind([this] { FinishClose(); }));
  ports_.loop->Post(scope_.Bind([this] { DoWork(); }));
}

// --- What the core decided ---

void ProducerAgent::Pace() {
  const MonotonicTime now = ports_.loop->Now();
  if (options_.thread_times == nullptr || !pace_.Due(now)) return;
  if (const auto times = options_.thread_times()) pace_.OnTimes(now, *times);
  core_.SetPause(pace_.pause());
}

void ProducerAgent::OnProgress() {
  if (hooks_.on_progress) hooks_.on_progress();
  DoWork();
}

void ProducerAgent::DoWork() {
  Pace();
  Work work;
  core_.SetCached(file_ == nullptr || file_->shadow->cached());
  core_.DoWork(ports_.loop->Now(), work);
  if (core_.closing()) core_.FinishClose(ports_.loop->Now(), Told(), work);
  CarryOut(std::move(work));
}

void ProducerAgent::FinishClose() {
  if (!core_.closing()) return;
  Work work;
  core_.FinishClose(ports_.loop->Now(), Told(), work);
  CarryOut(std::move(work));
}

bool ProducerAgent::Told() const {
  return file_ != nullptr && file_->shadow->idle() && closed_files_->idle() && notifier_->idle();
}

void ProducerAgent::CarryOut(Work work) {
  if (work.append.data) StartAppend(Part::kData, std::move(*work.append.data));
  if (work.append.index) StartAppend(Part::kIndex, std::move(*work.append.index));
  if (work.wake) {
    flush_timer_.Cancel();
    if (*work.wake < MonotonicTime::Max()) {
      flush_timer_.At(*work.wake, scope_.Bind([this] { OnProgress(); }));
    }
  }
  if (work.open) {
    opener_->SetChunkSize(core_.next_chunk_size(ports_.loop->Now()));
    if (work.open->seal)
      opener_->StartRoll(work.open->current, *work.open->seal, core_.last_time_us());
    else
      opener_->StartRecovery(work.open->current, work.open->wait);
  }
  if (work.seal) SealFile(*work.seal);
  if (work.leave) WaitForReplicas();
  if (work.stop) Stop(*work.stop);
}

void ProducerAgent::StartAppend(Part part, AppendEffects::Append append) {
  if (kShadowBeforeFlush.planted()) file_->shadow->OnFlushed(part, append.at, append.bytes);
  file_->handles[static_cast<int>(part)]->AppendAt(
      append.at, std::move(append.bytes),
      file_->scope_.Bind(
          [this, part](const storage::AppendResult& result) { OnAppended(part, result); }));
}

void ProducerAgent::OnAppended(Part part, const storage::AppendResult& result) {
  AppendEffects effects;
  using storage::AppendOutcome;
  const bool fails =
      result.outcome == AppendOutcome::kUnknown || result.outcome == AppendOutcome::kWrongOffset;
  if (fails) core_.OnCause(result.error);
  core_.OnAppended(part, result.outcome, effects);
  if (trouble().ok()) told_trouble_ = false;
  if (fails) TellTrouble();
  ShadowFile& shadow = *file_->shadow;
  if (effects.data_committed) {
    shadow.OnFlushed(Part::kData, effects.data_committed->at, effects.data_committed->bytes);
  }
  if (effects.index_committed) {
    shadow.OnFlushed(Part::kIndex, effects.index_committed->at, effects.index_committed->bytes);
    shadow.OnCommitted(effects.covered_data, core_.append().index_length());
  }
  Acknowledge(effects.durable);
  if (state() != State::kStopped) OnProgress();
}

void ProducerAgent::SealFile(const stream::Seal& seal) {
  opener_->Stop();
  notifier_->Notify({{shard(), current()}, seal});
  file_->shadow->Seal(seal);
}

// Two replicas have everything. A consumer may watch the third, and what is still on its way there
// ends with the caller's clients.
void ProducerAgent::WaitForReplicas() {
  ports_.data_cache->Drain(scope_.Bind(
      [this] { ports_.metadata_cache->Drain(scope_.Bind([this] { Stop(OkStatus()); })); }));
}

// --- Opening ---

void ProducerAgent::OnOpenEvent(const OpenEffect& effect) {
  if (effect.kind == OpenEffect::Kind::kOpened) {
    OnOpened(effect.stem);
  } else if (effect.kind == OpenEffect::Kind::kFailed) {
    Stop(effect.status);
  } else if (effect.kind == OpenEffect::Kind::kFull) {
    // Apart from what fails: each is told when it begins, whichever was before.
    const bool same = !core_.OnFull(effect.status);
    if (hooks_.on_trouble) hooks_.on_trouble(trouble(), same);
    opener_->TryAgain(effect.wait);
    DoWork();
  } else {
    const RetryCore::Verdict verdict = core_.OnOpenFailed(effect.status, ports_.loop->Now());
    if (!verdict.stop) TellTrouble();
    if (verdict.stop)
      Stop(*verdict.stop);
    else
      opener_->TryAgain(verdict.wait);
  }
}

void ProducerAgent::TellTrouble() {
  if (std::exchange(told_trouble_, true)) return;
  if (hooks_.on_trouble) hooks_.on_trouble(trouble(), /*same=*/false);
}

void ProducerAgent::OnOpened(const stream::Stem& stem) {
  // What was published meanwhile waits for this file, and was not published after it.
  if (state() != State::kOpening && hooks_.on_progress) hooks_.on_progress();
  const stream::Stem before = current();
  OpenedEffects effects;
  core_.OnOpened(stem, opener_->core().predecessors(), opener_->core().last_time_us(),
                 ports_.loop->Now(), effects);
  // What came before is closed.
  if (effects.seal) {
    notifier_->Notify({{shard(), before}, *effects.seal});
    if (effects.keep_shadow) file_->shadow->Seal(*effects.seal);
  }
  if (trouble().ok()) told_trouble_ = false;
  if (effects.keep_shadow) closed_files_->Add(std::move(file_->shadow));
  Retire(*ports_.loop, std::move(file_));
  if (effects.stop) {
    Stop(*effects.stop);
    return;
  }
  file_ = std::make_unique<OpenFile>();
  for (Part part : {Part::kData, Part::kIndex}) {
    file_->handles[static_cast<int>(part)] = opener_->TakeFile(part);
  }
  constexpr int64_t kFromBeginning[kParts] = {0, 0};
  file_->shadow = std::make_unique<ShadowFile>(
      ports_, stream::FileId{shard(), stem}, stream::ChunkSizeOf(stem, options_.chunk_size),
      file_->handles[1]->epoch(), kFromBeginning, options_.shadow, &shadow_counters_,
      scope_.Bind([this] { OnProgress(); }));
  file_->shadow->PublishNow();
  for (const Predecessor& predecessor : effects.predecessors) closed_files_->Finish(predecessor);
  notifier_->Notify({{shard(), stem}, std::nullopt});
  if (!heartbeat_timer_.armed()) Heartbeat();
  Acknowledge(effects.durable);
  if (opened_) std::exchange(opened_, {})(OkStatus());
  OnProgress();
}

void ProducerAgent::Heartbeat() {
  heartbeat_timer_.After(options_.heartbeat, scope_.Bind([this] { Heartbeat(); }));
  closed_files_->DropIdle();
  FinishClose();
  if (!core_.producing()) return;
  // Of the file before while the next one is being opened, however long that takes: who wants the
  // shard must see that it is taken.
  ++heartbeats_;
  file_->shadow->Heartbeat(options_.heartbeat);
  if (core_.file_open()) OnProgress();  // an idle file may have come of age
}

void ProducerAgent::PublishAgain() {
  if (kForgetEpoch.planted()) return;
  if (file_ != nullptr) file_->shadow->PublishAgain();
  closed_files_->PublishAgain();
}

// --- Outcomes ---

void ProducerAgent::Acknowledge(std::vector<Flush>& durable) const {
  for (Flush& flush : durable) {
    Ack ack;
    ack.outcome = AckOutcome::kDurable;
    ack.position = {shard().stream.incarnation, shard().shard, flush.first_number,
                    flush.first_byte};
    size_t at = 0;
    for (auto& [index, callback] : flush.batch.acks) {
      for (; at < index; ++at) {
        ++ack.position.number;
        ack.position.byte += flush.batch.messages[at].length;
      }
      if (callback) callback(ack);
    }
  }
}

void ProducerAgent::ReportLost(AppendCore::Lost lost, const Status& status) const {
  const auto report = [&](std::vector<Batch>& batches, AckOutcome outcome) {
    Ack ack;
    ack.outcome = outcome;
    ack.error = status;
    for (Batch& batch : batches) {
      for (auto& [index, callback] : batch.acks) {
        if (callback) callback(ack);
      }
    }
  };
  report(lost.unknown, AckOutcome::kUnknown);
  report(lost.failed, AckOutcome::kFailed);
}

void ProducerAgent::Stop(const Status& status) {
  if (state() == State::kStopped) return;
  AppendCore::Lost lost = core_.Stop(status);
  for (Timer* timer : {&flush_timer_, &heartbeat_timer_, &close_timer_}) timer->Cancel();
  opener_->Stop();
  closed_files_->Stop();
  notifier_->Stop();
  Retire(*ports_.loop, std::move(file_));
  ReportLost(std::move(lost), status);
  if (opened_) std::exchange(opened_, {})(status);
  if (closed_) std::exchange(closed_, {})(status);
  if (hooks_.on_progress) hooks_.on_progress();
}

}  // namespace tailcast::producer
