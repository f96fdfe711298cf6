// Reads YAML maps for configuration with errors that name file, line, column and key, and that
// suggest the nearest known key for a misspelt one.
//
//   YamlMap map = *YamlMap::Load("topology.yaml");
//   TAILCAST_RETURN_IF_ERROR(map.Get("rtt_ms", rtt_ms));     // absent: keeps its default
//   TAILCAST_RETURN_IF_ERROR(map.Require("name", name));     // absent: an error
//   return map.Finish();                                     // unknown keys: an error
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::cell {

// "65536", "64KB", "8MB", "1GB". InvalidArgument: "must be ...", without who must.
Result<int64_t> ParseBytes(std::string_view text, int64_t low, int64_t high);

class YamlMap {
 public:
  // NotFound / PermissionDenied: the file; InvalidArgument: not YAML, or its root is no map.
  static Result<YamlMap> Load(const std::string& path);
  // The same from text; `name` stands for the file in messages.
  static Result<YamlMap> Parse(const std::string& text, const std::string& name);

  bool Has(std::string_view key) const;
  // Each leaves `value` alone when the key is absent, and is InvalidArgument when the value is of
  // another kind.
  Status Get(std::string_view key, std::string& value);
  Status Get(std::string_view key, bool& value);
  Status Get(std::string_view key, double& value);
  Status Get(std::string_view key, std::vector<std::string>& value);
  // With the allowed range, both ends included.
  Status Get(std::string_view key, int64_t& value, int64_t low, int64_t high);
  // "64KB", "8MB", "1GB" (powers of 1024) or a plain number of bytes.
  Status GetBytes(std::string_view key, int64_t& value, int64_t low, int64_t high);
  // Absent or empty is an error.
  Status Require(std::string_view key, std::string& value);
  // The maps of a list of maps; absent: none.
  Result<std::vector<YamlMap>> GetMaps(std::string_view key);
  // A map below `key`; absent: an empty one.
  Result<YamlMap> GetMap(std::string_view key);

  // These keys are known although nobody has asked for them yet.
  void Expect(const std::vector<std::string>& keys) {
    asked_.insert(asked_.end(), keys.begin(), keys.end());
  }
  // InvalidArgument for the first key that nobody asked for.
  Status Finish() const;
  // "topology.yaml:12:5: key 'rtt_ms': <message>"; of the map itself if `key` is "".
  Status Error(std::string_view key, std::string_view message) const;

 private:
  YamlMap(const YAML::Node& node, std::string file) : node_(node), file_(std::move(file)) {}
  YAML::Node Find(std::string_view key);

  YAML::Node node_;
  std::string file_;
  std::vector<std::string> asked_;
};

}  // namespace tailcast::cell
