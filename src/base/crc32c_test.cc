#include "tailcast/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tailcast/base/rng.h"

namespace tailcast {
namespace {

// One bit at a time: the definition.
uint32_t Reference(uint32_t crc, std::string_view data) {
  crc = ~crc;
  for (unsigned char c : data) {
    crc ^= c;
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::string RandomBytes(Rng& rng, size_t size) {
  std::string s(size, '\0');
  for (char& c : s) c = static_cast<char>(rng.Next());
  return s;
}

TEST(Crc32c, AgreesWithTheVectorsOfRfc3720) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string up(32, '\0'), down(32, '\0');
  for (int i = 0; i < 32; ++i) {
    up[static_cast<size_t>(i)] = static_cast<char>(i);
    down[static_cast<size_t>(i)] = static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc32c(up), 0x46dd794eu);
  EXPECT_EQ(Crc32c(down), 0x113fdb5cu);
}

TEST(Crc32c, EveryImplementationAgreesOnEverySizeAndAlignment) {
  Rng rng(1);
  const std::string bytes = RandomBytes(rng, 4096 + 800);
  if (!internal::Crc32cHasSse42())
    printf("this machine has no SSE4.2: only the tables are tested\n");
  if (!internal::Crc32cHasAvx512())
    printf("this machine has no VPCLMULQDQ: that path is untested\n");
  auto check = [&](size_t offset, size_t size) {
    const auto seed = static_cast<uint32_t>(rng.Next());
    const char* p = bytes.data() + offset;
    const uint32_t expected = internal::Crc32cExtendTable(seed, p, size);
    if (internal::Crc32cHasSse42()) {
      ASSERT_EQ(internal::Crc32cExtendSse42(seed, p, size), expected) << offset << " " << size;
    }
    if (internal::Crc32cHasAvx512()) {
      ASSERT_EQ(internal::Crc32cExtendAvx512(seed, p, size), expected) << offset << " " << size;
    }
    ASSERT_EQ(Crc32cExtend(seed, p, size), expected);
  };
  for (size_t size = 0; size <= 700; ++size) {
    for (size_t offset = 0; offset < 64; offset += size < 130 ? 1 : 7) check(offset, size);
  }
  for (size_t size = 700; size <= 4200; size += 13) check(size % 64, size);
  for (size_t size = 4090; size <= 4100; ++size) check(size % 64, size);
  for (size_t size = 0; size < 300; ++size) {
    ASSERT_EQ(internal::Crc32cExtendTable(7, bytes.data(), size),
              Reference(7, std::string_view(bytes).substr(0, size)));
  }
}

TEST(Crc32c, LongInputsCrossTheBlocksOfTheInterleavedLoop) {
  Rng rng(2);
  const std::string bytes = RandomBytes(rng, 100'000);
  for (size_t size : {1535u, 1536u, 1537u, 1728u, 6143u, 6144u, 6145u, 12'288u, 65'536u, 99'999u}) {
    const uint32_t expected = internal::Crc32cExtendTable(0, bytes.data(), size);
    EXPECT_EQ(Crc32c(std::string_view(bytes).substr(0, size)), expected);
    if (internal::Crc32cHasSse42()) {
      EXPECT_EQ(internal::Crc32cExtendSse42(0, bytes.data(), size), expected);
    }
  }
}

TEST(Crc32c, ExtendsAndCombinesAtEveryCut) {
  Rng rng(3);
  const std::string bytes = RandomBytes(rng, 1500);
  const uint32_t whole = Crc32c(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::string_view a = std::string_view(bytes).substr(0, cut);
    const std::string_view b = std::string_view(bytes).substr(cut);
    ASSERT_EQ(Crc32cExtend(Crc32c(a), b.data(), b.size()), whole);
    ASSERT_EQ(Crc32cCombine(Crc32c(a), Crc32c(b), b.size()), whole);
  }
}

TEST(Crc32c, CombineMovesOverGigabytesWithoutReadingThem) {
  // Doubling a message of zero bytes 30 times.
  uint32_t zeros = Crc32c(std::string_view("\0", 1));
  for (uint64_t size = 1; size < (uint64_t{1} << 20); size *= 2) {
    zeros = Crc32cCombine(zeros, zeros, size);
  }
  EXPECT_EQ(zeros, Crc32c(std::string(1 << 20, '\0')));
  EXPECT_EQ(Crc32cCombine(zeros, 0, 0), zeros);
}

}  // namespace
}  // namespace tailcast
