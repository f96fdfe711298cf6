// The primary layer of the deterministic world: an asynchronous store in memory with the semantics
// of a replicated object store. Appends are guarded by an epoch and land some time after they were
// sent, answers come later still or not at all, files do not wait for each other, and what a test
// draws can go wrong.
//
// One FakeDisk is the storage of one cell; each simulated process opens a FakeStore on it with its
// own loop. Killing a process = destroying its FakeStore (after SimLoop::Kill its callbacks are
// dropped too). Requests that it had sent may still land, as on a real network: only a fence stops
// them.
//
//   time ->   AppendAt      lands: epoch checked, bytes committed       done runs
//                |---- request latency ----|------ answer latency ---------|
//                     killed here: lands anyway, or never    lost: kUnknown after answer_timeout
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
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/step_log.h"
#include "tailcast/storage/store.h"

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

  // Which faults exist and how strong: each with probability one half, drawn from its range.
  static FakeDiskOptions Swarm(Rng& rng);
};

// Planted bugs: a checker of the simulator is trusted only after it has caught them.
enum class FakeDiskBug : uint8_t {
  kNone,
  kNoEpochGuard,        // an append of a fenced handle lands
  kShowsUnflushed,      // Size and Read show an append before it has landed
  kGarbageIsCommitted,  // after a power loss the garbage behind the committed length is shown
};

struct FakeDiskCounters {
  int64_t appends_landed = 0;
  int64_t appends_fenced = 0;
  int64_t appends_landed_after_unknown = 0;
  int64_t appends_lost = 0;
  int64_t injected_errors = 0;
  int64_t short_reads = 0;
  int64_t stale_sizes = 0;
  int64_t creations_helped = 0;
  int64_t power_losses = 0;
};

class FakeStore;

class FakeDisk {
 public:
  // `loop` turns the disk's own events (landings); it must outlive the disk and not be killed.
  FakeDisk(EventLoop* loop, uint64_t seed, FakeDiskOptions options = {});
  ~FakeDisk();
  FakeDisk(const FakeDisk&) = delete;
  FakeDisk& operator=(const FakeDisk&) = delete;

  // Changes what may go wrong from now on; requests under way keep their fate. FakeDiskOptions{}
  // heals.
  void SetOptions(FakeDiskOptions options) { options_ = options; }
  const FakeDiskOptions& options() const { return options_; }
  void PlantBug(FakeDiskBug bug) { bug_ = bug; }
  // Committed lengths are logged there, as PosixStore does.
  void SetSteps(StepLog* steps) { steps_ = steps; }

  // The storage loses power and is back at once. Appends under way are committed whole or lost;
  // every handle is dead, its outstanding calls end with kUnknown or Unavailable.
  void PowerLoss();

  // While frozen nothing lands and nothing is answered (a stalled disk); thawing lands all.
  void Freeze();
  void Thaw();

  const FakeDiskCounters& counters() const { return counters_; }
  int64_t bytes_used() const;

  // For oracles, without latency or faults: the committed bytes, or NotFound.
  Result<std::string> Peek(const std::string& dir, const std::string& name) const;
  std::vector<std::string> PeekNames(const std::string& dir) const;

 private:
  friend class FakeStore;
  friend class FakeAppendFile;
  friend class FakeReadFile;
  struct File;
  struct Folder {
    std::map<std::string, std::shared_ptr<File>> names;
    std::map<std::string, std::shared_ptr<File>> claims;  // by key
  };
  struct InFlight;

  // Runs `task` at `when` on the disk's loop, or when the disk is thawed.
  void AtDisk(Duration delay, Task task);
  void Land(InFlight& append);

  EventLoop* const loop_;
  Rng rng_;
  FakeDiskOptions options_;
  FakeDiskBug bug_ = FakeDiskBug::kNone;
  StepLog* steps_ = nullptr;
  FakeDiskCounters counters_;
  std::map<std::string, Folder> folders_;  // by path; parents have entries of their own
  std::vector<std::weak_ptr<InFlight>> in_flight_;
  uint64_t generation_ = 1;  // grows with each power loss: older handles are dead
  bool frozen_ = false;
  std::deque<Task> held_;
  // Set to false by the destructor: events that are still on the loop then do nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// One process' view. See Store for the contract of the calls.
class FakeStore final : public Store {
 public:
  // The disk must outlive the store.
  FakeStore(FakeDisk* disk, EventLoop* loop);
  // The process ends. Outstanding callbacks run with kUnknown / Cancelled, if the loop still runs.
  ~FakeStore() override;

  void CreateExclusive(const std::string& dir, const std::string& name, const std::string& key,
                       Callback<void(Result<std::unique_ptr<AppendFile>>)> done) override;
  void OpenFencing(const std::string& dir, const std::string& name,
                   Callback<void(Result<std::unique_ptr<AppendFile>>)> done) override;
  void OpenRead(const std::string& dir, const std::string& name,
                Callback<void(Result<std::unique_ptr<ReadFile>>)> done) override;
  void List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) override;
  void ListDirs(const std::string& dir,
                Callback<void(Result<std::vector<std::string>>)> done) override;
  void Delete(const std::string& dir, const std::string& name,
              Callback<void(Status)> done) override;

  struct Client;

 private:
  friend class FakeAppendFile;
  friend class FakeReadFile;
  template <typename T>
  void Request(std::function<Result<T>(bool apply)> apply, Callback<void(Result<T>)> done);

  FakeDisk* const disk_;
  const std::shared_ptr<Client> client_;
};

}  // namespace tailcast::storage
