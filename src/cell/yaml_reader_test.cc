#include "tailcast/cell/yaml_reader.h"

#include <gtest/gtest.h>

namespace tailcast::cell {
namespace {

YamlMap Parse(const std::string& text) {
  auto map = YamlMap::Parse(text, "t.yaml");
  EXPECT_TRUE(map.ok()) << map.status();
  return std::move(*map);
}

TEST(YamlReader, KeepsDefaultsOfAbsentKeys) {
  YamlMap map = Parse("a: 1");
  std::string text = "default";
  int64_t number = 7;
  EXPECT_TRUE(map.Get("b", text).ok());
  EXPECT_TRUE(map.Get("c", number, 0, 10).ok());
  EXPECT_EQ(text, "default");
  EXPECT_EQ(number, 7);
}

TEST(YamlReader, NamesPlaceKeyAndRangeOfABadValue) {
  YamlMap map = Parse("x: 1\nport: many\n");
  int64_t port = 0;
  EXPECT_EQ(map.Get("port", port, 0, 65535).message(),
            "t.yaml:2:1: key 'port': must be a whole number from 0 to 65535");
  EXPECT_EQ(port, 0);
}

TEST(YamlReader, RefusesNumbersWithTrailingText) {
  YamlMap map = Parse("a: 12x\nb: 99999999999999999999\nc: ''");
  int64_t v = 0;
  for (const char* key : {"a", "b", "c"}) EXPECT_FALSE(map.Get(key, v, 0, 100).ok()) << key;
}

TEST(YamlReader, ReadsSizes) {
  YamlMap map = Parse("a: 64KB\nb: 8MB\nc: 512\nd: 3 apples\ne: 9999999999GB");
  int64_t v = 0;
  EXPECT_TRUE(map.GetBytes("a", v, 0, INT64_MAX).ok());
  EXPECT_EQ(v, 65536);
  EXPECT_TRUE(map.GetBytes("b", v, 0, INT64_MAX).ok());
  EXPECT_EQ(v, 8 << 20);
  EXPECT_TRUE(map.GetBytes("c", v, 0, INT64_MAX).ok());
  EXPECT_EQ(v, 512);
  EXPECT_FALSE(map.GetBytes("d", v, 0, INT64_MAX).ok());
  EXPECT_FALSE(map.GetBytes("e", v, 0, INT64_MAX).ok());
  EXPECT_FALSE(map.GetBytes("c", v, 1024, 2048).ok());
  EXPECT_EQ(ParseBytes("1", 4 << 20, int64_t{1} << 40).status().message(),
            "must be a number of bytes such as 65536, 64KB, 8MB or 1GB, from 4MB to 1024GB");
}

TEST(YamlReader, RefusesAKeyThatIsGivenTwiceAtAnyDepth) {
  EXPECT_EQ(YamlMap::Parse("a: 1\nb: 2\na: 3\n", "t.yaml").status().message(),
            "t.yaml:3:1: key 'a' is given twice; remove one");
  EXPECT_EQ(YamlMap::Parse("list:\n  - {x: 1, x: 1}\n", "t.yaml").status().message(),
            "t.yaml:2:12: key 'x' is given twice; remove one");
  EXPECT_TRUE(YamlMap::Parse("a: {x: 1}\nb: {x: 1}\n", "t.yaml").ok());
}

TEST(YamlReader, SuggestsTheNearestKeyForAnUnknownOne) {
  YamlMap map = Parse("chunk_sise: 4096");
  int64_t v = 0;
  EXPECT_TRUE(map.Get("chunk_size", v, 0, 10000).ok());
  EXPECT_EQ(map.Finish().message(),
            "t.yaml:1:1: unknown key 'chunk_sise'; did you mean 'chunk_size'?");
}

TEST(YamlReader, NamesThePlaceOfBrokenSyntax) {
  const auto map = YamlMap::Parse("a: [1, 2\nb: 3", "t.yaml");
  ASSERT_FALSE(map.ok());
  EXPECT_EQ(map.status().message().rfind("t.yaml:", 0), 0u) << map.status();
  EXPECT_FALSE(YamlMap::Parse("just text", "t.yaml").ok());
  EXPECT_FALSE(YamlMap::Parse("", "t.yaml").ok());
}

TEST(YamlReader, ReadsListsOfMaps) {
  YamlMap map = Parse("links:\n  - {from: a}\n  - {from: b}\n");
  auto maps = map.GetMaps("links");
  ASSERT_TRUE(maps.ok());
  ASSERT_EQ(maps->size(), 2u);
  std::string from;
  EXPECT_TRUE((*maps)[1].Require("from", from).ok());
  EXPECT_EQ(from, "b");
  std::string to;
  EXPECT_FALSE((*maps)[0].Require("to", to).ok());
  EXPECT_FALSE(Parse("links: 3").GetMaps("links").ok());
}

TEST(YamlReader, NamesAFileThatIsNotThere) {
  const auto map = YamlMap::Load("/nonexistent/x.yaml");
  ASSERT_FALSE(map.ok());
  EXPECT_TRUE(IsNotFound(map.status()));
  EXPECT_NE(map.status().message().find("/nonexistent/x.yaml"), std::string::npos);
}

TEST(YamlReader, TakesAliases) {
  YamlMap map = Parse("a: &x [1, 2]\nb: *x\n");
  std::vector<std::string> b;
  EXPECT_TRUE(map.Get("b", b).ok());
  EXPECT_EQ(b.size(), 2u);
}

TEST(YamlReader, RefusesAliasesThatLeadInACircle) {
  for (const char* text : {"a: &x [*x]", "a: &x {b: *x}", "a: &x [*x, *x]", "&x a: &y {b: [*y]}"}) {
    const auto map = YamlMap::Parse(text, "t.yaml");
    ASSERT_FALSE(map.ok()) << text;
    EXPECT_TRUE(IsInvalidArgument(map.status()));
    EXPECT_NE(map.status().message().find("aliases"), std::string::npos) << map.status();
  }
}

TEST(YamlReader, RefusesAliasesThatMultiply) {
  std::string text = "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) text += (k > 0 ? ", " : "") + before;
    text += "]\n";
  }
  const auto map = YamlMap::Parse(text, "t.yaml");
  ASSERT_FALSE(map.ok());
  EXPECT_NE(map.status().message().find("aliases"), std::string::npos) << map.status();
}

TEST(YamlReader, RefusesControlCharacters) {
  for (const char* text : {"a: \"x\\ty\"", "a: \r", "a: \"x\\u007f\""}) {
    auto map = YamlMap::Parse(text, "t.yaml");
    ASSERT_TRUE(map.ok()) << map.status();
    std::string value;
    const Status status = map->Get("a", value);
    EXPECT_TRUE(IsInvalidArgument(status)) << text;
    EXPECT_EQ(value, "");
  }
}

}  // namespace
}  // namespace tailcast::cell
