#include "tailcast/copytree/tree.h"

#include <map>
#include <set>

namespace tailcast::copytree {

bool Tree::Contains(std::string_view cluster) const {
  if (cluster == source) return true;
  for (const Edge& edge : edges) {
    if (edge.to == cluster) return true;
  }
  return false;
}

bool Tree::HasEdge(std::string_view from, std::string_view to) const {
  for (const Edge& edge : edges) {
    if (edge.from == from && edge.to == to) return true;
  }
  return false;
}

std::string Tree::ParentOf(std::string_view cluster) const {
  for (const Edge& edge : edges) {
    if (edge.to == cluster) return edge.from;
  }
  return "";
}

std::vector<std::string> Tree::ChildrenOf(std::string_view cluster) const {
  std::vector<std::string> children;
  for (const Edge& edge : edges) {
    if (edge.from == cluster) children.push_back(edge.to);
  }
  return children;
}

Result<Tree> Normalized(const Tree& tree) {
  std::map<std::string, std::vector<std::string>> children;
  std::set<std::string> fed;
  for (const Edge& edge : tree.edges) {
    if (edge.to == tree.source) {
      return InvalidArgumentError("the tree leads back into its source: " + edge.from + " -> " +
                                  edge.to);
    }
    if (!fed.insert(edge.to).second) {
      return InvalidArgumentError("cluster '" + edge.to + "' is fed twice in the tree");
    }
    children[edge.from].push_back(edge.to);
  }
  Tree sorted{tree.source, {}};
  std::vector<std::string> reached{tree.source};
  for (size_t next = 0; next < reached.size(); ++next) {
    const std::string from = reached[next];  // a copy: `reached` grows
    for (const std::string& to : children[from]) {
      sorted.edges.push_back({from, to});
      reached.push_back(to);
    }
  }
  if (sorted.edges.size() != tree.edges.size()) {
    const std::set<std::string> seen(reached.begin(), reached.end());
    for (const Edge& edge : tree.edges) {
      if (!seen.contains(edge.to)) {
        return InvalidArgumentError("cluster '" + edge.to + "' is not reached from source '" +
                                    tree.source +
                                    "' in the tree: it hangs on a cycle or on a "
                                    "cluster that nothing feeds");
      }
    }
  }
  return sorted;
}

}  // namespace tailcast::copytree
