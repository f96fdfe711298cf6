#include "tailcast/node/node.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "tailcast/base/log.h"
#include "tailcast/base/nearest.h"
#include "tailcast/base/resident_memory.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/client_metrics.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/memcached/client_metrics.h"
#include "tailcast/memcached/types.h"
#include "tailcast/node/topology_graph.h"
#include "tailcast/stream/operation.h"

namespace tailcast::node {
namespace {

const Logger kLog("node");

uint64_t NonZero(uint64_t x) { return x == 0 ? 1 : x; }

// The copy tree of a stream: fixed by hand in the topology, or the optimiser's.
Result<std::vector<v1::TreeEdge>> PlanTree(const cell::Topology& topology,
                                           const v1::StreamConfig& stream) {
  cell::TopologyStream what;
  if (const cell::TopologyStream* known = topology.FindStream(stream.name());
      known != nullptr && known->source == stream.source()) {
    what = *known;
  }
  what.name = stream.name();
  what.source = stream.source();
  if (stream.destinations_size() > 0) {
    what.destinations.assign(stream.destinations().begin(), stream.destinations().end());
  }
  TAILCAST_ASSIGN_OR_RETURN(const copytree::Graph graph, ToGraph(topology));
  TAILCAST_ASSIGN_OR_RETURN(const copytree::Plan plan,
                            PlanStream(graph, what, ToPlanOptions(topology)));
  for (const std::string& warning : plan.warnings) kLog.Warn("stream ", what.name, ": ", warning);
  std::vector<v1::TreeEdge> edges;
  for (const copytree::Hop& hop : plan.hops) {
    v1::TreeEdge edge;
    edge.set_from(hop.from);
    edge.set_to(hop.to);
    edges.push_back(std::move(edge));
  }
  return edges;
}

std::string NameIn(const std::string& process, const std::vector<Role>& roles, Role role) {
  return role == roles.front() ? process : process + "-" + RoleName(role);
}

// How often who runs this process has started it again before.
int64_t Restarts() {
  const char* text = std::getenv(kRestartsVariable);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

}  // namespace

Result<Role> ParseRole(const std::string& text) {
  if (text == "cache") return Role::kCache;
  if (text == "reader") return Role::kReader;
  if (text == "writer") return Role::kWriter;
  if (text == "scheduler") return Role::kScheduler;
  return InvalidArgumentError("'" + text + "' is no role" +
                              DidYouMean(text, {"cache", "reader", "writer", "scheduler"}));
}

std::string RoleName(Role role) {
  switch (role) {
    case Role::kCache:
      return "cache";
    case Role::kReader:
      return "reader";
    case Role::kWriter:
      return "writer";
    case Role::kScheduler:
      return "scheduler";
  }
  return "";
}

Status CheckNames(const std::string& process, const std::vector<Role>& roles) {
  for (Role role : roles) {
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(NameIn(process, roles, role), "process"));
  }
  return OkStatus();
}

Node::Node(Ports ports, cell::ProcessConfig config, std::vector<Role> roles,
           cell::Topology topology)
    : ports_(std::move(ports)),
      config_(std::move(config)),
      roles_(std::move(roles)),
      topology_(std::make_shared<const cell::Topology>(std::move(topology))),
      incarnation_{NonZero(Rng(ports_.seed).Next())},
      started_(ports_.loop->Now()),
      leave_timer_(*ports_.loop) {}

Node::~Node() = default;

bool Node::Has(Role role) const {
  return std::find(roles_.begin(), roles_.end(), role) != roles_.end();
}

std::string Node::NameOf(Role role) const { return NameIn(config_.name, roles_, role); }

Status Node::Start(const std::string& metrics_address, Callback<void(Status)> on_fatal) {
  on_fatal_ = std::move(on_fatal);
  TAILCAST_RETURN_IF_ERROR(CheckNames(config_.name, roles_));
  Rng rng(ports_.seed);
  info_.set_cell(config_.cell);
  info_.set_name(config_.name);
  info_.set_incarnation(Raw(incarnation_));
  info_.set_metrics_address(metrics_address);
  info_.set_pid(ports_.pid);

  ports_.server->Handle("/tailcast.v1.Process/GetStatus",
                        scope_.Bind([this](const std::string&, rpc::Responder respond) {
                          v1::GetStatusReply reply;
                          reply.set_json(StatusJson());
                          respond(reply.SerializeAsString());
                        }));
  cell_ = std::make_unique<cell::CellClient>(*ports_.loop, *ports_.connector, config_.scheduler);
  if (Has(Role::kCache)) cell_->UseFor(v1::VIEW_SERVES);
  cell_->SetOnChange(scope_.Bind([this](const cell::CellView& view) { OnView(view); }));
  if (!Has(Role::kScheduler)) {
    finder_ = std::make_unique<cell::SchedulerFinder>(*cell_, kLog);
    finder_->LookIn(*ports_.store);
  }

  if (Has(Role::kCache)) {
    cache::ServerOptions options;
    options.name = NameOf(Role::kCache);
    options.service = cache::kDataService;
    options.memory_bytes = static_cast<uint64_t>(config_.data_cache_bytes);
    options.core.ttl = config_.data_ttl;
    options.incarnation = incarnation_;
    options.metrics = ports_.metrics;
    options.repair.bytes_per_second = static_cast<uint64_t>(config_.repair_bytes_per_second);
    options.repair.once = true;
    data_exporter_ = ports_.make_exporter("data");
    data_server_ = std::make_unique<cache::Server>(ports_.loop, data_exporter_.get(), ports_.server,
                                                   ports_.connector, options);
    options.service = cache::kMetadataService;
    options.memory_bytes = static_cast<uint64_t>(config_.metadata_cache_bytes);
    options.value_bytes = 1024;
    options.core.ttl = config_.metadata_ttl;
    options.repair.once = false;
    options.stall_max = Duration::Seconds(1);
    metadata_exporter_ = ports_.make_exporter("metadata");
    metadata_server_ = std::make_unique<cache::Server>(ports_.loop, metadata_exporter_.get(),
                                                       ports_.server, ports_.connector, options);
    cache_lease_ = std::make_unique<cell::CacheLease>(
        *ports_.loop, *ports_.store, *metadata_server_, NameOf(Role::kCache), incarnation_);
  }
  if (Has(Role::kReader) || Has(Role::kWriter)) {
    TAILCAST_ASSIGN_OR_RETURN(caches_,
                              cell::CacheClients::Make({.loop = ports_.loop,
                                                        .fabric = ports_.fabric,
                                                        .rpc = ports_.connector,
                                                        .seed = NonZero(rng.Next()),
                                                        .metrics = ports_.metrics},
                                                       {.cell = config_.cell,
                                                        .replicas = config_.caches,
                                                        .data_ttl = config_.data_ttl,
                                                        .metadata_ttl = config_.metadata_ttl}));
  }
  const stream::CellPorts cell_ports{
      .loop = ports_.loop,
      .store = ports_.store,
      .data_cache = caches_ != nullptr ? &caches_->data() : nullptr,
      .metadata_cache = caches_ != nullptr ? &caches_->metadata() : nullptr,
      .steps = ports_.steps};
  if (Has(Role::kWriter)) {
    writer::WriterOptions options;
    options.name = NameOf(Role::kWriter);
    options.cell = config_.cell;
    if (ports_.jump_bytes > 0) options.cache_window_bytes = stream::kInitialWindowBytes;
    writer_ = std::make_unique<writer::WriterAgent>(cell_ports, *cell_, *ports_.metrics, options);
    writer_->Attach(*ports_.server);
  }
  if (Has(Role::kReader)) {
    reader::ReaderOptions options;
    options.name = NameOf(Role::kReader);
    options.cell = config_.cell;
    options.incarnation = incarnation_;
    options.poll_interval = config_.poll;
    options.doorbells = config_.profile == cell::Profile::kLowLatency;
    if (ports_.jump_bytes > 0) options.copy.jump_bytes = ports_.jump_bytes;
    reader_ = std::make_unique<reader::ReaderAgent>(cell_ports, *ports_.connector, *ports_.metrics,
                                                    options);
    reader_->Attach(*ports_.server);
  }
  if (Has(Role::kScheduler)) TAILCAST_RETURN_IF_ERROR(MakeScheduler());

  const std::string listen = Has(Role::kScheduler) ? config_.scheduler : config_.listen;
  TAILCAST_ASSIGN_OR_RETURN(rpc_address_, ports_.server->Start(listen));
  info_.set_rpc_address(rpc_address_);
  if (data_server_ != nullptr) {
    TAILCAST_ASSIGN_OR_RETURN(const auto data_addresses, data_server_->Start());
    TAILCAST_ASSIGN_OR_RETURN(const auto metadata_addresses, metadata_server_->Start());
    for (const std::string& a : data_addresses) info_.add_data_fabric(a);
    for (const std::string& a : metadata_addresses) info_.add_metadata_fabric(a);
  }
  if (scheduler_ != nullptr) {
    const auto fatal = [this](Status why) {
      if (!why.ok()) EndFor(std::move(why));
    };
    scheduler_->Start(scope_.Bind(fatal), scope_.Bind(fatal));
  }
  // Never given up: a process waits for its scheduler as long as it takes.
  cell_->Start(Duration::Infinite(), scope_.Bind([](const Status&) {}));
  RegisterAll();
  kLog.Info(config_.cell, "/", config_.name, " serves at ", rpc_address_);
  return OkStatus();
}

Status Node::MakeScheduler() {
  scheduler::SchedulerOptions options;
  options.registry.cell = config_.cell;
  options.registry.store = config_.StoreUrl().ToString();
  options.registry.cache_replicas = config_.caches;
  options.registry.cache_spares = config_.spares;
  options.registry.known_cells = topology_->ClusterNames();
  options.registry.topology = cell::TopologyReference(*topology_);
  options.registry.cell_key = config_.cell_key;
  options.seed = NonZero(Rng(ports_.seed).Fork("scheduler").Next());
  if (ports_.balance) options.core.balance = *ports_.balance;
  options.core.stuck_after = Duration::Millis(topology_->stuck_after_ms);
  options.core.speed.slow_after = Duration::Millis(topology_->slow_after_ms);
  options.rescan_interval = Duration::Millis(topology_->look_every_ms);
  options.self = info_;
  options.self.set_role(v1::ROLE_SCHEDULER);
  options.self.set_name(NameOf(Role::kScheduler));
  options.self.set_rpc_address(config_.scheduler);
  std::map<std::string_view, std::string> via;
  for (const cell::TopologyLink& link : topology_->links) {
    if (link.from == config_.cell && !link.via.empty()) via[link.to] = link.via;
  }
  for (const cell::TopologyCluster& cluster : topology_->clusters) {
    if (cluster.name == config_.cell || cluster.scheduler.empty()) continue;
    options.neighbours.push_back({cluster.name, cluster.scheduler, via[cluster.name]});
  }
  options.plan_tree = [this](const v1::StreamConfig& stream,
                             Callback<void(Result<std::vector<v1::TreeEdge>>)> done) {
    auto tree = std::make_shared<Result<std::vector<v1::TreeEdge>>>(
        ResourceExhaustedError("too many trees are to be planned; try again later"));
    RunAside([topology = topology_, stream, tree] { *tree = PlanTree(*topology, stream); },
             scope_.Bind([tree, done = std::move(done)]() mutable { done(std::move(*tree)); }));
  };
  options.on_removed = [this](const std::string& stream) {
    if (users_ != nullptr) users_->ForgetStream(stream);
  };
  scheduler_ = std::make_unique<scheduler::SchedulerAgent>(
      *ports_.loop, *ports_.records, *ports_.connector, *ports_.metrics, std::move(options));
  scheduler_->Attach(*ports_.server);
  users_ = std::make_unique<cell::UsersService>(*ports_.loop, *ports_.server, *ports_.metrics);
  return OkStatus();
}

void Node::RunAside(UniqueFunction<void()> work, Task done) {
  if (ports_.aside != nullptr) return ports_.aside->Run(std::move(work), std::move(done));
  work();
  ports_.loop->Post(std::move(done));
}

void Node::RegisterAll() {
  for (Role role : roles_) {
    if (role == Role::kScheduler) continue;  // it shows itself
    v1::ProcessInfo info = info_;
    switch (role) {
      case Role::kCache:
        info.set_role(v1::ROLE_CACHE);
        break;
      case Role::kReader:
        info.set_role(v1::ROLE_READER);
        break;
      case Role::kWriter:
        info.set_role(v1::ROLE_WRITER);
        break;
      case Role::kScheduler:
        break;
    }
    info.set_name(NameOf(role));
    Register(std::move(info));
  }
}

void Node::Register(v1::ProcessInfo info) {
  const bool cache = info.role() == v1::ROLE_CACHE;
  registrations_.push_back(std::make_unique<cell::Registration>(
      *ports_.loop, *cell_,
      cell::Registration::Hooks{[this, cache, info = std::move(info)] {
                                  v1::ProcessInfo now = info;
                                  if (cache) ShowCaches(&now);
                                  now.set_leaving(!cache && leaving_.has_value());
                                  return now;
                                },
                                [this, cache](MonotonicTime sent, const v1::RegisterReply& reply) {
                                  if (leaving_ && sent >= leaving_since_) {
                                    leaving_->OnKnown(ports_.loop->Now());
                                  }
                                  if (cache) cache_lease_->OnRenewed(sent, reply);
                                },
                                // Going on would do harm, or never succeed.
                                [this](Status why) { EndFor(std::move(why)); }}));
}

void Node::ShowCaches(v1::ProcessInfo* info) const {
  info->set_copied_epoch(Raw(metadata_server_->copied_epoch()));
  info->set_filled_configuration(Raw(metadata_server_->filled_configuration()));
  info->set_data_filled_configuration(Raw(data_server_->filled_configuration()));
  info->set_sealed_configuration(Raw(metadata_server_->sealed_configuration()));
  info->set_data_copied(data_server_->repaired());
}

void Node::OnView(const cell::CellView& view) {
  if (data_server_ != nullptr) {
    data_server_->UpdateRing(cell::DataRing(view));
    metadata_server_->UpdateRing(cell::MetadataRing(view));
  }
  if (caches_ != nullptr) {
    Status updated = caches_->Update(cell::DataRing(view), cell::MetadataRing(view));
    // Going on with other caches than the cell's, nobody would see what is written.
    if (!updated.ok()) EndFor(std::move(updated));
  }
}

// --- its end ---

void Node::Leave(Callback<void(std::string)> left) {
  on_left_ = std::move(left);
  leaving_since_ = ports_.loop->Now();
  leaving_.emplace(leaving_since_, LeavingOptions());
  for (const auto& registration : registrations_) registration->RegisterNow();
  leave_timer_.After(Duration(), scope_.Bind([this] { LookWhetherLeft(); }));
}

void Node::LookWhetherLeft() {
  constexpr Duration kLook = Duration::Millis(20);
  int64_t operations = 0, of_the_last = 0;
  bool others = false;
  const auto count = [&](Role role, v1::Role what, int64_t running) {
    const bool there = HasOthers(what, NameOf(role));
    others = others || there;
    (there ? operations : of_the_last) += running;
  };
  if (reader_ != nullptr) count(Role::kReader, v1::ROLE_READER, reader_->operations());
  if (writer_ != nullptr) count(Role::kWriter, v1::ROLE_WRITER, writer_->operations());
  // With its own scheduler nobody would carry it out.
  if (Has(Role::kScheduler)) others = false;
  const auto why =
      leaving_->MayEnd(ports_.loop->Now(), others ? operations : operations + of_the_last, others);
  if (!why) return leave_timer_.After(kLook, scope_.Bind([this] { LookWhetherLeft(); }));
  if (reader_ != nullptr || writer_ != nullptr) {
    kLog.Info(config_.cell, "/", config_.name, " leaves: ", *why);
  }
  std::exchange(on_left_, nullptr)(*why);
}

bool Node::HasOthers(v1::Role role, const std::string& name) const {
  const auto& processes = cell_->view().processes();
  return std::any_of(processes.begin(), processes.end(), [&](const v1::ProcessInfo& p) {
    return p.role() == role && p.name() != name && !p.leaving();
  });
}

void Node::EndFor(Status why) {
  if (on_fatal_) std::exchange(on_fatal_, nullptr)(std::move(why));
}

std::string Node::StatusJson() const {
  nlohmann::json roles = nlohmann::json::array();
  for (Role role : roles_) roles.push_back(RoleName(role));
  const ResidentMemory memory = ReadResidentMemory();
  nlohmann::json json = {{"cell", config_.cell},
                         {"name", config_.name},
                         {"roles", roles},
                         {"incarnation", Raw(incarnation_)},
                         {"uptime_s", (ports_.loop->Now() - started_).seconds()},
                         {"restarts", Restarts()},
                         {"memory_bytes", memory.own},
                         {"cache_memory_bytes", memory.shared}};
  if (scheduler_ != nullptr) {
    json["scheduler"] = nlohmann::json::parse(scheduler_->StatusJson(), nullptr, false);
  }
  const auto client = [](const cache::Client& c, uint32_t ready,
                         const std::vector<cache::QuorumClient::Connection>& connections,
                         const memcached::ClientStats* memcached) {
    nlohmann::json counters;
    for (const cache::ClientMetric& metric : cache::ClientMetrics()) {
      counters[metric.key] = (c.counters().*(metric.count)).value();
    }
    counters["ready_replicas"] = ready;
    const auto way = [](const fabric::Way& w) {
      if (w.address.empty()) return nlohmann::json();
      return nlohmann::json{{"over", std::string(fabric::SchemeOf(w.address))},
                            {"why", fabric::ReasonOf(w)}};
    };
    for (const cache::QuorumClient::Connection& one : connections) {
      counters["connections"].push_back(
          {{"replica", one.replica}, {"reads", way(one.reads)}, {"writes", way(one.writes)}});
    }
    if (memcached == nullptr) return counters;
    for (const memcached::ClientMetric& metric : memcached::ClientMetrics()) {
      counters["memcached"][metric.key] = (memcached->*(metric.count)).value();
    }
    return counters;
  };
  if (caches_ != nullptr) {
    json["data_cache_client"] = client(caches_->data(), caches_->ready_data(),
                                       caches_->data_connections(), caches_->memcached_data());
    json["metadata_cache_client"] =
        client(caches_->metadata(), caches_->ready_metadata(), caches_->metadata_connections(),
               caches_->memcached_metadata());
  }
  if (metadata_server_ != nullptr) {
    json["metadata_cache"] = {{"repair", metadata_server_->RepairText()},
                              {"copied_epoch", Raw(metadata_server_->copied_epoch())}};
  }
  json["metrics"] = nlohmann::json::array();
  for (const MetricSample& sample : ports_.metrics->Snapshot()) {
    json["metrics"].push_back(
        {{"name", sample.name},
         {"labels", sample.labels},
         {"value", sample.unit == MetricUnit::kOne ? nlohmann::json(sample.value)
                                                   : nlohmann::json(sample.shown())}});
  }
  return json.dump();
}

}  // namespace tailcast::node
