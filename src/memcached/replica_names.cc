#include "tailcast/memcached/replica_names.h"

namespace tailcast::memcached {
namespace {

constexpr std::string_view kPrefix = "memcached:";

}  // namespace

bool IsReplicaName(std::string_view name) { return name.starts_with(kPrefix); }

std::vector<std::string> ReplicaNames(const std::vector<ServerAddress>& servers) {
  std::vector<std::string> names;
  for (const ServerAddress& server : servers) names.push_back(FormatServers({server}));
  return names;
}

Result<std::vector<ServerAddress>> ServersOf(const std::vector<std::string>& replica_names) {
  std::string all;
  size_t others = 0;
  for (const std::string& name : replica_names) {
    if (!IsReplicaName(name)) {
      ++others;
      continue;
    }
    all += all.empty() ? name : "," + name.substr(kPrefix.size());
  }
  if (all.empty()) return std::vector<ServerAddress>();
  if (others > 0) {
    return InvalidArgumentError(
        "memcached servers and cache processes are named; a cell's caches are one or the other");
  }
  return ParseServers(all);
}

}  // namespace tailcast::memcached
