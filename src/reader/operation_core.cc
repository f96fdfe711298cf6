#include "tailcast/reader/operation_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::reader {
namespace {
// The longest wait that is remembered: an outage of a link is no habit.
constexpr Duration kLearnedMax = Duration::Seconds(30);
constexpr int64_t kBusyMax_us = int64_t{1} << 50;

FAULT_POINT(kSealOneRecordEarly, "reader.seal_one_record_early",
            "a file is taken to end one record before the next one's name says");
}  // namespace

using stream::Layer;
using stream::PairMetadata;
using stream::Part;

OperationCore::OperationCore(const ReaderOptions& options, stream::Operation operation,
                             Counters& counters, MonotonicTime now)
    : options_(options),
      operation_(std::move(operation)),
      counters_(counters),
      hop_(counters.HopTo(operation_.target.layer, operation_.target.cell)),
      copy_(options.copy, operation_.target.layer, operation_.chunk_size, operation_.fresh),
      writer_load_(now),
      clock_(std::max(options.poll_interval, Duration::Millis(250))),
      complete_since_(clock_.At(now)),
      sizes_answered_(complete_since_),
      metadata_read_(now),
      next_sizes_(now + options.primary_poll_interval) {}

void OperationCore::Enter(Phase next) {
  const bool allowed =
      next == Phase::kCopying ? phase_ == Phase::kOpening : next == Phase::kEnded && !ended();
  TAILCAST_CHECK(allowed, operation_.target.ToString() + ": phase " +
                              std::to_string(static_cast<int>(phase_)) + " -> " +
                              std::to_string(static_cast<int>(next)));
  phase_ = next;
}

// --- the source

void OperationCore::OnMetadata(MonotonicTime now, const PairMetadata& pair,
                               const PairMetadata& next, Effects& out) {
  if (ended()) return;
  SourceLengths source;
  if (pair.known()) {
    metadata_read_ = now;
    for (int p = 0; p < stream::kParts; ++p) {
      source.cache[p] = pair.cache_length[p];
      source.primary[p] = pair.primary_length[p];
      if (pair.sealed()) source.seal[p] = pair.seal[p];
    }
    source.heartbeat_us = pair.heartbeat_us;
  }
  const stream::Stem& stem = operation_.target.file.stem;
  if (!source.seal[0] && next.known() && next.start_byte >= stem.start_byte &&
      next.start_number >= stem.start_number) {
    source.seal[0] = next.start_byte - stem.start_byte;
    source.seal[1] = (next.start_number - stem.start_number) * stream::kIndexRecordSize;
    if (kSealOneRecordEarly.planted() && source.seal[1] > 0) {
      *source.seal[1] -= stream::kIndexRecordSize;
    }
  }
  OnSource(now, source, out);
}

void OperationCore::OnSeal(MonotonicTime now, int64_t data_length, int64_t index_length,
                           Effects& out) {
  SourceLengths source;
  source.seal[0] = data_length;
  source.seal[1] = index_length;
  OnSource(now, source, out);
}

void OperationCore::OnPrimarySize(MonotonicTime now, Part part, const Result<int64_t>& committed,
                                  Effects& out) {
  if (ended() || sizes_outstanding_ == 0) return;
  --sizes_outstanding_;
  if (!committed.ok()) {
    // Not there: the cache copy runs ahead, or it was collected.
    if (!IsNotFound(committed.status())) counters_.source_errors.Add();
    return;
  }
  SourceLengths source;
  source.primary[static_cast<int>(part)] = *committed;
  OnSource(now, source, out);
}

void OperationCore::OnSource(MonotonicTime now, const SourceLengths& source, Effects& out) {
  if (ended()) return;
  const Status status = copy_.OnSource(source);
  if (!status.ok()) {
    return End(v1::OPERATION_FAILED, v1::CAUSE_DATA_LOSS, status.ToString(), out);
  }
  lag_.OnSource(now, copy_.available(Part::kData) + copy_.available(Part::kIndex));
  out.do_work = true;
}

bool OperationCore::SourceComplete() const {
  const auto& seal = copy_.source().seal;
  return seal[0] && copy_.available(Part::kData) >= *seal[0] &&
         copy_.available(Part::kIndex) >= *seal[1];
}

bool OperationCore::WriterComplete() const {
  const auto& seal = copy_.source().seal;
  return seal[0] && copy_.written(Part::kData) >= *seal[0] &&
         copy_.written(Part::kIndex) >= *seal[1];
}

// --- the writer

void OperationCore::OnReply(MonotonicTime now, const v1::CopyReply& reply, Effects& out) {
  if (ended()) return;
  Status status;
  switch (reply.kind_case()) {
    case v1::CopyReply::kOpened: {
      const auto& opened = reply.opened();
      status = copy_.OnOpened(opened.data_length(), opened.index_length(), opened.window_bytes());
      if (status.ok()) {
        Enter(Phase::kCopying);
        out.opened = true;
        begun_at_ = copy_.written(Part::kData) + copy_.written(Part::kIndex);
      }
      break;
    }
    case v1::CopyReply::kProgress:
      status = copy_.OnProgress(reply.progress().data_length(), reply.progress().index_length(),
                                reply.progress().window_bytes());
      writer_load_.OnProgress(
          now, Duration::Micros(std::clamp<int64_t>(reply.progress().busy_us(), 0, kBusyMax_us)));
      break;
    case v1::CopyReply::kSuperseded:
      superseding_term_ = stream::Term::Unpack(reply.superseded().term());
      break;
    case v1::CopyReply::KIND_NOT_SET:
      break;  // of a newer writer
  }
  if (!status.ok()) return OnWrongMessage(status, out);
  if (lag_.OnWritten(now, copy_.written(Part::kData) + copy_.written(Part::kIndex))) {
    hop_.time.Observe(lag_.delay().micros());
  }
  writes_.OnDone(now, copy_.written(Part::kData) + copy_.written(Part::kIndex));
  out.changed = true;
  out.do_work = true;
}

void OperationCore::OnWrongMessage(const Status& status, Effects& out) {
  if (ended()) return;
  counters_.rejected_input.Add();
  End(v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST, status.ToString(), out);
}

void OperationCore::OnClosed(const Status& status, Effects& out) {
  if (ended()) return;
  v1::FailureCause cause = v1::CAUSE_WRITER_LOST;
  switch (status.code()) {
    case StatusCode::kOk:
      if (WriterComplete()) return End(v1::OPERATION_DONE, v1::CAUSE_NONE, "", out);
      return End(v1::OPERATION_FAILED, cause, "the writer ended the stream before the seal", out);
    case StatusCode::kAborted:
      cause = v1::CAUSE_SUPERSEDED;
      break;
    case StatusCode::kDataLoss:
      cause = v1::CAUSE_DATA_LOSS;
      break;
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kInvalidArgument:
    case StatusCode::kPermissionDenied:
    case StatusCode::kResourceExhausted:
      cause = v1::CAUSE_REFUSED;
      break;
    default:
      break;
  }
  End(v1::OPERATION_FAILED, cause, status.ToString(), out);
}

// --- time and the agent

void OperationCore::OnTick(MonotonicTime now, int64_t queued_bytes, Effects& out) {
  if (ended()) return;
  LookIfStuck(now, out);
  if (ended()) return;
  if (std::exchange(paused_, false)) out.do_work = true;
  const Duration lag = lag_.lag(now);
  if (lag > Duration()) hop_.lag.Observe(lag.micros());
  wait_.Look(now, lag, InTheWay(now, queued_bytes));
  if (now < next_sizes_ || sizes_outstanding_ > 0) return;
  next_sizes_ = now + options_.primary_poll_interval;
  // Only for those that would otherwise miss it: primary operations, and files of which the
  // metadata cache knows nothing.
  const bool lost = now - metadata_read_ > options_.primary_poll_interval;
  if (SourceComplete() || (!lost && operation_.target.layer != Layer::kPrimary)) return;
  counters_.primary_polls.Add();
  sizes_outstanding_ = stream::kParts;
  out.ask_sizes = true;
}

v1::WaitsFor OperationCore::InTheWay(MonotonicTime now, int64_t queued_bytes) const {
  if (queued_bytes > 0 && copy_.opened()) return v1::WAITS_FOR_LINK;
  switch (copy_.in_the_way()) {
    case CopyCore::Turn::kSources:
      return v1::WAITS_FOR_SOURCE;
    case CopyCore::Turn::kWriters:
      return writer_load_.idle(now) ? v1::WAITS_FOR_LINK : v1::WAITS_FOR_WRITER;
    case CopyCore::Turn::kNobodys:
      break;
  }
  return v1::WAITS_FOR_NOBODY;
}

void OperationCore::LookIfStuck(MonotonicTime loop_now, Effects& out) {
  using Turn = CopyCore::Turn;
  const MonotonicTime now = clock_.At(loop_now);
  if (!WriterComplete()) complete_since_ = now;
  if (sizes_outstanding_ == 0) sizes_answered_ = now;
  Duration longest[] = {Duration(), Duration(), Duration()};  // by Turn
  bool nobodys = true;
  for (Part part : {Part::kData, Part::kIndex}) {
    Progress& p = progress_[static_cast<int>(part)];
    const Turn turn = copy_.turn(part);
    const int64_t got_to = copy_.got_to(part);
    nobodys = nobodys && turn == Turn::kNobodys;
    if (turn == p.turn && got_to > p.got_to) {
      longest_wait_ = std::max(longest_wait_, std::min(now - p.moved, kLearnedMax));
    }
    if (turn == Turn::kNobodys || turn != p.turn || got_to != p.got_to) p = {turn, got_to, now};
    Duration& wait = longest[static_cast<int>(turn)];
    wait = std::max(wait, now - p.moved);
  }
  // Nothing is known to be there, because nobody says what is there.
  const bool blind = nobodys && loop_now - metadata_read_ > operation_.stuck_after;
  if (blind) longest[static_cast<int>(Turn::kSources)] = now - sizes_answered_;
  // What always took long, and came, is slow and not stuck.
  const bool got_on =
      copy_.opened() && copy_.written(Part::kData) + copy_.written(Part::kIndex) > begun_at_;
  const Duration limit =
      std::max(got_on ? operation_.stuck_after : operation_.stuck_at_first, longest_wait_ * 2);
  const Duration source = longest[static_cast<int>(Turn::kSources)];
  const Duration writer = longest[static_cast<int>(Turn::kWriters)];
  // An index that waits for data which the source does not give is not the writer's fault.
  if (source > limit || (writer > limit && source > limit / 2)) {
    return EndStuck(Turn::kSources, source, out);
  }
  // It may have to publish its end again and again, which has a limit of its own.
  const Duration end = now - complete_since_;
  if (writer > limit || end > std::max(limit, options_.end_timeout)) {
    EndStuck(Turn::kWriters, std::max(writer, end), out);
  }
}

void OperationCore::EndStuck(CopyCore::Turn turn, Duration how_long, Effects& out) {
  const std::string how = " for " + std::to_string(how_long.millis()) + " ms, at (" +
                          std::to_string(copy_.written(Part::kData)) + ", " +
                          std::to_string(copy_.written(Part::kIndex)) + ")";
  if (turn == CopyCore::Turn::kSources) {
    counters_.stuck_sources.Add();
    return End(v1::OPERATION_FAILED, v1::CAUSE_SOURCE, "the source gave nothing" + how, out);
  }
  counters_.stuck_writers.Add();
  End(v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST, "the writer did not get on" + how, out);
}

void OperationCore::Stop(v1::FailureCause cause, const std::string& message, Effects& out) {
  if (!ended()) End(v1::OPERATION_FAILED, cause, message, out);
}

void OperationCore::End(v1::OperationState state, v1::FailureCause cause, std::string message,
                        Effects& out) {
  Enter(Phase::kEnded);
  ending_ = {state, cause, std::move(message)};
  CounterOf(cause).Add();
  out.ended = true;
}

Counter& OperationCore::CounterOf(v1::FailureCause cause) const {
  switch (cause) {
    case v1::CAUSE_WRITER_LOST:
      return counters_.writer_lost;
    case v1::CAUSE_SUPERSEDED:
      return counters_.superseded;
    case v1::CAUSE_SOURCE:
      return counters_.source_lost;
    case v1::CAUSE_REFUSED:
    case v1::CAUSE_READER_FULL:
      return counters_.refused;
    case v1::CAUSE_DATA_LOSS:
      return counters_.data_loss;
    case v1::CAUSE_STOPPED:
      return counters_.stopped;
    default:
      return counters_.done;
  }
}

// --- work

std::optional<v1::CopyRequest> OperationCore::NextMessage() {
  if (ended()) return std::nullopt;
  v1::CopyRequest request;
  if (const auto jump = copy_.TakeJump()) {
    counters_.jumps.Add();
    request.mutable_jump()->set_part(static_cast<uint32_t>(jump->part));
    request.mutable_jump()->set_position(jump->position);
    return request;
  }
  if (const auto seal = copy_.TakeSeal()) {
    request.mutable_seal()->set_data_length(seal->length[0]);
    request.mutable_seal()->set_index_length(seal->length[1]);
    return request;
  }
  return std::nullopt;
}

std::optional<CopyCore::Read> OperationCore::NextRead(MonotonicTime now, int64_t queued_bytes) {
  if (ended() || paused_ || queued_bytes >= options_.queued_bytes_max) return std::nullopt;
  const auto read = copy_.NextRead();
  if (read) reads_.OnGiven(now, asked_bytes_ += read->to - read->from);
  return read;
}

std::optional<v1::CopyRequest> OperationCore::OnRead(MonotonicTime now, const CopyCore::Read& read,
                                                     const stream::RangeResult& result,
                                                     int64_t base, std::string_view buffer) {
  if (ended()) return std::nullopt;
  reads_.OnDone(now, read_bytes_ += read.to - read.from);
  counters_.cache_bytes.Add(result.cache_bytes);
  counters_.primary_bytes.Add(result.primary_bytes);
  const int64_t end = std::min(result.end, read.to);
  const auto position = copy_.OnReadDone(read.id, end);
  if (end < read.to) {
    counters_.short_reads.Add();
    paused_ = true;
  }
  if (!position) return std::nullopt;
  writes_.OnGiven(now, copy_.sent(Part::kData) + copy_.sent(Part::kIndex));
  counters_.sent_bytes.Add(end - *position);
  sent_bytes_ += end - *position;
  v1::CopyRequest request;
  auto* bytes = request.mutable_bytes();
  bytes->set_part(static_cast<uint32_t>(read.part));
  bytes->set_position(*position);
  bytes->set_bytes(std::string(
      buffer.substr(static_cast<size_t>(*position - base), static_cast<size_t>(end - *position))));
  return request;
}

std::optional<v1::CopyRequest> OperationCore::TakeHeartbeat() {
  if (ended()) return std::nullopt;
  const auto beat = copy_.TakeHeartbeat();
  if (!beat) return std::nullopt;
  v1::CopyRequest request;
  request.mutable_heartbeat()->set_as_of_us(beat->as_of_us);
  request.mutable_heartbeat()->set_data_length(beat->length[0]);
  request.mutable_heartbeat()->set_index_length(beat->length[1]);
  return request;
}

void OperationCore::Report(MonotonicTime now, v1::OperationReport* out) const {
  stream::ToProto(operation_, out->mutable_operation());
  out->set_state(ending_.state);
  out->set_sent_bytes(sent_bytes_);
  out->set_cause(ending_.cause);
  out->set_message(ending_.message.substr(0, 1000));
  out->set_data_length(copy_.written(Part::kData));
  out->set_index_length(copy_.written(Part::kIndex));
  out->set_source_data_length(copy_.available(Part::kData));
  out->set_source_index_length(copy_.available(Part::kIndex));
  if (!ended()) {
    out->set_lag_us(lag_.lag(now).micros());
    out->set_delay_us(lag_.delay().micros());
    out->set_waits_for(wait_.waits_for());
    out->set_waits_us(wait_.waited(now).micros());
    out->set_read_us(reads_.takes(now).micros());
    out->set_write_us(writes_.takes(now).micros());
  }
  out->set_superseding_term(superseding_term_.Pack());
  out->set_opened(copy_.opened());
}

}  // namespace tailcast::reader
