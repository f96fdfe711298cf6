// What do reads and writes of the cache cost, whom, and how long do they take: by the client over
// shared memory and over tcp, by the fabric alone, and by libmemcached from a memcached server?
//
//   ./dev bench cache [--seconds=2] [--cache_mb=2560] [--benchmark_filter=Read]
//                     [--benchmark_out=FILE --benchmark_out_format=json]
//
// The servers are processes of their own (bench_cell.h, memcached_rows.cc), so that their CPU time
// is told apart: for each item, server_us is theirs, loop_us that of the thread that turns the
// client's loop, client_us that of all of the client's threads. Rows named Beside and MutateChunks
// take --seconds for each of their stretches, the others --benchmark_min_time. bench/README.md says
// what each row means and what to expect.
//
// Back of the envelope, a chunk of 4 KB over shm, hot: copy 4160 B at 20 GB/s = 0.2 us, crc at
// 0.02 ns/B = 0.1 us, two lines of index and the calls 0.1 us. A write goes to three replicas, each
// with a message there and one back, a wake-up of some 5 us at either end, and a copy and a crc of
// its own.
#include <sys/prctl.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

#include "benchmark/benchmark.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/rng.h"
#include "tailcast/cache/bench_asked.h"
#include "tailcast/cache/bench_cell.h"

namespace tailcast::cache {
namespace {

// The floor of a read: copy and checksum of the same bytes in this process.
void CopyAndChecksum(benchmark::State& state) {
  const uint64_t chunks = static_cast<uint64_t>(state.range(0)) * 1024 * 1024 / kBenchChunk;
  std::vector<char> memory(chunks * kBenchChunk, 'x'), buffer(kBenchChunk * 16);
  Rng rng(2);
  uint32_t sum = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < 16; ++i) {
      char* const to = buffer.data() + i * kBenchChunk;
      std::memcpy(to, memory.data() + rng.Below(chunks) * kBenchChunk, kBenchChunk);
      sum += Crc32cExtend(0, to, kBenchChunk);
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations() * 16);
}
BENCHMARK(CopyAndChecksum)->ArgName("MB")->Arg(16)->Arg(256)->Arg(1024);

// Takes our own options out of the arguments. False: one of them is wrong.
bool TakeOptions(int& count, char** arguments, BenchOptions& options) {
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name != "--seconds" && name != "--cache_mb") {
      arguments[kept++] = arguments[i];
      continue;
    }
    const double value = equals == std::string::npos ? 0 : std::atof(word.c_str() + equals + 1);
    if (value <= 0 || (name == "--cache_mb" && value < kBenchCacheMbMin)) {
      std::cerr << word << ": wants =NUMBER, " << name
                << (name == "--seconds" ? " above 0\n" : " of 2304 or more\n");
      return false;
    }
    if (name == "--seconds") options.seconds = value;
    if (name == "--cache_mb") options.cache_mb = static_cast<uint64_t>(value);
  }
  count = kept;
  return true;
}

int Main(int count, char** arguments) {
  prctl(PR_SET_TIMERSLACK, 1);  // due is due, also in the servers
  if (count > 1 && std::string_view(arguments[1]) == "--serve") {
    return ServeBenchCell(count - 2, arguments + 2);
  }
  if (!TakeOptions(count, arguments, TheBenchOptions())) return 2;
  bool for_people = true;
  for (int i = 1; i < count; ++i) {
    for_people = for_people && !std::string_view(arguments[i]).starts_with("--benchmark_format");
  }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  if (for_people) {
    AskedTable shown{
        std::unique_ptr<benchmark::BenchmarkReporter>(benchmark::CreateDefaultDisplayReporter())};
    benchmark::RunSpecifiedBenchmarks(&shown);
  } else {
    benchmark::RunSpecifiedBenchmarks();
  }
  benchmark::Shutdown();
  EndBenchCell();
  return 0;
}

}  // namespace
}  // namespace tailcast::cache

int main(int count, char** arguments) { return tailcast::cache::Main(count, arguments); }
