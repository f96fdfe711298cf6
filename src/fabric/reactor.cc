#include "tailcast/fabric/reactor.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"

namespace tailcast::fabric {
namespace {
constexpr uint64_t kEventFdTag = ~uint64_t{0};
constexpr int kEventsPerRound = 64;
}  // namespace

Reactor::Reactor(const std::string& name)
    : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      now_(ReadMonotonicClock()) {
  TAILCAST_CHECK(epoll_fd_ >= 0 && event_fd_ >= 0,
                 "out of file descriptors: raise the limit (ulimit -n)");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kEventFdTag}};
  TAILCAST_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, event_fd_, &event) == 0);
  thread_ = std::thread([this, name] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    Run();
  });
}

Reactor::~Reactor() {
  TAILCAST_CHECK(!on_thread(), "a reactor is destroyed by its own thread");
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event_fd_, &one, sizeof(one));
  }
  thread_.join();
  // Destructors of what is left may not expect to be called under a lock.
  std::vector<Task> left;
  left.swap(posted_);
  left.clear();
  timers_.clear();
  close(epoll_fd_);
  close(event_fd_);
}

void Reactor::Post(Task task) {
  std::lock_guard lock(mutex_);
  if (stop_) return;
  posted_.push_back(std::move(task));
  if (on_thread()) {
    posted_here_ = true;
  } else if (posted_.size() == 1) {  // else it was woken, or posted itself, and has not looked yet
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event_fd_, &one, sizeof(one));
  }
}

void Reactor::Call(UniqueFunction<void()> function) {
  if (on_thread()) {
    function();
    return;
  }
  std::mutex mutex;
  std::condition_variable ready;
  bool ran = false;
  const Scope scope;  // lives until the task has run
  Post(scope.Bind([&] {
    function();
    std::lock_guard lock(mutex);
    ran = true;
    ready.notify_one();
  }));
  std::unique_lock lock(mutex);
  ready.wait(lock, [&] { return ran; });
}

Status Reactor::Add(int fd, uint32_t events, Handler* handler) {
  uint32_t index;
  if (free_slots_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& slot = slots_[index];
  slot.fd = fd;
  slot.handler = handler;
  ++slot.use;
  epoll_event event{.events = events, .data = {.u64 = uint64_t{slot.use} << 32 | index}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    slot.handler = nullptr;
    free_slots_.push_back(index);
    return ErrnoStatus(error, "watch a socket");
  }
  slot_of_fd_[fd] = index;
  return OkStatus();
}

void Reactor::Modify(int fd, uint32_t events) {
  const auto it = slot_of_fd_.find(fd);
  TAILCAST_CHECK(it != slot_of_fd_.end(), "a socket that is not watched");
  const Slot& slot = slots_[it->second];
  epoll_event event{.events = events, .data = {.u64 = uint64_t{slot.use} << 32 | it->second}};
  TAILCAST_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0);
}

void Reactor::Remove(int fd) {
  const auto it = slot_of_fd_.find(fd);
  if (it == slot_of_fd_.end()) return;
  Slot& slot = slots_[it->second];
  slot.handler = nullptr;
  slot.fd = -1;
  free_slots_.push_back(it->second);
  slot_of_fd_.erase(it);
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

uint64_t Reactor::At(MonotonicTime when, Task task) {
  const uint64_t id = next_timer_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_[id] = when;
  return id;
}

void Reactor::Cancel(uint64_t timer) {
  const auto it = timer_times_.find(timer);
  if (it == timer_times_.end()) return;
  auto node = timers_.extract(std::pair(it->second, timer));
  timer_times_.erase(it);
}

void Reactor::RunTimers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now_) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

void Reactor::RunPosted() {
  {
    std::lock_guard lock(mutex_);
    batch_.swap(posted_);
  }
  for (Task& task : batch_) {
    task();
    task = nullptr;
  }
  batch_.clear();
}

void Reactor::Run() {
  epoll_event events[kEventsPerRound];
  for (;;) {
    int timeout_ms = -1;
    if (!timers_.empty()) {
      const Duration left = timers_.begin()->first.first - ReadMonotonicClock();
      timeout_ms = static_cast<int>(std::clamp<int64_t>((left.micros() + 999) / 1000, 0, 3600000));
    }
    bool posted = std::exchange(posted_here_, false);
    if (posted) timeout_ms = 0;
    const int count = epoll_wait(epoll_fd_, events, kEventsPerRound, timeout_ms);
    TAILCAST_CHECK(count >= 0 || errno == EINTR, "epoll_wait failed");
    now_ = ReadMonotonicClock();
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kEventFdTag) {
        uint64_t value;
        [[maybe_unused]] const ssize_t n = read(event_fd_, &value, sizeof(value));
        {
          std::lock_guard lock(mutex_);
          if (stop_) return;
        }
        RunPosted();
        posted = false;  // what these posted waits for the next round
        continue;
      }
      const uint32_t index = static_cast<uint32_t>(events[i].data.u64);
      const uint32_t use = static_cast<uint32_t>(events[i].data.u64 >> 32);
      Slot& slot = slots_[index];
      if (slot.handler != nullptr && slot.use == use) slot.handler->OnEvents(events[i].events);
    }
    if (posted) RunPosted();
    RunTimers();
  }
}

}  // namespace tailcast::fabric
