#include "tailcast/sim/sim_loop.h"

#include <algorithm>

namespace tailcast::sim {
namespace {
// 2026-01-01T00:00:00Z: where virtual wall clocks begin.
constexpr int64_t kWallEpochUs = 1767225600000000;
}  // namespace

VirtualTime::VirtualTime(uint64_t seed) : rng_(seed) {}

VirtualTime::~VirtualTime() {
  // Tasks may own objects that cancel timers in their destructors.
  while (!events_.empty()) {
    auto node = events_.extract(events_.begin());
    by_id_.erase(node.key().second);
  }
}

std::unique_ptr<SimLoop> VirtualTime::MakeLoop(std::string name) {
  return std::unique_ptr<SimLoop>(new SimLoop(*this, std::move(name), next_loop_++));
}

uint64_t VirtualTime::Add(SimLoop* loop, MonotonicTime when, Task task) {
  const uint64_t id = next_event_++;
  const EventKey key{std::max(when, now_), id};
  events_.emplace(key, Event{loop, std::move(task)});
  by_id_.emplace(id, key);
  loop->waiting_.insert(id);
  return id;
}

void VirtualTime::Trace(uint64_t value) { trace_hash_ = (trace_hash_ ^ value) * 0x100000001b3ull; }

bool VirtualTime::Step() {
  if (events_.empty()) return false;
  auto node = events_.extract(events_.begin());
  now_ = std::max(now_, node.key().first);
  by_id_.erase(node.key().second);
  SimLoop* loop = node.mapped().loop;
  loop->waiting_.erase(node.key().second);
  if (loop->paused_) {
    loop->held_.push_back(std::move(node.mapped().task));
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

WallTime SimLoop::WallNow() const {
  return WallTime::FromMicros(kWallEpochUs + time_.now().micros()) + wall_offset_;
}

void SimLoop::Post(Task task) {
  if (!killed_) time_.Add(this, time_.now(), std::move(task));
}

TimerId SimLoop::At(MonotonicTime when, Task task) {
  return killed_ ? 0 : time_.Add(this, when, std::move(task));
}

void SimLoop::Cancel(TimerId id) {
  auto it = time_.by_id_.find(id);
  if (it == time_.by_id_.end() || waiting_.erase(id) == 0) return;
  auto node = time_.events_.extract(it->second);
  time_.by_id_.erase(it);
}

void SimLoop::Kill() {
  killed_ = true;
  std::vector<Task> held = std::move(held_);
  held_.clear();
  while (!waiting_.empty()) Cancel(*waiting_.begin());
}

void SimLoop::Pause() { paused_ = true; }

void SimLoop::Resume() {
  paused_ = false;
  std::vector<Task> held = std::move(held_);
  held_.clear();
  for (Task& task : held) Post(std::move(task));
}

}  // namespace tailcast::sim
