#include "tailcast/producer/retry_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailcast::producer {
namespace {

using ::testing::HasSubstr;

const Status kDisk = UnavailableError("Input/output error");

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(RetryCoreTest, WaitsDoubleUpToALimitAndBeginAnewWhenAllIsWell) {
  RetryCore core("s/0", {});
  for (int64_t expected : {50, 100, 200, 400, 800, 1600, 2000, 2000}) {
    const auto verdict = core.OnOpenFailed(kDisk, At(0));
    EXPECT_FALSE(verdict.stop);
    EXPECT_EQ(verdict.wait.millis(), expected);
  }
  core.OnWell();
  EXPECT_EQ(core.OnOpenFailed(kDisk, At(0)).wait.millis(), 50);
}

TEST(RetryCoreTest, GivesUpWhenNothingWasOpenedForSoLong) {
  RetryCore core("s/0", {.give_up = Duration::Seconds(60)});
  EXPECT_FALSE(core.OnOpenFailed(kDisk, At(1000)).stop);
  EXPECT_FALSE(core.OnOpenFailed(kDisk, At(61'000)).stop);
  const auto verdict = core.OnOpenFailed(kDisk, At(61'001));
  ASSERT_TRUE(verdict.stop);
  EXPECT_TRUE(IsUnavailable(*verdict.stop));
  EXPECT_EQ(verdict.stop->message(),
            "s/0: the primary layer has failed for 60 s: Input/output error");
}

TEST(RetryCoreTest, TheTimeCountsFromTheAppendThatFailed) {
  RetryCore core("s/0", {.give_up = Duration::Seconds(60)});
  (void)core.OnAppendFailed(At(0));
  EXPECT_FALSE(core.OnOpenFailed(kDisk, At(60'000)).stop);
  EXPECT_TRUE(core.OnOpenFailed(kDisk, At(60'001)).stop);
}

TEST(RetryCoreTest, AnAppendThatFailsInTheSameTroubleDoesNotProlongIt) {
  RetryCore core("s/0", {.give_up = Duration::Seconds(60)});
  (void)core.OnAppendFailed(At(0));
  (void)core.OnAppendFailed(At(50'000));
  EXPECT_TRUE(core.OnOpenFailed(kDisk, At(60'001)).stop);
}

TEST(RetryCoreTest, AppendsThatFailOneAfterTheOtherWaitAndAreGivenUp) {
  RetryCore core("s/0", {.give_up = Duration::Seconds(60)});
  for (int64_t expected : {0, 50, 100, 200}) {
    EXPECT_EQ(core.OnAppendFailed(At(0)).wait.millis(), expected);
  }
  core.OnCause(kDisk);
  EXPECT_FALSE(core.OnAppendFailed(At(60'000)).stop);
  const auto verdict = core.OnAppendFailed(At(60'001));
  ASSERT_TRUE(verdict.stop);
  EXPECT_TRUE(IsUnavailable(*verdict.stop));
  EXPECT_THAT(verdict.stop->message(), HasSubstr("failed for 60 s: Input/output error"));
}

TEST(RetryCoreTest, ALayerThatDoesNotAnswerIsWaitedForAsLongAsItTakes) {
  const Status hangs = DeadlineExceededError("no answer in 30 s");
  RetryCore core("s/0", {.give_up = Duration::Seconds(60)});
  core.OnCause(hangs);
  EXPECT_FALSE(core.OnAppendFailed(At(0)).stop);
  for (int64_t ms = 30'000; ms <= 3'600'000; ms += 30'000) {
    const auto verdict = core.OnOpenFailed(hangs, At(ms));
    EXPECT_FALSE(verdict.stop) << ms;
    EXPECT_LE(verdict.wait, Duration::Seconds(2));
  }
  EXPECT_EQ(core.trouble().code(), StatusCode::kDeadlineExceeded) << "and it is said";
  EXPECT_FALSE(core.OnOpenFailed(kDisk, At(3'600'100)).stop) << "now it answers";
  EXPECT_FALSE(core.OnOpenFailed(kDisk, At(3'660'000)).stop);
  EXPECT_TRUE(core.OnOpenFailed(kDisk, At(3'660'001)).stop);
}

TEST(RetryCoreTest, WhenAllWasWellTheTimeBeginsAnew) {
  RetryCore core("s/0", {.give_up = Duration::Seconds(60)});
  (void)core.OnAppendFailed(At(0));
  core.OnWell();
  EXPECT_FALSE(core.OnOpenFailed(kDisk, At(100'000)).stop);
}

TEST(RetryCoreTest, WhatNoWaitingMendsStopsAtOnce) {
  for (const Status& error : {PermissionDeniedError("no"), InvalidArgumentError("no"),
                              DataLossError("no"), UnimplementedError("no")}) {
    RetryCore core("s/0", {});
    const auto verdict = core.OnOpenFailed(error, At(0));
    ASSERT_TRUE(verdict.stop) << error;
    EXPECT_EQ(verdict.stop->code(), error.code());
    EXPECT_THAT(verdict.stop->message(), HasSubstr("opening s/0"));
  }
  for (const Status& error : {UnavailableError("x"), ResourceExhaustedError("disk full"),
                              DeadlineExceededError("x"), InternalError("x")}) {
    RetryCore core("s/0", {});
    EXPECT_FALSE(core.OnOpenFailed(error, At(0)).stop) << error;
  }
}

TEST(NotifyRetryWaitTest, DoublesUpToALimitAndEnds) {
  EXPECT_EQ(NotifyRetryWait(1)->millis(), 50);
  EXPECT_EQ(NotifyRetryWait(2)->millis(), 100);
  EXPECT_EQ(NotifyRetryWait(7)->millis(), 3200);
  EXPECT_EQ(NotifyRetryWait(8)->millis(), 5000);
  EXPECT_EQ(NotifyRetryWait(12)->millis(), 5000);
  EXPECT_FALSE(NotifyRetryWait(13));
}

TEST(RetryCore, SaysWhyThePrimaryLayerFailsUntilAllIsWell) {
  RetryCore retry("s/0", {});
  EXPECT_TRUE(retry.trouble().ok());
  retry.OnCause(ResourceExhaustedError("write f: no space"));
  EXPECT_EQ(retry.trouble(), ResourceExhaustedError("s/0: write f: no space"));
  (void)retry.OnOpenFailed(UnavailableError("create g"), MonotonicTime());
  EXPECT_EQ(retry.trouble(), UnavailableError("s/0: create g"));
  retry.OnWell();
  EXPECT_TRUE(retry.trouble().ok());
}

}  // namespace
}  // namespace tailcast::producer
