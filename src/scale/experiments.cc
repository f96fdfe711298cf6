#include "tailcast/scale/experiments.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast::scale {
namespace {

constexpr double kStep = 0.25;  // seconds
constexpr double kMegabit = 1e6 / 8;
constexpr double kGigabit = 1e9 / 8;
constexpr int kStreams = 2;
constexpr int kShards = kStreams * 120;

// What is done to the last cell, or to each of them.
struct Script {
  double length_s = 0;
  double shown_every_s = 5;
  double warm_up_s = 0;  // not shown
  std::function<void(double time_s, double step_s, CellModel&)> act;
};

// "At this time", once.
bool At(double when_s, double time_s, double step_s) {
  return time_s >= when_s && time_s < when_s + step_s;
}

struct Path {
  Path(Experiment& to_fill, const Assumptions& chosen, const CellSetup& setup, double poll_s)
      : experiment(to_fill), assumptions(chosen), poll(poll_s) {
    for (size_t i = 0; i < experiment.cells.size(); ++i) {
      cells.emplace_back(setup);
      experiment.moments.emplace_back();
    }
  }

  void Run(const Script& script) {
    double shown = -1;
    for (double t = -script.warm_up_s; t < script.length_s; t += kStep) {
      std::vector<CellSample> samples;
      for (CellModel& cell : cells) {
        script.act(t, kStep, cell);
        samples.push_back(cell.Step(kStep));
      }
      if (t < 0 || (shown >= 0 && t - shown < script.shown_every_s)) continue;
      shown = t;
      for (size_t i = 0; i < cells.size(); ++i) {
        const DelaySpread delay = DelayAt(samples, i);
        experiment.moments[i].push_back({.time_s = t,
                                         .cell = samples[i],
                                         .p50_s = delay.Percentile(50),
                                         .p99_s = delay.Percentile(99)});
      }
    }
  }

  // Of what is delivered in cell `at` now: through all cells before it as they are now. The cells
  // of an experiment are the last ones of the path.
  DelaySpread DelayAt(const std::vector<CellSample>& samples, size_t at) const {
    const size_t hops = assumptions.links_s.size();
    const size_t before = hops + 1 - samples.size();  // cells that nothing happens to
    DelaySpread delay;
    delay.AddUpTo(assumptions.flush_s);
    delay.AddConstant(assumptions.publish_s);
    for (size_t hop = 0; hop < before + at; ++hop) {
      delay.AddUpTo(assumptions.reader_look_s);
      delay.AddConstant(assumptions.links_s[hop] + assumptions.hop_s);
      // A writer's bytes are there when they have been written.
      if (hop + 1 >= before) AddCell(delay, samples[hop + 1 - before]);
    }
    if (before == 0) AddCell(delay, samples[0]);
    const CellSample& here = samples[at];
    delay.AddUpTo(std::max(poll, here.round_s));
    delay.AddConstant(assumptions.read_s + std::max(0.0, here.round_s - poll));
    delay.AddConstant(here.lag_s);
    return delay;
  }
  static void AddCell(DelaySpread& delay, const CellSample& cell) {
    delay.AddConstant(std::min(cell.write_s, 1.0));
    if (cell.late_share > 0) delay.AddMaybe(std::min(1.0, cell.late_share), 1.0);
  }

  Experiment& experiment;
  const Assumptions& assumptions;
  const double poll;
  std::vector<CellModel> cells;
};

ShardFlow Flow(const Assumptions& assumptions, double stream_mbps) {
  return {.bytes_per_s = stream_mbps * kMegabit / kShards,
          .message_bytes = assumptions.message_bytes,
          .flush_s = assumptions.flush_s};
}

CellSetup First(const Assumptions& assumptions) {
  CellSetup setup;
  setup.flow = Flow(assumptions, 240);
  setup.shards = kShards;
  setup.shards_per_consumer = kStreams * 4;
  setup.poll_s = 0.1;
  setup.data_servers = 9;
  setup.metadata_servers = 6;
  setup.limits = assumptions.servers;
  setup.read_s = assumptions.read_s;
  return setup;
}

CellSetup Second(const Assumptions& assumptions) {
  CellSetup setup = First(assumptions);
  setup.flow = Flow(assumptions, 480);
  setup.shards_per_consumer = kStreams * 20;
  setup.poll_s = 0.5;
  setup.data_servers = 18;
  setup.autoscaler.on = true;
  return setup;
}

double Most(const std::vector<Moment>& moments, const std::function<double(const Moment&)>& of,
            double from_s = 0, double to_s = 1e18) {
  double most = 0;
  for (const Moment& moment : moments) {
    if (moment.time_s >= from_s && moment.time_s <= to_s) most = std::max(most, of(moment));
  }
  return most;
}
double P99(const Moment& m) { return m.p99_s; }
double Gbps(const Moment& m) { return m.cell.read_bytes_per_s / kGigabit; }
double MillionReads(const Moment& m) { return m.cell.reads_per_s / 1e6; }
double MillionValueReads(const Moment& m) { return m.cell.value_reads_per_s / 1e6; }
double Fallbacks(const Moment& m) { return m.cell.fallbacks_per_s; }
double DataServers(const Moment& m) { return m.cell.data_servers; }
double MetadataServers(const Moment& m) { return m.cell.metadata_servers; }

// For how long the p99 was above what it is at the end by more than a half.
double SlowFor(const std::vector<Moment>& moments) {
  const double calm = moments.back().p99_s;
  double first = -1, last = -1;
  for (const Moment& moment : moments) {
    if (moment.p99_s <= calm * 1.5) continue;
    if (first < 0) first = moment.time_s;
    last = moment.time_s;
  }
  return first < 0 ? 0 : last - first;
}

double BehindNow(const Moment& m) { return m.cell.behind_s; }
// From when to when somebody had a backlog.
double BehindFor(const std::vector<Moment>& moments) {
  double first = -1, last = -1;
  for (const Moment& moment : moments) {
    if (moment.cell.behind_share == 0) continue;
    if (first < 0) first = moment.time_s;
    last = moment.time_s;
  }
  return first < 0 ? 0 : last - first;
}

constexpr char kAgree[] =
    "further replicas are asked only when one has too little, which calm ones have not";
constexpr char kUneven[] = "the busiest of so many has a fifth more to do than the mean one";
constexpr char kLengths[] =
    "a value holds the lengths of both files of eight pairs, and two answers make it complete; "
    "there, four keys are read of three replicas each";
constexpr char kFlush[] = "no 25 ms of I/O for each hop, and data and index are flushed together";
constexpr char kTurns[] =
    "who keeps up waits for one turn of those behind, not for all of them, and writes have "
    "connections of their own; what network cards and switches queue is not in the model";

Experiment Ramp(const Assumptions& assumptions) {
  Experiment e{.name = "1a",
               .figure = "8",
               .title = "1,500 consumers become 7,950, five every five seconds",
               .cells = {"asia-east"},
               .moments = {},
               .comparisons = {}};
  Path path(e, assumptions, First(assumptions), 0.1);
  path.Run({.length_s = 6475,  // of which the last 25 s with all of them
            .shown_every_s = 25,
            .warm_up_s = 60,
            .act = [](double t, double step, CellModel& cell) {
              if (At(-60, t, step)) cell.SetConsumers(1500, 0);
              if (t > 0) cell.SetConsumers(1500 + 5 * std::floor(t / 5), 0);
            }});
  const auto& m = e.moments.back();
  e.comparisons = {
      {"reads of the data cache, peak", "70", Most(m, Gbps), "Gbit/s", ""},
      {"reads of the data cache, peak", "4.5", Most(m, MillionReads), "million/s", kAgree},
      {"p99, most, whatever the number of consumers", "0.5", Most(m, P99), "s", kFlush},
      {"reads of the primary layer", "0", Most(m, Fallbacks), "1/s", ""}};
  return e;
}

Experiment Spike(const Assumptions& assumptions) {
  Experiment e{.name = "1b",
               .figure = "9",
               .title = "4,000 consumers at once",
               .cells = {"asia-east"},
               .moments = {},
               .comparisons = {}};
  Path path(e, assumptions, First(assumptions), 0.1);
  path.Run({.length_s = 300,
            .shown_every_s = 0.5,
            .warm_up_s = 0,
            .act = [&](double t, double step, CellModel& cell) {
              if (At(30, t, step)) cell.SetConsumers(4000, assumptions.behind_s);
            }});
  const auto& m = e.moments.back();
  e.comparisons = {{"reads of the data cache, peak", "4.7", Most(m, MillionReads), "million/s",
                    "the servers' bandwidth is reached first: who is behind reads whole chunks"},
                   {"p99 of who keeps up, more than calm", "about 1", Most(m, P99) - m.back().p99_s,
                    "s", kTurns},
                   {"who came is behind for", "150", BehindFor(m), "s",
                    "how much they have to catch up with is an assumption (--behind)"},
                   {"reads of the primary layer, most", "many", Most(m, Fallbacks), "1/s", kTurns}};
  return e;
}

Experiment SpikeOfAllHops(const Assumptions& assumptions) {
  Experiment e{.name = "1c",
               .figure = "10",
               .title = "4,000 consumers at once in each of four cells in a row",
               .cells = {"source", "hop 1", "hop 2", "hop 3"},
               .moments = {},
               .comparisons = {}};
  Path path(e, assumptions, First(assumptions), 0.1);
  path.Run({.length_s = 300,
            .shown_every_s = 0.5,
            .warm_up_s = 0,
            .act = [&](double t, double step, CellModel& cell) {
              if (At(30, t, step)) cell.SetConsumers(4000, assumptions.behind_s);
            }});
  const auto& m = e.moments.back();
  e.comparisons = {{"p99 in the last cell, calm", "below 0.6", m.back().p99_s, "s", ""},
                   {"p99 in the last cell, most", "1.8", Most(m, P99), "s", kTurns},
                   {"reads of the primary layer, most", "some", Most(m, Fallbacks), "1/s", kTurns}};
  return e;
}

Experiment LostServers(const Assumptions& assumptions) {
  Experiment e{.name = "1d",
               .figure = "11",
               .title = "4,000 consumers; one cache server killed, then two at once",
               .cells = {"asia-east"},
               .moments = {},
               .comparisons = {}};
  Path path(e, assumptions, First(assumptions), 0.1);
  path.Run({.length_s = 240,
            .shown_every_s = 0.5,
            .warm_up_s = 60,
            .act = [&](double t, double step, CellModel& cell) {
              if (At(-60, t, step)) cell.SetConsumers(4000, 0);
              if (At(60, t, step)) cell.LoseServers(1, assumptions.server_restart_s);
              if (At(150, t, step)) cell.LoseServers(2, assumptions.server_restart_s);
            }});
  const auto& m = e.moments.back();
  e.comparisons = {
      {"one killed: reads of the primary layer", "0", Most(m, Fallbacks, 0, 140), "1/s", ""},
      {"two killed: reads of the primary layer", "60,000", Most(m, Fallbacks, 150), "1/s",
       "a chunk is served while one of its three has it; only those are late whose new writes find "
       "one of three. No spare servers stand by, as there"},
      {"two killed: p99, most", "2", Most(m, P99, 150), "s", "a second for Algorithm 1, as there"}};
  return e;
}

Experiment SmoothScaling(const Assumptions& assumptions) {
  Experiment e{.name = "2a",
               .figure = "12",
               .title = "1,000 consumers become 20,000, fifty every ten seconds; servers are added",
               .cells = {"leaf"},
               .moments = {},
               .comparisons = {}};
  Path path(e, assumptions, Second(assumptions), 0.5);
  path.Run({.length_s = 4200,
            .shown_every_s = 10,
            .warm_up_s = 120,
            .act = [](double t, double step, CellModel& cell) {
              if (At(-120, t, step)) cell.SetConsumers(1000, 0);
              if (t > 0) cell.SetConsumers(std::min(20e3, 1000 + 50 * std::floor(t / 10)), 0);
            }});
  const auto& m = e.moments.back();
  e.comparisons = {{"reads of the data cache, peak", "1,800", Most(m, Gbps), "Gbit/s", kAgree},
                   {"data servers at the end", "481", DataServers(m.back()), "", kUneven},
                   {"metadata servers at the end", "81", MetadataServers(m.back()), "", kLengths},
                   {"reads of the metadata cache, peak", "19.2", Most(m, MillionValueReads),
                    "million/s", kLengths},
                   {"p99, most", "below 2.5", Most(m, P99), "s",
                    "while a ring changes the old servers go on, so that nothing is unavailable"}};
  return e;
}

Experiment AbruptScaling(const Assumptions& assumptions) {
  Experiment e{.name = "2b",
               .figure = "13",
               .title = "6,500 consumers at once; servers are added",
               .cells = {"leaf"},
               .moments = {},
               .comparisons = {}};
  Path path(e, assumptions, Second(assumptions), 0.5);
  path.Run({.length_s = 1800,
            .shown_every_s = 2,
            .warm_up_s = 0,
            .act = [](double t, double step, CellModel& cell) {
              if (At(60, t, step)) cell.SetConsumers(6500, 0);
            }});
  const auto& m = e.moments.back();
  e.comparisons = {
      {"reads of the data cache, peak", "645", Most(m, Gbps), "Gbit/s",
       "who fell behind while there were too few servers catches up as fast as he can"},
      {"reads of the metadata cache, peak", "6.24", Most(m, MillionValueReads), "million/s",
       kLengths},
      {"data servers, most", "406", Most(m, DataServers), "",
       "the model's autoscaler adds once what the busiest server's load asks for"},
      {"data servers at the end", "171", DataServers(m.back()), "", ""},
      {"metadata servers, most", "29", Most(m, MetadataServers), "", kLengths},
      {"reads of the primary layer, most", "300,000", Most(m, Fallbacks), "1/s",
       "it gives 20 GB/s, an assumption, and these are large"},
      {"p99, most", "above 3", Most(m, P99), "s",
       "what neither servers nor primary layer can give at first"},
      {"p99 above its end's by a half for", "420", SlowFor(m), "s",
       "new servers come when they have started and copied, all at once"}};
  return e;
}

Experiment Backlog(const Assumptions& assumptions) {
  Experiment e{.name = "2c",
               .figure = "14",
               .title =
                   "6,500 consumers, capped at twice their rate; one producer comes back after "
                   "15 minutes",
               .cells = {"leaf"},
               .moments = {},
               .comparisons = {}};
  CellSetup setup = Second(assumptions);
  setup.catch_up_factor = 2;
  setup.data_servers = 171;
  setup.metadata_servers = 19;
  Path path(e, assumptions, setup, 0.5);
  constexpr double kBack = 120, kAway = 900;
  path.Run({.length_s = 1800,
            .shown_every_s = 5,
            .warm_up_s = 60,
            .act = [](double t, double step, CellModel& cell) {
              if (At(-60, t, step)) cell.SetConsumers(6500, 0);
              if (At(0, t, step)) cell.SetRate(0.5);
              if (At(kBack, t, step)) {
                cell.SetRate(1);
                cell.AddBacklog(kAway / kStreams);
              }
            }});
  const auto& m = e.moments.back();
  e.comparisons = {{"reads of the data cache, peak", "1,600", Most(m, Gbps), "Gbit/s",
                    "the cap of 160 Mbit/s for each consumer, and not more"},
                   {"then", "600", Gbps(m.back()), "Gbit/s", ""},
                   {"for so long", "120", BehindFor(m), "s",
                    "450 s of both streams, at what the cap leaves beside what comes"},
                   {"consumers behind, most", "significant", Most(m, BehindNow), "s", ""},
                   {"data servers, most", "184", Most(m, DataServers), "",
                    "an autoscaler that looks every ten seconds answers a peak of minutes"}};
  return e;
}

const std::vector<std::pair<std::string, Experiment (*)(const Assumptions&)>>& All() {
  static const std::vector<std::pair<std::string, Experiment (*)(const Assumptions&)>> all = {
      {"1a", Ramp},          {"1b", Spike},         {"1c", SpikeOfAllHops}, {"1d", LostServers},
      {"2a", SmoothScaling}, {"2b", AbruptScaling}, {"2c", Backlog}};
  return all;
}

}  // namespace

std::vector<std::string> ExperimentNames() {
  std::vector<std::string> names;
  for (const auto& [name, run] : All()) names.push_back(name);
  return names;
}

Experiment RunExperiment(const std::string& name, const Assumptions& assumptions) {
  for (const auto& [known, run] : All()) {
    if (known == name) return run(assumptions);
  }
  TAILCAST_CHECK(false, "no such experiment");
  return {};
}

}  // namespace tailcast::scale
