// A bidirectional stream over gRPC, of either side. Internal to the module.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tailcast/base/scope.h"
#include "tailcast/rpc/grpc_queue.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::rpc::internal {

// What both ends of a stream share: the queue of messages to write, the count of messages that wait
// in the loop's mailbox, and whether gRPC may still be asked for anything. The loop thread and the
// queue's thread meet here under `mu`.
class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  explicit StreamState(EventLoop& loop) : loop_(loop) {}
  virtual ~StreamState() = default;

  // Loop thread.
  bool Send(std::string message) {
    std::lock_guard lock(mu_);
    if (!open_ || ending_) return false;
    queued_bytes_ += message.size();
    queue_.push_back(std::move(message));
    WriteNext();
    return true;
  }
  size_t queued_bytes() {
    std::lock_guard lock(mu_);
    return queued_bytes_;
  }
  void End(Status status) {
    std::lock_guard lock(mu_);
    if (!open_ || ending_) return;
    ending_ = true;
    end_status_ = std::move(status);
    if (!end_status_.ok() && CancelAtOnce()) return;
    WriteNext();
  }
  void SetCallbacks(Stream::Callbacks callbacks) { callbacks_ = std::move(callbacks); }
  // The owner destroyed its Stream: cancel if open, call nobody any more.
  void Abandon() {
    // A callback may be running that owns the Stream, so the callbacks themselves go later.
    owner_.End();
    std::lock_guard lock(mu_);
    if (open_) CancelNow();
  }

 protected:
  // Called with mu_ held.
  virtual void StartNextWrite(const ByteBuffer& message) = 0;
  virtual void StartNextRead() = 0;
  virtual void FinishWriting(const Status& status) = 0;  // all messages have been written
  virtual bool CancelAtOnce() = 0;                       // an error end does not wait for the queue
  virtual void CancelNow() = 0;

  void WriteNext() {
    if (!open_ || writing_) return;
    if (!queue_.empty()) {
      writing_ = true;
      written_size_ = queue_.front().size();
      write_buffer_ = ToBuffer(std::move(queue_.front()));
      queue_.pop_front();
      StartNextWrite(write_buffer_);
    } else if (ending_ && !finished_) {
      finished_ = true;
      FinishWriting(end_status_);
    }
  }

  void WriteDone(bool ok) {
    std::lock_guard lock(mu_);
    writing_ = false;
    queued_bytes_ -= written_size_;
    if (!ok) {
      queue_.clear();
      queued_bytes_ = 0;
      if (open_ && ending_) WriteNext();
      return;
    }
    WriteNext();
    if (queued_bytes_ == 0) {
      loop_.Post(owner_.Bind([self = shared_from_this()] {
        if (self->callbacks_.on_drained) self->callbacks_.on_drained();
      }));
    }
  }

  void MessageRead(ByteBuffer& buffer) {
    const size_t size = buffer.Length();
    std::string message = FromBuffer(buffer);
    buffer.Clear();
    std::lock_guard lock(mu_);
    inbox_bytes_ += size;
    // Posted before the next read starts: that one may be done on another thread at once.
    loop_.Post(
        scope_.Bind([self = shared_from_this(), size, message = std::move(message)]() mutable {
          {
            std::lock_guard lock(self->mu_);
            self->inbox_bytes_ -= size;
            if (self->read_waits_ && self->open_ && self->inbox_bytes_ < kStreamInboxBytesMax / 2) {
              self->read_waits_ = false;
              self->StartNextRead();
            }
          }
          if (!self->owner_.ended() && self->callbacks_.on_message) {
            self->callbacks_.on_message(std::move(message));
          }
        }));
    if (open_ && (inbox_bytes_ < kStreamInboxBytesMax || cancelled_)) {
      StartNextRead();
    } else {
      read_waits_ = true;
    }
  }

  void PostClosed(Status status) {
    loop_.Post(owner_.Bind([self = shared_from_this(), status = std::move(status)]() mutable {
      if (auto on_closed = std::exchange(self->callbacks_.on_closed, nullptr)) {
        on_closed(std::move(status));
      }
    }));
  }

  EventLoop& loop_;
  std::mutex mu_;
  bool open_ = true;       // gRPC may be asked for more
  bool writing_ = false;   // a write is out
  bool ending_ = false;    // our side has ended; no more sends
  bool finished_ = false;  // FinishWriting was called
  bool read_waits_ = false;
  bool cancelled_ = false;  // reads go on, to see the end
  Status end_status_;
  std::deque<std::string> queue_;
  ByteBuffer write_buffer_;
  size_t written_size_ = 0;
  size_t queued_bytes_ = 0;
  size_t inbox_bytes_ = 0;
  // Loop thread only.
  Stream::Callbacks callbacks_;
  Scope owner_;  // ends when the owner destroys its Stream
  Scope scope_;
};

class GrpcStream : public Stream {
 public:
  // `keep`: what the state needs.
  explicit GrpcStream(std::shared_ptr<StreamState> state, std::shared_ptr<void> keep = nullptr)
      : keep_(std::move(keep)), state_(std::move(state)) {}
  ~GrpcStream() override { state_->Abandon(); }
  bool Send(std::string message) override { return state_->Send(std::move(message)); }
  size_t queued_bytes() const override { return state_->queued_bytes(); }
  void Close(Status status) override { state_->End(std::move(status)); }
  void SetCallbacks(Callbacks callbacks) override { state_->SetCallbacks(std::move(callbacks)); }

 private:
  const std::shared_ptr<void> keep_;
  const std::shared_ptr<StreamState> state_;
};

}  // namespace tailcast::rpc::internal
