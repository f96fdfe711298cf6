// Message channels against ends that break the protocol: whoever does so loses its own channel,
// which is counted, and nobody else notices.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
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
#include "tailcast/fabric/message_ring.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/shm_wire.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {
namespace {

const bool kQuiet = SetLogLevels("off").ok();

class ChannelAbuse : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kQuiet);
    folder_ = (std::filesystem::temp_directory_path() / "channel_abuse_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    Listen(ExporterOptions().peer_timeout);
    connector_ = MakeConnector(&loop_);
  }
  void TearDown() override {
    // An honest client is served all the same, over either driver.
    const uint64_t before = handled_;
    for (const std::string& address : addresses_) {
      std::string answer;
      std::unique_ptr<Channel> channel = Open(
          address, {.on_answer = scope_.Bind([&](uint64_t, std::string_view a) { answer = a; }),
                    .on_broken = scope_.Bind([] { ADD_FAILURE() << "an honest client broke"; })});
      ASSERT_NE(channel, nullptr);
      const std::string_view message = "honest";
      EXPECT_TRUE(channel->Send(std::span(&message, 1), 1));
      EXPECT_TRUE(Until([&] { return answer == "honest"; }));
    }
    EXPECT_GE(handled_, before + 2);
    exporter_.reset();
    std::filesystem::remove_all(folder_);
  }

  bool Until(const std::function<bool()>& done) {
    return loop_.RunUntil(done, ReadMonotonicClock() + Duration::Seconds(20));
  }
  void Listen(Duration peer_timeout) {
    exporter_.reset();
    ExporterOptions options;
    options.loop = &loop_;
    options.shm_socket_path = path();
    options.tcp_listen = "127.0.0.1:0";
    options.peer_timeout = peer_timeout;
    exporter_ = MakeExporter(options);
    ASSERT_TRUE(exporter_->AddRegion(0, 4096).ok());
    exporter_->ServeMessages(scope_.Bind([this](std::string_view message, std::string& answer) {
      ++handled_;
      answer = message.substr(0, 100);
      if (answer_bytes_ > 100) answer.assign(answer_bytes_, 'a');
    }));
    const auto addresses = exporter_->Listen();
    ASSERT_TRUE(addresses.ok()) << addresses.status();
    addresses_ = *addresses;
  }
  // Null: refused.
  std::unique_ptr<Channel> Open(const std::string& address, Channel::Callbacks callbacks) {
    std::optional<Result<std::unique_ptr<Channel>>> result;
    connector_->OpenChannel(
        address, Duration::Seconds(10),
        scope_.Bind([&result, callbacks = std::move(callbacks)](auto channel) mutable {
          result.emplace(std::move(channel));
          if (result->ok()) (**result)->SetCallbacks(std::move(callbacks));
        }));
    EXPECT_TRUE(Until([&] { return result.has_value(); }));
    return result->ok() ? std::move(**result) : nullptr;
  }
  std::string path() const { return folder_ + "/s.sock"; }
  static int64_t BadInput(const char* driver, const char* side) {
    return ProcessMetrics().Value("tailcast_fabric_bad_input_total",
                                  {{"driver", driver}, {"side", side}});
  }
  static int64_t SilentPeers() {
    return ProcessMetrics().Value("tailcast_fabric_silent_peers_total",
                                  {{"driver", "tcp"}, {"side", "server"}});
  }
  // Turns the loop until the other end has closed `fd`.
  bool Closed(const Descriptor& fd) {
    const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(20);
    char bytes[4096];
    while (ReadMonotonicClock() < end) {
      loop_.RunFor(Duration::Millis(1));
      const ssize_t n = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }

  static void SendWithDescriptors(const Descriptor& socket, const void* bytes, size_t size,
                                  const std::vector<int>& fds) {
    iovec part{const_cast<void*>(bytes), size};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message{.msg_iov = &part, .msg_iovlen = 1};
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_EQ(sendmsg(socket.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  static Descriptor MakeMemory(uint64_t size, int seals) {
    Descriptor fd(memfd_create("abuse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    if (seals != 0) {
      EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    }
    return fd;
  }
  static constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  static constexpr ShmHello kHello{.magic = kShmMagic,
                                   .hello = {.version = kHelloVersion, .flags = kHelloMessages}};

  std::string folder_;
  ThreadLoop loop_;
  std::unique_ptr<Exporter> exporter_;
  std::unique_ptr<Connector> connector_;
  std::vector<std::string> addresses_;
  uint64_t handled_ = 0;
  size_t answer_bytes_ = 100;
  Scope scope_;
};

TEST_F(ChannelAbuse, MemoryThatAClientCouldResizeIsNotMapped) {
  const Descriptor unsealed = MakeMemory(kChannelBytes, 0);
  const Descriptor growing = MakeMemory(kChannelBytes, F_SEAL_SHRINK);
  // The server could not forbid holes in it.
  const Descriptor final_seals = MakeMemory(kChannelBytes, kSeals | F_SEAL_SEAL);
  const Descriptor small = MakeMemory(kChannelBytes - 4096, kSeals);
  const Descriptor large = MakeMemory(kChannelBytes + 4096, kSeals);
  const Descriptor read_only = MakeMemory(kChannelBytes, kSeals | F_SEAL_WRITE);
  const Descriptor good = MakeMemory(kChannelBytes, kSeals);
  const std::string name = folder_ + "/file";
  const Descriptor file(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(kChannelBytes)), 0);
  const std::vector<std::vector<int>> offers = {
      {},
      {unsealed.get()},
      {growing.get()},
      {final_seals.get()},
      {small.get()},
      {large.get()},
      {read_only.get()},
      {file.get()},
      {good.get(), good.get()},
  };
  int64_t bad = BadInput("shm", "server");
  for (const std::vector<int>& offer : offers) {
    const Descriptor socket = ConnectUnix(path()).value();
    SendWithDescriptors(socket, &kHello, sizeof(kHello), offer);
    EXPECT_TRUE(Closed(socket));
    EXPECT_EQ(BadInput("shm", "server"), ++bad);
  }
}

// A client that writes its rings by hand.
struct RawShmClient {
  explicit RawShmClient(Descriptor s, const Descriptor& memory_fd)
      : socket(std::move(s)), memory(Mapping::Map(memory_fd.get(), kChannelBytes, true).value()) {}
  RingMemory messages() const { return RingMemory::Messages(memory.data()); }
  RingMemory answers() const { return RingMemory::Answers(memory.data()); }
  void Store(uint64_t at, uint32_t bytes, uint32_t number) const {
    std::memcpy(messages().bytes + at, &bytes, 4);
    std::memcpy(messages().bytes + at + 4, &number, 4);
  }
  void Publish(uint64_t written) const {
    messages().words->written.store(written, std::memory_order_release);
    RingWriter(messages()).Wake();
  }
  Descriptor socket;
  Mapping memory;
};

TEST_F(ChannelAbuse, RingsThatDoNotAddUpEndTheirChannel) {
  const std::vector<std::function<void(const RawShmClient&)>> abuses = {
      [](const RawShmClient& c) { c.Publish(UINT64_MAX); },
      [](const RawShmClient& c) { c.Publish(kMessageRingBytes + 8); },
      [](const RawShmClient& c) { c.Publish(3); },
      [](const RawShmClient& c) {  // nothing
        c.Store(0, 0, 0);
        c.Publish(8);
      },
      [](const RawShmClient& c) {
        c.Store(0, kMessageBytesMax + 1, 0);
        c.Publish(kMessageRingBytes);
      },
      [](const RawShmClient& c) {
        c.Store(0, UINT32_MAX, 0);
        c.Publish(kMessageRingBytes);
      },
      [](const RawShmClient& c) {  // longer than what was written
        c.Store(0, 100, 0);
        c.Publish(16);
      },
      [](const RawShmClient& c) {  // another number
        c.Store(0, 8, 7);
        c.Publish(16);
      },
      [](const RawShmClient& c) {  // the count falls
        c.Store(0, 8, 0);
        c.Publish(16);
        c.Publish(8);
      },
  };
  int64_t bad = BadInput("shm", "server");
  for (const auto& abuse : abuses) {
    const Descriptor fd = MakeMemory(kChannelBytes, kSeals);
    RawShmClient client(ConnectUnix(path()).value(), fd);
    SendWithDescriptors(client.socket, &kHello, sizeof(kHello), {fd.get()});
    abuse(client);
    EXPECT_TRUE(Closed(client.socket));
    EXPECT_EQ(BadInput("shm", "server"), ++bad);
  }
}

// What it has said of its sleep, of answers and of holes in its memory is its own affair.
TEST_F(ChannelAbuse, AClientThatSpoilsItsOwnRingHarmsNobodyElse) {
  const Descriptor fd = MakeMemory(kChannelBytes, kSeals);
  RawShmClient client(ConnectUnix(path()).value(), fd);
  SendWithDescriptors(client.socket, &kHello, sizeof(kHello), {fd.get()});
  client.answers().words->written.store(UINT64_MAX);
  client.answers().words->reader_sleeps.store(77);
  client.messages().words->reader_sleeps.store(77);
  // Without credits: far more than its answers have room for.
  for (uint32_t i = 0; i < 5000; ++i) {
    client.Store(i * 16 % kMessageRingBytes, 8, i);
    client.Publish((i + 1) * uint64_t{16});
    if (i % 100 == 0) loop_.RunFor(Duration::Millis(1));
  }
  EXPECT_TRUE(Until([&] { return handled_ == 5000; }));
  // Nor can it take pages away on which the server may sleep, or map it to write once more.
  EXPECT_NE(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      static_cast<off_t>(kChannelBytes)),
            0);
  EXPECT_NE(madvise(client.memory.data(), kChannelBytes, MADV_REMOVE), 0);
  EXPECT_FALSE(Mapping::Map(fd.get(), kChannelBytes, true).ok());
}

class TcpAbuse : public ChannelAbuse {
 protected:
  Descriptor Dial() {
    const std::string& address = addresses_.back();
    const HostPort where = ParseHostPort(address.substr(4, address.rfind('#') - 4)).value();
    const SocketAddress number = ResolveNumber(where).value();
    Descriptor fd(socket(number.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), number.get(), number.length), 0);
    const std::string hello =
        HandshakeFrame(TcpOp::kHello, Hello{.version = kHelloVersion, .flags = kHelloMessages});
    EXPECT_EQ(send(fd.get(), hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
    char welcome[sizeof(TcpFrame) + sizeof(TcpWelcome)];
    EXPECT_EQ(recv(fd.get(), welcome, sizeof(welcome), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(welcome)));
    return fd;
  }
  static void Put(const Descriptor& fd, const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n < 0) return;  // it has hung up already
      sent += static_cast<size_t>(n);
    }
  }
  static std::string Message(uint64_t number, size_t bytes) {
    std::string text;
    AppendMessage(text, TcpOp::kMessage, number, std::string(bytes, 'm'));
    return text;
  }
};

TEST_F(TcpAbuse, FramesThatAreNoMessagesEndTheirChannel) {
  const auto frame = [](TcpFrame f) {
    std::string text;
    AppendTo(text, f);
    return text;
  };
  // More than there are credits for: the loop, which would return some, does not run meanwhile.
  std::string many;
  for (uint64_t i = 0; i <= kMessageWindow; ++i) many += Message(i, 8);
  const std::vector<std::string> abuses = {
      std::string(64, '\xff'),
      frame({.body_bytes = 0, .op = TcpOp::kPing, .flags = 0, .count = 0, .argument = 0}),
      frame({.body_bytes = kMessageBytesMax + 8, .op = TcpOp::kMessage}),
      frame({.body_bytes = 16, .op = TcpOp::kMessage, .flags = 1}),
      frame({.body_bytes = 16, .op = TcpOp::kMessage, .flags = 0, .count = 8}),
      frame({.body_bytes = 12, .op = TcpOp::kMessage}),
      frame({.body_bytes = 0, .op = TcpOp::kMessage, .flags = 0, .count = 7}),
      frame({.body_bytes = 0, .op = TcpOp::kMessage}),
      Message(1, 8),
      Message(0, 8) + Message(0, 8),
      many,
  };
  int64_t bad = BadInput("tcp", "server");
  for (const std::string& abuse : abuses) {
    const Descriptor fd = Dial();
    Put(fd, abuse);
    EXPECT_TRUE(Closed(fd));
    EXPECT_EQ(BadInput("tcp", "server"), ++bad);
  }
}

TEST_F(TcpAbuse, WhoDoesNotEndItsMessageLosesItsChannelAndNobodyElseDoes) {
  Listen(Duration::Millis(150));
  const int64_t silent = SilentPeers();
  const Descriptor half = Dial();
  Put(half, Message(0, 200).substr(0, 100));
  EXPECT_TRUE(Until([&] { return SilentPeers() == silent + 1; }));
  EXPECT_TRUE(Closed(half));
  // Of these half had come when the loop stood still, and the rest came in time. They are more than
  // the loop looks at in a turn.
  std::vector<Descriptor> honest;
  for (int i = 0; i < 100; ++i) {
    honest.push_back(Dial());
    Put(honest.back(), Message(0, 200).substr(0, 100));
  }
  loop_.RunFor(Duration::Millis(20));
  const uint64_t before = handled_;
  for (const Descriptor& fd : honest) Put(fd, Message(0, 200).substr(100));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // nobody turns the loop meanwhile
  EXPECT_TRUE(Until([&] { return handled_ == before + 100; }));
  for (const Descriptor& fd : honest) Put(fd, Message(1, 200));
  EXPECT_TRUE(Until([&] { return handled_ == before + 200; }));
  EXPECT_EQ(SilentPeers(), silent + 1);
}

TEST_F(TcpAbuse, AMessageMayComeByteByByteAndItsAnswersMayBeLeftUnread) {
  const Descriptor slow = Dial();
  for (const char byte : Message(0, 20)) Put(slow, std::string(1, byte));
  EXPECT_TRUE(Until([&] { return handled_ == 1; }));
  const Descriptor half = Dial();
  Put(half, Message(0, 200).substr(0, 100));
  loop_.RunFor(Duration::Millis(10));
  EXPECT_EQ(handled_, 1u);
}

// Its credits return when a message was handled, so it could go on for ever.
TEST_F(TcpAbuse, WhoDoesNotTakeItsAnswersLosesItsChannel) {
  answer_bytes_ = kAnswerBytesMax;
  const Descriptor fd = Dial();
  const int64_t bad = BadInput("tcp", "server");
  for (uint64_t i = 0; i < 20'000 && BadInput("tcp", "server") == bad; ++i) {
    Put(fd, Message(i, 8));
    loop_.RunOnce();
  }
  EXPECT_TRUE(Until([&] { return BadInput("tcp", "server") == bad + 1; }));
  answer_bytes_ = 100;
}

// A server that says what a test wants, to the first client.
TEST_F(TcpAbuse, ALyingServerIsLeftNotTrusted) {
  const auto answer = [](TcpOp op, uint64_t number, size_t bytes) {
    std::string text;
    AppendMessage(text, op, number, std::string(bytes, 'a'));
    return text;
  };
  const std::vector<std::string> lies = {
      answer(TcpOp::kMessageAnswer, 0, 8),  // to nothing
      answer(TcpOp::kMessageAnswer, 1, 8),
      answer(TcpOp::kMessage, 0, 8),
      answer(TcpOp::kMessageAnswer, 0, kAnswerBytesMax + 1),
      std::string(100, '\xff'),
  };
  for (const std::string& lie : lies) {
    Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SocketAddress any = ResolveNumber(HostPort{"127.0.0.1", 0}).value();
    ASSERT_EQ(bind(listener.get(), any.get(), any.length), 0);
    ASSERT_EQ(listen(listener.get(), 1), 0);
    ASSERT_EQ(getsockname(listener.get(), any.get(), &any.length), 0);
    std::thread liar([&] {
      const Descriptor client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char hello[sizeof(TcpFrame) + sizeof(Hello)];
      EXPECT_EQ(recv(client.get(), hello, sizeof(hello), MSG_WAITALL),
                static_cast<ssize_t>(sizeof(hello)));
      std::string text;
      AppendTo(text, TcpFrame{.body_bytes = sizeof(TcpWelcome),
                              .op = TcpOp::kWelcome,
                              .flags = 0,
                              .count = 0,
                              .argument = kTcpMagic});
      AppendTo(text, TcpWelcome{.version = kHelloVersion, .status = HelloStatus::kWelcome});
      Put(client, text + lie);
      char byte;
      while (recv(client.get(), &byte, 1, 0) > 0) {
      }
    });
    const int64_t bad = BadInput("tcp", "client");
    bool broken = false;
    std::unique_ptr<Channel> channel =
        Open("tcp:127.0.0.1:" + std::to_string(any.port()),
             {.on_answer = scope_.Bind(
                  [](uint64_t, std::string_view) { ADD_FAILURE() << "an answer to nothing"; }),
              .on_broken = scope_.Bind([&] { broken = true; })});
    broken |= channel == nullptr;
    EXPECT_TRUE(Until([&] { return broken; }));
    EXPECT_EQ(BadInput("tcp", "client"), bad + 1);
    channel.reset();
    liar.join();
  }
}

}  // namespace
}  // namespace tailcast::fabric
