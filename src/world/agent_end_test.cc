// Each agent on its own is destroyed while its loop goes on (agent_end.h).
#include "tailcast/world/agent_end.h"

namespace tailcast::world {
namespace {

const Victim kVictims[] = {
    {"Reader", Victim::Scene::kHop, "us", "reader-1", [](Process& p) { p.reader.reset(); }},
    {"Writer", Victim::Scene::kHop, "eu", "writer-1", [](Process& p) { p.writer.reset(); }},
    {"SourceScheduler", Victim::Scene::kHop, "us", "scheduler",
     [](Process& p) { p.scheduler.reset(); }},
    {"Scheduler", Victim::Scene::kHop, "eu", "scheduler", [](Process& p) { p.scheduler.reset(); }},
    {"Producer", Victim::Scene::kHop, "us", "producer-0", [](Process& p) { p.producer.reset(); }},
    {"Consumer", Victim::Scene::kHop, "eu", "consumer-0", [](Process& p) { p.consumer.reset(); }},
    {"CellClient", Victim::Scene::kHop, "us", "producer-0",
     [](Process& p) {
       p.registration.reset();
       p.cell_client.reset();
     }},
    {"CacheServer", Victim::Scene::kCaches, "cell", "cache-1",
     [](Process& p) {
       p.data_server.reset();
       p.metadata_server.reset();
     }},
    {"CacheClient", Victim::Scene::kCaches, "cell", "consumer-of-caches",
     [](Process& p) {
       p.data_cache.reset();
       p.metadata_cache.reset();
     }},
    {"RegistryStore", Victim::Scene::kRegistry, "cell", "scheduler",
     [](Process& p) { p.registry.reset(); }},
};

class AgentEnd : public ::testing::TestWithParam<int> {};

TEST_P(AgentEnd, AtAnyEventOfAShortRunLeavesNothingBehind) {
  EndAtEveryEvent(kVictims[GetParam()]);
}

INSTANTIATE_TEST_SUITE_P(Of, AgentEnd, ::testing::Range(0, static_cast<int>(std::size(kVictims))),
                         [](const auto& info) { return std::string(kVictims[info.param].name); });

TEST(AgentEndDrawn, AtAnyPointOfALongRunWithFaultsLeavesNothingBehind) {
  ASSERT_TRUE(SetLogLevels("off").ok());
  for (uint64_t seed = 1; seed <= 500 && !HasFailure(); ++seed) {
    Rng rng = Rng(seed).Fork("point");
    // Mostly one that needs no cache servers: those cost ten times as much.
    const Victim* drawn = &kVictims[rng.Below(std::size(kVictims))];
    while (drawn->scene != Victim::Scene::kHop && rng.Chance(0.8)) {
      drawn = &kVictims[rng.Below(std::size(kVictims))];
    }
    EndAtDrawnPoint(*drawn, seed, rng);
  }
}

}  // namespace
}  // namespace tailcast::world
