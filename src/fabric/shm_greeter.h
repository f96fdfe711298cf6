// The client's side of a connection over a unix socket until the server has let it in: dials, says
// hello, proves its key, takes what the server hands over.
#pragma once

#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/handshake.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/shm_wire.h"

namespace tailcast::fabric {

// What a server that let us in has handed over.
struct ShmGreeting {
  Descriptor socket;
  ShmReply reply;
  std::vector<ShmRegion> regions;
  std::vector<Descriptor> fds;
};

// Threads: the reactor's; construction any.
class ShmGreeter final : public Reactor::Handler {
 public:
  // `flags`: of the hello.
  ShmGreeter(const DialContext& context, const Target& target, uint32_t flags);
  ~ShmGreeter() { Stop(); }
  ShmGreeter(const ShmGreeter&) = delete;
  ShmGreeter& operator=(const ShmGreeter&) = delete;

  // Once. `rings`: is handed over with the last packet; -1: nothing is. `done` is called once, not
  // inside the call, unless an error is returned. Errors as Connector::Connect's.
  Status Start(int rings, Callback<void(Result<ShmGreeting>)> done);
  // `done` is not called any more. Idempotent.
  void Stop();
  // "the server at PATH"
  std::string server() const { return "the server at " + path_; }

  void OnEvents(uint32_t) override;

 private:
  Status Send(std::string_view packet, bool last);
  // Ok and no socket: go on waiting.
  Result<ShmGreeting> Take();
  Status Bad(const std::string& what) const;

  Reactor* const reactor_;
  const std::string path_;
  const SharedCellKey key_;
  ClientHandshake handshake_;
  int rings_ = -1;
  Descriptor fd_;
  Callback<void(Result<ShmGreeting>)> done_;
};

}  // namespace tailcast::fabric
