#include "tailcast/scheduler/copy_set.h"

#include <algorithm>
#include <iterator>

#include "tailcast/base/check.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {

using stream::FileId;
using stream::Layer;
using stream::Operation;
using stream::OperationTarget;
using stream::ShardId;
using stream::Stem;
using stream::StreamId;

CopySet::Stream* CopySet::FindStream(const StreamId& id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : &it->second;
}

ShardFiles* CopySet::FindShard(const ShardId& id) {
  Stream* stream = FindStream(id.stream);
  if (stream == nullptr || id.shard < 0 || static_cast<size_t>(id.shard) >= stream->shards.size()) {
    return nullptr;
  }
  return &stream->shards[static_cast<size_t>(id.shard)];
}

const EdgeChange* CopySet::FindEdge(const StreamId& id, const std::string& cell) const {
  const auto stream = streams_.find(id);
  return stream == streams_.end() ? nullptr : stream->second.edges.Find(cell);
}

EdgeChange& CopySet::EdgeOf(const OperationTarget& target) {
  EdgeChange* edge = streams_.at(target.file.shard.stream).edges.Find(target.cell);
  TAILCAST_CHECK(edge != nullptr, "an operation without an edge: " + target.ToString());
  return *edge;
}

std::set<std::string> CopySet::Targets() const {
  std::set<std::string> cells;
  for (const auto& [id, stream] : streams_) {
    for (const auto& [cell, edge] : stream.edges.edges()) cells.insert(cell);
  }
  return cells;
}

std::set<std::string> CopySet::TargetsOf(const StreamId& id) const {
  std::set<std::string> cells;
  if (const auto stream = streams_.find(id); stream != streams_.end()) {
    for (const auto& [cell, edge] : stream->second.edges.edges()) cells.insert(cell);
  }
  return cells;
}

stream::TreeVersion CopySet::TreeVersion(const StreamId& id) const {
  const auto stream = streams_.find(id);
  return stream == streams_.end() ? stream::TreeVersion::kNone
                                  : stream->second.edges.tree_version();
}

// --- streams ---

void CopySet::OnStream(MonotonicTime now, const v1::StreamConfig& config, Effects& out) {
  const StreamId id = stream::IdOf(config);
  EdgeEvents events;
  Stream* stream = FindStream(id);
  if (stream == nullptr) {
    const ShardFiles none(options_.files_per_shard_max);
    Stream begun{StreamEdges(options_.cell, options_.edge, config, events),
                 std::vector<ShardFiles>(static_cast<size_t>(config.shards()), none),
                 {}};
    stream = &streams_.emplace(id, std::move(begun)).first->second;
    for (int32_t s = 0; s < config.shards(); ++s) out.list.insert({id, s});
  } else if (!stream->edges.OnConfig(config, events)) {
    return;
  }
  CarryOut(now, *stream, events, out);
}

void CopySet::OnSettled(MonotonicTime now, const StreamId& id, const std::string& cell,
                        stream::TreeVersion settled_version, Effects& out) {
  Stream* stream = FindStream(id);
  if (stream == nullptr) return;
  EdgeEvents events;
  stream->edges.OnSettled(cell, settled_version, events);
  CarryOut(now, *stream, events, out);
}

void CopySet::OnStreamRemoved(const StreamId& id, Effects& out) {
  DropOperations(id, nullptr, out);
  memory_.OnStreamRemoved(id);
  streams_.erase(id);
  changing_.erase(id);
}

void CopySet::CarryOut(MonotonicTime now, Stream& stream, const EdgeEvents& events, Effects& out) {
  const StreamId id = stream.edges.id();
  steps_.insert(steps_.end(), events.steps.begin(), events.steps.end());
  bool dropped = false;
  for (const EdgeEvent& event : events.events) {
    switch (event.kind) {
      case EdgeEvent::Kind::kBegun:
        BeginEdge(now, stream, event.cell, out);
        break;
      case EdgeEvent::Kind::kDropped:
        DropOperations(id, &event.cell, out);
        dropped = true;
        break;
      case EdgeEvent::Kind::kReleased:
        Release(now, {id, event.shard}, event.cell, event.layer);
        break;
    }
  }
  // What only that cell lacked.
  for (size_t s = 0; dropped && s < stream.shards.size(); ++s) {
    memory_.ForgetDone({id, static_cast<int32_t>(s)}, stream.shards[s]);
  }
  if (stream.edges.changing()) {
    changing_.insert(id);
  } else {
    changing_.erase(id);
  }
}

void CopySet::BeginEdge(MonotonicTime now, Stream& stream, const std::string& cell, Effects& out) {
  const StreamId id = stream.edges.id();
  // What was given up for another edge's sake is ours again.
  for (Row row = operations_.FirstOf(id);
       row != operations_.end() && row->first.file.shard.stream == id;) {
    const bool again = row->first.cell == cell && IsOver(row->second.phase);
    row = again ? operations_.Remove(row) : std::next(row);
  }
  for (size_t s = 0; s < stream.shards.size(); ++s) {
    const ShardId shard{id, static_cast<int32_t>(s)};
    stream.shards[s].StartOver();
    for (const auto& [seq, file] : stream.shards[s].files()) {
      AddOperations(now, shard, stream, file, out);
    }
    out.list.insert(shard);
  }
}

void CopySet::DropOperations(const StreamId& stream, const std::string* cell, Effects& out) {
  for (Row row = operations_.FirstOf(stream);
       row != operations_.end() && row->first.file.shard.stream == stream;) {
    if (cell != nullptr && row->first.cell != *cell) {
      ++row;
      continue;
    }
    if (IsAssigned(row->second.phase)) {
      out.stop[row->second.workers.reader].push_back(row->second.id);
    }
    row = operations_.Remove(row);
  }
}

void CopySet::DropOperations(const FileId& file, Effects& out) {
  for (Row row = operations_.FirstOf(file); row != operations_.end() && row->first.file == file;) {
    if (IsAssigned(row->second.phase)) {
      out.stop[row->second.workers.reader].push_back(row->second.id);
    }
    row = operations_.Remove(row);
  }
}

// Operations of files that are not cold, which waited for the edge to get so far.
void CopySet::Release(MonotonicTime now, const ShardId& id, const std::string& cell, Layer layer) {
  const ShardFiles& shard = *FindShard(id);
  for (const auto& [seq, file] : shard.files()) {
    if (shard.IsCold(file)) continue;
    const Row row = operations_.Find({{id, file.stem}, layer, cell});
    if (row != operations_.end() && row->second.phase == Phase::kHeld) {
      operations_.Release(now, row);
    }
  }
}

// --- files ---

bool CopySet::OnNotice(MonotonicTime now, const FileId& file,
                       const std::optional<int64_t> (&seal)[stream::kParts], Effects& out) {
  ShardFiles* shard = FindShard(file.shard);
  if (shard == nullptr) return false;
  const int64_t seq = file.stem.seq;
  if (shard->IsDone(seq)) return true;
  if (shard->Find(seq) == nullptr) {
    // A notice that overtook or lost its predecessor: look.
    if (shard->LeavesHole(seq)) out.list.insert(file.shard);
    AddFile(now, file.shard, file.stem, false, out);
  }
  const ShardFiles::File* known = shard->Find(seq);
  if (seal[0] && known != nullptr && known->stem == file.stem &&
      shard->Seal(seq, *seal[0], *seal[1])) {
    UpdateSeal(file, out);
  }
  // The one before has its seal by it, or is not the newest any more.
  if (const ShardFiles::File* before = shard->Before(seq); before != nullptr) {
    memory_.ForgetIfDone(file.shard, *shard, before->stem.seq);
  }
  memory_.ForgetIfDone(file.shard, *shard, seq);
  return true;
}

void CopySet::OnListing(MonotonicTime now, const ShardId& id, int64_t floor,
                        const std::vector<Stem>& stems, Effects& out) {
  ShardFiles* shard = FindShard(id);
  if (shard == nullptr) return;
  for (const Stem& gone : shard->OnListed(floor)) DropOperations({id, gone}, out);
  // The newest first: then the others are known to be closed, and cold.
  for (auto stem = stems.rbegin(); stem != stems.rend(); ++stem) {
    if (shard->IsDone(stem->seq) || shard->Find(stem->seq) != nullptr) continue;
    AddFile(now, id, *stem, true, out);
    if (stem == stems.rbegin()) continue;
    // Its successor may be done and forgotten.
    const auto seal = stream::SealBetween(*stem, *std::prev(stem));
    if (seal && shard->Seal(stem->seq, seal->length[0], seal->length[1])) {
      UpdateSeal({id, *stem}, out);
    }
  }
  memory_.ForgetDone(id, *shard);
}

void CopySet::AddFile(MonotonicTime now, const ShardId& id, const Stem& stem, bool listed,
                      Effects& out) {
  ShardFiles& shard = *FindShard(id);
  auto sealed = shard.Add(stem, listed);
  if (!sealed) {
    memory_.OnNoRoom(id);
    if (listed || changing_.contains(id.stream)) return;  // its edge's progress is read off them
    if (!memory_.MakeRoom(id, shard, TargetsOf(id.stream))) return;
    sealed = shard.Add(stem, listed);
  }
  AddOperations(now, id, streams_.at(id.stream), *shard.Find(stem.seq), out);
  for (const int64_t seq : *sealed) UpdateSeal({id, shard.Find(seq)->stem}, out);
}

void CopySet::AddOperations(MonotonicTime now, const ShardId& id, Stream& stream,
                            const ShardFiles::File& file, Effects& out) {
  const ShardFiles& shard = *FindShard(id);
  const bool cold = shard.IsCold(file);
  for (auto& [cell, edge] : stream.edges.edges()) {
    for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
      if (edge.Retired(id.shard, layer) || (cold && layer == Layer::kCache)) continue;
      const bool fresh = !file.listed && edge.state() == EdgeState::kMade;
      const auto [row, is_new] = operations_.Add({{id, file.stem}, layer, cell}, fresh);
      if (!is_new) continue;
      if (!cold && !edge.Waits(id.shard, layer)) {
        operations_.Release(now, row);
      } else if (MustAsk(stream, id, cell, edge)) {
        Ask(now, shard, id, cell, edge, out);
      }
    }
  }
}

// Tells the readers that copy the file.
void CopySet::UpdateSeal(const FileId& file, Effects& out) {
  for (Row row = operations_.FirstOf(file); row != operations_.end() && row->first.file == file;
       ++row) {
    if (IsAssigned(row->second.phase)) {
      out.start[row->second.workers.reader].push_back(Describe(row));
    }
  }
}

// --- operations ---

CopySet::Row CopySet::AddReported(MonotonicTime now, const OperationTarget& target, Effects& out) {
  const ShardId& id = target.file.shard;
  ShardFiles* shard = FindShard(id);
  const EdgeChange* edge = FindEdge(id.stream, target.cell);
  if (shard == nullptr || edge == nullptr || shard->IsDone(target.file.stem.seq) ||
      edge->Retired(id.shard, target.layer)) {
    return operations_.end();
  }
  if (shard->Find(target.file.stem.seq) == nullptr) AddFile(now, id, target.file.stem, true, out);
  const Row row = operations_.Find(target);
  // Else a cold file's cache operation: let it run.
  return row != operations_.end() ? row : operations_.Add(target, false).first;
}

void CopySet::OnCopied(Row row, int64_t data_length, int64_t index_length) {
  const FileId file = row->first.file;
  // If nobody told us the seal: what both ends agreed on.
  ShardFiles& shard = *FindShard(file.shard);
  shard.Seal(file.stem.seq, data_length, index_length);
  operations_.Finish(row);
  memory_.ForgetIfDone(file.shard, shard, file.stem.seq);
}

bool CopySet::OnTakenOver(Row row, stream::TreeVersion tree_version) {
  const OperationTarget target = row->first;
  const ShardId& id = target.file.shard;
  EdgeChange& edge = EdgeOf(target);
  if (edge.state() != EdgeState::kLeaving ||
      tree_version < streams_.at(id.stream).edges.tree_version()) {
    return false;
  }
  edge.Retire(id.shard, target.layer);
  for (Row other = operations_.FirstOf(id);
       other != operations_.end() && other->first.file.shard == id; ++other) {
    const Phase phase = other->second.phase;
    if (other->first.cell == target.cell && other->first.layer == target.layer &&
        (other == row || phase == Phase::kWanted || phase == Phase::kHeld)) {
      operations_.GiveUp(other, "");
    }
  }
  memory_.ForgetDone(id, *FindShard(id));
  return true;
}

stream::TreeVersion CopySet::TermVersion(const OperationTarget& target) const {
  return streams_.at(target.file.shard.stream).edges.TermVersion(target.cell);
}

int64_t CopySet::SealedBytes(const OperationTarget& target) const {
  const ShardId& id = target.file.shard;
  const auto stream = streams_.find(id.stream);
  if (stream == streams_.end()) return 0;
  const ShardFiles::File* file =
      stream->second.shards.at(static_cast<size_t>(id.shard)).Find(target.file.stem.seq);
  return file == nullptr || !file->sealed() ? 0 : *file->seal[0];
}

OperationLoad::Expected CopySet::ExpectedLoad(const OperationTarget& target) const {
  const Stream& stream = streams_.at(target.file.shard.stream);
  const int32_t number = target.file.shard.shard;
  const ShardFiles::File* file =
      stream.shards.at(static_cast<size_t>(number)).Find(target.file.stem.seq);
  if (file != nullptr && stream.shards[static_cast<size_t>(number)].IsCold(*file)) {
    // As fast as it goes, until it has what there is.
    return {.waiting = file->sealed() ? *file->seal[0] + *file->seal[1] : 0};
  }
  const Row before = operations_.Predecessor(target);
  if (before != operations_.end() && before->second.load.rate()) {
    return {.rate = before->second.load.rate()};
  }
  if (stream.rates.empty()) return {};
  if (const auto known = stream.rates.find(number); known != stream.rates.end()) {
    return {.rate = known->second};
  }
  int64_t sum = 0;
  for (const auto& [shard, rate] : stream.rates) sum += rate;
  return {.rate = sum / static_cast<int64_t>(stream.rates.size())};
}

bool CopySet::IsHot(const OperationTarget& target) const {
  const ShardId& id = target.file.shard;
  const auto stream = streams_.find(id.stream);
  if (stream == streams_.end() || id.shard < 0 ||
      static_cast<size_t>(id.shard) >= stream->second.shards.size()) {
    return false;
  }
  const ShardFiles& shard = stream->second.shards[static_cast<size_t>(id.shard)];
  const ShardFiles::File* file = shard.Find(target.file.stem.seq);
  return file != nullptr && !shard.IsCold(*file);
}

void CopySet::NoteRate(const OperationTarget& target, int64_t rate) {
  const ShardId& id = target.file.shard;
  if (IsHot(target)) streams_.at(id.stream).rates[id.shard] = rate;
}

Operation CopySet::Describe(Row row) const {
  const auto& [target, op] = *row;
  const Stream& stream = streams_.at(target.file.shard.stream);
  Operation operation;
  operation.target = target;
  operation.id = op.id;
  operation.source_cell = options_.cell;
  operation.chunk_size = stream::ChunkSizeOf(target.file.stem, stream.edges.config().chunk_size());
  operation.writer_name = op.workers.writer;
  operation.writer_address = op.workers.writer_address;
  operation.writer_via = op.workers.writer_via;
  operation.fresh = op.fresh;
  operation.stuck_after = operations_.stuck_after();
  operation.stuck_at_first = operations_.StuckAtFirst(row);
  const ShardFiles& shard = stream.shards.at(static_cast<size_t>(target.file.shard.shard));
  if (const ShardFiles::File* file = shard.Find(target.file.stem.seq); file != nullptr) {
    operation.seal[0] = file->seal[0];
    operation.seal[1] = file->seal[1];
  }
  return operation;
}

// --- questions to the targets ---

bool CopySet::MustAsk(const Stream& stream, const ShardId& id, const std::string& cell,
                      const EdgeChange& edge) const {
  if (edge.comes()) {
    const ShardFiles& shard = stream.shards.at(static_cast<size_t>(id.shard));
    if (edge.state() == EdgeState::kWaiting || !shard.was_listed()) return false;
    if (edge.stage(id.shard) != Stage::kCaughtUp) return true;
  }
  return operations_.LowestHeld(id, cell) > 0;
}

// The old edge can't append to the newest file: our operation has it, or it is over.
bool CopySet::OldEdgeIsFenced(const ShardId& id, const ShardFiles& shard,
                              const std::string& cell) const {
  const ShardFiles::File* newest = shard.Newest();
  if (newest == nullptr) return true;
  const Row row = operations_.Find({{id, newest->stem}, Layer::kPrimary, cell});
  if (row == operations_.end()) return true;
  const OperationState& op = row->second;
  return IsOver(op.phase) || (op.phase == Phase::kRunning && op.opened);
}

void CopySet::Ask(MonotonicTime now, const ShardFiles& shard, const ShardId& id,
                  const std::string& cell, EdgeChange& edge, Effects& out) {
  const ShardFiles::File* newest = shard.Newest();
  if (edge.Ask(now, id.shard, newest == nullptr ? 0 : newest->stem.seq,
               OldEdgeIsFenced(id, shard, cell))) {
    out.progress.insert({id, cell});
  }
}

// Calls function(stream, shard, cell, edge) for each that is to be asked as soon as it may be.
template <typename Set, typename Function>
void CopySet::ForEachQuestion(Set& set, Function function) {
  const auto look = [&](auto& stream, const ShardId& id) {
    for (auto& [cell, edge] : stream.edges.edges()) {
      if (set.MustAsk(stream, id, cell, edge)) function(stream, id, cell, edge);
    }
  };
  for (const auto& [id, files] : set.operations_.held()) look(set.streams_.at(id.stream), id);
  for (const StreamId& id : set.changing_) {
    auto& stream = set.streams_.at(id);
    for (size_t s = 0; s < stream.shards.size(); ++s) look(stream, {id, static_cast<int32_t>(s)});
  }
}

void CopySet::AskDue(MonotonicTime now, Effects& out) {
  ForEachQuestion(
      *this, [&](Stream& stream, const ShardId& id, const std::string& cell, EdgeChange& edge) {
        Ask(now, stream.shards[static_cast<size_t>(id.shard)], id, cell, edge, out);
      });
}

MonotonicTime CopySet::NextQuestion() const {
  MonotonicTime next = MonotonicTime::Max();
  ForEachQuestion(
      *this, [&](const Stream&, const ShardId& id, const std::string&, const EdgeChange& edge) {
        if (!edge.asking(id.shard)) next = std::min(next, edge.ask_at(id.shard));
      });
  return next;
}

int64_t CopySet::AskFrom(const ShardId& id, const std::string& cell) const {
  const int64_t held = operations_.LowestHeld(id, cell);
  if (held > 0) return held;
  const auto stream = streams_.find(id.stream);
  if (stream == streams_.end()) return 1;
  const ShardFiles::File* newest = stream->second.shards.at(static_cast<size_t>(id.shard)).Newest();
  return newest == nullptr ? 1 : newest->stem.seq;
}

void CopySet::OnProgressFailed(MonotonicTime now, const ShardId& id, const std::string& cell) {
  Stream* stream = FindStream(id.stream);
  EdgeChange* edge = stream == nullptr ? nullptr : stream->edges.Find(cell);
  if (edge != nullptr) edge->OnAnswer(now, id.shard);
}

void CopySet::OnProgress(MonotonicTime now, const ShardId& id, const std::string& cell,
                         int64_t floor, const std::vector<PairLengths>& there,
                         const std::vector<PairLengths>& here, int64_t covered_to) {
  Stream* stream = FindStream(id.stream);
  EdgeChange* edge = stream == nullptr ? nullptr : stream->edges.Find(cell);
  if (edge == nullptr) return;
  edge->OnAnswer(now, id.shard);
  if (edge->state() == EdgeState::kWaiting) return;
  ShardFiles& shard = *FindShard(id);
  using BySeq = std::map<int64_t, const PairLengths*>;
  const auto by_seq = [](const std::vector<PairLengths>& pairs) {
    BySeq by;
    for (const PairLengths& p : pairs) by.emplace(p.stem.seq, &p);
    return by;
  };
  const auto find = [](const BySeq& by, int64_t seq) {
    const auto it = by.find(seq);
    return it == by.end() ? nullptr : it->second;
  };
  const BySeq there_by_seq = by_seq(there), here_by_seq = by_seq(here);
  std::vector<int64_t> over;
  const int64_t held = operations_.LowestHeld(id, cell);
  auto next = held == 0 ? shard.files().end() : shard.files().lower_bound(held);
  for (; next != shard.files().end() && next->first <= covered_to; ++next) {
    const auto& [seq, file] = *next;
    for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
      const Row row = operations_.Find({{id, file.stem}, layer, cell});
      if (row == operations_.end() || row->second.phase != Phase::kHeld) continue;
      if (seq < floor) {
        operations_.Finish(row);
      } else {
        ApplyProgress(now, row, shard, file, *edge, find(there_by_seq, seq),
                      find(here_by_seq, seq));
      }
      if (IsOver(row->second.phase)) over.push_back(seq);
    }
  }
  if (edge->comes() && covered_to == INT64_MAX && shard.was_listed()) {
    const auto bytes = [](const std::vector<PairLengths>& pairs) {
      int64_t end = 0;
      for (const PairLengths& p : pairs) end = std::max(end, p.stem.start_byte + p.length[0]);
      return end;
    };
    const ShardFiles::File* newest = shard.Newest();
    EdgeEvents events;
    stream->edges.OnLook(cell, id.shard, {now, bytes(here), bytes(there)},
                         newest == nullptr ? 0 : newest->stem.seq, events);
    Effects none;  // a look begins and drops no edge
    CarryOut(now, *stream, events, none);
  }
  for (const int64_t seq : over) memory_.ForgetIfDone(id, shard, seq);
}

// What nobody copies any more, or what the operation that runs goes on writing where nobody sees
// it.
bool CopySet::OnLacking(MonotonicTime now, const ShardId& id, const std::string& cell, int64_t seq,
                        v1::LackingFile::Kind kind, Effects& out) {
  ShardFiles* shard = FindShard(id);
  const EdgeChange* edge = FindEdge(id.stream, cell);
  if (shard == nullptr || edge == nullptr || edge->Retired(id.shard, Layer::kPrimary)) return false;
  if (shard->Reopen(seq)) {
    out.list.insert(id);  // its stem
    return true;
  }
  const ShardFiles::File* file = shard->Find(seq);
  if (file == nullptr) return false;
  const Row row = operations_.Find({{id, file->stem}, Layer::kPrimary, cell});
  if (row == operations_.end()) return false;
  if (row->second.phase == Phase::kDone) {
    operations_.Reopen(row);
    operations_.Release(now, row);
    return true;
  }
  if (row->second.phase != Phase::kRunning || !row->second.opened ||
      kind == v1::LackingFile::INCOMPLETE) {
    return false;  // it is being copied
  }
  operations_.Move(now, row);
  return true;
}

// What both ends have of the file of a held operation; nullptr: nothing.
void CopySet::ApplyProgress(MonotonicTime now, Row row, const ShardFiles& shard,
                            const ShardFiles::File& file, const EdgeChange& edge,
                            const PairLengths* there, const PairLengths* here) {
  if (there != nullptr && there->stem != file.stem) {
    ++data_loss_;
    operations_.GiveUp(row, "cell " + row->first.cell +
                                " has another file under this number: " + there->stem.ToString());
    return;
  }
  if (there != nullptr && file.sealed() && there->length[0] >= *file.seal[0] &&
      there->length[1] >= *file.seal[1]) {
    operations_.Finish(row);
    return;
  }
  if (edge.comes()) {
    // The newest one, and those that were opened since we look: as the shard gets on.
    if (!shard.IsCold(file) || row->first.layer == Layer::kCache) return;
    const int64_t behind =
        there == nullptr ? 0 : there->length[0] - (here == nullptr ? 0 : here->length[0]);
    if (behind > options_.edge.caught_up_bytes) return;
  }
  operations_.Release(now, row);
}

}  // namespace tailcast::scheduler
