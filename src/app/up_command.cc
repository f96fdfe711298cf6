// tailcast up: a whole deployment on this machine. Each cell is a folder and a set of processes;
// the links between cells are delayed as the topology says.
//
//   DIR/deployment.json         where the cells are (deployment.h)
//   DIR/lock                    held while it runs
//   DIR/workers.json            how many readers and writers, where that was changed (worker_counts.h)
//   DIR/CELL/cell.key           what its processes and clients prove to have; only this user reads it
//   DIR/CELL/store              the cell's primary layer; a process opens only its own cell's
//   DIR/ceph, DIR/ceph.log      with --storage ceph: the cluster that has them all, a pool for each
//   DIR/CELL/config/NAME.yaml   configuration of each process, and the topology
//   DIR/CELL/log/NAME.log       what each process said
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/app/cell_addresses.h"
#include "tailcast/app/cell_session.h"
#include "tailcast/app/ceph_cluster.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/file_lock.h"
#include "tailcast/app/made_streams.h"
#include "tailcast/app/supervisor.h"
#include "tailcast/app/worker_counts.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/link_table.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/cell/topology.h"
#include "tailcast/cell/yaml_reader.h"
#include "tailcast/fabric/cell_key.h"
#include "tailcast/inspect/cache_room.h"
#include "tailcast/link/link_proxy.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/storage/open_store.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::app {
namespace {

// A chain of three cells, as distances and prices make it: the cheapest tree relays in Europe. The
// third link is there for a re-route.
constexpr char kDefaultTopology[] = R"(version: 1
clusters:
  - {name: us-central}
  - {name: europe-west}
  - {name: asia-east}
links:
  - {from: us-central, to: europe-west, usd_per_gb: 0.02, rtt_ms: 130, bandwidth_gbps: 10, both: true}
  - {from: europe-west, to: asia-east, usd_per_gb: 0.05, rtt_ms: 220, bandwidth_gbps: 10, both: true}
  - {from: us-central, to: asia-east, usd_per_gb: 0.08, rtt_ms: 180, bandwidth_gbps: 10, both: true}
streams:
  - {name: flights, source: us-central}
)";

struct UpOptions {
  std::string dir;
  std::string topology;
  std::string profile = "standard";
  std::string durability = "durable";
  std::string data_cache_bytes = "64MB";
  std::string repair_bytes_per_s = "25MB";
  std::string cache;              // "memcached:..."; empty: cache processes of its own
  std::string storage = "posix";  // or "ceph", or "ceph:CONF"
  std::string fabric_rdma = "auto";
  int caches = 4, spares = 0;
  std::optional<int> readers, writers;
  double ready_s = 30;
};

constexpr int kWorkersDefault = 2;  // readers of a cell, and writers
// A worker that leaves ends by itself within 10 s (node/leaving.h).
constexpr Duration kRetireGrace = Duration::Seconds(20);

void Say(const std::string& text) { std::fprintf(stderr, "tailcast up: %s\n", text.c_str()); }

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) return ErrnoStatus(errno != 0 ? errno : EIO, "write " + path);
  return OkStatus();
}

class Up {
 public:
  explicit Up(UpOptions options) : options_(std::move(options)), supervisor_(Say) {}

  Status Prepare() {
    if (options_.dir.empty()) return InvalidArgumentError("--dir: name a folder");
    std::error_code error;
    options_.dir = std::filesystem::absolute(options_.dir, error).string();
    TAILCAST_ASSIGN_OR_RETURN(topology_,
                              options_.topology.empty()
                                  ? cell::ParseTopology(kDefaultTopology, "the default topology")
                                  : cell::LoadTopology(options_.topology));
    for (const cell::TopologyCluster& cluster : topology_.clusters) {
      TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(cluster.name, "cluster"));
    }
    for (const cell::TopologyStream& stream : topology_.streams) {
      TAILCAST_RETURN_IF_ERROR(stream::ValidateStreamName(stream.name));
    }
    if (!options_.cache.empty()) {
      if (options_.spares > 0) {
        return InvalidArgumentError("--spares goes with cache processes, not with --cache");
      }
      TAILCAST_RETURN_IF_ERROR(FindMemcached().WithContext("--cache"));
    }
    const bool was_there = std::filesystem::exists(options_.dir, error);
    TAILCAST_ASSIGN_OR_RETURN(FileLock lock, LockDeployment(options_.dir));
    made_folder_ = !was_there;
    lock_ = std::make_unique<FileLock>(std::move(lock));
    const auto size = [](const std::string& name, const std::string& text, int64_t low,
                         int64_t& bytes) {
      const Result<int64_t> parsed = cell::ParseBytes(text, low, int64_t{1} << 40);
      if (!parsed.ok()) return parsed.status().WithContext(name + " " + text);
      bytes = *parsed;
      return OkStatus();
    };
    TAILCAST_RETURN_IF_ERROR(
        size("--data-cache-bytes", options_.data_cache_bytes, 4 << 20, data_cache_bytes_));
    TAILCAST_RETURN_IF_ERROR(
        size("--repair-bytes-per-s", options_.repair_bytes_per_s, 1 << 20, repair_bytes_per_s_));

    TAILCAST_RETURN_IF_ERROR(ChooseAddresses(options_.dir, Say, topology_));
    TAILCAST_RETURN_IF_ERROR(StartLinks());
    TAILCAST_RETURN_IF_ERROR(KeepTables());
    TAILCAST_RETURN_IF_ERROR(StartStorage().WithContext("--storage " + options_.storage));
    TAILCAST_RETURN_IF_ERROR(ReadWorkers());
    for (const cell::TopologyCluster& cluster : topology_.clusters) {
      TAILCAST_RETURN_IF_ERROR(WriteCell(cluster));
    }
    deployment_.dir = options_.dir;
    deployment_.pid = getpid();
    for (const cell::TopologyCluster& cluster : topology_.clusters) {
      const std::set<std::string>& processes = expected_[cluster.name];
      deployment_.cells.push_back(
          {cluster.name, cluster.scheduler, {processes.begin(), processes.end()}});
    }
    return OkStatus();
  }

  Status Start() {
    for (const ChildSpec& spec : children_) TAILCAST_RETURN_IF_ERROR(supervisor_.Start(spec));
    TAILCAST_RETURN_IF_ERROR(WaitUntilReady());
    TAILCAST_RETURN_IF_ERROR(CreateStreams());
    WarnOfRates();
    return deployment_.Write();
  }

  // After Prepare was refused: nothing is left of a folder that it made. With Ceph it may hold the
  // logs that say why.
  void TakeBack() {
    std::error_code ignored;
    if (made_folder_ && options_.storage != "ceph") {
      std::filesystem::remove_all(options_.dir, ignored);
    }
  }

  // Until Ctrl-C.
  void Run() {
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    std::string said;  // of the last failure
    while (!Interrupted()) {
      const Status workers = TendWorkers();
      if (!workers.ok() && workers.message() != said) Say(workers.message());
      said = workers.message();
      const Duration wait = std::min(supervisor_.Tend(), Duration::Millis(200));
      const timespec timeout{wait.micros() / 1000000, wait.micros() % 1000000 * 1000};
      sigtimedwait(&child_ended, nullptr, &timeout);
    }
  }

  void Stop() {
    deployment_.Remove();
    supervisor_.StopAll(Duration::Seconds(10));
    ceph_.reset();
  }

 private:
  Status FindMemcached() {
    TAILCAST_ASSIGN_OR_RETURN(const auto servers, memcached::ParseServers(options_.cache));
    std::vector<memcached::ServerAddress> silent;
    TAILCAST_RETURN_IF_ERROR(memcached::CheckServers(servers, Duration::Seconds(2), &silent));
    if (!silent.empty()) Say("no answer of " + memcached::FormatServers(silent));
    memcached_ = memcached::ReplicaNames(servers);
    return OkStatus();
  }

  // With Ceph, each cell's pool is looked for before anything is started.
  Status StartStorage() {
    if (options_.storage == "posix") return OkStatus();
    if (options_.durability != "durable") {
      return InvalidArgumentError("--durability page-cache goes with posix storage");
    }
    if (options_.storage == "ceph") {
      std::vector<std::string> pools;
      for (const auto& cluster : topology_.clusters) pools.push_back(CephPoolOf(cluster.name));
      Say("starting a Ceph cluster in " + options_.dir + "/ceph, which takes some 20 s");
      TAILCAST_ASSIGN_OR_RETURN(ceph_, CephCluster::Start(options_.dir + "/ceph", pools));
      ceph_conf_ = ceph_->conf();
    } else if (options_.storage.starts_with("ceph:/")) {
      ceph_conf_ = options_.storage.substr(std::string_view("ceph:").size());
    } else {
      return InvalidArgumentError("must be posix, ceph or ceph:/absolute/ceph.conf");
    }
    ThreadLoop loop;
    for (const cell::TopologyCluster& cluster : topology_.clusters) {
      TAILCAST_ASSIGN_OR_RETURN(const auto url, storage::ParseStoreUrl(StoreOf(cluster.name)));
      if (auto store = storage::OpenStore(&loop, url); !store.ok()) return store.status();
    }
    return OkStatus();
  }
  std::string StoreOf(const std::string& cell) const {
    return ceph_conf_.empty() ? "posix:" + options_.dir + "/" + cell + "/store"
                              : "ceph:" + ceph_conf_ + "?pool=" + CephPoolOf(cell);
  }

  // A delaying proxy for each pair of cells with a link that names none.
  Status StartLinks() {
    std::map<std::pair<std::string, std::string>, std::string> made;
    for (cell::TopologyLink& link : topology_.links) {
      if (!link.via.empty() || (link.rtt_ms <= 0 && link.bandwidth_gbps <= 0)) continue;
      const link::LinkShape shape{
          .delay = Duration::Micros(static_cast<int64_t>(link.rtt_ms * 500)),
          .bytes_per_second = static_cast<int64_t>(link.bandwidth_gbps * 1e9 / 8)};
      TAILCAST_ASSIGN_OR_RETURN(auto proxy, link::LinkProxy::Start("127.0.0.1:0", shape));
      link.via = proxy->address();
      links_.push_back(std::move(proxy));
    }
    return OkStatus();
  }

  // The deployment has its own copy of the tables, as one: what a user changes in his files
  // meanwhile must not be what a process that is started again reads.
  Status KeepTables() {
    if (topology_.tables.empty()) return OkStatus();
    const std::string path = options_.dir + "/links.csv";
    const auto first = topology_.links.end() - static_cast<std::ptrdiff_t>(topology_.table_links);
    const std::string text = cell::LinkTableText({first, topology_.links.end()});
    TAILCAST_RETURN_IF_ERROR(WriteFile(path, text));
    topology_.tables = {{.path = path, .crc32c = Crc32c(text)}};
    return OkStatus();
  }

  Status WriteCell(const cell::TopologyCluster& cluster) {
    const std::string dir = options_.dir + "/" + cluster.name;
    std::error_code error;
    for (const char* sub : {"/store", "/config", "/log", "/run"}) {
      std::filesystem::create_directories(dir + sub, error);
      if (error) return ErrnoStatus(error.value(), "make the folder " + dir + sub);
    }
    TAILCAST_RETURN_IF_ERROR(
        WriteFile(dir + "/config/topology.yaml", cell::TopologyReference(topology_)));

    cell::ProcessConfig config;
    config.cell = cluster.name;
    config.store = StoreOf(cluster.name);
    config.durable = options_.durability == "durable";
    config.scheduler = cluster.scheduler;
    config.cell_key = cluster.cell_key;
    if (config.cell_key.empty()) {
      config.cell_key = dir + "/cell.key";
      TAILCAST_RETURN_IF_ERROR(fabric::CellKey::Make(config.cell_key));
    }
    // Said here, once, and not by each process.
    if (auto key = fabric::LoadCellKey(config.cell_key); !key.ok()) {
      return key.status().WithContext("cluster '" + cluster.name + "'");
    }
    TAILCAST_ASSIGN_OR_RETURN(config.profile, cell::ParseProfile(options_.profile));
    config.data_cache_bytes = data_cache_bytes_;
    config.repair_bytes_per_second = repair_bytes_per_s_;
    // The name of a unix socket has room for 107 bytes.
    config.run_dir = dir + "/run";
    if (config.run_dir.size() > 70) {
      std::string pattern = "/tmp/tailcast-XXXXXX";
      if (mkdtemp(pattern.data()) == nullptr) return ErrnoStatus(errno, "make a folder in /tmp");
      config.run_dir = pattern;
    }
    config.fabric_rdma = options_.fabric_rdma;
    config.caches = memcached_;
    for (int i = 1; memcached_.empty() && i <= options_.caches; ++i) {
      config.caches.push_back("cache-" + std::to_string(i));
    }
    for (int i = 1; memcached_.empty() && i <= options_.spares; ++i) {
      config.spares.push_back("cache-" + std::to_string(options_.caches + i));
    }
    configs_[cluster.name] = config;
    const auto add = [&](const std::string& role, const std::string& name) {
      TAILCAST_ASSIGN_OR_RETURN(ChildSpec child, MakeChild(cluster.name, role, name));
      children_.push_back(std::move(child));
      expected_[cluster.name].insert(name);
      return OkStatus();
    };
    TAILCAST_RETURN_IF_ERROR(add("scheduler", "scheduler"));
    for (const auto* names : {&config.caches, &config.spares}) {
      for (const std::string& name : *names) {
        if (memcached_.empty()) TAILCAST_RETURN_IF_ERROR(add("cache", name));
      }
    }
    for (const std::string& name : WorkersOf(cluster.name, "reader")) {
      TAILCAST_RETURN_IF_ERROR(add("reader", name));
    }
    for (const std::string& name : WorkersOf(cluster.name, "writer")) {
      TAILCAST_RETURN_IF_ERROR(add("writer", name));
    }
    return OkStatus();
  }

  // Writes its configuration.
  Result<ChildSpec> MakeChild(const std::string& cell, const std::string& role,
                              const std::string& name) const {
    const std::string dir = options_.dir + "/" + cell;
    cell::ProcessConfig config = configs_.at(cell);
    config.name = name;
    if (role == "scheduler") config.topology = dir + "/config/topology.yaml";
    const std::string path = dir + "/config/" + name + ".yaml";
    TAILCAST_RETURN_IF_ERROR(WriteFile(path, config.ToYaml()));
    return ChildSpec{cell + "/" + name,
                     "/proc/self/exe",
                     {"tailcast", "run", "--role", role, "--config", path},
                     dir + "/log/" + name + ".log"};
  }

  // What the command line says counts from now on, for all cells; else what `tailcast workers`
  // said.
  Status ReadWorkers() {
    for (const cell::TopologyCluster& cluster : topology_.clusters) {
      const WorkerCounts told{options_.readers, options_.writers};
      if (told == WorkerCounts()) break;
      TAILCAST_RETURN_IF_ERROR(ChangeWorkerCounts(options_.dir, cluster.name, told));
    }
    TAILCAST_ASSIGN_OR_RETURN(counts_, ReadWorkerCounts(options_.dir));
    return OkStatus();
  }
  std::vector<std::string> WorkersOf(const std::string& cell, const std::string& role) const {
    const auto said = counts_.find(cell);
    const WorkerCounts counts = said == counts_.end() ? WorkerCounts() : said->second;
    return WorkerNames(
        role, (role == "reader" ? counts.readers : counts.writers).value_or(kWorkersDefault));
  }

  // Starts and retires readers and writers, if somebody has changed how many there shall be.
  Status TendWorkers() {
    TAILCAST_ASSIGN_OR_RETURN(CellWorkerCounts counts, ReadWorkerCounts(options_.dir));
    if (counts == counts_ && workers_are_tended_) return OkStatus();
    counts_ = std::move(counts);
    workers_are_tended_ = false;
    for (DeploymentCell& cell : deployment_.cells) {
      for (const std::string role : {"reader", "writer"}) {
        TAILCAST_RETURN_IF_ERROR(TendWorkers(cell, role));
      }
    }
    TAILCAST_RETURN_IF_ERROR(deployment_.Write());
    workers_are_tended_ = true;
    return OkStatus();
  }
  Status TendWorkers(DeploymentCell& cell, const std::string& role) {
    const std::vector<std::string> names = WorkersOf(cell.name, role);
    const std::set<std::string> wanted(names.begin(), names.end());
    std::set<std::string>& there = expected_[cell.name];
    for (auto it = there.begin(); it != there.end();) {
      const std::string name = *it++;
      if (!name.starts_with(role + "-") || wanted.contains(name)) continue;
      Say(cell.name + "/" + name + " hands over what it runs, and ends");
      supervisor_.Retire(cell.name + "/" + name, kRetireGrace);
      there.erase(name);
    }
    for (const std::string& name : names) {
      if (there.contains(name)) continue;
      Say(cell.name + "/" + name + " is started");
      TAILCAST_ASSIGN_OR_RETURN(const ChildSpec child, MakeChild(cell.name, role, name));
      TAILCAST_RETURN_IF_ERROR(supervisor_.Start(child));
      there.insert(name);
    }
    cell.processes.assign(there.begin(), there.end());
    return OkStatus();
  }

  // Every process of every cell is registered with its scheduler.
  Status WaitUntilReady() {
    const MonotonicTime end =
        ReadMonotonicClock() + Duration::Micros(static_cast<int64_t>(options_.ready_s * 1e6));
    ThreadLoop loop;
    const Scope scope;
    auto connector = rpc::MakeGrpcConnector(loop);
    std::map<std::string, std::unique_ptr<cell::CellClient>> clients;
    for (const cell::TopologyCluster& cluster : topology_.clusters) {
      auto client = std::make_unique<cell::CellClient>(loop, *connector, cluster.scheduler, "");
      client->Start(end - ReadMonotonicClock(), scope.Bind([](Status) {}));
      clients[cluster.name] = std::move(client);
    }
    std::string missing;
    const auto ready = [&] {
      missing.clear();
      for (const auto& [name, client] : clients) {
        for (const std::string& process : expected_[name]) {
          const auto& registered = client->view().processes();
          const bool there = client->view().cell() == name &&
                             std::any_of(registered.begin(), registered.end(),
                                         [&](const auto& p) { return p.name() == process; });
          if (!there) missing += (missing.empty() ? "" : ", ") + name + "/" + process;
        }
      }
      return missing.empty();
    };
    while (!loop.RunUntil(ready, std::min(end, loop.Now() + Duration::Millis(100)))) {
      supervisor_.Tend();
      if (Interrupted()) return CancelledError("interrupted");
      if (ReadMonotonicClock() >= end) {
        return DeadlineExceededError("these processes are not up: " + missing +
                                     "; their logs are " + options_.dir + "/CELL/log/NAME.log");
      }
    }
    return OkStatus();
  }

  // Of the rates of the topology's streams those that its data caches are too small for.
  void WarnOfRates() const {
    if (!memcached_.empty()) return;
    for (const cell::TopologyCluster& cluster : topology_.clusters) {
      inspect::CacheLoad load;
      for (const cell::TopologyStream& stream : topology_.streams) {
        const auto& to = stream.destinations;
        const bool here = stream.source == cluster.name || to.empty() ||
                          std::find(to.begin(), to.end(), cluster.name) != to.end();
        if (here) load.Add(stream.name, stream.rate_mbps * 1e6 / 8, 0, 0);
      }
      const std::string trouble = inspect::CacheRoomTrouble(
          inspect::PlannedRoom(options_.caches, data_cache_bytes_, cell::ProcessConfig().data_ttl),
          load);
      if (!trouble.empty()) {
        Say("warning: cell " + cluster.name + ", at the rates of the topology: " + trouble);
      }
    }
  }

  // Those of the topology that never were.
  Status CreateStreams() {
    TAILCAST_ASSIGN_OR_RETURN(std::set<std::string> made, ReadMadeStreams(options_.dir));
    for (const cell::TopologyStream& stream : topology_.streams) {
      if (!made.insert(stream.name).second) continue;
      TAILCAST_RETURN_IF_ERROR(CreateStream(stream));
      TAILCAST_RETURN_IF_ERROR(WriteMadeStreams(options_.dir, made));
    }
    return OkStatus();
  }

  Status CreateStream(const cell::TopologyStream& stream) {
    const cell::TopologyCluster* source = topology_.FindCluster(stream.source);
    TAILCAST_ASSIGN_OR_RETURN(auto session,
                              CellSession::OpenAt(source->scheduler, Duration::Seconds(5)));
    if (session->client().FindStream(stream.name).ok()) return OkStatus();
    v1::StreamConfig config;
    config.set_name(stream.name);
    config.set_shards(1);
    for (const std::string& d : stream.destinations) config.add_destinations(d);
    const auto made = session->Call<Result<v1::StreamConfig>>(
        [&](auto done) { session->client().CreateStream(config, std::move(done)); });
    if (!made.ok()) return made.status().WithContext("stream " + stream.name);
    return WaitForStreamEverywhere(deployment_, *made,
                                   Duration::Micros(static_cast<int64_t>(options_.ready_s * 1e6)));
  }

  UpOptions options_;
  int64_t data_cache_bytes_ = 64 << 20, repair_bytes_per_s_ = 25 << 20;
  std::vector<std::string> memcached_;  // replicas of every cell; empty: cache processes
  cell::Topology topology_;
  Deployment deployment_;
  std::unique_ptr<FileLock> lock_;
  bool made_folder_ = false;
  std::vector<std::unique_ptr<link::LinkProxy>> links_;
  std::string ceph_conf_;              // empty: posix
  std::unique_ptr<CephCluster> ceph_;  // null: not ours
  std::vector<ChildSpec> children_;
  std::map<std::string, cell::ProcessConfig> configs_;     // of each cell; the name is missing
  std::map<std::string, std::set<std::string>> expected_;  // processes of each cell
  CellWorkerCounts counts_;
  bool workers_are_tended_ = true;  // expected_ has them as counts_ says
  Supervisor supervisor_;
};

int RunUp(const UpOptions& options) {
  // Before any thread starts, so that all inherit it: SIGCHLD is waited for, not delivered.
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_ended, nullptr);
  CatchInterrupts();
  Up up(options);
  Status status = up.Prepare();
  if (!status.ok()) {
    up.TakeBack();
    return Fail(status);
  }
  status = up.Start();
  if (!status.ok()) {
    up.Stop();
    return Fail(status);
  }
  std::printf("ready\n");
  std::fflush(stdout);
  up.Run();
  Say("stopping");
  up.Stop();
  return kExitDone;
}

}  // namespace

void AddUp(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "up", "Run a whole deployment on this machine; prints ready; Ctrl-C stops it");
  auto options = std::make_shared<UpOptions>();
  command
      ->add_option("--dir", options->dir,
                   "Folder of the deployment; made if needed; default: TAILCAST_DIR")
      ->envname("TAILCAST_DIR")
      ->required();
  command->add_option("--topology", options->topology,
                      "YAML file; default: us-central, europe-west, asia-east");
  command
      ->add_option("--profile", options->profile,
                   "standard: the paper's intervals; low-latency: doorbells")
      ->check(CLI::IsMember({"standard", "low-latency"}))
      ->capture_default_str();
  command
      ->add_option("--durability", options->durability,
                   "durable: fdatasync before a byte is shown; page-cache: survives kill -9 only")
      ->check(CLI::IsMember({"durable", "page-cache"}))
      ->capture_default_str();
  command
      ->add_option("--data-cache-bytes", options->data_cache_bytes,
                   "Memory of each data cache process, from 4MB to 1024GB")
      ->capture_default_str();
  command
      ->add_option("--repair-bytes-per-s", options->repair_bytes_per_s,
                   "How fast a cache that begins anew, or joins a ring, copies from others; from "
                   "1MB to 1024GB")
      ->capture_default_str();
  command->add_option("--cache", options->cache,
                      "memcached:HOST:PORT,...: these servers instead of cache processes");
  command
      ->add_option("--storage", options->storage,
                   "posix: folders below --dir; ceph: a cluster of its own in DIR/ceph; "
                   "ceph:/path/ceph.conf: that one, with the pools tailcast-CELL")
      ->capture_default_str();
  command
      ->add_option("--fabric-rdma", options->fabric_rdma,
                   "Address of the RDMA device at which caches are read, auto or off")
      ->capture_default_str();
  command->add_option("--caches", options->caches, "Cache processes of each cell")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command
      ->add_option(
          "--spares", options->spares,
          "Further cache processes of each cell, in no ring until `tailcast cache reshard`")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  command
      ->add_option("--readers", options->readers,
                   "Readers of each cell; default: as `tailcast workers` last said, else 2")
      ->check(CLI::Range(1, kWorkersMax));
  command
      ->add_option("--writers", options->writers,
                   "Writers of each cell; default: as `tailcast workers` last said, else 2")
      ->check(CLI::Range(1, kWorkersMax));
  command->add_option("--ready-timeout", options->ready_s, "Seconds to wait for the processes")
      ->check(AboveZero())
      ->capture_default_str();
  AddTraceDir(command);
  command->callback([&action, options] { action = [options] { return RunUp(*options); }; });
}

}  // namespace tailcast::app
