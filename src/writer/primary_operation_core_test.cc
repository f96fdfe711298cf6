#include "tailcast/writer/primary_operation_core.h"

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
using Core = PrimaryOperationCore;
using Phase = Core::Phase;

storage::AppendResult Outcome(storage::AppendOutcome outcome) {
  return {outcome, 0, UnavailableError("the disk said so")};
}

class PrimaryOperationCoreTest : public CoreTest<Core> {
 protected:
  Effects Bytes(Part part, int64_t position, std::string bytes) {
    return Give(&Core::OnBytes, part, position, std::move(bytes));
  }
  Effects Opened(Part part, int64_t committed = 0, storage::Epoch epoch = storage::Epoch::kFirst) {
    return Give(&Core::OnFileOpened, part, Result<OpenedFile>(OpenedFile{committed, epoch}));
  }
  Effects OpenFails(Part part, Status status) {
    return Give(&Core::OnFileOpened, part, Result<OpenedFile>(std::move(status)));
  }
  Effects Appended(Part part, storage::AppendOutcome outcome = storage::AppendOutcome::kApplied) {
    return Give(&Core::OnAppended, part, Outcome(outcome));
  }
  Effects Published(bool ok = true) {
    return Give(&Core::OnPublished, ok ? OkStatus() : UnavailableError("no quorum"));
  }
  Effects LookedAtFloor(int64_t floor = 0) { return Give(&Core::OnFloor, Result<int64_t>(floor)); }
  // A fresh operation that copies, holds its lock and has published what there is.
  void Copying(Seal seal = std::nullopt) {
    Make(true, seal);
    Give(&Core::Start);
    Give(&Core::OnFloor, Result<int64_t>(0));
    Opened(Part::kData);
    Opened(Part::kIndex);
    LookedAtFloor();
    TakeLock();
    Work();
    Published();
    ASSERT_EQ(core().phase(), Phase::kCopying);
  }
  // An append of data is under way.
  void Appending() {
    Copying();
    Bytes(Part::kData, 0, "abc");
    ASSERT_EQ(The<AppendToFile>(Work()).bytes, "abc");
  }
  std::string Name(Part part) {
    return stream::FileName(TestOperation(Core::kLayer, true).target.file.stem, part);
  }
};

TEST_F(PrimaryOperationCoreTest, AFreshFileIsCreatedAtOnceDataFirst) {
  Make(true);
  EXPECT_TRUE(Has<AskFloor>(Give(&Core::Start)));
  OpenFile open = The<OpenFile>(Give(&Core::OnFloor, Result<int64_t>(7)));
  EXPECT_EQ(open.part, Part::kData);
  EXPECT_TRUE(open.create);
  open = The<OpenFile>(Opened(Part::kData));
  EXPECT_EQ(open.part, Part::kIndex);
  EXPECT_TRUE(The<AskFloor>(Opened(Part::kIndex)).look);
  const Effects out = LookedAtFloor(7);
  EXPECT_EQ(The<SendOpened>(out).lengths, (Lengths{0, 0}));
  EXPECT_EQ(The<SendOpened>(out).window_bytes, options_.primary_window_bytes);
  EXPECT_TRUE(Has<NotifyScheduler>(out));
  EXPECT_EQ(counters_.takeovers.value(), 0);
}

TEST_F(PrimaryOperationCoreTest, AKnownFileWaitsForTheFirstLookAtItsLock) {
  Make(false);
  EXPECT_TRUE(Give(&Core::Start).empty());
  EXPECT_TRUE(Has<AskFloor>(TakeLock()));
  EXPECT_FALSE(The<OpenFile>(Give(&Core::OnFloor, Result<int64_t>(0))).create);
  Make(false);
  Give(&Core::Start);
  EXPECT_TRUE(Has<AskFloor>(Give(&Core::OnLockUnavailable))) << "nobody waits for the cache";
}

TEST_F(PrimaryOperationCoreTest, ASupersededOperationDoesNotFenceItsSuccessor) {
  Make(false);
  Give(&Core::Start);
  const Effects out = Give(&Core::OnLockRead, Other(8));
  EXPECT_FALSE(Has<AskFloor>(out));
  EXPECT_EQ(The<SendSuperseded>(out).term, Other(8).term);
  EXPECT_TRUE(IsAborted(The<CloseStream>(out).status));
  EXPECT_FALSE(Releases(out)) << "the lock is another's";
}

TEST_F(PrimaryOperationCoreTest, NothingIsCreatedBelowTheFloor) {
  Make(true);
  Give(&Core::Start);
  const Effects out = Give(&Core::OnFloor, Result<int64_t>(8));
  EXPECT_TRUE(IsOutOfRange(The<CloseStream>(out).status));
  EXPECT_EQ(The<CloseStream>(out).cause, EndCause::kRefused);
  EXPECT_FALSE(Has<OpenFile>(out));
}

// Retention deleted it between the question and the creation: nobody is told that it is there.
TEST_F(PrimaryOperationCoreTest, AFileThatFellBelowTheFloorMeanwhileIsNobodys) {
  Make(true);
  Give(&Core::Start);
  Give(&Core::OnFloor, Result<int64_t>(7));
  Opened(Part::kData);
  Opened(Part::kIndex);
  const Effects out = LookedAtFloor(8);
  EXPECT_TRUE(IsOutOfRange(The<CloseStream>(out).status));
  EXPECT_EQ(The<CloseStream>(out).cause, EndCause::kRefused);
  EXPECT_FALSE(Has<SendOpened>(out));
  EXPECT_FALSE(Has<NotifyScheduler>(out));
}

TEST_F(PrimaryOperationCoreTest, AFileThatExistsIsTakenOverAtItsCommittedLength) {
  Make(true);
  Give(&Core::Start);
  Give(&Core::OnFloor, Result<int64_t>(0));
  EXPECT_FALSE(The<OpenFile>(OpenFails(Part::kData, AlreadyExistsError(Name(Part::kData)))).create);
  Opened(Part::kData, 100, storage::Epoch{4});
  const SendOpened opened = The<SendOpened>(Opened(Part::kIndex, 64, storage::Epoch{4}));
  EXPECT_EQ(opened.lengths, (Lengths{100, 64}));
  EXPECT_EQ(opened.epoch, storage::Epoch{4});
  EXPECT_EQ(counters_.takeovers.value(), 2);
}

TEST_F(PrimaryOperationCoreTest, AnotherFileUnderTheSameNumberIsAnAlarm) {
  Make(true);
  Give(&Core::Start);
  Give(&Core::OnFloor, Result<int64_t>(0));
  const Effects out = OpenFails(Part::kData, AlreadyExistsError("another-name"));
  EXPECT_TRUE(IsDataLoss(The<CloseStream>(out).status));
}

TEST_F(PrimaryOperationCoreTest, ADamagedFileIsSetAsideAndCopiedAgainFromItsBeginning) {
  Make(false);
  Give(&Core::Start);
  TakeLock();
  EXPECT_FALSE(The<OpenFile>(Give(&Core::OnFloor, Result<int64_t>(0))).create);
  Effects out = OpenFails(Part::kData, DataLossError("it was cut"));
  EXPECT_FALSE(Has<OpenFile>(out)) << "its name is taken as long as it is there";
  EXPECT_EQ(The<SetAside>(out).part, Part::kData);
  EXPECT_TRUE(OpenFails(Part::kData, DataLossError("it was cut")).empty()) << "once";
  out = Give(&Core::OnSetAside, Part::kData, OkStatus());
  EXPECT_TRUE(The<OpenFile>(out).create);
  out = Opened(Part::kData);
  EXPECT_EQ(The<OpenFile>(out).part, Part::kIndex);
  // The index is whole. A takeover may have created it, too.
  out = OpenFails(Part::kIndex, AlreadyExistsError(Name(Part::kIndex)));
  EXPECT_FALSE(The<OpenFile>(out).create);
  EXPECT_TRUE(The<AskFloor>(Opened(Part::kIndex, 64, storage::Epoch{2})).look);
  out = LookedAtFloor();
  EXPECT_EQ(The<SendOpened>(out).lengths, (Lengths{0, 64}));
  EXPECT_EQ(counters_.damaged.value(), 1);
}

TEST_F(PrimaryOperationCoreTest, WhatCannotBeSetAsideEndsTheOperation) {
  for (const bool again : {false, true}) {
    Make(false);
    Give(&Core::Start);
    TakeLock();
    Give(&Core::OnFloor, Result<int64_t>(0));
    OpenFails(Part::kData, DataLossError("it was cut"));
    Effects out = Give(&Core::OnSetAside, Part::kData,
                       again ? NotFoundError("gone") : UnavailableError("another is at it"));
    // Who makes it damaged again and again is not fought.
    if (again) out = OpenFails(Part::kData, DataLossError("it was cut"));
    EXPECT_FALSE(Has<SetAside>(out));
    EXPECT_EQ(The<CloseStream>(out).cause, EndCause::kLayerFailed);
  }
}

TEST_F(PrimaryOperationCoreTest, AFileThatComesAndGoesIsNotChasedForEver) {
  Make(false);
  Give(&Core::Start);
  TakeLock();
  Effects out = Give(&Core::OnFloor, Result<int64_t>(0));
  int tries = 0;
  while (Has<OpenFile>(out)) {
    ASSERT_LT(++tries, 20);
    out = OpenFails(Part::kData, The<OpenFile>(out).create ? AlreadyExistsError(Name(Part::kData))
                                                           : NotFoundError("gone"));
  }
  EXPECT_TRUE(IsNotFound(The<CloseStream>(out).status));
}

TEST_F(PrimaryOperationCoreTest, AnIndexInsideARecordIsAnAlarm) {
  Make(false);
  Give(&Core::Start);
  TakeLock();
  Give(&Core::OnFloor, Result<int64_t>(0));
  Opened(Part::kData, 10);
  EXPECT_TRUE(IsDataLoss(The<CloseStream>(Opened(Part::kIndex, 33)).status));
}

TEST_F(PrimaryOperationCoreTest, BytesMayComeBeforeAFreshFileIsOpen) {
  Make(true);
  Give(&Core::Start);
  EXPECT_FALSE(Has<CloseStream>(Bytes(Part::kData, 0, "abc")));
  EXPECT_FALSE(Has<AppendToFile>(Work()));
  Give(&Core::OnFloor, Result<int64_t>(0));
  Opened(Part::kData);
  Opened(Part::kIndex);
  EXPECT_FALSE(Has<AppendToFile>(Work()));
  LookedAtFloor();
  EXPECT_EQ(The<AppendToFile>(Work()).bytes, "abc");
}

TEST_F(PrimaryOperationCoreTest, EarlyBytesOfAKnownFileOrBeyondTheWindowAreRefused) {
  Make(false);
  Give(&Core::Start);
  EXPECT_TRUE(IsInvalidArgument(The<CloseStream>(Bytes(Part::kData, 0, "abc")).status));
  const std::string most(stream::kInitialWindowBytes, 'a');
  Make(true);
  Give(&Core::Start);
  EXPECT_FALSE(Has<CloseStream>(Bytes(Part::kData, 0, most)));
  EXPECT_TRUE(IsResourceExhausted(
      The<CloseStream>(Bytes(Part::kData, stream::kInitialWindowBytes, "e")).status));
  Make(true);
  Give(&Core::Start);
  EXPECT_FALSE(Has<CloseStream>(Bytes(Part::kData, 0, most)));
  EXPECT_FALSE(Has<CloseStream>(Bytes(Part::kData, 0, most)));
  EXPECT_TRUE(IsResourceExhausted(The<CloseStream>(Bytes(Part::kData, 0, "a")).status))
      << "the same bytes again and again";
}

TEST_F(PrimaryOperationCoreTest, ALengthIsPublishedOnceItsAppendIsAcknowledged) {
  Appending();
  EXPECT_FALSE(Has<PublishMetadata>(Work()));
  const Effects out = Appended(Part::kData);
  EXPECT_EQ(The<PublishMetadata>(out).metadata.primary_length[0], 3);
  EXPECT_EQ(The<SendProgress>(Work()).lengths, (Lengths{3, 0}));
  EXPECT_EQ(counters_.bytes_primary.value(), 3);
}

TEST_F(PrimaryOperationCoreTest, AHeartbeatIsPublishedWhenItsBytesAre) {
  Appending();
  Give(&Core::OnHeartbeat, 555, Lengths{3, 0});
  EXPECT_FALSE(Has<PublishMetadata>(Work()));
  Appended(Part::kData);
  Published();
  EXPECT_EQ(The<PublishMetadata>(Work()).metadata.heartbeat_us, 555);
}

TEST_F(PrimaryOperationCoreTest, AFenceInMidAppendEndsTheOperationAndSaysWhoItWas) {
  Appending();
  EXPECT_TRUE(Has<ReadLock>(Appended(Part::kData, storage::AppendOutcome::kFenced)));
  EXPECT_EQ(core().phase(), Phase::kFenced);
  Bytes(Part::kData, 3, "def");
  EXPECT_FALSE(Has<AppendToFile>(Work())) << "a fenced operation never writes again";
  const Effects out = Give(&Core::OnWinner, Other(9));
  EXPECT_EQ(The<SendSuperseded>(out).term, Other(9).term);
  EXPECT_TRUE(IsAborted(The<CloseStream>(out).status));
  EXPECT_TRUE(Give(&Core::OnWinner, Other(9)).empty()) << "a second answer";
}

TEST_F(PrimaryOperationCoreTest, AFenceOfAnUnknownWinnerEndsItToo) {
  Appending();
  Appended(Part::kData, storage::AppendOutcome::kFenced);
  const Effects out = Give(&Core::OnWinner, std::nullopt);
  EXPECT_EQ(The<SendSuperseded>(out).term, stream::Term());
  EXPECT_TRUE(Releases(out));
}

TEST_F(PrimaryOperationCoreTest, AnAppendOfUnknownOutcomeEndsTheOperation) {
  Appending();
  const Effects out = Appended(Part::kData, storage::AppendOutcome::kUnknown);
  EXPECT_TRUE(IsUnavailable(The<CloseStream>(out).status));
  EXPECT_EQ(The<CloseStream>(out).cause, EndCause::kLayerFailed);
  EXPECT_FALSE(Has<PublishMetadata>(out));
  EXPECT_TRUE(Releases(out));
  EXPECT_EQ(counters_.append_unknown.value(), 1);
}

TEST_F(PrimaryOperationCoreTest, TheReleaseWaitsForWhatIsUnderWay) {
  Appending();
  const Effects out = Give(&Core::OnReaderGone, CancelledError("gone"));
  EXPECT_TRUE(Has<CloseStream>(out));
  EXPECT_FALSE(Releases(out));
  EXPECT_EQ(life().phase(), LifeCore::Phase::kDraining);
  EXPECT_TRUE(Releases(Appended(Part::kData)));
  EXPECT_EQ(life().phase(), LifeCore::Phase::kGone);
}

TEST_F(PrimaryOperationCoreTest, PoisonEndsItAndIsAnsweredByTheRelease) {
  Appending();
  LockValue poison = life().lock().mine();
  poison.state = LockState::kPoisoned;
  const Effects out = Give(&Core::OnLockRead, poison);
  EXPECT_TRUE(IsAborted(The<CloseStream>(out).status));
  EXPECT_FALSE(Releases(out)) << "an append is under way";
  EXPECT_TRUE(Releases(Appended(Part::kData)));
  EXPECT_EQ(counters_.poisoned.value(), 1);
}

TEST_F(PrimaryOperationCoreTest, ItEndsWithOkWhenItsSealIsPublished) {
  Copying();
  Bytes(Part::kData, 0, "abc");
  Bytes(Part::kIndex, 0, Records({3}));
  Work();
  Appended(Part::kData);
  Published();
  Work();
  Appended(Part::kIndex);
  Published();
  Give(&Core::OnSeal, Lengths{3, 32});
  Effects out = Work();
  EXPECT_EQ(The<PublishMetadata>(out).metadata.seal[0], 3);
  EXPECT_EQ((*The<NotifyScheduler>(out).seal)[1], 32);
  EXPECT_FALSE(Has<CloseStream>(out)) << "the seal is not published yet";
  EXPECT_EQ(life().phase(), LifeCore::Phase::kFinishing);
  out = Published();
  EXPECT_TRUE(The<CloseStream>(out).status.ok());
  EXPECT_TRUE(Releases(out));
  EXPECT_EQ(counters_.done.value(), 1);
}

TEST_F(PrimaryOperationCoreTest, ASealThatCannotBePublishedDoesNotHoldItForEver) {
  Copying(Lengths{0, 0});
  Effects out = Work();
  int failures = 0;
  while (!life().ended()) {
    ASSERT_LT(failures, 10);
    out = Published(false);
    ++failures;
    now_ = now_ + Duration::Seconds(1);
    if (!life().ended()) out = Work();
  }
  EXPECT_TRUE(The<CloseStream>(out).status.ok());
  EXPECT_EQ(failures, options_.publish_attempts_at_end);
  EXPECT_EQ(counters_.publish_given_up.value(), 1);
}

TEST_F(PrimaryOperationCoreTest, AFailedPublicationIsRepeatedWhenItIsDue) {
  Appending();
  Appended(Part::kData);
  Published(false);
  EXPECT_EQ(core().next_due(), now_ + options_.retry_delay * 2);
  EXPECT_FALSE(Has<PublishMetadata>(Work()));
  now_ = core().next_due();
  EXPECT_EQ(The<PublishMetadata>(Work()).metadata.primary_length[0], 3);
  EXPECT_EQ(core().next_due(), MonotonicTime::Max());
}

TEST_F(PrimaryOperationCoreTest, SealsThatContradictAndJumpsAreRefused) {
  Copying(Lengths{10, 32});
  EXPECT_TRUE(IsDataLoss(The<CloseStream>(Give(&Core::OnSeal, Lengths{11, 32})).status));
  Copying();
  EXPECT_TRUE(IsInvalidArgument(The<CloseStream>(Give(&Core::OnJump, Part::kData, 512)).status));
  EXPECT_EQ(counters_.rejected_input.value(), 2);
}

TEST_F(PrimaryOperationCoreTest, CorruptRecordsEndIt) {
  Copying();
  std::string bad = Records({0});
  bad[5] ^= 1;
  Bytes(Part::kIndex, 0, bad);
  EXPECT_TRUE(IsDataLoss(The<CloseStream>(Work()).status));
}

TEST_F(PrimaryOperationCoreTest, TheReaderMayGoInEveryPhase) {
  const std::vector<std::function<void()>> steps = {
      [&] { Give(&Core::Start); },
      [&] { TakeLock(); },
      [&] { Give(&Core::OnFloor, Result<int64_t>(0)); },
      [&] { Opened(Part::kData); },
      [&] { Opened(Part::kIndex); },
      [&] { Bytes(Part::kData, 0, "abc"); },
      [&] { Work(); },
      [&] { Published(); },
      [&] { Appended(Part::kData, storage::AppendOutcome::kFenced); },
  };
  for (size_t n = 0; n <= steps.size(); ++n) {
    SCOPED_TRACE(n);
    Make(false);
    for (size_t i = 0; i < n; ++i) steps[i]();
    const Effects out = Give(&Core::OnReaderGone, OkStatus());
    EXPECT_TRUE(IsCancelled(The<CloseStream>(out).status));
    EXPECT_EQ(core().next_due(), MonotonicTime::Max());
    // Whatever comes now changes nothing but that the last call returns.
    for (Effects late : {TakeLock(), Give(&Core::OnFloor, Result<int64_t>(0)), Opened(Part::kData),
                         Opened(Part::kIndex), Bytes(Part::kData, 0, "abc"), Work(),
                         Give(&Core::OnSeal, Lengths{0, 0}), Give(&Core::OnWinner, Other(9)),
                         Give(&Core::OnReaderGone, OkStatus())}) {
      EXPECT_TRUE(late.empty());
    }
    const bool released = Releases(out) || Releases(Appended(Part::kData));
    EXPECT_EQ(released, n >= 2) << "who never had the lock has nothing to release";
    EXPECT_EQ(life().phase(), LifeCore::Phase::kGone);
  }
}

TEST_F(PrimaryOperationCoreTest, ForeignAndRepeatedAnswersAreIgnored) {
  Copying();
  EXPECT_TRUE(Appended(Part::kData).empty()) << "nothing is being appended";
  EXPECT_TRUE(Opened(Part::kData, 999).empty());
  EXPECT_TRUE(Give(&Core::OnFloor, Result<int64_t>(100)).empty());
  EXPECT_TRUE(Give(&Core::OnWinner, Other(9)).empty());
  EXPECT_EQ(core().layer().written, (Lengths{0, 0}));
}

}  // namespace
}  // namespace tailcast::writer
