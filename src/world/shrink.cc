#include "tailcast/world/shrink.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace tailcast::world {
namespace {

struct Count {
  const char* name;
  int Options::*field;
  int least, most;
};
// The first ones save the most.
constexpr Count kCounts[] = {
    {"messages", &Options::messages, 5, 800}, {"shards", &Options::shards, 1, 3},
    {"consumers", &Options::consumers, 1, 2}, {"readers", &Options::readers, 1, 3},
    {"writers", &Options::writers, 1, 3},     {"caches", &Options::caches, 3, 5},
};

class Shrinker {
 public:
  Shrinker(const Options& failed, const Outcome& outcome, int runs_max)
      : rule_(RuleOf(outcome.problem)), runs_max_(runs_max), best_{failed, outcome, 0} {}

  Shrunk Run() {
    bool less = true;
    while (less && best_.runs < runs_max_) {
      less = false;
      const std::set<std::string> faults = best_.options.faults;
      for (const std::string& fault : faults) {
        Options options = best_.options;
        options.faults.erase(fault);
        less |= Try(options);
      }
      for (const Count& count : kCounts) less |= Lower(count);
    }
    return std::move(best_);
  }

 private:
  // To the least if that fails as well, else halfway there, and so on.
  bool Lower(const Count& count) {
    bool less = false;
    int least = count.least;
    while (least < best_.options.*count.field) {
      Options options = best_.options;
      options.*count.field = least;
      less |= Try(options);
      const int now = best_.options.*count.field;
      // Near enough: each step costs a run.
      if (now <= least || now - least <= now / 10) break;
      least = now - (now - least) / 2;
    }
    return less;
  }
  bool Try(const Options& options) {
    if (best_.runs >= runs_max_) return false;
    ++best_.runs;
    Outcome outcome = World(options).Run();
    if (outcome.ok() || RuleOf(outcome.problem) != rule_) return false;
    best_.options = options;
    best_.outcome = std::move(outcome);
    return true;
  }

  const std::string rule_;
  const int runs_max_;
  Shrunk best_;
};

}  // namespace

std::string RuleOf(const std::string& problem) { return problem.substr(0, problem.find(": ")); }

Shrunk Shrink(const Options& failed, const Outcome& outcome, int runs_max) {
  return Shrinker(failed, outcome, runs_max).Run();
}

Status SetCount(Options& options, const std::string& assignment) {
  const size_t sign = assignment.find('=');
  const std::string name = assignment.substr(0, sign);
  std::string names;
  for (const Count& count : kCounts) {
    names += (names.empty() ? "" : ", ") + std::string(count.name);
    if (name != count.name || sign == std::string::npos) continue;
    int value = 0;
    const char* const end = assignment.data() + assignment.size();
    const auto [rest, error] = std::from_chars(assignment.data() + sign + 1, end, value);
    if (error != std::errc() || rest != end || value < count.least || value > count.most) {
      return InvalidArgumentError(name + " is a number from " + std::to_string(count.least) +
                                  " to " + std::to_string(count.most) + ", not '" +
                                  assignment.substr(sign + 1) + "'");
    }
    options.*count.field = value;
    return OkStatus();
  }
  return InvalidArgumentError("'" + assignment + "' is not NAME=NUMBER with one of " + names);
}

std::string CountsBeside(const Options& options, const Options& drawn) {
  std::string text;
  for (const Count& count : kCounts) {
    if (options.*count.field == drawn.*count.field) continue;
    text += (text.empty() ? "" : ",") + std::string(count.name) + "=" +
            std::to_string(options.*count.field);
  }
  return text;
}

}  // namespace tailcast::world
