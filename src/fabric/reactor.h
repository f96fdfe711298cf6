// One thread that waits for sockets: the engine of the real drivers. A server's exporter has one
// for all its connections, a connector has one for all its endpoints.
//
// It sleeps in epoll without a timeout unless a timer is set, so an idle one costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::fabric {

class Reactor {
 public:
  // Called on the reactor's thread with EPOLL* bits. It may remove and destroy itself.
  class Handler {
   public:
    virtual void OnEvents(uint32_t events) = 0;

   protected:
    ~Handler() = default;
  };

  explicit Reactor(const std::string& name);
  // Ends the thread; tasks and timers that are left are destroyed without being run. Not from the
  // reactor's own thread.
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Any thread, in order. What the reactor's own thread posts runs in this round or the next, never
  // inside the call, and costs no system call.
  void Post(Task task);
  // Runs `function` on the reactor's thread and waits for it; at once if this is that thread. It
  // must not wait for the caller.
  void Call(UniqueFunction<void()> function);
  bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // The rest: reactor thread only.

  // Watches `fd`, level-triggered. The handler gets no event after Remove, not even one that the
  // kernel has reported already.
  Status Add(int fd, uint32_t events, Handler* handler);
  void Modify(int fd, uint32_t events);
  void Remove(int fd);
  // Time of this round.
  MonotonicTime Now() const { return now_; }
  uint64_t At(MonotonicTime when, Task task);
  void Cancel(uint64_t timer);

 private:
  struct Slot {
    int fd = -1;
    uint32_t use = 0;  // tells an event of an earlier tenant
    Handler* handler = nullptr;
  };
  void Run();
  void RunPosted();
  void RunTimers();

  int epoll_fd_ = -1;
  int event_fd_ = -1;
  MonotonicTime now_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::map<int, uint32_t> slot_of_fd_;
  std::map<std::pair<MonotonicTime, uint64_t>, Task> timers_;
  std::map<uint64_t, MonotonicTime> timer_times_;
  uint64_t next_timer_ = 1;

  std::mutex mutex_;
  std::vector<Task> posted_;  // guarded by mutex_
  bool stop_ = false;         // guarded by mutex_
  std::vector<Task> batch_;
  bool posted_here_ = false;  // by its own thread, which looks without being woken

  std::thread thread_;  // last: starts when all else is made
};

}  // namespace tailcast::fabric
