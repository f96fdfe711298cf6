// Threads that are in a call which may never return: in librados, or in the kernel on a disk that
// hangs. Nobody waits for them but the end of the process, and that for a moment: librados must not
// be in use while its static objects are destroyed. If one is still in its call then, the process
// ends at once, with its exit code, and destroys nothing.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/time.h"

namespace tailcast::storage {

// Any thread.
class UnawaitedThreads {
 public:
  // What the end of the process waits for them.
  static constexpr Duration kExitWait = Duration::Millis(200);

  // Runs `work` on a thread of its own. `name`: what ps shows, at most 15 bytes.
  static void Start(const char* name, UniqueFunction<void()> work);
  // A thread that others have started, and leave to itself from here on. When it is back it calls
  // Returned, and touches nothing that may be gone.
  static void Leave(size_t threads);
  static void Returned();
  static size_t count();
};

// What `work` returns, on a thread of its own, if it does so within `bound`. Else nothing, and what
// it returns later is destroyed on its thread. Blocks.
template <typename T>
std::optional<T> Within(Duration bound, const char* thread_name, UniqueFunction<T()> work) {
  auto promise = std::make_shared<std::promise<T>>();
  std::future<T> result = promise->get_future();
  UnawaitedThreads::Start(thread_name,
                          [promise = std::move(promise), work = std::move(work)]() mutable {
                            promise->set_value(work());
                          });
  if (result.wait_for(std::chrono::microseconds(bound.micros())) != std::future_status::ready) {
    return std::nullopt;
  }
  return result.get();
}

}  // namespace tailcast::storage
