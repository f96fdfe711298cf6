// How the operations on one file, layer and target are ordered (paper §3; spec Locks).
#pragma once

#include <compare>
#include <cstdint>

namespace tailcast::stream {

// Of a stream: one more with each re-route; tells a copy tree from the one before.
enum class TreeVersion : uint64_t { kNone = 0, kFirst = 1 };
// Of a cell: one more with each scheduler that opens its registry; tells a scheduler from its
// predecessors.
enum class SchedulerIncarnation : uint64_t { kNone = 0 };

inline constexpr TreeVersion kTreeVersionMax{(1u << 16) - 1};
inline constexpr SchedulerIncarnation kSchedulerIncarnationMax{(1u << 24) - 1};
inline constexpr uint32_t kAttemptMax = (1u << 24) - 1;

// Of operations on one file, layer and target the greater supersedes: a re-route wins over any
// scheduler, a scheduler over its predecessors. Compared in the order of the fields.
//
//   63         48 47                  24 23        0
//   | tree vers. | scheduler incarnation | attempt |
struct Term {
  TreeVersion tree_version = TreeVersion::kNone;                             // to kTreeVersionMax
  SchedulerIncarnation scheduler_incarnation = SchedulerIncarnation::kNone;  // to its maximum
  uint32_t attempt = 0;  // to kAttemptMax; 1, 2, ...

  // For messages and formats; 0 for no term. Orders as the terms do.
  uint64_t Pack() const;
  static Term Unpack(uint64_t packed);
  auto operator<=>(const Term&) const = default;
};

}  // namespace tailcast::stream
