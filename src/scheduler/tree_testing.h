// Streams with a tree, for the tests of the core's parts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/proto/cell.pb.h"

namespace tailcast::scheduler {

using Edges = std::vector<std::pair<std::string, std::string>>;  // from, to

inline MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

// Stream "s" of cell "a".
inline v1::StreamConfig Tree(const Edges& edges, uint64_t version = 1, int shards = 1) {
  v1::StreamConfig config;
  config.set_name("s");
  config.set_incarnation(7);
  config.set_shards(shards);
  config.set_chunk_size(4096);
  config.set_source("a");
  config.set_tree_version(version);
  for (const auto& [from, to] : edges) {
    auto* edge = config.add_tree();
    edge->set_from(from);
    edge->set_to(to);
  }
  return config;
}

// The same on its way from the tree `base`.
inline v1::StreamConfig Change(const Edges& base, const Edges& tree, uint64_t version,
                               int shards = 1) {
  v1::StreamConfig config = Tree(tree, version, shards);
  for (const auto& [from, to] : base) {
    auto* edge = config.mutable_change()->add_base();
    edge->set_from(from);
    edge->set_to(to);
  }
  return config;
}

}  // namespace tailcast::scheduler
