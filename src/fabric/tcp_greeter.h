// The client's side of a tcp connection until the server has let it in: dials, says hello, proves
// its key, takes the welcome.
#pragma once

#include <array>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/handshake.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_dialer.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {

// The word of a server that let us in; not a byte behind it was read.
struct TcpGreeting {
  Descriptor fd;
  TcpFrame frame;    // kWelcome
  std::string body;  // of frame.body_bytes
};

// Threads: the reactor's; construction any.
class TcpGreeter final : public Reactor::Handler {
 public:
  // Of the server's frames.
  static constexpr size_t kBodyMax = sizeof(TcpWelcome) + kRegionsMax * sizeof(TcpRegion);

  // `flags`: of the hello.
  TcpGreeter(const DialContext& context, HostPort where, uint32_t flags,
             ExporterIncarnation expected_incarnation);
  ~TcpGreeter() { Stop(); }
  TcpGreeter(const TcpGreeter&) = delete;
  TcpGreeter& operator=(const TcpGreeter&) = delete;

  // Once. `done` is called once, with errors as Connector::Connect's.
  void Start(Callback<void(Result<TcpGreeting>)> done);
  // `done` is not called any more. Idempotent.
  void Stop();
  std::string name() const { return dialer_.name(); }
  std::string server() const { return "the server at " + name(); }

  void OnEvents(uint32_t) override;

 private:
  void OnDialled(Result<Descriptor> fd);
  Status Send(const std::string& frame);
  // Ok and no descriptor: go on waiting.
  Result<TcpGreeting> Take();
  Result<TcpGreeting> TakeFrame(const TcpFrame& frame, const char* body);
  void Finish(Result<TcpGreeting> greeting);
  Status Bad(const std::string& what) const;

  Reactor* const reactor_;
  const SharedCellKey key_;
  ClientHandshake handshake_;
  TcpDialer dialer_;
  Descriptor fd_;
  std::array<char, sizeof(TcpFrame) + kBodyMax> in_;
  size_t used_ = 0;
  Callback<void(Result<TcpGreeting>)> done_;
  Scope scope_;  // reactor thread
};

}  // namespace tailcast::fabric
