#include "tailcast/writer/cell_link.h"

#include <deque>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"
#include "tailcast/storage/fake_store.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::writer {
namespace {

// A writer's link to a scheduler that answers as the test says.
class CellLinkTest : public ::testing::Test {
 protected:
  CellLinkTest() {
    server_->Handle("/tailcast.v1.Cell/NotifyFile",
                    scope_.Bind([this](const std::string& bytes, rpc::Responder respond) {
                      const auto notice = rpc::Parse<v1::FileNotice>(bytes);
                      heard_.push_back(notice->stem() + (notice->sealed() ? " sealed" : ""));
                      Status status;
                      if (!answers_.empty()) {
                        status = answers_.front();
                        answers_.pop_front();
                      }
                      if (!status.ok()) return respond(status);
                      v1::FileNoticeReply reply;
                      reply.set_floor_seq(floor_);
                      respond(reply.SerializeAsString());
                    }));
    EXPECT_TRUE(server_->Start("eu:scheduler").ok());
  }
  ~CellLinkTest() override {
    network_.Disconnect(*loop_);
    loop_->Kill();
  }

  static stream::FileId File(int64_t seq) {
    stream::FileId file;
    file.shard.stream = {"flights", stream::StreamIncarnation{5}};
    file.stem = {seq, 1000 + seq, 0, 0};
    return file;
  }
  static std::string Stem(int64_t seq) { return File(seq).stem.ToString(); }
  int64_t Floor() {
    std::optional<Result<int64_t>> got;
    link_.AskFloor(File(0).shard, scope_.Bind([&](Result<int64_t> floor) { got = floor; }));
    EXPECT_FALSE(got) << "never inside the call";
    time_.RunFor(Duration::Seconds(1));
    return got && got->ok() ? **got : -1;
  }

  int64_t LookAtFloor() {
    std::optional<Result<int64_t>> got;
    link_.LookAtFloor(File(0).shard, scope_.Bind([&](Result<int64_t> floor) { got = floor; }));
    time_.RunFor(Duration::Seconds(1));
    return got && got->ok() ? **got : -1;
  }
  void Mark(int64_t floor) {
    const std::string marker = stream::FloorName(floor);
    store_.CreateExclusive(stream::ShardDir(File(0).shard), marker, marker,
                           scope_.Bind([](const auto&) {}));
    time_.RunFor(Duration::Seconds(1));
  }

  sim::VirtualTime time_{1};
  sim::Network network_{time_, Rng(1)};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("writer");
  std::unique_ptr<sim::SimLoop> scheduler_loop_ = time_.MakeLoop("scheduler");
  storage::FakeDisk disk_{scheduler_loop_.get(), 1, {}};
  storage::FakeStore store_{&disk_, loop_.get()};
  std::unique_ptr<rpc::Connector> connector_ = network_.MakeConnector(*loop_, "eu");
  std::unique_ptr<rpc::Server> server_ = network_.MakeServer(*scheduler_loop_, "eu");
  cell::CellClient cell_{*loop_, *connector_, "eu:scheduler", ""};
  Counter failed_;
  CellLink link_{*loop_, store_, cell_, Duration::Millis(200), failed_};
  std::vector<std::string> heard_;
  std::deque<Status> answers_;  // OK when there are none
  int64_t floor_ = 0;
  Scope scope_;
};

TEST_F(CellLinkTest, NoticesOfAShardGoInOrderAndOneSaysTheNewestOfItsFile) {
  link_.Notify(File(3), std::nullopt);  // leaves at once
  link_.Notify(File(5), std::nullopt);
  link_.Notify(File(4), std::nullopt);
  link_.Notify(File(5), Lengths{1, 32});
  link_.Notify(File(5), std::nullopt);  // later, but it knows less
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(heard_, (std::vector<std::string>{Stem(3), Stem(4), Stem(5) + " sealed"}));
}

TEST_F(CellLinkTest, ANoticeIsToldUntilItIsAnswered) {
  answers_ = {UnavailableError("away"), UnavailableError("away")};
  link_.Notify(File(3), std::nullopt);
  time_.RunFor(Duration::Millis(100));
  EXPECT_EQ(heard_.size(), 1u);
  time_.RunFor(Duration::Seconds(2));
  EXPECT_EQ(heard_.size(), 3u);
  EXPECT_EQ(failed_.value(), 2);
}

TEST_F(CellLinkTest, ANewerNoticeReplacesOneThatWasNotAnswered) {
  answers_ = {UnavailableError("away")};
  link_.Notify(File(3), std::nullopt);
  time_.RunFor(Duration::Millis(100));
  link_.Notify(File(3), Lengths{1, 32});
  time_.RunFor(Duration::Seconds(2));
  EXPECT_EQ(heard_, (std::vector<std::string>{Stem(3), Stem(3) + " sealed"}));
}

TEST_F(CellLinkTest, ARefusedNoticeIsNotRepeatedAndHoldsNobodyUp) {
  answers_ = {NotFoundError("no such stream")};
  link_.Notify(File(3), std::nullopt);
  link_.Notify(File(4), std::nullopt);
  time_.RunFor(Duration::Seconds(2));
  EXPECT_EQ(heard_, (std::vector<std::string>{Stem(3), Stem(4)}));
}

TEST_F(CellLinkTest, AFloorComesFromTheFolderAndRisesWithTheSchedulersAnswers) {
  EXPECT_EQ(Floor(), 1) << "nothing was collected";
  floor_ = 17;
  link_.Notify(File(20), std::nullopt);
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(Floor(), 17);
  floor_ = 9;
  link_.Notify(File(21), std::nullopt);
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(Floor(), 17) << "a floor never falls";
}

TEST_F(CellLinkTest, WhatIsKnownOfAFloorMayBeOldAndALookIsNot) {
  EXPECT_EQ(Floor(), 1);
  Mark(5);
  EXPECT_EQ(Floor(), 1) << "as far as known";
  EXPECT_EQ(LookAtFloor(), 5);
  EXPECT_EQ(Floor(), 5) << "and now it is";
}

}  // namespace
}  // namespace tailcast::writer
