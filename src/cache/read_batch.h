// A batch of reads: whom each key asks, and when, is ReadCore's decision (quorum_core.h); this asks
// them, hedges, and ends the batch when every item is finished or the deadline passes.
//
//   Add* ─ Start ─▶ running ──every item finished, or the deadline──▶ ended ─ a later turn ─▶ done
//
// Keys of overflowed buckets that turn up in one turn are asked for at its end, in one call to each
// replica; in several if they are more than an answer has room for.
//
// What comes after the end (answers of other replicas, hedges, asks that waited for a connection or
// a slot) is dropped with the scope of the asks: from then on the caller's chunks are not touched.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/joined_value.h"
#include "tailcast/cache/key_read.h"
#include "tailcast/cache/key_read_core.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/replica_set.h"
#include "tailcast/cache/ring.h"

namespace tailcast::cache {

class ReadBatch {
 public:
  // The context outlives it. `items_max`: how many will be added, before the replicas change.
  ReadBatch(ClientContext& context, ReplicaSet& replicas, size_t items_max);

  void AddChunk(ChunkRead* read, ReadMode mode);
  void AddValue(const Client::ValueRead& read);
  // `ended`: called once, on a later turn; the batch may be destroyed in it.
  void Start(Duration timeout, Task ended);

  // After the end. The join of each value's answers, or Unavailable.
  Result<Values> TakeValues();

 private:
  struct Item {
    Key key;
    MergeRule rule = MergeRule::kLongerWins;
    ReadMode mode = ReadMode::kConsistent;
    ChunkTarget target;  // without a chunk: a value
    JoinedValue value;   // if it is one
    ReadCore core;
    Owners owners;
    Mask reading = 0;  // by fabric reads that have not answered
    bool finished = false;

    ChunkRead* chunk() const { return target.chunk; }
  };

  // A key of an overflowed bucket, which only the replica's server can read.
  struct Overflowed {
    uint32_t index = 0;
    uint8_t replica = 0;
    KeyAnswer seen;  // what the bucket said
  };

  ReplicaLink& LinkOf(const Item& item, uint8_t replica) const {
    return *(*links_)[item.owners.replica[replica]];
  }
  void SetHedge();
  void Hedge();
  void OnDeadline();
  // Then nobody else is asked: OnDeadline, which is due, ends what is not finished.
  bool TimeIsOver() const { return context_.loop.Now() >= deadline_at_; }
  // Of a relaxed chunk read: sends it to a slow replica, too, if that is due.
  void Probe(const Item& item);
  void Ask(uint32_t index, Mask replicas);
  // `alone`: no other one is asked at the same time.
  void AskOne(uint32_t index, uint8_t replica, bool alone);
  void AskByRpc(uint32_t index, uint8_t replica, const KeyAnswer& seen);
  void SendOverflowed();
  void SendGet(ReplicaLink& link, std::vector<Overflowed> asks);
  // What counts a call to Get that brought nothing; Ok: its answer does not fit.
  OwnedCounter& CauseOfGet(const Status& status);
  void OnGetReply(const std::vector<Overflowed>& asks, const Result<std::string>& reply);
  // The replica knows that another ring is read than this client's.
  bool IsOutdated(const KeyAnswer& answer) const;
  // `value`: of a value item that was found.
  void OnAnswer(uint32_t index, uint8_t replica, const KeyAnswer& answer, std::string_view value);
  void FinishItem(Item& item);
  void Finish();

  ClientContext& context_;
  ReplicaSet& replicas_;
  const std::shared_ptr<const LinkTable> links_;  // that owners are indexes of
  const ConfigurationId configuration_;           // whose owners are asked
  const size_t together_;                         // chunks that are asked of the same replicas
  std::vector<Item> items_;
  size_t unfinished_ = 0;
  bool asking_ = false;  // in the middle of a loop over all items, which looks for the end itself
  std::vector<Overflowed> overflowed_;  // in this turn; asked for at its end
  Task ended_;
  Timer hedge_, deadline_;
  MonotonicTime deadline_at_;
  Duration hedge_after_;
  Scope asks_;
};

}  // namespace tailcast::cache
