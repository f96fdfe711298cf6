// Bugs planted on purpose: a checker (a test, an oracle of the simulator, a trace spec) is trusted
// only after it has caught them. One mechanism for all rooms; included by sources, never by
// headers, and compiled out of release builds, where every point is a constant false.
//
//   FAULT_POINT(kSkipPayloadCheck, "consumer.skip_payload_check",
//               "payloads are handed over without their check sum");     // in a namespace of x.cc
//   ...
//   if (crc != record.crc && !kSkipPayloadCheck.planted()) return Corrupt();
//
//   PlantedFault fault("consumer.skip_payload_check");         // in a test, as long as it lives
//
// Names are "<module>.<what goes wrong>". A point is planted for the whole process, so one at a
// time tells which checker has caught which bug.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast {

#ifndef TAILCAST_FAULT_POINTS
#define TAILCAST_FAULT_POINTS 1
#endif
inline constexpr bool kFaultPointsCompiledIn = TAILCAST_FAULT_POINTS != 0;

class FaultPoint {
 public:
  // Both texts are literals; made before main.
  FaultPoint(std::string_view name, std::string_view what);
  FaultPoint(const FaultPoint&) = delete;
  FaultPoint& operator=(const FaultPoint&) = delete;

  // Any thread; one relaxed load.
  bool planted() const { return planted_.load(std::memory_order_relaxed); }
  void Plant(bool on) { planted_.store(on, std::memory_order_relaxed); }
  std::string_view name() const { return name_; }
  std::string_view what() const { return what_; }

 private:
  const std::string_view name_;
  const std::string_view what_;
  std::atomic<bool> planted_{false};
};

struct NoFaultPoint {
  static constexpr bool planted() { return false; }
};

#if TAILCAST_FAULT_POINTS
#define FAULT_POINT(variable, name, what) \
  ::tailcast::FaultPoint variable { name, what }
#else
#define FAULT_POINT(variable, name, what) \
  constexpr ::tailcast::NoFaultPoint variable {}
#endif

// The points that are linked into this program, by name.
std::vector<const FaultPoint*> FaultPoints();
// NotFound: no such point here; the message names the nearest. FailedPrecondition: a release build.
Status PlantFault(std::string_view name, bool on);

// Planted from construction to destruction. A name that does not exist is our own bug.
class PlantedFault {
 public:
  explicit PlantedFault(std::string name);
  ~PlantedFault();
  PlantedFault(const PlantedFault&) = delete;
  PlantedFault& operator=(const PlantedFault&) = delete;

 private:
  const std::string name_;
};

}  // namespace tailcast
