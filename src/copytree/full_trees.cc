#include "tailcast/copytree/full_trees.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"

namespace tailcast::copytree {
namespace {

constexpr int kNodesMost = 100, kFanoutMost = 4;
// So many links lead into a node on average at most, and out of one.
constexpr int64_t kLinksMost = 8, kLinksOutMost = 30;
constexpr int64_t kRoomPart = 8;
// The part of the steps after which the order changes.
constexpr int64_t kFirstPart = 4;
// What a look at a node or a link, at a place in an assignment, and a set of children cost in
// elementary steps; measured.
constexpr int64_t kLookWork = 3, kPlaceWork = 4, kSetWork = 60;

// Nodes that fit below the root, or INT64_MAX / 4 if that is more than `most`.
int64_t RoomBelow(int fanout, int depth, int64_t most) {
  int64_t room = 0, level = 1;
  for (int d = 0; d < depth; ++d) {
    level *= fanout;
    room += level;
    if (room > most) return INT64_MAX / 4;
  }
  return room;
}

class FullTrees {
 public:
  FullTrees(const Problem& problem, const LinkRests& rests, int64_t below, int64_t goal,
            int64_t work_max);
  FullTreesResult Run();

 private:
  // Chooses the children of level[at] and of those after it, which join `next`, then goes on to
  // the level below. `room`: so many nodes fewer than fit may be in the tree.
  void Choose(const std::vector<int>& level, size_t at, std::vector<int>* next, int depth,
              int64_t weight, int64_t room);
  // Sets of children out of `free`, the largest first, of these the least dear by what the rests
  // say, or else beside each one's cheapest link.
  std::vector<std::vector<int>> Choices(int v, int depth, const std::vector<int>& free);
  void ChooseBelow(std::vector<int> level, int depth, int64_t weight, int64_t room);
  // All nodes that are left become children of the last level, as cheaply as can be.
  void Assign(const std::vector<int>& level, int64_t weight);
  // No tree lighter than the best one has these parents: with the cheapest link into each node that
  // is left, from one that can still feed it, and with what is left of it, it is not.
  bool CutOff(int depth, int64_t weight);
  // Of a link to a node at the depth, or at it and deeper; 0 if nothing is known.
  int64_t Rest(const std::vector<int64_t>& rests, int depth, int from, int to) const {
    if (rests.empty()) return 0;
    const size_t n = static_cast<size_t>(problem_.n);
    return depth > problem_.depth_max ? INT64_MAX : rests[(depth * n + from) * n + to];
  }
  bool MayFeed(int from, int to, int depth) const {
    return problem_.HasLink(from, to) && depth <= problem_.DepthMax(to) &&
           arrival_[from] + problem_.Delay(from, to) <= problem_.delay_max_us;
  }
  void Keep(int64_t weight) {
    result_.weight = weight;
    result_.parents = parents_;
  }
  bool Over() const { return result_.work >= work_max_ || result_.weight <= goal_; }

  const Problem& problem_;
  const LinkRests& rests_;
  std::vector<int64_t> rests_below_;  // the least of each link at a depth and deeper
  const int64_t goal_;
  int64_t work_max_;
  bool by_rests_ = false;  // the order in which sets of children are tried
  const int fanout_;
  std::vector<std::vector<int>> into_;  // where links into each node come from, cheapest first
  std::vector<std::vector<int>> out_;   // where those out of it lead
  std::vector<int64_t> full_;           // nodes of a full tree whose root is at the depth
  Parents parents_;
  std::vector<int64_t> arrival_;
  std::vector<int> depth_;  // of nodes that have a parent
  int64_t rest_ = 0;        // of the links so far
  std::vector<char> done_;  // feeds nobody else any more
  int left_;                // nodes without a parent
  // Of Assign: prices of rows and places, who has a place, from where it is reached.
  std::vector<int64_t> row_price_, place_price_, least_;
  std::vector<int> row_at_, way_, rows_;
  std::vector<char> seen_;
  FullTreesResult result_;
};

FullTrees::FullTrees(const Problem& problem, const LinkRests& rests, int64_t below, int64_t goal,
                     int64_t work_max)
    : problem_(problem),
      rests_(rests),
      rests_below_(rests.left),
      goal_(goal),
      work_max_(work_max),
      fanout_(problem.fanout_max[problem.root]),
      into_(problem.n),
      out_(problem.n),
      full_(problem.depth_max + 2, 0),
      parents_(problem.n, kNoParent),
      arrival_(problem.n, 0),
      depth_(problem.n, 0),
      done_(problem.n, 0),
      left_(problem.n - 1) {
  result_.weight = below;
  for (int from = 0; from < problem.n; ++from) {
    for (int to = 0; to < problem.n; ++to) {
      if (from == to || to == problem.root || !problem.HasLink(from, to)) continue;
      into_[to].push_back(from);
      out_[from].push_back(to);
    }
  }
  for (int v = 0; v < problem.n; ++v) {
    std::stable_sort(into_[v].begin(), into_[v].end(),
                     [&](int a, int b) { return problem.Weight(a, v) < problem.Weight(b, v); });
  }
  for (int depth = problem.depth_max; depth > 0; --depth) {
    full_[depth] = 1 + fanout_ * full_[depth + 1];
  }
  const size_t square = static_cast<size_t>(problem.n) * problem.n;
  for (size_t i = rests_below_.size(); i-- > square;) {
    rests_below_[i - square] = std::min(rests_below_[i - square], rests_below_[i]);
  }
  result_.work = 2 * static_cast<int64_t>(square) + static_cast<int64_t>(rests_below_.size());
}

FullTreesResult FullTrees::Run() {
  const int64_t below = result_.weight, room = fanout_ * full_[1] - left_, most = work_max_;
  if (!rests_.left.empty()) {  // neither order is always the better one
    work_max_ = most / kFirstPart;
    ChooseBelow({problem_.root}, 0, 0, room);
    by_rests_ = true;
  }
  const bool through = !Over() && by_rests_;
  work_max_ = most;
  if (!through) ChooseBelow({problem_.root}, 0, 0, room);
  result_.complete = !Over();
  if (result_.weight == below) result_.weight = INT64_MAX;
  return std::move(result_);
}

bool FullTrees::CutOff(int depth, int64_t weight) {
  int64_t bound = rests_.value + rest_;
  for (int v = 0; v < problem_.n; ++v) {
    if (v == problem_.root || parents_[v] != kNoParent) continue;
    int64_t cheapest = INT64_MAX, least = INT64_MAX;
    for (int from : into_[v]) {
      result_.work += kLookWork;
      if (done_[from]) continue;
      if (cheapest == INT64_MAX) cheapest = problem_.Weight(from, v);
      const bool placed = from == problem_.root || parents_[from] != kNoParent;
      least = std::min(least, placed ? Rest(rests_.left, depth_[from] + 1, from, v)
                                     : Rest(rests_below_, depth + 2, from, v));
    }
    if (least == INT64_MAX) return true;
    weight += cheapest;
    bound += least;
  }
  result_.work += kLookWork * problem_.n;
  return std::max(weight, bound) >= result_.weight;
}

void FullTrees::ChooseBelow(std::vector<int> level, int depth, int64_t weight, int64_t room) {
  if (left_ == 0) return Keep(weight);
  if (level.empty()) return;
  if (depth == problem_.depth_max - 1) return Assign(level, weight);
  // Who has the least choice chooses first.
  std::vector<int> choices(problem_.n, 0);
  for (int v : level) {
    for (int to : out_[v]) choices[v] += parents_[to] == kNoParent;
  }
  std::stable_sort(level.begin(), level.end(),
                   [&](int a, int b) { return choices[a] < choices[b]; });
  std::vector<int> next;
  Choose(level, 0, &next, depth, weight, room);
}

void FullTrees::Choose(const std::vector<int>& level, size_t at, std::vector<int>* next, int depth,
                       int64_t weight, int64_t room) {
  if (Over() || CutOff(depth, weight)) return;
  if (at == level.size()) return ChooseBelow(*next, depth + 1, weight, room);
  const int v = level[at];
  std::vector<int> free;
  for (int to : out_[v]) {
    if (parents_[to] == kNoParent && MayFeed(v, to, depth + 1) &&
        Rest(rests_.left, depth + 1, v, to) != INT64_MAX) {
      free.push_back(to);
    }
  }
  done_[v] = 1;
  for (const std::vector<int>& chosen : Choices(v, depth + 1, free)) {
    if (Over()) break;
    const int count = static_cast<int>(chosen.size());
    const int64_t rest = room - (fanout_ - count) * full_[depth + 1];
    if (rest < 0) break;
    const int64_t rest_before = rest_;
    int64_t more = 0;
    for (int to : chosen) {
      parents_[to] = v;
      depth_[to] = depth + 1;
      arrival_[to] = arrival_[v] + problem_.Delay(v, to);
      rest_ += Rest(rests_.left, depth + 1, v, to);
      more += problem_.Weight(v, to);
      next->push_back(to);
    }
    left_ -= count;
    Choose(level, at + 1, next, depth, weight + more, rest);
    left_ += count;
    rest_ = rest_before;
    for (int to : chosen) parents_[to] = kNoParent;
    next->resize(next->size() - chosen.size());
  }
  done_[v] = 0;
}

std::vector<std::vector<int>> FullTrees::Choices(int v, int depth, const std::vector<int>& free) {
  const int many = static_cast<int>(free.size());
  std::vector<std::pair<int64_t, std::vector<int>>> sets;
  std::vector<std::vector<int>> choices;
  for (int count = std::min(fanout_, many); count >= 0; --count) {
    sets.clear();
    std::vector<int> chosen(count);
    for (int i = 0; i < count; ++i) chosen[i] = i;
    for (;;) {
      auto& [dear, set] = sets.emplace_back(0, std::vector<int>());
      for (int i : chosen) {
        const int to = free[i];
        dear += by_rests_ ? Rest(rests_.left, depth, v, to)
                          : problem_.Weight(v, to) - problem_.Weight(into_[to].front(), to);
        set.push_back(to);
      }
      // The next set of as many.
      int i = count - 1;
      while (i >= 0 && chosen[i] == many - count + i) --i;
      if (i < 0) break;
      ++chosen[i];
      for (int j = i + 1; j < count; ++j) chosen[j] = chosen[j - 1] + 1;
    }
    result_.work += kSetWork * static_cast<int64_t>(sets.size());
    std::stable_sort(sets.begin(), sets.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [dear, set] : sets) choices.push_back(std::move(set));
  }
  return choices;
}

// The Hungarian method, a row at a time: rows are nodes, each of the level has as many places as it
// may have children. Gives up as soon as the rows so far cost too much.
void FullTrees::Assign(const std::vector<int>& level, int64_t weight) {
  const int places = static_cast<int>(level.size()) * fanout_;
  if (left_ > places) return;
  rows_.clear();
  for (int v = 0; v < problem_.n; ++v) {
    if (v != problem_.root && parents_[v] == kNoParent) rows_.push_back(v);
  }
  const auto price = [&](int row, int place) {
    const int from = level[(place - 1) / fanout_], to = rows_[row - 1];
    return MayFeed(from, to, problem_.depth_max) ? problem_.Weight(from, to) : kUnserved;
  };
  row_price_.assign(rows_.size() + 1, 0);
  place_price_.assign(places + 1, 0);
  row_at_.assign(places + 1, 0);
  way_.assign(places + 1, 0);
  for (int row = 1; row <= static_cast<int>(rows_.size()); ++row) {
    row_at_[0] = row;
    int at = 0;
    least_.assign(places + 1, INT64_MAX);
    seen_.assign(places + 1, 0);
    do {
      seen_[at] = 1;
      int64_t step = INT64_MAX;
      int to = 0;
      for (int place = 1; place <= places; ++place) {
        if (seen_[place]) continue;
        const int64_t over =
            price(row_at_[at], place) - row_price_[row_at_[at]] - place_price_[place];
        if (over < least_[place]) {
          least_[place] = over;
          way_[place] = at;
        }
        if (least_[place] < step) {
          step = least_[place];
          to = place;
        }
      }
      for (int place = 0; place <= places; ++place) {
        if (seen_[place]) {
          row_price_[row_at_[place]] += step;
          place_price_[place] -= step;
        } else if (least_[place] != INT64_MAX) {
          least_[place] -= step;
        }
      }
      result_.work += kPlaceWork * places;
      at = to;
    } while (row_at_[at] != 0);
    for (; at != 0; at = way_[at]) row_at_[at] = row_at_[way_[at]];
    if (weight - place_price_[0] >= result_.weight) return;
  }
  for (int place = 1; place <= places; ++place) {
    if (row_at_[place] != 0) parents_[rows_[row_at_[place] - 1]] = level[(place - 1) / fanout_];
  }
  Keep(weight - place_price_[0]);
  for (int v : rows_) parents_[v] = kNoParent;
}

}  // namespace

bool NearlyFull(const Problem& problem) {
  const int fanout = problem.fanout_max[problem.root];
  if (problem.n > kNodesMost || fanout < 1 || fanout > kFanoutMost) return false;
  int64_t links = 0;
  for (int v = 0; v < problem.n; ++v) {
    if (problem.fanout_max[v] != fanout) return false;
    if (v != problem.root && !problem.required[v]) return false;
    int64_t out = 0;
    for (int to = 0; to < problem.n; ++to) out += to != v && problem.HasLink(v, to);
    if (out > kLinksOutMost) return false;
    links += out;
  }
  const int64_t nodes = problem.n - 1;
  const int64_t room = RoomBelow(fanout, problem.depth_max, 2 * nodes);
  return links <= kLinksMost * problem.n && room >= nodes && room <= nodes + nodes / kRoomPart;
}

FullTreesResult SearchFullTrees(const Problem& problem, const LinkRests& rests, int64_t below,
                                int64_t goal, int64_t work_max) {
  TAILCAST_CHECK(NearlyFull(problem));
  return FullTrees(problem, rests, std::min(below, kUnserved), goal, work_max).Run();
}

}  // namespace tailcast::copytree
