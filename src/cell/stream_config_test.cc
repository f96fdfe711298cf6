#include "tailcast/cell/stream_config.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::cell {
namespace {

using ::testing::ElementsAre;

v1::StreamConfig Named(const std::string& name, int shards = 1) {
  v1::StreamConfig stream;
  stream.set_name(name);
  stream.set_shards(shards);
  return stream;
}

std::vector<std::string> Names(const StreamConfigs& streams) {
  std::vector<std::string> names;
  for (const v1::StreamConfig& stream : streams) names.push_back(stream.name());
  return names;
}

TEST(StreamConfigsTest, StreamsAreKeptByNameWhateverOrderTheyComeIn) {
  StreamConfigs streams;
  for (const char* name : {"m", "z", "a", "n", "b"}) PutByName(Named(name), &streams);
  EXPECT_THAT(Names(streams), ElementsAre("a", "b", "m", "n", "z"));
  PutByName(Named("m", 9), &streams);
  EXPECT_THAT(Names(streams), ElementsAre("a", "b", "m", "n", "z"));
  ASSERT_NE(FindByName(streams, "m"), nullptr);
  EXPECT_EQ(FindByName(streams, "m")->shards(), 9);
  EXPECT_EQ(FindByName(streams, "mm"), nullptr);
  EXPECT_EQ(FindByName(streams, "zz"), nullptr);
  EXPECT_EQ(FindByName({}, "a"), nullptr);
}

}  // namespace
}  // namespace tailcast::cell
