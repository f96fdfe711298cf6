#include "tailcast/memcached/merge_core.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace tailcast::memcached {
namespace {

using cache::Key;
using cache::MergeRule;
using cache::Mutation;
using cache::MutationResult;
using Step = MergeCore::Step;

const ItemFormat kFormat("test");
constexpr Key kKey{1, 2};

std::string Item(std::string_view value, MergeRule rule = MergeRule::kLongerWins) {
  return kFormat.Encode(kKey, rule, value);
}

class MergeCoreTest : public testing::Test {
 protected:
  MergeCore Start(std::string value, uint32_t rounds_max = 3) {
    mutation_ = {kKey, MergeRule::kLongerWins, false, std::move(value)};
    return MergeCore(kFormat, mutation_, rounds_max);
  }
  Mutation mutation_;
};

TEST_F(MergeCoreTest, WhatIsAbsentIsAdded) {
  MergeCore core = Start("abc");
  EXPECT_EQ(core.step(), Step::kGet);
  core.OnItem(std::nullopt, 0);
  EXPECT_EQ(core.step(), Step::kAdd);
  EXPECT_EQ(core.item(), Item("abc"));
  core.OnStored(StoreResult::kDone);
  EXPECT_EQ(core.step(), Step::kDone);
  EXPECT_EQ(core.result(), MutationResult::kApplied);
}

TEST_F(MergeCoreTest, WhatIsLessIsSwappedForTheMerge) {
  MergeCore core = Start("abcdef");
  core.OnItem(Item("abc"), 17);
  EXPECT_EQ(core.step(), Step::kSwap);
  EXPECT_EQ(core.version(), 17u);
  EXPECT_EQ(core.item(), Item("abcdef"));
  core.OnStored(StoreResult::kDone);
  EXPECT_EQ(core.result(), MutationResult::kApplied);
}

TEST_F(MergeCoreTest, WhatIsEqualOrLongerIsNotWritten) {
  for (const char* stored : {"abc", "abcdef"}) {
    MergeCore core = Start("abc");
    core.OnItem(Item(stored), 17);
    EXPECT_EQ(core.step(), Step::kDone);
    EXPECT_EQ(core.result(), MutationResult::kNoChange);
  }
}

TEST_F(MergeCoreTest, WhatContradictsIsDeleted) {
  for (const std::string& stored : {Item("abX"), Item("abcdef", MergeRule::kMaxBytes)}) {
    for (const StoreResult deleted : {StoreResult::kDone, StoreResult::kAbsent}) {
      MergeCore core = Start("abc");
      core.OnItem(stored, 17);
      EXPECT_EQ(core.step(), Step::kDelete);
      core.OnStored(deleted);
      EXPECT_EQ(core.result(), MutationResult::kMismatch);
    }
  }
}

TEST_F(MergeCoreTest, WhatDoesNotValidateIsReplaced) {
  MergeCore core = Start("abc");
  core.OnItem("somebody else's", 17);
  EXPECT_EQ(core.step(), Step::kSwap);
  EXPECT_EQ(core.version(), 17u);
  EXPECT_EQ(core.item(), Item("abc"));
  EXPECT_EQ(core.damaged_items(), 1u);
}

TEST_F(MergeCoreTest, LostRacesAreRunAgainAndThenGivenUp) {
  MergeCore core = Start("abcdef", 3);
  core.OnItem(std::nullopt, 0);
  core.OnStored(StoreResult::kConflict);  // somebody added it
  EXPECT_EQ(core.step(), Step::kGet);
  core.OnItem(Item("ab"), 5);
  core.OnStored(StoreResult::kAbsent);  // it was evicted
  EXPECT_EQ(core.step(), Step::kGet);
  core.OnItem(Item("abc"), 6);
  core.OnStored(StoreResult::kConflict);
  EXPECT_EQ(core.step(), Step::kDone);
  EXPECT_EQ(core.result(), std::nullopt);
  EXPECT_EQ(core.retries(), 2u);
}

TEST_F(MergeCoreTest, NoRoomIsARefusal) {
  MergeCore core = Start("abc");
  core.OnItem(std::nullopt, 0);
  core.OnStored(StoreResult::kRefused);
  EXPECT_EQ(core.result(), MutationResult::kRefused);
}

TEST_F(MergeCoreTest, NothingAndMalformedValuesAreNotWritten) {
  MergeCore nothing = Start("");
  nothing.OnItem(std::nullopt, 0);
  EXPECT_EQ(nothing.result(), MutationResult::kNoChange);
  const Mutation malformed{kKey, MergeRule::kMaxLanes, false, "7 bytes"};
  EXPECT_EQ(MergeCore(kFormat, malformed, 3).result(), MutationResult::kRefused);
}

TEST_F(MergeCoreTest, ErasesAreDeletesThatMayFindNothing) {
  const Mutation erase{kKey, MergeRule::kLongerWins, true, ""};
  for (const auto& [deleted, result] :
       {std::pair(StoreResult::kDone, MutationResult::kApplied),
        std::pair(StoreResult::kAbsent, MutationResult::kNoChange)}) {
    MergeCore core(kFormat, erase, 3);
    EXPECT_EQ(core.step(), Step::kDelete);
    core.OnStored(deleted);
    EXPECT_EQ(core.result(), result);
  }
}

}  // namespace
}  // namespace tailcast::memcached
