#include "tailcast/world/deployment.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/strong.h"

namespace tailcast::world {
namespace {

constexpr const char* kInstances[] = {"data", "metadata"};

}  // namespace

Deployment::Deployment(DeploymentOptions options)
    : options_(std::move(options)),
      rng_(Rng(options_.seed).Fork("world")),
      time_(options_.seed),
      network_(time_, Rng(options_.seed).Fork("network"), options_.network) {
  wire_ = time_.MakeLoop("wire");
  fabric_ = std::make_unique<fabric::FakeFabricNetwork>(wire_.get(), rng_.Next());
  fabric_->SetTrace([this](uint64_t value) { time_.Trace(value); });
  for (const std::string& a : options_.cells) {
    for (const std::string& b : options_.cells) {
      sim::Link& link = network_.LinkBetween(a, b);
      if (a != b) link.delay = options_.DelayOf(a, b);
      link.jitter = a != b ? options_.link_jitter : options_.link_jitter / 10;
    }
  }
  for (const std::string& name : options_.cells) {
    auto cell = std::make_unique<Cell>();
    cell->name = name;
    cell->disk_loop = time_.MakeLoop(name + "/disk");
    cell->disk = std::make_unique<storage::FakeDisk>(cell->disk_loop.get(), rng_.Next());
    cell->disk->SetTrace([this](uint64_t value) { time_.Trace(value); });
    cell->steps = MakeSteps(name, "disk");
    cell->disk->SetSteps(cell->steps.get());
    cell->data = std::make_unique<cache::MemoryStore>(rng_.Next());
    cell->metadata = std::make_unique<cache::MemoryStore>(rng_.Next());
    cells_[name] = std::move(cell);
  }
}

Deployment::~Deployment() {
  for (auto& [name, cell] : cells_) {
    while (!cell->processes.empty()) Kill(name, cell->processes.begin()->first);
  }
}

std::unique_ptr<StepLog> Deployment::MakeSteps(const std::string& cell, const std::string& name) {
  if (!options_.steps) return nullptr;
  // Nanoseconds of virtual time, a step apart.
  const auto clock = [this] {
    return last_stamp_ = std::max(last_stamp_ + 1, time_.now().micros() * 1000);
  };
  return std::make_unique<StepLog>(cell, name + "." + std::to_string(++step_logs_), clock,
                                   options_.steps);
}

void Deployment::Say(const std::string& text) {
  if (say_) say_(time_.now(), text);
}

Process& Deployment::Start(const std::string& cell_name, const std::string& name, Program program) {
  Cell& cell = *cells_.at(cell_name);
  auto made = std::make_unique<Process>();
  Process* const p = made.get();
  p->cell = cell_name;
  p->name = name;
  p->incarnation = last_incarnation_ = Successor(last_incarnation_);
  p->seed = rng_.Next() | 1;
  p->program = std::move(program);
  p->steps = MakeSteps(cell_name, name);
  p->loop = time_.MakeLoop(p->full_name());
  if (const int64_t most = options_.clock_drift_us_per_s; most > 0) {
    p->loop->SetDrift(Rng(options_.seed).Fork("drift " + p->full_name()).Between(-most, most));
  }
  p->store = std::make_unique<storage::FakeStore>(
      cell.disk.get(), p->loop.get(),
      name.starts_with("scheduler") ? storage::StoreUse::kRecords : storage::StoreUse::kMessages);
  p->connector = network_.MakeConnector(*p->loop, cell_name);
  p->fabric = fabric_->MakeConnector(p->full_name(), p->loop.get());
  p->server = network_.MakeServer(*p->loop, cell_name);
  p->make_exporter = [this, full = p->full_name(),
                      loop = p->loop.get()](const std::string& instance) {
    return fabric_->MakeExporter(full + "." + instance, {.loop = loop});
  };
  if (options_.caches == CacheKind::kMemory) {
    p->data_cache = std::make_unique<cache::MemoryClient>(p->loop.get(), cell.data.get());
    p->metadata_cache = std::make_unique<cache::MemoryClient>(p->loop.get(), cell.metadata.get());
  }
  cell.processes[name] = std::move(made);
  if (p->program) p->loop->Post(p->scope.Bind([p] { p->program(*p); }));
  return *p;
}

void Deployment::Kill(const std::string& cell_name, const std::string& name) {
  auto found = cells_.at(cell_name)->processes.extract(name);
  if (found.empty()) return;
  std::erase(stopped_, std::pair(cell_name, name));
  Process& p = *found.mapped();
  if (on_kill_) on_kill_(p);
  network_.Disconnect(*p.loop);
  if (p.IsCache()) {
    for (const char* instance : kInstances) fabric_->Kill(p.full_name() + "." + instance);
  }
  p.loop->Kill();
}

Process& Deployment::StartOnce(const std::string& cell, const std::string& name, Program program) {
  Process& p = Start(cell, name, std::move(program));
  p.once = true;
  return p;
}

void Deployment::TakeDown(const std::string& cell, const std::string& name) {
  down_.push_back({cell, name, process(cell, name).program});
  Kill(cell, name);
}

void Deployment::RaiseFirst() {
  if (down_.empty()) return;
  const Down first = std::move(down_.front());
  down_.erase(down_.begin());
  Say("start " + first.cell + "/" + first.name);
  Start(first.cell, first.name, first.program);
}

void Deployment::Raise(const std::string& cell, const std::string& name) {
  const auto is = [&](const Down& down) { return down.cell == cell && down.name == name; };
  const auto found = std::find_if(down_.begin(), down_.end(), is);
  if (found == down_.end()) return;
  std::rotate(down_.begin(), found, found + 1);
  RaiseFirst();
}

void Deployment::RaiseAll() {
  while (!down_.empty()) RaiseFirst();
}

Process& Deployment::Restart(const std::string& cell, const std::string& name) {
  Program program = process(cell, name).program;
  Kill(cell, name);
  return Start(cell, name, std::move(program));
}

void Deployment::ReviveDead() {
  for (auto& [cell_name, cell] : cells_) {
    std::vector<std::string> dead;
    for (auto& [name, p] : cell->processes) {
      if (p->fatal || p->left) dead.push_back(name);
    }
    for (const std::string& name : dead) {
      const Process& p = *cell->processes[name];
      Say(p.full_name() + " ended" +
          (p.left ? ", as it was asked to" : ": " + p.fatal->ToString()));
      if (p.once || p.left) {
        Kill(cell_name, name);
      } else {
        Restart(cell_name, name);
      }
    }
  }
}

void Deployment::AskToEnd(const std::string& cell, const std::string& name) {
  Process& p = process(cell, name);
  Say(p.full_name() + " is asked to end");
  p.loop->Post(p.scope.Bind(
      [&p] { p.node->Leave(p.scope.Bind([&p](const std::string&) { p.left = true; })); }));
}

void Deployment::Stop(const std::string& cell, const std::string& name) {
  Process& p = process(cell, name);
  p.loop->Pause();
  if (p.IsCache()) {
    for (const char* instance : kInstances) fabric_->Stop(p.full_name() + "." + instance);
  }
  stopped_.emplace_back(cell, name);
}

void Deployment::Resume(const std::string& cell, const std::string& name) {
  Process& p = process(cell, name);
  if (p.IsCache()) {
    for (const char* instance : kInstances) fabric_->Continue(p.full_name() + "." + instance);
  }
  p.loop->Resume();
}

void Deployment::Continue() {
  for (const auto& [cell, name] : std::exchange(stopped_, {})) Resume(cell, name);
}

void Deployment::ContinueFirst() {
  if (stopped_.empty()) return;
  const auto [cell, name] = stopped_.front();
  Continue(cell, name);
}

void Deployment::Continue(const std::string& cell, const std::string& name) {
  // A process may have been stopped twice.
  if (std::erase(stopped_, std::pair(cell, name)) == 0) return;
  Say("continue " + cell + "/" + name);
  Resume(cell, name);
}

std::vector<Deployment::CacheServer> Deployment::CacheServers(const std::string& cell,
                                                              CacheLayer layer) {
  std::vector<CacheServer> servers;
  const bool data = layer == CacheLayer::kData;
  for (const auto& [name, p] : cells_.at(cell)->processes) {
    const cache::Server* server = (data ? p->data_server : p->metadata_server).get();
    if (p->node != nullptr) {
      server = data ? p->node->data_cache_server() : p->node->metadata_cache_server();
    }
    if (server != nullptr && server->core() != nullptr) servers.push_back({p.get(), server});
  }
  return servers;
}

std::vector<Deployment::Copy> Deployment::PeekReplicas(const std::string& cell_name,
                                                       CacheLayer layer, cache::Key key) {
  std::vector<Copy> copies;
  if (options_.caches == CacheKind::kMemory) {
    if (auto value = cells_.at(cell_name)->memory(layer).Get(key)) {
      copies.push_back({ProcessIncarnation::kNone, std::move(*value)});
    }
    return copies;
  }
  for (const auto& [process, server] : CacheServers(cell_name, layer)) {
    const auto value = server->core()->Get({process->loop->Now(), process->loop->WallNow()}, key);
    if (!value) continue;
    const cache::ServerStats stats = server->core()->stats();
    copies.push_back(
        {process->incarnation, std::string(value->bytes), stats.collected + stats.expired});
  }
  return copies;
}

std::vector<std::string> Deployment::PeekCaches(const std::string& cell, CacheLayer layer,
                                                cache::Key key) {
  std::vector<std::string> bytes;
  for (Copy& copy : PeekReplicas(cell, layer, key)) bytes.push_back(std::move(copy.bytes));
  return bytes;
}

}  // namespace tailcast::world
