// Scenario files: a deployment, its workload, and what happens to it when, as text that a person
// writes; what came of it is a story (story.h) that is compared with an expected one.
//
//   # What the first comment says is the title.
//   cells us eu asia
//   link us <-> eu 40ms
//   messages 200 every 20ms of 1000 bytes
//   at 2s kill eu/writer-1
//   at 3s cut us -> eu for 1s
//
// A line is a setting, or an event that begins with `at`. ScenarioHelp lists both;
// docs/simulator.md has them with examples. Settings come first; times count from when the
// producers are open, and never go back. What lasts (`for`) is undone then, else at the end, when
// everything is healed and every rule must hold as in any run of the world.
#pragma once

#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/world/world.h"

namespace tailcast::world {

struct Scenario {
  std::string title;
  Options options;
};

// InvalidArgument: "FILE:LINE: what is wrong; what is allowed there".
Result<Scenario> ParseScenario(std::string_view text, const std::string& file);

// The settings and the events, one a line.
std::string ScenarioHelp();

struct ScenarioRun {
  std::string story;  // equal scenarios give equal ones
  Outcome outcome;
};
ScenarioRun RunScenario(const Scenario& scenario);

}  // namespace tailcast::world
