#include "tailcast/app/cell_addresses.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "tailcast/cell/process_config.h"

namespace tailcast::app {
namespace {

// A port that was free a moment ago, below the range from which the kernel hands out ports of its
// own.
Result<int> FreePort(int& next) {
  for (; next < 32000; ++next) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    addr.sin_port = htons(static_cast<uint16_t>(next));
    const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&addr), sizeof addr) == 0;
    close(fd);
    if (free) return next++;
  }
  return ResourceExhaustedError("no free port from 20000 to 32000 on this host");
}

// Whether a scheduler can listen there. InvalidArgument: not an address of this host;
// FailedPrecondition: somebody does already, and the cell's processes would talk to him.
Status CheckFree(const cell::TopologyCluster& cluster) {
  const std::string what =
      "cluster '" + cluster.name + "': its scheduler's address " + cluster.scheduler;
  const size_t colon = cluster.scheduler.rfind(':');
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (const int e = getaddrinfo(cluster.scheduler.substr(0, colon).c_str(),
                                cluster.scheduler.substr(colon + 1).c_str(), &hints, &found);
      e != 0) {
    return InvalidArgumentError(what + ": " + gai_strerror(e));
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int error =
      bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0 ? 0 : errno;
  freeaddrinfo(found);
  close(fd);
  if (error == 0) return OkStatus();
  if (error == EADDRINUSE) {
    return FailedPreconditionError(what +
                                   " is in use; stop what listens there, choose another port, or "
                                   "leave the address out and `up` finds a free one");
  }
  if (error == EADDRNOTAVAIL) {
    return InvalidArgumentError(what +
                                " is not of this host, and `up` runs all cells here; leave the "
                                "address out and `up` finds one");
  }
  return ErrnoStatus(error, what);
}

}  // namespace

Status ChooseAddresses(const std::string& dir, const std::function<void(const std::string&)>& say,
                       cell::Topology& topology) {
  std::set<std::string> taken;
  for (cell::TopologyCluster& cluster : topology.clusters) {
    if (!cluster.scheduler.empty()) {
      TAILCAST_RETURN_IF_ERROR(CheckFree(cluster));
      continue;
    }
    const auto before =
        cell::ProcessConfig::Load(dir + "/" + cluster.name + "/config/scheduler.yaml");
    if (!before.ok() || !before->scheduler.starts_with("127.0.0.1:")) continue;
    cluster.scheduler = before->scheduler;
    if (CheckFree(cluster).ok() && taken.insert(cluster.scheduler).second) continue;
    say("cell " + cluster.name + " was at " + cluster.scheduler +
        ", where something else listens now; it moves to another port");
    cluster.scheduler.clear();
  }
  int next_port = 20000 + static_cast<int>(getpid() % 500) * 20;
  for (cell::TopologyCluster& cluster : topology.clusters) {
    while (cluster.scheduler.empty()) {
      TAILCAST_ASSIGN_OR_RETURN(const int port, FreePort(next_port));
      const std::string address = "127.0.0.1:" + std::to_string(port);
      if (taken.insert(address).second) cluster.scheduler = address;
    }
  }
  return OkStatus();
}

}  // namespace tailcast::app
