#include "tailcast/fuzz/hunt.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tailcast/fuzz/target.h"

namespace tailcast::fuzz {
namespace {

// The planted bug: dies of a "length" over 99 in an input that begins with B.
int Planted(const uint8_t* data, size_t size) {
  if (size >= 4 && data[0] == 'B' && data[3] > 99) std::abort();
  return 0;
}

Target PlantedTarget() {
  return {.run = Planted, .mutate = nullptr, .seeds = {"B..\x05 and more"}};
}

TEST(HuntTest, FindsAPlantedBugAndTheInputIsTheOneThatDied) {
  const HuntReport report = Hunt(PlantedTarget(), {.seed = 3, .time = Duration::Seconds(60)});
  ASSERT_TRUE(report.death.has_value());
  EXPECT_EQ(report.death->how, "signal 6 (Aborted)");
  const auto again = Replay(PlantedTarget(), report.death->input, true);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->how, report.death->how);
}

TEST(HuntTest, TheSameSeedFindsItInTheSameRun) {
  const HuntOptions options = {.seed = 5, .time = Duration::Seconds(60)};
  const HuntReport a = Hunt(PlantedTarget(), options);
  const HuntReport b = Hunt(PlantedTarget(), options);
  ASSERT_TRUE(a.death.has_value() && b.death.has_value());
  EXPECT_EQ(a.runs, b.runs);
  EXPECT_EQ(a.death->input, b.death->input);
}

TEST(HuntTest, MinimisesToTheBytesThatMatter) {
  const auto death = Replay(PlantedTarget(), "Bxy\xf0 a long tail that does not matter", true);
  ASSERT_TRUE(death.has_value());
  EXPECT_EQ(Minimise(PlantedTarget(), *death, Duration::Seconds(60)), std::string("B\0\0\xf0", 4));
}

TEST(HuntTest, ASurvivingTargetRunsEveryInputItWasAskedFor) {
  const Target target = {.run = [](const uint8_t*, size_t) { return 0; }};
  const HuntReport report =
      Hunt(target, {.time = Duration::Seconds(60), .runs_max = 1000, .size_max = 64});
  EXPECT_FALSE(report.death.has_value());
  EXPECT_EQ(report.runs, 1000u);
}

// A bug behind a checksum: no random change gets there, a target's own mutator does.
uint8_t Sum(const uint8_t* data, size_t size) {
  uint8_t sum = 0;
  for (size_t i = 0; i < size; ++i) sum = static_cast<uint8_t>(sum * 31 + data[i]);
  return sum;
}
int BehindChecksum(const uint8_t* data, size_t size) {
  if (size != 9) return 0;
  for (size_t i = 0; i < 4; ++i) {
    if (data[i] != Sum(data + 4, 5) + i) return 0;
  }
  if (data[8] == 77) std::abort();
  return 0;
}
void Repair(uint8_t* data, size_t size) {
  if (size != 9) return;
  for (size_t i = 0; i < 4; ++i) data[i] = static_cast<uint8_t>(Sum(data + 4, 5) + i);
}
size_t Repairing(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  return MutateAndRepair(data, size, size_max, seed, Repair);
}

TEST(HuntTest, ATargetThatRepairsGetsBehindAChecksum) {
  const std::vector<std::string> seeds = {"012345678"};
  const HuntOptions options = {.seed = 1, .time = Duration::Seconds(60), .runs_max = 20'000};
  EXPECT_FALSE(Hunt({.run = BehindChecksum, .mutate = nullptr, .seeds = seeds}, options).death);
  EXPECT_TRUE(Hunt({.run = BehindChecksum, .mutate = Repairing, .seeds = seeds}, options).death);
}

TEST(InputTest, GivesZerosAndEmptyTextsPastItsEnd) {
  Input input(std::string_view("\x01\x02\x03", 3));
  EXPECT_EQ(input.Take<uint16_t>(), 0x0201);
  EXPECT_EQ(input.Take<uint32_t>(), 3u);
  EXPECT_TRUE(input.empty());
  EXPECT_EQ(input.Take<uint64_t>(), 0u);
  EXPECT_EQ(input.Rest(), "");
}

}  // namespace
}  // namespace tailcast::fuzz
