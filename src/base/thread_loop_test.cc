#include "tailcast/base/thread_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tailcast/base/scope.h"

namespace tailcast {
namespace {

MonotonicTime Soon(int64_t seconds = 20) {
  return ReadMonotonicClock() + Duration::Seconds(seconds);
}

// A page that one mapping writes and another, read-only one watches: the shape of a doorbell.
class SharedPage {
 public:
  SharedPage() {
    const int fd = memfd_create("thread_loop_test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, 4096), 0);
    writable_ = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    readable_ = static_cast<char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
  }
  ~SharedPage() {
    munmap(writable_, 4096);
    munmap(readable_, 4096);
  }
  const std::atomic<uint32_t>* word(int i) const {
    return reinterpret_cast<const std::atomic<uint32_t>*>(readable_ + i * 8);
  }
  void Set(int i, uint32_t value) {
    reinterpret_cast<std::atomic<uint32_t>*>(writable_ + i * 8)->store(value);
  }
  // Returns how many were woken.
  long Wake(int i) {
    return syscall(SYS_futex, writable_ + i * 8, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }

 private:
  char* writable_;
  char* readable_;
};

TEST(ThreadLoopTest, RunsPostedTasksInOrderAndNeverInsidePost) {
  const Scope scope;
  ThreadLoop loop;
  std::vector<int> ran;
  loop.Post(scope.Bind([&] {
    loop.Post(scope.Bind([&] { ran.push_back(3); }));
    ran.push_back(1);
  }));
  loop.Post(scope.Bind([&] { ran.push_back(2); }));
  EXPECT_TRUE(ran.empty());
  EXPECT_TRUE(loop.RunUntil([&] { return ran.size() == 3; }, Soon()));
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
}

TEST(ThreadLoopTest, RunsTimersInOrderOfTimeAndTiesInOrderOfSetting) {
  const Scope scope;
  ThreadLoop loop;
  std::vector<int> ran;
  const MonotonicTime base = loop.Now();
  loop.At(base + Duration::Millis(3), scope.Bind([&] { ran.push_back(4); }));
  loop.At(base + Duration::Millis(1), scope.Bind([&] { ran.push_back(1); }));
  loop.At(base + Duration::Millis(2), scope.Bind([&] { ran.push_back(2); }));
  loop.At(base + Duration::Millis(2), scope.Bind([&] { ran.push_back(3); }));
  EXPECT_TRUE(loop.RunUntil([&] { return ran.size() == 4; }, Soon()));
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3, 4}));
}

TEST(ThreadLoopTest, NeverRunsATimerEarlyOrWhenCancelled) {
  const Scope scope;
  ThreadLoop loop;
  bool early = false, cancelled_ran = false, done = false;
  const MonotonicTime when = loop.Now() + Duration::Millis(5);
  const TimerId cancelled = loop.At(when, scope.Bind([&] { cancelled_ran = true; }));
  loop.At(when, scope.Bind([&] {
    early = loop.Now() < when;
    done = true;
  }));
  loop.Cancel(cancelled);
  loop.Cancel(cancelled);
  loop.Cancel(0);
  EXPECT_TRUE(loop.RunUntil([&] { return done; }, Soon()));
  EXPECT_FALSE(early);
  EXPECT_FALSE(cancelled_ran);
}

TEST(ThreadLoopTest, ATimerMayCancelAnotherThatIsDueInTheSameTurn) {
  const Scope scope;
  ThreadLoop loop;
  TimerId second = 0;
  bool second_ran = false, third_ran = false;
  const MonotonicTime now = loop.Now();
  loop.At(now, scope.Bind([&] { loop.Cancel(second); }));
  second = loop.At(now, scope.Bind([&] { second_ran = true; }));
  loop.At(now, scope.Bind([&] { third_ran = true; }));
  EXPECT_TRUE(loop.RunUntil([&] { return third_ran; }, Soon()));
  EXPECT_FALSE(second_ran);
}

// Its slot was used again meanwhile.
TEST(ThreadLoopTest, AnIdOfATimerThatRanOrWasCancelledCancelsNoOther) {
  const Scope scope;
  ThreadLoop loop;
  int ran = 0;
  const TimerId first = loop.At(loop.Now(), scope.Bind([&] { ++ran; }));
  EXPECT_EQ(loop.RunOnce(), 1u);
  const TimerId second = loop.At(loop.Now(), scope.Bind([&] { ++ran; }));
  EXPECT_NE(first, second);
  loop.Cancel(first);
  EXPECT_EQ(loop.RunOnce(), 1u);
  const TimerId third = loop.After(Duration::Seconds(3600), scope.Bind([&] { ++ran; }));
  loop.Cancel(third);
  loop.At(loop.Now(), scope.Bind([&] { ++ran; }));
  loop.Cancel(third);
  EXPECT_EQ(loop.RunOnce(), 1u);
  EXPECT_EQ(ran, 3);
}

// A timer's task, and what a cancelled one holds, set and cancel others.
TEST(ThreadLoopTest, TimersMayBeSetAndCancelledWhereverTasksRunOrGo) {
  const Scope scope;
  ThreadLoop loop;
  struct Canceller {
    Canceller(ThreadLoop* l, TimerId t) : loop(l), timer(t) {}
    ~Canceller() {
      loop->Cancel(timer);
      loop->After(Duration::Seconds(3600), Scope().Bind([] {}));
    }
    ThreadLoop* loop;
    TimerId timer;
  };
  int ran = 0;
  const TimerId inner = loop.After(Duration(), scope.Bind([] { FAIL() << "was cancelled"; }));
  const TimerId outer = loop.After(
      Duration(), scope.Bind([held = std::make_unique<Canceller>(&loop, inner)] { (void)held; }));
  loop.Cancel(outer);
  loop.After(Duration(), scope.Bind([&] {
    for (int i = 0; i < 1000; ++i) loop.After(Duration(), scope.Bind([&] { ++ran; }));
  }));
  EXPECT_TRUE(loop.RunUntil([&] { return ran == 1000; }, Soon()));
  // It goes with the loop.
  const TimerId last = loop.After(Duration::Seconds(3600), scope.Bind([] {}));
  loop.After(Duration::Seconds(3600),
             scope.Bind([held = std::make_unique<Canceller>(&loop, last)] { (void)held; }));
}

TEST(ThreadLoopTest, WhatWasPostedRunsBeforeTimersThatAreDue) {
  const Scope scope;
  ThreadLoop loop;
  SharedPage page;
  std::vector<int> ran;
  loop.At(loop.Now(), scope.Bind([&] { ran.push_back(3); }));
  loop.Post(scope.Bind([&] { ran.push_back(2); }));
  EXPECT_NE(loop.WatchWord(page.word(0), 1, scope.Bind([&] { ran.push_back(1); })), 0u);
  EXPECT_EQ(loop.RunOnce(), 3u);
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
}

TEST(ThreadLoopTest, NoTimerRunsAfterAStopInTheSameTurn) {
  const Scope scope;
  ThreadLoop loop;
  loop.At(loop.Now(), scope.Bind([] { FAIL() << "stopped"; }));
  loop.Post(scope.Bind([&] { loop.Stop(); }));
  loop.Run();
}

TEST(ThreadLoopTest, CancelledTimersDoNotPileUp) {
  const Scope scope;
  ThreadLoop loop;
  int destroyed = 0;
  struct Counter {
    int* count;
    explicit Counter(int* c) : count(c) {}
    ~Counter() { ++*count; }
  };
  for (int i = 0; i < 100000; ++i) {
    auto counter = std::make_unique<Counter>(&destroyed);
    loop.Cancel(loop.After(Duration::Seconds(3600), scope.Bind([counter = std::move(counter)] {})));
  }
  EXPECT_EQ(destroyed, 100000);  // the captures at once, not in an hour
}

TEST(ThreadLoopTest, TimersThatSetTimersDoNotStarveTheMailbox) {
  const Scope scope;
  ThreadLoop loop;
  bool stop = false, posted_ran = false;
  std::function<void()> again = [&] {
    if (!stop) loop.After(Duration(), scope.Bind([&] { again(); }));
  };
  again();
  loop.Post(scope.Bind([&] { posted_ran = true; }));
  EXPECT_TRUE(loop.RunUntil([&] { return posted_ran; }, Soon()));
  stop = true;
}

TEST(ThreadLoopTest, TimeStandsStillWithinACallback) {
  const Scope scope;
  ThreadLoop loop;
  bool same = false, done = false;
  loop.Post(scope.Bind([&] {
    const MonotonicTime a = loop.Now();
    const MonotonicTime clock = ReadMonotonicClock();
    while (ReadMonotonicClock() < clock + Duration::Millis(2)) {
    }
    same = loop.Now() == a;
    done = true;
  }));
  EXPECT_TRUE(loop.RunUntil([&] { return done; }, Soon()));
  EXPECT_TRUE(same);
  const MonotonicTime outside = loop.Now();
  while (loop.Now() == outside) {
  }  // and moves outside of one
}

TEST(ThreadLoopTest, RunUntilGivesUpAtItsDeadline) {
  ThreadLoop loop;
  const MonotonicTime deadline = ReadMonotonicClock() + Duration::Millis(3);
  EXPECT_FALSE(loop.RunUntil([] { return false; }, deadline));
  EXPECT_GE(ReadMonotonicClock(), deadline);
}

TEST(ThreadLoopTest, PostsOfManyThreadsAllArriveEachInItsOrder) {
  const Scope scope;
  constexpr int kThreads = 4, kPosts = 20000;
  ThreadLoop loop;
  std::vector<int> next(kThreads, 0);
  int ran = 0;
  bool in_order = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        loop.Post(scope.Bind([&, t, i] {
          in_order &= next[static_cast<size_t>(t)]++ == i;
          ++ran;
        }));
      }
    });
  }
  EXPECT_TRUE(loop.RunUntil([&] { return ran == kThreads * kPosts; }, Soon(60)));
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(in_order);
}

TEST(ThreadLoopTest, PingPongBetweenTwoLoopsLosesNoWakeup) {
  const Scope scope;
  LoopThread other("other");
  ThreadLoop loop;
  int rounds = 0;
  std::function<void()> serve = [&] {
    other.loop()->Post(scope.Bind([&] {
      loop.Post(scope.Bind([&] {
        if (++rounds < 20000) serve();
      }));
    }));
  };
  serve();
  EXPECT_TRUE(loop.RunUntil([&] { return rounds == 20000; }, Soon(60)));
}

TEST(ThreadLoopTest, StopRunsWhatWasPostedBeforeAndDropsTheRest) {
  const Scope scope;
  ThreadLoop loop;
  int ran = 0;
  auto token = std::make_shared<int>(0);
  loop.After(Duration(), scope.Bind([&, token] { ran += 100; }));
  loop.Post(scope.Bind([&] { ++ran; }));
  loop.Post(scope.Bind([&, token] {
    ++ran;
    loop.Post(scope.Bind([&, token] { ran += 100; }));
  }));
  loop.Stop();
  loop.Run();
  EXPECT_EQ(ran, 2);
  loop.Post(scope.Bind([&, token] { ran += 100; }));
  EXPECT_EQ(token.use_count(), 2);  // only the timer's, which goes with the loop
  loop.Run();
  EXPECT_EQ(ran, 2);
}

TEST(ThreadLoopTest, StopFromAnotherThreadEndsASleepingAndABusyLoop) {
  const Scope scope;
  for (const bool busy : {false, true}) {
    ThreadLoop loop;
    std::function<void()> again = [&] { loop.After(Duration(), scope.Bind([&] { again(); })); };
    if (busy) again();
    std::thread stopper([&] { loop.Stop(); });
    loop.Run();
    stopper.join();
    EXPECT_TRUE(loop.stopped());
  }
}

// A turn that empties the mailbox must not take the news of Stop with it. Many watched words make
// the moment long between the turn's look at Stop and its look at the mailbox.
TEST(ThreadLoopTest, AStopAtAnyMomentOfATurnEndsTheLoop) {
  const Scope scope;
  SharedPage page;
  for (int round = 0; round < 2000; ++round) {
    ThreadLoop loop;
    for (size_t i = 0; i < ThreadLoop::kWatchedWordsMax; ++i) {
      loop.WatchWord(page.word(static_cast<int>(i)), 0, scope.Bind([] {}));
    }
    std::atomic<int> started{0};
    std::thread stopper([&] {
      started.fetch_add(1);
      while (started.load() < 2) std::this_thread::yield();
      for (int i = 0; i < round % 500; ++i) (void)started.load();
      loop.Stop();
    });
    started.fetch_add(1);
    while (started.load() < 2) std::this_thread::yield();
    const MonotonicTime deadline = Soon();
    loop.RunUntil([] { return false; }, deadline);
    stopper.join();
    ASSERT_LT(ReadMonotonicClock().micros(), deadline.micros()) << "round " << round;
  }
}

TEST(ThreadLoopTest, LoopThreadCallsAndJoins) {
  const Scope scope;
  std::thread::id inside;
  bool last_ran = false;
  {
    LoopThread thread("a-name-longer-than-fifteen");
    thread.Call([&] { inside = std::this_thread::get_id(); });
    thread.loop()->Post(scope.Bind([&] { last_ran = true; }));
  }
  EXPECT_NE(inside, std::this_thread::get_id());
  EXPECT_TRUE(last_ran);
}

TEST(ThreadLoopTest, AnIdleLoopSleepsOnce) {
  const Scope scope;
  ThreadLoop loop;
  SharedPage page;
  loop.WatchWord(page.word(0), 0, scope.Bind([] {}));
  timespec before, after;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  const uint64_t sleeps = loop.sleeps();
  loop.RunFor(Duration::Millis(300));
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  if (!loop.has_futex_waitv()) {
    GTEST_SKIP() << "this kernel has no futex_waitv: words are looked at every millisecond";
  }
  // Once, and again for a signal or a coarse clock; a periodic wakeup would show as dozens.
  EXPECT_LE(loop.sleeps() - sleeps, 4u);
  const int64_t cpu_us =
      (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
  EXPECT_LT(cpu_us, 20000);
}

class WordWatchTest : public testing::TestWithParam<bool> {
 protected:
  ThreadLoop::Options options() {
    ThreadLoop::Options o;
    o.use_futex_waitv = GetParam();
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(All, WordWatchTest, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "waitv" : "fallback"; });

TEST_P(WordWatchTest, AnswersAtOnceWhenTheWordDiffersAlreadyButNotInsideTheCall) {
  const Scope scope;
  ThreadLoop loop(options());
  SharedPage page;
  page.Set(0, 5);
  bool changed = false;
  EXPECT_NE(loop.WatchWord(page.word(0), 4, scope.Bind([&] { changed = true; })), 0u);
  EXPECT_FALSE(changed);
  EXPECT_TRUE(loop.RunUntil([&] { return changed; }, Soon()));
  EXPECT_EQ(loop.watched_words(), 0u);
}

TEST_P(WordWatchTest, AWakeFromAnotherThreadAnswersExactlyTheWatchOfItsWord) {
  const Scope scope;
  ThreadLoop loop(options());
  SharedPage page;
  int answers = 0, others = 0;
  loop.WatchWord(page.word(3), 0, scope.Bind([&] { ++answers; }));
  loop.WatchWord(page.word(4), 0, scope.Bind([&] { ++others; }));
  std::thread waker([&] {
    page.Set(3, 1);
    page.Wake(3);
  });
  EXPECT_TRUE(loop.RunUntil([&] { return answers > 0; }, Soon()));
  waker.join();
  loop.RunOnce();
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(others, 0);
  EXPECT_EQ(loop.watched_words(), 1u);
}

TEST_P(WordWatchTest, WakesByAWriterAreNeverMissed) {
  const Scope scope;
  ThreadLoop loop(options());
  SharedPage page;
  constexpr uint32_t kRounds = 3000;
  std::atomic<uint32_t> seen{0};
  std::function<void()> watch = [&] {
    const uint32_t now = page.word(0)->load();
    seen = now;
    if (now < kRounds) loop.WatchWord(page.word(0), now, scope.Bind([&] { watch(); }));
  };
  watch();
  std::thread writer([&] {
    for (uint32_t i = 1; i <= kRounds; ++i) {
      page.Set(0, i);
      page.Wake(0);
      if (i % 8 == 0) {  // let the loop go to sleep now and then
        while (seen < i) std::this_thread::yield();
      }
    }
  });
  EXPECT_TRUE(loop.RunUntil([&] { return seen == kRounds; }, Soon(60)));
  writer.join();
}

TEST_P(WordWatchTest, PostWakesALoopThatWatches) {
  const Scope scope;
  LoopThread thread("watcher", options());
  SharedPage page;
  WordWatchId id = 0;
  thread.Call([&] { id = thread.loop()->WatchWord(page.word(0), 0, scope.Bind([] {})); });
  for (int i = 0; i < 200; ++i) thread.Call([] {});
  thread.Call([&] { thread.loop()->CancelWord(id); });
}

TEST_P(WordWatchTest, CancelledWatchesAreNotCalledEvenByTheirNeighbourInTheSameTurn) {
  const Scope scope;
  ThreadLoop loop(options());
  SharedPage page;
  WordWatchId second = 0;
  bool first_ran = false, second_ran = false;
  loop.WatchWord(page.word(0), 0, scope.Bind([&] {
    first_ran = true;
    loop.CancelWord(second);
  }));
  second = loop.WatchWord(page.word(1), 0, scope.Bind([&] { second_ran = true; }));
  page.Set(0, 1);
  page.Set(1, 1);
  EXPECT_TRUE(loop.RunUntil([&] { return first_ran; }, Soon()));
  loop.RunOnce();
  EXPECT_FALSE(second_ran);
  loop.CancelWord(second);
  loop.CancelWord(0);
}

TEST_P(WordWatchTest, RefusesMoreWordsThanTheKernelTakes) {
  const Scope scope;
  ThreadLoop loop(options());
  SharedPage page;
  std::set<WordWatchId> ids;
  for (size_t i = 0; i < ThreadLoop::kWatchedWordsMax; ++i) {
    ids.insert(loop.WatchWord(page.word(static_cast<int>(i)), 0, scope.Bind([] {})));
  }
  EXPECT_EQ(ids.size(), ThreadLoop::kWatchedWordsMax);
  EXPECT_FALSE(ids.contains(0));
  EXPECT_EQ(loop.WatchWord(page.word(200), 0, scope.Bind([] {})), 0u);
  loop.RunFor(Duration::Millis(2));  // the kernel takes the full array
  EXPECT_EQ(loop.has_futex_waitv(), GetParam());
  loop.CancelWord(*ids.begin());
  EXPECT_NE(loop.WatchWord(page.word(200), 0, scope.Bind([] {})), 0u);
}

// With a watched word beside them or without: the loop sleeps elsewhere then.
class DescriptorWatchTest : public ::testing::TestWithParam<bool> {
 protected:
  DescriptorWatchTest() {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
    if (GetParam()) {
      EXPECT_NE(loop_.WatchWord(page_.word(0), 0, scope_.Bind([] { FAIL() << "never changed"; })),
                0u);
    }
  }
  ~DescriptorWatchTest() override {
    close(pipe_[0]);
    close(pipe_[1]);
  }
  void Write() { EXPECT_EQ(write(pipe_[1], "x", 1), 1); }
  void Read() {
    char byte;
    EXPECT_EQ(read(pipe_[0], &byte, 1), 1);
  }

  int pipe_[2];
  SharedPage page_;
  ThreadLoop loop_;
  const Scope scope_;
};
INSTANTIATE_TEST_SUITE_P(Words, DescriptorWatchTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "WithWords" : "Alone"; });

TEST_P(DescriptorWatchTest, EveryWriteOfAnotherThreadWakesIt) {
  constexpr int kWrites = 2000;
  std::atomic<int> seen{0};
  ASSERT_TRUE(loop_
                  .WatchDescriptor(pipe_[0], scope_.Bind([&] {
                    Read();
                    seen.fetch_add(1);
                  }))
                  .ok());
  std::thread writer([&] {
    for (int i = 0; i < kWrites; ++i) {
      while (seen.load() < i) std::this_thread::yield();  // it is asleep, or nearly
      Write();
    }
  });
  EXPECT_TRUE(loop_.RunUntil([&] { return seen == kWrites; }, Soon()));
  writer.join();
  EXPECT_EQ(loop_.RunOnce(), 0u);
}

// The thread is kept from its processor between the end of its sleep and its turn, here by a
// signal: meanwhile the answer comes, and the time-out goes by. The answer is taken first.
TEST_P(DescriptorWatchTest, WhatCameWhileItsThreadDidNotRunIsSeenBeforeATimeOut) {
  static std::atomic<int> write_to;
  static std::atomic<int64_t> until, wrote;
  const auto stall = [](int) {
    (void)!write(write_to, "x", 1);
    wrote = ReadMonotonicClock().micros();
    while (ReadMonotonicClock().micros() < until) {
    }
  };
  struct sigaction before, action = {};
  action.sa_handler = stall;
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before), 0);
  bool came = false;
  ASSERT_TRUE(loop_
                  .WatchDescriptor(pipe_[0], scope_.Bind([&] {
                    Read();
                    came = true;
                  }))
                  .ok());
  // Another one's answer may have ended the sleep.
  int other_pipe[2];
  ASSERT_EQ(pipe2(other_pipe, O_CLOEXEC | O_NONBLOCK), 0);
  ASSERT_TRUE(loop_
                  .WatchDescriptor(other_pipe[0], scope_.Bind([&] {
                    char byte;
                    EXPECT_EQ(read(other_pipe[0], &byte, 1), 1);
                    stall(0);
                  }))
                  .ok());
  // On a busy machine the other thread may come after the time-out: that shows nothing.
  const MonotonicTime end = Soon();
  int shown = 0;
  for (int i = 0; shown < 50 && loop_.Now() < end; ++i) {
    came = false;
    bool late = false;
    const MonotonicTime due = loop_.Now() + Duration::Millis(10);
    write_to = pipe_[1];
    until = due.micros() + 100;
    loop_.At(due, scope_.Bind([&] { late = late || !came; }));
    std::thread other([&, self = pthread_self()] {
      if (i % 2 == 0) {
        pthread_kill(self, SIGUSR2);
      } else {
        EXPECT_EQ(write(other_pipe[1], "x", 1), 1);
      }
    });
    EXPECT_TRUE(loop_.RunUntil([&] { return came; }, Soon()));
    other.join();
    if (wrote < due.micros()) {
      ++shown;
      EXPECT_FALSE(late) << i;
    }
    loop_.RunFor(Duration::Millis(1));
  }
  EXPECT_EQ(shown, 50);
  ASSERT_EQ(sigaction(SIGUSR2, &before, nullptr), 0);
  loop_.CancelDescriptor(other_pipe[0]);
  close(other_pipe[0]);
  close(other_pipe[1]);
}

TEST_P(DescriptorWatchTest, PostsAndTimersAreNotHeldUp) {
  ASSERT_TRUE(
      loop_.WatchDescriptor(pipe_[0], scope_.Bind([] { FAIL() << "nothing to read"; })).ok());
  bool ran = false;
  loop_.At(ReadMonotonicClock() + Duration::Micros(700), scope_.Bind([&] { ran = true; }));
  EXPECT_TRUE(loop_.RunUntil([&] { return ran; }, Soon()));
  for (int i = 0; i < 500; ++i) {
    std::atomic<bool> posted{false};
    std::thread poster([&] { loop_.Post(scope_.Bind([&] { posted = true; })); });
    EXPECT_TRUE(loop_.RunUntil([&] { return posted.load(); }, Soon()));
    poster.join();
  }
}

TEST_P(DescriptorWatchTest, WhatIsNotReadIsReportedAgainUntilItIsCancelled) {
  int calls = 0;
  ASSERT_TRUE(loop_
                  .WatchDescriptor(pipe_[0], scope_.Bind([&] {
                    if (++calls == 3) loop_.CancelDescriptor(pipe_[0]);
                  }))
                  .ok());
  Write();
  EXPECT_TRUE(loop_.RunUntil([&] { return calls == 3; }, Soon()));
  loop_.RunFor(Duration::Millis(5));
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(IsResourceExhausted(loop_.WatchDescriptor(-1, scope_.Bind([] {}))));
}

TEST_P(DescriptorWatchTest, OneThatCancelsItsNeighbourKeepsItFromBeingCalled) {
  int other[2];
  ASSERT_EQ(pipe2(other, O_CLOEXEC | O_NONBLOCK), 0);
  int calls = 0;
  for (const auto& [mine, theirs] : {std::pair(pipe_[0], other[0]), {other[0], pipe_[0]}}) {
    ASSERT_TRUE(loop_
                    .WatchDescriptor(mine, scope_.Bind([&, mine, theirs] {
                      ++calls;
                      loop_.CancelDescriptor(mine);
                      loop_.CancelDescriptor(theirs);
                    }))
                    .ok());
  }
  Write();
  ASSERT_EQ(write(other[1], "x", 1), 1);
  EXPECT_TRUE(loop_.RunUntil([&] { return calls > 0; }, Soon()));
  loop_.RunFor(Duration::Millis(5));
  EXPECT_EQ(calls, 1);
  close(other[0]);
  close(other[1]);
}

// What a sleep in epoll found is looked at after the timers of that turn, one of which closes what
// was ready, and watches another of the same number.
TEST_P(DescriptorWatchTest, WhatWasFoundIsNotSaidOfAnotherOfThatNumber) {
  int other[2], silent[2];
  ASSERT_EQ(pipe2(other, O_CLOEXEC | O_NONBLOCK), 0);
  ASSERT_EQ(pipe2(silent, O_CLOEXEC | O_NONBLOCK), 0);
  bool replaced = false;
  const auto replace = [&] {
    loop_.CancelDescriptor(other[0]);
    ASSERT_EQ(dup2(silent[0], other[0]), other[0]);
    ASSERT_TRUE(
        loop_.WatchDescriptor(other[0], scope_.Bind([] { FAIL() << "nothing to read"; })).ok());
    replaced = true;
  };
  ASSERT_TRUE(loop_.WatchDescriptor(other[0], scope_.Bind([] {})).ok());
  ASSERT_TRUE(loop_
                  .WatchDescriptor(pipe_[0], scope_.Bind([&] {
                    Read();
                    ASSERT_EQ(write(other[1], "x", 1), 1);
                    loop_.At(loop_.Now(), scope_.Bind(replace));
                  }))
                  .ok());
  Write();
  EXPECT_TRUE(loop_.RunUntil([&] { return replaced; }, Soon()));
  loop_.RunFor(Duration::Millis(2));
  for (const int fd : {other[0], other[1], silent[0], silent[1]}) {
    loop_.CancelDescriptor(fd);
    close(fd);
  }
}

// The last one that was watched went with a sleep's answer unread: it is not taken for the next
// one's.
TEST_P(DescriptorWatchTest, OneThatComesAfterTheLastWentIsLookedAtAtOnce) {
  int other[2];
  ASSERT_EQ(pipe2(other, O_CLOEXEC | O_NONBLOCK), 0);
  bool gone = false;
  const auto leave = [&] {
    loop_.CancelDescriptor(pipe_[0]);
    gone = true;
  };
  ASSERT_TRUE(loop_.WatchDescriptor(pipe_[0], scope_.Bind([] {})).ok());
  loop_.At(ReadMonotonicClock() + Duration::Millis(1), scope_.Bind(leave));
  EXPECT_TRUE(loop_.RunUntil([&] { return gone; }, Soon()));
  bool called = false;
  ASSERT_TRUE(loop_
                  .WatchDescriptor(other[0], scope_.Bind([&] {
                    called = true;
                    loop_.CancelDescriptor(other[0]);
                  }))
                  .ok());
  ASSERT_EQ(write(other[1], "x", 1), 1);
  EXPECT_EQ(loop_.RunOnce(), 1u);
  EXPECT_TRUE(called);
  close(other[0]);
  close(other[1]);
}

TEST_P(DescriptorWatchTest, AnIdleLoopSleepsOnceAndStopsAtOnce) {
  ASSERT_TRUE(loop_.WatchDescriptor(pipe_[0], scope_.Bind([] {})).ok());
  loop_.RunFor(Duration::Millis(20));
  EXPECT_LE(loop_.sleeps(), 2u);
  std::thread stopper([&] { loop_.Stop(); });
  loop_.Run();
  stopper.join();
}

TEST(ThreadLoopTest, ASpinningLoopFindsPostsAndTimers) {
  const Scope scope;
  ThreadLoop::Options options;
  options.spin = Duration::Millis(1);
  ThreadLoop loop(options);
  bool posted = false, timed = false;
  loop.After(Duration::Millis(3), scope.Bind([&] { timed = true; }));
  std::thread poster([&] { loop.Post(scope.Bind([&] { posted = true; })); });
  EXPECT_TRUE(loop.RunUntil([&] { return posted && timed; }, Soon()));
  poster.join();
}

}  // namespace
}  // namespace tailcast
