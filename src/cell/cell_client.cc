#include "tailcast/cell/cell_client.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/nearest.h"
#include "tailcast/base/strong.h"
#include "tailcast/proto/copy.pb.h"

namespace tailcast::cell {
namespace {

constexpr Duration kLongPoll = Duration::Seconds(20);
constexpr Duration kCallTimeout = Duration::Seconds(5);
// A call that hangs must not cost a process its place (RegistryOptions: lease, fence_after).
constexpr Duration kRegisterTimeout = Duration::Seconds(1);
constexpr Duration kRetryDelay = Duration::Millis(200);
constexpr Duration kLostAfter = Duration::Seconds(1);
constexpr Duration kFindInterval = Duration::Seconds(1);
constexpr size_t kFormerMax = 4;

// A callback for a call whose answer says nothing but how it ended.
auto Ending(Callback<void(Status)> done) {
  return [done = std::move(done)](const Result<std::string>& reply) mutable {
    done(reply.ok() ? OkStatus() : reply.status());
  };
}

cache::RingConfig ToRing(const v1::Ring& ring) {
  cache::RingConfig config;
  config.configuration_id = cache::ConfigurationId{ring.configuration_id()};
  config.epoch = cache::CacheEpoch{ring.epoch()};
  for (const v1::Replica& r : ring.replicas()) {
    config.replicas.push_back({r.name(),
                               r.rpc_address(),
                               {r.fabric_addresses().begin(), r.fabric_addresses().end()},
                               ProcessIncarnation{r.incarnation()},
                               r.whole(),
                               r.excused(),
                               r.rests(),
                               !r.not_in_ring(),
                               r.in_other(),
                               r.votes_in_other()});
  }
  return config;
}

}  // namespace

template <typename Reply>
Callback<void(Result<std::string>)> CellClient::Parsing(Callback<void(Result<Reply>)> done) {
  return scope_.Bind([done = std::move(done)](Result<std::string> reply) mutable {
    if (!reply.ok()) return done(reply.status());
    done(rpc::Parse<Reply>(*reply));
  });
}

CellClient::CellClient(EventLoop& loop, rpc::Connector& connector,
                       const std::string& scheduler_address, const std::string& via)
    : loop_(loop),
      connector_(connector),
      first_address_(scheduler_address),
      via_(via),
      client_(connector.MakeClient(scheduler_address, via)) {}

CellClient::CellClient(EventLoop& loop, rpc::Connector& connector,
                       const std::string& scheduler_address)
    : loop_(loop),
      connector_(connector),
      first_address_(scheduler_address),
      own_cell_(true),
      client_(connector.MakeControlClient(scheduler_address, "")) {}

void CellClient::Start(Duration timeout, Callback<void(Status)> done) {
  started_ = std::move(done);
  start_deadline_ = loop_.Now() + timeout;
  Poll();
}

void CellClient::Poll() {
  v1::GetViewRequest request;
  request.set_known_version(view_.version());
  request.set_wait_ms(has_view() ? kLongPoll.millis() : 0);
  request.set_use(use_);
  client_->Call("/tailcast.v1.Cell/GetView", request.SerializeAsString(),
                has_view() ? kLongPoll + kCallTimeout : kCallTimeout,
                scope_.Bind([this](Result<std::string> reply) { OnView(std::move(reply)); }));
}

void CellClient::LookAgain() {
  client_->Call("/tailcast.v1.Cell/GetView", v1::GetViewRequest().SerializeAsString(), kCallTimeout,
                Parsing<CellView>(scope_.Bind([this](Result<CellView> view) {
                  // Another version is on its way to whoever waits for changes.
                  if (view.ok() && view->registry_id() == view_.registry_id() &&
                      view->scheduler_incarnation() == view_.scheduler_incarnation() &&
                      view->version() == view_.version()) {
                    view_ = std::move(*view);
                  }
                })));
}

void CellClient::OnView(Result<std::string> reply) {
  Result<CellView> view =
      reply.ok() ? rpc::Parse<CellView>(*reply) : Result<CellView>(reply.status());
  if (!view.ok() || view->version() == 0) {
    std::string why = view.ok() ? "it has no view of its cell yet" : view.status().message();
    if (const std::string who = client_->address() + ": "; why.starts_with(who)) {
      why.erase(0, who.size());
    }
    const Scope::Watcher self = scope_.Watch();
    OnSilence(why);
    if (self.ended()) return;
    if (started_ && loop_.Now() >= start_deadline_) {
      std::exchange(started_, nullptr)(
          UnavailableError("no scheduler answers at " + client_->address() + ": " + why +
                           "; is the cell up, and is this its scheduler's address?"));
      return;
    }
    retry_.After(kRetryDelay, scope_.Bind([this] { Poll(); }));
    return;
  }
  const Scope::Watcher alive = scope_.Watch();
  OnAnswer();
  if (alive.ended()) return;
  // A new scheduler counts versions anew.
  const bool other_registry = view->registry_id() != view_.registry_id();
  const bool changed = other_registry || view->version() != view_.version() ||
                       view->scheduler_incarnation() != view_.scheduler_incarnation();
  // An old scheduler that has not noticed its fence must not take us back. But a registry that was
  // lost and begun anew counts from 1.
  const bool stale =
      !other_registry && view->scheduler_incarnation() < view_.scheduler_incarnation();
  if (changed && !stale) {
    view_ = std::move(*view);
    const Scope::Watcher self = scope_.Watch();
    for (size_t i = 0; i < on_change_.size(); ++i) {
      on_change_[i](view_);
      if (self.ended()) return;
    }
  }
  if (started_) {
    const Scope::Watcher self = scope_.Watch();
    std::exchange(started_, nullptr)(OkStatus());
    if (self.ended()) return;
  }
  if (stale) {
    retry_.After(kRetryDelay, scope_.Bind([this] { Poll(); }));
  } else {
    Poll();
  }
}

Status CellClient::contact() const {
  if (silent_since_ == MonotonicTime::Max()) return OkStatus();
  return UnavailableError("the cell's scheduler at " + address() + " does not answer");
}

void CellClient::OnSilence(const std::string& why) {
  const Scope::Watcher self = scope_.Watch();
  for (size_t i = 0; i < on_silence_.size(); ++i) {
    on_silence_[i]();
    if (self.ended()) return;
  }
  const MonotonicTime now = loop_.Now();
  silent_since_ = std::min(silent_since_, now);
  const Duration silence = now - silent_since_;
  if (silence < kLostAfter) return;
  if (find_ && now >= find_at_) {
    find_at_ = now + kFindInterval;
    find_(scope_.Bind([this](const Result<std::string>& found) {
      // Elsewhere, nobody answered either: perhaps it is back.
      if (lost_) MoveTo(found.ok() && !found->empty() ? *found : first_address_);
    }));
  }
  if (std::exchange(lost_, true) || !on_contact_) return;
  on_contact_({true, client_->address(), silence, why});
}

void CellClient::OnAnswer() {
  const Duration silence =
      silent_since_ == MonotonicTime::Max() ? Duration() : loop_.Now() - silent_since_;
  silent_since_ = MonotonicTime::Max();
  if (!std::exchange(lost_, false)) return;
  if (on_contact_) on_contact_({false, client_->address(), silence, ""});
}

void CellClient::MoveTo(const std::string& address) {
  if (address == client_->address()) return;
  if (former_.size() >= kFormerMax) former_.erase(former_.begin());
  former_.push_back(std::exchange(client_, own_cell_ ? connector_.MakeControlClient(address, "")
                                                     : connector_.MakeClient(address, via_)));
}

Result<v1::StreamConfig> CellClient::FindStream(const std::string& name) const {
  std::vector<std::string> names;
  for (const v1::StreamConfig& stream : view_.streams()) {
    if (stream.name() == name) return stream;
    names.push_back(stream.name());
  }
  if (names.empty()) {
    return NotFoundError("no stream '" + name + "' in cell " + view_.cell() +
                         ": it has no streams yet; make one with `tailcast stream create`");
  }
  return NotFoundError("no stream '" + name + "' in cell " + view_.cell() +
                       DidYouMean(name, names));
}

void CellClient::Register(const v1::ProcessInfo& process,
                          Callback<void(Result<v1::RegisterReply>)> done) {
  v1::RegisterRequest request;
  *request.mutable_process() = process;
  client_->Call("/tailcast.v1.Cell/Register", request.SerializeAsString(), kRegisterTimeout,
                Parsing<v1::RegisterReply>(std::move(done)));
}

void CellClient::NotifyFile(const v1::FileNotice& notice,
                            Callback<void(Result<v1::FileNoticeReply>)> done) {
  client_->Call("/tailcast.v1.Cell/NotifyFile", notice.SerializeAsString(), kCallTimeout,
                Parsing<v1::FileNoticeReply>(std::move(done)));
}

void CellClient::CreateStream(const v1::StreamConfig& stream,
                              Callback<void(Result<v1::StreamConfig>)> done) {
  v1::CreateStreamRequest request;
  *request.mutable_stream() = stream;
  client_->Call("/tailcast.v1.Cell/CreateStream", request.SerializeAsString(), kCallTimeout,
                Parsing<v1::StreamConfig>(std::move(done)));
}

void CellClient::DeleteStream(const stream::StreamId& stream, Callback<void(Status)> done) {
  v1::DeleteStreamRequest request;
  request.set_name(stream.name);
  request.set_incarnation(Raw(stream.incarnation));
  client_->Call("/tailcast.v1.Cell/DeleteStream", request.SerializeAsString(), kCallTimeout,
                scope_.Bind(Ending(std::move(done))));
}

void CellClient::ForgetStream(const v1::StreamConfig& stream, Callback<void(Status)> done) {
  v1::RemoveStreamRequest request;
  request.set_name(stream.name());
  request.set_incarnation(stream.incarnation());
  request.set_shards(stream.shards());
  client_->Call("/tailcast.v1.Peer/RemoveStream", request.SerializeAsString(), kCallTimeout,
                scope_.Bind(Ending(std::move(done))));
}

void CellClient::ReportUser(const v1::User& user, Callback<void(Status)> done) {
  v1::ReportUserRequest request;
  *request.mutable_user() = user;
  client_->Call("/tailcast.v1.Users/Report", request.SerializeAsString(), kCallTimeout,
                scope_.Bind(Ending(std::move(done))));
}

void CellClient::ListUsers(Callback<void(Result<v1::ListUsersReply>)> done) {
  client_->Call("/tailcast.v1.Users/List", v1::ListUsersRequest().SerializeAsString(), kCallTimeout,
                Parsing<v1::ListUsersReply>(std::move(done)));
}

void CellClient::SetRetention(const v1::SetRetentionRequest& request,
                              Callback<void(Result<v1::StreamConfig>)> done) {
  client_->Call("/tailcast.v1.Cell/SetRetention", request.SerializeAsString(), kCallTimeout,
                Parsing<v1::StreamConfig>(std::move(done)));
}

void CellClient::TrimStream(const v1::TrimStreamRequest& request,
                            Callback<void(Result<v1::TrimStreamReply>)> done) {
  client_->Call("/tailcast.v1.Cell/TrimStream", request.SerializeAsString(), kCallTimeout,
                Parsing<v1::TrimStreamReply>(std::move(done)));
}

void CellClient::ChangeRing(const v1::ChangeRingRequest& request,
                            Callback<void(Result<v1::ChangeRingReply>)> done) {
  client_->Call("/tailcast.v1.Cell/ChangeRing", request.SerializeAsString(), kCallTimeout,
                Parsing<v1::ChangeRingReply>(std::move(done)));
}

cache::RingConfig DataRing(const CellView& view) { return ToRing(view.data_ring()); }
cache::RingConfig MetadataRing(const CellView& view) { return ToRing(view.metadata_ring()); }

}  // namespace tailcast::cell
