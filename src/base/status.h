// Errors at module borders. Status says what a caller should do (its code) and tells a person what
// was wrong, where, and what to do (its message). Result<T> is a value or such an error.
//
// On the data path use a one-byte enum instead: building a Status with text allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast {

// Numbered as gRPC numbers them, so that a code crosses the wire unchanged.
enum class StatusCode : uint8_t {
  kOk = 0,
  kCancelled = 1,           // the caller gave up
  kInvalidArgument = 3,     // the input is wrong whatever the state; correct it
  kDeadlineExceeded = 4,    // no answer in time; the outcome is unknown
  kNotFound = 5,            // no such name
  kAlreadyExists = 6,       // somebody created it before
  kPermissionDenied = 7,    // not allowed
  kResourceExhausted = 8,   // a limit is reached: slow down
  kFailedPrecondition = 9,  // fix something first, then try again
  kAborted = 10,            // lost a race: redo from the top
  kOutOfRange = 11,         // a position that does not exist (any more)
  kUnimplemented = 12,      // this driver lacks the capability
  kInternal = 13,           // our bug
  kUnavailable = 14,        // try again or another replica
  kDataLoss = 15,           // bytes contradict each other: stop and alert
};

std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "Unavailable: cache 3 at 127.0.0.1:4711 refused the connection"
  std::string ToString() const;
  // The same error with `context: ` before its message. Ok stays ok.
  Status WithContext(std::string_view context) const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code_ == b.code_ && a.message_ == b.message_;
  }
  friend std::ostream& operator<<(std::ostream& os, const Status& s) { return os << s.ToString(); }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
#define TAILCAST_DEFINE_ERROR(Name)                         \
  inline Status Name##Error(std::string message) {          \
    return Status(StatusCode::k##Name, std::move(message)); \
  }                                                         \
  inline bool Is##Name(const Status& s) { return s.code() == StatusCode::k##Name; }
TAILCAST_DEFINE_ERROR(Cancelled)
TAILCAST_DEFINE_ERROR(InvalidArgument)
TAILCAST_DEFINE_ERROR(DeadlineExceeded)
TAILCAST_DEFINE_ERROR(NotFound)
TAILCAST_DEFINE_ERROR(AlreadyExists)
TAILCAST_DEFINE_ERROR(PermissionDenied)
TAILCAST_DEFINE_ERROR(ResourceExhausted)
TAILCAST_DEFINE_ERROR(FailedPrecondition)
TAILCAST_DEFINE_ERROR(Aborted)
TAILCAST_DEFINE_ERROR(OutOfRange)
TAILCAST_DEFINE_ERROR(Unimplemented)
TAILCAST_DEFINE_ERROR(Internal)
TAILCAST_DEFINE_ERROR(Unavailable)
TAILCAST_DEFINE_ERROR(DataLoss)
#undef TAILCAST_DEFINE_ERROR

// The code for a failed system call and its message, e.g.
// ErrnoStatus(ENOSPC, "write /data/x") -> ResourceExhausted "write /data/x: No space left on
// device". ResourceExhausted is a full disk or quota, and nothing else.
Status ErrnoStatus(int error_number, std::string_view what);

// A T or the error that prevented it. Accessing the value of an error is a bug (CHECK).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    TAILCAST_CHECK(!status_.ok(), "a Result made of a status needs an error");
  }
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    Require();
    return *value_;
  }
  const T& value() const& {
    Require();
    return *value_;
  }
  T&& value() && {
    Require();
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Require() const { TAILCAST_CHECK(value_.has_value(), status_.ToString()); }
  Status status_;
  std::optional<T> value_;
};

#define TAILCAST_CONCAT_INNER(a, b) a##b
#define TAILCAST_CONCAT(a, b) TAILCAST_CONCAT_INNER(a, b)
// Leaves the function with the error, if `expr` (a Status) is one.
#define TAILCAST_RETURN_IF_ERROR(expr)                       \
  do {                                                       \
    if (::tailcast::Status _s = (expr); !_s.ok()) return _s; \
  } while (false)
// TAILCAST_ASSIGN_OR_RETURN(auto file, Open(name));  NOLINTBEGIN(bugprone-macro-parentheses)
#define TAILCAST_ASSIGN_OR_RETURN(lhs, expr) \
  TAILCAST_ASSIGN_OR_RETURN_IMPL(TAILCAST_CONCAT(_result_, __LINE__), lhs, expr)
#define TAILCAST_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                   \
  if (!result.ok()) return result.status();               \
  lhs = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses): what a macro declares takes no parentheses.
}  // namespace tailcast
