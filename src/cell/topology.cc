#include "tailcast/cell/topology.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "tailcast/base/host_port.h"
#include "tailcast/base/nearest.h"
#include "tailcast/base/utf8.h"
#include "tailcast/cell/link_table.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/cell/yaml_reader.h"

namespace tailcast::cell {
namespace {

constexpr double kUsdPerGbMax = 100;
constexpr double kRttMsMax = 1e6;

constexpr char kNameRule[] =
    "1 to 200 bytes of UTF-8, no spaces, commas, quotes, brackets, slashes or '>', and no '.' in "
    "front";

// Names are folders of a deployment, and words of the command line.
bool IsName(std::string_view name) {
  if (name.empty() || name.size() > 200 || name.front() == '.') return false;
  for (char c : name) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 127) return false;
    if (std::string_view(",>'\"`{}[]#&*!|%/\\").find(c) != std::string_view::npos) return false;
  }
  return IsUtf8(name);
}

std::string NameError(std::string_view name) {
  return "'" + std::string(name.substr(0, 80)) + "' is not a name: " + kNameRule;
}

class Reader {
 public:
  Reader(YamlMap root, std::filesystem::path folder, Tables tables)
      : root_(std::move(root)), folder_(std::move(folder)), read_tables_(tables == Tables::kRead) {}

  Result<Topology> Read() {
    int64_t version = 0;
    TAILCAST_RETURN_IF_ERROR(root_.Get("version", version, 1, 1));
    if (version == 0) {
      return root_.Error("", "the key 'version' is missing; put 'version: 1' at the top");
    }
    TAILCAST_RETURN_IF_ERROR(ReadClusters());
    TAILCAST_RETURN_IF_ERROR(ReadLinks());
    TAILCAST_RETURN_IF_ERROR(ReadTables());
    TAILCAST_RETURN_IF_ERROR(ReadLimits());
    std::vector<TopologyEdge> tree;
    TAILCAST_RETURN_IF_ERROR(ReadTree(root_, &tree));
    TAILCAST_RETURN_IF_ERROR(ReadStreams(tree));
    TAILCAST_RETURN_IF_ERROR(root_.Finish());
    return std::move(topology_);
  }

 private:
  Status Positive(YamlMap& map, std::string_view key, double& value, double highest) {
    TAILCAST_RETURN_IF_ERROR(map.Get(key, value));
    if (std::isnan(value)) return map.Error(key, "must be a number");
    if (value < 0) return map.Error(key, "must not be negative");
    if (value > highest) {
      char text[64];
      std::snprintf(text, sizeof text, "must be at most %g", highest);
      return map.Error(key, text);
    }
    return OkStatus();
  }

  Status HostPort(YamlMap& map, std::string_view key, std::string& value) {
    TAILCAST_RETURN_IF_ERROR(map.Get(key, value));
    if (!value.empty() && !IsHostPort(value)) {
      return map.Error(key, "'" + value + "' is not HOST:PORT");
    }
    return OkStatus();
  }

  Status KnownCluster(YamlMap& map, std::string_view key, const std::string& name) {
    if (known_.contains(name)) return OkStatus();
    return map.Error(
        key, "no cluster is called '" + name + "'" + DidYouMean(name, topology_.ClusterNames()));
  }

  Status ReadClusters() {
    TAILCAST_ASSIGN_OR_RETURN(std::vector<YamlMap> maps, root_.GetMaps("clusters"));
    if (maps.empty()) {
      root_.Expect({"links", "tables", "limits", "hop_delay_ms", "stuck_after_ms", "slow_after_ms",
                    "look_every_ms", "churn_usd_per_gb", "tree", "streams"});
      TAILCAST_RETURN_IF_ERROR(root_.Finish());
      return root_.Error(root_.Has("clusters") ? "clusters" : "",
                         "no clusters; list at least one, as 'clusters: [{name: us-central}]'");
    }
    for (YamlMap& map : maps) {
      TopologyCluster cluster;
      TAILCAST_RETURN_IF_ERROR(map.Require("name", cluster.name));
      if (!IsName(cluster.name)) {
        return map.Error("name", NameError(cluster.name));
      }
      if (!known_.insert(cluster.name).second) {
        return map.Error("name", "cluster '" + cluster.name + "' is given twice");
      }
      TAILCAST_RETURN_IF_ERROR(map.Get("relay_only", cluster.relay_only));
      std::string health = "healthy";
      TAILCAST_RETURN_IF_ERROR(map.Get("health", health));
      if (health == "sick") {
        cluster.health = ClusterHealth::kSick;
      } else if (health == "new") {
        cluster.health = ClusterHealth::kNew;
      } else if (health != "healthy") {
        return map.Error("health", "'" + health + "' is not healthy, sick or new" +
                                       DidYouMean(health, {"healthy", "sick", "new"}));
      }
      TAILCAST_RETURN_IF_ERROR(HostPort(map, "scheduler", cluster.scheduler));
      if (map.Has("cell_key")) {
        TAILCAST_RETURN_IF_ERROR(map.Get("cell_key", cluster.cell_key));
        if (Status s = CheckCellKey(cluster.cell_key); !s.ok()) {
          return map.Error("cell_key", s.message());
        }
      }
      int64_t depth = 0, fanout = 0;
      TAILCAST_RETURN_IF_ERROR(map.Get("max_depth", depth, 0, 32));
      TAILCAST_RETURN_IF_ERROR(map.Get("max_fanout", fanout, 0, 1'000'000));
      TAILCAST_RETURN_IF_ERROR(Positive(map, "max_egress_mbps", cluster.max_egress_mbps, 1e9));
      cluster.max_depth = static_cast<int>(depth);
      cluster.max_fanout = static_cast<int>(fanout);
      TAILCAST_RETURN_IF_ERROR(map.Finish());
      topology_.clusters.push_back(std::move(cluster));
    }
    return OkStatus();
  }

  Status ReadLinks() {
    if (!root_.Has("links") && !root_.Has("tables")) {
      TAILCAST_RETURN_IF_ERROR(root_.GetMaps("links").status());
      for (const TopologyCluster& from : topology_.clusters) {
        for (const TopologyCluster& to : topology_.clusters) {
          if (&from != &to) topology_.links.push_back({.from = from.name, .to = to.name});
        }
      }
      return OkStatus();
    }
    TAILCAST_ASSIGN_OR_RETURN(std::vector<YamlMap> maps, root_.GetMaps("links"));
    bool priced = false;
    for (const YamlMap& map : maps) priced |= map.Has("usd_per_gb");
    std::set<std::pair<std::string, std::string>> seen;
    for (YamlMap& map : maps) {
      TopologyLink link;
      TAILCAST_RETURN_IF_ERROR(map.Require("from", link.from));
      TAILCAST_RETURN_IF_ERROR(map.Require("to", link.to));
      TAILCAST_RETURN_IF_ERROR(KnownCluster(map, "from", link.from));
      TAILCAST_RETURN_IF_ERROR(KnownCluster(map, "to", link.to));
      if (link.from == link.to)
        return map.Error("to", "a link from a cluster to itself; remove it");
      if (priced && !map.Has("usd_per_gb")) {
        return map.Error("", "link " + link.from + " -> " + link.to +
                                 ": the price is missing; other links have one, so add usd_per_gb "
                                 "(0 if it is free)");
      }
      TAILCAST_RETURN_IF_ERROR(Positive(map, "usd_per_gb", link.usd_per_gb, kUsdPerGbMax));
      TAILCAST_RETURN_IF_ERROR(Positive(map, "rtt_ms", link.rtt_ms, kRttMsMax));
      TAILCAST_RETURN_IF_ERROR(Positive(map, "bandwidth_gbps", link.bandwidth_gbps, 1e9));
      std::string health = "healthy";
      TAILCAST_RETURN_IF_ERROR(map.Get("health", health));
      if (health != "healthy" && health != "sick") {
        return map.Error("health", "'" + health + "' is not healthy or sick" +
                                       DidYouMean(health, {"healthy", "sick"}));
      }
      link.sick = health == "sick";
      bool both = false;
      TAILCAST_RETURN_IF_ERROR(map.Get("both", both));
      TAILCAST_RETURN_IF_ERROR(HostPort(map, "via", link.via));
      TAILCAST_RETURN_IF_ERROR(map.Finish());
      for (const bool back : {false, true}) {
        if (back && !both) continue;
        if (back) std::swap(link.from, link.to);
        if (!seen.emplace(link.from, link.to).second) {
          return map.Error("", "link " + link.from + " -> " + link.to +
                                   " is given twice; remove one (mind 'both: true')");
        }
        topology_.links.push_back(link);
      }
    }
    return OkStatus();
  }

  Status ReadTables() {
    std::vector<std::string> tables;
    TAILCAST_RETURN_IF_ERROR(root_.Get("tables", tables));
    std::vector<std::string> checksums;
    TAILCAST_RETURN_IF_ERROR(root_.Get("table_checksums", checksums));
    if (!checksums.empty() && checksums.size() != tables.size()) {
      return root_.Error("table_checksums", "must have one for each of 'tables', or none at all");
    }
    const size_t listed = topology_.links.size();
    for (size_t i = 0; i < tables.size(); ++i) {
      std::error_code error;
      const std::string path = std::filesystem::absolute(folder_ / tables[i], error).string();
      if (error) return ErrnoStatus(error.value(), "find " + tables[i]);
      TopologyTable table{.path = path};
      if (!checksums.empty()) {
        const std::string& text = checksums[i];
        const char* const end = text.data() + text.size();
        const auto [at, bad] = std::from_chars(text.data(), end, table.crc32c.emplace(), 16);
        if (bad != std::errc() || at != end) {
          return root_.Error("table_checksums", "'" + text + "' is no CRC-32C in hexadecimal");
        }
      }
      if (read_tables_) {
        uint32_t crc32c = 0;
        TAILCAST_RETURN_IF_ERROR(
            ReadLinkTable(path, topology_.clusters, &topology_.links, &crc32c));
        if (table.crc32c && crc32c != *table.crc32c) {
          return FailedPreconditionError(
              path +
              " is another table than the one that the cells were started with; put that "
              "one back, or start them anew");
        }
        table.crc32c = crc32c;
      }
      topology_.tables.push_back(std::move(table));
    }
    topology_.table_links = topology_.links.size() - listed;
    return OkStatus();
  }

  Status ReadLimits() {
    TAILCAST_ASSIGN_OR_RETURN(YamlMap limits, root_.GetMap("limits"));
    int64_t depth = topology_.max_depth, fanout = topology_.max_fanout;
    TAILCAST_RETURN_IF_ERROR(limits.Get("max_depth", depth, 1, 32));
    TAILCAST_RETURN_IF_ERROR(limits.Get("max_fanout", fanout, 0, 1'000'000));
    TAILCAST_RETURN_IF_ERROR(Positive(limits, "max_delay_ms", topology_.max_delay_ms, 1e8));
    TAILCAST_RETURN_IF_ERROR(limits.Finish());
    topology_.max_depth = static_cast<int>(depth);
    topology_.max_fanout = static_cast<int>(fanout);
    TAILCAST_RETURN_IF_ERROR(Positive(root_, "hop_delay_ms", topology_.hop_delay_ms, kRttMsMax));
    TAILCAST_RETURN_IF_ERROR(
        root_.Get("stuck_after_ms", topology_.stuck_after_ms, 100, int64_t{3600} * 1000));
    TAILCAST_RETURN_IF_ERROR(
        root_.Get("slow_after_ms", topology_.slow_after_ms, 0, int64_t{3600} * 1000));
    if (topology_.slow_after_ms > 0 && topology_.slow_after_ms < 20) {
      return root_.Error("slow_after_ms", "must be 20 or more, or 0: nobody is avoided");
    }
    TAILCAST_RETURN_IF_ERROR(
        root_.Get("look_every_ms", topology_.look_every_ms, 1000, int64_t{3600} * 1000));
    return Positive(root_, "churn_usd_per_gb", topology_.churn_usd_per_gb, kUsdPerGbMax);
  }

  Status ReadTree(YamlMap& owner, std::vector<TopologyEdge>* tree) {
    TAILCAST_ASSIGN_OR_RETURN(std::vector<YamlMap> maps, owner.GetMaps("tree"));
    std::map<std::string, std::string> parent;
    for (YamlMap& map : maps) {
      TopologyEdge edge;
      TAILCAST_RETURN_IF_ERROR(map.Require("from", edge.from));
      TAILCAST_RETURN_IF_ERROR(map.Require("to", edge.to));
      TAILCAST_RETURN_IF_ERROR(KnownCluster(map, "from", edge.from));
      TAILCAST_RETURN_IF_ERROR(KnownCluster(map, "to", edge.to));
      TAILCAST_RETURN_IF_ERROR(map.Finish());
      const bool known = !read_tables_ && !topology_.tables.empty();
      if (!known && topology_.FindLink(edge.from, edge.to) == nullptr) {
        return map.Error("to", "there is no link " + edge.from + " -> " + edge.to);
      }
      if (!parent.emplace(edge.to, edge.from).second) {
        return map.Error("to", "cluster '" + edge.to + "' is fed twice in the tree");
      }
      tree->push_back(std::move(edge));
    }
    for (const auto& [name, first] : parent) {
      std::string at = first;
      for (size_t steps = 0; parent.contains(at); at = parent[at]) {
        if (++steps > parent.size()) {
          return owner.Error("tree", "cluster '" + name + "' hangs on a cycle");
        }
      }
    }
    return OkStatus();
  }

  Status ReadStreams(const std::vector<TopologyEdge>& tree) {
    TAILCAST_ASSIGN_OR_RETURN(std::vector<YamlMap> maps, root_.GetMaps("streams"));
    for (YamlMap& map : maps) {
      TopologyStream stream;
      TAILCAST_RETURN_IF_ERROR(map.Require("name", stream.name));
      if (!IsName(stream.name)) {
        return map.Error("name", NameError(stream.name));
      }
      if (topology_.FindStream(stream.name) != nullptr) {
        return map.Error("name", "stream '" + stream.name + "' is given twice");
      }
      TAILCAST_RETURN_IF_ERROR(map.Require("source", stream.source));
      TAILCAST_RETURN_IF_ERROR(KnownCluster(map, "source", stream.source));
      TAILCAST_RETURN_IF_ERROR(map.Get("destinations", stream.destinations));
      for (const std::string& name : stream.destinations) {
        TAILCAST_RETURN_IF_ERROR(KnownCluster(map, "destinations", name));
        if (topology_.FindCluster(name)->relay_only) {
          return map.Error("destinations", "cluster '" + name + "' is relay_only");
        }
      }
      TAILCAST_RETURN_IF_ERROR(Positive(map, "rate_mbps", stream.rate_mbps, 1e9));
      TAILCAST_RETURN_IF_ERROR(ReadTree(map, &stream.tree));
      TAILCAST_RETURN_IF_ERROR(map.Finish());
      if (stream.tree.empty()) stream.tree = tree;
      topology_.streams.push_back(std::move(stream));
    }
    if (!tree.empty() && topology_.streams.empty()) {
      return root_.Error("tree", "no stream uses it; add 'streams'");
    }
    return OkStatus();
  }

  YamlMap root_;
  const std::filesystem::path folder_;  // where tables are
  const bool read_tables_;
  std::set<std::string> known_;  // cluster names
  Topology topology_;
};

// The shortest text that is read back as this number.
std::string Number(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Any bytes, e.g. a path's.
std::string Quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

// A scalar that YAML reads back as this text.
std::string Scalar(const std::string& text) {
  const auto harmless = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80 ||
           std::string_view("-_.:/+@").find(c) != std::string_view::npos;
  };
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), harmless) &&
                     text.back() != ':' && std::isalpha(static_cast<unsigned char>(text[0])) &&
                     text != "true" && text != "false" && text != "null" && text != "yes" &&
                     text != "no" && text != "on" && text != "off" && text != "y" && text != "n";
  return plain ? text : Quoted(text);
}

// `listed`: so many links are listed, the others are in the tables.
std::string Text(const Topology& topology, const std::vector<TopologyTable>& tables,
                 size_t listed) {
  std::string out = "version: 1\nclusters:\n";
  for (const TopologyCluster& cluster : topology.clusters) {
    out += "  - {name: " + Scalar(cluster.name);
    if (cluster.relay_only) out += ", relay_only: true";
    if (cluster.health == ClusterHealth::kSick) out += ", health: sick";
    if (cluster.health == ClusterHealth::kNew) out += ", health: new";
    if (cluster.max_depth > 0) out += ", max_depth: " + std::to_string(cluster.max_depth);
    if (cluster.max_fanout > 0) out += ", max_fanout: " + std::to_string(cluster.max_fanout);
    if (cluster.max_egress_mbps > 0) {
      out += ", max_egress_mbps: " + Number(cluster.max_egress_mbps);
    }
    if (!cluster.scheduler.empty()) out += ", scheduler: \"" + cluster.scheduler + "\"";
    if (!cluster.cell_key.empty()) out += ", cell_key: " + Quoted(cluster.cell_key);
    out += "}\n";
  }
  if (!tables.empty()) {
    std::string paths, checksums;
    for (const TopologyTable& table : tables) {
      const char* const comma = paths.empty() ? "" : ", ";
      paths += comma + Scalar(table.path);
      if (!table.crc32c) continue;
      char text[24];
      std::snprintf(text, sizeof text, "%s\"%08x\"", comma, *table.crc32c);
      checksums += text;
    }
    out += "tables: [" + paths + "]\n";
    if (!checksums.empty()) out += "table_checksums: [" + checksums + "]\n";
  }
  if (listed > 0) {
    out += "links:\n";
  } else if (tables.empty()) {
    out += "links: []\n";
  }
  std::map<std::pair<std::string, std::string>, const TopologyLink*> index;
  const auto end = topology.links.begin() + static_cast<std::ptrdiff_t>(listed);
  for (auto link = topology.links.begin(); link != end; ++link) {
    index[{link->from, link->to}] = &*link;
  }
  std::set<const TopologyLink*> written;
  for (auto at = topology.links.begin(); at != end; ++at) {
    const TopologyLink& link = *at;
    if (written.contains(&link)) continue;
    out += "  - {from: " + Scalar(link.from) + ", to: " + Scalar(link.to) +
           ", usd_per_gb: " + Number(link.usd_per_gb) + ", rtt_ms: " + Number(link.rtt_ms);
    if (link.bandwidth_gbps > 0) out += ", bandwidth_gbps: " + Number(link.bandwidth_gbps);
    if (link.sick) out += ", health: sick";
    if (!link.via.empty()) out += ", via: \"" + link.via + "\"";
    const auto back = index.find({link.to, link.from});
    if (back != index.end()) {
      const TopologyLink& other = *back->second;
      if (other.usd_per_gb == link.usd_per_gb && other.rtt_ms == link.rtt_ms &&
          other.bandwidth_gbps == link.bandwidth_gbps && other.sick == link.sick &&
          other.via == link.via) {
        out += ", both: true";
        written.insert(&other);
      }
    }
    out += "}\n";
  }
  const auto edges = [&out](const std::vector<TopologyEdge>& tree) {
    for (const TopologyEdge& edge : tree) {
      out += "      - {from: " + Scalar(edge.from) + ", to: " + Scalar(edge.to) + "}\n";
    }
  };
  if (!topology.streams.empty()) out += "streams:\n";
  for (const TopologyStream& stream : topology.streams) {
    out += "  - name: " + Scalar(stream.name) + "\n    source: " + Scalar(stream.source) + "\n";
    if (!stream.destinations.empty()) {
      out += "    destinations: [";
      for (size_t i = 0; i < stream.destinations.size(); ++i) {
        out += (i == 0 ? "" : ", ") + Scalar(stream.destinations[i]);
      }
      out += "]\n";
    }
    if (stream.rate_mbps > 0) out += "    rate_mbps: " + Number(stream.rate_mbps) + "\n";
    if (!stream.tree.empty()) {
      out += "    tree:\n";
      edges(stream.tree);
    }
  }
  out += "limits: {max_depth: " + std::to_string(topology.max_depth) +
         ", max_fanout: " + std::to_string(topology.max_fanout) +
         ", max_delay_ms: " + Number(topology.max_delay_ms) + "}\n";
  out += "hop_delay_ms: " + Number(topology.hop_delay_ms) + "\n";
  if (topology.stuck_after_ms != Topology().stuck_after_ms) {
    out += "stuck_after_ms: " + std::to_string(topology.stuck_after_ms) + "\n";
  }
  if (topology.slow_after_ms != Topology().slow_after_ms) {
    out += "slow_after_ms: " + std::to_string(topology.slow_after_ms) + "\n";
  }
  if (topology.look_every_ms != Topology().look_every_ms) {
    out += "look_every_ms: " + std::to_string(topology.look_every_ms) + "\n";
  }
  if (topology.churn_usd_per_gb > 0) {
    out += "churn_usd_per_gb: " + Number(topology.churn_usd_per_gb) + "\n";
  }
  return out;
}

}  // namespace

const TopologyCluster* Topology::FindCluster(std::string_view name) const {
  for (const TopologyCluster& cluster : clusters) {
    if (cluster.name == name) return &cluster;
  }
  return nullptr;
}

const TopologyLink* Topology::FindLink(std::string_view from, std::string_view to) const {
  for (const TopologyLink& link : links) {
    if (link.from == from && link.to == to) return &link;
  }
  return nullptr;
}

const TopologyStream* Topology::FindStream(std::string_view name) const {
  for (const TopologyStream& stream : streams) {
    if (stream.name == name) return &stream;
  }
  return nullptr;
}

std::vector<std::string> Topology::ClusterNames() const {
  std::vector<std::string> names;
  names.reserve(clusters.size());
  for (const TopologyCluster& cluster : clusters) names.push_back(cluster.name);
  return names;
}

Result<Topology> LoadTopology(const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(YamlMap root, YamlMap::Load(path));
  return Reader(std::move(root), std::filesystem::path(path).parent_path(), Tables::kRead).Read();
}

Status CheckName(std::string_view name) {
  return IsName(name) ? OkStatus() : InvalidArgumentError(NameError(name));
}

Result<Topology> ParseTopology(const std::string& text, const std::string& name, Tables tables) {
  TAILCAST_ASSIGN_OR_RETURN(YamlMap root, YamlMap::Parse(text, name));
  return Reader(std::move(root), std::filesystem::path(name).parent_path(), tables).Read();
}

std::string TopologyText(const Topology& topology, const std::vector<std::string>& tables) {
  std::vector<TopologyTable> named;
  for (const std::string& table : tables) named.push_back({.path = table});
  return Text(topology, named, tables.empty() ? topology.links.size() : 0);
}

std::string TopologyReference(const Topology& topology) {
  const size_t listed = topology.links.size() - topology.table_links;
  for (size_t l = listed; l < topology.links.size(); ++l) {
    if (topology.links[l].sick || !topology.links[l].via.empty()) return TopologyText(topology);
  }
  return Text(topology, topology.tables, listed);
}

}  // namespace tailcast::cell
