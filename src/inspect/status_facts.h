// What follows from what the cells of a deployment say of themselves: how far each is behind the
// source of a stream, and what is not well.
//
// `cells` and `cell` are what `tailcast status --json` prints (app/status_gather.h), whose missing
// parts are survived: a cell that does not answer has a name and an error, nothing else.
//
// Cores: no I/O, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tailcast::inspect {

// Adds `behind_messages` and `behind_bytes` to each shard of a cell that is not the stream's
// source, where both the cell's head and the source's are known; and `disk_behind_bytes` where the
// cell that copies to it knows that its disk lacks some, which its caches may have: then its head
// says nothing of it. What a file that grows has on its way does not count.
void CompareHeads(nlohmann::json& cells);

// What is not well in a cell, the worst first, a sentence each; empty: nothing that it knows of.
std::vector<std::string> Troubles(const nlohmann::json& cell);

// A stream over all cells.
struct StreamSum {
  std::string name, source;
  int64_t shards = 0;  // as the source says, or who answers
  // Of the source; of who is furthest where that does not answer.
  int64_t messages = 0, bytes = 0;
  double messages_per_s = 0, bytes_per_s = 0;
  // Of the cell that is furthest behind the source; "": none is, as far as is known.
  std::string behind_cell;
  int64_t behind_bytes = 0;
  bool on_disk = false;   // that cell lacks it on its disk only
  bool unknown = false;   // some head is not known
  bool compared = false;  // some cell was held against the source

  bool idle() const { return behind_cell.empty() && !unknown && messages_per_s == 0; }
};
// In order of names.
std::vector<StreamSum> SumStreams(const nlohmann::json& cells);

// The same of a cell over all streams.
struct CellSum {
  bool knows_behind = false;  // it is no source of all there is, and some source answered
  int64_t behind_bytes = 0;   // of all shards
  int64_t disk_behind_bytes = 0;
  double bytes_per_s = 0;
  int64_t processes = 0, processes_up = 0, restarts = 0;
  int64_t replicas = 0, replicas_whole = 0;  // 0: not known
  double uptime_s = 0;                       // of its scheduler; 0: not known
  int64_t cache_reads = 0, cache_hits = 0;   // of its readers and writers
};
CellSum SumCell(const nlohmann::json& cell);

// Whether a row of a scheduler's operations copies, waits or fails, rather than running with
// nothing to do or being done.
bool IsBusy(const nlohmann::json& operation);

// What each process of a cell says of itself, once, however many roles it has.
std::vector<const nlohmann::json*> StatusOfEach(const nlohmann::json& cell);
// The sum of a counter of the readers' and writers' clients of the data cache.
int64_t SumCache(const nlohmann::json& cell, const std::string& counter);
// The sum of a metric over all processes of a cell, with this label.
int64_t SumMetric(const nlohmann::json& cell, const std::string& metric, const std::string& label,
                  const std::string& value);

// "lacks files 3, 7 (damaged): ...". `lacking` is a shard's.
std::string LackingText(const nlohmann::json& lacking, bool source);
// Of a replica of the metadata cache that is not whole: "cache-1 is down".
std::string ReplicaText(const nlohmann::json& cell, const nlohmann::json& replica);

}  // namespace tailcast::inspect
