#include "tailcast/cache/read_slots.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/test_loop.h"

namespace tailcast::cache {
namespace {

TEST(ReadSlotsTest, WhoeverWaitsRunsOnALaterTurnThanASlotIsGivenBack) {
  const Scope scope;
  TestLoop loop;
  ReadSlots slots(loop, 1, 100);
  ReadSlots::Slot first = slots.Take();
  EXPECT_FALSE(slots.any_free());
  bool ran = false;
  ReadSlots::Slot second;
  slots.Wait(scope.Bind([&] {
    ran = true;
    second = slots.Take();
  }));
  loop.RunReady();
  EXPECT_FALSE(ran);
  first.GiveBack();
  EXPECT_FALSE(ran);
  loop.RunReady();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(slots.any_free());
}

TEST(ReadSlotsTest, AnAskThatHasNoUseForTheSlotLeavesItToTheNext) {
  const Scope scope;
  TestLoop loop;
  ReadSlots slots(loop, 1, 100);
  ReadSlots::Slot taken = slots.Take();
  auto ended = std::make_unique<Scope>();
  std::string ran;
  ReadSlots::Slot last;
  slots.Wait(ended->Bind([&] { ran += "dropped "; }));  // its batch ends
  slots.Wait(scope.Bind([&] { ran += "finished "; }));  // another replica was enough
  slots.Wait(scope.Bind([&] {
    ran += "takes";
    last = slots.Take();
  }));
  ended.reset();
  taken.GiveBack();
  loop.RunReady();
  EXPECT_EQ(ran, "finished takes");
}

TEST(ReadSlotsTest, SeveralSlotsGivenBackInOneTurnWakeAsMany) {
  const Scope scope;
  TestLoop loop;
  ReadSlots slots(loop, 3, 100);
  ReadSlots::Slot taken[3] = {slots.Take(), slots.Take(), slots.Take()};
  ReadSlots::Slot next[4];
  int ran = 0;
  for (ReadSlots::Slot& slot : next) {
    slots.Wait(scope.Bind([&] {
      ++ran;
      slot = slots.Take();
    }));
  }
  for (ReadSlots::Slot& slot : taken) slot.GiveBack();
  loop.RunReady();
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(slots.taken(), 3u);
}

TEST(ReadSlotsTest, NoMoreWaitThanMayAndWhoIsGoneMakesRoomWhenASlotIsGivenBack) {
  TestLoop loop;
  ReadSlots slots(loop, 1, 1000);
  ReadSlots::Slot taken = slots.Take();
  auto batch = std::make_unique<Scope>();
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(slots.Wait(batch->Bind([] { ADD_FAILURE(); })));
  const Scope scope;
  bool ran = false;
  EXPECT_FALSE(slots.Wait(scope.Bind([] { ADD_FAILURE(); })));
  batch.reset();  // its deadline passed
  EXPECT_FALSE(slots.Wait(scope.Bind([] { ADD_FAILURE(); })));
  taken.GiveBack();
  loop.RunReady();
  taken = slots.Take();
  EXPECT_TRUE(slots.Wait(scope.Bind([&] { ran = true; })));
  taken.GiveBack();
  loop.RunReady();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace tailcast::cache
