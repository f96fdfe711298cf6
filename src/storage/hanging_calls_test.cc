// System calls that hang: who is told what and when, what becomes of the threads, and that a
// process can end all the same.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/loop_gate.h"
#include "tailcast/storage/memory_files.h"
#include "tailcast/storage/posix_store.h"
#include "tailcast/storage/store_sync.h"
#include "tailcast/storage/temporary_folder.h"
#include "tailcast/storage/unawaited_threads.h"

namespace tailcast::storage {
namespace {

using ::testing::HasSubstr;

// A disk whose calls of one kind hang while it is told so.
class Hang {
 public:
  FileOpsHook Hook() {
    return [this](std::string_view call, const std::string&) {
      std::unique_lock lock(mutex_);
      if (!hangs_ || call != call_) return OkStatus();
      ++hanging_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !hangs_; });
      --hanging_;
      changed_.notify_all();
      return OkStatus();
    };
  }
  void Begin(std::string call = "flush") {
    const std::lock_guard lock(mutex_);
    call_ = std::move(call);
    hangs_ = true;
  }
  // Returns when all calls have gone on.
  void End() {
    std::unique_lock lock(mutex_);
    hangs_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return hanging_ == 0; });
  }
  void WaitFor(size_t calls) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return hanging_ == calls; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string call_;
  bool hangs_ = false;
  size_t hanging_ = 0;
};

// What is logged meanwhile.
class Lines {
 public:
  Lines() {
    SetLogSink([this](LogLevel, std::string_view, std::string_view message) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(message);
    });
  }
  ~Lines() { SetLogSink(nullptr); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  std::vector<std::string> With(const std::string& text) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const std::string& line : lines_) {
      if (line.find(text) != std::string::npos) found.push_back(line);
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

class HangingCalls : public ::testing::Test {
 protected:
  HangingCalls() {
    options_.deadline = Duration::Millis(300);
    options_.slow_after = Duration::Millis(50);
    options_.close_wait = Duration::Millis(50);
    options_.write_threads_max = 2;
    options_.name = "the folder";
    options_.metrics = &metrics_;
    Open();
  }
  ~HangingCalls() override {
    hang_.End();
    while (UnawaitedThreads::count() > 0) std::this_thread::yield();
  }
  void Open() {
    store_ =
        std::make_unique<PosixStore>(&loop_, HookFileOps(files_.OpenOps(), hang_.Hook()), options_);
  }
  bool Turn(const std::function<bool()>& done) {
    return loop_.RunUntil(done, loop_.Now() + Duration::Seconds(30));
  }
  SyncStore Sync() {
    return SyncStore(store_.get(), [this](const auto& done) { return Turn(done); });
  }

  Hang hang_;
  MemoryFiles files_{1};
  MetricRegistry metrics_;
  PosixStoreOptions options_;
  ThreadLoop loop_;
  const Scope scope_;
  std::unique_ptr<PosixStore> store_;
};

TEST_F(HangingCalls, AreUnknownAtTheirDeadlineAndSaidOnce) {
  Lines said;
  SyncStore s = Sync();
  auto first = *s.Create("d", "first", "1");
  auto second = *s.Create("d", "second", "2");
  auto third = *s.Create("d", "third", "3");
  ASSERT_EQ(s.Append(*third, "before").outcome, AppendOutcome::kApplied);
  hang_.Begin();
  // Two threads hang; what comes then waits for one.
  std::vector<AppendResult> results;
  const auto keep = [&](AppendResult r) { results.push_back(std::move(r)); };
  const MonotonicTime begun = ReadMonotonicClock();
  first->AppendAt(0, "abc", scope_.Bind(keep));
  second->AppendAt(0, "de", scope_.Bind(keep));
  hang_.WaitFor(2);
  third->AppendAt(6, "never begun", scope_.Bind(keep));
  Status deleted;
  store_->Delete("d", "first", scope_.Bind([&](Status status) { deleted = std::move(status); }));
  ASSERT_TRUE(Turn([&] { return results.size() == 3 && !deleted.ok(); }));
  EXPECT_GE(ReadMonotonicClock() - begun, options_.deadline);
  for (const AppendResult& result : results) {
    EXPECT_EQ(result.outcome, AppendOutcome::kUnknown);
    EXPECT_EQ(result.error.code(), StatusCode::kDeadlineExceeded) << result.error;
    EXPECT_THAT(result.error.message(), HasSubstr("the disk or mount hangs"));
  }
  EXPECT_EQ(deleted.code(), StatusCode::kDeadlineExceeded) << deleted;
  EXPECT_EQ(metrics_.GetCounter("tailcast_storage_given_up_total", "").value(), 4);
  // Reads have threads of their own.
  EXPECT_EQ(*s.ReadAll("d", "third"), "before");
  EXPECT_EQ(s.Append(*first, "x").outcome, AppendOutcome::kUnknown) << "the handle is dead";
  EXPECT_EQ(said.With("the folder has not answered").size(), 1u);
  EXPECT_THAT(said.With("the folder has not answered").at(0), HasSubstr("append to first"));
  EXPECT_EQ(said.With("does not answer: the disk or mount hangs").size(), 1u);
  EXPECT_EQ(said.With("threads wait in the kernel").size(), 1u);
  // What hung is done, late; what had not begun, never.
  hang_.End();
  ASSERT_TRUE(Turn([&] { return !said.With("the folder answers again").empty(); }));
  EXPECT_THAT(said.With("answers again").at(0), HasSubstr("4 requests had no answer in time"));
  // It answers again when one of them is done: the other one may be under way still, and a fence
  // would cut it off.
  const MonotonicTime limit = ReadMonotonicClock() + Duration::Seconds(30);
  while (*s.ReadAll("d", "first") != "abc" || *s.ReadAll("d", "second") != "de") {
    ASSERT_LT(ReadMonotonicClock(), limit);
  }
  EXPECT_EQ((*s.Fence("d", "first"))->committed_length(), 3);
  EXPECT_EQ((*s.Fence("d", "second"))->committed_length(), 2);
  auto taken = *s.Fence("d", "third");
  EXPECT_EQ(taken->committed_length(), 6);
  EXPECT_EQ(s.Append(*taken, "after").outcome, AppendOutcome::kApplied);
}

// Who is told that there was no end tries again, and makes the file anew.
TEST_F(HangingCalls, OfAQuarantineThatBeginsLateTakeNothingAside) {
  Lines said;
  SyncStore s = Sync();
  auto file = *s.Create("d", "f", "k");
  ASSERT_EQ(s.Append(*file, "abc").outcome, AppendOutcome::kApplied);
  hang_.Begin("open");
  EXPECT_EQ(s.Quarantine("d", "f").code(), StatusCode::kDeadlineExceeded);
  hang_.End();
  ASSERT_TRUE(Turn([&] { return !said.With("the folder answers again").empty(); }));
  EXPECT_EQ(*s.ReadAll("d", "f"), "abc");
  EXPECT_EQ(s.Append(*file, "def").outcome, AppendOutcome::kApplied);
}

TEST_F(HangingCalls, DoNotHoldUpTheEndOfTheStore) {
  Lines said;
  SyncStore s = Sync();
  auto file = *s.Create("d", "f", "k");
  hang_.Begin();
  AppendResult result;
  bool answered = false;
  file->AppendAt(0, "abc", scope_.Bind([&](AppendResult r) {
    result = std::move(r);
    answered = true;
  }));
  hang_.WaitFor(1);
  const MonotonicTime begun = ReadMonotonicClock();
  store_.reset();
  EXPECT_LT(ReadMonotonicClock() - begun, Duration::Seconds(5));
  EXPECT_EQ(UnawaitedThreads::count(), 1u);
  EXPECT_THAT(said.With("closed while").at(0), HasSubstr("1 call hangs"));
  ASSERT_TRUE(Turn([&] { return answered; }));
  EXPECT_EQ(result.outcome, AppendOutcome::kUnknown);
  file = nullptr;
  hang_.End();
  while (UnawaitedThreads::count() > 0) std::this_thread::yield();
  Open();
  EXPECT_EQ((*Sync().Fence("d", "f"))->committed_length(), 3) << "it was done later";
}

TEST_F(HangingCalls, DoNotHoldUpTheEndOfTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [this] {
    // Whoever reads a file has its lock; those that were opened later are flushed before it.
    int nobody_writes[2];
    ASSERT_EQ(pipe(nobody_writes), 0);
    std::thread([in = fdopen(nobody_writes[0], "r")] { std::fgetc(in); }).detach();
    std::FILE* buffered = fdopen(dup(STDERR_FILENO), "w");
    std::fputs("still in a buffer", buffered);
    auto file = *Sync().Create("d", "f", "k");
    hang_.Begin();
    file->AppendAt(0, "abc", scope_.Bind([](AppendResult) {}));
    hang_.WaitFor(1);
    file = nullptr;
    store_.reset();
    std::exit(7);  // NOLINT(concurrency-mt-unsafe)
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(7),
              "ends while 1 thread waits for a store(.|\n)*still in a buffer");
}

TEST(Within, SomethingOrAfterTheBoundNothing) {
  EXPECT_EQ(Within<int>(Duration::Seconds(30), "quick", [] { return 5; }), 5);
  std::mutex held;
  held.lock();
  EXPECT_EQ(Within<int>(Duration::Millis(20), "hangs",
                        [&held] {
                          const std::lock_guard lock(held);
                          return 5;
                        }),
            std::nullopt);
  EXPECT_EQ(UnawaitedThreads::count(), 1u);
  held.unlock();
  while (UnawaitedThreads::count() > 0) std::this_thread::yield();
}

// One that was shut down.
class RefusingLoop final : public EventLoop {
 public:
  MonotonicTime Now() const override { return ReadMonotonicClock(); }
  WallTime WallNow() const override { return WallTime(); }
  void Post(Task&&) override {}
  TimerId At(MonotonicTime, Task) override { return 0; }
  void Cancel(TimerId) override {}
};

TEST(LoopGate, ClosesWhileATaskThatTheLoopRefusedHangsAsItIsDestroyed) {
  RefusingLoop loop;
  LoopGate gate(&loop);
  const Scope scope;
  std::latch begun{1}, ended{1};
  const auto hang = [&](int*) {
    begun.count_down();
    ended.wait();
  };
  int what = 0;
  std::unique_ptr<int, decltype(hang)> held(&what, hang);
  std::thread poster([&] { gate.Post(scope.Bind([held = std::move(held)] {})); });
  begun.wait();
  EXPECT_TRUE(Within<bool>(Duration::Seconds(5), "closes", [&gate] {
    gate.Close();
    return true;
  }));
  ended.count_down();
  poster.join();
  while (UnawaitedThreads::count() > 0) std::this_thread::yield();
}

TEST(Within, ASecondOneForATargetWaitsForTheFirstAndLeavesNoThread) {
  const auto quick = [] { return 5; };
  std::latch ends{1};
  const auto hangs = [&ends] {
    ends.wait();
    return 5;
  };
  const Duration soon = Duration::Millis(20);
  EXPECT_EQ(Within<int>(soon, "hangs", hangs, "disk"), std::nullopt);
  EXPECT_EQ(Within<int>(soon, "hangs", hangs, "disk"), std::nullopt);
  EXPECT_EQ(UnawaitedThreads::count(), 1u);
  EXPECT_EQ(Within<int>(Duration::Seconds(30), "quick", quick, "another disk"), 5);
  std::thread later([&ends] { ends.count_down(); });
  EXPECT_EQ(Within<int>(Duration::Seconds(30), "quick", quick, "disk"), 5);
  later.join();
  while (UnawaitedThreads::count() > 0) std::this_thread::yield();
}

// A mount whose server is silent: the first look at it hangs.
class SilentMount {
 public:
  explicit SilentMount(const std::string& path)
      : path_(path), fd_(open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    const std::string options =
        "fd=" + std::to_string(fd_) + ",rootmode=40000,user_id=0,group_id=0";
    mounted_ = fd_ >= 0 && mount("silent", path.c_str(), "fuse", 0, options.c_str()) == 0;
  }
  // What hangs in it ends.
  ~SilentMount() {
    if (fd_ >= 0) close(fd_);
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SilentMount(const SilentMount&) = delete;
  SilentMount& operator=(const SilentMount&) = delete;
  bool mounted() const { return mounted_; }

 private:
  const std::string path_;
  const int fd_;
  bool mounted_ = false;
};

TEST(PosixStoreOpen, OfAMountThatHangsIsToldInTime) {
  const TemporaryFolder folder;
  {
    const SilentMount mount(folder.path());
    if (!mount.mounted()) GTEST_SKIP() << "cannot mount by /dev/fuse here, which needs root";
    ThreadLoop loop;
    PosixStoreOptions options;
    options.open_wait = Duration::Millis(100);
    const auto store = PosixStore::Open(&loop, folder.path() + "/store", options);
    EXPECT_EQ(store.status().code(), StatusCode::kUnavailable) << store.status();
    EXPECT_THAT(store.status().message(), HasSubstr("its disk or mount hangs"));
    EXPECT_FALSE(PosixStore::Open(&loop, folder.path() + "/store", options).ok());
    EXPECT_EQ(UnawaitedThreads::count(), 1u) << "who tries again leaves no more threads";
  }
  while (UnawaitedThreads::count() > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace tailcast::storage
