#include "tailcast/scale/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tailcast/scale/agents.h"
#include "tailcast/scale/delay.h"
#include "tailcast/scale/reading.h"

namespace tailcast::scale {
namespace {

// Of the profile `default`; cell/profile and the options of the agents have them.
constexpr double kFlush = 0.1, kPoll = 0.1, kLook = 0.05;
// Flushes and looks have one phase in a run; fleets have all of them.
constexpr uint64_t kSeeds = 3, kOwnSeeds = 100;

double Seconds(Duration d) { return static_cast<double>(d.micros()) / 1e6; }

// The mean of runs that differ in their phases.
Result<Observed> ObserveMany(AgentSetup setup, uint64_t seeds_from = 1) {
  Observed sum;
  for (uint64_t seed = seeds_from; seed < seeds_from + kSeeds; ++seed) {
    setup.seed = seed;
    TAILCAST_ASSIGN_OR_RETURN(const Observed one, Observe(setup));
    for (double Observed::*what :
         {&Observed::value_reads, &Observed::chunk_reads, &Observed::wider_reads,
          &Observed::payload_bytes, &Observed::read_bytes, &Observed::fallbacks,
          &Observed::chunk_writes, &Observed::length_writes}) {
      sum.*what += one.*what / static_cast<double>(kSeeds);
    }
    sum.delay_us.Merge(one.delay_us);
  }
  return sum;
}

double FlushOf(const AgentSetup& setup) {
  if (setup.low_latency) {  // each message, as long as they are further apart than a flush takes
    return static_cast<double>(setup.message_bytes) / static_cast<double>(setup.bytes_per_s);
  }
  return setup.flush > Duration() ? Seconds(setup.flush) : kFlush;
}
double PollOf(const AgentSetup& setup) {
  if (setup.low_latency) return 0;
  return setup.poll > Duration() ? Seconds(setup.poll) : kPoll;
}

std::string Words(const AgentSetup& setup) {
  char words[160];
  std::snprintf(words, sizeof words, "%d consumers, %d hops, %lld KB/s in %lld B, %s",
                setup.consumers, setup.cells - 1, static_cast<long long>(setup.bytes_per_s / 1000),
                static_cast<long long>(setup.message_bytes),
                setup.low_latency
                    ? "doorbells"
                    : ("polls of " +
                       std::to_string(static_cast<int>(std::lround(PollOf(setup) * 1000))) + " ms")
                          .c_str());
  return words;
}

DelaySpread ModelDelay(const AgentSetup& setup, const OwnTimes& own) {
  const PathTimes times{.flush_s = setup.low_latency ? 0 : FlushOf(setup),
                        .publish_s = own.publish_and_read_s,
                        .look_s = setup.low_latency ? 0 : kLook,
                        .hop_s = own.hop_s,
                        .poll_s = PollOf(setup),
                        .read_s = 0};
  return PathDelay(times,
                   std::vector<double>(static_cast<size_t>(setup.cells - 1), Seconds(setup.link)));
}

}  // namespace

Result<OwnTimes> MeasureOwnTimes() {
  AgentSetup one;
  one.low_latency = true;
  TAILCAST_ASSIGN_OR_RETURN(const Observed near, ObserveMany(one, kOwnSeeds));
  AgentSetup two = one;
  two.cells = 2;
  TAILCAST_ASSIGN_OR_RETURN(const Observed far, ObserveMany(two, kOwnSeeds));
  OwnTimes own;
  own.publish_and_read_s = near.delay_us.Mean() / 1e6;
  own.hop_s = std::max(0.0, (far.delay_us.Mean() - near.delay_us.Mean()) / 1e6 - Seconds(two.link));
  return own;
}

Result<std::vector<Calibrated>> Calibrate() {
  TAILCAST_ASSIGN_OR_RETURN(const OwnTimes own, MeasureOwnTimes());
  const AgentSetup setups[] = {
      {.consumers = 8},
      {.shards = 4, .consumers = 64},
      {.consumers = 8, .bytes_per_s = 250'000},
      {.consumers = 8, .bytes_per_s = 125'000, .poll = Duration::Millis(500)},
      {.consumers = 8,
       .message_bytes = 200,
       .flush = Duration::Millis(20),
       .poll = Duration::Millis(20)},
      {.cells = 2, .consumers = 8, .low_latency = true},
      {.cells = 4, .consumers = 8},
      {.cells = 4, .shards = 4, .consumers = 64, .bytes_per_s = 125'000},
      {.cells = 4, .consumers = 8, .low_latency = true},
  };
  std::vector<Calibrated> all;
  for (const AgentSetup& setup : setups) {
    TAILCAST_ASSIGN_OR_RETURN(const Observed agents, ObserveMany(setup));
    const ShardFlow flow{.bytes_per_s = static_cast<double>(setup.bytes_per_s),
                         .message_bytes = static_cast<double>(setup.message_bytes),
                         .flush_s = FlushOf(setup),
                         .rings = setup.cells > 1 ? 4.0 : 1.0};
    const Reading reading = ReadingOf(flow, PollOf(setup));
    const Writing writing = WritingOf(flow);
    const DelaySpread delay = ModelDelay(setup, own);
    const std::string words = Words(setup);
    const auto add = [&](const char* what, const char* unit, double of_agents, double of_model) {
      all.push_back({words, what, unit, of_agents, of_model});
    };
    add("reads of lengths", "1/s", agents.value_reads, reading.value_reads);
    add("reads of chunks", "1/s", agents.chunk_reads, reading.chunk_reads);
    add("bytes read", "B/s", agents.read_bytes, reading.read_bytes);
    add("writes of chunks", "1/s", agents.chunk_writes, writing.chunk_writes);
    add("writes of lengths", "1/s", agents.length_writes, writing.length_writes);
    add("delay, median", "ms", static_cast<double>(agents.delay_us.Percentile(50)) / 1e3,
        delay.Percentile(50) * 1e3);
    add("delay, p99", "ms", static_cast<double>(agents.delay_us.Percentile(99)) / 1e3,
        delay.Percentile(99) * 1e3);
  }
  return all;
}

}  // namespace tailcast::scale
