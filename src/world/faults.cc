#include "tailcast/world/faults.h"

#include <iterator>
#include <utility>

namespace tailcast::world {
namespace {

const std::string& DrawCell(Deployment& deployment, Rng& rng) {
  return deployment.cell_names()[rng.Below(deployment.cell_names().size())];
}

// Null: the cell has none.
Process* DrawProcess(Deployment& deployment, Rng& rng) {
  std::vector<Process*> all;
  for (auto& [name, p] : deployment.cell(DrawCell(deployment, rng)).processes) {
    if (!p->IsClient()) all.push_back(p.get());
  }
  return all.empty() ? nullptr : all[rng.Below(all.size())];
}

CacheLayer DrawLayer(Rng& rng) {
  return rng.Chance(0.5) ? CacheLayer::kData : CacheLayer::kMetadata;
}

}  // namespace

void Faults::Add(Fault fault, double apply, double heal) {
  table_.push_back({std::move(fault), apply, heal});
}

void Faults::Turn() {
  for (Row& row : table_) {
    if (rng_.Chance(row.apply)) {
      ++applied_;
      row.fault.apply(rng_);
    } else if (row.heal > 0 && rng_.Chance(row.heal)) {
      row.fault.heal_some ? row.fault.heal_some(rng_) : row.fault.heal();
    }
  }
}

void Faults::HealAll() {
  for (Row& row : table_) {
    if (row.fault.heal) row.fault.heal();
  }
}

Fault KillProcess(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const Process* p = DrawProcess(d, rng);
    if (p == nullptr) return;
    const std::string cell = p->cell;
    const std::string name = p->name;
    d.Say("kill -9 " + cell + "/" + name);
    d.Restart(cell, name);
  };
  return {.name = "kill", .apply = apply};
}

Fault StopProcess(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const Process* p = DrawProcess(d, rng);
    if (p == nullptr) return;
    d.Say("stop " + p->full_name());
    d.Stop(p->cell, p->name);
  };
  return {.name = "stop",
          .apply = apply,
          .heal = [&d] { d.Continue(); },
          .heal_some = [&d](Rng&) { d.ContinueFirst(); }};
}

Fault CutLink(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::vector<std::string>& cells = d.cell_names();
    if (cells.size() < 2) return;
    const size_t a = rng.Below(cells.size());
    const size_t b = (a + 1 + rng.Below(cells.size() - 1)) % cells.size();
    const bool cut = rng.Chance(0.55);
    d.Say((cut ? "cut " : "mend ") + cells[a] + " -> " + cells[b]);
    if (rng.Chance(0.5)) {
      d.network().Partition(cells[a], cells[b], cut);
    } else {
      d.network().Cut(cells[a], cells[b], cut);
    }
  };
  return {.name = "cut", .apply = apply, .heal = [&d] { d.network().MendAll(); }};
}

Fault BadFabric(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    fabric::FakeLink link;
    if (!rng.Chance(0.7)) return d.fabric().SetEveryLink(link);
    d.Say("a bad fabric");
    link.torn_probability = rng.Unit() * 0.2;
    link.late_probability = rng.Unit() * 0.01;
    link.lost_probability = rng.Unit() * 0.002;
    link.tail_probability = rng.Unit() * 0.05;
    link.notification_loss_probability = rng.Unit() * 0.2;
    link.jitter = Duration::Micros(rng.Between(0, 500));
    d.fabric().SetEveryLink(link);
  };
  return {.name = "fabric", .apply = apply, .heal = [&d] { d.fabric().SetEveryLink({}); }};
}

Fault SlowPeer(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::string server = DrawCell(d, rng) + "/cache-1.data";
    const Duration delay = rng.Chance(0.5) ? Duration::Millis(rng.Between(1, 100)) : Duration();
    d.Say(server + " is slow by " + std::to_string(delay.millis()) + " ms");
    d.fabric().SetServerDelay(server, delay);
  };
  const auto heal = [&d] {
    for (const std::string& cell : d.cell_names()) {
      d.fabric().SetServerDelay(cell + "/cache-1.data", Duration());
    }
  };
  return {.name = "slow", .apply = apply, .heal = heal};
}

Fault BadDisk(Deployment& d, std::vector<std::string> cells) {
  const auto apply = [&d, cells](Rng& rng) {
    if (cells.empty()) return;
    const std::string& cell = cells[rng.Below(cells.size())];
    storage::FakeDiskOptions disk;
    if (rng.Chance(0.7)) {
      disk = storage::FakeDiskOptions::Swarm(rng);
      disk.late_landing_max = Duration::Seconds(3);
      d.Say("a bad disk in " + cell);
    }
    d.cell(cell).disk->SetOptions(disk);
  };
  const auto heal = [&d, cells] {
    for (const std::string& cell : cells) d.cell(cell).disk->SetOptions({});
  };
  return {.name = "disk", .apply = apply, .heal = heal};
}

Fault PowerLoss(Deployment& d, std::vector<std::string> cells) {
  const auto apply = [&d, cells](Rng& rng) {
    const std::string& cell = cells[rng.Below(cells.size())];
    d.Say("power loss in " + cell);
    d.cell(cell).disk->PowerLoss();
  };
  return {.name = "power", .apply = apply};
}

Fault BadMemoryCache(Deployment& d, std::function<cache::MemoryFaults(Rng&)> draw) {
  const auto apply = [&d, draw = std::move(draw)](Rng& rng) {
    const std::string& cell = DrawCell(d, rng);
    d.Say("a bad cache in " + cell);
    const cache::MemoryFaults faults = draw(rng);
    d.cell(cell).memory(DrawLayer(rng)).SetFaults(faults);
  };
  const auto heal = [&d] {
    for (const std::string& cell : d.cell_names()) {
      d.cell(cell).data->SetFaults({});
      d.cell(cell).metadata->SetFaults({});
    }
  };
  return {.name = "cache", .apply = apply, .heal = heal};
}

Fault EvictMemoryCache(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::string& cell = DrawCell(d, rng);
    d.Say("an empty cache in " + cell);
    d.cell(cell).memory(DrawLayer(rng)).EvictAll();
  };
  return {.name = "evict", .apply = apply};
}

}  // namespace tailcast::world
