// Who comes in and who does not: the cores of the handshake, and the drivers with keys.
#include "tailcast/fabric/handshake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/guest_list.h"
#include "tailcast/fabric/log_limit.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/shm_wire.h"
#include "tailcast/fabric/tcp_door.h"
#include "tailcast/fabric/tcp_wire.h"
#include "tailcast/fabric/verbs_offers.h"
#include "tailcast/fabric/verbs_wire.h"

namespace tailcast::fabric {
namespace {

SharedCellKey Key(unsigned char seed) {
  std::array<unsigned char, CellKey::kBytes> secret{};
  secret.fill(seed);
  return std::make_shared<const CellKey>(secret);
}
constexpr auto kIncarnation = ExporterIncarnation{42};

// ---- the cores ----

// Both ends of one handshake.
struct Pair {
  explicit Pair(const SharedCellKey& server_key, const SharedCellKey& client_key,
                std::string_view scheme = "tcp", uint32_t flags = 0,
                ExporterIncarnation expected = kIncarnation)
      : server(server_key.get(), "tcp", kIncarnation, RandomBytes()),
        client(client_key.get(), scheme, flags, expected, RandomBytes()) {}
  ServerHandshake server;
  ClientHandshake client;
};

TEST(Handshake, WhoHasTheKeyComesInAndBelievesTheServer) {
  const SharedCellKey key = Key(1);
  Pair pair(key, key);
  ASSERT_EQ(pair.server.OnHello(pair.client.hello()), HelloStatus::kProve);
  const auto proof = pair.client.OnChallenge(pair.server.challenge());
  ASSERT_TRUE(proof.ok()) << proof.status();
  EXPECT_EQ(pair.server.OnProof(*proof), HelloStatus::kWelcome);
  EXPECT_TRUE(pair.client.OnReply(HelloStatus::kWelcome, kHelloVersion, kIncarnation).ok());
  // It was another server that proved.
  EXPECT_TRUE(IsUnavailable(
      pair.client.OnReply(HelloStatus::kWelcome, kHelloVersion, ExporterIncarnation{43})));
}

TEST(Handshake, WithoutKeysTheWelcomeComesAtOnce) {
  Pair pair(nullptr, nullptr);
  EXPECT_EQ(pair.server.OnHello(pair.client.hello()), HelloStatus::kWelcome);
  EXPECT_TRUE(pair.client.OnReply(HelloStatus::kWelcome, kHelloVersion, kIncarnation).ok());
}

TEST(Handshake, NeitherEndDealsWithOneThatHasAnotherKeyOrNone) {
  const SharedCellKey key = Key(1), other = Key(2);
  Pair strangers(key, other);
  ASSERT_EQ(strangers.server.OnHello(strangers.client.hello()), HelloStatus::kProve);
  const auto proof = strangers.client.OnChallenge(strangers.server.challenge());
  EXPECT_TRUE(IsPermissionDenied(proof.status())) << proof.status();
  Pair keyless(key, nullptr);
  EXPECT_EQ(keyless.server.OnHello(keyless.client.hello()), HelloStatus::kNeedsKey);
  EXPECT_TRUE(IsPermissionDenied(
      keyless.client.OnReply(HelloStatus::kNeedsKey, kHelloVersion, kIncarnation)));
  // No downgrade: a server that welcomes at once has proven nothing.
  Pair downgraded(nullptr, key);
  EXPECT_EQ(downgraded.server.OnHello(downgraded.client.hello()), HelloStatus::kKeyless);
  EXPECT_TRUE(IsPermissionDenied(
      downgraded.client.OnReply(HelloStatus::kKeyless, kHelloVersion, kIncarnation)));
  EXPECT_TRUE(IsPermissionDenied(
      downgraded.client.OnReply(HelloStatus::kWelcome, kHelloVersion, kIncarnation)));
}

TEST(Handshake, AProofIsOfNoUseAnywhereElse) {
  const SharedCellKey key = Key(1);
  const auto proof_of = [](Pair& pair) {
    EXPECT_EQ(pair.server.OnHello(pair.client.hello()), HelloStatus::kProve);
    const auto proof = pair.client.OnChallenge(pair.server.challenge());
    EXPECT_TRUE(proof.ok()) << proof.status();
    return proof.value();
  };
  Pair first(key, key);
  const CellKey::Proof proof = proof_of(first);
  // Said again to the same server, whose nonce is another one.
  Pair again(key, key);
  ASSERT_EQ(again.server.OnHello(first.client.hello()), HelloStatus::kProve);
  EXPECT_EQ(again.server.OnProof(proof), HelloStatus::kWrongKey);
  // The server's own, sent back to it.
  Pair mirrored(key, key);
  ASSERT_EQ(mirrored.server.OnHello(mirrored.client.hello()), HelloStatus::kProve);
  EXPECT_EQ(mirrored.server.OnProof(mirrored.server.challenge().proof), HelloStatus::kWrongKey);
  // A challenge of another connection, or of another incarnation.
  Pair replayed(key, key);
  EXPECT_TRUE(IsPermissionDenied(replayed.client.OnChallenge(first.server.challenge()).status()));
  Challenge moved = first.server.challenge();
  moved.incarnation = ExporterIncarnation{43};
  Pair anyone(key, key, "tcp", 0, ExporterIncarnation::kAny);
  EXPECT_TRUE(IsPermissionDenied(anyone.client.OnChallenge(moved).status()));
  // Another driver.
  Pair crossed(key, key, "shm");
  ASSERT_EQ(crossed.server.OnHello(crossed.client.hello()), HelloStatus::kProve);
  EXPECT_TRUE(IsPermissionDenied(crossed.client.OnChallenge(crossed.server.challenge()).status()));
  // Another purpose: who sits between changes the flags of the hello.
  Pair bent(key, key);
  Hello hello = bent.client.hello();
  hello.flags = kHelloMessages;
  ASSERT_EQ(bent.server.OnHello(hello), HelloStatus::kProve);
  EXPECT_TRUE(IsPermissionDenied(bent.client.OnChallenge(bent.server.challenge()).status()));
}

TEST(Handshake, BothEndsInsistOnTheIncarnation) {
  const SharedCellKey key = Key(1);
  Pair pair(key, key, "tcp", 0, ExporterIncarnation{7});
  EXPECT_EQ(pair.server.OnHello(pair.client.hello()), HelloStatus::kIncarnation);
  // A server that does not mind.
  EXPECT_TRUE(IsUnavailable(pair.client.OnChallenge(pair.server.challenge()).status()));
  Pair open(nullptr, nullptr, "tcp", 0, ExporterIncarnation{7});
  EXPECT_TRUE(
      IsUnavailable(open.client.OnReply(HelloStatus::kWelcome, kHelloVersion, kIncarnation)));
}

TEST(Handshake, AnotherVersionAndUnknownPurposesAreTold) {
  Pair pair(nullptr, nullptr);
  Hello hello = pair.client.hello();
  hello.version = 1;
  EXPECT_EQ(pair.server.OnHello(hello), HelloStatus::kVersion);
  hello = pair.client.hello();
  hello.flags = 64;
  EXPECT_EQ(pair.server.OnHello(hello), HelloStatus::kVersion);
}

TEST(GuestList, AFloodDrivesOutItselfFirst) {
  GuestList list(4);
  EXPECT_EQ(list.Add(1, "honest"), std::nullopt);
  for (int guest = 10; guest < 13; ++guest) EXPECT_EQ(list.Add(guest, "flood"), std::nullopt);
  for (int guest = 13; guest < 100; ++guest) EXPECT_EQ(list.Add(guest, "flood"), guest - 3);
  EXPECT_EQ(list.Add(2, "honest"), 97);
  EXPECT_EQ(list.size(), 4u);
  for (const int guest : {1, 2, 98, 99, 99, 5}) list.Remove(guest);
  EXPECT_EQ(list.size(), 0u);
}

TEST(LogLimit, SaysHowManyLinesItLeftOut) {
  LogLimit limit;
  MonotonicTime now = MonotonicTime() + Duration::Seconds(100);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limit.Admit(now), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limit.Admit(now), std::nullopt);
  now = now + Duration::Seconds(1);
  EXPECT_EQ(limit.Admit(now), " (and 5 more like it before)");
  EXPECT_EQ(limit.Admit(now), std::nullopt);
}

// ---- key files ----

class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "handshake_XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

TEST(CellKeyFile, IsMadeOnceForItsOwnerAlone) {
  const Folder folder;
  const std::string path = folder / "cell.key";
  ASSERT_TRUE(CellKey::Make(path).ok());
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const auto key = CellKey::Load(path);
  ASSERT_TRUE(key.ok()) << key.status();
  ASSERT_TRUE(CellKey::Make(path).ok());  // leaves it
  EXPECT_TRUE(CellKey::Same((*CellKey::Load(path))->Sign("x"), (*key)->Sign("x")));
  ASSERT_TRUE(CellKey::Make(folder / "other.key").ok());
  EXPECT_FALSE(CellKey::Same((*CellKey::Load(folder / "other.key"))->Sign("x"), (*key)->Sign("x")));
  EXPECT_FALSE(CellKey::Make(folder / "nowhere/cell.key").ok());
}

TEST(CellKeyFile, SaysWhatIsWrongWithItAndWhatToDo) {
  const Folder folder;
  const std::string path = folder / "cell.key";
  const auto error = [&] { return CellKey::Load(path).status(); };
  EXPECT_TRUE(IsNotFound(error()));
  EXPECT_NE(error().message().find("tailcast key"), std::string::npos) << error();
  ASSERT_TRUE(CellKey::Make(path).ok());
  for (const mode_t mode : {0644, 0604, 0620, 0602, 0666}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(IsPermissionDenied(error())) << error();
    EXPECT_NE(error().message().find("chmod 600 " + path), std::string::npos) << error();
  }
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);  // a group that is in on it
  EXPECT_TRUE(CellKey::Load(path).ok());
  const std::string digits(64, 'a');
  for (const std::string& text : {std::string(), digits.substr(1), digits + "a", digits + "\nxyz",
                                  digits.substr(1) + "g", std::string(1 << 20, 'a')}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_TRUE(IsInvalidArgument(error())) << text.size() << ": " << error();
    EXPECT_EQ(error().message().find("aaaa"), std::string::npos) << "it shows the secret";
  }
  std::ofstream(path, std::ios::trunc) << digits << " \r\n\n";
  EXPECT_TRUE(CellKey::Load(path).ok());
  EXPECT_FALSE(CellKey::Load(folder / "").ok());
}

// ---- every driver ----

const char* VerbsHost() { return std::getenv("TAILCAST_TEST_VERBS_HOST"); }

class KeyedDrivers : public testing::TestWithParam<std::string> {
 protected:
  // Who comes in by RDMA proves his key over tcp.
  static std::string Scheme() { return GetParam() == "shm" ? "shm" : "tcp"; }
  void Export(SharedCellKey key) {
    ExporterOptions options;
    options.loop = &loop_;
    options.key = std::move(key);
    if (GetParam() == "shm") options.shm_socket_path = folder_ / "s";
    if (GetParam() == "tcp") options.tcp_listen = "127.0.0.1:0";
    if (GetParam() == "verbs") options.verbs_host = VerbsHost();
    exporter_ = MakeExporter(options);
    ASSERT_TRUE(exporter_->AddRegion(0, 4096).ok());
    exporter_->ServeMessages(
        scope_.Bind([](std::string_view message, std::string& answer) { answer = message; }));
    address_ = exporter_->Listen().value().front();
  }
  template <typename Port>
  Status Try(Connector& connector,
             void (Connector::*connect)(const std::string&, Duration,
                                        Callback<void(Result<std::unique_ptr<Port>>)>)) {
    std::optional<Result<std::unique_ptr<Port>>> result;
    (connector.*connect)(address_, Duration::Seconds(10),
                         scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
    EXPECT_TRUE(loop_.RunUntil([&] { return result.has_value(); },
                               ReadMonotonicClock() + Duration::Seconds(20)));
    return result->status();
  }
  // Of reads (and so of watches) and of messages; the same.
  Status TryBoth(SharedCellKey key) {
    const auto connector = MakeConnector(&loop_, {.key = std::move(key)});
    Status reads = Try(*connector, &Connector::Connect);
    const Status messages = Try(*connector, &Connector::OpenChannel);
    EXPECT_EQ(reads.code(), messages.code()) << reads << "; " << messages;
    return reads;
  }
  int64_t Refused(const char* why) const {
    return ProcessMetrics().Value("tailcast_fabric_refused_connections_total",
                                  {{"driver", Scheme()}, {"why", why}});
  }

  Folder folder_;
  ThreadLoop loop_;
  Scope scope_;
  std::unique_ptr<Exporter> exporter_;
  std::string address_;
};

TEST_P(KeyedDrivers, LetInWhoHasTheCellsKeyAndNobodyElse) {
  Export(Key(1));
  EXPECT_TRUE(TryBoth(Key(1)).ok()) << TryBoth(Key(1));
  const Status stranger = TryBoth(Key(2));
  EXPECT_TRUE(IsPermissionDenied(stranger)) << stranger;
  const int64_t before = Refused("no_key");
  const Status keyless = TryBoth(nullptr);
  EXPECT_TRUE(IsPermissionDenied(keyless)) << keyless;
  EXPECT_NE(keyless.message().find("cell_key"), std::string::npos) << keyless;
  EXPECT_EQ(Refused("no_key"), before + 2);
  EXPECT_TRUE(TryBoth(Key(1)).ok());
}

TEST_P(KeyedDrivers, AClientWithAKeyDealsWithNoServerThatProvesNone) {
  Export(nullptr);
  EXPECT_TRUE(TryBoth(nullptr).ok());
  const Status refused = TryBoth(Key(1));
  EXPECT_TRUE(IsPermissionDenied(refused)) << refused;
}

Descriptor DialTcp(const std::string& where) {
  const SocketAddress to = ResolveNumber(ParseHostPort(where).value()).value();
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), to.get(), to.length), 0);
  return fd;
}

// A client of our own making: what the server says to each packet of a list; the last of it.
std::string Converse(const Descriptor& fd, const std::vector<std::string>& packets) {
  std::string said;
  for (const std::string& packet : packets) {
    EXPECT_EQ(send(fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(packet.size()));
    char bytes[512];
    const ssize_t n = recv(fd.get(), bytes, sizeof bytes, 0);
    said.assign(bytes, n > 0 ? static_cast<size_t>(n) : 0);
  }
  return said;
}

TEST_P(KeyedDrivers, AProofThatWasOverheardOpensNothing) {
  Export(Key(1));
  const size_t colon = address_.find(':');
  const std::string where = address_.substr(colon + 1, address_.rfind('#') - colon - 1);
  const auto dial = [&]() -> Descriptor {
    if (GetParam() != "shm") return DialTcp(where);
    Descriptor fd = ConnectUnix(where).value();
    fcntl(fd.get(), F_SETFL, 0);
    return fd;
  };
  const auto status_of = [&](const std::string& said) {
    if (GetParam() == "shm") return TakeFrom<ShmReply>(said.data()).status;
    return TakeFrom<TcpWelcome>(said.data() + sizeof(TcpFrame)).status;
  };
  // A client of the cell, spoken for by hand.
  const SharedCellKey key = Key(1);
  const std::string scheme = Scheme();
  ClientHandshake client(key.get(), scheme, 0, ExporterIncarnation::kAny, RandomBytes());
  std::string hello;
  if (GetParam() == "shm") {
    AppendTo(hello, ShmHello{.magic = kShmMagic, .hello = client.hello()});
  } else {
    hello = HandshakeFrame(TcpOp::kHello, client.hello());
  }
  const Descriptor honest = dial();
  const std::string challenged = Converse(honest, {hello});
  const size_t head = GetParam() == "shm" ? sizeof(ShmReply) : sizeof(TcpFrame);
  ASSERT_EQ(challenged.size(), head + sizeof(Challenge));
  const auto proof = client.OnChallenge(TakeFrom<Challenge>(challenged.data() + head));
  ASSERT_TRUE(proof.ok()) << proof.status();
  std::string proving;
  if (GetParam() == "shm") {
    AppendTo(proving, ShmProof{.magic = kShmMagic, .proof = *proof});
  } else {
    proving = HandshakeFrame(TcpOp::kProof, *proof);
  }
  EXPECT_EQ(status_of(Converse(honest, {proving})), HelloStatus::kWelcome);
  // The very same packets once more.
  const int64_t before = Refused("wrong_key");
  EXPECT_EQ(status_of(Converse(dial(), {hello, proving})), HelloStatus::kWrongKey);
  EXPECT_EQ(Refused("wrong_key"), before + 1);
  // A proof without a hello.
  const std::string unasked = Converse(dial(), {proving});
  EXPECT_TRUE(unasked.empty() || status_of(unasked) == HelloStatus::kVersion);
}

std::vector<std::string> KeyedDriversHere() {
  std::vector<std::string> drivers = {"shm", "tcp"};
  if (VerbsHost() != nullptr) drivers.emplace_back("verbs");
  return drivers;
}
INSTANTIATE_TEST_SUITE_P(Real, KeyedDrivers, testing::ValuesIn(KeyedDriversHere()),
                         [](const auto& info) { return info.param; });

// ---- verbs ----

// Their proof is made over tcp; RDMA is offered behind it.
class CountedOffers final : public VerbsOffers {
 public:
  Made Offer() override {
    ++made_;
    return {.body = std::string(sizeof(VerbsOfferHead), 'o'), .regions = 1, .ticket = made_};
  }
  void Forget(uint64_t) override {}
  uint64_t made() const { return made_; }

 private:
  std::atomic<uint64_t> made_{0};
};

TEST(VerbsToken, IsGivenToNobodyWhoHasNotProvenTheKey) {
  const SharedCellKey key = Key(1);
  ExporterOptions options;
  options.key = key;
  options.tcp_listen = "127.0.0.1:0";
  RegionMemory memory(kIncarnation, Duration::Seconds(2));
  ASSERT_TRUE(memory.Add(0, 4096).ok());
  ASSERT_TRUE(memory.Seal().ok());
  Reactor reactor("fabric-server");
  CountedOffers offers;
  DoorContext context;
  context.options = &options;
  context.reactor = &reactor;
  context.memory = &memory;
  TcpDoor door(context, &offers);
  const std::string where = door.Listen().value();

  std::string ask;
  AppendTo(ask, TcpFrame{.body_bytes = 0, .op = TcpOp::kVerbsAsk, .flags = 0, .argument = 0});
  const auto hello_of = [](const ClientHandshake& client) {
    return HandshakeFrame(TcpOp::kHello, client.hello());
  };
  const auto client_with = [](const SharedCellKey& its) {
    return ClientHandshake(its.get(), "tcp", 0, ExporterIncarnation::kAny, RandomBytes());
  };
  // No hello; a hello and no proof; the proof of another key.
  EXPECT_EQ(Converse(DialTcp(where), {ask}), "");
  EXPECT_EQ(Converse(DialTcp(where), {hello_of(client_with(key)), ask}), "");
  const std::string wrong = HandshakeFrame(TcpOp::kProof, CellKey::Proof{7});
  const Descriptor stranger = DialTcp(where);
  Converse(stranger, {hello_of(client_with(key)), wrong});
  send(stranger.get(), ask.data(), ask.size(), MSG_NOSIGNAL);
  char byte;
  EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);
  EXPECT_NE(Converse(DialTcp(where), {hello_of(client_with(nullptr))}), "");  // refused
  EXPECT_EQ(offers.made(), 0u);
  // Who has it asks at once behind its proof.
  ClientHandshake client = client_with(key);
  const Descriptor honest = DialTcp(where);
  const std::string challenge = Converse(honest, {hello_of(client)});
  ASSERT_EQ(challenge.size(), sizeof(TcpFrame) + sizeof(Challenge));
  const auto proof = client.OnChallenge(TakeFrom<Challenge>(challenge.data() + sizeof(TcpFrame)));
  const std::string proving = HandshakeFrame(TcpOp::kProof, proof.value()) + ask;
  ASSERT_GT(send(honest.get(), proving.data(), proving.size(), MSG_NOSIGNAL), 0);
  std::string said(sizeof(TcpFrame) + sizeof(TcpWelcome) + sizeof(TcpRegion) + sizeof(TcpFrame) +
                       sizeof(VerbsOfferHead),
                   '\0');
  EXPECT_EQ(recv(honest.get(), said.data(), said.size(), MSG_WAITALL),
            static_cast<ssize_t>(said.size()));
  EXPECT_EQ(said.back(), 'o');
  EXPECT_EQ(offers.made(), 1u);
}

}  // namespace
}  // namespace tailcast::fabric
