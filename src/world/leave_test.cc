// A cell that leaves a stream's copy tree gives its disk back, whoever dies meanwhile, and has
// everything again when it comes back.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/scheduler/left_copies.h"
#include "tailcast/stream/shard_listing.h"
#include "tailcast/world/hop.h"

namespace tailcast::world {
namespace {

const Edges kChain = {{"us", "eu"}, {"eu", "asia"}};
const Edges kWithoutAsia = {{"us", "eu"}};
constexpr Duration kRest = scheduler::LeftCopies::kRest;
// A look each 30 s, before and after; the last files, and the second look for those who are slow.
constexpr Duration kLooks = Duration::Seconds(90);

class LeaveTest : public ::testing::Test {
 protected:
  LeaveTest() : hop_(HopOptions{}) {
    hop_.CreateStream();
    producer_.emplace(hop_.world, "us", hop_.shard(), hop_.options.chunk_size);
    for (int file = 0; file < 6; ++file) Roll();
    EXPECT_TRUE(RunUntil([&] { return hop_.Arrived(truth_); }, Duration::Seconds(30)));
  }
  void Roll() {
    producer_->Roll();
    producer_->Append(hop_.time().rng().Between(100, 2000));
    truth_[producer_->file().seq] = {producer_->data(), producer_->index()};
    stems_.push_back(producer_->file());
  }
  bool RunUntil(const std::function<bool()>& condition, Duration limit) {
    return hop_.time().RunUntil(condition, limit);
  }
  size_t Files(const std::string& cell) {
    return hop_.world.cell(cell).disk->PeekNames(stream::ShardDir(hop_.shard())).size();
  }
  bool Whole(const std::string& cell) {
    for (const stream::Stem& stem : stems_) {
      const auto& [data, index] = truth_.at(stem.seq);
      if (hop_.Primary(cell, stem, stream::Part::kData) != data) return false;
      if (hop_.Primary(cell, stem, stream::Part::kIndex) != index) return false;
    }
    return true;
  }
  std::string Config(const std::string& cell) {
    const v1::StreamConfig& stream = hop_.registry(cell)->view().streams(0);
    return cell + " has tree " + std::to_string(stream.tree_version()) + " of " +
           std::to_string(stream.tree_size()) + " edges" +
           (stream.has_change() ? ", changing" : "");
  }
  void Leave() {
    hop_.Reroute(kWithoutAsia);
    ASSERT_TRUE(RunUntil(
        [&] {
          const cell::RegistryCore* asia = hop_.registry("asia");
          return asia != nullptr && scheduler::HasLeft(asia->view().streams(0), "asia") &&
                 !asia->view().streams(0).has_change();
        },
        Duration::Seconds(60)))
        << Config("us") << "\n"
        << Config("eu") << "\n"
        << Config("asia");
  }

  Hop hop_;
  std::optional<HandProducer> producer_;
  Truth truth_;
  std::vector<stream::Stem> stems_;
};

TEST_F(LeaveTest, WhatACellHasOfAStreamWhoseTreeItLeftGoesAfterARest) {
  Leave();
  hop_.time().RunFor(kRest - Duration::Seconds(30));
  EXPECT_EQ(Files("asia"), 12u) << "for who changes his mind";
  ASSERT_TRUE(RunUntil([&] { return Files("asia") == 0; }, kLooks)) << Files("asia");
  hop_.time().RunFor(Duration::Seconds(120));
  EXPECT_EQ(Files("asia"), 0u);
  EXPECT_EQ(hop_.registry("asia")->view().lacking_size(), 0) << "nobody misses them";
  Roll();
  EXPECT_TRUE(RunUntil([&] { return Whole("eu"); }, Duration::Seconds(30)));
  EXPECT_EQ(Files("asia"), 0u);
}

TEST_F(LeaveTest, WhoComesBackWithinTheRestHasLostNothing) {
  Leave();
  hop_.time().RunFor(kRest - Duration::Seconds(30));
  hop_.Reroute(kChain);
  hop_.time().RunFor(kRest + kLooks);
  EXPECT_EQ(Files("asia"), 12u);
  EXPECT_TRUE(Whole("asia"));
  EXPECT_EQ(hop_.Check(), "");
}

TEST_F(LeaveTest, ASchedulerThatDiesWhileFilesGoIsFollowedByOneThatGoesOn) {
  Leave();
  ASSERT_TRUE(RunUntil([&] { return Files("asia") < 12; }, kRest + kLooks));
  hop_.world.Restart("asia", "scheduler");
  const size_t left = Files("asia");
  EXPECT_GT(left, 0u) << "it died in the middle";
  ASSERT_TRUE(RunUntil([&] { return Files("asia") == 0; }, kRest + kLooks)) << left;
}

TEST_F(LeaveTest, WhoComesBackWhileItsFilesGoOrLaterHasAllOfThemAgain) {
  for (const Duration later : {Duration::Millis(1), Duration::Seconds(60)}) {
    Leave();
    ASSERT_TRUE(RunUntil([&] { return Files("asia") < 12; }, kRest + kLooks));
    hop_.time().RunFor(later);
    hop_.Reroute(kChain);
    EXPECT_TRUE(RunUntil([&] { return Whole("asia"); }, Duration::Seconds(120)))
        << Files("asia") << " files, " << later.millis() << " ms later";
    hop_.time().RunFor(kRest + kLooks);
    EXPECT_TRUE(Whole("asia"));
  }
}

}  // namespace
}  // namespace tailcast::world
