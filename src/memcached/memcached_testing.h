// Real memcached servers for tests, on unix sockets in a folder of their own: nothing collides, and
// nothing outlives the test.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/time.h"
#include "tailcast/memcached/connection.h"
#include "tailcast/memcached/server_address.h"

namespace tailcast::memcached {

class TestServers {
 public:
  explicit TestServers(size_t count) {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/memcached-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    for (size_t i = 0; i < count; ++i) {
      addresses_.push_back({folder_ + "/" + std::to_string(i), 0});
      pids_.push_back(0);
      Start(i);
    }
  }
  ~TestServers() {
    for (size_t i = 0; i < pids_.size(); ++i) Kill(i);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestServers(const TestServers&) = delete;
  TestServers& operator=(const TestServers&) = delete;

  const std::vector<ServerAddress>& addresses() const { return addresses_; }
  // Empty, as every memcached begins. Returns when it answers.
  void Start(size_t i) {
    const std::string path = addresses_[i].host;
    unlink(path.c_str());
    const pid_t parent = getpid();
    pids_[i] = fork();
    if (pids_[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      // memcached refuses to be root unless it is told so.
      execlp("memcached", "memcached", "-s", path.c_str(), "-m", "64", "-t", "1", "-u",
             getuid() == 0 ? "root" : "nobody", nullptr);
      _exit(kNotInstalled);
    }
    Connection connection(addresses_[i], Duration::Seconds(1));
    const MonotonicTime deadline = ReadMonotonicClock() + Duration::Seconds(20);
    while (!connection.Ping()) {
      int status = 0;
      if (waitpid(pids_[i], &status, WNOHANG) == pids_[i]) {
        pids_[i] = 0;
        FAIL() << (WIFEXITED(status) && WEXITSTATUS(status) == kNotInstalled
                       ? "memcached is not installed, or not in PATH; ./dev setup installs it"
                       : "memcached ended at once");
      }
      ASSERT_LT(ReadMonotonicClock(), deadline) << "memcached does not answer at " << path;
      poll(nullptr, 0, 1);  // its start notifies nobody
    }
  }
  void Kill(size_t i) {
    if (pids_[i] == 0) return;
    kill(pids_[i], SIGKILL);
    waitpid(pids_[i], nullptr, 0);
    pids_[i] = 0;
  }
  void Restart(size_t i) {
    Kill(i);
    Start(i);
  }
  // It takes connections and requests and answers nothing.
  void Stop(size_t i) {
    kill(pids_[i], SIGSTOP);
    waitpid(pids_[i], nullptr, WUNTRACED);
  }
  void Continue(size_t i) { kill(pids_[i], SIGCONT); }
  Connection Connect(size_t i) const { return Connection(addresses_[i], Duration::Seconds(5)); }

 private:
  static constexpr int kNotInstalled = 127;
  std::string folder_;
  std::vector<ServerAddress> addresses_;
  std::vector<pid_t> pids_;
};

}  // namespace tailcast::memcached
