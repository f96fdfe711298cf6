#include "tailcast/fabric/tcp_door.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_connection.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");

std::vector<std::span<const char>> ViewsOf(const RegionMemory& memory) {
  std::vector<std::span<const char>> views;
  for (const RegionMemory::Region& region : memory.regions()) {
    views.emplace_back(region.readable.data(), region.size);
  }
  return views;
}

}  // namespace

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
      entrance_(&doorman_, context.options->key, context.memory->incarnation(),
                context.options->name, [this](TcpVisitor visitor) {
                  reactor_->Post(scope_.Bind([this, visitor = std::move(visitor)]() mutable {
                    Enter(std::move(visitor));
                  }));
                }) {}

TcpDoor::~TcpDoor() {
  entrance_.Close();  // nobody enters any more
  reactor_->Call([this] {
    reactor_->Cancel(tick_timer_);
    scope_.End();
    while (!connections_.empty()) Drop(connections_.begin()->first);
  });
}

Result<std::string> TcpDoor::Listen() {
  TAILCAST_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(options_.tcp_listen));
  TAILCAST_ASSIGN_OR_RETURN(const uint16_t port, entrance_.Listen(where));
  std::string host =
      options_.tcp_advertised_host.empty() ? where.host : options_.tcp_advertised_host;
  if (host.empty() || host == "0.0.0.0") {
    char name[HOST_NAME_MAX + 1] = {};
    if (gethostname(name, sizeof(name) - 1) == 0) host = name;
  }
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return host + ":" + std::to_string(port);
}

void TcpDoor::Enter(TcpVisitor visitor) {
  const bool messages = visitor.flags == kHelloMessages;
  const MessageService::Life life =
      messages && messages_ != nullptr ? messages_->service()->life() : 0;
  const auto refuse = [&](HelloStatus why) {
    TcpEntrance::Refuse(std::move(visitor.fd), why, memory_->incarnation());
  };
  if (messages && messages_ == nullptr) return refuse(HelloStatus::kNoMessages);
  if (!memory_->valid() || (messages && life == 0)) return refuse(HelloStatus::kGoingAway);
  if (TooMany(messages)) return refuse(HelloStatus::kTooMany);
  TcpWelcome welcome{.version = kHelloVersion,
                     .status = HelloStatus::kWelcome,
                     .incarnation = memory_->incarnation(),
                     .reads_max = messages ? 0 : options_.reads_max,
                     .watches_max = messages ? 0 : options_.watches_max,
                     .peer_timeout_us = static_cast<uint64_t>(options_.peer_timeout.micros())};
  if (messages) {
    messages_->Adopt(std::move(visitor.fd), std::move(visitor.peer), life,
                     HandshakeFrame(TcpOp::kWelcome, welcome));
    return;
  }
  const int number = visitor.fd.get();
  auto connection =
      std::make_unique<Connection>(this, std::move(visitor.fd), std::move(visitor.peer));
  if (!reactor_->Add(number, EPOLLIN, connection.get()).ok()) return;
  Connection& entered = *(connections_[number] = std::move(connection));
  LookAfter();
  entered.Welcome(welcome);
}

void TcpDoor::LookAfter() {
  if (tick_timer_ != 0) return;
  tick_timer_ =
      reactor_->At(reactor_->Now() + options_.peer_timeout / 3, scope_.Bind([this] { OnTick(); }));
}

void TcpDoor::OnTick() {
  tick_timer_ = 0;
  const MonotonicTime limit = reactor_->Now() - options_.peer_timeout;
  std::vector<int> silent;
  bool more = false;  // that may get stuck
  for (const auto& [fd, connection] : connections_) {
    const MonotonicTime since = connection->stuck_since();
    if (since < limit) {
      silent.push_back(fd);
    } else {
      more |= since != MonotonicTime::Max();
    }
  }
  for (const int fd : silent) {
    SilentPeers("tcp", "server").Add();
    kLog.Info(options_.name, ": reader ", connections_[fd]->peer(),
              " fell silent, or takes nothing; hanging up");
    Drop(fd);
  }
  if (more) LookAfter();
}

void TcpDoor::StandInLine(Connection* connection) {
  line_.push_back(connection);
  if (std::exchange(line_moves_, true)) return;
  reactor_->Post(scope_.Bind([this] { NextInLine(); }));
}

void TcpDoor::NextInLine() {
  line_moves_ = false;
  if (line_.empty()) return;
  Connection* const next = line_.front();
  line_.pop_front();
  next->TakeTurn();  // may stand in line again, or be gone
  if (line_.empty() || std::exchange(line_moves_, true)) return;
  reactor_->Post(scope_.Bind([this] { NextInLine(); }));
}

void TcpDoor::Drop(int fd) {
  auto node = connections_.extract(fd);  // its destructor looks at our tables
}

void TcpDoor::CloseConnections() {
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
