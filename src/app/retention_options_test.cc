#include "tailcast/app/retention_options.h"

#include <gtest/gtest.h>

namespace tailcast::app {
namespace {

constexpr int64_t kSecond = 1'000'000;

Result<v1::Retention> Parse(const std::string& line, const v1::Retention& before = {}) {
  CLI::App app;
  RetentionFlags flags;
  flags.Add(&app);
  try {
    app.parse(line);
  } catch (const CLI::ParseError& e) {
    return InvalidArgumentError(e.what());
  }
  return flags.Apply(before);
}

TEST(RetentionOptions, TimesAndSizesHaveUnits) {
  const auto retention =
      Parse("--max-age 36h --max-shard-bytes 10GB --when-full drop --away-max 90s");
  ASSERT_TRUE(retention.ok()) << retention.status();
  EXPECT_EQ(retention->age_max_us(), 36 * 3600 * kSecond);
  EXPECT_EQ(retention->shard_bytes_max(), 10'000'000'000);
  EXPECT_TRUE(retention->drop());
  EXPECT_EQ(retention->away_max_us(), 90 * kSecond);
  EXPECT_EQ(RetentionText(*retention),
            "36 h, and 10 GB of each shard (then cells that lag get a gap); a cell may be away for "
            "90 s");
  EXPECT_EQ(Parse("--max-age 0")->age_max_us(), 0);
  EXPECT_EQ(Parse("--max-shard-bytes 64MiB")->shard_bytes_max(), 64 << 20);
  EXPECT_EQ(Parse("--max-age 36500d")->age_max_us(), int64_t{36500} * 86400 * kSecond);
  // A unit that was forgotten would take away what was to be kept.
  for (const char* bad :
       {"--max-age 120", "--max-age 36501d", "--max-age 99999999999999999999d",
        "--max-shard-bytes 10", "--file-bytes 999", "--max-age 3x", "--max-age -1",
        "--max-shard-bytes -5", "--max-shard-bytes ten", "--when-full sometimes"}) {
    EXPECT_TRUE(IsInvalidArgument(Parse(bad).status())) << bad;
  }
}

TEST(RetentionOptions, WhatIsNotGivenStays) {
  const v1::Retention before = *Parse("--max-age 7d --max-shard-bytes 1GB --when-full drop");
  EXPECT_EQ(before.away_max_us(), 86400 * kSecond) << "the default of a first limit";
  v1::Retention after = *Parse("--max-age 0 --away-max 0", before);
  after.set_version(2);
  EXPECT_EQ(after.age_max_us(), 0);
  EXPECT_EQ(after.away_max_us(), 0);
  EXPECT_EQ(after.shard_bytes_max(), 1'000'000'000);
  EXPECT_TRUE(after.drop());
  const v1::Retention none = *Parse("--max-shard-bytes 0", after);
  EXPECT_FALSE(none.drop()) << "it says nothing without a size";
  EXPECT_EQ(RetentionText(none), "everything");
  EXPECT_EQ(RetentionText(*Parse("--away-max 1h")), "everything; a cell may be away for 1 h");
  // Somebody has said that a cell may be away for ever: that is not forgotten with the next limit.
  v1::Retention said = *Parse("--away-max 0");
  said.set_version(2);
  EXPECT_EQ(Parse("--max-age 7d", said)->away_max_us(), 0);
}

TEST(RetentionOptions, DropNeedsASize) {
  EXPECT_TRUE(IsInvalidArgument(Parse("--max-age 7d --when-full drop").status()));
}

}  // namespace
}  // namespace tailcast::app
