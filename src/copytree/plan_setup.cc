#include "tailcast/copytree/plan_setup.h"

#include <algorithm>
#include <cstdio>

namespace tailcast::copytree {
namespace {

// Penalties, in 1e-9 USD per GB: above any sum of real prices that a better tree could save, far
// below kUnserved even if every link pays them.
constexpr int64_t kSickPenalty = 1'000'000'000'000;
constexpr int64_t kNewPenalty = 400'000'000'000;
constexpr double kHighestRate = 1e9;
constexpr double kDelayMsMost = 1e9;

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
  if (!(limits.max_delay_ms >= 0 && limits.max_delay_ms <= kDelayMsMost)) {
    return InvalidArgumentError("max_delay_ms is " + Number(limits.max_delay_ms) +
                                "; it must be at most " + Number(kDelayMsMost) +
                                ", or 0 for no limit");
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
    return InvalidArgumentError("rate_mbps is " + Number(stream.rate_mbps) + "; it must be 0 to " +
                                Number(kHighestRate));
  }
  if (!(options.gap >= 0 && options.gap <= 1)) {
    return InvalidArgumentError("gap is " + Number(options.gap) + "; it must be 0 to 1");
  }
  if (options.work_max < 0) return InvalidArgumentError("work_max is negative");
  return OkStatus();
}

// Each child takes kCopiesPerHop times the stream's rate from what its parent may send.
void LimitEgress(const Graph& graph, const Stream& stream, const PlanOptions& options,
                 Problem* problem) {
  const double needed = stream.rate_mbps * kCopiesPerHop;
  if (needed <= 0) return;
  std::vector<double> sent(problem->n, 0);
  for (const LinkLoad& load : options.reserved) {
    if (const std::optional<int> from = graph.Find(load.from)) sent[*from] += load.mbps;
  }
  for (int v = 0; v < problem->n; ++v) {
    const double limit = graph.cluster(v).max_egress_mbps;
    if (limit <= 0) continue;
    // A thousandth of a child is rounding.
    const double children = std::floor((limit - sent[v]) / needed + 0.001);
    const int most = problem->fanout_max[v];
    if (children < most) problem->fanout_max[v] = static_cast<int>(std::max(0.0, children));
  }
}

}  // namespace

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
  for (int v = 0; v < n; ++v) {
    const Cluster& cluster = graph.cluster(v);
    if (cluster.max_fanout > 0) problem.fanout_max[v] = cluster.max_fanout;
    if (cluster.max_depth == 0) continue;
    if (problem.node_depth_max.empty()) problem.node_depth_max.assign(n, kDepthMax);
    problem.node_depth_max[v] = cluster.max_depth;
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
  LimitEgress(graph, stream, options, &problem);
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

std::vector<Parents> Starts(const Graph& graph, const Setup& setup) {
  if (!setup.current) return {};
  Parents parents(static_cast<size_t>(graph.size()), kNoParent);
  for (const Edge& edge : setup.current->edges) {
    const std::optional<int> from = graph.Find(edge.from);
    const std::optional<int> to = graph.Find(edge.to);
    if (from && to && setup.problem.HasLink(*from, *to)) parents[*to] = *from;
  }
  return {parents};
}

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

int64_t WorkOf(Effort effort, int clusters) {
  const int64_t more = std::max(0, clusters - 60);
  if (effort == Effort::kQuick) return 75'000'000 + 3'250'000 * more;
  const int64_t normal = std::min<int64_t>(2'000'000'000 + 8'000'000 * more, 7'000'000'000);
  return effort == Effort::kNormal ? normal : 10 * normal;
}

int64_t WorkMax(const Graph& graph, const PlanOptions& options) {
  return options.work_max > 0 ? options.work_max : WorkOf(Effort::kQuick, graph.size());
}

SolveOptions ToSolveOptions(const Graph& graph, const PlanOptions& options) {
  return {.seed = options.seed,
          .work_max = WorkMax(graph, options),
          .gap_ppm = std::llround(options.gap * 1e6)};
}

}  // namespace tailcast::copytree
