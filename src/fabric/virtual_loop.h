// An EventLoop in virtual time for this module's tests.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "tailcast/base/event_loop.h"

namespace tailcast::fabric {

// One thread, virtual time: what was posted first, then the next timer.
class VirtualLoop final : public EventLoop {
 public:
  MonotonicTime Now() const override { return now_; }
  WallTime WallNow() const override { return WallTime::FromMicros(now_.micros()); }
  void Post(Task&& task) override { posted_.push_back(std::move(task)); }
  TimerId At(MonotonicTime when, Task task) override {
    const TimerId id = ++last_id_;
    timers_.emplace(std::pair(std::max(when, now_), id), std::move(task));
    times_[id] = std::max(when, now_);
    return id;
  }
  void Cancel(TimerId id) override {
    const auto it = times_.find(id);
    if (it == times_.end()) return;
    auto node = timers_.extract(std::pair(it->second, id));
    times_.erase(it);
  }
  bool RunUntil(const std::function<bool()>& done, Duration limit) {
    const MonotonicTime end = now_ + limit;
    while (!done()) {
      if (!posted_.empty()) {
        Task task = std::move(posted_.front());
        posted_.pop_front();
        task();
      } else if (!timers_.empty() && timers_.begin()->first.first <= end) {
        auto node = timers_.extract(timers_.begin());
        now_ = node.key().first;
        times_.erase(node.key().second);
        node.mapped()();
      } else {
        now_ = end;
        return false;
      }
    }
    return true;
  }
  void RunFor(Duration span) {
    RunUntil([] { return false; }, span);
  }

 private:
  MonotonicTime now_ = MonotonicTime::FromMicros(1'000'000);
  TimerId last_id_ = 0;
  std::deque<Task> posted_;
  std::map<std::pair<MonotonicTime, TimerId>, Task> timers_;
  std::map<TimerId, MonotonicTime> times_;
};

}  // namespace tailcast::fabric
