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
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/world/deployment.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/oracles.h"
#include "tailcast/world/programs.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {

// The names of the faults that Options may enable (faults.h).
const std::vector<std::string>& FaultNames();

class World;

// What a scenario does at a time of its own, which counts from when all producers are open.
struct PlannedEvent {
  Duration at;
  std::function<void(World&)> apply;
};

// Each field says from which range Swarm draws it: what is tunable, from its extremes.
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
  int spares = 0;                                   // further caches, in no ring yet: 1 if "ring"
  int shards = 1;                                   // of the stream: 1 .. 3
  int64_t cache_bytes = 8 << 20;                    // 1 .. 8 MiB: small ones evict
  Duration link_delay = Duration::Millis(65);       // 1 .. 120 ms
  Duration link_jitter;                             // 0 .. twice the delay
  int64_t stream_window_bytes = 4 << 20;            // 16 KiB .. 4 MiB
  Duration broken_after = Duration::Seconds(15);    // 1 .. 15 s
  Duration message_interval = Duration::Millis(5);  // mean, 0.5 .. 20 ms
  int messages = 400;                               // 100 .. 800
  // No fault is drawn: `plan`, in the order of its times, is what happens, and `faults` says which
  // of them it has; a message is published every `message_interval`.
  bool scripted = false;
  std::vector<PlannedEvent> plan;
  int64_t message_bytes_min = 1;
  std::map<std::pair<std::string, std::string>, Duration> link_delays;  // from, to: not as others
  int64_t clock_drift_us_per_s = 0;  // at most, of each process: 10 .. 5000 in half of "clock"
  int64_t jump_bytes = 0;  // 8 .. 64 KiB in one of five, with larger files; 0: no cache copy jumps
  // By name (FaultNames); the workload runs while they do. Each is in 0.15 to 0.6 of the seeds.
  std::set<std::string> faults;
  bool Has(const std::string& fault) const { return faults.contains(fault); }
  // Messages may end as failed or unknown: the source's disk is not sound.
  bool MayFail() const { return Has("disk") || Has("power"); }
  // Gets each step of each process, in the order in which they happened (base/step_log.h). Does not
  // change the run.
  StepLog::Sink steps;

  // No cache server dies, forgets or is out of reach.
  bool CachesAreSound() const;

  static Options Swarm(uint64_t seed);
  // One shard, an even network, large caches; of the faults those that the models speak of.
  Options Plain() const;
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
  // Gets each thing that happens to the deployment, in words.
  void SetTimeline(Deployment::Timeline say) { deployment_.SetTimeline(std::move(say)); }
  // Called again and again while it runs; changes nothing.
  void SetLook(std::function<void()> look) { look_ = std::move(look); }

  const Options& options() const { return options_; }
  Deployment& deployment() { return deployment_; }
  int shards() const { return static_cast<int>(lines_.size()); }
  const Workload& load(int shard) const { return lines_[static_cast<size_t>(shard)]->load; }
  // When all producers were open; nullopt: before.
  std::optional<MonotonicTime> began() const { return began_; }

  // What befalls its users, and what its operator does; each says so. While it runs.

  // kill -9, and another one in its place, which takes over or waits until the old one is known to
  // be dead. One that does not publish yet is left alone.
  void KillProducer(int shard);
  // The full name of the one that lives.
  std::string ProducerName(int shard) const;
  // kill -9; it resumes where it had saved its position.
  void KillConsumer(int shard, size_t index);
  // So many more of each shard, from the beginning on. Says nothing: they may be many.
  void AddConsumers(const std::string& cell, int count);
  void ChangeRing(const std::string& cell, const std::vector<std::string>& members);
  using Edge = std::pair<std::string, std::string>;  // from, to
  void ChangeTree(const std::vector<Edge>& edges);
  void Trim(int shard, int64_t before_byte);
  void Retain(const v1::Retention& retention);
  void SecondScheduler(const std::string& cell);

 private:
  // A shard of the stream with its users.
  struct Line {
    Line(Deployment& deployment, const std::string& suffix) : load(deployment, {}, suffix) {}
    Workload load;
    Workload::Producer* producer = nullptr;  // the one that lives
    int64_t published = 0;                   // by all of them
    int64_t floor = 1;                       // that an answered trim named
    std::optional<Oracles> oracles;
  };

  void StartNodes();
  void AddFaults();
  Fault Reroute();
  Fault ProducerDies();
  Fault ConsumerDies();
  Fault RingChanges();
  Fault OtherStreams();
  void CreateOther(const std::string& name, const std::string& cell);
  Fault Trims();
  Fault Retains();
  // Consumers that retention has passed are told so, and go on behind what is kept no more.
  void GoOnBehindFloors(Line& line);
  NodeSetup Setup() const;
  Program SecondSchedulerProgram();
  consumer::AgentOptions SubscriberOptions() const;
  bool CreateStream();
  void StartUsers();
  void PublishUnderFaults();
  void FollowPlan();
  bool AllPublished() const;
  void RunFor(Duration d);  // and looks
  void PublishNext(Line& line);
  // Who died and is ready again goes on.
  void Revive();
  bool ProducersAreOpen();
  void AwaitDelivery();
  void AwaitSettledTree();
  void AwaitTrim();
  void AwaitRetention();
  void AwaitQuiet();
  void Check();
  // False when there is a problem, if only that the condition did not come about.
  bool Wait(const std::string& what, Duration limit, const std::function<bool()>& condition);
  std::string Progress() const;
  std::vector<const Process*> Users() const;
  void Ask(const std::string& cell, const char* method, const std::string& request,
           std::function<void(const Result<std::string>&)> then);
  producer::AgentOptions PublisherOptions() const;
  const std::string& source_cell() const { return options_.cells.front(); }

  const Options options_;
  Deployment deployment_;
  Rng rng_;
  Faults faults_;
  Rng looks_;  // when the oracles look
  v1::StreamConfig stream_;
  std::vector<std::unique_ptr<Line>> lines_;
  Process* operator_ = nullptr;
  std::map<std::string, std::unique_ptr<rpc::Client>> operator_clients_;  // by cell
  int others_ = 0;                                   // streams that come and go
  std::map<std::string, std::string> others_there_;  // to be deleted some time, in which cell
  std::set<std::string> doomed_;                     // whose deletion was asked for
  std::set<std::string> created_, deleted_;          // as was acknowledged
  std::set<std::string> unclear_;                    // what becomes of them is not
  std::optional<int64_t> retained_;                  // bytes; as was answered last
  std::string problem_;
  std::function<void()> look_;
  std::optional<MonotonicTime> began_;
  Scope scope_;
};

}  // namespace tailcast::world
