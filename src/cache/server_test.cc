// The server's own calls.
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client_testing.h"
#include "tailcast/cache/ring_pair.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {
namespace {

// What the server answers.
Result<std::string> Call(World& world, size_t server, const std::string& method,
                         const std::string& request) {
  const Scope scope;
  auto client = world.client_rpc->MakeClient(world.processes[server].rpc_address, "");
  std::optional<Result<std::string>> result;
  client->Call(std::string("/") + kDataService + "/" + method, request, Duration::Seconds(1),
               scope.Bind([&](Result<std::string> reply) { result = std::move(reply); }));
  EXPECT_TRUE(world.time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(2)));
  return *result;
}

TEST(CacheServerTest, RefusesMalformedRequestsAndGoesOn) {
  World world(FabricKind::kImmediate);
  const auto call = [&](const char* method, const std::string& request) {
    return Call(world, 0, method, request);
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
  World world(FabricKind::kImmediate);
  constexpr uint64_t kKeys = 100;
  constexpr size_t kBytes = 60'000;
  for (uint64_t n = 0; n < kKeys; ++n) {
    world.WriteAt(0, KeyOf(n), MergeRule::kLongerWins, Final(n, kBytes));
  }
  std::vector<uint64_t> wanted(kKeys);
  std::iota(wanted.begin(), wanted.end(), 0);
  int calls = 0;
  for (; !wanted.empty() && calls < 10; ++calls) {
    v1::CacheGetRequest request;
    for (const uint64_t n : wanted) wire::AppendKey(*request.mutable_keys(), KeyOf(n));
    const auto result = Call(world, 0, "Get", request.SerializeAsString());
    ASSERT_TRUE(result.ok());
    v1::CacheBatch reply;
    ASSERT_TRUE(reply.ParseFromString(*result));
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

// The doors of the fabric check it for reads and channels; who calls says whom he means himself.
TEST(CacheServerTest, RefusesMutateGetAndScanByRpcThatMeanAnotherIncarnation) {
  World world(FabricKind::kImmediate);
  const Server& server = *world.processes[0].server;
  const auto answer = [&](const char* method, ProcessIncarnation incarnation) {
    v1::CacheMutateRequest mutate;
    mutate.set_incarnation(Raw(incarnation));
    wire::Append(*mutate.mutable_batch(), KeyOf(1), MergeRule::kLongerWins, false, Final(1));
    v1::CacheGetRequest get;
    get.set_incarnation(Raw(incarnation));
    wire::AppendKey(*get.mutable_keys(), KeyOf(1));
    v1::CacheScanRequest scan;
    scan.set_incarnation(Raw(incarnation));
    const std::map<std::string, std::string> requests = {{"Mutate", mutate.SerializeAsString()},
                                                         {"Get", get.SerializeAsString()},
                                                         {"Scan", scan.SerializeAsString()}};
    return Call(world, 0, method, requests.at(method)).status();
  };
  const ProcessIncarnation mine = world.processes[0].incarnation;
  const ProcessIncarnation before{Raw(mine) - 1};
  uint64_t refused = 0;
  for (const char* method : {"Mutate", "Get", "Scan"}) {
    EXPECT_TRUE(IsFailedPrecondition(answer(method, before))) << method;
    EXPECT_EQ(server.counters().other_incarnations, ++refused) << method;
    EXPECT_EQ(server.core()->stats().live, 0u) << method;
  }
  for (const char* method : {"Mutate", "Get", "Scan"}) {
    EXPECT_TRUE(answer(method, mine).ok()) << method;
    EXPECT_TRUE(answer(method, ProcessIncarnation::kNone).ok()) << method << ": it is not said";
  }
  EXPECT_EQ(server.counters().other_incarnations, refused);
}

// Answers nobody, and remembers which incarnation the calls of each method meant.
class Listener {
 public:
  Listener(World& world, const std::string& address)
      : rpc_(world.network.MakeServer(*world.client_loop, "host")) {
    Listen<v1::CacheMutateRequest>("Mutate");
    Listen<v1::CacheGetRequest>("Get");
    Listen<v1::CacheScanRequest>("Scan");
    EXPECT_TRUE(rpc_->Start(address).ok());
  }
  std::map<std::string, std::set<ProcessIncarnation>> meant;

 private:
  template <typename Request>
  void Listen(const std::string& method) {
    rpc_->Handle(std::string("/") + kDataService + "/" + method,
                 scope_.Bind([this, method](const std::string& bytes, rpc::Responder respond) {
                   const auto request = rpc::Parse<Request>(bytes);
                   ASSERT_TRUE(request.ok()) << method;
                   meant[method].insert(ProcessIncarnation{request->incarnation()});
                   respond(UnavailableError("it only listens"));
                 }));
  }
  const Scope scope_;
  std::unique_ptr<rpc::Server> rpc_;
};

TEST(CacheServerTest, MutateGetAndScanByRpcCarryTheIncarnationThatIsMeant) {
  World world(FabricKind::kImmediate);
  const Key overflowed = OverflowBucket(world).back();
  Listener listener(world, "host:900");
  world.Kill(2);
  world.StartServer(2);  // and copies from the others
  world.config.replicas[0].rpc_address = "host:900";
  world.Publish();
  world.time.RunFor(Duration::Millis(100));
  EXPECT_TRUE(world.Write(1, 100).ok()) << "two others";
  ChunkRead read = world.Chunk(0, 500);
  read.key = overflowed;
  EXPECT_EQ(world.Read(read).length, 500u) << "of another one";
  world.time.RunFor(Duration::Seconds(1));
  const std::set<ProcessIncarnation> first = {world.processes[0].incarnation};
  EXPECT_EQ(listener.meant, (std::map<std::string, std::set<ProcessIncarnation>>{
                                {"Mutate", first}, {"Get", first}, {"Scan", first}}));
}

TEST(CacheServerTest, RepairFindsContradictionsDropsThemAndCountsThem) {
  World world(FabricKind::kImmediate);
  ASSERT_TRUE(world.Write(1, 100).ok());
  ASSERT_TRUE(world.Write(2, 100).ok());
  world.Kill(2);
  world.StartServer(2);
  world.time.RunFor(Duration::Seconds(1));  // who calls finds out that there is another life
  world.WriteAt(2, KeyOf(1), MergeRule::kLongerWins, Final(2).substr(0, 50));
  const Server& server = *world.processes[2].server;
  EXPECT_EQ(server.counters().repair_mismatches, 0u);
  world.Publish();
  ASSERT_TRUE(world.time.RunUntil([&] { return server.repaired(); }, Duration::Seconds(10)));
  EXPECT_EQ(server.counters().repair_mismatches, 1u);
  EXPECT_EQ(server.state().counters.repair_mismatches, 1u) << "and it is shown";
}

TEST(CacheServerTest, RefusesCallsThatWouldKeepItsLoopTooLong) {
  World world(FabricKind::kImmediate);
  v1::CacheMutateRequest request;
  for (uint64_t n = 0; n < 3000; ++n) {
    wire::Append(*request.mutable_batch(), KeyOf(n), MergeRule::kLongerWins, false, Final(n));
  }
  const auto result = Call(world, 0, "Mutate", request.SerializeAsString());
  EXPECT_TRUE(IsInvalidArgument(result.status()));
  EXPECT_EQ(world.processes[0].server->core()->stats().applied, 0u);
}

TEST(CacheServerTest, RepairKeepsToItsRate) {
  World world(FabricKind::kImmediate, 4);
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
  // Each value comes from up to two peers.
  const double bytes = static_cast<double>(world.processes[2].server->counters().repaired_bytes);
  EXPECT_GT((world.time.now() - start).seconds(),
            bytes / static_cast<double>(RepairOptions().bytes_per_second) * 0.8);
}

// The first of three servers is told to close when it did not run for a second.
class CacheServerStallTest : public testing::Test {
 protected:
  CacheServerStallTest() {
    world.Kill(0);
    world.stall_max = Duration::Seconds(1);
    world.StartServer(0);
    world.Publish();
    world.time.RunFor(Duration::Seconds(1));
  }
  Server& server() { return *world.processes[0].server; }
  void StandStill(Duration time) {
    world.processes[0].loop->Pause();
    world.time.RunFor(time);
    world.processes[0].loop->Resume();
    world.time.RunFor(Duration::Millis(10));
  }
  World world{FabricKind::kImmediate};
};

// It may have been given up while it did not run, so that what it has is not all.
TEST_F(CacheServerStallTest, WhoDidNotRunIsClosedUntilTheRegistryKnowsItAndItKnowsTheRing) {
  StandStill(Duration::Millis(800));
  EXPECT_TRUE(server().state().serving) << "that was short";

  const MonotonicTime before = world.time.now();
  StandStill(Duration::Millis(1500));
  EXPECT_FALSE(server().state().serving);
  EXPECT_EQ(server().counters().stalls, 1u);
  EXPECT_FALSE(world.net.hosts["cache-0"].listening);
  const ConfigurationId mine = world.config.configuration_id;
  // What was sent before it stood still says nothing.
  server().Confirm({.asked = before, .configuration = mine});
  EXPECT_FALSE(server().state().serving);
  // The registry has a newer ring than this server, which it waits for.
  server().Confirm({.asked = world.time.now(), .configuration = Successor(mine)});
  EXPECT_FALSE(server().state().serving);
  EXPECT_TRUE(world.Write(1, 100).ok()) << "two others";
  world.Publish();
  EXPECT_TRUE(server().state().serving);
  EXPECT_TRUE(world.net.hosts["cache-0"].listening);
  server().Confirm({.asked = world.time.now(), .configuration = mine});
  EXPECT_TRUE(server().state().serving);
}

TEST_F(CacheServerStallTest, WhoIsNotConfirmedWithinItsLeaseIsClosedUntilItIs) {
  const ConfigurationId mine = world.config.configuration_id;
  const auto confirm = [&](MonotonicTime asked, ConfigurationId ring, bool by_record) {
    server().Confirm({.asked = asked,
                      .lease = Duration::Seconds(1),
                      .configuration = ring,
                      .by_record = by_record});
  };
  world.time.RunFor(Duration::Seconds(5));
  EXPECT_TRUE(server().state().serving) << "it has no lease";
  confirm(world.time.now() - Duration::Millis(400), mine, false);
  world.time.RunFor(Duration::Millis(590));
  EXPECT_TRUE(server().state().serving);
  confirm(world.time.now(), Successor(mine), true);  // it does not know of that ring
  world.time.RunFor(Duration::Millis(20));
  EXPECT_FALSE(server().state().serving);
  EXPECT_EQ(server().counters().leases_record_differs, 1u);
  EXPECT_FALSE(world.net.hosts["cache-0"].listening);
  EXPECT_TRUE(world.Write(1, 100).ok()) << "two others";
  EXPECT_GT(server().counters().no_lease, 0u) << "it takes no writes either";

  confirm(world.time.now() - Duration::Seconds(1), mine, false);
  EXPECT_FALSE(server().state().serving) << "that came too late";
  confirm(world.time.now(), mine, true);
  EXPECT_TRUE(server().state().serving);
  world.time.RunFor(Duration::Millis(900));
  confirm(world.time.now(), mine, false);
  world.time.RunFor(Duration::Millis(900));
  EXPECT_TRUE(server().state().serving) << "the lease began anew";
}

TEST_F(CacheServerStallTest, WhoIsConfirmedWaitsForTheEpochThatTheRegistryHas) {
  StandStill(Duration::Seconds(2));
  ASSERT_FALSE(server().state().serving);
  server().Confirm({.asked = world.time.now(),
                    .configuration = world.config.configuration_id,
                    .epoch = CacheEpoch{1}});
  EXPECT_FALSE(server().state().serving) << "there is a newer epoch";
  world.config.epoch = CacheEpoch{1};
  world.Publish();
  EXPECT_TRUE(server().state().serving);
}

// The keys that `owner` is given by each server that is there, for a request like this one.
std::map<uint64_t, int> Given(World& world, v1::CacheScanRequest request,
                              const std::string& owner) {
  std::map<uint64_t, int> times;
  request.set_owner(owner);
  request.set_bytes_max(Server::kScanPageBytesMax);
  for (size_t server = 0; server < world.processes.size(); ++server) {
    if (world.processes[server].server == nullptr) continue;
    const auto result = Call(world, server, "Scan", request.SerializeAsString());
    v1::CacheScanReply reply;
    EXPECT_TRUE(result.ok() && reply.ParseFromString(*result)) << result.status();
    EXPECT_EQ(reply.next_cursor(), 0u);
    wire::Reader reader(reply.batch());
    wire::Entry entry;
    while (reader.Next(entry)) {
      for (uint64_t n = 0; n < 100; ++n) times[n] += entry.key == KeyOf(n) ? 1 : 0;
    }
  }
  std::erase_if(times, [](const auto& key) { return key.second == 0; });
  return times;
}

// The ring of 0 to 3 changes to 2 to 5; all have all keys.
class CacheScanTest : public testing::Test {
 protected:
  CacheScanTest() {
    config_.configuration_id = IdOf(3, RingPhase::kBoth);
    for (size_t i = 0; i < config_.replicas.size(); ++i) {
      config_.replicas[i].in_ring = i < 4;
      config_.replicas[i].in_other = i >= 2;
    }
    rings_.Update(config_);
    for (auto& process : world_.processes) process.server->UpdateRing(config_);
    for (int i = 0; i < 4; ++i) {
      for (uint64_t n = 0; n < 100; ++n) {
        world_.WriteAt(i, KeyOf(n), MergeRule::kLongerWins, Final(n));
      }
    }
  }
  World world_{FabricKind::kImmediate, 6};
  RingConfig config_{world_.config};
  RingPair rings_;
};

TEST_F(CacheScanTest, WhoIsFilledIsGivenWhatItGains) {
  v1::CacheScanRequest request;
  request.set_gained_in(Raw(config_.configuration_id));
  const auto given = Given(world_, request, "cache-2");
  for (uint64_t n = 0; n < 100; ++n) {
    const bool gains =
        rings_.other().OwnersOf(KeyOf(n)).Has(2) && !rings_.read().OwnersOf(KeyOf(n)).Has(2);
    EXPECT_EQ(given.contains(n), gains) << n;
  }
  EXPECT_GT(given.size(), 2u);
  EXPECT_LT(given.size(), 60u);
}

TEST_F(CacheScanTest, EachKeyIsGivenOnceIfThatIsAskedFor) {
  v1::CacheScanRequest request;
  request.set_once(true);
  for (const int gone : {-1, 1}) {
    if (gone >= 0) {
      world_.Kill(gone);
      config_.replicas[gone].rpc_address.clear();
      for (auto& process : world_.processes) {
        if (process.server != nullptr) process.server->UpdateRing(config_);
      }
    }
    for (const int owner : {3, 5}) {
      const auto given = Given(world_, request, "cache-" + std::to_string(owner));
      for (uint64_t n = 0; n < 100; ++n) {
        const bool owns = rings_.Owns(KeyOf(n), static_cast<uint16_t>(owner));
        const auto key = given.find(n);
        EXPECT_EQ(key == given.end() ? 0 : key->second, owns ? 1 : 0) << n << " to " << owner;
      }
    }
  }
}

TEST_F(CacheScanTest, WhatIsGainedByAnotherChangeIsNotKnown) {
  v1::CacheScanRequest request;
  request.set_owner("cache-5");
  request.set_gained_in(Raw(IdOf(4, RingPhase::kBoth)));
  const auto result = Call(world_, 0, "Scan", request.SerializeAsString());
  EXPECT_TRUE(IsAborted(result.status())) << result.status();
  EXPECT_EQ(world_.processes[0].server->counters().other_rings, 1u);
}

TEST(CacheServerTest, WhoseNameAnotherProcessHasTakenServesNoMore) {
  World world(FabricKind::kImmediate);
  Server& server = *world.processes[0].server;
  ASSERT_TRUE(server.state().serving);
  RingConfig ring = world.config;
  server.UpdateRing(ring);
  EXPECT_TRUE(server.state().serving);
  ring.replicas[0].incarnation = ProcessIncarnation::kNone;
  server.UpdateRing(ring);
  EXPECT_TRUE(server.state().serving) << "its lease may have run out";
  ring.replicas[0].incarnation = ProcessIncarnation{123456};
  server.UpdateRing(ring);
  EXPECT_FALSE(server.state().serving);
  EXPECT_FALSE(world.net.hosts["cache-0"].listening);
}

TEST(CacheServerTest, WhoBeginsServesThoughTheRingNamesTheLifeBefore) {
  World world(FabricKind::kImmediate);
  RingConfig before = world.config;
  world.Kill(0);
  world.StartServer(0);
  Server& server = *world.processes[0].server;
  server.UpdateRing(before);
  EXPECT_TRUE(server.state().serving);
  world.Publish();
  EXPECT_TRUE(server.state().serving);
}

}  // namespace
}  // namespace tailcast::cache
