#include "tailcast/scheduler/worker_speed.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::scheduler {
namespace {

FAULT_POINT(kSlowStay, "scheduler.slow_stay", "a worker that is slow is never avoided");

// The lower one of two in the middle. Not of nothing.
Duration MedianOf(std::vector<Duration>& times) {
  const auto middle = times.begin() + static_cast<ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

std::string_view SpeedStateName(SpeedState state) {
  switch (state) {
    case SpeedState::kHealthy:
      return "healthy";
    case SpeedState::kRelieved:
      return "relieved";
    case SpeedState::kAvoided:
      return "avoided";
    case SpeedState::kOnTrial:
      return "on trial";
  }
  return "?";
}

double WorkerSpeed::Verdict::share() const {
  double most = 0;
  for (int layer = 0; layer < stream::kLayers; ++layer) {
    if (counted[layer] > 0) most = std::max(most, 1.0 * slow[layer] / counted[layer]);
  }
  return most;
}

// --- times

void WorkerSpeed::OnTimes(MonotonicTime now, const Lane& lane, const std::string& reader,
                          const std::string& writer, Duration read, Duration write) {
  const auto [it, is_new] = lanes_.try_emplace(lane);
  LaneState& state = it->second;
  if (is_new || state.worker[kReader] != reader || state.worker[kWriter] != writer) {
    state.worker[kReader] = reader;
    state.worker[kWriter] = writer;
    state.since = now;
    for (auto& took : state.took) took.reset();
  }
  if (read == Duration() && write == Duration()) return;
  state.timed = now;
  pending_ = true;
  if (now - state.since < options_->settles) return;
  const auto note = [](std::optional<Duration>& least, Duration took) {
    least = least ? std::min(*least, took) : took;
  };
  note(state.took[kReader], read + write);
  if (write > Duration()) note(state.took[kWriter], write);
}

void WorkerSpeed::OnMoved(const Lane& lane) {
  const auto slow = slow_lanes_.find(lane);
  if (!step_ || slow == slow_lanes_.end()) return;
  // Of two files that grow, one after the other, the first was it.
  for (const Step::Moved& moved : step_->moved) {
    if (moved.lane == lane) return;
  }
  const Side other = step_->worker.is_reader() ? kWriter : kReader;
  step_->moved.push_back({lane, lanes_.at(lane).worker[other], slow->second});
}

void WorkerSpeed::Forget(const WorkerId& id) {
  workers_.erase(id);
  if (step_ && step_->worker == id) step_.reset();
  for (auto& [group, medians] : medians_) {
    if (IdOf(group, id.name) == id) medians.erase(id.name);
  }
}

// --- a round

std::optional<WorkerSpeed::Relief> WorkerSpeed::OnRound(MonotonicTime now, const There& there) {
  TakeMedians(now);
  const Verdicts verdicts = Compare(now, there);
  NoteRound(now, verdicts);
  auto relief = step_ ? GoOn(now, verdicts, there) : Accuse(now, verdicts, there);
  ForgetOld(now);
  pending_ = step_.has_value();
  return relief;
}

void WorkerSpeed::TakeMedians(MonotonicTime now) {
  std::map<Group, std::map<std::string, std::vector<Duration>>> times;
  for (const auto& [lane, state] : lanes_) {
    for (const Side side : {kReader, kWriter}) {
      if (!state.took[side] || now < state.hold[side].until) continue;
      times[{side, lane.cell, lane.layer}][state.worker[side]].push_back(*state.took[side]);
    }
  }
  for (auto& [group, workers] : times) {
    for (auto& [name, took] : workers) medians_[group][name] = {MedianOf(took), now};
  }
}

WorkerSpeed::Verdicts WorkerSpeed::Compare(MonotonicTime now, const There& there) {
  Verdicts verdicts;
  middle_.clear();
  for (auto& [id, worker] : workers_) worker.limits.clear();
  for (const auto& [group, medians] : medians_) {
    Times healthy;
    for (const auto& [name, median] : medians) {
      const WorkerId id = IdOf(group, name);
      if (there.contains(id) && IsHealthy(id)) healthy.emplace_back(median.took, name);
    }
    std::sort(healthy.begin(), healthy.end());
    for (const auto& [name, median] : medians) {
      const WorkerId id = IdOf(group, name);
      if (median.at != now || !there.contains(id)) continue;
      const bool among = IsHealthy(id);
      const size_t others = healthy.size() - (among ? 1 : 0);
      if (others == 0) continue;
      size_t middle = (others - 1) / 2;
      if (among && std::pair(median.took, name) <= healthy[middle]) ++middle;
      const Duration peers = healthy[middle].first;
      // Who was shown to be slow has to be clearly faster to be so no more.
      const bool shown = step_ && step_->helped && step_->worker == id;
      const Duration limit = (peers * 2 + options_->slow_after) / (shown ? 2 : 1);
      workers_[id].limits[group] = limit;
      Verdict& verdict = verdicts[id];
      if (median.took - limit <= verdict.beyond) continue;
      verdict.beyond = median.took - limit;
      verdict.took = median.took;
      verdict.peers = peers;
      verdict.where = group;
    }
    if (!healthy.empty()) middle_[group] = healthy[(healthy.size() - 1) / 2].first;
  }
  for (const auto& [lane, state] : lanes_) {
    for (const Side side : {kReader, kWriter}) {
      if (!state.took[side] || now < state.hold[side].until) continue;
      const Group group{side, lane.cell, lane.layer};
      const auto worker = workers_.find(IdOf(group, state.worker[side]));
      if (worker == workers_.end()) continue;
      const auto limit = worker->second.limits.find(group);
      if (limit == worker->second.limits.end()) continue;
      Verdict& verdict = verdicts.at(worker->first);
      const int layer = static_cast<int>(lane.layer);
      ++verdict.counted[layer];
      if (*state.took[side] > limit->second) ++verdict.slow[layer];
    }
  }
  return verdicts;
}

void WorkerSpeed::NoteRound(MonotonicTime now, const Verdicts& verdicts) {
  for (auto& [id, worker] : workers_) {
    const auto verdict = verdicts.find(id);
    worker.timed = verdict != verdicts.end() && verdict->second.timed();
    if (worker.timed) {
      const bool slow = verdict->second.is_slow();
      worker.slow_rounds = slow ? worker.slow_rounds + 1 : 0;
      worker.fine_rounds = slow ? 0 : worker.fine_rounds + 1;
    }
    if (worker.state == State::kOnTrial && worker.fine_rounds >= kFineRounds)
      worker.state = State::kHealthy;
    if (worker.state != State::kAvoided) continue;
    const auto peers = middle_.find(worker.where);
    const bool crowded =
        peers != middle_.end() && peers->second > worker.peers * 2 + options_->slow_after;
    worker.crowded_rounds = crowded ? worker.crowded_rounds + 1 : 0;
    if (now >= worker.pause.until || worker.crowded_rounds >= kSlowRounds) {
      worker.pause.until = std::min(worker.pause.until, now);
      worker.state = State::kOnTrial;
      worker.slow_rounds = worker.fine_rounds = 0;
      worker.timed = false;
    }
  }
}

bool WorkerSpeed::CanDoWithout(const WorkerId& id, const There& there) const {
  size_t all = 0, healthy = 0;
  for (auto it = there.lower_bound({id.cell, ""}); it != there.end() && it->first.cell == id.cell;
       ++it) {
    ++all;
    if (it->first != id && IsHealthy(it->first)) ++healthy;
  }
  return healthy > 0 && healthy * 2 >= all;
}

std::optional<WorkerSpeed::Relief> WorkerSpeed::Accuse(MonotonicTime now, const Verdicts& verdicts,
                                                       const There& there) {
  const Verdict* worst = nullptr;
  WorkerId who;
  for (const auto& [id, verdict] : verdicts) {
    const Worker& worker = workers_.at(id);
    if (!verdict.timed() || worker.slow_rounds < kSlowRounds || kSlowStay.planted()) continue;
    if (worker.state == State::kHealthy && now < worker.pause.until) continue;
    if (!CanDoWithout(id, there)) continue;
    // Of a reader and a writer whose lanes are the same ones, the writer: it does more.
    const auto rank = [](const WorkerId& w, const Verdict& v) {
      return std::tuple(v.share(), !w.is_reader(), v.beyond);
    };
    if (worst != nullptr && rank(id, verdict) <= rank(who, *worst)) continue;
    worst = &verdict;
    who = id;
  }
  if (worst == nullptr) return std::nullopt;
  Worker& worker = workers_.at(who);
  worker.was_on_trial = worker.state == State::kOnTrial;
  worker.state = State::kRelieved;
  worker.took = worst->took;
  worker.peers = worst->peers;
  worker.where = worst->where;
  step_ = Step{.worker = who, .operations = there.at(who)};
  return Move(now);
}

WorkerSpeed::Relief WorkerSpeed::Move(MonotonicTime now) {
  step_->rounds = 0;
  step_->moved.clear();
  NoteSlowLanes(now, step_->worker);
  // What is slow is what costs something; the rest goes when none of that is left.
  const auto slow = static_cast<int>(slow_lanes_.size());
  step_->slow_lanes = std::max(step_->slow_lanes, slow);
  const int quarter = ((slow > 0 ? step_->slow_lanes : step_->operations) + 3) / 4;
  return {step_->worker, slow > 0 ? std::min(slow, quarter) : quarter};
}

void WorkerSpeed::NoteSlowLanes(MonotonicTime now, const WorkerId& id) {
  slow_lanes_.clear();
  const Side side = id.is_reader() ? kReader : kWriter;
  const std::map<Group, Duration>& limits = workers_.at(id).limits;
  for (const auto& [lane, state] : lanes_) {
    if (!state.took[side] || state.worker[side] != id.name || now < state.hold[side].until)
      continue;
    const auto limit = limits.find({side, lane.cell, lane.layer});
    if (limit == limits.end() || *state.took[side] <= limit->second) continue;
    slow_lanes_[lane] = {*state.took[side], limit->second};
  }
}

std::optional<WorkerSpeed::Relief> WorkerSpeed::GoOn(MonotonicTime now, const Verdicts& verdicts,
                                                     const There& there) {
  const WorkerId id = step_->worker;
  Worker& worker = workers_.at(id);
  const State spared = worker.was_on_trial ? State::kOnTrial : State::kHealthy;
  if (!there.contains(id) || !CanDoWithout(id, there)) {
    EndStep(now, spared);
    return std::nullopt;
  }
  ++step_->rounds;
  const Side side = id.is_reader() ? kReader : kWriter;
  const Side other = side == kReader ? kWriter : kReader;
  int fast = 0;
  std::vector<LaneState*> still_slow;
  for (const Step::Moved& moved : step_->moved) {
    const auto lane = lanes_.find(moved.lane);
    if (lane == lanes_.end()) continue;
    LaneState& state = lane->second;
    // Elsewhere, and nothing else has changed.
    if (!state.took[side] || state.worker[side] == id.name ||
        state.worker[other] != moved.other_end) {
      continue;
    }
    const Duration took = *state.took[side];
    if (took <= moved.before.limit && took * 2 <= moved.before.took) {
      ++fast;
    } else {
      still_slow.push_back(&state);
    }
  }
  const int slow = static_cast<int>(still_slow.size());
  step_->helped = step_->helped || fast > slow;
  if (fast <= slow && !(step_->helped && step_->moved.empty())) {
    if (step_->rounds < (slow > 0 ? kBadRounds : kSilentRounds)) return std::nullopt;
    for (LaneState* state : still_slow)
      state->hold[side].Begin(now, options_->hold, options_->hold_max);
    EndStep(now, spared);
    return std::nullopt;
  }
  if (there.at(id) == 0) {
    EndStep(now, State::kAvoided);
    return std::nullopt;
  }
  const auto verdict = verdicts.find(id);
  if (worker.timed && !verdict->second.is_slow()) {
    EndStep(now, spared);
    return std::nullopt;
  }
  return Move(now);
}

void WorkerSpeed::EndStep(MonotonicTime now, State state) {
  Worker& worker = workers_.at(step_->worker);
  worker.state = state;
  worker.pause.Begin(now, options_->pause, options_->pause_max);
  worker.slow_rounds = worker.fine_rounds = worker.crowded_rounds = 0;
  step_.reset();
  slow_lanes_.clear();
}

void WorkerSpeed::ForgetOld(MonotonicTime now) {
  for (auto& [lane, state] : lanes_) {
    for (auto& took : state.took) took.reset();
  }
  std::erase_if(lanes_, [&](const auto& entry) {
    const LaneState& state = entry.second;
    return now - std::max(state.since, state.timed) > kLaneRemembered &&
           !state.hold[kReader].Remembered(now) && !state.hold[kWriter].Remembered(now);
  });
  for (auto& [group, medians] : medians_) {
    std::erase_if(medians, [&](const auto& m) { return now - m.second.at > options_->remembered; });
  }
  std::erase_if(medians_, [](const auto& entry) { return entry.second.empty(); });
}

// --- questions

WorkerSpeed::State WorkerSpeed::state(const WorkerId& id) const {
  const auto worker = workers_.find(id);
  return worker == workers_.end() ? State::kHealthy : worker->second.state;
}

bool WorkerSpeed::MayTryOneMore(const WorkerId& id) const {
  const auto worker = workers_.find(id);
  return worker != workers_.end() && worker->second.state == State::kOnTrial &&
         !worker->second.timed;
}

std::vector<WorkerSpeed::Slow> WorkerSpeed::NotHealthy(MonotonicTime now) const {
  std::vector<Slow> all;
  for (const auto& [id, worker] : workers_) {
    if (worker.state == State::kHealthy) continue;
    all.push_back({id, worker.state, worker.took, worker.peers,
                   worker.state == State::kAvoided ? worker.pause.until - now : Duration()});
  }
  return all;
}

}  // namespace tailcast::scheduler
