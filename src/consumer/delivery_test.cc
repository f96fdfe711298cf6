// ProducerAgent and ConsumerAgent together, in virtual time: what is acknowledged is delivered, in
// order, once, whatever the caches lose and whoever takes over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/consumer/delivery_world.h"

namespace tailcast::consumer {
namespace {

using ::testing::HasSubstr;

TEST(Delivery, MessagesArriveInOrderAcrossRollOvers) {
  DeliveryWorld w(1);
  auto& p = w.OpenProducer(w.ProducerOptions());
  ASSERT_TRUE(p.opened->ok()) << *p.opened;
  auto& c = w.StartConsumer(w.ConsumerOptions());
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(w.Publish(p, 100).ok());
    w.time.RunFor(Duration::Micros(300));
  }
  ASSERT_TRUE(w.time.RunUntil([&] { return c.got.size() == 300; }, Duration::Seconds(60)))
      << w.Incomplete(c);
  EXPECT_EQ(w.Incomplete(c), "");
  EXPECT_GT(c.agent->counters().roll_overs, 5);
  EXPECT_GT(c.agent->counters().cache_bytes, 20000);
}

}  // namespace
}  // namespace tailcast::consumer
