// Traces of one key of the cache for the model checker: what real cores do is what spec Merge does.
// With TAILCAST_TRACE_DIR=FOLDER they are written there, for tla/run.py (tla/README.md, "Traces").
#include "tailcast/cell/merge_trace_testing.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tailcast/cell/cache_members_sweep_testing.h"

namespace tailcast::cell {
namespace {

size_t CountOf(const std::string& text, const std::string& event) {
  const std::string words = "{\"event\":\"" + event + "\"";
  size_t count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    ++count;
  }
  return count;
}

// The life of one seed; what was wrong with it, if anything.
std::string SweepOf(uint64_t seed, MergeTrace& trace, TraceRun run) {
  run.trace = &trace;
  Sweep sweep(seed, run);
  sweep.Trace();
  return sweep.failure();
}

// Of one seed each; of more, if TAILCAST_SEEDS says so.
void Sweeps(MergeTrace& trace, TraceRun run) {
  const char* const text = std::getenv("TAILCAST_SEEDS");
  const uint64_t seeds = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    ASSERT_EQ(SweepOf(seed, trace, run), "") << "seed " << seed;
  }
}

void Save(const MergeTrace& trace, const std::string& name) {
  const char* const folder = std::getenv("TAILCAST_TRACE_DIR");
  if (folder == nullptr) return;
  std::ofstream file(std::string(folder) + "/merge-" + name + ".jsonl");
  file << trace.text();
  ASSERT_TRUE(file.good()) << folder;
}

TEST(MergeTraceTest, OfARingThatStays) {
  MergeTrace trace({0, 1, 2}, {0, 1, 2});
  Sweeps(trace, {});
  Sweeps(trace, {.restarts = 0.002, .one_by_one = true});
  Sweeps(trace, {.restarts = 0.002});
  // Seldom: somebody reads on in the memory of the dead when there is a new life.
  const TraceRun run{.restarts = 0.002, .one_by_one = true};
  for (uint64_t seed = 101; seed < 200 && CountOf(trace.text(), "ReadGhost") == 0; ++seed) {
    MergeTrace alone({0, 1, 2}, {0, 1, 2});
    if (SweepOf(seed, alone, run).empty() && CountOf(alone.text(), "ReadGhost") > 0) {
      EXPECT_EQ(SweepOf(seed, trace, run), "");
    }
  }
  for (const char* event : {"Restart", "Copy", "BecomeWhole", "RaiseEpoch", "ReadGhost"}) {
    EXPECT_GT(CountOf(trace.text(), event), 0u) << event;
  }
  Save(trace, "stays");
}

TEST(MergeTraceTest, OfARingThatChanges) {
  MergeTrace trace({0, 1, 2}, {3, 4, 5});
  Sweeps(trace, {.changes = true});
  Sweeps(trace, {.restarts = 0.002, .one_by_one = true, .changes = true});
  Sweeps(trace, {.restarts = 0.001, .changes = true, .taken_back = 0.002});
  for (const char* event : {"MoveBoth", "MoveNew", "MoveDrained", "MoveBack", "Invalidate"}) {
    EXPECT_GT(CountOf(trace.text(), event), 0u) << event;
  }
  Save(trace, "changes");
}

TEST(MergeTraceTest, OfARingThatChangesInPart) {
  MergeTrace trace({0, 1, 2}, {1, 2, 3});
  Sweeps(trace, {.restarts = 0.001, .one_by_one = true, .changes = true});
  Sweeps(trace, {.restarts = 0.001, .changes = true, .taken_back = 0.002});
  EXPECT_EQ(CountOf(trace.text(), "MoveDrained"), CountOf(trace.text(), "Begin"));
  Save(trace, "changes-in-part");
}

// A planted bug, which the oracle of these few steps does not see.
TEST(MergeTraceTest, OfReplicasThatDoNotRest) {
  MergeTrace trace({0, 1, 2}, {0, 1, 2});
  Sweeps(trace, {.restarts = 0.002, .one_by_one = true, .rest = Duration()});
  EXPECT_GT(CountOf(trace.text(), "Restart"), 0u);
  Save(trace, "bug-no-rest");
}

}  // namespace
}  // namespace tailcast::cell
