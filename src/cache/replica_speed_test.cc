#include "tailcast/cache/replica_speed.h"

#include <vector>

#include "gtest/gtest.h"

namespace tailcast::cache {
namespace {

constexpr Duration kUsual = Duration::Micros(100);

ReplicaSpeed Of(Duration latency) {
  ReplicaSpeed speed;
  for (int i = 0; i < 50; ++i) speed.OnLatency(latency);
  return speed;
}

uint32_t Judge(std::vector<ReplicaSpeed>& speeds) {
  std::vector<ReplicaSpeed*> all;
  for (ReplicaSpeed& speed : speeds) all.push_back(&speed);
  return JudgeSpeeds(all);
}

TEST(ReplicaSpeedTest, OneThatIsClearlyWorseThanTheOthersIsAvoidedUntilItIsWell) {
  std::vector<ReplicaSpeed> speeds = {Of(kUsual), Of(kUsual), Of(kUsual)};
  EXPECT_EQ(Judge(speeds), 0u);
  int latencies = 0;
  while (!speeds[1].avoided() && latencies < 100) {
    speeds[1].OnLatency(Duration::Millis(30));
    Judge(speeds);
    ++latencies;
  }
  EXPECT_TRUE(speeds[1].avoided());
  EXPECT_GE(latencies, 3) << "not for a read or two";
  EXPECT_LE(latencies, 6);
  EXPECT_EQ(Judge(speeds), 0u) << "it has come to that already";
  for (int i = 0; i < 50; ++i) speeds[1].OnLatency(Duration::Millis(30));
  for (latencies = 0; speeds[1].avoided() && latencies < 100; ++latencies) {
    speeds[1].OnLatency(kUsual);
    Judge(speeds);
  }
  EXPECT_FALSE(speeds[1].avoided());
  EXPECT_LE(latencies, 40) << "four seconds of probes";
  EXPECT_FALSE(speeds[0].avoided());
  EXPECT_FALSE(speeds[2].avoided());
}

TEST(ReplicaSpeedTest, HysteresisLiesBetweenTwiceAndFourTimes) {
  std::vector<ReplicaSpeed> speeds = {Of(Duration::Millis(5)), Of(Duration::Millis(5)),
                                      Of(Duration::Millis(20))};
  Judge(speeds);
  EXPECT_FALSE(speeds[2].avoided()) << "four times and 1 ms is the bound";
  speeds[2] = Of(Duration::Millis(22));
  Judge(speeds);
  EXPECT_TRUE(speeds[2].avoided());
  for (int i = 0; i < 50; ++i) speeds[2].OnLatency(Duration::Millis(12));
  Judge(speeds);
  EXPECT_TRUE(speeds[2].avoided());
  for (int i = 0; i < 50; ++i) speeds[2].OnLatency(Duration::Millis(10));
  Judge(speeds);
  EXPECT_FALSE(speeds[2].avoided());
}

TEST(ReplicaSpeedTest, TheFastestIsNeverAvoidedAndNobodyWhenAllAreSlow) {
  // All slow together: a client that is starved itself, or a far cell.
  std::vector<ReplicaSpeed> speeds = {Of(Duration::Millis(80)), Of(Duration::Millis(90)),
                                      Of(Duration::Millis(70))};
  EXPECT_EQ(Judge(speeds), 0u);
  speeds = {Of(kUsual), Of(Duration::Millis(90)), Of(Duration::Millis(70)), Of(kUsual)};
  EXPECT_EQ(Judge(speeds), 2u);
  EXPECT_FALSE(speeds[0].avoided());
  EXPECT_FALSE(speeds[3].avoided());
  speeds = {Of(Duration::Millis(90)), Of(kUsual), Of(Duration::Millis(70))};
  EXPECT_EQ(Judge(speeds), 2u);
  EXPECT_FALSE(speeds[1].avoided());
  speeds = {Of(kUsual), Of(Duration::Millis(90))};
  EXPECT_EQ(Judge(speeds), 1u);
  speeds = {Of(Duration::Millis(90))};
  EXPECT_EQ(Judge(speeds), 0u) << "nobody to compare it with";
}

TEST(ReplicaSpeedTest, WhoWasReadALittleIsNotJudged) {
  std::vector<ReplicaSpeed> speeds = {Of(kUsual), ReplicaSpeed(), Of(kUsual)};
  for (uint32_t i = 1; i < ReplicaSpeed::kLatenciesMin; ++i) {
    speeds[1].OnLatency(Duration::Millis(30));
  }
  Judge(speeds);
  EXPECT_FALSE(speeds[1].avoided());
  speeds[1].OnLatency(Duration::Millis(30));
  Judge(speeds);
  EXPECT_TRUE(speeds[1].avoided());
}

TEST(ReplicaSpeedTest, OneReadInAHundredProbesAndOneInATenthOfASecondIfTheyAreFew) {
  ReplicaSpeed speed = Of(kUsual);
  MonotonicTime now = MonotonicTime::FromMicros(1'000'000);
  int probes = 0;
  for (int i = 0; i < 100'000; ++i) {
    now = now + Duration::Micros(10);
    probes += speed.TakeProbe(now) ? 1 : 0;
  }
  EXPECT_NEAR(probes, 1000, 10);
  probes = 0;
  for (int i = 0; i < 100; ++i) {
    now = now + Duration::Millis(50);
    probes += speed.TakeProbe(now) ? 1 : 0;
  }
  EXPECT_NEAR(probes, 50, 1);
}

}  // namespace
}  // namespace tailcast::cache
