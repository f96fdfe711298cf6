// How a producer comes to own the next message file of a shard: the protocol of names, pairs and
// fences (paper §2.1; docs/formats/names.md; spec RollOver). One step at a time:
//
//   list the folder
//   is a predecessor alive?   its metadata's as-of time moves twice while we watch -> refused
//   half a pair at the head?  create its index file for whoever began it (helping)
//   fence the head            index first: from then on its seal can't move; then data
//   seal                      the last whole valid index record: where it ends
//   room?                     no file is opened while those before the head are more than the shard
//                             may keep (file_limits.h; spec Retention)
//   create n+1                data file, then index file: that is the commit of the pair
//   look at the floor         whoever slept until n+1 was deleted again has made another n+1
//   lost a race anywhere?     again from the top, until nothing newer exists
//   the primary layer fails?  again from the top, when the owner says so (retry_core.h)
//
// Why a shard can't fork: creation is exclusive on the sequence number; who creates n+1 knows the
// final length of n, because it fenced n or was its only writer and stopped; and nobody appends to
// a file that it did not create. So every name that is ever created for n+1 begins at the same
// byte.
//
// A core: no clock, no I/O. Each effect is answered by the call of the same name, in a later turn;
// exactly one is outstanding.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/producer/append_core.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::producer {

struct OpenOptions {
  bool takeover = false;
  // A predecessor whose as-of time did not move for this long is dead; looked at `observe_steps`
  // times. Two heartbeats have to fit.
  Duration observe = Duration::Millis(2500);
  int observe_steps = 10;
  // Races that may be lost before the opener gives up.
  int races_max = 32;
  // Files say in their name how large their chunks are: as SetChunkSize says, else as large as
  // those of the file before, else this, in bytes. 0: they say nothing.
  int64_t chunk_size = 0;
};

struct OpenEffect {
  enum class Kind : uint8_t {
    kList,          // -> OnListed
    kReadMetadata,  // the metadata of `stem.seq` and of the next one -> OnMetadata,
                    // OnPartialMetadata
    kWait,          // `wait` -> OnWaited
    kFailing,       // the primary layer failed with `status`; when to try again -> OnWaited
    kFull,          // no room, as `status` says; look again after `wait` -> OnWaited
    kFence,         // open `stem`'s `part` for append -> OnFenced; the handle is dropped
    kReadIndex,     // [from, to) of the index of `stem`, from the primary layer -> OnIndexRead
    kCreate,        // `stem`'s `part`, exclusively -> OnCreated; keep the handle if it is ours
    kOpened,        // the end: append to `stem`, whose two handles were created
    kFailed,        // the end: `status`, which is about the shard, not the primary layer
  };
  Kind kind = Kind::kList;
  stream::Stem stem;
  stream::Part part = stream::Part::kData;
  bool helping = false;  // kCreate for another's half pair: drop the handle
  int64_t from = 0;
  int64_t to = 0;
  Duration wait;
  Status status;
};

// A closed file before the one that was opened, newest first: its seal is to be published, and what
// its producer had not shadowed to be shadowed.
struct Predecessor {
  stream::Stem stem;
  stream::Seal seal;
};

class OpenCore {
 public:
  OpenCore(stream::ShardId shard, OpenOptions options, uint64_t seed);

  // Opens the shard for a producer that has no file yet.
  OpenEffect Start();
  // Opens the file after `current`, which this producer owned, drained and ends at `seal`. No
  // liveness check; somebody else's newer file means that the shard was taken over.
  OpenEffect StartRoll(const stream::Stem& current, const stream::Seal& seal, int64_t last_time_us,
                       WallTime now);
  // Opens the file after `current`, which this producer owned and whose end it does not know, after
  // an error of the primary layer.
  OpenEffect StartRecovery(const stream::Stem& current);

  // Closed files that the shard may keep, in bytes of data and index; 0: any number.
  void SetBytesMax(int64_t bytes) { bytes_max_ = bytes; }

  // Of the files that are created from now on. Needs OpenOptions::chunk_size.
  void SetChunkSize(int64_t bytes) { chunk_size_ = bytes; }

  OpenEffect OnListed(Result<std::vector<storage::DirEntry>> entries, WallTime now);
  OpenEffect OnMetadata(Result<std::vector<stream::PairMetadata>> metadata);
  // The metadata could be read only in part (cache::ValueAnswer), so that nothing it lacks is known
  // to be lacking: it is read again, for kCachesMax at most.
  OpenEffect OnPartialMetadata();
  static constexpr Duration kCachesMax = Duration::Seconds(10);
  OpenEffect OnWaited();
  OpenEffect OnFenced(Result<int64_t> committed_length, WallTime now);
  OpenEffect OnIndexRead(Result<std::string> bytes, WallTime now);
  OpenEffect OnCreated(const Status& status);

  // After kOpened.
  const std::vector<Predecessor>& predecessors() const { return predecessors_; }
  // Producer time of the newest message before the file that was opened; new ones are not earlier.
  int64_t last_time_us() const { return last_time_us_; }
  int races() const { return races_; }  // lost since the start

  // The end of a file from its index: the last record in `bytes`, which are not empty and the
  // index's bytes from `at` (where a record begins) to its committed end. DataLoss: that is no
  // valid record, or ends beyond `data_length`. As a record is appended after the flush of its
  // message was acknowledged, the primary layer has then lost what it acknowledged.
  struct IndexEnd {
    stream::Seal seal;
    int64_t last_time_us = 0;
  };
  static Result<IndexEnd> EndOfIndex(std::string_view bytes, int64_t at, int64_t data_length);

 private:
  enum class Step : uint8_t {
    kIdle,
    kListing,
    kReadingMetadata,
    kObserving,
    kHelping,
    kFencingIndex,
    kFencingData,
    kReadingIndex,
    kWeighing,
    kFull,
    kCreatingData,
    kCreatingIndex,
    kLookingAtFloor,
    kFailing,
  };
  OpenEffect List();
  OpenEffect Again();  // lost a race
  OpenEffect Failing(Status status);
  OpenEffect FenceHead();
  OpenEffect Fence(stream::Part part);
  OpenEffect ReadEndOfIndex();
  OpenEffect Sealed(const stream::Seal& seal, int64_t last_time_us, WallTime now);
  OpenEffect Weigh(const stream::ShardListing& listing, WallTime now);
  OpenEffect Name(WallTime now);
  OpenEffect Create(stream::Part part);
  OpenEffect Fail(Status status);

  const stream::ShardId shard_;
  const OpenOptions options_;
  Rng rng_;
  Step step_ = Step::kIdle;
  bool owner_ = false;  // roll or recovery: no liveness check
  int64_t own_seq_ = 0;
  std::set<stream::Stem> tried_;  // stems that we tried to create
  bool checked_ = false;          // the predecessor is dead, or we take over
  int64_t observed_seq_ = 0;
  int64_t observed_heartbeat_ = -1;
  int observations_ = 0;
  Duration waited_for_caches_;
  int moves_ = 0;  // of the heartbeat or the head, while we watched
  stream::ShardListing listing_;
  stream::Stem head_;
  bool have_head_ = false;
  int64_t index_length_ = 0;
  int64_t data_length_ = 0;
  int64_t read_from_ = 0;
  int64_t bytes_max_ = 0;
  Duration look_again_;  // for room
  int64_t chunk_size_ = 0;
  stream::Seal seal_;  // of the head
  stream::Stem next_;
  std::vector<Predecessor> predecessors_;
  int64_t last_time_us_ = 0;
  int races_ = 0;
};

}  // namespace tailcast::producer
