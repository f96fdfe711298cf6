#include "tailcast/cell/registry_core.h"

#include <algorithm>

#include "tailcast/base/nearest.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::cell {
namespace {

constexpr int kDeletedMax = 10000;
constexpr int kFabricAddressesMax = 8;
constexpr size_t kAddressMax = 300;
constexpr int kDestinationsMax = 1000;
constexpr int kAbandonedMax = 10 * kDestinationsMax;  // of changes that replaced one another
constexpr size_t kReplacedMax = 8;

v1::RegistrySnapshot RingOf(const v1::RegistrySnapshot& snapshot) {
  v1::RegistrySnapshot ring;
  ring.set_ring_configuration_id(snapshot.ring_configuration_id());
  ring.set_cache_epoch(snapshot.cache_epoch());
  *ring.mutable_cache_members() = snapshot.cache_members();
  *ring.mutable_other_cache_members() = snapshot.other_cache_members();
  return ring;
}

Status TooLong(const char* field) {
  return InvalidArgumentError(std::string("process.") + field + " is longer than " +
                              std::to_string(kAddressMax) + " bytes");
}

}  // namespace

Status ValidateTree(const v1::StreamConfig& stream) {
  std::map<std::string, std::string> parent;
  for (const v1::TreeEdge& edge : stream.tree()) {
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.from(), "stream.tree.from"));
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.to(), "stream.tree.to"));
    if (edge.to() == stream.source()) {
      return InvalidArgumentError("stream.tree enters the source '" + edge.to() + "'");
    }
    if (!parent.emplace(edge.to(), edge.from()).second) {
      return InvalidArgumentError("stream.tree enters '" + edge.to() + "' twice");
    }
  }
  const auto reaches_source = [&](std::string cell) {
    for (size_t hops = 0; hops <= parent.size(); ++hops) {
      if (cell == stream.source()) return true;
      const auto it = parent.find(cell);
      if (it == parent.end()) return false;
      cell = it->second;
    }
    return false;
  };
  for (const auto& [to, from] : parent) {
    if (!reaches_source(to)) {
      return InvalidArgumentError("stream.tree: '" + to + "' is not reached from the source '" +
                                  stream.source() + "'");
    }
  }
  for (const std::string& destination : stream.destinations()) {
    if (!parent.contains(destination)) {
      return InvalidArgumentError("stream.tree does not reach the destination '" + destination +
                                  "'");
    }
  }
  return OkStatus();
}

RegistryCore::RegistryCore(RegistryOptions options, v1::RegistrySnapshot durable, uint64_t seed)
    : options_(std::move(options)),
      durable_(std::move(durable)),
      caches_(durable_, options_.cache_replicas, {.fence_after = options_.fence_after}),
      shown_(RingOf(durable_)),
      rng_(seed) {
  view_.set_cell(options_.cell);
  view_.set_store(options_.store);
  view_.set_topology(options_.topology);
  view_.set_scheduler_incarnation(durable_.scheduler_incarnation());
  view_.set_version(durable_.scheduler_incarnation() << 32);
  // What Open gave is durable; a changed ring is shown once it is written.
  *view_.mutable_streams() = durable_.streams();
  RefreshProcesses();
}

void RegistryCore::Changed() { view_.set_version(view_.version() + 1); }

void RegistryCore::RefreshProcesses() {
  view_.clear_processes();
  for (const auto& [name, entry] : processes_) *view_.add_processes() = entry.info;
  FillRing(/*metadata=*/false, view_.mutable_data_ring());
  FillRing(/*metadata=*/true, view_.mutable_metadata_ring());
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

Result<v1::RegisterReply> RegistryCore::Register(MonotonicTime now,
                                                 const v1::ProcessInfo& process) {
  TAILCAST_RETURN_IF_ERROR(CheckProcess(process));
  const ProcessIncarnation incarnation{process.incarnation()};
  std::vector<ProcessIncarnation> replaced;
  if (const auto gone = gone_.find(process.name()); gone != gone_.end()) replaced = gone->second;
  const auto it = processes_.find(process.name());
  if (it != processes_.end()) replaced = it->second.replaced;
  if (std::find(replaced.begin(), replaced.end(), incarnation) != replaced.end()) {
    return FailedPreconditionError("another process '" + process.name() +
                                   "' has taken this one's place; end");
  }
  v1::RegisterReply reply;
  reply.set_scheduler_incarnation(durable_.scheduler_incarnation());
  reply.set_lease_ms(options_.lease.millis());
  reply.set_ring_configuration_id(shown_.ring_configuration_id());
  reply.set_cache_epoch(shown_.cache_epoch());
  const MonotonicTime expires = now + options_.lease;
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

std::vector<std::string> RegistryCore::Expire(MonotonicTime now) {
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
  return next;
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

Status RegistryCore::CheckStream(const v1::StreamConfig& s) const {
  TAILCAST_RETURN_IF_ERROR(stream::ValidateStreamName(s.name()));
  if (s.shards() < 1 || s.shards() > stream::kShardsMax) {
    return InvalidArgumentError("stream.shards is " + std::to_string(s.shards()) + "; 1 to " +
                                std::to_string(stream::kShardsMax) + " are allowed");
  }
  if (s.chunk_size() < stream::kChunkSizeMin || s.chunk_size() > stream::kChunkSizeMax) {
    return InvalidArgumentError("stream.chunk_size is " + std::to_string(s.chunk_size()) + "; " +
                                std::to_string(stream::kChunkSizeMin) + " to " +
                                std::to_string(stream::kChunkSizeMax) + " bytes are allowed");
  }
  if (s.destinations_size() > kDestinationsMax || s.tree_size() > kDestinationsMax) {
    return InvalidArgumentError("stream has more than " + std::to_string(kDestinationsMax) +
                                " destinations");
  }
  if (s.change().base_size() > kDestinationsMax || s.change().abandoned_size() > kAbandonedMax) {
    return InvalidArgumentError("stream.change has more than " + std::to_string(kDestinationsMax) +
                                " edges, or " + std::to_string(kAbandonedMax) + " abandoned ones");
  }
  for (const auto* edges : {&s.change().base(), &s.change().abandoned()}) {
    for (const v1::TreeEdge& edge : *edges) {
      TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.from(), "stream.change.from"));
      TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.to(), "stream.change.to"));
    }
  }
  const auto known = [&](const std::string& cell, const char* field) -> Status {
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(cell, field));
    const auto& cells = options_.known_cells;
    if (cells.empty() || std::find(cells.begin(), cells.end(), cell) != cells.end()) {
      return OkStatus();
    }
    return InvalidArgumentError(std::string(field) + " '" + cell + "' is no cell of the topology" +
                                DidYouMean(cell, cells));
  };
  TAILCAST_RETURN_IF_ERROR(known(s.source(), "stream.source"));
  std::set<std::string> seen{s.source()};
  for (const std::string& destination : s.destinations()) {
    TAILCAST_RETURN_IF_ERROR(known(destination, "stream.destinations"));
    if (!seen.insert(destination).second) {
      return InvalidArgumentError("stream.destinations names '" + destination + "' twice");
    }
  }
  if (stream::TreeVersionOf(s) > stream::kTreeVersionMax) {
    return InvalidArgumentError("stream.tree_version is " + std::to_string(s.tree_version()));
  }
  return ValidateTree(s);
}

v1::StreamConfig* RegistryCore::Mutable(const std::string& name) {
  for (auto& stream : *durable_.mutable_streams()) {
    if (stream.name() == name) return &stream;
  }
  return nullptr;
}

const v1::StreamConfig* RegistryCore::FindStream(const std::string& name) const {
  for (const auto& stream : durable_.streams()) {
    if (stream.name() == name) return &stream;
  }
  return nullptr;
}

void RegistryCore::Put(const v1::StreamConfig& stream) {
  if (v1::StreamConfig* known = Mutable(stream.name())) {
    *known = stream;
  } else {
    *durable_.add_streams() = stream;
    std::sort(durable_.mutable_streams()->begin(), durable_.mutable_streams()->end(),
              [](const auto& a, const auto& b) { return a.name() < b.name(); });
  }
  dirty_ = true;
}

Result<v1::StreamConfig> RegistryCore::CreateStream(const v1::StreamConfig& request,
                                                    const std::vector<v1::TreeEdge>& planned,
                                                    WallTime now) {
  v1::StreamConfig stream = request;
  if (stream.chunk_size() == 0) stream.set_chunk_size(4096);
  if (stream.shards() == 0) stream.set_shards(1);
  if (stream.source().empty()) stream.set_source(options_.cell);
  if (stream.tree_size() == 0) {
    for (const auto& edge : planned) *stream.add_tree() = edge;
  }
  stream.set_tree_version(1);
  stream.set_created_us(now.micros());
  TAILCAST_RETURN_IF_ERROR(CheckStream(stream));
  if (stream.source() != options_.cell) {
    return FailedPreconditionError("stream '" + stream.name() + "' has its source in cell '" +
                                   stream.source() + "': create it there, not in cell '" +
                                   options_.cell + "'");
  }
  if (FindStream(stream.name()) != nullptr) {
    return AlreadyExistsError("stream '" + stream.name() + "' exists in cell '" + options_.cell +
                              "'");
  }
  if (durable_.streams_size() >= options_.streams_max) {
    return ResourceExhaustedError("cell '" + options_.cell + "' has " +
                                  std::to_string(options_.streams_max) + " streams, its limit");
  }
  do {
    stream.set_incarnation(rng_.Next());
  } while (stream.incarnation() == 0 || WasDeleted(stream::IdOf(stream)));
  stream.clear_change();
  stream.set_settled_version(1);
  stream.clear_finished_version();
  Put(stream);
  return stream;
}

bool RegistryCore::WasDeleted(const stream::StreamId& stream) const {
  for (const auto& deleted : durable_.deleted()) {
    if (deleted.name() == stream.name && deleted.incarnation() == Raw(stream.incarnation)) {
      return true;
    }
  }
  return false;
}

// What the tree of `known` becomes when `next` replaces it: the steps begin at the tree that was
// carried out last.
v1::TreeChange RegistryCore::ChangeFrom(const v1::StreamConfig& known,
                                        const v1::StreamConfig& next) {
  v1::TreeChange change;
  if (!known.has_change()) {
    *change.mutable_base() = known.tree();
    return change;
  }
  *change.mutable_base() = known.change().base();
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto* edges : {&known.change().base(), &next.tree()}) {
    for (const v1::TreeEdge& edge : *edges) seen.emplace(edge.from(), edge.to());
  }
  for (const auto* edges : {&known.change().abandoned(), &known.tree()}) {
    for (const v1::TreeEdge& edge : *edges) {
      if (seen.emplace(edge.from(), edge.to()).second) *change.add_abandoned() = edge;
    }
  }
  return change;
}

Result<v1::StreamConfig> RegistryCore::InstallStream(const v1::StreamConfig& request,
                                                     const Installed& what) {
  v1::StreamConfig stream = request;
  stream.clear_settled_version();
  stream.clear_finished_version();
  TAILCAST_RETURN_IF_ERROR(CheckStream(stream));
  if (stream.incarnation() == 0) return InvalidArgumentError("stream.incarnation is 0");
  if (stream.tree_version() == 0) return InvalidArgumentError("stream.tree_version is 0");
  if (WasDeleted(stream::IdOf(stream))) {
    return NotFoundError("stream '" + stream.name() + "' was deleted");
  }
  if (const v1::StreamConfig* known = FindStream(stream.name())) {
    if (known->incarnation() == stream.incarnation()) {
      if (known->tree_version() > stream.tree_version()) return *known;
      if (known->tree_version() == stream.tree_version()) {
        v1::StreamConfig* mine = Mutable(stream.name());
        if (what.settled && mine->settled_version() < stream.tree_version()) {
          mine->set_settled_version(stream.tree_version());
          dirty_ = true;
        }
        if (what.complete && mine->has_change()) {
          mine->clear_change();
          dirty_ = true;
        }
        return *mine;
      }
      if (known->source() != stream.source() || known->shards() != stream.shards() ||
          known->chunk_size() != stream.chunk_size()) {
        return InvalidArgumentError("stream '" + stream.name() +
                                    "': source, shards and chunk_size cannot change");
      }
      stream.set_settled_version(known->settled_version());
      stream.set_finished_version(known->finished_version());
      if (stream.source() == options_.cell) {
        *stream.mutable_change() = ChangeFrom(*known, stream);
        if (stream.change().abandoned_size() > kAbandonedMax) {
          return ResourceExhaustedError(
              "stream '" + stream.name() +
              "': too many changes of the tree began before one was carried out to its end; "
              "`tailcast stream describe` shows which cells are not settled");
        }
      }
    } else {
      // The younger one replaces the older, of whose deletion we did not hear.
      if (known->created_us() > stream.created_us()) return *known;
      auto* deleted = durable_.add_deleted();
      deleted->set_name(known->name());
      deleted->set_incarnation(known->incarnation());
    }
  } else if (durable_.streams_size() >= options_.streams_max) {
    return ResourceExhaustedError("cell '" + options_.cell + "' has " +
                                  std::to_string(options_.streams_max) + " streams, its limit");
  }
  if (what.settled || stream.source() == options_.cell) {
    stream.set_settled_version(stream.tree_version());
  }
  if (what.complete) stream.clear_change();
  Put(stream);
  return stream;
}

void RegistryCore::SetFinished(const std::string& name, stream::TreeVersion tree_version) {
  v1::StreamConfig* stream = Mutable(name);
  if (stream == nullptr || stream->tree_version() != Raw(tree_version) ||
      stream->finished_version() >= Raw(tree_version)) {
    return;
  }
  stream->set_finished_version(Raw(tree_version));
  if (stream->source() == options_.cell) stream->clear_change();
  dirty_ = true;
}

Result<v1::StreamConfig> RegistryCore::DeleteStream(const std::string& name,
                                                    stream::StreamIncarnation incarnation) {
  for (int i = 0; i < durable_.streams_size(); ++i) {
    if (durable_.streams(i).name() != name) continue;
    const v1::StreamConfig stream = durable_.streams(i);
    if (incarnation != stream::StreamIncarnation::kNone &&
        stream.incarnation() != Raw(incarnation)) {
      break;
    }
    durable_.mutable_streams()->DeleteSubrange(i, 1);
    auto* deleted = durable_.add_deleted();
    deleted->set_name(name);
    deleted->set_incarnation(stream.incarnation());
    if (durable_.deleted_size() > kDeletedMax) durable_.mutable_deleted()->DeleteSubrange(0, 1);
    auto* floors = durable_.mutable_floors();
    for (int f = floors->size() - 1; f >= 0; --f) {
      if (floors->at(f).stream() == name && floors->at(f).incarnation() == stream.incarnation()) {
        floors->DeleteSubrange(f, 1);
      }
    }
    dirty_ = true;
    return stream;
  }
  std::vector<std::string> names;
  for (const auto& stream : durable_.streams()) names.push_back(stream.name());
  return NotFoundError("no stream '" + name + "' in cell '" + options_.cell + "'" +
                       DidYouMean(name, names));
}

int64_t RegistryCore::Floor(const stream::ShardId& shard) const {
  for (const auto& floor : durable_.floors()) {
    if (stream::ShardOf(floor) == shard) return floor.seq();
  }
  return 1;
}

void RegistryCore::SetFloor(const stream::ShardId& shard, int64_t seq) {
  for (auto& floor : *durable_.mutable_floors()) {
    if (stream::ShardOf(floor) == shard) {
      if (seq <= floor.seq()) return;
      floor.set_seq(seq);
      dirty_ = true;
      return;
    }
  }
  auto* floor = durable_.add_floors();
  stream::SetShard(shard, floor);
  floor->set_seq(seq);
  dirty_ = true;
}

v1::RegistrySnapshot RegistryCore::TakeSnapshot() {
  dirty_ = false;
  caches_.Save(&durable_);
  return durable_;
}

void RegistryCore::OnWritten(const v1::RegistrySnapshot& snapshot) {
  *view_.mutable_streams() = snapshot.streams();
  v1::RegistrySnapshot next = RingOf(snapshot);
  if (next.SerializeAsString() != shown_.SerializeAsString()) {
    shown_ = std::move(next);
    RefreshProcesses();
  }
  Changed();
}

}  // namespace tailcast::cell
