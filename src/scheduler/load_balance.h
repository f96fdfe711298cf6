// What an operation costs those who carry it out, and when loads differ so much that something is
// done about it. All the numbers of load balancing are here.
//
// The load of an operation, in bytes per second, is the same for its reader and its writer:
//
//     idle cost  +  rate  +  waiting / catch_up_s
//
//   idle cost  of one that moves nothing: its lengths are read, its stream is kept
//   rate       bytes that its reader sent, by windows of a second: the mean of the first eight, from
//              then on each new one counts for an eighth. Until something was measured: the last
//              known rate of its shard, else the mean of its stream's shards (copy_set.h)
//   waiting    bytes that its source has and its target lacks, as if they were to be moved within
//              catch_up_s: who does not keep up is busier than what he moves says. Bounded, or a link
//              that is down would make whoever stands before it the busiest of all.
//
// The load of a worker is the sum over the operations that are assigned to it. Copying to disks and
// copying to caches wear out different things, so who has as much as the others altogether, and all
// of it on one layer, is too busy still: before an operation is shed, workers are compared by
//
//     load for a layer  =  (all its operations + those of the layer) / 2
//
//   Whatever is shed changes this by its own load. It takes something off the sum, over all workers,
//   of the squares of what they have of each layer and altogether: so one layer's moves never undo
//   the other's for ever.
//
//   Who is busier?     One is clearly busier than another with a quarter more load and `slack` more.
//   Affinity           The next file of a shard goes to the same reader and writer, unless they are
//                      clearly busier than the least loaded: not counting what the file before costs
//                      them, which ends now.
//   Shedding           Of the most and the least loaded of a pool for a layer, when one is clearly
//                      busier: the operation of it that evens them best. With the gap g between
//                      them, moving the load l takes min(l, g - l) off the busier of the two. That
//                      has to be at least a quarter of l, so l is at most 4/5 g. The gap the other
//                      way is then 2l - g, at most 3/4 l: before the same operation can move back
//                      the gap must have grown by l/2.
//
// Cores: no clock, no I/O, one thread; whole numbers, so that every host decides alike.
#pragma once

#include <cstdint>
#include <optional>

#include "tailcast/base/time.h"

namespace tailcast::scheduler {

inline constexpr Duration kLoadWindow = Duration::Seconds(1);

struct BalanceOptions {
  int64_t idle_bytes_per_s = 16 << 10;
  int64_t windows = 8;  // of kLoadWindow
  int64_t catch_up_s = 10;
  int64_t waiting_max = 64 << 20;  // bytes
  int64_t busier_percent = 125;    // of the other's load
  int64_t slack = 1 << 20;         // bytes per second: less is not worth a move
  int64_t move_gain_percent = 25;  // of the load that is moved
};

// The load for a layer of who has so many bytes per second altogether, and of these on the layer.
inline int64_t LayerLoad(int64_t all, int64_t of_layer) { return (all + of_layer) / 2; }

// Loads in bytes per second.
bool ClearlyBusier(const BalanceOptions& options, int64_t load, int64_t other);
// By how much a move of `load` over a gap of `gap` unloads the busier of the two; 0: not by enough.
int64_t MoveGain(const BalanceOptions& options, int64_t load, int64_t gap);

// Measures one operation, over all its attempts.
class OperationLoad {
 public:
  // What is believed of an operation before anything was measured.
  struct Expected {
    std::optional<int64_t> rate;  // bytes per second
    int64_t waiting = 0;          // bytes
  };

  // Another attempt begins; what was measured before goes on.
  void Begin(const Expected& expected, const BalanceOptions& options);
  // An attempt that was begun by somebody else: what it sent until now is not counted.
  void Adopt() { sent_.reset(); }
  // `sent`: bytes, since the attempt began; `waiting`: bytes that its target lacks.
  void OnReport(int64_t sent, int64_t waiting);
  // So many windows have passed since the last call.
  void OnWindows(int64_t windows, const BalanceOptions& options);

  // Windows change nothing, until the next report.
  bool idle() const { return rate_ == 0 && in_window_ == 0; }
  // nullopt: nothing was measured or expected yet.
  std::optional<int64_t> rate() const;
  int64_t bytes_per_s(const BalanceOptions& options) const;

 private:
  int64_t rate_ = 0;             // bytes per second
  int64_t measured_ = 0;         // windows that count in it
  int64_t in_window_ = 0;        // bytes, in the window that is not over
  int64_t waiting_ = 0;          // bytes
  std::optional<int64_t> sent_;  // as last reported; nullopt: the next report begins
};

}  // namespace tailcast::scheduler
