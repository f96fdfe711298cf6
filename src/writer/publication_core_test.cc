#include "tailcast/writer/publication_core.h"

#include "gtest/gtest.h"

namespace tailcast::writer {
namespace {

using State = PublicationCore::State;
using stream::PairMetadata;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

PairMetadata Length(int64_t bytes) {
  PairMetadata metadata;
  metadata.cache_length[0] = bytes;
  return metadata;
}

PublicationCore Make() {
  PairMetadata about;
  about.created_us = 77;
  about.chunk_size = 512;
  return PublicationCore({Duration::Millis(20), Duration::Millis(500)}, about);
}

TEST(PublicationCore, WhatNamesThePairGoesWithTheFirstWrite) {
  PublicationCore core = Make();
  EXPECT_FALSE(core.NextWrite(At(0)));
  core.Add({});
  const auto write = core.NextWrite(At(0));
  ASSERT_TRUE(write);
  EXPECT_EQ(write->created_us, 77);
  EXPECT_EQ(write->chunk_size, 512);
}

TEST(PublicationCore, OneWriteAtATimeAndTheNextHasAllThatCameMeanwhile) {
  PublicationCore core = Make();
  core.Add(Length(10));
  ASSERT_TRUE(core.NextWrite(At(0)));
  core.Add(Length(20));
  core.Add(Length(30));
  EXPECT_FALSE(core.NextWrite(At(1)));
  core.OnPublished(At(2), true);
  EXPECT_FALSE(core.settled());
  EXPECT_EQ(core.NextWrite(At(2))->cache_length[0], 30);
  core.OnPublished(At(3), true);
  EXPECT_TRUE(core.settled());
  core.Add(Length(25));
  EXPECT_FALSE(core.NextWrite(At(4))) << "lengths never fall: no news";
}

TEST(PublicationCore, FailuresAreRepeatedAfterADelayThatDoublesUpToItsMaximum) {
  PublicationCore core = Make();
  core.Add(Length(10));
  MonotonicTime now = At(0);
  for (const int64_t delay_ms : {40, 80, 160, 320, 500, 500, 500, 500, 500, 500, 500}) {
    ASSERT_TRUE(core.NextWrite(now));
    core.OnPublished(now, false);
    EXPECT_EQ(core.state(), State::kWaiting);
    EXPECT_EQ(core.retry_at(), now + Duration::Millis(delay_ms));
    EXPECT_FALSE(core.NextWrite(now));
    now = core.retry_at();
  }
  EXPECT_EQ(core.failures(), 11);
  ASSERT_TRUE(core.NextWrite(now));
  EXPECT_EQ(core.retry_at(), MonotonicTime::Max());
  core.OnPublished(now, true);
  EXPECT_EQ(core.failures(), 0);
  EXPECT_TRUE(core.settled());
}

TEST(PublicationCore, AnAnswerThatNobodyWaitsForIsIgnored) {
  PublicationCore core = Make();
  core.OnPublished(At(0), false);
  EXPECT_EQ(core.failures(), 0);
  EXPECT_EQ(core.state(), State::kIdle);
}

TEST(PublicationCore, HeartbeatsWaitForWhatTheyCover) {
  PublicationCore core = Make();
  core.OnHeartbeat(100, {10, 32});
  core.OnHeartbeat(200, {20, 64});
  core.OnWritten({15, 32});
  EXPECT_EQ(core.NextWrite(At(0))->heartbeat_us, 100);
  core.OnPublished(At(0), true);
  core.OnWritten({20, 32});
  EXPECT_FALSE(core.NextWrite(At(1))) << "its index is not there";
  core.OnWritten({20, 64});
  EXPECT_EQ(core.NextWrite(At(2))->heartbeat_us, 200);
}

TEST(PublicationCore, HeartbeatsThatWaitAreBounded) {
  PublicationCore core = Make();
  const auto n = static_cast<int64_t>(PublicationCore::kHeartbeatsMax);
  for (int64_t i = 1; i <= n + 5; ++i) core.OnHeartbeat(i, {i, 0});
  core.OnWritten({n - 1, 0});
  EXPECT_EQ(core.NextWrite(At(0))->heartbeat_us, n - 1) << "the oldest ones are kept";
  core.OnPublished(At(0), true);
  core.OnWritten({n + 5, 0});
  EXPECT_EQ(core.NextWrite(At(0))->heartbeat_us, n + 5) << "and the newest";
}

TEST(PublicationCore, InANewEpochAllThatWasToldIsWrittenAgainAtOnce) {
  PublicationCore core = Make();
  core.OnNewEpoch();
  EXPECT_FALSE(core.NextWrite(At(0))) << "nothing was told yet";
  core.Add(Length(10));
  ASSERT_TRUE(core.NextWrite(At(0)));
  core.OnPublished(At(1), true);
  core.OnNewEpoch();
  EXPECT_FALSE(core.settled());
  auto again = core.NextWrite(At(2));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cache_length[0], 10);
  EXPECT_EQ(again->created_us, 77);
  // One that is under way was made before: its success says nothing.
  core.OnNewEpoch();
  core.OnPublished(At(3), true);
  EXPECT_FALSE(core.settled());
  ASSERT_TRUE(core.NextWrite(At(3)));
  core.OnPublished(At(4), false);
  EXPECT_FALSE(core.NextWrite(At(4)));
  core.OnNewEpoch();
  EXPECT_TRUE(core.NextWrite(At(4))) << "no delay of the caches that were before";
}

}  // namespace
}  // namespace tailcast::writer
