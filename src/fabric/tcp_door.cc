#include "tailcast/fabric/tcp_door.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_connection.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr Duration kAcceptRetry = Duration::Seconds(1);

std::vector<std::span<const char>> ViewsOf(const RegionMemory& memory) {
  std::vector<std::span<const char>> views;
  for (const RegionMemory::Region& region : memory.regions()) {
    views.emplace_back(region.readable.data(), region.size);
  }
  return views;
}

}  // namespace

class TcpDoor::Listener final : public Reactor::Handler {
 public:
  explicit Listener(TcpDoor* door) : door_(door) {}
  void OnEvents(uint32_t) override { door_->OnAccept(); }

 private:
  TcpDoor* const door_;
};

TcpDoor::TcpDoor(const DoorContext& context, VerbsOffers* verbs)
    : reactor_(context.reactor),
      memory_(context.memory),
      messages_(context.messages == nullptr
                    ? nullptr
                    : std::make_unique<TcpMessageDoor>(context.messages, context.options->name,
                                                       context.options->peer_timeout)),
      options_(*context.options),
      scanner_(context.scanner),
      scan_prefetch_(context.scan_prefetch),
      verbs_(verbs),
      views_(ViewsOf(*context.memory)),
      listener_(std::make_unique<Listener>(this)) {}

TcpDoor::~TcpDoor() {
  if (!socket_.valid()) return;
  reactor_->Call([this] {
    reactor_->Cancel(retry_timer_);
    reactor_->Cancel(tick_timer_);
    reactor_->Remove(socket_.get());
    scope_.End();
    while (!connections_.empty()) Drop(connections_.begin()->first);
  });
}

Result<std::string> TcpDoor::Listen() {
  TAILCAST_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(options_.tcp_listen));
  TAILCAST_ASSIGN_OR_RETURN(const uint16_t port, ListenAt(where));
  std::string host =
      options_.tcp_advertised_host.empty() ? where.host : options_.tcp_advertised_host;
  if (host.empty() || host == "0.0.0.0") {
    char name[HOST_NAME_MAX + 1] = {};
    if (gethostname(name, sizeof(name) - 1) == 0) host = name;
  }
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return host + ":" + std::to_string(port);
}

Result<uint16_t> TcpDoor::ListenAt(const HostPort& where) {
  const std::string& host_port = options_.tcp_listen;
  TAILCAST_ASSIGN_OR_RETURN(const SocketAddress address, ResolveForListening(where));
  Descriptor fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a tcp socket");
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(fd.get(), address.get(), address.length) != 0) {
    if (errno == EADDRINUSE) {
      return AlreadyExistsError("port in use: " + host_port + ": choose another, or 0 for any");
    }
    return ErrnoStatus(errno, "bind " + host_port);
  }
  if (listen(fd.get(), 1024) != 0) return ErrnoStatus(errno, "listen on " + host_port);
  SocketAddress bound;
  bound.length = sizeof(bound.storage);
  if (getsockname(fd.get(), bound.get(), &bound.length) != 0) {
    return ErrnoStatus(errno, "getsockname " + host_port);
  }
  socket_ = std::move(fd);
  address_ = bound.ToString();
  Status added;
  reactor_->Call([&] { added = reactor_->Add(socket_.get(), EPOLLIN, listener_.get()); });
  if (!added.ok()) return added;
  return bound.port();
}

void TcpDoor::OnAccept() {
  for (;;) {
    SocketAddress peer;
    peer.length = sizeof(peer.storage);
    Descriptor fd(accept4(socket_.get(), peer.get(), &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      kLog.Error(options_.name, ": can't accept on ", address_,
                 " for a second: ", std::strerror(errno), " (raise the limit of open files?)");
      reactor_->Remove(socket_.get());
      retry_timer_ = reactor_->At(reactor_->Now() + kAcceptRetry, scope_.Bind([this] {
        retry_timer_ = 0;
        if (const Status s = reactor_->Add(socket_.get(), EPOLLIN, listener_.get()); !s.ok()) {
          kLog.Error(options_.name, ": no more readers on ", address_, ": ", s.ToString());
        }
      }));
      return;
    }
    const int one = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    const int number = fd.get();
    auto connection = std::make_unique<Connection>(this, std::move(fd), peer.ToString());
    if (!reactor_->Add(number, EPOLLIN, connection.get()).ok()) continue;
    connections_[number] = std::move(connection);
    if (tick_timer_ == 0) {
      tick_timer_ = reactor_->At(reactor_->Now() + options_.peer_timeout / 3,
                                 scope_.Bind([this] { OnTick(); }));
    }
  }
}

void TcpDoor::OnTick() {
  tick_timer_ = 0;
  const MonotonicTime limit = reactor_->Now() - options_.peer_timeout;
  std::vector<int> silent;
  bool more = false;  // that have to be looked after
  for (const auto& [fd, connection] : connections_) {
    if (connection->silent()) continue;
    if (connection->heard() < limit) {
      silent.push_back(fd);
    } else {
      more = true;
    }
  }
  for (const int fd : silent) {
    SilentPeers("tcp", "server").Add();
    kLog.Info(options_.name, ": reader ", connections_[fd]->peer(), " fell silent; hanging up");
    Drop(fd);
  }
  if (!more) return;
  tick_timer_ =
      reactor_->At(reactor_->Now() + options_.peer_timeout / 3, scope_.Bind([this] { OnTick(); }));
}

void TcpDoor::Drop(int fd) {
  auto node = connections_.extract(fd);  // its destructor looks at our tables
}

void TcpDoor::CloseConnections() {
  if (!socket_.valid()) return;
  reactor_->Call([this] {
    while (!connections_.empty()) Drop(connections_.begin()->first);
  });
  if (messages_ != nullptr) messages_->CloseConnections();
}

uint32_t TcpDoor::LoadWord(const WordKey& key) const {
  const char* word = memory_->regions()[key.region].readable.data() + key.offset;
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(word), __ATOMIC_SEQ_CST);
}

TcpDoor::WatcherPlace TcpDoor::AddWatcher(const WordKey& key, const Watcher& watcher) {
  std::list<Watcher>& watchers = watchers_[key];
  watchers.push_back(watcher);
  watch_count_.fetch_add(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return std::prev(watchers.end());
}

void TcpDoor::RemoveWatcher(const WordKey& key, WatcherPlace place) {
  const auto it = watchers_.find(key);
  it->second.erase(place);
  watch_count_.fetch_sub(1, std::memory_order_seq_cst);
  if (it->second.empty()) watchers_.erase(it);
}

void TcpDoor::Notify(RegionId region, uint64_t offset) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the word's change before the look
  if (watch_count_.load(std::memory_order_seq_cst) == 0) return;
  bool first;
  {
    std::lock_guard lock(notified_mutex_);
    first = notified_.empty();
    notified_.insert({region, offset});
  }
  if (!first) return;
  reactor_->Post(scope_.Bind([this] { DeliverNotifications(); }));
}

void TcpDoor::DeliverNotifications() {
  std::unordered_set<WordKey, WordKeyHash> notified;
  {
    std::lock_guard lock(notified_mutex_);
    notified.swap(notified_);
  }
  std::vector<int> woken;
  for (const WordKey& key : notified) {
    const auto it = watchers_.find(key);
    if (it == watchers_.end()) continue;
    const uint32_t now = LoadWord(key);
    const auto answered = std::erase_if(it->second, [&](const Watcher& w) {
      if (w.last_seen == now) return false;
      w.connection->QueueNotification(w.id, WatchOutcome::kChanged);
      woken.push_back(w.connection->fd());
      return true;
    });
    watch_count_.fetch_sub(static_cast<int64_t>(answered), std::memory_order_seq_cst);
    if (it->second.empty()) watchers_.erase(it);
  }
  std::sort(woken.begin(), woken.end());
  woken.erase(std::unique(woken.begin(), woken.end()), woken.end());
  for (const int fd : woken) {
    const auto it = connections_.find(fd);
    if (it != connections_.end()) it->second->Send();
  }
}

}  // namespace tailcast::fabric
