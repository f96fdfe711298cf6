#include "tailcast/scheduler/leaver_links.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr int kFilesMax = 200;  // compared at once

// As other cells are told it.
v1::StreamConfig ToldConfig(const v1::StreamConfig& stream) {
  v1::StreamConfig told = stream;
  told.clear_settled_version();
  told.clear_finished_version();
  told.clear_left_out();
  return told;
}

}  // namespace

LeaverLinks::LeaverLinks(EventLoop& loop, rpc::Connector& connector, RegistryService& registry,
                         DiskProgress& disk, LeaverLinksOptions options)
    : loop_(loop),
      connector_(connector),
      registry_(registry),
      disk_(disk),
      options_(std::move(options)),
      core_(options_.core) {}

rpc::Client* LeaverLinks::Find(const std::string& cell) {
  auto& client = clients_[cell];
  if (client != nullptr) return client.get();
  const auto neighbour = std::find_if(options_.neighbours.begin(), options_.neighbours.end(),
                                      [&](const Neighbour& n) { return n.cell == cell; });
  if (neighbour == options_.neighbours.end()) return nullptr;
  client = connector_.MakeClient(neighbour->scheduler_address, neighbour->via);
  return client.get();
}

// Only what is durable is told to anybody.
void LeaverLinks::OnWritten() {
  const auto& durable = registry_.core().catalogue().leavers();
  if (durable.empty() && core_.empty()) return;
  streams_.clear();
  for (const v1::StreamConfig& stream : registry_.view().streams()) {
    streams_.emplace(stream::IdOf(stream), &stream);
  }
  std::vector<KnownLeaver> leavers;
  for (const v1::Leaver& leaver : durable) {
    const auto stream =
        streams_.find({leaver.stream(), stream::StreamIncarnation{leaver.incarnation()}});
    // A cell that left the topology is told when it comes back to it.
    if (stream == streams_.end() || Find(leaver.cell()) == nullptr) continue;
    leavers.push_back({{stream->first, leaver.cell(), leaver.order()},
                       stream->second->shards(),
                       cell::NamesCell(*stream->second, leaver.cell()),
                       leaver.going()});
  }
  core_.OnLeavers(loop_.Now(), leavers);
  DoWork();
}

void LeaverLinks::DoWork() {
  LeaverEffects effects;
  core_.DoWork(loop_.Now(), effects);
  for (const LeaverId& id : effects.tell) Tell(id);
  for (const LeaverEffects::Compare& what : effects.compare) Compare(what);
  for (const LeaverId& id : effects.order) Order(id);
  bool going = false;
  for (const LeaverId& id : effects.go) {
    going |= registry_.catalogue().BeginGoing(id.stream, id.cell, id.order);
  }
  if (going) registry_.Persist();
  timer_.Cancel();
  if (const MonotonicTime next = core_.NextWork(); next != MonotonicTime::Max()) {
    timer_.At(next, scope_.Bind([this] { DoWork(); }));
  }
}

void LeaverLinks::Tell(const LeaverId& id) {
  v1::InstallStreamRequest request;
  *request.mutable_stream() = ToldConfig(*streams_.at(id.stream));
  request.set_complete(!request.stream().has_change());
  Find(id.cell)->Call("/tailcast.v1.Peer/InstallStream", request.SerializeAsString(),
                      options_.call_timeout,
                      scope_.Bind([this, id](const Result<std::string>& reply) {
                        core_.OnTold(loop_.Now(), id, reply.ok());
                        DoWork();
                      }));
}

// What is there is read first: what is here then can only be more.
void LeaverLinks::Compare(const LeaverEffects::Compare& what) {
  const stream::ShardId shard{what.id.stream, what.shard};
  v1::ShardProgressRequest request;
  stream::SetShard(shard, &request);
  request.set_from_seq(what.from_seq);
  request.set_files_max(kFilesMax);
  request.set_tree_version(streams_.at(shard.stream)->tree_version());
  request.set_knows_unread(true);
  const auto failed = [this, id = what.id] {
    core_.OnCompareFailed(loop_.Now(), id);
    DoWork();
  };
  Find(what.id.cell)
      ->Call("/tailcast.v1.Peer/ShardProgress", request.SerializeAsString(), options_.call_timeout,
             scope_.Bind([this, shard, what, failed](const Result<std::string>& bytes) {
               const auto reply = bytes.ok() ? rpc::Parse<v1::ShardProgressReply>(*bytes)
                                             : Result<v1::ShardProgressReply>(bytes.status());
               if (!reply.ok()) return failed();
               ShardProgress there = FromProto(*reply, kFilesMax);
               disk_.Read(shard, registry_.core().catalogue().WrittenFloor(shard), what.from_seq,
                          kFilesMax,
                          scope_.Bind([this, id = what.id, there = std::move(there),
                                       failed](const Result<ShardProgress>& here) {
                            if (!here.ok()) return failed();
                            core_.OnCompared(loop_.Now(), id, CompareCopies(there, *here));
                            DoWork();
                          }));
             }));
}

void LeaverLinks::Order(const LeaverId& id) {
  v1::LeaveStreamRequest request;
  *request.mutable_stream() = ToldConfig(*streams_.at(id.stream));
  request.set_order(id.order);
  Find(id.cell)->Call("/tailcast.v1.Peer/LeaveStream", request.SerializeAsString(),
                      options_.call_timeout,
                      scope_.Bind([this, id](const Result<std::string>& bytes) {
                        OnOrdered(id, bytes);
                        DoWork();
                      }));
}

void LeaverLinks::OnOrdered(const LeaverId& id, const Result<std::string>& bytes) {
  core_.OnOrdered(loop_.Now(), id);
  const auto reply = bytes.ok() ? rpc::Parse<v1::LeaveStreamReply>(*bytes)
                                : Result<v1::LeaveStreamReply>(bytes.status());
  if (!reply.ok()) {
    if (!IsUnavailable(reply.status()) && reply.status().code() != StatusCode::kDeadlineExceeded) {
      kLog.Error("cell ", id.cell, " does not drop what it has of stream ", id.stream.name, ": ",
                 reply.status().message());
    }
    return;
  }
  if (!reply->gone()) return;
  kLog.Info("stream ", id.stream.name, ": cell ", id.cell,
            ", which has left its copy tree, has dropped its copies");
  registry_.catalogue().OnGone(id.stream, id.cell, id.order);
  registry_.Persist();
}

void LeaverLinks::OnLeftFiles(const v1::StreamConfig& stream) {
  const stream::StreamId id = stream::IdOf(stream);
  rpc::Client* client = Find(stream.source());
  if (client == nullptr || !asking_.insert(id).second) return;
  v1::AskToLeaveRequest request;
  request.set_stream(id.name);
  request.set_incarnation(Raw(id.incarnation));
  request.set_cell(registry_.core().catalogue().cell());
  client->Call("/tailcast.v1.Peer/AskToLeave", request.SerializeAsString(), options_.call_timeout,
               scope_.Bind([this, id](const Result<std::string>&) { asking_.erase(id); }));
}

}  // namespace tailcast::scheduler
