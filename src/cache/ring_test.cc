#include "tailcast/cache/ring.h"

#include <algorithm>
#include <set>

#include "gtest/gtest.h"
#include "tailcast/base/rng.h"

namespace tailcast::cache {
namespace {

RingConfig Config(int replicas) {
  RingConfig config;
  for (int i = 0; i < replicas; ++i)
    config.replicas.push_back({.name = "cache-" + std::to_string(i)});
  return config;
}

std::set<std::string> NamesOf(const RingConfig& config, const Owners& owners) {
  std::set<std::string> names;
  for (int i = 0; i < owners.count; ++i) names.insert(config.replicas[owners.replica[i]].name);
  return names;
}

TEST(HashRingTest, GivesThreeDistinctReplicasOrAllThereAre) {
  Rng rng(1);
  for (int replicas : {0, 1, 2, 3, 4, 9}) {
    const RingConfig config = Config(replicas);
    const HashRing ring(config);
    for (int i = 0; i < 1000; ++i) {
      const Owners owners = ring.OwnersOf({rng.Next(), rng.Next()});
      ASSERT_EQ(owners.count, std::min(replicas, 3));
      ASSERT_EQ(NamesOf(config, owners).size(), owners.count);
    }
  }
}

TEST(HashRingTest, IsTheSameWhateverTheOrderOfTheList) {
  RingConfig a = Config(7), b = Config(7);
  std::reverse(b.replicas.begin(), b.replicas.end());
  const HashRing ring_a(a), ring_b(b);
  Rng rng(2);
  for (int i = 0; i < 5000; ++i) {
    const Key key{rng.Next(), rng.Next()};
    ASSERT_EQ(NamesOf(a, ring_a.OwnersOf(key)), NamesOf(b, ring_b.OwnersOf(key)));
  }
}

TEST(HashRingTest, IsThatOfEveryListOfTheSameNamesInTheSameOrder) {
  const RingConfig config = Config(3);
  const HashRing ring(config);
  RingConfig other = config;
  other.configuration_id = ConfigurationId{9};
  other.replicas[1] = {
      .name = "cache-1", .rpc_address = "elsewhere", .incarnation = ProcessIncarnation{4}};
  EXPECT_TRUE(ring.IsOf(other));
  std::swap(other.replicas[0], other.replicas[1]);
  EXPECT_FALSE(ring.IsOf(other)) << "owners are indexes into the list";
  EXPECT_FALSE(ring.IsOf(Config(2)));
  EXPECT_FALSE(ring.IsOf(Config(4)));
  EXPECT_FALSE(HashRing().IsOf(config));
  EXPECT_TRUE(HashRing().IsOf({}));
}

TEST(HashRingTest, TableFindsWhatALinearSearchFinds) {
  const RingConfig config = Config(5);
  const HashRing ring(config);
  std::vector<std::pair<uint64_t, int>> points;
  for (int i = 0; i < 5; ++i) {
    for (uint32_t n = 0; n < HashRing::kPointsPerReplica; ++n) {
      points.emplace_back(Hash128(config.replicas[i].name, n).hi, i);
    }
  }
  std::sort(points.begin(), points.end());
  Rng rng(3);
  for (int i = 0; i < 5000; ++i) {
    const Key key{rng.Next(), rng.Next()};
    size_t at = 0;
    while (at < points.size() && points[at].first < HashRing::PlaceOf(key)) ++at;
    std::vector<int> expected;
    for (; expected.size() < 3; ++at) {
      const int replica = points[at % points.size()].second;
      if (std::find(expected.begin(), expected.end(), replica) == expected.end()) {
        expected.push_back(replica);
      }
    }
    const Owners owners = ring.OwnersOf(key);
    for (int n = 0; n < 3; ++n) ASSERT_EQ(owners.replica[n], expected[n]);
  }
}

TEST(HashRingTest, BalancesWithin25Percent) {
  for (int replicas : {4, 9, 18}) {
    const HashRing ring(Config(replicas));
    std::vector<double> load(replicas);
    Rng rng(4);
    constexpr int kKeys = 100000;
    for (int i = 0; i < kKeys; ++i) {
      const Owners owners = ring.OwnersOf({rng.Next(), rng.Next()});
      for (int n = 0; n < 3; ++n) load[owners.replica[n]] += 1;
    }
    const double fair = 3.0 * kKeys / replicas;
    EXPECT_LT(*std::max_element(load.begin(), load.end()), 1.25 * fair) << replicas;
    EXPECT_GT(*std::min_element(load.begin(), load.end()), 0.75 * fair) << replicas;
  }
}

TEST(HashRingTest, NewcomerTakesOnlyItsShare) {
  const RingConfig before = Config(8), after = Config(9);
  const HashRing ring_before(before), ring_after(after);
  Rng rng(5);
  int moved = 0, kept = 0;
  for (int i = 0; i < 20000; ++i) {
    const Key key{rng.Next(), rng.Next()};
    const auto names = NamesOf(before, ring_before.OwnersOf(key));
    for (const std::string& name : NamesOf(after, ring_after.OwnersOf(key))) {
      if (names.contains(name)) {
        ++kept;
      } else {
        ++moved;
        ASSERT_EQ(name, "cache-8") << "only the newcomer gains keys";
      }
    }
  }
  EXPECT_NEAR(static_cast<double>(moved) / (moved + kept), 1.0 / 9, 0.03);
}

}  // namespace
}  // namespace tailcast::cache
