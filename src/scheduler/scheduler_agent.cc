#include "tailcast/scheduler/scheduler_agent.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tailcast/base/log.h"
#include "tailcast/base/nearest.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr Duration kViewWaitMax = Duration::Seconds(60);
constexpr int kProgressFilesMax = 1000;
constexpr int kStartMax = 1000;
constexpr int kRemovalsMax = 1000;

using stream::ShardId;

std::vector<std::string> NeighbourNames(const std::vector<Neighbour>& neighbours) {
  std::vector<std::string> names;
  names.reserve(neighbours.size());
  for (const Neighbour& n : neighbours) names.push_back(n.cell);
  return names;
}

void Merge(Effects& into, Effects from) {
  for (auto& [reader, ids] : from.stop) {
    auto& all = into.stop[reader];
    all.insert(all.end(), ids.begin(), ids.end());
  }
  for (auto& [reader, operations] : from.start) {
    auto& all = into.start[reader];
    std::move(operations.begin(), operations.end(), std::back_inserter(all));
  }
  into.progress.merge(from.progress);
  into.list.merge(from.list);
  into.steps.insert(into.steps.end(), from.steps.begin(), from.steps.end());
}

}  // namespace

SchedulerAgent::SchedulerAgent(EventLoop& loop, storage::Store& store, rpc::Connector& connector,
                               MetricRegistry& metrics, SchedulerOptions options)
    : loop_(loop),
      store_(store),
      connector_(connector),
      metrics_(metrics),
      options_(std::move(options)) {}

SchedulerAgent::~SchedulerAgent() {
  *alive_ = false;
  for (TimerId timer :
       {expiry_timer_, decide_timer_, view_timer_, rescan_timer_, shed_timer_, self_timer_}) {
    loop_.Cancel(timer);
  }
  for (auto& [name, link] : readers_) loop_.Cancel(link.retry);
  for (auto& [name, link] : peers_) loop_.Cancel(link.retry);
  for (auto& [id, waiting] : waiting_views_) loop_.Cancel(waiting.timer);
}

void SchedulerAgent::Attach(rpc::Server& server) {
  const auto handle = [&](const char* method, Handler f) {
    server.Handle(std::string("/tailcast.v1.") + method,
                  [this, alive = alive_, f](const std::string& request, rpc::Responder respond) {
                    if (!*alive) return;
                    if (registry_ == nullptr || dead_) {
                      respond(UnavailableError("the scheduler of cell '" + options_.registry.cell +
                                               "' " + (dead_ ? "ends" : "is starting")));
                      return;
                    }
                    (this->*f)(request, std::move(respond));
                  });
  };
  handle("Cell/GetView", &SchedulerAgent::OnGetView);
  handle("Cell/Register", &SchedulerAgent::OnRegister);
  handle("Cell/NotifyFile", &SchedulerAgent::OnNotifyFile);
  handle("Cell/CreateStream", &SchedulerAgent::OnCreateStream);
  handle("Cell/ListStreams", &SchedulerAgent::OnListStreams);
  handle("Cell/DeleteStream", &SchedulerAgent::OnDeleteStream);
  handle("Peer/InstallStream", &SchedulerAgent::OnInstallStream);
  handle("Peer/RemoveStream", &SchedulerAgent::OnRemoveStream);
  handle("Peer/ShardProgress", &SchedulerAgent::OnShardProgress);
}

void SchedulerAgent::Start(Callback<void(Status)> started, Callback<void(Status)> on_fatal) {
  started_ = std::move(started);
  on_fatal_ = std::move(on_fatal);
  log_ = std::make_unique<cell::RegistryStore>(loop_, store_);
  log_->Open([this, alive = alive_](Result<v1::RegistrySnapshot> snapshot) {
    if (!*alive) return;
    if (!snapshot.ok()) return std::exchange(started_, nullptr)(snapshot.status());
    OnOpened(std::move(*snapshot));
  });
}

void SchedulerAgent::OnOpened(v1::RegistrySnapshot snapshot) {
  if (snapshot.scheduler_incarnation() > stream::kSchedulerIncarnationMax) {
    return std::exchange(started_, nullptr)(
        ResourceExhaustedError("the cell has used up its scheduler incarnations"));
  }
  started_at_ = loop_.Now();
  auto registry =
      std::make_unique<cell::RegistryCore>(options_.registry, std::move(snapshot), options_.seed);
  CoreOptions core = options_.core;
  core.cell = options_.registry.cell;
  core.incarnation = static_cast<uint32_t>(registry->scheduler_incarnation());
  core_ = std::make_unique<SchedulerCore>(core, options_.seed ^ 0x9e3779b97f4a7c15ull);
  registry_ = std::move(registry);
  kLog.Info("cell ", options_.registry.cell, ": scheduler ", core.incarnation, " begins");
  Persist([this](const Status& status) {
    if (!status.ok()) return std::exchange(started_, nullptr)(status);
    ApplyStreams();
    decide_timer_ = loop_.At(started_at_ + options_.decide_grace, [this] {
      decide_timer_ = 0;
      Kick();
    });
    view_timer_ = loop_.At(started_at_ + options_.view_grace, [this] { ViewChanged(); });
    rescan_timer_ = loop_.After(options_.rescan_interval, [this] { Rescan(); });
    RegisterSelf();
    std::exchange(started_, nullptr)(OkStatus());
  });
}

void SchedulerAgent::RegisterSelf() {
  if (options_.self.name().empty() || dead_) return;
  const uint64_t before = registry_->view().version();
  const auto reply = registry_->Register(loop_.Now(), options_.self);
  if (!reply.ok()) {
    kLog.Error("the scheduler's own entry: ", reply.status().ToString());
    return;
  }
  if (registry_->view().version() != before) ViewChanged();
  ArmExpiry();
  self_timer_ = loop_.After(options_.registry.lease / 3, [this] { RegisterSelf(); });
}

void SchedulerAgent::Fatal(Status status) {
  if (dead_) return;
  dead_ = true;
  kLog.Error("cell ", options_.registry.cell, ": ", status.ToString());
  for (auto& [id, waiting] : waiting_views_) {
    loop_.Cancel(waiting.timer);
    waiting.respond(UnavailableError("the scheduler ends"));
  }
  waiting_views_.clear();
  if (on_fatal_) {
    loop_.Post([on_fatal = std::make_shared<Callback<void(Status)>>(std::move(on_fatal_)), status] {
      (*on_fatal)(status);
    });
  }
}

void SchedulerAgent::Persist(Callback<void(Status)> then) {
  if (!registry_->NeedsWrite()) {
    loop_.Post([alive = alive_, then = std::move(then)]() mutable {
      if (*alive) then(OkStatus());
    });
    return;
  }
  auto snapshot = std::make_shared<v1::RegistrySnapshot>(registry_->TakeSnapshot());
  log_->Write(*snapshot, [this, alive = alive_, snapshot,
                          then = std::move(then)](const Status& status) mutable {
    if (!*alive) return;
    if (!status.ok()) {
      Fatal(status);
      then(status);
      return;
    }
    registry_->OnWritten(*snapshot);
    ViewChanged();
    ApplyStreams();
    then(OkStatus());
  });
}

// --- the registry's service ---

void SchedulerAgent::OnGetView(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::GetViewRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  if (ViewIsReady() && request->known_version() != registry_->view().version()) {
    return respond(registry_->view().SerializeAsString());
  }
  if (static_cast<int>(waiting_views_.size()) >= options_.waiting_views_max) {
    return respond(ResourceExhaustedError("too many clients wait for the view"));
  }
  const Duration wait =
      std::min(Duration::Millis(std::max<int64_t>(0, request->wait_ms())), kViewWaitMax);
  // A first view is worth waiting for, even if the client does not say so.
  const Duration at_least = ViewIsReady() ? Duration() : Duration::Seconds(2);
  const uint64_t id = next_waiting_++;
  WaitingView& waiting = waiting_views_[id];
  waiting.known_version = request->known_version();
  waiting.respond = std::move(respond);
  waiting.timer = loop_.After(std::max(wait, at_least), [this, id] {
    const auto it = waiting_views_.find(id);
    rpc::Responder respond = std::move(it->second.respond);
    waiting_views_.erase(it);
    if (!ViewIsReady()) {
      respond(UnavailableError("the cell's processes are still registering"));
    } else {
      respond(registry_->view().SerializeAsString());
    }
  });
}

bool SchedulerAgent::ViewIsReady() const {
  if (loop_.Now() >= started_at_ + options_.view_grace) return true;
  if (options_.registry.cache_replicas.empty()) return false;
  for (const auto& replica : registry_->view().data_ring().replicas()) {
    if (replica.rpc_address().empty()) return false;
  }
  return true;
}

void SchedulerAgent::ViewChanged() {
  if (flush_posted_) return;
  flush_posted_ = true;
  loop_.Post([this, alive = alive_] {
    if (!*alive) return;
    flush_posted_ = false;
    FlushViews();
  });
}

void SchedulerAgent::FlushViews() {
  if (dead_ || !ViewIsReady()) return;
  const uint64_t version = registry_->view().version();
  std::string view;
  for (auto it = waiting_views_.begin(); it != waiting_views_.end();) {
    if (it->second.known_version == version) {
      ++it;
      continue;
    }
    if (view.empty()) view = registry_->view().SerializeAsString();
    loop_.Cancel(it->second.timer);
    rpc::Responder respond = std::move(it->second.respond);
    it = waiting_views_.erase(it);
    respond(view);
  }
}

void SchedulerAgent::OnRegister(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::RegisterRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const uint64_t before = registry_->view().version();
  const auto reply = registry_->Register(loop_.Now(), request->process());
  if (!reply.ok()) {
    kLog.Warn("refused to register: ", reply.status().ToString());
    return respond(reply.status());
  }
  respond(reply->SerializeAsString());
  ArmExpiry();
  if (registry_->view().version() == before) return;
  ViewChanged();
  UpdateReaders();
}

void SchedulerAgent::ArmExpiry() {
  if (expiry_timer_ != 0) return;
  const MonotonicTime next = registry_->NextExpiry();
  if (next == MonotonicTime::Max()) return;
  expiry_timer_ = loop_.At(next, [this] {
    expiry_timer_ = 0;
    const auto gone = registry_->Expire(loop_.Now());
    if (!gone.empty()) {
      for (const std::string& name : gone) {
        kLog.Warn("cell ", options_.registry.cell, ": the lease of ", name, " ran out");
      }
      ViewChanged();
      UpdateReaders();
    }
    ArmExpiry();
  });
}

void SchedulerAgent::OnCreateStream(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::CreateStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  std::vector<v1::TreeEdge> planned;
  if (request->stream().tree_size() == 0 && options_.plan_tree) {
    v1::StreamConfig config = request->stream();
    if (config.source().empty()) config.set_source(options_.registry.cell);
    auto tree = options_.plan_tree(config);
    if (!tree.ok()) return respond(tree.status());
    planned = std::move(*tree);
  }
  auto stream = registry_->CreateStream(request->stream(), planned, loop_.WallNow());
  if (!stream.ok()) return respond(stream.status());
  Persist(
      [respond = std::move(respond), stream = std::move(*stream)](const Status& status) mutable {
        if (!status.ok()) return respond(status);
        respond(stream.SerializeAsString());
      });
}

void SchedulerAgent::OnListStreams(const std::string&, rpc::Responder respond) {
  v1::ListStreamsReply reply;
  *reply.mutable_streams() = registry_->view().streams();
  respond(reply.SerializeAsString());
}

void SchedulerAgent::OnDeleteStream(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::DeleteStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  auto stream = registry_->DeleteStream(request->name(), 0);
  if (!stream.ok()) return respond(stream.status());
  RemoveStream(*stream);
  Persist([respond = std::move(respond)](const Status& status) mutable {
    if (!status.ok()) return respond(status);
    respond(v1::DeleteStreamReply().SerializeAsString());
  });
}

void SchedulerAgent::OnInstallStream(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::InstallStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const v1::StreamConfig* before = registry_->FindStream(request->stream().name());
  const v1::StreamConfig old = before == nullptr ? v1::StreamConfig() : *before;
  auto stream =
      registry_->InstallStream(request->stream(), {request->settled(), request->complete()});
  if (!stream.ok()) return respond(stream.status());
  if (old.incarnation() != 0 && old.incarnation() != stream->incarnation()) RemoveStream(old);
  Persist([respond = std::move(respond),
           version = stream->tree_version()](const Status& status) mutable {
    if (!status.ok()) return respond(status);
    v1::InstallStreamReply reply;
    reply.set_tree_version(version);
    respond(reply.SerializeAsString());
  });
}

void SchedulerAgent::OnRemoveStream(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::RemoveStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  if (request->incarnation() == 0) return respond(InvalidArgumentError("incarnation is 0"));
  auto stream = registry_->DeleteStream(request->name(), request->incarnation());
  if (stream.ok()) RemoveStream(*stream);
  // One that is not known is removed already.
  Persist([respond = std::move(respond)](const Status& status) mutable {
    if (!status.ok()) return respond(status);
    respond(v1::RemoveStreamReply().SerializeAsString());
  });
}

// Ends its copies here and tells the cells downstream.
void SchedulerAgent::RemoveStream(const v1::StreamConfig& stream) {
  Effects effects;
  core_->OnStreamRemoved({stream.name(), stream.incarnation()}, effects);
  Merge(pending_, std::move(effects));
  applied_streams_.erase(stream.name());
  for (const v1::TreeEdge& edge : stream.tree()) {
    if (edge.from() != options_.registry.cell) continue;
    const auto peer = peers_.find(edge.to());
    if (peer == peers_.end()) continue;
    v1::RemoveStreamRequest request;
    request.set_name(stream.name());
    request.set_incarnation(stream.incarnation());
    if (peer->second.removals.size() < kRemovalsMax) peer->second.removals.push_back(request);
    peer->second.installed.erase(stream.name());
    PushStreams(edge.to());
  }
  Kick();
}

void SchedulerAgent::OnNotifyFile(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::FileNotice>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto stem = stream::Stem::Parse(request->stem());
  if (!stem) return respond(InvalidArgumentError("notice.stem is '" + request->stem() + "'"));
  std::optional<int64_t> seal[stream::kParts];
  if (request->sealed()) {
    if (request->sealed_data_length() < 0 || request->sealed_index_length() < 0 ||
        request->sealed_index_length() % 32 != 0) {
      return respond(InvalidArgumentError("notice.sealed_*_length is no seal"));
    }
    seal[0] = request->sealed_data_length();
    seal[1] = request->sealed_index_length();
  }
  const stream::FileId file{{{request->stream(), request->incarnation()}, request->shard()}, *stem};
  Effects effects;
  if (!core_->OnNotice(loop_.Now(), file, seal, effects)) {
    return respond(NotFoundError("cell '" + options_.registry.cell + "' has no stream '" +
                                 request->stream() + "' with incarnation " +
                                 std::to_string(request->incarnation()) + " and shard " +
                                 std::to_string(request->shard())));
  }
  Merge(pending_, std::move(effects));
  v1::FileNoticeReply reply;
  reply.set_floor_seq(
      registry_->Floor(request->stream(), request->incarnation(), request->shard()));
  respond(reply.SerializeAsString());
  Run();  // a new file starts in this very turn
}

// --- streams and neighbours ---

void SchedulerAgent::ApplyStreams() {
  Effects effects;
  for (const v1::StreamConfig& stream : registry_->view().streams()) {
    const Told now{stream.incarnation(), stream.tree_version(), Settled(stream),
                   !stream.has_change()};
    Told& applied = applied_streams_[stream.name()];
    if (applied == now) continue;
    applied = now;
    core_->OnStream(loop_.Now(), stream, effects);
  }
  Merge(pending_, std::move(effects));
  UpdatePeers();
  CheckFinished();
  Kick();
}

// This cell is fed over the path that the tree wants.
bool SchedulerAgent::Settled(const v1::StreamConfig& stream) const {
  return stream.source() == options_.registry.cell ||
         stream.settled_version() >= stream.tree_version();
}

// Records which changes are carried out in this cell and below it.
void SchedulerAgent::CheckFinished() {
  if (dead_ || registry_ == nullptr) return;
  bool finished = false;
  for (const v1::StreamConfig& stream : registry_->view().streams()) {
    if (stream.finished_version() >= stream.tree_version() || !Settled(stream)) continue;
    const stream::StreamId id{stream.name(), stream.incarnation()};
    bool all = true;
    for (const v1::TreeEdge& edge : stream.tree()) {
      if (edge.from() != options_.registry.cell) continue;
      const auto peer = peers_.find(edge.to());
      all = all && core_->Made(id, edge.to()) && peer != peers_.end() &&
            std::any_of(peer->second.view->view().streams().begin(),
                        peer->second.view->view().streams().end(), [&](const auto& theirs) {
                          return theirs.name() == stream.name() &&
                                 theirs.incarnation() == stream.incarnation() &&
                                 theirs.finished_version() >= stream.tree_version();
                        });
    }
    if (!all) continue;
    registry_->SetFinished(stream.name(), stream.tree_version());
    finished = true;
  }
  if (finished) Persist([](const Status&) {});
}

void SchedulerAgent::UpdatePeers() {
  for (const std::string& cell : core_->Targets()) {
    if (peers_.contains(cell)) {
      PushStreams(cell);
      continue;
    }
    const auto neighbour = std::find_if(options_.neighbours.begin(), options_.neighbours.end(),
                                        [&](const Neighbour& n) { return n.cell == cell; });
    if (neighbour == options_.neighbours.end()) {
      if (unknown_neighbours_.insert(cell).second) {
        kLog.Error("cell ", options_.registry.cell, " should copy to cell ", cell,
                   ", but its configuration has no address for it",
                   DidYouMean(cell, NeighbourNames(options_.neighbours)));
      }
      continue;
    }
    PeerLink& link = peers_[cell];
    link.via = neighbour->via;
    link.client = connector_.MakeClient(neighbour->scheduler_address, neighbour->via);
    link.view = std::make_unique<cell::CellClient>(loop_, connector_, neighbour->scheduler_address,
                                                   neighbour->via);
    link.view->SetOnChange([this, cell](const v1::CellView&) { OnPeerView(cell); });
    link.view->Start(Duration::Infinite(), [](const Status&) {});
    PushStreams(cell);
  }
}

void SchedulerAgent::OnPeerView(const std::string& cell) {
  const v1::CellView& view = peers_.at(cell).view->view();
  std::vector<WorkerInfo> writers;
  for (const v1::ProcessInfo& process : view.processes()) {
    if (process.role() == v1::ROLE_WRITER) {
      writers.push_back({process.name(), process.rpc_address(), process.incarnation()});
    }
  }
  Effects effects;
  core_->OnWriters(loop_.Now(), cell, peers_.at(cell).via, writers);
  for (const v1::StreamConfig& stream : view.streams()) {
    core_->OnSettled(loop_.Now(), {stream.name(), stream.incarnation()}, cell,
                     stream.settled_version(), effects);
  }
  Merge(pending_, std::move(effects));
  CheckFinished();
  Kick();
}

void SchedulerAgent::PushStreams(const std::string& cell) {
  PeerLink& link = peers_.at(cell);
  if (dead_) return;
  if (!link.removals.empty() && !link.removing) {
    link.removing = true;
    link.client->Call("/tailcast.v1.Peer/RemoveStream", link.removals.front().SerializeAsString(),
                      options_.peer_timeout,
                      [this, alive = alive_, cell](const Result<std::string>& reply) {
                        if (!*alive) return;
                        PeerLink& link = peers_.at(cell);
                        link.removing = false;
                        if (!reply.ok() && !IsInvalidArgument(reply.status()))
                          return RetryPeer(cell);
                        link.removals.erase(link.removals.begin());
                        PushStreams(cell);
                      });
  }
  for (const v1::StreamConfig& stream : registry_->view().streams()) {
    const stream::StreamId id{stream.name(), stream.incarnation()};
    // Also a cell that leaves the tree, or that another one feeds from now on.
    const bool concerned = link.installed.contains(stream.name()) || core_->Feeds(id, cell);
    const Told version{stream.incarnation(), stream.tree_version(),
                       Settled(stream) && core_->Made(id, cell), !stream.has_change()};
    if (!concerned || link.installed[stream.name()] == version ||
        !link.installing.insert(stream.name()).second) {
      continue;
    }
    v1::InstallStreamRequest request;
    *request.mutable_stream() = stream;
    request.mutable_stream()->clear_settled_version();
    request.mutable_stream()->clear_finished_version();
    request.set_settled(version.settled);
    request.set_complete(version.complete);
    link.client->Call(
        "/tailcast.v1.Peer/InstallStream", request.SerializeAsString(), options_.peer_timeout,
        [this, alive = alive_, cell, name = stream.name(),
         version](const Result<std::string>& reply) {
          if (!*alive) return;
          PeerLink& link = peers_.at(cell);
          link.installing.erase(name);
          if (reply.ok() || IsNotFound(reply.status())) {
            link.installed[name] = version;
            return PushStreams(cell);
          }
          metrics_
              .GetCounter("tailcast_scheduler_install_failed_total",
                          "Stream configurations that a neighbour did not take; tried again.")
              .Add();
          if (IsInvalidArgument(reply.status())) {
            kLog.Error("cell ", cell, " refuses stream ", name, ": ", reply.status().message());
          }
          RetryPeer(cell);
        });
  }
}

void SchedulerAgent::RetryPeer(const std::string& cell) {
  PeerLink& link = peers_.at(cell);
  if (link.retry != 0) return;
  link.retry = loop_.After(options_.peer_retry, [this, cell] {
    peers_.at(cell).retry = 0;
    PushStreams(cell);
  });
}

// --- readers ---

void SchedulerAgent::UpdateReaders() {
  std::vector<WorkerInfo> infos;
  std::set<std::string> names;
  for (const v1::ProcessInfo& process : registry_->view().processes()) {
    if (process.role() != v1::ROLE_READER) continue;
    infos.push_back({process.name(), process.rpc_address(), process.incarnation()});
    names.insert(process.name());
    ReaderLink& link = readers_[process.name()];
    if (link.incarnation == process.incarnation() && link.address == process.rpc_address()) {
      continue;
    }
    loop_.Cancel(link.retry);
    link = ReaderLink();
    link.address = process.rpc_address();
    link.incarnation = process.incarnation();
    link.client = connector_.MakeClient(link.address, "");
    ListReader(process.name());
  }
  for (auto it = readers_.begin(); it != readers_.end();) {
    if (names.contains(it->first)) {
      ++it;
    } else {
      loop_.Cancel(it->second.retry);
      it = readers_.erase(it);
    }
  }
  core_->OnReaders(loop_.Now(), infos);
  Kick();
}

void SchedulerAgent::ListReader(const std::string& name) {
  ReaderLink& link = readers_.at(name);
  v1::ListOperationsRequest request;
  request.set_scheduler_incarnation(registry_->scheduler_incarnation());
  request.set_known_version(link.version);
  request.set_wait_ms(options_.list_wait.millis());
  link.client->Call("/tailcast.v1.Reader/ListOperations", request.SerializeAsString(),
                    options_.list_wait + options_.call_timeout,
                    [this, alive = alive_, name,
                     incarnation = link.incarnation](const Result<std::string>& reply) {
                      if (*alive) OnReaderList(name, incarnation, reply);
                    });
}

void SchedulerAgent::OnReaderList(const std::string& name, uint64_t incarnation,
                                  const Result<std::string>& bytes) {
  const auto it = readers_.find(name);
  if (it == readers_.end() || it->second.incarnation != incarnation || dead_) return;
  ReaderLink& link = it->second;
  auto reply = bytes.ok() ? rpc::Parse<v1::ListOperationsReply>(*bytes)
                          : Result<v1::ListOperationsReply>(bytes.status());
  if (reply.ok() && reply->reader_incarnation() != incarnation) {
    reply = UnavailableError("another process answers at " + link.address);
  }
  if (!reply.ok()) {
    if (link.failures++ == 0) {
      kLog.Warn("reader ", name, " is lost: ", reply.status().ToString());
      core_->OnReaderLost(loop_.Now(), name);
      Run();
    }
    link.version = 0;
    link.retry = loop_.After(Duration::Millis(std::min(50 * link.failures, 500)), [this, name] {
      readers_.at(name).retry = 0;
      ListReader(name);
    });
    return;
  }
  if (link.failures > 0 || !link.listed) core_->OnReaderFound(name);
  link.failures = 0;
  link.listed = true;
  link.version = reply->version();
  Effects effects;
  for (const v1::OperationReport& report : reply->reports()) {
    core_->OnReport(loop_.Now(), name, report, effects);
  }
  if (reply->complete()) {
    std::set<stream::OperationId> known;
    for (const v1::OperationReport& report : reply->reports()) {
      known.insert({report.operation().term(), report.operation().nonce()});
    }
    core_->OnReportsComplete(loop_.Now(), name, known);
  }
  Merge(pending_, std::move(effects));
  ListReader(name);
  Run();
}

// --- decisions ---

void SchedulerAgent::Kick() {
  if (run_posted_) return;
  run_posted_ = true;
  loop_.Post([this, alive = alive_] {
    if (!*alive) return;
    run_posted_ = false;
    Run();
  });
}

void SchedulerAgent::Run() {
  if (dead_ || core_ == nullptr) return;
  const MonotonicTime now = loop_.Now();
  if (now >= started_at_ + options_.decide_grace) core_->DoWork(now, pending_);
  const std::vector<StepTaken> steps = std::exchange(pending_.steps, {});
  Apply(std::exchange(pending_, Effects()));
  for (const StepTaken& step : steps) OnStepTaken(step);
  ExportCounters();
  loop_.Cancel(decide_timer_);
  decide_timer_ = 0;
  const MonotonicTime next = std::max(core_->NextWork(), started_at_ + options_.decide_grace);
  if (next < MonotonicTime::Max()) {
    decide_timer_ = loop_.At(std::max(next, now + Duration::Millis(1)), [this] {
      decide_timer_ = 0;
      Run();
    });
  }
  if (shed_timer_ == 0 && core_->unfinished() > 0) {
    shed_timer_ = loop_.After(options_.shed_interval, [this] {
      shed_timer_ = 0;
      core_->Shed(loop_.Now());
      Kick();
    });
  }
}

void SchedulerAgent::OnStepTaken(const StepTaken& step) {
  const std::string kind(copytree::StepKindName(step.kind));
  kLog.Info("stream ", step.stream.name, ", tree ", step.tree_version, ": ", kind, " ", step.from,
            " -> ", step.to);
  metrics_
      .GetCounter("tailcast_scheduler_tree_steps_total",
                  "Steps of changes of copy trees that this cell carried out.", {{"step", kind}})
      .Add();
  if (options_.on_step) options_.on_step(step);
  if (step.kind != copytree::StepKind::kWaitCaughtUp) return;
  if (peers_.contains(step.to)) PushStreams(step.to);  // it is settled, if this cell is
  CheckFinished();
}

void SchedulerAgent::Apply(const Effects& effects) {
  const uint64_t incarnation = registry_->scheduler_incarnation();
  for (const auto& [reader, ids] : effects.stop) {
    const auto link = readers_.find(reader);
    if (link == readers_.end()) continue;
    v1::StopOperationsRequest request;
    request.set_scheduler_incarnation(incarnation);
    for (const stream::OperationId& id : ids) {
      auto* out = request.add_operations();
      out->set_term(id.term);
      out->set_nonce(id.nonce);
    }
    // If it is lost, the next report shows the operation again.
    link->second.client->Call("/tailcast.v1.Reader/StopOperations", request.SerializeAsString(),
                              options_.call_timeout, [](const Result<std::string>&) {});
  }
  for (const auto& [reader, operations] : effects.start) {
    const auto link = readers_.find(reader);
    if (link == readers_.end()) continue;
    for (size_t at = 0; at < operations.size(); at += kStartMax) {
      v1::StartOperationsRequest request;
      request.set_scheduler_incarnation(incarnation);
      std::vector<stream::OperationId> ids;
      for (size_t i = at; i < std::min(operations.size(), at + kStartMax); ++i) {
        stream::ToProto(operations[i], request.add_operations());
        ids.push_back(operations[i].id);
      }
      link->second.client->Call(
          "/tailcast.v1.Reader/StartOperations", request.SerializeAsString(), options_.call_timeout,
          [this, alive = alive_, reader = reader, ids,
           of = link->second.incarnation](const Result<std::string>& reply) {
            if (!*alive || dead_) return;
            const auto link = readers_.find(reader);
            if (link == readers_.end() || link->second.incarnation != of) return;
            if (reply.ok()) {
              core_->OnStarted(reader, ids);
            } else {
              kLog.Warn("reader ", reader,
                        " did not start operations: ", reply.status().ToString());
              core_->OnReaderLost(loop_.Now(), reader);
              // Whether it knows them or not, its next complete report tells.
              link->second.version = 0;
              ++link->second.failures;
            }
            Run();
          });
    }
  }
  for (const auto& [shard, cell] : effects.progress) AskProgress(shard, cell);
  for (const ShardId& shard : effects.list) ListShard(shard);
}

void SchedulerAgent::ListShard(const ShardId& shard) {
  store_.List(stream::ShardDir(shard),
              [this, alive = alive_, shard](Result<std::vector<storage::DirEntry>> entries) {
                if (!*alive || dead_) return;
                auto listing = entries.ok() ? stream::ShardListing::Parse(*entries)
                                            : Result<stream::ShardListing>(entries.status());
                if (!listing.ok()) {
                  kLog.Error("listing of ", shard.ToString(), ": ", listing.status().ToString());
                  metrics_
                      .GetCounter("tailcast_scheduler_listing_failed_total",
                                  "Listings of shards' folders that failed; tried again.")
                      .Add();
                  loop_.After(Duration::Seconds(1), [this, alive, shard] {
                    if (*alive && !dead_) ListShard(shard);
                  });
                  return;
                }
                std::vector<stream::Stem> stems;
                for (const auto& [seq, pair] : listing->pairs()) {
                  if (pair.complete() && seq >= listing->floor()) stems.push_back(pair.stem);
                }
                Effects effects;
                core_->OnListing(loop_.Now(), shard, listing->floor(), stems, effects);
                Merge(pending_, std::move(effects));
                Kick();
              });
}

void SchedulerAgent::Rescan() {
  rescan_timer_ = loop_.After(options_.rescan_interval, [this] { Rescan(); });
  if (dead_) return;
  for (const v1::StreamConfig& stream : registry_->view().streams()) {
    for (int32_t s = 0; s < stream.shards(); ++s) {
      ListShard({{stream.name(), stream.incarnation()}, s});
    }
  }
}

void SchedulerAgent::AskProgress(const ShardId& shard, const std::string& cell) {
  const auto peer = peers_.find(cell);
  if (peer == peers_.end()) return core_->OnProgressFailed(loop_.Now(), shard, cell);
  v1::ShardProgressRequest request;
  request.set_stream(shard.stream.name);
  request.set_incarnation(shard.stream.incarnation);
  request.set_shard(shard.shard);
  const int64_t from = core_->AskFrom(shard, cell);
  request.set_from_seq(from);
  request.set_files_max(kProgressFilesMax);
  peer->second.client->Call(
      "/tailcast.v1.Peer/ShardProgress", request.SerializeAsString(), options_.peer_timeout,
      [this, alive = alive_, shard, cell, from](const Result<std::string>& bytes) {
        if (!*alive || dead_) return;
        auto reply = bytes.ok() ? rpc::Parse<v1::ShardProgressReply>(*bytes)
                                : Result<v1::ShardProgressReply>(bytes.status());
        if (!reply.ok()) {
          core_->OnProgressFailed(loop_.Now(), shard, cell);
          return Kick();
        }
        auto there = std::make_shared<std::vector<PairLengths>>();
        for (const v1::FileProgress& file : reply->files()) {
          const auto stem = stream::Stem::Parse(file.stem());
          if (!stem) continue;
          there->push_back({*stem, {file.data_length(), file.index_length()}});
        }
        const int64_t covered_to = reply->files_size() < kProgressFilesMax || there->empty()
                                       ? INT64_MAX
                                       : there->back().stem.seq;
        ReadProgress(shard, from, kProgressFilesMax,
                     [this, alive, shard, cell, there, covered_to,
                      floor = reply->floor_seq()](Result<Progress> here) {
                       if (!*alive || dead_) return;
                       if (!here.ok()) {
                         core_->OnProgressFailed(loop_.Now(), shard, cell);
                       } else {
                         core_->OnProgress(loop_.Now(), shard, cell, floor, *there, here->files,
                                           covered_to);
                       }
                       Kick();
                     });
      });
}

void SchedulerAgent::OnShardProgress(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::ShardProgressRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const v1::StreamConfig* stream = registry_->FindStream(request->stream());
  if (stream == nullptr || stream->incarnation() != request->incarnation()) {
    return respond(
        UnavailableError("cell '" + options_.registry.cell + "' does not know this stream yet"));
  }
  if (request->shard() < 0 || request->shard() >= stream->shards()) {
    return respond(InvalidArgumentError("shard is " + std::to_string(request->shard())));
  }
  ReadProgress({{request->stream(), request->incarnation()}, request->shard()}, request->from_seq(),
               std::clamp(request->files_max(), 1, kProgressFilesMax),
               [respond = std::move(respond)](Result<Progress> progress) mutable {
                 if (!progress.ok()) return respond(progress.status());
                 v1::ShardProgressReply reply;
                 reply.set_floor_seq(progress->floor);
                 for (const PairLengths& file : progress->files) {
                   v1::FileProgress* out = reply.add_files();
                   out->set_stem(file.stem.ToString());
                   out->set_data_length(file.length[0]);
                   out->set_index_length(file.length[1]);
                 }
                 respond(reply.SerializeAsString());
               });
}

// One file after the other, so that a long shard does not flood the store.
void SchedulerAgent::ReadProgress(const ShardId& shard, int64_t from_seq, int files_max,
                                  Callback<void(Result<Progress>)> done) {
  struct Job {
    std::string dir;
    Progress progress;
    std::vector<stream::Stem> stems;
    size_t next = 0;  // in steps of a part
    std::unique_ptr<storage::ReadFile> file;
    Callback<void(Result<Progress>)> done;
    std::function<void()> step;
  };
  auto job = std::make_shared<Job>();
  job->dir = stream::ShardDir(shard);
  job->done = std::move(done);
  job->progress.floor = registry_->Floor(shard.stream.name, shard.stream.incarnation, shard.shard);
  job->step = [this, alive = alive_, weak = std::weak_ptr<Job>(job)] {
    const auto job = weak.lock();
    if (!*alive) return;
    if (job->next == job->stems.size() * stream::kParts) {
      return job->done(std::move(job->progress));
    }
    const stream::Stem& stem = job->stems[job->next / stream::kParts];
    const size_t part = job->next % stream::kParts;
    if (part == 0) job->progress.files.push_back({stem, {0, 0}});
    ++job->next;
    store_.OpenRead(job->dir, stream::FileName(stem, static_cast<stream::Part>(part)),
                    [alive, job, part](Result<std::unique_ptr<storage::ReadFile>> file) {
                      if (!*alive) return;
                      if (!file.ok()) {
                        if (!IsNotFound(file.status())) return job->done(file.status());
                        return job->step();  // collected meanwhile
                      }
                      job->file = std::move(*file);
                      job->file->Size([alive, job, part](Result<storage::FileSize> size) {
                        if (!*alive) return;
                        if (!size.ok()) return job->done(size.status());
                        job->progress.files.back().length[part] = size->committed_length;
                        job->step();
                      });
                    });
  };
  store_.List(job->dir, [alive = alive_, job, from_seq,
                         files_max](Result<std::vector<storage::DirEntry>> entries) {
    if (!*alive) return;
    if (!entries.ok()) return job->done(entries.status());
    auto listing = stream::ShardListing::Parse(*entries);
    if (!listing.ok()) return job->done(listing.status());
    job->progress.floor = std::max(job->progress.floor, listing->floor());
    for (const auto& [seq, pair] : listing->pairs()) {
      if (seq >= from_seq && pair.complete() && static_cast<int>(job->stems.size()) < files_max) {
        job->stems.push_back(pair.stem);
      }
    }
    job->step();
  });
}

void SchedulerAgent::ExportCounters() {
  const CoreCounters& c = core_->counters();
  const auto set = [&](const char* name, const char* help, int64_t value,
                       const MetricLabels& labels = {}) {
    Counter& counter = metrics_.GetCounter(name, help, labels);
    counter.Add(value - counter.value());
  };
  constexpr const char* kEvents = "tailcast_scheduler_operations_total";
  constexpr const char* kHelp = "What happened to operations, by event.";
  set(kEvents, kHelp, c.started, {{"event", "started"}});
  set(kEvents, kHelp, c.done, {{"event", "done"}});
  set(kEvents, kHelp, c.restarted, {{"event", "restarted"}});
  set(kEvents, kHelp, c.adopted, {{"event", "adopted"}});
  set(kEvents, kHelp, c.shed, {{"event", "shed"}});
  set(kEvents, kHelp, c.throttled, {{"event", "throttled"}});
  set(kEvents, kHelp, c.no_worker, {{"event", "no_worker"}});
  set(kEvents, kHelp, c.superseded, {{"event", "superseded"}});
  set(kEvents, kHelp, c.given_up, {{"event", "given_up"}});
  set(kEvents, kHelp, c.data_loss, {{"event", "data_loss"}});
  set(kEvents, kHelp, c.refused, {{"event", "refused"}});
  set(kEvents, kHelp, c.stale_reports, {{"event", "stale_report"}});
  set(kEvents, kHelp, c.foreign_operations, {{"event", "foreign"}});
  set("tailcast_scheduler_readers_lost_total", "Readers that stopped answering.", c.readers_lost);
  metrics_.GetGauge("tailcast_scheduler_operations_unfinished", "Operations that are not done.")
      .Set(core_->unfinished());
}

std::string SchedulerAgent::StatusJson() const {
  nlohmann::json status;
  status["cell"] = options_.registry.cell;
  if (core_ == nullptr) return status.dump();
  status["scheduler_incarnation"] = registry_->scheduler_incarnation();
  status["unfinished"] = core_->unfinished();
  nlohmann::json operations = nlohmann::json::array();
  for (const auto& [target, op] : core_->operations()) {
    nlohmann::json o;
    o["stream"] = target.file.shard.stream.name;
    o["shard"] = target.file.shard.shard;
    o["file"] = target.file.stem.seq;
    o["layer"] = std::string(stream::LayerName(target.layer));
    o["target"] = target.cell;
    o["phase"] = std::string(PhaseName(op.phase));
    o["reader"] = op.workers.reader;
    o["writer"] = op.workers.writer;
    o["written_bytes"] = op.written[0];
    o["source_bytes"] = op.source[0];
    o["failures"] = op.failures;
    if (!op.message.empty()) o["message"] = op.message;
    operations.push_back(std::move(o));
  }
  status["operations"] = std::move(operations);
  return status.dump();
}

}  // namespace tailcast::scheduler
