// What is particular to the verbs driver, on an RDMA device: tests/uml/run.py runs it in a kernel
// that has soft ones.
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
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

namespace tailcast::fabric {
namespace {

constexpr uint64_t kRegionBytes = 1 << 20;
constexpr Duration kPeerTimeout = Duration::Millis(1200);
const char* Host() { return std::getenv("TAILCAST_TEST_VERBS_HOST"); }

// Times that the threads of this name slept.
int64_t Sleeps(const std::string& name) {
  int64_t total = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm != name) continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      int64_t n = 0;
      if (word == "voluntary_ctxt_switches:" && status >> n) total += n;
    }
  }
  return total;
}

class VerbsDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Host() == nullptr) GTEST_SKIP() << "no RDMA device here; tests/uml/run.py has one";
    ASSERT_TRUE(SetLogLevels("off").ok());
    ExporterOptions options;
    options.verbs_host = Host();
    options.peer_timeout = kPeerTimeout;
    ibv_device** const devices = ibv_get_device_list(nullptr);
    ASSERT_TRUE(devices != nullptr && devices[0] != nullptr);
    iwarp_ = devices[0]->transport_type == IBV_TRANSPORT_IWARP;
    ibv_free_device_list(devices);
    exporter_ = MakeExporter(options);
    memory_ = exporter_->AddRegion(0, kRegionBytes).value();
    for (uint64_t i = 0; i < kRegionBytes; ++i) memory_[i] = static_cast<char>(i * 7 + i / 256);
    address_ = exporter_->Listen().value().front();
    connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(10)});
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
  static int64_t BadInput() {
    return ProcessMetrics().Value("tailcast_fabric_bad_input_total",
                                  {{"driver", "verbs"}, {"side", "server"}});
  }

  bool iwarp_ = false;
  ThreadLoop loop_;
  std::unique_ptr<LetIn> let_in_;
  std::unique_ptr<Exporter> exporter_;
  std::span<char> memory_;
  std::string address_;
  std::unique_ptr<Connector> connector_;
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

}  // namespace
}  // namespace tailcast::fabric
