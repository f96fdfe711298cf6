#include "tailcast/base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tailcast {
namespace {

TEST(Hash128, AgreesWithPublishedValues) {
  EXPECT_EQ(Hash128(""), (Hash128Value{0, 0}));
  EXPECT_EQ(Hash128("hello"), (Hash128Value{0xcbd8a7b341bd9b02ull, 0x5b1e906a48ae1d19ull}));
  EXPECT_EQ(Hash128("hello, world"), (Hash128Value{0x342fac623a5ebc8eull, 0x4cdcbc079642414dull}));
  EXPECT_EQ(Hash128("19 Jan 2038 at 3:14:07 AM"),
            (Hash128Value{0xb89e5988b737affcull, 0x664fc2950231b2cbull}));
  EXPECT_EQ(Hash128("The quick brown fox jumps over the lazy dog."),
            (Hash128Value{0xcd99481f9ee902c9ull, 0x695da1a38987b6e7ull}));
}

// SMHasher's verification: the hash of the hashes of {0}, {0, 1}, ... with seeds 256 - i.
TEST(Hash128, PassesTheVerificationOfItsTestSuite) {
  const auto append = [](std::string& s, Hash128Value v) {
    for (uint64_t word : {v.hi, v.lo}) {
      for (int i = 0; i < 8; ++i) s.push_back(static_cast<char>(word >> (8 * i)));
    }
  };
  std::string key, hashes;
  for (uint32_t i = 0; i < 256; ++i) {
    append(hashes, Hash128(key, 256 - i));
    key.push_back(static_cast<char>(i));
  }
  EXPECT_EQ(static_cast<uint32_t>(Hash128(hashes).hi), 0x6384ba69u);
}

TEST(Hash128, EveryByteAndTheLengthMatter) {
  std::set<Hash128Value> seen;
  for (size_t size = 0; size <= 40; ++size) {
    std::string s(size, '\0');
    EXPECT_TRUE(seen.insert(Hash128(s)).second);
    for (size_t i = 0; i < size; ++i) {
      s[i] = '\x80';
      EXPECT_TRUE(seen.insert(Hash128(s)).second);
      s[i] = '\0';
    }
  }
}

}  // namespace
}  // namespace tailcast
