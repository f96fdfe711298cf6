#include "tailcast/scheduler/peer_links.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/nearest.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");

std::vector<std::string> Names(const std::vector<Neighbour>& neighbours) {
  std::vector<std::string> names;
  names.reserve(neighbours.size());
  for (const Neighbour& n : neighbours) names.push_back(n.cell);
  return names;
}

}  // namespace

bool IsSettled(const v1::StreamConfig& stream, const std::string& cell) {
  return stream.source() == cell || stream.settled_version() >= stream.tree_version();
}

PeerLinks::PeerLinks(EventLoop& loop, rpc::Connector& connector, MetricRegistry& metrics,
                     CoreDriver& driver, const cell::RegistryCore& registry,
                     PeerLinksOptions options, std::function<void()> on_view)
    : loop_(loop),
      connector_(connector),
      metrics_(metrics),
      driver_(driver),
      registry_(registry),
      options_(std::move(options)),
      on_view_(std::move(on_view)) {}

void PeerLinks::Update() {
  for (const std::string& cell : driver_.core().Targets()) {
    if (links_.contains(cell)) {
      Tell(cell);
      continue;
    }
    const auto neighbour = std::find_if(options_.neighbours.begin(), options_.neighbours.end(),
                                        [&](const Neighbour& n) { return n.cell == cell; });
    if (neighbour != options_.neighbours.end()) {
      Connect(*neighbour);
    } else if (unknown_.insert(cell).second) {
      kLog.Error("cell ", options_.cell, " should copy to cell ", cell,
                 ", but its configuration has no address for it",
                 DidYouMean(cell, Names(options_.neighbours)));
    }
  }
}

void PeerLinks::Connect(const Neighbour& neighbour) {
  const auto it =
      links_.emplace(neighbour.cell, std::make_unique<Link>(loop_, connector_, neighbour)).first;
  Link& link = *it->second;
  link.view.SetOnChange(link.scope.Bind([this, &link](const v1::CellView&) { OnView(link); }));
  link.view.Start(Duration::Infinite(), link.scope.Bind([](const Status&) {}));
  Tell(link);
}

void PeerLinks::OnView(Link& link) {
  const v1::CellView& view = link.view.view();
  std::vector<WorkerInfo> writers;
  for (const v1::ProcessInfo& process : view.processes()) {
    if (process.role() == v1::ROLE_WRITER) {
      writers.push_back({process.name(), process.rpc_address(),
                         ProcessIncarnation{process.incarnation()}, process.leaving()});
    }
  }
  SchedulerCore& core = driver_.core();
  core.OnWriters(driver_.now(), link.cell, link.via, writers);
  for (const v1::StreamConfig& stream : view.streams()) {
    core.OnSettled(driver_.now(), stream::IdOf(stream), link.cell,
                   stream::TreeVersion{stream.settled_version()}, driver_.effects());
  }
  ForgetLost(link);
  CopyLacking(link);
  on_view_();
  driver_.DoWorkSoon();
}

// A cell that lost its registry, and has begun another, is told everything again.
void PeerLinks::ForgetLost(Link& link) {
  const uint64_t registry = link.view.view().registry_id();
  const uint64_t before = std::exchange(link.registry_id, registry);
  if (before == 0 || before == registry) return;
  link.installed.clear();
  link.lacking_seen = 0;
  Tell(link);
}

// What it says that it lacks, since we looked last.
void PeerLinks::CopyLacking(Link& link) {
  const uint64_t before = link.lacking_seen;
  for (const v1::LackingFile& file : link.view.view().lacking()) {
    if (file.look() <= before) continue;
    link.lacking_seen = std::max(link.lacking_seen, file.look());
    const stream::ShardId shard = stream::ShardOf(file);
    if (!driver_.core().OnLacking(driver_.now(), shard, link.cell, file.seq(), file.kind(),
                                  driver_.effects())) {
      continue;
    }
    kLog.Warn("cell ", link.cell, " lacks file ", file.seq(), " of ", shard.ToString(),
              ", which it had: copying it again");
  }
}

bool PeerLinks::IsFinished(const v1::StreamConfig& stream, const std::string& cell) const {
  const auto link = links_.find(cell);
  if (link == links_.end()) return false;
  const auto& theirs = link->second->view.view().streams();
  return std::any_of(theirs.begin(), theirs.end(), [&](const v1::StreamConfig& their) {
    return their.name() == stream.name() && their.incarnation() == stream.incarnation() &&
           their.finished_version() >= stream.tree_version();
  });
}

// --- streams ---

void PeerLinks::Forget(const std::string& stream) {
  for (auto& [cell, link] : links_) link->installed.erase(stream);
}

void PeerLinks::Tell(const std::string& cell) {
  if (const auto link = links_.find(cell); link != links_.end()) Tell(*link->second);
}

void PeerLinks::Tell(Link& link) {
  for (const v1::StreamConfig& stream : registry_.view().streams()) {
    const stream::StreamId id = stream::IdOf(stream);
    // Also a cell that leaves the tree, or that another one feeds from now on.
    const bool concerned =
        link.installed.contains(stream.name()) || driver_.core().Feeds(id, link.cell);
    const ToldStream what{id.incarnation, stream::TreeVersionOf(stream),
                          IsSettled(stream, options_.cell) && driver_.core().Made(id, link.cell),
                          !stream.has_change(), stream.retention().version()};
    if (concerned && link.installed[stream.name()] != what &&
        link.installing.insert(stream.name()).second) {
      Install(link, stream, what);
    }
  }
}

void PeerLinks::Install(Link& link, const v1::StreamConfig& stream, const ToldStream& what) {
  v1::InstallStreamRequest request;
  *request.mutable_stream() = stream;
  request.mutable_stream()->clear_settled_version();
  request.mutable_stream()->clear_finished_version();
  request.mutable_stream()->clear_left_out();
  request.set_settled(what.settled);
  request.set_complete(what.complete);
  link.client->Call(
      "/tailcast.v1.Peer/InstallStream", request.SerializeAsString(), options_.peer_timeout,
      link.scope.Bind([this, &link, name = stream.name(), what](const Result<std::string>& reply) {
        OnInstalled(link, name, what, reply.status());
      }));
}

void PeerLinks::OnInstalled(Link& link, const std::string& stream, const ToldStream& what,
                            const Status& status) {
  link.installing.erase(stream);
  if (status.ok() || IsNotFound(status)) {
    link.installed[stream] = what;
    return Tell(link);
  }
  metrics_
      .GetCounter("tailcast_scheduler_install_failed_total",
                  "Stream configurations that a neighbour did not take; tried again.")
      .Add();
  if (IsInvalidArgument(status) || IsFailedPrecondition(status)) {
    kLog.Error("cell ", link.cell, " refuses stream ", stream, ": ", status.message());
  }
  Retry(link);
}

void PeerLinks::Retry(Link& link) {
  if (link.retry.armed()) return;
  link.retry.After(options_.peer_retry, link.scope.Bind([this, &link] { Tell(link); }));
}

// --- progress ---

void PeerLinks::AskProgress(const stream::ShardId& shard, stream::TreeVersion tree_version,
                            const std::string& cell, int64_t from_seq, int files_max,
                            Callback<void(Result<ShardProgress>)> done) {
  Link& link = *links_.at(cell);
  v1::ShardProgressRequest request;
  stream::SetShard(shard, &request);
  request.set_from_seq(from_seq);
  request.set_files_max(files_max);
  request.set_tree_version(Raw(tree_version));
  link.client->Call(
      "/tailcast.v1.Peer/ShardProgress", request.SerializeAsString(), options_.peer_timeout,
      link.scope.Bind(
          [files_max, done = std::move(done)](const Result<std::string>& bytes) mutable {
            if (!bytes.ok()) return done(bytes.status());
            const auto reply = rpc::Parse<v1::ShardProgressReply>(*bytes);
            if (!reply.ok()) return done(reply.status());
            ShardProgress progress = FromProto(*reply);
            if (reply->files_size() >= files_max && !progress.files.empty()) {
              progress.covered_to = progress.files.back().stem.seq;
            }
            done(std::move(progress));
          }));
}

}  // namespace tailcast::scheduler
