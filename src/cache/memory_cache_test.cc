#include "tailcast/cache/memory_cache.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client_suite_testing.h"
#include "tailcast/cache/test_loop.h"

namespace tailcast::cache {
namespace {

class MemoryWorld : public ClientWorld {
 public:
  std::unique_ptr<Client> MakeClient() override {
    return std::make_unique<MemoryClient>(&loop_, &store_);
  }
  bool Turn(const std::function<bool()>& done) override { return loop_.RunUntil(done); }
  void LoseAll() override { store_.EvictAll(); }
  bool has_doorbells() const override { return true; }
  bool reads_inside_the_call() const override { return true; }

 private:
  TestLoop loop_;
  MemoryStore store_;
};

INSTANTIATE_TEST_SUITE_P(Memory, ClientSuite,
                         testing::Values(ClientSuiteParam{
                             "Plain", [] { return std::make_unique<MemoryWorld>(); }}),
                         ClientSuiteName);

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
  Result<Values> ReadValue(MemoryClient& client, Key key) {
    std::optional<Result<Values>> result;
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

TEST_F(MemoryCacheTest, ContradictionsAreCountedByTheStore) {
  const Key key{1, 2};
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kLongerWins, "abcdef").ok());
  EXPECT_TRUE(IsDataLoss(Mutate(client_, key, MergeRule::kLongerWins, "abX")));
  EXPECT_EQ(store_.Get(key), std::nullopt);
  EXPECT_EQ(store_.mismatches(), 1u);
}

TEST_F(MemoryCacheTest, DoorbellNotifiesOnceForChangesSinceTheLastRead) {
  const Key key{3, 4};
  int notifications = 0;
  EXPECT_TRUE(ReadValue(client_, key).ok());
  client_.WatchValue(key, Duration::Seconds(5),
                     scope_.Bind([&](bool watched) { notifications += watched ? 1 : 100; }));
  loop_.RunFor(Duration::Millis(10));
  EXPECT_EQ(notifications, 0);
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kMaxLanes, LanesOf({1})).ok());
  EXPECT_TRUE(Mutate(client_, key, MergeRule::kMaxLanes, LanesOf({2})).ok());
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
  store_.Apply({{1, 1}, MergeRule::kMaxLanes, false, LanesOf({1})});
  loop_.RunFor(Duration::Seconds(3));
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace tailcast::cache
