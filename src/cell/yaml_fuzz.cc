// The YAML files that people write: a process' configuration and a topology; and the store URL of a
// view. A wrong file is a clear error, whatever is in it.
#include "tailcast/base/check.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/cell/topology.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/storage/store_url.h"

namespace tailcast::cell {
namespace {

void CheckError(const Status& status, std::string_view file) {
  TAILCAST_CHECK(IsInvalidArgument(status), "bad input, and nothing else");
  TAILCAST_CHECK(status.message().starts_with(file), "it says where");
}

void TryConfig(const std::string& text) {
  const Result<ProcessConfig> config = ProcessConfig::Parse(text, "p.yaml");
  if (!config.ok()) return CheckError(config.status(), "p.yaml");
  const std::string yaml = config->ToYaml();
  const Result<ProcessConfig> again = ProcessConfig::Parse(yaml, "again.yaml");
  TAILCAST_CHECK(again.ok(), "what was read is written as something that can be read");
  TAILCAST_CHECK(again->ToYaml() == yaml, "as the same");
  const auto url = storage::ParseStoreUrl(config->StoreUrl().ToString());
  TAILCAST_CHECK(url.ok() && url->durable == config->durable, "a view finds the store");
}

// Links in both directions may be written as one: their order is not kept.
size_t CountLinks(const Topology& in, const Topology& of) {
  size_t same = 0;
  for (const TopologyLink& a : of.links) {
    const TopologyLink* b = in.FindLink(a.from, a.to);
    same += b != nullptr && a.usd_per_gb == b->usd_per_gb && a.rtt_ms == b->rtt_ms &&
            a.bandwidth_gbps == b->bandwidth_gbps && a.sick == b->sick && a.via == b->via;
  }
  return same;
}

void TryTopology(const std::string& text) {
  const Result<Topology> topology = ParseTopology(text, "t.yaml");
  if (!topology.ok()) return CheckError(topology.status(), "t.yaml");
  TAILCAST_CHECK(!topology->clusters.empty() && topology->max_depth >= 1);
  for (const TopologyLink& link : topology->links) {
    TAILCAST_CHECK(topology->FindCluster(link.from) && topology->FindCluster(link.to));
    TAILCAST_CHECK(link.usd_per_gb >= 0 && link.rtt_ms >= 0 && link.bandwidth_gbps >= 0);
  }
  const Result<Topology> again = ParseTopology(TopologyText(*topology), "again.yaml");
  TAILCAST_CHECK(again.ok(), "what was read is written as something that can be read");
  TAILCAST_CHECK(again->ClusterNames() == topology->ClusterNames(), "with the same names");
  for (size_t i = 0; i < again->clusters.size(); ++i) {
    const TopologyCluster &a = again->clusters[i], &b = topology->clusters[i];
    TAILCAST_CHECK(a.max_depth == b.max_depth && a.max_fanout == b.max_fanout &&
                       a.max_egress_mbps == b.max_egress_mbps,
                   "with the same limits of clusters");
  }
  TAILCAST_CHECK(again->links.size() == topology->links.size() &&
                     CountLinks(*again, *topology) == topology->links.size(),
                 "with the same links");
  TAILCAST_CHECK(again->streams.size() == topology->streams.size());
  for (size_t i = 0; i < again->streams.size(); ++i) {
    const TopologyStream &a = again->streams[i], &b = topology->streams[i];
    TAILCAST_CHECK(a.name == b.name && a.source == b.source && a.destinations == b.destinations &&
                       a.rate_mbps == b.rate_mbps && a.tree.size() == b.tree.size(),
                   "with the same streams");
  }
  TAILCAST_CHECK(again->max_delay_ms == topology->max_delay_ms &&
                     again->hop_delay_ms == topology->hop_delay_ms &&
                     again->stuck_after_ms == topology->stuck_after_ms &&
                     again->slow_after_ms == topology->slow_after_ms &&
                     again->look_every_ms == topology->look_every_ms &&
                     again->churn_usd_per_gb == topology->churn_usd_per_gb,
                 "with the same limits");
}

}  // namespace
}  // namespace tailcast::cell

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  tailcast::cell::TryConfig(text);
  tailcast::cell::TryTopology(text);
  if (const auto url = tailcast::storage::ParseStoreUrl(text); url.ok()) {
    const auto again = tailcast::storage::ParseStoreUrl(url->ToString());
    TAILCAST_CHECK(again.ok() && again->ToString() == url->ToString(), "it is written as read");
  }
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  const std::string config =
      "version: 1\ncell: us\nname: cache-1\nstore: posix:/srv/us\nscheduler: 10.0.0.1:7400\n"
      "cell_key: none\n";
  const std::string topology =
      "version: 1\nclusters:\n  - {name: us}\n  - {name: eu, relay_only: true, health: sick, "
      "max_depth: 2, max_fanout: 3, max_egress_mbps: 0.5, "
      "scheduler: \"h:1\"}\n  - name: asia\n";
  return {config,
          config +
              "durability: page-cache\nprofile: low-latency\ncaches: [a, b]\ncache: "
              "{data_bytes: 64MB, data_ttl_s: 5, run_dir: /r}\nreader: {poll_ms: 10}\n",
          topology,
          topology +
              "links:\n  - {from: us, to: eu, usd_per_gb: 0.02, rtt_ms: 130, both: true}\n"
              "  - {from: eu, to: asia, usd_per_gb: 0.1, bandwidth_gbps: 10, via: \"p:9\"}\n"
              "streams:\n  - {name: flights, source: us, destinations: [asia], rate_mbps: "
              "32}\nlimits: {max_depth: 3, max_delay_ms: 0.5}\nstuck_after_ms: 700\nslow_after_ms: "
              "50\nlook_every_ms: "
              "5000\nhop_delay_ms: "
              "12.25\ntree:\n"
              "  - {from: us, to: eu}\n  - {from: eu, to: asia}\n",
          "a: &x [1, 2]\nb: *x\nc: !t {k: v, \"q\": 'r'}\nd: |\n  text\n"};
}
