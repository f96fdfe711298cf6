// The storage port's conformance suite on a real Ceph cluster, and what only a real one shows:
// writers that are killed and stopped, a thousand files at once. tests/ceph/ceph_test.py starts the
// cluster and runs this program with TAILCAST_CEPH_STORE=ceph:CONF?pool=POOL; each test has a
// namespace of its own.
//
//   ceph_store_test --writer URL FOLDER NAME    appends records until it is fenced; a line for each
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/open_store.h"
#include "tailcast/storage/store_conformance.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {
namespace {

constexpr size_t kRecordBytes = 100;

StoreUrl NewNamespace(int64_t roll_bytes) {
  static std::atomic<int> last{0};
  const char* text = std::getenv("TAILCAST_CEPH_STORE");
  TAILCAST_CHECK(text != nullptr, "TAILCAST_CEPH_STORE: run tests/ceph/ceph_test.py");
  StoreUrl url = ParseStoreUrl(text).value();
  url.name_space = "t" + std::to_string(getpid()) + "-" + std::to_string(++last);
  url.roll_bytes = roll_bytes;
  return url;
}

class CephWorld : public ConformanceWorld {
 public:
  explicit CephWorld(int64_t roll_bytes) : CephWorld(NewNamespace(roll_bytes)) {}
  explicit CephWorld(StoreUrl url) : url_(std::move(url)) {}

  Store& store(int process) override {
    std::unique_ptr<Store>& store = stores_[process];
    if (store == nullptr) {
      auto opened = OpenStore(&loop_, url_);
      TAILCAST_CHECK(opened.ok(), opened.status().ToString());
      store = *std::move(opened);
    }
    return *store;
  }
  void Restart(int process) override { stores_[process].reset(); }
  bool Turn(const std::function<bool()>& done) override {
    return loop_.RunUntil(done, loop_.Now() + Duration::Seconds(60));
  }
  bool can_lose_power() const override { return false; }  // ceph_test.py kills all daemons
  void PowerLoss() override {}

  SyncStore Sync(int process) {
    return SyncStore(&store(process), [this](const auto& done) { return Turn(done); });
  }
  const StoreUrl& url() const { return url_; }

 private:
  const StoreUrl url_;
  ThreadLoop loop_;
  std::map<int, std::unique_ptr<Store>> stores_;
};

INSTANTIATE_TEST_SUITE_P(
    Ceph, StoreConformance,
    ::testing::Values(
        ConformanceParam{"Plain", [] { return std::make_unique<CephWorld>(32 << 20); }},
        ConformanceParam{"RolledOften", [] { return std::make_unique<CephWorld>(128 << 10); }}),
    ConformanceName);

// Appends records that count up, and says so: "N" when the record N is acknowledged.
int RunWriter(const char* url, const char* folder, const char* name) {
  ThreadLoop loop;
  auto store = OpenStore(&loop, ParseStoreUrl(url).value());
  if (!store.ok()) return 3;
  SyncStore sync(store->get(), [&](const auto& done) {
    return loop.RunUntil(done, loop.Now() + Duration::Seconds(60));
  });
  auto file = sync.Fence(folder, name);
  if (!file.ok()) return 4;
  for (size_t n = static_cast<size_t>((*file)->committed_length()) / kRecordBytes;; ++n) {
    char record[kRecordBytes + 1];
    std::snprintf(record, sizeof record, "%0*zu", static_cast<int>(kRecordBytes), n);
    const AppendResult result = sync.Append(**file, std::string(record, kRecordBytes));
    if (result.outcome != AppendOutcome::kApplied) {
      std::printf("%s\n", result.outcome == AppendOutcome::kFenced ? "fenced" : "unknown");
      std::fflush(stdout);
      return 0;
    }
    std::printf("%zu\n", n);
    std::fflush(stdout);
  }
}

class WriterProcess {
 public:
  WriterProcess(const StoreUrl& url, const char* folder, const char* name) {
    int ends[2];
    TAILCAST_CHECK(pipe(ends) == 0, "pipe");
    const std::string text = url.ToString();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      execl("/proc/self/exe", "ceph_store_test", "--writer", text.c_str(), folder, name, nullptr);
      _exit(5);
    }
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  ~WriterProcess() {
    Signal(SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    std::fclose(out_);
  }
  void Signal(int signal) const { kill(pid_, signal); }
  // Its next line without the line break; "" when it has ended.
  std::string Line() {
    char line[64];
    if (std::fgets(line, sizeof line, out_) == nullptr) return "";
    std::string text = line;
    text.pop_back();
    return text;
  }

 private:
  pid_t pid_ = 0;
  std::FILE* out_ = nullptr;
};

// A record of ours is not like one of the writer: else nobody could tell whose it is.
std::string OurRecord(int64_t n) {
  std::string record = std::to_string(n);
  record.resize(kRecordBytes, ' ');
  return record;
}

// The file's records are 0, 1, 2, ... whoever wrote them.
void ExpectRecords(const std::string& content) {
  ASSERT_EQ(content.size() % kRecordBytes, 0u);
  for (size_t n = 0; n < content.size() / kRecordBytes; ++n) {
    ASSERT_EQ(std::stoull(content.substr(n * kRecordBytes, kRecordBytes)), n);
  }
}

// A writer that appends and rolls is stopped, or killed, wherever it is; we take over, append, and
// wake it. `signal`: SIGKILL or SIGSTOP.
void TakeOverFrom(int signal, int rounds) {
  CephWorld world(350);  // an object is rolled after four records
  SyncStore s = world.Sync(0);
  ASSERT_TRUE(s.Create("d", "f", "k").ok());
  for (int round = 0; round < rounds; ++round) {
    WriterProcess writer(world.url(), "d", "f");
    int64_t acknowledged = 0;
    for (int i = 0; i <= round % 7; ++i) {
      const std::string line = writer.Line();
      ASSERT_FALSE(line.empty()) << "the writer ended";
      acknowledged = std::stoll(line) + 1;
    }
    usleep(static_cast<useconds_t>(round * 337 % 5000));  // into the middle of its requests
    writer.Signal(signal);
    auto file = s.Fence("d", "f");
    ASSERT_TRUE(file.ok()) << file.status();
    int64_t length = (*file)->committed_length();
    for (int i = 0; i < 6; ++i) {
      const std::string record = OurRecord(length / static_cast<int64_t>(kRecordBytes));
      ASSERT_EQ(s.Append(**file, record).outcome, AppendOutcome::kApplied);
      length = (*file)->committed_length();
    }
    if (signal == SIGSTOP) {
      writer.Signal(SIGCONT);
      // What it had acknowledged before, then its end.
      std::string line = writer.Line();
      for (; !line.empty() && line != "fenced" && line != "unknown"; line = writer.Line()) {
        acknowledged = std::stoll(line) + 1;
      }
      EXPECT_EQ(line, "fenced") << "round " << round;
    }
    ASSERT_LE(acknowledged * static_cast<int64_t>(kRecordBytes), length - 600);
    Result<std::string> all = world.Sync(1).ReadAll("d", "f");
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_EQ(static_cast<int64_t>(all->size()), length);
    ExpectRecords(*all);
  }
}

int Rounds() { return std::getenv("TAILCAST_CEPH_FULL") != nullptr ? 60 : 8; }

TEST(CephStoreProcesses, AWriterThatWasKilledIsTakenOver) { TakeOverFrom(SIGKILL, Rounds()); }

TEST(CephStoreProcesses, AWriterThatWasStoppedIsFencedWhenItWakes) {
  TakeOverFrom(SIGSTOP, Rounds());
}

// Of this process, at this moment.
size_t ThreadCount() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(CephStore, AThousandFilesAreOpenAndTwoHundredAppendedAtOnce) {
  constexpr size_t kFiles = 1000, kBusy = 200;
  constexpr size_t kThreadsMax = 20;  // ours, and the dozen of librados
  CephWorld world(32 << 20);
  Store& store = world.store(0);
  const Scope scope;
  std::vector<std::unique_ptr<AppendFile>> files(kFiles);
  size_t made = 0;
  for (size_t i = 0; i < kFiles; ++i) {
    const std::string name = "f" + std::to_string(i);
    store.CreateExclusive("d" + std::to_string(i % 20), name, name,
                          scope.Bind([&, i](Result<std::unique_ptr<AppendFile>> f) {
                            ASSERT_TRUE(f.ok()) << f.status();
                            files[i] = *std::move(f);
                            ++made;
                          }));
  }
  ASSERT_TRUE(world.Turn([&] { return made == kFiles; }));
  EXPECT_LE(ThreadCount(), kThreadsMax) << "with all files open";
  size_t applied = 0;
  for (int round = 1; round <= 3; ++round) {
    for (size_t i = 0; i < kBusy; ++i) {
      files[i * 5]->AppendAt(files[i * 5]->committed_length(), std::string(4096, 'x'),
                             scope.Bind([&](AppendResult r) {
                               EXPECT_EQ(r.outcome, AppendOutcome::kApplied) << r.error;
                               ++applied;
                             }));
    }
    EXPECT_LE(ThreadCount(), kThreadsMax) << "with appends under way";
    ASSERT_TRUE(world.Turn([&] { return applied == kBusy * static_cast<size_t>(round); }));
    EXPECT_LE(ThreadCount(), kThreadsMax) << "after them";
  }
  EXPECT_EQ(world.Sync(0).List("d7")->size(), kFiles / 20);
}

// ---------------------------------------------------------------------------------------------
// A cluster that fails.

// Of the cluster, by the program `ceph`.
void Ceph(const StoreUrl& url, const std::string& command) {
  const std::string line = "ceph -c " + url.conf + " " + command + " >/dev/null 2>&1";
  TAILCAST_CHECK(std::system(line.c_str()) == 0, line);  // NOLINT(concurrency-mt-unsafe)
}

// librados ends by itself what is under way there, without an answer of an OSD.
TEST(CephStoreTroubles, ADeletedPoolIsNotAnEmptyOne) {
  StoreUrl url = NewNamespace(32 << 20);
  url.pool = "doomed-" + url.name_space;
  Ceph(url, "osd pool create " + url.pool + " 8");
  CephWorld world(url);
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  ASSERT_EQ(s.Append(*file, "0123456789").outcome, AppendOutcome::kApplied);
  auto reader = *s.Open("d", "f");
  Ceph(url, "osd pool delete " + url.pool + " " + url.pool + " --yes-i-really-really-mean-it");
  const MonotonicTime begun = ReadMonotonicClock();
  const auto gone = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_NE(status.message().find("the pool is gone"), std::string::npos) << status;
  };
  // Until its OSDs know, it is what it was.
  auto listed = s.List("d");
  for (; listed.ok(); listed = s.List("d")) {
    ASSERT_EQ(listed->size(), 1u);
    ASSERT_LT(ReadMonotonicClock() - begun, Duration::Seconds(30));
  }
  gone(listed.status());
  EXPECT_LT(ReadMonotonicClock() - begun, Duration::Seconds(15)) << "told within seconds";
  gone(s.List("").status());
  gone(s.ListDirs("").status());
  gone(s.Open("d", "f").status());
  gone(s.Fence("d", "f").status());
  gone(s.Delete("d", "f"));
  gone(s.Quarantine("d", "f"));
  gone(s.Create("d", "g", "g").status());
  gone(s.Size(*reader).status());
  gone(s.Read(*reader, 0, 5).status());
  const AppendResult result = s.Append(*file, "x");
  EXPECT_EQ(result.outcome, AppendOutcome::kUnknown);
  gone(result.error);
}

// Stops the cluster's daemons for as long as it lives.
class StoppedDaemons {
 public:
  StoppedDaemons() {
    const char* folder = std::getenv("TAILCAST_CEPH_RUN_DIR");
    TAILCAST_CHECK(folder != nullptr, "TAILCAST_CEPH_RUN_DIR: run tests/ceph/ceph_test.py");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".pid") continue;
      pid_t pid = 0;
      std::ifstream(entry.path()) >> pid;
      if (pid > 0) pids_.push_back(pid);
    }
    TAILCAST_CHECK(!pids_.empty(), "no daemons");
    for (const pid_t pid : pids_) kill(pid, SIGSTOP);
    for (const pid_t pid : pids_) {
      while (!Stopped(pid)) usleep(1000);
    }
  }
  ~StoppedDaemons() {
    for (const pid_t pid : pids_) kill(pid, SIGCONT);
  }
  StoppedDaemons(const StoppedDaemons&) = delete;
  StoppedDaemons& operator=(const StoppedDaemons&) = delete;

 private:
  // A thread goes on for a moment after the signal.
  static bool Stopped(pid_t pid) {
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      std::string line;
      std::ifstream stat(task.path() / "stat");
      std::getline(stat, line);
      if (line.substr(line.rfind(')') + 1, 2) != " T") return false;
    }
    return true;
  }

  std::vector<pid_t> pids_;
};

TEST(CephStoreTroubles, ASilentClusterIsToldAtTheDeadlineAndAsUnknown) {
  StoreUrl url = NewNamespace(32 << 20);
  url.deadline = Duration::Seconds(3);
  CephWorld world(url);
  SyncStore s = world.Sync(0);
  auto file = *s.Create("d", "f", "k");
  auto reader = *s.Open("d", "f");
  const Scope scope;
  int answered = 0;
  AppendResult appended;
  {
    const StoppedDaemons stopped;
    const MonotonicTime begun = ReadMonotonicClock();
    const auto late = [&](const Status& status) {
      ++answered;
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
      const Duration took = ReadMonotonicClock() - begun;
      EXPECT_GE(took, Duration::Millis(2900));
      EXPECT_LT(took, Duration::Seconds(5));
    };
    Store& store = world.store(0);
    file->AppendAt(0, "abc", scope.Bind([&](AppendResult result) {
      appended = result;
      late(result.error);
    }));
    store.List("d", scope.Bind([&](Result<std::vector<DirEntry>> r) { late(r.status()); }));
    store.OpenRead("d", "f",
                   scope.Bind([&](Result<std::unique_ptr<ReadFile>> r) { late(r.status()); }));
    store.Delete("d", "none", scope.Bind(late));
    reader->Size(scope.Bind([&](Result<FileSize> r) { late(r.status()); }));
    reader->Read(0, 3, scope.Bind([&](Result<std::string> r) { late(r.status()); }));
    ASSERT_TRUE(world.Turn([&] { return answered == 6; }));
    EXPECT_EQ(appended.outcome, AppendOutcome::kUnknown);
  }
  // Whether the append was done, a fence tells.
  Result<std::unique_ptr<AppendFile>> next = s.Fence("d", "f");
  for (int i = 0; i < 20 && !next.ok(); ++i) next = s.Fence("d", "f");
  ASSERT_TRUE(next.ok()) << next.status();
  const int64_t length = (*next)->committed_length();
  EXPECT_TRUE(length == 0 || length == 3) << length;
  EXPECT_EQ(s.Append(**next, "later").outcome, AppendOutcome::kApplied);
  EXPECT_EQ(static_cast<int64_t>(s.ReadAll("d", "f")->size()), length + 5);
}

}  // namespace
}  // namespace tailcast::storage

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--writer") {
    return tailcast::storage::RunWriter(argv[2], argv[3], argv[4]);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
