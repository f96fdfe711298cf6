#include "tailcast/scheduler/scheduler_core.h"

#include <algorithm>

#include "tailcast/base/fault_point.h"

namespace tailcast::scheduler {
namespace {

FAULT_POINT(kEndedIsDone, "scheduler.ended_is_done",
            "an operation that has ended is done, whatever it ended for");
FAULT_POINT(kLeaversKeep, "scheduler.leavers_keep",
            "who leaves keeps its operations until it has ended");

}  // namespace

using stream::Operation;
using stream::OperationId;
using stream::OperationTarget;

SchedulerCore::SchedulerCore(CoreOptions options, uint64_t seed)
    : options_(std::move(options)),
      workers_(
          {.avoid = options_.avoid_worker, .speed = options_.speed, .balance = options_.balance}),
      operations_({.incarnation = options_.incarnation,
                   .retry_delay = options_.retry_delay,
                   .retry_delay_max = options_.retry_delay_max,
                   .stuck_after = options_.stuck_after,
                   .orphans_until = options_.orphans_until},
                  workers_, seed),
      copies_({.cell = options_.cell,
               .edge = {.caught_up_bytes = options_.caught_up_bytes,
                        .caught_up_time = options_.caught_up_time,
                        .progress_interval = options_.progress_interval},
               .files_per_shard_max = options_.files_per_shard_max},
              operations_) {}

CoreCounters SchedulerCore::counters() const {
  CoreCounters counters = counters_;
  counters.readers_lost = workers_.readers_lost();
  counters.data_loss += copies_.data_loss();
  counters.put_off = copies_.memory().put_off();
  return counters;
}

// --- work ---

void SchedulerCore::DoWork(MonotonicTime now, Effects& out) {
  operations_.Weigh(now);
  MoveFromLeavers(now);
  MoveFromSlow(now);
  StartDue(now, out);
  copies_.AskDue(now, out);
  for (StepTaken& step : copies_.TakeSteps()) out.steps.push_back(std::move(step));
}

void SchedulerCore::StartDue(MonotonicTime now, Effects& out) {
  for (Row row = operations_.NextDue(now); row != operations_.end();
       row = operations_.NextDue(now)) {
    if (operations_.starting() >= options_.starting_max) {
      ++counters_.throttled;
      return;
    }
    const OperationTarget& target = row->first;
    const auto workers = PickWorkers(now, target);
    if (!workers) {
      ++counters_.no_worker;
      operations_.Postpone(now + options_.no_worker_delay, row);
      continue;
    }
    if (!operations_.Start(row, copies_.TermVersion(target), *workers,
                           copies_.ExpectedLoad(target))) {
      ++counters_.given_up;
      continue;
    }
    EdgeChange::LastWorkers& last = copies_.last_workers(target);
    last = {workers->reader, workers->writer};
    ++counters_.started;
    out.start[workers->reader].push_back(copies_.Describe(row));
  }
}

std::optional<Assignment> SchedulerCore::PickWorkers(MonotonicTime now,
                                                     const OperationTarget& target) {
  const EdgeChange::LastWorkers& last = copies_.last_workers(target);
  Preferred reader{.name = last.reader, .keep = last.keep};
  Preferred writer{.name = last.writer, .keep = last.keep};
  const Row before = operations_.Predecessor(target);
  if (before != operations_.end() && IsAssigned(before->second.phase)) {
    const OperationState& op = before->second;
    if (op.workers.reader == reader.name) reader.bytes_per_s = op.counted;
    if (op.workers.writer == writer.name) writer.bytes_per_s = op.counted;
  }
  return workers_.Pick(now, target.cell, target.layer, reader, writer);
}

MonotonicTime SchedulerCore::NextWork() const {
  MonotonicTime next = copies_.NextQuestion();
  if (workers_.speed().pending()) next = std::min(next, round_ends_);
  return operations_.starting() < options_.starting_max ? std::min(next, operations_.NextDueAt())
                                                        : next;
}

void SchedulerCore::Retry(MonotonicTime now, Row row, Duration at_least) {
  ++counters_.restarted;
  operations_.Retry(now, row, at_least);
}

void SchedulerCore::RetryAllOf(MonotonicTime now, const std::string& reader) {
  for (const Row& row : operations_.AssignedTo(reader)) {
    ++counters_.restarted;
    operations_.Orphan(now, row);
  }
}

void SchedulerCore::Shed(MonotonicTime now) {
  operations_.Weigh(now);
  for (const WorkerTable::Shedding& shedding : workers_.Imbalances(now)) {
    const Row row = BestToMove(shedding);
    if (row == operations_.end()) continue;
    // The old one runs on until the new one takes its file over.
    EdgeChange::LastWorkers& last = copies_.last_workers(row->first);
    (shedding.cell.empty() ? last.reader : last.writer) = shedding.to;
    ++counters_.shed;
    operations_.Move(now, row);
    return;
  }
}

// end(): none is worth it.
SchedulerCore::Row SchedulerCore::BestToMove(const WorkerTable::Shedding& shedding) const {
  Row best = operations_.end();
  int64_t best_gain = 0;
  const auto rows = shedding.cell.empty()
                        ? operations_.AssignedTo(shedding.from)
                        : operations_.AssignedToWriter(shedding.cell, shedding.from);
  for (const Row& row : rows) {
    if (row->second.phase != Phase::kRunning || row->first.layer != shedding.layer) continue;
    const int64_t gain = MoveGain(options_.balance, row->second.counted, shedding.gap);
    if (gain <= best_gain) continue;
    best = row;
    best_gain = gain;
  }
  return best;
}

// What was not confirmed yet follows when it is.
void SchedulerCore::MoveFromLeavers(MonotonicTime now) {
  if (kLeaversKeep.planted()) return;
  for (const WorkerTable::Leaver& leaver : workers_.Leavers()) {
    const auto rows = leaver.cell.empty() ? operations_.AssignedTo(leaver.name)
                                          : operations_.AssignedToWriter(leaver.cell, leaver.name);
    for (const Row& row : rows) {
      if (row->second.phase != Phase::kRunning) continue;
      ++counters_.left;
      operations_.Move(now, row);
    }
  }
}

namespace {
Lane LaneOf(const OperationTarget& target) {
  return {target.file.shard, target.layer, target.cell};
}
}  // namespace

// How long both parts take, of what should take no time.
void SchedulerCore::NoteTimes(MonotonicTime now, Row row, const v1::OperationReport& report) {
  const auto& [target, op] = *row;
  if (options_.speed.slow_after == Duration() || !op.opened || !IsAssigned(op.phase) ||
      !copies_.IsHot(target)) {
    return;
  }
  const auto took = [](int64_t us) {
    return Duration::Micros(std::clamp<int64_t>(us, 0, int64_t{3600} * 1000 * 1000));
  };
  workers_.speed().OnTimes(now, LaneOf(target), op.workers.reader, op.workers.writer,
                           took(report.read_us()), took(report.write_us()));
}

void SchedulerCore::MoveFromSlow(MonotonicTime now) {
  if (options_.speed.slow_after == Duration() || now < round_ends_) return;
  round_ends_ = now + WorkerSpeed::kRound;
  const auto relief = workers_.JudgeSpeeds(now);
  if (!relief) return;
  const WorkerId& slow = relief->worker;
  auto rows = slow.is_reader() ? operations_.AssignedTo(slow.name)
                               : operations_.AssignedToWriter(slow.cell, slow.name);
  std::erase_if(rows, [](const Row& row) { return row->second.phase != Phase::kRunning; });
  WorkerSpeed& speed = workers_.speed();
  std::stable_partition(rows.begin(), rows.end(), [&](const Row& row) {
    return speed.IsSlow(LaneOf(row->first)) && copies_.IsHot(row->first);
  });
  int64_t moves = 0;
  for (const Row& row : rows) {
    if (moves++ == relief->operations) return;
    if (copies_.IsHot(row->first)) {
      speed.OnMoved(LaneOf(row->first));
      EdgeChange::LastWorkers& last = copies_.last_workers(row->first);
      (slow.is_reader() ? last.reader : last.writer).clear();
      last.keep = true;  // the other end, or nobody could tell whose time it is then
    }
    ++counters_.slow;
    operations_.Move(now, row);
  }
}

bool SchedulerCore::OnLacking(MonotonicTime now, const stream::ShardId& shard,
                              const std::string& cell, int64_t seq, v1::LackingFile::Kind kind,
                              Effects& out) {
  const bool again = copies_.OnLacking(now, shard, cell, seq, kind, out);
  if (again) ++counters_.copied_again;
  return again;
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

void SchedulerCore::OnStarted(const std::string& reader, const std::vector<Operation>& operations) {
  for (const Operation& operation : operations) {
    const Row row = operations_.Find(operation.target);
    if (row == operations_.end() || row->second.phase != Phase::kStarting) continue;
    if (row->second.id == operation.id && row->second.workers.reader == reader) {
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
    if (!running) return;
    row = copies_.AddReported(now, operation->target, out);
    if (row == operations_.end()) {
      ++counters_.foreign_operations;
      out.stop[reader].push_back(operation->id);
      return;
    }
  }
  const bool ours = row->second.id == operation->id && !row->second.orphan;
  if (!ours && !Adopt(reader, *operation, running, row, out)) return;
  operations_.Note(now, row, report);
  if (running) NoteTimes(now, row, report);
  if (const auto moved = operations_.TakeMoved(row))
    out.stop[moved->first].push_back(moved->second);
  if (!running) return OnEnded(now, row, report);
  if (row->second.phase == Phase::kStarting) operations_.Confirm(row);
}

// A report of another attempt than the one that is known, or of an orphan. False: it says nothing
// of the operation.
bool SchedulerCore::Adopt(const std::string& reader, const Operation& operation, bool running,
                          Row row, Effects& out) {
  if (!running) {
    ++counters_.stale_reports;
    return false;
  }
  const OperationState& op = row->second;
  if (op.phase == Phase::kDone || (IsAssigned(op.phase) && operation.id < op.id)) {
    // It goes on until its successor has the file, which ends it by itself: make before break.
    if (op.phase == Phase::kDone || op.opened) out.stop[reader].push_back(operation.id);
    return false;
  }
  // An orphan, of ours or of the scheduler before us: it goes on.
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
  if (const auto rate = row->second.load.rate()) copies_.NoteRate(row->first, *rate);
  operations_.SetMessage(row, report.message());
  if (report.state() != v1::OPERATION_DONE && !kEndedIsDone.planted())
    return OnFailed(now, row, report);
  ++counters_.done;
  copies_.OnCopied(row, report.source_data_length(), report.source_index_length());
}

void SchedulerCore::OnFailed(MonotonicTime now, Row row, const v1::OperationReport& report) {
  const Assignment workers = row->second.workers;
  switch (report.cause()) {
    case v1::CAUSE_SUPERSEDED:
      ++counters_.superseded;
      return OnSuperseded(now, row, stream::Term::Unpack(report.superseding_term()));
    case v1::CAUSE_DATA_LOSS:
      ++counters_.data_loss;
      return Retry(now, row, options_.retry_delay_max);
    case v1::CAUSE_REFUSED:
      ++counters_.refused;
      workers_.AvoidWriter(now, row->first.cell, workers.writer);
      return Retry(now, row, options_.avoid_worker / 2);
    case v1::CAUSE_READER_FULL:
      ++counters_.refused;
      workers_.AvoidReader(now, workers.reader);
      return Retry(now, row, options_.retry_delay);
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

void SchedulerCore::OnSuperseded(MonotonicTime now, Row row, const stream::Term& by) {
  // The new edge has taken this layer of the shard over: this one is done with it.
  if (copies_.OnTakenOver(row, by.tree_version)) return;
  if (by.scheduler_incarnation == options_.incarnation &&
      by.tree_version == row->second.id.term.tree_version) {
    // By what was copied before the target lost it, when the file was known the last time.
    operations_.SkipTo(row, by.attempt);
    return Retry(now, row, options_.retry_delay);
  }
  if (by > row->second.id.term) {
    // By whom we do not know of: another scheduler, which fences us soon if it is the newer one.
    Retry(now, row, options_.avoid_worker);
  } else {
    Retry(now, row, options_.retry_delay * 2);
  }
}

// --- for others ---

bool SchedulerCore::IsCurrent(const Operation& operation) const {
  const Row row = operations_.Find(operation.target);
  return row != operations_.end() && IsAssigned(row->second.phase) &&
         row->second.id == operation.id;
}

bool SchedulerCore::Retired(const stream::ShardId& id, const std::string& cell,
                            stream::Layer layer) const {
  const EdgeChange* edge = copies_.FindEdge(id.stream, cell);
  return edge != nullptr && edge->Retired(id.shard, layer);
}

bool SchedulerCore::Feeds(const stream::StreamId& id, const std::string& cell) const {
  return copies_.FindEdge(id, cell) != nullptr;
}

bool SchedulerCore::Made(const stream::StreamId& id, const std::string& cell) const {
  const EdgeChange* edge = copies_.FindEdge(id, cell);
  return edge != nullptr && edge->state() == EdgeState::kMade;
}

}  // namespace tailcast::scheduler
