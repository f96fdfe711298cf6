#include "tailcast/inspect/status_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "tailcast/base/time.h"
#include "tailcast/inspect/cache_room.h"
#include "tailcast/inspect/text.h"

namespace tailcast::inspect {
namespace {

using nlohmann::json;

constexpr size_t kLackingShownMax = 10;  // files of a shard, in words
// A process that was started again so recently is worth a word.
constexpr double kRestartedLately_s = 300;
// A producer that was heard of so lately may just be slow.
constexpr int64_t kSilentMax_ms = 5000;
// Who waits for less long may just have got much at once.
constexpr double kWaitShown_ms = 5000;

const json& ArrayOf(const json& object, const char* key) {
  static const json none = json::array();
  const auto it = object.find(key);
  return it != object.end() && it->is_array() ? *it : none;
}

const json& ObjectOf(const json& object, const char* key) {
  static const json none = json::object();
  const auto it = object.find(key);
  return it != object.end() && it->is_object() ? *it : none;
}

Duration Millis(double ms) { return Duration::Micros(static_cast<int64_t>(ms * 1e3)); }

void AddProcesses(const json& cell, std::vector<std::string>& troubles) {
  std::set<json> said;
  for (const json& process : ArrayOf(cell, "processes")) {
    const std::string name = process.value("name", "");
    const std::string state = process.value("state", "");
    if (state != "up" && state != "leaving") {
      troubles.push_back("process " + name + " is " + state +
                         (process.contains("error") ? ": " + process.value("error", "") : ""));
      continue;
    }
    const json& status = ObjectOf(process, "status");
    const int64_t restarts = status.value("restarts", int64_t{0});
    const double up_s = status.value("uptime_s", 0.0);
    if (restarts == 0 || up_s > kRestartedLately_s) continue;
    if (!said.insert(status.value("incarnation", json())).second) continue;  // another role of it
    troubles.push_back(
        "process " + name + " was started again " + SpanText(Millis(up_s * 1e3)) + " ago" +
        (restarts > 1 ? ", " + Counted(static_cast<uint64_t>(restarts), "time") + " in all" : ""));
  }
}

void AddReplicas(const json& cell, std::vector<std::string>& troubles) {
  const json& caches = ObjectOf(cell, "metadata_cache");
  if (caches.value("memcached", false)) return;  // nobody knows which of them began anew
  for (const json& replica : ArrayOf(caches, "replicas")) {
    if (!replica.value("whole", false)) {
      troubles.push_back("metadata cache: " + ReplicaText(cell, replica));
    }
  }
}

void AddShards(const json& cell, std::vector<std::string>& troubles) {
  for (const json& stream : ArrayOf(cell, "streams")) {
    const std::string name = stream.value("stream", "");
    const bool source = stream.value("source", "") == cell.value("name", "");
    for (const json& shard : ArrayOf(stream, "shards")) {
      const std::string which = "stream " + name + "/" + std::to_string(shard.value("shard", 0));
      if (shard.contains("error")) {
        troubles.push_back(which + ": " + shard.value("error", ""));
        continue;
      }
      if (shard.contains("lacking")) {
        troubles.push_back(which + " " + LackingText(shard["lacking"], source));
      } else if (!shard.contains("messages") && shard.value("state", "") == "locating") {
        troubles.push_back(which + ": its head was not found in time");
      }
      if (shard.value("state", "") != "stuck") continue;
      const int64_t age_ms = shard.value("age_ms", int64_t{0});
      if (age_ms < kSilentMax_ms) continue;
      troubles.push_back(which + ": nothing heard of its producer for " +
                         SpanText(Duration::Millis(age_ms)) +
                         (source ? ": it ended without closing the stream"
                                 : ": it ended without closing the stream, or the way to this "
                                   "cell is cut"));
    }
  }
}

void AddOperations(const json& cell, std::vector<std::string>& troubles) {
  for (const json& op : ArrayOf(cell, "operations")) {
    const int64_t failures = op.value("failures", int64_t{0});
    const std::string phase = op.value("phase", "");
    if (phase == "done" || (failures == 0 && phase != "given up")) continue;
    std::string text = "copy of " + op.value("stream", "") + "/" +
                       std::to_string(op.value("shard", 0)) + " #" +
                       std::to_string(op.value("file", int64_t{0})) + " to " +
                       op.value("target", "") + " (" + op.value("layer", "") + ") ";
    text += phase == "given up" ? "was given up"
                                : "failed " + Counted(static_cast<uint64_t>(failures), "time");
    const std::string message = op.value("message", "");
    troubles.push_back(text + (message.empty() ? "" : ": " + message));
  }
}

// "12 s".
std::string WaitText(const json& waits) { return SpanText(Millis(waits.value("waits_ms", 0.0))); }

// Who publishes and can't: the disk of the source is full, say, to which the producer alone writes.
void AddProducers(const json& cell, std::vector<std::string>& troubles) {
  for (const json& user : cell.value("users", json::array())) {
    if (user.value("kind", "") != "producer" || user.value("state", "") != "failing") continue;
    troubles.push_back("stream " + user.value("stream", "") + ": its producer on " +
                       user.value("host", "") + ", process " +
                       std::to_string(user.value("pid", int64_t{0})) +
                       ", can't write; its own output says why");
  }
}

// Back-pressure: whoever is slower than what comes.
void AddWaits(const json& cell, std::vector<std::string>& troubles) {
  const std::string here = cell.value("name", "");
  for (const json& hop : ArrayOf(cell, "hops")) {
    if (hop.value("waits_ms", 0.0) < kWaitShown_ms) continue;
    const std::string to = hop.value("to", ""), end = hop.value("waits_for", "");
    const bool cache = hop.value("layer", "") == "cache";
    const std::string layer = cache ? "caches" : "disk";
    const std::string slow = end == "writer" ? "the " + layer + " of " + to + " (or its writer)"
                             : end == "link" ? "the link from " + here + " to " + to
                                             : "reading in " + here;
    troubles.push_back("hop to " + to + ", layer " + hop.value("layer", "") + ": waits for the " +
                       end + " for " + WaitText(hop) + ", with " +
                       Counted(static_cast<uint64_t>(hop.value("waiting", 0)), "operation") +
                       ", longest stream " + hop.value("waits_stream", "") + "; " +
                       BytesText(hop.value("behind_bytes", int64_t{0})) + " behind: " + slow +
                       " is slower than what comes");
  }
}

// Bad machines: readers of this cell, and writers of those that it copies to.
void AddSlowWorkers(const json& cell, std::vector<std::string>& troubles) {
  for (const json& worker : ArrayOf(cell, "slow_workers")) {
    const std::string state = worker.value("state", "");
    troubles.push_back(
        worker.value("role", "") + " " + worker.value("name", "") + " of " +
        worker.value("cell", "") + " is slow: " + SpanText(Millis(worker.value("took_ms", 0.0))) +
        " for what takes the others " + SpanText(Millis(worker.value("peers_ms", 0.0))) + "; " +
        (state == "on trial" ? "it gets little until it is as fast as they are"
         : state == "relieved"
             ? "what it runs goes to them, some at a time"
             : "it gets no work for " + SpanText(Millis(worker.value("remaining_ms", 0.0))) +
                   " more"));
  }
}

// Whether this cell, the stream's source, has lost the file, so that nobody can copy it.
bool SourceLacks(const json& cell, const std::string& name, int shard_number, int64_t file) {
  for (const json& stream : ArrayOf(cell, "streams")) {
    if (stream.value("stream", "") != name) continue;
    for (const json& shard : ArrayOf(stream, "shards")) {
      if (shard.value("shard", 0) != shard_number) continue;
      const json& lacking = ArrayOf(shard, "lacking");
      return std::any_of(lacking.begin(), lacking.end(), [&](const json& lacks) {
        return lacks.value("file", int64_t{0}) == file;
      });
    }
  }
  return false;
}

// What comes before all else: nothing gets on where there is no room.
void AddDisk(const json& cell, std::vector<std::string>& troubles) {
  const json& disk = ObjectOf(cell, "disk");
  if (const auto unseen_ms = disk.value("unseen_ms", int64_t{0}); unseen_ms > 0) {
    troubles.push_back("the disk can't be looked at since " + std::to_string(unseen_ms / 1000) +
                       " s: " + disk.value("unseen_why", "") +
                       (disk.contains("text") ? "; what is said of it is from before" : ""));
  }
  if (disk.value("full", false)) {
    troubles.push_back("the disk is full: " + disk.value("text", "") +
                       "; what is to be kept for less long goes with `tailcast stream trim`, "
                       "`retain` or `delete`");
  }
  if (disk.contains("no_room")) {
    troubles.push_back("nothing can be changed until there is room for the registry: " +
                       disk.value("no_room", ""));
  }
  for (const json& what : ArrayOf(disk, "failing")) {
    troubles.push_back("old files stay: " + what.get<std::string>());
  }
  for (const json& what : ArrayOf(disk, "unread")) {
    troubles.push_back(what.get<std::string>() + "; it is tried again, others are copied");
  }
}

// Why a cell that left keeps its copies. `unread`: who can't read the file, "there" that cell,
// "source" this one; "": it is lacking.
std::string LastCopyText(const std::string& unread, const std::string& file) {
  if (unread == "there") {
    return "its file " + file +
           " can't be read, so that nobody knows whether this cell, the source, has all of it; its "
           "status says why";
  }
  if (unread == "source") {
    return "this cell, the source, can't read its file " + file +
           ", which that cell has; mend the disk, or put it back from there";
  }
  return "this cell, the source, lacks file " + file + ", which it has; put that back from there";
}

// What keeps files from going, and for whom none are kept, as the source of a stream knows.
void AddRetention(const json& cell, std::vector<std::string>& troubles) {
  for (const json& wait : ArrayOf(cell, "retention_waits")) {
    const auto file = wait.value("lacking_file", int64_t{0});
    const std::string stream = wait.value("stream", "");
    const int shard = wait.value("shard", 0);
    std::string text = "stream " + stream + ", shard " + std::to_string(shard) +
                       ": old files stay for cell " + wait.value("cell", "") + ", which " +
                       (file == 0 ? "has not answered" : "lacks file " + std::to_string(file)) +
                       ", for " + SpanText(Millis(wait.value("for_ms", 0.0)));
    // That a file ends there is known by the next one: with that, the one before is lacking.
    const bool itself = SourceLacks(cell, stream, shard, file);
    if (itself || SourceLacks(cell, stream, shard, file + 1)) {
      text +=
          ". The source has lost file " + std::to_string(itself ? file : file + 1) +
          ": put it back, or go on without it with `tailcast "
          "stream retain --stream " +
          stream +
          " --away-max 1m`, after which that cell's consumers miss it; then set --away-max back "
          "to what `tailcast stream describe` says now, or every cell that is away for a "
          "minute misses messages";
    }
    troubles.push_back(std::move(text));
  }
  for (const json& stamp : ArrayOf(cell, "stamps")) {
    const double ahead_ms = stamp.value("ahead_ms", 0.0);
    troubles.push_back("stream " + stamp.value("stream", "") + ", shard " +
                       std::to_string(stamp.value("shard", 0)) + ": file " +
                       std::to_string(stamp.value("file", int64_t{0})) + " is stamped " +
                       SpanText(Millis(std::abs(ahead_ms))) + " " +
                       (ahead_ms > 0 ? "ahead of" : "behind") +
                       " the scheduler's clock: one of that and the producer's is wrong, or was; "
                       "consumers that begin at a time go by the stamps");
  }
  for (const json& leaver : ArrayOf(cell, "leaving")) {
    if (!leaver.contains("lacking_file")) continue;
    troubles.push_back("stream " + leaver.value("stream", "") + ", shard " +
                       std::to_string(leaver.value("shard", 0)) + ": cell " +
                       leaver.value("cell", "") +
                       ", which has left the copy tree, keeps its copies: " +
                       LastCopyText(leaver.value("unread", ""),
                                    std::to_string(leaver.value("lacking_file", int64_t{0}))));
  }
  for (const json& out : ArrayOf(cell, "left_out")) {
    troubles.push_back("stream " + out.value("stream", "") + ": nothing is kept for cell " +
                       out.value("cell", "") + " until it answers, and gets on");
  }
}

// What the disks of cells lack of shards, as those know who copy to them.
std::map<std::tuple<std::string, std::string, int32_t>, int64_t> DisksBehind(const json& cells) {
  std::map<std::tuple<std::string, std::string, int32_t>, int64_t> behind;
  for (const json& cell : cells) {
    std::map<std::tuple<std::string, std::string, int32_t>, int64_t> newest;
    const auto each = [&](auto visit) {
      for (const json& o : ArrayOf(cell, "operations")) {
        if (o.value("layer", "") != "primary") continue;
        visit(o, std::tuple(o.value("target", ""), o.value("stream", ""), o.value("shard", 0)),
              o.value("file", int64_t{0}));
      }
    };
    each([&](const json&, const auto& shard, int64_t file) {
      newest[shard] = std::max(newest[shard], file);
    });
    each([&](const json& o, const auto& shard, int64_t file) {
      const std::string phase = o.value("phase", "");
      if (phase == "done" || phase == "given up") return;
      if (file == newest[shard] && phase == "running" && o.value("failures", 0) == 0) return;
      behind[shard] += std::max<int64_t>(
          0, o.value("source_bytes", int64_t{0}) - o.value("written_bytes", int64_t{0}));
    });
  }
  return behind;
}

}  // namespace

void CompareHeads(json& cells) {
  std::map<std::pair<std::string, int32_t>, json> source;
  const auto each = [&](auto visit) {
    for (json& cell : cells) {
      if (!cell.contains("streams")) continue;
      for (json& stream : cell["streams"]) {
        for (json& shard : stream["shards"]) visit(cell, stream, shard);
      }
    }
  };
  const auto key = [](const json& stream, const json& shard) {
    return std::pair(stream.value("stream", ""), shard.value("shard", 0));
  };
  each([&](json& cell, json& stream, json& shard) {
    if (stream["source"] == cell["name"]) source[key(stream, shard)] = shard;
  });
  each([&](json& cell, json& stream, json& shard) {
    const auto it = source.find(key(stream, shard));
    if (it == source.end() || stream["source"] == cell["name"]) return;
    if (!it->second.contains("messages")) return;
    const bool empty = !shard.contains("messages");
    if (empty && shard.value("state", "") != "waiting") return;
    // They were not asked at one moment: a cell may have gone past what its source said.
    const auto behind = [&](const char* what) {
      return std::max<int64_t>(
          0, it->second.value(what, int64_t{0}) - (empty ? 0 : shard.value(what, int64_t{0})));
    };
    shard["behind_messages"] = behind("messages");
    shard["behind_bytes"] = behind("bytes");
  });
  const auto disks = DisksBehind(cells);
  each([&](json& cell, json& stream, json& shard) {
    const auto it =
        disks.find({cell.value("name", ""), stream.value("stream", ""), shard.value("shard", 0)});
    if (it != disks.end() && it->second > 0) shard["disk_behind_bytes"] = it->second;
  });
}

std::vector<std::string> Troubles(const json& cell) {
  std::vector<std::string> troubles;
  if (cell.contains("error")) troubles.push_back(cell.value("error", ""));
  // What this user may not see is no trouble of the cell.
  if (cell.contains("heads_error") && !cell.value("heads_denied", false)) {
    troubles.push_back("how far its streams are is not known: " + cell.value("heads_error", ""));
  }
  AddDisk(cell, troubles);
  AddProcesses(cell, troubles);
  AddShards(cell, troubles);
  AddReplicas(cell, troubles);
  if (std::string text = CacheRoomTrouble(RoomOf(cell), LoadOf(cell)); !text.empty()) {
    troubles.push_back(std::move(text));
  }
  AddOperations(cell, troubles);
  AddWaits(cell, troubles);
  AddSlowWorkers(cell, troubles);
  AddProducers(cell, troubles);
  AddRetention(cell, troubles);
  return troubles;
}

std::vector<StreamSum> SumStreams(const json& cells) {
  std::map<std::string, StreamSum> sums;
  for (const json& cell : cells) {
    const std::string where = cell.value("name", "");
    for (const json& stream : ArrayOf(cell, "streams")) {
      const std::string name = stream.value("stream", "");
      StreamSum& sum = sums[name];
      sum.name = name;
      sum.source = stream.value("source", "");
      StreamSum here;
      int64_t behind_bytes = 0, behind_messages = 0, disk_behind_bytes = 0;
      here.unknown = stream.value("unknown", false);
      for (const json& shard : ArrayOf(stream, "shards")) {
        here.messages += shard.value("messages", int64_t{0});
        here.bytes += shard.value("bytes", int64_t{0});
        here.messages_per_s += shard.value("messages_per_s", 0.0);
        here.bytes_per_s += shard.value("bytes_per_s", 0.0);
        behind_bytes += shard.value("behind_bytes", int64_t{0});
        behind_messages += shard.value("behind_messages", int64_t{0});
        disk_behind_bytes += shard.value("disk_behind_bytes", int64_t{0});
        sum.compared = sum.compared || shard.contains("behind_bytes");
        const bool known = shard.contains("messages") || shard.value("state", "") == "waiting";
        here.unknown = here.unknown || !known || shard.contains("error");
      }
      sum.unknown = sum.unknown || here.unknown;
      sum.shards = std::max(sum.shards, static_cast<int64_t>(ArrayOf(stream, "shards").size()) +
                                            stream.value("shards_not_shown", int64_t{0}));
      if (here.messages >= sum.messages) {
        sum.messages = here.messages;
        sum.bytes = here.bytes;
        sum.messages_per_s = here.messages_per_s;
        sum.bytes_per_s = here.bytes_per_s;
      }
      const bool on_disk = behind_messages == 0;
      const int64_t bytes = on_disk ? disk_behind_bytes : behind_bytes;
      if (on_disk && bytes == 0) continue;
      // Whose consumers wait comes first.
      if (sum.behind_cell.empty() ||
          std::pair(!on_disk, bytes) > std::pair(!sum.on_disk, sum.behind_bytes)) {
        sum.behind_cell = where;
        sum.behind_bytes = bytes;
        sum.on_disk = on_disk;
      }
    }
  }
  std::vector<StreamSum> all;
  for (auto& [name, sum] : sums) all.push_back(std::move(sum));
  return all;
}

CellSum SumCell(const json& cell) {
  CellSum sum;
  for (const json& stream : ArrayOf(cell, "streams")) {
    for (const json& shard : ArrayOf(stream, "shards")) {
      sum.knows_behind = sum.knows_behind || shard.contains("behind_bytes");
      sum.behind_bytes += shard.value("behind_bytes", int64_t{0});
      sum.disk_behind_bytes += shard.value("disk_behind_bytes", int64_t{0});
      sum.bytes_per_s += shard.value("bytes_per_s", 0.0);
    }
  }
  for (const json& process : ArrayOf(cell, "processes")) {
    ++sum.processes;
    const std::string state = process.value("state", "");
    sum.processes_up += state == "up" || state == "leaving" ? 1 : 0;
    if (process.value("role", "") != "scheduler") continue;
    sum.uptime_s = ObjectOf(process, "status").value("uptime_s", 0.0);
  }
  for (const json* status : StatusOfEach(cell)) {
    sum.restarts += status->value("restarts", int64_t{0});
  }
  const json& caches = ObjectOf(cell, "metadata_cache");
  for (const json& replica : ArrayOf(caches, "replicas")) {
    if (caches.value("memcached", false)) break;
    ++sum.replicas;
    sum.replicas_whole += replica.value("whole", false) ? 1 : 0;
  }
  sum.cache_reads = SumCache(cell, "reads");
  sum.cache_hits = SumCache(cell, "hits");
  return sum;
}

bool IsBusy(const json& operation) {
  const std::string phase = operation.value("phase", "");
  if (phase == "done") return false;
  if (phase != "running" || operation.value("failures", int64_t{0}) > 0) return true;
  return operation.value("written_bytes", int64_t{0}) < operation.value("source_bytes", int64_t{0});
}

std::vector<const json*> StatusOfEach(const json& cell) {
  std::vector<const json*> all;
  std::set<json> incarnations;
  for (const json& process : ArrayOf(cell, "processes")) {
    const json& status = ObjectOf(process, "status");
    if (status.empty()) continue;
    if (incarnations.insert(status.value("incarnation", json())).second) all.push_back(&status);
  }
  return all;
}

int64_t SumCache(const json& cell, const std::string& counter) {
  int64_t sum = 0;
  for (const json* status : StatusOfEach(cell)) {
    sum += ObjectOf(*status, "data_cache_client").value(counter, int64_t{0});
  }
  return sum;
}

int64_t SumMetric(const json& cell, const std::string& metric, const std::string& label,
                  const std::string& value) {
  int64_t sum = 0;
  for (const json* status : StatusOfEach(cell)) {
    for (const json& m : ArrayOf(*status, "metrics")) {
      if (m.value("name", "") != metric) continue;
      if (ObjectOf(m, "labels").value(label, "") == value) sum += m.value("value", int64_t{0});
    }
  }
  return sum;
}

std::string LackingText(const json& lacking, bool source) {
  std::string text = lacking.size() == 1 ? "lacks file " : "lacks files ";
  for (size_t i = 0; i < std::min(lacking.size(), kLackingShownMax); ++i) {
    const std::string kind = lacking[i].value("kind", "");
    text += (i == 0 ? "" : ", ") + std::to_string(lacking[i].value("file", int64_t{0})) +
            (kind == "absent" ? "" : " (" + kind + ")");
  }
  if (lacking.size() > kLackingShownMax) {
    text += " and " + std::to_string(lacking.size() - kLackingShownMax) + " more";
  }
  return text + (source ? ": removed or damaged at the source, so nothing copies it again "
                          "(docs/ops/storage.md)"
                        : ": the cell above copies what it has of it");
}

std::string ReplicaText(const json& cell, const json& replica) {
  const std::string name = replica.value("name", "");
  if (!replica.value("there", false)) return name + " is down";
  for (const json& process : ArrayOf(cell, "processes")) {
    if (process.value("name", "") != name) continue;
    const std::string why =
        ObjectOf(ObjectOf(process, "status"), "metadata_cache").value("repair", "");
    if (!why.empty()) return name + " " + why;
  }
  return name + " is not whole";
}

}  // namespace tailcast::inspect
