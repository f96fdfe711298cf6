#include "tailcast/copytree/arborescence.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tailcast::copytree {
namespace {

// What a link costs in elementary steps in each round.
constexpr int64_t kLinkWork = 4;

// One link of a (contracted) graph: its reduced weight and the link of the whole graph that it
// stands for.
struct Arc {
  int64_t weight;
  int from, to;
};

// For each node but the root the arc that enters it. `arcs` is dense, [from * n + to]; absent arcs
// weigh kUnserved or more. Every node can be reached from the root. `node[v]` is what node v of the
// whole graph is part of here. Takes no more memory than two such matrices, however deep the cycles
// lie within one another.
std::vector<Arc> Solve(int n, int root, std::vector<Arc> arcs, const std::vector<int>& node,
                       int64_t* work) {
  *work += kLinkWork * n * n;
  std::vector<int> best(n, root);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (from == to || to == root) continue;
      const int64_t least = best[to] == to ? INT64_MAX : arcs[size_t(best[to]) * n + to].weight;
      if (arcs[size_t(from) * n + to].weight < least) best[to] = from;
    }
  }
  // Number the strongly connected parts of "best": each cycle becomes one node.
  std::vector<int> part(n, -1), seen(n, -1);
  int parts = 0;
  bool cycles = false;
  for (int start = 0; start < n; ++start) {
    int at = start;
    while (at != root && part[at] < 0 && seen[at] < 0) {
      seen[at] = start;
      at = best[at];
    }
    if (at != root && part[at] < 0 && seen[at] == start) {
      cycles = true;
      for (int v = best[at]; v != at; v = best[v]) part[v] = parts;
      part[at] = parts++;
    }
    for (int v = start; v != root && part[v] < 0; v = best[v]) part[v] = parts++;
  }
  part[root] = parts++;

  std::vector<Arc> chosen(n);
  for (int v = 0; v < n; ++v) chosen[v] = arcs[size_t(best[v]) * n + v];
  if (!cycles) return chosen;

  std::vector<int> size(parts, 0);
  for (int v = 0; v < n; ++v) ++size[part[v]];
  std::vector<Arc> contracted(size_t(parts) * parts, Arc{INT64_MAX / 2, -1, -1});
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (part[from] == part[to] || to == root) continue;
      const Arc& arc = arcs[size_t(from) * n + to];
      const int64_t weight =
          arc.weight - (size[part[to]] > 1 ? arcs[size_t(best[to]) * n + to].weight : 0);
      Arc& slot = contracted[size_t(part[from]) * parts + part[to]];
      if (weight < slot.weight) slot = Arc{weight, arc.from, arc.to};
    }
  }
  std::vector<Arc>().swap(arcs);
  std::vector<int> part_of(node);
  for (int& at : part_of) at = part[at];
  const std::vector<Arc> outer = Solve(parts, part[root], std::move(contracted), part_of, work);
  for (int p = 0; p < parts; ++p) {
    // The arc that enters the part replaces the cycle's own arc at the node where it enters.
    if (p != part[root]) chosen[node[outer[p].to]] = outer[p];
  }
  return chosen;
}

}  // namespace

Parents MinArborescence(const Problem& problem, int64_t* work) {
  int64_t steps = 0;
  const int n = problem.n;
  std::vector<int> reached{problem.root};
  std::vector<char> seen(n, 0);
  seen[problem.root] = 1;
  for (size_t next = 0; next < reached.size(); ++next) {
    for (int to = 0; to < n; ++to) {
      if (!seen[to] && problem.HasLink(reached[next], to)) {
        seen[to] = 1;
        reached.push_back(to);
      }
    }
  }
  std::sort(reached.begin(), reached.end());
  const int m = static_cast<int>(reached.size());
  Parents parents(n, kNoParent);
  if (m <= 1) return parents;
  std::vector<Arc> arcs(size_t(m) * m);
  int root = 0;
  for (int a = 0; a < m; ++a) {
    if (reached[a] == problem.root) root = a;
    for (int b = 0; b < m; ++b) {
      arcs[size_t(a) * m + b] = Arc{problem.Weight(reached[a], reached[b]), a, b};
    }
  }
  std::vector<int> node(m);
  std::iota(node.begin(), node.end(), 0);
  const std::vector<Arc> chosen = Solve(m, root, std::move(arcs), node, &steps);
  if (work != nullptr) *work += steps;
  for (int a = 0; a < m; ++a) {
    if (a != root) parents[reached[a]] = reached[chosen[a].from];
  }
  return parents;
}

void PruneRelays(const Problem& problem, Parents* parents) {
  std::vector<int> children(problem.n, 0);
  for (int v = 0; v < problem.n; ++v) {
    if ((*parents)[v] != kNoParent) ++children[(*parents)[v]];
  }
  std::vector<int> idle;
  const auto consider = [&](int v) {
    if (v != problem.root && !problem.required[v] && children[v] == 0 &&
        (*parents)[v] != kNoParent) {
      idle.push_back(v);
    }
  };
  for (int v = 0; v < problem.n; ++v) consider(v);
  while (!idle.empty()) {
    const int v = idle.back();
    idle.pop_back();
    const int parent = (*parents)[v];
    (*parents)[v] = kNoParent;
    --children[parent];
    consider(parent);
  }
}

}  // namespace tailcast::copytree
