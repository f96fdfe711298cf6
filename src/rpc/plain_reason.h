// Why a call came to nothing, for people: gRPC's own words name its resolver, its load balancer and
// every address that was tried.
#pragma once

#include <string>
#include <string_view>

namespace tailcast::rpc {

// "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to
// remote host: Connection refused" is "nothing listens there (connection refused)". What gRPC did
// not say stays as it is.
std::string PlainReason(std::string_view grpc_message);

// What it says of a call that was on its way when it came to nothing: whether the server has done
// what it was asked for is not known.
inline constexpr std::string_view kConnectionClosed = "the connection was closed";
inline constexpr std::string_view kServerEnds = "the server is shutting down";  // says the server
inline constexpr std::string_view kNoAnswerInTime = "no answer in time";

}  // namespace tailcast::rpc
