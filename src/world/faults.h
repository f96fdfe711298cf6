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

// --- The faults that exist. `deployment` outlives them. ---

// kill -9 of a process of a cell (not of a user's), and its restart.
Fault KillProcess(Deployment& deployment);
// SIGSTOP of one. heal_some: SIGCONT of the one that was stopped first.
Fault StopProcess(Deployment& deployment);
// The link between two cells is cut or mended, in both directions or in one.
Fault CutLink(Deployment& deployment);
// One-sided reads are torn, late, lost or slow; notifications get lost.
Fault BadFabric(Deployment& deployment);
// A data cache server answers late.
Fault SlowPeer(Deployment& deployment);
// The primary layer of a cell of `cells` errs, stalls and forgets answers.
Fault BadDisk(Deployment& deployment, std::vector<std::string> cells);
// Power loss of the primary layer of a cell of `cells`.
Fault PowerLoss(Deployment& deployment, std::vector<std::string> cells);
// CacheKind::kMemory: a cell's cache misses, loses and delays; and it forgets everything.
Fault BadMemoryCache(Deployment& deployment, std::function<cache::MemoryFaults(Rng&)> draw);
Fault EvictMemoryCache(Deployment& deployment);

}  // namespace tailcast::world
