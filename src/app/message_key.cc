#include "tailcast/app/message_key.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tailcast::app {
namespace {

constexpr int kDepthMax = 200;

Status NoField(const std::string& field, std::string_view payload, const std::string& why) {
  constexpr size_t kQuotedMax = 60;
  std::string quoted(payload.substr(0, kQuotedMax));
  quoted.erase(quoted.find_last_not_of("\r\n") + 1);
  return InvalidArgumentError("--key " + field + ": " + why + ": '" + quoted +
                              (payload.size() > kQuotedMax ? "...'" : "'"));
}

}  // namespace

Result<MessageKey> MessageKey::Parse(const std::string& field, char delimiter) {
  MessageKey key;
  key.field_ = field;
  key.delimiter_ = delimiter;
  constexpr size_t kDigitsMax = 6;
  if (!field.empty() && field.size() <= kDigitsMax &&
      std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    key.column_ = std::stoul(field);
    if (key.column_ == 0) return InvalidArgumentError("--key 0: fields are counted from 1");
    return key;
  }
  if (field.empty()) {
    return InvalidArgumentError(
        "--key is empty: give the number of a field, the name of a JSON member, or a JSON pointer");
  }
  key.pointer_ = field;
  if (field.front() != '/') {
    key.pointer_ = "/";
    for (char c : field) key.pointer_ += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  try {
    nlohmann::json::json_pointer checked(key.pointer_);
  } catch (const nlohmann::json::exception&) {
    return InvalidArgumentError("--key " + field + " is no JSON pointer (RFC 6901)");
  }
  return key;
}

Result<std::string> MessageKey::Of(std::string_view payload) const {
  if (column_ == 0) {
    // Values in values are shown and freed by recursion.
    bool deep = false;
    const auto look = [&deep](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
      deep |= depth > kDepthMax;
      return !deep;
    };
    const nlohmann::json json = nlohmann::json::parse(payload, look, false);
    if (deep) {
      return NoField(
          field_, payload,
          "the message has values in more than " + std::to_string(kDepthMax) + " others");
    }
    if (json.is_discarded()) return NoField(field_, payload, "the message is not JSON");
    // `contains` throws as well, for a pointer that names a member of an array by nothing.
    try {
      const nlohmann::json& value = json.at(nlohmann::json::json_pointer(pointer_));
      return value.is_string() ? value.get<std::string>() : value.dump();
    } catch (const nlohmann::json::exception&) {
      return NoField(field_, payload, "the message has no such member");
    }
  }
  std::string_view line = payload;
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  for (size_t i = 1;; ++i) {
    const size_t end = std::min(line.find(delimiter_), line.size());
    if (i == column_) return std::string(line.substr(0, end));
    if (end == line.size()) {
      return NoField(field_, payload, "the message has only " + std::to_string(i) + " fields");
    }
    line.remove_prefix(end + 1);
  }
}

}  // namespace tailcast::app
