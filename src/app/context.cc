#include "tailcast/app/context.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/durable_file.h"
#include "tailcast/base/nearest.h"

namespace tailcast::app {

using nlohmann::json;

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Result<std::string> Contexts::PathIn(const Environment& environment) {
  if (const auto config = environment("XDG_CONFIG_HOME")) {
    return *config + "/tailcast/contexts.json";
  }
  if (const auto home = environment("HOME")) return *home + "/.config/tailcast/contexts.json";
  return FailedPreconditionError("contexts are kept in the home folder; set HOME");
}

Result<Contexts> Contexts::Load(const std::string& path) {
  Contexts contexts;
  errno = 0;
  std::ifstream in(path);
  if (!in && (errno == ENOENT || errno == ENOTDIR)) return contexts;
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "read " + path);
  try {
    const json file = json::parse(in);
    contexts.current_ = file.value("current", "");
    for (const auto& [name, place] : file.at("contexts").items()) {
      contexts.all_[name] = {.dir = place.value("dir", ""),
                             .cell = place.value("cell", ""),
                             .cluster = place.value("cluster", ""),
                             .origin = "context '" + name + "'"};
    }
  } catch (const json::exception& e) {
    return DataLossError(path + " is damaged (" + e.what() + "); mend or remove it");
  }
  return contexts;
}

Status Contexts::Save(const std::string& path) const {
  json file = {{"version", 1}, {"current", current_}, {"contexts", json::object()}};
  for (const auto& [name, place] : all_) {
    file["contexts"][name] = {{"dir", place.dir}, {"cell", place.cell}, {"cluster", place.cluster}};
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return ErrnoStatus(error.value(), "make the folder of " + path);
  return ReplaceFile(path, file.dump(2) + "\n");
}

Status Contexts::Set(const std::string& name, Place place) {
  const bool good = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  });
  if (!good) return InvalidArgumentError("context '" + name + "': use letters, digits, _ . and -");
  place.origin = "context '" + name + "'";
  all_[name] = std::move(place);
  if (current_.empty()) current_ = name;
  return OkStatus();
}

Result<Place> Contexts::Find(const std::string& name) const {
  const auto it = all_.find(name);
  if (it != all_.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [other, place] : all_) names.push_back(other);
  return NotFoundError("no context '" + name + "'" + DidYouMean(name, names) +
                       (names.empty() ? "; make one with `tailcast context set`" : ""));
}

Status Contexts::Remove(const std::string& name) {
  TAILCAST_RETURN_IF_ERROR(Find(name).status());
  all_.erase(name);
  if (current_ == name) current_.clear();
  return OkStatus();
}

Status Contexts::Use(const std::string& name) {
  TAILCAST_RETURN_IF_ERROR(Find(name).status());
  current_ = name;
  return OkStatus();
}

Result<Place> DefaultPlace(const Environment& environment) {
  const auto dir = environment("TAILCAST_DIR"), cell = environment("TAILCAST_CELL");
  const bool address = cell && cell->find(':') != std::string::npos;
  if (dir && address) {
    return InvalidArgumentError("the environment has TAILCAST_DIR and the address TAILCAST_CELL=" +
                                *cell + "; unset one of them, or say --dir or --cell");
  }
  if (dir) return Place{.dir = *dir, .cluster = cell.value_or(""), .origin = "TAILCAST_DIR"};
  if (address) return Place{.cell = *cell, .origin = "TAILCAST_CELL"};
  if (cell) {
    return InvalidArgumentError("TAILCAST_CELL=" + *cell +
                                " is no HOST:PORT; the name of a cell needs TAILCAST_DIR");
  }
  const auto chosen = environment("TAILCAST_CONTEXT");
  const auto path = Contexts::PathIn(environment);
  if (!path.ok()) return chosen ? Result<Place>(path.status()) : Place{};
  TAILCAST_ASSIGN_OR_RETURN(const Contexts contexts, Contexts::Load(*path));
  if (chosen) return contexts.Find(*chosen);
  return contexts.current().empty() ? Place{} : contexts.Find(contexts.current());
}

}  // namespace tailcast::app
