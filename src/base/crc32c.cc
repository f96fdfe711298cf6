#include "tailcast/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tailcast/base/prefetch.h"

// Polynomials over GF(2) modulo P, the Castagnoli polynomial, are kept bit-reflected: bit 31 is the
// coefficient of x^0. Appending n zero bytes to a message multiplies its (unfinished) checksum by
// x^(8n); the sum of two messages of equal length has the sum of their checksums. Hence a long
// message can be cut into pieces that are computed side by side and then added, each multiplied by
// the power of x that belongs to the bytes after it.
namespace tailcast {
namespace {

constexpr uint32_t kPoly = 0x82f63b78;

// a * x mod P.
constexpr uint32_t TimesX(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kPoly : 0); }
// a / x mod P; x is invertible because P has the term 1 (bit 31 of the reflected polynomial).
constexpr uint32_t OverX(uint32_t a) {
  return (a & 0x80000000u) != 0 ? ((a ^ kPoly) << 1) | 1 : a << 1;
}
constexpr uint32_t kOne = 0x80000000u;
static_assert(OverX(TimesX(0x12345678u)) == 0x12345678u && TimesX(OverX(kOne)) == kOne);

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((b & bit) != 0) product ^= a;
    a = TimesX(a);
  }
  return product;
}

constexpr uint32_t XPower(uint64_t n) {
  uint32_t result = kOne;
  for (uint32_t square = kOne >> 1; n != 0; n >>= 1, square = Multiply(square, square)) {
    if ((n & 1) != 0) result = Multiply(result, square);
  }
  return result;
}

constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = TimesX(c);
    t[0][i] = c;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
  }
  return t;
}
constexpr auto kTables = MakeTables();

// x^(8 * 2^i) for the bits i of a length in bytes.
constexpr std::array<uint32_t, 64> MakeBytePowers() {
  std::array<uint32_t, 64> t{};
  t[0] = XPower(8);
  for (size_t i = 1; i < 64; ++i) t[i] = Multiply(t[i - 1], t[i - 1]);
  return t;
}
constexpr auto kBytePowers = MakeBytePowers();

uint64_t Load64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace

namespace internal {

uint32_t Crc32cExtendTable(uint32_t crc, const void* data, size_t size) {
  const auto* p = static_cast<const uint8_t*>(data);
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    const uint32_t a =
        crc ^ (static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
               static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24);
    crc = kTables[7][a & 0xff] ^ kTables[6][(a >> 8) & 0xff] ^ kTables[5][(a >> 16) & 0xff] ^
          kTables[4][a >> 24] ^ kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^
          kTables[0][p[7]];
  }
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)

bool Crc32cHasSse42() {
  return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0;
}
bool Crc32cHasAvx512() {
  return Crc32cHasSse42() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
}

namespace {

constexpr size_t kLaneWordsMax = 64;
// What 3 KB take to check is as long as memory takes to answer.
constexpr size_t kAheadBytes = 3072;

// The carry-less product of two reflected 32-bit polynomials, read as a 64-bit message, stands for
// a * b * x, and the crc instruction multiplies by another x^32. So the factor for moving a lane
// over m words (64m bits) is x^(64m - 33). Index m.
constexpr std::array<uint32_t, 2 * kLaneWordsMax + 1> MakeLanePowers() {
  std::array<uint32_t, 2 * kLaneWordsMax + 1> t{};
  t[1] = XPower(64 - 33);
  const uint32_t step = XPower(64);
  for (size_t m = 2; m < t.size(); ++m) t[m] = Multiply(t[m - 1], step);
  return t;
}
constexpr auto kLanePowers = MakeLanePowers();

__attribute__((target("sse4.2,pclmul"))) inline uint64_t ClMul(uint32_t a, uint32_t b) {
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_clmulepi64_si128(
      _mm_cvtsi32_si128(static_cast<int>(a)), _mm_cvtsi32_si128(static_cast<int>(b)), 0)));
}

// `crc` and the result are unfinished (not inverted).
__attribute__((target("sse4.2,pclmul"))) uint32_t ExtendRawSse42(uint32_t crc, const uint8_t* p,
                                                                 size_t size) {
  // The instruction has a latency of three cycles and a throughput of one: three lanes fill it.
  while (size >= 96) {
    size_t words = size / 24;
    if (words > kLaneWordsMax) words = kLaneWordsMax;
    const uint8_t* a = p;
    const uint8_t* b = a + words * 8;
    const uint8_t* c = b + words * 8;
    uint64_t crc_a = crc;
    uint64_t crc_b = 0;
    uint64_t crc_c = 0;
    const auto step = [&](size_t at) __attribute__((always_inline, target("sse4.2,pclmul"))) {
      crc_a = _mm_crc32_u64(crc_a, Load64(a + at));
      crc_b = _mm_crc32_u64(crc_b, Load64(b + at));
      crc_c = _mm_crc32_u64(crc_c, Load64(c + at));
    };
    // Three lanes are not the one stream that processors fetch ahead by themselves. What lies
    // behind the end is mostly what is checked next.
    auto ahead = reinterpret_cast<uintptr_t>(p) + kAheadBytes;
    size_t i = 0;
    for (; i + kCacheLineBytes / 8 <= words; i += kCacheLineBytes / 8) {
      for (int lane = 0; lane < 3; ++lane, ahead += kCacheLineBytes) {
        Prefetch(reinterpret_cast<const void*>(ahead));
      }
#pragma GCC unroll 8
      for (size_t at = 0; at < kCacheLineBytes; at += 8) step(at);
      a += kCacheLineBytes;
      b += kCacheLineBytes;
      c += kCacheLineBytes;
    }
    for (; i < words; ++i, a += 8, b += 8, c += 8) step(0);
    const uint64_t moved = ClMul(static_cast<uint32_t>(crc_a), kLanePowers[2 * words]) ^
                           ClMul(static_cast<uint32_t>(crc_b), kLanePowers[words]);
    crc = static_cast<uint32_t>(crc_c ^ _mm_crc32_u64(0, moved));
    p += words * 24;
    size -= words * 24;
  }
  uint64_t crc64 = crc;
  for (; size >= 8; size -= 8, p += 8) crc64 = _mm_crc32_u64(crc64, Load64(p));
  crc = static_cast<uint32_t>(crc64);
  for (; size > 0; --size, ++p) crc = _mm_crc32_u8(crc, *p);
  return crc;
}

// A 128-bit lane of a register holds 16 message bytes: high-order coefficients in its low half. To
// move it over `bits` of message, the low half is multiplied by x^(bits + 64) and the high half by
// x^bits; a factor of 32 bits in the low half of a 64-bit operand counts x^32 times and the product
// once more x, hence the 33.
constexpr uint64_t FoldLow(uint64_t bits) { return XPower(bits + 64 - 33); }
constexpr uint64_t FoldHigh(uint64_t bits) { return XPower(bits - 33); }

#define TAILCAST_AVX512 __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

TAILCAST_AVX512 inline __m512i Fold(__m512i x, __m512i factors, __m512i next) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, factors, 0x00),
                                   _mm512_clmulepi64_epi128(x, factors, 0x11), next, 0x96);
}
TAILCAST_AVX512 inline __m512i Factors(uint64_t bits_low, uint64_t bits_high) {
  return _mm512_set_epi64(static_cast<int64_t>(bits_high), static_cast<int64_t>(bits_low),
                          static_cast<int64_t>(bits_high), static_cast<int64_t>(bits_low),
                          static_cast<int64_t>(bits_high), static_cast<int64_t>(bits_low),
                          static_cast<int64_t>(bits_high), static_cast<int64_t>(bits_low));
}

TAILCAST_AVX512 uint32_t ExtendRawAvx512(uint32_t crc, const uint8_t* p, size_t size) {
  constexpr uint64_t k64Low = FoldLow(512), k64High = FoldHigh(512);
  constexpr uint64_t k128Low = FoldLow(1024), k128High = FoldHigh(1024);
  constexpr uint64_t k192Low = FoldLow(1536), k192High = FoldHigh(1536);
  constexpr uint64_t k256Low = FoldLow(2048), k256High = FoldHigh(2048);
  constexpr uint64_t k16Low = FoldLow(128), k16High = FoldHigh(128);
  constexpr uint64_t k32Low = FoldLow(256), k32High = FoldHigh(256);
  constexpr uint64_t k48Low = FoldLow(384), k48High = FoldHigh(384);

  if (size < 256) return ExtendRawSse42(crc, p, size);
  __m512i x0 = _mm512_loadu_si512(p);
  __m512i x1 = _mm512_loadu_si512(p + 64);
  __m512i x2 = _mm512_loadu_si512(p + 128);
  __m512i x3 = _mm512_loadu_si512(p + 192);
  x0 = _mm512_xor_si512(x0, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  p += 256;
  size -= 256;
  const __m512i by256 = Factors(k256Low, k256High);
  for (; size >= 256; size -= 256, p += 256) {
    x0 = Fold(x0, by256, _mm512_loadu_si512(p));
    x1 = Fold(x1, by256, _mm512_loadu_si512(p + 64));
    x2 = Fold(x2, by256, _mm512_loadu_si512(p + 128));
    x3 = Fold(x3, by256, _mm512_loadu_si512(p + 192));
  }
  x3 = Fold(x2, Factors(k64Low, k64High), x3);
  x3 = Fold(x1, Factors(k128Low, k128High), x3);
  x3 = Fold(x0, Factors(k192Low, k192High), x3);
  const __m512i by64 = Factors(k64Low, k64High);
  for (; size >= 64; size -= 64, p += 64) x3 = Fold(x3, by64, _mm512_loadu_si512(p));

  // The four lanes of x3, first to last: the last stays, the others move over 48, 32, 16 bytes.
  const __m512i by_lane =
      _mm512_set_epi64(0, 0, static_cast<int64_t>(k16High), static_cast<int64_t>(k16Low),
                       static_cast<int64_t>(k32High), static_cast<int64_t>(k32Low),
                       static_cast<int64_t>(k48High), static_cast<int64_t>(k48Low));
  const __m512i last = _mm512_maskz_mov_epi64(0xc0, x3);
  const __m512i sums = Fold(x3, by_lane, last);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sums);
  const uint64_t low = words[0] ^ words[2] ^ words[4] ^ words[6];
  const uint64_t high = words[1] ^ words[3] ^ words[5] ^ words[7];
  crc = static_cast<uint32_t>(_mm_crc32_u64(_mm_crc32_u64(0, low), high));
  return size > 0 ? ExtendRawSse42(crc, p, size) : crc;
}

}  // namespace

uint32_t Crc32cExtendSse42(uint32_t crc, const void* data, size_t size) {
  return ~ExtendRawSse42(~crc, static_cast<const uint8_t*>(data), size);
}
uint32_t Crc32cExtendAvx512(uint32_t crc, const void* data, size_t size) {
  return ~ExtendRawAvx512(~crc, static_cast<const uint8_t*>(data), size);
}

#else

bool Crc32cHasSse42() { return false; }
bool Crc32cHasAvx512() { return false; }
uint32_t Crc32cExtendSse42(uint32_t crc, const void* data, size_t size) {
  return Crc32cExtendTable(crc, data, size);
}
uint32_t Crc32cExtendAvx512(uint32_t crc, const void* data, size_t size) {
  return Crc32cExtendTable(crc, data, size);
}

#endif

}  // namespace internal

uint32_t Crc32cExtend(uint32_t crc, const void* data, size_t size) {
  using Extend = uint32_t (*)(uint32_t, const void*, size_t);
  static const Extend extend = internal::Crc32cHasAvx512()  ? internal::Crc32cExtendAvx512
                               : internal::Crc32cHasSse42() ? internal::Crc32cExtendSse42
                                                            : internal::Crc32cExtendTable;
  return extend(crc, data, size);
}

uint32_t Crc32cCombine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
  for (size_t i = 0; size_b != 0; ++i, size_b >>= 1) {
    if ((size_b & 1) != 0) crc_a = Multiply(crc_a, kBytePowers[i]);
  }
  return crc_a ^ crc_b;
}

}  // namespace tailcast
