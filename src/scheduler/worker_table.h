// Who carries operations out: the readers of this cell and the writers of the cells it copies to,
// how busy each of them is, and whom to leave alone for a while (paper §3 Fault Tolerance): who
// failed, and who is much slower than the others (worker_speed.h).
//
// The load of a worker, in bytes per second, is the sum over the operations that are assigned to
// it, and for a layer those of this layer count for more (load_balance.h). It is counted whether
// the worker is known or not: a scheduler hears of its predecessor's operations before it knows all
// writers.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/time.h"
#include "tailcast/scheduler/load_balance.h"
#include "tailcast/scheduler/worker_speed.h"
#include "tailcast/stream/operation.h"

namespace tailcast::scheduler {

struct WorkerInfo {
  std::string name;
  std::string address;  // host:port
  ProcessIncarnation incarnation = ProcessIncarnation::kNone;
  // It ends soon: it gets nothing, and what it has goes to others. What it runs goes on until then.
  bool leaving = false;
};

// Who carries out an operation. No reader: nobody.
struct Assignment {
  std::string reader, writer;
  std::string writer_address;  // host:port
  std::string writer_via;      // HTTP CONNECT proxy, or empty
};

struct WorkerOptions {
  // After a failure that is blamed on a worker; doubles with each further one that comes soon.
  Duration avoid = Duration::Seconds(1);
  Duration avoid_max = Duration::Seconds(60);
  SpeedOptions speed;
  BalanceOptions balance;
};

// Who did the file before, and knows the shard.
struct Preferred {
  std::string name;         // empty: nobody
  int64_t bytes_per_s = 0;  // of its load, that is the file before: it ends now
  bool keep = false;        // however busy it is
};

class WorkerTable {
 public:
  explicit WorkerTable(WorkerOptions options) : options_(options) {}
  WorkerTable(const WorkerTable&) = delete;
  WorkerTable& operator=(const WorkerTable&) = delete;

  // All readers that there are. Returns those whose operations are lost: a reader that is gone, or
  // another process under its name.
  std::vector<std::string> SetReaders(MonotonicTime now, const std::vector<WorkerInfo>& readers);
  // A call to it failed: it gets nothing until it is found again. False: no such reader.
  bool LoseReader(MonotonicTime now, const std::string& name);
  // It answers again.
  void FindReader(const std::string& name);
  // All writers of a cell. One that is gone breaks its streams; readers report that.
  void SetWriters(MonotonicTime now, const std::string& cell, const std::string& via,
                  const std::vector<WorkerInfo>& writers);
  // Something that failed is blamed on it: others first, for a while.
  void AvoidReader(MonotonicTime now, const std::string& name);
  void AvoidWriter(MonotonicTime now, const std::string& cell, const std::string& name);

  // Who is slow. What readers say of their operations goes there.
  WorkerSpeed& speed() { return speed_; }
  const WorkerSpeed& speed() const { return speed_; }
  // WorkerSpeed::kRound has passed: who is to be relieved of how many operations.
  std::optional<WorkerSpeed::Relief> JudgeSpeeds(MonotonicTime now);

  // The least loaded reader here and writer there, of equals the one with the fewest operations of
  // that layer (each is compared with others that copy the same: worker_speed.h), or the preferred
  // ones unless they are clearly busier. Those to be avoided only if there is nobody else: of them
  // those that are slow first, then whose failure is longest ago. nullopt: there is no reader or no
  // writer.
  std::optional<Assignment> Pick(MonotonicTime now, const std::string& cell, stream::Layer layer,
                                 const Preferred& reader, const Preferred& writer) const;
  // For OperationTable: an operation to `cell` of this load was assigned to them, or is no more;
  // one that is has another load.
  void AddLoad(const std::string& cell, stream::Layer layer, const Assignment& workers,
               int64_t bytes_per_s);
  void DropLoad(const std::string& cell, stream::Layer layer, const Assignment& workers,
                int64_t bytes_per_s);
  void ChangeLoad(const std::string& cell, stream::Layer layer, const Assignment& workers,
                  int64_t by_bytes_per_s);

  // Who should hand an operation of the layer over to whom.
  struct Shedding {
    std::string cell;  // of writers; empty: of readers
    stream::Layer layer = stream::Layer::kPrimary;
    std::string from, to;
    int64_t gap = 0;  // between their loads for the layer, bytes per second
  };
  // Of the readers, and of the writers of each cell: for each layer the most and the least loaded,
  // where one is clearly busier than the other. The widest gap first.
  std::vector<Shedding> Imbalances(MonotonicTime now) const;
  const BalanceOptions& balance() const { return options_.balance; }

  // Who leaves and still has operations that somebody else could take.
  struct Leaver {
    std::string cell;  // of a writer; empty: a reader
    std::string name;
  };
  std::vector<Leaver> Leavers() const;

  struct Load {
    int operations = 0;
    int of_layer[stream::kLayers] = {0, 0};  // of these
    int64_t bytes_per_s = 0;
    int64_t layer_bytes_per_s[stream::kLayers] = {0, 0};  // of these
    // What a worker that has all this is compared by when it may be given another's operation of
    // the layer, or give one away.
    int64_t For(stream::Layer layer) const {
      return LayerLoad(bytes_per_s, layer_bytes_per_s[static_cast<int>(layer)]);
    }
  };
  // Nothing, of those that are not known.
  Load ReaderLoad(const std::string& name) const;
  Load WriterLoad(const std::string& cell, const std::string& name) const;
  // How often a reader was lost.
  int64_t readers_lost() const { return readers_lost_; }

 private:
  struct Worker {
    WorkerInfo info;
    bool present = false;
    bool lost = false;  // readers: calls fail
    Load load;
    MonotonicTime avoid_until;
    Duration avoided;    // for so long, the last time
    int trial_room = 0;  // operations that it may have while it is on trial
    bool usable() const { return present && !lost && !info.leaving; }
  };
  using Workers = std::map<std::string, Worker>;
  struct Cell {
    std::string via;
    Workers writers;
  };

  void Blame(MonotonicTime now, Worker& worker) const;
  // Greater: rather not.
  int AvoidRank(MonotonicTime now, const std::string& cell, const Worker& worker) const;
  bool MayKeep(MonotonicTime now, const std::string& cell, const Worker& worker) const;
  const Worker* PickOne(MonotonicTime now, const std::string& cell, const Workers& pool,
                        stream::Layer layer, const Preferred& preferred) const;
  std::optional<Shedding> ImbalanceOf(MonotonicTime now, const std::string& cell,
                                      const Workers& pool, stream::Layer layer) const;
  // Another process has the name.
  void Pardon(MonotonicTime now, const WorkerId& id, Worker& worker);
  // Calls function(cell, pool) for the readers (cell is empty) and the writers of each cell.
  template <typename Table, typename Function>
  static void ForEachPool(Table& table, Function function);

  const WorkerOptions options_;
  Workers readers_;
  std::map<std::string, Cell> cells_;
  WorkerSpeed speed_{options_.speed};
  int64_t readers_lost_ = 0;
};

}  // namespace tailcast::scheduler
