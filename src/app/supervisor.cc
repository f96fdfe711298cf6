#include "tailcast/app/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "tailcast/node/node.h"

namespace tailcast::app {
namespace {

constexpr Duration kLivedLong = Duration::Seconds(1);
constexpr Duration kDelayFirst = Duration::Millis(100);
constexpr Duration kDelayMax = Duration::Seconds(5);

std::string Describe(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

// The last line of the log, if it is what an ending process says ("tailcast: ...").
std::string LastWords(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  constexpr std::streamoff kTailBytes = 1000;
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kTailBytes));
  std::string line, last;
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  constexpr std::string_view kPrefix = "tailcast: ";
  return last.starts_with(kPrefix) ? last.substr(kPrefix.size()) : "";
}

}  // namespace

MonotonicTime RestartPolicy::OnExit(MonotonicTime now) {
  ++restarts_;
  if (now - started_ >= kLivedLong) {
    delay_ = Duration();
    return now;
  }
  delay_ = delay_ == Duration() ? kDelayFirst : std::min(delay_ * 2, kDelayMax);
  return now + delay_;
}

Supervisor::~Supervisor() { StopAll(Duration()); }

Status Supervisor::Start(const ChildSpec& spec) {
  Child& child = children_[spec.name];
  child.spec = spec;
  if (child.pid != 0) {
    TAILCAST_CHECK(child.kill_at.has_value(), "a child of this name runs already");
    child.kill_at.reset();
    return OkStatus();
  }
  return Spawn(child);
}

void Supervisor::Retire(const std::string& name, Duration grace) {
  const auto it = children_.find(name);
  if (it == children_.end()) return;
  Child& child = it->second;
  if (child.pid == 0) {
    children_.erase(it);
  } else if (!child.kill_at) {
    kill(child.pid, SIGTERM);
    child.kill_at = ReadMonotonicClock() + grace;
  }
}

Status Supervisor::Spawn(Child& child) {
  const int log =
      open(child.spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return ErrnoStatus(errno, "open " + child.spec.log_path);
  // What the child does between fork and exec must be async-signal-safe: everything is made before.
  std::vector<char*> argv;
  for (std::string& word : child.spec.argv) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string variable = std::string(node::kRestartsVariable) + "=";
  std::string restarts = variable + std::to_string(child.policy.restarts());
  std::vector<char*> environment = {restarts.data()};
  for (char** other = environ; *other != nullptr; ++other) {
    if (!std::string_view(*other).starts_with(variable)) environment.push_back(*other);
  }
  environment.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // The children of a supervisor that is killed end too.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setsid();  // Ctrl-C is for the supervisor; and RunBeforeOthers raises a session that is led
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    execve(child.spec.program.c_str(), argv.data(), environment.data());
    _exit(127);
  }
  const int error = errno;
  close(log);
  if (pid < 0) return ErrnoStatus(error, "fork for " + child.spec.name);
  child.pid = pid;
  child.policy.OnStart(ReadMonotonicClock());
  return OkStatus();
}

Duration Supervisor::Tend() {
  const MonotonicTime now = ReadMonotonicClock();
  Duration next = Duration::Infinite();
  for (auto it = children_.begin(); it != children_.end();) {
    const std::string& name = it->first;
    Child& child = it->second;
    ++it;
    if (child.pid != 0) {
      int status = 0;
      if (waitpid(child.pid, &status, WNOHANG) != child.pid) {
        if (!child.kill_at) continue;
        if (*child.kill_at <= now) kill(child.pid, SIGKILL);
        next = std::min(next, std::max(*child.kill_at - now, kDelayFirst));
        continue;
      }
      if (child.kill_at) {
        say_(name + " has ended, as it was asked to");
        children_.erase(std::prev(it));
        continue;
      }
      const std::string words = WIFEXITED(status) ? LastWords(child.spec.log_path) : "";
      say_(name + " (pid " + std::to_string(child.pid) + ") " + Describe(status) +
           (words.empty() ? "" : ": " + words) + "; see " + child.spec.log_path);
      child.pid = 0;
      child.restart_at = child.policy.OnExit(now);
    }
    if (child.restart_at <= now) {
      const Status started = Spawn(child);
      if (started.ok()) {
        say_(name + " was started again as pid " + std::to_string(child.pid));
        continue;
      }
      say_(name + " can't be started: " + started.message());
      child.restart_at = now + kDelayMax;
    }
    next = std::min(next, child.restart_at - now);
  }
  return next;
}

void Supervisor::StopAll(Duration grace) {
  for (auto& [name, child] : children_) {
    if (child.pid != 0) kill(child.pid, grace > Duration() ? SIGINT : SIGKILL);
  }
  const MonotonicTime end = ReadMonotonicClock() + grace;
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &child_ended, &before);
  for (;;) {
    size_t left = 0;
    for (auto& [name, child] : children_) {
      if (child.pid == 0) continue;
      if (waitpid(child.pid, nullptr, WNOHANG) == child.pid) {
        child.pid = 0;
      } else {
        ++left;
      }
    }
    if (left == 0) break;
    const Duration wait = end - ReadMonotonicClock();
    if (wait <= Duration()) {
      for (auto& [name, child] : children_) {
        if (child.pid == 0) continue;
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
        child.pid = 0;
      }
      break;
    }
    const timespec timeout{wait.micros() / 1000000, wait.micros() % 1000000 * 1000};
    sigtimedwait(&child_ended, nullptr, &timeout);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  children_.clear();
}

pid_t Supervisor::PidOf(const std::string& name) const {
  auto it = children_.find(name);
  return it == children_.end() ? 0 : it->second.pid;
}

size_t Supervisor::running() const {
  return static_cast<size_t>(std::count_if(children_.begin(), children_.end(),
                                           [](const auto& c) { return c.second.pid != 0; }));
}

}  // namespace tailcast::app
