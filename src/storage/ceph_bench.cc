// What does the rolled driver add to RADOS, and what does the port cost on each layer? On a cluster
// of three OSDs that the benchmark starts from Debian's packages (src/app/ceph_cluster.sh) and
// stops again. One run has, in turn: the store on posix, plain librados appends of the same bytes
// to as many objects (twice, for the noise of the machine), and the store on Ceph.
//
//   ./dev bench storage [--benchmark_filter=Ceph...]   TAILCAST_BENCH_DIR=/some/disk, or /tmp
//   TAILCAST_BENCH_CEPH=/path/ceph.conf                an existing cluster, where pools may be made
//
// Asked: the store's median at most 1.3 times the plain one's (an append is one request: the
// guards of epoch and length and the new length travel with the bytes); a fence at most 20 ms (4
// requests, one after the other); 10,000 names in at most 100 ms (10 answers); threads that do not
// grow with files.
#include <benchmark/benchmark.h>
#include <rados/librados.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tailcast/base/histogram.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/open_store.h"
#include "tailcast/storage/rolled_format.h"
#include "tailcast/storage/store_bench.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {
namespace {

void Run(const std::string& command) {
  TAILCAST_CHECK(std::system(command.c_str()) == 0, command);  // NOLINT(concurrency-mt-unsafe)
}

// The folder, the cluster and the pool of this run.
class Place {
 public:
  Place() {
    if (const char* conf = std::getenv("TAILCAST_BENCH_CEPH"); conf != nullptr) {
      conf_ = conf;
    } else {
      own_ = folder_.path() + "/ceph";
      conf_ = own_ + "/ceph.conf";
      Run("src/app/ceph_cluster.sh start " + own_);
    }
    pool_ = "bench" + std::to_string(getpid());
    Ceph("osd pool create " + pool_ + " 8");
  }
  ~Place() {
    if (own_.empty()) {
      Ceph("osd pool delete " + pool_ + " " + pool_ + " --yes-i-really-really-mean-it");
    } else {
      Run("src/app/ceph_cluster.sh kill " + own_);
    }
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // Names of files and objects are never used twice.
  std::string New() { return "n" + std::to_string(++last_); }
  StoreUrl Url(bool ceph) const {
    return ParseStoreUrl(ceph ? "ceph:" + conf_ + "?pool=" + pool_
                              : "posix:" + folder_.path() + "/posix")
        .value();
  }
  const std::string& conf() const { return conf_; }
  const std::string& pool() const { return pool_; }

 private:
  void Ceph(const std::string& command) const {
    Run("ceph -c " + conf_ + " " + command + " >/dev/null 2>&1");
  }
  const BenchFolder folder_;
  std::string own_, conf_, pool_;
  int last_ = 0;
};

Place& ThePlace() {
  static Place place;
  return place;
}

// A process' store.
class Client {
 public:
  explicit Client(bool ceph)
      : store_(OpenStore(&loop_, ThePlace().Url(ceph)).value()),
        sync_(store_.get(), [this](const auto& done) { return Turn(done); }) {}
  bool Turn(const std::function<bool()>& done) {
    return loop_.RunUntil(done, loop_.Now() + Duration::Seconds(120));
  }
  Store& store() { return *store_; }
  SyncStore& sync() { return sync_; }

 private:
  ThreadLoop loop_;
  std::unique_ptr<Store> store_;
  SyncStore sync_;
};

// Appends of bare librados, with nothing of ours in between.
class PlainCeph {
 public:
  PlainCeph() {
    TAILCAST_CHECK(rados_create2(&cluster_, "ceph", "client.admin", 0) == 0, "librados");
    TAILCAST_CHECK(rados_conf_read_file(cluster_, ThePlace().conf().c_str()) == 0, "ceph.conf");
    TAILCAST_CHECK(rados_connect(cluster_) == 0, "connect");
    TAILCAST_CHECK(rados_ioctx_create(cluster_, ThePlace().pool().c_str(), &io_) == 0, "pool");
  }
  ~PlainCeph() {
    rados_ioctx_destroy(io_);
    rados_shutdown(cluster_);
  }
  PlainCeph(const PlainCeph&) = delete;
  PlainCeph& operator=(const PlainCeph&) = delete;
  rados_ioctx_t io() const { return io_; }

  // The same bytes to each object, all at once.
  void Append(const std::vector<std::string>& objects, const std::string& bytes, Histogram& us) {
    struct Call {
      PlainCeph* plain;
      Histogram* us;
      int64_t begun;
    };
    std::vector<Call> calls(objects.size());
    std::vector<rados_completion_t> completions(objects.size());
    left_ = objects.size();
    for (size_t i = 0; i < objects.size(); ++i) {
      calls[i] = {this, &us, Micros()};
      rados_aio_create_completion2(
          &calls[i],
          [](rados_completion_t completion, void* argument) {
            const auto* call = static_cast<Call*>(argument);
            TAILCAST_CHECK(rados_aio_get_return_value(completion) == 0, "append");
            const int64_t took = Micros() - call->begun;
            const std::lock_guard lock(call->plain->mutex_);
            call->us->Record(took);
            if (--call->plain->left_ == 0) call->plain->done_.notify_one();
          },
          &completions[i]);
      TAILCAST_CHECK(rados_aio_append(io_, objects[i].c_str(), completions[i], bytes.data(),
                                      bytes.size()) == 0,
                     "append");
    }
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
    lock.unlock();
    for (rados_completion_t completion : completions) rados_aio_release(completion);
  }

  // What a fence asks of the store, bare: two looks, a change, and a change and a look at once.
  void Fence(const std::string& folder, const std::string& manifest, const std::string& object,
             Histogram& us, Histogram& look_us, Histogram& change_us) {
    const int64_t begun = Micros();
    Look(folder, look_us);
    Look(manifest, look_us);
    Change(manifest, change_us);
    rados_completion_t changed = nullptr, looked = nullptr;
    rados_write_op_t change = NewChange();
    TAILCAST_CHECK(
        rados_aio_create_completion2(nullptr, nullptr, &changed) == 0 &&
            rados_aio_write_op_operate(change, io_, changed, object.c_str(), nullptr, 0) == 0,
        "change");
    rados_xattrs_iter_t attributes = nullptr;
    int result = 0;
    rados_read_op_t look = rados_create_read_op();
    rados_read_op_getxattrs(look, &attributes, &result);
    TAILCAST_CHECK(rados_aio_create_completion2(nullptr, nullptr, &looked) == 0 &&
                       rados_aio_read_op_operate(look, io_, looked, object.c_str(), 0) == 0,
                   "look");
    for (rados_completion_t completion : {changed, looked}) {
      rados_aio_wait_for_complete(completion);
      TAILCAST_CHECK(rados_aio_get_return_value(completion) == 0, "fence");
      rados_aio_release(completion);
    }
    rados_getxattrs_end(attributes);
    rados_release_read_op(look);
    rados_release_write_op(change);
    us.Record(Micros() - begun);
  }
  void Change(const std::string& object, Histogram& us) {
    rados_write_op_t change = NewChange();
    const int64_t begun = Micros();
    TAILCAST_CHECK(rados_write_op_operate(change, io_, object.c_str(), nullptr, 0) == 0, "change");
    us.Record(Micros() - begun);
    rados_release_write_op(change);
  }

 private:
  static rados_write_op_t NewChange() {
    rados_write_op_t change = rados_create_write_op();
    rados_write_op_setxattr(change, "e", "12345678", 8);
    return change;
  }
  void Look(const std::string& object, Histogram& us) {
    const int64_t begun = Micros();
    rados_xattrs_iter_t attributes = nullptr;
    TAILCAST_CHECK(rados_getxattrs(io_, object.c_str(), &attributes) == 0, "look");
    us.Record(Micros() - begun);
    rados_getxattrs_end(attributes);
  }

  rados_t cluster_ = nullptr;
  rados_ioctx_t io_ = nullptr;
  std::mutex mutex_;
  std::condition_variable done_;
  size_t left_ = 0;  // guarded by mutex_
};

std::vector<std::unique_ptr<AppendFile>> Create(Client& client, size_t count) {
  std::vector<std::unique_ptr<AppendFile>> files;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = ThePlace().New();
    files.push_back(client.sync().Create("d", name, name).value());
  }
  return files;
}

// Bytes, files at once.
void CephAppendAndFlush(benchmark::State& state) {
  const std::string bytes(static_cast<size_t>(state.range(0)), 'x');
  const auto count = static_cast<size_t>(state.range(1));
  Client posix(false), ceph(true);
  PlainCeph plain;
  const auto posix_files = Create(posix, count), ceph_files = Create(ceph, count);
  std::vector<std::string> objects;
  for (size_t i = 0; i < count; ++i) objects.push_back(ThePlace().New());
  Histogram posix_us, plain_us, again_us, ceph_us, warm;
  plain.Append(objects, bytes, warm);
  AppendToAll(ceph.sync().turn(), Pointers(ceph_files), bytes, warm);
  for (auto _ : state) {
    AppendToAll(posix.sync().turn(), Pointers(posix_files), bytes, posix_us);
    plain.Append(objects, bytes, plain_us);
    AppendToAll(ceph.sync().turn(), Pointers(ceph_files), bytes, ceph_us);
    plain.Append(objects, bytes, again_us);
  }
  Report(state, "posix", posix_us);
  Report(state, "plain", plain_us);
  Report(state, "plain_again", again_us);
  Report(state, "ceph", ceph_us);
  Histogram both = plain_us;
  both.Merge(again_us);
  state.counters["ceph_by_plain"] =
      static_cast<double>(ceph_us.Percentile(50)) / static_cast<double>(both.Percentile(50));
}
BENCHMARK(CephAppendAndFlush)
    ->ArgsProduct({{4096, 65536}, {1, 8, 64}})
    ->Iterations(150)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// From the acknowledgement until another process' reader, which asks every millisecond, has the
// bytes. Ceph or not, bytes.
void CephVisible(benchmark::State& state) {
  const bool on_ceph = state.range(0) != 0;
  const std::string bytes(static_cast<size_t>(state.range(1)), 'x');
  Client writer(on_ceph);
  const std::string name = ThePlace().New();
  const auto file = writer.sync().Create("d", name, name).value();
  std::atomic<int64_t> want = 0;  // the length that is looked for; negative: end
  std::atomic<int64_t> seen_at = 0;
  std::thread reading([&] {
    Client reader(on_ceph);
    const auto shown = reader.sync().Open("d", name).value();
    for (int64_t have = 0, length = want; length >= 0; length = want) {
      if (have < length) {
        const auto got = reader.sync().Read(*shown, have, length - have).value();
        have += static_cast<int64_t>(got.size());
        if (have == length) seen_at = Micros();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  Histogram us;
  for (auto _ : state) {
    seen_at = 0;
    want = file->committed_length() + static_cast<int64_t>(bytes.size());
    const AppendResult result = writer.sync().Append(*file, bytes);
    const int64_t acknowledged = Micros();
    TAILCAST_CHECK(result.outcome == AppendOutcome::kApplied, result.error.ToString());
    while (seen_at == 0) std::this_thread::yield();
    us.Record(std::max<int64_t>(0, seen_at - acknowledged));
  }
  want = -1;
  reading.join();
  Report(state, "visible", us);
}
BENCHMARK(CephVisible)
    ->ArgsProduct({{0, 1}, {4096, 65536}})
    ->ArgNames({"ceph", "bytes"})
    ->Iterations(200)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A file whose writer lives is taken over; beside it the same requests of bare librados, each of
// which waits for the one before, and single ones.
void CephFence(benchmark::State& state) {
  const bool on_ceph = state.range(0) != 0;
  Client a(on_ceph), b(on_ceph);
  const std::string name = ThePlace().New();
  auto owner = a.sync().Create("d", name, name).value();
  std::unique_ptr<PlainCeph> plain;
  std::vector<std::string> objects;
  Histogram us, append_us, plain_us, look_us, change_us, warm;
  if (on_ceph) {
    plain = std::make_unique<PlainCeph>();
    for (int i = 0; i < 3; ++i) {
      objects.push_back(ThePlace().New());
      plain->Change(objects.back(), warm);
    }
  }
  bool by_b = true;
  for (auto _ : state) {
    Client& next = std::exchange(by_b, !by_b) ? b : a;
    const int64_t begun = Micros();
    auto taken = next.sync().Fence("d", name).value();
    const int64_t fenced = Micros();
    us.Record(fenced - begun);
    TAILCAST_CHECK(next.sync().Append(*taken, "x").outcome == AppendOutcome::kApplied, "append");
    append_us.Record(Micros() - fenced);
    owner = std::move(taken);
    if (on_ceph) plain->Fence(objects[0], objects[1], objects[2], plain_us, look_us, change_us);
  }
  Report(state, "fence", us);
  Report(state, "append", append_us);
  if (!on_ceph) return;
  Report(state, "plain_fence", plain_us);
  Report(state, "plain_look", look_us);
  Report(state, "plain_change", change_us);
  const auto ratio = [&](double percentile) {
    return static_cast<double>(us.Percentile(percentile)) /
           static_cast<double>(plain_us.Percentile(percentile));
  };
  state.counters["p50_by_plain"] = ratio(50);
  state.counters["p99_by_plain"] = ratio(99);
}
BENCHMARK(CephFence)
    ->ArgName("ceph")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(500)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A folder of 10,000 files. Their keys are set as the driver sets them (docs/formats), without
// their objects: a listing reads names only.
void CephList(benchmark::State& state) {
  constexpr int kNames = 10'000;
  Client client(true);
  PlainCeph plain;
  const std::string folder = ThePlace().New();
  client.sync().Create(folder, "first", "first").value();
  for (int begin = 1; begin < kNames; begin += 1000) {
    std::vector<std::string> keys, values;
    for (int i = begin; i < std::min(begin + 1000, kNames); ++i) {
      const std::string name = "1700000000000" + std::to_string(100'000 + i) + ".index";
      for (const std::string_view prefix : {rolled::kFilePrefix, rolled::kKeyPrefix}) {
        keys.push_back(std::string(prefix) + name);
        values.push_back(rolled::EncodeEntry({std::string(32, '0'), name}));
      }
    }
    std::vector<const char*> key_pointers, value_pointers;
    std::vector<size_t> sizes;
    for (size_t i = 0; i < keys.size(); ++i) {
      key_pointers.push_back(keys[i].c_str());
      value_pointers.push_back(values[i].data());
      sizes.push_back(values[i].size());
    }
    rados_write_op_t set = rados_create_write_op();
    rados_write_op_omap_set(set, key_pointers.data(), value_pointers.data(), sizes.data(),
                            keys.size());
    TAILCAST_CHECK(rados_write_op_operate(set, plain.io(), rolled::FolderObject(folder).c_str(),
                                          nullptr, 0) == 0,
                   "keys");
    rados_release_write_op(set);
  }
  Histogram us;
  for (auto _ : state) {
    const int64_t begun = Micros();
    const auto names = client.sync().List(folder).value();
    us.Record(Micros() - begun);
    TAILCAST_CHECK(names.size() == kNames, std::to_string(names.size()));
  }
  Report(state, "list", us);
}
BENCHMARK(CephList)->Iterations(50)->Unit(benchmark::kMillisecond)->UseRealTime();

int ThreadsOfThisProcess() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  }
  return 0;
}

// 1,000 files are open for writing, 200 of them are appended at once.
void CephThousandFiles(benchmark::State& state) {
  constexpr size_t kFiles = 1000, kBusy = 200;
  Client client(true);
  Create(client, 1);
  const int threads_before = ThreadsOfThisProcess();
  const int64_t begun = Micros();
  std::vector<std::unique_ptr<AppendFile>> files(kFiles);
  size_t made = 0, sent = 0;
  const Scope scope;
  // As many as 64 creations at once, in twenty folders.
  std::function<void()> create = [&] {
    if (sent == kFiles) return;
    const size_t i = sent++;
    const std::string name = ThePlace().New();
    client.store().CreateExclusive("t" + std::to_string(i % 20), name, name,
                                   scope.Bind([&, i](Result<std::unique_ptr<AppendFile>> file) {
                                     files[i] = std::move(file).value();
                                     ++made;
                                     create();
                                   }));
  };
  for (int i = 0; i < 64; ++i) create();
  TAILCAST_CHECK(client.Turn([&] { return made == kFiles; }), "creations");
  state.counters["create_all_ms"] = static_cast<double>(Micros() - begun) / 1000;
  std::vector<AppendFile*> busy;
  for (size_t i = 0; i < kBusy; ++i) busy.push_back(files[i * 5].get());
  Histogram us;
  const std::string bytes(4096, 'x');
  for (auto _ : state) AppendToAll(client.sync().turn(), busy, bytes, us);
  Report(state, "append", us);
  state.counters["threads_before"] = threads_before;
  state.counters["threads"] = ThreadsOfThisProcess();
}
BENCHMARK(CephThousandFiles)->Iterations(20)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace tailcast::storage
