// Which workers are much slower than the others (paper §5, "bad machines"): they are alive and get
// on, and everything that goes through them comes late. Long times alone do not say who is to
// blame: the worker, the other end of its operations, or what they copy. So some of what a suspect
// runs is moved, and what becomes of it decides.
//
//   a lane's time     how long a shard's newest file takes at one layer of one cell, as its reader
//                     reports it: of a round of two seconds the least. For the writer from sending
//                     to the confirmation (write_us), for the reader reading as well (read_us):
//                     one that is slow to send shows itself there. What changed hands less than two
//                     seconds ago says nothing
//   its peers'        the median (of two the lower one) of what the other healthy workers of the
//                     pool take for the same layer of the same cell, from the last ten seconds. Who
//                     has no peers is not judged
//   slow              in two rounds more than half of its lanes of a layer took more than twice its
//                     peers' time and `slow_after`; half of this, once moving has helped
//
//            slow, and the worst of all            nothing is left
//   healthy ---------------------------> relieved -----------------> avoided, 30 s (doubles)
//      ^ ^                                 |  |  ^                            |
//      | |      it is slow no more, or     |  +--+ the moved lanes are fast,  |
//      | +--- moving has not helped: not --+       those that stayed are not: |
//      |      suspected for 30 s (doubles)         the next quarter           v
//      +----------------- three rounds like its peers -------------------- on trial
//
//   relieved   a quarter of its slow lanes is moved, at last also of the rest; what is left stays,
//              and it gets nothing new. It helped if most of the moved lanes, once they have
//              settled, take half of what they took and are slow no more; if they do not in three
//              rounds, it was not the worker: where they are now the others have too much, or the
//              other end is slow, or they are slow by themselves. Those lanes count for nobody of
//              this side for a minute (doubles, up to an hour), so that they are not moved around
//   avoided    it gets nothing; if its peers become slow meanwhile, they need it: on trial
//   on trial   it gets one operation in each round in which nothing it has had a time
//
// One worker is relieved at a time, the one with the most slow lanes first, and never more than
// half of a pool. A pause is doubled, up to 15 min, when it comes within ten times the last one.
//
// What it does not find: a worker that is slow only now and then; one that is less than
// `slow_after` slower; one whose lanes all count for nobody.
//
// A core: no clock, no I/O, one thread; deterministic. A round costs what lanes had times lately.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::scheduler {

struct SpeedOptions {
  Duration slow_after = Duration::Millis(200);  // 0: nobody is judged
  Duration settles = Duration::Seconds(2);
  Duration remembered = Duration::Seconds(10);  // a peer's time
  Duration pause = Duration::Seconds(30);       // avoided, or not suspected
  Duration pause_max = Duration::Seconds(15 * 60);
  Duration hold = Duration::Seconds(60);  // a lane that it did not help to move
  Duration hold_max = Duration::Seconds(3600);
};

// "healthy", "relieved", "avoided", "on trial".
enum class SpeedState : uint8_t { kHealthy, kRelieved, kAvoided, kOnTrial };
std::string_view SpeedStateName(SpeedState state);

struct WorkerId {
  std::string cell;  // of a writer; empty: a reader of this cell
  std::string name;
  bool is_reader() const { return cell.empty(); }
  std::strong_ordering operator<=>(const WorkerId&) const = default;
};

// What is copied of a shard to a layer of a cell, file after file.
struct Lane {
  stream::ShardId shard;
  stream::Layer layer = stream::Layer::kPrimary;
  std::string cell;
  std::strong_ordering operator<=>(const Lane&) const = default;
};

// A time that doubles when it is needed again soon.
struct Backoff {
  MonotonicTime until;
  Duration length;

  void Begin(MonotonicTime now, Duration first, Duration most) {
    length = Remembered(now) ? std::min(length * 2, most) : first;
    until = now + length;
  }
  bool Remembered(MonotonicTime now) const { return now < until + length * 10; }
};

class WorkerSpeed {
 public:
  static constexpr Duration kRound = Duration::Seconds(2);

  using State = SpeedState;

  // `options` outlives it.
  explicit WorkerSpeed(const SpeedOptions& options) : options_(&options) {}

  // Something was timed since the last round, or is waited for: there should be another in time.
  bool pending() const { return pending_; }
  // The lane's ends take so long now; 0: had nothing to do lately.
  void OnTimes(MonotonicTime now, const Lane& lane, const std::string& reader,
               const std::string& writer, Duration read, Duration write);
  // A round is over. `there`: those who could be given work, and how many operations they have;
  // others are neither judged nor peers. Who is to be relieved of how many now.
  struct Relief {
    WorkerId worker;
    int operations = 0;
  };
  std::optional<Relief> OnRound(MonotonicTime now, const std::map<WorkerId, int>& there);
  // Of the lanes of the worker that is relieved: it is one of those that are slow, which go first.
  bool IsSlow(const Lane& lane) const { return slow_lanes_.contains(lane); }
  // It was moved, because of the last OnRound.
  void OnMoved(const Lane& lane);
  // It has left, or another process has its name.
  void Forget(const WorkerId& worker);

  State state(const WorkerId& worker) const;
  // On trial, and nothing that it has had a time in the last round.
  bool MayTryOneMore(const WorkerId& worker) const;
  struct Slow {
    WorkerId worker;
    State state = State::kAvoided;
    Duration took, peers;  // when it was found slow
    Duration remaining;    // that it is avoided, at most; else 0
  };
  // Those that are not healthy, by cell and name.
  std::vector<Slow> NotHealthy(MonotonicTime now) const;
  // Lanes and workers that it remembers.
  size_t size() const { return lanes_.size() + workers_.size(); }

 private:
  enum Side : uint8_t { kReader, kWriter };
  static constexpr int kSides = 2;
  static constexpr int kSlowRounds = 2, kFineRounds = 3;   // in a row, with times
  static constexpr int kBadRounds = 3, kSilentRounds = 5;  // after a move
  static constexpr Duration kLaneRemembered = Duration::Seconds(600);

  struct LaneState {
    std::string worker[kSides];
    MonotonicTime since;                   // they are its workers
    MonotonicTime timed;                   // last
    std::optional<Duration> took[kSides];  // in this round, the least
    Backoff hold[kSides];                  // counts for nobody of the side
  };
  // Those who are compared: of one pool, by what they do for the same layer of the same cell.
  struct Group {
    Side side = kReader;
    std::string cell;
    stream::Layer layer = stream::Layer::kPrimary;
    std::strong_ordering operator<=>(const Group&) const = default;
  };
  struct Median {
    Duration took;
    MonotonicTime at;
  };
  // What a round says of a worker.
  struct Verdict {
    int counted[stream::kLayers] = {0, 0}, slow[stream::kLayers] = {0, 0};  // lanes
    Duration took, peers, beyond = Duration::Micros(INT64_MIN);  // where it is furthest from them
    Group where;
    bool timed() const { return counted[0] + counted[1] > 0; }
    bool is_slow() const { return slow[0] * 2 > counted[0] || slow[1] * 2 > counted[1]; }
    // Of the lanes of a layer that are slow.
    double share() const;
  };
  struct Worker {
    State state = State::kHealthy;
    bool was_on_trial = false;  // before it was relieved
    int slow_rounds = 0, fine_rounds = 0;
    int crowded_rounds = 0;            // avoided: its peers are slow
    bool timed = false;                // in the last round
    std::map<Group, Duration> limits;  // in the last round, more than this was slow
    Backoff pause;
    Duration took, peers;  // when it was found slow
    Group where;
  };
  struct SlowLane {
    Duration took, limit;  // more than this is slow
  };
  struct Step {
    WorkerId worker;
    int operations = 0;   // that it had
    int slow_lanes = 0;   // the most of them that were slow
    int rounds = 0;       // since the move
    bool helped = false;  // the first one, at least
    struct Moved {
      Lane lane;
      std::string other_end;
      SlowLane before;
    };
    std::vector<Moved> moved;
  };

  WorkerId IdOf(const Group& group, const std::string& name) const {
    return {group.side == kReader ? std::string() : group.cell, name};
  }
  using There = std::map<WorkerId, int>;
  using Verdicts = std::map<WorkerId, Verdict>;
  // Healthy ones' times in a group, ascending.
  using Times = std::vector<std::pair<Duration, std::string>>;
  void TakeMedians(MonotonicTime now);
  Verdicts Compare(MonotonicTime now, const There& there);
  void NoteRound(MonotonicTime now, const Verdicts& verdicts);
  std::optional<Relief> GoOn(MonotonicTime now, const Verdicts& verdicts, const There& there);
  std::optional<Relief> Accuse(MonotonicTime now, const Verdicts& verdicts, const There& there);
  bool IsHealthy(const WorkerId& id) const { return state(id) == State::kHealthy; }
  // Half of the pool goes on, and somebody healthy is there.
  bool CanDoWithout(const WorkerId& id, const There& there) const;
  void NoteSlowLanes(MonotonicTime now, const WorkerId& id);
  Relief Move(MonotonicTime now);
  void EndStep(MonotonicTime now, State state);
  void ForgetOld(MonotonicTime now);

  const SpeedOptions* options_;
  std::map<Lane, LaneState> lanes_;
  std::map<Group, std::map<std::string, Median>> medians_;  // by worker
  std::map<Group, Duration> middle_;                        // of the healthy, in the last round
  std::map<WorkerId, Worker> workers_;
  std::optional<Step> step_;
  std::map<Lane, SlowLane> slow_lanes_;  // of its worker, in the last round
  bool pending_ = false;
};

}  // namespace tailcast::scheduler
