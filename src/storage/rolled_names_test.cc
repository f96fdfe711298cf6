// Names on the rolled driver: creation, deletion and taking aside, each cut after every request and
// run beside others between any two; what is told of a pool that is gone; and that each planted bug
// of these steps is caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/rolled_world.h"

namespace tailcast::storage {
namespace {

TEST(RolledNames, ACreationThatDiedLeavesTheKeyFreeOrTheFileWhole) {
  const Scope scope;
  int whole = 0;
  for (int64_t requests = 0; requests < 12; ++requests) {
    ObjectWorld world(8, {}, kRoll);
    world.port(0).DieAfter(requests);
    world.store(0).CreateExclusive("deep/in", "first", "k", scope.Bind([](auto) {}));
    world.time().RunFor(Duration::Seconds(1));
    SyncStore s = world.Sync(1);
    auto second = s.Create("deep/in", "second", "k");
    if (second.ok()) {
      EXPECT_EQ(*s.List("deep/in"), (std::vector<std::string>{"second"}));
    } else {
      ASSERT_EQ(second.status().code(), StatusCode::kAlreadyExists) << second.status();
      EXPECT_EQ(WinnerOf(second.status()), "first");
      ++whole;
    }
    const std::string name = s.List("deep/in")->front();
    auto file = s.Fence("deep/in", name);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(s.Append(**file, "x").outcome, AppendOutcome::kApplied);
    // What the dead one left goes with the next deletion in the folder: three folders stay.
    ASSERT_TRUE(s.Delete("deep/in", name).ok());
    EXPECT_EQ(world.objects().Names().size(), 3u) << "after " << requests;
  }
  EXPECT_GT(whole, 0);
  EXPECT_LT(whole, 12);
}

TEST(RolledNames, ADeletionThatDiedIsFinishedByTheNext) {
  const Scope scope;
  for (int64_t requests = 0; requests < 14; ++requests) {
    ObjectWorld world(9, {}, kRoll);
    SyncStore s = world.Sync(1);
    auto other = *s.Create("d", "other", "o");
    const size_t before = world.objects().Names().size();
    auto file = *s.Create("d", "f", "k");
    for (int i = 0; i < 7; ++i) s.Append(*file, "12345");
    world.port(0).DieAfter(requests);
    world.store(0).Delete("d", "f", scope.Bind([](auto) {}));
    world.time().RunFor(Duration::Seconds(1));
    const Status again = s.Delete("d", "f");
    EXPECT_TRUE(again.ok() || IsNotFound(again)) << again;
    EXPECT_NE(s.Append(*file, "x").outcome,
              requests >= 6 ? AppendOutcome::kApplied : AppendOutcome::kWrongOffset);
    ASSERT_TRUE(s.Delete("d", "other").ok());
    EXPECT_EQ(world.objects().Names().size(), before - 2) << "after " << requests;
    EXPECT_NE(s.Append(*file, "x").outcome, AppendOutcome::kApplied);
  }
}

TEST(RolledNames, TakingAsideThatDiedIsFinishedByTheNextAndReclaimedByADeletion) {
  const Scope scope;
  for (int64_t requests = 0; requests < 8; ++requests) {
    SCOPED_TRACE("died after " + std::to_string(requests));
    ObjectWorld world(12, {}, kRoll);
    SyncStore s = world.Sync(1);
    auto file = *s.Create("d", "f", "k");
    for (int i = 0; i < 7; ++i) s.Append(*file, "12345");
    world.port(0).DieAfter(requests);
    world.store(0).Quarantine("d", "f", scope.Bind([](auto) {}));
    world.time().RunFor(Duration::Seconds(1));
    const Status again = s.Quarantine("d", "f");
    EXPECT_TRUE(again.ok() || IsNotFound(again)) << again;
    EXPECT_NE(s.Append(*file, "x").outcome, AppendOutcome::kApplied);
    auto copy = s.Create("d", "f", "k");
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ(s.Append(**copy, "new").outcome, AppendOutcome::kApplied);
    EXPECT_EQ(*s.ReadAll("d", "f"), "new");
    ASSERT_TRUE(s.Delete("d", "f").ok());
    EXPECT_EQ(world.objects().Names().size(), 2u) << "root and folder";
  }
}

// ---------------------------------------------------------------------------------------------
// Each gives "" or what went wrong.

// A creation is stopped after each of its requests while another one takes the same key, and goes
// on.
std::string TwoCreators() {
  for (int64_t requests = 1; requests < 6; ++requests) {
    ObjectWorld world(13, {}, kRoll);
    const Scope scope;
    world.Sync(2).Create("d", "there", "t").value();
    const int64_t before = world.port(0).sent();
    world.store(0).CreateExclusive("d", "one", "k", scope.Bind([](auto) {}));
    world.Turn([&] { return world.port(0).sent() - before >= requests; });
    world.loop(0).Pause();
    world.time().RunFor(Duration::Seconds(1));
    const auto two = world.Sync(1).Create("d", "two", "k");
    if (!two.ok() && !IsAlreadyExists(two.status())) return two.status().ToString();
    world.loop(0).Resume();
    world.time().RunFor(Duration::Seconds(1));
    const size_t names = world.Sync(2).List("d")->size();
    if (names != 2) return std::to_string(names - 1) + " files have one key";
  }
  return "";
}

// A creation is stopped after each of its requests while what is loose in the folder is removed.
std::string ACreationThatWasTakenForDead() {
  for (int64_t requests = 1; requests < 6; ++requests) {
    ObjectWorld world(14, {}, kRoll);
    const Scope scope;
    world.Sync(2).Create("d", "other", "o").value();
    const int64_t before = world.port(0).sent();
    world.store(0).CreateExclusive("d", "f", "k", scope.Bind([](auto) {}));
    world.Turn([&] { return world.port(0).sent() - before >= requests; });
    world.loop(0).Pause();
    world.time().RunFor(Duration::Seconds(1));
    const Status deleted = world.Sync(1).Delete("d", "other");
    if (!deleted.ok()) return deleted.ToString();
    world.loop(0).Resume();
    world.time().RunFor(Duration::Seconds(1));
    SyncStore s = world.Sync(2);
    if (s.List("d")->empty()) continue;  // it was at its first request
    auto file = s.Fence("d", "f");
    if (!file.ok()) return "a file without its objects: " + file.status().ToString();
    if (s.Append(**file, "x").outcome != AppendOutcome::kApplied) return "it cannot be appended to";
  }
  return "";
}

// A creation, and a deletion beside it in the folder, each stopped after any of its requests. The
// creation wakes first, and its file is appended to before the deletion goes on.
std::string ADeletionThatSleptBesideACreation() {
  for (int64_t made = 1; made < 6; ++made) {
    for (int64_t removed = 1; removed < 12; ++removed) {
      ObjectWorld world(18, {}, kRoll);
      const Scope scope;
      world.Sync(2).Create("d", "other", "o").value();
      std::unique_ptr<AppendFile> file;
      std::string error;
      int64_t before = world.port(0).sent();
      world.store(0).CreateExclusive("d", "f", "k",
                                     scope.Bind([&](Result<std::unique_ptr<AppendFile>> created) {
                                       if (created.ok()) file = *std::move(created);
                                       if (!created.ok()) error = created.status().ToString();
                                     }));
      world.Turn([&] { return world.port(0).sent() - before >= made; });
      world.loop(0).Pause();
      before = world.port(1).sent();
      world.store(1).Delete("d", "other", scope.Bind([](const Status&) {}));
      world.Turn([&] { return world.port(1).sent() - before >= removed; });
      world.loop(1).Pause();
      world.time().RunFor(Duration::Seconds(1));
      world.loop(0).Resume();
      world.Turn([&] { return file != nullptr || !error.empty(); });
      if (file == nullptr) return "no file was made: " + error;
      const AppendResult appended = world.Sync(0).Append(*file, "01234");
      if (appended.outcome != AppendOutcome::kApplied) return appended.error.ToString();
      world.loop(1).Resume();
      world.time().RunFor(Duration::Seconds(1));
      const auto all = world.Sync(3).ReadAll("d", "f");
      if (!all.ok() || *all != "01234") return "acknowledged bytes are gone";
      if (world.Sync(0).Append(*file, "5").outcome != AppendOutcome::kApplied)
        return "it is fenced";
    }
  }
  return "";
}

// A deletion between any two requests of a writer that rolls: nothing is acknowledged after it, and
// nothing stays.
std::string ADeletionBesideAWriter() {
  std::string error;
  for (int64_t requests = 0; requests < 14; ++requests) {
    for (const bool writer_waits : {false, true}) {
      ObjectWorld world(10, {}, kRoll);
      const Scope scope;
      auto file = *world.Sync(0).Create("d", "f", "k");
      const int64_t before = world.port(0).sent();
      bool deleted = false;
      int number = 0;
      std::function<void()> next = [&] {
        if (++number == 7) return;
        const bool after_delete = deleted;
        file->AppendAt(file->committed_length(), "12345",
                       scope.Bind([&, after_delete](AppendResult result) {
                         if (result.outcome != AppendOutcome::kApplied) {
                           if (result.outcome != AppendOutcome::kFenced) {
                             error = result.error.ToString();
                           }
                           return;
                         }
                         if (after_delete) error = "acknowledged after the deletion";
                         next();
                       }));
      };
      next();
      world.Turn([&] { return world.port(0).sent() - before >= requests || number == 7; });
      // Its next request is on the way while it sleeps, or is not sent before the deletion is over.
      if (writer_waits) world.loop(0).Pause();
      const Status removed = world.Sync(1).Delete("d", "f");
      if (!removed.ok()) return removed.ToString();
      deleted = true;
      world.loop(0).Resume();
      if (number == 7) next();
      world.time().RunFor(Duration::Seconds(10));
      const size_t objects = world.objects().Names().size();
      if (objects != 2) error = std::to_string(objects - 2) + " objects stay";
      if (!error.empty()) return error + ", deleted after request " + std::to_string(requests);
    }
  }
  return "";
}

std::string APoolThatIsGone() {
  ObjectWorld world(15, {}, kRoll);
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  s.Append(*file, "0123456789");
  world.objects().DeletePool();
  if (const auto names = s.List("d"); names.ok()) return "an empty folder";
  const Status open = s.Open("d", "f").status();
  return IsNotFound(open) ? "told as: " + open.ToString() : "";
}

std::string AReaderOfAFileThatIsDeleted() {
  ObjectWorld world(16, {}, kRoll);
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  s.Append(*file, "0123");
  auto reader = *s.Open("d", "f");
  if (const Status status = s.Delete("d", "f"); !status.ok()) return status.ToString();
  const auto bytes = s.Read(*reader, 0, 4);
  return bytes.ok() ? "the file ends at 0" : "";
}

std::string AWriterOfAFileThatIsTakenAside() {
  ObjectWorld world(17, {}, kRoll);
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  s.Append(*file, "0123");
  if (const Status status = world.Sync(1).Quarantine("d", "f"); !status.ok()) {
    return status.ToString();
  }
  return s.Append(*file, "4").outcome == AppendOutcome::kApplied ? "it goes on" : "";
}

struct CaughtBy {
  const char* fault;
  std::string (*check)();
};
void PrintTo(const CaughtBy& c, std::ostream* os) { *os << c.fault; }

constexpr CaughtBy kCaughtBy[] = {
    {"storage.rolled_key_not_guarded", TwoCreators},
    {"storage.rolled_loose_not_guarded", ACreationThatWasTakenForDead},
    {"storage.rolled_loose_not_claimed", ADeletionThatSleptBesideACreation},
    {"storage.rolled_deletion_not_marked", ADeletionBesideAWriter},
    {"storage.rolled_pool_not_asked", APoolThatIsGone},
    {"storage.rolled_absent_is_end", AReaderOfAFileThatIsDeleted},
    {"storage.rolled_quarantine_not_fenced", AWriterOfAFileThatIsTakenAside},
};

class RolledNamesCheck : public ::testing::TestWithParam<CaughtBy> {};
TEST_P(RolledNamesCheck, HoldsAndCatchesItsPlantedBug) {
  EXPECT_EQ(GetParam().check(), "");
  const PlantedFault fault(GetParam().fault);
  EXPECT_NE(GetParam().check(), "") << "nobody noticed";
}
INSTANTIATE_TEST_SUITE_P(Bugs, RolledNamesCheck, ::testing::ValuesIn(kCaughtBy),
                         [](const auto& info) {
                           return std::string(info.param.fault).substr(sizeof "storage." - 1);
                         });

TEST(RolledPlantedBugs, AllThatAreLinkedInAreTried) {
  std::vector<std::string> tried = {"storage.rolled_epoch_not_guarded"};
  tried.insert(tried.end(), std::begin(kCaughtByTheSweep), std::end(kCaughtByTheSweep));
  for (const CaughtBy& c : kCaughtBy) tried.push_back(c.fault);
  for (const FaultPoint* point : FaultPoints()) {
    if (!point->name().starts_with("storage.rolled_")) continue;
    EXPECT_NE(std::find(tried.begin(), tried.end(), point->name()), tried.end()) << point->name();
  }
}

}  // namespace
}  // namespace tailcast::storage
