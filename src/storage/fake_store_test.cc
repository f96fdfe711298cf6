#include "tailcast/storage/fake_store.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/store_conformance.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {
namespace {

class FakeWorld : public ConformanceWorld {
 public:
  FakeWorld(uint64_t seed, FakeDiskOptions options)
      : time_(seed), disk_loop_(time_.MakeLoop("disk")), disk_(disk_loop_.get(), seed, options) {}

  Store& store(int process) override {
    Process& p = processes_[process];
    if (p.store == nullptr) {
      p.loop = time_.MakeLoop("process-" + std::to_string(process));
      p.store = std::make_unique<FakeStore>(&disk_, p.loop.get());
    }
    return *p.store;
  }
  void Restart(int process) override {
    Process& p = processes_[process];
    if (p.loop != nullptr) p.loop->Kill();
    p.store.reset();
    p.loop.reset();
  }
  bool Turn(const std::function<bool()>& done) override {
    return time_.RunUntil(done, Duration::Seconds(60));
  }
  bool can_lose_power() const override { return true; }
  void PowerLoss() override {
    disk_.PowerLoss();
    for (auto& [number, process] : processes_) {
      process.loop->Kill();
      process.store.reset();
      process.loop.reset();
    }
  }

  SyncStore Sync(int process) {
    return SyncStore(&store(process), [this](const auto& done) { return Turn(done); });
  }
  FakeDisk& disk() { return disk_; }
  sim::VirtualTime& time() { return time_; }

 private:
  struct Process {
    std::unique_ptr<sim::SimLoop> loop;
    std::unique_ptr<FakeStore> store;
  };
  sim::VirtualTime time_;
  std::unique_ptr<sim::SimLoop> disk_loop_;
  FakeDisk disk_;
  std::map<int, Process> processes_;
};

FakeDiskOptions Instant() {
  FakeDiskOptions o;
  o.request = o.answer = {Duration(), Duration(), 0, Duration()};
  return o;
}
// Everything that the contract allows short of errors.
FakeDiskOptions Awkward() {
  FakeDiskOptions o;
  o.request.tail_rate = o.answer.tail_rate = 0.05;
  o.short_read_rate = 0.3;
  o.size_lag_max = Duration::Millis(5);
  return o;
}

INSTANTIATE_TEST_SUITE_P(
    Fake, StoreConformance,
    ::testing::Values(
        ConformanceParam{"Plain", [] { return std::make_unique<FakeWorld>(1, FakeDiskOptions{}); }},
        ConformanceParam{"Instant", [] { return std::make_unique<FakeWorld>(2, Instant()); }},
        ConformanceParam{"Awkward", [] { return std::make_unique<FakeWorld>(3, Awkward()); }}),
    ConformanceName);

TEST(FakeStore, AnUnknownAppendKillsTheHandleAndAFenceTellsWhatBecameOfIt) {
  int landed = 0, lost = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    FakeWorld world(seed, {});
    SyncStore s = world.Sync(0);
    auto file = *s.Create("d", "f", "k");
    ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
    FakeDiskOptions faulty;
    faulty.append_unknown_rate = 1;
    world.disk().SetOptions(faulty);
    ASSERT_EQ(s.Append(*file, "def").outcome, AppendOutcome::kUnknown);
    world.disk().SetOptions({});
    // Dead: the answer stays, whatever is asked.
    EXPECT_EQ(s.Append(*file, 3, "def").outcome, AppendOutcome::kUnknown);
    EXPECT_EQ(s.Append(*file, 6, "ghi").outcome, AppendOutcome::kUnknown);
    auto next = *world.Sync(1).Fence("d", "f");
    const int64_t length = next->committed_length();
    ASSERT_TRUE(length == 3 || length == 6) << length;
    (length == 6 ? landed : lost)++;
    // After the fence nothing more lands, however late.
    world.time().RunFor(Duration::Seconds(60));
    EXPECT_EQ(world.disk().Peek("d", "f")->size(), static_cast<size_t>(length));
  }
  EXPECT_GT(landed, 5);
  EXPECT_GT(lost, 5);
}

TEST(FakeStore, AnAppendOfAKilledProcessMayLandLater) {
  const Scope scope;
  int landed = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    FakeWorld world(seed, {});
    auto file = *world.Sync(0).Create("d", "f", "k");
    file->AppendAt(0, "abc",
                   scope.Bind([](AppendResult) { ADD_FAILURE() << "a dead process was called"; }));
    world.time().RunFor(Duration::Micros(static_cast<int64_t>(seed * 10)));
    world.Restart(
        0);  // kill -9 runs no destructor of a handle; it is freed when the process is gone
    file.reset();
    world.time().RunFor(Duration::Seconds(1));
    landed += world.disk().Peek("d", "f")->size() == 3 ? 1 : 0;
  }
  EXPECT_GT(landed, 0);
}

TEST(FakeStore, ACreationThatDiedHalfwayIsCompletedByTheNextOne) {
  const Scope scope;
  int helped = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    FakeWorld world(seed, {});
    bool answered = false;
    world.store(0).CreateExclusive("d", "first", "k", scope.Bind([&](auto) { answered = true; }));
    world.time().RunFor(Duration::Micros(static_cast<int64_t>(seed * 20)));
    if (answered) break;
    world.Restart(0);
    auto second = world.Sync(1).Create("d", "second", "k");
    if (second.ok()) {
      EXPECT_EQ(*world.Sync(1).List("d"), (std::vector<std::string>{"second"}));
    } else {
      ASSERT_EQ(second.status().code(), StatusCode::kAlreadyExists) << second.status();
      EXPECT_EQ(WinnerOf(second.status()), "first");
      EXPECT_EQ(*world.Sync(1).List("d"), (std::vector<std::string>{"first"}));
      EXPECT_TRUE(world.Sync(1).Fence("d", "first").ok());
      ++helped;
    }
  }
  EXPECT_GT(helped, 0);
}

TEST(FakeStore, FilesDoNotWaitForEachOther) {
  const Scope scope;
  FakeDiskOptions o;
  o.request.tail_rate = 0.3;
  o.request.tail_mean = Duration::Seconds(1);
  FakeWorld world(7, o);
  SyncStore s = world.Sync(0);
  std::vector<std::unique_ptr<AppendFile>> files;
  std::vector<size_t> order;
  for (size_t i = 0; i < 10; ++i) {
    files.push_back(*s.Create("d", "f" + std::to_string(i), std::to_string(i)));
  }
  for (size_t i = 0; i < 10; ++i) {
    files[i]->AppendAt(0, "x", scope.Bind([&order, i](AppendResult) { order.push_back(i); }));
  }
  ASSERT_TRUE(world.Turn([&] { return order.size() == 10; }));
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST(FakeStore, AFullDiskRefusesAppends) {
  FakeDiskOptions o;
  o.capacity_bytes = 10;
  FakeWorld world(1, o);
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  EXPECT_EQ(s.Append(*file, "12345678").outcome, AppendOutcome::kApplied);
  const AppendResult result = s.Append(*file, "9abc");
  EXPECT_EQ(result.outcome, AppendOutcome::kUnknown);
  EXPECT_EQ(result.error.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(world.disk().Peek("d", "f")->size(), 8u);
}

TEST(FakeStore, AFrozenDiskAnswersWhenItThaws) {
  const Scope scope;
  FakeWorld world(1, {});
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  world.disk().Freeze();
  bool answered = false;
  file->AppendAt(0, "abc", scope.Bind([&](AppendResult result) {
    answered = true;
    EXPECT_EQ(result.outcome, AppendOutcome::kApplied);
  }));
  world.time().RunFor(Duration::Seconds(30));
  EXPECT_FALSE(answered);
  world.disk().Thaw();
  EXPECT_TRUE(world.Turn([&] { return answered; }));
}

TEST(FakeStore, TheSameSeedGivesTheSameRun) {
  const auto run = [](uint64_t seed) {
    Rng rng(seed);
    FakeWorld world(seed, FakeDiskOptions::Swarm(rng));
    SyncStore s = world.Sync(0);
    std::string trace;
    for (int i = 0; i < 20; ++i) {
      auto file = s.Create("d", "f" + std::to_string(i), std::to_string(i));
      trace += file.status().ToString() + ";";
      if (!file.ok()) continue;
      for (int k = 0; k < 5; ++k) {
        const AppendResult result = s.Append(**file, std::string(static_cast<size_t>(k), 'x'));
        trace += std::to_string(static_cast<int>(result.outcome)) + result.error.ToString();
      }
    }
    return trace + std::to_string(world.time().trace_hash());
  };
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(run(seed), run(seed));
  }
}

// One writer after another on one file under everything that Swarm draws. Oracles: a reader's bytes
// are a prefix of the history that the outcomes allow, sizes never fall, acknowledged bytes stay.
// Returns what went wrong, or "". `sum`: adds what happened.
struct Happened {
  FakeDisk::Counters way;
  FakeImage::Counters image;
};
std::string SweepOne(uint64_t seed, const char* planted, Happened* sum = nullptr) {
  const Scope scope;
  Rng rng(seed);
  FakeDiskOptions options = FakeDiskOptions::Swarm(rng);
  FakeWorld world(seed, {});
  SyncStore setup = world.Sync(0);
  auto created = setup.Create("d", "f", "k");
  std::vector<std::unique_ptr<AppendFile>> handles(3);
  handles[0] = *std::move(created);
  auto reader = *world.Sync(3).Open("d", "f");
  world.disk().SetOptions(options);
  std::optional<PlantedFault> fault;
  if (planted != nullptr) fault.emplace(planted);

  std::string acked;  // bytes of applied appends, in order
  std::string shown;  // the longest content that a reader was given
  std::set<size_t> busy;
  std::string error;
  const auto fail = [&](const std::string& what) {
    if (error.empty()) error = what;
  };
  const auto check_read = [&](int64_t offset, const std::string& bytes) {
    const auto at = static_cast<size_t>(offset);
    const size_t common = std::min(shown.size(), at + bytes.size());
    if (common > at && shown.compare(at, common - at, bytes, 0, common - at) != 0) {
      fail("bytes that were shown changed");
    }
    if (at + bytes.size() > shown.size()) shown.append(bytes, shown.size() - at);
  };
  const auto check_acked = [&](const std::string& content) {
    // Acknowledgements of two writers may overtake each other, so their order says nothing.
    std::set<std::string> there;
    for (size_t i = 0; i < content.size(); i += 8) there.insert(content.substr(i, 8));
    for (size_t i = 0; i < acked.size(); i += 8) {
      if (!there.contains(acked.substr(i, 8))) return fail("acknowledged bytes are gone");
    }
  };
  uint64_t piece_number = 0;
  std::set<std::string> refused;
  std::map<int64_t, std::string> acked_at;
  for (int step = 0; step < 120 && error.empty(); ++step) {
    const size_t who = rng.Below(3);
    const uint64_t action = rng.Below(10);
    if (action < 5) {
      if (handles[who] == nullptr || busy.contains(who)) continue;
      const std::string piece = std::to_string(10'000'000 + piece_number++);  // 8 bytes
      busy.insert(who);
      handles[who]->AppendAt(handles[who]->committed_length(), piece,
                             scope.Bind([&, who, piece](AppendResult result) {
                               busy.erase(who);
                               if (result.outcome == AppendOutcome::kApplied) {
                                 acked += piece;
                                 acked_at[result.committed_length - 8] = piece;
                               }
                               if (result.outcome == AppendOutcome::kFenced) refused.insert(piece);
                             }));
    } else if (action < 6) {
      if (busy.contains(who)) continue;
      busy.insert(who);
      world.store(static_cast<int>(who))
          .OpenFencing("d", "f", scope.Bind([&, who](Result<std::unique_ptr<AppendFile>> file) {
            busy.erase(who);
            if (file.ok()) handles[who] = *std::move(file);
          }));
    } else if (action < 9) {
      const auto from = static_cast<int64_t>(rng.Below(shown.size() + 1));
      Result<std::string> bytes = world.Sync(3).Read(*reader, from, 200);
      if (bytes.ok()) check_read(from, *bytes);
      if (Result<FileSize> size = world.Sync(3).Size(*reader); size.ok()) {
        // What a size says can be read at once.
        Result<std::string> all = world.Sync(3).ReadFully(*reader, 0, size->committed_length);
        if (all.ok()) check_read(0, *all);
        if (all.ok() && static_cast<int64_t>(all->size()) < size->committed_length) {
          fail("a size was told that cannot be read");
        }
      }
    } else if (rng.Chance(0.2)) {
      world.disk().PowerLoss();
      world.time().RunFor(Duration::Seconds(30));
      for (auto& handle : handles) handle.reset();
      world.time().RunFor(Duration::Seconds(1));
      world.Restart(3);
      world.disk().SetOptions({});
      reader.reset();
      reader = *world.Sync(3).Open("d", "f");
      world.disk().SetOptions(options);
    }
    world.time().RunFor(Duration::Micros(static_cast<int64_t>(rng.Below(3000))));
  }
  world.disk().SetOptions({});
  world.time().RunFor(Duration::Seconds(60));
  const std::string content = *world.disk().Peek("d", "f");
  if (content.size() % 8 != 0) fail("half an append was committed");
  if (content.substr(0, shown.size()) != shown) fail("shown bytes are gone or differ");
  check_acked(content);
  std::set<std::string> seen;
  for (size_t i = 0; i < content.size(); i += 8) {
    const std::string piece = content.substr(i, 8);
    if (piece < "10000000" || piece >= std::to_string(10'000'000 + piece_number)) {
      fail("bytes are there that nobody wrote");
    }
    if (!seen.insert(piece).second) fail("an append is there twice");
  }
  for (const auto& [offset, piece] : acked_at) {
    if (content.substr(static_cast<size_t>(offset), 8) != piece) {
      fail("acknowledged bytes are not where they were said to be");
    }
  }
  for (const std::string& piece : refused) {
    for (size_t at = content.find(piece); at != std::string::npos;
         at = content.find(piece, at + 1)) {
      if (at % 8 == 0) fail("a refused append is there");
    }
  }
  handles.clear();
  reader.reset();
  if (sum != nullptr) {
    const FakeDisk::Counters& way = world.disk().counters();
    sum->way.injected_errors += way.injected_errors;
    sum->way.short_reads += way.short_reads;
    sum->way.stale_sizes += way.stale_sizes;
    sum->way.power_losses += way.power_losses;
    const FakeImage::Counters& image = world.disk().image().counters();
    sum->image.appends_landed += image.appends_landed;
    sum->image.appends_fenced += image.appends_fenced;
    sum->image.appends_lost += image.appends_lost;
  }
  return error;
}

TEST(FakeStoreSweep, HoldsUnderEveryFault) {
  Happened sum;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ASSERT_EQ(SweepOne(seed, nullptr, &sum), "") << "seed " << seed;
  }
  EXPECT_GT(sum.way.injected_errors, 0);
  EXPECT_GT(sum.way.short_reads, 0);
  EXPECT_GT(sum.way.stale_sizes, 0);
  EXPECT_GT(sum.way.power_losses, 0);
  EXPECT_GT(sum.image.appends_landed, 0);
  EXPECT_GT(sum.image.appends_fenced, 0);
  EXPECT_GT(sum.image.appends_lost, 0);
}

class FakeStoreSweepPlanted : public ::testing::TestWithParam<const char*> {};
TEST_P(FakeStoreSweepPlanted, IsCaught) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    if (!SweepOne(seed, GetParam()).empty()) return;
  }
  ADD_FAILURE() << "300 seeds did not notice the planted bug";
}
INSTANTIATE_TEST_SUITE_P(Bugs, FakeStoreSweepPlanted,
                         ::testing::Values("storage.fake_no_epoch_guard",
                                           "storage.fake_shows_unflushed",
                                           "storage.fake_garbage_is_committed"));

}  // namespace
}  // namespace tailcast::storage
