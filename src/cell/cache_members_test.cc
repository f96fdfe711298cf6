// The registry's word on who is whole and how the ring changes, by itself. Together with
// RepairCore, clients and servers: cache_members_sweep_test.cc.
#include "tailcast/cell/cache_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tailcast/base/strong.h"

namespace tailcast::cell {
namespace {

using cache::CacheEpoch;
using cache::ConfigurationId;
using cache::RingPhase;

MonotonicTime At(int64_t ms) { return MonotonicTime() + Duration::Millis(ms); }
constexpr Duration kFence = Duration::Seconds(2), kLease = Duration::Millis(1500);
ProcessIncarnation Life(uint64_t n) { return ProcessIncarnation{n}; }

class CacheMembersTest : public testing::Test {
 protected:
  CacheMembers Open(const std::vector<std::string>& names) {
    return CacheMembers(saved_, names,
                        {.lease = kLease, .fence_after = kFence, .raise_after = raise_after_});
  }
  // A deployment whose three replicas are whole, in life 1.
  CacheMembers Running() {
    CacheMembers members = Open({"a", "b", "c"});
    for (const char* name : {"a", "b", "c"}) {
      members.OnRegistered(At(0), name, {.incarnation = Life(1), .copied = members.epoch()});
    }
    return members;
  }
  static std::vector<std::string> NamesOf(const CacheMembers::Members& members) {
    std::vector<std::string> names;
    for (const auto& [name, member] : members) names.push_back(name);
    return names;
  }
  // `name` says that it holds what it will own, and has heard of the newest configuration.
  static void Fill(CacheMembers& members, int64_t ms, const char* name, uint64_t life) {
    const ConfigurationId id = members.configuration_id();
    members.OnWritten(id);
    members.OnRegistered(At(ms), name, {Life(life), members.epoch(), id, id, id});
  }
  static void Seal(CacheMembers& members, int64_t ms, const char* name, uint64_t life) {
    members.OnWritten(members.configuration_id());
    members.OnRegistered(At(ms), name,
                         {.incarnation = Life(life), .sealed = members.configuration_id()});
  }
  v1::RegistrySnapshot saved_;
  Duration raise_after_;
};

TEST_F(CacheMembersTest, WhenAllBeginAnewTheEpochRisesOnce) {
  raise_after_ = Duration::Millis(500);
  CacheMembers members = Open({"a", "b", "c", "d"});
  for (const char* name : {"a", "b", "c", "d"}) {
    members.OnRegistered(At(0), name, {.incarnation = Life(1), .copied = members.epoch()});
  }
  const CacheEpoch before = members.epoch();
  int64_t ms = 1000;
  for (const char* name : {"a", "b", "c", "d"}) {
    members.OnRegistered(At(ms += 100), name, {.incarnation = Life(2)});
  }
  EXPECT_EQ(members.epoch(), before);
  EXPECT_EQ(members.NextTime(), At(1200 + 500)) << "from when two had lost what they had";
  members.OnTime(At(1700));
  EXPECT_EQ(members.epoch(), Successor(before));
  members.OnTime(At(9000));
  EXPECT_EQ(members.epoch(), Successor(before));
}

TEST_F(CacheMembersTest, ANewRingIsAnEpochInWhichNobodyHasAnythingToCopy) {
  CacheMembers members = Open({"a", "b", "c"});
  EXPECT_TRUE(members.changed());
  EXPECT_EQ(members.epoch(), CacheEpoch{1});
  EXPECT_EQ(members.configuration_id(), cache::IdOf(1, RingPhase::kSettled));
  EXPECT_TRUE(members.members().at("a").excused);
  members.OnRegistered(At(0), "a", {.incarnation = Life(1), .copied = CacheEpoch{}});
  EXPECT_TRUE(members.members().at("a").excused) << "it was not asked for yet";
  members.OnRegistered(At(0), "a", {.incarnation = Life(1), .copied = CacheEpoch{1}});
  EXPECT_EQ(members.members().at("a"), (CacheMembers::Member{Life(1), false}));

  members.Save(&saved_);
  EXPECT_FALSE(Open({"c", "b", "a"}).changed());
}

TEST_F(CacheMembersTest, AdmissionsAndRaisesOfTheEpochAreToldWithTheirCause) {
  using Cause = CacheMembers::RaiseCause;
  const auto text = [](const std::vector<CacheMembers::Event>& events) {
    std::string all;
    for (const CacheMembers::Event& event : events) {
      const char* const what = !event.raised.has_value()              ? "whole"
                               : *event.raised == Cause::kRing        ? "ring"
                               : *event.raised == Cause::kStartedAnew ? "anew"
                                                                      : "gone";
      all += std::string(all.empty() ? "" : ", ") + event.member + " " + what + " " +
             std::to_string(Raw(event.epoch));
    }
    return all;
  };
  CacheMembers members = Running();
  EXPECT_EQ(text(members.TakeEvents()), " ring 1, a whole 1, b whole 1, c whole 1");
  EXPECT_EQ(text(members.TakeEvents()), "");
  members.OnRegistered(At(10), "a", {Life(2), CacheEpoch{}});
  members.OnRegistered(At(20), "b", {Life(2), CacheEpoch{}});
  EXPECT_EQ(text(members.TakeEvents()), "a anew 2");
  members.OnRegistered(At(30), "a", {Life(2), CacheEpoch{2}});
  members.OnRegistered(At(40), "b", {Life(2), CacheEpoch{2}});
  members.OnGone(At(1000), "c");
  members.OnRegistered(At(1500), "a", {Life(3), CacheEpoch{}});
  members.OnTime(At(3000));
  EXPECT_EQ(text(members.TakeEvents()), "a whole 2, b whole 2, c gone 3");
}

TEST_F(CacheMembersTest, OneThatBeginsAnewIsWholeWhenItHasCopied) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(10), "a", {.incarnation = Life(2), .copied = CacheEpoch{}});
  EXPECT_EQ(members.members().at("a"), (CacheMembers::Member{Life(1), false}));
  EXPECT_EQ(members.NextTime(), MonotonicTime::Max());
  members.OnRegistered(At(5000), "a", {.incarnation = Life(2), .copied = epoch});
  EXPECT_EQ(members.members().at("a"), (CacheMembers::Member{Life(2), false}));
  EXPECT_EQ(members.epoch(), epoch);
}

TEST_F(CacheMembersTest, TwoThatBeganAnewRaiseTheEpoch) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(10), "a", {.incarnation = Life(2), .copied = CacheEpoch{}});
  members.OnRegistered(At(20), "b", {.incarnation = Life(2), .copied = CacheEpoch{}});
  EXPECT_EQ(members.epoch(), Successor(epoch));
  EXPECT_TRUE(members.members().at("a").excused);
  EXPECT_TRUE(members.members().at("b").excused);
  EXPECT_FALSE(members.members().at("c").excused);
  members.OnRegistered(At(30), "a", {.incarnation = Life(2), .copied = epoch});
  EXPECT_TRUE(members.members().at("a").excused) << "what it copied for the epoch before";
  members.OnRegistered(At(40), "a", {.incarnation = Life(2), .copied = Successor(epoch)});
  EXPECT_FALSE(members.members().at("a").excused);
  members.OnRegistered(At(50), "b", {.incarnation = Life(3), .copied = CacheEpoch{}});
  EXPECT_EQ(members.epoch(), Successor(epoch)) << "b has what c and a have to copy from";
}

TEST_F(CacheMembersTest, OneThatIsGoneIsGivenUpOnlyWhenAnotherOneNeedsItForLong) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  members.OnGone(At(1000), "b");
  members.OnTime(At(100000));
  EXPECT_EQ(members.epoch(), epoch) << "nobody needs it";
  members.OnRegistered(At(100000), "b", {.incarnation = Life(1), .copied = CacheEpoch{}});
  EXPECT_EQ(members.epoch(), epoch) << "and it is whole when it is back";
  members.OnGone(At(101000), "b");
  members.OnRegistered(At(101500), "a", {.incarnation = Life(2), .copied = CacheEpoch{}});
  EXPECT_EQ(members.NextTime(), At(103000));
  members.OnTime(At(102999));
  EXPECT_EQ(members.epoch(), epoch);
  members.OnTime(At(103000));
  EXPECT_EQ(members.epoch(), Successor(epoch));
  EXPECT_TRUE(members.members().at("b").excused);
  members.OnRegistered(At(103100), "b", {.incarnation = Life(1), .copied = CacheEpoch{}});
  EXPECT_TRUE(members.members().at("b").excused) << "it missed what was written without it";
}

TEST_F(CacheMembersTest, TheOnlyReplicaLosesAllWhenItBeginsAnew) {
  CacheMembers members = Open({"a"});
  members.OnRegistered(At(0), "a", {.incarnation = Life(1), .copied = members.epoch()});
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(10), "a", {.incarnation = Life(2), .copied = CacheEpoch{}});
  EXPECT_EQ(members.epoch(), Successor(epoch));
  EXPECT_TRUE(members.members().at("a").excused);
}

TEST_F(CacheMembersTest, AfterARestartOfTheSchedulerNobodyIsGivenUpBeforeHeCouldRegister) {
  Running().Save(&saved_);
  CacheMembers members = Open({"a", "b", "c"});
  EXPECT_FALSE(members.changed());
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(50), "a", {.incarnation = Life(2), .copied = CacheEpoch{}});
  EXPECT_EQ(members.NextTime(), At(50) + kLease + kFence) << "it may have been heard until now";
  members.OnRegistered(At(400), "b", {.incarnation = Life(1), .copied = CacheEpoch{}});
  members.OnRegistered(At(400), "c", {.incarnation = Life(1), .copied = CacheEpoch{}});
  EXPECT_EQ(members.NextTime(), MonotonicTime::Max());
  EXPECT_EQ(members.epoch(), epoch);
}

TEST_F(CacheMembersTest, ARingChangesInPhasesWithoutANewEpoch) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  ASSERT_TRUE(members.ChangeTo({"c", "d", "e"}).ok());
  EXPECT_EQ(members.configuration_id(), cache::IdOf(1, RingPhase::kBoth));
  EXPECT_TRUE(members.ChangeTo({"e", "d", "c"}).ok()) << "it is under way";
  EXPECT_TRUE(IsFailedPrecondition(members.ChangeTo({"a", "d"})));
  Fill(members, 10, "c", 1);
  Fill(members, 20, "d", 1);
  EXPECT_EQ(members.phase(), RingPhase::kBoth) << "e has not been filled";
  Fill(members, 30, "e", 1);
  EXPECT_EQ(members.configuration_id(), cache::IdOf(1, RingPhase::kNew));
  EXPECT_EQ(NamesOf(members.members()), (std::vector<std::string>{"c", "d", "e"}));
  EXPECT_EQ(NamesOf(members.other()), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(members.members().at("e"), (CacheMembers::Member{Life(1), false}));
  // Under the next scheduler it goes on.
  members.Save(&saved_);
  CacheMembers next = Open({"a", "b", "c"});
  EXPECT_EQ(next.configuration_id(), cache::IdOf(1, RingPhase::kNew));
  Seal(next, 40, "a", 1);
  Seal(next, 40, "c", 1);
  EXPECT_EQ(next.NextTime(), At(40) + kFence) << "their former lives may be read";
  next.OnTime(At(40) + kFence);
  EXPECT_EQ(next.configuration_id(), cache::IdOf(2, RingPhase::kSettled));
  EXPECT_TRUE(next.other().empty());
  EXPECT_EQ(next.epoch(), epoch);
  // The configuration still declares what it did, and so changes nothing.
  next.Save(&saved_);
  EXPECT_FALSE(Open({"a", "b", "c"}).changed());
  // And when it declares others, those that come have to be there.
  CacheMembers declared = Open({"c", "d", "e", "f"});
  EXPECT_EQ(declared.phase(), RingPhase::kSettled);
  declared.OnRegistered(At(50), "f", {.incarnation = Life(1)});
  EXPECT_EQ(declared.configuration_id(), cache::IdOf(2, RingPhase::kBoth));
}

TEST_F(CacheMembersTest, TheNewRingIsNotReadBeforeAllOfItAreFilledInThisLife) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"b", "c", "d"}).ok());
  Fill(members, 10, "b", 1);
  Fill(members, 10, "d", 1);
  members.OnRegistered(At(20), "d", {.incarnation = Life(2)});
  Fill(members, 30, "c", 1);
  EXPECT_EQ(members.phase(), RingPhase::kBoth) << "d began anew";
  Fill(members, 40, "d", 2);
  EXPECT_EQ(members.phase(), RingPhase::kNew);
}

TEST_F(CacheMembersTest, WhoIsInBothRingsMustBeWholeInTheOldOne) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"a", "b", "c", "d"}).ok());
  for (const char* name : {"a", "b", "d"}) Fill(members, 10, name, 1);
  const ConfigurationId both = members.configuration_id();
  members.OnRegistered(At(20), "c", {.incarnation = Life(2), .filled = both, .data_filled = both});
  EXPECT_EQ(members.phase(), RingPhase::kBoth);
  Fill(members, 30, "c", 2);
  EXPECT_EQ(members.phase(), RingPhase::kNew);
}

TEST_F(CacheMembersTest, ChunksAreWaitedForAsLongAsTheyLive) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"a", "b", "d"}).ok());
  const ConfigurationId both = members.configuration_id();
  Fill(members, 1000, "a", 1);
  Fill(members, 1000, "b", 1);
  members.OnRegistered(At(2000), "d", {.incarnation = Life(1), .filled = both});
  EXPECT_EQ(members.NextTime(), At(61000));
  members.OnTime(At(60999));
  EXPECT_EQ(members.phase(), RingPhase::kBoth);
  members.OnTime(At(61000));
  EXPECT_EQ(members.phase(), RingPhase::kNew);
}

TEST_F(CacheMembersTest, TheOldRingIsKeptUntilNobodyCanTakeItsValuesForAll) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"d", "e", "f"}).ok());
  for (const char* name : {"d", "e", "f"}) Fill(members, 10, name, 1);
  ASSERT_EQ(members.phase(), RingPhase::kNew);
  Seal(members, 3000, "a", 1);
  members.OnGone(At(4000), "b");
  EXPECT_EQ(members.phase(), RingPhase::kNew) << "b and c may be read";
  members.OnTime(At(10000));
  EXPECT_EQ(members.phase(), RingPhase::kNew) << "b may come back for a moment, beside c";
  Seal(members, 11000, "c", 1);
  EXPECT_EQ(members.phase(), RingPhase::kSettled);
}

// They may live, cut off, and have read in the record until then that nothing has changed.
TEST_F(CacheMembersTest, WhoIsGoneIsGivenUpALeaseAndAFenceAfterTheRecordSaysThatTheNewRingIsRead) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"d", "e", "f"}).ok());
  for (const char* name : {"d", "e", "f"}) {
    members.OnRegistered(At(50), name, {.incarnation = Life(1)});
  }
  members.OnGone(At(100), "a");
  members.OnGone(At(100), "b");
  for (const char* name : {"d", "e", "f"}) Fill(members, 9000, name, 1);
  ASSERT_EQ(members.phase(), RingPhase::kNew);
  members.OnRegistered(At(9100), "c",
                       {.incarnation = Life(1), .sealed = members.configuration_id()});
  members.OnTime(At(19000));
  EXPECT_EQ(members.phase(), RingPhase::kNew) << "it is not written";
  members.OnWritten(members.configuration_id());
  members.OnTime(At(20000));
  const int64_t enough = 20000 + (kLease + kFence).millis();
  EXPECT_EQ(members.NextTime(), At(enough));
  members.OnTime(At(enough - 1));
  EXPECT_EQ(members.phase(), RingPhase::kNew);
  members.OnTime(At(enough));
  EXPECT_EQ(members.phase(), RingPhase::kSettled);
}

TEST_F(CacheMembersTest, OneOfTheOldRingMayStayReadableAsItIsNeverBelievedAlone) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"d", "e", "f"}).ok());
  for (const char* name : {"d", "e", "f"}) Fill(members, 10, name, 1);
  Seal(members, 3000, "a", 1);
  EXPECT_EQ(members.phase(), RingPhase::kNew);
  Seal(members, 3000, "c", 1);
  EXPECT_EQ(members.phase(), RingPhase::kSettled);
}

TEST_F(CacheMembersTest, AChangeToReplicasThatAreGoneIsTakenBack) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"c", "d", "e"}).ok());
  members.OnRegistered(At(10), "d", {.incarnation = Life(1)});
  members.OnRegistered(At(10), "e", {.incarnation = Life(1)});
  members.OnGone(At(1000), "d");
  members.OnTime(At(50000));
  EXPECT_EQ(members.phase(), RingPhase::kBoth) << "two of c, d and e can acknowledge";
  members.OnGone(At(50000), "e");
  members.OnTime(At(51999));
  EXPECT_EQ(members.phase(), RingPhase::kBoth);
  members.OnTime(At(52000));
  EXPECT_EQ(members.configuration_id(), cache::IdOf(2, RingPhase::kSettled));
  EXPECT_EQ(NamesOf(members.members()), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(CacheMembersTest, AChangeIsTakenBackAsLongAsTheOldRingIsRead) {
  CacheMembers members = Running();
  EXPECT_TRUE(IsFailedPrecondition(members.Cancel()));
  ASSERT_TRUE(members.ChangeTo({"a", "b", "d"}).ok());
  ASSERT_TRUE(members.Cancel().ok());
  EXPECT_EQ(members.configuration_id(), cache::IdOf(2, RingPhase::kSettled));
  EXPECT_EQ(NamesOf(members.members()), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(members.members().at("a"), (CacheMembers::Member{Life(1), false}));
  ASSERT_TRUE(members.ChangeTo({"a", "b", "d"}).ok());
  for (const char* name : {"a", "b", "d"}) Fill(members, 10, name, 1);
  EXPECT_TRUE(IsFailedPrecondition(members.Cancel())) << "the new ring is read";
}

// The configuration was changed while another change was under way.
TEST_F(CacheMembersTest, WhenAChangeIsTakenBackTheOneThatIsDeclaredBegins) {
  CacheMembers members = Running();
  ASSERT_TRUE(members.ChangeTo({"a", "b", "d"}).ok());
  members.Save(&saved_);
  CacheMembers next = Open({"a", "b", "e"});
  next.OnRegistered(At(10), "e", {.incarnation = Life(1)});
  EXPECT_EQ(next.configuration_id(), cache::IdOf(1, RingPhase::kBoth));
  ASSERT_TRUE(next.Cancel().ok());
  EXPECT_EQ(next.configuration_id(), cache::IdOf(2, RingPhase::kBoth));
  EXPECT_EQ(NamesOf(next.other()), (std::vector<std::string>{"a", "b", "e"}));
  ASSERT_TRUE(next.Cancel().ok());
  EXPECT_EQ(next.phase(), RingPhase::kSettled) << "that was its turn";
}

TEST_F(CacheMembersTest, WhoIsFilledDoesWithoutOneOfTheOldRingButNotWithoutTwo) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  ASSERT_TRUE(members.ChangeTo({"c", "d", "e"}).ok());
  members.OnGone(At(1000), "a");
  members.OnRegistered(At(1000), "d", {.incarnation = Life(1)});
  members.OnTime(At(100000));
  EXPECT_EQ(members.epoch(), epoch);
  members.OnGone(At(100000), "b");
  members.OnTime(At(159999));
  EXPECT_EQ(members.epoch(), epoch);
  members.OnTime(At(160000));
  EXPECT_EQ(members.epoch(), Successor(epoch));
  EXPECT_TRUE(members.members().at("a").excused);
  EXPECT_TRUE(members.members().at("b").excused);
}

TEST_F(CacheMembersTest, RefusesRingsThatMakeNoSense) {
  CacheMembers members = Running();
  EXPECT_TRUE(IsInvalidArgument(members.ChangeTo({})));
  EXPECT_TRUE(IsInvalidArgument(members.ChangeTo({"a", "b", "a"})));
  EXPECT_TRUE(IsInvalidArgument(members.ChangeTo({"a", "no name"})));
  EXPECT_TRUE(IsFailedPrecondition(members.ChangeTo({"memcached:host:1"})));
  EXPECT_TRUE(members.ChangeTo({"c", "b", "a"}).ok());
  EXPECT_EQ(members.phase(), RingPhase::kSettled) << "it is that ring";
}

TEST_F(CacheMembersTest, WhoseNameAnotherProcessHasTakenNeverGetsItBack) {
  CacheMembers members = Running();
  EXPECT_FALSE(members.IsReplaced("a", Life(1), false));
  members.OnGone(At(1000), "a");
  EXPECT_FALSE(members.IsReplaced("a", Life(1), false)) << "it may only be slow";
  members.OnRegistered(At(2000), "a", {.incarnation = Life(2)});
  EXPECT_TRUE(members.IsReplaced("a", Life(1), false));
  EXPECT_FALSE(members.IsReplaced("a", Life(2), false));
  members.OnRegistered(At(5000), "a", {.incarnation = Life(2), .copied = members.epoch()});
  // The next scheduler knows it, too.
  members.Save(&saved_);
  const CacheMembers next = Open({"a", "b", "c"});
  EXPECT_TRUE(next.IsReplaced("a", Life(1), false));
  EXPECT_FALSE(next.IsReplaced("a", Life(2), false));
  EXPECT_FALSE(next.IsReplaced("a", Life(3), false));
  EXPECT_TRUE(next.IsReplaced("a", Life(3), true)) << "it copied, and not since the second came";
}

// As when the ring was changed to one without the name while the elder hung, and back.
TEST_F(CacheMembersTest, WhoWasForgottenDoesNotComeBackWithWhatItCopied) {
  CacheMembers members = Running();
  members.OnGone(At(1000), "a");
  members.OnRegistered(At(2000), "a", {.incarnation = Life(2)});
  EXPECT_TRUE(members.IsReplaced("a", Life(7), true)) << "an elder of which nothing is noted";
  EXPECT_FALSE(members.IsReplaced("a", Life(2), true));
}

}  // namespace
}  // namespace tailcast::cell
