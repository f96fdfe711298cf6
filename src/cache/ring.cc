#include "tailcast/cache/ring.h"

#include <mutex>

namespace tailcast::cache {

HashRing::Members HashRing::MembersOf(const RingConfig& config, WhichRing which) {
  Members members;
  for (size_t i = 0; i < config.replicas.size(); ++i) {
    const Replica& replica = config.replicas[i];
    if (IsIn(replica, which)) members.emplace_back(replica.name, static_cast<uint16_t>(i));
  }
  return members;
}

HashRing::Table HashRing::MakeTable(const Members& members) {
  struct Point {
    uint64_t place;
    const std::string* name;
    uint16_t replica;
  };
  std::vector<Point> points;
  points.reserve(members.size() * kPointsPerReplica);
  for (const auto& [name, index] : members) {
    for (uint32_t n = 0; n < kPointsPerReplica; ++n) {
      points.push_back({Hash128(name, n).hi, &name, index});
    }
  }
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.place != b.place ? a.place < b.place : *a.name < *b.name;
  });
  Table table;
  const size_t distinct = OwnersPerKey(members);
  for (size_t i = 0; i < points.size(); ++i) {
    Owners owners;
    for (size_t step = 0; owners.count < distinct; ++step) {
      const size_t at = i + step < points.size() ? i + step : i + step - points.size();
      owners.Add(points[at].replica);
    }
    table.places.push_back(points[i].place);
    auto& kept = table.owners.emplace_back();
    std::copy_n(owners.replica.begin(), distinct, kept.begin());
  }
  size_t at = 0;
  for (uint64_t top = 0; top < kTableSize; ++top) {
    Slot& slot = table.slots.emplace_back();
    slot.first = static_cast<uint32_t>(at);
    slot.owners = table.owners[at % table.owners.size()];
    while (at < table.places.size() && table.places[at] >> kTableShift == top) ++at;
    slot.points = static_cast<uint16_t>(at - slot.first);
  }
  return table;
}

// Those that some ring has. It is made under the lock: who changes to the same ring at the same
// time waits for it, and has it then.
std::shared_ptr<const HashRing::Table> HashRing::TableOf(const Members& members) {
  if (members.empty()) return nullptr;
  struct Known {
    Members members;
    std::weak_ptr<const Table> table;
  };
  static std::mutex mutex;
  static std::vector<Known> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const Known& known) { return known.table.expired(); });
  for (const Known& known : all) {
    if (known.members != members) continue;
    if (auto table = known.table.lock()) return table;
  }
  auto table = std::make_shared<const Table>(MakeTable(members));
  all.push_back({members, table});
  return table;
}

}  // namespace tailcast::cache
