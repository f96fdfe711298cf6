#include "tailcast/scheduler/reservation_core.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(ReservationCore, AllCellsHaveToAgree) {
  ReservationCore core("flights", {"asia", "eu"}, At(1000));
  EXPECT_FALSE(core.done());
  EXPECT_FALSE(core.OnAnswer(At(1), "eu", OkStatus()));
  EXPECT_FALSE(core.OnAnswer(At(2), "eu", OkStatus()));
  EXPECT_FALSE(core.done());
  EXPECT_FALSE(core.OnAnswer(At(3), "asia", OkStatus()));
  EXPECT_TRUE(core.done());
  EXPECT_TRUE(core.outcome().ok());
}

TEST(ReservationCore, WithoutOtherCellsItIsDone) {
  EXPECT_TRUE(ReservationCore("flights", {}, At(0)).done());
}

TEST(ReservationCore, OneThatHasTheNameEndsIt) {
  ReservationCore core("flights", {"asia", "eu"}, At(1000));
  EXPECT_FALSE(core.OnAnswer(At(1), "eu", AlreadyExistsError("it exists")));
  EXPECT_TRUE(core.done());
  EXPECT_TRUE(IsAlreadyExists(core.outcome()));
  EXPECT_THAT(core.outcome().message(), HasSubstr("'eu'"));
  EXPECT_FALSE(core.OnAnswer(At(2), "asia", UnavailableError("late"))) << "nobody is asked again";
}

TEST(ReservationCore, OneThatIsSilentIsAskedUntilTheDeadlineAndThenNamed) {
  ReservationCore core("flights", {"asia", "eu"}, At(1000));
  EXPECT_TRUE(core.OnAnswer(At(999), "asia", UnavailableError("no connection")));
  EXPECT_FALSE(core.done());
  EXPECT_FALSE(core.OnAnswer(At(1000), "asia", UnavailableError("no connection")));
  EXPECT_TRUE(core.done());
  EXPECT_TRUE(IsUnavailable(core.outcome()));
  EXPECT_THAT(core.outcome().message(), HasSubstr("cell 'asia'"));
  EXPECT_THAT(core.outcome().message(), HasSubstr("no connection"));
}

}  // namespace
}  // namespace tailcast::scheduler
