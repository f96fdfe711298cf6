// Scenario files, which people write.
#include "tailcast/world/scenario.h"

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tailcast;
  const auto scenario =
      world::ParseScenario({reinterpret_cast<const char*>(data), size}, "x.scenario");
  if (!scenario.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(scenario.status()), "bad input, and nothing else");
    TAILCAST_CHECK(scenario.status().message().starts_with("x.scenario"), "says where");
  }
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  return {
      "# A title.\ncells us eu asia\nlink us <-> eu 40ms\nlink eu <-> asia 60ms\n"
      "messages 400 every 20ms of 1000\n\nat 2s tree us eu us asia\nat 4s lose eu for 1500ms\n",
      "cells us eu\nlink us <-> eu 15ms\nmessages 300 every 20ms of 1000\n"
      "at 1s spike eu 40 over 4s\nat 2s slow eu/cache-1 120ms for 1500ms\n"};
}
