#include "tailcast/inspect/contents.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/strong.h"
#include "tailcast/inspect/text.h"
#include "tailcast/stream/lock.h"

namespace tailcast::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WallTime kNow = WallTime::FromMicros(1'763'722'200'000'000);

TEST(ContentsTest, ARecordSaysWhatIsKnownOfItsFiles) {
  stream::PairMetadata file;
  file.created_us = kNow.micros() - 3'000'000;
  file.start_byte = 100;
  file.start_number = 5;
  file.cache_length[0] = 4096;
  file.cache_length[1] = 320;
  file.primary_length[0] = 8192;
  file.primary_length[1] = 640;
  file.chunk_size = 4096;
  file.heartbeat_us = kNow.micros() - 200'000;
  const KeyName name{.stream = "s", .shard = 0, .seq = 9};
  const std::string value = stream::EncodePairMetadata(9, file);
  EXPECT_THAT(
      Describe(name, value, kNow),
      ElementsAre("file 9: cache 4096+320, primary 8192+640 (data+index), open, chunks of "
                  "4096",
                  "created 2025-11-21T10:49:57Z, begins at byte 100 and message 5, epoch 0, "
                  "writer seen 200 ms ago"));
  const KeyName neighbour{.stream = "s", .shard = 0, .seq = 8};
  const auto lines = Describe(neighbour, value, kNow);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "file 8 is not known");
  file.seal[0] = 8192;
  file.seal[1] = 640;
  file.heartbeat_us = kNow.micros() + 1'000'000;
  const auto sealed = Describe(name, stream::EncodePairMetadata(9, file), kNow);
  EXPECT_THAT(sealed[0], ::testing::HasSubstr("sealed at 8192+640"));
  EXPECT_THAT(sealed[1], ::testing::HasSubstr("1 s ahead of this clock"));
}

TEST(ContentsTest, ALockSaysItsStateAndOperation) {
  const KeyName name{.stream = "s", .shard = 0, .seq = 9, .kind = KeyName::Kind::kLock};
  stream::LockValue lock;
  lock.term = {stream::TreeVersion{2}, stream::SchedulerIncarnation{7}, 3};
  lock.owner = 0xab;
  lock.state = stream::LockState::kPoisoned;
  EXPECT_THAT(
      Describe(name, stream::EncodeLock(lock), kNow),
      ElementsAre("poisoned by operation 00000000000000ab of tree 2, scheduler 7, attempt 3"));
  EXPECT_THAT(Describe(name, "garbage", kNow), IsEmpty());
}

TEST(ContentsTest, WhatDoesNotDecodeSaysNothing) {
  const KeyName name{.stream = "s", .shard = 0, .seq = 9};
  EXPECT_THAT(Describe(name, "garbage", kNow), ElementsAre("file 9 is not known"));
  const KeyName chunk{.stream = "s", .shard = 0, .seq = 9, .kind = KeyName::Kind::kChunk};
  EXPECT_THAT(Describe(chunk, "bytes", kNow), IsEmpty());
}

TEST(TextTest, NumbersHaveFourCharactersAtMost) {
  EXPECT_EQ(Short(0), "0");
  EXPECT_EQ(Short(999), "999");
  EXPECT_EQ(Short(1000), "1.0k");
  EXPECT_EQ(Short(9949), "9.9k");
  EXPECT_EQ(Short(9950), "10k");
  EXPECT_EQ(Short(999'499), "999k");
  EXPECT_EQ(Short(999'500), "1.0M");
  EXPECT_EQ(Short(268'435'456), "268M");
  EXPECT_EQ(Short(UINT64_MAX), "18E");
  for (uint64_t n = 1; n < UINT64_MAX / 3; n *= 3) EXPECT_LE(Short(n).size(), 4u) << n;
}

TEST(TextTest, LinesBreakBetweenWords) {
  const std::string text = Wrapped(2, std::string(50, 'a') + " " + std::string(40, 'b') + " c");
  EXPECT_EQ(text, "  " + std::string(50, 'a') + "\n    " + std::string(40, 'b') + " c\n");
  EXPECT_EQ(Wrapped(0, std::string(100, 'x')), std::string(100, 'x') + "\n") << "one word";
}

TEST(TextTest, ATablesColumnsAreAsWideAsTheirCharacters) {
  EXPECT_EQ(TableText(0, {{"name", "n"}, {"Köln", "1"}, {"ab", "2"}}), "name n\nKöln 1\nab   2\n");
  EXPECT_EQ(TableText(0, {{"a", "n"}, {"äöüäöü", "1"}}, {}, 6), "a    n\n~äöü 1\n")
      << "cut between characters";
}

TEST(TextTest, ATableIsCutToEightyColumnsInItsFirstOne) {
  const std::string text =
      TableText(2, {{"name", "n"}, {"cache-" + std::string(80, '0') + "12", "1"}});
  for (const std::string& line : {text.substr(0, text.find('\n'))}) EXPECT_LE(line.size(), 80u);
  EXPECT_THAT(text, ::testing::HasSubstr("  ~0000"));
  EXPECT_THAT(text, ::testing::HasSubstr("0012 1\n"));
}

}  // namespace
}  // namespace tailcast::inspect
