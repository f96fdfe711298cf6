#include "tailcast/consumer/end_point.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/consumer/start_point.h"

namespace tailcast::consumer {
namespace {

using ::testing::HasSubstr;

constexpr WallTime kNow = WallTime::FromMicros(1'700'000'000'000'000);

WallTime TimeOf(std::string_view text) {
  const auto start = StartPoint::Parse(text, kNow);
  EXPECT_TRUE(start.ok()) << text;
  return start.ok() ? start->time : WallTime();
}

TEST(StartPoint, ATimeMayBeAWhileAgo) {
  EXPECT_EQ(TimeOf("time:-90s"), kNow - Duration::Seconds(90));
  EXPECT_EQ(TimeOf("time:-5m"), kNow - Duration::Seconds(300));
  EXPECT_EQ(TimeOf("time:-2h"), kNow - Duration::Seconds(7200));
  EXPECT_EQ(TimeOf("time:-1d"), kNow - Duration::Seconds(86400));
  EXPECT_EQ(TimeOf("time:-900000d"), WallTime::FromMicros(0)) << "before all messages";
  for (const char* text : {"time:-", "time:-m", "time:-5", "time:--5m", "time:-5w", "time:5m",
                           "time:-1.5h", "time:-1000001s"}) {
    const auto start = StartPoint::Parse(text, kNow);
    ASSERT_FALSE(start.ok()) << text;
    EXPECT_THAT(start.status().message(), HasSubstr("time:-5m"));
  }
}

TEST(StartPoint, ATimeMayHaveAFraction) {
  EXPECT_EQ(TimeOf("time:2023-11-14T22:13:20Z"), kNow);
  EXPECT_EQ(TimeOf("time:2023-11-14T22:13:20.25Z"), kNow + Duration::Micros(250'000));
  EXPECT_EQ(TimeOf("time:2023-11-14T22:13:20.000001Z"), kNow + Duration::Micros(1));
  for (const char* text : {"time:2023-11-14T22:13:20.Z", "time:2023-11-14T22:13:20.0000001Z",
                           "time:2023-11-14T22:13:20.2", "time:2023-11-14T22:13:20.x5Z"}) {
    EXPECT_FALSE(StartPoint::Parse(text, kNow).ok()) << text;
  }
}

TEST(StartPoint, ANumberIsOneOfAMessage) {
  EXPECT_EQ(StartPoint::Parse("number:17", kNow)->number, 17);
  for (const char* text : {"number:", "number:-1", "number:x", "number:1e3"}) {
    EXPECT_THAT(StartPoint::Parse(text, kNow).status().message(), HasSubstr("number:0")) << text;
  }
}

TEST(EndPoint, EndsBeforeTheMessageThatItNames) {
  const Message message{.number = 7, .byte = 70, .time_us = kNow.micros()};
  EXPECT_FALSE(EndPoint::Never().IsBefore(message));
  EXPECT_FALSE(EndPoint::BeforeNumber(8).IsBefore(message));
  EXPECT_TRUE(EndPoint::BeforeNumber(7).IsBefore(message));
  EXPECT_TRUE(EndPoint::BeforeNumber(6).IsBefore(message));
  EXPECT_FALSE(EndPoint::Before(kNow + Duration::Micros(1)).IsBefore(message));
  EXPECT_TRUE(EndPoint::Before(kNow).IsBefore(message));
  EXPECT_FALSE(EndPoint::Before(stream::Position{.number = 8, .byte = 80}).IsBefore(message));
  EXPECT_TRUE(EndPoint::Before(stream::Position{.number = 7, .byte = 70}).IsBefore(message));
}

TEST(EndPoint, IsReachedWhenNothingBeforeItCanCome) {
  const WallTime never = WallTime::FromMicros(0);
  EXPECT_FALSE(EndPoint::Never().IsReached(99, kNow));
  EXPECT_FALSE(EndPoint::BeforeNumber(8).IsReached(7, kNow));
  EXPECT_TRUE(EndPoint::BeforeNumber(8).IsReached(8, never));
  EXPECT_FALSE(EndPoint::Before(kNow).IsReached(99, never));
  EXPECT_TRUE(EndPoint::Before(kNow).IsReached(0, kNow)) << "all until then was published";
  EXPECT_TRUE(EndPoint::Before(stream::Position{.number = 3}).IsReached(3, never));
}

TEST(EndPoint, IsParsedAsAStartIs) {
  EXPECT_EQ(EndPoint::Parse("number:9", kNow)->number, 9);
  EXPECT_EQ(EndPoint::Parse("time:-5m", kNow)->time, kNow - Duration::Seconds(300));
  EXPECT_EQ(EndPoint::Parse("t1.9f3a00c2d1e4b576.3.16842.17251200", kNow)->position.shard, 3);
  for (const char* text : {"beginning", "end", "now"}) {
    EXPECT_TRUE(IsInvalidArgument(EndPoint::Parse(text, kNow).status())) << text;
  }
}

}  // namespace
}  // namespace tailcast::consumer
