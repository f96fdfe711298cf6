#include "tailcast/consumer/consumer_metrics.h"

#include <gtest/gtest.h>

#include <vector>

namespace tailcast::consumer {
namespace {

constexpr auto kOpened = WallTime::FromMicros(1'000'000'000);

Message PublishedAt(int64_t us) { return {.payload = "x", .time_us = us}; }

MetricSample Find(const MetricRegistry& registry, const std::string& name) {
  for (const MetricSample& sample : registry.Snapshot()) {
    if (sample.name == name) return sample;
  }
  return {};
}

int64_t CountOf(const MetricSample& sample) {
  int64_t sum = 0;
  for (const int64_t n : sample.counts) sum += n;
  return sum;
}

TEST(ConsumerMetrics, DelayIsThatOfWhatWasPublishedSinceItWasOpened) {
  MetricRegistry registry;
  ConsumerMetrics metrics(registry, "s", kOpened);
  const int64_t at = kOpened.micros();
  const std::vector<Message> batch = {PublishedAt(at - 1), PublishedAt(at), PublishedAt(at),
                                      PublishedAt(at + 500)};
  metrics.OnGiven(kOpened + Duration::Millis(1), batch);
  const MetricSample delay = Find(registry, "tailcast_consumer_delay_seconds");
  EXPECT_EQ(CountOf(delay), 3);
  EXPECT_EQ(delay.value, 2 * 1000 + 500);
  EXPECT_EQ(registry.Value("tailcast_consumer_history_messages_total", {{"stream", "s"}}), 1);
}

TEST(ConsumerMetrics, ACounterShowsWhatCameSinceTheLastLook) {
  MetricRegistry registry;
  ConsumerMetrics a(registry, "s", kOpened);
  ConsumerMetrics b(registry, "s", kOpened);
  Counters counters;
  counters.messages = 7;
  a.OnLook(counters, {}, 0);
  a.OnLook(counters, {}, 0);
  counters.messages = 3;
  b.OnLook(counters, {}, 0);
  EXPECT_EQ(registry.Value("tailcast_consumer_messages_total", {{"stream", "s"}}), 10);
}

TEST(ConsumerMetrics, TheShareOfTheCacheIsThatOfEachLook) {
  MetricRegistry registry;
  ConsumerMetrics metrics(registry, "s", kOpened);
  Counters counters;
  counters.cache_bytes = 300;
  metrics.OnLook(counters, {}, 0);
  metrics.OnLook(counters, {}, 0);  // nothing was read
  counters.cache_bytes = 400;
  counters.primary_bytes = 300;
  metrics.OnLook(counters, {}, 0);
  const MetricSample share = Find(registry, "tailcast_consumer_cache_hit_ratio");
  EXPECT_EQ(CountOf(share), 2);
  EXPECT_EQ(share.counts.back(), 1) << "all of the cache";
  EXPECT_EQ(share.value, 1'000'000 + 250'000);
}

TEST(ConsumerMetrics, ShardsAndLagAreThoseOfTheConsumersThatAreThere) {
  MetricRegistry registry;
  const auto value = [&](const char* state) {
    return registry.Value("tailcast_consumer_shards", {{"stream", "s"}, {"state", state}});
  };
  ConsumerMetrics a(registry, "s", kOpened);
  a.OnLook({}, {0, 0, 2, 1, 0, 0}, 50);
  {
    ConsumerMetrics b(registry, "s", kOpened);
    b.OnLook({}, {0, 0, 1, 0, 0, 0}, 7);
    EXPECT_EQ(value("tailing"), 3);
    EXPECT_EQ(registry.Value("tailcast_consumer_lag_bytes", {{"stream", "s"}}), 57);
  }
  EXPECT_EQ(value("tailing"), 2);
  EXPECT_EQ(value("quiet"), 1);
  EXPECT_EQ(value("failed"), 0);
  EXPECT_EQ(registry.Value("tailcast_consumer_lag_bytes", {{"stream", "s"}}), 50);
}

}  // namespace
}  // namespace tailcast::consumer
