#include "tailcast/cell/user_table.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "tailcast/base/utf8.h"
#include "tailcast/stream/names.h"

namespace tailcast::cell {
namespace {

constexpr size_t kHostBytesMax = 255;
constexpr size_t kStateBytesMax = 30;
constexpr size_t kUserBytesMax = 1024;

// Text that may be printed in a line.
Status CheckText(const std::string& what, std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return InvalidArgumentError(what + " has " + std::to_string(text.size()) +
                                " bytes; the limit is " + std::to_string(bytes_max));
  }
  if (!IsUtf8(text)) return InvalidArgumentError(what + " is not UTF-8");
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  // U+0080 to U+009F, in UTF-8: terminals obey them, too.
  const auto control_of_two = [](char a, char b) {
    return a == '\xc2' && static_cast<unsigned char>(b) < 0xa0;
  };
  if (std::any_of(text.begin(), text.end(), control) ||
      std::adjacent_find(text.begin(), text.end(), control_of_two) != text.end()) {
    return InvalidArgumentError(what + " has control characters");
  }
  return OkStatus();
}

Status Check(const v1::User& user) {
  // Fields that are not known here are kept with the others.
  if (user.ByteSizeLong() > kUserBytesMax) {
    return InvalidArgumentError("user has " + std::to_string(user.ByteSizeLong()) +
                                " bytes; the limit is " + std::to_string(kUserBytesMax));
  }
  if (user.id() == 0) return InvalidArgumentError("user.id is 0");
  if (user.kind() == v1::User::CONSUMER) {
    TAILCAST_RETURN_IF_ERROR(ValidateUserName(user.name()).WithContext("user.name"));
  } else if (user.kind() == v1::User::PRODUCER) {
    TAILCAST_RETURN_IF_ERROR(CheckText("user.name", user.name(), kUserNameBytesMax));
  } else {
    return InvalidArgumentError("user.kind is not known");
  }
  TAILCAST_RETURN_IF_ERROR(stream::ValidateStreamName(user.stream()).WithContext("user.stream"));
  TAILCAST_RETURN_IF_ERROR(CheckText("user.host", user.host(), kHostBytesMax));
  TAILCAST_RETURN_IF_ERROR(CheckText("user.state", user.state(), kStateBytesMax));
  if (user.shards() < 0 || user.shards() > stream::kShardsMax) {
    return InvalidArgumentError("user.shards is " + std::to_string(user.shards()));
  }
  for (const int64_t number :
       {user.pid(), user.messages(), user.bytes(), user.behind_bytes(), user.behind_us()}) {
    if (number < 0) return InvalidArgumentError("user has a number below 0");
  }
  return OkStatus();
}

// What of a user stays as it is.
auto WhoOf(const v1::User& user) {
  return std::make_tuple(std::string_view(user.host()), user.pid(), user.kind(),
                         std::string_view(user.stream()));
}

}  // namespace

Status ValidateUserName(std::string_view name) {
  if (name.empty()) return InvalidArgumentError("the name is empty");
  return CheckText("the name", name, kUserNameBytesMax);
}

Status UserTable::Report(MonotonicTime now, const v1::User& user) {
  TAILCAST_RETURN_IF_ERROR(Check(user));
  Forget(now);
  const auto known = rows_.find(user.id());
  if (known != rows_.end() && WhoOf(known->second.user) != WhoOf(user)) {
    return InvalidArgumentError("user.id is that of another host or process");
  }
  if (user.gone()) {
    rows_.erase(user.id());
    return OkStatus();
  }
  rows_[user.id()] = {user, now};
  if (static_cast<int64_t>(rows_.size()) > options_.rows_max) PushOut();
  return OkStatus();
}

void UserTable::PushOut() {
  std::map<std::string_view, int64_t> rows_of_host;
  for (const auto& [id, row] : rows_) ++rows_of_host[row.user.host()];
  const auto order = [&](const auto& entry) {
    const Row& row = entry.second;
    return std::make_pair(-rows_of_host[row.user.host()], row.heard);
  };
  rows_.erase(std::min_element(rows_.begin(), rows_.end(),
                               [&](const auto& a, const auto& b) { return order(a) < order(b); }));
  ++pushed_out_;
}

void UserTable::Forget(MonotonicTime now) {
  std::erase_if(rows_,
                [&](const auto& row) { return now - row.second.heard > options_.forget_after; });
}

void UserTable::ForgetStream(const std::string& stream) {
  std::erase_if(rows_, [&](const auto& row) { return row.second.user.stream() == stream; });
}

v1::ListUsersReply UserTable::List(MonotonicTime now) {
  Forget(now);
  std::vector<const Row*> rows;
  for (const auto& [id, row] : rows_) rows.push_back(&row);
  const auto order = [](const Row* row) {
    const v1::User& user = row->user;
    return std::make_tuple(std::string_view(user.stream()), user.kind(),
                           std::string_view(user.name()), std::string_view(user.host()), user.pid(),
                           user.id());
  };
  std::sort(rows.begin(), rows.end(),
            [&](const Row* a, const Row* b) { return order(a) < order(b); });
  v1::ListUsersReply reply;
  for (const Row* row : rows) {
    v1::ListUsersReply::Row& one = *reply.add_rows();
    *one.mutable_user() = row->user;
    one.mutable_user()->clear_id();
    one.set_heard_ms((now - row->heard).millis());
  }
  return reply;
}

int64_t UserTable::Count(MonotonicTime now, v1::User::Kind kind) {
  Forget(now);
  return std::count_if(rows_.begin(), rows_.end(),
                       [&](const auto& row) { return row.second.user.kind() == kind; });
}

}  // namespace tailcast::cell
