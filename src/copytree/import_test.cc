#include "tailcast/copytree/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/base/rng.h"

namespace tailcast::copytree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto imported = ImportTables({{"t.csv", text}}, {});
  return imported.ok() ? "(no error)" : imported.status().message();
}

TEST(ImportTest, JoinsTablesOfDifferentShapes) {
  const auto imported = ImportTables(
      {{"cost.csv", "src,dest,cost\r\na,b,0.1\r\nb,a,0.2\r\n"},
       {"rtt.csv", "\xEF\xBB\xBF\"dst\",\"src\",\"RTT_ms\"\n\"b\",\"a\",12.5\nb, a ,11\na,b,13\n"},
       {"bw.csv", "src_region,dst_region,throughput_received_bps\na,b,5e9\n"}},
      {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->links.size(), 2u);
  EXPECT_EQ(imported->links[0].from, "a");
  EXPECT_EQ(imported->links[0].usd_per_gb, 0.1);
  EXPECT_EQ(imported->links[0].rtt_ms, 12.5) << "the longer of two";
  EXPECT_EQ(imported->links[0].bandwidth_gbps, 5);
  EXPECT_EQ(imported->links[1].bandwidth_gbps, 0) << "unknown";
}

TEST(ImportTest, TakesOnlyTheAskedTier) {
  const CsvTable table{"t.csv",
                       "src,dest,src_tier,dest_tier,cost\na,b,PREMIUM,PREMIUM,0.1\n"
                       "a,b,STANDARD,PREMIUM,0.5\nb,a,STANDARD,STANDARD,0.3\n"};
  EXPECT_EQ(ImportTables({table}, {})->links.size(), 1u);
  EXPECT_EQ(ImportTables({table}, {.tier = "STANDARD"})->links[0].usd_per_gb, 0.3);
  EXPECT_EQ(ImportTables({table}, {.tier = ""})->links[0].usd_per_gb, 0.5);
  EXPECT_THAT(ImportTables({table}, {.tier = "GOLD"}).status().message(), HasSubstr("prices"));
}

TEST(ImportTest, NamesLineAndColumnOfWhatIsWrong) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf("a,b\n"), HasSubstr("t.csv:1: no column for the origin"));
  EXPECT_THAT(ErrorOf("from,cost\n"), HasSubstr("no column for the destination"));
  EXPECT_THAT(ErrorOf("from;to;cost\na;b;1\n"), HasSubstr("separate columns with commas"));
  EXPECT_THAT(ErrorOf("from,to,Cost,cost\na,b,1,2\n"), HasSubstr("column 'cost' comes twice"));
  EXPECT_THAT(ErrorOf("from,to\n"), HasSubstr("no column with a price"));
  EXPECT_THAT(ErrorOf("from,to,cost\n\na,b\n"),
              HasSubstr("t.csv:3: has 2 fields, the header has 3"));
  EXPECT_THAT(ErrorOf("from,to,cost\na,b,x\n"), HasSubstr("column 'cost': 'x' is not a number"));
  EXPECT_THAT(ErrorOf("from,to,cost\na,b,inf\n"), HasSubstr("is not a number"));
  EXPECT_THAT(ErrorOf("from,to,cost\na,b,-1\n"), HasSubstr("is negative"));
  EXPECT_THAT(ErrorOf("from,to,rtt\na,b,1000001\n"), HasSubstr("is it in microseconds?"));
  EXPECT_THAT(ErrorOf("from,to,bandwidth_gbps\na,b,2e9\n"), HasSubstr("is it in bit/s?"));
  EXPECT_THAT(ErrorOf("from,to,cost\na,b,1000\n"), HasSubstr("per TB"));
  EXPECT_THAT(ErrorOf("from,to,cost\na,,1\n"), HasSubstr("name is empty"));
  EXPECT_THAT(ErrorOf("from,to,cost\n\"a,b,1\n"), HasSubstr("quote is not closed"));
  EXPECT_THAT(ErrorOf("from,to,rtt_ms\na,b,1\n"), HasSubstr("no table has prices"));
}

TEST(ImportTest, SurvivesAnyBytes) {
  Rng rng(5);
  const std::string start = "from,to,cost,rtt_ms\na,b,0.1,5\n\"c\",a,0.2,7\n";
  for (int round = 0; round < 20000; ++round) {
    std::string text = start;
    for (int64_t i = rng.Between(1, 6); i > 0; --i) {
      const size_t at = rng.Below(text.size());
      switch (rng.Below(3)) {
        case 0:
          text[at] = static_cast<char>(rng.Below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.Below(4));
          break;
        default:
          text.insert(at, 1, "\",\n-e0."[rng.Below(7)]);
      }
      if (text.empty()) break;
    }
    const auto imported = ImportTables({{"t.csv", text}}, {.complete = rng.Chance(0.5)});
    if (!imported.ok()) continue;
    // Whatever was accepted is a graph.
    EXPECT_TRUE(Graph::Create(imported->clusters, imported->links).ok()) << text;
  }
}

TEST(ImportTest, SaysWhatItDidNotUse) {
  const Result<Imported> imported =
      ImportTables({{"t.csv", "from,to,cost,rtt_s,note\na,b,0.1,0.03,x\n"}}, {});
  ASSERT_TRUE(imported.ok());
  EXPECT_THAT(imported->notes, ElementsAre("t.csv: columns not used: 'rtt_s', 'note'",
                                           HasSubstr("no table has round-trip times")));
}

TEST(ImportTest, ARoundTripIsTheSameFromEitherEnd) {
  const Result<Imported> imported =
      ImportTables({{"prices.csv", "from,to,usd_per_gb\na,b,0.1\nb,a,0.2\nb,c,0.3\nc,b,0.4\n"},
                    {"rtt.csv", "from,to,rtt_ms\na,b,30\nb,c,50\nc,b,70\n"}},
                   {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::vector<double> rtt_ms;
  for (const Link& link : imported->links) rtt_ms.push_back(link.rtt_ms);
  EXPECT_THAT(rtt_ms, ElementsAre(30, 30, 50, 70)) << "what a table has is not replaced";
  EXPECT_THAT(imported->notes,
              ElementsAre("1 pair has its round-trip time from the other direction"));
}

TEST(ImportTest, RefusesMoreClustersThanCanBePlannedFor) {
  std::string text = "from,to,cost\n";
  for (size_t i = 0; i < kClustersMax; ++i) text += "hub,c" + std::to_string(i) + ",0.1\n";
  EXPECT_THAT(ErrorOf(text), HasSubstr("1001 clusters; at most 1000"));
  EXPECT_TRUE(ImportTables({{"t.csv", text}}, {.only = {"hub", "c1"}}).ok());
  EXPECT_THAT(ImportTables({{"t.csv", text}}, {.only = {"hub"}}).status().message(),
              HasSubstr("between those to be kept"));
}

TEST(ImportTest, AHeaderWithoutRowsIsSaidToBeOne) {
  const Result<Imported> imported = ImportTables({{"prices.csv", "from,to,usd_per_gb\n"}}, {});
  ASSERT_FALSE(imported.ok());
  EXPECT_EQ(imported.status().message(),
            "prices.csv: has a header and no rows; give one row for each link");
}

}  // namespace
}  // namespace tailcast::copytree
