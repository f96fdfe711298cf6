#include "tailcast/cache/replica_link.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/server_core.h"
#include "tailcast/cache/test_fabric.h"
#include "tailcast/cache/test_loop.h"

namespace tailcast::cache {
namespace {

using State = ReplicaLink::State;

const bool kQuiet = SetLogLevels("off").ok();

struct NoRpc : rpc::Connector {
  std::unique_ptr<rpc::Client> MakeClient(const std::string&, const std::string&) override {
    return nullptr;
  }
};

// What becomes of a read.
struct Fate {
  std::string text;
};
class RecordedRead : public FabricRead {
 public:
  explicit RecordedRead(Fate* fate) : fate_(fate) {}
  void OnCompleted(Ptr self, fabric::ReadStatus status) override {
    (void)self;
    fate_->text += status == fabric::ReadStatus::kOk ? "ok" : "failed";
  }
  void OnLost() override { fate_->text += "lost"; }
  char bytes[8] = {};

 private:
  Fate* const fate_;
};

struct World {
  explicit World(bool immediate, std::vector<std::string> addresses = {"test:a"})
      : context(loop, {}), connector(&net, &loop) {
    EXPECT_TRUE(kQuiet);
    net.immediate = immediate;
    link = std::make_unique<ReplicaLink>(context, connector, rpc,
                                         Replica{"a", "", std::move(addresses)});
  }
  void StartServer(uint64_t generation) {
    exporter = std::make_unique<TestExporter>(&net, "a");
    const MemoryPlan plan = PlanMemory(8 << 20, 4096);
    const auto index = *exporter->AddRegion(layout::kIndexRegion, plan.index_bytes);
    const auto data = *exporter->AddRegion(layout::kDataRegion, plan.data_bytes);
    server = std::make_unique<ServerCore>(ServerCoreOptions{}, index, data,
                                          layout::Generation{generation});
    EXPECT_TRUE(exporter->Listen().ok());
  }
  // Another way to the memory of the server, which has generation 5.
  void OpenFastWay() {
    fast_exporter = std::make_unique<TestExporter>(&net, "fast");
    const MemoryPlan plan = PlanMemory(8 << 20, 4096);
    const auto index = *fast_exporter->AddRegion(layout::kIndexRegion, plan.index_bytes);
    const auto data = *fast_exporter->AddRegion(layout::kDataRegion, plan.data_bytes);
    fast_server =
        std::make_unique<ServerCore>(ServerCoreOptions{}, index, data, layout::Generation{5});
    EXPECT_TRUE(fast_exporter->Listen().ok());
  }
  void Read(Fate* fate) {
    auto* const read = new RecordedRead(fate);
    fabric::ReadDescriptor descriptor{layout::kIndexRegion, 8, 0, read->bytes, 0};
    link->Submit(FabricRead::Ptr(read), std::span(&descriptor, 1));
  }

  TestLoop loop;
  TestFabric net{1};
  ClientContext context;
  TestConnector connector;
  NoRpc rpc;
  std::unique_ptr<TestExporter> exporter;
  std::unique_ptr<ServerCore> server;
  std::unique_ptr<TestExporter> fast_exporter;
  std::unique_ptr<ServerCore> fast_server;
  std::unique_ptr<ReplicaLink> link;
  const Scope scope;
};

class ReplicaLinkTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Fabric, ReplicaLinkTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Immediate" : "Delayed"; });

TEST_P(ReplicaLinkTest, IsReadyWhenItKnowsTheGeometry) {
  World world(GetParam());
  world.StartServer(5);
  EXPECT_EQ(world.link->state(), State::kIdle);
  world.link->Connect();
  EXPECT_EQ(world.link->state(), State::kConnecting);
  EXPECT_TRUE(world.link->Usable());
  EXPECT_FALSE(world.link->ReadyNow());
  bool told = false;
  world.link->WhenConnected(world.scope.Bind([&] { told = true; }));
  world.loop.RunFor(Duration::Millis(1));
  EXPECT_TRUE(told);
  EXPECT_EQ(world.link->state(), State::kReady);
  EXPECT_EQ(world.link->geometry().generation, layout::Generation{5});
  EXPECT_EQ(world.link->immediate(), GetParam());
}

TEST_P(ReplicaLinkTest, TriesAgainAndMeanwhileNobodyWaitsForIt) {
  World world(GetParam());
  world.link->Connect();
  bool told = false;
  world.link->WhenConnected(world.scope.Bind([&] { told = true; }));
  world.loop.RunFor(Duration::Millis(1));
  EXPECT_TRUE(told);
  EXPECT_EQ(world.link->state(), State::kIdle);
  EXPECT_FALSE(world.link->Usable());
  EXPECT_EQ(world.context.counters.connect_failed, 1u);
  world.StartServer(5);
  world.loop.RunFor(Duration::Millis(25));
  EXPECT_EQ(world.link->state(), State::kReady);
}

TEST_P(ReplicaLinkTest, RetiredItStaysSo) {
  World world(GetParam());
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(1));
  world.link->Retire();
  world.link->OnReadError(fabric::ReadStatus::kStaleRegion, world.loop.Now());
  world.loop.RunFor(Duration::Seconds(5));
  EXPECT_EQ(world.link->state(), State::kRetired);
  EXPECT_FALSE(world.link->Usable());
}

TEST_P(ReplicaLinkTest, WatchesAnswerUnreachableWhenTheServerStopsBeating) {
  World world(GetParam());
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(1));
  std::string outcome;
  world.link->Watch(layout::BucketOffset(0), 0, Duration::Seconds(60),
                    world.scope.Bind([&](fabric::WatchOutcome o) {
                      outcome += o == fabric::WatchOutcome::kUnreachable ? "moves" : "?";
                    }));
  std::vector<uint64_t> doorbells;
  for (int i = 0; i < 30; ++i) {
    world.server->OnTick({world.loop.Now(), world.loop.WallNow()}, doorbells);
    world.loop.RunFor(Duration::Millis(100));
  }
  EXPECT_EQ(outcome, "");
  world.loop.RunFor(Duration::Seconds(2));
  EXPECT_EQ(outcome, "moves");
  EXPECT_EQ(world.link->state(), State::kReady) << "its memory still reads";
}

// The reader's process is stopped while the server dies: its memory, and a heartbeat word that it
// has not seen, are still there when it goes on.
TEST_P(ReplicaLinkTest, AReaderThatSleptFindsOutSoonThatTheServerDiedMeanwhile) {
  World world(GetParam());
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(1));
  std::string outcome;
  world.link->Watch(layout::BucketOffset(0), 0, Duration::Seconds(600),
                    world.scope.Bind([&](fabric::WatchOutcome o) {
                      outcome += o == fabric::WatchOutcome::kUnreachable ? "moves" : "?";
                    }));
  std::vector<uint64_t> doorbells;
  const auto beat = [&] {
    world.server->OnTick({world.loop.Now(), world.loop.WallNow()}, doorbells);
  };
  for (int i = 0; i < 10; ++i) {
    beat();
    world.loop.RunFor(Duration::Millis(100));
  }
  beat();  // the last
  world.loop.Sleep(Duration::Seconds(60));
  world.loop.RunFor(Duration::Millis(740));
  EXPECT_EQ(outcome, "moves") << "sooner than a second after it woke";
}

TEST_P(ReplicaLinkTest, AReaderThatSleptKeepsItsWatchesAtAServerThatLives) {
  World world(GetParam());
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(1));
  std::string outcome;
  std::vector<uint64_t> doorbells;
  world.loop.RunFor(Duration::Seconds(60));  // without a reason to look
  world.link->Watch(layout::BucketOffset(0), 0, Duration::Seconds(600),
                    world.scope.Bind([&](fabric::WatchOutcome) { outcome += "?"; }));
  for (int i = 0; i < 20; ++i) {
    if (i == 10) world.loop.Sleep(Duration::Seconds(60));
    world.server->OnTick({world.loop.Now(), world.loop.WallNow()}, doorbells);
    world.loop.RunFor(Duration::Millis(100));
  }
  EXPECT_EQ(outcome, "");
}

TEST_P(ReplicaLinkTest, AWatchAtAServerThatDiedLongAgoMovesSoon) {
  World world(GetParam());
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Seconds(60));  // its memory is there, but it does not beat
  std::string outcome;
  world.link->Watch(layout::BucketOffset(0), 0, Duration::Seconds(600),
                    world.scope.Bind([&](fabric::WatchOutcome) { outcome += "moves"; }));
  world.loop.RunFor(Duration::Millis(260));
  EXPECT_EQ(outcome, "moves");
}

// ---- which of its addresses ----

TEST_P(ReplicaLinkTest, FallsBackToAnotherAddressAndMovesUpWhenTheBetterOneWorks) {
  World world(GetParam(), {"test:fast", "test:a"});
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Seconds(180));
  ASSERT_EQ(world.link->state(), State::kReady);
  EXPECT_EQ(world.link->way().address, "test:a");
  EXPECT_NE(world.link->way().passed_over, "");
  EXPECT_EQ(world.context.counters.connect_failed, 0u) << "it is connected";
  world.OpenFastWay();
  world.loop.RunFor(world.context.options.better_address_interval);
  EXPECT_EQ(world.link->state(), State::kReady);
  EXPECT_EQ(world.link->way().address, "test:fast");
  EXPECT_EQ(world.link->way().passed_over, "");
  EXPECT_EQ(world.context.counters.connect_moved_up, 1u);
  // It goes away, and comes back.
  world.net.Kill("fast");
  world.link->OnReadError(fabric::ReadStatus::kUnreachable, world.loop.Now());
  world.loop.RunFor(Duration::Millis(50));
  EXPECT_EQ(world.link->state(), State::kReady);
  EXPECT_EQ(world.link->way().address, "test:a");
  world.OpenFastWay();
  world.loop.RunFor(world.context.options.better_address_interval);
  EXPECT_EQ(world.link->way().address, "test:fast");
  EXPECT_EQ(world.context.counters.connect_moved_up, 2u);
}

TEST_P(ReplicaLinkTest, AnAddressThatMisleadsIsLeftForAnotherAndTriedEverLessOften) {
  World world(GetParam(), {"test:fast", "test:a"});
  world.StartServer(5);
  world.fast_exporter = std::make_unique<TestExporter>(&world.net, "fast");  // has no cache
  ASSERT_TRUE(world.fast_exporter->AddRegion(0, 4096).ok());
  ASSERT_TRUE(world.fast_exporter->Listen().ok());
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(50));
  EXPECT_EQ(world.link->state(), State::kReady);
  EXPECT_EQ(world.link->way().address, "test:a");
  EXPECT_EQ(world.context.counters.connect_not_a_cache, 1u);
  world.loop.RunFor(Duration::Seconds(3600));
  EXPECT_EQ(world.link->way().address, "test:a");
  const uint64_t tries = world.context.counters.connect_not_a_cache;
  EXPECT_GT(tries, 3u);
  EXPECT_LT(tries, 12u);
}

TEST_P(ReplicaLinkTest, AWorseAddressThatMisledIsNoneThatWasPassedOver) {
  World world(GetParam(), {"test:a", "test:slow"});
  TestExporter stranger(&world.net, "slow");  // has no cache
  ASSERT_TRUE(stranger.AddRegion(0, 4096).ok());
  ASSERT_TRUE(stranger.Listen().ok());
  world.link->Connect();
  world.loop.RunFor(Duration::Micros(150));
  ASSERT_EQ(world.context.counters.connect_not_a_cache, 1u);
  world.StartServer(5);
  world.loop.RunFor(Duration::Millis(50));
  EXPECT_EQ(world.link->state(), State::kReady);
  EXPECT_EQ(world.link->way().address, "test:a");
  EXPECT_EQ(world.link->way().passed_over, "");
}

TEST(ReplicaLinkReadTest, ReadsUnderWayAreLostOnceWhenItMovesUp) {
  World world(false, {"test:fast", "test:a"});
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(1));
  ASSERT_EQ(world.link->way().address, "test:a");
  world.OpenFastWay();
  world.loop.RunFor(world.context.options.better_address_interval - Duration::Millis(50));
  world.net.hosts["a"].delay = Duration::Millis(200);
  Fate old, fresh;
  world.Read(&old);
  world.loop.RunFor(Duration::Millis(60));
  ASSERT_EQ(world.link->way().address, "test:fast");
  EXPECT_EQ(old.text, "lost");
  world.Read(&fresh);
  world.loop.RunFor(Duration::Seconds(1));
  EXPECT_EQ(old.text, "lost");
  EXPECT_EQ(fresh.text, "ok");
}

TEST(ReplicaLinkReadTest, ReadsOfALostConnectionAreLostOnceAndThoseOfTheNextComplete) {
  World world(false);
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(1));
  world.net.hosts["a"].delay = Duration::Millis(50);
  Fate old, fresh;
  world.Read(&old);
  world.link->OnReadError(fabric::ReadStatus::kStaleRegion, world.loop.Now());
  EXPECT_EQ(old.text, "lost");
  EXPECT_EQ(world.link->state(), State::kIdle);
  world.net.hosts["a"].delay = Duration::Millis(1);
  world.loop.RunFor(Duration::Millis(40));
  ASSERT_EQ(world.link->state(), State::kReady);
  world.Read(&fresh);
  world.loop.RunFor(Duration::Seconds(1));
  EXPECT_EQ(fresh.text, "ok");
  EXPECT_EQ(old.text, "lost");
}

TEST(ReplicaLinkReadTest, ReadsGoOutTogetherAtTheEndOfTheTurn) {
  World world(false);
  world.StartServer(5);
  world.link->Connect();
  world.loop.RunFor(Duration::Millis(1));
  const uint64_t before = world.net.hosts["a"].reads;
  Fate fate;
  world.Read(&fate);
  world.Read(&fate);
  EXPECT_EQ(world.net.hosts["a"].reads, before);
  world.loop.RunFor(Duration::Millis(1));
  EXPECT_EQ(world.net.hosts["a"].reads, before + 2);
  EXPECT_EQ(fate.text, "okok");
}

}  // namespace
}  // namespace tailcast::cache
