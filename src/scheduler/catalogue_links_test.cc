// The deletions that other cells are told, against a hand-made one.
#include "tailcast/scheduler/catalogue_links.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CatalogueLinksTest : public ::testing::Test {
 protected:
  CatalogueLinksTest() {
    server_->Handle("/tailcast.v1.Peer/RemoveStream",
                    scope_.Bind([this](const std::string& bytes, rpc::Responder respond) {
                      const std::string name = rpc::Parse<v1::RemoveStreamRequest>(bytes)->name();
                      asked_.push_back(name);
                      if (no_room_) return respond(ResourceExhaustedError("the disk is full"));
                      if (!refused_.contains(name)) return respond(std::string());
                      respond(FailedPreconditionError("this cell is its source"));
                    }));
    EXPECT_TRUE(server_->Start("eu:1").ok());
    for (const char* name : {"a", "b", "c"}) {
      v1::StreamConfig stream;
      stream.set_name(name);
      stream.set_source("us");
      const auto made = catalogue_.BeginCreate(stream, {}, WallTime::FromMicros(77));
      EXPECT_TRUE(made.ok()) << made.status();
      catalogue_.FinishCreate(stream::IdOf(*made));
      EXPECT_TRUE(catalogue_.DeleteStream(name).ok());
    }
    Write();
  }
  ~CatalogueLinksTest() override { network_.Disconnect(*server_loop_); }

  void Write() { catalogue_.OnWritten(durable_, catalogue_.OnTaken()); }
  void TellAll() {
    for (const auto& [id, deleted] : catalogue_.deleted()) links_.Tell(id);
  }
  // Since the last call.
  std::vector<std::string> AskedIn(Duration time) {
    asked_.clear();
    time_.RunFor(time);
    return std::exchange(asked_, {});
  }

  sim::VirtualTime time_{1};
  sim::Network network_{time_, Rng(1)};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("scheduler");
  std::unique_ptr<sim::SimLoop> server_loop_ = time_.MakeLoop("eu");
  std::unique_ptr<rpc::Connector> connector_ = network_.MakeConnector(*loop_, "us");
  std::unique_ptr<rpc::Server> server_ = network_.MakeServer(*server_loop_, "eu");
  v1::RegistrySnapshot durable_;
  cell::Catalogue catalogue_{
      cell::CatalogueOptions{.cell = "us", .known_cells = {"us", "eu"}, .peers = {"eu"}}, &durable_,
      1};
  std::vector<std::string> asked_, told_;
  std::set<std::string> refused_;
  bool no_room_ = false;
  CatalogueLinks links_{*loop_,
                        *connector_,
                        catalogue_,
                        {.cell = "us", .neighbours = {{"eu", "eu:1", ""}}},
                        [this](const stream::StreamId& deleted, const std::string&) {
                          told_.push_back(deleted.name);
                        }};
  Scope scope_;
};

TEST_F(CatalogueLinksTest, EachDeletionIsToldOnce) {
  TellAll();
  EXPECT_THAT(AskedIn(Duration::Seconds(3)), ElementsAre("a", "b", "c"));
  EXPECT_THAT(told_, ElementsAre("a", "b", "c"));
}

TEST_F(CatalogueLinksTest, OneThatIsRefusedHoldsUpNoOtherAndIsToldAgain) {
  refused_ = {"a"};
  TellAll();
  EXPECT_THAT(AskedIn(Duration::Millis(150)), ElementsAre("a", "b", "c"));
  EXPECT_THAT(told_, ElementsAre("b", "c"));
  const auto again = AskedIn(Duration::Seconds(2));
  EXPECT_GE(again.size(), 5u);
  EXPECT_LE(again.size(), 11u) << "not without a pause";
  EXPECT_THAT(again, ::testing::Each("a"));
  refused_.clear();
  time_.RunFor(Duration::Seconds(1));
  EXPECT_THAT(told_, ElementsAre("b", "c", "a"));
  EXPECT_THAT(AskedIn(Duration::Seconds(3)), IsEmpty());
}

TEST_F(CatalogueLinksTest, OfSeveralThatAreRefusedEachIsToldAgain) {
  refused_ = {"a", "b", "c"};
  TellAll();
  EXPECT_THAT(AskedIn(Duration::Millis(350)), ElementsAre("a", "b", "c", "a", "b", "c"));
  refused_ = {"a", "c"};
  time_.RunFor(Duration::Seconds(1));
  EXPECT_THAT(told_, ElementsAre("b"));
}

TEST_F(CatalogueLinksTest, WhoDoesNotAnswerIsAskedForTheSameAgain) {
  network_.Partition("us", "eu", true);
  TellAll();
  EXPECT_THAT(AskedIn(Duration::Seconds(3)), IsEmpty());
  EXPECT_THAT(told_, IsEmpty());
  network_.Partition("us", "eu", false);
  // What was on its way arrives late.
  std::vector<std::string> asked = AskedIn(Duration::Seconds(9));
  EXPECT_GT(asked.size(), 3u) << "again";
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  EXPECT_THAT(asked, ElementsAre("a", "b", "c"));
  EXPECT_THAT(told_, ElementsAre("a", "b", "c"));
}

TEST_F(CatalogueLinksTest, WhoHasNoRoomIsAskedForTheSameAgainAfterAPause) {
  no_room_ = true;
  TellAll();
  const auto asked = AskedIn(Duration::Seconds(2));
  EXPECT_GE(asked.size(), 5u);
  EXPECT_LE(asked.size(), 11u);
  EXPECT_THAT(asked, ::testing::Each("a"));
  no_room_ = false;
  time_.RunFor(Duration::Seconds(1));
  EXPECT_THAT(told_, ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace tailcast::scheduler
