#include "tailcast/base/scope.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tailcast/base/thread_loop.h"

namespace tailcast {
namespace {

// What a port keeps of its callers.
struct Port {
  Callback<void(int)> done;
  void Ask(Callback<void(int)> callback) { done = std::move(callback); }
};

template <typename Function>
constexpr bool kPortTakes = std::is_constructible_v<Callback<void(int)>, Function>;

TEST(ScopeTest, ABoundCallbackRunsWhileItsScopeLives) {
  Port port;
  const Scope scope;
  int sum = 0;
  port.Ask(scope.Bind([&](int value) { sum += value; }));
  port.done(1);
  port.done(2);
  EXPECT_EQ(sum, 3);
}

TEST(ScopeTest, ALateOrRepeatedCompletionOfAnOwnerThatIsGoneIsDropped) {
  Port port;
  int sum = 0;
  {
    const Scope scope;
    port.Ask(scope.Bind([&](int value) { sum += value; }));
    port.done(1);
    EXPECT_FALSE(port.done.dropped());
  }
  port.done(10);
  port.done(10);
  EXPECT_TRUE(port.done.dropped());
  EXPECT_EQ(sum, 1);
}

TEST(ScopeTest, EndDropsWhatIsBoundLaterToo) {
  Port port;
  Scope scope;
  scope.End();
  bool ran = false;
  port.Ask(scope.Bind([&](int) { ran = true; }));
  port.done(1);
  EXPECT_FALSE(ran);
}

TEST(ScopeTest, RestartDropsTheAttemptBeforeAndNotTheNext) {
  Port before, after;
  Scope scope;
  std::string seen;
  before.Ask(scope.Bind([&](int) { seen += "before"; }));
  scope.Restart();
  after.Ask(scope.Bind([&](int) { seen += "after"; }));
  before.done(1);
  after.done(1);
  EXPECT_EQ(seen, "after");
}

TEST(ScopeTest, CapturesLiveAsLongAsTheCallbackNotAsTheScope) {
  Port port;
  auto buffer = std::make_shared<std::string>("read into this");
  std::weak_ptr<std::string> weak = buffer;
  {
    const Scope scope;
    port.Ask(scope.Bind([buffer = std::move(buffer)](int) {}));
  }
  EXPECT_FALSE(weak.expired());
  port.done = nullptr;
  EXPECT_TRUE(weak.expired());
}

TEST(ScopeTest, ACallbackMayDestroyItsScope) {
  Port port;
  auto scope = std::make_unique<Scope>();
  int after = 0;
  port.Ask(scope->Bind([&](int value) {
    scope.reset();
    after = value;
  }));
  port.done(7);
  EXPECT_EQ(after, 7);
}

TEST(ScopeTest, AWatcherTellsThatTheOwnerIsGoneOrBeganAnew) {
  auto scope = std::make_unique<Scope>();
  const Scope::Watcher first = scope->Watch();
  EXPECT_FALSE(first.ended());
  scope->Restart();
  EXPECT_TRUE(first.ended());
  const Scope::Watcher second = scope->Watch();
  EXPECT_FALSE(second.ended());
  scope.reset();
  EXPECT_TRUE(second.ended());
}

TEST(ScopeTest, WithMakesATaskOnTheSameScope) {
  Port port;
  ThreadLoop loop;
  std::vector<int> seen;
  Scope scope, other;
  port.Ask(scope.Bind([&](int value) { seen.push_back(value); }));
  loop.Post(std::move(port.done).With(5));
  port.Ask(other.Bind([&](int value) { seen.push_back(value); }));
  loop.Post(std::move(port.done).With(6));
  other.End();
  loop.RunOnce();
  EXPECT_EQ(seen, std::vector<int>{5});
}

TEST(ScopeTest, WithMovesWhatCannotBeCopied) {
  ThreadLoop loop;
  const Scope scope;
  std::unique_ptr<int> got;
  Callback<void(std::unique_ptr<int>)> done =
      scope.Bind([&](std::unique_ptr<int> value) { got = std::move(value); });
  loop.Post(std::move(done).With(std::make_unique<int>(3)));
  loop.RunOnce();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(*got, 3);
}

TEST(ScopeTest, AnEmptyCallbackIsFalse) {
  Callback<void()> empty;
  EXPECT_FALSE(empty);
  const Scope scope;
  empty = scope.Bind([] {});
  EXPECT_TRUE(empty);
  empty = nullptr;
  EXPECT_FALSE(empty);
}

TEST(ScopeTest, APortTakesNothingThatNoScopeMade) {
  const auto bare = [](int) {};
  using BoundFunction = decltype(Scope().Bind(bare));
  using WrongFunction = decltype(Scope().Bind([](const std::string&) {}));
  static_assert(kPortTakes<BoundFunction>);
  static_assert(!kPortTakes<WrongFunction>);
  static_assert(!kPortTakes<decltype(bare)>);
  static_assert(!kPortTakes<void (*)(int)>);
  static_assert(!kPortTakes<UniqueFunction<void(int)>>);
  static_assert(!std::is_copy_constructible_v<Callback<void(int)>>);
}

TEST(TimerTest, RunsOnceAndIsReplacedByTheNextSetting) {
  ThreadLoop loop;
  const Scope scope;
  Timer timer(loop);
  std::string ran;
  timer.After(Duration(), scope.Bind([&] { ran += "first"; }));
  timer.After(Duration(), scope.Bind([&] { ran += "second"; }));
  EXPECT_TRUE(timer.armed());
  loop.RunOnce();
  loop.RunOnce();
  EXPECT_EQ(ran, "second");
  EXPECT_FALSE(timer.armed());
}

TEST(TimerTest, IsCancelledByItsDestruction) {
  ThreadLoop loop;
  const Scope scope;
  bool ran = false;
  {
    Timer timer(loop);
    timer.After(Duration(), scope.Bind([&] { ran = true; }));
  }
  loop.RunOnce();
  EXPECT_FALSE(ran);
}

TEST(TimerTest, MayBeSetAgainOrDestroyedByItsOwnTask) {
  ThreadLoop loop;
  const Scope scope;
  auto timer = std::make_unique<Timer>(loop);
  int turns = 0;
  timer->After(Duration(), scope.Bind([&] {
    ++turns;
    timer->After(Duration(), scope.Bind([&] {
      timer.reset();
      ++turns;
    }));
  }));
  loop.RunOnce();
  loop.RunOnce();
  EXPECT_EQ(turns, 2);
}

// An object that asks its port and answers by retiring itself.
struct Asker {
  Asker(Port* p, std::string* l) : port(p), log(l) {}
  ~Asker() { *log += "freed "; }
  Scope& scope() { return scope_; }
  Port* port;
  std::string* log;
  Scope scope_;
};

TEST(RetireTest, EndsNowAndFreesOnALaterTurn) {
  ThreadLoop loop;
  Port port;
  std::string log;
  auto asker = std::make_unique<Asker>(&port, &log);
  port.Ask(asker->scope().Bind([&](int) {
    Retire(loop, std::move(asker));
    log += "retired ";
  }));
  port.done(1);
  port.done(1);
  EXPECT_EQ(log, "retired ");
  loop.RunOnce();
  EXPECT_EQ(log, "retired freed ");
}

TEST(RetireTest, ALoopThatNeverTurnsAgainFreesWhatItHolds) {
  Port port;
  std::string log;
  {
    ThreadLoop loop;
    Retire(loop, std::make_unique<Asker>(&port, &log));
    EXPECT_EQ(log, "");
  }
  EXPECT_EQ(log, "freed ");
}

}  // namespace
}  // namespace tailcast
