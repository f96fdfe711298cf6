// Both ends of a channel over a pair of queues that do what RDMA promises and not more: a packet
// that finds no buffer ends it, and who sleeps is woken only by what asks for it.
#include "tailcast/fabric/verbs_messages_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/fabric/message_window.h"
#include "tailcast/fabric/verbs_offers.h"

namespace tailcast::fabric {
namespace {

using Side = VerbsMessagesCore::Side;
constexpr uint32_t kSlots = 16;

// One end with its queue pair.
struct End {
  End(Side side, uint32_t receives)
      : core(side, kSlots), buffers(receives), memory(size_t{kSlots} * kVerbsPacketBytes, '\0') {}
  VerbsMessagesCore core;
  uint32_t buffers;  // posted
  std::string memory;
  struct Posted {
    std::string packet;
    bool solicited;
    bool signaled;
  };
  std::deque<Posted> wire;  // on their way to the other end
  std::deque<bool> acknowledged;
  std::deque<std::string> arrived;
  // Sleeps until a solicited packet comes, or, where a packet waits for a slot, one was sent.
  bool sleeps = true, wakes_for_sent = false;
  uint64_t wakes = 0, packets = 0;

  void Flush() {
    while (const auto out = core.Next({memory.data(), memory.size()})) {
      wire.push_back({memory.substr(size_t{out->slot} * kVerbsPacketBytes, out->bytes),
                      out->solicited, out->signaled});
      ++packets;
    }
    wakes_for_sent = core.waits_for_slot();
  }
};

class Pair {
 public:
  explicit Pair(uint64_t seed) : rng_(seed) {}

  End client{Side::kClient, kVerbsClientReceives};
  End server{Side::kServer, kVerbsServerReceives};
  MessageWindow window;
  std::deque<std::string> sent;  // and not answered
  std::deque<std::string> expected;
  uint64_t answered = 0, handled = 0;

  bool Send(const std::string& message) {
    if (!window.HasRoomFor(message.size())) return false;
    window.Add(0, message.size());
    const std::string_view whole = message;
    const std::string_view parts[] = {whole.substr(0, 1), whole.substr(1)};
    client.core.Send(parts);
    client.Flush();
    sent.push_back(message);
    expected.push_back(message);
    return true;
  }
  static std::string AnswerTo(const std::string& message) {
    return message.substr(0, message.size() % 3 == 0 ? 0 : kAnswerBytesMax);
  }

  // Something happens somewhere. False: nothing is left that could.
  bool Step() {
    std::vector<int> possible;
    for (int i = 0; i < 2; ++i) {
      End& from = i == 0 ? client : server;
      End& self = from;
      if (!from.wire.empty()) possible.push_back(i);
      if (!from.acknowledged.empty()) possible.push_back(2 + i);
      if (!self.sleeps) possible.push_back(4 + i);
    }
    if (possible.empty()) return false;
    const int what = possible[rng_.Below(possible.size())];
    End& self = what % 2 == 0 ? client : server;
    End& other = what % 2 == 0 ? server : client;
    if (what < 2) {
      Deliver(self, other);
    } else if (what < 4) {
      // The device says that packets arrived.
      const bool signaled = self.acknowledged.front();
      self.acknowledged.pop_front();
      if (signaled) done_[what % 2].push_back(true);
      if (signaled && self.wakes_for_sent) Wake(self);
    } else {
      Take(self, done_[what % 2]);
    }
    return !testing::Test::HasFatalFailure();
  }

 private:
  static void Wake(End& end) {
    if (!end.sleeps) return;
    end.sleeps = false;
    ++end.wakes;
  }
  static void Deliver(End& from, End& to) {
    ASSERT_GT(to.buffers, 0u) << "a packet found no buffer";
    --to.buffers;
    to.arrived.push_back(from.wire.front().packet);
    if (from.wire.front().solicited) Wake(to);
    from.acknowledged.push_back(from.wire.front().signaled);
    from.wire.pop_front();
  }
  // One turn, then to sleep unless something came meanwhile.
  void Take(End& self, std::deque<bool>& done) {
    for (; !done.empty(); done.pop_front()) self.core.OnSent();
    // Not all at once, always.
    for (size_t n = 1 + rng_.Below(8); n > 0 && !self.arrived.empty(); --n) {
      const std::string packet = std::exchange(self.arrived.front(), {});
      self.arrived.pop_front();
      ASSERT_EQ(self.core.OnPacket({packet.data(), packet.size()}), nullptr);
      ++self.buffers;
    }
    std::vector<std::string> messages;
    messages.swap(self.core.messages());
    for (const std::string& message : messages) {
      if (&self == &server) {
        ASSERT_EQ(message, expected.front());
        expected.pop_front();
        ++handled;
        const std::string answer = AnswerTo(message);
        const std::string_view part = answer;
        self.core.Send({&part, 1});
        ASSERT_LE(self.core.queued(), kMessageWindow);
      } else {
        ASSERT_EQ(message, AnswerTo(sent.front()));
        sent.pop_front();
        window.Take();
        ++answered;
      }
    }
    self.Flush();
    self.sleeps = self.arrived.empty();
  }

  Rng rng_;
  std::deque<bool> done_[2];
};

// Whatever comes when: no packet without a buffer, nothing out of order, nobody sleeps beside work.
TEST(VerbsMessagesCoreTest, MessagesOfAnyLengthAreAnsweredInOrderAndEachPacketFindsABuffer) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pair pair(seed);
    Rng rng(seed * 7 + 1);
    const uint64_t most = seed % 4 == 0   ? kMessageBytesMax
                          : seed % 4 == 1 ? 20'000
                          : seed % 4 == 2 ? 4200
                                          : 300;
    uint64_t to_send = 200;
    while (pair.answered < 200) {
      if (to_send > 0 && rng.Chance(seed % 3 == 0 ? 0.9 : 0.1)) {
        std::string message(1 + rng.Below(most), 'm');
        for (size_t i = 0; i < message.size(); i += 97)
          message[i] = static_cast<char>(rng.Below(256));
        if (pair.Send(message)) --to_send;
      }
      const bool stepped = pair.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure());
      ASSERT_TRUE(stepped || (to_send > 0 && pair.sent.empty()))
          << "both sleep beside work: " << pair.answered << " answered, " << pair.handled
          << " handled";
    }
    EXPECT_EQ(pair.handled, 200u);
  }
}

// A server is woken by a message once at most, however many packets it has, and not by what it
// sent.
TEST(VerbsMessagesCoreTest, AServerIsWokenOnceForEachMessageAtMost) {
  Pair pair(5);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(pair.Send(std::string(100 + static_cast<size_t>(i) * 100, 'x')));
    while (pair.Step()) {
    }
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  EXPECT_EQ(pair.answered, 300u);
  EXPECT_LE(pair.server.wakes, 300u);
  EXPECT_GT(pair.client.packets, 1000u);
  EXPECT_EQ(pair.server.packets, 300u);
}

// A client without credits waits; those that were taken are enough for it to go on.
TEST(VerbsMessagesCoreTest, AClientSendsNoMoreThanTheServerHasBuffersFor) {
  Pair pair(6);
  while (pair.Send(std::string(16'000, 'x'))) {
  }
  // The device takes all that it may; the server is stopped.
  size_t delivered = 0;
  for (; !pair.client.wire.empty(); ++delivered) {
    pair.client.wire.pop_front();
    pair.client.core.OnSent();
    pair.client.Flush();
  }
  EXPECT_EQ(delivered, kVerbsServerReceives);
  EXPECT_FALSE(pair.client.core.waits_for_slot());
}

std::string Packet(const VerbsPacket& head, const std::string& payload = "") {
  std::string packet(reinterpret_cast<const char*>(&head), sizeof(head));
  return packet + payload;
}

TEST(VerbsMessagesCoreTest, PacketsThatBreakTheProtocolAreNotTaken) {
  const std::string full(kVerbsPayloadBytes, 'x');
  const struct {
    Side to;
    std::string packet;
    bool good;
  } cases[] = {
      {Side::kServer, Packet({3, 0, 1, 0, 0}, "abc"), true},
      {Side::kServer, Packet({kVerbsPayloadBytes, 0, 0, 0, 0}, full), true},
      {Side::kServer, "", false},
      {Side::kServer, std::string(sizeof(VerbsPacket) - 1, '\1'), false},
      {Side::kServer, Packet({4, 0, 1, 0, 0}, "abc"), false},
      {Side::kServer, Packet({~uint32_t{0}, 0, 1, 0, 0}, "abc"), false},
      {Side::kServer, Packet({3, 0, 2, 0, 0}, "abc"), false},
      {Side::kServer, Packet({3, 0, 0, 0, 0}, "abc"), false},  // not full, and not the last
      {Side::kServer, Packet({3, 0, 1, 0, 1}, "abc"), false},  // out of turn
      {Side::kServer, Packet({0, 0, 1, 0, 0}), false},         // no message
      {Side::kServer, Packet({3, 1, 1, 0, 0}, "abc"), false},
      {Side::kServer, Packet({3, 0, 1, 3, 0}, "abc"), false},
      {Side::kClient, Packet({3, 0, 1, 0, 0}, "abc"), true},
      {Side::kClient, Packet({0, 0, 1, 0, 0}), true},
      {Side::kClient, Packet({3, 1, 1, 0, 0}, "abc"), false},  // it has all its credits
      {Side::kClient, Packet({kVerbsPayloadBytes, 0, 0, 0, 0}, full), false},  // too long
  };
  for (const auto& one : cases) {
    VerbsMessagesCore core(one.to, kSlots);
    EXPECT_EQ(core.OnPacket({one.packet.data(), one.packet.size()}) == nullptr, one.good)
        << &one - cases;
  }
  // The longest message, and a byte more.
  for (const uint32_t more : {0u, 1u}) {
    VerbsMessagesCore server(Side::kServer, kSlots);
    uint32_t left = kMessageBytesMax + more;
    for (; left > kVerbsPayloadBytes; left -= kVerbsPayloadBytes) {
      const std::string packet = Packet({kVerbsPayloadBytes, 0, 0, 0, 0}, full);
      ASSERT_EQ(server.OnPacket({packet.data(), packet.size()}), nullptr);
      EXPECT_TRUE(server.begun());
    }
    const std::string last = Packet({left, 0, 1, 0, 0}, std::string(left, 'x'));
    EXPECT_EQ(server.OnPacket({last.data(), last.size()}) == nullptr, more == 0);
  }
}

TEST(VerbsMessagesCoreTest, AClientWithoutCreditsIsRefused) {
  VerbsMessagesCore server(Side::kServer, kSlots);
  for (uint64_t number = 0; number <= kVerbsServerReceives; ++number) {
    const std::string packet = Packet({3, 0, 1, 0, number}, "abc");
    EXPECT_EQ(server.OnPacket({packet.data(), packet.size()}) == nullptr,
              number < kVerbsServerReceives)
        << number;
  }
}

TEST(VerbsMessagesCoreTest, WhereAllIsSignaledEachSlotIsItsDevicesUntilItIsSent) {
  VerbsMessagesCore client(Side::kClient, kSlots);
  client.SignalAll();
  const std::string_view part = "abc";
  std::vector<char> memory(size_t{kSlots} * kVerbsPacketBytes);
  for (uint32_t i = 0; i < kSlots; ++i) client.Send(std::span(&part, 1));
  for (uint32_t i = 0; i < kSlots; ++i) EXPECT_TRUE(client.Next(memory)->signaled) << i;
  client.OnSent();
  EXPECT_EQ(client.outstanding(), kSlots - 1u);
}

// A device's queue pairs are counted once, whoever has them.
TEST(VerbsQueuePairsTest, ReadersAndChannelsShareWhatTheDeviceHas) {
  VerbsQueuePairs pairs;
  constexpr int kDevice = VerbsQueuePairs::kSpared + 3;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pairs.Take(kDevice));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(pairs.Take(kDevice));
  pairs.GiveBack(2);
  EXPECT_TRUE(pairs.Take(kDevice));
  EXPECT_TRUE(pairs.Take(kDevice));
  EXPECT_FALSE(pairs.Take(kDevice));
  EXPECT_FALSE(pairs.Take(1));
}

}  // namespace
}  // namespace tailcast::fabric
