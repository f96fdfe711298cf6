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
    const bool replaced = reader.present && reader.info.incarnation != info.incarnation;
    reader.info = info;
    if (replaced) {
      LoseReader(now, info.name);
      lost.push_back(info.name);
      // What its predecessor did wrong is forgotten.
      reader.avoid_until = now;
      reader.avoided = {};
    }
    if (!reader.present || replaced) reader.lost = false;
    reader.present = true;
  }
  for (auto& [name, reader] : readers_) {
    if (!reader.present || names.contains(name)) continue;
    LoseReader(now, name);
    lost.push_back(name);
    reader.present = false;
  }
  return lost;
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
  if (const auto it = readers_.find(name); it != readers_.end()) it->second.lost = false;
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
    if (writer.info.incarnation != info.incarnation) {
      writer.avoid_until = now;
      writer.avoided = {};
    }
    writer.info = info;
  }
  for (auto& [name, writer] : target.writers) writer.present = names.contains(name);
}

void WorkerTable::AvoidReader(MonotonicTime now, const std::string& name) {
  const auto it = readers_.find(name);
  if (it != readers_.end()) Blame(now, it->second);
}

void WorkerTable::AvoidWriter(MonotonicTime now, const std::string& cell, const std::string& name) {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return;
  const auto it = target->second.writers.find(name);
  if (it != target->second.writers.end()) Blame(now, it->second);
}

// All operations of a worker may fail at once: that is one failure.
void WorkerTable::Blame(MonotonicTime now, Worker& worker) const {
  if (now >= worker.avoid_until) {
    const bool again = now < worker.avoid_until + worker.avoided * 10;
    worker.avoided = again ? std::min(worker.avoided * 2, options_.avoid_max) : options_.avoid;
  }
  worker.avoid_until = now + worker.avoided;
}

const WorkerTable::Worker* WorkerTable::PickOne(MonotonicTime now, const Workers& workers,
                                                const Preferred& preferred) const {
  const auto load = [&](const Worker& worker) {
    return worker.load.bytes_per_s -
           (worker.info.name == preferred.name ? preferred.bytes_per_s : 0);
  };
  const auto better = [&](const Worker& a, const Worker& b) {
    const bool a_avoid = a.avoid_until > now;
    const bool b_avoid = b.avoid_until > now;
    if (a_avoid != b_avoid) return b_avoid;
    if (a_avoid && a.avoid_until != b.avoid_until) return a.avoid_until < b.avoid_until;
    return load(a) < load(b);
  };
  const Worker* best = nullptr;
  for (const auto& [name, worker] : workers) {
    if (worker.usable() && (best == nullptr || better(worker, *best))) best = &worker;
  }
  if (best == nullptr) return nullptr;
  const auto it = workers.find(preferred.name);
  if (it != workers.end() && it->second.usable() && it->second.avoid_until <= now &&
      !ClearlyBusier(options_.balance, load(it->second), load(*best))) {
    return &it->second;
  }
  return best;
}

std::optional<Assignment> WorkerTable::Pick(MonotonicTime now, const std::string& cell,
                                            const Preferred& preferred_reader,
                                            const Preferred& preferred_writer) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return std::nullopt;
  const Worker* reader = PickOne(now, readers_, preferred_reader);
  const Worker* writer = PickOne(now, target->second.writers, preferred_writer);
  if (reader == nullptr || writer == nullptr) return std::nullopt;
  return Assignment{reader->info.name, writer->info.name, writer->info.address, target->second.via};
}

void WorkerTable::AddLoad(const std::string& cell, const Assignment& workers, int64_t bytes_per_s) {
  ++readers_[workers.reader].load.operations;
  ++cells_[cell].writers[workers.writer].load.operations;
  ChangeLoad(cell, workers, bytes_per_s);
}

void WorkerTable::DropLoad(const std::string& cell, const Assignment& workers,
                           int64_t bytes_per_s) {
  --readers_.at(workers.reader).load.operations;
  --cells_.at(cell).writers.at(workers.writer).load.operations;
  ChangeLoad(cell, workers, -bytes_per_s);
}

void WorkerTable::ChangeLoad(const std::string& cell, const Assignment& workers,
                             int64_t by_bytes_per_s) {
  readers_.at(workers.reader).load.bytes_per_s += by_bytes_per_s;
  cells_.at(cell).writers.at(workers.writer).load.bytes_per_s += by_bytes_per_s;
}

std::optional<WorkerTable::Shedding> WorkerTable::ImbalanceOf(MonotonicTime now,
                                                              const Workers& workers) const {
  const Worker* most = nullptr;
  const Worker* least = nullptr;
  for (const auto& [name, worker] : workers) {
    if (!worker.usable()) continue;
    const int64_t load = worker.load.bytes_per_s;
    if (most == nullptr || load > most->load.bytes_per_s) most = &worker;
    if (worker.avoid_until > now) continue;
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
  if (auto readers = ImbalanceOf(now, readers_)) all.push_back(std::move(*readers));
  for (const auto& [name, cell] : cells_) {
    if (auto writers = ImbalanceOf(now, cell.writers)) {
      all.push_back(std::move(*writers));
      all.back().cell = name;
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Shedding& a, const Shedding& b) { return a.gap > b.gap; });
  return all;
}

std::vector<WorkerTable::Leaver> WorkerTable::Leavers() const {
  std::vector<Leaver> leavers;
  const auto add = [&](const std::string& cell, const Workers& workers) {
    const bool others = std::any_of(workers.begin(), workers.end(),
                                    [](const auto& w) { return w.second.usable(); });
    for (const auto& [name, worker] : workers) {
      if (others && worker.present && worker.info.leaving && worker.load.operations > 0) {
        leavers.push_back({cell, name});
      }
    }
  };
  add("", readers_);
  for (const auto& [name, cell] : cells_) add(name, cell.writers);
  return leavers;
}

WorkerTable::Load WorkerTable::ReaderLoad(const std::string& name) const {
  const auto it = readers_.find(name);
  return it == readers_.end() ? Load() : it->second.load;
}

WorkerTable::Load WorkerTable::WriterLoad(const std::string& cell, const std::string& name) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return Load();
  const auto it = target->second.writers.find(name);
  return it == target->second.writers.end() ? Load() : it->second.load;
}

}  // namespace tailcast::scheduler
