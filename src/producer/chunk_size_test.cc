#include "tailcast/producer/chunk_size.h"

#include <gtest/gtest.h>

#include "tailcast/base/rng.h"

namespace tailcast::producer {
namespace {

// Of a file of this rate, in flushes of 100 ms.
int64_t After(int64_t current, int64_t bytes_per_s) {
  return NextChunkSize(current, bytes_per_s * 60, 600, Duration::Seconds(60));
}

TEST(ChunkSizeTest, IsWhatComesInAMomentWhereFlushesAreLarge) {
  EXPECT_EQ(After(4096, 0), 512);
  EXPECT_EQ(After(4096, 100'000), 1024);
  EXPECT_EQ(After(4096, 330'000), 4096);
  EXPECT_EQ(After(4096, 1'400'000), 16384);
  EXPECT_EQ(After(4096, 5'300'000), 65536);
  EXPECT_EQ(After(65536, 500'000'000), 65536);
  EXPECT_EQ(After(512, 1), 512);
}

TEST(ChunkSizeTest, IsNotMoreThanEightFlushesBut4096WhateverAFlushIs) {
  const auto flushed = [](int64_t bytes) {
    return NextChunkSize(65536, bytes * 24'000, 24'000, Duration::Seconds(1));
  };
  EXPECT_EQ(flushed(250), 4096);
  EXPECT_EQ(flushed(512), 4096);
  EXPECT_EQ(flushed(2'100), 16384);
  EXPECT_EQ(flushed(8'192), 65536);
}

TEST(ChunkSizeTest, AFileWithoutFlushesOrOfNoTimeIsNoTrouble) {
  EXPECT_EQ(NextChunkSize(16384, 0, 0, Duration::Seconds(1)), 16384);
  EXPECT_EQ(NextChunkSize(512, int64_t{1} << 50, 1, Duration()), 65536);
}

TEST(ChunkSizeTest, ARateThatIsHalvedAndDoubledDoesNotChangeItAgain) {
  Rng rng(1);
  for (int i = 0; i < 10'000; ++i) {
    const int64_t bytes = rng.Between(0, 20) == 0 ? rng.Between(0, 1000) : rng.Between(0, 20 << 20);
    const int64_t was = int64_t{512} << rng.Below(8);
    const int64_t size = After(was, bytes);
    ASSERT_TRUE(stream::IsStemChunkSize(size) && size > 0) << size;
    if (size == was) continue;  // it may be at an end of what stays
    for (const int64_t swing : {bytes / 2 + 200, bytes, bytes * 2 - 200}) {
      ASSERT_EQ(After(size, swing), size) << "from " << was << " by " << bytes << ", " << swing;
    }
  }
}

TEST(ChunkSizeTest, WhatStaysIsAtMostTwiceAndMoreThanAFourthOfWhatIsWanted) {
  Rng rng(2);
  for (int i = 0; i < 10'000; ++i) {
    const int64_t rate = rng.Between(100'000, 4'000'000);
    const int64_t size = After(int64_t{512} << rng.Below(8), rate);
    ASSERT_LE(size, rate / 80 * 2);
    ASSERT_GT(size, rate / 80 / 4);
  }
}

}  // namespace
}  // namespace tailcast::producer
