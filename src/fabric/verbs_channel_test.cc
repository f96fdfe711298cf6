// What is particular to message channels by RDMA.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/fabric/verbs_driver_fixture.h"
#include "tailcast/fabric/verbs_link.h"
#include "tailcast/fabric/verbs_messages_core.h"

namespace tailcast::fabric {
namespace {

using VerbsChannelTest = VerbsDriverTest;

TEST_F(VerbsChannelTest, ServesFiveHundredMessageChannels) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 500; ++i) {
    clients.push_back(Open(address_));
    ASSERT_NE(clients.back(), nullptr) << i;
  }
  // What each costs the server (README), beside what its device needs for a queue pair.
  EXPECT_LT(VerbsLink::Bytes(VerbsMessagesCore::Side::kServer), 350'000u);
  const std::string long_one(20'000, 'm');
  for (int round = 1; round <= 2; ++round) {
    for (auto& client : clients) {
      ASSERT_TRUE(client->Send("short"));
      ASSERT_TRUE(client->Send(long_one));
    }
    for (auto& client : clients) {
      ASSERT_TRUE(Until([&] { return client->answers == 2u * static_cast<uint64_t>(round); }));
      ASSERT_FALSE(client->broken);
    }
  }
  clients.clear();
  auto one_more = Open(address_);
  ASSERT_TRUE(one_more->Send("m"));
  EXPECT_TRUE(Until([&] { return one_more->answers == 1; }));
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
    ASSERT_EQ(raw.Connect(in.offer), RDMA_CM_EVENT_ESTABLISHED);
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

// More SENDs than there are buffers, while the server's loop is busy: those are handled that had
// one, or one that was posted again when the engine looked after slow clients.
TEST_F(VerbsChannelTest, AFloodWithoutCreditsEndsTheFloodersChannelAlone) {
  auto honest = Open(address_);
  ASSERT_NE(honest, nullptr);
  LetInToWrite in = ChannelOffer();
  RawQueuePair raw;
  ASSERT_EQ(raw.Connect(in.offer), RDMA_CM_EVENT_ESTABLISHED);
  VerbsPacket head{48, 0, 1, 0, 0};
  bool sent = true;
  for (; sent && head.number < 4 * kVerbsServerReceives; ++head.number) {
    std::memcpy(raw.arena.data(), &head, sizeof(head));
    sent = raw.Do(in.offer, IBV_WR_SEND, IBV_SEND_SOLICITED);
  }
  // iWARP calls a SEND done when it was sent.
  if (!iwarp_) {
    EXPECT_LE(head.number, 2 * kVerbsServerReceives + 1);
  }
  EXPECT_TRUE(HungUp(in.tcp));
  EXPECT_LE(handled_, 2 * kVerbsServerReceives);
  honest->answers = 0;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(honest->Send("honest"));
  EXPECT_TRUE(Until([&] { return honest->answers == 10; }));
  EXPECT_FALSE(honest->broken);
}

// Its loop is busy for longer than a client may take for a message, which has arrived meanwhile.
TEST_F(VerbsChannelTest, ABusyServerTakesNoClientForSlow) {
  LetInToWrite in = ChannelOffer();
  RawQueuePair raw;
  ASSERT_EQ(raw.Connect(in.offer), RDMA_CM_EVENT_ESTABLISHED);
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
    ASSERT_EQ(raw.Connect(in.offer), RDMA_CM_EVENT_ESTABLISHED);
    RawQueuePair again;
    EXPECT_EQ(again.Connect(in.offer), RDMA_CM_EVENT_REJECTED);
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
