#include "tailcast/base/host_port.h"

#include "gtest/gtest.h"

namespace tailcast {
namespace {

TEST(HostPortTest, AHostAndAPort) {
  for (const char* text :
       {"localhost:1", "10.0.0.7:7400", "a-b.example_c:65535", "[::1]:80", "[fe80::1%eth0]:80"}) {
    EXPECT_TRUE(IsHostPort(text)) << text;
  }
  for (const char* text : {"", "localhost", "20780", ":80", "localhost:", "localhost:0", "h:65536",
                           "h:-1", "h:+1", "h:8x", "h:000080", "h: 80", "h h:80", "http://h:80"}) {
    EXPECT_FALSE(IsHostPort(text)) << text;
  }
}

}  // namespace
}  // namespace tailcast
