#include "tailcast/storage/blocking_pool.h"

#include <pthread.h>

#include <utility>

#include "tailcast/base/check.h"

namespace tailcast::storage {

BlockingPool::BlockingPool(const std::string& name, size_t threads_max)
    : name_(name.substr(0, 15)), threads_max_(threads_max) {
  TAILCAST_CHECK(threads_max > 0, "a pool needs a thread");
}

BlockingPool::~BlockingPool() {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = true;
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlockingPool::Abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
}

void BlockingPool::Submit(Work work) {
  bool notify = false;
  {
    std::lock_guard lock(mutex_);
    TAILCAST_CHECK(!stopping_, "work for a pool that ends");
    queue_.push_back(std::move(work));
    if (idle_ >= queue_.size()) {
      notify = true;
    } else if (threads_.size() < threads_max_) {
      threads_.emplace_back([this] { Run(); });
    }
  }
  if (notify) wake_.notify_one();
}

size_t BlockingPool::queued() const {
  std::lock_guard lock(mutex_);
  return queue_.size();
}

void BlockingPool::Run() {
  pthread_setname_np(pthread_self(), name_.c_str());
  std::unique_lock lock(mutex_);
  for (;;) {
    if (queue_.empty()) {
      if (stopping_) return;
      ++idle_;
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      --idle_;
      continue;
    }
    Work work = std::move(queue_.front());
    queue_.pop_front();
    const bool abandoned = abandoned_;
    lock.unlock();
    work(abandoned);
    work = nullptr;
    lock.lock();
  }
}

}  // namespace tailcast::storage
