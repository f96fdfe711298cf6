// The page that an exporter shares beside its regions: is the memory still what the reader was
// told, and is its owner still at work? Readers map it without write access. Drawn in
// docs/formats/fabric_shm.md.
#pragma once

#include <atomic>
#include <cstdint>

#include "tailcast/base/time.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

inline constexpr uint64_t kControlMagic = 0x4c54434241464354;  // "TCFABCTL" in memory
inline constexpr uint32_t kControlVersion = 1;
inline constexpr uint64_t kControlBytes = 4096;

struct ControlPage {
  uint64_t magic;
  uint32_t version;
  uint32_t region_count;
  ExporterIncarnation incarnation;
  uint64_t beat_timeout_us;
  char reserved_1[32];
  // CLOCK_MONOTONIC of the host in microseconds at the last Beat; 0 before the first.
  alignas(64) std::atomic<uint64_t> heartbeat_us;
  char reserved_2[56];
  // 0 = not readable (any more).
  alignas(64) std::atomic<Generation> generations[kRegionsMax];
};
static_assert(sizeof(ControlPage) <= kControlBytes);
static_assert(offsetof(ControlPage, heartbeat_us) == 64);
static_assert(offsetof(ControlPage, generations) == 128);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Whether the owner beat once and then not for longer than it promised.
inline bool HeartbeatStopped(const ControlPage& page, MonotonicTime now) {
  const uint64_t beat = page.heartbeat_us.load(std::memory_order_relaxed);
  return beat != 0 && now.micros() > static_cast<int64_t>(beat + page.beat_timeout_us);
}

}  // namespace tailcast::fabric
