#include "tailcast/writer/cache_operation_core.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/writer/core_testing.h"

namespace tailcast::writer {
namespace {

using stream::LockState;
using stream::LockValue;
using stream::Part;
using Core = CacheOperationCore;
using Phase = Core::Phase;

class CacheOperationCoreTest : public CoreTest<Core> {
 protected:
  Effects Bytes(Part part, int64_t position, std::string bytes) {
    return Give(&Core::OnBytes, part, position, std::move(bytes));
  }
  Effects Metadata(const Lengths& cache, const Lengths& primary = {0, 0}) {
    stream::PairMetadata metadata;
    for (int p = 0; p < stream::kParts; ++p) {
      metadata.cache_length[p] = cache[p];
      metadata.primary_length[p] = primary[p];
    }
    return Give(&Core::OnMetadata, metadata);
  }
  Effects Written(uint64_t batch, Status status = OkStatus()) {
    return Give(&Core::OnChunksWritten, batch, status);
  }
  Effects Published() { return Give(&Core::OnPublished, OkStatus()); }
  // A fresh operation that copies, holds its lock and has published what there is.
  void Copying(Seal seal = std::nullopt) {
    Make(true, seal);
    Give(&Core::Start);
    TakeLock();
    Work();
    Published();
    ASSERT_EQ(core().phase(), Phase::kCopying);
  }
};

TEST_F(CacheOperationCoreTest, AFreshFileBeginsAtZeroAtOnce) {
  Make(true);
  const Effects out = Give(&Core::Start);
  EXPECT_EQ(The<SendOpened>(out).lengths, (Lengths{0, 0}));
  EXPECT_EQ(The<SendOpened>(out).window_bytes, options_.cache_window_bytes);
  EXPECT_TRUE(Has<NotifyScheduler>(out)) << "the next hop starts";
}

TEST_F(CacheOperationCoreTest, ASuccessorGoesOnAtTheChunkWhereTheLengthsStand) {
  Make(false);
  EXPECT_TRUE(Has<ReadMetadata>(Give(&Core::Start)));
  EXPECT_TRUE(IsInvalidArgument(The<CloseStream>(Bytes(Part::kData, 0, "abc")).status));
  Make(false);
  Give(&Core::Start);
  EXPECT_EQ(The<SendOpened>(Metadata({1000, 96})).lengths, (Lengths{512, 0}));
}

TEST_F(CacheOperationCoreTest, NothingIsWrittenBeforeTheLockIsThere) {
  Make(true);
  Give(&Core::Start);
  Bytes(Part::kData, 0, "abc");
  EXPECT_FALSE(Has<WriteChunks>(Work()));
  Give(&Core::OnLockRead, Other(6));  // a smaller one: it is poisoned and waited for
  EXPECT_FALSE(Has<WriteChunks>(Work()));
  LockValue released = Other(6);
  released.state = LockState::kReleased;
  Give(&Core::OnLockRead, released);
  EXPECT_TRUE(Has<WriteChunks>(Work()));
}

TEST_F(CacheOperationCoreTest, AnUnreachableMetadataCacheStopsNothing) {
  Make(true);
  Give(&Core::Start);
  Bytes(Part::kData, 0, "abc");
  Give(&Core::OnLockUnavailable);
  EXPECT_TRUE(Has<WriteChunks>(Work()));
  EXPECT_EQ(counters_.lock_unavailable.value(), 1);
}

TEST_F(CacheOperationCoreTest, IndexAndDataShareABatchIndexFirst) {
  Copying();
  Bytes(Part::kData, 0, std::string(600, 'a'));
  Bytes(Part::kIndex, 0, Records({600}));
  const WriteChunks write = The<WriteChunks>(Work());
  ASSERT_EQ(write.chunks.size(), 3u);
  EXPECT_EQ(write.chunks[0].part, Part::kIndex);
  EXPECT_EQ(write.chunks[1].value.size(), 512u);
  EXPECT_EQ(write.chunks[2].value.size(), 88u);
}

TEST_F(CacheOperationCoreTest, ALengthIsPublishedOnceEverythingBelowItIsWritten) {
  Copying();
  Bytes(Part::kData, 512, std::string(512, 'b'));
  const WriteChunks second = The<WriteChunks>(Work());
  Bytes(Part::kData, 0, std::string(512, 'a'));
  const WriteChunks first = The<WriteChunks>(Work());
  Written(second.batch);
  EXPECT_FALSE(Has<PublishMetadata>(Work())) << "a hole before it";
  Written(first.batch);
  const Effects out = Work();
  EXPECT_EQ(The<PublishMetadata>(out).metadata.cache_length[0], 1024);
  EXPECT_EQ(The<SendProgress>(out).lengths, (Lengths{1024, 0}));
}

TEST_F(CacheOperationCoreTest, AFailedBatchIsWrittenAgainLaterWithWhatCameMeanwhile) {
  Copying();
  Bytes(Part::kData, 0, "abc");
  Written(The<WriteChunks>(Work()).batch, UnavailableError("no quorum"));
  EXPECT_EQ(core().next_due(), now_ + options_.retry_delay * 2);
  Bytes(Part::kData, 3, "def");
  EXPECT_FALSE(Has<WriteChunks>(Work()));
  now_ = core().next_due();
  const WriteChunks again = The<WriteChunks>(Work());
  EXPECT_EQ(again.chunks[0].value, "abcdef");
  Written(again.batch, UnavailableError("no quorum"));
  EXPECT_EQ(core().next_due(), now_ + options_.retry_delay * 4) << "it doubles";
  EXPECT_EQ(counters_.cache_write_failed.value(), 2);
}

TEST_F(CacheOperationCoreTest, AMismatchIsCountedAndWrittenAgain) {
  Copying();
  Bytes(Part::kData, 0, "abc");
  Written(The<WriteChunks>(Work()).batch, DataLossError("other bytes"));
  EXPECT_EQ(counters_.cache_mismatch.value(), 1);
  now_ = core().next_due();
  EXPECT_TRUE(Has<WriteChunks>(Work()));
}

TEST_F(CacheOperationCoreTest, BatchesUnderWayAreBounded) {
  options_.cache_batches_max = 2;
  options_.cache_batch_bytes = 1;
  Copying();
  Bytes(Part::kData, 0, std::string(5 * 512, 'a'));
  const auto writes = All<WriteChunks>(Work());
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_FALSE(Has<WriteChunks>(Work()));
  Written(writes[0].batch);
  EXPECT_EQ(All<WriteChunks>(Work()).size(), 1u);
}

TEST_F(CacheOperationCoreTest, AJumpGoesNoFurtherThanThePrimaryLayerOfThisCell) {
  Copying();
  EXPECT_TRUE(Has<ReadMetadata>(Give(&Core::OnJump, Part::kData, 51200)));
  EXPECT_EQ(core().phase(), Phase::kAskingJump);
  EXPECT_FALSE(Has<ReadMetadata>(Give(&Core::OnJump, Part::kData, 102400))) << "asked already";
  Metadata({0, 0}, {30000, 0});
  EXPECT_EQ(core().phase(), Phase::kCopying);
  EXPECT_EQ(The<SendProgress>(Work()).lengths, (Lengths{30000 / 512 * 512, 0}));
  EXPECT_EQ(counters_.jumps.value(), 1);
  EXPECT_TRUE(Metadata({0, 0}, {99999, 0}).empty()) << "an answer that nobody asked for";
}

TEST_F(CacheOperationCoreTest, AJumpWithoutAnAnswerStaysWhereItIs) {
  Copying();
  Give(&Core::OnJump, Part::kData, 51200);
  Metadata({0, 0}, {0, 0});
  EXPECT_EQ(core().layer().written, (Lengths{0, 0}));
  EXPECT_EQ(counters_.jumps.value(), 0);
}

TEST_F(CacheOperationCoreTest, CopyingGoesOnWhileAJumpIsAsked) {
  Copying();
  Give(&Core::OnJump, Part::kData, 51200);
  Bytes(Part::kData, 0, std::string(512, 'a'));
  const uint64_t batch = The<WriteChunks>(Work()).batch;
  Metadata({0, 0}, {1024, 0});
  Written(batch);  // of a chunk that was jumped over
  EXPECT_EQ(core().layer().written, (Lengths{1024, 0}));
}

TEST_F(CacheOperationCoreTest, BytesBeyondTheWindowOrAgainstThoseBeforeAreRefused) {
  options_.cache_window_bytes = 1024;
  Copying();
  EXPECT_TRUE(IsResourceExhausted(
      The<CloseStream>(Bytes(Part::kData, 4096, std::string(512, 'a'))).status));
  Copying();
  Bytes(Part::kData, 0, "abc");
  EXPECT_TRUE(IsDataLoss(The<CloseStream>(Bytes(Part::kData, 0, "abd")).status));
}

TEST_F(CacheOperationCoreTest, ItEndsWithOkWhenItsSealIsPublished) {
  Copying();
  Bytes(Part::kData, 0, "abc");
  Bytes(Part::kIndex, 0, Records({3}));
  Give(&Core::OnSeal, Lengths{3, 32});
  Written(The<WriteChunks>(Work()).batch);
  Effects out = Work();  // publishes the lengths
  EXPECT_EQ(life().phase(), LifeCore::Phase::kFinishing);
  EXPECT_FALSE(Has<CloseStream>(out));
  out = Published();
  EXPECT_EQ(The<PublishMetadata>(out).metadata.seal[1], 32);
  out = Published();
  EXPECT_TRUE(The<CloseStream>(out).status.ok());
  EXPECT_TRUE(Releases(out));
}

TEST_F(CacheOperationCoreTest, PoisonEndsItAndTheReleaseWaitsForTheLastBatch) {
  options_.cache_batch_bytes = 1;
  Copying();
  Bytes(Part::kData, 0, std::string(1024, 'a'));
  const auto writes = All<WriteChunks>(Work());
  ASSERT_EQ(writes.size(), 2u);
  LockValue poison = life().lock().mine();
  poison.state = LockState::kPoisoned;
  const Effects out = Give(&Core::OnLockRead, poison);
  EXPECT_TRUE(IsAborted(The<CloseStream>(out).status));
  EXPECT_FALSE(Releases(out));
  EXPECT_FALSE(Releases(Written(writes[1].batch, UnavailableError("no quorum"))));
  EXPECT_TRUE(Releases(Written(writes[0].batch)));
  EXPECT_EQ(life().phase(), LifeCore::Phase::kGone);
}

TEST_F(CacheOperationCoreTest, AGreaterOwnerEndsItAndItsLockIsLeftAlone) {
  Copying();
  const Effects out = Give(&Core::OnLockRead, Other(9));
  EXPECT_EQ(The<SendSuperseded>(out).term, Other(9).term);
  EXPECT_FALSE(Has<WriteLock>(out));
}

TEST_F(CacheOperationCoreTest, TheReaderMayGoInEveryPhase) {
  uint64_t batch = 0;
  const std::vector<std::function<void()>> steps = {
      [&] { Give(&Core::Start); },
      [&] { TakeLock(); },
      [&] {
        Metadata({0, 0});
      },
      [&] { Bytes(Part::kData, 0, "abc"); },
      [&] { batch = The<WriteChunks>(Work()).batch; },
      [&] { Published(); },
      [&] { Give(&Core::OnJump, Part::kData, 512); },
      [&] { Written(batch, UnavailableError("no quorum")); },
  };
  for (size_t n = 0; n <= steps.size(); ++n) {
    SCOPED_TRACE(n);
    Make(false);
    for (size_t i = 0; i < n; ++i) steps[i]();
    const Effects out = Give(&Core::OnReaderGone, OkStatus());
    EXPECT_TRUE(IsCancelled(The<CloseStream>(out).status));
    EXPECT_EQ(core().next_due(), MonotonicTime::Max());
    // Whatever comes now changes nothing but that the last call returns.
    for (const Effects& late :
         {TakeLock(), Metadata({0, 0}, {512, 0}), Bytes(Part::kData, 0, "abc"), Work(),
          Give(&Core::OnJump, Part::kData, 512), Give(&Core::OnSeal, Lengths{0, 0}),
          Give(&Core::OnReaderGone, OkStatus())}) {
      EXPECT_TRUE(late.empty());
    }
    const bool released = Releases(out) || Releases(Written(batch));
    EXPECT_EQ(released, n >= 2) << "who never had the lock has nothing to release";
    EXPECT_EQ(life().phase(), LifeCore::Phase::kGone);
  }
}

TEST_F(CacheOperationCoreTest, ForeignAndRepeatedAnswersAreIgnored) {
  Copying();
  Bytes(Part::kData, 0, "abc");
  const uint64_t batch = The<WriteChunks>(Work()).batch;
  EXPECT_TRUE(Written(batch + 100).empty());
  EXPECT_FALSE(Written(batch).empty());
  EXPECT_TRUE(Written(batch).empty()) << "a second answer";
  EXPECT_TRUE(Metadata({99999, 0}).empty());
  EXPECT_EQ(core().layer().written, (Lengths{3, 0}));
}

}  // namespace
}  // namespace tailcast::writer
