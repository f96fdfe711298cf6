#include "tailcast/cache/bench_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast::cache {

BenchProcess::BenchProcess(std::vector<std::string> arguments,
                           const std::vector<std::string>& environment) {
  int input[2], output[2];
  TAILCAST_CHECK(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0, "no pipes");
  const pid_t parent = getpid();
  pid_ = fork();
  TAILCAST_CHECK(pid_ >= 0, "can't fork");
  if (pid_ == 0) {
    // Ctrl-C is for the benchmark, which ends its servers by its own end.
    signal(SIGINT, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    execvp(words[0], words.data());
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  input_ = input[1];
  output_ = output[0];
}

BenchProcess::~BenchProcess() {
  close(input_);
  close(output_);
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

std::string BenchProcess::ReadLine() {
  std::string line;
  for (char c = 0; read(output_, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

bool BenchProcess::Running() {
  if (pid_ != 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
  return pid_ != 0;
}

double CpuOfThread() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

double CpuOfProcess() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

double CpuOf(std::span<const pid_t> others) {
  double total = 0;
  for (const pid_t pid : others) {
    clockid_t clock;  // of threads that have ended, too
    timespec t{};
    if (clock_getcpuclockid(pid, &clock) == 0) clock_gettime(clock, &t);
    total += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
  }
  return total;
}

namespace {

// Whether a server's exporter still makes the pages of its memory (fabric/connect.cc).
bool MakesPages(pid_t pid) {
  std::error_code gone;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "fabric-pages") return true;
  }
  return false;
}

// What a server does once is no part of what an item costs.
std::vector<pid_t> Settled(std::vector<pid_t> servers) {
  while (std::any_of(servers.begin(), servers.end(), MakesPages)) poll(nullptr, 0, 10);
  return servers;
}

}  // namespace

CpuMeter::CpuMeter(std::vector<pid_t> servers)
    : servers_(Settled(std::move(servers))),
      server_(CpuOf(servers_)),
      loop_(CpuOfThread()),
      client_(CpuOfProcess()) {}

void CpuMeter::Report(benchmark::State& state, double items) const {
  const double client = CpuOfProcess() - client_;
  const double loop = CpuOfThread() - loop_;
  const double server = CpuOf(servers_) - server_;
  items = std::max(items, 1.0);
  state.counters["server_us"] = server / items * 1e6;
  state.counters["loop_us"] = loop / items * 1e6;
  state.counters["client_us"] = client / items * 1e6;
  state.counters["items_per_server_cpu_s"] = items / std::max(server, 1e-9);
}

}  // namespace tailcast::cache
