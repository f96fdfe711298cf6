// The room that is kept back for a cell's own records: on a file system in memory, step by step,
// and on a small one of the system.
#include "tailcast/storage/posix_reserve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/memory_files.h"
#include "tailcast/storage/posix_file.h"
#include "tailcast/storage/posix_store.h"
#include "tailcast/storage/store_sync.h"
#include "tailcast/storage/temporary_folder.h"

namespace tailcast::storage::posix {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDisk = 4 << 20;
constexpr int64_t kKept = kDisk / 16;

// One that writes messages, and one that writes records.
class Writer {
 public:
  Writer(MemoryFiles& files, StoreUse use) {
    ops_ = files.OpenOps();
    reserve_ = std::make_unique<Reserve>(ops_.get());
    reserving_ = UseReserve(ops_.get(), reserve_.get());
    records_ = use == StoreUse::kRecords;
    c_.ops = records_ ? reserving_.get() : ops_.get();
    if (records_) reserve_->MakeWhole();
    if (!records_) c_.reserve = reserve_.get();
  }
  Status Create(const std::string& name) {
    auto made = CreateExclusive(c_, "d", name, name);
    if (made.ok()) files_[name] = std::move(*made);
    return made.ok() ? OkStatus() : made.status();
  }
  // At the end of its file, which is opened anew if it must be.
  Status Append(const std::string& name, int64_t bytes) {
    std::unique_ptr<Appender>& file = files_[name];
    if (file == nullptr) {
      auto opened = OpenFencing(c_, "d", name);
      if (!opened.ok()) return opened.status();
      file = std::move(*opened);
    }
    AppendResult result = file->Append(std::string(static_cast<size_t>(bytes), 'x'));
    if (result.outcome == AppendOutcome::kApplied) return OkStatus();
    file = nullptr;
    return result.error;
  }
  // Files of this size, until there is no room.
  int Fill(int64_t bytes) {
    for (int number = 0;; ++number) {
      const std::string name = "message-" + std::to_string(next_++);
      Status status = Create(name);
      if (status.ok()) status = Append(name, bytes);
      if (status.ok()) continue;
      EXPECT_TRUE(IsResourceExhausted(status)) << status;
      return number;
    }
  }
  Status Remove(const std::string& name) {
    files_.erase(name);
    Status status = Delete(c_, "d", name);
    if (records_) reserve_->MakeWhole();
    return status;
  }
  int64_t kept() const {
    const Result<int64_t> bytes = ops_->AllocatedBytes(kReserveName);
    return bytes.ok() ? *bytes : 0;
  }
  Result<StoreRoom> Room() {
    if (records_) reserve_->MakeWhole();
    return reserve_->Room();
  }
  FileOps& ops() { return *ops_; }
  const Context& context() const { return c_; }

 private:
  std::unique_ptr<FileOps> ops_;
  std::unique_ptr<Reserve> reserve_;
  std::unique_ptr<FileOps> reserving_;
  bool records_ = false;
  int next_ = 0;
  Context c_;
  std::map<std::string, std::unique_ptr<Appender>> files_;
};

class ReserveTest : public ::testing::Test {
 protected:
  ReserveTest() {
    MemoryFiles::Faults faults;
    faults.capacity_bytes = kDisk;
    files_.SetFaults(faults);
  }
  MemoryFiles files_{1};
};

TEST_F(ReserveTest, ADiskThatIsFullOfMessagesHasRoomForRecordsAndCanBeEmptied) {
  Writer records(files_, StoreUse::kRecords), messages(files_, StoreUse::kMessages);
  EXPECT_EQ(records.kept(), kKept);
  ASSERT_TRUE(records.Create("log").ok());
  EXPECT_FALSE(records.Room()->low);
  const int written = messages.Fill(100'000);
  ASSERT_GT(written, 20);
  messages.Fill(1);
  EXPECT_TRUE(records.Room()->low);
  EXPECT_EQ(records.kept(), kKept) << "nobody needed it";
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(records.Append("log", 1000).ok()) << i;
    EXPECT_TRUE(i >= 20 || records.Create("marker-" + std::to_string(i)).ok()) << i;
  }
  EXPECT_LT(records.kept(), kKept);
  EXPECT_GT(records.kept(), 0);
  // What was given up and is not used is for more records.
  const Status refused = messages.Create("another");
  EXPECT_TRUE(IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("create d/another: No space left on device (0 MiB of 4 "
                                           "MiB are free at (memory), for the cell's own records"));
  // The first removals give it back what it lent, the next ones make room.
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(records.Remove("message-" + std::to_string(i)).ok());
  EXPECT_EQ(records.kept(), kKept);
  EXPECT_TRUE(messages.Create("another").ok());
  EXPECT_TRUE(messages.Append("another", 10'000).ok());
}

// How many small records a disk full of messages takes, with messages that wait for room.
int RecordsOnAFullDisk() {
  MemoryFiles files(1);
  MemoryFiles::Faults faults;
  faults.capacity_bytes = kDisk;
  files.SetFaults(faults);
  Writer records(files, StoreUse::kRecords), messages(files, StoreUse::kMessages);
  EXPECT_TRUE(records.Create("log").ok());
  messages.Fill(100'000);
  messages.Fill(1);
  int appends = 0;
  for (; appends < 1000 && records.Append("log", 100).ok(); ++appends) {
    static_cast<void>(messages.Append("message-0", 3'000));
  }
  return appends;
}

TEST_F(ReserveTest, MessagesTakeNothingOfWhatWasGivenUp) {
  EXPECT_EQ(RecordsOnAFullDisk(), 1000);
  const PlantedFault fault("storage.reserve_taken_by_messages");
  EXPECT_LT(RecordsOnAFullDisk(), 500);
}

TEST_F(ReserveTest, ARecordWriterThatDiedHasTakenNothingFromAnybody) {
  Writer messages(files_, StoreUse::kMessages);
  {
    Writer records(files_, StoreUse::kRecords);
    ASSERT_TRUE(records.Create("log").ok());
    messages.Fill(10'000);
    ASSERT_TRUE(records.Append("log", 20'000).ok());
    ASSERT_LT(records.kept(), kKept);
  }
  EXPECT_TRUE(IsResourceExhausted(messages.Create("another")));
  // Another program makes room. Nobody but who writes messages is there.
  ASSERT_TRUE(messages.Remove("message-0").ok());
  ASSERT_TRUE(messages.Remove("message-1").ok());
  ASSERT_TRUE(messages.Remove("message-2").ok());
  ASSERT_TRUE(messages.Remove("message-3").ok());
  ASSERT_TRUE(messages.Remove("message-4").ok());
  EXPECT_TRUE(messages.Create("another").ok());
  EXPECT_EQ(messages.kept(), kKept);
}

TEST_F(ReserveTest, WhileSomebodyGivesItUpNobodyMakesItWhole) {
  Writer records(files_, StoreUse::kRecords), messages(files_, StoreUse::kMessages);
  {
    const auto file = records.ops().Open(kReserveName, true).value();
    ASSERT_TRUE(*file->TryLock());
    ASSERT_TRUE(file->Truncate(1000).ok());
    EXPECT_TRUE(IsResourceExhausted(messages.Create("a")));
    EXPECT_EQ(messages.kept(), 1000);
  }
  EXPECT_TRUE(messages.Create("a").ok());
  EXPECT_EQ(messages.kept(), kKept);
}

// A store that no newer scheduler has opened yet; or where it was opened on a full disk.
TEST_F(ReserveTest, WithoutAReserveMessagesAreWrittenAndItIsMadeWhenThereIsRoom) {
  Writer messages(files_, StoreUse::kMessages);
  ASSERT_GT(messages.Fill(100'000), 20);
  Writer records(files_, StoreUse::kRecords);
  EXPECT_EQ(records.kept(), 0);
  EXPECT_TRUE(records.Room()->low);
  ASSERT_TRUE(records.Remove("message-0").ok());
  EXPECT_EQ(records.kept(), 0) << "no room for all of it";
  for (int i = 1; i < 4; ++i) ASSERT_TRUE(records.Remove("message-" + std::to_string(i)).ok());
  EXPECT_EQ(records.kept(), kKept);
  // Somebody removed it; a look at the room makes it.
  ASSERT_TRUE(messages.ops().Unlink(kReserveName).ok());
  EXPECT_TRUE(records.Room().ok());
  EXPECT_EQ(records.kept(), kKept);
}

TEST_F(ReserveTest, NoListingShowsIt) {
  Writer records(files_, StoreUse::kRecords);
  ASSERT_TRUE(records.Create("log").ok());
  EXPECT_TRUE(List(records.context(), "").value().empty());
  EXPECT_EQ(ListFolders(records.context(), "").value(), std::vector<std::string>{"d"});
}

TEST_F(ReserveTest, APowerLossInBetweenCostsNoMoreThanTheReserve) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    MemoryFiles files(seed);
    MemoryFiles::Faults faults;
    faults.capacity_bytes = kDisk;
    files.SetFaults(faults);
    {
      Writer records(files, StoreUse::kRecords), messages(files, StoreUse::kMessages);
      ASSERT_TRUE(records.Create("log").ok());
      messages.Fill(100'000);
      ASSERT_TRUE(records.Append("log", 5'000).ok());
    }
    Rng rng(seed);
    files.PowerLoss(rng, {});
    Writer records(files, StoreUse::kRecords), messages(files, StoreUse::kMessages);
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(records.Remove("message-" + std::to_string(i)).ok()) << seed;
    }
    EXPECT_EQ(records.kept(), kKept) << seed;
    EXPECT_TRUE(records.Append("log", 5'000).ok()) << seed;
    EXPECT_TRUE(messages.Create("another").ok()) << seed;
  }
}

TEST(ReserveBytes, IsAShareOfASmallDiskAndBoundedOnALargeOne) {
  EXPECT_EQ(ReserveBytes(32 << 20), 2 << 20);
  EXPECT_EQ(ReserveBytes(int64_t{1} << 40), 8 << 20);
}

// --- on the system

class SmallDisk {
 public:
  explicit SmallDisk(const std::string& options) {
    if (mount("none", folder_.path().c_str(), "tmpfs", 0, options.c_str()) != 0) {
      why_ = std::string("no small disk can be mounted here: ") + std::strerror(errno);
    }
  }
  ~SmallDisk() {
    if (why_.empty()) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  const std::string& why() const { return why_; }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  std::string why_;
};

class OpenStore {
 public:
  OpenStore(const std::string& root, StoreUse use) {
    PosixStoreOptions options;
    options.use = use;
    options.metrics = &metrics_;
    store_ = PosixStore::Open(&loop_, root, options).value();
  }
  SyncStore Sync() {
    return SyncStore(store_.get(), [this](const std::function<bool()>& done) {
      return loop_.RunUntil(done, loop_.Now() + Duration::Seconds(30));
    });
  }

 private:
  ThreadLoop loop_;
  MetricRegistry metrics_;
  std::unique_ptr<PosixStore> store_;
};

int FillStore(SyncStore store, const std::string& prefix, size_t bytes) {
  for (int number = 0;; ++number) {
    const std::string name = prefix + std::to_string(number);
    auto file = store.Create("messages", name, name);
    if (!file.ok()) {
      EXPECT_TRUE(IsResourceExhausted(file.status())) << file.status();
      return number;
    }
    const AppendResult result = store.Append(**file, std::string(bytes, 'x'));
    if (result.outcome != AppendOutcome::kApplied) {
      EXPECT_TRUE(IsResourceExhausted(result.error)) << result.error;
      return number;
    }
  }
}

TEST(Reserve, ASmallDiskOfTheSystemIsEmptiedWhenItIsFull) {
  const SmallDisk disk("size=16m");
  if (!disk.why().empty()) GTEST_SKIP() << disk.why();
  OpenStore records(disk.path(), StoreUse::kRecords), messages(disk.path(), StoreUse::kMessages);
  const auto reserve = std::filesystem::path(disk.path()) / kReserveName;
  EXPECT_EQ(std::filesystem::file_size(reserve), 1u << 20);
  auto log = records.Sync().Create("registry", "log", "log").value();
  FillStore(messages.Sync(), "large-", 1 << 20);
  FillStore(messages.Sync(), "small-", 1);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(records.Sync().Append(*log, std::string(5000, 'x')).outcome, AppendOutcome::kApplied);
    const std::string marker = "marker-" + std::to_string(i);
    ASSERT_TRUE(records.Sync().Create("marks", marker, marker).ok());
    EXPECT_EQ(FillStore(messages.Sync(), "more-", 1), 0);
  }
  EXPECT_LT(std::filesystem::file_size(reserve), 1u << 20);
  ASSERT_TRUE(records.Sync().Delete("messages", "large-0").ok());
  EXPECT_EQ(std::filesystem::file_size(reserve), 1u << 20);
  EXPECT_GT(FillStore(messages.Sync(), "more-", 1), 0);
  // Something that only looks like it: a hole.
  std::filesystem::resize_file(reserve, 0);
  std::filesystem::resize_file(reserve, 1 << 20);
  FillStore(messages.Sync(), "again-", 1);
  ASSERT_TRUE(records.Sync().Delete("messages", "large-1").ok());
  ASSERT_EQ(records.Sync().Append(*log, std::string(5000, 'x')).outcome, AppendOutcome::kApplied);
}

// A takeover wants one, and a mark one; where a second name of an inode counts as one (tmpfs), a
// mark wants two.
TEST(Reserve, ADiskWithoutInodesHasOneForATakeoverOfTheLog) {
  const SmallDisk disk("size=64m,nr_inodes=60");
  if (!disk.why().empty()) GTEST_SKIP() << disk.why();
  OpenStore records(disk.path(), StoreUse::kRecords), messages(disk.path(), StoreUse::kMessages);
  ASSERT_TRUE(records.Sync().Create("registry", "log", "log").ok());
  ASSERT_GT(FillStore(messages.Sync(), "small-", 1), 20);
  const auto log = records.Sync().Fence("registry", "log");
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE(records.Sync().Delete("messages", "small-0").ok());
  ASSERT_TRUE(records.Sync().Delete("messages", "small-1").ok());
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(disk.path()) / kReserveName));
}

}  // namespace
}  // namespace tailcast::storage::posix
