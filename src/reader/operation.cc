#include "tailcast/reader/operation.h"

#include <algorithm>

#include "tailcast/base/log.h"

namespace tailcast::reader {
namespace {
const Logger kLog("reader");
}

using stream::Layer;
using stream::PairMetadata;
using stream::Part;

ReaderOperation::ReaderOperation(ReaderAgent& agent, uint64_t number, stream::Operation operation)
    : agent_(&agent),
      number_(number),
      operation_(std::move(operation)),
      group_(stream::KeyMaker(operation_.target.file.shard)
                 .MetadataGroup(operation_.target.file.stem.seq)),
      core_(agent.options_.copy, operation_.target.layer, operation_.chunk_size, operation_.fresh) {
  for (int p = 0; p < stream::kParts; ++p) {
    readers_[p] = std::make_unique<stream::RangeReader>(
        agent.ports_, operation_.target.file, static_cast<Part>(p), operation_.chunk_size,
        stream::RangeReader::Options{.cache_timeout = agent.options_.cache_timeout});
  }
}

void ReaderOperation::Start() {
  const MonotonicTime now = agent_->ports_.loop->Now();
  heard_ = now;
  metadata_read_ = now;
  next_primary_poll_ = now + agent_->options_.primary_poll_interval;
  client_ = agent_->ClientFor(operation_.writer_address, operation_.writer_via);
  stream_ = client_->Open("/tailcast.v1.Writer/Copy");
  rpc::Stream::Callbacks callbacks;
  callbacks.on_message = [self = weak_from_this()](const std::string& message) {
    if (const auto op = self.lock(); op && op->running()) op->OnMessage(message);
  };
  callbacks.on_drained = [self = weak_from_this()] {
    if (const auto op = self.lock(); op && op->running()) op->Kick();
  };
  callbacks.on_closed = [self = weak_from_this()](const Status& status) {
    if (const auto op = self.lock(); op && op->running()) op->OnClosed(status);
  };
  stream_->SetCallbacks(std::move(callbacks));
  v1::CopyRequest request;
  stream::ToProto(operation_, request.mutable_open()->mutable_operation());
  request.mutable_open()->set_reader(agent_->options_.name);
  Send(request);
  if (operation_.sealed()) OnSeal(*operation_.seal[0], *operation_.seal[1]);
}

void ReaderOperation::Detach() {
  agent_ = nullptr;
  stream_.reset();
  for (auto& reader : readers_) reader.reset();
}

void ReaderOperation::Send(const v1::CopyRequest& request) {
  stream_->Send(request.SerializeAsString());
}

void ReaderOperation::OnMessage(const std::string& bytes) {
  heard_ = agent_->ports_.loop->Now();
  auto reply = rpc::Parse<v1::CopyReply>(bytes);
  Status status = reply.ok() ? OkStatus() : reply.status();
  if (status.ok()) {
    switch (reply->kind_case()) {
      case v1::CopyReply::kOpened:
        status = core_.OnOpened(reply->opened().data_length(), reply->opened().index_length(),
                                reply->opened().window_bytes());
        break;
      case v1::CopyReply::kProgress:
        status =
            core_.OnProgress(reply->progress().data_length(), reply->progress().index_length());
        break;
      case v1::CopyReply::kSuperseded:
        superseding_term_ = reply->superseded().term();
        break;
      case v1::CopyReply::KIND_NOT_SET:
        break;  // of a newer writer
    }
  }
  if (!status.ok()) {
    agent_->counters_.rejected_input.Add();
    return End(v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST, status.ToString());
  }
  lag_.OnWritten(heard_, core_.written(Part::kData) + core_.written(Part::kIndex));
  agent_->Changed(number_, false);
  Kick();
}

void ReaderOperation::OnClosed(const Status& status) {
  v1::FailureCause cause = v1::CAUSE_WRITER_LOST;
  switch (status.code()) {
    case StatusCode::kOk:
      if (core_.source().seal[0] && core_.written(Part::kData) >= *core_.source().seal[0] &&
          core_.written(Part::kIndex) >= *core_.source().seal[1]) {
        return End(v1::OPERATION_DONE, v1::CAUSE_NONE, "");
      }
      return End(v1::OPERATION_FAILED, cause, "the writer ended the stream before the seal");
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
  End(v1::OPERATION_FAILED, cause, status.ToString());
}

void ReaderOperation::Stop(v1::FailureCause cause, const std::string& message) {
  if (running()) End(v1::OPERATION_FAILED, cause, message);
}

void ReaderOperation::End(v1::OperationState state, v1::FailureCause cause, std::string message) {
  state_ = state;
  cause_ = cause;
  message_ = std::move(message);
  auto& c = agent_->counters_;
  switch (cause) {
    case v1::CAUSE_WRITER_LOST:
      c.writer_lost.Add();
      break;
    case v1::CAUSE_SUPERSEDED:
      c.superseded.Add();
      break;
    case v1::CAUSE_SOURCE:
      c.source_errors.Add();
      break;
    case v1::CAUSE_REFUSED:
      c.refused.Add();
      break;
    case v1::CAUSE_DATA_LOSS:
      c.data_loss.Add();
      break;
    case v1::CAUSE_STOPPED:
      c.stopped.Add();
      break;
    default:
      c.done.Add();
      break;
  }
  const std::string name = operation_.target.ToString();
  if (cause == v1::CAUSE_DATA_LOSS) {
    kLog.Error(name, " ended: ", message_);
  } else if (cause != v1::CAUSE_NONE) {
    kLog.Info(name, " by ", operation_.writer_name, " ended: ", message_);
  }
  // The stream may be in the middle of one of its callbacks.
  stream_->Close(CancelledError("the operation ended"));
  agent_->ports_.loop->Post(
      [stream = std::shared_ptr<rpc::Stream>(std::move(stream_)), client = std::move(client_)] {});
  for (auto& reader : readers_) {
    agent_->ports_.loop->Post(
        [reader = std::shared_ptr<stream::RangeReader>(std::move(reader))] {});
  }
  agent_->RemoveFromGroup(number_, group_);
  const auto it = agent_->by_target_.find(operation_.target);
  if (it != agent_->by_target_.end() && it->second == number_) agent_->by_target_.erase(it);
  --agent_->running_;
  c.running.Set(agent_->running_);
  agent_->Changed(number_, true);
}

void ReaderOperation::OnSeal(int64_t data_length, int64_t index_length) {
  SourceLengths source;
  source.seal[0] = data_length;
  source.seal[1] = index_length;
  ApplySource(source);
}

void ReaderOperation::ApplySource(const SourceLengths& source) {
  if (!running()) return;
  const Status status = core_.OnSource(source);
  if (!status.ok()) return End(v1::OPERATION_FAILED, v1::CAUSE_DATA_LOSS, status.ToString());
  lag_.OnSource(agent_->ports_.loop->Now(),
                core_.available(Part::kData) + core_.available(Part::kIndex));
  Kick();
}

void ReaderOperation::OnMetadata(const PairMetadata& metadata, const PairMetadata& next) {
  if (!running()) return;
  SourceLengths source;
  if (metadata.known()) {
    metadata_read_ = agent_->ports_.loop->Now();
    for (int p = 0; p < stream::kParts; ++p) {
      source.cache[p] = metadata.cache_length[p];
      source.primary[p] = metadata.primary_length[p];
      if (metadata.sealed()) source.seal[p] = metadata.seal[p];
    }
    source.heartbeat_us = metadata.heartbeat_us;
  }
  const stream::Stem& stem = operation_.target.file.stem;
  if (!source.seal[0] && next.known() && next.start_byte >= stem.start_byte &&
      next.start_number >= stem.start_number) {
    source.seal[0] = next.start_byte - stem.start_byte;
    source.seal[1] = (next.start_number - stem.start_number) * 32;
  }
  ApplySource(source);
}

void ReaderOperation::Tick(MonotonicTime now) {
  if (!running()) return;
  if (!core_.waiting_for_writer()) {
    heard_ = now;
  } else if (now - heard_ > agent_->options_.stall_timeout) {
    agent_->counters_.stalls.Add();
    return End(v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST,
               "the writer was silent for " + std::to_string((now - heard_).millis()) + " ms");
  }
  if (paused_) {
    paused_ = false;
    Kick();
  }
  if (now >= next_primary_poll_ && primary_polls_outstanding_ == 0) {
    next_primary_poll_ = now + agent_->options_.primary_poll_interval;
    // Only for those that would otherwise miss it: primary operations, and files of which the
    // metadata cache knows nothing.
    const bool lost = now - metadata_read_ > agent_->options_.primary_poll_interval;
    const bool complete = core_.source().seal[0] &&
                          core_.available(Part::kData) >= *core_.source().seal[0] &&
                          core_.available(Part::kIndex) >= *core_.source().seal[1];
    if (!complete && (lost || operation_.target.layer == Layer::kPrimary)) PollPrimary();
  }
}

void ReaderOperation::PollPrimary() {
  agent_->counters_.primary_polls.Add();
  for (int p = 0; p < stream::kParts; ++p) {
    ++primary_polls_outstanding_;
    readers_[p]->PrimarySize([self = weak_from_this(), p](Result<storage::FileSize> size) {
      const auto op = self.lock();
      if (!op || !op->running()) return;
      --op->primary_polls_outstanding_;
      if (!size.ok()) {
        if (IsNotFound(size.status())) return;  // the cache copy runs ahead, or it was collected
        op->agent_->counters_.source_errors.Add();
        return;
      }
      SourceLengths source;
      source.primary[p] = size->committed_length;
      op->ApplySource(source);
    });
  }
}

void ReaderOperation::Kick() {
  if (kicked_) return;
  kicked_ = true;
  agent_->ports_.loop->Post([self = weak_from_this()] {
    const auto op = self.lock();
    if (!op || op->agent_ == nullptr) return;
    op->kicked_ = false;
    if (op->running()) op->Work();
  });
}

void ReaderOperation::Work() {
  while (const auto jump = core_.TakeJump()) {
    agent_->counters_.jumps.Add();
    v1::CopyRequest request;
    request.mutable_jump()->set_part(static_cast<uint32_t>(jump->part));
    request.mutable_jump()->set_position(jump->position);
    Send(request);
  }
  if (const auto seal = core_.TakeSeal()) {
    v1::CopyRequest request;
    request.mutable_seal()->set_data_length(seal->length[0]);
    request.mutable_seal()->set_index_length(seal->length[1]);
    Send(request);
  }
  while (running() && !paused_ &&
         static_cast<int64_t>(stream_->queued_bytes()) < agent_->options_.queued_bytes_max) {
    const auto read = core_.NextRead();
    if (!read) break;
    StartRead(*read);
  }
  if (!running()) return;
  if (const auto beat = core_.TakeHeartbeat()) {
    v1::CopyRequest request;
    request.mutable_heartbeat()->set_as_of_us(beat->as_of_us);
    request.mutable_heartbeat()->set_data_length(beat->length[0]);
    request.mutable_heartbeat()->set_index_length(beat->length[1]);
    Send(request);
  }
}

void ReaderOperation::StartRead(const CopyCore::Read& read) {
  stream::RangeReader& reader = *readers_[static_cast<int>(read.part)];
  const int64_t base = reader.ChunkStart(read.from);
  auto buffer = std::make_shared<std::string>(static_cast<size_t>(read.to - base), '\0');
  stream::RangeRequest request;
  request.from = read.from;
  request.to = read.to;
  request.cache_limit = read.cache_limit;
  request.primary_limit = read.primary_limit;
  request.destination = buffer->data();
  request.room = read.to - base;
  const auto at_once = reader.Read(
      request, [self = weak_from_this(), read, buffer, base](stream::RangeResult result) {
        const auto op = self.lock();
        if (!op || !op->running()) return;
        op->OnRead(read, *buffer, base, result);
        if (op->running()) op->Kick();
      });
  if (at_once) OnRead(read, *buffer, base, *at_once);
}

void ReaderOperation::OnRead(const CopyCore::Read& read, const std::string& buffer, int64_t base,
                             const stream::RangeResult& result) {
  agent_->counters_.cache_bytes.Add(result.cache_bytes);
  agent_->counters_.primary_bytes.Add(result.primary_bytes);
  const int64_t end = std::min(result.end, read.to);
  const auto position = core_.OnReadDone(read.id, end);
  if (end < read.to) {
    agent_->counters_.short_reads.Add();
    paused_ = true;
  }
  if (!position) return;
  v1::CopyRequest request;
  auto* bytes = request.mutable_bytes();
  bytes->set_part(static_cast<uint32_t>(read.part));
  bytes->set_position(*position);
  bytes->set_bytes(
      buffer.substr(static_cast<size_t>(*position - base), static_cast<size_t>(end - *position)));
  agent_->counters_.sent_bytes.Add(end - *position);
  Send(request);
}

void ReaderOperation::Report(v1::OperationReport* out) const {
  stream::ToProto(operation_, out->mutable_operation());
  out->set_state(state_);
  out->set_cause(cause_);
  out->set_message(message_.substr(0, 1000));
  out->set_data_length(core_.written(Part::kData));
  out->set_index_length(core_.written(Part::kIndex));
  out->set_source_data_length(core_.available(Part::kData));
  out->set_source_index_length(core_.available(Part::kIndex));
  if (running() && agent_ != nullptr) {
    out->set_lag_us(lag_.lag(agent_->ports_.loop->Now()).micros());
    out->set_delay_us(lag_.delay().micros());
  }
  out->set_superseding_term(superseding_term_);
  out->set_opened(core_.opened());
}

}  // namespace tailcast::reader
