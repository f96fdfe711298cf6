// Clients of the caches of a cell as far as their rules go: writes and reads under way all the
// while that things happen to its replicas, schedulers and rings (cache_members_world_testing.h),
// by views of the ring that are old. The oracle is spec Merge's ReadsSeeAcked: a complete read sees
// every write that was acknowledged before it began, in the same epoch. And when faults and changes
// end, all are whole and the change has ended (Settles). For tests.
//
// Of a `TraceRun` it also writes down what happens to one key, a write and a read of it under way
// at once (merge_trace_testing.h).
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/quorum_options.h"
#include "tailcast/cell/cache_members_world_testing.h"
#include "tailcast/cell/merge_trace_testing.h"

namespace tailcast::cell {
using cache::Mask;

// Values, numbers that grow, by the rules that servers and clients follow. Each is written seldom,
// so that what was lost is not hidden by a later write.
class Sweep {
 public:
  explicit Sweep(uint64_t seed, TraceRun run = {}) : rng_(seed), run_(run), world_(rng_, run) {
    world_.faults.one_by_one = run.one_by_one;
    world_.faults.taken_back = run.taken_back;
  }

  void Run() {
    MembersFaults& faults = world_.faults;
    faults.restarts = 0.002 * rng_.Unit();
    faults.fast_views = rng_.Chance(0.5);
    faults.changes = rng_.Chance(0.7) ? 0.003 : 0;
    losses_ = rng_.Chance(0.5) ? 0.1 : 0.4;
    faults.slow_data = rng_.Chance(0.5);
    for (int step = 0; step < 20000 && failure().empty(); ++step) Step();
    // Faults end: everything is whole soon, and serves.
    faults.restarts = faults.changes = 0;
    world_.Heal();
    // Slow views are half a second old, and one replica may have to wait for another.
    faults.slow_data = false;
    const MonotonicTime enough = world_.now() + Duration::Seconds(faults.fast_views ? 10 : 30);
    while (failure().empty() && world_.now() < enough) Step();
    const RingConfig view = world_.View();
    if (failure().empty() && PhaseOf(view.configuration_id) != RingPhase::kSettled) {
      Fail("the ring still changes long after the last fault");
    }
    for (const cache::Replica& replica : view.replicas) {
      if (failure().empty() && !replica.whole) {
        Fail("not whole long after the last fault: " + replica.name);
      }
    }
  }

  // As Run, for a few hundred events of a trace.
  void Trace() {
    TAILCAST_CHECK(run_.trace != nullptr, "a trace to write to");
    quiet_ = true;
    while (!world_.AllWhole()) Step();
    clients_ = {};
    quiet_ = false;
    run_.trace->Begin(world_.durable());
    MembersFaults& faults = world_.faults;
    faults.restarts = run_.restarts;
    faults.changes = run_.changes ? 0.003 : 0;
    losses_ = 0.1;
    for (int step = 0; step < 3000 && failure().empty(); ++step) Step();
    faults.restarts = faults.taken_back = 0;  // the ring goes on until it is changed
    world_.Heal();
    const MonotonicTime enough = world_.now() + Duration::Seconds(30);
    const auto settled = [this] { return world_.AllWhole() && world_.Changed(); };
    while (failure().empty() && world_.now() < enough && !settled()) Step();
    for (int step = 0; step < 200 && failure().empty(); ++step) Step();
    if (failure().empty() && !world_.AllWhole()) Fail("not whole long after the last fault");
    if (failure().empty() && !world_.Changed()) Fail("not changed long after the last fault");
    run_.trace->End();
  }

  // Empty: everything was as it must be.
  const std::string& failure() const { return world_.failure; }
  const MembersWorld& world() const { return world_; }
  uint64_t reads_ = 0, partial_ = 0, acknowledged_ = 0, rewritten_ = 0, outdated_ = 0;

 private:
  struct Client {
    RingConfig view;
    MonotonicTime seen_at;
  };
  struct Target {
    int replica = 0;
    ProcessIncarnation meant = ProcessIncarnation::kNone;
    cache::MutationCore::Rings in, votes;
  };
  struct Write {
    size_t client = 0;
    RingConfig view;
    MonotonicTime deadline;
    uint64_t key = 0, value = 0;
    bool refused = false;
    std::vector<Target> left;
    cache::MutationCore core;
  };
  struct Read {
    RingConfig view;
    uint64_t key = 0, floor = 0, best = 0;
    cache::Owners owners;
    Mask whole = 0;
    std::vector<uint8_t> left;
    cache::ReadCore core;
  };

  void Fail(const std::string& why) { world_.failure = why; }

  void Step() {
    world_.Step();
    if (acked_in_ != world_.epoch()) acked_ = {};
    acked_in_ = world_.epoch();
    const MonotonicTime now = world_.now();
    const bool fast_views = world_.faults.fast_views;
    Client& client = clients_[rng_.Below(clients_.size())];
    // They hear from the scheduler now and then.
    if (rng_.Chance(fast_views ? 0.5 : 0.02) || now - client.seen_at > Duration::Millis(1500)) {
      client = {world_.View(), now};
    }
    if (!quiet_ && !client.view.replicas.empty() && now - client.seen_at < Duration::Millis(1500)) {
      if (rng_.Chance(0.06)) BeginWrite();
      if (rng_.Chance(0.3)) BeginRead(client);
    }
    if (!writes_.empty()) GoOnWriting(rng_.Below(writes_.size()));
    if (!reads_under_way_.empty()) GoOnReading(rng_.Below(reads_under_way_.size()));
  }

  void TraceAnswer(const Read& read, uint8_t owner, bool ghost, uint64_t value, bool outdated) {
    const bool counts = (read.whole & (1u << owner)) != 0 && !outdated;
    if (!world_.Traces(read.key) || !counts || read.view.epoch != world_.epoch()) {
      return;
    }
    const int i = MembersWorld::IndexOf(read.view.replicas[read.owners.replica[owner]].name);
    run_.trace->OnAnswer(i, ghost, read.view.configuration_id, value, read.core.complete());
  }

  void BeginWrite() {
    Write write;
    write.client = rng_.Below(clients_.size());
    if (clients_[write.client].view.replicas.empty()) return;
    write.deadline = world_.now() + cache::kWriteDeadlineMax;
    write.key = rng_.Below(kKeys);
    if (world_.Traces(write.key) &&
        std::any_of(writes_.begin(), writes_.end(),
                    [](const Write& other) { return other.key == kTraced; })) {
      return;
    }
    write.value = ++last_value_;
    Attempt(write);
    writes_.push_back(std::move(write));
  }
  // As BulkWrites.
  void Attempt(Write& write) {
    write.view = clients_[write.client].view;
    write.refused = false;
    write.left.clear();
    write.core = cache::MutationCore();
    const cache::WriteOwners owners =
        world_.RingsOf(write.view).WriteOwnersOf(MembersWorld::KeyOf(write.key));
    write.core.AddKey(owners.read, owners.other);
    for (uint8_t o = 0; o < owners.all.count; ++o) {
      const cache::Replica& replica = write.view.replicas[owners.all.replica[o]];
      write.left.push_back({MembersWorld::IndexOf(replica.name),
                            replica.incarnation,
                            owners.in[o],
                            {replica.whole, replica.votes_in_other}});
    }
  }
  void GoOnWriting(size_t at) {
    Write& write = writes_[at];
    const auto forget = [&] {
      if (world_.Traces(write.key)) run_.trace->OnWriteGivenUp();
      writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(at));
    };
    if (world_.now() >= write.deadline) return forget();
    const RingConfig& newest = clients_[write.client].view;
    if (write.refused && (newest.configuration_id > write.view.configuration_id ||
                          newest.epoch > write.view.epoch)) {
      ++rewritten_;
      if (world_.Traces(write.key)) run_.trace->OnWriteGivenUp();
      Attempt(write);
    }
    if (write.left.empty()) return;
    const size_t which = rng_.Below(write.left.size());
    const Target target = write.left[which];
    write.left.erase(write.left.begin() + static_cast<std::ptrdiff_t>(which));
    MembersWorld::Replica& r = world_.replica(target.replica);
    if (!world_.Serves(target.replica, target.meant) || rng_.Chance(losses_)) {
      write.core.OnFailure(0, target.in);
    } else if (r.view.configuration_id > write.view.configuration_id ||
               r.view.epoch > write.view.epoch) {
      write.refused = true;
    } else {
      r.values[write.key] = std::max(r.values[write.key], write.value);
      write.core.OnResult(0, cache::MutationResult::kApplied, target.in, target.votes);
      if (world_.Traces(write.key)) {
        run_.trace->OnWritten(target.replica, write.view.configuration_id, write.view.epoch,
                              write.value, {target.in, target.votes}, Acknowledged(write),
                              r.values[write.key]);
      }
    }
    if (!write.core.decided()) return;
    if (Acknowledged(write)) {
      ++acknowledged_;
      acked_[write.key] = std::max(acked_[write.key], write.value);
    }
    forget();
  }

  bool Acknowledged(const Write& write) const {
    return write.core.decided() && write.core.summary().failed == 0 &&
           clients_[write.client].view.epoch == write.view.epoch &&
           write.view.epoch == world_.epoch();
  }

  void BeginRead(const Client& client) {
    if (client.view.epoch != world_.epoch()) return;
    Read read;
    read.view = client.view;
    read.key = rng_.Below(kKeys);
    if (world_.Traces(read.key) &&
        std::any_of(reads_under_way_.begin(), reads_under_way_.end(),
                    [](const Read& other) { return other.key == kTraced; })) {
      return;
    }
    read.floor = acked_[read.key];
    read.owners = world_.RingsOf(read.view).read().OwnersOf(MembersWorld::KeyOf(read.key));
    for (uint8_t o = 0; o < read.owners.count; ++o) {
      if (read.view.replicas[read.owners.replica[o]].whole) {
        read.whole |= static_cast<Mask>(1u << o);
      }
    }
    Ask(read, read.core.Start(cache::ReadCore::Kind::kValue, cache::ReadMode::kConsistent,
                              read.owners.count, static_cast<Mask>((1u << read.owners.count) - 1),
                              read.whole, 0));
    reads_under_way_.push_back(std::move(read));
  }
  static void Ask(Read& read, Mask mask) {
    for (uint8_t o = 0; o < read.owners.count; ++o) {
      if ((mask & (1u << o)) != 0) read.left.push_back(o);
    }
  }
  void GoOnReading(size_t at) {
    Read& read = reads_under_way_[at];
    if (!read.core.done()) {
      const uint8_t owner = read.left.back();
      read.left.pop_back();
      const cache::Replica& meant = read.view.replicas[read.owners.replica[owner]];
      const int i = MembersWorld::IndexOf(meant.name);
      const MembersWorld::Replica& r = world_.replica(i);
      const bool ghost = r.ghost_life != 0 &&
                         meant.incarnation == MembersWorld::Life(r.ghost_life) &&
                         world_.now() < r.ghost_until;
      if (world_.Serves(i, meant.incarnation) || ghost) {
        const bool alive = !ghost;
        const uint64_t value = alive ? r.values[read.key] : r.ghost_values[read.key];
        const bool outdated =
            ReadRing(alive ? r.sealed : r.ghost_sealed) > ReadRing(read.view.configuration_id);
        outdated_ += outdated ? 1 : 0;
        read.best = std::max(read.best, value);
        Ask(read, read.core.OnAnswer(owner, 1, outdated));
        TraceAnswer(read, owner, ghost, value, outdated);
      } else {
        Ask(read, read.core.OnError(owner));
      }
    }
    if (!read.core.done()) return;
    if (world_.Traces(read.key)) run_.trace->OnReadGivenUp();
    ++reads_;
    partial_ += read.core.complete() ? 0 : 1;
    if (read.core.complete() && read.view.epoch == world_.epoch() && read.best < read.floor) {
      Fail("a read saw " + std::to_string(read.best) + " of " + std::to_string(read.floor));
    }
    reads_under_way_.erase(reads_under_way_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  Rng rng_;
  const TraceRun run_;
  MembersWorld world_;
  bool quiet_ = false;  // nobody writes and reads
  double losses_ = 0;
  std::array<Client, 3> clients_;
  std::vector<Write> writes_;
  std::vector<Read> reads_under_way_;
  uint64_t last_value_ = 0;
  std::array<uint64_t, kKeys> acked_{};
  CacheEpoch acked_in_{};
};

}  // namespace tailcast::cell
