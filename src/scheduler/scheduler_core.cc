#include "tailcast/scheduler/scheduler_core.h"

#include <algorithm>

namespace tailcast::scheduler {

using stream::FileId;
using stream::Layer;
using stream::Operation;
using stream::OperationId;
using stream::OperationTarget;
using stream::ShardId;
using stream::Stem;
using stream::StreamId;

SchedulerCore::SchedulerCore(CoreOptions options, uint64_t seed)
    : options_(std::move(options)), rng_(seed) {}

SchedulerCore::StreamState* SchedulerCore::FindStream(const StreamId& id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : &it->second;
}

std::set<std::string> SchedulerCore::Targets() const {
  std::set<std::string> cells;
  for (const auto& [id, stream] : streams_) {
    for (const auto& [cell, edge] : stream.edges) cells.insert(cell);
  }
  return cells;
}

// --- streams ---

// The edges from this cell that the stream's record asks for.
std::map<std::string, SchedulerCore::Edge> SchedulerCore::EdgesOf(const StreamState& stream) const {
  const v1::StreamConfig& config = stream.config;
  std::map<std::string, Edge> edges;
  copytree::Tree base{config.source(), {}}, tree{config.source(), {}};
  for (const v1::TreeEdge& edge : config.tree()) {
    tree.edges.push_back({edge.from(), edge.to()});
    if (edge.from() == options_.cell) edges[edge.to()];
  }
  if (!config.has_change()) return edges;
  copytree::DiffOptions options;
  for (const v1::TreeEdge& edge : config.change().base()) {
    base.edges.push_back({edge.from(), edge.to()});
  }
  for (const v1::TreeEdge& edge : config.change().abandoned()) {
    options.abandoned.push_back({edge.from(), edge.to()});
  }
  const auto steps = copytree::Diff(base, tree, options);
  // A record that makes no sense: the tree alone counts.
  if (!steps.ok()) return edges;
  const bool settled =
      config.source() == options_.cell || config.settled_version() >= config.tree_version();
  for (const copytree::Step& step : *steps) {
    if (step.from != options_.cell) continue;
    if (step.kind == copytree::StepKind::kAddEdge) {
      edges[step.to] = {.joining = !stream.Settled(step.to),
                        .may_begin = settled || step.after.empty(),
                        .newcomer = step.rate_limited};
    } else if (step.kind == copytree::StepKind::kRemoveEdge) {
      if (!tree.Contains(step.to) || !stream.Settled(step.to)) edges[step.to] = {.leaving = true};
    }
  }
  return edges;
}

void SchedulerCore::Take(const StreamState& stream, copytree::StepKind kind,
                         const std::string& to) {
  taken_.push_back({{stream.config.name(), stream.config.incarnation()},
                    stream.config.tree_version(),
                    kind,
                    options_.cell,
                    to});
}

void SchedulerCore::OnStream(MonotonicTime now, const v1::StreamConfig& config, Effects& out) {
  const StreamId id{config.name(), config.incarnation()};
  const auto [it, is_new] = streams_.try_emplace(id);
  StreamState& stream = it->second;
  if (!is_new && config.tree_version() < stream.config.tree_version()) return;
  stream.config = config;
  const std::map<std::string, Edge> wanted = EdgesOf(stream);
  if (is_new) {
    for (int32_t s = 0; s < config.shards(); ++s) {
      shards_[{id, s}];
      out.list.insert({id, s});
    }
    // A scheduler before us may have got anywhere in the change: edges that leave go on.
    for (const auto& [cell, edge] : wanted) {
      stream.edges[cell] = edge;
      if (!edge.joining) continue;
      for (int32_t s = 0; s < config.shards(); ++s) Hold({id, s}, 1);
      if (edge.may_begin) Take(stream, copytree::StepKind::kAddEdge, cell);
    }
    return;
  }
  for (auto e = stream.edges.begin(); e != stream.edges.end();) {
    const std::string cell = (e++)->first;
    if (!wanted.contains(cell)) DropEdge(id, cell, stream, out);
  }
  for (const auto& [cell, edge] : wanted) {
    const auto have = stream.edges.find(cell);
    if (edge.leaving) {
      // One that is not there was broken before.
      if (have == stream.edges.end()) continue;
      if (have->second.joining) {
        for (int32_t s = 0; s < config.shards(); ++s) {
          const ShardId shard{id, s};
          if (shards_.at(shard).edges[cell].stage != Stage::kCaughtUp) Hold(shard, -1);
        }
      }
      have->second = edge;
      continue;
    }
    if (have != stream.edges.end() && !have->second.leaving) {
      if (have->second.joining && !have->second.may_begin && edge.may_begin) {
        Take(stream, copytree::StepKind::kAddEdge, cell);
      }
      have->second.may_begin = edge.may_begin;
      // The change is over: the target is settled, though we did not see it.
      if (have->second.joining && !config.has_change()) EndJoining(now, id, cell, stream);
      continue;
    }
    // An edge that was on its way out and is wanted again has to look anew at everything.
    if (have != stream.edges.end()) stream.edges.erase(have);
    stream.edges[cell] = edge;
    BeginEdge(now, id, cell, stream, out);
  }
  Refresh(now, id, stream, out);
}

void SchedulerCore::BeginEdge(MonotonicTime now, const StreamId& id, const std::string& cell,
                              StreamState& stream, Effects& out) {
  const Edge& edge = stream.edges.at(cell);
  if (edge.joining && edge.may_begin) Take(stream, copytree::StepKind::kAddEdge, cell);
  // What was given up for another edge's sake is ours again.
  for (auto it = ops_.begin(); it != ops_.end();) {
    const bool again = it->first.file.shard.stream == id && it->first.cell == cell &&
                       (it->second.phase == Phase::kGivenUp || it->second.phase == Phase::kDone);
    it = again ? ops_.erase(it) : std::next(it);
  }
  for (int32_t s = 0; s < stream.config.shards(); ++s) {
    const ShardId shard_id{id, s};
    Shard& shard = shards_[shard_id];
    // The newcomer may lack any of them.
    shard.done_below = 1;
    shard.done.clear();
    shard.edges.erase(cell);
    if (edge.joining) Hold(shard_id, 1);
    for (auto& [seq, file] : shard.files) {
      file.listed = true;
      EnsureOperations(now, shard_id, shard, file, out);
    }
    out.list.insert(shard_id);
  }
}

void SchedulerCore::DropEdge(const StreamId& id, const std::string& cell, StreamState& stream,
                             Effects& out) {
  const auto edge = stream.edges.find(cell);
  Take(stream, copytree::StepKind::kRemoveEdge, cell);
  DropOperations(id, &cell, out);
  for (int32_t s = 0; s < stream.config.shards(); ++s) {
    const ShardId shard_id{id, s};
    Shard& shard = shards_.at(shard_id);
    if (edge->second.joining && shard.edges[cell].stage != Stage::kCaughtUp) Hold(shard_id, -1);
    shard.edges.erase(cell);
  }
  stream.edges.erase(edge);
}

void SchedulerCore::OnSettled(MonotonicTime now, const StreamId& id, const std::string& cell,
                              uint64_t settled_version, Effects& out) {
  StreamState* stream = FindStream(id);
  if (stream == nullptr) return;
  uint64_t& settled = stream->settled[cell];
  if (settled >= settled_version) return;
  settled = settled_version;
  Refresh(now, id, *stream, out);
}

// What the neighbours' records make possible.
void SchedulerCore::Refresh(MonotonicTime now, const StreamId& id, StreamState& stream,
                            Effects& out) {
  for (auto e = stream.edges.begin(); e != stream.edges.end();) {
    const std::string cell = e->first;
    Edge& edge = e->second;
    ++e;
    if (!stream.Settled(cell)) continue;
    const auto& tree = stream.config.tree();
    if (edge.leaving && std::any_of(tree.begin(), tree.end(),
                                    [&](const v1::TreeEdge& t) { return t.to() == cell; })) {
      DropEdge(id, cell, stream, out);
    } else if (edge.joining) {
      EndJoining(now, id, cell, stream);  // a scheduler before us had come so far
    }
  }
}

void SchedulerCore::EndJoining(MonotonicTime now, const StreamId& id, const std::string& cell,
                               StreamState& stream) {
  stream.edges.at(cell).joining = false;
  for (int32_t s = 0; s < stream.config.shards(); ++s) {
    const ShardId shard_id{id, s};
    Shard& shard = shards_.at(shard_id);
    ShardEdge& shard_edge = shard.edges[cell];
    if (shard_edge.stage == Stage::kCaughtUp) continue;
    shard_edge.stage = Stage::kCaughtUp;
    Hold(shard_id, -1);
    Release(now, shard_id, shard, cell, Layer::kPrimary);
    Release(now, shard_id, shard, cell, Layer::kCache);
  }
}

// Operations of files that are not cold, which waited for the edge to get so far.
void SchedulerCore::Release(MonotonicTime now, const ShardId& id, Shard& shard,
                            const std::string& cell, Layer layer) {
  for (const auto& [seq, file] : shard.files) {
    if (file.listed && seq != shard.files.rbegin()->first) continue;
    const auto it = ops_.find({{id, file.stem}, layer, cell});
    if (it != ops_.end() && it->second.phase == Phase::kHeld) SetPhase(it, Phase::kWanted, now);
  }
}

// The old edge can't append to the newest file: our operation has it, or it is over.
bool SchedulerCore::OldEdgeIsFenced(const ShardId& id, const Shard& shard,
                                    const std::string& cell) const {
  if (shard.files.empty()) return true;
  const auto it = ops_.find({{id, shard.files.rbegin()->second.stem}, Layer::kPrimary, cell});
  if (it == ops_.end()) return true;
  const Op& op = it->second;
  return op.phase == Phase::kDone || op.phase == Phase::kGivenUp ||
         (op.phase == Phase::kRunning && op.opened);
}

// The wait-caught-up of one shard.
void SchedulerCore::Advance(MonotonicTime now, const ShardId& id, Shard& shard,
                            const std::string& cell, StreamState& stream, Look look) {
  Edge& edge = stream.edges.at(cell);
  ShardEdge& at = shard.edges[cell];
  std::erase_if(at.looks, [&](const Look& l) { return l.at < now - options_.caught_up_time; });
  const auto earlier = [&](auto holds) {
    return std::any_of(at.looks.begin(), at.looks.end(), holds);
  };
  if (at.stage == Stage::kBehind &&
      (look.source + options_.caught_up_bytes >= look.target ||
       earlier([&](const Look& l) { return look.source >= l.target; }))) {
    at.stage = Stage::kTakenOver;
    Release(now, id, shard, cell, Layer::kPrimary);
  } else if (at.stage == Stage::kTakenOver && at.asked_opened && !shard.files.empty() &&
             at.asked_newest != shard.files.rbegin()->first) {
    // Asked before the newest file was opened: look again.
  } else if (at.stage == Stage::kTakenOver && at.asked_opened && look.source >= look.target &&
             (!edge.newcomer || look.target + options_.caught_up_bytes >= look.source ||
              earlier([&](const Look& l) { return look.target >= l.source; }))) {
    at.stage = Stage::kCaughtUp;
    Hold(id, -1);
    Release(now, id, shard, cell, Layer::kCache);
    bool all = true;
    for (int32_t s = 0; s < stream.config.shards(); ++s) {
      all = all && shards_.at({id.stream, s}).edges[cell].stage == Stage::kCaughtUp;
    }
    if (all) {
      edge.joining = false;
      Take(stream, copytree::StepKind::kWaitCaughtUp, cell);
    }
  }
  at.looks.push_back(look);
}

void SchedulerCore::DropOperations(const StreamId& stream, const std::string* cell, Effects& out) {
  for (auto it = ops_.begin(); it != ops_.end();) {
    if (it->first.file.shard.stream != stream || (cell != nullptr && it->first.cell != *cell)) {
      ++it;
      continue;
    }
    if (it->second.phase == Phase::kStarting || it->second.phase == Phase::kRunning) {
      out.stop[it->second.reader].push_back(it->second.id);
    }
    SetPhase(it, Phase::kDone);
    it = ops_.erase(it);
  }
}

void SchedulerCore::OnStreamRemoved(const StreamId& id, Effects& out) {
  DropOperations(id, nullptr, out);
  streams_.erase(id);
  std::erase_if(held_, [&](const ShardId& shard) { return shard.stream == id; });
  std::erase_if(shards_, [&](const auto& entry) { return entry.first.stream == id; });
}

// --- files ---

bool SchedulerCore::OnNotice(MonotonicTime now, const FileId& file,
                             const std::optional<int64_t> (&seal)[stream::kParts], Effects& out) {
  const auto it = shards_.find(file.shard);
  if (it == shards_.end()) return false;
  Shard& shard = it->second;
  if (shard.Done(file.stem.seq)) return true;
  if (!shard.files.contains(file.stem.seq)) {
    // A notice that overtook or lost its predecessor: look.
    const int64_t last = shard.files.empty() ? shard.done_below - 1 : shard.files.rbegin()->first;
    if (file.stem.seq > last + 1) out.list.insert(file.shard);
    AddFile(now, shard, file.shard, file.stem, false, out);
  }
  const auto known = shard.files.find(file.stem.seq);
  if (seal[0] && known != shard.files.end() && known->second.stem == file.stem) {
    SetSeal(file.shard, known->second, *seal[0], *seal[1], out);
  }
  Compact(file.shard);
  return true;
}

void SchedulerCore::OnListing(MonotonicTime now, const ShardId& id, int64_t floor,
                              const std::vector<Stem>& stems, Effects& out) {
  const auto it = shards_.find(id);
  if (it == shards_.end()) return;
  it->second.listed = true;
  it->second.done_below = std::max(it->second.done_below, floor);
  // The newest first: then the others are known to be closed, and cold.
  for (auto stem = stems.rbegin(); stem != stems.rend(); ++stem) {
    if (it->second.Done(stem->seq) || it->second.files.contains(stem->seq)) continue;
    AddFile(now, it->second, id, *stem, true, out);
  }
  Compact(id);
}

void SchedulerCore::AddFile(MonotonicTime now, Shard& shard, const ShardId& id, const Stem& stem,
                            bool listed, Effects& out) {
  if (static_cast<int64_t>(shard.files.size()) >= options_.files_per_shard_max) return;
  const auto it = shard.files.emplace(stem.seq, File{stem, {}, listed}).first;
  EnsureOperations(now, id, shard, it->second, out);
  // Each stem closes the file before it.
  const auto seal = [&](File& file, const Stem& next) {
    if (next.seq == file.stem.seq + 1 && next.start_byte >= file.stem.start_byte &&
        next.start_number >= file.stem.start_number) {
      SetSeal(id, file, next.start_byte - file.stem.start_byte,
              (next.start_number - file.stem.start_number) * 32, out);
    }
  };
  if (it != shard.files.begin()) seal(std::prev(it)->second, stem);
  if (const auto next = std::next(it); next != shard.files.end())
    seal(it->second, next->second.stem);
}

void SchedulerCore::EnsureOperations(MonotonicTime now, const ShardId& id, Shard& shard,
                                     const File& file, Effects& out) {
  const StreamState* stream = FindStream(id.stream);
  if (stream == nullptr) return;
  const bool newest = file.stem.seq == shard.files.rbegin()->first;
  for (const auto& [cell, edge] : stream->edges) {
    const ShardEdge& at = shard.edges[cell];
    for (Layer layer : {Layer::kPrimary, Layer::kCache}) {
      if (at.retired[static_cast<int>(layer)]) continue;
      const bool cold = file.listed && !newest;
      if (cold && layer == Layer::kCache) continue;
      const auto [it, is_new] = ops_.try_emplace({{id, file.stem}, layer, cell});
      if (!is_new) continue;
      ++unfinished_;
      it->second.fresh = !file.listed && !edge.leaving && !edge.joining;
      const Stage needed = layer == Layer::kPrimary ? Stage::kTakenOver : Stage::kCaughtUp;
      const bool hold = cold || (edge.joining && at.stage < needed);
      it->second.phase = Phase::kHeld;
      Hold(id, 1);
      if (!hold) {
        SetPhase(it, Phase::kWanted, now);
      } else if (MustAsk(id, shard, cell, edge)) {
        Ask(now, id, cell, out);
      }
    }
  }
}

void SchedulerCore::SetSeal(const ShardId& id, File& file, int64_t data, int64_t index,
                            Effects& out) {
  if (file.seal[0]) return;
  file.seal[0] = data;
  file.seal[1] = index;
  for (auto it = ops_.lower_bound({{id, file.stem}, Layer::kPrimary, ""});
       it != ops_.end() && it->first.file == FileId{id, file.stem}; ++it) {
    if (it->second.phase == Phase::kStarting || it->second.phase == Phase::kRunning) {
      out.start[it->second.reader].push_back(Describe(it->first, it->second));
    }
  }
}

void SchedulerCore::Ask(MonotonicTime now, const ShardId& id, const std::string& cell,
                        Effects& out) {
  Shard& shard = shards_.at(id);
  ShardEdge& edge = shard.edges[cell];
  if (edge.asking || now < edge.ask_at) return;
  edge.asking = true;
  edge.asked_newest = shard.files.empty() ? 0 : shard.files.rbegin()->first;
  edge.asked_opened = OldEdgeIsFenced(id, shard, cell);
  out.progress.insert({id, cell});
}

bool SchedulerCore::MustAsk(const ShardId& id, const Shard& shard, const std::string& cell,
                            const Edge& edge) const {
  if (edge.joining) {
    const auto at = shard.edges.find(cell);
    const Stage stage = at == shard.edges.end() ? Stage::kBehind : at->second.stage;
    if (!edge.may_begin || !shard.listed) return false;
    if (stage != Stage::kCaughtUp) return true;
  }
  return LowestHeld(id, cell) > 0;
}

void SchedulerCore::OnProgressFailed(MonotonicTime now, const ShardId& id,
                                     const std::string& cell) {
  const auto it = shards_.find(id);
  if (it == shards_.end()) return;
  ShardEdge& edge = it->second.edges[cell];
  edge.asking = false;
  edge.ask_at = now + options_.progress_interval;
}

void SchedulerCore::OnProgress(MonotonicTime now, const ShardId& id, const std::string& cell,
                               int64_t floor, const std::vector<PairLengths>& there,
                               const std::vector<PairLengths>& here, int64_t covered_to) {
  const auto shard_it = shards_.find(id);
  if (shard_it == shards_.end()) return;
  Shard& shard = shard_it->second;
  ShardEdge& edge = shard.edges[cell];
  edge.asking = false;
  edge.ask_at = now + options_.progress_interval;
  const auto find = [](const std::vector<PairLengths>& pairs, int64_t seq) -> const PairLengths* {
    for (const PairLengths& p : pairs) {
      if (p.stem.seq == seq) return &p;
    }
    return nullptr;
  };
  StreamState* stream = FindStream(id.stream);
  const auto at =
      stream == nullptr ? std::map<std::string, Edge>::iterator() : stream->edges.find(cell);
  if (stream == nullptr || at == stream->edges.end()) return;
  const bool joining = at->second.joining;
  if (joining && !at->second.may_begin) return;
  for (auto& [seq, file] : shard.files) {
    if (seq > covered_to) break;
    for (Layer layer : {Layer::kPrimary, Layer::kCache}) {
      const auto it = ops_.find({{id, file.stem}, layer, cell});
      if (it == ops_.end() || it->second.phase != Phase::kHeld) continue;
      if (seq < floor) {
        SetPhase(it, Phase::kDone);
        continue;
      }
      const PairLengths* target = find(there, seq);
      if (target != nullptr && target->stem != file.stem) {
        ++counters_.data_loss;
        it->second.message =
            "cell " + cell + " has another file under this number: " + target->stem.ToString();
        SetPhase(it, Phase::kGivenUp);
        continue;
      }
      if (target != nullptr && file.seal[0] && target->length[0] >= *file.seal[0] &&
          target->length[1] >= *file.seal[1]) {
        SetPhase(it, Phase::kDone);
        continue;
      }
      if (joining) {
        // The newest one, and those that were opened since we look: as the shard gets on.
        if (!file.listed || seq == shard.files.rbegin()->first || layer == Layer::kCache) continue;
        const PairLengths* source = find(here, seq);
        const int64_t behind =
            target == nullptr ? 0 : target->length[0] - (source == nullptr ? 0 : source->length[0]);
        if (behind > options_.caught_up_bytes) continue;  // still held
      }
      SetPhase(it, Phase::kWanted, now);
    }
  }
  if (joining && covered_to == INT64_MAX && shard.listed) {
    const auto bytes = [](const std::vector<PairLengths>& pairs) {
      int64_t end = 0;
      for (const PairLengths& p : pairs) end = std::max(end, p.stem.start_byte + p.length[0]);
      return end;
    };
    Advance(now, id, shard, cell, *stream, {now, bytes(here), bytes(there)});
  }
  Compact(id);
}

int64_t SchedulerCore::AskFrom(const ShardId& id, const std::string& cell) const {
  const int64_t held = LowestHeld(id, cell);
  if (held > 0) return held;
  const auto shard = shards_.find(id);
  return shard == shards_.end() || shard->second.files.empty()
             ? 1
             : shard->second.files.rbegin()->first;
}

int64_t SchedulerCore::LowestHeld(const ShardId& id, const std::string& cell) const {
  const auto shard = shards_.find(id);
  if (shard == shards_.end()) return 0;
  for (const auto& [seq, file] : shard->second.files) {
    for (Layer layer : {Layer::kPrimary, Layer::kCache}) {
      const auto it = ops_.find({{id, file.stem}, layer, cell});
      if (it != ops_.end() && it->second.phase == Phase::kHeld) return seq;
    }
  }
  return 0;
}

// Forgets files that are copied everywhere; never the newest, by which the next one is known.
void SchedulerCore::Compact(const ShardId& id) {
  const auto shard_it = shards_.find(id);
  if (shard_it == shards_.end()) return;
  Shard& shard = shard_it->second;
  for (auto it = shard.files.begin();
       it != shard.files.end() && std::next(it) != shard.files.end();) {
    const FileId file{id, it->second.stem};
    const auto begin = ops_.lower_bound({file, Layer::kPrimary, ""});
    auto end = begin;
    bool over = it->second.seal[0].has_value();
    for (; end != ops_.end() && end->first.file == file; ++end) {
      over = over && (end->second.phase == Phase::kDone || end->second.phase == Phase::kGivenUp);
    }
    if (!over) {
      ++it;
      continue;
    }
    ops_.erase(begin, end);
    shard.done.insert(it->first);
    it = shard.files.erase(it);
  }
  while (shard.done.contains(shard.done_below)) shard.done.erase(shard.done_below++);
  shard.done.erase(shard.done.begin(), shard.done.lower_bound(shard.done_below));
}

// --- operations ---

void SchedulerCore::Hold(const ShardId& id, int change) {
  Shard& shard = shards_.at(id);
  shard.held += change;
  if (shard.held > 0) {
    held_.insert(id);
  } else {
    held_.erase(id);
  }
}

void SchedulerCore::SetPhase(Ops::iterator it, Phase phase, MonotonicTime not_before) {
  Op& op = it->second;
  const auto over = [](Phase p) { return p == Phase::kDone || p == Phase::kGivenUp; };
  if (op.phase == Phase::kWanted) wanted_.erase({op.not_before, it->first});
  if (op.phase == Phase::kStarting) --starting_;
  if (op.phase == Phase::kHeld) Hold(it->first.file.shard, -1);
  if (phase != Phase::kStarting && phase != Phase::kRunning) Unassign(it);
  if (over(op.phase) != over(phase)) unfinished_ += over(phase) ? -1 : 1;
  op.phase = phase;
  if (phase == Phase::kHeld) Hold(it->first.file.shard, 1);
  if (phase == Phase::kStarting) ++starting_;
  if (phase == Phase::kWanted) {
    op.not_before = not_before;
    wanted_.insert({op.not_before, it->first});
  }
}

void SchedulerCore::Unassign(Ops::iterator it) {
  Op& op = it->second;
  if (op.reader.empty()) return;
  if (const auto r = readers_.find(op.reader); r != readers_.end()) --r->second.load;
  if (const auto t = targets_.find(it->first.cell); t != targets_.end()) {
    if (const auto w = t->second.writers.find(op.writer); w != t->second.writers.end()) {
      --w->second.load;
    }
  }
  op.reader.clear();
  op.writer.clear();
}

void SchedulerCore::Retry(MonotonicTime now, Ops::iterator it, Duration at_least) {
  Op& op = it->second;
  ++op.failures;
  ++counters_.restarted;
  op.fresh = false;
  Duration delay = at_least;
  if (op.failures > 1) {  // the first one at once
    const Duration backoff = std::min(options_.retry_delay * (1 << std::min(op.failures - 2, 10)),
                                      options_.retry_delay_max);
    delay = std::max(delay, backoff);
  }
  SetPhase(it, Phase::kWanted, now + delay);
}

Operation SchedulerCore::Describe(const OperationTarget& target, const Op& op) {
  const StreamState& stream = streams_.at(target.file.shard.stream);
  Operation operation;
  operation.target = target;
  operation.id = op.id;
  operation.source_cell = options_.cell;
  operation.chunk_size = stream.config.chunk_size();
  operation.writer_name = op.writer;
  operation.writer_address = op.writer_address;
  operation.writer_via = op.writer_via;
  operation.fresh = op.fresh;
  const Shard& shard = shards_.at(target.file.shard);
  if (const auto file = shard.files.find(target.file.stem.seq); file != shard.files.end()) {
    operation.seal[0] = file->second.seal[0];
    operation.seal[1] = file->second.seal[1];
  }
  return operation;
}

SchedulerCore::Worker* SchedulerCore::Pick(MonotonicTime now,
                                           std::map<std::string, Worker>& workers,
                                           const std::string& preferred) {
  Worker* best = nullptr;
  // Those that failed lately only if there is nobody else.
  const auto better = [&](const Worker& a, const Worker& b) {
    const bool a_avoid = a.avoid_until > now;
    const bool b_avoid = b.avoid_until > now;
    if (a_avoid != b_avoid) return b_avoid;
    if (a_avoid && a.avoid_until != b.avoid_until) return a.avoid_until < b.avoid_until;
    return a.load < b.load;
  };
  for (auto& [name, worker] : workers) {
    if (!worker.present || worker.lost) continue;
    if (best == nullptr || better(worker, *best)) best = &worker;
  }
  if (best == nullptr) return nullptr;
  // The file's predecessor was copied by this one: it knows the shard.
  const auto it = workers.find(preferred);
  if (it != workers.end() && it->second.present && !it->second.lost &&
      it->second.avoid_until <= now && it->second.load <= best->load + options_.affinity_slack) {
    return &it->second;
  }
  return best;
}

void SchedulerCore::Decide(MonotonicTime now, Effects& out) {
  while (!wanted_.empty() && wanted_.begin()->first <= now) {
    if (starting_ >= options_.starting_max) {
      ++counters_.throttled;
      break;
    }
    const auto it = ops_.find(wanted_.begin()->second);
    Op& op = it->second;
    const OperationTarget& target = it->first;
    ShardEdge& edge = shards_.at(target.file.shard).edges[target.cell];
    const auto cell = targets_.find(target.cell);
    const int layer = static_cast<int>(target.layer);
    Worker* reader = Pick(now, readers_, edge.reader[layer]);
    Worker* writer =
        cell == targets_.end() ? nullptr : Pick(now, cell->second.writers, edge.writer[layer]);
    if (reader == nullptr || writer == nullptr) {
      ++counters_.no_worker;
      SetPhase(it, Phase::kWanted, now + options_.no_worker_delay);
      continue;
    }
    if (op.attempt >= stream::kAttemptMax) {
      op.message = "tried too often";
      ++counters_.given_up;
      SetPhase(it, Phase::kGivenUp);
      continue;
    }
    ++op.attempt;
    const StreamState& stream = streams_.at(target.file.shard.stream);
    // An edge that leaves must lose against the one that joins.
    const auto tree_version = static_cast<uint32_t>(stream.config.tree_version() -
                                                    (stream.edges.at(target.cell).leaving ? 1 : 0));
    op.id.term = stream::Term{tree_version, options_.incarnation, op.attempt}.Pack();
    op.id.nonce = static_cast<uint32_t>(rng_.Next());
    op.opened = false;
    SetPhase(it, Phase::kStarting);
    op.reader = reader->info.name;
    op.writer = writer->info.name;
    op.writer_address = writer->info.address;
    op.writer_via = cell->second.via;
    ++reader->load;
    ++writer->load;
    edge.reader[layer] = op.reader;
    edge.writer[layer] = op.writer;
    ++counters_.started;
    out.start[op.reader].push_back(Describe(target, op));
  }
  for (const ShardId& id : held_) {
    const StreamState* stream = FindStream(id.stream);
    if (stream == nullptr) continue;
    for (const auto& [cell, edge] : stream->edges) {
      if (MustAsk(id, shards_.at(id), cell, edge)) Ask(now, id, cell, out);
    }
  }
  out.steps.insert(out.steps.end(), taken_.begin(), taken_.end());
  taken_.clear();
}

MonotonicTime SchedulerCore::NextDecision() const {
  MonotonicTime next = MonotonicTime::Max();
  if (!wanted_.empty() && starting_ < options_.starting_max) next = wanted_.begin()->first;
  for (const ShardId& id : held_) {
    const StreamState& stream = streams_.at(id.stream);
    const Shard& shard = shards_.at(id);
    for (const auto& [cell, edge] : stream.edges) {
      if (!MustAsk(id, shard, cell, edge)) continue;
      const auto at = shard.edges.find(cell);
      if (at == shard.edges.end()) {
        next = MonotonicTime();
      } else if (!at->second.asking) {
        next = std::min(next, at->second.ask_at);
      }
    }
  }
  return next;
}

// --- workers ---

void SchedulerCore::OnReaders(MonotonicTime now, const std::vector<WorkerInfo>& infos, Effects&) {
  std::set<std::string> names;
  for (const WorkerInfo& info : infos) {
    names.insert(info.name);
    Worker& reader = readers_[info.name];
    const bool replaced = reader.present && reader.info.incarnation != info.incarnation;
    reader.info = info;
    if (replaced) OnReaderLost(now, info.name);
    if (!reader.present || replaced) reader.lost = false;
    reader.present = true;
  }
  for (auto& [name, reader] : readers_) {
    if (!reader.present || names.contains(name)) continue;
    OnReaderLost(now, name);
    reader.present = false;
  }
}

void SchedulerCore::OnReaderLost(MonotonicTime now, const std::string& name) {
  const auto reader = readers_.find(name);
  if (reader == readers_.end()) return;
  if (!reader->second.lost) ++counters_.readers_lost;
  reader->second.lost = true;
  reader->second.avoid_until = now + options_.avoid_worker;
  for (auto it = ops_.begin(); it != ops_.end(); ++it) {
    if (it->second.reader != name) continue;
    Retry(now, it, Duration());
  }
}

void SchedulerCore::OnReaderFound(const std::string& name) {
  if (const auto it = readers_.find(name); it != readers_.end()) it->second.lost = false;
}

void SchedulerCore::OnWriters(MonotonicTime now, const std::string& cell, const std::string& via,
                              const std::vector<WorkerInfo>& infos, Effects&) {
  Target& target = targets_[cell];
  target.via = via;
  std::set<std::string> names;
  for (const WorkerInfo& info : infos) {
    names.insert(info.name);
    Worker& writer = target.writers[info.name];
    // A new process of the name: what its predecessor did wrong is forgotten.
    if (writer.info.incarnation != info.incarnation) writer.avoid_until = now;
    writer.info = info;
    writer.present = true;
  }
  // A writer that is gone breaks its streams; readers report that.
  for (auto& [name, writer] : target.writers) writer.present = names.contains(name);
}

// --- reports ---

void SchedulerCore::OnStarted(const std::string& reader, const std::vector<OperationId>& ids) {
  const std::set<OperationId> set(ids.begin(), ids.end());
  for (auto it = ops_.begin(); it != ops_.end(); ++it) {
    if (it->second.phase == Phase::kStarting && it->second.reader == reader &&
        set.contains(it->second.id)) {
      SetPhase(it, Phase::kRunning);
    }
  }
}

void SchedulerCore::OnReport(MonotonicTime now, const std::string& reader,
                             const v1::OperationReport& report, Effects& out) {
  const auto operation = stream::FromProto(report.operation());
  if (!operation.ok()) {
    ++counters_.stale_reports;
    return;
  }
  const OperationTarget& target = operation->target;
  const bool running = report.state() == v1::OPERATION_RUNNING;
  auto it = ops_.find(target);
  if (it == ops_.end()) {
    if (!running) return;
    StreamState* stream = FindStream(target.file.shard.stream);
    const auto shard = shards_.find(target.file.shard);
    if (stream == nullptr || shard == shards_.end() || !stream->edges.contains(target.cell) ||
        shard->second.Done(target.file.stem.seq) ||
        shard->second.edges[target.cell].retired[static_cast<int>(target.layer)]) {
      ++counters_.foreign_operations;
      out.stop[reader].push_back(operation->id);
      return;
    }
    if (!shard->second.files.contains(target.file.stem.seq)) {
      AddFile(now, shard->second, target.file.shard, target.file.stem, true, out);
    }
    it = ops_.find(target);
    if (it == ops_.end()) {  // a cold file's cache operation: let it run
      it = ops_.try_emplace(target).first;
      it->second.phase = Phase::kHeld;
      Hold(target.file.shard, 1);
      ++unfinished_;
    }
  }
  Op& op = it->second;
  if (op.id != operation->id) {
    if (!running) {
      ++counters_.stale_reports;
      return;
    }
    if (op.phase == Phase::kStarting || op.phase == Phase::kRunning || op.phase == Phase::kDone) {
      if (operation->id < op.id || op.phase == Phase::kDone) {
        out.stop[reader].push_back(operation->id);
        return;
      }
    }
    // An orphan of the scheduler before us: it goes on.
    ++counters_.adopted;
    SetPhase(it, Phase::kRunning);
    Unassign(it);
    op.id = operation->id;
    op.reader = reader;
    op.writer = operation->writer_name;
    op.writer_address = operation->writer_address;
    op.writer_via = operation->writer_via;
    if (const auto r = readers_.find(reader); r != readers_.end()) ++r->second.load;
    if (const auto t = targets_.find(target.cell); t != targets_.end()) {
      if (const auto w = t->second.writers.find(op.writer); w != t->second.writers.end()) {
        ++w->second.load;
      }
    }
  }
  op.opened = report.opened();
  op.source[0] = report.source_data_length();
  op.source[1] = report.source_index_length();
  if (report.data_length() > op.written[0] || report.index_length() > op.written[1]) {
    op.failures = 0;  // it gets on
  }
  op.written[0] = report.data_length();
  op.written[1] = report.index_length();
  if (running) {
    if (op.phase == Phase::kStarting) SetPhase(it, Phase::kRunning);
    return;
  }
  OnEnded(now, it, report);
}

void SchedulerCore::OnEnded(MonotonicTime now, Ops::iterator it,
                            const v1::OperationReport& report) {
  Op& op = it->second;
  if (op.phase != Phase::kStarting && op.phase != Phase::kRunning) return;
  op.message = report.message();
  const OperationTarget target = it->first;
  if (report.state() == v1::OPERATION_DONE) {
    ++counters_.done;
    // The seal, if nobody told us: what both ends agreed on.
    Shard& shard = shards_.at(target.file.shard);
    if (const auto file = shard.files.find(target.file.stem.seq);
        file != shard.files.end() && !file->second.seal[0]) {
      file->second.seal[0] = report.source_data_length();
      file->second.seal[1] = report.source_index_length();
    }
    SetPhase(it, Phase::kDone);
    Compact(target.file.shard);
    return;
  }
  const std::string writer = op.writer;
  const auto avoid_writer = [&] {
    const auto t = targets_.find(target.cell);
    if (t == targets_.end()) return;
    const auto w = t->second.writers.find(writer);
    if (w != t->second.writers.end()) w->second.avoid_until = now + options_.avoid_worker;
  };
  switch (report.cause()) {
    case v1::CAUSE_SUPERSEDED: {
      ++counters_.superseded;
      const StreamState& stream = streams_.at(target.file.shard.stream);
      const bool leaving = stream.edges.at(target.cell).leaving;
      const uint32_t by = stream::Term::Unpack(report.superseding_term()).tree_version;
      if (leaving && by >= stream.config.tree_version()) {
        // The new edge has taken this layer of the shard over: this one is done with it.
        Shard& shard = shards_.at(target.file.shard);
        shard.edges[target.cell].retired[static_cast<int>(target.layer)] = true;
        for (auto other = ops_.begin(); other != ops_.end(); ++other) {
          if (other->first.file.shard == target.file.shard && other->first.cell == target.cell &&
              other->first.layer == target.layer &&
              (other->first == target || other->second.phase == Phase::kWanted ||
               other->second.phase == Phase::kHeld)) {
            SetPhase(other, Phase::kGivenUp);
          }
        }
        Compact(target.file.shard);
        return;
      }
      if (report.superseding_term() > op.id.term) {
        // By whom we do not know of: another scheduler, which fences us soon if it is the newer
        // one.
        Retry(now, it, options_.avoid_worker);
      } else {
        Retry(now, it, options_.retry_delay * 2);
      }
      return;
    }
    case v1::CAUSE_DATA_LOSS:
      ++counters_.data_loss;
      Retry(now, it, options_.retry_delay_max);
      return;
    case v1::CAUSE_REFUSED:
      ++counters_.refused;
      avoid_writer();
      Retry(now, it, options_.avoid_worker / 2);
      return;
    case v1::CAUSE_SOURCE:
      if (const auto r = readers_.find(op.reader); r != readers_.end()) {
        r->second.avoid_until = now + options_.avoid_worker;
      }
      Retry(now, it, options_.retry_delay);
      return;
    case v1::CAUSE_STOPPED:
      Retry(now, it, options_.retry_delay);
      return;
    default:
      avoid_writer();
      Retry(now, it, Duration());
      return;
  }
}

void SchedulerCore::OnReportsComplete(MonotonicTime now, const std::string& reader,
                                      const std::set<OperationId>& known) {
  for (auto it = ops_.begin(); it != ops_.end(); ++it) {
    if (it->second.phase == Phase::kRunning && it->second.reader == reader &&
        !known.contains(it->second.id)) {
      Retry(now, it, Duration());
    }
  }
}

void SchedulerCore::Shed(MonotonicTime now) {
  Worker* most = nullptr;
  Worker* least = nullptr;
  for (auto& [name, reader] : readers_) {
    if (!reader.present || reader.lost) continue;
    if (most == nullptr || reader.load > most->load) most = &reader;
    if (least == nullptr || reader.load < least->load) least = &reader;
  }
  if (most == nullptr || most->load - least->load < options_.shed_difference) return;
  for (auto it = ops_.begin(); it != ops_.end(); ++it) {
    if (it->second.phase != Phase::kRunning || it->second.reader != most->info.name) continue;
    // The old one runs on until the new one takes its file over.
    shards_.at(it->first.file.shard)
        .edges[it->first.cell]
        .reader[static_cast<int>(it->first.layer)] = least->info.name;
    ++counters_.shed;
    it->second.fresh = false;
    SetPhase(it, Phase::kWanted, now);
    return;
  }
}

std::vector<SchedulerCore::OperationView> SchedulerCore::Operations() const {
  std::vector<OperationView> out;
  for (const auto& [target, op] : ops_) {
    OperationView view{&target, op.phase, op.reader, op.writer, {}, {}, op.failures, op.message};
    for (int p = 0; p < stream::kParts; ++p) {
      view.written[p] = op.written[p];
      view.source[p] = op.source[p];
    }
    out.push_back(std::move(view));
  }
  return out;
}

bool SchedulerCore::Retired(const ShardId& id, const std::string& cell, Layer layer) const {
  const auto shard = shards_.find(id);
  if (shard == shards_.end()) return false;
  const auto edge = shard->second.edges.find(cell);
  return edge != shard->second.edges.end() && edge->second.retired[static_cast<int>(layer)];
}

bool SchedulerCore::Feeds(const StreamId& id, const std::string& cell) const {
  const auto stream = streams_.find(id);
  return stream != streams_.end() && stream->second.edges.contains(cell);
}

bool SchedulerCore::Made(const StreamId& id, const std::string& cell) const {
  const auto stream = streams_.find(id);
  if (stream == streams_.end()) return false;
  const auto edge = stream->second.edges.find(cell);
  return edge != stream->second.edges.end() && !edge->second.joining && !edge->second.leaving;
}

}  // namespace tailcast::scheduler
