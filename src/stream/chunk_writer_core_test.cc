#include "tailcast/stream/chunk_writer_core.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/rng.h"

namespace tailcast::stream {
namespace {

using Outcome = ChunkWriterCore::AddOutcome;

std::string Content(int64_t from, int64_t to) {
  std::string s;
  for (int64_t i = from; i < to; ++i) s.push_back(static_cast<char>('a' + i * 7 % 23 + i / 97 % 3));
  return s;
}

std::vector<ChunkWrite> Take(ChunkWriterCore& core, int64_t bytes_max = INT64_MAX) {
  std::vector<ChunkWrite> out;
  core.TakeWrites(bytes_max, &out);
  return out;
}
std::vector<std::pair<int64_t, int64_t>> Shape(const std::vector<ChunkWrite>& writes) {
  std::vector<std::pair<int64_t, int64_t>> shape;
  for (const auto& w : writes) shape.push_back({w.chunk, static_cast<int64_t>(w.value.size())});
  return shape;
}
using Writes = std::vector<std::pair<int64_t, int64_t>>;

TEST(ChunkWriterCore, Figure7ALargeWriteOvertakesASmallOne) {
  ChunkWriterCore core({.chunk_size = 10}, 0);
  // W2 covers the rest of chunk 0, chunks 1 and 2, and the front of chunk 3.
  EXPECT_EQ(core.Add(4, Content(4, 33)), Outcome::kTaken);
  auto first = Take(core);
  EXPECT_EQ(Shape(first), (Writes{{1, 10}, {2, 10}, {3, 3}})) << "chunk 0 waits for W1";
  for (const auto& w : first) core.OnWritten(w.chunk, w.value.size(), true);
  EXPECT_EQ(core.written_end(), 0) << "a hole: nothing to publish";
  EXPECT_EQ(core.received_end(), 0);

  EXPECT_EQ(core.Add(0, Content(0, 4)), Outcome::kTaken);
  EXPECT_EQ(core.received_end(), 33);
  auto second = Take(core);
  EXPECT_EQ(Shape(second), (Writes{{0, 10}})) << "whole, and once";
  EXPECT_EQ(second[0].value, Content(0, 10));
  EXPECT_EQ(core.written_end(), 0);
  core.OnWritten(0, 10, true);
  EXPECT_EQ(core.written_end(), 33);
  EXPECT_TRUE(core.idle());
}

TEST(ChunkWriterCore, WritesOfAPartialChunkAreSerialised) {
  ChunkWriterCore core({.chunk_size = 10}, 0);
  core.Add(0, Content(0, 3));
  EXPECT_EQ(Shape(Take(core)), (Writes{{0, 3}}));
  core.Add(3, Content(3, 5));
  core.Add(5, Content(5, 14));
  EXPECT_EQ(Shape(Take(core)), (Writes{{1, 4}})) << "chunk 0 has a write outstanding";
  core.OnWritten(0, 3, true);
  EXPECT_EQ(core.written_end(), 3);
  EXPECT_EQ(Shape(Take(core)), (Writes{{0, 10}})) << "what came meanwhile goes out as one";
  core.OnWritten(0, 10, true);
  core.OnWritten(1, 4, true);
  EXPECT_EQ(core.written_end(), 14);
}

TEST(ChunkWriterCore, AFailedWriteIsGivenOutAgain) {
  ChunkWriterCore core({.chunk_size = 10}, 0);
  core.Add(0, Content(0, 10));
  EXPECT_EQ(Shape(Take(core)), (Writes{{0, 10}}));
  core.OnWritten(0, 10, false);
  EXPECT_EQ(core.written_end(), 0);
  auto again = Take(core);
  ASSERT_EQ(Shape(again), (Writes{{0, 10}}));
  EXPECT_EQ(again[0].value, Content(0, 10));
  core.OnWritten(0, 10, true);
  EXPECT_EQ(core.written_end(), 10);
  EXPECT_EQ(core.buffered_bytes(), 0);
}

TEST(ChunkWriterCore, StartsAtTheBeginningOfTheChunkOfThePosition) {
  ChunkWriterCore core({.chunk_size = 10}, 27);
  EXPECT_EQ(core.start(), 20);
  EXPECT_EQ(core.Add(5, Content(5, 20)), Outcome::kAlready);
  core.Add(27, Content(27, 29));
  EXPECT_FALSE(core.HasWrites()) << "the chunk's beginning is missing";
  core.Add(18, Content(18, 27));
  EXPECT_EQ(Take(core)[0].value, Content(20, 29));
}

TEST(ChunkWriterCore, RefusesBytesBeyondTheWindowAndTakesThemAfterProgress) {
  ChunkWriterCore core({.chunk_size = 10, .window_bytes = 20}, 0);
  EXPECT_EQ(core.Add(31, Content(31, 32)), Outcome::kFull);
  EXPECT_EQ(core.Add(INT64_MAX - 1, "abc"), Outcome::kFull) << "the end overflows";
  EXPECT_EQ(core.Add(20, Content(20, 30)), Outcome::kTaken);
  EXPECT_EQ(core.Add(0, Content(0, 10)), Outcome::kTaken) << "the hole can always be filled";
  for (const auto& w : Take(core)) core.OnWritten(w.chunk, w.value.size(), true);
  EXPECT_EQ(core.written_end(), 10);
  EXPECT_EQ(core.Add(31, Content(31, 32)), Outcome::kTaken);
}

TEST(ChunkWriterCore, ContradictingBytesAreRefused) {
  ChunkWriterCore core({.chunk_size = 10}, 0);
  core.Add(0, "abcdef");
  EXPECT_EQ(core.Add(4, "efgh"), Outcome::kTaken);
  EXPECT_EQ(core.Add(4, "eX"), Outcome::kConflict);
  EXPECT_EQ(core.Add(0, "abcdefgh"), Outcome::kAlready);
  EXPECT_EQ(core.received_end(), 8);
}

TEST(ChunkWriterCore, JumpForgetsWhatLiesBeforeAndIgnoresItsAnswers) {
  ChunkWriterCore core({.chunk_size = 10, .window_bytes = 40}, 0);
  core.Add(0, Content(0, 25));
  auto writes = Take(core);
  ASSERT_EQ(writes.size(), 3u);
  core.JumpTo(23);
  EXPECT_EQ(core.start(), 20);
  EXPECT_EQ(core.written_end(), 20);
  EXPECT_EQ(core.received_end(), 25) << "what was received after it stays";
  core.OnWritten(0, 10, true);
  core.OnWritten(1, 10, false);
  EXPECT_EQ(core.written_end(), 20);
  core.OnWritten(2, 5, true);
  EXPECT_EQ(core.written_end(), 25);
  core.JumpTo(3);
  EXPECT_EQ(core.written_end(), 25) << "back is ignored";
  core.JumpTo(1000);
  EXPECT_EQ(core.written_end(), 1000);
  EXPECT_EQ(core.outstanding(), 0);
  EXPECT_EQ(core.buffered_bytes(), 0);
  EXPECT_EQ(core.Add(1000, Content(1000, 1003)), Outcome::kTaken);
}

TEST(ChunkWriterCore, LateAndForeignAnswersChangeNothing) {
  ChunkWriterCore core({.chunk_size = 10}, 0);
  core.OnWritten(5, 10, true);
  core.Add(0, Content(0, 4));
  core.OnWritten(0, 4, true);
  EXPECT_EQ(core.written_end(), 0) << "that write was never given out";
  Take(core);
  core.OnWritten(0, 3, true);
  EXPECT_EQ(core.written_end(), 0);
  core.OnWritten(0, 4, true);
  core.OnWritten(0, 4, true);
  EXPECT_EQ(core.written_end(), 4);
  EXPECT_EQ(core.outstanding(), 0);
}

// Random pieces in random order, overlapping, with failing writes and jumps, against a store that
// keeps the longer value: at each step the published length is covered by stored chunks.
TEST(ChunkWriterCore, RandomOrdersKeepThePublishedLengthCovered) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const int64_t chunk_size = rng.Between(1, 16);
    const int64_t total = rng.Between(1, 400);
    const int64_t window = rng.Between(24, 120);
    ChunkWriterCore core({.chunk_size = chunk_size, .window_bytes = window}, 0);
    const std::string all = Content(0, total);
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (int64_t at = 0; at < total;) {
      const int64_t n = std::min(total - at, rng.Between(1, 20));
      pieces.push_back({std::max<int64_t>(0, at - rng.Between(0, 3)), at + n});
      at += n;
    }
    std::map<int64_t, std::string> stored;
    std::vector<ChunkWrite> flying;
    int64_t start = 0;
    int64_t published = 0;
    const bool jumps = rng.Chance(0.3);
    for (int step = 0; published < total; ++step) {
      ASSERT_LT(step, 100000) << "no progress";
      if (!pieces.empty() && rng.Chance(0.5)) {
        const size_t i = rng.Below(std::min<size_t>(pieces.size(), 6));
        const auto [from, to] = pieces[i];
        if (core.Add(from, std::string_view(all).substr(from, to - from)) != Outcome::kFull) {
          pieces.erase(pieces.begin() + i);
        } else if (jumps && rng.Chance(0.1)) {
          core.JumpTo(from);
          start = core.start();
        }
      }
      if (rng.Chance(0.5)) core.TakeWrites(rng.Between(1, 50), &flying);
      if (!flying.empty() && rng.Chance(0.6)) {
        const size_t i = rng.Below(flying.size());
        ChunkWrite w = std::move(flying[i]);
        flying.erase(flying.begin() + i);
        const int64_t length = static_cast<int64_t>(w.value.size());
        ASSERT_EQ(w.value, all.substr(w.chunk * chunk_size, w.value.size()));
        const bool ok = rng.Chance(0.8);
        if (ok && w.value.size() > stored[w.chunk].size()) stored[w.chunk] = w.value;
        core.OnWritten(w.chunk, length, ok);
      }
      ASSERT_GE(core.written_end(), published);
      published = core.written_end();
      for (int64_t at = start; at < published; ++at) {
        ASSERT_GT(static_cast<int64_t>(stored[at / chunk_size].size()), at % chunk_size)
            << "published " << published << " but byte " << at << " is not stored";
      }
      ASSERT_LE(core.buffered_bytes(), std::max(window, chunk_size) + 2 * chunk_size);
      ASSERT_LE(core.pending_bytes(), core.buffered_bytes());
    }
    ASSERT_EQ(core.pending_bytes(), 0);
    ASSERT_EQ(core.buffered_bytes() > 0, total % chunk_size != 0);
  }
}

}  // namespace
}  // namespace tailcast::stream
