#include "tailcast/app/cell_session.h"

#include <optional>

#include "tailcast/base/scope.h"

namespace tailcast::app {

Result<std::unique_ptr<CellSession>> CellSession::Open(const CellOptions& options) {
  TAILCAST_ASSIGN_OR_RETURN(const std::string scheduler, options.Find());
  return OpenAt(scheduler, Duration::Seconds(3));
}

Result<std::unique_ptr<CellSession>> CellSession::OpenAt(const std::string& scheduler,
                                                         Duration timeout) {
  std::unique_ptr<CellSession> session(new CellSession);
  session->connector_ = rpc::MakeGrpcConnector(session->loop_);
  session->client_ =
      std::make_unique<cell::CellClient>(session->loop_, *session->connector_, scheduler, "");
  std::optional<Status> started;
  const Scope scope;
  session->client_->Start(timeout, scope.Bind([&](Status s) { started = std::move(s); }));
  session->Until([&] { return started.has_value(); });
  if (!started->ok()) return *started;
  return session;
}

Status CellSession::WaitForStream(const std::string& name, Duration timeout) {
  const auto known = [&] { return client_->FindStream(name).ok(); };
  if (loop_.RunUntil(known, loop_.Now() + timeout)) return OkStatus();
  return DeadlineExceededError("cell " + client_->view().cell() + " has not heard of stream '" +
                               name + "' yet; is its scheduler up, and the link to it?");
}

Result<DeploymentCell> FindSource(const Deployment& deployment, const std::string& stream) {
  Status silent, unknown;
  for (const DeploymentCell& cell : deployment.cells) {
    auto session = CellSession::OpenAt(cell.scheduler, Duration::Seconds(2));
    if (!session.ok()) {
      silent = session.status().WithContext("cell " + cell.name);
      continue;
    }
    const auto config = (*session)->client().FindStream(stream);
    if (config.ok()) return deployment.Find(config->source());
    if (unknown.ok()) unknown = config.status();
  }
  if (!silent.ok()) return silent;
  return unknown.ok() ? FailedPreconditionError("the deployment has no cells") : unknown;
}

copytree::Tree TreeOf(const v1::StreamConfig& stream) {
  copytree::Tree tree{.source = stream.source(), .edges = {}};
  for (const v1::TreeEdge& edge : stream.tree()) tree.edges.push_back({edge.from(), edge.to()});
  return tree;
}

Status WaitForStreamEverywhere(const Deployment& deployment, const v1::StreamConfig& stream,
                               Duration timeout) {
  const MonotonicTime end = ReadMonotonicClock() + timeout;
  for (const auto& edge : stream.tree()) {
    TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell cell, deployment.Find(edge.to()));
    TAILCAST_ASSIGN_OR_RETURN(auto session,
                              CellSession::OpenAt(cell.scheduler, end - ReadMonotonicClock()));
    TAILCAST_RETURN_IF_ERROR(session->WaitForStream(stream.name(), end - ReadMonotonicClock()));
  }
  return OkStatus();
}

}  // namespace tailcast::app
