// Message channels of the fake: messages and answers are events on the wire, in order. What is cut
// stays away, with all that is sent after it, until both ends take the other for gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tailcast/fabric/channel.h"
#include "tailcast/fabric/fake_wire.h"
#include "tailcast/fabric/message_window.h"

namespace tailcast::fabric {

class FakeChannel;

// What the wire knows of a channel.
struct FakeChannelEnd {
  std::string name;  // of the client
  EventLoop* loop = nullptr;
  std::shared_ptr<FakeMemory> memory;
  uint64_t life = 0;               // of the memory's gate, when the channel was opened
  FakeChannel* channel = nullptr;  // null once destroyed
  MonotonicTime arrives, returns;  // of the last message, and of the last answer
  bool stuck = false;              // something was cut
};

class FakeChannel final : public Channel {
 public:
  FakeChannel(std::shared_ptr<FakeFabricNetwork::Wire> wire, std::shared_ptr<FakeChannelEnd> end);
  ~FakeChannel() override { end_->channel = nullptr; }

  bool connected() const override { return !broken_; }
  bool Send(std::span<const std::string_view> parts, uint64_t token) override;
  void SetCallbacks(Callbacks callbacks) override { callbacks_ = std::move(callbacks); }

  // From the wire, on our loop.
  void OnAnswer(std::string_view answer);
  void OnBroken();
  const Scope& scope() const { return scope_; }

 private:
  const std::shared_ptr<FakeFabricNetwork::Wire> wire_;
  const std::shared_ptr<FakeChannelEnd> end_;
  MessageWindow window_;
  Callbacks callbacks_;
  bool broken_ = false;
  Scope scope_;
};

// The server's gate closes: nothing of its channels is handled any more, and their clients hear of
// it.
void CloseChannels(FakeFabricNetwork::Wire& wire, FakeMemory& memory);

}  // namespace tailcast::fabric
