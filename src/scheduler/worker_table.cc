#include "tailcast/scheduler/worker_table.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tailcast::scheduler {

std::vector<std::string> WorkerTable::SetReaders(MonotonicTime now,
                                                 const std::vector<WorkerInfo>& readers) {
  std::vector<std::string> lost;
  std::set<std::string> names;
  for (const WorkerInfo& info : readers) {
    names.insert(info.name);
    Worker& reader = readers_.workers[info.name];
    const bool replaced = reader.present && reader.info.incarnation != info.incarnation;
    reader.info = info;
    if (replaced) {
      LoseReader(now, info.name);
      lost.push_back(info.name);
      // What its predecessor did wrong is forgotten.
      reader.avoid_until = now;
      reader.avoided = {};
      readers_.speed.Forget(info.name);
    }
    if (!reader.present || replaced) reader.lost = false;
    reader.present = true;
  }
  for (auto& [name, reader] : readers_.workers) {
    if (!reader.present || names.contains(name)) continue;
    LoseReader(now, name);
    lost.push_back(name);
    reader.present = false;
  }
  return lost;
}

bool WorkerTable::LoseReader(MonotonicTime now, const std::string& name) {
  const auto reader = readers_.workers.find(name);
  if (reader == readers_.workers.end()) return false;
  if (std::exchange(reader->second.lost, true)) return true;
  ++readers_lost_;
  Blame(now, reader->second);
  return true;
}

void WorkerTable::FindReader(const std::string& name) {
  const auto it = readers_.workers.find(name);
  if (it != readers_.workers.end()) it->second.lost = false;
}

void WorkerTable::SetWriters(MonotonicTime now, const std::string& cell, const std::string& via,
                             const std::vector<WorkerInfo>& writers) {
  Cell& target = CellOf(cell);
  target.via = via;
  std::set<std::string> names;
  for (const WorkerInfo& info : writers) {
    names.insert(info.name);
    Worker& writer = target.writers.workers[info.name];
    // A new process of the name: what its predecessor did wrong is forgotten.
    if (writer.info.incarnation != info.incarnation) {
      writer.avoid_until = now;
      writer.avoided = {};
      target.writers.speed.Forget(info.name);
    }
    writer.info = info;
  }
  for (auto& [name, writer] : target.writers.workers) writer.present = names.contains(name);
}

void WorkerTable::AvoidReader(MonotonicTime now, const std::string& name) {
  const auto it = readers_.workers.find(name);
  if (it != readers_.workers.end()) Blame(now, it->second);
}

void WorkerTable::AvoidWriter(MonotonicTime now, const std::string& cell, const std::string& name) {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return;
  Workers& writers = target->second.writers.workers;
  const auto it = writers.find(name);
  if (it != writers.end()) Blame(now, it->second);
}

// All operations of a worker may fail at once: that is one failure.
void WorkerTable::Blame(MonotonicTime now, Worker& worker) const {
  if (now >= worker.avoid_until) {
    const bool again = now < worker.avoid_until + worker.avoided * 10;
    worker.avoided = again ? std::min(worker.avoided * 2, options_.avoid_max) : options_.avoid;
  }
  worker.avoid_until = now + worker.avoided;
}

template <typename Table, typename Function>
void WorkerTable::ForEachPool(Table& table, Function function) {
  function(std::string(), table.readers_);
  for (auto& [name, cell] : table.cells_) function(name, cell.writers);
}

void WorkerTable::NoteReadTime(MonotonicTime now, const std::string& reader, stream::Layer layer,
                               Duration took) {
  readers_.speed.OnTime(now, reader, layer, took);
}

void WorkerTable::NoteWriteTime(MonotonicTime now, const std::string& cell,
                                const std::string& writer, stream::Layer layer, Duration took) {
  CellOf(cell).writers.speed.OnTime(now, writer, layer, took);
}

void WorkerTable::JudgeSpeeds(MonotonicTime now) {
  ForEachPool(*this, [&](const std::string&, Pool& pool) {
    std::set<std::string> there;
    for (const auto& [name, worker] : pool.workers) {
      if (worker.usable()) there.insert(name);
    }
    pool.speed.OnWindow(now, there);
  });
}

int WorkerTable::AvoidRank(MonotonicTime now, const Pool& pool, const Worker& worker) {
  if (worker.avoid_until > now) return 2;
  switch (pool.speed.state(now, worker.info.name)) {
    case WorkerSpeed::State::kSlow:
      return 1;
    case WorkerSpeed::State::kOnTrial:
      return worker.load.operations > 0 ? 1 : 0;
    case WorkerSpeed::State::kHealthy:
      break;
  }
  return 0;
}

const WorkerTable::Worker* WorkerTable::PickOne(MonotonicTime now, const Pool& pool,
                                                stream::Layer layer,
                                                const Preferred& preferred) const {
  const Workers& workers = pool.workers;
  const auto load = [&](const Worker& worker) {
    return worker.load.bytes_per_s -
           (worker.info.name == preferred.name ? preferred.bytes_per_s : 0);
  };
  const auto better = [&](const Worker& a, const Worker& b) {
    const int a_rank = AvoidRank(now, pool, a), b_rank = AvoidRank(now, pool, b);
    if (a_rank != b_rank) return a_rank < b_rank;
    if (a_rank == 2 && a.avoid_until != b.avoid_until) return a.avoid_until < b.avoid_until;
    if (load(a) != load(b)) return load(a) < load(b);
    const int l = static_cast<int>(layer);
    return a.load.of_layer[l] < b.load.of_layer[l];
  };
  const Worker* best = nullptr;
  for (const auto& [name, worker] : workers) {
    if (worker.usable() && (best == nullptr || better(worker, *best))) best = &worker;
  }
  if (best == nullptr) return nullptr;
  const auto it = workers.find(preferred.name);
  if (it != workers.end() && it->second.usable() && AvoidRank(now, pool, it->second) == 0 &&
      !ClearlyBusier(options_.balance, load(it->second), load(*best))) {
    return &it->second;
  }
  return best;
}

std::optional<Assignment> WorkerTable::Pick(MonotonicTime now, const std::string& cell,
                                            stream::Layer layer, const Preferred& preferred_reader,
                                            const Preferred& preferred_writer) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return std::nullopt;
  const Worker* reader = PickOne(now, readers_, layer, preferred_reader);
  const Worker* writer = PickOne(now, target->second.writers, layer, preferred_writer);
  if (reader == nullptr || writer == nullptr) return std::nullopt;
  return Assignment{reader->info.name, writer->info.name, writer->info.address, target->second.via};
}

void WorkerTable::AddLoad(const std::string& cell, stream::Layer layer, const Assignment& workers,
                          int64_t bytes_per_s) {
  for (Load* load : {&readers_.workers[workers.reader].load,
                     &CellOf(cell).writers.workers[workers.writer].load}) {
    ++load->operations;
    ++load->of_layer[static_cast<int>(layer)];
  }
  ChangeLoad(cell, workers, bytes_per_s);
}

void WorkerTable::DropLoad(const std::string& cell, stream::Layer layer, const Assignment& workers,
                           int64_t bytes_per_s) {
  for (Load* load : {&readers_.workers.at(workers.reader).load,
                     &cells_.at(cell).writers.workers.at(workers.writer).load}) {
    --load->operations;
    --load->of_layer[static_cast<int>(layer)];
  }
  ChangeLoad(cell, workers, -bytes_per_s);
}

void WorkerTable::ChangeLoad(const std::string& cell, const Assignment& workers,
                             int64_t by_bytes_per_s) {
  readers_.workers.at(workers.reader).load.bytes_per_s += by_bytes_per_s;
  cells_.at(cell).writers.workers.at(workers.writer).load.bytes_per_s += by_bytes_per_s;
}

std::optional<WorkerTable::Shedding> WorkerTable::ImbalanceOf(MonotonicTime now,
                                                              const Pool& pool) const {
  const Worker* most = nullptr;
  const Worker* least = nullptr;
  for (const auto& [name, worker] : pool.workers) {
    if (!worker.usable()) continue;
    const int64_t load = worker.load.bytes_per_s;
    if (most == nullptr || load > most->load.bytes_per_s) most = &worker;
    if (AvoidRank(now, pool, worker) > 0) continue;
    if (least == nullptr || load < least->load.bytes_per_s) least = &worker;
  }
  if (most == nullptr || least == nullptr ||
      !ClearlyBusier(options_.balance, most->load.bytes_per_s, least->load.bytes_per_s)) {
    return std::nullopt;
  }
  return Shedding{"", most->info.name, least->info.name,
                  most->load.bytes_per_s - least->load.bytes_per_s};
}

std::vector<WorkerTable::Shedding> WorkerTable::Imbalances(MonotonicTime now) const {
  std::vector<Shedding> all;
  ForEachPool(*this, [&](const std::string& cell, const Pool& pool) {
    if (auto shedding = ImbalanceOf(now, pool)) {
      all.push_back(std::move(*shedding));
      all.back().cell = cell;
    }
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const Shedding& a, const Shedding& b) { return a.gap > b.gap; });
  return all;
}

std::vector<WorkerTable::Leaver> WorkerTable::Leavers() const {
  std::vector<Leaver> leavers;
  ForEachPool(*this, [&](const std::string& cell, const Pool& pool) {
    const bool others = std::any_of(pool.workers.begin(), pool.workers.end(),
                                    [](const auto& w) { return w.second.usable(); });
    for (const auto& [name, worker] : pool.workers) {
      if (others && worker.present && worker.info.leaving && worker.load.operations > 0) {
        leavers.push_back({cell, name});
      }
    }
  });
  return leavers;
}

std::vector<WorkerTable::Leaver> WorkerTable::Slow(MonotonicTime now) const {
  std::vector<Leaver> slow;
  ForEachPool(*this, [&](const std::string& cell, const Pool& pool) {
    const bool others = std::any_of(pool.workers.begin(), pool.workers.end(), [&](const auto& w) {
      return w.second.usable() && AvoidRank(now, pool, w.second) == 0;
    });
    for (const auto& [name, worker] : pool.workers) {
      if (others && worker.usable() && worker.load.operations > 0 &&
          pool.speed.state(now, name) == WorkerSpeed::State::kSlow) {
        slow.push_back({cell, name});
      }
    }
  });
  return slow;
}

std::vector<WorkerTable::NotHealthy> WorkerTable::NotHealthyOnes(MonotonicTime now) const {
  std::vector<NotHealthy> all;
  ForEachPool(*this, [&](const std::string& cell, const Pool& pool) {
    for (WorkerSpeed::Slow& speed : pool.speed.NotHealthy(now)) {
      const auto worker = pool.workers.find(speed.worker);
      if (worker == pool.workers.end() || !worker->second.present) continue;
      all.push_back({cell, std::move(speed)});
    }
  });
  return all;
}

WorkerTable::Load WorkerTable::ReaderLoad(const std::string& name) const {
  const auto it = readers_.workers.find(name);
  return it == readers_.workers.end() ? Load() : it->second.load;
}

WorkerTable::Load WorkerTable::WriterLoad(const std::string& cell, const std::string& name) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return Load();
  const Workers& writers = target->second.writers.workers;
  const auto it = writers.find(name);
  return it == writers.end() ? Load() : it->second.load;
}

}  // namespace tailcast::scheduler
