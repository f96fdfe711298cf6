#include "tailcast/base/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tailcast {
namespace {

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t PageFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(FreeMemory, GoesBackThoughSomethingIsUsedAboveIt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator keeps what is freed";
#endif
  constexpr int kBlocks = 640;
  constexpr int64_t kBytes = kBlocks * int64_t{100'000};
  std::vector<std::string> blocks;
  std::vector<std::unique_ptr<char>> used;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.emplace_back(100'000, 'x');
    used.push_back(std::make_unique<char>('u'));
  }
  const int64_t before = ResidentBytes();
  blocks.clear();
  EXPECT_GT(ResidentBytes(), before - kBytes / 2) << "else there is nothing to do";
  FreeMemory memory(kBytes / 2);
  EXPECT_TRUE(memory.Return());
  EXPECT_LT(ResidentBytes(), before - kBytes / 2);
  EXPECT_FALSE(memory.Return()) << "nothing more is free";
  EXPECT_FALSE(FreeMemory(int64_t{1} << 40).Return()) << "too little is free";
  for (int i = 0; i < kBlocks; ++i) blocks.emplace_back(100'000, 'x');
  EXPECT_FALSE(memory.Return()) << "it is used again";
  blocks.clear();
  EXPECT_TRUE(memory.Return()) << "and free again";
  for (int i = 0; i < kBlocks; ++i) blocks.emplace_back(100'000, 'x');
  blocks.clear();
  EXPECT_TRUE(memory.Return()) << "it was used and freed since the last look";
  EXPECT_LT(ResidentBytes(), before - kBytes / 2);
}

TEST(FreeMemory, WhatIsKeptIsUsedAgainWithoutFaults) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator keeps what is freed";
#endif
  constexpr size_t kBytes = 4 << 20;
  const auto faults_of_a_buffer = [] {
    const int64_t before = PageFaults();
    const std::string buffer(kBytes, 'b');
    return buffer.back() == 'b' ? PageFaults() - before : 0;
  };
  KeepFreedMemory();
  faults_of_a_buffer();
  EXPECT_LT(faults_of_a_buffer(), 100);
}

}  // namespace
}  // namespace tailcast
