// What needs no cell; over a real one, tests/system/clients_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "tailcast/capi/tailcast.h"

namespace {

using ::testing::HasSubstr;

tailcast_producer_options ProducerOptions() {
  tailcast_producer_options options = TAILCAST_PRODUCER_OPTIONS_INIT;
  options.cell = "127.0.0.1:1";
  options.stream = "s";
  options.open_timeout_ms = 1;
  return options;
}

TEST(CApi, HowLongAPublishMayWaitIsBounded) {
  tailcast_producer* producer = nullptr;
  tailcast_producer_options options = ProducerOptions();
  for (const int64_t ms : {int64_t{-1}, int64_t{7} * 24 * 3600 * 1000 + 1, INT64_MAX}) {
    options.publish_timeout_ms = ms;
    EXPECT_EQ(tailcast_producer_open(&options, &producer), TAILCAST_INVALID_ARGUMENT) << ms;
    EXPECT_THAT(tailcast_last_error(), HasSubstr("publish_timeout"));
  }
  for (const int64_t ms : {0, 1}) {
    options.publish_timeout_ms = ms;
    EXPECT_EQ(tailcast_producer_open(&options, &producer), TAILCAST_UNAVAILABLE)
        << tailcast_last_error();
  }
}

TEST(CApi, SaysItsVersions) {
  EXPECT_EQ(tailcast_abi_version(), TAILCAST_ABI_VERSION);
  EXPECT_THAT(tailcast_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(CApi, NamesTheCodesThatItKnows) {
  EXPECT_STREQ(tailcast_code_name(TAILCAST_OK), "Ok");
  EXPECT_STREQ(tailcast_code_name(TAILCAST_DATA_LOSS), "DataLoss");
  for (tailcast_code code : {-1, 2, 16, 1000}) EXPECT_STREQ(tailcast_code_name(code), "?") << code;
}

TEST(CApi, TheLastErrorIsThatOfTheThread) {
  tailcast_position position;
  EXPECT_EQ(tailcast_position_from_text("nonsense", &position), TAILCAST_INVALID_ARGUMENT);
  const std::string here = tailcast_last_error();
  EXPECT_THAT(here, HasSubstr("nonsense"));
  std::thread([] { EXPECT_STREQ(tailcast_last_error(), ""); }).join();
  EXPECT_EQ(tailcast_position_from_text("t1.9f3a00c2d1e4b576.3.16842.17251200", &position),
            TAILCAST_OK);
  EXPECT_EQ(tailcast_last_error(), here) << "a call that succeeds leaves it";
}

TEST(CApi, APositionAsTextIsTheSameAgain) {
  const char* const text = "t1.9f3a00c2d1e4b576.3.16842.17251200";
  tailcast_position position;
  ASSERT_EQ(tailcast_position_from_text(text, &position), TAILCAST_OK);
  EXPECT_EQ(position.stream, 0x9f3a00c2d1e4b576u);
  EXPECT_EQ(position.shard, 3);
  EXPECT_EQ(position.number, 16842);
  EXPECT_EQ(position.byte, 17251200);
  char back[TAILCAST_POSITION_TEXT_SIZE];
  ASSERT_EQ(tailcast_position_to_text(&position, back), TAILCAST_OK);
  EXPECT_STREQ(back, text);
}

TEST(CApi, ThereIsRoomForTheLongestPosition) {
  const tailcast_position position = {
      .stream = UINT64_MAX, .number = INT64_MAX, .byte = INT64_MAX, .shard = INT32_MAX};
  char text[TAILCAST_POSITION_TEXT_SIZE];
  if (tailcast_position_to_text(&position, text) == TAILCAST_OK) {
    EXPECT_LT(std::strlen(text), sizeof text);
  } else {
    EXPECT_THAT(tailcast_last_error(), HasSubstr("position"));
  }
}

TEST(CApi, BehindAMessageTheNextOneBegins) {
  const tailcast_message message = {
      .payload = "abc",
      .size = 3,
      .time_us = 0,
      .position = {.stream = 7, .number = 10, .byte = 100, .shard = 2},
      .headers = nullptr,
      .header_count = 0,
      .next_byte = 117};
  tailcast_position behind;
  ASSERT_EQ(tailcast_position_behind(&message, &behind), TAILCAST_OK);
  EXPECT_EQ(behind.stream, 7u);
  EXPECT_EQ(behind.shard, 2);
  EXPECT_EQ(behind.number, 11);
  EXPECT_EQ(behind.byte, 117) << "with its headers";
}

TEST(CApi, AKeyHasTheShardThatItHasEverywhere) {
  EXPECT_EQ(tailcast_shard_of_key("user-1", 6, 7), 4);  // as shard_of_key_test.cc has it
  EXPECT_EQ(tailcast_shard_of_key(nullptr, 0, 7), 0);
  EXPECT_EQ(tailcast_shard_of_key(nullptr, 1, 7), -1);
  EXPECT_EQ(tailcast_shard_of_key("a", 1, 0), -1);
}

TEST(CApi, NullIsRefusedWithItsName) {
  tailcast_producer_options options = ProducerOptions();
  tailcast_producer* producer = nullptr;
  EXPECT_EQ(tailcast_producer_open(nullptr, &producer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_STREQ(tailcast_last_error(), "options is null");
  EXPECT_EQ(tailcast_producer_open(&options, nullptr), TAILCAST_INVALID_ARGUMENT);
  EXPECT_STREQ(tailcast_last_error(), "producer is null");
  options.stream = nullptr;
  EXPECT_EQ(tailcast_producer_open(&options, &producer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_STREQ(tailcast_last_error(), "options.stream is null");
  EXPECT_EQ(tailcast_producer_publish(nullptr, 0, "", 0, nullptr, 0, nullptr, nullptr),
            TAILCAST_INVALID_ARGUMENT);
  EXPECT_EQ(tailcast_producer_flush(nullptr, 0), TAILCAST_INVALID_ARGUMENT);
  EXPECT_EQ(tailcast_producer_shard_of(nullptr, "a", 1), -1);
  EXPECT_EQ(tailcast_producer_shards(nullptr, nullptr, 0), 0u);
  tailcast_producer_free(nullptr);
  const tailcast_message* messages = nullptr;
  size_t count = 0;
  EXPECT_EQ(tailcast_consumer_poll(nullptr, 0, &messages, &count), TAILCAST_INVALID_ARGUMENT);
  EXPECT_EQ(tailcast_consumer_shards(nullptr, nullptr, 0), 0u);
  tailcast_consumer_free(nullptr);
}

TEST(CApi, AStructureWithoutItsSizeIsRefused) {
  tailcast_consumer_options options = {};
  tailcast_consumer* consumer = nullptr;
  EXPECT_EQ(tailcast_consumer_open(&options, &consumer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("_INIT"));
}

TEST(CApi, AProgramOfAnotherVersionsStructureIsUnderstood) {
  tailcast_producer* producer = nullptr;
  // An older one, which ends behind `stream`: nothing behind it is read.
  struct {
    size_t struct_size;
    const char* cell;
    const char* stream;
  } older = {sizeof older, "", "s"};
  EXPECT_EQ(tailcast_producer_open(reinterpret_cast<tailcast_producer_options*>(&older), &producer),
            TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("cell is empty"));
  // A newer one, which has more.
  struct {
    tailcast_producer_options known;
    int64_t more = 5;
  } newer{ProducerOptions()};
  newer.known.struct_size = sizeof newer;
  newer.known.cell = "";
  EXPECT_EQ(tailcast_producer_open(&newer.known, &producer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("cell is empty"));
}

TEST(CApi, ANameToReportAsIsLookedAtBeforeAnythingElse) {
  tailcast_consumer_options options = TAILCAST_CONSUMER_OPTIONS_INIT;
  options.cell = "127.0.0.1:1";
  options.stream = "s";
  options.report_as = "\xff";
  tailcast_consumer* consumer = nullptr;
  EXPECT_EQ(tailcast_consumer_open(&options, &consumer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("report_as: the name is not UTF-8"));
  options.report_as = "";
  EXPECT_EQ(tailcast_consumer_open(&options, &consumer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("report_as: the name is empty"));
}

TEST(CApi, OptionsOutOfRangeAreNamed) {
  tailcast_producer_options options = ProducerOptions();
  tailcast_producer* producer = nullptr;
  options.flush_bytes = -1;
  EXPECT_EQ(tailcast_producer_open(&options, &producer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("flush_bytes"));
  options = ProducerOptions();
  options.profile = 2;
  EXPECT_EQ(tailcast_producer_open(&options, &producer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("options.profile is 2; use 0 to 1"));
  tailcast_consumer_options reading = TAILCAST_CONSUMER_OPTIONS_INIT;
  reading.cell = "127.0.0.1:1";
  reading.stream = "s";
  reading.start = "yesterday";
  tailcast_consumer* consumer = nullptr;
  EXPECT_EQ(tailcast_consumer_open(&reading, &consumer), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("yesterday"));
}

TEST(CApi, ACellThatDoesNotAnswerIsUnavailable) {
  tailcast_producer_options options = ProducerOptions();
  tailcast_producer* producer = nullptr;
  EXPECT_EQ(tailcast_producer_open(&options, &producer), TAILCAST_UNAVAILABLE);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(producer, nullptr);
}

TEST(CApi, MetricsAreServedOncePerProcess) {
  int32_t port = 0;
  EXPECT_EQ(tailcast_serve_metrics("nowhere", &port), TAILCAST_INVALID_ARGUMENT);
  ASSERT_EQ(tailcast_serve_metrics("127.0.0.1:0", &port), TAILCAST_OK);
  EXPECT_GT(port, 0);
  EXPECT_EQ(tailcast_serve_metrics("127.0.0.1:0", nullptr), TAILCAST_FAILED_PRECONDITION);
  EXPECT_THAT(tailcast_last_error(), HasSubstr(std::to_string(port)));
}

TEST(CApi, LogLevelsThatAreNoneAreRefused) {
  EXPECT_EQ(tailcast_set_log_levels("loud"), TAILCAST_INVALID_ARGUMENT);
  EXPECT_THAT(tailcast_last_error(), HasSubstr("loud"));
  EXPECT_EQ(tailcast_set_log_levels("info"), TAILCAST_OK);
}

}  // namespace
