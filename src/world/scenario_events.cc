// What may happen in a scenario: a table of events.
#include <algorithm>
#include <utility>

#include "tailcast/world/faults.h"
#include "tailcast/world/scenario_words.h"

namespace tailcast::world {
namespace {

class EventParser {
 public:
  EventParser(const Words& words, const Options& options, ScenarioEvent& event)
      : words_(words), options_(options), event_(event) {}

  Status Parse();

 private:
  struct Kind {
    const char* name;
    const char* usage;  // its words
    const char* what;
    const char* fault;
    bool lasts;
    size_t least, most;  // words behind its name
    Status (EventParser::*parse)();
  };
  friend std::string tailcast::world::EventHelp();
  static const Kind kKinds[];

  // A process: what a scenario calls it, and how it is found when the time has come.
  struct Who {
    std::string cell, name;
    bool producer = false;
    int consumer = -1;  // of shard 0
    bool user() const { return producer || consumer >= 0; }
    std::string FullName(const World& world) const {
      if (producer) return world.ProducerName(0);
      return cell + "/" + (consumer >= 0 ? "consumer-" + std::to_string(consumer) : name);
    }
  };

  const std::string& arg(size_t i) const { return words_[i + 1]; }
  Status CheckCell(const std::string& name) const { return world::CheckCell(options_.cells, name); }
  Words ProcessesOf(const std::string& cell, bool users) const;
  Result<Who> ParseProcess(const std::string& text, bool users) const;
  // FROM -> TO or FROM <-> TO.
  Result<Ways> ParseWays() const {
    if (arg(1) == "->") return Ways::kOne;
    if (arg(1) == "<->") return Ways::kBoth;
    return InvalidArgumentError("between two ends stands -> or <->, not '" + arg(1) + "'");
  }
  void Do(std::function<void(World&)> what) { event_.plan.push_back({event_.at, std::move(what)}); }
  static std::string WayBetween(std::string a, std::string b) {
    if (b < a) std::swap(a, b);
    return "the way between " + a + " and " + b;
  }

  Status Kill();
  Status Down();
  Status Stop();
  Status Lose();
  Status Wipe();
  Status Clock();
  Status Cut();
  Status Clogged();
  Status Reset();
  Status Slow();
  Status SlowDisk();
  Status Power();
  Status Spike();
  Status Ring();
  Status Tree();
  Status Trim();
  Status Retain();
  Status Second();

  const Words& words_;
  const Options& options_;
  ScenarioEvent& event_;
};

const EventParser::Kind EventParser::kKinds[] = {
    {"kill", "kill CELL/PROCESS", "kill -9; an init system starts it again at once", "kill", false,
     1, 1, &EventParser::Kill},
    {"down", "down CELL/PROCESS", "kill -9, and it stays down", "down", true, 1, 1,
     &EventParser::Down},
    {"stop", "stop CELL/PROCESS", "SIGSTOP, and SIGCONT", "stop", true, 1, 1, &EventParser::Stop},
    {"lose", "lose CELL", "all processes of a cell die behind a cut: nobody is told", "cell", true,
     1, 1, &EventParser::Lose},
    {"wipe", "wipe CELL", "all caches of a cell start again, empty", "kill", false, 1, 1,
     &EventParser::Wipe},
    {"clock", "clock CELL/PROCESS TIME", "its wall clock is ahead by so much", "clock", true, 2, 2,
     &EventParser::Clock},
    {"cut", "cut A -> B, cut A <-> B",
     "nothing passes, one way or both; cells, or processes of one cell", "cut", true, 3, 3,
     &EventParser::Cut},
    {"clog", "clog CELL -> CELL BYTES TIME", "so many bytes a second pass, in so much time", "clog",
     true, 5, 5, &EventParser::Clogged},
    {"reset", "reset CELL CELL", "the connections between two cells, or within one, break", "reset",
     false, 2, 2, &EventParser::Reset},
    {"slow", "slow CELL/cache-N TIME", "reads at a cache take so much longer", "slow", true, 2, 2,
     &EventParser::Slow},
    {"slow-disk", "slow-disk CELL TIME", "each request to a cell's primary layer takes so long",
     "disk", true, 2, 2, &EventParser::SlowDisk},
    {"power", "power CELL", "power loss of a cell's primary layer", "power", false, 1, 1,
     &EventParser::Power},
    {"spike", "spike CELL NUMBER [over TIME]",
     "so many more consumers of each shard, from the beginning on", "", false, 2, 4,
     &EventParser::Spike},
    {"ring", "ring CELL CACHE...", "the caches of a cell become these", "ring", false, 4, 10,
     &EventParser::Ring},
    {"tree", "tree FROM TO [FROM TO]...", "the copy tree gets these edges", "reroute", false, 2, 40,
     &EventParser::Tree},
    {"trim", "trim BYTE", "an operator lets go of what lies before this byte of shard 0", "trim",
     false, 1, 1, &EventParser::Trim},
    {"retain", "retain BYTES|TIME",
     "what is kept of each shard from then on: so many bytes of closed files, or files so old",
     "retain", false, 1, 1, &EventParser::Retain},
    {"second-scheduler", "second-scheduler CELL", "somebody starts one beside the cell's",
     "schedulers", false, 1, 1, &EventParser::Second},
};

Status EventParser::Parse() {
  for (const Kind& kind : kKinds) {
    if (words_[0] != kind.name) continue;
    const size_t count = words_.size() - 1;
    if (count < kind.least || count > kind.most) {
      return InvalidArgumentError("this event is written '" + std::string(kind.usage) + "'");
    }
    if (!kind.lasts && event_.until != Duration::Infinite()) {
      return InvalidArgumentError("'" + words_[0] + "' does not last, so there is no 'for'");
    }
    event_.fault = kind.fault;
    if (!kind.lasts) event_.until = event_.at;
    return (this->*kind.parse)();
  }
  Words names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return InvalidArgumentError("there is no event '" + words_[0] + "'; there are " + ListOf(names));
}

Words EventParser::ProcessesOf(const std::string& cell, bool users) const {
  Words all = {"scheduler"};
  const auto add = [&](const char* role, int count) {
    for (int i = 1; i <= count; ++i) all.push_back(std::string(role) + "-" + std::to_string(i));
  };
  add("cache", options_.caches + options_.spares);
  add("reader", options_.readers);
  add("writer", options_.writers);
  if (users && cell == options_.cells.front()) all.emplace_back("producer");
  if (users) add("consumer", options_.consumers);
  return all;
}

Result<EventParser::Who> EventParser::ParseProcess(const std::string& text, bool users) const {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) {
    return InvalidArgumentError("a process is CELL/NAME, as us/writer-1, not '" + text + "'");
  }
  Who who{.cell = text.substr(0, slash), .name = text.substr(slash + 1)};
  TAILCAST_RETURN_IF_ERROR(CheckCell(who.cell));
  const Words all = ProcessesOf(who.cell, users);
  if (std::find(all.begin(), all.end(), who.name) == all.end()) {
    return InvalidArgumentError("there is no process '" + text + "' that this can happen to; of " +
                                who.cell + " there are " + ListOf(all));
  }
  who.producer = who.name == "producer";
  if (who.name.starts_with("consumer-")) {
    const auto& cells = options_.cells;
    const auto before = std::find(cells.begin(), cells.end(), who.cell) - cells.begin();
    who.consumer = static_cast<int>(before) * options_.consumers +
                   std::stoi(who.name.substr(std::string("consumer-").size())) - 1;
  }
  return who;
}

Status EventParser::Kill() {
  TAILCAST_ASSIGN_OR_RETURN(const Who who, ParseProcess(arg(0), true));
  event_.subjects = {arg(0)};
  if (who.producer) event_.fault = "producer";
  if (who.consumer >= 0) event_.fault = "consumer";
  Do([who](World& w) {
    if (who.producer) return w.KillProducer(0);
    if (who.consumer >= 0) return w.KillConsumer(0, static_cast<size_t>(who.consumer));
    KillAndRestart(w.deployment(), who.cell, who.name);
  });
  return OkStatus();
}

Status EventParser::Down() {
  TAILCAST_ASSIGN_OR_RETURN(const Who who, ParseProcess(arg(0), false));
  event_.subjects = {arg(0)};
  Do([who](World& w) { TakeDown(w.deployment(), who.cell, who.name); });
  event_.undo = [who](World& w) { w.deployment().Raise(who.cell, who.name); };
  return OkStatus();
}

Status EventParser::Stop() {
  TAILCAST_ASSIGN_OR_RETURN(const Who who, ParseProcess(arg(0), false));
  event_.subjects = {arg(0)};
  Do([who](World& w) { StopOne(w.deployment(), who.cell, who.name); });
  event_.undo = [who](World& w) { w.deployment().Continue(who.cell, who.name); };
  return OkStatus();
}

Status EventParser::Lose() {
  const std::string cell = arg(0);
  TAILCAST_RETURN_IF_ERROR(CheckCell(cell));
  const Words names = ProcessesOf(cell, false);
  for (const std::string& name : names) event_.subjects.push_back(cell + "/" + name);
  for (const std::string& other : options_.cells) {
    if (other != cell) event_.subjects.push_back(WayBetween(cell, other));
  }
  Do([cell](World& w) { LoseAll(w.deployment(), cell); });
  event_.undo = [cell, names](World& w) {
    for (const std::string& other : w.options().cells) {
      if (other != cell) CutCells(w.deployment(), cell, other, Ways::kBoth, false);
    }
    for (const std::string& name : names) w.deployment().Raise(cell, name);
  };
  return OkStatus();
}

Status EventParser::Wipe() {
  const std::string cell = arg(0);
  TAILCAST_RETURN_IF_ERROR(CheckCell(cell));
  for (const std::string& name : ProcessesOf(cell, false)) {
    if (name.starts_with("cache-")) event_.subjects.push_back(cell + "/" + name);
  }
  Do([cell](World& w) { WipeCaches(w.deployment(), cell); });
  return OkStatus();
}

Status EventParser::Clock() {
  TAILCAST_ASSIGN_OR_RETURN(const Who who, ParseProcess(arg(0), false));
  TAILCAST_ASSIGN_OR_RETURN(const Duration offset, ParseDuration(arg(1), "the offset of a clock"));
  event_.subjects = {arg(0)};
  const auto set = [who](World& w, Duration to) {
    SetClockOff(w.deployment(), w.deployment().process(who.cell, who.name), to);
  };
  Do([set, offset](World& w) { set(w, offset); });
  event_.undo = [set](World& w) { set(w, Duration()); };
  return OkStatus();
}

Status EventParser::Cut() {
  TAILCAST_ASSIGN_OR_RETURN(const Ways ways, ParseWays());
  const std::string from = arg(0), to = arg(2);
  if (from == to) return InvalidArgumentError("between '" + from + "' and itself nothing is cut");
  event_.subjects = {WayBetween(from, to)};
  if (from.find('/') == std::string::npos && to.find('/') == std::string::npos) {
    TAILCAST_RETURN_IF_ERROR(CheckCell(from));
    TAILCAST_RETURN_IF_ERROR(CheckCell(to));
    const auto set = [=](World& w, bool cut) { CutCells(w.deployment(), from, to, ways, cut); };
    Do([set](World& w) { set(w, true); });
    event_.undo = [set](World& w) { set(w, false); };
    return OkStatus();
  }
  TAILCAST_ASSIGN_OR_RETURN(const Who a, ParseProcess(from, true));
  TAILCAST_ASSIGN_OR_RETURN(const Who b, ParseProcess(to, true));
  if (a.cell != b.cell) {
    return InvalidArgumentError("processes of two cells are not cut off from each other: cut " +
                                a.cell + " -> " + b.cell + ", or processes of one cell");
  }
  event_.fault = "inside";
  // The names of when it was cut: a producer may have been replaced since.
  const auto names = std::make_shared<std::pair<std::string, std::string>>();
  Do([=](World& w) {
    *names = {a.FullName(w), b.FullName(w)};
    CutProcesses(w.deployment(), names->first, names->second, ways, true);
  });
  event_.undo = [=](World& w) {
    CutProcesses(w.deployment(), names->first, names->second, ways, false);
  };
  return OkStatus();
}

Status EventParser::Clogged() {
  TAILCAST_ASSIGN_OR_RETURN(const Ways ways, ParseWays());
  const std::string from = arg(0), to = arg(2);
  TAILCAST_RETURN_IF_ERROR(CheckCell(from));
  TAILCAST_RETURN_IF_ERROR(CheckCell(to));
  if (from == to) return InvalidArgumentError("'" + from + "' has no link to itself");
  TAILCAST_ASSIGN_OR_RETURN(const int64_t bytes,
                            ParseNumber(arg(3), "bytes a second", 1000, 1'000'000'000));
  TAILCAST_ASSIGN_OR_RETURN(const Duration delay, ParseDuration(arg(4), "the delay of a link"));
  event_.subjects = {"the bandwidth between " + std::min(from, to) + " and " + std::max(from, to)};
  Do([=](World& w) {
    Clog(w.deployment(), from, to, bytes, delay);
    if (ways == Ways::kBoth) Clog(w.deployment(), to, from, bytes, delay);
  });
  event_.undo = [=](World& w) {
    w.deployment().Say(from + " and " + to + " are as they were");
    Unclog(w.deployment(), from, to);
    Unclog(w.deployment(), to, from);
  };
  return OkStatus();
}

Status EventParser::Reset() {
  const std::string a = arg(0), b = arg(1);
  TAILCAST_RETURN_IF_ERROR(CheckCell(a));
  TAILCAST_RETURN_IF_ERROR(CheckCell(b));
  Do([=](World& w) { ResetBetween(w.deployment(), a, b); });
  return OkStatus();
}

Status EventParser::Slow() {
  TAILCAST_ASSIGN_OR_RETURN(const Who who, ParseProcess(arg(0), false));
  if (!who.name.starts_with("cache-")) {
    return InvalidArgumentError("reads are answered by caches, as " + who.cell +
                                "/cache-1, not by '" + arg(0) + "'");
  }
  TAILCAST_ASSIGN_OR_RETURN(const Duration delay, ParseDuration(arg(1), "the delay of reads"));
  event_.subjects = {"the reads at " + arg(0)};
  const std::string name = arg(0);
  Do([=](World& w) { SlowDown(w.deployment(), name, delay); });
  event_.undo = [=](World& w) { SlowDown(w.deployment(), name, Duration()); };
  return OkStatus();
}

Status EventParser::SlowDisk() {
  const std::string cell = arg(0);
  TAILCAST_RETURN_IF_ERROR(CheckCell(cell));
  TAILCAST_ASSIGN_OR_RETURN(const Duration delay, ParseDuration(arg(1), "the delay of a disk"));
  event_.subjects = {"the disk of " + cell};
  Do([=](World& w) { world::SlowDisk(w.deployment(), cell, delay); });
  event_.undo = [=](World& w) { world::SlowDisk(w.deployment(), cell, Duration()); };
  return OkStatus();
}

Status EventParser::Power() {
  const std::string cell = arg(0);
  TAILCAST_RETURN_IF_ERROR(CheckCell(cell));
  Do([=](World& w) { LosePower(w.deployment(), cell); });
  return OkStatus();
}

Status EventParser::Spike() {
  const std::string cell = arg(0);
  TAILCAST_RETURN_IF_ERROR(CheckCell(cell));
  TAILCAST_ASSIGN_OR_RETURN(const int64_t count, ParseNumber(arg(1), "more consumers", 1, 500));
  const std::string more = std::to_string(count) + " more consumers in " + cell;
  if (words_.size() == 3) {
    Do([=](World& w) {
      w.deployment().Say(more);
      w.AddConsumers(cell, static_cast<int>(count));
    });
    return OkStatus();
  }
  if (words_.size() != 5 || arg(2) != "over") {
    return InvalidArgumentError("this event is written 'spike CELL NUMBER [over TIME]'");
  }
  TAILCAST_ASSIGN_OR_RETURN(const Duration over, ParseDuration(arg(3), "the time of a ramp"));
  for (int64_t i = 0; i < count; ++i) {
    event_.plan.push_back({event_.at + Duration::Micros(over.micros() * i / count), [=](World& w) {
                             if (i == 0) w.deployment().Say(more + " within " + DurationText(over));
                             w.AddConsumers(cell, 1);
                           }});
  }
  return OkStatus();
}

Status EventParser::Ring() {
  const std::string cell = arg(0);
  TAILCAST_RETURN_IF_ERROR(CheckCell(cell));
  Words caches;
  for (const std::string& name : ProcessesOf(cell, false)) {
    if (name.starts_with("cache-")) caches.push_back(name);
  }
  const Words members(words_.begin() + 2, words_.end());
  for (size_t i = 0; i < members.size(); ++i) {
    if (std::find(caches.begin(), caches.end(), members[i]) == caches.end()) {
      return InvalidArgumentError("there is no cache '" + members[i] + "' in " + cell +
                                  "; there are " + ListOf(caches));
    }
    if (std::find(members.begin(), members.begin() + static_cast<ptrdiff_t>(i), members[i]) !=
        members.begin() + static_cast<ptrdiff_t>(i)) {
      return InvalidArgumentError("'" + members[i] + "' is in the ring twice");
    }
  }
  Do([=](World& w) { w.ChangeRing(cell, members); });
  return OkStatus();
}

Status EventParser::Tree() {
  std::vector<World::Edge> edges;
  Words fed = {options_.cells.front()};
  if (words_.size() % 2 == 0) {
    return InvalidArgumentError("an edge of a tree is two cells: FROM TO");
  }
  for (size_t i = 0; i + 2 < words_.size(); i += 2) {
    TAILCAST_RETURN_IF_ERROR(CheckCell(arg(i)));
    TAILCAST_RETURN_IF_ERROR(CheckCell(arg(i + 1)));
    if (std::find(fed.begin(), fed.end(), arg(i)) == fed.end()) {
      return InvalidArgumentError("'" + arg(i) + "' is fed by nobody before it feeds '" +
                                  arg(i + 1) + "'; edges go from the source " + fed[0] + " down");
    }
    if (std::find(fed.begin(), fed.end(), arg(i + 1)) != fed.end()) {
      return InvalidArgumentError("'" + arg(i + 1) + "' is in the tree twice");
    }
    fed.push_back(arg(i + 1));
    edges.emplace_back(arg(i), arg(i + 1));
  }
  if (fed.size() != options_.cells.size()) {
    return InvalidArgumentError("the tree has " + ListOf(fed) + ", and must have " +
                                ListOf(options_.cells));
  }
  Do([=](World& w) { w.ChangeTree(edges); });
  return OkStatus();
}

Status EventParser::Trim() {
  TAILCAST_ASSIGN_OR_RETURN(const int64_t byte,
                            ParseNumber(arg(0), "the byte", 1, int64_t{1} << 40));
  Do([=](World& w) { w.Trim(0, byte); });
  return OkStatus();
}

Status EventParser::Retain() {
  v1::Retention retention;
  if (arg(0).find_first_not_of("0123456789") == std::string::npos) {
    TAILCAST_ASSIGN_OR_RETURN(const int64_t bytes,
                              ParseNumber(arg(0), "what is kept", 1, int64_t{1} << 40));
    retention.set_shard_bytes_max(bytes);
  } else {
    TAILCAST_ASSIGN_OR_RETURN(const Duration age,
                              ParseDuration(arg(0), "for how long files are kept"));
    if (age == Duration()) return InvalidArgumentError("files are kept for some time, not for 0s");
    retention.set_age_max_us(age.micros());
  }
  Do([=](World& w) { w.Retain(retention); });
  return OkStatus();
}

Status EventParser::Second() {
  const std::string cell = arg(0);
  TAILCAST_RETURN_IF_ERROR(CheckCell(cell));
  event_.subjects = {"the second scheduler of " + cell};
  // Nobody ends it before everything is healed.
  event_.until = Duration::Infinite();
  Do([=](World& w) { w.SecondScheduler(cell); });
  return OkStatus();
}

}  // namespace

Status ParseEvent(const Words& words, const Options& options, ScenarioEvent& event) {
  return EventParser(words, options, event).Parse();
}

std::string EventHelp() {
  std::string text;
  for (const EventParser::Kind& kind : EventParser::kKinds) {
    std::string usage = std::string(kind.usage) + (kind.lasts ? " *" : "");
    usage.resize(std::max<size_t>(usage.size(), 36), ' ');
    text += "  " + usage + " " + kind.what + "\n";
  }
  return text;
}

}  // namespace tailcast::world
