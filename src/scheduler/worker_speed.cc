#include "tailcast/scheduler/worker_speed.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::scheduler {
namespace {

FAULT_POINT(kSlowStay, "scheduler.slow_stay", "a worker that is slow is never avoided");

// The lower one of two in the middle. Not of nothing.
Duration Median(std::vector<Duration> times) {
  const auto middle = times.begin() + static_cast<ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

void WorkerSpeed::OnTime(MonotonicTime now, const std::string& name, stream::Layer layer,
                         Duration took) {
  Worker& worker = workers_[name];
  if (worker.slow_until > now) return;
  std::vector<Duration>& times = worker.times[static_cast<int>(layer)].now;
  if (times.size() < kTimesMax) times.push_back(took);
}

bool WorkerSpeed::Judge(MonotonicTime now, const std::string& name, Worker& worker,
                        const std::set<std::string>& there) const {
  bool compared = false;
  Duration most = Duration::Micros(INT64_MIN);
  for (int layer = 0; layer < stream::kLayers; ++layer) {
    const Times& times = worker.times[layer];
    if (!times.known || times.at != now) continue;
    std::vector<Duration> peers;
    for (const std::string& other : there) {
      const auto peer = workers_.find(other);
      if (other == name || peer == workers_.end() || peer->second.slow_until > now) continue;
      const Times& theirs = peer->second.times[layer];
      if (theirs.known && now - theirs.at <= options_->remembered) peers.push_back(theirs.median);
    }
    if (peers.empty()) continue;
    compared = true;
    const Duration median = Median(std::move(peers));
    const Duration beyond = times.median - median * 2 - options_->slow_after;
    if (beyond <= most) continue;
    most = beyond;
    worker.took = times.median;
    worker.peers = median;
  }
  if (!compared) return false;
  const bool slow = most > Duration();
  worker.slow_windows = slow ? worker.slow_windows + 1 : 0;
  worker.like_peers = slow ? 0 : worker.like_peers + 1;
  return true;
}

void WorkerSpeed::OnWindow(MonotonicTime now, const std::set<std::string>& there) {
  for (auto& [name, worker] : workers_) {
    for (Times& times : worker.times) {
      if (times.now.empty()) continue;
      times.median = Median(std::exchange(times.now, {}));
      times.at = now;
      times.known = true;
    }
  }
  size_t slow = 0;
  std::vector<Worker*> found;
  for (const std::string& name : there) {
    const auto it = workers_.find(name);
    if (it == workers_.end()) continue;
    Worker& worker = it->second;
    if (worker.slow_until > now) {
      ++slow;
      continue;
    }
    if (!Judge(now, name, worker, there)) continue;
    if (worker.like_peers >= options_->windows)
      worker.trial_until = std::min(worker.trial_until, now);
    if (worker.slow_windows >= options_->windows) found.push_back(&worker);
  }
  std::stable_sort(found.begin(), found.end(), [](const Worker* a, const Worker* b) {
    return a->took - a->peers * 2 > b->took - b->peers * 2;
  });
  for (Worker* worker : found) {
    if (kSlowStay.planted() || (slow + 1) * 2 > there.size()) break;
    ++slow;
    Avoid(now, *worker);
  }
}

void WorkerSpeed::Avoid(MonotonicTime now, Worker& worker) const {
  const bool again = now < worker.slow_until + worker.avoided * 10;
  worker.avoided = again ? std::min(worker.avoided * 2, options_->avoid_max) : options_->avoid;
  worker.slow_until = now + worker.avoided;
  worker.trial_until = worker.slow_until + worker.avoided;
  worker.slow_windows = worker.like_peers = 0;
  for (Times& times : worker.times) times = Times();
}

WorkerSpeed::State WorkerSpeed::state(MonotonicTime now, const std::string& name) const {
  const auto it = workers_.find(name);
  if (it == workers_.end()) return State::kHealthy;
  if (it->second.slow_until > now) return State::kSlow;
  return it->second.trial_until > now ? State::kOnTrial : State::kHealthy;
}

std::vector<WorkerSpeed::Slow> WorkerSpeed::NotHealthy(MonotonicTime now) const {
  std::vector<Slow> all;
  for (const auto& [name, worker] : workers_) {
    const State is = state(now, name);
    if (is == State::kHealthy) continue;
    all.push_back({name, is, worker.took, worker.peers,
                   (is == State::kSlow ? worker.slow_until : worker.trial_until) - now});
  }
  return all;
}

}  // namespace tailcast::scheduler
