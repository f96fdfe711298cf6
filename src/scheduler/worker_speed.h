// Which workers of a pool are much slower than the others (paper §5, "bad machines"): they are
// alive and get on, and everything that goes through them comes late. Of the readers of a cell, and
// of the writers of each cell that it copies to, there is one of these.
//
//   a worker's time   how long its part of an operation takes, as readers report it
//                     (v1::OperationReport.read_us, write_us), in each layer: the median of what was
//                     reported in a window of a second; of the last window that had any
//   its peers'        the median of the times of the others in the same layer that are not slow,
//                     from the last ten seconds; of two the lower one. Without any it is not judged:
//                     who alone copies to a layer keeps that, as a machine or its disk may be slow
//   slow              in three windows one after the other more than twice its peers' time and
//                     `slow_after`: what all of them take (the way there, a disk that they share)
//                     is nobody's fault. Never more than half of the pool, the slowest first
//   then              it is avoided for 30 s, for twice as long each time that it is found slow
//                     again soon, up to 15 min
//   on trial          for as long again it gets one operation at a time, or until its time was like
//                     its peers' in three windows
//
//   3 windows slow        30 s             <= 30 s, one operation        3 windows slow
//   healthy ------------> slow -----------------> on trial ------------> slow, 60 s
//      ^                                              |
//      +---------- 3 windows like its peers ----------+
//
// What it does not see, for which nobody is avoided unless a topology asks for it
// (`slow_after_ms`): whether the others can bear what they are given, so that a pool with little
// room to spare may hand its work to and fro; and that a reader that is slow to send makes the
// writers' times long.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/stream/operation.h"

namespace tailcast::scheduler {

struct SpeedOptions {
  Duration slow_after = Duration::Millis(200);  // 0: nobody is judged
  int windows = 3;                              // in a row, until it is judged
  Duration remembered = Duration::Seconds(10);
  Duration avoid = Duration::Seconds(30);
  Duration avoid_max = Duration::Seconds(15 * 60);
};

class WorkerSpeed {
 public:
  static constexpr Duration kWindow = Duration::Seconds(1);

  enum class State : uint8_t { kHealthy, kSlow, kOnTrial };

  // `options` outlives it.
  explicit WorkerSpeed(const SpeedOptions& options) : options_(&options) {}

  // Its part of an operation takes so long. Of a worker that is slow nothing is taken.
  void OnTime(MonotonicTime now, const std::string& worker, stream::Layer layer, Duration took);
  // A window is over. `there`: those who could be given work; others are neither judged nor peers.
  void OnWindow(MonotonicTime now, const std::set<std::string>& there);
  // Another process has its name.
  void Forget(const std::string& worker) { workers_.erase(worker); }

  State state(MonotonicTime now, const std::string& worker) const;
  struct Slow {
    std::string worker;
    State state = State::kSlow;
    Duration took, peers;  // when it was found slow
    Duration remaining;    // of this state, at most
  };
  // Those that are not healthy, by name.
  std::vector<Slow> NotHealthy(MonotonicTime now) const;

 private:
  static constexpr size_t kTimesMax = 256;  // of a window
  struct Times {
    std::vector<Duration> now;  // of the window that is not over
    Duration median;            // of the last one that had any
    MonotonicTime at;           // when that was over
    bool known = false;
  };
  struct Worker {
    Times times[stream::kLayers];
    int slow_windows = 0, like_peers = 0;  // in a row
    Duration took, peers;                  // as compared last, where it is furthest from its peers
    MonotonicTime slow_until, trial_until;
    Duration avoided;  // for so long, the last time
  };

  // False: there is nobody to compare it with.
  bool Judge(MonotonicTime now, const std::string& name, Worker& worker,
             const std::set<std::string>& there) const;
  void Avoid(MonotonicTime now, Worker& worker) const;

  const SpeedOptions* options_;
  std::map<std::string, Worker> workers_;
};

}  // namespace tailcast::scheduler
