// The client over the real fabric drivers, with servers that change their memory at the same time
// in other threads: what is torn here is torn by the machine.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client.h"
#include "tailcast/cache/test_cell.h"
#include "tailcast/fabric/raw_sockets.h"

namespace tailcast::cache {
namespace {

const bool kQuiet = SetLogLevels("off").ok();

Key KeyOf(uint64_t n) {
  Rng rng(n + 5);
  return {rng.Next(), rng.Next()};
}
std::string Final(uint64_t n) {
  std::string bytes(4096, '\0');
  Rng rng(n * 7 + 1);
  for (char& c : bytes) c = static_cast<char>(rng.Next());
  return bytes;
}
std::string Lanes(uint64_t value, size_t count) {
  const std::vector<uint64_t> lanes(count, value);
  return std::string(reinterpret_cast<const char*>(lanes.data()), count * 8);
}

class RealFabricTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(kQuiet); }
  const std::string& driver() const { return GetParam(); }
};
std::vector<std::string> Drivers() {
  std::vector<std::string> drivers = {"shm", "tcp"};
  if (std::getenv("TAILCAST_TEST_VERBS_HOST") != nullptr) drivers.emplace_back("verbs");
  return drivers;
}
INSTANTIATE_TEST_SUITE_P(Driver, RealFabricTest, testing::ValuesIn(Drivers()),
                         [](const auto& info) { return info.param; });

// A client on a loop of the test's thread.
struct Reader {
  explicit Reader(const RingConfig& config, const QuorumClientOptions& options = {})
      : fabric(fabric::MakeConnector(&loop)),
        rpc(rpc::MakeGrpcConnector(loop)),
        client(std::make_unique<QuorumClient>(&loop, fabric.get(), rpc.get(), options, config)) {}
  ~Reader() { client.reset(); }
  bool Until(const std::function<bool()>& done) {
    return loop.RunUntil(done, loop.Now() + Duration::Seconds(30));
  }
  Status Mutate(std::vector<Mutation> mutations) {
    std::optional<Status> result;
    client->Mutate(std::move(mutations), Duration::Seconds(5),
                   scope.Bind([&](Status s) { result = s; }));
    if (!Until([&] { return result.has_value(); })) return InternalError("no answer");
    return *result;
  }
  const Scope scope;
  ThreadLoop loop;
  std::unique_ptr<fabric::Connector> fabric;
  std::unique_ptr<rpc::Connector> rpc;
  std::unique_ptr<QuorumClient> client;
};

TEST_P(RealFabricTest, ReadsWhatIsWrittenWhileItIsWritten) {
  const Scope scope;
  // An erased value's slot rests for a second, and tens of thousands are written in one.
  TestCell cell(3, 64 << 20, driver());
  Reader reader(cell.config());
  constexpr uint64_t kKeys = 32;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> lengths[kKeys] = {};
  std::thread writer([&] {
    Reader own(cell.config());
    Rng rng(1);
    while (!stop.load()) {
      std::vector<Mutation> mutations;
      std::vector<std::pair<uint64_t, uint64_t>> grown;
      for (int i = 0; i < 8; ++i) {
        const uint64_t n = rng.Below(kKeys);
        if (rng.Chance(0.01)) {
          mutations.push_back({KeyOf(n), MergeRule::kLongerWins, true, ""});
          continue;
        }
        const uint64_t length = std::min<uint64_t>(4096, lengths[n].load() + 1 + rng.Below(1000));
        grown.emplace_back(n, length);
        mutations.push_back({KeyOf(n), MergeRule::kLongerWins, false, Final(n).substr(0, length)});
      }
      const Status written = own.Mutate(std::move(mutations));
      ASSERT_TRUE(written.ok()) << written.ToString();
      for (const auto& [n, length] : grown) lengths[n].store(length);
    }
  });
  ASSERT_TRUE(reader.Until([&] { return reader.client->ready_replicas() == 3; }));
  Rng rng(2);
  std::vector<char> buffer(4096);
  uint64_t bytes = 0, hits = 0;
  std::vector<std::string> truth;
  for (uint64_t n = 0; n < kKeys; ++n) truth.push_back(Final(n));
  constexpr uint64_t kHits = 100, kBytes = 100000;
  const MonotonicTime begin = ReadMonotonicClock();
  // Longer on a busy machine, until it has seen something.
  const auto enough = [&] {
    const Duration passed = ReadMonotonicClock() - begin;
    return passed > Duration::Seconds(30) ||
           (passed > Duration::Millis(1500) && hits > kHits && bytes > kBytes);
  };
  while (!enough()) {
    const uint64_t n = rng.Below(kKeys);
    ChunkRead read{KeyOf(n), 0, static_cast<uint32_t>(std::max<uint64_t>(lengths[n].load(), 1)),
                   4096, buffer.data()};
    if (!reader.client->TryReadChunks(std::span(&read, 1))) {
      bool done = false;
      reader.client->ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, Duration::Millis(500),
                                scope.Bind([&] { done = true; }));
      ASSERT_TRUE(reader.Until([&] { return done; }));
    }
    ASSERT_EQ(truth[n].compare(0, read.length, buffer.data(), read.length), 0);
    ASSERT_EQ(read.crc, Crc32cExtend(0, truth[n].data(), read.length));
    bytes += read.length;
    hits += read.length >= read.want ? 1 : 0;
  }
  stop = true;
  writer.join();
  EXPECT_GT(hits, kHits);
  EXPECT_GT(bytes, kBytes);
  EXPECT_EQ(reader.client->counters().mismatches(), 0u);
}

TEST_P(RealFabricTest, WritesGoOverChannelsAndNobodyIsCalled) {
  TestCell cell(3, 64 << 20, driver());
  Reader writer(cell.config());
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < 500; ++n) {
    mutations.push_back({KeyOf(n), MergeRule::kLongerWins, false, Final(n)});
  }
  ASSERT_TRUE(writer.Mutate(mutations).ok());
  const ClientCounters& counters = writer.client->counters();
  // To the two that the quorum waited for, at least.
  EXPECT_GE(counters.write_messages, 2u * 500 * 4096 / fabric::kMessageBytesMax);
  EXPECT_EQ(counters.write_calls, 0u);
  EXPECT_EQ(counters.channel_failed, 0u);
}

TEST_P(RealFabricTest, DoorbellsNotifyOfEveryChangeThatIsWaitedFor) {
  const Scope scope;
  TestCell cell(3, 16 << 20, driver());
  Reader reader(cell.config());
  const Key key = KeyOf(1);
  constexpr uint64_t kRounds = 200;
  ASSERT_TRUE(reader.Mutate({{key, MergeRule::kMaxLanes, false, Lanes(1, 128)}}).ok());
  ASSERT_TRUE(reader.Until([&] { return reader.client->ready_replicas() == 3; }));
  // A change is acknowledged when two replicas have it. A client that is destroyed right then may
  // take it back from the third, which may be the one that is watched: this one stays until all is
  // seen.
  Reader own(cell.config());
  std::atomic<bool> all_seen{false};
  std::thread writer([&] {
    for (uint64_t i = 2; i <= kRounds; ++i) {
      const Status written = own.Mutate({{key, MergeRule::kMaxLanes, false, Lanes(i, 128)}});
      ASSERT_TRUE(written.ok()) << written.ToString();
    }
    own.Until([&] { return all_seen.load(); });
  });
  uint64_t seen = 0, notifications = 0, refused = 0, timeouts = 0;
  bool wrong = false;
  std::function<void()> look = [&] {
    reader.client->ReadValues(
        {{key, MergeRule::kMaxLanes}}, Duration::Millis(500), scope.Bind([&](auto values) {
          if (values.ok() && (*values)[0].has_value()) {
            const std::string& value = *(*values)[0];
            uint64_t now = 0;
            std::memcpy(&now, value.data(), 8);
            // Whole values only: all lanes are written together.
            wrong = wrong || value != Lanes(now, 128) || now < seen;
            seen = now;
          }
          if (seen == kRounds) return;
          const MonotonicTime begin = reader.loop.Now();
          reader.client->WatchValue(key, Duration::Seconds(5), scope.Bind([&, begin](bool watched) {
            ++(watched ? notifications : refused);
            timeouts += reader.loop.Now() - begin > Duration::Seconds(4) ? 1 : 0;
            look();
          }));
        }));
  };
  look();
  EXPECT_TRUE(reader.Until([&] { return seen == kRounds; }));
  all_seen = true;
  own.loop.Post(scope.Bind([] {}));
  writer.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(refused, 0u);
  EXPECT_EQ(timeouts, 0u);
  EXPECT_GT(notifications, 0u);
}

// Between a client and the tcp door of a server, for one connection at a time: passes on what both
// say, until the server is made silent.
class Relay {
 public:
  // `address`: the door's, "tcp:127.0.0.1:port#id".
  explicit Relay(const std::string& address)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any = fabric::Loopback(0);
    socklen_t length = sizeof any;
    TAILCAST_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), length) == 0);
    TAILCAST_CHECK(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &length) == 0);
    TAILCAST_CHECK(listen(listener_.get(), 1) == 0);
    const size_t id = address.find('#'), port = address.rfind(':', id) + 1;
    address_ = address.substr(0, port) + std::to_string(ntohs(any.sin_port)) + address.substr(id);
    const auto server = static_cast<uint16_t>(std::stoi(address.substr(port, id - port)));
    thread_ = std::thread([this, server] {
      for (int fd; (fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        PassOn(fabric::Socket(fd), server);
      }
    });
  }
  // The client's end of the connection is closed by now.
  ~Relay() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const std::string& address() const { return address_; }
  void Silence() { silent_ = true; }

 private:
  void PassOn(const fabric::Socket& client, uint16_t port) {
    const fabric::Socket server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    TAILCAST_CHECK(fabric::Connected(server, fabric::Loopback(port)));
    std::array<pollfd, 2> ends = {pollfd{client.get(), POLLIN, 0}, pollfd{server.get(), POLLIN, 0}};
    std::array<char, 65536> bytes;
    for (;;) {
      TAILCAST_CHECK(poll(ends.data(), ends.size(), -1) > 0);
      for (size_t i = 0; i < ends.size(); ++i) {
        if (ends[i].revents == 0) continue;
        const ssize_t n = recv(ends[i].fd, bytes.data(), bytes.size(), 0);
        if (n <= 0) return;
        if (i == 1 && silent_) continue;
        (i == 0 ? server : client).Send({bytes.data(), static_cast<size_t>(n)});
      }
    }
  }

  const fabric::Socket listener_;
  std::string address_;
  std::atomic<bool> silent_ = false;
  std::thread thread_;
};

// A client whose thread does not run until the time of its reads is over: what is not finished is
// late, and nobody else is asked.
class LateThreadTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kQuiet); }
  // Of one server, each after the one before was sent.
  void ReadAndComeBackLate(Reader& reader, size_t count) {
    std::vector<std::array<char, 4096>> buffers(count);
    std::vector<ChunkRead> reads(count);
    size_t ended = 0;
    for (size_t i = 0; i < count; ++i) {
      reads[i] = {KeyOf(1), 0, 1, 4096, buffers[i].data()};
      reader.client->ReadChunks(std::span(&reads[i], 1), ReadMode::kRelaxed, kReadDeadlineMax,
                                scope_.Bind([&] { ++ended; }));
      reader.loop.RunOnce();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(kReadDeadlineMax.micros()));
    ASSERT_TRUE(reader.Until([&] { return ended == count; }));
    for (const ChunkRead& read : reads) EXPECT_TRUE(read.late);
    const ClientCounters& counters = reader.client->counters();
    EXPECT_EQ(counters.read_deadline, count);
    EXPECT_EQ(counters.widened_reads, 0u);
    EXPECT_EQ(counters.hedges, 0u);
  }

  TestCell cell_{3, 16 << 20, "tcp"};
  // Not before the thread is held, on a busy machine either.
  const QuorumClientOptions options_{.hedge_delay = Duration::Millis(300)};
  const Scope scope_;
};

TEST_F(LateThreadTest, WhatFailedMeanwhileIsLate) {
  for (const size_t replicas : {3, 1}) {
    RingConfig config = cell_.config();
    config.replicas.resize(replicas);
    std::vector<std::unique_ptr<Relay>> relays;
    for (auto& replica : config.replicas) {
      relays.push_back(std::make_unique<Relay>(replica.fabric_addresses.at(0)));
      replica.fabric_addresses = {relays.back()->address()};
    }
    Reader reader(config, options_);
    ASSERT_TRUE(reader.Until([&] { return reader.client->ready_replicas() == replicas; }));
    for (auto& relay : relays) relay->Silence();
    // The fabric gives both up together, before the second one's time is over.
    ReadAndComeBackLate(reader, 2);
    EXPECT_GE(reader.client->counters().read_timeout, 1u);
  }
}

// No such chunk: in time the others would be asked whether they have it.
TEST_F(LateThreadTest, AnAnswerThatDoesNotEndTheReadIsTheLast) {
  Reader reader(cell_.config(), options_);
  ASSERT_TRUE(reader.Until([&] { return reader.client->ready_replicas() == 3; }));
  ReadAndComeBackLate(reader, 1);
  EXPECT_EQ(reader.client->counters().read_timeout, 0u);
}

}  // namespace
}  // namespace tailcast::cache
