#include "tailcast/app/monitor_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tailcast::app {
namespace {

using ::testing::HasSubstr;
using From = MonitorCore::From;

// Message `number`, of ten bytes each.
consumer::Message Numbered(int64_t number, std::string_view payload = "0123456789") {
  return {.payload = payload, .number = number, .byte = 10 * number, .time_us = number};
}

struct Watch {
  MonitorCore core;
  void Same(From from, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) EXPECT_EQ(core.OnMessage(from, Numbered(i)), "");
  }
};

TEST(MonitorCore, WhatBothGiveIsComparedWhoeverIsAhead) {
  Watch w;
  w.Same(From::kSource, 5, 8);
  w.Same(From::kWatched, 5, 10);
  w.Same(From::kSource, 8, 10);
  EXPECT_EQ(w.core.counts().compared, 5);
  EXPECT_EQ(w.core.counts().uncompared, 0);
}

TEST(MonitorCore, AMessageThatDiffersIsNamed) {
  Watch w;
  w.Same(From::kSource, 0, 3);
  w.Same(From::kWatched, 0, 1);
  EXPECT_THAT(w.core.OnMessage(From::kWatched, Numbered(1, "012345678_")),
              HasSubstr("message 1 of shard 0 is not what it is at the source"));
  consumer::Message later = Numbered(2);
  later.time_us = 7;
  EXPECT_NE(w.core.OnMessage(From::kWatched, later), "") << "of another time";
  EXPECT_EQ(w.core.counts().compared, 1);
  EXPECT_EQ(w.core.counts().different, 2);
}

TEST(MonitorCore, HeadersAreComparedAndCountAsBytes) {
  const std::string some = *stream::Headers::Encode(std::vector<stream::Header>{{"n", "v"}});
  const std::string other = *stream::Headers::Encode(std::vector<stream::Header>{{"n", "w"}});
  const auto with = [](const std::string& headers) {
    consumer::Message message = Numbered(0, "01234");
    message.headers = *stream::Headers::Decode(headers);
    return message;
  };
  Watch w;
  EXPECT_EQ(w.core.OnMessage(From::kSource, with(some)), "");
  EXPECT_EQ(w.core.OnMessage(From::kWatched, with(some)), "");
  EXPECT_EQ(w.core.OnMessage(From::kSource, Numbered(1)), "") << "at byte 10, where that ended";
  EXPECT_EQ(w.core.counts().disorderly, 0);
  Watch v;
  EXPECT_EQ(v.core.OnMessage(From::kSource, with(some)), "");
  EXPECT_THAT(v.core.OnMessage(From::kWatched, with(other)), HasSubstr("is not what it is"));
}

TEST(MonitorCore, GapsRepeatsAndTimesThatFallAreDisorder) {
  Watch w;
  w.Same(From::kWatched, 3, 5);
  EXPECT_THAT(w.core.OnMessage(From::kWatched, Numbered(6)), HasSubstr("message 5"));
  EXPECT_NE(w.core.OnMessage(From::kWatched, Numbered(6)), "");
  consumer::Message early = Numbered(7);
  early.time_us = 2;
  EXPECT_THAT(w.core.OnMessage(From::kWatched, early), HasSubstr("published before"));
  EXPECT_EQ(w.core.counts().disorderly, 3);
}

TEST(MonitorCore, AfterASeekTheNextMessageNeedNotFollow) {
  Watch w;
  w.Same(From::kWatched, 0, 1);
  w.core.OnSeek(From::kWatched, 0);
  w.Same(From::kWatched, 100, 101);
  EXPECT_EQ(w.core.counts().disorderly, 0);
}

TEST(MonitorCore, WhatTheOtherOneNeverGaveIsCountedAndForgotten) {
  Watch w;
  w.Same(From::kSource, 0, 4);
  w.Same(From::kWatched, 3, 4);  // it began later
  EXPECT_EQ(w.core.counts().compared, 1);
  EXPECT_EQ(w.core.counts().uncompared, 3);
  const auto window = static_cast<int64_t>(MonitorCore::kWindowMessages);
  w.Same(From::kSource, 4, 4 + window + 2);
  EXPECT_EQ(w.core.counts().uncompared, 5);
  w.Same(From::kWatched, 4, 8);
  EXPECT_EQ(w.core.counts().uncompared, 7) << "the first two were forgotten; here they are, again";
  EXPECT_EQ(w.core.counts().compared, 3);
}

}  // namespace
}  // namespace tailcast::app
