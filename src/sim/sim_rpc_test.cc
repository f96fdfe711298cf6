#include "tailcast/sim/sim_rpc.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// As TCP does: what is sent into a cut is sent again, so that a stream has no gap.
TEST_F(SimRpc, AStreamGoesOnWithoutAGapAfterAShortCut) {
  auto stream = OpenStream();
  stream->Send("before");
  time_.RunFor(Duration::Millis(50));
  network_.Cut("a", "b", true);
  stream->Send("in");
  time_.RunFor(Duration::Seconds(5));
  EXPECT_EQ(server_got_, (std::vector<std::string>{"before"}));
  EXPECT_GT(stream->queued_bytes(), 0u) << "nobody took it";
  network_.Cut("a", "b", false);
  stream->Send("after");
  time_.RunFor(Duration::Seconds(4));
  EXPECT_EQ(server_got_, (std::vector<std::string>{"before", "in", "after"}));
  EXPECT_EQ(stream->queued_bytes(), 0u);
  EXPECT_FALSE(client_closed_ || server_closed_);
}

TEST_F(SimRpc, AConnectionBreaksWithAllThatItCarriesWhenACutLasts) {
  for (const bool forth : {true, false}) {
    SCOPED_TRACE(forth ? "requests are cut" : "answers are cut");
    server_closed_.reset();
    client_closed_.reset();
    server_got_.clear();
    answer_.reset();
    auto stream = OpenStream();
    time_.RunFor(Duration::Millis(50));
    client_->Call("/never", "hi", Duration::Seconds(100),
                  scope_.Bind([this](Result<std::string> r) { answer_.emplace(std::move(r)); }));
    time_.RunFor(Duration::Millis(50));
    network_.Cut(forth ? "a" : "b", forth ? "b" : "a", true);
    time_.RunFor(Duration::Seconds(1));
    stream->Send("in");
    time_.RunFor(Duration::Seconds(30));
    ASSERT_TRUE(client_closed_ && server_closed_ && answer_);
    EXPECT_TRUE(IsUnavailable(*client_closed_));
    EXPECT_TRUE(IsUnavailable(*server_closed_));
    EXPECT_TRUE(IsUnavailable(answer_->status()));
    EXPECT_EQ(server_got_.size(), forth ? 0u : 1u);
    network_.MendAll();
    // The next one has a connection of its own.
    auto again = OpenStream();
    again->Send("again");
    time_.RunFor(Duration::Seconds(4));
    EXPECT_EQ(server_got_.back(), "again");
  }
}

TEST_F(SimRpc, ACallThatMetACutArrivesLateThoughItsCallerHasGivenUp) {
  network_.Cut("a", "b", true);
  Call("/never");
  time_.RunFor(Duration::Seconds(2));
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(IsDeadlineExceeded(answer_->status()));
  EXPECT_TRUE(kept_.empty());
  network_.Cut("a", "b", false);
  time_.RunFor(Duration::Seconds(4));
  EXPECT_EQ(kept_.size(), 1u);
}

TEST_F(SimRpc, ADeathBehindACutIsHeardOfWhenItIsMended) {
  auto stream = OpenStream();
  time_.RunFor(Duration::Millis(50));
  server_stream_->Send("last words");
  network_.Partition("a", "b", true);
  network_.Disconnect(*server_loop_);
  server_loop_->Kill();
  time_.RunFor(Duration::Seconds(5));
  EXPECT_EQ(client_got_, (std::vector<std::string>{"last words"})) << "they were on their way";
  EXPECT_FALSE(client_closed_);
  network_.Partition("a", "b", false);
  time_.RunFor(Duration::Seconds(4));
  ASSERT_TRUE(client_closed_);
  EXPECT_TRUE(IsUnavailable(*client_closed_));
}

TEST_F(SimRpc, AResetBreaksAConnectionAtOnceAtBothEnds) {
  auto stream = OpenStream();
  time_.RunFor(Duration::Millis(50));
  network_.Reset("a", "b");
  stream->Send("lost");
  time_.RunFor(Duration::Millis(50));
  ASSERT_TRUE(client_closed_ && server_closed_);
  EXPECT_TRUE(IsUnavailable(*client_closed_));
  EXPECT_TRUE(server_got_.empty());
}

TEST_F(SimRpc, ProcessesOfOneHostAreCutOneByOne) {
  network_.Cut("client", "server", true);
  Call("/echo");
  time_.RunFor(Duration::Seconds(2));
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(IsDeadlineExceeded(answer_->status()));
  auto other_loop = time_.MakeLoop("other client");
  auto other = network_.MakeConnector(*other_loop, "a")->MakeClient("b:1", "");
  answer_.reset();
  other->Call("/echo", "hi", Duration::Seconds(1),
              scope_.Bind([this](Result<std::string> r) { answer_.emplace(std::move(r)); }));
  time_.RunFor(Duration::Millis(50));
  ASSERT_TRUE(answer_ && answer_->ok());
}

TEST_F(SimRpc, CallsOvertakeEachOther) {
  network_.LinkBetween("a", "b").jitter = Duration::Millis(30);
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) {
    client_->Call("/echo", "hi", Duration::Seconds(1),
                  scope_.Bind([&order, i](const Result<std::string>&) { order.push_back(i); }));
  }
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(order.size(), 20u);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(SimRpc, ASenderToAStoppedProcessFeelsIt) {
  auto stream = OpenStream();
  time_.RunFor(Duration::Millis(50));
  server_loop_->Pause();
  const auto window = static_cast<size_t>(network_.options().stream_window_bytes);
  for (size_t sent = 0; sent < 2 * window; sent += window / 8) {
    stream->Send(std::string(window / 8, 'x'));
  }
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(stream->queued_bytes(), window);
  server_loop_->Resume();
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(stream->queued_bytes(), 0u);
  EXPECT_EQ(server_got_.size(), 16u);
}

TEST_F(SimRpc, WhatIsQueuedAtAnEndArrivesBeforeIt) {
  auto stream = OpenStream();
  time_.RunFor(Duration::Millis(50));
  const auto window = static_cast<size_t>(network_.options().stream_window_bytes);
  for (int i = 0; i < 3; ++i) server_stream_->Send(std::string(window, 'x'));
  server_stream_->Close(OutOfRangeError("the end"));
  server_stream_.reset();
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(client_got_.size(), 3u);
  ASSERT_TRUE(client_closed_);
  EXPECT_TRUE(IsOutOfRange(*client_closed_));
}

// Two runs that differ in what messages carry, and in nothing else.
TEST_F(SimRpc, WhatIsCarriedIsPartOfTheTrace) {
  const auto run = [](const std::string& text) {
    const Scope scope;
    VirtualTime time(1);
    Network network(time, Rng(2));
    auto loop = time.MakeLoop("a");
    auto server = network.MakeServer(*loop, "b");
    server->Handle("/echo", scope.Bind([](const std::string&, rpc::Responder respond) {
      respond(std::string());
    }));
    EXPECT_TRUE(server->Start("b:1").ok());
    auto client = network.MakeConnector(*loop, "a")->MakeClient("b:1", "");
    client->Call("/echo", text, Duration::Seconds(1),
                 scope.Bind([](const Result<std::string>&) {}));
    time.RunFor(Duration::Seconds(2));
    const uint64_t hash = time.trace_hash();
    network.Disconnect(*loop);
    return hash;
  };
  EXPECT_EQ(run("one"), run("one"));
  EXPECT_NE(run("one"), run("two"));
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
