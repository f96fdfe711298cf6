// The posix driver between real processes on a real file system: writers stopped with SIGSTOP
// before each system call and woken after a takeover, and writers killed with SIGKILL at any
// moment.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tailcast/base/rng.h"
#include "tailcast/storage/file_ops.h"
#include "tailcast/storage/posix_file.h"

namespace tailcast::storage::posix {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = ::testing::TempDir() + "tailcast_process_XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
    ops_ = OpenFileOps(path_).value();
    context_.ops = ops_.get();
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  const Context& context() const { return context_; }

 private:
  std::string path_;
  std::unique_ptr<FileOps> ops_;
  Context context_;
};

// What a child did with its append, as its exit code.
constexpr int kExitApplied = 10, kExitFenced = 11, kExitUnknown = 12, kExitAborted = 13,
              kExitExists = 14, kExitError = 15;

int ExitOf(AppendOutcome outcome) {
  switch (outcome) {
    case AppendOutcome::kApplied:
      return kExitApplied;
    case AppendOutcome::kFenced:
      return kExitFenced;
    default:
      return kExitUnknown;
  }
}

enum class Act { kAppend, kAppendInSegment, kTakeover, kCreate };

// The child. Stops itself before call number `stop_before` of the act.
int RunChild(const std::string& path, Act act, int stop_before) {
  std::unique_ptr<FileOps> plain = OpenFileOps(path).value();
  int calls = -1;
  std::unique_ptr<FileOps> ops =
      HookFileOps(plain.get(), [&](std::string_view, const std::string&) {
        if (calls >= 0 && calls++ == stop_before) {
          calls = -1;
          raise(SIGSTOP);
        }
        return OkStatus();
      });
  Context context;
  context.ops = ops.get();
  std::unique_ptr<Appender> file;
  if (act == Act::kAppend || act == Act::kAppendInSegment) {
    Result<std::unique_ptr<Appender>> made = CreateExclusive(context, "d", "f", "k");
    if (!made.ok()) return kExitError;
    file = *std::move(made);
    if (file->Append("first.").outcome != AppendOutcome::kApplied) return kExitError;
    if (act == Act::kAppendInSegment) {
      Result<std::unique_ptr<Appender>> taken = OpenFencing(context, "d", "f");
      if (!taken.ok()) return kExitError;
      file = *std::move(taken);
    }
    calls = 0;
  } else {
    calls = 0;
    Result<std::unique_ptr<Appender>> opened = act == Act::kTakeover
                                                   ? OpenFencing(context, "d", "f")
                                                   : CreateExclusive(context, "d", "f", "k");
    calls = -1;
    if (!opened.ok()) {
      return IsAborted(opened.status())         ? kExitAborted
             : IsAlreadyExists(opened.status()) ? kExitExists
                                                : kExitError;
    }
    file = *std::move(opened);
  }
  return ExitOf(file->Append("by the child.").outcome);
}

Result<std::string> ReadWhole(const Context& context, const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, OpenRead(context, "d", name));
  return reader->Read(0, 1 << 20);
}

// For each call of the act: a child stops before it, the test takes the file over and appends, then
// the child is woken or killed.
void StopEverywhere(Act act, bool kill_it) {
  bool stopped = true;
  int stops = 0;
  for (int stop = 0; stopped; ++stop) {
    SCOPED_TRACE("stopped before call " + std::to_string(stop));
    Folder folder;
    const Context& c = folder.context();
    if (act == Act::kTakeover) {
      auto file = CreateExclusive(c, "d", "f", "k");
      ASSERT_TRUE(file.ok()) << file.status();
      ASSERT_EQ((*file)->Append("first.").outcome, AppendOutcome::kApplied);
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(RunChild(folder.path(), act, stop));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    stopped = WIFSTOPPED(status);
    if (!stopped) {
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_EQ(WEXITSTATUS(status), kExitApplied) << "undisturbed";
      break;
    }
    ++stops;

    // The other process.
    std::string name = "f";
    std::unique_ptr<Appender> mine;
    if (act == Act::kCreate) {
      auto created = CreateExclusive(c, "d", "g", "k");
      if (created.ok()) {
        name = "g";
        mine = *std::move(created);
      } else {
        ASSERT_EQ(created.status().code(), StatusCode::kAlreadyExists) << created.status();
        ASSERT_EQ(WinnerOf(created.status()), "f");
      }
    }
    if (mine == nullptr) {
      auto taken = OpenFencing(c, "d", "f");
      ASSERT_TRUE(taken.ok()) << taken.status();
      mine = *std::move(taken);
    }
    ASSERT_EQ(mine->Append("by the taker.").outcome, AppendOutcome::kApplied);
    const std::string seen = ReadWhole(c, name).value();

    ASSERT_EQ(kill(child, kill_it ? SIGKILL : SIGCONT), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    int exit_code = kExitUnknown;
    if (!kill_it) {
      ASSERT_TRUE(WIFEXITED(status));
      exit_code = WEXITSTATUS(status);
    }
    const std::string after = ReadWhole(c, name).value();
    if (act == Act::kAppend || act == Act::kAppendInSegment || act == Act::kCreate || kill_it) {
      // Not one byte of the woken process.
      EXPECT_EQ(after, seen);
      if (!kill_it) {
        EXPECT_TRUE(exit_code == kExitFenced || (act == Act::kCreate && exit_code == kExitExists))
            << exit_code;
      }
      EXPECT_EQ(mine->Append("and on.").outcome, AppendOutcome::kApplied);
      EXPECT_EQ(ReadWhole(c, name).value(), seen + "and on.");
    } else {
      // A takeover that was stopped before its swap takes over from us in turn; one that was
      // stopped after it lost.
      EXPECT_TRUE(exit_code == kExitApplied || exit_code == kExitAborted ||
                  exit_code == kExitFenced)
          << exit_code;
      EXPECT_EQ(after, exit_code == kExitApplied ? seen + "by the child." : seen);
      EXPECT_EQ(mine->Append("x").outcome,
                exit_code == kExitApplied ? AppendOutcome::kFenced : AppendOutcome::kApplied);
    }
    EXPECT_EQ(List(c, "d").value(), std::vector<std::string>{name});
  }
  EXPECT_GE(stops, 4);
}

TEST(PosixProcess, AWriterStoppedBeforeEachCallOfAnAppendIsFencedWhenItWakes) {
  StopEverywhere(Act::kAppend, false);
  StopEverywhere(Act::kAppendInSegment, false);
}
TEST(PosixProcess, AnOpenerStoppedBeforeEachCallOfATakeoverHarmsNothing) {
  StopEverywhere(Act::kTakeover, false);
}
TEST(PosixProcess, ACreatorStoppedBeforeEachCallDoesNotForkTheKey) {
  StopEverywhere(Act::kCreate, false);
}
TEST(PosixProcess, AProcessKilledBeforeEachCallLeavesAFileThatGoesOn) {
  StopEverywhere(Act::kAppend, true);
  StopEverywhere(Act::kTakeover, true);
  StopEverywhere(Act::kCreate, true);
}

TEST(PosixProcess, WritersKilledAtRandomMomentsLoseNothingThatTheyAcknowledged) {
  Folder folder;
  const Context& c = folder.context();
  { ASSERT_TRUE(CreateExclusive(c, "d", "f", "k").ok()); }
  Rng rng(RandomSeed());
  std::string all;
  for (int round = 0; round < 40; ++round) {
    int acked[2];
    ASSERT_EQ(pipe(acked), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::unique_ptr<FileOps> ops = OpenFileOps(folder.path()).value();
      Context context;
      context.ops = ops.get();
      auto file = OpenFencing(context, "d", "f");
      if (!file.ok()) _exit(kExitError);
      for (char i = 0;; i = static_cast<char>(i + 1)) {
        const std::string piece(static_cast<size_t>(i) * 37 % 3000 + 1,
                                static_cast<char>('a' + round % 26));
        if ((*file)->Append(piece).outcome != AppendOutcome::kApplied) _exit(kExitUnknown);
        const int64_t length = (*file)->committed_length();
        if (write(acked[1], &length, sizeof length) != sizeof length) _exit(kExitError);
      }
    }
    close(acked[1]);
    // Some appends, then the kill falls anywhere in the next.
    int64_t length = 0;
    for (uint64_t reads = rng.Below(8); reads > 0; --reads) {
      ASSERT_EQ(read(acked[0], &length, sizeof length), static_cast<ssize_t>(sizeof length));
    }
    usleep(static_cast<useconds_t>(rng.Below(3000)));  // where the kill falls
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    while (read(acked[0], &length, sizeof length) == static_cast<ssize_t>(sizeof length)) {
    }
    close(acked[0]);
    const std::string now = ReadWhole(c, "f").value();
    ASSERT_GE(static_cast<int64_t>(now.size()), length) << "acknowledged bytes are gone";
    ASSERT_EQ(now.substr(0, all.size()), all) << "bytes changed";
    ASSERT_EQ(now.find_first_not_of(static_cast<char>('a' + round % 26), all.size()),
              std::string::npos);
    all = now;
  }
  EXPECT_GT(all.size(), 0u);
}

}  // namespace
}  // namespace tailcast::storage::posix
