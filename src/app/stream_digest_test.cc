#include "tailcast/app/stream_digest.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

constexpr int64_t kBlock = ShardDigest::kBlockMessages;

// Messages `from` to `to`; what `change` does to one is what differs.
ShardDigest Digest(int64_t from, int64_t to,
                   const std::function<void(consumer::Message&)>& change = nullptr) {
  ShardDigest digest;
  for (int64_t i = from; i < to; ++i) {
    consumer::Message message{
        .payload = "payload", .number = i, .byte = i * 7, .time_us = 1000 + i};
    if (change) change(message);
    digest.Add(message);
  }
  return digest;
}

TEST(ShardDigest, TheSameMessagesAreTheSame) {
  EXPECT_EQ(ShardDigest::FirstDifference(Digest(0, 5000), Digest(0, 5000)), std::nullopt);
  EXPECT_EQ(ShardDigest::FirstDifference(Digest(0, 0), Digest(0, 0)), std::nullopt);
  EXPECT_EQ(Digest(0, 5000).bytes(), 35000);
  const std::string headers = *stream::Headers::Encode(std::vector<stream::Header>{{"n", "v"}});
  const auto with = [&](auto& m) { m.headers = *stream::Headers::Decode(headers); };
  EXPECT_EQ(Digest(0, 10, with).bytes(), 120) << "5 bytes of headers each";
}

TEST(ShardDigest, APayloadAPlaceAndATimeMakeADifference) {
  const ShardDigest right = Digest(0, 5000);
  const auto of = [&](const std::function<void(consumer::Message&)>& change) {
    return ShardDigest::FirstDifference(right, Digest(0, 5000, [&](consumer::Message& m) {
                                          if (m.number == 3000) change(m);
                                        }));
  };
  EXPECT_EQ(of([](auto& m) { m.payload = "paylaod"; }), 2 * kBlock);
  EXPECT_EQ(of([](auto& m) { m.byte += 1; }), 2 * kBlock);
  EXPECT_EQ(of([](auto& m) { m.time_us += 1; }), 2 * kBlock);
  const std::string headers = *stream::Headers::Encode(std::vector<stream::Header>{{"n", "v"}});
  EXPECT_EQ(of([&](auto& m) { m.headers = *stream::Headers::Decode(headers); }), 2 * kBlock);
  EXPECT_EQ(of([](auto&) {}), std::nullopt);
}

TEST(ShardDigest, AnEndThatOneLacksIsADifferenceThere) {
  for (int64_t end : {int64_t{0}, int64_t{1}, kBlock - 1, kBlock, 2 * kBlock, int64_t{4999}}) {
    EXPECT_EQ(ShardDigest::FirstDifference(Digest(0, 5000), Digest(0, end)), end);
    EXPECT_EQ(ShardDigest::FirstDifference(Digest(0, end), Digest(0, 5000)), end);
  }
}

TEST(ShardDigest, ABeginningThatOneKeepsNotIsNone) {
  EXPECT_EQ(ShardDigest::FirstDifference(Digest(0, 5000), Digest(1500, 5000)), std::nullopt);
  EXPECT_EQ(ShardDigest::FirstDifference(Digest(1500, 5000), Digest(0, 5000)), std::nullopt);
  const auto wrong = [](consumer::Message& m) {
    if (m.number == 4000) m.payload = "x";
  };
  EXPECT_EQ(ShardDigest::FirstDifference(Digest(1500, 5000), Digest(0, 5000, wrong)), 3 * kBlock);
}

TEST(CompareHops, NamesTheFirstHopThatDiffers) {
  const copytree::Tree tree{.source = "a", .edges = {{"a", "b"}, {"b", "c"}, {"a", "d"}}};
  std::map<std::string, CellDigest> cells;
  for (const char* cell : {"a", "b"}) cells[cell].shards[0] = Digest(0, 5000);
  cells["c"].shards[0] = Digest(0, 5000, [](consumer::Message& m) {
    if (m.number == 1024) m.payload = "x";
  });
  cells["d"].error = "file 3 fails its check sum";
  const auto findings = CompareHops(tree, cells);
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_TRUE(findings[0].same);
  EXPECT_FALSE(findings[1].same);
  EXPECT_EQ(findings[1].what, "shard 0 differs in messages 1024 to 2047");
  EXPECT_EQ(findings[2].what, "file 3 fails its check sum");
  cells["c"].shards[0] = Digest(0, 4000);
  EXPECT_EQ(CompareHops(tree, cells)[1].what, "shard 0 ends at message 4000 rather than 5000");
  cells["c"].shards.clear();
  EXPECT_EQ(CompareHops(tree, cells)[1].what, "shard 0 is not there");
}

}  // namespace
}  // namespace tailcast::app
