#include "tailcast/base/aside.h"

#include <pthread.h>

#include <utility>

namespace tailcast {

Aside::Aside(EventLoop& loop)
    : loop_(loop), thread_([this] {
        pthread_setname_np(pthread_self(), "aside");
        Work();
      }) {}

Aside::~Aside() {
  {
    std::lock_guard lock(mu_);
    ends_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void Aside::Run(UniqueFunction<void()> work, Task done) {
  std::lock_guard lock(mu_);
  if (jobs_.size() >= kWaitingMax) return loop_.Post(std::move(done));
  jobs_.push_back({std::move(work), std::move(done)});
  changed_.notify_one();
}

void Aside::Work() {
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.work();
    job.work = nullptr;
    loop_.Post(std::move(job.done));
    lock.lock();
  }
}

}  // namespace tailcast
