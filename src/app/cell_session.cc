#include "cell_session.h"

#include <optional>

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
  session->client_->Start(timeout, [&](Status s) { started = std::move(s); });
  session->Until([&] { return started.has_value(); });
  if (!started->ok()) return *started;
  return session;
}

}  // namespace tailcast::app
