// Both ends of shm and tcp, each with a peer that says anything: the servers' doors with a raw
// client, the endpoints with a raw server, over sockets of this host. (Of verbs:
// verbs_door_fuzz.cc.) The ends have threads of their own, so the branches that they take guide
// nothing here; the seeds lead behind the hellos.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/control_page.h"
#include "tailcast/fabric/raw_sockets.h"
#include "tailcast/fabric/shm_wire.h"
#include "tailcast/fabric/tcp_greeter.h"
#include "tailcast/fabric/tcp_wire.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::fabric {
namespace {

// Keyed: the end has a cell key, which its peer can't prove: nobody comes in.
enum class Kind : uint8_t {
  kTcpServer,
  kShmServer,
  kTcpClient,
  kShmClient,
  kKeyedTcpServer,
  kKeyedShmServer,
  kKeyedTcpClient,
  kKeyedShmClient,
};
constexpr uint8_t kKinds = 8;
constexpr uint64_t kRegionBytes = 8192;
constexpr Duration kLimit = Duration::Seconds(20);

std::string SocketPath(const char* name) {
  return (std::filesystem::temp_directory_path() / ("tailcast-fuzz-" + std::to_string(getpid())))
      .string()
      .append(name);
}

sockaddr_un UnixSocketAddress(const std::string& path) {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  TAILCAST_CHECK(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}
// Takes the request for the ranges, whatever they are.
ScanPlan Scan(const ScanRequest& request, std::span<const std::span<const char>>) {
  ScanPlan plan;
  plan.count = static_cast<uint8_t>(request[0]);
  for (uint32_t i = 0; i < kScanRangesMax; ++i) {
    plan.ranges[i].region = static_cast<uint8_t>(request[1 + i]);
    std::memcpy(&plan.ranges[i].length, request.data() + 4 + 4 * i, 4);
    std::memcpy(&plan.ranges[i].offset, request.data() + 16 + 4 * i, 4);
  }
  return plan;
}

// ---- servers ----

class Servers {
 public:
  explicit Servers(SharedCellKey key)
      : keyed_(key != nullptr), path_(SocketPath(keyed_ ? "-keyed" : "-server")) {
    ExporterOptions options;
    options.key = std::move(key);
    options.shm_socket_path = path_;
    options.tcp_listen = "127.0.0.1:0";
    options.watches_max = 8;
    options.reads_max = 64;
    exporter_ = MakeExporter(options);
    for (RegionId id = 0; id < 2; ++id) TAILCAST_CHECK(exporter_->AddRegion(id, kRegionBytes).ok());
    exporter_->SetScanner(Scan);
    const auto addresses = exporter_->Listen();
    TAILCAST_CHECK(addresses.ok() && addresses->size() == 2);
    const std::string& tcp = addresses->back();  // "tcp:127.0.0.1:PORT#..."
    port_ = static_cast<uint16_t>(std::stoi(tcp.substr(tcp.rfind(':') + 1)));
  }

  void TalkTcp(std::string_view bytes) {
    const std::string last = SayAt(port_, bytes);
    if (!keyed_ || last.size() < sizeof(TcpFrame) + sizeof(TcpWelcome)) return;
    TAILCAST_CHECK(
        TakeFrom<TcpFrame>(last.data()).op != TcpOp::kWelcome ||
            TakeFrom<TcpWelcome>(last.data() + sizeof(TcpFrame)).status != HelloStatus::kWelcome,
        "somebody came in who has no key");
  }
  // Packets, each with a length of two bytes before it.
  void TalkShm(fuzz::Input input) {
    const Socket socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    TAILCAST_CHECK(Connected(socket, UnixSocketAddress(path_)), "the server takes no connection");
    while (!input.empty()) {
      const std::string_view packet = input.Bytes(input.Take<uint16_t>() % 512);
      if (!packet.empty()) socket.Send(packet);
    }
    const std::string last = socket.Finish();
    TAILCAST_CHECK(!keyed_ || last.size() < sizeof(ShmReply) ||
                       TakeFrom<ShmReply>(last.data()).status != HelloStatus::kWelcome,
                   "somebody came in who has no key");
  }

 private:
  const bool keyed_;
  const std::string path_;
  std::unique_ptr<Exporter> exporter_;
  uint16_t port_ = 0;
};

// ---- endpoints ----

class Clients {
 public:
  explicit Clients(SharedCellKey key)
      : keyed_(key != nullptr),
        connector_(MakeConnector(&loop_, {.key = std::move(key)})),
        tcp_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        shm_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)),
        path_(SocketPath(keyed_ ? "-keyed-client" : "-client")) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    const auto generic = reinterpret_cast<sockaddr*>(&address);
    TAILCAST_CHECK(bind(tcp_.get(), generic, size) == 0 && listen(tcp_.get(), 16) == 0 &&
                   getsockname(tcp_.get(), generic, &size) == 0);
    tcp_address_ = "tcp:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    const sockaddr_un local = UnixSocketAddress(path_);
    unlink(path_.c_str());
    TAILCAST_CHECK(bind(shm_.get(), reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0 &&
                   listen(shm_.get(), 16) == 0);
    for (int& fd : memory_) {
      fd = memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC);
      TAILCAST_CHECK(fd >= 0 && ftruncate(fd, kRegionBytes) == 0 &&
                     fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    }
  }

  // Size of the welcome, the welcome, and what the server says after the first reads.
  void TalkTcp(fuzz::Input input) {
    const std::string_view welcome = input.Bytes(input.Take<uint16_t>());
    const auto answer = [&](const Socket& peer) { peer.Send(welcome); };
    Talk(tcp_address_, tcp_, answer, IsWhole(welcome), input.Rest());
  }
  // How many descriptors, the control page's beginning, the reply, and one packet more.
  void TalkShm(fuzz::Input input) {
    const size_t fds = input.Take<uint8_t>() % (memory_.size() + 1);
    std::string page(input.Bytes(sizeof(ControlPage)));
    page.resize(sizeof(ControlPage));
    TAILCAST_CHECK(pwrite(memory_[0], page.data(), page.size(), 0) ==
                   static_cast<ssize_t>(page.size()));
    std::string reply(input.Bytes(input.Take<uint16_t>()));
    const auto answer = [&](const Socket& peer) {
      SendPacket(peer.get(), reply, std::span(memory_.data(), fds));
    };
    Talk("shm:" + path_, shm_, answer, true, input.Bytes(512));
  }

 private:
  static constexpr uint32_t kReads = 4;
  static constexpr uint32_t kScans = 3;  // the last one is released
  static constexpr uint32_t kPartBytes = 64;

  // Enough for the endpoint to judge it.
  static bool IsWhole(std::string_view welcome) {
    if (welcome.size() < sizeof(TcpFrame)) return false;
    const auto frame = TakeFrom<TcpFrame>(welcome.data());
    return frame.argument != kTcpMagic || frame.body_bytes > TcpGreeter::kBodyMax ||
           frame.body_bytes % 8 != 0 || welcome.size() >= sizeof frame + frame.body_bytes;
  }

  template <typename Answer>
  void Talk(const std::string& address, const Socket& listener, const Answer& answer, bool whole,
            std::string_view rest) {
    const Scope scope;
    std::optional<Result<std::unique_ptr<Endpoint>>> result;
    connector_->Connect(address, Duration::Seconds(10),
                        scope.Bind([&](auto r) { result.emplace(std::move(r)); }));
    const Socket peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<char, sizeof(TcpFrame) + sizeof(Hello)> hello;
    TAILCAST_CHECK(recv(peer.get(), hello.data(), hello.size(), 0) > 0, "no hello");
    answer(peer);
    // A welcome that is not whole never will be, and nothing comes after a challenge.
    if (!whole || keyed_) shutdown(peer.get(), SHUT_WR);
    TAILCAST_CHECK(
        loop_.RunUntil([&] { return result.has_value(); }, ReadMonotonicClock() + kLimit),
        "an attempt to connect has an end");
    TAILCAST_CHECK(!keyed_ || !result->ok(), "a server without the key was believed");
    if (result->ok()) Use(***result, peer, rest);
  }

  void Use(Endpoint& endpoint, const Socket& peer, std::string_view rest) {
    const Scope scope;
    // Asked once: it is empty as soon as the connection breaks.
    const std::span<const RegionInfo> known = endpoint.regions();
    const std::vector<RegionInfo> regions(known.begin(), known.end());
    for (const RegionInfo& region : regions) {
      TAILCAST_CHECK(region.generation != Generation::kNone, "memory that is readable by no one");
    }
    std::array<std::array<char, 64>, kReads> destinations = {};
    std::array<ReadDescriptor, kReads> reads;
    for (uint32_t i = 0; i < kReads; ++i) {
      // The last of a region that may be of any size, and one behind it.
      const uint64_t size = regions.empty() ? 64 : regions[0].size;
      const uint64_t offset = i == 0 ? 0 : i == 1 ? size - std::min<uint64_t>(size, 8) : size;
      reads[i] = {.region = i == 3 ? kRegionsMax : 0,
                  .length = i == 1 ? 8u : 64u,
                  .offset = offset,
                  .destination = destinations[i].data(),
                  .token = i};
    }
    endpoint.Read(reads);
    uint32_t expected = kReads;
    std::array<ScanRead, kScans> scans;
    std::array<std::array<char, (kScanRangesMax + 1) * kPartBytes>, kScans> parts = {};
    if (endpoint.capabilities().scan) {
      expected += kScans;
      for (uint32_t i = 0; i < kScans; ++i) {
        scans[i].token = kReads + i;
        for (uint32_t part = 0; part < kScanRangesMax; ++part) {
          scans[i].parts[part] = {parts[i].data() + part * kPartBytes, kPartBytes};
        }
        ScanRead* const scan = &scans[i];
        if (i + 1 == kScans) endpoint.Release(*scan);  // its answer may be there already
        endpoint.Scan({&scan, 1});
      }
    }
    bool watched = false;
    endpoint.Watch(0, 0, 1, Duration::Millis(1), scope.Bind([&](WatchOutcome) { watched = true; }));
    if (!rest.empty()) peer.Send(rest);
    shutdown(peer.get(), SHUT_WR);
    std::array<int, kReads + kScans> answered = {};
    uint32_t count = 0;
    const bool ended = loop_.RunUntil(
        [&] {
          std::array<Completion, kReads + kScans> completions;
          const size_t n = endpoint.Poll(completions);
          for (size_t i = 0; i < n; ++i) {
            TAILCAST_CHECK(completions[i].token < expected && ++answered[completions[i].token] == 1,
                           "an answer to another read, or a second one");
          }
          count += static_cast<uint32_t>(n);
          return count == expected && watched;
        },
        ReadMonotonicClock() + kLimit);
    TAILCAST_CHECK(ended, "every read and every watch has an end");
    const auto untouched = [](const auto& bytes, size_t from) {
      return std::all_of(bytes.begin() + static_cast<ptrdiff_t>(from), bytes.end(),
                         [](char c) { return c == 0; });
    };
    for (uint32_t i = 0; i < kScans; ++i) {
      TAILCAST_CHECK(untouched(parts[i], i + 1 == kScans ? 0 : kScanRangesMax * kPartBytes),
                     "bytes where there is no room for them");
    }
  }

  const bool keyed_;
  ThreadLoop loop_;
  const std::unique_ptr<Connector> connector_;
  const Socket tcp_, shm_;
  const std::string path_;
  std::string tcp_address_;
  std::array<int, 3> memory_ = {};
};

void Run(fuzz::Input input) {
  // Made in the process that runs the inputs, and left to its end.
  static const auto key = std::make_shared<const CellKey>(std::array<unsigned char, 32>{1, 2, 3});
  static auto* const servers = new std::array{Servers(nullptr), Servers(key)};
  static auto* const clients = new std::array{Clients(nullptr), Clients(key)};
  const auto kind = static_cast<Kind>(input.Take<uint8_t>() % kKinds);
  const size_t keyed = kind >= Kind::kKeyedTcpServer ? 1 : 0;
  switch (kind) {
    case Kind::kTcpServer:
    case Kind::kKeyedTcpServer:
      return (*servers)[keyed].TalkTcp(input.Rest());
    case Kind::kShmServer:
    case Kind::kKeyedShmServer:
      return (*servers)[keyed].TalkShm(input);
    case Kind::kTcpClient:
    case Kind::kKeyedTcpClient:
      return (*clients)[keyed].TalkTcp(input);
    case Kind::kShmClient:
    case Kind::kKeyedShmClient:
      return (*clients)[keyed].TalkShm(input);
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
  std::string server(1, static_cast<char>(Kind::kTcpServer));
  server += frame(TcpOp::kHello, sizeof(Hello), 0, kTcpMagic);
  AppendTo(server, Hello{.version = kHelloVersion});
  const std::string hello = server;
  server += frame(TcpOp::kRead, 3 * sizeof(TcpRead), 3, 0);
  for (const uint64_t offset : {uint64_t{0}, kRegionBytes - 64, kRegionBytes}) {
    AppendTo(server, TcpRead{offset, 64, 1, offset});
  }
  server += frame(TcpOp::kScanAndRead, 2 * sizeof(TcpScan), 2, 0);
  for (const char ranges : {1, 3}) {
    TcpScan scan = {.tag = 7, .request = {ranges, 0, 1, 0}};
    for (size_t i = 0; i < kScanRangesMax; ++i) scan.request[4 + 4 * i] = 64;
    AppendTo(server, scan);
  }
  server += frame(TcpOp::kWatch, sizeof(TcpWatch), 0, 5);
  AppendTo(server, TcpWatch{64, 0, 0});
  server += frame(TcpOp::kCancelWatch, 0, 0, 5) + frame(TcpOp::kPing, 0, 0, 9);

  std::string shm_server(1, static_cast<char>(Kind::kShmServer));
  Append(shm_server, static_cast<uint16_t>(sizeof(ShmHello)));
  Append(shm_server, ShmHello{.magic = kShmMagic, .hello = {.version = kHelloVersion}});

  std::string welcome =
      frame(TcpOp::kWelcome, sizeof(TcpWelcome) + 2 * sizeof(TcpRegion), 2, kTcpMagic);
  AppendTo(welcome, TcpWelcome{.version = kHelloVersion,
                               .status = HelloStatus::kWelcome,
                               .incarnation = ExporterIncarnation{7},
                               .reads_max = 64,
                               .watches_max = 8,
                               .peer_timeout_us = 5'000'000});
  for (int i = 0; i < 2; ++i) AppendTo(welcome, TcpRegion{kRegionBytes, Generation{3}});
  std::string client(1, static_cast<char>(Kind::kTcpClient));
  Append(client, static_cast<uint16_t>(welcome.size()));
  client += welcome;
  // The first two reads of Use go over the wire; tags count from 0.
  std::string answered = client + frame(TcpOp::kAnswer, 2 * sizeof(TcpAnswer), 2, 72);
  AppendTo(answered, TcpAnswer{0, 64, ReadStatus::kOk, {}});
  AppendTo(answered, TcpAnswer{1, 8, ReadStatus::kOk, {}});
  answered += std::string(72, 'a') + frame(TcpOp::kNotify, 0, 0, 1) + frame(TcpOp::kPong, 0, 0, 0);
  // Of a server that scans: the tags of the scans follow.
  std::string scanned = answered;
  scanned[1 + sizeof(uint16_t) + offsetof(TcpFrame, flags)] = kTcpFlagScans;
  scanned += frame(TcpOp::kScanned, 3 * sizeof(TcpScanned), 3, 3 * 64 + 3 * 8);
  for (const uint64_t tag : {2, 3, 4}) {
    TcpScanned one = {.tag = tag, .status = ReadStatus::kOk, .ranges = 2, .reserved = {}};
    one.parts[0] = {.offset = 64, .length = 64, .region = 0};
    one.parts[1] = {.offset = 0, .length = 5, .region = 1};
    AppendTo(scanned, one);
  }
  scanned += std::string(3 * 64 + 3 * 8, 'b');
  std::vector<std::string> seeds = {hello, server, shm_server, client, answered, scanned};

  std::string shm_client(1, static_cast<char>(Kind::kShmClient));
  shm_client += '\2';
  std::string page(sizeof(ControlPage), '\0');
  const uint64_t head[] = {kControlMagic, uint64_t{1} << 32 | kControlVersion, 7, 2'000'000};
  std::memcpy(page.data(), head, sizeof head);
  const uint64_t generation = 3;
  std::memcpy(page.data() + 128, &generation, 8);
  std::string reply;
  Append(reply, ShmReply{.magic = kShmMagic,
                         .version = kHelloVersion,
                         .status = HelloStatus::kWelcome,
                         .incarnation = ExporterIncarnation{7},
                         .region_count = 1});
  Append(reply, ShmRegion{kRegionBytes, Generation{3}});
  shm_client += page;
  Append(shm_client, static_cast<uint16_t>(reply.size()));
  seeds.push_back(shm_client + reply);

  // Where a key is asked for: hellos of who has one, with a proof that can't be right, and
  // challenges of who has not.
  const Hello keyed = {.version = kHelloVersion, .keyed = 1};
  std::string prover(1, static_cast<char>(Kind::kKeyedTcpServer));
  prover += HandshakeFrame(TcpOp::kHello, keyed) + HandshakeFrame(TcpOp::kProof, CellKey::Proof{});
  seeds.push_back(prover);
  std::string shm_prover(1, static_cast<char>(Kind::kKeyedShmServer));
  Append(shm_prover, static_cast<uint16_t>(sizeof(ShmHello)));
  Append(shm_prover, ShmHello{.magic = kShmMagic, .hello = keyed});
  Append(shm_prover, static_cast<uint16_t>(sizeof(ShmProof)));
  Append(shm_prover, ShmProof{.magic = kShmMagic, .proof = {}});
  seeds.push_back(shm_prover);
  const Challenge challenge = {.incarnation = ExporterIncarnation{7}, .nonce = {}, .proof = {}};
  const std::string asked = HandshakeFrame(TcpOp::kChallenge, challenge);
  for (const std::string& said : {asked, welcome}) {
    std::string liar(1, static_cast<char>(Kind::kKeyedTcpClient));
    Append(liar, static_cast<uint16_t>(said.size()));
    seeds.push_back(liar + said);
  }
  std::string shm_liar(1, static_cast<char>(Kind::kKeyedShmClient));
  shm_liar += std::string(1 + sizeof(ControlPage), '\0');
  std::string shm_asked;
  Append(shm_asked, ShmReply{.magic = kShmMagic,
                             .version = kHelloVersion,
                             .status = HelloStatus::kProve,
                             .incarnation = ExporterIncarnation{7}});
  Append(shm_asked, challenge);
  Append(shm_liar, static_cast<uint16_t>(shm_asked.size()));
  seeds.push_back(shm_liar + shm_asked);
  return seeds;
}
