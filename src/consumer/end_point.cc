#include "tailcast/consumer/end_point.h"

#include <string>

#include "tailcast/consumer/start_point.h"

namespace tailcast::consumer {

Result<EndPoint> EndPoint::Parse(std::string_view text, WallTime now) {
  TAILCAST_ASSIGN_OR_RETURN(const StartPoint point, StartPoint::Parse(text, now));
  switch (point.kind) {
    case StartPoint::Kind::kTime:
      return Before(point.time);
    case StartPoint::Kind::kNumber:
      return BeforeNumber(point.number);
    case StartPoint::Kind::kPosition:
      return Before(point.position);
    case StartPoint::Kind::kBeginning:
    case StartPoint::Kind::kEnd:
      break;
  }
  return InvalidArgumentError("'" + std::string(text) +
                              "' is no end: use time:T, number:N or a position");
}

bool EndPoint::IsBefore(const Message& message) const {
  switch (kind) {
    case Kind::kNever:
      return false;
    case Kind::kTime:
      return message.time_us >= time.micros();
    case Kind::kNumber:
      return message.number >= number;
    case Kind::kPosition:
      return message.number >= position.number;
  }
  return false;
}

bool EndPoint::IsReached(int64_t next, WallTime as_of) const {
  switch (kind) {
    case Kind::kNever:
      return false;
    case Kind::kTime:
      return as_of >= time;
    case Kind::kNumber:
      return next >= number;
    case Kind::kPosition:
      return next >= position.number;
  }
  return false;
}

}  // namespace tailcast::consumer
