// What is particular to message channels by RDMA.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/fabric/verbs_driver_fixture.h"
#include "tailcast/fabric/verbs_link.h"
#include "tailcast/fabric/verbs_messages_core.h"

namespace tailcast::fabric {
namespace {

// Memory that devices have locked of this process, as the kernel counts it.
int64_t PinnedBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmPin:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}
// SENDs that were put off because there was no buffer. rxe's.
int64_t PutOff() {
  int64_t count = 0;
  std::ifstream("/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_rnr_err") >> count;
  return count;
}
int64_t Value(const char* name) { return ProcessMetrics().Total(name); }
int64_t Locked(const char* buffers) {
  return ProcessMetrics().Value("tailcast_fabric_channel_locked_bytes", {{"buffers", buffers}});
}
int64_t Lost() { return Value("tailcast_fabric_channel_buffers_lost"); }

class VerbsChannelTest : public VerbsDriverTest {
 protected:
  // Whether this device's channels share their buffers.
  bool shares() const { return !iwarp_ && !g_device.makes_no_shared_queues; }
  // What a client's end locks: whole pages.
  static constexpr int64_t kClientBytes =
      (int64_t{kVerbsClientReceives + VerbsLink::kSlots} * kVerbsPacketBytes + 4095) / 4096 * 4096;

  // A server on a thread of its own, which handles nothing while it is `busy`. It looks after slow
  // clients so seldom that no test sees it.
  struct Busy {
    LoopThread thread{"served"};
    std::unique_ptr<Exporter> exporter;
    std::string address;
    std::atomic<bool> busy = false;
    Scope scope;
    ~Busy() {
      busy = false;
      thread.Call([&] {
        exporter.reset();
        scope.End();
      });
    }
  };
  std::unique_ptr<Busy> ServeBusy() {
    auto server = std::make_unique<Busy>();
    ExporterOptions options;
    options.verbs_host = Host();
    options.peer_timeout = Duration::Seconds(60);
    options.loop = server->thread.loop();
    server->exporter = MakeExporter(options);
    EXPECT_TRUE(server->exporter->AddRegion(0, 4096).ok());
    server->exporter->ServeMessages(
        server->scope.Bind([one = server.get()](std::string_view message, std::string& answer) {
          while (one->busy) poll(nullptr, 0, 1);
          answer = message.substr(0, 100);
        }));
    server->address = server->exporter->Listen().value().front();
    return server;
  }
  using Clients = std::vector<std::unique_ptr<Client>>;
  Clients OpenMany(const std::string& address, int count) {
    Clients clients;
    for (int i = 0; i < count; ++i) {
      clients.push_back(Open(address));
      EXPECT_NE(clients.back(), nullptr) << i;
    }
    return clients;
  }
  // Each sends as many as it may.
  static void Flood(const Clients& clients, const std::string& message) {
    for (const auto& client : clients) {
      client->answers = 0;
      while (client->Send(message)) {
      }
    }
  }
  bool AllAnswered(const Clients& clients, uint64_t each) {
    return Until([&] {
      return std::all_of(clients.begin(), clients.end(),
                         [&](const auto& client) { return client->answers == each; });
    });
  }
  // A SEND of which the second packet on the wire never comes: its memory is not this client's.
  void SendHalf(RawQueuePair& raw) {
    VerbsPacket head{kVerbsPayloadBytes, 0, 1, 0, 0};
    std::memcpy(raw.arena.data(), &head, sizeof(head));
    ibv_sge places[2] = {{.addr = reinterpret_cast<uintptr_t>(raw.arena.data()),
                          .length = 4096,
                          .lkey = raw.key->lkey},
                         {.addr = reinterpret_cast<uintptr_t>(raw.arena.data()),
                          .length = kVerbsPacketBytes - 4096,
                          .lkey = raw.key->lkey ^ 0x5500}};
    ibv_send_wr work{};
    work.sg_list = places;
    work.num_sge = 2;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(raw.id->qp, &work, &bad), 0);
    ibv_wc done{};  // IBV_WC_SUCCESS
    const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(10);
    while (ibv_poll_cq(raw.cq.get(), 1, &done) == 0 && ReadMonotonicClock() < end) {
    }
    ASSERT_NE(done.status, IBV_WC_SUCCESS);
  }
};

TEST_F(VerbsChannelTest, ServesFiveHundredMessageChannels) {
  constexpr int kClients = 500;
  exporter_ = nullptr;
  const int64_t nobody = PinnedBytes();
  // With buffers for each it was made of, too.
  for (const bool own : {true, false}) {
    g_device.makes_no_shared_queues = own;
    if (!own && !shares()) break;
    exporter_ = nullptr;
    // The device lets go of what the clients before these had when they are gone, not at once.
    ASSERT_TRUE(Until([&] { return PinnedBytes() <= nobody; }));
    Serve();
    const int64_t before = PinnedBytes();
    const Clients clients = OpenMany(address_, kClients);
    ASSERT_FALSE(testing::Test::HasFailure());
    const int64_t each = (PinnedBytes() - before) / kClients - kClientBytes;
    const int64_t locked = (Locked("own") + Locked("shared")) / kClients;
    // What each costs the server (README), beside what its device needs for a queue pair.
    EXPECT_LT(each, own ? 340'000 : 110'000);
    EXPECT_NEAR(static_cast<double>(each), static_cast<double>(locked), 5000);
    const std::string long_one(20'000, 'm');
    const MonotonicTime begin = ReadMonotonicClock();
    for (uint64_t round = 1; round <= 2; ++round) {
      for (const auto& client : clients) {
        ASSERT_TRUE(client->Send("short"));
        ASSERT_TRUE(client->Send(long_one));
      }
      ASSERT_TRUE(AllAnswered(clients, 2 * round));
    }
    const Duration small = ReadMonotonicClock() - begin;
    for (const auto& client : clients) ASSERT_FALSE(client->broken);
    const int64_t put_off = PutOff();
    const MonotonicTime flood = ReadMonotonicClock();
    Flood(clients, std::string(4096, 'm'));
    ASSERT_TRUE(AllAnswered(clients, kMessageWindow));
    std::printf(
        "%s buffers: the server locks %lld bytes for each of %d channels; 2,000 messages "
        "in %lld ms; %d of 4 KiB at once in %lld ms, %lld put off\n",
        own ? "own" : "shared", static_cast<long long>(each), kClients,
        static_cast<long long>(small.millis()), kClients * static_cast<int>(kMessageWindow),
        static_cast<long long>((ReadMonotonicClock() - flood).millis()),
        static_cast<long long>(PutOff() - put_off));
  }
  auto one_more = Open(address_);
  ASSERT_TRUE(one_more->Send("m"));
  EXPECT_TRUE(Until([&] { return one_more->answers == 1; }));
}

// Where buffers are shared a client repeats what found none, and soon; elsewhere each SEND finds
// one.
TEST_F(VerbsChannelTest, SendersWaitForBuffersWhereBuffersAreShared) {
  for (const bool own : {false, true}) {
    g_device.makes_no_shared_queues = own;
    Serve();
    auto client = Open(address_);
    ASSERT_NE(client, nullptr);
    ibv_qp_attr sends{}, receives{};
    ibv_qp_init_attr ignored{};
    ASSERT_EQ(ibv_query_qp(g_device.client, &sends, IBV_QP_RNR_RETRY, &ignored), 0);
    const auto query = [&] {
      return ibv_query_qp(g_device.server, &receives, IBV_QP_MIN_RNR_TIMER, &ignored);
    };
    ASSERT_EQ(query(), 0);
    EXPECT_EQ(ignored.srq != nullptr, shares());
    if (iwarp_) continue;
    EXPECT_EQ(sends.rnr_retry, shares() ? 7 : 0);
    // The server sets it when it has accepted.
    EXPECT_TRUE(Until([&] { return query() == 0 && (receives.min_rnr_timer == 12) == shares(); }));
  }
}

// The shared queue is empty for a while: the loop handles one message, and nobody looks.
TEST_F(VerbsChannelTest, WhereThereIsNoBufferSendersAreDelayedAndNothingIsLost) {
  g_device.tells_nothing = true;
  auto server = ServeBusy();
  const Clients clients = OpenMany(server->address, 8);
  ASSERT_FALSE(testing::Test::HasFailure());
  const int64_t before = PutOff();
  server->busy = true;
  Flood(clients, std::string(1000, 'm'));
  loop_.RunFor(Duration::Millis(700));
  if (shares()) {
    EXPECT_GT(PutOff(), before);
  }
  for (const auto& client : clients) EXPECT_EQ(client->answers, 0u);
  server->busy = false;
  EXPECT_TRUE(AllAnswered(clients, kMessageWindow));
  for (const auto& client : clients) EXPECT_FALSE(client->broken);
}

// Packets that do not end a message wake nobody: when they have taken the buffers the device says
// so.
TEST_F(VerbsChannelTest, WhoHasTakenAllBuffersWithoutAnEndGivesThemBack) {
  auto server = ServeBusy();
  const Clients clients = OpenMany(server->address, 24);
  ASSERT_FALSE(testing::Test::HasFailure());
  const int64_t low = Value("tailcast_fabric_channel_buffers_low_total");
  for (const auto& client : clients) ASSERT_TRUE(client->Send(std::string(kMessageBytesMax, 'm')));
  EXPECT_TRUE(AllAnswered(clients, 1));
  EXPECT_EQ(Value("tailcast_fabric_channel_buffers_low_total") > low, shares());
  for (const auto& client : clients) EXPECT_FALSE(client->broken);
}

// What a queue pair took along is made up for. When that has been much, new channels have buffers
// of their own, until the last one has gone that shared the others.
TEST_F(VerbsChannelTest, BuffersThatQueuePairsTakeAlongAreMadeUpFor) {
  if (!shares()) GTEST_SKIP() << "each has its own";
  const int64_t none = Lost();
  auto honest = Open(address_);
  ASSERT_NE(honest, nullptr);
  const auto leave_in_mid_packet = [&](int times) {
    for (int i = 0; i < times; ++i) {
      LetInToWrite in = ChannelOffer();
      RawQueuePair raw;
      ASSERT_EQ(ConnectRaw(raw, in.offer), RDMA_CM_EVENT_ESTABLISHED);
      SendHalf(raw);
    }
  };
  const auto goes_on = [&](int clients) {
    const Clients others = OpenMany(address_, clients);
    Flood(others, std::string(2000, 'm'));
    EXPECT_TRUE(AllAnswered(others, kMessageWindow));
    honest->answers = 0;
    ASSERT_TRUE(honest->Send("m"));
    EXPECT_TRUE(Until([&] { return honest->answers == 1; }));
  };
  leave_in_mid_packet(100);
  goes_on(4);
  loop_.RunFor(kPeerTimeout + Duration::Millis(100));
  goes_on(4);
  loop_.RunFor(kPeerTimeout + Duration::Millis(100));
  goes_on(4);
  EXPECT_GE(Lost(), none + 100);
  EXPECT_LE(Lost(), none + 110);
  leave_in_mid_packet(160);
  for (int i = 0; i < 2; ++i) {
    goes_on(1);
    loop_.RunFor(kPeerTimeout + Duration::Millis(100));
  }
  const int64_t own = Locked("own");
  auto late = Open(address_);
  EXPECT_GT(Locked("own"), own + 300'000);
  goes_on(4);
  honest = nullptr;
  late = nullptr;
  EXPECT_TRUE(Until([&] { return Lost() == none; }));
  honest = Open(address_);
  EXPECT_LT(Locked("own"), own + 300'000);
  goes_on(4);
}

// Its loop is woken once for a message that comes alone, and not for its answer, which it sends;
// its engines not at all.
TEST_F(VerbsChannelTest, AServerIsWokenForMessagesAndForNothingElse) {
  LoopThread served("served");
  ExporterOptions options;
  options.verbs_host = Host();
  options.peer_timeout = kPeerTimeout;
  options.loop = served.loop();
  auto exporter = MakeExporter(options);
  ASSERT_TRUE(exporter->AddRegion(0, 4096).ok());
  exporter->ServeMessages(
      scope_.Bind([](std::string_view message, std::string& answer) { answer = message; }));
  const std::string address = exporter->Listen().value().front();
  auto client = Open(address);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Send("first"));
  ASSERT_TRUE(Until([&] { return client->answers == 1; }));
  const int64_t before = Sleeps("served");
  const int64_t engines = Sleeps("fabric-server");
  constexpr int64_t kMessages = 500;
  for (int64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(client->Send("m"));
    ASSERT_TRUE(Until([&] { return client->answers == static_cast<uint64_t>(2 + i); }));
  }
  const int64_t sleeps = Sleeps("served") - before;
  EXPECT_GT(sleeps, 0);  // on a busy machine the next message is there before it sleeps
  EXPECT_LE(sleeps, kMessages * 5 / 4);
  EXPECT_EQ(Sleeps("fabric-server"), engines);
  client = nullptr;
  served.Call([&] { exporter.reset(); });
}

TEST_F(VerbsChannelTest, WhoBreaksTheChannelsProtocolLosesHisOwnChannel) {
  auto honest = Open(address_);
  ASSERT_NE(honest, nullptr);
  const struct {
    VerbsPacket head;
    bool good;
  } cases[] = {
      {{48, 0, 1, 0, 0}, true},   {{47, 0, 1, 0, 0}, false}, {{~uint32_t{0}, 0, 1, 0, 0}, false},
      {{48, 0, 1, 0, 7}, false},  {{48, 0, 0, 0, 0}, false}, {{48, 9, 1, 0, 0}, false},
      {{48, 0, 1, 77, 0}, false},
  };
  for (const auto& one : cases) {
    const int64_t bad = BadInput();
    const uint64_t handled = handled_;
    LetInToWrite in = ChannelOffer();
    RawQueuePair raw;
    ASSERT_EQ(ConnectRaw(raw, in.offer), RDMA_CM_EVENT_ESTABLISHED);
    std::memcpy(raw.arena.data(), &one.head, sizeof(one.head));
    EXPECT_TRUE(raw.Do(in.offer, IBV_WR_SEND, IBV_SEND_SOLICITED));
    if (one.good) {
      EXPECT_TRUE(Until([&] { return handled_ == handled + 1; }));
      EXPECT_EQ(BadInput(), bad);
    } else {
      EXPECT_TRUE(HungUp(in.tcp)) << &one - cases;
      EXPECT_EQ(BadInput(), bad + 1);
      EXPECT_EQ(handled_, handled);
    }
  }
  honest->answers = 0;
  ASSERT_TRUE(honest->Send("honest"));
  EXPECT_TRUE(Until([&] { return honest->answers == 1; }));
}

// More SENDs than it has credits for, while the server's loop is busy, with and without an end that
// wakes it: those are handled that had a buffer, or one that was posted again when the engine
// looked after slow clients, or few were left of those that are shared.
TEST_F(VerbsChannelTest, FloodsWithoutCreditsEndTheFloodersChannelsAlone) {
  for (const bool own : {false, true}) {
    g_device.makes_no_shared_queues = own;
    Serve();
    auto honest = Open(address_);
    ASSERT_NE(honest, nullptr);
    for (const unsigned flags : {unsigned{IBV_SEND_SOLICITED}, 0u}) {
      SCOPED_TRACE(std::string(own ? "own" : "shared") + (flags != 0 ? ", waking" : ""));
      const int64_t bad = BadInput();
      handled_ = 0;
      LetInToWrite in = ChannelOffer();
      RawQueuePair raw;
      ASSERT_EQ(ConnectRaw(raw, in.offer), RDMA_CM_EVENT_ESTABLISHED);
      VerbsPacket head{48, 0, 1, 0, 0};
      bool sent = true;
      for (; sent && head.number < 4 * kVerbsServerReceives; ++head.number) {
        std::memcpy(raw.arena.data(), &head, sizeof(head));
        sent = raw.Do(in.offer, IBV_WR_SEND, flags);
      }
      // iWARP calls a SEND done when it was sent.
      if (!iwarp_) {
        EXPECT_LE(head.number, 2 * kVerbsServerReceives + 1);
      }
      EXPECT_TRUE(HungUp(in.tcp));
      EXPECT_LE(handled_, 2 * kVerbsServerReceives);
      if (shares()) {
        EXPECT_EQ(BadInput(), bad + 1);
      }
      honest->answers = 0;
      for (int i = 0; i < 10; ++i) ASSERT_TRUE(honest->Send("honest"));
      EXPECT_TRUE(Until([&] { return honest->answers == 10; }));
      EXPECT_FALSE(honest->broken);
    }
  }
}

// Many flooders at a time, who together may hold more than all buffers, beside honest clients.
TEST_F(VerbsChannelTest, ManyFloodersDelayHonestClientsAndNoMore) {
  const Clients honest = OpenMany(address_, 4);
  ASSERT_FALSE(testing::Test::HasFailure());
  std::vector<LetInToWrite> ins;
  std::vector<std::unique_ptr<RawQueuePair>> raws;
  for (int i = 0; i < 6; ++i) {
    ins.push_back(ChannelOffer());
    raws.push_back(std::make_unique<RawQueuePair>());
    ASSERT_EQ(ConnectRaw(*raws.back(), ins.back().offer), RDMA_CM_EVENT_ESTABLISHED);
  }
  Flood(honest, std::string(500, 'm'));
  for (uint64_t number = 0; number < 2 * kVerbsServerReceives; ++number) {
    for (size_t i = 0; i < raws.size(); ++i) {
      const VerbsPacket head{48, 0, 1, 0, number};
      std::memcpy(raws[i]->arena.data(), &head, sizeof(head));
      ibv_sge place{.addr = reinterpret_cast<uintptr_t>(raws[i]->arena.data()),
                    .length = 64,
                    .lkey = raws[i]->key->lkey};
      ibv_send_wr work{};
      work.sg_list = &place;
      work.num_sge = 1;
      work.opcode = IBV_WR_SEND;
      ibv_send_wr* bad = nullptr;
      (void)ibv_post_send(raws[i]->id->qp, &work, &bad);
    }
  }
  EXPECT_TRUE(AllAnswered(honest, kMessageWindow));
  for (const auto& client : honest) EXPECT_FALSE(client->broken);
  for (const auto& in : ins) EXPECT_TRUE(HungUp(in.tcp));
  Flood(honest, std::string(500, 'm'));
  EXPECT_TRUE(AllAnswered(honest, kMessageWindow));
}

// Its loop is busy for longer than a client may take for a message, which has arrived meanwhile.
TEST_F(VerbsChannelTest, ABusyServerTakesNoClientForSlow) {
  LetInToWrite in = ChannelOffer();
  RawQueuePair raw;
  ASSERT_EQ(ConnectRaw(raw, in.offer), RDMA_CM_EVENT_ESTABLISHED);
  raw.PostReceive();  // of the answer
  const VerbsPacket begin{kVerbsPayloadBytes, 0, 0, 0, 0}, end{48, 0, 1, 0, 0};
  std::memcpy(raw.arena.data(), &begin, sizeof(begin));
  ASSERT_TRUE(raw.Do(in.offer, IBV_WR_SEND, IBV_SEND_SOLICITED, kVerbsPacketBytes));
  loop_.RunFor(Duration::Millis(50));  // it has seen the beginning
  std::memcpy(raw.arena.data(), &end, sizeof(end));
  ASSERT_TRUE(raw.Do(in.offer, IBV_WR_SEND, IBV_SEND_SOLICITED));
  poll(nullptr, 0, static_cast<int>((kPeerTimeout * 2).micros() / 1000));
  EXPECT_TRUE(Until([&] { return handled_ == 1; }));
  // One that does not end its message is cut off, though the loop sees nothing of it.
  VerbsPacket again = begin;
  again.number = 1;
  std::memcpy(raw.arena.data(), &again, sizeof(again));
  raw.Do(in.offer, IBV_WR_SEND, 0, kVerbsPacketBytes);
  EXPECT_TRUE(HungUp(in.tcp));
}

// Of a reader's keys none is good with a channel's queue pair, and nobody comes in twice.
TEST_F(VerbsChannelTest, AChannelReadsAndWritesNoMemory) {
  const VerbsOffer reader = Offer();
  const std::string before(memory_.data(), kRegionBytes);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE}) {
    LetInToWrite in = ChannelOffer();
    RawQueuePair raw;
    ASSERT_EQ(ConnectRaw(raw, in.offer), RDMA_CM_EVENT_ESTABLISHED);
    RawQueuePair again;
    EXPECT_EQ(ConnectRaw(again, in.offer), RDMA_CM_EVENT_REJECTED);
    raw.arena.assign(raw.arena.size(), '!');
    const bool done = raw.Do(reader, opcode);
    if (opcode == IBV_WR_RDMA_READ) {
      EXPECT_FALSE(done);
      EXPECT_EQ(raw.arena[0], '!');
    }
  }
  auto honest = Connect();
  ReadMany(honest.get(), 10);
  EXPECT_EQ(std::string(memory_.data(), kRegionBytes), before);
}

TEST_F(VerbsChannelTest, InvalidationEndsChannelsAndNewOnesWorkAfterIt) {
  auto client = Open(address_);
  ASSERT_TRUE(client->Send("one"));
  ASSERT_TRUE(Until([&] { return client->answers == 1; }));
  exporter_->Invalidate();
  EXPECT_TRUE(Until([&] { return client->broken; }));
  exporter_->Renew();
  auto again = Open(address_);
  ASSERT_TRUE(again->Send("two"));
  EXPECT_TRUE(Until([&] { return again->answers == 1; }));
}

TEST_F(VerbsChannelTest, OverACutNetworkAChannelIsGivenUp) {
  auto client = Open(address_);
  ASSERT_TRUE(client->Send("one"));
  ASSERT_TRUE(Until([&] { return client->answers == 1; }));
  ASSERT_EQ(std::system("ip link set lo down"), 0);
  ASSERT_TRUE(client->Send("two"));
  EXPECT_TRUE(Until([&] { return client->broken; }));
  EXPECT_FALSE(client->channel->connected());
  ASSERT_EQ(std::system("ip link set lo up"), 0);
  auto again = Open(address_);
  ASSERT_TRUE(again->Send("three"));
  EXPECT_TRUE(Until([&] { return again->answers == 1; }));
}

}  // namespace
}  // namespace tailcast::fabric
