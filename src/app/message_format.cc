#include "tailcast/app/message_format.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

#include "tailcast/base/nearest.h"
#include "tailcast/base/utf8.h"

namespace tailcast::app {
namespace {

using nlohmann::json;

const std::vector<std::string>& Fields() {
  static const std::vector<std::string> fields = {"payload", "key",      "stream", "shard",
                                                  "number",  "position", "time",   "time_us",
                                                  "bytes",   "headers"};
  return fields;
}

// Of a field: the value of the header of this name.
constexpr std::string_view kHeaderOf = "header.";

// RFC 4648.
std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t b = 0; b < 3; ++b) {
      three = three << 8 | (i + b < bytes.size() ? static_cast<unsigned char>(bytes[i + b]) : 0);
    }
    for (size_t d = 0; d < 4; ++d) {
      text += i + d > bytes.size() ? '=' : kDigits[three >> (18 - 6 * d) & 63];
    }
  }
  return text;
}

// As "NAME", or "NAME_base64" of what is no text.
void SetText(nlohmann::ordered_json& object, const std::string& name, std::string_view bytes) {
  if (IsUtf8(bytes)) {
    object[name] = bytes;
  } else {
    object[name + "_base64"] = Base64(bytes);
  }
}

std::string HeadersText(const stream::Headers& headers) {
  std::string text;
  for (const auto& [name, value] : headers) {
    if (!text.empty()) text += ", ";
    text.append(name).append("=").append(value);
  }
  return text;
}

}  // namespace

std::string UtcText(int64_t time_us) {
  const std::time_t seconds = time_us / 1'000'000;
  std::tm parts{};
  char day[32], text[48];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts) == 0) {
    return std::to_string(time_us);
  }
  std::snprintf(text, sizeof text, "%s.%06dZ", day, static_cast<int>(time_us % 1'000'000));
  return text;
}

Result<MessageFormat> MessageFormat::Parse(const std::string& text) {
  MessageFormat format;
  if (text == "json") return format;
  if (text.empty()) return InvalidArgumentError("--format is empty: use json or a template");
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at], next = at + 1 < text.size() ? text[at + 1] : '\0';
    if (c == '\\' && (next == 'n' || next == 't' || next == '\\')) {
      plain += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      ++at;
    } else if ((c == '{' || c == '}') && next == c) {
      plain += c;
      ++at;
    } else if (c == '}') {
      return InvalidArgumentError("--format: the brace at character " + std::to_string(at + 1) +
                                  " closes nothing; }} is a brace");
    } else if (c == '{') {
      const size_t end = text.find('}', at);
      if (end == std::string::npos) {
        return InvalidArgumentError("--format: the brace at character " + std::to_string(at + 1) +
                                    " is not closed; {{ is a brace");
      }
      const std::string name = text.substr(at + 1, end - at - 1);
      const bool header = name.size() > kHeaderOf.size() && name.starts_with(kHeaderOf);
      if (!header && std::find(Fields().begin(), Fields().end(), name) == Fields().end()) {
        return InvalidArgumentError("--format: a message has no field {" + name + "}" +
                                    DidYouMean(name, Fields()));
      }
      if (!plain.empty()) format.pieces_.push_back({.text = std::move(plain), .field = ""});
      plain.clear();
      format.pieces_.push_back({.text = "", .field = name});
      at = end;
    } else {
      plain += c;
    }
  }
  if (!plain.empty()) format.pieces_.push_back({.text = std::move(plain), .field = ""});
  if (std::none_of(format.pieces_.begin(), format.pieces_.end(),
                   [](const Piece& piece) { return !piece.field.empty(); })) {
    return InvalidArgumentError("--format '" + text +
                                "' shows nothing of a message: use json, or a template as "
                                "'{time} {shard}/{number}: {payload}'");
  }
  return format;
}

bool MessageFormat::wants_key() const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [](const Piece& piece) { return piece.field == "key"; });
}

Status MessageFormat::AppendTo(const std::string& stream, const consumer::Message& message,
                               const stream::Position& position, std::string& out) const {
  std::string key;
  if (key_) {
    TAILCAST_ASSIGN_OR_RETURN(key, key_->Of(message.payload));
  }
  if (pieces_.empty()) {
    nlohmann::ordered_json line = {{"stream", stream},
                                   {"shard", message.shard},
                                   {"number", message.number},
                                   {"position", position.ToString()},
                                   {"time", UtcText(message.time_us)}};
    if (key_) SetText(line, "key", key);
    for (const auto& [name, value] : message.headers) {
      nlohmann::ordered_json header = {{"name", name}};
      SetText(header, "value", value);
      line["headers"].push_back(std::move(header));
    }
    SetText(line, "payload", message.payload);
    out += line.dump() + "\n";
    return OkStatus();
  }
  const size_t begin = out.size();
  for (const Piece& piece : pieces_) {
    if (piece.field.empty()) {
      out += piece.text;
    } else if (piece.field == "payload") {
      out += message.payload;
    } else if (piece.field == "key") {
      out += key;
    } else if (piece.field == "stream") {
      out += stream;
    } else if (piece.field == "shard") {
      out += std::to_string(message.shard);
    } else if (piece.field == "number") {
      out += std::to_string(message.number);
    } else if (piece.field == "position") {
      out += position.ToString();
    } else if (piece.field == "time") {
      out += UtcText(message.time_us);
    } else if (piece.field == "time_us") {
      out += std::to_string(message.time_us);
    } else if (piece.field == "bytes") {
      out += std::to_string(message.payload.size());
    } else if (piece.field == "headers") {
      out += HeadersText(message.headers);
    } else {
      out +=
          message.headers.Find(std::string_view(piece.field).substr(kHeaderOf.size())).value_or("");
    }
  }
  if (out.size() == begin || out.back() != '\n') out += '\n';
  return OkStatus();
}

}  // namespace tailcast::app
