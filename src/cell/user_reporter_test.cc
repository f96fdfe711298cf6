// What a scheduler hears of somebody who uses its cell.
#include "tailcast/cell/user_reporter.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::cell {
namespace {

class UserReporterTest : public ::testing::Test {
 protected:
  UserReporterTest() {
    server_->Handle("/tailcast.v1.Users/Report",
                    scope_.Bind([this](const std::string& bytes, rpc::Responder respond) {
                      heard_.push_back(rpc::Parse<v1::ReportUserRequest>(bytes)->user());
                      respond(v1::ReportUserReply().SerializeAsString());
                    }));
    EXPECT_TRUE(server_->Start("a:1").ok());
    v1::User user;
    user.set_kind(v1::User::PRODUCER);
    user.set_stream("s");
    reporter_ = std::make_unique<UserReporter>(*loop_, client_, user,
                                               [](v1::User& self) { self.set_shards(3); });
  }
  bool SayGoodBye() {
    bool done = false;
    reporter_->SayGoodBye(scope_.Bind([&] { done = true; }));
    return time_.RunUntil([&] { return done; }, Duration::Seconds(10));
  }

  sim::VirtualTime time_{1};
  sim::Network network_{time_, Rng(1)};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("user");
  std::unique_ptr<sim::SimLoop> server_loop_ = time_.MakeLoop("scheduler");
  std::unique_ptr<rpc::Connector> connector_ = network_.MakeConnector(*loop_, "a");
  std::unique_ptr<rpc::Server> server_ = network_.MakeServer(*server_loop_, "a");
  CellClient client_{*loop_, *connector_, "a:1", ""};
  std::vector<v1::User> heard_;
  std::unique_ptr<UserReporter> reporter_;
  Scope scope_;
};

TEST_F(UserReporterTest, ReportsAndSaysGoodByeOnce) {
  time_.RunFor(Duration::Seconds(15));
  ASSERT_EQ(heard_.size(), 2u);
  EXPECT_FALSE(heard_[1].gone());
  EXPECT_TRUE(SayGoodBye());
  ASSERT_EQ(heard_.size(), 3u);
  EXPECT_TRUE(heard_[2].gone());
  EXPECT_EQ(heard_[2].id(), heard_[0].id());
  EXPECT_TRUE(SayGoodBye());
  time_.RunFor(Duration::Seconds(30));
  EXPECT_EQ(heard_.size(), 3u) << "it is gone";
}

TEST_F(UserReporterTest, WhoWasNotHeardOfHasNobodyToSayGoodByeTo) {
  EXPECT_TRUE(SayGoodBye());
  time_.RunFor(Duration::Seconds(30));
  EXPECT_TRUE(heard_.empty());
}

TEST_F(UserReporterTest, GoodByeToNobodyEndsToo) {
  time_.RunFor(Duration::Seconds(2));
  network_.Disconnect(*server_loop_);
  EXPECT_TRUE(SayGoodBye());
}

}  // namespace
}  // namespace tailcast::cell
