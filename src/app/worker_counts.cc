#include "tailcast/app/worker_counts.h"

#include <cerrno>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "tailcast/app/durable_file.h"
#include "tailcast/app/file_lock.h"

namespace tailcast::app {
namespace {

constexpr int kVersion = 1;

std::string PathOf(const std::string& dir) { return dir + "/workers.json"; }

std::optional<int> CountOf(const nlohmann::json& cell, const char* role) {
  if (!cell.contains(role)) return std::nullopt;
  const int count = cell.at(role).get<int>();
  if (count < 1 || count > kWorkersMax)
    throw std::out_of_range(std::string(role) + " is " + std::to_string(count));
  return count;
}

}  // namespace

Result<CellWorkerCounts> ReadWorkerCounts(const std::string& dir) {
  CellWorkerCounts counts;
  errno = 0;
  std::ifstream in(PathOf(dir));
  if (!in && errno == ENOENT) return counts;
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "read " + PathOf(dir));
  try {
    const nlohmann::json json = nlohmann::json::parse(in);
    if (const int version = json.at("version").get<int>(); version != kVersion) {
      throw std::out_of_range("its version is " + std::to_string(version));
    }
    for (const auto& [name, cell] : json.at("cells").items()) {
      if (!cell.is_object()) throw std::invalid_argument("cell " + name);
      counts[name] = {CountOf(cell, "readers"), CountOf(cell, "writers")};
    }
  } catch (const std::exception& e) {
    return DataLossError(PathOf(dir) + " is damaged (" + e.what() +
                         "); remove it, and `tailcast workers` says anew how many there shall be");
  }
  return counts;
}

Status ChangeWorkerCounts(const std::string& dir, const std::string& cell,
                          const WorkerCounts& counts) {
  TAILCAST_ASSIGN_OR_RETURN(const FileLock lock, FileLock::Await(PathOf(dir) + ".lock"));
  TAILCAST_ASSIGN_OR_RETURN(auto all, ReadWorkerCounts(dir));
  WorkerCounts& mine = all[cell];
  if (counts.readers) mine.readers = counts.readers;
  if (counts.writers) mine.writers = counts.writers;
  nlohmann::json json = {{"version", kVersion}, {"cells", nlohmann::json::object()}};
  for (const auto& [name, known] : all) {
    nlohmann::json& one = json["cells"][name] = nlohmann::json::object();
    if (known.readers) one["readers"] = *known.readers;
    if (known.writers) one["writers"] = *known.writers;
  }
  return ReplaceFile(PathOf(dir), json.dump(2) + "\n");
}

std::vector<std::string> WorkerNames(std::string_view role, int count) {
  std::vector<std::string> names;
  for (int i = 1; i <= count; ++i) names.push_back(std::string(role) + "-" + std::to_string(i));
  return names;
}

}  // namespace tailcast::app
