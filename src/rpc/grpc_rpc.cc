#include "tailcast/rpc/grpc_rpc.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"

namespace tailcast::rpc {
namespace {

using grpc::ByteBuffer;

// What we give to gRPC and get back from it on another thread says so to ThreadSanitizer, which
// does not see the locks of a library that was built without it.
#if defined(__SANITIZE_THREAD__)
void Give(void* object) { __tsan_release(object); }
void Got(void* object) { __tsan_acquire(object); }
#else
void Give(void*) {}
void Got(void*) {}
#endif

// A buffer that owns the string: no copy.
ByteBuffer ToBuffer(std::string message) {
  auto* owned = new std::string(std::move(message));
  Give(owned);
  const auto drop = [](void* string) {
    Got(string);
    delete static_cast<std::string*>(string);
  };
  grpc::Slice slice(owned->data(), owned->size(), drop, owned);
  return ByteBuffer(&slice, 1);
}

std::string FromBuffer(const ByteBuffer& buffer) {
  std::string message;
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return message;
  message.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    message.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return message;
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  StatusCode code = static_cast<StatusCode>(status.error_code());
  if (StatusCodeName(code) == "Unknown") code = StatusCode::kInternal;
  return Status(code, status.error_message());
}

// ---- completions ----

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
  Queue()
      : thread_([this] {
          pthread_setname_np(pthread_self(), "rpc");
          void* tag;
          bool ok;
          while (queue_->Next(&tag, &ok)) Tag::Complete(tag, ok);
        }) {}
  // No tag is out. Not on the queue's thread.
  ~Queue() {
    queue_->Shutdown();
    thread_.join();
  }
  grpc::CompletionQueue* get() { return queue_.get(); }
  grpc::ServerCompletionQueue* server_queue() { return queue_.get(); }
  // Of the one server that may use the queue.
  grpc::ServerBuilder& builder() { return builder_; }

 private:
  grpc::ServerBuilder builder_;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue_ = builder_.AddCompletionQueue();
  std::thread thread_;
};

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

// ---- client ----

// What a connector's clients and streams need; they may outlive it.
struct ClientSide {
  explicit ClientSide(std::shared_ptr<Queue> q) : queue(std::move(q)) {}
  ~ClientSide() { EndCalls(); }
  void EndCalls() {
    calls.CancelAll();
    calls.WaitForTags();
  }
  const std::shared_ptr<Queue> queue;
  Calls calls;
};

class ClientStreamState final : public StreamState {
 public:
  ClientStreamState(EventLoop& loop, ClientSide& side) : StreamState(loop), side_(side) {}
  void Start(grpc::GenericStub& stub, const std::string& method) {
    id_ = side_.calls.Add([weak = weak_from_this()] {
      if (auto self = weak.lock()) static_cast<ClientStreamState&>(*self).Shutdown();
    });
    std::lock_guard lock(mu_);
    call_ = stub.PrepareCall(&context_, method, side_.queue->get());
    writing_ = true;  // not before the call has started
    call_->StartCall(started_.Out(Self()));
  }

 private:
  std::shared_ptr<ClientStreamState> Self() {
    return std::static_pointer_cast<ClientStreamState>(shared_from_this());
  }
  void StartNextWrite(const ByteBuffer& message) override {
    call_->Write(message, written_.Out(Self()));
  }
  void StartNextRead() override { call_->Read(&read_buffer_, read_.Out(Self())); }
  void FinishWriting(const Status&) override { call_->WritesDone(writes_done_.Out(Self())); }
  bool CancelAtOnce() override {
    CancelNow();
    return true;
  }
  void CancelNow() override {
    cancelled_ = ending_ = finished_ = true;
    context_.TryCancel();
    if (std::exchange(read_waits_, false)) StartNextRead();  // it will tell of the end
  }
  void Shutdown() {
    std::lock_guard lock(mu_);
    if (open_) CancelNow();
  }

  void OnStarted(bool ok) {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (!ok) return Finish();
    StartNextRead();
    WriteNext();
  }
  void OnRead(bool ok) {
    if (ok) return MessageRead(read_buffer_);
    std::lock_guard lock(mu_);
    Finish();
  }
  // The server has ended the call, or it failed. Writes fail on their own.
  void Finish() {
    open_ = false;
    ending_ = true;
    call_->Finish(&status_, ended_.Out(Self()));
  }
  void OnEnded(bool) {
    PostClosed(FromGrpc(status_));
    side_.calls.Remove(id_);
  }
  void OnWritten(bool ok) { WriteDone(ok); }
  void OnWritesDone(bool) {}

  ClientSide& side_;  // there until the last tag is back
  uint64_t id_ = 0;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  ByteBuffer read_buffer_;
  grpc::Status status_;
  MemberTag<ClientStreamState> started_{side_.calls, &ClientStreamState::OnStarted};
  MemberTag<ClientStreamState> read_{side_.calls, &ClientStreamState::OnRead};
  MemberTag<ClientStreamState> written_{side_.calls, &ClientStreamState::OnWritten};
  MemberTag<ClientStreamState> writes_done_{side_.calls, &ClientStreamState::OnWritesDone};
  MemberTag<ClientStreamState> ended_{side_.calls, &ClientStreamState::OnEnded};
};

class ClientCall final : public Tag {
 public:
  ClientCall(EventLoop& loop, ClientSide& side, Callback<void(Result<std::string>)> done)
      : Tag(side.calls), loop_(loop), queue_(side.queue->get()), done_(std::move(done)) {}
  // Owns itself from here on.
  void Start(grpc::GenericStub& stub, const std::string& method, std::string request,
             Duration timeout, std::string address) {
    address_ = std::move(address);
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::microseconds(timeout.micros()));
    id_ = calls_.Add([this] { context_.TryCancel(); });
    call_ = stub.PrepareUnaryCall(&context_, method, ToBuffer(std::move(request)), queue_);
    call_->StartCall();
    call_->Finish(&response_, &status_, Out());
  }
  void Done(bool) override {
    Result<std::string> result = status_.ok()
                                     ? Result<std::string>(FromBuffer(response_))
                                     : Result<std::string>(FromGrpc(status_).WithContext(address_));
    loop_.Post(std::move(done_).With(std::move(result)));
    calls_.Remove(id_);
    delete this;
  }

 private:
  EventLoop& loop_;
  grpc::CompletionQueue* const queue_;
  Callback<void(Result<std::string>)> done_;
  std::string address_;
  uint64_t id_ = 0;
  grpc::ClientContext context_;
  ByteBuffer response_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<ByteBuffer>> call_;
};

class GrpcClient : public Client {
 public:
  GrpcClient(EventLoop& loop, std::shared_ptr<ClientSide> side,
             std::shared_ptr<grpc::Channel> channel, std::string address)
      : loop_(loop),
        side_(std::move(side)),
        stub_(std::move(channel)),
        address_(std::move(address)) {}

  void Call(std::string_view method, std::string request, Duration timeout,
            Callback<void(Result<std::string>)> done) override {
    (new ClientCall(loop_, *side_, std::move(done)))
        ->Start(stub_, std::string(method), std::move(request), timeout, address_);
  }

  std::unique_ptr<Stream> Open(std::string_view method) override {
    auto state = std::make_shared<ClientStreamState>(loop_, *side_);
    state->Start(stub_, std::string(method));
    return std::make_unique<GrpcStream>(std::move(state), side_);
  }

  const std::string& address() const override { return address_; }

 private:
  EventLoop& loop_;
  const std::shared_ptr<ClientSide> side_;
  grpc::GenericStub stub_;
  const std::string address_;
};

class GrpcConnector : public Connector {
 public:
  GrpcConnector(EventLoop& loop, std::shared_ptr<Queue> queue)
      : loop_(loop), side_(std::make_shared<ClientSide>(std::move(queue))) {}
  ~GrpcConnector() override { side_->EndCalls(); }

  std::unique_ptr<Client> MakeClient(const std::string& address, const std::string& via) override {
    std::shared_ptr<grpc::Channel>& channel = channels_[{address, via}];
    if (channel == nullptr) {
      grpc::ChannelArguments args;
      args.SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
      args.SetMaxSendMessageSize(static_cast<int>(kMessageBytesMax));
      // The environment's proxy is for the web, not for us.
      args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, via.empty() ? 0 : 1);
      if (!via.empty()) args.SetString(GRPC_ARG_HTTP_PROXY, "http://" + via);
      // Processes restart within a second, so do our attempts to reach them.
      args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
      args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
      args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
      // A silent peer (its host is gone, its process stopped) is given up after this.
      args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
      args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
      args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
      // A window for 40 MB/s over a round trip of 220 ms, from the first byte on.
      args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 20);
      channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
    }
    return std::make_unique<GrpcClient>(loop_, side_, channel, address);
  }

 private:
  EventLoop& loop_;
  const std::shared_ptr<ClientSide> side_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<grpc::Channel>> channels_;
};

// ---- server ----

using CallHandler = Callback<void(std::string, Responder)>;
using StreamHandler = Callback<void(std::unique_ptr<Stream>)>;

// What lives as long as any call does: handlers and the calls that have not ended. The maps do not
// change once the server has started, so the queue's thread reads them freely.
struct ServerState {
  std::map<std::string, CallHandler, std::less<>> call_handlers;
  std::map<std::string, StreamHandler, std::less<>> stream_handlers;

  std::mutex mu;
  bool closed = false;  // gRPC may not be asked for more
  Calls calls;
  Scope scope;  // ends with the server: handlers may not run any more
};

// gRPC's side of a call that came in, and the news that it is over.
class ServerCall final : public Tag {
 public:
  explicit ServerCall(Calls& calls) : Tag(calls) { context.AsyncNotifyWhenDone(Address()); }
  // It has come in: the news will come too.
  void Begin(std::shared_ptr<ServerCall> self) {
    self_ = std::move(self);
    calls_.TagGoesOut();
  }
  // Before the news: on the queue's thread, in the turn of Begin.
  void SetOnOver(std::function<void(bool cancelled)> on_over) { on_over_ = std::move(on_over); }
  void Done(bool) override {
    const std::shared_ptr<ServerCall> self = std::move(self_);
    if (auto on_over = std::move(on_over_)) on_over(context.IsCancelled());
  }

  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream{&context};

 private:
  std::shared_ptr<ServerCall> self_;
  std::function<void(bool)> on_over_;
};

class UnaryCall final : public std::enable_shared_from_this<UnaryCall> {
 public:
  UnaryCall(EventLoop& loop, std::shared_ptr<ServerState> server, CallHandler& handler,
            std::shared_ptr<ServerCall> call)
      : loop_(loop), server_(std::move(server)), handler_(handler), call_(std::move(call)) {}
  void Begin() {
    id_ = server_->calls.Add([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Reply(UnavailableError("the server is shutting down"));
    });
    std::lock_guard lock(server_->mu);
    if (!server_->closed) call_->stream.Read(&request_, read_.Out(shared_from_this()));
  }

 private:
  // Answers once; with Unavailable if it is dropped unanswered (the loop is shutting down).
  class Answer {
   public:
    explicit Answer(std::shared_ptr<UnaryCall> call) : call_(std::move(call)) {}
    Answer(Answer&&) noexcept = default;
    Answer& operator=(Answer&&) = delete;
    ~Answer() {
      if (call_ != nullptr) call_->Reply(UnavailableError("the server is shutting down"));
    }
    void Send(Result<std::string> result) {
      std::exchange(call_, nullptr)->Reply(std::move(result));
    }

   private:
    std::shared_ptr<UnaryCall> call_;
  };

  void OnRead(bool ok) {
    if (!ok) return Reply(InvalidArgumentError("no request"));
    std::string request = FromBuffer(request_);
    request_.Clear();
    const Scope& scope = server_->scope;
    Responder respond =
        scope.Bind([answer = Answer(shared_from_this())](Result<std::string> result) mutable {
          answer.Send(std::move(result));
        });
    loop_.Post(scope.Bind([self = shared_from_this(), request = std::move(request),
                           respond = std::move(respond)]() mutable {
      self->handler_(std::move(request), std::move(respond));
    }));
  }
  void Reply(Result<std::string> result) {
    if (answered_.exchange(true)) return;
    std::lock_guard lock(server_->mu);
    if (server_->closed) return;
    if (!result.ok()) {
      call_->stream.Finish(ToGrpc(result.status()), finished_.Out(shared_from_this()));
      return;
    }
    response_ = ToBuffer(std::move(result).value());
    call_->stream.WriteAndFinish(response_, grpc::WriteOptions(), grpc::Status::OK,
                                 finished_.Out(shared_from_this()));
  }
  void OnFinished(bool) { server_->calls.Remove(id_); }

  EventLoop& loop_;
  const std::shared_ptr<ServerState> server_;
  CallHandler& handler_;
  const std::shared_ptr<ServerCall> call_;
  uint64_t id_ = 0;
  std::atomic<bool> answered_ = false;
  ByteBuffer request_, response_;
  MemberTag<UnaryCall> read_{server_->calls, &UnaryCall::OnRead};
  MemberTag<UnaryCall> finished_{server_->calls, &UnaryCall::OnFinished};
};

class ServerStreamState final : public StreamState {
 public:
  ServerStreamState(EventLoop& loop, std::shared_ptr<ServerState> server,
                    std::shared_ptr<ServerCall> call)
      : StreamState(loop), server_(std::move(server)), call_(std::move(call)) {}
  void Begin(StreamHandler& handler) {
    const std::shared_ptr<ServerStreamState> self = Self();
    call_->SetOnOver([self](bool cancelled) { self->OnOver(cancelled); });
    id_ = server_->calls.Add([weak = weak_from_this()] {
      if (auto state = weak.lock()) static_cast<ServerStreamState&>(*state).Shutdown();
    });
    loop_.Post(
        server_->scope.Bind([self, &handler] { handler(std::make_unique<GrpcStream>(self)); }));
    std::lock_guard lock(mu_);
    StartNextRead();
  }

 private:
  std::shared_ptr<ServerStreamState> Self() {
    return std::static_pointer_cast<ServerStreamState>(shared_from_this());
  }
  template <typename Start>
  void UnlessClosed(Start start) {
    std::lock_guard lock(server_->mu);
    if (!server_->closed) start();
  }
  void StartNextWrite(const ByteBuffer& message) override {
    UnlessClosed([&] { call_->stream.Write(message, written_.Out(Self())); });
  }
  void StartNextRead() override {
    UnlessClosed([&] { call_->stream.Read(&read_buffer_, read_.Out(Self())); });
  }
  void FinishWriting(const Status& status) override {
    open_ = false;
    UnlessClosed([&] { call_->stream.Finish(ToGrpc(status), finished_op_.Out(Self())); });
    PostClosed(status);
  }
  void Shutdown() {
    std::lock_guard lock(mu_);
    if (open_) CancelNow();
  }
  bool CancelAtOnce() override { return false; }  // the client shall get what was queued
  void CancelNow() override {
    if (!ending_) {
      ending_ = true;
      end_status_ = CancelledError("the peer dropped the stream");
    }
    queue_.clear();
    WriteNext();
  }

  void OnRead(bool ok) {
    if (ok) return MessageRead(read_buffer_);
    // The client half-closed, or its connection is gone: our side ends with what was queued.
    std::lock_guard lock(mu_);
    if (!ending_) {
      ending_ = true;
      PostClosed(cancelled_ ? CancelledError("the client cancelled") : OkStatus());
    }
    WriteNext();
  }
  void OnWritten(bool ok) { WriteDone(ok); }
  void OnFinished(bool) {}
  void OnOver(bool cancelled) {
    {
      std::lock_guard lock(mu_);
      if (cancelled) {
        cancelled_ = true;
        PostClosed(CancelledError("the client cancelled or its connection broke"));
        if (!ending_) {
          ending_ = true;
          end_status_ = CancelledError("cancelled");
        }
        queue_.clear();
        WriteNext();
      }
    }
    server_->calls.Remove(id_);
  }

  const std::shared_ptr<ServerState> server_;
  const std::shared_ptr<ServerCall> call_;
  uint64_t id_ = 0;
  ByteBuffer read_buffer_;
  MemberTag<ServerStreamState> read_{server_->calls, &ServerStreamState::OnRead};
  MemberTag<ServerStreamState> written_{server_->calls, &ServerStreamState::OnWritten};
  MemberTag<ServerStreamState> finished_op_{server_->calls, &ServerStreamState::OnFinished};
};

// Once in a process. gRPC's own lines go to our log, at debug: what matters comes to us as a
// Status. And its locks, Abseil's, shall not look for deadlocks, as those of a library built
// without NDEBUG (Debian's) do with a graph under one lock of the whole process.
void PrepareGrpc() {
  static const bool done = [] {
    gpr_set_log_function([](gpr_log_func_args* args) {
      static const Logger log("grpc");
      log.Debug(args->file, ":", args->line, ": ", args->message);
    });
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    return true;
  }();
  (void)done;
}

class GrpcServer : public Server {
 public:
  explicit GrpcServer(EventLoop& loop) : loop_(loop) {}
  EventLoop& loop() const { return loop_; }
  const std::shared_ptr<Queue>& queue() const { return queue_; }
  ~GrpcServer() override {
    state_->scope.End();
    state_->calls.CancelAll();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    {
      std::lock_guard lock(state_->mu);
      state_->closed = true;
    }
    state_->calls.WaitForTags();
  }

  void Handle(std::string_view method, CallHandler handler) override {
    TAILCAST_CHECK(server_ == nullptr, "Handle before Start");
    state_->call_handlers.emplace(method, std::move(handler));
  }
  void HandleStream(std::string_view method, StreamHandler handler) override {
    TAILCAST_CHECK(server_ == nullptr, "HandleStream before Start");
    state_->stream_handlers.emplace(method, std::move(handler));
  }

  Result<std::string> Start(const std::string& listen_address) override {
    const size_t colon = listen_address.rfind(':');
    if (colon == std::string::npos || colon + 1 == listen_address.size()) {
      return InvalidArgumentError("listen address '" + listen_address +
                                  "' is not host:port (port 0 takes any free one)");
    }
    int port = 0;
    grpc::ServerBuilder& builder = queue_->builder();
    builder.AddListeningPort(listen_address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterAsyncGenericService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
    builder.SetMaxSendMessageSize(static_cast<int>(kMessageBytesMax));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 20);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      server_ = nullptr;
      return FailedPreconditionError(
          "can't listen at " + listen_address +
          ": the port is in use or the address is not of this host; choose another, or port 0");
    }
    for (int i = 0; i < kAccepting; ++i) Accept();
    return listen_address.substr(0, colon) + ":" + std::to_string(port);
  }

 private:
  static constexpr int kAccepting = 16;  // calls that may come in at once

  struct Accepting final : Tag {
    explicit Accepting(GrpcServer* s) : Tag(s->state_->calls), server(s) {}
    void Done(bool ok) override {
      if (ok) server->OnCall(std::move(call));
      delete this;
    }
    GrpcServer* const server;
    std::shared_ptr<ServerCall> call = std::make_shared<ServerCall>(calls_);
  };
  struct Refusing final : Tag {
    Refusing(Calls& calls, std::shared_ptr<ServerCall> c) : Tag(calls), call(std::move(c)) {}
    void Done(bool) override { delete this; }
    const std::shared_ptr<ServerCall> call;
  };

  void Accept() {
    std::lock_guard lock(state_->mu);
    if (state_->closed) return;
    auto* accepting = new Accepting(this);
    ServerCall& call = *accepting->call;
    service_.RequestCall(&call.context, &call.stream, queue_->get(), queue_->server_queue(),
                         accepting->Out());
  }
  // On the queue's thread.
  void OnCall(std::shared_ptr<ServerCall> call) {
    Accept();
    call->Begin(call);
    const std::string& method = call->context.method();
    if (auto handler = state_->call_handlers.find(method); handler != state_->call_handlers.end()) {
      std::make_shared<UnaryCall>(loop_, state_, handler->second, std::move(call))->Begin();
    } else if (auto stream = state_->stream_handlers.find(method);
               stream != state_->stream_handlers.end()) {
      std::make_shared<ServerStreamState>(loop_, state_, std::move(call))->Begin(stream->second);
    } else {
      std::lock_guard lock(state_->mu);
      if (state_->closed) return;
      ServerCall& refused = *call;
      const grpc::Status status(grpc::StatusCode::UNIMPLEMENTED, "there is no method " + method);
      refused.stream.Finish(status, (new Refusing(state_->calls, std::move(call)))->Out());
    }
  }

  EventLoop& loop_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  const std::shared_ptr<ServerState> state_ = std::make_shared<ServerState>();
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Connector> MakeGrpcConnector(EventLoop& loop) {
  PrepareGrpc();
  return std::make_unique<GrpcConnector>(loop, std::make_shared<Queue>());
}
std::unique_ptr<Server> MakeGrpcServer(EventLoop& loop) {
  PrepareGrpc();
  return std::make_unique<GrpcServer>(loop);
}
std::unique_ptr<Connector> MakeGrpcConnectorBeside(Server& server) {
  auto* const grpc_server = dynamic_cast<GrpcServer*>(&server);
  TAILCAST_CHECK(grpc_server != nullptr, "a server of another driver");
  return std::make_unique<GrpcConnector>(grpc_server->loop(), grpc_server->queue());
}

}  // namespace tailcast::rpc
