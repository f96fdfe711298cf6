// A cell that leaves a stream's copy tree gives its disk back, whoever dies meanwhile, and nothing
// goes that anybody needs (spec Leaving).
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/stream/shard_listing.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/hop.h"

namespace tailcast::world {
namespace {

const Edges kChain = {{"us", "eu"}, {"eu", "asia"}};
const Edges kWithoutAsia = {{"us", "eu"}};
const Edges kOverAsia = {{"us", "asia"}, {"asia", "eu"}};
constexpr Duration kRest = Duration::Seconds(20);
// From the end of the rest on: what is told, compared and deleted, and the looks at what is slow.
constexpr Duration kSoon = Duration::Seconds(60);

HopOptions Options(uint64_t seed = 1) {
  HopOptions options;
  options.seed = seed;
  options.leavers.rest = kRest;
  return options;
}

class Leaving {
 public:
  explicit Leaving(HopOptions options = Options(), const Edges& tree = kChain)
      : hop(std::move(options)) {
    hop.CreateStream();
    producer_.emplace(hop.world, "us", hop.shard(), hop.options.chunk_size);
    for (int file = 0; file < 6; ++file) Roll();
    if (tree != kChain) hop.Reroute(tree);
    EXPECT_TRUE(RunUntil([&] { return Whole("eu") && Whole("asia") && !Changing(); },
                         Duration::Seconds(60)))
        << State();
  }
  void Roll() {
    producer_->Roll();
    producer_->Append(hop.time().rng().Between(100, 2000));
    truth_[producer_->file().seq] = {producer_->data(), producer_->index()};
    stems_.push_back(producer_->file());
  }
  bool RunUntil(const std::function<bool()>& condition, Duration limit) {
    return hop.time().RunUntil(condition, limit);
  }
  void RunFor(Duration time) { hop.time().RunFor(time); }
  std::string Dir() { return stream::ShardDir(hop.shard()); }
  size_t Files(const std::string& cell) {
    return hop.world.cell(cell).disk->PeekNames(Dir()).size();
  }
  bool Whole(const std::string& cell) {
    return std::all_of(stems_.begin(), stems_.end(), [&](const stream::Stem& stem) {
      const auto& [data, index] = truth_.at(stem.seq);
      return hop.Primary(cell, stem, stream::Part::kData) == data &&
             hop.Primary(cell, stem, stream::Part::kIndex) == index;
    });
  }
  void Remove(const std::string& cell, int64_t seq) {
    for (const stream::Part part : {stream::Part::kData, stream::Part::kIndex}) {
      ASSERT_TRUE(hop.world.cell(cell)
                      .disk->Remove(Dir(), FileName(stems_[static_cast<size_t>(seq - 1)], part))
                      .ok());
    }
  }
  void SetUnreadable(const std::string& cell, int64_t seq, bool unreadable) {
    hop.world.cell(cell).disk->SetUnreadable(
        Dir(), FileName(stems_[static_cast<size_t>(seq - 1)], stream::Part::kData), unreadable);
  }
  bool StatusSays(const std::string& cell, const std::string& what) {
    const scheduler::SchedulerAgent* agent = hop.FindScheduler(cell);
    return agent != nullptr && agent->StatusJson().find(what) != std::string::npos;
  }
  // As the cell's registry has it durably; null while it is starting.
  const v1::StreamConfig* Config(const std::string& cell) {
    const cell::RegistryCore* registry = hop.registry(cell);
    if (registry == nullptr || registry->view().streams_size() == 0) return nullptr;
    return &registry->view().streams(0);
  }
  bool Changing() {
    const v1::StreamConfig* source = Config("us");
    return source == nullptr || source->has_change();
  }
  uint64_t Version() { return Config("us")->tree_version(); }
  // Everything that was to be done for cells that left is done.
  bool AtRest() {
    const cell::RegistryCore* source = hop.registry("us");
    return source != nullptr && source->catalogue().leavers().empty();
  }
  bool Going() {
    const cell::RegistryCore* source = hop.registry("us");
    return source != nullptr && !source->catalogue().leavers().empty() &&
           source->catalogue().leavers().at(0).going();
  }
  std::string State() {
    std::string text;
    for (const std::string& cell : hop.options.cells) {
      text += cell + ": " + std::to_string(Files(cell)) + " files";
      if (const v1::StreamConfig* stream = Config(cell); stream != nullptr) {
        text += ", tree " + std::to_string(stream->tree_version()) + " of " +
                std::to_string(stream->tree_size()) + " edges" +
                (stream->has_change() ? ", changing" : "");
      }
      text += "\n";
    }
    const scheduler::SchedulerAgent* source = hop.FindScheduler("us");
    if (source != nullptr && source->leavers() != nullptr) {
      for (const scheduler::LeaverRow& row : source->leavers()->Rows()) {
        text += row.id.cell + " is " + std::string(LeaverPhaseName(row.phase)) + "\n";
      }
    }
    return text;
  }

  Hop hop;

 private:
  std::optional<HandProducer> producer_;
  Truth truth_;
  std::vector<stream::Stem> stems_;
};

TEST(LeaveTest, WhatACellHasOfAStreamWhoseTreeItLeftGoesAfterARest) {
  Leaving l;
  l.hop.Reroute(kWithoutAsia);
  l.RunFor(kRest);
  EXPECT_EQ(l.Files("asia"), 12u) << "for who changes his mind";
  ASSERT_TRUE(l.RunUntil([&] { return l.Files("asia") == 0 && l.AtRest(); }, kSoon)) << l.State();
  EXPECT_EQ(l.hop.registry("asia")->view().lacking_size(), 0) << "nobody misses them";
  l.Roll();
  EXPECT_TRUE(l.RunUntil([&] { return l.Whole("eu"); }, Duration::Seconds(30)));
  l.RunFor(kRest + kSoon);
  EXPECT_EQ(l.Files("asia"), 0u);
}

TEST(LeaveTest, WhoComesBackWithinTheRestHasLostNothing) {
  Leaving l;
  l.hop.Reroute(kWithoutAsia);
  l.RunFor(kRest - Duration::Seconds(5));
  l.hop.Reroute(kChain);
  for (int look = 0; look < 90; ++look) {
    l.RunFor(Duration::Seconds(1));
    ASSERT_EQ(l.Files("asia"), 12u) << look;
  }
  EXPECT_TRUE(l.AtRest());
  EXPECT_TRUE(l.Whole("asia"));
  EXPECT_EQ(l.hop.Check(), "");
}

// (a) It was a relay: as long as whom it fed may need it, nothing goes.
TEST(LeaveTest, ARelayKeepsItsFilesWhileAChangeOfTheTreeIsOpen) {
  Leaving l(Options(), kOverAsia);
  l.hop.world.TakeDown("eu", "scheduler");
  l.hop.Reroute(kWithoutAsia);
  for (int look = 0; look < 12; ++look) {
    l.RunFor(Duration::Seconds(10));
    ASSERT_TRUE(l.Changing());
    ASSERT_EQ(l.Files("asia"), 12u) << look;
  }
  l.Roll();
  l.hop.world.RaiseAll();
  ASSERT_TRUE(l.RunUntil([&] { return l.Whole("eu") && !l.Changing(); }, Duration::Seconds(120)))
      << l.State();
  EXPECT_TRUE(l.RunUntil([&] { return l.Files("asia") == 0 && l.AtRest(); }, kRest + kSoon))
      << l.State();
  EXPECT_TRUE(l.Whole("eu"));
}

// (b) Who comes back while its files go comes back when they are gone, and has all of them again.
TEST(LeaveTest, WhoComesBackWhileItsFilesGoOrLaterHasAllOfThemAgain) {
  for (const Duration later : {Duration::Millis(1), Duration::Millis(40), Duration::Seconds(60)}) {
    Leaving l;
    l.hop.Reroute(kWithoutAsia);
    ASSERT_TRUE(l.RunUntil([&] { return l.Going(); }, kRest + kSoon)) << l.State();
    l.RunFor(later);
    const uint64_t before = l.Version();
    int tries = 0;
    for (; l.Version() == before && tries < 30; ++tries) {
      l.hop.Reroute(kChain);
      if (l.Version() == before) {
        EXPECT_TRUE(l.Going()) << "it was refused for nothing";
        l.RunFor(Duration::Seconds(1));
      }
    }
    EXPECT_EQ(tries > 1, later < Duration::Seconds(1)) << tries;
    EXPECT_TRUE(
        l.RunUntil([&] { return l.Whole("asia") && !l.Changing(); }, Duration::Seconds(120)))
        << l.State();
    l.RunFor(kRest + kSoon);
    EXPECT_TRUE(l.Whole("asia")) << l.State();
  }
}

// (c) Whoever dies, the next one goes on, also when nobody is there to tell it.
TEST(LeaveTest, ASchedulerThatDiesWhileFilesGoIsFollowedByOneThatGoesOn) {
  Leaving l;
  l.hop.Reroute(kWithoutAsia);
  ASSERT_TRUE(l.RunUntil(
      [&] {
        const cell::RegistryCore* asia = l.hop.registry("asia");
        return !asia->catalogue().dropped().empty();
      },
      kRest + kSoon))
      << l.State();
  EXPECT_GT(l.Files("asia"), 0u) << "it dies in the middle";
  l.hop.world.TakeDown("us", "scheduler");
  l.hop.world.Restart("asia", "scheduler");
  ASSERT_TRUE(l.RunUntil([&] { return l.Files("asia") == 0; }, kSoon)) << l.State();
  l.hop.world.RaiseAll();
  EXPECT_TRUE(l.RunUntil([&] { return l.AtRest(); }, kSoon)) << l.State();
}

TEST(LeaveTest, ASourceWhoseSchedulerDiesAtAnyStepGoesOnWithALeaver) {
  for (int seconds : {1, 10, 22, 25, 27, 30}) {
    Leaving l;
    l.hop.Reroute(kWithoutAsia);
    l.RunFor(Duration::Seconds(seconds));
    l.hop.world.Restart("us", "scheduler");
    ASSERT_TRUE(l.RunUntil([&] { return l.AtRest() && l.Files("asia") == 0; }, kRest + kSoon * 2))
        << seconds << "\n"
        << l.State();
    EXPECT_TRUE(l.Whole("eu"));
  }
}

// It could not be reached when it left, and nobody was there to tell it later.
TEST(LeaveTest, ACellThatWasAwayWhenItLeftHearsOfItWhenItIsBack) {
  Leaving l;
  l.hop.world.TakeDown("asia", "scheduler");
  l.hop.Reroute(kWithoutAsia);
  ASSERT_TRUE(l.RunUntil([&] { return !l.Changing(); }, Duration::Seconds(60)));
  l.hop.world.Restart("eu", "scheduler");
  l.hop.world.Restart("us", "scheduler");
  l.RunFor(Duration::Seconds(120));
  EXPECT_EQ(l.Files("asia"), 12u);
  l.hop.world.RaiseAll();
  EXPECT_TRUE(l.RunUntil([&] { return l.AtRest() && l.Files("asia") == 0; }, kRest + kSoon))
      << l.State();
}

// (d) The second change comes before the first one was carried out: what the first tree fed is in
// use, and what left in the first and is back in the second has lost nothing.
TEST(LeaveTest, OfTwoChangesAtOnceTheSecondIsWhatCounts) {
  Leaving l(Options(), kOverAsia);
  l.hop.world.TakeDown("eu", "scheduler");
  l.hop.Reroute(kWithoutAsia);
  l.RunFor(Duration::Millis(200));
  l.hop.Reroute(kChain);
  for (int look = 0; look < 12; ++look) {
    l.RunFor(Duration::Seconds(10));
    ASSERT_EQ(l.Files("asia"), 12u) << look;
  }
  l.hop.world.RaiseAll();
  l.Roll();
  EXPECT_TRUE(l.RunUntil([&] { return l.Whole("eu") && l.Whole("asia") && !l.Changing(); },
                         Duration::Seconds(120)))
      << l.State();
  l.RunFor(kRest + kSoon);
  EXPECT_TRUE(l.Whole("asia"));
  EXPECT_TRUE(l.AtRest());
}

// (e) What the source has lost stays where it is, and goes when the source has it again.
TEST(LeaveTest, TheLastCopyOfAFileStays) {
  for (const bool planted : {false, true}) {
    Leaving l;
    std::optional<PlantedFault> bug;
    if (planted) bug.emplace("scheduler.last_copy_goes");
    l.Remove("us", 3);
    l.Remove("eu", 3);
    l.hop.Reroute(kWithoutAsia);
    ASSERT_TRUE(l.RunUntil([&] { return !l.Changing(); }, Duration::Seconds(120))) << l.State();
    const bool went = l.RunUntil([&] { return l.Files("asia") < 12; }, kRest + kSoon);
    EXPECT_EQ(went, planted) << l.State();
    if (planted) return;
    const auto rows = l.hop.scheduler("us").leavers()->Rows();
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].phase, scheduler::LeaverPhase::kKeeping);
    EXPECT_EQ(rows[0].lacking, 3);
  }
}

// Whether the source has it as well is not known.
TEST(LeaveTest, WhatCanNotBeReadStaysAndStatusSaysWhoCanNot) {
  for (const char* cell : {"asia", "us"}) {
    const std::string says = cell == std::string("asia") ? "there" : "source";
    Leaving l;
    l.SetUnreadable(cell, 3, true);
    l.hop.Reroute(kWithoutAsia);
    EXPECT_TRUE(l.RunUntil([&] { return l.StatusSays("us", "\"unread\":\"" + says + "\""); },
                           kRest + kSoon))
        << l.State();
    EXPECT_TRUE(l.StatusSays("us", "\"lacking_file\":3"));
    EXPECT_EQ(l.Files("asia"), 12u);
    l.SetUnreadable(cell, 3, false);
    EXPECT_TRUE(l.RunUntil([&] { return l.AtRest(); }, kRest + kSoon + kSoon)) << l.State();
    EXPECT_EQ(l.Files("asia"), 0u);
  }
}

// How far the shard is can't be told by the file that can't be read, but by the next one.
TEST(LeaveTest, ANewestFileThatCanNotBeReadHoldsUpAChangeUntilThereIsANewerOne) {
  for (const char* cell : {"asia", "us"}) {
    Leaving l;
    l.SetUnreadable(cell, 6, true);
    l.hop.Reroute(kOverAsia);
    EXPECT_FALSE(l.RunUntil([&] { return !l.Changing(); }, Duration::Seconds(60))) << cell;
    l.Roll();
    EXPECT_TRUE(l.RunUntil([&] { return !l.Changing(); }, Duration::Seconds(60))) << cell << "\n"
                                                                                  << l.State();
    l.SetUnreadable(cell, 6, false);
    EXPECT_TRUE(l.RunUntil([&] { return l.Whole("eu") && l.Whole("asia"); }, Duration::Seconds(60)))
        << l.State();
  }
}

// Cells come and go while schedulers die and links break: in the end whoever is in the tree has
// all, and whoever is not has nothing.
std::string Sweep(uint64_t seed) {
  Rng rng = Rng(seed).Fork("leave");
  HopOptions options = Options(seed);
  options.leavers.rest = Duration::Seconds(rng.Between(0, 10));
  options.leavers.retry = options.leavers.poll = Duration::Seconds(1);
  options.link_delay = Duration::Millis(rng.Between(1, 60));
  Leaving l(options);
  const std::vector<Edges> trees = {
      kChain, kWithoutAsia, kOverAsia, {{"us", "asia"}}, {{"us", "eu"}, {"us", "asia"}}};
  bool cut = false;
  std::string lost;
  // As long as one tree is the source's, no file goes from a cell that it names.
  uint64_t version = 0;
  std::map<std::string, size_t> before;
  const auto look = [&] {
    const v1::StreamConfig* stream = l.Config("us");
    if (stream == nullptr) return;
    std::map<std::string, size_t> now;
    for (const std::string& cell : l.hop.options.cells) {
      if (!cell::NamesCell(*stream, cell)) continue;
      now[cell] = l.Files(cell);
      const auto then = before.find(cell);
      if (version == stream->tree_version() && then != before.end() && now[cell] < then->second) {
        lost = cell + " lost files of tree " + std::to_string(version) + ", which names it\n";
      }
    }
    version = stream->tree_version();
    before = std::move(now);
  };
  for (int event = 0; event < 25; ++event) {
    l.hop.world.ReviveDead();
    switch (rng.Below(6)) {
      case 0:
      case 1:
        if (l.hop.registry("us") != nullptr) l.hop.Reroute(trees[rng.Below(trees.size())]);
        break;
      case 2:
        l.hop.world.Restart(l.hop.options.cells[rng.Below(3)], "scheduler");
        break;
      case 3:
        cut = !cut;
        CutCells(l.hop.world, "us", "asia", Ways::kBoth, cut);
        break;
      case 4:
        l.Roll();
        break;
      default:
        break;
    }
    for (int64_t left = rng.Between(1, rng.Chance(0.3) ? 15000 : 1500); left > 0; left -= 100) {
      look();
      l.RunFor(Duration::Millis(100));
    }
    look();
    if (!lost.empty()) return lost + l.State();
  }
  if (cut) CutCells(l.hop.world, "us", "asia", Ways::kBoth, false);
  l.hop.world.ReviveDead();
  // The cells that the tree names have all, the others nothing.
  const auto done = [&] {
    const v1::StreamConfig* stream = l.Config("us");
    if (stream == nullptr || l.Changing() || !l.AtRest()) return false;
    return std::all_of(l.hop.options.cells.begin(), l.hop.options.cells.end(),
                       [&](const std::string& cell) {
                         return cell::NamesCell(*stream, cell) ? l.Whole(cell) : l.Files(cell) == 0;
                       });
  };
  const auto settles = [&] {
    for (int turn = 0; turn < 60 && !done(); ++turn) {
      l.hop.world.ReviveDead();
      l.RunUntil(done, Duration::Seconds(5));
    }
    return done();
  };
  if (!settles()) return "not at rest:\n" + l.State();
  l.hop.Reroute(kChain);
  if (!settles()) return "who came back does not have all:\n" + l.State();
  l.RunFor(Duration::Seconds(60));
  return done() ? "" : "what was there is gone:\n" + l.State();
}

TEST(LeaveTest, SweepOfCellsThatComeAndGo) {
  (void)SetLogLevels("off");
  const char* seeds = std::getenv("TAILCAST_SEEDS");
  const uint64_t last = seeds == nullptr ? 8 : std::strtoull(seeds, nullptr, 10);
  for (uint64_t seed = 1; seed <= last; ++seed) {
    EXPECT_EQ(Sweep(seed), "") << "seed " << seed;
  }
  (void)SetLogLevels("info");
}

}  // namespace
}  // namespace tailcast::world
