// Threads for system calls that block, and may hang. Work starts in the order in which it was
// given.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/time.h"

namespace tailcast::storage {

// One thread's: the owner's. Threads start with the first work that finds none idle, up to the
// limit; so that is how many can hang.
class BlockingPool {
 public:
  // `name`: what ps shows, at most 15 bytes. threads_max > 0.
  BlockingPool(const std::string& name, size_t threads_max);
  // As End, for as long as it takes.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  using Work = UniqueFunction<void()>;
  // `number` counts up.
  void Submit(uint64_t number, Work work);
  // Drops it, unless it has begun.
  void Drop(uint64_t number);
  // From here on nothing begins; what has not is dropped.
  void Close();
  // Closes it, and waits until `until` for what is under way. Returns how many threads are still in
  // their work then: they are left to themselves (unawaited_threads.h).
  size_t End(MonotonicTime until);
  // Pieces of work that wait for a thread.
  size_t queued() const;
  // The kernel's numbers of the threads that are in their work.
  std::vector<pid_t> busy() const;

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const size_t threads_max_;
  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace tailcast::storage
