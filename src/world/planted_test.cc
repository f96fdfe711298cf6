// A checker is trusted only after it has caught bugs that were put in on purpose: each seed that
// has found one finds it again. `./dev sim planted` looks for other seeds.
#include "tailcast/world/planted.h"

#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"

namespace tailcast::world {
namespace {

class PlantedBugTest : public ::testing::TestWithParam<PlantedBug> {
 protected:
  PlantedBugTest() { EXPECT_TRUE(SetLogLevels("off").ok()); }
};

TEST_P(PlantedBugTest, IsFoundByItsSeed) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  const PlantedBug& bug = GetParam();
  const Finding found = FindPlanted(bug.name, bug.seed, 1);
  EXPECT_EQ(found.seed, bug.seed) << "another one: ./dev sim planted --bug " << bug.name;
  // Rules have names, and a problem begins with that of its own.
  EXPECT_NE(found.problem.find(": "), std::string::npos) << found.problem;
}
INSTANTIATE_TEST_SUITE_P(World, PlantedBugTest, ::testing::ValuesIn(PlantedBugs()),
                         [](const auto& info) {
                           std::string name(info.param.name);
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

TEST(PlantedBugs, AreInEveryRoomThatDecidesAndAreThere) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  std::set<std::string_view> points;
  for (const FaultPoint* point : FaultPoints()) points.insert(point->name());
  std::map<std::string, int> rooms;
  for (const PlantedBug& bug : PlantedBugs()) {
    EXPECT_TRUE(points.contains(bug.name)) << bug.name;
    ++rooms[std::string(bug.name.substr(0, bug.name.find('.')))];
  }
  for (const char* room :
       {"cell", "consumer", "producer", "reader", "scheduler", "storage", "stream", "writer"}) {
    EXPECT_GE(rooms[room], 2) << room;
  }
}

}  // namespace
}  // namespace tailcast::world
