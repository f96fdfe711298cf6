// Makes a run that failed as small as it can while it breaks the same rule: fewer kinds of faults,
// fewer processes and shards, fewer messages. `./dev sim` shows what is left.
#pragma once

#include <string>

#include "tailcast/base/status.h"
#include "tailcast/world/world.h"

namespace tailcast::world {

// What stands before the first ": " of a problem: the rule that was broken.
std::string RuleOf(const std::string& problem);

struct Shrunk {
  Options options;  // as they were, where nothing less fails
  Outcome outcome;  // of these
  int runs = 0;     // that it took
};
// `outcome` is what `failed` came to. Runs at most `runs_max` worlds. Deterministic.
Shrunk Shrink(const Options& failed, const Outcome& outcome, int runs_max);

// Counts of Options that a run can be given by name: "messages=50". InvalidArgument: an unknown
// name, no number, or one that is out of its range.
Status SetCount(Options& options, const std::string& assignment);
// Those that differ, as SetCount takes them, with commas; "" for none.
std::string CountsBeside(const Options& options, const Options& drawn);

}  // namespace tailcast::world
