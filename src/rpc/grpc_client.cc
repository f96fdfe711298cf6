// The client's side of the driver: calls and streams to servers, and the connections for them.
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "tailcast/rpc/grpc_queue.h"
#include "tailcast/rpc/grpc_rpc.h"
#include "tailcast/rpc/grpc_stream.h"
#include "tailcast/rpc/plain_reason.h"

namespace tailcast::rpc {
namespace internal {
namespace {

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
    id_ = calls_.Add([this] {
      cancelled_ = true;
      context_.TryCancel();
    });
    call_ = stub.PrepareUnaryCall(&context_, method, ToBuffer(std::move(request)), queue_);
    call_->StartCall();
    call_->Finish(&response_, &status_, Out());
  }
  void Done(bool) override {
    Result<std::string> result = status_.ok()
                                     ? Result<std::string>(FromBuffer(response_))
                                     : Result<std::string>(Failure().WithContext(address_));
    loop_.Post(std::move(done_).With(std::move(result)));
    calls_.Remove(id_);
    delete this;
  }

 private:
  // gRPC cancels what comes to a server that ends.
  Status Failure() const {
    if (status_.error_code() == grpc::StatusCode::CANCELLED && !cancelled_) {
      return UnavailableError(std::string(kServerEnds));
    }
    return FromGrpc(status_);
  }

  EventLoop& loop_;
  grpc::CompletionQueue* const queue_;
  Callback<void(Result<std::string>)> done_;
  std::string address_;
  uint64_t id_ = 0;
  std::atomic<bool> cancelled_ = false;  // by us
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
    return MakeClient(address, via, false);
  }
  std::unique_ptr<Client> MakeControlClient(const std::string& address,
                                            const std::string& via) override {
    return MakeClient(address, via, true);
  }

 private:
  std::unique_ptr<Client> MakeClient(const std::string& address, const std::string& via,
                                     bool control) {
    std::shared_ptr<grpc::Channel>& channel = channels_[{address, via, control}];
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
      // Else a ping goes out with what comes in, to find out how large the connection's window is
      // to be: twice the messages of a connection on which little is asked.
      if (control) args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
      channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
    }
    return std::make_unique<GrpcClient>(loop_, side_, channel, address);
  }

  EventLoop& loop_;
  const std::shared_ptr<ClientSide> side_;
  // By address, proxy, and whether it is for control.
  std::map<std::tuple<std::string, std::string, bool>, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace

std::unique_ptr<Connector> MakeConnectorOn(EventLoop& loop, std::shared_ptr<Queue> queue) {
  return std::make_unique<GrpcConnector>(loop, std::move(queue));
}

}  // namespace internal

std::unique_ptr<Connector> MakeGrpcConnector(EventLoop& loop) {
  internal::PrepareGrpc();
  return internal::MakeConnectorOn(loop, std::make_shared<internal::Queue>());
}

}  // namespace tailcast::rpc
