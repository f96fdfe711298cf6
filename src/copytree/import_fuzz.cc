// Price and delay tables in CSV, and what a person calls a link.
#include "tailcast/copytree/import.h"

#include <cmath>

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::copytree {
namespace {

void CheckError(const Status& status) {
  TAILCAST_CHECK(IsInvalidArgument(status), "bad input, and nothing else");
}

// Two tables with a NUL between them, then the name of a link.
void Try(fuzz::Input input) {
  ImportOptions options;
  const auto flags = input.Take<uint8_t>();
  if ((flags & 1) != 0) options.tier.clear();
  options.complete = (flags & 2) != 0;
  const std::string text(input.Rest());
  const size_t first = text.find('\0'), second = text.find('\0', first + 1);
  std::vector<CsvTable> tables = {{"a.csv", text.substr(0, first)}};
  if (first != std::string::npos) {
    tables.push_back({"b.csv", text.substr(first + 1, second - first - 1)});
  }
  const Result<Imported> imported = ImportTables(tables, options);
  if (!imported.ok()) return CheckError(imported.status());
  for (const Link& link : imported->links) {
    TAILCAST_CHECK(std::isfinite(link.usd_per_gb) && link.usd_per_gb >= 0 &&
                   std::isfinite(link.rtt_ms) && link.rtt_ms >= 0 &&
                   std::isfinite(link.bandwidth_gbps) && link.bandwidth_gbps >= 0);
  }
  const Result<Graph> graph = Graph::Create(imported->clusters, imported->links);
  if (imported->clusters.empty()) return CheckError(graph.status());
  TAILCAST_CHECK(graph.ok(), "what was imported can be planned on");
  if (second == std::string::npos) return;
  const Result<std::vector<Edge>> edges = ParseLinks(*graph, text.substr(second + 1));
  if (!edges.ok()) return CheckError(edges.status());
  for (const Edge& edge : *edges) {
    TAILCAST_CHECK(graph->FindLink(edge.from, edge.to) != nullptr, "a link that is not there");
  }
}

}  // namespace
}  // namespace tailcast::copytree

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::copytree::Try(tailcast::fuzz::Input(data, size));
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  const std::string prices =
      "src,dest,cost,src_tier,dst_tier\nus,eu-west,0.02,PREMIUM,PREMIUM\neu-west,us,0.05,PREMIUM,"
      "PREMIUM\nus,\"a b\",0.1,STANDARD,STANDARD\n";
  const std::string delays =
      "\xEF\xBB\xBF"
      "from,to,avg_rtt,throughput_received_bps\r\n"
      "us,eu-west,100,1e9\r\nus,eu-west,101.5,2e9\r\neu-west,us,99,\r\n";
  const std::string nul(1, '\0');
  return {"\2" + prices, "\3" + delays, "\1" + prices + nul + delays,
          nul + prices + nul + delays + nul + "us-eu-west",
          nul + prices + nul + delays + nul + "us->eu-west"};
}
