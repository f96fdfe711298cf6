// What a command says of a call whose answer never came.
#include "tailcast/app/cell_session.h"

#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLook[] = "`tailcast stream list` shows it";

// A scheduler that has a view, and ends instead of creating a stream, or refuses it.
class CellSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    thread_.Call([this] { Start(); });
    auto session = CellSession::OpenAt(address_, Duration::Seconds(10));
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::move(*session);
  }
  ~CellSessionTest() override {
    thread_.Call([this] {
      scope_.reset();
      kept_ = {};
      server_.reset();
    });
  }

  void Start() {
    scope_.emplace();
    server_ = rpc::MakeGrpcServer(*thread_.loop());
    server_->Handle("/tailcast.v1.Cell/GetView",
                    scope_->Bind([](const std::string&, rpc::Responder respond) {
                      v1::CellView view;
                      view.set_version(1);
                      view.set_registry_id(1);
                      respond(view.SerializeAsString());
                    }));
    server_->Handle("/tailcast.v1.Cell/CreateStream",
                    scope_->Bind([this](const std::string&, rpc::Responder respond) {
                      if (refusal_) return respond(*refusal_);
                      kept_ = std::move(respond);
                      if (ends_) thread_.loop()->Post(scope_->Bind([this] { server_.reset(); }));
                    }));
    const auto address = server_->Start("127.0.0.1:0");
    ASSERT_TRUE(address.ok()) << address.status();
    address_ = *address;
  }
  Status Create(const char* look) {
    v1::StreamConfig stream;
    stream.set_name("s");
    return session_
        ->Call<Result<v1::StreamConfig>>(
            [&](auto done) { session_->client().CreateStream(stream, std::move(done)); }, look)
        .status();
  }

  LoopThread thread_{"server"};
  std::unique_ptr<rpc::Server> server_;
  std::string address_;
  std::optional<Status> refusal_;
  bool ends_ = true;
  rpc::Responder kept_;
  std::optional<Scope> scope_;  // on the server's loop
  std::unique_ptr<CellSession> session_;
};

TEST_F(CellSessionTest, WhatIsLostOnItsWayMayBeDone) {
  EXPECT_EQ(Create(kLook).message(),
            address_ + ": the server is shutting down; whether it was done is not known: " + kLook);
}

TEST_F(CellSessionTest, WhatIsNotAnsweredInTimeMayBeDone) {
  ends_ = false;
  EXPECT_EQ(Create(kLook).message(),
            address_ + ": no answer in time; whether it was done is not known: " + kLook);
}

TEST_F(CellSessionTest, WhoIsNotReachedHasDoneNothing) {
  thread_.Call([this] { server_.reset(); });
  session_->loop().RunFor(Duration::Millis(100));  // it notices
  const Status status = Create(kLook);
  EXPECT_THAT(status.message(), HasSubstr("nothing listens there"));
  EXPECT_THAT(status.message(), Not(HasSubstr("not known")));
}

TEST_F(CellSessionTest, WhoRefusesHasDoneNothing) {
  // As it may pass on what it heard itself.
  refusal_ = UnavailableError("cell eu, at 10.0.0.1:7400: the connection was closed");
  EXPECT_EQ(Create(kLook).message(), address_ + ": " + refusal_->message());
}

TEST_F(CellSessionTest, OfAQuestionNothingIsSaid) {
  EXPECT_THAT(Create("").message(), EndsWith("the server is shutting down"));
}

}  // namespace
}  // namespace tailcast::app
