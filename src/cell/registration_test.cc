#include "tailcast/cell/registration.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::cell {
namespace {

class RegistrationTest : public ::testing::Test {
 protected:
  // Gives out leases of 3 s, and its view to whoever waits for it.
  struct Scheduler {
    Scheduler(RegistrationTest& test, uint64_t incarnation)
        : network(test.network_),
          loop(test.time_.MakeLoop("scheduler")),
          server(network.MakeServer(*loop, "a")) {
      view.set_version(1);
      view.set_registry_id(9);
      view.set_scheduler_incarnation(incarnation);
      server->Handle("/tailcast.v1.Cell/GetView",
                     scope.Bind([this](const std::string& bytes, rpc::Responder respond) {
                       const auto request = rpc::Parse<v1::GetViewRequest>(bytes);
                       waiting = std::move(respond);
                       if (request->known_version() != view.version() || is_new) Show();
                       is_new = false;
                     }));
      server->Handle("/tailcast.v1.Cell/Register",
                     scope.Bind([this](const std::string& bytes, rpc::Responder respond) {
                       processes.push_back(rpc::Parse<v1::RegisterRequest>(bytes)->process());
                       if (!refusal.ok()) return respond(refusal);
                       v1::RegisterReply reply;
                       reply.set_lease_ms(3000);
                       reply.set_scheduler_incarnation(view.scheduler_incarnation());
                       respond(reply.SerializeAsString());
                     }));
      EXPECT_TRUE(server->Start("a:1").ok());
    }
    ~Scheduler() { network.Disconnect(*loop); }
    void Show() { waiting(view.SerializeAsString()); }

    sim::Network& network;
    std::unique_ptr<sim::SimLoop> loop;
    std::unique_ptr<rpc::Server> server;
    CellView view;
    bool is_new = true;
    Status refusal;
    rpc::Responder waiting;
    std::vector<v1::ProcessInfo> processes;
    Scope scope;
  };

  sim::VirtualTime time_{1};
  sim::Network network_{time_, Rng(1)};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("reader");
  std::unique_ptr<rpc::Connector> connector_ = network_.MakeConnector(*loop_, "a");
  CellClient client_{*loop_, *connector_, "a:1", ""};
  int32_t pid_ = 0;
  int renewed_ = 0;
  std::vector<Status> refused_;
  std::unique_ptr<Registration> registration_;
  Scope scope_;

  ~RegistrationTest() override { network_.Disconnect(*loop_); }
  void Begin() {
    client_.Start(Duration::Infinite(), scope_.Bind([](const Status&) {}));
    registration_ = std::make_unique<Registration>(
        *loop_, client_,
        Registration::Hooks{[this] {
                              v1::ProcessInfo info;
                              info.set_name("reader-1");
                              info.set_pid(++pid_);
                              return info;
                            },
                            [this](MonotonicTime, const v1::RegisterReply&) { ++renewed_; },
                            [this](const Status& why) { refused_.push_back(why); }});
  }
};

TEST_F(RegistrationTest, RenewsAfterAThirdOfTheLeaseWithWhatIsThen) {
  Scheduler scheduler(*this, 5);
  Begin();
  time_.RunFor(Duration::Millis(2500));
  ASSERT_EQ(scheduler.processes.size(), 3u);
  EXPECT_EQ(scheduler.processes.back().pid(), 3);
  EXPECT_EQ(renewed_, 3);
}

TEST_F(RegistrationTest, WhatHasChangedIsToldAtOnceEvenIfACallIsUnderWay) {
  Scheduler scheduler(*this, 5);
  Begin();
  registration_->RegisterNow();  // the first is under way
  time_.RunFor(Duration::Millis(500));
  EXPECT_EQ(scheduler.processes.size(), 2u);
  registration_->RegisterNow();
  time_.RunFor(Duration::Millis(500));
  EXPECT_EQ(scheduler.processes.size(), 3u);
  time_.RunFor(Duration::Millis(900));
  EXPECT_EQ(scheduler.processes.size(), 4u) << "and a third of the lease later, as ever";
}

TEST_F(RegistrationTest, WaitsForASchedulerThatIsNotThere) {
  Begin();
  time_.RunFor(Duration::Seconds(5));
  EXPECT_EQ(renewed_, 0);
  Scheduler scheduler(*this, 5);
  time_.RunFor(Duration::Millis(300));
  EXPECT_EQ(renewed_, 1);
}

TEST_F(RegistrationTest, ANewSchedulerIsToldAtOnce) {
  auto before = std::make_unique<Scheduler>(*this, 5);
  Begin();
  time_.RunFor(Duration::Millis(2100));
  ASSERT_EQ(renewed_, 3);
  before.reset();
  Scheduler after(*this, 6);
  time_.RunFor(Duration::Millis(400));
  EXPECT_EQ(after.processes.size(), 1u) << "long before the lease ends";
  time_.RunFor(Duration::Millis(2000));
  EXPECT_EQ(after.processes.size(), 3u);
}

// It shows no view yet; who waits for one would come too late.
TEST_F(RegistrationTest, ANewSchedulerThatShowsNothingYetIsToldAtOnce) {
  auto before = std::make_unique<Scheduler>(*this, 5);
  Begin();
  time_.RunFor(Duration::Millis(100));
  ASSERT_EQ(renewed_, 1);
  before.reset();
  Scheduler after(*this, 6);
  after.is_new = false;
  after.view.set_version(client_.view().version());
  time_.RunFor(Duration::Millis(700));
  EXPECT_GE(after.processes.size(), 1u);
}

TEST_F(RegistrationTest, AViewOfTheSameSchedulerChangesNothing) {
  Scheduler scheduler(*this, 5);
  Begin();
  time_.RunFor(Duration::Millis(100));
  for (uint64_t version = 2; version < 8; ++version) {
    scheduler.view.set_version(version);
    scheduler.Show();
    time_.RunFor(Duration::Millis(100));
  }
  EXPECT_EQ(client_.view().version(), 7u);
  EXPECT_EQ(scheduler.processes.size(), 1u);
}

TEST_F(RegistrationTest, WhoIsRefusedDoesNotAskAgain) {
  Scheduler scheduler(*this, 5);
  scheduler.refusal = FailedPreconditionError("another one");
  Begin();
  time_.RunFor(Duration::Seconds(3));
  ASSERT_EQ(refused_.size(), 1u);
  EXPECT_TRUE(IsFailedPrecondition(refused_[0]));
  EXPECT_EQ(scheduler.processes.size(), 1u);
}

TEST_F(RegistrationTest, WhoIsRefusedForAMomentDoes) {
  Scheduler scheduler(*this, 5);
  scheduler.refusal = ResourceExhaustedError("too many");
  Begin();
  time_.RunFor(Duration::Millis(350));
  EXPECT_GE(scheduler.processes.size(), 3u);
  scheduler.refusal = OkStatus();
  time_.RunFor(Duration::Millis(200));
  EXPECT_EQ(renewed_, 1);
}

}  // namespace
}  // namespace tailcast::cell
