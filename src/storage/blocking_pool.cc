#include "tailcast/storage/blocking_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/storage/unawaited_threads.h"

namespace tailcast::storage {

// Outlives the pool as long as a thread does.
struct BlockingPool::State {
  explicit State(std::string n) : name(std::move(n)) {}

  const std::string name;
  std::mutex mutex;
  // All of what follows is guarded by it.
  std::condition_variable wake;
  std::condition_variable returned;
  std::map<uint64_t, Work> queue;
  std::set<pid_t> busy;
  size_t running = 0;  // threads
  size_t idle = 0;
  bool closed = false;
  bool left = false;  // nobody waits for the threads any more
};

BlockingPool::BlockingPool(const std::string& name, size_t threads_max)
    : threads_max_(threads_max), state_(std::make_shared<State>(name.substr(0, 15))) {
  TAILCAST_CHECK(threads_max > 0, "a pool needs a thread");
}

BlockingPool::~BlockingPool() {
  Close();
  for (std::thread& thread : threads_) thread.join();
}

void BlockingPool::Submit(uint64_t number, Work work) {
  State& s = *state_;
  bool notify = false;
  {
    const std::lock_guard lock(s.mutex);
    TAILCAST_CHECK(!s.closed, "work for a pool that ends");
    s.queue.emplace(number, std::move(work));
    if (s.idle >= s.queue.size()) {
      notify = true;
    } else if (threads_.size() < threads_max_) {
      ++s.running;
      threads_.emplace_back([state = state_] { Run(state); });
    }
  }
  if (notify) s.wake.notify_one();
}

void BlockingPool::Drop(uint64_t number) {
  std::map<uint64_t, Work>::node_type dropped;  // destroyed without the lock
  const std::lock_guard lock(state_->mutex);
  dropped = state_->queue.extract(number);
}

void BlockingPool::Close() {
  std::map<uint64_t, Work> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    dropped.swap(state_->queue);
  }
  state_->wake.notify_all();
}

size_t BlockingPool::End(MonotonicTime until) {
  Close();
  State& s = *state_;
  const auto wait = std::chrono::microseconds((until - ReadMonotonicClock()).micros());
  size_t left = 0;
  {
    std::unique_lock lock(s.mutex);
    if (!s.returned.wait_for(lock, wait, [&s] { return s.running == 0; })) {
      s.left = true;
      left = s.running;
      UnawaitedThreads::Leave(left);
    }
  }
  for (std::thread& thread : threads_) left == 0 ? thread.join() : thread.detach();
  threads_.clear();
  return left;
}

size_t BlockingPool::queued() const {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.size();
}

std::vector<pid_t> BlockingPool::busy() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->busy.begin(), state_->busy.end()};
}

void BlockingPool::Run(const std::shared_ptr<State>& state) {
  State& s = *state;
  pthread_setname_np(pthread_self(), s.name.c_str());
  const pid_t self = gettid();
  std::unique_lock lock(s.mutex);
  while (!s.closed) {
    if (s.queue.empty()) {
      ++s.idle;
      s.wake.wait(lock, [&s] { return s.closed || !s.queue.empty(); });
      --s.idle;
      continue;
    }
    Work work = std::move(s.queue.extract(s.queue.begin()).mapped());
    s.busy.insert(self);
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    s.busy.erase(self);
  }
  if (--s.running == 0) s.returned.notify_all();
  if (s.left) UnawaitedThreads::Returned();
}

}  // namespace tailcast::storage
