// What may go wrong in a simulated deployment: a table. Each fault has a name, how likely it is in
// a turn, and how it is applied and healed.
//
//   Faults faults(Rng(seed).Fork("faults"));
//   faults.Add(KillProcess(deployment), 0.3);
//   faults.Add(CutLink(deployment), 0.2, 0.1);      // each turn heals it with probability 0.1
//   while (...) { deployment.time().RunFor(...); faults.Turn(); }
//   faults.HealAll();
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/world/deployment.h"

namespace tailcast::world {

struct Fault {
  std::string name;
  // Something goes wrong, drawn from `rng`; again while it lasts is allowed.
  std::function<void(Rng& rng)> apply;
  // All is as if nothing had been applied. Null: it heals by itself.
  std::function<void()> heal;
  // Heals a part of it, or all (null: `heal`), when a turn draws that.
  std::function<void(Rng& rng)> heal_some;
};

class Faults {
 public:
  explicit Faults(Rng rng) : rng_(rng) {}

  // `apply`, `heal`: probabilities in a turn.
  void Add(Fault fault, double apply, double heal = 0);
  // Each fault of the table is applied, healed or left alone, as is drawn.
  void Turn();
  void HealAll();
  int applied() const { return applied_; }

 private:
  struct Row {
    Fault fault;
    double apply = 0, heal = 0;
  };
  Rng rng_;
  std::vector<Row> table_;
  int applied_ = 0;
};

const std::string& DrawCell(Deployment& deployment, Rng& rng);

// --- The faults that exist. `deployment` outlives them. ---

// kill -9 of a process of a cell (not of a user's), and its restart.
Fault KillProcess(Deployment& deployment);
// SIGSTOP of one. heal_some: SIGCONT of the one that was stopped first.
Fault StopProcess(Deployment& deployment);
// kill -9 of one, which stays down. heal_some: the one that went down first is started.
Fault KeepDown(Deployment& deployment);
// All processes of a cell die and nobody is told: its links are cut as well.
Fault LoseCell(Deployment& deployment);
// Somebody starts another scheduler beside the one of a cell; `program` runs it, at an address of
// its own.
inline constexpr char kSecondScheduler[] = "scheduler-2";
Fault SecondScheduler(Deployment& deployment, Program program);
// The wall clock of a process, a user's too, steps to another time, `most` off in either direction.
Fault SetClock(Deployment& deployment, Duration most);

// The link between two cells is cut or mended, in both directions or in one.
Fault CutLink(Deployment& deployment);
// Connections between two cells, or within one, break at once.
Fault ResetConnections(Deployment& deployment);
// Two processes of a cell, users' among them, do not reach each other, in one direction or both.
Fault CutInside(Deployment& deployment);
// A link has little bandwidth and a long way.
Fault ClogLink(Deployment& deployment);
// One-sided reads are torn, late, lost or slow; notifications get lost.
Fault BadFabric(Deployment& deployment);
// A data cache server answers late.
Fault SlowPeer(Deployment& deployment);
// The primary layer of a cell of `cells` errs, stalls and forgets answers.
Fault BadDisk(Deployment& deployment, const std::vector<std::string>& cells);
// Power loss of the primary layer of a cell of `cells`.
Fault PowerLoss(Deployment& deployment, const std::vector<std::string>& cells);
// CacheKind::kMemory: a cell's cache misses, loses and delays; and it forgets everything.
Fault BadMemoryCache(Deployment& deployment, std::function<cache::MemoryFaults(Rng&)> draw);
Fault EvictMemoryCache(Deployment& deployment);

}  // namespace tailcast::world
