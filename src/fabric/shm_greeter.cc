#include "tailcast/fabric/shm_greeter.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {
namespace {

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

ShmGreeter::ShmGreeter(const DialContext& context, const Target& target, uint32_t flags)
    : reactor_(context.reactor),
      path_(target.where),
      key_(context.key),
      handshake_(key_.get(), "shm", flags, target.incarnation, RandomBytes()) {}

Status ShmGreeter::Start(int rings, Callback<void(Result<ShmGreeting>)> done) {
  rings_ = rings;
  TAILCAST_ASSIGN_OR_RETURN(fd_, ConnectUnix(path_));
  TAILCAST_RETURN_IF_ERROR(reactor_->Add(fd_.get(), EPOLLIN, this));
  done_ = std::move(done);
  return Send(BytesOf(ShmHello{.magic = kShmMagic, .hello = handshake_.hello()}), key_ == nullptr);
}

void ShmGreeter::Stop() {
  done_ = nullptr;
  if (!fd_.valid()) return;
  reactor_->Remove(fd_.get());
  fd_.Close();
}

Status ShmGreeter::Send(std::string_view packet, bool last) {
  const std::span<const int> fds(&rings_, last && rings_ >= 0 ? 1 : 0);
  if (SendPacket(fd_.get(), packet, fds) == static_cast<ssize_t>(packet.size())) return OkStatus();
  return UnavailableError(server() + " closed the connection");
}

void ShmGreeter::OnEvents(uint32_t) {
  Result<ShmGreeting> greeting = Take();
  if (greeting.ok() && !greeting->socket.valid()) return;
  Callback<void(Result<ShmGreeting>)> done = std::exchange(done_, nullptr);
  Stop();
  if (done) done(std::move(greeting));  // may destroy us
}

Status ShmGreeter::Bad(const std::string& what) const {
  BadInput("shm", "client").Add();
  return UnavailableError(server() + " sent " + what);
}

Result<ShmGreeting> ShmGreeter::Take() {
  char packet[sizeof(ShmReply) + kRegionsMax * sizeof(ShmRegion)];
  static_assert(sizeof packet >= sizeof(ShmReply) + sizeof(Challenge));
  ShmGreeting greeting;
  bool cut = false;
  const ssize_t n = ReceivePacket(fd_.get(), std::span(packet), &greeting.fds, &cut);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return greeting;
  if (n <= 0) return UnavailableError(server() + " closed the connection");
  const auto size = static_cast<size_t>(n);
  if (size < sizeof(ShmReply)) return Bad("a reply that is too short");
  ShmReply& reply = greeting.reply;
  std::memcpy(&reply, packet, sizeof(reply));
  const char* const rest = packet + sizeof(reply);
  if (reply.magic != kShmMagic) return Bad("no reply of this protocol");
  if (reply.status == HelloStatus::kProve) {
    Challenge challenge;
    if (cut || size != sizeof(reply) + sizeof(challenge) || !greeting.fds.empty()) {
      return Bad("a challenge that does not add up");
    }
    std::memcpy(&challenge, rest, sizeof(challenge));
    const Result<CellKey::Proof> proof = handshake_.OnChallenge(challenge);
    if (!proof.ok()) return proof.status().WithContext(server());
    TAILCAST_RETURN_IF_ERROR(Send(BytesOf(ShmProof{.magic = kShmMagic, .proof = *proof}), true));
    return greeting;
  }
  TAILCAST_RETURN_IF_ERROR(
      handshake_.OnReply(reply.status, reply.version, reply.incarnation).WithContext(server()));
  if (cut || reply.region_count > kRegionsMax ||
      greeting.fds.size() != (reply.region_count == 0 ? 0 : 1 + reply.region_count) ||
      size != sizeof(reply) + reply.region_count * sizeof(ShmRegion)) {
    return Bad("a reply that does not add up");
  }
  greeting.regions.resize(reply.region_count);
  if (reply.region_count > 0) {
    std::memcpy(greeting.regions.data(), rest, reply.region_count * sizeof(ShmRegion));
  }
  reactor_->Remove(fd_.get());
  greeting.socket = std::move(fd_);
  return greeting;
}

}  // namespace tailcast::fabric
