// Which replicas hold a key (paper §2.2: consistent hashing). Each replica stands at
// kPointsPerReplica places of a ring of 2^64, at hashes of its name; a key belongs to the first
// three distinct replicas at or after its own place. So one that comes or goes moves only its own
// share, and all clients compute the same placement from the same names, in whatever order they are
// listed. Placement is part of the format (docs/formats/cache_memory.md).
//
// Immutable after construction; any thread. A look-up costs some nanoseconds: a table over the top
// bits of the place finds the point.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tailcast/base/hash.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

inline constexpr uint32_t kReplicasPerKey = 3;

// Indexes into RingConfig::replicas, preferred by nobody: the order is that of the ring.
struct Owners {
  std::array<uint16_t, kReplicasPerKey> replica{};
  uint8_t count = 0;  // < 3 only if there are fewer replicas
};

class HashRing {
 public:
  static constexpr uint32_t kPointsPerReplica = 256;

  HashRing() = default;
  explicit HashRing(const RingConfig& config) {
    struct Point {
      uint64_t place;
      const std::string* name;
      uint16_t replica;
    };
    for (const Replica& replica : config.replicas) names_.push_back(replica.name);
    std::vector<Point> points;
    points.reserve(config.replicas.size() * kPointsPerReplica);
    for (size_t i = 0; i < config.replicas.size(); ++i) {
      for (uint32_t n = 0; n < kPointsPerReplica; ++n) {
        points.push_back({Hash128(config.replicas[i].name, n).hi, &config.replicas[i].name,
                          static_cast<uint16_t>(i)});
      }
    }
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
      return a.place != b.place ? a.place < b.place : *a.name < *b.name;
    });
    const size_t distinct = std::min<size_t>(kReplicasPerKey, config.replicas.size());
    for (size_t i = 0; i < points.size(); ++i) {
      Owners owners;
      for (size_t step = 0; step < points.size() && owners.count < distinct; ++step) {
        const size_t at = i + step < points.size() ? i + step : i + step - points.size();
        const uint16_t candidate = points[at].replica;
        const auto* end = owners.replica.begin() + owners.count;
        if (std::find(owners.replica.begin(), owners.replica.begin() + owners.count, candidate) ==
            end) {
          owners.replica[owners.count++] = candidate;
        }
      }
      places_.push_back(points[i].place);
      owners_.push_back(owners);
    }
    if (places_.empty()) return;
    first_.resize(kTableSize);
    size_t at = 0;
    for (uint64_t slot = 0; slot < kTableSize; ++slot) {
      while (at < places_.size() && places_[at] < slot << kTableShift) ++at;
      first_[slot] = static_cast<uint32_t>(at);
    }
  }

  // Whether it is that of `config`, by what placement depends on: the names, as they are listed.
  // Many changes of a configuration (an address, an incarnation) leave it as it is; making it costs
  // a hash for each point.
  bool IsOf(const RingConfig& config) const {
    return std::equal(names_.begin(), names_.end(), config.replicas.begin(), config.replicas.end(),
                      [](const std::string& name, const Replica& r) { return name == r.name; });
  }

  // count == 0 only if the ring is empty.
  Owners OwnersOf(const Key& key) const {
    if (places_.empty()) return {};
    const uint64_t place = PlaceOf(key);
    size_t at = first_[place >> kTableShift];
    while (at < places_.size() && places_[at] < place) ++at;
    return owners_[at == places_.size() ? 0 : at];
  }

  // key.hi is mixed once more, so that the keys of one replica still spread over all tags.
  static uint64_t PlaceOf(const Key& key) {
    return internal::HashFinish(key.hi ^ 0x9e3779b97f4a7c15);
  }

 private:
  static constexpr int kTableShift = 52;
  static constexpr uint64_t kTableSize = 1ull << (64 - kTableShift);
  std::vector<std::string> names_;
  std::vector<uint64_t> places_;  // sorted
  std::vector<Owners> owners_;    // of keys at or before each place
  std::vector<uint32_t>
      first_;  // by the top bits of a place: the first point that can be at or after
};

}  // namespace tailcast::cache
