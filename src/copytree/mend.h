// What a tree costs after one of its clusters or links failed, when only those move that hung on
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Everything below what failed stays together as far as that can be: each part is fed by the
// cheapest link from whatever still has the stream, parts that are fed already included, within the
// limits. Where the parts do not fit in, every node of them is fed by itself. A mended tree that
// was found is a tree within the limits; that none was found is no proof.
class Mender {
 public:
  // One thing that fails: a node, or the link into it.
  struct Failure {
    int node = 0;
    bool link = false;
    // Of the mended tree without the failed node; kUnserved: none was found.
    int64_t price = 0;
  };

  // `price` [from * n + to]: what links cost, in 1e-9 USD per GB. `usable` [from * n + to]: 1 = new
  // feeds may use the link. The problem must outlive it; not thread-safe.
  Mender(const Problem& problem, std::vector<int64_t> price, std::vector<char> usable);

  // One for each node below the root that feeds others, and one for each link. `tree` must be one
  // within the limits.
  const std::vector<Failure>& Evaluate(const Parents& tree);
  int64_t price() const { return price_sum_; }  // of the tree itself
  int64_t work() const { return work_; }        // elementary steps, of all calls

 private:
  // A part that hung on what failed, by its highest node.
  struct Part {
    int top = 0;
    int from = kNoParent;  // the best feed so far
    int64_t price = kUnserved;
  };

  void Load(const Parents& tree);
  // Feeds `tops`, whole or, where that is false, each node below them by itself; what that costs.
  // kUnserved: they cannot all be fed. `failed` and the link into `cut` are gone.
  int64_t FeedParts(const std::vector<int>& tops, bool whole, int failed, int cut);
  int64_t Mend(const std::vector<int>& tops, int failed, int cut);
  void Offer(int from, int failed, int cut, Part* part) const;
  void Join(int top, int from, bool whole);
  size_t At(int from, int to) const { return static_cast<size_t>(from) * problem_.n + to; }

  const Problem& problem_;
  const std::vector<int64_t> price_;
  const std::vector<char> usable_;
  Parents parent_;
  std::vector<std::vector<int>> children_;
  std::vector<int> order_;  // the root first, parents before children
  std::vector<int> depth_, children_count_;
  std::vector<int64_t> arrival_;
  std::vector<int> spare_hops_;    // how much deeper a node may come with all below it
  std::vector<int64_t> spare_us_;  // how much later
  int64_t price_sum_ = 0;
  // While one failure is mended.
  std::vector<char> fed_;
  std::vector<int> part_of_;  // the top of the part that a node is in, -1 = never cut off
  std::vector<int> now_depth_, now_children_;
  std::vector<int64_t> now_arrival_;
  std::vector<int> below_;
  std::vector<Failure> failures_;
  int64_t work_ = 0;
};

}  // namespace tailcast::copytree
