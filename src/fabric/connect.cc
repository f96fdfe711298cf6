#include "tailcast/fabric/connect.h"

#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdio>
#include <map>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/channel_session.h"
#include "tailcast/fabric/message_service.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/shm_door.h"
#include "tailcast/fabric/shm_endpoint.h"
#include "tailcast/fabric/tcp_door.h"
#include "tailcast/fabric/tcp_endpoint.h"
#include "tailcast/fabric/tcp_message_door.h"

namespace tailcast::fabric {
namespace {

struct Address {
  std::string scheme;  // shm, tcp
  std::string where;
  ExporterIncarnation incarnation = ExporterIncarnation::kAny;
};

Result<Address> ParseAddress(const std::string& text) {
  Address address;
  const size_t colon = text.find(':');
  address.scheme = text.substr(0, colon);
  if (colon == std::string::npos || (address.scheme != "shm" && address.scheme != "tcp")) {
    return InvalidArgumentError("\"" + text +
                                "\" is no fabric address: write shm:/path or tcp:host:port");
  }
  address.where = text.substr(colon + 1);
  if (const size_t hash = address.where.rfind('#'); hash != std::string::npos) {
    const std::string digits = address.where.substr(hash + 1);
    uint64_t incarnation = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), incarnation, 16);
    if (digits.size() != 16 || error != std::errc() || end != digits.data() + digits.size()) {
      return InvalidArgumentError("\"" + text +
                                  "\" is no fabric address: 16 hex digits belong after the '#'");
    }
    address.where.resize(hash);
    address.incarnation = ExporterIncarnation{incarnation};
  }
  return address;
}

class RealExporter final : public Exporter {
 public:
  explicit RealExporter(ExporterOptions options)
      : options_(std::move(options)),
        memory_(ExporterIncarnation{RandomSeed() | 1}, options_.beat_timeout),
        reactor_("fabric-server") {}

  void ServeMessages(MessageHandler handler) override {
    TAILCAST_CHECK(options_.loop != nullptr, "an exporter without a loop takes no messages");
    messages_ = std::make_unique<MessageService>(options_.loop, std::move(handler));
  }

  Result<std::span<char>> AddRegion(RegionId id, uint64_t size) override {
    return memory_.Add(id, size);
  }

  void SetScanner(Scanner scanner) override { scanner_ = std::move(scanner); }
  void SetScanPrefetch(ScanPrefetch prefetch) override { scan_prefetch_ = std::move(prefetch); }

  Result<std::vector<std::string>> Listen() override {
    if (options_.shm_socket_path.empty() && options_.tcp_listen.empty()) {
      return InvalidArgumentError(options_.name +
                                  ": an exporter needs a socket path or a tcp port");
    }
    TAILCAST_RETURN_IF_ERROR(memory_.Seal().WithContext(options_.name));
    char suffix[32];
    std::snprintf(suffix, sizeof(suffix), "#%016llx",
                  static_cast<unsigned long long>(memory_.incarnation()));
    std::vector<std::string> addresses;
    if (!options_.shm_socket_path.empty()) {
      shm_ = std::make_unique<ShmDoor>(&reactor_, &memory_, messages_.get(),
                                       options_.connections_max, options_.name);
      TAILCAST_RETURN_IF_ERROR(shm_->Listen(options_.shm_socket_path).WithContext(options_.name));
      addresses.push_back("shm:" + options_.shm_socket_path + suffix);
    }
    if (!options_.tcp_listen.empty()) {
      TAILCAST_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(options_.tcp_listen));
      if (messages_ != nullptr) {
        tcp_messages_ =
            std::make_unique<TcpMessageDoor>(messages_.get(), options_.name, options_.peer_timeout);
      }
      tcp_ = std::make_unique<TcpDoor>(&reactor_, &memory_, tcp_messages_.get(),
                                       TcpDoorOptions{.name = options_.name,
                                                      .connections_max = options_.connections_max,
                                                      .watches_max = options_.watches_max,
                                                      .reads_max = options_.reads_max,
                                                      .peer_timeout = options_.peer_timeout,
                                                      .scanner = std::move(scanner_),
                                                      .scan_prefetch = std::move(scan_prefetch_)});
      Result<uint16_t> port = tcp_->Listen(options_.tcp_listen);
      if (!port.ok()) return port.status().WithContext(options_.name);
      std::string host =
          options_.tcp_advertised_host.empty() ? where.host : options_.tcp_advertised_host;
      if (host.empty() || host == "0.0.0.0") {
        char name[HOST_NAME_MAX + 1] = {};
        if (gethostname(name, sizeof(name) - 1) == 0) host = name;
      }
      if (host.find(':') != std::string::npos) host = "[" + host + "]";
      addresses.push_back("tcp:" + host + ":" + std::to_string(*port) + suffix);
    }
    Populate();
    return addresses;
  }

  void Notify(RegionId id, uint64_t offset) override {
    if (id >= memory_.regions().size() || offset + 8 > memory_.regions()[id].size) return;
    if (tcp_ != nullptr) tcp_->Notify(id, offset);
    if (shm_ == nullptr) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the word's change before the look
    if (shm_->readers() == 0) return;
    // Readers can't say in read-only memory that they wait; with nobody waiting this costs 0.2 us.
    syscall(SYS_futex, memory_.regions()[id].writable.data() + offset, FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
  }
  void Beat() override { memory_.Beat(ReadMonotonicClock()); }
  void Invalidate() override {
    if (messages_ != nullptr) messages_->Close();
    memory_.Invalidate();
    if (shm_ != nullptr) shm_->CloseConnections();
    if (tcp_ != nullptr) tcp_->CloseConnections();
    if (tcp_messages_ != nullptr) tcp_messages_->CloseConnections();
  }
  void Renew() override {
    if (messages_ != nullptr) messages_->Open();
    memory_.Renew();
  }

 private:
  // Between the reactor's other work.
  void Populate() {
    reactor_.Post(scope_.Bind([this] {
      if (memory_.PopulateNext()) Populate();
    }));
  }

  const ExporterOptions options_;
  Scanner scanner_;             // until Listen
  ScanPrefetch scan_prefetch_;  // the same
  RegionMemory memory_;
  Scope scope_;  // reactor thread
  std::unique_ptr<MessageService> messages_;
  std::unique_ptr<TcpMessageDoor> tcp_messages_;
  Reactor reactor_;
  std::unique_ptr<ShmDoor> shm_;
  std::unique_ptr<TcpDoor> tcp_;
};

class RealConnector final : public Connector {
 public:
  RealConnector(ThreadLoop* loop, ConnectorOptions options)
      : loop_(loop), options_(options), reactor_(std::make_shared<Reactor>("fabric-client")) {}
  ~RealConnector() override {
    for (auto& [id, pending] : pending_) ShutDown(std::move(pending.session));
  }

  void Connect(const std::string& text, Duration timeout,
               Callback<void(Result<std::unique_ptr<Endpoint>>)> done) override {
    Begin<ClientSession>(
        text, timeout, std::move(done),
        [this](Address address) {
          return MakeShmSession(loop_, reactor_.get(), address.where, address.incarnation);
        },
        [this](HostPort where, ExporterIncarnation incarnation) {
          return MakeTcpSession(loop_, reactor_.get(), std::move(where), incarnation,
                                options_.read_timeout);
        },
        [this](ClientSession& session) { return session.MakeEndpoint(reactor_); });
  }

  void OpenChannel(const std::string& text, Duration timeout,
                   Callback<void(Result<std::unique_ptr<Channel>>)> done) override {
    Begin<ChannelSession>(
        text, timeout, std::move(done),
        [this](Address address) {
          return MakeShmChannelSession(loop_, reactor_.get(), address.where, address.incarnation);
        },
        [this](HostPort where, ExporterIncarnation incarnation) {
          return MakeTcpChannelSession(loop_, reactor_.get(), std::move(where), incarnation);
        },
        [this](ChannelSession& session) { return session.MakeChannel(reactor_); });
  }

 private:
  struct Pending {
    explicit Pending(EventLoop& loop) : timer(loop) {}
    std::shared_ptr<ClientEnd> session;
    UniqueFunction<void(const Status&)> done;
    Timer timer;
  };

  template <typename Session, typename Port, typename MakeShm, typename MakeTcp, typename MakePort>
  void Begin(const std::string& text, Duration timeout,
             Callback<void(Result<std::unique_ptr<Port>>)> done, MakeShm make_shm, MakeTcp make_tcp,
             MakePort make_port) {
    const uint64_t id = next_id_++;
    Pending& pending = pending_.try_emplace(id, *loop_).first->second;
    std::shared_ptr<Session> session;
    Result<Address> address = ParseAddress(text);
    Status error = address.status();
    if (error.ok() && address->scheme == "shm") {
      session = make_shm(*address);
    } else if (error.ok()) {
      Result<HostPort> where = ParseHostPort(address->where);
      error = where.status();
      if (error.ok()) session = make_tcp(std::move(where).value(), address->incarnation);
    }
    pending.session = session;
    pending.done = [session, make_port, done = std::move(done)](const Status& status) mutable {
      if (status.ok()) {
        done(make_port(*session));
      } else {
        done(status);
      }
    };
    if (!error.ok()) {
      pending.timer.After(Duration(), scope_.Bind([this, id, error] { Answer(id, error); }));
      return;
    }
    pending.timer.After(timeout, scope_.Bind([this, id, text] {
      Answer(id, DeadlineExceededError("no answer from " + text));
    }));
    Callback<void(const Status&)> ready =
        scope_.Bind([this, id](const Status& status) { Answer(id, status); });
    const Scope& scope = session->scope();
    Callback<void(Status)> on_reactor =
        scope.Bind([loop = loop_, ready = std::move(ready)](Status status) mutable {
          loop->Post(std::move(ready).With(std::move(status)));
        });
    reactor_->Post(scope.Bind([session, on_reactor = std::move(on_reactor)]() mutable {
      session->Start(std::move(on_reactor));
    }));
  }

  void ShutDown(std::shared_ptr<ClientEnd> session) {
    if (session == nullptr) return;
    const Scope& scope = session->scope();
    reactor_->Post(scope.Bind([session = std::move(session)] { session->Shutdown(); }));
  }

  void Answer(uint64_t id, const Status& status) {
    auto node = pending_.extract(id);
    if (!node) return;  // timed out
    Pending& pending = node.mapped();
    if (!status.ok()) ShutDown(std::move(pending.session));
    pending.done(status);
  }

  ThreadLoop* const loop_;
  const ConnectorOptions options_;
  const std::shared_ptr<Reactor> reactor_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_id_ = 1;
  Scope scope_;
};

// Of endpoints and channels alike.
template <typename Port>
struct BestAttempt {
  using Done = Callback<void(Result<std::unique_ptr<Port>>)>;
  using Try = void (Connector::*)(const std::string& address, Duration timeout, Done done);
  Connector* connector;
  Try connect;
  std::vector<std::string> addresses;
  size_t next = 0;
  Duration timeout;
  Done done;
  Scope scope;  // lives as long as the callback that holds the attempt
};

template <typename Port>
void TryNext(std::shared_ptr<BestAttempt<Port>> attempt) {
  const std::string address =
      attempt->next < attempt->addresses.size() ? attempt->addresses[attempt->next] : "";
  ++attempt->next;
  Connector* connector = attempt->connector;
  const auto connect = attempt->connect;
  const Duration timeout = attempt->timeout;
  const Scope& scope = attempt->scope;
  (connector->*connect)(address, timeout,
                        scope.Bind([attempt](Result<std::unique_ptr<Port>> port) mutable {
                          if (port.ok() || attempt->next >= attempt->addresses.size()) {
                            attempt->done(std::move(port));
                            return;
                          }
                          TryNext(std::move(attempt));
                        }));
}

template <typename Port>
void TryBest(Connector* connector, typename BestAttempt<Port>::Try connect,
             const std::vector<std::string>& addresses, const std::string& prefer, Duration timeout,
             typename BestAttempt<Port>::Done done) {
  auto attempt = std::make_shared<BestAttempt<Port>>();
  attempt->connector = connector;
  attempt->connect = connect;
  attempt->addresses = OrderAddresses(addresses, prefer);
  // With none of them usable here, the first says best what is wrong.
  if (attempt->addresses.empty() && !addresses.empty()) attempt->addresses = {addresses.front()};
  attempt->timeout = timeout;
  attempt->done = std::move(done);
  TryNext(std::move(attempt));
}

}  // namespace

std::unique_ptr<Exporter> MakeExporter(ExporterOptions options) {
  return std::make_unique<RealExporter>(std::move(options));
}

std::unique_ptr<Connector> MakeConnector(ThreadLoop* loop, ConnectorOptions options) {
  return std::make_unique<RealConnector>(loop, options);
}

std::vector<std::string> OrderAddresses(const std::vector<std::string>& addresses,
                                        const std::string& prefer) {
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& text : addresses) {
    int rank = 2;
    if (text.starts_with("shm:")) {
      const std::string path = text.substr(
          4, text.rfind('#') == std::string::npos ? std::string::npos : text.rfind('#') - 4);
      struct stat info;
      if (stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) {
        rank = 1;
      } else if (prefer != "shm") {
        continue;  // another host's
      }
    }
    if (!prefer.empty() && text.starts_with(prefer + ":")) rank = 0;
    ranked.emplace_back(rank, text);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> ordered;
  for (auto& [rank, text] : ranked) ordered.push_back(std::move(text));
  return ordered;
}

void ConnectBest(Connector* connector, const std::vector<std::string>& addresses,
                 const std::string& prefer, Duration timeout,
                 Callback<void(Result<std::unique_ptr<Endpoint>>)> done) {
  TryBest<Endpoint>(connector, &Connector::Connect, addresses, prefer, timeout, std::move(done));
}

void OpenBestChannel(Connector* connector, const std::vector<std::string>& addresses,
                     const std::string& prefer, Duration timeout,
                     Callback<void(Result<std::unique_ptr<Channel>>)> done) {
  TryBest<Channel>(connector, &Connector::OpenChannel, addresses, prefer, timeout, std::move(done));
}

}  // namespace tailcast::fabric
