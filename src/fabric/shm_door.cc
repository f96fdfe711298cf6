#include "tailcast/fabric/shm_door.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/shm_wire.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr Duration kHelloTimeout = Duration::Seconds(5);
constexpr int kAcceptsPerTurn = 8;
constexpr Duration kAcceptRetry = Duration::Seconds(1);

// The memory that a client handed over for its channel. Nobody may be able to shrink it under us,
// nor to take pages out of it while somebody sleeps on a word in them.
Result<Mapping> MapChannel(const std::vector<Descriptor>& fds) {
  if (fds.size() != 1) return InvalidArgumentError("a channel is one descriptor");
  const int fd = fds[0].get();
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat info;
  if (seals < 0 || (seals & kNeeded) != kNeeded || fstat(fd, &info) != 0 ||
      static_cast<uint64_t>(info.st_size) != kChannelBytes) {
    return InvalidArgumentError("a channel whose memory is not sealed, or of another size");
  }
  // A fault in memory that can't be had would kill us.
  if (fallocate(fd, 0, 0, static_cast<off_t>(kChannelBytes)) != 0) {
    return ResourceExhaustedError("a channel for whose memory there is no room");
  }
  Result<Mapping> memory = Mapping::Map(fd, kChannelBytes, /*writable=*/true);
  if (memory.ok() && fcntl(fd, F_ADD_SEALS, kChannelSeals) != 0) {
    return InvalidArgumentError("a channel whose memory can't be sealed for good");
  }
  return memory;
}

}  // namespace

class ShmDoor::Listener final : public Reactor::Handler {
 public:
  explicit Listener(ShmDoor* door) : door_(door) {}
  void OnEvents(uint32_t) override { door_->OnAccept(); }

 private:
  ShmDoor* const door_;
};

// A guest until it has proven what it must.
class ShmDoor::Connection final : public Reactor::Handler {
 public:
  Connection(ShmDoor* door, Descriptor fd)
      : door_(door),
        fd_(std::move(fd)),
        handshake_(door->key_.get(), "shm", door->memory_->incarnation(), RandomBytes()) {
    timer_ = door_->reactor_->At(door_->reactor_->Now() + kHelloTimeout, scope_.Bind([this] {
      timer_ = 0;
      Fail("no hello and proof within 5 s");
    }));
  }
  ~Connection() {
    if (rings_ != 0) {
      door_->messages_->RemoveRings(rings_);
      --door_->channels_;
    }
    door_->guests_.Remove(fd_.get());
    door_->reactor_->Cancel(timer_);
    door_->reactor_->Remove(fd_.get());
  }

  void OnEvents(uint32_t) override {
    // One byte more than the longest, so that a longer packet shows.
    char packet[sizeof(ShmHello) + 1];
    std::vector<Descriptor> fds;
    const ssize_t n = ReceivePacket(fd_.get(), std::span(packet), &fds);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      door_->Drop(fd_.get());
      return;
    }
    switch (state_) {
      case State::kHello:
        return TakeHello({packet, static_cast<size_t>(n)}, fds);
      case State::kProof:
        return TakeProof({packet, static_cast<size_t>(n)}, fds);
      case State::kWelcomed:
        return Fail("a packet after its welcome");
    }
  }

 private:
  enum class State : uint8_t { kHello, kProof, kWelcomed };

  void Fail(const char* why) {
    BadInput("shm", "server").Add();
    if (const auto rest = door_->log_limit_.Admit(door_->reactor_->Now())) {
      kLog.Warn(door_->name_, ": closing a reader's connection on ", door_->path_, ": ", why,
                *rest);
    }
    door_->Drop(fd_.get());
  }

  void TakeHello(std::string_view packet, const std::vector<Descriptor>& fds) {
    uint64_t magic = 0;
    if (packet.size() >= sizeof(magic)) std::memcpy(&magic, packet.data(), sizeof(magic));
    if (magic != kShmMagic) return Fail("no hello of this protocol");
    ShmHello hello{};
    // Hellos of other versions may have other sizes; they are told ours.
    std::memcpy(&hello, packet.data(), std::min(packet.size(), sizeof(hello)));
    if (hello.hello.version == kHelloVersion && packet.size() != sizeof(hello)) {
      return Fail("a hello of the wrong size");
    }
    const HelloStatus status = handshake_.OnHello(hello.hello);
    if (status == HelloStatus::kWelcome) return LetIn(fds);
    if (status != HelloStatus::kProve) return Refuse(status);
    state_ = State::kProof;
    std::string reply(sizeof(ShmReply) + sizeof(Challenge), '\0');
    const ShmReply head = Reply(status);
    std::memcpy(reply.data(), &head, sizeof(head));
    std::memcpy(reply.data() + sizeof(head), &handshake_.challenge(), sizeof(Challenge));
    if (SendPacket(fd_.get(), reply, {}) < 0) door_->Drop(fd_.get());
  }

  void TakeProof(std::string_view packet, const std::vector<Descriptor>& fds) {
    ShmProof proof;
    if (packet.size() != sizeof(proof)) return Fail("a proof of the wrong size");
    std::memcpy(&proof, packet.data(), sizeof(proof));
    if (proof.magic != kShmMagic) return Fail("no proof of this protocol");
    const HelloStatus status = handshake_.OnProof(proof.proof);
    if (status != HelloStatus::kWelcome) return Refuse(status);
    LetIn(fds);
  }

  ShmReply Reply(HelloStatus status) const {
    return {.magic = kShmMagic,
            .version = kHelloVersion,
            .status = status,
            .incarnation = door_->memory_->incarnation(),
            .region_count = 0,
            .reserved = 0};
  }

  void Refuse(HelloStatus status) {
    RefusedConnections("shm", status).Add();
    if (const char* const why = KeyRefusalText(status); why != nullptr) {
      if (const auto rest = door_->log_limit_.Admit(door_->reactor_->Now())) {
        kLog.Warn(door_->name_, ": refusing a reader on ", door_->path_, ": ", why, *rest);
      }
    }
    const ShmReply reply = Reply(status);
    SendPacket(fd_.get(), {reinterpret_cast<const char*>(&reply), sizeof(reply)}, {});
    door_->Drop(fd_.get());
  }

  // It may come in, if there is room and what it wants.
  void LetIn(const std::vector<Descriptor>& fds) {
    const RegionMemory& memory = *door_->memory_;
    const bool messages = handshake_.flags() == kHelloMessages;
    const MessageService::Life life = door_->messages_ != nullptr ? door_->messages_->life() : 0;
    if (messages && door_->messages_ == nullptr) return Refuse(HelloStatus::kNoMessages);
    if (!memory.valid() || (messages && life == 0)) return Refuse(HelloStatus::kGoingAway);
    if (door_->connections_.size() - door_->guests_.size() >= door_->connections_max_ ||
        (messages && door_->channels_ >= kChannelsMax)) {
      return Refuse(HelloStatus::kTooMany);
    }
    ShmReply reply = Reply(HelloStatus::kWelcome);
    std::string packet(reinterpret_cast<const char*>(&reply), sizeof(reply));
    std::vector<int> handed;
    if (messages) {
      Result<Mapping> channel = MapChannel(fds);
      if (!channel.ok()) return Fail(channel.status().message().c_str());
      AddRings(life, std::move(channel).value());
    } else {
      reply.region_count = static_cast<uint32_t>(memory.regions().size());
      packet.assign(reinterpret_cast<const char*>(&reply), sizeof(reply));
      handed.push_back(memory.control_read_only().get());
      for (RegionId id = 0; id < memory.regions().size(); ++id) {
        const RegionMemory::Region& region = memory.regions()[id];
        const ShmRegion told{region.size, memory.generation(id)};
        packet.append(reinterpret_cast<const char*>(&told), sizeof(told));
        handed.push_back(region.read_only.get());
      }
    }
    state_ = State::kWelcomed;
    door_->guests_.Remove(fd_.get());
    door_->reactor_->Cancel(timer_);
    timer_ = 0;
    // Before the reader knows its memory: Notify then sees it, or the reader the changed word.
    door_->CountReaders();
    if (SendPacket(fd_.get(), packet, handed) < 0) door_->Drop(fd_.get());
  }

  void AddRings(MessageService::Life life, Mapping channel) {
    ShmDoor* const door = door_;
    const int fd = fd_.get();
    ++door->channels_;
    rings_ = door->messages_->AddRings(
        life, std::move(channel), door->messages_->scope().Bind([door, fd](uint64_t rings) {
          door->reactor_->Post(door->scope_.Bind([door, fd, rings] {
            const auto it = door->connections_.find(fd);
            if (it != door->connections_.end() && it->second->rings_ == rings) door->Drop(fd);
          }));
        }));
  }

  ShmDoor* const door_;
  const Descriptor fd_;
  ServerHandshake handshake_;
  State state_ = State::kHello;
  uint64_t timer_ = 0;
  uint64_t rings_ = 0;  // of a message channel
  Scope scope_;
};

ShmDoor::ShmDoor(const DoorContext& context)
    : reactor_(context.reactor),
      memory_(context.memory),
      messages_(context.messages),
      connections_max_(context.options->connections_max),
      name_(context.options->name),
      key_(context.options->key),
      path_(context.options->shm_socket_path),
      listener_(std::make_unique<Listener>(this)) {}

ShmDoor::~ShmDoor() {
  if (!socket_.valid()) return;
  unlink(path_.c_str());
  reactor_->Call([this] {
    reactor_->Cancel(retry_timer_);
    reactor_->Remove(socket_.get());
    connections_.clear();
  });
}

Result<std::string> ShmDoor::Listen() {
  const std::string& path = path_;
  sockaddr_un address;
  Descriptor directory;
  TAILCAST_RETURN_IF_ERROR(UnixAddress(path, &directory, &address));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a unix socket");
  if (bind(fd.get(), generic, sizeof(address)) != 0) {
    if (errno != EADDRINUSE) return ErrnoStatus(errno, "bind the unix socket " + path);
    Descriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!probe.valid()) return ErrnoStatus(errno, "make a unix socket");
    // EAGAIN: its backlog is full, so somebody listens.
    if (connect(probe.get(), generic, sizeof(address)) == 0 || errno == EAGAIN) {
      return AlreadyExistsError("a living server listens on " + path +
                                ": stop it, or choose another path");
    }
    const int refusal = errno;
    struct stat info;
    if (refusal != ECONNREFUSED || lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
      return AlreadyExistsError(path + " exists and is no socket of ours (" +
                                std::strerror(refusal) + "): remove it, or choose another path");
    }
    if (unlink(path.c_str()) != 0 || bind(fd.get(), generic, sizeof(address)) != 0) {
      return ErrnoStatus(errno, "replace the unix socket " + path + " of a dead server");
    }
  }
  if (listen(fd.get(), 1024) != 0) return ErrnoStatus(errno, "listen on " + path);
  socket_ = std::move(fd);
  Status added;
  reactor_->Call([&] { added = reactor_->Add(socket_.get(), EPOLLIN, listener_.get()); });
  if (!added.ok()) return added;
  return path;
}

void ShmDoor::Notify(RegionId region, uint64_t offset) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the word's change before the look
  if (reader_count_.load(std::memory_order_seq_cst) == 0) return;
  // Readers can't say in read-only memory that they wait; with nobody waiting this costs 0.2 us.
  syscall(SYS_futex, memory_->regions()[region].writable.data() + offset, FUTEX_WAKE, INT_MAX,
          nullptr, nullptr, 0);
}

void ShmDoor::OnAccept() {
  // A few, so that a flood of guests makes no reader wait.
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Descriptor fd(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      kLog.Error(name_, ": can't accept on ", path_, " for a second: ", std::strerror(errno),
                 " (raise the limit of open files?)");
      reactor_->Remove(socket_.get());
      retry_timer_ = reactor_->At(reactor_->Now() + kAcceptRetry, scope_.Bind([this] {
        retry_timer_ = 0;
        if (const Status s = reactor_->Add(socket_.get(), EPOLLIN, listener_.get()); !s.ok()) {
          kLog.Error(name_, ": no more readers on ", path_, ": ", s.ToString());
        }
      }));
      return;
    }
    const int number = fd.get();
    auto connection = std::make_unique<Connection>(this, std::move(fd));
    if (!reactor_->Add(number, EPOLLIN, connection.get()).ok()) continue;
    connections_[number] = std::move(connection);
    if (const auto sent_away = guests_.Add(number, "")) {
      CrowdedOut("shm").Add();
      Drop(*sent_away);
    }
  }
}

void ShmDoor::Drop(int fd) {
  connections_.erase(fd);
  CountReaders();
}

void ShmDoor::CloseConnections() {
  if (!socket_.valid()) return;
  reactor_->Call([this] {
    connections_.clear();
    CountReaders();
  });
}

}  // namespace tailcast::fabric
