#include "tailcast/cache/server.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/hash.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/key_scan.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {
namespace {

const Logger kLog("cache");

FAULT_POINT(kValueOfBefore, "cache.value_of_before",
            "repair gives a key the value of the one before it on the page");

constexpr Duration kComplaintInterval = Duration::Seconds(10);

}  // namespace

Server::Server(EventLoop* loop, fabric::Exporter* exporter, rpc::Server* rpc_server,
               rpc::Connector* connector, ServerOptions options)
    : loop_(loop),
      exporter_(exporter),
      rpc_server_(rpc_server),
      connector_(connector),
      options_(std::move(options)),
      tick_(*loop),
      serving_(options_.name, options_.incarnation, options_.stall_max),
      lease_(*loop),
      next_pages_(*loop) {
  Handle("Mutate", &Server::Mutate);
  Handle("Get", &Server::Get);
  Handle("Scan", &Server::Scan);
  Handle("Locate", &Server::Locate);
  Handle("Stat", &Server::Stat);
  if (options_.metrics != nullptr) {
    metrics_.emplace(*options_.metrics, options_.service == kDataService ? "data" : "metadata",
                     options_.name);
  }
}

Server::~Server() = default;

Result<std::vector<std::string>> Server::Start() {
  TAILCAST_CHECK(core_ == nullptr, "started twice");
  const MemoryPlan plan = PlanMemory(options_.memory_bytes, options_.value_bytes);
  TAILCAST_ASSIGN_OR_RETURN(const std::span<char> index,
                            exporter_->AddRegion(layout::kIndexRegion, plan.index_bytes));
  TAILCAST_ASSIGN_OR_RETURN(const std::span<char> data,
                            exporter_->AddRegion(layout::kDataRegion, plan.data_bytes));
  const layout::Generation generation{options_.incarnation != ProcessIncarnation::kNone
                                          ? Raw(options_.incarnation)
                                          : RandomSeed() | 1};
  core_ = std::make_unique<ServerCore>(options_.core, index, data, generation);
  core_->SetConfiguration(config_.configuration_id);
  exporter_->SetScanner(MakeKeyScanner(core_->geometry()));
  exporter_->SetScanPrefetch(MakeKeyScanPrefetch(core_->geometry(), 0));
  exporter_->Beat();
  exporter_->ServeMessages(scope_.Bind(
      [this](std::string_view message, std::string& answer) { OnMessage(message, answer); }));
  Result<std::vector<std::string>> addresses = exporter_->Listen();
  if (!addresses.ok()) {
    core_.reset();
    return addresses.status().WithContext("cache server " + options_.name);
  }
  open_ = true;
  repair_ = std::make_unique<RepairCore>(options_.repair, options_.name, options_.incarnation,
                                         loop_->Now());
  OpenOrClose();
  OnTick();
  if (!config_.replicas.empty()) UpdateRing(config_);
  return addresses;
}

void Server::OnTick() {
  const MonotonicTime now = loop_->Now();
  if (const auto stalled = serving_.OnTick(now)) {
    ++counters_.stalls;
    kLog.Warn(options_.name, " did not run for ", stalled->seconds(),
              " s; it serves no more until the registry knows it");
    OpenOrClose();
  }
  core_->OnTick(Now(), doorbells_);
  if (!serving_.doubtful()) exporter_->Beat();
  NotifyAll();
  if (metrics_.has_value()) metrics_->Show(state());
  // The caches of a process tick together, so that it wakes up once for both; of two processes each
  // has its own beat.
  const int64_t interval = options_.core.heartbeat_interval.micros();
  const uint64_t beat = Hash128(std::to_string(Raw(options_.incarnation))).lo;
  tick_.After(
      Duration::Micros(
          interval -
          (now.micros() + static_cast<int64_t>(beat % static_cast<uint64_t>(interval))) % interval),
      scope_.Bind([this] { OnTick(); }));
}

void Server::NotifyAll() {
  for (const uint64_t offset : doorbells_) exporter_->Notify(layout::kIndexRegion, offset);
  counters_.notifications += doorbells_.size();
  doorbells_.clear();
}

void Server::UpdateRing(RingConfig config) {
  if (config.configuration_id < config_.configuration_id) return;
  rings_.Update(config);
  config_ = std::move(config);
  if (core_ == nullptr) return;
  if (config_.configuration_id != core_->configuration_id()) {
    core_->SetConfiguration(config_.configuration_id);
  }
  std::erase_if(members_, [&](const auto& member) {
    return std::none_of(config_.replicas.begin(), config_.replicas.end(),
                        [&](const Replica& r) { return r.rpc_address == member.first; });
  });
  const bool was_named = serving_.named();
  const bool goes_on = serving_.OnRing(loop_->Now(), config_);
  if (was_named && !serving_.named()) {
    kLog.Info(options_.name,
              serving_.state() == ServingCore::State::kReplaced
                  ? " is another process in configuration "
                  : " is in no ring of configuration ",
              Raw(config_.configuration_id), "; this one serves nothing");
  }
  FollowServing(goes_on);
  repair_->OnRing(loop_->Now(), config_);
  DoRepair();
}

void Server::Confirm(const Confirmation& confirmation) {
  FollowServing(serving_.OnConfirmation(loop_->Now(), config_, confirmation));
}

void Server::FollowServing(bool goes_on) {
  const MonotonicTime end = serving_.lease_end();
  if (end != MonotonicTime::Max() && (!lease_.armed() || end != lease_.when())) {
    lease_.At(end, scope_.Bind([this] { OnLeaseEnd(); }));
  }
  if (goes_on) exporter_->Beat();
  OpenOrClose();
}

void Server::OpenOrClose() {
  if (core_ == nullptr || serving_.serves() == open_) return;
  open_ = serving_.serves();
  if (open_) {
    exporter_->Renew();
  } else {
    exporter_->Invalidate();
  }
}

void Server::OnLeaseEnd() {
  serving_.OnLeaseEnd();
  if (open_) {
    ++(serving_.record_differs() ? counters_.leases_record_differs : counters_.leases_unreachable);
    kLog.Warn(
        options_.name,
        serving_.record_differs()
            ? " has not heard from the scheduler for its lease, and the registry's record says"
              " something else than it knows; it serves no more until the scheduler answers"
            : " has reached neither the scheduler nor the registry for its lease; it serves no"
              " more until it does");
  }
  OpenOrClose();
}

bool Server::repaired() const {
  return repair_ != nullptr && repair_->state() == RepairCore::State::kCopied;
}

std::string Server::RepairText() const {
  if (repair_ == nullptr) return "has not started";
  switch (repair_->state()) {
    case RepairCore::State::kIdle:
      return "is in no ring";
    case RepairCore::State::kResting:
      return "rests before it copies";
    case RepairCore::State::kCopying: {
      std::string text;
      for (const std::string& member : repair_->Missing())
        text += (text.empty() ? "" : ", ") + member;
      return "copies from " + text;
    }
    case RepairCore::State::kCopied:
      return "has copied, and waits to be admitted";
  }
  return "";
}

CacheEpoch Server::copied_epoch() const {
  return repair_ == nullptr ? CacheEpoch{} : repair_->copied();
}

ConfigurationId Server::filled_configuration() const {
  return repair_ == nullptr ? ConfigurationId{} : repair_->filled();
}

ServerState Server::state() const {
  ServerState state;
  state.counters = counters_;
  state.ttl = options_.core.ttl;
  state.serving = open_;
  state.configuration_id = config_.configuration_id;
  state.epoch = config_.epoch;
  state.copied_epoch = copied_epoch();
  state.filled_configuration = filled_configuration();
  const Replica* const self = config_.Find(options_.name);
  state.whole = self != nullptr && self->whole && self->incarnation == options_.incarnation;
  if (repair_ != nullptr) state.repair = repair_->state();
  if (core_ == nullptr) return state;
  const layout::Geometry& geometry = core_->geometry();
  state.stats = core_->stats();
  state.room_bytes =
      RoomBytes(geometry.data_bytes, options_.value_bytes, options_.core.collect_from);
  state.memory_bytes = geometry.index_bytes() + geometry.data_bytes;
  state.memory_used_bytes =
      geometry.index_bytes() + uint64_t{state.stats.slabs_used} * layout::kSlabBytes;
  return state;
}

// ---- Repair ----

void Server::DoRepair() {
  const MonotonicTime now = loop_->Now();
  for (const RepairCore::Ask& ask : repair_->TakeDue(now)) PullPage(ask);
  if (repair_state_ != repair_->state()) {
    repair_state_ = repair_->state();
    next_complaint_ = MonotonicTime();
    if (repair_state_ == RepairCore::State::kCopied) {
      kLog.Log(counters_.repaired_values > 0 ? LogLevel::kInfo : LogLevel::kDebug, options_.name,
               ": has copied what it should hold: ", counters_.repaired_values, " values, ",
               counters_.repaired_bytes, " bytes since its start");
    }
  }
  if (repair_state_ == RepairCore::State::kCopying && now >= next_complaint_) {
    if (next_complaint_ != MonotonicTime())
      kLog.Warn(options_.name, " is not whole: ", RepairText());
    next_complaint_ = now + kComplaintInterval;
  }
  const MonotonicTime next = repair_->next();
  if (next == MonotonicTime::Max()) return next_pages_.Cancel();
  next_pages_.At(std::max(next, now), scope_.Bind([this] { DoRepair(); }));
}

void Server::PullPage(const RepairCore::Ask& ask) {
  const Replica* const replica = config_.Find(ask.member);
  TAILCAST_CHECK(replica != nullptr, "repair asks who is in no ring");
  std::unique_ptr<rpc::Client>& client = members_[replica->rpc_address];
  if (client == nullptr) client = connector_->MakeClient(replica->rpc_address, "");
  v1::CacheScanRequest request;
  request.set_cursor(ask.cursor);
  request.set_bytes_max(options_.repair.page_bytes);
  request.set_owner(options_.name);
  request.set_incarnation(Raw(ask.incarnation));
  request.set_gained_in(Raw(ask.gained_in));
  request.set_once(options_.repair.once);
  client->Call("/" + options_.service + "/Scan", request.SerializeAsString(),
               options_.repair_timeout,
               scope_.Bind([this, id = ask.id, member = ask.member](Result<std::string> reply) {
                 OnPage(id, member, reply);
                 DoRepair();
               }));
}

void Server::OnPage(uint64_t ask, const std::string& member, const Result<std::string>& bytes) {
  const auto page = [&]() -> Result<v1::CacheScanReply> {
    if (!bytes.ok()) return bytes.status();
    TAILCAST_ASSIGN_OR_RETURN(auto reply, rpc::Parse<v1::CacheScanReply>(*bytes));
    TAILCAST_RETURN_IF_ERROR(wire::Reader::Check(reply.batch()));
    return reply;
  }();
  const Instant now = Now();
  if (!page.ok()) {
    ++counters_.repair_failures;
    kLog.Debug(options_.name, ": a page of ", member, ": ", page.status());
    repair_->OnFailure(now.monotonic, ask);
    return;
  }
  // Values first: with the last page we may ask to be admitted. A late page does no harm.
  RepairCore::Page taken{.next_cursor = page->next_cursor(),
                         .bytes = bytes->size(),
                         .configuration_id = ConfigurationId{page->configuration_id()}};
  uint64_t refused = 0;
  const uint64_t postponed = core_->stats().copies_postponed;
  wire::Reader reader(page->batch());
  wire::Entry entry;
  const Replica* const self = config_.Find(options_.name);
  std::string_view before;
  while (self != nullptr && reader.Next(entry)) {
    // Its own ring decides: a member may be on another one.
    if (!rings_.Owns(entry.key, IndexOf(*self))) continue;
    const Duration remaining =
        entry.remaining_ms ? Duration::Millis(*entry.remaining_ms) : options_.core.ttl;
    const std::string_view value =
        kValueOfBefore.planted() && !before.empty() ? before : entry.value;
    before = entry.value;
    switch (core_->ApplyCopy(now, entry.key, entry.rule, value, remaining, doorbells_)) {
      case MutationResult::kApplied:
        ++counters_.repaired_values;
        counters_.repaired_bytes += entry.value.size();
        break;
      case MutationResult::kMismatch:
        ++counters_.repair_mismatches;
        SayMismatch(entry.key, value.size(), member);
        break;
      case MutationResult::kRefused:
        // Who misses a chunk asks others; who misses a value is told that there is none.
        refused += entry.rule != MergeRule::kLongerWins ? 1 : 0;
        break;
      case MutationResult::kNoChange:
        break;
    }
  }
  if (refused > 0) {
    counters_.repair_refused += refused;
    if (now.monotonic >= next_room_complaint_) {
      next_room_complaint_ = now.monotonic + kComplaintInterval;
      kLog.Warn(options_.name, ": no room for ", refused, " values of ", member,
                "; this replica can't become whole before there is");
    }
  }
  taken.kept = refused == 0 && core_->stats().copies_postponed == postponed;
  NotifyAll();
  repair_->OnPage(now.monotonic, ask, taken);
}

}  // namespace tailcast::cache
