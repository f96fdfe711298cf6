#include "tailcast/cell/deletions.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::cell {
namespace {

using stream::StreamId;
using stream::StreamIncarnation;
using ::testing::ElementsAre;

const StreamId kFlights{"flights", StreamIncarnation{7}};

TEST(DeletionsTest, WhatIsLeftToDoIsNewsOnce) {
  v1::RegistrySnapshot durable;
  Deletions deletions(&durable);
  std::set<StreamId> changed;
  deletions.Add(kFlights, 3, {"asia", "eu"}, changed);
  EXPECT_THAT(changed, ElementsAre(kFlights));
  EXPECT_TRUE(deletions.Has(kFlights));
  EXPECT_FALSE(deletions.Has({"flights", StreamIncarnation{8}}));
  EXPECT_TRUE(deletions.OnTold(kFlights, "eu"));
  EXPECT_FALSE(deletions.OnTold(kFlights, "eu"));
  EXPECT_FALSE(deletions.OnTold({"flights", StreamIncarnation{8}}, "asia"));
  EXPECT_TRUE(deletions.SetOnDisk(kFlights, false));
  EXPECT_FALSE(deletions.SetOnDisk(kFlights, false));
  EXPECT_THAT(durable.deleted(0).cells_to_tell(), ElementsAre("asia"));
}

TEST(DeletionsTest, TheyAreKnownAgainToTheNextScheduler) {
  v1::RegistrySnapshot durable;
  std::set<StreamId> changed;
  Deletions(&durable).Add(kFlights, 3, {}, changed);
  EXPECT_TRUE(Deletions(&durable).Has(kFlights));
}

TEST(DeletionsTest, TheOldestThatAreDoneAreForgottenAndSaidToHaveChanged) {
  v1::RegistrySnapshot durable;
  Deletions deletions(&durable);
  std::set<StreamId> changed;
  const auto id = [](uint64_t n) { return StreamId{"s", StreamIncarnation{n}}; };
  constexpr uint64_t kMany = 10'010;
  deletions.Add(id(1), 1, {"eu"}, changed);  // to be told yet
  for (uint64_t n = 2; n <= kMany; ++n) {
    deletions.Add(id(n), 1, {}, changed);
    deletions.SetOnDisk(id(n), false);
  }
  changed.clear();
  deletions.Add(id(kMany + 1), 1, {}, changed);
  EXPECT_TRUE(deletions.Has(id(1)));
  EXPECT_FALSE(deletions.Has(id(2)));
  EXPECT_THAT(changed, ::testing::Contains(id(kMany + 1)));
  for (const StreamId& one : changed) {
    EXPECT_EQ(deletions.Has(one), one == id(kMany + 1)) << "the others are forgotten";
  }
  EXPECT_LE(durable.deleted_size(), 10'002);
}

}  // namespace
}  // namespace tailcast::cell
