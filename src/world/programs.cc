#include "tailcast/world/programs.h"

#include <utility>

#include "tailcast/base/strong.h"

namespace tailcast::world {
namespace {

void Register(Process& p, const v1::ProcessInfo& info) {
  p.registration = std::make_unique<cell::Registration>(
      *p.loop, *p.cell_client,
      cell::Registration::Hooks{[&p, info] {
                                  v1::ProcessInfo now = info;
                                  if (p.metadata_server != nullptr) {
                                    now.set_copied_epoch(Raw(p.metadata_server->copied_epoch()));
                                  }
                                  return now;
                                },
                                [](MonotonicTime, const v1::RegisterReply&) {},
                                [&p](Status why) { p.fatal = std::move(why); }});
}

v1::ProcessInfo Info(const Process& p, v1::Role role) {
  v1::ProcessInfo info;
  info.set_name(p.name);
  info.set_role(role);
  info.set_incarnation(Raw(p.incarnation));
  info.set_rpc_address(p.address);
  return info;
}

}  // namespace

cell::Topology Chain(const Deployment& deployment) {
  const std::vector<std::string>& cells = deployment.cell_names();
  const double rtt_ms = 2.0 * static_cast<double>(deployment.options().link_delay.millis());
  cell::Topology topology;
  for (size_t i = 0; i < cells.size(); ++i) {
    topology.clusters.push_back(
        {.name = cells[i], .scheduler = deployment.SchedulerAddress(cells[i])});
    for (size_t j = 0; j < cells.size(); ++j) {
      if (i == j) continue;
      topology.links.push_back({.from = cells[i],
                                .to = cells[j],
                                .usd_per_gb = i + 1 == j || j + 1 == i ? 0.01 : 0.1,
                                .rtt_ms = rtt_ms});
    }
  }
  return topology;
}

Program RunNode(Deployment& deployment, NodeSetup setup) {
  return [&deployment, setup](Process& p) {
    cell::ProcessConfig config;
    config.cell = p.cell;
    config.name = setup.name.empty() ? p.name : setup.name;
    config.store = "posix:/simulated/" + p.cell;
    config.scheduler = p.cell + ":" + std::to_string(setup.scheduler_port);
    config.listen = p.cell + ":0";
    config.profile = setup.low_latency ? cell::Profile::kLowLatency : cell::Profile::kDefault;
    config.data_cache_bytes = setup.cache_bytes;
    config.metadata_cache_bytes = setup.cache_bytes / 2;
    for (int i = 1; i <= setup.caches + setup.spares; ++i) {
      (i <= setup.caches ? config.caches : config.spares).push_back("cache-" + std::to_string(i));
    }
    node::Ports ports;
    ports.loop = p.loop.get();
    ports.server = p.server.get();
    ports.connector = p.connector.get();
    ports.store = p.store.get();
    ports.records = p.store.get();
    ports.fabric = p.fabric.get();
    ports.metrics = &p.metrics;
    ports.seed = p.seed;
    ports.steps = p.steps.get();
    ports.jump_bytes = setup.jump_bytes;
    ports.balance = setup.balance;
    ports.make_exporter = p.make_exporter;
    const node::Role role = *node::ParseRole(p.name.substr(0, p.name.find('-')));
    cell::Topology topology = Chain(deployment);
    topology.slow_after_ms = setup.slow_after_ms;
    p.node = std::make_unique<node::Node>(ports, config, std::vector<node::Role>{role},
                                          std::move(topology));
    const Status started =
        p.node->Start("", p.scope.Bind([&p](Status why) { p.fatal = std::move(why); }));
    if (!started.ok()) p.fatal = started;
  };
}

Program RunScheduler(Deployment& deployment, const scheduler::SchedulerOptions& options) {
  return [&deployment, options](Process& p) mutable {
    scheduler::SchedulerOptions mine = options;
    mine.registry.cell = p.cell;
    mine.registry.store = "fake:";
    mine.seed = p.seed;
    for (const std::string& other : deployment.cell_names()) {
      if (other == p.cell) continue;
      mine.neighbours.push_back({other, deployment.SchedulerAddress(other), ""});
    }
    p.scheduler = std::make_unique<scheduler::SchedulerAgent>(*p.loop, *p.store, *p.connector,
                                                              p.metrics, std::move(mine));
    p.scheduler->Attach(*p.server);
    p.address = *p.server->Start(deployment.SchedulerAddress(p.cell));
    const auto on_fatal = [&p](const Status& s) {
      if (!s.ok()) p.fatal = s;
    };
    p.scheduler->Start(p.scope.Bind(on_fatal), p.scope.Bind(on_fatal));
  };
}

Program RunReader(Deployment& deployment, const reader::ReaderOptions& options) {
  return [&deployment, options](Process& p) {
    OpenCell(deployment, p);
    reader::ReaderOptions mine = options;
    mine.name = p.name;
    mine.cell = p.cell;
    mine.incarnation = p.incarnation;
    p.reader =
        std::make_unique<reader::ReaderAgent>(p.ports(), *p.connector, p.metrics, std::move(mine));
    p.reader->Attach(*p.server);
    p.address = *p.server->Start("");
    Register(p, Info(p, v1::ROLE_READER));
  };
}

Program RunWriter(Deployment& deployment, const writer::WriterOptions& options) {
  return [&deployment, options](Process& p) {
    OpenCell(deployment, p);
    writer::WriterOptions mine = options;
    mine.name = p.name;
    mine.cell = p.cell;
    p.writer = std::make_unique<writer::WriterAgent>(p.ports(), *p.cell_client, p.metrics,
                                                     std::move(mine));
    p.writer->Attach(*p.server);
    p.address = *p.server->Start("");
    Register(p, Info(p, v1::ROLE_WRITER));
  };
}

Program RunCacheServer(Deployment& deployment, const cache::ServerOptions& options) {
  return [&deployment, options](Process& p) {
    OpenCell(deployment, p);
    cache::ServerOptions mine = options;
    mine.name = p.name;
    mine.service = cache::kDataService;
    mine.incarnation = p.incarnation;
    p.data_exporter = p.make_exporter("data");
    p.data_server = std::make_unique<cache::Server>(p.loop.get(), p.data_exporter.get(),
                                                    p.server.get(), p.connector.get(), mine);
    mine.service = cache::kMetadataService;
    mine.value_bytes = 1024;
    p.metadata_exporter = p.make_exporter("metadata");
    p.metadata_server = std::make_unique<cache::Server>(p.loop.get(), p.metadata_exporter.get(),
                                                        p.server.get(), p.connector.get(), mine);
    p.cell_client->SetOnChange(p.scope.Bind([&p](const cell::CellView& view) {
      if (p.data_server != nullptr) p.data_server->UpdateRing(cell::DataRing(view));
      if (p.metadata_server != nullptr) p.metadata_server->UpdateRing(cell::MetadataRing(view));
    }));
    p.address = *p.server->Start("");
    v1::ProcessInfo info = Info(p, v1::ROLE_CACHE);
    const auto data = p.data_server->Start();
    const auto metadata = p.metadata_server->Start();
    for (const std::string& a : *data) info.add_data_fabric(a);
    for (const std::string& a : *metadata) info.add_metadata_fabric(a);
    Register(p, info);
  };
}

Program RunClient(Deployment& deployment) {
  return [&deployment](Process& p) { OpenCell(deployment, p); };
}

void OpenCell(Deployment& deployment, Process& p) {
  p.cell_client = std::make_unique<cell::CellClient>(*p.loop, *p.connector,
                                                     deployment.SchedulerAddress(p.cell), "");
  if (deployment.options().caches == CacheKind::kServers) {
    const auto open = [&p](const char* service) {
      cache::QuorumClientOptions options;
      options.seed = p.seed;
      options.service = service;
      return std::make_unique<cache::QuorumClient>(p.loop.get(), p.fabric.get(), p.connector.get(),
                                                   options, cache::RingConfig());
    };
    auto data = open(cache::kDataService);
    auto metadata = open(cache::kMetadataService);
    p.cell_client->SetOnChange(p.scope.Bind(
        [&p, data = data.get(), metadata = metadata.get()](const cell::CellView& view) {
          if (p.data_cache != nullptr) data->UpdateRing(cell::DataRing(view));
          if (p.metadata_cache != nullptr) metadata->UpdateRing(cell::MetadataRing(view));
        }));
    p.data_cache = std::move(data);
    p.metadata_cache = std::move(metadata);
  }
  p.cell_client->Start(Duration::Infinite(), p.scope.Bind([](const Status&) {}));
}

}  // namespace tailcast::world
