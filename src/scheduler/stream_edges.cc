#include "tailcast/scheduler/stream_edges.h"

#include <algorithm>

#include "tailcast/base/strong.h"

namespace tailcast::scheduler {

using copytree::StepKind;
using stream::Layer;

StreamEdges::StreamEdges(std::string cell, const EdgeOptions& options,
                         const v1::StreamConfig& config, EdgeEvents& out)
    : cell_(std::move(cell)), options_(options), config_(config) {
  for (const auto& [target, plan] : Plan()) Add(target, plan, out);
}

void StreamEdges::Add(const std::string& cell, EdgePlan plan, EdgeEvents& out) {
  if (plan.state != EdgeState::kLeaving && IsSettled(cell)) plan.state = EdgeState::kMade;
  edges_.try_emplace(cell, options_, plan, config_.shards());
  if (plan.state == EdgeState::kJoining) Take(StepKind::kAddEdge, cell, out);
}

// The edges from this cell that the configuration asks for.
std::map<std::string, EdgePlan> StreamEdges::Plan() const {
  std::map<std::string, EdgePlan> edges;
  copytree::Tree base{config_.source(), {}}, tree{config_.source(), {}};
  for (const v1::TreeEdge& edge : config_.tree()) {
    tree.edges.push_back({edge.from(), edge.to()});
    if (edge.from() == cell_) edges[edge.to()];
  }
  if (!config_.has_change()) return edges;
  copytree::DiffOptions options;
  for (const v1::TreeEdge& edge : config_.change().base()) {
    base.edges.push_back({edge.from(), edge.to()});
  }
  for (const v1::TreeEdge& edge : config_.change().abandoned()) {
    options.abandoned.push_back({edge.from(), edge.to()});
  }
  const auto steps = copytree::Diff(base, tree, options);
  // A configuration that makes no sense: the tree alone counts.
  if (!steps.ok()) return edges;
  const bool settled =
      config_.source() == cell_ || config_.settled_version() >= config_.tree_version();
  for (const copytree::Step& step : *steps) {
    if (step.from != cell_) continue;
    if (step.kind == StepKind::kAddEdge) {
      edges[step.to] = {
          .state = settled || step.after.empty() ? EdgeState::kJoining : EdgeState::kWaiting,
          .newcomer = step.rate_limited};
    } else if (step.kind == StepKind::kRemoveEdge) {
      if (!tree.Contains(step.to) || !IsSettled(step.to)) {
        edges[step.to] = {.state = EdgeState::kLeaving};
      }
    }
  }
  return edges;
}

bool StreamEdges::IsSettled(const std::string& cell) const {
  const auto it = settled_.find(cell);
  return it != settled_.end() && it->second >= tree_version();
}

void StreamEdges::Take(StepKind kind, const std::string& to, EdgeEvents& out) const {
  out.steps.push_back({id(), tree_version(), kind, cell_, to});
}

bool StreamEdges::OnConfig(const v1::StreamConfig& config, EdgeEvents& out) {
  if (config.tree_version() < config_.tree_version()) return false;
  // In a tree that was never heard of here the target may have left, and what it had gone.
  const bool skipped = config.tree_version() > config_.tree_version() + 1;
  config_ = config;
  const std::map<std::string, EdgePlan> wanted = Plan();
  for (auto it = edges_.begin(); it != edges_.end();) {
    const std::string cell = (it++)->first;
    if (!wanted.contains(cell)) Drop(cell, out);
  }
  for (const auto& [cell, plan] : wanted) {
    EdgeChange* edge = Find(cell);
    if (plan.state == EdgeState::kLeaving) {
      // One that is not there was broken before.
      if (edge != nullptr) edge->Leave();
      continue;
    }
    const bool anew = skipped && plan.state != EdgeState::kMade;
    if (edge != nullptr && edge->state() != EdgeState::kLeaving && !anew) {
      if (edge->MayBegin(plan.state != EdgeState::kWaiting)) Take(StepKind::kAddEdge, cell, out);
      // The change is over: the target is settled, though we did not see it.
      if (edge->comes() && !config_.has_change()) Settle(cell, out);
      continue;
    }
    edges_.erase(cell);
    Add(cell, plan, out);
    out.events.push_back({.kind = EdgeEvent::Kind::kBegun, .cell = cell});
  }
  ApplySettled(out);
  return true;
}

void StreamEdges::OnSettled(const std::string& cell, stream::TreeVersion settled_version,
                            EdgeEvents& out) {
  stream::TreeVersion& settled = settled_[cell];
  if (settled >= settled_version) return;
  settled = settled_version;
  ApplySettled(out);
}

// What the neighbours say makes possible.
void StreamEdges::ApplySettled(EdgeEvents& out) {
  for (auto it = edges_.begin(); it != edges_.end();) {
    const std::string cell = it->first;
    const EdgeChange& edge = it->second;
    ++it;
    if (!IsSettled(cell)) continue;
    const auto& tree = config_.tree();
    if (edge.state() == EdgeState::kLeaving &&
        std::any_of(tree.begin(), tree.end(),
                    [&](const v1::TreeEdge& t) { return t.to() == cell; })) {
      Drop(cell, out);
    } else if (edge.comes()) {
      Settle(cell, out);  // a scheduler before us had come so far
    }
  }
}

void StreamEdges::Drop(const std::string& cell, EdgeEvents& out) {
  Take(StepKind::kRemoveEdge, cell, out);
  edges_.erase(cell);
  out.events.push_back({.kind = EdgeEvent::Kind::kDropped, .cell = cell});
}

void StreamEdges::Settle(const std::string& cell, EdgeEvents& out) {
  for (const int32_t shard : edges_.at(cell).Settle()) {
    for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
      out.events.push_back({EdgeEvent::Kind::kReleased, cell, shard, layer});
    }
  }
}

void StreamEdges::OnLook(const std::string& cell, int32_t shard, const Look& look, int64_t newest,
                         EdgeEvents& out) {
  EdgeChange& edge = edges_.at(cell);
  if (!edge.OnLook(shard, look, newest)) return;
  const Layer layer = edge.stage(shard) == Stage::kTakenOver ? Layer::kPrimary : Layer::kCache;
  out.events.push_back({EdgeEvent::Kind::kReleased, cell, shard, layer});
  if (edge.state() == EdgeState::kMade) Take(StepKind::kWaitCaughtUp, cell, out);
}

EdgeChange* StreamEdges::Find(const std::string& cell) {
  const auto it = edges_.find(cell);
  return it == edges_.end() ? nullptr : &it->second;
}

const EdgeChange* StreamEdges::Find(const std::string& cell) const {
  const auto it = edges_.find(cell);
  return it == edges_.end() ? nullptr : &it->second;
}

bool StreamEdges::changing() const {
  return std::any_of(edges_.begin(), edges_.end(), [](const auto& e) { return e.second.comes(); });
}

stream::TreeVersion StreamEdges::TermVersion(const std::string& cell) const {
  const bool leaving = edges_.at(cell).state() == EdgeState::kLeaving;
  return leaving ? stream::TreeVersion{Raw(tree_version()) - 1} : tree_version();
}

}  // namespace tailcast::scheduler
