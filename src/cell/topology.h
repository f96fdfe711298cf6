// The topology file: which clusters there are, what the links between them cost, which streams go
// where. `tailcast up --topology FILE` deploys it, `tailcast copytree` plans on it.
//
//   version: 1
//   clusters:                            # required, at least one
//     - name: us-central                 # required; the rule is in docs/config.md
//     - name: europe-west
//       relay_only: false                # default; true: carries streams, never a destination
//       health: healthy                  # default; or sick, or new
//       max_depth: 2                     # default 0: the limits below; hops from the source to it
//       max_fanout: 3                    # default 0: the limits below; children, instead of those
//       max_egress_mbps: 500             # default 0: no limit; what it sends, all streams and copies
//       scheduler: 10.1.0.4:7000         # HOST:PORT; default: found through the deployment
//       cell_key: /etc/tailcast/us.key   # file, or none; default: `up` makes one
//   links:                               # default: every pair, both ways, price and RTT 0
//     - from: us-central
//       to: europe-west
//       usd_per_gb: 0.02                 # default 0 if no link has one; else required everywhere
//       rtt_ms: 130                      # round trip; default 0
//       bandwidth_gbps: 10               # default 0 = unknown
//       both: true                       # default false; true: the same link in both directions
//       health: healthy                  # default; or sick
//       via: 127.0.0.1:9000              # forward proxy that carries the link; default: direct
//   tables: [links.csv]                  # more links, from CSV (link_table.h); beside the file
//   table_checksums: [9ae3b1f0]          # default: none; CRC-32C of each, which it must have
//   streams:                             # default: none
//     - name: flights                    # required
//       source: us-central               # required
//       destinations: [europe-west]      # default: every cluster that is not relay_only
//       rate_mbps: 32                    # stream bytes, one copy; default 0 = unknown
//       tree: [{from: a, to: b}]         # default: the file's tree, else planned
//   limits:
//     max_depth: 4                       # default; hops, 1 to 32
//     max_fanout: 0                      # default: no limit
//     max_delay_ms: 0                    # default: no limit
//   hop_delay_ms: 25                     # default; what a hop adds to half the round trip
//   stuck_after_ms: 2000                 # default; a copy that stands still so long is moved
//   slow_after_ms: 200                   # default; a worker that is so much slower is avoided; 0: nobody
//   look_every_ms: 30000                 # default; how often a scheduler looks for files that are lost or damaged
//   churn_usd_per_gb: 0                  # default; what changing one edge must save
//   tree: [{from: us-central, to: europe-west}]   # default: planned; a tree fixed by hand
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::cell {

enum class ClusterHealth : uint8_t { kHealthy, kSick, kNew };

struct TopologyCluster {
  std::string name;
  bool relay_only = false;
  ClusterHealth health = ClusterHealth::kHealthy;
  std::string scheduler;              // HOST:PORT or empty
  std::string cell_key;               // path, "none" or empty: process_config.h
  int max_depth = 0, max_fanout = 0;  // 0 = the topology's
  double max_egress_mbps = 0;         // 0 = no limit
};

// One direction; `both` is resolved while reading.
struct TopologyLink {
  std::string from, to;
  double usd_per_gb = 0;
  double rtt_ms = 0;
  double bandwidth_gbps = 0;
  bool sick = false;
  std::string via;  // HOST:PORT or empty
};

struct TopologyEdge {
  std::string from, to;
};

struct TopologyStream {
  std::string name;
  std::string source;
  std::vector<std::string> destinations;  // empty = every cluster that is not relay_only
  double rate_mbps = 0;
  std::vector<TopologyEdge> tree;  // empty = planned
};

struct TopologyTable {
  std::string path;                // absolute
  std::optional<uint32_t> crc32c;  // of its bytes, if known
};

struct Topology {
  std::vector<TopologyCluster> clusters;
  std::vector<TopologyLink> links;  // those of the tables last
  std::vector<TopologyTable> tables;
  size_t table_links = 0;  // so many of `links`
  std::vector<TopologyStream> streams;
  int max_depth = 4;
  int max_fanout = 0;
  double max_delay_ms = 0;
  double hop_delay_ms = 25;
  int64_t stuck_after_ms = 2000;
  int64_t slow_after_ms = 200;
  int64_t look_every_ms = 30000;
  double churn_usd_per_gb = 0;

  const TopologyCluster* FindCluster(std::string_view name) const;
  const TopologyLink* FindLink(std::string_view from, std::string_view to) const;
  const TopologyStream* FindStream(std::string_view name) const;
  std::vector<std::string> ClusterNames() const;
};

// InvalidArgument names file, line, column and key, and what to do: unknown keys and names with the
// nearest known one, double names, links given twice, negative or missing prices, values out of
// range, HOST:PORT without a port, a version that is not 1. NotFound, PermissionDenied: the file.
Result<Topology> LoadTopology(const std::string& path);
enum class Tables : uint8_t {
  kRead,
  kSkip,  // for who needs no links: those of tables are not there, nor is a tree held against links
};
// The same from text; `name` stands for the file in messages, and tables are looked for beside it.
// FailedPrecondition: a table is not the one that `table_checksums` says.
Result<Topology> ParseTopology(const std::string& text, const std::string& name,
                               Tables tables = Tables::kRead);
// Whether a cluster or a stream may have this name. InvalidArgument quotes it and the rule.
Status CheckName(std::string_view name);

// A file that ParseTopology reads back as the same topology. Links that are equal in both
// directions become one entry; defaults are left out. With `tables` the file names these instead of
// the links.
std::string TopologyText(const Topology& topology, const std::vector<std::string>& tables = {});

// The same for other processes of this host: links of tables stay there, and the tables are named
// with path and checksum; 1,000 clusters take some 20 KB instead of 70 MB. All links are listed if
// one of a table is sick or has a proxy, which tables don't say.
std::string TopologyReference(const Topology& topology);

}  // namespace tailcast::cell
