// A reader's connection while it is being made, and its engine's end after that. Shared by the
// connector, the endpoint (both on the loop) and the reactor.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/cell_key.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/fabric/reactor.h"

namespace tailcast::fabric {

// What the sessions of one connector share; the loop and the reactor outlive them.
struct DialContext {
  ThreadLoop* loop = nullptr;
  Reactor* reactor = nullptr;
  Duration read_timeout;
  SharedCellKey key;  // null: none
};

// Whom an address means.
struct Target {
  std::string where;  // between scheme and incarnation
  ExporterIncarnation incarnation = ExporterIncarnation::kAny;
};

// Of reads and of messages alike.
class ClientEnd : public Reactor::Handler, public std::enable_shared_from_this<ClientEnd> {
 public:
  virtual ~ClientEnd() = default;
  // Reactor thread. Connects and says hello; calls `ready` there once, with the outcome.
  void Start(Callback<void(Status)> ready) {
    ready_ = std::move(ready);
    if (Status status = Begin(); !status.ok()) Finish(std::move(status));
  }
  // Reactor thread. No event and no access to readers' memory after it; idempotent. Every session
  // that was started is shut down in the end.
  void Shutdown() {
    ready_ = nullptr;
    End();
  }
  // For tasks that hold the session, on either thread: it ends with the last of them.
  const Scope& scope() const { return scope_; }

 protected:
  // Finish says how it came out, unless it fails at once.
  virtual Status Begin() = 0;
  // Idempotent.
  virtual void End() = 0;
  void Finish(Status status) {
    Callback<void(Status)> ready = std::exchange(ready_, nullptr);
    if (!status.ok()) Shutdown();
    if (ready) ready(std::move(status));
  }

 private:
  Callback<void(Status)> ready_;  // reactor thread
  Scope scope_;
};

class ClientSession : public ClientEnd {
 public:
  // Loop thread, once, after `ready` with Ok.
  virtual std::unique_ptr<Endpoint> MakeEndpoint(std::shared_ptr<Reactor> reactor) = 0;
};

}  // namespace tailcast::fabric
