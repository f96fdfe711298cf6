#include "tailcast/scale/sizing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/rng.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::scale {
namespace {

constexpr double kCopies = 3;
constexpr double kAnswers = 2;
constexpr int kLeastServers = 3, kMostServers = 10'000;
constexpr double kMegabit = 1e6 / 8;

constexpr std::array<const char*, 5> kContinents = {"us", "europe", "asia", "australia", "africa"};
constexpr uint64_t kCloudSeed = 17;

Result<int> ServersFor(double load) {
  if (load > kMostServers) {
    return InvalidArgumentError("a cell would need more than " + std::to_string(kMostServers) +
                                " cache servers; more cells, or fewer consumers of each shard");
  }
  const int even = std::max(kLeastServers, static_cast<int>(std::ceil(load)));
  return std::max(kLeastServers, static_cast<int>(std::ceil(load * HottestServer(even))));
}

}  // namespace

Result<Sizing> Size(const Demand& demand, const ServerLimits& limits, const Costs& costs,
                    const copytree::Graph& graph, const std::string& source) {
  // Both files go to the other cells: the index has a record for each message.
  const double file_mbps = demand.stream_mbps * (1 + static_cast<double>(stream::kIndexRecordSize) /
                                                         demand.message_bytes);
  const copytree::Stream stream{
      .name = "stream", .source = source, .destinations = {}, .rate_mbps = file_mbps};
  Sizing sizing;
  TAILCAST_ASSIGN_OR_RETURN(sizing.plan, copytree::MakePlan(graph, stream, {}));
  if (demand.shards_per_consumer > demand.shards) {
    return InvalidArgumentError("a consumer of " + std::to_string(demand.shards_per_consumer) +
                                " shards of a stream that has " + std::to_string(demand.shards));
  }
  const ShardFlow flow{.bytes_per_s = demand.stream_mbps * kMegabit / demand.shards,
                       .message_bytes = demand.message_bytes,
                       .flush_s = demand.flush_s};
  const Reading reading = ReadingOf(flow, demand.poll_s);
  const Writing writing = WritingOf(flow);
  sizing.consumers_per_cell = demand.consumers / graph.size();
  const double readers = sizing.consumers_per_cell * demand.shards_per_consumer;
  sizing.reads_per_s = readers * reading.chunk_reads;
  sizing.value_reads_per_s = readers * reading.value_reads * kAnswers;
  sizing.read_bytes_per_s = readers * reading.read_bytes;
  const double writes_per_s = writing.chunk_writes * demand.shards;
  const double written_bytes = writing.payload_bytes * demand.shards * kCopies;
  TAILCAST_ASSIGN_OR_RETURN(
      sizing.data_servers,
      ServersFor(
          std::max((sizing.reads_per_s + writes_per_s * kCopies) / limits.trigger_reads_per_s,
                   (sizing.read_bytes_per_s + written_bytes) / limits.trigger_bytes_per_s)));
  TAILCAST_ASSIGN_OR_RETURN(sizing.metadata_servers,
                            ServersFor(sizing.value_reads_per_s / limits.trigger_reads_per_s));
  sizing.data_memory_bytes = writing.payload_bytes * demand.shards * demand.keep_s * kCopies;
  sizing.server_cpus_rdma = writes_per_s * costs.server_write_s;
  sizing.server_cpus_tcp = sizing.server_cpus_rdma + sizing.reads_per_s * costs.server_read_s +
                           sizing.value_reads_per_s / kAnswers * costs.server_value_s;
  sizing.consumer_cpus = sizing.reads_per_s * costs.client_read_s +
                         sizing.value_reads_per_s / kAnswers * costs.client_value_s;
  sizing.link_bytes_per_s =
      static_cast<double>(sizing.plan.hops.size()) * copytree::kCopiesPerHop * file_mbps * kMegabit;
  return sizing;
}

copytree::Graph InventedCloud(int clusters) {
  Rng rng(kCloudSeed);
  std::vector<copytree::Cluster> made;
  std::vector<size_t> where;
  for (int i = 0; i < clusters; ++i) {
    where.push_back(static_cast<size_t>(i) % kContinents.size());
    copytree::Cluster cluster;
    cluster.name = std::string(kContinents[where.back()]) + "-" +
                   std::to_string(static_cast<size_t>(i) / kContinents.size() + 1);
    made.push_back(std::move(cluster));
  }
  std::vector<copytree::Link> links;
  for (int from = 0; from < clusters; ++from) {
    for (int to = 0; to < clusters; ++to) {
      if (from == to) continue;
      const bool near = where[from] == where[to];
      copytree::Link link;
      link.from = made[from].name;
      link.to = made[to].name;
      link.usd_per_gb =
          static_cast<double>(near ? rng.Between(10, 20) : rng.Between(50, 90)) / 1000;
      link.rtt_ms = static_cast<double>(near ? rng.Between(5, 60) : rng.Between(80, 280));
      links.push_back(std::move(link));
    }
  }
  Result<copytree::Graph> graph = copytree::Graph::Create(std::move(made), std::move(links));
  TAILCAST_CHECK(graph.ok(), "a cloud that is none");
  return std::move(graph).value();
}

}  // namespace tailcast::scale
