#include "tailcast/storage/unawaited_threads.h"

#include <pthread.h>
#include <stdlib.h>  // on_exit
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "tailcast/base/log.h"

namespace tailcast::storage {
namespace {

const Logger kLog("storage");

struct Count {
  std::mutex mutex;
  std::condition_variable changed;
  size_t threads = 0;             // guarded by mutex
  std::set<std::string> targets;  // of StartAlone; guarded by mutex
};

// Never destroyed: its threads may come back at the very end.
Count& TheCount() {
  static Count& count = *new Count;
  return count;
}

void AtExit(int status, void*) {
  Count& count = TheCount();
  {
    std::unique_lock lock(count.mutex);
    const auto wait = std::chrono::microseconds(UnawaitedThreads::kExitWait.micros());
    if (count.changed.wait_for(lock, wait, [&] { return count.threads == 0; })) return;
    kLog.Warn("ends while ", count.threads, count.threads == 1 ? " thread waits" : " threads wait",
              " for a store that does not answer");
  }
  // A file that another thread reads, or one on the disk that hangs, holds up those behind it.
  Within<bool>(UnawaitedThreads::kExitWait, "exit-flush", [] {
    std::fflush(stdout);
    std::fflush(stderr);
    return std::fflush(nullptr) == 0;
  });
  _exit(status);
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

bool UnawaitedThreads::StartAlone(const char* name, const std::string& target, MonotonicTime until,
                                  UniqueFunction<void()> work) {
  Count& count = TheCount();
  {
    std::unique_lock lock(count.mutex);
    const auto wait = std::chrono::microseconds((until - ReadMonotonicClock()).micros());
    const auto none = [&] { return count.targets.count(target) == 0; };
    if (!count.changed.wait_for(lock, wait, none)) return false;
    count.targets.insert(target);
  }
  Start(name, [target, work = std::move(work)]() mutable {
    work();
    work = nullptr;
    Count& left = TheCount();
    const std::lock_guard lock(left.mutex);
    left.targets.erase(target);
    left.changed.notify_all();
  });
  return true;
}

void UnawaitedThreads::Leave(size_t threads) {
  Count& count = TheCount();
  const std::lock_guard lock(count.mutex);
  // What is set to run at the exit runs in the reverse order: so this is set anew, behind whatever
  // librados and what it uses have set by now, which must not be destroyed under a thread in it.
  if (count.threads == 0) on_exit(&AtExit, nullptr);
  count.threads += threads;
}

void UnawaitedThreads::Returned() {
  Count& count = TheCount();
  const std::lock_guard lock(count.mutex);
  if (--count.threads == 0) count.changed.notify_all();
}

size_t UnawaitedThreads::count() {
  Count& count = TheCount();
  const std::lock_guard lock(count.mutex);
  return count.threads;
}

}  // namespace tailcast::storage
