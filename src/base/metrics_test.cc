#include "tailcast/base/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
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
  registry.GetCounter("x_total", "X.");
  EXPECT_DEATH(registry.GetGauge("x_total", "X."), "counter and as a gauge");
  EXPECT_DEATH(registry.GetCounter("bad-name_total", "X."), "bad-name");
}

TEST(MetricsDeathTest, OnlyCountersEndInTotal) {
  MetricRegistry registry;
  EXPECT_DEATH(registry.GetCounter("reads", "X."), "reads");
  EXPECT_DEATH(registry.GetGauge("reads_total", "X."), "reads_total");
}

TEST(Metrics, TimeIsCountedInMicrosecondsAndShownInSeconds) {
  MetricRegistry registry;
  registry.GetCounter("wait_seconds_total", "W.", {}, MetricUnit::kMicroseconds).Add(1'500'000);
  ASSERT_EQ(registry.Snapshot().size(), 1u);
  EXPECT_EQ(registry.Snapshot()[0].shown(), 1.5);
}

// An object that counts for itself.
struct Counting {
  OwnedCounter reads, open;
  MetricSource source;
  void Export(MetricRegistry& registry) {
    source = MetricSource(registry, [this](std::vector<MetricSample>& samples) {
      samples.push_back({"reads_total",
                         "R.",
                         MetricKind::kCounter,
                         {{"by", "us"}},
                         static_cast<int64_t>(reads.value())});
      samples.push_back({"open", "O.", MetricKind::kGauge, {}, static_cast<int64_t>(open.value())});
    });
  }
};

TEST(MetricSource, ShowsWhatItsOwnerCountsAndSumsThoseOfOneName) {
  MetricRegistry registry;
  registry.GetCounter("reads_total", "R.", {{"by", "us"}}).Add(100);
  Counting a, b;
  a.Export(registry);
  b.Export(registry);
  ++a.reads;
  a.reads += 4;
  b.reads += 7;
  a.open += 2;
  --a.open;
  b.open += 3;
  EXPECT_EQ(registry.Value("reads_total", {{"by", "us"}}), 112);
  EXPECT_EQ(registry.Value("open"), 4);
  EXPECT_EQ(registry.Snapshot().size(), 2u);
}

TEST(MetricSource, WhatItsCountersCameToStaysAndItsGaugesGo) {
  MetricRegistry registry;
  {
    Counting counting;
    counting.Export(registry);
    counting.reads += 3;
    counting.open += 1;
  }
  EXPECT_EQ(registry.Value("reads_total", {{"by", "us"}}), 3);
  EXPECT_EQ(registry.Snapshot().size(), 1u);
  Counting again;
  again.Export(registry);
  again.reads += 2;
  EXPECT_EQ(registry.Value("reads_total", {{"by", "us"}}), 5);
}

TEST(MetricSource, ASourceThatIsMovedEndsOnce) {
  MetricRegistry registry;
  OwnedCounter n;
  const auto collect = [&n](std::vector<MetricSample>& samples) {
    samples.push_back({"n_total", "N.", MetricKind::kCounter, {}, static_cast<int64_t>(n.value())});
  };
  n += 1;
  MetricSource kept;
  {
    MetricSource source(registry, collect);
    kept = std::move(source);
  }
  EXPECT_EQ(registry.Value("n_total"), 1);
  kept = MetricSource();
  EXPECT_EQ(registry.Value("n_total"), 1);
}

TEST(MetricSource, IsReadWhileItsOwnerCounts) {
  MetricRegistry registry;
  Counting counting;
  counting.Export(registry);
  std::thread owner([&] {
    for (int i = 0; i < 100'000; ++i) ++counting.reads;
  });
  int64_t last = 0;
  while (last < 1000) {
    const int64_t now = registry.Value("reads_total", {{"by", "us"}});
    ASSERT_GE(now, last);
    last = now;
  }
  owner.join();
  EXPECT_EQ(registry.Value("reads_total", {{"by", "us"}}), 100'000);
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

TEST(HistogramMetric, CountsAtEachBoundAndBesideIt) {
  MetricRegistry registry;
  HistogramMetric& delay =
      registry.GetHistogram("delay_seconds", "Delay.", HistogramMetric::Of::kMicroseconds);
  EXPECT_EQ(&delay,
            &registry.GetHistogram("delay_seconds", "Delay.", HistogramMetric::Of::kMicroseconds));
  const auto bounds = HistogramMetric::Bounds(HistogramMetric::Of::kMicroseconds);
  for (const int64_t bound : bounds) {
    delay.Observe(bound);
    delay.Observe(bound + 1, 2);
  }
  delay.Observe(-5);
  const std::vector<MetricSample> samples = registry.Snapshot();
  ASSERT_EQ(samples.size(), 1u);
  ASSERT_EQ(samples[0].counts.size(), bounds.size() + 1);
  EXPECT_EQ(samples[0].counts.front(), 2) << "what is negative is 0";
  for (size_t i = 1; i < bounds.size(); ++i) EXPECT_EQ(samples[0].counts[i], 3) << i;
  EXPECT_EQ(samples[0].counts.back(), 2);
  int64_t sum = 0;
  for (const int64_t bound : bounds) sum += bound + 2 * (bound + 1);
  EXPECT_EQ(samples[0].value, sum);
}

TEST(HistogramMetric, ThreadsLoseNothing) {
  HistogramMetric share(HistogramMetric::Of::kPerMillion);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) share.Observe(1'000'000);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(share.count(HistogramMetric::Bounds(HistogramMetric::Of::kPerMillion).size()), 40'000);
  EXPECT_EQ(share.sum(), 40'000'000'000);
}

TEST(MetricsServer, ShowsHistogramsInSecondsAndCumulatively) {
  MetricRegistry registry;
  HistogramMetric& delay = registry.GetHistogram("tailcast_delay_seconds", "Delay.",
                                                 HistogramMetric::Of::kMicroseconds, {{"a", "b"}});
  delay.Observe(700);
  delay.Observe(3'000'000, 2);
  delay.Observe(1'000'000'000);
  auto server = MetricsServer::Start(registry, "127.0.0.1:0");
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string reply = HttpGet((*server)->port());
  for (const char* line :
       {"# TYPE tailcast_delay_seconds histogram", "tailcast_delay_seconds_count{a=\"b\"} 4",
        "tailcast_delay_seconds_bucket{a=\"b\",le=\"0.0005\"} 0",
        "tailcast_delay_seconds_bucket{a=\"b\",le=\"0.001\"} 1",
        "tailcast_delay_seconds_bucket{a=\"b\",le=\"2.5\"} 1",
        "tailcast_delay_seconds_bucket{a=\"b\",le=\"5\"} 3",
        "tailcast_delay_seconds_bucket{a=\"b\",le=\"+Inf\"} 4"}) {
    EXPECT_THAT(reply, ::testing::HasSubstr(line));
  }
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
