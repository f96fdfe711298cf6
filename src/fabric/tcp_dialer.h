// Resolves a name and connects a tcp socket, without blocking.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

// Threads: the reactor's; construction and destruction any.
class TcpDialer final : public Reactor::Handler {
 public:
  TcpDialer(Reactor* reactor, HostPort where);
  ~TcpDialer();
  TcpDialer(const TcpDialer&) = delete;
  TcpDialer& operator=(const TcpDialer&) = delete;

  // Once. `done` gets a connected, non-blocking socket, or Unavailable with what was wrong.
  void Start(Callback<void(Result<Descriptor>)> done);
  // `done` is not called any more. Idempotent.
  void Stop();
  std::string name() const { return where_.host + ":" + std::to_string(where_.port); }

  void OnEvents(uint32_t) override;

 private:
  struct ResolveJob;
  void Connect(const SocketAddress& address);
  void Finish(Result<Descriptor> result);

  Reactor* const reactor_;
  const HostPort where_;
  Callback<void(Result<Descriptor>)> done_;
  std::shared_ptr<ResolveJob> resolve_;
  Descriptor fd_;
  Scope scope_;  // reactor thread
};

// Both ends of a channel: the kernel finds out that the other host is gone, within `timeout`.
void KeepAlive(const Descriptor& fd, Duration timeout);

}  // namespace tailcast::fabric
