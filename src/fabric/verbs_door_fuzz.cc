// The tcp connections that those of verbs begin with, behind which no device is, each end with a
// peer that says anything: the server's door with a raw client that asks for offers, the client's
// session with a raw server that makes some. The ends have threads of their own, so the branches
// that they take guide nothing here; the seeds lead behind the hellos.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/message_service.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/raw_sockets.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_door.h"
#include "tailcast/fabric/tcp_session.h"
#include "tailcast/fabric/tcp_wire.h"
#include "tailcast/fabric/verbs_offers.h"
#include "tailcast/fabric/verbs_wire.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::fabric {
namespace {

// Keyed: the end has a cell key, which its peer can't prove: nobody comes in.
enum class Kind : uint8_t { kServer, kClient, kKeyedServer };
constexpr uint8_t kKinds = 3;
constexpr uint64_t kRegionBytes = 8192;
constexpr Duration kLimit = Duration::Seconds(20);

// Of readers and of channels.
class VerbsServer {
 public:
  explicit VerbsServer(SharedCellKey key) : keyed_(key != nullptr) {
    options_.key = std::move(key);
    options_.tcp_listen = "127.0.0.1:0";
    TAILCAST_CHECK(memory_.Add(0, kRegionBytes).ok() && memory_.Seal().ok());
    DoorContext context;
    context.options = &options_;
    context.reactor = &reactor_;
    context.memory = &memory_;
    context.messages = &service_;
    door_ = std::make_unique<TcpDoor>(context, &readers_);
    door_->messages()->OfferVerbs(&channels_);
    const Result<std::string> where = door_->Listen();  // "127.0.0.1:PORT"
    TAILCAST_CHECK(where.ok(), where.status().ToString());
    port_ = ParseHostPort(*where)->port;
  }
  void Talk(std::string_view bytes) {
    const uint64_t before = readers_.made + channels_.made;
    SayAt(port_, bytes);
    const uint64_t offered = readers_.made + channels_.made - before;
    TAILCAST_CHECK(offered <= (keyed_ ? 0 : 1), "offers for which nobody could ask");
  }

 private:
  struct Readers final : VerbsOffers {
    Made Offer() override {
      VerbsOffer offer;
      offer.head.version = kVerbsVersion;
      offer.regions = {{}};
      return {.body = EncodeVerbsOffer(offer), .regions = 1, .ticket = ++made};
    }
    void Forget(uint64_t) override {}
    std::atomic<uint64_t> made{0};
  };
  struct Channels final : VerbsChannelOffers {
    VerbsOffers::Made Offer(MessageService::Life, Callback<void(const std::string&)>) override {
      return {.body = EncodeVerbsChannelOffer({}), .regions = 1, .ticket = ++made};
    }
    void Forget(uint64_t) override {}
    MonotonicTime StuckSince(uint64_t) override { return MonotonicTime::Max(); }
    std::atomic<uint64_t> made{0};
  };

  const bool keyed_;
  ExporterOptions options_;
  RegionMemory memory_{ExporterIncarnation{7}, Duration::Seconds(2)};
  Scope scope_;
  LoopThread loop_{"fuzz"};
  MessageService service_{loop_.loop(),
                          scope_.Bind([](std::string_view, std::string& answer) { answer = "a"; })};
  Reactor reactor_{"fabric-server"};
  Readers readers_;
  Channels channels_;
  std::unique_ptr<TcpDoor> door_;
  uint16_t port_ = 0;
};

class VerbsClient {
 public:
  VerbsClient() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    const auto generic = reinterpret_cast<sockaddr*>(&address);
    TAILCAST_CHECK(bind(listener_.get(), generic, size) == 0 && listen(listener_.get(), 16) == 0 &&
                   getsockname(listener_.get(), generic, &size) == 0);
    port_ = ntohs(address.sin_port);
  }

  // Size of the welcome, the welcome, and what the server says after the question, with whose
  // answer it ends.
  void Talk(fuzz::Input input) {
    const std::string_view welcome = input.Bytes(input.Take<uint16_t>());
    const auto session = std::make_shared<TcpSession>(
        DialContext{.loop = &loop_, .reactor = &reactor_, .read_timeout = kLimit},
        HostPort{.host = "127.0.0.1", .port = port_}, ExporterIncarnation::kAny);
    const Scope scope;
    std::promise<void> over;
    bool ended = false;  // the reactor's
    const auto end = [&] {
      if (!std::exchange(ended, true)) over.set_value();
    };
    reactor_.Call([&] {
      session->SetOnDead(scope.Bind([&](const std::string&) { end(); }));
      session->Start(scope.Bind([&](const Status& status) {
        if (!status.ok()) return end();
        session->AskForVerbs(scope.Bind([&](const std::string& body, size_t regions) {
          const auto offer = DecodeVerbsOffer(body, regions);
          TAILCAST_CHECK(!offer.has_value() || offer->regions.size() == regions,
                         "an offer of other regions than it says");
          end();
        }));
      }));
    });
    {
      const Socket peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::array<char, sizeof(TcpFrame) + sizeof(Hello)> hello;
      TAILCAST_CHECK(recv(peer.get(), hello.data(), hello.size(), 0) > 0, "no hello");
      peer.Send(welcome);
      peer.Send(input.Rest());
      shutdown(peer.get(), SHUT_WR);
      TAILCAST_CHECK(over.get_future().wait_for(std::chrono::microseconds(kLimit.micros())) ==
                         std::future_status::ready,
                     "a question has an answer, or the connection ends");
    }
    reactor_.Call([&] { session->Shutdown(); });
  }

 private:
  ThreadLoop loop_;
  Reactor reactor_{"fuzz-client"};
  const Socket listener_;
  uint16_t port_ = 0;
};

void Run(fuzz::Input input) {
  // Made in the process that runs the inputs, and left to its end.
  static const auto key = std::make_shared<const CellKey>(std::array<unsigned char, 32>{1, 2, 3});
  static auto* const servers = new std::array{VerbsServer(nullptr), VerbsServer(key)};
  static auto* const client = new VerbsClient;
  switch (static_cast<Kind>(input.Take<uint8_t>() % kKinds)) {
    case Kind::kServer:
      return (*servers)[0].Talk(input.Rest());
    case Kind::kKeyedServer:
      return (*servers)[1].Talk(input.Rest());
    case Kind::kClient:
      return client->Talk(input);
  }
}

}  // namespace
}  // namespace tailcast::fabric

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::fabric::Run(tailcast::fuzz::Input(data, size));
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace tailcast::fabric;  // NOLINT(google-build-using-namespace)
  const auto frame = [](TcpOp op, uint32_t body, uint16_t count, uint64_t argument) {
    std::string out;
    AppendTo(out, TcpFrame{body, op, 0, count, argument});
    return out;
  };
  std::vector<std::string> seeds;
  // Who asks comes in first, as a reader or with a channel.
  const std::string ask = frame(TcpOp::kVerbsAsk, 0, 0, 0);
  for (const uint32_t flags : {uint32_t{0}, kHelloMessages}) {
    std::string asks(1, static_cast<char>(Kind::kServer));
    asks += HandshakeFrame(TcpOp::kHello, Hello{.version = kHelloVersion, .flags = flags}) + ask;
    seeds.push_back(asks);
    asks[0] = static_cast<char>(Kind::kKeyedServer);
    seeds.push_back(asks);
  }
  // What is answered to it.
  std::string welcome =
      frame(TcpOp::kWelcome, sizeof(TcpWelcome) + 2 * sizeof(TcpRegion), 2, kTcpMagic);
  AppendTo(welcome, TcpWelcome{.version = kHelloVersion,
                               .status = HelloStatus::kWelcome,
                               .incarnation = ExporterIncarnation{7},
                               .reads_max = 64,
                               .watches_max = 8,
                               .peer_timeout_us = 5'000'000});
  for (int i = 0; i < 2; ++i) AppendTo(welcome, TcpRegion{kRegionBytes, Generation{3}});
  VerbsOffer offer;
  offer.head.version = kVerbsVersion;
  offer.head.port = 7;
  offer.head.reads_max = 16;
  offer.head.beat_timeout_us = offer.head.stall_timeout_us = 2'000'000;
  offer.regions = {{1 << 20, 1, 0}, {1 << 21, 2, 0}};
  std::string offered(1, static_cast<char>(Kind::kClient));
  Append(offered, static_cast<uint16_t>(welcome.size()));
  offered += welcome;
  const std::string body = EncodeVerbsOffer(offer);
  offered += frame(TcpOp::kVerbsOffer, static_cast<uint32_t>(body.size()), 2, 0) + body;
  seeds.push_back(offered);
  return seeds;
}
