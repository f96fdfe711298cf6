#include "tailcast/inspect/cache_room.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/inspect/status_facts.h"

namespace tailcast::inspect {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

json CacheProcess(const std::string& name, int64_t room, int64_t ttl_s = 60, int serving = 1) {
  json metrics = json::array();
  const auto add = [&](const std::string& cache, const std::string& metric, int64_t value) {
    metrics.push_back({{"name", "tailcast_cache_server_" + metric},
                       {"labels", {{"cache", cache}, {"replica", name}}},
                       {"value", value}});
  };
  add("metadata", "room_bytes", 1);
  add("metadata", "serving", 1);
  add("metadata", "ttl_seconds", 86400);
  add("data", "room_bytes", room);
  add("data", "memory_bytes", room * 5 / 4);
  add("data", "serving", serving);
  add("data", "ttl_seconds", ttl_s);
  return {{"name", name},
          {"state", "up"},
          {"status", {{"name", name}, {"incarnation", name}, {"metrics", metrics}}}};
}

json Stream(const std::string& name, double bytes_per_s, double messages_per_s) {
  return {{"stream", name},
          {"source", "here"},
          {"shards_not_shown", 0},
          {"shards",
           {{{"shard", 0}, {"bytes_per_s", bytes_per_s}, {"messages_per_s", messages_per_s}}}}};
}

json Cell(std::vector<json> caches, std::vector<json> streams) {
  return {{"name", "here"}, {"processes", caches}, {"streams", streams}};
}

json ThreeCaches(int64_t room) {
  return {CacheProcess("cache-1", room), CacheProcess("cache-2", room),
          CacheProcess("cache-3", room)};
}

TEST(CacheRoomTest, ThreeReplicasHoldAsMuchAsOne) {
  const CacheRoom room = RoomOf(Cell(ThreeCaches(1000), {}));
  EXPECT_EQ(room.replicas, 3);
  EXPECT_DOUBLE_EQ(room.bytes, 1000);
  EXPECT_DOUBLE_EQ(room.wanted_s, 60);
}

TEST(CacheRoomTest, MoreReplicasShareAndOneAloneHoldsAllThatItHas) {
  auto caches = ThreeCaches(1000).get<std::vector<json>>();
  for (int i = 4; i <= 6; ++i) caches.push_back(CacheProcess("cache-" + std::to_string(i), 1000));
  EXPECT_DOUBLE_EQ(RoomOf(Cell(caches, {})).bytes, 2000);
  EXPECT_DOUBLE_EQ(RoomOf(Cell({CacheProcess("cache-1", 1000)}, {})).bytes, 1000);
}

TEST(CacheRoomTest, SparesAndSilentProcessesHoldNothing) {
  auto caches = ThreeCaches(1000).get<std::vector<json>>();
  caches.push_back(CacheProcess("spare", 1000, 60, 0));
  caches.push_back({{"name", "cache-9"}, {"state", "silent"}});
  EXPECT_EQ(RoomOf(Cell(caches, {})).replicas, 3);
}

TEST(CacheRoomTest, AMinuteOfDataAndIndexFitsJustOrDoesNot) {
  // 10 messages of 68 bytes a second with 32 bytes of index each: 1000 bytes/s.
  const auto troubles = [](int64_t room) {
    const json cell = Cell(ThreeCaches(room), {Stream("s", 680, 10)});
    return CacheRoomTrouble(RoomOf(cell), LoadOf(cell));
  };
  EXPECT_EQ(troubles(60'000), "");
  EXPECT_THAT(troubles(59'000), HasSubstr("holds 59 s of the 1.0 KB/s of chunks that come"));
}

TEST(CacheRoomTest, TheStreamWithTheMostBytesIsNamedAndWhatWouldDo) {
  const json cell = Cell(ThreeCaches(200'000'000),
                         {Stream("a", 1e6, 0), Stream("flights", 8e6, 0), Stream("z", 1e6, 0)});
  EXPECT_EQ(CacheRoomTrouble(RoomOf(cell), LoadOf(cell)),
            "the data cache holds 20 s of the 10.0 MB/s of chunks that come, 8.0 MB/s of them "
            "stream flights, and should hold 60 s: who is further behind reads the primary layer. "
            "Give its 3 cache processes 750.0 MB of cache.data_bytes each (now 250.0 MB), or the "
            "cell more of them (docs/caches.md)");
  EXPECT_THAT(Troubles(cell), Contains(HasSubstr("the data cache holds 20 s")));
}

TEST(CacheRoomTest, ChunksAreWantedForTheirTimeToLive) {
  const auto cell = [](int64_t ttl_s) {
    return Cell({CacheProcess("cache-1", 30'000, ttl_s)}, {Stream("s", 1000, 0)});
  };
  EXPECT_EQ(CacheRoomTrouble(RoomOf(cell(20)), LoadOf(cell(20))), "");
  EXPECT_THAT(CacheRoomTrouble(RoomOf(cell(300)), LoadOf(cell(300))),
              HasSubstr("should hold 5 min"));
}

TEST(CacheRoomTest, ShardsThatAreNotShownCountAndSmallChunksTakeTheRoomOfLargeOnes) {
  json stream = Stream("s", 1000, 0);
  stream["shards_not_shown"] = 3;
  EXPECT_DOUBLE_EQ(LoadOf(Cell({}, {stream})).bytes_per_s, 4000);
  stream["chunk_size"] = 1024;
  EXPECT_DOUBLE_EQ(LoadOf(Cell({}, {stream})).bytes_per_s, 16000);
  stream["chunk_size"] = 65536;
  EXPECT_DOUBLE_EQ(LoadOf(Cell({}, {stream})).bytes_per_s, 4000);
}

TEST(CacheRoomTest, WhatIsPlannedIsFourFifthsOfTheMemoryInChunks) {
  const CacheRoom room = PlannedRoom(4, 64 << 20, Duration::Seconds(60));
  EXPECT_EQ(room.replicas, 4);
  EXPECT_EQ(room.data_bytes, 64 << 20);
  EXPECT_NEAR(room.bytes, 0.8 * (64 << 20) * 4 / 3, 0.06 * (64 << 20));
  EXPECT_EQ(PlannedRoom(0, 64 << 20, Duration::Seconds(60)).bytes, 0);
}

TEST(CacheRoomTest, WhatIsNotKnownIsNoTrouble) {
  const json memcached = Cell({}, {Stream("s", 1e9, 0)});
  EXPECT_EQ(CacheRoomTrouble(RoomOf(memcached), LoadOf(memcached)), "");
  const json idle = Cell(ThreeCaches(1000), {Stream("s", 0, 0)});
  EXPECT_EQ(CacheRoomTrouble(RoomOf(idle), LoadOf(idle)), "");
  EXPECT_EQ(RoomOf({{"name", "here"}, {"error", "away"}}).replicas, 0);
}

}  // namespace
}  // namespace tailcast::inspect
