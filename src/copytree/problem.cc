#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {
namespace {

// Nodes in an order in which every parent stands before its children; nodes that hang on a cycle
// or outside the tree are left out.
std::vector<int> TopDown(const Problem& problem, const Parents& parents) {
  std::vector<std::vector<int>> children(problem.n);
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && parents[v] != kNoParent) children[parents[v]].push_back(v);
  }
  std::vector<int> order{problem.root};
  for (size_t next = 0; next < order.size(); ++next) {
    const int at = order[next];
    order.insert(order.end(), children[at].begin(), children[at].end());
  }
  return order;
}

}  // namespace

int64_t TotalWeight(const Problem& problem, const Parents& parents) {
  int64_t total = 0;
  for (int v = 0; v < problem.n; ++v) {
    if (v == problem.root) continue;
    if (parents[v] != kNoParent) {
      total += problem.Weight(parents[v], v);
    } else if (problem.required[v]) {
      total += kUnserved;
    }
  }
  return total;
}

std::vector<int> Depths(const Problem& problem, const Parents& parents) {
  std::vector<int> depths(problem.n, -1);
  for (int v : TopDown(problem, parents)) {
    depths[v] = v == problem.root ? 0 : depths[parents[v]] + 1;
  }
  return depths;
}

std::vector<int64_t> Arrivals(const Problem& problem, const Parents& parents) {
  std::vector<int64_t> arrivals(problem.n, -1);
  for (int v : TopDown(problem, parents)) {
    arrivals[v] = v == problem.root ? 0 : arrivals[parents[v]] + problem.Delay(parents[v], v);
  }
  return arrivals;
}

bool IsFeasible(const Problem& problem, const Parents& parents) {
  const std::vector<int> depths = Depths(problem, parents);
  const std::vector<int64_t> arrivals = Arrivals(problem, parents);
  std::vector<int> fanout(problem.n, 0);
  for (int v = 0; v < problem.n; ++v) {
    if (v == problem.root) {
      if (parents[v] != kNoParent) return false;
      continue;
    }
    if (parents[v] == kNoParent) {
      if (problem.required[v]) return false;
      continue;
    }
    if (!problem.HasLink(parents[v], v)) return false;
    if (depths[v] < 0 || depths[v] > problem.DepthMax(v)) return false;  // a cycle, or too deep
    if (arrivals[v] > problem.delay_max_us) return false;
    if (++fanout[parents[v]] > problem.fanout_max[parents[v]]) return false;
  }
  return true;
}

}  // namespace tailcast::copytree
