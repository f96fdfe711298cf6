#include "tailcast/scheduler/worker_speed.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using State = SpeedState;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
WorkerId Reader(const std::string& name) { return {"", name}; }
WorkerId Writer(const std::string& name) { return {"b", name}; }

// Operations to cell b, which have their times by who runs them, and go where WorkerSpeed wants
// them to go: from who is relieved to the one of its pool that has least, or to the one that
// may have one more.
class WorkerSpeedTest : public ::testing::Test {
 protected:
  struct Operation {
    std::string reader, writer;
    int64_t slow_by_itself_ms = 0;
    bool idle = false;
  };
  static Lane LaneOf(int shard, Layer layer = Layer::kPrimary, const std::string& cell = "b") {
    return {{{"s", stream::StreamIncarnation{1}}, shard}, layer, cell};
  }
  // `each` for each pair of them.
  void Begin(const std::vector<std::string>& readers, const std::vector<std::string>& writers,
             int each = 2) {
    readers_ = readers;
    writers_ = writers;
    int shard = 0;
    for (const std::string& r : readers) {
      for (const std::string& w : writers) {
        for (int i = 0; i < each; ++i) operations_[LaneOf(shard++)] = {r, w};
      }
    }
    Run(4);
    ASSERT_TRUE(speed_.NotHealthy(now_).empty());
  }
  int Has(const WorkerId& id) const {
    int has = 0;
    for (const auto& [lane, o] : operations_) {
      if (id.is_reader() ? o.reader == id.name : o.writer == id.name) ++has;
    }
    return has;
  }
  void Run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (int report = 0; report < 4; ++report) {
        now_ = now_ + Duration::Millis(500);
        for (const auto& [lane, o] : operations_) {
          if (o.idle) {
            speed_.OnTimes(now_, lane, o.reader, o.writer, Duration(), Duration());
            continue;
          }
          const int64_t write = 40 + send_ms_[o.reader] + write_ms_[o.writer] +
                                (more_ ? more_(o.writer) : 0) + o.slow_by_itself_ms;
          speed_.OnTimes(now_, lane, o.reader, o.writer, Duration::Millis(1 + read_ms_[o.reader]),
                         Duration::Millis(write));
        }
      }
      EndRound();
    }
  }
  void EndRound() {
    std::map<WorkerId, int> there;
    for (const auto& name : readers_) there[Reader(name)] = Has(Reader(name));
    for (const auto& name : writers_) there[Writer(name)] = Has(Writer(name));
    const auto relief = speed_.OnRound(now_, there);
    if (!relief) return;
    accused_.push_back(relief->worker);
    const bool reader = relief->worker.is_reader();
    int left = relief->operations;
    for (const bool slow : {true, false}) {
      for (auto& [lane, o] : operations_) {
        std::string& runs = reader ? o.reader : o.writer;
        if (left == 0 || runs != relief->worker.name || speed_.IsSlow(lane) != slow) continue;
        const std::string to = Least(reader ? readers_ : writers_, reader);
        if (to.empty()) continue;
        speed_.OnMoved(lane);
        runs = to;
        ++moved_[lane];
        --left;
      }
    }
  }
  std::string Least(const std::vector<std::string>& pool, bool readers) const {
    std::string least;
    int has_least = 0;
    for (const std::string& name : pool) {
      const WorkerId id = readers ? Reader(name) : Writer(name);
      if (speed_.state(id) != State::kHealthy) continue;
      if (least.empty() || Has(id) < has_least) {
        least = name;
        has_least = Has(id);
      }
    }
    return least;
  }
  int Moved() const {
    int moved = 0;
    for (const auto& [lane, times] : moved_) moved += times;
    return moved;
  }
  // Rounds until it has that state; 100 if it never has.
  int Until(const WorkerId& id, State state) {
    for (int rounds = 1; rounds < 100; ++rounds) {
      Run(1);
      if (speed_.state(id) == state) return rounds;
    }
    return 100;
  }
  // How long it is avoided, when it is found slow now.
  int64_t AvoidedSeconds(const WorkerId& id) {
    EXPECT_LT(Until(id, State::kAvoided), 100);
    for (const WorkerSpeed::Slow& slow : speed_.NotHealthy(now_)) {
      if (slow.worker == id) return slow.remaining.millis() / 1000;
    }
    return 0;
  }

  const SpeedOptions options_;
  WorkerSpeed speed_{options_};
  MonotonicTime now_ = At(0);
  std::vector<std::string> readers_, writers_;
  std::map<Lane, Operation> operations_;
  std::map<std::string, int64_t> read_ms_, send_ms_, write_ms_;
  std::function<int64_t(const std::string& writer)> more_;  // ms
  std::map<Lane, int> moved_;
  std::vector<WorkerId> accused_;
};

TEST_F(WorkerSpeedTest, ASlowWriterIsRelievedByQuartersAndThenAvoided) {
  Begin({"r0", "r1"}, {"w0", "w1", "w2"}, 2);
  write_ms_["w0"] = 300;
  EXPECT_EQ(Until(Writer("w0"), State::kRelieved), 2);
  EXPECT_EQ(Has(Writer("w0")), 3) << "of four";
  EXPECT_EQ(Until(Writer("w0"), State::kAvoided), 2 * 4);
  EXPECT_EQ(Has(Writer("w0")), 0);
  EXPECT_EQ(Moved(), 4);
  const auto slow = speed_.NotHealthy(now_);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].worker, Writer("w0"));
  EXPECT_EQ(slow[0].took.millis(), 340);
  EXPECT_EQ(slow[0].peers.millis(), 40);
  EXPECT_EQ(slow[0].remaining.millis(), 30'000);
}

TEST_F(WorkerSpeedTest, AReaderThatIsSlowToReadIsRelieved) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  read_ms_["r0"] = 500;
  EXPECT_LE(Until(Reader("r0"), State::kAvoided), 10);
  EXPECT_EQ(Moved(), 4);
}

TEST_F(WorkerSpeedTest, AReaderThatIsSlowToSendIsRelievedAndNotItsWriters) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  send_ms_["r0"] = 500;
  EXPECT_LE(Until(Reader("r0"), State::kAvoided), 10);
  EXPECT_EQ(Moved(), 4);
  for (const WorkerId& id : accused_) EXPECT_EQ(id, Reader("r0"));
}

// Its lanes are the writer's: whose fault it is comes out when some have changed hands.
TEST_F(WorkerSpeedTest, ThatIsFoundOutEvenIfEachReaderHasAWriterOfItsOwn) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  for (auto& [lane, o] : operations_) o.writer = o.reader == "r0" ? "w0" : "w1";
  Run(4);
  send_ms_["r0"] = 500;
  EXPECT_LE(Until(Reader("r0"), State::kAvoided), 16);
  EXPECT_EQ(Has(Reader("r0")), 0);
  EXPECT_EQ(speed_.state(Writer("w0")), State::kHealthy);
  EXPECT_EQ(speed_.state(Writer("w1")), State::kHealthy);
  EXPECT_EQ(Has(Writer("w0")), 3) << "of four";
  Run(100);
  EXPECT_GT(Has(Writer("w0")), 0);
}

TEST_F(WorkerSpeedTest, OneOperationOfEachIsEnough) {
  Begin({"r0", "r1"}, {"w0"}, 1);
  writers_ = {"w0", "w1"};
  operations_[LaneOf(1)].writer = "w1";
  Run(4);
  send_ms_["r0"] = 500;
  EXPECT_LE(Until(Reader("r0"), State::kAvoided), 12);
}

TEST_F(WorkerSpeedTest, WhereAllAreSlowNobodyIs) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  write_ms_ = {{"w0", 900}, {"w1", 1100}};
  send_ms_ = {{"r0", 900}, {"r1", 1100}};
  Run(50);
  EXPECT_EQ(Moved(), 0);
}

TEST_F(WorkerSpeedTest, OneAloneIsNotJudged) {
  Begin({"r0"}, {"w0"});
  write_ms_["w0"] = read_ms_["r0"] = 3000;
  Run(50);
  EXPECT_EQ(Moved(), 0);
}

TEST_F(WorkerSpeedTest, LessThanTheBoundOrTwiceIsNotSlow) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  write_ms_["w0"] = 230;
  Run(20);
  write_ms_ = {{"w0", 700}, {"w1", 230}};  // a link of a quarter of a second
  Run(20);
  EXPECT_EQ(Moved(), 0);
}

TEST_F(WorkerSpeedTest, WhatIsSlowForMomentsIsForgiven) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  for (int i = 0; i < 20; ++i) {
    write_ms_["w0"] = 900;
    Run(1);
    write_ms_["w0"] = 0;
    Run(1);
  }
  EXPECT_EQ(Moved(), 0);
}

TEST_F(WorkerSpeedTest, WhoIsSlowNoMoreKeepsWhatItStillHas) {
  Begin({"r0", "r1"}, {"w0", "w1"}, 4);
  write_ms_["w0"] = 900;
  Run(3);
  write_ms_["w0"] = 0;
  Run(10);
  EXPECT_EQ(speed_.state(Writer("w0")), State::kHealthy);
  EXPECT_EQ(Moved(), 2);
}

// The other one takes a second longer with more than ten operations.
TEST_F(WorkerSpeedTest, WhatTheOthersCannotBearIsNotGivenToThem) {
  Begin({"r0", "r1"}, {"w0", "w1"}, 4);
  more_ = [&](const std::string& writer) {
    return writer == "w1" && Has(Writer("w1")) > 10 ? 1000 : 0;
  };
  write_ms_["w0"] = 500;
  Run(15);
  EXPECT_EQ(speed_.state(Writer("w0")), State::kHealthy);
  EXPECT_EQ(Has(Writer("w1")), 12) << "eight, and two quarters: the second did not help";
  Run(300);
  EXPECT_LE(Moved(), 40) << "in ten minutes, less and less often";
}

TEST_F(WorkerSpeedTest, WhoIsAvoidedIsBackWhenTheOthersAreSlow) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  write_ms_["w0"] = 500;
  ASSERT_LT(Until(Writer("w0"), State::kAvoided), 100);
  write_ms_["w1"] = 900;
  EXPECT_EQ(Until(Writer("w0"), State::kOnTrial), 2);
}

TEST_F(WorkerSpeedTest, WhatIsSlowByItselfIsMovedNowAndThenAndTheOthersAreNot) {
  for (const int64_t ms : {400, 3000}) {
    Begin({"r0", "r1", "r2"}, {"w0", "w1", "w2"}, 1);
    for (int shard = 1; shard < 9; ++shard) operations_.erase(LaneOf(shard));
    operations_[LaneOf(1)] = {"r1", "w1"};
    operations_[LaneOf(2)] = {"r2", "w2"};
    operations_[LaneOf(0)].slow_by_itself_ms = ms;
    const int before = Moved();
    Run(1800);
    EXPECT_LE(Moved() - before, 2 * 7) << "in an hour";
    EXPECT_GE(Moved() - before, 2) << "it was tried";
    EXPECT_EQ(moved_[LaneOf(1)], 0);
    EXPECT_EQ(moved_[LaneOf(2)], 0);
    for (const auto& slow : speed_.NotHealthy(now_)) EXPECT_EQ(slow.state, State::kRelieved);
    const int then = Moved();
    Run(1800);
    EXPECT_LE(Moved() - then, 2 * 2) << "in the next one";
    operations_.clear();
    moved_.clear();
    now_ = now_ + Duration::Seconds(100'000);
    EndRound();
  }
}

TEST_F(WorkerSpeedTest, ManyThatAreSlowByThemselvesBlindNobody) {
  Begin({"r0", "r1"}, {"w0", "w1", "w2"}, 4);
  for (auto& [lane, o] : operations_) {
    if (o.writer == "w0" && lane.shard.shard % 4 != 0) o.slow_by_itself_ms = 500;
  }
  Run(60);
  EXPECT_EQ(speed_.state(Writer("w0")), State::kHealthy);
  write_ms_["w1"] = 800;
  EXPECT_LE(Until(Writer("w1"), State::kAvoided), 40);
}

TEST_F(WorkerSpeedTest, HalfOfThemGoOnAndTheSlowestIsRelievedFirst) {
  Begin({"r0"}, {"w0", "w1", "w2", "w3", "w4"}, 8);
  write_ms_ = {{"w1", 500}, {"w2", 900}, {"w3", 300}};
  Run(2);
  ASSERT_EQ(accused_.size(), 1u);
  EXPECT_EQ(accused_[0], Writer("w2"));
  Run(60);
  int healthy = 0;
  for (const std::string& name : writers_) healthy += speed_.state(Writer(name)) == State::kHealthy;
  EXPECT_GE(healthy, 3) << "of five";
}

TEST_F(WorkerSpeedTest, TheLayersAreComparedEachForItself) {
  Begin({"r0"}, {"w0", "w1"}, 0);
  for (int shard = 0; shard < 4; ++shard) {
    operations_[LaneOf(shard)] = {"r0", "w0"};
    operations_[LaneOf(shard, Layer::kCache)] = {"r0", "w1"};
  }
  write_ms_["w1"] = 900;
  Run(20);
  EXPECT_EQ(Moved(), 0) << "each layer has one writer";
}

TEST_F(WorkerSpeedTest, AReaderIsComparedOverLinksOfOneLength) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  for (auto& [lane, o] : operations_) {
    if (o.reader == "r0") o.slow_by_itself_ms = 0;
  }
  for (int shard = 0; shard < 8; ++shard) {
    const Lane far = LaneOf(shard, Layer::kPrimary, "far");
    operations_[far] = {"r0", "far-0", 600};
  }
  Run(20);
  EXPECT_EQ(Moved(), 0) << "only r0 copies there";
}

TEST_F(WorkerSpeedTest, WhoIsHealthyAgainIsOnTrialAndThenAsAllOthers) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  write_ms_["w0"] = 500;
  ASSERT_LT(Until(Writer("w0"), State::kAvoided), 100);
  write_ms_["w0"] = 0;
  EXPECT_EQ(Until(Writer("w0"), State::kOnTrial), 15);
  EXPECT_TRUE(speed_.MayTryOneMore(Writer("w0")));
  operations_[LaneOf(0)].writer = "w0";
  operations_[LaneOf(0)].idle = true;
  Run(50);
  EXPECT_EQ(speed_.state(Writer("w0")), State::kOnTrial) << "who has nothing to do shows nothing";
  EXPECT_TRUE(speed_.MayTryOneMore(Writer("w0")));
  operations_[LaneOf(0)].idle = false;
  Run(2);
  EXPECT_FALSE(speed_.MayTryOneMore(Writer("w0"))) << "what it has shows it soon";
  EXPECT_LE(Until(Writer("w0"), State::kHealthy), 2);
}

TEST_F(WorkerSpeedTest, WhatIsIdleAfterAMoveDecidesNothing) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  write_ms_["w0"] = 500;
  ASSERT_LT(Until(Writer("w0"), State::kRelieved), 100);
  for (auto& [lane, o] : operations_) o.idle = true;
  Run(10);
  EXPECT_EQ(speed_.state(Writer("w0")), State::kHealthy);
  EXPECT_EQ(Moved(), 1);
}

TEST_F(WorkerSpeedTest, WhoIsFoundSlowAgainIsAvoidedForLongerUpToAQuarterOfAnHour) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  write_ms_["w0"] = 500;
  for (const int64_t seconds : {30, 60, 120, 240, 480, 900, 900}) {
    EXPECT_EQ(AvoidedSeconds(Writer("w0")), seconds);
    ASSERT_LT(Until(Writer("w0"), State::kOnTrial) % 100, 500);
    while (speed_.state(Writer("w0")) == State::kAvoided) Run(1);
    operations_[LaneOf(0)].writer = "w0";
  }
  const auto slow = speed_.NotHealthy(now_);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].took.millis(), 540) << "as it was when it was found slow";
  write_ms_["w0"] = 0;
  ASSERT_LT(Until(Writer("w0"), State::kHealthy), 100);
  now_ = now_ + Duration::Seconds(10'000);
  write_ms_["w0"] = 500;
  EXPECT_EQ(AvoidedSeconds(Writer("w0")), 30) << "that was long ago";
}

TEST_F(WorkerSpeedTest, AnotherProcessOfTheNameIsNotBlamedAndNamesAreForgotten) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  write_ms_["w0"] = 500;
  ASSERT_LT(Until(Writer("w0"), State::kAvoided), 100);
  speed_.Forget(Writer("w0"));
  EXPECT_EQ(speed_.state(Writer("w0")), State::kHealthy);
  for (const auto& name : readers_) speed_.Forget(Reader(name));
  for (const auto& name : writers_) speed_.Forget(Writer(name));
  readers_.clear();
  writers_.clear();
  operations_.clear();
  now_ = now_ + Duration::Seconds(1000);
  EndRound();
  EXPECT_EQ(speed_.size(), 0u);
}

TEST_F(WorkerSpeedTest, WhatHasChangedHandsSaysNothingAtFirst) {
  Begin({"r0", "r1"}, {"w0", "w1"});
  for (int round = 0; round < 20; ++round) {
    for (auto& [lane, o] : operations_) {
      o.writer = round % 2 == 0 ? "w1" : "w0";
      o.slow_by_itself_ms = o.reader == "r0" ? 900 : 0;  // what waited
    }
    Run(1);
  }
  EXPECT_EQ(Moved(), 0);
}

}  // namespace
}  // namespace tailcast::scheduler
