#include "tailcast/storage/slow_requests_core.h"

#include <algorithm>
#include <cstdio>

namespace tailcast::storage {
namespace {

std::string Seconds(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(d.micros()) / 1e6);
  return text;
}

std::string Requests(size_t count) {
  return count == 1 ? std::string("1 request") : std::to_string(count) + " requests";
}

}  // namespace

SlowRequestsCore::SlowRequestsCore(std::string store, Options options)
    : store_(std::move(store)), options_(options) {}

void SlowRequestsCore::OnSent(MonotonicTime now, uint64_t request, MonotonicTime deadline,
                              std::string what) {
  requests_.emplace(request, Request{now, deadline, std::move(what)});
  deadlines_.emplace(deadline, request);
}

bool SlowRequestsCore::Forget(uint64_t request) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return false;
  deadlines_.erase({it->second.deadline, request});
  requests_.erase(it);
  return true;
}

bool SlowRequestsCore::OnSilence(uint64_t request) {
  const bool waited = Forget(request);
  if (waited && stalled_.has_value()) ++given_up_;
  return waited;
}

bool SlowRequestsCore::OnAnswered(MonotonicTime now, uint64_t request, Effects& out) {
  const bool waited = Forget(request);
  if (!stalled_.has_value()) return waited;
  const bool slow =
      !requests_.empty() && now - requests_.begin()->second.sent >= options_.slow_after;
  silent_since_ = now;
  if (slow) return waited;
  out.inform = store_ + " answers again, after " + Seconds(now - *stalled_) +
               (given_up_ == 0 ? std::string("; nothing was given up")
                               : "; " + Requests(given_up_) + " had no answer in time");
  stalled_.reset();
  given_up_ = 0;
  cause_.clear();
  return waited;
}

void SlowRequestsCore::OnCause(MonotonicTime now, std::string cause, Effects& out) {
  if (!stalled_.has_value()) return;
  if (cause.empty()) {
    out.replace = !cause_.empty() || now - silent_since_ >= options_.replace_after;
    if (out.replace) silent_since_ = now;
  } else if (cause != cause_) {
    out.warn = store_ + " does not answer: " + cause;
  }
  cause_ = std::move(cause);
}

void SlowRequestsCore::OnTime(MonotonicTime now, Effects& out) {
  if (!requests_.empty() && !stalled_.has_value()) {
    const Request& oldest = requests_.begin()->second;
    if (now - oldest.sent >= options_.slow_after) {
      stalled_ = silent_since_ = oldest.sent;
      look_at_ = now;
      out.warn = store_ + " has not answered for " + Seconds(now - oldest.sent) + ": " +
                 Requests(requests_.size()) + " under way, the oldest: " + oldest.what +
                 "; who asked is told after " + Seconds(oldest.deadline - oldest.sent) +
                 " that the result is not known";
    }
  }
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const uint64_t request = deadlines_.begin()->second;
    if (stalled_.has_value()) ++given_up_;
    Forget(request);
    out.given_up.push_back(request);
  }
  std::sort(out.given_up.begin(), out.given_up.end());
  if (stalled_.has_value() && look_at_ <= now) {
    out.look = true;
    look_at_ = now + options_.look_every;
  }
}

std::optional<MonotonicTime> SlowRequestsCore::next() const {
  std::optional<MonotonicTime> next;
  const auto sooner = [&next](MonotonicTime when) {
    if (!next.has_value() || when < *next) next = when;
  };
  if (!deadlines_.empty()) sooner(deadlines_.begin()->first);
  if (stalled_.has_value()) {
    if (!requests_.empty()) sooner(look_at_);
  } else if (!requests_.empty()) {
    sooner(requests_.begin()->second.sent + options_.slow_after);
  }
  return next;
}

}  // namespace tailcast::storage
