// The parts of the model, each against arithmetic of another kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tailcast/base/rng.h"
#include "tailcast/scale/cell_model.h"
#include "tailcast/scale/costs.h"
#include "tailcast/scale/delay.h"
#include "tailcast/scale/experiments.h"
#include "tailcast/scale/reading.h"
#include "tailcast/scale/report.h"
#include "tailcast/scale/sizing.h"

namespace tailcast::scale {
namespace {

TEST(DelaySpread, IsTheSumOfItsStages) {
  DelaySpread delay;
  delay.AddUpTo(0.1);
  delay.AddConstant(0.03);
  delay.AddUpTo(0.1);
  EXPECT_NEAR(delay.Mean(), 0.13, 0.001);
  EXPECT_NEAR(delay.Percentile(50), 0.13, 0.001);
  // Of the sum of two: the last hundredth begins at 0.2 (1 - sqrt(0.02) / 2).
  EXPECT_NEAR(delay.Percentile(99), 0.03 + 0.2 * (1 - std::sqrt(0.02) / 2), 0.001);
  delay.AddMaybe(0.25, 1);
  EXPECT_NEAR(delay.Mean(), 0.38, 0.001);
  EXPECT_LT(delay.Percentile(74), 0.25);
  EXPECT_GT(delay.Percentile(76), 1.03);
}

TEST(DelaySpread, WhatIsLongerThanTheMostIsTheMost) {
  DelaySpread delay;
  delay.AddConstant(40);
  delay.AddConstant(40);
  EXPECT_EQ(delay.Percentile(50), DelaySpread::kMost);
}

// Counts the chunks that a reader touches who comes every so often.
double CountedChunkReads(const ShardFlow& flow, double round_s, uint64_t seed) {
  Rng rng(seed);
  int64_t reads = 0;
  constexpr int kRounds = 20'000;
  for (const double rate : {flow.bytes_per_s, flow.bytes_per_s / flow.message_bytes * 32}) {
    double at = static_cast<double>(rng.Below(4096));
    for (int round = 0; round < kRounds; ++round) {
      const double end = at + rate * round_s;
      const auto first = static_cast<int64_t>(at), last = static_cast<int64_t>(end);
      if (last > first) {
        reads += (last - 1) / static_cast<int64_t>(flow.chunk_bytes) -
                 first / static_cast<int64_t>(flow.chunk_bytes) + 1;
      }
      at = end;
    }
  }
  return static_cast<double>(reads) / (kRounds * round_s);
}

TEST(Reading, CountsTheChunksThatARoundTouches) {
  for (const double rate : {5'000.0, 60'000.0, 250'000.0, 3e6}) {
    for (const double round_s : {0.1, 0.35, 0.5}) {
      const ShardFlow flow{.bytes_per_s = rate, .message_bytes = 700};
      EXPECT_NEAR(ReadingOf(flow, round_s).chunk_reads / CountedChunkReads(flow, round_s, 7), 1,
                  0.02)
          << rate << " " << round_s;
    }
  }
  // Who looks more often than anything is flushed reads no more.
  const ShardFlow flow{.bytes_per_s = 60'000, .message_bytes = 1000};
  EXPECT_EQ(ReadingOf(flow, 0.01).chunk_reads, ReadingOf(flow, 0.1).chunk_reads);
  EXPECT_EQ(ReadingOf(flow, 0.01).value_reads, 100);
}

CellSetup Small() {
  CellSetup setup;
  setup.flow = {.bytes_per_s = 100'000, .message_bytes = 1000};
  setup.shards = 100;
  setup.shards_per_consumer = 10;
  setup.data_servers = 3;  // whose loads are equal
  setup.metadata_servers = 3;
  return setup;
}

double ReadBytesOf(const CellSetup& setup) {
  return ReadingOf(setup.flow, setup.poll_s).read_bytes * setup.shards_per_consumer;
}

TEST(CellModel, WhileThereIsEnoughEverybodyGetsWhatComes) {
  const CellSetup setup = Small();
  CellModel cell(setup);
  cell.SetConsumers(500, 0);
  CellSample sample;
  for (int i = 0; i < 100; ++i) sample = cell.Step(0.25);
  EXPECT_EQ(sample.consumers, 500);
  EXPECT_NEAR(sample.read_bytes_per_s, 500 * ReadBytesOf(setup), 1);
  EXPECT_EQ(sample.round_s, setup.poll_s);
  EXPECT_EQ(sample.lag_s, 0);
  EXPECT_EQ(sample.fallbacks_per_s, 0);
}

TEST(CellModel, TooManyReadsMakeRoundsLongerAndTooManyBytesMakeThemLate) {
  CellSetup setup = Small();
  CellSetup wide = setup;
  wide.limits.bytes_per_s = 1e11;
  CellModel reads(wide);  // each wants some 450 reads a second
  reads.SetConsumers(3800, 0);
  CellSample sample;
  for (int i = 0; i < 40; ++i) sample = reads.Step(0.25);
  EXPECT_GT(sample.round_s, setup.poll_s);
  EXPECT_LE(sample.reads_per_s, 3 * setup.limits.reads_per_s);
  EXPECT_EQ(sample.fallbacks_per_s, 0);
  reads.SetConsumers(30'000, 0);  // more than rounds of a second can help
  for (int i = 0; i < 40; ++i) sample = reads.Step(0.25);
  EXPECT_LE(sample.reads_per_s, 3 * setup.limits.reads_per_s);
  EXPECT_GT(sample.fallbacks_per_s, 0);
  setup.limits.bytes_per_s = 0.5 * 1000 * ReadBytesOf(setup) / setup.data_servers;
  CellModel bytes(setup);  // half of what a thousand need
  bytes.SetConsumers(1000, 0);
  bool late = false;
  for (int i = 0; i < 40; ++i) {
    sample = bytes.Step(0.25);
    late |= sample.fallbacks_per_s > 0;
    EXPECT_LE(sample.read_bytes_per_s, setup.data_servers * setup.limits.bytes_per_s);
  }
  EXPECT_TRUE(late);
  EXPECT_GT(sample.lag_s, 0.9);
}

TEST(CellModel, WhoBeginsBehindTakesWhatIsLeftAndThenKeepsUp) {
  CellSetup setup = Small();
  setup.catch_up_factor = 3;
  CellModel cell(setup);
  cell.SetConsumers(500, 20);
  // 20 s of bytes, at twice the rate more than comes.
  double took = 0;
  while (took < 60 && cell.Step(0.25).read_bytes_per_s > 501 * ReadBytesOf(setup)) took += 0.25;
  EXPECT_NEAR(took, 10, 0.5);
  EXPECT_EQ(cell.Step(0.25).consumers, 500);
}

TEST(CellModel, ServersAreAddedUntilTheBusiestIsBelowItsTrigger) {
  CellSetup setup = Small();
  setup.autoscaler.on = true;
  CellModel cell(setup);
  cell.SetConsumers(10'000, 0);
  CellSample sample;
  for (int i = 0; i < 4 * 600; ++i) sample = cell.Step(0.25);
  const double hot = HottestServer(sample.data_servers);
  EXPECT_LE(sample.read_bytes_per_s * hot / sample.data_servers, setup.limits.trigger_bytes_per_s);
  EXPECT_LE(sample.reads_per_s * hot / sample.data_servers, setup.limits.trigger_reads_per_s);
  const int most = sample.data_servers;
  cell.SetConsumers(10, 0);
  for (int i = 0; i < 4 * 600; ++i) sample = cell.Step(0.25);
  EXPECT_LT(sample.data_servers, most);
  EXPECT_GE(sample.data_servers, setup.data_servers) << "those that it was given stay";
}

TEST(CellModel, TwoLostServersAreMissedByTheChunksThatHaveBoth) {
  CellSetup setup = Small();
  setup.data_servers = 9;
  CellModel cell(setup);
  cell.SetConsumers(100, 0);
  cell.LoseServers(1, 5);
  EXPECT_EQ(cell.Step(0.25).late_share, 0);
  cell.LoseServers(2, 5);
  EXPECT_NEAR(cell.Step(0.25).late_share, 7.0 / 84, 0.03) << "of nine, two and any third";
  for (int i = 0; i < 24; ++i) cell.Step(0.25);
  EXPECT_EQ(cell.Step(0.25).late_share, 0);
}

TEST(HottestServer, IsALittleAboveTheMean) {
  EXPECT_EQ(HottestServer(3), 1);
  for (const int servers : {9, 100, 400}) {
    EXPECT_GT(HottestServer(servers), 1) << servers;
    EXPECT_LT(HottestServer(servers), 1.4) << servers;
  }
}

std::string Bench(const std::string& read_us) {
  return R"({"context": {"num_cpus": 2, "mhz_per_cpu": 2600}, "benchmarks": [
    {"name": "ReadChunks/tcp/depth:64/MB:64/real_time", "server_us": )" +
         read_us + R"(, "client_us": 2},
    {"name": "ReadLengths/tcp/real_time", "server_us": 20, "client_us": 30},
    {"name": "MutateChunks/tcp/in_flight:4/iterations:1/real_time", "server_us": 6}]})";
}

TEST(Costs, AreThoseOfTheBench) {
  const auto costs = ReadCosts(Bench("1.5"), "cache.json");
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_DOUBLE_EQ(costs->server_read_s, 1.5e-6);
  EXPECT_DOUBLE_EQ(costs->client_value_s, 30e-6);
  EXPECT_EQ(costs->machine, "2 x 2600 MHz");
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("{}"),
        std::string(R"({"benchmarks": [1]})"), Bench("\"x\""), Bench("0")}) {
    const auto refused = ReadCosts(bad, "cache.json");
    EXPECT_FALSE(refused.ok()) << bad;
    EXPECT_NE(refused.status().ToString().find("cache.json"), std::string::npos);
  }
}

TEST(Size, GrowsWithTheConsumersAndCostsWhatTheTreeCosts) {
  const Costs costs = ReadCosts(Bench("1.5"), "cache.json").value();
  const copytree::Graph cloud = InventedCloud(12);
  const auto size = [&](double consumers) {
    Demand demand;
    demand.consumers = consumers;
    return Size(demand, {}, costs, cloud, "us-1").value();
  };
  const Sizing few = size(120'000), many = size(1'200'000);
  EXPECT_NEAR(many.reads_per_s / few.reads_per_s, 10, 0.001);
  EXPECT_NEAR(static_cast<double>(many.data_servers) / few.data_servers, 10, 1);
  EXPECT_EQ(many.link_bytes_per_s, few.link_bytes_per_s);
  // 11 links, each of two copies of 30 MB/s and an index record for each KB.
  EXPECT_DOUBLE_EQ(few.link_bytes_per_s, 11 * 2 * 30e6 * 1.032);
  EXPECT_NEAR(few.plan.usd_per_day, few.plan.usd_per_gb * 2 * 30e6 * 1.032 * 86400 / 1e9, 0.01);
  Demand impossible;
  impossible.stream_mbps = 1e6;
  impossible.shards = 1;
  impossible.shards_per_consumer = 1;
  EXPECT_FALSE(Size(impossible, {}, costs, cloud, "us-1").ok());
  impossible.shards_per_consumer = 2;
  EXPECT_FALSE(Size(impossible, {}, costs, cloud, "us-1").ok());
  EXPECT_GT(few.server_cpus_tcp, few.server_cpus_rdma);
  EXPECT_EQ(SizingText({}, few, costs, {}).find("nan"), std::string::npos);
}

TEST(Experiments, AllRunAndSayWhatIsComparedWithThePaper) {
  for (const std::string& name : ExperimentNames()) {
    const Experiment experiment = RunExperiment(name, {});
    ASSERT_EQ(experiment.cells.size(), experiment.moments.size());
    EXPECT_GE(experiment.comparisons.size(), 3u) << name;
    for (const auto& moments : experiment.moments) {
      ASSERT_GT(moments.size(), 50u) << name;
      for (const Moment& moment : moments) {
        EXPECT_TRUE(std::isfinite(moment.p99_s) && moment.p99_s >= moment.p50_s) << name;
        EXPECT_GE(moment.cell.read_bytes_per_s, 0) << name;
      }
    }
    EXPECT_NE(ExperimentText(experiment).find("figure " + experiment.figure), std::string::npos);
  }
  // Each is bounded by what its consumers can use.
  const auto most = [](const Experiment& e, auto&& of) {
    double most = 0;
    for (const Moment& m : e.moments.back()) most = std::max(most, static_cast<double>(of(m)));
    return most;
  };
  const auto gbps = [](const Moment& m) { return m.cell.read_bytes_per_s * 8 / 1e9; };
  const Experiment backlog = RunExperiment("2c", {});
  const double calm = gbps(backlog.moments[0].back());
  EXPECT_NEAR(most(backlog, gbps), 2 * calm, calm / 20) << "the cap";
  // The busiest server below its trigger, and not twice as many as that takes.
  const double servers = most(backlog, [](const Moment& m) { return m.cell.data_servers; });
  EXPECT_GT(servers, 2 * calm / 4);
  EXPECT_LT(servers, 2 * calm / 4 * 1.4);
  EXPECT_GT(most(backlog, [](const Moment& m) { return m.cell.behind_s; }), 400);
  // Who is further behind is so for longer.
  Assumptions near;
  near.behind_s = 20;
  const auto behind_moments = [&](const Assumptions& assumptions) {
    const Experiment spike = RunExperiment("1b", assumptions);
    return std::count_if(spike.moments[0].begin(), spike.moments[0].end(),
                         [](const Moment& m) { return m.cell.behind_share > 0; });
  };
  EXPECT_GT(behind_moments({}), 2 * behind_moments(near));
  // What the cells of a path take adds up: four overloaded ones more than the last alone.
  EXPECT_GE(most(RunExperiment("1c", {}), [](const Moment& m) { return m.p99_s; }),
            most(RunExperiment("1b", {}), [](const Moment& m) { return m.p99_s; }));
  // As many consumers as there.
  EXPECT_EQ(RunExperiment("1a", {}).moments[0].back().cell.consumers, 7950);
  EXPECT_EQ(RunExperiment("2a", {}).moments[0].back().cell.consumers, 20'000);
}

}  // namespace
}  // namespace tailcast::scale
