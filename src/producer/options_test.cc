// Options that are out of range are refused before anything else happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/producer/producer.h"

namespace tailcast::producer {
namespace {

using ::testing::HasSubstr;

Status Opened(const Options& options) { return Producer::Open(options).status(); }

TEST(ProducerOptions, WithAPublishTimeoutOfNothingEachMessageWouldBeUnknown) {
  for (const Duration time : {Duration(), Duration::Millis(-1), Duration::Micros(999)}) {
    const Status status = Opened({.publish_timeout = time});
    EXPECT_TRUE(IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("publish_timeout"));
  }
}

TEST(ProducerOptions, TimesThatNoClockCountsAreRefused) {
  for (const Duration time : {kTimeMax + Duration::Micros(1), Duration::Infinite()}) {
    EXPECT_THAT(Opened({.publish_timeout = time}).message(), HasSubstr("publish_timeout"));
    EXPECT_THAT(Opened({.open_timeout = time}).message(), HasSubstr("open_timeout"));
  }
}

TEST(ProducerOptions, TheBoundsThemselvesAreAllowed) {
  for (const Duration time : {Duration::Millis(1), kTimeMax}) {
    EXPECT_THAT(Opened({.publish_timeout = time}).message(), HasSubstr("Options::cell is empty"));
  }
}

}  // namespace
}  // namespace tailcast::producer
