// What befalls processes: they die, stay away, stop, begin twice, and lose track of time.
#include <string>
#include <utility>
#include <vector>

#include "tailcast/world/faults.h"
#include "tailcast/world/programs.h"

namespace tailcast::world {
namespace {

// Null: the cell has none.
Process* DrawProcess(Deployment& deployment, Rng& rng) {
  std::vector<Process*> all;
  for (auto& [name, p] : deployment.cell(DrawCell(deployment, rng)).processes) {
    if (!p->IsClient()) all.push_back(p.get());
  }
  return all.empty() ? nullptr : all[rng.Below(all.size())];
}

}  // namespace

void KillAndRestart(Deployment& d, const std::string& cell, const std::string& name) {
  d.Say("kill -9 " + cell + "/" + name);
  d.Restart(cell, name);
}

void TakeDown(Deployment& d, const std::string& cell, const std::string& name) {
  d.Say("down " + cell + "/" + name);
  d.TakeDown(cell, name);
}

void StopOne(Deployment& d, const std::string& cell, const std::string& name) {
  d.Say("stop " + cell + "/" + name);
  d.Stop(cell, name);
}

// First the network, so that nobody is told.
std::vector<std::string> LoseAll(Deployment& d, const std::string& cell) {
  std::vector<std::string> names;
  for (const auto& [name, p] : d.cell(cell).processes) {
    if (!p->IsClient()) names.push_back(name);
  }
  if (names.empty()) return names;
  d.Say("lose the cell " + cell);
  for (const std::string& other : d.cell_names()) {
    if (other != cell) d.network().Partition(cell, other, true);
  }
  for (const std::string& name : names) d.TakeDown(cell, name);
  return names;
}

void WipeCaches(Deployment& d, const std::string& cell) {
  std::vector<std::string> names;
  for (const auto& [name, p] : d.cell(cell).processes) {
    if (p->IsCache()) names.push_back(name);
  }
  d.Say("wipe the caches of " + cell);
  for (const std::string& name : names) d.Restart(cell, name);
}

void SetClockOff(Deployment& d, Process& p, Duration offset) {
  d.Say("the clock of " + p.full_name() + " is off by " + std::to_string(offset.millis()) + " ms");
  p.loop->SetWallOffset(offset);
}

void StartSecondScheduler(Deployment& d, const std::string& cell, Program program) {
  d.Say("a second scheduler in " + cell);
  d.StartOnce(cell, kSecondScheduler, std::move(program));
}

Fault KillProcess(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const Process* p = DrawProcess(d, rng);
    if (p == nullptr) return;
    KillAndRestart(d, std::string(p->cell), std::string(p->name));
  };
  return {.name = "kill", .apply = apply};
}

Fault StopProcess(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const Process* p = DrawProcess(d, rng);
    if (p == nullptr) return;
    StopOne(d, p->cell, p->name);
  };
  return {.name = "stop",
          .apply = apply,
          .heal = [&d] { d.Continue(); },
          .heal_some = [&d](Rng&) { d.ContinueFirst(); }};
}

Fault KeepDown(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const Process* p = DrawProcess(d, rng);
    if (p == nullptr) return;
    TakeDown(d, std::string(p->cell), std::string(p->name));
  };
  return {.name = "down",
          .apply = apply,
          .heal = [&d] { d.RaiseAll(); },
          .heal_some = [&d](Rng&) { d.RaiseFirst(); }};
}

Fault LoseCell(Deployment& d) {
  const auto apply = [&d](Rng& rng) { LoseAll(d, DrawCell(d, rng)); };
  const auto heal = [&d] {
    d.network().MendAll();
    d.RaiseAll();
  };
  return {.name = "cell", .apply = apply, .heal = heal};
}

Fault SecondScheduler(Deployment& d, Program program) {
  const auto apply = [&d, program](Rng& rng) {
    const std::string& cell = DrawCell(d, rng);
    if (d.cell(cell).processes.contains(kSecondScheduler)) return;
    StartSecondScheduler(d, cell, program);
  };
  const auto heal = [&d] {
    for (const std::string& cell : d.cell_names()) d.Kill(cell, kSecondScheduler);
  };
  return {.name = "schedulers", .apply = apply, .heal = heal};
}

Fault SetClock(Deployment& d, Duration most) {
  const auto apply = [&d, most](Rng& rng) {
    std::vector<Process*> all;
    for (auto& [name, p] : d.cell(DrawCell(d, rng)).processes) all.push_back(p.get());
    if (all.empty()) return;
    Process& p = *all[rng.Below(all.size())];
    SetClockOff(d, p, Duration::Micros(rng.Between(-most.micros(), most.micros())));
  };
  const auto heal = [&d] {
    for (const std::string& cell : d.cell_names()) {
      for (auto& [name, p] : d.cell(cell).processes) p->loop->SetWallOffset({});
    }
  };
  return {.name = "clock", .apply = apply, .heal = heal};
}

}  // namespace tailcast::world
