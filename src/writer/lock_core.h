// The decisions about the lock of one operation (paper §3, Dueling Writers; stream/lock.h; spec
// Locks): acquire, check, give way to poison, poison and seize, release.
//
// The lock saves wasted work and nothing else: every path ends in the operation running or in it
// giving way to a greater one, and a metadata cache that does not answer stops nobody.
//
//               a smaller operation has it: poison
//        ┌──────────────────────────────▶ kWaiting ───┐ it is released, or seized
//        │                                 ▲   │      ▼
//   kAcquiring ────────── free ────────────┼───┼──▶ kHeld
//        │                                 │   │      ▲
//        │ the cache does not answer       │   ▼      │ free
//        └──────────────────────────────▶ kUnlocked ──┘
//
//   these four ─────────────▶ kLost       a greater operation is there, or poison for us
//   these four and kLost ───▶ kReleased   Release
//
// A core: no clock, no I/O. The owner reads the lock's value and calls OnRead, writes what is asked
// for, and looks at state() and NextRead().
#pragma once

#include <cstdint>
#include <optional>

#include "tailcast/base/time.h"
#include "tailcast/stream/lock.h"

namespace tailcast::writer {

struct LockOptions {
  Duration check_interval = Duration::Millis(50);  // while held
  Duration wait_interval = Duration::Millis(10);   // while another operation is asked to end
  // How long another operation may take to see its poison before the lock is seized; longer than
  // check_interval.
  Duration seize_delay = Duration::Millis(75);
};

class LockCore {
 public:
  enum class State : uint8_t {
    kAcquiring,  // nothing is known yet
    kWaiting,    // another operation is poisoned; the work should wait
    kHeld,       // ours
    kUnlocked,   // the metadata cache does not answer: work goes on without it
    kLost,       // a greater operation is there, or poison for us: end the work
    kReleased,
  };
  // `mine` in state held.
  LockCore(LockOptions options, stream::LockValue mine) : options_(options), mine_(mine) {}

  // The value was read (nullopt: there is none). What to write now, if anything.
  std::optional<stream::LockValue> OnRead(MonotonicTime now,
                                          const std::optional<stream::LockValue>& seen);
  // The value could not be read.
  void OnUnavailable(MonotonicTime now);
  // The work ended. What to write, if anything: a lock that was lost to a greater one, or was not
  // taken yet, is left alone.
  std::optional<stream::LockValue> Release();

  State state() const { return state_; }
  // May the work touch the cache?
  bool MayWork() const { return state_ == State::kHeld || state_ == State::kUnlocked; }
  bool lost() const { return state_ == State::kLost; }
  // In state held.
  const stream::LockValue& mine() const { return mine_; }
  // When to read the value again; TimePoint::Max() when there is no more need.
  MonotonicTime NextRead() const { return next_read_; }
  // After kLost: the operation that took over, if it was seen.
  const std::optional<stream::LockValue>& winner() const { return winner_; }
  bool seized() const { return seized_; }

 private:
  void Enter(State next);

  LockOptions options_;
  stream::LockValue mine_;
  State state_ = State::kAcquiring;
  MonotonicTime next_read_;  // at once
  std::optional<stream::LockValue> poisoned_;
  MonotonicTime seize_at_;
  std::optional<stream::LockValue> winner_;
  bool seized_ = false;
};

}  // namespace tailcast::writer
