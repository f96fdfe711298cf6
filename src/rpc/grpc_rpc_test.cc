#include "tailcast/rpc/grpc_rpc.h"
#include "tailcast/rpc/plain_reason.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"

namespace tailcast::rpc {
namespace {

constexpr Duration kLong = Duration::Seconds(20);

class GrpcRpc : public ::testing::Test {
 protected:
  GrpcRpc() {
    server_ = MakeGrpcServer(loop_);
    server_->Handle("/t.S/Echo", scope_.Bind([](std::string request, Responder respond) {
      respond("re: " + request);
    }));
    server_->Handle("/t.S/Fail", scope_.Bind([](std::string, Responder respond) {
      respond(OutOfRangeError("position 7 is gone; the first is 9"));
    }));
    server_->Handle("/t.S/Keep", scope_.Bind([this](std::string, Responder respond) {
      kept_.push_back(std::move(respond));
    }));
    server_->HandleStream("/t.S/Stream", scope_.Bind([this](std::unique_ptr<Stream> stream) {
      server_stream_ = std::move(stream);
      Stream::Callbacks callbacks;
      callbacks.on_message =
          scope_.Bind([this](std::string m) { server_got_.push_back(std::move(m)); });
      callbacks.on_closed = scope_.Bind([this](Status s) { server_closed_ = s; });
      server_stream_->SetCallbacks(std::move(callbacks));
    }));
    auto address = server_->Start("127.0.0.1:0");
    EXPECT_TRUE(address.ok());
    address_ = *address;
    connector_ = MakeGrpcConnector(loop_);
    client_ = connector_->MakeClient(address_, "");
  }

  template <typename Condition>
  bool Until(Condition condition) {
    return loop_.RunUntil(condition, loop_.Now() + kLong);
  }
  Result<std::string> Call(std::string_view method, std::string request = "hi",
                           Duration timeout = kLong) {
    std::optional<Result<std::string>> answer;
    client_->Call(method, std::move(request), timeout,
                  scope_.Bind([&](Result<std::string> r) { answer.emplace(std::move(r)); }));
    EXPECT_FALSE(answer) << "called inside the call that registered it";
    Until([&] { return answer.has_value(); });
    return answer ? std::move(*answer) : Result<std::string>(InternalError("never answered"));
  }
  std::unique_ptr<Stream> OpenStream() {
    auto stream = client_->Open("/t.S/Stream");
    Stream::Callbacks callbacks;
    callbacks.on_message =
        scope_.Bind([this](std::string m) { client_got_.push_back(std::move(m)); });
    callbacks.on_closed = scope_.Bind([this](Status s) { client_closed_ = s; });
    callbacks.on_drained = scope_.Bind([this] { ++drained_; });
    stream->SetCallbacks(std::move(callbacks));
    return stream;
  }

  ThreadLoop loop_;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Server> server_;
  std::string address_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Stream> server_stream_;
  std::vector<Responder> kept_;
  std::vector<std::string> server_got_, client_got_;
  std::optional<Status> server_closed_, client_closed_;
  int drained_ = 0;
  Scope scope_;
};

TEST_F(GrpcRpc, CarriesARequestAndItsAnswer) {
  EXPECT_EQ(*Call("/t.S/Echo"), "re: hi");
  EXPECT_EQ(*Call("/t.S/Echo", ""), "re: ");
  const std::string large(10 << 20, 'x');
  EXPECT_EQ(*Call("/t.S/Echo", large), "re: " + large);
}

TEST_F(GrpcRpc, CarriesAnErrorWithItsCodeAndMessage) {
  const auto answer = Call("/t.S/Fail");
  EXPECT_TRUE(IsOutOfRange(answer.status()));
  EXPECT_NE(answer.status().message().find("the first is 9"), std::string::npos);
}

TEST_F(GrpcRpc, SaysUnimplementedForAnUnknownMethod) {
  EXPECT_EQ(Call("/t.S/Nothing").status().code(), StatusCode::kUnimplemented);
}

TEST_F(GrpcRpc, GivesUpAtTheDeadline) {
  EXPECT_TRUE(IsDeadlineExceeded(Call("/t.S/Keep", "", Duration::Millis(50)).status()));
}

// Nobody turns the server's loop.
TEST_F(GrpcRpc, AStalledServerKeepsABoundedAmountOfRequests) {
  constexpr int kCalls = 12;
  const std::string request(kMessageBytesMax / 2, 'x');
  ThreadLoop client_loop;
  const auto connector = MakeGrpcConnector(client_loop);
  const auto client = connector->MakeClient(address_, "");
  const Scope scope;
  int refused = 0, served = 0;
  for (int i = 0; i < kCalls; ++i) {
    client->Call("/t.S/Echo", request, kLong, scope.Bind([&](const Result<std::string>& answer) {
      if (answer.ok()) {
        ++served;
      } else {
        EXPECT_TRUE(IsResourceExhausted(answer.status())) << answer.status();
        ++refused;
      }
    }));
  }
  constexpr int kKept = static_cast<int>(kWaitingBytesMax / (kMessageBytesMax / 2));
  ASSERT_TRUE(
      client_loop.RunUntil([&] { return refused == kCalls - kKept; }, client_loop.Now() + kLong));
  EXPECT_EQ(served, 0);
  // What was kept is served, and there is room again.
  while (served < kKept) {
    loop_.RunFor(Duration::Millis(10));
    client_loop.RunFor(Duration::Millis(10));
  }
  EXPECT_EQ(*Call("/t.S/Echo"), "re: hi");
  EXPECT_EQ(refused, kCalls - kKept);
}

TEST_F(GrpcRpc, SaysUnavailableWhereNobodyListens) {
  server_.reset();
  client_ = MakeGrpcConnector(loop_)->MakeClient(address_, "");
  EXPECT_TRUE(IsUnavailable(Call("/t.S/Echo").status()));
}

TEST_F(GrpcRpc, NamesAPortThatIsInUse) {
  auto second = MakeGrpcServer(loop_);
  const auto address = second->Start(address_);
  ASSERT_FALSE(address.ok());
  EXPECT_TRUE(IsFailedPrecondition(address.status()));
  EXPECT_NE(address.status().message().find(address_), std::string::npos);
  EXPECT_TRUE(IsInvalidArgument(MakeGrpcServer(loop_)->Start("nonsense").status()));
}

TEST_F(GrpcRpc, AnswersOpenCallsWhenTheServerGoes) {
  std::optional<Result<std::string>> answer;
  client_->Call("/t.S/Keep", "", kLong,
                scope_.Bind([&](Result<std::string> r) { answer.emplace(std::move(r)); }));
  ASSERT_TRUE(Until([&] { return !kept_.empty(); }));
  server_.reset();
  ASSERT_TRUE(Until([&] { return answer.has_value(); }));
  EXPECT_EQ(answer->status(), UnavailableError(address_ + ": " + std::string(kServerEnds)));
  kept_[0](std::string("too late"));  // must be harmless
}

// Answers that are on their way out are not overtaken by the end of their connection.
TEST_F(GrpcRpc, AnswersEachOfManyOpenCallsWhenTheServerGoes) {
  constexpr size_t kCalls = 500;
  std::vector<Status> answers;
  for (size_t i = 0; i < kCalls; ++i) {
    client_->Call("/t.S/Keep", "", kLong, scope_.Bind([&](const Result<std::string>& r) {
      answers.push_back(r.status());
    }));
  }
  ASSERT_TRUE(Until([&] { return kept_.size() == kCalls; }));
  // What comes in meanwhile keeps gRPC's own threads busy with the connection.
  const auto stream = OpenStream();
  for (int i = 0; i < 100; ++i) stream->Send(std::string(100'000, 'x'));
  server_.reset();
  ASSERT_TRUE(Until([&] { return answers.size() == kCalls; }));
  const Status expected = UnavailableError(address_ + ": " + std::string(kServerEnds));
  EXPECT_EQ(std::count(answers.begin(), answers.end(), expected), kCalls) << answers.back();
}

// Those that its loop will never see are answered too: else its end waits for them in vain.
TEST_F(GrpcRpc, CallsThatComeInAtItsEndDoNotHoldUpAServer) {
  constexpr int kEnds = 33, kOpen = 64;
  int held_up = 0;  // as a third of them were
  for (int i = 0; i < kEnds; ++i) {
    ThreadLoop server_loop;
    const Scope scope;
    auto server = MakeGrpcServer(server_loop);
    int seen = 0;
    server->Handle("/t.S/Echo", scope.Bind([&](std::string request, Responder respond) {
      ++seen;
      respond(std::move(request));
    }));
    const auto client = connector_->MakeClient(*server->Start("127.0.0.1:0"), "");
    std::atomic<bool> ended = false;
    std::thread caller([&] {  // loop_ is this thread's until it is joined
      Scope caller_scope;
      int open = 0;
      while (!ended || open > 0) {
        for (; !ended && open < kOpen; ++open) {
          client->Call("/t.S/Echo", "", kLong, caller_scope.Bind([&](const Result<std::string>& r) {
            --open;
            if (r.ok()) return;
            EXPECT_TRUE(IsUnavailable(r.status())) << r.status();
            ended = true;
          }));
        }
        const int before = open;
        EXPECT_TRUE(Until([&] { return open < before; }));
        if (open == before) return;
      }
    });
    EXPECT_TRUE(server_loop.RunUntil([&] { return seen > 3 * kOpen; }, server_loop.Now() + kLong));
    const MonotonicTime from = server_loop.Now();
    server.reset();
    if (server_loop.Now() - from > Duration::Millis(900)) ++held_up;
    caller.join();
  }
  EXPECT_LE(held_up, 3);
}

TEST_F(GrpcRpc, CarriesStreamMessagesInOrderBothWays) {
  auto stream = OpenStream();
  std::vector<std::string> sent;
  for (int i = 0; i < 100; ++i) {
    sent.push_back(std::to_string(i) + std::string(i * 100, 'm'));
    EXPECT_TRUE(stream->Send(sent.back()));
  }
  ASSERT_TRUE(Until([&] { return server_got_.size() == 100; }));
  EXPECT_EQ(server_got_, sent);
  server_stream_->Send("back");
  ASSERT_TRUE(Until([&] { return !client_got_.empty() && drained_ > 0; }));
  EXPECT_EQ(stream->queued_bytes(), 0u);
}

TEST_F(GrpcRpc, EndsAStreamWithTheServersStatusAfterItsMessages) {
  auto stream = OpenStream();
  ASSERT_TRUE(Until([&] { return server_stream_ != nullptr; }));
  server_stream_->Send("last");
  server_stream_->Close(AbortedError("fenced"));
  ASSERT_TRUE(Until([&] { return client_closed_.has_value(); }));
  EXPECT_TRUE(IsAborted(*client_closed_));
  EXPECT_EQ(client_got_, std::vector<std::string>{"last"});
  EXPECT_FALSE(stream->Send("late"));
}

TEST_F(GrpcRpc, AnswersAHalfCloseWithOkAfterTheMessages) {
  auto stream = OpenStream();
  stream->Send("one");
  stream->Close(OkStatus());
  EXPECT_FALSE(stream->Send("late"));
  ASSERT_TRUE(Until([&] { return client_closed_.has_value() && server_closed_.has_value(); }));
  EXPECT_TRUE(client_closed_->ok());
  EXPECT_TRUE(server_closed_->ok());
  EXPECT_EQ(server_got_, std::vector<std::string>{"one"});
}

TEST_F(GrpcRpc, ShowsADroppedStreamToTheServer) {
  auto stream = OpenStream();
  ASSERT_TRUE(Until([&] { return server_stream_ != nullptr; }));
  stream.reset();
  ASSERT_TRUE(Until([&] { return server_closed_.has_value(); }));
}

TEST_F(GrpcRpc, ShowsADroppedStreamToTheClient) {
  auto stream = OpenStream();
  ASSERT_TRUE(Until([&] { return server_stream_ != nullptr; }));
  server_stream_.reset();
  ASSERT_TRUE(Until([&] { return client_closed_.has_value(); }));
  EXPECT_TRUE(IsCancelled(*client_closed_));
}

TEST_F(GrpcRpc, EndsStreamsWhenTheServerGoes) {
  auto stream = OpenStream();
  ASSERT_TRUE(Until([&] { return server_stream_ != nullptr; }));
  server_.reset();
  ASSERT_TRUE(Until([&] { return client_closed_.has_value(); }));
  EXPECT_FALSE(client_closed_->ok());
}

TEST_F(GrpcRpc, ReportsAStreamToNobody) {
  server_.reset();
  auto stream = OpenStream();
  stream->Send("x");
  ASSERT_TRUE(Until([&] { return client_closed_.has_value(); }));
  EXPECT_TRUE(IsUnavailable(*client_closed_));
}

// A long poll that is still open when its owner goes must not post to a loop that is gone.
TEST(GrpcRpcShutdown, EndsOpenCallsAndStreamsBeforeTheConnectorIsGone) {
  const Scope scope;
  ThreadLoop server_loop;
  auto server = MakeGrpcServer(server_loop);
  std::vector<Responder> kept;
  server->Handle("/t.S/Keep", scope.Bind([&](std::string, Responder respond) {
    kept.push_back(std::move(respond));
  }));
  std::vector<std::unique_ptr<Stream>> streams;
  server->HandleStream("/t.S/Stream", scope.Bind([&](std::unique_ptr<Stream> s) {
    s->SetCallbacks({});
    streams.push_back(std::move(s));
  }));
  const std::string address = *server->Start("127.0.0.1:0");
  for (int round = 0; round < 20; ++round) {
    ThreadLoop loop;
    auto connector = MakeGrpcConnector(loop);
    auto client = connector->MakeClient(address, "");
    auto stream = client->Open("/t.S/Stream");
    stream->SetCallbacks({});
    stream->Send("x");
    client->Call("/t.S/Keep", "", kLong, scope.Bind([](Result<std::string>) {}));
    server_loop.RunUntil([&] { return kept.size() > static_cast<size_t>(round); },
                         server_loop.Now() + kLong);
    if (round % 2 == 0) stream.reset();
    client.reset();
    connector.reset();
  }
  EXPECT_EQ(kept.size(), 20u);
}

// What a process of a cell has: calls go out and come in on one thread, whichever goes first.
TEST(GrpcRpcBeside, CallsItselfAndEndsInEitherOrder) {
  const Scope scope;
  for (const bool server_first : {false, true}) {
    ThreadLoop loop;
    auto server = MakeGrpcServer(loop);
    auto connector = MakeGrpcConnectorBeside(*server);
    server->Handle("/t.S/Echo", scope.Bind([](std::string request, Responder respond) {
      respond("re: " + request);
    }));
    std::vector<Responder> kept;
    server->Handle("/t.S/Keep", scope.Bind([&](std::string, Responder respond) {
      kept.push_back(std::move(respond));
    }));
    auto client = connector->MakeClient(*server->Start("127.0.0.1:0"), "");
    std::optional<Result<std::string>> echo, open;
    client->Call("/t.S/Echo", "hi", kLong,
                 scope.Bind([&](Result<std::string> r) { echo.emplace(std::move(r)); }));
    client->Call("/t.S/Keep", "", kLong,
                 scope.Bind([&](Result<std::string> r) { open.emplace(std::move(r)); }));
    ASSERT_TRUE(loop.RunUntil([&] { return echo && !kept.empty(); }, loop.Now() + kLong));
    EXPECT_EQ(**echo, "re: hi");
    if (server_first) {
      server.reset();
      ASSERT_TRUE(loop.RunUntil([&] { return open.has_value(); }, loop.Now() + kLong));
      EXPECT_FALSE(open->ok());
      connector.reset();
    } else {
      connector.reset();
      ASSERT_TRUE(loop.RunUntil([&] { return open.has_value(); }, loop.Now() + kLong));
      EXPECT_TRUE(IsCancelled(open->status())) << open->status().ToString();
      server.reset();
    }
    kept.clear();  // answers nobody
  }
}

TEST(GrpcRpcBeside, CallsOthersWhenTheServerCouldNotStart) {
  const Scope scope;
  ThreadLoop loop;
  auto other = MakeGrpcServer(loop);
  other->Handle("/t.S/Echo", scope.Bind([](std::string request, Responder respond) {
    respond("re: " + request);
  }));
  const std::string address = *other->Start("127.0.0.1:0");
  auto server = MakeGrpcServer(loop);
  auto connector = MakeGrpcConnectorBeside(*server);
  EXPECT_TRUE(IsFailedPrecondition(server->Start(address).status()));
  std::optional<Result<std::string>> answer;
  connector->MakeClient(address, "")
      ->Call("/t.S/Echo", "hi", kLong,
             scope.Bind([&](Result<std::string> r) { answer.emplace(std::move(r)); }));
  ASSERT_TRUE(loop.RunUntil([&] { return answer.has_value(); }, loop.Now() + kLong));
  EXPECT_EQ(**answer, "re: hi");
}

// The loop is the slow reader: while it does not turn, the sender's queue must fill up.
TEST(GrpcRpcBackPressure, StopsASenderWhoseReaderDoesNotTurn) {
  const Scope scope;
  ThreadLoop server_loop, client_loop;
  auto server = MakeGrpcServer(server_loop);
  std::unique_ptr<Stream> server_stream;
  size_t got = 0;
  server->HandleStream("/t.S/Stream", scope.Bind([&](std::unique_ptr<Stream> stream) {
    server_stream = std::move(stream);
    Stream::Callbacks callbacks;
    callbacks.on_message = scope.Bind([&](std::string m) { got += m.size(); });
    server_stream->SetCallbacks(std::move(callbacks));
  }));
  const std::string address = *server->Start("127.0.0.1:0");
  auto connector = MakeGrpcConnector(client_loop);
  auto client = connector->MakeClient(address, "");
  auto stream = client->Open("/t.S/Stream");
  stream->SetCallbacks({});
  constexpr size_t kTotal = 200u << 20;
  for (size_t sent = 0; sent < kTotal; sent += 1 << 20) stream->Send(std::string(1 << 20, 'x'));
  client_loop.RunFor(Duration::Millis(500));
  EXPECT_GT(stream->queued_bytes(), kTotal / 2) << "nothing bounds what the reader takes in";
  EXPECT_TRUE(server_loop.RunUntil([&] { return got == kTotal; }, server_loop.Now() + kLong));
}

}  // namespace
}  // namespace tailcast::rpc
