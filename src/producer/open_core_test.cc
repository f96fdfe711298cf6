// The opening protocol, step by step (spec RollOver).
#include "tailcast/producer/open_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/stream/index_record.h"

namespace tailcast::producer {
namespace {

using Kind = OpenEffect::Kind;
using stream::Part;
using stream::Stem;
using ::testing::HasSubstr;

const WallTime kNow = WallTime::FromMicros(9'000'000);
const Stem kOne{1, 1000, 0, 0};
const Stem kTwo{2, 2000, 500, 5};

std::vector<storage::DirEntry> Files(std::initializer_list<std::pair<Stem, int>> stems) {
  std::vector<storage::DirEntry> entries;
  for (const auto& [stem, parts] : stems) {
    entries.push_back({FileName(stem, Part::kData)});
    if (parts == 2) entries.push_back({FileName(stem, Part::kIndex)});
  }
  return entries;
}

std::string Index(int records) {
  std::string bytes;
  for (int i = 0; i < records; ++i) stream::IndexRecord{i * 100, 100, 7, 5000 + i}.AppendTo(bytes);
  return bytes;
}

class OpenCoreTest : public ::testing::Test {
 protected:
  OpenCore Core(bool takeover = true) {
    return OpenCore({{"s", stream::StreamIncarnation{1}}, 0}, OpenOptions{.takeover = takeover}, 1);
  }
  static stream::PairMetadata Metadata(int64_t heartbeat, bool sealed = false) {
    stream::PairMetadata metadata;
    metadata.created_us = 1000;
    metadata.heartbeat_us = heartbeat;
    if (sealed) metadata.seal[0] = metadata.seal[1] = 0;
    return metadata;
  }
};

TEST_F(OpenCoreTest, AnEmptyShardBeginsAtFileOne) {
  auto core = Core(false);
  EXPECT_EQ(core.Start().kind, Kind::kList);
  auto e = core.OnListed(Files({}), kNow);
  ASSERT_EQ(e.kind, Kind::kCreate);
  EXPECT_EQ(e.part, Part::kData) << "the data file first: the index file commits the pair";
  EXPECT_EQ(e.stem.seq, 1);
  EXPECT_EQ(e.stem.start_byte, 0);
  e = core.OnCreated(OkStatus());
  ASSERT_EQ(e.kind, Kind::kCreate);
  EXPECT_EQ(e.part, Part::kIndex);
  EXPECT_EQ(core.OnCreated(OkStatus()).kind, Kind::kList);
  EXPECT_EQ(core.OnListed(Files({{e.stem, 2}}), kNow).kind, Kind::kOpened);
  EXPECT_TRUE(core.predecessors().empty());
}

TEST_F(OpenCoreTest, AFileSaysTheChunkSizeThatIsSetElseThatOfTheFileBefore) {
  const auto opened = [&](const stream::Stem* head, int64_t first, int64_t set) {
    OpenCore core({{"s", stream::StreamIncarnation{1}}, 0},
                  OpenOptions{.takeover = true, .chunk_size = first}, 1);
    core.SetChunkSize(set);
    const stream::Stem none{1, 1000, 0, 0};
    const auto e = core.StartRoll(head == nullptr ? none : *head, {}, 0, kNow);
    EXPECT_EQ(e.kind, Kind::kCreate);
    return e.stem.chunk_size;
  };
  stream::Stem head{1, 1000, 0, 0};
  head.chunk_size = 16384;
  EXPECT_EQ(opened(nullptr, 4096, 0), 4096);
  EXPECT_EQ(opened(&head, 4096, 0), 16384) << "what a producer before this one chose";
  EXPECT_EQ(opened(&head, 4096, 512), 512);
  EXPECT_EQ(opened(&head, 0, 512), 0) << "the stream has one size";
}

TEST_F(OpenCoreTest, TheHeadIsFencedIndexFirstAndItsSealReadFromIt) {
  auto core = Core();
  core.Start();
  auto e = core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow);
  ASSERT_EQ(e.kind, Kind::kFence);
  EXPECT_EQ(e.part, Part::kIndex);
  EXPECT_EQ(e.stem, kTwo);
  e = core.OnFenced(3 * stream::kIndexRecordSize + 10, kNow);
  ASSERT_EQ(e.kind, Kind::kFence);
  EXPECT_EQ(e.part, Part::kData);
  e = core.OnFenced(350, kNow);
  ASSERT_EQ(e.kind, Kind::kReadIndex);
  EXPECT_EQ(e.to, 3 * stream::kIndexRecordSize) << "a partial record is ignored";
  e = core.OnIndexRead(Index(3), kNow);
  ASSERT_EQ(e.kind, Kind::kCreate);
  EXPECT_EQ(e.stem.seq, 3);
  EXPECT_EQ(e.stem.start_byte, 800) << "payload beyond the last record is ignored";
  EXPECT_EQ(e.stem.start_number, 8);
  EXPECT_GT(e.stem.created_us, kTwo.created_us);
  core.OnCreated(OkStatus());
  EXPECT_EQ(core.OnCreated(OkStatus()).kind, Kind::kList);
  EXPECT_EQ(core.OnListed(Files({{kOne, 2}, {kTwo, 2}, {e.stem, 2}}), kNow).kind, Kind::kOpened);
  ASSERT_EQ(core.predecessors().size(), 2u);
  EXPECT_EQ(core.predecessors()[0].seal, (stream::Seal{{300, 96}}));
  EXPECT_EQ(core.predecessors()[1].seal, (stream::Seal{{500, 160}}));
  EXPECT_EQ(core.last_time_us(), 5002);
}

TEST_F(OpenCoreTest, HalfAPairIsCompletedForItsOwnerAndClosedEmpty) {
  auto core = Core();
  core.Start();
  auto e = core.OnListed(Files({{kOne, 2}, {kTwo, 1}}), kNow);
  ASSERT_EQ(e.kind, Kind::kCreate);
  EXPECT_TRUE(e.helping);
  EXPECT_EQ(e.stem, kTwo);
  EXPECT_EQ(e.part, Part::kIndex);
  for (const Status& outcome : {OkStatus(), AlreadyExistsError("its owner was faster")}) {
    OpenCore copy = core;
    EXPECT_EQ(copy.OnCreated(outcome).kind, Kind::kFence);
    copy.OnFenced(0, kNow);
    e = copy.OnFenced(0, kNow);
    ASSERT_EQ(e.kind, Kind::kCreate);
    EXPECT_EQ(e.stem.seq, 3);
    EXPECT_EQ(e.stem.start_byte, kTwo.start_byte);
  }
}

TEST_F(OpenCoreTest, ALostRaceForTheNumberBeginsAgain) {
  for (int lost : {0, 1}) {
    auto core = Core();
    core.Start();
    core.OnListed(Files({}), kNow);
    if (lost == 1) core.OnCreated(OkStatus());
    EXPECT_EQ(core.OnCreated(AlreadyExistsError("x")).kind, Kind::kList);
    EXPECT_EQ(core.OnListed(Files({{kOne, 2}}), kNow).kind, Kind::kFence);
  }
}

TEST_F(OpenCoreTest, RacesAreBounded) {
  auto core = Core();
  auto e = core.Start();
  for (int i = 0; i < 1000 && e.kind != Kind::kFailed; ++i) {
    ASSERT_EQ(e.kind, Kind::kList);
    core.OnListed(Files({}), kNow);
    e = core.OnCreated(AlreadyExistsError("x"));
  }
  EXPECT_TRUE(IsUnavailable(e.status));
}

TEST_F(OpenCoreTest, AfterAnErrorItBeginsAgainFromTheTopWhenToldTo) {
  auto core = Core();
  core.Start();
  EXPECT_EQ(core.OnListed(UnavailableError("disk"), kNow).kind, Kind::kFailing);
  EXPECT_EQ(core.OnWaited().kind, Kind::kList);
  core.OnListed(Files({}), kNow);
  auto e = core.OnCreated(ResourceExhaustedError("disk full"));
  EXPECT_EQ(e.kind, Kind::kFailing);
  EXPECT_TRUE(IsResourceExhausted(e.status));
  EXPECT_EQ(core.OnWaited().kind, Kind::kList);
}

// It slept before it created its file; others went on, and retention has deleted that number.
TEST_F(OpenCoreTest, AFileBelowTheFloorIsNobodys) {
  auto core = Core();
  core.StartRoll(kOne, {{500, 160}}, 0, kNow);
  core.OnCreated(OkStatus());
  EXPECT_EQ(core.OnCreated(OkStatus()).kind, Kind::kList);
  const Stem later{5, 9000, 4000, 40};
  auto entries = Files({{later, 2}});
  entries.push_back({stream::FloorName(4)});
  EXPECT_EQ(core.OnListed(entries, kNow).kind, Kind::kList);
  const auto e = core.OnListed(entries, kNow);
  ASSERT_EQ(e.kind, Kind::kFailed);
  EXPECT_THAT(e.status.message(), HasSubstr("took it over with file 5"));
}

TEST_F(OpenCoreTest, WithoutRoomNoFileIsOpened) {
  auto core = Core();
  // File 1 is 500 + 160 bytes; file 2 counts when there is another one.
  core.SetBytesMax(600);
  EXPECT_EQ(core.StartRoll(kTwo, {{300, 96}}, 0, kNow).kind, Kind::kList);
  auto e = core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow);
  ASSERT_EQ(e.kind, Kind::kFull);
  EXPECT_TRUE(IsResourceExhausted(e.status));
  EXPECT_THAT(e.status.message(), HasSubstr("keeps 660 bytes"));
  EXPECT_EQ(core.OnWaited().kind, Kind::kList);
  const auto again = core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow);
  EXPECT_EQ(again.kind, Kind::kFull);
  EXPECT_GT(again.wait, e.wait) << "it may have taken a moment only";
  core.OnWaited();
  auto entries = Files({{kTwo, 2}});
  entries.push_back({stream::FloorName(2)});
  e = core.OnListed(entries, kNow);
  ASSERT_EQ(e.kind, Kind::kCreate);
  EXPECT_EQ(e.stem.seq, 3);
  EXPECT_EQ(e.stem.start_byte, 800);
}

// The scheduler, who makes room, counts no more than that.
TEST_F(OpenCoreTest, WhatIsAtTheLimitIsRoom) {
  auto core = Core();
  core.SetBytesMax(660);
  core.StartRoll(kTwo, {{300, 96}}, 0, kNow);
  EXPECT_EQ(core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow).kind, Kind::kCreate);
}

TEST_F(OpenCoreTest, ALimitThatWasRaisedIsRoom) {
  auto core = Core();
  core.SetBytesMax(600);
  core.StartRoll(kTwo, {{300, 96}}, 0, kNow);
  core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow);
  core.SetBytesMax(0);
  core.OnWaited();
  EXPECT_EQ(core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow).kind, Kind::kCreate);
}

// Whoever waited for room does not get the number that another one took meanwhile.
TEST_F(OpenCoreTest, WhoWaitsForRoomSeesThatItWasTakenOver) {
  auto core = Core();
  core.SetBytesMax(600);
  core.StartRoll(kTwo, {{300, 96}}, 0, kNow);
  core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow);
  core.OnWaited();
  const Stem three{3, 8000, 800, 8};
  ASSERT_EQ(core.OnListed(Files({{kOne, 2}, {kTwo, 2}, {three, 2}}), kNow).kind, Kind::kCreate);
  EXPECT_EQ(core.OnCreated(AlreadyExistsError("x")).kind, Kind::kList);
  EXPECT_EQ(core.OnListed(Files({{kOne, 2}, {kTwo, 2}, {three, 2}}), kNow).kind, Kind::kFailed);
}

TEST_F(OpenCoreTest, AHeartbeatThatMovesTwiceIsALiveProducer) {
  auto core = Core(false);
  core.Start();
  int64_t heartbeat = 1'000'000;
  auto e = core.OnListed(Files({{kOne, 2}}), kNow);
  for (int i = 0; i < 20 && e.kind != Kind::kFailed; ++i) {
    ASSERT_EQ(e.kind, Kind::kReadMetadata);
    if (i == 3 || i == 6) heartbeat += 1'000'000;
    e = core.OnMetadata({{Metadata(heartbeat), stream::PairMetadata()}});
    if (e.kind == Kind::kFailed) {
      EXPECT_EQ(i, 6);
      break;
    }
    ASSERT_EQ(e.kind, Kind::kWait);
    ASSERT_EQ(core.OnWaited().kind, Kind::kList);
    e = core.OnListed(Files({{kOne, 2}}), kNow);
  }
  ASSERT_EQ(e.kind, Kind::kFailed);
  EXPECT_TRUE(IsFailedPrecondition(e.status));
  EXPECT_THAT(e.status.message(), HasSubstr("has a live producer"));
}

// What too few whole replicas don't have may be there all the same.
TEST_F(OpenCoreTest, MetadataThatIsKnownInPartSaysNothingOfAProducer) {
  auto core = Core(false);
  core.Start();
  auto e = core.OnListed(Files({{kOne, 2}}), kNow);
  Duration waited;
  for (int i = 0; i < 1000 && e.kind == Kind::kReadMetadata; ++i) {
    e = core.OnPartialMetadata();
    if (e.kind != Kind::kWait) break;
    waited = waited + e.wait;
    ASSERT_EQ(core.OnWaited().kind, Kind::kList);
    e = core.OnListed(Files({{kOne, 2}}), kNow);
  }
  ASSERT_EQ(e.kind, Kind::kFailed);
  EXPECT_TRUE(IsFailedPrecondition(e.status));
  EXPECT_THAT(e.status.message(), HasSubstr("too few replicas"));
  EXPECT_EQ(waited, OpenCore::kCachesMax);
}

TEST_F(OpenCoreTest, AHeartbeatThatStandsIsADeadProducer) {
  for (int64_t late : {0, 1}) {  // once it may move: a request that was on its way
    auto core = Core(false);
    core.Start();
    auto e = core.OnListed(Files({{kOne, 2}}), kNow);
    Duration waited;
    for (int i = 0; e.kind == Kind::kReadMetadata; ++i) {
      e = core.OnMetadata({{Metadata(i == 0 ? 5 : 5 + late), stream::PairMetadata()}});
      if (e.kind != Kind::kWait) break;
      waited = waited + e.wait;
      core.OnWaited();
      e = core.OnListed(Files({{kOne, 2}}), kNow);
    }
    EXPECT_EQ(e.kind, Kind::kFence);
    EXPECT_GE(waited.millis(), 2500);
  }
}

TEST_F(OpenCoreTest, AClosedHeadNeedsNoWaiting) {
  auto core = Core(false);
  core.Start();
  core.OnListed(Files({{kOne, 2}}), kNow);
  EXPECT_EQ(core.OnMetadata({{Metadata(5, true), stream::PairMetadata()}}).kind, Kind::kFence);
}

TEST_F(OpenCoreTest, AClosedHeadWithASuccessorIsARollOverInProgress) {
  auto core = Core(false);
  core.Start();
  core.OnListed(Files({{kOne, 2}}), kNow);
  EXPECT_EQ(core.OnMetadata({{Metadata(5, true), Metadata(6)}}).kind, Kind::kWait);
}

TEST_F(OpenCoreTest, AnUnreachableMetadataCacheIsARefusalThatSaysSo) {
  auto core = Core(false);
  core.Start();
  core.OnListed(Files({{kOne, 2}}), kNow);
  const auto e = core.OnMetadata(UnavailableError("no replica answered"));
  ASSERT_EQ(e.kind, Kind::kFailed);
  EXPECT_THAT(e.status.message(), HasSubstr("take over with --takeover"));
}

TEST_F(OpenCoreTest, AnOwnerThatFindsAForeignNewerFileStops) {
  auto core = Core();
  core.StartRecovery(kOne);
  const auto e = core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow);
  ASSERT_EQ(e.kind, Kind::kFailed);
  EXPECT_THAT(e.status.message(), HasSubstr("another producer took it over"));
}

TEST_F(OpenCoreTest, AnOwnerRecognisesWhatItTriedToCreate) {
  auto core = Core();
  auto e = core.StartRoll(kOne, {{500, 160}}, 1500, kNow);
  ASSERT_EQ(e.kind, Kind::kCreate);
  const Stem tried = e.stem;
  EXPECT_EQ(tried.start_byte, 500);
  EXPECT_EQ(core.OnCreated(UnavailableError("done or not?")).kind, Kind::kFailing);
  core.OnWaited();
  e = core.OnListed(Files({{kOne, 2}, {tried, 1}}), kNow);
  ASSERT_EQ(e.kind, Kind::kCreate) << "it was done: half a pair of ours";
  EXPECT_TRUE(e.helping);
}

TEST_F(OpenCoreTest, AFolderThatContradictsItselfIsAnAlarm) {
  auto core = Core();
  core.Start();
  auto e = core.OnListed({{storage::DirEntry{FileName(kOne, Part::kIndex)}}}, kNow);
  EXPECT_TRUE(IsDataLoss(e.status)) << "an index without its data";
}

TEST_F(OpenCoreTest, TheLastRecordOfTheIndexSaysWhereTheFileEnds) {
  const std::string bytes = Index(4);
  EXPECT_EQ(OpenCore::EndOfIndex(bytes, 64, 1000)->seal, (stream::Seal{{400, 64 + 128}}));
  EXPECT_EQ(OpenCore::EndOfIndex(bytes, 0, 400)->seal, (stream::Seal{{400, 128}}));
}

TEST_F(OpenCoreTest, WhatWasAcknowledgedAndIsNotThereIsAnAlarmAndNeverAShorterFile) {
  const std::string bytes = Index(4);
  EXPECT_TRUE(IsDataLoss(OpenCore::EndOfIndex(bytes, 0, 399).status())) << "a payload is gone";
  std::string broken = bytes;
  broken[100] ^= 1;
  EXPECT_TRUE(IsDataLoss(OpenCore::EndOfIndex(broken, 0, 1000).status())) << "a record is gone";
  EXPECT_TRUE(IsDataLoss(OpenCore::EndOfIndex(std::string(64, '\0'), 0, 1000).status()));

  auto core = Core();
  core.Start();
  core.OnListed(Files({{kOne, 2}, {kTwo, 2}}), kNow);
  core.OnFenced(4 * stream::kIndexRecordSize, kNow);
  ASSERT_EQ(core.OnFenced(399, kNow).kind, Kind::kReadIndex);
  const auto e = core.OnIndexRead(bytes, kNow);
  ASSERT_EQ(e.kind, Kind::kFailed);
  EXPECT_TRUE(IsDataLoss(e.status)) << e.status;
  EXPECT_NE(e.status.ToString().find("file 2"), std::string::npos) << e.status;
}

}  // namespace
}  // namespace tailcast::producer
