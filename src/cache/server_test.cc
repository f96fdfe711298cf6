// The server's own calls.
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client_testing.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {
namespace {

TEST(CacheServerTest, RefusesMalformedRequestsAndGoesOn) {
  const Scope scope;
  World world(true);
  auto client = world.client_rpc->MakeClient(world.processes[0].rpc_address, "");
  const auto call = [&](const char* method, const std::string& request) {
    std::optional<Result<std::string>> result;
    client->Call(std::string("/") + kDataService + "/" + method, request, Duration::Seconds(1),
                 scope.Bind([&](Result<std::string> reply) { result = std::move(reply); }));
    EXPECT_TRUE(world.time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(2)));
    return *result;
  };
  v1::CacheMutateRequest bad;
  wire::Append(*bad.mutable_batch(), KeyOf(1), MergeRule::kLongerWins, false, "abc");
  bad.mutable_batch()->set_payload("ab");
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", bad.SerializeAsString()).status()));
  bad.mutable_batch()->set_payload("abc");
  bad.mutable_batch()->set_rules("\x07");
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", bad.SerializeAsString()).status()));
  bad.mutable_batch()->set_rules(std::string(2, '\0'));
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", bad.SerializeAsString()).status()));
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", "\xff\xff garbage").status()));
  v1::CacheGetRequest get;
  get.set_keys("short");
  EXPECT_TRUE(IsInvalidArgument(call("Get", get.SerializeAsString()).status()));
  Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    std::string noise(rng.Below(60), '\0');
    for (char& c : noise) c = static_cast<char>(rng.Next());
    for (const char* method : {"Mutate", "Get", "Scan", "Stat"}) call(method, noise).ok();
  }
  v1::CacheScanRequest scan;
  scan.set_cursor(UINT64_MAX);
  EXPECT_TRUE(call("Scan", scan.SerializeAsString()).ok());
  EXPECT_TRUE(world.Write(1, 100).ok());
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
  const auto stat = call("Stat", "");
  ASSERT_TRUE(stat.ok());
  v1::CacheStatReply reply;
  ASSERT_TRUE(reply.ParseFromString(*stat));
  EXPECT_EQ(reply.name(), "cache-0");
  EXPECT_EQ(reply.values().at("live"), 1u);
  EXPECT_GT(reply.values().at("bad_requests"), 4u);
}

// Values of 60 KB: hundred of them are more than an answer has room for.
TEST(CacheServerTest, AnswersToGetAreBoundedInBytesAndSayWhatWasLeftOut) {
  const Scope scope;
  World world(true);
  constexpr uint64_t kKeys = 100;
  constexpr size_t kBytes = 60'000;
  for (uint64_t n = 0; n < kKeys; ++n) {
    world.WriteAt(0, KeyOf(n), MergeRule::kLongerWins, Final(n, kBytes));
  }
  auto client = world.client_rpc->MakeClient(world.processes[0].rpc_address, "");
  std::vector<uint64_t> wanted(kKeys);
  std::iota(wanted.begin(), wanted.end(), 0);
  int calls = 0;
  for (; !wanted.empty() && calls < 10; ++calls) {
    v1::CacheGetRequest request;
    for (const uint64_t n : wanted) wire::AppendKey(*request.mutable_keys(), KeyOf(n));
    std::optional<Result<std::string>> result;
    client->Call(std::string("/") + kDataService + "/Get", request.SerializeAsString(),
                 Duration::Seconds(1),
                 scope.Bind([&](Result<std::string> reply) { result = std::move(reply); }));
    ASSERT_TRUE(world.time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(2)));
    ASSERT_TRUE(result->ok());
    v1::CacheBatch reply;
    ASSERT_TRUE(reply.ParseFromString(**result));
    ASSERT_TRUE(wire::Reader::Check(reply).ok());
    EXPECT_LE(reply.payload().size(), Server::kGetBytesMax + layout::kValueBytesMax);
    wire::Reader reader(reply);
    wire::Entry entry;
    std::vector<uint64_t> left_out;
    for (const uint64_t n : wanted) {
      ASSERT_TRUE(reader.Next(entry));
      EXPECT_EQ(entry.key, KeyOf(n)) << "in the order of the request";
      if (entry.not_looked_at) {
        left_out.push_back(n);
        continue;
      }
      EXPECT_EQ(entry.value, Final(n, kBytes));
    }
    wanted = std::move(left_out);
  }
  EXPECT_EQ(calls, 2);
}

TEST(CacheServerTest, RefusesCallsThatWouldKeepItsLoopTooLong) {
  const Scope scope;
  World world(true);
  auto client = world.client_rpc->MakeClient(world.processes[0].rpc_address, "");
  v1::CacheMutateRequest request;
  for (uint64_t n = 0; n < 3000; ++n) {
    wire::Append(*request.mutable_batch(), KeyOf(n), MergeRule::kLongerWins, false, Final(n));
  }
  std::optional<Result<std::string>> result;
  client->Call(std::string("/") + kDataService + "/Mutate", request.SerializeAsString(),
               Duration::Seconds(1),
               scope.Bind([&](Result<std::string> reply) { result = std::move(reply); }));
  ASSERT_TRUE(world.time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(2)));
  EXPECT_TRUE(IsInvalidArgument(result->status()));
  EXPECT_EQ(world.processes[0].server->core()->stats().applied, 0u);
}

TEST(CacheServerTest, RepairKeepsToItsRate) {
  World world(true, 4);
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < 1000; ++n) {
    mutations.push_back({KeyOf(n), MergeRule::kLongerWins, false, Final(n)});
  }
  ASSERT_TRUE(world.Mutate(mutations, Duration::Seconds(5)).ok());
  world.Kill(2);
  world.StartServer(2);
  const MonotonicTime start = world.time.now();
  world.Publish();
  ASSERT_TRUE(world.time.RunUntil(
      [&] {
        const ServerCounters& counters = world.processes[2].server->counters();
        return counters.repaired_values > 0 && world.processes[2].server->repaired();
      },
      Duration::Seconds(10)));
  // Each value comes from up to two peers, 200 MB/s by default.
  const double bytes = static_cast<double>(world.processes[2].server->counters().repaired_bytes);
  EXPECT_GT((world.time.now() - start).seconds(), bytes / 200e6 * 0.8);
}

}  // namespace
}  // namespace tailcast::cache
