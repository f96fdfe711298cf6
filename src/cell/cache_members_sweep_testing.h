// Registry, RepairCore, and clients and servers as far as their rules go, together: replicas that
// restart at any time, that the scheduler does not hear for a while, and whose view of the ring is
// old; schedulers that die with what they had not written; rings that change, and changes that are
// taken back; writes and reads under way all the while. The oracle is spec Merge's ReadsSeeAcked: a
// complete read sees every write that was acknowledged before it began, in the same epoch. And when
// faults and changes end, all are whole and the change has ended (Settles). For tests.
//
// Of a `TraceRun` it also writes down what happens to one key, a write and a read of it under way
// at once (merge_trace_testing.h).
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/quorum_options.h"
#include "tailcast/cache/repair_core.h"
#include "tailcast/cache/ring_pair.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/merge_trace_testing.h"
#include "tailcast/cell/registry_core.h"

namespace tailcast::cell {
using cache::CacheEpoch;
using cache::ConfigurationId;
using cache::Mask;
using cache::RingConfig;
using cache::RingPhase;

inline constexpr int kProcesses = 6;
inline constexpr uint64_t kKeys = 8;
inline constexpr uint64_t kTraced = 0;  // the key of a trace

// What happens while a trace of one key is written.
struct TraceRun {
  MergeTrace* trace = nullptr;
  double restarts = 0;      // of a replica, in a step
  bool one_by_one = false;  // nothing fails before all are whole again
  bool changes = false;     // the ring, from trace->from() to trace->to()
  double taken_back = 0;    // the change, in a step
  Duration rest = cache::RepairOptions().rest;
};

// Values, numbers that grow, by the rules that servers and clients follow. Each is written seldom,
// so that what was lost is not hidden by a later write.
class Sweep {
 public:
  explicit Sweep(uint64_t seed, TraceRun run = {}) : rng_(seed), run_(run) {
    for (int i = 0; i < kProcesses; ++i) {
      names_.push_back(std::string(1, static_cast<char>('a' + i)));
      StartReplica(i);
    }
    if (run_.trace != nullptr) {
      options_.cell = "cell";
      for (const int i : run_.trace->from()) options_.cache_replicas.push_back(names_[i]);
      options_.cache_spares = names_;
      Reopen();
      return;
    }
    const auto size = static_cast<int>(1 + rng_.Below(5));
    options_.cell = "cell";
    options_.cache_replicas.assign(names_.begin(), names_.begin() + size);
    options_.cache_spares = names_;
    Reopen();
  }

  void Run() {
    restarts_ = 0.002 * rng_.Unit();
    fast_views_ = rng_.Chance(0.5);
    changes_ = rng_.Chance(0.7) ? 0.003 : 0;
    losses_ = rng_.Chance(0.5) ? 0.1 : 0.4;
    slow_data_ = rng_.Chance(0.5);
    for (int step = 0; step < 20000 && failure_.empty(); ++step) Step();
    // Faults end: everything is whole soon, and serves.
    restarts_ = changes_ = 0;
    for (Replica& r : replicas_) r.back_at = r.silent_until = now_;
    // Slow views are half a second old, and one replica may have to wait for another.
    slow_data_ = false;
    const MonotonicTime enough = now_ + Duration::Seconds(fast_views_ ? 10 : 30);
    while (failure_.empty() && now_ < enough) Step();
    const RingConfig view = View();
    if (failure_.empty() && PhaseOf(view.configuration_id) != RingPhase::kSettled) {
      failure_ = "the ring still changes long after the last fault";
    }
    for (const cache::Replica& replica : view.replicas) {
      if (failure_.empty() && !replica.whole) {
        failure_ = "not whole long after the last fault: " + replica.name;
      }
    }
  }

  // As Run, for a few hundred events of a trace.
  void Trace() {
    TAILCAST_CHECK(run_.trace != nullptr, "a trace to write to");
    quiet_ = true;
    while (!AllWhole()) Step();
    clients_ = {};
    quiet_ = false;
    run_.trace->Begin(durable_);
    restarts_ = run_.restarts;
    changes_ = run_.changes ? 0.003 : 0;
    losses_ = 0.1;
    for (int step = 0; step < 3000 && failure_.empty(); ++step) Step();
    restarts_ = run_.taken_back = 0;  // the ring goes on until it is changed
    for (Replica& r : replicas_) r.back_at = r.silent_until = now_;
    const MonotonicTime enough = now_ + Duration::Seconds(30);
    while (failure_.empty() && now_ < enough && !(AllWhole() && Changed())) Step();
    for (int step = 0; step < 200 && failure_.empty(); ++step) Step();
    if (failure_.empty() && !AllWhole()) failure_ = "not whole long after the last fault";
    if (failure_.empty() && !Changed()) failure_ = "not changed long after the last fault";
    run_.trace->End();
  }

  std::string failure_;
  uint64_t reads_ = 0, partial_ = 0, acknowledged_ = 0, epochs_ = 0, changed_ = 0, taken_back_ = 0,
           rewritten_ = 0, outdated_ = 0;

 private:
  using Memory = std::array<uint64_t, kKeys>;
  struct Replica {
    uint64_t life = 0;
    bool there = true;
    Memory values{};
    std::unique_ptr<cache::RepairCore> repair;
    cache::RepairCore::State seen = cache::RepairCore::State::kIdle;  // of it, for the trace
    RingConfig view;
    ConfigurationId sealed{};
    MonotonicTime next_lease, back_at;
    MonotonicTime silent_until;  // alive, and not heard by the scheduler
    // What its former life left, which readers may still see.
    uint64_t ghost_life = 0;
    Memory ghost_values{};
    ConfigurationId ghost_sealed{};
    MonotonicTime ghost_until;
  };
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
  struct Page {
    int reader = 0, source = 0;
    ProcessIncarnation life = ProcessIncarnation::kNone;
    uint64_t reader_life = 0, id = 0;
    ConfigurationId gained_in{};
  };

  static ProcessIncarnation Life(uint64_t n) { return ProcessIncarnation{n}; }
  static int IndexOf(const std::string& name) { return name[0] - 'a'; }
  static cache::Key KeyOf(uint64_t key) {
    const Hash128Value hash = Hash128("key", static_cast<uint32_t>(key));
    return {hash.hi, hash.lo};
  }
  RingConfig View() const { return MetadataRing(registry_->view()); }
  const cache::RingPair& RingsOf(const RingConfig& view) {
    return rings_.try_emplace(view.configuration_id, view).first->second;
  }
  bool Owns(const RingConfig& view, uint64_t key, int i) {
    const cache::Replica* const replica = view.Find(names_[i]);
    return replica != nullptr &&
           RingsOf(view).Owns(KeyOf(key), static_cast<uint16_t>(replica - view.replicas.data()));
  }

  bool Gives(const RingConfig& view, uint64_t key, const Page& page) {
    if (page.gained_in == ConfigurationId{}) return Owns(view, key, page.reader);
    const cache::Replica* const replica = view.Find(names_[page.reader]);
    return replica != nullptr &&
           RingsOf(view).Gains(KeyOf(key), static_cast<uint16_t>(replica - view.replicas.data()));
  }

  // All who live; the registry hears of a death later.
  bool AllWhole() const {
    const RingConfig view = View();
    return PhaseOf(view.configuration_id) == RingPhase::kSettled &&
           std::all_of(view.replicas.begin(), view.replicas.end(),
                       [this](const cache::Replica& replica) {
                         const Replica& r = replicas_[IndexOf(replica.name)];
                         return replica.whole && r.there && replica.incarnation == Life(r.life);
                       });
  }
  // The ring of a trace is the one that it is changed to.
  bool Changed() const {
    return !run_.changes || std::all_of(run_.trace->to().begin(), run_.trace->to().end(),
                                        [view = View(), this](int i) {
                                          const cache::Replica* const r = view.Find(names_[i]);
                                          return r != nullptr && r->in_ring;
                                        });
  }

  // ---- The trace.
  bool Traces(uint64_t key) const { return run_.trace != nullptr && key == kTraced; }
  // After each call of a replica's RepairCore.
  void LookAtRepair(int i) {
    if (run_.trace == nullptr) return;
    Replica& r = replicas_[i];
    using State = cache::RepairCore::State;
    const State was = std::exchange(r.seen, r.repair->state());
    const bool copies = r.seen == State::kCopying || r.seen == State::kCopied;
    if (copies && (was == State::kIdle || was == State::kResting)) run_.trace->OnRested(i);
  }
  void LookAtGhosts() {
    if (run_.trace == nullptr) return;
    for (int i = 0; i < kProcesses; ++i) {
      if (replicas_[i].ghost_life == 0 || now_ >= replicas_[i].ghost_until) {
        run_.trace->OnGhostEnds(i);
      }
    }
  }
  void LookAtLeases() {
    if (run_.trace == nullptr) return;
    std::array<bool, MergeTrace::kReplicasMax> there{};
    for (const cache::Replica& replica : View().replicas) {
      there[IndexOf(replica.name)] = replica.incarnation != ProcessIncarnation::kNone;
    }
    run_.trace->OnLook(now_, options_.fence_after, there);
  }
  void TraceAnswer(const Read& read, uint8_t owner, bool ghost, uint64_t value, bool outdated) {
    const bool counts = (read.whole & (1u << owner)) != 0 && !outdated;
    if (!Traces(read.key) || !counts || read.view.epoch != CacheEpoch{durable_.cache_epoch()}) {
      return;
    }
    const int i = IndexOf(read.view.replicas[read.owners.replica[owner]].name);
    run_.trace->OnAnswer(i, ghost, read.view.configuration_id, value, read.core.complete());
  }

  void StartReplica(int i) {
    Replica& r = replicas_[i];
    if (run_.trace != nullptr) run_.trace->OnStart(i);
    r.seen = cache::RepairCore::State::kIdle;
    ++r.life;
    r.there = true;
    r.values = {};
    r.view = {};
    r.sealed = {};
    cache::RepairOptions options;
    options.rest = run_.rest;
    r.repair = std::make_unique<cache::RepairCore>(options, names_[i], Life(r.life), now_);
    r.next_lease = now_;
  }

  // A scheduler: it knows what was written. Its configuration may declare other caches.
  void Reopen() {
    if (run_.trace == nullptr && rng_.Chance(changes_ * 50)) {
      std::vector<std::string> declared;
      for (const std::string& name : names_) {
        if (rng_.Chance(0.5)) declared.push_back(name);
      }
      if (!declared.empty()) options_.cache_replicas = declared;
    }
    durable_.set_scheduler_incarnation(durable_.scheduler_incarnation() + 1);
    registry_ = std::make_unique<RegistryCore>(options_, durable_, rng_.Next());
    Persist();
  }
  void Persist() {
    if (!registry_->NeedsWrite()) return;
    const RegistryCore::Snapshot taken = registry_->TakeSnapshot();
    const v1::RegistrySnapshot& snapshot = taken.state;
    const bool dies = rng_.Chance(restarts_ * 10);
    if (!dies || rng_.Chance(0.5)) {
      if (snapshot.cache_epoch() != durable_.cache_epoch()) {
        ++epochs_;
        acked_ = {};
      }
      const auto phase = PhaseOf(ConfigurationId{snapshot.ring_configuration_id()});
      if (snapshot.ring_configuration_id() != durable_.ring_configuration_id() &&
          phase == RingPhase::kNew) {
        ++changed_;
      }
      if (run_.trace != nullptr) run_.trace->OnDurable(durable_, snapshot);
      durable_ = snapshot;
    }
    if (dies) return Reopen();
    registry_->OnWritten(taken);
  }

  void Step() {
    now_ = now_ + Duration::Micros(static_cast<int64_t>(rng_.Below(10000)));
    const int i = static_cast<int>(rng_.Below(kProcesses));
    Replica& r = replicas_[i];
    LookAtGhosts();
    if (!run_.one_by_one || MayFail(i)) Fault(r);
    if (!r.there && now_ >= r.back_at) StartReplica(i);
    if (rng_.Chance(restarts_ / 4)) Reopen();
    if (rng_.Chance(changes_)) ChangeRing();
    if (run_.taken_back > 0 && rng_.Chance(run_.taken_back)) TakeBack();
    Lease(i);
    if (r.there && now_ >= r.silent_until && (fast_views_ || rng_.Chance(0.2))) {
      r.view = View();
      if (run_.trace != nullptr) run_.trace->OnRing(i, r.view.configuration_id);
      r.repair->OnRing(now_, r.view);
      LookAtRepair(i);
    }
    if (r.there && rng_.Chance(0.3)) {
      r.sealed = r.view.configuration_id;
      if (run_.trace != nullptr) run_.trace->OnSealed(i, r.sealed);
    }
    Pages(i);
    Client& client = clients_[rng_.Below(clients_.size())];
    // They hear from the scheduler now and then.
    if (rng_.Chance(fast_views_ ? 0.5 : 0.02) || now_ - client.seen_at > Duration::Millis(1500)) {
      client = {View(), now_};
    }
    if (!quiet_ && !client.view.replicas.empty() &&
        now_ - client.seen_at < Duration::Millis(1500)) {
      if (rng_.Chance(0.06)) BeginWrite();
      if (rng_.Chance(0.3)) BeginRead(client);
    }
    if (!writes_.empty()) GoOnWriting(rng_.Below(writes_.size()));
    if (!reads_under_way_.empty()) GoOnReading(rng_.Below(reads_under_way_.size()));
  }

  // All others are there and whole.
  bool MayFail(int i) const {
    for (const Replica& r : replicas_) {
      if (&r != &replicas_[i] && (!r.there || now_ < r.silent_until)) return false;
    }
    const RingConfig view = View();
    return std::all_of(view.replicas.begin(), view.replicas.end(), [&](const auto& replica) {
      return replica.name == names_[i] || replica.whole || !replica.in_ring;
    });
  }
  void Fault(Replica& r) {
    if (r.there && rng_.Chance(restarts_)) {
      if (rng_.Chance(0.7)) {
        r.ghost_life = r.life;
        r.ghost_values = r.values;
        r.ghost_sealed = r.sealed;
        r.ghost_until = now_ + Duration::Millis(2000);
      }
      r.there = false;
      r.back_at = now_ + Duration::Millis(static_cast<int64_t>(rng_.Below(4000)));
    }
    if (rng_.Chance(restarts_)) {
      r.silent_until = now_ + Duration::Millis(static_cast<int64_t>(rng_.Below(6000)));
    }
  }

  void ChangeRing() {
    if (run_.trace != nullptr) return ChangeTracedRing();
    v1::ChangeRingRequest request;
    const bool changing =
        PhaseOf(ConfigurationId{durable_.ring_configuration_id()}) == RingPhase::kBoth;
    if (changing && !rng_.Chance(0.3)) return;
    request.set_cancel(changing);
    for (const std::string& name : names_) {
      if (!changing && rng_.Chance(0.6)) request.add_replicas(name);
    }
    if (registry_->ChangeRing(request).ok() && changing) ++taken_back_;
    Persist();
  }

  void ChangeTracedRing() {
    const RingConfig view = View();
    if (PhaseOf(view.configuration_id) != RingPhase::kSettled) return;
    v1::ChangeRingRequest request;
    for (const int to : run_.trace->to()) request.add_replicas(names_[to]);
    if (!registry_->ChangeRing(request).ok()) return;  // some are not there
    Persist();
  }
  void TakeBack() {
    if (PhaseOf(View().configuration_id) != RingPhase::kBoth) return;
    v1::ChangeRingRequest request;
    request.set_cancel(true);
    if (registry_->ChangeRing(request).ok()) ++taken_back_;
    Persist();
  }

  void Lease(int i) {
    Replica& r = replicas_[i];
    LookAtLeases();
    if (r.there && now_ >= r.next_lease && now_ >= r.silent_until && run_.trace != nullptr) {
      run_.trace->OnAction(i);
    }
    if (r.there && now_ >= r.next_lease && now_ >= r.silent_until) {
      v1::ProcessInfo info;
      info.set_name(names_[i]);
      info.set_role(v1::ROLE_CACHE);
      info.set_incarnation(r.life);
      info.set_rpc_address(names_[i]);
      info.set_copied_epoch(Raw(r.repair->copied()));
      info.set_filled_configuration(Raw(r.repair->filled()));
      if (!slow_data_ || rng_.Chance(0.05)) {
        info.set_data_filled_configuration(Raw(r.repair->filled()));
      }
      info.set_sealed_configuration(Raw(r.sealed));
      const auto reply = registry_->Register(now_, info);
      if (!reply.ok()) failure_ = "refused to register: " + reply.status().ToString();
      r.next_lease = now_ + Duration::Millis(333);
    }
    if (registry_->NextExpiry() <= now_) registry_->Expire(now_);
    Persist();
    LookAtLeases();
  }

  // The only page of each member has what it has when it is answered.
  void Pages(int i) {
    Replica& r = replicas_[i];
    if (r.there) {
      for (const cache::RepairCore::Ask& ask : r.repair->TakeDue(now_)) {
        pages_.push_back({i, IndexOf(ask.member), ask.incarnation, r.life, ask.id, ask.gained_in});
      }
      LookAtRepair(i);
    }
    if (pages_.empty() || rng_.Chance(0.5)) return;
    const size_t at = rng_.Below(pages_.size());
    const Page page = pages_[at];
    pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(at));
    Replica& reader = replicas_[page.reader];
    const Replica& source = replicas_[page.source];
    if (!reader.there || reader.life != page.reader_life) return;
    const bool another =
        page.gained_in != ConfigurationId{} && page.gained_in != source.view.configuration_id;
    if (!Serves(page.source, page.life) || another || rng_.Chance(0.1)) {
      reader.repair->OnFailure(now_, page.id);
      return;
    }
    for (uint64_t key = 0; key < kKeys; ++key) {
      if (!Gives(source.view, key, page)) continue;
      if (Traces(key)) run_.trace->OnCopy(page.reader, page.source, source.values[key]);
      reader.values[key] = std::max(reader.values[key], source.values[key]);
    }
    reader.repair->OnPage(now_, page.id, {0, 10, source.view.configuration_id});
    LookAtRepair(page.reader);
  }

  // Of a server: it is that life, and in a ring as far as it knows.
  bool Serves(int i, ProcessIncarnation meant) const {
    const Replica& r = replicas_[i];
    return r.there && meant == Life(r.life) &&
           (r.view.replicas.empty() || r.view.Find(names_[i]) != nullptr);
  }

  void BeginWrite() {
    Write write;
    write.client = rng_.Below(clients_.size());
    if (clients_[write.client].view.replicas.empty()) return;
    write.deadline = now_ + cache::kWriteDeadlineMax;
    write.key = rng_.Below(kKeys);
    if (Traces(write.key) && std::any_of(writes_.begin(), writes_.end(),
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
    const cache::WriteOwners owners = RingsOf(write.view).WriteOwnersOf(KeyOf(write.key));
    write.core.AddKey(owners.read, owners.other);
    for (uint8_t o = 0; o < owners.all.count; ++o) {
      const cache::Replica& replica = write.view.replicas[owners.all.replica[o]];
      write.left.push_back({IndexOf(replica.name),
                            replica.incarnation,
                            owners.in[o],
                            {replica.whole, replica.votes_in_other}});
    }
  }
  void GoOnWriting(size_t at) {
    Write& write = writes_[at];
    const auto forget = [&] {
      if (Traces(write.key)) run_.trace->OnWriteGivenUp();
      writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(at));
    };
    if (now_ >= write.deadline) return forget();
    const RingConfig& newest = clients_[write.client].view;
    if (write.refused && (newest.configuration_id > write.view.configuration_id ||
                          newest.epoch > write.view.epoch)) {
      ++rewritten_;
      if (Traces(write.key)) run_.trace->OnWriteGivenUp();
      Attempt(write);
    }
    if (write.left.empty()) return;
    const size_t which = rng_.Below(write.left.size());
    const Target target = write.left[which];
    write.left.erase(write.left.begin() + static_cast<std::ptrdiff_t>(which));
    Replica& r = replicas_[target.replica];
    if (!Serves(target.replica, target.meant) || rng_.Chance(losses_)) {
      write.core.OnFailure(0, target.in);
    } else if (r.view.configuration_id > write.view.configuration_id ||
               r.view.epoch > write.view.epoch) {
      write.refused = true;
    } else {
      r.values[write.key] = std::max(r.values[write.key], write.value);
      write.core.OnResult(0, cache::MutationResult::kApplied, target.in, target.votes);
      if (Traces(write.key)) {
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
           write.view.epoch == CacheEpoch{durable_.cache_epoch()};
  }

  void BeginRead(const Client& client) {
    if (client.view.epoch != CacheEpoch{durable_.cache_epoch()}) return;
    Read read;
    read.view = client.view;
    read.key = rng_.Below(kKeys);
    if (Traces(read.key) && std::any_of(reads_under_way_.begin(), reads_under_way_.end(),
                                        [](const Read& other) { return other.key == kTraced; })) {
      return;
    }
    read.floor = acked_[read.key];
    read.owners = RingsOf(read.view).read().OwnersOf(KeyOf(read.key));
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
      const int i = IndexOf(meant.name);
      const Replica& r = replicas_[i];
      const bool ghost =
          r.ghost_life != 0 && meant.incarnation == Life(r.ghost_life) && now_ < r.ghost_until;
      if (Serves(i, meant.incarnation) || ghost) {
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
    if (Traces(read.key)) run_.trace->OnReadGivenUp();
    ++reads_;
    partial_ += read.core.complete() ? 0 : 1;
    if (read.core.complete() && read.view.epoch == CacheEpoch{durable_.cache_epoch()} &&
        read.best < read.floor) {
      failure_ = "a read saw " + std::to_string(read.best) + " of " + std::to_string(read.floor);
    }
    reads_under_way_.erase(reads_under_way_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  Rng rng_;
  TraceRun run_;
  bool quiet_ = false;  // nobody writes and reads
  MonotonicTime now_ = MonotonicTime() + Duration::Seconds(1);
  double restarts_ = 0, changes_ = 0, losses_ = 0;
  bool slow_data_ = false;  // chunks take long to copy, so that both rings are written for long
  bool fast_views_ = true;
  std::vector<std::string> names_;
  RegistryOptions options_;
  v1::RegistrySnapshot durable_;
  std::unique_ptr<RegistryCore> registry_;
  std::map<ConfigurationId, cache::RingPair> rings_;
  std::array<Replica, kProcesses> replicas_;
  std::array<Client, 3> clients_;
  std::vector<Write> writes_;
  std::vector<Read> reads_under_way_;
  std::vector<Page> pages_;
  uint64_t last_value_ = 0;
  Memory acked_{};
};

}  // namespace tailcast::cell
