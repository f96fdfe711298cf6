#include "tailcast/rpc/plain_reason.h"

#include <gtest/gtest.h>

namespace tailcast::rpc {
namespace {

TEST(PlainReasonTest, WhatGrpcSaysIsSaidForPeople) {
  EXPECT_EQ(PlainReason("failed to connect to all addresses; last error: UNKNOWN: "
                        "ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused"),
            "nothing listens there (connection refused)");
  EXPECT_EQ(PlainReason("DNS resolution failed for no-such.invalid:7400: C-ares status is not "
                        "ARES_SUCCESS qtype=AAAA name=no-such.invalid is_balancer=0: Domain name "
                        "not found"),
            "no host is known by that name");
  EXPECT_EQ(PlainReason("DNS resolution failed for a.example:7400: C-ares status is not "
                        "ARES_SUCCESS qtype=A name=a.example is_balancer=0: Could not contact DNS "
                        "servers"),
            "the name could not be looked up");
  EXPECT_EQ(PlainReason("Received http2 header with status: 404"), "something else answers there");
  EXPECT_EQ(PlainReason("failed to connect to all addresses; last error: UNAVAILABLE: "
                        "ipv4:127.0.0.1:22: Trying to connect an http1.x server"),
            "something else answers there");
  EXPECT_EQ(PlainReason("Deadline Exceeded"), "no answer in time");
  EXPECT_EQ(PlainReason("failed to connect to all addresses; last error: INTERNAL: "
                        "ipv4:10.0.0.1:7400: Too many open files"),
            "no connection (Too many open files)");
}

TEST(PlainReasonTest, AConnectionThatBreaksIsNoneThatCanNotBeMade) {
  for (const char* said : {"Socket closed", "recvmsg:Connection reset by peer",
                           "recvmsg:Connection timed out", "Endpoint read failed", "Broken pipe"}) {
    EXPECT_EQ(PlainReason(said), kConnectionClosed);
  }
}

TEST(PlainReasonTest, AServerThatIsGoneIsNoConnectionThatBroke) {
  EXPECT_EQ(PlainReason("Cancelling all calls"), kServerEnds);
}

TEST(PlainReasonTest, WhatAServerSaysStays) {
  for (const char* said : {"", "the scheduler is not ready", "cell b: Connection refused",
                           "no such method /tailcast.v1.X/Y"}) {
    EXPECT_EQ(PlainReason(said), said);
  }
}

}  // namespace
}  // namespace tailcast::rpc
