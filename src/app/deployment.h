// A deployment on this machine (`tailcast up --dir DIR`): where its cells are. Written by `up`,
// read by every command that takes --dir.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tailcast/app/file_lock.h"
#include "tailcast/base/status.h"

namespace tailcast::app {

struct DeploymentCell {
  std::string name;
  std::string scheduler;                    // host:port
  std::vector<std::string> processes = {};  // names of those that `up` keeps running
};

struct Deployment {
  std::string dir;
  int64_t pid = 0;  // of `tailcast up`
  std::vector<DeploymentCell> cells;

  // FailedPrecondition: no deployment runs in `dir`; the message says how to start one.
  // PermissionDenied: this user may not see whether one does.
  static Result<Deployment> Read(const std::string& dir);
  Status Write() const;
  void Remove() const;

  // NotFound names the nearest cell. With one cell, "" is that one.
  Result<DeploymentCell> Find(const std::string& cluster) const;
};

// Held by `up` for as long as it runs, so that a folder has one deployment at a time. Creates the
// folder if needed. FailedPrecondition: another `up` (it names its pid) holds it; PermissionDenied:
// the folder can't be made or written.
Result<FileLock> LockDeployment(const std::string& dir);

// The address of a cell's scheduler from --cell ADDRESS, or --dir DIR with --cluster C.
Result<std::string> FindCell(const std::string& cell, const std::string& dir,
                             const std::string& cluster);

}  // namespace tailcast::app
