// Threads that are in a call which may never return: in librados, or in the kernel on a disk that
// hangs. Nobody waits for them but the end of the process, and that for a moment: librados must not
// be in use while its objects are destroyed. If one is still in its call then, the files of stdio
// are flushed, for as long again at most, and the process ends, with its exit code. What the
// program had set to run at its exit (atexit, static objects) before the first of these threads was
// started is then not run.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/time.h"

namespace tailcast::storage {

// Any thread.
class UnawaitedThreads {
 public:
  // What the end of the process waits for them, and then for files of stdio.
  static constexpr Duration kExitWait = Duration::Millis(200);

  // Runs `work` on a thread of its own. `name`: what ps shows, at most 15 bytes.
  static void Start(const char* name, UniqueFunction<void()> work);
  // As Start, once no other thread that was started for the same `target` is in its call. False:
  // one still is, at `until`; `work` is not run. So who tries a target that hangs again and again
  // leaves no more than one thread there.
  static bool StartAlone(const char* name, const std::string& target, MonotonicTime until,
                         UniqueFunction<void()> work);
  // A thread that others have started, and leave to itself from here on. When it is back it calls
  // Returned, and touches nothing that may be gone.
  static void Leave(size_t threads);
  static void Returned();
  static size_t count();
};

// What `work` returns, on a thread of its own, if it does so within `bound`. Else nothing, and what
// it returns later is destroyed on its thread. `target`: as StartAlone, if it is not empty. Blocks.
template <typename T>
std::optional<T> Within(Duration bound, const char* thread_name, UniqueFunction<T()> work,
                        const std::string& target = {}) {
  const MonotonicTime until = ReadMonotonicClock() + bound;
  auto promise = std::make_shared<std::promise<T>>();
  std::future<T> result = promise->get_future();
  UniqueFunction<void()> run = [promise = std::move(promise), work = std::move(work)]() mutable {
    promise->set_value(work());
  };
  if (target.empty()) {
    UnawaitedThreads::Start(thread_name, std::move(run));
  } else if (!UnawaitedThreads::StartAlone(thread_name, target, until, std::move(run))) {
    return std::nullopt;
  }
  const Duration left = until - ReadMonotonicClock();
  if (result.wait_for(std::chrono::microseconds(left.micros())) != std::future_status::ready) {
    return std::nullopt;
  }
  return result.get();
}

}  // namespace tailcast::storage
