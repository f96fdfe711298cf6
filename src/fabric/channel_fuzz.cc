// What parses the frames of message channels, with a peer that says anything: the packets of either
// end over verbs, the hellos with which queue pairs come, readers' too, and what the tcp
// connections under them offer, the rings of shm, whose memory belongs to the other end, and a
// server's socket with a raw client.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/message_ring.h"
#include "tailcast/fabric/tcp_wire.h"
#include "tailcast/fabric/verbs_messages_core.h"
#include "tailcast/fabric/verbs_wire.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::fabric {
namespace {

enum class Kind : uint8_t {
  kVerbsServer,
  kVerbsClient,
  kOffer,
  kChannelOffer,
  kRing,
  kTcpServer,
  kHello,
};
constexpr uint8_t kKinds = 7;

// Packets, each with a length of two bytes before it; a long one is filled up.
void Packets(VerbsMessagesCore::Side side, fuzz::Input input) {
  const bool server = side == VerbsMessagesCore::Side::kServer;
  VerbsMessagesCore core(side, 4);
  std::string memory(size_t{4} * kVerbsPacketBytes, '\0');
  const std::string_view sent = "sent";
  if (!server) core.Send({&sent, 1});
  while (!input.empty()) {
    const size_t size = input.Take<uint16_t>() % (kVerbsPacketBytes + 1);
    std::string packet(input.Bytes(std::min<size_t>(size, 64)));
    packet.resize(size, 'x');
    if (core.OnPacket({packet.data(), packet.size()}) != nullptr) return;
    for (const std::string& message : core.messages()) {
      TAILCAST_CHECK(message.size() <= (server ? kMessageBytesMax : kAnswerBytesMax) &&
                         (!server || !message.empty()),
                     "a message of no such length");
      const std::string_view answer = sent;
      if (server) core.Send({&answer, 1});
    }
    core.messages().clear();
    while (const auto out = core.Next({memory.data(), memory.size()})) {
      TAILCAST_CHECK(out->slot < 4 && out->bytes <= kVerbsPacketBytes, "a packet beyond its slot");
      if (out->signaled) core.OnSent();
    }
  }
}

// At a cache line of it, as in a mapping.
char* ChannelIn(std::string& memory) {
  void* begin = memory.data();
  size_t room = memory.size();
  return static_cast<char*>(std::align(64, kChannelBytes, begin, room));
}

// A page of counts, then bytes of the ring, once or again and again as the writer goes on.
void Ring(fuzz::Input input) {
  static auto* const memory = new std::string(kChannelBytes + 64, '\0');
  char* const channel = ChannelIn(*memory);
  RingMemory ring = RingMemory::Messages(channel);
  ring.words->written = 0;
  std::memset(ring.bytes, 0, 1 << 16);
  RingReader reader(ring, 1, kMessageBytesMax);
  uint64_t at = 0;
  while (!input.empty()) {
    const uint64_t written = input.Take<uint64_t>();
    const std::string_view bytes = input.Bytes(input.Take<uint16_t>() % 4096);
    if (at + bytes.size() > 1 << 16) at = 0;
    std::memcpy(ring.bytes + at, bytes.data(), bytes.size());
    at += bytes.size();
    ring.words->written = written % 2 == 0 ? written : at;
    for (uint32_t i = 0; i < kMessageWindow; ++i) {
      std::string_view message;
      const auto found = reader.Take(&message);
      if (found == RingReader::Found::kBroken) return;
      if (found == RingReader::Found::kNothing) break;
      TAILCAST_CHECK(!message.empty() && message.size() <= kMessageBytesMax,
                     "a message of no such length");
    }
  }
}

class Server {
 public:
  Server() {
    ExporterOptions options;
    options.loop = loop_.loop();
    options.tcp_listen = "127.0.0.1:0";
    exporter_ = MakeExporter(options);
    TAILCAST_CHECK(exporter_->AddRegion(0, 4096).ok());
    exporter_->ServeMessages(scope_.Bind([](std::string_view message, std::string& answer) {
      TAILCAST_CHECK(!message.empty() && message.size() <= kMessageBytesMax,
                     "a message of no such length");
      answer = message.substr(0, kAnswerBytesMax);
    }));
    const auto addresses = exporter_->Listen();
    TAILCAST_CHECK(addresses.ok() && addresses->size() == 1);
    const std::string& tcp = addresses->front();  // "tcp:127.0.0.1:PORT#..."
    port_ = static_cast<uint16_t>(std::stoi(tcp.substr(tcp.rfind(':') + 1)));
  }
  // What a client says that was let in; it hangs up then, and waits until the server has.
  void Talk(std::string_view bytes) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = 0,
        // Each from another address of this host: a port that was used waits.
        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK + 1 + runs_++ % 60'000 * 16)},
        .sin_zero = {}};
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    TAILCAST_CHECK(fd >= 0 && bind(fd, generic, sizeof address) == 0);
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    TAILCAST_CHECK(connect(fd, generic, sizeof address) == 0,
                   "the server takes no connection any more");
    Send(fd,
         HandshakeFrame(TcpOp::kHello, Hello{.version = kHelloVersion, .flags = kHelloMessages}));
    Send(fd, bytes);
    shutdown(fd, SHUT_WR);
    char answers[4096];
    while (recv(fd, answers, sizeof answers, 0) > 0) {
    }
    close(fd);
  }

 private:
  static void Send(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  LoopThread loop_{"fuzz"};
  Scope scope_;
  std::unique_ptr<Exporter> exporter_;
  uint16_t port_ = 0;
  uint32_t runs_ = 0;
};

void Run(fuzz::Input input) {
  const auto kind = static_cast<Kind>(input.Take<uint8_t>() % kKinds);
  switch (kind) {
    case Kind::kVerbsServer:
      return Packets(VerbsMessagesCore::Side::kServer, input);
    case Kind::kVerbsClient:
      return Packets(VerbsMessagesCore::Side::kClient, input);
    case Kind::kOffer: {
      const size_t regions = input.Take<uint8_t>();
      const std::string_view body = input.Rest();
      const auto offer = DecodeVerbsOffer(body, regions);
      if (!offer.has_value()) return;
      TAILCAST_CHECK(offer->regions.size() == regions && EncodeVerbsOffer(*offer) == body,
                     "what decodes encodes to the same bytes");
      return;
    }
    case Kind::kChannelOffer: {
      const size_t count = input.Take<uint8_t>();
      const std::string_view body = input.Rest();
      const auto offer = DecodeVerbsChannelOffer(body, count);
      if (!offer.has_value()) return;
      TAILCAST_CHECK(count <= 1 && EncodeVerbsChannelOffer(*offer) == body &&
                         std::memchr(offer->host, 0, sizeof offer->host) != nullptr,
                     "what decodes encodes to the same bytes");
      return;
    }
    case Kind::kHello: {
      const std::string_view said = input.Rest();
      const auto hello = DecodeVerbsHello(said);
      if (!hello.has_value()) return;
      TAILCAST_CHECK(said.size() >= sizeof *hello && hello->magic == kVerbsMagic &&
                         std::memcmp(&*hello, said.data(), sizeof *hello) == 0,
                     "what decodes is what was said");
      return;
    }
    case Kind::kRing:
      return Ring(input);
    case Kind::kTcpServer: {
      // Made in the process that runs the inputs, and left to its end.
      static auto* const server = new Server();
      return server->Talk(input.Rest());
    }
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
  std::vector<std::string> seeds;
  const auto kind = [](Kind one) { return std::string(1, static_cast<char>(one)); };
  const auto packet = [](std::string& out, const VerbsPacket& head) {
    Append(out, static_cast<uint16_t>(sizeof head + head.bytes));
    Append(out, head);
    out.append(std::min<size_t>(head.bytes, 64 - sizeof head), 'm');
  };
  std::string server = kind(Kind::kVerbsServer);
  packet(server, {3, 0, 1, 0, 0});
  for (int i = 0; i < 3; ++i) {
    packet(server, {kVerbsPayloadBytes, 0, 0, 0, 1});
  }
  packet(server, {5, 0, 1, 0, 1});
  seeds.push_back(server);
  std::string client = kind(Kind::kVerbsClient);
  packet(client, {4, 1, 1, 0, 0});
  seeds.push_back(client);

  VerbsOffer offer;
  offer.head = {.version = kVerbsVersion,
                .port = 7,
                .token = {1, 2},
                .beat_timeout_us = 2'000'000,
                .stall_timeout_us = 6'000'000,
                .reads_max = 16,
                .reserved = 0,
                .control = {1 << 20, 1, 0},
                .host = "10.0.0.1"};
  offer.regions = {{1 << 21, 2, 0}};
  seeds.push_back(kind(Kind::kOffer) + '\1' + EncodeVerbsOffer(offer));
  offer.regions.clear();  // none is made
  seeds.push_back(kind(Kind::kOffer) + '\0' + EncodeVerbsOffer(offer));
  seeds.push_back(kind(Kind::kChannelOffer) + '\1' +
                  EncodeVerbsChannelOffer({.version = kVerbsVersion,
                                           .port = 7,
                                           .token = {1, 2},
                                           .stall_timeout_us = 6'000'000,
                                           .host = "10.0.0.1"}));

  std::string hello = kind(Kind::kHello);
  Append(hello, VerbsHello{.magic = kVerbsMagic, .token = {1, 2}});
  seeds.push_back(hello);
  seeds.push_back(hello + std::string(56 - sizeof(VerbsHello), '\0'));

  // Two messages as a writer puts them.
  static std::string memory(kChannelBytes + 64, '\0');
  char* const channel = ChannelIn(memory);
  const RingMemory ring = RingMemory::Messages(channel);
  RingWriter writer(ring);
  for (const std::string_view message : {"first", "the second one"}) {
    writer.Put(std::span(&message, 1));
  }
  const uint64_t written = ring.words->written;
  std::string rings = kind(Kind::kRing);
  Append(rings, uint64_t{1});  // as many as there are bytes
  Append(rings, static_cast<uint16_t>(written));
  seeds.push_back(rings + std::string(ring.bytes, written));

  std::string tcp = kind(Kind::kTcpServer);
  AppendMessage(tcp, TcpOp::kMessage, 0, "first");
  AppendMessage(tcp, TcpOp::kMessage, 1, std::string(1000, 'm'));
  seeds.push_back(tcp);
  std::string asks = kind(Kind::kTcpServer);
  AppendTo(
      asks,
      TcpFrame{.body_bytes = 0, .op = TcpOp::kVerbsAsk, .flags = 0, .count = 0, .argument = 0});
  seeds.push_back(asks);
  return seeds;
}
