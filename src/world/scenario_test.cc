#include "tailcast/world/scenario.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"

namespace tailcast::world {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kSmall[] =
    "# A writer dies.\n"
    "cells us eu  # the source first\n"
    "link us <-> eu 20ms\n"
    "messages 60 every 10ms of 500\n"
    "\n"
    "at 200ms cut us -> eu for 100ms\n"
    "at 250ms kill eu/writer-1\n";

std::string ErrorOf(const std::string& text) {
  const auto scenario = ParseScenario(text, "a.scenario");
  return scenario.ok() ? "" : std::string(scenario.status().message());
}
// Behind the lines that every scenario needs.
std::string ErrorOfEvents(const std::string& text) {
  return ErrorOf("cells us eu asia\nspares 1\n" + text);
}

TEST(ScenarioTest, SaysWhatHappenedAndWhatCameOfIt) {
  ASSERT_TRUE(SetLogLevels("off").ok());
  const auto scenario = ParseScenario(kSmall, "small.scenario");
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  EXPECT_EQ(scenario->title, "A writer dies.");
  EXPECT_EQ(scenario->options.link_delays.size(), 2u);
  const ScenarioRun run = RunScenario(*scenario);
  EXPECT_EQ(run.outcome.problem, "");
  EXPECT_EQ(run.outcome.delivered, 2 * 60);
  EXPECT_THAT(run.story, StartsWith("A writer dies.\n"));
  for (const char* part :
       {"    0.20 s  cut us -> eu\n", "    0.30 s  mend us -> eu\n",
        "    0.25 s  kill -9 eu/writer-1\n", "us -> eu: the cache copy of file 1 runs on reader-",
        " moves to reader-", "every rule held"}) {
    EXPECT_THAT(run.story, HasSubstr(part));
  }
  EXPECT_EQ(RunScenario(*scenario).story, run.story) << "the same file, the same text";
}

TEST(ScenarioTest, AStoryIsOfTheRunThatWouldBeWithoutIt) {
  ASSERT_TRUE(SetLogLevels("off").ok());
  const auto scenario = ParseScenario(kSmall, "small.scenario");
  ASSERT_TRUE(scenario.ok());
  EXPECT_EQ(World(scenario->options).Run().trace_hash, RunScenario(*scenario).outcome.trace_hash);
}

TEST(ScenarioTest, ARuleThatIsBrokenIsTold) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  ASSERT_TRUE(SetLogLevels("off").ok());
  const PlantedFault planted("consumer.skip_record_at_roll_over");
  const auto scenario =
      ParseScenario("cells us eu\nroll 5000\nmessages 60 every 10ms of 500\n", "roll.scenario");
  ASSERT_TRUE(scenario.ok());
  const ScenarioRun run = RunScenario(*scenario);
  EXPECT_FALSE(run.outcome.ok());
  EXPECT_THAT(run.story, HasSubstr("\nFAILED: in order: "));
  EXPECT_THAT(run.story, Not(HasSubstr("every rule held")));
}

TEST(ScenarioTest, EveryEventCanBeSaid) {
  const auto scenario = ParseScenario(
      "cells us eu asia\nseed 7\nspares 1\nshards 2\nconsumers 2\nprofile low-latency\n"
      "at 0s spike asia 3\nat 0s spike asia 4 over 1s\n"
      "at 1s kill us/producer\nat 1s kill eu/consumer-2\nat 1s down eu/cache-1 for 100ms\n"
      "at 2s stop eu/cache-1 for 0.5s\nat 2s clock eu/writer-1 300ms for 1s\n"
      "at 2s cut us/producer <-> us/cache-1 for 1s\nat 2s clog us -> eu 50000 100ms for 1s\n"
      "at 2s reset us eu\nat 2s slow eu/cache-2 80ms for 1s\nat 2s slow-disk eu 50ms for 1s\n"
      "at 2s power eu\nat 3s ring eu cache-1 cache-2 cache-5\nat 3s tree us asia us eu\n"
      "at 4s wipe eu\nat 4s second-scheduler us\nat 4s trim 5000\nat 4s retain 90000\nat 4s retain "
      "30s\nat 5s lose eu for 1s\n",
      "a.scenario");
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  for (const char* fault :
       {"kill", "down", "stop", "cell", "clock", "inside", "clog", "reset", "slow", "disk", "power",
        "ring", "reroute", "trim", "retain", "schedulers", "producer", "consumer"}) {
    EXPECT_TRUE(scenario->options.Has(fault)) << fault;
  }
  for (size_t i = 1; i < scenario->options.plan.size(); ++i) {
    EXPECT_LE(scenario->options.plan[i - 1].at, scenario->options.plan[i].at);
  }
}

struct Bad {
  const char* text;
  const char* error;
};

TEST(ScenarioTest, ABadSettingIsToldWithItsFileAndLineAndWhatIsAllowed) {
  for (const Bad& bad : {
           Bad{"", "a.scenario:1: no cells: 'cells us eu' names them"},
           {"cells us\nspeed 3\n", "a.scenario:2: there is no setting 'speed'; there are cells"},
           {"cells us us\n", "there are two cells 'us'"},
           {"cells us/1\n", "a-z, 0-9 and -"},
           {"cells us eu\ncells us\n", "a.scenario:2: 'cells' was set before"},
           {"cells us\n\ncaches 2\n", "a.scenario:3: caches is a number from 3 to 9, not '2'"},
           {"cells us\ncaches 3x\n", "from 3 to 9"},
           {"cells us\ncaches 3 4\n", "written 'caches NUMBER'"},
           {"cells us\ndelay 3\n", "delay is a time like 2s, 1.5s, 250ms or 80us"},
           {"cells us\ndelay -3s\n", "not '-3s'"},
           {"cells us\ndelay 601s\n", "at most 600s"},
           {"link us -> eu 3ms\n", "no cells"},
           {"cells us eu\nlink us -> as 3ms\n", "there is no cell 'as'; there are us and eu"},
           {"cells us eu\nlink us eu 3ms\n", "written 'link A -> B TIME"},
           {"cells us eu\nlink us -> us 3ms\n", "no link to itself"},
           {"cells us eu\nlink us -> eu 3ms\nlink us <-> eu 4ms\n",
            "a.scenario:3: the link us -> eu"},
           {"cells us\nprofile fast\n", "default|low-latency"},
           {"cells us\nmessages 5\n", "messages NUMBER every TIME of BYTES"},
           {"cells us\nmessages 5 every 1us of 100\n", "at least 1ms"},
           {"cells us\nat 1s kill us/cache-1\nseed 3\n",
            "a.scenario:3: 'seed' stands after an event"},
       }) {
    EXPECT_THAT(ErrorOf(bad.text), HasSubstr(bad.error)) << bad.text;
  }
}

TEST(ScenarioTest, ABadEventIsToldWithItsFileAndLineAndWhatIsAllowed) {
  for (const Bad& bad : {
           Bad{"at 1s\n", "a.scenario:3: an event is written 'at TIME EVENT'"},
           {"at soon kill us/cache-1\n", "when is a time like"},
           {"at 1s explode us\n", "there is no event 'explode'; there are kill, down"},
           {"at 1s kill\n", "written 'kill CELL/PROCESS'"},
           {"at 1s kill us/cache-1 eu/cache-1\n", "written 'kill CELL/PROCESS'"},
           {"at 1s kill cache-1\n", "CELL/NAME"},
           {"at 1s kill mars/cache-1\n", "there is no cell 'mars'; there are us, eu and asia"},
           {"at 1s kill us/cache-6\n", "cache-4, cache-5, reader-1"},
           {"at 1s kill eu/producer\n", "no process 'eu/producer'"},
           {"at 1s stop us/producer\n", "no process 'us/producer' that this can happen to"},
           {"at 1s kill us/cache-1 for 1s\n", "'kill' does not last"},
           {"at 1s stop us/cache-1 for 0s\n", "at least 1ms"},
           {"at 1s stop us/cache-1 for ever\n", "for how long is a time like"},
           {"at 1s cut us eu eu\n", "-> or <->, not 'eu'"},
           {"at 1s cut us -> us\n", "nothing is cut"},
           {"at 1s cut us/cache-1 -> eu/cache-1\n", "cut us -> eu, or processes of one cell"},
           {"at 1s cut us -> eu/cache-1\n", "CELL/NAME"},
           {"at 1s clog us -> eu 10 1s\n", "bytes a second is a number from 1000"},
           {"at 1s slow us/reader-1 1s\n", "reads are answered by caches"},
           {"at 1s spike us 0\n", "more consumers is a number from 1"},
           {"at 1s spike us 3 in 1s\n", "spike CELL NUMBER [over TIME]"},
           {"at 1s ring us cache-1 cache-2\n", "ring CELL CACHE..."},
           {"at 1s ring us cache-1 cache-2 cache-2\n", "in the ring twice"},
           {"at 1s ring us cache-1 cache-2 cache-9\n", "there is no cache 'cache-9' in us"},
           {"at 1s tree us eu\n", "the tree has us and eu, and must have us, eu and asia"},
           {"at 1s tree us eu asia\n", "an edge of a tree is two cells"},
           {"at 1s tree eu asia us eu\n", "'eu' is fed by nobody"},
           {"at 1s tree us eu us eu us asia\n", "'eu' is in the tree twice"},
           {"at 1s trim 0\n", "the byte is a number from 1"},
           {"at 1s retain 0\n", "what is kept is a number from 1"},
           {"at 1s retain 0s\n", "not for 0s"},
           {"at 1s retain much\n", "for how long files are kept is a time like"},
           {"at 1s trim 9\nat 2s spike us 1\n", "which line 3 lets go of"},
       }) {
    EXPECT_THAT(ErrorOfEvents(bad.text), HasSubstr(bad.error)) << bad.text;
  }
}

TEST(ScenarioTest, TimesThatGoBackAreRefused) {
  EXPECT_EQ(
      ErrorOfEvents("at 2s kill us/cache-1\nat 1500ms kill us/cache-1\n"),
      "a.scenario:4: 1500ms is before 2 s of line 3; events stand in the order of their times");
}

TEST(ScenarioTest, EventsThatOverlapAreRefused) {
  const char* const kUntilTheEnd = "which lasts until the end; 'for TIME' ends it before";
  EXPECT_EQ(ErrorOfEvents("at 1s down eu/cache-1 for 2s\nat 2s kill eu/cache-1\n"),
            "a.scenario:4: 'kill' overlaps 'down' of line 3 on eu/cache-1, which lasts until 3 s");
  for (const Bad& bad : {
           Bad{"at 1s stop eu/cache-1\nat 9s kill eu/cache-1\n", kUntilTheEnd},
           {"at 1s lose eu\nat 9s kill eu/reader-1\n", kUntilTheEnd},
           {"at 1s lose eu\nat 9s cut us -> eu\n", "the way between eu and us"},
           {"at 1s cut us -> eu\nat 2s cut eu -> us\n", kUntilTheEnd},
           {"at 1s down eu/cache-1\nat 2s wipe eu\n", kUntilTheEnd},
           {"at 1s kill eu/cache-1\nat 1s wipe eu\n", "on eu/cache-1, which is at the same time"},
           {"at 1s second-scheduler eu\nat 2s second-scheduler eu\n", kUntilTheEnd},
           {"at 1s clog us -> eu 5000 1s\nat 2s clog eu -> us 5000 1s\n", "the bandwidth between"},
       }) {
    EXPECT_THAT(ErrorOfEvents(bad.text), HasSubstr(bad.error)) << bad.text;
  }
  EXPECT_EQ(ErrorOfEvents("at 1s down eu/cache-1 for 1s\nat 2s kill eu/cache-1\n"), "");
  EXPECT_EQ(ErrorOfEvents("at 1s kill eu/cache-1\nat 1s kill eu/cache-2\n"), "");
}

TEST(ScenarioTest, TheHelpNamesEverySettingAndEvent) {
  const std::string help = ScenarioHelp();
  for (const char* word :
       {"cells NAME...", "cache-bytes NUMBER", "kill CELL/PROCESS", "trim BYTE"}) {
    EXPECT_THAT(help, HasSubstr(word));
  }
}

}  // namespace
}  // namespace tailcast::world
