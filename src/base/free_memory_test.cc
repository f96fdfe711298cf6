#include "tailcast/base/free_memory.h"

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
  EXPECT_TRUE(ReturnFreeMemory(kBytes / 2));
  EXPECT_LT(ResidentBytes(), before - kBytes / 2);
  EXPECT_FALSE(ReturnFreeMemory(int64_t{1} << 40)) << "too little is free";
}

}  // namespace
}  // namespace tailcast
