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
                     PeerLinksOptions options,
                     std::function<void(const std::set<std::string>&)> on_view)
    : loop_(loop),
      connector_(connector),
      metrics_(metrics),
      driver_(driver),
      registry_(registry),
      options_(std::move(options)),
      on_view_(std::move(on_view)) {}

void PeerLinks::Update(const std::set<std::string>& streams) {
  std::set<std::string> targets;
  for (const std::string& name : streams) {
    const v1::StreamConfig* stream = cell::FindByName(registry_.view().streams(), name);
    if (stream != nullptr) targets.merge(driver_.core().TargetsOf(stream::IdOf(*stream)));
    for (auto& [cell, link] : links_) {
      Settle(*link, name);
      Tell(*link, name);
    }
  }
  for (const std::string& cell : targets) {
    if (links_.contains(cell)) continue;
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
  TellAll(link);
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
  const std::set<std::string> changed = TakeTheirs(link);
  for (const std::string& name : changed) Settle(link, name);
  ForgetLost(link);
  CopyLacking(link);
  for (const std::string& name : changed) Tell(link, name);
  on_view_(changed);
  driver_.DoWorkSoon();
}

std::set<std::string> PeerLinks::TakeTheirs(Link& link) {
  std::map<std::string, Theirs> now;
  for (const v1::StreamConfig& stream : link.view.view().streams()) {
    now[stream.name()] = {stream::IdOf(stream).incarnation,
                          stream::TreeVersion{stream.settled_version()},
                          stream::TreeVersion{stream.finished_version()}};
  }
  std::set<std::string> changed;
  for (const auto& [name, theirs] : now) {
    const auto before = link.theirs.find(name);
    if (before == link.theirs.end() || before->second != theirs) changed.insert(name);
  }
  for (const auto& [name, theirs] : link.theirs) {
    if (!now.contains(name)) changed.insert(name);
  }
  link.theirs = std::move(now);
  return changed;
}

void PeerLinks::Settle(const Link& link, const std::string& stream) {
  const auto theirs = link.theirs.find(stream);
  if (theirs == link.theirs.end()) return;
  driver_.core().OnSettled(driver_.now(), {stream, theirs->second.incarnation}, link.cell,
                           theirs->second.settled, driver_.effects());
}

// A cell that lost its registry, and has begun another, is told everything again.
void PeerLinks::ForgetLost(Link& link) {
  const uint64_t registry = link.view.view().registry_id();
  const uint64_t before = std::exchange(link.registry_id, registry);
  if (before == 0 || before == registry) return;
  link.installed.clear();
  link.lacking_seen = 0;
  TellAll(link);
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
  const auto theirs = link->second->theirs.find(stream.name());
  return theirs != link->second->theirs.end() &&
         theirs->second.incarnation == stream::IdOf(stream).incarnation &&
         theirs->second.finished >= stream::TreeVersionOf(stream);
}

// --- streams ---

void PeerLinks::Forget(const std::string& stream) {
  for (auto& [cell, link] : links_) link->installed.erase(stream);
}

void PeerLinks::Tell(const std::string& cell, const std::string& stream) {
  if (const auto link = links_.find(cell); link != links_.end()) Tell(*link->second, stream);
}

void PeerLinks::TellAll(Link& link) {
  for (const v1::StreamConfig& stream : registry_.view().streams()) Tell(link, stream.name());
}

void PeerLinks::Tell(Link& link, const std::string& name) {
  const v1::StreamConfig* stream = cell::FindByName(registry_.view().streams(), name);
  if (stream == nullptr) return;
  const stream::StreamId id = stream::IdOf(*stream);
  // Also a cell that leaves the tree, or that another one feeds from now on.
  const auto installed = link.installed.find(name);
  if (installed == link.installed.end() && !driver_.core().Feeds(id, link.cell)) return;
  const ToldStream what{id.incarnation, stream::TreeVersionOf(*stream),
                        IsSettled(*stream, options_.cell) && driver_.core().Made(id, link.cell),
                        !stream->has_change(), stream->retention().version()};
  if (installed != link.installed.end() && installed->second == what) return;
  // One that is under way is followed by a look at what there is then.
  if (link.installing.insert(name).second) Install(link, *stream, what);
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
    return Tell(link, stream);
  }
  metrics_
      .GetCounter("tailcast_scheduler_install_failed_total",
                  "Stream configurations that a neighbour did not take; tried again.")
      .Add();
  if (IsInvalidArgument(status) || IsFailedPrecondition(status)) {
    kLog.Error("cell ", link.cell, " refuses stream ", stream, ": ", status.message());
  }
  Retry(link, stream);
}

void PeerLinks::Retry(Link& link, const std::string& stream) {
  link.failed.insert(stream);
  if (link.retry.armed()) return;
  link.retry.After(options_.peer_retry, link.scope.Bind([this, &link] {
    for (const std::string& name : std::exchange(link.failed, {})) Tell(link, name);
  }));
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
  request.set_knows_unread(true);
  link.client->Call(
      "/tailcast.v1.Peer/ShardProgress", request.SerializeAsString(), options_.peer_timeout,
      link.scope.Bind(
          [files_max, done = std::move(done)](const Result<std::string>& bytes) mutable {
            if (!bytes.ok()) return done(bytes.status());
            const auto reply = rpc::Parse<v1::ShardProgressReply>(*bytes);
            if (!reply.ok()) return done(reply.status());
            done(FromProto(*reply, files_max));
          }));
}

}  // namespace tailcast::scheduler
