#include "tailcast/app/copytree_session.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/cell/link_table.h"
#include "tailcast/copytree/import.h"

namespace tailcast::app {

Status CopytreeSession::DoImport() {
  std::vector<copytree::CsvTable> tables;
  for (const std::string& path : flags_->tables) {
    TAILCAST_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path));
    tables.push_back({path, std::move(text)});
  }
  TAILCAST_ASSIGN_OR_RETURN(
      const copytree::Imported imported,
      copytree::ImportTables(
          tables, {.tier = flags_->tier, .complete = flags_->complete, .only = flags_->only}));
  cell::Topology topology;
  for (const copytree::Cluster& cluster : imported.clusters) {
    if (const Status named = cell::CheckName(cluster.name); !named.ok()) {
      return named.WithContext("a cluster of the tables");
    }
    topology.clusters.push_back({.name = cluster.name});
  }
  for (const copytree::Link& link : imported.links) {
    topology.links.push_back({.from = link.from,
                              .to = link.to,
                              .usd_per_gb = link.usd_per_gb,
                              .rtt_ms = link.rtt_ms,
                              .bandwidth_gbps = link.bandwidth_gbps});
  }
  if (flags_->max_depth) topology.max_depth = *flags_->max_depth;
  if (flags_->max_fanout) topology.max_fanout = *flags_->max_fanout;
  if (flags_->max_delay_ms) topology.max_delay_ms = *flags_->max_delay_ms;
  if (flags_->hop_delay_ms) topology.hop_delay_ms = *flags_->hop_delay_ms;
  for (const std::string& note : imported.notes) err_ << "note: " << note << "\n";
  std::vector<std::string> tables_out;
  std::string name = "the imported topology";
  if (!flags_->table.empty()) {
    TAILCAST_RETURN_IF_ERROR(WriteWholeFile(flags_->table, cell::LinkTableText(topology.links)));
    // The topology finds its table from where it lies itself.
    std::filesystem::path folder = std::filesystem::path(flags_->output).parent_path();
    if (folder.empty()) folder = ".";
    tables_out = {std::filesystem::proximate(flags_->table, folder).string()};
    name = (folder / name).string();
  }
  const std::string text = cell::TopologyText(topology, tables_out);
  // What was written must be readable; a name that YAML or the topology refuses shows here.
  if (Result<cell::Topology> again = cell::ParseTopology(text, name); !again.ok()) {
    return again.status();
  }
  err_ << imported.clusters.size() << " clusters, " << imported.links.size() << " links\n";
  return Write(text);
}

}  // namespace tailcast::app
