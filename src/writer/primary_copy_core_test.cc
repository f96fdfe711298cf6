#include "tailcast/writer/primary_copy_core.h"

#include "gtest/gtest.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::writer {
namespace {

using stream::IndexRecord;
using stream::Part;

std::string Records(std::initializer_list<std::pair<int64_t, uint32_t>> payloads) {
  std::string out;
  for (const auto& [offset, length] : payloads) IndexRecord{offset, length, 0, 5}.AppendTo(out);
  return out;
}
std::optional<PrimaryCopyCore::Append> Next(PrimaryCopyCore& core, Part part) {
  auto next = core.NextAppend(part);
  EXPECT_TRUE(next.ok()) << next.status();
  return next.ok() ? *next : std::nullopt;
}

TEST(PrimaryCopyCore, AppendsIndexOnlyAfterTheDataItCovers) {
  PrimaryCopyCore core({}, 0, 0);
  ASSERT_TRUE(core.OnBytes(Part::kIndex, 0, Records({{0, 3}, {3, 4}})).ok());
  EXPECT_FALSE(Next(core, Part::kIndex)) << "no data yet";
  ASSERT_TRUE(core.OnBytes(Part::kData, 0, "abcde").ok());
  auto data = Next(core, Part::kData);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->bytes, "abcde");
  EXPECT_FALSE(Next(core, Part::kIndex)) << "data is appended, not committed";
  core.OnApplied(Part::kData);
  auto index = Next(core, Part::kIndex);
  ASSERT_TRUE(index);
  EXPECT_EQ(index->bytes.size(), 32u) << "the second record covers bytes that are not there";
  core.OnApplied(Part::kIndex);
  ASSERT_TRUE(core.OnBytes(Part::kData, 5, "fg").ok());
  ASSERT_TRUE(Next(core, Part::kData));
  core.OnApplied(Part::kData);
  index = Next(core, Part::kIndex);
  ASSERT_TRUE(index);
  EXPECT_EQ(index->offset, 32);
  core.OnApplied(Part::kIndex);
  EXPECT_EQ(core.committed(Part::kIndex), 64);
}

TEST(PrimaryCopyCore, OneAppendPerPartIsOutstanding) {
  PrimaryCopyCore core({.append_bytes_max = 4}, 0, 0);
  ASSERT_TRUE(core.OnBytes(Part::kData, 0, "abcdefghij").ok());
  EXPECT_EQ(Next(core, Part::kData)->bytes, "abcd");
  EXPECT_FALSE(Next(core, Part::kData));
  core.OnApplied(Part::kData);
  auto second = Next(core, Part::kData);
  EXPECT_EQ(second->offset, 4);
  EXPECT_EQ(second->bytes, "efgh");
}

TEST(PrimaryCopyCore, IgnoresWhatIsCommittedAndRefusesHoles) {
  PrimaryCopyCore core({}, 10, 32);
  EXPECT_TRUE(core.OnBytes(Part::kData, 0, "0123456789").ok());
  EXPECT_TRUE(core.OnBytes(Part::kData, 8, "89AB").ok());
  EXPECT_EQ(Next(core, Part::kData)->bytes, "AB");
  EXPECT_TRUE(core.OnBytes(Part::kData, 9, "9ABC").ok()) << "appending counts as known";
  EXPECT_TRUE(IsInvalidArgument(core.OnBytes(Part::kData, 20, "x")));
  EXPECT_TRUE(IsInvalidArgument(core.OnBytes(Part::kData, -1, "x")));
  EXPECT_TRUE(IsInvalidArgument(core.OnBytes(Part::kData, INT64_MAX, "x")));
}

TEST(PrimaryCopyCore, TellsWhatItHolds) {
  PrimaryCopyCore core({}, 0, 0);
  EXPECT_TRUE(core.OnBytes(Part::kData, 0, "01234567").ok());
  EXPECT_TRUE(core.OnBytes(Part::kIndex, 0, "x").ok());
  EXPECT_EQ(core.buffered_bytes(), 9);
  Next(core, Part::kData);
  EXPECT_EQ(core.buffered_bytes(), 9) << "until it is committed";
  core.OnApplied(Part::kData);
  EXPECT_EQ(core.buffered_bytes(), 1);
}

TEST(PrimaryCopyCore, CorruptIndexRecordsAreNotAppended) {
  PrimaryCopyCore core({}, 100, 0);
  std::string bad = Records({{0, 3}, {3, 4}});
  bad[40] ^= 1;
  ASSERT_TRUE(core.OnBytes(Part::kIndex, 0, bad).ok());
  EXPECT_TRUE(IsDataLoss(core.NextAppend(Part::kIndex).status()));
  PrimaryCopyCore back({}, 100, 0);
  ASSERT_TRUE(back.OnBytes(Part::kIndex, 0, Records({{5, 3}, {3, 4}})).ok());
  EXPECT_TRUE(IsDataLoss(back.NextAppend(Part::kIndex).status()));
}

TEST(PrimaryCopyCore, EndsAtTheSealAndIgnoresPayloadWithoutIndex) {
  PrimaryCopyCore core({}, 0, 0);
  ASSERT_TRUE(core.OnBytes(Part::kData, 0, "abcdefgh").ok());
  ASSERT_TRUE(core.OnBytes(Part::kIndex, 0, Records({{0, 3}})).ok());
  ASSERT_TRUE(core.OnSeal(3, 32).ok());
  EXPECT_FALSE(core.done());
  EXPECT_EQ(Next(core, Part::kData)->bytes, "abc");
  core.OnApplied(Part::kData);
  EXPECT_FALSE(Next(core, Part::kData));
  Next(core, Part::kIndex);
  core.OnApplied(Part::kIndex);
  EXPECT_TRUE(core.done());
}

TEST(PrimaryCopyCore, SealsThatContradictAreErrors) {
  PrimaryCopyCore core({}, 10, 64);
  EXPECT_TRUE(IsInvalidArgument(core.OnSeal(3, 31)));
  EXPECT_TRUE(IsDataLoss(core.OnSeal(3, 32))) << "the index is committed beyond";
  EXPECT_TRUE(core.OnSeal(8, 64).ok()) << "payload beyond has no index";
  EXPECT_TRUE(core.done());
  EXPECT_TRUE(IsInvalidArgument(core.OnSeal(9, 64)));
}

}  // namespace
}  // namespace tailcast::writer
