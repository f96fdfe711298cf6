// What a consumer knows of the lengths of one message file, and when it asks whom for more: the
// metadata cache (by polls, or when its doorbell notifies), the primary layer's files themselves,
// and the listing of the shard's folder. Paper §2.4 Consumers, §3.
//
//          OnMetadata     OnPrimaryLength     OnListing
//               │                │                │
//               ▼                ▼                ▼
//    lengths of cache and primary, seal, next file ──▶ how far each layer may be read
//               │
//               ▼
//    DoWork(now): what to ask for now         NextWork(): when to look again
//
// The poll of the metadata cache, and the doorbell beside it (only with AgentOptions::doorbell):
//
//            due                  due                               metadata read
//    idle ────────▶ under way ────────▶ again          off ◀──────┬─────────────▶ wanted ◀─┐
//      ▲                │                │              ▲         │                 │ DoWork │ metadata
//      └──── answer ────┴──── answer ────┘              └── notifies or refuses ◀── set ──▶ half
//                                                       └──────── notifies ◀──────────────┘
//
// While the doorbell is set no poll is timed: a poll that is due waits for other work, at the
// latest for the doorbell's time-out. It is half set while nobody can watch one of its values, and
// then lengths are polled beside it. With a pause (SetPause) answers with news are followed by a
// poll after it, and the doorbell is wanted when there is none. It is never wanted of a closed file
// that both layers have whole while the next one is known: who reads it is behind, and the same
// value (stream/metadata.h) changes with each flush of the file that is written now. Such a file is
// polled every `primary_poll`, for the heartbeat.
//
// With a pause, and where answers take a round trip, a round of reading ahead (ahead_core.h) takes
// the place of the poll that follows news of bytes: the cache's SourceLengths::perhaps allow it.
// Lengths are read beside it every kLengthsInterval, or with every fourth round if that is later,
// and at once when nothing came, or less than half of what usually comes in the time: the file may
// have ended, and the next one have begun. Most files of a shard are closed when they have so many
// bytes, so lengths are read beside the round in which this one may come to have as many as the one
// before (but for its first). Without the doorbell what is answered last, the lengths or the round,
// says when to go on. Bytes that are known to be in the cache are asked for together with what the
// round asks for; a round ends when only known ones are (OnKnownAsked): a whole window of them, as
// many as the rate allows, or the primary layer's.
//
// Invariants: lengths, once known, do not fall and never pass the seal. What may be read of the
// primary layer is what Algorithm 1 (delayed_read_core.h) allows, or everything while nobody knows
// what the cache has.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/consumer/agent_options.h"
#include "tailcast/consumer/ahead_core.h"
#include "tailcast/consumer/counters.h"
#include "tailcast/consumer/delayed_read_core.h"
#include "tailcast/consumer/heartbeat_age.h"
#include "tailcast/consumer/source.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::consumer {

class LengthsCore {
 public:
  // What is to be done now. Each is answered by the On... of its name.
  struct Work {
    bool watch = false;          // set the doorbell on the pair's metadata and the next one's, on
                                 // what is not watched yet of them
    bool read_metadata = false;  // of the pair and of the next one
    // One replica's answer will do for that: on a machine that is full, while bytes come. What
    // another one has besides is seen the next time; once it says of none, two are asked again.
    bool relaxed = false;
    bool ask_primary = false;  // the length of both parts
    bool list = false;         // the shard's folder
  };
  // What a listing says of the file after this one.
  enum class NextFile : uint8_t {
    kFound,
    kNotYet,
    kHole,    // a later one is there: the next one is to come, and waited for
    kDeleted  // it, or what this one may still have to give, is not kept any more
  };

  // `known` is what is known of the pair already. `heartbeats` are the shard's, of files before
  // this one as well. The references outlive this.
  LengthsCore(const AgentOptions& options, Counters& counters, HeartbeatAge& heartbeats,
              const stream::Stem& stem, const stream::PairMetadata& known, MonotonicTime now);

  // While bytes are read ahead lengths are read so often, and after so many pauses at the earliest.
  static constexpr Duration kLengthsInterval = Duration::Millis(100);
  static constexpr int64_t kLengthsPauses = 4;

  // The reader comes from the file before, whose lengths spoke of this one as well: if it is
  // written now, reading goes on as it did there, with a round at once if it has bytes.
  void Follow(MonotonicTime now, const LengthsCore& before);

  // --- What came in
  // An answer of the metadata cache; a PairMetadata that is not known() is one that it has not.
  // `complete`: as cache::ValueAnswer's, of both.
  void OnMetadata(MonotonicTime now, const stream::PairMetadata& pair,
                  const stream::PairMetadata& next, bool complete);
  void OnMetadataFailed(MonotonicTime now);
  // From now on lengths are read so long after each other, as long as they bring news.
  void SetPause(Duration pause) { pause_ = pause; }
  // Whether what the caches are asked is answered a round trip later.
  void SetRoundTrips(bool round_trips) { round_trips_ = round_trips; }
  // The round in which bytes are read ahead now, or were last.
  int64_t ahead_round() const { return ahead_.round(); }
  // What was read ahead of the part: AheadCore::OnAnswer.
  void OnAhead(MonotonicTime now, int64_t round, stream::Part part, int64_t end, bool more,
               bool ready);
  // Bytes that are known of are asked for, and nothing else. They take the place of the round, if
  // there is one: who is behind would ask for lengths, for these bytes and for what comes next,
  // each in a round trip of its own, where one of the three will do.
  void OnKnownAsked(MonotonicTime now);
  // The doorbell that was set: true if it watched and notifies, false if nobody can watch.
  void OnDoorbell(MonotonicTime now, bool watched);
  // Nobody can watch one of the values, another one is watched still.
  void OnDoorbellHalf(MonotonicTime now);
  // True if the length is news.
  bool OnPrimaryLength(stream::Part part, int64_t length);
  // The primary layer can't tell the length of the part.
  void OnPrimaryFailed(stream::Part part, const Status& status);
  NextFile OnListing(const stream::ShardListing& listing);
  void OnListingFailed() { listing_ = false; }
  // A file behind this one is in the cell, the first that is: what this one holds is settled.
  void OnLater(const stream::Stem& later);
  // The primary layer has no such file of the pair: it is not here yet, or not any more. The
  // listing says which, and is asked until bytes arrive.
  void OnAbsent(stream::Part part) {
    primary_[static_cast<int>(part)].answer = PrimaryAnswer::kAbsent;
  }
  // Bytes of the file arrived. What was heard before says nothing of what comes after them.
  void OnProgress(MonotonicTime now) {
    last_progress_ = now;
    for (Primary& part : primary_) part = {};
    listed_ = false;
    beats_ = 0;
  }
  // Everything of this file was given; the next one is looked for until it is there.
  void WaitForNext(bool waiting) { waiting_for_next_ = waiting; }

  // --- What follows
  // Everything that is due now.
  Work DoWork(MonotonicTime now);
  // When DoWork has something to do next, whatever comes in. Not after now: at once.
  MonotonicTime NextWork() const;

  const stream::Stem& stem() const { return stem_; }
  // Of the file if known, else the options'.
  int64_t chunk_size() const { return chunk_size_; }
  const std::optional<stream::Seal>& seal() const { return seal_; }
  std::optional<stream::Stem> next() const;
  // The first one behind that which the listing had when it had the next one: FilePlace::later of
  // it.
  const std::optional<stream::Stem>& later() const { return later_listed_; }
  // Of the next pair, not known() if nobody said anything.
  const stream::PairMetadata& next_metadata() const { return next_metadata_; }
  // The metadata cache's last answer knew the pair.
  bool metadata_known() const { return knowledge_ == Knowledge::kKnown; }
  // Field-wise maximum of all that was seen.
  const stream::PairMetadata& metadata() const { return metadata_; }
  // Bytes that are known to be in either layer.
  int64_t known_end(stream::Part part) const {
    return std::max(CacheLimit(part), PrimaryLimit(part));
  }
  // What is known to have been written, and is not here: Unavailable says what. Ok: nothing is
  // missed, as far as is known. A copy that is on its way is missed, too, for a while. DataLoss:
  // acknowledged bytes are lost here, the file's own records say, and no cache knows how many there
  // were.
  Status Missing() const;
  // Whether somebody who knows was asked since the last bytes came, so that what is known and not
  // missed is all there is: the producer's side, which is seen to write to the cache, or the
  // primary layer's files and their listing.
  bool EndIsKnown() const;
  SourceLengths cache(stream::Part part) const;
  SourceLengths primary(stream::Part part) const;
  bool waiting_for_next() const { return waiting_for_next_; }
  // When the producer's side last said that everything it knew of was published; 0: not known.
  WallTime as_of() const;
  // For people.
  std::string DebugString() const;
  // Nothing new, and no sign of life was seen for `stuck_after`: the path from the producer is cut.
  bool Stuck(MonotonicTime now) const;

 private:
  // Of what the metadata cache has.
  enum class Knowledge : uint8_t { kNotAsked, kUnknown, kKnown };
  enum class Poll : uint8_t { kIdle, kUnderWay, kAgain };
  enum class Doorbell : uint8_t { kOff, kWanted, kSet, kHalf };
  // What the primary layer answered last of a part of the pair, since bytes came. That it can't
  // tell is no answer.
  //
  //              OnAbsent          OnPrimaryLength        OnPrimaryFailed, DataLoss
  //   not asked ──────────▶ absent ◀─────────────▶ known ◀────────────────────────▶ damaged
  //      ▲                                                  (each from each of them)
  //      └── OnProgress, from all
  enum class PrimaryAnswer : uint8_t { kNotAsked, kAbsent, kDamaged, kKnown };
  struct Primary {
    PrimaryAnswer answer = PrimaryAnswer::kNotAsked;
    Status damage;  // the last one, whatever it answered after it; Ok: there was none
  };
  // The producer's side is there: its heartbeat was seen to move so often since bytes came, from
  // one complete answer to the next. In a cache that nobody writes to it may move once, when
  // another two replicas answer: of three values that stay, the second or the third is the greatest
  // of any two. Of partial answers, which one replica alone may give, it may move twice.
  static constexpr int kBeatsOfLife = 2;

  int64_t Sealed(int64_t length, stream::Part part) const;
  int64_t CacheLimit(stream::Part part) const;
  int64_t CacheBytes() const { return metadata_.cache_length[0] + metadata_.cache_length[1]; }
  // Bytes of both parts that are known to be in the cache.
  int64_t Reached() const {
    return CacheLimit(stream::Part::kData) + CacheLimit(stream::Part::kIndex);
  }
  int64_t PrimaryLimit(stream::Part part) const;
  bool chunk_size_known() const { return metadata_.chunk_size > 0; }
  void EndPoll(MonotonicTime now);
  // A round of reading ahead begins. Whether it may come to the file's end.
  bool EndIsNear(MonotonicTime now) const;
  // One has ended. Whether less came than usually, or it came to where the file may end.
  bool CameShort(MonotonicTime now);
  MonotonicTime NextLengths() const {
    return last_poll_ + std::max(kLengthsInterval, pause_ * kLengthsPauses);
  }
  bool PrimaryIsAsked(MonotonicTime now) const;
  bool OneIs(PrimaryAnswer answer) const {
    return primary_[0].answer == answer || primary_[1].answer == answer;
  }
  // The cache says all that there is: it has the pair, and the producer's side writes to it.
  bool CacheIsAlive() const { return metadata_known() && beats_ >= kBeatsOfLife; }
  bool CacheHasAll() const;
  bool MayReadAhead() const;
  // No answer of the metadata cache will ever say more of the file's lengths.
  bool Settled() const;
  bool List(MonotonicTime now);
  void LearnSeal();
  void NobodyKnows(MonotonicTime now);
  void AllowPrimary(MonotonicTime now);

  const AgentOptions& options_;
  Counters& counters_;
  HeartbeatAge& heartbeats_;
  const stream::Stem stem_;
  int64_t chunk_size_;

  stream::PairMetadata metadata_, next_metadata_;  // field-wise maximum of all that was seen
  std::optional<stream::Stem> next_listed_, later_listed_;
  std::optional<stream::Seal> seal_;
  Knowledge knowledge_ = Knowledge::kNotAsked;
  AheadCore ahead_;
  DelayedReadCore delayed_[stream::kParts];
  int64_t allowed_[stream::kParts] = {0, 0};  // of the primary layer, by Algorithm 1

  Poll poll_ = Poll::kIdle;
  Doorbell doorbell_ = Doorbell::kOff;
  Duration pause_;
  bool poll_was_news_ = true;  // the last poll changed the metadata
  bool bytes_came_ = false;    // or it, or what was read ahead, brought more of the pair's bytes
  bool round_trips_ = false;
  // What was Reached when a round ended last, when that was, and how many bytes usually come in a
  // second; 0: not known.
  int64_t came_to_ = 0;
  MonotonicTime came_at_;
  int64_t usual_ = 0;
  MonotonicTime round_at_;  // when the last round began
  int64_t end_may_be_ = 0;  // a little before where the file may end, of both parts; 0: not known
  bool lengths_next_ = false;  // of what was asked for ahead too little was there
  bool listing_ = false;       // one is under way
  bool listed_ = false;        // since bytes came
  bool waiting_for_next_ = false;
  bool hole_ = false;  // as of the last listing
  Primary primary_[stream::kParts];
  int beats_ = 0;              // kBeatsOfLife
  bool was_complete_ = false;  // the last answer of the metadata cache
  MonotonicTime next_poll_, last_poll_, next_primary_poll_, next_listing_, last_progress_;
  MonotonicTime as_of_moved_;  // when as_of() was last seen to move
};

}  // namespace tailcast::consumer
