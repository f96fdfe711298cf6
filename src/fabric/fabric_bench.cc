// How many one-sided reads does a driver do, and what do they cost the server?
//
//   ./dev bench fabric
//
// Shm: one thread reads 4 KB chunks at random out of a working set that fits in the L2 cache and of
// one that fits in none; expect a copy's time, at least 2.5 million reads/s hot. Tcp over loopback:
// one endpoint keeps `depth` reads outstanding, in batches; server, engine and reader share the
// machine's cores; expect at least 600 thousand reads/s at depth 64 on a quiet machine.
// `server_us`, `engine_us` and `loop_us` are the CPU time of the exporter's thread, of the
// connector's and of the reader's for each read: they hold on a busy machine, too.  Notify: what
// the server pays for a doorbell. TcpGiveUpWatches: the same cost of each, however many they are.
//
// DriverRead, DriverWatch: the same of every driver, verbs where there is a device
// (TAILCAST_TEST_VERBS_HOST; `./dev bench fabric` has soft ones, bench/fabric/run.py). Reads of a
// chunk one at a time: p50, p99 and the server's CPU for each; expect less than 1 us on shm, 20 to
// 60 on tcp over loopback. Doorbells: 64 are watched, rung and watched again; watches/s and the
// server's CPU for each.
#include <benchmark/benchmark.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/base/thread_times.h"
#include "tailcast/fabric/connect.h"

namespace tailcast::fabric {
namespace {

constexpr uint32_t kChunk = 4096;

// CPU time of the thread of this process with that name, in microseconds.
double ThreadCpuUs(std::string_view name) {
  return static_cast<double>(CpuOfThreadsNamed(name).value_or(Duration()).micros());
}

double OwnCpuUs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

struct Served {
  explicit Served(const std::string& driver, uint64_t size) {
    ExporterOptions options;
    if (driver == "shm") {
      options.shm_socket_path = (std::filesystem::temp_directory_path() /
                                 ("fabric_bench." + std::to_string(getpid()) + ".sock"))
                                    .string();
    } else if (driver == "verbs") {
      options.verbs_host = std::getenv("TAILCAST_TEST_VERBS_HOST");
    } else {
      options.tcp_listen = "127.0.0.1:0";
    }
    exporter = MakeExporter(options);
    memory = exporter->AddRegion(0, size).value();
    std::memset(memory.data(), 'x', memory.size());
    address = exporter->Listen().value().front();
    connector = MakeConnector(&loop);
  }
  std::unique_ptr<Endpoint> Connect() {
    std::unique_ptr<Endpoint> endpoint;
    connector->Connect(address, Duration::Seconds(10),
                       scope.Bind([&](auto r) { endpoint = std::move(r).value(); }));
    loop.RunUntil([&] { return endpoint != nullptr; },
                  ReadMonotonicClock() + Duration::Seconds(10));
    return endpoint;
  }
  ThreadLoop loop;
  std::unique_ptr<Exporter> exporter;
  std::span<char> memory;
  std::string address;
  std::unique_ptr<Connector> connector;
  Scope scope;
};

void ShmRead(benchmark::State& state) {
  const uint64_t working_set = static_cast<uint64_t>(state.range(0)) << 10;
  const size_t batch = static_cast<size_t>(state.range(1));
  Served server("shm", working_set);
  auto endpoint = server.Connect();
  std::vector<char> buffer(batch * kChunk);
  std::vector<ReadDescriptor> descriptors(batch);
  std::vector<Completion> completions(batch);
  Rng rng(1);
  for (auto _ : state) {
    for (size_t i = 0; i < batch; ++i) {
      descriptors[i] = {.region = 0,
                        .length = kChunk,
                        .offset = rng.Below(working_set / kChunk) * kChunk,
                        .destination = buffer.data() + i * kChunk,
                        .token = i};
    }
    endpoint->Read(descriptors);
    if (endpoint->Poll(completions) != batch || completions[0].status != ReadStatus::kOk) {
      state.SkipWithError("a read failed");
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * batch * kChunk));
}
BENCHMARK(ShmRead)
    ->ArgNames({"kb", "batch"})
    ->Args({256, 1})
    ->Args({256, 16})
    ->Args({16 << 10, 16})
    ->Args({1 << 20, 1})
    ->Args({1 << 20, 16});

// `depth` reads outstanding, started again in batches of at least depth / 4.
void TcpRead(benchmark::State& state) {
  const size_t depth = static_cast<size_t>(state.range(0));
  const uint32_t length = static_cast<uint32_t>(state.range(1));
  const uint64_t working_set = 16 << 20;
  Served server("tcp", working_set);
  auto endpoint = server.Connect();
  std::vector<char> buffer(depth * length);
  std::vector<ReadDescriptor> descriptors;
  std::vector<Completion> completions(depth);
  std::vector<uint64_t> free_slots;
  for (size_t i = 0; i < depth; ++i) free_slots.push_back(i);
  Rng rng(1);
  int64_t reads = 0;
  const double server_before = ThreadCpuUs("fabric-server");
  const double engine_before = ThreadCpuUs("fabric-client");
  const double loop_before = OwnCpuUs();
  for (auto _ : state) {
    if (free_slots.size() * 4 >= depth) {
      descriptors.clear();
      for (const uint64_t slot : free_slots) {
        descriptors.push_back({.region = 0,
                               .length = length,
                               .offset = rng.Below(working_set / kChunk) * kChunk,
                               .destination = buffer.data() + slot * length,
                               .token = slot});
      }
      free_slots.clear();
      endpoint->Read(descriptors);
    }
    size_t n = 0;
    server.loop.RunUntil([&] { return (n = endpoint->Poll(completions)) > 0; },
                         ReadMonotonicClock() + Duration::Seconds(10));
    for (size_t i = 0; i < n; ++i) {
      if (completions[i].status != ReadStatus::kOk) state.SkipWithError("a read failed");
      free_slots.push_back(completions[i].token);
    }
    reads += static_cast<int64_t>(n);
  }
  state.SetItemsProcessed(reads);
  state.SetBytesProcessed(reads * length);
  const double n = static_cast<double>(std::max<int64_t>(reads, 1));
  state.counters["server_us"] = (ThreadCpuUs("fabric-server") - server_before) / n;
  state.counters["engine_us"] = (ThreadCpuUs("fabric-client") - engine_before) / n;
  state.counters["loop_us"] = (OwnCpuUs() - loop_before) / n;
}
BENCHMARK(TcpRead)
    ->ArgNames({"depth", "bytes"})
    ->Args({1, 4096})
    ->Args({16, 4096})
    ->Args({64, 4096})
    ->Args({256, 4096})
    ->Args({1, 64})
    ->Args({64, 64})
    ->Args({256, 64})
    ->UseRealTime();

// Many readers watch one word, in connections of at most 2,000, and all give up at once, as when
// their time-outs come: the server's cost of each.
void TcpGiveUpWatches(benchmark::State& state) {
  const int64_t watchers = state.range(0);
  Served server("tcp", 1 << 20);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<std::pair<Endpoint*, uint64_t>> watches;
  uint32_t word;
  std::memcpy(&word, server.memory.data(), sizeof(word));
  const auto answer_reads = [&] {  // what was sent before them has been taken then
    for (const auto& endpoint : endpoints) {
      char byte;
      const ReadDescriptor read{.length = 1, .destination = &byte};
      endpoint->Read({&read, 1});
      Completion completion;
      server.loop.RunUntil(
          [&] {
            return endpoint->Poll({&completion, 1}) == 1;
          },
          ReadMonotonicClock() + Duration::Seconds(100));
      if (completion.status != ReadStatus::kOk) state.SkipWithError("a read failed");
    }
  };
  double server_us = 0;
  for (auto _ : state) {
    endpoints.clear();
    watches.clear();
    for (int64_t i = 0; i < watchers; ++i) {
      if (i % 2000 == 0) {
        endpoints.push_back(server.Connect());
        endpoints.back()->set_read_timeout(Duration::Seconds(100));
      }
      watches.emplace_back(endpoints.back().get(),
                           endpoints.back()->Watch(0, 0, word, Duration::Seconds(1000),
                                                   server.scope.Bind([](WatchOutcome) {})));
    }
    answer_reads();
    const double before = ThreadCpuUs("fabric-server");
    // The last come first: whoever looks through a list from its beginning finds them late.
    for (auto watch = watches.rbegin(); watch != watches.rend(); ++watch) {
      watch->first->CancelWatch(watch->second);
    }
    answer_reads();
    server_us += ThreadCpuUs("fabric-server") - before;
  }
  state.SetItemsProcessed(state.iterations() * watchers);
  state.counters["server_us"] = server_us / static_cast<double>(state.iterations() * watchers);
}
BENCHMARK(TcpGiveUpWatches)
    ->ArgName("watchers")
    ->Arg(100)
    ->Arg(10000)
    ->Iterations(3)
    ->UseRealTime();

// The server's cost of a notification: nobody connected, connected but nobody waiting, and waiting
// threads.
void Notify(benchmark::State& state) {
  Served server(state.range(0) == 0 ? "shm" : "tcp", 1 << 20);
  std::unique_ptr<Endpoint> endpoint;
  if (state.range(1) > 0) endpoint = server.Connect();
  for (auto _ : state) server.exporter->Notify(0, 64);
}
BENCHMARK(Notify)
    ->ArgNames({"tcp", "connected"})
    ->Args({0, 0})
    ->Args({0, 1})
    ->Args({1, 0})
    ->Args({1, 1});

// `waiters` loops sleep on one word; what does a change of it cost the server, and how long until
// all of them have seen it (real time of an iteration)?
void NotifyWaiters(benchmark::State& state) {
  const size_t waiters = static_cast<size_t>(state.range(0));
  Served server("shm", 1 << 20);
  struct Waiter {
    std::unique_ptr<LoopThread> thread;
    std::unique_ptr<Connector> connector;
    std::unique_ptr<Endpoint> endpoint;
    std::function<void(uint32_t)> watch;
    Scope scope;
  };
  std::vector<Waiter> all(waiters);
  std::atomic<uint64_t> seen{0};
  for (Waiter& w : all) {
    w.thread = std::make_unique<LoopThread>("waiter");
    w.thread->Call([&] {
      w.connector = MakeConnector(w.thread->loop());
      w.watch = [&](uint32_t last) {
        w.endpoint->Watch(0, 0, last, Duration::Seconds(100), w.scope.Bind([&, last](WatchOutcome) {
          w.watch(last + 1);
          ++seen;
        }));
      };
      w.connector->Connect(server.address, Duration::Seconds(10), w.scope.Bind([&](auto r) {
        w.endpoint = std::move(r).value();
        w.watch(0);
        ++seen;
      }));
    });
  }
  while (seen < waiters) std::this_thread::yield();
  uint32_t value = 0;
  double notify_us = 0;
  for (auto _ : state) {
    seen = 0;
    __atomic_store_n(reinterpret_cast<uint64_t*>(server.memory.data()), uint64_t{++value},
                     __ATOMIC_SEQ_CST);
    timespec before, after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    server.exporter->Notify(0, 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    notify_us += static_cast<double>(after.tv_sec - before.tv_sec) * 1e6 +
                 static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e3;
    while (seen < waiters) std::this_thread::yield();
  }
  state.counters["notify_us"] = notify_us / static_cast<double>(state.iterations());
  for (Waiter& w : all) {
    w.thread->Call([&] {
      w.endpoint.reset();
      w.connector.reset();
    });
  }
}
BENCHMARK(NotifyWaiters)->Arg(1)->Arg(8)->Arg(64)->UseRealTime();

// ---- every driver ----

double NowUs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

void DriverRead(benchmark::State& state, const std::string& driver) {
  constexpr uint64_t kWorkingSet = 4 << 20;
  Served server(driver, kWorkingSet);
  auto endpoint = server.Connect();
  char chunk[kChunk];
  Rng rng(1);
  std::vector<double> latencies;
  const double server_before = ThreadCpuUs("fabric-server");
  for (auto _ : state) {
    const ReadDescriptor read{.region = 0,
                              .length = kChunk,
                              .offset = rng.Below(kWorkingSet / kChunk) * kChunk,
                              .destination = chunk,
                              .token = 1};
    Completion completion;
    const double began = NowUs();
    endpoint->Read({&read, 1});
    const auto done = [&] { return endpoint->Poll({&completion, 1}) == 1; };
    if (!done()) server.loop.RunUntil(done, ReadMonotonicClock() + Duration::Seconds(10));
    latencies.push_back(NowUs() - began);
    if (completion.status != ReadStatus::kOk) state.SkipWithError("a read failed");
  }
  std::sort(latencies.begin(), latencies.end());
  const auto reads = static_cast<double>(latencies.size());
  state.SetItemsProcessed(state.iterations());
  state.counters["p50_us"] = latencies[latencies.size() / 2];
  state.counters["p99_us"] = latencies[latencies.size() * 99 / 100];
  state.counters["server_us"] = (ThreadCpuUs("fabric-server") - server_before) / reads;
}

void DriverWatch(benchmark::State& state, const std::string& driver) {
  constexpr uint64_t kWatches = 64;
  Served server(driver, 1 << 20);
  std::memset(server.memory.data(), 0, server.memory.size());
  auto endpoint = server.Connect();
  uint32_t value = 0;
  uint64_t rung = 0, unchanged = 0;
  const auto watch = [&](uint64_t offset) {
    endpoint->Watch(0, offset, value, Duration::Seconds(100),
                    server.scope.Bind([&](WatchOutcome outcome) {
                      ++rung;
                      unchanged += outcome != WatchOutcome::kChanged;
                    }));
  };
  const double server_before = ThreadCpuUs("fabric-server");
  for (auto _ : state) {
    rung = 0;
    for (uint64_t i = 0; i < kWatches; ++i) watch(i * 8);
    ++value;
    for (uint64_t i = 0; i < kWatches; ++i) {
      __atomic_store_n(reinterpret_cast<uint64_t*>(server.memory.data() + i * 8), uint64_t{value},
                       __ATOMIC_SEQ_CST);
      server.exporter->Notify(0, i * 8);
    }
    server.loop.RunUntil([&] { return rung == kWatches; },
                         ReadMonotonicClock() + Duration::Seconds(10));
    if (rung != kWatches || unchanged != 0) {
      state.SkipWithError("a doorbell did not ring");
      break;
    }
  }
  const auto watches = static_cast<double>(state.iterations() * kWatches);
  state.SetItemsProcessed(static_cast<int64_t>(watches));
  state.counters["server_us"] = (ThreadCpuUs("fabric-server") - server_before) / watches;
}

const bool g_registered = [] {
  for (const std::string driver : {"shm", "tcp", "verbs"}) {
    if (driver == "verbs" && std::getenv("TAILCAST_TEST_VERBS_HOST") == nullptr) continue;
    benchmark::RegisterBenchmark(("DriverRead/" + driver).c_str(), DriverRead, driver)
        ->UseRealTime();
    benchmark::RegisterBenchmark(("DriverWatch/" + driver).c_str(), DriverWatch, driver)
        ->UseRealTime();
  }
  return true;
}();

}  // namespace
}  // namespace tailcast::fabric
