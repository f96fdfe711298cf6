#include "tailcast/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "tailcast/base/rng.h"

namespace tailcast {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  EXPECT_FALSE(queue.TryPush(std::move(third)));
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(*queue.Pop(), 1);
  EXPECT_TRUE(queue.TryPush(std::move(third)));
  EXPECT_EQ(*queue.Pop(), 2);
  EXPECT_EQ(*queue.Pop(), 3);
  EXPECT_TRUE(queue.empty());
}

TEST(BoundedQueue, BehavesAsADequeUnderRandomPushesAndPops) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    BoundedQueue<int> queue(1 + rng.Below(40));
    std::deque<int> reference;
    for (int i = 0; i < 2000; ++i) {
      if (rng.Chance(0.55)) {
        const bool fits = reference.size() < queue.limit();
        ASSERT_EQ(queue.TryPush(i), fits);
        if (fits) reference.push_back(i);
      } else if (!reference.empty()) {
        ASSERT_EQ(queue.Pop(), reference.front());
        reference.pop_front();
      }
      ASSERT_EQ(queue.size(), reference.size());
      for (size_t k = 0; k < reference.size(); ++k) ASSERT_EQ(queue.at(k), reference[k]);
    }
  }
}

TEST(BoundedQueue, FreesItemsWhenTheyAreTaken) {
  auto item = std::make_shared<int>(7);
  BoundedQueue<std::shared_ptr<int>> queue(4);
  EXPECT_TRUE(queue.TryPush(item));
  queue.Pop();
  EXPECT_EQ(item.use_count(), 1);
  EXPECT_TRUE(queue.TryPush(item));
  queue.Clear();
  EXPECT_EQ(item.use_count(), 1);
}

}  // namespace
}  // namespace tailcast
