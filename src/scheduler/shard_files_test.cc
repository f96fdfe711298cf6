#include "tailcast/scheduler/shard_files.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using stream::Stem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Each file has 100 bytes of data and 2 messages.
Stem File(int64_t seq) { return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2}; }

class ShardFilesTest : public ::testing::Test {
 protected:
  std::vector<int64_t> Add(int64_t seq, bool listed = false) {
    auto sealed = files_.Add(File(seq), listed);
    EXPECT_TRUE(sealed.has_value());
    return sealed.value_or(std::vector<int64_t>());
  }
  std::vector<int64_t> Forget() {
    std::vector<int64_t> forgotten;
    files_.Forget([&](const ShardFiles::File& file) {
      forgotten.push_back(file.stem.seq);
      return true;
    });
    return forgotten;
  }
  ShardFiles files_{10};
};

TEST_F(ShardFilesTest, TheNextStemSealsAFileWhicheverComesFirst) {
  EXPECT_THAT(Add(1), IsEmpty());
  EXPECT_THAT(Add(2), ElementsAre(1));
  EXPECT_EQ(files_.Find(1)->seal[0], 100);
  EXPECT_EQ(files_.Find(1)->seal[1], 64);
  EXPECT_THAT(Add(4), IsEmpty()) << "3 is between";
  EXPECT_THAT(Add(3), ElementsAre(2, 3));
  EXPECT_FALSE(files_.Newest()->sealed());
}

TEST_F(ShardFilesTest, AStemThatBeginsBeforeItsPredecessorSealsNothing) {
  Add(1);
  Stem bad = File(2);
  bad.start_byte = -1;
  EXPECT_THAT(*files_.Add(bad, false), IsEmpty());
  EXPECT_FALSE(files_.Find(1)->sealed());
}

TEST_F(ShardFilesTest, AFileThatATargetLostIsNotDone) {
  for (int64_t seq = 1; seq <= 5; ++seq) Add(seq);
  Forget();
  EXPECT_FALSE(files_.Reopen(5)) << "the newest was never forgotten";
  EXPECT_TRUE(files_.Reopen(2));
  EXPECT_FALSE(files_.Reopen(2));
  EXPECT_TRUE(files_.IsDone(1));
  EXPECT_FALSE(files_.IsDone(2));
  EXPECT_TRUE(files_.IsDone(3));
  EXPECT_TRUE(files_.IsDone(4));
  Add(2, true);
  files_.Seal(2, 100, 64);
  Forget();
  EXPECT_TRUE(files_.IsDone(2)) << "again";
  files_.OnListed(4);
  EXPECT_FALSE(files_.Reopen(3)) << "it was collected";
}

TEST_F(ShardFilesTest, TheFirstSealStays) {
  Add(1);
  EXPECT_TRUE(files_.Seal(1, 50, 32));
  EXPECT_FALSE(files_.Seal(1, 60, 64));
  EXPECT_FALSE(files_.Seal(9, 60, 64)) << "not known";
  EXPECT_THAT(Add(2), IsEmpty());
  EXPECT_EQ(files_.Find(1)->seal[0], 50);
}

TEST_F(ShardFilesTest, ListedFilesAreColdButForTheNewest) {
  Add(1, true);
  EXPECT_FALSE(files_.IsCold(*files_.Find(1)));
  Add(2, true);
  EXPECT_TRUE(files_.IsCold(*files_.Find(1)));
  Add(3);
  EXPECT_TRUE(files_.IsCold(*files_.Find(2)));
  Add(4);
  EXPECT_FALSE(files_.IsCold(*files_.Find(3))) << "it was noticed, not listed";
}

TEST_F(ShardFilesTest, SealedFilesAreForgottenButNeverTheNewest) {
  Add(1);
  Add(2);
  Add(3);
  files_.Seal(3, 1, 32);
  EXPECT_THAT(Forget(), ElementsAre(1, 2));
  EXPECT_EQ(files_.files().size(), 1u);
  EXPECT_TRUE(files_.IsDone(1));
  EXPECT_TRUE(files_.IsDone(2));
  EXPECT_FALSE(files_.IsDone(3));
}

TEST_F(ShardFilesTest, AHoleIsNotADoneFile) {
  Add(2);
  Add(3);
  EXPECT_THAT(Forget(), ElementsAre(2));
  EXPECT_FALSE(files_.IsDone(1));
  EXPECT_TRUE(files_.IsDone(2));
  Add(1);
  EXPECT_THAT(Forget(), IsEmpty()) << "its successor is not known any more, so no stem seals it";
  files_.Seal(1, 100, 64);
  EXPECT_THAT(Forget(), ElementsAre(1));
  EXPECT_TRUE(files_.IsDone(1));
}

TEST_F(ShardFilesTest, WhatIsBelowTheFloorIsDone) {
  EXPECT_FALSE(files_.was_listed());
  files_.OnListed(5);
  EXPECT_TRUE(files_.was_listed());
  EXPECT_TRUE(files_.IsDone(4));
  files_.OnListed(3);
  EXPECT_TRUE(files_.IsDone(4)) << "a floor only grows";
  EXPECT_FALSE(files_.LeavesHole(5));
  EXPECT_TRUE(files_.LeavesHole(6));
}

TEST_F(ShardFilesTest, NoMoreFilesAreKeptThanTheLimit) {
  for (int64_t seq = 1; seq <= 10; ++seq) Add(seq);
  EXPECT_FALSE(files_.Add(File(11), false).has_value());
  EXPECT_EQ(files_.Find(11), nullptr);
}

TEST_F(ShardFilesTest, ANewTargetMayLackAnyFile) {
  Add(1);
  Add(2);
  Add(3);
  Forget();
  files_.StartOver();
  EXPECT_FALSE(files_.IsDone(1));
  EXPECT_TRUE(files_.Newest()->listed);
}

}  // namespace
}  // namespace tailcast::scheduler
