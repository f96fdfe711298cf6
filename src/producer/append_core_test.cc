#include "tailcast/producer/append_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/stream/index_record.h"

namespace tailcast::producer {
namespace {

using storage::AppendOutcome;

Batch Messages(std::initializer_list<std::string> payloads) {
  Batch batch;
  for (const std::string& payload : payloads) {
    batch.bytes += payload;
    batch.messages.push_back({static_cast<uint32_t>(payload.size()), 0, 1000});
  }
  return batch;
}

class AppendCoreTest : public ::testing::Test {
 protected:
  explicit AppendCoreTest(AppendOptions options = {Duration::Millis(10), 100}) : core(options) {
    EXPECT_TRUE(core.Open(100, 5000, fx));
  }
  AppendEffects Next(int64_t ms) {
    AppendEffects out;
    core.Next(MonotonicTime::FromMicros(ms * 1000), out);
    return out;
  }
  AppendEffects Data(AppendOutcome outcome = AppendOutcome::kApplied) {
    AppendEffects out;
    core.OnData(outcome, out);
    return out;
  }
  AppendEffects Index(AppendOutcome outcome = AppendOutcome::kApplied) {
    AppendEffects out;
    core.OnIndex(outcome, out);
    return out;
  }
  AppendEffects fx;
  AppendCore core;
};

TEST_F(AppendCoreTest, TheFirstMessageIsFlushedAtOnceTheNextAfterTheInterval) {
  core.Add(Messages({"ab"}));
  auto out = Next(0);
  ASSERT_TRUE(out.data);
  EXPECT_EQ(out.data->at, 0);
  EXPECT_EQ(out.data->bytes, "ab");
  Data();
  core.Add(Messages({"cd"}));
  EXPECT_FALSE(Next(9).data);
  EXPECT_EQ(core.NextFlush(), MonotonicTime::FromMicros(10000));
  out = Next(10);
  ASSERT_TRUE(out.data);
  EXPECT_EQ(out.data->at, 2);
}

class SelfClockedTest : public AppendCoreTest {
 protected:
  SelfClockedTest()
      : AppendCoreTest({.flush_interval = Duration::Millis(10), .self_clocked = true}) {}
};

TEST_F(SelfClockedTest, TheNextFlushTakesWhatCameUntilTheLastWasDurableAndCached) {
  core.Add(Messages({"ab"}));
  ASSERT_TRUE(Next(0).data);
  core.Add(Messages({"c"}));
  core.SetCached(false);
  Data();
  ASSERT_TRUE(Next(1).index);
  EXPECT_FALSE(Next(1).data) << "not durable";
  Index();
  EXPECT_FALSE(Next(2).data) << "not cached";
  core.Add(Messages({"d"}));
  core.SetCached(true);
  const auto out = Next(3);
  ASSERT_TRUE(out.data);
  EXPECT_EQ(out.data->bytes, "cd");
}

TEST_F(SelfClockedTest, APauseLiesBetweenFlushes) {
  core.SetPause(Duration::Millis(4));
  core.Add(Messages({"ab"}));
  Next(0);
  Data();
  Next(1);
  Index();
  core.Add(Messages({"c"}));
  EXPECT_FALSE(Next(3).data);
  EXPECT_EQ(core.NextFlush(), MonotonicTime::FromMicros(4000));
  EXPECT_TRUE(Next(4).data);
}

TEST_F(SelfClockedTest, ACacheThatDoesNotAnswerCostsTheIntervalAtMost) {
  core.Add(Messages({"ab"}));
  Next(0);
  Data();
  core.SetCached(false);
  Next(1);
  Index();
  core.Add(Messages({"c"}));
  EXPECT_FALSE(Next(9).data);
  EXPECT_EQ(core.NextFlush(), MonotonicTime::FromMicros(10000));
  EXPECT_TRUE(Next(10).data);
}

TEST_F(AppendCoreTest, EnoughBytesDoNotWaitForTheInterval) {
  core.Add(Messages({"ab"}));
  Next(0);
  Data();
  core.Add(Messages({std::string(100, 'x')}));
  EXPECT_TRUE(Next(1).data);
}

TEST_F(AppendCoreTest, AfterEmptyMessagesTheNextOneIsToComeAtOnce) {
  core.Add(Messages({""}));
  EXPECT_EQ(core.bytes_before_call(), 0) << "they are flushed without a data append";
  ASSERT_TRUE(Next(0).index);
  EXPECT_EQ(core.bytes_before_call(), 0);
}

TEST_F(AppendCoreTest, WhoHasMoreForItIsToldHowLongThatCanWait) {
  EXPECT_EQ(core.bytes_before_call(), 0) << "a flush could start";
  core.Add(Messages({"ab"}));
  ASSERT_TRUE(Next(0).data);
  EXPECT_EQ(core.bytes_before_call(), 100) << "until the append ends";
  Data();
  EXPECT_EQ(core.bytes_before_call(), 0) << "only the first message says when the next flush is";
  core.Add(Messages({std::string(60, 'c')}));
  EXPECT_FALSE(Next(1).data);
  EXPECT_EQ(core.bytes_before_call(), 40) << "or the interval is over";
  core.Add(Messages({std::string(60, 'd')}));
  EXPECT_EQ(core.bytes_before_call(), 0);
}

TEST_F(AppendCoreTest, AnIndexRecordIsAppendedOnlyAfterItsPayloadWasFlushed) {
  core.Add(Messages({"ab", "c"}));
  auto out = Next(0);
  EXPECT_FALSE(out.index);
  EXPECT_FALSE(Next(1).index) << "the data append is outstanding";
  out = Data();
  ASSERT_TRUE(out.data_committed);
  EXPECT_EQ(out.data_committed->bytes, "abc");
  out = Next(1);
  ASSERT_TRUE(out.index);
  EXPECT_EQ(out.index->at, 0);
  ASSERT_EQ(out.index->bytes.size(), 64u);
  EXPECT_EQ(stream::IndexRecord::Decode(out.index->bytes.data() + 32)->offset, 2);
}

TEST_F(AppendCoreTest, ARecordSaysHowMuchOfAMessageIsHeaders) {
  Batch batch = Messages({"hhab", "c"});
  batch.messages[0].headers_length = 2;
  core.Add(std::move(batch));
  Next(0);
  Data();
  const auto out = Next(1);
  ASSERT_EQ(out.index->bytes.size(), 64u);
  EXPECT_EQ(stream::IndexRecord::Decode(out.index->bytes.data()),
            (stream::IndexRecord{
                .offset = 0, .length = 4, .crc = 0, .time_us = 1000, .headers_length = 2}));
  EXPECT_EQ(stream::IndexRecord::Decode(out.index->bytes.data() + 32)->headers_length, 0);
}

TEST_F(AppendCoreTest, AMessageIsAcknowledgedAfterItsIndexRecord) {
  core.Add(Messages({"ab"}));
  Next(0);
  EXPECT_TRUE(Data().durable.empty());
  Next(0);
  const auto out = Index();
  ASSERT_EQ(out.durable.size(), 1u);
  EXPECT_EQ(out.durable[0].first_number, 100);
  EXPECT_EQ(out.durable[0].first_byte, 5000);
  EXPECT_EQ(out.covered_data, 2);
  EXPECT_EQ(core.durable_number(), 101);
  EXPECT_TRUE(core.empty());
}

TEST_F(AppendCoreTest, DataOfTheNextFlushGoesWhileTheIndexOfTheLastDoes) {
  core.Add(Messages({"ab"}));
  Next(0);
  Data();
  core.Add(Messages({"cd"}));
  auto out = Next(20);
  EXPECT_TRUE(out.index && out.data) << "different files";
  Data();
  core.Add(Messages({"ef"}));
  out = Next(40);
  EXPECT_TRUE(out.data);
  EXPECT_FALSE(out.index) << "one append per file";
  Data();
  Index();
  out = Next(40);
  ASSERT_TRUE(out.index);
  EXPECT_EQ(out.index->bytes.size(), 64u) << "both flushes that waited, in one append";
  EXPECT_EQ(Index().durable.size(), 2u);
}

TEST_F(AppendCoreTest, HeldItDrainsAndStartsNoData) {
  core.Add(Messages({"ab"}));
  Next(0);
  core.Add(Messages({"cd"}));
  core.Hold(true);
  Data();
  EXPECT_TRUE(Next(100).index);
  Index();
  EXPECT_TRUE(core.drained());
  EXPECT_FALSE(Next(1000).data);
  AppendEffects out;
  EXPECT_TRUE(core.Open(101, 5002, out));
  EXPECT_TRUE(Next(1000).data) << "the next file takes them";
}

TEST_F(AppendCoreTest, WhatTheOldFilesSealCoversIsDurableTheRestIsAppendedAgain) {
  core.Add(Messages({"ab", "c"}));
  Next(0);
  Data();
  core.Add(Messages({"def"}));
  Next(20);  // index of the first, data of the second
  Index(AppendOutcome::kUnknown);
  EXPECT_FALSE(core.is_open());
  Data();
  ASSERT_TRUE(core.quiet());
  AppendEffects out;
  ASSERT_TRUE(core.Open(102, 5003, out)) << "the index append had landed";
  ASSERT_EQ(out.durable.size(), 1u);
  EXPECT_EQ(out.durable[0].batch.messages.size(), 2u);
  const auto again = Next(40);
  ASSERT_TRUE(again.data);
  EXPECT_EQ(again.data->bytes, "def");
  EXPECT_EQ(core.republished(), 1);
}

TEST_F(AppendCoreTest, NothingLandedEverythingIsAppendedAgainInOrder) {
  core.Add(Messages({"ab"}));
  Next(0);
  Data();
  core.Add(Messages({"cd"}));
  Next(20);
  Index(AppendOutcome::kUnknown);
  Data(AppendOutcome::kUnknown);
  core.Add(Messages({"ef"}));
  AppendEffects out;
  ASSERT_TRUE(core.Open(100, 5000, out));
  EXPECT_TRUE(out.durable.empty());
  EXPECT_EQ(Next(40).data->bytes, "abcdef");
}

TEST_F(AppendCoreTest, AFileThatBeginsBeforeWhatWasAcknowledgedIsRefused) {
  core.Add(Messages({"ab"}));
  Next(0);
  Data();
  Next(0);
  Index();
  AppendEffects out;
  EXPECT_FALSE(core.Open(100, 5000, out));
}

TEST_F(AppendCoreTest, AFileThatBeginsInsideAMessageIsRefused) {
  core.Add(Messages({"ab", "cd"}));
  Next(0);
  Data(AppendOutcome::kUnknown);
  AppendEffects out;
  EXPECT_FALSE(core.Open(101, 5003, out));
}

TEST_F(AppendCoreTest, ARefusedFileTakesNoAcknowledgementAway) {
  struct Place {
    int64_t number, byte;
    const char* what;
  };
  for (const Place& place : {Place{100, 5002, "other bytes for the messages known to be durable"},
                             Place{102, 5004, "inside the second flush, at no message's end"},
                             Place{103, 5006, "at the end of all messages, with a byte too many"},
                             Place{150, 5100, "behind everything that was ever appended"}}) {
    AppendCore core({Duration::Millis(10), 100});
    AppendEffects opened;
    ASSERT_TRUE(core.Open(100, 5000, opened));
    std::vector<int> asked;
    const auto add = [&](std::initializer_list<std::string> payloads, int first) {
      Batch batch = Messages(payloads);
      for (uint32_t i = 0; i < batch.messages.size(); ++i) {
        batch.acks.emplace_back(i, [&asked, number = first + static_cast<int>(i)](const Ack&) {
          asked.push_back(number);
        });
      }
      core.Add(std::move(batch));
    };
    const auto next = [&](int64_t ms) {
      AppendEffects out;
      core.Next(MonotonicTime::FromMicros(ms * 1000), out);
    };
    add({"a"}, 0);
    next(0);
    AppendEffects ignored;
    core.OnData(AppendOutcome::kApplied, ignored);
    add({"bb", "cc"}, 1);
    next(20);  // index of the first, data of the second
    core.OnData(AppendOutcome::kUnknown, ignored);
    core.OnIndex(AppendOutcome::kUnknown, ignored);
    add({"d"}, 3);

    AppendEffects out;
    EXPECT_FALSE(core.Open(place.number, place.byte, out)) << place.what;
    EXPECT_TRUE(out.durable.empty()) << place.what << ": nobody knows";
    EXPECT_EQ(core.unacknowledged(), 4) << place.what;
    auto lost = core.TakeAll();
    for (std::vector<Batch>* batches : {&lost.unknown, &lost.failed}) {
      for (Batch& batch : *batches) {
        for (auto& [index, ack] : batch.acks) ack(Ack());
      }
    }
    EXPECT_EQ(asked, (std::vector<int>{0, 1, 2, 3})) << place.what;
    EXPECT_EQ(lost.unknown.size(), 2u) << place.what;
  }
}

TEST_F(AppendCoreTest, EmptyMessagesNeedNoDataAppend) {
  core.Add(Messages({"", ""}));
  const auto out = Next(0);
  EXPECT_FALSE(out.data);
  ASSERT_TRUE(out.index);
  EXPECT_EQ(Index().durable.size(), 1u);
}

TEST_F(AppendCoreTest, AcknowledgementsStayWithTheirMessagesWhenABatchIsCut) {
  Batch batch = Messages({"a", "b", "c"});
  std::vector<int> acked;
  for (uint32_t i = 0; i < 3; ++i) {
    batch.acks.emplace_back(i, [&acked, i](const Ack&) { acked.push_back(static_cast<int>(i)); });
  }
  core.Add(std::move(batch));
  Next(0);
  Data(AppendOutcome::kUnknown);
  AppendEffects out;
  ASSERT_TRUE(core.Open(102, 5002, out));  // a driver may have committed a part
  ASSERT_EQ(out.durable.size(), 1u);
  ASSERT_EQ(out.durable[0].batch.acks.size(), 2u);
  auto lost = core.TakeAll();
  EXPECT_TRUE(lost.unknown.empty());
  ASSERT_EQ(lost.failed.size(), 1u);
  ASSERT_EQ(lost.failed[0].acks.size(), 1u);
  EXPECT_EQ(lost.failed[0].acks[0].first, 0u);
  lost.failed[0].acks[0].second(Ack());
  EXPECT_EQ(acked, std::vector<int>{2});
}

TEST_F(AppendCoreTest, WhatWasFencedBeforeItsIndexRecordHasFailed) {
  core.Add(Messages({"a"}));
  Next(0);
  core.Add(Messages({"b"}));
  Data(AppendOutcome::kFenced);
  EXPECT_TRUE(core.fenced());
  const auto lost = core.TakeAll();
  EXPECT_TRUE(lost.unknown.empty());
  ASSERT_EQ(lost.failed.size(), 2u);
  EXPECT_EQ(lost.failed[0].bytes, "a");
  EXPECT_EQ(lost.failed[1].bytes, "b");
}

TEST_F(AppendCoreTest, WhatWasAppendedAndNotAnsweredIsUnknown) {
  core.Add(Messages({"a"}));
  Next(0);
  core.Add(Messages({"b"}));
  Data(AppendOutcome::kUnknown);
  const auto lost = core.TakeAll();
  ASSERT_EQ(lost.unknown.size(), 1u);
  EXPECT_EQ(lost.unknown[0].bytes, "a");
  EXPECT_EQ(lost.failed[0].bytes, "b");
}

TEST_F(AppendCoreTest, WhatWasFencedWhileItsIndexAppendIsUnderWayIsUnknown) {
  core.Add(Messages({"a"}));
  Next(0);
  Data();
  core.Add(Messages({"b"}));
  ASSERT_TRUE(Next(20).index);
  Data(AppendOutcome::kFenced);
  const auto lost = core.TakeAll();  // destroyed before the answer
  ASSERT_FALSE(lost.unknown.empty());
  EXPECT_EQ(lost.unknown[0].bytes, "a") << "the index append may have come before the fence";
}

class AppendCoreRollTest : public AppendCoreTest {
 protected:
  // Data and index of two messages of five bytes.
  AppendCoreRollTest() : AppendCoreTest({Duration::Millis(10), 100, 74}) {}
  // Appends until nothing more goes into the file; returns its data.
  std::string FillFile() {
    std::string file;
    for (;;) {
      const auto out = Next(0);
      if (out.data) {
        EXPECT_EQ(out.data->at, static_cast<int64_t>(file.size()));
        file += out.data->bytes;
        Data();
      }
      if (out.index) Index();
      if (!out.data && !out.index) return file;
    }
  }
};

TEST_F(AppendCoreRollTest, AFileEndsAtTheFirstMessageThatReachesItsSize) {
  core.Add(Messages({"aaaa", "bbbb", "cccc", "dddd", "eeee"}));
  auto out = Next(0);
  ASSERT_TRUE(out.data);
  EXPECT_EQ(out.data->bytes, "aaaabbbbcccc");
  EXPECT_TRUE(core.full());
  Data();
  out = Next(1000);
  EXPECT_FALSE(out.data) << "it is full";
  ASSERT_TRUE(out.index);
  EXPECT_EQ(out.index->bytes.size(), 96u);
  EXPECT_EQ(core.NextFlush(), MonotonicTime::Max()) << "no timer starts what the file can't take";
  EXPECT_EQ(Index().durable[0].batch.messages.size(), 3u);
  EXPECT_TRUE(core.drained());
  EXPECT_FALSE(core.empty());
}

TEST_F(AppendCoreRollTest, WhatAFullFileLeftGoesIntoTheNextOneAtOnce) {
  core.Add(Messages({"aaaa", "bbbb", "cccc", "dddd"}));
  EXPECT_EQ(FillFile(), "aaaabbbbcccc");
  AppendEffects fx;
  ASSERT_TRUE(core.Open(103, 5012, fx));
  EXPECT_FALSE(core.full());
  EXPECT_EQ(FillFile(), "dddd") << "it was due already";
  core.Add(Messages({"ee"}));
  EXPECT_EQ(FillFile(), "") << "this was not";
}

TEST_F(AppendCoreRollTest, TheSizeCountsOverFlushes) {
  core.Add(Messages({"aaaa"}));
  EXPECT_EQ(FillFile(), "aaaa");
  core.Add(Messages({"bbbbbb", "c"}));
  EXPECT_EQ(Next(20).data->bytes, "bbbbbb") << "a boundary at the size itself";
}

TEST_F(AppendCoreRollTest, EmptyMessagesFillAFileWithTheirIndex) {
  core.Add(Messages({"", "", "", "", ""}));
  EXPECT_EQ(Next(0).index->bytes.size(), 96u);
  EXPECT_TRUE(core.full());
}

TEST_F(AppendCoreRollTest, AMessageLargerThanAFileGetsOneToItself) {
  core.Add(Messages({std::string(50, 'x'), "y"}));
  EXPECT_EQ(FillFile(), std::string(50, 'x'));
}

TEST_F(AppendCoreRollTest, NoIntakeIsTooLargeForFilesOfTheirSize) {
  constexpr int64_t kMessages = 100;
  Batch intake;
  for (uint32_t i = 0; i < kMessages; ++i) {
    intake.bytes += std::to_string(1000 + i);
    intake.messages.push_back({4, 0, 1000});
  }
  const std::string all = intake.bytes;
  core.Add(std::move(intake));
  std::string got;
  int files = 0;
  while (!core.empty() && files < kMessages) {
    const std::string file = FillFile();
    EXPECT_LE(file.size(), 12u);
    got += file;
    ++files;
    AppendEffects fx;
    ASSERT_TRUE(core.Open(core.durable_number(), core.durable_byte(), fx));
  }
  EXPECT_EQ(got, all);
  EXPECT_EQ(files, 34);
  EXPECT_EQ(core.flushes(), files) << "one flush for each file";
  EXPECT_EQ(core.durable_number(), 100 + kMessages);
}

TEST_F(AppendCoreRollTest, WhatIsAppendedAgainIsCutAnew) {
  core.Add(Messages({"aaaa", "bbbb", "cccc", "dddd", "eeee"}));
  Next(0);
  Data(AppendOutcome::kUnknown);
  AppendEffects fx;
  ASSERT_TRUE(core.Open(101, 5004, fx));  // the first one had landed
  EXPECT_EQ(FillFile(), "bbbbccccdddd");
}

}  // namespace
}  // namespace tailcast::producer
