// What does the posix driver add to the disk? Each round appends to four files in turn: bare pwrite
// + fdatasync, twice the same for the noise of the machine, the driver's steps, and the Store with
// its threads and loop. The driver writes one page more (its slot) under the same flush.
//
//   ./dev bench storage [--benchmark_filter=...]     TAILCAST_BENCH_DIR=/some/disk, or /tmp
//
// Expect the driver within 20 % of bare at 4 KB, and the store about 50 us more (two thread
// switches). Reading: Size is a load from shared memory, a warm read one pread and two thread
// switches.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "tailcast/base/histogram.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/posix_file.h"
#include "tailcast/storage/posix_store.h"
#include "tailcast/storage/store_bench.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {
namespace {

class BareFile {
 public:
  explicit BareFile(const std::string& path)
      : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    TAILCAST_CHECK(fd_ >= 0, path);
  }
  ~BareFile() { close(fd_); }
  void Append(const std::string& bytes) {
    TAILCAST_CHECK(
        pwrite(fd_, bytes.data(), bytes.size(), end_) == static_cast<ssize_t>(bytes.size()),
        "pwrite");
    TAILCAST_CHECK(fdatasync(fd_) == 0, "fdatasync");
    end_ += static_cast<int64_t>(bytes.size());
  }

 private:
  const int fd_;
  int64_t end_ = 0;
};

void AppendAndFlush(benchmark::State& state) {
  BenchFolder folder;
  ThreadLoop loop;
  auto store = PosixStore::Open(&loop, folder.path()).value();
  SyncStore sync(store.get(), [&](const std::function<bool()>& done) {
    return loop.RunUntil(done, loop.Now() + Duration::Seconds(60));
  });
  const auto ops = OpenFileOps(folder.path()).value();
  posix::Context context;
  context.ops = ops.get();
  auto steps = posix::CreateExclusive(context, "d", "steps", "steps").value();
  auto file = sync.Create("d", "store", "store").value();
  BareFile bare(folder.path() + "/bare"), twin(folder.path() + "/twin");
  const std::string bytes(static_cast<size_t>(state.range(0)), 'x');
  Histogram bare_us, twin_us, steps_us, store_us;
  const auto time = [](Histogram& h, auto&& run) {
    const int64_t start = Micros();
    run();
    h.Record(Micros() - start);
  };
  for (auto _ : state) {
    time(bare_us, [&] { bare.Append(bytes); });
    time(steps_us, [&] {
      TAILCAST_CHECK(steps->Append(bytes).outcome == AppendOutcome::kApplied, "append");
    });
    time(twin_us, [&] { twin.Append(bytes); });
    time(store_us, [&] {
      TAILCAST_CHECK(sync.Append(*file, bytes).outcome == AppendOutcome::kApplied, "append");
    });
  }
  Report(state, "bare", bare_us);
  Report(state, "twin", twin_us);
  Report(state, "steps", steps_us);
  Report(state, "store", store_us);
}
BENCHMARK(AppendAndFlush)
    ->Arg(4096)
    ->Arg(65536)
    ->Arg(1 << 20)
    ->Iterations(400)
    ->Unit(benchmark::kMicrosecond);

// Two files of a pair flushed one after the other, as a producer does: index after data.
void AppendToManyFilesAtOnce(benchmark::State& state) {
  BenchFolder folder;
  ThreadLoop loop;
  auto store = PosixStore::Open(&loop, folder.path()).value();
  SyncStore sync(store.get(), [&](const std::function<bool()>& done) {
    return loop.RunUntil(done, loop.Now() + Duration::Seconds(60));
  });
  std::vector<std::unique_ptr<AppendFile>> files;
  for (int64_t i = 0; i < state.range(0); ++i) {
    const std::string name = "f" + std::to_string(i);
    files.push_back(sync.Create("d", name, name).value());
  }
  Histogram us;
  const std::string bytes(4096, 'x');
  for (auto _ : state) AppendToAll(sync.turn(), Pointers(files), bytes, us);
  Report(state, "append", us);
  state.counters["appends_per_s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}
BENCHMARK(AppendToManyFilesAtOnce)
    ->Arg(2)
    ->Arg(16)
    ->Arg(64)
    ->Iterations(50)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

void SizeAndRead(benchmark::State& state) {
  BenchFolder folder;
  ThreadLoop loop;
  PosixStoreOptions options;
  options.durability = posix::Durability::kPageCache;
  auto store = PosixStore::Open(&loop, folder.path(), options).value();
  SyncStore sync(store.get(), [&](const std::function<bool()>& done) {
    return loop.RunUntil(done, loop.Now() + Duration::Seconds(60));
  });
  auto file = sync.Create("d", "f", "k").value();
  sync.Append(*file, std::string(1 << 20, 'x'));
  auto reader = sync.Open("d", "f").value();
  Histogram size_us, read_us;
  int64_t offset = 0;
  for (auto _ : state) {
    int64_t start = Micros();
    benchmark::DoNotOptimize(sync.Size(*reader));
    size_us.Record(Micros() - start);
    start = Micros();
    benchmark::DoNotOptimize(sync.Read(*reader, offset, state.range(0)));
    read_us.Record(Micros() - start);
    offset = (offset + state.range(0)) % (1 << 19);
  }
  Report(state, "size", size_us);
  Report(state, "read", read_us);
}
BENCHMARK(SizeAndRead)->Arg(4096)->Arg(65536)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace tailcast::storage
