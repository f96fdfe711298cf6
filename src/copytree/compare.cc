#include "tailcast/copytree/compare.h"

#include <utility>

#include "tailcast/copytree/describe.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

Problem WithoutLimits(const Problem& problem) {
  Problem free = problem;
  free.depth_max = problem.n;
  free.node_depth_max.clear();
  free.fanout_max.assign(static_cast<size_t>(problem.n), problem.n);
  free.delay_max_us = kNoDelayLimit;
  return free;
}

Parents Star(const Problem& problem) {
  Parents parents(static_cast<size_t>(problem.n), kNoParent);
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && problem.required[v] && problem.HasLink(problem.root, v)) {
      parents[v] = problem.root;
    }
  }
  return parents;
}

}  // namespace

Result<std::vector<Contender>> Compare(const Graph& graph, const Stream& stream,
                                       const PlanOptions& options) {
  TAILCAST_ASSIGN_OR_RETURN(Plan planned, MakePlan(graph, stream, options));
  TAILCAST_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(graph, stream, options));
  const Problem& problem = setup.problem;
  std::vector<Contender> contenders;
  const auto add = [&](const char* name, const char* what, const Parents& parents) {
    Contender contender{.name = name, .what = what, .plan = {}, .missing = {}, .broken = {}};
    int left_out = 0;
    for (int v = 0; v < problem.n; ++v) {
      if (v == problem.root || !problem.required[v] || parents[v] != kNoParent) continue;
      if (left_out++ == 0) contender.missing = "no way to " + graph.cluster(v).name;
    }
    if (left_out > 1) contender.missing += " and " + std::to_string(left_out - 1) + " more";
    if (left_out == 0) {
      contender.plan = Describe(graph, stream, setup, parents);
      contender.broken = BrokenLimits(graph, setup, *contender.plan);
    }
    contenders.push_back(std::move(contender));
  };
  add("star", "all from the source", Star(problem));
  add("prim", "Prim without limits", LimitedPrim(WithoutLimits(problem)));
  add("capped-prim", "Prim within the limits", LimitedPrim(problem));
  contenders.push_back({.name = "planned",
                        .what = "the planned tree",
                        .plan = std::move(planned),
                        .missing = {},
                        .broken = {}});
  return contenders;
}

}  // namespace tailcast::copytree
