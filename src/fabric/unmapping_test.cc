#include "tailcast/fabric/unmapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tailcast::fabric {
namespace {

constexpr uint64_t kBytes = 32 << 20;
constexpr char kName[] = "unmapping-test";

// Of all mappings of that memory in this process.
uint64_t MappedBytes() {
  std::ifstream maps("/proc/self/maps");
  uint64_t sum = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kName) == std::string::npos) continue;
    std::istringstream range(line);
    uint64_t begin = 0, end = 0;
    char dash = 0;
    range >> std::hex >> begin >> dash >> end;
    sum += end - begin;
  }
  return sum;
}

std::vector<Mapping> TwoMappings() {
  const Descriptor fd(memfd_create(kName, MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), kBytes), 0);
  std::vector<Mapping> mappings;
  for (int i = 0; i < 2; ++i) {
    Result<Mapping> mapping = Mapping::Map(fd.get(), kBytes, false);
    EXPECT_TRUE(mapping.ok()) << mapping.status();
    if (mapping.ok()) mappings.push_back(std::move(mapping).value());
  }
  return mappings;
}

TEST(UnmappingTest, GoesInPiecesUntilNothingIsLeft) {
  Reactor reactor("test");
  reactor.Call([&] { UnmapSlowly(reactor, TwoMappings()); });
  uint64_t before = 2 * kBytes;
  int steps = 0;
  while (before > 0) {
    const uint64_t now = MappedBytes();
    ASSERT_LE(now, before);
    if (now < before) ++steps;
    before = now;
    std::this_thread::yield();
  }
  EXPECT_GE(steps, 4) << "all at once";
}

TEST(UnmappingTest, TheReactorsEndLeavesNothingBehind) {
  auto reactor = std::make_unique<Reactor>("test");
  reactor->Call([&] { UnmapSlowly(*reactor, TwoMappings()); });
  EXPECT_GT(MappedBytes(), 0u);
  reactor.reset();
  EXPECT_EQ(MappedBytes(), 0u);
}

TEST(UnmappingTest, NothingIsNoWork) {
  Reactor reactor("test");
  reactor.Call([&] { UnmapSlowly(reactor, {}); });
  EXPECT_EQ(MappedBytes(), 0u);
}

}  // namespace
}  // namespace tailcast::fabric
