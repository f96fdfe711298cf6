// What the posix driver asks of the system it runs on: how long a shared page counts, mounts, full
// disks, files that other programs cut, and how often folders are listed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/file_system_check.h"
#include "tailcast/storage/memory_files.h"
#include "tailcast/storage/posix_file.h"
#include "tailcast/storage/posix_store.h"
#include "tailcast/storage/store_sync.h"
#include "tailcast/storage/temporary_folder.h"

namespace tailcast::storage {
namespace {

using posix::Durability;
using ::testing::HasSubstr;

// A store that one process has open.
class Opened {
 public:
  explicit Opened(const std::string& root, Durability durability = Durability::kDurable) {
    PosixStoreOptions options;
    options.durability = durability;
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

// The part of a file that processes share, as a disk has it that was not told to write it.
std::string LiveSector(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string page(posix::kPageBytes, '\0');
  file.read(page.data(), static_cast<std::streamsize>(page.size()));
  return page.substr(posix::kLiveOffset, posix::kSectorBytes);
}
void WriteLiveSector(const std::string& path, const std::string& sector) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(posix::kLiveOffset);
  file.write(sector.data(), static_cast<std::streamsize>(sector.size()));
}

TEST(FileSystemCheck, AnOverlaysUpperLayerIsFoundByItsMount) {
  const std::string mountinfo =
      "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
      "46 27 0:41 / /ov rw,relatime shared:7 - overlay overlay "
      "rw,lowerdir=/a,upperdir=/b\\054c\\040d,workdir=/w\n"
      "47 27 0:42 / /ro ro - overlay overlay ro,lowerdir=/a:/b\n"
      "48 27 0:43 / /rel rw - overlay overlay rw,lowerdir=a,upperdir=b,workdir=w\n";
  EXPECT_EQ(UpperLayerOf(mountinfo, 46), "/b,c d");
  EXPECT_EQ(UpperLayerOf(mountinfo, 47), "");
  EXPECT_EQ(UpperLayerOf(mountinfo, 48), "") << "relative to where its mounter was";
  EXPECT_EQ(UpperLayerOf(mountinfo, 27), "");
  EXPECT_EQ(UpperLayerOf(mountinfo, 4), "");
}

TEST(FileSystemCheck, AnOverlayIsAsGoodAsItsUpperLayer) {
  if (geteuid() != 0) GTEST_SKIP() << "mounts file systems, which only root may";
  TemporaryFolder folder;
  const std::string at = folder.path();
  const auto shell = [&](const std::string& command) {
    return std::system(("cd '" + at + "' && (" + command + ") >said 2>&1").c_str()) == 0;
  };
  if (!shell("truncate -s 128M disk && mkfs.btrfs -q disk && mkdir btrfs lower over good upper "
             "work && "
             "mount -o loop disk btrfs && mkdir btrfs/upper btrfs/work")) {
    std::ifstream said(at + "/said");
    GTEST_SKIP() << "no btrfs can be mounted here: "
                 << std::string(std::istreambuf_iterator<char>(said), {});
  }
  const bool mounted = shell(
      "mount -t overlay overlay -o "
      "lowerdir=$PWD/lower,upperdir=$PWD/btrfs/upper,workdir=$PWD/btrfs/work over && "
      "mount -t overlay overlay -o lowerdir=$PWD/lower,upperdir=$PWD/upper,workdir=$PWD/work good");
  // Mounted by full names, as whoever mounts one for others does.
  const auto over = OpenFileOps(at + "/over");
  const auto over_cached = OpenFileOps(at + "/over", {.durable = false});
  const auto good = OpenFileOps(at + "/good");
  const auto btrfs = OpenFileOps(at + "/btrfs");
  const bool clean = shell("umount -l over; umount -l good; umount -l btrfs");
  EXPECT_TRUE(mounted && clean);
  EXPECT_TRUE(IsFailedPrecondition(over.status())) << over.status();
  EXPECT_THAT(over.status().message(), HasSubstr("overlay, whose upper layer"));
  EXPECT_THAT(over.status().message(), HasSubstr("btrfs"));
  EXPECT_TRUE(over_cached.ok()) << over_cached.status();
  EXPECT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(IsFailedPrecondition(btrfs.status())) << btrfs.status();
}

TEST(Attachment, LastsAsLongAsOneProcessHasTheFolderOpenAfterAnother) {
  TemporaryFolder folder;
  auto first = OpenFileOps(folder.path()).value();
  auto second = OpenFileOps(folder.path()).value();
  const uint64_t tag = first->AttachTag();
  EXPECT_EQ(second->AttachTag(), tag);
  first.reset();
  auto third = OpenFileOps(folder.path()).value();
  EXPECT_EQ(third->AttachTag(), tag);
  const uint64_t boot = third->BootTag();
  second.reset();
  third.reset();
  auto later = OpenFileOps(folder.path()).value();
  EXPECT_NE(later->AttachTag(), tag) << "nobody was there to keep the page cache";
  EXPECT_EQ(later->BootTag(), boot);
}

// Whether the file system has yet to find room on the disk for the file's bytes; nullopt: it does
// not say so.
std::optional<bool> IsOnlyInMemory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  constexpr uint32_t kExtents = 4;
  std::vector<uint64_t> memory((sizeof(fiemap) + kExtents * sizeof(fiemap_extent)) / 8 + 1);
  auto* const map = reinterpret_cast<fiemap*>(memory.data());
  map->fm_length = FIEMAP_MAX_OFFSET;
  map->fm_extent_count = kExtents;
  const bool answered = fd >= 0 && ioctl(fd, FS_IOC_FIEMAP, map) == 0;
  close(fd);
  if (!answered || map->fm_mapped_extents == 0) return std::nullopt;
  return (map->fm_extents[0].fe_flags & FIEMAP_EXTENT_DELALLOC) != 0;
}

// They were killed between a write and its flush, and the machine went on.
TEST(Attachment, WhatThoseBeforeLeftInThePageCacheIsOnTheDiskWhenTheNextOneBegins) {
  TemporaryFolder folder;
  OpenFileOps(folder.path()).value().reset();
  const std::string file = folder.path() + "/written";
  std::ofstream(file) << std::string(10'000, 'x');
  if (IsOnlyInMemory(file) != true) {
    GTEST_SKIP() << "the file system of " << folder.path() << " does not say what it has written";
  }
  const auto next = OpenFileOps(folder.path()).value();
  EXPECT_EQ(IsOnlyInMemory(file), false);
}

TEST(PosixStore, AWordThatTheDiskHasAnOldValueOfCutsNothingWhenTheDiskIsAttachedAnew) {
  for (const bool taken_over : {false, true}) {
    TemporaryFolder folder;
    const std::string path = folder.path() + "/d/f";
    std::string stale;
    {
      Opened process(folder.path());
      SyncStore s = process.Sync();
      auto file = *s.Create("d", "f", "k");
      ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
      stale = LiveSector(path);
      if (taken_over) file = *s.Fence("d", "f");
      ASSERT_EQ(s.Append(*file, "def").outcome, AppendOutcome::kApplied);
      ASSERT_EQ(s.Append(*file, "ghi").outcome, AppendOutcome::kApplied);
    }
    WriteLiveSector(path, stale);
    Opened process(folder.path());
    SyncStore s = process.Sync();
    EXPECT_EQ(*s.ReadAll("d", "f"), "abcdefghi");
    auto file = *s.Fence("d", "f");
    EXPECT_EQ(file->committed_length(), 9);
    ASSERT_EQ(s.Append(*file, "jkl").outcome, AppendOutcome::kApplied);
    EXPECT_EQ(*s.ReadAll("d", "f"), "abcdefghijkl");
  }
}

TEST(PosixStore, WhatWasWrittenWithoutFlushesIsThereForTheNextProcessOfTheSameBoot) {
  TemporaryFolder folder;
  for (const Durability durability :
       {Durability::kPageCache, Durability::kDurable, Durability::kPageCache}) {
    Opened process(folder.path(), durability);
    SyncStore s = process.Sync();
    if (auto made = s.Create("d", "f", "k"); made.ok()) continue;
    auto file = s.Fence("d", "f");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(s.Append(**file, "abc").outcome, AppendOutcome::kApplied);
  }
  Opened process(folder.path(), Durability::kPageCache);
  EXPECT_EQ(*process.Sync().ReadAll("d", "f"), "abcabc");
}

TEST(PosixStore, WhatLiesOnAnotherMountBelowTheFolderIsRefused) {
  TemporaryFolder folder;
  TemporaryFolder elsewhere("/dev/shm");
  struct stat here, there;
  ASSERT_EQ(stat(folder.path().c_str(), &here), 0);
  ASSERT_EQ(stat(elsewhere.path().c_str(), &there), 0);
  if (here.st_dev == there.st_dev) GTEST_SKIP() << "the temporary folder is on /dev/shm's mount";
  std::ofstream(elsewhere.path() + "/f") << "abc";
  std::filesystem::create_directory_symlink(elsewhere.path(), folder.path() + "/d");
  Opened process(folder.path());
  SyncStore s = process.Sync();
  for (const Status& status :
       {s.Create("d", "g", "k").status(), s.Open("d", "f").status(), s.List("d").status()}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.message(), HasSubstr(folder.path() + "/d")) << status;
  }
  const std::filesystem::directory_iterator there_now(elsewhere.path());
  EXPECT_EQ(std::distance(begin(there_now), end(there_now)), 1) << "something was made there";
}

TEST(PosixStore, AFileThatIsCutWithinItsFirstPageEndsNobody) {
  TemporaryFolder folder;
  Opened process(folder.path());
  SyncStore s = process.Sync();
  auto file = *s.Create("d", "f", "k");
  ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
  auto reader = *s.Open("d", "f");
  EXPECT_EQ(s.Size(*reader).value().committed_length, 3);
  ASSERT_EQ(truncate((folder.path() + "/d/f").c_str(), 0), 0);
  EXPECT_EQ(s.Size(*reader).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(s.Read(*reader, 0, 3).status().code(), StatusCode::kDataLoss);
  const AppendResult append = s.Append(*file, "def");
  EXPECT_EQ(append.outcome, AppendOutcome::kUnknown);
  EXPECT_EQ(append.error.code(), StatusCode::kDataLoss) << append.error;
  EXPECT_EQ(s.Fence("d", "f").status().code(), StatusCode::kDataLoss);
}

// Another program cuts the file, cuts it while it is appended to (which leaves a hole), or removes
// what a takeover appended to.
TEST(PosixStore, AFileOfWhichCommittedBytesAreMissingIsNotWhole) {
  enum class Damage { kCut, kHole, kSegmentGone };
  for (const Damage damage : {Damage::kCut, Damage::kHole, Damage::kSegmentGone}) {
    SCOPED_TRACE(static_cast<int>(damage));
    TemporaryFolder folder;
    Opened process(folder.path());
    SyncStore s = process.Sync();
    const std::string path = folder.path() + "/d/f";
    auto file = *s.Create("d", "f", "k");
    const std::string page(4096, 'a');
    for (int i = 0; i < 4; ++i) ASSERT_EQ(s.Append(*file, page).outcome, AppendOutcome::kApplied);
    if (damage == Damage::kSegmentGone) file = *s.Fence("d", "f");
    ASSERT_EQ(s.Append(*file, page).outcome, AppendOutcome::kApplied);
    EXPECT_EQ(s.CheckedSize(**s.Open("d", "f"))->committed_length, 5 * 4096);
    int64_t missing = 2 * 4096;
    if (damage == Damage::kSegmentGone) {
      missing = 4 * 4096;
      for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/d")) {
        if (entry.path().filename().string().starts_with(".f.")) {
          std::filesystem::remove(entry.path());
        }
      }
    } else {
      ASSERT_EQ(truncate(path.c_str(), 3 * 4096), 0);
    }
    if (damage == Damage::kHole) {
      ASSERT_EQ(s.Append(*file, page).outcome, AppendOutcome::kApplied);
    }
    auto reader = *s.Open("d", "f");
    EXPECT_EQ(s.Read(*reader, 0, missing)->size(), static_cast<size_t>(missing)) << "it is there";
    const Status checked = s.CheckedSize(*reader).status();
    EXPECT_EQ(checked.code(), StatusCode::kDataLoss);
    EXPECT_THAT(checked.message(), HasSubstr("d/f: position " + std::to_string(missing) + " of "));
    ASSERT_TRUE(s.Quarantine("d", "f").ok());
    EXPECT_NE(s.Append(*file, page).outcome, AppendOutcome::kApplied);
    file = *s.Create("d", "f", "k");
    ASSERT_EQ(s.Append(*file, "new").outcome, AppendOutcome::kApplied);
    EXPECT_EQ(*s.ReadAll("d", "f"), "new");
  }
}

TEST(MappedPage, TellsWhetherALookAtItWouldWaitForTheDisk) {
  TemporaryFolder folder;
  const auto ops = OpenFileOps(folder.path()).value();
  const std::string path = folder.path() + "/f";
  const int fd = open(path.c_str(), O_CREAT | O_RDWR, 0644);
  ASSERT_GE(fd, 0);
  const std::string page(posix::kPageBytes, 'x');
  ASSERT_EQ(pwrite(fd, page.data(), page.size(), 0), posix::kPageBytes);
  ASSERT_EQ(fsync(fd), 0);
  auto mapped = ops->Open("f", false).value()->MapPage(false).value();
  ASSERT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  if (mapped->resident()) GTEST_SKIP() << "this file system keeps its pages";
  EXPECT_EQ(mapped->Load(0), 0x7878787878787878u);
  EXPECT_TRUE(mapped->resident());
  close(fd);
}

TEST(PosixFile, WhatAFullDiskTookOfAnAppendDoesNotBlockTheNextOpener) {
  MemoryFiles files(1);
  const auto ops = files.OpenOps();
  posix::Context c;
  c.ops = ops.get();
  auto file = posix::CreateExclusive(c, "d", "f", "k").value();
  ASSERT_EQ(file->Append("abc").outcome, AppendOutcome::kApplied);
  // Room for a first page and a bit: less than the append wants.
  MemoryFiles::Faults faults;
  faults.capacity_bytes = 2 * posix::kPageBytes + 100;
  files.SetFaults(faults);
  EXPECT_EQ(file->Append(std::string(10'000, 'x')).outcome, AppendOutcome::kUnknown);
  auto next = posix::OpenFencing(c, "d", "f");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ((*next)->committed_length(), 3);
  EXPECT_EQ((*next)->Append("def").outcome, AppendOutcome::kApplied);
}

// A disk that reports success, to a writer that appends six pieces of three bytes, and keeps
// nothing of one write or flush of them: the file as the next process of this machine finds it.
struct AfterALoss {
  Result<int64_t> opened = int64_t{0};  // its length
  Result<std::string> read = std::string();
};
AfterALoss LoseOne(std::string_view what, int number) {
  const TemporaryFolder folder;
  {
    bool created = false;
    int calls = 0;
    const auto ops = HookFileOps(
        OpenFileOps(folder.path()).value(),
        [](std::string_view, const std::string&) { return OkStatus(); },
        [&](std::string_view call, const std::string&) {
          return created && call == what && calls++ == number;
        });
    posix::Context c;
    c.ops = ops.get();
    const auto file = posix::CreateExclusive(c, "d", "f", "k").value();
    created = true;
    for (int i = 0; i < 6; ++i) EXPECT_EQ(file->Append("abc").outcome, AppendOutcome::kApplied);
    EXPECT_GT(calls, number) << what << " happens more seldom";
  }
  Opened process(folder.path());
  SyncStore s = process.Sync();
  AfterALoss after;
  after.read = s.ReadAll("d", "f");
  const auto file = s.Fence("d", "f");
  if (file.ok()) {
    after.opened = (*file)->committed_length();
  } else {
    after.opened = file.status();
  }
  return after;
}

TEST(PosixFile, WhatADiskLostOfAcknowledgedAppendsIsToldOrAHoleAndNeverAShorterFile) {
  int told = 0, holes = 0;
  for (const auto& [what, number_max] : {std::pair("flush", 6), std::pair("write", 12)}) {
    for (int number = 0; number < number_max; ++number) {
      const AfterALoss after = LoseOne(what, number);
      const std::string where = std::string(what) + " " + std::to_string(number);
      if (!after.opened.ok()) {
        ++told;
        EXPECT_TRUE(IsDataLoss(after.opened.status())) << where << ": " << after.opened.status();
        EXPECT_THAT(after.opened.status().message(), HasSubstr("d/f")) << where;
        EXPECT_TRUE(IsDataLoss(after.read.status())) << where << ": " << after.read.status();
        continue;
      }
      EXPECT_EQ(*after.opened, 18) << where;
      ASSERT_TRUE(after.read.ok()) << where << ": " << after.read.status();
      EXPECT_EQ(after.read->size(), 18u) << where;
      holes += *after.read != "abcabcabcabcabcabc" ? 1 : 0;
    }
  }
  // Of the last append everything is told, and of the one before its slot. Of earlier ones the
  // bytes are gone and their place is not; slots that were written over are needed by nobody.
  EXPECT_EQ(told, 2 + 3);
  EXPECT_EQ(holes, 4 + 5);
}

// Files of a shard that a consumer catches up with: their segments are found by name.
TEST(PosixFile, ReadingAllFilesOfAFolderListsItOnceAtMost) {
  constexpr int kFiles = 20;
  MemoryFiles files(1);
  int listings = 0;
  const auto count = [&](std::string_view call, const std::string&) {
    listings += call == "list" ? 1 : 0;
    return OkStatus();
  };
  const auto read_all = [&] {
    listings = 0;
    const auto plain = files.OpenOps();
    const auto ops = HookFileOps(plain.get(), count);
    posix::Context c;
    c.ops = ops.get();
    for (int i = 0; i < kFiles; ++i) {
      auto reader = posix::OpenRead(c, "d", "f" + std::to_string(i)).value();
      EXPECT_EQ(reader->Read(0, 100).value(), "abcdef");
    }
  };
  {
    const auto ops = files.OpenOps();
    posix::Context c;
    c.ops = ops.get();
    for (int i = 0; i < kFiles; ++i) {
      const std::string name = "f" + std::to_string(i);
      auto file = posix::CreateExclusive(c, "d", name, name).value();
      ASSERT_EQ(file->Append("abc").outcome, AppendOutcome::kApplied);
      file = posix::OpenFencing(c, "d", name).value();
      ASSERT_EQ(file->Append("def").outcome, AppendOutcome::kApplied);
    }
  }
  read_all();
  EXPECT_EQ(listings, 0);
  Rng rng(1);
  files.PowerLoss(rng, {});
  read_all();
  EXPECT_EQ(listings, 1);
}

// Names below `.aside` of the folder.
size_t Aside(const std::string& folder) {
  if (!std::filesystem::exists(folder + "/.aside")) return 0;
  const std::filesystem::directory_iterator files(folder + "/.aside");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(PosixStore, AFileOfWhichNobodyCanSayWhoseItIsCanBeTakenAsideAndCopiedAgain) {
  for (const int64_t cut_at : {int64_t{0}, int64_t{100}, int64_t{-1}}) {
    TemporaryFolder folder;
    Opened process(folder.path());
    SyncStore s = process.Sync();
    auto file = *s.Create("d", "f", "k");
    ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
    file = *s.Fence("d", "f");
    ASSERT_EQ(s.Append(*file, "def").outcome, AppendOutcome::kApplied);
    const std::string path = folder.path() + "/d/f";
    if (cut_at >= 0) {
      ASSERT_EQ(truncate(path.c_str(), cut_at), 0);
    } else {
      std::fstream(path, std::ios::in | std::ios::out) << "overwritten";
    }
    EXPECT_EQ(s.Open("d", "f").status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(s.Create("d", "f", "k").status().code(), StatusCode::kDataLoss);
    ASSERT_TRUE(s.Quarantine("d", "f").ok());
    EXPECT_EQ(Aside(folder.path() + "/d"), 2u) << "the file and its segment";
    EXPECT_TRUE(s.List("d")->empty());
    EXPECT_NE(s.Append(*file, "ghi").outcome, AppendOutcome::kApplied);
    file = *s.Create("d", "f", "k");
    ASSERT_EQ(s.Append(*file, "new").outcome, AppendOutcome::kApplied);
    EXPECT_EQ(*s.ReadAll("d", "f"), "new");
    ASSERT_TRUE(s.Delete("d", "f").ok());
    EXPECT_EQ(Aside(folder.path() + "/d"), 0u) << "it stays until the next deletion in its folder";
  }
}

TEST(PosixStore, ADamagedFileCanBeDeletedAndLeavesItsKeyFree) {
  TemporaryFolder folder;
  Opened process(folder.path());
  SyncStore s = process.Sync();
  ASSERT_TRUE(s.Create("d", "f", "k").ok());
  ASSERT_TRUE(s.Fence("d", "f").ok());
  ASSERT_EQ(truncate((folder.path() + "/d/f").c_str(), 0), 0);
  ASSERT_TRUE(s.Delete("d", "f").ok());
  EXPECT_TRUE(s.Create("d", "g", "k").ok());
}

// After each call: the name is there still, and taking it aside once more frees it; or it is free.
TEST(PosixFile, WhoTakesAFileAsideMayDieAfterAnyCall) {
  for (const bool damaged : {false, true}) {
    for (const bool power_loss : {false, true}) {
      bool died = true;
      for (int cut = 0; died; ++cut) {
        SCOPED_TRACE("killed after call " + std::to_string(cut));
        MemoryFiles files(static_cast<uint64_t>(cut) + 1);
        {
          const auto ops = files.OpenOps();
          posix::Context c;
          c.ops = ops.get();
          ASSERT_EQ(posix::CreateExclusive(c, "d", "f", "k").value()->Append("abc").outcome,
                    AppendOutcome::kApplied);
          ASSERT_TRUE(posix::OpenFencing(c, "d", "f").ok());
          auto file = ops->Open("d/f", true).value();
          if (damaged) {
            ASSERT_TRUE(file->WriteAt(0, "overwritten").ok());
            ASSERT_TRUE(file->SyncData().ok());
          }
        }
        const auto plain = files.OpenOps();
        {
          int calls = 0;
          const auto ops = HookFileOps(plain.get(), [&](std::string_view, const std::string&) {
            return ++calls > cut ? UnavailableError("killed") : OkStatus();
          });
          posix::Context c;
          c.ops = ops.get();
          died = !posix::Quarantine(c, "d", "f", [] { return true; }).ok();
        }
        Rng rng(static_cast<uint64_t>(cut));
        if (power_loss) files.PowerLoss(rng, {});
        const auto ops = files.OpenOps();
        posix::Context c;
        c.ops = ops.get();
        const Status again = posix::Quarantine(c, "d", "f", [] { return true; });
        ASSERT_TRUE(again.ok() || IsNotFound(again)) << again;
        auto copy = posix::CreateExclusive(c, "d", "f", "k");
        ASSERT_TRUE(copy.ok()) << copy.status();
        EXPECT_EQ((*copy)->committed_length(), 0);
        EXPECT_EQ((*copy)->Append("new").outcome, AppendOutcome::kApplied);
        EXPECT_EQ(posix::OpenRead(c, "d", "f").value()->Read(0, 100).value(), "new");
      }
    }
  }
}

// After the look whether it is wanted still, it is the inode that goes, whatever gets its name.
TEST(PosixFile, WhoIsStoppedTakingAFileAsideTakesNoFileThatWasMadeMeanwhile) {
  for (const bool damaged : {false, true}) {
    size_t made_anew = 0;
    bool stopped = true;
    for (int cut = 0; stopped; ++cut) {
      SCOPED_TRACE("stopped before call " + std::to_string(cut));
      MemoryFiles files(1);
      const auto plain = files.OpenOps();
      posix::Context other;
      other.ops = plain.get();
      ASSERT_EQ(posix::CreateExclusive(other, "d", "f", "k").value()->Append("abc").outcome,
                AppendOutcome::kApplied);
      if (damaged) {
        ASSERT_TRUE(plain->Open("d/f", true).value()->WriteAt(0, "overwritten").ok());
      }
      stopped = false;
      std::unique_ptr<posix::Appender> copy;
      int calls = 0;
      const auto ops = HookFileOps(plain.get(), [&](std::string_view, const std::string&) {
        if (calls++ != cut) return OkStatus();
        stopped = true;
        const Status taken = posix::Quarantine(other, "d", "f", [] { return true; });
        if (!taken.ok() && !IsNotFound(taken)) return OkStatus();
        if (auto made = posix::CreateExclusive(other, "d", "f", "k"); made.ok()) {
          copy = *std::move(made);
          EXPECT_EQ(copy->Append("new").outcome, AppendOutcome::kApplied);
        }
        return OkStatus();
      });
      posix::Context c;
      c.ops = ops.get();
      // Stopped so long that its caller has been told that there was no end.
      const Status status = posix::Quarantine(c, "d", "f", [&] { return !stopped; });
      if (copy == nullptr) continue;
      ++made_anew;
      EXPECT_EQ(copy->Append("er").outcome, AppendOutcome::kApplied) << status;
      const auto read = posix::OpenRead(other, "d", "f");
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ((*read)->Read(0, 100).value(), "newer");
    }
    EXPECT_GT(made_anew, 3u);
  }
}

}  // namespace
}  // namespace tailcast::storage
