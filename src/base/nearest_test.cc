#include "tailcast/base/nearest.h"

#include <gtest/gtest.h>

namespace tailcast {
namespace {

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("flihgts", "flights"), 1u);
  EXPECT_EQ(EditDistance("Flights", "flights"), 1u);
}

TEST(Nearest, FindsTheLikelyName) {
  const std::vector<std::string> cells = {"us-central", "europe-west", "asia-east"};
  EXPECT_EQ(NearestName("europe_west", cells), "europe-west");
  EXPECT_EQ(NearestName("US-CENTRAL", cells), "us-central");
  EXPECT_EQ(NearestName("eurpe-wst", cells), "europe-west");
  EXPECT_EQ(NearestName("mars", cells), std::nullopt);
  EXPECT_EQ(NearestName("", cells), std::nullopt);
  EXPECT_EQ(NearestName("x", {}), std::nullopt);
  EXPECT_EQ(NearestName("ab", {"ac", "ad"}), "ac");
  EXPECT_EQ(NearestName("z", {"a"}), std::nullopt) << "nothing of it is right";
}

TEST(Nearest, MakesTheEndOfAMessage) {
  EXPECT_EQ(DidYouMean("flihgts", {"flights"}), "; did you mean 'flights'?");
  EXPECT_EQ(DidYouMean("zzzzz", {"a", "b"}), "; known: a, b");
  EXPECT_EQ(DidYouMean("zzzzz", {}), "");
}

}  // namespace
}  // namespace tailcast
