#include "tailcast/stream/position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/base/rng.h"

namespace tailcast::stream {
namespace {

TEST(Position, PrintsAsDocumented) {
  EXPECT_EQ((Position{StreamIncarnation{0x9f3a00c2d1e4b576}, 3, 16842, 17251200}).ToString(),
            "t1.9f3a00c2d1e4b576.3.16842.17251200");
}

TEST(Position, ParsesWhatItPrints) {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const Position p{StreamIncarnation{rng.Next()}, static_cast<int32_t>(rng.Between(0, 9999)),
                     rng.Between(0, INT64_MAX) >> rng.Between(0, 62),
                     rng.Between(0, INT64_MAX) >> rng.Between(0, 62)};
    const auto parsed = Position::Parse(p.ToString());
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, p);
  }
}

TEST(Position, RefusesAnythingElseAndShowsAnExample) {
  for (const char* bad :
       {"", "t1.", "t2.9f3a00c2d1e4b576.3.1.1", "t1.9f3a00c2d1e4b576.3.1",
        "t1.9f3a00c2d1e4b576.3.1.", "t1.9f3a00c2d1e4b576.3.1.1.", "t1.9f3a00c2d1e4b576.3.01.1",
        "t1.9f3a00c2d1e4b576.3.-1.1", "t1.9F3A00C2D1E4B576.3.1.1", "t1.9f3a00c2d1e4b57.3.1.1",
        "t1.9f3a00c2d1e4b576.10000.1.1", "t1.9f3a00c2d1e4b576.3.9223372036854775808.1",
        " t1.9f3a00c2d1e4b576.3.1.1"}) {
    const auto parsed = Position::Parse(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_TRUE(IsInvalidArgument(parsed.status()));
    EXPECT_THAT(parsed.status().message(), ::testing::HasSubstr("one looks like t1."));
  }
}

}  // namespace
}  // namespace tailcast::stream
