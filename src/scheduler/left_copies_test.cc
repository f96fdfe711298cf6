#include "tailcast/scheduler/left_copies.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr Duration kMinute = Duration::Seconds(60);

class LeftCopiesTest : public ::testing::Test {
 protected:
  LeftCopiesTest() {
    config_.set_name("flights");
    config_.set_incarnation(7);
    config_.set_shards(3);
    config_.set_source("us");
    AddEdge("us", "eu");
    left_.OnStream(config_);
  }
  void AddEdge(const char* from, const char* to) {
    v1::TreeEdge* edge = config_.add_tree();
    edge->set_from(from);
    edge->set_to(to);
  }

  v1::StreamConfig config_;
  const stream::StreamId id_{"flights", stream::StreamIncarnation{7}};
  LeftCopies left_{"asia", kMinute * 10};
};

TEST_F(LeftCopiesTest, ACellHasLeftWhenNeitherTreeNorDestinationsNameIt) {
  EXPECT_TRUE(HasLeft(config_, "asia"));
  EXPECT_FALSE(HasLeft(config_, "us")) << "the source";
  EXPECT_FALSE(HasLeft(config_, "eu"));
  v1::StreamConfig destination = config_;
  destination.add_destinations("asia");
  EXPECT_FALSE(HasLeft(destination, "asia")) << "it is to be fed again";
}

TEST_F(LeftCopiesTest, WhileTheChangeIsUnderWayTheRestIsLongAndItBeginsAnewWhenThatIsOver) {
  config_.mutable_change();
  left_.OnStream(config_);
  left_.OnFiles(id_);
  EXPECT_THAT(left_.OnTime(LeftCopies::kRestWhileChanging - kMinute), IsEmpty());
  config_.clear_change();
  left_.OnStream(config_);
  EXPECT_THAT(left_.OnTime(kMinute * 9), IsEmpty());
  EXPECT_THAT(left_.OnTime(kMinute), ElementsAre(Pair(id_, 3)));
}

TEST_F(LeftCopiesTest, AChangeWhoseEndIsNeverToldKeepsFilesForADay) {
  config_.mutable_change();
  left_.OnStream(config_);
  left_.OnFiles(id_);
  EXPECT_THAT(left_.OnTime(LeftCopies::kRestWhileChanging), ElementsAre(Pair(id_, 3)));
}

TEST_F(LeftCopiesTest, WhatIsThereGoesAfterTheRestOnce) {
  left_.OnFiles(id_);
  EXPECT_THAT(left_.OnTime(kMinute * 9), IsEmpty());
  EXPECT_THAT(left_.OnTime(kMinute), ElementsAre(Pair(id_, 3)));
  EXPECT_TRUE(left_.IsGoing(id_));
  EXPECT_THAT(left_.OnTime(kMinute * 20), IsEmpty()) << "it is going";
  left_.OnGone(id_);
  EXPECT_THAT(left_.OnTime(kMinute * 20), IsEmpty()) << "nothing is there";
  left_.OnFiles(id_);  // of somebody who was slow
  EXPECT_THAT(left_.OnTime(kMinute * 10), ElementsAre(Pair(id_, 3)));
}

TEST_F(LeftCopiesTest, AFileThatIsOpenedBeginsTheRestAnew) {
  left_.OnFiles(id_);
  left_.OnTime(kMinute * 9);
  left_.OnNotice(id_);
  EXPECT_THAT(left_.OnTime(kMinute * 9), IsEmpty());
  EXPECT_THAT(left_.OnTime(kMinute), ElementsAre(Pair(id_, 3)));
}

TEST_F(LeftCopiesTest, WhoComesBackKeepsWhatIsStillThere) {
  left_.OnFiles(id_);
  left_.OnTime(kMinute * 9);
  AddEdge("eu", "asia");
  EXPECT_FALSE(left_.OnStream(config_)) << "it was resting";
  left_.OnFiles(id_);
  EXPECT_THAT(left_.OnTime(kMinute * 20), IsEmpty());

  config_.mutable_tree()->RemoveLast();
  left_.OnStream(config_);
  left_.OnFiles(id_);
  EXPECT_THAT(left_.OnTime(kMinute * 10), ElementsAre(Pair(id_, 3)));
  AddEdge("eu", "asia");
  EXPECT_TRUE(left_.OnStream(config_)) << "its files were going";
}

TEST_F(LeftCopiesTest, ADeletedStreamIsNobodysCopy) {
  left_.OnFiles(id_);
  left_.OnStreamRemoved(id_);
  EXPECT_THAT(left_.OnTime(kMinute * 20), IsEmpty());
}

}  // namespace
}  // namespace tailcast::scheduler
