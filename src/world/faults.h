// What may go wrong in a simulated deployment: a table. Each fault has a name, how likely it is in
// a turn, and how it is applied and healed.
//
//   Faults faults(Rng(seed).Fork("faults"));
//   faults.Add(KillProcess(deployment), 0.3);
//   faults.Add(CutLink(deployment), 0.2, 0.1);      // each turn heals it with probability 0.1
//   while (...) { deployment.time().RunFor(...); faults.Turn(); }
//   faults.HealAll();
#pragma once

#include <cstdint>
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

// --- `deployment` outlives all that follows. ---

// What drawn faults and scenarios (scenario.h) do, and what they say of it.

void KillAndRestart(Deployment& deployment, const std::string& cell, const std::string& name);
void TakeDown(Deployment& deployment, const std::string& cell, const std::string& name);
void StopOne(Deployment& deployment, const std::string& cell, const std::string& name);
// All processes of a cell die and nobody is told: its links are cut as well. Says which died.
std::vector<std::string> LoseAll(Deployment& deployment, const std::string& cell);
// All caches of a cell are killed and start again, empty.
void WipeCaches(Deployment& deployment, const std::string& cell);
void SetClockOff(Deployment& deployment, Process& process, Duration offset);
enum class Ways : uint8_t { kOne, kBoth };
// The link from one cell to another is cut or mended.
void CutCells(Deployment& deployment, const std::string& from, const std::string& to, Ways ways,
              bool cut);
// The same of two processes of one cell (full names), their one-sided reads too.
void CutProcesses(Deployment& deployment, const std::string& from, const std::string& to, Ways ways,
                  bool cut);
void Clog(Deployment& deployment, const std::string& from, const std::string& to,
          int64_t bytes_per_second, Duration delay);
void Unclog(Deployment& deployment, const std::string& from, const std::string& to);
void ResetBetween(Deployment& deployment, const std::string& a, const std::string& b);
// Reads at a data cache server (the full name of its process) take so much longer.
void SlowDown(Deployment& deployment, const std::string& cache, Duration delay);
void LosePower(Deployment& deployment, const std::string& cell);
// Each request to the primary layer of a cell takes so long; 0: as it was.
void SlowDisk(Deployment& deployment, const std::string& cell, Duration delay);
void StartSecondScheduler(Deployment& deployment, const std::string& cell, Program program);

// The faults that are drawn.

// kill -9 of a process of a cell (not of a user's), and its restart.
Fault KillProcess(Deployment& deployment);
// SIGSTOP of one. heal_some: SIGCONT of the one that was stopped first.
Fault StopProcess(Deployment& deployment);
// kill -9 of one, which stays down. heal_some: the one that went down first is started.
Fault KeepDown(Deployment& deployment);
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
