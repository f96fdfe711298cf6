// The rolled driver on the object-level fake: the conformance suite with objects that are rolled
// all the time, a takeover and a death at every request of a writer, and a sweep over what may go
// wrong, with planted bugs. Names, creation and deletion are rolled_names_test.cc's.
#include "tailcast/storage/rolled_store.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/fake_objects.h"
#include "tailcast/storage/rolled_world.h"
#include "tailcast/storage/store_conformance.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {
namespace {

FakeObjectsOptions Awkward() {
  FakeObjectsOptions o;
  o.request.tail_rate = o.answer.tail_rate = 0.05;
  o.twice_rate = 0.2;
  o.names_max = 2;
  return o;
}

ConformanceParam World(const char* name, uint64_t seed, FakeObjectsOptions options,
                       int64_t roll_bytes) {
  return {name, [=] { return std::make_unique<ObjectWorld>(seed, options, roll_bytes); }};
}

INSTANTIATE_TEST_SUITE_P(Rolled, StoreConformance,
                         ::testing::Values(World("Plain", 1, {}, int64_t{32} << 20),
                                           World("RolledOften", 2, {}, 16'384),
                                           World("Awkward", 3, Awkward(), 16'384)),
                         ConformanceName);

class RolledStoreTest : public ::testing::Test {
 protected:
  ObjectWorld world_{1, {}, kRoll};
  SyncStore a_ = world_.Sync(0);
  SyncStore b_ = world_.Sync(1);
  const Scope scope_;
};

TEST_F(RolledStoreTest, AFileIsARowOfObjects) {
  auto file = *a_.Create("d", "f", "k");
  for (int i = 0; i < 6; ++i) ASSERT_EQ(a_.Append(*file, "12345").outcome, AppendOutcome::kApplied);
  std::vector<std::string> names = world_.objects().Names();
  // Two appends each: the root, the folder, the manifest, three objects.
  EXPECT_EQ(names.size(), 6u) << ::testing::PrintToString(names);
  EXPECT_EQ(b_.ReadAll("d", "f")->size(), 30u);
}

TEST_F(RolledStoreTest, AnAppendLargerThanAnObjectIsCutAndReadBack) {
  auto file = *a_.Create("d", "f", "k");
  std::string all(100, 'x');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>('a' + i % 23);
  const AppendResult result = a_.Append(*file, all);
  EXPECT_EQ(result.outcome, AppendOutcome::kApplied);
  EXPECT_EQ(result.committed_length, 100);
  EXPECT_EQ(*b_.ReadAll("d", "f"), all);
}

TEST_F(RolledStoreTest, DeletingGivesEverythingBack) {
  auto other = *a_.Create("d", "other", "o");
  const std::vector<std::string> before = world_.objects().Names();
  auto file = *a_.Create("d", "f", "k");
  for (int i = 0; i < 7; ++i) a_.Append(*file, "12345");
  ASSERT_TRUE(b_.Delete("d", "f").ok());
  EXPECT_EQ(world_.objects().Names(), before);
  EXPECT_EQ(a_.Append(*file, "x").outcome, AppendOutcome::kFenced);
}

TEST_F(RolledStoreTest, ASealedObjectThatIsGoneIsMissedByWhoChecks) {
  auto file = *a_.Create("d", "f", "k");
  for (int i = 0; i < 7; ++i) a_.Append(*file, "12345");
  auto reader = *b_.Open("d", "f");
  EXPECT_EQ(b_.CheckedSize(*reader)->committed_length, 35);
  int appends = 0;
  for (const std::string& name : world_.objects().Names()) {
    if (!name.ends_with(".1")) continue;  // docs/formats/primary_objects.md
    ++appends;
    world_.objects().Lose(name);
  }
  ASSERT_EQ(appends, 1);
  const Status checked = b_.CheckedSize(*reader).status();
  EXPECT_EQ(checked.code(), StatusCode::kDataLoss) << checked;
  EXPECT_NE(checked.message().find("f: its sealed object 1 is not there"), std::string::npos);
  EXPECT_EQ(b_.Size(*reader)->committed_length, 35) << "a size is told from the manifest";
  ASSERT_TRUE(a_.Quarantine("d", "f").ok());
  EXPECT_EQ(b_.CheckedSize(*reader).status().code(), StatusCode::kNotFound);
}

TEST_F(RolledStoreTest, AFullPoolRefusesAppendsAndStillDeletes) {
  auto old = *a_.Create("d", "old", "o");
  a_.Append(*old, "0123456789");
  auto file = *a_.Create("d", "f", "k");
  FakeObjectsOptions full;
  full.capacity_bytes = 0;
  world_.objects().SetOptions(full);
  const AppendResult result = a_.Append(*file, "x");
  EXPECT_EQ(result.outcome, AppendOutcome::kUnknown);
  EXPECT_EQ(result.error.code(), StatusCode::kResourceExhausted) << result.error;
  EXPECT_EQ(a_.Create("d", "g", "g").status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*b_.ReadAll("d", "old"), "0123456789");
  EXPECT_TRUE(b_.Delete("d", "old").ok());
  world_.objects().SetOptions({});
  EXPECT_EQ(b_.Fence("d", "f").status().code(), StatusCode::kOk);
}

TEST_F(RolledStoreTest, ADeletedPoolIsNotAnEmptyOne) {
  auto file = *a_.Create("d", "f", "k");
  a_.Append(*file, "0123456789");
  auto reader = *b_.Open("d", "f");
  world_.objects().DeletePool();
  const auto gone = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_NE(status.message().find("the pool is gone"), std::string::npos) << status;
  };
  gone(b_.List("d").status());
  gone(b_.List("").status());
  gone(b_.ListDirs("no").status());
  gone(b_.Open("d", "f").status());
  gone(b_.Fence("d", "f").status());
  gone(b_.Delete("d", "f"));
  gone(b_.Create("d", "g", "g").status());
  gone(b_.Size(*reader).status());
  gone(b_.Read(*reader, 0, 5).status());
  gone(b_.Read(*reader, 10, 5).status());
  const AppendResult result = a_.Append(*file, "x");
  EXPECT_EQ(result.outcome, AppendOutcome::kUnknown);
  gone(result.error);
}

TEST_F(RolledStoreTest, AStoreThatStopsAnswersWhenItGoesOn) {
  auto file = *a_.Create("d", "f", "k");
  world_.objects().Stop();
  bool answered = false;
  file->AppendAt(0, "abc", scope_.Bind([&](AppendResult result) {
    answered = true;
    EXPECT_EQ(result.outcome, AppendOutcome::kApplied);
  }));
  world_.time().RunFor(Duration::Seconds(29));
  EXPECT_FALSE(answered);
  world_.objects().Go();
  EXPECT_TRUE(world_.Turn([&] { return answered; }));
}

// What is said of a call at its deadline is that nothing is known, never that it failed: what was
// sent is done later.
TEST_F(RolledStoreTest, EveryCallIsAnsweredAtItsDeadline) {
  auto file = *a_.Create("d", "f", "k");
  auto other = *a_.Create("d", "g", "g");
  auto reader = *a_.Open("d", "f");
  world_.objects().Stop();
  const MonotonicTime begun = world_.loop(0).Now();
  int answered = 0;
  const auto late = [&](const Status& status) {
    ++answered;
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_EQ(world_.loop(0).Now() - begun, Duration::Seconds(30));
  };
  AppendResult appended;
  file->AppendAt(0, "abc", scope_.Bind([&](AppendResult result) {
    appended = result;
    late(result.error);
  }));
  Store& store = world_.store(0);
  const auto opened = [&](Result<std::unique_ptr<AppendFile>> r) { late(r.status()); };
  store.CreateExclusive("d", "new", "new", scope_.Bind(opened));
  store.OpenFencing("d", "g", scope_.Bind(opened));
  store.OpenRead("d", "f",
                 scope_.Bind([&](Result<std::unique_ptr<ReadFile>> r) { late(r.status()); }));
  store.List("d", scope_.Bind([&](Result<std::vector<DirEntry>> r) { late(r.status()); }));
  store.ListDirs("", scope_.Bind([&](Result<std::vector<std::string>> r) { late(r.status()); }));
  store.Identify("d", "f", scope_.Bind([&](Result<std::string> r) { late(r.status()); }));
  store.Delete("d", "g", scope_.Bind(late));
  store.DeleteExactly("d", "g", "id", scope_.Bind(late));
  store.Quarantine("d", "g", scope_.Bind(late));
  reader->Size(scope_.Bind([&](Result<FileSize> r) { late(r.status()); }));
  reader->CheckedSize(scope_.Bind([&](Result<FileSize> r) { late(r.status()); }));
  reader->Read(0, 3, scope_.Bind([&](Result<std::string> r) { late(r.status()); }));
  world_.time().RunFor(Duration::Seconds(31));
  EXPECT_EQ(answered, 13);
  EXPECT_EQ(appended.outcome, AppendOutcome::kUnknown);
  world_.objects().Go();
  world_.time().RunFor(Duration::Seconds(1));
  EXPECT_EQ(a_.Append(*file, "x").outcome, AppendOutcome::kUnknown) << "the handle is dead";
  auto next = b_.Fence("d", "f");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ((*next)->committed_length(), 3) << "it was done later";
}

// The deadline is of the call with all its requests, not of each.
TEST_F(RolledStoreTest, ManySlowRequestsHaveOneDeadline) {
  auto file = *a_.Create("d", "f", "k");
  FakeObjectsOptions slow;
  slow.request.base = Duration::Seconds(12);
  world_.objects().SetOptions(slow);
  const MonotonicTime begun = world_.loop(1).Now();
  EXPECT_EQ(b_.Fence("d", "f").status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(world_.loop(1).Now() - begun, Duration::Seconds(30));
}

// A request that comes twice is answered by its second landing: the first was applied.
TEST(RolledStoreTwice, NothingIsDoneTwice) {
  FakeObjectsOptions twice;
  twice.twice_rate = 1;
  ObjectWorld world(5, twice, kRoll);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "f" + std::to_string(i);
    auto file = world.Sync(0).Create("d", name, name);
    ASSERT_TRUE(file.ok()) << file.status();
    std::string content;
    for (int k = 0; k < 10; ++k) {
      const std::string piece = std::to_string(k) + "abc";
      ASSERT_EQ(world.Sync(0).Append(**file, piece).outcome, AppendOutcome::kApplied);
      content += piece;
    }
    EXPECT_EQ(*world.Sync(1).ReadAll("d", name), content);
    auto next = world.Sync(1).Fence("d", name);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)->committed_length(), 40);
    if (i % 2 == 0) {
      EXPECT_TRUE(world.Sync(0).Delete("d", name).ok());
    }
  }
  EXPECT_EQ(world.Sync(2).List("d")->size(), 10u);
}

// ---------------------------------------------------------------------------------------------
// Between any two requests.

// Runs `owner`'s appends, one of which rolls, until it has sent `requests`; then another takes over
// while the rest is under way. `dies`: the owner sends nothing more, else it goes on.
void TakeOverAt(int64_t requests, bool dies, bool* covered) {
  ObjectWorld world(static_cast<uint64_t>(requests) + 1, {}, kRoll);
  const Scope scope;
  SyncStore a = world.Sync(0);
  SyncStore b = world.Sync(1);
  auto file = *a.Create("d", "f", "k");
  std::string acked;
  std::string sent;
  bool refused = false;
  const int64_t before = world.port(0).sent();
  if (dies) world.port(0).DieAfter(requests);
  int number = 0;
  std::function<void()> next = [&] {
    if (number == 6) return;
    const std::string piece = std::to_string(number++) + "abcd";
    sent += piece;
    file->AppendAt(file->committed_length(), piece, scope.Bind([&, piece](AppendResult result) {
      if (result.outcome == AppendOutcome::kApplied) {
        ASSERT_FALSE(refused);
        acked += piece;
        next();
      } else {
        EXPECT_EQ(result.outcome, AppendOutcome::kFenced);
        if (result.outcome == AppendOutcome::kFenced) sent.resize(sent.size() - piece.size());
        refused = true;
      }
    }));
  };
  next();
  world.Turn([&] {
    return world.port(0).sent() - before >= requests || world.port(0).dead() || number == 6;
  });
  *covered = world.port(0).sent() - before >= requests;
  auto second = b.Fence("d", "f");
  ASSERT_TRUE(second.ok()) << second.status();
  const std::string at_fence = *b.ReadAll("d", "f");
  ASSERT_EQ(static_cast<int64_t>(at_fence.size()), (*second)->committed_length());
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(b.Append(**second, "XYZ").outcome, AppendOutcome::kApplied);
  }
  world.time().RunFor(Duration::Seconds(30));
  const std::string all = *world.Sync(2).ReadAll("d", "f");
  EXPECT_EQ(all, at_fence + "XYZXYZXYZXYZ");
  EXPECT_EQ(at_fence.substr(0, acked.size()), acked) << "acknowledged bytes are gone";
  EXPECT_EQ(sent.substr(0, at_fence.size()), at_fence) << "refused bytes are there";
}

TEST(RolledStoreSteps, ATakeoverBetweenAnyTwoRequestsOfARunningWriter) {
  bool covered = true;
  int64_t requests = 0;
  for (; covered; ++requests) TakeOverAt(requests, false, &covered);
  EXPECT_GT(requests, 10);
}

TEST(RolledStoreSteps, ATakeoverAfterADeathBetweenAnyTwoRequests) {
  for (int64_t requests = 0; requests < 14; ++requests) {
    bool covered = false;
    TakeOverAt(requests, true, &covered);
    EXPECT_TRUE(covered || requests == 13);
  }
}

// The fencer itself dies after so many requests; who comes next takes over all the same.
TEST(RolledStoreSteps, ATakeoverThatDiedHalfwayIsTakenOver) {
  for (int64_t requests = 0; requests < 6; ++requests) {
    ObjectWorld world(7, {}, kRoll);
    auto file = *world.Sync(0).Create("d", "f", "k");
    ASSERT_EQ(world.Sync(0).Append(*file, "0123456789").outcome, AppendOutcome::kApplied);
    const Scope scope;
    world.port(1).DieAfter(requests);
    world.store(1).OpenFencing("d", "f", scope.Bind([](auto) {}));
    world.time().RunFor(Duration::Seconds(1));
    // The owner goes on until it is fenced, and rolls only while the manifest is its own.
    const AppendResult result = world.Sync(0).Append(*file, "abc");
    EXPECT_EQ(result.outcome, requests >= 4 ? AppendOutcome::kFenced : AppendOutcome::kApplied)
        << requests;
    auto next = world.Sync(2).Fence("d", "f");
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)->committed_length(), result.outcome == AppendOutcome::kApplied ? 13 : 10);
    ASSERT_EQ(world.Sync(2).Append(**next, "xyz").outcome, AppendOutcome::kApplied);
    EXPECT_EQ(world.Sync(0).Append(*file, "no").outcome, AppendOutcome::kFenced);
  }
}

// A fencer that is stopped between the manifest and the open object, and woken when others have
// taken over and rolled: the object it goes for is sealed. Returns whether it thinks it owns the
// file.
bool FencerThatSleptOwns() {
  ObjectWorld world(11, {}, kRoll);
  const Scope scope;
  auto first = *world.Sync(0).Create("d", "f", "k");
  world.Sync(0).Append(*first, "01");
  bool owns = false;
  const int64_t before = world.port(1).sent();
  world.store(1).OpenFencing("d", "f", scope.Bind([&](auto file) { owns = file.ok(); }));
  world.Turn([&] { return world.port(1).sent() == before + 3; });
  world.loop(1).Pause();
  world.time().RunFor(Duration::Seconds(1));
  auto second = *world.Sync(2).Fence("d", "f");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(world.Sync(2).Append(*second, "abcde").outcome, AppendOutcome::kApplied);
  }
  world.loop(1).Resume();
  world.time().RunFor(Duration::Seconds(1));
  EXPECT_EQ(*world.Sync(3).ReadAll("d", "f"), "01abcdeabcdeabcdeabcdeabcde");
  return owns;
}

TEST(RolledStoreSteps, AFencerThatSleptIsFencedItself) {
  EXPECT_FALSE(FencerThatSleptOwns());
  const PlantedFault fault("storage.rolled_epoch_not_guarded");
  EXPECT_TRUE(FencerThatSleptOwns());
}

// ---------------------------------------------------------------------------------------------
// One request of a roll-over or of a takeover comes twice, or its answer is lost, at every point.

// The owner appends and rolls; when it has sent `takeover_at` requests another takes over, appends
// and rolls while the owner goes on; at last a third one does. One request of the first two meets
// `fate`; what is kept of it lands when the other has sent `kept_for` more.
struct Mishap {
  int64_t takeover_at = 0;
  int process = 0;
  int64_t request = 0;  // of that process' from its first append, or from its takeover
  FakeObjectStore::Fate fate = FakeObjectStore::Fate::kTwice;
  int64_t kept_for = 0;
};

class MishapRun {
 public:
  explicit MishapRun(const Mishap& mishap) : mishap_(mishap) {}

  // What went wrong, or "". `covered`: the request was sent.
  std::string Run(bool* covered) {
    handles_[0] = *world_.Sync(0).Create("d", "f", "k");
    Decide(0);
    Append(0, 6);
    world_.Turn([&] { return Sent(0) >= mishap_.takeover_at || idle_[0]; });
    Decide(1);
    idle_[1] = false;
    world_.store(1).OpenFencing("d", "f", scope_.Bind([this](auto file) {
      idle_[1] = true;
      if (!file.ok()) return;
      handles_[1] = *std::move(file);
      Append(1, 4);
    }));
    const int other = 1 - mishap_.process;
    const int64_t before = Sent(other);
    world_.Turn([&] { return Sent(other) - before >= mishap_.kept_for || (idle_[0] && idle_[1]); });
    world_.objects().LandKept();
    world_.Turn([&] { return idle_[0] && idle_[1]; });
    *covered = Sent(mishap_.process) >= mishap_.request;
    auto third = world_.Sync(2).Fence("d", "f");
    if (!third.ok()) return "cannot be taken over: " + third.status().ToString();
    handles_[2] = *std::move(third);
    Append(2, 4);
    world_.Turn([&] { return idle_[2]; });
    world_.objects().LandKept();
    world_.time().RunFor(Duration::Seconds(10));
    return Check();
  }

 private:
  static constexpr size_t kPiece = 5;

  int64_t Sent(int process) { return world_.port(process).sent() - first_[process]; }
  void Decide(int process) {
    first_[process] = world_.port(process).sent();
    if (mishap_.process != process) return;
    world_.port(process).Decide(first_[process] + mishap_.request, mishap_.fate);
  }

  // Its next pieces, one after the other, until one is not applied.
  void Append(int who, int pieces) {
    idle_[who] = pieces == 0;
    if (pieces == 0) return;
    const std::string piece = std::to_string(10'000 + number_++);
    handles_[who]->AppendAt(handles_[who]->committed_length(), piece,
                            scope_.Bind([this, who, pieces, piece](AppendResult r) {
                              if (r.outcome == AppendOutcome::kApplied) {
                                acked_[static_cast<size_t>(r.committed_length) - kPiece] = piece;
                                last_applied_ += who == 2 ? 1 : 0;
                                return Append(who, pieces - 1);
                              }
                              if (r.outcome == AppendOutcome::kFenced) refused_.insert(piece);
                              if (IsDataLoss(r.error)) error_ = r.error.ToString();
                              idle_[who] = true;
                            }));
  }

  std::string Check() {
    if (!error_.empty()) return error_;
    const Result<std::string> read = world_.Sync(3).ReadAll("d", "f");
    if (!read.ok()) return "cannot be read: " + read.status().ToString();
    auto file = world_.Sync(4).Fence("d", "f");
    if (!file.ok() || (*file)->committed_length() != static_cast<int64_t>(read->size())) {
      return "an owner does not know the length";
    }
    std::set<std::string> seen;
    for (size_t i = 0; i < read->size(); i += kPiece) {
      const std::string piece = read->substr(i, kPiece);
      if (!seen.insert(piece).second) return "an append is there twice";
      if (refused_.contains(piece)) return "a refused append is there";
    }
    for (const auto& [at, piece] : acked_) {
      if (at > read->size() || read->substr(at, kPiece) != piece) {
        return "acknowledged bytes are not where they were said to be";
      }
    }
    return last_applied_ == 4 ? "" : "the last owner could not append";
  }

  const Mishap mishap_;
  ObjectWorld world_{1, {}, kRoll};
  std::unique_ptr<AppendFile> handles_[3];
  bool idle_[3] = {true, true, true};
  int64_t first_[3] = {0, 0, 0};
  int number_ = 0;
  int last_applied_ = 0;                 // of the third
  std::map<size_t, std::string> acked_;  // by position
  std::set<std::string> refused_;
  std::string error_;
  const Scope scope_;
};

// Calls `go` with each mishap until it returns false.
void EachMishap(const std::function<bool(const Mishap&)>& go) {
  using Fate = FakeObjectStore::Fate;
  for (int64_t takeover_at = 0; takeover_at < 14; ++takeover_at) {
    for (int process : {0, 1}) {
      // Of the owner's those that are sent about when it is taken over: others are as without.
      const int64_t first = process == 0 ? std::max<int64_t>(1, takeover_at - 1) : 1;
      const int64_t last = process == 0 ? takeover_at + 2 : 14;
      for (int64_t request = first; request <= last; ++request) {
        for (Fate fate :
             {Fate::kTwice, Fate::kOnceMore, Fate::kLostDone, Fate::kLostAndKept, Fate::kLost}) {
          const bool kept = fate == Fate::kOnceMore || fate == Fate::kLostAndKept;
          for (int64_t kept_for = 0; kept_for <= (kept ? 12 : 0);
               kept_for += process == 0 ? 1 : 4) {
            if (!go({takeover_at, process, request, fate, kept_for})) return;
          }
        }
      }
    }
  }
}

TEST(RolledStoreMishaps, ARequestThatComesTwiceOrHasNoAnswerAtAnyPointOfARollOverAndATakeover) {
  int64_t runs = 0, covered_runs = 0;
  EachMishap([&](const Mishap& m) {
    bool covered = false;
    const std::string error = MishapRun(m).Run(&covered);
    EXPECT_EQ(error, "") << "takeover at " << m.takeover_at << ", request " << m.request
                         << " of process " << m.process << ", fate " << static_cast<int>(m.fate)
                         << ", kept for " << m.kept_for;
    ++runs;
    covered_runs += covered ? 1 : 0;
    return error.empty();
  });
  EXPECT_GT(runs, 2000);
  EXPECT_GT(covered_runs, runs * 3 / 4);
}

class RolledStoreMishapsPlanted : public ::testing::TestWithParam<const char*> {};
TEST_P(RolledStoreMishapsPlanted, IsCaught) {
  const PlantedFault fault(GetParam());
  bool caught = false;
  EachMishap([&](const Mishap& m) {
    bool covered = false;
    caught = !MishapRun(m).Run(&covered).empty();
    return !caught;
  });
  EXPECT_TRUE(caught);
}
INSTANTIATE_TEST_SUITE_P(
    Bugs, RolledStoreMishapsPlanted,
    ::testing::Values("storage.rolled_append_not_guarded", "storage.rolled_length_not_guarded",
                      "storage.rolled_create_not_exclusive", "storage.rolled_manifest_not_guarded",
                      "storage.rolled_manifest_not_raised", "storage.rolled_refused_is_fenced"));

// ---------------------------------------------------------------------------------------------
// Under every fault.

// Three writers that take over from each other, one reader. Oracles: what was acknowledged is
// there, where it was said to be; what was shown never changes; no append is there twice; what was
// refused is not there. Returns what went wrong, or "".
std::string SweepOne(uint64_t seed, const char* planted, FakeObjects::Counters* sum = nullptr) {
  const Scope scope;
  Rng rng(seed);
  const FakeObjectsOptions options = FakeObjectsOptions::Swarm(rng);
  ObjectWorld world(seed, {}, kRoll * static_cast<int64_t>(1 + rng.Below(4)));
  std::vector<std::unique_ptr<AppendFile>> handles(3);
  handles[0] = *world.Sync(0).Create("d", "f", "k");
  auto reader = *world.Sync(3).Open("d", "f");
  world.objects().SetOptions(options);
  std::optional<PlantedFault> fault;
  if (planted != nullptr) fault.emplace(planted);

  std::map<int64_t, std::string> acked;  // by position
  std::set<std::string> refused;
  std::string shown;
  std::set<size_t> busy;
  std::string error;
  const auto fail = [&](const std::string& what) {
    if (error.empty()) error = what;
  };
  const auto show = [&](int64_t offset, const std::string& bytes) {
    const auto at = static_cast<size_t>(offset);
    const size_t common = std::min(shown.size(), at + bytes.size());
    if (common > at && shown.compare(at, common - at, bytes, 0, common - at) != 0) {
      fail("bytes that were shown changed");
    }
    if (at + bytes.size() > shown.size()) shown.append(bytes, shown.size() - at);
  };
  uint64_t number = 0;
  for (int step = 0; step < 120 && error.empty(); ++step) {
    const size_t who = rng.Below(3);
    const uint64_t action = rng.Below(10);
    // Stopped, and woken some steps later: what it had sent goes on.
    sim::SimLoop& loop = world.loop(static_cast<int>(who));
    if (rng.Chance(0.05)) loop.Pause();
    if (rng.Chance(0.05)) {
      for (int process : {0, 1, 2}) world.loop(process).Resume();
    }
    if (action < 5) {
      if (handles[who] == nullptr || busy.contains(who)) continue;
      const std::string piece = std::to_string(10'000'000 + number++);  // 8 bytes
      busy.insert(who);
      handles[who]->AppendAt(handles[who]->committed_length(), piece,
                             scope.Bind([&, who, piece](AppendResult r) {
                               busy.erase(who);
                               if (r.outcome == AppendOutcome::kApplied)
                                 acked[r.committed_length - 8] = piece;
                               if (r.outcome == AppendOutcome::kFenced) refused.insert(piece);
                             }));
    } else if (action < 6) {
      if (busy.contains(who)) continue;
      busy.insert(who);
      world.store(static_cast<int>(who))
          .OpenFencing("d", "f", scope.Bind([&, who](Result<std::unique_ptr<AppendFile>> file) {
            busy.erase(who);
            if (file.ok()) handles[who] = *std::move(file);
            if (!file.ok() && IsDataLoss(file.status())) fail(file.status().ToString());
          }));
    } else {
      Result<FileSize> size = world.Sync(3).Size(*reader);
      if (size.ok()) {
        Result<std::string> all = world.Sync(3).ReadFully(*reader, 0, size->committed_length);
        if (all.ok()) show(0, *all);
        if (all.ok() && static_cast<int64_t>(all->size()) < size->committed_length) {
          fail("a size was told that cannot be read");
        }
      } else if (IsNotFound(size.status()) || IsDataLoss(size.status())) {
        fail(size.status().ToString());
      }
    }
    world.time().RunFor(Duration::Micros(static_cast<int64_t>(rng.Below(3000))));
  }
  world.objects().SetOptions({});
  for (int process : {0, 1, 2}) world.loop(process).Resume();
  world.time().RunFor(Duration::Seconds(60));
  Result<std::string> read = world.Sync(4).ReadAll("d", "f");
  if (!read.ok()) return "cannot be read: " + read.status().ToString();
  const std::string content = *read;
  if (content.size() % 8 != 0) fail("half an append is there");
  if (content.substr(0, shown.size()) != shown) fail("shown bytes are gone or differ");
  std::set<std::string> seen;
  for (size_t i = 0; i < content.size(); i += 8) {
    if (!seen.insert(content.substr(i, 8)).second) fail("an append is there twice");
    if (refused.contains(content.substr(i, 8))) fail("a refused append is there");
  }
  for (const auto& [offset, piece] : acked) {
    if (static_cast<size_t>(offset) + 8 > content.size() ||
        content.substr(static_cast<size_t>(offset), 8) != piece) {
      fail("acknowledged bytes are not where they were said to be");
    }
  }
  // A reader that was there all the time catches up.
  Result<FileSize> size = world.Sync(3).Size(*reader);
  if (!size.ok() || size->committed_length != static_cast<int64_t>(content.size())) {
    fail("the reader does not see the end");
  }
  if (sum != nullptr) {
    const FakeObjects::Counters& c = world.objects().counters();
    sum->answers_lost += c.answers_lost;
    sum->landed_late += c.landed_late;
    sum->landed_twice += c.landed_twice;
    sum->refused += c.refused;
  }
  return error;
}

TEST(RolledStoreSweep, HoldsUnderEveryFault) {
  FakeObjects::Counters sum;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    ASSERT_EQ(SweepOne(seed, nullptr, &sum), "") << "seed " << seed;
  }
  EXPECT_GT(sum.answers_lost, 0);
  EXPECT_GT(sum.landed_late, 0);
  EXPECT_GT(sum.landed_twice, 0);
  EXPECT_GT(sum.refused, 0);
}

class RolledStoreSweepPlanted : public ::testing::TestWithParam<const char*> {};
TEST_P(RolledStoreSweepPlanted, IsCaught) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    if (!SweepOne(seed, GetParam()).empty()) return;
  }
  ADD_FAILURE() << "400 seeds did not notice the planted bug";
}
INSTANTIATE_TEST_SUITE_P(Bugs, RolledStoreSweepPlanted, ::testing::ValuesIn(kCaughtByTheSweep));

}  // namespace
}  // namespace tailcast::storage
