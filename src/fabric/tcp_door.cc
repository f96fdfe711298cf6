#include "tailcast/fabric/tcp_door.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/tcp_wire.h"
#include "tailcast/fabric/word_copy.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr Duration kAcceptRetry = Duration::Seconds(1);
constexpr size_t kReceiveBytes = 64 << 10;
// Notifications, pongs and the welcome that wait for a reader which does not take them.
constexpr size_t kControlBytesMax = 256 << 10;
// Answer bytes for one connection before the others get their turn.
constexpr size_t kTurnBytesMax = 2 << 20;
constexpr uint64_t kFramePayloadMax = 1 << 20;

Counter& BadInput() {
  static Counter& counter =
      ProcessMetrics().GetCounter("tailcast_fabric_bad_input_total",
                                  "Connections closed because the other end broke the protocol.",
                                  {{"driver", "tcp"}, {"side", "server"}});
  return counter;
}
Counter& Refused() {
  static Counter& counter =
      ProcessMetrics().GetCounter("tailcast_fabric_refused_connections_total",
                                  "Connections that a server refused.", {{"driver", "tcp"}});
  return counter;
}
Counter& SilentPeers() {
  static Counter& counter = ProcessMetrics().GetCounter(
      "tailcast_fabric_silent_peers_total", "Connections closed because the other end fell silent.",
      {{"driver", "tcp"}, {"side", "server"}});
  return counter;
}

char g_padding[8] = {};

}  // namespace

class TcpDoor::Listener final : public Reactor::Handler {
 public:
  explicit Listener(TcpDoor* door) : door_(door) {}
  void OnEvents(uint32_t) override { door_->OnAccept(); }

 private:
  TcpDoor* const door_;
};

// States: before the hello nothing but a hello is taken. After it, requests are parsed as they come
// and queued; answers go out in order, one frame at a time, with control frames between them.
class TcpDoor::Connection final : public Reactor::Handler {
 public:
  Connection(TcpDoor* door, Descriptor fd, std::string peer)
      : door_(door), fd_(std::move(fd)), peer_(std::move(peer)), heard_(door->reactor_->Now()) {
    in_.resize(kReceiveBytes);
  }
  ~Connection() {
    for (const auto& [id, watch] : watches_) door_->RemoveWatcher(watch.key, watch.place);
    door_->reactor_->Remove(fd_.get());
  }

  void OnEvents(uint32_t events) override {
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !Receive()) return;
    Send();
  }
  MonotonicTime heard() const { return heard_; }
  const std::string& peer() const { return peer_; }
  int fd() const { return fd_.get(); }

  // An answer to a watch, now or later. Call Send after it; the connection may be gone then.
  void QueueNotification(uint64_t id, WatchOutcome outcome) {
    watches_.erase(id);
    AppendTo(control_, TcpFrame{.body_bytes = 0,
                                .op = TcpOp::kNotify,
                                .flags = 0,
                                .count = static_cast<uint16_t>(outcome),
                                .argument = id});
  }
  // Sends what can be sent. May destroy this.
  void Send();

 private:
  struct Pending {
    TcpRead read;
    ReadStatus status;
  };
  struct Watch {
    WordKey key;
    WatcherPlace place;
  };

  // False if the connection is gone.
  bool Receive();
  bool TakeFrames();
  bool TakeFrame(const TcpFrame& frame, const char* body);
  bool TakeHello(const TcpFrame& frame, const char* body);
  bool TakeWatch(uint64_t id, const TcpWatch& watch);
  bool Fail(const std::string& why) {
    BadInput().Add();
    kLog.Warn(door_->options_.name, ": closing the connection of ", peer_, ": ", why);
    door_->Drop(fd_.get());
    return false;
  }
  ReadStatus Check(const TcpRead& read, bool stopped) const;
  void BuildFrame();

  TcpDoor* const door_;
  const Descriptor fd_;
  const std::string peer_;
  MonotonicTime heard_;
  bool welcomed_ = false;
  bool closing_ = false;  // after what is queued went out
  bool wants_out_ = false;
  bool resumes_ = false;  // a Send is posted to let others have their turn
  std::vector<Generation> generations_;

  std::vector<char> in_;
  size_t in_used_ = 0;
  std::deque<Pending> reads_;
  std::unordered_map<uint64_t, Watch> watches_;

  std::string control_;  // frames that go before the next answer frame
  // The frame that is going out: parts_[part_...] are left. They point into frame_head_, inline_
  // and the regions.
  std::string frame_head_;
  std::string inline_;
  std::vector<iovec> parts_;
  size_t part_ = 0;
  Scope scope_;
};

bool TcpDoor::Connection::Receive() {
  const ssize_t n = recv(fd_.get(), in_.data() + in_used_, in_.size() - in_used_, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    door_->Drop(fd_.get());
    return false;
  }
  heard_ = door_->reactor_->Now();
  in_used_ += static_cast<size_t>(n);
  return TakeFrames();
}

bool TcpDoor::Connection::TakeFrames() {
  size_t used = 0;
  while (in_used_ - used >= sizeof(TcpFrame)) {
    const auto frame = TakeFrom<TcpFrame>(in_.data() + used);
    if (frame.body_bytes > kTcpRequestBodyMax || frame.flags != 0) {
      return Fail("a frame of " + std::to_string(frame.body_bytes) + " bytes, flags " +
                  std::to_string(frame.flags));
    }
    if (in_used_ - used < sizeof(frame) + frame.body_bytes) break;
    if (!TakeFrame(frame, in_.data() + used + sizeof(frame))) return false;
    used += sizeof(frame) + frame.body_bytes;
  }
  if (used > 0) std::memmove(in_.data(), in_.data() + used, in_used_ - used);
  in_used_ -= used;
  return true;
}

bool TcpDoor::Connection::TakeFrame(const TcpFrame& frame, const char* body) {
  if (closing_) return true;
  if (!welcomed_) return TakeHello(frame, body);
  switch (frame.op) {
    case TcpOp::kRead: {
      if (frame.count == 0 || frame.body_bytes != frame.count * sizeof(TcpRead)) {
        return Fail("a read request that does not add up");
      }
      if (reads_.size() + frame.count > door_->options_.reads_max) {
        return Fail("more than " + std::to_string(door_->options_.reads_max) +
                    " reads outstanding");
      }
      for (size_t i = 0; i < frame.count; ++i) {
        reads_.push_back({TakeFrom<TcpRead>(body + i * sizeof(TcpRead)), ReadStatus::kOk});
      }
      return true;
    }
    case TcpOp::kWatch:
      if (frame.body_bytes != sizeof(TcpWatch)) return Fail("a watch that does not add up");
      return TakeWatch(frame.argument, TakeFrom<TcpWatch>(body));
    case TcpOp::kCancelWatch: {
      if (frame.body_bytes != 0) return Fail("a cancelled watch that does not add up");
      const auto it = watches_.find(frame.argument);
      if (it == watches_.end()) return true;  // it was notified meanwhile
      door_->RemoveWatcher(it->second.key, it->second.place);
      watches_.erase(it);
      return true;
    }
    case TcpOp::kPing:
      if (frame.body_bytes != 0) return Fail("a ping that does not add up");
      AppendTo(control_, TcpFrame{.body_bytes = 0,
                                  .op = TcpOp::kPong,
                                  .flags = 0,
                                  .count = 0,
                                  .argument = frame.argument});
      if (control_.size() > kControlBytesMax)
        return Fail("it does not take its pongs and notifications");
      return true;
    default:
      return Fail("an unknown request, number " + std::to_string(static_cast<int>(frame.op)));
  }
}

bool TcpDoor::Connection::TakeHello(const TcpFrame& frame, const char* body) {
  if (frame.op != TcpOp::kHello || frame.argument != kTcpMagic ||
      frame.body_bytes < sizeof(TcpHello)) {
    return Fail("no hello of this protocol");
  }
  const auto hello = TakeFrom<TcpHello>(body);
  const RegionMemory& memory = *door_->memory_;
  TcpWelcome welcome{
      .version = kTcpVersion,
      .status = HelloStatus::kWelcome,
      .incarnation = memory.incarnation(),
      .reads_max = door_->options_.reads_max,
      .watches_max = door_->options_.watches_max,
      .peer_timeout_us = static_cast<uint64_t>(door_->options_.peer_timeout.micros())};
  if (hello.version != kTcpVersion || hello.flags != 0 || hello.credential_bytes != 0 ||
      frame.body_bytes != sizeof(TcpHello)) {
    welcome.status = HelloStatus::kVersion;
  } else if (hello.expected_incarnation != ExporterIncarnation::kAny &&
             hello.expected_incarnation != memory.incarnation()) {
    welcome.status = HelloStatus::kIncarnation;
  } else if (!memory.valid()) {
    welcome.status = HelloStatus::kGoingAway;
  } else if (door_->connections_.size() > door_->options_.connections_max) {
    welcome.status = HelloStatus::kTooMany;
  }
  const bool accepted = welcome.status == HelloStatus::kWelcome;
  const size_t regions = accepted ? memory.regions().size() : 0;
  AppendTo(control_, TcpFrame{.body_bytes = static_cast<uint32_t>(sizeof(welcome) +
                                                                  regions * sizeof(TcpRegion)),
                              .op = TcpOp::kWelcome,
                              .flags = 0,
                              .count = static_cast<uint16_t>(regions),
                              .argument = kTcpMagic});
  AppendTo(control_, welcome);
  for (RegionId id = 0; id < regions; ++id) {
    generations_.push_back(memory.generation(id));
    AppendTo(control_, TcpRegion{memory.regions()[id].size, generations_.back()});
  }
  welcomed_ = accepted;
  closing_ = !accepted;
  if (!accepted) Refused().Add();
  return true;
}

bool TcpDoor::Connection::TakeWatch(uint64_t id, const TcpWatch& watch) {
  const std::vector<RegionMemory::Region>& regions = door_->memory_->regions();
  if (watch.region >= regions.size() || watch.offset % 8 != 0 ||
      watch.offset >= regions[watch.region].size) {
    return Fail("a watch outside of the regions");
  }
  if (watches_.contains(id)) return Fail("a watch id that is in use");
  if (watches_.size() >= door_->options_.watches_max) {
    QueueNotification(id, WatchOutcome::kRefused);
  } else {
    const WordKey key{watch.region, watch.offset};
    const WatcherPlace place = door_->AddWatcher(key, {this, id, watch.last_seen});
    watches_[id] = {key, place};
    // Counted before we look: either Notify sees the watch, or we see the change.
    if (door_->LoadWord(key) != watch.last_seen) {
      door_->RemoveWatcher(key, place);
      QueueNotification(id, WatchOutcome::kChanged);
    }
  }
  if (control_.size() > kControlBytesMax)
    return Fail("it does not take its pongs and notifications");
  return true;
}

ReadStatus TcpDoor::Connection::Check(const TcpRead& read, bool stopped) const {
  const std::vector<RegionMemory::Region>& regions = door_->memory_->regions();
  if (read.region >= regions.size()) return ReadStatus::kOutOfRange;
  const uint64_t size = regions[read.region].size;
  if (read.length > kReadBytesMax || read.offset > size || read.length > size - read.offset) {
    return ReadStatus::kOutOfRange;
  }
  if (door_->memory_->generation(read.region) != generations_[read.region]) {
    return ReadStatus::kStaleRegion;
  }
  return stopped ? ReadStatus::kUnreachable : ReadStatus::kOk;
}

void TcpDoor::Connection::BuildFrame() {
  const bool stopped = HeartbeatStopped(door_->memory_->control(), ReadMonotonicClock());
  uint64_t payload = 0;
  size_t count = 0;
  size_t inline_bytes = 0;
  while (count < reads_.size() && count < kTcpBatchMax && payload < kFramePayloadMax) {
    Pending& pending = reads_[count++];
    pending.status = Check(pending.read, stopped);
    if (pending.status != ReadStatus::kOk) pending.read.length = 0;
    payload += PaddedLength(pending.read.length);
    if (pending.read.length <= kWordAtomicBytesMax)
      inline_bytes += PaddedLength(pending.read.length);
  }
  frame_head_.clear();
  AppendTo(frame_head_, TcpFrame{.body_bytes = static_cast<uint32_t>(count * sizeof(TcpAnswer)),
                                 .op = TcpOp::kAnswer,
                                 .flags = 0,
                                 .count = static_cast<uint16_t>(count),
                                 .argument = payload});
  for (size_t i = 0; i < count; ++i) {
    AppendTo(frame_head_,
             TcpAnswer{reads_[i].read.tag, reads_[i].read.length, reads_[i].status, {}});
  }
  inline_.resize(inline_bytes);
  parts_.clear();
  part_ = 0;
  parts_.push_back({frame_head_.data(), frame_head_.size()});
  const auto add = [this](char* data, size_t length) {
    // Neighbours become one part: small reads side by side in inline_, chunks side by side.
    iovec& last = parts_.back();
    if (static_cast<char*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += length;
    } else {
      parts_.push_back({data, length});
    }
  };
  size_t inline_used = 0;
  for (size_t i = 0; i < count; ++i) {
    const TcpRead& read = reads_[i].read;
    if (read.length == 0) continue;
    char* region = door_->memory_->regions()[read.region].readable.data();
    const size_t padding = PaddedLength(read.length) - read.length;
    if (read.length <= kWordAtomicBytesMax) {
      // Copied here, because the kernel may cut a message at any byte and take the rest later.
      CopyWords(inline_.data() + inline_used, region, read.offset, read.length);
      std::memset(inline_.data() + inline_used + read.length, 0, padding);
      add(inline_.data() + inline_used, read.length + padding);
      inline_used += read.length + padding;
    } else {
      add(region + read.offset, read.length);
      if (padding != 0) parts_.push_back({g_padding, padding});
    }
  }
  reads_.erase(reads_.begin(), reads_.begin() + static_cast<ptrdiff_t>(count));
}

void TcpDoor::Connection::Send() {
  size_t turn_bytes = 0;
  bool blocked = false;
  while (!blocked && turn_bytes < kTurnBytesMax) {
    if (part_ == parts_.size()) {
      parts_.clear();
      part_ = 0;
      if (!control_.empty()) {
        frame_head_.swap(control_);
        control_.clear();
        parts_.push_back({frame_head_.data(), frame_head_.size()});
      } else if (!reads_.empty()) {
        BuildFrame();
      } else {
        break;
      }
    }
    msghdr message{.msg_iov = parts_.data() + part_,
                   .msg_iovlen = std::min<size_t>(parts_.size() - part_, 1024)};
    const ssize_t n = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) {
        door_->Drop(fd_.get());
        return;
      }
      blocked = true;
      break;
    }
    turn_bytes += static_cast<size_t>(n);
    size_t left = static_cast<size_t>(n);
    while (left > 0 && left >= parts_[part_].iov_len) left -= parts_[part_++].iov_len;
    if (left > 0) {
      parts_[part_].iov_base = static_cast<char*>(parts_[part_].iov_base) + left;
      parts_[part_].iov_len -= left;
    }
  }
  const bool more = part_ < parts_.size() || !control_.empty() || !reads_.empty();
  if (closing_ && !more) {
    door_->Drop(fd_.get());
    return;
  }
  if (blocked != wants_out_) {
    wants_out_ = blocked;
    door_->reactor_->Modify(fd_.get(), blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
  if (more && !blocked && !resumes_) {
    resumes_ = true;
    door_->reactor_->Post(scope_.Bind([this] {
      resumes_ = false;
      Send();
    }));
  }
}

TcpDoor::TcpDoor(Reactor* reactor, const RegionMemory* memory, TcpDoorOptions options)
    : reactor_(reactor),
      memory_(memory),
      options_(std::move(options)),
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

Result<uint16_t> TcpDoor::Listen(const std::string& host_port) {
  TAILCAST_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(host_port));
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
  for (const auto& [fd, connection] : connections_) {
    if (connection->heard() < limit) silent.push_back(fd);
  }
  for (const int fd : silent) {
    SilentPeers().Add();
    kLog.Info(options_.name, ": reader ", connections_[fd]->peer(), " fell silent; hanging up");
    Drop(fd);
  }
  if (connections_.empty()) return;
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
