// A whole deployment in one thread, in virtual time, from one seed: the nodes, agents and cores
// that run in production, over a simulated network, fabric and file system that misbehave as the
// seed draws. What `./dev sim` runs.
//
//   world::World w(world::Options::Swarm(seed));
//   world::Outcome outcome = w.Run();       // workload, faults, healing, checks
//   if (!outcome.ok()) outcome.problem, `./dev sim --seed N` shows it again
//
// A run is a function of (commit, options): equal options give an equal trace_hash in every build.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/world/deployment.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/oracles.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {

// The names of the faults that Options may enable (faults.h).
const std::vector<std::string>& FaultNames();

// Each field says from which range Swarm draws it.
struct Options {
  uint64_t seed = 1;
  std::vector<std::string> cells = {"us-central", "europe-west", "asia-east"};  // a chain
  int caches = 4;                                                               // 3 .. 5
  int readers = 2, writers = 2;                                                 // 1 .. 3
  int consumers = 1;  // of each cell: 1 .. 2
  bool low_latency = true;
  int64_t chunk_size = 4096;                        // 512 .. 4096
  int64_t roll_bytes = 60000;                       // 5,000 .. 200,000; if jumps .. 1.5 million
  int64_t message_bytes_max = 4000;                 // 50 .. 10,000
  Duration link_delay = Duration::Millis(65);       // 1 .. 120 ms
  Duration message_interval = Duration::Millis(5);  // mean, 0.5 .. 20 ms
  int messages = 400;                               // 100 .. 800
  int64_t jump_bytes = 0;  // 8 .. 64 KiB in one of five, with larger files; 0: no cache copy jumps
  // By name; the workload runs while they do. Each in 0.3 to 0.6 of the seeds.
  std::set<std::string> faults;
  // Gets each step of each process, in the order in which they happened (base/step_log.h). Does not
  // change the run.
  StepLog::Sink steps;

  static Options Swarm(uint64_t seed);
};

struct Outcome {
  std::string problem;  // empty: nothing went wrong
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  double virtual_s = 0;
  int64_t delivered = 0;  // messages, of all consumers
  int64_t fallbacks = 0;  // reads of the primary layer by consumers
  int faults = 0;         // disturbances that were set
  bool ok() const { return problem.empty(); }
};

class World {
 public:
  explicit World(Options options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The whole run. Once.
  Outcome Run();
  // Gets a line for each thing that happens to the deployment, with its virtual time.
  void SetTimeline(std::function<void(const std::string&)> say) {
    deployment_.SetTimeline(std::move(say));
  }

 private:
  void StartNodes();
  void AddFaults();
  Fault Reroute();
  bool CreateStream();
  void StartUsers();
  void PublishUnderFaults();
  void PublishNext();
  void AwaitDelivery();
  void AwaitSettledTree();
  void Check();
  // False when there is a problem, if only that the condition did not come about.
  bool Wait(const std::string& what, Duration limit, const std::function<bool()>& condition);
  std::string Progress() const;
  const std::string& source_cell() const { return options_.cells.front(); }

  const Options options_;
  Deployment deployment_;
  Rng rng_;
  Faults faults_;
  v1::StreamConfig stream_;
  Workload load_;
  std::unique_ptr<rpc::Client> operator_;  // of the source cell's scheduler, in producer_'s process
  Workload::Producer* producer_ = nullptr;
  std::optional<Oracles> oracles_;
  std::string problem_;
  Scope scope_;
};

}  // namespace tailcast::world
