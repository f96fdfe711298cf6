// Threads for system calls that block. Work starts in the order in which they were given.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/callback.h"

namespace tailcast::storage {

// Any thread may submit. Threads start with the first work that finds none idle, up to the limit.
class BlockingPool {
 public:
  // `name`: what ps shows, at most 15 bytes. threads_max > 0.
  BlockingPool(const std::string& name, size_t threads_max);
  // Runs what is queued as abandoned, then joins.
  ~BlockingPool();
  // `abandoned`: the pool ends, and the work is only to say that it was not done.
  using Work = UniqueFunction<void(bool abandoned)>;
  void Submit(Work work);
  // From here on no work is begun but as abandoned.
  void Abandon();
  // Pieces of work that wait for a thread.
  size_t queued() const;

 private:
  void Run();

  const std::string name_;
  const size_t threads_max_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> queue_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool abandoned_ = false;
  bool stopping_ = false;
};

}  // namespace tailcast::storage
