#include "tailcast/stream/shard_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailcast::stream {
namespace {

const Stem kOne{1, 1000, 0, 0};
const Stem kTwo{2, 2000, 500, 5};
const Stem kThree{3, 3000, 500, 5};

std::vector<storage::DirEntry> Pairs(std::initializer_list<Stem> stems) {
  std::vector<storage::DirEntry> entries;
  for (const Stem& stem : stems) {
    entries.push_back({FileName(stem, Part::kData)});
    entries.push_back({FileName(stem, Part::kIndex)});
  }
  return entries;
}

TEST(ShardListing, GivesEveryClosedFilesEnd) {
  const auto listing = ShardListing::Parse(Pairs({kOne, kTwo, kThree}));
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->last(), 3);
  EXPECT_EQ(listing->SealOf(1), (Seal{{500, 160}}));
  EXPECT_EQ(listing->SealOf(2), (Seal{{0, 0}}));
  EXPECT_EQ(listing->SealOf(3), std::nullopt) << "the last one is open";
}

TEST(ShardListing, AHoleIsSeenAsAHole) {
  const auto listing = ShardListing::Parse(Pairs({kOne, kThree}));
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->Find(2), nullptr);
  EXPECT_EQ(listing->SealOf(1), std::nullopt);
  EXPECT_EQ(listing->floor(), 1);
}

TEST(ShardListing, HalfAPairIsThereButNotComplete) {
  const auto listing = ShardListing::Parse({{FileName(kOne, Part::kData)}});
  ASSERT_TRUE(listing.ok());
  EXPECT_FALSE(listing->Find(1)->complete());
  EXPECT_EQ(listing->last(), 1);
}

TEST(ShardListing, BelowTheFloorNothingIsKept) {
  auto entries = Pairs({kOne, kTwo, kThree});
  entries.push_back({FloorName(2)});
  entries.push_back({FloorName(3)});
  const auto listing = ShardListing::Parse(entries);
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->floor(), 3);
  EXPECT_EQ(listing->pairs().size(), 1u);
}

TEST(ShardListing, ForeignNamesAreCountedAndLeftOut) {
  auto entries = Pairs({kOne});
  entries.push_back({"README"});
  entries.push_back({"0000000000.floor"});
  const auto listing = ShardListing::Parse(entries);
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->foreign_names(), 2);
  EXPECT_EQ(listing->pairs().size(), 1u);
}

TEST(ShardListing, TwoStemsUnderOneNumberAreAnAlarm) {
  Stem other = kTwo;
  other.created_us += 1;
  auto entries = Pairs({kTwo});
  entries.push_back({FileName(other, Part::kIndex)});
  const auto listing = ShardListing::Parse(entries);
  ASSERT_FALSE(listing.ok());
  EXPECT_TRUE(IsDataLoss(listing.status()));
  EXPECT_THAT(listing.status().message(), ::testing::HasSubstr(other.ToString()));
}

TEST(Seal, ContradictingStemsGiveNone) {
  EXPECT_FALSE(SealBetween(kTwo, kOne));
  EXPECT_FALSE(SealBetween(kOne, kThree));
  EXPECT_FALSE(SealBetween(Stem{1, 1, 900, 0}, kTwo));
  EXPECT_FALSE(SealBetween(Stem{1, 1, 0, 9}, kTwo));
}

TEST(FloorName, ParsesWhatItPrints) {
  EXPECT_EQ(FloorName(12), "0000000012.floor");
  EXPECT_EQ(ParseFloorName(FloorName(12)), 12);
  for (const char* bad : {"0000000012.floo", "12.floor", "00000000x2.floor", "0000000000.floor"}) {
    EXPECT_FALSE(ParseFloorName(bad)) << bad;
  }
}

}  // namespace
}  // namespace tailcast::stream
