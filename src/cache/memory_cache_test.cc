#include "tailcast/cache/memory_cache.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/test_loop.h"

namespace tailcast::cache {
namespace {

std::string Lanes(std::vector<uint64_t> lanes) {
  return std::string(reinterpret_cast<const char*>(lanes.data()), lanes.size() * 8);
}

class MemoryCacheTest : public testing::Test {
 protected:
  Status Mutate(MemoryClient& client, Key key, MergeRule rule, std::string value) {
    std::optional<Status> result;
    client.Mutate({Mutation{key, rule, false, std::move(value)}}, Duration::Seconds(1),
                  scope_.Bind([&](Status status) { result = status; }));
    EXPECT_FALSE(result.has_value()) << "called back inside the call";
    EXPECT_TRUE(loop_.RunUntil([&] { return result.has_value(); }));
    return *result;
  }
  ChunkRead Read(MemoryClient& client, ChunkRead read) {
    bool done = false;
    client.ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, Duration::Millis(100),
                      scope_.Bind([&] { done = true; }));
    EXPECT_TRUE(loop_.RunUntil([&] { return done; }));
    return read;
  }
  Result<std::vector<std::optional<std::string>>> ReadValue(MemoryClient& client, Key key) {
    std::optional<Result<std::vector<std::optional<std::string>>>> result;
    client.ReadValues({{key, MergeRule::kMaxLanes}}, Duration::Millis(100),
                      scope_.Bind([&](auto values) { result = std::move(values); }));
    EXPECT_TRUE(loop_.RunUntil([&] { return result.has_value(); }));
    return *std::move(result);
  }

  const Scope scope_;
  TestLoop loop_;
  MemoryStore store_;
  MemoryClient client_{&loop_, &store_};
  char buffer_[64] = {};
};

TEST_F(MemoryCacheTest, LongerValueWinsAndShorterChangesNothing) {
  const Key key{1, 2};
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kLongerWins, "abcdef").ok());
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kLongerWins, "abc").ok());
  EXPECT_EQ(store_.Get(key), "abcdef");
}

TEST_F(MemoryCacheTest, ContradictingBytesDropBothAndAreDataLoss) {
  const Key key{1, 2};
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kLongerWins, "abcdef").ok());
  EXPECT_TRUE(IsDataLoss(Mutate(client_, key, MergeRule::kLongerWins, "abX")));
  EXPECT_EQ(store_.Get(key), std::nullopt);
  EXPECT_EQ(store_.mismatches(), 1u);
}

TEST_F(MemoryCacheTest, ReadsOnlyTheSuffixAndExtendsTheChecksum) {
  const Key key{1, 2};
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kLongerWins, "abcdef").ok());
  ChunkRead read{.key = key, .have = 0, .want = 3, .capacity = 3, .destination = buffer_};
  read = Read(client_, read);
  EXPECT_EQ(read.length, 3u);
  EXPECT_EQ(read.crc, Crc32c("abc"));
  read.have = read.length;
  read.length = 0;
  read.want = read.capacity = 6;
  buffer_[0] = '#';  // proves that the prefix is left alone
  ASSERT_TRUE(client_.TryReadChunks(std::span(&read, 1)));
  EXPECT_EQ(std::string(buffer_, 6), "#bcdef");
  EXPECT_EQ(read.crc, Crc32c("abcdef"));
}

TEST_F(MemoryCacheTest, MissesAreResults) {
  ChunkRead read{.key = {9, 9}, .want = 3, .capacity = 3, .destination = buffer_};
  EXPECT_FALSE(client_.TryReadChunks(std::span(&read, 1)));
  EXPECT_EQ(Read(client_, read).length, 0u);
  EXPECT_EQ(client_.counters().misses, 1u);
  EXPECT_EQ((*ReadValue(client_, {9, 9}))[0], std::nullopt);
}

TEST_F(MemoryCacheTest, LanesJoinByMaximumAndNeverFallWithinAClient) {
  const Key key{3, 4};
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kMaxLanes, Lanes({5, 1})).ok());
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kMaxLanes, Lanes({2, 7, 1})).ok());
  EXPECT_EQ((*ReadValue(client_, key))[0], Lanes({5, 7, 1}));
  store_.EvictAll();
  EXPECT_EQ((*ReadValue(client_, key))[0], std::nullopt);
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kMaxLanes, Lanes({1, 1, 1})).ok());
  EXPECT_EQ((*ReadValue(client_, key))[0], Lanes({5, 7, 1}));
}

TEST_F(MemoryCacheTest, DoorbellNotifiesOnceForChangesSinceTheLastRead) {
  const Key key{3, 4};
  int notifications = 0;
  EXPECT_TRUE(ReadValue(client_, key).ok());
  client_.WatchValue(key, Duration::Seconds(5),
                     scope_.Bind([&](bool watched) { notifications += watched ? 1 : 100; }));
  loop_.RunFor(Duration::Millis(10));
  EXPECT_EQ(notifications, 0);
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kMaxLanes, Lanes({1})).ok());
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kMaxLanes, Lanes({2})).ok());
  loop_.RunFor(Duration::Millis(10));
  EXPECT_EQ(notifications, 1);
  // Changed since it was read: notifies at once.
  client_.WatchValue(key, Duration::Seconds(5),
                     scope_.Bind([&](bool watched) { notifications += watched ? 1 : 100; }));
  loop_.RunFor(Duration::Millis(1));
  EXPECT_EQ(notifications, 2);
  EXPECT_TRUE(ReadValue(client_, key).ok());
  client_.WatchValue(key, Duration::Seconds(5),
                     scope_.Bind([&](bool watched) { notifications += watched ? 1 : 100; }));
  const uint64_t cancelled = client_.WatchValue(key, Duration::Seconds(5),
                                                scope_.Bind([&](bool) { notifications += 50; }));
  client_.CancelWatch(cancelled);
  loop_.RunFor(Duration::Seconds(6));
  EXPECT_EQ(notifications, 3) << "the time-out notifies";
}

TEST_F(MemoryCacheTest, FaultsAreDrawnAndTimeoutsHold) {
  const Key key{1, 2};
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kLongerWins, "abcdef").ok());
  ChunkRead read{.key = key, .want = 6, .capacity = 6, .destination = buffer_};
  store_.SetFaults({.miss = 1});
  EXPECT_EQ(Read(client_, read).length, 0u);
  store_.SetFaults({.short_read = 1});
  EXPECT_LT(Read(client_, read).length, 6u);
  store_.SetFaults({.delay = Duration::Seconds(2)});
  const MonotonicTime start = loop_.Now();
  EXPECT_EQ(Read(client_, read).length, 0u);
  EXPECT_EQ((loop_.Now() - start).millis(), 100);
  EXPECT_TRUE(IsUnavailable(Mutate(client_, key, MergeRule::kLongerWins, "abcdefg")));
  store_.SetFaults({.unavailable = true});
  EXPECT_TRUE(IsUnavailable(ReadValue(client_, key).status()));
  store_.SetFaults({.refuse_watches = true});
  bool watched = true;
  client_.WatchValue(key, Duration::Seconds(1), scope_.Bind([&](bool w) { watched = w; }));
  loop_.RunReady();
  EXPECT_FALSE(watched);
}

TEST_F(MemoryCacheTest, DrainWaitsForWhatIsUnderWay) {
  store_.SetFaults({.delay = Duration::Millis(5)});
  std::string order;
  client_.Mutate({Mutation{{1, 2}, MergeRule::kLongerWins, false, "a"}}, Duration::Seconds(1),
                 scope_.Bind([&](Status) { order += "m"; }));
  client_.Drain(scope_.Bind([&] { order += "d"; }));
  EXPECT_TRUE(loop_.RunUntil([&] { return order.size() == 2; }));
  EXPECT_EQ(order, "md");
}

TEST_F(MemoryCacheTest, NothingIsCalledAfterTheClientIsGone) {
  bool called = false;
  {
    MemoryClient client(&loop_, &store_);
    client.Mutate({}, Duration::Seconds(1), scope_.Bind([&](Status) { called = true; }));
    client.WatchValue({1, 1}, Duration::Seconds(1), scope_.Bind([&](bool) { called = true; }));
  }
  store_.Apply({{1, 1}, MergeRule::kMaxLanes, false, Lanes({1})});
  loop_.RunFor(Duration::Seconds(3));
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace tailcast::cache
