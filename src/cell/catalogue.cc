#include "tailcast/cell/catalogue.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/nearest.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/operation.h"

namespace tailcast::cell {
namespace {

constexpr int64_t kFirstChunkSize = 4096;  // where the rate decides about the others

// To an operator who knew an older tree: his own was not taken.
Status ChangedMeanwhile(const v1::StreamConfig& known) {
  return AbortedError("stream '" + known.name() + "': another change of its tree came first, as " +
                      "version " + std::to_string(known.tree_version()) +
                      "; look at that one (tailcast stream describe " + known.name() +
                      ") and try again");
}

FAULT_POINT(kNobodyTold, "cell.nobody_told", "a deletion is not told to the other cells");
FAULT_POINT(kNeverFinished, "cell.never_finished", "the end of a change of a tree is not kept");

}  // namespace

Catalogue::Catalogue(CatalogueOptions options, v1::RegistrySnapshot* durable, uint64_t seed)
    : options_(std::move(options)),
      durable_(durable),
      deletions_(durable),
      floors_(durable),
      departures_(durable),
      rng_(seed) {
  auto* streams = durable_->mutable_streams();
  std::sort(streams->begin(), streams->end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  OnWritten(*durable_, Everything());
  if (durable_->creating_size() > 0) {
    durable_->clear_creating();
    changed_.creating = true;
  }
}

CatalogueChanges Catalogue::Everything() const {
  CatalogueChanges all;
  all.creating = all.floors = all.departures = true;
  for (const v1::StreamConfig& stream : durable_->streams()) all.streams.insert(stream.name());
  for (const v1::DeletedStream& deleted : durable_->deleted()) all.deleted.insert(IdOf(deleted));
  return all;
}

// ResourceExhausted: with `added` the durable state would have more than so many times its limit.
// What can't be read again must never be written (registry_store.h).
Status Catalogue::CheckRoom(const v1::StreamConfig& added, int64_t times) const {
  const int64_t limit = options_.state_bytes_max * times;
  const auto bytes = static_cast<int64_t>(durable_->ByteSizeLong() + added.ByteSizeLong());
  if (bytes <= limit) return OkStatus();
  return ResourceExhaustedError(
      "stream '" + added.name() + "': what cell '" + options_.cell + "' keeps of its " +
      std::to_string(durable_->streams_size()) + " streams would take " + std::to_string(bytes) +
      " bytes, and " + std::to_string(limit) +
      (times == 1 ? " are its limit: delete streams, or give them fewer destinations"
                  : " are its limit while copy trees change: try again when changes that began are "
                    "carried out "
                    "(tailcast status)"));
}

v1::StreamConfig* Catalogue::Mutable(const std::string& name) {
  return const_cast<v1::StreamConfig*>(FindStream(name));
}

const v1::StreamConfig* Catalogue::FindStream(const std::string& name) const {
  return FindByName(durable_->streams(), name);
}

void Catalogue::Put(const v1::StreamConfig& stream) {
  PutByName(stream, durable_->mutable_streams());
  changed_.streams.insert(stream.name());
}

Result<v1::StreamConfig> Catalogue::BeginCreate(const v1::StreamConfig& request,
                                                const std::vector<v1::TreeEdge>& planned,
                                                WallTime now) {
  v1::StreamConfig stream = request;
  if (stream.chunk_size() == 0) {
    stream.set_chunk_size(kFirstChunkSize);
    stream.set_chunk_size_by_rate(true);
  }
  if (stream.shards() == 0) stream.set_shards(1);
  if (stream.source().empty()) stream.set_source(options_.cell);
  if (stream.tree_size() == 0) {
    for (const auto& edge : planned) *stream.add_tree() = edge;
  }
  stream.set_tree_version(1);
  stream.mutable_retention()->set_version(1);
  stream.clear_left_out();
  stream.set_created_us(now.micros());
  TAILCAST_RETURN_IF_ERROR(CheckStreamConfig(stream, options_.known_cells));
  if (stream.source() != options_.cell) {
    return FailedPreconditionError("stream '" + stream.name() + "' has its source in cell '" +
                                   stream.source() + "': create it there, not in cell '" +
                                   options_.cell + "'");
  }
  if (const v1::StreamConfig* known = FindStream(stream.name())) {
    return AlreadyExistsError("stream '" + stream.name() + "' exists; its source is cell '" +
                              known->source() + "'");
  }
  for (const v1::StreamConfig& other : durable_->creating()) {
    if (other.name() != stream.name()) continue;
    return AlreadyExistsError("stream '" + stream.name() + "' is being created in cell '" +
                              options_.cell + "' by somebody else");
  }
  if (durable_->streams_size() + durable_->creating_size() >= options_.streams_max) {
    return ResourceExhaustedError("cell '" + options_.cell + "' has " +
                                  std::to_string(options_.streams_max) + " streams, its limit");
  }
  do {
    stream.set_incarnation(rng_.Next());
  } while (stream.incarnation() == 0 || WasDeleted(stream::IdOf(stream)));
  stream.clear_change();
  stream.set_settled_version(1);
  stream.clear_finished_version();
  TAILCAST_RETURN_IF_ERROR(CheckRoom(stream, 1));
  *durable_->add_creating() = stream;
  changed_.creating = true;
  return stream;
}

void Catalogue::FinishCreate(const stream::StreamId& stream) {
  auto* creating = durable_->mutable_creating();
  for (int i = 0; i < creating->size(); ++i) {
    if (stream::IdOf(creating->at(i)) != stream) continue;
    Put(creating->at(i));
    creating->DeleteSubrange(i, 1);
    changed_.creating = true;
    return;
  }
}

void Catalogue::AbortCreate(const stream::StreamId& stream) {
  auto* creating = durable_->mutable_creating();
  for (int i = 0; i < creating->size(); ++i) {
    if (stream::IdOf(creating->at(i)) != stream) continue;
    creating->DeleteSubrange(i, 1);
    changed_.creating = true;
    return;
  }
}

Status Catalogue::AskName(const std::string& name, const std::string& claimant) const {
  TAILCAST_RETURN_IF_ERROR(stream::ValidateStreamName(name));
  TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(claimant, "claimant"));
  if (const v1::StreamConfig* known = FindStream(name)) {
    // The source says whether it is there; any other cell may not have heard of its deletion.
    if (known->source() != options_.cell) {
      return UnavailableError("it has a stream of that name from cell '" + known->source() +
                              "', or has not heard yet that it was deleted (if that cell lost "
                              "its registry: tailcast stream delete --forgotten)");
    }
    return AlreadyExistsError("stream '" + name + "' exists; its source is cell '" +
                              known->source() + "'");
  }
  for (const v1::StreamConfig& mine : durable_->creating()) {
    if (mine.name() != name) continue;
    if (claimant < options_.cell) return UnavailableError("it wants that name at the same time");
    return AlreadyExistsError("stream '" + name + "' is being created in cell '" + options_.cell +
                              "'");
  }
  return OkStatus();
}

Result<v1::StreamConfig> Catalogue::InstallStream(const v1::StreamConfig& request,
                                                  const Installed& what) {
  v1::StreamConfig stream = request;
  stream.clear_settled_version();
  stream.clear_finished_version();
  TAILCAST_RETURN_IF_ERROR(CheckStreamConfig(stream, options_.known_cells));
  if (stream.incarnation() == 0) return InvalidArgumentError("stream.incarnation is 0");
  if (stream.tree_version() == 0) return InvalidArgumentError("stream.tree_version is 0");
  if (WasDeleted(stream::IdOf(stream))) {
    return NotFoundError("stream '" + stream.name() + "' was deleted");
  }
  if (const v1::StreamConfig* known = FindStream(stream.name())) {
    if (known->incarnation() == stream.incarnation()) {
      if (known->tree_version() > stream.tree_version()) {
        if (stream.source() == options_.cell) return ChangedMeanwhile(*known);
        return *known;
      }
      if (known->tree_version() == stream.tree_version()) {
        if (stream.source() == options_.cell && !SameTree(*known, stream)) {
          return ChangedMeanwhile(*known);
        }
        v1::StreamConfig* mine = Mutable(stream.name());
        if (mine->retention().version() < stream.retention().version() &&
            stream.source() != options_.cell) {
          *mine->mutable_retention() = stream.retention();
          changed_.streams.insert(mine->name());
        }
        if (what.settled && mine->settled_version() < stream.tree_version()) {
          mine->set_settled_version(stream.tree_version());
          changed_.streams.insert(mine->name());
        }
        if (what.complete && mine->has_change()) {
          mine->clear_change();
          changed_.streams.insert(mine->name());
        }
        return *mine;
      }
      if (IsDropping(stream::IdOf(stream)) && NamesCell(stream, options_.cell)) {
        return UnavailableError("cell '" + options_.cell + "' deletes what it had of stream '" +
                                stream.name() + "' before, and takes part again when that is gone");
      }
      if (known->source() != stream.source() || known->shards() != stream.shards() ||
          known->chunk_size() != stream.chunk_size() ||
          known->chunk_size_by_rate() != stream.chunk_size_by_rate()) {
        return InvalidArgumentError("stream '" + stream.name() +
                                    "': source, shards and chunk_size cannot change");
      }
      if (known->retention().version() > stream.retention().version()) {
        *stream.mutable_retention() = known->retention();
      }
      stream.set_settled_version(known->settled_version());
      stream.set_finished_version(known->finished_version());
      if (stream.source() == options_.cell) {
        *stream.mutable_retention() = known->retention();
        stream.clear_left_out();
        for (const std::string& cell : known->left_out()) {
          if (InTree(stream, cell)) stream.add_left_out(cell);
        }
        *stream.mutable_change() = ChangeFrom(*known, stream);
        if (stream.change().abandoned_size() > kAbandonedMax) {
          return ResourceExhaustedError(
              "stream '" + stream.name() +
              "': too many changes of the tree began before one was carried out to its end; "
              "`tailcast stream describe` shows which cells are not settled");
        }
        TAILCAST_RETURN_IF_ERROR(CheckRoom(stream, 3));
        if (const std::string going = departures_.FindGoing(stream); !going.empty()) {
          return FailedPreconditionError(
              "stream '" + stream.name() + "': cell '" + going + "' deletes the copies that it " +
              "had before it left; it can be in the tree again when they are gone, as soon as " +
              "that cell has answered (tailcast status)");
        }
        departures_.OnTree(*known, stream);
        changed_.departures = true;
      }
    } else {
      return FailedPreconditionError("stream '" + stream.name() +
                                     "' is another one here, of cell '" + known->source() +
                                     "', which has not said yet that it deleted it");
    }
  } else if (stream.source() == options_.cell) {
    return NotFoundError("cell '" + options_.cell + "' is the source of stream '" + stream.name() +
                         "' and has none of that incarnation");
  } else if (durable_->streams_size() >= options_.streams_max) {
    return ResourceExhaustedError("cell '" + options_.cell + "' has " +
                                  std::to_string(options_.streams_max) + " streams, its limit");
  } else {
    TAILCAST_RETURN_IF_ERROR(CheckRoom(stream, 1));
  }
  if (what.settled || stream.source() == options_.cell) {
    stream.set_settled_version(stream.tree_version());
  }
  if (what.complete) stream.clear_change();
  Put(stream);
  return stream;
}

void Catalogue::SetFinished(const std::string& name, stream::TreeVersion tree_version) {
  v1::StreamConfig* stream = Mutable(name);
  if (stream == nullptr || kNeverFinished.planted() ||
      stream->tree_version() != Raw(tree_version) ||
      stream->finished_version() >= Raw(tree_version)) {
    return;
  }
  stream->set_finished_version(Raw(tree_version));
  if (stream->source() == options_.cell) stream->clear_change();
  changed_.streams.insert(name);
}

Result<int> Catalogue::IndexOfMine(const std::string& name, const char* verb) const {
  const auto& streams = durable_->streams();
  const auto place = FindPlace(streams, name);
  if (place != streams.end() && place->name() == name) {
    if (place->source() == options_.cell) return static_cast<int>(place - streams.begin());
    return FailedPreconditionError("stream '" + name + "' has its source in cell '" +
                                   place->source() + "': " + verb + " it there, not in cell '" +
                                   options_.cell + "'");
  }
  std::vector<std::string> names;
  for (const v1::StreamConfig& stream : streams) names.push_back(stream.name());
  return NotFoundError("no stream '" + name + "' in cell '" + options_.cell + "'" +
                       DidYouMean(name, names));
}

Result<const v1::StreamConfig*> Catalogue::FindMine(const std::string& name,
                                                    const char* verb) const {
  TAILCAST_ASSIGN_OR_RETURN(const int index, IndexOfMine(name, verb));
  return &durable_->streams(index);
}

Result<v1::StreamConfig> Catalogue::DeleteStream(const std::string& name,
                                                 stream::StreamIncarnation incarnation) {
  TAILCAST_ASSIGN_OR_RETURN(const int index, IndexOfMine(name, "delete"));
  const v1::StreamConfig stream = durable_->streams(index);
  if (incarnation != stream::StreamIncarnation::kNone &&
      incarnation != stream::IdOf(stream).incarnation) {
    return FailedPreconditionError("stream '" + name +
                                   "' was deleted and made anew; it is another one now");
  }
  Forget(index, kNobodyTold.planted() ? std::vector<std::string>() : options_.peers);
  return stream;
}

Result<std::optional<v1::StreamConfig>> Catalogue::RemoveStream(const stream::StreamId& stream,
                                                                int32_t shards) {
  TAILCAST_RETURN_IF_ERROR(stream::ValidateStreamName(stream.name));
  if (stream.incarnation == stream::StreamIncarnation::kNone) {
    return InvalidArgumentError("incarnation is 0");
  }
  if (shards < 0 || shards > stream::kShardsMax) {
    return InvalidArgumentError("shards is " + std::to_string(shards));
  }
  const auto& streams = durable_->streams();
  if (const auto place = FindPlace(streams, stream.name);
      place != streams.end() && stream::IdOf(*place) == stream) {
    const v1::StreamConfig known = *place;
    if (known.source() == options_.cell) {
      return FailedPreconditionError("cell '" + options_.cell + "' is the source of stream '" +
                                     stream.name + "' and has not deleted it");
    }
    Forget(static_cast<int>(place - streams.begin()), {});
    return std::optional(known);
  }
  // One that never came: it is refused when it does.
  if (!WasDeleted(stream)) deletions_.Add(stream, shards, {}, changed_.deleted);
  return std::optional<v1::StreamConfig>();
}

void Catalogue::Forget(int index, std::vector<std::string> cells_to_tell) {
  const v1::StreamConfig stream = durable_->streams(index);
  const stream::StreamId id = stream::IdOf(stream);
  durable_->mutable_streams()->DeleteSubrange(index, 1);
  deletions_.Add(id, stream.shards(), std::move(cells_to_tell), changed_.deleted);
  floors_.Forget(id);
  departures_.Forget(id);
  changed_.streams.insert(stream.name());
  changed_.floors = changed_.departures = true;
}

void Catalogue::OnTold(const stream::StreamId& stream, const std::string& cell) {
  if (deletions_.OnTold(stream, cell)) changed_.deleted.insert(stream);
}

void Catalogue::SetOnDisk(const stream::StreamId& stream, bool on_disk) {
  if (deletions_.SetOnDisk(stream, on_disk)) changed_.deleted.insert(stream);
}

Result<v1::StreamConfig> Catalogue::SetRetention(const std::string& name,
                                                 const v1::Retention& retention) {
  TAILCAST_RETURN_IF_ERROR(CheckRetention(retention));
  TAILCAST_ASSIGN_OR_RETURN(const int index, IndexOfMine(name, "change"));
  v1::StreamConfig* stream = durable_->mutable_streams(index);
  const uint64_t version = stream->retention().version();
  if (retention.version() != 0 && retention.version() != version) {
    return AbortedError("stream '" + name +
                        "': what it keeps was changed meanwhile; look at that " +
                        "(tailcast stream describe) and try again");
  }
  *stream->mutable_retention() = retention;
  stream->mutable_retention()->set_version(version + 1);
  changed_.streams.insert(name);
  return *stream;
}

void Catalogue::OnWritten(const v1::RegistrySnapshot& snapshot, const CatalogueChanges& changed) {
  if (!changed.deleted.empty()) {
    for (const stream::StreamId& id : changed.deleted) written_deleted_.erase(id);
    for (const v1::DeletedStream& deleted : snapshot.deleted()) {
      if (auto id = IdOf(deleted); changed.deleted.contains(id)) {
        written_deleted_.emplace(std::move(id), deleted);
      }
    }
  }
  if (changed.departures) {
    written_leavers_ = snapshot.leavers();
    written_dropped_ = snapshot.dropped();
  }
  if (!changed.floors) return;
  written_floors_.clear();
  for (const v1::ShardFloor& floor : snapshot.floors()) {
    if (floor.seq() > 1) written_floors_.emplace(stream::ShardOf(floor), floor.seq());
  }
}

bool Catalogue::WasDropping(const stream::StreamId& stream) const {
  return std::any_of(written_dropped_.begin(), written_dropped_.end(),
                     [&](const v1::DroppedCopy& dropped) {
                       return dropped.going() && dropped.stream() == stream.name &&
                              dropped.incarnation() == Raw(stream.incarnation);
                     });
}

int64_t Catalogue::WrittenFloor(const stream::ShardId& shard) const {
  const auto it = written_floors_.find(shard);
  return it == written_floors_.end() ? 1 : it->second;
}

bool Catalogue::Has(const stream::StreamId& id) const {
  const v1::StreamConfig* stream = FindStream(id.name);
  return stream != nullptr && stream::IdOf(*stream) == id;
}

void Catalogue::RaiseFloor(const stream::ShardId& shard, int64_t seq) {
  if (Has(shard.stream)) changed_.floors |= floors_.Raise(shard, seq);
}

bool Catalogue::Trim(const stream::ShardId& shard, int64_t seq) {
  if (!Has(shard.stream)) return false;
  changed_.floors |= floors_.Trim(shard, seq);
  return true;
}

void Catalogue::NoteHeldUp(const stream::ShardId& shard, const std::string& cell, int64_t done,
                           Duration time) {
  if (Has(shard.stream)) changed_.floors |= floors_.NoteHeldUp(shard, cell, done, time);
}

void Catalogue::NoteSeen(const stream::ShardId& shard, int64_t seq, Duration ran, Duration old) {
  if (!Has(shard.stream)) return;
  floors_.NoteSeen(shard, seq, ran, old);
  changed_.floors = true;
}

void Catalogue::SetLeftOut(const stream::StreamId& id, const std::string& cell, bool left_out) {
  v1::StreamConfig* stream = Mutable(id.name);
  if (stream == nullptr || stream::IdOf(*stream) != id) return;
  auto* cells = stream->mutable_left_out();
  const auto it = std::find(cells->begin(), cells->end(), cell);
  if ((it != cells->end()) == left_out) return;
  if (left_out) {
    *cells->Add() = cell;
  } else {
    cells->erase(it);
  }
  changed_.streams.insert(id.name);
}

bool Catalogue::BeginGoing(const stream::StreamId& id, const std::string& cell, uint64_t order) {
  const v1::StreamConfig* stream = FindStream(id.name);
  if (stream == nullptr || stream::IdOf(*stream) != id || NamesCell(*stream, cell) ||
      !departures_.BeginGoing(id, cell, order)) {
    return false;
  }
  changed_.departures = true;
  return true;
}

void Catalogue::OnGone(const stream::StreamId& stream, const std::string& cell, uint64_t order) {
  changed_.departures |= departures_.OnGone(stream, cell, order);
}

Status Catalogue::AskToLeave(const stream::StreamId& id, const std::string& cell) {
  TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(cell, "cell"));
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig* stream, FindMine(id.name, "leave"));
  if (stream::IdOf(*stream) == id && !NamesCell(*stream, cell)) {
    changed_.departures |= departures_.Add(id, cell);
  }
  return OkStatus();
}

Result<bool> Catalogue::LeaveStream(const v1::StreamConfig& stream, uint64_t order) {
  const stream::StreamId id = stream::IdOf(stream);
  if (order == 0) return InvalidArgumentError("order is 0");
  if (stream.source() == options_.cell) {
    return InvalidArgumentError("cell '" + options_.cell + "' is the source of stream '" +
                                stream.name() + "'");
  }
  // A request that comes again, or late, changes nothing: what is here now is of another time.
  if (const v1::DroppedCopy* last = departures_.FindDropped(id);
      last != nullptr && order <= last->order()) {
    return order < last->order() || !last->going();
  }
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig known,
                            InstallStream(stream, {.complete = !stream.has_change()}));
  if (NamesCell(known, options_.cell)) {
    return FailedPreconditionError("tree " + std::to_string(known.tree_version()) + " of stream '" +
                                   stream.name() + "' names cell '" + options_.cell + "'");
  }
  departures_.Drop(id, known.shards(), order);
  changed_.departures = true;
  return false;
}

void Catalogue::OnDropped(const stream::StreamId& stream, uint64_t order) {
  changed_.departures |= departures_.OnDropped(stream, order);
}

}  // namespace tailcast::cell
