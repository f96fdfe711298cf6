// The metadata cache of a whole cell, as production runs it: nodes with the role cache that
// restart, one after the other and together, a scheduler that restarts, a ring that changes,
// clients that write and read all the while. What must hold is spec Merge's ReadsSeeAcked: a
// complete answer shows every write that was acknowledged before the read began, in the same epoch.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/world/deployment.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/programs.h"

namespace tailcast::world {
namespace {

constexpr uint64_t kCaches = 4;
constexpr uint64_t kSpares = 2;
constexpr uint64_t kClients = 3;
constexpr uint64_t kKeys = 20;
constexpr Duration kCall = Duration::Millis(300);
constexpr uint32_t kChunkBytes = 4096;

std::string Lane(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }
uint64_t LaneOf(const cache::ValueAnswer& answer) {
  uint64_t value = 0;
  if (answer.has_value()) std::memcpy(&value, answer->data(), sizeof(value));
  return value;
}
cache::Key KeyOf(uint64_t n) { return {n * 0x9e3779b97f4a7c15, n * 0xc2b2ae3d27d4eb4f + 1}; }
std::string CacheName(uint64_t i) { return "cache-" + std::to_string(i + 1); }
std::string ClientName(uint64_t i) { return "client-" + std::to_string(i); }

class CacheRestartTest : public ::testing::Test {
 protected:
  void Begin(uint64_t seed) {
    deployment_ = std::make_unique<Deployment>(
        DeploymentOptions{.seed = seed, .caches = CacheKind::kServers});
    rng_ = Rng(seed).Fork("cache restarts");
    const NodeSetup setup{.caches = int{kCaches}, .spares = int{kSpares}, .cache_bytes = 2 << 20};
    deployment_->Start("cell", "scheduler", RunNode(*deployment_, setup));
    for (uint64_t i = 0; i < kCaches + kSpares; ++i) {
      deployment_->Start("cell", CacheName(i), RunNode(*deployment_, setup));
    }
    for (uint64_t i = 0; i < kClients; ++i) {
      deployment_->Start("cell", ClientName(i), RunClient(*deployment_));
    }
    acknowledged_ = {};
    epoch_ = {};
    last_ = 0;
  }
  sim::VirtualTime& time() { return deployment_->time(); }
  Process& client(uint64_t i) { return deployment_->process("cell", ClientName(i)); }
  // A process' program runs a moment after its start.
  cache::RingConfig Ring(uint64_t i) {
    const Process& p = client(i);
    return p.cell_client == nullptr ? cache::RingConfig()
                                    : cell::MetadataRing(p.cell_client->view());
  }

  // The epoch of the newest view that anybody has.
  void LookAtEpoch() {
    for (uint64_t i = 0; i < kClients; ++i) {
      const cache::CacheEpoch epoch = Ring(i).epoch;
      if (epoch <= epoch_) continue;
      epoch_ = epoch;
      ++epochs_;
      acknowledged_ = {};
    }
  }
  // The ring does not change either.
  bool AllWhole() {
    const cache::RingConfig ring = Ring(0);
    return !ring.replicas.empty() && PhaseOf(ring.configuration_id) == cache::RingPhase::kSettled &&
           std::all_of(ring.replicas.begin(), ring.replicas.end(),
                       [](const cache::Replica& r) { return r.whole; });
  }

  void Write() {
    const uint64_t i = rng_.Below(kClients);
    Write(i, rng_.Below(kKeys));
  }
  void Write(uint64_t i, uint64_t key) {
    const uint64_t value = ++last_;
    LookAtEpoch();
    const cache::CacheEpoch epoch = Ring(i).epoch;
    Process& p = client(i);
    if (p.metadata_cache == nullptr) return;
    p.metadata_cache->Mutate({{KeyOf(key), cache::MergeRule::kMaxLanes, false, Lane(value)}}, kCall,
                             p.scope.Bind([this, i, key, value, epoch](const Status& status) {
                               LookAtEpoch();
                               ++writes_;
                               // Somebody else knows of a new epoch: this client will, too, and
                               // has to write again.
                               if (!status.ok() || epoch != epoch_ || Ring(i).epoch != epoch_) {
                                 return;
                               }
                               ++acknowledgements_;
                               acknowledged_[key] = std::max(acknowledged_[key], value);
                             }));
  }
  void Read() {
    const uint64_t i = rng_.Below(kClients), key = rng_.Below(kKeys);
    LookAtEpoch();
    const cache::CacheEpoch epoch = Ring(i).epoch;
    const uint64_t floor = epoch == epoch_ ? acknowledged_[key] : 0;
    Process& p = client(i);
    if (p.metadata_cache == nullptr) return;
    p.metadata_cache->ReadValues(
        {{KeyOf(key)}}, kCall,
        p.scope.Bind([this, key, floor, epoch](const Result<cache::Values>& values) {
          LookAtEpoch();
          ++reads_;
          if (!values.ok() || !values->front().complete) {
            ++partial_;
            return;
          }
          if (epoch == epoch_ && LaneOf(values->front()) < floor && wrong_.empty()) {
            wrong_ = "key " + std::to_string(key) + ": read " +
                     std::to_string(LaneOf(values->front())) + " of " + std::to_string(floor);
          }
        }));
  }
  // Two writers that contradict each other: each key has bytes of one of two versions.
  static std::string Chunk(uint64_t key, uint64_t version, size_t length) {
    Rng rng(key * 2 + version);
    std::string bytes(length, '\0');
    for (char& c : bytes) c = static_cast<char>(rng.Next());
    return bytes;
  }
  void WriteChunk() {
    Process& p = client(rng_.Below(kClients));
    if (p.data_cache == nullptr) return;
    const uint64_t key = rng_.Below(kKeys);
    p.data_cache->Mutate({{KeyOf(key), cache::MergeRule::kLongerWins, false,
                           Chunk(key, rng_.Below(2), 1 + rng_.Below(kChunkBytes))}},
                         kCall, p.scope.Bind([](const Status&) {}));
  }
  struct ChunkBuffer {
    cache::ChunkRead read;
    std::string bytes = std::string(kChunkBytes, '\0');
  };
  // Once more with what was found, as whoever follows a growing chunk does.
  void ReadChunk(uint64_t i, const std::shared_ptr<ChunkBuffer>& buffer, uint64_t key, int times) {
    Process& p = client(i);
    if (p.data_cache == nullptr) return;
    cache::ChunkRead& read = buffer->read;
    read.key = KeyOf(key);
    read.want = read.capacity = kChunkBytes;
    read.destination = buffer->bytes.data();
    p.data_cache->ReadChunks(
        {&read, 1}, rng_.Chance(0.5) ? cache::ReadMode::kConsistent : cache::ReadMode::kRelaxed,
        kCall, p.scope.Bind([this, i, buffer, key, times] {
          cache::ChunkRead& done = buffer->read;
          const std::string bytes = buffer->bytes.substr(0, done.length);
          chunk_bytes_ += bytes.size();
          if (bytes != Chunk(key, 0, bytes.size()) && bytes != Chunk(key, 1, bytes.size()) &&
              wrong_.empty()) {
            wrong_ = "chunk " + std::to_string(key) + ": " + std::to_string(bytes.size()) +
                     " bytes are of no version, or of two";
          }
          if (times <= 1 || done.length >= done.want) return;
          done.have = std::exchange(done.length, 0);
          ReadChunk(i, buffer, key, times - 1);
        }));
  }
  uint64_t Contradictions() {
    uint64_t found = 0;
    for (uint64_t i = 0; i < kClients; ++i) {
      const Process& p = client(i);
      if (p.data_cache != nullptr) found += p.data_cache->counters().chunk_mismatches;
    }
    return found;
  }
  static v1::ChangeRingRequest RingOf(const std::vector<uint64_t>& caches) {
    v1::ChangeRingRequest request;
    for (const uint64_t i : caches) request.add_replicas(CacheName(i));
    return request;
  }
  // Whether the scheduler takes it or not.
  void ChangeRing(const v1::ChangeRingRequest& request) {
    Process& p = client(0);
    if (p.cell_client == nullptr) return;
    p.cell_client->ChangeRing(request,
                              p.scope.Bind([this](const Result<v1::ChangeRingReply>& reply) {
                                change_ = reply.ok() ? OkStatus() : reply.status();
                                changes_ += reply.ok() ? 1 : 0;
                              }));
  }
  void ChangeRingSomehow() {
    v1::ChangeRingRequest request;
    if (PhaseOf(Ring(0).configuration_id) == cache::RingPhase::kBoth) {
      request.set_cancel(true);
    } else {
      std::vector<uint64_t> caches;
      for (uint64_t i = 0; i < kCaches + kSpares; ++i) {
        if (rng_.Chance(0.7)) caches.push_back(i);
      }
      request = RingOf(caches);
    }
    ChangeRing(request);
  }
  // `faults`: events per second.
  void RunFor(Duration duration, double faults) {
    const MonotonicTime end = time().now() + duration;
    while (time().now() < end && wrong_.empty()) {
      time().RunFor(Duration::Millis(1 + static_cast<int64_t>(rng_.Below(20))));
      if (rng_.Chance(0.2)) Write();
      Read();
      if (faults_ != nullptr) {
        if (rng_.Chance(0.3)) WriteChunk();
        if (rng_.Chance(0.5)) {
          ReadChunk(rng_.Below(kClients), std::make_shared<ChunkBuffer>(), rng_.Below(kKeys), 3);
        }
        if (rng_.Chance(0.02)) faults_->Turn();
      }
      // Clients forget what they read before, so that they can hide nothing.
      if (clients_restart_ && rng_.Chance(0.01)) {
        deployment_->Restart("cell", ClientName(rng_.Below(kClients)));
      }
      deployment_->ReviveDead();
      if (!rng_.Chance(faults * 0.01)) continue;
      switch (rng_.Below(ring_changes_ ? 11 : 8)) {
        case 0:
          deployment_->Restart("cell", "scheduler");
          break;
        case 1:
          deployment_->Stop("cell", CacheName(rng_.Below(kCaches + kSpares)));
          break;
        case 2:
          deployment_->Continue();
          break;
        case 8:
        case 9:
        case 10:
          ChangeRingSomehow();
          break;
        default:
          deployment_->Restart("cell", CacheName(rng_.Below(kCaches + kSpares)));
      }
    }
  }
  bool WholeWithin(Duration limit) {
    return time().RunUntil([this] { return AllWhole(); }, limit);
  }

  std::unique_ptr<Deployment> deployment_;
  Rng rng_{1};
  std::array<uint64_t, kKeys> acknowledged_{};
  cache::CacheEpoch epoch_{};
  uint64_t last_ = 0, reads_ = 0, partial_ = 0, writes_ = 0, acknowledgements_ = 0, epochs_ = 0;
  uint64_t changes_ = 0;
  bool ring_changes_ = false, clients_restart_ = true;
  uint64_t chunk_bytes_ = 0;
  Status change_;
  std::string wrong_;
  std::unique_ptr<Faults> faults_;  // further ones; null: none
};

TEST_F(CacheRestartTest, ANewCellServesAtOnce) {
  Begin(1);
  EXPECT_TRUE(WholeWithin(Duration::Seconds(3)));
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{1});
}

TEST_F(CacheRestartTest, ARollingRestartLosesNothingAndRaisesNoEpoch) {
  Begin(2);
  ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
  RunFor(Duration::Seconds(2), 0);
  for (uint64_t i = 0; i < kCaches; ++i) {
    deployment_->Restart("cell", CacheName(i));
    RunFor(Duration::Seconds(1), 0);
    ASSERT_TRUE(WholeWithin(Duration::Seconds(5))) << CacheName(i);
  }
  RunFor(Duration::Seconds(2), 0);
  EXPECT_EQ(wrong_, "");
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{1});
  EXPECT_EQ(partial_, 0u) << "two of three were whole all the time";
  EXPECT_EQ(acknowledgements_, writes_);
}

TEST_F(CacheRestartTest, ARestartOfAllServesAgainWithinFiveSecondsInANewEpoch) {
  Begin(3);
  ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
  RunFor(Duration::Seconds(1), 0);
  for (uint64_t i = 0; i < kCaches; ++i) deployment_->Restart("cell", CacheName(i));
  time().RunFor(Duration::Millis(500));  // until the registry has heard of it
  EXPECT_TRUE(WholeWithin(Duration::Millis(4500)));
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{2}) << "it rose once";
  const uint64_t before = acknowledgements_, writes = writes_;
  RunFor(Duration::Seconds(1), 0);
  EXPECT_GT(acknowledgements_, before);
  EXPECT_EQ(acknowledgements_ - before, writes_ - writes);
  EXPECT_EQ(wrong_, "");
}

TEST_F(CacheRestartTest, TheRingGrowsAndShrinksWithoutAnyoneNoticing) {
  Begin(4);
  ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
  RunFor(Duration::Seconds(2), 0);
  uint64_t ring = ReadRing(Ring(0).configuration_id);
  for (const std::vector<uint64_t>& caches :
       {std::vector<uint64_t>{0, 1, 2, 3, 4, 5}, {0, 2, 4}, {1, 3, 5}, {0, 1, 2, 3, 5}}) {
    ChangeRing(RingOf(caches));
    RunFor(Duration::Seconds(1), 0);
    EXPECT_TRUE(change_.ok()) << change_;
    const MonotonicTime limit = time().now() + Duration::Seconds(10);
    while (ReadRing(Ring(0).configuration_id) != ring + 1 || !AllWhole()) {
      RunFor(Duration::Millis(200), 0);
      ASSERT_LT(time().now(), limit);
    }
    ++ring;
    EXPECT_EQ(Ring(0).replicas.size(), caches.size());
    RunFor(Duration::Seconds(2), 0);
  }
  EXPECT_EQ(wrong_, "");
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{1});
  EXPECT_EQ(acknowledgements_, writes_) << "each write was acknowledged";
  EXPECT_LT(partial_ * 1000, reads_) << "answers of the old ring after a client heard of the new";
}

TEST_F(CacheRestartTest, AChangeOfTheRingWaitsForOneThatIsAwayAndIsTakenBack) {
  Begin(5);
  ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
  ChangeRing(RingOf({0, 1, 2, 8}));
  RunFor(Duration::Seconds(1), 0);
  EXPECT_TRUE(IsFailedPrecondition(change_)) << "cache-9 is not there: " << change_;
  deployment_->Stop("cell", CacheName(4));
  ChangeRing(RingOf({0, 1, 2, 4}));
  RunFor(Duration::Seconds(20), 0);
  EXPECT_TRUE(change_.ok()) << change_;
  EXPECT_EQ(PhaseOf(Ring(0).configuration_id), cache::RingPhase::kBoth);
  v1::ChangeRingRequest cancel;
  cancel.set_cancel(true);
  ChangeRing(cancel);
  RunFor(Duration::Seconds(1), 0);
  EXPECT_TRUE(change_.ok()) << change_;
  EXPECT_TRUE(AllWhole());
  EXPECT_EQ(Ring(0).replicas.size(), kCaches);
  deployment_->Continue();
  // Two of those that come: nothing is acknowledged any more, so it is taken back by itself.
  RunFor(Duration::Seconds(2), 0);
  deployment_->Stop("cell", CacheName(4));
  deployment_->Stop("cell", CacheName(5));
  ChangeRing(RingOf({0, 4, 5}));
  RunFor(Duration::Seconds(6), 0);
  EXPECT_TRUE(change_.ok()) << change_;
  EXPECT_TRUE(AllWhole());
  EXPECT_EQ(Ring(0).replicas.size(), kCaches);
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{1});
  EXPECT_EQ(wrong_, "");
}

// An operator puts another process in the place of one that is stopped, and that one wakes up: it
// has missed what its successor acknowledged, and says that it has copied all.
class CacheTwinTest : public CacheRestartTest {
 protected:
  void ReplaceAStoppedOneThatWakesUp() {
    Begin(6);
    ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
    RunFor(Duration::Seconds(2), 0);
    deployment_->process("cell", "cache-1").once = true;
    deployment_->Stop("cell", "cache-1");
    RunFor(Duration::Seconds(5), 0);
    const NodeSetup twin{
        .name = "cache-1", .caches = int{kCaches}, .spares = int{kSpares}, .cache_bytes = 2 << 20};
    deployment_->StartOnce("cell", "cache-twin", RunNode(*deployment_, twin));
    RunFor(Duration::Seconds(1), 0);
    ASSERT_TRUE(WholeWithin(Duration::Seconds(10)));
    RunFor(Duration::Seconds(3), 0);
    deployment_->Continue();
    // Nobody writes again what it has missed.
    time().RunFor(Duration::Seconds(1));
    deployment_->ReviveDead();
  }
  // Two of three would no longer know all that was acknowledged.
  bool OneThatIsWholeHasMissedWrites() {
    const cache::RingConfig ring = Ring(0);
    for (const auto& [process, server] : deployment_->CacheServers("cell", CacheLayer::kMetadata)) {
      const uint64_t life = Raw(server->core()->geometry().generation);
      if (std::none_of(ring.replicas.begin(), ring.replicas.end(), [&](const cache::Replica& r) {
            return r.whole && Raw(r.incarnation) == life;
          })) {
        continue;
      }
      for (uint64_t key = 0; key < kKeys; ++key) {
        const auto found =
            server->core()->Get({process->loop->Now(), process->loop->WallNow()}, KeyOf(key));
        if (!found) continue;
        uint64_t value = 0;
        std::memcpy(&value, found->bytes.data(), std::min(sizeof(value), found->bytes.size()));
        if (value < acknowledged_[key]) return true;
      }
    }
    return false;
  }
};

TEST_F(CacheTwinTest, TheElderIsNeverBelievedAgain) {
  ReplaceAStoppedOneThatWakesUp();
  EXPECT_FALSE(OneThatIsWholeHasMissedWrites());
  RunFor(Duration::Seconds(5), 0);
  EXPECT_EQ(wrong_, "");
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{1});
  EXPECT_TRUE(AllWhole());
  const auto& processes = deployment_->cell("cell").processes;
  EXPECT_FALSE(processes.contains("cache-1")) << "it was told to end";
  EXPECT_TRUE(processes.contains("cache-twin"));
}

TEST_F(CacheTwinTest, ThatItIsWouldBeFound) {
  const PlantedFault fault("cell.name_comes_back");
  ReplaceAStoppedOneThatWakesUp();
  EXPECT_TRUE(OneThatIsWholeHasMissedWrites());
}

// Some of a cell's caches, and the last client, are cut off from everybody else, the scheduler and
// the primary layer among them; they reach each other. The others go on without them.
class CacheCutOffTest : public CacheRestartTest {
 protected:
  static constexpr uint64_t kCutOff = kClients - 1;
  static constexpr Duration kLease = Duration::Millis(1500);

  void BeginWhole(uint64_t seed) {
    clients_restart_ = false;  // who starts without a scheduler knows no ring
    Begin(seed);
    ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
    const uint64_t before = acknowledgements_;
    WriteAll(0);
    EXPECT_EQ(acknowledgements_ - before, kKeys);
    ReadAll(kCutOff);
    EXPECT_EQ(complete_, kKeys) << "it has connected";
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& [name, process] : deployment_->cell("cell").processes) names.push_back(name);
    return names;
  }
  void Cut(const std::string& a, const std::string& b) {
    CutProcesses(*deployment_, "cell/" + a, "cell/" + b, Ways::kBoth, true);
  }
  void CutOff(std::vector<std::string> these, bool from_store = true) {
    these.push_back(ClientName(kCutOff));
    cut_off_ = these;
    for (const std::string& one : these) {
      if (from_store) deployment_->process("cell", one).store->Hang();
      for (const std::string& other : Names()) {
        if (std::find(these.begin(), these.end(), other) == these.end()) Cut(one, other);
      }
    }
  }
  // An operator takes who is cut off for dead.
  void StartTwin(const std::string& name) {
    const NodeSetup setup{
        .name = name, .caches = int{kCaches}, .spares = int{kSpares}, .cache_bytes = 2 << 20};
    deployment_->StartOnce("cell", name + "-twin", RunNode(*deployment_, setup));
    for (const std::string& one : cut_off_) Cut(one, name + "-twin");
  }
  void WriteAll(uint64_t client) {
    for (uint64_t key = 0; key < kKeys; ++key) {
      Write(client, key);
      time().RunFor(Duration::Millis(10));
    }
    time().RunFor(Duration::Millis(300));
  }
  // Of complete answers: those that miss what was acknowledged before, whatever the reader knows of
  // epochs.
  void ReadAll(uint64_t i) {
    complete_ = stale_ = 0;
    LookAtEpoch();
    Process& p = client(i);
    for (uint64_t key = 0; key < kKeys; ++key) {
      p.metadata_cache->ReadValues(
          {{KeyOf(key)}}, kCall,
          p.scope.Bind([this, floor = acknowledged_[key]](const Result<cache::Values>& values) {
            if (!values.ok() || !values->front().complete) return;
            ++complete_;
            stale_ += LaneOf(values->front()) < floor ? 1 : 0;
          }));
    }
    time().RunFor(kCall * 2);
  }
  uint64_t Serving(CacheLayer layer) {
    const auto servers = deployment_->CacheServers("cell", layer);
    return static_cast<uint64_t>(std::count_if(
        servers.begin(), servers.end(), [](const auto& s) { return s.server->state().serving; }));
  }

  std::vector<std::string> cut_off_;
  uint64_t complete_ = 0, stale_ = 0;
};

TEST_F(CacheCutOffTest, TwoOfTheRingThatIsReplacedAreNotReadAnyMore) {
  for (const bool from_store : {true, false}) {
    BeginWhole(7);
    CutOff({"cache-1", "cache-2"}, from_store);
    ReadAll(kCutOff);
    EXPECT_GT(complete_, 0u) << "these two have some keys";
    EXPECT_EQ(stale_, 0u);
    const uint64_t ring = ReadRing(Ring(0).configuration_id);
    ChangeRing(RingOf({2, 3, 4, 5}));
    ASSERT_TRUE(time().RunUntil(
        [&] { return ReadRing(Ring(0).configuration_id) == ring + 1 && AllWhole(); },
        Duration::Seconds(90)));
    const uint64_t before = acknowledgements_;
    WriteAll(0);
    EXPECT_EQ(acknowledgements_ - before, kKeys);
    ReadAll(kCutOff);
    EXPECT_EQ(stale_, 0u) << "from store: " << from_store;
    EXPECT_EQ(complete_, 0u);
  }
}

TEST_F(CacheCutOffTest, TwoThatOthersHaveReplacedAreNotReadAnyMore) {
  BeginWhole(8);
  CutOff({"cache-1", "cache-2"});
  time().RunFor(Duration::Seconds(1));
  StartTwin("cache-1");
  StartTwin("cache-2");
  const cache::CacheEpoch epoch = Ring(0).epoch;
  ASSERT_TRUE(
      time().RunUntil([&] { return Ring(0).epoch > epoch && AllWhole(); }, Duration::Seconds(10)));
  const uint64_t before = acknowledgements_;
  WriteAll(0);
  EXPECT_EQ(acknowledgements_ - before, kKeys);
  ReadAll(kCutOff);
  EXPECT_EQ(stale_, 0u);
}

// A third one, which all reach but for a writer, has missed writes: it may.
TEST_F(CacheCutOffTest, OneThatAnotherHasReplacedIsNotReadAnyMore) {
  BeginWhole(9);
  CutOff({"cache-1"});
  CutProcesses(*deployment_, "cell/" + ClientName(kCutOff), "cell/cache-2", Ways::kBoth, false);
  Cut(ClientName(0), "cache-2");
  StartTwin("cache-1");
  time().RunFor(Duration::Seconds(1));
  ASSERT_TRUE(WholeWithin(Duration::Seconds(10)));
  const uint64_t before = acknowledgements_;
  WriteAll(0);
  EXPECT_GT(acknowledgements_, before);
  ReadAll(kCutOff);
  EXPECT_EQ(stale_, 0u);
}

TEST_F(CacheCutOffTest, ThatTheyAreWouldBeFound) {
  const PlantedFault fault("cache.no_lease");
  BeginWhole(8);
  CutOff({"cache-1", "cache-2"});
  StartTwin("cache-1");
  StartTwin("cache-2");
  const cache::CacheEpoch epoch = Ring(0).epoch;
  ASSERT_TRUE(
      time().RunUntil([&] { return Ring(0).epoch > epoch && AllWhole(); }, Duration::Seconds(10)));
  WriteAll(0);
  ReadAll(kCutOff);
  EXPECT_GT(stale_, 0u);
}

// Nobody goes on without whom the record of the registry shows as they know themselves.
TEST_F(CacheCutOffTest, ASchedulerThatIsAwayCostsNothing) {
  BeginWhole(10);
  deployment_->TakeDown("cell", "scheduler");
  RunFor(Duration::Seconds(60), 0);
  EXPECT_EQ(partial_, 0u);
  EXPECT_EQ(acknowledgements_, writes_);
  deployment_->RaiseAll();
  RunFor(Duration::Seconds(10), 0);
  EXPECT_EQ(partial_, 0u);
  EXPECT_EQ(acknowledgements_, writes_);
  EXPECT_EQ(wrong_, "");
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{1});
}

TEST_F(CacheCutOffTest, WhoHearsOfNobodyForALeaseClosesItsMetadataUntilItDoes) {
  BeginWhole(11);
  std::vector<std::string> caches;
  for (uint64_t i = 0; i < kCaches; ++i) {
    caches.push_back(CacheName(i));
    deployment_->process("cell", caches.back()).store->Hang();
  }
  RunFor(Duration::Seconds(5), 0);
  EXPECT_EQ(partial_, 0u) << "the scheduler hears of them";
  deployment_->TakeDown("cell", "scheduler");
  RunFor(kLease - Duration::Millis(600), 0);
  EXPECT_EQ(partial_, 0u);
  time().RunFor(Duration::Millis(700));
  EXPECT_EQ(Serving(CacheLayer::kMetadata), 0u);
  EXPECT_EQ(Serving(CacheLayer::kData), kCaches) << "what is found of chunks is right";
  const uint64_t before = acknowledgements_;
  WriteAll(0);
  EXPECT_EQ(acknowledgements_, before);
  ReadAll(0);
  EXPECT_EQ(complete_, 0u);
  deployment_->RaiseAll();
  time().RunFor(Duration::Seconds(3));
  EXPECT_EQ(Serving(CacheLayer::kMetadata), kCaches);
  ReadAll(0);
  EXPECT_EQ(complete_, kKeys);
  EXPECT_EQ(Ring(0).epoch, cache::CacheEpoch{1});
}

// TAILCAST_SEEDS=1000 for a long sweep.
uint64_t SeedCount() {
  const char* text = std::getenv("TAILCAST_SEEDS");
  return text == nullptr ? 16 : std::strtoull(text, nullptr, 10);
}

TEST_F(CacheRestartTest, ReadsSeeWhatWasAcknowledgedWhateverRestarts) {
  ASSERT_TRUE(SetLogLevels("off").ok());
  ring_changes_ = true;
  for (uint64_t seed = 1; seed <= SeedCount() && wrong_.empty(); ++seed) {
    Begin(seed);
    ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
    RunFor(Duration::Seconds(40), 0.1 + 0.5 * Rng(seed).Unit());
    deployment_->Continue();
    EXPECT_TRUE(WholeWithin(Duration::Seconds(20))) << "seed " << seed;
    EXPECT_EQ(wrong_, "") << "seed " << seed;
  }
  ASSERT_TRUE(SetLogLevels("info").ok());
  EXPECT_GT(epochs_, 10u) << "the faults are too weak";
  EXPECT_GT(partial_, 100u) << "the faults are too weak";
  EXPECT_GT(acknowledgements_, 1000u);
  EXPECT_GT(changes_, 10u) << "too few rings changed";
}

// The same beside all that networks do: reads that are torn, late or lost, notifications that are
// lost, connections that break, processes that do not reach each other (the scheduler among them)
// in one direction or both. And chunks that two writers contradict each other about are never
// mixed.
class CacheFaultsTest : public CacheRestartTest {
 protected:
  // Until something is wrong.
  void Sweep(uint64_t seeds) {
    ASSERT_TRUE(SetLogLevels("off").ok());
    ring_changes_ = true;
    for (uint64_t seed = 1; seed <= seeds && wrong_.empty(); ++seed) {
      Begin(seed);
      ASSERT_TRUE(WholeWithin(Duration::Seconds(3)));
      Rng rng = Rng(seed).Fork("networks");
      faults_ = std::make_unique<Faults>(rng.Fork("faults"));
      if (rng.Chance(0.7)) faults_->Add(BadFabric(*deployment_), 0.2, 0.1);
      if (rng.Chance(0.7)) faults_->Add(ResetConnections(*deployment_), 0.1);
      if (rng.Chance(0.7)) faults_->Add(CutInside(*deployment_), 0.2, 0.1);
      RunFor(Duration::Seconds(30), 0.1 + 0.3 * rng.Unit());
      contradictions_ += Contradictions();
      faults_->HealAll();
      deployment_->Continue();
      if (wrong_.empty()) {
        EXPECT_TRUE(WholeWithin(Duration::Seconds(100))) << "seed " << seed;
      }
      seed_ = seed;
      faults_.reset();
    }
    ASSERT_TRUE(SetLogLevels("info").ok());
  }
  uint64_t contradictions_ = 0, seed_ = 0;
};

TEST_F(CacheFaultsTest, ReadsSeeWhatWasAcknowledgedAndNeverBytesOfTwoWhateverFails) {
  Sweep(SeedCount());
  EXPECT_EQ(wrong_, "") << "seed " << seed_;
  EXPECT_GT(epochs_, 5u) << "the faults are too weak";
  EXPECT_GT(partial_, 100u) << "the faults are too weak";
  EXPECT_GT(acknowledgements_, 500u);
  EXPECT_GT(changes_, 5u) << "too few rings changed";
  EXPECT_GT(chunk_bytes_, 1000000u);
  EXPECT_GT(contradictions_, 0u) << "too few replicas contradicted each other";
}

TEST_F(CacheFaultsTest, ThatBytesOfTwoAreMixedWouldBeFound) {
  const PlantedFault fault("cache.skip_prefix_check");
  Sweep(SeedCount());
  EXPECT_NE(wrong_.find("of no version, or of two"), std::string::npos) << wrong_;
}

}  // namespace
}  // namespace tailcast::world
