#include "tailcast/memcached/server_address.h"

#include <string>

#include "gtest/gtest.h"
#include "tailcast/memcached/replica_names.h"

namespace tailcast::memcached {
namespace {

TEST(ServerAddressTest, ReadsAddressesAndWritesThemAsTheyWere) {
  const std::string text = "memcached:127.0.0.1:11211,cache-2.example:1,[::1]:65535,/run/m.sock";
  const auto servers = ParseServers(text);
  ASSERT_TRUE(servers.ok()) << servers.status();
  ASSERT_EQ(servers->size(), 4u);
  EXPECT_EQ((*servers)[0], (ServerAddress{"127.0.0.1", 11211}));
  EXPECT_EQ((*servers)[2], (ServerAddress{"::1", 65535}));
  EXPECT_EQ((*servers)[3], (ServerAddress{"/run/m.sock", 0}));
  EXPECT_EQ(FormatServers(*servers), text);
}

TEST(ServerAddressTest, SaysWhichAddressIsWrongAndWhy) {
  const auto error = [](const std::string& text) {
    const auto servers = ParseServers(text);
    EXPECT_TRUE(IsInvalidArgument(servers.status())) << text;
    return servers.status().message();
  };
  EXPECT_NE(error("redis:h:1").find("memcached:HOST:PORT"), std::string::npos);
  EXPECT_NE(error("memcached:").find("'' has no port"), std::string::npos);
  EXPECT_NE(error("memcached:h:1,").find("'' has no port"), std::string::npos);
  EXPECT_NE(error("memcached:h:1,b").find("'b' has no port"), std::string::npos);
  EXPECT_NE(error("memcached:h:0").find("'h:0' has no port of 1 to 65535"), std::string::npos);
  EXPECT_NE(error("memcached:h:65536").find("1 to 65535"), std::string::npos);
  EXPECT_NE(error("memcached:h:12x").find("1 to 65535"), std::string::npos);
  EXPECT_NE(error("memcached::11211").find("has no host"), std::string::npos);
  EXPECT_NE(error("memcached:a b:11211").find("has no host"), std::string::npos);
  EXPECT_NE(error("memcached:::1:11211").find("is no address"), std::string::npos);
  EXPECT_NE(error("memcached:[/run/m.sock]:1").find("has no host"), std::string::npos);
  EXPECT_NE(error("memcached:h:1,h:1").find("'h:1' is there twice"), std::string::npos);
  EXPECT_NE(error("memcached:/" + std::string(200, 'x')).find("longer"), std::string::npos);
  std::string many = "memcached:h:1";
  for (int port = 2; port <= 65; ++port) many += ",h:" + std::to_string(port);
  EXPECT_NE(error(many).find("more than 64"), std::string::npos);
}

TEST(ServerAddressTest, RingsNameMemcachedServersOrProcessesNotBoth) {
  const std::vector<ServerAddress> servers = {{"h", 1}, {"::1", 2}, {"/run/m.sock", 0}};
  const std::vector<std::string> names = {"memcached:h:1", "memcached:[::1]:2",
                                          "memcached:/run/m.sock"};
  EXPECT_EQ(ReplicaNames(servers), names);
  EXPECT_EQ(*ServersOf(names), servers);
  EXPECT_TRUE(ServersOf({"cache-1", "cache-2"})->empty());
  EXPECT_TRUE(ServersOf({})->empty());
  EXPECT_TRUE(IsInvalidArgument(ServersOf({"memcached:h:1", "cache-2"}).status()));
  EXPECT_TRUE(IsInvalidArgument(ServersOf({"memcached:h:1", "memcached:h:1"}).status()));
  EXPECT_TRUE(IsInvalidArgument(ServersOf({"memcached:h"}).status()));
}

TEST(ServerAddressTest, NobodyThereIsSaidWithEveryAddress) {
  const Status status =
      CheckServers({{"/nowhere/a.sock", 0}, {"/nowhere/b.sock", 0}}, Duration::Millis(500));
  EXPECT_TRUE(IsUnavailable(status));
  EXPECT_NE(status.message().find("/nowhere/a.sock ("), std::string::npos) << status;
  EXPECT_NE(status.message().find("/nowhere/b.sock ("), std::string::npos) << status;
}

}  // namespace
}  // namespace tailcast::memcached
