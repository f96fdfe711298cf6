#include "tailcast/sim/sim_loop.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast::sim {
namespace {
// 2026-01-01T00:00:00Z: where virtual wall clocks begin.
constexpr int64_t kWallEpochUs = 1767225600000000;
constexpr int64_t kMicrosPerSecond = 1'000'000;
// Timers that never come due.
constexpr Duration kFarAway = Duration::Seconds(1'000'000);
}  // namespace

VirtualTime::VirtualTime(uint64_t seed) : rng_(seed) {}

VirtualTime::~VirtualTime() {
  // Tasks may own objects that cancel timers in their destructors.
  while (!events_.empty()) {
    auto node = events_.extract(events_.begin());
    by_id_.erase(node.mapped().id);
  }
}

std::unique_ptr<SimLoop> VirtualTime::MakeLoop(std::string name) {
  return std::unique_ptr<SimLoop>(new SimLoop(*this, std::move(name), next_loop_++));
}

TimerId VirtualTime::Add(SimLoop* loop, MonotonicTime when, Task task, bool arrival) {
  const TimerId id = next_id_++;
  Insert(when, Event{loop, id, std::move(task), arrival});
  return id;
}

void VirtualTime::Insert(MonotonicTime when, Event event) {
  const EventKey key{std::max(when, now_), next_event_++};
  by_id_.emplace(event.id, key);
  event.loop->waiting_.insert(event.id);
  events_.emplace(key, std::move(event));
}

void VirtualTime::Trace(uint64_t value) { trace_hash_ = (trace_hash_ ^ value) * 0x100000001b3ull; }

bool VirtualTime::Step() {
  if (events_.empty()) return false;
  auto node = events_.extract(events_.begin());
  now_ = std::max(now_, node.key().first);
  by_id_.erase(node.mapped().id);
  SimLoop* loop = node.mapped().loop;
  loop->waiting_.erase(node.mapped().id);
  if (loop->paused_) {
    loop->held_.push_back(std::move(node.mapped()));
    return true;
  }
  ++events_run_;
  Trace(loop->number_);
  Trace(static_cast<uint64_t>(now_.micros()));
  Task task = std::move(node.mapped().task);
  task();
  return true;
}

void VirtualTime::RunFor(Duration d) {
  const MonotonicTime end = now_ + d;
  while (!events_.empty() && events_.begin()->first.first <= end) Step();
  now_ = std::max(now_, end);
}

SimLoop::~SimLoop() { Kill(); }

void SimLoop::SetDrift(int64_t us_per_s) {
  TAILCAST_CHECK(waiting_.empty() && std::abs(us_per_s) < kMicrosPerSecond, "a drift of a clock");
  drift_us_per_s_ = us_per_s;
}

MonotonicTime SimLoop::Now() const {
  const int64_t gained = time_.now().micros() * drift_us_per_s_ / kMicrosPerSecond;
  return time_.now() + Duration::Micros(gained);
}

WallTime SimLoop::WallNow() const {
  return WallTime::FromMicros(kWallEpochUs + Now().micros()) + wall_offset_;
}

void SimLoop::Post(Task task) {
  if (!killed_) time_.Add(this, time_.now(), std::move(task), /*arrival=*/true);
}

TimerId SimLoop::At(MonotonicTime when, Task task) {
  if (killed_) return 0;
  // Not before this clock shows it.
  const Duration left = when - Now();
  if (drift_us_per_s_ != 0 && left < kFarAway) {
    const int64_t speed = kMicrosPerSecond + drift_us_per_s_;
    when = time_.now() + Duration::Micros(left.micros() * kMicrosPerSecond / speed + 2);
  }
  return time_.Add(this, when, std::move(task), /*arrival=*/false);
}

TimerId SimLoop::Arrive(MonotonicTime when, Task task) {
  return killed_ ? 0 : time_.Add(this, when, std::move(task), /*arrival=*/true);
}

void SimLoop::Cancel(TimerId id) {
  auto it = time_.by_id_.find(id);
  if (it == time_.by_id_.end() || waiting_.erase(id) == 0) return CancelHeld(id);
  auto node = time_.events_.extract(it->second);
  time_.by_id_.erase(it);
}

void SimLoop::CancelHeld(TimerId id) {
  const auto it = std::find_if(held_.begin(), held_.end(),
                               [id](const VirtualTime::Event& event) { return event.id == id; });
  if (it == held_.end()) return;
  // Destroyed when it is out of the list: it may own what cancels others.
  const VirtualTime::Event event = std::move(*it);
  held_.erase(it);
}

void SimLoop::Kill() {
  killed_ = true;
  const std::vector<VirtualTime::Event> held = std::exchange(held_, {});
  while (!waiting_.empty()) Cancel(*waiting_.begin());
}

void SimLoop::Pause() { paused_ = true; }

void SimLoop::Resume() {
  paused_ = false;
  std::stable_partition(held_.begin(), held_.end(),
                        [](const VirtualTime::Event& event) { return !event.arrival; });
  // By their ids: they can still be cancelled.
  for (VirtualTime::Event& event : std::exchange(held_, {})) {
    time_.Insert(time_.now(), std::move(event));
  }
}

}  // namespace tailcast::sim
