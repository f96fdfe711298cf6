// Retention of the streams whose source is this cell: which message files are wanted away, whose
// word has to come first, and who waits for nothing any more (spec Retention).
//
//   age, size, trim ──▶ wanted away ──▶ all members have them ──▶ the floor is raised, durably
//                            │                                        │
//                            │ one lacks them: they stay              ▼
//                            │  "block": the producer waits       every cell is told, until it
//                            ▼                                    has recorded it: files go
//        "drop", or away for too long: durably left out, with the same write that raises the floor
//                            │
//                            └──▶ it answers, is told the floor, and gets on, or has nothing to
//                                 do: a member again. Who answered all the time has to get on: that
//                                 the floor gave it all closed files says nothing
//
// Members are the cells of the copy tree that are not left out. What is not known of a member
// counts as lacking. The newest file of a shard always stays.
//
// Age is counted from when a scheduler of this cell first saw the next file, which is not before
// the last message of this one, by the running time of the cell's schedulers (cell/floors.h): no
// wall clock says that a file is old, neither the one that stamps names nor this host's. So a
// message is kept for at least as long as the stream says. A file is kept for longer by the time
// in which no scheduler ran, and by what each one had not written down when it ended: at most ten
// minutes, and about half of its life.
//
// A core: no I/O, one thread; deterministic. Clocks only say when something is wanted, never
// whether it may be done.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/cell/floors.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

struct RetentionOptions {
  std::string cell;  // this one
  // DoWork comes at least so often; longer pauses are this process' own stalls, and count as one.
  Duration tick = Duration::Seconds(1);
  // A member that lacks what is wanted away is asked again; one that is left out, whether it is
  // back.
  Duration ask_again = Duration::Seconds(1);
  Duration probe = Duration::Seconds(5);
  // Who has recorded a floor is asked all the same, so seldom: its disk may be another one now.
  Duration refresh = Duration::Seconds(60);
  // How long a cell may be silent to what it is asked before `drop` takes it for one that lacks
  // everything: the producer waits meanwhile. An answer may take a write of its registry and a
  // second of looking at its disk.
  Duration drop_after = Duration::Seconds(2);
  int asks_max = 256;  // in one call
};

// A cell that is waited for: to be written down, so that the next scheduler goes on counting.
struct RetentionNote {
  stream::ShardId shard;
  std::string cell;
  int64_t done = 0;
  Duration held_up;  // 0: it is not waited for any more
};

// When the shard's newest file was first seen, in running time; likewise to be written down.
struct RetentionSeen {
  stream::ShardId shard;
  int64_t seq = 0;
  Duration ran;
  Duration old;  // what was seen before may go
};

// In the order in which they are to be carried out. All but `list` goes in one write.
struct RetentionEffects {
  std::vector<std::pair<stream::ShardId, int64_t>> raise;
  std::vector<std::pair<stream::StreamId, std::string>> leave_out, take_in;
  std::vector<RetentionNote> note;
  std::vector<RetentionSeen> seen;
  std::optional<Duration> ran;     // to be written down
  std::set<stream::ShardId> list;  // whose folder is to be listed: OnFiles
  bool empty() const {
    return raise.empty() && leave_out.empty() && take_in.empty() && note.empty() && seen.empty() &&
           !ran;
  }
};

// What a cell is told, and asked, of a shard.
struct CollectAsk {
  stream::ShardId shard;
  int64_t floor = 1;
};
// A sequence number each; v1::CollectedShard.
struct CollectAnswer {
  int64_t floor = 0;
  int64_t done = 0;
};

// For people: a cell that lacks a file which is wanted away.
struct RetentionHeld {
  stream::ShardId shard;
  std::string cell;
  int64_t lacking = 0;  // first file; 0: it has not answered
  Duration since;
};

class RetentionCore {
 public:
  // `floors` outlives it: what is durable, and what is being written. When it is made, all of it is
  // durable.
  RetentionCore(RetentionOptions options, const cell::Floors& floors);
  RetentionCore(const RetentionCore&) = delete;
  RetentionCore& operator=(const RetentionCore&) = delete;

  // The streams that there are now; those of other sources are left alone.
  void OnStreams(const google::protobuf::RepeatedPtrField<v1::StreamConfig>& configs);
  void OnStreamRemoved(const stream::StreamId& stream);
  // Message files that are there: all of the shard (`all`), or one that was opened. True if that is
  // news.
  bool OnFiles(const stream::ShardId& shard, const std::vector<stream::Stem>& stems, bool all);
  // The shard's floor is durable.
  void OnRaised(const stream::ShardId& shard, int64_t floor);

  // What is due to be said to a cell; one call at a time, which one of the two below ends. Empty:
  // nothing.
  std::vector<CollectAsk> TakeAsks(MonotonicTime now, const std::string& cell);
  void OnAnswer(const std::string& cell, const std::vector<CollectAsk>& asks,
                const std::vector<CollectAnswer>& answers);
  void OnSilence(const std::string& cell, const std::vector<CollectAsk>& asks);

  void DoWork(MonotonicTime now, RetentionEffects& out);
  // When a silence will be long enough to decide something, though nothing happens until then;
  // Max(): none. Of the last DoWork.
  MonotonicTime due() const { return due_; }

  // No stream is looked after.
  bool empty() const { return streams_.empty(); }
  std::vector<RetentionHeld> Held() const;

 private:
  // A cell of the tree, for one shard.
  struct Cell {
    int64_t done = 0;     // it has all before; 0: not known
    int64_t told = 0;     // the floor that it has recorded
    MonotonicTime asked;  // last; not again before `ask_again` later
    bool ever_asked = false;
    bool asking = false;   // the call is under way
    bool untold = false;   // it does not know the tree yet
    int silences = 0;      // in a row; also who answers that it does not know the stream
    int unseen = 0;        // answers in a row that it could not look what it has
    Duration held_up;      // retention, without getting on
    Duration noted;        // of that, what is written down
    int64_t held_at = -1;  // `done`, then
    // Of one that is left out.
    int64_t out_at = 0;     // `done`, then or when it was first heard of since; 0: not known
    bool stuck = false;     // it answered then, as this scheduler knows
    bool got_on = false;    // has a file more since then, of those that are kept
    bool all_done = false;  // has all closed files
  };
  struct File {
    stream::Stem stem;
    Duration seen;  // running time
  };
  struct Shard {
    std::map<int64_t, File> files;  // from the floor on
    std::vector<int64_t> fresh;     // of them: since the last work, `seen` is to come
    bool listed = false;
    int64_t durable_floor = 1;
    int64_t wanted = 1;  // files below are wanted away
    // The oldest file that is kept is wanted away by size, since then; 0: it is not.
    int64_t size_wants = 0;
    MonotonicTime size_wants_since;
    std::map<std::string, Cell> cells;  // of the tree
  };
  struct Stream {
    v1::Retention retention;
    std::set<std::string> left_out;
    std::vector<Shard> shards;
  };

  static bool LooksAfter(const v1::StreamConfig& config);
  void OnStream(const v1::StreamConfig& config);
  Stream* Find(const stream::StreamId& stream);
  Shard* Find(const stream::ShardId& shard);
  void FindWanted(const stream::ShardId& id, const v1::Retention& retention, MonotonicTime now,
                  Shard& shard) const;
  // Writes down seldom for how long schedulers have run, and since when files are there.
  void NoteAges(RetentionEffects& out);
  // What was written down before this scheduler.
  Cell Remembered(const stream::ShardId& shard, const std::string& cell) const;
  static bool HoldsUp(const Shard& shard, const Cell& cell);
  static void Count(const Shard& shard, Duration passed, Cell& cell);
  // Writes down seldom for how long cells have been waited for, all of a stream at once.
  static void Note(const stream::StreamId& id, Stream& stream, RetentionEffects& out);
  bool LacksForDrop(MonotonicTime now, const Shard& shard, const std::string& name,
                    const Cell& cell);
  void LookAt(const stream::StreamId& id, Stream& stream, MonotonicTime now, Duration passed,
              RetentionEffects& out);
  bool IsDue(MonotonicTime now, const Stream& stream, const Shard& shard, const std::string& name,
             const Cell& cell) const;

  // One that is left out: it gets on with each shard in which there is something to do for it.
  static bool IsBack(const Stream& stream, const std::string& name);
  int64_t FloorWithout(const Shard& shard, const std::set<std::string>& left_out) const;

  const RetentionOptions options_;
  const cell::Floors& floors_;
  std::map<stream::StreamId, Stream> streams_;
  std::map<std::string, stream::ShardId> asked_to_;  // by cell: where to go on asking
  struct Silence {
    MonotonicTime since;  // it was asked, and has not answered
    MonotonicTime asked;  // last
  };
  std::map<std::string, Silence> silent_;  // by cell
  MonotonicTime due_ = MonotonicTime::Max();
  std::optional<MonotonicTime> worked_;  // last
  const Duration ran_before_;            // of earlier schedulers
  Duration ran_;                         // with this one
  Duration note_ages_at_;                // running time
};

}  // namespace tailcast::scheduler
