// A command's conversation with one cell: its own loop, turned by the caller.
#pragma once

#include <memory>
#include <string>

#include "command.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::app {

class CellSession {
 public:
  // Connects and fetches the cell's view. Errors are ready to be shown.
  static Result<std::unique_ptr<CellSession>> Open(const CellOptions& options);
  static Result<std::unique_ptr<CellSession>> OpenAt(const std::string& scheduler, Duration timeout);

  ThreadLoop& loop() { return loop_; }
  rpc::Connector& connector() { return *connector_; }
  cell::CellClient& client() { return *client_; }
  // Turns the loop until `done()`.
  template <typename Condition>
  void Until(Condition done) { loop_.RunUntil(done, MonotonicTime::Max()); }

 private:
  CellSession() = default;
  ThreadLoop loop_;
  std::unique_ptr<rpc::Connector> connector_;
  std::unique_ptr<cell::CellClient> client_;
};

}  // namespace tailcast::app
