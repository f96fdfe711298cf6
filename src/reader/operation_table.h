// The operations that a reader has: which one runs for each target, what of them the scheduler does
// not know yet, and which scheduler is obeyed.
//
// Each operation has a number of its own here. It runs until OnEnded; then its last report is kept
// until a list of the scheduler has acknowledged it. Each change that is to be reported raises the
// version; a list tells what changed after the version that the scheduler knows.
//
// A core: no clock, no I/O, one thread. Internal to the module.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/term.h"

namespace tailcast::reader {

class OperationTable {
 public:
  // What to do about an operation that the scheduler wants.
  enum class Verdict : uint8_t {
    kStart,    // nothing runs for its target
    kReplace,  // an older one runs: it is stopped first
    kKnown,    // it runs already
    kLate,     // a newer one runs, or it has ended: the call came late or twice
  };
  struct Entry {
    stream::Operation operation;
    uint64_t version = 0;                            // of its last change
    uint64_t news = 0;                               // of the last that was OnOpened or OnEnded
    std::optional<v1::OperationReport> last_report;  // has ended
  };

  // At most `ended_max` ended operations are kept: nobody may ever ask. As many ends are
  // remembered: what ended before those may start again, and meets its lock.
  explicit OperationTable(int ended_max) : ended_max_(ended_max) {}

  // Obeys the newest scheduler. InvalidArgument: 0; FailedPrecondition: another one replaced it.
  Status CheckScheduler(stream::SchedulerIncarnation incarnation);

  // And the number of the one that runs, 0 if none does.
  std::pair<Verdict, uint64_t> Judge(const stream::Operation& wanted) const;
  // After kStart, or kReplace and the end of the older one.
  uint64_t Add(stream::Operation operation);
  // Its report has news. Unknown numbers are ignored.
  void OnChanged(uint64_t number);
  // Its writer has opened: no older operation appends there any more, and who changes a copy tree
  // waits to hear it.
  void OnOpened(uint64_t number);
  void OnEnded(uint64_t number, v1::OperationReport last_report);

  int64_t running() const { return static_cast<int64_t>(by_target_.size()); }
  std::vector<uint64_t> Running() const;
  std::vector<uint64_t> RunningOf(const std::set<stream::OperationId>& ids) const;

  // The scheduler knows everything up to version `known` (0: nothing): ended operations that it
  // knows of are forgotten.
  void Acknowledge(uint64_t known);
  // A scheduler that knows `known` should be answered at once.
  bool HasNews(uint64_t known) const;
  // Everything must be told: `known` is 0, or not of this table.
  bool MustTellAll(uint64_t known) const { return known == 0 || known > version_; }
  // What to tell, by number.
  std::vector<std::pair<uint64_t, const Entry*>> ChangedSince(uint64_t known) const;
  uint64_t version() const { return version_; }

 private:
  void RememberEnd(const stream::Operation& operation);

  const int64_t ended_max_;
  stream::SchedulerIncarnation scheduler_incarnation_ = stream::SchedulerIncarnation::kNone;
  uint64_t next_number_ = 1;
  uint64_t version_ = 1;
  std::map<uint64_t, Entry> entries_;
  std::map<stream::OperationTarget, uint64_t> by_target_;  // running
  // What ended. Not the greatest for each target: a scheduler that forgot a file counts anew.
  using End = std::pair<stream::OperationTarget, stream::OperationId>;
  std::set<End> ends_;
  std::deque<End> ends_in_order_;
};

}  // namespace tailcast::reader
