// How one edge of a copy tree that begins in this cell comes and goes (paper §2.3; spec Reroute):
// its steps of copytree::Diff, and its wait-caught-up shard by shard.
//
//             may begin, may not              all shards caught up; settled
//    waiting <-------------------> joining -------------------------------> made
//     |   |                           |                                     ^  |
//     |   +---------------------------)---------- settled ------------------+  |
//     |                               |                                        |   remove-edge
//     +-------------------------------+----------------------------------------+------------> leaving
//
//   waiting   add-edge: what it comes after has not ended; nothing is copied. It may be removed
//             before it began: the tree that wanted it was replaced
//   joining   add-edge was taken; wait-caught-up has not ended
//   made      all files go over it
//   leaving   remove-edge: goes on until its target is settled, but for what the joining edge of
//             another cell took over
//
// One shard of a joining edge:
//
//   behind ------- the source has what the target has, or nearly: look ------> taken over
//   taken over --- the target has nothing that the source lacks, looked at
//                  after nobody else could append to the newest file --------> caught up
//
// From "taken over" on the primary files are copied, which fences the old edge, whose cache copies
// go on; from "caught up" on the cache, too. When all shards have caught up the edge is made. An
// edge that was on its way out and is wanted again is a new object: it has to look anew at
// everything.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/stream/operation.h"

namespace tailcast::scheduler {

enum class EdgeState : uint8_t { kWaiting, kJoining, kMade, kLeaving };
std::string_view EdgeStateName(EdgeState state);  // "waiting", ..., "leaving"

// How far a joining edge is with a shard.
enum class Stage : uint8_t { kBehind, kTakenOver, kCaughtUp };

struct EdgeOptions {
  // A joining edge takes a shard over when its source is at most so many bytes behind the target,
  // or has what the target had at most so long ago (a path may be longer than the old one).
  int64_t caught_up_bytes = 256 << 10;
  Duration caught_up_time = Duration::Seconds(1);
  // Between questions to the target what it has of a shard.
  Duration progress_interval = Duration::Millis(200);
};

// What the stream's configuration says of an edge.
struct EdgePlan {
  EdgeState state = EdgeState::kMade;
  bool newcomer = false;  // nobody else feeds the target
};

// What both ends have of a shard, in bytes of the stream.
struct Look {
  MonotonicTime at;
  int64_t source = 0, target = 0;
};

class EdgeChange {
 public:
  // `options` outlives it.
  EdgeChange(const EdgeOptions& options, EdgePlan plan, int32_t shards);

  EdgeState state() const { return state_; }
  // Waiting or joining.
  bool comes() const { return state_ == EdgeState::kWaiting || state_ == EdgeState::kJoining; }
  Stage stage(int32_t shard) const { return shards_.at(shard).stage; }
  // The edge comes, and operations of this layer have to wait for it to get so far.
  bool Waits(int32_t shard, stream::Layer layer) const;

  // The configuration says that it may begin, or that it may not (yet, or any more). True: add-edge
  // is taken.
  bool MayBegin(bool may);
  void Leave();
  // The target is settled, or the change over. Returns the shards that had not caught up.
  std::vector<int32_t> Settle();
  // The answer to a question about a shard of a joining edge. `newest` is the shard's newest file
  // now, 0 if there is none. True: it is a stage further; the edge is made if it was the last one.
  bool OnLook(int32_t shard, const Look& look, int64_t newest);

  // Whether to ask the target now. `newest` as above; `fenced`: nobody else can append to it.
  bool Ask(MonotonicTime now, int32_t shard, int64_t newest, bool fenced);
  // Asked, and not answered.
  bool asking(int32_t shard) const { return shards_.at(shard).asking; }
  // When the target may be asked again.
  MonotonicTime ask_at(int32_t shard) const { return shards_.at(shard).ask_at; }
  // Answered, or failed.
  void OnAnswer(MonotonicTime now, int32_t shard);

  // Leaving: another edge has taken this layer of the shard over.
  void Retire(int32_t shard, stream::Layer layer);
  bool Retired(int32_t shard, stream::Layer layer) const;

  // Who copies the newest file; the next one goes to them, too.
  struct LastWorkers {
    std::string reader, writer;
    bool keep = false;  // the next time, whoever of them may be
  };
  LastWorkers& last_workers(int32_t shard, stream::Layer layer) {
    return shards_.at(shard).last_workers[static_cast<int>(layer)];
  }

 private:
  struct Shard {
    bool retired[stream::kLayers] = {false, false};
    Stage stage = Stage::kBehind;
    std::vector<Look> looks;  // of the last caught_up_time
    bool asking = false;
    int64_t asked_newest = 0;   // when the question that is out was asked ...
    bool asked_fenced = false;  // ... and whether nobody else could append to it then
    MonotonicTime ask_at;
    LastWorkers last_workers[stream::kLayers];
  };

  void SetState(EdgeState state);

  const EdgeOptions& options_;
  EdgeState state_;
  const bool newcomer_;
  std::vector<Shard> shards_;
};

}  // namespace tailcast::scheduler
