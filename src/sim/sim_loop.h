// Virtual time: many event loops, one per simulated process, turned by one thread in an order that
// depends on nothing but the seed.
//
//   sim::VirtualTime time(seed);
//   auto loop = time.MakeLoop("reader-1");
//   loop->After(Duration::Seconds(60), [] { ... });
//   time.RunFor(Duration::Seconds(120));          // takes microseconds of real time
//
// Events run in the order (virtual time, insertion number). A killed process' loop drops everything
// that waits on it, as kill -9 does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/rng.h"

namespace tailcast::sim {

class SimLoop;

class VirtualTime {
 public:
  explicit VirtualTime(uint64_t seed);
  ~VirtualTime();
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  // Loops must not outlive it.
  std::unique_ptr<SimLoop> MakeLoop(std::string name);

  MonotonicTime now() const { return now_; }
  // What a wall clock shows then that is right.
  static WallTime WallAt(MonotonicTime when);
  Rng& rng() { return rng_; }

  // Runs the next event; false if none waits.
  bool Step();
  // Runs all events up to now + d, then stands at now + d.
  void RunFor(Duration d);
  // Runs until the condition holds (checked after each event); false when `limit` of virtual time
  // passed without it.
  template <typename Condition>
  bool RunUntil(Condition condition, Duration limit) {
    const MonotonicTime end = now_ + limit;
    while (!condition()) {
      const Due* const next = Next();
      if (next == nullptr || next->when > end) {
        now_ = end;
        return condition();
      }
      Step();
    }
    return true;
  }

  uint64_t events_run() const { return events_run_; }
  // Events that are to run yet.
  size_t waiting() const { return events_.size(); }
  // Hash of the order and times in which events ran on which loops: equal seeds must give equal
  // hashes in every build.
  uint64_t trace_hash() const { return trace_hash_; }
  // Mixes something that a scenario did into the trace hash.
  void Trace(uint64_t value);

 private:
  friend class SimLoop;
  struct Event {
    SimLoop* loop;
    TimerId id;
    Task task;
    bool arrival = false;  // else a timer
  };
  // When which event is due; of one that was cancelled meanwhile, nothing.
  struct Due {
    MonotonicTime when;
    uint64_t number;  // orders events of one time
    TimerId id;
    bool operator>(const Due& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  TimerId Add(SimLoop* loop, MonotonicTime when, Task task, bool arrival);
  void Insert(MonotonicTime when, Event event);
  // The next event's; null: there is none. Takes those that were cancelled off the heap.
  const Due* Next();
  void PopNext();
  // Of timers that are cancelled and set anew, again and again, the heap keeps half at most.
  void Compact();
  // Takes the event out.
  Event Extract(TimerId id);

  Rng rng_;
  MonotonicTime now_ = MonotonicTime::FromMicros(1);
  TimerId next_id_ = 1;
  uint64_t next_event_ = 1;
  uint64_t next_loop_ = 1;
  uint64_t events_run_ = 0;
  uint64_t trace_hash_ = 0xcbf29ce484222325ull;
  std::unordered_map<TimerId, Event> events_;  // looked up only, and walked where order is made
  std::vector<Due> due_;                       // a heap, the earliest first
};

class SimLoop : public EventLoop {
 public:
  ~SimLoop() override;
  // Of this process' clock: SetDrift.
  MonotonicTime Now() const override;
  WallTime WallNow() const override;
  void Post(Task&& task) override;
  TimerId At(MonotonicTime when, Task task) override;
  void Cancel(TimerId id) override;

  // kill -9: everything that waits is dropped, and so is everything posted from now on.
  void Kill();
  bool killed() const { return killed_; }
  // What another process, a disk or a network sends; for the ports' drivers, with a time of
  // VirtualTime. Else as At.
  TimerId Arrive(MonotonicTime when, Task task);

  // SIGSTOP and SIGCONT: events wait, time goes on. Then timers that are due run before what
  // arrived meanwhile, as on a ThreadLoop.
  void Pause();
  void Resume();
  // Since virtual time began this process' clocks, the monotonic one too, have gained so many
  // microseconds in each second; negative: lost. Once, before anything waits on the loop.
  void SetDrift(int64_t us_per_s);
  // Shifts this process' wall clock.
  void SetWallOffset(Duration offset) { wall_offset_ = offset; }
  const std::string& name() const { return name_; }
  VirtualTime& time() { return time_; }
  // Unique among the loops of one VirtualTime, in order of creation.
  uint64_t number() const { return number_; }

 private:
  friend class VirtualTime;
  SimLoop(VirtualTime& time, std::string name, uint64_t number)
      : time_(time), name_(std::move(name)), number_(number) {}

  void CancelHeld(TimerId id);

  VirtualTime& time_;
  const std::string name_;
  const uint64_t number_;
  bool killed_ = false;
  bool paused_ = false;
  std::vector<VirtualTime::Event> held_;  // that came due while paused
  size_t waiting_ = 0;                    // of its events, those of VirtualTime
  Duration wall_offset_;
  int64_t drift_us_per_s_ = 0;
};

}  // namespace tailcast::sim
