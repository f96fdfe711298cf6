#include "tailcast/producer/retry_core.h"

#include <algorithm>
#include <cstdint>

namespace tailcast::producer {
namespace {

constexpr int kNotifyRetriesMax = 12;
constexpr Duration kNotifyWaitMin = Duration::Millis(50);
constexpr Duration kNotifyWaitMax = Duration::Seconds(5);

bool MayPass(const Status& error) {
  switch (error.code()) {
    case StatusCode::kPermissionDenied:
    case StatusCode::kInvalidArgument:
    case StatusCode::kDataLoss:
    case StatusCode::kUnimplemented:
      return false;
    default:
      return true;
  }
}

}  // namespace

RetryCore::Verdict RetryCore::OnAppendFailed(MonotonicTime now) {
  if (failing_since_ < MonotonicTime::Max()) return Again(now);
  failing_since_ = now;
  return {};
}

RetryCore::Verdict RetryCore::OnOpenFailed(const Status& error, MonotonicTime now) {
  if (!MayPass(error)) return {.stop = error.WithContext("opening " + name_)};
  OnCause(error);
  failing_since_ = std::min(failing_since_, now);
  return Again(now);
}

RetryCore::Verdict RetryCore::Again(MonotonicTime now) {
  if (IsDeadlineExceeded(cause_)) failing_since_ = now;
  const Duration failing = now - failing_since_;
  if (failing > options_.give_up) {
    return {.stop = UnavailableError(name_ + ": the primary layer has failed for " +
                                     std::to_string(failing.millis() / 1000) +
                                     " s: " + (cause_.ok() ? "appends fail" : cause_.message()))};
  }
  wait_ = std::min(std::max(options_.wait_min, wait_ * 2), options_.wait_max);
  return {.wait = wait_};
}

void RetryCore::OnCause(const Status& error) {
  cause_ = error;
  trouble_ = error.WithContext(name_);
}

void RetryCore::OnWell() {
  cause_ = trouble_ = OkStatus();
  failing_since_ = MonotonicTime::Max();
  wait_ = Duration();
}

std::optional<Duration> NotifyRetryWait(int failures) {
  if (failures > kNotifyRetriesMax) return std::nullopt;
  return std::min(kNotifyWaitMin * (int64_t{1} << (failures - 1)), kNotifyWaitMax);
}

}  // namespace tailcast::producer
