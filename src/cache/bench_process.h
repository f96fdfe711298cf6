// Server processes of a benchmark, and the CPU time of whom it measures.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"

namespace tailcast::cache {

// A program that ends when this object does, or when this process does in whatever way: its
// standard input ends then, and it gets a SIGTERM. One of the two has to end it.
//
// Threads: the one that made it lives as long as it.
class BenchProcess {
 public:
  // `arguments` begin with the program, which is looked for in PATH. `environment`: "NAME=value" to
  // add.
  explicit BenchProcess(std::vector<std::string> arguments,
                        const std::vector<std::string>& environment = {});
  ~BenchProcess();
  BenchProcess(const BenchProcess&) = delete;
  BenchProcess& operator=(const BenchProcess&) = delete;

  // The next line of its standard output. Empty: it has closed that, or could not be started.
  std::string ReadLine();
  bool Running();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int input_ = -1, output_ = -1;
};

// CPU seconds so far.
double CpuOfThread();                         // the calling one
double CpuOfProcess();                        // this one, all threads
double CpuOf(std::span<const pid_t> others);  // of their threads that live

// CPU time of a stretch of a benchmark, as counters of its row for each of `items`.
class CpuMeter {
 public:
  explicit CpuMeter(std::vector<pid_t> servers);
  // server_us: of the servers. loop_us: of the calling thread, which turns the client's loop.
  // client_us: of this process. items_per_server_cpu_s: as the first, the other way round.
  void Report(benchmark::State& state, double items) const;

 private:
  const std::vector<pid_t> servers_;
  double server_, loop_, client_;
};

}  // namespace tailcast::cache
