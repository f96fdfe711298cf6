#include "tailcast/link/link_proxy.h"

#include <gtest/gtest.h>

#include <optional>

#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::link {
namespace {

constexpr Duration kDelay = Duration::Millis(30);

class LinkProxyTest : public ::testing::Test {
 protected:
  LinkProxyTest() {
    server_->Handle("/t.S/Echo", scope_.Bind([](std::string request, rpc::Responder respond) {
      respond(std::move(request));
    }));
    server_address_ = *server_->Start("127.0.0.1:0");
  }
  Result<std::string> Call(rpc::Client& client, std::string request) {
    std::optional<Result<std::string>> answer;
    client.Call("/t.S/Echo", std::move(request), Duration::Seconds(20),
                scope_.Bind([&](Result<std::string> r) { answer.emplace(std::move(r)); }));
    loop_.RunUntil([&] { return answer.has_value(); }, loop_.Now() + Duration::Seconds(30));
    return std::move(*answer);
  }

  ThreadLoop loop_;
  std::unique_ptr<rpc::Server> server_ = rpc::MakeGrpcServer(loop_);
  std::unique_ptr<rpc::Connector> connector_ = rpc::MakeGrpcConnector(loop_);
  std::string server_address_;
  Scope scope_;
};

TEST_F(LinkProxyTest, DelaysEachWayAndKeepsTheBytes) {
  auto proxy = LinkProxy::Start("127.0.0.1:0", {.delay = kDelay});
  ASSERT_TRUE(proxy.ok());
  auto client = connector_->MakeClient(server_address_, (*proxy)->address());
  ASSERT_EQ(*Call(*client, "warm"), "warm");
  const MonotonicTime start = ReadMonotonicClock();
  const std::string large(3 << 20, 'z');
  EXPECT_EQ(*Call(*client, large), large);
  EXPECT_GE(ReadMonotonicClock() - start, kDelay * 2);
}

TEST_F(LinkProxyTest, LimitsTheRate) {
  auto proxy =
      LinkProxy::Start("127.0.0.1:0", {.delay = Duration::Millis(1), .bytes_per_second = 10 << 20});
  ASSERT_TRUE(proxy.ok());
  auto client = connector_->MakeClient(server_address_, (*proxy)->address());
  ASSERT_EQ(*Call(*client, "warm"), "warm");
  const MonotonicTime start = ReadMonotonicClock();
  const std::string large(2 << 20, 'z');
  EXPECT_EQ(*Call(*client, large), large);
  EXPECT_GE((ReadMonotonicClock() - start).millis(), 380);  // 2 MB each way at 10 MB/s
}

TEST_F(LinkProxyTest, TellsTheClientThatNobodyListens) {
  auto proxy = LinkProxy::Start("127.0.0.1:0", {.delay = Duration::Millis(1)});
  ASSERT_TRUE(proxy.ok());
  server_.reset();
  auto client = connector_->MakeClient(server_address_, (*proxy)->address());
  EXPECT_FALSE(Call(*client, "x").ok());
}

TEST_F(LinkProxyTest, RefusesToLeaveTheHost) {
  auto proxy = LinkProxy::Start("127.0.0.1:0", {.delay = Duration::Millis(1)});
  ASSERT_TRUE(proxy.ok());
  auto client = connector_->MakeClient("192.0.2.1:80", (*proxy)->address());
  EXPECT_TRUE(IsUnavailable(Call(*client, "x").status()));
}

TEST_F(LinkProxyTest, NamesAnAddressThatItCannotUse) {
  EXPECT_TRUE(IsInvalidArgument(LinkProxy::Start("nowhere", {}).status()));
  auto proxy = LinkProxy::Start("127.0.0.1:0", {});
  const auto again = LinkProxy::Start((*proxy)->address(), {});
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find((*proxy)->address()), std::string::npos);
}

}  // namespace
}  // namespace tailcast::link
