#include "tailcast/app/status_users.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "tailcast/cell/user_table.h"

namespace tailcast::app {

using nlohmann::json;

void AddUsers(CellSession& session, const std::string& stream, json& cell) {
  json& users = cell["users"] = json::array();
  const auto list = session.Call<Result<v1::ListUsersReply>>(
      [&](auto done) { session.client().ListUsers(std::move(done)); });
  if (!list.ok()) {
    cell["users_error"] = list.status().message();
    return;
  }
  cell["users_full"] = list->rows_size() >= cell::kUsersMax;
  for (const v1::ListUsersReply::Row& row : list->rows()) {
    const v1::User& user = row.user();
    if (!stream.empty() && user.stream() != stream) continue;
    json& one = users.emplace_back(
        json::object({{"kind", user.kind() == v1::User::PRODUCER ? "producer" : "consumer"},
                      {"stream", user.stream()},
                      {"name", user.name()},
                      {"host", user.host()},
                      {"pid", user.pid()},
                      {"shards", user.shards()},
                      {"state", user.state()},
                      {"messages", user.messages()},
                      {"bytes", user.bytes()},
                      {"behind_bytes", user.behind_bytes()},
                      {"heard_ms", row.heard_ms()}}));
    if (user.behind_us() == 0) continue;
    if (user.kind() == v1::User::PRODUCER) {
      one["waits_for"] = "primary";
      one["waits_ms"] = static_cast<double>(user.behind_us()) / 1e3;
    } else {
      one["behind_ms"] = user.behind_us() / 1000;
    }
  }
}

}  // namespace tailcast::app
