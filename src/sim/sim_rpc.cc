#include "tailcast/sim/sim_rpc.h"

#include <algorithm>
#include <optional>

#include "tailcast/base/check.h"

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

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// One unary call: lives until answered.
struct PendingCall : Network::Connection, std::enable_shared_from_this<PendingCall> {
  Network& network;
  Network::End client, server;
  Callback<void(Result<std::string>)> done;
  TimerId timer = 0;

  explicit PendingCall(Network& n) : network(n) {}
  void Finish(Result<std::string> result) {
    if (!done) return;
    auto callback = std::move(done);
    done = nullptr;
    if (SimLoop* loop = network.Find(client.loop_id)) loop->Cancel(timer);
    callback(std::move(result));
  }
  void OnDeath(uint64_t dead) override {
    if (!done || dead != server.loop_id) return;
    network.Deliver(server, client, 64, network.scope().Bind([self = shared_from_this()] {
      self->Finish(UnavailableError("connection broken"));
    }));
  }
};

// Both ends of a stream. End 0 is the client's.
struct StreamPair : Network::Connection, std::enable_shared_from_this<StreamPair> {
  struct Side {
    Network::End end;
    Stream::Callbacks callbacks;
    bool ready = false;    // callbacks were set
    bool dead = false;     // on_closed ran, or the owner is gone
    bool closing = false;  // no more sends
    size_t queued = 0;
  };
  Network& network;
  Side sides[2];

  explicit StreamPair(Network& n) : network(n) {}

  bool Send(int from, std::string message) {
    Side& side = sides[from];
    if (side.dead || side.closing) return false;
    const size_t size = message.size();
    side.queued += size;
    const MonotonicTime left =
        network.Deliver(side.end, sides[1 - from].end, size,
                        network.scope().Bind([self = shared_from_this(), to = 1 - from,
                                              message = std::move(message)]() mutable {
                          Side& peer = self->sides[to];
                          if (!peer.dead && peer.callbacks.on_message)
                            peer.callbacks.on_message(std::move(message));
                        }));
    if (SimLoop* loop = network.Find(side.end.loop_id)) {
      loop->At(left, network.scope().Bind([self = shared_from_this(), from, size] {
        Side& sender = self->sides[from];
        sender.queued -= size;
        if (!sender.dead && sender.queued == 0 && sender.callbacks.on_drained) {
          sender.callbacks.on_drained();
        }
      }));
    }
    return true;
  }

  // Tells side `to`, after what was sent before, that the stream is over.
  void SendEnd(int from, Status status) {
    network.Deliver(sides[from].end, sides[1 - from].end, 64,
                    network.scope().Bind([self = shared_from_this(), to = 1 - from,
                                          status = std::move(status)]() mutable {
                      self->Closed(to, std::move(status));
                    }));
  }

  void Closed(int at, Status status) {
    Side& side = sides[at];
    if (side.dead) return;
    side.dead = true;
    // A server that saw the client's half-close has answered with Ok by that.
    if (at == 1 && !side.closing) SendEnd(1, status.ok() ? OkStatus() : status);
    auto callbacks = std::move(side.callbacks);
    side.callbacks = {};
    if (callbacks.on_closed) callbacks.on_closed(std::move(status));
  }

  void Close(int from, Status status) {
    Side& side = sides[from];
    if (side.dead || side.closing) return;
    side.closing = true;
    SendEnd(from, status);
    const bool half_close = from == 0 && status.ok();
    if (half_close) return;  // the server's answer closes our side
    if (SimLoop* loop = network.Find(side.end.loop_id)) {
      loop->Post(network.scope().Bind(
          [self = shared_from_this(), from, status = std::move(status)]() mutable {
            self->Closed(from, std::move(status));
          }));
    }
  }

  void OwnerGone(int from) {
    Side& side = sides[from];
    if (!side.dead && !side.closing) SendEnd(from, CancelledError("the peer dropped the stream"));
    side.dead = true;
    side.callbacks = {};
  }

  void OnDeath(uint64_t dead) override {
    for (int at : {0, 1}) {
      if (sides[at].end.loop_id != dead) continue;
      sides[at].dead = true;
      network.Deliver(sides[at].end, sides[1 - at].end, 64,
                      network.scope().Bind([self = shared_from_this(), at] {
                        self->Closed(1 - at, UnavailableError("connection broken"));
                      }));
    }
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
    pair_->sides[side_].ready = true;
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
    call->client = end_;
    call->server = Network::End{0, HostOf(address_)};
    call->done = std::move(done);
    call->timer = loop_.After(timeout, network_.scope().Bind([call] {
      call->Finish(DeadlineExceededError("no answer in time"));
    }));
    SimServer* server = network_.FindServer(address_);
    if (server == nullptr) {
      // A closed port answers with a reset after a round trip.
      const Duration round_trip = network_.LinkBetween(end_.host, call->server.host).delay * 2;
      loop_.After(round_trip, network_.scope().Bind([call, address = address_] {
        call->Finish(UnavailableError(address + ": connection refused"));
      }));
      return;
    }
    call->server = server->end();
    network_.Track(call->server, call);
    const size_t size = request.size() + 64;
    network_.Deliver(end_, call->server, size,
                     network_.scope().Bind([call, address = address_, method = std::string(method),
                                            request = std::move(request)]() mutable {
                       Arrive(call, address, method, std::move(request));
                     }));
  }

  std::unique_ptr<Stream> Open(std::string_view method) override {
    auto pair = std::make_shared<StreamPair>(network_);
    pair->sides[0].end = end_;
    auto stream = std::make_unique<SimStream>(pair, 0);
    SimServer* server = network_.FindServer(address_);
    if (server == nullptr) {
      pair->sides[1].end = Network::End{0, HostOf(address_)};
      pair->sides[1].dead = true;
      const Duration round_trip =
          network_.LinkBetween(end_.host, pair->sides[1].end.host).delay * 2;
      loop_.After(round_trip, network_.scope().Bind([pair, address = address_] {
        pair->Closed(0, UnavailableError(address + ": connection refused"));
      }));
      return stream;
    }
    pair->sides[1].end = server->end();
    network_.Track(end_, pair);
    network_.Track(pair->sides[1].end, pair);
    network_.Deliver(
        end_, pair->sides[1].end, 64,
        network_.scope().Bind([pair, address = address_, method = std::string(method)] {
          SimServer* target = pair->network.FindServer(address);
          if (target == nullptr) return pair->OnDeath(pair->sides[1].end.loop_id);
          auto handler = target->streams_.find(method);
          if (handler == target->streams_.end()) {
            return pair->Close(1, UnimplementedError("no method " + method));
          }
          handler->second(std::make_unique<SimStream>(pair, 1));
        }));
    return stream;
  }
  const std::string& address() const override { return address_; }

 private:
  static void Arrive(const std::shared_ptr<PendingCall>& call, const std::string& address,
                     const std::string& method, std::string request) {
    Responder reply = call->network.scope().Bind([call](Result<std::string> result) {
      const size_t size = 64 + (result.ok() ? result->size() : 0);
      call->network.Deliver(
          call->server, call->client, size,
          call->network.scope().Bind(
              [call, result = std::move(result)]() mutable { call->Finish(std::move(result)); }));
    });
    SimServer* server = call->network.FindServer(address);
    if (server == nullptr || server->end().loop_id != call->server.loop_id) {
      return reply(UnavailableError(address + ": connection refused"));
    }
    auto handler = server->calls_.find(method);
    if (handler == server->calls_.end()) return reply(UnimplementedError("no method " + method));
    handler->second(std::move(request), std::move(reply));
  }

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

Network::Network(VirtualTime& time, Rng rng) : time_(time), rng_(rng) {}
Network::~Network() = default;

Network::LinkState& Network::State(const std::string& from, const std::string& to) {
  return links_[{from, to}];
}

Link& Network::LinkBetween(const std::string& from, const std::string& to) {
  return State(from, to).link;
}

void Network::Partition(const std::string& a, const std::string& b, bool cut) {
  LinkBetween(a, b).cut = cut;
  LinkBetween(b, a).cut = cut;
}

std::unique_ptr<rpc::Connector> Network::MakeConnector(SimLoop& loop, std::string host) {
  return std::make_unique<SimConnector>(*this, loop, std::move(host));
}

std::unique_ptr<rpc::Server> Network::MakeServer(SimLoop& loop, const std::string& host) {
  return std::make_unique<SimServer>(*this, loop, host);
}

Network::End Network::Join(SimLoop& loop, const std::string& host) {
  loops_[loop.number()] = &loop;
  return End{loop.number(), host};
}

SimLoop* Network::Find(uint64_t loop_id) const {
  auto it = loops_.find(loop_id);
  return it == loops_.end() ? nullptr : it->second;
}

void Network::Track(const End& end, std::weak_ptr<Connection> connection) {
  auto& list = connections_[end.loop_id];
  // Forget what has ended, now and then, so that the list stays as long as what is open.
  if (list.size() >= 64 && (list.size() & (list.size() - 1)) == 0) {
    std::erase_if(list, [](const auto& weak) { return weak.expired(); });
  }
  list.push_back(std::move(connection));
}

void Network::RemoveServer(SimServer* server) {
  std::erase_if(servers_, [&](const auto& entry) { return entry.second == server; });
}

SimServer* Network::FindServer(const std::string& address) const {
  auto it = servers_.find(address);
  return it == servers_.end() ? nullptr : it->second;
}

void Network::Disconnect(SimLoop& loop) {
  const uint64_t id = loop.number();
  loops_.erase(id);
  std::erase_if(servers_, [&](const auto& entry) { return entry.second->end().loop_id == id; });
  auto node = connections_.extract(id);
  if (node.empty()) return;
  for (const auto& weak : node.mapped()) {
    if (auto connection = weak.lock()) connection->OnDeath(id);
  }
}

MonotonicTime Network::Deliver(const End& from, const End& to, size_t bytes, Task task) {
  LinkState& state = State(from.host, to.host);
  const MonotonicTime now = time_.now();
  MonotonicTime left = now;
  if (state.link.bytes_per_second > 0) {
    left = std::max(now, state.busy_until) +
           Duration::Micros(static_cast<int64_t>(bytes) * 1000000 / state.link.bytes_per_second);
    state.busy_until = left;
  }
  if (state.link.cut) return left;
  MonotonicTime arrival = left + state.link.delay;
  if (state.link.jitter > Duration()) {
    arrival = arrival + Duration::Micros(rng_.Between(0, state.link.jitter.micros()));
  }
  arrival = std::max(arrival, state.last_arrival);
  state.last_arrival = arrival;
  if (SimLoop* loop = Find(to.loop_id)) loop->Arrive(arrival, std::move(task));
  return left;
}

}  // namespace tailcast::sim
