// Price, round-trip and throughput tables in CSV, as clouds and measuring tools give them, turned
// into clusters and links.
#pragma once

#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/copytree/graph.h"

namespace tailcast::copytree {

struct CsvTable {
  std::string name;  // for messages, e.g. the file's path
  std::string text;
};

struct ImportOptions {
  // Rows with tier columns are taken only if both ends have this tier; empty = all rows.
  std::string tier = "PREMIUM";
  // Keep only clusters between which every table has every ordered pair (the cluster with the most
  // gaps is dropped until there are none).
  bool complete = false;
  // Only these clusters; empty = all.
  std::vector<std::string> only;
};

struct Imported {
  std::vector<Cluster> clusters;  // by name
  std::vector<Link> links;        // by name
  // What was left out or merged, in sentences.
  std::vector<std::string> notes;
};

// Each table has a header line. Columns by name, in any order, case ignored:
//   from | src | source | src_region | src_cluster
//   to | dst | dest | destination | dst_region | dest_region | dst_cluster
//   and one or more of
//   usd_per_gb | cost | price | price_usd_per_gb           USD per GB
//   rtt_ms | avg_rtt | rtt | latency_ms                    round trip in ms
//   bandwidth_gbps, or throughput_received_bps | bandwidth_bps in bit/s
//   src_tier | from_tier, dst_tier | dest_tier | to_tier   optional
// Other columns are ignored, with a note. Fields may be quoted. Rows from a cluster to itself are
// skipped. A pair that comes twice keeps the dearer price, the longer round trip, the smaller
// bandwidth. Pairs without a price or a round-trip time are left out, with a note. InvalidArgument
// names table, line and column: no such column, one that comes twice, a short row, a value that is
// no number or negative; or says that more than kClustersMax clusters are left.
Result<Imported> ImportTables(const std::vector<CsvTable>& tables, const ImportOptions& options);

}  // namespace tailcast::copytree
