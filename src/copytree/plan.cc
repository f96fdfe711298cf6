#include "tailcast/copytree/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/solver.h"

namespace tailcast::copytree {
namespace {

constexpr double kNanos = 1e9;
// Penalties, in 1e-9 USD per GB: above any sum of real prices that a better tree could save, far
// below kUnserved even if every link pays them.
constexpr int64_t kSickPenalty = 1'000'000'000'000;
constexpr int64_t kNewPenalty = 400'000'000'000;
constexpr int kDepthMax = 32;
constexpr double kFullShare = 0.8;
constexpr double kHighestRate = 1e9;

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

int64_t Micros(double ms) { return std::llround(ms * 1000); }
int64_t Nanos(double usd) { return std::llround(usd * kNanos); }

// The graph, the stream and the options as a Problem, with what is needed to get back.
struct Setup {
  Problem problem;
  std::vector<char> destination;
  std::vector<int64_t> penalty;  // [from * n + to], the part of the weight that is no price
  std::vector<double> reserved;  // [from * n + to], Mbit/s
  std::vector<Edge> too_slow;    // links left out because the stream does not fit
  std::optional<Tree> current;
};

std::string PathText(const Graph& graph, const std::vector<int>& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    text += (i == 0 ? "" : " -> ") + graph.cluster(path[i]).name;
  }
  return text;
}

std::string Join(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

Status CheckOptions(const PlanOptions& options, const Stream& stream) {
  const Limits& limits = options.limits;
  if (limits.max_depth < 1 || limits.max_depth > kDepthMax) {
    return InvalidArgumentError("max_depth is " + std::to_string(limits.max_depth) +
                                "; it must be 1 to " + std::to_string(kDepthMax));
  }
  if (limits.max_fanout < 0) {
    return InvalidArgumentError("max_fanout is " + std::to_string(limits.max_fanout) +
                                "; it must be positive, or 0 for no limit");
  }
  if (options.max_source_fanout < 0) {
    return InvalidArgumentError("max_source_fanout is negative; 0 means the same as max_fanout");
  }
  if (!(limits.max_delay_ms >= 0 && limits.max_delay_ms < 1e9)) {
    return InvalidArgumentError("max_delay_ms is " + Number(limits.max_delay_ms) +
                                "; it must be positive, or 0 for no limit");
  }
  if (!(options.hop_delay_ms >= 0 && options.hop_delay_ms <= 1e6)) {
    return InvalidArgumentError("hop_delay_ms is " + Number(options.hop_delay_ms) +
                                "; it must be 0 to 1000000");
  }
  if (!(options.churn_usd_per_gb >= 0 && options.churn_usd_per_gb <= kUsdPerGbMax)) {
    return InvalidArgumentError("churn_usd_per_gb is " + Number(options.churn_usd_per_gb) +
                                "; it must be 0 to " + Number(kUsdPerGbMax));
  }
  if (!(stream.rate_mbps >= 0 && stream.rate_mbps <= kHighestRate)) {
    return InvalidArgumentError("stream '" + stream.name + "': rate_mbps is " +
                                Number(stream.rate_mbps) + "; it must not be negative");
  }
  if (options.work_max < 0) return InvalidArgumentError("work_max is negative");
  return OkStatus();
}

Result<Setup> MakeSetup(const Graph& graph, const Stream& stream, const PlanOptions& options) {
  TAILCAST_RETURN_IF_ERROR(CheckOptions(options, stream));
  const int n = graph.size();
  Setup setup;
  Problem& problem = setup.problem;
  problem.n = n;
  TAILCAST_ASSIGN_OR_RETURN(problem.root, graph.Require(stream.source, "source"));

  setup.destination.assign(n, 0);
  if (stream.destinations.empty()) {
    for (int v = 0; v < n; ++v) {
      setup.destination[v] = v != problem.root && !graph.cluster(v).relay_only;
    }
  }
  for (const std::string& name : stream.destinations) {
    TAILCAST_ASSIGN_OR_RETURN(const int v, graph.Require(name, "destination"));
    if (v == problem.root) continue;  // the source has the stream anyway
    if (graph.cluster(v).relay_only) {
      return InvalidArgumentError("destination '" + name +
                                  "' is relay_only; remove one of the two");
    }
    setup.destination[v] = 1;
  }
  problem.required = setup.destination;

  if (options.current) {
    TAILCAST_ASSIGN_OR_RETURN(setup.current, Normalized(*options.current));
  }

  problem.depth_max = std::max(1, std::min(options.limits.max_depth, n - 1));
  problem.fanout_max.assign(n, options.limits.max_fanout > 0 ? options.limits.max_fanout : n);
  if (options.max_source_fanout > 0) {
    problem.fanout_max[problem.root] =
        std::min(problem.fanout_max[problem.root], options.max_source_fanout);
  }
  if (options.limits.max_delay_ms > 0) problem.delay_max_us = Micros(options.limits.max_delay_ms);

  const size_t pairs = static_cast<size_t>(n) * n;
  setup.penalty.assign(pairs, 0);
  setup.reserved.assign(pairs, 0);
  for (const LinkLoad& load : options.reserved) {
    const std::optional<int> from = graph.Find(load.from);
    const std::optional<int> to = graph.Find(load.to);
    if (from && to) setup.reserved[static_cast<size_t>(*from) * n + *to] += load.mbps;
  }
  problem.weight.assign(pairs, kUnserved);
  problem.delay_us.assign(pairs, 0);
  for (const Link& link : graph.links()) {
    const int from = *graph.Find(link.from);
    const int to = *graph.Find(link.to);
    const size_t at = static_cast<size_t>(from) * n + to;
    problem.delay_us[at] = Micros(link.rtt_ms / 2 + options.hop_delay_ms);
    const double needed = stream.rate_mbps * kCopiesPerHop;
    if (link.bandwidth_gbps > 0 && needed > 0 &&
        setup.reserved[at] + needed > link.bandwidth_gbps * 1000) {
      setup.too_slow.push_back({link.from, link.to});
      continue;
    }
    int64_t& penalty = setup.penalty[at];
    if (link.sick) penalty += kSickPenalty;
    if (from != problem.root) {
      if (graph.cluster(from).health == Health::kSick) penalty += kSickPenalty;
      if (graph.cluster(from).health == Health::kNew) penalty += kNewPenalty;
    }
    // One more, so that of equally cheap trees the one nearest to the running tree is taken.
    if (setup.current && !setup.current->HasEdge(link.from, link.to)) {
      penalty += Nanos(options.churn_usd_per_gb) + 1;
    }
    problem.weight[at] = Nanos(link.usd_per_gb) + penalty;
  }
  for (const Edge& edge : options.avoid) {
    const std::optional<int> from = graph.Find(edge.from);
    const std::optional<int> to = graph.Find(edge.to);
    if (from && to) problem.weight[static_cast<size_t>(*from) * n + *to] = kUnserved;
  }
  return setup;
}

// A path that a limit forbids, for messages: least delay (or hops) from the root to `to`.
std::vector<int> PathTo(const Problem& problem, int to, bool by_delay) {
  const int n = problem.n;
  std::vector<int64_t> distance(n, kNoDelayLimit);
  std::vector<int> before(n, -1);
  distance[problem.root] = 0;
  for (int round = 0; round < n; ++round) {
    bool changed = false;
    for (int a = 0; a < n; ++a) {
      if (distance[a] >= kNoDelayLimit) continue;
      for (int b = 0; b < n; ++b) {
        if (!problem.HasLink(a, b)) continue;
        const int64_t step = by_delay ? problem.Delay(a, b) : 1;
        if (distance[a] + step < distance[b]) {
          distance[b] = distance[a] + step;
          before[b] = a;
          changed = true;
        }
      }
    }
    if (!changed) break;
  }
  std::vector<int> path;
  if (distance[to] >= kNoDelayLimit) return path;
  for (int at = to; at >= 0; at = before[at]) path.push_back(at);
  std::reverse(path.begin(), path.end());
  return path;
}

// Least delay to `to` within the depth limit, or kNoDelayLimit.
int64_t LeastDelayWithin(const Problem& problem, int to) {
  std::vector<int64_t> now(problem.n, kNoDelayLimit);
  now[problem.root] = 0;
  for (int h = 0; h < problem.depth_max; ++h) {
    std::vector<int64_t> next = now;
    for (int a = 0; a < problem.n; ++a) {
      if (now[a] >= kNoDelayLimit) continue;
      for (int b = 0; b < problem.n; ++b) {
        if (problem.HasLink(a, b)) next[b] = std::min(next[b], now[a] + problem.Delay(a, b));
      }
    }
    now = std::move(next);
  }
  return now[to];
}

// What blocks a destination whatever the rest of the tree looks like. Ok if nothing does.
Status FindBlocked(const Graph& graph, const Stream& stream, const PlanOptions& options,
                   const Setup& setup) {
  const Problem& problem = setup.problem;
  for (int v = 0; v < problem.n; ++v) {
    if (v == problem.root || !problem.required[v]) continue;
    const std::string& name = graph.cluster(v).name;
    const std::vector<int> hops = PathTo(problem, v, false);
    if (hops.empty()) {
      std::string why =
          "cluster '" + name + "' cannot be reached from source '" + stream.source + "'";
      std::vector<std::string> slow;
      for (const Edge& edge : setup.too_slow) {
        if (edge.to == name) {
          const Link* link = graph.FindLink(edge.from, edge.to);
          slow.push_back(edge.from + " (" + Number(link->bandwidth_gbps) + " Gbit/s)");
        }
      }
      bool entered = false;
      for (int from = 0; from < problem.n; ++from) entered |= problem.HasLink(from, v);
      if (!slow.empty()) {
        why += ": the stream needs " + Number(stream.rate_mbps * kCopiesPerHop / 1000) +
               " Gbit/s on each link (" + std::to_string(kCopiesPerHop) + " copies of " +
               Number(stream.rate_mbps) + " Mbit/s), too much for those from " + Join(slow) +
               "; add bandwidth or a link";
      } else if (!entered) {
        why += options.avoid.empty() ? ": no link leads to it; add one"
                                     : ": no other link leads to it; add one";
      } else {
        why += ": no chain of links leads there; add a link from a cluster that is reached";
      }
      return FailedPreconditionError(why);
    }
    const int needed = static_cast<int>(hops.size()) - 1;
    if (needed > problem.depth_max) {
      return FailedPreconditionError("max_depth " + std::to_string(options.limits.max_depth) +
                                     " blocks cluster '" + name + "': the shortest way there has " +
                                     std::to_string(needed) + " hops (" + PathText(graph, hops) +
                                     "); raise max_depth to " + std::to_string(needed) +
                                     " or add a link");
    }
    if (!problem.DelayLimited()) continue;
    const std::vector<int> fast = PathTo(problem, v, true);
    int64_t least = 0;
    for (size_t i = 1; i < fast.size(); ++i) least += problem.Delay(fast[i - 1], fast[i]);
    const double ms = static_cast<double>(least) / 1000;
    if (least > problem.delay_max_us) {
      return FailedPreconditionError(
          "max_delay_ms " + Number(options.limits.max_delay_ms) + " blocks cluster '" + name +
          "': the fastest way there takes " + Number(ms) + " ms (" + PathText(graph, fast) +
          "); raise max_delay_ms to at least that");
    }
    const int64_t within = LeastDelayWithin(problem, v);
    if (within > problem.delay_max_us) {
      return FailedPreconditionError(
          "max_depth " + std::to_string(options.limits.max_depth) + " and max_delay_ms " +
          Number(options.limits.max_delay_ms) + " together block cluster '" + name +
          "': within that depth the fastest way takes " +
          Number(static_cast<double>(within) / 1000) + " ms, without it " + Number(ms) + " ms (" +
          PathText(graph, fast) + "); raise one of them");
    }
  }
  // Room for everybody: a full tree of that depth and fan-out.
  int64_t room = 0;
  int64_t level = 1;
  for (int depth = 1; depth <= problem.depth_max && room < problem.n; ++depth) {
    const int64_t width =
        depth == 1 ? problem.fanout_max[problem.root]
                   : (options.limits.max_fanout > 0 ? options.limits.max_fanout : problem.n);
    level = std::min<int64_t>(level * width, problem.n);
    room += level;
  }
  int64_t needed = 0;
  for (int v = 0; v < problem.n; ++v) needed += v != problem.root && problem.required[v];
  if (room < needed) {
    return FailedPreconditionError("max_depth " + std::to_string(options.limits.max_depth) +
                                   " and max_fanout " + std::to_string(options.limits.max_fanout) +
                                   " have room for " + std::to_string(room) +
                                   " clusters below the source, but the stream has " +
                                   std::to_string(needed) + " destinations; raise one of them");
  }
  return OkStatus();
}

// The search found no tree though each destination can be reached: which limit is to blame?
Status ExplainFailure(const Graph& graph, const PlanOptions& options, const Setup& setup,
                      const SolveResult& failed, int64_t work_max) {
  const Problem& problem = setup.problem;
  std::vector<std::string> missing;
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && problem.required[v] && failed.parents[v] == kNoParent) {
      missing.push_back(graph.cluster(v).name);
    }
  }
  std::vector<std::string> ways;
  const auto works = [&](const Problem& relaxed) {
    return Solve(relaxed, {}, options.seed, std::max<int64_t>(1, work_max / 10)).feasible;
  };
  if (options.limits.max_fanout > 0) {
    int low = options.limits.max_fanout, high = problem.n;  // low fails, high may work
    Problem relaxed = problem;
    relaxed.fanout_max.assign(problem.n, high);
    if (works(relaxed)) {
      while (low + 1 < high) {
        const int middle = (low + high) / 2;
        relaxed.fanout_max.assign(problem.n, middle);
        (works(relaxed) ? high : low) = middle;
      }
      ways.push_back("max_fanout " + std::to_string(high));
    }
  }
  if (options.limits.max_depth < std::min(kDepthMax, problem.n - 1)) {
    Problem relaxed = problem;
    for (int depth = problem.depth_max + 1; depth <= std::min(kDepthMax, problem.n - 1); ++depth) {
      relaxed.depth_max = depth;
      if (works(relaxed)) {
        ways.push_back("max_depth " + std::to_string(depth));
        break;
      }
    }
  }
  if (problem.DelayLimited()) {
    Problem relaxed = problem;
    relaxed.delay_max_us = kNoDelayLimit;
    const SolveResult slow = Solve(relaxed, {}, options.seed, std::max<int64_t>(1, work_max / 10));
    if (slow.feasible) {
      const std::vector<int64_t> arrivals = Arrivals(relaxed, slow.parents);
      const int64_t worst = *std::max_element(arrivals.begin(), arrivals.end());
      ways.push_back("max_delay_ms " + Number(static_cast<double>(worst) / 1000));
    }
  }
  std::string text =
      failed.proven ? "no tree meets all limits" : "found no tree that meets all limits";
  text += " (max_depth " + std::to_string(options.limits.max_depth);
  if (options.limits.max_fanout > 0) {
    text += ", max_fanout " + std::to_string(options.limits.max_fanout);
  }
  if (problem.DelayLimited()) text += ", max_delay_ms " + Number(options.limits.max_delay_ms);
  text += ")";
  if (!missing.empty()) text += "; they block " + Join(missing);
  if (!ways.empty()) {
    text += "; it works with ";
    for (size_t i = 0; i < ways.size(); ++i) text += (i == 0 ? "" : ", or with ") + ways[i];
  }
  return FailedPreconditionError(text);
}

std::vector<Reroute> FindReroutes(const Graph& graph, const Setup& setup, const Tree& tree) {
  std::vector<Reroute> reroutes;
  const int n = graph.size();
  for (int sick = 0; sick < n; ++sick) {
    if (graph.cluster(sick).health != Health::kSick || !setup.destination[sick]) continue;
    // The nearest by round trip, either direction being measured; the first of equals by name.
    int best = -1;
    double least = 0;
    for (int other = 0; other < n; ++other) {
      if (other == sick || graph.cluster(other).health != Health::kHealthy) continue;
      if (other != setup.problem.root && !setup.destination[other]) continue;
      if (!tree.Contains(graph.cluster(other).name)) continue;
      const Link* there = graph.FindLink(sick, other);
      const Link* back = graph.FindLink(other, sick);
      if (there == nullptr && back == nullptr) continue;
      const double rtt = there == nullptr  ? back->rtt_ms
                         : back == nullptr ? there->rtt_ms
                                           : std::min(there->rtt_ms, back->rtt_ms);
      if (best < 0 || rtt < least) {
        best = other;
        least = rtt;
      }
    }
    if (best >= 0) reroutes.push_back({graph.cluster(sick).name, graph.cluster(best).name, least});
  }
  return reroutes;
}

// Everything in a Plan but the bound.
Plan Describe(const Graph& graph, const Stream& stream, const PlanOptions& options,
              const Setup& setup, const Parents& parents) {
  const Problem& problem = setup.problem;
  const int n = graph.size();
  Plan plan;
  plan.tree.source = stream.source;
  std::vector<std::vector<int>> children(n);
  for (int v = 0; v < n; ++v) {
    if (v != problem.root && parents[v] != kNoParent) children[parents[v]].push_back(v);
  }
  plan.fanout = static_cast<int>(children[problem.root].size());
  std::vector<int> order{problem.root};
  std::vector<int> depth(n, 0);
  std::vector<double> arrival(n, 0);
  int destinations = 0;
  for (size_t next = 0; next < order.size(); ++next) {
    const int from = order[next];
    for (int to : children[from]) {
      order.push_back(to);
      const Link& link = *graph.FindLink(from, to);
      depth[to] = depth[from] + 1;
      Hop hop;
      hop.from = link.from;
      hop.to = link.to;
      hop.depth = depth[to];
      hop.fanout = static_cast<int>(children[to].size());
      hop.usd_per_gb = link.usd_per_gb;
      hop.rtt_ms = link.rtt_ms;
      hop.hop_ms = static_cast<double>(problem.Delay(from, to)) / 1000;
      hop.arrival_ms = arrival[to] = arrival[from] + hop.hop_ms;
      hop.destination = setup.destination[to];
      hop.kept = setup.current && setup.current->HasEdge(link.from, link.to);
      hop.health = graph.cluster(to).health;
      hop.rate_limited = hop.health == Health::kNew;
      plan.usd_per_gb += hop.usd_per_gb;
      plan.depth = std::max(plan.depth, hop.depth);
      plan.fanout = std::max(plan.fanout, hop.fanout);
      if (hop.destination) {
        plan.worst_delay_ms = std::max(plan.worst_delay_ms, hop.arrival_ms);
        plan.mean_delay_ms += hop.arrival_ms;
        ++destinations;
      }
      LinkLoad load{link.from, link.to, 0, link.bandwidth_gbps, 0};
      load.mbps =
          setup.reserved[static_cast<size_t>(from) * n + to] + stream.rate_mbps * kCopiesPerHop;
      if (link.bandwidth_gbps > 0) load.share = load.mbps / (link.bandwidth_gbps * 1000);
      if (load.share > kFullShare) {
        plan.warnings.push_back("link " + link.from + " -> " + link.to + " is filled to " +
                                Number(std::round(load.share * 1000) / 10) + " % of its bandwidth");
      }
      if (link.sick) {
        plan.warnings.push_back("sick link " + link.from + " -> " + link.to +
                                " stays in use: no other way to '" + link.to +
                                "' within the limits");
      }
      if (from != problem.root && graph.cluster(from).health != Health::kHealthy) {
        plan.warnings.push_back(std::string(HealthName(graph.cluster(from).health)) + " cluster '" +
                                link.from + "' must feed '" + link.to +
                                "': no other way there within the limits");
      }
      plan.loads.push_back(std::move(load));
      plan.tree.edges.push_back({link.from, link.to});
      plan.hops.push_back(std::move(hop));
    }
  }
  if (destinations > 0) plan.mean_delay_ms /= destinations;
  // 1 Mbit/s for a day is 10.8 GB.
  plan.usd_per_day = plan.usd_per_gb * stream.rate_mbps * 10.8 * kCopiesPerHop;
  if (setup.current) {
    for (const Edge& edge : plan.tree.edges) {
      plan.edges_added += !setup.current->HasEdge(edge.from, edge.to);
    }
    for (const Edge& edge : setup.current->edges) {
      plan.edges_removed += !plan.tree.HasEdge(edge.from, edge.to);
    }
  }
  plan.reroutes = FindReroutes(graph, setup, plan.tree);
  if (graph.cluster(problem.root).health == Health::kSick) {
    plan.warnings.push_back("source '" + stream.source +
                            "' is sick; no tree helps while it produces there");
  }
  (void)options;
  return plan;
}

void SetBound(int64_t weight, int64_t bound, Plan* plan) {
  const double gap = static_cast<double>(weight - bound) / kNanos;
  plan->lower_bound_usd_per_gb = std::max(0.0, plan->usd_per_gb - gap);
  plan->optimal = weight == bound;
}

int64_t Work(const Graph& graph, const PlanOptions& options) {
  return options.work_max > 0 ? options.work_max : DefaultWork(graph.size());
}

// The parents of a tree by names; NotFound for clusters and links that the graph does not have.
Result<Parents> ToParents(const Graph& graph, const Tree& tree) {
  Parents parents(graph.size(), kNoParent);
  for (const Edge& edge : tree.edges) {
    TAILCAST_ASSIGN_OR_RETURN(const int from, graph.Require(edge.from, "tree edge from"));
    TAILCAST_ASSIGN_OR_RETURN(const int to, graph.Require(edge.to, "tree edge to"));
    if (graph.FindLink(from, to) == nullptr) {
      return NotFoundError("the tree uses " + edge.from + " -> " + edge.to +
                           ", but there is no such link");
    }
    parents[to] = from;
  }
  return parents;
}

// The running tree as far as it still exists in the graph.
Parents CurrentParents(const Graph& graph, const Setup& setup) {
  Parents parents(graph.size(), kNoParent);
  for (const Edge& edge : setup.current->edges) {
    const std::optional<int> from = graph.Find(edge.from);
    const std::optional<int> to = graph.Find(edge.to);
    if (from && to && setup.problem.HasLink(*from, *to)) parents[*to] = *from;
  }
  return parents;
}

}  // namespace

double Plan::Gap() const {
  return usd_per_gb > 0 ? (usd_per_gb - lower_bound_usd_per_gb) / usd_per_gb : 0;
}

Result<Plan> MakePlan(const Graph& graph, const Stream& stream, const PlanOptions& options) {
  TAILCAST_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(graph, stream, options));
  TAILCAST_RETURN_IF_ERROR(FindBlocked(graph, stream, options, setup));
  const int64_t work_max = Work(graph, options);
  std::vector<Parents> starts;
  if (setup.current) starts.push_back(CurrentParents(graph, setup));
  const SolveResult solved = Solve(setup.problem, starts, options.seed, work_max);
  if (!solved.feasible) return ExplainFailure(graph, options, setup, solved, work_max);
  Plan plan = Describe(graph, stream, options, setup, solved.parents);
  SetBound(solved.weight, solved.bound, &plan);
  plan.work = solved.work;
  return plan;
}

Result<Plan> DescribeTree(const Graph& graph, const Stream& stream, const PlanOptions& options,
                          const Tree& tree) {
  TAILCAST_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(graph, stream, options));
  TAILCAST_ASSIGN_OR_RETURN(const Tree sorted, Normalized(tree));
  if (sorted.source != stream.source) {
    return InvalidArgumentError("the tree's source is '" + sorted.source + "', the stream's '" +
                                stream.source + "'");
  }
  TAILCAST_ASSIGN_OR_RETURN(const Parents parents, ToParents(graph, sorted));
  const Problem& problem = setup.problem;
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && problem.required[v] && parents[v] == kNoParent) {
      return FailedPreconditionError("the tree leaves out destination '" + graph.cluster(v).name +
                                     "'");
    }
  }
  Plan plan = Describe(graph, stream, options, setup, parents);
  int64_t weight = 0;
  for (const Hop& hop : plan.hops) {
    const size_t at = static_cast<size_t>(*graph.Find(hop.from)) * problem.n + *graph.Find(hop.to);
    weight += Nanos(hop.usd_per_gb) + setup.penalty[at];
    if (!problem.HasLink(*graph.Find(hop.from), *graph.Find(hop.to))) {
      plan.warnings.push_back("link " + hop.from + " -> " + hop.to +
                              " is too slow for the stream or excluded");
    }
    if (hop.depth > options.limits.max_depth) {
      plan.warnings.push_back("cluster '" + hop.to + "' is at depth " + std::to_string(hop.depth) +
                              ", max_depth is " + std::to_string(options.limits.max_depth));
    }
    if (Micros(hop.arrival_ms) > problem.delay_max_us) {
      plan.warnings.push_back("cluster '" + hop.to + "' is reached after " +
                              Number(hop.arrival_ms) + " ms, max_delay_ms is " +
                              Number(options.limits.max_delay_ms));
    }
  }
  std::map<std::string, int> fanout;
  for (const Edge& edge : plan.tree.edges) ++fanout[edge.from];
  for (const auto& [name, children] : fanout) {
    const int limit = problem.fanout_max[*graph.Find(name)];
    if (children > limit) {
      plan.warnings.push_back("cluster '" + name + "' feeds " + std::to_string(children) +
                              " clusters, max_fanout is " + std::to_string(limit));
    }
  }
  SetBound(weight, BestBound(problem, weight, Work(graph, options)), &plan);
  return plan;
}

Result<PlanPair> MakePlanPair(const Graph& graph, const Stream& stream,
                              const PlanOptions& options) {
  PlanOptions first = options;
  Status failure;
  int source_fanout = options.max_source_fanout;
  for (;;) {
    first.max_source_fanout = source_fanout;
    Result<Plan> primary = MakePlan(graph, stream, first);
    if (!primary.ok()) return failure.ok() ? primary.status() : failure;
    for (const bool both : {true, false}) {
      PlanOptions second = options;
      second.current.reset();
      for (const Edge& edge : primary->tree.edges) {
        second.avoid.push_back(edge);
        if (both) second.avoid.push_back({edge.to, edge.from});
      }
      Result<Plan> standby = MakePlan(graph, stream, second);
      if (standby.ok()) {
        return PlanPair{std::move(primary).value(), std::move(standby).value(), both};
      }
      if (failure.ok() || !both) {
        failure = standby.status().WithContext("no second tree that shares no link with the first");
      }
    }
    const int used = static_cast<int>(primary->tree.ChildrenOf(stream.source).size());
    if (used <= 1) return failure;
    source_fanout = used - 1;
  }
}

Result<Plan> PrimPlan(const Graph& graph, const Stream& stream, const PlanOptions& options) {
  TAILCAST_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(graph, stream, options));
  const Parents parents = LimitedPrim(setup.problem);
  for (int v = 0; v < setup.problem.n; ++v) {
    if (v != setup.problem.root && setup.problem.required[v] && parents[v] == kNoParent) {
      return FailedPreconditionError("Prim's algorithm cannot add cluster '" +
                                     graph.cluster(v).name + "' within the limits");
    }
  }
  return Describe(graph, stream, options, setup, parents);
}

}  // namespace tailcast::copytree
