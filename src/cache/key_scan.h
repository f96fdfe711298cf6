// Scan-and-read of a key (fabric.h): what a reader asks for, and what the server's engine finds for
// it in the cache's memory. Drawn in docs/formats/cache_memory.md.
//
// It saves the reader a round trip and nothing else: the reader validates what comes exactly as if
// it had read it from the same places itself (KeyReadCore).
#pragma once

#include <cstdint>

#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/types.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::cache {

// The ranges of an answer, in order; without an entry of the key the first one only, without
// payload that is wanted the first two.
inline constexpr size_t kScannedBucket = 0, kScannedHeader = 1, kScannedPayload = 2;

// Asks for the key's bucket, its entry's header, and of the payload the bytes from `from` on if it
// has no more than `room`.
fabric::ScanRequest EncodeKeyScan(const Key& key, uint32_t from, uint32_t room);

// Of the memory of a server of this geometry.
fabric::Scanner MakeKeyScanner(const layout::Geometry& geometry);
// First the bucket, then the entry's header and of the payload that is wanted so many bytes.
fabric::ScanPrefetch MakeKeyScanPrefetch(const layout::Geometry& geometry,
                                         uint32_t payload_bytes_max);

}  // namespace tailcast::cache
