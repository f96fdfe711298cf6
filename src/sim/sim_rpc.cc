#include "tailcast/sim/sim_rpc.h"

#include <deque>
#include <optional>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/sim/connection.h"

namespace tailcast::sim {

using rpc::Responder;
using rpc::Stream;

class SimServer : public rpc::Server {
 public:
  SimServer(Network& network, SimLoop& loop, const std::string& host)
      : network_(network), end_(network.Join(loop, host)) {}
  ~SimServer() override { network_.RemoveServer(this); }

  void Handle(std::string_view method, Callback<void(std::string, Responder)> handler) override {
    calls_.emplace(method, std::move(handler));
  }
  void HandleStream(std::string_view method,
                    Callback<void(std::unique_ptr<Stream>)> handler) override {
    streams_.emplace(method, std::move(handler));
  }
  Result<std::string> Start(const std::string& listen_address) override {
    std::string address = listen_address;
    if (address.empty() || address.ends_with(":0")) {
      address = end_.host + ":" + std::to_string(network_.NextPort());
    }
    if (network_.FindServer(address) != nullptr) {
      return FailedPreconditionError("address " + address + " is in use");
    }
    network_.AddServer(address, this);
    return address;
  }

  const Network::End& end() const { return end_; }
  std::map<std::string, Callback<void(std::string, Responder)>, std::less<>> calls_;
  std::map<std::string, Callback<void(std::unique_ptr<Stream>)>, std::less<>> streams_;

 private:
  Network& network_;
  const Network::End end_;
};

namespace {

constexpr size_t kFrameBytes = 64;  // what a call, an answer or an end takes beside its message

// One unary call: lives until answered.
struct PendingCall : Connection::Exchange, std::enable_shared_from_this<PendingCall> {
  Network& network;
  std::shared_ptr<Connection> connection;
  Callback<void(Result<std::string>)> done;
  TimerId timer = 0;

  explicit PendingCall(Network& n) : network(n) {}
  void Finish(Result<std::string> result) {
    if (!done) return;
    auto callback = std::move(done);
    done = nullptr;
    if (SimLoop* loop = network.Find(connection->end(0).loop_id)) loop->Cancel(timer);
    callback(std::move(result));
  }
  void OnBroken(int side, const Status& why) override {
    if (side == 0) Finish(why);
  }
  // On the server's loop.
  void Arrive(const std::string& method, std::string request) {
    Responder reply = network.scope().Bind([self = shared_from_this()](Result<std::string> result) {
      Connection::Message message;
      message.bytes = kFrameBytes + (result.ok() ? result->size() : 0);
      message.digest = Crc32c(result.ok() ? std::string_view(*result) : result.status().message());
      message.arrived = self->network.scope().Bind(
          [self, result = std::move(result)]() mutable { self->Finish(std::move(result)); });
      self->connection->Send(1, std::move(message));
    });
    SimServer* server = network.FindServer(connection->address());
    if (server == nullptr || server->end().loop_id != connection->end(1).loop_id) {
      return reply(UnavailableError(connection->address() + ": connection refused"));
    }
    auto handler = server->calls_.find(method);
    if (handler == server->calls_.end()) return reply(UnimplementedError("no method " + method));
    handler->second(std::move(request), std::move(reply));
  }
};

// Both ends of a stream. End 0 is the client's.
struct StreamPair : Connection::Exchange, std::enable_shared_from_this<StreamPair> {
  struct Side {
    Stream::Callbacks callbacks;
    bool dead = false;     // on_closed ran, or the owner is gone
    bool closing = false;  // no more sends
    size_t queued = 0;     // that the transport has not taken
    // Of what this side sends: in order, and no more under way than the window.
    Connection::Lane lane;
    std::deque<std::string> outbox;
    std::optional<Status> end;  // after the outbox
    int64_t under_way = 0;
    int64_t taken = 0;  // by the other side, which has not told yet
  };
  Network& network;
  const std::shared_ptr<Connection> connection;
  Side sides[2];

  StreamPair(Network& n, std::shared_ptr<Connection> c) : network(n), connection(std::move(c)) {}

  bool Send(int from, std::string message) {
    Side& side = sides[from];
    if (side.dead || side.closing) return false;
    side.queued += message.size();
    network.NoteQueued(side.queued);
    side.outbox.push_back(std::move(message));
    Pump(from);
    return true;
  }

  // Sends what the window allows.
  void Pump(int from) {
    Side& side = sides[from];
    while (!side.outbox.empty() && side.under_way < network.options().stream_window_bytes) {
      std::string bytes = std::move(side.outbox.front());
      side.outbox.pop_front();
      const size_t size = bytes.size();
      side.under_way += static_cast<int64_t>(size);
      Connection::Message message;
      message.bytes = size;
      message.digest = Crc32c(bytes);
      message.lane = &side.lane;
      message.arrived = network.scope().Bind(
          [self = shared_from_this(), from, bytes = std::move(bytes)]() mutable {
            self->Arrive(from, std::move(bytes));
          });
      message.left = network.scope().Bind(
          [self = shared_from_this(), from, size] { self->Left(self->sides[from], size); });
      connection->Send(from, std::move(message));
    }
    if (side.outbox.empty() && side.end.has_value()) {
      SendEnd(from, *std::exchange(side.end, std::nullopt));
    }
  }

  static void Left(Side& side, size_t size) {
    side.queued -= size;
    if (!side.dead && side.queued == 0 && side.callbacks.on_drained) side.callbacks.on_drained();
  }

  // On the other side's loop, which so has taken it. The room in the window returns in halves.
  void Arrive(int from, std::string bytes) {
    Side& sender = sides[from];
    sender.taken += static_cast<int64_t>(bytes.size());
    if (sender.taken * 2 >= network.options().stream_window_bytes) {
      Connection::Message room;
      room.bytes = kFrameBytes;
      room.arrived = network.scope().Bind(
          [self = shared_from_this(), from, taken = std::exchange(sender.taken, 0)] {
            self->sides[from].under_way -= taken;
            self->Pump(from);
          });
      connection->Send(1 - from, std::move(room));
    }
    Side& receiver = sides[1 - from];
    if (!receiver.dead && receiver.callbacks.on_message) {
      receiver.callbacks.on_message(std::move(bytes));
    }
  }

  // Tells the other side, after what was sent before, that the stream is over.
  void SendEnd(int from, Status status) {
    Connection::Message message;
    message.bytes = kFrameBytes;
    message.digest = Crc32c(status.message());
    message.lane = &sides[from].lane;
    message.arrived = network.scope().Bind(
        [self = shared_from_this(), to = 1 - from, status = std::move(status)]() mutable {
          self->Closed(to, std::move(status));
        });
    connection->Send(from, std::move(message));
  }

  void Closed(int at, Status status) {
    Side& side = sides[at];
    if (side.dead) return;
    side.dead = true;
    if (!status.ok()) DropOutbox(side);
    // A server that saw the client's half-close has answered with Ok by that.
    if (at == 1 && !side.closing) {
      side.closing = true;
      side.end = status;
      Pump(1);
    }
    auto callbacks = std::move(side.callbacks);
    side.callbacks = {};
    if (callbacks.on_closed) callbacks.on_closed(std::move(status));
  }

  void Close(int from, Status status) {
    Side& side = sides[from];
    if (side.dead || side.closing) return;
    side.closing = true;
    if (from == 0 && !status.ok()) DropOutbox(side);  // it cancels
    side.end = status;
    Pump(from);
    const bool half_close = from == 0 && status.ok();
    if (half_close) return;  // the server's answer closes our side
    if (SimLoop* loop = network.Find(connection->end(from).loop_id)) {
      loop->Post(network.scope().Bind(
          [self = shared_from_this(), from, status = std::move(status)]() mutable {
            self->ClosedItself(from, std::move(status));
          }));
    }
  }

  // What is queued goes out all the same.
  void ClosedItself(int at, Status status) {
    Side& side = sides[at];
    if (side.dead) return;
    side.dead = true;
    auto callbacks = std::move(side.callbacks);
    side.callbacks = {};
    if (callbacks.on_closed) callbacks.on_closed(std::move(status));
  }

  void OwnerGone(int from) {
    Side& side = sides[from];
    if (!side.dead && !side.closing) {
      DropOutbox(side);
      SendEnd(from, CancelledError("the peer dropped the stream"));
    }
    side.dead = true;
    side.callbacks = {};
  }

  static void DropOutbox(Side& side) {
    for (const std::string& message : side.outbox) side.queued -= message.size();
    side.outbox.clear();
    side.end.reset();
  }

  void OnBroken(int at, const Status& why) override {
    sides[at].closing = true;  // nothing can be sent
    Closed(at, why);
  }
};

class SimStream : public Stream {
 public:
  SimStream(std::shared_ptr<StreamPair> pair, int side) : pair_(std::move(pair)), side_(side) {}
  ~SimStream() override { pair_->OwnerGone(side_); }
  bool Send(std::string message) override { return pair_->Send(side_, std::move(message)); }
  size_t queued_bytes() const override { return pair_->sides[side_].queued; }
  void Close(Status status) override { pair_->Close(side_, std::move(status)); }
  void SetCallbacks(Callbacks callbacks) override {
    pair_->sides[side_].callbacks = std::move(callbacks);
  }

 private:
  const std::shared_ptr<StreamPair> pair_;
  const int side_;
};

class SimClient : public rpc::Client {
 public:
  SimClient(Network& network, SimLoop& loop, const std::string& host, std::string address)
      : network_(network),
        loop_(loop),
        end_(network.Join(loop, host)),
        address_(std::move(address)) {}

  void Call(std::string_view method, std::string request, Duration timeout,
            Callback<void(Result<std::string>)> done) override {
    auto call = std::make_shared<PendingCall>(network_);
    call->connection = network_.Connect(end_, address_);
    call->done = std::move(done);
    call->timer = loop_.After(timeout, network_.scope().Bind([call] {
      call->Finish(DeadlineExceededError("no answer in time"));
    }));
    call->connection->Add(call);
    Connection::Message message;
    message.bytes = request.size() + kFrameBytes;
    message.digest = Crc32c(request);
    message.arrived = network_.scope().Bind(
        [call, method = std::string(method), request = std::move(request)]() mutable {
          call->Arrive(method, std::move(request));
        });
    call->connection->Send(0, std::move(message));
  }

  std::unique_ptr<Stream> Open(std::string_view method) override {
    const auto connection = network_.Connect(end_, address_);
    auto pair = std::make_shared<StreamPair>(network_, connection);
    connection->Add(pair);
    Connection::Message message;
    message.bytes = kFrameBytes;
    message.digest = Crc32c(method);
    message.lane = &pair->sides[0].lane;
    message.arrived = network_.scope().Bind([pair, method = std::string(method)] {
      const Connection& c = *pair->connection;
      SimServer* target = pair->network.FindServer(c.address());
      if (target == nullptr || target->end().loop_id != c.end(1).loop_id) {
        return pair->Close(1, UnavailableError(c.address() + ": connection refused"));
      }
      auto handler = target->streams_.find(method);
      if (handler == target->streams_.end()) {
        return pair->Close(1, UnimplementedError("no method " + method));
      }
      handler->second(std::make_unique<SimStream>(pair, 1));
    });
    connection->Send(0, std::move(message));
    return std::make_unique<SimStream>(std::move(pair), 0);
  }
  const std::string& address() const override { return address_; }

 private:
  Network& network_;
  SimLoop& loop_;
  const Network::End end_;
  const std::string address_;
};

class SimConnector : public rpc::Connector {
 public:
  SimConnector(Network& network, SimLoop& loop, std::string host)
      : network_(network), loop_(loop), host_(std::move(host)) {}
  // `via` is ignored: links have their delays already.
  std::unique_ptr<rpc::Client> MakeClient(const std::string& address, const std::string&) override {
    return std::make_unique<SimClient>(network_, loop_, host_, address);
  }

 private:
  Network& network_;
  SimLoop& loop_;
  const std::string host_;
};

}  // namespace

std::unique_ptr<rpc::Connector> Network::MakeConnector(SimLoop& loop, std::string host) {
  return std::make_unique<SimConnector>(*this, loop, std::move(host));
}

std::unique_ptr<rpc::Server> Network::MakeServer(SimLoop& loop, const std::string& host) {
  return std::make_unique<SimServer>(*this, loop, host);
}

void Network::RemoveServer(SimServer* server) {
  std::erase_if(servers_, [&](const auto& entry) { return entry.second == server; });
}

SimServer* Network::FindServer(const std::string& address) const {
  auto it = servers_.find(address);
  return it == servers_.end() ? nullptr : it->second;
}

Network::End Network::EndOfServer(const std::string& address) const {
  const SimServer* const server = FindServer(address);
  return server == nullptr ? End() : server->end();
}

void Network::Disconnect(SimLoop& loop) {
  const uint64_t id = loop.number();
  loops_.erase(id);
  std::erase_if(servers_, [&](const auto& entry) { return entry.second->end().loop_id == id; });
  for (const auto& connection : AllConnections()) {
    for (const int side : {0, 1}) {
      if (connection->end(side).loop_id == id) connection->OnDeath(side);
    }
  }
  std::erase_if(by_client_, [&](const auto& entry) { return entry.first.first == id; });
}

}  // namespace tailcast::sim
