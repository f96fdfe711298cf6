// A reader's connection while it is being made, and its engine's end after that. Shared by the
// connector, the endpoint (both on the loop) and the reactor.
#pragma once

#include <atomic>
#include <memory>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/fabric/reactor.h"

namespace tailcast::fabric {

// Of reads and of messages alike.
class ClientEnd : public Reactor::Handler, public std::enable_shared_from_this<ClientEnd> {
 public:
  virtual ~ClientEnd() = default;
  // Reactor thread. Connects and says hello; calls `ready` there once, with the outcome.
  virtual void Start(Callback<void(Status)> ready) = 0;
  // Reactor thread. No event and no access to readers' memory after it; idempotent. Every session
  // that was started is shut down in the end.
  virtual void Shutdown() = 0;
  // For tasks that hold the session, on either thread: it ends with the last of them.
  const Scope& scope() const { return scope_; }

 private:
  Scope scope_;
};

class ClientSession : public ClientEnd {
 public:
  // Loop thread, once, after `ready` with Ok.
  virtual std::unique_ptr<Endpoint> MakeEndpoint(std::shared_ptr<Reactor> reactor) = 0;
};

}  // namespace tailcast::fabric
