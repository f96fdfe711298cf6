// Random lives of message channels, of each driver: what client and server see of them is a
// behaviour of Channel (tla/ChannelTrace.tla, to which the logs go: folder TAILCAST_TRACE_DIR).
// Here a simpler judge looks on: each message is handled once at most, in order, and told one
// outcome, a true one.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/fake_fabric.h"
#include "tailcast/fabric/virtual_loop.h"

namespace tailcast::fabric {
namespace {

const bool kQuiet = SetLogLevels("off").ok();

// Where a driver lives.
class World {
 public:
  virtual ~World() = default;
  virtual void RunFor(Duration span) = 0;
  virtual std::unique_ptr<Exporter> MakeExporter() = 0;
  virtual Connector& connector() = 0;
};

class RealWorld final : public World {
 public:
  explicit RealWorld(bool tcp) : tcp_(tcp) {
    folder_ = (std::filesystem::temp_directory_path() / "channel_trace_XXXXXX").string();
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~RealWorld() override { std::filesystem::remove_all(folder_); }
  void RunFor(Duration span) override { loop_.RunFor(span); }
  std::unique_ptr<Exporter> MakeExporter() override {
    ExporterOptions options;
    options.loop = &loop_;
    if (tcp_) {
      options.tcp_listen = "127.0.0.1:0";
    } else {
      options.shm_socket_path = folder_ + "/" + std::to_string(++exporters_) + ".sock";
    }
    return fabric::MakeExporter(options);
  }
  Connector& connector() override { return *connector_; }

 private:
  const bool tcp_;
  std::string folder_;
  int exporters_ = 0;
  ThreadLoop loop_;
  std::unique_ptr<Connector> connector_ = MakeConnector(&loop_);
};

class FakeWorld final : public World {
 public:
  explicit FakeWorld(uint64_t seed) : network_(&loop_, seed) {
    network_.default_link().jitter = Duration::Micros(300);
  }
  void RunFor(Duration span) override { loop_.RunFor(span); }
  std::unique_ptr<Exporter> MakeExporter() override {
    return network_.MakeExporter("s", {.loop = &loop_});
  }
  Connector& connector() override { return *connector_; }

 private:
  VirtualLoop loop_;
  FakeFabricNetwork network_;
  std::unique_ptr<Connector> connector_ = network_.MakeConnector("c", &loop_);
};

class Life {
 public:
  Life(World& world, uint64_t seed, std::string* log) : world_(world), rng_(seed), log_(log) {}

  void Run(int steps) {
    StartServer();
    for (int i = 0; i < steps; ++i) Step();
    Die();
    for (int i = 0; i < steps; ++i) Step();
    for (int i = 0; i < 50 && !unanswered_.empty() && channel_ != nullptr; ++i) {
      world_.RunFor(Duration::Millis(1));
    }
    channel_.reset();
    exporter_.reset();
  }
  uint64_t sent() const { return sent_; }
  uint64_t handled() const { return handled_.size(); }
  uint64_t deaths() const { return deaths_; }

 private:
  void Log(const std::string& event, uint64_t id = 0) {
    *log_ += "{\"event\":\"" + event + "\"";
    if (id != 0) *log_ += ",\"id\":" + std::to_string(id);
    *log_ += "}\n";
  }

  void StartServer() {
    exporter_ = world_.MakeExporter();
    ASSERT_TRUE(exporter_->AddRegion(0, 4096).ok());
    exporter_->ServeMessages(server_.Bind([this](std::string_view message, std::string& answer) {
      const uint64_t id = std::stoull(std::string(message));
      Log("Handle", id);
      handled_.push_back(id);
      answer = message;
    }));
    const auto addresses = exporter_->Listen();
    ASSERT_TRUE(addresses.ok()) << addresses.status();
    address_ = addresses->front();
  }

  void Step() {
    const uint64_t dice = rng_.Below(100);
    if (channel_ == nullptr && dice < 50) {
      Open();
    } else if (dice < 55) {
      Send();
    } else if (dice < 65) {
      world_.RunFor(Duration::Micros(static_cast<int64_t>(rng_.Below(400))));
    } else if (dice < 80) {
      AwaitOutcomes();
    } else if (dice < 83 && !unanswered_.empty()) {
      const uint64_t id =
          *std::next(unanswered_.begin(), static_cast<ptrdiff_t>(rng_.Below(unanswered_.size())));
      unanswered_.erase(id);
      Log("GiveUp", id);
    } else if (dice < 90 && channel_ != nullptr) {
      Send();
      Log("Close");
      exporter_->Invalidate();
      Log("Closed");
      if (rng_.Chance(0.8)) world_.RunFor(Duration::Millis(1));
      exporter_->Renew();
      Log("Reopen");
    } else if (dice >= 97) {
      Die();
    }
  }

  void Open() {
    bool answered = false;
    world_.connector().OpenChannel(address_, Duration::Seconds(1), client_.Bind([&](auto channel) {
      answered = true;
      if (!channel.ok()) return;
      Log("Connect");
      channel_ = std::move(channel).value();
      channel_->SetCallbacks(
          {.on_answer = client_.Bind([this](uint64_t id, std::string_view answer) {
             ASSERT_EQ(answer, std::to_string(id));
             Log(unanswered_.erase(id) > 0 ? "Answered" : "Late", id);
           }),
           .on_broken = client_.Bind([this] {
             Log("Broken");
             unanswered_.clear();
             channel_.reset();
           })});
    }));
    for (int i = 0; i < 2000 && !answered; ++i) world_.RunFor(Duration::Millis(1));
    ASSERT_TRUE(answered);
  }

  // So that some are handled however slow the machine is.
  void AwaitOutcomes() {
    for (int i = 0; i < 2000 && !unanswered_.empty(); ++i) world_.RunFor(Duration::Millis(1));
  }

  void Die() {
    ++deaths_;
    Log("Die");
    exporter_.reset();
    StartServer();
  }

  void Send() {
    for (uint64_t burst = 1 + rng_.Below(4); burst > 0 && channel_ != nullptr; --burst) {
      const std::string message = std::to_string(sent_ + 1);
      const std::string_view part = message;
      const size_t before = log_->size();
      Log("Send", sent_ + 1);
      if (!channel_->Send(std::span(&part, 1), sent_ + 1)) {
        log_->resize(before);
        return;
      }
      unanswered_.insert(++sent_);
    }
  }

  World& world_;
  Rng rng_;
  std::string* const log_;
  std::unique_ptr<Exporter> exporter_;
  std::string address_;
  std::unique_ptr<Channel> channel_;
  uint64_t sent_ = 0, deaths_ = 0;
  std::set<uint64_t> unanswered_;
  std::vector<uint64_t> handled_;
  Scope client_, server_;
};

void WriteTrace(const std::string& name, const std::string& log) {
  const char* const folder = std::getenv("TAILCAST_TRACE_DIR");
  if (folder == nullptr) return;
  std::ofstream file(std::string(folder) + "/channel-" + name + ".jsonl");
  file << log;
  ASSERT_TRUE(file.flush()) << "can't write a trace into " << folder;
}

void Trace(const std::string& name, World& world, uint64_t seed) {
  ASSERT_TRUE(kQuiet);
  std::string log;
  Life life(world, seed, &log);
  life.Run(30);
  EXPECT_GT(life.sent(), 15u);
  EXPECT_GT(life.handled(), life.sent() / 4);
  EXPECT_GT(life.deaths(), 0u);
  WriteTrace(name, log);
}

TEST(ChannelTraceTest, RingsInSharedMemory) {
  RealWorld world(false);
  Trace("shm", world, 1);
}
TEST(ChannelTraceTest, FramesOnASocket) {
  RealWorld world(true);
  Trace("tcp", world, 2);
}
TEST(ChannelTraceTest, TheSimulatedFabric) {
  FakeWorld world(3);
  Trace("fake", world, 3);
}
TEST(ChannelTraceTest, ThePlantedBugsOfTheSimulatedFabric) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "fault points are compiled out";
  for (const auto& [bug, name] : {std::pair("fabric.fake_handle_twice", "bug-twice"),
                                  std::pair("fabric.fake_handle_closed", "bug-closed")}) {
    const PlantedFault fault(bug);
    FakeWorld world(4);
    Trace(name, world, 4);
  }
}

}  // namespace
}  // namespace tailcast::fabric
