#include "tailcast/cache/merge.h"

#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/rng.h"

namespace tailcast::cache {
namespace {

std::string Lanes(std::vector<uint64_t> lanes) {
  return std::string(reinterpret_cast<const char*>(lanes.data()), lanes.size() * 8);
}
std::string Join(MergeRule rule, std::string a, const std::string& b) {
  EXPECT_NE(MergeInto(rule, a, b), MutationResult::kMismatch);
  return a;
}
std::string Random(MergeRule rule, Rng& rng) {
  switch (rule) {
    case MergeRule::kLongerWins:
      return std::string("the final bytes of a chunk").substr(0, rng.Below(27));
    case MergeRule::kMaxLanes: {
      std::vector<uint64_t> lanes(rng.Below(4));
      for (uint64_t& lane : lanes) lane = rng.Below(3);
      return Lanes(lanes);
    }
    case MergeRule::kMaxBytes:
      return std::string(rng.Below(3), static_cast<char>('a' + rng.Below(3)));
  }
  return "";
}

// What makes the order and the number of writes irrelevant.
TEST(MergeTest, IsAJoin) {
  Rng rng(1);
  for (const MergeRule rule :
       {MergeRule::kLongerWins, MergeRule::kMaxLanes, MergeRule::kMaxBytes}) {
    for (int i = 0; i < 3000; ++i) {
      const std::string a = Random(rule, rng), b = Random(rule, rng), c = Random(rule, rng);
      ASSERT_EQ(Join(rule, a, a), a);
      ASSERT_EQ(Join(rule, a, b), Join(rule, b, a));
      ASSERT_EQ(Join(rule, Join(rule, a, b), c), Join(rule, a, Join(rule, b, c)));
      ASSERT_EQ(Join(rule, Join(rule, a, b), b), Join(rule, a, b)) << "absorbs what it holds";
    }
  }
}

TEST(MergeTest, ResultSaysWhetherTheStoredValueChanged) {
  Rng rng(2);
  for (const MergeRule rule :
       {MergeRule::kLongerWins, MergeRule::kMaxLanes, MergeRule::kMaxBytes}) {
    for (int i = 0; i < 3000; ++i) {
      const std::string before = Random(rule, rng), given = Random(rule, rng);
      std::string after = before;
      const MutationResult result = MergeInto(rule, after, given);
      ASSERT_EQ(result, CompareForMerge(rule, before, given));
      ASSERT_EQ(result == MutationResult::kApplied, after != before);
    }
  }
}

TEST(MergeTest, ContradictionsAndMalformedValuesChangeNothing) {
  std::string stored = "abcdef";
  EXPECT_EQ(MergeInto(MergeRule::kLongerWins, stored, "abX"), MutationResult::kMismatch);
  EXPECT_EQ(MergeInto(MergeRule::kLongerWins, stored, "abcdeXg"), MutationResult::kMismatch);
  EXPECT_EQ(stored, "abcdef");
  EXPECT_EQ(MergeInto(MergeRule::kMaxLanes, stored, "seven b"), MutationResult::kRefused);
  EXPECT_EQ(stored, "abcdef");
}

TEST(MergeTest, BytesCompareUnsignedAndBigEndian) {
  std::string stored("\x01\xff", 2);
  EXPECT_EQ(MergeInto(MergeRule::kMaxBytes, stored, std::string("\x80\x00", 2)),
            MutationResult::kApplied);
  EXPECT_EQ(MergeInto(MergeRule::kMaxBytes, stored, std::string("\x7f\xff", 2)),
            MutationResult::kNoChange);
}

}  // namespace
}  // namespace tailcast::cache
