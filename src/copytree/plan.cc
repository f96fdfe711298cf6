#include "tailcast/copytree/plan.h"

#include <utility>

#include "tailcast/copytree/describe.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/refusal.h"
#include "tailcast/copytree/solver.h"
#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

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

}  // namespace

double Plan::Gap() const { return GapAbove(usd_per_gb, lower_bound_usd_per_gb); }

Result<Plan> MakePlan(const Graph& graph, const Stream& stream, const PlanOptions& options,
                      int64_t* work) {
  TAILCAST_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(graph, stream, options));
  TAILCAST_RETURN_IF_ERROR(FindBlocked(graph, stream, options, setup, {}, work));
  const SolveResult solved =
      Solve(setup.problem, Starts(graph, setup), ToSolveOptions(graph, options));
  if (work != nullptr) *work += solved.work;
  if (!solved.feasible) return ExplainFailure(graph, stream, options, setup, solved, {}, work);
  Plan plan = Describe(graph, stream, setup, solved.parents);
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
  Plan plan = Describe(graph, stream, setup, parents);
  int64_t weight = 0;
  for (const Hop& hop : plan.hops) {
    const size_t at = static_cast<size_t>(*graph.Find(hop.from)) * problem.n + *graph.Find(hop.to);
    weight += Nanos(hop.usd_per_gb) + setup.penalty[at];
  }
  std::vector<std::string> all_broken = BrokenLimits(graph, setup, plan);
  plan.breaks_limits = !all_broken.empty();
  for (std::string& broken : all_broken) {
    plan.warnings.push_back(std::move(broken));
  }
  SetBound(weight, BestBound(problem, weight, WorkMax(graph, options)), &plan);
  return plan;
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
  return Describe(graph, stream, setup, parents);
}

}  // namespace tailcast::copytree
