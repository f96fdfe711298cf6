#include "tailcast/cache/serving_core.h"

#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::cache {
namespace {

FAULT_POINT(kNoLease, "cache.no_lease",
            "a cache server that the registry does not hear of goes on as if it did");

}  // namespace

bool ServingCore::OnRing(MonotonicTime now, const RingConfig& ring) {
  const Replica* const self = ring.Find(name_);
  const bool mine = self != nullptr && self->incarnation == incarnation_;
  known_ = known_ || mine;
  // A ring that does not know of us yet may name the life before.
  // Once replaced it stays so when its successor goes: it has missed what that acknowledged.
  const bool is_another =
      known_ && self != nullptr && !mine && self->incarnation != ProcessIncarnation::kNone;
  replaced_ = !mine && (replaced_ || is_another);
  named_ = self != nullptr && !replaced_;
  return GoOnIfConfirmed(now, ring);
}

std::optional<Duration> ServingCore::OnTick(MonotonicTime now) {
  const auto before = std::exchange(ticked_at_, now);
  if (!before.has_value() || now - *before <= stall_max_) return std::nullopt;
  doubtful_since_ = now;
  confirmed_.reset();
  return now - *before;
}

bool ServingCore::OnConfirmation(MonotonicTime now, const RingConfig& ring,
                                 const Confirmation& confirmation) {
  const MonotonicTime end = confirmation.asked + confirmation.lease;
  if (end <= now || kNoLease.planted()) return false;
  if (confirmation.by_record &&
      (confirmation.other_life || confirmation.configuration != ring.configuration_id ||
       confirmation.epoch != ring.epoch)) {
    record_differs_ = true;
    return false;
  }
  if (doubtful()) {
    if (confirmation.asked < *doubtful_since_) return false;
    confirmed_ = confirmation;
    return GoOnIfConfirmed(now, ring);
  }
  record_differs_ = false;
  if (confirmation.lease != Duration::Infinite() &&
      (lease_end_ == MonotonicTime::Max() || end > lease_end_)) {
    lease_end_ = end;
  }
  return false;
}

void ServingCore::OnLeaseEnd() {
  lease_end_ = MonotonicTime::Max();
  if (doubtful()) return;
  // Whatever is heard from now on will do: OnConfirmation has seen that it is not too old.
  doubtful_since_ = MonotonicTime();
  confirmed_.reset();
}

bool ServingCore::GoOnIfConfirmed(MonotonicTime now, const RingConfig& ring) {
  if (!confirmed_.has_value() || ring.configuration_id < confirmed_->configuration ||
      ring.epoch < confirmed_->epoch) {
    return false;
  }
  const Confirmation confirmation = *std::exchange(confirmed_, std::nullopt);
  if (confirmation.asked + confirmation.lease <= now) return false;
  doubtful_since_.reset();
  OnConfirmation(now, ring, confirmation);
  return true;
}

ServingCore::State ServingCore::state() const {
  if (replaced_) return State::kReplaced;
  if (!named_) return State::kNotInRing;
  if (!doubtful()) return State::kServes;
  return *doubtful_since_ != MonotonicTime() ? State::kStalled : State::kNoLease;
}

}  // namespace tailcast::cache
