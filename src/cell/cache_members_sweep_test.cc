// Registry, RepairCore, and clients and servers as far as their rules go, together: replicas that
// restart at any time, that the scheduler does not hear for a while, and whose view of the ring is
// old; schedulers that die with what they had not written; rings of every size that change, and
// changes that are taken back; writes and reads under way all the while. The oracle is spec Merge's
// ReadsSeeAcked: a complete read sees every write that was acknowledged before it began, in the
// same epoch. And when faults and changes end, all are whole and the change has ended (Settles).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/quorum_options.h"
#include "tailcast/cache/repair_core.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/registry_core.h"

namespace tailcast::cell {
namespace {

using cache::CacheEpoch;
using cache::ConfigurationId;
using cache::Mask;
using cache::RingConfig;
using cache::RingPhase;
using cache::WhichRing;

constexpr int kProcesses = 6;
constexpr uint64_t kKeys = 8;

// Values, numbers that grow, by the rules that servers and clients follow. Each is written seldom,
// so that what was lost is not hidden by a later write.
class Sweep {
 public:
  explicit Sweep(uint64_t seed) : rng_(seed) {
    for (int i = 0; i < kProcesses; ++i) {
      names_.push_back(std::string(1, static_cast<char>('a' + i)));
      StartReplica(i);
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
  struct Rings {
    cache::HashRing read, other;
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
    std::vector<uint8_t> left;
    cache::ReadCore core;
  };
  struct Page {
    int reader = 0, source = 0;
    ProcessIncarnation life = ProcessIncarnation::kNone;
    uint64_t reader_life = 0, id = 0;
  };

  static ProcessIncarnation Life(uint64_t n) { return ProcessIncarnation{n}; }
  static int IndexOf(const std::string& name) { return name[0] - 'a'; }
  static cache::Key KeyOf(uint64_t key) {
    const Hash128Value hash = Hash128("key", static_cast<uint32_t>(key));
    return {hash.hi, hash.lo};
  }
  RingConfig View() const { return MetadataRing(registry_->view()); }
  const Rings& RingsOf(const RingConfig& view) {
    const auto [at, is_new] = rings_.try_emplace(view.configuration_id);
    if (is_new) {
      at->second = {cache::HashRing(view), cache::HashRing(view, WhichRing::kOther)};
    }
    return at->second;
  }
  bool Owns(const RingConfig& view, uint64_t key, int i) {
    const Rings& rings = RingsOf(view);
    for (const cache::HashRing* ring : {&rings.read, &rings.other}) {
      const cache::Owners owners = ring->OwnersOf(KeyOf(key));
      for (uint8_t o = 0; o < owners.count; ++o) {
        if (view.replicas[owners.replica[o]].name == names_[i]) return true;
      }
    }
    return false;
  }

  void StartReplica(int i) {
    Replica& r = replicas_[i];
    ++r.life;
    r.there = true;
    r.values = {};
    r.view = {};
    r.sealed = {};
    r.repair =
        std::make_unique<cache::RepairCore>(cache::RepairOptions(), names_[i], Life(r.life), now_);
    r.next_lease = now_;
  }

  // A scheduler: it knows what was written.
  void Reopen() {
    durable_.set_scheduler_incarnation(durable_.scheduler_incarnation() + 1);
    registry_ = std::make_unique<RegistryCore>(options_, durable_, rng_.Next());
    Persist();
  }
  void Persist() {
    if (!registry_->NeedsWrite()) return;
    const v1::RegistrySnapshot snapshot = registry_->TakeSnapshot();
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
      durable_ = snapshot;
    }
    if (dies) return Reopen();
    registry_->OnWritten(snapshot);
  }

  void Step() {
    now_ = now_ + Duration::Micros(static_cast<int64_t>(rng_.Below(10000)));
    const int i = static_cast<int>(rng_.Below(kProcesses));
    Replica& r = replicas_[i];
    Fault(r);
    if (!r.there && now_ >= r.back_at) StartReplica(i);
    if (rng_.Chance(restarts_ / 4)) Reopen();
    if (rng_.Chance(changes_)) ChangeRing();
    Lease(i);
    if (r.there && now_ >= r.silent_until && (fast_views_ || rng_.Chance(0.2))) {
      r.view = View();
      r.repair->OnRing(now_, r.view);
    }
    if (r.there && rng_.Chance(0.3)) r.sealed = r.view.configuration_id;
    Pages(i);
    Client& client = clients_[rng_.Below(clients_.size())];
    // They hear from the scheduler now and then.
    if (rng_.Chance(fast_views_ ? 0.5 : 0.02) || now_ - client.seen_at > Duration::Millis(1500)) {
      client = {View(), now_};
    }
    if (!client.view.replicas.empty() && now_ - client.seen_at < Duration::Millis(1500)) {
      if (rng_.Chance(0.06)) BeginWrite();
      if (rng_.Chance(0.3)) BeginRead(client);
    }
    if (!writes_.empty()) GoOnWriting(rng_.Below(writes_.size()));
    if (!reads_under_way_.empty()) GoOnReading(rng_.Below(reads_under_way_.size()));
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

  void Lease(int i) {
    Replica& r = replicas_[i];
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
  }

  // The only page of each member has what it has when it is answered.
  void Pages(int i) {
    Replica& r = replicas_[i];
    if (r.there) {
      for (const cache::RepairCore::Ask& ask : r.repair->TakeDue(now_)) {
        pages_.push_back({i, IndexOf(ask.member), ask.incarnation, r.life, ask.id});
      }
    }
    if (pages_.empty() || rng_.Chance(0.5)) return;
    const size_t at = rng_.Below(pages_.size());
    const Page page = pages_[at];
    pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(at));
    Replica& reader = replicas_[page.reader];
    const Replica& source = replicas_[page.source];
    if (!reader.there || reader.life != page.reader_life) return;
    if (!Serves(page.source, page.life) || rng_.Chance(0.1)) {
      reader.repair->OnFailure(now_, page.id);
      return;
    }
    for (uint64_t key = 0; key < kKeys; ++key) {
      if (!Owns(source.view, key, page.reader)) continue;
      reader.values[key] = std::max(reader.values[key], source.values[key]);
    }
    reader.repair->OnPage(now_, page.id, {0, 10, source.view.configuration_id});
  }

  // Of a server: it is that life, and in a ring as far as it knows.
  bool Serves(int i, ProcessIncarnation meant) const {
    const Replica& r = replicas_[i];
    return r.there && meant == Life(r.life) &&
           (r.view.replicas.empty() ||
            std::any_of(r.view.replicas.begin(), r.view.replicas.end(),
                        [&](const cache::Replica& known) { return known.name == names_[i]; }));
  }

  void BeginWrite() {
    Write write;
    write.client = rng_.Below(clients_.size());
    if (clients_[write.client].view.replicas.empty()) return;
    write.deadline = now_ + cache::kWriteDeadlineMax;
    write.key = rng_.Below(kKeys);
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
    const Rings& rings = RingsOf(write.view);
    cache::Owners all = rings.read.OwnersOf(KeyOf(write.key));
    const uint8_t read = all.count;
    const cache::Owners other = rings.other.OwnersOf(KeyOf(write.key));
    for (uint8_t o = 0; o < other.count; ++o) all.Add(other.replica[o]);
    write.core.AddKey(read, other.count);
    for (uint8_t o = 0; o < all.count; ++o) {
      const cache::Replica& replica = write.view.replicas[all.replica[o]];
      write.left.push_back({IndexOf(replica.name),
                            replica.incarnation,
                            {o < read, other.Has(all.replica[o])},
                            {replica.whole, replica.votes_in_other}});
    }
  }
  void GoOnWriting(size_t at) {
    Write& write = writes_[at];
    const auto forget = [&] { writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(at)); };
    if (now_ >= write.deadline) return forget();
    const RingConfig& newest = clients_[write.client].view;
    if (write.refused && (newest.configuration_id > write.view.configuration_id ||
                          newest.epoch > write.view.epoch)) {
      ++rewritten_;
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
    }
    if (!write.core.decided()) return;
    if (write.core.summary().failed == 0 && newest.epoch == write.view.epoch &&
        write.view.epoch == CacheEpoch{durable_.cache_epoch()}) {
      ++acknowledged_;
      acked_[write.key] = std::max(acked_[write.key], write.value);
    }
    forget();
  }

  void BeginRead(const Client& client) {
    if (client.view.epoch != CacheEpoch{durable_.cache_epoch()}) return;
    Read read;
    read.view = client.view;
    read.key = rng_.Below(kKeys);
    read.floor = acked_[read.key];
    read.owners = RingsOf(read.view).read.OwnersOf(KeyOf(read.key));
    Mask whole = 0;
    for (uint8_t o = 0; o < read.owners.count; ++o) {
      if (read.view.replicas[read.owners.replica[o]].whole) whole |= static_cast<Mask>(1u << o);
    }
    Ask(read, read.core.Start(cache::ReadCore::Kind::kValue, cache::ReadMode::kConsistent,
                              read.owners.count, static_cast<Mask>((1u << read.owners.count) - 1),
                              whole, 0));
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
      } else {
        Ask(read, read.core.OnError(owner));
      }
    }
    if (!read.core.done()) return;
    ++reads_;
    partial_ += read.core.complete() ? 0 : 1;
    if (read.core.complete() && read.view.epoch == CacheEpoch{durable_.cache_epoch()} &&
        read.best < read.floor) {
      failure_ = "a read saw " + std::to_string(read.best) + " of " + std::to_string(read.floor);
    }
    reads_under_way_.erase(reads_under_way_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  Rng rng_;
  MonotonicTime now_ = MonotonicTime() + Duration::Seconds(1);
  double restarts_ = 0, changes_ = 0, losses_ = 0;
  bool slow_data_ = false;  // chunks take long to copy, so that both rings are written for long
  bool fast_views_ = true;
  std::vector<std::string> names_;
  RegistryOptions options_;
  v1::RegistrySnapshot durable_;
  std::unique_ptr<RegistryCore> registry_;
  std::map<ConfigurationId, Rings> rings_;
  std::array<Replica, kProcesses> replicas_;
  std::array<Client, 3> clients_;
  std::vector<Write> writes_;
  std::vector<Read> reads_under_way_;
  std::vector<Page> pages_;
  uint64_t last_value_ = 0;
  Memory acked_{};
};

TEST(CacheMembersSweepTest, CompleteReadsSeeWhatWasAcknowledged) {
  const char* text = std::getenv("TAILCAST_SEEDS");
  const uint64_t seeds = text == nullptr ? 60 : std::strtoull(text, nullptr, 10);
  uint64_t reads = 0, partial = 0, acknowledged = 0, epochs = 0, changed = 0, taken_back = 0,
           rewritten = 0, outdated = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Sweep sweep(seed);
    sweep.Run();
    ASSERT_EQ(sweep.failure_, "") << "seed " << seed;
    reads += sweep.reads_;
    partial += sweep.partial_;
    acknowledged += sweep.acknowledged_;
    epochs += sweep.epochs_;
    changed += sweep.changed_;
    taken_back += sweep.taken_back_;
    rewritten += sweep.rewritten_;
    outdated += sweep.outdated_;
  }
  EXPECT_GT(acknowledged, 20 * seeds);
  EXPECT_GT(epochs, seeds) << "the faults are too weak";
  EXPECT_GT(changed, 2 * seeds) << "too few rings changed";
  EXPECT_GT(taken_back, seeds / 4);
  EXPECT_GT(rewritten, seeds);
  EXPECT_GT(outdated, seeds);
  EXPECT_GT(partial * 100, reads) << "the faults are too weak";
  EXPECT_LT(partial * 2, reads) << "the faults are too strong";
}

}  // namespace
}  // namespace tailcast::cell
