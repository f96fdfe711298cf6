#include "tailcast/storage/outstanding_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"

namespace tailcast::storage {
namespace {

class OutstandingCallsTest : public ::testing::Test {
 protected:
  template <typename T>
  CallId<T> Add(const std::string& name, T closed) {
    return calls_.Add<T>(scope_.Bind([this, name](T value) {
      std::ostringstream text;
      text << name << "=" << value;
      log_.push_back(text.str());
    }),
                         std::move(closed));
  }
  using Log = std::vector<std::string>;

  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("loop");
  Log log_;
  OutstandingCalls calls_;
  Scope scope_;
};

TEST_F(OutstandingCallsTest, AnAnswerRunsTheCallbackOnceAndALateOneDoesNothing) {
  const auto number = Add<int>("number", -1);
  const auto text = Add<std::string>("text", "closed");
  calls_.Answer<std::string>(text, "yes");
  calls_.Answer(number, 7);
  calls_.Answer(number, 8);
  EXPECT_EQ(log_, (Log{"text=yes", "number=7"}));
}

TEST_F(OutstandingCallsTest, AClosedCallIsAnsweredOnTheNextTurn) {
  const auto first = Add<int>("first", -1);
  Add<int>("second", -2);
  calls_.Close(first.number, *loop_);
  calls_.Close(first.number, *loop_);
  calls_.Answer(first, 7);
  EXPECT_EQ(log_, Log{}) << "not inside the call";
  time_.RunFor(Duration::Millis(1));
  EXPECT_EQ(log_, Log{"first=-1"});
}

TEST_F(OutstandingCallsTest, ClosingAllAnswersInTheOrderOfTheCalls) {
  for (int i = 0; i < 20; ++i) Add<int>(std::to_string(i), i);
  calls_.CloseAll(*loop_);
  time_.RunFor(Duration::Millis(1));
  Log expected;
  for (int i = 0; i < 20; ++i) expected.push_back(std::to_string(i) + "=" + std::to_string(i));
  EXPECT_EQ(log_, expected);
}

// What a callback holds may have calls of its own here, and a loop that was shut down destroys it
// at once.
TEST_F(OutstandingCallsTest, ACallbackThatIsDestroyedWhileAllAreClosedMayCloseItsOwn) {
  struct Handle {
    Handle(OutstandingCalls& c, EventLoop& l, uint64_t n) : calls(c), loop(l), number(n) {}
    ~Handle() { calls.Close(number, loop); }
    OutstandingCalls& calls;
    EventLoop& loop;
    const uint64_t number;
  };
  loop_->Kill();
  const auto other = Add<int>("other", -1);
  calls_.Add<int>(scope_.Bind([handle = std::make_unique<Handle>(calls_, *loop_, other.number)](
                                  int) { FAIL(); }),
                  -2);
  calls_.CloseAll(*loop_);
  EXPECT_EQ(log_, Log{});
}

}  // namespace
}  // namespace tailcast::storage
