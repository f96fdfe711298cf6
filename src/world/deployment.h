// A simulated deployment: cells with their disks and caches, processes with their loops and ports,
// the network and the fabric between them; all in one thread and in virtual time. What runs on a
// process is its program (programs.h): the whole node that production runs, or single agents.
//
//   Deployment d({.seed = 7, .cells = {"us", "eu"}});
//   Process& reader = d.Start("us", "reader-1", RunReader({}));
//   d.time().RunFor(Duration::Seconds(1));
//   d.Restart("us", "reader-1");                  // kill -9, and its program anew
//
//   Deployment
//    |- VirtualTime, Network, FakeFabricNetwork   what is on its way belongs to no process
//    '- Cell "us"
//        |- FakeDisk                              the primary layer
//        |- MemoryStore x 2                       the caches, if no servers run them
//        '- Process "reader-1"                    a loop, ports on all of these, agents on those
//
// It misbehaves as faults.h says; oracles.h looks at what it holds.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/step_log.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/cache/server.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/registration.h"
#include "tailcast/cell/registry_store.h"
#include "tailcast/cell/stream_watch.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/fabric/fake_fabric.h"
#include "tailcast/node/node.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/reader/reader_agent.h"
#include "tailcast/scheduler/scheduler_agent.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"
#include "tailcast/storage/fake_store.h"
#include "tailcast/writer/writer_agent.h"

namespace tailcast::world {

struct Process;
// Makes the agents of a process and starts them; runs on the process' loop, as its first event.
using Program = std::function<void(Process&)>;

enum class CacheKind : uint8_t {
  kServers,  // cache servers (processes of the cell) and clients over the fabric
  kMemory,   // a MemoryStore of the cell, whose faults are drawn
};

enum class CacheLayer : uint8_t { kData, kMetadata };

struct DeploymentOptions {
  uint64_t seed = 1;
  std::vector<std::string> cells = {"cell"};
  Duration link_delay = Duration::Millis(30);  // between any two cells, one way
  std::map<std::pair<std::string, std::string>, Duration> link_delays;  // of some: from, to
  Duration link_jitter;  // of each message, also within a cell (a tenth)
  sim::NetworkOptions network;
  CacheKind caches = CacheKind::kMemory;
  int64_t clock_drift_us_per_s = 0;  // at most: of the clocks of each process, drawn by its name
  // Gets each step of each process, in the order in which they happened (base/step_log.h). Does not
  // change the run.
  StepLog::Sink steps;

  Duration DelayOf(const std::string& from, const std::string& to) const {
    const auto own = link_delays.find({from, to});
    return own == link_delays.end() ? link_delay : own->second;
  }
};

// The members stand in the order in which they need each other: agents end before their ports.
struct Process {
  std::string cell, name;
  ProcessIncarnation incarnation = ProcessIncarnation::kNone;  // unique in the deployment
  uint64_t seed = 0;
  Program program;
  std::unique_ptr<StepLog> steps;  // null: not logged
  std::unique_ptr<sim::SimLoop> loop;
  std::unique_ptr<storage::FakeStore> store;
  std::unique_ptr<rpc::Connector> connector;
  std::unique_ptr<fabric::Connector> fabric;
  std::unique_ptr<rpc::Server> server;
  std::function<std::unique_ptr<fabric::Exporter>(const std::string& instance)> make_exporter;
  MetricRegistry metrics;
  std::string address;          // of `server`, once the program has started it
  std::optional<Status> fatal;  // it ended by itself
  bool once = false;            // and then it is not started again
  bool left = false;            // it was asked to end, and may

  // What runs: what the program made of these.
  std::unique_ptr<node::Node> node;
  std::unique_ptr<cache::Client> data_cache, metadata_cache;
  std::unique_ptr<cell::CellClient> cell_client;
  std::unique_ptr<fabric::Exporter> data_exporter, metadata_exporter;
  std::unique_ptr<cache::Server> data_server, metadata_server;
  std::unique_ptr<cell::RegistryStore> registry;
  std::unique_ptr<scheduler::SchedulerAgent> scheduler;
  std::unique_ptr<reader::ReaderAgent> reader;
  std::unique_ptr<writer::WriterAgent> writer;
  std::unique_ptr<producer::ProducerAgent> producer;
  std::unique_ptr<consumer::ConsumerAgent> consumer;
  std::unique_ptr<cell::StreamWatch> stream_watch;   // for those two
  std::unique_ptr<cell::Registration> registration;  // of an agent that is no node
  // Of what the program has bound.
  Scope scope;

  // CELL/NAME.
  std::string full_name() const { return cell + "/" + name; }
  bool IsCache() const { return name.starts_with("cache"); }
  // A user's, not the cell's.
  bool IsClient() const {
    return name.starts_with("producer") || name.starts_with("consumer") ||
           name.starts_with("operator");
  }
  stream::CellPorts ports() {
    return {loop.get(), store.get(), data_cache.get(), metadata_cache.get(), steps.get()};
  }
};

struct Cell {
  std::string name;
  std::unique_ptr<StepLog> steps;  // of the disk
  std::unique_ptr<sim::SimLoop> disk_loop;
  std::unique_ptr<storage::FakeDisk> disk;
  std::unique_ptr<cache::MemoryStore> data, metadata;
  std::map<std::string, std::unique_ptr<Process>> processes;

  cache::MemoryStore& memory(CacheLayer layer) {
    return layer == CacheLayer::kData ? *data : *metadata;
  }
};

class Deployment {
 public:
  explicit Deployment(DeploymentOptions options);
  // kill -9 of everything.
  ~Deployment();
  Deployment(const Deployment&) = delete;
  Deployment& operator=(const Deployment&) = delete;

  const DeploymentOptions& options() const { return options_; }
  const std::vector<std::string>& cell_names() const { return options_.cells; }
  sim::VirtualTime& time() { return time_; }
  sim::Network& network() { return network_; }
  fabric::FakeFabricNetwork& fabric() { return *fabric_; }
  Rng& rng() { return rng_; }
  Cell& cell(const std::string& name) { return *cells_.at(name); }
  // It must run.
  Process& process(const std::string& cell, const std::string& name) {
    return *cells_.at(cell)->processes.at(name);
  }
  std::string SchedulerAddress(const std::string& cell) const { return cell + ":7400"; }

  Process& Start(const std::string& cell, const std::string& name, Program program);
  // kill -9. What it had sent is on its way. Not inside one of its callbacks.
  void Kill(const std::string& cell, const std::string& name);
  // Kills it, and runs its program anew.
  Process& Restart(const std::string& cell, const std::string& name);
  // What an init system does: starts again what ended by itself, unless nobody has installed it
  // (`program`s of processes that are only passing by: StartOnce). Not in a callback.
  void ReviveDead();
  // A process that is not started again when it ends.
  Process& StartOnce(const std::string& cell, const std::string& name, Program program);
  // kill -9, and it stays down until it is raised: the one that went down first, or all.
  void TakeDown(const std::string& cell, const std::string& name);
  void RaiseFirst();
  void Raise(const std::string& cell, const std::string& name);  // if it is down
  void RaiseAll();
  // SIGTERM: a node that ends when others run what it ran. Killed by ReviveDead then, and not
  // started again.
  void AskToEnd(const std::string& cell, const std::string& name);
  // SIGSTOP, and SIGCONT of all that are stopped or of the one that was stopped first.
  void Stop(const std::string& cell, const std::string& name);
  void Continue();
  void ContinueFirst();
  void Continue(const std::string& cell, const std::string& name);  // if it is stopped
  bool AnyStopped() const { return !stopped_.empty(); }

  // What a cache of a cell holds for a key, faults aside.
  struct Copy {
    ProcessIncarnation replica = ProcessIncarnation::kNone;  // of CacheKind::kMemory: none
    std::string bytes;
    uint64_t forgotten = 0;  // values that the replica let go of by itself, whichever they were
  };
  std::vector<Copy> PeekReplicas(const std::string& cell, CacheLayer layer, cache::Key key);
  // The bytes alone.
  std::vector<std::string> PeekCaches(const std::string& cell, CacheLayer layer, cache::Key key);
  // The cache servers of a cell that run, and serve.
  struct CacheServer {
    const Process* process;
    const cache::Server* server;
  };
  std::vector<CacheServer> CacheServers(const std::string& cell, CacheLayer layer);

  // Gets each thing that happens to the deployment, in words.
  using Timeline = std::function<void(MonotonicTime, const std::string&)>;
  void SetTimeline(Timeline say) { say_ = std::move(say); }
  // Sees each process that is killed, as it was; changes nothing.
  void SetOnKill(std::function<void(const Process&)> look) { on_kill_ = std::move(look); }
  void Say(const std::string& text);

 private:
  // Null if steps are not logged.
  std::unique_ptr<StepLog> MakeSteps(const std::string& cell, const std::string& name);
  void Resume(const std::string& cell, const std::string& name);

  const DeploymentOptions options_;
  Rng rng_;
  sim::VirtualTime time_;
  sim::Network network_;
  std::unique_ptr<sim::SimLoop> wire_;
  std::unique_ptr<fabric::FakeFabricNetwork> fabric_;
  std::map<std::string, std::unique_ptr<Cell>> cells_;
  std::vector<std::pair<std::string, std::string>> stopped_;
  struct Down {
    std::string cell, name;
    Program program;
  };
  std::vector<Down> down_;
  int64_t last_stamp_ = 0;
  int step_logs_ = 0;
  ProcessIncarnation last_incarnation_{100};
  Timeline say_;
  std::function<void(const Process&)> on_kill_;  // may be empty
};

}  // namespace tailcast::world
