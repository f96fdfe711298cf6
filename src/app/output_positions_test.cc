#include "tailcast/app/output_positions.h"

#include <gtest/gtest.h>

namespace tailcast::app {
namespace {

using stream::Position;

// Message `number` of a shard whose messages have 10 bytes.
Position At(int32_t shard, int64_t number) {
  return {.incarnation = stream::StreamIncarnation{7},
          .shard = shard,
          .number = number,
          .byte = number * 10};
}

TEST(OutputPositions, AShardOfWhichNothingWasWrittenStandsWhereItBegan) {
  OutputPositions positions(0);
  for (int i = 0; i < 4; ++i) positions.OnTaken(At(0, 5 + i));
  positions.OnTaken(At(1, 30));
  positions.OnFrame(At(1, 31), 11);
  positions.OnWritten(11);
  EXPECT_EQ(positions.Behind(0).at(0), At(0, 5));
  EXPECT_EQ(positions.Behind(0).at(1), At(1, 31));
  EXPECT_FALSE(positions.Behind(0).contains(2));
}

TEST(OutputPositions, AMessageWrittenInPartIsNotBehind) {
  OutputPositions positions(0);
  positions.OnTaken(At(0, 0));
  for (int i = 1; i <= 3; ++i) positions.OnFrame(At(0, i), 11);
  positions.OnWritten(32);
  EXPECT_EQ(positions.Behind(0).at(0), At(0, 2));
  positions.OnWritten(1);
  EXPECT_EQ(positions.Behind(0).at(0), At(0, 3));
}

TEST(OutputPositions, WhatStayedInThePipeCountsAsNotWritten) {
  OutputPositions positions(100);
  positions.OnTaken(At(0, 0));
  for (int i = 1; i <= 50; ++i) {
    positions.OnFrame(At(0, i), 11);
    positions.OnWritten(11);
  }
  EXPECT_EQ(positions.Behind(0).at(0), At(0, 50));
  EXPECT_EQ(positions.Behind(1).at(0), At(0, 49));
  EXPECT_EQ(positions.Behind(100).at(0), At(0, 40));
}

}  // namespace
}  // namespace tailcast::app
