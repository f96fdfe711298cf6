#include "tailcast/producer/intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/crc32c.h"

namespace tailcast::producer {
namespace {

using Kind = Intake::Kind;
using ::testing::HasSubstr;

class IntakeTest : public ::testing::Test {
 protected:
  IntakeTest() { intake.AddShard(0); }
  Result<bool> Add(const std::string& payload, Kind kind = Kind::kMessage) {
    return intake.Add(
        0, kind, "", payload, [this](const Ack& ack) { outcomes.push_back(ack.outcome); },
        Duration());
  }
  static void Acknowledge(Batch&& batch, AckOutcome outcome, const Status& error = OkStatus()) {
    for (auto& [index, callback] : batch.acks) callback({outcome, {}, error});
  }

  Intake intake{{.buffer_bytes_max = 10, .message_bytes_max = 4, .buffer_messages_max = 5}};
  std::vector<AckOutcome> outcomes;
};

TEST_F(IntakeTest, MessagesAreTakenInOrderAndTheLoopIsToldOnce) {
  EXPECT_TRUE(*Add("ab"));
  EXPECT_FALSE(*Add("cde")) << "it was told already";
  Batch batch = intake.Take(0);
  EXPECT_EQ(batch.bytes, "abcde");
  ASSERT_EQ(batch.messages.size(), 2u);
  EXPECT_EQ(batch.messages[1].length, 3u);
  EXPECT_LE(batch.messages[0].time_us, batch.messages[1].time_us);
  EXPECT_TRUE(*Add("f")) << "took what it was told of";
  EXPECT_EQ(intake.Take(0).bytes, "f");
}

TEST_F(IntakeTest, ALoopThatComesByItselfIsToldWhenEnoughWaits) {
  (void)intake.Take(0);
  intake.TellFrom(0, 5);
  EXPECT_FALSE(*Add("ab"));
  EXPECT_FALSE(*Add("cd"));
  EXPECT_TRUE(*Add("e"));
  EXPECT_FALSE(*Add("f")) << "it was told already";
  EXPECT_EQ(intake.Take(0).bytes, "abcdef");
  EXPECT_TRUE(*Add("g")) << "it has not said again that it comes";
}

TEST_F(IntakeTest, WhatComesBetweenTakingAndSayingThatItComesIsToldOf) {
  (void)intake.Take(0);
  intake.TellFrom(0, INT64_MAX);
  EXPECT_FALSE(*Add("ab"));
  EXPECT_EQ(intake.Take(0).bytes, "ab");
  EXPECT_TRUE(*Add("cd"));
  intake.TellFrom(0, INT64_MAX);
}

TEST_F(IntakeTest, ItIsFullFromWhenSomebodyFoundNoRoomUntilHalfIsFree) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Add("abc").ok());
  EXPECT_FALSE(intake.totals().full_since) << "nobody was refused";
  const MonotonicTime before = ReadMonotonicClock();
  ASSERT_FALSE(Add("de").ok());
  const auto since = intake.totals().full_since;
  ASSERT_TRUE(since && *since >= before);
  Batch batch = intake.Take(0);
  const auto acknowledge = [&](size_t i) {
    batch.acks[i].second(Ack{.outcome = AckOutcome::kDurable, .position = {}, .error = {}});
  };
  acknowledge(0);
  ASSERT_FALSE(Add("defg").ok() && Add("h").ok());
  EXPECT_EQ(intake.totals().full_since, since) << "the same wait";
  acknowledge(1);
  acknowledge(2);
  EXPECT_FALSE(intake.totals().full_since);
}

TEST_F(IntakeTest, HeadersLieInFrontOfTheirPayloadAndCount) {
  ASSERT_TRUE(intake.Add(0, Kind::kMessage, "hh", "ab", {}, Duration()).ok());
  ASSERT_TRUE(intake.Add(0, Kind::kMessage, "h", "", {}, Duration()).ok());
  ASSERT_TRUE(Add("c").ok());
  EXPECT_TRUE(
      IsInvalidArgument(intake.Add(0, Kind::kMessage, "hh", "abc", {}, Duration()).status()))
      << "more than 4 bytes";
  EXPECT_EQ(intake.totals().bytes, 6);
  Batch batch = intake.Take(0);
  EXPECT_EQ(batch.bytes, "hhabhc");
  ASSERT_EQ(batch.messages.size(), 3u);
  EXPECT_EQ(batch.messages[0].length, 4u);
  EXPECT_EQ(batch.messages[0].crc, Crc32c("hhab"));
  EXPECT_EQ(batch.messages[0].headers_length, 2);
  EXPECT_EQ(batch.messages[1].headers_length, 1);
  EXPECT_EQ(batch.messages[1].crc, Crc32c("h"));
  EXPECT_EQ(batch.messages[2].headers_length, 0);
  EXPECT_EQ(batch.messages[2].crc, Crc32c("c"));
}

TEST_F(IntakeTest, RawBytesAreCutIntoMessagesWithOneAcknowledgement) {
  ASSERT_TRUE(Add("abcdefghi", Kind::kRaw).ok());
  Batch batch = intake.Take(0);
  ASSERT_EQ(batch.messages.size(), 3u);
  EXPECT_EQ(batch.messages[0].length, 4u);
  EXPECT_EQ(batch.messages[2].length, 1u);
  EXPECT_EQ(batch.messages[0].time_us, batch.messages[2].time_us);
  ASSERT_EQ(batch.acks.size(), 1u);
  EXPECT_EQ(batch.acks[0].first, 2u) << "with the last one";
}

TEST_F(IntakeTest, WhatIsTooLargeOrOfAnotherShardIsRefused) {
  EXPECT_TRUE(IsInvalidArgument(Add("abcde").status()));
  EXPECT_TRUE(IsInvalidArgument(intake.Add(7, Kind::kMessage, "", "a", {}, Duration()).status()));
}

TEST_F(IntakeTest, EmptyMessagesAreBoundedByTheirNumber) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Add("").ok());
  const Status full = Add("").status();
  EXPECT_TRUE(IsResourceExhausted(full));
  EXPECT_THAT(full.message(), HasSubstr("5 messages wait"));
  Batch batch = intake.Take(0);
  EXPECT_TRUE(IsResourceExhausted(Add("").status())) << "taken, not acknowledged";
  Acknowledge(std::move(batch), AckOutcome::kDurable);
  EXPECT_TRUE(Add("").ok());
}

TEST_F(IntakeTest, BytesCountUntilTheyAreAcknowledged) {
  ASSERT_TRUE(Add("abcd").ok());
  ASSERT_TRUE(Add("efgh").ok());
  Batch batch = intake.Take(0);
  EXPECT_TRUE(IsResourceExhausted(Add("ijk").status())) << "taken, not acknowledged";
  EXPECT_EQ(intake.totals().buffered_bytes, 8);
  Acknowledge(std::move(batch), AckOutcome::kDurable);
  EXPECT_TRUE(Add("ijk").ok());
  EXPECT_EQ(intake.totals().durable, 2);
  EXPECT_EQ(intake.totals().durable_bytes, 8);
  EXPECT_EQ(intake.totals().buffered_bytes, 3);
  Acknowledge(intake.Take(0), AckOutcome::kFailed);
  EXPECT_EQ(intake.totals().durable_bytes, 8);
}

// Who looks for room every few milliseconds has megabytes: they are not summed for nothing.
TEST_F(IntakeTest, WhatFindsNoRoomIsNotLookedAt) {
  ASSERT_TRUE(Add("abcd").ok());
  ASSERT_TRUE(Add("efgh").ok());
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const std::string_view unreadable(static_cast<const char*>(page), 3);
  EXPECT_TRUE(
      IsResourceExhausted(intake.Add(0, Kind::kMessage, {}, unreadable, {}, Duration()).status()));
  munmap(page, 4096);
}

TEST_F(IntakeTest, WhoFindsNoRoomHearsWhy) {
  ASSERT_TRUE(Add("abcd").ok());
  intake.SetTrouble(0, ResourceExhaustedError("the shard keeps what it may"));
  ASSERT_TRUE(Add("efgh").ok());
  const Status full = Add("ijkl").status();
  EXPECT_TRUE(IsResourceExhausted(full));
  EXPECT_THAT(full.message(), HasSubstr("buffer_bytes_max): the shard keeps what it may"));
  intake.SetTrouble(0, OkStatus());
  EXPECT_THAT(Add("ijkl").status().message(), ::testing::EndsWith("(buffer_bytes_max)"));
}

TEST_F(IntakeTest, AnEmptyBufferTakesAnything) {
  ASSERT_TRUE(Add(std::string(100, 'x'), Kind::kRaw).ok());
  EXPECT_TRUE(IsResourceExhausted(Add("a").status()));
}

TEST_F(IntakeTest, AWaitingThreadGetsTheRoomThatAnAcknowledgementMakes) {
  ASSERT_TRUE(Add("0123456789", Kind::kRaw).ok());
  std::thread publisher([&] {
    EXPECT_TRUE(intake.Add(0, Kind::kMessage, "", "more", {}, Duration::Seconds(60)).ok());
  });
  Acknowledge(intake.Take(0), AckOutcome::kDurable);
  intake.Wake();
  publisher.join();
  EXPECT_EQ(intake.Take(0).bytes, "more");
}

TEST_F(IntakeTest, WhoWaitedLongEnoughHearsWhyThereIsNoRoom) {
  ASSERT_TRUE(Add("0123456789", Kind::kRaw).ok());
  intake.SetTrouble(0, ResourceExhaustedError("the shard keeps what it may"));
  const MonotonicTime before = ReadMonotonicClock();
  const auto late = intake.Add(0, Kind::kMessage, "", "more", {}, Duration::Millis(20));
  EXPECT_GE(ReadMonotonicClock() - before, Duration::Millis(20));
  EXPECT_TRUE(IsResourceExhausted(late.status())) << late.status();
  EXPECT_THAT(late.status().message(), HasSubstr("the shard keeps what it may"));
  EXPECT_EQ(intake.totals().messages, 1);
}

TEST_F(IntakeTest, AStoppedShardTakesNothingAndSaysTheFirstReason) {
  ASSERT_TRUE(Add("ab").ok());
  EXPECT_FALSE(intake.stopped(0));
  Acknowledge(intake.Take(0), AckOutcome::kUnknown, UnavailableError("the disk is gone"));
  ASSERT_TRUE(intake.stopped(0)) << "before its publisher is told";
  intake.Stop(0, UnavailableError("something else"));
  EXPECT_THAT(Add("c").status().message(), HasSubstr("the disk is gone"));
  EXPECT_EQ(outcomes, std::vector{AckOutcome::kUnknown});
  EXPECT_THAT(intake.WaitUntilAcknowledged(Duration::Seconds(1)).message(),
              HasSubstr("the disk is gone"));
}

TEST_F(IntakeTest, WaitsUntilEverythingIsAcknowledged) {
  EXPECT_TRUE(intake.WaitUntilAcknowledged(Duration()).ok()) << "nothing to wait for";
  ASSERT_TRUE(Add("ab").ok());
  const Status late = intake.WaitUntilAcknowledged(Duration::Millis(1));
  EXPECT_TRUE(IsDeadlineExceeded(late));
  EXPECT_THAT(late.message(), HasSubstr("1 message is not acknowledged"));
  std::thread waiter(
      [&] { EXPECT_TRUE(intake.WaitUntilAcknowledged(Duration::Seconds(60)).ok()); });
  Acknowledge(intake.Take(0), AckOutcome::kDurable);
  intake.Wake();
  waiter.join();
}

TEST_F(IntakeTest, ClosedItTakesNothing) {
  EXPECT_TRUE(intake.Close());
  EXPECT_FALSE(intake.Close());
  EXPECT_TRUE(IsFailedPrecondition(Add("a").status()));
}

}  // namespace
}  // namespace tailcast::producer
