#include "tailcast/cell/departures.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/cell/catalogue.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::cell {
namespace {

using ::testing::HasSubstr;

using Edges = std::vector<std::pair<std::string, std::string>>;

// The catalogues of the source, us, and of asia, which is in its stream's first tree.
class DeparturesTest : public ::testing::Test {
 protected:
  DeparturesTest() {
    v1::StreamConfig stream;
    stream.set_name("flights");
    SetTree({{"us", "eu"}, {"eu", "asia"}}, &stream);
    const auto made = us_.BeginCreate(stream, {}, WallTime::FromMicros(77));
    EXPECT_TRUE(made.ok()) << made.status();
    us_.FinishCreate(stream::IdOf(*made));
    id_ = stream::IdOf(*made);
    EXPECT_TRUE(asia_.InstallStream(Config()).ok());
    Written();
  }
  static void SetTree(const Edges& edges, v1::StreamConfig* stream) {
    stream->clear_tree();
    stream->clear_destinations();
    for (const auto& [from, to] : edges) {
      stream->add_destinations(to);
      v1::TreeEdge* edge = stream->add_tree();
      edge->set_from(from);
      edge->set_to(to);
    }
  }
  const v1::StreamConfig& Config() const { return *us_.FindStream("flights"); }
  Status Reroute(const Edges& edges) {
    v1::StreamConfig next = Config();
    next.set_tree_version(next.tree_version() + 1);
    SetTree(edges, &next);
    return us_.InstallStream(next).status();
  }
  void EndChange() { us_.SetFinished("flights", stream::TreeVersionOf(Config())); }
  // As the registry does when the state is written.
  void Written() {
    us_.OnWritten(us_durable_, us_.OnTaken());
    asia_.OnWritten(asia_durable_, asia_.OnTaken());
  }
  uint64_t Order() const { return us_durable_.leavers(0).order(); }

  const std::vector<std::string> cells_ = {"us", "eu", "asia"};
  v1::RegistrySnapshot us_durable_, asia_durable_;
  Catalogue us_{{.cell = "us", .known_cells = cells_, .peers = {"asia", "eu"}}, &us_durable_, 1};
  Catalogue asia_{
      {.cell = "asia", .known_cells = cells_, .peers = {"us", "eu"}}, &asia_durable_, 2};
  stream::StreamId id_;
};

TEST_F(DeparturesTest, WhoIsInTheTreeNoMoreIsALeaverAndGoesWhenTheChangeIsOver) {
  EXPECT_EQ(us_.leavers().size(), 0);
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  Written();
  ASSERT_EQ(us_.leavers().size(), 1);
  EXPECT_EQ(us_.leavers().at(0).cell(), "asia");
  EXPECT_FALSE(us_.leavers().at(0).going());
  EXPECT_TRUE(NamesCell(Config(), "asia")) << "eu may be fed by it still";
  EXPECT_FALSE(us_.BeginGoing(id_, "asia", Order()));
  EndChange();
  EXPECT_FALSE(us_.BeginGoing(id_, "asia", Order() + 1)) << "of another time";
  EXPECT_FALSE(us_.BeginGoing(id_, "eu", Order()));
  EXPECT_TRUE(us_.BeginGoing(id_, "asia", Order()));
  EXPECT_FALSE(us_.leavers().at(0).going()) << "it is not written";
  Written();
  EXPECT_TRUE(us_.leavers().at(0).going());
  us_.OnGone(id_, "asia", Order() + 1);
  EXPECT_EQ(us_durable_.leavers_size(), 1);
  us_.OnGone(id_, "asia", Order());
  Written();
  EXPECT_EQ(us_.leavers().size(), 0);
}

TEST_F(DeparturesTest, WhoComesBackBeforeItsCopiesGoIsNoLeaver) {
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  const uint64_t order = Order();
  ASSERT_TRUE(Reroute({{"us", "asia"}}).ok());
  ASSERT_EQ(us_durable_.leavers_size(), 1);
  EXPECT_EQ(us_durable_.leavers(0).cell(), "eu");
  EXPECT_FALSE(us_.BeginGoing(id_, "asia", order));
  EXPECT_FALSE(us_.BeginGoing(id_, "eu", Order())) << "the change from the first tree is open";
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  ASSERT_EQ(us_durable_.leavers_size(), 1);
  EXPECT_EQ(us_durable_.leavers(0).cell(), "asia");
  EXPECT_GT(Order(), order) << "it leaves another time";
}

TEST_F(DeparturesTest, NoTreeNamesACellWhoseCopiesGo) {
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  EndChange();
  ASSERT_TRUE(us_.BeginGoing(id_, "asia", Order()));
  const Status refused = Reroute({{"us", "eu"}, {"eu", "asia"}});
  EXPECT_TRUE(IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cell 'asia' deletes the copies"));
  us_.OnGone(id_, "asia", Order());
  EXPECT_TRUE(Reroute({{"us", "eu"}, {"eu", "asia"}}).ok());
}

TEST_F(DeparturesTest, ADeletedStreamHasNoLeavers) {
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  ASSERT_TRUE(us_.DeleteStream("flights").ok());
  EXPECT_EQ(us_durable_.leavers_size(), 0);
}

TEST_F(DeparturesTest, ACellDropsItsCopiesOnceForEachOrder) {
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  EndChange();
  const auto first = asia_.LeaveStream(Config(), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(*first);
  EXPECT_TRUE(asia_.IsDropping(id_));
  EXPECT_FALSE(NamesCell(*asia_.FindStream("flights"), "asia")) << "it has heard of the tree";
  EXPECT_FALSE(*asia_.LeaveStream(Config(), 1)) << "they are not gone";
  asia_.OnDropped(id_, 7);
  EXPECT_TRUE(asia_.IsDropping(id_));
  asia_.OnDropped(id_, 1);
  EXPECT_FALSE(asia_.IsDropping(id_));
  EXPECT_TRUE(*asia_.LeaveStream(Config(), 1));
  EXPECT_FALSE(asia_.IsDropping(id_)) << "what is here now is of another time";
  EXPECT_FALSE(*asia_.LeaveStream(Config(), 2));
  EXPECT_TRUE(*asia_.LeaveStream(Config(), 1)) << "of a time before";
  EXPECT_TRUE(asia_.IsDropping(id_));
}

TEST_F(DeparturesTest, ACellThatATreeNamesDropsNothing) {
  const v1::StreamConfig first = Config();
  EXPECT_TRUE(IsFailedPrecondition(asia_.LeaveStream(first, 1).status()));
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  EXPECT_TRUE(IsFailedPrecondition(asia_.LeaveStream(Config(), 1).status())) << "a change is open";
  EndChange();
  const v1::StreamConfig left = Config();
  ASSERT_TRUE(Reroute({{"us", "eu"}, {"eu", "asia"}}).ok());
  ASSERT_TRUE(asia_.InstallStream(Config()).ok());
  EXPECT_TRUE(IsFailedPrecondition(asia_.LeaveStream(left, 1).status())) << "it came late";
  EXPECT_FALSE(asia_.IsDropping(id_));
  EXPECT_TRUE(IsInvalidArgument(us_.LeaveStream(Config(), 1).status())) << "the source itself";
}

TEST_F(DeparturesTest, ACellTakesPartAgainWhenItsOldCopiesAreGone) {
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  EndChange();
  ASSERT_TRUE(asia_.LeaveStream(Config(), 1).ok());
  ASSERT_TRUE(Reroute({{"us", "asia"}}).ok());
  EXPECT_TRUE(IsUnavailable(asia_.InstallStream(Config()).status()));
  asia_.OnDropped(id_, 1);
  EXPECT_TRUE(asia_.InstallStream(Config()).ok());
}

TEST_F(DeparturesTest, ACellThatHasFilesAndIsInNoTreeAsksToLeave) {
  EXPECT_TRUE(us_.AskToLeave(id_, "asia").ok());
  EXPECT_EQ(us_durable_.leavers_size(), 0) << "it is in the tree";
  ASSERT_TRUE(Reroute({{"us", "eu"}}).ok());
  EndChange();
  us_.OnGone(id_, "asia", Order());
  EXPECT_EQ(us_durable_.leavers_size(), 0);
  EXPECT_TRUE(us_.AskToLeave(id_, "asia").ok());
  EXPECT_TRUE(us_.AskToLeave(id_, "asia").ok());
  ASSERT_EQ(us_durable_.leavers_size(), 1);
  EXPECT_EQ(Order(), 2u);
  EXPECT_TRUE(IsNotFound(us_.AskToLeave({"prices", id_.incarnation}, "asia")));
  EXPECT_TRUE(IsFailedPrecondition(asia_.AskToLeave(id_, "eu"))) << "it is not the source";
}

}  // namespace
}  // namespace tailcast::cell
