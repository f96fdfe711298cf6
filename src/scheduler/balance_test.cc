// Who gets what by how many bytes it moves (load_balance.h): a scheduler's core, driven by reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/base/fault_point.h"
#include "tailcast/scheduler/core_fixture.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::Operation;
using stream::OperationTarget;

constexpr int64_t kHeavy = 10'000'000, kLight = 100'000;  // bytes per second

class BalanceTest : public SchedulerCoreTest {
 protected:
  // All shards of one stream to cell b.
  void Shards(int shards) {
    v1::StreamConfig s = Stream({{"a", "b"}});
    s.set_shards(shards);
    core_.OnStream(At(0), s, out_);
  }
  void OneReader() {
    Workers();
    core_.OnReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
  }
  static stream::FileId FileOf(int shard, int64_t seq = 1) {
    return {{{"s", stream::StreamIncarnation{7}}, shard}, File(seq)};
  }
  // What each shard moves per second, to the primary layer only.
  void SetRate(int shard, int64_t bytes_per_s) { rates_[shard] = bytes_per_s; }

  void Notice(int shard, int64_t seq = 1) {
    core_.OnNotice(now_, FileOf(shard, seq), kOpen, out_);
    Go();
  }
  // Starts what is due and confirms it.
  void Go() {
    for (const Operation& o : Started(now_)) {
      core_.OnStarted(reader_of_[o.id], {o});
      running_[o.target] = o;
      sent_[o.id] += 0;
    }
  }
  // Time goes by, and readers report twice a second.
  void Run(int seconds) {
    for (int i = 0; i < 2 * seconds; ++i) {
      now_ = now_ + Duration::Millis(500);
      for (const auto& [target, o] : running_) {
        const auto rate = rates_.find(target.file.shard.shard);
        if (target.layer != Layer::kPrimary || rate == rates_.end()) continue;
        v1::OperationReport report;
        stream::ToProto(o, report.mutable_operation());
        report.set_state(v1::OPERATION_RUNNING);
        report.set_opened(true);
        report.set_sent_bytes(sent_[o.id] += rate->second / 2);
        core_.OnReport(now_, reader_of_.at(o.id), report, out_);
      }
      Go();
    }
  }
  // As often as the driver does it.
  void ShedFor(int seconds) {
    for (int s = 0; s < seconds; s += 5) {
      Run(5);
      core_.Shed(now_);
      Go();
    }
  }
  std::string ReaderOf(int shard, int64_t seq = 1, Layer layer = Layer::kPrimary) {
    return reader_of_.at(running_.at({FileOf(shard, seq), layer, "b"}).id);
  }
  std::string WriterOf(int shard, int64_t seq = 1) {
    return running_.at({FileOf(shard, seq), Layer::kPrimary, "b"}).writer_name;
  }
  int64_t LoadOf(const std::string& reader) const {
    return core_.workers().ReaderLoad(reader).bytes_per_s;
  }

  // Readers report twice a second what the parts of the operations take, which depends on who does
  // them.
  void RunWithTimes(int seconds, const std::map<std::string, int64_t>& slow_ms) {
    for (int i = 0; i < 2 * seconds; ++i) {
      now_ = now_ + Duration::Millis(500);
      const auto ms = [&](const std::string& worker) {
        const auto it = slow_ms.find(worker);
        return it == slow_ms.end() ? 1 : it->second;
      };
      for (const auto& [target, o] : std::map(running_)) {
        v1::OperationReport report;
        stream::ToProto(o, report.mutable_operation());
        report.set_state(v1::OPERATION_RUNNING);
        report.set_opened(true);
        report.set_read_us(1000 * ms(reader_of_.at(o.id)));
        report.set_write_us(1000 * std::max(ms(o.writer_name), slow_by_itself_ms_[target]));
        core_.OnReport(now_, reader_of_.at(o.id), report, out_);
      }
      Go();
    }
  }
  std::map<OperationTarget, int64_t> slow_by_itself_ms_;
  int64_t SlowMoves() const { return core_.counters().slow; }

  MonotonicTime now_ = At(1);
  std::map<int, int64_t> rates_;
  std::map<OperationTarget, Operation> running_;
  std::map<stream::OperationId, int64_t> sent_;
};

// How many of the light shards share a reader with the heavy one.
class HeavyAndLight : public BalanceTest {
 protected:
  int BesideTheHeavyOne(int light) {
    Shards(1 + light);
    Workers();
    SetRate(0, kHeavy);
    Notice(0);
    Run(3);
    int beside = 0;
    for (int shard = 1; shard <= light; ++shard) {
      SetRate(shard, 0);
      Notice(shard);
      if (ReaderOf(shard) == ReaderOf(0)) ++beside;
      if (WriterOf(shard) == WriterOf(0)) ++beside;
    }
    return beside;
  }
};

TEST_F(HeavyAndLight, IdleShardsGoWhereTheHeavyOneIsNot) { EXPECT_EQ(BesideTheHeavyOne(16), 0); }

TEST_F(HeavyAndLight, ByCountHalfOfThemWouldBeBesideIt) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  const PlantedFault fault("scheduler.load_by_count");
  EXPECT_GE(BesideTheHeavyOne(16), 16) << "of 32 ends";
}

TEST_F(BalanceTest, TheNextFileStaysWithTheWorkersOfAHeavyShard) {
  Shards(1);
  Workers();
  SetRate(0, kHeavy);
  Notice(0);
  const std::string reader = ReaderOf(0), writer = WriterOf(0);
  for (int64_t seq = 2; seq < 10; ++seq) {
    Run(3);
    Notice(0, seq);
    EXPECT_EQ(ReaderOf(0, seq), reader);
    EXPECT_EQ(WriterOf(0, seq), writer);
    Report(now_, running_.at({FileOf(0, seq - 1), Layer::kPrimary, "b"}), v1::OPERATION_DONE);
    Report(now_, running_.at({FileOf(0, seq - 1), Layer::kCache, "b"}), v1::OPERATION_DONE);
    running_.erase({FileOf(0, seq - 1), Layer::kPrimary, "b"});
  }
}

TEST_F(BalanceTest, TheNextFileOfALightShardLeavesAReaderThatIsClearlyBusier) {
  Shards(2);
  OneReader();
  SetRate(0, kHeavy);
  SetRate(1, kLight);
  Notice(0);
  Notice(1);
  Workers(now_);
  Run(5);
  Notice(1, 2);
  EXPECT_EQ(ReaderOf(1, 2), "r1");
  Notice(0, 2);
  EXPECT_EQ(ReaderOf(0, 2), "r0") << "what is beside it is little";
}

TEST_F(BalanceTest, TheNextFileCountsAtOnceWithItsShardsLastRate) {
  Shards(2);
  Workers();
  SetRate(0, kHeavy);
  Notice(0);
  Run(10);
  const std::string reader = ReaderOf(0);
  Report(now_, running_.at({FileOf(0), Layer::kPrimary, "b"}), v1::OPERATION_DONE);
  running_.erase({FileOf(0), Layer::kPrimary, "b"});
  EXPECT_LT(LoadOf(reader), kLight);
  Notice(0, 2);
  EXPECT_GE(LoadOf(ReaderOf(0, 2)), kHeavy * 9 / 10);
  const int64_t before = LoadOf("r0") + LoadOf("r1");
  Notice(1);
  EXPECT_GE(LoadOf("r0") + LoadOf("r1") - before, 2 * (kHeavy * 9 / 10))
      << "of a shard that is new: both layers as its stream's others";
}

TEST_F(BalanceTest, WhoDoesNotKeepUpIsBusierThanWhatHeMoves) {
  Shards(2);
  Workers();
  Notice(0);
  const Operation slow = running_.at({FileOf(0), Layer::kPrimary, "b"});
  v1::OperationReport report;
  stream::ToProto(slow, report.mutable_operation());
  report.set_state(v1::OPERATION_RUNNING);
  report.set_opened(true);
  report.set_source_data_length(50'000'000);
  core_.OnReport(now_, reader_of_.at(slow.id), report, out_);
  EXPECT_GE(LoadOf(ReaderOf(0)), 5'000'000);
  Notice(1);
  EXPECT_NE(ReaderOf(1), ReaderOf(0));
  report.set_data_length(50'000'000);
  core_.OnReport(now_, reader_of_.at(slow.id), report, out_);
  EXPECT_LT(LoadOf(ReaderOf(0)), kLight) << "it has caught up";
}

// All begin at one reader; then there are two.
TEST_F(BalanceTest, SheddingEvensTheBytesAndEnds) {
  constexpr int kShards = 24;
  Shards(kShards);
  OneReader();
  for (int shard = 0; shard < kShards; ++shard) {
    SetRate(shard, shard < 2 ? kHeavy : kLight * (1 + shard % 5));
    Notice(shard);
  }
  Run(5);
  Workers(now_);
  ShedFor(10);
  EXPECT_NE(ReaderOf(0), ReaderOf(1)) << "what evens it best goes first";
  ShedFor(120);
  const int64_t loads[] = {LoadOf("r0"), LoadOf("r1")};
  EXPECT_LT(std::max(loads[0], loads[1]) * 3, std::min(loads[0], loads[1]) * 4);
  const int64_t shed = core_.counters().shed;
  EXPECT_LT(shed, 24);
  ShedFor(300);
  EXPECT_EQ(core_.counters().shed, shed) << "and it is left alone";
}

TEST_F(BalanceTest, OneHeavyShardIsNotPassedBackAndForth) {
  Shards(3);
  Workers();
  SetRate(0, kHeavy);
  SetRate(1, kLight);
  SetRate(2, kLight);
  for (int shard = 0; shard < 3; ++shard) Notice(shard);
  Run(10);
  const std::string reader = ReaderOf(0);
  ShedFor(300);
  EXPECT_EQ(ReaderOf(0), reader);
  EXPECT_LE(core_.counters().shed, 3);
}

TEST_F(BalanceTest, SheddingEvensWritersToo) {
  Shards(4);
  core_.OnReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
  core_.OnWriters(At(0), "b", "", {{"w0", "b:1", ProcessIncarnation{1}}});
  for (int shard = 0; shard < 4; ++shard) {
    SetRate(shard, kHeavy);
    Notice(shard);
  }
  core_.OnWriters(now_, "b", "",
                  {{"w0", "b:1", ProcessIncarnation{1}}, {"w1", "b:2", ProcessIncarnation{2}}});
  ShedFor(60);
  std::map<std::string, int> writers;
  for (int shard = 0; shard < 4; ++shard) ++writers[WriterOf(shard)];
  EXPECT_EQ(writers["w0"], 2);
  EXPECT_EQ(writers["w1"], 2);
}

// --- workers that are slow (worker_speed.h)

class SlowTest : public BalanceTest {
 protected:
  void Begin(int shards) {
    Shards(shards);
    Workers();
    for (int shard = 0; shard < shards; ++shard) Notice(shard);
    RunWithTimes(5, {});
    ASSERT_EQ(SlowMoves(), 0);
  }
  int OperationsOf(const std::string& writer) const {
    return core_.workers().WriterLoad("b", writer).operations;
  }
};

TEST_F(SlowTest, WhatASlowWriterHasIsMovedByQuartersAndNothingComesBack) {
  Begin(40);
  ASSERT_EQ(OperationsOf("w0"), 40);
  int seconds = 0;
  for (; SlowMoves() == 0 && seconds < 10; ++seconds) RunWithTimes(1, {{"w0", 500}});
  EXPECT_LE(seconds, 6);
  EXPECT_EQ(SlowMoves(), 10);
  EXPECT_EQ(OperationsOf("w0"), 30);
  RunWithTimes(14, {{"w0", 500}});
  EXPECT_EQ(SlowMoves(), 40);
  EXPECT_EQ(OperationsOf("w0"), 0);
  for (int shard = 0; shard < 40; ++shard) Notice(shard, 2);
  EXPECT_EQ(OperationsOf("w0"), 0) << "new files go elsewhere";
  RunWithTimes(20, {{"w0", 500}});
  EXPECT_EQ(SlowMoves(), 40);
}

TEST_F(SlowTest, WhatASlowReaderHasIsMoved) {
  Begin(4);
  ASSERT_EQ(core_.workers().ReaderLoad("r1").operations, 4);
  RunWithTimes(20, {{"r1", 500}});
  EXPECT_EQ(core_.workers().ReaderLoad("r1").operations, 0);
  EXPECT_EQ(OperationsOf("w0") + OperationsOf("w1"), 8);
}

// The one with the many bytes, say: it is slow wherever it is.
TEST_F(SlowTest, AnOperationThatIsSlowByItselfIsMovedNowAndThen) {
  Begin(2);
  const OperationTarget slow{FileOf(0), Layer::kPrimary, "b"};
  ASSERT_NE(WriterOf(0), WriterOf(1)) << "each is its writer's only one of this layer";
  slow_by_itself_ms_[slow] = 500;
  RunWithTimes(30, {});
  EXPECT_EQ(SlowMoves(), 2) << "to another writer, and to another reader";
  RunWithTimes(570, {});
  EXPECT_LE(SlowMoves(), 8);
}

// However busy it is: else it would not come out whose fault it was.
TEST_F(SlowTest, WhatIsMovedKeepsItsOtherEnd) {
  Begin(4);
  for (int shard = 0; shard < 4; ++shard) SetRate(shard, kHeavy);
  std::map<OperationTarget, std::string> readers;
  for (const auto& [target, o] : running_) {
    if (o.writer_name == "w0") readers[target] = reader_of_.at(o.id);
  }
  for (int i = 0; i < 12 && SlowMoves() == 0; ++i) RunWithTimes(1, {{"w0", 500}});
  ASSERT_EQ(SlowMoves(), 1);
  for (const auto& [target, reader] : readers) {
    EXPECT_EQ(reader_of_.at(running_.at(target).id), reader) << target.ToString();
  }
}

TEST_F(SlowTest, WhereAllAreSlowOrOneIsAloneNothingMoves) {
  Begin(4);
  RunWithTimes(30, {{"w0", 900}, {"w1", 900}, {"r0", 900}, {"r1", 900}});
  EXPECT_EQ(SlowMoves(), 0);
  core_.OnWriters(now_, "b", "via:1", {{"w0", "b:1", ProcessIncarnation{1}}});
  RunWithTimes(30, {{"w0", 900}});
  EXPECT_EQ(OperationsOf("w0"), 4);
  EXPECT_LE(SlowMoves(), 2) << "to find out that it is not its reader";
}

}  // namespace
}  // namespace tailcast::scheduler
