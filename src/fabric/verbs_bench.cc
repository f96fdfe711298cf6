// What does a read by RDMA cost beyond what libibverbs itself does?
//
//   ./dev bench fabric        bench/fabric/run.py runs it in a kernel with soft devices, too
//
// On a device (TAILCAST_TEST_VERBS_HOST): reads of 4 KB by the driver's endpoint, into memory that
// it registered and (Copied) into other memory, and by a bare loop of ibv_post_send and ibv_poll_cq
// over the same kind of queue pair, batch by batch. Soft
// devices copy each byte in the kernel, several times, and the server's kernel shares the core:
// what counts is the ratio of the two, and `server_sleeps`: how often the server's engine went to
// sleep, so was woken before; 0. FakeDriver, FakeBare: the same two over a provider that completes
// everything at once, so that what is left is the driver's own: bench/fabric/run.py counts their
// instructions by callgrind.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/raw_verbs.h"
#include "tailcast/fabric/verbs_reads_core.h"

namespace tailcast::fabric {
namespace {

constexpr uint32_t kChunk = 4096;
constexpr uint64_t kRegionBytes = 4 << 20;
constexpr Duration kPeerTimeout = Duration::Millis(1200);

// ---- over a device ----

int64_t ServerSleeps() {
  int64_t total = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm != "fabric-server") continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      int64_t n = 0;
      if (word == "voluntary_ctxt_switches:" && status >> n) total += n;
    }
  }
  return total;
}

struct Served {
  Served() {
    ExporterOptions options;
    options.verbs_host = std::getenv("TAILCAST_TEST_VERBS_HOST");
    options.peer_timeout = kPeerTimeout;
    exporter = MakeExporter(options);
    std::memset(exporter->AddRegion(0, kRegionBytes).value().data(), 'x', kRegionBytes);
    address = exporter->Listen().value().front();
    connector = MakeConnector(&loop);
  }
  ThreadLoop loop;
  std::unique_ptr<Exporter> exporter;
  std::string address;
  std::unique_ptr<Connector> connector;
  Scope scope;
};

void DriverReads(benchmark::State& state, bool registered) {
  const size_t batch = static_cast<size_t>(state.range(0));
  Served server;
  std::unique_ptr<Endpoint> endpoint;
  server.connector->Connect(server.address, Duration::Seconds(10),
                            server.scope.Bind([&](auto r) { endpoint = std::move(r).value(); }));
  server.loop.RunUntil([&] { return endpoint != nullptr; },
                       ReadMonotonicClock() + Duration::Seconds(10));
  const std::shared_ptr<char[]> buffer =
      registered ? endpoint->Allocate(batch * kChunk) : std::make_shared<char[]>(batch * kChunk);
  std::vector<ReadDescriptor> reads(batch);
  std::vector<Completion> completions(batch);
  Rng rng(1);
  server.loop.RunFor(kPeerTimeout / 2);  // its door looks once more after who came
  const int64_t sleeps = ServerSleeps();
  for (auto _ : state) {
    for (size_t i = 0; i < batch; ++i) {
      reads[i] = {.region = 0,
                  .length = kChunk,
                  .offset = rng.Below(kRegionBytes / kChunk) * kChunk,
                  .destination = buffer.get() + i * kChunk,
                  .token = i};
    }
    endpoint->Read(reads);
    size_t done = 0;
    while (done < batch) {  // polled, as in the bare loop
      const size_t n = endpoint->Poll(completions);
      for (size_t i = 0; i < n; ++i) {
        if (completions[i].status != ReadStatus::kOk) state.SkipWithError("a read failed");
      }
      done += n;
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch));
  state.counters["server_sleeps"] = static_cast<double>(ServerSleeps() - sleeps);
}
void Driver(benchmark::State& state) { DriverReads(state, /*registered=*/true); }
void Copied(benchmark::State& state) { DriverReads(state, /*registered=*/false); }

void Bare(benchmark::State& state) {
  const size_t batch = static_cast<size_t>(state.range(0));
  Served server;
  LetIn let_in(&server.loop, server.address);
  const VerbsOffer& offer = let_in.offer();
  RawQueuePair raw;
  if (raw.Connect(offer) != RDMA_CM_EVENT_ESTABLISHED) {
    state.SkipWithError("no connection");
    return;
  }
  std::vector<ibv_send_wr> works(batch);
  std::vector<ibv_sge> places(batch);
  Rng rng(1);
  for (auto _ : state) {
    for (size_t i = 0; i < batch; ++i) {
      places[i] = {.addr = reinterpret_cast<uintptr_t>(raw.arena.data()) + i * kChunk,
                   .length = kChunk,
                   .lkey = raw.key->lkey};
      works[i] = {};
      works[i].sg_list = &places[i];
      works[i].num_sge = 1;
      works[i].opcode = IBV_WR_RDMA_READ;
      works[i].next = i + 1 < batch ? &works[i + 1] : nullptr;
      works[i].send_flags = i + 1 < batch ? 0 : IBV_SEND_SIGNALED;
      works[i].wr.rdma.remote_addr =
          offer.regions[0].address + rng.Below(kRegionBytes / kChunk) * kChunk;
      works[i].wr.rdma.rkey = offer.regions[0].key;
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(raw.id->qp, works.data(), &bad) != 0) state.SkipWithError("post");
    ibv_wc done{};
    while (ibv_poll_cq(raw.cq.get(), 1, &done) == 0) {
    }
    if (done.status != IBV_WC_SUCCESS) state.SkipWithError("a read failed");
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch));
}

// ---- over a fake provider ----

constexpr Generation kGeneration{7};
uint64_t g_last_id = 0;
bool g_done = false;

// Carries out the control page only: the bytes of the others are the device's work.
int FakePostSend(ibv_qp*, ibv_send_wr* work, ibv_send_wr**) {
  while (work->next != nullptr) work = work->next;
  g_last_id = work->wr_id;
  g_done = true;
  if (work->sg_list->length == VerbsControlBytes(1)) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a work's address is a number
    std::memcpy(reinterpret_cast<char*>(work->sg_list->addr) + VerbsControlBytes(0), &kGeneration,
                sizeof(kGeneration));
  }
  return 0;
}
int FakePollCq(ibv_cq*, int, ibv_wc* done) {
  if (!g_done) return 0;
  g_done = false;
  done->wr_id = g_last_id;
  done->status = IBV_WC_SUCCESS;
  return 1;
}
int FakeNotifyCq(ibv_cq*, int) { return 0; }

struct FakeProvider {
  FakeProvider() {
    context.ops.post_send = FakePostSend;
    context.ops.poll_cq = FakePollCq;
    context.ops.req_notify_cq = FakeNotifyCq;
    qp.context = cq.context = &context;
    offer.regions = {{.address = 1 << 20, .key = 1, .reserved = 0}};
  }
  ibv_context context{};
  ibv_qp qp{};
  ibv_cq cq{};
  VerbsOffer offer;
  std::vector<char> arena = std::vector<char>(2 << 20);
};

void FakeDriver(benchmark::State& state) {
  const size_t batch = static_cast<size_t>(state.range(0));
  FakeProvider fake;
  VerbsPoster queue(&fake.qp, &fake.cq, fake.offer, 256);
  queue.AddMemory(fake.arena.data(), 1);
  VerbsReadsCore core({.regions = {{kRegionBytes, kGeneration}},
                       .works_max = 256,
                       .beat_timeout = Duration::Seconds(2),
                       .stall_timeout = Duration::Seconds(6)},
                      fake.arena);
  std::vector<char> buffer(batch * kChunk);
  queue.AddMemory(buffer.data(), 2);
  core.AddMemory(buffer);
  std::vector<ReadDescriptor> reads(batch);
  std::vector<Completion> completions(batch);
  const MonotonicTime now = ReadMonotonicClock();
  for (auto _ : state) {
    for (size_t i = 0; i < batch; ++i) {
      reads[i] = {.region = 0,
                  .length = kChunk,
                  .offset = i * kChunk,
                  .destination = buffer.data() + i * kChunk,
                  .token = i};
    }
    core.Read(now, Duration::Seconds(1), reads);
    queue.Arm();
    size_t polled = 0;
    while (polled < batch) {
      for (auto works = core.NextBatch(now); !works.empty(); works = core.NextBatch(now)) {
        queue.Post(works);
        VerbsDone done[16];
        const size_t n = queue.Poll(done);
        for (size_t i = 0; i < n; ++i) core.OnDone(now, done[i]);
      }
      polled += core.Poll(completions);
      if (completions[0].status != ReadStatus::kOk) state.SkipWithError("a read failed");
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch));
}

void FakeBare(benchmark::State& state) {
  const size_t batch = static_cast<size_t>(state.range(0));
  FakeProvider fake;
  std::vector<ibv_send_wr> works(batch);
  std::vector<ibv_sge> places(batch);
  for (auto _ : state) {
    for (size_t i = 0; i < batch; ++i) {
      places[i] = {.addr = reinterpret_cast<uintptr_t>(fake.arena.data()) + i * kChunk,
                   .length = kChunk,
                   .lkey = 1};
      works[i] = {};
      works[i].sg_list = &places[i];
      works[i].num_sge = 1;
      works[i].opcode = IBV_WR_RDMA_READ;
      works[i].next = i + 1 < batch ? &works[i + 1] : nullptr;
      works[i].send_flags = i + 1 < batch ? 0 : IBV_SEND_SIGNALED;
      works[i].wr.rdma.remote_addr = i * kChunk;
      works[i].wr.rdma.rkey = 1;
    }
    ibv_send_wr* bad = nullptr;
    ibv_post_send(&fake.qp, works.data(), &bad);
    ibv_wc done{};
    while (ibv_poll_cq(&fake.cq, 1, &done) == 0) {
    }
    benchmark::DoNotOptimize(done.status);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch));
}

// With TAILCAST_VERBS_BENCH_ITERATIONS each runs so often, so that two numbers of them tell what
// one more costs.
void Register(const char* name, void (*run)(benchmark::State&)) {
  const char* const iterations = std::getenv("TAILCAST_VERBS_BENCH_ITERATIONS");
  for (const int batch : {1, 16, 64}) {
    auto* one =
        benchmark::RegisterBenchmark(name, run)->ArgName("batch")->Arg(batch)->UseRealTime();
    if (iterations != nullptr) one->Iterations(std::atoi(iterations));
  }
}
const bool g_registered = [] {
  Register("FakeDriver", FakeDriver);
  Register("FakeBare", FakeBare);
  if (std::getenv("TAILCAST_TEST_VERBS_HOST") == nullptr) return true;
  Register("Driver", Driver);
  Register("Copied", Copied);
  // Of the server's sleeps in a hundred thousand reads.
  benchmark::RegisterBenchmark("DriverLong", Driver)
      ->ArgName("batch")
      ->Arg(64)
      ->Iterations(100'000 / 64 + 1)
      ->UseRealTime();
  Register("Bare", Bare);
  return true;
}();

}  // namespace
}  // namespace tailcast::fabric
