// Computations that would stop a loop for too long, on a thread beside it: one at a time, in order.
//
//   Aside aside(loop);
//   aside.Run([tree] { *tree = Plan(...); }, scope.Bind([tree] { ... }));
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"

namespace tailcast {

class Aside {
 public:
  static constexpr size_t kWaitingMax = 64;

  // `loop` outlives it.
  explicit Aside(EventLoop& loop);
  // Waits for what is under way; what has not begun is dropped.
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // Runs `work` on the thread, then posts `done` to the loop; `done` alone if kWaitingMax wait. Any
  // thread.
  void Run(UniqueFunction<void()> work, Task done);

 private:
  struct Job {
    UniqueFunction<void()> work;
    Task done;
  };
  void Work();

  EventLoop& loop_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ends_ = false;
  std::thread thread_;  // last: starts when all else is made
};

}  // namespace tailcast
