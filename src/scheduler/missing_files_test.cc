#include "tailcast/scheduler/missing_files.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using stream::Stem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Each file has 100 bytes of data and 2 messages.
Stem File(int64_t seq) { return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2}; }
PairLengths Whole(int64_t seq) { return {File(seq), {100, 64}}; }

class MissingFilesTest : public ::testing::Test {
 protected:
  void List(const std::vector<int64_t>& pairs, int64_t floor = 1) {
    missing_.OnListingBegins(shard_);
    Listed(pairs, floor);
  }
  void Listed(const std::vector<int64_t>& pairs, int64_t floor = 1) {
    std::vector<Stem> stems;
    for (const int64_t seq : pairs) stems.push_back(File(seq));
    found_ = missing_.OnListed(shard_, floor, stems);
  }
  void Look(const std::vector<PairLengths>& files, const std::vector<int64_t>& damaged = {},
            const std::vector<int64_t>& unread = {}) {
    ShardProgress progress;
    progress.files = files;
    progress.damaged = damaged;
    progress.unread = unread;
    for (const PairLengths& file : files) progress.listed.push_back(file.stem);
    for (const int64_t seq : damaged) progress.listed.push_back(File(seq));
    for (const int64_t seq : unread) progress.listed.push_back(File(seq));
    std::sort(progress.listed.begin(), progress.listed.end(),
              [](const Stem& a, const Stem& b) { return a.seq < b.seq; });
    missing_.OnLooked(shard_, 1, progress);
  }
  // "2 DAMAGED", ... by the finding.
  std::vector<std::string> Lacking() {
    std::vector<std::string> all;
    for (const v1::LackingFile& file : missing_.Show()) {
      all.push_back(std::to_string(file.seq()) + " " + v1::LackingFile::Kind_Name(file.kind()));
    }
    EXPECT_EQ(missing_.total(), static_cast<int64_t>(all.size()));
    return all;
  }

  const stream::ShardId shard_{{"s", stream::StreamIncarnation{7}}, 0};
  MissingFiles missing_{100};
  std::vector<MissingFiles::Found> found_;  // by the last listing
};

TEST_F(MissingFilesTest, AFileBelowTheNewestThatIsNotListedIsLackingUntilItIsOpenedAgain) {
  List({1, 2, 3, 4});
  EXPECT_THAT(Lacking(), IsEmpty());
  List({1, 4});
  EXPECT_THAT(Lacking(), ElementsAre("2 ABSENT", "3 ABSENT"));
  EXPECT_EQ(missing_.Show()[0].look(), 100u);
  List({1, 4});
  EXPECT_FALSE(missing_.changed()) << "it was said";
  missing_.OnNotice(shard_, 3);
  EXPECT_THAT(Lacking(), ElementsAre("2 ABSENT"));
  List({1, 2, 3, 4});
  EXPECT_THAT(Lacking(), IsEmpty());
  List({1, 3, 4});
  EXPECT_EQ(missing_.Show()[0].look(), 102u) << "another finding";
}

// Files are copied side by side, and may be opened in any order.
TEST_F(MissingFilesTest, WhatIsNotCopiedYetIsToldFromWhatWasHere) {
  const auto found = [&] {
    std::vector<std::string> all;
    for (const auto& f : found_) {
      all.push_back((f.was_here ? "gone " : "not yet ") + std::to_string(f.seq));
    }
    return all;
  };
  List({1, 2, 4, 6});
  EXPECT_THAT(found(), ElementsAre("not yet 3", "not yet 5"));
  List({2, 3, 4, 6});
  EXPECT_THAT(found(), ElementsAre("gone 1"));
  List({1, 2});
  EXPECT_THAT(found(), ElementsAre("gone 3", "gone 4", "gone 6"));
  List({10, 12}, 10);
  EXPECT_THAT(found(), ElementsAre("not yet 11"));
  List({12}, 10);
  EXPECT_THAT(found(), ElementsAre("gone 10"));
}

TEST_F(MissingFilesTest, TheNewestIsMissedByWhoKnewIt) {
  List({});
  missing_.OnNotice(shard_, 2);
  missing_.OnListingBegins(shard_);
  missing_.OnNotice(shard_, 3);  // opened while the folder is listed
  Listed({1});
  EXPECT_THAT(Lacking(), ElementsAre("2 ABSENT"));
  List({1});
  EXPECT_THAT(Lacking(), ElementsAre("2 ABSENT", "3 ABSENT"));
}

TEST_F(MissingFilesTest, WhatIsBelowTheFloorWasCollected) {
  List({3, 4}, 3);
  EXPECT_THAT(Lacking(), IsEmpty());
  List({4}, 3);
  EXPECT_THAT(Lacking(), ElementsAre("3 ABSENT"));
  List({4}, 4);
  EXPECT_THAT(Lacking(), IsEmpty());
}

TEST_F(MissingFilesTest, AClosedFileIsAsLongAsItsSuccessorSays) {
  List({1, 2, 3, 4});
  Look({Whole(1), {File(2), {99, 64}}, {File(3), {100, 32}}, {File(4), {5, 0}}});
  EXPECT_THAT(Lacking(), ElementsAre("2 INCOMPLETE", "3 INCOMPLETE")) << "4 is open";
  Look({Whole(1), Whole(2), {File(3), {100, 32}}, {File(4), {5, 0}}});
  EXPECT_THAT(Lacking(), ElementsAre("3 INCOMPLETE"));
  List({1, 2, 3, 4});
  EXPECT_THAT(Lacking(), ElementsAre("3 INCOMPLETE")) << "a listing knows no lengths";
}

TEST_F(MissingFilesTest, AFileIsAsLongAsASuccessorSaysThatCanNotBeRead) {
  List({1, 2, 3, 4, 5});
  Look({{File(1), {99, 64}}, {File(3), {100, 32}}, {File(5), {5, 0}}}, {2}, {4});
  EXPECT_THAT(Lacking(), ElementsAre("2 DAMAGED", "1 INCOMPLETE", "3 INCOMPLETE"));
  Look({Whole(1), Whole(3), {File(5), {5, 0}}}, {2}, {4});
  EXPECT_THAT(Lacking(), ElementsAre("2 DAMAGED"));
}

TEST_F(MissingFilesTest, ADamagedFileIsLackingUntilItIsSeenWhole) {
  List({1, 2, 3});
  Look({Whole(1), {File(3), {0, 0}}}, {2});
  EXPECT_THAT(Lacking(), ElementsAre("2 DAMAGED"));
  List({1, 2, 3});
  EXPECT_THAT(Lacking(), ElementsAre("2 DAMAGED"));
  Look({Whole(1), Whole(2), {File(3), {0, 0}}});
  EXPECT_THAT(Lacking(), IsEmpty());
  Look({Whole(1), Whole(2)}, {3});
  EXPECT_THAT(Lacking(), ElementsAre("3 DAMAGED"));
  Look({Whole(1), Whole(2), {File(3), {0, 0}}});
  EXPECT_THAT(Lacking(), IsEmpty()) << "nobody knows the length of an open one";
}

TEST_F(MissingFilesTest, AFileOpenedSinceTheListingIsNotDamaged) {
  List({1, 2, 3});
  missing_.OnNotice(shard_, 2);  // set aside, and made anew
  Look({Whole(1)}, {2});
  EXPECT_THAT(Lacking(), IsEmpty());
}

TEST_F(MissingFilesTest, AStreamThatIsRemovedLacksNothing) {
  List({1, 3});
  EXPECT_THAT(Lacking(), ElementsAre("2 ABSENT"));
  missing_.OnStreamRemoved(shard_.stream);
  EXPECT_TRUE(missing_.NewsToShow());
  EXPECT_THAT(Lacking(), IsEmpty());
}

TEST_F(MissingFilesTest, HoweverMuchIsLackingTheFirstOnesAreShown) {
  List({5000});
  EXPECT_EQ(missing_.total(), MissingFiles::kPerShardMax);
  EXPECT_TRUE(missing_.NewsToShow());
  EXPECT_EQ(missing_.Show().size(), size_t{MissingFiles::kShownMax});
  EXPECT_EQ(missing_.Show()[0].seq(), 1);
}

// Each view goes to all users of the cell.
TEST_F(MissingFilesTest, WhatComesBackIsNewsWhenThereIsMoreToShowOrNothing) {
  List({5000});
  missing_.Show();
  int64_t seq = 1;
  while (!missing_.NewsToShow()) missing_.OnNotice(shard_, seq++);
  EXPECT_EQ(seq, MissingFiles::kShownMax * 3 / 4 + 2) << "a quarter is left";
  EXPECT_EQ(missing_.Show()[0].seq(), seq);
}

}  // namespace
}  // namespace tailcast::scheduler
