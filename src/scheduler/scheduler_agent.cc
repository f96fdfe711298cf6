#include "tailcast/scheduler/scheduler_agent.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"
#include "tailcast/scheduler/scheduler_status.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr int kProgressFilesMax = 1000;
constexpr Duration kRelistDelay = Duration::Seconds(1);

using stream::ShardId;

cell::RegistryOptions WithPeers(const SchedulerOptions& options) {
  cell::RegistryOptions registry = options.registry;
  for (const Neighbour& neighbour : options.neighbours) registry.peers.push_back(neighbour.cell);
  registry.scheduler_address = options.self.rpc_address();
  return registry;
}

RegistryServiceOptions RegistryPart(const SchedulerOptions& options, MetricRegistry& metrics) {
  return {.registry = WithPeers(options),
          .self = options.self,
          .plan_tree = options.plan_tree,
          .view_grace = options.view_grace,
          .waiting_views_max = options.waiting_views_max,
          .seed = options.seed,
          .metrics = &metrics};
}

}  // namespace

SchedulerAgent::SchedulerAgent(EventLoop& loop, storage::Store& store, rpc::Connector& connector,
                               MetricRegistry& metrics, SchedulerOptions options)
    : loop_(loop),
      store_(store),
      connector_(connector),
      metrics_(metrics),
      options_(std::move(options)),
      registry_(loop, store, RegistryPart(options_, metrics), *this),
      room_(
          loop, metrics, {.cell = options_.registry.cell},
          [&store](Callback<void(Result<storage::StoreRoom>)> done) {
            store.Room(std::move(done));
          },
          [this] { return registry_.no_room(); }),
      disk_(loop, store) {}

void SchedulerAgent::Attach(rpc::Server& server) {
  const auto handle = [&](const char* method, auto serve) {
    server.Handle(
        std::string("/tailcast.v1.") + method,
        scope_.Bind([this, serve](const std::string& request, rpc::Responder respond) {
          if (!registry_.is_open() || dead_) {
            const Status& no_room = registry_.no_room();
            return respond(UnavailableError("the scheduler of cell '" + options_.registry.cell +
                                            "' " + (dead_ ? "ends" : "is starting") +
                                            (no_room.ok() ? "" : ": " + no_room.message())));
          }
          serve(request, std::move(respond));
        }));
  };
  // Who wants something changed is not to wait for room on the disk, nor to find it done later.
  const auto change = [&](const char* method, auto serve) {
    handle(method, [this, serve](const std::string& request, rpc::Responder respond) {
      if (Status can = registry_.CanChange(); !can.ok()) return respond(can);
      serve(request, std::move(respond));
    });
  };
  using Method = void (RegistryService::*)(const std::string&, rpc::Responder);
  const auto registry = [this](Method serve) {
    return [this, serve](const std::string& request, rpc::Responder respond) {
      (registry_.*serve)(request, std::move(respond));
    };
  };
  handle("Cell/GetView", registry(&RegistryService::GetView));
  handle("Cell/Register", registry(&RegistryService::Register));
  handle("Cell/ListStreams", registry(&RegistryService::ListStreams));
  change("Cell/CreateStream", registry(&RegistryService::CreateStream));
  change("Cell/DeleteStream", registry(&RegistryService::DeleteStream));
  change("Cell/SetRetention", registry(&RegistryService::SetRetention));
  change("Cell/ChangeRing", registry(&RegistryService::ChangeRing));
  handle("Peer/InstallStream", registry(&RegistryService::InstallStream));
  change("Peer/RemoveStream", registry(&RegistryService::RemoveStream));
  change("Peer/AskName", registry(&RegistryService::AskName));
  change("Peer/LeaveStream", registry(&RegistryService::LeaveStream));
  change("Peer/AskToLeave", registry(&RegistryService::AskToLeave));
  change("Cell/TrimStream", [this](const std::string& request, rpc::Responder respond) {
    retention_->TrimStream(request, std::move(respond));
  });
  handle("Peer/Collect", [this](const std::string& request, rpc::Responder respond) {
    retention_->Collect(request, std::move(respond));
  });
  handle("Cell/NotifyFile", [this](const std::string& request, rpc::Responder respond) {
    NotifyFile(request, std::move(respond));
  });
  handle("Peer/ShardProgress", [this](const std::string& request, rpc::Responder respond) {
    AnswerProgress(request, std::move(respond));
  });
}

// --- beginning and end ---

void SchedulerAgent::Start(Callback<void(Status)> started, Callback<void(Status)> on_fatal) {
  started_ = std::move(started);
  on_fatal_ = std::move(on_fatal);
  room_.Begin();
  registry_.Open(scope_.Bind([this](const Status& status) {
    if (!status.ok()) return std::exchange(started_, nullptr)(status);
    OnOpened();
  }));
}

void SchedulerAgent::OnOpened() {
  const stream::SchedulerIncarnation incarnation = registry_.core().scheduler_incarnation();
  CoreOptions core = options_.core;
  core.cell = options_.registry.cell;
  core.incarnation = incarnation;
  const bool first = incarnation == stream::SchedulerIncarnation{1};
  core.orphans_until = first ? loop_.Now() : loop_.Now() + options_.view_grace;
  driver_ =
      std::make_unique<CoreDriver>(loop_, std::move(core), options_.seed ^ 0x9e3779b97f4a7c15ull,
                                   CoreDriverOptions{.begin = loop_.Now() + options_.decide_grace,
                                                     .shed_interval = options_.shed_interval},
                                   [this](const Effects& effects) { CarryOut(effects); });
  ReaderLinksOptions readers = options_.readers;
  readers.scheduler_incarnation = incarnation;
  readers_ = std::make_unique<ReaderLinks>(loop_, connector_, *driver_, readers);
  peers_ = std::make_unique<PeerLinks>(
      loop_, connector_, metrics_, *driver_, registry_.core(),
      PeerLinksOptions{.cell = options_.registry.cell,
                       .neighbours = options_.neighbours,
                       .peer_timeout = options_.peer_timeout,
                       .peer_retry = options_.peer_retry},
      [this](const std::set<std::string>& streams) { CheckFinished(streams); });
  catalogue_links_ = std::make_unique<CatalogueLinks>(
      loop_, connector_, registry_.core().catalogue(),
      CatalogueLinksOptions{.cell = options_.registry.cell, .neighbours = options_.neighbours},
      [this](const stream::StreamId& deleted, const std::string& cell) {
        registry_.catalogue().OnTold(deleted, cell);
        registry_.Persist();
      });
  reclaim_ = std::make_unique<DiskReclaim>(
      loop_, store_, DiskReclaimOptions{},
      [this](Callback<void(Status)> then) { registry_.Confirm(std::move(then)); },
      [this](const stream::StreamId& stream) { OnReclaimed(stream); });
  leavers_ =
      std::make_unique<LeaverLinks>(loop_, connector_, registry_, disk_,
                                    LeaverLinksOptions{.core = options_.leavers,
                                                       .neighbours = options_.neighbours,
                                                       .call_timeout = options_.peer_timeout});
  check_ = std::make_unique<FileCheck>(
      loop_, disk_, registry_.core(), metrics_, FileCheckOptions{.cell = options_.registry.cell},
      [this](const std::vector<v1::LackingFile>& lacking, int64_t total) {
        registry_.ShowLacking(lacking, total);
      });
  RetentionOptions retention = options_.retention;
  retention.cell = options_.registry.cell;
  retention_ =
      std::make_unique<RetentionAgent>(loop_, store_, connector_, metrics_, registry_, disk_,
                                       RetentionAgentOptions{.core = std::move(retention),
                                                             .neighbours = options_.neighbours,
                                                             .call_timeout = options_.peer_timeout},
                                       [this](const ShardId& shard) { ListShard(shard); });
  kLog.Info("cell ", options_.registry.cell, ": scheduler ", Raw(incarnation), " begins");
  if (Raw(incarnation) == 1) {
    kLog.Info(options_.registry.store, " had no registry: the cell begins without streams. If it ",
              "had some, the volume is not mounted");
  }
  registry_.Persist(scope_.Bind([this](const Status& status) { OnFirstWritten(status); }));
}

void SchedulerAgent::OnFirstWritten(const Status& status) {
  if (!status.ok()) return std::exchange(started_, nullptr)(status);
  OnCatalogueChanged(registry_.core().catalogue().Everything());
  retention_->Sweep();
  rescan_timer_.After(options_.rescan_interval, work_scope_.Bind([this] { Rescan(); }));
  registry_.Begin();
  std::exchange(started_, nullptr)(OkStatus());
}

void SchedulerAgent::OnRegistryLost(const Status& why) {
  dead_ = true;
  kLog.Error("cell ", options_.registry.cell, ": ", why.ToString());
  registry_.End();
  room_.End();
  driver_->End();
  readers_->End();
  peers_->End();
  catalogue_links_->End();
  reclaim_->End();
  leavers_->End();
  check_->End();
  retention_->End();
  work_scope_.End();
  if (on_fatal_) loop_.Post(std::move(on_fatal_).With(why));
}

// --- streams ---

// For each write of the registry: costs what changed with it, not what there is.
void SchedulerAgent::OnCatalogueChanged(const cell::CatalogueChanges& changed) {
  for (const std::string& name : changed.streams) {
    const v1::StreamConfig* stream = cell::FindByName(registry_.view().streams(), name);
    if (stream == nullptr) continue;
    const ToldStream now{stream::IdOf(*stream).incarnation, stream::TreeVersionOf(*stream),
                         IsSettled(*stream, options_.registry.cell), !stream->has_change()};
    if (std::exchange(applied_[name], now) == now) continue;
    driver_->core().OnStream(loop_.Now(), *stream, driver_->effects());
    if (!cell::NamesCell(*stream, options_.registry.cell)) {
      check_->OnStreamRemoved(stream::IdOf(*stream));
    }
  }
  if (!changed.streams.empty()) {
    retention_->OnStreams();
    peers_->Update(changed.streams);
    CheckFinished(changed.streams);
  }
  TendDeleted(changed.deleted);
  if (changed.floors) retention_->OnFloorsWritten();
  if (changed.departures) TendDropped();
  if (changed.departures || !changed.streams.empty()) leavers_->OnWritten();
  driver_->DoWorkSoon();
}

void SchedulerAgent::TendDeleted(const std::set<stream::StreamId>& streams) {
  const auto& deleted = registry_.core().catalogue().deleted();
  for (const stream::StreamId& id : streams) {
    const auto it = deleted.find(id);
    if (it == deleted.end()) continue;
    if (it->second.on_disk()) reclaim_->Add(id, it->second.shards());
    catalogue_links_->Tell(id);
  }
}

void SchedulerAgent::TendDropped() {
  for (const v1::DroppedCopy& dropped : registry_.core().catalogue().dropped()) {
    if (!dropped.going()) continue;
    const stream::StreamId id{dropped.stream(), stream::StreamIncarnation{dropped.incarnation()}};
    // What is known and not written yet counts, too: that they are gone.
    if (!registry_.core().catalogue().IsDropping(id)) continue;
    disk_.Forget(id);
    reclaim_->Add(id, dropped.shards(), DiskReclaim::What::kMessageFiles);
  }
}

void SchedulerAgent::OnReclaimed(const stream::StreamId& stream) {
  kLog.Info("cell ", options_.registry.cell, ": no file of stream ", stream.name, " is left");
  cell::Catalogue& catalogue = registry_.catalogue();
  if (catalogue.WasDeleted(stream)) catalogue.SetOnDisk(stream, false);
  disk_.Forget(stream);
  for (const v1::DroppedCopy& dropped : catalogue.dropped()) {
    if (dropped.stream() == stream.name && dropped.incarnation() == Raw(stream.incarnation)) {
      catalogue.OnDropped(stream, dropped.order());
    }
  }
  registry_.Persist();
}

// Somebody was slow to hear that this cell has left the copy tree, or the source does not know that
// there are some.
void SchedulerAgent::OnFilesOf(const stream::StreamId& id) {
  const cell::Catalogue& catalogue = registry_.core().catalogue();
  const v1::StreamConfig* stream = catalogue.FindStream(id.name);
  if (stream == nullptr || stream::IdOf(*stream) != id || catalogue.IsDropping(id) ||
      cell::NamesCell(*stream, options_.registry.cell)) {
    return;
  }
  leavers_->OnLeftFiles(*stream);
}

void SchedulerAgent::OnStreamRemoved(const v1::StreamConfig& stream) {
  driver_->core().OnStreamRemoved(stream::IdOf(stream), driver_->effects());
  check_->OnStreamRemoved(stream::IdOf(stream));
  retention_->OnStreamRemoved(stream::IdOf(stream));
  applied_.erase(stream.name());
  peers_->Forget(stream.name());
  if (options_.on_removed) options_.on_removed(stream.name());
  kLog.Info("cell ", options_.registry.cell, ": stream ", stream.name(), " is deleted");
  driver_->DoWorkSoon();
}

void SchedulerAgent::CheckFinished(const std::set<std::string>& streams) {
  const std::string& cell = options_.registry.cell;
  std::vector<const v1::StreamConfig*> finished;
  for (const std::string& name : streams) {
    const v1::StreamConfig* stream = cell::FindByName(registry_.view().streams(), name);
    if (stream == nullptr || stream->finished_version() >= stream->tree_version() ||
        !IsSettled(*stream, cell)) {
      continue;
    }
    const bool all =
        std::all_of(stream->tree().begin(), stream->tree().end(), [&](const v1::TreeEdge& edge) {
          return edge.from() != cell || (driver_->core().Made(stream::IdOf(*stream), edge.to()) &&
                                         peers_->IsFinished(*stream, edge.to()));
        });
    if (all) finished.push_back(stream);
  }
  for (const v1::StreamConfig* stream : finished) {
    registry_.catalogue().SetFinished(stream->name(), stream::TreeVersionOf(*stream));
  }
  if (!finished.empty()) registry_.Persist();
}

// --- files ---

void SchedulerAgent::NotifyFile(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::FileNotice>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto stem = stream::Stem::Parse(request->stem());
  if (!stem) return respond(InvalidArgumentError("notice.stem is '" + request->stem() + "'"));
  std::optional<int64_t> seal[stream::kParts];
  if (request->sealed()) {
    if (request->sealed_data_length() < 0 || request->sealed_index_length() < 0 ||
        request->sealed_index_length() % stream::kIndexRecordSize != 0) {
      return respond(InvalidArgumentError("notice.sealed_*_length is no seal"));
    }
    seal[0] = request->sealed_data_length();
    seal[1] = request->sealed_index_length();
  }
  const stream::FileId file{stream::ShardOf(*request), *stem};
  if (registry_.core().catalogue().WasDeleted(file.shard.stream)) {
    // Somebody was slow to hear of it, and has made a file.
    registry_.catalogue().SetOnDisk(file.shard.stream, true);
    registry_.Persist();
    return respond(NotFoundError("stream '" + request->stream() + "' was deleted"));
  }
  if (!driver_->core().OnNotice(loop_.Now(), file, seal, driver_->effects())) {
    return respond(NotFoundError("cell '" + options_.registry.cell + "' has no stream '" +
                                 request->stream() + "' with incarnation " +
                                 std::to_string(request->incarnation()) + " and shard " +
                                 std::to_string(request->shard())));
  }
  check_->OnNotice(file.shard, stem->seq);
  retention_->OnFiles(file.shard, {file.stem}, false);
  v1::FileNoticeReply reply;
  reply.set_floor_seq(registry_.core().catalogue().WrittenFloor(file.shard));
  respond(reply.SerializeAsString());
  driver_->DoWork();  // a new file starts in this very turn
}

void SchedulerAgent::AnswerProgress(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::ShardProgressRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const v1::StreamConfig* stream = registry_.core().catalogue().FindStream(request->stream());
  if (stream == nullptr || stream->incarnation() != request->incarnation()) {
    return respond(
        UnavailableError("cell '" + options_.registry.cell + "' does not know this stream yet"));
  }
  if (request->shard() < 0 || request->shard() >= stream->shards()) {
    return respond(InvalidArgumentError("shard is " + std::to_string(request->shard())));
  }
  if (request->tree_version() > stream->tree_version() ||
      registry_.core().catalogue().IsDropping(stream::IdOf(*stream))) {
    return respond(UnavailableError("cell '" + options_.registry.cell +
                                    "' is not in this tree of stream '" + stream->name() +
                                    "' yet"));
  }
  const ShardId shard = stream::ShardOf(*request);
  disk_.Read(shard, registry_.core().catalogue().WrittenFloor(shard), request->from_seq(),
             std::clamp(request->files_max(), 1, kProgressFilesMax),
             scope_.Bind([respond = std::move(respond), knows_unread = request->knows_unread()](
                             Result<ShardProgress> progress) mutable {
               if (!progress.ok()) return respond(progress.status());
               if (!knows_unread && (progress->early || !progress->unread.empty())) {
                 return respond(UnavailableError("the disk does not answer for all files now"));
               }
               respond(ToProto(*progress).SerializeAsString());
             }));
}

// --- what the core decided ---

void SchedulerAgent::CarryOut(const Effects& effects) {
  for (const auto& [reader, ids] : effects.stop) readers_->Stop(reader, ids);
  for (const auto& [reader, operations] : effects.start) readers_->Start(reader, operations);
  for (const auto& [shard, cell] : effects.progress) AskProgress(shard, cell);
  for (const ShardId& shard : effects.list) ListShard(shard);
  for (const StepTaken& step : effects.steps) OnStepTaken(step);
  ExportCounters(driver_->core(), metrics_);
}

void SchedulerAgent::OnStepTaken(const StepTaken& step) {
  const std::string kind(copytree::StepKindName(step.kind));
  kLog.Info("stream ", step.stream.name, ", tree ", Raw(step.tree_version), ": ", kind, " ",
            step.from, " -> ", step.to);
  metrics_
      .GetCounter("tailcast_scheduler_tree_steps_total",
                  "Steps of changes of copy trees that this cell carried out.", {{"step", kind}})
      .Add();
  if (options_.on_step) options_.on_step(step);
  if (step.kind != copytree::StepKind::kWaitCaughtUp) return;
  peers_->Tell(step.to, step.stream.name);  // it is settled, if this cell is
  CheckFinished({step.stream.name});
}

void SchedulerAgent::ListShard(const ShardId& shard) {
  check_->OnListingBegins(shard);
  disk_.List(shard, work_scope_.Bind([this, shard](const Result<DiskProgress::Listing>& listing) {
    if (listing.ok()) {
      check_->OnListed(shard, *listing);
      const int64_t recorded = registry_.core().catalogue().WrittenFloor(shard);
      driver_->core().OnListing(loop_.Now(), shard, std::max(listing->floor, recorded),
                                listing->stems, driver_->effects());
      retention_->OnFiles(shard, listing->stems, true);
      if (!listing->stems.empty()) OnFilesOf(shard.stream);
      return driver_->DoWorkSoon();
    }
    kLog.Error("listing of ", shard.ToString(), ": ", listing.status().ToString());
    metrics_
        .GetCounter("tailcast_scheduler_listing_failed_total",
                    "Listings of shards' folders that failed; tried again.")
        .Add();
    relist_.try_emplace(shard, loop_)
        .first->second.After(kRelistDelay, work_scope_.Bind([this, shard] {
          relist_.erase(shard);
          ListShard(shard);
        }));
  }));
}

void SchedulerAgent::Rescan() {
  rescan_timer_.After(options_.rescan_interval, work_scope_.Bind([this] { Rescan(); }));
  for (const v1::StreamConfig& stream : registry_.view().streams()) {
    for (int32_t s = 0; s < stream.shards(); ++s) {
      ListShard({stream::IdOf(stream), s});
    }
  }
  check_->Look();
  retention_->Sweep();
  const SchedulerCore& core = driver_->core();
  const int64_t put_off = core.counters().put_off;
  if (std::exchange(put_off_, put_off) < put_off) {
    kLog.Warn(core.last_put_off()->ToString(),
              ": a cell lacks more of its files than are kept in mind; some are put off until it "
              "has others (tailcast status says what does not get on)");
  }
}

void SchedulerAgent::AskProgress(const ShardId& shard, const std::string& cell) {
  if (!peers_->Has(cell)) return driver_->core().OnProgressFailed(loop_.Now(), shard, cell);
  const int64_t from = driver_->core().AskFrom(shard, cell);
  const stream::TreeVersion tree = driver_->core().TreeVersion(shard.stream);
  peers_->AskProgress(
      shard, tree, cell, from, kProgressFilesMax,
      work_scope_.Bind([this, shard, tree, cell, from](Result<ShardProgress> there) {
        OnPeerProgress(shard, tree, cell, from, std::move(there));
      }));
}

// Compares with what is here, which is read after what was there: it can only be more.
void SchedulerAgent::OnPeerProgress(const ShardId& shard, stream::TreeVersion tree_version,
                                    const std::string& cell, int64_t from_seq,
                                    Result<ShardProgress> there) {
  // What it had under another tree may have gone since.
  if (!there.ok() || driver_->core().TreeVersion(shard.stream) != tree_version) {
    driver_->core().OnProgressFailed(loop_.Now(), shard, cell);
    return driver_->DoWorkSoon();
  }
  disk_.Read(shard, registry_.core().catalogue().WrittenFloor(shard), from_seq, kProgressFilesMax,
             scope_.Bind(
                 [this, shard, cell, there = std::move(*there)](const Result<ShardProgress>& here) {
                   SchedulerCore& core = driver_->core();
                   if (here.ok()) {
                     // What there can't be read is copied again: that is safe. How far this cell is
                     // it does not know while it can't read its newest file.
                     const bool all_read = here->unread.empty() && !here->early;
                     const int64_t covered_to =
                         all_read ? there.covered_to : std::min(there.covered_to, here->covered_to);
                     core.OnProgress(loop_.Now(), shard, cell, there.floor, there.files,
                                     here->files, covered_to);
                   } else {
                     core.OnProgressFailed(loop_.Now(), shard, cell);
                   }
                   driver_->DoWorkSoon();
                 }));
}

std::string SchedulerAgent::StatusJson() const {
  DiskStatus disk{.room = room_.room(),
                  .unseen = room_.unseen(),
                  .no_room = registry_.no_room(),
                  .failing = {},
                  .unread = disk_.Failing()};
  if (retention_ != nullptr) disk.failing = retention_->collect().Failing();
  if (reclaim_ != nullptr) {
    for (std::string& what : reclaim_->Failing()) disk.failing.push_back(std::move(what));
  }
  return scheduler::StatusJson(options_.registry.cell,
                               registry_.is_open() ? registry_.core().scheduler_incarnation()
                                                   : stream::SchedulerIncarnation::kNone,
                               loop_.Now(), core(), retention(), WrongStamps(), leavers(), disk);
}

}  // namespace tailcast::scheduler
