// What the benchmarks of the storage port share.
#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/histogram.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {

// A folder for as long as it lives, in TAILCAST_BENCH_DIR, or /tmp.
class BenchFolder {
 public:
  BenchFolder() {
    const char* base = std::getenv("TAILCAST_BENCH_DIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/storage_bench_XXXXXX";
    TAILCAST_CHECK(mkdtemp(path_.data()) != nullptr, "cannot make a folder for the benchmark");
  }
  ~BenchFolder() { std::filesystem::remove_all(path_); }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline int64_t Micros() { return ReadMonotonicClock().micros(); }

inline void Report(benchmark::State& state, const char* name, const Histogram& h) {
  state.counters[std::string(name) + "_p50_us"] = static_cast<double>(h.Percentile(50));
  state.counters[std::string(name) + "_p99_us"] = static_cast<double>(h.Percentile(99));
}

// The same bytes to each file, all at once.
inline void AppendToAll(const TurnLoop& turn, const std::vector<AppendFile*>& files,
                        const std::string& bytes, Histogram& us) {
  size_t left = files.size();
  const Scope scope;
  for (AppendFile* file : files) {
    const int64_t begun = Micros();
    file->AppendAt(file->committed_length(), bytes, scope.Bind([&, begun](AppendResult r) {
      TAILCAST_CHECK(r.outcome == AppendOutcome::kApplied, r.error.ToString());
      us.Record(Micros() - begun);
      --left;
    }));
  }
  TAILCAST_CHECK(turn([&] { return left == 0; }), "appends");
}

inline std::vector<AppendFile*> Pointers(const std::vector<std::unique_ptr<AppendFile>>& files) {
  std::vector<AppendFile*> all;
  for (const auto& file : files) all.push_back(file.get());
  return all;
}

}  // namespace tailcast::storage
