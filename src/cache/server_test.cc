// The server's own calls.
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
