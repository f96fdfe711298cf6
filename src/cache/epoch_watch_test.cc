#include "tailcast/cache/epoch_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tailcast::cache {
namespace {

TEST(EpochWatch, EachChangeIsToldOnceAndTheFirstEpochIsNone) {
  EpochWatch watch;
  const Scope scope;
  int told = 0;
  watch.Add(scope.Bind([&] { ++told; }));
  watch.OnEpoch(CacheEpoch{});
  watch.OnEpoch(CacheEpoch{4});
  watch.OnEpoch(CacheEpoch{4});
  EXPECT_EQ(told, 0);
  watch.OnEpoch(CacheEpoch{5});
  watch.OnEpoch(CacheEpoch{5});
  EXPECT_EQ(told, 1);
  watch.OnEpoch(CacheEpoch{1});
  EXPECT_EQ(told, 2) << "a registry that was begun anew";
}

TEST(EpochWatch, WhoIsToldMayAddOthersEndOrDestroyTheWatch) {
  auto watch = std::make_unique<EpochWatch>();
  auto first = std::make_unique<Scope>();
  const Scope scope;
  std::string told;
  watch->Add(first->Bind([&] {
    told += "a";
    watch->Add(scope.Bind([&] { told += "c"; }));
  }));
  watch->Add(scope.Bind([&] { told += "b"; }));
  watch->OnEpoch(CacheEpoch{1});
  watch->OnEpoch(CacheEpoch{2});
  EXPECT_EQ(told, "ab");
  first->End();
  watch->OnEpoch(CacheEpoch{3});
  EXPECT_EQ(told, "abbc");
  watch->Add(scope.Bind([&] {
    told += "d";
    watch.reset();
  }));
  watch->Add(scope.Bind([&] { told += "e"; }));
  watch->OnEpoch(CacheEpoch{4});
  EXPECT_EQ(told, "abbcbcd");
}

}  // namespace
}  // namespace tailcast::cache
