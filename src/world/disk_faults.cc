// What befalls what is stored: disks, and the caches in memory that stand for servers.
#include <functional>
#include <utility>

#include "tailcast/world/faults.h"

namespace tailcast::world {
namespace {

CacheLayer DrawLayer(Rng& rng) {
  return rng.Chance(0.5) ? CacheLayer::kData : CacheLayer::kMetadata;
}

}  // namespace

void LosePower(Deployment& d, const std::string& cell) {
  d.Say("power loss in " + cell);
  d.cell(cell).disk->PowerLoss();
}

void SlowDisk(Deployment& d, const std::string& cell, Duration delay) {
  d.Say("requests to the disk of " + cell + " take " +
        (delay == Duration() ? "as long as they did" : std::to_string(delay.millis()) + " ms"));
  storage::FakeDiskOptions disk;
  if (delay > Duration()) disk.request.base = delay;
  d.cell(cell).disk->SetOptions(disk);
}

Fault BadDisk(Deployment& d, const std::vector<std::string>& cells) {
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

Fault PowerLoss(Deployment& d, const std::vector<std::string>& cells) {
  const auto apply = [&d, cells](Rng& rng) { LosePower(d, cells[rng.Below(cells.size())]); };
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
