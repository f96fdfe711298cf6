#include "tailcast/copytree/advice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/solver.h"
#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

// The search for a value tries many; each try may spend such a part of the work of a plan, and
// among few nodes this at most. After as much work as that of a plan the search for values ends.
constexpr int64_t kTryPart = 20, kTryWorkMost = 20'000'000;
// Before the value that was found is tried with the whole effort, this part of what is left.
constexpr int64_t kWayPart = 3;
constexpr int kDelayTries = 8;
// So many single clusters' limits are tried, the tightest first, and so many are named.
constexpr size_t kOwnTries = 12, kOwnNamed = 2;

// The limits as they are, and one of them changed.
class Adviser {
 public:
  Adviser(const Graph& graph, const Stream& stream, const PlanOptions& options, const Setup& setup,
          const Demand& demand)
      : graph_(graph),
        stream_(stream),
        options_(options),
        setup_(setup),
        problem_(setup.problem),
        demand_(demand),
        starts_(Starts(graph, setup)),
        full_(ToSolveOptions(graph, options)) {
    quick_ = full_;
    quick_.work_max = full_.work_max / kTryPart;
    if (problem_.n <= kManyNodes) quick_.work_max = std::min(quick_.work_max, kTryWorkMost);
    quick_.any_tree = quick_.give_up_early = true;
  }

  std::vector<std::string> Ways() {
    std::vector<std::string> ways;
    if (options_.limits.max_fanout > 0) {
      const auto with = [&](int64_t value) {
        PlanOptions relaxed = options_;
        relaxed.limits.max_fanout = static_cast<int>(value);
        Result<Setup> setup = MakeSetup(graph_, stream_, relaxed);
        return setup.ok() ? setup->problem : problem_;
      };
      Add(options_.limits.max_fanout, problem_.n - 1, with, Named("max_fanout"), &ways);
    }
    const auto deeper = [&](int64_t value) {
      Problem relaxed = problem_;
      relaxed.depth_max = static_cast<int>(value);
      return relaxed;
    };
    Add(problem_.depth_max, std::min(kDepthMax, problem_.n - 1), deeper, Named("max_depth"), &ways);
    if (problem_.DelayLimited()) {
      if (const std::optional<int64_t> us = LeastDelay()) {
        ways.push_back("max_delay_ms " + Milliseconds(*us));
      }
    }
    AddOwnDepths(&ways);
    AddOwnChildren(&ways);
    return ways;
  }

  // Elementary steps spent.
  int64_t work() const { return work_; }

 private:
  using Text = std::function<std::string(int64_t)>;

  static Text Named(const std::string& name) {
    return [name](int64_t value) { return name + " " + std::to_string(value); };
  }
  Text Of(const std::string& name, int v) const {
    return [name, cluster = graph_.cluster(v).name](int64_t value) {
      return name + " " + std::to_string(value) + " of '" + cluster + "'";
    };
  }

  // Depths of single clusters, where they are less than everybody's.
  void AddOwnDepths(std::vector<std::string>* ways) {
    if (problem_.node_depth_max.empty()) return;
    size_t tries = 0, named = 0;
    for (int v = 0; v < problem_.n && tries < kOwnTries && named < kOwnNamed && !UsedUp(); ++v) {
      if (problem_.DepthMax(v) >= problem_.depth_max) continue;
      ++tries;
      const auto with = [&](int64_t value) {
        Problem relaxed = problem_;
        relaxed.node_depth_max[static_cast<size_t>(v)] = static_cast<int>(value);
        return relaxed;
      };
      named += Add(problem_.DepthMax(v), problem_.depth_max, with, Of("max_depth", v), ways);
    }
  }

  // What single clusters may feed and send; then what all of them may send.
  void AddOwnChildren(std::vector<std::string>* ways) {
    std::vector<int> limited;
    for (int v = 0; v < problem_.n; ++v) {
      const Cluster& cluster = graph_.cluster(v);
      if (cluster.max_fanout > 0 || problem_.fanout_max[v] < ChildrenAllowed(v)) {
        limited.push_back(v);
      }
    }
    std::stable_sort(limited.begin(), limited.end(),
                     [&](int a, int b) { return problem_.fanout_max[a] < problem_.fanout_max[b]; });
    size_t named = 0;
    for (size_t i = 0; i < std::min(limited.size(), kOwnTries) && named < kOwnNamed && !UsedUp();
         ++i) {
      named += AddChildrenOf(limited[i], ways);
    }
    const bool any_sends = std::any_of(limited.begin(), limited.end(), [&](int v) {
      return problem_.fanout_max[v] < ChildrenAllowed(v);
    });
    if (named > 0 || !any_sends) return;
    const auto most = [&](int64_t children) {
      int64_t mbps = 0;
      for (int v : limited) mbps = std::max(mbps, EgressFor(v, children));
      return mbps;
    };
    const auto all = [&](int64_t children) {
      Problem relaxed = problem_;
      for (int v : limited) {
        int& feeds = relaxed.fanout_max[static_cast<size_t>(v)];
        feeds = std::max(feeds, ChildrenFor(v, most(children)));
      }
      return relaxed;
    };
    const auto text = [&](int64_t children) {
      return "max_egress_mbps " + std::to_string(most(children)) + " of each cluster that has less";
    };
    Add(0, problem_.n - 1, all, text, ways);
  }

  // By what one of its limits allows beside the other one; else by both.
  bool AddChildrenOf(int v, std::vector<std::string>* ways) {
    const Cluster& cluster = graph_.cluster(v);
    const int now = problem_.fanout_max[v], most = problem_.n - 1;
    const auto with = [&](int64_t children) {
      Problem relaxed = problem_;
      relaxed.fanout_max[static_cast<size_t>(v)] = static_cast<int>(children);
      return relaxed;
    };
    const auto sending = [&](int64_t children) {
      return with(std::min(ChildrenAllowed(v), ChildrenSent(v, EgressFor(v, children))));
    };
    const auto mbps = [&](int64_t children) {
      return std::max(EgressFor(v, children), static_cast<int64_t>(cluster.max_egress_mbps));
    };
    const auto sent = [&](int64_t children) { return Of("max_egress_mbps", v)(mbps(children)); };
    const auto both = [&](int64_t children) {
      return "max_fanout " + std::to_string(children) + " and " + sent(children);
    };
    const bool sends = stream_.rate_mbps > 0 && cluster.max_egress_mbps > 0;
    const int can_send =
        sends ? ChildrenSent(v, cluster.max_egress_mbps) : problem_.n;  // with what it has
    if (now < ChildrenAllowed(v)) {
      if (Add(now, std::min(most, ChildrenAllowed(v)), sending, sent, ways)) return true;
    } else if (Add(now, std::min(most, can_send), with, Of("max_fanout", v), ways)) {
      return true;
    }
    if (!sends || cluster.max_fanout == 0) return false;
    return Add(std::max(ChildrenAllowed(v), can_send), most, with, both, ways);
  }

  // Children that the other limits leave, whatever it may send.
  int ChildrenAllowed(int v) const {
    const int own = graph_.cluster(v).max_fanout;
    const int most = own > 0 ? own : options_.limits.max_fanout;
    return most > 0 ? std::min(most, problem_.n) : problem_.n;
  }
  // How many it feeds when it may send so many Mbit/s; as plan_setup.cc.
  int ChildrenFor(int v, int64_t mbps) const {
    return std::min(ChildrenAllowed(v), ChildrenSent(v, static_cast<double>(mbps)));
  }
  // The same whatever its other limit.
  int ChildrenSent(int v, double mbps) const {
    const double left = mbps - Reserved(v);
    const double children = std::floor(left / (stream_.rate_mbps * kCopiesPerHop) + 0.001);
    return static_cast<int>(std::clamp<double>(children, 0, problem_.n));
  }
  double Reserved(int v) const {
    double mbps = 0;
    for (int to = 0; to < problem_.n; ++to) {
      mbps += setup_.reserved[static_cast<size_t>(v) * problem_.n + to];
    }
    return mbps;
  }
  // Whole Mbit/s with which it may send to so many.
  int64_t EgressFor(int v, int64_t children) const {
    const double needed = stream_.rate_mbps * kCopiesPerHop;
    return static_cast<int64_t>(std::ceil(Reserved(v) + needed * static_cast<double>(children)));
  }

  // The whole of what is asked for. A plan has a tree when its search meets the first one.
  bool Works(const Problem& problem) {
    SolveOptions effort = full_;
    effort.any_tree = !demand_;
    // What is found without the stretch is found with it.
    effort.give_up_early = true;
    const SolveResult solved = Solve(problem, starts_, effort);
    work_ += solved.work;
    return solved.feasible && (!demand_ || demand_(problem, solved.parents, &work_));
  }
  // Any tree within the limits, quickly.
  SolveResult Try(const Problem& problem) {
    SolveResult solved = Solve(problem, starts_, quick_);
    work_ += solved.work;
    return solved;
  }
  bool UsedUp() const { return work_ >= full_.work_max; }

  // The least value above `fails` that was found to work, if `highest` or less will do; true if
  // there is one.
  bool Add(int64_t fails, int64_t highest, const std::function<Problem(int64_t)>& with,
           const Text& text, std::vector<std::string>* ways) {
    if (fails >= highest || UsedUp() || !Try(with(highest)).feasible) return false;
    if (demand_ && (UsedUp() || !Works(with(highest)))) return false;
    int64_t value = highest;
    const int64_t end = work_ + (full_.work_max - work_) / kWayPart;
    while (fails + 1 < value && work_ < end) {
      const int64_t middle = fails + (value - fails) / 2;
      (Try(with(middle)).feasible ? value : fails) = middle;
    }
    for (int64_t step = 1; UsedUp() || !Works(with(value)); step *= 2) {
      if (value == highest || UsedUp()) return false;
      value = std::min(highest, value + step);
    }
    ways->push_back(text(value));
    return true;
  }

  // Whole microseconds; what is printed is what was tried.
  std::optional<int64_t> LeastDelay() {
    Problem relaxed = problem_;
    const auto worst = [&](int64_t limit_us) -> std::optional<int64_t> {
      relaxed.delay_max_us = limit_us;
      const SolveResult tree = Try(relaxed);
      if (!tree.feasible) return std::nullopt;
      const std::vector<int64_t> arrivals = Arrivals(relaxed, tree.parents);
      return *std::max_element(arrivals.begin(), arrivals.end());
    };
    if (UsedUp()) return std::nullopt;
    std::optional<int64_t> value = worst(kNoDelayLimit);
    if (!value || UsedUp() || (demand_ && !Works(relaxed))) return std::nullopt;
    // Most often the fastest ways to all make a tree.
    int64_t fails = problem_.delay_max_us;
    const std::vector<int64_t> least = LeastDelays(relaxed);
    for (int v = 0; v < problem_.n; ++v) {
      if (v != problem_.root && problem_.required[v]) fails = std::max(fails, least[v] - 1);
    }
    if (const std::optional<int64_t> at_least = worst(fails + 1)) value = at_least;
    const int64_t end = work_ + (full_.work_max - work_) / kWayPart;
    for (int i = 0; i < kDelayTries && fails + 1000 < *value && work_ < end; ++i) {
      const int64_t middle = fails + (*value - fails) / 2;
      if (const std::optional<int64_t> less = worst(middle)) {
        value = less;
      } else {
        fails = middle;
      }
    }
    int64_t step = *value / 8 + 1;
    for (int i = 0; i < kDelayTries && !UsedUp(); ++i, *value += step, step *= 2) {
      relaxed.delay_max_us = *value;
      if (Works(relaxed)) return value;
    }
    return std::nullopt;
  }

  // Three decimals hold microseconds.
  static std::string Milliseconds(int64_t us) {
    std::string text = std::to_string(us / 1000);
    if (us % 1000 != 0) {
      text += "." + std::to_string(1000 + us % 1000).substr(1);
      text.erase(text.find_last_not_of('0') + 1);
    }
    return text;
  }

  const Graph& graph_;
  const Stream& stream_;
  const PlanOptions& options_;
  const Setup& setup_;
  const Problem& problem_;
  const Demand& demand_;
  const std::vector<Parents> starts_;
  const SolveOptions full_;
  SolveOptions quick_;
  int64_t work_ = 0;
};

}  // namespace

bool HasOwnLimits(const Graph& graph) {
  for (const Cluster& cluster : graph.clusters()) {
    if (cluster.max_depth > 0 || cluster.max_fanout > 0 || cluster.max_egress_mbps > 0) return true;
  }
  return false;
}

std::string Advice(const Graph& graph, const Stream& stream, const PlanOptions& options,
                   const Setup& setup, const Demand& demand, int64_t* work) {
  Adviser adviser(graph, stream, options, setup, demand);
  const std::vector<std::string> ways = adviser.Ways();
  if (work != nullptr) *work += adviser.work();
  if (ways.empty()) {
    return std::string("; no other value of one limit alone was found to help: raise several") +
           (HasOwnLimits(graph) ? ", or those of single clusters" : "") + ", or add links";
  }
  std::string text = "; it works with ";
  for (size_t i = 0; i < ways.size(); ++i) text += (i == 0 ? "" : ", or with ") + ways[i];
  return text;
}

}  // namespace tailcast::copytree
