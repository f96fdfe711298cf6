// The server's side of the driver: calls and streams that come in.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tailcast/base/scope.h"
#include "tailcast/rpc/grpc_queue.h"
#include "tailcast/rpc/grpc_rpc.h"
#include "tailcast/rpc/grpc_stream.h"
#include "tailcast/rpc/plain_reason.h"

namespace tailcast::rpc {
namespace internal {
namespace {

// Requests that came in and wait for their handler's turn on the loop: bounded, so that a stalled
// server, or a flood, costs a bounded amount of memory. Any thread.
class Admission {
 public:
  // A request is about to be read.
  bool Enter() {
    if (requests_.fetch_add(1) < kWaitingCallsMax && bytes_.load() < kWaitingBytesMax) return true;
    Leave(0);
    return false;
  }
  // It has been read.
  bool Keep(size_t bytes) {
    const auto more = static_cast<int64_t>(bytes);
    return bytes_.fetch_add(more) + more <= kWaitingBytesMax;
  }
  // It was handled, or is given up.
  void Leave(size_t bytes) {
    bytes_ -= static_cast<int64_t>(bytes);
    --requests_;
  }

 private:
  std::atomic<int64_t> requests_ = 0, bytes_ = 0;
};

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
  Admission admission;
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
  ~UnaryCall() { LeaveQueue(); }
  void Begin() {
    waits_ = server_->admission.Enter();
    if (!waits_) return Reply(TooMuch());
    id_ = server_->calls.Add([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Reply(UnavailableError(std::string(kServerEnds)));
    });
    std::lock_guard lock(server_->mu);
    if (!server_->closed && !answered_) {
      call_->stream.Read(&request_, read_.Out(shared_from_this()));
    }
  }

 private:
  // Answers once; with Unavailable if it is dropped unanswered (the loop is shutting down).
  class Answer {
   public:
    explicit Answer(std::shared_ptr<UnaryCall> call) : call_(std::move(call)) {}
    Answer(Answer&&) noexcept = default;
    Answer& operator=(Answer&&) = delete;
    ~Answer() {
      if (call_ != nullptr) call_->Reply(UnavailableError(std::string(kServerEnds)));
    }
    void Send(Result<std::string> result) {
      std::exchange(call_, nullptr)->Reply(std::move(result));
    }

   private:
    std::shared_ptr<UnaryCall> call_;
  };

  static Status TooMuch() {
    return ResourceExhaustedError("too many calls wait for this process; try again later");
  }
  void OnRead(bool ok) {
    if (!ok) return Reply(InvalidArgumentError("no request"));
    std::string request = FromBuffer(request_);
    request_.Clear();
    request_bytes_ = request.size();
    if (!server_->admission.Keep(request_bytes_)) {
      LeaveQueue();
      return Reply(TooMuch());
    }
    const Scope& scope = server_->scope;
    Responder respond =
        scope.Bind([answer = Answer(shared_from_this())](Result<std::string> result) mutable {
          answer.Send(std::move(result));
        });
    loop_.Post(scope.Bind([self = shared_from_this(), request = std::move(request),
                           respond = std::move(respond)]() mutable {
      self->LeaveQueue();
      self->handler_(std::move(request), std::move(respond));
    }));
  }
  void LeaveQueue() {
    if (std::exchange(waits_, false)) server_->admission.Leave(request_bytes_);
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
  bool waits_ = false;  // for its turn; counted by the server's admission
  size_t request_bytes_ = 0;
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
    if (open_) StartNextRead();
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

class GrpcServer : public Server {
 public:
  GrpcServer(EventLoop& loop, bool control) : loop_(loop), control_(control) {}
  EventLoop& loop() const { return loop_; }
  const std::shared_ptr<Queue>& queue() const { return queue_; }
  ~GrpcServer() override {
    state_->scope.End();
    state_->calls.End();
    // Until then gRPC closes no connection whose peer has not answered a ping that goes out after
    // the answers: one that is closed while its peer sends may lose them.
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kAnswersGoOut);
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
    // Else a ping goes out with what comes in, to find out how large the connection's window is to
    // be.
    if (control_) builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
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
  // How long the end of a server waits for peers that don't answer, whether they wait for anything
  // or not.
  static constexpr std::chrono::milliseconds kAnswersGoOut{1000};

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
  const bool control_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  const std::shared_ptr<ServerState> state_ = std::make_shared<ServerState>();
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace
}  // namespace internal

std::unique_ptr<Server> MakeGrpcServer(EventLoop& loop, bool control) {
  internal::PrepareGrpc();
  return std::make_unique<internal::GrpcServer>(loop, control);
}

std::unique_ptr<Connector> MakeGrpcConnectorBeside(Server& server) {
  auto* const grpc_server = dynamic_cast<internal::GrpcServer*>(&server);
  TAILCAST_CHECK(grpc_server != nullptr, "a server of another driver");
  return internal::MakeConnectorOn(grpc_server->loop(), grpc_server->queue());
}

}  // namespace tailcast::rpc
