#include "tailcast/base/thread_times.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <thread>
#include <vector>

#include "tailcast/base/time.h"

namespace tailcast {
namespace {

// What gives way keeps nobody from running, so that nobody has to leave off for it.
TEST(ThreadTimes, WhatGivesWayDoesNotFillTheMachine) {
  const auto before = ReadThreadTimes();
  if (!before.has_value()) GTEST_SKIP() << "this kernel does not say";
  const auto processors = static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN));
  std::atomic<int64_t> ran_us = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < processors; ++i) {
    threads.emplace_back([&] {
      setpriority(PRIO_PROCESS, 0, 19);  // of this thread
      const auto began = ReadThreadTimes();
      const MonotonicTime end = ReadMonotonicClock() + Duration::Millis(500);
      while (ReadMonotonicClock() < end) {
      }
      ran_us += (ReadThreadTimes()->ran - began->ran).micros();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Duration idle = ReadThreadTimes()->idle - before->idle;
  // Of what ran for some hundredths of a second, if others filled the machine, ticks say little.
  const int64_t gave_way_us = ran_us / static_cast<int64_t>(processors);
  EXPECT_GE(idle.micros() + 100'000, gave_way_us * 8 / 10);
}

TEST(CpuOfThreadsNamed, IsWhatTheyHaveRunAndNobodyElse) {
  EXPECT_EQ(CpuOfThreadsNamed("tc-test"), std::nullopt);
  std::atomic<bool> stop{false};
  std::atomic<int> named{0};
  const auto spin = [&] {
    pthread_setname_np(pthread_self(), "tc-test");
    ++named;
    while (!stop) {
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(spin);
  while (named < 2) std::this_thread::yield();
  const auto own = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return Duration::Seconds(t.tv_sec) + Duration::Micros(t.tv_nsec / 1000);
  };
  const Duration process_before = own();
  const Duration before = CpuOfThreadsNamed("tc-test").value();
  // Time of this thread, which is not of that name.
  while (CpuOfThreadsNamed("tc-test").value() - before < Duration::Millis(20)) {
  }
  const Duration ran = CpuOfThreadsNamed("tc-test").value() - before;
  EXPECT_LT(ran, own() - process_before);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  // /proc knows them for a moment yet.
  const MonotonicTime limit = ReadMonotonicClock() + Duration::Seconds(60);
  while (CpuOfThreadsNamed("tc-test") && ReadMonotonicClock() < limit) {
  }
  EXPECT_EQ(CpuOfThreadsNamed("tc-test"), std::nullopt);
}

}  // namespace
}  // namespace tailcast
