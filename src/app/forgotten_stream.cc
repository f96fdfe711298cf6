#include "tailcast/app/forgotten_stream.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/deployment.h"
#include "tailcast/cell/topology.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::app {
namespace {

constexpr Duration kAnswerWait = Duration::Seconds(2);

// Those of the deployment, or of the topology that the cell knows.
Result<std::vector<DeploymentCell>> CellsOf(const CellOptions& options) {
  if (!options.dir.empty()) {
    TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(options.dir));
    return deployment.cells;
  }
  TAILCAST_ASSIGN_OR_RETURN(const auto session, CellSession::Open(options));
  TAILCAST_ASSIGN_OR_RETURN(const cell::Topology topology,
                            cell::ParseTopology(session->client().view().topology(), "the topology",
                                                cell::Tables::kSkip));
  std::vector<DeploymentCell> cells;
  for (const cell::TopologyCluster& cluster : topology.clusters) {
    if (!cluster.scheduler.empty()) cells.push_back({cluster.name, cluster.scheduler});
  }
  return cells;
}

Status RemoveIn(CellSession& session, const v1::StreamConfig& stream) {
  return session.Call<Status>(
      [&](auto done) { session.client().ForgetStream(stream, std::move(done)); },
      "`tailcast stream list --cluster` shows whether it is still there");
}

std::string Join(const std::string& text, const std::string& name) {
  return text.empty() ? name : text + ", " + name;
}

}  // namespace

Result<std::string> DeleteForgottenStream(
    const CellOptions& options, const std::string& name,
    const std::function<Status(const v1::StreamConfig&)>& sure) {
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<DeploymentCell> cells, CellsOf(options));
  std::map<std::string, std::unique_ptr<CellSession>> sessions;
  std::string silent;
  std::optional<v1::StreamConfig> stream;
  for (const DeploymentCell& cell : cells) {
    auto session = CellSession::OpenAt(cell.scheduler, kAnswerWait);
    if (!session.ok()) {
      silent = Join(silent, cell.name);
      continue;
    }
    if (!stream) {
      if (const auto found = (*session)->client().FindStream(name); found.ok()) stream = *found;
    }
    sessions.emplace(cell.name, std::move(*session));
  }
  if (!stream) {
    return NotFoundError("no cell that answers has a stream '" + name + "'" +
                         (silent.empty() ? "" : "; these do not answer: " + silent));
  }
  const auto source = sessions.find(stream->source());
  if (source == sessions.end()) {
    return UnavailableError("cell '" + stream->source() + "', the source of stream '" + name +
                            "', does not answer: whether it knows the stream is not known");
  }
  const auto known = source->second->client().FindStream(name);
  if (known.ok() && stream::IdOf(*known) == stream::IdOf(*stream)) {
    return FailedPreconditionError("cell '" + stream->source() + "', the source of stream '" +
                                   name + "', knows it: delete it there, without --forgotten");
  }
  TAILCAST_RETURN_IF_ERROR(sure(*stream));
  std::string done, failed;
  for (const auto& [cell, session] : sessions) {
    const Status removed = RemoveIn(*session, *stream);
    if (removed.ok()) {
      done = Join(done, cell);
    } else {
      failed = Join(failed, cell + " (" + removed.message() + ")");
    }
  }
  if (!silent.empty()) failed = Join(failed, silent + " (no answer)");
  if (done.empty()) return UnavailableError("not known to be deleted in any cell: " + failed);
  return "stream '" + name + "' is deleted in " + done +
         (failed.empty()
              ? ""
              : "; not known to be deleted in " + failed + ": do it again when that answers");
}

}  // namespace tailcast::app
