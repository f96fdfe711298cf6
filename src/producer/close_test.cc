// Closing over a cache of real servers in virtual time: what each replica has when Close is done,
// and how long one that does not answer may hold it up.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/cache/quorum_client.h"
#include "tailcast/cache/server.h"
#include "tailcast/fabric/fake_fabric.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::producer {
namespace {

const bool kQuiet = SetLogLevels("off").ok();

class CloseTest : public ::testing::Test {
 protected:
  // A cache process on a host of its own.
  struct Replica {
    std::unique_ptr<sim::SimLoop> loop;
    std::unique_ptr<rpc::Connector> connector;
    std::unique_ptr<rpc::Server> rpc;
    std::unique_ptr<fabric::Exporter> data_exporter, metadata_exporter;
    std::unique_ptr<cache::Server> data, metadata;
  };

  CloseTest() {
    EXPECT_TRUE(kQuiet);
    cache::RingConfig data_ring, metadata_ring;
    data_ring.configuration_id = metadata_ring.configuration_id = cache::ConfigurationId{1};
    for (int i = 0; i < 3; ++i) {
      const std::string name = "cache-" + std::to_string(i);
      Replica& r = replicas[i];
      r.loop = time.MakeLoop(name);
      r.connector = network.MakeConnector(*r.loop, name);
      r.rpc = network.MakeServer(*r.loop, name);
      r.data_exporter = fabric.MakeExporter(name + ".data", {.loop = r.loop.get()});
      r.metadata_exporter = fabric.MakeExporter(name + ".metadata", {.loop = r.loop.get()});
      cache::ServerOptions options;
      options.name = name;
      options.incarnation = ProcessIncarnation{1};
      options.memory_bytes = 1 << 20;
      options.service = cache::kDataService;
      r.data = std::make_unique<cache::Server>(r.loop.get(), r.data_exporter.get(), r.rpc.get(),
                                               r.connector.get(), options);
      options.service = cache::kMetadataService;
      r.metadata = std::make_unique<cache::Server>(r.loop.get(), r.metadata_exporter.get(),
                                                   r.rpc.get(), r.connector.get(), options);
      const auto data_addresses = *r.data->Start();
      const auto metadata_addresses = *r.metadata->Start();
      const std::string address = *r.rpc->Start(name + ":0");
      data_ring.replicas.push_back({name, address, data_addresses, ProcessIncarnation{1}});
      metadata_ring.replicas.push_back({name, address, metadata_addresses, ProcessIncarnation{1}});
    }
    rpc = network.MakeConnector(*loop, "producer");
    connector = fabric.MakeConnector("producer", loop.get());
    cache::QuorumClientOptions options;
    options.seed = 1;
    options.service = cache::kDataService;
    data_client = std::make_unique<cache::QuorumClient>(loop.get(), connector.get(), rpc.get(),
                                                        options, data_ring);
    options.service = cache::kMetadataService;
    metadata_client = std::make_unique<cache::QuorumClient>(loop.get(), connector.get(), rpc.get(),
                                                            options, metadata_ring);
    agent = std::make_unique<ProducerAgent>(
        stream::CellPorts{loop.get(), &store, data_client.get(), metadata_client.get()}, shard,
        AgentOptions(),
        ProducerAgent::Hooks{
            .notify = scope.Bind([this](const FileEvent& event, Callback<void(Status)> told) {
              const bool seal = event.seal.has_value();
              loop->Post(scope.Bind([this, seal, told = std::move(told)]() mutable {
                if (!scheduler_answers) return told(UnavailableError("away"));
                seals_told += seal;
                told(OkStatus());
              }));
            })},
        1);
    std::optional<Status> opened;
    agent->Open(scope.Bind([&](Status status) { opened = std::move(status); }));
    EXPECT_TRUE(time.RunUntil([&] { return opened.has_value(); }, Duration::Seconds(30)));
    EXPECT_TRUE(opened->ok()) << *opened;
    time.RunFor(Duration::Millis(500));
  }
  ~CloseTest() override {
    for (Replica& r : replicas) KillReplica(r);
  }

  void KillReplica(Replica& r) {
    if (r.loop == nullptr) return;
    network.Disconnect(*r.loop);
    r.loop->Kill();
    r.data.reset();
    r.metadata.reset();
    r.data_exporter.reset();
    r.metadata_exporter.reset();
    r.rpc.reset();
  }
  // Publishes "hello" and closes; returns how long that took.
  Duration PublishAndClose(Duration shadow_wait = Duration::Seconds(2)) {
    const MonotonicTime begin = time.now();
    EXPECT_TRUE(agent->Publish("hello", {}).ok());
    std::optional<Status> closed;
    agent->Close(shadow_wait, scope.Bind([&](Status status) { closed = std::move(status); }));
    EXPECT_TRUE(time.RunUntil([&] { return closed.has_value(); }, Duration::Seconds(30)));
    EXPECT_TRUE(closed.has_value() && closed->ok());
    return time.now() - begin;
  }
  bool HasSeal(const Replica& r) const {
    const auto value = r.metadata->core()->Get({time.now(), WallTime()}, keys.MetadataGroup(1));
    return value && stream::DecodePairMetadata(1, value->bytes).seal[0] == 5;
  }
  bool HasChunk(const Replica& r) const {
    const auto value =
        r.data->core()->Get({time.now(), WallTime()}, keys.Chunk(1, stream::Part::kData, 4096, 0));
    return value && value->bytes == "hello";
  }

  sim::VirtualTime time{1};
  sim::Network network{time, Rng(1)};
  std::unique_ptr<sim::SimLoop> wire = time.MakeLoop("wire"), disk_loop = time.MakeLoop("disk"),
                                loop = time.MakeLoop("producer");
  fabric::FakeFabricNetwork fabric{wire.get(), 1};
  storage::FakeDisk disk{disk_loop.get(), 1, {}};
  storage::FakeStore store{&disk, loop.get()};
  const stream::ShardId shard{{"s", stream::StreamIncarnation{3}}, 0};
  const stream::KeyMaker keys{shard};
  Replica replicas[3];
  std::unique_ptr<rpc::Connector> rpc;
  std::unique_ptr<fabric::Connector> connector;
  std::unique_ptr<cache::QuorumClient> data_client, metadata_client;
  bool scheduler_answers = true;
  int seals_told = 0;
  std::unique_ptr<ProducerAgent> agent;
  const Scope scope;
};

// Else the next hop waits for the seal until the scheduler lists the folder, half a minute.
TEST_F(CloseTest, TheSchedulerHasHeardOfTheSealAlsoOneThatComesBackMeanwhile) {
  scheduler_answers = false;
  Timer back(*loop);
  back.After(Duration::Millis(600), scope.Bind([this] { scheduler_answers = true; }));
  EXPECT_LT(PublishAndClose().millis(), 1500);
  EXPECT_EQ(seals_told, 1);
}

TEST_F(CloseTest, ASchedulerThatIsGoneIsWaitedForAsLongAsTheCallerSays) {
  scheduler_answers = false;
  EXPECT_LE(PublishAndClose(Duration::Millis(400)).millis(), 400);
  EXPECT_EQ(seals_told, 0);
}

TEST_F(CloseTest, EveryReplicaHasTheEndAlsoTheOneThatTwoOthersDidNotWaitFor) {
  network.LinkBetween("producer", "cache-2").delay = Duration::Millis(40);
  PublishAndClose();
  for (const Replica& r : replicas) {
    EXPECT_TRUE(HasChunk(r)) << r.loop->name();
    EXPECT_TRUE(HasSeal(r)) << r.loop->name() << ": who watches it would not be woken";
  }
}

TEST_F(CloseTest, AStoppedReplicaHoldsItUpForOneCallsTimeAtMost) {
  replicas[1].loop->Pause();
  const Duration took = PublishAndClose();
  EXPECT_LT(took.millis(), 1100);
  EXPECT_GT(took.millis(), 900) << "it was waited for";
  EXPECT_TRUE(HasSeal(replicas[0]) && HasSeal(replicas[2]));
}

TEST_F(CloseTest, TheCallersLimitHolds) {
  replicas[1].loop->Pause();
  EXPECT_LE(PublishAndClose(Duration::Millis(200)).millis(), 200);
  EXPECT_TRUE(HasSeal(replicas[0]) && HasSeal(replicas[2]));
}

TEST_F(CloseTest, WhoClosesAgainWaitsAsLongAsTheLaterCallSays) {
  replicas[1].loop->Pause();
  const MonotonicTime begin = time.now();
  EXPECT_TRUE(agent->Publish("hello", {}).ok());
  agent->Close(Duration::Seconds(2), scope.Bind([](const Status&) { ADD_FAILURE(); }));
  time.RunFor(Duration::Millis(300));
  EXPECT_TRUE(HasSeal(replicas[0]));
  std::optional<Status> closed;
  agent->Close(Duration(), scope.Bind([&](Status status) { closed = std::move(status); }));
  EXPECT_TRUE(time.RunUntil([&] { return closed.has_value(); }, Duration::Seconds(30)));
  EXPECT_TRUE(closed.has_value() && closed->ok());
  EXPECT_LT((time.now() - begin).millis(), 350);
}

TEST_F(CloseTest, ADeadReplicaIsNotWaitedFor) {
  KillReplica(replicas[1]);
  replicas[1].loop.reset();
  EXPECT_LT(PublishAndClose().millis(), 100);
  EXPECT_TRUE(HasSeal(replicas[0]) && HasSeal(replicas[2]));
}

}  // namespace
}  // namespace tailcast::producer
