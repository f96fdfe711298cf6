#include "tailcast/app/message_format.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

using ::testing::HasSubstr;

std::string KeyOf(const std::string& field, std::string_view payload, char delimiter = ',') {
  const auto key = MessageKey::Parse(field, delimiter);
  if (!key.ok()) return "bad: " + key.status().message();
  const auto of = key->Of(payload);
  return of.ok() ? *of : "none: " + of.status().message();
}

TEST(MessageKey, IsAFieldOfALine) {
  EXPECT_EQ(KeyOf("1", "a,b,c\n"), "a");
  EXPECT_EQ(KeyOf("3", "a,b,c\r\n"), "c") << "without the line's end";
  EXPECT_EQ(KeyOf("2", "a,,c"), "");
  EXPECT_EQ(KeyOf("2", "a\tb,c", '\t'), "b,c");
  EXPECT_EQ(KeyOf("4", "a,b,c\n"), "none: --key 4: the message has only 3 fields: 'a,b,c'");
  EXPECT_EQ(KeyOf("1", ""), "");
}

TEST(MessageKey, IsAMemberOfJson) {
  EXPECT_EQ(KeyOf("user", R"({"user": "ann", "n": 7})"), "ann");
  EXPECT_EQ(KeyOf("n", R"({"user": "ann", "n": 7})"), "7");
  EXPECT_EQ(KeyOf("/user/id", R"({"user": {"id": "x/y"}})"), "x/y");
  EXPECT_EQ(KeyOf("a/b", R"({"a/b": "slash"})"), "slash");
  EXPECT_EQ(KeyOf("who", R"({"user": 1})"),
            "none: --key who: the message has no such member: '{\"user\": 1}'");
  EXPECT_EQ(KeyOf("who", "text"), "none: --key who: the message is not JSON: 'text'");
  EXPECT_EQ(KeyOf("who", "7"), "none: --key who: the message has no such member: '7'");
  EXPECT_EQ(KeyOf("/1", "[4, 5]"), "5");
  for (const char* member : {"/", "//", "/x", "/-", "/01", "/99999999999999999999"}) {
    EXPECT_THAT(KeyOf(member, "[4]"), HasSubstr("has no such member")) << member;
  }
}

TEST(MessageKey, RefusesWhatIsNoField) {
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  EXPECT_THAT(KeyOf("who", "{\"who\": " + deep + "}"), HasSubstr("in more than 200 others"));
  EXPECT_THAT(KeyOf("who", "{\"a\": " + std::string(16 << 20, '[')), HasSubstr("none: "));
  EXPECT_EQ(KeyOf("0", "a"), "bad: --key 0: fields are counted from 1");
  EXPECT_THAT(KeyOf("", "a"), HasSubstr("--key is empty"));
  EXPECT_THAT(KeyOf("/a~2", "a"), HasSubstr("no JSON pointer"));
}

std::string Print(const std::string& text, std::string_view payload, const std::string& key = "",
                  const std::vector<stream::Header>& headers = {}) {
  auto format = MessageFormat::Parse(text);
  if (!format.ok()) return "bad: " + format.status().message();
  if (!key.empty()) format->set_key(*MessageKey::Parse(key, ','));
  const std::string encoded = *stream::Headers::Encode(headers);
  const consumer::Message message{.payload = payload,
                                  .number = 7,
                                  .byte = 70,
                                  .time_us = 1'359'633'600'250'000,
                                  .shard = 3,
                                  .headers = *stream::Headers::Decode(encoded)};
  std::string out;
  const Status status = format->AppendTo(
      "s", message,
      {.incarnation = stream::StreamIncarnation{0x9f}, .shard = 3, .number = 7, .byte = 70}, out);
  return status.ok() ? out : "failed: " + status.message();
}

TEST(MessageFormat, ATemplateShowsFields) {
  EXPECT_EQ(Print("{time} {stream} {shard}/{number} {key}: {payload}", "k,v\n", "1"),
            "2013-01-31T12:00:00.250000Z s 3/7 k: k,v\n")
      << "the newline of the message is enough";
  EXPECT_EQ(Print("{number}\\t{bytes}{{}}\\\\", "abc"), "7\t3{}\\\n");
  EXPECT_EQ(Print("{position} {time_us}", "abc"), "t1.000000000000009f.3.7.70 1359633600250000\n");
  EXPECT_EQ(Print("{payload}", ""), "\n");
}

TEST(MessageFormat, JsonIsALineForEachMessage) {
  const std::string line = Print("json", "a \"b\"\n");
  EXPECT_EQ(line, R"({"stream":"s","shard":3,"number":7,"position":"t1.000000000000009f.3.7.70",)"
                  R"("time":"2013-01-31T12:00:00.250000Z","payload":"a \"b\"\n"})"
                  "\n");
  EXPECT_EQ(nlohmann::json::parse(Print("json", "k,v", "1"))["key"], "k");
  const auto bytes = nlohmann::json::parse(Print("json", "\xff,v", "1"));
  EXPECT_EQ(bytes["key_base64"], "/w==");
  EXPECT_FALSE(bytes.contains("key"));
}

TEST(MessageFormat, HeadersAreShownInTheirOrder) {
  const std::vector<stream::Header> headers = {{"trace", "a-1"}, {"raw", "\xff"}, {"trace", "2"}};
  EXPECT_EQ(Print("{header.trace}|{header.none}|{payload}", "p", "", headers), "a-1||p\n");
  EXPECT_EQ(Print("{headers}: {payload}", "p", "", headers), "trace=a-1, raw=\xff, trace=2: p\n");
  EXPECT_EQ(Print("{headers}: {payload}", "p"), ": p\n");
  const auto line = nlohmann::json::parse(Print("json", "p", "", headers));
  EXPECT_EQ(line["headers"].dump(),
            R"([{"name":"trace","value":"a-1"},{"name":"raw","value_base64":"/w=="},)"
            R"({"name":"trace","value":"2"}])");
  EXPECT_FALSE(nlohmann::json::parse(Print("json", "p")).contains("headers"));
  EXPECT_THAT(Print("{header.}", ""), HasSubstr("no field {header.}"));
}

TEST(MessageFormat, BytesThatAreNoTextAreBase64InJson) {
  using namespace std::string_view_literals;
  for (const auto& [bytes, text] : {std::pair("\xff"sv, "/w=="),
                                    {"\xff\0"sv, "/wA="},
                                    {"\xff\0\x10"sv, "/wAQ"},
                                    {"\xff\0\x10\xff"sv, "/wAQ/w=="}}) {
    const auto json = nlohmann::json::parse(Print("json", bytes));
    EXPECT_EQ(json["payload_base64"], text);
    EXPECT_FALSE(json.contains("payload"));
  }
}

TEST(MessageFormat, RefusesATemplateThatIsWrongAndSaysWhere) {
  EXPECT_THAT(Print("{paylod}", ""), HasSubstr("{paylod}; did you mean 'payload'?"));
  EXPECT_THAT(Print("{colour}", ""), HasSubstr("no field {colour}; known: payload, key"));
  EXPECT_THAT(Print("{payload", ""), HasSubstr("character 1 is not closed"));
  EXPECT_THAT(Print("a}", ""), HasSubstr("character 2 closes nothing"));
  EXPECT_THAT(Print("jsn", ""), HasSubstr("shows nothing of a message"));
  EXPECT_THAT(Print("", ""), HasSubstr("--format is empty"));
}

TEST(MessageFormat, AMessageWithoutTheKeyIsAnError) {
  EXPECT_THAT(Print("{key}", "a", "2"),
              HasSubstr("failed: --key 2: the message has only 1 fields"));
}

}  // namespace
}  // namespace tailcast::app
