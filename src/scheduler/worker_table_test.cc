#include "tailcast/scheduler/worker_table.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/rng.h"

namespace tailcast::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

class WorkerTableTest : public ::testing::Test {
 protected:
  WorkerTableTest() {
    workers_.SetReaders(
        At(0), {{"r0", "a:1", ProcessIncarnation{1}}, {"r1", "a:2", ProcessIncarnation{2}}});
    workers_.SetWriters(
        At(0), "b", "via:1",
        {{"w0", "b:1", ProcessIncarnation{1}}, {"w1", "b:2", ProcessIncarnation{2}}});
  }
  Assignment Pick(MonotonicTime now, const std::string& reader = "",
                  const std::string& writer = "") {
    const auto picked = workers_.Pick(now, "b", stream::Layer::kPrimary, {reader}, {writer});
    EXPECT_TRUE(picked.has_value());
    return picked.value_or(Assignment());
  }
  void Load(const std::string& reader, const std::string& writer, int64_t bytes_per_s) {
    workers_.AddLoad("b", stream::Layer::kPrimary, {reader, writer, "", ""}, bytes_per_s);
  }

  // Of loads of less than 4 bytes per second, 2 more are not clearly more.
  WorkerTable workers_{{.balance = {.busier_percent = 125, .slack = 2}}};
};

TEST_F(WorkerTableTest, TheLeastLoadedOfEachSideIsPicked) {
  Load("r0", "w1", 1);
  const Assignment picked = Pick(At(1));
  EXPECT_EQ(picked.reader, "r1");
  EXPECT_EQ(picked.writer, "w0");
  EXPECT_EQ(picked.writer_address, "b:1");
  EXPECT_EQ(picked.writer_via, "via:1");
}

TEST_F(WorkerTableTest, PreferredWorkersArePickedUnlessTheyAreMuchBusier) {
  Load("r0", "w0", 2);
  EXPECT_EQ(Pick(At(1), "r0", "w0").reader, "r0");
  EXPECT_EQ(Pick(At(1), "r0", "w0").writer, "w0");
  Load("r0", "w0", 1);
  EXPECT_EQ(Pick(At(1), "r0", "w0").reader, "r1");
  EXPECT_EQ(Pick(At(1), "r0", "w0").writer, "w1");
}

TEST_F(WorkerTableTest, WhoFailsAgainAndAgainIsAvoidedForLonger) {
  Load("r1", "w1", 1);
  const auto avoided_ms = [&](int64_t from) {
    int64_t ms = from;
    while (Pick(At(ms)).writer != "w0") ms += 100;
    return ms - from;
  };
  workers_.AvoidWriter(At(100), "b", "w0");
  workers_.AvoidWriter(At(100), "b", "w0");
  EXPECT_EQ(avoided_ms(100), 1000) << "all of its operations at once are one failure";
  workers_.AvoidWriter(At(1200), "b", "w0");
  EXPECT_EQ(avoided_ms(1200), 2000);
  workers_.AvoidWriter(At(3300), "b", "w0");
  EXPECT_EQ(avoided_ms(3300), 4000);
  workers_.AvoidWriter(At(60000), "b", "w0");
  EXPECT_EQ(avoided_ms(60000), 1000) << "that was long ago";
  workers_.AvoidWriter(At(61000), "b", "w0");
  workers_.SetWriters(At(61001), "b", "via:1",
                      {{"w0", "b:1", ProcessIncarnation{9}}, {"w1", "b:2", ProcessIncarnation{2}}});
  EXPECT_EQ(avoided_ms(61001), 0) << "another process";
}

// Or one would copy to disks and another to caches: nobody could say which of them is slow.
TEST_F(WorkerTableTest, OfEquallyLoadedOnesTheOneWithFewerOfTheLayerIsPicked) {
  std::map<std::string, std::set<stream::Layer>> copy;
  for (int file = 0; file < 2; ++file) {
    for (const stream::Layer layer : {stream::Layer::kPrimary, stream::Layer::kCache}) {
      const auto picked = workers_.Pick(At(1), "b", layer, {}, {});
      ASSERT_TRUE(picked);
      workers_.AddLoad("b", layer, *picked, 160);
      copy[picked->reader].insert(layer);
      copy[picked->writer].insert(layer);
    }
  }
  for (const char* name : {"r0", "r1", "w0", "w1"}) EXPECT_EQ(copy[name].size(), 2u) << name;
}

// Each of them has as much as the other one, and w0 nearly all that goes to disks.
TEST_F(WorkerTableTest, WhoHasMostOfALayerIsBusierForIt) {
  constexpr stream::Layer kPrimary = stream::Layer::kPrimary, kCache = stream::Layer::kCache;
  for (int i = 0; i < 12; ++i) {
    const bool few = i % 4 == 3;
    workers_.AddLoad("b", kPrimary, {i % 2 ? "r1" : "r0", few ? "w1" : "w0", "", ""}, 20);
    workers_.AddLoad("b", kCache, {i % 2 ? "r1" : "r0", few ? "w0" : "w1", "", ""}, 20);
  }
  ASSERT_EQ(workers_.WriterLoad("b", "w0").bytes_per_s, 240);
  ASSERT_EQ(workers_.WriterLoad("b", "w1").bytes_per_s, 240);
  const auto pick = [&](stream::Layer layer, const std::string& before) {
    const auto picked = workers_.Pick(At(1), "b", layer, {}, {before, 20});
    return picked ? picked->writer : "";
  };
  EXPECT_EQ(pick(kPrimary, ""), "w1");
  EXPECT_EQ(pick(kPrimary, "w0"), "w0") << "a shard's next file stays";
  EXPECT_EQ(pick(kCache, ""), "w0");
  const auto imbalances = workers_.Imbalances(At(1));
  ASSERT_EQ(imbalances.size(), 2u) << "of the writers";
  for (const auto& imbalance : imbalances) {
    EXPECT_EQ(imbalance.from, imbalance.layer == kPrimary ? "w0" : "w1");
    EXPECT_EQ(imbalance.gap, 60);
  }
}

// As the scheduler does it; each move takes something off the sum of squares.
TEST_F(WorkerTableTest, EveningTheLayersEnds) {
  struct Operation {
    stream::Layer layer;
    int64_t load;
    std::string writer;
  };
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    WorkerTable table{{.balance = {.busier_percent = 125, .slack = 2}}};
    std::vector<WorkerInfo> writers;
    for (int w = 0; w < 4; ++w)
      writers.push_back({"w" + std::to_string(w), "b:1", ProcessIncarnation{1}});
    table.SetReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
    table.SetWriters(At(0), "b", "", writers);
    std::vector<Operation> operations;
    for (int i = 0; i < 40; ++i) {
      operations.push_back({rng.Chance(0.5) ? stream::Layer::kPrimary : stream::Layer::kCache,
                            rng.Between(1, 100), "w" + std::to_string(rng.Between(0, 3))});
      const Operation& o = operations.back();
      table.AddLoad("b", o.layer, {"r0", o.writer, "", ""}, o.load);
    }
    int moves = 0;
    for (bool moved = true; moved && moves < 1000;) {
      moved = false;
      for (const WorkerTable::Shedding& s : table.Imbalances(At(1))) {
        Operation* best = nullptr;
        int64_t best_gain = 0;
        for (Operation& o : operations) {
          if (o.writer != s.from || o.layer != s.layer) continue;
          const int64_t gain = MoveGain(table.balance(), o.load, s.gap);
          if (gain > best_gain) best = &o;
          best_gain = std::max(gain, best_gain);
        }
        if (best == nullptr) continue;
        table.DropLoad("b", best->layer, {"r0", best->writer, "", ""}, best->load);
        best->writer = s.to;
        table.AddLoad("b", best->layer, {"r0", best->writer, "", ""}, best->load);
        ++moves;
        moved = true;
        break;
      }
    }
    ASSERT_LT(moves, 60) << "seed " << seed;
  }
}

TEST_F(WorkerTableTest, WhoIsSlowIsAvoidedAndThenTriedWithOneOperation) {
  MonotonicTime now = At(1000);
  const Lane slow{{{"s", stream::StreamIncarnation{1}}, 0}, stream::Layer::kPrimary, "b"};
  const Lane fast{{{"s", stream::StreamIncarnation{1}}, 1}, stream::Layer::kPrimary, "b"};
  std::string writer = "w0";  // of the lane that is slow there
  const auto rounds = [&](int n, int64_t w0_ms) {
    std::optional<WorkerSpeed::Relief> relief;
    for (int i = 0; i < n && !relief; ++i) {
      for (const int report : {1, 2, 3}) {
        const MonotonicTime at = now + Duration::Millis(500 * report);
        const int64_t ms = writer == "w0" ? w0_ms : 1;
        workers_.speed().OnTimes(at, slow, "r0", writer, Duration(), Duration::Millis(ms));
        workers_.speed().OnTimes(at, fast, "r1", "w1", Duration(), Duration::Millis(1));
      }
      now = now + WorkerSpeed::kRound;
      relief = workers_.JudgeSpeeds(now);
    }
    return relief;
  };
  Load("r0", "w0", 1);
  const auto relief = rounds(10, 500);
  ASSERT_TRUE(relief);
  EXPECT_EQ(relief->worker, (WorkerId{"b", "w0"}));
  EXPECT_EQ(relief->operations, 1);
  workers_.speed().OnMoved(slow);
  writer = "w1";
  workers_.DropLoad("b", stream::Layer::kPrimary, {"r0", "w0", "", ""}, 1);
  Load("r0", "w1", 100);
  EXPECT_EQ(Pick(now).writer, "w1") << "however busy that is";
  EXPECT_EQ(Pick(now, "", "w0").writer, "w0") << "it keeps what was not taken from it";
  EXPECT_FALSE(rounds(4, 500));
  EXPECT_EQ(Pick(now, "", "w0").writer, "w1");
  EXPECT_EQ(workers_.speed().state({"b", "w0"}), SpeedState::kAvoided);
  workers_.AvoidWriter(now, "b", "w1");
  EXPECT_EQ(Pick(now).writer, "w0") << "one that fails is worse";
  EXPECT_FALSE(rounds(15, 500));
  EXPECT_EQ(Pick(now).writer, "w0") << "on trial";
  Load("r0", "w0", 1);
  EXPECT_EQ(Pick(now).writer, "w1") << "with one";
  writer = "w0";
  EXPECT_FALSE(rounds(5, 2));
  EXPECT_EQ(Pick(now).writer, "w0");
}

TEST_F(WorkerTableTest, AReaderThatWasAwayIsNotBlamedForItsPredecessor) {
  workers_.SetReaders(At(1), {{"r0", "a:1", ProcessIncarnation{1}}});
  workers_.SetReaders(At(100),
                      {{"r0", "a:1", ProcessIncarnation{1}}, {"r1", "a:3", ProcessIncarnation{3}}});
  Load("r0", "w0", 1);
  EXPECT_EQ(Pick(At(101)).reader, "r1");
}

TEST_F(WorkerTableTest, NobodyIsPickedForACellWithoutWriters) {
  EXPECT_FALSE(workers_.Pick(At(1), "c", stream::Layer::kPrimary, {}, {}).has_value());
  workers_.SetWriters(At(1), "b", "", {});
  EXPECT_FALSE(workers_.Pick(At(1), "b", stream::Layer::kPrimary, {}, {}).has_value());
}

TEST_F(WorkerTableTest, WhoIsAvoidedIsPickedOnlyIfThereIsNobodyElse) {
  workers_.AvoidWriter(At(0), "b", "w0");
  EXPECT_EQ(Pick(At(1), "", "w0").writer, "w1");
  workers_.AvoidWriter(At(10), "b", "w1");
  EXPECT_EQ(Pick(At(11)).writer, "w0") << "the one that may be forgiven first";
  EXPECT_EQ(Pick(At(1005), "", "w0").writer, "w0") << "a second later it is forgiven";
}

TEST_F(WorkerTableTest, ANewProcessOfAWritersNameIsNotBlamedForItsPredecessor) {
  workers_.AvoidWriter(At(0), "b", "w0");
  workers_.SetWriters(At(10), "b", "",
                      {{"w0", "b:7", ProcessIncarnation{3}}, {"w1", "b:2", ProcessIncarnation{2}}});
  EXPECT_EQ(Pick(At(11)).writer_address, "b:7");
}

TEST_F(WorkerTableTest, ALostReaderGetsNothingUntilItIsFoundAgain) {
  EXPECT_TRUE(workers_.LoseReader(At(0), "r0"));
  EXPECT_TRUE(workers_.LoseReader(At(1), "r0"));
  EXPECT_FALSE(workers_.LoseReader(At(1), "nobody"));
  EXPECT_EQ(workers_.readers_lost(), 1) << "it was lost once";
  workers_.LoseReader(At(0), "r1");
  EXPECT_FALSE(workers_.Pick(At(1), "b", stream::Layer::kPrimary, {}, {}).has_value());
  workers_.FindReader("r0");
  EXPECT_EQ(Pick(At(2)).reader, "r0") << "avoided, but the only one";
}

TEST_F(WorkerTableTest, AReaderThatIsGoneOrReplacedLosesItsOperations) {
  EXPECT_THAT(workers_.SetReaders(At(1), {{"r0", "a:1", ProcessIncarnation{1}},
                                          {"r1", "a:2", ProcessIncarnation{2}}}),
              IsEmpty());
  EXPECT_THAT(workers_.SetReaders(At(2), {{"r0", "a:9", ProcessIncarnation{7}}}),
              ElementsAre("r0", "r1"));
  EXPECT_EQ(Pick(At(3)).reader, "r0") << "its new process can be used";
  EXPECT_EQ(workers_.readers_lost(), 2);
  EXPECT_THAT(workers_.SetReaders(At(4), {{"r0", "a:9", ProcessIncarnation{7}},
                                          {"r1", "a:2", ProcessIncarnation{2}}}),
              IsEmpty());
  EXPECT_EQ(Pick(At(2000), "r1").reader, "r1");
}

TEST_F(WorkerTableTest, LoadIsCountedOfWorkersThatAreNotKnownYet) {
  workers_.AddLoad("c", stream::Layer::kPrimary, {"r9", "w9", "", ""}, 5);
  EXPECT_FALSE(workers_.Pick(At(1), "c", stream::Layer::kPrimary, {}, {}).has_value());
  workers_.SetWriters(At(2), "c", "",
                      {{"w8", "c:1", ProcessIncarnation{1}}, {"w9", "c:2", ProcessIncarnation{2}}});
  EXPECT_EQ(workers_.WriterLoad("c", "w9").operations, 1);
  EXPECT_EQ(workers_.WriterLoad("c", "w9").bytes_per_s, 5);
  EXPECT_EQ(workers_.Pick(At(3), "c", stream::Layer::kPrimary, {}, {})->writer, "w8");
  workers_.DropLoad("c", stream::Layer::kPrimary, {"r9", "w9", "", ""}, 5);
  EXPECT_EQ(workers_.WriterLoad("c", "w9").operations, 0);
  EXPECT_EQ(workers_.ReaderLoad("r9").bytes_per_s, 0);
}

TEST_F(WorkerTableTest, BytesCountNotOperations) {
  Load("r0", "w0", 1000);
  for (int i = 0; i < 20; ++i) {
    const Assignment picked = Pick(At(1));
    EXPECT_EQ(picked.reader, "r1") << "though it runs " << i << " operations, the other one";
    EXPECT_EQ(picked.writer, "w1");
    Load("r1", "w1", 1);
  }
}

TEST_F(WorkerTableTest, AFileStaysWithItsShardsWorkersWhateverTheFileBeforeCostsThem) {
  Load("r0", "w0", 1000);
  EXPECT_EQ(Pick(At(1), "r0", "w0").reader, "r1") << "a thousand more of others";
  const auto successor =
      workers_.Pick(At(1), "b", stream::Layer::kPrimary, {"r0", 1000}, {"w0", 1000});
  ASSERT_TRUE(successor);
  EXPECT_EQ(successor->reader, "r0") << "they are its predecessor's";
  EXPECT_EQ(successor->writer, "w0");
}

TEST_F(WorkerTableTest, ALoadThatChangesIsCounted) {
  Load("r0", "w0", 10);
  Load("r1", "w1", 5);
  EXPECT_EQ(Pick(At(1)).reader, "r1");
  workers_.ChangeLoad("b", stream::Layer::kPrimary, {"r1", "w1", "", ""}, 20);
  EXPECT_EQ(Pick(At(1)).reader, "r0");
  EXPECT_EQ(Pick(At(1)).writer, "w0");
  EXPECT_EQ(workers_.ReaderLoad("r1").bytes_per_s, 25);
}

TEST_F(WorkerTableTest, SheddingIsFromTheMostToTheLeastLoadedIfTheyDifferMuch) {
  Load("r0", "w0", 2);
  EXPECT_TRUE(workers_.Imbalances(At(0)).empty());
  Load("r0", "w1", 1);
  auto imbalances = workers_.Imbalances(At(0));
  ASSERT_EQ(imbalances.size(), 1u);
  EXPECT_EQ(imbalances[0].cell, "") << "the readers'";
  EXPECT_EQ(imbalances[0].from, "r0");
  EXPECT_EQ(imbalances[0].to, "r1");
  EXPECT_EQ(imbalances[0].gap, 3);
  Load("r0", "w0", 10);
  Load("r1", "w0", 10);
  imbalances = workers_.Imbalances(At(0));
  ASSERT_EQ(imbalances.size(), 1u) << "the readers have 13 and 10 now";
  EXPECT_EQ(imbalances[0].cell, "b");
  EXPECT_EQ(imbalances[0].from, "w0");
  EXPECT_EQ(imbalances[0].to, "w1");
  EXPECT_EQ(imbalances[0].gap, 21);
  workers_.AvoidWriter(At(0), "b", "w1");
  EXPECT_TRUE(workers_.Imbalances(At(1)).empty()) << "to whom something was blamed a moment ago";
  workers_.ChangeLoad("b", stream::Layer::kPrimary, {"r0", "w0", "", ""}, 100);
  ASSERT_EQ(workers_.Imbalances(At(1)).size(), 1u);
  workers_.LoseReader(At(1), "r1");
  EXPECT_TRUE(workers_.Imbalances(At(1)).empty()) << "nobody is there to take it";
}

}  // namespace
}  // namespace tailcast::scheduler
