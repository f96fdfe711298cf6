#include "tailcast/producer/producer_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/producer/chunk_size.h"

namespace tailcast::producer {

using stream::Part;
using State = ProducerState;

namespace {

bool MayFollow(State from, State to) {
  switch (to) {
    case State::kOpening:
      return false;
    case State::kAppending:
      return from == State::kOpening || from == State::kRolling || from == State::kRecovering;
    case State::kFinishing:
      return from == State::kAppending;
    case State::kSealed:
      return from == State::kAppending || from == State::kRolling;
    case State::kRolling:
      return from == State::kFinishing;
    case State::kGivenUp:
      return from == State::kAppending || from == State::kFinishing;
    case State::kRecovering:
      return from == State::kGivenUp || from == State::kRolling;
    case State::kLeaving:
      return from == State::kSealed;
    case State::kStopped:
      return from != State::kStopped;
  }
  return false;
}

}  // namespace

ProducerCore::ProducerCore(stream::ShardId shard, ProducerCoreOptions options)
    : shard_(std::move(shard)),
      options_(options),
      append_(options.append),
      retry_(shard_.ToString(), options.retry) {}

void ProducerCore::MoveTo(State next) {
  TAILCAST_CHECK(MayFollow(state_, next), "from state " + std::to_string(static_cast<int>(state_)) +
                                              " to " + std::to_string(static_cast<int>(next)));
  state_ = next;
}

Status ProducerCore::CheckSize(int64_t bytes) {
  if (bytes <= options_.message_bytes_max) return OkStatus();
  ++counters_.refused_size;
  return InvalidArgumentError(shard_.ToString() + ": a message of " + std::to_string(bytes) +
                              " bytes is over the limit of " +
                              std::to_string(options_.message_bytes_max) +
                              " bytes (message_bytes_max)");
}

Status ProducerCore::Publish(Batch batch, int64_t now_us) {
  if (state_ == State::kStopped) {
    return FailedPreconditionError(status_.ok() ? shard_.ToString() + ": the producer is closed"
                                                : status_.message());
  }
  if (closing_) return FailedPreconditionError(shard_.ToString() + ": the producer is closing");
  if (state_ == State::kOpening) {
    return FailedPreconditionError(shard_.ToString() + ": the producer is not open yet");
  }
  for (const Message& message : batch.messages) TAILCAST_RETURN_IF_ERROR(CheckSize(message.length));
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
  const int64_t waiting = append_.unacknowledged();
  if (waiting > 0 &&
      waiting + static_cast<int64_t>(batch.messages.size()) > options_.buffer_messages_max) {
    ++counters_.refused_full;
    return ResourceExhaustedError(shard_.ToString() + ": " + std::to_string(waiting) +
                                  " messages wait for the primary layer, the limit is " +
                                  std::to_string(options_.buffer_messages_max) +
                                  " (buffer_messages_max)");
  }
  for (Message& message : batch.messages) {
    last_time_us_ = std::max(last_time_us_, message.time_us != 0 ? message.time_us : now_us);
    message.time_us = last_time_us_;
  }
  counters_.messages += static_cast<int64_t>(batch.messages.size());
  counters_.bytes += bytes;
  append_.Add(std::move(batch));
  return OkStatus();
}

void ProducerCore::Close(MonotonicTime now, Duration wait) {
  closing_ = true;
  close_until_ = now + wait;
}

bool ProducerCore::DueForRoll(MonotonicTime now) const {
  if (append_.index_length() == 0) return false;
  // Who closes opens another file only for what this one has no room for.
  if (closing_) return append_.full() && !append_.started();
  return append_.full() || now - opened_at_ >= options_.roll_age;
}

void ProducerCore::DoWork(MonotonicTime now, Work& out) {
  if (state_ == State::kGivenUp) {
    if (append_.quiet()) EndGivenUp(now, out);
    return;
  }
  if (state_ == State::kAppending && DueForRoll(now)) {
    MoveTo(State::kFinishing);
    append_.Hold(true);
  }
  if (state_ != State::kAppending && state_ != State::kFinishing) return;
  if (closing_) append_.FlushSoon();
  append_.Next(now, out.append);
  out.wake = append_.NextFlush();
  if (state_ == State::kFinishing && append_.drained() && append_.quiet()) {
    append_.GiveUp();  // nothing more goes into this file
    MoveTo(State::kRolling);
    out.open = {current_, stream::Seal{{append_.data_length(), append_.index_length()}}, {}};
  }
}

void ProducerCore::EndGivenUp(MonotonicTime now, Work& out) {
  if (append_.fenced()) {
    out.stop =
        FailedPreconditionError(shard_.ToString() +
                                ": fenced: another producer took it over; "
                                "this one has stopped, and what it did not acknowledge as durable "
                                "is not in the stream unless reported unknown");
    return;
  }
  // The append failed or nobody knows: fence our own file to find out, and go on in the next one.
  ++counters_.recoveries;
  const RetryCore::Verdict verdict = retry_.OnAppendFailed(now);
  if (verdict.stop) {
    out.stop = verdict.stop;
    return;
  }
  MoveTo(State::kRecovering);
  out.open = {current_, std::nullopt, verdict.wait};
}

void ProducerCore::FinishClose(MonotonicTime now, bool shadowed, Work& out) {
  if (!closing_) return;
  // A next file would only have been opened to be closed.
  const bool no_room = state_ == State::kRolling && !full_.ok();
  if ((state_ == State::kAppending || no_room) && append_.empty() && append_.quiet()) {
    MoveTo(State::kSealed);
    ++counters_.files_sealed;
    out.seal = stream::Seal{{append_.data_length(), append_.index_length()}};
    shadowed = false;  // nobody was told of the seal yet
  }
  if (state_ != State::kSealed && state_ != State::kLeaving) return;
  if (now >= close_until_) {
    out.stop = OkStatus();
  } else if (state_ == State::kSealed && shadowed) {
    MoveTo(State::kLeaving);
    out.leave = true;
  }
}

void ProducerCore::OnAppended(Part part, storage::AppendOutcome outcome, AppendEffects& out) {
  if (part == Part::kData)
    append_.OnData(outcome, out);
  else
    append_.OnIndex(outcome, out);
  if (!out.durable.empty()) retry_.OnWell();
  if (!append_.is_open() && state_ != State::kGivenUp) MoveTo(State::kGivenUp);
  CountDurable(out.durable);
}

void ProducerCore::OnOpened(const stream::Stem& stem, std::vector<Predecessor> predecessors,
                            int64_t last_time_us, MonotonicTime now, OpenedEffects& out) {
  last_time_us_ = std::max({last_time_us_, last_time_us, stem.created_us});
  out.predecessors = std::move(predecessors);
  if (current_.seq != 0) {
    const auto own = [&](const Predecessor& p) { return p.stem == current_; };
    const auto it = std::find_if(out.predecessors.begin(), out.predecessors.end(), own);
    if (it != out.predecessors.end()) {
      ++counters_.files_sealed;
      out.seal = it->seal;
    }
    out.keep_shadow = append_.drained();
    if (out.keep_shadow) std::erase_if(out.predecessors, own);
  }
  AppendEffects appended;
  if (!append_.Open(stem.start_number, stem.start_byte, appended)) {
    out.stop = DataLossError(shard_.ToString() + ": file " + std::to_string(stem.seq) +
                             " begins at message " + std::to_string(stem.start_number) + ", but " +
                             std::to_string(append_.durable_number()) +
                             " were acknowledged: the primary layer has lost bytes");
    return;
  }
  current_ = stem;
  opened_at_ = now;
  at_limit_ = !full_.ok();
  full_ = OkStatus();
  if (append_.empty()) retry_.OnWell();  // else the appends will say
  ++counters_.files_opened;
  MoveTo(State::kAppending);
  out.durable = std::move(appended.durable);
  CountDurable(out.durable);
  flushes_before_ = counters_.flushes;
}

bool ProducerCore::OnFull(const Status& why) {
  full_ = why;
  return !std::exchange(at_limit_, true);
}

RetryCore::Verdict ProducerCore::OnOpenFailed(const Status& error, MonotonicTime now) {
  full_ = OkStatus();
  if (state_ == State::kRolling) MoveTo(State::kRecovering);
  return retry_.OnOpenFailed(error, now);
}

void ProducerCore::CountDurable(const std::vector<Flush>& durable) {
  counters_.flushes += static_cast<int64_t>(durable.size());
  for (const Flush& flush : durable) {
    counters_.durable += static_cast<int64_t>(flush.batch.messages.size());
  }
}

AppendCore::Lost ProducerCore::Stop(Status status) {
  MoveTo(State::kStopped);
  status_ = std::move(status);
  current_ = stream::Stem();
  AppendCore::Lost lost = append_.TakeAll();
  for (const Batch& batch : lost.unknown) {
    counters_.unknown += static_cast<int64_t>(batch.messages.size());
  }
  for (const Batch& batch : lost.failed) {
    counters_.failed += static_cast<int64_t>(batch.messages.size());
  }
  return lost;
}

bool ProducerCore::producing() const {
  return state_ == State::kAppending || state_ == State::kFinishing || state_ == State::kRolling ||
         state_ == State::kGivenUp || state_ == State::kRecovering;
}

int64_t ProducerCore::next_chunk_size(MonotonicTime now) const {
  if (current_.chunk_size == 0) return 0;
  return NextChunkSize(current_.chunk_size, append_.data_length(),
                       counters_.flushes - flushes_before_, now - opened_at_);
}

stream::Position ProducerCore::durable_position() const {
  return {shard_.stream.incarnation, shard_.shard, append_.durable_number(),
          append_.durable_byte()};
}

}  // namespace tailcast::producer
