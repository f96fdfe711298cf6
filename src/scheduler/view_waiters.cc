#include "tailcast/scheduler/view_waiters.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tailcast::scheduler {
namespace {

constexpr int64_t kAll = INT64_MAX;

}  // namespace

ViewWaiters::ViewWaiters(EventLoop& loop, Options options,
                         std::function<const v1::CellView*()> view)
    : loop_(loop), options_(options), view_(std::move(view)) {}

void ViewWaiters::Wait(const v1::GetViewRequest& request, Duration wait, rpc::Responder respond) {
  if (static_cast<int>(waiters_.size()) >= options_.waiting_max) {
    return respond(ResourceExhaustedError("too many clients wait for the view"));
  }
  const uint64_t number = next_++;
  Waiter& waiter = waiters_.try_emplace(number, loop_).first->second;
  waiter.known_version = request.known_version();
  waiter.use = request.use();
  waiter.respond = std::move(respond);
  waiter.timer.After(wait, scope_.Bind([this, number] {
    const auto node = waiters_.extract(number);
    if (const v1::CellView* const view = view_(); view != nullptr) {
      node.mapped().respond(view->SerializeAsString());
    } else {
      node.mapped().respond(UnavailableError("the cell's processes are still registering"));
    }
  }));
}

void ViewWaiters::OnChange(bool caches_last) {
  if (view_() == nullptr) return;
  caches_last_ |= caches_last;
  if (!since_.has_value()) since_ = loop_.Now();
  const auto readers = std::count_if(waiters_.begin(), waiters_.end(), [](const auto& waiter) {
    return waiter.second.use == v1::VIEW_READS;
  });
  const int64_t steps = std::max<int64_t>(1, options_.spread.micros() / kStep.micros());
  at_a_time_ = (readers + steps - 1) / steps;
  Answer(v1::VIEW_WRITES, kAll);
  if (!caches_last_) Answer(v1::VIEW_SERVES, kAll);
  if (!step_.armed()) Step();
}

void ViewWaiters::Step() {
  const bool last = loop_.Now() - *since_ >= options_.spread;
  if (Answer(v1::VIEW_READS, last ? kAll : at_a_time_)) {
    return step_.After(kStep, scope_.Bind([this] { Step(); }));
  }
  Answer(v1::VIEW_SERVES, kAll);
  since_.reset();
  caches_last_ = false;
}

bool ViewWaiters::Answer(v1::ViewUse use, int64_t most) {
  const v1::CellView* const view = view_();
  if (view == nullptr) return false;
  std::string bytes;
  int64_t answered = 0;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const auto at = it++;
    if (at->second.use != use || at->second.known_version == view->version()) continue;
    if (answered++ == most) return true;
    if (bytes.empty()) bytes = view->SerializeAsString();
    waiters_.extract(at).mapped().respond(bytes);
  }
  return false;
}

void ViewWaiters::End(const Status& why) {
  step_.Cancel();
  for (auto& [number, waiter] : std::exchange(waiters_, {})) waiter.respond(why);
}

}  // namespace tailcast::scheduler
