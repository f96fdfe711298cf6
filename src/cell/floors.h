// The retention floors of a cell's shards: below a shard's nothing is created here, and what is
// there is deleted (spec Retention). In a stream's source they are the whole tree's; there it is
// also kept what an operator has trimmed and is not carried out yet, for how long which cells have
// been waited for, and since when files are there.
//
// That is told by the running time of the cell's schedulers, one after the other: a clock that
// nobody can set. It stands while none of them runs, and each that ends takes with it what it had
// not written down.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/stream/names.h"

namespace tailcast::cell {

class Floors {
 public:
  // `durable` outlives it; of it `floors`.
  explicit Floors(v1::RegistrySnapshot* durable);
  Floors(const Floors&) = delete;
  Floors& operator=(const Floors&) = delete;

  // Sequence numbers; 1 if none was set. They only grow.
  int64_t Floor(const stream::ShardId& shard) const;
  // True if that is news, which is to be written.
  bool Raise(const stream::ShardId& shard, int64_t seq);
  // No file below is wanted; 1 if nobody asked.
  int64_t Trimmed(const stream::ShardId& shard) const;
  bool Trim(const stream::ShardId& shard, int64_t seq);

  // Null: not noted.
  const v1::HeldUp* HeldUp(const stream::ShardId& shard, const std::string& cell) const;
  // `time` 0: nobody waits for it. True if that is news.
  bool NoteHeldUp(const stream::ShardId& shard, const std::string& cell, int64_t done,
                  Duration time);

  // The running time that was written down last; NoteRan: true if that is news.
  Duration ran() const { return Duration::Micros(durable_->ran_us()); }
  bool NoteRan(Duration ran);
  // When the file was there already; nullopt: not noted.
  std::optional<Duration> SeenBy(const stream::ShardId& shard, int64_t seq) const;
  // The last file that was noted, 0 if none, and when it was seen.
  std::pair<int64_t, Duration> LastSeen(const stream::ShardId& shard) const;
  // `seq`, the newest file, was seen at `ran`. All that was seen before `old` is old: when,
  // exactly, is forgotten. Of more than kSeenMax notes every other one is: SeenBy then names a
  // later time.
  void NoteSeen(const stream::ShardId& shard, int64_t seq, Duration ran, Duration old);
  static constexpr int kSeenMax = 8;

  void Forget(const stream::StreamId& stream);
  // Shards with any of these.
  const std::map<stream::ShardId, v1::ShardFloor*>& all() const { return floors_; }

 private:
  v1::ShardFloor& Get(const stream::ShardId& shard);

  v1::RegistrySnapshot* const durable_;
  std::map<stream::ShardId, v1::ShardFloor*> floors_;  // of durable_
};

// InvalidArgument: a field is negative, or says nothing without another one.
Status CheckRetention(const v1::Retention& retention);

}  // namespace tailcast::cell
