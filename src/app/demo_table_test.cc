#include "tailcast/app/demo_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

using ::testing::ElementsAre;

DemoRow Row(const std::string& cell) {
  return {.cell = cell,
          .fabric = "shm",
          .messages = 336776,
          .behind = 1200,
          .p50_ms = 178.04,
          .p99_ms = 250.5,
          .max_ms = 12345.6,
          .hop_ms = 111.2,
          .cache_percent = 99.7,
          .state = "tailing"};
}

TEST(Arrivals, AHopTakesFromTheCellAboveToThisOneForTheSameMessage) {
  Arrivals arrivals(2, 10);
  arrivals.OnArrival(0, 3, 1000);
  EXPECT_EQ(arrivals.HopUs(0, 3, 66000), 65000);
}

TEST(Arrivals, AMessageThatTheCellAboveHasNotHasTakenNoHop) {
  Arrivals arrivals(2, 10);
  EXPECT_EQ(arrivals.HopUs(0, 3, 66000), std::nullopt);
  arrivals.OnArrival(0, 3, 70000);
  EXPECT_EQ(arrivals.HopUs(0, 3, 66000), std::nullopt) << "it came there later: never negative";
}

TEST(DemoTable, FitsA80ColumnScreen) {
  EXPECT_THAT(
      DemoTable({Row("us-central"), Row("europe-west")}, 80, false),
      ElementsAre("cell        via messages behind p50 ms p99 ms max ms hop ms cache state",
                  "us-central  shm   336776   1200  178.0  250.5  12346  111.2 100 % tailing",
                  "europe-west shm   336776   1200  178.0  250.5  12346  111.2 100 % tailing"));
}

TEST(DemoTable, SaysWhatIsWrongBelow) {
  DemoRow row = Row("x");
  row.hop_ms.reset();
  row.behind = -3;  // the counts are not taken at one moment
  row.fallbacks = 1;
  DemoRow failed = Row("y");
  failed.error = "message 7 differs";
  EXPECT_THAT(
      DemoTable({row, failed}, 80, true),
      ElementsAre(
          "\033[1mcell via messages behind p50 ms p99 ms max ms hop ms cache state\033[0m",
          "x    shm   336776      0  178.0  250.5  12346      - 100 % tailing",
          "\033[31my    shm   336776   1200  178.0  250.5  12346  111.2 100 % failed\033[0m",
          "x via shm: 1 read fell back to the primary layer", "y via shm: message 7 differs"));
}

TEST(ProgressText, SaysHowFarItIsAndHowLongItTakes) {
  EXPECT_EQ(ProgressText(
                {.published = 500, .durable = 400, .total = 1600, .elapsed = Duration::Seconds(4)}),
            " 25 %  500 of 1600 messages published, 400 durable, about 12 s to go");
  EXPECT_EQ(ProgressText({.published = 1, .total = 1600}),
            "  0 %  1 of 1600 messages published, 0 durable");
  EXPECT_EQ(ProgressText({.published = 5, .durable = 5, .total = 5}),
            "100 %  5 of 5 messages published, 5 durable");
}

}  // namespace
}  // namespace tailcast::app
