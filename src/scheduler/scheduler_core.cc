#include "tailcast/scheduler/scheduler_core.h"

#include <algorithm>

#include "tailcast/base/check.h"

namespace tailcast::scheduler {

using stream::FileId;
using stream::Layer;
using stream::Operation;
using stream::OperationId;
using stream::OperationTarget;
using stream::ShardId;
using stream::Stem;
using stream::StreamId;

SchedulerCore::SchedulerCore(CoreOptions options, uint64_t seed)
    : options_(std::move(options)),
      edge_options_{.caught_up_bytes = options_.caught_up_bytes,
                    .caught_up_time = options_.caught_up_time,
                    .progress_interval = options_.progress_interval},
      workers_({.avoid = options_.avoid_worker,
                .affinity_slack = options_.affinity_slack,
                .shed_difference = options_.shed_difference}),
      operations_({.incarnation = options_.incarnation,
                   .retry_delay = options_.retry_delay,
                   .retry_delay_max = options_.retry_delay_max},
                  workers_, seed) {}

SchedulerCore::Stream* SchedulerCore::FindStream(const StreamId& id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : &it->second;
}

ShardFiles* SchedulerCore::FindShard(const ShardId& id) {
  Stream* stream = FindStream(id.stream);
  if (stream == nullptr || id.shard < 0 || static_cast<size_t>(id.shard) >= stream->shards.size()) {
    return nullptr;
  }
  return &stream->shards[static_cast<size_t>(id.shard)];
}

const EdgeChange* SchedulerCore::FindEdge(const StreamId& id, const std::string& cell) const {
  const auto stream = streams_.find(id);
  return stream == streams_.end() ? nullptr : stream->second.edges.Find(cell);
}

EdgeChange& SchedulerCore::EdgeOf(const OperationTarget& target) {
  EdgeChange* edge = streams_.at(target.file.shard.stream).edges.Find(target.cell);
  TAILCAST_CHECK(edge != nullptr, "an operation without an edge: " + target.ToString());
  return *edge;
}

std::set<std::string> SchedulerCore::Targets() const {
  std::set<std::string> cells;
  for (const auto& [id, stream] : streams_) {
    for (const auto& [cell, edge] : stream.edges.edges()) cells.insert(cell);
  }
  return cells;
}

CoreCounters SchedulerCore::counters() const {
  CoreCounters counters = counters_;
  counters.readers_lost = workers_.readers_lost();
  return counters;
}

// --- streams ---

void SchedulerCore::OnStream(MonotonicTime now, const v1::StreamConfig& config, Effects& out) {
  const StreamId id{config.name(), config.incarnation()};
  EdgeEvents events;
  Stream* stream = FindStream(id);
  if (stream == nullptr) {
    const ShardFiles none(options_.files_per_shard_max);
    Stream begun{StreamEdges(options_.cell, edge_options_, config, events),
                 std::vector<ShardFiles>(static_cast<size_t>(config.shards()), none)};
    stream = &streams_.emplace(id, std::move(begun)).first->second;
    for (int32_t s = 0; s < config.shards(); ++s) out.list.insert({id, s});
  } else if (!stream->edges.OnConfig(config, events)) {
    return;
  }
  CarryOut(now, *stream, events, out);
}

void SchedulerCore::OnSettled(MonotonicTime now, const StreamId& id, const std::string& cell,
                              uint64_t settled_version, Effects& out) {
  Stream* stream = FindStream(id);
  if (stream == nullptr) return;
  EdgeEvents events;
  stream->edges.OnSettled(cell, settled_version, events);
  CarryOut(now, *stream, events, out);
}

void SchedulerCore::OnStreamRemoved(const StreamId& id, Effects& out) {
  DropOperations(id, nullptr, out);
  streams_.erase(id);
  changing_.erase(id);
}

void SchedulerCore::CarryOut(MonotonicTime now, Stream& stream, const EdgeEvents& events,
                             Effects& out) {
  const StreamId id = stream.edges.id();
  taken_.insert(taken_.end(), events.steps.begin(), events.steps.end());
  for (const EdgeEvent& event : events.events) {
    switch (event.kind) {
      case EdgeEvent::Kind::kBegun:
        BeginEdge(now, stream, event.cell, out);
        break;
      case EdgeEvent::Kind::kDropped:
        DropOperations(id, &event.cell, out);
        break;
      case EdgeEvent::Kind::kReleased:
        Release(now, {id, event.shard}, event.cell, event.layer);
        break;
    }
  }
  if (stream.edges.changing()) {
    changing_.insert(id);
  } else {
    changing_.erase(id);
  }
}

void SchedulerCore::BeginEdge(MonotonicTime now, Stream& stream, const std::string& cell,
                              Effects& out) {
  const StreamId id = stream.edges.id();
  // What was given up for another edge's sake is ours again.
  for (Row row = operations_.begin(); row != operations_.end();) {
    const bool again =
        row->first.file.shard.stream == id && row->first.cell == cell && IsOver(row->second.phase);
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

void SchedulerCore::DropOperations(const StreamId& stream, const std::string* cell, Effects& out) {
  for (Row row = operations_.begin(); row != operations_.end();) {
    if (row->first.file.shard.stream != stream || (cell != nullptr && row->first.cell != *cell)) {
      ++row;
      continue;
    }
    if (IsAssigned(row->second.phase)) {
      out.stop[row->second.workers.reader].push_back(row->second.id);
    }
    row = operations_.Remove(row);
  }
}

// Operations of files that are not cold, which waited for the edge to get so far.
void SchedulerCore::Release(MonotonicTime now, const ShardId& id, const std::string& cell,
                            Layer layer) {
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

bool SchedulerCore::OnNotice(MonotonicTime now, const FileId& file,
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
  ForgetDone(file.shard);
  return true;
}

void SchedulerCore::OnListing(MonotonicTime now, const ShardId& id, int64_t floor,
                              const std::vector<Stem>& stems, Effects& out) {
  ShardFiles* shard = FindShard(id);
  if (shard == nullptr) return;
  shard->OnListed(floor);
  // The newest first: then the others are known to be closed, and cold.
  for (auto stem = stems.rbegin(); stem != stems.rend(); ++stem) {
    if (shard->IsDone(stem->seq) || shard->Find(stem->seq) != nullptr) continue;
    AddFile(now, id, *stem, true, out);
  }
  ForgetDone(id);
}

void SchedulerCore::AddFile(MonotonicTime now, const ShardId& id, const Stem& stem, bool listed,
                            Effects& out) {
  ShardFiles& shard = *FindShard(id);
  const auto sealed = shard.Add(stem, listed);
  if (!sealed) return;
  AddOperations(now, id, streams_.at(id.stream), *shard.Find(stem.seq), out);
  for (const int64_t seq : *sealed) UpdateSeal({id, shard.Find(seq)->stem}, out);
}

void SchedulerCore::AddOperations(MonotonicTime now, const ShardId& id, Stream& stream,
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
void SchedulerCore::UpdateSeal(const FileId& file, Effects& out) {
  for (Row row = operations_.FirstOf(file); row != operations_.end() && row->first.file == file;
       ++row) {
    if (IsAssigned(row->second.phase)) {
      out.start[row->second.workers.reader].push_back(Describe(row));
    }
  }
}

// Forgets files that are copied everywhere.
void SchedulerCore::ForgetDone(const ShardId& id) {
  FindShard(id)->Forget([&](const ShardFiles::File& file) {
    const FileId file_id{id, file.stem};
    const Row begin = operations_.FirstOf(file_id);
    Row end = begin;
    for (; end != operations_.end() && end->first.file == file_id; ++end) {
      if (!IsOver(end->second.phase)) return false;
    }
    for (Row row = begin; row != end;) row = operations_.Remove(row);
    return true;
  });
}

// --- questions to the targets ---

bool SchedulerCore::MustAsk(const Stream& stream, const ShardId& id, const std::string& cell,
                            const EdgeChange& edge) const {
  if (edge.comes()) {
    const ShardFiles& shard = stream.shards.at(static_cast<size_t>(id.shard));
    if (edge.state() == EdgeState::kWaiting || !shard.was_listed()) return false;
    if (edge.stage(id.shard) != Stage::kCaughtUp) return true;
  }
  return operations_.LowestHeld(id, cell) > 0;
}

// The old edge can't append to the newest file: our operation has it, or it is over.
bool SchedulerCore::OldEdgeIsFenced(const ShardId& id, const ShardFiles& shard,
                                    const std::string& cell) const {
  const ShardFiles::File* newest = shard.Newest();
  if (newest == nullptr) return true;
  const Row row = operations_.Find({{id, newest->stem}, Layer::kPrimary, cell});
  if (row == operations_.end()) return true;
  const OperationState& op = row->second;
  return IsOver(op.phase) || (op.phase == Phase::kRunning && op.opened);
}

void SchedulerCore::Ask(MonotonicTime now, const ShardFiles& shard, const ShardId& id,
                        const std::string& cell, EdgeChange& edge, Effects& out) {
  const ShardFiles::File* newest = shard.Newest();
  if (edge.Ask(now, id.shard, newest == nullptr ? 0 : newest->stem.seq,
               OldEdgeIsFenced(id, shard, cell))) {
    out.progress.insert({id, cell});
  }
}

// Calls function(stream, shard, cell, edge) for each that is to be asked as soon as it may be.
template <typename Core, typename Function>
void SchedulerCore::ForEachQuestion(Core& core, Function function) {
  const auto look = [&](auto& stream, const ShardId& id) {
    for (auto& [cell, edge] : stream.edges.edges()) {
      if (core.MustAsk(stream, id, cell, edge)) function(stream, id, cell, edge);
    }
  };
  for (const auto& [id, count] : core.operations_.held()) look(core.streams_.at(id.stream), id);
  for (const StreamId& id : core.changing_) {
    auto& stream = core.streams_.at(id);
    for (size_t s = 0; s < stream.shards.size(); ++s) look(stream, {id, static_cast<int32_t>(s)});
  }
}

int64_t SchedulerCore::AskFrom(const ShardId& id, const std::string& cell) const {
  const int64_t held = operations_.LowestHeld(id, cell);
  if (held > 0) return held;
  const auto stream = streams_.find(id.stream);
  if (stream == streams_.end()) return 1;
  const ShardFiles::File* newest = stream->second.shards.at(static_cast<size_t>(id.shard)).Newest();
  return newest == nullptr ? 1 : newest->stem.seq;
}

void SchedulerCore::OnProgressFailed(MonotonicTime now, const ShardId& id,
                                     const std::string& cell) {
  Stream* stream = FindStream(id.stream);
  EdgeChange* edge = stream == nullptr ? nullptr : stream->edges.Find(cell);
  if (edge != nullptr) edge->OnAnswer(now, id.shard);
}

void SchedulerCore::OnProgress(MonotonicTime now, const ShardId& id, const std::string& cell,
                               int64_t floor, const std::vector<PairLengths>& there,
                               const std::vector<PairLengths>& here, int64_t covered_to) {
  Stream* stream = FindStream(id.stream);
  EdgeChange* edge = stream == nullptr ? nullptr : stream->edges.Find(cell);
  if (edge == nullptr) return;
  edge->OnAnswer(now, id.shard);
  if (edge->state() == EdgeState::kWaiting) return;
  const ShardFiles& shard = *FindShard(id);
  const auto find = [](const std::vector<PairLengths>& pairs, int64_t seq) -> const PairLengths* {
    const auto it = std::find_if(pairs.begin(), pairs.end(),
                                 [&](const PairLengths& p) { return p.stem.seq == seq; });
    return it == pairs.end() ? nullptr : &*it;
  };
  for (const auto& [seq, file] : shard.files()) {
    if (seq > covered_to) break;
    for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
      const Row row = operations_.Find({{id, file.stem}, layer, cell});
      if (row == operations_.end() || row->second.phase != Phase::kHeld) continue;
      if (seq < floor) {
        operations_.Finish(row);
      } else {
        ApplyProgress(now, row, shard, file, *edge, find(there, seq), find(here, seq));
      }
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
  ForgetDone(id);
}

// What both ends have of the file of a held operation; nullptr: nothing.
void SchedulerCore::ApplyProgress(MonotonicTime now, Row row, const ShardFiles& shard,
                                  const ShardFiles::File& file, const EdgeChange& edge,
                                  const PairLengths* there, const PairLengths* here) {
  if (there != nullptr && there->stem != file.stem) {
    ++counters_.data_loss;
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
    if (behind > options_.caught_up_bytes) return;
  }
  operations_.Release(now, row);
}

// --- operations ---

void SchedulerCore::DoWork(MonotonicTime now, Effects& out) {
  StartDue(now, out);
  ForEachQuestion(
      *this, [&](Stream& stream, const ShardId& id, const std::string& cell, EdgeChange& edge) {
        Ask(now, stream.shards[static_cast<size_t>(id.shard)], id, cell, edge, out);
      });
  out.steps.insert(out.steps.end(), taken_.begin(), taken_.end());
  taken_.clear();
}

void SchedulerCore::StartDue(MonotonicTime now, Effects& out) {
  for (Row row = operations_.NextDue(now); row != operations_.end();
       row = operations_.NextDue(now)) {
    if (operations_.starting() >= options_.starting_max) {
      ++counters_.throttled;
      return;
    }
    const OperationTarget& target = row->first;
    EdgeChange::LastWorkers& last =
        EdgeOf(target).last_workers(target.file.shard.shard, target.layer);
    const auto workers = workers_.Pick(now, target.cell, last.reader, last.writer);
    if (!workers) {
      ++counters_.no_worker;
      operations_.Postpone(now + options_.no_worker_delay, row);
      continue;
    }
    const StreamEdges& edges = streams_.at(target.file.shard.stream).edges;
    if (!operations_.Start(row, edges.TermVersion(target.cell), *workers)) {
      ++counters_.given_up;
      continue;
    }
    last = {workers->reader, workers->writer};
    ++counters_.started;
    out.start[workers->reader].push_back(Describe(row));
  }
}

MonotonicTime SchedulerCore::NextWork() const {
  MonotonicTime next = operations_.starting() < options_.starting_max ? operations_.NextDueAt()
                                                                      : MonotonicTime::Max();
  ForEachQuestion(
      *this, [&](const Stream&, const ShardId& id, const std::string&, const EdgeChange& edge) {
        if (!edge.asking(id.shard)) next = std::min(next, edge.ask_at(id.shard));
      });
  return next;
}

Operation SchedulerCore::Describe(Row row) const {
  const auto& [target, op] = *row;
  const Stream& stream = streams_.at(target.file.shard.stream);
  Operation operation;
  operation.target = target;
  operation.id = op.id;
  operation.source_cell = options_.cell;
  operation.chunk_size = stream.edges.config().chunk_size();
  operation.writer_name = op.workers.writer;
  operation.writer_address = op.workers.writer_address;
  operation.writer_via = op.workers.writer_via;
  operation.fresh = op.fresh;
  const ShardFiles& shard = stream.shards.at(static_cast<size_t>(target.file.shard.shard));
  if (const ShardFiles::File* file = shard.Find(target.file.stem.seq); file != nullptr) {
    operation.seal[0] = file->seal[0];
    operation.seal[1] = file->seal[1];
  }
  return operation;
}

void SchedulerCore::Retry(MonotonicTime now, Row row, Duration at_least) {
  ++counters_.restarted;
  operations_.Retry(now, row, at_least);
}

void SchedulerCore::RetryAllOf(MonotonicTime now, const std::string& reader) {
  for (const Row& row : operations_.AssignedTo(reader)) Retry(now, row, Duration());
}

void SchedulerCore::Shed(MonotonicTime now) {
  const auto shedding = workers_.Imbalance();
  if (!shedding) return;
  for (const Row& row : operations_.AssignedTo(shedding->from)) {
    if (row->second.phase != Phase::kRunning) continue;
    // The old one runs on until the new one takes its file over.
    const OperationTarget& target = row->first;
    EdgeOf(target).last_workers(target.file.shard.shard, target.layer).reader = shedding->to;
    ++counters_.shed;
    operations_.Move(now, row);
    return;
  }
}

// --- workers ---

void SchedulerCore::OnReaders(MonotonicTime now, const std::vector<WorkerInfo>& readers) {
  for (const std::string& name : workers_.SetReaders(now, readers)) RetryAllOf(now, name);
}

void SchedulerCore::OnReaderLost(MonotonicTime now, const std::string& name) {
  if (workers_.LoseReader(now, name)) RetryAllOf(now, name);
}

void SchedulerCore::OnReaderFound(const std::string& name) { workers_.FindReader(name); }

void SchedulerCore::OnWriters(MonotonicTime now, const std::string& cell, const std::string& via,
                              const std::vector<WorkerInfo>& writers) {
  workers_.SetWriters(now, cell, via, writers);
}

// --- reports ---

void SchedulerCore::OnStarted(const std::string& reader, const std::vector<OperationId>& ids) {
  const std::set<OperationId> set(ids.begin(), ids.end());
  for (const Row& row : operations_.AssignedTo(reader)) {
    if (row->second.phase == Phase::kStarting && set.contains(row->second.id)) {
      operations_.Confirm(row);
    }
  }
}

void SchedulerCore::OnReport(MonotonicTime now, const std::string& reader,
                             const v1::OperationReport& report, Effects& out) {
  const auto operation = stream::FromProto(report.operation());
  if (!operation.ok()) {
    ++counters_.stale_reports;
    return;
  }
  const bool running = report.state() == v1::OPERATION_RUNNING;
  Row row = operations_.Find(operation->target);
  if (row == operations_.end()) {
    if (running) row = AddReported(now, reader, *operation, out);
    if (row == operations_.end()) return;
  }
  if (row->second.id != operation->id && !Adopt(reader, *operation, running, row, out)) return;
  operations_.Note(row, report);
  if (!running) return OnEnded(now, row, report);
  if (row->second.phase == Phase::kStarting) operations_.Confirm(row);
}

// A reader runs something that the table does not know; end() if nobody wants it.
SchedulerCore::Row SchedulerCore::AddReported(MonotonicTime now, const std::string& reader,
                                              const Operation& operation, Effects& out) {
  const OperationTarget& target = operation.target;
  const ShardId& id = target.file.shard;
  ShardFiles* shard = FindShard(id);
  const EdgeChange* edge = FindEdge(id.stream, target.cell);
  if (shard == nullptr || edge == nullptr || shard->IsDone(target.file.stem.seq) ||
      edge->Retired(id.shard, target.layer)) {
    ++counters_.foreign_operations;
    out.stop[reader].push_back(operation.id);
    return operations_.end();
  }
  if (shard->Find(target.file.stem.seq) == nullptr) AddFile(now, id, target.file.stem, true, out);
  const Row row = operations_.Find(target);
  // Else a cold file's cache operation: let it run.
  return row != operations_.end() ? row : operations_.Add(target, false).first;
}

// A report of another attempt than the one that is known. False: it says nothing of the operation.
bool SchedulerCore::Adopt(const std::string& reader, const Operation& operation, bool running,
                          Row row, Effects& out) {
  if (!running) {
    ++counters_.stale_reports;
    return false;
  }
  const OperationState& op = row->second;
  if (op.phase == Phase::kDone || (IsAssigned(op.phase) && operation.id < op.id)) {
    out.stop[reader].push_back(operation.id);
    return false;
  }
  // An orphan of the scheduler before us: it goes on.
  ++counters_.adopted;
  operations_.Adopt(
      row, operation.id,
      {reader, operation.writer_name, operation.writer_address, operation.writer_via});
  return true;
}

void SchedulerCore::OnReportsComplete(MonotonicTime now, const std::string& reader,
                                      const std::set<OperationId>& known) {
  for (const Row& row : operations_.AssignedTo(reader)) {
    if (row->second.phase == Phase::kRunning && !known.contains(row->second.id)) {
      Retry(now, row, Duration());
    }
  }
}

void SchedulerCore::OnEnded(MonotonicTime now, Row row, const v1::OperationReport& report) {
  if (!IsAssigned(row->second.phase)) return;
  operations_.SetMessage(row, report.message());
  if (report.state() != v1::OPERATION_DONE) return OnFailed(now, row, report);
  ++counters_.done;
  // The seal, if nobody told us: what both ends agreed on.
  const ShardId id = row->first.file.shard;
  FindShard(id)->Seal(row->first.file.stem.seq, report.source_data_length(),
                      report.source_index_length());
  operations_.Finish(row);
  ForgetDone(id);
}

void SchedulerCore::OnFailed(MonotonicTime now, Row row, const v1::OperationReport& report) {
  const Assignment workers = row->second.workers;
  switch (report.cause()) {
    case v1::CAUSE_SUPERSEDED:
      ++counters_.superseded;
      return OnSuperseded(now, row, report.superseding_term());
    case v1::CAUSE_DATA_LOSS:
      ++counters_.data_loss;
      return Retry(now, row, options_.retry_delay_max);
    case v1::CAUSE_REFUSED:
      ++counters_.refused;
      workers_.AvoidWriter(now, row->first.cell, workers.writer);
      return Retry(now, row, options_.avoid_worker / 2);
    case v1::CAUSE_SOURCE:
      workers_.AvoidReader(now, workers.reader);
      return Retry(now, row, options_.retry_delay);
    case v1::CAUSE_STOPPED:
      return Retry(now, row, options_.retry_delay);
    default:
      workers_.AvoidWriter(now, row->first.cell, workers.writer);
      return Retry(now, row, Duration());
  }
}

void SchedulerCore::OnSuperseded(MonotonicTime now, Row row, uint64_t by) {
  const OperationTarget target = row->first;
  const ShardId& id = target.file.shard;
  EdgeChange& edge = EdgeOf(target);
  const uint64_t tree_version = streams_.at(id.stream).edges.config().tree_version();
  if (edge.state() == EdgeState::kLeaving &&
      stream::Term::Unpack(by).tree_version >= tree_version) {
    // The new edge has taken this layer of the shard over: this one is done with it.
    edge.Retire(id.shard, target.layer);
    for (Row other = operations_.begin(); other != operations_.end(); ++other) {
      const Phase phase = other->second.phase;
      if (other->first.file.shard == id && other->first.cell == target.cell &&
          other->first.layer == target.layer &&
          (other == row || phase == Phase::kWanted || phase == Phase::kHeld)) {
        operations_.GiveUp(other, "");
      }
    }
    ForgetDone(id);
  } else if (by > row->second.id.term) {
    // By whom we do not know of: another scheduler, which fences us soon if it is the newer one.
    Retry(now, row, options_.avoid_worker);
  } else {
    Retry(now, row, options_.retry_delay * 2);
  }
}

// --- for others ---

bool SchedulerCore::Retired(const ShardId& id, const std::string& cell, Layer layer) const {
  const EdgeChange* edge = FindEdge(id.stream, cell);
  return edge != nullptr && edge->Retired(id.shard, layer);
}

bool SchedulerCore::Feeds(const StreamId& id, const std::string& cell) const {
  return FindEdge(id, cell) != nullptr;
}

bool SchedulerCore::Made(const StreamId& id, const std::string& cell) const {
  const EdgeChange* edge = FindEdge(id, cell);
  return edge != nullptr && edge->state() == EdgeState::kMade;
}

}  // namespace tailcast::scheduler
