// One Copy stream of a WriterAgent. Internal to the module.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/chunk_writer_core.h"
#include "tailcast/stream/file_steps.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/operation.h"
#include "tailcast/writer/writer_agent.h"

namespace tailcast::writer {

// What both layers have in common: the stream, the lock, publication, the heartbeat, the end.
class WriterOperation : public std::enable_shared_from_this<WriterOperation> {
 public:
  WriterOperation(WriterAgent& agent, uint64_t id, std::unique_ptr<rpc::Stream> stream,
                  stream::Operation operation);
  virtual ~WriterOperation() = default;

  void Start();
  void OnMessage(const std::string& message);
  void OnStreamClosed(const Status& status);
  void OnLockRead(const std::optional<stream::LockValue>& seen);
  void OnLockUnavailable();
  // The agent goes away: no callback may touch it any more.
  void Detach();

  LockCore& lock() { return lock_; }
  cache::Key LockKey() const {
    return keys_.Lock(operation_.target.file.stem.seq, static_cast<int>(operation_.target.layer));
  }
  const stream::Operation& operation() const { return operation_; }
  bool ended() const { return ended_; }

 protected:
  virtual void OnStart() = 0;
  virtual Status OnBytes(stream::Part part, int64_t position, const std::string& bytes) = 0;
  virtual Status OnJump(stream::Part part, int64_t position) = 0;
  virtual Status OnSealKnown() = 0;
  virtual void OnLockChanged() = 0;
  virtual int64_t written(stream::Part part) const = 0;
  // Calls to a layer that are under way.
  virtual int outstanding() const = 0;
  // Waits for its own layer. Bytes that wait for others which the reader has yet to send are no
  // reason: should those be lost, the reader must find this one silent and begin again.
  virtual bool busy() const = 0;
  // Writes what may be written. Called once per turn after Kick().
  virtual void Work() = 0;

  // After End: a call came back.
  void OnIdle();
  void Kick();
  void SendOpened(int64_t data_length, int64_t index_length, uint64_t epoch, int64_t window);
  // Tells the reader of a busy operation now and again that it is alive.
  void KeepAlive();
  // If written() changed. Called after Work.
  void SendProgress();
  // Merges into what is to be published, and publishes.
  void Publish(const stream::PairMetadata& metadata);
  // Ends the stream with OK once everything is published, or was tried often enough.
  void Finish();
  // Ends the operation; drops what it holds.
  void End(Status status);
  void EndSuperseded(const std::string& how);
  const stream::FileId& file() const { return operation_.target.file; }
  std::string Name() const { return operation_.target.ToString(); }

  WriterAgent* agent_;  // null after Detach
  const uint64_t id_;
  std::unique_ptr<rpc::Stream> stream_;
  const stream::Operation operation_;
  const stream::KeyMaker keys_;
  const stream::FileSteps steps_;
  LockCore lock_;
  std::optional<int64_t> seal_[stream::kParts];
  bool ended_ = false;

 private:
  struct Heartbeat {
    int64_t as_of_us;
    int64_t length[stream::kParts];
  };
  void CheckHeartbeats();
  void SendPublication();
  void OnPublished(const Status& status);
  void WriteLock(const stream::LockValue& value);
  void LogLook(LockCore::State before, const std::optional<stream::LockValue>& seen,
               const std::optional<stream::LockValue>& write);
  void LogLock(std::string_view event);
  void MaybeClose();

  std::optional<stream::LockValue> release_;  // to be written when nothing is under way any more
  bool kicked_ = false;
  bool opened_ = false;
  stream::PairMetadata to_publish_;
  bool publish_dirty_ = false;
  bool publishing_ = false;
  int publish_failures_ = 0;
  TimerId publish_timer_ = 0;
  bool finishing_ = false;
  MonotonicTime last_sent_;
  int64_t sent_written_[stream::kParts] = {-1, -1};
  std::deque<Heartbeat> heartbeats_;
};

std::shared_ptr<WriterOperation> MakePrimaryOperation(WriterAgent& agent, uint64_t id,
                                                      std::unique_ptr<rpc::Stream> stream,
                                                      stream::Operation operation);
std::shared_ptr<WriterOperation> MakeCacheOperation(WriterAgent& agent, uint64_t id,
                                                    std::unique_ptr<rpc::Stream> stream,
                                                    stream::Operation operation);

}  // namespace tailcast::writer
