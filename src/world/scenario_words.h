// The words of scenario files: numbers, times, names. Internal to the module.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/world/world.h"

namespace tailcast::world {

using Words = std::vector<std::string>;

// Of a line, without its comment.
Words SplitWords(std::string_view line);
// "a, b and c".
std::string ListOf(const Words& words);

// InvalidArgument: it is none of `cells`.
Status CheckCell(const Words& cells, const std::string& name);

// InvalidArgument: the message says what `what` may be.
Result<int64_t> ParseNumber(const std::string& word, const std::string& what, int64_t least,
                            int64_t most);
// "2s", "1.5s", "250ms", "80us"; at most ten minutes.
Result<Duration> ParseDuration(const std::string& word, const std::string& what);
// A duration as people write it: "2 s", "250 ms".
std::string DurationText(Duration d);

// One thing that a line of a scenario says happens.
struct ScenarioEvent {
  Duration at;
  Duration until = Duration::Infinite();  // what lasts: it is undone; else as `at`
  int line = 0;
  std::string text;                   // its words
  std::string fault;                  // FaultNames; empty: it is none
  std::vector<std::string> subjects;  // what it befalls: nothing else may, as long as it lasts
  std::vector<PlannedEvent> plan;     // what it does, with times of its own
  std::function<void(World&)> undo;   // null: it does not last
};

// Fills what the words `words` (without the time, and `for`) say. InvalidArgument: what is wrong
// with them.
Status ParseEvent(const Words& words, const Options& options, ScenarioEvent& event);
// Their uses, one a line.
std::string EventHelp();

}  // namespace tailcast::world
