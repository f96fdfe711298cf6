// The descriptors of a ThreadLoop.
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/thread_loop.h"

namespace tailcast {

// Waiter: the thread that waits for descriptors while the loop sleeps on futexes.
//
//              armed by the loop               one is ready, or the end: the loop is woken
//    resting ──────────────────▶ in epoll_wait ─────────────────────────────────────────▶ resting
struct ThreadLoop::Descriptors {
  explicit Descriptors(ThreadLoop& owner) : loop(owner) {}
  ~Descriptors() {
    if (waiter.joinable()) {
      {
        std::lock_guard lock(mutex);
        ending = true;
      }
      changed.notify_one();
      Ring();
      waiter.join();
    }
    if (epoll_fd >= 0) close(epoll_fd);
    if (event_fd >= 0) close(event_fd);
  }

  Status Open() {
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event{.events = EPOLLIN, .data = {.fd = event_fd}};
    if (epoll_fd < 0 || event_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &event) != 0) {
      return ResourceExhaustedError(std::string("no epoll for an event loop: ") +
                                    std::strerror(errno));
    }
    return OkStatus();
  }
  void Ring() const {
    const uint64_t one = 1;
    TAILCAST_CHECK(write(event_fd, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN,
                   "an eventfd takes no wake-up");
  }
  void Silence() const {
    uint64_t count;
    (void)!read(event_fd, &count, sizeof(count));
  }
  // Milliseconds, -1: for ever.
  void Look(int timeout_ms) {
    Found(epoll_wait(epoll_fd, events.data(), static_cast<int>(events.size()), timeout_ms));
  }
  void Found(int count) { found = std::max(count, 0); }  // less: a signal came
  void Wait() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return armed || ending; });
      if (ending) return;
      lock.unlock();
      epoll_event event;
      (void)epoll_wait(epoll_fd, &event, 1, -1);
      lock.lock();
      armed = false;
      if (ending) return;
      lock.unlock();
      loop.Wake();  // its turn looks at all of them
      lock.lock();
    }
  }

  ThreadLoop& loop;
  int epoll_fd = -1;
  int event_fd = -1;
  // What the loop's last sleep ended with: the turn after it does not ask again. None: it slept
  // otherwise.
  std::array<epoll_event, 32> events;
  std::optional<int> found;
  // Shared with whoever runs it: it may cancel itself.
  std::map<int, std::shared_ptr<Callback<void()>>> ready;

  std::thread waiter;
  std::mutex mutex;
  std::condition_variable changed;
  bool armed = false;   // guarded by mutex
  bool ending = false;  // guarded by mutex
};

void ThreadLoop::DescriptorsDeleter::operator()(Descriptors* descriptors) const {
  delete descriptors;
}

Status ThreadLoop::WatchDescriptor(int fd, Callback<void()> ready) {
  if (descriptors_ == nullptr) {
    std::unique_ptr<Descriptors, DescriptorsDeleter> made(new Descriptors(*this));
    TAILCAST_RETURN_IF_ERROR(made->Open());
    descriptors_ = std::move(made);
  }
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(descriptors_->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
    return ResourceExhaustedError("descriptor " + std::to_string(fd) +
                                  " can't be waited for: " + std::strerror(errno));
  }
  descriptors_->ready[fd] = std::make_shared<Callback<void()>>(std::move(ready));
  return OkStatus();
}

void ThreadLoop::CancelDescriptor(int fd) {
  if (descriptors_ == nullptr) return;
  const auto node = descriptors_->ready.extract(fd);  // destroyed last: its captures may call us
  if (!node) return;
  epoll_ctl(descriptors_->epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
  // Another one of that number has nothing to say yet.
  for (int i = 0; i < descriptors_->found.value_or(0); ++i) {
    epoll_event& event = descriptors_->events[static_cast<size_t>(i)];
    if (event.data.fd == fd) event.data.fd = -1;
  }
}

bool ThreadLoop::HasDescriptors() const { return !descriptors_->ready.empty(); }

size_t ThreadLoop::RunDescriptors() {
  if (descriptors_ == nullptr) return 0;
  if (descriptors_->ready.empty()) {
    descriptors_->found.reset();
    return 0;
  }
  if (!descriptors_->found.has_value()) descriptors_->Look(0);
  size_t ran = 0;
  for (int i = 0; i < *descriptors_->found; ++i) {
    const int fd = descriptors_->events[static_cast<size_t>(i)].data.fd;
    if (fd == descriptors_->event_fd) {
      descriptors_->Silence();
      continue;
    }
    const auto found = descriptors_->ready.find(fd);
    if (found == descriptors_->ready.end()) continue;  // cancelled since
    const std::shared_ptr<Callback<void()>> ready = found->second;
    now_ = ReadMonotonicClock();
    in_callback_ = true;
    (*ready)();
    in_callback_ = false;
    ++ran;
  }
  descriptors_->found.reset();
  return ran;
}

void ThreadLoop::WaitOnDescriptors(MonotonicTime deadline) {
  if (deadline == MonotonicTime::Max()) return descriptors_->Look(-1);
  const int64_t us = std::max<int64_t>(0, (deadline - ReadMonotonicClock()).micros());
  const timespec ts{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1000};
  std::array<epoll_event, 32>& events = descriptors_->events;
  const int count = epoll_pwait2(descriptors_->epoll_fd, events.data(),
                                 static_cast<int>(events.size()), &ts, nullptr);
  if (count >= 0 || errno != ENOSYS) return descriptors_->Found(count);
  // A kernel before 5.11 counts in milliseconds: early would turn the loop over and over.
  descriptors_->Look(static_cast<int>((us + 999) / 1000));
}

void ThreadLoop::Wake() {
  Sleeper sleeper;
  {
    std::lock_guard lock(mutex_);
    sleeper = SignalLocked();
  }
  sleeper.Wake();
}

void ThreadLoop::WakePoll() { descriptors_->Ring(); }

void ThreadLoop::ArmWaiter() {
  if (descriptors_->ready.empty()) return;
  {
    std::lock_guard lock(descriptors_->mutex);
    if (descriptors_->armed) return;
    descriptors_->armed = true;
  }
  if (!descriptors_->waiter.joinable()) {
    descriptors_->waiter = std::thread([this] {
      pthread_setname_np(pthread_self(), "loop-waiter");
      descriptors_->Wait();
    });
  }
  descriptors_->changed.notify_one();
}

}  // namespace tailcast
