#include "tailcast/app/tail_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/base/rng.h"

namespace tailcast::app {
namespace {

using ::testing::HasSubstr;

FilePlace At(const std::string& path, int64_t offset, uint64_t inode = 7) {
  return {.key = {path, 1, inode}, .offset = offset, .mark = {.end = offset}, .seen = offset};
}

TailLedger Recover(const std::vector<TailRun>& runs, int64_t end) {
  auto ledger = TailLedger::Recover(runs, end);
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  return std::move(*ledger);
}

TEST(TailLedger, ARunIsKeptBeforeItsFirstByteAndGoesOnWithoutAWord) {
  TailLedger ledger = Recover({}, 1000);
  EXPECT_TRUE(ledger.Add(At("/a", 0), At("/a", 50)));
  EXPECT_FALSE(ledger.Add(At("/a", 50), At("/a", 80)));
  EXPECT_TRUE(ledger.Add(At("/b", 0), At("/b", 10)));
  EXPECT_TRUE(ledger.Add(At("/a", 80), At("/a", 90)));
  EXPECT_TRUE(ledger.Add(At("/a", 0), At("/a", 5))) << "it was truncated";
  EXPECT_EQ(
      ledger.runs(),
      (std::vector<TailRun>{
          {1000, At("/a", 0)}, {1080, At("/b", 0)}, {1090, At("/a", 80)}, {1100, At("/a", 0)}}));
  EXPECT_EQ(ledger.end(), 1105);
}

TEST(TailLedger, WhereverTheStreamEndsTheRunsSayHowFarEachFileIs) {
  const std::vector<TailRun> runs = {{100, At("/a", 20)}, {150, At("/b", 0)}, {160, At("/a", 70)}};
  const auto offsets = [&](int64_t end) {
    std::map<std::string, int64_t> found;
    for (const FilePlace& place : Recover(runs, end).Places()) {
      found[place.key.path] = place.offset;
    }
    return found;
  };
  EXPECT_EQ(offsets(100), (std::map<std::string, int64_t>{{"/a", 20}, {"/b", 0}}));
  EXPECT_EQ(offsets(149), (std::map<std::string, int64_t>{{"/a", 69}, {"/b", 0}}));
  EXPECT_EQ(offsets(155), (std::map<std::string, int64_t>{{"/a", 70}, {"/b", 5}}));
  EXPECT_EQ(offsets(1000), (std::map<std::string, int64_t>{{"/a", 910}, {"/b", 10}}));
  EXPECT_EQ(Recover(runs, 155).last(), At("/b", 0).key);
  EXPECT_EQ(Recover(runs, 100).last(), std::nullopt) << "nothing has come since";
  const auto shorter = TailLedger::Recover(runs, 99);
  EXPECT_TRUE(IsDataLoss(shorter.status()));
  EXPECT_THAT(shorter.status().message(), HasSubstr("99 bytes, and had 100 before"));
}

// What is kept of a life before is none of the next one's runs.
TEST(TailLedger, AFileOfMoreBytesThanAnyHasIsDamage) {
  const std::vector<TailRun> runs = {{1000, At("/a", INT64_MAX - 10)}};
  EXPECT_EQ(Recover(runs, 1010).Places().front().offset, INT64_MAX);
  const auto ledger = TailLedger::Recover(runs, 1011);
  EXPECT_TRUE(IsDataLoss(ledger.status()));
  EXPECT_THAT(ledger.status().message(), HasSubstr("11 bytes were read from 9223372036854775797"));
}

TEST(TailLedger, AfterARecoveryTheFirstBytesAreANewRun) {
  TailLedger ledger = Recover({{100, At("/a", 0)}, {150, At("/b", 0)}}, 100);
  EXPECT_TRUE(ledger.Add(At("/a", 0), At("/a", 10)));
  TailLedger later = Recover({{100, At("/a", 0)}, {150, At("/b", 0)}}, 120);
  EXPECT_EQ(later.runs(),
            (std::vector<TailRun>{
                {120, At("/b", 0)},
                {120, {.key = {"/a", 1, 7}, .offset = 20, .mark = {.end = 0}, .seen = 0}}}));
}

TEST(TailLedger, WhatIsDurableMakesTheRunsFewer) {
  TailLedger ledger = Recover({}, 0);
  (void)ledger.Add(At("/a", 0), At("/a", 50));
  (void)ledger.Add(At("/b", 0), At("/b", 10));
  (void)ledger.Add(At("/a", 50), At("/a", 70));
  EXPECT_FALSE(ledger.OnDurable(49)) << "a piece is durable as a whole";
  EXPECT_TRUE(ledger.OnDurable(60));
  EXPECT_EQ(ledger.runs(),
            (std::vector<TailRun>{{60, At("/a", 50)}, {60, At("/b", 10)}, {60, At("/a", 50)}}));
  EXPECT_TRUE(ledger.OnDurable(80));
  EXPECT_EQ(ledger.runs(), (std::vector<TailRun>{{80, At("/b", 10)}, {80, At("/a", 70)}}));
  ledger.Forget(At("/b", 0).key);
  EXPECT_EQ(ledger.runs(), (std::vector<TailRun>{{80, At("/a", 70)}}));
}

// Where a copy stands is where its original stood: if that turns out to be further back, it does.
TEST(TailLedger, WhatIsObservedHoldsWhenWhatCameBeforeIsDurable) {
  TailLedger ledger = Recover({}, 0);
  (void)ledger.Add(At("/a", 0), At("/a", 50));
  ledger.Observe(At("/a", 50, 8));  // its copy
  ledger.Observe(At("/a", 0));      // it was truncated
  const auto kept = ledger.runs();
  EXPECT_EQ(kept,
            (std::vector<TailRun>{{0, At("/a", 0)}, {50, At("/a", 50, 8)}, {50, At("/a", 0)}}));
  EXPECT_THAT(
      Recover(kept, 40).Places(),
      ::testing::ElementsAre(FilePlace{.key = {"/a", 1, 7}, .offset = 40, .mark = {}, .seen = 0}));
  EXPECT_THAT(Recover(kept, 50).Places(), ::testing::ElementsAre(At("/a", 0), At("/a", 50, 8)));
  EXPECT_EQ(Recover(kept, 49).last(), At("/a", 0).key);
  EXPECT_EQ(Recover(kept, 50).last(), std::nullopt) << "no bytes of it are where it stands now";
  EXPECT_TRUE(ledger.Add(At("/a", 0), At("/a", 9))) << "that the file began anew may not be kept";
  EXPECT_FALSE(ledger.Add(At("/a", 9), At("/a", 12)));
}

TEST(TailLedger, ANewFileOrPlaceIsToBeKept) {
  TailLedger ledger = Recover({}, 0);
  EXPECT_TRUE(ledger.Observe(At("/a", 9)));
  EXPECT_FALSE(ledger.Observe(At("/a", 9)));
  EXPECT_TRUE(ledger.Observe(At("/a", 0))) << "it was truncated";
  EXPECT_EQ(ledger.runs(), (std::vector<TailRun>{{0, At("/a", 0)}}));
  (void)ledger.Add(At("/a", 0), At("/a", 5));
  EXPECT_FALSE(ledger.Observe(At("/a", 5)));
  EXPECT_TRUE(ledger.Observe(At("/b", 0)));
  EXPECT_FALSE(ledger.Observe(At("/b", 0)));
}

TEST(TailLedger, AForgottenFileDoesNotComeBackWithItsLastBytes) {
  TailLedger ledger = Recover({}, 0);
  (void)ledger.Add(At("/a", 0), At("/a", 50));
  (void)ledger.Add(At("/b", 0), At("/b", 10));
  ledger.Forget(At("/a", 0).key);
  EXPECT_TRUE(ledger.OnDurable(60));
  EXPECT_EQ(ledger.runs(), (std::vector<TailRun>{{60, At("/b", 10)}}));
}

// Random lives: what is kept at any time, and any end of the stream behind the durable one, say
// where the files stood when the stream ended there.
TEST(TailLedger, AnyCrashIsRecoveredFrom) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    TailLedger ledger = Recover({}, 0);
    std::vector<TailRun> kept;
    std::map<std::string, int64_t> offsets;
    std::vector<std::map<std::string, int64_t>> at = {offsets};  // by byte of the stream
    int64_t durable = 0;
    for (int step = 0; step < 60; ++step) {
      const std::string path = "/" + std::to_string(rng.Below(3));
      const auto bytes = rng.Between(1, 5);
      const bool keep = ledger.Add(At(path, offsets[path]), At(path, offsets[path] + bytes));
      if (keep) kept = ledger.runs();
      for (int64_t i = 0; i < bytes; ++i) {
        ++offsets[path];
        at.push_back(offsets);
      }
      if (rng.Chance(0.25)) {
        durable = rng.Between(durable, ledger.end());
        if (ledger.OnDurable(durable) && rng.Chance(0.5)) kept = ledger.runs();
      }
      if (!rng.Chance(0.1)) continue;
      const int64_t end = rng.Between(durable, ledger.end());
      ledger = Recover(kept, end);
      offsets = at[static_cast<size_t>(end)];
      at.resize(static_cast<size_t>(end) + 1);
      for (const FilePlace& place : ledger.Places()) {
        ASSERT_EQ(place.offset, offsets[place.key.path]) << "seed " << seed << " step " << step;
      }
      kept = ledger.runs();
      durable = end;
    }
  }
}

TEST(TailState, ItsTextIsReadAgain) {
  TailState state;
  state.incarnation = stream::StreamIncarnation{0x9f3a00c2d1e4b576};
  state.shards[3] = {
      {17, {.key = {"/a b/c", 2049, 12}, .offset = 300, .mark = {300, 256, 0xabc}, .seen = 301}},
      {90, At("/d", 0)}};
  const auto again = TailState::Parse(state.ToText());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->incarnation, state.incarnation);
  EXPECT_EQ(again->shards, state.shards);
}

TEST(TailState, WhatIsNoneIsRefusedWithItsLine) {
  TailState state;
  state.shards[0] = {{17, At("/a", 5)}};
  const std::string good = state.ToText();
  for (const std::string& bad :
       {std::string(), std::string("t1.9f3a00c2d1e4b576.3.1.2\n"), good.substr(0, good.size() - 1),
        good + "0 16 1 7 5 5 0 00000000 5 /a\n", good + "0 18 1 7 5 5 6 00000000 5 /a\n",
        good + "-1 18 1 7 5 5 0 00000000 5 /a\n", good + "0 18 1 7 5 5 0 00000000 5 a\n"}) {
    EXPECT_TRUE(IsDataLoss(TailState::Parse(bad).status())) << bad;
  }
  EXPECT_THAT(TailState::Parse(good + "what\n").status().message(), HasSubstr("line 4"));
}

}  // namespace
}  // namespace tailcast::app
