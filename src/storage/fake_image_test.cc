#include "tailcast/storage/fake_image.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace tailcast::storage {
namespace {

const FakeRoom kRoom;

MonotonicTime At(int64_t us) { return MonotonicTime::FromMicros(us); }

class FakeImageTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeImage::File> Create(const std::string& name) {
    auto file = *image_.Claim("d", name, name, At(1));
    EXPECT_TRUE(image_.GiveName(file).ok());
    return file;
  }
  AppendOutcome AppendNow(const std::shared_ptr<FakeImage::File>& file, Epoch epoch,
                          const std::string& bytes) {
    const auto append = image_.Send(file, epoch, file->committed, bytes);
    image_.Land(*append, kRoom, At(2));
    return append->outcome;
  }
  FakeImage image_;
};

TEST_F(FakeImageTest, AKeyIsTheFirstClaimantsAndWhoComesNextCompletesItsCreation) {
  ASSERT_TRUE(image_.Claim("d", "first", "k", At(1)).ok());
  EXPECT_TRUE(image_.Names("d").empty()) << "a claim alone is no name";
  const Status second = image_.Claim("d", "second", "k", At(2)).status();
  EXPECT_EQ(second.code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(WinnerOf(second), "first");
  EXPECT_EQ(image_.Names("d"), std::vector<std::string>{"first"});
  EXPECT_EQ(image_.counters().creations_helped, 1);
  EXPECT_EQ(image_.Claim("d", "first", "other", At(3)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(FakeImageTest, WhatAnotherProgramDoesToAFileIsSeen) {
  const auto file = Create("f");
  ASSERT_EQ(AppendNow(file, Epoch::kFirst, "abcdef"), AppendOutcome::kApplied);
  ASSERT_TRUE(image_.Cut("d", "f", 4).ok());
  EXPECT_EQ(FakeImage::CheckWhole(*file).code(), StatusCode::kDataLoss);
  EXPECT_EQ(*FakeImage::ReadAt(*file, 0, 4), "abcd");
  EXPECT_EQ(FakeImage::ReadAt(*file, 0, 5).status().code(), StatusCode::kDataLoss);
  ASSERT_TRUE(image_.Quarantine("d", "f").ok());
  EXPECT_EQ(AppendNow(file, Epoch::kFirst, "g"), AppendOutcome::kFenced);

  const auto again = Create("f");
  ASSERT_TRUE(image_.Remove("d", "f").ok());
  EXPECT_EQ(image_.Find("d", "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(AppendNow(again, Epoch::kFirst, "g"), AppendOutcome::kApplied) << "nobody fenced it";
  EXPECT_TRUE(image_.Claim("d", "f", "f", At(3)).ok()) << "its key is free";
}

TEST_F(FakeImageTest, AnAppendLandsOnceAndOnlyInItsEpoch) {
  const auto file = Create("f");
  const auto append = image_.Send(file, Epoch{1}, 0, "abc");
  EXPECT_EQ(file->visible(), 0) << "it has not landed";
  image_.Land(*append, kRoom, At(2));
  image_.Land(*append, kRoom, At(3));
  EXPECT_EQ(append->outcome, AppendOutcome::kApplied);
  EXPECT_EQ(*FakeImage::ReadAt(*file, 0, 100), "abc");

  const auto late = image_.Send(file, Epoch{1}, 3, "def");
  ASSERT_TRUE(image_.Fence("d", "f", At(4)).ok());
  image_.Land(*late, kRoom, At(5));
  EXPECT_EQ(late->outcome, AppendOutcome::kFenced);
  EXPECT_EQ(AppendNow(file, Epoch{2}, "ghi"), AppendOutcome::kApplied);
  EXPECT_EQ(*FakeImage::ReadAt(*file, 2, 2), "cg");
}

TEST_F(FakeImageTest, ADeletedFileTakesNoAppendsAndItsKeyIsFree) {
  const auto file = Create("f");
  ASSERT_TRUE(image_.Delete("d", "f").ok());
  EXPECT_EQ(AppendNow(file, Epoch{1}, "abc"), AppendOutcome::kFenced);
  EXPECT_EQ(image_.Delete("d", "f").code(), StatusCode::kNotFound);
  EXPECT_TRUE(image_.Claim("d", "g", "f", At(3)).ok());
}

TEST_F(FakeImageTest, AFullDiskRefusesWhatDoesNotFit) {
  const auto file = Create("f");
  const auto append = image_.Send(file, Epoch{1}, 0, "abcdef");
  image_.Land(*append, {.capacity_bytes = 5}, At(2));
  EXPECT_EQ(append->outcome, AppendOutcome::kUnknown);
  EXPECT_EQ(append->error.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(file->committed, 0);
}

TEST_F(FakeImageTest, FilesAndFencesTakeRoomAndSomeOfItIsForRecords) {
  const FakeRoom room{.capacity_bytes = 1000, .reserve_bytes = 300, .file_bytes = 100};
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(image_.Claim("d", std::to_string(i), std::to_string(i), At(1), room).ok()) << i;
  }
  EXPECT_TRUE(IsResourceExhausted(image_.Claim("d", "x", "x", At(1), room).status()));
  const auto records = StoreUse::kRecords;
  const auto marker = image_.Claim("d", "marker", "marker", At(1), room, records);
  ASSERT_TRUE(marker.ok());
  ASSERT_TRUE(image_.GiveName(*marker).ok());
  EXPECT_TRUE(IsResourceExhausted(image_.Fence("d", "marker", At(2), room).status()));
  EXPECT_TRUE(image_.Fence("d", "marker", At(2), room, records).ok());
  EXPECT_EQ(image_.bytes_used(room.file_bytes), 900);
}

TEST_F(FakeImageTest, APowerLossDecidesAboutWhatIsOnItsWayAndShowsNoJunk) {
  int landed = 0, lost = 0, claims_kept = 0;
  for (uint64_t seed = 1; seed <= 64; ++seed) {
    image_ = FakeImage();
    Rng rng(seed);
    const auto file = Create("f");
    ASSERT_EQ(AppendNow(file, Epoch{1}, "abc"), AppendOutcome::kApplied);
    const auto append = image_.Send(file, Epoch{1}, 3, "defgh");
    const auto half = *image_.Claim("d", "half", "half", At(2));
    image_.LosePower(kRoom, At(3), rng);
    ASSERT_TRUE(append->sealed);
    const bool there = append->outcome == AppendOutcome::kApplied;
    (there ? landed : lost)++;
    EXPECT_EQ(*FakeImage::ReadAt(*file, 0, 100), there ? "abcdefgh" : "abc");
    const Status named = image_.GiveName(half);
    claims_kept += named.ok() ? 1 : 0;
    EXPECT_TRUE(named.ok() || named.code() == StatusCode::kUnavailable) << named;
  }
  EXPECT_GT(landed, 10);
  EXPECT_GT(lost, 10);
  EXPECT_GT(claims_kept, 10);
  EXPECT_LT(claims_kept, 54);
}

TEST_F(FakeImageTest, SizesOfThePastAreRemembered) {
  const auto file = *image_.Claim("d", "f", "f", At(10));
  for (int64_t i = 1; i <= 3; ++i) {
    const auto append = image_.Send(file, Epoch{1}, file->committed, "x");
    image_.Land(*append, kRoom, At(10 + 10 * i));
  }
  EXPECT_EQ(FakeImage::SizeAsOf(*file, At(100)).committed_length, 3);
  EXPECT_EQ(FakeImage::SizeAsOf(*file, At(30)).committed_length, 2);
  EXPECT_EQ(FakeImage::SizeAsOf(*file, At(29)).committed_length, 1);
  EXPECT_EQ(FakeImage::SizeAsOf(*file, At(1)).committed_length, 0) << "the oldest there is";
}

TEST_F(FakeImageTest, FoldersAreThoseDirectlyBelow) {
  ASSERT_TRUE(image_.Claim("a/b/c", "f", "f", At(1)).ok());
  ASSERT_TRUE(image_.Claim("a/d", "f", "f", At(1)).ok());
  EXPECT_EQ(image_.Folders(""), std::vector<std::string>{"a"});
  EXPECT_EQ(image_.Folders("a"), (std::vector<std::string>{"b", "d"}));
  EXPECT_EQ(image_.Folders("a/b"), std::vector<std::string>{"c"});
  EXPECT_TRUE(image_.Folders("no").empty());
}

}  // namespace
}  // namespace tailcast::storage
