#include "tailcast/cache/serving_core.h"

#include <gtest/gtest.h>

#include "tailcast/base/strong.h"

namespace tailcast::cache {
namespace {

using State = ServingCore::State;

constexpr ProcessIncarnation kMine{7}, kOther{8};

class ServingCoreTest : public ::testing::Test {
 protected:
  static MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
  bool Names(ProcessIncarnation incarnation) {
    ring.replicas = {{"cache-0", "", {}, incarnation}};
    return Publish();
  }
  bool NamesNobody() {
    ring.replicas.clear();
    return Publish();
  }
  bool Publish() {
    ring.configuration_id = Successor(ring.configuration_id);
    return core.OnRing(now, ring);
  }
  Confirmation Heard() const {
    return {.asked = now,
            .lease = Duration::Millis(300),
            .configuration = ring.configuration_id,
            .epoch = ring.epoch};
  }
  bool Confirm(const Confirmation& confirmation) {
    return core.OnConfirmation(now, ring, confirmation);
  }

  ServingCore core{"cache-0", kMine, Duration::Millis(100)};
  RingConfig ring{.configuration_id = ConfigurationId{1}};
  MonotonicTime now = At(1000);
};

TEST_F(ServingCoreTest, ItServesWhileTheRingNamesIt) {
  Names(kMine);
  EXPECT_EQ(core.state(), State::kServes);
  NamesNobody();
  EXPECT_EQ(core.state(), State::kNotInRing);
  EXPECT_FALSE(core.serves());
  Names(kMine);
  EXPECT_TRUE(core.serves());
}

TEST_F(ServingCoreTest, ARingThatDoesNotKnowOfItYetMayNameTheLifeBefore) {
  Names(kOther);
  EXPECT_TRUE(core.serves());
  Names(kMine);
  Names(kOther);
  EXPECT_EQ(core.state(), State::kReplaced) << "it was known";
}

TEST_F(ServingCoreTest, WhoWasReplacedStaysSoWhenItsSuccessorGoes) {
  Names(kMine);
  Names(kOther);
  NamesNobody();
  EXPECT_EQ(core.state(), State::kReplaced);
  Names(ProcessIncarnation::kNone);
  EXPECT_EQ(core.state(), State::kReplaced) << "it has missed what its successor acknowledged";
  Names(kMine);
  EXPECT_TRUE(core.serves());
}

TEST_F(ServingCoreTest, WhoStoodStillIsSureOnceWhatItAskedForAfterwardsIsKnown) {
  Names(kMine);
  EXPECT_FALSE(core.OnTick(now)) << "it has just begun";
  now = At(1100);
  EXPECT_FALSE(core.OnTick(now));
  const Confirmation before = Heard();
  now = At(1201);
  EXPECT_EQ(core.OnTick(now), Duration::Millis(101));
  EXPECT_EQ(core.state(), State::kStalled);
  EXPECT_FALSE(Confirm(before)) << "others may have given it up since";
  Confirmation newer = Heard();
  newer.configuration = Successor(ring.configuration_id);
  EXPECT_FALSE(Confirm(newer));
  EXPECT_EQ(core.state(), State::kStalled);
  EXPECT_TRUE(Publish()) << "the ring that the registry had";
  EXPECT_TRUE(core.serves());
  EXPECT_EQ(core.lease_end(), At(1501)) << "from when it was asked for";
}

TEST_F(ServingCoreTest, ARingThatComesWhenTheLeaseIsOverDoesNotMakeItSure) {
  Names(kMine);
  (void)core.OnTick(now);
  now = At(1200);
  (void)core.OnTick(now);
  Confirmation newer = Heard();
  newer.epoch = CacheEpoch{1};
  EXPECT_FALSE(Confirm(newer));
  now = At(1500);
  ring.epoch = CacheEpoch{1};
  EXPECT_FALSE(Publish());
  EXPECT_FALSE(core.serves());
}

TEST_F(ServingCoreTest, ItsLeaseEndsAndAnotherOneBegins) {
  Names(kMine);
  EXPECT_EQ(core.lease_end(), MonotonicTime::Max()) << "nobody has given it one";
  EXPECT_FALSE(Confirm(Heard())) << "it was sure";
  EXPECT_EQ(core.lease_end(), At(1300));
  Confirmation late = Heard();
  late.asked = At(900);
  Confirm(late);
  EXPECT_EQ(core.lease_end(), At(1300)) << "an answer that was overtaken takes nothing away";
  now = At(1300);
  core.OnLeaseEnd();
  EXPECT_EQ(core.state(), State::kNoLease);
  EXPECT_FALSE(core.record_differs());
  EXPECT_FALSE(Confirm(late)) << "it came too late";
  EXPECT_TRUE(Confirm(Heard()));
  EXPECT_TRUE(core.serves());
  EXPECT_EQ(core.lease_end(), At(1600));
}

TEST_F(ServingCoreTest, TheRecordOfTheRegistryConfirmsWhatItAlsoKnows) {
  Names(kMine);
  Confirmation record = Heard();
  record.by_record = true;
  Confirm(record);
  EXPECT_EQ(core.lease_end(), At(1300));
  now = At(1200);
  record.asked = now;
  Confirmation other_life = record, other_ring = record, other_epoch = record;
  other_life.other_life = true;
  other_ring.configuration = Successor(ring.configuration_id);
  other_epoch.epoch = CacheEpoch{1};
  for (const Confirmation& differs : {other_life, other_ring, other_epoch}) {
    Confirm(differs);
    EXPECT_EQ(core.lease_end(), At(1300));
    EXPECT_TRUE(core.record_differs());
    Confirm({.asked = At(1000), .lease = Duration::Millis(300)});
    EXPECT_FALSE(core.record_differs()) << "the scheduler has answered";
  }
  Confirm(record);
  EXPECT_EQ(core.lease_end(), At(1500));
}

}  // namespace
}  // namespace tailcast::cache
