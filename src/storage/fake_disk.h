// The storage of one simulated cell: when requests reach its image, and what goes wrong on the way.
// Each simulated process opens a FakeStore (fake_store.h) on it.
//
// Power loss: an append that has not landed is there whole or not at all; behind the committed
// length lie zeros or garbage, which no Size or Read ever shows.
//
// Threads: one. The disk, all its stores and their loops live on one thread. Everything is a
// function of the seed and of the order of calls.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/step_log.h"
#include "tailcast/storage/fake_image.h"

namespace tailcast::storage {

// A duration drawn anew for each request: base + Exponential(mean_extra), and with tail_rate
// another Exponential(tail_mean).
struct FakeLatency {
  Duration base = Duration::Micros(200);
  Duration mean_extra = Duration::Micros(100);
  double tail_rate = 0;
  Duration tail_mean = Duration::Millis(20);

  Duration Draw(Rng& rng) const;
};

// Rates are probabilities per request. Swarm draws from the range that each comment begins with.
struct FakeDiskOptions {
  // Base 10 us .. 5 ms, extra 0 .. 10 ms, tail rate 0 .. 0.05, tail mean 1 ms .. 1 s. From the call
  // until the request lands, and from there until the answer.
  FakeLatency request;
  FakeLatency answer;
  // 0 .. 0.02. The answer to an append is lost; the append lands now, later, or not.
  double append_unknown_rate = 0;
  // 0 .. 0.02. An append ends with kUnknown and Unavailable at once; it may land all the same.
  double append_io_error_rate = 0;
  // 0 .. 0.05. Create, open, list and delete answer Unavailable, undone or done.
  double open_error_rate = 0;
  // 0 .. 0.05. Read and Size answer Unavailable.
  double read_error_rate = 0;
  // 0 .. 0.5. Read gives a prefix of at least one byte.
  double short_read_rate = 0;
  // 0 .. 50 ms. Size may tell the length of this long ago; it never falls within a handle.
  Duration size_lag_max;
  // 50 ms .. 5 s. An append whose answer is lost becomes kUnknown after this.
  Duration answer_timeout = Duration::Seconds(2);
  // Not drawn. How long after the call such an append may still land.
  Duration late_landing_max = Duration::Seconds(10);
  // Not drawn. Appends beyond it end with kUnknown and ResourceExhausted, and do not land.
  int64_t capacity_bytes = INT64_MAX;
  // Not drawn. As FakeRoom's; a file's creation and fencing find no room, too, or a creation is
  // left half done.
  int64_t reserve_bytes = 0;
  int64_t file_bytes = 0;
  bool room_for_names = true;

  // Which faults exist and how strong: each with probability one half, drawn from its range.
  static FakeDiskOptions Swarm(Rng& rng);
};

class FakeDisk {
 public:
  // What went wrong on the way; the image counts what became of appends.
  struct Counters {
    int64_t injected_errors = 0;
    int64_t short_reads = 0;
    int64_t stale_sizes = 0;
    int64_t power_losses = 0;
  };

  // `loop` turns the disk's own events (landings); it must outlive the disk and not be killed.
  FakeDisk(EventLoop* loop, uint64_t seed, FakeDiskOptions options = {});

  // Changes what may go wrong from now on; requests under way keep their fate. FakeDiskOptions{}
  // heals.
  void SetOptions(FakeDiskOptions options) { options_ = options; }
  const FakeDiskOptions& options() const { return options_; }
  // Gets a number for each append that lands, which depends on its bytes and on what became of it.
  void SetTrace(std::function<void(uint64_t)> trace) { trace_ = std::move(trace); }
  // Committed lengths are logged there, as PosixStore does.
  void SetSteps(StepLog* steps) { image_.SetSteps(steps); }

  // The storage loses power and is back at once. Appends under way are committed whole or lost;
  // every handle is dead, its outstanding calls end with kUnknown or Unavailable.
  void PowerLoss();

  // As FakeImage's: what another program does to a file.
  Status Remove(const std::string& dir, const std::string& name) {
    return image_.Remove(dir, name);
  }
  Status Cut(const std::string& dir, const std::string& name, int64_t length) {
    return image_.Cut(dir, name, length);
  }

  // From now on every size and read of this file answers Unavailable: it lies on a bad spot. Or not
  // any more.
  void SetUnreadable(const std::string& dir, const std::string& name, bool unreadable = true) {
    if (unreadable) {
      unreadable_.emplace(dir, name);
    } else {
      unreadable_.erase({dir, name});
    }
  }

  // From now on every size and read of this file answers DeadlineExceeded, after kHangs. Or not any
  // more.
  void SetHanging(const std::string& dir, const std::string& name, bool hanging = true) {
    if (hanging) {
      hanging_.emplace(dir, name);
    } else {
      hanging_.erase({dir, name});
    }
  }
  static constexpr Duration kHangs = Duration::Seconds(30);

  // While frozen nothing lands and nothing is answered (a stalled disk); thawing lands all.
  void Freeze() { frozen_ = true; }
  void Thaw();

  const Counters& counters() const { return counters_; }
  const FakeImage& image() const { return image_; }

  // For oracles, without latency or faults: the committed bytes, or NotFound.
  Result<std::string> Peek(const std::string& dir, const std::string& name) const;
  // How many of them some process was told of; 0 if it is not there.
  int64_t PeekAcknowledged(const std::string& dir, const std::string& name) const;
  std::vector<std::string> PeekNames(const std::string& dir) const { return image_.Names(dir); }

 private:
  friend class FakeStore;
  friend class FakeAppendFile;
  friend class FakeReadFile;

  // Runs `landing` on the disk's loop after `delay`, or when the disk is thawed; never if the disk
  // is gone by then.
  void AtDisk(Duration delay, UniqueFunction<void()> landing);
  void Land(FakeImage::Append& append);
  FakeRoom Room() const {
    return {options_.capacity_bytes, options_.reserve_bytes, options_.file_bytes,
            options_.room_for_names};
  }

  EventLoop* const loop_;
  Rng rng_;
  FakeDiskOptions options_;
  Counters counters_;
  FakeImage image_;
  uint64_t life_ = 1;  // grows with each power loss: handles of an earlier one are dead
  bool frozen_ = false;
  std::set<std::pair<std::string, std::string>> unreadable_, hanging_;  // folder and name
  std::function<void(uint64_t)> trace_;
  std::deque<UniqueFunction<void()>> held_;
  Scope scope_;
};

}  // namespace tailcast::storage
