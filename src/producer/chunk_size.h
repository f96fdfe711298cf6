// Which chunk size the next message file of a shard gets, by the rate of the one before (paper §2.4
// Producers: "reducing the chunk size to fit the file's byte rate").
//
// A chunk that is written or read costs the same whatever its size, so a fast file's are large:
// what comes in 12.5 ms, which makes 80 chunks a second. But a flush writes the chunk that it ends
// in from its beginning, and the next flush writes it again: half a chunk of data and half a chunk
// of index, on average, are sent once more. So chunks of more than 4096 bytes become no larger than
// eight flushes, and what is sent is five to nine times what comes. That is little beside what a
// crowd of consumers reads, each of them only what is new of a chunk, and what each chunk costs
// them. Where there is no crowd, in the low-latency profile, flushes are small, and so are chunks.
//
//   bytes/s                 < 40 KB/s  320 KB/s  1.3 MB/s  >= 5 MB/s     in flushes of 100 ms
//   chunk                   512        4096      16384     65536
//   bytes of a flush                   <= 512    2 KB      >= 8 KB       at any higher rate
//
// Hysteresis, `wanted` being the lesser of the two:
//
//   stays                   wanted / 4 < size <= 2 * wanted
//   else                    the greatest power of two that is at most `wanted`
//
// so a rate that was just followed has to become less than half, or more than twice what it was, to
// be followed again.
//
// A core: pure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tailcast/base/time.h"
#include "tailcast/stream/names.h"

namespace tailcast::producer {

inline constexpr int64_t kAnyFlush = 4096;  // chunks are not smaller because flushes are
inline constexpr int64_t kFlushes = 8;      // of which a larger chunk holds the bytes, at most
inline constexpr Duration kChunkTime = Duration::Micros(12'500);

// `current`: bytes, a power of two. `data_bytes` were flushed in so many `flushes` while the file
// was open, for `open`; 0 flushes: what is not known changes nothing.
inline int64_t NextChunkSize(int64_t current, int64_t data_bytes, int64_t flushes, Duration open) {
  if (flushes <= 0) return current;
  const double by_rate = static_cast<double>(data_bytes) *
                         static_cast<double>(kChunkTime.micros()) /
                         static_cast<double>(std::max<int64_t>(open.micros(), 1));
  const auto most = static_cast<double>(stream::kChunkSizeMax * 8);  // more changes nothing
  const int64_t wanted = std::min(static_cast<int64_t>(std::min(by_rate, most)),
                                  std::max(kAnyFlush, kFlushes * (data_bytes / flushes)));
  if (wanted < current * 4 && current <= wanted * 2) return current;
  const auto power =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(wanted, 1))));
  return std::clamp(power, stream::kChunkSizeMin, stream::kChunkSizeMax);
}

}  // namespace tailcast::producer
