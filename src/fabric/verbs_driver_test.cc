// What is particular to the verbs driver's readers, and to who comes and goes.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/fabric/verbs_driver_fixture.h"

namespace tailcast::fabric {
namespace {

TEST_F(VerbsDriverTest, NoThreadOfTheServerIsWokenInAHundredThousandReads) {
  auto endpoint = Connect();
  ASSERT_NE(endpoint, nullptr);
  ReadMany(endpoint.get(), 100);
  // Its door looks once more after those that came.
  loop_.RunUntil([] { return false; }, ReadMonotonicClock() + kPeerTimeout);
  const int64_t before = Sleeps("fabric-server");
  ASSERT_GT(before, 0);
  ReadMany(endpoint.get(), 100'000);
  EXPECT_EQ(Sleeps("fabric-server"), before);
}

// Who polls makes no events, and who sleeps is woken by its own, on its own thread.
TEST_F(VerbsDriverTest, ReadsWakeNoThreadButTheOneThatWaitsForThem) {
  auto endpoint = Connect();
  ASSERT_NE(endpoint, nullptr);
  ReadMany(endpoint.get(), 100);
  loop_.RunFor(kPeerTimeout);
  const int64_t engine = Sleeps("fabric-client");
  ASSERT_GT(engine, 0);
  uint64_t word = 0;
  const ReadDescriptor one{.length = 8, .destination = reinterpret_cast<char*>(&word)};
  Completion completion;
  for (int i = 0; i < 1000; ++i) {
    endpoint->Read({&one, 1});
    while (endpoint->Poll({&completion, 1}) == 0) {
    }
    ASSERT_EQ(completion.status, ReadStatus::kOk);
  }
  // What would have armed for the first of them, had the loop been about to sleep, and no event.
  EXPECT_LE(loop_.RunOnce(), 1u);
  EXPECT_EQ(loop_.RunOnce(), 0u);
  EXPECT_LE(Sleeps("fabric-client"), engine + 2);  // it has other work now and then
  ReadMany(endpoint.get(), 1000);
  EXPECT_LE(Sleeps("fabric-client"), engine + 4);
}

TEST_F(VerbsDriverTest, ListensBesideTcpSocketsThatHaveHalfOfThePorts) {
  const char* const path = "/proc/sys/net/ipv4/ip_local_port_range";
  std::string range;
  std::getline(std::ifstream(path), range);
  // Of eight ports tcp has four.
  ASSERT_TRUE(std::ofstream(path) << "50000 50007" << std::flush);
  std::vector<Descriptor> sockets;
  for (uint16_t port = 50000; port < 50008; port += 2) {
    const SocketAddress address = ResolveNumber({.host = Host(), .port = port}).value();
    Descriptor& fd = sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(fd.get(), address.get(), address.length), 0);
    ASSERT_EQ(listen(fd.get(), 1), 0);
  }
  for (int i = 0; i < 10; ++i) {
    ExporterOptions options;
    options.verbs_host = Host();
    const auto exporter = MakeExporter(options);
    ASSERT_TRUE(exporter->AddRegion(0, 4096).ok());
    const auto addresses = exporter->Listen();
    EXPECT_TRUE(addresses.ok()) << addresses.status();
  }
  ASSERT_TRUE(std::ofstream(path) << range << std::flush);
}

TEST_F(VerbsDriverTest, ServesFiveHundredConnections) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int i = 0; i < 500; ++i) {
    endpoints.push_back(Connect());
    ASSERT_NE(endpoints.back(), nullptr) << i;
  }
  for (auto& endpoint : endpoints) ReadMany(endpoint.get(), 10);
  endpoints.clear();
  auto one_more = Connect();
  ReadMany(one_more.get(), 10);
}

// A reader asks for no more than the server has said that it answers, nor than it can itself; the
// server grants no more than was asked for, nor than it can; and the queue pairs are so.
TEST_F(VerbsDriverTest, AsManyReadsAreOnTheWireAsBothDevicesCan) {
  const struct {
    int server, client, both;
  } cases[] = {{4, 8, 4}, {8, 2, 2}, {1, 16, 1}, {16, 1, 1}};  // powers of two: rxe rounds up
  for (const auto& one : cases) {
    g_device.max_qp_rd_atom = one.server;
    g_device.max_qp_init_rd_atom = one.client;
    Serve();
    auto endpoint = Connect();
    ASSERT_NE(endpoint, nullptr);
    EXPECT_EQ(g_device.asked, one.both);
    EXPECT_EQ(g_device.granted, one.both);
    ibv_qp_attr client{}, server{};
    ibv_qp_init_attr ignored{};
    ASSERT_EQ(ibv_query_qp(g_device.client, &client, IBV_QP_MAX_QP_RD_ATOMIC, &ignored), 0);
    ASSERT_EQ(ibv_query_qp(g_device.server, &server, IBV_QP_MAX_DEST_RD_ATOMIC, &ignored), 0);
    if (!iwarp_) {  // siw says something else
      EXPECT_EQ(client.max_rd_atomic, one.both);
      EXPECT_EQ(server.max_dest_rd_atomic, one.both);
    }
    ReadMany(endpoint.get(), 1000);
    // One that asks for more than it was told.
    VerbsOffer offer = Offer();
    EXPECT_EQ(offer.head.reads_max, static_cast<uint32_t>(one.server));
    offer.head.reads_max = 16;
    RawQueuePair greedy;
    ASSERT_EQ(greedy.Connect(offer), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(g_device.asked, 16);
    EXPECT_EQ(g_device.granted, one.server);
  }
}

TEST_F(VerbsDriverTest, EachCauseOfARefusalIsCountedByItself) {
  const char* const causes[] = {"no_token", "no_queue_pair", "not_accepted", "other_device",
                                "too_many"};
  const auto only = [&](const char* expected, const std::function<void()>& refused) {
    std::vector<int64_t> before;
    for (const char* cause : causes) before.push_back(Refused(cause));
    refused();
    for (size_t i = 0; i < std::size(causes); ++i) {
      EXPECT_EQ(Refused(causes[i]) - before[i], std::string(causes[i]) == expected)
          << causes[i] << " of " << expected;
    }
  };
  const auto refuses_either = [&](const char* why) {
    for (const bool writes : {false, true}) {
      only(why, [&] {
        LetInToWrite in;
        if (writes) in = ChannelOffer();
        RawQueuePair raw;
        EXPECT_EQ(raw.Connect(writes ? in.offer : Offer()), RDMA_CM_EVENT_REJECTED);
      });
    }
  };
  const int64_t bad = BadInput();
  g_device.makes_no_queue_pairs = true;
  refuses_either("no_queue_pair");
  g_device.makes_no_queue_pairs = false;
  g_device.accepts_nothing = true;
  refuses_either("not_accepted");
  g_device.accepts_nothing = false;
  g_device.is_another_device = true;
  refuses_either("other_device");
  g_device.is_another_device = false;
  EXPECT_EQ(BadInput(), bad);
  only("no_token", [&] {
    RawQueuePair none;
    EXPECT_EQ(none.Connect(Offer(), nullptr, 0), RDMA_CM_EVENT_REJECTED);
  });
  EXPECT_EQ(BadInput(), bad + 1);
  auto endpoint = Connect();
  ReadMany(endpoint.get(), 10);
}

TEST_F(VerbsDriverTest, AQueuePairComesInWithATokenOnceAndOnlyWhileItsTcpConnectionLives) {
  const VerbsOffer offer = Offer();
  const int64_t before = BadInput();
  {
    RawQueuePair none;
    EXPECT_EQ(none.Connect(offer, nullptr, 0), RDMA_CM_EVENT_REJECTED);
    RawQueuePair guessed;
    VerbsHello hello{.magic = kVerbsMagic, .token = offer.head.token};
    hello.token[1] ^= 1;
    EXPECT_EQ(guessed.Connect(offer, &hello, sizeof(hello)), RDMA_CM_EVENT_REJECTED);
  }
  RawQueuePair good;
  EXPECT_EQ(good.Connect(offer), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(good.Do(offer, IBV_WR_RDMA_READ));
  EXPECT_EQ(std::memcmp(good.arena.data(), memory_.data(), 64), 0);
  RawQueuePair again;
  EXPECT_EQ(again.Connect(offer), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(BadInput(), before + 3);
  // The next offer ends the tcp connection of this one, and the queue pair with it.
  Offer();
  good.Next();
  EXPECT_EQ(good.last, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(good.Do(offer, IBV_WR_RDMA_READ));
}

TEST_F(VerbsDriverTest, AnUnusedTokenEndsWithItsTcpConnection) {
  const VerbsOffer first = Offer();
  const VerbsOffer second = Offer();
  EXPECT_NE(first.head.token, second.head.token);
  RawQueuePair late;
  EXPECT_EQ(late.Connect(first), RDMA_CM_EVENT_REJECTED);
}

TEST_F(VerbsDriverTest, AReaderCannotWrite) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND}) {
    const VerbsOffer offer = Offer();
    const std::string before(memory_.data(), kRegionBytes);
    RawQueuePair reader;
    ASSERT_EQ(reader.Connect(offer), RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_TRUE(reader.Do(offer, IBV_WR_RDMA_READ));
    reader.arena.assign(reader.arena.size(), '!');
    reader.Do(offer, opcode);  // iWARP calls a write done when it was sent
    auto honest = Connect();
    ReadMany(honest.get(), 10);
    EXPECT_EQ(std::string(memory_.data(), kRegionBytes), before);
  }
}

TEST_F(VerbsDriverTest, KeysEndWhenTheServerInvalidates) {
  const VerbsOffer old = Offer();
  exporter_->Invalidate();
  exporter_->Renew();
  const VerbsOffer fresh = Offer();
  RawQueuePair reader;
  ASSERT_EQ(reader.Connect(fresh), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(reader.Do(fresh, IBV_WR_RDMA_READ));
  EXPECT_FALSE(reader.Do(old, IBV_WR_RDMA_READ));
}

// The loopback device carries what this host sends to itself, also by RDMA.
TEST_F(VerbsDriverTest, OverACutNetworkReadsTimeOutAndTheConnectionIsGivenUp) {
  auto endpoint = Connect();
  ReadMany(endpoint.get(), 10);
  endpoint->set_read_timeout(Duration::Millis(100));
  ASSERT_EQ(std::system("ip link set lo down"), 0);
  uint64_t word = 0;
  const auto read = [&] {
    const ReadDescriptor one{.length = 8, .destination = reinterpret_cast<char*>(&word)};
    endpoint->Read({&one, 1});
    Completion completion;
    EXPECT_TRUE(Until([&] { return endpoint->Poll({&completion, 1}) == 1; }));
    return completion.status;
  };
  ReadStatus status = read();
  // rxe carries what it sends to itself, and learns of the cut by the tcp connection alone.
  EXPECT_EQ(status, iwarp_ ? ReadStatus::kTimeout : ReadStatus::kOk);
  EXPECT_TRUE(endpoint->connected());
  const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(10);
  while (status != ReadStatus::kUnreachable && ReadMonotonicClock() < end) status = read();
  EXPECT_EQ(status, ReadStatus::kUnreachable);
  EXPECT_FALSE(endpoint->connected());
  ASSERT_EQ(std::system("ip link set lo up"), 0);
  auto again = Connect();
  ReadMany(again.get(), 10);
}

TEST_F(VerbsDriverTest, WhoLeavesIsNoBadInput) {
  const auto descriptors = [] {
    std::vector<std::string> all;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the iterator's own
      all.push_back(std::filesystem::read_symlink(one.path(), gone).string());
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const int64_t bad = BadInput();
  ReadMany(Connect().get(), 1);
  ASSERT_NE(Open(address_), nullptr);
  loop_.RunFor(Duration::Millis(200));  // what is made once is there, what left is gone
  const auto before = descriptors();
  for (int i = 0; i < 10; ++i) {
    auto endpoint = Connect();
    auto client = Open(address_);
    ReadMany(endpoint.get(), 10);
    ASSERT_TRUE(client->Send("unanswered, perhaps"));
    ASSERT_GT(descriptors().size(), before.size());
    client = nullptr;
    endpoint = nullptr;
    const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(10);
    while (descriptors().size() > before.size() && ReadMonotonicClock() < end) {
      loop_.RunFor(Duration::Millis(1));
    }
    const std::vector<std::string> after = descriptors();
    ASSERT_LE(after.size(), before.size())
        << "the server has not let go: there are " << testing::PrintToString(after)
        << ", there were " << testing::PrintToString(before);
  }
  EXPECT_EQ(BadInput(), bad);
}

// What a hostile client costs an honest reader. This kernel has one CPU, so a hostile client takes
// from the reader what it needs itself, which one on another host would not. That is measured
// apart: the same client does the same to a port that nobody serves. What the server adds is at
// most as much again. (hostile_test.cc has more of them at the tcp door, which is the same, and
// they have a CPU of their own there.)
class VerbsHostile : public VerbsDriverTest {
 protected:
  // p99 of a read, in microseconds.
  int64_t ReadFor(Endpoint* endpoint, Duration round) {
    std::vector<int64_t> micros;
    char buffer[64];
    const MonotonicTime end = ReadMonotonicClock() + round;
    while (ReadMonotonicClock() < end) {
      const MonotonicTime begin = ReadMonotonicClock();
      const ReadDescriptor one{.length = sizeof(buffer), .offset = 4096, .destination = buffer};
      endpoint->Read({&one, 1});
      Completion completion;
      EXPECT_TRUE(Until([&] { return endpoint->Poll({&completion, 1}) == 1; }));
      EXPECT_EQ(completion.status, ReadStatus::kOk);
      EXPECT_EQ(std::memcmp(buffer, memory_.data() + 4096, sizeof(buffer)), 0);
      micros.push_back((ReadMonotonicClock() - begin).micros());
    }
    std::sort(micros.begin(), micros.end());
    return micros[micros.size() * 99 / 100];
  }
  // The same while `turn` is done again and again.
  int64_t ReadAttacked(Endpoint* endpoint, Duration round, const std::function<void()>& turn) {
    std::atomic<bool> stop = false;
    std::atomic<int> turns = 0;
    std::thread attacker([&] {
      while (!stop) {
        turn();
        ++turns;
        poll(nullptr, 0, 2);  // as one host would, with the time its packets take
      }
    });
    const int64_t p99 = ReadFor(endpoint, round);
    stop = true;
    attacker.join();
    EXPECT_GT(turns, 0);
    return p99;
  }
  // `turn(served)`: to the server, or to ports that nobody serves.
  void CostsAtMostTwice(const char* name, const std::function<void(bool served)>& turn) {
    auto endpoint = Connect();
    constexpr Duration kRound = Duration::Millis(300);
    int64_t calm = INT64_MAX, control = INT64_MAX, attacked = INT64_MAX;
    for (int round = 0; round < 3 || (round < 7 && attacked > 2 * control); ++round) {
      calm = std::min(calm, ReadFor(endpoint.get(), kRound));
      control =
          std::min(control, ReadAttacked(endpoint.get(), kRound, [&] { turn(/*served=*/false); }));
      attacked =
          std::min(attacked, ReadAttacked(endpoint.get(), kRound, [&] { turn(/*served=*/true); }));
    }
    std::printf("%s: p99 %lld us, %lld us of the same to nobody, %lld us without: %.2f\n", name,
                static_cast<long long>(attacked), static_cast<long long>(control),
                static_cast<long long>(calm),
                static_cast<double>(attacked) / static_cast<double>(control));
    EXPECT_LE(attacked, 2 * control);
    ReadMany(Connect().get(), 10);
  }
};

TEST_F(VerbsHostile, WhoSaysNoiseAtItsDoorCostsHonestReadersAtMostTwiceTheirP99) {
  const std::string where = address_.substr(6, address_.rfind('#') - 6);
  const SocketAddress door = ResolveNumber(ParseHostPort(where).value()).value();
  // Their kernel shakes hands, and that is all.
  Descriptor nobody(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress beside = ResolveNumber({.host = Host(), .port = 0}).value();
  ASSERT_EQ(bind(nobody.get(), beside.get(), beside.length), 0);
  ASSERT_EQ(listen(nobody.get(), 4096), 0);
  ASSERT_EQ(getsockname(nobody.get(), beside.get(), &beside.length), 0);
  CostsAtMostTwice("noise", [&](bool served) {
    const SocketAddress& at = served ? door : beside;
    for (int i = 0; i < 4; ++i) {
      const Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(fd.get(), at.get(), at.length) != 0) break;
      [[maybe_unused]] const ssize_t n = send(fd.get(), "noise", 5, MSG_NOSIGNAL);
    }
  });
}

TEST_F(VerbsHostile, WhoHasNoTokenCostsHonestReadersAtMostTwiceTheirP99) {
  const VerbsOffer offer = Offer();
  VerbsOffer nobody = offer;
  nobody.head.port = 1;
  CostsAtMostTwice("no token", [&](bool served) {
    RawQueuePair none;
    none.Connect(served ? offer : nobody, nullptr, 0);
  });
}

}  // namespace
}  // namespace tailcast::fabric
