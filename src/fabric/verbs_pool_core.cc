#include "tailcast/fabric/verbs_pool_core.h"

#include <algorithm>
#include <utility>

namespace tailcast::fabric {

bool VerbsPoolCore::Attach(MonotonicTime now) {
  Look(now);
  if (worn() || kBase + kShare * (attached_ + 1) > most_) return false;
  ++attached_;
  return true;
}

void VerbsPoolCore::Detach(MonotonicTime now) {
  Look(now);
  --attached_;
}

uint32_t VerbsPoolCore::missing() const {
  const uint32_t wanted = kBase + kShare * attached_ + std::min(lost_, kLostMost);
  return wanted <= buffers() ? 0 : std::min(wanted, most_) - std::min(buffers(), most_);
}

uint32_t VerbsPoolCore::Add() {
  posted_.push_back(0);
  return buffers() - 1;
}

bool VerbsPoolCore::OnArrived(uint32_t buffer) {
  if (buffer >= posted_.size() || posted_[buffer] == 0) return false;
  newest_ = std::max(newest_, std::exchange(posted_[buffer], 0));
  return true;
}

void VerbsPoolCore::Look(MonotonicTime now) {
  if (now < marked_ + patience_) return;
  lost_ = static_cast<uint32_t>(std::count_if(
      posted_.begin(), posted_.end(), [&](uint64_t post) { return post != 0 && post < mark_; }));
  mark_ = newest_;
  marked_ = now;
}

}  // namespace tailcast::fabric
