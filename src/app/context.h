// Which deployment or cell a command means that names none: the environment's, or a context's,
// which `tailcast context` keeps by name in a file of the user.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tailcast/base/status.h"

namespace tailcast::app {

struct Place {
  std::string dir;      // a deployment's folder, or
  std::string cell;     // host:port of a scheduler
  std::string cluster;  // of the deployment; may be empty
  std::string origin;   // who says so: "TAILCAST_DIR", "context 'prod'"
};

// A variable of the environment; nullopt: it is not set, or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> ProcessEnvironment(const std::string& name);

class Contexts {
 public:
  // $XDG_CONFIG_HOME/tailcast/contexts.json, or below ~/.config. FailedPrecondition: neither
  // variable says where that is.
  static Result<std::string> PathIn(const Environment& environment);
  // None if there is no such file. DataLoss: it is damaged.
  static Result<Contexts> Load(const std::string& path);
  // Replaces the file as a whole; makes its folder.
  Status Save(const std::string& path) const;

  // Of letters, digits, '_', '.' and '-'; InvalidArgument otherwise.
  Status Set(const std::string& name, Place place);
  // NotFound with the nearest name.
  Status Remove(const std::string& name);
  Status Use(const std::string& name);
  Result<Place> Find(const std::string& name) const;

  const std::map<std::string, Place>& all() const { return all_; }
  const std::string& current() const { return current_; }  // empty: none

 private:
  std::map<std::string, Place> all_;
  std::string current_;
};

// What the environment says (TAILCAST_DIR, with TAILCAST_CELL the name of one of its cells;
// TAILCAST_CELL as HOST:PORT), else the context TAILCAST_CONTEXT, else the current one. Everything
// is empty if none of them says anything.
Result<Place> DefaultPlace(const Environment& environment);

}  // namespace tailcast::app
