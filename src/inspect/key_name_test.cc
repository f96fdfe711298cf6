#include "tailcast/inspect/key_name.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/stream/chunk_key.h"

namespace tailcast::inspect {
namespace {

using ::testing::HasSubstr;

KeyName NameOf(const std::string& text) {
  const auto parsed = ParseKey(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<KeyName>(*parsed) : KeyName();
}

TEST(KeyNameTest, NamesAreReadAsTheyAreWritten) {
  for (const char* text :
       {"flights/0/1", "flights/9999/9999999999", "a.b-c_1/3/7/0", "s/0/1/index:12",
        "s/0/1/lock:primary", "s/0/1/lock:cache", "s/0/1/140737488355327"}) {
    EXPECT_EQ(NameOf(text).ToString(), text);
  }
  EXPECT_EQ(NameOf("s/0/1/data:5").ToString(), "s/0/1/5");
  EXPECT_EQ(NameOf("s/0/1").instance(), Instance::kMetadata);
  EXPECT_EQ(NameOf("s/0/1/lock:cache").instance(), Instance::kMetadata);
  EXPECT_EQ(NameOf("s/0/1/5").instance(), Instance::kData);
}

TEST(KeyNameTest, ThirtyTwoHexDigitsAreAKey) {
  const auto parsed = ParseKey("0123456789abcdefFEDCBA9876543210");
  ASSERT_TRUE(parsed.ok());
  const cache::Key key = std::get<cache::Key>(*parsed);
  EXPECT_EQ(key, (cache::Key{0x0123456789abcdef, 0xfedcba9876543210}));
  EXPECT_EQ(KeyText(key), "0123456789abcdeffedcba9876543210");
}

TEST(KeyNameTest, WhatIsWrongIsSaid) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "32 hex digits"},
      {"0123", "32 hex digits"},
      {"0123456789abcdef0123456789abcdef0", "32 hex digits"},
      {"0123456789abcdef+123456789abcdef", "32 hex digits"},
      {"s/0", "STREAM/SHARD/SEQ"},
      {"s/0/1/2/3", "STREAM/SHARD/SEQ"},
      {"/0/1", "1 to 100"},
      {"s//1", "shard ''"},
      {"s/10000/1", "shard '10000'"},
      {"s/1x/1", "shard '1x'"},
      {"s/0/0", "file '0'"},
      {"s/0/10000000000", "file '10000000000'"},
      {"s/0/+1", "file '+1'"},
      {"s/0/1/", "'' is no chunk"},
      {"s/0/1/-1", "'-1' is no chunk"},
      {"s/0/1/index:", "'index:' is no chunk"},
      {"s/0/1/index:x", "'index:x' is no chunk"},
      {"s/0/1/99999999999999999999", "is no chunk"},
      {"s/0/1/lock:", "'lock:' is no chunk"}};
  for (const auto& [text, words] : wrong) {
    const auto parsed = ParseKey(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(IsInvalidArgument(parsed.status()));
    EXPECT_THAT(parsed.status().message(), HasSubstr("KEY '" + text + "'"));
    EXPECT_THAT(parsed.status().message(), HasSubstr(words)) << text;
  }
}

TEST(KeyNameTest, KeysAreThoseThatTheAgentsMake) {
  const stream::StreamId id{"s", stream::StreamIncarnation{77}};
  const stream::KeyMaker keys({id, 3});
  EXPECT_EQ(KeyOf(NameOf("s/3/9"), id, 0), keys.MetadataGroup(9));
  EXPECT_EQ(KeyOf(NameOf("s/3/9/12"), id, 4096), keys.Chunk(9, stream::Part::kData, 4096, 12));
  EXPECT_EQ(KeyOf(NameOf("s/3/9/index:2"), id, 512), keys.Chunk(9, stream::Part::kIndex, 512, 2));
  EXPECT_EQ(KeyOf(NameOf("s/3/9/lock:cache"), id, 0), keys.Lock(9, 1));
}

TEST(KeyNameTest, AShardThatTheStreamDoesNotHaveIsRefused) {
  v1::StreamConfig stream;
  stream.set_name("s");
  stream.set_shards(1);
  EXPECT_TRUE(CheckShard(NameOf("s/0/1"), stream).ok());
  const Status wrong = CheckShard(NameOf("s/1/1"), stream);
  EXPECT_TRUE(IsInvalidArgument(wrong));
  EXPECT_THAT(wrong.message(), HasSubstr("has 1 shard,"));
}

}  // namespace
}  // namespace tailcast::inspect
