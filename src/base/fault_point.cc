#include "tailcast/base/fault_point.h"

#include <algorithm>
#include <mutex>

#include "tailcast/base/check.h"
#include "tailcast/base/nearest.h"

namespace tailcast {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<FaultPoint*> points;  // guarded by mutex
};

Registry& AllPoints() {
  static Registry registry;
  return registry;
}

}  // namespace

FaultPoint::FaultPoint(std::string_view name, std::string_view what) : name_(name), what_(what) {
  Registry& all = AllPoints();
  const std::lock_guard lock(all.mutex);
  const auto same = std::find_if(all.points.begin(), all.points.end(),
                                 [&](const FaultPoint* p) { return p->name() == name; });
  TAILCAST_CHECK(same == all.points.end(), name);
  all.points.push_back(this);
}

std::vector<const FaultPoint*> FaultPoints() {
  Registry& all = AllPoints();
  const std::lock_guard lock(all.mutex);
  std::vector<const FaultPoint*> points(all.points.begin(), all.points.end());
  std::sort(points.begin(), points.end(),
            [](const FaultPoint* a, const FaultPoint* b) { return a->name() < b->name(); });
  return points;
}

Status PlantFault(std::string_view name, bool on) {
  if constexpr (!kFaultPointsCompiledIn) {
    return FailedPreconditionError("fault point '" + std::string(name) +
                                   "' was compiled out: this is a release build");
  }
  Registry& all = AllPoints();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (FaultPoint* point : all.points) {
    if (point->name() == name) {
      point->Plant(on);
      return OkStatus();
    }
    names.emplace_back(point->name());
  }
  return NotFoundError("no fault point '" + std::string(name) + "'" + DidYouMean(name, names));
}

PlantedFault::PlantedFault(std::string name) : name_(std::move(name)) {
  const Status status = PlantFault(name_, true);
  TAILCAST_CHECK(status.ok(), status.message());
}

PlantedFault::~PlantedFault() { (void)PlantFault(name_, false); }

}  // namespace tailcast
