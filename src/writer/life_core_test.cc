// What all operations have in common, without a layer: lock, publication, and the way to the end.
#include "tailcast/writer/life_core.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/writer/core_testing.h"

namespace tailcast::writer {
namespace {

using Phase = LifeCore::Phase;
using stream::Layer;
using stream::LockState;
using stream::LockValue;
using ::testing::IsEmpty;

constexpr Lengths kSeal{100, 64};

class LifeCoreTest : public ::testing::Test {
 protected:
  // An operation that has its lock.
  LifeCoreTest() { EXPECT_EQ(The<WriteLock>(LockRead(std::nullopt)).value, life_.lock().mine()); }

  template <typename Method, typename... Arguments>
  Effects Give(Method method, Arguments&&... arguments) {
    Effects out;
    (life_.*method)(std::forward<Arguments>(arguments)..., out);
    return out;
  }
  Effects LockRead(const std::optional<LockValue>& seen) {
    return Give(&LifeCore::OnLockRead, now_, seen, layer_);
  }
  Effects Published(bool ok) { return Give(&LifeCore::OnPublished, now_, ok, layer_); }
  Effects Work() { return Give(&LifeCore::DoWork, now_, layer_); }
  Effects End() {
    return Give(&LifeCore::End, CancelledError("enough"), EndCause::kLayerFailed, layer_);
  }
  Effects Finish() {
    EXPECT_TRUE(life_.OnSeal(kSeal).ok());
    layer_.written = kSeal;
    return Give(&LifeCore::Finish, now_, layer_);
  }
  LockValue Mine(LockState state) const {
    LockValue value = life_.lock().mine();
    value.state = state;
    return value;
  }
  static LockValue Greater() { return {stream::Term{.attempt = 9}, 99, LockState::kHeld}; }

  MetricRegistry metrics_;
  Counters counters_{metrics_};
  BufferShare buffers_{48 << 20, counters_.buffered_primary};
  WriterOptions options_{.name = "writer-1", .cell = "eu"};
  CoreContext context_{options_, TestOperation(Layer::kPrimary, true), stream::FileSteps(),
                       counters_, buffers_};
  MonotonicTime now_ = At(1000);
  LayerView layer_;
  LifeCore life_{context_};
};

TEST_F(LifeCoreTest, ItEndsWhenItsSealIsPublished) {
  const Effects finish = Finish();
  EXPECT_EQ(life_.phase(), Phase::kFinishing);
  EXPECT_EQ(The<PublishMetadata>(finish).metadata.seal[0], kSeal[0]);
  EXPECT_EQ(The<PublishMetadata>(finish).metadata.seal[1], kSeal[1]);
  EXPECT_EQ(The<NotifyScheduler>(finish).seal, Seal(kSeal));
  EXPECT_FALSE(Has<CloseStream>(finish));
  const Effects published = Published(true);
  EXPECT_EQ(The<CloseStream>(published).cause, EndCause::kDone);
  EXPECT_TRUE(The<CloseStream>(published).status.ok());
  EXPECT_TRUE(Releases(published));
  EXPECT_EQ(life_.phase(), Phase::kGone);
}

TEST_F(LifeCoreTest, ItsWindowIsAThirdOfWhatTheOthersLeave) {
  const auto opened = Give(&LifeCore::Opened, now_, Lengths{}, storage::Epoch::kNone);
  EXPECT_EQ(The<SendOpened>(opened).window_bytes, 16 << 20);
  EXPECT_EQ(buffers_.promised(), 32 << 20) << "of two parts";
  BufferShare::Hold other(buffers_);
  other.Set(30 << 20, 0);
  layer_.buffered_bytes = 4 << 20;
  layer_.written = {1, 0};
  EXPECT_EQ(The<SendProgress>(Work()).window_bytes, 6 << 20) << "its own does not count";
  EXPECT_EQ(buffers_.held(), 34 << 20);
  other.Set(60 << 20, 0);
  layer_.written = {2, 0};
  EXPECT_EQ(The<SendProgress>(Work()).window_bytes, stream::kInitialWindowBytes) << "never none";
  layer_.buffered_bytes = 0;
  other.Set(0, 0);
  layer_.written = {3, 0};
  EXPECT_EQ(The<SendProgress>(Work()).window_bytes, 16 << 20) << "and all of it again";
  EXPECT_EQ(buffers_.held(), 0);
}

TEST_F(LifeCoreTest, WhatItsReaderMayStillSendCountsUntilItCameOrIsNoMore) {
  Give(&LifeCore::Opened, now_, Lengths{}, storage::Epoch::kNone);
  EXPECT_TRUE(life_.OnReceived(stream::Part::kData, 0, 1 << 20).ok());
  layer_.buffered_bytes = 1 << 20;
  Work();
  EXPECT_EQ(buffers_.promised(), 31 << 20);
  EXPECT_EQ(buffers_.held(), 1 << 20);
  EXPECT_TRUE(life_.OnSeal({3 << 20, 32 << 10}).ok());
  Work();
  EXPECT_EQ(buffers_.promised(), (2 << 20) + (32 << 10)) << "to the seal";
  End();
  EXPECT_EQ(buffers_.promised(), 0);
}

TEST_F(LifeCoreTest, WhatItAskedForIsTakenWhateverTheWindowIsNow) {
  EXPECT_TRUE(life_.OnReceived(stream::Part::kData, 0, stream::kInitialWindowBytes).ok());
  EXPECT_TRUE(
      IsResourceExhausted(life_.OnReceived(stream::Part::kData, 1, stream::kInitialWindowBytes)));
  Give(&LifeCore::Opened, now_, Lengths{100, 0}, storage::Epoch::kNone);
  BufferShare::Hold other(buffers_);
  other.Set(60 << 20, 0);
  layer_.written = {101, 0};
  Work();
  EXPECT_TRUE(life_.OnReceived(stream::Part::kData, 100, 16 << 20).ok());
  EXPECT_TRUE(life_.OnReceived(stream::Part::kIndex, 0, 16 << 20).ok());
  EXPECT_TRUE(IsResourceExhausted(life_.OnReceived(stream::Part::kData, 101, 16 << 20)));
}

TEST_F(LifeCoreTest, ASealThatCannotBePublishedDoesNotHoldItForEver) {
  Finish();
  for (int failures = 1; failures < options_.publish_attempts_at_end; ++failures) {
    EXPECT_FALSE(Has<CloseStream>(Published(false)));
    now_ = life_.next_due();
    EXPECT_TRUE(Has<PublishMetadata>(Work())) << "it is tried again";
  }
  EXPECT_EQ(The<CloseStream>(Published(false)).cause, EndCause::kDone);
}

TEST_F(LifeCoreTest, TheLockIsReleasedWhenNothingIsUnderWayAnyMore) {
  layer_.outstanding = 2;
  const Effects end = End();
  EXPECT_TRUE(Has<CloseStream>(end)) << "the reader does not wait for it";
  EXPECT_FALSE(Releases(end));
  layer_.outstanding = 1;
  EXPECT_THAT(Give(&LifeCore::OnCallReturned, layer_), IsEmpty());
  EXPECT_EQ(life_.phase(), Phase::kDraining);
  layer_.outstanding = 0;
  EXPECT_TRUE(Releases(Give(&LifeCore::OnCallReturned, layer_)));
  EXPECT_EQ(life_.phase(), Phase::kGone);
}

TEST_F(LifeCoreTest, NothingMattersToAnEndedOperation) {
  layer_.outstanding = 1;
  End();
  for (const Phase ended : {Phase::kDraining, Phase::kGone}) {
    ASSERT_EQ(life_.phase(), ended);
    EXPECT_THAT(LockRead(Greater()), IsEmpty());
    life_.OnLockUnavailable(now_);
    EXPECT_EQ(life_.phase(), ended);
    EXPECT_THAT(Give(&LifeCore::OnReaderGone, OkStatus(), layer_), IsEmpty());
    EXPECT_THAT(Give(&LifeCore::OnChecked, DataLossError("wrong"), layer_), IsEmpty());
    EXPECT_THAT(Give(&LifeCore::Fenced, now_, Greater(), layer_), IsEmpty());
    EXPECT_THAT(Published(true), IsEmpty());
    EXPECT_THAT(Work(), IsEmpty());
    EXPECT_THAT(End(), IsEmpty());
    EXPECT_EQ(life_.phase(), ended);
    EXPECT_EQ(life_.next_due(), MonotonicTime::Max());
    layer_.outstanding = 0;
    Give(&LifeCore::OnCallReturned, layer_);
  }
}

TEST_F(LifeCoreTest, AGreaterOperationSupersedesItAndKeepsItsLock) {
  const Effects out = LockRead(Greater());
  EXPECT_EQ(The<SendSuperseded>(out).term, Greater().term);
  EXPECT_EQ(The<CloseStream>(out).cause, EndCause::kSuperseded);
  EXPECT_TRUE(IsAborted(The<CloseStream>(out).status));
  EXPECT_FALSE(Has<WriteLock>(out));
}

TEST_F(LifeCoreTest, PoisonIsAnsweredWithTheReleaseOnceNothingIsUnderWay) {
  layer_.outstanding = 1;
  const Effects out = LockRead(Mine(LockState::kPoisoned));
  EXPECT_EQ(The<CloseStream>(out).cause, EndCause::kSuperseded);
  EXPECT_FALSE(Has<WriteLock>(out)) << "the other one would begin beside our call";
  layer_.outstanding = 0;
  EXPECT_TRUE(Releases(Give(&LifeCore::OnCallReturned, layer_)));
}

TEST_F(LifeCoreTest, AFenceEndsItWithTheWinnersTermIfThatIsKnown) {
  EXPECT_EQ(The<SendSuperseded>(Give(&LifeCore::Fenced, now_, Greater(), layer_)).term,
            Greater().term);
  LifeCore other(context_);
  Effects out;
  other.Fenced(now_, std::nullopt, layer_, out);
  EXPECT_EQ(The<SendSuperseded>(out).term, stream::Term());
}

TEST_F(LifeCoreTest, AnotherSealThanTheKnownOneIsRefused) {
  EXPECT_TRUE(IsInvalidArgument(life_.OnSeal({100, 63}))) << "no whole index records";
  EXPECT_TRUE(IsInvalidArgument(life_.OnSeal({-1, 0})));
  EXPECT_FALSE(life_.seal());
  EXPECT_TRUE(life_.OnSeal(kSeal).ok());
  EXPECT_TRUE(life_.OnSeal(kSeal).ok());
  EXPECT_TRUE(IsDataLoss(life_.OnSeal({101, 64})));
  EXPECT_EQ(life_.seal(), Seal(kSeal));
}

TEST_F(LifeCoreTest, WrongInputEndsItAndRightInputIsWorkedOn) {
  EXPECT_TRUE(Has<DoWorkLater>(Give(&LifeCore::OnChecked, OkStatus(), layer_)));
  const Effects out = Give(&LifeCore::OnChecked, DataLossError("wrong"), layer_);
  EXPECT_EQ(The<CloseStream>(out).cause, EndCause::kRejectedInput);
  EXPECT_TRUE(IsDataLoss(The<CloseStream>(out).status));
}

TEST_F(LifeCoreTest, ProgressIsToldOnceFromTheOpeningOn) {
  layer_.written = {10, 32};
  EXPECT_FALSE(Has<SendProgress>(Work())) << "the reader does not know yet that it is open";
  Give(&LifeCore::Opened, now_, Lengths{}, storage::Epoch::kNone);
  EXPECT_EQ(The<SendProgress>(Work()).lengths, layer_.written);
  EXPECT_FALSE(Has<SendProgress>(Work()));
}

TEST_F(LifeCoreTest, AHeartbeatIsPublishedWhenWhatItCoversIsWritten) {
  life_.OnHeartbeat(77, kSeal);
  EXPECT_FALSE(Has<PublishMetadata>(Work()));
  layer_.written = kSeal;
  EXPECT_EQ(The<PublishMetadata>(Work()).metadata.heartbeat_us, 77);
}

}  // namespace
}  // namespace tailcast::writer
