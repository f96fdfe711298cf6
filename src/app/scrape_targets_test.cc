#include "tailcast/app/scrape_targets.h"

#include <gtest/gtest.h>

namespace tailcast::app {
namespace {

using nlohmann::json;

const json kCells = json::parse(R"([
  {"name": "a", "processes": [{"name": "reader-1", "role": "reader", "metrics": "h:1"},
                              {"name": "cache-1", "role": "cache"}]},
  {"name": "b", "processes": [{"name": "scheduler", "role": "scheduler", "metrics": "h:2"}]}])");
const json kTargets = json::parse(R"([
  {"targets": ["h:1"], "labels": {"cell": "a", "role": "reader", "process": "reader-1"}},
  {"targets": ["h:2"], "labels": {"cell": "b", "role": "scheduler", "process": "scheduler"}}])");

TEST(ScrapeTargets, AreTheProcessesThatShowMetrics) {
  EXPECT_EQ(ScrapeTargets(kCells, json()), kTargets);
}

TEST(ScrapeTargets, OfACellThatDoesNotAnswerStayWhatTheyWere) {
  json cells = kCells;
  cells[1] = {{"name", "b"}, {"error", "nobody answers"}};
  EXPECT_EQ(ScrapeTargets(cells, kTargets), kTargets);
  EXPECT_EQ(ScrapeTargets(cells, json()).size(), 1u);
  for (const char* foreign : {"{}", "[1, {}, {\"labels\": 3}]", "\"x\""}) {
    EXPECT_EQ(ScrapeTargets(cells, json::parse(foreign)).size(), 1u) << foreign;
  }
}

}  // namespace
}  // namespace tailcast::app
