// The real EventLoop: one thread's queue of tasks, timers, watched memory words and descriptors.
//
//   watches                  sleeps in
//   words, or nothing        one futex_waitv (Linux 5.16) over its mailbox and the words
//   descriptors              one epoll_pwait over them and an eventfd, which a post writes
//   both                     futex_waitv; a thread of the loop's own waits for the descriptors
//
// So a notification through a shared-memory doorbell or by a socket wakes it without another thread
// in between, unless it waits for both, which no call of the kernel does. An idle loop uses no CPU:
// there is no periodic wakeup.
//
// Threads: Post and Stop from any thread. All else on the loop's thread: the one that calls Run*,
// or, while nobody runs the loop, the thread that will do so next.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"

namespace tailcast {

// 0 is no watch.
using WordWatchId = uint64_t;

class ThreadLoop final : public EventLoop {
 public:
  struct Options {
    // How long to look for work in a busy loop before sleeping: saves the wake-up latency (some
    // microseconds) for a whole core while it spins. 0 = sleep at once, as with descriptors.
    Duration spin;
    // False: never use futex_waitv, as on a kernel that lacks it. For tests.
    bool use_futex_waitv = true;
  };
  // Words that one loop can watch: the kernel takes 128 futexes in a call, one is the mailbox.
  static constexpr size_t kWatchedWordsMax = 120;

  ThreadLoop() : ThreadLoop(Options{}) {}
  explicit ThreadLoop(Options options);
  // Tasks, timers and watches that are left are destroyed without being run. Nobody may be inside
  // Run*, and nobody may post any more.
  ~ThreadLoop() override;
  ThreadLoop(const ThreadLoop&) = delete;
  ThreadLoop& operator=(const ThreadLoop&) = delete;

  // In a callback: the time at which it was started. Elsewhere: the clock.
  MonotonicTime Now() const override;
  WallTime WallNow() const override;
  void Post(Task&& task) override;
  TimerId At(MonotonicTime when, Task task) override;
  void Cancel(TimerId id) override;

  // Calls `changed` once, in a later turn of the loop, when `*word != last_seen`, at once if that
  // is so already. Between turns the loop sleeps on the word as a *shared* futex: who changes it in
  // this or another process calls FUTEX_WAKE (not private) on it. The word is only read, so it may
  // lie in a mapping without write access; it must stay mapped until the call or the cancel.
  // Returns 0, and will not call, when kWatchedWordsMax words are watched already: poll instead.
  WordWatchId WatchWord(const std::atomic<uint32_t>* word, uint32_t last_seen, Task changed);
  // The callback of a cancelled watch is not called. Unknown ids, and 0, are ignored.
  void CancelWord(WordWatchId id);
  size_t watched_words() const { return words_.size(); }

  // Calls `ready`, again and again, in turns of the loop in which `fd` was readable, or had an
  // error or a hang-up to report, when the loop looked last (level-triggered, as of epoll): `ready`
  // may find nothing, and does not block. `fd` stays open until the watch is cancelled, which
  // `ready` may do, and destroy what it likes.
  //   ResourceExhausted: the kernel takes no more.
  Status WatchDescriptor(int fd, Callback<void()> ready);
  // `ready` is not called any more. Unknown ones are ignored.
  void CancelDescriptor(int fd);

  // Turns the loop until Stop.
  void Run();
  // Turns the loop on the caller's thread until `done()`, which is asked after each turn, or until
  // `deadline` or Stop. Returns whether `done()` held. Not from inside a callback.
  bool RunUntil(const std::function<bool()>& done, MonotonicTime deadline);
  void RunFor(Duration duration);
  // One turn that does not sleep: what is due and what was posted before. Returns how many
  // callbacks ran.
  size_t RunOnce();

  // Ends Run, RunUntil and RunFor, now and for ever, after the tasks that were posted before it.
  // Later posts are destroyed at once, on the thread that posts them; timers run no more.
  void Stop();
  bool stopped() const;

  // How often the loop had nothing to do and asked the kernel to let it sleep, which it does unless
  // something has come meanwhile; for tests and metrics. Loop thread only.
  uint64_t sleeps() const { return sleeps_; }
  // False when this kernel refused futex_waitv: then a loop with watched words looks at them once a
  // millisecond.
  bool has_futex_waitv() const { return has_waitv_; }

 private:
  struct Timer {
    MonotonicTime when;
    uint64_t number = 0;  // grows: ties run in the order in which they were set
    TimerId id = 0;
  };
  // Where a timer's task is. A TimerId is the slot's place, and how often it was used before.
  struct TimerSlot {
    Task task;
    TimerId id = 0;  // whose timer is set; 0: it is free
    uint64_t used = 0;
  };
  struct Word {
    const std::atomic<uint32_t>* word = nullptr;
    uint32_t last_seen = 0;
    WordWatchId id = 0;
    Task changed;
  };
  struct Descriptors;  // thread_loop_descriptors.cc
  struct DescriptorsDeleter {
    void operator()(Descriptors* descriptors) const;
  };
  // Values of mailbox_: kEmpty -> kSleeping or kPolling by the loop; anything -> kPosted by a
  // poster, who wakes the loop if it replaced one of those: it sleeps on the futex, or in epoll.
  static constexpr uint32_t kEmpty = 0, kPosted = 1, kSleeping = 2, kPolling = 3;

  // At the same time; a slot is used 2^40 times before an id comes again.
  static constexpr uint64_t kTimerSlots = 1 << 24;

  static bool TimerAfter(const Timer& a, const Timer& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }
  void RunTask(Task& task);
  size_t Turn();
  size_t RunTimers();
  size_t RunMailbox();
  size_t RunWords();
  size_t RunDescriptors();
  bool IsSet(TimerId id) const {
    const uint64_t place = id % kTimerSlots;
    return place != 0 && place < timer_slots_.size() && timer_slots_[place].id == id;
  }
  // Of one that is set; it is not any more.
  Task TakeTimer(TimerId id);
  // When the next timer is due; Max if there is none. Drops cancelled timers from the heap's top.
  MonotonicTime NextTimer();
  bool HasWork() const;
  void SleepUntil(MonotonicTime deadline);
  void WaitOnFutexes(MonotonicTime deadline);
  // Of descriptors_, which there are.
  bool HasDescriptors() const;
  void WaitOnDescriptors(MonotonicTime deadline);
  void WakePoll();  // any thread
  void ArmWaiter();
  void Wake();  // any thread: one more turn
  // A loop that sleeps on its futex, to be woken when the mutex is free; the loop may be gone then.
  class Sleeper {
   public:
    Sleeper() = default;
    explicit Sleeper(uint32_t* word) : word_(word) {}
    void Wake() const;

   private:
    uint32_t* word_ = nullptr;  // null: it does not sleep
  };
  [[nodiscard]] Sleeper SignalLocked();

  const Options options_;
  bool has_waitv_ = true;
  bool in_callback_ = false;
  bool turning_ = false;
  MonotonicTime now_;
  uint64_t sleeps_ = 0;

  std::vector<Timer> timers_;              // a binary heap; cancelled ones stay until they surface
  std::vector<TimerSlot> timer_slots_{1};  // 0 is nobody's
  std::vector<uint32_t> free_timer_slots_;
  uint64_t next_timer_ = 1;
  std::vector<Word> words_;
  std::vector<Word> fired_;
  WordWatchId next_word_ = 1;
  std::unique_ptr<Descriptors, DescriptorsDeleter> descriptors_;  // null: none yet

  std::atomic<uint32_t> mailbox_{kEmpty};
  std::mutex mutex_;
  std::vector<Task> inbox_;           // guarded by mutex_
  std::atomic<bool> stopped_{false};  // set under mutex_
  std::vector<Task> batch_;
};

// A thread that runs a ThreadLoop, from construction to destruction.
class LoopThread {
 public:
  // `name`: what ps and gdb show, at most 15 bytes are kept.
  explicit LoopThread(const std::string& name, ThreadLoop::Options options = {});
  // Stops the loop after the tasks posted so far and joins.
  ~LoopThread();
  ThreadLoop* loop() { return loop_.get(); }
  // Runs `function` on the loop and waits until it ran. Not from the loop itself, not after Stop.
  void Call(UniqueFunction<void()> function);

 private:
  std::unique_ptr<ThreadLoop> loop_;
  std::thread thread_;
};

}  // namespace tailcast
