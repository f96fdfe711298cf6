// Rows of the benchmark: the same reads from a memcached server, by libmemcached.
#include <libmemcached-1.0/memcached.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "tailcast/base/rng.h"
#include "tailcast/cache/bench_cell.h"
#include "tailcast/cache/bench_load.h"

namespace tailcast::cache {
namespace {

constexpr uint64_t kValues = (64 << 20) / kBenchChunk;  // as ReadChunks has

// A server, a connection to it, and the values in it.
class Memcached {
 public:
  // `socket`: "tcp", or "unix", what clients on its own host have.
  explicit Memcached(const std::string& socket) {
    std::string pattern = std::filesystem::temp_directory_path() / "memcached_bench_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    const std::string unix_path = folder_ + "/socket", port_path = folder_ + "/port";
    std::vector<std::string> words = {"memcached", "-m", "256", "-u",
                                      getuid() == 0 ? "root" : "nobody"};
    if (socket == "unix") {
      words.insert(words.end(), {"-s", unix_path});
    } else {
      words.insert(words.end(), {"-l", "127.0.0.1", "-p", "-1"});  // any free port
    }
    server_ = std::make_unique<BenchProcess>(
        words, std::vector<std::string>{"MEMCACHED_PORT_FILENAME=" + port_path});
    handle_ = memcached_create(nullptr);
    memcached_behavior_set(handle_, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    // Its start notifies nobody: ask until it answers.
    for (int i = 0; i < 5000 && server_->Running(); ++i) {
      usleep(1000);
      if (memcached_server_count(handle_) == 0) {
        std::string word;
        uint16_t port = 0;
        if (socket == "unix") {
          memcached_server_add_unix_socket(handle_, unix_path.c_str());
        } else if (std::ifstream(port_path) >> word >> word >> port) {
          memcached_server_add(handle_, "127.0.0.1", port);
        }
      } else if (memcached_version(handle_) == MEMCACHED_SUCCESS) {
        break;
      }
    }
    if (!server_->Running()) {
      error_ = "memcached did not start; ./dev setup installs it";
      return;
    }
    const std::string value(kBenchChunk, 'v');
    for (uint64_t i = 0; i < kValues && error_.empty(); ++i) {
      const std::string key = KeyOf(i);
      const memcached_return_t stored =
          memcached_set(handle_, key.data(), key.size(), value.data(), value.size(), 0, 0);
      if (stored != MEMCACHED_SUCCESS) error_ = memcached_strerror(handle_, stored);
    }
  }
  ~Memcached() {
    memcached_free(handle_);
    server_.reset();
    std::error_code gone;
    std::filesystem::remove_all(folder_, gone);
  }
  Memcached(const Memcached&) = delete;
  Memcached& operator=(const Memcached&) = delete;

  // Empty: it is there, and so are its values.
  const std::string& error() const { return error_; }
  pid_t pid() const { return server_->pid(); }

  // Reads values at random to `destination`, one after the other: one by get, more by one
  // multi-get. Returns how many were there.
  size_t Read(Rng& rng, size_t count, char* destination) {
    names_.resize(count);
    pointers_.resize(count);
    sizes_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      names_[i] = KeyOf(rng.Below(kValues));
      pointers_[i] = names_[i].data();
      sizes_[i] = names_[i].size();
    }
    if (memcached_mget(handle_, pointers_.data(), sizes_.data(), count) != MEMCACHED_SUCCESS) {
      return 0;
    }
    size_t found = 0;
    memcached_return_t code;
    memcached_result_st result;
    memcached_result_create(handle_, &result);
    while (memcached_fetch_result(handle_, &result, &code) != nullptr && found < count) {
      std::memcpy(destination + found++ * kBenchChunk, memcached_result_value(&result),
                  kBenchChunk);
    }
    memcached_result_free(&result);
    return found;
  }

 private:
  static std::string KeyOf(uint64_t number) { return "chunk-" + std::to_string(number); }

  std::string folder_, error_;
  std::unique_ptr<BenchProcess> server_;
  memcached_st* handle_ = nullptr;
  std::vector<std::string> names_;
  std::vector<const char*> pointers_;
  std::vector<size_t> sizes_;
};

void MemcachedGet(benchmark::State& state, const char* socket) {
  const auto depth = static_cast<size_t>(state.range(0));
  // Rows run one after the other, and each several times.
  static std::string kept_socket;
  static std::unique_ptr<Memcached> kept;
  if (kept_socket != socket) {
    kept.reset();
    kept = std::make_unique<Memcached>(socket);
    kept_socket = socket;
  }
  if (!kept->error().empty()) {
    state.SkipWithError(kept->error().c_str());
    return;
  }
  std::vector<char> buffer(depth * kBenchChunk);
  Rng rng(1);
  Histogram nanos;
  uint64_t batches = 0;
  const CpuMeter cpu({kept->pid()});
  for (auto _ : state) {
    const int64_t begun = BenchNanos();
    // The same value twice in a multi-get comes twice.
    if (kept->Read(rng, depth, buffer.data()) != depth) {
      state.SkipWithError("a value is missing");
      break;
    }
    nanos.Record(BenchNanos() - begun);
    ++batches;
  }
  const auto values = static_cast<double>(batches * depth);
  cpu.Report(state, values);
  ReportLatency(state, "", nanos);
  state.SetItemsProcessed(static_cast<int64_t>(values));
}
BENCHMARK_CAPTURE(MemcachedGet, tcp, "tcp")
    ->ArgName("depth")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->UseRealTime();
BENCHMARK_CAPTURE(MemcachedGet, unix, "unix")
    ->ArgName("depth")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->UseRealTime();

}  // namespace
}  // namespace tailcast::cache
