// An EventLoop in virtual time for this module's tests: one thread, tasks in order, timers when
// nothing else is left to do. (The deterministic world has a richer one in src/sim, which depends
// on this module.)
#pragma once

#include <deque>
#include <map>
#include <utility>

#include "tailcast/base/event_loop.h"

namespace tailcast::cache {

class TestLoop : public EventLoop {
 public:
  MonotonicTime Now() const override { return now_; }
  WallTime WallNow() const override { return WallTime::FromMicros(now_.micros()); }
  void Post(Task&& task) override { tasks_.push_back(std::move(task)); }
  TimerId At(MonotonicTime when, Task task) override {
    const TimerId id = ++last_timer_;
    timers_.emplace(std::pair(when, id), std::move(task));
    times_[id] = when;
    return id;
  }
  void Cancel(TimerId id) override {
    const auto it = times_.find(id);
    if (it == times_.end()) return;
    timers_.erase(std::pair(it->second, id));
    times_.erase(it);
  }

  // Runs what was posted, and what that posts, without moving time.
  void RunReady() {
    while (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  // Time passes and nothing runs, as if the process were stopped.
  void Sleep(Duration span) { now_ = now_ + span; }
  // Runs everything up to `now + span`.
  void RunFor(Duration span) {
    const MonotonicTime end = now_ + span;
    RunReady();
    while (!timers_.empty() && timers_.begin()->first.first <= end) RunNextTimer();
    now_ = end;
  }
  // Turns until `condition` holds; false if `limit` of virtual time passed or nothing is left.
  template <typename Condition>
  bool RunUntil(Condition condition, Duration limit = Duration::Seconds(60)) {
    const MonotonicTime end = now_ + limit;
    for (;;) {
      if (condition()) return true;
      if (!tasks_.empty()) {
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        task();
      } else if (!timers_.empty() && timers_.begin()->first.first <= end) {
        RunNextTimer(false);
      } else {
        return false;
      }
    }
  }

 private:
  void RunNextTimer(bool ready = true) {
    auto node = timers_.extract(timers_.begin());
    if (node.key().first > now_) now_ = node.key().first;
    times_.erase(node.key().second);
    node.mapped()();
    if (ready) RunReady();
  }

  MonotonicTime now_ = MonotonicTime::FromMicros(1'000'000);
  TimerId last_timer_ = 0;
  std::deque<Task> tasks_;
  std::map<std::pair<MonotonicTime, TimerId>, Task> timers_;
  std::map<TimerId, MonotonicTime> times_;
};

}  // namespace tailcast::cache
