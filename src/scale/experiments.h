// The paper's Experiments 1 and 2 (§4.1, §4.2), with as many consumers as there: what tailcast
// would do, beside what the paper says that Fast ACS did (figures 8 to 14).
//
// As there: rates, shards, servers, intervals of polls, what triggers an autoscaler. What the paper
// does not say is in Assumptions, and can be changed.
#pragma once

#include <string>
#include <vector>

#include "tailcast/scale/cell_model.h"
#include "tailcast/scale/delay.h"

namespace tailcast::scale {

struct Assumptions {
  // The triggers are the paper's. Its nine servers gave 4.7 million reads/s when they gave no more,
  // the busiest of them a little above a ninth, and 70 Gbit/s with ease.
  ServerLimits servers;
  double message_bytes = 1000;
  double flush_s = 0.1;         // of the producers: those of the profile `default`
  double reader_look_s = 0.05;  // the paper's
  double behind_s = 60;  // where consumers begin who come at once in 1: with all that caches keep
  double server_restart_s = 15;  // a killed cache server's: its rest, and copying
  std::vector<double> links_s = {0.1, 0.03, 0.05};  // one way, of three hops; the paper: 180 ms
  double publish_s = 0.0006, hop_s = 0.0005, read_s = 0.0005;  // without what is waited for
};

// One moment of a cell.
struct Moment {
  double time_s = 0;
  CellSample cell;
  double p50_s = 0, p99_s = 0;  // from Publish to the hand of a consumer that keeps up
};

// What the paper's text says, and the same of the model's run.
struct Comparison {
  std::string what;
  std::string paper;
  double ours = 0;
  std::string unit;
  std::string why;  // we differ
};

struct Experiment {
  std::string name;    // "1a"
  std::string figure;  // "8"
  std::string title;
  std::vector<std::string> cells;  // of the path that are shown; the last one has consumers
  std::vector<std::vector<Moment>> moments;  // of each of them
  std::vector<Comparison> comparisons;
};

std::vector<std::string> ExperimentNames();
// InvalidArgument is left to the caller: `name` is one of ExperimentNames. Some seconds of CPU
// time.
Experiment RunExperiment(const std::string& name, const Assumptions& assumptions);

}  // namespace tailcast::scale
