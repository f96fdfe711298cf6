#include "tailcast/scheduler/operation_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::scheduler {

using stream::OperationId;
using stream::OperationTarget;

namespace {
FAULT_POINT(kNeverAgain, "scheduler.never_again", "an operation that has failed is given up");
}  // namespace

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kHeld:
      return "held";
    case Phase::kWanted:
      return "wanted";
    case Phase::kStarting:
      return "starting";
    case Phase::kRunning:
      return "running";
    case Phase::kDone:
      return "done";
    case Phase::kGivenUp:
      return "given up";
  }
  return "?";
}

bool IsOver(Phase phase) { return phase == Phase::kDone || phase == Phase::kGivenUp; }

bool IsAssigned(Phase phase) { return phase == Phase::kStarting || phase == Phase::kRunning; }

bool MayFollow(Phase from, Phase to) {
  switch (to) {
    case Phase::kHeld:
      return from == Phase::kDone;
    case Phase::kWanted:
      return !IsOver(from);
    case Phase::kStarting:
      return from == Phase::kWanted;
    case Phase::kRunning:
      return from != Phase::kDone;
    case Phase::kDone:
      return from == Phase::kHeld || IsAssigned(from);
    case Phase::kGivenUp:
      return !IsOver(from);
  }
  return false;
}

// --- indices ---

void OperationTable::Leave(Row row) {
  const OperationState& op = row->second;
  if (op.phase == Phase::kWanted) wanted_.erase({op.not_before, row->first});
  if (op.phase == Phase::kStarting) --starting_;
  if (op.phase == Phase::kHeld) {
    const auto shard = held_.find(row->first.file.shard);
    const auto cell = shard->second.find(row->first.cell);
    cell->second.erase(cell->second.find(row->first.file.stem.seq));
    if (cell->second.empty()) shard->second.erase(cell);
    if (shard->second.empty()) held_.erase(shard);
  }
  if (!IsOver(op.phase)) --unfinished_;
}

void OperationTable::Enter(Row row) {
  const OperationState& op = row->second;
  if (op.phase == Phase::kWanted) wanted_.insert({op.not_before, row->first});
  if (op.phase == Phase::kStarting) ++starting_;
  if (op.phase == Phase::kHeld) {
    held_[row->first.file.shard][row->first.cell].insert(row->first.file.stem.seq);
  }
  if (!IsOver(op.phase)) ++unfinished_;
}

void OperationTable::SetPhase(Row row, Phase phase, MonotonicTime not_before) {
  OperationState& op = At(row);
  TAILCAST_CHECK(MayFollow(op.phase, phase), row->first.ToString() + " is " +
                                                 std::string(PhaseName(op.phase)) +
                                                 " and can't be " + std::string(PhaseName(phase)));
  Leave(row);
  if (IsAssigned(op.phase) && !IsAssigned(phase)) Unassign(row);
  op.phase = phase;
  op.not_before = not_before;
  Enter(row);
}

void OperationTable::Assign(Row row, const Assignment& workers) {
  OperationState& op = At(row);
  op.workers = workers;
  op.counted = op.load.bytes_per_s(workers_.balance());
  workers_.AddLoad(row->first.cell, row->first.layer, workers, op.counted);
  by_reader_[workers.reader].insert(row);
  by_writer_[{row->first.cell, workers.writer}].insert(row);
  if (!op.load.idle()) moving_.insert(row);
}

void OperationTable::Unassign(Row row) {
  OperationState& op = At(row);
  const auto forget = [row](auto& by, const auto& key) {
    const auto rows = by.find(key);
    rows->second.erase(row);
    if (rows->second.empty()) by.erase(rows);
  };
  forget(by_reader_, op.workers.reader);
  forget(by_writer_, std::pair(row->first.cell, op.workers.writer));
  moving_.erase(row);
  workers_.DropLoad(row->first.cell, row->first.layer, op.workers, op.counted);
  op.counted = 0;
  op.workers = {};
}

void OperationTable::Count(Row row) {
  OperationState& op = At(row);
  if (!IsAssigned(op.phase)) return;
  const int64_t load = op.load.bytes_per_s(workers_.balance());
  if (load != op.counted)
    workers_.ChangeLoad(row->first.cell, row->first.layer, op.workers, load - op.counted);
  op.counted = load;
}

void OperationTable::Weigh(MonotonicTime now) {
  if (!weighed_) weighed_ = now;
  const int64_t windows = (now - *weighed_).micros() / kLoadWindow.micros();
  if (windows <= 0) return;
  weighed_ = *weighed_ + kLoadWindow * windows;
  for (auto it = moving_.begin(); it != moving_.end();) {
    const Row row = *it;
    OperationLoad& load = At(row).load;
    load.OnWindows(windows, workers_.balance());
    Count(row);
    it = load.idle() ? moving_.erase(it) : std::next(it);
  }
}

std::pair<OperationTable::Row, bool> OperationTable::Add(const OperationTarget& target,
                                                         bool fresh) {
  const auto [it, is_new] = rows_.try_emplace(target);
  if (!is_new) return {it, false};
  it->second.fresh = fresh;
  Enter(it);
  return {it, true};
}

OperationTable::Row OperationTable::Remove(Row row) {
  Leave(row);
  if (IsAssigned(row->second.phase)) Unassign(row);
  return rows_.erase(row);
}

// --- transitions ---

void OperationTable::Release(MonotonicTime now, Row row) {
  TAILCAST_CHECK(row->second.phase == Phase::kHeld, "only what is held can be released");
  SetPhase(row, Phase::kWanted, row->second.fresh ? now : std::max(now, options_.orphans_until));
}

void OperationTable::Postpone(MonotonicTime until, Row row) {
  TAILCAST_CHECK(row->second.phase == Phase::kWanted, "only what is wanted can be postponed");
  SetPhase(row, Phase::kWanted, until);
}

bool OperationTable::Start(Row row, stream::TreeVersion tree_version, const Assignment& workers,
                           const OperationLoad::Expected& expected) {
  OperationState& op = At(row);
  if (op.attempt >= stream::kAttemptMax) {
    GiveUp(row, "tried too often");
    return false;
  }
  ++op.attempt;
  op.id = {{tree_version, options_.incarnation, op.attempt},
           stream::Nonce{static_cast<uint32_t>(rng_.Next())}};
  op.opened = false;
  op.orphan = false;
  SetPhase(row, Phase::kStarting);
  op.load.Begin(expected, workers_.balance());
  Assign(row, workers);
  return true;
}

void OperationTable::Confirm(Row row) {
  TAILCAST_CHECK(row->second.phase == Phase::kStarting, "only what starts can be confirmed");
  SetPhase(row, Phase::kRunning);
}

void OperationTable::Adopt(Row row, const OperationId& id, const Assignment& workers) {
  OperationState& op = At(row);
  if (IsAssigned(op.phase)) Unassign(row);
  SetPhase(row, Phase::kRunning);
  op.id = id;
  op.opened = false;
  op.orphan = false;
  op.load.Adopt();
  Assign(row, workers);
}

void OperationTable::Retry(MonotonicTime now, Row row, Duration at_least) {
  OperationState& op = At(row);
  TAILCAST_CHECK(IsAssigned(op.phase), "only what was started can fail");
  ++op.failures;
  ++op.failures_left;
  op.fresh = false;
  Duration delay = at_least;
  if (op.failures > 1) {
    const Duration backoff = std::min(options_.retry_delay * (1 << std::min(op.failures - 2, 10)),
                                      options_.retry_delay_max);
    delay = std::max(delay, backoff);
  }
  if (kNeverAgain.planted()) return SetPhase(row, Phase::kGivenUp);
  SetPhase(row, Phase::kWanted, now + delay);
}

void OperationTable::Orphan(MonotonicTime now, Row row) {
  Retry(now, row, Duration());
  At(row).orphan = true;
}

void OperationTable::Move(MonotonicTime now, Row row) {
  TAILCAST_CHECK(row->second.phase == Phase::kRunning, "only what runs can be moved");
  OperationState& op = At(row);
  op.fresh = false;
  op.moved.emplace(op.workers.reader, op.id);
  SetPhase(row, Phase::kWanted, now);
}

std::optional<std::pair<std::string, OperationId>> OperationTable::TakeMoved(Row row) {
  OperationState& op = At(row);
  if (!op.opened || !IsAssigned(op.phase) || !op.moved || op.moved->second == op.id) {
    return std::nullopt;
  }
  return std::exchange(op.moved, std::nullopt);
}

void OperationTable::Finish(Row row) { SetPhase(row, Phase::kDone); }

void OperationTable::Reopen(Row row) {
  OperationState& op = At(row);
  op.fresh = false;
  op.written[0] = op.written[1] = 0;
  SetPhase(row, Phase::kHeld);
}

void OperationTable::SkipTo(Row row, uint32_t attempt) {
  OperationState& op = At(row);
  op.attempt = std::max(op.attempt, attempt);
}

void OperationTable::GiveUp(Row row, const std::string& message) {
  if (!message.empty()) At(row).message = message;
  SetPhase(row, Phase::kGivenUp);
}

void OperationTable::Note(MonotonicTime now, Row row, const v1::OperationReport& report) {
  OperationState& op = At(row);
  for (const int64_t length : {report.source_data_length(), report.source_index_length(),
                               report.data_length(), report.index_length()}) {
    if (length < 0) return;  // no reader says so
  }
  const bool was_open = std::exchange(op.opened, report.opened());
  op.source[0] = report.source_data_length();
  op.source[1] = report.source_index_length();
  // Before it has opened the reader does not know what the target has.
  if (op.opened) {
    const bool grew = report.data_length() > op.written[0] || report.index_length() > op.written[1];
    if (!was_open || grew) op.failures = 0;
    if (was_open && grew && op.failures_left > 0 && now >= op.fewer_from) {
      op.failures_left = std::min(op.failures_left, kDoublingsMax) - 1;
      op.fewer_from = now + StuckAtFirst(row);
    }
    op.written[0] = report.data_length();
    op.written[1] = report.index_length();
  }
  int64_t waiting = 0;
  for (int part = 0; part < stream::kParts; ++part) {
    waiting += std::max<int64_t>(0, op.source[part] - op.written[part]);
  }
  op.load.OnReport(report.sent_bytes(), waiting);
  if (!IsAssigned(op.phase)) return;
  if (!op.load.idle()) moving_.insert(row);
  Count(row);
}

// --- questions ---

OperationTable::Row OperationTable::NextDue(MonotonicTime now) const {
  if (wanted_.empty() || wanted_.begin()->first > now) return rows_.end();
  return rows_.find(wanted_.begin()->second);
}

MonotonicTime OperationTable::NextDueAt() const {
  return wanted_.empty() ? MonotonicTime::Max() : wanted_.begin()->first;
}

std::vector<OperationTable::Row> OperationTable::AssignedTo(const std::string& reader) const {
  const auto rows = by_reader_.find(reader);
  if (rows == by_reader_.end()) return {};
  return {rows->second.begin(), rows->second.end()};
}

std::vector<OperationTable::Row> OperationTable::AssignedToWriter(const std::string& cell,
                                                                  const std::string& writer) const {
  const auto rows = by_writer_.find({cell, writer});
  if (rows == by_writer_.end()) return {};
  return {rows->second.begin(), rows->second.end()};
}

bool OperationTable::GetsOn(const std::string& cell) const {
  for (auto it = by_writer_.lower_bound({cell, ""}); it != by_writer_.end(); ++it) {
    if (it->first.first != cell) break;
    if (std::any_of(it->second.begin(), it->second.end(), [](Row row) {
          return row->second.phase == Phase::kRunning && row->second.opened;
        })) {
      return true;
    }
  }
  return false;
}

OperationTable::Row OperationTable::Predecessor(const OperationTarget& target) const {
  Row row = FirstOf(target.file);
  while (row != rows_.begin()) {
    --row;
    const stream::FileId& file = row->first.file;
    if (file.shard != target.file.shard || file.stem.seq + 1 != target.file.stem.seq) break;
    if (row->first.layer == target.layer && row->first.cell == target.cell) return row;
  }
  return rows_.end();
}

int64_t OperationTable::LowestHeld(const stream::ShardId& shard, const std::string& cell) const {
  const auto held = held_.find(shard);
  if (held == held_.end()) return 0;
  const auto files = held->second.find(cell);
  return files == held->second.end() ? 0 : *files->second.begin();
}

}  // namespace tailcast::scheduler
