#include "tailcast/base/unique_function.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace tailcast {
namespace {

using Function = UniqueFunction<int(int)>;
struct Point {
  int x = 0;
};

static_assert(std::is_nothrow_move_constructible_v<Function>);
static_assert(!std::is_copy_constructible_v<Function>);
static_assert(std::is_constructible_v<Function, int (*)(int)>);
static_assert(!std::is_constructible_v<Function, std::string (*)(int)>, "what it gives");
static_assert(!std::is_constructible_v<Function, int (*)(std::string)>, "what it takes");

static_assert(std::is_constructible_v<Function, int Point::*> == false, "what it takes");
static_assert(std::is_constructible_v<UniqueFunction<int(const Point&)>, int Point::*>);

TEST(UniqueFunction, OnlyWhatCanBeEmptyMakesAnEmptyOne) {
  // One that a null pointer converts to, and that says it equals one.
  struct Converts {
    Converts(const char*) {}  // NOLINT(google-explicit-constructor)
    bool operator==(std::nullptr_t) const { return true; }
    int operator()(int value) const { return value + 1; }
  };
  Function function = Converts("x");
  ASSERT_TRUE(function);
  EXPECT_EQ(function(1), 2);
  EXPECT_FALSE(Function(std::function<int(int)>()));
  EXPECT_FALSE(Function(static_cast<int (*)(int)>(nullptr)));
  EXPECT_FALSE(UniqueFunction<int64_t(int)>(Function()));
}

TEST(UniqueFunction, AMemberIsAFunctionOfItsObject) {
  UniqueFunction<int(const Point&)> x = &Point::x;
  EXPECT_EQ(x(Point{7}), 7);
  int Point::*const none = nullptr;
  EXPECT_FALSE(UniqueFunction<int(const Point&)>(none));
}

// Counts how many of it there are.
class Counted {
 public:
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  Counted(Counted&& other) noexcept : alive_(other.alive_) { ++*alive_; }
  Counted& operator=(Counted&&) = delete;
  ~Counted() { --*alive_; }
  int operator()(int value) const { return value + *alive_; }

 private:
  int* alive_;
};

// Too large to be kept in place.
class Large : public Counted {
 public:
  using Counted::Counted;

 private:
  std::array<char, 100> ballast_{};
};

// Moving it may throw.
class Throwing : public Counted {
 public:
  using Counted::Counted;
  Throwing(Throwing&& other) noexcept(false) : Counted(std::move(other)) {}
};

template <typename F>
class UniqueFunctionTest : public testing::Test {};
using Kinds = testing::Types<Counted, Large, Throwing>;
TYPED_TEST_SUITE(UniqueFunctionTest, Kinds);

TYPED_TEST(UniqueFunctionTest, WhatItIsMadeOfLivesAsLongAsItDoes) {
  int alive = 0;
  {
    Function one{TypeParam(&alive)};
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(one(10), 11);
    Function other(std::move(one));
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(other(10), 11);
    EXPECT_FALSE(one);  // NOLINT(bugprone-use-after-move): it is empty
    one = std::move(other);
    EXPECT_EQ(alive, 1);
    EXPECT_TRUE(other == nullptr);  // NOLINT(bugprone-use-after-move): it is empty
    one = Function{TypeParam(&alive)};
    EXPECT_EQ(alive, 1);
    Function& itself = one;
    one = std::move(itself);
    EXPECT_EQ(one(10), 11);
    one = nullptr;
    EXPECT_EQ(alive, 0);
    one = Function{TypeParam(&alive)};
  }
  EXPECT_EQ(alive, 0);
}

TEST(UniqueFunctionTest, WhatIsEmptyMakesAnEmptyOne) {
  EXPECT_FALSE(Function());
  EXPECT_FALSE(Function(nullptr));
  EXPECT_FALSE(Function(static_cast<int (*)(int)>(nullptr)));
  EXPECT_FALSE(Function(std::function<int(int)>()));
  EXPECT_TRUE(Function([](int value) { return value; }));
}

TEST(UniqueFunctionTest, ItTakesAndGivesWhatCanOnlyBeMovedAndReferences) {
  UniqueFunction<std::unique_ptr<int>(std::unique_ptr<int>, int&)> add =
      [one = std::make_unique<int>(1)](std::unique_ptr<int> value, int& calls) {
        ++calls;
        *value += *one;
        return value;
      };
  int calls = 0;
  EXPECT_EQ(*add(std::make_unique<int>(4), calls), 5);
  EXPECT_EQ(calls, 1);
}

TEST(UniqueFunctionTest, ItMayChangeWhatItKeepsAndGiveNothing) {
  int last = 0;
  UniqueFunction<void()> count = [&last, calls = 0]() mutable { return last = ++calls; };
  count();
  count();
  EXPECT_EQ(last, 2);
}

TEST(UniqueFunctionTest, WhatItReplacesIsDestroyedWhenItHoldsTheNewOne) {
  struct Looking {
    explicit Looking(Function& of) : holder(&of) {}
    Looking(Looking&& other) noexcept
        : holder(std::exchange(other.holder, nullptr)), seen(other.seen) {}
    Looking& operator=(Looking&&) = delete;
    ~Looking() {
      if (holder != nullptr) *seen = (*holder)(0);
    }
    int operator()(int) const { return 1; }
    Function* holder;
    int* seen = nullptr;
  };
  int seen = 0;
  Function holder;
  Looking looking(holder);
  looking.seen = &seen;
  holder = Function(std::move(looking));
  holder = [](int) { return 2; };
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace tailcast
