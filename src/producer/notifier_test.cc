#include "tailcast/producer/notifier.h"

#include <gtest/gtest.h>

#include <vector>

#include "tailcast/sim/sim_loop.h"

namespace tailcast::producer {
namespace {

class NotifierTest : public ::testing::Test {
 protected:
  void Answer(size_t told, const Status& status) { done[told](status); }

  sim::VirtualTime time{1};
  std::unique_ptr<sim::SimLoop> loop = time.MakeLoop("producer");
  const FileEvent event{{{{"s", stream::StreamIncarnation{3}}, 0}, {1, 1000, 0, 0}}, std::nullopt};
  std::vector<Callback<void(Status)>> done;  // of each time that the scheduler was told
  Scope scope;
  Notifier notifier{*loop, scope.Bind([this](const FileEvent&, Callback<void(Status)> d) {
                      done.push_back(std::move(d));
                    }),
                    scope.Bind([this] { ++idle; })};
  int idle = 0;
};

TEST_F(NotifierTest, TellsAgainUntilTheSchedulerHeard) {
  notifier.Notify(event);
  ASSERT_EQ(done.size(), 1u);
  Answer(0, UnavailableError("away"));
  time.RunFor(Duration::Millis(49));
  EXPECT_EQ(done.size(), 1u);
  time.RunFor(Duration::Millis(1));
  ASSERT_EQ(done.size(), 2u);
  EXPECT_FALSE(notifier.idle());
  Answer(1, OkStatus());
  EXPECT_TRUE(notifier.idle());
  EXPECT_EQ(idle, 1);
  time.RunFor(Duration::Seconds(60));
  EXPECT_EQ(done.size(), 2u);
  EXPECT_EQ(notifier.failures(), 1);
}

TEST_F(NotifierTest, ALateAnswerToATryThatIsOverIsDropped) {
  notifier.Notify(event);
  Answer(0, UnavailableError("away"));
  Answer(0, UnavailableError("once more"));
  time.RunFor(Duration::Millis(50));
  Answer(1, OkStatus());
  Answer(0, OkStatus());
  Answer(1, UnavailableError("too late"));
  time.RunFor(Duration::Seconds(60));
  EXPECT_EQ(done.size(), 2u);
  EXPECT_EQ(notifier.failures(), 1);
}

TEST_F(NotifierTest, GivesUpAfterManyTries) {
  notifier.Notify(event);
  for (size_t i = 0; i < done.size(); ++i) {
    Answer(i, UnavailableError("away"));
    time.RunFor(Duration::Seconds(5));
  }
  EXPECT_EQ(done.size(), 13u);
  EXPECT_EQ(notifier.failures(), 13);
}

TEST_F(NotifierTest, StoppedItBeginsNoFurtherWait) {
  notifier.Notify(event);
  notifier.Stop();
  Answer(0, UnavailableError("away"));
  time.RunFor(Duration::Seconds(60));
  EXPECT_EQ(done.size(), 1u);
}

}  // namespace
}  // namespace tailcast::producer
