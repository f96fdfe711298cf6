// What the conformance suite (store_conformance.h) runs in. For tests.
#pragma once

#include <functional>

#include "tailcast/storage/store.h"

namespace tailcast::storage {

// One storage and the processes that use it.
class ConformanceWorld {
 public:
  virtual ~ConformanceWorld() = default;
  // The store of a process, 0 to 3, opened at the first call. References stay good until Restart.
  virtual Store& store(int process) = 0;
  // The process is killed and a new one opens the storage. Its handles were destroyed before by the
  // test.
  virtual void Restart(int process) = 0;
  // Turns all loops until the condition holds, at most some seconds.
  virtual bool Turn(const std::function<bool()>& done) = 0;
  // Power loss of the storage and all processes, which are started again. Handles were destroyed.
  virtual bool can_lose_power() const = 0;
  virtual void PowerLoss() = 0;
};

}  // namespace tailcast::storage
