// The tcp driver over a network that is cut one way: server and reader in network namespaces of
// their own with a veth pair between them, whose packets one end sends to a station that is not
// there. So neither end is told anything, as when a switch's table or a firewall goes wrong.
//
// Needs root and iproute2: ./dev test full (TAILCAST_TEST_NETWORKS); else it is left out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"

namespace tailcast::fabric {
namespace {

constexpr char kServerFlag[] = "--serve-behind-a-cable";
constexpr char kReaderHost[] = "10.77.0.1";
constexpr char kServerHost[] = "10.77.0.2";
constexpr uint64_t kRegionBytes = 4 << 20;
constexpr Duration kPeerTimeout = Duration::Millis(1200);
constexpr Duration kLimit = Duration::Seconds(20);

SharedCellKey Key() {
  return std::make_shared<const CellKey>(std::array<unsigned char, CellKey::kBytes>{9});
}

bool Shell(const std::string& command) { return std::system(command.c_str()) == 0; }

// What this end of the cable sends to `peer` gets lost from now on, or no more.
bool Cut(const std::string& device, const std::string& peer) {
  return Shell("ip neigh replace " + peer + " lladdr 02:00:00:00:00:99 nud permanent dev " +
               device);
}
bool Mend(const std::string& device, const std::string& peer) {
  return Shell("ip neigh del " + peer + " dev " + device);
}

// The server's process. It says "up" in its namespace, opens when it is told to, says its address,
// and obeys; it answers each line with one.
int Serve() {
  if (unshare(CLONE_NEWNET) != 0 || !SetLogLevels("off").ok()) return 1;
  std::cout << "up" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  if (!Shell("ip link set lo up && ip addr add " + std::string(kServerHost) +
             "/24 dev cable && ip link set cable up")) {
    return 1;
  }
  LoopThread loop("server");
  ExporterOptions options;
  options.loop = loop.loop();
  options.key = Key();
  options.tcp_listen = std::string(kServerHost) + ":0";
  options.peer_timeout = kPeerTimeout;
  auto exporter = MakeExporter(options);
  std::memset(exporter->AddRegion(0, kRegionBytes).value().data(), 'x', kRegionBytes);
  std::atomic<int> handled{0};
  const Scope scope;
  exporter->ServeMessages(scope.Bind([&](std::string_view message, std::string& answer) {
    ++handled;
    answer = message;
  }));
  std::cout << exporter->Listen().value().front() << std::endl;
  while (std::getline(std::cin, line)) {
    if (line == "cut") {
      std::cout << Cut("cable", kReaderHost) << std::endl;
    } else if (line == "mend") {
      std::cout << Mend("cable", kReaderHost) << std::endl;
    } else if (line == "handled") {
      std::cout << handled << std::endl;
    } else {
      using Folder = std::filesystem::directory_iterator;  // "files": that are open
      std::cout << std::distance(Folder("/proc/self/fd"), Folder()) << std::endl;
    }
  }
  loop.Call([&] { exporter.reset(); });
  return 0;
}

class Server {
 public:
  Server() {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      execl(self.c_str(), self.c_str(), kServerFlag, nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
    EXPECT_EQ(Line(), "up");
    EXPECT_TRUE(Shell("ip link add cable type veth peer name cable netns " + std::to_string(pid_)));
    EXPECT_TRUE(
        Shell("ip addr add " + std::string(kReaderHost) + "/24 dev cable && ip link set cable up"));
    address_ = Ask("open");
  }
  ~Server() {
    close(to_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(from_);
    // Its end went with its namespace; ours goes a little later.
    while (Shell("ip link show cable >/dev/null 2>&1")) Shell("ip link del cable 2>/dev/null");
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& address() const { return address_; }
  std::string Ask(const std::string& what) {
    const std::string line = what + "\n";
    EXPECT_EQ(write(to_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    return Line();
  }

 private:
  std::string Line() {
    std::string line;
    char byte;
    while (read(from_, &byte, 1) == 1 && byte != '\n') line += byte;
    return line;
  }

  pid_t pid_ = 0;
  int to_ = -1, from_ = -1;
  std::string address_;
};

enum class Way : uint8_t { kToServer, kToReader };

class CutNetwork : public testing::TestWithParam<Way> {
 protected:
  static void SetUpTestSuite() {
    if (std::getenv("TAILCAST_TEST_NETWORKS") == nullptr) return;
    // For the whole process; threads that are made later have it, too.
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    ASSERT_TRUE(Shell("ip link set lo up"));
  }
  void SetUp() override {
    if (std::getenv("TAILCAST_TEST_NETWORKS") == nullptr) {
      GTEST_SKIP() << "makes networks, as root: ./dev test full";
    }
    ASSERT_TRUE(SetLogLevels("off").ok());
    server_ = std::make_unique<Server>();
    connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Millis(200), .key = Key()});
  }

  template <typename Port>
  Result<std::unique_ptr<Port>> Open(
      void (Connector::*open)(const std::string&, Duration,
                              Callback<void(Result<std::unique_ptr<Port>>)>),
      Duration timeout = Duration::Seconds(5)) {
    std::optional<Result<std::unique_ptr<Port>>> result;
    (connector_.get()->*open)(server_->address(), timeout,
                              scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
    EXPECT_TRUE(Until([&] { return result.has_value(); }));
    return std::move(*result);
  }
  bool Until(const std::function<bool()>& done) {
    return loop_.RunUntil(done, ReadMonotonicClock() + kLimit);
  }
  // 64 chunks; how many of them came to each outcome. Each completes once.
  std::vector<size_t> ReadChunks(Endpoint* endpoint) {
    std::vector<char> buffer(64 * 4096);
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 64; ++i) {
      reads.push_back({.region = 0,
                       .length = 4096,
                       .offset = i * 4096,
                       .destination = buffer.data() + i * 4096,
                       .token = i});
    }
    endpoint->Read(reads);
    std::vector<size_t> outcomes(8), completed(64);
    size_t count = 0;
    EXPECT_TRUE(Until([&] {
      Completion batch[64];
      for (size_t n; (n = endpoint->Poll(batch)) > 0; count += n) {
        for (size_t i = 0; i < n; ++i) {
          ++outcomes[static_cast<size_t>(batch[i].status)];
          EXPECT_EQ(++completed[batch[i].token], 1u);
        }
      }
      return count == 64;
    }));
    return outcomes;
  }
  static size_t Of(const std::vector<size_t>& outcomes, ReadStatus status) {
    return outcomes[static_cast<size_t>(status)];
  }
  bool CutIt() {
    if (GetParam() == Way::kToReader) return server_->Ask("cut") == "1";
    return Cut("cable", kServerHost);
  }
  bool MendIt() {
    if (GetParam() == Way::kToReader) return server_->Ask("mend") == "1";
    return Mend("cable", kServerHost);
  }

  ThreadLoop loop_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Connector> connector_;
  Scope scope_;
};

TEST_P(CutNetwork, ReadsTimeOutOnceAndBothEndsGiveTheConnectionUp) {
  const std::string files = server_->Ask("files");
  auto endpoint = Open(&Connector::Connect).value();
  ASSERT_EQ(Of(ReadChunks(endpoint.get()), ReadStatus::kOk), 64u);
  std::optional<WatchOutcome> watched;
  endpoint->Watch(0, 0, 0x78787878u, kLimit,
                  scope_.Bind([&](WatchOutcome outcome) { watched = outcome; }));
  ASSERT_TRUE(CutIt());
  const MonotonicTime cut = ReadMonotonicClock();
  EXPECT_EQ(Of(ReadChunks(endpoint.get()), ReadStatus::kTimeout), 64u);
  // It is found out by the silence, in bounded time, by a reader that goes on and by a watch.
  std::vector<size_t> outcomes;
  while (endpoint->connected() && ReadMonotonicClock() < cut + kLimit) {
    outcomes = ReadChunks(endpoint.get());
    EXPECT_EQ(Of(outcomes, ReadStatus::kOk), 0u);
  }
  EXPECT_FALSE(endpoint->connected());
  EXPECT_LT(ReadMonotonicClock() - cut, kPeerTimeout * 4);
  EXPECT_EQ(Of(ReadChunks(endpoint.get()), ReadStatus::kUnreachable), 64u);
  EXPECT_TRUE(Until([&] { return watched.has_value(); }));
  EXPECT_EQ(watched, WatchOutcome::kUnreachable);
  // The server lets go, too, of one that it hears no more.
  const MonotonicTime end = ReadMonotonicClock() + kLimit;
  while (server_->Ask("files") != files && ReadMonotonicClock() < end) {
    loop_.RunFor(Duration::Millis(20));
  }
  EXPECT_EQ(server_->Ask("files"), files);
  EXPECT_FALSE(Open(&Connector::Connect, Duration::Millis(300)).ok());
  ASSERT_TRUE(MendIt());
  auto again = Open(&Connector::Connect);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Of(ReadChunks(again->get()), ReadStatus::kOk), 64u);
}

TEST_P(CutNetwork, AMessageIsHandledOnceAtMostAndItsEndIsToldOnce) {
  auto channel = Open(&Connector::OpenChannel).value();
  int answered = 0, broken = 0;
  channel->SetCallbacks({.on_answer = scope_.Bind([&](uint64_t, std::string_view) { ++answered; }),
                         .on_broken = scope_.Bind([&] { ++broken; })});
  const std::string_view message = "m";
  ASSERT_TRUE(channel->Send({&message, 1}, 1));
  ASSERT_TRUE(Until([&] { return answered == 1; }));
  ASSERT_TRUE(CutIt());
  int sent = 1;
  for (uint64_t i = 2; i <= 20; ++i) sent += channel->Send({&message, 1}, i);
  EXPECT_TRUE(Until([&] { return broken > 0; }));
  EXPECT_FALSE(channel->connected());
  EXPECT_FALSE(channel->Send({&message, 1}, 99));
  EXPECT_EQ(answered, 1);
  ASSERT_TRUE(MendIt());
  auto next = Open(&Connector::OpenChannel).value();
  int more = 0;
  next->SetCallbacks({.on_answer = scope_.Bind([&](uint64_t, std::string_view) { ++more; }),
                      .on_broken = scope_.Bind([&] { ++broken; })});
  ASSERT_TRUE(next->Send({&message, 1}, 100));
  EXPECT_TRUE(Until([&] { return more == 1; }));
  // What came after the cut may have been handled; nothing was twice.
  const int handled = std::stoi(server_->Ask("handled"));
  EXPECT_GE(handled, 2);
  EXPECT_LE(handled, sent + 1);
  EXPECT_EQ(broken, 1);
}

INSTANTIATE_TEST_SUITE_P(Tcp, CutNetwork, testing::Values(Way::kToServer, Way::kToReader),
                         [](const auto& info) {
                           return info.param == Way::kToServer ? "ToServer" : "ToReader";
                         });

}  // namespace
}  // namespace tailcast::fabric

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc == 2 && std::string(argv[1]) == tailcast::fabric::kServerFlag) {
    return tailcast::fabric::Serve();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
