#include "tailcast/cell/link_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tailcast/cell/topology.h"

namespace tailcast::cell {
namespace {

using testing::HasSubstr;

class LinkTableTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Put(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // Reads a topology of a, b and c beside the table.
  Result<Topology> Read(const std::string& table, const std::string& more = "") {
    Put("links.csv", table);
    Put("world.yaml",
        "version: 1\nclusters: [{name: a}, {name: b}, {name: c}]\ntables: [links.csv]\n" + more);
    return LoadTopology((folder_ / "world.yaml").string());
  }
  void ExpectRefused(const std::string& table, const std::string& message) {
    const Result<Topology> topology = Read(table);
    ASSERT_FALSE(topology.ok()) << table;
    EXPECT_THAT(std::string(topology.status().message()), HasSubstr(message));
    EXPECT_THAT(std::string(topology.status().message()), HasSubstr("links.csv:"));
  }

  std::filesystem::path folder_;
};

TEST_F(LinkTableTest, IsReadBesideTheTopology) {
  const Result<Topology> topology =
      Read("from,to,usd_per_gb,rtt_ms,bandwidth_gbps\r\na,b,0.02,130,10\r\n\nb,c,0,4.5,0",
           "links: [{from: a, to: c, usd_per_gb: 0.5}]\n");
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  ASSERT_EQ(topology->links.size(), 3u);
  EXPECT_EQ(topology->FindLink("a", "b")->usd_per_gb, 0.02);
  EXPECT_EQ(topology->FindLink("a", "b")->rtt_ms, 130);
  EXPECT_EQ(topology->FindLink("a", "b")->bandwidth_gbps, 10);
  EXPECT_EQ(topology->FindLink("b", "c")->rtt_ms, 4.5);
  EXPECT_EQ(topology->FindLink("a", "c")->usd_per_gb, 0.5);
}

TEST_F(LinkTableTest, WhatIsWrittenIsReadBack) {
  const std::vector<TopologyLink> links{
      {.from = "a", .to = "b", .usd_per_gb = 0.1, .rtt_ms = 1.0 / 3, .bandwidth_gbps = 2.5},
      {.from = "c", .to = "a", .usd_per_gb = 1e-9}};
  const Result<Topology> topology = Read(LinkTableText(links));
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  ASSERT_EQ(topology->links.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(topology->links[i].from, links[i].from);
    EXPECT_EQ(topology->links[i].to, links[i].to);
    EXPECT_EQ(topology->links[i].usd_per_gb, links[i].usd_per_gb);
    EXPECT_EQ(topology->links[i].rtt_ms, links[i].rtt_ms);
    EXPECT_EQ(topology->links[i].bandwidth_gbps, links[i].bandwidth_gbps);
  }
  EXPECT_THAT(TopologyText(*topology, {"links.csv"}), HasSubstr("tables: [links.csv]\n"));
  EXPECT_THAT(TopologyText(*topology, {"links.csv"}), Not(HasSubstr("usd_per_gb: 0.1")));
}

// What the view of a cell and the files of its processes hold.
TEST_F(LinkTableTest, AReferenceIsSmallAndLeadsToTheSameTable) {
  constexpr int kClusters = 300;
  std::vector<TopologyLink> links;
  std::string world = "version: 1\nlinks: [{from: a0, to: a1, rtt_ms: 3, both: true}]\nclusters:\n";
  for (int i = 0; i < kClusters; ++i) {
    world += "  - {name: a" + std::to_string(i) + "}\n";
    for (int j = 0; j < kClusters; ++j) {
      if (i == j || i + j == 1) continue;
      links.push_back({.from = "a" + std::to_string(i),
                       .to = "a" + std::to_string(j),
                       .usd_per_gb = 0.001 * i,
                       .rtt_ms = 1.0 * j});
    }
  }
  Put("links.csv", LinkTableText(links));
  Put("world.yaml", world + "tables: [links.csv]\n");
  const Result<Topology> topology = LoadTopology((folder_ / "world.yaml").string());
  ASSERT_TRUE(topology.ok()) << topology.status();
  const std::string text = TopologyReference(*topology);
  EXPECT_LT(text.size(), kClusters * 30 + 1000);
  EXPECT_GT(TopologyText(*topology).size(), 100 * text.size());

  const Result<Topology> again = ParseTopology(text, "view");  // in another folder
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(TopologyText(*again), TopologyText(*topology));
  EXPECT_EQ(TopologyReference(*again), text);
  const Result<Topology> skipped = ParseTopology(text, "view", Tables::kSkip);
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_EQ(skipped->links.size(), 2u);
  EXPECT_EQ(skipped->ClusterNames(), topology->ClusterNames());

  // A table does not say that.
  Topology sick = *topology;
  sick.links.back().sick = true;
  EXPECT_EQ(TopologyReference(sick), TopologyText(sick));

  links.back().usd_per_gb += 0.5;
  Put("links.csv", LinkTableText(links));
  const Status other = ParseTopology(text, "view").status();
  EXPECT_TRUE(IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("links.csv is another table than the one"));
  EXPECT_TRUE(ParseTopology(text, "view", Tables::kSkip).ok());
  std::filesystem::remove(folder_ / "links.csv");
  const Status gone = ParseTopology(text, "view").status();
  EXPECT_TRUE(IsNotFound(gone)) << gone;
}

TEST_F(LinkTableTest, ChecksumsAreOneForEachTable) {
  Put("links.csv", LinkTableText({{.from = "a", .to = "b"}}));
  const auto read = [&](const std::string& checksums) {
    const std::string text = "version: 1\nclusters: [{name: a}, {name: b}]\ntables: [" +
                             (folder_ / "links.csv").string() + "]\ntable_checksums: [" +
                             checksums + "]\n";
    return std::string(ParseTopology(text, "view").status().message());
  };
  EXPECT_THAT(read("0, 1"), HasSubstr("must have one for each of 'tables'"));
  EXPECT_THAT(read("xyz"), HasSubstr("'xyz' is no CRC-32C in hexadecimal"));
  EXPECT_THAT(read("1234567890"), HasSubstr("is no CRC-32C in hexadecimal"));
  EXPECT_THAT(read("1"), HasSubstr("is another table"));
}

TEST_F(LinkTableTest, BadTablesAreRefusedWithFileLineAndRemedy) {
  const std::string header = "from,to,usd_per_gb,rtt_ms\n";
  ExpectRefused("", ":1: is empty; its first line must be from,to,usd_per_gb,rtt_ms");
  ExpectRefused(header, ":1: has a header and no rows");
  ExpectRefused(header + "\n", ":2: has a header and no rows");
  ExpectRefused("src,dst,cost\n", ":1: the first line must be");
  ExpectRefused(header + "a,b,1\n", ":2: has 3 fields, the header has 4");
  ExpectRefused(header + "a,b,1,2,3\n", ":2: has 5 fields, the header has 4");
  ExpectRefused(header + "a,b,1,1\na,bb,1,1\n", ":3: no cluster is called 'bb'; did you mean");
  ExpectRefused(header + "a,b,1,1\na,b,1,1\n", ":3: link a -> b is given twice");
  ExpectRefused(header + "a,a,1,1\n", ":2: a link from a cluster to itself");
  ExpectRefused(header + "a,b,x,1\n", ":2: column 'usd_per_gb': 'x' is not a number");
  ExpectRefused(header + "a,b,nan,1\n", ":2: column 'usd_per_gb': 'nan' is not a number");
  ExpectRefused(header + "a,b,-1,1\n", ":2: column 'usd_per_gb' is -1; it must be 0 to 100");
  ExpectRefused(header + "a,b,1,1e9\n", ":2: column 'rtt_ms' is 1e9; it must be 0 to 1e+06");
}

TEST_F(LinkTableTest, ALinkOfTheTopologyMayNotComeAgain) {
  const Result<Topology> topology =
      Read("from,to,usd_per_gb,rtt_ms\na,b,1,1\n", "links: [{from: a, to: b, usd_per_gb: 1}]\n");
  ASSERT_FALSE(topology.ok());
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("link a -> b is given twice"));
}

TEST_F(LinkTableTest, AMissingTableIsNamed) {
  Put("world.yaml", "version: 1\nclusters: [{name: a}]\ntables: [nowhere.csv]\n");
  const Result<Topology> topology = LoadTopology((folder_ / "world.yaml").string());
  ASSERT_FALSE(topology.ok());
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("nowhere.csv"));
}

}  // namespace
}  // namespace tailcast::cell
