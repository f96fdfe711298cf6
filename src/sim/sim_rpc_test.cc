#include "tailcast/sim/sim_rpc.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tailcast/base/scope.h"

namespace tailcast::sim {
namespace {

class SimRpc : public ::testing::Test {
 protected:
  SimRpc() {
    network_.LinkBetween("a", "b").delay = Duration::Millis(10);
    network_.LinkBetween("b", "a").delay = Duration::Millis(10);
    client_ = network_.MakeConnector(*client_loop_, "a")->MakeClient("b:1", "");
    server_ = network_.MakeServer(*server_loop_, "b");
    server_->Handle("/echo", scope_.Bind([](std::string request, rpc::Responder respond) {
      respond("re: " + request);
    }));
    server_->Handle("/never", scope_.Bind([this](std::string, rpc::Responder respond) {
      kept_.push_back(std::move(respond));
    }));
    server_->HandleStream("/stream", scope_.Bind([this](std::unique_ptr<rpc::Stream> stream) {
      server_stream_ = std::move(stream);
      rpc::Stream::Callbacks callbacks;
      callbacks.on_message =
          scope_.Bind([this](std::string m) { server_got_.push_back(std::move(m)); });
      callbacks.on_closed = scope_.Bind([this](Status s) { server_closed_ = s; });
      server_stream_->SetCallbacks(std::move(callbacks));
    }));
    EXPECT_EQ(*server_->Start("b:1"), "b:1");
  }

  std::unique_ptr<rpc::Stream> OpenStream() {
    auto stream = client_->Open("/stream");
    rpc::Stream::Callbacks callbacks;
    callbacks.on_message =
        scope_.Bind([this](std::string m) { client_got_.push_back(std::move(m)); });
    callbacks.on_closed = scope_.Bind([this](Status s) { client_closed_ = s; });
    stream->SetCallbacks(std::move(callbacks));
    return stream;
  }

  std::optional<Result<std::string>> answer_;
  void Call(std::string_view method) {
    client_->Call(method, "hi", Duration::Seconds(1),
                  scope_.Bind([this](Result<std::string> r) { answer_.emplace(std::move(r)); }));
  }

  VirtualTime time_{1};
  Network network_{time_, Rng(2)};
  std::unique_ptr<SimLoop> client_loop_ = time_.MakeLoop("client");
  std::unique_ptr<SimLoop> server_loop_ = time_.MakeLoop("server");
  std::unique_ptr<rpc::Client> client_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Stream> server_stream_;
  std::vector<rpc::Responder> kept_;
  std::vector<std::string> server_got_, client_got_;
  std::optional<Status> server_closed_, client_closed_;
  Scope scope_;
};

TEST_F(SimRpc, AnswersACallAfterARoundTrip) {
  Call("/echo");
  time_.RunFor(Duration::Millis(19));
  EXPECT_FALSE(answer_);
  time_.RunFor(Duration::Millis(2));
  ASSERT_TRUE(answer_ && answer_->ok());
  EXPECT_EQ(**answer_, "re: hi");
}

TEST_F(SimRpc, RunsIntoTheDeadlineWhenTheLinkIsCut) {
  network_.Partition("a", "b", true);
  Call("/echo");
  time_.RunFor(Duration::Seconds(2));
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(IsDeadlineExceeded(answer_->status()));
}

TEST_F(SimRpc, TellsTheCallerWhenTheServerDies) {
  Call("/never");
  time_.RunFor(Duration::Millis(50));
  network_.Disconnect(*server_loop_);
  server_loop_->Kill();
  time_.RunFor(Duration::Millis(50));
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(IsUnavailable(answer_->status()));
}

TEST_F(SimRpc, RefusesConnectionsWhereNobodyListens) {
  server_.reset();
  Call("/echo");
  time_.RunFor(Duration::Millis(50));
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(IsUnavailable(answer_->status()));
}

TEST_F(SimRpc, CarriesStreamMessagesInOrderBothWays) {
  network_.LinkBetween("a", "b").jitter = Duration::Millis(30);
  auto stream = OpenStream();
  for (int i = 0; i < 5; ++i) stream->Send(std::to_string(i));
  time_.RunFor(Duration::Millis(200));
  EXPECT_EQ(server_got_, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  server_stream_->Send("back");
  server_stream_->Close(OutOfRangeError("the end"));
  time_.RunFor(Duration::Millis(50));
  EXPECT_EQ(client_got_, (std::vector<std::string>{"back"}));
  ASSERT_TRUE(client_closed_);
  EXPECT_TRUE(IsOutOfRange(*client_closed_));
  EXPECT_FALSE(stream->Send("late"));
}

TEST_F(SimRpc, AnswersAHalfCloseWithOk) {
  auto stream = OpenStream();
  stream->Send("last");
  stream->Close(OkStatus());
  time_.RunFor(Duration::Millis(50));
  EXPECT_EQ(server_got_, (std::vector<std::string>{"last"}));
  ASSERT_TRUE(server_closed_ && client_closed_);
  EXPECT_TRUE(server_closed_->ok());
  EXPECT_TRUE(client_closed_->ok());
}

TEST_F(SimRpc, TellsBothKindsOfPeersOfADeath) {
  auto stream = OpenStream();
  time_.RunFor(Duration::Millis(50));
  network_.Disconnect(*server_loop_);
  server_loop_->Kill();
  time_.RunFor(Duration::Millis(50));
  ASSERT_TRUE(client_closed_);
  EXPECT_TRUE(IsUnavailable(*client_closed_));
}

TEST_F(SimRpc, ShowsACancelledStreamToTheServer) {
  auto stream = OpenStream();
  time_.RunFor(Duration::Millis(50));
  stream.reset();
  time_.RunFor(Duration::Millis(50));
  ASSERT_TRUE(server_closed_);
  EXPECT_TRUE(IsCancelled(*server_closed_));
}

TEST_F(SimRpc, CountsBytesAsQueuedUntilTheLinkTookThem) {
  network_.LinkBetween("a", "b").bytes_per_second = 1000;
  auto stream = OpenStream();
  stream->Send(std::string(500, 'x'));
  EXPECT_EQ(stream->queued_bytes(), 500u);
  time_.RunFor(Duration::Millis(300));
  EXPECT_EQ(stream->queued_bytes(), 500u);
  time_.RunFor(Duration::Millis(400));
  EXPECT_EQ(stream->queued_bytes(), 0u);
}

TEST_F(SimRpc, TakesTheLinksTimeForTheBytesOfACall) {
  network_.LinkBetween("a", "b").bytes_per_second = 1000;
  client_->Call("/echo", std::string(500, 'x'), Duration::Seconds(5),
                scope_.Bind([this](Result<std::string> r) { answer_.emplace(std::move(r)); }));
  time_.RunFor(Duration::Millis(500));
  EXPECT_FALSE(answer_);
  time_.RunFor(Duration::Millis(200));
  ASSERT_TRUE(answer_ && answer_->ok());
}

}  // namespace
}  // namespace tailcast::sim
