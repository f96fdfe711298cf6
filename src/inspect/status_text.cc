#include "tailcast/inspect/status_text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/base/time.h"
#include "tailcast/inspect/status_facts.h"

namespace tailcast::inspect {
namespace {

using nlohmann::json;
using Rows = std::vector<std::vector<std::string>>;

// Idle streams have a row while there are no more streams than this; of others only the names.
constexpr size_t kStreamRowsMax = 10;
constexpr size_t kTroublesShownMax = 12;    // of a cell
constexpr size_t kOperationsShownMax = 12;  // of a cell
constexpr size_t kIdleNamesShownMax = 30;
constexpr size_t kUsersShownMax = 20;
constexpr size_t kGap = 2;  // between columns

Duration Seconds(double seconds) { return Duration::Micros(static_cast<int64_t>(seconds * 1e6)); }

std::string OfAll(int64_t some, int64_t all) {
  return all == 0 ? "-" : std::to_string(some) + " of " + std::to_string(all);
}

std::string Rate(double bytes_per_s) {
  return bytes_per_s <= 0 ? "0" : BytesText(static_cast<int64_t>(bytes_per_s)) + "/s";
}

// `on_disk`: that only the disk lacks.
std::string Behind(int64_t bytes, int64_t on_disk = 0) {
  if (bytes > 0) return BytesText(bytes);
  return on_disk > 0 ? BytesText(on_disk) + " on disk" : "nothing";
}

std::string CellsText(const json& cells, const StatusView& view) {
  Rows rows = {{"cell", "state", "up", "processes", "caches", "restarts", "hits", "new", "behind"}};
  for (const json& cell : cells) {
    const size_t troubles = Troubles(cell).size();
    const std::string name = cell.value("name", "");
    if (cell.contains("error")) {
      rows.push_back({name, "silent", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const CellSum sum = SumCell(cell);
    char hits[16] = "-";
    if (sum.cache_reads > 0) {
      std::snprintf(
          hits, sizeof hits, "%.1f %%",
          100.0 * static_cast<double>(sum.cache_hits) / static_cast<double>(sum.cache_reads));
    }
    rows.push_back({name, troubles == 0 ? "well" : Counted(troubles, "problem"),
                    sum.uptime_s > 0 ? SpanText(Seconds(sum.uptime_s)) : "-",
                    OfAll(sum.processes_up, sum.processes), OfAll(sum.replicas_whole, sum.replicas),
                    std::to_string(sum.restarts), hits, Rate(sum.bytes_per_s),
                    sum.knows_behind ? Behind(sum.behind_bytes, sum.disk_behind_bytes) : "-"});
  }
  return TableText(0, rows, {1}, view.columns, kGap);
}

// Back-pressure: "writer, 12 s"; "-" without.
std::string WaitsText(const json& who) {
  const std::string end = who.value("waits_for", "");
  return end.empty() ? "-" : end + ", " + SpanText(Seconds(who.value("waits_ms", 0.0) / 1e3));
}

// A last column that says nothing in any row goes.
void DropEmptyColumn(Rows& rows) {
  const bool empty =
      std::all_of(rows.begin() + 1, rows.end(), [](const auto& row) { return row.back() == "-"; });
  for (auto& row : rows) {
    if (empty) row.pop_back();
  }
}

std::string TroublesText(const json& cells, const StatusView& view) {
  std::string text;
  for (const json& cell : cells) {
    const std::vector<std::string> troubles = Troubles(cell);
    const size_t shown = view.all ? troubles.size() : std::min(troubles.size(), kTroublesShownMax);
    for (size_t i = 0; i < shown; ++i) {
      text += Wrapped(0, cell.value("name", "") + ": " + troubles[i], view.columns);
    }
    if (cell.value("heads_denied", false)) {
      text += Wrapped(0,
                      cell.value("name", "") + ": how far its streams are can't be seen: " +
                          cell.value("heads_error", ""),
                      view.columns);
    }
    if (troubles.size() > shown) {
      text += cell.value("name", "") + ": " + std::to_string(troubles.size() - shown) +
              " more; --all shows them\n";
    }
  }
  return text.empty() ? "" : "\n" + text;
}

std::string BehindText(const StreamSum& sum) {
  if (!sum.behind_cell.empty()) {
    return BytesText(sum.behind_bytes) + (sum.on_disk ? " on disk, " : ", ") + sum.behind_cell;
  }
  return sum.unknown ? "not known" : sum.compared ? "nothing" : "-";
}

std::string StreamsText(const json& cells, const StatusView& view) {
  const std::vector<StreamSum> sums = SumStreams(cells);
  if (sums.empty()) {
    const auto answers = [](const json& cell) { return !cell.contains("error"); };
    if (std::none_of(cells.begin(), cells.end(), answers)) {
      return "\nno cell answers: what streams there are is not known\n";
    }
    return "\nno streams; make one with `tailcast stream create`\n";
  }
  Rows rows = {{"stream", "source", "shards", "messages", "bytes", "new", "behind"}};
  std::vector<std::string> idle;
  for (const StreamSum& sum : sums) {
    if (sum.idle() && !view.all && sums.size() > kStreamRowsMax) {
      idle.push_back(sum.name);
      continue;
    }
    rows.push_back({sum.name, sum.source, std::to_string(sum.shards), std::to_string(sum.messages),
                    BytesText(sum.bytes), Rate(sum.bytes_per_s), BehindText(sum)});
  }
  std::string text = "\n";
  if (rows.size() > 1) text += TableText(0, rows, {1}, view.columns, kGap);
  if (idle.empty()) return text;
  std::string names = Counted(idle.size(), "idle stream") + " (--all shows them): ";
  for (size_t i = 0; i < std::min(idle.size(), kIdleNamesShownMax); ++i) {
    names += (i == 0 ? "" : ", ") + idle[i];
  }
  if (idle.size() > kIdleNamesShownMax) names += ", ...";
  return text + Wrapped(0, names, view.columns);
}

// What a shard's head says, in the columns messages, bytes, new, behind and heard.
std::vector<std::string> HeadCells(const json& shard, bool source) {
  const bool known = shard.contains("messages");
  const bool empty = !known && shard.value("state", "") == "waiting";
  return {known   ? std::to_string(shard.value("messages", int64_t{0}))
          : empty ? "0"
                  : "?",
          known   ? BytesText(shard.value("bytes", int64_t{0}))
          : empty ? "0 B"
                  : "?",
          known || empty ? Rate(shard.value("bytes_per_s", 0.0)) : "?",
          source                           ? "source"
          : shard.contains("behind_bytes") ? Behind(shard.value("behind_bytes", int64_t{0}),
                                                    shard.value("disk_behind_bytes", int64_t{0}))
                                           : "not known",
          shard.contains("age_ms")
              ? SpanText(Duration::Millis(shard.value("age_ms", int64_t{0}))) + " ago"
              : "-"};
}

std::string StreamText(const json& cells, const StatusView& view) {
  Rows rows = {{"shard", "cell", "messages", "bytes", "new", "behind", "heard"}};
  std::map<int32_t, Rows> by_shard;
  int64_t more = 0;
  for (const json& cell : cells) {
    for (const json& stream : cell.value("streams", json::array())) {
      if (stream.value("stream", "") != view.stream) continue;
      more = std::max(more, stream.value("shards_not_shown", int64_t{0}));
      const bool source = stream.value("source", "") == cell.value("name", "");
      for (const json& shard : stream.value("shards", json::array())) {
        const int32_t number = shard.value("shard", 0);
        std::vector<std::string> row = {std::to_string(number), cell.value("name", "")};
        for (std::string& text : HeadCells(shard, source)) row.push_back(std::move(text));
        by_shard[number].push_back(std::move(row));
      }
    }
  }
  for (auto& [number, some] : by_shard) {
    for (std::vector<std::string>& row : some) rows.push_back(std::move(row));
  }
  std::string text = "\nstream " + view.stream + "\n";
  if (rows.size() > 1) text += TableText(2, rows, {1}, view.columns, kGap);
  if (more > 0) text += "  " + std::to_string(more) + " more shards\n";
  return text;
}

// Where the list of users is not what it seems.
std::string UsersTrouble(const json& cells, const StatusView& view) {
  std::string text;
  for (const json& cell : cells) {
    const std::string name = cell.value("name", "");
    if (cell.contains("users_error")) {
      text += Wrapped(
          0, name + ": who produces and consumes is not known: " + cell.value("users_error", ""),
          view.columns);
    } else if (cell.value("users_full", false)) {
      text += Wrapped(
          0, name + ": as many producers and consumers report as are kept; more may be there",
          view.columns);
    }
  }
  return text.empty() ? text : "\n" + text;
}

// Who produces and, where it reports, who consumes.
std::string UsersText(const json& cells, const StatusView& view) {
  Rows rows = {{"name", "what", "cell", "process", "state", "messages", "behind", "heard"}};
  const bool all_streams = view.stream.empty();
  if (all_streams) rows[0].insert(rows[0].begin() + 2, "stream");
  size_t more = 0;
  for (const json& cell : cells) {
    for (const json& user : cell.value("users", json::array())) {
      if (!view.all && rows.size() > kUsersShownMax) {
        ++more;
        continue;
      }
      const std::string name = user.value("name", ""), kind = user.value("kind", "");
      const std::string host = user.value("host", ""), waits = WaitsText(user);
      const int64_t bytes = user.value("behind_bytes", int64_t{0});
      std::string behind = bytes == 0 ? "nothing" : BytesText(bytes);
      if (user.contains("behind_ms")) {
        behind += ", " + SpanText(Duration::Millis(user.value("behind_ms", int64_t{0})));
      }
      rows.push_back(
          {name.empty() ? "-" : name, kind, cell.value("name", ""),
           host.substr(0, host.find('.')) + "/" + std::to_string(user.value("pid", int64_t{0})),
           user.value("state", "") + (waits == "-" ? "" : " for " + waits),
           std::to_string(user.value("messages", int64_t{0})), behind,
           SpanText(Duration::Millis(user.value("heard_ms", int64_t{0}))) + " ago"});
      if (all_streams) rows.back().insert(rows.back().begin() + 2, user.value("stream", ""));
    }
  }
  if (rows.size() == 1) return "";
  const std::vector<size_t> left =
      all_streams ? std::vector<size_t>{1, 2, 3, 4, 5} : std::vector<size_t>{1, 2, 3, 4};
  std::string text = "\n" + TableText(0, rows, left, view.columns, kGap);
  if (more > 0) text += Counted(more, "more user") + "; --all shows them\n";
  return text;
}

// How many there are, where they are not listed.
std::string UsersSum(const json& cells, const StatusView& view) {
  uint64_t producers = 0, consumers = 0;
  for (const json& cell : cells) {
    for (const json& user : cell.value("users", json::array())) {
      ++(user.value("kind", "") == "producer" ? producers : consumers);
    }
  }
  if (producers + consumers == 0) return "";
  return "\n" + Wrapped(0,
                        Counted(producers, "producer") + " and " + Counted(consumers, "consumer") +
                            " that report; --stream, --cluster or --all lists them",
                        view.columns);
}

std::string OperationsText(const json& cell, const StatusView& view) {
  Rows rows = {{"operation", "to", "layer", "phase", "reader", "writer", "copied", "waits for"}};
  size_t idle = 0, more = 0;
  for (const json& op : cell.value("operations", json::array())) {
    const std::string phase = op.value("phase", ""), layer = op.value("layer", "");
    if (phase == "done" || (!view.stream.empty() && op.value("stream", "") != view.stream)) {
      continue;
    }
    if (!view.all && !IsBusy(op)) {
      ++idle;
      continue;
    }
    if (!view.all && rows.size() > kOperationsShownMax) {
      ++more;
      continue;
    }
    // What is known of the source may be older than what the writer said.
    const int64_t written = op.value("written_bytes", int64_t{0});
    const int64_t source = op.value("source_bytes", int64_t{0});
    std::string copied = "-";  // nobody has said anything yet
    if (written > 0 || source > 0) {
      copied = BytesText(written) + " of " + BytesText(std::max(written, source));
    } else if (phase == "running") {
      copied = layer == "cache" ? "nothing cached" : "0 B";
    }
    rows.push_back({op.value("stream", "") + "/" + std::to_string(op.value("shard", 0)) + " #" +
                        std::to_string(op.value("file", int64_t{0})),
                    op.value("target", ""), layer, phase, op.value("reader", ""),
                    op.value("writer", ""), copied, WaitsText(op)});
  }
  DropEmptyColumn(rows);
  std::string text;
  if (rows.size() > 1) text += TableText(2, rows, {1, 2, 3, 4, 5, 7}, view.columns, kGap);
  if (more > 0) text += "  " + Counted(more, "more busy operation") + "; --all shows them\n";
  if (idle > 0) text += "  " + Counted(idle, "idle operation") + "; --all shows them\n";
  return text;
}

std::string HopsText(const json& cell, const StatusView& view) {
  const json hops = cell.value("hops", json::array());
  if (hops.empty()) return "";
  // "confirmed in": from when a byte was there to when the next cell said that it has it.
  Rows rows = {{"hop to", "layer", "operations", "behind", "for", "confirmed in", "waits for"}};
  for (const json& hop : hops) {
    rows.push_back({hop.value("to", ""), hop.value("layer", ""),
                    std::to_string(hop.value("operations", 0)),
                    Behind(hop.value("behind_bytes", int64_t{0})),
                    SpanText(Seconds(hop.value("behind_ms", 0.0) / 1e3)),
                    SpanText(Seconds(hop.value("confirmed_after_ms", 0.0) / 1e3)), WaitsText(hop)});
  }
  DropEmptyColumn(rows);
  return TableText(2, rows, {1, 6}, view.columns, kGap);
}

std::string ProcessesText(const json& cell, const StatusView& view) {
  Rows rows = {{"process", "role", "pid", "up", "restarts", "memory", "cache", "state"}};
  for (const json& process : cell.value("processes", json::array())) {
    const json status = process.value("status", json::object());
    const bool said = status.is_object() && !status.empty();
    const int64_t pid = process.value("pid", int64_t{0});
    rows.push_back({process.value("name", ""), process.value("role", ""),
                    pid > 0 ? std::to_string(pid) : "-",
                    said ? SpanText(Seconds(status.value("uptime_s", 0.0))) : "-",
                    said ? std::to_string(status.value("restarts", int64_t{0})) : "-",
                    said ? BytesText(status.value("memory_bytes", int64_t{0})) : "-",
                    said ? BytesText(status.value("cache_memory_bytes", int64_t{0})) : "-",
                    process.value("state", "")});
  }
  return rows.size() == 1 ? "" : TableText(2, rows, {1, 7}, view.columns, kGap);
}

// Over which driver of the fabric each process reads the caches, or writes them, and why.
std::string ConnectionsText(const json& cell, const StatusView& view) {
  struct Direction {
    const char* key;
    const char* one;   // what a process does
    const char* many;  // the same of several
  };
  constexpr Direction kDirections[] = {{"reads", " reads", " read"},
                                       {"writes", " writes", " write"}};
  std::string text;
  for (const Direction& direction : kDirections) {
    // By what they read or write and how; in the order in which they come.
    std::vector<std::pair<std::string, std::vector<std::string>>> clients;
    for (const json* status : StatusOfEach(cell)) {
      std::map<std::pair<std::string, std::string>, std::string> replicas;  // by driver and reason
      for (const char* cache : {"data_cache_client", "metadata_cache_client"}) {
        for (const json& one :
             status->value(cache, json::object()).value("connections", json::array())) {
          const json way = one.value(direction.key, json());
          if (!way.is_object()) continue;
          std::string& names = replicas[{way.value("over", ""), way.value("why", "")}];
          const std::string name = one.value("replica", "");
          if ((names + ",").find(" " + name + ",") != std::string::npos) continue;
          names += (names.empty() ? " " : ", ") + name;
        }
      }
      for (const auto& [way, names] : replicas) {
        const std::string what = names + " over " + way.first + " (" + way.second + ")";
        auto same = std::find_if(clients.begin(), clients.end(),
                                 [&](const auto& client) { return client.first == what; });
        if (same == clients.end()) same = clients.insert(same, {what, {}});
        same->second.push_back(status->value("name", ""));
      }
    }
    for (const auto& [what, names] : clients) {
      text +=
          Wrapped(2, ListText(names) + (names.size() == 1 ? direction.one : direction.many) + what,
                  view.columns);
    }
  }
  return text;
}

// Which replicas of the metadata cache have what they should (src/cell/cache_members.h).
std::string CachesText(const json& cell) {
  const CellSum sum = SumCell(cell);
  std::string text;
  if (sum.replicas > 0) {
    const json& ring = cell["metadata_cache"];
    text += "  metadata cache: epoch " + std::to_string(ring.value("epoch", uint64_t{0})) + ", " +
            std::to_string(sum.replicas_whole) + " of " + std::to_string(sum.replicas) +
            " replicas whole\n";
    for (const json& replica : ring["replicas"]) {
      if (!replica.value("whole", false)) text += "    " + ReplicaText(cell, replica) + "\n";
    }
  }
  constexpr char kReadBytes[] = "tailcast_reader_read_bytes_total";
  const int64_t from_cache = SumMetric(cell, kReadBytes, "origin", "cache");
  const int64_t from_primary = SumMetric(cell, kReadBytes, "origin", "primary");
  char line[200];
  if (from_cache + from_primary > 0) {
    std::snprintf(
        line, sizeof line, "  readers: %.1f %% of %s from the cache, %s from the primary layer\n",
        100.0 * static_cast<double>(from_cache) / static_cast<double>(from_cache + from_primary),
        BytesText(from_cache + from_primary).c_str(), BytesText(from_primary).c_str());
    text += line;
  }
  if (sum.cache_reads > 0) {
    text += "  cache reads: " + std::to_string(sum.cache_reads);
    for (const auto& [counter, name] : {std::pair("hits", "hits"),
                                        {"short_reads", "short"},
                                        {"misses", "missed"},
                                        {"torn_retries", "torn"},
                                        {"hedges", "hedged"}}) {
      text += ", " + std::to_string(SumCache(cell, counter)) + " " + name;
    }
    text += "\n";
  }
  return text;
}

std::string DetailsText(const json& cell, const StatusView& view) {
  if (cell.contains("error")) return "";
  const std::string head = "cell " + cell.value("name", "") + ", scheduler " +
                           cell.value("scheduler", "") + ", incarnation " +
                           std::to_string(cell.value("scheduler_incarnation", uint64_t{0}));
  return "\n" + Wrapped(0, head, view.columns) + ProcessesText(cell, view) + CachesText(cell) +
         ConnectionsText(cell, view) + HopsText(cell, view) + OperationsText(cell, view);
}

}  // namespace

std::string StatusText(const json& cells, const StatusView& view) {
  std::string text = CellsText(cells, view) + TroublesText(cells, view);
  if (view.stream.empty()) {
    text += StreamsText(cells, view);
    text += view.details || view.all ? UsersText(cells, view) : UsersSum(cells, view);
    text += UsersTrouble(cells, view);
  } else {
    text += StreamText(cells, view);
    for (const json& cell : cells) {
      if (view.details || cell.contains("error")) continue;
      const std::string operations = OperationsText(cell, view);
      if (!operations.empty()) text += "cell " + cell.value("name", "") + "\n" + operations;
    }
    text += UsersText(cells, view) + UsersTrouble(cells, view);
  }
  if (!view.details) return text;
  for (const json& cell : cells) text += DetailsText(cell, view);
  return text;
}

}  // namespace tailcast::inspect
