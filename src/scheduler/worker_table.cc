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
                                                const std::string& preferred) const {
  const auto better = [&](const Worker& a, const Worker& b) {
    const bool a_avoid = a.avoid_until > now;
    const bool b_avoid = b.avoid_until > now;
    if (a_avoid != b_avoid) return b_avoid;
    if (a_avoid && a.avoid_until != b.avoid_until) return a.avoid_until < b.avoid_until;
    return a.load < b.load;
  };
  const Worker* best = nullptr;
  for (const auto& [name, worker] : workers) {
    if (worker.usable() && (best == nullptr || better(worker, *best))) best = &worker;
  }
  if (best == nullptr) return nullptr;
  const auto it = workers.find(preferred);
  if (it != workers.end() && it->second.usable() && it->second.avoid_until <= now &&
      it->second.load <= best->load + options_.affinity_slack) {
    return &it->second;
  }
  return best;
}

std::optional<Assignment> WorkerTable::Pick(MonotonicTime now, const std::string& cell,
                                            const std::string& preferred_reader,
                                            const std::string& preferred_writer) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return std::nullopt;
  const Worker* reader = PickOne(now, readers_, preferred_reader);
  const Worker* writer = PickOne(now, target->second.writers, preferred_writer);
  if (reader == nullptr || writer == nullptr) return std::nullopt;
  return Assignment{reader->info.name, writer->info.name, writer->info.address, target->second.via};
}

void WorkerTable::AddLoad(const std::string& cell, const Assignment& workers) {
  ++readers_[workers.reader].load;
  ++cells_[cell].writers[workers.writer].load;
}

void WorkerTable::DropLoad(const std::string& cell, const Assignment& workers) {
  --readers_.at(workers.reader).load;
  --cells_.at(cell).writers.at(workers.writer).load;
}

std::optional<WorkerTable::Shedding> WorkerTable::Imbalance() const {
  const Worker* most = nullptr;
  const Worker* least = nullptr;
  for (const auto& [name, reader] : readers_) {
    if (!reader.usable()) continue;
    if (most == nullptr || reader.load > most->load) most = &reader;
    if (least == nullptr || reader.load < least->load) least = &reader;
  }
  if (most == nullptr || most->load - least->load < options_.shed_difference) return std::nullopt;
  return Shedding{most->info.name, least->info.name};
}

int WorkerTable::ReaderLoad(const std::string& name) const {
  const auto it = readers_.find(name);
  return it == readers_.end() ? 0 : it->second.load;
}

int WorkerTable::WriterLoad(const std::string& cell, const std::string& name) const {
  const auto target = cells_.find(cell);
  if (target == cells_.end()) return 0;
  const auto it = target->second.writers.find(name);
  return it == target->second.writers.end() ? 0 : it->second.load;
}

}  // namespace tailcast::scheduler
