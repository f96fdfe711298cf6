#include "tailcast/fabric/fake_channel.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::fabric {
namespace {

FAULT_POINT(kHandleTwice, "fabric.fake_handle_twice",
            "a message of the simulated fabric is handled twice");
FAULT_POINT(kHandleClosed, "fabric.fake_handle_closed",
            "a message of the simulated fabric is handled behind a closed door");

using Wire = FakeFabricNetwork::Wire;
using EndPtr = std::shared_ptr<FakeChannelEnd>;

// After which an end takes one that says nothing for gone, as the real driver's.
constexpr Duration kPeerTimeout = Duration::Seconds(6);

// Runs `action(channel)` on the client's loop, if the channel is still there then.
template <typename Action>
void AtChannel(const EndPtr& end, Action action) {
  if (end->channel == nullptr) return;
  end->loop->Post(end->channel->scope().Bind(
      [channel = end->channel, action = std::move(action)] { action(*channel); }));
}

void BreakAfter(Wire& wire, const EndPtr& end, Duration delay) {
  wire.After(delay, [end] { AtChannel(end, [](FakeChannel& channel) { channel.OnBroken(); }); });
}

void Stick(Wire& wire, const EndPtr& end) {
  if (std::exchange(end->stuck, true)) return;
  ++wire.counters.cut;
  BreakAfter(wire, end, kPeerTimeout);
}

void Answer(Wire& wire, const EndPtr& end, std::string answer) {
  const FakeLink& link = wire.LinkOf(end->name, end->memory->server);
  if (link.answers_cut || end->stuck) return Stick(wire, end);
  if (link.lost_probability > 0 && wire.rng.Chance(link.lost_probability)) {
    ++wire.counters.lost;
    end->stuck = true;
    return BreakAfter(wire, end, wire.Latency(link));
  }
  wire.Trace(answer);
  end->returns = std::max(wire.loop->Now() + wire.Latency(link), end->returns);
  wire.loop->At(end->returns, wire.scope.Bind([end, answer = std::move(answer)] {
    if (end->stuck) return;
    AtChannel(end, [answer](FakeChannel& channel) { channel.OnAnswer(answer); });
  }));
}

// On the server's loop.
void Handle(Wire& wire, const EndPtr& end, const std::string& message) {
  FakeMemory& memory = *end->memory;
  if (memory.life != end->life && !kHandleClosed.planted()) return;
  std::string answer;
  memory.handler(message, answer);
  TAILCAST_CHECK(answer.size() <= kAnswerBytesMax, "an answer is too long for its channel");
  if (kHandleTwice.planted()) {
    std::string again;
    memory.handler(message, again);
  }
  Answer(wire, end, std::move(answer));
}

void Arrive(Wire& wire, const EndPtr& end, std::string message) {
  FakeMemory& memory = *end->memory;
  if (memory.stopped && wire.Find(memory.server) == end->memory) {
    memory.held.push_back([&wire, end, message = std::move(message)]() mutable {
      Arrive(wire, end, std::move(message));
    });
    return;
  }
  if (memory.message_scope == nullptr) return Stick(wire, end);  // nobody is there to refuse it
  if (memory.life != end->life && !kHandleClosed.planted()) {
    const FakeLink& link = wire.LinkOf(end->name, memory.server);
    if (link.answers_cut) return Stick(wire, end);
    return BreakAfter(wire, end, wire.Latency(link));
  }
  memory.options.loop->Post(memory.message_scope->Bind(
      [&wire, end, message = std::move(message)] { Handle(wire, end, message); }));
}

}  // namespace

FakeChannel::FakeChannel(std::shared_ptr<Wire> wire, EndPtr end)
    : wire_(std::move(wire)), end_(std::move(end)) {
  end_->channel = this;
}

bool FakeChannel::Send(std::span<const std::string_view> parts, uint64_t token) {
  const uint32_t bytes = MessageBytes(parts);
  if (broken_ || !window_.HasRoomFor(bytes)) return false;
  window_.Add(token, bytes);
  std::string message;
  for (const std::string_view part : parts) message.append(part);
  ++wire_->counters.messages;
  const FakeLink& link = wire_->LinkOf(end_->name, end_->memory->server);
  if (link.requests_cut || end_->stuck) {
    Stick(*wire_, end_);
    return true;
  }
  wire_->Trace(message);
  end_->arrives =
      std::max(wire_->loop->Now() + wire_->Latency(link) + end_->memory->delay, end_->arrives);
  wire_->loop->At(end_->arrives, wire_->scope.Bind([wire = wire_.get(), end = end_,
                                                    message = std::move(message)]() mutable {
    if (!end->stuck) Arrive(*wire, end, std::move(message));
  }));
  return true;
}

void FakeChannel::OnAnswer(std::string_view answer) {
  if (broken_) return;
  callbacks_.on_answer(window_.Take(), answer);  // may destroy us
}

void FakeChannel::OnBroken() {
  if (std::exchange(broken_, true)) return;
  callbacks_.on_broken();  // may destroy us
}

void CloseChannels(Wire& wire, FakeMemory& memory) {
  ++memory.life;
  for (const std::weak_ptr<FakeChannelEnd>& weak : std::exchange(memory.channels, {})) {
    const EndPtr end = weak.lock();
    if (end == nullptr) continue;
    const FakeLink& link = wire.LinkOf(end->name, memory.server);
    if (link.answers_cut) {
      Stick(wire, end);
    } else {
      BreakAfter(wire, end, wire.Latency(link));
    }
  }
}

}  // namespace tailcast::fabric
