#include "tailcast/fuzz/coverage.h"

#include <array>
#include <bit>
#include <vector>

// Defined by the linker: addresses count from here, so that they are the same in every process.
extern "C" const char __ehdr_start;

namespace tailcast::fuzz {
namespace {

constexpr size_t kEdges = 1 << 16;
constexpr size_t kComparisonsMax = 128;

thread_local bool t_counts = false;
uint32_t g_before = 0;  // the place before this one: with it a place is an edge
uint8_t g_passed[kEdges];
uint32_t g_touched[kEdges];
size_t g_touched_count = 0;
uint8_t g_seen[kEdges];  // a bit for each power of two
size_t g_edges_seen = 0;
Comparison g_comparisons[kComparisonsMax];
size_t g_comparison_count = 0;

inline void Pass(uintptr_t address) {
  if (!t_counts) return;
  const auto offset = static_cast<uint32_t>(address - reinterpret_cast<uintptr_t>(&__ehdr_start));
  const uint32_t place = (offset * 0x9e3779b1u) >> 16;
  const uint32_t edge = (place ^ g_before) & (kEdges - 1);
  g_before = place >> 1;
  if (g_passed[edge] == 0) g_touched[g_touched_count++] = edge;
  if (g_passed[edge] != UINT8_MAX) ++g_passed[edge];
}

inline void Compare(uint64_t left, uint64_t right, uint8_t bytes) {
  if (!t_counts || left == right) return;
  g_comparisons[g_comparison_count++ % kComparisonsMax] = {left, right, bytes};
}

}  // namespace

void BeginRun() {
  for (size_t i = 0; i < g_touched_count; ++i) g_passed[g_touched[i]] = 0;
  g_touched_count = 0;
  g_comparison_count = 0;
  g_before = 0;
  t_counts = true;
}

size_t EndRun() {
  t_counts = false;
  size_t news = 0;
  for (size_t i = 0; i < g_touched_count; ++i) {
    const uint32_t edge = g_touched[i];
    const auto bit = static_cast<uint8_t>(1u << (std::bit_width(g_passed[edge]) - 1));
    if ((g_seen[edge] & bit) != 0) continue;
    if (g_seen[edge] == 0) ++g_edges_seen;
    g_seen[edge] |= bit;
    ++news;
  }
  return news;
}

size_t EdgesSeen() { return g_edges_seen; }

std::span<const Comparison> Comparisons() {
  return {g_comparisons,
          g_comparison_count < kComparisonsMax ? g_comparison_count : kComparisonsMax};
}

}  // namespace tailcast::fuzz

using tailcast::fuzz::Compare;
using tailcast::fuzz::Pass;

// What the compiler calls.
extern "C" {
void __sanitizer_cov_trace_pc() { Pass(reinterpret_cast<uintptr_t>(__builtin_return_address(0))); }
void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b) { Compare(a, b, 1); }
void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b) { Compare(a, b, 2); }
void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b) { Compare(a, b, 4); }
void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b) { Compare(a, b, 8); }
void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b) { Compare(a, b, 1); }
void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b) { Compare(a, b, 2); }
void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b) { Compare(a, b, 4); }
void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b) { Compare(a, b, 8); }
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}
// cases: how many there are, their bits, then their values.
void __sanitizer_cov_trace_switch(uint64_t value, uint64_t* cases) {
  for (uint64_t i = 0; i < cases[0] && i < 16; ++i) {
    Compare(value, cases[2 + i], static_cast<uint8_t>(cases[1] / 8));
  }
}
}
