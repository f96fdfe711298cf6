#include "tailcast/memcached/memcached_client.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cache/client_suite_testing.h"
#include "tailcast/memcached/item.h"
#include "tailcast/memcached/memcached_testing.h"

namespace tailcast::memcached {
namespace {

using cache::ChunkRead;
using cache::Client;
using cache::ClientSuite;
using cache::ClientSuiteParam;
using cache::ClientWorld;
using cache::Key;
using cache::LanesOf;
using cache::MergeRule;
using cache::Mutation;
using cache::ReadMode;

constexpr Duration kTestLimit = Duration::Seconds(60);
constexpr char kSpace[] = "a test's cache";

class MemcachedWorld : public ClientWorld {
 public:
  explicit MemcachedWorld(size_t servers) : servers_(servers) {}
  std::unique_ptr<Client> MakeClient() override {
    return std::make_unique<MemcachedClient>(&loop_,
                                             ClientOptions{.servers = servers_.addresses(),
                                                           .key_space = kSpace,
                                                           .server_timeout = Duration::Seconds(5)});
  }
  bool Turn(const std::function<bool()>& done) override {
    return loop_.RunUntil(done, ReadMonotonicClock() + kTestLimit);
  }
  void LoseAll() override {
    for (size_t i = 0; i < servers_.addresses().size(); ++i) servers_.Restart(i);
  }
  bool has_doorbells() const override { return false; }
  bool reads_inside_the_call() const override { return false; }

 private:
  TestServers servers_;
  ThreadLoop loop_;
};

INSTANTIATE_TEST_SUITE_P(
    Memcached, ClientSuite,
    testing::Values(
        ClientSuiteParam{"ThreeServers", [] { return std::make_unique<MemcachedWorld>(3); }},
        ClientSuiteParam{"OneServer", [] { return std::make_unique<MemcachedWorld>(1); }},
        ClientSuiteParam{"FiveServers", [] { return std::make_unique<MemcachedWorld>(5); }}),
    cache::ClientSuiteName);

// Three servers, so that each holds every key.
class MemcachedClientTest : public testing::Test {
 protected:
  static constexpr Duration kTimeout = Duration::Seconds(20);
  using Values = Result<cache::Values>;

  ClientOptions Options() const {
    return {.servers = servers_.addresses(),
            .key_space = kSpace,
            .hedge_delay = Duration::Seconds(20),  // none, unless a test wants it
            .server_timeout = Duration::Seconds(10)};
  }
  std::unique_ptr<MemcachedClient> Make(ClientOptions options) {
    return std::make_unique<MemcachedClient>(&loop_, std::move(options));
  }
  std::unique_ptr<MemcachedClient> Make() { return Make(Options()); }

  bool Turn(const std::function<bool()>& done) {
    return loop_.RunUntil(done, ReadMonotonicClock() + kTestLimit);
  }
  Status Put(MemcachedClient& client, std::vector<Mutation> mutations) {
    std::optional<Status> result;
    client.Mutate(std::move(mutations), kTimeout,
                  scope_.Bind([&](Status status) { result = std::move(status); }));
    EXPECT_TRUE(Turn([&] { return result.has_value(); }));
    return result.value_or(InternalError("no answer"));
  }
  Status Put(MemcachedClient& client, Key key, std::string value) {
    return Put(client, {{key, MergeRule::kLongerWins, false, std::move(value)}});
  }
  void Drain(MemcachedClient& client) {
    bool done = false;
    client.Drain(scope_.Bind([&] { done = true; }));
    EXPECT_TRUE(Turn([&] { return done; }));
  }
  // What there is of `want` bytes.
  std::string Get(MemcachedClient& client, Key key, uint32_t want,
                  ReadMode mode = ReadMode::kRelaxed) {
    std::string bytes(8192, '\0');
    ChunkRead read{.key = key, .want = want, .capacity = 8192, .destination = bytes.data()};
    bool done = false;
    client.ReadChunks(std::span(&read, 1), mode, kTimeout, scope_.Bind([&] { done = true; }));
    EXPECT_TRUE(Turn([&] { return done; }));
    return bytes.substr(0, read.length);
  }
  Values ReadValue(MemcachedClient& client, Key key) {
    std::optional<Values> result;
    client.ReadValues({{key}}, kTimeout,
                      scope_.Bind([&](Values values) { result = std::move(values); }));
    EXPECT_TRUE(Turn([&] { return result.has_value(); }));
    return result.has_value() ? *std::move(result) : Values(InternalError("no answer"));
  }
  // As one server has it, past the client.
  Connection::Item Raw(size_t server, Key key) {
    Connection connection = servers_.Connect(server);
    std::vector<Connection::Item> items;
    const std::vector<std::string> names = {format_.KeyOf(key)};
    EXPECT_TRUE(connection.Get(names, items)) << connection.last_error();
    return items.empty() ? Connection::Item() : items.front();
  }
  void PutRaw(size_t server, Key key, std::string_view item) {
    Connection connection = servers_.Connect(server);
    EXPECT_TRUE(connection.Delete(format_.KeyOf(key)).has_value());
    EXPECT_EQ(connection.Add(format_.KeyOf(key), item, 60), StoreResult::kDone);
  }

  const Scope scope_;
  const ItemFormat format_{kSpace};
  TestServers servers_{3};
  ThreadLoop loop_;
};

TEST_F(MemcachedClientTest, EveryServerHoldsEveryKeyOfThree) {
  const auto client = Make();
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdef").ok());
  Drain(*client);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Raw(i, {1, 2}).bytes, format_.Encode({1, 2}, MergeRule::kLongerWins, "abcdef"));
  }
}

TEST_F(MemcachedClientTest, ADeadServerCostsNoWriteAndNoReadAndItsReturnNeither) {
  constexpr uint64_t kChunks = 8, kRounds = 90;
  const auto writer = Make(), reader = Make();
  std::string bytes;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (round == 30) servers_.Kill(1);
    if (round == 60) servers_.Start(1);
    bytes += std::string(20, static_cast<char>('a' + round % 26));
    std::vector<Mutation> mutations;
    for (uint64_t c = 0; c < kChunks; ++c) {
      mutations.push_back({{c, c}, MergeRule::kLongerWins, false, bytes});
    }
    ASSERT_TRUE(Put(*writer, std::move(mutations)).ok()) << round;
    const auto size = static_cast<uint32_t>(bytes.size());
    ASSERT_EQ(Get(*reader, {round % kChunks, round % kChunks}, size), bytes) << round;
  }
  EXPECT_EQ(reader->counters().hits, kRounds);
  EXPECT_GT(writer->stats().unreachable_requests + writer->stats().broken_requests, 0u);
  EXPECT_EQ(writer->stats().timed_out_requests + writer->stats().refused_requests, 0u);
  EXPECT_EQ(writer->counters().mutation_failures, 0u);
}

TEST_F(MemcachedClientTest, TwoDeadServersFailWritesAndReadsGoOnWithTheThird) {
  const auto client = Make();
  EXPECT_TRUE(Put(*client, {{{1, 2}, MergeRule::kLongerWins, false, "abcdef"},
                            {{3, 4}, MergeRule::kMaxLanes, false, LanesOf({7})}})
                  .ok());
  Drain(*client);
  servers_.Kill(0);
  servers_.Kill(2);
  EXPECT_TRUE(IsUnavailable(Put(*client, {1, 2}, "abcdefgh")));
  EXPECT_EQ(client->counters().mutation_failures, 1u);
  EXPECT_EQ(Get(*client, {1, 2}, 6), "abcdefgh") << "it stayed where it was written";
  const Values values = ReadValue(*client, {3, 4});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].bytes, LanesOf({7}));
  EXPECT_FALSE((*values)[0].complete) << "one answer";
  EXPECT_EQ(client->usable_servers(), 1u);
}

TEST_F(MemcachedClientTest, WithAllServersDeadChunksMissAndValuesAreUnavailable) {
  const auto client = Make();
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdef").ok());
  for (size_t i = 0; i < 3; ++i) servers_.Kill(i);
  EXPECT_EQ(Get(*client, {1, 2}, 6), "");
  EXPECT_TRUE(IsUnavailable(ReadValue(*client, {3, 4}).status()));
  EXPECT_TRUE(IsUnavailable(Put(*client, {1, 2}, "abcdefgh")));
  EXPECT_EQ(client->usable_servers(), 0u);
  for (size_t i = 0; i < 3; ++i) servers_.Start(i);
  EXPECT_TRUE(Turn([&] { return client->usable_servers() == 3; })) << "after their back-off";
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdefgh").ok());
  EXPECT_EQ(Get(*client, {1, 2}, 8), "abcdefgh");
}

TEST_F(MemcachedClientTest, ARestartedServerIsEmptyAndTheOthersAreAsked) {
  const auto client = Make();
  std::vector<Mutation> mutations;
  for (uint64_t i = 0; i < 50; ++i) {
    mutations.push_back({{i, i}, MergeRule::kLongerWins, false, "abcdef"});
  }
  EXPECT_TRUE(Put(*client, mutations).ok());
  Drain(*client);
  servers_.Restart(0);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(Get(*client, {i, i}, 6), "abcdef");
  EXPECT_EQ(client->counters().misses, 0u);
}

TEST_F(MemcachedClientTest, ASilentServerNeverDelaysTheOthersWrites) {
  ClientOptions options = Options();
  options.server_timeout = Duration::Millis(200);
  const auto client = Make(options);
  EXPECT_TRUE(Put(*client, {1, 2}, "abc").ok());
  Drain(*client);
  servers_.Stop(1);
  std::string order;
  for (int i = 0; i < 10; ++i) {
    client->Mutate({{{1, 2}, MergeRule::kLongerWins, false, "abcdef"}}, kTimeout,
                   scope_.Bind([&](const Status& status) {
                     EXPECT_TRUE(status.ok()) << status;
                     order += "w";
                   }));
  }
  client->Drain(scope_.Bind([&] { order += "D"; }));
  EXPECT_TRUE(Turn([&] { return order.size() == 11; }));
  EXPECT_EQ(order, "wwwwwwwwwwD");
  EXPECT_EQ(client->stats().timed_out_requests, 1u);
  EXPECT_EQ(client->stats().skipped_requests, 9u) << "it is waited for once, not ten times";
  servers_.Continue(1);
}

TEST_F(MemcachedClientTest, ASilentServersReadsAreHedged) {
  ClientOptions options = Options();
  options.hedge_delay = Duration::Millis(5);
  const auto client = Make(options);
  std::vector<Mutation> mutations;
  for (uint64_t i = 0; i < 60; ++i) {
    mutations.push_back({{i, i}, MergeRule::kLongerWins, false, "abcdef"});
  }
  EXPECT_TRUE(Put(*client, mutations).ok());
  Drain(*client);
  servers_.Stop(1);
  for (uint64_t i = 0; i < 60; ++i) EXPECT_EQ(Get(*client, {i, i}, 6), "abcdef");
  EXPECT_GT(client->counters().hedges, 0u);
  EXPECT_EQ(client->counters().misses, 0u);
  servers_.Continue(1);
}

TEST_F(MemcachedClientTest, TheDeadlineEndsReadsAndWritesWithWhatIsThere) {
  const auto client = Make();
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdef").ok());
  Drain(*client);
  for (size_t i = 0; i < 3; ++i) servers_.Stop(i);
  std::string buffer(8, '\0');
  ChunkRead read{.key = {1, 2}, .want = 6, .capacity = 8, .destination = buffer.data()};
  int ends = 0;
  const Duration timeout = Duration::Millis(50);
  client->ReadChunks(std::span(&read, 1), ReadMode::kConsistent, timeout,
                     scope_.Bind([&] { ++ends; }));
  client->ReadValues({{{1, 2}}}, timeout, scope_.Bind([&](const Values& values) {
    EXPECT_TRUE(IsUnavailable(values.status()));
    ++ends;
  }));
  client->Mutate({{{1, 2}, MergeRule::kLongerWins, false, "abcdefg"}}, timeout,
                 scope_.Bind([&](const Status& status) {
                   EXPECT_TRUE(IsUnavailable(status)) << status;
                   ++ends;
                 }));
  EXPECT_TRUE(Turn([&] { return ends == 3; }));
  EXPECT_EQ(read.length, 0u);
  for (size_t i = 0; i < 3; ++i) servers_.Continue(i);
}

TEST_F(MemcachedClientTest, DestroyedWhileServersAreSilentItCallsNobody) {
  ClientOptions options = Options();
  options.server_timeout = Duration::Millis(50);
  bool called = false;
  std::string buffer(8, '\0');
  ChunkRead read{.key = {1, 2}, .want = 6, .capacity = 8, .destination = buffer.data()};
  for (size_t i = 0; i < 3; ++i) servers_.Stop(i);
  {
    const auto client = Make(options);
    client->ReadChunks(std::span(&read, 1), ReadMode::kConsistent, kTimeout,
                       scope_.Bind([&] { called = true; }));
    client->Mutate({{{1, 2}, MergeRule::kLongerWins, false, "abcdefg"}}, kTimeout,
                   scope_.Bind([&](const Status&) { called = true; }));
    loop_.RunOnce();
  }
  loop_.RunFor(Duration::Millis(1));
  EXPECT_FALSE(called);
  for (size_t i = 0; i < 3; ++i) servers_.Continue(i);
}

TEST_F(MemcachedClientTest, DamagedAndForeignItemsAreNeverBelievedAndTheNextWriteMendsThem) {
  const Key key{1, 2};
  const std::string good = format_.Encode(key, MergeRule::kLongerWins, "abcdef");
  std::string damaged = good;
  damaged.back() ^= 1;
  PutRaw(0, key, damaged);
  PutRaw(1, key, format_.Encode({1, 3}, MergeRule::kLongerWins, "another's"));
  PutRaw(2, key, good);
  const auto client = Make();
  EXPECT_EQ(Get(*client, key, 6, ReadMode::kConsistent), "abcdef");
  PutRaw(2, key, "somebody else's item");
  EXPECT_EQ(Get(*client, key, 6), "");
  EXPECT_TRUE(IsUnavailable(ReadValue(*client, key).status())) << "damage is no absence";
  EXPECT_GE(client->stats().damaged_items, 6u);
  EXPECT_TRUE(Put(*client, key, "abcdef").ok());
  Drain(*client);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Raw(i, key).bytes, good);
}

TEST_F(MemcachedClientTest, AChunkNeverHoldsBytesOfTwoValuesThatContradictEachOther) {
  const Key key{1, 2};
  const auto client = Make();
  EXPECT_TRUE(Put(*client, key, "abXYZW").ok());
  Drain(*client);
  std::string bytes = "abcd....";
  ChunkRead read{.key = key, .have = 4, .want = 6, .capacity = 8, .destination = bytes.data()};
  read.crc = Crc32c("abcd");
  bool done = false;
  client->ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, kTimeout,
                     scope_.Bind([&] { done = true; }));
  EXPECT_TRUE(Turn([&] { return done; }));
  EXPECT_EQ(read.length, 4u);
  EXPECT_EQ(bytes.substr(0, 4), "abcd");
  EXPECT_EQ(client->counters().mismatches(), 3u);
}

TEST_F(MemcachedClientTest, AnEqualRewriteWritesNothing) {
  const auto client = Make();
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdef").ok());
  Drain(*client);
  const uint64_t version = Raw(0, {1, 2}).version;
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdef").ok());
  EXPECT_TRUE(Put(*client, {1, 2}, "abc").ok());
  Drain(*client);
  EXPECT_EQ(Raw(0, {1, 2}).version, version);
}

TEST_F(MemcachedClientTest, ValuesExpireAfterTheirTimeToLive) {
  ClientOptions options = Options();
  options.time_to_live = Duration::Millis(300);  // memcached counts whole seconds
  const auto client = Make(options);
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdef").ok());
  const MonotonicTime deadline = ReadMonotonicClock() + kTestLimit;
  while (Get(*client, {1, 2}, 6) != "") ASSERT_LT(ReadMonotonicClock(), deadline);
}

TEST_F(MemcachedClientTest, CachesOfDifferentSpacesShareTheServers) {
  ClientOptions options = Options();
  options.key_space = "another cache";
  const auto one = Make(), other = Make(options);
  EXPECT_TRUE(Put(*one, {1, 2}, "abcdef").ok());
  EXPECT_EQ(Get(*other, {1, 2}, 6), "");
  EXPECT_TRUE(Put(*other, {1, 2}, "uvwxyz").ok()) << "no contradiction";
  EXPECT_EQ(Get(*one, {1, 2}, 6), "abcdef");
}

TEST_F(MemcachedClientTest, TooLargeValuesAreRefused) {
  const auto client = Make();
  EXPECT_TRUE(IsResourceExhausted(Put(*client, {1, 2}, std::string(3 << 20, 'x'))));
  EXPECT_TRUE(Put(*client, {1, 2}, "abcdef").ok());
}

TEST_F(MemcachedClientTest, WhatIsUnderWayIsBounded) {
  ClientOptions options = Options();
  options.inflight_bytes_max = 5000;
  const auto client = Make(options);
  std::vector<Status> results;
  for (uint64_t i = 0; i < 2; ++i) {
    client->Mutate({{{1, i}, MergeRule::kLongerWins, false, std::string(3000, 'x')}}, kTimeout,
                   scope_.Bind([&](Status status) { results.push_back(std::move(status)); }));
  }
  EXPECT_TRUE(Turn([&] { return results.size() == 2; }));
  EXPECT_EQ((results[0].ok() ? 1 : 0) + (results[1].ok() ? 1 : 0), 1);
  EXPECT_EQ(client->stats().window_full_requests, 3u);
  EXPECT_EQ(client->stats().left_alone_requests, 0u);
  Drain(*client);
  EXPECT_TRUE(Put(*client, {1, 9}, std::string(3000, 'x')).ok()) << "there is room again";
}

TEST_F(MemcachedClientTest, ServersThatAnswerAreToldFromThoseThatDoNot) {
  servers_.Kill(1);
  std::vector<ServerAddress> silent;
  EXPECT_TRUE(CheckServers(servers_.addresses(), Duration::Seconds(5), &silent).ok());
  EXPECT_EQ(silent, std::vector<ServerAddress>{servers_.addresses()[1]});
}

}  // namespace
}  // namespace tailcast::memcached
