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
FAULT_POINT(kNoLease, "cache.no_lease",
            "a cache server that the registry does not hear of goes on as if it did");

constexpr Duration kComplaintInterval = Duration::Seconds(10);

uint32_t ToMillis(Duration duration) {
  return static_cast<uint32_t>(std::clamp<int64_t>(duration.millis(), 0, UINT32_MAX));
}

}  // namespace

Server::Server(EventLoop* loop, fabric::Exporter* exporter, rpc::Server* rpc_server,
               rpc::Connector* connector, ServerOptions options)
    : loop_(loop),
      exporter_(exporter),
      rpc_server_(rpc_server),
      connector_(connector),
      options_(std::move(options)),
      tick_(*loop),
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

void Server::Handle(const char* method,
                    Result<std::string> (Server::*handler)(const std::string&)) {
  rpc_server_->Handle("/" + options_.service + "/" + method,
                      scope_.Bind([this, handler](std::string request, rpc::Responder respond) {
                        if (core_ == nullptr) {
                          ++counters_.not_started;
                          respond(UnavailableError("this cache server has not started"));
                          return;
                        }
                        Result<std::string> reply = (this->*handler)(request);
                        if (IsInvalidArgument(reply.status())) ++counters_.bad_requests;
                        respond(std::move(reply));
                      }));
}

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
  serving_ = true;
  repair_ = std::make_unique<RepairCore>(options_.repair, options_.name, options_.incarnation,
                                         loop_->Now());
  OnTick();
  if (!config_.replicas.empty()) UpdateRing(config_);
  return addresses;
}

void Server::OnTick() {
  const MonotonicTime now = loop_->Now();
  if (ticked_at_ != MonotonicTime() && now - ticked_at_ > options_.stall_max) {
    ++counters_.stalls;
    doubtful_since_ = now;
    confirmed_.reset();
    kLog.Warn(options_.name, " did not run for ", (now - ticked_at_).seconds(),
              " s; it serves no more until the registry knows it");
    ServeOrNot();
  }
  ticked_at_ = now;
  core_->OnTick(Now(), doorbells_);
  if (!doubtful_since_.has_value()) exporter_->Beat();
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
  const Replica* const self = config_.Find(options_.name);
  const bool mine = self != nullptr && self->incarnation == options_.incarnation;
  known_ = known_ || mine;
  // A ring that does not know of us yet may name the life before.
  // Once replaced it stays so when its successor goes: it has missed what that acknowledged.
  const bool is_another =
      known_ && self != nullptr && !mine && self->incarnation != ProcessIncarnation::kNone;
  replaced_ = !mine && (replaced_ || is_another);
  const bool named = self != nullptr && !replaced_;
  if (named_ && !named) {
    kLog.Info(
        options_.name,
        replaced_ ? " is another process in configuration " : " is in no ring of configuration ",
        Raw(config_.configuration_id), "; this one serves nothing");
  }
  named_ = named;
  GoOnIfConfirmed();
  ServeOrNot();
  repair_->OnRing(loop_->Now(), config_);
  DoRepair();
}

void Server::ServeOrNot() {
  const bool serve = named_ && !doubtful_since_.has_value();
  if (serve == serving_) return;
  serving_ = serve;
  if (serve) {
    exporter_->Renew();
  } else {
    exporter_->Invalidate();
  }
}

void Server::Confirm(const Confirmation& confirmation) {
  const MonotonicTime end = confirmation.asked + confirmation.lease;
  if (end <= loop_->Now() || kNoLease.planted()) return;
  if (confirmation.by_record &&
      (confirmation.other_life || confirmation.configuration != config_.configuration_id ||
       confirmation.epoch != config_.epoch)) {
    record_differs_ = true;
    return;
  }
  if (doubtful_since_.has_value()) {
    if (confirmation.asked < *doubtful_since_) return;
    confirmed_ = confirmation;
    return GoOnIfConfirmed();
  }
  record_differs_ = false;
  if (confirmation.lease != Duration::Infinite() && (!lease_.armed() || end > lease_.when())) {
    lease_.At(end, scope_.Bind([this] { OnLeaseEnd(); }));
  }
}

// Others may go on without it from now on, and acknowledge what it does not hear of.
void Server::OnLeaseEnd() {
  if (doubtful_since_.has_value()) return;
  // Whatever is heard from now on will do: Confirm has seen that it is not too old.
  doubtful_since_ = MonotonicTime();
  confirmed_.reset();
  if (!serving_) return;
  ++(record_differs_ ? counters_.leases_record_differs : counters_.leases_unreachable);
  kLog.Warn(options_.name,
            record_differs_
                ? " has not heard from the scheduler for its lease, and the registry's record says"
                  " something else than it knows; it serves no more until the scheduler answers"
                : " has reached neither the scheduler nor the registry for its lease; it serves no"
                  " more until it does");
  ServeOrNot();
}

void Server::GoOnIfConfirmed() {
  if (!confirmed_.has_value() || config_.configuration_id < confirmed_->configuration ||
      config_.epoch < confirmed_->epoch) {
    return;
  }
  const Confirmation confirmation = *std::exchange(confirmed_, std::nullopt);
  if (confirmation.asked + confirmation.lease <= loop_->Now()) return;
  doubtful_since_.reset();
  Confirm(confirmation);
  exporter_->Beat();
  ServeOrNot();
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
  state.serving = serving_;
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

// ---- Calls ----

Status Server::CheckServes() {
  if (serving_) return OkStatus();
  CountNotServing();
  return NotServing();
}

void Server::CountNotServing() {
  if (replaced_) {
    ++counters_.replaced;
  } else if (!named_) {
    ++counters_.not_in_ring;
  } else if (doubtful_since_ != MonotonicTime()) {
    ++counters_.stalled;
  } else {
    ++counters_.no_lease;
  }
}

Status Server::NotServing() const {
  return NotFoundError("cache server " + options_.name +
                       (named_ ? " waits to hear from the registry"
                               : " is not in the ring that it knows, or another process there"));
}

Status Server::CheckIncarnation(uint64_t incarnation) {
  if (incarnation == 0 || options_.incarnation == ProcessIncarnation::kNone ||
      incarnation == Raw(options_.incarnation)) {
    return OkStatus();
  }
  ++counters_.other_incarnations;
  return OtherIncarnation();
}

Status Server::OtherIncarnation() const {
  return FailedPreconditionError("cache server " + options_.name +
                                 " has begun anew since the caller looked it up");
}

MutateStatus Server::JudgeWriter(const WriteContext& writer) {
  if (writer.incarnation != ProcessIncarnation::kNone &&
      options_.incarnation != ProcessIncarnation::kNone &&
      writer.incarnation != options_.incarnation) {
    ++counters_.other_incarnations;
    return MutateStatus::kOtherIncarnation;
  }
  // What two acknowledged in an earlier epoch counts for nothing, so it is not acknowledged.
  if (writer.configuration != ConfigurationId{}) {
    const bool old_ring = writer.configuration < config_.configuration_id;
    if (old_ring || writer.epoch < config_.epoch) {
      ++(old_ring ? counters_.old_rings : counters_.old_epochs);
      return MutateStatus::kOldRing;
    }
  }
  if (serving_) return MutateStatus::kDone;
  // Who knows a newer ring may mean it for one that this server is in: its memory is closed until
  // it has heard of it.
  if (!named_ && !doubtful_since_.has_value() && writer.configuration > config_.configuration_id) {
    return MutateStatus::kDone;
  }
  CountNotServing();
  return MutateStatus::kNotServing;
}

void Server::SayMismatch(const Key& key, size_t length, const std::string& whose) {
  contradictions_.Say(loop_->Now(), key,
                      options_.name + ": " + std::to_string(length) + " bytes of " + whose +
                          " contradict " + std::to_string(core_->dropped_length()) +
                          " bytes here; both were dropped");
}

void Server::OnMessage(std::string_view message, std::string& answer) {
  ++counters_.mutate_messages;
  MutateAnswer judged{.configuration = config_.configuration_id};
  Result<MutateReader> reader = MutateReader::Parse(message);
  if (!reader.ok()) {
    ++counters_.bad_requests;
    judged.status = MutateStatus::kMalformed;
    return AppendAnswer(judged, answer);
  }
  judged.status = JudgeWriter(reader->context());
  if (judged.status != MutateStatus::kDone) return AppendAnswer(judged, answer);
  results_.clear();
  const Instant now = Now();
  MutateMessage::Entry entry;
  while (reader->Next(entry)) {
    const MutationResult result =
        entry.erase ? core_->Erase(now, entry.key, doorbells_)
                    : core_->Apply(now, entry.key, entry.rule, entry.value, doorbells_);
    if (result == MutationResult::kMismatch) SayMismatch(entry.key, entry.value.size(), "a writer");
    results_.push_back(static_cast<char>(result));
  }
  NotifyAll();
  judged.results = results_;
  AppendAnswer(judged, answer);
}

Result<std::string> Server::Mutate(const std::string& request) {
  ++counters_.mutate_calls;
  if (request.size() > kMutateBytesMax) {
    return InvalidArgumentError("the request has " + std::to_string(request.size()) +
                                " bytes; at most " + std::to_string(kMutateBytesMax) +
                                " are taken in one call");
  }
  TAILCAST_ASSIGN_OR_RETURN(const auto message, rpc::Parse<v1::CacheMutateRequest>(request));
  TAILCAST_RETURN_IF_ERROR(wire::Reader::Check(message.batch()));
  v1::CacheMutateReply reply;
  reply.set_configuration_id(Raw(config_.configuration_id));
  switch (JudgeWriter({ConfigurationId{message.configuration_id()}, CacheEpoch{message.epoch()},
                       ProcessIncarnation{message.incarnation()}})) {
    case MutateStatus::kOldRing:
      return reply.SerializeAsString();
    case MutateStatus::kOtherIncarnation:
      return OtherIncarnation();
    case MutateStatus::kNotServing:
      return NotServing();
    case MutateStatus::kDone:
    case MutateStatus::kMalformed:
      break;
  }
  std::string& results = *reply.mutable_results();
  wire::Reader reader(message.batch());
  results.reserve(reader.size());
  const Instant now = Now();
  wire::Entry entry;
  while (reader.Next(entry)) {
    MutationResult result;
    if (entry.erase_or_absent) {
      result = core_->Erase(now, entry.key, doorbells_);
    } else {
      result = entry.remaining_ms.has_value()
                   ? core_->ApplyCopy(now, entry.key, entry.rule, entry.value,
                                      Duration::Millis(*entry.remaining_ms), doorbells_)
                   : core_->Apply(now, entry.key, entry.rule, entry.value, doorbells_);
    }
    if (result == MutationResult::kMismatch) SayMismatch(entry.key, entry.value.size(), "a writer");
    results.push_back(static_cast<char>(result));
  }
  NotifyAll();
  return reply.SerializeAsString();
}

Result<std::string> Server::Get(const std::string& request) {
  ++counters_.get_calls;
  TAILCAST_ASSIGN_OR_RETURN(const auto message, rpc::Parse<v1::CacheGetRequest>(request));
  TAILCAST_RETURN_IF_ERROR(CheckServes());
  TAILCAST_RETURN_IF_ERROR(CheckIncarnation(message.incarnation()));
  if (message.configuration_id() != 0 &&
      ReadRing(ConfigurationId{message.configuration_id()}) < ReadRing(config_.configuration_id)) {
    ++counters_.old_rings;
    return AbortedError("the ring has changed since the caller looked it up");
  }
  if (message.keys().size() % 16 != 0 || message.keys().size() / 16 > kKeysPerGetMax) {
    return InvalidArgumentError("keys has " + std::to_string(message.keys().size()) +
                                " bytes: 16 for each of at most " + std::to_string(kKeysPerGetMax) +
                                " keys are needed");
  }
  v1::CacheBatch reply;
  const Instant now = Now();
  for (size_t i = 0; i < message.keys().size() / 16; ++i) {
    const Key key = wire::KeyAt(message.keys(), i);
    if (reply.payload().size() >= kGetBytesMax) {
      wire::AppendNotLookedAt(reply, key);
      continue;
    }
    const auto value = core_->Get(now, key);
    if (value.has_value()) {
      wire::Append(reply, key, value->rule, false, value->bytes, ToMillis(value->remaining));
    } else {
      wire::Append(reply, key, MergeRule::kLongerWins, true, "", 0);
    }
  }
  return reply.SerializeAsString();
}

bool Server::IsAsked(const Key& key, const Replica* owner, const v1::CacheScanRequest& asked) {
  if (owner == nullptr) return false;
  const uint16_t index = IndexOf(*owner);
  if (!(asked.gained_in() != 0 ? rings_.Gains(key, index) : rings_.Owns(key, index))) return false;
  if (!asked.once()) return true;
  const Owners holders = rings_.read().OwnersOf(key);
  for (uint8_t i = 0; i < holders.count; ++i) {
    const Replica& holder = config_.replicas[holders.replica[i]];
    if (holders.replica[i] == index || holder.rpc_address.empty()) continue;
    return holder.name == options_.name;
  }
  return true;  // nobody else would give it
}

Result<std::string> Server::Scan(const std::string& request) {
  ++counters_.scan_calls;
  TAILCAST_ASSIGN_OR_RETURN(const auto message, rpc::Parse<v1::CacheScanRequest>(request));
  TAILCAST_RETURN_IF_ERROR(CheckServes());
  TAILCAST_RETURN_IF_ERROR(CheckIncarnation(message.incarnation()));
  const uint64_t bytes_max = std::clamp<uint64_t>(message.bytes_max(), 1, kScanPageBytesMax);
  v1::CacheScanReply reply;
  uint64_t bytes = 0;
  // Foreign keys cost time too: a page ends after so many of them.
  uint64_t looked_at = 0;
  if (message.gained_in() != 0 && message.gained_in() != Raw(config_.configuration_id)) {
    ++counters_.other_rings;
    return AbortedError("cache server " + options_.name + " is at configuration " +
                        std::to_string(Raw(config_.configuration_id)) + ", not " +
                        std::to_string(message.gained_in()));
  }
  // Null: all keys are asked for, or nobody that we know would own one.
  const Replica* const owner = config_.Find(message.owner());
  const uint64_t next = core_->Scan(Now(), message.cursor(), [&](const ServerCore::Value& value) {
    if (bytes >= bytes_max || looked_at >= 65536) return false;
    ++looked_at;
    if (!message.owner().empty() && !IsAsked(value.key, owner, message)) return true;
    const std::string_view payload = message.keys_only() ? std::string_view() : value.bytes;
    wire::Append(*reply.mutable_batch(), value.key, value.rule, false, payload,
                 ToMillis(value.remaining));
    if (message.keys_only()) {
      reply.add_value_lengths(static_cast<uint32_t>(value.bytes.size()));
    }
    bytes += payload.size() + 64;
    return true;
  });
  reply.set_next_cursor(next);
  reply.set_configuration_id(Raw(config_.configuration_id));
  return reply.SerializeAsString();
}

// Whoever asks wants to know what is here, whichever life this is and whatever the ring says.
Result<std::string> Server::Locate(const std::string& request) {
  ++counters_.locate_calls;
  TAILCAST_ASSIGN_OR_RETURN(const auto message, rpc::Parse<v1::CacheLocateRequest>(request));
  if (message.key().size() != 16) {
    return InvalidArgumentError("key has " + std::to_string(message.key().size()) +
                                " bytes: 16 are needed");
  }
  const Key key = wire::KeyAt(message.key(), 0);
  v1::CacheLocateReply reply;
  reply.set_incarnation(Raw(core_->geometry().generation));
  reply.set_configuration_id(Raw(config_.configuration_id));
  reply.set_serving(serving_);
  reply.set_bucket(layout::BucketOf(key, core_->geometry().bucket_count));
  const auto value = core_->Get(Now(), key);
  if (!value.has_value()) return reply.SerializeAsString();
  reply.set_found(true);
  reply.set_rule(static_cast<uint32_t>(value->rule));
  reply.set_value(value->bytes.data(), value->bytes.size());
  reply.set_crc(value->crc);
  reply.set_version(value->version);
  reply.set_remaining_ms(ToMillis(value->remaining));
  reply.set_overflowed(value->overflowed);
  return reply.SerializeAsString();
}

Result<std::string> Server::Stat(const std::string& request) {
  ++counters_.stat_calls;
  TAILCAST_RETURN_IF_ERROR(rpc::Parse<v1::CacheStatRequest>(request).ok()
                               ? OkStatus()
                               : InvalidArgumentError("not a valid CacheStatRequest"));
  v1::CacheStatReply reply;
  reply.set_name(options_.name);
  reply.set_configuration_id(Raw(config_.configuration_id));
  reply.set_generation(Raw(core_->geometry().generation));
  reply.set_repair(RepairText());
  const ServerState shown = state();
  auto& values = *reply.mutable_values();
  for (const ServerMetric& metric : ServerMetricTable()) values[metric.key] = metric.value(shown);
  return reply.SerializeAsString();
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
