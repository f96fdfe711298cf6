// The one suite that every cache::Client passes. An implementation's test registers it:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, ClientSuite, testing::Values(
//       ClientSuiteParam{"Plain", [] { return std::make_unique<MemoryWorld>(); }}),
//       ClientSuiteName);
//
// Only for tests. What a client cannot do its world declares; such tests check that it says so.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client.h"

namespace tailcast::cache {

// One cache and clients of it, all on one loop.
class ClientWorld {
 public:
  virtual ~ClientWorld() = default;
  virtual std::unique_ptr<Client> MakeClient() = 0;
  // Turns the loop until `done` holds; false if that takes longer than a test may.
  virtual bool Turn(const std::function<bool()>& done) = 0;
  // The cache forgets everything, as if all its servers restarted.
  virtual void LoseAll() = 0;
  // A value notifies who waits for its change (WatchValue).
  virtual bool has_doorbells() const = 0;
  // TryReadChunks reads.
  virtual bool reads_inside_the_call() const = 0;
};

struct ClientSuiteParam {
  std::string name;
  std::function<std::unique_ptr<ClientWorld>()> make;
};
inline std::ostream& operator<<(std::ostream& os, const ClientSuiteParam& p) {
  return os << p.name;
}
inline std::string ClientSuiteName(const testing::TestParamInfo<ClientSuiteParam>& info) {
  return info.param.name;
}

inline std::string LanesOf(std::vector<uint64_t> lanes) {
  return std::string(reinterpret_cast<const char*>(lanes.data()), lanes.size() * 8);
}

class ClientSuite : public testing::TestWithParam<ClientSuiteParam> {
 protected:
  using Values = Result<cache::Values>;
  static constexpr Duration kTimeout = Duration::Seconds(5);
  static constexpr auto kLonger = MergeRule::kLongerWins;

  ClientSuite() : world_(GetParam().make()), client_(world_->MakeClient()) {}

  Status Mutate(Client& client, std::vector<Mutation> mutations) {
    std::optional<Status> result;
    client.Mutate(std::move(mutations), kTimeout,
                  scope_.Bind([&](Status status) { result = std::move(status); }));
    EXPECT_FALSE(result.has_value()) << "called back inside the call";
    if (!world_->Turn([&] { return result.has_value(); })) return InternalError("no answer");
    return *result;
  }
  Status Put(Client& client, Key key, MergeRule rule, std::string value) {
    return Mutate(client, {Mutation{key, rule, false, std::move(value)}});
  }
  void Read(Client& client, std::span<ChunkRead> reads, ReadMode mode = ReadMode::kRelaxed) {
    bool done = false;
    client.ReadChunks(reads, mode, kTimeout, scope_.Bind([&] { done = true; }));
    EXPECT_FALSE(done) << "called back inside the call";
    EXPECT_TRUE(world_->Turn([&] { return done; }));
  }
  ChunkRead Read(Client& client, ChunkRead read, ReadMode mode = ReadMode::kRelaxed) {
    Read(client, std::span(&read, 1), mode);
    return read;
  }
  // All of a chunk as another client sees it; nullopt: a miss.
  std::optional<std::string> Chunk(Key key) {
    std::string bytes(4096, '\0');
    const ChunkRead read =
        Read(*client_, {.key = key, .want = 4096, .capacity = 4096, .destination = bytes.data()});
    if (read.length == 0) return std::nullopt;
    return bytes.substr(0, read.length);
  }
  // Until every copy is written, not only enough of them.
  void Drain() {
    bool done = false;
    client_->Drain(scope_.Bind([&] { done = true; }));
    EXPECT_TRUE(world_->Turn([&] { return done; }));
  }
  Values ReadValues(Client& client, std::vector<Client::ValueRead> reads) {
    std::optional<Values> result;
    client.ReadValues(std::move(reads), kTimeout,
                      scope_.Bind([&](Values values) { result = std::move(values); }));
    EXPECT_FALSE(result.has_value()) << "called back inside the call";
    if (!world_->Turn([&] { return result.has_value(); })) return InternalError("no answer");
    return *std::move(result);
  }
  std::optional<std::string> Value(Client& client, Key key, MergeRule rule = MergeRule::kMaxLanes) {
    Values values = ReadValues(client, {{key, rule}});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? (*values)[0].bytes : std::nullopt;
  }

  const Scope scope_;
  std::unique_ptr<ClientWorld> world_;
  std::unique_ptr<Client> client_;
};

TEST_P(ClientSuite, AnotherClientReadsWhatWasWritten) {
  const auto writer = world_->MakeClient();
  EXPECT_TRUE(Put(*writer, {1, 2}, kLonger, "abcdef").ok());
  EXPECT_EQ(Chunk({1, 2}), "abcdef");
  EXPECT_EQ(client_->counters().short_reads, 1u) << "4096 bytes were wanted";
  EXPECT_EQ(writer->counters().mutations, 1u);
}

TEST_P(ClientSuite, LongerValueWinsAndShorterChangesNothing) {
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "abcdef").ok());
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "abc").ok());
  EXPECT_EQ(Chunk({1, 2}), "abcdef");
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "abcdefgh").ok());
  EXPECT_EQ(Chunk({1, 2}), "abcdefgh");
}

TEST_P(ClientSuite, ContradictingBytesDropBothAndAreDataLoss) {
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "abcdef").ok());
  EXPECT_TRUE(IsDataLoss(Put(*client_, {1, 2}, kLonger, "abX")));
  EXPECT_GT(client_->counters().mismatches(), 0u);
  Drain();
  EXPECT_EQ(Chunk({1, 2}), std::nullopt);
}

TEST_P(ClientSuite, OneKeyUnderTwoRulesIsDataLoss) {
  EXPECT_TRUE(Put(*client_, {1, 3}, kLonger, "abcdefgh").ok());
  EXPECT_TRUE(IsDataLoss(Put(*client_, {1, 3}, MergeRule::kMaxLanes, "abcdefgh")));
}

TEST_P(ClientSuite, ReadsOnlyTheSuffixAndExtendsTheChecksum) {
  char buffer[64] = {};
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "abcdef").ok());
  ChunkRead read{.key = {1, 2}, .want = 3, .capacity = 3, .destination = buffer};
  for (const ReadMode mode : {ReadMode::kRelaxed, ReadMode::kConsistent}) {
    read = {.key = {1, 2}, .want = 3, .capacity = 3, .destination = buffer};
    read = Read(*client_, read, mode);
    EXPECT_EQ(read.length, 3u) << "longer values are cut to the room";
    EXPECT_EQ(read.crc, Crc32c("abc"));
    read.have = read.length;
    read.length = 0;
    read.want = read.capacity = 6;
    buffer[0] = '#';  // proves that the prefix is left alone
    read = Read(*client_, read, mode);
    EXPECT_EQ(std::string(buffer, 6), "#bcdef");
    EXPECT_EQ(read.crc, Crc32c("abcdef"));
  }
}

TEST_P(ClientSuite, MissesAreResultsAndFinishedReadsAreLeftAlone) {
  char buffer[64] = "untouched";
  std::vector<ChunkRead> reads(2);
  reads[0] = {.key = {9, 9}, .want = 3, .capacity = 3, .destination = buffer};
  reads[1] = {.key = {1, 2}, .want = 9, .capacity = 9, .destination = buffer, .length = 9};
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "otherbytes").ok());
  Read(*client_, reads);
  EXPECT_EQ(reads[0].length, 0u);
  EXPECT_EQ(client_->counters().misses, 1u);
  EXPECT_EQ(std::string(buffer), "untouched");
  EXPECT_EQ(Value(*client_, {9, 9}), std::nullopt);
  bool empty = false;
  client_->ReadChunks({}, ReadMode::kRelaxed, kTimeout, scope_.Bind([&] { empty = true; }));
  EXPECT_TRUE(world_->Turn([&] { return empty; }));
}

TEST_P(ClientSuite, TryReadsInsideTheCallOrSaysThatItCannot) {
  char buffer[64] = {};
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "abcdef").ok());
  Drain();
  ChunkRead read{.key = {1, 2}, .want = 6, .capacity = 6, .destination = buffer};
  EXPECT_EQ(client_->TryReadChunks(std::span(&read, 1)), world_->reads_inside_the_call());
  read = Read(*client_, read);
  EXPECT_EQ(std::string(buffer, read.length), "abcdef");
  EXPECT_TRUE(client_->TryReadChunks(std::span(&read, 1))) << "there is nothing to read";

  EXPECT_TRUE(Put(*client_, {1, 3}, MergeRule::kMaxBytes, "abc").ok());
  Drain();
  const std::vector<Client::ValueRead> values = {{{1, 3}, MergeRule::kMaxBytes}, {{9, 9}}};
  cache::Values inside;
  EXPECT_EQ(client_->TryReadValues(values, inside), world_->reads_inside_the_call());
  if (!world_->reads_inside_the_call()) return;
  ASSERT_EQ(inside.size(), 2u);
  EXPECT_EQ(inside[0].bytes, "abc");
  EXPECT_TRUE(inside[0].complete);
  EXPECT_EQ(inside[1].bytes, std::nullopt);
}

TEST_P(ClientSuite, LargeBatchesOfHitsAndMissesKeepTheirOrder) {
  constexpr size_t kKeys = 500;
  std::vector<Mutation> mutations;
  for (uint64_t i = 0; i < kKeys; i += 2) {
    mutations.push_back({{i * 77, i}, kLonger, false, std::string(4096, 'a') + std::to_string(i)});
  }
  EXPECT_TRUE(Mutate(*client_, mutations).ok());
  std::vector<std::string> buffers(kKeys, std::string(5000, '\0'));
  std::vector<ChunkRead> reads(kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) {
    reads[i] = {
        .key = {i * 77, i}, .want = 4097, .capacity = 5000, .destination = buffers[i].data()};
  }
  Read(*client_, reads);
  for (uint64_t i = 0; i < kKeys; ++i) {
    const std::string want =
        i % 2 == 0 ? std::string(4096, 'a') + std::to_string(i) : std::string();
    EXPECT_EQ(buffers[i].substr(0, reads[i].length), want) << i;
  }
  EXPECT_EQ(client_->counters().hits, kKeys / 2);
  EXPECT_EQ(client_->counters().misses, kKeys / 2);
}

TEST_P(ClientSuite, LanesJoinByMaximumAndNeverFallWithinAClient) {
  const Key key{3, 4};
  const auto rule = MergeRule::kMaxLanes;
  EXPECT_TRUE(Put(*client_, key, rule, LanesOf({5, 1})).ok());
  EXPECT_TRUE(Put(*client_, key, rule, LanesOf({2, 7, 1})).ok());
  EXPECT_EQ(Value(*client_, key), LanesOf({5, 7, 1}));
  Drain();
  world_->LoseAll();
  EXPECT_EQ(Value(*client_, key), std::nullopt);
  EXPECT_TRUE(Put(*client_, key, rule, LanesOf({1, 1, 1})).ok());
  EXPECT_EQ(Value(*client_, key), LanesOf({5, 7, 1}));
  EXPECT_EQ(Value(*world_->MakeClient(), key), LanesOf({1, 1, 1}));
}

TEST_P(ClientSuite, TheGreaterOfTwoByteStringsStays) {
  const Key key{4, 4};
  const auto rule = MergeRule::kMaxBytes;
  for (const char* value : {"bbbb", "aaaa", "bbbc", "abzz"}) {
    EXPECT_TRUE(Put(*client_, key, rule, value).ok());
  }
  EXPECT_EQ(Value(*client_, key, rule), "bbbc");
}

TEST_P(ClientSuite, WritesOfManyClientsAtOnceAreAllInTheJoin) {
  constexpr uint64_t kClients = 4, kRounds = 20;
  const Key key{5, 5};
  std::vector<std::unique_ptr<Client>> writers;
  size_t answers = 0;
  for (uint64_t c = 0; c < kClients; ++c) writers.push_back(world_->MakeClient());
  for (uint64_t round = 1; round <= kRounds; ++round) {
    for (uint64_t c = 0; c < kClients; ++c) {
      std::vector<uint64_t> lanes(kClients, 0);
      lanes[c] = round;
      writers[c]->Mutate({{key, MergeRule::kMaxLanes, false, LanesOf(lanes)}}, kTimeout,
                         scope_.Bind([&](const Status& status) {
                           EXPECT_TRUE(status.ok()) << status;
                           ++answers;
                         }));
    }
  }
  EXPECT_TRUE(world_->Turn([&] { return answers == kClients * kRounds; }));
  EXPECT_EQ(Value(*client_, key), LanesOf(std::vector<uint64_t>(kClients, kRounds)));
}

TEST_P(ClientSuite, ErasedKeysAreGone) {
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "abcdef").ok());
  EXPECT_TRUE(Mutate(*client_, {{{1, 2}, kLonger, true, ""}, {{8, 8}, kLonger, true, ""}}).ok());
  Drain();
  EXPECT_EQ(Chunk({1, 2}), std::nullopt);
  EXPECT_TRUE(Put(*client_, {1, 2}, kLonger, "other").ok()) << "nothing is left to contradict";
}

TEST_P(ClientSuite, MalformedValuesAreRefused) {
  EXPECT_TRUE(IsResourceExhausted(Put(*client_, {1, 2}, MergeRule::kMaxLanes, "7 bytes")));
  EXPECT_EQ(client_->counters().mutation_failures, 1u);
  EXPECT_TRUE(Mutate(*client_, {}).ok());
}

TEST_P(ClientSuite, DrainRunsAfterWhatWasUnderWay) {
  std::string order;
  bool inside = true;
  client_->Mutate({{{1, 2}, kLonger, false, "a"}}, kTimeout,
                  scope_.Bind([&](const Status&) { order += "m"; }));
  client_->Drain(scope_.Bind([&] {
    EXPECT_FALSE(inside);
    order += "d";
  }));
  inside = false;
  EXPECT_TRUE(world_->Turn([&] { return order.size() == 2; }));
  EXPECT_EQ(order, "md");
}

TEST_P(ClientSuite, NothingIsCalledAfterTheClientIsGone) {
  bool called = false;
  char buffer[8] = {};
  ChunkRead read{.key = {1, 1}, .want = 8, .capacity = 8, .destination = buffer};
  const auto client = world_->MakeClient();
  {
    const auto gone = world_->MakeClient();
    gone->Mutate({{{1, 1}, kLonger, false, "abcdefgh"}}, kTimeout,
                 scope_.Bind([&](const Status&) { called = true; }));
    gone->ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, kTimeout,
                     scope_.Bind([&] { called = true; }));
    gone->ReadValues({{{2, 2}}}, kTimeout, scope_.Bind([&](const Values&) { called = true; }));
    gone->WatchValue({2, 2}, kTimeout, scope_.Bind([&](bool) { called = true; }));
    gone->Drain(scope_.Bind([&] { called = true; }));
  }
  EXPECT_TRUE(Put(*client, {2, 2}, MergeRule::kMaxLanes, LanesOf({1})).ok());
  EXPECT_FALSE(called);
}

TEST_P(ClientSuite, WatchesNotifyOrAreRefusedAtOnce) {
  const Key key{3, 4};
  EXPECT_EQ(Value(*client_, key), std::nullopt);
  std::vector<bool> calls;
  bool cancelled_called = false;
  client_->WatchValue(key, kTimeout, scope_.Bind([&](bool watched) { calls.push_back(watched); }));
  client_->CancelWatch(
      client_->WatchValue(key, kTimeout, scope_.Bind([&](bool) { cancelled_called = true; })));
  EXPECT_TRUE(calls.empty()) << "called back inside the call";
  if (world_->has_doorbells()) {
    EXPECT_TRUE(Put(*world_->MakeClient(), key, MergeRule::kMaxLanes, LanesOf({1})).ok());
  }
  EXPECT_TRUE(world_->Turn([&] { return !calls.empty(); }));
  EXPECT_TRUE(Put(*client_, key, MergeRule::kMaxLanes, LanesOf({2})).ok());
  EXPECT_EQ(calls, std::vector<bool>{world_->has_doorbells()});
  EXPECT_EQ(client_->counters().watch_refusals, world_->has_doorbells() ? 0u : 2u);
  EXPECT_FALSE(cancelled_called);
}

}  // namespace tailcast::cache
