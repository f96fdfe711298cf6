#include "tailcast/base/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/metrics_http.h"

namespace tailcast {
namespace {

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  MetricRegistry registry;
  Counter& a = registry.GetCounter("reads_total", "Reads.", {{"layer", "cache"}});
  Counter& b = registry.GetCounter("reads_total", "Reads.", {{"layer", "primary"}});
  a.Add();
  b.Add(5);
  registry.GetCounter("reads_total", "Reads.", {{"layer", "cache"}}).Add();
  EXPECT_EQ(registry.Value("reads_total", {{"layer", "cache"}}), 2);
  EXPECT_EQ(registry.Total("reads_total"), 7);
  EXPECT_EQ(registry.Value("nothing"), 0);
}

TEST(Metrics, SnapshotsAreSorted) {
  MetricRegistry registry;
  registry.GetGauge("z", "Z.").Set(-3);
  registry.GetCounter("a_total", "A.", {{"x", "2"}}).Add(2);
  registry.GetCounter("a_total", "A.", {{"x", "1"}}).Add(1);
  std::vector<std::string> names;
  for (const MetricSample& s : registry.Snapshot()) {
    names.push_back(s.name + std::to_string(s.value));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a_total1", "a_total2", "z-3"}));
}

TEST(Metrics, ThreadsLoseNoIncrement) {
  MetricRegistry registry;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Counter& counter = registry.GetCounter("n_total", "N.");
      for (int i = 0; i < 10'000; ++i) counter.Add();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(registry.Value("n_total"), 40'000);
}

TEST(MetricsDeathTest, RefusesTwoKindsUnderOneName) {
  MetricRegistry registry;
  registry.GetCounter("x", "X.");
  EXPECT_DEATH(registry.GetGauge("x", "X."), "counter and as a gauge");
  EXPECT_DEATH(registry.GetCounter("bad-name", "X."), "bad-name");
}

std::string HttpGet(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string reply;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char buffer[4096];
      ssize_t n;
      while ((n = read(fd, buffer, sizeof buffer)) > 0) {
        reply.append(buffer, static_cast<size_t>(n));
      }
    }
  }
  close(fd);
  return reply;
}

TEST(MetricsServer, ServesTheTextFormatOnAFreePort) {
  MetricRegistry registry;
  registry.GetCounter("tailcast_reads_total", "Reads.", {{"layer", "cache"}}).Add(3);
  registry.GetGauge("tailcast_lag_bytes", "Lag.").Set(42);
  auto server = MetricsServer::Start(registry, "127.0.0.1:0");
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_GT((*server)->port(), 0);
  const std::string reply = HttpGet((*server)->port());
  EXPECT_THAT(reply, ::testing::HasSubstr("tailcast_reads_total{layer=\"cache\"} 3"));
  EXPECT_THAT(reply, ::testing::HasSubstr("# TYPE tailcast_lag_bytes gauge"));
  EXPECT_THAT(reply, ::testing::HasSubstr("tailcast_lag_bytes 42"));

  auto second = MetricsServer::Start(registry, "127.0.0.1:" + std::to_string((*server)->port()));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
}

TEST(MetricsServer, NamesAMalformedAddress) {
  MetricRegistry registry;
  for (const char* address : {"", "localhost", ":80", "x:", "x:99999", "x:8o"}) {
    auto server = MetricsServer::Start(registry, address);
    ASSERT_FALSE(server.ok()) << address;
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tailcast
