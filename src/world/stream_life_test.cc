// Streams are created and deleted by the schedulers of three cells, any of which dies between any
// two events, while links between them break: a name is one stream's in the whole deployment, what
// was answered holds, and a deletion reaches every cell and every disk.
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/hand_producer.h"
#include "tailcast/world/programs.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {
namespace {

using ::testing::HasSubstr;

struct StreamsOptions {
  uint64_t seed = 1;
  Duration link_delay = Duration::Millis(20);
};

// Three cells with a scheduler each, and a user in each.
class Streams {
 public:
  const std::vector<std::string> cells = {"asia", "eu", "us"};

  explicit Streams(StreamsOptions options)
      : world({.seed = options.seed, .cells = cells, .link_delay = options.link_delay}) {
    for (const std::string& cell : cells) {
      world.Start(cell, "scheduler", RunScheduler(world, {}));
      users_[cell] = &world.Start(cell, "producer-of-streams", nullptr);
    }
    time().RunFor(Duration::Seconds(3));
  }

  sim::VirtualTime& time() { return world.time(); }
  // Null while it is starting.
  const cell::RegistryCore* registry(const std::string& cell) {
    const auto& scheduler = world.process(cell, "scheduler").scheduler;
    return scheduler == nullptr ? nullptr : scheduler->registry();
  }

  // A call of a user, which ends some time.
  struct Call {
    std::string cell, name;
    bool create = false;
    std::optional<Result<v1::StreamConfig>> answer;  // of a deletion: empty
    std::unique_ptr<cell::CellClient> client;
    Scope scope;
    bool ok() const { return answer.has_value() && answer->ok(); }
  };
  Call& Create(const std::string& cell, const std::string& name) {
    Call& call = Begin(cell, name);
    call.create = true;
    v1::StreamConfig stream;
    stream.set_name(name);
    std::string from = cell;
    for (const std::string& to : cells) {
      if (to == cell) continue;
      stream.add_destinations(to);
      auto* edge = stream.add_tree();
      edge->set_from(from);
      edge->set_to(to);
      from = to;
    }
    call.client->CreateStream(
        stream, call.scope.Bind([&call](auto made) { call.answer = std::move(made); }));
    return call;
  }
  Call& Delete(const std::string& cell, const std::string& name) {
    Call& call = Begin(cell, name);
    call.client->DeleteStream({name}, call.scope.Bind([&call](const Status& status) {
      if (status.ok()) {
        call.answer = v1::StreamConfig();
      } else {
        call.answer = status;
      }
    }));
    return call;
  }
  Call& Wait(Call& call) {
    time().RunUntil([&] { return call.answer.has_value(); }, Duration::Seconds(10));
    return call;
  }

  // The incarnation that each cell has of a name, durably.
  std::map<std::string, uint64_t> Known(const std::string& name) {
    std::map<std::string, uint64_t> known;
    for (const std::string& cell : cells) {
      const cell::RegistryCore* core = registry(cell);
      if (core == nullptr) continue;
      for (const v1::StreamConfig& stream : core->view().streams()) {
        if (stream.name() == name) known[cell] = stream.incarnation();
      }
    }
    return known;
  }
  // The cells that are the source of a stream of this name.
  std::set<std::string> Sources(const std::string& name) {
    std::set<std::string> sources;
    for (const std::string& cell : cells) {
      const cell::RegistryCore* core = registry(cell);
      if (core == nullptr) continue;
      for (const v1::StreamConfig& stream : core->view().streams()) {
        if (stream.name() == name && stream.source() == cell) sources.insert(cell);
      }
    }
    return sources;
  }
  bool Everywhere(const std::string& name) {
    const auto known = Known(name);
    std::set<uint64_t> incarnations;
    for (const auto& [cell, incarnation] : known) incarnations.insert(incarnation);
    return known.size() == cells.size() && incarnations.size() == 1;
  }
  bool Nowhere(const std::string& name) { return Known(name).empty(); }
  // Nothing is left to tell or to clean up in any cell.
  bool AtRest() {
    for (const std::string& cell : cells) {
      const cell::RegistryCore* core = registry(cell);
      if (core == nullptr || core->NeedsWrite() || core->catalogue().creating()) return false;
      for (const auto& [id, deleted] : core->catalogue().deleted()) {
        if (deleted.on_disk() || deleted.cells_to_tell_size() > 0) return false;
      }
    }
    return true;
  }
  bool RunUntil(const std::function<bool()>& condition, Duration limit = Duration::Seconds(60)) {
    const MonotonicTime end = time().now() + limit;
    while (!condition() && time().now() < end) {
      world.ReviveDead();
      time().RunFor(Duration::Millis(50));
    }
    return condition();
  }

  Deployment world;

 private:
  Call& Begin(const std::string& cell, const std::string& name) {
    auto call = std::make_unique<Call>();
    call->cell = cell;
    call->name = name;
    Process& user = *users_.at(cell);
    call->client = std::make_unique<cell::CellClient>(*user.loop, *user.connector,
                                                      world.SchedulerAddress(cell), "");
    calls_.push_back(std::move(call));
    return *calls_.back();
  }

  std::map<std::string, Process*> users_;
  std::vector<std::unique_ptr<Call>> calls_;
};

TEST(StreamsOfADeployment, AreCreatedAndDeletedInTheirSource) {
  Streams streams({});
  ASSERT_TRUE(streams.Wait(streams.Create("us", "flights")).ok());
  ASSERT_TRUE(streams.RunUntil([&] { return streams.Everywhere("flights"); }));
  const auto before = streams.Known("flights");
  for (const std::string cell : {"eu", "asia"}) {
    const auto& deleted = streams.Wait(streams.Delete(cell, "flights"));
    ASSERT_TRUE(deleted.answer.has_value());
    EXPECT_TRUE(IsFailedPrecondition(deleted.answer->status()));
    EXPECT_THAT(deleted.answer->status().message(), HasSubstr("cell 'us'"));
    const auto& created = streams.Wait(streams.Create(cell, "flights"));
    ASSERT_TRUE(created.answer.has_value());
    EXPECT_TRUE(IsAlreadyExists(created.answer->status()));
    EXPECT_THAT(created.answer->status().message(), HasSubstr("cell 'us'"));
  }
  EXPECT_EQ(streams.Known("flights"), before);
  ASSERT_TRUE(streams.Wait(streams.Delete("us", "flights")).ok());
  EXPECT_TRUE(streams.RunUntil([&] { return streams.Nowhere("flights"); }, Duration::Seconds(1)));
  // Another cell may have the name now.
  ASSERT_TRUE(streams.Wait(streams.Create("eu", "flights")).ok());
  EXPECT_TRUE(streams.RunUntil([&] { return streams.Everywhere("flights"); }));
  EXPECT_EQ(streams.Sources("flights"), std::set<std::string>{"eu"});
}

TEST(StreamsOfADeployment, ACellThatCannotBeReachedRefusesAName) {
  Streams streams({});
  streams.world.network().Partition("us", "asia", true);
  const auto& refused = streams.Wait(streams.Create("us", "flights"));
  ASSERT_TRUE(refused.answer.has_value());
  EXPECT_TRUE(IsUnavailable(refused.answer->status())) << refused.answer->status();
  EXPECT_THAT(refused.answer->status().message(), HasSubstr("cell 'asia'"));
  EXPECT_TRUE(streams.Nowhere("flights"));
  // Nothing of it is left in anybody's way.
  streams.world.network().Partition("us", "asia", false);
  EXPECT_TRUE(streams.Wait(streams.Create("eu", "flights")).ok());
}

TEST(StreamsOfADeployment, OfCellsThatWantANameAtOnceOneGetsIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Streams streams({.seed = seed});
    Rng rng(seed);
    std::vector<Streams::Call*> calls;
    for (const std::string& cell : streams.cells) {
      calls.push_back(&streams.Create(cell, "flights"));
      streams.time().RunFor(Duration::Millis(rng.Between(0, 30)));
    }
    int made = 0;
    for (Streams::Call* call : calls) made += streams.Wait(*call).ok() ? 1 : 0;
    EXPECT_EQ(made, 1) << "seed " << seed;
    EXPECT_TRUE(streams.RunUntil([&] { return streams.Everywhere("flights"); }));
  }
}

TEST(StreamsOfADeployment, ADeletionReachesACellThatWasAwayAndItsNameIsNotGivenBefore) {
  Streams streams({});
  ASSERT_TRUE(streams.Wait(streams.Create("us", "flights")).ok());
  ASSERT_TRUE(streams.RunUntil([&] { return streams.Everywhere("flights"); }));
  for (const std::string other : {"us", "eu"}) {
    streams.world.network().Partition(other, "asia", true);
  }
  ASSERT_TRUE(streams.Wait(streams.Delete("us", "flights")).ok());
  streams.world.Restart("us", "scheduler");
  streams.time().RunFor(Duration::Seconds(20));
  EXPECT_EQ(streams.Known("flights").size(), 1u) << "asia has not heard";
  EXPECT_FALSE(streams.Wait(streams.Create("us", "flights")).ok());
  for (const std::string other : {"us", "eu"}) {
    streams.world.network().Partition(other, "asia", false);
  }
  EXPECT_TRUE(streams.RunUntil([&] { return streams.Nowhere("flights"); }));
  EXPECT_TRUE(streams.Wait(streams.Create("us", "flights")).ok());
}

// The stream's producer, a consumer that reads and one that still looks for the beginning.
TEST(StreamsOfADeployment, WhoUsesADeletedStreamIsToldWithinTwoSecondsAndTheDiskIsFreeAgain) {
  Streams streams({});
  const auto& made = streams.Wait(streams.Create("us", "flights"));
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(streams.RunUntil([&] { return streams.Everywhere("flights"); }));
  const stream::ShardId shard{stream::IdOf(made.answer->value()), 0};
  Workload load(streams.world, shard);
  auto& producer = load.AddProducer("us", RunClient(streams.world));
  auto& reading = load.AddConsumer("us", RunClient(streams.world));
  auto& looking = load.AddConsumer("eu", RunClient(streams.world));
  streams.time().RunFor(Duration::Seconds(1));
  load.Open(producer, {});
  load.Start(reading, {});
  load.Start(looking, {});
  ASSERT_TRUE(streams.RunUntil([&] { return producer.opened.has_value(); }));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(load.Publish(producer, 100).ok());
  ASSERT_TRUE(streams.RunUntil([&] { return reading.got.size() == 10; }));
  storage::FakeDisk& disk = *streams.world.cell("us").disk;
  EXPECT_EQ(disk.PeekNames(stream::ShardDir(shard)).size(), 2u);

  ASSERT_TRUE(streams.Wait(streams.Delete("us", "flights")).ok());
  const auto told = [&] {
    return producer.agent()->state() == producer::ProducerState::kStopped &&
           reading.agent()->state() == consumer::ShardState::kFailed &&
           looking.agent()->state() == consumer::ShardState::kFailed;
  };
  EXPECT_TRUE(streams.RunUntil(told, Duration::Seconds(2)));
  for (const Status& why :
       {producer.agent()->status(), reading.agent()->status(), looking.agent()->status()}) {
    EXPECT_TRUE(IsNotFound(why)) << why;
    EXPECT_THAT(why.message(), HasSubstr("stream 'flights' was deleted"));
  }
  EXPECT_FALSE(load.Publish(producer, 100).ok());
  EXPECT_TRUE(streams.RunUntil([&] { return streams.AtRest(); }));
  EXPECT_EQ(disk.PeekNames(stream::ShardDir(shard)).size(), 0u);
}

TEST(StreamsOfADeployment, AFileOfAProducerThatSleptThroughTheDeletionIsFoundAndDeleted) {
  Streams streams({});
  const auto& made = streams.Wait(streams.Create("us", "flights"));
  ASSERT_TRUE(made.ok());
  const stream::ShardId shard{stream::IdOf(made.answer->value()), 0};
  HandProducer producer(streams.world, "us", shard, 4096);
  producer.Roll();
  ASSERT_TRUE(streams.Wait(streams.Delete("us", "flights")).ok());
  ASSERT_TRUE(streams.RunUntil([&] { return streams.AtRest(); }));
  storage::FakeDisk& disk = *streams.world.cell("us").disk;
  EXPECT_EQ(disk.PeekNames(stream::ShardDir(shard)).size(), 0u);
  producer.Roll();
  EXPECT_EQ(disk.PeekNames(stream::ShardDir(shard)).size(), 2u);
  EXPECT_TRUE(streams.RunUntil(
      [&] { return streams.AtRest() && disk.PeekNames(stream::ShardDir(shard)).empty(); }));
}

// A name is created, deleted and created again in another cell; after so many events one of the
// schedulers is killed, or a link cut for a while. What was answered must hold.
struct Interruption {
  std::function<void(Streams&)> now, later;  // `later`: may be null
};
std::string Interrupted(uint64_t after_events, const Interruption& what, bool* over) {
  Streams streams({.seed = 7});
  uint64_t left = after_events;
  bool interrupted = false;
  const auto run = [&](Streams::Call& call) {
    const MonotonicTime end = streams.time().now() + Duration::Seconds(10);
    while (!call.answer && streams.time().now() < end) {
      if (!interrupted && left-- == 0) {
        interrupted = true;
        what.now(streams);
      }
      if (!streams.time().Step()) break;
    }
    streams.world.ReviveDead();
  };
  Streams::Call& first = streams.Create("us", "flights");
  run(first);
  if (first.ok()) {
    streams.RunUntil([&] { return streams.Everywhere("flights"); }, Duration::Seconds(2));
  }
  Streams::Call& deleted = streams.Delete("us", "flights");
  run(deleted);
  Streams::Call& second = streams.Create("eu", "flights");
  run(second);
  *over = !interrupted;
  if (what.later) what.later(streams);
  const auto settled = [&] {
    return streams.AtRest() && (streams.Everywhere("flights") || streams.Nowhere("flights"));
  };
  if (!streams.RunUntil(settled)) return "it does not come to rest";
  const auto known = streams.Known("flights");
  const uint64_t there = known.empty() ? 0 : known.begin()->second;
  if (second.ok() && there != second.answer->value().incarnation()) {
    return "what eu was told is created is not there";
  }
  if (!second.ok() && first.ok() && !deleted.ok() && deleted.answer && there == 0 &&
      !IsUnavailable(deleted.answer->status()) &&
      deleted.answer->status().code() != StatusCode::kDeadlineExceeded) {
    return "it is gone, and nobody deleted it";
  }
  if (first.ok() && deleted.ok() && there == first.answer->value().incarnation()) {
    return "what was deleted is there";
  }
  if (streams.Sources("flights").size() > 1) return "two sources";
  // Whatever happened, the name can be used.
  for (const std::string& source : streams.Sources("flights")) {
    if (!streams.Wait(streams.Delete(source, "flights")).ok()) return "it cannot be deleted";
    streams.RunUntil([&] { return !streams.Known("flights").contains("asia"); });
  }
  Streams::Call& last = streams.Wait(streams.Create("asia", "flights"));
  if (!last.ok()) {
    return "the name is stuck: " + (last.answer ? last.answer->status().ToString() : "silence");
  }
  return "";
}

// Of all interruptions, after each `stride`-th event.
std::string InterruptedEverywhere(uint64_t stride) {
  (void)SetLogLevels("off");
  std::string found;
  std::vector<std::pair<std::string, Interruption>> interruptions;
  for (const std::string cell : {"asia", "eu", "us"}) {
    interruptions.emplace_back(
        "kill " + cell,
        Interruption{[cell](Streams& s) { s.world.Restart(cell, "scheduler"); }, nullptr});
    const auto cut = [cell](Streams& s, bool cut) {
      for (const std::string& other : s.cells) {
        if (other != cell) s.world.network().Partition(cell, other, cut);
      }
    };
    interruptions.emplace_back("cut " + cell, Interruption{[cut](Streams& s) { cut(s, true); },
                                                           [cut](Streams& s) { cut(s, false); }});
  }
  for (const auto& [name, interruption] : interruptions) {
    bool over = false;
    for (uint64_t k = 0; !over && found.empty(); k += stride) {
      found = Interrupted(k, interruption, &over);
      if (!found.empty()) found = name + " after event " + std::to_string(k) + ": " + found;
    }
  }
  (void)SetLogLevels("info");
  return found;
}

TEST(StreamsOfADeployment, HoldWhatWasAnsweredWhereverACellDiesOrIsCutOff) {
  EXPECT_EQ(InterruptedEverywhere(1), "");
}

// Users of all cells create and delete a few names at random, while schedulers die and links break.
// TAILCAST_CATALOGUE_SEEDS=FROM-TO runs other seeds.
std::string Chaos(uint64_t seed) {
  Rng rng = Rng(seed).Fork("streams");
  Streams streams({.seed = seed, .link_delay = Duration::Millis(rng.Between(1, 60))});
  Faults faults(Rng(seed).Fork("faults"));
  faults.Add(KillProcess(streams.world), 0.1);
  if (rng.Chance(0.6)) faults.Add(CutLink(streams.world), 0.1, 0.05);
  if (rng.Chance(0.4)) faults.Add(BadDisk(streams.world, streams.cells), 0.05, 0.1);
  const std::vector<std::string> names = {"flights", "prices"};
  std::vector<Streams::Call*> calls;
  std::map<std::string, std::set<uint64_t>> answered;  // created, by name
  for (int step = 0; step < 60; ++step) {
    const std::string& cell = streams.cells[rng.Below(3)];
    const std::string& name = names[rng.Below(2)];
    calls.push_back(rng.Chance(0.6) ? &streams.Create(cell, name) : &streams.Delete(cell, name));
    faults.Turn();
    const MonotonicTime until = streams.time().now() + Duration::Millis(rng.Between(1, 800));
    while (streams.time().now() < until) {
      streams.world.ReviveDead();
      streams.time().RunFor(Duration::Millis(rng.Between(1, 20)));
      for (const std::string& n : names) {
        if (streams.Sources(n).size() > 1) return "two cells are the source of " + n;
      }
    }
  }
  faults.HealAll();
  const auto settled = [&] {
    return streams.AtRest() && std::all_of(names.begin(), names.end(), [&](const auto& name) {
             return streams.Everywhere(name) || streams.Nowhere(name);
           });
  };
  if (!streams.RunUntil(settled, Duration::Seconds(120))) return "it does not come to rest";
  for (const std::string& name : names) {
    // What was answered as created is there, unless somebody asked for its deletion later.
    std::optional<size_t> made;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i]->name == name && calls[i]->create && calls[i]->ok()) made = i;
    }
    if (!made) continue;
    const bool asked = std::any_of(
        calls.begin() + static_cast<long>(*made), calls.end(), [&](const Streams::Call* call) {
          return call->name == name && !call->create && call->cell == calls[*made]->cell;
        });
    const auto known = streams.Known(name);
    const uint64_t incarnation = calls[*made]->answer->value().incarnation();
    if (!asked && (known.empty() || known.begin()->second != incarnation)) {
      return name + " was created, and nobody deleted it, and it is not there";
    }
  }
  for (const std::string& name : names) {
    for (const std::string& source : streams.Sources(name)) {
      if (!streams.Wait(streams.Delete(source, name)).ok()) return name + " cannot be deleted";
    }
    const std::string& cell = streams.cells[rng.Below(3)];
    streams.RunUntil([&] { return !streams.Known(name).contains(cell); });
    const Streams::Call& last = streams.Wait(streams.Create(cell, name));
    if (!last.ok()) {
      return "the name is stuck: " + (last.answer ? last.answer->status().ToString() : "silence");
    }
  }
  return "";
}

std::string ChaosOf(uint64_t from, uint64_t to) {
  (void)SetLogLevels("off");
  std::string found;
  for (uint64_t seed = from; seed <= to && found.empty(); ++seed) {
    found = Chaos(seed);
    if (!found.empty()) found = "seed " + std::to_string(seed) + ": " + found;
  }
  (void)SetLogLevels("info");
  return found;
}

TEST(StreamsOfADeployment, ComeToRestAfterFaults) {
  uint64_t from = 1, to = 40;
  if (const char* seeds = std::getenv("TAILCAST_CATALOGUE_SEEDS")) {
    char* dash = nullptr;
    from = std::strtoull(seeds, &dash, 10);
    to = *dash == '-' ? std::strtoull(dash + 1, nullptr, 10) : from;
  }
  EXPECT_EQ(ChaosOf(from, to), "");
}

TEST(StreamsOfADeployment, ANameThatIsGivenWithoutAskingIsCaught) {
  const PlantedFault fault("scheduler.nobody_asked");
  EXPECT_THAT(ChaosOf(1, 40), HasSubstr("source of"));
}

TEST(StreamsOfADeployment, ADeletionThatIsNotToldIsCaught) {
  const PlantedFault fault("cell.nobody_told");
  EXPECT_THAT(ChaosOf(1, 40), HasSubstr("does not come to rest"));
}

}  // namespace
}  // namespace tailcast::world
