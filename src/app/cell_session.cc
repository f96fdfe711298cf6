#include "tailcast/app/cell_session.h"

#include "tailcast/rpc/plain_reason.h"

namespace tailcast::app {
namespace {

// A call was on its way, and nobody said what became of it ("ADDRESS: the connection was closed").
// A scheduler that answers says what it did; where none is reached nothing was done.
bool IsUnanswered(const Status& status) {
  if (IsCancelled(status)) return true;
  std::string_view address = status.message();
  for (const std::string_view reason :
       {rpc::kConnectionClosed, rpc::kServerEnds, rpc::kNoAnswerInTime}) {
    if (!address.ends_with(reason)) continue;
    address.remove_suffix(reason.size());
    return address.ends_with(": ") && address.find(' ') == address.size() - 1;
  }
  return false;
}

}  // namespace

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
  TAILCAST_RETURN_IF_ERROR(session->Call<Status>(
      [&](Callback<void(Status)> done) { session->client_->Start(timeout, std::move(done)); }));
  return session;
}

Status CellSession::WithLook(const Status& status, std::string_view look) {
  if (look.empty() || !IsUnanswered(status)) return status;
  return {status.code(),
          status.message() + "; whether it was done is not known: " + std::string(look)};
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
