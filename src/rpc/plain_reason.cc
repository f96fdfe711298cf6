#include "tailcast/rpc/plain_reason.h"

#include <utility>

namespace tailcast::rpc {
namespace {

// How the messages begin that gRPC makes for want of a connection.
constexpr std::string_view kOfTransport[] = {
    "failed to connect to all addresses",
    "DNS resolution failed",
    "Received http2 header",
    "Socket closed",
    "recvmsg:",
    "Endpoint read failed",
    "Connection reset by peer",
    "Broken pipe",
    "Deadline Exceeded",
};

// The first one that is somewhere in the message says it.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"Connection refused", "nothing listens there (connection refused)"},
    {"Could not contact DNS servers", "the name could not be looked up"},
    {"Temporary failure in name resolution", "the name could not be looked up"},
    {"Timeout while contacting DNS", "the name could not be looked up"},
    {"DNS resolution failed", "no host is known by that name"},
    {"Network is unreachable", "there is no way to that address (network is unreachable)"},
    {"No route to host", "there is no way to that address (no route to host)"},
    {"Connection timed out", "nobody answers at that address"},
    {"Timeout occurred", "nobody answers at that address"},
    {"Deadline Exceeded", "no answer in time"},
    {"Received http2 header", "something else answers there"},
    {"Trying to connect an http1.x server", "something else answers there"},
    {"Socket closed", "the connection was closed"},
    {"Connection reset by peer", "the connection was closed"},
    {"Broken pipe", "the connection was closed"},
};

}  // namespace

std::string PlainReason(std::string_view message) {
  bool of_transport = false;
  for (const std::string_view beginning : kOfTransport) {
    of_transport = of_transport || message.starts_with(beginning);
  }
  if (!of_transport) return std::string(message);
  for (const auto& [words, reason] : kReasons) {
    if (message.find(words) != std::string_view::npos) return std::string(reason);
  }
  // "...; last error: CODE: ADDRESS: what the system says"
  const size_t last = message.rfind(": ");
  return "no connection" +
         (last == std::string_view::npos ? "" : " (" + std::string(message.substr(last + 2)) + ")");
}

}  // namespace tailcast::rpc
