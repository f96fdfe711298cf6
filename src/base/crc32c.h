// CRC-32C (Castagnoli), the checksum of every format of tailcast: index records, chunks, cache
// entries, durable slots.
//
// Values are the finished ones that RFC 3720 lists (Crc32c("123456789") == 0xe3069283), and they
// extend: Crc32cExtend(Crc32c(a), b) == Crc32c(a + b), so a reader that already knows the checksum
// of a prefix validates only the new suffix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tailcast {

// The checksum of the bytes that `crc` covers followed by data[0, size); 0 covers no bytes. About
// 0.02 ns per byte with AVX-512, 0.03 with SSE4.2 and 0.35 with neither, at 4 KB. Any alignment.
uint32_t Crc32cExtend(uint32_t crc, const void* data, size_t size);

inline uint32_t Crc32c(std::string_view data) { return Crc32cExtend(0, data.data(), data.size()); }

// The checksum of a + b from those of a and of b. `size_b` is b's length in bytes. Costs one
// multiplication per set bit of the length, not a pass over the bytes.
uint32_t Crc32cCombine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

namespace internal {
// The implementations that Crc32cExtend chooses from, for tests and benchmarks. Call the faster two
// only if the machine supports them.
uint32_t Crc32cExtendTable(uint32_t crc, const void* data, size_t size);
uint32_t Crc32cExtendSse42(uint32_t crc, const void* data, size_t size);
uint32_t Crc32cExtendAvx512(uint32_t crc, const void* data, size_t size);
bool Crc32cHasSse42();
bool Crc32cHasAvx512();
}  // namespace internal

}  // namespace tailcast
