#include "tailcast/cache/server.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {
namespace {

const Logger kLog("cache");

uint32_t ToMillis(Duration duration) {
  return static_cast<uint32_t>(std::clamp<int64_t>(duration.millis(), 0, UINT32_MAX));
}

}  // namespace

struct Server::Repair {
  struct Peer {
    Peer(EventLoop& loop, std::string n, std::unique_ptr<rpc::Client> c)
        : name(std::move(n)), client(std::move(c)), next(loop) {}
    std::string name;
    std::unique_ptr<rpc::Client> client;
    uint64_t cursor = 0;
    int failures = 0;
    bool done = false;
    Timer next;  // page
  };
  std::deque<Peer> peers;
  MonotonicTime started, next_page;
  Scope scope;
};

Server::Server(EventLoop* loop, fabric::Exporter* exporter, rpc::Server* rpc_server,
               rpc::Connector* connector, ServerOptions options)
    : loop_(loop),
      exporter_(exporter),
      rpc_server_(rpc_server),
      connector_(connector),
      options_(std::move(options)),
      tick_(*loop) {
  Handle("Mutate", &Server::Mutate);
  Handle("Get", &Server::Get);
  Handle("Scan", &Server::Scan);
  Handle("Stat", &Server::Stat);
}

Server::~Server() = default;

void Server::Handle(const char* method,
                    Result<std::string> (Server::*handler)(const std::string&)) {
  rpc_server_->Handle("/" + options_.service + "/" + method,
                      scope_.Bind([this, handler](std::string request, rpc::Responder respond) {
                        if (core_ == nullptr) {
                          respond(UnavailableError("this cache server has not started"));
                          return;
                        }
                        Result<std::string> reply = (this->*handler)(request);
                        if (!reply.ok()) ++counters_.bad_requests;
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
  const layout::Generation generation = options_.generation != layout::Generation::kNone
                                            ? options_.generation
                                            : layout::Generation{RandomSeed() | 1};
  core_ = std::make_unique<ServerCore>(options_.core, index, data, generation);
  core_->SetConfiguration(config_.configuration_id);
  exporter_->Beat();
  Result<std::vector<std::string>> addresses = exporter_->Listen();
  if (!addresses.ok()) {
    core_.reset();
    return addresses.status().WithContext("cache server " + options_.name);
  }
  OnTick();
  StartRepair();
  return addresses;
}

void Server::OnTick() {
  core_->OnTick(Now(), doorbells_);
  exporter_->Beat();
  NotifyAll();
  tick_.After(options_.core.heartbeat_interval, scope_.Bind([this] { OnTick(); }));
}

void Server::NotifyAll() {
  for (const uint64_t offset : doorbells_) exporter_->Notify(layout::kIndexRegion, offset);
  counters_.notifications += doorbells_.size();
  doorbells_.clear();
}

void Server::UpdateRing(RingConfig config) {
  if (config.configuration_id < config_.configuration_id) return;
  const bool changed = config.configuration_id != config_.configuration_id;
  if (!ring_.IsOf(config)) ring_ = HashRing(config);
  config_ = std::move(config);
  if (core_ == nullptr) return;
  if (changed) core_->SetConfiguration(config_.configuration_id);
  StartRepair();
}

// ---- Calls ----

Result<std::string> Server::Mutate(const std::string& request) {
  ++counters_.mutate_calls;
  TAILCAST_ASSIGN_OR_RETURN(const auto message, rpc::Parse<v1::CacheMutateRequest>(request));
  TAILCAST_RETURN_IF_ERROR(wire::Reader::Check(message.batch()));
  v1::CacheMutateReply reply;
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
    results.push_back(static_cast<char>(result));
  }
  NotifyAll();
  reply.set_configuration_id(Raw(config_.configuration_id));
  return reply.SerializeAsString();
}

Result<std::string> Server::Get(const std::string& request) {
  ++counters_.get_calls;
  TAILCAST_ASSIGN_OR_RETURN(const auto message, rpc::Parse<v1::CacheGetRequest>(request));
  if (message.keys().size() % 16 != 0 || message.keys().size() / 16 > kKeysPerGetMax) {
    return InvalidArgumentError("keys has " + std::to_string(message.keys().size()) +
                                " bytes: 16 for each of at most " + std::to_string(kKeysPerGetMax) +
                                " keys are needed");
  }
  v1::CacheBatch reply;
  const Instant now = Now();
  for (size_t i = 0; i < message.keys().size() / 16; ++i) {
    const Key key = wire::KeyAt(message.keys(), i);
    const auto value = core_->Get(now, key);
    if (value.has_value()) {
      wire::Append(reply, key, value->rule, false, value->bytes, ToMillis(value->remaining));
    } else {
      wire::Append(reply, key, MergeRule::kLongerWins, true, "", 0);
    }
  }
  return reply.SerializeAsString();
}

Result<std::string> Server::Scan(const std::string& request) {
  ++counters_.scan_calls;
  TAILCAST_ASSIGN_OR_RETURN(const auto message, rpc::Parse<v1::CacheScanRequest>(request));
  const uint64_t bytes_max = std::clamp<uint64_t>(message.bytes_max(), 1, kScanPageBytesMax);
  v1::CacheScanReply reply;
  uint64_t bytes = 0;
  // Foreign keys cost time too: a page ends after so many of them.
  uint64_t looked_at = 0;
  const uint64_t next = core_->Scan(Now(), message.cursor(), [&](const ServerCore::Value& value) {
    if (bytes >= bytes_max || looked_at >= 65536) return false;
    ++looked_at;
    if (!message.owner().empty()) {
      const Owners owners = ring_.OwnersOf(value.key);
      bool owned = false;
      for (uint8_t i = 0; i < owners.count; ++i) {
        owned = owned || config_.replicas[owners.replica[i]].name == message.owner();
      }
      if (!owned) return true;
    }
    wire::Append(*reply.mutable_batch(), value.key, value.rule, false, value.bytes,
                 ToMillis(value.remaining));
    bytes += value.bytes.size() + 64;
    return true;
  });
  reply.set_next_cursor(next);
  return reply.SerializeAsString();
}

Result<std::string> Server::Stat(const std::string& request) {
  TAILCAST_RETURN_IF_ERROR(rpc::Parse<v1::CacheStatRequest>(request).ok()
                               ? OkStatus()
                               : InvalidArgumentError("not a valid CacheStatRequest"));
  v1::CacheStatReply reply;
  reply.set_name(options_.name);
  reply.set_configuration_id(Raw(config_.configuration_id));
  reply.set_generation(Raw(core_->geometry().generation));
  const ServerStats stats = core_->stats();
  auto& values = *reply.mutable_values();
  values["applied"] = stats.applied;
  values["no_change"] = stats.no_change;
  values["mismatches"] = stats.mismatches;
  values["refused"] = stats.refused;
  values["refused_no_slot"] = stats.refused_no_slot;
  values["refused_too_large"] = stats.refused_too_large;
  values["refused_overflow"] = stats.refused_overflow;
  values["refused_malformed"] = stats.refused_malformed;
  values["erased"] = stats.erased;
  values["extended_in_place"] = stats.extended_in_place;
  values["moved"] = stats.moved;
  values["inserted"] = stats.inserted;
  values["expired"] = stats.expired;
  values["collected"] = stats.collected;
  values["overflows"] = stats.overflows;
  values["live"] = stats.live;
  values["live_bytes"] = stats.live_bytes;
  values["resting"] = stats.resting;
  values["overflowed"] = stats.overflowed;
  values["slabs"] = stats.slabs;
  values["slabs_used"] = stats.slabs_used;
  values["mutate_calls"] = counters_.mutate_calls;
  values["get_calls"] = counters_.get_calls;
  values["scan_calls"] = counters_.scan_calls;
  values["bad_requests"] = counters_.bad_requests;
  values["notifications"] = counters_.notifications;
  values["repaired_values"] = counters_.repaired_values;
  values["repaired_bytes"] = counters_.repaired_bytes;
  values["repair_failures"] = counters_.repair_failures;
  values["repairing"] = counters_.repairing ? 1 : 0;
  return reply.SerializeAsString();
}

// ---- Repair ----

void Server::StartRepair() {
  if (core_ == nullptr || config_.replicas.size() < 2) return;
  std::vector<std::string> names;
  for (const Replica& replica : config_.replicas) names.push_back(replica.name);
  std::sort(names.begin(), names.end());
  if (!std::binary_search(names.begin(), names.end(), options_.name)) return;
  if (names != repaired_names_) repair_again_ = true;
  if (!repair_again_ || repair_ != nullptr) return;
  repair_again_ = false;
  repaired_names_ = std::move(names);
  repaired_configuration_ = config_.configuration_id;
  repair_ = std::make_unique<Repair>();
  repair_->started = repair_->next_page = loop_->Now();
  for (const Replica& replica : config_.replicas) {
    if (replica.name == options_.name || replica.rpc_address.empty()) continue;
    repair_->peers.emplace_back(*loop_, replica.name,
                                connector_->MakeClient(replica.rpc_address, ""));
  }
  if (repair_->peers.empty()) {
    repair_.reset();
    repair_again_ = true;  // nobody to ask yet
    return;
  }
  counters_.repairing = true;
  for (size_t peer = 0; peer < repair_->peers.size(); ++peer) PullPage(peer);
}

void Server::PullPage(size_t index) {
  Repair::Peer& peer = repair_->peers[index];
  v1::CacheScanRequest request;
  request.set_cursor(peer.cursor);
  request.set_bytes_max(options_.repair_page_bytes);
  request.set_owner(options_.name);
  peer.client->Call(
      "/" + options_.service + "/Scan", request.SerializeAsString(), options_.repair_timeout,
      repair_->scope.Bind([this, index](Result<std::string> reply) { OnPage(index, reply); }));
}

void Server::OnPage(size_t index, const Result<std::string>& bytes) {
  Repair::Peer& peer = repair_->peers[index];
  const auto parsed = [&]() -> Result<v1::CacheScanReply> {
    if (!bytes.ok()) return bytes.status();
    TAILCAST_ASSIGN_OR_RETURN(auto reply, rpc::Parse<v1::CacheScanReply>(*bytes));
    TAILCAST_RETURN_IF_ERROR(wire::Reader::Check(reply.batch()));
    return reply;
  }();
  Duration wait = Duration::Millis(200);
  if (!parsed.ok()) {
    ++counters_.repair_failures;
    if (++peer.failures == 3) {
      kLog.Warn(options_.name, ": repair from ", peer.name, " given up: ", parsed.status());
      peer.done = true;
      repair_again_ = true;  // with the next configuration, which may know where the peer is
    }
  } else {
    peer.failures = 0;
    wire::Reader reader(parsed->batch());
    wire::Entry entry;
    const Instant now = Now();
    while (reader.Next(entry)) {
      // Its own ring decides: a peer may be on another one.
      const Owners owners = ring_.OwnersOf(entry.key);
      bool owned = false;
      for (uint8_t i = 0; i < owners.count; ++i) {
        owned = owned || config_.replicas[owners.replica[i]].name == options_.name;
      }
      if (!owned) continue;
      const Duration remaining =
          entry.remaining_ms ? Duration::Millis(*entry.remaining_ms) : options_.core.ttl;
      if (core_->ApplyCopy(now, entry.key, entry.rule, entry.value, remaining, doorbells_) ==
          MutationResult::kApplied) {
        ++counters_.repaired_values;
        counters_.repaired_bytes += entry.value.size();
      }
    }
    NotifyAll();
    peer.cursor = parsed->next_cursor();
    peer.done = peer.cursor == 0;
    // All peers share the rate: each page moves the time of the next.
    const auto cost = Duration::Micros(static_cast<int64_t>(
        bytes->size() * 1000000 / std::max<uint64_t>(options_.repair_bytes_per_second, 1)));
    repair_->next_page = std::max(repair_->next_page, now.monotonic) + cost;
    wait = repair_->next_page - now.monotonic;
  }
  if (!peer.done) {
    peer.next.After(wait, repair_->scope.Bind([this, index] { PullPage(index); }));
    return;
  }
  if (std::all_of(repair_->peers.begin(), repair_->peers.end(),
                  [](const Repair::Peer& p) { return p.done; })) {
    counters_.repairing = false;
    kLog.Log(counters_.repaired_values > 0 ? LogLevel::kInfo : LogLevel::kDebug, options_.name,
             ": repaired ", counters_.repaired_values, " values, ", counters_.repaired_bytes,
             " bytes in ", (loop_->Now() - repair_->started).millis(), " ms");
    Retire(*loop_, std::move(repair_));  // this is a callback of one of its clients
    // The ring may have changed meanwhile.
    if (config_.configuration_id != repaired_configuration_) StartRepair();
  }
}

}  // namespace tailcast::cache
