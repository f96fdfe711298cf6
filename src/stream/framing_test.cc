#include "tailcast/stream/framing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tailcast/base/rng.h"

namespace tailcast::stream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All messages of `input`, pushed in pieces of random size.
std::vector<std::string> Split(FrameSplitter& splitter, std::string_view input, Rng& rng,
                               Status* end) {
  std::vector<std::string> out;
  const auto drain = [&] {
    while (auto message = splitter.Next()) out.emplace_back(*message);
  };
  while (!input.empty()) {
    const auto n = static_cast<size_t>(rng.Between(1, 9));
    splitter.Push(input.substr(0, n));
    input.remove_prefix(std::min(n, input.size()));
    if (rng.Chance(0.7)) drain();
  }
  *end = splitter.Finish();
  drain();
  return out;
}

std::vector<std::string> SplitAll(Framing framing, std::string_view input, Status* end,
                                  Status* status, int64_t limit = 100) {
  Rng rng(1);
  FrameSplitter splitter(framing, limit);
  auto out = Split(splitter, input, rng, end);
  *status = splitter.status();
  return out;
}

TEST(FrameSplitter, EachLineWithItsNewlineIsAMessage) {
  Status end, status;
  EXPECT_THAT(SplitAll(Framing::kLines, "one\n\nthree\n", &end, &status),
              ElementsAre("one\n", "\n", "three\n"));
  EXPECT_TRUE(end.ok());
}

TEST(FrameSplitter, ALastLineWithoutNewlineIsAMessageToo) {
  Status end, status;
  EXPECT_THAT(SplitAll(Framing::kLines, "one\ntw", &end, &status), ElementsAre("one\n", "tw"));
  EXPECT_THAT(SplitAll(Framing::kLines, "", &end, &status), ElementsAre());
}

TEST(FrameSplitter, LengthPrefixedMessagesMayBeEmptyOrBinary) {
  std::string input;
  ASSERT_TRUE(AppendFrame(Framing::kLength, "ab", input).ok());
  ASSERT_TRUE(AppendFrame(Framing::kLength, "", input).ok());
  ASSERT_TRUE(AppendFrame(Framing::kLength, std::string("\0\n", 2), input).ok());
  EXPECT_EQ(input.substr(0, 6), std::string("\0\0\0\2ab", 6));
  Status end, status;
  EXPECT_THAT(SplitAll(Framing::kLength, input, &end, &status),
              ElementsAre("ab", "", std::string("\0\n", 2)));
  EXPECT_TRUE(end.ok());
}

TEST(FrameSplitter, RandomMessagesComeBackWhateverThePieces) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const Framing framing = rng.Chance(0.5) ? Framing::kLines : Framing::kLength;
    std::vector<std::string> messages;
    std::string input;
    for (int i = 0; i < 50; ++i) {
      std::string message;
      for (int64_t n = rng.Between(0, 20); n > 0; --n)
        message.push_back(static_cast<char>(rng.Below(256)));
      if (framing == Framing::kLines) {
        std::erase(message, '\n');
        message.push_back('\n');
      }
      ASSERT_TRUE(AppendFrame(framing, message, input).ok());
      messages.push_back(message);
    }
    FrameSplitter splitter(framing, 1000);
    Status end;
    EXPECT_EQ(Split(splitter, input, rng, &end), messages);
    EXPECT_TRUE(end.ok());
  }
}

TEST(FrameSplitter, AnInputThatEndsInsideAMessageSaysWhere) {
  Status end, status;
  EXPECT_THAT(SplitAll(Framing::kLength, std::string("\0\0\0\1x\0\0\0\5ab", 11), &end, &status),
              ElementsAre("x"));
  EXPECT_TRUE(IsDataLoss(end));
  EXPECT_THAT(end.message(), HasSubstr("begins at input byte 5"));
}

TEST(FrameSplitter, AMessageOverTheLimitIsNamed) {
  Status end, status;
  EXPECT_THAT(
      SplitAll(Framing::kLines, "ok\n" + std::string(200, 'x') + "\nlater\n", &end, &status),
      ElementsAre("ok\n"));
  EXPECT_TRUE(IsResourceExhausted(status));
  EXPECT_THAT(status.message(), HasSubstr("message 1, which begins at input byte 3"));
  EXPECT_THAT(SplitAll(Framing::kLength, std::string("\0\0\1\0", 4), &end, &status), ElementsAre());
  EXPECT_TRUE(IsResourceExhausted(status));
  EXPECT_THAT(status.message(), HasSubstr("has 256 bytes; the limit is 100"));
}

TEST(Framing, UnknownNamesAreExplained) {
  EXPECT_EQ(*ParseFraming("lines"), Framing::kLines);
  EXPECT_EQ(*ParseFraming("length"), Framing::kLength);
  EXPECT_THAT(ParseFraming("line").status().message(), HasSubstr("use lines"));
}

}  // namespace
}  // namespace tailcast::stream
