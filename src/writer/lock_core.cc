#include "tailcast/writer/lock_core.h"

namespace tailcast::writer {

using stream::LockState;
using stream::LockValue;

std::optional<LockValue> LockCore::OnRead(MonotonicTime now, const std::optional<LockValue>& seen) {
  if (state_ == State::kLost || state_ == State::kReleased) return std::nullopt;
  next_read_ = now + options_.check_interval;
  if (seen && seen->SameOperation(mine_)) {
    if (seen->state == LockState::kHeld) {
      state_ = State::kHeld;
      return std::nullopt;
    }
    state_ = State::kLost;
    next_read_ = MonotonicTime::Max();
    // It ran before and has ended: the request to start it came twice.
    if (seen->state == LockState::kReleased) return std::nullopt;
    LockValue released = mine_;
    released.state = LockState::kReleased;
    return released;
  }
  if (seen && *seen > mine_) {
    state_ = State::kLost;
    winner_ = *seen;
    next_read_ = MonotonicTime::Max();
    return std::nullopt;
  }
  if (!seen || seen->state == LockState::kReleased || state_ == State::kHeld) {
    // Free, or our value was evicted. (A smaller value cannot replace ours otherwise.)
    state_ = State::kHeld;
    return mine_;
  }
  // A smaller operation holds it.
  if (!poisoned_ || !poisoned_->SameOperation(*seen)) {
    if (!poisoned_) seize_at_ = now + options_.seize_delay;
    poisoned_ = *seen;
    state_ = State::kWaiting;
    next_read_ = now + options_.wait_interval;
    if (seen->state == LockState::kPoisoned) return std::nullopt;  // by somebody before us
    LockValue poison = *seen;
    poison.state = LockState::kPoisoned;
    return poison;
  }
  if (now < seize_at_) {
    state_ = State::kWaiting;
    next_read_ = now + options_.wait_interval;
    if (seen->state == LockState::kPoisoned) return std::nullopt;
    LockValue poison = *seen;  // the write was lost
    poison.state = LockState::kPoisoned;
    return poison;
  }
  seized_ = true;
  state_ = State::kHeld;
  return mine_;
}

void LockCore::OnUnavailable(MonotonicTime now) {
  if (state_ == State::kLost || state_ == State::kReleased) return;
  if (state_ != State::kHeld) state_ = State::kUnlocked;
  next_read_ = now + options_.check_interval * 4;
}

std::optional<LockValue> LockCore::Release() {
  if (state_ == State::kReleased) return std::nullopt;
  // Who still waits has no lock to release; its value would tell the next one that the smaller
  // operation, which may be at work yet, has stopped.
  const bool leave =
      state_ == State::kLost || state_ == State::kAcquiring || state_ == State::kWaiting;
  state_ = State::kReleased;
  next_read_ = MonotonicTime::Max();
  if (leave) return std::nullopt;
  LockValue released = mine_;
  released.state = LockState::kReleased;
  return released;
}

}  // namespace tailcast::writer
