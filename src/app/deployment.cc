#include "tailcast/app/deployment.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tailcast/base/nearest.h"

namespace tailcast::app {
namespace {

std::string PathOf(const std::string& dir) { return dir + "/deployment.json"; }
std::string LockPathOf(const std::string& dir) { return dir + "/lock"; }

}  // namespace

Result<Deployment> Deployment::Read(const std::string& dir) {
  const auto none = [&](const std::string& why) {
    return FailedPreconditionError(why + "; start one with `tailcast up --dir " + dir + "`");
  };
  std::ifstream in(PathOf(dir));
  if (!in && errno == EACCES) return ErrnoStatus(errno, "read " + PathOf(dir));
  if (!in) {  // one that was ended takes its description along, and leaves its lock
    return none(std::filesystem::exists(LockPathOf(dir))
                    ? "the deployment in " + dir + " does not run"
                    : "no deployment in " + dir);
  }
  Deployment deployment;
  deployment.dir = dir;
  try {
    const nlohmann::json json = nlohmann::json::parse(in);
    deployment.pid = json.at("pid").get<int64_t>();
    for (const auto& cell : json.at("cells")) {
      deployment.cells.push_back({cell.at("name").get<std::string>(),
                                  cell.at("scheduler").get<std::string>(),
                                  cell.value("processes", std::vector<std::string>())});
    }
  } catch (const nlohmann::json::exception& e) {
    return DataLossError(PathOf(dir) + " is damaged (" + e.what() +
                         "); stop the deployment and start it again");
  }
  TAILCAST_ASSIGN_OR_RETURN(const bool runs, FileLock::IsHeld(LockPathOf(dir)));
  if (!runs) return none("the deployment in " + dir + " does not run");
  return deployment;
}

Status Deployment::Write() const {
  nlohmann::json json;
  json["version"] = 1;
  json["pid"] = pid;
  json["cells"] = nlohmann::json::array();
  for (const DeploymentCell& cell : cells) {
    json["cells"].push_back(
        {{"name", cell.name}, {"scheduler", cell.scheduler}, {"processes", cell.processes}});
  }
  const std::string part = PathOf(dir) + ".part";
  std::ofstream out(part);
  out << json.dump(2) << "\n";
  out.close();
  if (!out) return ErrnoStatus(EIO, "write " + part);
  std::error_code error;
  std::filesystem::rename(part, PathOf(dir), error);
  if (error) return ErrnoStatus(error.value(), "rename " + part);
  return OkStatus();
}

void Deployment::Remove() const {
  std::error_code ignored;
  std::filesystem::remove(PathOf(dir), ignored);
}

Result<DeploymentCell> Deployment::Find(const std::string& cluster) const {
  std::vector<std::string> names;
  for (const DeploymentCell& cell : cells) {
    if (cell.name == cluster) return cell;
    names.push_back(cell.name);
  }
  if (cluster.empty()) {
    if (cells.size() == 1) return cells.front();
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return InvalidArgumentError("which cluster? name one with --cluster: " + all);
  }
  return NotFoundError("no cluster '" + cluster + "' in this deployment" +
                       DidYouMean(cluster, names));
}

Result<FileLock> LockDeployment(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    return ErrnoStatus(error.value(), "can't make the folder " + dir).WithContext("--dir");
  }
  auto lock = FileLock::Take(LockPathOf(dir), [&](const std::string& pid) {
    return "another `tailcast up`" + (pid.empty() ? "" : " (pid " + pid + ")") + " runs in " + dir +
           "; stop it, or use another --dir";
  });
  if (!lock.ok()) return lock.status().WithContext("--dir");
  return lock;
}

Result<std::string> FindCell(const std::string& cell, const std::string& dir,
                             const std::string& cluster) {
  if (!cell.empty()) {
    if (!dir.empty()) return InvalidArgumentError("give --cell or --dir, not both");
    return cell;
  }
  if (dir.empty()) {
    return InvalidArgumentError(
        "name the deployment with --dir DIR, or the cell with --cell HOST:PORT");
  }
  TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(dir));
  TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell found, deployment.Find(cluster));
  return found.scheduler;
}

}  // namespace tailcast::app
