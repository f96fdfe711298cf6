// Tables of links beside a topology: a wrong one is a clear error, a right one is written as read.
#include "tailcast/cell/link_table.h"

#include <cmath>

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::cell {
namespace {

void Try(const std::string& text) {
  const std::vector<TopologyCluster> clusters = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  std::vector<TopologyLink> links;
  const Status status = ParseLinkTable(text, "links.csv", clusters, &links);
  if (!status.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(status), "bad input, and nothing else");
    TAILCAST_CHECK(status.message().starts_with("links.csv:"), "it says where");
    return;
  }
  TAILCAST_CHECK(!links.empty() && links.size() <= 6, "each pair once at most");
  for (const TopologyLink& link : links) {
    TAILCAST_CHECK(link.from != link.to);
    for (const double value : {link.usd_per_gb, link.rtt_ms, link.bandwidth_gbps}) {
      TAILCAST_CHECK(std::isfinite(value) && value >= 0);
    }
  }
  const std::string written = LinkTableText(links);
  std::vector<TopologyLink> again;
  TAILCAST_CHECK(ParseLinkTable(written, "again.csv", clusters, &again).ok(),
                 "what was read is written as something that can be read");
  TAILCAST_CHECK(LinkTableText(again) == written, "as the same");
}

}  // namespace
}  // namespace tailcast::cell

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::cell::Try(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  return {"from,to,usd_per_gb,rtt_ms\na,b,0.02,130\nb,a,0.05,130\r\n",
          "from,to,usd_per_gb,rtt_ms,bandwidth_gbps\na,b,1e-3,4.5,10\n\nc,a,100,0,0\n",
          "from,to,usd_per_gb,rtt_ms\n"};
}
