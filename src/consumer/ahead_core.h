// A round of reading ahead, within LengthsCore: the cache is asked for bytes that nobody said are
// there, behind those that are known to be, in place of the lengths that would say so, or together
// with them. One round of messages does for two. What a replica has may be given, whoever announced
// it: bytes reach a cache when they are committed, and lengths are hints.
//
//            Begin            both parts answered
//    idle ──────────▶ asking ────────────────────▶ idle, with an Outcome
//     ▲                ▲ │ │ of a part there may be more: it is asked for again
//     │                └─┼─┘
//     └──────────────────┘ Stop
//
// A part of which nothing can be asked for (the user has not taken what is there, it is for the
// rate or for another try to wait, or bytes that fail a check are asked of other sources) is
// answered with nothing.
//
// What was asked for in a round that was stopped may be answered in the next one. It is no answer
// of that one, which asks again.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tailcast/base/time.h"
#include "tailcast/stream/names.h"

namespace tailcast::consumer {

class AheadCore {
 public:
  enum class Outcome : uint8_t {
    kNone,    // the round goes on, or there was none
    kBytes,   // some came
    kUneven,  // some came, and never a message as a whole: a flush reaches replicas one by one
    kInVain,  // none came
  };
  // The rest of a flush is looked for after this pause, after twice as long the next time.
  static constexpr Duration kUnevenPause = Duration::Micros(300);
  static constexpr Duration kUnevenPauseMax = Duration::Seconds(1);

  // `alone`: lengths are not read at the same time, or no more (OnLengths).
  void Begin(bool alone) {
    asked_[0] = asked_[1] = true;
    alone_ = alone;
    came_ = ready_ = false;
    ++round_;
  }
  void OnLengths() { alone_ = true; }
  // Nothing of it is asked for any more; an answer that comes still says what the cache has.
  void Stop() { asked_[0] = asked_[1] = false; }
  // Which one it is; one that was stopped keeps its number.
  int64_t round() const { return round_; }
  bool asking() const { return asked_[0] || asked_[1]; }
  bool asks(stream::Part part) const { return asked_[Index(part)]; }
  bool alone() const { return alone_; }
  // The cache was seen to have the part up to there.
  int64_t end(stream::Part part) const { return end_[Index(part)]; }

  // Of what was asked for of the part in `round` the bytes up to `end` came, or none (0), and there
  // may be `more`. `ready`: a message can be given.
  Outcome OnAnswer(int64_t round, stream::Part part, int64_t end, bool more, bool ready) {
    const int i = Index(part);
    end_[i] = std::max(end_[i], end);
    if (round != round_) return Outcome::kNone;
    const bool was_asked = asked_[i];
    came_ = came_ || end > 0;
    ready_ = ready_ || ready;
    if (more || !was_asked) return Outcome::kNone;
    asked_[i] = false;
    if (asking()) return Outcome::kNone;
    if (!came_) return Outcome::kInVain;
    uneven_pause_ =
        ready_ ? Duration() : std::clamp(uneven_pause_ * 2, kUnevenPause, kUnevenPauseMax);
    return ready_ ? Outcome::kBytes : Outcome::kUneven;
  }
  // After kUneven.
  Duration uneven_pause() const { return uneven_pause_; }

 private:
  static int Index(stream::Part part) { return static_cast<int>(part); }

  bool asked_[stream::kParts] = {false, false};
  bool alone_ = false;
  bool came_ = false, ready_ = false;
  int64_t round_ = 0;
  Duration uneven_pause_;
  int64_t end_[stream::kParts] = {0, 0};
};

}  // namespace tailcast::consumer
