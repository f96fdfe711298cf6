// How fast is the checksum of one cached chunk? Expect at 4 KB, on a server core of 2023: tables
// 2 GB/s, SSE4.2 (8 bytes a cycle) 25 GB/s, AVX-512 60 GB/s and more; and of what is in no cache of
// the processor what memory gives to one core, 5 to 15 GB/s.
//   ./dev bench base
#include <benchmark/benchmark.h>

#include <string>

#include "tailcast/base/crc32c.h"

namespace tailcast {
namespace {

template <uint32_t (*Extend)(uint32_t, const void*, size_t)>
void Run(benchmark::State& state) {
  if ((Extend == internal::Crc32cExtendAvx512 && !internal::Crc32cHasAvx512()) ||
      (Extend == internal::Crc32cExtendSse42 && !internal::Crc32cHasSse42())) {
    state.SkipWithError("this machine lacks the instructions");
    return;
  }
  const std::string bytes(static_cast<size_t>(state.range(0)), 'x');
  uint32_t crc = 0;
  for (auto _ : state) {
    crc = Extend(crc, bytes.data(), bytes.size());
    benchmark::DoNotOptimize(crc);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}
// Pieces of a long buffer, one behind the other.
void Cold(benchmark::State& state) {
  const std::string bytes(256 << 20, 'x');
  const auto piece = static_cast<size_t>(state.range(0));
  size_t at = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Crc32cExtend(0, bytes.data() + at, piece));
    at = at + 2 * piece <= bytes.size() ? at + piece : 0;
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}
void Combine(benchmark::State& state) {
  uint32_t crc = 1;
  for (auto _ : state) {
    crc = Crc32cCombine(crc, 12345, static_cast<uint64_t>(state.range(0)));
    benchmark::DoNotOptimize(crc);
  }
}
BENCHMARK(Run<Crc32cExtend>)->Name("chosen")->Arg(32)->Arg(128)->Arg(512)->Arg(4096)->Arg(65536);
BENCHMARK(Run<internal::Crc32cExtendAvx512>)->Name("avx512")->Arg(512)->Arg(4096);
BENCHMARK(Run<internal::Crc32cExtendSse42>)->Name("sse42")->Arg(512)->Arg(4096);
BENCHMARK(Run<internal::Crc32cExtendTable>)->Name("table")->Arg(4096);
BENCHMARK(Cold)->Name("cold")->Arg(4096)->Arg(32768);
BENCHMARK(Combine)->Arg(4095);

}  // namespace
}  // namespace tailcast
