#include "tailcast/stream/term.h"

#include "tailcast/base/check.h"
#include "tailcast/base/strong.h"

namespace tailcast::stream {

uint64_t Term::Pack() const {
  TAILCAST_CHECK(tree_version <= kTreeVersionMax && attempt <= kAttemptMax &&
                 scheduler_incarnation <= kSchedulerIncarnationMax);
  return Raw(tree_version) << 48 | Raw(scheduler_incarnation) << 24 | attempt;
}

Term Term::Unpack(uint64_t packed) {
  return {TreeVersion{packed >> 48},
          SchedulerIncarnation{packed >> 24 & Raw(kSchedulerIncarnationMax)},
          static_cast<uint32_t>(packed & kAttemptMax)};
}

}  // namespace tailcast::stream
