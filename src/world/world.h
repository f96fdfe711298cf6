// A whole deployment in one thread, in virtual time, from one seed: the nodes, agents and cores
// that run in production, over a simulated network, fabric and file system that misbehave as the
// seed draws.
//
//   world::World w(world::Options::Swarm(seed));
//   world::Outcome outcome = w.Run();       // workload, faults, healing, checks
//   if (!outcome.ok()) outcome.problem, `./dev sim --seed N` shows it again
//
// A run is a function of (commit, options): equal options give an equal trace_hash in every build.
//
// The oracle (design rules "in order", "progress"): what each consumer got is at any moment a
// prefix of what was published, no position twice; once everything is healed, each consumer gets
// all of it within a virtual deadline.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/step_log.h"
#include "tailcast/cell/topology.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/fabric/fake_fabric.h"
#include "tailcast/node/node.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::world {

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
  // Faults; the workload runs while they do.
  bool kills = false, pauses = false, partitions = false, bad_fabric = false, bad_disks = false,
       slow_peers = false, reroutes = false;
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
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The whole run. Once.
  Outcome Run();
  // Gets a line for each thing that happens to the deployment, with its virtual time.
  void SetTimeline(std::function<void(const std::string&)> say) { say_ = std::move(say); }

 private:
  struct Process;
  struct Client;
  struct Cell;

  void StartProcess(const std::string& cell, const std::string& name);
  void KillProcess(const std::string& cell, const std::string& name);
  void ReviveDead();
  std::unique_ptr<Client> MakeClient(const std::string& cell, const std::string& name);
  void StartEnds();
  void PublishNext();
  void Collect();
  void Disturb();
  void Heal();
  void Say(const std::string& text);
  bool Wait(const std::string& what, Duration limit, const std::function<bool()>& condition);
  std::string SchedulerAddress(const std::string& cell) const { return cell + ":7400"; }
  // Null if steps are not logged.
  std::unique_ptr<StepLog> MakeSteps(const std::string& cell, const std::string& name);

  const Options options_;
  Rng rng_;
  sim::VirtualTime time_;
  sim::Network network_;
  std::unique_ptr<sim::SimLoop> wire_;
  std::unique_ptr<fabric::FakeFabricNetwork> fabric_;
  cell::Topology topology_;
  std::map<std::string, std::unique_ptr<Cell>> cells_;
  std::vector<std::pair<std::string, std::string>> paused_;
  std::unique_ptr<Client> source_;
  std::vector<std::unique_ptr<Client>> sinks_;
  std::vector<std::string> published_;
  int64_t durable_ = 0;
  v1::StreamConfig stream_;
  int faults_ = 0;
  int64_t last_stamp_ = 0;
  int step_logs_ = 0;
  std::string problem_;
  std::function<void(const std::string&)> say_;
};

}  // namespace tailcast::world
