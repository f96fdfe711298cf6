// A reader in a process of its own, for tests that kill or stop it: this program, run again with
// kReaderFlag and the server's address.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/fabric_conformance.h"

namespace tailcast::fabric {

inline constexpr char kReaderFlag[] = "--reader";

// The process: reads chunks of region 0 all the time, 256 outstanding. It prints "reading" when the
// first batch of a connection came whole, "lost" when the connection is of no use any more (it then
// makes another one), and "wrong" when bytes are not those of its connection's time: the pattern on
// the first one, '#' later.
inline int ReadForEver(const std::string& address, SharedCellKey key) {
  if (!SetLogLevels("off").ok()) return 1;
  ThreadLoop loop;
  const Scope scope;
  const auto connector =
      MakeConnector(&loop, {.read_timeout = Duration::Seconds(2), .key = std::move(key)});
  constexpr uint64_t kReads = 256, kBytes = 4096;
  std::vector<char> buffer(kReads * kBytes);
  const auto until = [&](const std::function<bool()>& done) {
    loop.RunUntil(done, ReadMonotonicClock() + Duration::Seconds(60));
  };
  for (bool first = true;; first = false) {
    std::optional<Result<std::unique_ptr<Endpoint>>> connected;
    connector->Connect(address, Duration::Seconds(10),
                       scope.Bind([&](auto r) { connected.emplace(std::move(r)); }));
    until([&] { return connected.has_value(); });
    if (!connected.has_value() || !connected->ok()) {
      std::cout << "no connection" << std::endl;
      return 1;
    }
    Endpoint& endpoint = ***connected;
    bool told = false, lost = false;
    while (!lost) {
      std::vector<ReadDescriptor> reads;
      for (uint64_t i = 0; i < kReads; ++i) {
        reads.push_back({.region = 0,
                         .length = kBytes,
                         .offset = i * kBytes,
                         .destination = buffer.data() + i * kBytes,
                         .token = i});
      }
      endpoint.Read(reads);
      size_t done = 0;
      until([&] {
        Completion completions[64];
        for (size_t n; (n = endpoint.Poll(completions)) > 0; done += n) {
          for (size_t i = 0; i < n; ++i) {
            const uint64_t at = completions[i].token * kBytes;
            lost |= completions[i].status != ReadStatus::kOk;
            if (completions[i].status == ReadStatus::kOk &&
                buffer[at] != (first ? PatternByte(0, at) : '#')) {
              std::cout << "wrong" << std::endl;
            }
          }
        }
        return done == kReads;
      });
      if (done != kReads) {
        std::cout << "reads without a completion" << std::endl;
        return 1;
      }
      if (!lost && !std::exchange(told, true)) std::cout << "reading" << std::endl;
    }
    std::cout << "lost" << std::endl;
  }
}

class ProcessReader final : public TestReader {
 public:
  explicit ProcessReader(const std::string& address) {
    int out[2];
    if (pipe2(out, O_CLOEXEC) != 0) std::abort();
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], 1);
      execl(self.c_str(), self.c_str(), kReaderFlag, address.c_str(), nullptr);
      _exit(127);
    }
    close(out[1]);
    events_ = out[0];
  }
  ~ProcessReader() override {
    Kill();
    close(events_);
  }
  std::string NextEvent() override {
    std::string line;
    char byte;
    while (read(events_, &byte, 1) == 1 && byte != '\n') line += byte;
    return line;
  }
  void Kill() override {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void Stop() override {
    kill(pid_, SIGSTOP);
    int status;
    waitpid(pid_, &status, WUNTRACED);
  }
  void Continue() override { kill(pid_, SIGCONT); }

 private:
  pid_t pid_ = 0;
  int events_ = -1;
};

}  // namespace tailcast::fabric
