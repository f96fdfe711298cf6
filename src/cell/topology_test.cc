#include "tailcast/cell/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailcast::cell {
namespace {

using ::testing::HasSubstr;

constexpr char kWhole[] = R"(version: 1
clusters:
  - name: us-central
  - {name: europe-west, relay_only: false, health: healthy, scheduler: "10.0.0.1:7000"}
  - {name: asia-east, health: new}
  - {name: exchange, relay_only: true, health: sick}
links:
  - {from: us-central, to: europe-west, usd_per_gb: 0.02, rtt_ms: 130, bandwidth_gbps: 10, both: true}
  - {from: us-central, to: asia-east, usd_per_gb: 0.08, rtt_ms: 150, health: sick, via: "127.0.0.1:9000"}
streams:
  - {name: flights, source: us-central, destinations: [europe-west, asia-east], rate_mbps: 32}
  - name: hotels
    source: us-central
    tree: [{from: us-central, to: europe-west}]
limits: {max_depth: 3, max_fanout: 8, max_delay_ms: 400}
hop_delay_ms: 5
look_every_ms: 4000
slow_after_ms: 70
churn_usd_per_gb: 0.001
)";

std::string ErrorOf(const std::string& text) {
  const Result<Topology> topology = ParseTopology(text, "t.yaml");
  return topology.ok() ? "(no error)" : topology.status().message();
}

TEST(TopologyTest, ReadsEveryKey) {
  const Result<Topology> topology = ParseTopology(kWhole, "t.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->clusters.size(), 4u);
  EXPECT_EQ(topology->clusters[1].scheduler, "10.0.0.1:7000");
  EXPECT_EQ(topology->clusters[2].health, ClusterHealth::kNew);
  EXPECT_EQ(topology->clusters[3].health, ClusterHealth::kSick);
  EXPECT_TRUE(topology->clusters[3].relay_only);
  ASSERT_EQ(topology->links.size(), 3u);
  const TopologyLink* back = topology->FindLink("europe-west", "us-central");
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->usd_per_gb, 0.02);
  EXPECT_EQ(back->bandwidth_gbps, 10);
  EXPECT_EQ(topology->FindLink("asia-east", "us-central"), nullptr);
  EXPECT_TRUE(topology->FindLink("us-central", "asia-east")->sick);
  EXPECT_EQ(topology->FindLink("us-central", "asia-east")->via, "127.0.0.1:9000");
  EXPECT_EQ(topology->FindStream("flights")->destinations.size(), 2u);
  EXPECT_EQ(topology->FindStream("flights")->rate_mbps, 32);
  EXPECT_EQ(topology->FindStream("hotels")->tree.size(), 1u);
  EXPECT_EQ(topology->max_depth, 3);
  EXPECT_EQ(topology->max_fanout, 8);
  EXPECT_EQ(topology->max_delay_ms, 400);
  EXPECT_EQ(topology->hop_delay_ms, 5);
  EXPECT_EQ(topology->look_every_ms, 4000);
  EXPECT_EQ(topology->slow_after_ms, 70);
  EXPECT_EQ(topology->churn_usd_per_gb, 0.001);
}

TEST(TopologyTest, FillsInTheDefaults) {
  const Result<Topology> topology =
      ParseTopology("version: 1\nclusters: [{name: a}, {name: b}, {name: c}]\n", "t.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->links.size(), 6u) << "every pair both ways";
  EXPECT_EQ(topology->FindLink("c", "a")->usd_per_gb, 0);
  EXPECT_EQ(topology->max_depth, 4);
  EXPECT_EQ(topology->max_fanout, 0);
  EXPECT_EQ(topology->hop_delay_ms, 25);
  EXPECT_EQ(topology->look_every_ms, 30000);
  EXPECT_EQ(topology->slow_after_ms, 200);
  EXPECT_TRUE(topology->streams.empty());
}

TEST(TopologyTest, GivesTheFilesTreeToStreamsWithoutOne) {
  const Result<Topology> topology = ParseTopology(
      "version: 1\nclusters: [{name: a}, {name: b}]\nstreams: [{name: s, source: a}]\n"
      "tree: [{from: a, to: b}]\n",
      "t.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  ASSERT_EQ(topology->streams[0].tree.size(), 1u);
  EXPECT_EQ(topology->streams[0].tree[0].to, "b");
}

TEST(TopologyTest, IsReadBackFromItsText) {
  const Result<Topology> topology = ParseTopology(kWhole, "t.yaml");
  ASSERT_TRUE(topology.ok());
  const std::string text = TopologyText(*topology);
  const Result<Topology> again = ParseTopology(text, "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
  EXPECT_EQ(TopologyText(*again), text);
  EXPECT_EQ(again->links.size(), topology->links.size());
  EXPECT_THAT(text, HasSubstr("both: true"));
}

struct BadFile {
  const char* what;
  const char* text;
  const char* message;
};

class BadTopologyTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadTopologyTest, IsRefusedWithPlaceAndReason) {
  EXPECT_THAT(ErrorOf(GetParam().text), HasSubstr(GetParam().message)) << GetParam().what;
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadTopologyTest,
    ::testing::Values(
        BadFile{"no version", "clusters: [{name: a}]\n", "the key 'version' is missing"},
        BadFile{"future version", "version: 2\nclusters: [{name: a}]\n",
                "t.yaml:1:1: key 'version'"},
        BadFile{"no clusters", "version: 1\n", "no clusters; list at least one"},
        BadFile{"double cluster", "version: 1\nclusters:\n  - name: a\n  - name: a\n",
                "t.yaml:4:5: key 'name': cluster 'a' is given twice"},
        BadFile{"name that is no text", "version: 1\nclusters: [{name: \"\xff\"}]\n", "UTF-8"},
        BadFile{"name with a space", "version: 1\nclusters: [{name: a b}]\n", "is not a name"},
        BadFile{"name that leaves the folder", "version: 1\nclusters: [{name: ../a}]\n",
                "t.yaml:2:13: key 'name': '../a' is not a name"},
        BadFile{"name with a slash", "version: 1\nclusters: [{name: a/b}]\n", "slashes"},
        BadFile{"name of the folder itself", "version: 1\nclusters: [{name: .}]\n",
                "no '.' in front"},
        BadFile{"misspelt key beside none", "version: 1\nclustres: [{name: a}]\n",
                "t.yaml:2:1: unknown key 'clustres'; did you mean 'clusters'?"},
        BadFile{"unknown health", "version: 1\nclusters: [{name: a, health: sik}]\n",
                "did you mean 'sick'?"},
        BadFile{"misspelt key", "version: 1\nclusters: [{name: a, relay_onyl: true}]\n",
                "unknown key 'relay_onyl'; did you mean 'relay_only'?"},
        BadFile{"unknown end",
                "version: 1\nclusters: [{name: us-central}, {name: b}]\nlinks:\n"
                "  - {from: us-centrall, to: b}\n",
                "t.yaml:4:6: key 'from': no cluster is called 'us-centrall'; did you mean "
                "'us-central'?"},
        BadFile{"self link", "version: 1\nclusters: [{name: a}]\nlinks: [{from: a, to: a}]\n",
                "to itself"},
        BadFile{"negative price",
                "version: 1\nclusters: [{name: a}, {name: b}]\n"
                "links: [{from: a, to: b, usd_per_gb: -1}]\n",
                "key 'usd_per_gb': must not be negative"},
        BadFile{"missing price",
                "version: 1\nclusters: [{name: a}, {name: b}]\nlinks:\n"
                "  - {from: a, to: b, usd_per_gb: 1}\n  - {from: b, to: a}\n",
                "t.yaml:5:5: link b -> a: the price is missing"},
        BadFile{"price is no number",
                "version: 1\nclusters: [{name: a}, {name: b}]\n"
                "links: [{from: a, to: b, usd_per_gb: cheap}]\n",
                "must be a number"},
        BadFile{"price not finite",
                "version: 1\nclusters: [{name: a}, {name: b}]\n"
                "links: [{from: a, to: b, usd_per_gb: .nan}]\n",
                "must be a number"},
        BadFile{"price per TB",
                "version: 1\nclusters: [{name: a}, {name: b}]\n"
                "links: [{from: a, to: b, usd_per_gb: 120}]\n",
                "must be at most 100"},
        BadFile{"link twice through both",
                "version: 1\nclusters: [{name: a}, {name: b}]\n"
                "links: [{from: a, to: b, both: true}, {from: b, to: a}]\n",
                "is given twice"},
        BadFile{"proxy without port",
                "version: 1\nclusters: [{name: a}, {name: b}]\n"
                "links: [{from: a, to: b, via: localhost}]\n",
                "'localhost' is not HOST:PORT"},
        BadFile{"unknown source",
                "version: 1\nclusters: [{name: a}, {name: b}]\nstreams: [{name: s, source: c}]\n",
                "key 'source': no cluster is called 'c'"},
        BadFile{"relay as destination",
                "version: 1\nclusters: [{name: a}, {name: b, relay_only: true}]\n"
                "streams: [{name: s, source: a, destinations: [b]}]\n",
                "cluster 'b' is relay_only"},
        BadFile{"depth out of range", "version: 1\nclusters: [{name: a}]\nlimits: {max_depth: 0}\n",
                "must be a whole number from 1 to 32"},
        BadFile{"tree without link",
                "version: 1\nclusters: [{name: a}, {name: b}]\nlinks: [{from: a, to: b}]\n"
                "streams: [{name: s, source: a}]\ntree: [{from: b, to: a}]\n",
                "there is no link b -> a"},
        BadFile{"tree with a cycle",
                "version: 1\nclusters: [{name: a}, {name: b}, {name: c}]\n"
                "streams: [{name: s, source: a}]\ntree: [{from: b, to: c}, {from: c, to: b}]\n",
                "hangs on a cycle"},
        BadFile{"tree feeds twice",
                "version: 1\nclusters: [{name: a}, {name: b}, {name: c}]\n"
                "streams: [{name: s, source: a}]\ntree: [{from: a, to: c}, {from: b, to: c}]\n",
                "'c' is fed twice"}));

TEST(TopologyTest, SaysWhichFileIsMissing) {
  const Result<Topology> topology = LoadTopology("/nonexistent/t.yaml");
  ASSERT_FALSE(topology.ok());
  EXPECT_THAT(topology.status().message(), HasSubstr("/nonexistent/t.yaml"));
}

TEST(TopologyTest, RefusesHostsThatAreNone) {
  for (const char* host : {"\\\\", "a b", "a\\\"b", "a\\xff", "a/b"}) {
    const std::string text =
        "version: 1\nclusters: [{name: a, scheduler: \"" + std::string(host) + ":1\"}]\n";
    const auto topology = ParseTopology(text, "t.yaml");
    ASSERT_FALSE(topology.ok()) << text;
    EXPECT_NE(topology.status().message().find("is not HOST:PORT"), std::string::npos)
        << topology.status();
  }
  for (const char* host : {"10.1.0.4", "cell-1.example.org", "[fe80::1%eth0]", "a_b"}) {
    const std::string text =
        "version: 1\nclusters: [{name: a, scheduler: \"" + std::string(host) + ":1\"}]\n";
    EXPECT_TRUE(ParseTopology(text, "t.yaml").ok()) << text;
  }
}

TEST(TopologyTest, IsWrittenWithoutRoundingItsNumbers) {
  const auto topology = ParseTopology(
      "version: 1\nclusters: [{name: a}, {name: b}]\nlinks:\n"
      "  - {from: a, to: b, usd_per_gb: 0.12345678901234567, rtt_ms: 0.1}\n",
      "t.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  const std::string text = TopologyText(*topology);
  EXPECT_NE(text.find("rtt_ms: 0.1}"), std::string::npos) << text;
  const auto again = ParseTopology(text, "t.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->links[0].usd_per_gb, topology->links[0].usd_per_gb);
}

}  // namespace
}  // namespace tailcast::cell
