#include "tailcast/scheduler/registry_service.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/operation.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr Duration kViewWaitMax = Duration::Seconds(60);
// Who wait for a write that waits for room.
constexpr size_t kWaitingMax = 1000;
// A first view is worth waiting for, even if the client does not say so.
constexpr Duration kFirstViewWait = Duration::Seconds(2);

}  // namespace

RegistryService::RegistryService(EventLoop& loop, storage::Store& store,
                                 RegistryServiceOptions options, Owner& owner)
    : loop_(loop),
      options_(std::move(options)),
      owner_(owner),
      log_(loop, store),
      waiters_(loop, {.waiting_max = options_.waiting_views_max},
               [this] { return ViewIsReady() ? &view() : nullptr; }) {}

void RegistryService::Open(Callback<void(Status)> done) {
  log_.Open(
      scope_.Bind([this, done = std::move(done)](Result<v1::RegistrySnapshot> snapshot) mutable {
        if (!snapshot.ok()) return done(snapshot.status());
        if (stream::SchedulerIncarnation{snapshot->scheduler_incarnation()} >
            stream::kSchedulerIncarnationMax) {
          return done(ResourceExhaustedError("the cell has used up its scheduler incarnations"));
        }
        opened_at_ = loop_.Now();
        core_ = std::make_unique<cell::RegistryCore>(options_.registry, std::move(*snapshot),
                                                     options_.seed);
        done(OkStatus());
      }));
}

void RegistryService::Begin() {
  view_timer_.At(opened_at_ + options_.view_grace, scope_.Bind([this] { OnViewChanged(); }));
  RegisterSelf();
  CheckFence();
}

void RegistryService::End() {
  ended_ = true;
  waiters_.End(UnavailableError("the scheduler ends"));
}

Status RegistryService::CanChange() const {
  if (no_room().ok()) return OkStatus();
  return ResourceExhaustedError("cell '" + options_.registry.cell +
                                "' can change nothing: " + no_room().message());
}

void RegistryService::Persist() {
  if (!core_->NeedsWrite()) return;
  write_next_ = true;
  WriteNext();
}

void RegistryService::Persist(Callback<void(Status)> then) {
  // What somebody else has changed may be on its way only: that is no answer.
  if (!core_->NeedsWrite() && writing_ == nullptr && !write_next_) {
    return loop_.Post(std::move(then).With(OkStatus()));
  }
  Write(std::move(then));
}

void RegistryService::Write(Callback<void(Status)> then) {
  write_next_ = true;
  if (!no_room().ok() && after_next_.size() >= kWaitingMax) {
    loop_.Post(std::move(then).With(no_room()));
  } else {
    after_next_.push_back(std::move(then));
  }
  WriteNext();
}

// The snapshot is taken when it can be written: it has what all who wait for it have changed.
void RegistryService::WriteNext() {
  if (writing_ != nullptr || !std::exchange(write_next_, false)) return;
  writing_ = std::make_unique<Writing>(
      Writing{core_->TakeSnapshot(), core_->TakeCacheEvents(), std::exchange(after_next_, {})});
  log_.Write(writing_->snapshot.state,
             scope_.Bind([this](const Status& status) { OnWritten(status); }));
}

void RegistryService::OnWritten(const Status& status) {
  const std::unique_ptr<Writing> written = std::move(writing_);
  const Scope::Watcher self = scope_.Watch();
  if (status.ok()) {
    const v1::Ring before = view().metadata_ring();
    core_->OnWritten(written->snapshot);
    Report(written->events);
    LogRing(before);
    OnViewChanged();
    const cell::CatalogueChanges& changed = written->snapshot.changed;
    if (changed.any()) owner_.OnCatalogueChanged(changed);
  } else {
    Lose(status);
  }
  for (auto& then : written->then) {
    if (self.ended()) return;
    then(status);
  }
  if (!self.ended()) WriteNext();
}

void RegistryService::PersistAndAnswer(rpc::Responder respond, std::string reply) {
  Persist(scope_.Bind(
      [respond = std::move(respond), reply = std::move(reply)](const Status& status) mutable {
        if (!status.ok()) return respond(status);
        respond(std::move(reply));
      }));
}

// --- the view ---

void RegistryService::GetView(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::GetViewRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  if (ViewIsReady() && request->known_version() != view().version()) {
    return respond(view().SerializeAsString());
  }
  const Duration wait =
      std::min(Duration::Millis(std::max<int64_t>(0, request->wait_ms())), kViewWaitMax);
  const Duration at_least = ViewIsReady() ? Duration() : kFirstViewWait;
  waiters_.Wait(*request, std::max(wait, at_least), std::move(respond));
}

bool RegistryService::ViewIsReady() const {
  if (loop_.Now() >= opened_at_ + options_.view_grace) return true;
  const auto& replicas = view().data_ring().replicas();  // none: not even the ring is durable
  return !replicas.empty() &&
         std::none_of(replicas.begin(), replicas.end(), [](const v1::Replica& replica) {
           return replica.rpc_address().empty() && !memcached::IsReplicaName(replica.name());
         });
}

void RegistryService::ShowLacking(const std::vector<v1::LackingFile>& lacking, int64_t total) {
  core_->ShowLacking(lacking, total);
  OnViewChanged();
}

// Whoever waits gets the view in a later turn, with all that changed in this one.
void RegistryService::OnViewChanged() {
  ShowCaches();
  if (std::exchange(answer_posted_, true)) return;
  loop_.Post(scope_.Bind([this] {
    answer_posted_ = false;
    AnswerWaiting();
  }));
}

void RegistryService::AnswerWaiting() {
  if (ended_ || !ViewIsReady()) return;
  const cache::ConfigurationId ring{view().metadata_ring().configuration_id()};
  const bool other_is_read =
      std::exchange(told_ring_, ring) != ring && cache::PhaseOf(ring) == cache::RingPhase::kNew;
  waiters_.OnChange(other_is_read);
}

// --- processes ---

void RegistryService::RegisterSelf() {
  if (options_.self.name().empty() || ended_) return;
  const uint64_t before = view().version();
  const auto reply = core_->Register(loop_.Now(), options_.self);
  if (!reply.ok()) {
    kLog.Error("the scheduler's own entry: ", reply.status().ToString());
    return;
  }
  if (view().version() != before) OnViewChanged();
  ArmExpiry();
  self_timer_.After(Duration::Millis(reply->lease_ms()) / 3,
                    scope_.Bind([this] { RegisterSelf(); }));
}

void RegistryService::Register(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::RegisterRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const uint64_t before = view().version();
  const auto reply = core_->Register(loop_.Now(), request->process());
  if (!reply.ok()) {
    kLog.Warn("refused to register: ", reply.status().ToString());
    return respond(reply.status());
  }
  respond(reply->SerializeAsString());
  Persist();  // if a cache replica was admitted, or a change of the ring took a step
  ArmExpiry();
  if (view().version() == before) return;
  OnViewChanged();
  owner_.OnProcessesChanged();
}

void RegistryService::LogRing(const v1::Ring& before) {
  const v1::Ring& ring = view().metadata_ring();
  if (ring.configuration_id() == before.configuration_id() || before.configuration_id() == 0)
    return;
  const auto names = [](const v1::Ring& of, bool other) {
    std::string text;
    for (const v1::Replica& replica : of.replicas()) {
      if (other ? replica.in_other() : !replica.not_in_ring()) {
        text += (text.empty() ? "" : ", ") + replica.name();
      }
    }
    return text;
  };
  const std::string cell = "cell " + options_.registry.cell + ": ";
  const std::string now = names(ring, false);
  switch (cache::PhaseOf(cache::ConfigurationId{ring.configuration_id()})) {
    case cache::RingPhase::kBoth:
      kLog.Info(cell, "the ring of caches begins to change from ", now, " to ", names(ring, true));
      break;
    case cache::RingPhase::kNew:
      kLog.Info(cell, "the new ring of caches is filled, and read: ", now);
      break;
    case cache::RingPhase::kSettled:
      if (now == names(before, false) && now != names(before, true)) {
        kLog.Warn(cell, "the change of the ring of caches is taken back; it stays ", now);
      } else {
        kLog.Info(cell, "the ring of caches has changed to ", now);
      }
      break;
  }
}

void RegistryService::Report(const std::vector<cell::CacheMembers::Event>& events) {
  using Cause = cell::CacheMembers::RaiseCause;
  const auto count = [this](const char* name, const char* help, const MetricLabels& labels) {
    if (options_.metrics != nullptr) options_.metrics->GetCounter(name, help, labels).Add();
  };
  for (const cell::CacheMembers::Event& event : events) {
    const std::string& cell = options_.registry.cell;
    if (!event.raised.has_value()) {
      kLog.Info("cell ", cell, ": ", event.member, " is whole in epoch ", Raw(event.epoch),
                " of the metadata cache");
      count("tailcast_cache_admissions_total", "Times that a replica became whole.",
            {{"cache", "metadata"}, {"replica", event.member}});
      continue;
    }
    std::string why;
    const char* cause = "";
    switch (*event.raised) {
      case Cause::kRing:
        why = "its replicas are others than before";
        cause = "ring";
        break;
      case Cause::kStartedAnew:
        why = event.member + " has begun anew, and another one that is not whole needs it";
        cause = "started_anew";
        break;
      case Cause::kGone:
        why = event.member + " is gone, and another one that is not whole needs it";
        cause = "gone";
        break;
    }
    if (Raw(event.epoch) == 1) {
      kLog.Info("cell ", cell, ": the metadata cache begins its first epoch");
    } else {
      kLog.Warn("cell ", cell, ": the metadata cache begins epoch ", Raw(event.epoch), ": ", why,
                "; lengths and locks that were acknowledged before may be lost");
    }
    count("tailcast_cache_epochs_total", "Times that the epoch of a cache rose, by cause.",
          {{"cache", "metadata"}, {"cause", cause}});
  }
}

void RegistryService::ShowCaches() {
  if (options_.metrics == nullptr) return;
  const auto set = [this](const char* name, const char* help, int64_t value) {
    options_.metrics->GetGauge(name, help, {{"cache", "metadata"}}).Set(value);
  };
  const v1::Ring& ring = view().metadata_ring();
  set("tailcast_cache_epoch", "Of the cell's cache.", static_cast<int64_t>(ring.epoch()));
  set("tailcast_cache_configuration_id", "Of the cell's ring.",
      static_cast<int64_t>(ring.configuration_id()));
  const auto count = [&ring](auto is) {
    return std::count_if(ring.replicas().begin(), ring.replicas().end(), is);
  };
  set("tailcast_cache_ring_changing", "1: there are two rings, one comes or goes.",
      PhaseOf(cache::ConfigurationId{ring.configuration_id()}) != cache::RingPhase::kSettled ? 1
                                                                                             : 0);
  set("tailcast_cache_replicas", "Replicas on the ring that is read.",
      count([](const v1::Replica& replica) { return !replica.not_in_ring(); }));
  // Memcached servers say nothing of themselves to anybody.
  if (count([](const v1::Replica& replica) { return memcached::IsReplicaName(replica.name()); })) {
    return;
  }
  set("tailcast_cache_whole_replicas", "Replicas whose answers and votes count.",
      count([](const v1::Replica& replica) {
        return !replica.not_in_ring() && replica.whole() && !replica.rpc_address().empty();
      }));
}

void RegistryService::ArmExpiry() {
  const MonotonicTime next = core_->NextExpiry();
  if (next == MonotonicTime::Max()) return;
  expiry_timer_.At(next, scope_.Bind([this] { Expire(); }));
}

void RegistryService::Lose(const Status& why) {
  if (std::exchange(ended_, true)) return;
  owner_.OnRegistryLost(why);
}

// A scheduler that was fenced goes on answering until its next write; one that had stopped has not
// heard of its successor.
void RegistryService::CheckFence() {
  if (ended_) return;
  stalls_ = core_->stalls();
  fence_timer_.After(options_.fence_check, scope_.Bind([this] { CheckFence(); }));
  if (std::exchange(checking_fence_, true)) return;
  log_.CheckFence(scope_.Bind([this](const Status& status) {
    checking_fence_ = false;
    if (IsFailedPrecondition(status)) Lose(status);
  }));
}

void RegistryService::Expire() {
  const auto gone = core_->Expire(loop_.Now());
  if (core_->stalls() != stalls_) CheckFence();
  Persist();  // if one was given up
  for (const std::string& name : gone) {
    kLog.Warn("cell ", options_.registry.cell, ": the lease of ", name, " ran out");
  }
  if (!gone.empty()) {
    OnViewChanged();
    if (!ended_) owner_.OnProcessesChanged();
  }
  ArmExpiry();
}

// --- the catalogue ---

void RegistryService::CreateStream(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::CreateStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  if (request->stream().tree_size() > 0 || !options_.plan_tree) {
    return Create(request->stream(), {}, std::move(respond));
  }
  v1::StreamConfig config = request->stream();
  if (config.source().empty()) config.set_source(options_.registry.cell);
  options_.plan_tree(config,
                     scope_.Bind([this, stream = request->stream(), respond = std::move(respond)](
                                     const Result<std::vector<v1::TreeEdge>>& tree) mutable {
                       if (!tree.ok()) return respond(tree.status());
                       if (ended_) return respond(UnavailableError("the scheduler ends"));
                       Create(stream, *tree, std::move(respond));
                     }));
}

void RegistryService::Create(const v1::StreamConfig& asked,
                             const std::vector<v1::TreeEdge>& planned, rpc::Responder respond) {
  const auto stream = core_->catalogue().BeginCreate(asked, planned, loop_.WallNow());
  if (!stream.ok()) return respond(stream.status());
  // The name is reserved before anybody is asked for it; only then no two cells get it.
  Persist(scope_.Bind(
      [this, stream = *stream, respond = std::move(respond)](const Status& status) mutable {
        if (!status.ok()) return respond(status);
        owner_.Reserve(stream.name(), scope_.Bind([this, stream, respond = std::move(respond)](
                                                      const Status& reserved) mutable {
          FinishCreate(stream, reserved, std::move(respond));
        }));
      }));
}

void RegistryService::FinishCreate(const v1::StreamConfig& stream, const Status& reserved,
                                   rpc::Responder respond) {
  if (reserved.ok()) {
    core_->catalogue().FinishCreate(stream::IdOf(stream));
    return PersistAndAnswer(std::move(respond), stream.SerializeAsString());
  }
  core_->catalogue().AbortCreate(stream::IdOf(stream));
  Persist(scope_.Bind(
      [respond = std::move(respond), reserved](const Status&) mutable { respond(reserved); }));
}

void RegistryService::ListStreams(const std::string&, rpc::Responder respond) {
  v1::ListStreamsReply reply;
  *reply.mutable_streams() = view().streams();
  respond(reply.SerializeAsString());
}

void RegistryService::DeleteStream(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::DeleteStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto stream = core_->catalogue().DeleteStream(
      request->name(), stream::StreamIncarnation{request->incarnation()});
  if (!stream.ok()) return respond(stream.status());
  Persist(scope_.Bind(
      [this, stream = *stream, respond = std::move(respond)](const Status& status) mutable {
        if (!status.ok()) return respond(status);
        owner_.OnStreamRemoved(stream);
        respond(v1::DeleteStreamReply().SerializeAsString());
      }));
}

void RegistryService::SetRetention(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::SetRetentionRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto stream = core_->catalogue().SetRetention(request->name(), request->retention());
  if (!stream.ok()) return respond(stream.status());
  PersistAndAnswer(std::move(respond), stream->SerializeAsString());
}

void RegistryService::ChangeRing(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::ChangeRingRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  if (Status changed = core_->ChangeRing(*request); !changed.ok()) return respond(changed);
  Persist(scope_.Bind([this, respond = std::move(respond)](const Status& status) mutable {
    if (!status.ok()) return respond(status);
    v1::ChangeRingReply reply;
    reply.set_configuration_id(view().data_ring().configuration_id());
    respond(reply.SerializeAsString());
  }));
}

void RegistryService::InstallStream(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::InstallStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto stream = core_->catalogue().InstallStream(request->stream(),
                                                       {request->settled(), request->complete()});
  if (!stream.ok()) return respond(stream.status());
  v1::InstallStreamReply reply;
  reply.set_tree_version(stream->tree_version());
  const v1::StreamConfig* shown = cell::FindByName(view().streams(), stream->name());
  if (shown != nullptr && shown->SerializeAsString() == stream->SerializeAsString()) {
    return respond(reply.SerializeAsString());  // it was written before
  }
  if (Status can = CanChange(); !can.ok()) {
    Persist();  // when there is room
    return respond(can);
  }
  PersistAndAnswer(std::move(respond), reply.SerializeAsString());
}

void RegistryService::RemoveStream(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::RemoveStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto removed = core_->catalogue().RemoveStream(
      {request->name(), stream::StreamIncarnation{request->incarnation()}}, request->shards());
  if (!removed.ok()) return respond(removed.status());
  // A scheduler that was replaced, and has nothing to change, must not say that it is recorded.
  Write(scope_.Bind(
      [this, removed = *removed, respond = std::move(respond)](const Status& status) mutable {
        if (!status.ok()) return respond(status);
        if (removed) owner_.OnStreamRemoved(*removed);
        respond(v1::RemoveStreamReply().SerializeAsString());
      }));
}

void RegistryService::AskName(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::AskNameRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const Status free = core_->catalogue().AskName(request->name(), request->claimant());
  if (!free.ok()) return respond(free);
  Write(scope_.Bind([respond = std::move(respond)](const Status& status) mutable {
    if (!status.ok()) return respond(status);
    respond(v1::AskNameReply().SerializeAsString());
  }));
}

void RegistryService::LeaveStream(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::LeaveStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto gone = core_->catalogue().LeaveStream(request->stream(), request->order());
  if (!gone.ok()) return respond(gone.status());
  v1::LeaveStreamReply reply;
  reply.set_gone(*gone);
  // A scheduler that was replaced must say nothing.
  Write(scope_.Bind([respond = std::move(respond), reply](const Status& status) mutable {
    if (!status.ok()) return respond(status);
    respond(reply.SerializeAsString());
  }));
}

void RegistryService::AskToLeave(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::AskToLeaveRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const Status asked = core_->catalogue().AskToLeave(
      {request->stream(), stream::StreamIncarnation{request->incarnation()}}, request->cell());
  if (!asked.ok()) return respond(asked);
  PersistAndAnswer(std::move(respond), v1::AskToLeaveReply().SerializeAsString());
}

}  // namespace tailcast::scheduler
