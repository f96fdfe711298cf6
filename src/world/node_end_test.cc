// Each role's node is destroyed while its loop goes on (agent_end.h).
#include "tailcast/world/agent_end.h"

namespace tailcast::world {
namespace {

const Victim kVictims[] = {
    {"ReaderNode", Victim::Scene::kNodes, "us", "reader-1", [](Process& p) { p.node.reset(); }},
    {"WriterNode", Victim::Scene::kNodes, "eu", "writer-1", [](Process& p) { p.node.reset(); }},
    {"CacheNode", Victim::Scene::kNodes, "us", "cache-1", [](Process& p) { p.node.reset(); }},
    {"SchedulerNode", Victim::Scene::kNodes, "us", "scheduler", [](Process& p) { p.node.reset(); }},
};

class NodeEnd : public ::testing::TestWithParam<int> {};

TEST_P(NodeEnd, AtAnyEventOfAShortRunLeavesNothingBehind) { EndAtEveryEvent(kVictims[GetParam()]); }

INSTANTIATE_TEST_SUITE_P(Of, NodeEnd, ::testing::Range(0, static_cast<int>(std::size(kVictims))),
                         [](const auto& info) { return std::string(kVictims[info.param].name); });

TEST(NodeEndDrawn, AtAnyPointOfALongRunWithFaultsLeavesNothingBehind) {
  ASSERT_TRUE(SetLogLevels("off").ok());
  for (uint64_t seed = 1; seed <= 50 && !HasFailure(); ++seed) {
    Rng rng = Rng(seed).Fork("point");
    EndAtDrawnPoint(kVictims[rng.Below(std::size(kVictims))], seed, rng);
  }
}

}  // namespace
}  // namespace tailcast::world
