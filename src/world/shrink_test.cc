#include "tailcast/world/shrink.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"

namespace tailcast::world {
namespace {

using ::testing::HasSubstr;

TEST(ShrinkTest, WhatIsLeftBreaksTheSameRuleWithLessAndIsTheSameRunAgain) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  ASSERT_TRUE(SetLogLevels("off").ok());
  const PlantedFault planted("consumer.skip_record_at_roll_over");
  const Options drawn = Options::Swarm(1);
  const Outcome failed = World(drawn).Run();
  ASSERT_FALSE(failed.ok());
  const Shrunk shrunk = Shrink(drawn, failed, 60);
  EXPECT_LE(shrunk.runs, 60);
  EXPECT_EQ(RuleOf(shrunk.outcome.problem), RuleOf(failed.problem));
  // The bug needs nothing but files that roll over.
  EXPECT_TRUE(shrunk.options.faults.empty());
  EXPECT_LT(shrunk.options.messages, drawn.messages);
  EXPECT_EQ(shrunk.options.readers, 1);
  EXPECT_EQ(shrunk.options.consumers, 1);
  const Outcome again = World(shrunk.options).Run();
  EXPECT_EQ(again.problem, shrunk.outcome.problem);
  EXPECT_EQ(again.trace_hash, shrunk.outcome.trace_hash);
}

TEST(ShrinkTest, NothingIsRunBeyondTheLimit) {
  ASSERT_TRUE(SetLogLevels("off").ok());
  Outcome failed;
  failed.problem = "progress: none";
  const Options drawn = Options::Swarm(1);
  const Shrunk shrunk = Shrink(drawn, failed, 2);
  EXPECT_EQ(shrunk.runs, 2);
  EXPECT_EQ(shrunk.outcome.problem, failed.problem) << "runs that are well are no smaller failure";
  EXPECT_EQ(CountsBeside(shrunk.options, drawn), "");
}

TEST(ShrinkTest, CountsAreToldAndTakenByName) {
  const Options drawn = Options::Swarm(1);
  Options options = drawn;
  EXPECT_EQ(CountsBeside(options, drawn), "");
  options.messages = 7;
  options.caches = drawn.caches == 3 ? 4 : 3;
  const std::string text = CountsBeside(options, drawn);
  EXPECT_EQ(text, "messages=7,caches=" + std::to_string(options.caches));
  Options again = drawn;
  EXPECT_TRUE(SetCount(again, text.substr(0, text.find(','))).ok());
  EXPECT_TRUE(SetCount(again, text.substr(text.find(',') + 1)).ok());
  EXPECT_EQ(CountsBeside(again, options), "");
}

TEST(ShrinkTest, BadCountsAreRefusedWithWhatTheyMayBe) {
  Options options;
  for (const char* bad : {"", "=", "messages", "message=5", "messages=", "messages=4",
                          "messages=801", "messages=5x", "caches=2"}) {
    const Status status = SetCount(options, bad);
    EXPECT_TRUE(IsInvalidArgument(status)) << bad;
  }
  EXPECT_THAT(SetCount(options, "caches=2").ToString(), HasSubstr("3 to 5"));
  EXPECT_THAT(SetCount(options, "nodes=2").ToString(), HasSubstr("messages, shards"));
}

}  // namespace
}  // namespace tailcast::world
