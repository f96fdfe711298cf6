#include "tailcast/reader/copy_core.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/rng.h"

namespace tailcast::reader {
namespace {

using stream::Layer;
using stream::Part;

constexpr int64_t kChunk = 512;

SourceLengths Source(int64_t cache_data, int64_t primary_data, int64_t index = 0) {
  SourceLengths s;
  s.cache[0] = cache_data;
  s.primary[0] = primary_data;
  s.cache[1] = s.primary[1] = index;
  return s;
}
SourceLengths Sealed(SourceLengths s, int64_t data, int64_t index) {
  s.seal[0] = data;
  s.seal[1] = index;
  return s;
}

TEST(CopyCore, AFreshOperationReadsBeforeTheWriterAnswers) {
  CopyCore core({}, Layer::kPrimary, kChunk, true);
  ASSERT_TRUE(core.OnSource(Source(100, 80)).ok());
  const auto read = core.NextRead();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->from, 0);
  EXPECT_EQ(read->to, 80) << "a primary operation takes what the primary layer has";
  EXPECT_EQ(read->cache_limit, 100) << "but reads it from the cache if it is there";
}

TEST(CopyCore, AnOperationOnAKnownFileWaitsAndGoesOnWhereTheWriterStands) {
  CopyCore core({}, Layer::kPrimary, kChunk, false);
  ASSERT_TRUE(core.OnSource(Source(0, 900)).ok());
  EXPECT_FALSE(core.NextRead());
  ASSERT_TRUE(core.OnOpened(700, 64, 1 << 20).ok());
  const auto read = core.NextRead();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->from, 700);
}

TEST(CopyCore, ItIsTheTurnOfWhoHoldsUpTheFirstMissingByte) {
  using Turn = CopyCore::Turn;
  CopyCore core({.piece_bytes_max = 1000}, Layer::kCache, kChunk, true);
  EXPECT_EQ(core.turn(Part::kData), Turn::kWriters) << "it has not opened";
  ASSERT_TRUE(core.OnOpened(0, 0, 1 << 20).ok());
  EXPECT_EQ(core.turn(Part::kData), Turn::kNobodys);
  ASSERT_TRUE(core.OnSource(Source(2000, 0)).ok());
  EXPECT_EQ(core.turn(Part::kData), Turn::kSources);
  const auto first = core.NextRead();
  const auto second = core.NextRead();
  ASSERT_TRUE(first && second);
  core.OnReadDone(second->id, second->to);
  EXPECT_EQ(core.turn(Part::kData), Turn::kSources)
      << "the writer can do nothing with what follows a hole";
  core.OnReadDone(first->id, 700);
  EXPECT_EQ(core.turn(Part::kData), Turn::kWriters);
  ASSERT_TRUE(core.OnProgress(700, 0, 0).ok());
  EXPECT_EQ(core.turn(Part::kData), Turn::kSources);
  const auto rest = core.NextRead();
  core.OnReadDone(rest->id, rest->to);
  ASSERT_TRUE(core.OnProgress(2000, 0, 0).ok());
  EXPECT_EQ(core.turn(Part::kData), Turn::kNobodys);
  EXPECT_EQ(core.turn(Part::kIndex), Turn::kNobodys);
  ASSERT_TRUE(core.OnSource(Source(2000, 0, 64)).ok());
  EXPECT_EQ(core.turn(Part::kIndex), Turn::kSources) << "each part by itself";
  EXPECT_EQ(core.turn(Part::kData), Turn::kNobodys);
}

TEST(CopyCore, ACacheOperationBeginsAtAChunk) {
  CopyCore core({}, Layer::kCache, kChunk, false);
  ASSERT_TRUE(core.OnSource(Source(2000, 0)).ok());
  ASSERT_TRUE(core.OnOpened(700, 0, 1 << 20).ok());
  EXPECT_EQ(core.NextRead()->from, 512);
}

TEST(CopyCore, AnOptimisticStartMeetsAFileThatIsThere) {
  CopyCore core({}, Layer::kPrimary, kChunk, true);
  ASSERT_TRUE(core.OnSource(Source(0, 1000)).ok());
  const auto read = core.NextRead();
  ASSERT_TRUE(core.OnOpened(600, 0, 1 << 20).ok());
  EXPECT_EQ(core.OnReadDone(read->id, 800), 0) << "the writer ignores what it has";
  const auto rest = core.NextRead();
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->from, 800) << "the read came short";
  EXPECT_EQ(rest->to, 1000);
}

TEST(CopyCore, PrimaryReadsAreOneAtATimePerPartCacheReadsParallel) {
  for (Layer layer : {Layer::kPrimary, Layer::kCache}) {
    CopyCore core({.piece_bytes_max = 100, .reads_max = 6}, layer, kChunk, true);
    ASSERT_TRUE(core.OnSource(Source(1000, 1000, 320)).ok());
    int parts[2] = {0, 0};
    while (const auto read = core.NextRead()) ++parts[static_cast<int>(read->part)];
    EXPECT_EQ(parts[0], layer == Layer::kPrimary ? 1 : 3);
    EXPECT_EQ(parts[1], layer == Layer::kPrimary ? 1 : 3);
  }
}

TEST(CopyCore, TheWindowHoldsTheReaderBack) {
  CopyCore core({.piece_bytes_max = 1000, .reads_max = 100}, Layer::kCache, kChunk, true);
  ASSERT_TRUE(core.OnSource(Source(1 << 20, 0)).ok());
  ASSERT_TRUE(core.OnOpened(0, 0, 2048).ok());
  int64_t end = 0;
  while (const auto read = core.NextRead()) {
    end = read->to;
    core.OnReadDone(read->id, read->to);
  }
  EXPECT_EQ(end, 2048);
  EXPECT_EQ(core.turn(Part::kData), CopyCore::Turn::kWriters);
  ASSERT_TRUE(core.OnProgress(1000, 0, 0).ok());
  const auto read = core.NextRead();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->to, 3048);
}

TEST(CopyCore, TheWindowMayShrinkAndGrow) {
  CopyCore core({.piece_bytes_max = 1000, .reads_max = 100}, Layer::kCache, kChunk, true);
  const auto read_on = [&core] {
    int64_t end = 0;
    while (const auto read = core.NextRead()) {
      end = read->to;
      core.OnReadDone(read->id, read->to);
    }
    return end;
  };
  ASSERT_TRUE(core.OnSource(Source(1 << 20, 0)).ok());
  ASSERT_TRUE(core.OnOpened(0, 0, 4096).ok());
  EXPECT_EQ(read_on(), 4096);
  ASSERT_TRUE(core.OnProgress(1024, 0, 1024).ok());
  EXPECT_EQ(read_on(), 0) << "more than that is under way";
  EXPECT_EQ(core.turn(Part::kData), CopyCore::Turn::kWriters);
  ASSERT_TRUE(core.OnProgress(4096, 0, 1024).ok());
  EXPECT_EQ(read_on(), 5120);
  ASSERT_TRUE(core.OnProgress(5120, 0, 0).ok());
  EXPECT_EQ(read_on(), 6144) << "as before";
  ASSERT_TRUE(core.OnProgress(6144, 0, 8192).ok());
  EXPECT_EQ(read_on(), 6144 + 8192);
  EXPECT_FALSE(core.OnProgress(6144, 0, 1).ok()) << "less than a chunk";
  EXPECT_FALSE(core.OnProgress(6144, 0, -1).ok());
}

TEST(CopyCore, ShortReadsAreReadAgain) {
  CopyCore core({.piece_bytes_max = 1000}, Layer::kCache, kChunk, true);
  ASSERT_TRUE(core.OnSource(Source(1500, 0)).ok());
  const auto first = core.NextRead();
  const auto second = core.NextRead();
  EXPECT_EQ(core.OnReadDone(second->id, second->to), 1000) << "out of order";
  EXPECT_EQ(core.OnReadDone(first->id, 300), 0);
  const auto again = core.NextRead();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->from, 300);
  EXPECT_EQ(again->to, 1000);
  EXPECT_EQ(core.OnReadDone(again->id, 300), std::nullopt) << "nothing new";
  EXPECT_EQ(core.NextRead()->from, 300);
  EXPECT_EQ(core.OnReadDone(9999, 100), std::nullopt) << "an answer to nothing";
}

// §3 Start Position: the position is the writer's to choose.
TEST(CopyCore, ACacheOperationFarBehindAsksToJumpAndGoesOnWhereTheWriterWent) {
  CopyCore core({.piece_bytes_max = 1000, .jump_bytes = 10000}, Layer::kCache, kChunk, false);
  ASSERT_TRUE(core.OnSource(Source(50000, 49000)).ok());
  ASSERT_TRUE(core.OnOpened(100, 0, 2048).ok());
  const auto jump = core.TakeJump();
  ASSERT_TRUE(jump);
  EXPECT_EQ(jump->position, 50000 / kChunk * kChunk) << "at most all that there is";
  EXPECT_FALSE(core.TakeJump());
  const auto early = core.NextRead();
  ASSERT_TRUE(early);
  EXPECT_EQ(early->from, 0) << "nothing waits for the answer, which may be that there is no jump";
  ASSERT_TRUE(core.OnProgress(20 * kChunk, 0, 0).ok());
  EXPECT_EQ(core.OnReadDone(early->id, early->to), std::nullopt) << "jumped over";
  EXPECT_EQ(core.NextRead()->from, 20 * kChunk);
}

TEST(CopyCore, AJumpIsAskedForAgainOnceTheSourceOrTheCopyHasMovedOn) {
  CopyCore core({.jump_bytes = 10000}, Layer::kCache, kChunk, false);
  ASSERT_TRUE(core.OnSource(Source(50000, 0)).ok());
  ASSERT_TRUE(core.OnOpened(0, 0, 2048).ok());
  ASSERT_TRUE(core.TakeJump());
  ASSERT_TRUE(core.OnProgress(3000, 0, 0).ok());
  EXPECT_FALSE(core.TakeJump()) << "the primary downstream is as far behind";
  ASSERT_TRUE(core.OnSource(Source(52000, 0)).ok());
  EXPECT_TRUE(core.TakeJump());
  ASSERT_TRUE(core.OnProgress(7999, 0, 0).ok());
  EXPECT_FALSE(core.TakeJump());
  ASSERT_TRUE(core.OnProgress(8000, 0, 0).ok());
  EXPECT_TRUE(core.TakeJump());
  ASSERT_TRUE(core.OnProgress(52000 - 2048 - 10000, 0, 0).ok());
  EXPECT_FALSE(core.TakeJump()) << "near enough";
}

TEST(CopyCore, WhatIsUnderWayIsNotJumpedOverBecauseTheWindowBecomesSmaller) {
  CopyCore core({.jump_bytes = 10000}, Layer::kCache, kChunk, false);
  ASSERT_TRUE(core.OnOpened(0, 0, 60000).ok());
  ASSERT_TRUE(core.OnSource(Source(50000, 0)).ok());
  EXPECT_FALSE(core.TakeJump());
  ASSERT_TRUE(core.OnProgress(512, 0, 2048).ok());
  EXPECT_FALSE(core.TakeJump());
  ASSERT_TRUE(core.OnSource(Source(71000, 0)).ok());
  EXPECT_TRUE(core.TakeJump());
}

TEST(CopyCore, AShortReadIsReadAgainFromTheChunkThatWasJumpedTo) {
  CopyCore core({.piece_bytes_max = 1000, .jump_bytes = 10000}, Layer::kCache, kChunk, false);
  ASSERT_TRUE(core.OnSource(Source(50000, 0)).ok());
  ASSERT_TRUE(core.OnOpened(0, 0, 2048).ok());
  const auto read = core.NextRead();
  EXPECT_EQ(core.OnReadDone(read->id, 300), 0);
  ASSERT_TRUE(core.OnProgress(kChunk, 0, 0).ok());
  const auto again = core.NextRead();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->from, kChunk);
  EXPECT_EQ(again->to, 1000);
}

TEST(CopyCore, PrimaryOperationsAndNearOnesNeverJump) {
  CopyCore primary({.jump_bytes = 10000}, Layer::kPrimary, kChunk, false);
  ASSERT_TRUE(primary.OnSource(Source(50000, 49000)).ok());
  ASSERT_TRUE(primary.OnOpened(96, 0, 2048).ok());
  EXPECT_FALSE(primary.TakeJump());
  CopyCore near({.jump_bytes = 10000}, Layer::kCache, kChunk, false);
  ASSERT_TRUE(near.OnSource(Source(50000, 49000)).ok());
  ASSERT_TRUE(near.OnOpened(45000, 0, 2048).ok());
  EXPECT_FALSE(near.TakeJump());
}

TEST(CopyCore, ASealedFileIsTakenFromEitherLayerUpToItsSeal) {
  CopyCore core({}, Layer::kCache, kChunk, true);
  ASSERT_TRUE(core.OnSource(Source(100, 1000)).ok());
  EXPECT_EQ(core.available(Part::kData), 100) << "lengths bound each layer by itself";
  ASSERT_TRUE(core.OnSource(Sealed(Source(100, 1000), 900, 0)).ok());
  EXPECT_EQ(core.available(Part::kData), 900) << "payload beyond the seal has no index";
  const auto seal = core.TakeSeal();
  ASSERT_TRUE(seal);
  EXPECT_EQ(seal->length[0], 900);
  EXPECT_FALSE(core.TakeSeal());
  EXPECT_TRUE(IsDataLoss(core.OnSource(Sealed(Source(0, 0), 901, 0))));
}

TEST(CopyCore, HeartbeatsFollowTheBytesTheyCover) {
  CopyCore core({}, Layer::kCache, kChunk, true);
  SourceLengths s = Source(100, 100);
  s.heartbeat_us = 77;
  ASSERT_TRUE(core.OnSource(s).ok());
  EXPECT_FALSE(core.TakeHeartbeat());
  const auto read = core.NextRead();
  core.OnReadDone(read->id, 100);
  const auto beat = core.TakeHeartbeat();
  ASSERT_TRUE(beat);
  EXPECT_EQ(beat->as_of_us, 77);
  EXPECT_EQ(beat->length[0], 100);
  EXPECT_FALSE(core.TakeHeartbeat());
}

TEST(CopyCore, ImpossibleAnswersAreRefused) {
  CopyCore core({}, Layer::kPrimary, kChunk, false);
  EXPECT_FALSE(core.OnProgress(1, 0, 0).ok()) << "before it opened";
  EXPECT_FALSE(core.OnOpened(-1, 0, 1 << 20).ok());
  EXPECT_FALSE(core.OnOpened(0, 31, 1 << 20).ok());
  EXPECT_FALSE(core.OnOpened(0, 0, 0).ok());
  EXPECT_FALSE(core.OnOpened(0, 0, INT64_MAX).ok());
  EXPECT_FALSE(core.OnOpened(INT64_MAX, 0, 1 << 20).ok());
  EXPECT_TRUE(core.OnOpened(0, 0, 1 << 20).ok());
  EXPECT_FALSE(core.OnOpened(0, 0, 1 << 20).ok()) << "twice";
  EXPECT_FALSE(core.OnProgress(-5, 0, 0).ok());
  EXPECT_FALSE(core.OnProgress(0, INT64_MAX, 0).ok());
}

// Whatever the order of answers, short reads, takeovers and growth: every byte from the start (or
// the last jump) on is sent, and primary operations send in order without a hole.
TEST(CopyCore, EveryByteIsSentInRandomRuns) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Layer layer = rng.Chance(0.5) ? Layer::kPrimary : Layer::kCache;
    const bool fresh = rng.Chance(0.5);
    const int64_t total = rng.Between(0, 5000);
    const int64_t there = rng.Chance(0.5) ? 0 : rng.Between(0, total);
    CopyCore core({.piece_bytes_max = rng.Between(1, 400), .reads_max = 5}, layer, 16, fresh);
    std::vector<CopyCore::Read> reads;
    std::string got(static_cast<size_t>(total), '.');
    int64_t downstream = there;
    std::fill_n(got.begin(), there, 'x');
    int64_t in_order = 0;
    for (int step = 0; downstream < total; ++step) {
      ASSERT_LT(step, 100000);
      if (rng.Chance(0.2)) {
        const int64_t n = rng.Between(0, total);
        ASSERT_TRUE(core.OnSource(Source(n, n)).ok());
      }
      if (step == 300) {
        ASSERT_TRUE(core.OnSource(Source(total, total)).ok());
      }
      if (!core.opened() && rng.Chance(0.05)) {
        ASSERT_TRUE(core.OnOpened(there, 0, 700).ok());
        in_order = std::max(in_order, there);
      }
      if (const auto read = core.NextRead()) reads.push_back(*read);
      if (!reads.empty() && rng.Chance(0.5)) {
        const size_t i = rng.Below(reads.size());
        const CopyCore::Read read = reads[i];
        reads.erase(reads.begin() + static_cast<int64_t>(i));
        const int64_t end = rng.Chance(0.3) ? rng.Between(read.from, read.to) : read.to;
        if (const auto at = core.OnReadDone(read.id, end)) {
          if (layer == Layer::kPrimary) {
            ASSERT_LE(*at, in_order) << "a hole";
            in_order = std::max(in_order, end);
          }
          std::fill(got.begin() + *at, got.begin() + end, 'x');
        }
      }
      downstream = std::min<int64_t>(total, static_cast<int64_t>(got.find('.')));
      if (got.find('.') == std::string::npos) downstream = total;
      if (core.opened() && rng.Chance(0.3)) {
        ASSERT_TRUE(core.OnProgress(downstream, 0, 0).ok());
      }
    }
  }
}

}  // namespace
}  // namespace tailcast::reader
