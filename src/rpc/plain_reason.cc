#include "tailcast/rpc/plain_reason.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tailcast::rpc {
namespace {

// How the messages begin that gRPC makes for want of a connection.
constexpr std::string_view kOfTransport[] = {
    "failed to connect to all addresses",
    "DNS resolution failed",
    "Received http2 header",
    "Deadline Exceeded",
};

// And where there was one.
constexpr std::string_view kOfConnection[] = {
    "Socket closed", "recvmsg:", "Endpoint read failed", "Connection reset by peer", "Broken pipe",
};

template <size_t n>
bool BeginsWithAny(std::string_view message, const std::string_view (&beginnings)[n]) {
  return std::any_of(std::begin(beginnings), std::end(beginnings),
                     [&](std::string_view beginning) { return message.starts_with(beginning); });
}

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
    {"Deadline Exceeded", kNoAnswerInTime},
    {"Received http2 header", "something else answers there"},
    {"Trying to connect an http1.x server", "something else answers there"},
};

// A server whose end did not wait for the call's.
constexpr std::string_view kOfServersEnd = "Cancelling all calls";

}  // namespace

std::string PlainReason(std::string_view message) {
  if (message == kOfServersEnd) return std::string(kServerEnds);
  if (BeginsWithAny(message, kOfConnection)) return std::string(kConnectionClosed);
  if (!BeginsWithAny(message, kOfTransport)) return std::string(message);
  for (const auto& [words, reason] : kReasons) {
    if (message.find(words) != std::string_view::npos) return std::string(reason);
  }
  // "...; last error: CODE: ADDRESS: what the system says"
  const size_t last = message.rfind(": ");
  return "no connection" +
         (last == std::string_view::npos ? "" : " (" + std::string(message.substr(last + 2)) + ")");
}

}  // namespace tailcast::rpc
