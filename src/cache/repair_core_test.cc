#include "tailcast/cache/repair_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace tailcast::cache {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using State = RepairCore::State;

constexpr ConfigurationId kRing = IdOf(1, RingPhase::kSettled);
constexpr ConfigurationId kNextRing = IdOf(2, RingPhase::kSettled);

MonotonicTime At(int64_t ms) { return MonotonicTime() + Duration::Millis(ms); }

// Three replicas a, b, c; the core is a's, incarnation 7.
class RepairCoreTest : public testing::Test {
 protected:
  RepairCoreTest() {
    ring_.configuration_id = kRing;
    ring_.epoch = CacheEpoch{3};
    for (const char* name : {"a", "b", "c"}) {
      Replica replica;
      replica.name = name;
      replica.rpc_address = std::string("host-") + name;
      replica.incarnation = ProcessIncarnation{name[0] == 'a' ? 7u : 1u};
      ring_.replicas.push_back(std::move(replica));
    }
    a().whole = false;
    a().rests = true;
  }
  // Pages are asked for as if they cost nothing, of all at once.
  static RepairOptions Options() {
    RepairOptions options;
    options.page_bytes = 0;
    return options;
  }
  Replica& a() { return ring_.replicas[0]; }
  Replica& b() { return ring_.replicas[1]; }
  Replica& c() { return ring_.replicas[2]; }

  std::vector<std::string> Asked(int64_t ms) {
    std::vector<std::string> names;
    for (const RepairCore::Ask& ask : core_.TakeDue(At(ms))) {
      names.push_back(ask.member + "@" + std::to_string(ask.cursor));
      asks_[ask.member] = ask.id;
      gained_in_ = ask.gained_in;
    }
    return names;
  }
  void LastPage(int64_t ms, const std::string& member) {
    EXPECT_TRUE(core_.OnPage(At(ms), asks_[member], {0, 0, kRing}));
  }

  RingConfig ring_;
  RepairCore core_{Options(), "a", ProcessIncarnation{7}, At(0)};
  std::map<std::string, uint64_t> asks_;
  ConfigurationId gained_in_{};  // of the last ask
};

// Until then an earlier one may have been told that it serves.
TEST_F(RepairCoreTest, RestsFromWhenTheRegistryHasItsIncarnation) {
  a().incarnation = ProcessIncarnation{6};
  core_.OnRing(At(10), ring_);
  EXPECT_EQ(core_.state(), State::kResting);
  core_.OnRing(At(2000), ring_);
  a().incarnation = ProcessIncarnation{7};
  core_.OnRing(At(2100), ring_);
  EXPECT_THAT(Asked(4599), IsEmpty());
  core_.OnRing(At(4599), ring_);
  EXPECT_THAT(Asked(4600), ElementsAre("b@0", "c@0"));
}

TEST_F(RepairCoreTest, RestsAndThenCopiesAllOfEachOther) {
  EXPECT_EQ(core_.next(), MonotonicTime::Max());
  core_.OnRing(At(0), ring_);
  EXPECT_EQ(core_.state(), State::kResting);
  EXPECT_THAT(Asked(2499), IsEmpty());
  EXPECT_EQ(core_.next(), At(2500));
  EXPECT_THAT(Asked(2500), ElementsAre("b@0", "c@0"));
  EXPECT_THAT(Asked(2500), IsEmpty()) << "one page at a time of each";
  EXPECT_TRUE(core_.OnPage(At(2501), asks_["b"], {40, 0, kRing}));
  EXPECT_FALSE(core_.OnPage(At(2501), asks_["b"], {0, 0, kRing})) << "answered already";
  EXPECT_THAT(Asked(2501), ElementsAre("b@40"));
  LastPage(2502, "c");
  EXPECT_THAT(core_.Missing(), ElementsAre("b"));
  EXPECT_EQ(core_.copied(), CacheEpoch{});
  LastPage(2503, "b");
  EXPECT_EQ(core_.state(), State::kCopied);
  EXPECT_EQ(core_.copied(), CacheEpoch{3});
  EXPECT_EQ(core_.next(), MonotonicTime::Max());
}

TEST_F(RepairCoreTest, AFirstLifeHasNothingToRestFor) {
  a().rests = false;
  core_.OnRing(At(10), ring_);
  EXPECT_THAT(Asked(10), ElementsAre("b@0", "c@0"));
}

TEST_F(RepairCoreTest, AMemberThatDoesNotAnswerIsAskedForAsLongAsItTakes) {
  a().rests = false;
  core_.OnRing(At(0), ring_);
  Asked(0);
  LastPage(1, "c");
  int64_t ms = 1;
  for (int i = 0; i < 50; ++i) {
    core_.OnFailure(At(ms), asks_["b"]);
    EXPECT_EQ(core_.next(), At(ms + 200));
    ms += 200;
    EXPECT_THAT(Asked(ms), ElementsAre("b@0"));
  }
  EXPECT_EQ(core_.copied(), CacheEpoch{});
  LastPage(ms, "b");
  EXPECT_EQ(core_.copied(), CacheEpoch{3});
}

TEST_F(RepairCoreTest, WhatAMemberHadBeforeItWasWholeDoesNotCount) {
  a().rests = false;
  b().whole = false;
  core_.OnRing(At(0), ring_);
  EXPECT_THAT(Asked(0), ElementsAre("b@0", "c@0")) << "a lower bound is better than nothing";
  LastPage(1, "b");
  LastPage(1, "c");
  EXPECT_THAT(core_.Missing(), ElementsAre("b"));
  b().whole = true;
  core_.OnRing(At(50), ring_);
  EXPECT_THAT(Asked(50), ElementsAre("b@0"));
  LastPage(51, "b");
  EXPECT_EQ(core_.copied(), CacheEpoch{3});
}

TEST_F(RepairCoreTest, AMemberThatStartsAnewInTheMiddleIsCopiedFromItsBeginning) {
  a().rests = false;
  core_.OnRing(At(0), ring_);
  Asked(0);
  LastPage(1, "c");
  EXPECT_TRUE(core_.OnPage(At(1), asks_["b"], {40, 0, kRing}));
  Asked(1);
  const uint64_t late = asks_["b"];
  b().incarnation = ProcessIncarnation{2};
  b().whole = false;
  core_.OnRing(At(2), ring_);
  EXPECT_FALSE(core_.OnPage(At(3), late, {0, 0, kRing})) << "of its former life";
  EXPECT_THAT(Asked(3), ElementsAre("b@0"));
  LastPage(4, "b");
  EXPECT_EQ(core_.copied(), CacheEpoch{}) << "it was empty";
  b().whole = true;
  core_.OnRing(At(5), ring_);
  Asked(5);
  LastPage(6, "b");
  EXPECT_EQ(core_.copied(), CacheEpoch{3});
}

TEST_F(RepairCoreTest, OneThatStopsBeingWholeInTheMiddleDoesNotCount) {
  a().rests = false;
  core_.OnRing(At(0), ring_);
  Asked(0);
  LastPage(1, "c");
  b().whole = false;
  core_.OnRing(At(1), ring_);
  b().whole = true;
  core_.OnRing(At(2), ring_);
  Asked(2);
  b().whole = false;
  core_.OnRing(At(3), ring_);
  LastPage(4, "b");
  EXPECT_EQ(core_.copied(), CacheEpoch{});
}

TEST_F(RepairCoreTest, WhoIsExcusedIsNotWaitedFor) {
  b().whole = false;
  b().excused = true;
  a().excused = true;
  core_.OnRing(At(0), ring_);
  Asked(2500);
  EXPECT_EQ(core_.copied(), CacheEpoch{});
  LastPage(2501, "c");
  EXPECT_EQ(core_.copied(), CacheEpoch{3});
}

TEST_F(RepairCoreTest, WhatWasCopiedCountsForALaterEpochToo) {
  core_.OnRing(At(0), ring_);
  Asked(2500);
  LastPage(2501, "c");
  core_.OnFailure(At(2501), asks_["b"]);
  // b is lost, too: the registry raises the epoch.
  ring_.epoch = CacheEpoch{4};
  a().excused = b().excused = true;
  b().whole = false;
  b().incarnation = ProcessIncarnation{2};
  core_.OnRing(At(2600), ring_);
  EXPECT_EQ(core_.copied(), CacheEpoch{4});
}

TEST_F(RepairCoreTest, OneThatWasWholeAndIsNotAnyMoreBeginsAgain) {
  a().whole = true;
  core_.OnRing(At(0), ring_);
  Asked(0);
  a().whole = false;
  a().excused = true;
  ring_.epoch = CacheEpoch{4};
  core_.OnRing(At(60000), ring_);
  EXPECT_EQ(core_.state(), State::kResting);
  EXPECT_EQ(core_.next(), At(62500)) << "it rests again, for those who counted on it until now";
}

TEST_F(RepairCoreTest, ALeaseThatRanOutForAMomentIsNoEnd) {
  core_.OnRing(At(0), ring_);
  Asked(2500);
  LastPage(2501, "b");
  LastPage(2501, "c");
  a().whole = true;
  core_.OnRing(At(2600), ring_);
  const Replica shown = a();
  a() = Replica();
  a().name = "a";
  a().whole = false;
  core_.OnRing(At(2700), ring_);
  EXPECT_EQ(core_.state(), State::kCopied);
  a() = shown;
  core_.OnRing(At(2800), ring_);
  EXPECT_EQ(core_.state(), State::kCopied);
  EXPECT_THAT(Asked(2800), IsEmpty());
}

TEST_F(RepairCoreTest, ARingThatShowsOurFormerLifeSaysNothingOfThisOne) {
  a().incarnation = ProcessIncarnation{6};
  a().whole = true;
  core_.OnRing(At(0), ring_);
  a().incarnation = ProcessIncarnation{7};
  a().whole = false;
  core_.OnRing(At(100), ring_);
  EXPECT_EQ(core_.next(), At(2600)) << "not lost: it never was whole in this life";
}

TEST_F(RepairCoreTest, OtherNamesMeanOtherKeys) {
  a().rests = false;
  core_.OnRing(At(0), ring_);
  Asked(0);
  LastPage(1, "b");
  LastPage(1, "c");
  EXPECT_EQ(core_.state(), State::kCopied);
  Replica d = c();
  d.name = "d";
  ring_.replicas.push_back(d);
  ring_.configuration_id = kNextRing;
  core_.OnRing(At(10), ring_);
  EXPECT_THAT(Asked(10), ElementsAre("b@0", "c@0", "d@0"));
  // A member with the older ring leaves out what has moved here.
  EXPECT_TRUE(core_.OnPage(At(11), asks_["b"], {0, 0, kRing}));
  EXPECT_THAT(core_.Missing(), ElementsAre("b", "c", "d"));
  EXPECT_THAT(Asked(211), ElementsAre("b@0"));
}

TEST_F(RepairCoreTest, APageThatCouldNotBeKeptIsAskedForAgain) {
  a().rests = false;
  core_.OnRing(At(0), ring_);
  Asked(0);
  LastPage(1, "c");
  EXPECT_TRUE(core_.OnPage(At(1), asks_["b"], {7, 0, kRing}));
  EXPECT_THAT(Asked(1), ElementsAre("b@7"));
  RepairCore::Page page{0, 0, kRing};
  page.kept = false;
  EXPECT_TRUE(core_.OnPage(At(1), asks_["b"], page));
  EXPECT_EQ(core_.copied(), CacheEpoch{});
  EXPECT_EQ(core_.next(), At(201));
  EXPECT_THAT(Asked(201), ElementsAre("b@7"));
  LastPage(202, "b");
  EXPECT_EQ(core_.copied(), CacheEpoch{3});
}

TEST_F(RepairCoreTest, ACursorThatDoesNotGrowIsAFailure) {
  a().rests = false;
  core_.OnRing(At(0), ring_);
  Asked(0);
  EXPECT_TRUE(core_.OnPage(At(1), asks_["b"], {5, 0, kRing}));
  EXPECT_THAT(Asked(1), ElementsAre("b@5"));
  EXPECT_TRUE(core_.OnPage(At(2), asks_["b"], {5, 0, kRing}));
  EXPECT_THAT(Asked(2), IsEmpty());
  EXPECT_THAT(Asked(202), ElementsAre("b@5"));
}

TEST_F(RepairCoreTest, ARingThatDoesNotNameUsEndsIt) {
  core_.OnRing(At(0), ring_);
  RingConfig other = ring_;
  other.replicas.erase(other.replicas.begin(), other.replicas.begin() + 2);
  core_.OnRing(At(10), other);
  EXPECT_EQ(core_.state(), State::kIdle);
  EXPECT_THAT(Asked(5000), IsEmpty());
  EXPECT_EQ(core_.next(), MonotonicTime::Max());
  core_.OnRing(At(6000), ring_);
  EXPECT_THAT(Asked(6000), ElementsAre("b@0", "c@0"));
}

TEST_F(RepairCoreTest, PagesKeepToTheRate) {
  a().rests = false;
  core_.OnRing(At(0), ring_);
  Asked(0);
  const uint64_t bytes = RepairOptions().bytes_per_second / 10;
  EXPECT_TRUE(core_.OnPage(At(1), asks_["b"], {9, bytes, kRing}));
  EXPECT_THAT(Asked(1), IsEmpty());
  EXPECT_EQ(core_.next(), At(101));
  EXPECT_THAT(Asked(101), ElementsAre("b@9"));
}

TEST_F(RepairCoreTest, OneMemberIsAskedAfterTheOther) {
  RepairOptions options;
  options.bytes_per_second = 10 * options.page_bytes;  // a page takes 100 ms
  RepairCore core(options, "a", ProcessIncarnation{7}, At(0));
  a().rests = false;
  core.OnRing(At(0), ring_);
  std::map<std::string, uint64_t> asks;
  const auto asked = [&](int64_t ms) {
    std::vector<std::string> names;
    for (const RepairCore::Ask& ask : core.TakeDue(At(ms))) {
      names.push_back(ask.member);
      asks[ask.member] = ask.id;
    }
    return names;
  };
  EXPECT_THAT(asked(0), ElementsAre("b"));
  EXPECT_EQ(core.next(), At(100));
  EXPECT_THAT(asked(99), IsEmpty());
  EXPECT_THAT(asked(100), ElementsAre("c")) << "whether the other page came or not";
  EXPECT_TRUE(core.OnPage(At(150), asks["b"], {9, options.page_bytes, kRing}));
  EXPECT_TRUE(core.OnPage(At(160), asks["c"], {9, options.page_bytes, kRing}));
  EXPECT_THAT(asked(199), IsEmpty());
  EXPECT_THAT(asked(200), ElementsAre("b"));
  // What did not come costs nothing.
  EXPECT_TRUE(core.OnPage(At(210), asks["b"], {19, 0, kRing}));
  EXPECT_THAT(asked(210), ElementsAre("c"));
  core.OnFailure(At(220), asks["c"]);
  EXPECT_THAT(asked(220), ElementsAre("b"));
}

// ---- While the ring changes ----

class RepairCoreFillTest : public RepairCoreTest {
 protected:
  static constexpr ConfigurationId kBoth = IdOf(1, RingPhase::kBoth);

  RepairCoreFillTest() { a().rests = false; }
  // The ring b, c, d changes to a, b, c; all of the old one are whole.
  void Newcomer() {
    ring_.configuration_id = kBoth;
    a().in_ring = a().rests = false;
    for (Replica* replica : {&a(), &b(), &c()}) replica->in_other = true;
    Replica d = c();
    d.name = "d";
    d.rpc_address = "host-d";
    d.in_other = false;
    ring_.replicas.push_back(d);
  }
  void LastPageOf(int64_t ms, const std::string& member, ConfigurationId id = kBoth) {
    EXPECT_TRUE(core_.OnPage(At(ms), asks_[member], {0, 0, id}));
  }
};

TEST_F(RepairCoreFillTest, ANewcomerRestsBecauseItsVoteCountsAtOnce) {
  Newcomer();
  core_.OnRing(At(10), ring_);
  EXPECT_EQ(core_.state(), State::kResting);
  EXPECT_EQ(core_.next(), At(2500));
  EXPECT_THAT(Asked(2500), ElementsAre("b@0", "c@0", "d@0"));
}

TEST_F(RepairCoreFillTest, AllButOneOfTheOldRingAreEnough) {
  Newcomer();
  core_.OnRing(At(3000), ring_);
  EXPECT_THAT(Asked(3000), ElementsAre("b@0", "c@0", "d@0"));
  LastPageOf(3001, "b");
  EXPECT_EQ(core_.filled(), ConfigurationId{});
  LastPageOf(3002, "d");
  EXPECT_EQ(core_.filled(), kBoth);
  LastPageOf(3003, "c");
}

TEST_F(RepairCoreFillTest, PagesOfWhoHasNotHeardOfTheChangeDoNotCount) {
  Newcomer();
  core_.OnRing(At(3000), ring_);
  Asked(3000);
  LastPageOf(3001, "b", kRing);
  LastPageOf(3002, "c", kRing);
  LastPageOf(3003, "d");
  EXPECT_EQ(core_.filled(), ConfigurationId{});
  EXPECT_THAT(Asked(3201), ElementsAre("b@0"));
}

TEST_F(RepairCoreFillTest, WhoStaysIsFilledWithTheKeysThatItGains) {
  a().whole = true;
  core_.OnRing(At(3000), ring_);
  EXPECT_THAT(Asked(3000), ElementsAre("b@0", "c@0"));
  LastPageOf(3001, "b", kRing);
  LastPageOf(3002, "c", kRing);
  ring_.configuration_id = kBoth;
  a().in_other = b().in_other = c().in_other = true;
  core_.OnRing(At(5000), ring_);
  EXPECT_EQ(core_.state(), State::kCopying);
  EXPECT_THAT(Asked(5000), ElementsAre("b@0", "c@0"));
  EXPECT_EQ(gained_in_, kBoth);
  LastPageOf(5001, "c");
  EXPECT_EQ(core_.filled(), kBoth) << "of three owners two, and ourselves";
}

// It may have missed what the other two acknowledged; one of them or none is left beside it, and
// whoever begins anew then has only this one to copy from.
TEST_F(RepairCoreFillTest, WhoIsLeftWithFewerThanThreeCopiesAll) {
  a().whole = true;
  core_.OnRing(At(3000), ring_);
  Asked(3000);
  LastPageOf(3001, "b", kRing);
  LastPageOf(3002, "c", kRing);
  for (const bool with_b : {true, false}) {
    ring_.configuration_id = with_b ? kBoth : IdOf(2, RingPhase::kBoth);
    a().in_other = true;
    b().in_other = with_b;
    core_.OnRing(At(5000), ring_);
    EXPECT_THAT(Asked(5000), ElementsAre("b@0", "c@0"));
    EXPECT_EQ(gained_in_, ConfigurationId{});
  }
}

TEST_F(RepairCoreFillTest, WhoStaysAndBeganAnewCopiesAllThatItWillOwn) {
  a().whole = true;  // as all are of the data ring
  a().in_other = b().in_other = c().in_other = true;
  ring_.configuration_id = kBoth;
  core_.OnRing(At(3000), ring_);
  EXPECT_THAT(Asked(3000), ElementsAre("b@0", "c@0"));
  EXPECT_EQ(gained_in_, ConfigurationId{});
}

TEST_F(RepairCoreFillTest, WhoIsNotWholeAnyMoreCopiesAllThatItWillOwn) {
  a().whole = true;
  core_.OnRing(At(3000), ring_);
  Asked(3000);
  LastPageOf(3001, "b", kRing);
  LastPageOf(3002, "c", kRing);
  ring_.configuration_id = kBoth;
  a().in_other = b().in_other = c().in_other = true;
  core_.OnRing(At(5000), ring_);
  Asked(5000);
  a().whole = false;
  core_.OnRing(At(5001), ring_);
  EXPECT_EQ(core_.state(), State::kResting);
  EXPECT_THAT(Asked(7501), ElementsAre("b@0", "c@0"));
  EXPECT_EQ(gained_in_, ConfigurationId{});
}

// Of chunks each is given once: by the others in place of one who is away.
class RepairCoreOnceTest : public RepairCoreFillTest {
 protected:
  RepairCoreOnceTest() {
    a().whole = true;  // as all are of the data ring
    a().rests = false;
    for (Replica* replica : {&a(), &b(), &c()}) replica->in_other = true;
  }
  static RepairOptions Once() {
    RepairOptions options = Options();
    options.once = true;
    return options;
  }
  std::vector<RepairCore::Ask> Pages(int64_t ms) {
    std::vector<RepairCore::Ask> asks = once_.TakeDue(At(ms));
    for (const RepairCore::Ask& ask : asks) {
      EXPECT_TRUE(once_.OnPage(At(ms), ask.id, {0, 0, ring_.configuration_id}));
    }
    return asks;
  }
  RepairCore once_{Once(), "a", ProcessIncarnation{7}, At(0)};
};

TEST_F(RepairCoreOnceTest, WhoIsAwayIsNotWaitedForToBeFilled) {
  ring_.configuration_id = kBoth;
  b().rpc_address.clear();
  once_.OnRing(At(10), ring_);
  EXPECT_EQ(Pages(3000).size(), 1u);
  EXPECT_EQ(once_.filled(), kBoth);
}

TEST_F(RepairCoreOnceTest, WhenNobodyIsThereNothingIsCopied) {
  ring_.configuration_id = kBoth;
  b().rpc_address.clear();
  c().rpc_address.clear();
  once_.OnRing(At(10), ring_);
  EXPECT_TRUE(Pages(3000).empty());
  EXPECT_EQ(once_.state(), State::kCopying);
}

TEST_F(RepairCoreOnceTest, OneAloneThatIsThereIsNotEnoughIfTheOtherHasNotGivenYet) {
  ring_.configuration_id = kBoth;
  once_.OnRing(At(10), ring_);
  const std::vector<RepairCore::Ask> asks = once_.TakeDue(At(3000));
  ASSERT_EQ(asks.size(), 2u);
  EXPECT_TRUE(once_.OnPage(At(3000), asks[0].id, {0, 0, kBoth}));
  EXPECT_EQ(once_.filled(), ConfigurationId{});
}

// The new ring is read before its chunks are here, and the next change begins.
TEST_F(RepairCoreOnceTest, WhoWasNotFilledInTimeCopiesAllWhenTheRingChangesAgain) {
  for (Replica* replica : {&a(), &b(), &c()}) replica->in_other = false;
  once_.OnRing(At(10), ring_);
  EXPECT_EQ(Pages(3000).size(), 2u);
  for (Replica* replica : {&a(), &b(), &c()}) replica->in_other = true;
  const auto gained = [&](ConfigurationId id, int64_t ms) {
    ring_.configuration_id = id;
    once_.OnRing(At(ms), ring_);
    const std::vector<RepairCore::Ask> asks = once_.TakeDue(At(ms));
    return asks.empty() ? ConfigurationId{} : asks[0].gained_in;
  };
  EXPECT_EQ(gained(kBoth, 4000), kBoth);
  gained(IdOf(1, RingPhase::kNew), 65000);
  EXPECT_EQ(gained(IdOf(2, RingPhase::kBoth), 66000), ConfigurationId{});
}

TEST_F(RepairCoreOnceTest, ChunksForWhichThereIsNoRoomAreLeftInTheEnd) {
  for (Replica* replica : {&a(), &b(), &c()}) replica->in_other = false;
  once_.OnRing(At(10), ring_);
  int asked = 0;
  int64_t ms = 3000;
  for (; once_.state() != State::kCopied && ms < 20000; ms += 200) {
    for (const RepairCore::Ask& ask : once_.TakeDue(At(ms))) {
      asked += ask.member == "b" ? 1 : 0;
      RepairCore::Page page{0, 0, kRing};
      page.kept = ask.member != "b";
      EXPECT_TRUE(once_.OnPage(At(ms), ask.id, page));
    }
  }
  EXPECT_EQ(once_.state(), State::kCopied);
  EXPECT_EQ(asked, RepairCore::kPutOffMax);
}

TEST_F(RepairCoreFillTest, WhoIsNotWholeNeedsAll) {
  a().in_other = b().in_other = true;
  ring_.configuration_id = kBoth;
  core_.OnRing(At(3000), ring_);
  Asked(3000);
  LastPageOf(3001, "c");
  EXPECT_EQ(core_.filled(), ConfigurationId{});
  LastPageOf(3001, "b");
  EXPECT_EQ(core_.filled(), kBoth);
  EXPECT_EQ(core_.copied(), CacheEpoch{3});
}

TEST_F(RepairCoreFillTest, ItFollowsTheStepsOfTheChangeWithoutCopyingAgain) {
  Newcomer();
  core_.OnRing(At(3000), ring_);
  Asked(3000);
  for (const char* member : {"b", "c", "d"}) LastPageOf(3001, member);
  ring_.configuration_id = IdOf(1, RingPhase::kNew);
  a().in_ring = a().whole = true;
  a().in_other = false;
  ring_.replicas[3].in_ring = false;
  ring_.replicas[3].in_other = true;
  core_.OnRing(At(4000), ring_);
  EXPECT_EQ(core_.state(), State::kCopied);
  EXPECT_EQ(core_.filled(), ConfigurationId{});
  EXPECT_THAT(Asked(4000), IsEmpty());
  ring_.replicas.pop_back();
  ring_.configuration_id = kNextRing;
  core_.OnRing(At(5000), ring_);
  EXPECT_EQ(core_.state(), State::kCopied);
  EXPECT_THAT(Asked(5000), IsEmpty());
}

// Its former life was filled, and counted for the ring that is read now.
TEST_F(RepairCoreFillTest, OneThatBeginsAnewJustBeforeTheNewRingIsReadCopiesFromThatOne) {
  Newcomer();
  core_.OnRing(At(10), ring_);
  ASSERT_EQ(core_.state(), State::kResting);
  ring_.configuration_id = IdOf(1, RingPhase::kNew);
  a().in_ring = a().rests = true;
  a().whole = a().in_other = false;
  b().name = "e";
  ring_.replicas.pop_back();
  core_.OnRing(At(100), ring_);
  EXPECT_THAT(Asked(2500), ElementsAre("c@0", "e@0"));
}

TEST_F(RepairCoreFillTest, WhoLeavesHasNothingToCopy) {
  ring_.configuration_id = IdOf(1, RingPhase::kNew);
  a().in_ring = false;
  a().in_other = true;
  core_.OnRing(At(3000), ring_);
  EXPECT_EQ(core_.state(), State::kIdle);
}

TEST_F(RepairCoreFillTest, AnotherChangeIsAnotherFill) {
  Newcomer();
  core_.OnRing(At(3000), ring_);
  Asked(3000);
  for (const char* member : {"b", "c", "d"}) LastPageOf(3001, member);
  ring_.configuration_id = IdOf(2, RingPhase::kBoth);
  core_.OnRing(At(4000), ring_);
  EXPECT_EQ(core_.filled(), ConfigurationId{});
  EXPECT_THAT(Asked(4000), ElementsAre("b@0", "c@0", "d@0"));
}

}  // namespace
}  // namespace tailcast::cache
