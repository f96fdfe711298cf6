// Who says that it uses the cell (proto/users.proto): what `tailcast status` shows of producers and
// consumers. Kept for a while, so that nobody has to say good-bye, though who can does; and
// bounded: no more rows than rows_max. Where there are more, the host that has most gives up the
// one that was heard longest ago: one host that has many does not push out what others say.
//
// A core: no clock, no I/O, one thread. All input from peers is checked; errors name the field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/proto/users.pb.h"

namespace tailcast::cell {

inline constexpr Duration kUserReportInterval = Duration::Seconds(10);
inline constexpr size_t kUserNameBytesMax = 100;
// Of a list that has so many it is not known whether it has all.
inline constexpr int64_t kUsersMax = 1000;

// What a consumer calls itself: 1 to kUserNameBytesMax bytes of UTF-8 without control characters.
Status ValidateUserName(std::string_view name);

class UserTable {
 public:
  struct Options {
    int64_t rows_max = kUsersMax;
    Duration forget_after = Duration::Seconds(30);
  };
  explicit UserTable(Options options) : options_(options) {}

  // It is there, again, or for the last time (v1::User::gone). InvalidArgument: a bad field, or the
  // id of another host or process.
  Status Report(MonotonicTime now, const v1::User& user);
  // The stream was deleted: nobody uses it any more. Who did not hear of it yet comes back with its
  // next report.
  void ForgetStream(const std::string& stream);
  // Those that were heard lately.
  v1::ListUsersReply List(MonotonicTime now);
  // How many of a kind.
  int64_t Count(MonotonicTime now, v1::User::Kind kind);
  // Rows that made room for others before their time.
  int64_t pushed_out() const { return pushed_out_; }

 private:
  struct Row {
    v1::User user;
    MonotonicTime heard;
  };
  void Forget(MonotonicTime now);
  void PushOut();

  const Options options_;
  std::map<uint64_t, Row> rows_;  // by id
  int64_t pushed_out_ = 0;
};

}  // namespace tailcast::cell
