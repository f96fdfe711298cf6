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
  ReadSlots slots(loop, 1);
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
  ReadSlots slots(loop, 1);
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
  ReadSlots slots(loop, 3);
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

}  // namespace
}  // namespace tailcast::cache
