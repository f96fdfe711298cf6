#include "tailcast/cell/yaml_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>

#include "tailcast/base/nearest.h"

namespace tailcast::cell {
namespace {

// No name, path or address has such, and YAML changes some of them.
bool HasControl(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}
constexpr std::string_view kControl = "has a control character, as a tab or an end of line";

std::string Place(const std::string& file, const YAML::Mark& mark) {
  if (mark.is_null()) return file;
  return file + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

// Looks at every node, before anything else walks them.
class Inspection {
 public:
  // `bytes`: of the text, which without aliases has no more nodes than that.
  Inspection(const std::string& file, size_t bytes) : file_(file), left_(bytes + kAliasedMax) {}

  Status Look(const YAML::Node& node, int depth = 0) {
    // An alias can name what it is in, and a few lines of them make nodes without end.
    if (depth > kDepthMax || left_-- == 0) {
      return InvalidArgumentError(Place(file_, node.Mark()) +
                                  ": aliases (*name) lead in a circle, or repeat too much; write "
                                  "the values themselves");
    }
    if (node.IsSequence()) {
      for (const auto& item : node) TAILCAST_RETURN_IF_ERROR(Look(item, depth + 1));
    }
    if (!node.IsMap()) return OkStatus();
    std::set<std::string> seen;
    for (const auto& entry : node) {
      // A key that is given twice would count once, and nobody could say which.
      if (entry.first.IsScalar() && !seen.insert(entry.first.Scalar()).second) {
        return InvalidArgumentError(Place(file_, entry.first.Mark()) + ": key '" +
                                    entry.first.Scalar() + "' is given twice; remove one");
      }
      TAILCAST_RETURN_IF_ERROR(Look(entry.second, depth + 1));
    }
    return OkStatus();
  }

 private:
  static constexpr size_t kAliasedMax = 100'000;  // nodes
  static constexpr int kDepthMax = 600;           // the parser itself takes 500

  const std::string& file_;
  size_t left_;
};

}  // namespace

Result<YamlMap> YamlMap::Load(const std::string& path) {
  errno = 0;
  std::ifstream in(path);
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "can't read " + path);
  std::stringstream text;
  errno = 0;
  text << in.rdbuf();
  if (errno == EISDIR) return InvalidArgumentError(path + " is a folder; name the file in it");
  if (in.bad()) return ErrnoStatus(EIO, "can't read " + path);
  return Parse(text.str(), path);
}

Result<YamlMap> YamlMap::Parse(const std::string& text, const std::string& name) {
  try {
    YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) {
      return InvalidArgumentError(Place(name, root.Mark()) +
                                  ": the file must be a map of keys to values, as `version: 1`");
    }
    TAILCAST_RETURN_IF_ERROR(Inspection(name, text.size()).Look(root));
    return YamlMap(root, name);
  } catch (const YAML::Exception& e) {
    return InvalidArgumentError(Place(name, e.mark) + ": not valid YAML: " + e.msg);
  }
}

bool YamlMap::Has(std::string_view key) const {
  return static_cast<bool>(static_cast<const YAML::Node&>(node_)[std::string(key)]);
}

YAML::Node YamlMap::Find(std::string_view key) {
  asked_.emplace_back(key);
  if (!node_.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
  return static_cast<const YAML::Node&>(node_)[std::string(key)];
}

Status YamlMap::Error(std::string_view key, std::string_view message) const {
  YAML::Mark mark = node_.Mark();
  if (!key.empty() && node_.IsMap()) {
    for (const auto& entry : node_) {
      if (entry.first.Scalar() == key) mark = entry.first.Mark();
    }
  }
  std::string text = Place(file_, mark) + ": ";
  if (!key.empty()) text.append("key '").append(key).append("': ");
  return InvalidArgumentError(text.append(message));
}

Status YamlMap::Get(std::string_view key, std::string& value) {
  const YAML::Node node = Find(key);
  if (!node.IsDefined()) return OkStatus();
  if (!node.IsScalar()) return Error(key, "must be one word or a text");
  if (HasControl(node.Scalar())) return Error(key, kControl);
  value = node.Scalar();
  return OkStatus();
}

Status YamlMap::Get(std::string_view key, bool& value) {
  const YAML::Node node = Find(key);
  if (!node.IsDefined()) return OkStatus();
  if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value)) {
    return Error(key, "must be true or false");
  }
  return OkStatus();
}

Status YamlMap::Get(std::string_view key, double& value) {
  const YAML::Node node = Find(key);
  if (!node.IsDefined()) return OkStatus();
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value)) {
    return Error(key, "must be a number");
  }
  return OkStatus();
}

Status YamlMap::Get(std::string_view key, std::vector<std::string>& value) {
  const YAML::Node node = Find(key);
  if (!node.IsDefined()) return OkStatus();
  if (!node.IsSequence()) return Error(key, "must be a list, as [a, b]");
  value.clear();
  for (const auto& item : node) {
    if (!item.IsScalar()) return Error(key, "must be a list of words");
    if (HasControl(item.Scalar())) return Error(key, kControl);
    value.push_back(item.Scalar());
  }
  return OkStatus();
}

Status YamlMap::Get(std::string_view key, int64_t& value, int64_t low, int64_t high) {
  const YAML::Node node = Find(key);
  if (!node.IsDefined()) return OkStatus();
  int64_t number = 0;
  bool good = node.IsScalar();
  if (good) {
    const std::string& text = node.Scalar();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    good = error == std::errc() && end == text.data() + text.size() && !text.empty();
  }
  if (!good || number < low || number > high) {
    return Error(
        key, "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  value = number;
  return OkStatus();
}

namespace {

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"", "KB", "MB", "GB"};
  int unit = 0;
  while (unit < 3 && bytes > 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace

Result<int64_t> ParseBytes(std::string_view text, int64_t low, int64_t high) {
  const auto wrong = [&] {
    return InvalidArgumentError("must be a number of bytes such as 65536, 64KB, 8MB or 1GB, from " +
                                BytesText(low) + " to " + BytesText(high));
  };
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  int shift = 0;
  if (unit == "KB") {
    shift = 10;
  } else if (unit == "MB") {
    shift = 20;
  } else if (unit == "GB") {
    shift = 30;
  } else if (!unit.empty() && unit != "B") {
    return wrong();
  }
  if (error != std::errc() || number < 0 || number > (INT64_MAX >> shift)) return wrong();
  number <<= shift;
  if (number < low || number > high) return wrong();
  return number;
}

Status YamlMap::GetBytes(std::string_view key, int64_t& value, int64_t low, int64_t high) {
  const YAML::Node node = Find(key);
  if (!node.IsDefined()) return OkStatus();
  const Result<int64_t> number = ParseBytes(node.IsScalar() ? node.Scalar() : "", low, high);
  if (!number.ok()) return Error(key, number.status().message());
  value = *number;
  return OkStatus();
}

Status YamlMap::Require(std::string_view key, std::string& value) {
  TAILCAST_RETURN_IF_ERROR(Get(key, value));
  if (value.empty()) return Error("", "the key '" + std::string(key) + "' is missing");
  return OkStatus();
}

Result<std::vector<YamlMap>> YamlMap::GetMaps(std::string_view key) {
  const YAML::Node node = Find(key);
  std::vector<YamlMap> maps;
  if (!node.IsDefined()) return maps;
  if (!node.IsSequence()) return Error(key, "must be a list");
  for (const auto& item : node) {
    if (!item.IsMap()) {
      return InvalidArgumentError(Place(file_, item.Mark()) + ": each entry of '" +
                                  std::string(key) + "' must be a map of keys to values");
    }
    maps.push_back(YamlMap(item, file_));
  }
  return maps;
}

Result<YamlMap> YamlMap::GetMap(std::string_view key) {
  const YAML::Node node = Find(key);
  if (!node.IsDefined()) return YamlMap(YAML::Node(YAML::NodeType::Map), file_);
  if (!node.IsMap()) return Error(key, "must be a map of keys to values");
  return YamlMap(node, file_);
}

Status YamlMap::Finish() const {
  if (!node_.IsMap()) return OkStatus();
  for (const auto& entry : node_) {
    const std::string& key = entry.first.Scalar();
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
      return InvalidArgumentError(Place(file_, entry.first.Mark()) + ": unknown key '" + key + "'" +
                                  DidYouMean(key, asked_));
    }
  }
  return OkStatus();
}

}  // namespace tailcast::cell
