// What is particular to the verbs driver, on an RDMA device: tests/uml/run.py runs it in a kernel
// that has soft ones.
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/raw_verbs.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_wire.h"
#include "tailcast/fabric/verbs_link.h"
#include "tailcast/fabric/verbs_messages_core.h"

// What the driver says to the device and to the connection manager passes by here: looked at, and
// answered otherwise where a test wants it.
namespace {

struct {
  std::atomic<int> max_qp_rd_atom = 0, max_qp_init_rd_atom = 0;  // 0: the device's own
  std::atomic<bool> makes_no_queue_pairs = false;                // but to the test's own thread
  std::atomic<bool> accepts_nothing = false;
  std::atomic<int> asked = 0, granted = 0;  // READs at a time, of the last connection
  std::atomic<ibv_qp*> client = nullptr, server = nullptr;  // its queue pairs
} g_device;

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
bool OnTheTestsThread() { return gettid() == getpid(); }

}  // namespace

extern "C" int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const int error = Real<decltype(ibv_query_device)>("ibv_query_device")(context, attributes);
  if (const int most = g_device.max_qp_rd_atom; most != 0) attributes->max_qp_rd_atom = most;
  if (const int most = g_device.max_qp_init_rd_atom; most != 0) {
    attributes->max_qp_init_rd_atom = most;
  }
  return error;
}
extern "C" int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* queue) {
  if (g_device.makes_no_queue_pairs && !OnTheTestsThread()) {
    errno = ENOMEM;
    return -1;
  }
  return Real<decltype(rdma_create_qp)>("rdma_create_qp")(id, pd, queue);
}
extern "C" int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  g_device.asked = parameters->initiator_depth;
  g_device.client = id->qp;
  return Real<decltype(rdma_connect)>("rdma_connect")(id, parameters);
}
extern "C" int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  if (g_device.accepts_nothing) {
    errno = EINVAL;
    return -1;
  }
  g_device.granted = parameters->responder_resources;
  g_device.server = id->qp;
  return Real<decltype(rdma_accept)>("rdma_accept")(id, parameters);
}

namespace tailcast::fabric {
namespace {

constexpr uint64_t kRegionBytes = 1 << 20;
constexpr Duration kPeerTimeout = Duration::Millis(1200);
const char* Host() { return std::getenv("TAILCAST_TEST_VERBS_HOST"); }

// Times that the threads of this name fell asleep; waits until all of them sleep.
int64_t Sleeps(const std::string& name) {
  const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(10);
  for (;; poll(nullptr, 0, 1)) {
    int64_t total = 0;
    bool asleep = true;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string comm;
      std::getline(std::ifstream(task.path() / "comm"), comm);
      if (comm != name) continue;
      std::ifstream status(task.path() / "status");
      for (std::string word, state; status >> word;) {
        int64_t n = 0;
        if (word == "State:" && status >> state) asleep &= state == "S";
        if (word == "voluntary_ctxt_switches:" && status >> n) total += n;
      }
    }
    if (asleep) return total;
    if (ReadMonotonicClock() > end) {
      ADD_FAILURE() << "no moment in which all of " << name << " slept";
      return total;
    }
  }
}

class VerbsDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Host() == nullptr) GTEST_SKIP() << "no RDMA device here; tests/uml/run.py has one";
    ASSERT_TRUE(SetLogLevels("off").ok());
    ibv_device** const devices = ibv_get_device_list(nullptr);
    ASSERT_TRUE(devices != nullptr && devices[0] != nullptr);
    iwarp_ = devices[0]->transport_type == IBV_TRANSPORT_IWARP;
    ibv_free_device_list(devices);
    Serve();
    connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(10)});
  }
  void TearDown() override {
    g_device.max_qp_rd_atom = g_device.max_qp_init_rd_atom = 0;
    g_device.makes_no_queue_pairs = g_device.accepts_nothing = false;
  }
  // A new server, in place of the last.
  void Serve() {
    ExporterOptions options;
    options.verbs_host = Host();
    options.peer_timeout = kPeerTimeout;
    options.loop = &loop_;
    exporter_ = nullptr;
    exporter_ = MakeExporter(options);
    memory_ = exporter_->AddRegion(0, kRegionBytes).value();
    for (uint64_t i = 0; i < kRegionBytes; ++i) memory_[i] = static_cast<char>(i * 7 + i / 256);
    exporter_->ServeMessages(scope_.Bind([this](std::string_view message, std::string& answer) {
      ++handled_;
      answer = message.substr(0, 100);
    }));
    address_ = exporter_->Listen().value().front();
  }
  std::unique_ptr<Endpoint> Connect() {
    std::optional<Result<std::unique_ptr<Endpoint>>> result;
    connector_->Connect(address_, Duration::Seconds(10),
                        scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
    EXPECT_TRUE(Until([&] { return result.has_value(); }));
    EXPECT_TRUE(result->ok()) << result->status();
    return result->ok() ? std::move(*result).value() : nullptr;
  }
  bool Until(const std::function<bool()>& done) {
    return loop_.RunUntil(done, ReadMonotonicClock() + Duration::Seconds(30));
  }
  // `count` reads of 64 bytes, up to 64 at a time.
  void ReadMany(Endpoint* endpoint, int count) {
    std::vector<char> buffer(64 * 64);
    for (int left = count; left > 0;) {
      std::vector<ReadDescriptor> reads;
      for (uint64_t i = 0; i < 64 && left > 0; ++i, --left) {
        reads.push_back({.region = 0,
                         .length = 64,
                         .offset = (static_cast<uint64_t>(left) * 4096) % kRegionBytes,
                         .destination = buffer.data() + i * 64,
                         .token = i});
      }
      endpoint->Read(reads);
      size_t done = 0;
      ASSERT_TRUE(Until([&] {
        Completion completions[64];
        const size_t n = endpoint->Poll(completions);
        for (size_t i = 0; i < n; ++i) EXPECT_EQ(completions[i].status, ReadStatus::kOk);
        done += n;
        return done == reads.size();
      }));
      for (const ReadDescriptor& read : reads) {
        ASSERT_EQ(std::memcmp(read.destination, memory_.data() + read.offset, 64), 0);
      }
    }
  }
  // As an honest reader gets it. Its tcp connection lives until the next.
  VerbsOffer Offer() {
    let_in_ = nullptr;
    let_in_ = std::make_unique<LetIn>(&loop_, address_);
    return let_in_->offer();
  }
  // A channel, with what it was told.
  struct Client {
    std::unique_ptr<Channel> channel;
    uint64_t answers = 0;
    bool broken = false;
    Scope scope;
    bool Send(std::string_view message) { return channel->Send(std::span(&message, 1), 0); }
  };
  std::unique_ptr<Client> Open(const std::string& address) {
    auto client = std::make_unique<Client>();
    std::optional<Status> outcome;
    connector_->OpenChannel(
        address, Duration::Seconds(10), scope_.Bind([&](Result<std::unique_ptr<Channel>> channel) {
          outcome = channel.status();
          if (!channel.ok()) return;
          client->channel = std::move(channel).value();
          Client* const one = client.get();
          one->channel->SetCallbacks(
              {.on_answer = one->scope.Bind([one](uint64_t, std::string_view) { ++one->answers; }),
               .on_broken = one->scope.Bind([one] { one->broken = true; })});
        }));
    EXPECT_TRUE(Until([&] { return outcome.has_value(); }));
    EXPECT_TRUE(outcome->ok()) << *outcome;
    return outcome->ok() ? std::move(client) : nullptr;
  }
  // A tcp connection that was let in as a message channel, and what it was offered: as a reader's
  // offer, without memory.
  struct LetInToWrite {
    Descriptor tcp;
    VerbsOffer offer;
  };
  LetInToWrite ChannelOffer() {
    LetInToWrite in;
    const std::string where = address_.substr(6, address_.rfind('#') - 6);
    const SocketAddress address = ResolveNumber(ParseHostPort(where).value()).value();
    in.tcp = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(in.tcp.get(), address.get(), address.length), 0);
    std::string said =
        HandshakeFrame(TcpOp::kHello, Hello{.version = kHelloVersion, .flags = kHelloMessages});
    AppendTo(
        said,
        TcpFrame{.body_bytes = 0, .op = TcpOp::kVerbsAsk, .flags = 0, .count = 0, .argument = 0});
    EXPECT_EQ(send(in.tcp.get(), said.data(), sizeof(TcpFrame) + sizeof(Hello), 0),
              static_cast<ssize_t>(sizeof(TcpFrame) + sizeof(Hello)));
    char bytes[sizeof(TcpFrame) + sizeof(TcpWelcome)];
    EXPECT_EQ(recv(in.tcp.get(), bytes, sizeof(bytes), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(bytes)));
    EXPECT_EQ(
        send(in.tcp.get(), said.data() + sizeof(TcpFrame) + sizeof(Hello), sizeof(TcpFrame), 0),
        static_cast<ssize_t>(sizeof(TcpFrame)));
    char answer[sizeof(TcpFrame) + sizeof(VerbsChannelOffer)];
    EXPECT_EQ(recv(in.tcp.get(), answer, sizeof(answer), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(answer)));
    const auto offer = DecodeVerbsChannelOffer(
        {answer + sizeof(TcpFrame), sizeof(VerbsChannelOffer)}, TakeFrom<TcpFrame>(answer).count);
    EXPECT_TRUE(offer.has_value());
    in.offer.head.port = offer->port;
    in.offer.head.token = offer->token;
    in.offer.head.reads_max = 1;
    std::memcpy(in.offer.head.host, offer->host, sizeof(offer->host));
    return in;
  }
  // Turns the loop until the server hung up.
  bool HungUp(const Descriptor& tcp) {
    const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(30);
    char byte;
    while (ReadMonotonicClock() < end) {
      loop_.RunFor(Duration::Millis(1));
      if (recv(tcp.get(), &byte, 1, MSG_DONTWAIT) == 0) return true;
    }
    return false;
  }
  static int64_t BadInput() {
    return ProcessMetrics().Value("tailcast_fabric_bad_input_total",
                                  {{"driver", "verbs"}, {"side", "server"}});
  }
  static int64_t Refused(const char* why) {
    return ProcessMetrics().Value("tailcast_fabric_refused_connections_total",
                                  {{"driver", "verbs"}, {"why", why}});
  }

  bool iwarp_ = false;
  ThreadLoop loop_;
  std::unique_ptr<LetIn> let_in_;
  std::unique_ptr<Exporter> exporter_;
  std::span<char> memory_;
  std::string address_;
  std::unique_ptr<Connector> connector_;
  uint64_t handled_ = 0;
  Scope scope_;
};

TEST_F(VerbsDriverTest, NoThreadOfTheServerIsWokenInAHundredThousandReads) {
  auto endpoint = Connect();
  ASSERT_NE(endpoint, nullptr);
  ReadMany(endpoint.get(), 100);
  // Its door looks once more after those that came.
  loop_.RunUntil([] { return false; }, ReadMonotonicClock() + kPeerTimeout);
  const int64_t before = Sleeps("fabric-server");
  ASSERT_GT(before, 0);
  ReadMany(endpoint.get(), 100'000);
  EXPECT_EQ(Sleeps("fabric-server"), before);
}

// Who polls makes no events, and who sleeps is woken by its own, on its own thread.
TEST_F(VerbsDriverTest, ReadsWakeNoThreadButTheOneThatWaitsForThem) {
  auto endpoint = Connect();
  ASSERT_NE(endpoint, nullptr);
  ReadMany(endpoint.get(), 100);
  loop_.RunFor(kPeerTimeout);
  const int64_t engine = Sleeps("fabric-client");
  ASSERT_GT(engine, 0);
  uint64_t word = 0;
  const ReadDescriptor one{.length = 8, .destination = reinterpret_cast<char*>(&word)};
  Completion completion;
  for (int i = 0; i < 1000; ++i) {
    endpoint->Read({&one, 1});
    while (endpoint->Poll({&completion, 1}) == 0) {
    }
    ASSERT_EQ(completion.status, ReadStatus::kOk);
  }
  // What would have armed for the first of them, had the loop been about to sleep, and no event.
  EXPECT_LE(loop_.RunOnce(), 1u);
  EXPECT_EQ(loop_.RunOnce(), 0u);
  EXPECT_LE(Sleeps("fabric-client"), engine + 2);  // it has other work now and then
  ReadMany(endpoint.get(), 1000);
  EXPECT_LE(Sleeps("fabric-client"), engine + 4);
}

TEST_F(VerbsDriverTest, ListensBesideTcpSocketsThatHaveHalfOfThePorts) {
  const char* const path = "/proc/sys/net/ipv4/ip_local_port_range";
  std::string range;
  std::getline(std::ifstream(path), range);
  // Of eight ports tcp has four.
  ASSERT_TRUE(std::ofstream(path) << "50000 50007" << std::flush);
  std::vector<Descriptor> sockets;
  for (uint16_t port = 50000; port < 50008; port += 2) {
    const SocketAddress address = ResolveNumber({.host = Host(), .port = port}).value();
    Descriptor& fd = sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(fd.get(), address.get(), address.length), 0);
    ASSERT_EQ(listen(fd.get(), 1), 0);
  }
  for (int i = 0; i < 10; ++i) {
    ExporterOptions options;
    options.verbs_host = Host();
    const auto exporter = MakeExporter(options);
    ASSERT_TRUE(exporter->AddRegion(0, 4096).ok());
    const auto addresses = exporter->Listen();
    EXPECT_TRUE(addresses.ok()) << addresses.status();
  }
  ASSERT_TRUE(std::ofstream(path) << range << std::flush);
}

TEST_F(VerbsDriverTest, ServesFiveHundredConnections) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int i = 0; i < 500; ++i) {
    endpoints.push_back(Connect());
    ASSERT_NE(endpoints.back(), nullptr) << i;
  }
  for (auto& endpoint : endpoints) ReadMany(endpoint.get(), 10);
  endpoints.clear();
  auto one_more = Connect();
  ReadMany(one_more.get(), 10);
}

// A reader asks for no more than the server has said that it answers, nor than it can itself; the
// server grants no more than was asked for, nor than it can; and the queue pairs are so.
TEST_F(VerbsDriverTest, AsManyReadsAreOnTheWireAsBothDevicesCan) {
  const struct {
    int server, client, both;
  } cases[] = {{4, 8, 4}, {8, 2, 2}, {1, 16, 1}, {16, 1, 1}};  // powers of two: rxe rounds up
  for (const auto& one : cases) {
    g_device.max_qp_rd_atom = one.server;
    g_device.max_qp_init_rd_atom = one.client;
    Serve();
    auto endpoint = Connect();
    ASSERT_NE(endpoint, nullptr);
    EXPECT_EQ(g_device.asked, one.both);
    EXPECT_EQ(g_device.granted, one.both);
    ibv_qp_attr client{}, server{};
    ibv_qp_init_attr ignored{};
    ASSERT_EQ(ibv_query_qp(g_device.client, &client, IBV_QP_MAX_QP_RD_ATOMIC, &ignored), 0);
    ASSERT_EQ(ibv_query_qp(g_device.server, &server, IBV_QP_MAX_DEST_RD_ATOMIC, &ignored), 0);
    if (!iwarp_) {  // siw says something else
      EXPECT_EQ(client.max_rd_atomic, one.both);
      EXPECT_EQ(server.max_dest_rd_atomic, one.both);
    }
    ReadMany(endpoint.get(), 1000);
    // One that asks for more than it was told.
    VerbsOffer offer = Offer();
    EXPECT_EQ(offer.head.reads_max, static_cast<uint32_t>(one.server));
    offer.head.reads_max = 16;
    RawQueuePair greedy;
    ASSERT_EQ(greedy.Connect(offer), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(g_device.asked, 16);
    EXPECT_EQ(g_device.granted, one.server);
  }
}

TEST_F(VerbsDriverTest, EachCauseOfARefusalIsCountedByItself) {
  const char* const causes[] = {"no_token",     "no_queue_pair", "not_accepted",
                                "other_device", "gone",          "too_many"};
  const auto only = [&](const char* expected, const std::function<void()>& refused) {
    std::vector<int64_t> before;
    for (const char* cause : causes) before.push_back(Refused(cause));
    refused();
    for (size_t i = 0; i < std::size(causes); ++i) {
      EXPECT_EQ(Refused(causes[i]) - before[i], std::string(causes[i]) == expected)
          << causes[i] << " of " << expected;
    }
  };
  const auto refuses_either = [&] {
    for (const bool writes : {false, true}) {
      only(g_device.accepts_nothing ? "not_accepted" : "no_queue_pair", [&] {
        LetInToWrite in;
        if (writes) in = ChannelOffer();
        RawQueuePair raw;
        EXPECT_EQ(raw.Connect(writes ? in.offer : Offer()), RDMA_CM_EVENT_REJECTED);
      });
    }
  };
  const int64_t bad = BadInput();
  g_device.makes_no_queue_pairs = true;
  refuses_either();
  g_device.makes_no_queue_pairs = false;
  g_device.accepts_nothing = true;
  refuses_either();
  g_device.accepts_nothing = false;
  EXPECT_EQ(BadInput(), bad);
  only("no_token", [&] {
    RawQueuePair none;
    EXPECT_EQ(none.Connect(Offer(), nullptr, 0), RDMA_CM_EVENT_REJECTED);
  });
  EXPECT_EQ(BadInput(), bad + 1);
  auto endpoint = Connect();
  ReadMany(endpoint.get(), 10);
}

TEST_F(VerbsDriverTest, AQueuePairComesInWithATokenOnceAndOnlyWhileItsTcpConnectionLives) {
  const VerbsOffer offer = Offer();
  const int64_t before = BadInput();
  {
    RawQueuePair none;
    EXPECT_EQ(none.Connect(offer, nullptr, 0), RDMA_CM_EVENT_REJECTED);
    RawQueuePair guessed;
    VerbsHello hello{.magic = kVerbsMagic, .token = offer.head.token};
    hello.token[1] ^= 1;
    EXPECT_EQ(guessed.Connect(offer, &hello, sizeof(hello)), RDMA_CM_EVENT_REJECTED);
  }
  RawQueuePair good;
  EXPECT_EQ(good.Connect(offer), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(good.Do(offer, IBV_WR_RDMA_READ));
  EXPECT_EQ(std::memcmp(good.arena.data(), memory_.data(), 64), 0);
  RawQueuePair again;
  EXPECT_EQ(again.Connect(offer), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(BadInput(), before + 3);
  // The next offer ends the tcp connection of this one, and the queue pair with it.
  Offer();
  good.Next();
  EXPECT_EQ(good.last, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(good.Do(offer, IBV_WR_RDMA_READ));
}

TEST_F(VerbsDriverTest, AnUnusedTokenEndsWithItsTcpConnection) {
  const VerbsOffer first = Offer();
  const VerbsOffer second = Offer();
  EXPECT_NE(first.head.token, second.head.token);
  RawQueuePair late;
  EXPECT_EQ(late.Connect(first), RDMA_CM_EVENT_REJECTED);
}

TEST_F(VerbsDriverTest, AReaderCannotWrite) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND}) {
    const VerbsOffer offer = Offer();
    const std::string before(memory_.data(), kRegionBytes);
    RawQueuePair reader;
    ASSERT_EQ(reader.Connect(offer), RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_TRUE(reader.Do(offer, IBV_WR_RDMA_READ));
    reader.arena.assign(reader.arena.size(), '!');
    reader.Do(offer, opcode);  // iWARP calls a write done when it was sent
    auto honest = Connect();
    ReadMany(honest.get(), 10);
    EXPECT_EQ(std::string(memory_.data(), kRegionBytes), before);
  }
}

TEST_F(VerbsDriverTest, KeysEndWhenTheServerInvalidates) {
  const VerbsOffer old = Offer();
  exporter_->Invalidate();
  exporter_->Renew();
  const VerbsOffer fresh = Offer();
  RawQueuePair reader;
  ASSERT_EQ(reader.Connect(fresh), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(reader.Do(fresh, IBV_WR_RDMA_READ));
  EXPECT_FALSE(reader.Do(old, IBV_WR_RDMA_READ));
}

// The loopback device carries what this host sends to itself, also by RDMA.
TEST_F(VerbsDriverTest, OverACutNetworkReadsTimeOutAndTheConnectionIsGivenUp) {
  auto endpoint = Connect();
  ReadMany(endpoint.get(), 10);
  endpoint->set_read_timeout(Duration::Millis(100));
  ASSERT_EQ(std::system("ip link set lo down"), 0);
  uint64_t word = 0;
  const auto read = [&] {
    const ReadDescriptor one{.length = 8, .destination = reinterpret_cast<char*>(&word)};
    endpoint->Read({&one, 1});
    Completion completion;
    EXPECT_TRUE(Until([&] { return endpoint->Poll({&completion, 1}) == 1; }));
    return completion.status;
  };
  ReadStatus status = read();
  // rxe carries what it sends to itself, and learns of the cut by the tcp connection alone.
  EXPECT_EQ(status, iwarp_ ? ReadStatus::kTimeout : ReadStatus::kOk);
  EXPECT_TRUE(endpoint->connected());
  const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(10);
  while (status != ReadStatus::kUnreachable && ReadMonotonicClock() < end) status = read();
  EXPECT_EQ(status, ReadStatus::kUnreachable);
  EXPECT_FALSE(endpoint->connected());
  ASSERT_EQ(std::system("ip link set lo up"), 0);
  auto again = Connect();
  ReadMany(again.get(), 10);
}

// ---- message channels ----

TEST_F(VerbsDriverTest, ServesFiveHundredMessageChannels) {
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
TEST_F(VerbsDriverTest, AServerIsWokenForMessagesAndForNothingElse) {
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

TEST_F(VerbsDriverTest, WhoBreaksTheChannelsProtocolLosesHisOwnChannel) {
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
TEST_F(VerbsDriverTest, AFloodWithoutCreditsEndsTheFloodersChannelAlone) {
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
TEST_F(VerbsDriverTest, ABusyServerTakesNoClientForSlow) {
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

TEST_F(VerbsDriverTest, WhoLeavesIsNoBadInput) {
  const auto descriptors = [] {
    std::vector<std::string> all;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the iterator's own
      all.push_back(std::filesystem::read_symlink(one.path(), gone).string());
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const int64_t bad = BadInput();
  ReadMany(Connect().get(), 1);
  ASSERT_NE(Open(address_), nullptr);
  loop_.RunFor(Duration::Millis(200));  // what is made once is there, what left is gone
  const auto before = descriptors();
  for (int i = 0; i < 10; ++i) {
    auto endpoint = Connect();
    auto client = Open(address_);
    ReadMany(endpoint.get(), 10);
    ASSERT_TRUE(client->Send("unanswered, perhaps"));
    ASSERT_GT(descriptors().size(), before.size());
    client = nullptr;
    endpoint = nullptr;
    const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(10);
    while (descriptors().size() > before.size() && ReadMonotonicClock() < end) {
      loop_.RunFor(Duration::Millis(1));
    }
    const std::vector<std::string> after = descriptors();
    ASSERT_LE(after.size(), before.size())
        << "the server has not let go: there are " << testing::PrintToString(after)
        << ", there were " << testing::PrintToString(before);
  }
  EXPECT_EQ(BadInput(), bad);
}

// Of a reader's keys none is good with a channel's queue pair, and nobody comes in twice.
TEST_F(VerbsDriverTest, AChannelReadsAndWritesNoMemory) {
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

TEST_F(VerbsDriverTest, InvalidationEndsChannelsAndNewOnesWorkAfterIt) {
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

TEST_F(VerbsDriverTest, OverACutNetworkAChannelIsGivenUp) {
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

// What a hostile client costs an honest reader. This kernel has one CPU, so a hostile client takes
// from the reader what it needs itself, which one on another host would not. That is measured
// apart: the same client does the same to a port that nobody serves. What the server adds is at
// most as much again. (hostile_test.cc has more of them at the tcp door, which is the same, and
// they have a CPU of their own there.)
class VerbsHostile : public VerbsDriverTest {
 protected:
  // p99 of a read, in microseconds.
  int64_t ReadFor(Endpoint* endpoint, Duration round) {
    std::vector<int64_t> micros;
    char buffer[64];
    const MonotonicTime end = ReadMonotonicClock() + round;
    while (ReadMonotonicClock() < end) {
      const MonotonicTime begin = ReadMonotonicClock();
      const ReadDescriptor one{.length = sizeof(buffer), .offset = 4096, .destination = buffer};
      endpoint->Read({&one, 1});
      Completion completion;
      EXPECT_TRUE(Until([&] { return endpoint->Poll({&completion, 1}) == 1; }));
      EXPECT_EQ(completion.status, ReadStatus::kOk);
      EXPECT_EQ(std::memcmp(buffer, memory_.data() + 4096, sizeof(buffer)), 0);
      micros.push_back((ReadMonotonicClock() - begin).micros());
    }
    std::sort(micros.begin(), micros.end());
    return micros[micros.size() * 99 / 100];
  }
  // The same while `turn` is done again and again.
  int64_t ReadAttacked(Endpoint* endpoint, Duration round, const std::function<void()>& turn) {
    std::atomic<bool> stop = false;
    std::atomic<int> turns = 0;
    std::thread attacker([&] {
      while (!stop) {
        turn();
        ++turns;
        poll(nullptr, 0, 2);  // as one host would, with the time its packets take
      }
    });
    const int64_t p99 = ReadFor(endpoint, round);
    stop = true;
    attacker.join();
    EXPECT_GT(turns, 0);
    return p99;
  }
  // `turn(served)`: to the server, or to ports that nobody serves.
  void CostsAtMostTwice(const char* name, const std::function<void(bool served)>& turn) {
    auto endpoint = Connect();
    constexpr Duration kRound = Duration::Millis(300);
    int64_t calm = INT64_MAX, control = INT64_MAX, attacked = INT64_MAX;
    for (int round = 0; round < 3 || (round < 7 && attacked > 2 * control); ++round) {
      calm = std::min(calm, ReadFor(endpoint.get(), kRound));
      control =
          std::min(control, ReadAttacked(endpoint.get(), kRound, [&] { turn(/*served=*/false); }));
      attacked =
          std::min(attacked, ReadAttacked(endpoint.get(), kRound, [&] { turn(/*served=*/true); }));
    }
    std::printf("%s: p99 %lld us, %lld us of the same to nobody, %lld us without: %.2f\n", name,
                static_cast<long long>(attacked), static_cast<long long>(control),
                static_cast<long long>(calm),
                static_cast<double>(attacked) / static_cast<double>(control));
    EXPECT_LE(attacked, 2 * control);
    ReadMany(Connect().get(), 10);
  }
};

TEST_F(VerbsHostile, WhoSaysNoiseAtItsDoorCostsHonestReadersAtMostTwiceTheirP99) {
  const std::string where = address_.substr(6, address_.rfind('#') - 6);
  const SocketAddress door = ResolveNumber(ParseHostPort(where).value()).value();
  // Their kernel shakes hands, and that is all.
  Descriptor nobody(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress beside = ResolveNumber({.host = Host(), .port = 0}).value();
  ASSERT_EQ(bind(nobody.get(), beside.get(), beside.length), 0);
  ASSERT_EQ(listen(nobody.get(), 4096), 0);
  ASSERT_EQ(getsockname(nobody.get(), beside.get(), &beside.length), 0);
  CostsAtMostTwice("noise", [&](bool served) {
    const SocketAddress& at = served ? door : beside;
    for (int i = 0; i < 4; ++i) {
      const Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(fd.get(), at.get(), at.length) != 0) break;
      [[maybe_unused]] const ssize_t n = send(fd.get(), "noise", 5, MSG_NOSIGNAL);
    }
  });
}

TEST_F(VerbsHostile, WhoHasNoTokenCostsHonestReadersAtMostTwiceTheirP99) {
  const VerbsOffer offer = Offer();
  VerbsOffer nobody = offer;
  nobody.head.port = 1;
  CostsAtMostTwice("no token", [&](bool served) {
    RawQueuePair none;
    none.Connect(served ? offer : nobody, nullptr, 0);
  });
}

}  // namespace
}  // namespace tailcast::fabric
