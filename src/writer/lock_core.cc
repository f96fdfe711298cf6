#include "tailcast/writer/lock_core.h"

#include <string>

#include "tailcast/base/check.h"

namespace tailcast::writer {

using stream::LockState;
using stream::LockValue;

void LockCore::Enter(State next) {
  if (next == state_) return;  // looked at again
  bool drawn = false;
  switch (next) {
    case State::kAcquiring:
      break;
    case State::kWaiting:
      drawn = state_ == State::kAcquiring || state_ == State::kUnlocked;
      break;
    case State::kHeld:
      drawn = state_ != State::kLost && state_ != State::kReleased;
      break;
    case State::kUnlocked:
      drawn = state_ == State::kAcquiring || state_ == State::kWaiting;
      break;
    case State::kLost:
      drawn = state_ != State::kReleased;
      break;
    case State::kReleased:
      drawn = true;
      break;
  }
  TAILCAST_CHECK(drawn, "a lock from state " + std::to_string(static_cast<int>(state_)) + " to " +
                            std::to_string(static_cast<int>(next)));
  state_ = next;
}

std::optional<LockValue> LockCore::OnRead(MonotonicTime now, const std::optional<LockValue>& seen) {
  if (state_ == State::kLost || state_ == State::kReleased) return std::nullopt;
  next_read_ = now + options_.check_interval;
  if (seen && seen->SameOperation(mine_)) {
    if (seen->state == LockState::kHeld) {
      Enter(State::kHeld);
      return std::nullopt;
    }
    Enter(State::kLost);
    next_read_ = MonotonicTime::Max();
    // It ran before and has ended: the request to start it came twice.
    if (seen->state == LockState::kReleased) return std::nullopt;
    LockValue released = mine_;
    released.state = LockState::kReleased;
    return released;
  }
  if (seen && *seen > mine_) {
    Enter(State::kLost);
    winner_ = *seen;
    next_read_ = MonotonicTime::Max();
    return std::nullopt;
  }
  if (!seen || seen->state == LockState::kReleased || state_ == State::kHeld) {
    // Free, or our value was evicted. (A smaller value cannot replace ours otherwise.)
    Enter(State::kHeld);
    return mine_;
  }
  // A smaller operation holds it.
  if (!poisoned_ || !poisoned_->SameOperation(*seen)) {
    if (!poisoned_) seize_at_ = now + options_.seize_delay;
    poisoned_ = *seen;
    Enter(State::kWaiting);
    next_read_ = now + options_.wait_interval;
    if (seen->state == LockState::kPoisoned) return std::nullopt;  // by somebody before us
    LockValue poison = *seen;
    poison.state = LockState::kPoisoned;
    return poison;
  }
  if (now < seize_at_) {
    Enter(State::kWaiting);
    next_read_ = now + options_.wait_interval;
    if (seen->state == LockState::kPoisoned) return std::nullopt;
    LockValue poison = *seen;  // the write was lost
    poison.state = LockState::kPoisoned;
    return poison;
  }
  seized_ = true;
  Enter(State::kHeld);
  return mine_;
}

void LockCore::OnUnavailable(MonotonicTime now) {
  if (state_ == State::kLost || state_ == State::kReleased) return;
  if (state_ != State::kHeld) Enter(State::kUnlocked);
  next_read_ = now + options_.check_interval * 4;
}

std::optional<LockValue> LockCore::Release() {
  if (state_ == State::kReleased) return std::nullopt;
  // Who still waits has no lock to release; its value would tell the next one that the smaller
  // operation, which may be at work yet, has stopped.
  const bool leave =
      state_ == State::kLost || state_ == State::kAcquiring || state_ == State::kWaiting;
  Enter(State::kReleased);
  next_read_ = MonotonicTime::Max();
  if (leave) return std::nullopt;
  LockValue released = mine_;
  released.state = LockState::kReleased;
  return released;
}

}  // namespace tailcast::writer
