#include "tailcast/writer/life_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::writer {

using stream::Layer;
using stream::LockState;
using stream::LockValue;
using stream::PairMetadata;
using stream::Part;

namespace {

FAULT_POINT(kForgetEpoch, "writer.forget_epoch",
            "nothing is published again when the caches have begun a new epoch");

LockValue MyLock(const CoreContext& context) {
  const stream::OperationId& id = context.operation.id;
  return {id.term, stream::LockOwner(context.options.name, id.nonce), LockState::kHeld};
}

PairMetadata About(const CoreContext& context) {
  const stream::Stem& stem = context.file().stem;
  PairMetadata about;
  about.created_us = stem.created_us;
  about.start_byte = stem.start_byte;
  about.start_number = stem.start_number;
  about.stem_chunk_size = stem.chunk_size;
  about.chunk_size = context.operation.chunk_size;
  return about;
}

}  // namespace

LifeCore::LifeCore(const CoreContext& context)
    : context_(context),
      lock_(context.options.lock, MyLock(context)),
      publication_({context.options.retry_delay, context.options.retry_delay_max}, About(context)),
      hold_(context.buffers) {
  const stream::Operation& operation = context.operation;
  if (operation.sealed()) seal_ = {*operation.seal[0], *operation.seal[1]};
}

void LifeCore::Enter(Phase next) {
  const bool allowed = next == Phase::kGone        ? phase_ == Phase::kDraining
                       : next == Phase::kDraining  ? !ended()
                       : next == Phase::kFinishing ? phase_ == Phase::kRunning
                                                   : false;
  TAILCAST_CHECK(allowed, PhaseChange(context_, static_cast<int>(phase_), static_cast<int>(next)));
  phase_ = next;
}

Status LifeCore::OnSeal(const Lengths& lengths) {
  if (lengths[0] < 0 || lengths[1] < 0 || lengths[1] % stream::kIndexRecordSize != 0) {
    return InvalidArgumentError("seal (" + std::to_string(lengths[0]) + ", " +
                                std::to_string(lengths[1]) + ") is no seal");
  }
  if (seal_ && *seal_ != lengths) {
    return DataLossError("seal (" + std::to_string(lengths[0]) + ", " + std::to_string(lengths[1]) +
                         ") differs from the known one (" + std::to_string((*seal_)[0]) + ", " +
                         std::to_string((*seal_)[1]) + ")");
  }
  seal_ = lengths;
  return OkStatus();
}

void LifeCore::OnHeartbeat(int64_t as_of_us, const Lengths& lengths) {
  if (!ended()) publication_.OnHeartbeat(as_of_us, lengths);
}

void LifeCore::OnChecked(const Status& status, const LayerView& layer, Effects& out) {
  if (ended()) return;
  Count(layer);
  if (status.ok()) {
    out.push_back(DoWorkLater());
    return;
  }
  context_.counters.rejected_input.Add();
  End(status, EndCause::kRejectedInput, layer, out);
}

void LifeCore::OnReaderGone(const Status& status, const LayerView& layer, Effects& out) {
  if (ended()) return;
  context_.counters.reader_lost.Add();
  End(status.ok() ? CancelledError("the reader closed the stream before the seal") : status,
      EndCause::kReaderGone, layer, out);
}

// --- the reader

void LifeCore::Opened(MonotonicTime now, const Lengths& lengths, storage::Epoch epoch,
                      Effects& out) {
  opened_ = true;
  for (int p = 0; p < stream::kParts; ++p) received_[p] = std::max(received_[p], lengths[p]);
  hold_.OnActive(now);
  out.push_back(SendOpened{lengths, epoch, GiveWindow(now, lengths)});
}

int64_t LifeCore::GiveWindow(MonotonicTime now, const Lengths& written) {
  const stream::Operation& operation = context_.operation;
  const int64_t most = operation.target.layer == Layer::kPrimary
                           ? context_.options.primary_window_bytes
                           : context_.options.cache_window_bytes;
  const int64_t least = std::min(most, std::max(stream::kInitialWindowBytes, operation.chunk_size));
  const int64_t window = context_.buffers.Window(now, least, most, hold_);
  for (int p = 0; p < stream::kParts; ++p) {
    send_limit_[p] = std::max(send_limit_[p], written[p] + window);
  }
  hold_.Set(hold_.held(), Promised());
  return window;
}

int64_t LifeCore::Promised() const {
  if (ended() || !opened_) return 0;
  int64_t promised = 0;
  for (int p = 0; p < stream::kParts; ++p) {
    const int64_t end = seal_ ? std::min(send_limit_[p], (*seal_)[p]) : send_limit_[p];
    promised += std::max(int64_t{0}, end - received_[p]);
  }
  return promised;
}

void LifeCore::Count(const LayerView& layer) { hold_.Set(layer.buffered_bytes, Promised()); }

void LifeCore::CountBusy(MonotonicTime now, const LayerView& layer) {
  if (was_busy_) busy_ = busy_ + (now - worked_);
  was_busy_ = layer.outstanding > 0 || layer.buffered_bytes > 0;
  worked_ = now;
}

Status LifeCore::OnReceived(Part part, int64_t position, size_t size) {
  const int64_t length = static_cast<int64_t>(size);
  const int64_t limit = send_limit_[static_cast<int>(part)];
  if (position < 0 || position > INT64_MAX - length) return OkStatus();
  if (position + length <= limit) {
    int64_t& received = received_[static_cast<int>(part)];
    received = std::max(received, position + length);
    active_ = true;
    return OkStatus();
  }
  return ResourceExhaustedError(context_.Name() + ": bytes up to " +
                                std::to_string(position + length) + " of part " +
                                std::to_string(static_cast<int>(part)) +
                                " lie beyond the window, which ends at " + std::to_string(limit));
}

void LifeCore::TellProgress(MonotonicTime now, const LayerView& layer, Effects& out) {
  if (ended() || !opened_ || told_ == layer.written) return;
  told_ = layer.written;
  out.push_back(SendProgress{layer.written, GiveWindow(now, layer.written), busy_});
}

// --- publication

void LifeCore::Publish(MonotonicTime now, const PairMetadata& news, Effects& out) {
  publication_.Add(news);
  WriteNews(now, out);
}

void LifeCore::WriteNews(MonotonicTime now, Effects& out) {
  auto metadata = publication_.NextWrite(now);
  if (!metadata) return;
  if (context_.operation.target.layer == Layer::kCache) {
    for (Part part : {Part::kData, Part::kIndex}) {
      const int64_t length = metadata->cache_length[static_cast<int>(part)];
      if (length > 0) context_.steps.Write("LengthPublish", part, {{"len", length}});
    }
  }
  out.push_back(PublishMetadata{*metadata});
}

void LifeCore::OnPublished(MonotonicTime now, bool ok, const LayerView& layer, Effects& out) {
  publication_.OnPublished(now, ok);
  if (!ok) context_.counters.publish_failed.Add();
  if (ok) WriteNews(now, out);
  MaybeClose(now, layer, out);
}

void LifeCore::OnNewEpoch(MonotonicTime now, Effects& out) {
  if (ended() || kForgetEpoch.planted()) return;
  publication_.OnNewEpoch();
  WriteNews(now, out);
}

void LifeCore::DoWork(MonotonicTime now, const LayerView& layer, Effects& out) {
  if (ended()) return;
  for (int p = 0; p < stream::kParts; ++p) {
    received_[p] = std::max(received_[p], layer.written[p]);  // a jump
  }
  Count(layer);
  CountBusy(now, layer);
  if (std::exchange(active_, false)) hold_.OnActive(now);
  publication_.OnWritten(layer.written);
  WriteNews(now, out);
  TellProgress(now, layer, out);
  MaybeClose(now, layer, out);
}

// --- the end

void LifeCore::Finish(MonotonicTime now, const LayerView& layer, Effects& out) {
  if (phase_ != Phase::kRunning) return;
  Enter(Phase::kFinishing);
  PairMetadata news;
  news.seal[0] = (*seal_)[0];
  news.seal[1] = (*seal_)[1];
  Publish(now, news, out);
  out.push_back(NotifyScheduler{seal_});
  MaybeClose(now, layer, out);
}

void LifeCore::MaybeClose(MonotonicTime now, const LayerView& layer, Effects& out) {
  if (phase_ != Phase::kFinishing) return;
  if (!publication_.settled()) {
    if (publication_.failures() < context_.options.publish_attempts_at_end) return;
    context_.counters.publish_given_up.Add();
  }
  TellProgress(now, layer, out);
  context_.counters.done.Add();
  End(OkStatus(), EndCause::kDone, layer, out);
}

void LifeCore::End(Status status, EndCause cause, const LayerView& layer, Effects& out) {
  if (ended()) return;
  Enter(Phase::kDraining);
  Count(layer);
  if (const auto value = lock_.Release()) release_ = *value;
  OnCallReturned(layer, out);
  out.push_back(CloseStream{std::move(status), cause});
}

void LifeCore::OnCallReturned(const LayerView& layer, Effects& out) {
  if (phase_ != Phase::kDraining || layer.outstanding > 0) return;
  if (release_) {
    LogLock("Release");
    out.push_back(WriteLock{*release_});
  }
  Enter(Phase::kGone);
}

void LifeCore::EndSuperseded(const std::string& how, const LayerView& layer, Effects& out) {
  if (ended()) return;
  out.push_back(SendSuperseded{lock_.winner() ? lock_.winner()->term : stream::Term()});
  End(AbortedError(context_.Name() + ": " + how), EndCause::kSuperseded, layer, out);
}

void LifeCore::Fenced(MonotonicTime now, const std::optional<LockValue>& winner,
                      const LayerView& layer, Effects& out) {
  if (ended()) return;
  if (winner) (void)lock_.OnRead(now, winner);
  EndSuperseded("another writer fenced the file", layer, out);
}

// --- the lock

void LifeCore::OnLockRead(MonotonicTime now, const std::optional<LockValue>& seen,
                          const LayerView& layer, Effects& out) {
  if (ended()) return;
  const bool was_seized = lock_.seized();
  const LockCore::State before = lock_.state();
  const auto write = lock_.OnRead(now, seen);
  if (context_.steps.on()) LogLook(before, seen, write);
  if (write && lock_.lost()) {
    release_ = *write;
  } else if (write) {
    out.push_back(WriteLock{*write});
  }
  if (lock_.seized() && !was_seized) context_.counters.seized.Add();
  if (lock_.lost()) {
    context_.counters.poisoned.Add();
    EndSuperseded("another operation took its lock", layer, out);
    return;
  }
}

void LifeCore::OnLockUnavailable(MonotonicTime now) {
  if (ended()) return;
  context_.counters.lock_unavailable.Add();
  const LockCore::State before = lock_.state();
  lock_.OnUnavailable(now);
  if (lock_.state() == LockCore::State::kUnlocked && before != lock_.state()) LogLock("GoWithout");
}

void LifeCore::LogLock(std::string_view event) const {
  const LockValue& mine = lock_.mine();
  context_.steps.Write(event, {{"layer", static_cast<int>(context_.operation.target.layer)},
                               {"term", static_cast<int64_t>(mine.term.Pack())},
                               {"owner", static_cast<int64_t>(mine.owner)}});
}

// spec Locks: Look, Await, Seize, Check by what the operation did before; next is what it does now.
void LifeCore::LogLook(LockCore::State before, const std::optional<LockValue>& seen,
                       const std::optional<LockValue>& write) const {
  using State = LockCore::State;
  const bool works = before == State::kHeld || before == State::kUnlocked;
  const bool poisoned =
      seen && seen->SameOperation(lock_.mine()) && seen->state == LockState::kPoisoned;
  std::string_view next;
  switch (lock_.state()) {
    case State::kHeld:
      next = works ? "work" : "take";
      break;
    case State::kWaiting:
      next = "wait";
      break;
    case State::kLost:
      next = poisoned ? "stop" : "ended";
      break;
    case State::kAcquiring:
    case State::kUnlocked:
    case State::kReleased:
      return;  // not after a look
  }
  const bool seized = lock_.seized() && next == "take";
  const std::string_view event = works                         ? "Check"
                                 : before == State::kAcquiring ? "Look"
                                 : seized                      ? "Seize"
                                                               : "Await";
  context_.steps.Write(event, {{"layer", static_cast<int>(context_.operation.target.layer)},
                               {"term", static_cast<int64_t>(lock_.mine().term.Pack())},
                               {"owner", static_cast<int64_t>(lock_.mine().owner)},
                               {"sawTerm", static_cast<int64_t>(seen ? seen->term.Pack() : 0)},
                               {"sawOwner", static_cast<int64_t>(seen ? seen->owner : 0)},
                               {"sawState", seen ? static_cast<int>(seen->state) : 0},
                               {"next", next},
                               {"writes", write && !lock_.lost()}});
  if (next == "take") LogLock("Acquire");
}

}  // namespace tailcast::writer
