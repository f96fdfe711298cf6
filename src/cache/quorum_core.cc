#include "tailcast/cache/quorum_core.h"

#include <algorithm>

namespace tailcast::cache {

// ---- ReadCore ----

Mask ReadCore::Start(Kind kind, ReadMode mode, uint8_t replicas, Mask usable, Mask whole,
                     uint32_t want) {
  *this = ReadCore();
  kind_ = kind;
  mode_ = mode;
  if (kind == Kind::kValue) {
    needed_ = std::min<uint8_t>(replicas, 2);
    whole_ = whole;
  }
  usable_ = usable & static_cast<Mask>((1u << replicas) - 1);
  want_ = want;
  if (usable_ == 0) {
    done_ = true;
    return 0;
  }
  return Ask(mode == ReadMode::kConsistent ? 2 : 1);
}

Mask ReadCore::Ask(uint8_t count) {
  Mask ask = 0;
  for (const Mask among : {static_cast<Mask>(usable_ & whole_), usable_}) {
    for (uint8_t replica = 0; replica < 8 && count > 0; ++replica) {
      const Mask bit = static_cast<Mask>(1u << replica);
      if ((among & bit) != 0 && ((asked_ | ask) & bit) == 0) {
        ask |= bit;
        --count;
      }
    }
  }
  asked_ |= ask;
  return ask;
}

Mask ReadCore::OnAnswer(uint8_t replica, uint32_t length, bool outdated) {
  const Mask bit = static_cast<Mask>(1u << replica);
  if (done_ || (outstanding() & bit) == 0) return 0;  // late or never asked
  answered_ |= bit;
  if (outdated) whole_ &= static_cast<Mask>(~bit);
  longest_ = std::max(longest_, length);
  return Next();
}

Mask ReadCore::OnError(uint8_t replica) {
  const Mask bit = static_cast<Mask>(1u << replica);
  if (done_ || (outstanding() & bit) == 0) return 0;
  failed_ |= bit;
  return Next();
}

Mask ReadCore::Next() {
  if (kind_ == Kind::kChunk) {
    if (answered_ != 0 && (longest_ >= want_ || mode_ == ReadMode::kAnyOne)) {
      done_ = true;
      return 0;
    }
    // Short, missing or failed: all the others at once.
    const Mask ask = Ask(8);
    if (ask == 0 && outstanding() == 0) done_ = true;
    return ask;
  }
  if (Enough()) {
    done_ = true;
    return 0;
  }
  const auto missing = static_cast<uint8_t>(needed_ - whole_answers());
  const auto coming = static_cast<uint8_t>(__builtin_popcount(outstanding() & whole_));
  const Mask ask = coming < missing ? Ask(static_cast<uint8_t>(missing - coming)) : 0;
  if (ask == 0 && outstanding() == 0) done_ = true;
  return ask;
}

Mask ReadCore::OnHedge() { return done_ ? Mask{0} : Ask(1); }

// ---- MutationCore ----

void MutationCore::AddKey(uint8_t replicas, uint8_t other) {
  State state;
  state.read = {replicas, std::min<uint8_t>(std::max<uint8_t>(replicas, 1), 2), 0};
  state.other = {other, std::min<uint8_t>(other, 2), 0};
  ++undecided_;
  keys_.push_back(state);
  Decide(keys_.back());
}

void MutationCore::OnResult(uint32_t index, MutationResult result, Rings in, Rings votes) {
  State& state = keys_[index];
  const bool acknowledged =
      result == MutationResult::kApplied || result == MutationResult::kNoChange;
  const auto count = [acknowledged](Quorum& quorum, bool is_in, bool vote) {
    if (!is_in || quorum.pending == 0) return;
    --quorum.pending;
    quorum.acknowledged += acknowledged && vote ? 1 : 0;
  };
  count(state.read, in.read, votes.read);
  count(state.other, in.other, votes.other);
  if (!state.decided) {
    state.refused = state.refused || result == MutationResult::kRefused;
    state.mismatched = state.mismatched || result == MutationResult::kMismatch;
  }
  Decide(state);
}

void MutationCore::OnFailure(uint32_t index, Rings in) {
  State& state = keys_[index];
  if (in.read && state.read.pending > 0) --state.read.pending;
  if (in.other && state.other.pending > 0) --state.other.pending;
  Decide(state);
}

void MutationCore::Decide(State& state) {
  if (state.decided) return;
  const bool reached = state.read.reached() && state.other.reached();
  if (!reached && state.read.possible() && state.other.possible()) return;
  // Decided, either way: what was reached stays so, what is not possible never gets it.
  state.decided = true;
  --undecided_;
}

MutationCore::Summary MutationCore::summary() const {
  Summary summary;
  for (const State& state : keys_) {
    const bool failed = !state.read.reached() || !state.other.reached();
    summary.failed += failed ? 1 : 0;
    summary.refused += failed && state.refused ? 1 : 0;
    summary.mismatched += state.mismatched ? 1 : 0;
  }
  return summary;
}

// ---- DrainCore ----

Callback<void()> DrainCore::TakeDue() {
  if (waiting_.empty() || (!calls_.empty() && *calls_.begin() <= waiting_.front().last)) return {};
  Callback<void()> done = std::move(waiting_.front().done);
  waiting_.pop_front();
  return done;
}

// ---- ReplicaHealth ----

bool ReplicaHealth::OnFailure(MonotonicTime now, MonotonicTime asked) {
  if (failed_at_ >= asked) return false;
  Duration wait = kBackoffMin;
  for (uint32_t i = 0; i < failures_ && wait < kBackoffMax; ++i) wait = wait * 2;
  retry_at_ = now + std::min(wait, kBackoffMax);
  failures_ = std::min(failures_ + 1, 30u);
  failed_at_ = now;
  probe_until_ = MonotonicTime();
  return true;
}

}  // namespace tailcast::cache
