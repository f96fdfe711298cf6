#include "tailcast/base/thread_loop.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <ctime>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"

namespace tailcast {
namespace {

// Debian 12's glibc has no wrapper and its kernel headers may be older than the running kernel.
constexpr long kFutexWaitvNumber = 449;
struct FutexWaitv {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
constexpr uint32_t kFutex32 = 2;
constexpr uint32_t kFutexPrivate = FUTEX_PRIVATE_FLAG;

// Without futex_waitv: how often watched words are looked at.
constexpr Duration kWordPollInterval = Duration::Millis(1);

timespec ToTimespec(MonotonicTime time) {
  const int64_t us = std::max<int64_t>(time.micros(), 0);
  timespec ts;
  ts.tv_sec = us / 1000000;
  ts.tv_nsec = us % 1000000 * 1000;
  return ts;
}

uint32_t* Address(const std::atomic<uint32_t>* word) {
  static_assert(sizeof(*word) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint32_t>*>(word));
}

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadLoop::ThreadLoop(Options options)
    : options_(options), has_waitv_(options.use_futex_waitv), now_(ReadMonotonicClock()) {}

ThreadLoop::~ThreadLoop() {
  TAILCAST_CHECK(!turning_, "a loop is destroyed while it runs");
  std::vector<Task> left;
  // Their captures may cancel timers.
  std::vector<TimerSlot> timers(1);
  timers.swap(timer_slots_);
  timers_.clear();
  free_timer_slots_.clear();
  {
    // A poster may still be leaving Post: whoever has the mutex after it comes after its last
    // touch.
    std::lock_guard lock(mutex_);
    stopped_ = true;
    left.swap(inbox_);
  }
}

MonotonicTime ThreadLoop::Now() const { return in_callback_ ? now_ : ReadMonotonicClock(); }
WallTime ThreadLoop::WallNow() const { return ReadWallClock(); }

ThreadLoop::Sleeper ThreadLoop::SignalLocked() {
  // Under the mutex, so that the loop can't take the task and be destroyed before our last touch of
  // it. FUTEX_WAKE uses the address only, so it may follow: a sleeper that is woken while the mutex
  // is held would sleep once more, for it.
  const uint32_t before = mailbox_.exchange(kPosted, std::memory_order_acq_rel);
  if (before == kPolling) WakePoll();
  return Sleeper(before == kSleeping ? Address(&mailbox_) : nullptr);
}

void ThreadLoop::Sleeper::Wake() const {
  if (word_ == nullptr) return;
  syscall(SYS_futex, word_, FUTEX_WAKE | kFutexPrivate, 1, nullptr, nullptr, 0);
}

void ThreadLoop::Post(Task&& task) {
  Sleeper sleeper;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    inbox_.push_back(std::move(task));
    sleeper = SignalLocked();
  }
  sleeper.Wake();
}

void ThreadLoop::Stop() {
  Sleeper sleeper;
  {
    std::lock_guard lock(mutex_);
    stopped_.store(true, std::memory_order_release);
    sleeper = SignalLocked();
  }
  sleeper.Wake();
}

bool ThreadLoop::stopped() const { return stopped_.load(std::memory_order_acquire); }

TimerId ThreadLoop::At(MonotonicTime when, Task task) {
  // Cancelled timers wait in the heap for their time; don't let them pile up.
  const size_t set = timer_slots_.size() - 1 - free_timer_slots_.size();
  if (timers_.size() > 64 && timers_.size() > 2 * set) {
    std::erase_if(timers_, [this](const Timer& t) { return !IsSet(t.id); });
    std::make_heap(timers_.begin(), timers_.end(), TimerAfter);
  }
  if (free_timer_slots_.empty()) {
    TAILCAST_CHECK(timer_slots_.size() < kTimerSlots, "too many timers");
    free_timer_slots_.push_back(static_cast<uint32_t>(timer_slots_.size()));
    timer_slots_.emplace_back();
  }
  const uint32_t place = free_timer_slots_.back();
  free_timer_slots_.pop_back();
  TimerSlot& slot = timer_slots_[place];
  slot.task = std::move(task);
  slot.id = slot.used++ * kTimerSlots + place;
  timers_.push_back({when, next_timer_++, slot.id});
  std::push_heap(timers_.begin(), timers_.end(), TimerAfter);
  return slot.id;
}

Task ThreadLoop::TakeTimer(TimerId id) {
  const auto place = static_cast<uint32_t>(id % kTimerSlots);
  TimerSlot& slot = timer_slots_[place];
  slot.id = 0;
  free_timer_slots_.push_back(place);
  return std::exchange(slot.task, nullptr);
}

void ThreadLoop::Cancel(TimerId id) {
  if (!IsSet(id)) return;
  const Task task = TakeTimer(id);  // destroyed last: its captures may call us
}

WordWatchId ThreadLoop::WatchWord(const std::atomic<uint32_t>* word, uint32_t last_seen,
                                  Task changed) {
  if (words_.size() >= kWatchedWordsMax) return 0;
  const WordWatchId id = next_word_++;
  words_.push_back({word, last_seen, id, std::move(changed)});
  return id;
}

void ThreadLoop::CancelWord(WordWatchId id) {
  Task dropped;
  for (std::vector<Word>* list : {&words_, &fired_}) {
    for (size_t i = 0; i < list->size(); ++i) {
      if ((*list)[i].id != id) continue;
      dropped = std::move((*list)[i].changed);
      if (list == &words_) {
        words_.erase(words_.begin() + static_cast<ptrdiff_t>(i));
      } else {
        fired_[i].id = 0;  // RunWords is on its way through fired_
      }
      return;
    }
  }
}

void ThreadLoop::RunTask(Task& task) {
  now_ = ReadMonotonicClock();
  in_callback_ = true;
  task();
  task = nullptr;  // its captures are destroyed while the time stands still, too
  in_callback_ = false;
}

MonotonicTime ThreadLoop::NextTimer() {
  while (!timers_.empty()) {
    if (IsSet(timers_.front().id)) return timers_.front().when;
    std::pop_heap(timers_.begin(), timers_.end(), TimerAfter);
    timers_.pop_back();
  }
  return MonotonicTime::Max();
}

size_t ThreadLoop::RunTimers() {
  if (timers_.empty()) return 0;
  // Those that timers set wait for the next turn, even if they are due: none starves the mailbox.
  const uint64_t limit = next_timer_;
  const MonotonicTime now = ReadMonotonicClock();
  size_t ran = 0;
  while (NextTimer() <= now && timers_.front().number < limit) {
    const TimerId id = timers_.front().id;
    std::pop_heap(timers_.begin(), timers_.end(), TimerAfter);
    timers_.pop_back();
    Task task = TakeTimer(id);
    RunTask(task);
    ++ran;
  }
  return ran;
}

size_t ThreadLoop::RunMailbox() {
  if (mailbox_.load(std::memory_order_relaxed) == kEmpty) return 0;
  {
    std::lock_guard lock(mutex_);
    mailbox_.store(kEmpty, std::memory_order_relaxed);
    batch_.swap(inbox_);
  }
  const size_t ran = batch_.size();
  for (Task& task : batch_) RunTask(task);
  batch_.clear();
  return ran;
}

size_t ThreadLoop::RunWords() {
  if (words_.empty()) return 0;
  for (size_t i = 0; i < words_.size();) {
    if (words_[i].word->load(std::memory_order_acquire) == words_[i].last_seen) {
      ++i;
      continue;
    }
    fired_.push_back(std::move(words_[i]));
    words_.erase(words_.begin() + static_cast<ptrdiff_t>(i));
  }
  size_t ran = 0;
  for (size_t i = 0; i < fired_.size(); ++i) {  // CancelWord may void entries meanwhile
    if (fired_[i].id == 0) continue;
    fired_[i].id = 0;
    Task task = std::move(fired_[i].changed);
    RunTask(task);
    ++ran;
  }
  fired_.clear();
  return ran;
}

size_t ThreadLoop::Turn() {
  TAILCAST_CHECK(!turning_, "Run* is called from inside a callback of the loop");
  turning_ = true;
  // What has come before timers: a thread that waited for a processor while an answer came and its
  // time-out went by shall not take it for late.
  size_t ran = RunWords();
  ran += RunDescriptors();
  ran += RunMailbox();
  if (descriptors_ != nullptr && NextTimer() <= ReadMonotonicClock()) {
    ran += RunDescriptors();  // since the sleep ended
    ran += RunMailbox();
  }
  if (!stopped()) ran += RunTimers();
  turning_ = false;
  return ran;
}

size_t ThreadLoop::RunOnce() { return Turn(); }

void ThreadLoop::Run() {
  RunUntil([] { return false; }, MonotonicTime::Max());
}

void ThreadLoop::RunFor(Duration duration) {
  RunUntil([] { return false; }, ReadMonotonicClock() + duration);
}

bool ThreadLoop::RunUntil(const std::function<bool()>& done, MonotonicTime deadline) {
  for (;;) {
    if (stopped()) {
      RunMailbox();  // nothing is added to it any more
      return done();
    }
    const size_t ran = Turn();
    if (done()) return true;
    if (deadline != MonotonicTime::Max() && ReadMonotonicClock() >= deadline) return false;
    // A Stop during the turn may have left nothing but an empty mailbox, which the turn has
    // cleared.
    if (stopped()) continue;
    // To sleep in epoll is to look at the descriptors: a turn that finds nothing would look twice.
    const bool polls = words_.empty() && descriptors_ != nullptr && HasDescriptors();
    if (ran == 0 || polls) SleepUntil(std::min(deadline, NextTimer()));
  }
}

bool ThreadLoop::HasWork() const {
  if (mailbox_.load(std::memory_order_acquire) != kEmpty) return true;
  return std::any_of(words_.begin(), words_.end(), [](const Word& w) {
    return w.word->load(std::memory_order_acquire) != w.last_seen;
  });
}

void ThreadLoop::SleepUntil(MonotonicTime deadline) {
  const bool descriptors = descriptors_ != nullptr && HasDescriptors();
  if (options_.spin > Duration() && !descriptors) {
    const MonotonicTime spin_end = std::min(deadline, ReadMonotonicClock() + options_.spin);
    do {
      for (int i = 0; i < 16; ++i) {
        if (HasWork()) return;
        CpuRelax();
      }
    } while (ReadMonotonicClock() < spin_end);
    if (spin_end == deadline) return;
  }
  const bool poll = descriptors && words_.empty();
  const uint32_t asleep = poll ? kPolling : kSleeping;
  uint32_t expected = kEmpty;
  if (!mailbox_.compare_exchange_strong(expected, asleep, std::memory_order_acq_rel)) return;
  ++sleeps_;
  if (poll) {
    WaitOnDescriptors(deadline);
  } else {
    if (descriptors) ArmWaiter();
    WaitOnFutexes(deadline);
  }
  // Not asleep any more, unless a poster got in before us.
  expected = asleep;
  mailbox_.compare_exchange_strong(expected, kEmpty, std::memory_order_acq_rel);
}

void ThreadLoop::WaitOnFutexes(MonotonicTime deadline) {
  if (!words_.empty() && has_waitv_) {
    std::array<FutexWaitv, kWatchedWordsMax + 1> waits;
    waits[0] = {kSleeping, reinterpret_cast<uint64_t>(Address(&mailbox_)), kFutex32 | kFutexPrivate,
                0};
    size_t count = 1;
    for (const Word& w : words_) {
      waits[count++] = {w.last_seen, reinterpret_cast<uint64_t>(Address(w.word)), kFutex32, 0};
    }
    const timespec ts = ToTimespec(deadline);
    const long rc = syscall(kFutexWaitvNumber, waits.data(), count, 0,
                            deadline == MonotonicTime::Max() ? nullptr : &ts, CLOCK_MONOTONIC);
    if (rc >= 0 || errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) return;
    // ENOSYS: a kernel before 5.16. EPERM: a container's filter. Both for ever.
    TAILCAST_CHECK(errno == ENOSYS || errno == EPERM || errno == EACCES,
                   "futex_waitv failed: a watched word is not mapped any more");
    has_waitv_ = false;
  }
  if (!words_.empty()) deadline = std::min(deadline, ReadMonotonicClock() + kWordPollInterval);
  const timespec ts = ToTimespec(deadline);
  // The bitset form takes an absolute time of the monotonic clock.
  syscall(SYS_futex, Address(&mailbox_), FUTEX_WAIT_BITSET | kFutexPrivate, kSleeping,
          deadline == MonotonicTime::Max() ? nullptr : &ts, nullptr, FUTEX_BITSET_MATCH_ANY);
}

LoopThread::LoopThread(const std::string& name, ThreadLoop::Options options)
    : loop_(std::make_unique<ThreadLoop>(options)), thread_([this, name] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        // The default of 50 us would be added to each timer.
        prctl(PR_SET_TIMERSLACK, 1000UL);
        loop_->Run();
      }) {}

LoopThread::~LoopThread() {
  loop_->Stop();
  thread_.join();
}

void LoopThread::Call(UniqueFunction<void()> function) {
  std::mutex mutex;
  std::condition_variable ready;
  bool ran = false;
  const Scope scope;  // lives until the task has run
  loop_->Post(scope.Bind([&] {
    function();
    std::lock_guard lock(mutex);
    ran = true;
    ready.notify_one();
  }));
  std::unique_lock lock(mutex);
  ready.wait(lock, [&] { return ran; });
}

}  // namespace tailcast
