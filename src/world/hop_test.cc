// Hops end to end in virtual time: what a producer committed arrives in every cell of the chain, in
// both layers, whatever dies on the way.
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/log.h"
#include "tailcast/world/hop.h"

namespace tailcast::world {
namespace {

using ::testing::IsEmpty;

using stream::Part;

TEST(HopTest, CommittedBytesArriveInEveryCellAndLayerWithinMilliseconds) {
  Hop hop({});
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  producer.Roll();
  producer.Append(3000);
  Truth truth{{1, {producer.data(), producer.index()}}};
  const MonotonicTime begin = hop.time().now();
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << hop.Missing(truth);
  // Two hops of 30 ms; each polls lengths every 50 ms; the second hop's file is known by a notice.
  EXPECT_LT((hop.time().now() - begin).millis(), 400);
  ASSERT_EQ(hop.Check(), "");
  // A message in the steady state.
  producer.Append(100);
  truth[1] = {producer.data(), producer.index()};
  const MonotonicTime second = hop.time().now();
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << hop.Missing(truth);
  EXPECT_LT((hop.time().now() - second).millis(), 2 * (30 + 50 + 15));
  ASSERT_EQ(hop.Check(), "");
}

TEST(HopTest, DoorbellsMakeAHopAsFastAsItsLink) {
  HopOptions options;
  options.doorbells = true;
  Hop hop(options);
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  producer.Roll();
  producer.Append(100);
  Truth truth{{1, {producer.data(), producer.index()}}};
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << hop.Missing(truth);
  hop.time().RunFor(Duration::Seconds(1));
  for (int i = 0; i < 5; ++i) {
    producer.Append(100);
    truth[1] = {producer.data(), producer.index()};
    const MonotonicTime begin = hop.time().now();
    ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
        << hop.Missing(truth);
    EXPECT_LT((hop.time().now() - begin).millis(), 2 * 30 + 10);
  }
}

TEST(HopTest, FilesRollOverAndTheirOperationsEnd) {
  Hop hop({});
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  Truth truth;
  for (int file = 1; file <= 20; ++file) {
    producer.Roll();
    for (int i = 0; i < 3; ++i) producer.Append(hop.time().rng().Between(1, 2000));
    truth[file] = {producer.data(), producer.index()};
  }
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(20)))
      << hop.Missing(truth);
  ASSERT_EQ(hop.Check(), "");
  hop.time().RunFor(Duration::Seconds(3));
  for (const std::string cell : {"us", "eu"}) {
    EXPECT_EQ(hop.scheduler(cell).core()->unfinished(), 2) << "the open file's two";
    EXPECT_EQ(hop.scheduler(cell).core()->counters().restarted, 0);
  }
  for (int64_t seq = 1; seq < 20; ++seq) {
    const auto r = hop.Metadata("asia", seq);
    ASSERT_TRUE(r.sealed()) << seq;
    EXPECT_EQ(*r.seal[0], static_cast<int64_t>(truth[seq].first.size()));
  }
}

// A producer that gives up waiting for its scheduler (Close's limit) leaves the seal in the
// metadata cache, where the readers see it: nobody waits for the listing, which comes every 30 s.
TEST(HopTest, ASealThatNoSchedulerHeardOfEndsTheCopiesSoonAfterOneIsBack) {
  Hop hop({});
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  producer.Roll();
  producer.Append(3000);
  const Truth truth{{1, {producer.data(), producer.index()}}};
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)));
  // Nor is there a reader that would still look.
  const std::vector<std::string> away = {"scheduler", "reader-0", "reader-1"};
  for (const std::string& process : away) hop.world.Kill("us", process);
  producer.Seal();
  hop.time().RunFor(Duration::Seconds(2));
  EXPECT_FALSE(hop.Metadata("eu", 1).sealed());
  hop.world.Start("us", "scheduler", RunScheduler(hop.world, {}));
  for (int i = 0; i < hop.options.readers; ++i) {
    hop.world.Start("us", "reader-" + std::to_string(i), RunReader(hop.world, hop.options.reader));
  }
  const auto over = [&] {
    return hop.Metadata("asia", 1).sealed() && hop.FindScheduler("us") != nullptr &&
           hop.scheduler("us").core() != nullptr && hop.scheduler("us").core()->unfinished() == 0 &&
           hop.scheduler("eu").core()->unfinished() == 0;
  };
  EXPECT_TRUE(hop.time().RunUntil(over, Duration::Seconds(5))) << hop.Missing(truth);
  ASSERT_EQ(hop.Check(), "");
}

// Files that say their chunk size: schedulers find it in notices and in listings, readers and
// writers in what they are given, in caches of cells that never heard of the stream's.
TEST(HopTest, FilesOfDifferentChunkSizesAreCopiedFromCacheToCache) {
  Hop hop({});
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  Truth truth;
  const std::vector<int64_t> sizes = {0, 4096, 65536, 1024, 16384, 512};
  for (size_t i = 0; i < sizes.size(); ++i) {
    producer.Roll(sizes[i]);
    for (int n = 0; n < 4; ++n) {
      producer.Append(sizes[i] == 512 ? 300 : 30'000);
      hop.time().RunFor(Duration::Millis(100));
      if (n == 1 && i % 2 == 0) hop.world.Restart(i == 2 ? "us" : "eu", "scheduler");
    }
    truth[static_cast<int64_t>(i) + 1] = {producer.data(), producer.index()};
  }
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(20)))
      << hop.Missing(truth);
  ASSERT_EQ(hop.Check(), "");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto metadata = hop.Metadata("asia", static_cast<int64_t>(i) + 1);
    EXPECT_EQ(metadata.stem_chunk_size, sizes[i]);
    EXPECT_EQ(metadata.chunk_size, sizes[i] > 0 ? sizes[i] : hop.options.chunk_size);
  }
  for (const std::string cell : {"us", "eu"}) {
    for (int i = 0; i < hop.options.readers; ++i) {
      const Process& reader = hop.world.process(cell, "reader-" + std::to_string(i));
      EXPECT_EQ(reader.metrics.Value("tailcast_reader_read_bytes_total", {{"origin", "primary"}}),
                0)
          << cell << i;
    }
  }
}

TEST(HopTest, FilesOfTheFirstMomentsArriveToo) {
  Hop hop({});
  hop.CreateStream(false);
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  Truth truth;
  for (int file = 1; file <= 20; ++file) {
    producer.Roll();
    for (int i = 0; i < 3; ++i) producer.Append(hop.time().rng().Between(1, 2000));
    truth[file] = {producer.data(), producer.index()};
  }
  const auto arrived = [&] { return hop.Arrived(truth, false); };
  ASSERT_TRUE(hop.time().RunUntil(arrived, Duration::Seconds(10))) << hop.Missing(truth);
  ASSERT_EQ(hop.Check(), "");
}

TEST(HopTest, TheHeartbeatOfTheSourceArrivesEverywhere) {
  Hop hop({});
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  producer.Roll();
  producer.Append(100);
  hop.time().RunFor(Duration::Seconds(2));
  stream::PairMetadata beat = producer.Metadata();
  producer.Publish(beat);
  ASSERT_TRUE(
      hop.time().RunUntil([&] { return hop.Metadata("asia", 1).heartbeat_us == beat.heartbeat_us; },
                          Duration::Seconds(2)));
}

TEST(HopTest, WithoutCachesEverythingArrivesByThePrimaryLayer) {
  Hop hop({});
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  for (const std::string cell : {"us", "eu", "asia"}) {
    hop.world.cell(cell).data->SetFaults({.unavailable = true});
    hop.world.cell(cell).metadata->SetFaults({.unavailable = true});
  }
  producer.Roll();
  producer.Append(5000);
  const auto arrived = [&] {
    return hop.Primary("asia", producer.file(), Part::kIndex) == producer.index() &&
           hop.Primary("asia", producer.file(), Part::kData) == producer.data();
  };
  ASSERT_TRUE(hop.time().RunUntil(arrived, Duration::Seconds(20)));
}

// A backlog of files and a slow disk: what waits in the writer's memory is bounded for all of them
// together, and all of it arrives.
TEST(HopTest, AWriterThatIsBehindHoldsNoMoreThanItsShare) {
  HopOptions options;
  options.cells = {"us", "eu"};
  options.writers = 1;
  options.chunk_size = 64 << 10;
  options.writer.primary_buffer_bytes = 1 << 20;
  Hop hop(options);
  hop.CreateStream();
  hop.world.cell("eu").disk->SetOptions({.request = {.base = Duration::Millis(100)}});
  HandProducer producer(hop.world, "us", hop.shard(), options.chunk_size);
  constexpr int kFiles = 6;
  Truth truth;
  for (int file = 1; file <= kFiles; ++file) {
    producer.Roll();
    for (int i = 0; i < 3; ++i) producer.Append(1 << 20);
    truth[file] = {producer.data(), producer.index()};
  }
  const Process& writer = hop.world.process("eu", "writer-0");
  int64_t most = 0;
  const auto arrived = [&] {
    most = std::max(most,
                    writer.metrics.Value("tailcast_writer_buffered_bytes", {{"layer", "primary"}}));
    return hop.Arrived(truth);
  };
  ASSERT_TRUE(hop.time().RunUntil(arrived, Duration::Seconds(120)));
  EXPECT_GT(most, 1 << 20) << "it was behind";
  EXPECT_LE(most, (1 << 20) + kFiles * (512 << 10));
}

// What `tailcast status` shows of a hop: the reports of the readers of a cell.
std::vector<v1::OperationReport> Reports(Hop& hop, const std::string& cell) {
  std::vector<v1::OperationReport> all;
  Process& user = hop.world.Start(cell, "looker", nullptr);
  for (const v1::ProcessInfo& process : hop.registry(cell)->view().processes()) {
    if (process.role() != v1::ROLE_READER) continue;
    const auto client = user.connector->MakeClient(process.rpc_address(), "");
    v1::ListOperationsRequest list;
    list.set_scheduler_incarnation(hop.registry(cell)->view().scheduler_incarnation());
    std::optional<Result<std::string>> answer;
    const Scope scope;
    client->Call("/tailcast.v1.Reader/ListOperations", list.SerializeAsString(),
                 Duration::Seconds(2), scope.Bind([&](Result<std::string> r) { answer = r; }));
    hop.time().RunUntil([&] { return answer.has_value(); }, Duration::Seconds(3));
    const auto reply = rpc::Parse<v1::ListOperationsReply>(answer->ok() ? **answer : "");
    if (!answer->ok() || !reply.ok()) continue;
    all.insert(all.end(), reply->reports().begin(), reply->reports().end());
  }
  hop.world.Kill(cell, "looker");
  return all;
}

// Back-pressure: files of 1 MB a second, and one end of the hop takes less.
v1::WaitsFor WhoIsWaitedFor(const std::function<void(Hop&)>& slow_down) {
  HopOptions options;
  options.cells = {"us", "eu"};
  options.chunk_size = 4096;
  Hop hop(options);
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), options.chunk_size);
  producer.Roll();
  producer.Append(100);
  hop.time().RunFor(Duration::Seconds(1));
  slow_down(hop);
  for (int i = 0; i < 80; ++i) {
    producer.Append(100'000);
    hop.time().RunFor(Duration::Millis(100));
  }
  for (const v1::OperationReport& report : Reports(hop, "us")) {
    if (report.operation().layer() != v1::LAYER_PRIMARY) continue;
    EXPECT_EQ(report.waits_us() > 3'000'000, report.waits_for() != v1::WAITS_FOR_NOBODY);
    return report.waits_for();
  }
  ADD_FAILURE() << "no operation";
  return v1::WAITS_FOR_NOBODY;
}

TEST(HopTest, NobodyIsWaitedForWhereAllIsFastEnough) {
  EXPECT_EQ(WhoIsWaitedFor([](Hop&) {}), v1::WAITS_FOR_NOBODY);
}
TEST(HopTest, AWriterWhoseDiskIsSlowIsWaitedFor) {
  EXPECT_EQ(WhoIsWaitedFor([](Hop& hop) {
              hop.world.cell("eu").disk->SetOptions({.request = {.base = Duration::Millis(700)}});
            }),
            v1::WAITS_FOR_WRITER);
}
TEST(HopTest, ALinkThatIsSlowIsWaitedFor) {
  EXPECT_EQ(WhoIsWaitedFor([](Hop& hop) {
              hop.world.network().LinkBetween("us", "eu").bytes_per_second = 300'000;
            }),
            v1::WAITS_FOR_LINK);
}

// §3 Start Position, with this cell's primary far behind the source's as well: what was jumped over
// is in this cell's primary layer at any moment.
TEST(HopTest, ACacheCopyFarBehindJumpsNoFurtherThanThePrimaryOfItsCell) {
  HopOptions options;
  options.cells = {"us", "eu"};
  options.reader.copy.jump_bytes = 4096;
  options.writer.cache_window_bytes = 8192;
  options.jumps_allowed = true;
  Hop hop(options);
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  producer.Roll();
  Truth truth;
  const auto run = [&](int messages) {
    for (int i = 0; i < messages; ++i) {
      producer.Append(1000);
      truth[1] = {producer.data(), producer.index()};
      for (int step = 0; step < 10; ++step) {
        ASSERT_EQ(hop.Check(), "");
        hop.time().RunFor(Duration::Millis(3));
      }
    }
  };
  const auto jumps = [&] {
    int64_t n = 0;
    for (const char* name : {"writer-0", "writer-1"}) {
      for (const auto& m : hop.world.process("eu", name).metrics.Snapshot()) {
        if (m.name == "tailcast_writer_jumps_total") n += static_cast<int64_t>(m.value);
      }
    }
    return n;
  };
  run(5);
  // The cache takes nothing, the disk little.
  hop.world.cell("eu").data->SetFaults({.unavailable = true});
  storage::FakeDiskOptions slow;
  slow.request.base = Duration::Seconds(1);
  hop.world.cell("eu").disk->SetOptions(slow);
  run(100);
  const int64_t behind = hop.Metadata("eu", 1).primary_length[0];
  EXPECT_LT(behind, 80000) << "of 105000: else the test shows nothing";
  EXPECT_GT(jumps(), 0) << "as far as the primary came";
  EXPECT_LE(hop.Metadata("eu", 1).cache_length[0], behind);
  hop.world.cell("eu").disk->SetOptions({});
  run(60);
  EXPECT_GT(hop.Metadata("eu", 1).cache_length[0], 100000) << "to where the primary stands now";
  hop.world.cell("eu").data->SetFaults({});
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(20)))
      << hop.Missing(truth);
  ASSERT_EQ(hop.Check(), "");
}

// A file that grows, with doorbells; its beginning has arrived everywhere, and all is quiet.
class GrowingFile {
 public:
  GrowingFile() {
    hop.CreateStream();
    producer_.emplace(hop.world, "us", hop.shard(), hop.options.chunk_size);
    producer_->Roll();
    AppendMs(true, Duration::Seconds(5));
    hop.time().RunFor(Duration::Seconds(2));
  }
  // Appends, and how long that takes until it is everywhere.
  int64_t AppendMs(bool caches, Duration limit) {
    producer_->Append(200);
    truth_[1] = {producer_->data(), producer_->index()};
    const MonotonicTime begin = hop.time().now();
    Await(caches, limit);
    EXPECT_EQ(hop.Check(), "");
    return (hop.time().now() - begin).millis();
  }
  void Await(bool caches, Duration limit) {
    EXPECT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth_, caches); }, limit))
        << hop.Missing(truth_);
  }

  Hop hop{{.doorbells = true}};

 private:
  std::optional<HandProducer> producer_;
  Truth truth_;
};

// Kills `role` on the path while a file grows; the copy goes on within the time limit.
int64_t LongestGapMs(const std::string& kill, Duration limit) {
  GrowingFile file;
  // Both of a kind, one after the other: whoever runs the operations is among them.
  int64_t worst = 0;
  for (const std::string which : {"-0", "-1"}) {
    const std::string cell = kill == "writer" ? "eu" : "us";
    if (kill == "scheduler") {
      file.hop.world.Restart("us", "scheduler");
      file.hop.world.Restart("eu", "scheduler");
    } else {
      file.hop.world.Restart(cell, kill + which);
    }
    worst = std::max(worst, file.AppendMs(true, limit));
    file.hop.time().RunFor(Duration::Seconds(4));
  }
  return worst;
}

TEST(HopTest, AKilledReaderCostsLittle) {
  EXPECT_LE(LongestGapMs("reader", Duration::Seconds(10)), 100 + 4 * 30 + 60);
}
TEST(HopTest, AKilledWriterCostsLittle) {
  EXPECT_LE(LongestGapMs("writer", Duration::Seconds(10)), 100 + 4 * 30 + 60);
}
TEST(HopTest, AKilledSchedulerCostsNothing) {
  EXPECT_LE(LongestGapMs("scheduler", Duration::Seconds(10)), 2 * 30 + 20);
}

// Stops (SIGSTOP) or hangs `role` on the path while a file grows; the longest time that the copy
// stands still.
int64_t LongestStandMs(const std::string& role, bool hang) {
  GrowingFile file;
  Hop& hop = file.hop;
  int64_t worst = 0;
  const std::string cell = role == "writer" ? "eu" : "us";
  for (const std::string which : {"-0", "-1"}) {
    Process& process = hop.world.process(cell, role + which);
    if (hang) {
      // Only what its storage answers is missing: it beats, and answers whoever asks.
      process.store->Hang();
      hop.world.cell(cell).data->SetFaults({.unavailable = true});
    } else {
      hop.world.Stop(cell, role + which);
    }
    for (int message = 0; message < 20; ++message) {
      worst = std::max(worst, file.AppendMs(/*caches=*/!hang, Duration::Seconds(20)));
      hop.time().RunFor(Duration::Millis(50));
    }
    process.store->Unhang();
    hop.world.cell(cell).data->SetFaults({});
    hop.world.Continue();
    hop.time().RunFor(Duration::Seconds(10));
    EXPECT_EQ(hop.Check(), "");
  }
  file.Await(true, Duration::Seconds(10));
  return worst;
}

TEST(HopTest, AStoppedReaderCostsLittleMoreThanAKilledOne) {
  EXPECT_LE(LongestStandMs("reader", false), 300 + 100 + 4 * 30 + 60);
}
TEST(HopTest, AStoppedWriterCostsLittleMoreThanAKilledOne) {
  EXPECT_LE(LongestStandMs("writer", false), 300 + 100 + 4 * 30 + 60);
}
// stuck_after, and what a killed one costs.
TEST(HopTest, AReaderWhoseStorageHangsIsReplaced) {
  EXPECT_LE(LongestStandMs("reader", true), 2000 + 100 + 4 * 30 + 160);
}
TEST(HopTest, AWriterWhoseStorageHangsIsReplaced) {
  EXPECT_LE(LongestStandMs("writer", true), 2000 + 100 + 4 * 30 + 160);
}

// In the simulation it runs its timers before what arrived meanwhile.
TEST(HopTest, AStoppedSchedulerDropsNobodyAndRestartsNothing) {
  HopOptions options;
  options.cells = {"us", "eu"};
  Hop hop(options);
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  producer.Roll();
  Truth truth;
  const auto append = [&] {
    producer.Append(200);
    truth[producer.file().seq] = {producer.data(), producer.index()};
  };
  append();
  ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)));
  for (int round = 0; round < 5; ++round) {
    for (const std::string cell : {"us", "eu"}) hop.world.Stop(cell, "scheduler");
    hop.time().RunFor(Duration::Millis(hop.time().rng().Between(900, 6000)));
    append();
    EXPECT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Millis(500)))
        << "everything runs on without them\n"
        << hop.Missing(truth);
    hop.world.Continue();
    hop.time().RunFor(Duration::Seconds(3));
    for (const std::string cell : {"us", "eu"}) {
      EXPECT_EQ(hop.registry(cell)->view().processes_size(), 4) << cell;
    }
    const scheduler::CoreCounters counters = hop.scheduler("us").core()->counters();
    EXPECT_EQ(counters.readers_lost, 0);
    EXPECT_EQ(counters.restarted, 0);
    EXPECT_EQ(counters.started, 2);
  }
}

// Somebody deleted its folder: its scheduler begins anew, and counts from 1.
TEST(HopTest, ACellThatLostItsRegistryIsToldItsStreamsAgain) {
  HopOptions options;
  options.cells = {"us", "eu"};
  Hop hop(options);
  hop.CreateStream();
  // Users of it there; who looks at the source instead is told nothing either.
  std::vector<std::unique_ptr<cell::CellClient>> users;
  std::vector<std::unique_ptr<cell::StreamWatch>> watches;
  std::vector<Status> told;
  const Scope scope;
  for (const std::string& cell : options.cells) {
    Process& user = hop.world.Start(cell, "user", nullptr);
    users.push_back(std::make_unique<cell::CellClient>(*user.loop, *user.connector,
                                                       hop.world.SchedulerAddress(cell), ""));
    users.back()->Start(Duration::Seconds(10), scope.Bind([](const Status&) {}));
    watches.push_back(std::make_unique<cell::StreamWatch>(
        *users.back(), hop.id, scope.Bind([&](const Status& why) { told.push_back(why); })));
  }
  hop.world.Restart("eu", "scheduler");
  hop.time().RunFor(Duration::Seconds(3));
  ASSERT_EQ(hop.registry("eu")->view().scheduler_incarnation(), 2u);
  hop.world.Kill("eu", "scheduler");
  {
    storage::Store& disk = *hop.world.process("eu", "writer-0").store;
    const Scope scope;
    int deleted = 0;
    disk.List("registry", scope.Bind([&](const Result<std::vector<storage::DirEntry>>& entries) {
      for (const storage::DirEntry& entry : *entries) {
        disk.Delete("registry", entry.name, scope.Bind([&](const Status&) { ++deleted; }));
      }
    }));
    ASSERT_TRUE(hop.time().RunUntil([&] { return deleted > 0; }, Duration::Seconds(5)));
  }
  hop.world.network().Partition("us", "eu", true);
  hop.world.Start("eu", "scheduler", RunScheduler(hop.world, {}));
  hop.time().RunFor(Duration::Seconds(5));
  ASSERT_EQ(hop.registry("eu")->view().scheduler_incarnation(), 1u);
  EXPECT_EQ(hop.registry("eu")->view().streams_size(), 0);
  EXPECT_EQ(users[1]->view().registry_id(), hop.registry("eu")->view().registry_id());
  EXPECT_THAT(told, IsEmpty()) << told[0];
  hop.world.network().Partition("us", "eu", false);
  EXPECT_TRUE(hop.time().RunUntil([&] { return hop.registry("eu")->view().streams_size() == 1; },
                                  Duration::Seconds(10)));
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  producer.Roll();
  producer.Append(200);
  const Truth truth{{1, {producer.data(), producer.index()}}};
  EXPECT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << hop.Missing(truth);
  EXPECT_THAT(told, IsEmpty()) << told[0];
  // From now on it is told again.
  bool deleted = false;
  users[0]->DeleteStream({"flights"}, scope.Bind([&](const Status&) { deleted = true; }));
  EXPECT_TRUE(
      hop.time().RunUntil([&] { return deleted && told.size() == 2; }, Duration::Seconds(10)));
  for (const Status& why : told) {
    EXPECT_EQ(why, NotFoundError("stream 'flights' was deleted"));
  }
  watches.clear();
  users.clear();
}

TEST(HopTest, AReRouteInMidStreamLosesNothingAndNeverStops) {
  HopOptions options;
  options.doorbells = true;
  Hop hop(options);
  hop.CreateStream();
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  Truth truth;
  int64_t worst_ms = 0;
  const auto message = [&] {
    producer.Append(150);
    truth[producer.file().seq] = {producer.data(), producer.index()};
    const MonotonicTime begin = hop.time().now();
    ASSERT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(10)))
        << hop.Missing(truth);
    worst_ms = std::max(worst_ms, (hop.time().now() - begin).millis());
    ASSERT_EQ(hop.Check(), "");
    hop.time().RunFor(Duration::Millis(40));
  };
  producer.Roll();
  for (int i = 0; i < 20; ++i) message();
  worst_ms = 0;
  // The chain becomes a star: us -> eu -> asia, then us -> eu, us -> asia.
  hop.Reroute({{"us", "eu"}, {"us", "asia"}});
  for (int i = 0; i < 30; ++i) message();
  producer.Roll();
  for (int i = 0; i < 10; ++i) message();
  EXPECT_FALSE(hop.scheduler("eu").core()->Feeds(hop.id, "asia"))
      << "the old edge was given up once the new one had taken over";
  // And a chain the other way round.
  hop.Reroute({{"us", "asia"}, {"asia", "eu"}});
  for (int i = 0; i < 30; ++i) message();
  producer.Roll();
  for (int i = 0; i < 10; ++i) message();
  EXPECT_FALSE(hop.scheduler("us").core()->Feeds(hop.id, "eu"));
  EXPECT_LT(worst_ms, 2 * 30 + 200) << "make before break";
}

}  // namespace
}  // namespace tailcast::world
