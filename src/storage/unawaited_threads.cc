#include "tailcast/storage/unawaited_threads.h"

#include <pthread.h>
#include <stdlib.h>  // on_exit
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "tailcast/base/log.h"

namespace tailcast::storage {
namespace {

const Logger kLog("storage");

struct Count {
  Count() { on_exit(&Count::AtExit, this); }

  static void AtExit(int status, void* argument) {
    auto& count = *static_cast<Count*>(argument);
    {
      std::unique_lock lock(count.mutex);
      const auto wait = std::chrono::microseconds(UnawaitedThreads::kExitWait.micros());
      if (count.back.wait_for(lock, wait, [&] { return count.threads == 0; })) return;
      kLog.Warn("ends while ", count.threads,
                count.threads == 1 ? " thread waits" : " threads wait",
                " for a store that does not answer");
    }
    std::fflush(stdout);
    std::fflush(stderr);
    _exit(status);
  }

  std::mutex mutex;
  std::condition_variable back;
  size_t threads = 0;  // guarded by mutex
};

// Never destroyed: its threads may come back at the very end.
Count& TheCount() {
  static Count& count = *new Count;
  return count;
}

}  // namespace

void UnawaitedThreads::Start(const char* name, UniqueFunction<void()> work) {
  Leave(1);
  std::thread([name = std::string(name), work = std::move(work)]() mutable {
    pthread_setname_np(pthread_self(), name.c_str());
    work();
    work = nullptr;
    Returned();
  }).detach();
}

void UnawaitedThreads::Leave(size_t threads) {
  Count& count = TheCount();
  const std::lock_guard lock(count.mutex);
  count.threads += threads;
}

void UnawaitedThreads::Returned() {
  Count& count = TheCount();
  const std::lock_guard lock(count.mutex);
  if (--count.threads == 0) count.back.notify_all();
}

size_t UnawaitedThreads::count() {
  Count& count = TheCount();
  const std::lock_guard lock(count.mutex);
  return count.threads;
}

}  // namespace tailcast::storage
