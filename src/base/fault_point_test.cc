#include "tailcast/base/fault_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailcast {
namespace {

FAULT_POINT(kForgetsToCount, "base.forgets_to_count", "a counter stands still");
FAULT_POINT(kCountsTwice, "base.counts_twice", "a counter runs ahead");

int Count() {
  if (kForgetsToCount.planted()) return 0;
  return kCountsTwice.planted() ? 2 : 1;
}

TEST(FaultPointTest, IsPlantedForAScopeAndGoneAfterIt) {
  EXPECT_EQ(Count(), 1);
  {
    const PlantedFault fault("base.forgets_to_count");
    EXPECT_EQ(Count(), 0);
  }
  EXPECT_EQ(Count(), 1);
  const PlantedFault fault("base.counts_twice");
  EXPECT_EQ(Count(), 2);
}

TEST(FaultPointTest, AMistypedNameIsToldWithTheNearestOne) {
  const Status status = PlantFault("base.counts_twise", true);
  EXPECT_TRUE(IsNotFound(status));
  EXPECT_THAT(status.message(), testing::HasSubstr("'base.counts_twice'"));
}

TEST(FaultPointTest, AllPointsAreListedByName) {
  std::vector<std::string_view> names;
  for (const FaultPoint* point : FaultPoints()) names.push_back(point->name());
  EXPECT_THAT(names, testing::ElementsAre("base.counts_twice", "base.forgets_to_count"));
}

}  // namespace
}  // namespace tailcast
