// What another program removes from a cell's primary layer, or damages there, is noticed by that
// cell, said, and copied again from the cell above, in virtual time.
#include <iterator>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/world/hop.h"

namespace tailcast::world {
namespace {

using stream::Part;

constexpr int kFiles = 6;

// Three cells in a chain with six closed files and an open one everywhere.
class HealTest : public ::testing::Test {
 protected:
  explicit HealTest(uint64_t seed = 1) : hop_({.seed = seed}) {}
  void SetUp() override {
    hop_.CreateStream();
    producer_.emplace(hop_.world, "us", hop_.shard(), hop_.options.chunk_size);
    for (int file = 1; file <= kFiles + 1; ++file) {
      producer_->Roll();
      stems_.push_back(producer_->file());
      Append();
    }
    ASSERT_TRUE(
        hop_.time().RunUntil([&] { return Whole("eu") && Whole("asia"); }, Duration::Seconds(20)))
        << hop_.Missing(truth_);
    hop_.time().RunFor(Duration::Seconds(3));
  }
  void Append() {
    for (int i = 0; i < 3; ++i) producer_->Append(hop_.time().rng().Between(100, 2000));
    truth_[producer_->file().seq] = {producer_->data(), producer_->index()};
  }

  std::string Dir() const { return stream::ShardDir(hop_.shard()); }
  const stream::Stem& Stem(int64_t seq) const { return stems_[static_cast<size_t>(seq - 1)]; }
  void Remove(const std::string& cell, int64_t seq, Part part) {
    ASSERT_TRUE(hop_.world.cell(cell).disk->Remove(Dir(), FileName(Stem(seq), part)).ok());
  }
  void Cut(const std::string& cell, int64_t seq, Part part, int64_t length) {
    ASSERT_TRUE(hop_.world.cell(cell).disk->Cut(Dir(), FileName(Stem(seq), part), length).ok());
  }
  // Everything is in the cell's primary layer, and can be read there.
  bool Whole(const std::string& cell) {
    const storage::FakeImage& image = hop_.world.cell(cell).disk->image();
    for (const auto& [seq, bytes] : truth_) {
      for (const Part part : {Part::kData, Part::kIndex}) {
        const auto file = image.Find(Dir(), FileName(Stem(seq), part));
        const std::string& want = part == Part::kData ? bytes.first : bytes.second;
        if (!file.ok() || !storage::FakeImage::CheckWhole(**file).ok()) return false;
        if (hop_.Primary(cell, Stem(seq), part) != want) return false;
      }
    }
    return true;
  }
  // "2 DAMAGED", ... as the cell's view says.
  std::vector<std::string> Lacking(const std::string& cell) {
    std::vector<std::string> all;
    for (const v1::LackingFile& file : hop_.registry(cell)->view().lacking()) {
      all.push_back(std::to_string(file.seq()) + " " + v1::LackingFile::Kind_Name(file.kind()));
    }
    return all;
  }
  // Whether it is told at all, and then copied again, within two rounds of looks.
  void ExpectHealed(const std::string& cell) {
    ASSERT_FALSE(Whole(cell));
    ASSERT_TRUE(hop_.time().RunUntil([&] { return !Lacking(cell).empty(); }, kTwoRounds));
    EXPECT_TRUE(hop_.time().RunUntil([&] { return Whole(cell); }, Duration::Seconds(20)))
        << hop_.Missing(truth_);
    EXPECT_TRUE(hop_.time().RunUntil([&] { return Lacking(cell).empty(); }, kTwoRounds))
        << ::testing::PrintToString(Lacking(cell));
    EXPECT_EQ(hop_.Check(), "");
  }
  scheduler::CoreCounters Counters(const std::string& cell) {
    return hop_.scheduler(cell).core()->counters();
  }

  static constexpr Duration kTwoRounds = Duration::Seconds(70);
  Hop hop_;
  std::optional<HandProducer> producer_;
  std::vector<stream::Stem> stems_;
  Truth truth_;
};

TEST_F(HealTest, ARemovedFileIsCopiedAgain) {
  Remove("eu", 2, Part::kData);
  ExpectHealed("eu");
  EXPECT_EQ(Counters("us").copied_again, 1);
  EXPECT_TRUE(Whole("asia"));
  EXPECT_EQ(Counters("eu").copied_again, 0);
}

// A scheduler that begins knows of no file whether it is copied: it asks, and compares.
TEST_F(HealTest, AFileThatCanNotBeReadHoldsUpNoOtherWhenASchedulerBegins) {
  for (const char* bad : {"eu", "us"}) {
    hop_.world.cell(bad).disk->SetUnreadable(Dir(), FileName(Stem(3), Part::kIndex));
    Remove("eu", 5, Part::kData);
    hop_.world.Restart("us", "scheduler");
    EXPECT_TRUE(hop_.time().RunUntil([&] { return Whole("eu"); }, Duration::Seconds(20)))
        << bad << ": " << hop_.Missing(truth_);
    hop_.time().RunFor(Duration::Seconds(1));  // whoever wrote hears of it
    EXPECT_EQ(hop_.Check(), "");
    ASSERT_TRUE(hop_.time().RunUntil(
        [&] { return hop_.scheduler(bad).StatusJson().find("file 3 of") != std::string::npos; },
        kTwoRounds))
        << hop_.scheduler(bad).StatusJson();
    hop_.world.cell(bad).disk->SetUnreadable(Dir(), FileName(Stem(3), Part::kIndex), false);
  }
}

TEST_F(HealTest, AFolderThatIsGoneIsCopiedAgain) {
  for (int64_t seq = 1; seq <= kFiles + 1; ++seq) {
    for (const Part part : {Part::kData, Part::kIndex}) Remove("asia", seq, part);
  }
  ExpectHealed("asia");
  EXPECT_EQ(Counters("eu").copied_again, kFiles + 1);
}

TEST_F(HealTest, ACutFileIsSetAsideAndCopiedAgain) {
  Cut("eu", 3, Part::kData, 10);
  Cut("eu", 5, Part::kIndex, 32);
  ExpectHealed("eu");
  EXPECT_EQ(hop_.world.cell("eu").disk->image().counters().quarantined, 2);
  EXPECT_TRUE(Whole("asia"));
}

TEST_F(HealTest, TheFileThatIsAppendedToIsCopiedAgainWhileItGrows) {
  Remove("eu", kFiles + 1, Part::kData);
  Append();
  ExpectHealed("eu");
  Append();
  EXPECT_TRUE(hop_.time().RunUntil([&] { return Whole("asia"); }, Duration::Seconds(5)));
}

TEST_F(HealTest, WhatTheSourceHasLostIsSaidAndStaysSaid) {
  Remove("us", 2, Part::kData);
  ASSERT_TRUE(hop_.time().RunUntil([&] { return !Lacking("us").empty(); }, kTwoRounds));
  hop_.time().RunFor(kTwoRounds);
  EXPECT_THAT(Lacking("us"), ::testing::ElementsAre("2 ABSENT"));
  EXPECT_TRUE(Lacking("eu").empty());
}

// The cell in the middle lost it, too: each cell gets it from the one above.
TEST_F(HealTest, ALossInTwoCellsHealsFromTheTop) {
  for (const Part part : {Part::kData, Part::kIndex}) {
    Remove("eu", 4, part);
    Remove("asia", 4, part);
  }
  ASSERT_TRUE(hop_.time().RunUntil([&] { return !Lacking("asia").empty(); }, kTwoRounds));
  const auto healed = [&] {
    return Whole("eu") && Whole("asia") && Lacking("eu").empty() && Lacking("asia").empty();
  };
  EXPECT_TRUE(hop_.time().RunUntil(healed, kTwoRounds)) << hop_.Missing(truth_);
  EXPECT_EQ(hop_.Check(), "");
}

TEST_F(HealTest, SchedulersThatRestartMeanwhileHealItToo) {
  Remove("eu", 2, Part::kIndex);
  hop_.time().RunFor(Duration::Seconds(10));
  hop_.world.Restart("eu", "scheduler");
  hop_.time().RunFor(Duration::Seconds(10));
  hop_.world.Restart("us", "scheduler");
  EXPECT_TRUE(hop_.time().RunUntil([&] { return Whole("eu"); }, kTwoRounds))
      << hop_.Missing(truth_);
  EXPECT_TRUE(hop_.time().RunUntil([&] { return Lacking("eu").empty(); }, kTwoRounds));
}

class HealSweep : public HealTest, public ::testing::WithParamInterface<int> {
 protected:
  HealSweep() : HealTest(static_cast<uint64_t>(GetParam())) {}

  // Some file of one of the copies is removed or cut; or there is no such file at the moment.
  void DamageOne(Rng& rng) {
    storage::FakeDisk& disk = *hop_.world.cell(rng.Chance(0.5) ? "eu" : "asia").disk;
    const auto seq = static_cast<int64_t>(1 + rng.Below(stems_.size()));
    const std::string name = FileName(Stem(seq), rng.Chance(0.5) ? Part::kData : Part::kIndex);
    if (rng.Chance(0.5)) {
      (void)disk.Remove(Dir(), name);
    } else {
      (void)disk.Cut(Dir(), name, rng.Between(0, 100));
    }
  }
  void RestartOne(Rng& rng) {
    static const char* const kNames[] = {"scheduler", "reader-0", "reader-1", "writer-0",
                                         "writer-1"};
    const std::string& cell = hop_.options.cells[rng.Below(hop_.options.cells.size())];
    hop_.world.Restart(cell, kNames[rng.Below(std::size(kNames))]);
  }
};

TEST_P(HealSweep, WhateverIsDamagedComesBackWhoeverDiesMeanwhile) {
  Rng rng(static_cast<uint64_t>(GetParam()));
  for (int round = 0; round < 6; ++round) {
    for (uint64_t n = rng.Below(4); n > 0; --n) DamageOne(rng);
    if (rng.Chance(0.5)) RestartOne(rng);
    if (rng.Chance(0.5)) {
      producer_->Roll();
      stems_.push_back(producer_->file());
    }
    if (rng.Chance(0.8)) Append();
    hop_.time().RunFor(Duration::Millis(rng.Between(0, 20000)));
  }
  const auto healed = [&] {
    return hop_.FindScheduler("eu") != nullptr && hop_.registry("eu") != nullptr &&
           hop_.FindScheduler("asia") != nullptr && hop_.registry("asia") != nullptr &&
           Whole("eu") && Whole("asia") && Lacking("eu").empty() && Lacking("asia").empty();
  };
  EXPECT_TRUE(hop_.time().RunUntil(healed, Duration::Seconds(200))) << hop_.Missing(truth_);
  EXPECT_EQ(hop_.Check(), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, HealSweep, ::testing::Range(1, 31));

}  // namespace
}  // namespace tailcast::world
