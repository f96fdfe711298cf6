// The posix driver as a Store: the conformance suite on real folders and on the file system in
// memory that loses power, and what only this driver has. Its steps are tested one by one in
// posix_file_test.cc, across processes in posix_process_test.cc.
#include "tailcast/storage/posix_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/memory_files.h"
#include "tailcast/storage/store_conformance.h"
#include "tailcast/storage/store_sync.h"
#include "tailcast/storage/temporary_folder.h"

namespace tailcast::storage {
namespace {

using ::testing::HasSubstr;

// All processes of a world share one loop: a store never looks at what another one holds in memory.
class PosixWorld : public ConformanceWorld {
 public:
  explicit PosixWorld(PosixStoreOptions options) : options_(options) {
    options_.metrics = &metrics_;
  }
  ~PosixWorld() override = default;
  Store& store(int process) override {
    std::unique_ptr<PosixStore>& store = stores_[process];
    if (store == nullptr) store = Open();
    return *store;
  }
  void Restart(int process) override { stores_[process].reset(); }
  bool Turn(const std::function<bool()>& done) override {
    return loop_.RunUntil(done, loop_.Now() + Duration::Seconds(30));
  }
  SyncStore Sync(int process) {
    return SyncStore(&store(process), [this](const auto& done) { return Turn(done); });
  }
  MetricRegistry& metrics() { return metrics_; }

 protected:
  virtual std::unique_ptr<PosixStore> Open() = 0;
  ThreadLoop loop_;
  MetricRegistry metrics_;
  PosixStoreOptions options_;
  std::map<int, std::unique_ptr<PosixStore>> stores_;
};

class RealWorld : public PosixWorld {
 public:
  explicit RealWorld(PosixStoreOptions options, FileOpsOptions ops_options = {})
      : PosixWorld(options), ops_options_(ops_options) {}
  ~RealWorld() override { stores_.clear(); }
  bool can_lose_power() const override { return false; }
  void PowerLoss() override {}
  const std::string& root() const { return folder_.path(); }

 protected:
  std::unique_ptr<PosixStore> Open() override {
    if (!ops_options_.nameless_inodes) {
      return std::make_unique<PosixStore>(&loop_, OpenFileOps(folder_.path(), ops_options_).value(),
                                          options_);
    }
    auto store = PosixStore::Open(&loop_, folder_.path(), options_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

 private:
  const FileOpsOptions ops_options_;
  TemporaryFolder folder_;
};

class MemoryWorld : public PosixWorld {
 public:
  MemoryWorld(uint64_t seed, MemoryFiles::Damage damage, PosixStoreOptions options = {})
      : PosixWorld(options), files_(seed), rng_(seed), damage_(damage) {}
  ~MemoryWorld() override { stores_.clear(); }
  bool can_lose_power() const override { return true; }
  void PowerLoss() override {
    stores_.clear();
    files_.PowerLoss(rng_, damage_);
  }
  MemoryFiles& files() { return files_; }

 protected:
  std::unique_ptr<PosixStore> Open() override {
    return std::make_unique<PosixStore>(&loop_, files_.OpenOps(), options_);
  }

 private:
  MemoryFiles files_;
  Rng rng_;
  const MemoryFiles::Damage damage_;
};

PosixStoreOptions WithDurability(posix::Durability durability) {
  PosixStoreOptions options;
  options.durability = durability;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Posix, StoreConformance,
    ::testing::Values(ConformanceParam{"Durable",
                                       [] {
                                         return std::make_unique<RealWorld>(
                                             WithDurability(posix::Durability::kDurable));
                                       }},
                      ConformanceParam{"PageCache",
                                       [] {
                                         return std::make_unique<RealWorld>(
                                             WithDurability(posix::Durability::kPageCache));
                                       }},
                      ConformanceParam{"NamedTemporaries",
                                       [] {
                                         return std::make_unique<RealWorld>(
                                             WithDurability(posix::Durability::kPageCache),
                                             FileOpsOptions{false});
                                       }},
                      ConformanceParam{
                          "InMemory",
                          [] { return std::make_unique<MemoryWorld>(1, MemoryFiles::Damage{}); }},
                      ConformanceParam{"InMemoryBadDisk",
                                       [] {
                                         return std::make_unique<MemoryWorld>(
                                             2, MemoryFiles::Damage{true});
                                       }}),
    ConformanceName);

TEST(PosixStore, NamesAnUnusableFolder) {
  ThreadLoop loop;
  auto missing = PosixStore::Open(&loop, "/no/such/parent/folder");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/no/such/parent/folder"));

  TemporaryFolder folder;
  const std::string file = folder.path() + "/file";
  std::filesystem::copy_file("/proc/self/status", file);
  auto not_a_folder = PosixStore::Open(&loop, file + "/x");
  ASSERT_FALSE(not_a_folder.ok());
  EXPECT_EQ(not_a_folder.status().code(), StatusCode::kInvalidArgument);
}

TEST(PosixStore, RefusesAFolderItMayNotWrite) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  ThreadLoop loop;
  auto store = PosixStore::Open(&loop, folder.path());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kPermissionDenied);
}

TEST(PosixStore, RefusesAFileSystemThatCannotFence) {
  ThreadLoop loop;
  auto store = PosixStore::Open(&loop, "/proc/self");
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(store.status().message(), HasSubstr("/proc/self"));
  EXPECT_THAT(store.status().message(), HasSubstr("ext4"));
}

TEST(PosixStore, ForeignAndDamagedFilesAreDataLossAndNamed) {
  RealWorld world(PosixStoreOptions{});
  SyncStore s = world.Sync(0);
  { auto file = *s.Create("d", "f", "k"); }
  std::filesystem::copy_file("/proc/self/status", world.root() + "/d/foreign");
  for (const char* name : {"foreign"}) {
    auto open = s.Open("d", name);
    ASSERT_FALSE(open.ok());
    EXPECT_EQ(open.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(open.status().message(), HasSubstr(std::string("d/") + name));
    EXPECT_EQ(s.Fence("d", name).status().code(), StatusCode::kDataLoss);
  }
  // A renamed file.
  std::filesystem::rename(world.root() + "/d/f", world.root() + "/d/g");
  auto renamed = s.Open("d", "g");
  ASSERT_FALSE(renamed.ok());
  EXPECT_EQ(renamed.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(renamed.status().message(), HasSubstr("calls itself 'f'"));
}

TEST(PosixStore, AFileThatWasCutByAnotherProgramIsDataLoss) {
  RealWorld world(PosixStoreOptions{});
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  ASSERT_EQ(s.Append(*file, std::string(10'000, 'x')).outcome, AppendOutcome::kApplied);
  auto reader = *s.Open("d", "f");
  ASSERT_EQ(truncate((world.root() + "/d/f").c_str(), 4096 + 6000), 0);
  auto bytes = s.Read(*reader, 0, 10'000);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(bytes.status().message(), HasSubstr("position 6000 of 10000"));
}

TEST(PosixStore, AFullDiskEndsTheHandleAndANewOneGoesOnWhenThereIsRoom) {
  MemoryWorld world(1, {});
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
  world.files().SetFaults({0, 0, 5'000});
  const AppendResult full = s.Append(*file, std::string(20'000, 'x'));
  EXPECT_EQ(full.outcome, AppendOutcome::kUnknown);
  EXPECT_EQ(full.error.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(s.Append(*file, "y").outcome, AppendOutcome::kUnknown);
  EXPECT_EQ(s.Create("d", "g", "l").status().code(), StatusCode::kResourceExhausted);
  world.files().SetFaults({});
  file = *s.Fence("d", "f");
  EXPECT_EQ(file->committed_length(), 3);
  ASSERT_EQ(s.Append(*file, "def").outcome, AppendOutcome::kApplied);
  EXPECT_EQ(*s.ReadAll("d", "f"), "abcdef");
}

TEST(PosixStore, AnInputOutputErrorNeverTurnsIntoAnAcknowledgement) {
  int unknowns = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    MemoryWorld world(seed, {});
    SyncStore s = world.Sync(0);
    std::string all;
    auto file = *s.Create("d", "f", "k");
    world.files().SetFaults({0.1, 0.1, INT64_MAX});
    for (int i = 0; i < 20; ++i) {
      const std::string piece = std::to_string(seed * 1000 + static_cast<uint64_t>(i));
      const AppendResult result = s.Append(*file, piece);
      if (result.outcome == AppendOutcome::kApplied) {
        all += piece;
        continue;
      }
      ASSERT_EQ(result.outcome, AppendOutcome::kUnknown);
      ++unknowns;
      ASSERT_EQ(s.Append(*file, piece).outcome, AppendOutcome::kUnknown) << "a dead handle";
      world.files().SetFaults({});
      file.reset();
      world.PowerLoss();
      s = world.Sync(0);
      file = *s.Fence("d", "f");
      Result<std::string> content = s.ReadAll("d", "f");
      ASSERT_TRUE(content.ok()) << content.status();
      ASSERT_TRUE(*content == all || *content == all + piece);
      all = *content;
      world.files().SetFaults({0.1, 0.1, INT64_MAX});
    }
  }
  EXPECT_GT(unknowns, 50);
}

TEST(PosixStore, APageCacheFileIsRefusedAfterARestartOfTheMachine) {
  MemoryWorld world(1, {}, WithDurability(posix::Durability::kPageCache));
  {
    SyncStore s = world.Sync(0);
    auto file = *s.Create("d", "f", "k");
    ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
    // The kernel would write it back in time; here somebody flushes the names and the first page.
    auto ops = world.files().OpenOps();
    ASSERT_TRUE((*ops->Open("d/f", true))->SyncData().ok());
    ASSERT_TRUE(ops->SyncFolder("d").ok());
    ASSERT_TRUE(ops->SyncFolder("").ok());
  }
  world.PowerLoss();
  SyncStore s = world.Sync(0);
  Result<std::string> bytes = s.ReadAll("d", "f");
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(bytes.status().message(), HasSubstr("page-cache"));
  EXPECT_EQ(s.Fence("d", "f").status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(s.Delete("d", "f").ok());
}

TEST(PosixStore, ClosingTheStoreAnswersEverythingThatIsOutstanding) {
  const Scope scope;
  MemoryWorld world(1, {});
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  auto reader = *s.Open("d", "f");
  int answers = 0;
  file->AppendAt(0, "abc", scope.Bind([&](AppendResult) { ++answers; }));
  for (int i = 0; i < 50; ++i) {
    reader->Read(0, 10, scope.Bind([&](Result<std::string>) { ++answers; }));
    world.store(0).List("d", scope.Bind([&](auto) { ++answers; }));
  }
  world.Restart(0);
  EXPECT_TRUE(world.Turn([&] { return answers == 101; }));
  // Handles outlive their store and say so.
  AppendResult late;
  bool answered = false;
  file->AppendAt(file->committed_length(), "x", scope.Bind([&](AppendResult result) {
    late = std::move(result);
    answered = true;
  }));
  EXPECT_TRUE(world.Turn([&] { return answered; }));
  EXPECT_EQ(late.outcome, AppendOutcome::kUnknown);
}

TEST(FileOps, TemporariesOfDeadMakersAreRemovedAfterAnHour) {
  TemporaryFolder folder;
  const auto touch = [&](const char* name, int64_t age_seconds) {
    std::string path = folder.path() + "/" + name;
    std::filesystem::copy_file("/proc/self/status", path);
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(age_seconds));
    return path;
  };
  const std::string old = touch(".tmp-0123456789abcdef", 3700);
  const std::string young = touch(".tmp-0123456789abcdee", 3000);
  const std::string other = touch("old", 37000);
  const auto ops = OpenFileOps(folder.path(), {false}).value();
  {
    auto file = ops->CreateUnnamed("").value();
    EXPECT_FALSE(std::filesystem::exists(old));
    EXPECT_TRUE(std::filesystem::exists(young));
    EXPECT_TRUE(std::filesystem::exists(other));
    ASSERT_TRUE(file->WriteAt(0, "x").ok());
    ASSERT_TRUE(ops->Link(*file, "linked").ok());
    EXPECT_EQ(ops->ListFolder("")->size(), 5u);
  }
  EXPECT_EQ(ops->ListFolder("")->size(), 4u) << "a temporary stayed";
}

TEST(PosixStore, CountsWhatItDoes) {
  MemoryWorld world(1, {});
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
  ASSERT_EQ(s.Append(*file, 17, "abc").outcome, AppendOutcome::kWrongOffset);
  auto second = *s.Fence("d", "f");
  ASSERT_EQ(s.Append(*file, "x").outcome, AppendOutcome::kFenced);
  EXPECT_EQ(*s.ReadAll("d", "f"), "abc");
  MetricRegistry& m = world.metrics();
  EXPECT_EQ(m.Value("tailcast_storage_appends_total", {{"outcome", "applied"}}), 1);
  EXPECT_EQ(m.Value("tailcast_storage_appends_total", {{"outcome", "wrong_offset"}}), 1);
  EXPECT_EQ(m.Value("tailcast_storage_appends_total", {{"outcome", "fenced"}}), 1);
  EXPECT_EQ(m.Value("tailcast_storage_takeovers_total"), 1);
  EXPECT_EQ(m.Value("tailcast_storage_append_bytes_total"), 3);
  EXPECT_EQ(m.Value("tailcast_storage_read_bytes_total"), 3);
}

TEST(PosixStore, AThousandFilesAreOpenAtOnce) {
  const Scope scope;
  RealWorld world(WithDurability(posix::Durability::kPageCache));
  SyncStore s = world.Sync(0);
  constexpr size_t kFiles = 1000;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 3 * kFiles) GTEST_SKIP() << "only " << limit.rlim_max << " descriptors";
  limit.rlim_cur = 3 * kFiles;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<std::unique_ptr<AppendFile>> files;
  std::vector<std::unique_ptr<ReadFile>> readers;
  for (size_t i = 0; i < kFiles; ++i) {
    auto file = s.Create("d", "f" + std::to_string(i), std::to_string(i));
    ASSERT_TRUE(file.ok()) << file.status();
    files.push_back(*std::move(file));
    readers.push_back(*s.Open("d", "f" + std::to_string(i)));
  }
  size_t applied = 0;
  for (auto& file : files) {
    file->AppendAt(0, "x", scope.Bind([&](AppendResult r) {
      applied += r.outcome == AppendOutcome::kApplied ? 1 : 0;
    }));
  }
  ASSERT_TRUE(world.Turn([&] { return applied == kFiles; }));
  EXPECT_EQ(*s.Read(*readers.back(), 0, 10), "x");
}

}  // namespace
}  // namespace tailcast::storage
