#include "tailcast/scheduler/scheduler_core.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::Operation;
using stream::ShardId;
using stream::Stem;
using stream::Term;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
constexpr std::optional<int64_t> kOpen[2] = {};

class SchedulerCoreTest : public ::testing::Test {
 protected:
  static v1::StreamConfig Stream(const std::vector<std::pair<std::string, std::string>>& edges,
                                 uint64_t tree_version = 1) {
    v1::StreamConfig s;
    s.set_name("s");
    s.set_incarnation(7);
    s.set_shards(1);
    s.set_chunk_size(4096);
    s.set_source("a");
    s.set_tree_version(tree_version);
    for (const auto& [from, to] : edges) {
      auto* edge = s.add_tree();
      edge->set_from(from);
      edge->set_to(to);
    }
    return s;
  }
  static Stem File(int64_t seq) { return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2}; }
  const ShardId shard_{{"s", 7}, 0};

  void Workers(MonotonicTime now = At(0)) {
    core_.OnReaders(now, {{"r0", "a:1", 1}, {"r1", "a:2", 2}});
    core_.OnWriters(now, "b", "via:1", {{"w0", "b:1", 1}, {"w1", "b:2", 2}});
    core_.OnWriters(now, "c", "", {{"w0", "c:1", 1}});
  }
  // What was started since the last call.
  std::vector<Operation> Started(MonotonicTime now) {
    core_.DoWork(now, out_);
    std::vector<Operation> all;
    for (auto& [reader, operations] : out_.start) {
      for (auto& o : operations) {
        reader_of_[o.id] = reader;
        all.push_back(o);
      }
    }
    stopped_ = out_.stop;
    asked_ = out_.progress;
    listed_ = out_.list;
    out_ = Effects();
    return all;
  }
  void Report(MonotonicTime now, const Operation& o, v1::OperationState state,
              v1::FailureCause cause = v1::CAUSE_NONE, uint64_t superseding = 0) {
    v1::OperationReport report;
    stream::ToProto(o, report.mutable_operation());
    report.set_state(state);
    report.set_cause(cause);
    report.set_superseding_term(superseding);
    if (state == v1::OPERATION_DONE) {
      report.set_data_length(100);
      report.set_index_length(64);
      report.set_source_data_length(100);
      report.set_source_index_length(64);
    }
    core_.OnReport(now, reader_of_.at(o.id), report, out_);
  }
  Operation Only(const std::vector<Operation>& operations, Layer layer) {
    for (const Operation& o : operations) {
      if (o.target.layer == layer) return o;
    }
    ADD_FAILURE() << "no operation of the layer";
    return Operation();
  }

  SchedulerCore core_{{.cell = "a", .incarnation = 5}, 1};
  Effects out_;
  std::map<stream::OperationId, std::string> reader_of_;
  std::map<std::string, std::vector<stream::OperationId>> stopped_;
  std::set<std::pair<ShardId, std::string>> asked_;
  std::set<ShardId> listed_;
};

TEST_F(SchedulerCoreTest, ANoticedFileGetsTwoOperationsPerEdgeAtOnce) {
  core_.OnStream(At(0), Stream({{"a", "b"}, {"a", "c"}, {"c", "d"}}), out_);
  EXPECT_EQ(out_.list.size(), 1u) << "what was there before is listed";
  Workers();
  ASSERT_TRUE(core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_));
  const auto started = Started(At(1));
  ASSERT_EQ(started.size(), 4u);
  for (const Operation& o : started) {
    EXPECT_TRUE(o.fresh);
    EXPECT_EQ(o.source_cell, "a");
    EXPECT_EQ(Term::Unpack(o.id.term), (Term{1, 5, 1}));
    EXPECT_EQ(o.writer_via, o.target.cell == "b" ? "via:1" : "");
    EXPECT_FALSE(o.writer_address.empty());
  }
  EXPECT_THAT(core_.Targets(), ElementsAre("b", "c"));
}

TEST_F(SchedulerCoreTest, TheNextFileGoesToTheSamePairAndSealsTheOneBefore) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  core_.OnNotice(At(2), {shard_, File(2)}, kOpen, out_);
  const auto second = Started(At(2));
  ASSERT_EQ(second.size(), 4u) << "two new ones, and the seal for the two that run";
  int seals = 0;
  for (const Operation& o : second) {
    if (o.target.file.stem.seq == 1) {
      EXPECT_EQ(o.seal[0], 100);
      EXPECT_EQ(o.seal[1], 64);
      ++seals;
      continue;
    }
    const Operation before = Only(first, o.target.layer);
    EXPECT_EQ(o.writer_name, before.writer_name);
    EXPECT_EQ(reader_of_[o.id], reader_of_[before.id]);
  }
  EXPECT_EQ(seals, 2);
}

TEST_F(SchedulerCoreTest, WorkIsSpreadOverWorkers) {
  v1::StreamConfig s = Stream({{"a", "b"}});
  s.set_shards(10);
  core_.OnStream(At(0), s, out_);
  Workers();
  for (int n = 0; n < 10; ++n) core_.OnNotice(At(1), {{{"s", 7}, n}, File(1)}, kOpen, out_);
  std::map<std::string, int> readers, writers;
  for (const Operation& o : Started(At(1))) {
    ++readers[reader_of_[o.id]];
    ++writers[o.writer_name];
  }
  EXPECT_EQ(readers["r0"], 10);
  EXPECT_EQ(writers["w0"], 10);
}

TEST_F(SchedulerCoreTest, ALostWriterIsReplacedAtOnceByAnotherWithAGreaterTerm) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const Operation first = Only(Started(At(1)), Layer::kCache);
  core_.OnStarted(reader_of_[first.id], {first.id});
  Report(At(50), first, v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  const auto again = Started(At(50));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].writer_name, first.writer_name);
  EXPECT_GT(again[0].id.term, first.id.term);
  EXPECT_FALSE(again[0].fresh);
  // Once more: with back-off, so that nothing spins.
  Report(At(60), again[0], v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  EXPECT_THAT(Started(At(60)), IsEmpty());
  EXPECT_EQ(core_.NextWork(), At(110));
  EXPECT_EQ(Started(At(110)).size(), 1u);
  // A report of the first attempt that comes late changes nothing.
  Report(At(111), first, v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  EXPECT_THAT(Started(At(111)), IsEmpty());
  EXPECT_EQ(core_.counters().stale_reports, 1);
}

TEST_F(SchedulerCoreTest, AllOperationsOfALostReaderMoveToAnother) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  const std::string dead = reader_of_[first[0].id];
  core_.OnReaderLost(At(50), dead);
  for (const Operation& o : Started(At(50))) EXPECT_NE(reader_of_[o.id], dead);
  EXPECT_EQ(core_.counters().readers_lost, 1);
}

TEST_F(SchedulerCoreTest, ARestartedReaderLosesItsOperations) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  core_.OnReaders(At(0), {{"r0", "a:1", 1}});
  core_.OnWriters(At(0), "b", "", {{"w0", "b:1", 1}});
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  ASSERT_EQ(Started(At(1)).size(), 2u);
  core_.OnReaders(At(500), {{"r0", "a:9", 2}});
  EXPECT_EQ(Started(At(500)).size(), 2u) << "it is the only one there is";
}

TEST_F(SchedulerCoreTest, WithoutWorkersOperationsWait) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  EXPECT_THAT(Started(At(1)), IsEmpty());
  EXPECT_EQ(core_.counters().no_worker, 2);
  Workers(At(50));
  EXPECT_THAT(Started(At(50)), IsEmpty());
  EXPECT_EQ(Started(core_.NextWork()).size(), 2u);
}

TEST_F(SchedulerCoreTest, ListedFilesAreColdButForTheNewest) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2), File(3)}, out_);
  const auto hot = Started(At(1));
  ASSERT_EQ(hot.size(), 2u);
  for (const Operation& o : hot) {
    EXPECT_EQ(o.target.file.stem.seq, 3);
    EXPECT_FALSE(o.fresh) << "some of it may be there";
  }
  EXPECT_EQ(asked_.size(), 1u);
  EXPECT_EQ(core_.operations().LowestHeld(shard_, "b"), 1);
  // Downstream has all of 1 and a part of 2.
  core_.OnProgress(At(40), shard_, "b", 1, {{File(1), {100, 64}}, {File(2), {60, 32}}}, {},
                   INT64_MAX);
  const auto cold = Started(At(40));
  ASSERT_EQ(cold.size(), 1u);
  EXPECT_EQ(cold[0].target.file.stem.seq, 2);
  EXPECT_EQ(cold[0].target.layer, Layer::kPrimary);
  EXPECT_EQ(cold[0].seal[0], 100);
}

TEST_F(SchedulerCoreTest, NothingIsCopiedBelowTheNeighboursFloor) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2), File(3), File(4)}, out_);
  Started(At(1));
  core_.OnProgress(At(40), shard_, "b", 3, {}, {}, INT64_MAX);
  const auto cold = Started(At(40));
  ASSERT_EQ(cold.size(), 1u);
  EXPECT_EQ(cold[0].target.file.stem.seq, 3);
}

TEST_F(SchedulerCoreTest, AFailedQuestionIsAskedAgain) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2)}, out_);
  Started(At(1));
  core_.OnProgressFailed(At(10), shard_, "b");
  Started(At(20));
  EXPECT_TRUE(asked_.empty());
  EXPECT_EQ(core_.NextWork(), At(210));
  Started(At(210));
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(SchedulerCoreTest, ANeighbourWithAnotherFileUnderTheNumberIsDataLoss) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2)}, out_);
  Started(At(1));
  Stem forked = File(1);
  forked.created_us += 5;
  core_.OnProgress(At(40), shard_, "b", 1, {{forked, {100, 64}}}, {}, INT64_MAX);
  EXPECT_THAT(Started(At(40)), IsEmpty());
  EXPECT_EQ(core_.counters().data_loss, 1);
}

TEST_F(SchedulerCoreTest, OrphansOfTheSchedulerBeforeAreAdoptedNotRestarted) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1)}, out_);
  Operation orphan;
  orphan.target = {{shard_, File(1)}, Layer::kCache, "b"};
  orphan.id = {Term{1, 4, 9}.Pack(), 77};
  orphan.source_cell = "a";
  orphan.chunk_size = 4096;
  orphan.writer_name = "w1";
  reader_of_[orphan.id] = "r1";
  Report(At(2), orphan, v1::OPERATION_RUNNING);
  const auto started = Started(At(2));
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].target.layer, Layer::kPrimary);
  EXPECT_EQ(core_.counters().adopted, 1);
  // When it fails its successor has a greater term.
  Report(At(90), orphan, v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  const auto again = Started(At(90));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_GT(again[0].id.term, orphan.id.term);
}

TEST_F(SchedulerCoreTest, AnOperationThatNobodyWantsIsStopped) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  Operation foreign;
  foreign.target = {{{{"gone", 3}, 0}, File(1)}, Layer::kCache, "b"};
  foreign.id = {Term{1, 4, 9}.Pack(), 77};
  foreign.source_cell = "a";
  foreign.chunk_size = 4096;
  reader_of_[foreign.id] = "r1";
  Report(At(2), foreign, v1::OPERATION_RUNNING);
  Started(At(2));
  EXPECT_THAT(stopped_["r1"], ElementsAre(foreign.id));
}

TEST_F(SchedulerCoreTest, DoneFilesAreForgottenAndNotCopiedAgain) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  core_.OnNotice(At(2), {shard_, File(2)}, kOpen, out_);
  Started(At(2));
  for (const Operation& o : first) Report(At(3), o, v1::OPERATION_DONE);
  EXPECT_EQ(core_.unfinished(), 2);
  EXPECT_EQ(std::distance(core_.operations().begin(), core_.operations().end()), 2);
  core_.OnListing(At(4), shard_, 1, {File(1), File(2)}, out_);
  core_.OnNotice(At(4), {shard_, File(1)}, kOpen, out_);
  EXPECT_THAT(Started(At(4)), IsEmpty());
}

TEST_F(SchedulerCoreTest, AFileThatArrivesAfterItsSuccessorsWereCopiedIsCopiedToo) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(2)}, kOpen, out_);
  core_.OnNotice(At(1), {shard_, File(3)}, kOpen, out_);
  for (const Operation& o : Started(At(1))) {
    if (o.target.file.stem.seq == 2) Report(At(2), o, v1::OPERATION_DONE);
  }
  core_.OnNotice(At(3), {shard_, File(1)}, kOpen, out_);
  EXPECT_EQ(Started(At(3)).size(), 2u);
  core_.OnNotice(At(4), {shard_, File(2)}, kOpen, out_);
  EXPECT_THAT(Started(At(4)), IsEmpty());
}

TEST_F(SchedulerCoreTest, AMissedNoticeMakesItLook) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  Started(At(0));
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  Started(At(1));
  EXPECT_TRUE(listed_.empty());
  core_.OnNotice(At(2), {shard_, File(4)}, kOpen, out_);
  Started(At(2));
  EXPECT_EQ(listed_.size(), 1u);
}

TEST_F(SchedulerCoreTest, NewOperationsAreThrottled) {
  SchedulerCore core({.cell = "a", .incarnation = 5, .starting_max = 3}, 1);
  v1::StreamConfig s = Stream({{"a", "b"}});
  s.set_shards(10);
  Effects out;
  core.OnStream(At(0), s, out);
  core.OnReaders(At(0), {{"r0", "a:1", 1}});
  core.OnWriters(At(0), "b", "", {{"w0", "b:1", 1}});
  for (int n = 0; n < 10; ++n) core.OnNotice(At(1), {{{"s", 7}, n}, File(1)}, kOpen, out);
  core.DoWork(At(1), out);
  ASSERT_EQ(out.start["r0"].size(), 3u);
  EXPECT_GT(core.counters().throttled, 0);
  EXPECT_EQ(core.NextWork(), MonotonicTime::Max()) << "until a reader confirms";
  core.OnStarted("r0", {out.start["r0"][0].id});
  core.DoWork(At(2), out);
  EXPECT_EQ(out.start["r0"].size(), 4u);
}

TEST_F(SchedulerCoreTest, AReturnedReaderGetsItsShareByShedding) {
  v1::StreamConfig s = Stream({{"a", "b"}});
  s.set_shards(10);
  core_.OnStream(At(0), s, out_);
  core_.OnReaders(At(0), {{"r0", "a:1", 1}});
  core_.OnWriters(At(0), "b", "", {{"w0", "b:1", 1}});
  for (int n = 0; n < 10; ++n) core_.OnNotice(At(1), {{{"s", 7}, n}, File(1)}, kOpen, out_);
  std::vector<stream::OperationId> ids;
  for (const Operation& o : Started(At(1))) ids.push_back(o.id);
  core_.OnStarted("r0", ids);
  core_.OnReaders(At(2), {{"r0", "a:1", 1}, {"r1", "a:2", 2}});
  core_.Shed(At(3));
  const auto moved = Started(At(3));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(reader_of_[moved[0].id], "r1");
  EXPECT_TRUE(stopped_.empty()) << "the old one runs until the new one has taken over";
  for (int i = 0; i < 100; ++i) {
    core_.Shed(At(4 + i));
    for (const Operation& o : Started(At(4 + i))) core_.OnStarted(reader_of_[o.id], {o.id});
  }
  EXPECT_LT(core_.counters().shed, 8) << "it ends when the loads are near";
}

// --- changes of the tree: the steps of copytree::Diff ---

class ChangeTest : public SchedulerCoreTest {
 protected:
  using Edges = std::vector<std::pair<std::string, std::string>>;

  // What the cell's record says while `tree` replaces `base`.
  static v1::StreamConfig Change(const Edges& base, const Edges& tree, uint64_t tree_version,
                                 const Edges& abandoned = {}) {
    v1::StreamConfig s = Stream(tree, tree_version);
    const auto add = [](auto* edges, const Edges& from) {
      for (const auto& [a, b] : from) {
        auto* edge = edges->Add();
        edge->set_from(a);
        edge->set_to(b);
      }
    };
    add(s.mutable_change()->mutable_base(), base);
    add(s.mutable_change()->mutable_abandoned(), abandoned);
    return s;
  }

  // A scheduler of cell c, which was a leaf below a and now is to feed b.
  struct Parent {
    Parent() : core({.cell = "c", .incarnation = 9, .caught_up_bytes = 10}, 1) {}
    SchedulerCore core;
    Effects out;
    std::vector<Operation> Started(MonotonicTime now) {
      out.start.clear();
      core.DoWork(now, out);
      std::vector<Operation> all;
      for (auto& [reader, operations] : out.start) {
        all.insert(all.end(), operations.begin(), operations.end());
      }
      return all;
    }
    std::vector<std::string> Steps() {
      std::vector<std::string> steps;
      for (const StepTaken& step : out.steps) {
        steps.push_back(std::string(copytree::StepKindName(step.kind)) + " " + step.from + ">" +
                        step.to);
      }
      out.steps.clear();
      return steps;
    }
    bool Asked() { return !std::exchange(out.progress, {}).empty(); }
    void Report(MonotonicTime now, const Operation& o, bool opened) {
      v1::OperationReport report;
      stream::ToProto(o, report.mutable_operation());
      report.set_state(v1::OPERATION_RUNNING);
      report.set_opened(opened);
      core.OnReport(now, "r0", report, out);
    }
    // b has `there` bytes of the newest file and c `here`.
    void Answer(MonotonicTime now, const ShardId& shard, int64_t there, int64_t here) {
      core.OnProgress(now, shard, "b", 1, {{File(1), {there, 0}}}, {{File(1), {here, 0}}},
                      INT64_MAX);
    }
    void Workers(MonotonicTime now) {
      core.OnReaders(now, {{"r0", "c:1", 1}});
      core.OnWriters(now, "b", "", {{"w0", "b:1", 1}});
    }
  };
  // c knows the stream's first file and the change from a -> {b, c} to a -> c -> b.
  void Begin(Parent& c, bool settled = true) {
    c.core.OnStream(At(0), Stream({{"a", "b"}, {"a", "c"}}, 1), c.out);
    c.core.OnListing(At(0), shard_, 1, {}, c.out);
    c.Workers(At(0));
    c.core.OnNotice(At(1), {shard_, File(1)}, kOpen, c.out);
    EXPECT_THAT(c.Started(At(1)), IsEmpty()) << "a leaf copies nowhere";
    v1::StreamConfig change = Change({{"a", "b"}, {"a", "c"}}, {{"a", "c"}, {"c", "b"}}, 2);
    if (settled) change.set_settled_version(2);
    c.core.OnStream(At(10), change, c.out);
    c.Workers(At(10));
    c.core.OnListing(At(10), shard_, 1, {File(1)}, c.out);
  }
};

TEST_F(ChangeTest, TheOldEdgeGoesOnUntilItsTargetIsSettled) {
  core_.OnStream(At(0), Stream({{"a", "b"}, {"a", "c"}}, 1), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  Started(At(1));
  core_.OnStream(At(10), Change({{"a", "b"}, {"a", "c"}}, {{"a", "c"}, {"c", "b"}}, 2), out_);
  Started(At(10));
  EXPECT_TRUE(stopped_.empty()) << "make before break";
  // A file that is opened meanwhile still goes over the old edge, carefully.
  core_.OnNotice(At(20), {shard_, File(2)}, kOpen, out_);
  std::vector<Operation> to_b;
  for (const Operation& o : Started(At(20))) {
    if (o.target.cell == "b" && o.target.file.stem.seq == 2) to_b.push_back(o);
  }
  ASSERT_EQ(to_b.size(), 2u);
  EXPECT_FALSE(to_b[0].fresh);
  EXPECT_EQ(Term::Unpack(to_b[0].id.term).tree_version, 1u) << "it must lose against c's";
  // c's operation took the primary file over. The cache is ours still, also with the next file.
  const uint64_t by = Term{2, 1, 1}.Pack();
  Report(At(30), Only(to_b, Layer::kPrimary), v1::OPERATION_FAILED, v1::CAUSE_SUPERSEDED, by);
  EXPECT_TRUE(core_.Retired(shard_, "b", Layer::kPrimary));
  EXPECT_FALSE(core_.Retired(shard_, "b", Layer::kCache));
  core_.OnNotice(At(40), {shard_, File(3)}, kOpen, out_);
  int cache = 0;
  for (const Operation& o : Started(At(40))) {
    if (o.target.file.stem.seq != 3 || o.target.cell != "b") continue;
    EXPECT_EQ(o.target.layer, Layer::kCache);
    ++cache;
  }
  EXPECT_EQ(cache, 1);
  // b says that it was settled for an older tree: that is not it.
  core_.OnSettled(At(50), {"s", 7}, "b", 1, out_);
  EXPECT_TRUE(core_.Feeds({"s", 7}, "b"));
  core_.OnSettled(At(60), {"s", 7}, "b", 2, out_);
  core_.DoWork(At(60), out_);
  ASSERT_EQ(out_.steps.size(), 1u);
  EXPECT_EQ(out_.steps[0].kind, copytree::StepKind::kRemoveEdge);
  EXPECT_EQ(out_.steps[0].to, "b");
  Started(At(60));
  EXPECT_FALSE(stopped_.empty());
  EXPECT_THAT(core_.Targets(), ElementsAre("c"));
}

TEST_F(ChangeTest, ANewEdgeLooksTakesOverLooksAgainAndThenCopiesToTheCache) {
  Parent c;
  Begin(c);
  EXPECT_THAT(c.Started(At(10)), IsEmpty());
  EXPECT_THAT(c.Steps(), ElementsAre("add-edge c>b"));
  EXPECT_TRUE(c.Asked());
  c.Answer(At(20), shard_, 500, 400);
  EXPECT_THAT(c.Started(At(20)), IsEmpty()) << "it would take the file over and stand still";
  c.Started(At(220));
  EXPECT_TRUE(c.Asked());
  c.Answer(At(230), shard_, 600, 595);
  const auto first = c.Started(At(230));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].target.layer, Layer::kPrimary);
  EXPECT_EQ(Term::Unpack(first[0].id.term).tree_version, 2u);
  // This question leaves before the writer has the file: b may get more over the old edge yet.
  c.Started(At(430));
  EXPECT_TRUE(c.Asked());
  c.Report(At(431), first[0], true);
  c.Answer(At(440), shard_, 605, 605);
  EXPECT_THAT(c.Started(At(440)), IsEmpty());
  EXPECT_FALSE(c.core.Made({"s", 7}, "b"));
  // Asked after the takeover, and still behind.
  c.Started(At(640));
  EXPECT_TRUE(c.Asked());
  c.Answer(At(650), shard_, 610, 609);
  EXPECT_THAT(c.Started(At(650)), IsEmpty()) << "the old edge's cache copies feed b meanwhile";
  c.Started(At(850));
  EXPECT_TRUE(c.Asked());
  c.Answer(At(860), shard_, 610, 610);
  const auto second = c.Started(At(860));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].target.layer, Layer::kCache);
  EXPECT_TRUE(c.core.Made({"s", 7}, "b"));
  EXPECT_THAT(c.Steps(), ElementsAre("wait-caught-up c>b"));
  c.Started(At(1100));
  EXPECT_FALSE(c.Asked()) << "nothing is left to ask";
  EXPECT_EQ(c.core.NextWork(), MonotonicTime::Max());
}

TEST_F(ChangeTest, ALongerPathThatKeepsUpTakesOverToo) {
  Parent c;
  Begin(c);
  // c's path is 0.6 s longer, so b is always ahead by far more than caught_up_bytes.
  int64_t bytes = 100000;
  int64_t ms = 10;
  while (c.Started(At(ms)).empty() && ms < 3000) {
    if (c.Asked()) c.Answer(At(ms + 1), shard_, bytes, bytes - 60000);
    ms += 210;
    bytes += 21000;
  }
  EXPECT_GT(ms, 600);
  EXPECT_LT(ms, 1100);
}

TEST_F(ChangeTest, APathThatFallsBackDoesNotTakeOver) {
  Parent c;
  Begin(c);
  for (int64_t ms = 10; ms < 5000; ms += 210) {
    EXPECT_THAT(c.Started(At(ms)), IsEmpty()) << ms;
    if (c.Asked()) c.Answer(At(ms + 1), shard_, 100000 + ms * 100, 80000 + ms * 10);
  }
}

TEST_F(ChangeTest, FilesOpenedWhileTheEdgeIsBehindWaitToo) {
  Parent c;
  Begin(c);
  EXPECT_THAT(c.Started(At(10)), IsEmpty());
  c.core.OnNotice(At(11), {shard_, File(2)}, kOpen, c.out);
  EXPECT_THAT(c.Started(At(11)), IsEmpty());
  EXPECT_TRUE(c.Asked());
  // b has file 2 already; c has not all of file 1.
  c.core.OnProgress(At(20), shard_, "b", 1, {{File(1), {100, 64}}, {File(2), {50, 32}}},
                    {{File(1), {20, 0}}, {File(2), {0, 0}}}, INT64_MAX);
  EXPECT_THAT(c.Started(At(20)), IsEmpty());
  c.Started(At(230));
  c.core.OnProgress(At(240), shard_, "b", 1, {{File(1), {100, 64}}, {File(2), {50, 32}}},
                    {{File(1), {100, 64}}, {File(2), {45, 32}}}, INT64_MAX);
  const auto started = c.Started(At(240));
  ASSERT_EQ(started.size(), 1u) << "of file 1 everything is there";
  EXPECT_EQ(started[0].target.file.stem.seq, 2);
}

TEST_F(ChangeTest, AnEdgeWaitsUntilItsOwnCellIsSettled) {
  // a -> b -> c becomes a -> c -> b: c may feed b only when a feeds c.
  Parent c;
  c.core.OnStream(At(0), Stream({{"a", "b"}, {"b", "c"}}, 1), c.out);
  c.core.OnListing(At(0), shard_, 1, {File(1)}, c.out);
  v1::StreamConfig change = Change({{"a", "b"}, {"b", "c"}}, {{"a", "c"}, {"c", "b"}}, 2);
  c.core.OnStream(At(10), change, c.out);
  c.Workers(At(10));
  EXPECT_THAT(c.Started(At(10)), IsEmpty());
  EXPECT_THAT(c.Steps(), IsEmpty());
  EXPECT_FALSE(c.Asked());
  EXPECT_EQ(c.core.NextWork(), MonotonicTime::Max());
  change.set_settled_version(2);
  c.core.OnStream(At(500), change, c.out);
  c.Started(At(500));
  EXPECT_THAT(c.Steps(), ElementsAre("add-edge c>b"));
  EXPECT_TRUE(c.Asked());
}

TEST_F(ChangeTest, AShardWithoutFilesHoldsNothingUp) {
  Parent c;
  v1::StreamConfig one = Stream({{"a", "b"}, {"a", "c"}}, 1);
  one.set_shards(2);
  c.core.OnStream(At(0), one, c.out);
  v1::StreamConfig change = Change({{"a", "b"}, {"a", "c"}}, {{"a", "c"}, {"c", "b"}}, 2);
  change.set_shards(2);
  change.set_settled_version(2);
  c.core.OnStream(At(10), change, c.out);
  c.Started(At(10));
  EXPECT_FALSE(c.Asked()) << "what c has itself is not known yet";
  for (int32_t s = 0; s < 2; ++s) c.core.OnListing(At(20), {{"s", 7}, s}, 1, {}, c.out);
  for (int64_t ms : {20, 230}) {
    c.Started(At(ms));
    EXPECT_EQ(c.out.progress.size(), 2u) << ms;
    c.out.progress.clear();
    for (int32_t s = 0; s < 2; ++s) {
      c.core.OnProgress(At(ms + 1), {{"s", 7}, s}, "b", 1, {}, {}, INT64_MAX);
    }
  }
  c.Started(At(440));
  EXPECT_TRUE(c.core.Made({"s", 7}, "b"));
}

TEST_F(ChangeTest, ASchedulerThatBeginsInTheMiddleGoesOnWithBothEdges) {
  // The old parent: it knows from the record that a -> b is in use.
  const v1::StreamConfig change = Change({{"a", "b"}, {"a", "c"}}, {{"a", "c"}, {"c", "b"}}, 2);
  core_.OnStream(At(0), change, out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1)}, out_);
  int to_b = 0;
  for (const Operation& o : Started(At(1))) {
    if (o.target.cell != "b") continue;
    EXPECT_EQ(Term::Unpack(o.id.term).tree_version, 1u);
    ++to_b;
  }
  EXPECT_EQ(to_b, 2) << "a file that nobody copies is copied again";
  // The new parent: it looks anew, and takes nothing over unseen.
  Parent c;
  v1::StreamConfig settled = change;
  settled.set_settled_version(2);
  c.core.OnStream(At(0), settled, c.out);
  c.core.OnListing(At(1), shard_, 1, {File(1)}, c.out);
  c.Workers(At(1));
  EXPECT_THAT(c.Started(At(1)), IsEmpty());
  EXPECT_TRUE(c.Asked());
  // It hears that b was settled before it began.
  c.core.OnSettled(At(30), {"s", 7}, "b", 2, c.out);
  EXPECT_EQ(c.Started(At(30)).size(), 2u);
  EXPECT_TRUE(c.core.Made({"s", 7}, "b"));
  EXPECT_EQ(c.core.NextWork(), MonotonicTime::Max());
}

TEST_F(ChangeTest, TheEndOfTheChangeEndsTheWait) {
  Parent c;
  v1::StreamConfig change = Change({{"a", "b"}, {"a", "c"}}, {{"a", "c"}, {"c", "b"}}, 2);
  change.set_settled_version(2);
  c.core.OnStream(At(0), change, c.out);
  c.core.OnListing(At(1), shard_, 1, {File(1)}, c.out);
  c.Workers(At(1));
  EXPECT_THAT(c.Started(At(1)), IsEmpty());
  c.Steps();
  // Its predecessor had brought b so far; b's own record was not seen before the change was over.
  change.clear_change();
  c.core.OnStream(At(10), change, c.out);
  EXPECT_EQ(c.Started(At(10)).size(), 2u);
  EXPECT_TRUE(c.core.Made({"s", 7}, "b"));
  EXPECT_THAT(c.Steps(), IsEmpty());
  EXPECT_EQ(c.core.NextWork(), MonotonicTime::Max());
}

TEST_F(ChangeTest, AnEdgeThatComesBackTakesNothingForDone) {
  core_.OnStream(At(0), Stream({{"a", "b"}, {"a", "c"}}, 1), out_);
  Workers();
  core_.OnListing(At(0), shard_, 1, {}, out_);
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  core_.OnStream(At(10), Change({{"a", "b"}, {"a", "c"}}, {{"a", "c"}, {"c", "b"}}, 2), out_);
  for (const Operation& o : first) {
    if (o.target.cell == "b") {
      Report(At(20), o, v1::OPERATION_FAILED, v1::CAUSE_SUPERSEDED, Term{2, 1, 1}.Pack());
    }
  }
  Started(At(20));
  ASSERT_TRUE(core_.Retired(shard_, "b", Layer::kPrimary));
  // The change is taken back in the middle: c -> b is abandoned.
  core_.OnStream(At(30),
                 Change({{"a", "b"}, {"a", "c"}}, {{"a", "b"}, {"a", "c"}}, 3, {{"c", "b"}}), out_);
  Started(At(30));
  EXPECT_FALSE(core_.Retired(shard_, "b", Layer::kPrimary));
  EXPECT_EQ(core_.operations().LowestHeld(shard_, "b"), 1)
      << "it asks what b has, and goes on from there";
  core_.OnProgress(At(40), shard_, "b", 1, {{File(1), {10, 32}}}, {{File(1), {10, 32}}}, INT64_MAX);
  const auto again = Started(At(40));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(Term::Unpack(again[0].id.term).tree_version, 3u);
}

TEST_F(ChangeTest, ACellThatLeavesTheTreeIsFedUntilTheChangeIsOver) {
  core_.OnStream(At(0), Stream({{"a", "b"}, {"a", "c"}}, 1), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  Started(At(1));
  core_.OnStream(At(10), Change({{"a", "b"}, {"a", "c"}}, {{"a", "c"}}, 2), out_);
  Started(At(10));
  EXPECT_TRUE(stopped_.empty()) << "others may be fed through it yet";
  core_.OnStream(At(20), Stream({{"a", "c"}}, 2), out_);  // complete
  Started(At(20));
  size_t stops = 0;
  for (const auto& [reader, ids] : stopped_) stops += ids.size();
  EXPECT_EQ(stops, 2u);
  EXPECT_THAT(core_.Targets(), ElementsAre("c"));
}

TEST_F(ChangeTest, ADeletedStreamEndsItsChange) {
  Parent c;
  Begin(c);
  c.core.OnStreamRemoved({"s", 7}, c.out);
  EXPECT_THAT(c.Started(At(20)), IsEmpty());
  EXPECT_EQ(c.core.NextWork(), MonotonicTime::Max());
}

TEST_F(SchedulerCoreTest, ADeletedStreamEndsEverywhere) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  Started(At(1));
  core_.OnStreamRemoved({"s", 7}, out_);
  EXPECT_THAT(Started(At(2)), IsEmpty());
  EXPECT_FALSE(stopped_.empty());
  EXPECT_EQ(core_.unfinished(), 0);
  EXPECT_FALSE(core_.OnNotice(At(3), {shard_, File(2)}, kOpen, out_));
}

}  // namespace
}  // namespace tailcast::scheduler
