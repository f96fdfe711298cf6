#include "tailcast/fabric/shm_wire.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tailcast/base/check.h"

namespace tailcast::fabric {

Status UnixAddress(const std::string& path, Descriptor* directory, sockaddr_un* address) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return InvalidArgumentError("\"" + path + "\" is no path of a unix socket");
  }
  std::string reachable = path;
  if (path.size() >= sizeof(address->sun_path)) {
    const size_t slash = path.rfind('/');
    const std::string dir = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const std::string base = slash == std::string::npos ? path : path.substr(slash + 1);
    *directory = Descriptor(open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory->valid()) return ErrnoStatus(errno, "open " + dir);
    reachable = "/proc/self/fd/" + std::to_string(directory->get()) + "/" + base;
    if (reachable.size() >= sizeof(address->sun_path)) {
      return InvalidArgumentError("the socket name in " + path +
                                  " is too long: choose one below 80 bytes");
    }
  }
  std::memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path, reachable.data(), reachable.size());
  return OkStatus();
}

Result<Descriptor> ConnectUnix(const std::string& path) {
  sockaddr_un address;
  Descriptor directory;
  TAILCAST_RETURN_IF_ERROR(UnixAddress(path, &directory, &address));
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a unix socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return UnavailableError("nobody serves shared memory at " + path + ": " + std::strerror(errno));
  }
  return fd;
}

ssize_t SendPacket(int fd, std::string_view packet, std::span<const int> fds) {
  TAILCAST_CHECK(fds.size() <= 1 + kRegionsMax);
  alignas(cmsghdr) char control[CMSG_SPACE((1 + kRegionsMax) * sizeof(int))] = {};
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  msghdr message{.msg_iov = &part, .msg_iovlen = 1};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t ReceivePacket(int fd, std::span<char> packet, std::vector<Descriptor>* fds, bool* cut) {
  alignas(cmsghdr) char control[CMSG_SPACE((1 + kRegionsMax) * sizeof(int))];
  iovec part{packet.data(), packet.size()};
  msghdr message{
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  const ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number;
      std::memcpy(&number, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
      fds->emplace_back(number);
    }
  }
  if (cut != nullptr) *cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  return n;
}

}  // namespace tailcast::fabric
