// The registry's word on who is whole, by itself and together with RepairCore: replicas that
// restart at any time, clients and replicas whose view of the ring is old, writes and reads under
// way all the while. The oracle is spec Merge's ReadsSeeAcked: a complete read sees every write
// that was acknowledged before it began, in the same epoch.
#include "tailcast/cell/cache_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/quorum_options.h"
#include "tailcast/cache/repair_core.h"

namespace tailcast::cell {
namespace {

using cache::CacheEpoch;

MonotonicTime At(int64_t ms) { return MonotonicTime() + Duration::Millis(ms); }
constexpr Duration kFence = Duration::Seconds(2);
ProcessIncarnation Life(uint64_t n) { return ProcessIncarnation{n}; }

class CacheMembersTest : public testing::Test {
 protected:
  CacheMembers Open(const std::vector<std::string>& names) {
    return CacheMembers(saved_, names, kFence);
  }
  // A deployment whose three replicas are whole, in life 1.
  CacheMembers Running() {
    CacheMembers members = Open({"a", "b", "c"});
    for (const char* name : {"a", "b", "c"}) {
      members.OnRegistered(At(0), name, Life(1), members.epoch());
    }
    return members;
  }
  v1::RegistrySnapshot saved_;
};

TEST_F(CacheMembersTest, ANewRingIsAnEpochInWhichNobodyHasAnythingToCopy) {
  CacheMembers members = Open({"a", "b", "c"});
  EXPECT_TRUE(members.changed());
  EXPECT_EQ(members.epoch(), CacheEpoch{1});
  EXPECT_EQ(members.configuration_id(), cache::ConfigurationId{1});
  EXPECT_TRUE(members.members().at("a").excused);
  members.OnRegistered(At(0), "a", Life(1), CacheEpoch{});
  EXPECT_TRUE(members.members().at("a").excused) << "it was not asked for yet";
  members.OnRegistered(At(0), "a", Life(1), CacheEpoch{1});
  EXPECT_EQ(members.members().at("a"), (CacheMembers::Member{Life(1), false}));

  members.Save(&saved_);
  EXPECT_FALSE(Open({"c", "b", "a"}).changed());
  CacheMembers more = Open({"a", "b", "c", "d"});
  EXPECT_TRUE(more.changed());
  EXPECT_EQ(more.epoch(), CacheEpoch{2});
  EXPECT_EQ(more.configuration_id(), cache::ConfigurationId{2});
  EXPECT_EQ(more.members().at("a"), (CacheMembers::Member{Life(1), true}));
}

TEST_F(CacheMembersTest, OneThatBeginsAnewIsWholeWhenItHasCopied) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(10), "a", Life(2), CacheEpoch{});
  EXPECT_EQ(members.members().at("a"), (CacheMembers::Member{Life(1), false}));
  EXPECT_EQ(members.NextTime(), MonotonicTime::Max());
  members.OnRegistered(At(5000), "a", Life(2), epoch);
  EXPECT_EQ(members.members().at("a"), (CacheMembers::Member{Life(2), false}));
  EXPECT_EQ(members.epoch(), epoch);
}

TEST_F(CacheMembersTest, TwoThatBeganAnewRaiseTheEpoch) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(10), "a", Life(2), CacheEpoch{});
  members.OnRegistered(At(20), "b", Life(2), CacheEpoch{});
  EXPECT_EQ(members.epoch(), Successor(epoch));
  EXPECT_TRUE(members.members().at("a").excused);
  EXPECT_TRUE(members.members().at("b").excused);
  EXPECT_FALSE(members.members().at("c").excused);
  members.OnRegistered(At(30), "a", Life(2), epoch);
  EXPECT_TRUE(members.members().at("a").excused) << "what it copied for the epoch before";
  members.OnRegistered(At(40), "a", Life(2), Successor(epoch));
  EXPECT_FALSE(members.members().at("a").excused);
  members.OnRegistered(At(50), "b", Life(3), CacheEpoch{});
  EXPECT_EQ(members.epoch(), Successor(epoch)) << "b has what c and a have to copy from";
}

TEST_F(CacheMembersTest, OneThatIsGoneIsGivenUpOnlyWhenAnotherOneNeedsItForLong) {
  CacheMembers members = Running();
  const CacheEpoch epoch = members.epoch();
  members.OnGone(At(1000), "b");
  members.OnTime(At(100000));
  EXPECT_EQ(members.epoch(), epoch) << "nobody needs it";
  members.OnRegistered(At(100000), "b", Life(1), CacheEpoch{});
  EXPECT_EQ(members.epoch(), epoch) << "and it is whole when it is back";
  members.OnGone(At(101000), "b");
  members.OnRegistered(At(101500), "a", Life(2), CacheEpoch{});
  EXPECT_EQ(members.NextTime(), At(103000));
  members.OnTime(At(102999));
  EXPECT_EQ(members.epoch(), epoch);
  members.OnTime(At(103000));
  EXPECT_EQ(members.epoch(), Successor(epoch));
  EXPECT_TRUE(members.members().at("b").excused);
  members.OnRegistered(At(103100), "b", Life(1), CacheEpoch{});
  EXPECT_TRUE(members.members().at("b").excused) << "it missed what was written without it";
}

TEST_F(CacheMembersTest, TheOnlyReplicaLosesAllWhenItBeginsAnew) {
  CacheMembers members = Open({"a"});
  members.OnRegistered(At(0), "a", Life(1), members.epoch());
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(10), "a", Life(2), CacheEpoch{});
  EXPECT_EQ(members.epoch(), Successor(epoch));
  EXPECT_TRUE(members.members().at("a").excused);
}

TEST_F(CacheMembersTest, AfterARestartOfTheSchedulerNobodyIsGivenUpBeforeHeCouldRegister) {
  Running().Save(&saved_);
  CacheMembers members = Open({"a", "b", "c"});
  EXPECT_FALSE(members.changed());
  const CacheEpoch epoch = members.epoch();
  members.OnRegistered(At(50), "a", Life(2), CacheEpoch{});
  EXPECT_EQ(members.NextTime(), At(50) + kFence);
  members.OnRegistered(At(400), "b", Life(1), CacheEpoch{});
  members.OnRegistered(At(400), "c", Life(1), CacheEpoch{});
  EXPECT_EQ(members.NextTime(), MonotonicTime::Max());
  EXPECT_EQ(members.epoch(), epoch);
}

// ---- Together with RepairCore ----

// Values, numbers that grow, on three replicas, by the rules that servers and clients follow. Each
// is written seldom, so that what was lost is not hidden by a later write.
class Sweep {
 public:
  explicit Sweep(uint64_t seed) : rng_(seed) {
    for (int i = 0; i < 3; ++i) {
      names_.push_back(std::string(1, static_cast<char>('a' + i)));
      StartReplica(i);
    }
    Reopen();
  }

  void Run() {
    restarts_ = 0.002 * rng_.Unit();
    fast_views_ = rng_.Chance(0.5);
    for (int step = 0; step < 10000 && failure_.empty(); ++step) Step();
    // Faults end: everything is whole soon, and serves.
    restarts_ = 0;
    for (Replica& r : replicas_) r.back_at = r.silent_until = now_;
    // Slow views are half a second old, and one replica may have to wait for another.
    const MonotonicTime enough = now_ + Duration::Seconds(fast_views_ ? 5 : 15);
    while (failure_.empty() && now_ < enough) Step();
    for (int i = 0; i < 3 && failure_.empty(); ++i) {
      if (!AdmittedNow(i)) failure_ = "not whole long after the last fault: " + names_[i];
    }
  }

  std::string failure_;
  uint64_t reads_ = 0, partial_ = 0, acknowledged_ = 0, epochs_ = 0;

 private:
  static constexpr uint64_t kKeys = 8;
  using Memory = std::array<uint64_t, kKeys>;
  struct Replica {
    uint64_t life = 0;
    bool there = true;
    Memory values{};
    std::unique_ptr<cache::RepairCore> repair;
    cache::RingConfig view;
    MonotonicTime next_lease, back_at;
    MonotonicTime silent_until;  // alive, and not heard by the scheduler
    // What its former life left, which readers may still see.
    uint64_t ghost_life = 0;
    Memory ghost_values{};
    MonotonicTime ghost_until;
  };
  struct Client {
    cache::RingConfig view;
  };
  struct Write {
    size_t client;
    cache::RingConfig view;
    MonotonicTime deadline;
    uint64_t key, value;
    std::vector<int> left;
    cache::MutationCore core;
  };
  struct Read {
    cache::RingConfig view;
    uint64_t key = 0, floor = 0, best = 0;
    std::vector<int> left;
    cache::ReadCore core;
  };
  struct Page {
    int reader, source;
    ProcessIncarnation life;
    uint64_t reader_life, id;
  };

  void StartReplica(int i) {
    Replica& r = replicas_[i];
    ++r.life;
    r.there = true;
    r.values = {};
    r.view = {};
    r.repair =
        std::make_unique<cache::RepairCore>(cache::RepairOptions(), names_[i], Life(r.life), now_);
    r.next_lease = now_;
  }
  void Reopen() {
    members_ = std::make_unique<CacheMembers>(durable_, names_, kFence);
    Persist();
  }
  void Persist() {
    if (!members_->changed()) return;
    const uint64_t before = durable_.cache_epoch();
    members_->Save(&durable_);
    if (durable_.cache_epoch() != before) {
      ++epochs_;
      acked_ = {};
    }
  }
  bool AdmittedNow(int i) const {
    const CacheMembers::Member& member = members_->members().at(names_[i]);
    return replicas_[i].there && member.whole == Life(replicas_[i].life) && !member.excused;
  }
  // As RegistryCore shows it.
  cache::RingConfig View() const {
    cache::RingConfig view;
    view.configuration_id = cache::ConfigurationId{durable_.ring_configuration_id()};
    view.epoch = CacheEpoch{durable_.cache_epoch()};
    for (int i = 0; i < 3; ++i) {
      const v1::CacheMember& member = durable_.cache_members(i);
      cache::Replica replica;
      replica.name = names_[i];
      replica.excused = member.excused();
      replica.rests = member.whole_incarnation() != 0;
      replica.whole = false;
      if (registered_[i] != ProcessIncarnation::kNone) {
        replica.rpc_address = names_[i];
        replica.incarnation = registered_[i];
        replica.whole = !member.excused() && Life(member.whole_incarnation()) == registered_[i];
      }
      view.replicas.push_back(std::move(replica));
    }
    return view;
  }

  void Step() {
    now_ = now_ + Duration::Micros(static_cast<int64_t>(rng_.Below(20000)));
    const int i = static_cast<int>(rng_.Below(3));
    Replica& r = replicas_[i];
    if (r.there && rng_.Chance(restarts_)) {
      if (rng_.Chance(0.7)) {
        r.ghost_life = r.life;
        r.ghost_values = r.values;
        r.ghost_until = now_ + Duration::Millis(2000);
      }
      r.there = false;
      r.back_at = now_ + Duration::Millis(static_cast<int64_t>(rng_.Below(4000)));
    }
    if (!r.there && now_ >= r.back_at) StartReplica(i);
    if (rng_.Chance(restarts_)) {
      r.silent_until = now_ + Duration::Millis(static_cast<int64_t>(rng_.Below(6000)));
    }
    if (rng_.Chance(restarts_ / 4)) Reopen();
    Lease(i);
    if (r.there && now_ >= r.silent_until && (fast_views_ || rng_.Chance(0.1))) {
      r.view = View();
      r.repair->OnRing(now_, r.view);
    }
    Pages(i);
    Client& client = clients_[rng_.Below(clients_.size())];
    if (rng_.Chance(fast_views_ ? 0.5 : 0.05)) client.view = View();
    if (!client.view.replicas.empty()) {
      if (rng_.Chance(0.03)) BeginWrite();
      if (rng_.Chance(0.3)) BeginRead(client);
    }
    if (!writes_.empty()) GoOnWriting(rng_.Below(writes_.size()));
    if (!reads_under_way_.empty()) GoOnReading(rng_.Below(reads_under_way_.size()));
  }

  void Lease(int i) {
    Replica& r = replicas_[i];
    if (r.there && now_ >= r.next_lease && now_ >= r.silent_until) {
      registered_[i] = Life(r.life);
      lease_end_[i] = now_ + Duration::Seconds(1);
      members_->OnRegistered(now_, names_[i], Life(r.life), r.repair->copied());
      r.next_lease = now_ + Duration::Millis(333);
    } else if (registered_[i] != ProcessIncarnation::kNone && now_ >= lease_end_[i]) {
      registered_[i] = ProcessIncarnation::kNone;
      members_->OnGone(now_, names_[i]);
    }
    if (members_->NextTime() <= now_) members_->OnTime(now_);
    Persist();
  }

  // The only page of each member has what it has when it is answered.
  void Pages(int i) {
    Replica& r = replicas_[i];
    if (r.there) {
      for (const cache::RepairCore::Ask& ask : r.repair->TakeDue(now_)) {
        const int source = ask.member[0] - 'a';
        pages_.push_back({i, source, ask.incarnation, r.life, ask.id});
      }
    }
    if (pages_.empty() || rng_.Chance(0.5)) return;
    const size_t at = rng_.Below(pages_.size());
    const Page page = pages_[at];
    pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(at));
    Replica& reader = replicas_[page.reader];
    const Replica& source = replicas_[page.source];
    if (!reader.there || reader.life != page.reader_life) return;
    if (!source.there || Life(source.life) != page.life || rng_.Chance(0.1)) {
      reader.repair->OnFailure(now_, page.id);
      return;
    }
    for (uint64_t key = 0; key < kKeys; ++key) {
      reader.values[key] = std::max(reader.values[key], source.values[key]);
    }
    reader.repair->OnPage(now_, page.id, {0, 10, cache::ConfigurationId{1}});
  }

  void BeginWrite() {
    Write write;
    write.client = rng_.Below(clients_.size());
    if (clients_[write.client].view.replicas.empty()) return;
    write.view = clients_[write.client].view;
    write.deadline = now_ + cache::kWriteDeadlineMax;
    write.key = rng_.Below(kKeys);
    write.value = ++last_value_;
    write.left = {0, 1, 2};
    write.core.AddKey(3);
    writes_.push_back(std::move(write));
  }
  void GoOnWriting(size_t at) {
    Write& write = writes_[at];
    const CacheEpoch epoch = clients_[write.client].view.epoch;
    const auto forget = [&] { writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(at)); };
    if (now_ >= write.deadline || write.left.empty()) return forget();
    const size_t which = rng_.Below(write.left.size());
    const int i = write.left[which];
    write.left.erase(write.left.begin() + static_cast<std::ptrdiff_t>(which));
    Replica& r = replicas_[i];
    const cache::Replica& meant = write.view.replicas[i];
    if (!r.there || meant.incarnation != Life(r.life) || rng_.Chance(0.1)) {
      write.core.OnFailure(0);
    } else {
      r.values[write.key] = std::max(r.values[write.key], write.value);
      // As the newest view of the client says of this incarnation.
      const cache::Replica& known = clients_[write.client].view.replicas[i];
      const bool votes = known.incarnation == meant.incarnation ? known.whole : meant.whole;
      write.core.OnResult(0, cache::MutationResult::kApplied, votes);
    }
    if (!write.core.decided()) return;
    if (write.core.summary().failed == 0 && epoch == write.view.epoch &&
        epoch == CacheEpoch{durable_.cache_epoch()}) {
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
    cache::Mask whole = 0;
    for (int i = 0; i < 3; ++i) {
      if (client.view.replicas[i].whole) whole |= static_cast<cache::Mask>(1u << i);
    }
    Ask(read, read.core.Start(cache::ReadCore::Kind::kValue, cache::ReadMode::kConsistent, 3, 7,
                              whole, 0));
    reads_under_way_.push_back(std::move(read));
  }
  static void Ask(Read& read, cache::Mask mask) {
    for (int i = 0; i < 3; ++i) {
      if ((mask & (1u << i)) != 0) read.left.push_back(i);
    }
  }
  void GoOnReading(size_t at) {
    Read& read = reads_under_way_[at];
    if (!read.core.done()) {
      const int i = read.left.back();
      read.left.pop_back();
      const Replica& r = replicas_[i];
      const ProcessIncarnation meant = read.view.replicas[i].incarnation;
      const bool ghost = r.ghost_life != 0 && meant == Life(r.ghost_life) && now_ < r.ghost_until;
      const auto replica = static_cast<uint8_t>(i);
      if (r.there && meant == Life(r.life)) {
        read.best = std::max(read.best, r.values[read.key]);
        Ask(read, read.core.OnAnswer(replica, 1));
      } else if (ghost) {
        read.best = std::max(read.best, r.ghost_values[read.key]);
        Ask(read, read.core.OnAnswer(replica, 1));
      } else {
        Ask(read, read.core.OnError(replica));
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
  MonotonicTime now_ = At(0);
  double restarts_ = 0;
  bool fast_views_ = true;
  std::vector<std::string> names_;
  v1::RegistrySnapshot durable_;
  std::unique_ptr<CacheMembers> members_;
  std::array<ProcessIncarnation, 3> registered_{};
  std::array<MonotonicTime, 3> lease_end_{};
  std::array<Replica, 3> replicas_;
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
  uint64_t reads = 0, partial = 0, acknowledged = 0, epochs = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Sweep sweep(seed);
    sweep.Run();
    ASSERT_EQ(sweep.failure_, "") << "seed " << seed;
    reads += sweep.reads_;
    partial += sweep.partial_;
    acknowledged += sweep.acknowledged_;
    epochs += sweep.epochs_;
  }
  EXPECT_GT(acknowledged, 20 * seeds);
  EXPECT_GT(epochs, 2 * seeds) << "the faults are too weak";
  EXPECT_GT(partial * 100, reads) << "the faults are too weak";
  EXPECT_LT(partial * 2, reads) << "the faults are too strong";
}

}  // namespace
}  // namespace tailcast::cell
