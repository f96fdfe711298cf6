#include "tailcast/scheduler/view_waiters.h"

#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"

namespace tailcast::scheduler {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ViewWaitersTest : public ::testing::Test {
 protected:
  ViewWaitersTest() { view_.set_version(1); }

  void Wait(const std::string& who, v1::ViewUse use, Duration wait = Duration::Seconds(60)) {
    v1::GetViewRequest request;
    request.set_known_version(view_.version());
    request.set_use(use);
    waiters_.Wait(request, wait, scope_.Bind([this, who](const Result<std::string>& answer) {
      answers_[who] = answer.ok() ? std::to_string(rpc::Parse<v1::CellView>(*answer)->version())
                                  : std::string(answer.status().message());
      at_[who] = loop_->Now();
    }));
  }
  void Change(bool caches_last = false) {
    view_.set_version(view_.version() + 1);
    waiters_.OnChange(caches_last);
  }
  int Readers() const {
    int readers = 0;
    for (const auto& [who, answer] : answers_) readers += who.starts_with("reader") ? 1 : 0;
    return readers;
  }

  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("scheduler");
  v1::CellView view_;
  bool shown_ = true;
  std::map<std::string, std::string> answers_;  // of whoever was answered: the version, or why not
  std::map<std::string, MonotonicTime> at_;
  Scope scope_;
  ViewWaiters waiters_{*loop_, {.waiting_max = 120, .spread = Duration::Millis(100)}, [this] {
                         return shown_ ? &view_ : nullptr;
                       }};
};

TEST_F(ViewWaitersTest, WritersAndCachesHearAtOnceAndReadersSomeAtATime) {
  Wait("writer", v1::VIEW_WRITES);
  Wait("cache", v1::VIEW_SERVES);
  for (int i = 0; i < 100; ++i) Wait("reader-" + std::to_string(i), v1::VIEW_READS);
  Change();
  EXPECT_EQ(answers_["writer"], "2");
  EXPECT_EQ(answers_["cache"], "2");
  EXPECT_EQ(Readers(), 10);
  time_.RunFor(Duration::Millis(50));
  EXPECT_EQ(Readers(), 60);
  time_.RunFor(Duration::Millis(50));
  EXPECT_EQ(Readers(), 100);
}

TEST_F(ViewWaitersTest, AFewReadersDontWait) {
  Wait("reader", v1::VIEW_READS);
  Change();
  EXPECT_EQ(answers_["reader"], "2");
}

TEST_F(ViewWaitersTest, CachesHearLastOfARingThatIsReadFromNowOn) {
  Wait("writer", v1::VIEW_WRITES);
  Wait("cache", v1::VIEW_SERVES);
  for (int i = 0; i < 100; ++i) Wait("reader-" + std::to_string(i), v1::VIEW_READS);
  const MonotonicTime began = loop_->Now();
  Change(/*caches_last=*/true);
  EXPECT_EQ(answers_["writer"], "2");
  time_.RunFor(Duration::Millis(50));
  Change();  // that one, too
  while (Readers() < 100) {
    EXPECT_FALSE(answers_.contains("cache")) << Readers();
    time_.RunFor(Duration::Millis(10));
  }
  EXPECT_EQ(answers_["cache"], "3");
  EXPECT_LE(at_["cache"] - began, Duration::Millis(100));
  // Of the next one they hear at once again.
  Wait("cache", v1::VIEW_SERVES);
  Change();
  EXPECT_EQ(answers_["cache"], "4");
}

TEST_F(ViewWaitersTest, ChangesThatDontEndKeepNobodyWaiting) {
  Wait("cache", v1::VIEW_SERVES);
  for (int i = 0; i < 100; ++i) Wait("reader-" + std::to_string(i), v1::VIEW_READS);
  const MonotonicTime began = loop_->Now();
  Change(/*caches_last=*/true);
  while (loop_->Now() - began < Duration::Millis(99)) {
    Wait("reader-new", v1::VIEW_READS);  // it asks again as soon as it is answered
    Change();
    time_.RunFor(Duration::Millis(3));
  }
  time_.RunFor(Duration::Millis(3));
  EXPECT_TRUE(answers_.contains("cache"));
  EXPECT_EQ(Readers(), 101);
}

TEST_F(ViewWaitersTest, TheEndOfTheWaitBringsTheViewOrWhyThereIsNone) {
  Wait("first", v1::VIEW_READS, Duration::Millis(20));
  time_.RunFor(Duration::Millis(20));
  EXPECT_EQ(answers_["first"], "1");
  shown_ = false;
  Wait("second", v1::VIEW_WRITES, Duration::Millis(20));
  Change();
  EXPECT_FALSE(answers_.contains("second"));
  time_.RunFor(Duration::Millis(20));
  EXPECT_THAT(answers_["second"], HasSubstr("registering"));
}

TEST_F(ViewWaitersTest, TooManyAreRefusedAndAllAreToldOfTheEnd) {
  for (int i = 0; i < 120; ++i) Wait("reader-" + std::to_string(i), v1::VIEW_READS);
  EXPECT_THAT(answers_, IsEmpty());
  Wait("late", v1::VIEW_WRITES);
  EXPECT_THAT(answers_["late"], HasSubstr("too many"));
  Change();
  waiters_.End(UnavailableError("it ends"));
  EXPECT_EQ(Readers(), 120);
  EXPECT_EQ(answers_["reader-0"], "2");
  EXPECT_EQ(answers_["reader-99"], "it ends");
  time_.RunFor(Duration::Seconds(1));
}

}  // namespace
}  // namespace tailcast::scheduler
