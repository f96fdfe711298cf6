// Changes of the tree, as the core carries them out: the steps of copytree::Diff.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tailcast/scheduler/core_fixture.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::Operation;
using stream::ShardId;
using stream::Term;
using stream::TreeVersion;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
    Parent()
        : core({.cell = "c", .incarnation = stream::SchedulerIncarnation{9}, .caught_up_bytes = 10},
               1) {}
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
      core.OnReaders(now, {{"r0", "c:1", ProcessIncarnation{1}}});
      core.OnWriters(now, "b", "", {{"w0", "b:1", ProcessIncarnation{1}}});
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
  EXPECT_EQ(to_b[0].id.term.tree_version, TreeVersion{1}) << "it must lose against c's";
  // c's operation took the primary file over. The cache is ours still, also with the next file.
  const Term by = TermOf(2, 1, 1);
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
  core_.OnSettled(At(50), {"s", stream::StreamIncarnation{7}}, "b", TreeVersion{1}, out_);
  EXPECT_TRUE(core_.Feeds({"s", stream::StreamIncarnation{7}}, "b"));
  core_.OnSettled(At(60), {"s", stream::StreamIncarnation{7}}, "b", TreeVersion{2}, out_);
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
  EXPECT_EQ(first[0].id.term.tree_version, TreeVersion{2});
  // This question leaves before the writer has the file: b may get more over the old edge yet.
  c.Started(At(430));
  EXPECT_TRUE(c.Asked());
  c.Report(At(431), first[0], true);
  c.Answer(At(440), shard_, 605, 605);
  EXPECT_THAT(c.Started(At(440)), IsEmpty());
  EXPECT_FALSE(c.core.Made({"s", stream::StreamIncarnation{7}}, "b"));
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
  EXPECT_TRUE(c.core.Made({"s", stream::StreamIncarnation{7}}, "b"));
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
  for (int32_t s = 0; s < 2; ++s)
    c.core.OnListing(At(20), {{"s", stream::StreamIncarnation{7}}, s}, 1, {}, c.out);
  for (int64_t ms : {20, 230}) {
    c.Started(At(ms));
    EXPECT_EQ(c.out.progress.size(), 2u) << ms;
    c.out.progress.clear();
    for (int32_t s = 0; s < 2; ++s) {
      c.core.OnProgress(At(ms + 1), {{"s", stream::StreamIncarnation{7}}, s}, "b", 1, {}, {},
                        INT64_MAX);
    }
  }
  c.Started(At(440));
  EXPECT_TRUE(c.core.Made({"s", stream::StreamIncarnation{7}}, "b"));
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
    EXPECT_EQ(o.id.term.tree_version, TreeVersion{1});
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
  c.core.OnSettled(At(30), {"s", stream::StreamIncarnation{7}}, "b", TreeVersion{2}, c.out);
  EXPECT_EQ(c.Started(At(30)).size(), 2u);
  EXPECT_TRUE(c.core.Made({"s", stream::StreamIncarnation{7}}, "b"));
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
  EXPECT_TRUE(c.core.Made({"s", stream::StreamIncarnation{7}}, "b"));
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
      Report(At(20), o, v1::OPERATION_FAILED, v1::CAUSE_SUPERSEDED, TermOf(2, 1, 1));
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
  EXPECT_EQ(again[0].id.term.tree_version, TreeVersion{3});
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
  c.core.OnStreamRemoved({"s", stream::StreamIncarnation{7}}, c.out);
  EXPECT_THAT(c.Started(At(20)), IsEmpty());
  EXPECT_EQ(c.core.NextWork(), MonotonicTime::Max());
}

}  // namespace
}  // namespace tailcast::scheduler
