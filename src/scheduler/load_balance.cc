#include "tailcast/scheduler/load_balance.h"

#include <algorithm>

#include "tailcast/base/fault_point.h"

namespace tailcast::scheduler {
namespace {

FAULT_POINT(kByCount, "scheduler.load_by_count", "each operation costs its workers the same");

}  // namespace

bool ClearlyBusier(const BalanceOptions& options, int64_t load, int64_t other) {
  return load > other * options.busier_percent / 100 + options.slack;
}

int64_t MoveGain(const BalanceOptions& options, int64_t load, int64_t gap) {
  const int64_t gain = std::min(load, gap - load);
  return gain > 0 && gain * 100 >= load * options.move_gain_percent ? gain : 0;
}

void OperationLoad::Begin(const Expected& expected, const BalanceOptions& options) {
  sent_ = 0;
  waiting_ = std::max(waiting_, expected.waiting);
  if (measured_ > 0 || !expected.rate) return;
  rate_ = *expected.rate;
  measured_ = options.windows;
}

void OperationLoad::OnReport(int64_t sent, int64_t waiting) {
  if (sent_) in_window_ += std::max<int64_t>(0, sent - *sent_);
  sent_ = sent;
  waiting_ = std::max<int64_t>(0, waiting);
}

void OperationLoad::OnWindows(int64_t windows, const BalanceOptions& options) {
  if (windows <= 0) return;
  static_assert(kLoadWindow == Duration::Seconds(1), "rates are per second");
  const int64_t each = in_window_ / windows;
  in_window_ = 0;
  // After so many of them nothing is left of what was measured before.
  for (int64_t i = std::min(windows, options.windows * 16); i > 0; --i) {
    measured_ = std::min(measured_ + 1, options.windows);
    rate_ = (rate_ * (measured_ - 1) + each) / measured_;
  }
}

std::optional<int64_t> OperationLoad::rate() const {
  if (measured_ == 0) return std::nullopt;
  return rate_;
}

int64_t OperationLoad::bytes_per_s(const BalanceOptions& options) const {
  if (kByCount.planted()) return options.idle_bytes_per_s;
  return options.idle_bytes_per_s + rate_ +
         std::min(waiting_, options.waiting_max) / options.catch_up_s;
}

}  // namespace tailcast::scheduler
