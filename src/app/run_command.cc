// tailcast run: one process of a cell.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <thread>

#include "tailcast/app/command.h"
#include "tailcast/base/free_memory.h"
#include "tailcast/base/log.h"
#include "tailcast/base/metrics_http.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/step_log.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/base/thread_priority.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/cell/registry_reader.h"
#include "tailcast/cell/topology.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/node/node.h"
#include "tailcast/rpc/grpc_rpc.h"
#include "tailcast/storage/open_store.h"

namespace tailcast::app {
namespace {

const Logger kLog("run");

struct RunOptions {
  std::vector<std::string> roles;
  std::string config;
  std::string cache;  // "memcached:..."; empty: what the configuration says
};

constexpr Duration kRegistryWait = Duration::Millis(200);  // before it is looked for again
constexpr int kWaitsQuiet = 5;  // before the log says so; then 60 of that

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

Status LookForRegistry(ThreadLoop& loop, storage::Store& store) {
  std::optional<Status> looked;
  const Scope scope;
  cell::RegistryReader registry(store);
  registry.ReadLast(scope.Bind([&](const auto& last) { looked = last.status(); }));
  loop.RunUntil([&] { return looked.has_value(); }, ReadMonotonicClock() + Duration::Seconds(5));
  return looked.value_or(UnavailableError("the primary layer does not answer"));
}

// The store of a process that copies messages. It has a registry: its scheduler makes one before
// all else. Where there is none, the cell's volume is perhaps not mounted, and what would be
// written there nobody would read. So it is waited for; in a folder that is opened anew, as a
// volume may be mounted over the one that was. Cancelled: by one of the signals that end the
// process.
Result<std::unique_ptr<storage::Store>> OpenWorkersStore(ThreadLoop& loop,
                                                         const storage::StoreUrl& url,
                                                         const std::shared_ptr<StepLog>& steps,
                                                         const sigset_t& ending) {
  for (int wait = 0;; ++wait) {
    TAILCAST_ASSIGN_OR_RETURN(auto store, storage::OpenStore(&loop, url, steps));
    const Status registry = LookForRegistry(loop, *store);
    // What is wrong with one that is there its scheduler says.
    if (!IsNotFound(registry)) return store;
    if (wait % (60 * kWaitsQuiet) == kWaitsQuiet) {
      kLog.Warn(url.ToString(), " has no registry: the cell's scheduler has not begun yet, or its ",
                "volume is not mounted here; waiting for it");
    }
    store.reset();
    const timespec pause{0, kRegistryWait.micros() * 1000};
    if (sigtimedwait(&ending, nullptr, &pause) > 0) return CancelledError("ended by a signal");
  }
}

int RunProcess(const RunOptions& options) {
  std::vector<node::Role> roles;
  bool schedules = false, copies = false;
  for (const std::string& text : options.roles) {
    const auto role = node::ParseRole(text);
    if (!role.ok()) return Fail(role.status().WithContext("--role"));
    roles.push_back(*role);
    schedules = schedules || *role == node::Role::kScheduler;
    copies = copies || *role == node::Role::kReader || *role == node::Role::kWriter;
  }
  auto config = cell::ProcessConfig::Load(options.config);
  if (!config.ok()) return Fail(config.status());
  if (Status s = node::CheckNames(config->name, roles); !s.ok()) return Fail(s);
  if (!options.cache.empty()) {
    const auto servers = memcached::ParseServers(options.cache);
    if (!servers.ok()) return Fail(servers.status().WithContext("--cache"));
    config->caches = memcached::ReplicaNames(*servers);
  }
  if (Status s = SetLogLevels(config->log); !s.ok()) return Fail(s.WithContext(options.config));
  // Not an error: no operation waits for a cache.
  if (const auto servers = memcached::ServersOf(config->caches);
      servers.ok() && !servers->empty()) {
    const Status answer = memcached::CheckServers(*servers, Duration::Seconds(1));
    if (!answer.ok()) kLog.Warn(answer, "; going on with the primary layer alone");
  }
  cell::Topology topology;
  if (schedules && !config->topology.empty()) {
    auto loaded = cell::LoadTopology(config->topology);
    if (!loaded.ok()) return Fail(loaded.status());
    topology = std::move(*loaded);
  }
  if (topology.clusters.empty()) topology.clusters.push_back({.name = config->cell});

  // The signals that end it are taken by this thread alone.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);

  auto opened_steps = StepLog::FromEnvironment(config->cell, config->name);
  if (!opened_steps.ok()) return Fail(opened_steps.status());
  const std::shared_ptr<StepLog> steps = *std::move(opened_steps);
  ThreadLoop loop;
  const FreeMemoryKeeper free_memory(loop);
  // A scheduler alone has one store; beside others, which write messages, one of its own.
  const bool control = roles.size() == 1 && schedules;
  auto store = copies && !schedules ? OpenWorkersStore(loop, config->StoreUrl(), steps, ending)
                                    : storage::OpenStore(&loop, config->StoreUrl(), steps,
                                                         control ? storage::StoreUse::kRecords
                                                                 : storage::StoreUse::kMessages);
  if (IsCancelled(store.status())) return kExitDone;
  if (!store.ok()) return Fail(store.status());
  std::unique_ptr<storage::Store> records;
  if (schedules && !control) {
    auto opened = storage::OpenStore(&loop, config->StoreUrl(), steps, storage::StoreUse::kRecords);
    if (!opened.ok()) return Fail(opened.status());
    records = std::move(*opened);
  }
  std::unique_ptr<MetricsServer> metrics;
  std::string metrics_address;
  if (config->metrics != "off") {
    auto started = MetricsServer::Start(ProcessMetrics(), config->metrics);
    if (!started.ok()) return Fail(started.status());
    metrics = std::move(*started);
    metrics_address = HostOf(config->metrics) + ":" + std::to_string(metrics->port());
  }
  auto key = fabric::LoadCellKey(config->cell_key);
  if (!key.ok()) return Fail(key.status().WithContext(options.config));
  auto fabric = fabric::MakeConnector(&loop, {.key = *key});
  // A scheduler alone gets notices, leases and requests of people.
  auto server = rpc::MakeGrpcServer(loop, control);
  auto connector = rpc::MakeGrpcConnectorBeside(*server);

  Aside aside(loop);

  node::Ports ports;
  ports.loop = &loop;
  ports.server = server.get();
  ports.connector = connector.get();
  ports.store = store->get();
  ports.records = records != nullptr ? records.get() : store->get();
  ports.fabric = fabric.get();
  ports.metrics = &ProcessMetrics();
  ports.aside = &aside;
  ports.seed = RandomSeed();
  ports.pid = getpid();
  ports.steps = steps.get();
  ports.make_exporter = [&](const std::string& instance) {
    fabric::ExporterOptions exporter;
    exporter.loop = &loop;
    exporter.key = *key;
    exporter.name = config->name + "." + instance;
    exporter.shm_socket_path = config->run_dir + "/" + config->name + "." + instance + ".shm";
    exporter.tcp_listen = config->FabricListen(instance);
    if (config->fabric_rdma != "off") exporter.verbs_host = config->fabric_rdma;
    return fabric::MakeExporter(exporter);
  };
  auto node = std::make_unique<node::Node>(ports, *config, roles, topology);
  int exit_code = kExitDone;
  const Scope scope;
  if (Status s = node->Start(metrics_address, scope.Bind([&](Status why) {
        exit_code = Fail(why);
        loop.Stop();
      }));
      !s.ok()) {
    return Fail(s);
  }
  // SIGTERM: a reader or writer hands its operations over first. SIGINT, or another signal while it
  // does: at once.
  Task leave =
      scope.Bind([&] { node->Leave(scope.Bind([&](const std::string&) { loop.Stop(); })); });
  std::thread waiter([&] {
    int signal = 0;
    sigwait(&ending, &signal);
    if (signal == SIGTERM) {
      loop.Post(std::move(leave));
      sigwait(&ending, &signal);
    }
    loop.Stop();
  });
  // What is written to a cache is handled on this loop.
  if (std::ranges::count(roles, node::Role::kCache) > 0) RunBeforeOthers();
  loop.Run();
  // Wakes the waiter if the loop ended for another reason; sigwait takes the signal, nothing dies.
  pthread_kill(waiter.native_handle(), SIGINT);  // NOLINT(bugprone-bad-signal-to-kill-thread)
  waiter.join();
  node.reset();
  return exit_code;
}

}  // namespace

void AddRun(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Run one process of a cell, on any host");
  auto options = std::make_shared<RunOptions>();
  command
      ->add_option("--role", options->roles,
                   "cache, reader, writer, scheduler; several with commas")
      ->required()
      ->delimiter(',');
  command->add_option("--config", options->config, "YAML file; docs/config.md has the keys")
      ->required();
  command->add_option("--cache", options->cache,
                      "memcached:HOST:PORT,...: instead of the configuration's `caches`");
  AddTraceDir(command);
  command->callback([&action, options] { action = [options] { return RunProcess(*options); }; });
}

}  // namespace tailcast::app
