#include "tailcast/world/bounds.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::world {
namespace {

using ::testing::HasSubstr;

class QuietWatchTest : public ::testing::Test {
 protected:
  void After(Duration d, const std::function<void()>& what) {
    process_.loop->After(d, process_.scope.Bind([what] { what(); }));
  }
  void Leak() {
    After(Duration::Seconds(3600), [] {});
  }
  // What `Grown` says when `each` happens again and again while nothing is to be done.
  std::string GrownWith(Duration interval, const std::function<void()>& each) {
    std::function<void()> again = [&] {
      each();
      After(interval, [&] { again(); });
    };
    After(interval, [&] { again(); });
    QuietWatch quiet(deployment_);
    for (int i = 0; i < QuietWatch::kSamples; ++i) {
      deployment_.time().RunFor(QuietWatch::kApart);
      quiet.Sample();
    }
    return quiet.Grown();
  }

  Deployment deployment_{{.seed = 1}};
  Process& process_ = deployment_.Start("cell", "reader-1", nullptr);
};

TEST_F(QuietWatchTest, WhatComesAndGoesIsNoGrowth) {
  EXPECT_EQ(GrownWith(Duration::Millis(100),
                      [this] {
                        for (int i = 0; i < 20; ++i) After(Duration::Millis(30), [] {});
                      }),
            "");
}

TEST_F(QuietWatchTest, AFastLeakIsFound) {
  EXPECT_THAT(GrownWith(Duration::Millis(20), [this] { Leak(); }), HasSubstr("events wait"));
}

// Three timers in two seconds: neighbouring looks do not differ by much.
TEST_F(QuietWatchTest, ASlowLeakIsFound) {
  EXPECT_THAT(GrownWith(Duration::Millis(700), [this] { Leak(); }), HasSubstr("events wait"));
}

}  // namespace
}  // namespace tailcast::world
