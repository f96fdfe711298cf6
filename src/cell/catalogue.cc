#include "tailcast/cell/catalogue.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/nearest.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/operation.h"

namespace tailcast::cell {
namespace {

constexpr int kDeletedMax = 10000;
constexpr int64_t kFirstChunkSize = 4096;  // where the rate decides about the others
constexpr int kDestinationsMax = 1000;
constexpr int kAbandonedMax = 10 * kDestinationsMax;  // of changes that replaced one another

bool SameTree(const v1::StreamConfig& a, const v1::StreamConfig& b) {
  const auto edges = [](const v1::StreamConfig& stream) {
    std::set<std::pair<std::string, std::string>> set;
    for (const v1::TreeEdge& edge : stream.tree()) set.emplace(edge.from(), edge.to());
    return set;
  };
  return edges(a) == edges(b);
}

bool InTree(const v1::StreamConfig& stream, const std::string& cell) {
  return std::any_of(stream.tree().begin(), stream.tree().end(),
                     [&](const v1::TreeEdge& edge) { return edge.to() == cell; });
}

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

Catalogue::Catalogue(CatalogueOptions options, v1::RegistrySnapshot* durable, uint64_t seed)
    : options_(std::move(options)),
      durable_(durable),
      written_deleted_(durable->deleted()),
      floors_(durable),
      departures_(durable),
      rng_(seed) {
  OnWritten(*durable_);
  if (durable_->creating_size() > 0) {
    durable_->clear_creating();
    dirty_ = true;
  }
}

Status Catalogue::CheckStream(const v1::StreamConfig& s) const {
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
  if (s.chunk_size_by_rate() && !stream::IsStemChunkSize(s.chunk_size())) {
    return InvalidArgumentError("stream.chunk_size is " + std::to_string(s.chunk_size()) +
                                "; where the rate decides it is a power of two");
  }
  TAILCAST_RETURN_IF_ERROR(CheckRetention(s.retention()));
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
    if (destination == s.source()) {
      return InvalidArgumentError("stream.destinations names '" + destination +
                                  "', which is the source: give the other cells");
    }
    if (!seen.insert(destination).second) {
      return InvalidArgumentError("stream.destinations names '" + destination + "' twice");
    }
  }
  if (stream::TreeVersionOf(s) > stream::kTreeVersionMax) {
    return InvalidArgumentError("stream.tree_version is " + std::to_string(s.tree_version()));
  }
  return ValidateTree(s);
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
  for (auto& stream : *durable_->mutable_streams()) {
    if (stream.name() == name) return &stream;
  }
  return nullptr;
}

const v1::StreamConfig* Catalogue::FindStream(const std::string& name) const {
  for (const auto& stream : durable_->streams()) {
    if (stream.name() == name) return &stream;
  }
  return nullptr;
}

void Catalogue::Put(const v1::StreamConfig& stream) {
  if (v1::StreamConfig* known = Mutable(stream.name())) {
    *known = stream;
  } else {
    *durable_->add_streams() = stream;
    std::sort(durable_->mutable_streams()->begin(), durable_->mutable_streams()->end(),
              [](const auto& a, const auto& b) { return a.name() < b.name(); });
  }
  dirty_ = true;
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
  TAILCAST_RETURN_IF_ERROR(CheckStream(stream));
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
  dirty_ = true;
  return stream;
}

void Catalogue::FinishCreate(const stream::StreamId& stream) {
  auto* creating = durable_->mutable_creating();
  for (int i = 0; i < creating->size(); ++i) {
    if (stream::IdOf(creating->at(i)) != stream) continue;
    Put(creating->at(i));
    creating->DeleteSubrange(i, 1);
    return;
  }
}

void Catalogue::AbortCreate(const stream::StreamId& stream) {
  auto* creating = durable_->mutable_creating();
  for (int i = 0; i < creating->size(); ++i) {
    if (stream::IdOf(creating->at(i)) != stream) continue;
    creating->DeleteSubrange(i, 1);
    dirty_ = true;
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
                              "', or has not heard yet that it was deleted");
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

v1::DeletedStream* Catalogue::FindDeleted(const stream::StreamId& stream) const {
  for (auto& deleted : *durable_->mutable_deleted()) {
    if (deleted.name() == stream.name && deleted.incarnation() == Raw(stream.incarnation)) {
      return &deleted;
    }
  }
  return nullptr;
}

bool Catalogue::WasDeleted(const stream::StreamId& stream) const {
  return FindDeleted(stream) != nullptr;
}

// What the tree of `known` becomes when `next` replaces it: the steps begin at the tree that was
// carried out last.
v1::TreeChange Catalogue::ChangeFrom(const v1::StreamConfig& known, const v1::StreamConfig& next) {
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

Result<v1::StreamConfig> Catalogue::InstallStream(const v1::StreamConfig& request,
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
          dirty_ = true;
        }
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
  dirty_ = true;
}

Result<int> Catalogue::IndexOfMine(const std::string& name, const char* verb) const {
  std::vector<std::string> names;
  for (int i = 0; i < durable_->streams_size(); ++i) {
    const v1::StreamConfig& stream = durable_->streams(i);
    names.push_back(stream.name());
    if (stream.name() != name) continue;
    if (stream.source() == options_.cell) return i;
    return FailedPreconditionError("stream '" + name + "' has its source in cell '" +
                                   stream.source() + "': " + verb + " it there, not in cell '" +
                                   options_.cell + "'");
  }
  return NotFoundError("no stream '" + name + "' in cell '" + options_.cell + "'" +
                       DidYouMean(name, names));
}

Result<const v1::StreamConfig*> Catalogue::FindMine(const std::string& name,
                                                    const char* verb) const {
  TAILCAST_ASSIGN_OR_RETURN(const int index, IndexOfMine(name, verb));
  return &durable_->streams(index);
}

Result<v1::StreamConfig> Catalogue::DeleteStream(const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(const int index, IndexOfMine(name, "delete"));
  const v1::StreamConfig stream = durable_->streams(index);
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
  for (int i = 0; i < durable_->streams_size(); ++i) {
    const v1::StreamConfig known = durable_->streams(i);
    if (stream::IdOf(known) != stream) continue;
    if (known.source() == options_.cell) {
      return FailedPreconditionError("cell '" + options_.cell + "' is the source of stream '" +
                                     stream.name + "' and has not deleted it");
    }
    Forget(i, {});
    return std::optional(known);
  }
  // One that never came: it is refused when it does.
  if (!WasDeleted(stream)) AddDeleted(stream, shards, {});
  return std::optional<v1::StreamConfig>();
}

void Catalogue::Forget(int index, std::vector<std::string> cells_to_tell) {
  const v1::StreamConfig stream = durable_->streams(index);
  durable_->mutable_streams()->DeleteSubrange(index, 1);
  AddDeleted(stream::IdOf(stream), stream.shards(), std::move(cells_to_tell));
  floors_.Forget(stream::IdOf(stream));
  departures_.Forget(stream::IdOf(stream));
}

void Catalogue::AddDeleted(const stream::StreamId& stream, int32_t shards,
                           std::vector<std::string> cells_to_tell) {
  auto* deleted = durable_->mutable_deleted();
  int done = 0;
  for (const auto& entry : *deleted) done += entry.on_disk() || entry.cells_to_tell_size() ? 0 : 1;
  for (int i = 0; i < deleted->size() && done > kDeletedMax;) {
    if (deleted->at(i).on_disk() || deleted->at(i).cells_to_tell_size() > 0) {
      ++i;
      continue;
    }
    deleted->DeleteSubrange(i, 1);
    --done;
  }
  v1::DeletedStream* entry = deleted->Add();
  entry->set_name(stream.name);
  entry->set_incarnation(Raw(stream.incarnation));
  entry->set_shards(shards);
  entry->set_on_disk(true);
  for (std::string& cell : cells_to_tell) entry->add_cells_to_tell(std::move(cell));
  dirty_ = true;
}

void Catalogue::OnTold(const stream::StreamId& stream, const std::string& cell) {
  v1::DeletedStream* deleted = FindDeleted(stream);
  if (deleted == nullptr) return;
  auto* cells = deleted->mutable_cells_to_tell();
  const auto it = std::find(cells->begin(), cells->end(), cell);
  if (it == cells->end()) return;
  cells->erase(it);
  dirty_ = true;
}

void Catalogue::SetOnDisk(const stream::StreamId& stream, bool on_disk) {
  v1::DeletedStream* deleted = FindDeleted(stream);
  if (deleted == nullptr || deleted->on_disk() == on_disk) return;
  deleted->set_on_disk(on_disk);
  dirty_ = true;
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
  dirty_ = true;
  return *stream;
}

void Catalogue::OnWritten(const v1::RegistrySnapshot& snapshot) {
  written_deleted_ = snapshot.deleted();
  written_leavers_ = snapshot.leavers();
  written_dropped_ = snapshot.dropped();
  written_floors_.clear();
  for (const v1::ShardFloor& floor : snapshot.floors()) {
    if (floor.seq() > 1) written_floors_.emplace(stream::ShardOf(floor), floor.seq());
  }
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
  if (Has(shard.stream)) dirty_ |= floors_.Raise(shard, seq);
}

bool Catalogue::Trim(const stream::ShardId& shard, int64_t seq) {
  if (!Has(shard.stream)) return false;
  dirty_ |= floors_.Trim(shard, seq);
  return true;
}

void Catalogue::NoteHeldUp(const stream::ShardId& shard, const std::string& cell, int64_t done,
                           Duration time) {
  if (Has(shard.stream)) dirty_ |= floors_.NoteHeldUp(shard, cell, done, time);
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
  dirty_ = true;
}

bool Catalogue::BeginGoing(const stream::StreamId& id, const std::string& cell, uint64_t order) {
  const v1::StreamConfig* stream = FindStream(id.name);
  if (stream == nullptr || stream::IdOf(*stream) != id || NamesCell(*stream, cell) ||
      !departures_.BeginGoing(id, cell, order)) {
    return false;
  }
  dirty_ = true;
  return true;
}

void Catalogue::OnGone(const stream::StreamId& stream, const std::string& cell, uint64_t order) {
  dirty_ |= departures_.OnGone(stream, cell, order);
}

Status Catalogue::AskToLeave(const stream::StreamId& id, const std::string& cell) {
  TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(cell, "cell"));
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig* stream, FindMine(id.name, "leave"));
  if (stream::IdOf(*stream) == id && !NamesCell(*stream, cell)) dirty_ |= departures_.Add(id, cell);
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
  dirty_ = true;
  return false;
}

void Catalogue::OnDropped(const stream::StreamId& stream, uint64_t order) {
  dirty_ |= departures_.OnDropped(stream, order);
}

}  // namespace tailcast::cell
