#include "tailcast/cell/process_config.h"

#include <charconv>

#include "tailcast/base/nearest.h"
#include "tailcast/cell/yaml_reader.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::cell {
namespace {

constexpr int64_t kMillisMax = int64_t{24} * 3600 * 1000;

Status GetMillis(YamlMap& map, std::string_view key, int64_t low, Duration& value) {
  int64_t ms = value.millis();
  TAILCAST_RETURN_IF_ERROR(map.Get(key, ms, low, kMillisMax));
  value = Duration::Millis(ms);
  return OkStatus();
}
Status GetSeconds(YamlMap& map, std::string_view key, Duration& value) {
  int64_t s = value.micros() / 1000000;
  TAILCAST_RETURN_IF_ERROR(map.Get(key, s, 1, int64_t{365} * 24 * 3600));
  value = Duration::Seconds(s);
  return OkStatus();
}

Result<ProcessConfig> Read(YamlMap map) {
  ProcessConfig config;
  int64_t version = 0;
  TAILCAST_RETURN_IF_ERROR(map.Get("version", version, 1, 1));
  if (version != 1) return map.Error("", "the key 'version' is missing; write `version: 1`");
  TAILCAST_RETURN_IF_ERROR(map.Require("cell", config.cell));
  TAILCAST_RETURN_IF_ERROR(map.Require("name", config.name));
  for (const auto& [key, name] : {std::pair("cell", config.cell), {"name", config.name}}) {
    if (Status s = stream::ValidateCellName(name, ""); !s.ok()) {
      return map.Error(key, "'" + name.substr(0, 80) + "': use 1 to 63 of a-z 0-9 -");
    }
  }
  TAILCAST_RETURN_IF_ERROR(map.Require("store", config.store));
  const Result<storage::StoreUrl> store = storage::ParseStoreUrl(config.store);
  if (!store.ok()) return map.Error("store", store.status().message());
  const bool posix = store->kind == storage::StoreUrl::Kind::kPosix;
  if (posix && !store->durable) {
    return map.Error("store", "write posix:" + store->folder + " and `durability: page-cache`");
  }
  std::string durability = "durable";
  TAILCAST_RETURN_IF_ERROR(map.Get("durability", durability));
  if (durability != "durable" && durability != "page-cache") {
    return map.Error("durability", "must be durable or page-cache");
  }
  config.durable = durability == "durable";
  if (!config.durable && !posix) {
    return map.Error("durability", "page-cache is of posix: storage only");
  }
  TAILCAST_RETURN_IF_ERROR(map.Require("scheduler", config.scheduler));
  TAILCAST_RETURN_IF_ERROR(map.Require("cell_key", config.cell_key));
  if (Status s = CheckCellKey(config.cell_key); !s.ok()) return map.Error("cell_key", s.message());
  TAILCAST_RETURN_IF_ERROR(map.Get("listen", config.listen));
  TAILCAST_RETURN_IF_ERROR(map.Get("metrics", config.metrics));
  TAILCAST_RETURN_IF_ERROR(map.Get("topology", config.topology));
  TAILCAST_RETURN_IF_ERROR(map.Get("log", config.log));
  std::string profile = "standard";
  TAILCAST_RETURN_IF_ERROR(map.Get("profile", profile));
  if (Result<Profile> parsed = ParseProfile(profile); parsed.ok()) {
    config.profile = *parsed;
  } else {
    return map.Error("profile", parsed.status().message());
  }
  TAILCAST_RETURN_IF_ERROR(map.Get("caches", config.caches));
  TAILCAST_RETURN_IF_ERROR(map.Get("spares", config.spares));
  if (const auto servers = memcached::ServersOf(config.caches); !servers.ok()) {
    return map.Error("caches", servers.status().message());
  }

  for (const std::string& spare : config.spares) {
    if (memcached::IsReplicaName(spare)) {
      return map.Error("spares", "'" + spare + "' is a memcached server; those are `caches`");
    }
    if (std::find(config.caches.begin(), config.caches.end(), spare) != config.caches.end()) {
      return map.Error("spares", "'" + spare + "' is one of `caches`");
    }
  }

  TAILCAST_ASSIGN_OR_RETURN(YamlMap cache, map.GetMap("cache"));
  constexpr int64_t kMin = 4 << 20, kMax = int64_t{1} << 40;
  TAILCAST_RETURN_IF_ERROR(cache.GetBytes("data_bytes", config.data_cache_bytes, kMin, kMax));
  TAILCAST_RETURN_IF_ERROR(
      cache.GetBytes("metadata_bytes", config.metadata_cache_bytes, kMin, kMax));
  TAILCAST_RETURN_IF_ERROR(GetSeconds(cache, "data_ttl_s", config.data_ttl));
  TAILCAST_RETURN_IF_ERROR(GetSeconds(cache, "metadata_ttl_s", config.metadata_ttl));
  TAILCAST_RETURN_IF_ERROR(
      cache.GetBytes("repair_bytes_per_s", config.repair_bytes_per_second, 1 << 20, kMax));
  TAILCAST_RETURN_IF_ERROR(cache.Get("fabric_listen", config.fabric_listen));
  TAILCAST_RETURN_IF_ERROR(cache.Get("fabric_rdma", config.fabric_rdma));
  TAILCAST_RETURN_IF_ERROR(cache.Get("run_dir", config.run_dir));
  TAILCAST_RETURN_IF_ERROR(cache.Finish());

  TAILCAST_ASSIGN_OR_RETURN(YamlMap reader, map.GetMap("reader"));
  TAILCAST_RETURN_IF_ERROR(GetMillis(reader, "poll_ms", 1, config.poll));
  TAILCAST_RETURN_IF_ERROR(reader.Finish());
  TAILCAST_RETURN_IF_ERROR(map.Finish());
  return config;
}

}  // namespace

Result<ProcessConfig> ProcessConfig::Load(const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(YamlMap map, YamlMap::Load(path));
  return Read(std::move(map));
}

Result<ProcessConfig> ProcessConfig::Parse(const std::string& text, const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(YamlMap map, YamlMap::Parse(text, name));
  return Read(std::move(map));
}

std::string ProcessConfig::ToYaml() const {
  YAML::Emitter out;
  out << YAML::BeginMap;
  out << YAML::Key << "version" << YAML::Value << 1;
  out << YAML::Key << "cell" << YAML::Value << cell;
  out << YAML::Key << "name" << YAML::Value << name;
  out << YAML::Key << "store" << YAML::Value << store;
  out << YAML::Key << "durability" << YAML::Value << (durable ? "durable" : "page-cache");
  out << YAML::Key << "scheduler" << YAML::Value << scheduler;
  out << YAML::Key << "cell_key" << YAML::Value << cell_key;
  out << YAML::Key << "listen" << YAML::Value << listen;
  out << YAML::Key << "metrics" << YAML::Value << metrics;
  if (!topology.empty()) out << YAML::Key << "topology" << YAML::Value << topology;
  out << YAML::Key << "log" << YAML::Value << log;
  out << YAML::Key << "profile" << YAML::Value
      << (profile == Profile::kLowLatency ? "low-latency" : "standard");
  out << YAML::Key << "caches" << YAML::Value << YAML::Flow << caches;
  if (!spares.empty()) out << YAML::Key << "spares" << YAML::Value << YAML::Flow << spares;
  out << YAML::Key << "cache" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "data_bytes" << YAML::Value << data_cache_bytes;
  out << YAML::Key << "metadata_bytes" << YAML::Value << metadata_cache_bytes;
  out << YAML::Key << "data_ttl_s" << YAML::Value << data_ttl.micros() / 1000000;
  out << YAML::Key << "metadata_ttl_s" << YAML::Value << metadata_ttl.micros() / 1000000;
  out << YAML::Key << "repair_bytes_per_s" << YAML::Value << repair_bytes_per_second;
  out << YAML::Key << "fabric_listen" << YAML::Value << fabric_listen;
  out << YAML::Key << "fabric_rdma" << YAML::Value << fabric_rdma;
  out << YAML::Key << "run_dir" << YAML::Value << run_dir;
  out << YAML::EndMap;
  out << YAML::Key << "reader" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "poll_ms" << YAML::Value << poll.millis();
  out << YAML::EndMap << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

storage::StoreUrl ProcessConfig::StoreUrl() const {
  storage::StoreUrl url = storage::ParseStoreUrl(store).value();
  url.durable = durable;
  return url;
}

std::string ProcessConfig::FabricListen(std::string_view cache) const {
  const size_t colon = fabric_listen.rfind(':');
  if (cache == "data" || colon == std::string::npos) return fabric_listen;
  int port = 0;
  const char* const end = fabric_listen.data() + fabric_listen.size();
  const auto [stop, error] = std::from_chars(fabric_listen.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port == 0) return fabric_listen;
  return fabric_listen.substr(0, colon + 1) + std::to_string(port + 1);
}

Result<Profile> ParseProfile(const std::string& text) {
  if (text == "standard") return Profile::kDefault;
  if (text == "low-latency") return Profile::kLowLatency;
  return InvalidArgumentError("'" + text + "' is no profile" +
                              DidYouMean(text, {"standard", "low-latency"}));
}

Status CheckCellKey(const std::string& path_or_none) {
  if (path_or_none == "none" || path_or_none.starts_with('/')) return OkStatus();
  return InvalidArgumentError("'" + path_or_none.substr(0, 200) +
                              "' must be the absolute path of the cell's key file (`tailcast key "
                              "FILE` makes one), or none: whoever reaches the caches may use them");
}

}  // namespace tailcast::cell
