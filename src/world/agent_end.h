// An agent is destroyed while its loop, its ports and its peers go on: at every event of a short
// run, and at drawn points of longer ones with faults. Nothing of it may run afterwards, which is
// what the address sanitizer sees (./dev test asan), and what those that it had been given
// callbacks by check themselves.
//
// The deployments' own kills end the loop first, so that they cannot see this.
//
//   agent_end_test.cc   single agents, and what they stand on
//   node_end_test.cc    whole nodes
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/programs.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {

// Where the agent runs, and how it ends.
struct Victim {
  const char* name;
  enum class Scene : uint8_t { kHop, kNodes, kCaches, kRegistry } scene;
  const char* cell;
  const char* process;
  void (*end)(Process&);
};

inline DeploymentOptions ToDeployment(Victim::Scene scene, uint64_t seed) {
  const bool hop = scene == Victim::Scene::kHop || scene == Victim::Scene::kNodes;
  return {.seed = seed,
          .cells = hop ? std::vector<std::string>{"us", "eu"} : std::vector<std::string>{"cell"},
          .link_delay = Duration::Millis(3),
          .caches = scene == Victim::Scene::kHop ? CacheKind::kMemory : CacheKind::kServers};
}

inline scheduler::SchedulerOptions QuickScheduler() {
  scheduler::SchedulerOptions options;
  options.decide_grace = options.view_grace = Duration::Millis(20);
  return options;
}

// A short life of a deployment, an event at a time.
class Scene {
 public:
  Scene(const Victim& victim, uint64_t seed)
      : victim_(victim),
        // Of nodes a shorter run: ten of them are started anew for each of its events.
        messages_(victim.scene == Victim::Scene::kNodes ? 2 : kMessages),
        deployment_(ToDeployment(victim.scene, seed)),
        load_(deployment_, {}),
        faults_(Rng(seed).Fork("faults")) {
    switch (victim.scene) {
      case Victim::Scene::kHop:
        for (const std::string& cell : deployment_.cell_names()) {
          deployment_.Start(cell, "scheduler", RunScheduler(deployment_, QuickScheduler()));
        }
        reader_options_.doorbells = seed % 2 == 0;
        deployment_.Start("us", "reader-1", RunReader(deployment_, reader_options_));
        deployment_.Start("eu", "writer-1", RunWriter(deployment_, {}));
        AddUsers();
        break;
      case Victim::Scene::kNodes:
        for (const std::string& cell : deployment_.cell_names()) {
          const Program node = RunNode(deployment_, {.caches = 3, .cache_bytes = 256 << 10});
          for (const char* name : {"scheduler", "cache-1", "cache-2", "cache-3"}) {
            deployment_.Start(cell, name, node);
          }
          deployment_.Start(cell, cell == "us" ? "reader-1" : "writer-1", node);
        }
        AddUsers();
        break;
      case Victim::Scene::kCaches:
        StartCaches();
        break;
      case Victim::Scene::kRegistry:
        deployment_.Start("cell", "scheduler", [this](Process& p) { OpenRegistry(p); });
        break;
    }
  }

  void AddFaults() {
    // The victim's own process stays, and so do its users.
    faults_.Add(CutLink(deployment_), 0.2, 0.2);
    faults_.Add(BadFabric(deployment_), 0.2, 0.1);
    faults_.Add(BadDisk(deployment_, deployment_.cell_names()), 0.2, 0.3);
    faults_.Add(KillProcess(deployment_), 0.1);
    faults_.Add(StopProcess(deployment_), 0.1, 0.5);
    if (deployment_.options().caches == CacheKind::kMemory) {
      const auto draw = [](Rng& rng) {
        return cache::MemoryFaults{.miss = rng.Unit() * 0.3,
                                   .short_read = rng.Unit() * 0.3,
                                   .failed_write = rng.Unit() * 0.3,
                                   .unavailable = rng.Chance(0.2),
                                   .delay = Duration::Millis(rng.Between(0, 20)),
                                   .jitter = Duration::Millis(rng.Between(0, 20))};
      };
      faults_.Add(BadMemoryCache(deployment_, draw), 0.2, 0.2);
    }
    messages_ = kMessages;
    with_faults_ = true;
  }

  // Runs one event; false when there is none.
  bool Step() {
    if (!deployment_.time().Step()) return false;
    if (victim_.scene == Victim::Scene::kHop || victim_.scene == Victim::Scene::kNodes) Drive();
    if (with_faults_ && deployment_.time().now() >= turn_at_) {
      deployment_.ReviveDead();
      faults_.Turn();
      turn_at_ = deployment_.time().now() + Duration::Millis(50);
    }
    return true;
  }
  void RunFor(Duration d) {
    const MonotonicTime end = deployment_.time().now() + d;
    while (deployment_.time().now() < end && Step()) {
    }
  }

  // The run has come to where nothing new happens any more.
  bool over() const {
    if (calls_ >= 60) return true;
    return load_.consumers.size() == 1 && load_.consumers[0]->got.size() >= messages_;
  }
  void EndAgent() {
    auto& processes = deployment_.cell(victim_.cell).processes;
    const auto it = processes.find(victim_.process);
    if (it == processes.end()) return;
    ended_ = true;
    victim_.end(*it->second);
  }
  // Things that the scene itself saw.
  std::string problem() const {
    for (const auto& c : load_.consumers) {
      if (!c->broken.empty()) return c->broken;
    }
    return late_ > 0 ? "a callback of an agent that has ended" : "";
  }

 private:
  static constexpr size_t kMessages = 15;

  void AddUsers() {
    load_.AddProducer("us", RunClient(deployment_));
    load_.AddConsumer("eu", RunClient(deployment_));
  }

  // What users do, when it is time: create a stream, open a producer and a consumer, publish.
  void Drive() {
    Process* const user = load_.producers[0]->process;
    cell::CellClient* const cell = user->cell_client.get();
    const MonotonicTime now = deployment_.time().now();
    if (!asked_ && cell != nullptr && cell->has_view()) {
      asked_ = true;
      v1::StreamConfig request;
      request.set_name("s");
      request.set_shards(1);
      request.set_chunk_size(512);
      request.set_source("us");
      request.add_destinations("eu");
      auto* edge = request.add_tree();
      edge->set_from("us");
      edge->set_to("eu");
      cell->CreateStream(request, scope_.Bind([this](Result<v1::StreamConfig> made) {
        if (made.ok()) {
          stream_ = stream::IdOf(*made);
        } else {
          asked_ = false;
        }
      }));
    }
    if (stream_ && !opened_) {
      opened_ = true;
      load_.shard = {*stream_, 0};
      producer::AgentOptions producer;
      producer.flush_interval = Duration::Millis(1);
      producer.chunk_size = 512;
      producer.roll_bytes = 1500;
      producer.takeover = true;
      load_.Open(*load_.producers[0], producer);
      consumer::AgentOptions consumer;
      consumer.doorbell = true;
      consumer.chunk_size = 512;
      load_.Start(*load_.consumers[0], consumer);
    }
    if (user->producer != nullptr && load_.producers[0]->opened && now >= publish_at_ &&
        load_.producers[0]->published < static_cast<int64_t>(messages_)) {
      publish_at_ = now + Duration::Millis(2);
      (void)load_.Publish(*load_.producers[0], 300);
    }
  }

  void StartCaches() {
    scheduler::SchedulerOptions scheduler = QuickScheduler();
    scheduler.registry.cache_replicas = {"cache-1", "cache-2", "cache-3"};
    deployment_.Start("cell", "scheduler", RunScheduler(deployment_, scheduler));
    cache::ServerOptions server;
    server.memory_bytes = 1 << 20;
    for (const std::string& name : scheduler.registry.cache_replicas) {
      deployment_.Start("cell", name, RunCacheServer(deployment_, server));
    }
    deployment_.Start("cell", "consumer-of-caches", [this](Process& p) {
      OpenCell(deployment_, p);
      UseCaches(p, 0);
    });
  }

  // A little of everything that a client of a cache can be asked for.
  void UseCaches(Process& p, uint64_t turn) {
    const auto answered = [this, &p](auto&&...) { p.data_cache == nullptr ? ++late_ : ++calls_; };
    if (p.data_cache == nullptr) return;
    const cache::Key key{7, turn % 5};
    p.data_cache->Mutate({{key, cache::MergeRule::kLongerWins, false, std::string(200, 'x')}},
                         Duration::Millis(100), scope_.Bind(answered));
    cache::ChunkRead read;
    read.key = key;
    read.want = read.capacity = 200;
    buffers_.push_back(std::make_unique<Buffer>());
    read.destination = buffers_.back()->bytes;
    buffers_.back()->read = read;
    p.data_cache->ReadChunks(
        std::span(&buffers_.back()->read, 1),
        turn % 2 == 0 ? cache::ReadMode::kRelaxed : cache::ReadMode::kConsistent,
        Duration::Millis(100), scope_.Bind(answered));
    p.metadata_cache->WatchValue(key, Duration::Millis(50), scope_.Bind(answered));
    p.metadata_cache->Mutate({{key, cache::MergeRule::kMaxLanes, false, std::string(16, 'y')}},
                             Duration::Millis(100), scope_.Bind(answered));
    p.metadata_cache->ReadValues({{key}}, Duration::Millis(100), scope_.Bind(answered));
    if (turn % 3 == 0) p.data_cache->Drain(scope_.Bind(answered));
    // Longer than the short run, and not for ever: each turn costs as much as a whole hop.
    if (turn > 40 && !with_faults_) return;
    p.loop->After(Duration::Millis(5), p.scope.Bind([this, &p, turn] { UseCaches(p, turn + 1); }));
  }

  void OpenRegistry(Process& p) {
    p.registry = std::make_unique<cell::RegistryStore>(
        *p.loop, *p.store, cell::RegistryStore::Options{.file_bytes_max = 300});
    p.registry->Open(scope_.Bind([this, &p](Result<v1::RegistrySnapshot> opened) {
      if (p.registry == nullptr) ++late_;
      if (opened.ok()) WriteRegistry(p, *opened);
    }));
  }
  void WriteRegistry(Process& p, const v1::RegistrySnapshot& snapshot) {
    if (p.registry == nullptr) return;
    p.registry->Write(snapshot, scope_.Bind([this, &p, snapshot](const Status& written) {
      p.registry == nullptr ? ++late_ : ++calls_;
      if (written.ok() && calls_ < 60) WriteRegistry(p, snapshot);
    }));
  }

  struct Buffer {
    char bytes[200];
    cache::ChunkRead read;
  };

  const Victim& victim_;
  size_t messages_;
  Deployment deployment_;
  reader::ReaderOptions reader_options_;
  Workload load_;
  Faults faults_;
  bool with_faults_ = false;
  MonotonicTime turn_at_;
  bool asked_ = false, opened_ = false, ended_ = false;
  std::optional<stream::StreamId> stream_;
  MonotonicTime publish_at_;
  int calls_ = 0, late_ = 0;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Scope scope_;
};

// Events of the short run of a scene: until all is delivered, or answered.
inline int64_t Length(const Victim& victim) {
  Scene scene(victim, 1);
  int64_t events = 0;
  while (!scene.over() && events < 20000 && scene.Step()) ++events;
  EXPECT_TRUE(scene.over()) << "the scene does not come to its end";
  return events;
}

// Destroys it at every event of the short run, in a run of its own each.
inline void EndAtEveryEvent(const Victim& victim) {
  ASSERT_TRUE(SetLogLevels("off").ok());
#if defined(__SANITIZE_THREAD__)
  constexpr int64_t kStride = 20;  // all is in one thread: there is little to see
#else
  constexpr int64_t kStride = 1;
#endif
  const int64_t length = Length(victim);
  for (int64_t at = 0; at <= length; at += kStride) {
    SCOPED_TRACE("event " + std::to_string(at));
    Scene scene(victim, 1);
    for (int64_t i = 0; i < at; ++i) scene.Step();
    scene.EndAgent();
    scene.RunFor(Duration::Millis(1200));
    ASSERT_EQ(scene.problem(), "");
  }
  ::testing::Test::RecordProperty("events", static_cast<int>(length));
}

// Destroys it at a drawn point of a run with faults.
inline void EndAtDrawnPoint(const Victim& victim, uint64_t seed, Rng& rng) {
  SCOPED_TRACE("seed " + std::to_string(seed) + " " + victim.name);
  Scene scene(victim, seed);
  scene.AddFaults();
  for (int64_t n = rng.Between(0, 2500); n > 0 && scene.Step();) --n;
  scene.EndAgent();
  scene.RunFor(Duration::Millis(1000));
  ASSERT_EQ(scene.problem(), "");
}

}  // namespace tailcast::world
