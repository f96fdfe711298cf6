// What a deployment of many cells takes: servers and processors of the caches, processors of the
// consumers, memory, bytes between cells and what those cost. The arithmetic of reading.h, the
// costs of costs.h, the tree of copytree/plan.h.
#pragma once

#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/scale/cell_model.h"
#include "tailcast/scale/costs.h"

namespace tailcast::scale {

struct Demand {
  double consumers = 1e6;    // in all cells together, as many in each
  double stream_mbps = 240;  // 1e6 bit/s, all shards of it
  int shards = 120;
  int shards_per_consumer = 4;
  double message_bytes = 1000;
  double flush_s = 0.1;
  double poll_s = 0.1;
  double keep_s = 60;  // of the stream in the data caches
};

struct Sizing {
  double consumers_per_cell = 0;
  double reads_per_s = 0;        // of chunks, in each cell
  double value_reads_per_s = 0;  // at the metadata servers of each cell
  double read_bytes_per_s = 0;   // in each cell
  int data_servers = 0;          // of each cell, below the triggers of `limits`
  int metadata_servers = 0;
  double data_memory_bytes = 0;  // of each cell, all copies
  // Processors of each cell, with tcp; with RDMA reads take none of the servers'.
  double server_cpus_tcp = 0, server_cpus_rdma = 0;
  double consumer_cpus = 0;
  // Of all cells together.
  double link_bytes_per_s = 0;
  copytree::Plan plan;
};

// FailedPrecondition, InvalidArgument: of the plan.
Result<Sizing> Size(const Demand& demand, const ServerLimits& limits, const Costs& costs,
                    const copytree::Graph& graph, const std::string& source);

// Clusters of a cloud that nobody has: continents, each pair of clusters with a price and a
// round-trip time of the kind that large clouds publish (0.01 to 0.02 USD per GB within a
// continent, 0.05 to 0.09 between them). For who has no tables of his own at hand.
copytree::Graph InventedCloud(int clusters);

}  // namespace tailcast::scale
