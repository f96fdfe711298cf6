#include "tailcast/rpc/grpc_rpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpc/support/log.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"

namespace tailcast::rpc {
namespace {

using grpc::ByteBuffer;

// A buffer that owns the string: no copy.
ByteBuffer ToBuffer(std::string message) {
  auto* owned = new std::string(std::move(message));
  grpc::Slice slice(owned->data(), owned->size(),
                    [](void* p) { delete static_cast<std::string*>(p); }, owned);
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

// What both ends of a stream share: the queue of messages to write, the count of messages that wait in
// the loop's mailbox, and who may still touch gRPC's reactor. The loop thread and gRPC's threads meet
// here under `mu`. Recursive, because gRPC may run a reaction inside the Start call that caused it.
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
    Pump();
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
    Pump();
  }
  void SetCallbacks(Stream::Callbacks callbacks) { callbacks_ = std::move(callbacks); }
  // The owner destroyed its Stream: cancel if open, call nobody any more.
  void Abandon() {
    // A callback may be running that owns the Stream, so the callbacks themselves go later.
    abandoned_ = true;
    std::lock_guard lock(mu_);
    if (open_) CancelNow();
  }

 protected:
  // Reactor side, called with mu_ held.
  virtual void StartNextWrite(const ByteBuffer& message) = 0;
  virtual void StartNextRead() = 0;
  virtual void FinishWriting(const Status& status) = 0;  // all messages have been written
  virtual bool CancelAtOnce() = 0;  // an error end does not wait for the queue
  virtual void CancelNow() = 0;

  void Pump() {
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
      if (open_ && ending_) Pump();
      return;
    }
    Pump();
    if (queued_bytes_ == 0) {
      loop_.Post([self = shared_from_this()] {
        if (!self->abandoned_ && self->callbacks_.on_drained) self->callbacks_.on_drained();
      });
    }
  }

  void MessageRead(ByteBuffer& buffer) {
    const size_t size = buffer.Length();
    std::string message = FromBuffer(buffer);
    buffer.Clear();
    std::lock_guard lock(mu_);
    inbox_bytes_ += size;
    // Posted before the next read starts: that one may be done on another thread at once.
    loop_.Post([self = shared_from_this(), size, message = std::move(message)]() mutable {
      {
        std::lock_guard lock(self->mu_);
        self->inbox_bytes_ -= size;
        if (self->read_waits_ && self->open_ && self->inbox_bytes_ < kStreamInboxBytesMax / 2) {
          self->read_waits_ = false;
          self->StartNextRead();
        }
      }
      if (!self->abandoned_ && self->callbacks_.on_message) {
        self->callbacks_.on_message(std::move(message));
      }
    });
    if (inbox_bytes_ < kStreamInboxBytesMax && open_) {
      StartNextRead();
    } else {
      read_waits_ = true;
    }
  }

  void PostClosed(Status status) {
    loop_.Post([self = shared_from_this(), status = std::move(status)]() mutable {
      if (self->abandoned_ || self->closed_) return;
      self->closed_ = true;
      auto on_closed = std::move(self->callbacks_.on_closed);
      if (on_closed) on_closed(std::move(status));
    });
  }

  EventLoop& loop_;
  std::recursive_mutex mu_;
  bool open_ = true;       // the reactor may be touched
  bool writing_ = false;   // a StartWrite is outstanding
  bool ending_ = false;    // our side has ended; no more sends
  bool finished_ = false;  // FinishWriting was called
  bool read_waits_ = false;
  Status end_status_;
  std::deque<std::string> queue_;
  ByteBuffer write_buffer_;
  size_t written_size_ = 0;
  size_t queued_bytes_ = 0;
  size_t inbox_bytes_ = 0;
  // Loop thread only.
  Stream::Callbacks callbacks_;
  bool abandoned_ = false;
  bool closed_ = false;
};

class GrpcStream : public Stream {
 public:
  explicit GrpcStream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}
  ~GrpcStream() override { state_->Abandon(); }
  bool Send(std::string message) override { return state_->Send(std::move(message)); }
  size_t queued_bytes() const override { return state_->queued_bytes(); }
  void Close(Status status) override { state_->End(std::move(status)); }
  void SetCallbacks(Callbacks callbacks) override { state_->SetCallbacks(std::move(callbacks)); }

 private:
  const std::shared_ptr<StreamState> state_;
};

// ---- client ----

// The calls and streams of a connector that gRPC has not ended yet. Their ends post to the loop, so the
// connector does not go before they have.
class Outstanding {
 public:
  uint64_t Add(std::function<void()> cancel) {
    std::lock_guard lock(mu_);
    cancel_.emplace(next_id_, std::move(cancel));
    return next_id_++;
  }
  // The last thing that a call does.
  void Remove(uint64_t id) {
    std::lock_guard lock(mu_);
    cancel_.erase(id);
    if (cancel_.empty()) none_left_.notify_all();
  }
  void CancelAllAndWait() {
    std::vector<std::function<void()>> all;
    {
      std::lock_guard lock(mu_);
      for (const auto& [id, cancel] : cancel_) all.push_back(cancel);
    }
    for (const auto& cancel : all) cancel();
    std::unique_lock lock(mu_);
    none_left_.wait(lock, [this] { return cancel_.empty(); });
  }

 private:
  std::mutex mu_;
  std::condition_variable none_left_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::function<void()>> cancel_;
};

class ClientStreamState final : public StreamState,
                                public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  ClientStreamState(EventLoop& loop, std::shared_ptr<Outstanding> outstanding)
      : StreamState(loop), outstanding_(std::move(outstanding)) {}
  void Start(grpc::GenericStub& stub, const std::string& method) {
    self_ = shared_from_this();
    std::weak_ptr<StreamState> weak = self_;
    id_ = outstanding_->Add([weak] {
      if (auto self = weak.lock()) static_cast<ClientStreamState&>(*self).Shutdown();
    });
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    std::lock_guard lock(mu_);
    AddHold();  // writes start outside reactions
    StartRead(&read_buffer_);
    StartCall();
  }

 private:
  void StartNextWrite(const ByteBuffer& message) override { StartWrite(&message); }
  void StartNextRead() override { StartRead(&read_buffer_); }
  void FinishWriting(const Status&) override {
    StartWritesDone();
    ReleaseHold();
  }
  bool CancelAtOnce() override {
    CancelNow();
    return true;
  }
  void CancelNow() override {
    context_.TryCancel();
    ReleaseHold();
  }
  void Shutdown() {
    std::lock_guard lock(mu_);
    if (open_) CancelNow();
  }
  // After this no write may be started from the loop.
  void ReleaseHold() {
    ending_ = true;
    if (std::exchange(held_, false)) RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (ok) return MessageRead(read_buffer_);
    std::lock_guard lock(mu_);
    open_ = false;
    ReleaseHold();
  }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnDone(const grpc::Status& status) override {
    {
      std::lock_guard lock(mu_);
      open_ = false;
    }
    PostClosed(FromGrpc(status));
    auto last = std::move(self_);
    const std::shared_ptr<Outstanding> outstanding = outstanding_;
    const uint64_t id = id_;
    last.reset();
    outstanding->Remove(id);
  }

  const std::shared_ptr<Outstanding> outstanding_;
  uint64_t id_ = 0;
  grpc::ClientContext context_;
  ByteBuffer read_buffer_;
  bool held_ = true;
  std::shared_ptr<StreamState> self_;  // until OnDone
};

class GrpcClient : public Client {
 public:
  GrpcClient(EventLoop& loop, std::shared_ptr<Outstanding> outstanding,
             std::shared_ptr<grpc::Channel> channel, std::string address)
      : loop_(loop),
        outstanding_(std::move(outstanding)),
        stub_(std::move(channel)),
        address_(std::move(address)) {}

  void Call(std::string_view method, std::string request, Duration timeout,
            Callback<void(Result<std::string>)> done) override {
    struct Pending {
      grpc::ClientContext context;
      ByteBuffer request, response;
      Callback<void(Result<std::string>)> done;
      uint64_t id = 0;
    };
    auto call = std::make_shared<Pending>();
    call->context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::microseconds(timeout.micros()));
    call->request = ToBuffer(std::move(request));
    call->done = std::move(done);
    call->id = outstanding_->Add([weak = std::weak_ptr<Pending>(call)] {
      if (auto self = weak.lock()) self->context.TryCancel();
    });
    stub_.UnaryCall(&call->context, std::string(method), {}, &call->request, &call->response,
                    [&loop = loop_, outstanding = outstanding_, call,
                     address = address_](grpc::Status status) mutable {
                      Result<std::string> result =
                          status.ok() ? Result<std::string>(FromBuffer(call->response))
                                      : Result<std::string>(FromGrpc(status).WithContext(address));
                      loop.Post([done = std::move(call->done),
                                 result = std::move(result)]() mutable { done(std::move(result)); });
                      const uint64_t id = call->id;
                      call.reset();
                      outstanding->Remove(id);
                    });
  }

  std::unique_ptr<Stream> Open(std::string_view method) override {
    auto state = std::make_shared<ClientStreamState>(loop_, outstanding_);
    state->Start(stub_, std::string(method));
    return std::make_unique<GrpcStream>(std::move(state));
  }

  const std::string& address() const override { return address_; }

 private:
  EventLoop& loop_;
  const std::shared_ptr<Outstanding> outstanding_;
  grpc::GenericStub stub_;
  const std::string address_;
};

class GrpcConnector : public Connector {
 public:
  explicit GrpcConnector(EventLoop& loop) : loop_(loop) {}
  ~GrpcConnector() override { outstanding_->CancelAllAndWait(); }

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
    return std::make_unique<GrpcClient>(loop_, outstanding_, channel, address);
  }

 private:
  EventLoop& loop_;
  const std::shared_ptr<Outstanding> outstanding_ = std::make_shared<Outstanding>();
  std::map<std::pair<std::string, std::string>, std::shared_ptr<grpc::Channel>> channels_;
};

// ---- server ----

using CallHandler = Callback<void(std::string, Responder)>;
using StreamHandler = Callback<void(std::unique_ptr<Stream>)>;

// What lives as long as any call does: handlers and the calls that have not ended. The maps do not
// change once the server has started, so gRPC's threads read them freely.
struct ServerState {
  std::map<std::string, CallHandler, std::less<>> calls;
  std::map<std::string, StreamHandler, std::less<>> streams;
  bool stopped = false;  // loop thread: handlers may not run any more

  std::mutex mu;
  uint64_t next_id = 1;
  std::map<uint64_t, Task> cancel;  // ends each open call, by id

  uint64_t Add(Task task) {
    std::lock_guard lock(mu);
    cancel.emplace(next_id, std::move(task));
    return next_id++;
  }
  void Remove(uint64_t id) {
    Task task;  // destroyed outside the lock: it may own the last reference to a call
    std::lock_guard lock(mu);
    if (auto node = cancel.extract(id)) task = std::move(node.mapped());
  }
};

class UnaryReactor final : public grpc::ServerGenericBidiReactor,
                           public std::enable_shared_from_this<UnaryReactor> {
 public:
  UnaryReactor(EventLoop& loop, std::shared_ptr<ServerState> server, CallHandler& handler)
      : loop_(loop), server_(std::move(server)), handler_(handler) {}
  void Begin() {
    self_ = shared_from_this();
    id_ = server_->Add([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Reply(UnavailableError("the server is shutting down"));
    });
    StartRead(&request_);
  }

 private:
  // Answers once; with Unavailable if it is dropped unanswered (the loop is shutting down).
  class Answer {
   public:
    explicit Answer(std::shared_ptr<UnaryReactor> reactor) : reactor_(std::move(reactor)) {}
    Answer(Answer&&) noexcept = default;
    Answer& operator=(Answer&&) = delete;
    ~Answer() {
      if (reactor_ != nullptr) reactor_->Reply(UnavailableError("the server is shutting down"));
    }
    void Send(Result<std::string> result) { std::exchange(reactor_, nullptr)->Reply(std::move(result)); }

   private:
    std::shared_ptr<UnaryReactor> reactor_;
  };

  void OnReadDone(bool ok) override {
    if (!ok) return Reply(InvalidArgumentError("no request"));
    std::string request = FromBuffer(request_);
    request_.Clear();
    loop_.Post([self = shared_from_this(), request = std::move(request),
                answer = Answer(shared_from_this())]() mutable {
      if (self->server_->stopped) return;
      self->handler_(std::move(request),
                     [answer = std::move(answer)](Result<std::string> result) mutable {
                       answer.Send(std::move(result));
                     });
    });
  }
  void Reply(Result<std::string> result) {
    if (answered_.exchange(true)) return;
    if (!result.ok()) return Finish(ToGrpc(result.status()));
    response_ = ToBuffer(std::move(result).value());
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override {
    server_->Remove(id_);
    auto last = std::move(self_);
  }

  EventLoop& loop_;
  const std::shared_ptr<ServerState> server_;
  CallHandler& handler_;
  uint64_t id_ = 0;
  std::atomic<bool> answered_ = false;
  ByteBuffer request_, response_;
  std::shared_ptr<UnaryReactor> self_;  // until OnDone
};

class ServerStreamState final : public StreamState, public grpc::ServerGenericBidiReactor {
 public:
  ServerStreamState(EventLoop& loop, std::shared_ptr<ServerState> server)
      : StreamState(loop), server_(std::move(server)) {}
  void Begin(StreamHandler& handler) {
    self_ = shared_from_this();
    std::weak_ptr<StreamState> weak = self_;
    id_ = server_->Add([weak] {
      if (auto self = weak.lock()) static_cast<ServerStreamState&>(*self).Shutdown();
    });
    loop_.Post([self = self_, server = server_, &handler] {
      if (!server->stopped) handler(std::make_unique<GrpcStream>(self));
    });
    std::lock_guard lock(mu_);
    StartRead(&read_buffer_);
  }

 private:
  void StartNextWrite(const ByteBuffer& message) override { StartWrite(&message); }
  void StartNextRead() override { StartRead(&read_buffer_); }
  void FinishWriting(const Status& status) override {
    open_ = false;
    Finish(ToGrpc(status));
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
    Pump();
  }

  void OnReadDone(bool ok) override {
    if (ok) return MessageRead(read_buffer_);
    // The client half-closed, or its connection is gone: our side ends with what was queued.
    std::lock_guard lock(mu_);
    if (!ending_) {
      ending_ = true;
      PostClosed(cancelled_ ? CancelledError("the client cancelled") : OkStatus());
    }
    Pump();
  }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override {
    std::lock_guard lock(mu_);
    cancelled_ = true;
    PostClosed(CancelledError("the client cancelled or its connection broke"));
    if (!ending_) {
      ending_ = true;
      end_status_ = CancelledError("cancelled");
    }
    queue_.clear();
    Pump();
  }
  void OnDone() override {
    {
      std::lock_guard lock(mu_);
      open_ = false;
    }
    PostClosed(CancelledError("connection broken"));
    server_->Remove(id_);
    auto last = std::move(self_);
  }

  const std::shared_ptr<ServerState> server_;
  uint64_t id_ = 0;
  ByteBuffer read_buffer_;
  bool cancelled_ = false;
  std::shared_ptr<StreamState> self_;  // until OnDone
};

// gRPC's own lines go to our log, at debug: what matters comes to us as a Status.
void RouteGrpcLog() {
  static const bool done = [] {
    gpr_set_log_function([](gpr_log_func_args* args) {
      static const Logger log("grpc");
      log.Debug(args->file, ":", args->line, ": ", args->message);
    });
    return true;
  }();
  (void)done;
}

class GrpcServer : public Server, public grpc::CallbackGenericService {
 public:
  explicit GrpcServer(EventLoop& loop) : loop_(loop) {}
  ~GrpcServer() override {
    state_->stopped = true;
    std::map<uint64_t, Task> open;
    {
      std::lock_guard lock(state_->mu);
      open.swap(state_->cancel);
    }
    for (auto& [id, cancel] : open) cancel();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
    }
  }

  void Handle(std::string_view method, CallHandler handler) override {
    TAILCAST_CHECK(server_ == nullptr, "Handle before Start");
    state_->calls.emplace(method, std::move(handler));
  }
  void HandleStream(std::string_view method, StreamHandler handler) override {
    TAILCAST_CHECK(server_ == nullptr, "HandleStream before Start");
    state_->streams.emplace(method, std::move(handler));
  }

  Result<std::string> Start(const std::string& listen_address) override {
    const size_t colon = listen_address.rfind(':');
    if (colon == std::string::npos || colon + 1 == listen_address.size()) {
      return InvalidArgumentError("listen address '" + listen_address +
                                  "' is not host:port (port 0 takes any free one)");
    }
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(listen_address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(this);
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
    return listen_address.substr(0, colon) + ":" + std::to_string(port);
  }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (auto call = state_->calls.find(context->method()); call != state_->calls.end()) {
      auto shared = std::make_shared<UnaryReactor>(loop_, state_, call->second);
      UnaryReactor* reactor = shared.get();
      reactor->Begin();
      return reactor;
    }
    if (auto stream = state_->streams.find(context->method()); stream != state_->streams.end()) {
      auto shared = std::make_shared<ServerStreamState>(loop_, state_);
      ServerStreamState* reactor = shared.get();
      reactor->Begin(stream->second);
      return reactor;
    }
    return grpc::CallbackGenericService::CreateReactor(context);
  }

  EventLoop& loop_;
  const std::shared_ptr<ServerState> state_ = std::make_shared<ServerState>();
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Connector> MakeGrpcConnector(EventLoop& loop) {
  RouteGrpcLog();
  return std::make_unique<GrpcConnector>(loop);
}
std::unique_ptr<Server> MakeGrpcServer(EventLoop& loop) {
  RouteGrpcLog();
  return std::make_unique<GrpcServer>(loop);
}

}  // namespace tailcast::rpc
