// Registry, RepairCore, and servers as far as their rules go, together: replicas that restart at
// any time, that the scheduler does not hear for a while, and whose view of the ring is old;
// schedulers that die with what they had not written; rings that change, and changes that are taken
// back. Who reads and writes there, and the oracle, are in cache_members_sweep_testing.h. For
// tests.
//
// Of a `TraceRun` it also writes down what happens to one key (merge_trace_testing.h).
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/repair_core.h"
#include "tailcast/cache/ring_pair.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/merge_trace_testing.h"
#include "tailcast/cell/registry_core.h"

namespace tailcast::cell {
using cache::CacheEpoch;
using cache::ConfigurationId;
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

// What goes wrong, and how often, in a step.
struct MembersFaults {
  double restarts = 0;      // of a replica; of the scheduler less often
  double changes = 0;       // of the ring
  double taken_back = 0;    // of a change of the ring that is traced
  bool one_by_one = false;  // nothing fails before all are whole again
  bool slow_data = false;   // chunks take long to copy, so that both rings are written for long
  bool fast_views = true;   // who asks for the ring does so often
};

// The replicas hold values, numbers that grow; clients read and write them while they serve.
class MembersWorld {
 public:
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

  // Draws from `rng`, which outlives it, as does what `run` refers to.
  MembersWorld(Rng& rng, const TraceRun& run) : rng_(rng), run_(run) {
    for (int i = 0; i < kProcesses; ++i) {
      names_.push_back(std::string(1, static_cast<char>('a' + i)));
      StartReplica(i);
    }
    options_.cell = "cell";
    options_.cache_spares = names_;
    if (run_.trace != nullptr) {
      for (const int i : run_.trace->from()) options_.cache_replicas.push_back(names_[i]);
    } else {
      const auto size = static_cast<int>(1 + rng_.Below(5));
      options_.cache_replicas.assign(names_.begin(), names_.begin() + size);
    }
    Reopen();
  }

  // Time passes, and one replica and the scheduler do something.
  void Step() {
    now_ = now_ + Duration::Micros(static_cast<int64_t>(rng_.Below(10000)));
    const int i = static_cast<int>(rng_.Below(kProcesses));
    Replica& r = replicas_[i];
    LookAtGhosts();
    if (!faults.one_by_one || MayFail(i)) Fault(r);
    if (!r.there && now_ >= r.back_at) StartReplica(i);
    if (rng_.Chance(faults.restarts / 4)) Reopen();
    if (rng_.Chance(faults.changes)) ChangeRing();
    if (faults.taken_back > 0 && rng_.Chance(faults.taken_back)) TakeBack();
    Lease(i);
    if (r.there && now_ >= r.silent_until && (faults.fast_views || rng_.Chance(0.2))) {
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
  }
  // Who is away or not heard comes back.
  void Heal() {
    for (Replica& r : replicas_) r.back_at = r.silent_until = now_;
  }

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

  // Of a server: it is that life, and in a ring as far as it knows.
  bool Serves(int i, ProcessIncarnation meant) const {
    const Replica& r = replicas_[i];
    return r.there && meant == Life(r.life) &&
           (r.view.replicas.empty() || r.view.Find(names_[i]) != nullptr);
  }

  MonotonicTime now() const { return now_; }
  // That the scheduler has written.
  const v1::RegistrySnapshot& durable() const { return durable_; }
  CacheEpoch epoch() const { return CacheEpoch{durable_.cache_epoch()}; }
  Replica& replica(int i) { return replicas_[i]; }
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

  bool Traces(uint64_t key) const { return run_.trace != nullptr && key == kTraced; }

  MembersFaults faults;
  std::string failure;  // of what must not fail
  uint64_t epochs = 0, changed = 0, taken_back = 0;

 private:
  struct Page {
    int reader = 0, source = 0;
    ProcessIncarnation life = ProcessIncarnation::kNone;
    uint64_t reader_life = 0, id = 0;
    ConfigurationId gained_in{};
  };

  bool Gives(const RingConfig& view, uint64_t key, const Page& page) {
    if (page.gained_in == ConfigurationId{}) return Owns(view, key, page.reader);
    const cache::Replica* const replica = view.Find(names_[page.reader]);
    return replica != nullptr &&
           RingsOf(view).Gains(KeyOf(key), static_cast<uint16_t>(replica - view.replicas.data()));
  }

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
    if (run_.trace == nullptr && rng_.Chance(faults.changes * 50)) {
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
    const bool dies = rng_.Chance(faults.restarts * 10);
    if (!dies || rng_.Chance(0.5)) {
      if (snapshot.cache_epoch() != durable_.cache_epoch()) {
        ++epochs;
      }
      const auto phase = PhaseOf(ConfigurationId{snapshot.ring_configuration_id()});
      if (snapshot.ring_configuration_id() != durable_.ring_configuration_id() &&
          phase == RingPhase::kNew) {
        ++changed;
      }
      if (run_.trace != nullptr) run_.trace->OnDurable(durable_, snapshot);
      durable_ = snapshot;
    }
    if (dies) return Reopen();
    registry_->OnWritten(taken);
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
    if (r.there && rng_.Chance(faults.restarts)) {
      if (rng_.Chance(0.7)) {
        r.ghost_life = r.life;
        r.ghost_values = r.values;
        r.ghost_sealed = r.sealed;
        r.ghost_until = now_ + Duration::Millis(2000);
      }
      r.there = false;
      r.back_at = now_ + Duration::Millis(static_cast<int64_t>(rng_.Below(4000)));
    }
    if (rng_.Chance(faults.restarts)) {
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
    if (registry_->ChangeRing(request).ok() && changing) ++taken_back;
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
    if (registry_->ChangeRing(request).ok()) ++taken_back;
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
      if (!faults.slow_data || rng_.Chance(0.05)) {
        info.set_data_filled_configuration(Raw(r.repair->filled()));
      }
      info.set_sealed_configuration(Raw(r.sealed));
      const auto reply = registry_->Register(now_, info);
      if (!reply.ok()) {
        // The scheduler that knew it ended before that was written, and it has copied since: it
        // ends.
        if (info.copied_epoch() == 0 && info.filled_configuration() == 0) {
          failure = "refused to register: " + reply.status().ToString();
        }
        r.there = false;
        r.back_at = now_;
        return;
      }
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

  Rng& rng_;
  const TraceRun run_;
  MonotonicTime now_ = MonotonicTime() + Duration::Seconds(1);
  std::vector<std::string> names_;
  RegistryOptions options_;
  v1::RegistrySnapshot durable_;
  std::unique_ptr<RegistryCore> registry_;
  std::map<ConfigurationId, cache::RingPair> rings_;
  std::array<Replica, kProcesses> replicas_;
  std::vector<Page> pages_;
};

}  // namespace tailcast::cell
