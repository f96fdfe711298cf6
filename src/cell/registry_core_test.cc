#include "tailcast/cell/registry_core.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::cell {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

RegistryOptions Options() {
  return {.cell = "us",
          .store = "posix:/x",
          .cache_replicas = {"cache-1", "cache-0"},
          .known_cells = {"us", "eu", "asia"},
          .lease = Duration::Seconds(1),
          .worker_lease = Duration::Seconds(1)};
}
v1::RegistrySnapshot Durable(uint64_t incarnation) {
  v1::RegistrySnapshot s;
  s.set_scheduler_incarnation(incarnation);
  return s;
}
v1::ProcessInfo Process(const std::string& name, v1::Role role, uint64_t incarnation) {
  v1::ProcessInfo p;
  p.set_name(name);
  p.set_role(role);
  p.set_incarnation(incarnation);
  p.set_rpc_address("host:" + std::to_string(incarnation));
  p.add_data_fabric("tcp:d" + std::to_string(incarnation));
  p.add_metadata_fabric("tcp:m" + std::to_string(incarnation));
  return p;
}
v1::StreamConfig Stream(const std::string& name) {
  v1::StreamConfig s;
  s.set_name(name);
  s.set_source("us");
  s.add_destinations("eu");
  auto* edge = s.add_tree();
  edge->set_from("us");
  edge->set_to("eu");
  return s;
}

class RegistryCoreTest : public ::testing::Test {
 protected:
  RegistryCore core_{Options(), Durable(3), 1};
  // The scheduler runs, and asks when it was told to.
  std::vector<std::string> RunTo(MonotonicTime end) {
    std::vector<std::string> gone;
    for (MonotonicTime at = core_.NextExpiry(); at <= end; at = core_.NextExpiry()) {
      for (std::string& name : core_.Expire(at)) gone.push_back(std::move(name));
    }
    return gone;
  }
  void Persist() {
    ASSERT_TRUE(core_.NeedsWrite());
    core_.OnWritten(core_.TakeSnapshot());
  }
};

TEST_F(RegistryCoreTest, TheRingHoldsDeclaredReplicasWhetherTheyAreThereOrNot) {
  EXPECT_EQ(core_.view().data_ring().replicas_size(), 0) << "it is not durable yet";
  Persist();
  ASSERT_EQ(core_.view().data_ring().replicas_size(), 2);
  EXPECT_EQ(core_.view().data_ring().replicas(0).name(), "cache-0") << "sorted by name";
  EXPECT_EQ(core_.view().data_ring().replicas(0).rpc_address(), "");
  const uint64_t id = core_.view().data_ring().configuration_id();
  EXPECT_EQ(id, Raw(cache::IdOf(1, cache::RingPhase::kSettled)));
  ASSERT_TRUE(core_.Register(At(0), Process("cache-0", v1::ROLE_CACHE, 9)).ok());
  EXPECT_EQ(core_.view().data_ring().replicas(0).fabric_addresses(0), "tcp:d9");
  EXPECT_EQ(core_.view().metadata_ring().replicas(0).fabric_addresses(0), "tcp:m9");
  EXPECT_THAT(RunTo(At(999)), IsEmpty());
  EXPECT_THAT(RunTo(At(1000)), ElementsAre("cache-0"));
  EXPECT_EQ(core_.view().data_ring().replicas(0).rpc_address(), "");
  EXPECT_EQ(core_.view().data_ring().replicas_size(), 2);
  EXPECT_EQ(core_.view().data_ring().configuration_id(), id) << "only configuration changes it";
}

TEST_F(RegistryCoreTest, AChangedDeclarationBeginsAChangeOfTheRing) {
  Persist();
  const v1::RegistrySnapshot snapshot = core_.TakeSnapshot().state;
  RegistryCore same(Options(), snapshot, 1);
  EXPECT_FALSE(same.NeedsWrite());
  RegistryOptions others = Options();
  others.cache_replicas = {"cache-1", "cache-2"};
  RegistryCore changed(others, snapshot, 1);
  EXPECT_FALSE(changed.NeedsWrite()) << "cache-2 is not there";
  ASSERT_TRUE(changed.Register(At(0), Process("cache-0", v1::ROLE_CACHE, 8)).ok()) << "it is read";
  ASSERT_TRUE(changed.Register(At(0), Process("cache-2", v1::ROLE_CACHE, 9)).ok());
  EXPECT_TRUE(changed.NeedsWrite());
  EXPECT_EQ(changed.view().data_ring().configuration_id(), 4u) << "it is not durable yet";
  changed.OnWritten(changed.TakeSnapshot());
  const v1::Ring& ring = changed.view().metadata_ring();
  EXPECT_EQ(ring.configuration_id(), 5u);
  EXPECT_EQ(ring.epoch(), 1u);
  ASSERT_EQ(ring.replicas_size(), 3);
  EXPECT_EQ(ring.replicas(0).name(), "cache-0");
  EXPECT_FALSE(ring.replicas(0).not_in_ring());
  EXPECT_FALSE(ring.replicas(0).in_other());
  EXPECT_TRUE(ring.replicas(1).in_other());
  EXPECT_FALSE(ring.replicas(1).votes_in_other()) << "it is not there";
  EXPECT_EQ(ring.replicas(2).name(), "cache-2");
  EXPECT_TRUE(ring.replicas(2).not_in_ring());
  EXPECT_FALSE(ring.replicas(2).whole());
  EXPECT_TRUE(ring.replicas(2).votes_in_other()) << "nobody reads it before it is filled";
}

TEST_F(RegistryCoreTest, TheRingIsChangedAndThatIsTakenBackByACall) {
  Persist();
  v1::ChangeRingRequest request;
  request.set_cancel(true);
  EXPECT_TRUE(IsFailedPrecondition(core_.ChangeRing(request)));
  request.add_replicas("cache-0");
  EXPECT_TRUE(IsInvalidArgument(core_.ChangeRing(request)));
  request.set_cancel(false);
  ASSERT_TRUE(core_.ChangeRing(request).ok());
  EXPECT_EQ(core_.view().data_ring().configuration_id(), 4u);
  Persist();
  EXPECT_EQ(core_.view().data_ring().configuration_id(), 5u);
  request.clear_replicas();
  request.add_replicas("cache-5");
  EXPECT_THAT(core_.ChangeRing(request).message(), HasSubstr("start it before"));
  request.clear_replicas();
  request.set_cancel(true);
  ASSERT_TRUE(core_.ChangeRing(request).ok());
  Persist();
  EXPECT_EQ(core_.view().data_ring().configuration_id(), 8u);
  EXPECT_EQ(core_.view().data_ring().replicas_size(), 2);
}

TEST_F(RegistryCoreTest, AReplicaIsShownAsWholeOnceThatIsDurable) {
  Persist();
  auto process = Process("cache-0", v1::ROLE_CACHE, 9);
  ASSERT_TRUE(core_.Register(At(0), process).ok());
  EXPECT_TRUE(core_.NeedsWrite()) << "that it has the name";
  EXPECT_FALSE(core_.view().metadata_ring().replicas(0).whole());
  EXPECT_TRUE(core_.view().metadata_ring().replicas(0).excused());
  EXPECT_FALSE(core_.view().metadata_ring().replicas(0).rests()) << "its first life";
  EXPECT_TRUE(core_.view().data_ring().replicas(0).whole()) << "chunks need no whole replica";
  process.set_copied_epoch(core_.view().metadata_ring().epoch());
  ASSERT_TRUE(core_.Register(At(100), process).ok());
  EXPECT_FALSE(core_.view().metadata_ring().replicas(0).whole());
  Persist();
  EXPECT_TRUE(core_.view().metadata_ring().replicas(0).whole());
  EXPECT_FALSE(core_.view().metadata_ring().replicas(0).excused());

  // It begins anew.
  process.set_incarnation(10);
  process.clear_copied_epoch();
  ASSERT_TRUE(core_.Register(At(200), process).ok());
  EXPECT_FALSE(core_.view().metadata_ring().replicas(0).whole());
  EXPECT_TRUE(core_.view().metadata_ring().replicas(0).rests());
}

TEST_F(RegistryCoreTest, VersionsOfDifferentSchedulersAreNeverEqual) {
  EXPECT_EQ(core_.view().version() >> 32, 3u);
  const uint64_t before = core_.view().version();
  ASSERT_TRUE(core_.Register(At(0), Process("reader-0", v1::ROLE_READER, 5)).ok());
  EXPECT_GT(core_.view().version(), before);
  const uint64_t after = core_.view().version();
  ASSERT_TRUE(core_.Register(At(300), Process("reader-0", v1::ROLE_READER, 5)).ok());
  EXPECT_EQ(core_.view().version(), after) << "a renewal is no change";
  EXPECT_THAT(RunTo(At(1299)), IsEmpty());
  EXPECT_EQ(core_.NextExpiry(), At(1300));
}

TEST_F(RegistryCoreTest, AReplacedProcessThatWakesUpIsTold) {
  ASSERT_TRUE(core_.Register(At(0), Process("writer-0", v1::ROLE_WRITER, 5)).ok());
  ASSERT_TRUE(core_.Register(At(10), Process("writer-0", v1::ROLE_WRITER, 6)).ok());
  EXPECT_TRUE(IsFailedPrecondition(
      core_.Register(At(20), Process("writer-0", v1::ROLE_WRITER, 5)).status()));
  RunTo(At(5000));
  EXPECT_TRUE(IsFailedPrecondition(
      core_.Register(At(5001), Process("writer-0", v1::ROLE_WRITER, 5)).status()));
  EXPECT_TRUE(core_.Register(At(5002), Process("writer-0", v1::ROLE_WRITER, 6)).ok())
      << "it was only slow";
}

// Its timers may run before what came meanwhile: nobody could renew a lease.
TEST_F(RegistryCoreTest, NobodyIsDroppedForTheSchedulersOwnStall) {
  Persist();
  ASSERT_TRUE(core_.Register(At(0), Process("cache-0", v1::ROLE_CACHE, 5)).ok());
  ASSERT_TRUE(core_.Register(At(100), Process("reader-0", v1::ROLE_READER, 6)).ok());
  ASSERT_TRUE(core_.Register(At(200), Process("writer-0", v1::ROLE_WRITER, 7)).ok());
  EXPECT_THAT(core_.Expire(At(5000)), IsEmpty()) << "it stood still from 200 on";
  EXPECT_EQ(core_.stalls(), 1);
  ASSERT_TRUE(core_.Register(At(5010), Process("reader-0", v1::ROLE_READER, 6)).ok());
  EXPECT_NE(core_.view().data_ring().replicas(0).rpc_address(), "");
  EXPECT_THAT(RunTo(At(5800)), ElementsAre("cache-0", "writer-0"))
      << "the rest of their leases has passed since";
  EXPECT_THAT(RunTo(At(6009)), IsEmpty());
  EXPECT_THAT(RunTo(At(6010)), ElementsAre("reader-0"));
}

TEST_F(RegistryCoreTest, AProcessOfAnotherCellIsRefused) {
  auto p = Process("cache-0", v1::ROLE_CACHE, 1);
  p.set_cell("eu");
  const Status refused = core_.Register(At(0), p).status();
  EXPECT_TRUE(IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("process of cell 'eu'"));
  EXPECT_EQ(core_.view().processes_size(), 0);
  p.set_cell("us");
  EXPECT_TRUE(core_.Register(At(0), p).ok());
}

TEST_F(RegistryCoreTest, BadProcessesAreRefusedByField) {
  auto p = Process("Reader 1", v1::ROLE_READER, 1);
  EXPECT_THAT(core_.Register(At(0), p).status().message(), HasSubstr("process.name"));
  p = Process("reader", static_cast<v1::Role>(9), 1);
  EXPECT_THAT(core_.Register(At(0), p).status().message(), HasSubstr("process.role"));
  p = Process("reader", v1::ROLE_READER, 0);
  EXPECT_THAT(core_.Register(At(0), p).status().message(), HasSubstr("process.incarnation"));
  p = Process("reader", v1::ROLE_READER, 1);
  p.set_rpc_address(std::string(1000, 'x'));
  EXPECT_THAT(core_.Register(At(0), p).status().message(), HasSubstr("rpc_address"));
  p = Process("cache-7", v1::ROLE_CACHE, 1);
  EXPECT_THAT(core_.Register(At(0), p).status().message(), HasSubstr("knows no cache replica"));
}

TEST_F(RegistryCoreTest, AStreamIsShownOnceItIsDurable) {
  auto made = core_.catalogue().BeginCreate(Stream("flights"), {}, WallTime::FromMicros(77));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_NE(made->incarnation(), 0u);
  EXPECT_EQ(made->chunk_size(), 4096);
  EXPECT_EQ(made->shards(), 1);
  EXPECT_EQ(made->tree_version(), 1u);
  Persist();
  EXPECT_EQ(core_.view().streams_size(), 0) << "only its name is reserved";
  core_.catalogue().FinishCreate(stream::IdOf(*made));
  EXPECT_EQ(core_.view().streams_size(), 0);
  Persist();
  EXPECT_EQ(core_.view().streams_size(), 1);
}

TEST_F(RegistryCoreTest, HowFarACacheHasComeIsShownAndWakesNobody) {
  auto cache = Process("cache-0", v1::ROLE_CACHE, 1);
  ASSERT_TRUE(core_.Register(At(0), cache).ok());
  Persist();
  const uint64_t version = core_.view().version();
  cache.set_sealed_configuration(4);
  cache.set_data_copied(true);
  ASSERT_TRUE(core_.Register(At(10), cache).ok());
  EXPECT_EQ(core_.view().version(), version);
  EXPECT_TRUE(core_.view().processes(0).data_copied());
  // That it is whole now, everybody hears.
  cache.set_copied_epoch(core_.view().metadata_ring().epoch());
  ASSERT_TRUE(core_.Register(At(20), cache).ok());
  Persist();
  EXPECT_GT(core_.view().version(), version);
  EXPECT_TRUE(core_.view().metadata_ring().replicas(0).whole());
}

TEST(RegistryCore, AChangeOfTheRingWakesEverybodyForItsPhasesAlone) {
  RegistryOptions options = Options();
  options.cache_spares = {"cache-2", "cache-3"};
  RegistryCore core(options, Durable(3), 1);
  const auto persist = [&core] {
    if (core.NeedsWrite()) core.OnWritten(core.TakeSnapshot());
  };
  const auto report = [&](const v1::ProcessInfo& process) {
    ASSERT_TRUE(core.Register(At(10), process).ok());
    persist();
  };
  persist();
  std::vector<v1::ProcessInfo> caches;
  v1::ChangeRingRequest request;
  for (uint64_t n = 0; n < 4; ++n) {
    caches.push_back(Process("cache-" + std::to_string(n), v1::ROLE_CACHE, n + 1));
    request.add_replicas(caches[n].name());
    if (n < 2) caches[n].set_copied_epoch(core.view().metadata_ring().epoch());
    report(caches[n]);
  }
  ASSERT_TRUE(core.ChangeRing(request).ok());
  persist();
  for (const v1::ProcessInfo& process : caches) report(process);
  ASSERT_EQ(core.view().metadata_ring().configuration_id(), 5u);
  const uint64_t version = core.view().version();
  for (v1::ProcessInfo& process : caches) {
    EXPECT_EQ(core.view().version(), version) << process.name();
    process.set_data_filled_configuration(5);
    report(process);
    process.set_filled_configuration(5);
    report(process);
  }
  EXPECT_EQ(core.view().metadata_ring().configuration_id(), 6u) << "all of them are filled";
  EXPECT_EQ(core.view().version(), version + 1);
}

// Stopped for longer than its lease, it wakes when its successor is whole.
TEST_F(RegistryCoreTest, ACacheThatWasAwayIsRefusedWhenAnotherOneHasItsName) {
  ASSERT_TRUE(core_.Register(At(0), Process("cache-0", v1::ROLE_CACHE, 1)).ok());
  Persist();
  ASSERT_EQ(RunTo(At(10000)), std::vector<std::string>{"cache-0"});
  ASSERT_TRUE(core_.Register(At(10000), Process("cache-0", v1::ROLE_CACHE, 2)).ok());
  const auto shown = [&] { return core_.view().metadata_ring().replicas(0); };
  EXPECT_EQ(shown().incarnation(), 0u) << "that it has the name is not durable";
  Persist();
  EXPECT_EQ(shown().incarnation(), 2u);
  auto elder = Process("cache-0", v1::ROLE_CACHE, 1);
  elder.set_copied_epoch(core_.view().metadata_ring().epoch());
  const Status refused = core_.Register(At(10010), elder).status();
  EXPECT_TRUE(IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(shown().incarnation(), 2u);
}

TEST(RegistryCore, AWorkerThatLeavesIsShownToAndSoonForgottenWhenItHasEnded) {
  RegistryOptions options = Options();
  options.worker_lease = Duration::Seconds(4);
  RegistryCore core(options, Durable(3), 1);
  v1::ProcessInfo reader = Process("reader-1", v1::ROLE_READER, 7);
  EXPECT_EQ(core.Register(At(0), reader)->lease_ms(), 4000);
  const uint64_t version = core.view().version();
  reader.set_leaving(true);
  EXPECT_EQ(core.Register(At(100), reader)->lease_ms(), 1000);
  EXPECT_GT(core.view().version(), version) << "whoever waits for a change hears of it";
  ASSERT_EQ(core.view().processes_size(), 1);
  EXPECT_TRUE(core.view().processes(0).leaving());
  for (MonotonicTime at = core.NextExpiry(); at <= At(1200); at = core.NextExpiry())
    core.Expire(at);
  EXPECT_EQ(core.view().processes_size(), 0);
}

// Whoever acts on a write does work for what changed, not for all streams that there are.
TEST_F(RegistryCoreTest, AWriteSaysWhatChangedWithItAndShowsThat) {
  const auto create = [&](const std::string& name) {
    const auto made = core_.catalogue().BeginCreate(Stream(name), {}, WallTime());
    ASSERT_TRUE(made.ok()) << made.status();
    core_.catalogue().FinishCreate(stream::IdOf(*made));
  };
  const auto shown = [&] {
    std::vector<std::string> names;
    for (const v1::StreamConfig& stream : core_.view().streams()) names.push_back(stream.name());
    return names;
  };
  for (const char* name : {"m", "z", "a"}) create(name);
  auto snapshot = core_.TakeSnapshot();
  EXPECT_THAT(snapshot.changed.streams, ElementsAre("a", "m", "z"));
  create("b");  // while that is being written
  core_.OnWritten(snapshot);
  EXPECT_THAT(shown(), ElementsAre("a", "m", "z"));
  snapshot = core_.TakeSnapshot();
  EXPECT_THAT(snapshot.changed.streams, ElementsAre("b"));
  core_.OnWritten(snapshot);
  EXPECT_THAT(shown(), ElementsAre("a", "b", "m", "z"));

  const uint64_t version = core_.view().version();
  core_.catalogue().RaiseFloor({stream::IdOf(core_.view().streams(0)), 0}, 5);
  snapshot = core_.TakeSnapshot();
  EXPECT_TRUE(snapshot.changed.floors);
  EXPECT_TRUE(snapshot.changed.streams.empty());
  core_.OnWritten(snapshot);
  EXPECT_EQ(core_.view().version(), version) << "nobody hears of a floor by the view";

  ASSERT_TRUE(core_.catalogue().DeleteStream("m").ok());
  snapshot = core_.TakeSnapshot();
  EXPECT_EQ(snapshot.changed.deleted.size(), 1u);
  core_.OnWritten(snapshot);
  EXPECT_THAT(shown(), ElementsAre("a", "b", "z"));
  EXPECT_GT(core_.view().version(), version);
  EXPECT_FALSE(core_.NeedsWrite());
}

}  // namespace
}  // namespace tailcast::cell
