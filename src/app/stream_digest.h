// What a stream is in one cell, small enough to be compared with what it is in another:
// `tailcast verify`.
//
// Cores: no I/O, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/hash.h"
#include "tailcast/consumer/tail_core.h"
#include "tailcast/copytree/tree.h"

namespace tailcast::app {

// The messages of a shard, in blocks of kBlockMessages by their numbers. Two shards with the same
// blocks have the same numbers, places, times and bytes.
class ShardDigest {
 public:
  static constexpr int64_t kBlockMessages = 1024;

  // In order of numbers, from whichever on.
  void Add(const consumer::Message& message);
  int64_t first() const { return first_; }  // number of the first one; 0: there is none
  int64_t end() const { return end_; }      // behind the last one
  int64_t bytes() const { return bytes_; }  // of all payloads

  // The number from which on messages differ, to the block: it, or one of the next
  // kBlockMessages - 1. nullopt: what both have is the same. What only one of them keeps from its
  // beginning on is not compared, to the block; an end that one lacks is a difference.
  static std::optional<int64_t> FirstDifference(const ShardDigest& a, const ShardDigest& b);

 private:
  int64_t first_ = 0, end_ = 0, bytes_ = 0;
  std::map<int64_t, Hash128Value> blocks_;  // by number / kBlockMessages
};

// What a cell gave.
struct CellDigest {
  std::map<int32_t, ShardDigest> shards;
  std::string error;  // why it gave no more; empty: it gave all
};

struct HopFinding {
  copytree::Edge hop;
  bool same = false;
  std::string what;  // if not: where, and how
};
// Each hop of the tree in its order, parents first. A cell of which nothing is known differs.
std::vector<HopFinding> CompareHops(const copytree::Tree& tree,
                                    const std::map<std::string, CellDigest>& cells);

}  // namespace tailcast::app
