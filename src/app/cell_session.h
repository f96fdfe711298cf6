// A command's conversation with one cell: its own loop, turned by the caller.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/copytree/tree.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::app {

class CellSession {
 public:
  // Connects and fetches the cell's view. Errors are ready to be shown.
  static Result<std::unique_ptr<CellSession>> Open(const CellOptions& options);
  static Result<std::unique_ptr<CellSession>> OpenAt(const std::string& scheduler,
                                                     Duration timeout);

  // Waits until the cell knows the stream, which travels from its source along the copy tree.
  Status WaitForStream(const std::string& name, Duration timeout);

  ThreadLoop& loop() { return loop_; }
  rpc::Connector& connector() { return *connector_; }
  cell::CellClient& client() { return *client_; }
  // Waits for the end of a call that `start` begins with the callback that it gets; `Outcome` is a
  // Status or a Result.
  //   auto stream = session.Call<Result<v1::StreamConfig>>(
  //       [&](auto done) { session.client().CreateStream(config, std::move(done)); }, "...");
  // Of a call that changes something, `look` says how to find out what became of it ("`tailcast
  // stream list` shows it"): an error after which that is not known says so, with these words.
  template <typename Outcome, typename Start>
  Outcome Call(Start start, std::string_view look = "") {
    std::optional<Outcome> outcome;
    const Scope scope;
    start(scope.Bind([&](Outcome o) { outcome.emplace(std::move(o)); }));
    Until([&] { return outcome.has_value(); });
    if constexpr (std::is_same_v<Outcome, Status>) {
      return WithLook(*outcome, look);
    } else {
      if (outcome->ok()) return std::move(*outcome);
      return WithLook(outcome->status(), look);
    }
  }
  // Turns the loop until `done()`.
  template <typename Condition>
  void Until(Condition done) {
    loop_.RunUntil(done, MonotonicTime::Max());
  }

 private:
  CellSession() = default;
  static Status WithLook(const Status& status, std::string_view look);
  ThreadLoop loop_;
  std::unique_ptr<rpc::Connector> connector_;
  std::unique_ptr<cell::CellClient> client_;
};

// The cell where the stream begins, and is changed. Any cell knows it, so those that do not answer
// are passed over. NotFound (with the nearest name); Unavailable: no cell that answers knows it.
Result<DeploymentCell> FindSource(const Deployment& deployment, const std::string& stream);

// The stream's copy tree, its edges as they are configured (copytree::Normalized orders them).
copytree::Tree TreeOf(const v1::StreamConfig& stream);

// Waits until every cell of a stream knows it. DeadlineExceeded names the cell that does not.
Status WaitForStreamEverywhere(const Deployment& deployment, const v1::StreamConfig& stream,
                               Duration timeout);

}  // namespace tailcast::app
