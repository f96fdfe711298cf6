#include "tailcast/cell/registry_core.h"

#include <algorithm>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/nearest.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::cell {
namespace {

constexpr int kFabricAddressesMax = 8;
constexpr size_t kAddressMax = 300;
constexpr size_t kReplacedMax = 8;

FAULT_POINT(kOldVersion, "cell.old_version",
            "a change of the cell's view does not raise its version");

v1::RegistrySnapshot RingOf(const v1::RegistrySnapshot& snapshot) {
  v1::RegistrySnapshot ring;
  ring.set_ring_configuration_id(snapshot.ring_configuration_id());
  ring.set_cache_epoch(snapshot.cache_epoch());
  *ring.mutable_cache_members() = snapshot.cache_members();
  *ring.mutable_other_cache_members() = snapshot.other_cache_members();
  return ring;
}

// The processes and rings of a view, but for how far a cache has come: that is for the registry,
// and for people who look. A change of the ring has some twenty such steps; each would wake every
// process of the cell and its users. Nor does it matter to anybody who has a view whether a cache
// would rest that begins anew: that one will ask for a view of its own.
std::string WhatOthersSee(const v1::CellView& view) {
  v1::CellView seen;
  *seen.mutable_data_ring() = view.data_ring();
  *seen.mutable_metadata_ring() = view.metadata_ring();
  *seen.mutable_processes() = view.processes();
  for (v1::Replica& replica : *seen.mutable_metadata_ring()->mutable_replicas()) {
    replica.clear_rests();
  }
  for (v1::ProcessInfo& process : *seen.mutable_processes()) {
    process.clear_copied_epoch();
    process.clear_filled_configuration();
    process.clear_data_filled_configuration();
    process.clear_sealed_configuration();
    process.clear_data_copied();
  }
  return seen.SerializeAsString();
}

Status TooLong(const char* field) {
  return InvalidArgumentError(std::string("process.") + field + " is longer than " +
                              std::to_string(kAddressMax) + " bytes");
}

}  // namespace

RegistryCore::RegistryCore(RegistryOptions options, v1::RegistrySnapshot durable, uint64_t seed)
    : options_(std::move(options)),
      tick_(options_.lease / 4),
      clock_(tick_),
      durable_(std::move(durable)),
      catalogue_({.cell = options_.cell,
                  .known_cells = options_.known_cells,
                  .peers = options_.peers,
                  .streams_max = options_.streams_max},
                 &durable_, seed),
      caches_(durable_, options_.cache_replicas,
              {.lease = options_.lease, .fence_after = options_.fence_after}),
      shown_(RingOf(durable_)) {
  if (durable_.registry_id() == 0) {
    durable_.set_registry_id(Rng(seed).Fork("registry").Next() | 1);
    begun_ = true;
  }
  if (durable_.scheduler_address() != options_.scheduler_address) {
    durable_.set_scheduler_address(options_.scheduler_address);
    begun_ = true;
  }
  view_.set_registry_id(durable_.registry_id());
  view_.set_cell(options_.cell);
  view_.set_store(options_.store);
  view_.set_topology(options_.topology);
  view_.set_cell_key(options_.cell_key);
  view_.set_scheduler_incarnation(durable_.scheduler_incarnation());
  view_.set_version(durable_.scheduler_incarnation() << 32);
  // What Open gave is durable; a changed ring is shown once it is written.
  *view_.mutable_streams() = durable_.streams();
  RefreshProcesses();
}

void RegistryCore::Changed() {
  if (kOldVersion.planted()) return;
  view_.set_version(view_.version() + 1);
}

void RegistryCore::RefreshProcesses() {
  view_.clear_processes();
  for (const auto& [name, entry] : processes_) *view_.add_processes() = entry.info;
  FillRing(/*metadata=*/false, view_.mutable_data_ring());
  FillRing(/*metadata=*/true, view_.mutable_metadata_ring());
  std::string seen = WhatOthersSee(view_);
  if (seen == seen_by_others_) return;
  seen_by_others_ = std::move(seen);
  Changed();
}

void RegistryCore::FillRing(bool metadata, v1::Ring* ring) const {
  ring->Clear();
  ring->set_configuration_id(shown_.ring_configuration_id());
  if (metadata) ring->set_epoch(shown_.cache_epoch());
  const auto phase = cache::PhaseOf(cache::ConfigurationId{shown_.ring_configuration_id()});
  // One that is there shows its address; `member` is what the ring that is read knows of it.
  const auto fill = [&](const v1::CacheMember& member, bool in_ring) {
    v1::Replica* replica = ring->add_replicas();
    replica->set_name(member.name());
    replica->set_not_in_ring(!in_ring);
    replica->set_excused(metadata && in_ring && member.excused());
    replica->set_rests(metadata && member.whole_incarnation() != 0);
    const auto it = processes_.find(member.name());
    if (it == processes_.end()) return replica;
    const v1::ProcessInfo& info = it->second.info;
    // That it has the name is not durable yet.
    if (!member.lives().empty() && *member.lives().rbegin() != info.incarnation()) return replica;
    replica->set_rpc_address(info.rpc_address());
    replica->set_incarnation(info.incarnation());
    replica->set_whole(!metadata || (in_ring && !member.excused() &&
                                     member.whole_incarnation() == info.incarnation()));
    *replica->mutable_fabric_addresses() = metadata ? info.metadata_fabric() : info.data_fabric();
    return replica;
  };
  std::map<std::string, v1::Replica*> replicas;
  for (const v1::CacheMember& member : shown_.cache_members()) {
    replicas[member.name()] = fill(member, true);
  }
  for (const v1::CacheMember& member : shown_.other_cache_members()) {
    v1::Replica*& replica = replicas[member.name()];
    if (replica == nullptr) replica = fill(member, false);
    replica->set_in_other(true);
    // In the ring that comes an earlier life of it has voted, whole or not.
    if (metadata && phase == cache::RingPhase::kBoth && member.lives_size() > 1) {
      replica->set_rests(true);
    }
    // In the ring that comes everybody votes: nobody reads it before who is in it was filled.
    const bool there = replica->incarnation() != 0;
    replica->set_votes_in_other(
        there && (!metadata || phase == cache::RingPhase::kBoth ||
                  (!member.excused() && member.whole_incarnation() == replica->incarnation())));
  }
}

Status RegistryCore::CheckProcess(const v1::ProcessInfo& p) const {
  TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(p.name(), "process.name"));
  if (!p.cell().empty() && p.cell() != options_.cell) {
    return FailedPreconditionError("'" + p.name() + "' is a process of cell '" + p.cell() +
                                   "', and the scheduler at this address is of cell '" +
                                   options_.cell + "'; mend `scheduler` in its configuration");
  }
  if (p.role() < v1::ROLE_CACHE || p.role() > v1::ROLE_SCHEDULER) {
    return InvalidArgumentError("process.role is " + std::to_string(p.role()));
  }
  if (p.incarnation() == 0) return InvalidArgumentError("process.incarnation is 0");
  if (p.rpc_address().size() > kAddressMax) return TooLong("rpc_address");
  if (p.metrics_address().size() > kAddressMax) return TooLong("metrics_address");
  if (p.data_fabric_size() > kFabricAddressesMax ||
      p.metadata_fabric_size() > kFabricAddressesMax) {
    return InvalidArgumentError("process has more than " + std::to_string(kFabricAddressesMax) +
                                " fabric addresses");
  }
  for (const auto& address : p.data_fabric()) {
    if (address.size() > kAddressMax) return TooLong("data_fabric");
  }
  for (const auto& address : p.metadata_fabric()) {
    if (address.size() > kAddressMax) return TooLong("metadata_fabric");
  }
  if (p.role() != v1::ROLE_CACHE || caches_.Knows(p.name())) return OkStatus();
  std::vector<std::string> known = options_.cache_replicas;
  known.insert(known.end(), options_.cache_spares.begin(), options_.cache_spares.end());
  if (std::find(known.begin(), known.end(), p.name()) == known.end()) {
    return FailedPreconditionError("cell " + options_.cell + " knows no cache replica '" +
                                   p.name() + "'" + DidYouMean(p.name(), known) +
                                   "; change the ring to it (tailcast cache reshard), or add it to "
                                   "`caches` or `spares` of the scheduler's configuration");
  }
  return OkStatus();
}

MonotonicTime RegistryCore::Running(MonotonicTime now) {
  seen_ = now;
  return clock_.At(now);
}

Result<v1::RegisterReply> RegistryCore::Register(MonotonicTime loop_now,
                                                 const v1::ProcessInfo& process) {
  const MonotonicTime now = Running(loop_now);
  TAILCAST_RETURN_IF_ERROR(CheckProcess(process));
  const ProcessIncarnation incarnation{process.incarnation()};
  std::vector<ProcessIncarnation> replaced;
  if (const auto gone = gone_.find(process.name()); gone != gone_.end()) replaced = gone->second;
  const auto it = processes_.find(process.name());
  if (it != processes_.end()) replaced = it->second.replaced;
  if (std::find(replaced.begin(), replaced.end(), incarnation) != replaced.end() ||
      (process.role() == v1::ROLE_CACHE &&
       caches_.IsReplaced(process.name(), incarnation,
                          process.copied_epoch() != 0 || process.filled_configuration() != 0))) {
    return FailedPreconditionError("another process '" + process.name() +
                                   "' has taken this one's place; end");
  }
  v1::RegisterReply reply;
  reply.set_scheduler_incarnation(durable_.scheduler_incarnation());
  const Duration lease = process.role() == v1::ROLE_CACHE || process.leaving()
                             ? options_.lease
                             : options_.worker_lease;
  reply.set_lease_ms(lease.millis());
  reply.set_ring_configuration_id(shown_.ring_configuration_id());
  reply.set_cache_epoch(shown_.cache_epoch());
  const MonotonicTime expires = now + lease;
  const auto registered = [&] {
    if (process.role() != v1::ROLE_CACHE) return;
    caches_.OnRegistered(
        now, process.name(),
        {.incarnation = incarnation,
         .copied = cache::CacheEpoch{process.copied_epoch()},
         .filled = cache::ConfigurationId{process.filled_configuration()},
         .data_filled = cache::ConfigurationId{process.data_filled_configuration()},
         .sealed = cache::ConfigurationId{process.sealed_configuration()}});
  };
  if (it != processes_.end()) {
    registered();
    Entry& entry = it->second;
    entry.expires = expires;
    if (entry.info.SerializeAsString() == process.SerializeAsString()) return reply;
    if (const ProcessIncarnation before{entry.info.incarnation()}; before != incarnation) {
      entry.replaced.push_back(before);
      if (entry.replaced.size() > kReplacedMax) entry.replaced.erase(entry.replaced.begin());
    }
    entry.info = process;
  } else {
    if (static_cast<int>(processes_.size()) >= options_.processes_max) {
      return ResourceExhaustedError("cell " + options_.cell + " has " +
                                    std::to_string(options_.processes_max) +
                                    " processes, its limit");
    }
    registered();
    gone_.erase(process.name());
    processes_[process.name()] = Entry{process, expires, std::move(replaced)};
  }
  RefreshProcesses();
  return reply;
}

std::vector<std::string> RegistryCore::Expire(MonotonicTime loop_now) {
  const MonotonicTime now = Running(loop_now);
  std::vector<std::string> names;
  for (auto it = processes_.begin(); it != processes_.end();) {
    if (it->second.expires > now) {
      ++it;
      continue;
    }
    names.push_back(it->first);
    // It may only be slow: it can come back under its incarnation.
    if (!it->second.replaced.empty() && static_cast<int>(gone_.size()) < options_.processes_max) {
      gone_[it->first] = std::move(it->second.replaced);
    }
    caches_.OnGone(now, it->first);
    it = processes_.erase(it);
  }
  caches_.OnTime(now);
  if (!names.empty()) RefreshProcesses();
  return names;
}

MonotonicTime RegistryCore::NextExpiry() const {
  MonotonicTime next = caches_.NextTime();
  for (const auto& [name, entry] : processes_) next = std::min(next, entry.expires);
  if (processes_.empty() && next == MonotonicTime::Max()) return next;
  return std::min(clock_.When(next), seen_ + tick_);
}

void RegistryCore::ShowLacking(const std::vector<v1::LackingFile>& lacking, int64_t total) {
  *view_.mutable_lacking() = {lacking.begin(), lacking.end()};
  view_.set_lacking_total(total);
  Changed();
}

Status RegistryCore::ChangeRing(const v1::ChangeRingRequest& request) {
  if (!request.cancel()) {
    std::vector<std::string> here;
    for (const auto& [name, entry] : processes_) {
      if (entry.info.role() == v1::ROLE_CACHE) here.push_back(name);
    }
    for (const std::string& name : request.replicas()) {
      if (caches_.Knows(name) || std::find(here.begin(), here.end(), name) != here.end()) continue;
      return FailedPreconditionError("no cache process '" + name + "' is there in cell " +
                                     options_.cell + DidYouMean(name, here) +
                                     "; start it before the ring changes to it");
    }
    return caches_.ChangeTo({request.replicas().begin(), request.replicas().end()});
  }
  if (request.replicas_size() > 0) return InvalidArgumentError("cancel: takes no replicas");
  return caches_.Cancel();
}

RegistryCore::Snapshot RegistryCore::TakeSnapshot() {
  begun_ = false;
  caches_.Save(&durable_);
  return {durable_, catalogue_.OnTaken()};
}

// Whether the view is another one: then it goes to everybody.
bool RegistryCore::ShowStreams(const Snapshot& snapshot) {
  bool other = false;
  auto* shown = view_.mutable_streams();
  for (const std::string& name : snapshot.changed.streams) {
    const v1::StreamConfig* now = FindByName(snapshot.state.streams(), name);
    const v1::StreamConfig* before = FindByName(*shown, name);
    if (now == nullptr) {
      if (before == nullptr) continue;
      shown->erase(FindPlace(*shown, name));
    } else {
      if (before != nullptr && before->SerializeAsString() == now->SerializeAsString()) continue;
      PutByName(*now, shown);
    }
    other = true;
  }
  return other;
}

void RegistryCore::OnWritten(const Snapshot& snapshot) {
  catalogue_.OnWritten(snapshot.state, snapshot.changed);
  if (ShowStreams(snapshot)) Changed();
  v1::RegistrySnapshot next = RingOf(snapshot.state);
  if (next.SerializeAsString() == shown_.SerializeAsString()) return;
  shown_ = std::move(next);
  caches_.OnWritten(cache::ConfigurationId{shown_.ring_configuration_id()});
  RefreshProcesses();
}

}  // namespace tailcast::cell
