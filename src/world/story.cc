#include "tailcast/world/story.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tailcast/base/histogram.h"
#include "tailcast/cache/client_metrics.h"

namespace tailcast::world {
namespace {

using Json = nlohmann::json;

constexpr const char* kCauseNames[] = {"chunks missing", "cache delayed", "lengths unknown",
                                       "bytes corrupt"};

// Two significant digits: what else a change of the code moves is no news.
int64_t Rounded(int64_t value) {
  int64_t unit = 1;
  while (value / unit >= 100) unit *= 10;
  return (value + unit / 2) / unit * unit;
}

std::string Millis(int64_t micros) { return std::to_string(Rounded((micros + 500) / 1000)); }

std::string Right(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}
std::string Left(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

Json StatusOf(const Process& p) {
  return p.node == nullptr ? Json() : Json::parse(p.node->StatusJson(), nullptr, false);
}

}  // namespace

Story::Story(World& world, std::function<void(const std::string&)> tell)
    : world_(world), tell_(std::move(tell)) {
  world_.SetTimeline([this](MonotonicTime at, const std::string& text) { OnEvent(at, text); });
  world_.SetLook([this] { Look(); });
  world_.deployment().SetOnKill([this](const Process& p) { AddCacheCounts(p, killed_[p.cell]); });
}

Story::~Story() {
  world_.SetTimeline({});
  world_.SetLook({});
  world_.deployment().SetOnKill({});
}

std::string Story::Stamp(MonotonicTime at) const {
  const bool scripted = world_.options().scripted;
  const Duration since = at - (scripted && world_.began() ? *world_.began() : MonotonicTime());
  char stamp[32];
  // To the microsecond for who sets a breakpoint; to what a reader of a diff cares for.
  std::snprintf(stamp, sizeof stamp, scripted ? "%8.2f s  " : "%10.6f  ", since.seconds());
  return stamp;
}

void Story::Tell(MonotonicTime at, const std::string& text) { tell_(Stamp(at) + text); }

void Story::OnEvent(MonotonicTime at, const std::string& text) {
  Tell(at, text);
  if (!world_.began()) return;
  // What happens at one time is one event.
  if (!phases_.empty() && phases_.back().from == at) {
    phases_.back().event += "; " + text;
  } else {
    phases_.push_back({at, text, {}});
  }
}

void Story::Look() {
  if (!world_.began()) return;
  if (phases_.empty() || phases_.front().from > *world_.began()) {
    phases_.insert(phases_.begin(), Phase{*world_.began(), "begin", {}});
  }
  const MonotonicTime now = world_.deployment().time().now();
  if (now < look_at_) return;
  look_at_ = now + kLookEvery;
  for (const std::string& cell : world_.deployment().cell_names()) LookAtCopies(cell);
  LookAtConsumers();
}

void Story::LookAtCopies(const std::string& cell) {
  const auto& processes = world_.deployment().cell(cell).processes;
  const auto scheduler = processes.find("scheduler");
  if (scheduler == processes.end()) return;
  const Json status = StatusOf(*scheduler->second);
  if (!status.contains("scheduler") || !status["scheduler"].contains("operations")) return;
  for (const Json& op : status["scheduler"]["operations"]) {
    const Workers now{op.value("reader", ""), op.value("writer", "")};
    if (now.reader.empty() || now.writer.empty()) continue;
    const Copy copy{op.value("stream", ""),
                    op.value("shard", 0),
                    op.value("file", int64_t{0}),
                    op.value("layer", ""),
                    cell,
                    op.value("target", "")};
    Workers& before = copies_[copy];
    if (before == now) continue;
    const auto& [stream, shard, file, layer, from, to] = copy;
    std::string text = from + " -> " + to + ": the " + layer + " copy of ";
    if (world_.shards() > 1) text += "shard " + std::to_string(shard) + " ";
    text += "file " + std::to_string(file);
    text += before.reader.empty() ? " runs on " : " moves to ";
    text += now.reader + " and " + now.writer;
    const std::string why = op.value("message", "");
    if (!before.reader.empty()) {
      text += " (from " + before.reader + " and " + before.writer +
              (why.empty() ? ")" : "; " + why + ")");
    }
    before = now;
    Tell(world_.deployment().time().now(), text);
  }
}

void Story::LookAtConsumers() {
  for (int shard = 0; shard < world_.shards(); ++shard) {
    const auto& consumers = world_.load(shard).consumers;
    for (size_t i = 0; i < consumers.size(); ++i) {
      const Workload::Consumer& c = *consumers[i];
      if (c.agent() == nullptr) continue;
      const consumer::Counters& n = c.agent()->counters();
      const Causes now = {n.fallback_missing_chunk, n.fallback_delayed, n.fallback_no_metadata,
                          n.fallback_corrupt};
      Causes& seen = seen_[{shard, i}];
      for (size_t cause = 0; cause < kCauses; ++cause) {
        // One that began anew counts from nothing.
        const int64_t more = now[cause] < seen[cause] ? now[cause] : now[cause] - seen[cause];
        phases_.back().fallbacks[c.process->cell][cause] += more;
      }
      seen = now;
    }
  }
}

size_t Story::PhaseAt(MonotonicTime at) const {
  size_t phase = 0;
  while (phase + 1 < phases_.size() && phases_[phase + 1].from <= at) ++phase;
  return phase;
}

void Story::TellDelays() {
  std::vector<std::map<std::string, Histogram>> delays(phases_.size());
  for (int shard = 0; shard < world_.shards(); ++shard) {
    const Workload& load = world_.load(shard);
    for (const auto& c : load.consumers) {
      // Those that come later catch up: TellNewcomers.
      if (c->since > *world_.began()) continue;
      for (size_t i = 0; i < c->got.size(); ++i) {
        const auto id = Workload::IdOf(c->got[i]);
        const auto sent = id ? load.published.find(*id) : load.published.end();
        if (sent == load.published.end()) continue;
        delays[PhaseAt(sent->second.at)][c->process->cell].Record(
            (c->got_at[i] - sent->second.at).micros());
      }
    }
  }
  tell_("");
  tell_(
      "delay of messages, ms       number    p50    p99    max  consumers' reads of the primary "
      "layer");
  for (size_t i = 0; i < phases_.size(); ++i) {
    std::vector<std::string> rows;
    for (const std::string& cell : world_.deployment().cell_names()) {
      const Histogram& h = delays[i][cell];
      std::string causes;
      for (size_t cause = 0; cause < kCauses; ++cause) {
        const int64_t count = phases_[i].fallbacks[cell][cause];
        if (count == 0) continue;
        causes += (causes.empty() ? "" : ", ") + std::to_string(Rounded(count)) + " " +
                  kCauseNames[cause];
      }
      if (h.Count() == 0 && causes.empty()) continue;
      const auto value = [&](int64_t micros) {
        return Right(h.Count() == 0 ? "-" : Millis(micros), 7);
      };
      rows.push_back("    " + Left(cell, 20) + Right(std::to_string(h.Count()), 10) +
                     value(h.Percentile(50)) + value(h.Percentile(99)) + value(h.Max()) +
                     (causes.empty() ? "" : "  " + causes));
    }
    if (rows.empty()) continue;
    Tell(phases_[i].from, phases_[i].event);
    for (const std::string& row : rows) tell_(row);
  }
}

void Story::TellNewcomers() {
  // By the event that they came after, and by cell.
  struct Newcomers {
    int count = 0, waiting = 0;
    int64_t last_us = 0;
  };
  std::map<std::pair<size_t, std::string>, Newcomers> all;
  for (int shard = 0; shard < world_.shards(); ++shard) {
    const Workload& load = world_.load(shard);
    for (const auto& c : load.consumers) {
      if (c->since <= *world_.began()) continue;
      Newcomers& group = all[{PhaseAt(c->since), c->process->cell}];
      ++group.count;
      std::optional<MonotonicTime> caught_up;
      for (size_t i = 0; i < c->got.size() && !caught_up; ++i) {
        const auto id = Workload::IdOf(c->got[i]);
        const auto sent = id ? load.published.find(*id) : load.published.end();
        if (sent != load.published.end() && sent->second.at >= c->since) caught_up = c->got_at[i];
      }
      if (!caught_up) {
        ++group.waiting;
      } else {
        group.last_us = std::max(group.last_us, (*caught_up - c->since).micros());
      }
    }
  }
  if (all.empty()) return;
  tell_("");
  tell_("consumers that came later");
  for (const auto& [key, group] : all) {
    std::string text = key.second + ": " + std::to_string(group.count) + " more";
    if (group.waiting < group.count) {
      text += ", with the newest message after at most " + Millis(group.last_us) + " ms";
    }
    if (group.waiting > 0) {
      text += ", " + std::to_string(group.waiting) + " when no more was published";
    }
    Tell(phases_[key.first].from, text);
  }
}

void Story::AddCacheCounts(const Process& p, Counts& counts) {
  const Json status = p.data_cache == nullptr ? StatusOf(p) : Json();
  for (const cache::ClientMetric& metric : cache::ClientMetrics()) {
    if (p.data_cache != nullptr) {
      counts[metric.key] +=
          static_cast<int64_t>((p.data_cache->counters().*(metric.count)).value());
    } else if (status.contains("data_cache_client")) {
      counts[metric.key] += status["data_cache_client"].value(metric.key, int64_t{0});
    }
  }
}

void Story::TellCaches() {
  struct Column {
    const char* key;
    const char* title;
  };
  constexpr Column kColumns[] = {{"reads", "chunk reads"},
                                 {"short_reads", "short"},
                                 {"misses", "misses"},
                                 {"hedges", "hedged"},
                                 {"widened_reads", "asked others"},
                                 {"mutations", "writes"},
                                 {"mutation_failures", "failed writes"}};
  tell_("");
  std::string title = Left("what cache clients met", 24);
  for (const Column& column : kColumns)
    title += Right(column.title, std::string(column.title).size() + 2);
  tell_(title);
  for (const std::string& cell : world_.deployment().cell_names()) {
    Counts counts = killed_[cell];
    for (const auto& [name, p] : world_.deployment().cell(cell).processes) {
      AddCacheCounts(*p, counts);
    }
    std::string row = Left("    " + cell, 24);
    for (const Column& column : kColumns) {
      row +=
          Right(std::to_string(Rounded(counts[column.key])), std::string(column.title).size() + 2);
    }
    tell_(row);
  }
}

void Story::End(const Outcome& outcome) {
  if (world_.began() && !phases_.empty()) {
    TellDelays();
    TellNewcomers();
    TellCaches();
  }
  tell_("");
  tell_(outcome.ok() ? "every rule held, and every consumer has everything that was acknowledged"
                     : "FAILED: " + outcome.problem);
}

}  // namespace tailcast::world
