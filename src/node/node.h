// One process of a cell: its roles, put together on ports. The binary gives it real ports
// (src/app/run_command.cc), the deterministic world simulated ones (src/world): the same code runs.
//
// Wiring only; what a role does is in its own module. A node registers with the cell's scheduler
// and renews its lease; when the scheduler is away, everything else goes on.
//
// Threads: everything on the loop of the ports.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/aside.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/server.h"
#include "tailcast/cell/cache_clients.h"
#include "tailcast/cell/cache_lease.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/cell/registration.h"
#include "tailcast/cell/scheduler_finder.h"
#include "tailcast/cell/topology.h"
#include "tailcast/cell/users_service.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/node/leaving.h"
#include "tailcast/reader/reader_agent.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/scheduler_agent.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/ports.h"
#include "tailcast/writer/writer_agent.h"

namespace tailcast::node {

// In the environment of a process that is started again when it ends: how often it was, for
// `tailcast status`.
inline constexpr char kRestartsVariable[] = "TAILCAST_RESTARTS";

enum class Role : uint8_t { kCache, kReader, kWriter, kScheduler };

// "cache", "reader", "writer", "scheduler". InvalidArgument with the nearest one.
Result<Role> ParseRole(const std::string& text);
std::string RoleName(Role role);
// Whether a process of this name can have these roles: under the first it has its own, under each
// further one with that behind it. InvalidArgument says what is wrong.
Status CheckNames(const std::string& process, const std::vector<Role>& roles);

// Not owned; outlive the node.
struct Ports {
  EventLoop* loop = nullptr;
  rpc::Server* server = nullptr;  // not started: the node registers handlers, then starts it
  rpc::Connector* connector = nullptr;
  storage::Store* store = nullptr;
  storage::Store* records = nullptr;  // of StoreUse::kRecords, for the role scheduler
  fabric::Connector* fabric = nullptr;
  MetricRegistry* metrics = nullptr;
  // Makes the exporter of a cache instance ("data" or "metadata").
  std::function<std::unique_ptr<fabric::Exporter>(const std::string& instance)> make_exporter;
  Aside* aside = nullptr;  // null: what it is for stops the loop, as in virtual time
  uint64_t seed = 0;
  int64_t pid = 0;           // shown to people; 0: none
  StepLog* steps = nullptr;  // null: steps are not logged
  // For tests: reader::CopyOptions::jump_bytes, with the least window of a cache operation. 0: the
  // defaults.
  int64_t jump_bytes = 0;
  // For tests: of a scheduler, so that little traffic is balanced. None: the defaults.
  std::optional<scheduler::BalanceOptions> balance = {};
};

class Node {
 public:
  // `topology` is for the role scheduler: the other cells and the links to them.
  Node(Ports ports, cell::ProcessConfig config, std::vector<Role> roles, cell::Topology topology);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Opens the doors. `on_fatal` is called at most once, later, when the process must end: a
  // scheduler that was fenced, say. FailedPrecondition: a port is in use; the message names it.
  Status Start(const std::string& metrics_address, Callback<void(Status)> on_fatal);

  // The process shall end: a reader's or writer's operations are given to others first, as far as
  // there are any (leaving.h). `left` is called later, at most once, with the reason why it may end
  // now, for people; it goes on until it is destroyed.
  void Leave(Callback<void(std::string)> left);

  const std::string& rpc_address() const { return rpc_address_; }
  std::string StatusJson() const;
  // What a process of the role cache serves; for oracles. Null: another role, or not started.
  const cache::Server* data_cache_server() const { return data_server_.get(); }
  const cache::Server* metadata_cache_server() const { return metadata_server_.get(); }

 private:
  bool Has(Role role) const;
  // A process of several roles is several workers: the first has the process' own name, the others
  // NAME-ROLE.
  std::string NameOf(Role role) const;
  Status MakeScheduler();
  // Each role registers, and renews its lease, on its own.
  void RegisterAll();
  // `work` off the loop, then `done` on it; `done` alone if too much waits.
  void RunAside(UniqueFunction<void()> work, Task done);
  void Register(v1::ProcessInfo info);
  void ShowCaches(v1::ProcessInfo* info) const;
  void OnView(const cell::CellView& view);
  void LookWhetherLeft();
  // Somebody else of the role is there, and stays.
  bool HasOthers(v1::Role role, const std::string& name) const;
  void EndFor(Status why);

  Ports ports_;
  const cell::ProcessConfig config_;
  const std::vector<Role> roles_;
  const std::shared_ptr<const cell::Topology> topology_;  // plans read it aside
  const ProcessIncarnation incarnation_;
  const MonotonicTime started_;
  std::string rpc_address_;
  v1::ProcessInfo info_;
  Callback<void(Status)> on_fatal_;

  std::unique_ptr<cell::CellClient> cell_;
  std::unique_ptr<cell::SchedulerFinder> finder_;  // null: it is the scheduler
  std::unique_ptr<fabric::Exporter> data_exporter_, metadata_exporter_;
  std::unique_ptr<cache::Server> data_server_, metadata_server_;
  std::unique_ptr<cell::CacheLease> cache_lease_;  // of metadata_server_
  std::unique_ptr<cell::CacheClients> caches_;     // of readers and writers
  std::unique_ptr<writer::WriterAgent> writer_;
  std::unique_ptr<reader::ReaderAgent> reader_;
  std::unique_ptr<scheduler::SchedulerAgent> scheduler_;
  std::unique_ptr<cell::UsersService> users_;                       // beside it
  std::vector<std::unique_ptr<cell::Registration>> registrations_;  // a role each
  std::optional<Leaving> leaving_;
  MonotonicTime leaving_since_;
  Callback<void(std::string)> on_left_;
  Timer leave_timer_;
  Scope scope_;
};

}  // namespace tailcast::node
