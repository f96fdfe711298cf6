// In a stream's source: when a cell that its copy tree names no more gives its disk back
// (cell/departures.h; spec Leaving).
//
//             told the tree           10 min           all that it has, the source has
//   telling ────────────────▶ resting ──────▶ comparing ──────────────────────────────▶ going ──▶ gone
//      ▲                                          ▲ │
//      │ a tree or an open change names it        │ │ one file is the last copy
//      └── waiting                                └─┴ keeping
//
// A scheduler that begins tells, rests and compares anew; going is durable, and goes on. The rest
// is for operators who change their minds, and for what is on its way; nothing depends on it.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/scheduler/disk_progress.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

struct LeaverOptions {
  Duration rest = Duration::Seconds(600);
  Duration retry = Duration::Seconds(5);        // after a failed call
  Duration poll = Duration::Seconds(2);         // of a cell whose files go
  Duration look_again = Duration::Seconds(60);  // whether a copy is still the last one
  int calls_max = 16;                           // under way
};

struct LeaverId {
  stream::StreamId stream;
  std::string cell;
  uint64_t order = 0;
  friend bool operator<(const LeaverId& a, const LeaverId& b) {
    return std::tie(a.stream, a.cell, a.order) < std::tie(b.stream, b.cell, b.order);
  }
  bool operator==(const LeaverId&) const = default;
};

// What is durable.
struct KnownLeaver {
  LeaverId id;
  int32_t shards = 0;
  bool named = false;  // by the tree or an open change
  bool going = false;
};

struct LeaverEffects {
  std::vector<LeaverId> tell;  // the stream's configuration
  struct Compare {
    LeaverId id;
    int32_t shard = 0;
    int64_t from_seq = 1;
  };
  std::vector<Compare> compare;
  std::vector<LeaverId> go;     // to be made durable
  std::vector<LeaverId> order;  // to drop its copies
};

enum class LeaverPhase : uint8_t { kWaiting, kTelling, kResting, kComparing, kKeeping, kGoing };
std::string_view LeaverPhaseName(LeaverPhase phase);  // "waiting", ...

enum class LastCopyWhy : uint8_t {
  kLacking,      // the source lacks the file, or has less of it
  kUnreadThere,  // the cell that left can't read its own: whether the source has all is not known
  kUnreadHere,   // the source can't read its own
};

// For people.
struct LeaverRow {
  LeaverId id;
  LeaverPhase phase = LeaverPhase::kWaiting;
  int32_t shard = 0;    // keeping: of the file that may be the last copy
  int64_t lacking = 0;  // keeping
  LastCopyWhy why = LastCopyWhy::kLacking;
};

// Of what a cell has of a shard and what the source has, both read from the same file on: the first
// one that would be lost with the cell's; or where to go on comparing, INT64_MAX if that is all.
struct CopiesCompared {
  int64_t lost = 0;  // 0: none
  int64_t next = INT64_MAX;
  LastCopyWhy why = LastCopyWhy::kLacking;  // of `lost`
};
// One that can't be read there may be lost, too.
CopiesCompared CompareCopies(const ShardProgress& there, const ShardProgress& here);

class LeaverCore {
 public:
  explicit LeaverCore(LeaverOptions options) : options_(options) {}

  // All that there are.
  void OnLeavers(MonotonicTime now, const std::vector<KnownLeaver>& leavers);
  // Ends of what DoWork asked for; of others they are ignored.
  void OnTold(MonotonicTime now, const LeaverId& id, bool ok);
  void OnCompared(MonotonicTime now, const LeaverId& id, const CopiesCompared& compared);
  void OnCompareFailed(MonotonicTime now, const LeaverId& id);
  void OnOrdered(MonotonicTime now, const LeaverId& id);

  void DoWork(MonotonicTime now, LeaverEffects& out);
  // Max(): without an input never.
  MonotonicTime NextWork() const;
  bool empty() const { return leavers_.empty(); }
  std::vector<LeaverRow> Rows() const;

 private:
  struct Leaver {
    int32_t shards = 0;
    LeaverPhase phase = LeaverPhase::kWaiting;
    bool asked = false;  // DoWork's last effect has not ended
    MonotonicTime at;    // no work before
    int32_t shard = 0;   // comparing
    int64_t from_seq = 1;
    int64_t lacking = 0;
    LastCopyWhy why = LastCopyWhy::kLacking;
  };
  Leaver* FindAsked(const LeaverId& id, LeaverPhase phase);
  static void Begin(LeaverPhase phase, MonotonicTime at, Leaver& leaver);

  int Asked() const;

  const LeaverOptions options_;
  std::map<LeaverId, Leaver> leavers_;
};

}  // namespace tailcast::scheduler
