#include "tailcast/cell/cache_clients.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::cell {
namespace {

cache::RingConfig RingOf(const std::vector<std::string>& names) {
  cache::RingConfig ring;
  ring.configuration_id = cache::ConfigurationId{1};
  for (const std::string& name : names) ring.replicas.emplace_back().name = name;
  return ring;
}

class CacheClientsTest : public testing::Test {
 protected:
  Result<std::unique_ptr<CacheClients>> Make(const std::vector<std::string>& replicas) {
    return CacheClients::Make({.loop = &loop_, .fabric = fabric_.get(), .rpc = rpc_.get()},
                              {.cell = "us", .replicas = replicas});
  }
  static Status Update(CacheClients& clients, const std::vector<std::string>& names) {
    return clients.Update(RingOf(names), RingOf(names));
  }

  ThreadLoop loop_;
  std::unique_ptr<rpc::Connector> rpc_ = rpc::MakeGrpcConnector(loop_);
  std::unique_ptr<fabric::Connector> fabric_ = fabric::MakeConnector(&loop_);
};

TEST_F(CacheClientsTest, TheNamesOfTheReplicasChooseTheKind) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{}, {"cache-1", "cache-2"}}) {
    const auto clients = Make(names);
    ASSERT_TRUE(clients.ok()) << clients.status();
    EXPECT_NE(dynamic_cast<cache::QuorumClient*>(&(*clients)->data()), nullptr);
    EXPECT_NE(dynamic_cast<cache::QuorumClient*>(&(*clients)->metadata()), nullptr);
    EXPECT_EQ((*clients)->ready_data(), 0u);
  }
  const auto clients = Make({"memcached:127.0.0.1:1", "memcached:127.0.0.1:2"});
  ASSERT_TRUE(clients.ok()) << clients.status();
  EXPECT_NE(dynamic_cast<memcached::MemcachedClient*>(&(*clients)->data()), nullptr);
  EXPECT_NE(dynamic_cast<memcached::MemcachedClient*>(&(*clients)->metadata()), nullptr);
  EXPECT_NE(&(*clients)->data(), &(*clients)->metadata());
  EXPECT_EQ((*clients)->ready_metadata(), 2u) << "nothing is known against them";
  EXPECT_EQ((*clients)->memcached_data()->unreachable_requests, 0u);
  EXPECT_NE((*clients)->memcached_metadata(), nullptr);
  EXPECT_EQ((*Make({}))->memcached_data(), nullptr);
  EXPECT_TRUE(IsInvalidArgument(Make({"memcached:127.0.0.1:1", "cache-2"}).status()));
}

TEST_F(CacheClientsTest, OtherCachesThanTheRegistrysAreAnError) {
  auto own = *Make({});
  EXPECT_TRUE(Update(*own, {"cache-1", "cache-2"}).ok());
  EXPECT_TRUE(Update(*own, {"cache-1"}).ok());
  const Status status = Update(*own, {"memcached:127.0.0.1:1"});
  EXPECT_TRUE(IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("memcached:127.0.0.1:1"), std::string::npos) << status;
  auto memcached = *Make({"memcached:127.0.0.1:1", "memcached:127.0.0.1:2"});
  EXPECT_TRUE(Update(*memcached, {"memcached:127.0.0.1:2", "memcached:127.0.0.1:1"}).ok());
  EXPECT_TRUE(Update(*memcached, {}).ok()) << "the registry says nothing yet";
  EXPECT_TRUE(IsFailedPrecondition(Update(*memcached, {"memcached:127.0.0.1:1"})));
  EXPECT_TRUE(IsFailedPrecondition(Update(*memcached, {"cache-1"})));
}

}  // namespace
}  // namespace tailcast::cell
