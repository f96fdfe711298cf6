#include "tailcast/base/status.h"

#include <cerrno>
#include <cstring>

namespace tailcast {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "Ok";
    case StatusCode::kCancelled:
      return "Cancelled";
    case StatusCode::kInvalidArgument:
      return "InvalidArgument";
    case StatusCode::kDeadlineExceeded:
      return "DeadlineExceeded";
    case StatusCode::kNotFound:
      return "NotFound";
    case StatusCode::kAlreadyExists:
      return "AlreadyExists";
    case StatusCode::kPermissionDenied:
      return "PermissionDenied";
    case StatusCode::kResourceExhausted:
      return "ResourceExhausted";
    case StatusCode::kFailedPrecondition:
      return "FailedPrecondition";
    case StatusCode::kAborted:
      return "Aborted";
    case StatusCode::kOutOfRange:
      return "OutOfRange";
    case StatusCode::kUnimplemented:
      return "Unimplemented";
    case StatusCode::kInternal:
      return "Internal";
    case StatusCode::kUnavailable:
      return "Unavailable";
    case StatusCode::kDataLoss:
      return "DataLoss";
  }
  return "Unknown";
}

std::string Status::ToString() const {
  if (ok()) return "Ok";
  std::string text(StatusCodeName(code_));
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message_);
}

Status ErrnoStatus(int error_number, std::string_view what) {
  StatusCode code = StatusCode::kUnavailable;
  switch (error_number) {
    case ENOENT:
      code = StatusCode::kNotFound;
      break;
    case EEXIST:
      code = StatusCode::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = StatusCode::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
      code = StatusCode::kResourceExhausted;
      break;
    case EINVAL:
    case ENAMETOOLONG:
    case EISDIR:
    case ENOTDIR:
      code = StatusCode::kInvalidArgument;
      break;
    case EADDRINUSE:
      code = StatusCode::kFailedPrecondition;
      break;
    case ETIMEDOUT:
      code = StatusCode::kDeadlineExceeded;
      break;
    default:
      break;
  }
  // Memory and descriptors are this process' or this host's trouble, and are back sooner or later:
  // kUnavailable. Who waits for room on a disk does not wait for these.
  const char* advice = "";
  if (error_number == EMFILE) advice = "; raise this process' limit of them (ulimit -n)";
  if (error_number == ENFILE) advice = "; raise this host's limit of them (sysctl fs.file-max)";
  // strerrordesc_np is thread-safe and untranslated, unlike strerror.
  const char* text = strerrordesc_np(error_number);
  return Status(code,
                std::string(what) + ": " + (text != nullptr ? text : "unknown error") + advice);
}

}  // namespace tailcast
