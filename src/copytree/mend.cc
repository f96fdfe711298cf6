#include "tailcast/copytree/mend.h"

#include <algorithm>
#include <utility>

namespace tailcast::copytree {
namespace {

// What it costs to look at one feed for a part; measured.
constexpr int64_t kOfferWork = 4;

}  // namespace

Mender::Mender(const Problem& problem, std::vector<int64_t> price, std::vector<char> usable)
    : problem_(problem), price_(std::move(price)), usable_(std::move(usable)) {}

void Mender::Load(const Parents& tree) {
  const size_t n = static_cast<size_t>(problem_.n);
  parent_ = tree;
  children_.assign(n, {});
  for (int v = 0; v < problem_.n; ++v) {
    if (v != problem_.root && tree[v] != kNoParent) children_[tree[v]].push_back(v);
  }
  depth_.assign(n, 0);
  arrival_.assign(n, 0);
  children_count_.assign(n, 0);
  spare_hops_.assign(n, problem_.n);
  spare_us_.assign(n, kNoDelayLimit);
  price_sum_ = 0;
  order_.assign(1, problem_.root);
  for (size_t next = 0; next < order_.size(); ++next) {
    const int from = order_[next];
    children_count_[from] = static_cast<int>(children_[from].size());
    for (int to : children_[from]) {
      depth_[to] = depth_[from] + 1;
      arrival_[to] = arrival_[from] + problem_.Delay(from, to);
      price_sum_ += price_[At(from, to)];
      order_.push_back(to);
    }
  }
  for (size_t i = order_.size(); i-- > 1;) {
    const int v = order_[i];
    spare_hops_[v] = std::min(spare_hops_[v], problem_.DepthMax(v) - depth_[v]);
    spare_us_[v] = std::min(spare_us_[v], problem_.delay_max_us - arrival_[v]);
    const int up = parent_[v];
    spare_hops_[up] = std::min(spare_hops_[up], spare_hops_[v]);
    spare_us_[up] = std::min(spare_us_[up], spare_us_[v]);
  }
}

// `whole` parts bring their depths and delays along; single nodes only their own limits.
void Mender::Offer(int from, int failed, int cut, Part* part) const {
  const int to = part->top;
  if (from == to || from == failed || !usable_[At(from, to)] ||
      price_[At(from, to)] >= part->price) {
    return;
  }
  if (to == cut && parent_[to] == from) return;
  if (now_children_[from] >= problem_.fanout_max[from]) return;
  if (now_depth_[from] + 1 > now_depth_[to] ||
      now_arrival_[from] + problem_.Delay(from, to) > now_arrival_[to]) {
    return;
  }
  part->from = from;
  part->price = price_[At(from, to)];
}

void Mender::Join(int top, int from, bool whole) {
  ++now_children_[from];
  const int depth = now_depth_[from] + 1;
  const int64_t arrival = now_arrival_[from] + problem_.Delay(from, top);
  below_.assign(1, top);
  for (size_t next = 0; next < below_.size(); ++next) {
    const int v = below_[next];
    fed_[v] = 1;
    now_depth_[v] = depth_[v] - depth_[top] + depth;
    now_arrival_[v] = arrival_[v] - arrival_[top] + arrival;
    if (!whole) return;
    below_.insert(below_.end(), children_[v].begin(), children_[v].end());
  }
}

// As Prim's algorithm: again and again the part with the cheapest feed. While a part waits,
// now_depth_ and now_arrival_ of its top are the deepest and latest at which it fits.
int64_t Mender::FeedParts(const std::vector<int>& tops, bool whole, int failed, int cut) {
  fed_.assign(static_cast<size_t>(problem_.n), 0);
  for (int v : order_) fed_[v] = 1;
  if (failed >= 0) fed_[failed] = 0;
  now_depth_ = depth_;
  now_arrival_ = arrival_;
  now_children_ = children_count_;
  part_of_.assign(static_cast<size_t>(problem_.n), -1);
  below_ = tops;
  for (int top : tops) --now_children_[parent_[top]];
  for (size_t next = 0; next < below_.size(); ++next) {
    const int v = below_[next];
    fed_[v] = 0;
    part_of_[v] = whole && next >= tops.size() ? part_of_[parent_[v]] : v;
    if (!whole) now_children_[v] = 0;
    below_.insert(below_.end(), children_[v].begin(), children_[v].end());
  }
  std::vector<Part> waiting;
  for (int v : whole ? tops : below_) {
    // Relays that nothing hangs on are not needed any more.
    if (whole || problem_.required[v]) waiting.push_back({.top = v});
  }
  work_ += 6 * int64_t{problem_.n};
  const auto look = [&](Part* part) {
    const int v = part->top;
    now_depth_[v] = whole ? depth_[v] + spare_hops_[v] : problem_.DepthMax(v);
    now_arrival_[v] = whole ? arrival_[v] + spare_us_[v] : problem_.delay_max_us;
    for (int from : order_) {
      if (fed_[from] && part_of_[from] != v) Offer(from, failed, cut, part);
    }
    work_ += kOfferWork * static_cast<int64_t>(order_.size());
  };
  for (Part& part : waiting) look(&part);
  std::vector<Part> fed;
  std::vector<int> joined;
  while (!waiting.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].price < waiting[best].price) best = i;
    }
    const Part part = waiting[best];
    if (part.from == kNoParent) return kUnserved;
    waiting.erase(waiting.begin() + static_cast<int64_t>(best));
    fed.push_back(part);
    Join(part.top, part.from, whole);
    if (whole) {
      joined = below_;
    } else {
      joined.assign(1, part.top);
    }
    const bool full = now_children_[part.from] >= problem_.fanout_max[part.from];
    for (Part& other : waiting) {
      work_ += kOfferWork * static_cast<int64_t>(joined.size());
      if (full && other.from == part.from) {
        other = {.top = other.top};
        look(&other);
      } else {
        for (int from : joined) Offer(from, failed, cut, &other);
      }
    }
  }
  // Who was fed first may now be fed for less by those that came later.
  for (bool better = true; better;) {
    better = false;
    for (Part& part : fed) {
      const auto feeds = [&](const Part& other) { return part_of_[other.from] == part.top; };
      if (std::any_of(fed.begin(), fed.end(), feeds)) continue;
      Part again{.top = part.top, .from = part.from, .price = part.price};
      --now_children_[part.from];
      look(&again);
      Join(part.top, again.from, whole);
      better = better || again.price < part.price;
      part = again;
    }
  }
  int64_t sum = 0;
  for (const Part& part : fed) sum += part.price;
  return sum;
}

int64_t Mender::Mend(const std::vector<int>& tops, int failed, int cut) {
  int64_t kept = price_sum_;
  if (failed >= 0) kept -= price_[At(parent_[failed], failed)];
  for (int top : tops) kept -= price_[At(parent_[top], top)];
  const int64_t parts = FeedParts(tops, true, failed, cut);
  int64_t best = parts < kUnserved ? kept + parts : kUnserved;
  below_ = tops;
  for (size_t next = 0; next < below_.size(); ++next) {
    for (int child : children_[below_[next]]) {
      kept -= price_[At(below_[next], child)];
      below_.push_back(child);
    }
  }
  if (below_.size() == tops.size()) return best;
  const int64_t nodes = FeedParts(tops, false, failed, cut);
  return nodes < kUnserved ? std::min(best, kept + nodes) : best;
}

const std::vector<Mender::Failure>& Mender::Evaluate(const Parents& tree) {
  Load(tree);
  work_ += 4 * static_cast<int64_t>(order_.size());
  failures_.clear();
  for (size_t i = 1; i < order_.size(); ++i) {
    const int v = order_[i];
    int64_t link = Mend({v}, -1, v);
    if (!children_[v].empty()) {
      const int64_t without = Mend(children_[v], v, -1);
      failures_.push_back({.node = v, .link = false, .price = without});
      // A relay may as well be done without.
      if (!problem_.required[v]) link = std::min(link, without);
    }
    failures_.push_back({.node = v, .link = true, .price = link});
  }
  return failures_;
}

}  // namespace tailcast::copytree
