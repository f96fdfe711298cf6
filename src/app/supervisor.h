// Starts child processes, starts again what dies, and says so, as an init system would.
//
// A child that lived for more than a second is started again at once; one that dies at once waits
// 0.1 s, then twice as long each time, at most 5 s, so that a broken configuration does not spin.
// How often it was started again is in its environment (node::kRestartsVariable).
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::app {

// When and whether to start a child again. Core: time is an argument.
class RestartPolicy {
 public:
  // The child was started. `now` is also when it may be started next.
  void OnStart(MonotonicTime now) { started_ = now; }
  // It ended. Returns when to start it again.
  MonotonicTime OnExit(MonotonicTime now);
  int restarts() const { return restarts_; }

 private:
  MonotonicTime started_;
  Duration delay_;
  int restarts_ = 0;
};

struct ChildSpec {
  std::string name;  // "europe-west/reader-1"
  std::string program;
  std::vector<std::string> argv;  // its name first, as ps shows it
  std::string log_path;           // its standard output and error are appended here
};

class Supervisor {
 public:
  // `say` gets a line for each thing worth telling.
  explicit Supervisor(std::function<void(const std::string&)> say) : say_(std::move(say)) {}
  // Kills what still runs.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Unavailable if it can't be started at all. One that was retired and still runs is started again
  // when it has ended.
  Status Start(const ChildSpec& spec);
  // It is not started again: SIGTERM, then SIGKILL if it is still there after `grace`. Tend sees to
  // that. Unknown names are ignored.
  void Retire(const std::string& name, Duration grace);
  // Looks after children: reaps, restarts what is due. Returns how long nothing will be due;
  // callers sleep at most that long, or until SIGCHLD.
  Duration Tend();
  // SIGINT to all, as nobody is left to take anything over, then SIGKILL to those that are still
  // there after `grace`.
  void StopAll(Duration grace);

  // 0 if it does not run.
  pid_t PidOf(const std::string& name) const;
  size_t running() const;

 private:
  struct Child {
    ChildSpec spec;
    pid_t pid = 0;  // 0: waits for restart_at
    MonotonicTime restart_at;
    std::optional<MonotonicTime> kill_at;  // retired
    RestartPolicy policy;
  };
  Status Spawn(Child& child);

  std::function<void(const std::string&)> say_;
  std::map<std::string, Child> children_;
};

}  // namespace tailcast::app
