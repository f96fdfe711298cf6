// How a cell's ring names memcached servers: "memcached:HOST:PORT", so that whoever knows the ring
// knows the servers. All replicas of a ring are memcached servers, or none is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/memcached/server_address.h"

namespace tailcast::memcached {

bool IsReplicaName(std::string_view name);
std::vector<std::string> ReplicaNames(const std::vector<ServerAddress>& servers);
// None if no name is one of memcached. InvalidArgument: some are, some not; a bad address; twice
// the same; too many.
Result<std::vector<ServerAddress>> ServersOf(const std::vector<std::string>& replica_names);

}  // namespace tailcast::memcached
