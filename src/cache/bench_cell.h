// A cell's caches for benchmarks: three processes, each with a data and a metadata cache on one
// loop and with the doors of both drivers, as `tailcast run` has them; and clients of it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cache/bench_process.h"
#include "tailcast/cache/quorum_client.h"

namespace tailcast::cache {

inline constexpr uint32_t kBenchChunk = 4096;

// Half of it is kept free for slots that rest. Rows read of the newest 1 GB.
inline constexpr uint64_t kBenchCacheMbMin = 2304;

// What the benchmark is told (cache_bench.cc).
struct BenchOptions {
  double seconds = 2;  // of each stretch of a paced row
  // Data cache of each server. What unpaced writes leave behind rests in it for a second.
  uint64_t cache_mb = 2560;
};

// Chunks are numbered in the order in which they are written, and only the newest are read of those
// before which none is under way: the servers forget the oldest all the time, as they do when they
// are full.
//
// Threads: any, but for its construction and end.
class BenchCell {
 public:
  // Starts the servers and fills their data caches, so that all of their memory is in place.
  explicit BenchCell(const BenchOptions& options);

  // `driver`: "shm" or "tcp"; the other doors are left out.
  RingConfig data(std::string_view driver) const { return Ring(driver, 0); }
  RingConfig metadata(std::string_view driver) const { return Ring(driver, 1); }
  std::vector<pid_t> pids() const;

  const std::string& value() const { return value_; }  // of every chunk
  // The numbers of `count` chunks to write: the first of them. Say Written of that when they are.
  uint64_t Take(uint64_t count);
  void Written(uint64_t first);
  // A key that is no chunk's.
  Key OtherKey() { return KeyOf(kOthersFrom + others_.fetch_add(1)); }
  static Key KeyOf(uint64_t number) {
    const Hash128Value hash =
        Hash128({reinterpret_cast<const char*>(&number), sizeof(number)}, 0x6265u);
    return {hash.hi, hash.lo};
  }
  // One of the `mb` MB that were written last.
  Key RandomKey(Rng& rng, uint64_t mb) const {
    const uint64_t span = mb * 1024 * 1024 / kBenchChunk;
    return KeyOf(written_below_.load(std::memory_order_acquire) - 1 - rng.Below(span));
  }

 private:
  static constexpr uint64_t kOthersFrom = uint64_t{1} << 48;
  struct Server {
    std::unique_ptr<BenchProcess> process;
    std::string rpc_address;
    std::vector<std::string> fabric_addresses[2];  // of the data cache, of the metadata cache
  };

  RingConfig Ring(std::string_view driver, int which) const;
  void Fill(uint64_t chunks);

  std::vector<Server> servers_;
  std::string value_;
  std::mutex numbers_;
  uint64_t next_ = 0;                       // guarded by numbers_
  std::set<uint64_t> under_way_;            // guarded by numbers_: the first of each
  std::atomic<uint64_t> written_below_{0};  // changed under numbers_
  std::atomic<uint64_t> others_{0};
};

// The one cell of the program: started when it is first asked for, ended by EndBenchCell.
BenchCell& TheBenchCell();
BenchOptions& TheBenchOptions();
void EndBenchCell();

// The server's process: serves until its standard input ends. Its arguments are the words that
// BenchCell gives it. Returns the exit code.
int ServeBenchCell(int argument_count, char** arguments);

// A thread's client of the cell, with connections and a loop of its own, connected to all replicas.
// Everything on the thread that made it.
class BenchClient {
 public:
  BenchClient(BenchCell& cell, std::string_view driver);
  ~BenchClient();
  BenchClient(const BenchClient&) = delete;
  BenchClient& operator=(const BenchClient&) = delete;

  BenchCell& cell() { return cell_; }
  ThreadLoop& loop() { return loop_; }
  QuorumClient& data() { return *data_; }
  QuorumClient& metadata() { return *metadata_; }
  // Turns the loop; ten minutes at most.
  void RunUntil(const std::function<bool()>& done);
  // Mutations of either cache that failed, reads that did not find their chunk.
  double failures() const;

 private:
  BenchCell& cell_;
  ThreadLoop loop_;
  std::unique_ptr<fabric::Connector> fabric_;
  std::unique_ptr<rpc::Connector> rpc_;
  std::unique_ptr<QuorumClient> data_, metadata_;
};

}  // namespace tailcast::cache
