#include "tailcast/writer/operation.h"

#include <algorithm>

#include "tailcast/base/log.h"

namespace tailcast::writer {
namespace {
const Logger kLog("writer");
constexpr size_t kHeartbeatsMax = 16;
constexpr size_t kBytesMax = 1 << 20;
}  // namespace

using stream::Layer;
using stream::LockValue;
using stream::PairMetadata;
using stream::Part;

WriterOperation::WriterOperation(WriterAgent& agent, uint64_t id,
                                 std::unique_ptr<rpc::Stream> stream, stream::Operation operation)
    : agent_(&agent),
      id_(id),
      stream_(std::move(stream)),
      operation_(std::move(operation)),
      keys_(operation_.target.file.shard),
      steps_(agent.ports_.steps, operation_.target.file, "writer",
             agent.ports_.steps != nullptr ? agent.ports_.steps->NewName() : ""),
      lock_(
          agent.options_.lock,
          LockValue{operation_.id.term, stream::LockOwner(agent.options_.name, operation_.id.nonce),
                    stream::LockState::kHeld}) {
  seal_[0] = operation_.seal[0];
  seal_[1] = operation_.seal[1];
}

void WriterOperation::Start() {
  if (operation_.target.layer == Layer::kPrimary) {
    agent_->counters_.started_primary.Add();
  } else {
    agent_->counters_.started_cache.Add();
  }
  agent_->ArmLocks(lock_.NextRead());
  OnStart();
}

void WriterOperation::OnMessage(const std::string& bytes) {
  if (ended_) return;
  auto request = rpc::Parse<v1::CopyRequest>(bytes);
  Status status = request.ok() ? OkStatus() : request.status();
  if (status.ok()) {
    switch (request->kind_case()) {
      case v1::CopyRequest::kBytes: {
        const auto& b = request->bytes();
        if (b.part() >= stream::kParts) {
          status = InvalidArgumentError("bytes.part is " + std::to_string(b.part()));
        } else if (b.bytes().empty() || b.bytes().size() > kBytesMax) {
          status = InvalidArgumentError("bytes.bytes has " + std::to_string(b.bytes().size()) +
                                        " bytes; 1 to 1048576 are allowed");
        } else if (b.position() < 0) {
          status = InvalidArgumentError("bytes.position is " + std::to_string(b.position()));
        } else {
          status = OnBytes(static_cast<Part>(b.part()), b.position(), b.bytes());
        }
        break;
      }
      case v1::CopyRequest::kJump: {
        const auto& j = request->jump();
        if (j.part() >= stream::kParts) {
          status = InvalidArgumentError("jump.part is " + std::to_string(j.part()));
        } else if (j.position() < 0 || j.position() % operation_.chunk_size != 0) {
          status = InvalidArgumentError("jump.position " + std::to_string(j.position()) +
                                        " is not the beginning of a chunk");
        } else {
          status = OnJump(static_cast<Part>(j.part()), j.position());
        }
        break;
      }
      case v1::CopyRequest::kSeal: {
        const int64_t length[] = {request->seal().data_length(), request->seal().index_length()};
        if (length[0] < 0 || length[1] < 0 || length[1] % 32 != 0) {
          status = InvalidArgumentError("seal (" + std::to_string(length[0]) + ", " +
                                        std::to_string(length[1]) + ") is no seal");
        } else if (seal_[0] && (*seal_[0] != length[0] || *seal_[1] != length[1])) {
          status =
              DataLossError("seal (" + std::to_string(length[0]) + ", " +
                            std::to_string(length[1]) + ") differs from the known one (" +
                            std::to_string(*seal_[0]) + ", " + std::to_string(*seal_[1]) + ")");
        } else {
          seal_[0] = length[0];
          seal_[1] = length[1];
          status = OnSealKnown();
        }
        break;
      }
      case v1::CopyRequest::kHeartbeat: {
        const auto& h = request->heartbeat();
        if (h.as_of_us() <= 0 || h.data_length() < 0 || h.index_length() < 0) {
          status = InvalidArgumentError("heartbeat has a negative field");
          break;
        }
        if (heartbeats_.size() >= kHeartbeatsMax)
          heartbeats_.pop_back();  // the newest waits longest
        heartbeats_.push_back({h.as_of_us(), {h.data_length(), h.index_length()}});
        break;
      }
      case v1::CopyRequest::kOpen:
        status = InvalidArgumentError("a second `open` on one stream");
        break;
      case v1::CopyRequest::KIND_NOT_SET:
        status = InvalidArgumentError("a message of no known kind; is the reader newer?");
        break;
    }
  }
  if (ended_) return;
  if (!status.ok()) {
    agent_->counters_.rejected_input.Add();
    kLog.Warn(Name(), ": ", status.ToString());
    End(status);
    return;
  }
  Kick();
}

void WriterOperation::OnStreamClosed(const Status& status) {
  if (ended_) {
    if (outstanding() == 0) agent_->Remove(id_);  // else it lingers, to write its lock's release
    return;
  }
  agent_->counters_.reader_lost.Add();
  End(status.ok() ? CancelledError("the reader closed the stream before the seal") : status);
}

void WriterOperation::Detach() {
  if (agent_ != nullptr) agent_->ports_.loop->Cancel(publish_timer_);
  ended_ = true;
  agent_ = nullptr;
  stream_.reset();
}

void WriterOperation::Kick() {
  if (kicked_ || ended_) return;
  kicked_ = true;
  agent_->ports_.loop->Post([self = weak_from_this()] {
    const auto op = self.lock();
    if (!op) return;
    op->kicked_ = false;
    if (op->ended_) return;
    op->Work();
    if (op->ended_) return;
    op->CheckHeartbeats();
    op->SendProgress();
    op->MaybeClose();
  });
}

void WriterOperation::SendOpened(int64_t data_length, int64_t index_length, uint64_t epoch,
                                 int64_t window) {
  v1::CopyReply reply;
  auto* opened = reply.mutable_opened();
  opened->set_data_length(data_length);
  opened->set_index_length(index_length);
  opened->set_epoch(epoch);
  opened->set_window_bytes(window);
  opened_ = true;
  stream_->Send(reply.SerializeAsString());
}

void WriterOperation::KeepAlive() {
  const MonotonicTime now = agent_->ports_.loop->Now();
  if (!opened_ || now - last_sent_ < agent_->options_.keep_alive || !busy()) return;
  sent_written_[0] = -1;
  SendProgress();
}

void WriterOperation::SendProgress() {
  if (ended_ || !opened_) return;
  const int64_t data = written(Part::kData);
  const int64_t index = written(Part::kIndex);
  if (data == sent_written_[0] && index == sent_written_[1]) return;
  last_sent_ = agent_->ports_.loop->Now();
  sent_written_[0] = data;
  sent_written_[1] = index;
  v1::CopyReply reply;
  auto* progress = reply.mutable_progress();
  progress->set_data_length(data);
  progress->set_index_length(index);
  stream_->Send(reply.SerializeAsString());
}

void WriterOperation::CheckHeartbeats() {
  int64_t as_of = 0;
  while (!heartbeats_.empty() && heartbeats_.front().length[0] <= written(Part::kData) &&
         heartbeats_.front().length[1] <= written(Part::kIndex)) {
    as_of = std::max(as_of, heartbeats_.front().as_of_us);
    heartbeats_.pop_front();
  }
  if (as_of > to_publish_.heartbeat_us) {
    PairMetadata metadata;
    metadata.heartbeat_us = as_of;
    Publish(metadata);
  }
}

void WriterOperation::Publish(const PairMetadata& metadata) {
  PairMetadata base;
  base.created_us = file().stem.created_us;
  base.start_byte = file().stem.start_byte;
  base.start_number = file().stem.start_number;
  base.chunk_size = operation_.chunk_size;
  const PairMetadata merged = stream::Merge(stream::Merge(to_publish_, base), metadata);
  if (merged == to_publish_) return;
  to_publish_ = merged;
  publish_dirty_ = true;
  SendPublication();
}

void WriterOperation::SendPublication() {
  if (agent_ == nullptr || publishing_ || !publish_dirty_ || publish_timer_ != 0) return;
  publishing_ = true;
  publish_dirty_ = false;
  cache::Mutation mutation;
  mutation.key = keys_.MetadataGroup(file().stem.seq);
  mutation.rule = cache::MergeRule::kMaxLanes;
  mutation.value = stream::EncodePairMetadata(file().stem.seq, to_publish_);
  if (operation_.target.layer == Layer::kCache) {
    for (Part part : {Part::kData, Part::kIndex}) {
      const int64_t length = to_publish_.cache_length[static_cast<int>(part)];
      if (length > 0) steps_.Write("LengthPublish", part, {{"len", length}});
    }
  }
  std::vector<cache::Mutation> mutations;
  mutations.push_back(std::move(mutation));
  agent_->ports_.metadata_cache->Mutate(std::move(mutations), agent_->options_.cache_timeout,
                                        [self = weak_from_this()](Status status) {
                                          if (const auto op = self.lock()) op->OnPublished(status);
                                        });
}

void WriterOperation::OnPublished(const Status& status) {
  if (agent_ == nullptr) return;
  publishing_ = false;
  if (status.ok()) {
    publish_failures_ = 0;
    SendPublication();
  } else {
    agent_->counters_.publish_failed.Add();
    ++publish_failures_;
    publish_dirty_ = true;
    if (!ended_) {
      const Duration delay =
          std::min(agent_->options_.retry_delay * (1 << std::min(publish_failures_, 8)),
                   agent_->options_.retry_delay_max);
      publish_timer_ = agent_->ports_.loop->After(delay, [self = weak_from_this()] {
        const auto op = self.lock();
        if (!op) return;
        op->publish_timer_ = 0;
        op->SendPublication();
      });
    }
  }
  MaybeClose();
}

void WriterOperation::Finish() {
  if (finishing_ || ended_) return;
  finishing_ = true;
  PairMetadata metadata;
  metadata.seal[0] = seal_[0];
  metadata.seal[1] = seal_[1];
  Publish(metadata);
  agent_->Notify(file(), seal_);
  MaybeClose();
}

void WriterOperation::MaybeClose() {
  if (!finishing_ || ended_) return;
  if (publishing_ || publish_dirty_) {
    if (publish_failures_ < agent_->options_.publish_attempts_at_end) return;
    agent_->counters_.publish_given_up.Add();
  }
  SendProgress();
  agent_->counters_.done.Add();
  End(OkStatus());
}

void WriterOperation::End(Status status) {
  if (ended_) return;
  ended_ = true;
  if (const auto value = lock_.Release()) release_ = *value;
  OnIdle();
  agent_->ports_.loop->Cancel(publish_timer_);
  publish_timer_ = 0;
  stream_->Close(std::move(status));
  // The stream must live until what was queued on it has left.
  agent_->Linger(id_);
}

// The release tells the next operation that nothing of this one is under way any more.
void WriterOperation::OnIdle() {
  if (agent_ == nullptr || !ended_ || !release_ || outstanding() > 0) return;
  if (steps_.on()) LogLock("Release");
  WriteLock(*release_);
  release_.reset();
}

void WriterOperation::EndSuperseded(const std::string& how) {
  if (ended_) return;
  v1::CopyReply reply;
  reply.mutable_superseded()->set_term(lock_.winner() ? lock_.winner()->term : 0);
  stream_->Send(reply.SerializeAsString());
  End(AbortedError(Name() + ": " + how));
}

void WriterOperation::WriteLock(const LockValue& value) {
  cache::Mutation mutation;
  mutation.key = LockKey();
  mutation.rule = cache::MergeRule::kMaxBytes;
  mutation.value = stream::EncodeLock(value);
  std::vector<cache::Mutation> mutations;
  mutations.push_back(std::move(mutation));
  // A lost write is noticed when the lock is read again.
  agent_->ports_.metadata_cache->Mutate(std::move(mutations), agent_->options_.cache_timeout,
                                        [](const Status&) {});
}

void WriterOperation::LogLock(std::string_view event) {
  const LockValue& mine = lock_.mine();
  steps_.Write(event, {{"layer", static_cast<int>(operation_.target.layer)},
                       {"term", static_cast<int64_t>(mine.term)},
                       {"owner", static_cast<int64_t>(mine.owner)}});
}

// spec Locks: Look, Await, Seize, Check by what the operation did before; next is what it does now.
void WriterOperation::LogLook(LockCore::State before, const std::optional<LockValue>& seen,
                              const std::optional<LockValue>& write) {
  using State = LockCore::State;
  const bool works = before == State::kHeld || before == State::kUnlocked;
  const bool poisoned =
      seen && seen->SameOperation(lock_.mine()) && seen->state == stream::LockState::kPoisoned;
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
  steps_.Write(event, {{"layer", static_cast<int>(operation_.target.layer)},
                       {"term", static_cast<int64_t>(lock_.mine().term)},
                       {"owner", static_cast<int64_t>(lock_.mine().owner)},
                       {"sawTerm", static_cast<int64_t>(seen ? seen->term : 0)},
                       {"sawOwner", static_cast<int64_t>(seen ? seen->owner : 0)},
                       {"sawState", seen ? static_cast<int>(seen->state) : 0},
                       {"next", next},
                       {"writes", write && !lock_.lost()}});
  if (next == "take") LogLock("Acquire");
}

void WriterOperation::OnLockRead(const std::optional<LockValue>& seen) {
  if (ended_) return;
  const bool was_seized = lock_.seized();
  const LockCore::State before = lock_.state();
  const auto write = lock_.OnRead(agent_->ports_.loop->Now(), seen);
  if (steps_.on()) LogLook(before, seen, write);
  if (write && lock_.lost()) {
    release_ = *write;
  } else if (write) {
    WriteLock(*write);
  }
  if (lock_.seized() && !was_seized) agent_->counters_.seized.Add();
  if (lock_.lost()) {
    agent_->counters_.poisoned.Add();
    EndSuperseded("another operation took its lock");
    return;
  }
  KeepAlive();
  OnLockChanged();
}

void WriterOperation::OnLockUnavailable() {
  if (ended_) return;
  agent_->counters_.lock_unavailable.Add();
  const LockCore::State before = lock_.state();
  lock_.OnUnavailable(agent_->ports_.loop->Now());
  if (lock_.state() == LockCore::State::kUnlocked && before != lock_.state()) LogLock("GoWithout");
  KeepAlive();
  OnLockChanged();
}

}  // namespace tailcast::writer
