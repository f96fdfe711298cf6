// What others ask of a cache server: mutations, by message or by call, and the other calls
// (proto/cache.proto).
#include <algorithm>
#include <utility>

#include "tailcast/base/strong.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/server.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {
namespace {

uint32_t ToMillis(Duration duration) {
  return static_cast<uint32_t>(std::clamp<int64_t>(duration.millis(), 0, UINT32_MAX));
}

}  // namespace

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

Status Server::CheckServes() {
  if (open_) return OkStatus();
  CountNotServing();
  return NotServing();
}

void Server::CountNotServing() {
  switch (serving_.state()) {
    case ServingCore::State::kReplaced:
      ++counters_.replaced;
      break;
    case ServingCore::State::kNotInRing:
      ++counters_.not_in_ring;
      break;
    case ServingCore::State::kStalled:
      ++counters_.stalled;
      break;
    case ServingCore::State::kNoLease:
      ++counters_.no_lease;
      break;
    case ServingCore::State::kServes:
      break;
  }
}

Status Server::NotServing() const {
  return NotFoundError("cache server " + options_.name +
                       (serving_.named()
                            ? " waits to hear from the registry"
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
  if (open_) return MutateStatus::kDone;
  // Who knows a newer ring may mean it for one that this server is in: its memory is closed until
  // it has heard of it.
  if (!serving_.named() && !serving_.doubtful() &&
      writer.configuration > config_.configuration_id) {
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
  reply.set_serving(open_);
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

}  // namespace tailcast::cache
