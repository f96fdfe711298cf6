#include "tailcast/app/ceph_cluster.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "tailcast/app/command.h"

extern char** environ;

namespace tailcast::app {

// Of the file that the build makes of ceph_cluster.sh.
extern const char kCephClusterScript[];

namespace {

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

Result<std::unique_ptr<CephCluster>> CephCluster::Start(const std::string& folder,
                                                        const std::vector<std::string>& pools) {
  auto cluster = std::unique_ptr<CephCluster>(new CephCluster(folder));
  TAILCAST_RETURN_IF_ERROR(cluster->Run({"start", folder}));
  std::vector<std::string> words = {"pool", folder};
  words.insert(words.end(), pools.begin(), pools.end());
  TAILCAST_RETURN_IF_ERROR(cluster->Run(words));
  return cluster;
}

CephCluster::~CephCluster() { (void)Run({"stop", folder_}); }

Status CephCluster::Run(const std::vector<std::string>& words) const {
  const std::string log = folder_ + ".log";
  std::vector<std::string> all = {"bash", "-c", kCephClusterScript, "ceph_cluster.sh"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: Ctrl-C is for us, the daemons end when we say so.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, "bash", &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return ErrnoStatus(error, "start bash");
  int status = 0;
  const bool stopping = words.front() == "stop";
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    if (Interrupted() && !stopping) {
      kill(-pid, SIGTERM);
      waitpid(pid, &status, 0);
      return CancelledError("interrupted");
    }
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return OkStatus();
  return FailedPreconditionError("the Ceph cluster in " + folder_ +
                                 " does not start: " + LastLine(log) + " (all of it: " + log + ")");
}

}  // namespace tailcast::app
