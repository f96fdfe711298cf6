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
    Worker& reader = readers_[info.name];
    const bool another = reader.info.incarnation != info.incarnation;
    const bool replaced = reader.present && another;
    reader.info = info;
    if (replaced) {
      LoseReader(now, info.name);
      lost.push_back(info.name);
    }
    // What its predecessor did wrong is forgotten.
    if (another) Pardon(now, {"", info.name}, reader);
    if (!reader.present || replaced) reader.lost = false;
    reader.present = true;
  }
  for (auto& [name, reader] : readers_) {
    if (!reader.present || names.contains(name)) continue;
    LoseReader(now, name);
    lost.push_back(name);
    reader.present = false;
    speed_.Forget({"", name});
  }
  return lost;
}

void WorkerTable::Pardon(MonotonicTime now, const WorkerId& id, Worker& worker) {
  worker.avoid_until = now;
  worker.avoided = {};
  speed_.Forget(id);
}

bool WorkerTable::LoseReader(MonotonicTime now, const std::string& name) {
  const auto reader = readers_.find(name);
  if (reader == readers_.end()) return false;
  if (std::exchange(reader->second.lost, true)) return true;
  ++readers_lost_;
  Blame(now, reader->second);
  return true;
}

void WorkerTable::FindReader(const std::string& name) {
  const auto it = readers_.find(name);
  if (it != readers_.end()) it->second.lost = false;
}

void WorkerTable::SetWriters(MonotonicTime now, const std::string& cell, const std::string& via,
                             const std::vector<WorkerInfo>& writers) {
  Cell& target = cells_[cell];
  target.via = via;
  std::set<std::string> names;
  for (const WorkerInfo& info : writers) {
    names.insert(info.name);
    Worker& writer = target.writers[info.name];
    // A new process of the name: what its predecessor did wrong is forgotten.
    if (writer.info.incarnation != info.incarnation) Pardon(now, {cell, info.name}, writer);
    writer.info = info;
  }
  for (auto& [name, writer] : target.writers) {
    writer.present = names.contains(name);
    if (!writer.present) speed_.Forget({cell, name});
  }
}

void WorkerTable::AvoidReader(MonotonicTime now, const std::string& name) {
  const auto it = readers_.find(name);
  if (it != readers_.end()) Blame(now, it->second);
}

void WorkerTable::AvoidWriter(MonotonicTime now, const std::string& cell, const std::string& name) {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return;
  Workers& writers = target->second.writers;
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

std::optional<WorkerSpeed::Relief> WorkerTable::JudgeSpeeds(MonotonicTime now) {
  std::map<WorkerId, int> there;
  ForEachPool(*this, [&](const std::string& cell, Workers& pool) {
    // Of those that are gone nothing is left.
    std::erase_if(pool, [now](const auto& entry) {
      const Worker& worker = entry.second;
      return !worker.present && worker.load.operations == 0 &&
             now >= worker.avoid_until + worker.avoided * 10;
    });
    for (const auto& [name, worker] : pool) {
      if (worker.usable() && worker.avoid_until <= now)
        there.emplace(WorkerId{cell, name}, worker.load.operations);
    }
  });
  const auto relief = speed_.OnRound(now, there);
  ForEachPool(*this, [&](const std::string& cell, Workers& pool) {
    for (auto& [name, worker] : pool) {
      worker.trial_room =
          worker.load.operations + (speed_.MayTryOneMore(WorkerId{cell, name}) ? 1 : 0);
    }
  });
  return relief;
}

int WorkerTable::AvoidRank(MonotonicTime now, const std::string& cell, const Worker& worker) const {
  if (worker.avoid_until > now) return 2;
  switch (speed_.state({cell, worker.info.name})) {
    case WorkerSpeed::State::kRelieved:
    case WorkerSpeed::State::kAvoided:
      return 1;
    case WorkerSpeed::State::kOnTrial:
      return worker.load.operations < worker.trial_room ? 0 : 1;
    case WorkerSpeed::State::kHealthy:
      break;
  }
  return 0;
}

// Who is relieved keeps what it still has, or a roll-over would take everything from it at once.
bool WorkerTable::MayKeep(MonotonicTime now, const std::string& cell, const Worker& worker) const {
  return AvoidRank(now, cell, worker) == 0 ||
         (worker.avoid_until <= now &&
          speed_.state({cell, worker.info.name}) == SpeedState::kRelieved);
}

const WorkerTable::Worker* WorkerTable::PickOne(MonotonicTime now, const std::string& cell,
                                                const Workers& pool, stream::Layer layer,
                                                const Preferred& preferred) const {
  const auto load = [&](const Worker& worker) {
    return worker.load.bytes_per_s -
           (worker.info.name == preferred.name ? preferred.bytes_per_s : 0);
  };
  const auto better = [&](const Worker& a, const Worker& b) {
    const int a_rank = AvoidRank(now, cell, a), b_rank = AvoidRank(now, cell, b);
    if (a_rank != b_rank) return a_rank < b_rank;
    if (a_rank == 2 && a.avoid_until != b.avoid_until) return a.avoid_until < b.avoid_until;
    if (load(a) != load(b)) return load(a) < load(b);
    const int l = static_cast<int>(layer);
    return a.load.of_layer[l] < b.load.of_layer[l];
  };
  const Worker* best = nullptr;
  for (const auto& [name, worker] : pool) {
    if (worker.usable() && (best == nullptr || better(worker, *best))) best = &worker;
  }
  if (best == nullptr) return nullptr;
  const auto it = pool.find(preferred.name);
  if (it != pool.end() && it->second.usable() && MayKeep(now, cell, it->second) &&
      (preferred.keep || !ClearlyBusier(options_.balance, load(it->second), load(*best)))) {
    return &it->second;
  }
  return best;
}

std::optional<Assignment> WorkerTable::Pick(MonotonicTime now, const std::string& cell,
                                            stream::Layer layer, const Preferred& preferred_reader,
                                            const Preferred& preferred_writer) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return std::nullopt;
  const Worker* reader = PickOne(now, "", readers_, layer, preferred_reader);
  const Worker* writer = PickOne(now, cell, target->second.writers, layer, preferred_writer);
  if (reader == nullptr || writer == nullptr) return std::nullopt;
  return Assignment{reader->info.name, writer->info.name, writer->info.address, target->second.via};
}

void WorkerTable::AddLoad(const std::string& cell, stream::Layer layer, const Assignment& workers,
                          int64_t bytes_per_s) {
  for (Load* load : {&readers_[workers.reader].load, &cells_[cell].writers[workers.writer].load}) {
    ++load->operations;
    ++load->of_layer[static_cast<int>(layer)];
  }
  ChangeLoad(cell, layer, workers, bytes_per_s);
}

void WorkerTable::DropLoad(const std::string& cell, stream::Layer layer, const Assignment& workers,
                           int64_t bytes_per_s) {
  for (Load* load :
       {&readers_.at(workers.reader).load, &cells_.at(cell).writers.at(workers.writer).load}) {
    --load->operations;
    --load->of_layer[static_cast<int>(layer)];
  }
  ChangeLoad(cell, layer, workers, -bytes_per_s);
}

void WorkerTable::ChangeLoad(const std::string& cell, stream::Layer layer,
                             const Assignment& workers, int64_t by_bytes_per_s) {
  for (Load* load :
       {&readers_.at(workers.reader).load, &cells_.at(cell).writers.at(workers.writer).load}) {
    load->bytes_per_s += by_bytes_per_s;
    load->layer_bytes_per_s[static_cast<int>(layer)] += by_bytes_per_s;
  }
}

std::optional<WorkerTable::Shedding> WorkerTable::ImbalanceOf(MonotonicTime now,
                                                              const std::string& cell,
                                                              const Workers& pool,
                                                              stream::Layer layer) const {
  const Worker* most = nullptr;
  const Worker* least = nullptr;
  for (const auto& [name, worker] : pool) {
    if (!worker.usable()) continue;
    const int64_t load = worker.load.For(layer);
    const bool gives = worker.load.of_layer[static_cast<int>(layer)] > 0;
    if (gives && (most == nullptr || load > most->load.For(layer))) most = &worker;
    if (AvoidRank(now, cell, worker) > 0) continue;
    if (least == nullptr || load < least->load.For(layer)) least = &worker;
  }
  if (most == nullptr || least == nullptr) return std::nullopt;
  const int64_t load = most->load.For(layer), other = least->load.For(layer);
  if (!ClearlyBusier(options_.balance, load, other)) return std::nullopt;
  return Shedding{cell, layer, most->info.name, least->info.name, load - other};
}

std::vector<WorkerTable::Shedding> WorkerTable::Imbalances(MonotonicTime now) const {
  std::vector<Shedding> all;
  ForEachPool(*this, [&](const std::string& cell, const Workers& pool) {
    for (const stream::Layer layer : {stream::Layer::kPrimary, stream::Layer::kCache}) {
      if (auto shedding = ImbalanceOf(now, cell, pool, layer)) all.push_back(std::move(*shedding));
    }
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const Shedding& a, const Shedding& b) { return a.gap > b.gap; });
  return all;
}

std::vector<WorkerTable::Leaver> WorkerTable::Leavers() const {
  std::vector<Leaver> leavers;
  ForEachPool(*this, [&](const std::string& cell, const Workers& pool) {
    const bool others =
        std::any_of(pool.begin(), pool.end(), [](const auto& w) { return w.second.usable(); });
    for (const auto& [name, worker] : pool) {
      if (others && worker.present && worker.info.leaving && worker.load.operations > 0) {
        leavers.push_back({cell, name});
      }
    }
  });
  return leavers;
}

WorkerTable::Load WorkerTable::ReaderLoad(const std::string& name) const {
  const auto it = readers_.find(name);
  return it == readers_.end() ? Load() : it->second.load;
}

WorkerTable::Load WorkerTable::WriterLoad(const std::string& cell, const std::string& name) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return Load();
  const Workers& writers = target->second.writers;
  const auto it = writers.find(name);
  return it == writers.end() ? Load() : it->second.load;
}

}  // namespace tailcast::scheduler
