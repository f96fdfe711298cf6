// What happened in a run, for people: each event with its virtual time, which copy operations run
// where and move where, then how long messages took to each cell, and why consumers read the
// primary layer, from event to event.
//
//   World world(options);
//   Story story(world, [](const std::string& line) { std::puts(line.c_str()); });
//   const Outcome outcome = world.Run();
//   story.End(outcome);
//
// It looks at the world every kLookEvery and changes nothing: a run has the events of one without.
// The delay of a message is from its being handed to the producer until the user of a consumer has
// it. Times are of the run, or, of a scenario, from when its producers were open.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tailcast/world/world.h"

namespace tailcast::world {

class Story {
 public:
  static constexpr Duration kLookEvery = Duration::Millis(10);

  // `world` outlives it and has not run; `tell` gets the lines.
  Story(World& world, std::function<void(const std::string& line)> tell);
  ~Story();
  Story(const Story&) = delete;
  Story& operator=(const Story&) = delete;

  // The tables and how it ended.
  void End(const Outcome& outcome);

 private:
  // Reads of the primary layer by consumers, by cause.
  static constexpr size_t kCauses = 4;
  using Causes = std::array<int64_t, kCauses>;
  // From an event to the next one.
  struct Phase {
    MonotonicTime from;
    std::string event;
    std::map<std::string, Causes> fallbacks;  // by cell
  };
  struct Workers {
    std::string reader, writer;
    bool operator==(const Workers&) const = default;
  };
  // Stream, shard, file, layer, from, to.
  using Copy = std::tuple<std::string, int, int64_t, std::string, std::string, std::string>;

  // What a cell's clients of the data cache met, by the key of the metric.
  using Counts = std::map<std::string, int64_t>;

  void OnEvent(MonotonicTime at, const std::string& text);
  void Look();
  void LookAtCopies(const std::string& cell);
  void LookAtConsumers();
  void Tell(MonotonicTime at, const std::string& text);
  void TellDelays();
  void TellNewcomers();
  static void AddCacheCounts(const Process& p, Counts& counts);
  void TellCaches();
  size_t PhaseAt(MonotonicTime at) const;
  std::string Stamp(MonotonicTime at) const;

  World& world_;
  std::function<void(const std::string&)> tell_;
  MonotonicTime look_at_;
  std::vector<Phase> phases_;
  std::map<Copy, Workers> copies_;
  std::map<std::string, Counts> killed_;           // by cell: of processes that are no more
  std::map<std::pair<int, size_t>, Causes> seen_;  // by shard and consumer, of its life
};

}  // namespace tailcast::world
