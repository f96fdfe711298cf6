// What the client's and the server's side of the driver share: tags, the queue on which they come
// back, bytes and statuses of gRPC. Internal to the module.
#pragma once

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::rpc::internal {

using grpc::ByteBuffer;

// What we give to gRPC and get back from it on another thread says so to ThreadSanitizer, which
// does not see the locks of a library that was built without it.
void Give(void* object);
void Got(void* object);

// A buffer that owns the string: no copy.
ByteBuffer ToBuffer(std::string message);
std::string FromBuffer(const ByteBuffer& buffer);
grpc::Status ToGrpc(const Status& status);
Status FromGrpc(const grpc::Status& status);

// Before anything else of gRPC; does something once in a process.
void PrepareGrpc();

// The open calls of a connector or of a server, and the number of their tags that gRPC has.
// All of them post to the loop, so a connector or a server goes when none is left.
class Calls {
 public:
  // `cancel` runs under a lock that Remove takes too: never of a call that has been removed. A call
  // goes with the last that holds it (a tag that gRPC has, an answer, the user's stream), on
  // whichever thread that is, perhaps without having been removed. So its `cancel` holds it weakly:
  // a scope, which ends on its loop, can't tell whether the call is still there.
  uint64_t Add(std::function<void()> cancel) {
    std::lock_guard lock(mu_);
    if (ended_) cancel();
    cancel_.emplace(next_id_, std::move(cancel));
    return next_id_++;
  }
  void Remove(uint64_t id) {
    std::lock_guard lock(mu_);
    cancel_.erase(id);
  }
  void CancelAll() {
    std::lock_guard lock(mu_);
    for (const auto& [id, cancel] : cancel_) cancel();
  }
  // Cancels all, and each that is added later. That is not removed before Add has returned: only
  // what runs on the queue's thread adds by then.
  void End() {
    std::lock_guard lock(mu_);
    ended_ = true;
    for (const auto& [id, cancel] : cancel_) cancel();
  }
  void TagGoesOut() {
    std::lock_guard lock(tags_mu_);
    ++tags_out_;
  }
  void TagIsBack() {
    std::lock_guard lock(tags_mu_);
    if (--tags_out_ == 0) none_left_.notify_all();
  }
  // Nobody but completions hands out tags any more.
  void WaitForTags() {
    std::unique_lock lock(tags_mu_);
    none_left_.wait(lock, [this] { return tags_out_ == 0; });
  }

 private:
  std::mutex mu_;
  bool ended_ = false;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::function<void()>> cancel_;
  std::mutex tags_mu_;  // taken last
  std::condition_variable none_left_;
  int64_t tags_out_ = 0;
};

// What is handed to gRPC with each thing asked of it. The queue's thread says how that went.
class Tag {
 public:
  explicit Tag(Calls& calls) : calls_(calls) {}
  virtual ~Tag() = default;
  // What gRPC gets, and hands to the queue's thread. The last thing before a call to gRPC starts:
  // Done may run at once and looks at what was written before.
  void* Out() {
    calls_.TagGoesOut();
    return Address();
  }
  static void Complete(void* address, bool ok) {
    Got(address);
    auto* const tag = static_cast<Tag*>(address);
    Calls& calls = tag->calls_;
    tag->Done(ok);
    calls.TagIsBack();
  }

 protected:
  void* Address() {
    Give(this);
    return this;
  }
  // `ok`: as gRPC defines it for each kind. May destroy the tag.
  virtual void Done(bool ok) = 0;

  Calls& calls_;
};

// A tag that is a member of an object, which lives while the tag is out: at most once at a time.
template <typename Owner>
class MemberTag final : public Tag {
 public:
  MemberTag(Calls& calls, void (Owner::*done)(bool)) : Tag(calls), done_(done) {}
  // The tag to give to gRPC.
  void* Out(std::shared_ptr<Owner> owner) {
    TAILCAST_CHECK(owner_ == nullptr, "a tag is out twice");
    owner_ = std::move(owner);
    return Tag::Out();
  }
  void Done(bool ok) override {
    const std::shared_ptr<Owner> owner = std::move(owner_);
    ((*owner).*done_)(ok);
  }

 private:
  void (Owner::*const done_)(bool);
  std::shared_ptr<Owner> owner_;
};

// Where tags come back: a queue with one thread, that a server and a connector may share. With
// gRPC's own threads (its callback API) each call costs three times as many changes of thread, and
// of two queues in a process each thread finds events of the other's and has to wake it.
class Queue {
 public:
  Queue();
  // No tag is out. Not on the queue's thread.
  ~Queue();
  grpc::CompletionQueue* get() { return queue_.get(); }
  grpc::ServerCompletionQueue* server_queue() { return queue_.get(); }
  // Of the one server that may use the queue.
  grpc::ServerBuilder& builder() { return builder_; }

 private:
  grpc::ServerBuilder builder_;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue_ = builder_.AddCompletionQueue();
  std::thread thread_;
};

// A connector whose completions come back on `queue`.
std::unique_ptr<Connector> MakeConnectorOn(EventLoop& loop, std::shared_ptr<Queue> queue);

}  // namespace tailcast::rpc::internal
