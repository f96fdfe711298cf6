// What the message channels of every driver promise: further tests of the suite in
// fabric_conformance.h, for the same drivers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/fabric_conformance.h"

namespace tailcast::fabric {

// How servers in processes of their own answer.
inline void Echo(std::string_view message, std::string& answer) {
  answer = message.substr(0, kAnswerBytesMax);
}

class ChannelConformance : public FabricConformance {
 protected:
  // A channel with what it was told.
  struct Client {
    std::unique_ptr<Channel> channel;
    std::vector<std::pair<uint64_t, std::string>> answers;
    bool broken = false;
    Scope scope;

    bool Send(std::string_view message, uint64_t token) {
      return channel->Send(std::span(&message, 1), token);
    }
    void Listen() {
      channel->SetCallbacks(
          {.on_answer = scope.Bind([this](uint64_t token, std::string_view answer) {
             EXPECT_FALSE(broken) << "an answer after the end";
             answers.emplace_back(token, answer);
           }),
           .on_broken = scope.Bind([this] {
             EXPECT_FALSE(broken) << "broken twice";
             broken = true;
           })});
    }
  };

  Local Serve(MessageHandler handler) {
    return Export([&](Exporter& exporter) { exporter.ServeMessages(std::move(handler)); });
  }
  Local ServeEcho() {
    return Serve(scope_.Bind([](std::string_view m, std::string& answer) { Echo(m, answer); }));
  }
  Status Open(Connector* connector, const std::string& address, Client* client) {
    std::optional<Status> outcome;
    connector->OpenChannel(address, Duration::Seconds(10), scope_.Bind([&, client](auto channel) {
      outcome = channel.status();
      if (!channel.ok()) return;
      client->channel = std::move(channel).value();
      client->Listen();
    }));
    EXPECT_FALSE(outcome.has_value()) << "answered inside the call";
    EXPECT_TRUE(world_->RunUntil([&] { return outcome.has_value(); }, kLimit));
    return outcome.value_or(DeadlineExceededError("no outcome"));
  }
  bool Answered(const Client& client, size_t count) {
    return world_->RunUntil([&] { return client.answers.size() >= count; }, kLimit);
  }
};

TEST_P(ChannelConformance, AMessageOfAnyLengthIsAnsweredWithItsAnswer) {
  std::vector<std::string> handled;
  std::string reply;
  Local server = Serve(scope_.Bind([&](std::string_view message, std::string& answer) {
    handled.emplace_back(message);
    answer = reply;
  }));
  auto connector = world_->MakeConnector();
  Client client;
  ASSERT_TRUE(Open(connector.get(), server.address, &client).ok());
  EXPECT_TRUE(client.channel->connected());
  uint64_t token = 100;
  for (const uint32_t length : {1u, 7u, 8u, 9u, 4096u, 65535u, kMessageBytesMax}) {
    for (const uint32_t answer : {0u, 1u, 8u, 13u, kAnswerBytesMax}) {
      std::string message(length, 'm');
      for (uint32_t i = 0; i < length; ++i) message[i] = PatternByte(0, i + length);
      reply = std::string(answer, static_cast<char>('a' + length % 20));
      // In parts, one of them empty.
      const std::string_view whole = message;
      const std::string_view parts[] = {whole.substr(0, length / 3), {}, whole.substr(length / 3)};
      handled.clear();
      client.answers.clear();
      ASSERT_TRUE(client.channel->Send(parts, ++token));
      EXPECT_TRUE(client.answers.empty()) << "answered inside the call";
      ASSERT_TRUE(Answered(client, 1));
      EXPECT_EQ(client.answers.front(), std::make_pair(token, reply));
      ASSERT_EQ(handled.size(), 1u);
      EXPECT_EQ(handled.front(), message);
    }
  }
}

TEST_P(ChannelConformance, MessagesOfManyClientsAreHandledOnceAndInTheOrderOfEach) {
  std::vector<std::vector<uint64_t>> handled(3);
  Local server = Serve(scope_.Bind([&](std::string_view message, std::string& answer) {
    uint64_t who, number;
    std::memcpy(&who, message.data(), 8);
    std::memcpy(&number, message.data() + 8, 8);
    handled[who].push_back(number);
    answer = std::to_string(number);
  }));
  auto connector = world_->MakeConnector();
  std::vector<Client> clients(3);
  for (Client& client : clients) {
    ASSERT_TRUE(Open(connector.get(), server.address, &client).ok());
  }
  constexpr uint64_t kMessages = 3000;
  Rng rng(5);
  std::vector<uint64_t> sent(3);
  uint64_t refused = 0;
  const auto done = [&] {
    bool all = true;
    for (uint64_t who = 0; who < 3; ++who) {
      while (sent[who] < kMessages) {
        std::string message(16 + rng.Below(rng.Chance(0.1) ? 60'000 : 300), 'x');
        std::memcpy(message.data(), &who, 8);
        std::memcpy(message.data() + 8, &sent[who], 8);
        if (!clients[who].Send(message, sent[who])) {
          ++refused;
          break;
        }
        ++sent[who];
      }
      all &= clients[who].answers.size() == kMessages;
    }
    return all;
  };
  ASSERT_TRUE(world_->RunUntil(done, kLimit * 3));
  EXPECT_GT(refused, 0u) << "nobody ever lacked a credit";
  for (uint64_t who = 0; who < 3; ++who) {
    ASSERT_EQ(handled[who].size(), kMessages);
    for (uint64_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(handled[who][i], i);
      ASSERT_EQ(clients[who].answers[i], std::make_pair(i, std::to_string(i)));
    }
  }
}

TEST_P(ChannelConformance, AStoppedServerIsSentWhatThereIsCreditForAndAnswersLater) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  Client client;
  ASSERT_TRUE(Open(connector.get(), server->address(), &client).ok());
  for (const size_t bytes : {size_t{10}, size_t{100'000}}) {
    client.answers.clear();
    server->Stop();
    uint64_t sent = 0;
    while (client.Send(std::string(bytes, 'x'), sent)) ASSERT_LE(++sent, kMessageWindow);
    EXPECT_EQ(sent, std::min<uint64_t>(kMessageWindow, kMessageWindowBytes / (bytes + 8)));
    EXPECT_FALSE(world_->RunUntil([&] { return !client.answers.empty(); }, Duration::Millis(50)));
    server->Continue();
    ASSERT_TRUE(Answered(client, sent));
    // Every credit is back.
    client.answers.clear();
    for (uint64_t i = 0; i < sent; ++i) EXPECT_TRUE(client.Send(std::string(bytes, 'y'), i));
    ASSERT_TRUE(Answered(client, sent));
  }
  EXPECT_FALSE(client.broken);
}

TEST_P(ChannelConformance, TheEndOfAServerIsToldOnce) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  Client client;
  ASSERT_TRUE(Open(connector.get(), server->address(), &client).ok());
  ASSERT_TRUE(client.Send("one", 1));
  ASSERT_TRUE(Answered(client, 1));
  server->Stop();
  ASSERT_TRUE(client.Send("two", 2));
  server->Kill();
  ASSERT_TRUE(world_->RunUntil([&] { return client.broken; }, kLimit));
  EXPECT_FALSE(client.channel->connected());
  EXPECT_FALSE(client.Send("three", 3));
  EXPECT_EQ(client.answers.size(), 1u);
}

TEST_P(ChannelConformance, BehindAClosedDoorNothingIsHandled) {
  uint64_t handled = 0;
  Local server = Serve(scope_.Bind([&](std::string_view, std::string&) { ++handled; }));
  auto connector = world_->MakeConnector();
  Client client;
  ASSERT_TRUE(Open(connector.get(), server.address, &client).ok());
  ASSERT_TRUE(client.Send("before", 1));
  ASSERT_TRUE(Answered(client, 1));
  ASSERT_EQ(handled, 1u);
  // It lies in the ring, or on the wire, when the door closes; and is not handled when it opens.
  ASSERT_TRUE(client.Send("late", 2));
  server.exporter->Invalidate();
  Client refused;
  EXPECT_TRUE(IsUnavailable(Open(connector.get(), server.address, &refused)));
  server.exporter->Renew();
  ASSERT_TRUE(world_->RunUntil([&] { return client.broken; }, kLimit));
  EXPECT_EQ(handled, 1u);
  Client again;
  ASSERT_TRUE(Open(connector.get(), server.address, &again).ok());
  ASSERT_TRUE(again.Send("after", 3));
  ASSERT_TRUE(Answered(again, 1));
  EXPECT_EQ(handled, 2u);
}

TEST_P(ChannelConformance, WhoIsNotThereOrTakesNoMessagesIsUnavailable) {
  Local reads_only = Export();
  auto connector = world_->MakeConnector();
  Client client;
  EXPECT_TRUE(IsUnavailable(Open(connector.get(), reads_only.address, &client)));
  EXPECT_TRUE(IsUnavailable(Open(connector.get(), world_->DeadAddress(), &client)));
  EXPECT_TRUE(IsInvalidArgument(Open(connector.get(), "carrier pigeon", &client)));
  Local server = ServeEcho();
  std::string other = server.address;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_TRUE(IsUnavailable(Open(connector.get(), other, &client)));
  EXPECT_EQ(client.channel, nullptr);
}

TEST_P(ChannelConformance, ACallbackMaySendAndMayEndItsChannel) {
  Local server = ServeEcho();
  auto connector = world_->MakeConnector();
  auto channel = std::make_unique<Client>();
  ASSERT_TRUE(Open(connector.get(), server.address, channel.get()).ok());
  uint64_t answers = 0;
  channel->channel->SetCallbacks({.on_answer = scope_.Bind([&](uint64_t token, std::string_view) {
                                    ++answers;
                                    if (token == 50) {
                                      channel.reset();
                                    } else if (token >= 10) {
                                      EXPECT_TRUE(channel->Send("next", token + 1));
                                    }
                                  }),
                                  .on_broken = {}});
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(channel->Send("first", i));
  ASSERT_TRUE(channel->Send("next", 10));
  ASSERT_TRUE(world_->RunUntil([&] { return channel == nullptr; }, kLimit));
  EXPECT_EQ(answers, 51u);
  EXPECT_FALSE(world_->RunUntil([&] { return answers > 51; }, Duration::Millis(20)));
}

// Each waits for the one before, so that both sides sleep and are woken each time.
TEST_P(ChannelConformance, NobodySleepsBesideWork) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  Client client;
  ASSERT_TRUE(Open(connector.get(), server->address(), &client).ok());
  for (uint64_t i = 0; i < 3000; ++i) {
    const std::string message = std::to_string(i);
    ASSERT_TRUE(client.Send(message, i));
    ASSERT_TRUE(Answered(client, i + 1)) << "message " << i;
    ASSERT_EQ(client.answers.back(), std::make_pair(i, message));
  }
}

TEST_P(ChannelConformance, AServerTakesManyChannelsAndSaysWhenItHasEnough) {
  Local server = ServeEcho();
  auto connector = world_->MakeConnector();
  std::vector<Client> clients(150);
  size_t open = 0;
  for (Client& client : clients) {
    const Status opened = Open(connector.get(), server.address, &client);
    if (!opened.ok()) {
      EXPECT_TRUE(IsUnavailable(opened)) << opened;
      break;
    }
    ++open;
  }
  EXPECT_GE(open, 40u);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < open; ++i) {
      clients[i].answers.clear();
      ASSERT_TRUE(clients[i].Send(std::to_string(i), i));
    }
    for (size_t i = 0; i < open; ++i) {
      ASSERT_TRUE(Answered(clients[i], 1));
      EXPECT_EQ(clients[i].answers.front(), std::make_pair(uint64_t{i}, std::to_string(i)));
    }
  }
}

}  // namespace tailcast::fabric
