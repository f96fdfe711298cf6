#include "tailcast/fabric/reactor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tailcast/base/scope.h"

namespace tailcast::fabric {
namespace {

class ReactorTest : public ::testing::Test {
 protected:
  Reactor reactor_{"reactor-test"};
  Scope scope_;  // of the reactor's thread
  ~ReactorTest() override {
    reactor_.Call([this] { scope_.End(); });
  }
};

struct Pipe final : Reactor::Handler {
  Pipe() { EXPECT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0); }
  ~Pipe() {
    close(fds[0]);
    close(fds[1]);
  }
  void OnEvents(uint32_t) override {
    char byte;
    EXPECT_EQ(read(fds[0], &byte, 1), 1);
    heard();
  }
  int fds[2];
  std::function<void()> heard;
};

// As a door's line does: each turn posts the next one.
TEST_F(ReactorTest, BetweenTwoTasksOfItsOwnThreadItLooksAtItsSockets) {
  Pipe pipe;
  std::string order;
  std::promise<void> done;
  pipe.heard = [&] { order += 's'; };
  int turns = 0;
  std::function<void()> turn = [&] {
    order += 't';
    if (++turns == 3) {
      EXPECT_EQ(write(pipe.fds[1], "x", 1), 1);
    }
    if (turns == 6) {
      done.set_value();
    } else {
      reactor_.Post(scope_.Bind([&] { turn(); }));
    }
  };
  reactor_.Call([&] {
    ASSERT_TRUE(reactor_.Add(pipe.fds[0], EPOLLIN, &pipe).ok());
    reactor_.Post(scope_.Bind([&] { turn(); }));
  });
  done.get_future().wait();
  reactor_.Call([&] { reactor_.Remove(pipe.fds[0]); });
  EXPECT_EQ(order, "tttsttt");
}

TEST_F(ReactorTest, PostsOfOthersAreNotLostBesideItsOwn) {
  constexpr int kThreads = 3, kEach = 3000;
  std::atomic<int> theirs{0}, own{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const Scope scope;  // of what this thread posts and waits for
      for (int i = 0; i < kEach; ++i) {
        std::promise<void> ran;
        reactor_.Post(scope.Bind([&] {
          // Its own, at times, while it is awake for somebody else's.
          if (++theirs % 2 == 0) reactor_.Post(scope_.Bind([&] { ++own; }));
          ran.set_value();
        }));
        if (i % 3 == 0) {
          ran.get_future().wait();  // it is asleep, or nearly
        } else {
          reactor_.Call([] {});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  reactor_.Call([] {});
  reactor_.Call([] {});  // behind what was posted by what came before the first
  EXPECT_EQ(theirs, kThreads * kEach);
  EXPECT_EQ(own, kThreads * kEach / 2);
}

TEST_F(ReactorTest, ATimerThatIsDueRunsBesideTasksThatPostThemselves) {
  std::promise<void> done;
  bool timed = false;
  std::function<void()> turn = [&] {
    if (timed) return done.set_value();
    reactor_.Post(scope_.Bind([&] { turn(); }));
  };
  reactor_.Call([&] {
    reactor_.At(reactor_.Now() + Duration::Millis(2), scope_.Bind([&] { timed = true; }));
    turn();
  });
  done.get_future().wait();
  EXPECT_TRUE(timed);
}

}  // namespace
}  // namespace tailcast::fabric
