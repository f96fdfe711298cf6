#include "tailcast/world/scenario.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tailcast/world/scenario_words.h"
#include "tailcast/world/story.h"

namespace tailcast::world {
namespace {

// A setting that is one number.
struct Number {
  const char* name;
  const char* what;
  int64_t least, most;
  void (*set)(Options&, int64_t);
};
constexpr Number kNumbers[] = {
    {"seed", "what is drawn is drawn from it", 1, INT64_MAX,
     [](Options& o, int64_t n) { o.seed = static_cast<uint64_t>(n); }},
    {"caches", "of each cell", 3, 9, [](Options& o, int64_t n) { o.caches = static_cast<int>(n); }},
    {"spares", "caches of each cell that are in no ring at first", 0, 4,
     [](Options& o, int64_t n) { o.spares = static_cast<int>(n); }},
    {"readers", "of each cell", 1, 9,
     [](Options& o, int64_t n) { o.readers = static_cast<int>(n); }},
    {"writers", "of each cell", 1, 9,
     [](Options& o, int64_t n) { o.writers = static_cast<int>(n); }},
    {"consumers", "of each cell and shard, from the start", 1, 50,
     [](Options& o, int64_t n) { o.consumers = static_cast<int>(n); }},
    {"shards", "of the stream", 1, 8,
     [](Options& o, int64_t n) { o.shards = static_cast<int>(n); }},
    {"chunk", "bytes of a chunk", 512, 4096, [](Options& o, int64_t n) { o.chunk_size = n; }},
    {"roll", "bytes of a message file", 5000, 1 << 30,
     [](Options& o, int64_t n) { o.roll_bytes = n; }},
    {"cache-bytes", "of a data cache", 1 << 20, 64 << 20,
     [](Options& o, int64_t n) { o.cache_bytes = n; }},
};

// Settings that are not one number.
struct Setting {
  const char* name;
  const char* usage;
  const char* what;
};
constexpr Setting kSettings[] = {
    {"cells", "cells NAME...", "a chain, the source first"},
    {"delay", "delay TIME", "of links between cells, one way"},
    {"link", "link A -> B TIME, link A <-> B TIME", "the delay of this one"},
    {"jitter", "jitter TIME", "a message between cells is later by up to this"},
    {"profile", "profile default|low-latency", "flushes and polls of the paper, or doorbells"},
    {"messages", "messages NUMBER every TIME of BYTES", "of each shard"},
};

std::string Use(const char* usage, const std::string& what) {
  std::string text = usage;
  text.resize(std::max<size_t>(text.size(), 36), ' ');
  return "  " + text + " " + what + "\n";
}

Words SettingNames() {
  Words names;
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  for (const Number& number : kNumbers) names.emplace_back(number.name);
  return names;
}

class Parser {
 public:
  explicit Parser(std::string file) : file_(std::move(file)) {
    Options& o = scenario_.options;
    o.scripted = true;
    o.low_latency = false;
    o.cells.clear();
    o.roll_bytes = 1 << 20;
    o.messages = 100;
    o.message_interval = Duration::Millis(20);
    o.message_bytes_min = o.message_bytes_max = 1000;
  }

  Result<Scenario> Parse(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      TAILCAST_RETURN_IF_ERROR(At(line_, ParseLine(line)));
    }
    TAILCAST_RETURN_IF_ERROR(At(std::max(line_, 1), CheckCells()));
    Finish();
    return std::move(scenario_);
  }

 private:
  Status At(int line, const Status& status) const {
    if (status.ok()) return status;
    return InvalidArgumentError(file_ + ":" + std::to_string(line) + ": " +
                                std::string(status.message()));
  }
  static Status Usage(const std::string& name) {
    for (const Setting& setting : kSettings) {
      if (name == setting.name) {
        return InvalidArgumentError("this setting is written '" + std::string(setting.usage) + "'");
      }
    }
    return InvalidArgumentError("this setting is written '" + name + " NUMBER'");
  }
  Status CheckCells() const {
    if (!scenario_.options.cells.empty()) return OkStatus();
    return InvalidArgumentError("no cells: 'cells us eu' names them, the source first");
  }
  Status CheckCell(const std::string& cell) const {
    return world::CheckCell(scenario_.options.cells, cell);
  }

  Status ParseLine(std::string_view line) {
    if (scenario_.title.empty() && line.starts_with("# ")) scenario_.title = line.substr(2);
    const Words words = SplitWords(line);
    if (words.empty()) return OkStatus();
    if (words[0] == "at") return ParseAt(words);
    if (!events_.empty()) {
      return InvalidArgumentError("'" + words[0] +
                                  "' stands after an event; settings come first, events begin with "
                                  "'at TIME'");
    }
    if (!set_.emplace(words[0]).second && words[0] != "link") {
      return InvalidArgumentError("'" + words[0] + "' was set before");
    }
    return ParseSetting(words);
  }

  Status ParseSetting(const Words& words) {
    Options& o = scenario_.options;
    const std::string& name = words[0];
    for (const Number& number : kNumbers) {
      if (name != number.name) continue;
      if (words.size() != 2) return Usage(name);
      TAILCAST_ASSIGN_OR_RETURN(const int64_t value,
                                ParseNumber(words[1], name, number.least, number.most));
      number.set(o, value);
      return OkStatus();
    }
    if (name == "cells") return ParseCells(words);
    if (name == "link") return ParseLink(words);
    if (name == "messages") return ParseMessages(words);
    if (name == "delay" || name == "jitter") {
      if (words.size() != 2) return Usage(name);
      TAILCAST_ASSIGN_OR_RETURN((name == "delay" ? o.link_delay : o.link_jitter),
                                ParseDuration(words[1], name));
      return OkStatus();
    }
    if (name == "profile") {
      if (words.size() != 2 || (words[1] != "default" && words[1] != "low-latency")) {
        return Usage(name);
      }
      o.low_latency = words[1] == "low-latency";
      return OkStatus();
    }
    return InvalidArgumentError("there is no setting '" + name + "'; there are " +
                                ListOf(SettingNames()) + ", and events begin with 'at TIME'");
  }

  Status ParseCells(const Words& words) {
    Words& cells = scenario_.options.cells;
    if (words.size() < 2 || words.size() > 9) return Usage("cells");
    for (size_t i = 1; i < words.size(); ++i) {
      const std::string& cell = words[i];
      const auto good = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      };
      if (!std::all_of(cell.begin(), cell.end(), good)) {
        return InvalidArgumentError("the name of a cell has a-z, 0-9 and -, not as '" + cell + "'");
      }
      if (std::find(cells.begin(), cells.end(), cell) != cells.end()) {
        return InvalidArgumentError("there are two cells '" + cell + "'");
      }
      cells.push_back(cell);
    }
    return OkStatus();
  }

  Status ParseLink(const Words& words) {
    if (words.size() != 5 || (words[2] != "->" && words[2] != "<->")) return Usage("link");
    TAILCAST_RETURN_IF_ERROR(CheckCells());
    TAILCAST_RETURN_IF_ERROR(CheckCell(words[1]));
    TAILCAST_RETURN_IF_ERROR(CheckCell(words[3]));
    if (words[1] == words[3]) {
      return InvalidArgumentError("'" + words[1] + "' has no link to itself");
    }
    TAILCAST_ASSIGN_OR_RETURN(const Duration delay, ParseDuration(words[4], "the delay of a link"));
    const auto set = [&](const std::string& from, const std::string& to) -> Status {
      if (scenario_.options.link_delays.emplace(std::pair(from, to), delay).second) {
        return OkStatus();
      }
      return InvalidArgumentError("the link " + from + " -> " + to + " was set before");
    };
    TAILCAST_RETURN_IF_ERROR(set(words[1], words[3]));
    return words[2] == "<->" ? set(words[3], words[1]) : OkStatus();
  }

  Status ParseMessages(const Words& words) {
    Options& o = scenario_.options;
    if (words.size() != 6 || words[2] != "every" || words[4] != "of") return Usage("messages");
    TAILCAST_ASSIGN_OR_RETURN(const int64_t count,
                              ParseNumber(words[1], "the number of messages", 1, 20000));
    TAILCAST_ASSIGN_OR_RETURN(o.message_interval,
                              ParseDuration(words[3], "the time between messages"));
    if (o.message_interval < Duration::Millis(1)) {
      return InvalidArgumentError("the time between messages is at least 1ms");
    }
    TAILCAST_ASSIGN_OR_RETURN(o.message_bytes_max,
                              ParseNumber(words[5], "the bytes of a message", 20, 100'000));
    o.message_bytes_min = o.message_bytes_max;
    o.messages = static_cast<int>(count);
    return OkStatus();
  }

  Status ParseAt(Words words) {
    TAILCAST_RETURN_IF_ERROR(CheckCells());
    if (words.size() < 3) return InvalidArgumentError("an event is written 'at TIME EVENT'");
    ScenarioEvent event;
    event.line = line_;
    TAILCAST_ASSIGN_OR_RETURN(event.at, ParseDuration(words[1], "when"));
    if (!events_.empty() && event.at < events_.back().at) {
      return InvalidArgumentError(words[1] + " is before " + DurationText(events_.back().at) +
                                  " of line " + std::to_string(events_.back().line) +
                                  "; events stand in the order of their times");
    }
    if (words.size() >= 5 && words[words.size() - 2] == "for") {
      TAILCAST_ASSIGN_OR_RETURN(const Duration lasts, ParseDuration(words.back(), "for how long"));
      if (lasts < Duration::Millis(1)) {
        return InvalidArgumentError("what lasts, lasts at least 1ms");
      }
      event.until = event.at + lasts;
      words.resize(words.size() - 2);
    }
    words.erase(words.begin(), words.begin() + 2);
    event.text = words[0];
    TAILCAST_RETURN_IF_ERROR(ParseEvent(words, scenario_.options, event));
    for (const ScenarioEvent& before : events_) TAILCAST_RETURN_IF_ERROR(Apart(before, event));
    events_.push_back(std::move(event));
    return OkStatus();
  }

  // Nothing befalls what something else still does.
  static Status Apart(const ScenarioEvent& before, const ScenarioEvent& event) {
    if (before.text == "trim" && event.text == "spike") {
      return InvalidArgumentError("more consumers begin at the beginning, which line " +
                                  std::to_string(before.line) + " lets go of");
    }
    for (const std::string& subject : event.subjects) {
      const auto& others = before.subjects;
      if (std::find(others.begin(), others.end(), subject) == others.end()) continue;
      const bool at_once = before.at == event.at;
      if (!at_once && before.until <= event.at) continue;
      const std::string when = at_once ? "is at the same time"
                               : before.until == Duration::Infinite()
                                   ? "lasts until the end; 'for TIME' ends it before"
                                   : "lasts until " + DurationText(before.until);
      return InvalidArgumentError("'" + event.text + "' overlaps '" + before.text + "' of line " +
                                  std::to_string(before.line) + " on " + subject + ", which " +
                                  when);
    }
    return OkStatus();
  }

  void Finish() {
    Options& o = scenario_.options;
    for (ScenarioEvent& event : events_) {
      if (!event.fault.empty()) o.faults.insert(event.fault);
      for (PlannedEvent& planned : event.plan) o.plan.push_back(std::move(planned));
      if (event.undo && event.until != Duration::Infinite()) {
        o.plan.push_back({event.until, std::move(event.undo)});
      }
    }
    // What ends at a time stands before what begins then.
    std::stable_sort(o.plan.begin(), o.plan.end(),
                     [](const auto& a, const auto& b) { return a.at < b.at; });
  }

  const std::string file_;
  int line_ = 0;
  Scenario scenario_;
  std::set<std::string> set_;
  std::vector<ScenarioEvent> events_;
};

}  // namespace

Result<Scenario> ParseScenario(std::string_view text, const std::string& file) {
  return Parser(file).Parse(text);
}

std::string ScenarioHelp() {
  std::string text = "settings\n";
  for (const Setting& setting : kSettings) text += Use(setting.usage, setting.what);
  for (const Number& number : kNumbers) {
    text += Use((std::string(number.name) + " NUMBER").c_str(),
                std::string(number.what) + ": " + std::to_string(number.least) +
                    (number.most == INT64_MAX ? " or more" : " .. " + std::to_string(number.most)));
  }
  return text + "events: at TIME EVENT, those with * also: at TIME EVENT for TIME\n" + EventHelp();
}

ScenarioRun RunScenario(const Scenario& scenario) {
  ScenarioRun run;
  World world(scenario.options);
  Story story(world, [&run](const std::string& line) { run.story += line + "\n"; });
  if (!scenario.title.empty()) run.story += scenario.title + "\n\n";
  run.outcome = world.Run();
  story.End(run.outcome);
  return run;
}

}  // namespace tailcast::world
