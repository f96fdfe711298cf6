#include "tailcast/reader/length_poll_core.h"

#include <vector>

#include "gtest/gtest.h"

namespace tailcast::reader {
namespace {

using Keys = std::vector<cache::Key>;

const cache::Key kA{1, 1};
const cache::Key kB{2, 2};
MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

class LengthPollCoreTest : public ::testing::Test {
 protected:
  // With doorbells; group A was read and is watched.
  void Watched() {
    core.Add(1, kA);
    ASSERT_EQ(core.NextRead(At(10000)), Keys{kA});
    core.OnRead();
    ASSERT_TRUE(core.TakeWatch(kA));
    ASSERT_EQ(core.OnTick(At(10050)), Keys{kA}) << "the first full read";
    core.OnRead();
    ASSERT_FALSE(core.TakeWatch(kA)) << "it is watched";
  }

  LengthPollCore polls{{.doorbells = false, .full_interval = Duration::Seconds(2)}};
  LengthPollCore core{{.doorbells = true, .full_interval = Duration::Seconds(2)}};
};

TEST_F(LengthPollCoreTest, WithoutDoorbellsEveryTickReadsEveryGroup) {
  polls.Add(1, kA);
  polls.Add(2, kB);
  polls.Add(3, kA);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(polls.OnTick(At(i * 50)), (Keys{kA, kB}));
    polls.OnRead();
    EXPECT_FALSE(polls.TakeWatch(kA));
  }
  EXPECT_EQ(polls.OperationsOf(kA), (std::vector<uint64_t>{1, 3}));
}

TEST_F(LengthPollCoreTest, ANewOperationIsReadOnceWithoutATick) {
  polls.Add(1, kA);
  EXPECT_EQ(polls.NextRead(At(0)), Keys{kA});
  polls.OnRead();
  EXPECT_EQ(polls.NextRead(At(1)), Keys{});
}

TEST_F(LengthPollCoreTest, OneReadAtATime) {
  polls.Add(1, kA);
  EXPECT_EQ(polls.OnTick(At(0)), Keys{kA});
  EXPECT_EQ(polls.OnTick(At(50)), Keys{}) << "a stalled cache is not asked again";
  polls.Add(2, kB);
  EXPECT_EQ(polls.NextRead(At(60)), Keys{});
  polls.OnRead();
  EXPECT_EQ(polls.NextRead(At(70)), Keys{kB}) << "what became dirty meanwhile";
}

TEST_F(LengthPollCoreTest, AGroupEndsWithItsLastOperation) {
  polls.Add(1, kA);
  polls.Add(2, kA);
  EXPECT_FALSE(polls.Remove(1, kA));
  EXPECT_TRUE(polls.Remove(2, kA));
  EXPECT_FALSE(polls.Remove(2, kA)) << "a second time";
  EXPECT_TRUE(polls.empty());
  EXPECT_EQ(polls.OnTick(At(0)), Keys{});
  EXPECT_TRUE(polls.OperationsOf(kA).empty());
}

TEST_F(LengthPollCoreTest, AWatchedGroupIsReadWhenItsDoorbellSaysSo) {
  Watched();
  EXPECT_EQ(core.OnTick(At(10100)), Keys{});
  core.OnDoorbell(kA, true);
  EXPECT_EQ(core.NextRead(At(10110)), Keys{kA});
  core.OnRead();
  EXPECT_TRUE(core.TakeWatch(kA)) << "and is watched again";
}

TEST_F(LengthPollCoreTest, ADoorbellDuringAReadIsNotLost) {
  Watched();
  core.OnDoorbell(kA, true);
  ASSERT_EQ(core.NextRead(At(10100)), Keys{kA});
  core.Add(2, kA);  // dirty again, as by a doorbell
  core.OnRead();
  EXPECT_EQ(core.NextRead(At(10110)), Keys{kA});
}

TEST_F(LengthPollCoreTest, EveryGroupIsReadNowAndThenWhateverTheDoorbells) {
  Watched();
  EXPECT_EQ(core.OnTick(At(12049)), Keys{});
  EXPECT_EQ(core.OnTick(At(12050)), Keys{kA});
}

TEST_F(LengthPollCoreTest, AGroupThatNobodyCanWatchIsPolledAtEveryTick) {
  Watched();
  core.OnDoorbell(kA, false);
  EXPECT_EQ(core.NextRead(At(10060)), Keys{}) << "not before the tick";
  for (int64_t ms = 10100; ms < 10300; ms += 50) {
    EXPECT_EQ(core.OnTick(At(ms)), Keys{kA});
    core.OnRead();
    EXPECT_TRUE(core.TakeWatch(kA)) << "it is tried again";
    EXPECT_EQ(core.NextRead(At(ms + 1)), Keys{});
    core.OnDoorbell(kA, false);
  }
  // Somebody watches it at last: polled until the first notice.
  core.OnTick(At(10300));
  core.OnRead();
  EXPECT_TRUE(core.TakeWatch(kA));
  EXPECT_EQ(core.OnTick(At(10350)), Keys{kA});
  core.OnRead();
  core.OnDoorbell(kA, true);
  EXPECT_EQ(core.NextRead(At(10360)), Keys{kA});
  core.OnRead();
  EXPECT_TRUE(core.TakeWatch(kA));
  EXPECT_EQ(core.OnTick(At(10400)), Keys{});
}

TEST_F(LengthPollCoreTest, ADoorbellOfAGroupThatIsGoneOrNotWatchedIsIgnored) {
  Watched();
  core.Remove(1, kA);
  core.OnDoorbell(kA, true);
  EXPECT_TRUE(core.empty());
  core.Add(2, kA);
  core.NextRead(At(10100));
  core.OnRead();
  core.OnDoorbell(kA, true);  // of the group before
  EXPECT_EQ(core.NextRead(At(10110)), Keys{});
  EXPECT_FALSE(core.TakeWatch(kB));
}

}  // namespace
}  // namespace tailcast::reader
