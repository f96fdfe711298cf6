#include "tailcast/storage/file_faults.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/temporary_folder.h"

namespace tailcast::storage {
namespace {

using ::testing::HasSubstr;

TEST(FileFaultsTest, CallsFailAsOftenAsTheTextSaysAndAreNotMade) {
  const TemporaryFolder folder;
  auto ops = WithFileFaults(OpenFileOps(folder.path()).value(), folder.path(),
                            "write:ENOSPC:0.25,flush:EIO:1", 7);
  ASSERT_TRUE(ops.ok()) << ops.status();
  auto file = (*ops)->CreateUnnamed("");
  ASSERT_TRUE(file.ok()) << file.status();
  int failed = 0;
  for (int i = 0; i < 1000; ++i) {
    const Status written = (*file)->WriteAt(i, "x");
    if (written.ok()) continue;
    ++failed;
    EXPECT_EQ(written.code(), StatusCode::kResourceExhausted) << written;
    EXPECT_THAT(written.ToString(), HasSubstr("planted"));
  }
  EXPECT_NEAR(failed, 250, 60);
  EXPECT_FALSE((*file)->SyncData().ok());
  const auto bytes = (*file)->ReadAt(0, 1000);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(std::count(bytes->begin(), bytes->end(), 'x'), 1000 - failed);
}

TEST(FileFaultsTest, CallsTakeAsLongAsTheTextSaysAndAreMade) {
  const TemporaryFolder folder;
  auto ops = WithFileFaults(OpenFileOps(folder.path()).value(), folder.path(), "write:50ms:1", 7);
  ASSERT_TRUE(ops.ok()) << ops.status();
  auto file = (*ops)->CreateUnnamed("");
  ASSERT_TRUE(file.ok()) << file.status();
  const MonotonicTime begin = ReadMonotonicClock();
  EXPECT_TRUE((*file)->WriteAt(0, "x").ok());
  EXPECT_GE(ReadMonotonicClock() - begin, Duration::Millis(50));
  EXPECT_EQ((*file)->ReadAt(0, 1).value(), "x");
}

TEST(FileFaultsTest, ALostWriteReportsSuccessAndIsNotMade) {
  const TemporaryFolder folder;
  auto ops = WithFileFaults(OpenFileOps(folder.path()).value(), folder.path(), "write:lost:1", 7);
  ASSERT_TRUE(ops.ok()) << ops.status();
  auto file = (*ops)->CreateUnnamed("");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->WriteAt(0, "x").ok());
  EXPECT_EQ((*file)->ReadAt(0, 1).value(), "");
}

TEST(FileFaultsTest, ALostFlushReportsSuccessAndWhatWasWrittenSinceTheOneBeforeIsGone) {
  const TemporaryFolder folder;
  auto plain = OpenFileOps(folder.path()).value();
  int flushes = 0;
  auto ops = HookFileOps(
      std::move(plain), [](std::string_view, const std::string&) { return OkStatus(); },
      [&](std::string_view call, const std::string&) { return call == "flush" && ++flushes == 2; });
  auto file = ops->CreateUnnamed("");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->WriteAt(0, "flushed").ok());
  EXPECT_TRUE((*file)->SyncData().ok());
  EXPECT_TRUE((*file)->WriteAt(7, " and not").ok());
  EXPECT_TRUE((*file)->WriteAt(0, "changed").ok());
  EXPECT_EQ((*file)->ReadAt(0, 100).value(), "changed and not");
  EXPECT_TRUE((*file)->SyncData().ok());
  EXPECT_EQ((*file)->ReadAt(0, 100).value(), "flushed");
  EXPECT_TRUE((*file)->WriteAt(7, "!").ok());
  EXPECT_TRUE((*file)->SyncData().ok());
  EXPECT_EQ((*file)->ReadAt(0, 100).value(), "flushed!");
}

TEST(FileFaultsTest, AProcessStopsBeforeTheCallAndOnce) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  const pid_t child = ::fork();
  if (child == 0) {
    auto ops = WithFileFaults(OpenFileOps(folder.path()).value(), folder.path(), "write:stop:2", 7);
    auto file = (*ops)->CreateUnnamed("");
    bool ok = file.ok() && (*ops)->Link(**file, "file").ok();
    for (int i = 0; i < 3; ++i) ok = ok && (*file)->WriteAt(i, "x").ok();
    ::_exit(ok ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(state));
  EXPECT_EQ(std::filesystem::file_size(path), 1u);
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &state, WUNTRACED), child);
  ASSERT_TRUE(WIFEXITED(state)) << "it stopped once more";
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
}

TEST(FileFaultsTest, OfProcessesWithOneTokenOnlyTheFirstStops) {
  const TemporaryFolder folder;
  const std::string token = folder.path() + "/token";
  const auto run = [&](const std::string& name) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto ops = WithFileFaults(OpenFileOps(folder.path()).value(), folder.path(),
                                "write:stop:1::" + token, 7);
      auto file = (*ops)->CreateUnnamed("");
      const bool ok = file.ok() && (*ops)->Link(**file, name).ok() && (*file)->WriteAt(0, "x").ok();
      ::_exit(ok ? 0 : 1);
    }
    return child;
  };
  const pid_t first = run("first");
  int state = 0;
  ASSERT_EQ(::waitpid(first, &state, WUNTRACED), first);
  ASSERT_TRUE(WIFSTOPPED(state));
  std::string pid;
  std::ifstream(token) >> pid;
  EXPECT_EQ(pid, std::to_string(first));
  const pid_t second = run("second");
  ASSERT_EQ(::waitpid(second, &state, WUNTRACED), second);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
  ASSERT_EQ(::kill(first, SIGCONT), 0);
  ASSERT_EQ(::waitpid(first, &state, WUNTRACED), first);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
}

TEST(FileFaultsTest, FaultsOfAPathAreThoseOfItsFilesOnly) {
  const TemporaryFolder folder;
  auto ops = WithFileFaults(OpenFileOps(folder.path()).value(), folder.path(),
                            "open:EIO:1:" + folder.path() + "/bad,create:EIO:1:/elsewhere/", 7);
  ASSERT_TRUE(ops.ok()) << ops.status();
  for (const char* name : {"bad", "good"}) {
    auto file = (*ops)->CreateUnnamed("");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*ops)->Link(**file, name).ok());
    EXPECT_EQ((*ops)->Open(name, false).ok(), name == std::string_view("good"));
  }
}

TEST(FileFaultsTest, BadTextsAreRefusedWithWhatTheyMayBe) {
  const TemporaryFolder folder;
  for (const char* bad :
       {"write", "write:EIO", "wrote:EIO:1", "write:EOI:1", "write:EIO:2", "write:EIO:x",
        "write:EIO:0.1,,read:EIO:1", "swap:EIO:1", "write:ms:1", "write:0ms:1", "read:lost:1",
        "write:EIO:1:/x:1", "write:stop:1:/x:", "write:stop:1:/x:/t:1", "write:stop:0",
        "write:stop:0.5", "write:stop:x"}) {
    const auto ops = WithFileFaults(OpenFileOps(folder.path()).value(), folder.path(), bad, 1);
    EXPECT_TRUE(IsInvalidArgument(ops.status())) << bad;
    EXPECT_THAT(ops.status().ToString(), HasSubstr("TAILCAST_FILE_FAULTS")) << bad;
  }
}

}  // namespace
}  // namespace tailcast::storage
