// The fake passes the same suite as the real drivers, and does each of its faults.
#include "tailcast/fabric/fake_fabric.h"

#include <gtest/gtest.h>

#include <set>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/channel_conformance.h"
#include "tailcast/fabric/fabric_conformance.h"
#include "tailcast/fabric/scan_conformance.h"
#include "tailcast/fabric/virtual_loop.h"

namespace tailcast::fabric {
namespace {

class FakeServer final : public TestServer {
 public:
  FakeServer(VirtualLoop* loop, FakeFabricNetwork* network, std::string name,
             FakeExporterOptions options)
      : loop_(loop), network_(network), name_(std::move(name)) {
    exporter_ = network_->MakeExporter(name_, options);
    for (RegionId id = 0; id < 2; ++id) {
      words_ = exporter_->AddRegion(id, kTestRegionBytes[id]).value();
      FillPattern(id, words_);
    }
    exporter_->ServeMessages(
        scope_.Bind([](std::string_view message, std::string& answer) { Echo(message, answer); }));
    exporter_->SetScanner(TestScan);
    address_ = exporter_->Listen().value().front();
    Beat();
  }
  ~FakeServer() override { Kill(); }
  std::string address() const override { return address_; }
  void Kill() override {
    network_->Kill(name_);
    beat_.Cancel();
    exporter_.reset();
  }
  void Stop() override {
    network_->Stop(name_);
    beat_.Cancel();
  }
  void Continue() override {
    network_->Continue(name_);
    Beat();
  }
  void SetAndNotify(uint64_t offset, uint64_t value) override {
    StoreWord(words_.data() + offset, value);
    exporter_->Notify(1, offset);
  }

 private:
  void Beat() {
    exporter_->Beat();
    beat_.After(Duration::Millis(20), scope_.Bind([this] { Beat(); }));
  }
  VirtualLoop* const loop_;
  FakeFabricNetwork* const network_;
  const std::string name_;
  std::unique_ptr<Exporter> exporter_;
  std::span<char> words_;
  std::string address_;
  Timer beat_{*loop_};
  Scope scope_;
};

class FakeWorld final : public FabricWorld {
 public:
  explicit FakeWorld(bool one_sided) : network_(&loop_, 1), one_sided_(one_sided) {}
  EventLoop* loop() override { return &loop_; }
  bool RunUntil(const std::function<bool()>& done, Duration limit) override {
    return loop_.RunUntil(done, limit);
  }
  std::unique_ptr<Exporter> MakeExporter() override {
    return network_.MakeExporter(NewName(), options());
  }
  std::unique_ptr<Connector> MakeConnector() override {
    return network_.MakeConnector("client", &loop_);
  }
  std::unique_ptr<TestServer> StartServer() override {
    return std::make_unique<FakeServer>(&loop_, &network_, NewName(), options());
  }
  std::shared_ptr<void> KeepWriting(std::function<void()> write) override {
    auto writer = std::make_shared<Writer>(loop_);
    writer->write = std::move(write);
    writer->Step();
    network_.default_link().torn_probability = 0.5;  // at words only
    return writer;
  }
  std::string DeadAddress() override { return "fake:nobody"; }

 private:
  struct Writer {
    explicit Writer(EventLoop& loop) : timer(loop) {}
    void Step() {
      write();
      timer.After(Duration::Micros(1), scope.Bind([this] { Step(); }));
    }
    std::function<void()> write;
    Timer timer;
    Scope scope;
  };
  std::string NewName() { return "server-" + std::to_string(++servers_); }
  FakeExporterOptions options() {
    return {.loop = &loop_, .beat_timeout = kTestBeatTimeout, .one_sided = one_sided_};
  }
  VirtualLoop loop_;
  FakeFabricNetwork network_;
  const bool one_sided_;
  int servers_ = 0;
};

FabricDriver Fake(bool one_sided) {
  return {one_sided ? "one_sided" : "engine",
          [one_sided] { return std::make_unique<FakeWorld>(one_sided); }};
}
INSTANTIATE_TEST_SUITE_P(Fake, FabricConformance, testing::Values(Fake(true), Fake(false)),
                         DriverName);
INSTANTIATE_TEST_SUITE_P(Fake, ScanConformance, testing::Values(Fake(true), Fake(false)),
                         DriverName);
INSTANTIATE_TEST_SUITE_P(Fake, ChannelConformance, testing::Values(Fake(true), Fake(false)),
                         DriverName);

// A server "s" and a client "c" with one connection.
class FakeFabricTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;

  void Start(FakeExporterOptions options = {}) {
    exporter_ = network_.MakeExporter("s", options);
    memory_ = exporter_->AddRegion(0, kBytes).value();
    address_ = exporter_->Listen().value().front();
    connector_ = network_.MakeConnector("c", &loop_);
    endpoint_ = Connect();
    ASSERT_NE(endpoint_, nullptr);
    endpoint_->set_read_timeout(Duration::Millis(100));
  }
  std::unique_ptr<Endpoint> Connect() {
    std::unique_ptr<Endpoint> endpoint;
    connector_->Connect(address_, Duration::Seconds(1), scope_.Bind([&](auto r) {
      if (r.ok()) endpoint = std::move(r).value();
    }));
    loop_.RunUntil([&] { return endpoint != nullptr; }, Duration::Seconds(2));
    return endpoint;
  }
  FakeLink& link() { return network_.link("c", "s"); }
  // Reads the whole region in `pieces` reads and waits for all of them.
  std::vector<ReadStatus> ReadAll(size_t pieces = 16) {
    std::vector<ReadDescriptor> reads;
    const uint32_t length = static_cast<uint32_t>(kBytes / pieces);
    for (size_t i = 0; i < pieces; ++i) {
      reads.push_back({.region = 0,
                       .length = length,
                       .offset = i * length,
                       .destination = buffer_.data() + i * length,
                       .token = i});
    }
    started_ = loop_.Now();
    endpoint_->Read(reads);
    return Wait(pieces);
  }
  std::vector<ReadStatus> Wait(size_t count) {
    std::vector<ReadStatus> statuses(count);
    std::set<uint64_t> seen;
    loop_.RunUntil(
        [&] {
          Completion c;
          while (endpoint_->Poll({&c, 1}) == 1) {
            EXPECT_TRUE(seen.insert(c.token).second);
            statuses[c.token] = c.status;
          }
          return seen.size() == count;
        },
        Duration::Seconds(60));
    EXPECT_EQ(seen.size(), count);
    took_ = loop_.Now() - started_;
    return statuses;
  }
  static size_t Count(const std::vector<ReadStatus>& statuses, ReadStatus status) {
    return static_cast<size_t>(std::count(statuses.begin(), statuses.end(), status));
  }

  VirtualLoop loop_;
  FakeFabricNetwork network_{&loop_, 7};
  std::unique_ptr<Exporter> exporter_;
  std::span<char> memory_;
  std::string address_;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Endpoint> endpoint_;
  std::vector<char> buffer_ = std::vector<char>(kBytes);
  MonotonicTime started_;
  Duration took_;
  Scope scope_;
};

TEST_F(FakeFabricTest, ReadsTakeTheirLatencyEachWay) {
  Start();
  link().latency = Duration::Micros(30);
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
  EXPECT_EQ(took_, Duration::Micros(60));
  network_.SetServerDelay("s", Duration::Millis(3));  // a slow peer
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
  EXPECT_EQ(took_, Duration::Micros(3060));
}

TEST_F(FakeFabricTest, TornReadsMixMomentsAtWordsWithLinesOutOfOrder) {
  Start();
  link().torn_probability = 1;
  uint64_t tick = 0;
  std::function<void()> write = [&] {
    ++tick;
    for (uint64_t i = 0; i < kBytes; i += 8)
      StoreWord(memory_.data() + i, tick * 0x0101010101010101ull % (1ull << 56));
    if (tick < 60) loop_.After(Duration::Micros(2), scope_.Bind([&] { write(); }));
  };
  write();
  // Every word of a tick is the same: words may differ from each other, halves of words may not.
  for (uint64_t i = 0; i < kBytes; i += 8) StoreWord(memory_.data() + i, 0);
  ReadAll(4);
  size_t falls = 0, rises = 0, cut_lines = 0;
  for (size_t i = 8; i < kBytes; i += 8) {
    uint64_t before, after;
    std::memcpy(&before, &buffer_[i - 8], 8);
    std::memcpy(&after, &buffer_[i], 8);
    bool known = false;
    for (uint64_t t = 0; t <= tick; ++t) known |= after == t * 0x0101010101010101ull % (1ull << 56);
    ASSERT_TRUE(known) << "a torn word";
    falls += after < before;
    rises += after > before;
    cut_lines += after != before && i % 64 != 0;
  }
  EXPECT_GT(falls, 10u);  // later lines with earlier bytes
  EXPECT_GT(rises, 10u);
  EXPECT_GT(cut_lines, 10u);
  EXPECT_EQ(network_.counters().torn, 4u);
}

TEST_F(FakeFabricTest, LateAnswersFindNobodyAndWriteNothing) {
  Start();
  std::fill(memory_.begin(), memory_.end(), 'x');
  link().late_probability = 1;
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kTimeout), 16u);
  EXPECT_EQ(took_, Duration::Millis(100));
  std::fill(buffer_.begin(), buffer_.end(), '#');
  loop_.RunFor(Duration::Seconds(20));
  EXPECT_EQ(network_.counters().late, 16u);
  EXPECT_EQ(std::count(buffer_.begin(), buffer_.end(), '#'), static_cast<ptrdiff_t>(kBytes));
  EXPECT_TRUE(endpoint_->connected());
}

TEST_F(FakeFabricTest, EveryLinkIsThatOfPairsWhichAreConnectedToo) {
  Start();
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
  network_.Cut("c", "another", true, false);
  network_.SetEveryLink({.late_probability = 1});
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kTimeout), 16u);
  EXPECT_TRUE(network_.link("c", "another").requests_cut);
  network_.SetEveryLink({});
  loop_.RunFor(Duration::Seconds(20));
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
}

TEST_F(FakeFabricTest, ALostAnswerFlushesTheQueueAndEndsTheConnection) {
  Start();
  link().lost_probability = 1;
  char byte;
  ReadDescriptor read{.length = 1, .destination = &byte, .token = 0};
  endpoint_->Read({&read, 1});
  loop_.RunFor(Duration::Millis(50));
  link().lost_probability = 0;
  network_.SetServerDelay("s", Duration::Seconds(10));
  for (read.token = 1; read.token < 5; ++read.token) endpoint_->Read({&read, 1});
  const auto statuses = Wait(5);
  EXPECT_EQ(statuses[0], ReadStatus::kTimeout);
  EXPECT_EQ(Count(statuses, ReadStatus::kUnreachable), 4u);
  EXPECT_EQ(network_.counters().flushed, 4u);
  EXPECT_FALSE(endpoint_->connected());
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kUnreachable), 16u);
  EXPECT_NE(Connect(), nullptr);
}

TEST_F(FakeFabricTest, ADeadServersMemoryReadsUntilItsHeartbeatIsTooOld) {
  Start();
  exporter_->Beat();
  network_.KillLeavingMemory("s");
  exporter_.reset();
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
  loop_.RunFor(Duration::Seconds(2));
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kUnreachable), 16u);
  EXPECT_EQ(network_.counters().beat_refusals, 16u);
  EXPECT_EQ(Connect(), nullptr);
  const PlantedFault fault("fabric.fake_ignore_heartbeat");
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
}

TEST_F(FakeFabricTest, ARestartedServerIsAnotherOne) {
  Start();
  const std::string old_address = address_;
  auto second = network_.MakeExporter("s");
  ASSERT_TRUE(second->AddRegion(0, kBytes).ok());
  address_ = second->Listen().value().front();
  EXPECT_NE(address_, old_address);
  EXPECT_NE(Count(ReadAll(), ReadStatus::kOk), 16u);
  endpoint_ = Connect();
  ASSERT_NE(endpoint_, nullptr);
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
  exporter_.reset();  // the old object's end is not the new one's
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
}

TEST_F(FakeFabricTest, OneWayPartitionsLetReadsTimeOut) {
  Start();
  for (const bool requests : {true, false}) {
    network_.Cut("c", "s", requests, !requests);
    EXPECT_EQ(Count(ReadAll(), ReadStatus::kTimeout), 16u);
    EXPECT_EQ(Connect(), nullptr);
    EXPECT_TRUE(endpoint_->connected());
  }
  network_.Cut("c", "s", false, false);
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
  EXPECT_EQ(network_.counters().cut, 32u);
}

TEST_F(FakeFabricTest, AKilledServerBehindACutLeavesAHalfOpenConnection) {
  Start();
  network_.Cut("c", "s", false, true);
  network_.Kill("s");
  loop_.RunFor(Duration::Seconds(1));
  EXPECT_TRUE(endpoint_->connected());
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kTimeout), 16u);
}

TEST_F(FakeFabricTest, StaleGenerationsAreRefusedUnlessTheBugIsPlanted) {
  Start();
  network_.Cut("c", "s", false, true);  // the end of the connection does not arrive
  exporter_->Invalidate();
  exporter_->Renew();
  network_.Cut("c", "s", false, false);
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kStaleRegion), 16u);
  EXPECT_EQ(network_.counters().stale, 16u);
  const PlantedFault fault("fabric.fake_accept_stale_region");
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
}

TEST_F(FakeFabricTest, AReadThatIsUnderWayWhenMemoryIsLaidOutAnewIsStale) {
  Start();
  link().torn_probability = 1;
  link().tear_window = Duration::Micros(100);
  network_.Cut("c", "s", false, false);
  loop_.After(Duration::Micros(50), scope_.Bind([&] {
    link().answers_cut = true;
    exporter_->Invalidate();
    link().answers_cut = false;
  }));
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kStaleRegion), 16u);
}

TEST_F(FakeFabricTest, BandwidthIsShared) {
  Start();
  link().bytes_per_second = 1'000'000;
  EXPECT_EQ(Count(ReadAll(1), ReadStatus::kOk), 1u);  // 65.5 ms
  EXPECT_EQ(took_, Duration::Micros(65546));
  EXPECT_EQ(Count(ReadAll(16), ReadStatus::kOk), 16u);
  EXPECT_EQ(took_, Duration::Micros(65546));
}

TEST_F(FakeFabricTest, TailsAndJitterMakeReadsOvertakeEachOther) {
  Start();
  endpoint_->set_read_timeout(Duration::Seconds(10));
  link().jitter = Duration::Micros(50);
  link().tail_probability = 0.2;
  std::vector<ReadDescriptor> reads;
  for (uint64_t i = 0; i < 500; ++i) {
    reads.push_back({.length = 8, .destination = buffer_.data() + i * 8, .token = i});
  }
  endpoint_->Read(reads);
  std::vector<uint64_t> order;
  MonotonicTime half;
  loop_.RunUntil(
      [&] {
        Completion c;
        while (endpoint_->Poll({&c, 1}) == 1) order.push_back(c.token);
        if (order.size() == 250) half = loop_.Now();
        return order.size() == 500;
      },
      Duration::Seconds(20));
  ASSERT_EQ(order.size(), 500u);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  EXPECT_GT(loop_.Now() - half, Duration::Millis(20));
}

TEST_F(FakeFabricTest, AnEngineThatIsStoppedAnswersWhenItGoesOn) {
  Start({.one_sided = false});
  network_.Stop("s");
  endpoint_->set_read_timeout(Duration::Seconds(5));
  loop_.After(Duration::Seconds(1), scope_.Bind([&] { network_.Continue("s"); }));
  EXPECT_EQ(Count(ReadAll(), ReadStatus::kOk), 16u);
  EXPECT_GE(took_, Duration::Seconds(1));
}

TEST_F(FakeFabricTest, LostNotificationsRunIntoTheTimeout) {
  Start();
  link().notification_loss_probability = 1;
  std::optional<WatchOutcome> outcome;
  endpoint_->Watch(0, 0, 0, Duration::Millis(10),
                   scope_.Bind([&](WatchOutcome o) { outcome = o; }));
  loop_.RunFor(Duration::Millis(1));
  StoreWord(memory_.data(), 1);
  exporter_->Notify(0, 0);
  loop_.RunFor(Duration::Millis(20));
  EXPECT_EQ(outcome, WatchOutcome::kTimeout);
  EXPECT_EQ(network_.counters().notifications_lost, 1u);
}

// What happens is a function of the seed.
TEST_F(FakeFabricTest, TheSameSeedDoesTheSameAgain) {
  const auto run = [](uint64_t seed) {
    const Scope scope;
    VirtualLoop loop;
    FakeFabricNetwork network(&loop, seed);
    FakeLink& link = network.default_link();
    link.jitter = Duration::Micros(20);
    link.tail_probability = link.torn_probability = link.late_probability = 0.1;
    link.lost_probability = 0.01;
    auto exporter = network.MakeExporter("s");
    const auto memory = exporter->AddRegion(0, kBytes).value();
    const std::string address = exporter->Listen().value().front();
    auto connector = network.MakeConnector("c", &loop);
    std::unique_ptr<Endpoint> endpoint;
    uint64_t hash = 0, rounds = 0;
    std::vector<char> buffer(kBytes);
    std::function<void()> connect = [&] {
      connector->Connect(address, Duration::Seconds(1), scope.Bind([&](auto r) {
        if (r.ok()) endpoint = std::move(r).value();
      }));
    };
    connect();
    std::function<void()> tick = [&] {
      loop.After(Duration::Micros(500), scope.Bind([&] { tick(); }));
    };
    tick();
    loop.RunUntil(
        [&] {
          if (endpoint == nullptr) return false;
          if (!endpoint->connected()) {
            endpoint.reset();
            connect();
            return false;
          }
          Completion c;
          while (endpoint->Poll({&c, 1}) == 1) {
            hash = hash * 1000003 + c.token * 10 + static_cast<uint64_t>(c.status);
            hash = hash * 1000003 + static_cast<uint64_t>(loop.Now().micros());
          }
          if (loop.Now().micros() / 1000 > static_cast<int64_t>(1000 + rounds)) {
            ++rounds;
            for (uint64_t i = 0; i < kBytes; i += 8) StoreWord(memory.data() + i, rounds);
            const ReadDescriptor read{.length = 4096,
                                      .offset = rounds % 15 * 4096,
                                      .destination = buffer.data(),
                                      .token = rounds};
            endpoint->Read({&read, 1});
          }
          return rounds == 500;
        },
        Duration::Seconds(1000));
    return hash;
  };
  EXPECT_NE(run(1), 0u);
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace tailcast::fabric
