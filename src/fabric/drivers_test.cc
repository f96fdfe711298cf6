// The conformance suite on the real drivers, with servers in processes of their own, and what is
// particular to each: sealed memory, bad input on the wire, half-open connections.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <optional>
#include <thread>

#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/base/thread_times.h"
#include "tailcast/fabric/channel_conformance.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/control_page.h"
#include "tailcast/fabric/fabric_conformance.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/reader_fault_conformance.h"
#include "tailcast/fabric/reader_process.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/scan_conformance.h"
#include "tailcast/fabric/shm_door.h"
#include "tailcast/fabric/shm_wire.h"
#include "tailcast/fabric/tcp_session.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {
namespace {

constexpr char kServerFlag[] = "--serve-fabric";

// A folder of this test process for its sockets.
const std::string& TestFolder() {
  static const std::string folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "fabric_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    return name;
  }();
  return folder;
}

// The address of an RDMA device; without one, verbs is left out. `./dev test` makes devices in a
// kernel of its own (tests/uml).
const char* VerbsHostOfTests() { return std::getenv("TAILCAST_TEST_VERBS_HOST"); }

// Of the conformance suite's cell: what it promises holds for who has proven that he belongs.
SharedCellKey SuiteKey() {
  return std::make_shared<const CellKey>(std::array<unsigned char, CellKey::kBytes>{4, 2});
}

ExporterOptions TestOptions(const std::string& driver, const std::string& socket_path) {
  ExporterOptions options;
  options.name = "test server";
  if (driver == "shm") options.shm_socket_path = socket_path;
  if (driver == "tcp") options.tcp_listen = "127.0.0.1:0";
  if (driver == "verbs") options.verbs_host = VerbsHostOfTests();
  options.beat_timeout = kTestBeatTimeout;
  options.peer_timeout = Duration::Millis(1200);
  return options;
}

// The body of a server process: prints its address, then obeys lines "OFFSET VALUE" on stdin, until
// that ends.
int Serve(const std::string& driver, const std::string& socket_path) {
  LoopThread beater("beater");
  ExporterOptions options = TestOptions(driver, socket_path);
  options.loop = beater.loop();
  options.key = SuiteKey();
  auto exporter = MakeExporter(options);
  std::span<char> words;
  for (RegionId id = 0; id < 2; ++id) {
    words = exporter->AddRegion(id, kTestRegionBytes[id]).value();
    FillPattern(id, words);
  }
  const Scope scope;
  exporter->ServeMessages(
      scope.Bind([](std::string_view message, std::string& answer) { Echo(message, answer); }));
  exporter->SetScanner(TestScan);
  const auto addresses = exporter->Listen();
  if (!addresses.ok()) {
    std::cerr << addresses.status() << "\n";
    return 1;
  }
  std::function<void()> beat = [&] {
    if (exporter == nullptr) return;
    exporter->Beat();
    beater.loop()->After(Duration::Millis(20), scope.Bind([&] { beat(); }));
  };
  beater.Call([&] { beat(); });
  std::cout << addresses->front() << std::endl;
  uint64_t offset, value;
  while (std::cin >> offset >> value) {
    StoreWord(words.data() + offset, value);
    exporter->Notify(1, offset);
  }
  beater.Call([&] { exporter.reset(); });
  return 0;
}

class ProcessServer final : public TestServer {
 public:
  ProcessServer(const std::string& driver, const std::string& socket_path) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      execl(self.c_str(), self.c_str(), kServerFlag, driver.c_str(), socket_path.c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_server_ = in[1];
    char byte;
    while (read(out[0], &byte, 1) == 1 && byte != '\n') address_ += byte;
    close(out[0]);
  }
  ~ProcessServer() override {
    Kill();
    close(to_server_);
  }
  std::string address() const override { return address_; }
  void Kill() override {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void Stop() override {
    kill(pid_, SIGSTOP);
    int status;
    waitpid(pid_, &status, WUNTRACED);
  }
  void Continue() override { kill(pid_, SIGCONT); }
  void SetAndNotify(uint64_t offset, uint64_t value) override {
    const std::string line = std::to_string(offset) + " " + std::to_string(value) + "\n";
    if (write(to_server_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      ADD_FAILURE() << "the server process is gone";
    }
  }

 private:
  pid_t pid_ = 0;
  int to_server_ = -1;
  std::string address_;
};

class RealWorld final : public FabricWorld {
 public:
  explicit RealWorld(std::string driver) : driver_(std::move(driver)) {}
  ThreadLoop* loop() override { return &loop_; }
  bool RunUntil(const std::function<bool()>& done, Duration limit) override {
    return loop_.RunUntil(done, ReadMonotonicClock() + limit);
  }
  std::unique_ptr<Exporter> MakeExporter() override {
    ExporterOptions options = TestOptions(driver_, NewPath());
    options.loop = &loop_;
    options.key = SuiteKey();
    return fabric::MakeExporter(options);
  }
  std::unique_ptr<Connector> MakeConnector() override {
    return fabric::MakeConnector(&loop_,
                                 {.read_timeout = Duration::Seconds(10), .key = SuiteKey()});
  }
  std::unique_ptr<TestServer> StartServer() override {
    return std::make_unique<ProcessServer>(driver_, NewPath());
  }
  std::unique_ptr<TestReader> StartReader(const std::string& address) override {
    return std::make_unique<ProcessReader>(address);
  }
  std::shared_ptr<void> KeepWriting(std::function<void()> write) override {
    auto stop = std::make_shared<std::atomic<bool>>(false);
    auto* thread = new std::thread([stop, write] {
      while (!*stop) write();
    });
    return std::shared_ptr<void>(thread, [thread, stop](void*) {
      *stop = true;
      thread->join();
      delete thread;
    });
  }
  std::string DeadAddress() override {
    return driver_ == "shm" ? "shm:" + TestFolder() + "/nobody" : driver_ + ":127.0.0.1:1";
  }

 private:
  std::string NewPath() {
    static int number = 0;
    return TestFolder() + "/" + std::to_string(++number) + ".sock";
  }
  const std::string driver_;
  ThreadLoop loop_;
};

FabricDriver Real(const std::string& driver) {
  return {driver, [driver] { return std::make_unique<RealWorld>(driver); }};
}
std::vector<FabricDriver> RealDrivers() {
  std::vector<FabricDriver> drivers = {Real("shm"), Real("tcp")};
  if (VerbsHostOfTests() != nullptr) drivers.push_back(Real("verbs"));
  return drivers;
}
INSTANTIATE_TEST_SUITE_P(Real, FabricConformance, testing::ValuesIn(RealDrivers()), DriverName);
INSTANTIATE_TEST_SUITE_P(Real, ReaderFaultConformance, testing::ValuesIn(RealDrivers()),
                         DriverName);
INSTANTIATE_TEST_SUITE_P(Real, ScanConformance, testing::ValuesIn(RealDrivers()), DriverName);
INSTANTIATE_TEST_SUITE_P(Real, ChannelConformance, testing::ValuesIn(RealDrivers()), DriverName);

// A served exporter and a loop, for the tests below.
class DriverTest : public testing::Test {
 protected:
  void Export(const std::string& driver, const std::function<void(ExporterOptions&)>& adjust = {}) {
    ExporterOptions options = TestOptions(driver, TestFolder() + "/driver_test.sock");
    if (adjust) adjust(options);
    exporter_ = MakeExporter(options);
    for (RegionId id = 0; id < 2; ++id) {
      memory_.push_back(exporter_->AddRegion(id, kTestRegionBytes[id]).value());
      FillPattern(id, memory_.back());
    }
    const auto addresses = exporter_->Listen();
    ASSERT_TRUE(addresses.ok()) << addresses.status();
    addresses_ = *addresses;
    connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  }
  Result<std::unique_ptr<Endpoint>> Connect(const std::string& address) {
    std::optional<Result<std::unique_ptr<Endpoint>>> result;
    connector_->Connect(address, Duration::Seconds(10),
                        scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
    EXPECT_TRUE(RunUntil([&] { return result.has_value(); }));
    return std::move(*result);
  }
  bool RunUntil(const std::function<bool()>& done) {
    return loop_.RunUntil(done, ReadMonotonicClock() + Duration::Seconds(20));
  }
  static int64_t BadInput(const char* driver, const char* side) {
    return ProcessMetrics().Value("tailcast_fabric_bad_input_total",
                                  {{"driver", driver}, {"side", side}});
  }

  ThreadLoop loop_;
  std::unique_ptr<Exporter> exporter_;
  std::vector<std::span<char>> memory_;
  std::vector<std::string> addresses_;
  std::unique_ptr<Connector> connector_;
  Scope scope_;
};

// ---- shm ----

class ShmTest : public DriverTest {
 protected:
  std::string path() const {
    return addresses_.front().substr(4, addresses_.front().rfind('#') - 4);
  }
  // A raw connection to a unix socket.
  static Descriptor Dial(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
    Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
};

TEST_F(ShmTest, AReaderNeverGetsAnythingThatItCouldWriteWith) {
  Export("shm");
  const Descriptor socket = Dial(path());
  const ShmHello hello{.magic = kShmMagic, .hello = {.version = kHelloVersion}};
  ASSERT_EQ(send(socket.get(), &hello, sizeof(hello), 0), static_cast<ssize_t>(sizeof(hello)));
  char packet[512];
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
  iovec part{packet, sizeof(packet)};
  msghdr message{
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  ASSERT_GT(recvmsg(socket.get(), &message, 0), 0);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  ASSERT_NE(header, nullptr);
  ASSERT_EQ(header->cmsg_len, CMSG_LEN(3 * sizeof(int)));  // control page and two regions
  int fds[3];
  std::memcpy(fds, CMSG_DATA(header), sizeof(fds));
  for (const int number : fds) {
    const Descriptor fd(number);
    EXPECT_EQ(fcntl(number, F_GETFL) & O_ACCMODE, O_RDONLY);
    for (const int flags : {MAP_SHARED, MAP_SHARED_VALIDATE}) {
      EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, flags, number, 0), MAP_FAILED);
    }
    void* readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, number, 0);
    ASSERT_NE(readable, MAP_FAILED);
    EXPECT_NE(mprotect(readable, 4096, PROT_READ | PROT_WRITE), 0);
    munmap(readable, 4096);
    EXPECT_LT(write(number, "x", 1), 0);
    EXPECT_NE(ftruncate(number, 0), 0);
    EXPECT_NE(fallocate(number, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    EXPECT_NE(fcntl(number, F_ADD_SEALS, F_SEAL_WRITE), 0);
    // Opened anew through /proc, for root or the owner even with write access.
    const std::string again = "/proc/self/fd/" + std::to_string(number);
    const Descriptor writable(open(again.c_str(), O_RDWR | O_CLOEXEC));
    if (writable.valid()) {
      EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0),
                MAP_FAILED);
      EXPECT_LT(pwrite(writable.get(), "x", 1, 0), 0);
      EXPECT_NE(ftruncate(writable.get(), 0), 0);
    }
  }
  EXPECT_EQ(memory_[0][0], PatternByte(0, 0));
}

TEST_F(ShmTest, BadHellosCloseTheConnectionAndAreCounted) {
  Export("shm");
  const int64_t before = BadInput("shm", "server");
  const auto closes = [&](const void* bytes, size_t size) {
    const Descriptor socket = Dial(path());
    EXPECT_EQ(send(socket.get(), bytes, size, 0), static_cast<ssize_t>(size));
    char reply[64];
    return recv(socket.get(), reply, sizeof(reply), 0) == 0;
  };
  ShmHello hello{.magic = kShmMagic + 1, .hello = {.version = kHelloVersion}};
  EXPECT_TRUE(closes(&hello, sizeof(hello)));
  EXPECT_TRUE(closes("GET / HTTP/1.1\r\n", 16));
  EXPECT_TRUE(closes(std::string(100000, 'x').data(), 100000));
  EXPECT_EQ(BadInput("shm", "server"), before + 3);
  // Another version is no bad input: the reply says so.
  hello = {.magic = kShmMagic, .hello = {.version = 99}};
  const Descriptor socket = Dial(path());
  ASSERT_GT(send(socket.get(), &hello, sizeof(hello), 0), 0);
  ShmReply reply;
  ASSERT_EQ(recv(socket.get(), &reply, sizeof(reply), 0), static_cast<ssize_t>(sizeof(reply)));
  EXPECT_EQ(reply.status, HelloStatus::kVersion);
  EXPECT_EQ(reply.version, kHelloVersion);
  EXPECT_TRUE(Connect(addresses_.front()).ok());
}

// A server that answers the hello with whatever a test wants.
class LyingShmServer {
 public:
  LyingShmServer(const std::string& path, std::string reply, const std::vector<int>& fds)
      : thread_([path, reply, fds, this] {
          const Descriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
          char hello[128];
          [[maybe_unused]] ssize_t n = recv(client.get(), hello, sizeof(hello), 0);
          SendPacket(client.get(), reply, fds);
          n = recv(client.get(), hello, sizeof(hello), 0);  // until it hangs up
        }) {}
  ~LyingShmServer() { thread_.join(); }
  static Descriptor Listen(const std::string& path) {
    unlink(path.c_str());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
    Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd.get(), 8), 0);
    return fd;
  }
  static void SetListener(Descriptor fd) { listener_ = std::move(fd); }

 private:
  static Descriptor listener_;
  std::thread thread_;
};
Descriptor LyingShmServer::listener_;

TEST_F(ShmTest, ALyingServerIsRefusedNotTrusted) {
  const std::string path = TestFolder() + "/liar.sock";
  LyingShmServer::SetListener(LyingShmServer::Listen(path));
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  const auto reply = [](uint32_t regions, uint64_t size) {
    std::string text;
    AppendTo(text, ShmReply{.magic = kShmMagic,
                            .version = kHelloVersion,
                            .status = HelloStatus::kWelcome,
                            .incarnation = ExporterIncarnation{5},
                            .region_count = regions});
    for (uint32_t i = 0; i < regions && i < 8; ++i) AppendTo(text, ShmRegion{size, Generation{1}});
    return text;
  };
  // Memory that it could shrink under our feet.
  const Descriptor unsealed(memfd_create("liar", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  // Sealed, but with nothing sensible in it.
  const Descriptor blank(memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(blank.get(), 8192), 0);
  ASSERT_EQ(fcntl(blank.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const int u = unsealed.get(), b = blank.get();
  const std::vector<std::pair<std::string, std::vector<int>>> lies = {
      {"", {}},
      {"hello", {}},
      {reply(1, 4096), {}},
      {reply(1, 4096), {u, u}},
      {reply(1, 4096), {b, b}},
      {reply(1, 4096), {b}},
      {reply(1, 1 << 30), {b, b}},
      {reply(1000000, 4096), {b, b}},
      {reply(0, 4096), {b}},
      {std::string(100, '\xff'), {b, b}},
  };
  for (const auto& [text, fds] : lies) {
    LyingShmServer liar(path, text, fds);
    const auto endpoint = Connect("shm:" + path);
    EXPECT_TRUE(IsUnavailable(endpoint.status())) << endpoint.status();
  }
}

TEST_F(ShmTest, MemoryThatNobodyMayReadIsNoWelcome) {
  const std::string path = TestFolder() + "/none.sock";
  LyingShmServer::SetListener(LyingShmServer::Listen(path));
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  const Descriptor memory(memfd_create("none", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), 8192), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const uint64_t page[] = {kControlMagic, uint64_t{1} << 32 | kControlVersion, 5, 2'000'000};
  ASSERT_EQ(pwrite(memory.get(), page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
  std::string text;
  AppendTo(text, ShmReply{.magic = kShmMagic,
                          .version = kHelloVersion,
                          .status = HelloStatus::kWelcome,
                          .incarnation = ExporterIncarnation{5},
                          .region_count = 1});
  AppendTo(text, ShmRegion{4096, Generation::kNone});
  LyingShmServer liar(path, text, {memory.get(), memory.get()});
  const auto endpoint = Connect("shm:" + path);
  EXPECT_TRUE(IsUnavailable(endpoint.status())) << endpoint.status();
}

TEST_F(ShmTest, ReplacesADeadServersSocketAndRefusesALivingOnes) {
  const std::string path = TestFolder() + "/taken.sock";
  { const Descriptor dead = LyingShmServer::Listen(path); }
  const auto with_path = [&](ExporterOptions& options) { options.shm_socket_path = path; };
  Export("shm", with_path);
  auto second = MakeExporter(TestOptions("shm", path));
  ASSERT_TRUE(second->AddRegion(0, 4096).ok());
  const auto taken = second->Listen();
  EXPECT_TRUE(IsAlreadyExists(taken.status())) << taken.status();
  EXPECT_NE(taken.status().message().find(path), std::string::npos);
  const std::string file = TestFolder() + "/file";
  std::ofstream(file) << "precious";
  auto third = MakeExporter(TestOptions("shm", file));
  ASSERT_TRUE(third->AddRegion(0, 4096).ok());
  EXPECT_FALSE(third->Listen().ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(file));
}

TEST_F(ShmTest, TakesPathsLongerThanASocketAddress) {
  const std::string folder = TestFolder() + "/" + std::string(120, 'd');
  std::filesystem::create_directory(folder);
  Export("shm", [&](ExporterOptions& options) { options.shm_socket_path = folder + "/s.sock"; });
  EXPECT_TRUE(Connect(addresses_.front()).ok());
}

TEST_F(ShmTest, ServesNoMoreConnectionsThanAllowed) {
  Export("shm", [](ExporterOptions& options) { options.connections_max = 2; });
  auto a = Connect(addresses_.front());
  auto b = Connect(addresses_.front());
  EXPECT_TRUE(a.ok() && b.ok());
  const auto c = Connect(addresses_.front());
  EXPECT_TRUE(IsUnavailable(c.status())) << c.status();
  EXPECT_NE(c.status().message().find("as many connections"), std::string::npos);
  a = UnavailableError("gone");
  bool connected = false;  // as soon as the server saw that one leave
  for (int i = 0; i < 1000 && !connected; ++i) connected = Connect(addresses_.front()).ok();
  EXPECT_TRUE(connected);
}

// ---- tcp ----

class TcpTest : public DriverTest {
 protected:
  HostPort where() const {
    const std::string text = addresses_.front().substr(4, addresses_.front().rfind('#') - 4);
    return ParseHostPort(text).value();
  }
  Descriptor Dial() {
    const SocketAddress address = ResolveNumber(where()).value();
    Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), address.get(), address.length), 0);
    return fd;
  }
  static void SendAll(const Descriptor& fd, const std::string& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static std::string Frame(TcpOp op, uint64_t argument, const std::string& body = "",
                           uint16_t count = 0) {
    std::string text;
    AppendTo(text, TcpFrame{.body_bytes = static_cast<uint32_t>(body.size()),
                            .op = op,
                            .flags = 0,
                            .count = count,
                            .argument = argument});
    return text + body;
  }
  static std::string Hello(uint32_t version = kHelloVersion) {
    std::string body;
    AppendTo(body, fabric::Hello{.version = version});
    return Frame(TcpOp::kHello, kTcpMagic, body);
  }
  // A server's answer to that: one region of `bytes`.
  static std::string Welcome(uint64_t bytes, Duration peer_timeout = Duration::Seconds(60),
                             uint32_t reads_max = 16, Generation generation = Generation{1}) {
    std::string welcome;
    AppendTo(welcome, TcpWelcome{.version = kHelloVersion,
                                 .status = HelloStatus::kWelcome,
                                 .reads_max = reads_max,
                                 .watches_max = 16,
                                 .peer_timeout_us = static_cast<uint64_t>(peer_timeout.micros())});
    AppendTo(welcome, TcpRegion{bytes, generation});
    return Frame(TcpOp::kWelcome, kTcpMagic, welcome, 1);
  }
  static std::string ReadBody(RegionId region, uint64_t offset, uint32_t length, uint64_t tag = 0) {
    std::string body;
    AppendTo(body, TcpRead{offset, length, region, tag});
    return body;
  }
  // Receives exactly so many bytes; fewer if the other end closed.
  static std::string ReceiveBytes(const Descriptor& fd, size_t size) {
    std::string bytes(size, '\0');
    const ssize_t n = recv(fd.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return bytes;
  }
  static constexpr size_t kWelcomeBytes =
      sizeof(TcpFrame) + sizeof(TcpWelcome) + 2 * sizeof(TcpRegion);
};

TEST_F(TcpTest, TheEngineChecksEveryReadItself) {
  Export("tcp");
  const Descriptor fd = Dial();
  SendAll(fd, Hello());
  ASSERT_EQ(ReceiveBytes(fd, kWelcomeBytes).size(), kWelcomeBytes);
  const uint64_t size = kTestRegionBytes[0];
  const std::string body = ReadBody(0, size - 8, 8, 1) + ReadBody(0, size - 7, 8, 2) +
                           ReadBody(7, 0, 8, 3) + ReadBody(0, ~uint64_t{0} - 3, 8, 4) +
                           ReadBody(0, 0, kReadBytesMax + 1, 5);
  SendAll(fd, Frame(TcpOp::kRead, 0, body, 5));
  const std::string head = ReceiveBytes(fd, sizeof(TcpFrame) + 5 * sizeof(TcpAnswer) + 8);
  const auto frame = TakeFrom<TcpFrame>(head.data());
  EXPECT_EQ(frame.op, TcpOp::kAnswer);
  EXPECT_EQ(frame.count, 5);
  EXPECT_EQ(frame.argument, 8u);  // the good one's payload only
  for (size_t i = 0; i < 5; ++i) {
    const auto answer = TakeFrom<TcpAnswer>(head.data() + sizeof(TcpFrame) + i * sizeof(TcpAnswer));
    EXPECT_EQ(answer.tag, i + 1);
    EXPECT_EQ(answer.status, i == 0 ? ReadStatus::kOk : ReadStatus::kOutOfRange);
    EXPECT_EQ(answer.length, i == 0 ? 8u : 0u);
  }
  EXPECT_EQ(head.back(), PatternByte(0, size - 1));
}

// So few that what comes at once is more.
constexpr uint32_t kSmallCredit = 256;

TEST_F(TcpTest, BadInputClosesTheConnectionAndIsCounted) {
  Export("tcp", [](ExporterOptions& options) { options.reads_max = kSmallCredit; });
  std::string watch;
  AppendTo(watch, TcpWatch{.offset = 3, .region = 0, .last_seen = 0});
  std::string many_reads;
  for (int i = 0; i < 200; ++i) many_reads += ReadBody(0, 0, 8);
  std::string huge = Frame(TcpOp::kPing, 0);
  huge[3] = '\x7f';  // body_bytes
  std::string flagged = Frame(TcpOp::kPing, 0);
  flagged[5] = 1;
  std::string long_reads, unfair;  // more than the credit, before any answer is taken
  for (int i = 0; i < 128; ++i) long_reads += ReadBody(0, 0, kReadBytesMax);
  for (int i = 0; i < 20; ++i) unfair += Frame(TcpOp::kRead, 0, long_reads, 128);
  const std::string bad[] = {
      Frame(TcpOp::kRead, 0, ReadBody(0, 0, 8), 2),
      Frame(TcpOp::kRead, 0, "", 0),
      Frame(TcpOp::kRead, 0, many_reads, 200),
      Frame(TcpOp::kWatch, 1, watch),
      Frame(TcpOp::kWatch, 1),
      Frame(TcpOp::kPing, 1, "12345678"),
      Frame(static_cast<TcpOp>(77), 0),
      Frame(TcpOp::kScanAndRead, 0),
      Frame(TcpOp::kAnswer, 0),
      Hello(),
      huge,
      flagged,
      unfair,
  };
  for (const std::string& bytes : bad) {
    const int64_t before = BadInput("tcp", "server");
    const Descriptor fd = Dial();
    SendAll(fd, Hello());
    EXPECT_EQ(ReceiveBytes(fd, kWelcomeBytes).size(), kWelcomeBytes);
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_LT(ReceiveBytes(fd, 64 << 20).size(), size_t{64} << 20);  // it hangs up
    EXPECT_EQ(BadInput("tcp", "server"), before + 1) << testing::PrintToString(bytes.substr(0, 16));
  }
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                                   Frame(TcpOp::kPing, 0), Frame(TcpOp::kHello, 5)}) {
    const Descriptor fd = Dial();
    SendAll(fd, bytes);
    EXPECT_EQ(ReceiveBytes(fd, 1).size(), 0u);
  }
  EXPECT_TRUE(Connect(addresses_.front()).ok());
}

TEST_F(TcpTest, ScansThatDoNotAddUpOrWereNotOfferedCloseTheConnection) {
  std::string scan, many;
  AppendTo(scan, TcpScan{.tag = 1, .request = AskFor({{0, 4096, 0}, {0, 4096, 0}, {0, 4096, 0}})});
  for (int i = 0; i < 65; ++i) many += scan;
  const std::string good = Frame(TcpOp::kScanAndRead, 0, scan, 1);
  std::string unfair;
  for (int i = 0; i < 20; ++i) {
    unfair += Frame(TcpOp::kScanAndRead, 0, many.substr(scan.size()), 64);
  }
  for (const bool offered : {false, true}) {
    ExporterOptions options = TestOptions("tcp", "");
    options.reads_max = kSmallCredit;
    exporter_ = MakeExporter(options);
    ASSERT_TRUE(exporter_->AddRegion(0, 4096).ok());
    if (offered) exporter_->SetScanner(TestScan);
    addresses_ = exporter_->Listen().value();
    std::vector<std::string> bad = {
        Frame(TcpOp::kScanAndRead, 0, scan, 2), Frame(TcpOp::kScanAndRead, 0, "", 0),
        Frame(TcpOp::kScanAndRead, 0, many, 65), Frame(TcpOp::kScanned, 0, "", 0)};
    bad.push_back(offered ? unfair : good);
    for (const std::string& input : bad) {
      const int64_t before = BadInput("tcp", "server");
      const Descriptor fd = Dial();
      SendAll(fd, Hello());
      constexpr size_t kOneRegion = kWelcomeBytes - sizeof(TcpRegion);
      const std::string welcome = ReceiveBytes(fd, kOneRegion);
      ASSERT_EQ(welcome.size(), kOneRegion);
      EXPECT_EQ(TakeFrom<TcpFrame>(welcome.data()).flags, offered ? kTcpFlagScans : 0);
      send(fd.get(), input.data(), input.size(), MSG_NOSIGNAL);
      char byte;
      while (recv(fd.get(), &byte, 1, 0) > 0) {
      }
      EXPECT_EQ(BadInput("tcp", "server"), before + 1);
    }
  }
}

TEST_F(TcpTest, RandomBytesNeverCrashTheEngine) {
  Export("tcp");
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const Descriptor fd = Dial();
    if (round % 2 == 0) SendAll(fd, Hello());
    std::string bytes;
    for (int i = 0; i < 50; ++i) {
      // Half frames that are nearly right, half noise.
      std::string body(rng.Below(6) * 8, '\0');
      for (char& c : body) c = static_cast<char>(rng.Below(256));
      bytes += Frame(static_cast<TcpOp>(rng.Below(8)), rng.Next(), body,
                     static_cast<uint16_t>(rng.Below(4)));
    }
    for (uint64_t i = rng.Below(20); i > 0; --i) {
      bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    }
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  auto endpoint = Connect(addresses_.front());
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
}

// Their bytes and their end may be there before they are accepted.
TEST_F(TcpTest, WhoIsGoneBeforeHeIsLetInIsHeardAllTheSame) {
  Export("tcp");
  const int64_t before = BadInput("tcp", "server");
  constexpr int kOfEach = 30;
  for (int i = 0; i < kOfEach; ++i) {
    for (const std::string& bytes : {std::string(), std::string("noise"), Frame(TcpOp::kPing, 1)}) {
      const Descriptor fd = Dial();
      send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }
  auto endpoint = Connect(addresses_.front());
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(BadInput("tcp", "server"), before + kOfEach) << "a ping is no hello";
}

TEST_F(TcpTest, AnotherVersionIsToldWhichOneTheServerSpeaks) {
  Export("tcp");
  const Descriptor fd = Dial();
  SendAll(fd, Hello(99));
  const std::string reply = ReceiveBytes(fd, sizeof(TcpFrame) + sizeof(TcpWelcome));
  ASSERT_EQ(reply.size(), sizeof(TcpFrame) + sizeof(TcpWelcome));
  const auto welcome = TakeFrom<TcpWelcome>(reply.data() + sizeof(TcpFrame));
  EXPECT_EQ(welcome.status, HelloStatus::kVersion);
  EXPECT_EQ(welcome.version, kHelloVersion);
  EXPECT_EQ(ReceiveBytes(fd, 1).size(), 0u);
}

TEST_F(TcpTest, ASilentReaderIsDisconnected) {
  Export("tcp");
  const Descriptor fd = Dial();
  SendAll(fd, Hello());
  ASSERT_EQ(ReceiveBytes(fd, kWelcomeBytes).size(), kWelcomeBytes);
  EXPECT_EQ(ReceiveBytes(fd, 1).size(), 0u);  // after the peer timeout
  // One that only pings stays.
  auto endpoint = Connect(addresses_.front());
  ASSERT_TRUE(endpoint.ok());
  loop_.RunFor(Duration::Millis(2000));
  EXPECT_TRUE((*endpoint)->connected());
}

// A request that was cut in the middle waits in the socket as long as answers are not taken; that
// is no frame that does not end.
TEST_F(TcpTest, WhoTakesSlowlyStaysThoughHisNextRequestIsCut) {
  Export("tcp");
  const Descriptor fd = Dial();
  SendAll(fd, Hello());
  ASSERT_EQ(ReceiveBytes(fd, kWelcomeBytes).size(), kWelcomeBytes);
  constexpr int kReads = 24;
  std::string reads;
  for (int i = 0; i < kReads; ++i) reads += ReadBody(0, 0, kReadBytesMax);
  const std::string ping = Frame(TcpOp::kPing, 5);
  SendAll(fd, Frame(TcpOp::kRead, 0, reads, kReads) + ping.substr(0, 8));
  const MonotonicTime end = ReadMonotonicClock() + Duration::Millis(2500);  // twice the time-out
  size_t taken = 0;
  while (ReadMonotonicClock() < end) {
    const size_t some = ReceiveBytes(fd, 128 << 10).size();
    ASSERT_EQ(some, size_t{128} << 10) << "cut off after " << taken << " bytes";
    taken += some;
    loop_.RunFor(Duration::Millis(30));
  }
  ASSERT_LT(taken, size_t{kReads - 4} * kReadBytesMax) << "it was to be slow";
  SendAll(fd, ping.substr(8));
  const size_t left = size_t{kReads} * kReadBytesMax - taken;
  EXPECT_EQ(ReceiveBytes(fd, left).size(), left);
}

// A tcp server under a test's control.
class TcpLiar {
 public:
  TcpLiar() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    SocketAddress any = ResolveNumber({"127.0.0.1", 0}).value();
    EXPECT_EQ(bind(fd_.get(), any.get(), any.length), 0);
    EXPECT_EQ(listen(fd_.get(), 8), 0);
    any.length = sizeof(any.storage);
    EXPECT_EQ(getsockname(fd_.get(), any.get(), &any.length), 0);
    address_ = "tcp:" + any.ToString();
  }
  const std::string& address() const { return address_; }
  Descriptor Accept() { return Descriptor(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

 private:
  Descriptor fd_;
  std::string address_;
};

TEST_F(TcpTest, AServerThatFallsSilentIsUnreachable) {
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  TcpLiar liar;
  std::thread server([&] {
    const Descriptor fd = liar.Accept();
    ReceiveBytes(fd, Hello().size());
    SendAll(fd, Welcome(4096, Duration::Millis(300)));
    ReceiveBytes(fd, 1 << 20);  // takes all, says nothing: the other end of a half-open connection
  });
  auto endpoint = Connect(liar.address());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  (*endpoint)->set_read_timeout(Duration::Seconds(100));
  char byte;
  const ReadDescriptor read{
      .region = 0, .length = 1, .offset = 0, .destination = &byte, .token = 9};
  (*endpoint)->Read({&read, 1});
  bool watch_answered = false;
  (*endpoint)->Watch(0, 0, 0, Duration::Seconds(100), scope_.Bind([&](WatchOutcome o) {
    watch_answered = o == WatchOutcome::kUnreachable;
  }));
  Completion completion;
  EXPECT_TRUE(RunUntil([&] { return (*endpoint)->Poll({&completion, 1}) == 1; }));
  EXPECT_EQ(completion.status, ReadStatus::kUnreachable);
  EXPECT_TRUE(RunUntil([&] { return watch_answered; }));
  server.join();
}

TEST_F(TcpTest, WhoAsksAndIsAnsweredDoesNotPing) {
  connector_ = MakeConnector(&loop_, {});
  TcpLiar liar;
  std::atomic<int> pings{0}, reads{0}, late{0};
  std::thread server([&] {
    MonotonicTime heard = ReadMonotonicClock();
    const Descriptor fd = liar.Accept();
    ReceiveBytes(fd, Hello().size());
    SendAll(fd, Welcome(4096, Duration::Seconds(2)));  // a ping each half a second
    for (;;) {
      const std::string head = ReceiveBytes(fd, sizeof(TcpFrame));
      if (head.size() < sizeof(TcpFrame)) return;
      const auto frame = TakeFrom<TcpFrame>(head.data());
      const std::string body = ReceiveBytes(fd, frame.body_bytes);
      const MonotonicTime now = ReadMonotonicClock();
      if (now - std::exchange(heard, now) > Duration::Millis(400)) ++late;
      if (frame.op == TcpOp::kPing) {
        ++pings;
        SendAll(fd, Frame(TcpOp::kPong, frame.argument));
        continue;
      }
      ASSERT_EQ(frame.op, TcpOp::kRead);
      std::string answer;
      AppendTo(answer, TcpAnswer{.tag = TakeFrom<TcpRead>(body.data()).tag,
                                 .length = 0,
                                 .status = ReadStatus::kStaleRegion});
      SendAll(fd, Frame(TcpOp::kAnswer, 0, answer, 1));
      ++reads;
    }
  });
  auto endpoint = Connect(liar.address());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  char byte;
  const ReadDescriptor read{
      .region = 0, .length = 1, .offset = 0, .destination = &byte, .token = 9};
  const MonotonicTime end = ReadMonotonicClock() + Duration::Millis(1700);
  while (ReadMonotonicClock() < end) {
    (*endpoint)->Read({&read, 1});
    Completion completion;
    ASSERT_TRUE(RunUntil([&] { return (*endpoint)->Poll({&completion, 1}) == 1; }));
    ASSERT_EQ(completion.status, ReadStatus::kStaleRegion);
    loop_.RunFor(Duration::Millis(5));
  }
  EXPECT_GT(reads, 20);
  EXPECT_LE(pings, late) << "of a machine that stood still";
  EXPECT_TRUE(RunUntil([&] { return pings >= 2; })) << "who is quiet does";
  EXPECT_TRUE((*endpoint)->connected());
  endpoint->reset();
  server.join();
}

// As of a server that ends right after it, or lies: verbs connections begin so.
TEST_F(TcpTest, AnOfferOfRdmaThatComesWithTheEndOfItsConnectionIsNone) {
  TcpLiar liar;
  std::thread server([&] {
    const Descriptor fd = liar.Accept();
    ReceiveBytes(fd, Hello().size());
    SendAll(fd, Welcome(4096, Duration::Seconds(1)));
    ReceiveBytes(fd, sizeof(TcpFrame));  // the question
    SendAll(fd, Frame(TcpOp::kVerbsOffer, 0, std::string(128, 'o'), 1) +
                    Frame(static_cast<TcpOp>(255), 0));
    ReceiveBytes(fd, 1);  // until it hangs up
  });
  Reactor reactor("client");
  const auto session = std::make_shared<TcpSession>(
      DialContext{.loop = &loop_, .reactor = &reactor, .read_timeout = Duration::Seconds(20)},
      ParseHostPort(liar.address().substr(4)).value(), ExporterIncarnation::kAny);
  const Scope scope;
  std::promise<std::string> over;
  reactor.Call([&] {
    session->SetOnDead(scope.Bind([&](const std::string& why) { over.set_value(why); }));
    session->Start(scope.Bind([&](const Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      session->AskForVerbs(
          scope.Bind([](const std::string&, size_t) { ADD_FAILURE() << "it ended"; }));
    }));
  });
  EXPECT_EQ(over.get_future().get(), "an unknown frame, number 255");
  server.join();
  reactor.Call([&] { session->Shutdown(); });
}

TEST_F(TcpTest, ALyingServerIsHungUpOnAndItsReadsAreUnreachable) {
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  const auto answer = [](uint64_t tag, uint32_t length, ReadStatus status) {
    std::string body;
    AppendTo(body, TcpAnswer{tag, length, status, {}});
    return body;
  };
  const std::string good = answer(0, 8, ReadStatus::kOk);
  const std::string lies[] = {
      Frame(TcpOp::kAnswer, 8, answer(5, 8, ReadStatus::kOk), 1),    // nobody asked
      Frame(TcpOp::kAnswer, 16, answer(0, 16, ReadStatus::kOk), 1),  // longer than the destination
      Frame(TcpOp::kAnswer, 0, answer(0, 0, ReadStatus::kOk), 1),
      Frame(TcpOp::kAnswer, 16, good, 1),
      Frame(TcpOp::kAnswer, 16, good + good, 2),  // twice
      Frame(TcpOp::kAnswer, 8, good, 7),
      Frame(TcpOp::kAnswer, 0, "", 0),
      Frame(TcpOp::kAnswer, 0, answer(0, 0, static_cast<ReadStatus>(50)), 1),
      Frame(TcpOp::kNotify, 1, "", 99),
      Frame(TcpOp::kWelcome, kTcpMagic),
      Frame(static_cast<TcpOp>(255), 0),
      Frame(TcpOp::kAnswer, 0, std::string(4088, 'x'), 255),
      std::string(3000, '\xff'),
  };
  for (const std::string& lie : lies) {
    TcpLiar liar;
    std::thread server([&] {
      const Descriptor fd = liar.Accept();
      ReceiveBytes(fd, Hello().size());
      SendAll(fd, Welcome(4096));
      ReceiveBytes(fd, sizeof(TcpFrame) + sizeof(TcpRead));
      SendAll(fd, lie);
      ReceiveBytes(fd, 1);  // until it hangs up
    });
    const int64_t before = BadInput("tcp", "client");
    auto endpoint = Connect(liar.address());
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    char bytes[24];
    std::memset(bytes, '#', sizeof(bytes));
    const ReadDescriptor read{
        .region = 0, .length = 8, .offset = 0, .destination = bytes + 8, .token = 9};
    (*endpoint)->Read({&read, 1});
    Completion completion;
    EXPECT_TRUE(RunUntil([&] { return (*endpoint)->Poll({&completion, 1}) == 1; }));
    EXPECT_EQ(completion.status, ReadStatus::kUnreachable);
    EXPECT_FALSE((*endpoint)->connected());
    EXPECT_EQ(BadInput("tcp", "client"), before + 1);
    EXPECT_EQ(std::string(bytes, 8), "########");
    EXPECT_EQ(std::string(bytes + 16, 8), "########");
    server.join();
  }
}

TEST_F(TcpTest, AScansLyingAnswerIsHungUpOnBeforeAByteIsPlaced) {
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  const auto scanned = [](uint64_t tag, ReadStatus status, std::vector<uint32_t> lengths,
                          std::optional<uint8_t> ranges = std::nullopt) {
    TcpScanned answer{.tag = tag, .status = status, .reserved = {}, .parts = {}};
    answer.ranges = ranges.value_or(static_cast<uint8_t>(lengths.size()));
    for (size_t i = 0; i < lengths.size(); ++i) answer.parts[i].length = lengths[i];
    std::string body;
    AppendTo(body, answer);
    return body;
  };
  std::string read_answer;
  AppendTo(read_answer, TcpAnswer{0, 0, ReadStatus::kOk, {}});
  const std::string good = scanned(0, ReadStatus::kOk, {8, 16, 5});
  const std::string payload(64, 'p');
  const std::string lies[] = {
      Frame(TcpOp::kScanned, 32, scanned(5, ReadStatus::kOk, {8, 16, 5}), 1) + payload,
      Frame(TcpOp::kScanned, 32, scanned(0, ReadStatus::kOk, {8, 16, 6}), 1) + payload,
      Frame(TcpOp::kScanned, 24, scanned(0, ReadStatus::kOk, {9}), 1) + payload,
      Frame(TcpOp::kScanned, 32, scanned(0, ReadStatus::kOk, {8, 16, 5}, 4), 1) + payload,
      Frame(TcpOp::kScanned, 8, scanned(0, ReadStatus::kStaleRegion, {8}), 1) + payload,
      Frame(TcpOp::kScanned, 0, scanned(0, static_cast<ReadStatus>(50), {}), 1),
      Frame(TcpOp::kScanned, 40, good, 1) + payload,
      Frame(TcpOp::kScanned, 64, good + good, 2) + payload,
      Frame(TcpOp::kScanned, 32, good, 2) + payload,
      Frame(TcpOp::kScanned, 0, "", 0),
      Frame(TcpOp::kAnswer, 0, read_answer, 1),  // as if it had been a read
  };
  for (const std::string& lie : lies) {
    TcpLiar liar;
    std::thread server([&] {
      const Descriptor fd = liar.Accept();
      ReceiveBytes(fd, Hello().size());
      std::string frame = Welcome(4096);
      frame[offsetof(TcpFrame, flags)] = kTcpFlagScans;
      SendAll(fd, frame);
      ReceiveBytes(fd, sizeof(TcpFrame) + sizeof(TcpScan));
      SendAll(fd, lie);
      ReceiveBytes(fd, 1);  // until it hangs up
    });
    const int64_t before = BadInput("tcp", "client");
    auto endpoint = Connect(liar.address());
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    ASSERT_TRUE((*endpoint)->capabilities().scan);
    std::string bytes(64, '#');
    ScanRead scan;
    scan.parts = {{{bytes.data() + 8, 8}, {bytes.data() + 24, 16}, {bytes.data() + 48, 5}}};
    ScanRead* const one = &scan;
    (*endpoint)->Scan({&one, 1});
    Completion completion;
    EXPECT_TRUE(RunUntil([&] { return (*endpoint)->Poll({&completion, 1}) == 1; }));
    EXPECT_EQ(completion.status, ReadStatus::kUnreachable);
    EXPECT_EQ(BadInput("tcp", "client"), before + 1);
    EXPECT_EQ(bytes, std::string(64, '#'));
    server.join();
  }
}

TEST_F(TcpTest, MemoryThatNobodyMayReadIsNoWelcome) {
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  TcpLiar liar;
  std::thread server([&] {
    const Descriptor fd = liar.Accept();
    ReceiveBytes(fd, Hello().size());
    SendAll(fd, Welcome(4096, Duration::Seconds(60), /*reads_max=*/16, Generation::kNone));
    ReceiveBytes(fd, 1);  // until it hangs up
  });
  const int64_t before = BadInput("tcp", "client");
  const auto endpoint = Connect(liar.address());
  EXPECT_TRUE(IsUnavailable(endpoint.status())) << endpoint.status();
  EXPECT_EQ(BadInput("tcp", "client"), before + 1);
  server.join();
}

TEST_F(TcpTest, TakesAnswersInPiecesOfAnySize) {
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  Rng rng(3);
  for (int round = 0; round < 20; ++round) {
    TcpLiar liar;
    // Three reads of odd lengths, a notification between, a failed read: cut at random places.
    std::string stream;
    std::string answers;
    AppendTo(answers, TcpAnswer{1, 4099, ReadStatus::kOk, {}});
    AppendTo(answers, TcpAnswer{0, 13, ReadStatus::kOk, {}});
    stream += Frame(TcpOp::kAnswer, 4104 + 16, answers, 2);
    stream +=
        std::string(4099, 'b') + std::string(5, '\0') + std::string(13, 'a') + std::string(3, '\0');
    stream += Frame(TcpOp::kNotify, 1, "", static_cast<uint16_t>(WatchOutcome::kChanged));
    answers.clear();
    AppendTo(answers, TcpAnswer{2, 0, ReadStatus::kStaleRegion, {}});
    AppendTo(answers, TcpAnswer{3, 4000, ReadStatus::kOk, {}});
    stream += Frame(TcpOp::kAnswer, 4000, answers, 2) + std::string(4000, 'd');
    std::thread server([&] {
      const Descriptor fd = liar.Accept();
      ReceiveBytes(fd, Hello().size());
      SendAll(fd, Welcome(8192));
      ReceiveBytes(fd, 2 * sizeof(TcpFrame) + sizeof(TcpWatch) + 4 * sizeof(TcpRead));
      for (size_t at = 0; at < stream.size();) {
        // Small pieces through the first headers, then larger ones: each is a wake-up of the
        // engine.
        const uint64_t most = at < 80 ? 16 : 200 + 100 * static_cast<uint64_t>(round);
        const size_t n = std::min<size_t>(stream.size() - at, 1 + rng.Below(most));
        SendAll(fd, stream.substr(at, n));
        at += n;
        std::this_thread::yield();
      }
      ReceiveBytes(fd, 1 << 20);
    });
    auto endpoint = Connect(liar.address());
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    (*endpoint)->set_read_timeout(Duration::Seconds(20));
    bool notified = false;
    (*endpoint)->Watch(0, 0, 0, Duration::Seconds(20),
                       scope_.Bind([&](WatchOutcome) { notified = true; }));
    std::string a(13, '#'), b(4099, '#'), c(10, '#'), d(4000, '#');
    const ReadDescriptor reads[] = {{.length = 13, .destination = a.data(), .token = 10},
                                    {.length = 4099, .destination = b.data(), .token = 11},
                                    {.length = 10, .destination = c.data(), .token = 12},
                                    {.length = 4000, .destination = d.data(), .token = 13}};
    (*endpoint)->Read(reads);
    std::map<uint64_t, ReadStatus> done;
    EXPECT_TRUE(RunUntil([&] {
      Completion completion;
      while ((*endpoint)->Poll({&completion, 1}) == 1) done[completion.token] = completion.status;
      return done.size() == 4 && notified;
    }));
    EXPECT_EQ(done[12], ReadStatus::kStaleRegion);
    EXPECT_EQ(a, std::string(13, 'a'));
    EXPECT_EQ(b, std::string(4099, 'b'));
    EXPECT_EQ(d, std::string(4000, 'd'));
    endpoint = UnavailableError("done");
    server.join();
  }
}

TEST_F(TcpTest, TheCreditOfAReadThatTimedOutGoesToOneThatWaits) {
  connector_ = MakeConnector(&loop_, {.read_timeout = Duration::Seconds(20)});
  TcpLiar slow;
  std::promise<void> timed_out;
  std::thread server([&] {
    const Descriptor fd = slow.Accept();
    ReceiveBytes(fd, Hello().size());
    SendAll(fd, Welcome(8192, Duration::Seconds(60), /*reads_max=*/1));
    for (uint64_t tag = 0; tag < 2; ++tag) {
      ReceiveBytes(fd, sizeof(TcpFrame) + sizeof(TcpRead));
      if (tag == 0) timed_out.get_future().wait();
      std::string answer;
      AppendTo(answer, TcpAnswer{tag, 8, ReadStatus::kOk, {}});
      SendAll(fd, Frame(TcpOp::kAnswer, 8, answer, 1) + std::string(8, 'a'));
    }
    ReceiveBytes(fd, 1 << 20);
  });
  auto endpoint = Connect(slow.address());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  std::map<uint64_t, ReadStatus> done;
  (*endpoint)->SetReadyCallback(scope_.Bind([&] {
    Completion completion;
    while ((*endpoint)->Poll({&completion, 1}) == 1) done[completion.token] = completion.status;
  }));
  std::string first(8, '#'), second(8, '#');
  (*endpoint)->set_read_timeout(Duration::Millis(20));
  const ReadDescriptor one{.length = 8, .destination = first.data(), .token = 1};
  (*endpoint)->Read({&one, 1});
  (*endpoint)->set_read_timeout(Duration::Seconds(100));
  const ReadDescriptor two{.length = 8, .destination = second.data(), .token = 2};
  (*endpoint)->Read({&two, 1});
  EXPECT_TRUE(RunUntil([&] { return done.size() == 1; }));
  EXPECT_EQ(done[1], ReadStatus::kTimeout);
  timed_out.set_value();
  EXPECT_TRUE(RunUntil([&] { return done.contains(2); }));
  EXPECT_EQ(done[2], ReadStatus::kOk);
  EXPECT_EQ(first, "########");
  EXPECT_EQ(second, "aaaaaaaa");
  endpoint = UnavailableError("done");
  server.join();
}

TEST_F(TcpTest, ASlowReaderDoesNotHoldUpTheOthers) {
  Export("tcp");
  const Descriptor slow = Dial();
  SendAll(slow, Hello());
  ASSERT_EQ(ReceiveBytes(slow, kWelcomeBytes).size(), kWelcomeBytes);
  std::string body;
  for (int i = 0; i < 64; ++i) body += ReadBody(0, 0, kReadBytesMax);
  SendAll(slow, Frame(TcpOp::kRead, 0, body, 64));  // 64 MB that it does not take
  auto endpoint = Connect(addresses_.front());
  ASSERT_TRUE(endpoint.ok());
  uint64_t value;
  for (int i = 0; i < 100; ++i) {
    const ReadDescriptor read{.length = 8, .destination = reinterpret_cast<char*>(&value)};
    (*endpoint)->Read({&read, 1});
    Completion completion;
    ASSERT_TRUE(RunUntil([&] { return (*endpoint)->Poll({&completion, 1}) == 1; }));
    ASSERT_EQ(completion.status, ReadStatus::kOk);
  }
}

// News of the engine that race with the loop's look at earlier news must not wait for later ones.
TEST_F(TcpTest, EveryReadIsNoticedWithoutFurtherNews) {
  Export("tcp");
  auto endpoint = Connect(addresses_.front());
  ASSERT_TRUE(endpoint.ok());
  size_t completed = 0;
  (*endpoint)->SetReadyCallback(scope_.Bind([&] {
    Completion completions[16];
    while (const size_t n = (*endpoint)->Poll(completions)) completed += n;
  }));
  std::vector<char> buffer(3 * 4096);
  for (size_t round = 1; round <= 5000; ++round) {
    // Three frames, so that the later ones arrive while the first is being looked at.
    for (uint64_t i = 0; i < 3; ++i) {
      const ReadDescriptor read{.length = 1u << (4 * i), .destination = buffer.data() + i * 4096};
      (*endpoint)->Read({&read, 1});
    }
    ASSERT_TRUE(RunUntil([&] { return completed == round * 3; })) << "round " << round;
  }
}

// A server that begins is read at once, while its pages are being made.
TEST_F(TcpTest, ItsEngineMakesNoPages) {
  constexpr uint64_t kBytes = 256 << 20;
  auto server = MakeExporter(TestOptions("tcp", ""));
  ASSERT_TRUE(server->AddRegion(0, kBytes).ok());
  Duration took;
  ASSERT_TRUE(server->Listen().ok());
  const MonotonicTime limit = ReadMonotonicClock() + Duration::Seconds(60);
  std::optional<Duration> now;
  do {  // until it has made all of them
    took = std::max(took, now.value_or(took));
    now = CpuOfThreadsNamed("fabric-pages");
  } while ((now || took == Duration()) && ReadMonotonicClock() < limit);
  EXPECT_FALSE(now);
  EXPECT_GT(took, Duration::Millis(1));
  EXPECT_LT(CpuOfThreadsNamed("fabric-server").value(), took / 4);
}

TEST_F(TcpTest, ItsEngineRunsBeforeOthersIfTheProcessMay) {
  const int own = getpriority(PRIO_PROCESS, 0);
  bool may = false;
  std::thread([&] { may = setpriority(PRIO_PROCESS, 0, -10) == 0; }).join();
  Export("tcp");
  int engines = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm != "fabric-server") continue;
    ++engines;
    const auto id = static_cast<id_t>(std::stoul(task.path().filename().string()));
    EXPECT_EQ(getpriority(PRIO_PROCESS, id), own == 0 && may ? -10 : own);
  }
  EXPECT_EQ(engines, 1);
}

// As when the time-outs of many readers come together: who leaves a word is not looked for among
// all who watch it.
TEST_F(TcpTest, EachOfManyWhoStopWatchingAWordCostsTheEngineWhatEachOfFewDoes) {
  constexpr int kEach = 4000;  // of a connection
  Export("tcp");
  uint32_t word;
  std::memcpy(&word, memory_[0].data(), sizeof(word));
  // In microseconds.
  const auto cost_of_each = [&](int watchers) {
    std::vector<std::unique_ptr<Endpoint>> readers;
    std::vector<std::pair<Endpoint*, uint64_t>> watches;
    for (int i = 0; i < watchers; ++i) {
      if (i % kEach == 0) readers.push_back(Connect(addresses_.front()).value());
      Endpoint* const reader = readers.back().get();
      watches.emplace_back(reader, reader->Watch(0, 0, word, Duration::Seconds(1000),
                                                 scope_.Bind([](WatchOutcome outcome) {
                                                   ADD_FAILURE() << static_cast<int>(outcome);
                                                 })));
    }
    const auto await_engine = [&] {  // what was sent before a read has been taken when it completes
      for (const auto& reader : readers) {
        char byte;
        const ReadDescriptor read{.length = 1, .destination = &byte};
        reader->Read({&read, 1});
        Completion completion;
        EXPECT_TRUE(RunUntil([&] { return reader->Poll({&completion, 1}) == 1; }));
        EXPECT_EQ(completion.status, ReadStatus::kOk);
      }
    };
    await_engine();
    const Duration before = CpuOfThreadsNamed("fabric-server").value();
    std::reverse(watches.begin(), watches.end());
    for (const auto& [reader, watch] : watches) reader->CancelWatch(watch);
    await_engine();
    const Duration took = CpuOfThreadsNamed("fabric-server").value() - before;
    return static_cast<double>(took.micros()) / watchers;
  };
  // The cheapest of some runs: the machine has other work, too. On a busy one the few may come to
  // the engine all at once, which is 0.05 us each, and the many with a wake-up for each, which is
  // 3; who looks for each of the many among all takes 30.
  constexpr double kWakeUp = 8;
  double few = 1e9, many = 1e9;
  for (int run = 0; run < 4 && (run == 0 || many >= 3 * few + kWakeUp); ++run) {
    few = std::min(few, cost_of_each(kEach / 2));
    many = std::min(many, cost_of_each(8 * kEach));
  }
  EXPECT_LT(many, 3 * few + kWakeUp);
}

TEST_F(TcpTest, APortInUseIsSaidSo) {
  Export("tcp");
  ExporterOptions options = TestOptions("tcp", "");
  options.tcp_listen = "127.0.0.1:" + std::to_string(where().port);
  auto second = MakeExporter(options);
  ASSERT_TRUE(second->AddRegion(0, 4096).ok());
  const auto taken = second->Listen();
  EXPECT_TRUE(IsAlreadyExists(taken.status())) << taken.status();
  EXPECT_NE(taken.status().message().find(options.tcp_listen), std::string::npos);
}

TEST_F(TcpTest, ConnectsByHostName) {
  Export("tcp");
  EXPECT_TRUE(Connect("tcp:localhost:" + std::to_string(where().port)).ok());
}

// ---- choice ----

TEST_F(DriverTest, PrefersSharedMemoryOnTheSameHostAndFallsBackToTcp) {
  Export("shm", [](ExporterOptions& options) { options.tcp_listen = "127.0.0.1:0"; });
  ASSERT_EQ(addresses_.size(), 2u);
  const std::string shm = addresses_[0], tcp = addresses_[1];
  const std::string elsewhere = "shm:/nonexistent/x.sock#0123456789abcdef";
  EXPECT_EQ(OrderAddresses({tcp, shm}), (std::vector{shm, tcp}));
  EXPECT_EQ(OrderAddresses({tcp, shm}, "tcp"), (std::vector{tcp, shm}));
  EXPECT_EQ(OrderAddresses({elsewhere, tcp}), (std::vector{tcp}));
  EXPECT_EQ(OrderAddresses({elsewhere, tcp}, "shm"), (std::vector{elsewhere, tcp}));
  EXPECT_EQ(OrderAddresses({"fake:a", "fake:b"}), (std::vector<std::string>{"fake:a", "fake:b"}));

  const auto best = [&](const std::vector<std::string>& addresses, const std::string& prefer) {
    std::optional<Result<BestEndpoint>> result;
    ConnectBest(connector_.get(), addresses, prefer, Duration::Seconds(5),
                scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
    EXPECT_TRUE(RunUntil([&] { return result.has_value(); }));
    return std::move(*result);
  };
  const Result<BestEndpoint> on_host = best(addresses_, "");
  EXPECT_TRUE(on_host->endpoint->capabilities().immediate);
  EXPECT_EQ(on_host->way.address, shm);
  EXPECT_EQ(on_host->way.passed_over, "");
  const Result<BestEndpoint> preferred = best(addresses_, "tcp");
  EXPECT_TRUE(preferred->endpoint->capabilities().cross_host);
  EXPECT_EQ(preferred->way.passed_over, "");
  EXPECT_TRUE(best({elsewhere, tcp}, "shm")->endpoint->capabilities().cross_host);
  EXPECT_EQ(best({elsewhere, tcp}, "")->way.passed_over, "shm: not from this host");
  // The path is there, but another server listens on it.
  std::string stranger = shm;
  stranger.back() = stranger.back() == '0' ? '1' : '0';
  const Result<BestEndpoint> fallen_back = best({stranger, tcp}, "");
  EXPECT_TRUE(fallen_back->endpoint->capabilities().cross_host);
  EXPECT_EQ(fallen_back->way.address, tcp);
  EXPECT_NE(fallen_back->way.passed_over.find("shm: "), std::string::npos);
  EXPECT_EQ(BetterAddresses({tcp, shm}, "", tcp), std::vector{shm});
  EXPECT_EQ(BetterAddresses({tcp, elsewhere}, "", tcp), std::vector<std::string>());
  EXPECT_EQ(BetterAddresses({tcp, shm}, "", shm), std::vector<std::string>());
  EXPECT_TRUE(IsUnavailable(best({elsewhere}, "").status()));
  EXPECT_FALSE(best({}, "").ok());
}

// As RDMA where a firewall drops its packets: the tcp connection's port is open.
TEST_F(TcpTest, AnAddressThatDidNotAnswerIsTriedAfterTheOthersNextTime) {
  Export("tcp");
  Descriptor silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(listen(silent.get(), 8), 0);
  socklen_t length = sizeof at;
  ASSERT_EQ(getsockname(silent.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
  const std::string first = "tcp:127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  const auto tries = [&](const std::vector<std::string>& addresses) {
    std::optional<Result<BestEndpoint>> result;
    ConnectBest(connector_.get(), addresses, "", Duration::Millis(300),
                scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
    EXPECT_TRUE(RunUntil([&] { return result.has_value(); }));
    if (addresses.size() > 1 && result->ok()) {
      EXPECT_EQ((*result)->way.address, addresses_[0]);
      EXPECT_EQ((*result)->way.passed_over, "tcp: no answer from " + first);
    }
    EXPECT_EQ(result->ok(), addresses.size() > 1) << result->status();
    int count = 0;
    for (;; ++count) {
      const Descriptor came(accept4(silent.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!came.valid()) return count;
    }
  };
  EXPECT_EQ(tries({first, addresses_[0]}), 1);
  EXPECT_EQ(tries({first, addresses_[0]}), 0);
  EXPECT_EQ(tries({first}), 1) << "there is no other";

  // It works again, and is found so after another one failed: it was the best all the time.
  silent = Descriptor();
  ExporterOptions options = TestOptions("tcp", "");
  options.tcp_listen = first.substr(4);
  const std::unique_ptr<Exporter> late = MakeExporter(options);
  ASSERT_TRUE(late->AddRegion(0, 4096).ok());
  ASSERT_TRUE(late->Listen().ok());
  const std::string nobody = "tcp:127.0.0.1:1";
  std::optional<Result<BestEndpoint>> result;
  ConnectBest(connector_.get(), {first, nobody}, "", Duration::Seconds(5),
              scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
  ASSERT_TRUE(RunUntil([&] { return result.has_value(); }));
  ASSERT_TRUE(result->ok()) << result->status();
  EXPECT_EQ((*result)->way.address, first);
  EXPECT_EQ((*result)->way.passed_over, "");
}

}  // namespace
}  // namespace tailcast::fabric

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc == 4 && std::string(argv[1]) == tailcast::fabric::kServerFlag) {
    return tailcast::fabric::Serve(argv[2], argv[3]);
  }
  if (argc == 3 && std::string(argv[1]) == tailcast::fabric::kReaderFlag) {
    return tailcast::fabric::ReadForEver(argv[2], tailcast::fabric::SuiteKey());
  }
  testing::InitGoogleTest(&argc, argv);
  // Bad input is logged a thousand times over.
  if (std::getenv("TAILCAST_LOG") == nullptr && !tailcast::SetLogLevels("fabric=off").ok())
    return 1;
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(tailcast::fabric::TestFolder());
  return result;
}
