// A server with the verbs driver and its clients on an RDMA device, for tests of what is particular
// to it: tests/uml/run.py runs them in a kernel that has soft ones. Of a program one file includes
// it.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
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
#include "tailcast/fabric/verbs_wire.h"

// What the driver says to the device and to the connection manager passes by here: looked at, and
// answered otherwise where a test wants it.
namespace {

struct {
  std::atomic<int> max_qp_rd_atom = 0, max_qp_init_rd_atom = 0;  // 0: the device's own
  std::atomic<bool> makes_no_queue_pairs = false;                // but to the test's own thread
  std::atomic<bool> accepts_nothing = false;
  std::atomic<bool> makes_no_shared_queues = false;
  std::atomic<bool> tells_nothing = false;      // of shared queues that run low
  std::atomic<bool> is_another_device = false;  // to which connection requests come
  std::atomic<int> asked = 0, granted = 0;      // READs at a time, of the last connection
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
extern "C" ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  if (g_device.makes_no_shared_queues) {
    errno = ENOMEM;
    return nullptr;
  }
  return Real<decltype(ibv_create_srq)>("ibv_create_srq")(pd, attributes);
}
extern "C" int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  const auto next = Real<decltype(ibv_get_async_event)>("ibv_get_async_event");
  int error = next(context, event);
  while (error == 0 && g_device.tells_nothing) {
    ibv_ack_async_event(event);
    error = next(context, event);
  }
  return error;
}
extern "C" int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  const int error = Real<decltype(rdma_get_cm_event)>("rdma_get_cm_event")(channel, event);
  static ibv_context another;
  if (error == 0 && g_device.is_another_device &&
      (*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    (*event)->id->verbs = &another;
  }
  return error;
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
    g_device.makes_no_shared_queues = g_device.tells_nothing = g_device.is_another_device = false;
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
    EXPECT_TRUE(Receive(in.tcp, bytes));
    EXPECT_EQ(
        send(in.tcp.get(), said.data() + sizeof(TcpFrame) + sizeof(Hello), sizeof(TcpFrame), 0),
        static_cast<ssize_t>(sizeof(TcpFrame)));
    char answer[sizeof(TcpFrame) + sizeof(VerbsChannelOffer)];
    EXPECT_TRUE(Receive(in.tcp, answer));
    const auto offer = DecodeVerbsChannelOffer(
        {answer + sizeof(TcpFrame), sizeof(VerbsChannelOffer)}, TakeFrom<TcpFrame>(answer).count);
    EXPECT_TRUE(offer.has_value());
    in.offer.head.port = offer->port;
    in.offer.head.token = offer->token;
    in.offer.head.reads_max = 1;
    std::memcpy(in.offer.head.host, offer->host, sizeof(offer->host));
    return in;
  }
  // Turns the loop, which is the server's as well, until all these bytes have come.
  bool Receive(const Descriptor& tcp, std::span<char> bytes) {
    const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(30);
    while (!bytes.empty() && ReadMonotonicClock() < end) {
      loop_.RunFor(Duration::Millis(1));
      const ssize_t n = recv(tcp.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return bytes.empty();
  }
  // As RawQueuePair::Connect. Turns the loop meanwhile, which lets a channel's queue pair in.
  rdma_cm_event_type ConnectRaw(RawQueuePair& raw, const VerbsOffer& offer) {
    auto connected = std::async(std::launch::async, [&] { return raw.Connect(offer); });
    while (connected.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      loop_.RunFor(Duration::Millis(1));
    }
    return connected.get();
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

}  // namespace
}  // namespace tailcast::fabric
