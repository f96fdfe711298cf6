// The decisions of a client that reads and writes three replicas (paper §2.2, §2.4 "Readers", Figs
// 5 and 6): whom to ask, when an answer is enough, when a write succeeded, whom to leave alone.
// Plain data, no I/O, no clock; quorum_client.h executes it.
//
// Replicas of one key are numbered 0..2, in the client's order of preference for that key. A Mask
// has bit i for replica i.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

using Mask = uint8_t;

// One read of one key. After each call: ask the replicas of the returned mask, unless done().
//
// A chunk (`want` > 0 bytes) is done at the first validated answer of `want` bytes; short of that,
// when all replicas that can be reached have answered; with kAnyOne one answer will do. A value is
// done when two whole replicas have answered (all, if it has fewer than two), and then complete:
// the join of two whole ones includes every write that two whole ones acknowledged (spec Merge:
// ReadsSeeAcked). Or it is done when all that can be reached have answered, and then partial: their
// join is a lower bound. So it is of a relaxed read, which one whole replica ends that has the
// value.
//
//   Fig 5: want 4096. Start({1,2,3} usable) -> ask 1; OnAnswer(1, 1000) -> ask 2 and 3;
//   OnAnswer(3, 4096) -> done. Replica 2's answer comes later and is ignored.
class ReadCore {
 public:
  enum class Kind : uint8_t { kChunk, kValue };

  // `replicas`: how many the key has (0: done at once). `usable`: those worth asking now. `whole`:
  // those whose answer counts for a value; they are asked first then.
  // A consistent read asks two at once.
  Mask Start(Kind kind, ReadMode mode, uint8_t replicas, Mask usable, Mask whole, uint32_t want);
  // A validated answer: the value's length there, 0 if it is not there. `outdated`: the replica
  // knows that another ring is read now, so that what it has is a lower bound only.
  Mask OnAnswer(uint8_t replica, uint32_t length, bool outdated = false);
  // No answer to be had: unreachable, torn too often.
  Mask OnError(uint8_t replica);
  // There is a replica that was not asked, and could answer.
  bool CanHedge() const { return !done_ && (usable_ & ~asked_) != 0; }
  // The hedge delay passed: asks the next replica, if any was not asked.
  Mask OnHedge();
  void OnDeadline() { done_ = true; }

  bool done() const { return done_; }
  // Of a value: enough whole replicas answered.
  bool complete() const { return needed_ > 0 && whole_answers() >= needed_; }
  // How many replicas answered: 0 at the end means that none could be reached.
  uint8_t answers() const { return static_cast<uint8_t>(__builtin_popcount(answered_)); }
  uint32_t longest() const { return longest_; }
  Mask outstanding() const { return asked_ & static_cast<Mask>(~(answered_ | failed_)); }

 private:
  Mask Ask(uint8_t count);
  Mask Next();
  // Of a value.
  bool Enough() const {
    return complete() || (mode_ == ReadMode::kRelaxed && longest_ > 0 && whole_answers() > 0);
  }
  uint8_t whole_answers() const {
    return static_cast<uint8_t>(__builtin_popcount(answered_ & whole_));
  }

  Kind kind_ = Kind::kChunk;
  ReadMode mode_ = ReadMode::kConsistent;
  uint8_t needed_ = 0;  // whole answers to a value
  Mask whole_ = 0, usable_ = 0, asked_ = 0, answered_ = 0, failed_ = 0;
  uint32_t want_ = 0, longest_ = 0;
  bool done_ = false;
};

// One bulk write: when has each key two acknowledgements, or no chance of two? While the ring
// changes, of a value two in each of both rings (spec Merge: WriteQuorum), of a chunk in the one
// that is read. A replica's results come key by key; a failed call is a failure of each of its
// keys.
class MutationCore {
 public:
  struct Rings {
    bool read = true, other = false;
  };

  // `replicas`: how many replicas of the ring the key is written to. Two must acknowledge; if the
  // ring has fewer than two, all. `other`: the same of the other ring; 0: there is none.
  void AddKey(uint8_t replicas, uint8_t other = 0);
  // For key `index` in the order of AddKey, by a replica that is in the rings `in`. `votes`: where
  // its acknowledgement counts.
  void OnResult(uint32_t index, MutationResult result, Rings in, Rings votes);
  void OnResult(uint32_t index, MutationResult result, bool votes) {
    OnResult(index, result, {}, {votes, false});
  }
  void OnFailure(uint32_t index, Rings in);
  void OnFailure(uint32_t index) { OnFailure(index, {}); }

  // True as soon as the outcome of every key is decided: results that come later change nothing.
  bool decided() const { return undecided_ == 0; }

  struct Summary {
    uint32_t failed = 0;      // keys with fewer than two acknowledgements
    uint32_t refused = 0;     // of those, some replica had no room
    uint32_t mismatched = 0;  // keys of which some replica dropped contradicting bytes
  };
  Summary summary() const;

 private:
  struct Quorum {
    uint8_t pending = 0, needed = 0, acknowledged = 0;

    bool reached() const { return acknowledged >= needed; }
    bool possible() const { return acknowledged + pending >= needed; }
  };
  struct State {
    Quorum read, other;
    bool refused = false, mismatched = false, decided = false;
  };
  void Decide(State& state);
  std::vector<State> keys_;
  uint32_t undecided_ = 0;
};

// Which calls are under way, and who waits for the end of those that began earlier.
class DrainCore {
 public:
  // A call begins; End takes the number that it got.
  uint64_t Begin() { return *calls_.insert(++last_).first; }
  void End(uint64_t call) { calls_.erase(call); }
  // `done` is due when the calls that have begun by now have ended.
  void Drain(Callback<void()> done) { waiting_.push_back({last_, std::move(done)}); }
  // Takes out the next one that is due; empty: none is.
  Callback<void()> TakeDue();

 private:
  struct Waiting {
    uint64_t last = 0;  // call that it waits for
    Callback<void()> done;
  };
  uint64_t last_ = 0;
  std::set<uint64_t> calls_;
  std::deque<Waiting> waiting_;
};

// Whether a replica is worth asking. After a failure it is left alone for 20 ms, twice as long
// after each further one, at most a second; then one attempt is allowed to find out, and the others
// go on when it succeeded.
//
//   healthy ──a failure──▶ resting ──retry_at, TryAsk──▶ probing ──success─────▶ healthy
//                             ▲                             │ failure, or no end within kProbeMax
//                             └─────────────────────────────┘ (then another attempt)
//
// What was asked before the last failure and fails after it, fails for the same reason: many reads
// that a stall ends one after the other are one step of the back-off.
class ReplicaHealth {
 public:
  static constexpr Duration kBackoffMin = Duration::Millis(20);
  static constexpr Duration kBackoffMax = Duration::Seconds(1);
  // Longer than an attempt takes; who makes one says how it ended, or nobody else would go on.
  static constexpr Duration kProbeMax = Duration::Seconds(1);

  // Worth asking, if somebody has to be chosen.
  bool Usable(MonotonicTime now) const {
    return failures_ == 0 || (now >= retry_at_ && now >= probe_until_);
  }
  // To be called right before it is asked. False: it is to be left alone.
  bool TryAsk(MonotonicTime now) {
    if (failures_ == 0) return true;
    if (!Usable(now)) return false;
    probe_until_ = now + kProbeMax;
    return true;
  }
  MonotonicTime retry_at() const { return retry_at_; }
  void OnSuccess() {
    failures_ = 0;
    retry_at_ = probe_until_ = MonotonicTime();
  }
  // `asked`: when that began which failed. False: it belongs to the failure before.
  bool OnFailure(MonotonicTime now, MonotonicTime asked);
  // What TryAsk allowed at `asked` was not done: it says nothing.
  void OnNothing(MonotonicTime asked) {
    if (failed_at_ < asked) probe_until_ = MonotonicTime();
  }
  uint32_t failures() const { return failures_; }

 private:
  uint32_t failures_ = 0;
  MonotonicTime retry_at_, probe_until_;
  std::optional<MonotonicTime> failed_at_;  // the last step of the back-off
};

// Finds out whether a server lives from its heartbeat word, whose memory may read on after its
// death or while it is stopped.
//
// A word that has changed says that the server lived after the look before, not that it lives now:
// who did not look for long, because it slept or had no reason to, learns little from it. So a
// change counts from the look before; and as a living server may miss a beat, it is dead only when
// the word was also seen to stand still for half of `dead_after`.
//
//   dead_after 1 s; the reader sleeps from 2 s to 60 s, the server dies at 3 s
//   look at 2 s: 20, 60 s: 30 (it lived after 2 s), 60.25 s: 30, 60.5 s: 30 (dead)
class HeartbeatCore {
 public:
  // `dead_after`: how long the word may stand still.
  explicit HeartbeatCore(Duration dead_after) : dead_after_(dead_after) {}
  // The word at `now`. The first look counts as a change.
  void OnLook(MonotonicTime now, uint64_t word) {
    if (!looked_at_.has_value() || word != word_) {
      alive_at_ = looked_at_.has_value() ? *looked_at_ : now;
      still_since_ = now;
    }
    looked_at_ = now;
    word_ = word;
  }
  bool Alive(MonotonicTime now) const {
    return !looked_at_.has_value() || now - alive_at_ < dead_after_ ||
           *looked_at_ - still_since_ < dead_after_ / 2;
  }
  // Another server, or another life.
  void Reset() { looked_at_.reset(); }

 private:
  Duration dead_after_;
  std::optional<MonotonicTime> looked_at_;
  uint64_t word_ = 0;
  MonotonicTime alive_at_;     // it lived then, or later
  MonotonicTime still_since_;  // the first look that found `word_`
};

}  // namespace tailcast::cache
