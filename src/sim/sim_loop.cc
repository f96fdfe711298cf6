#include "tailcast/sim/sim_loop.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
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
  while (const Due* next = Next()) Extract(next->id);
}

WallTime VirtualTime::WallAt(MonotonicTime when) {
  return WallTime::FromMicros(kWallEpochUs + when.micros());
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
  due_.push_back({std::max(when, now_), next_event_++, event.id});
  std::push_heap(due_.begin(), due_.end(), std::greater<>());
  ++event.loop->waiting_;
  const TimerId id = event.id;
  events_.emplace(id, std::move(event));
}

void VirtualTime::PopNext() {
  std::pop_heap(due_.begin(), due_.end(), std::greater<>());
  due_.pop_back();
}

void VirtualTime::Compact() {
  if (due_.size() < 2 * events_.size() + 1024) return;
  std::erase_if(due_, [this](const Due& due) { return !events_.contains(due.id); });
  std::make_heap(due_.begin(), due_.end(), std::greater<>());
}

const VirtualTime::Due* VirtualTime::Next() {
  while (!due_.empty() && !events_.contains(due_.front().id)) PopNext();
  return due_.empty() ? nullptr : &due_.front();
}

VirtualTime::Event VirtualTime::Extract(TimerId id) {
  auto node = events_.extract(id);
  --node.mapped().loop->waiting_;
  return std::move(node.mapped());
}

void VirtualTime::Trace(uint64_t value) { trace_hash_ = (trace_hash_ ^ value) * 0x100000001b3ull; }

bool VirtualTime::Step() {
  const Due* const next = Next();
  if (next == nullptr) return false;
  now_ = std::max(now_, next->when);
  Event event = Extract(next->id);
  PopNext();
  SimLoop* const loop = event.loop;
  if (loop->paused_) {
    loop->held_.push_back(std::move(event));
    return true;
  }
  ++events_run_;
  Trace(loop->number_);
  Trace(static_cast<uint64_t>(now_.micros()));
  event.task();
  return true;
}

void VirtualTime::RunFor(Duration d) {
  const MonotonicTime end = now_ + d;
  for (const Due* next = Next(); next != nullptr && next->when <= end; next = Next()) Step();
  now_ = std::max(now_, end);
}

SimLoop::~SimLoop() { Kill(); }

void SimLoop::SetDrift(int64_t us_per_s) {
  TAILCAST_CHECK(waiting_ == 0 && std::abs(us_per_s) < kMicrosPerSecond, "a drift of a clock");
  drift_us_per_s_ = us_per_s;
}

MonotonicTime SimLoop::Now() const {
  const int64_t gained = time_.now().micros() * drift_us_per_s_ / kMicrosPerSecond;
  return time_.now() + Duration::Micros(gained);
}

WallTime SimLoop::WallNow() const { return VirtualTime::WallAt(Now()) + wall_offset_; }

void SimLoop::Post(Task&& task) {
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
  const auto it = time_.events_.find(id);
  if (it == time_.events_.end() || it->second.loop != this) return CancelHeld(id);
  const VirtualTime::Event event = time_.Extract(id);  // destroyed when it is out of the table
  time_.Compact();
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
  if (waiting_ == 0) return;
  std::vector<TimerId> waiting;
  for (const auto& [id, event] : time_.events_) {
    if (event.loop == this) waiting.push_back(id);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const TimerId id : waiting) Cancel(id);  // unless that of another one has cancelled it
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
