// A copy tree as plain data, by names: what the optimiser hands out, what the schedulers run, what
// a user fixes by hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::copytree {

struct Edge {
  std::string from, to;
  bool operator==(const Edge&) const = default;
};

struct Tree {
  std::string source;
  // Every cluster but the source is the `to` of one edge. Plans list parents before children.
  std::vector<Edge> edges;

  bool Contains(std::string_view cluster) const;
  bool HasEdge(std::string_view from, std::string_view to) const;
  // Empty for the source and for clusters outside the tree.
  std::string ParentOf(std::string_view cluster) const;
  std::vector<std::string> ChildrenOf(std::string_view cluster) const;
  bool operator==(const Tree&) const = default;
};

// The tree with its edges in breadth-first order, siblings in the order in which they came.
// InvalidArgument if it is no tree: an edge into the source, two edges into one cluster, a cluster
// that the source does not reach, a cycle. Each message names the cluster.
Result<Tree> Normalized(const Tree& tree);

}  // namespace tailcast::copytree
