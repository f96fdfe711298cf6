#include "tailcast/scheduler/core_driver.h"

#include <algorithm>
#include <utility>

namespace tailcast::scheduler {

CoreDriver::CoreDriver(EventLoop& loop, CoreOptions core, uint64_t seed, CoreDriverOptions options,
                       UniqueFunction<void(const Effects&)> carry_out)
    : loop_(loop),
      options_(options),
      carry_out_(std::move(carry_out)),
      core_(std::move(core), seed) {}

void CoreDriver::DoWork() {
  if (scope_.ended()) return;
  const MonotonicTime now = loop_.Now();
  if (now >= options_.begin) core_.DoWork(now, effects_);
  carry_out_(std::exchange(effects_, Effects()));
  const MonotonicTime next = std::max(core_.NextWork(), options_.begin);
  if (next < MonotonicTime::Max()) {
    work_timer_.At(std::max(next, now + Duration::Millis(1)), scope_.Bind([this] { DoWork(); }));
  } else {
    work_timer_.Cancel();
  }
  if (!shed_timer_.armed() && core_.unfinished() > 0) {
    shed_timer_.After(options_.shed_interval, scope_.Bind([this] {
      core_.Shed(loop_.Now());
      DoWorkSoon();
    }));
  }
}

void CoreDriver::DoWorkSoon() {
  if (std::exchange(posted_, true)) return;
  loop_.Post(scope_.Bind([this] {
    posted_ = false;
    DoWork();
  }));
}

}  // namespace tailcast::scheduler
