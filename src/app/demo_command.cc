// tailcast demo: the main job, watched. Starts a deployment of three cells, carries a file's lines
// through it as messages, shows what the consumers of every cell see, breaks something on the way
// if asked to, and compares every byte at the end.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/demo_display.h"
#include "tailcast/app/demo_stream.h"
#include "tailcast/app/demo_table.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/reroute.h"
#include "tailcast/app/terminal.h"
#include "tailcast/cell/process_config.h"

namespace tailcast::app {
namespace {

struct DemoOptions {
  std::string input;
  std::string topology;
  std::string dir;
  std::string profile = "low-latency";
  std::string durability = "durable";
  std::string cache;    // as for `up`
  std::string storage;  // as for `up`; empty: its default
  DemoPace pace;
  std::vector<std::string> kill;
  bool reroute = false;
  bool json = false;
  double stall_s = 60;
};

// `tailcast up` as a child of the demo.
class UpProcess {
 public:
  // `listen`: what it says on standard error is for Said, rather than for whoever reads ours.
  static Result<std::unique_ptr<UpProcess>> Start(const DemoOptions& options,
                                                  const std::string& dir, bool listen) {
    std::vector<std::string> words = {
        "tailcast",      "up",           "--dir",           dir, "--profile",
        options.profile, "--durability", options.durability};
    if (!options.cache.empty()) words.insert(words.end(), {"--cache", options.cache});
    if (!options.storage.empty()) words.insert(words.end(), {"--storage", options.storage});
    if (!options.topology.empty()) words.insert(words.end(), {"--topology", options.topology});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    if (pipe2(err, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus(errno, "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      setpgid(0, 0);  // Ctrl-C is for the demo
      dup2(out[1], STDOUT_FILENO);
      if (listen) dup2(err[1], STDERR_FILENO);
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    auto up = std::unique_ptr<UpProcess>(new UpProcess(pid, out[0], err[0]));
    std::string said;
    pollfd pipes[2] = {{.fd = out[0], .events = POLLIN, .revents = 0},
                       {.fd = listen ? err[0] : -1, .events = POLLIN, .revents = 0}};
    for (bool open = true; open;) {
      if (poll(pipes, 2, -1) < 0 && (errno != EINTR || Interrupted())) break;
      for (const std::string& line : up->Said()) std::fprintf(stderr, "%s\n", line.c_str());
      char c = 0;
      if ((pipes[0].revents & (POLLIN | POLLHUP)) == 0) continue;
      open = read(out[0], &c, 1) == 1;
      said.push_back(c);
      if (said.ends_with("ready\n")) return up;
    }
    return UnavailableError("the deployment did not start (see above, and the logs below " + dir +
                            ")");
  }
  ~UpProcess() {
    kill(pid_, SIGTERM);
    close(err_);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    close(out_);
  }

  // The lines it said since the last call.
  std::vector<std::string> Said() {
    char buffer[4096];
    for (ssize_t n; (n = read(err_, buffer, sizeof buffer)) > 0;) {
      unread_.append(buffer, static_cast<size_t>(n));
    }
    std::vector<std::string> lines;
    for (size_t end; (end = unread_.find('\n')) != std::string::npos;) {
      lines.push_back(unread_.substr(0, end));
      unread_.erase(0, end + 1);
    }
    return lines;
  }

 private:
  UpProcess(pid_t pid, int out, int err) : pid_(pid), out_(out), err_(err) {}
  const pid_t pid_;
  const int out_, err_;
  std::string unread_;
};

// Kills one process of the role with -9: of the second cell if there is one, since that one relays.
Status KillOne(const Deployment& deployment, const std::string& role, DemoDisplay& display) {
  const DeploymentCell& cell = deployment.cells[deployment.cells.size() > 1 ? 1 : 0];
  TAILCAST_ASSIGN_OR_RETURN(auto session,
                            CellSession::OpenAt(cell.scheduler, Duration::Seconds(5)));
  for (const v1::ProcessInfo& process : session->client().view().processes()) {
    const bool match = (role == "cache" && process.role() == v1::ROLE_CACHE) ||
                       (role == "reader" && process.role() == v1::ROLE_READER) ||
                       (role == "writer" && process.role() == v1::ROLE_WRITER) ||
                       (role == "scheduler" && process.role() == v1::ROLE_SCHEDULER);
    if (!match) continue;
    display.Say("kill -9 " + cell.name + "/" + process.name() + " (pid " +
                std::to_string(process.pid()) + ")");
    if (kill(static_cast<pid_t>(process.pid()), SIGKILL) != 0) {
      return ErrnoStatus(errno, "kill " + process.name());
    }
    return OkStatus();
  }
  return NotFoundError("cell " + cell.name + " has no process of role " + role);
}

// Takes the last link of the tree out of use, as an operator would who sees it fail.
Status RerouteOnce(const Deployment& deployment, Watchers& watchers, DemoDisplay& display,
                   stream::TreeVersion* tree_version) {
  TAILCAST_ASSIGN_OR_RETURN(
      auto session, CellSession::OpenAt(deployment.cells.front().scheduler, Duration::Seconds(5)));
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig stream,
                            session->client().FindStream(kDemoStream));
  if (stream.tree().empty()) return FailedPreconditionError("one cell has no route to change");
  const v1::TreeEdge& last = *stream.tree().rbegin();
  TAILCAST_ASSIGN_OR_RETURN(
      const Rerouted rerouted,
      Reroute(*session, {.stream = kDemoStream, .avoid = {{last.from(), last.to()}}}));
  display.Say("re-route: the link " + last.from() + " -> " + last.to() + " goes out of use");
  for (const copytree::Step& step : rerouted.steps) {
    display.Say("  " + std::to_string(step.wave + 1) + ". " +
                std::string(copytree::StepKindName(step.kind)) + " " + step.from + " -> " +
                step.to);
  }
  *tree_version = rerouted.tree_version;
  SetAbove(watchers, rerouted.after);
  return rerouted.changed ? OkStatus() : FailedPreconditionError("there is no other tree");
}

int RunDemo(const DemoOptions& options) {
  auto input = ReadInput(options.input);
  if (!input.ok()) return Fail(input.status());
  if (!options.cache.empty() &&
      std::find(options.kill.begin(), options.kill.end(), "cache") != options.kill.end()) {
    return Fail(InvalidArgumentError(
        "--kill cache: with --cache the cells have no cache processes; kill a memcached by hand"));
  }
  CatchInterrupts();
  const bool terminal = !options.json && IsTerminal(STDOUT_FILENO);
  DemoDisplay display(options.json, terminal);

  std::string dir = options.dir;
  if (dir.empty()) {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/tailcast-demo-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      return Fail(ErrnoStatus(errno, "make a folder " + pattern));
    dir = pattern;
  }
  display.Say("starting the deployment in " + dir);
  auto up = UpProcess::Start(options, dir, terminal);
  if (Interrupted()) {
    if (up.ok()) up->reset();
    std::error_code ignored;
    if (options.dir.empty()) std::filesystem::remove_all(dir, ignored);
    return Fail(CancelledError("interrupted"));
  }
  if (!up.ok()) return Fail(up.status());
  const auto deployment = Deployment::Read(dir);
  if (!deployment.ok()) return Fail(deployment.status());
  const DeploymentCell source = deployment->cells.front();
  copytree::Tree tree;
  {
    auto session = CellSession::OpenAt(source.scheduler, Duration::Seconds(5));
    if (!session.ok()) return Fail(session.status());
    v1::StreamConfig stream;
    stream.set_name(kDemoStream);
    stream.set_shards(1);
    const auto made = (*session)->Call<Result<v1::StreamConfig>>(
        [&](auto done) { (*session)->client().CreateStream(stream, std::move(done)); });
    if (!made.ok()) return Fail(made.status());
    const Status known = WaitForStreamEverywhere(*deployment, *made, Duration::Seconds(20));
    if (!known.ok()) return Fail(known);
    tree.edges = TreeOf(*made).edges;
  }

  std::atomic<bool> stop{false};
  Watchers watchers;
  std::vector<std::thread> threads;
  for (const DeploymentCell& cell : deployment->cells) {
    for (const char* fabric : {"shm", "tcp"}) {
      auto w = std::make_unique<Watcher>();
      w->cell = cell.name;
      w->scheduler = cell.scheduler;
      w->fabric = fabric;
      w->index = watchers.size();
      watchers.push_back(std::move(w));
    }
  }
  SetAbove(watchers, tree);
  DemoPace pace = options.pace;
  pace.low_latency = options.profile == "low-latency";
  Arrivals arrivals(watchers.size(), input->size());
  for (auto& w : watchers) {
    threads.emplace_back([&, w = w.get()] { Watch(*w, *input, pace, arrivals, stop); });
  }
  Publisher publisher;
  threads.emplace_back([&] { PublishAll(publisher, *input, pace, source.scheduler, stop); });

  const auto total = static_cast<int64_t>(input->size());
  size_t killed = 0;
  bool rerouted = !options.reroute;
  stream::TreeVersion tree_version = stream::TreeVersion::kNone;  // of the re-route
  Status error;
  int64_t last_progress = -1;
  MonotonicTime progress_at = ReadMonotonicClock();
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(terminal ? 250 : 1000));  // refresh rate
    for (const std::string& line : (*up)->Said()) display.Say(line);
    display.Show(publisher, watchers, total, false);
    int64_t progress = publisher.durable;
    bool all_done = publisher.done, failed = false;
    for (auto& w : watchers) {
      std::lock_guard lock(w->mu);
      progress += w->messages;
      all_done = all_done && w->done;
      failed = failed || !w->error.empty();
    }
    {
      std::lock_guard lock(publisher.mu);
      failed = failed || !publisher.error.empty();
    }
    const MonotonicTime now = ReadMonotonicClock();
    if (progress != last_progress) progress_at = now;
    last_progress = progress;
    if (all_done || failed) break;
    if (Interrupted()) {
      error = CancelledError("interrupted");
      break;
    }
    if ((now - progress_at).seconds() > options.stall_s) {
      error = DeadlineExceededError("nothing moved for " +
                                    std::to_string(static_cast<int>(options.stall_s)) +
                                    " s; the logs are below " + dir);
      break;
    }
    if (!rerouted && publisher.published * 2 >= total) {
      rerouted = true;
      error = RerouteOnce(*deployment, watchers, display, &tree_version);
      if (!error.ok()) break;
    }
    // Kills are spread over the middle of the stream.
    const auto at = static_cast<int64_t>(
        static_cast<double>(total) * 0.3 *
        (1 + static_cast<double>(killed) /
                 static_cast<double>(std::max<size_t>(1, options.kill.size()))));
    if (killed < options.kill.size() && publisher.published >= at) {
      error = KillOne(*deployment, options.kill[killed++], display);
      if (!error.ok()) break;
    }
  }
  if (error.ok() && !rerouted)
    error = FailedPreconditionError("the stream ended before the re-route");
  if (error.ok() && tree_version != stream::TreeVersion::kNone) {
    auto session = CellSession::OpenAt(source.scheduler, Duration::Seconds(5));
    error = session.ok() ? WaitForTree(**session, kDemoStream, tree_version, Duration::Seconds(20))
                         : session.status();
    if (error.ok()) display.Say("re-route: carried out");
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  display.Show(publisher, watchers, total, true);

  int identical = 0;
  for (auto& w : watchers) identical += w->done ? 1 : 0;
  if (error.ok() && !publisher.error.empty())
    error = UnavailableError("producer: " + publisher.error);
  if (error.ok() && killed < options.kill.size()) {
    error = FailedPreconditionError(
        "the stream ended before everything was killed; send more, or slower");
  }
  if (error.ok() && identical != static_cast<int>(watchers.size())) {
    error = DataLossError("not every consumer got what was produced");
  }
  char summary[200];
  std::snprintf(summary, sizeof summary,
                "%d of %zu consumers got all %" PRId64 " messages (%.1f MB, %" PRId64
                " message files) byte for byte",
                identical, watchers.size(), total, static_cast<double>(input->bytes.size()) / 1e6,
                publisher.stats.files_opened);
  display.Say(summary);
  if (options.dir.empty() && !error.ok() && !Interrupted())
    display.Say("what it left is in " + dir);
  if (options.dir.empty() && (error.ok() || Interrupted())) {
    up->reset();
    std::error_code ignored;
    std::filesystem::remove_all(dir, ignored);
  }
  return error.ok() ? kExitDone : Fail(error);
}

}  // namespace

void AddDemo(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "demo", "Carry a file through three cells, watch it, and compare every byte");
  auto options = std::make_shared<DemoOptions>();
  command->add_option("--input", options->input, "File whose lines are the messages")->required();
  command->add_option("--topology", options->topology,
                      "Other cells than the three; see docs/config.md");
  command->add_option("--dir", options->dir, "Folder of the deployment; default: a temporary one");
  command
      ->add_option("--mb-per-s", options->pace.megabytes_per_second, "Pace; 0: as fast as possible")
      ->check(NotNegative())
      ->capture_default_str();
  command->add_option("--roll-bytes", options->pace.roll_bytes, "Size of a message file")
      ->check(CLI::Range(int64_t{4096}, int64_t{1} << 36))
      ->capture_default_str();
  command->add_option("--profile", options->profile, "Intervals")
      ->check(CLI::IsMember({"low-latency", "standard"}))
      ->capture_default_str();
  command
      ->add_option("--durability", options->durability,
                   "page-cache survives kill -9, not power loss")
      ->check(CLI::IsMember({"durable", "page-cache"}))
      ->capture_default_str();
  command->add_option("--cache", options->cache,
                      "memcached:HOST:PORT,...: these servers instead of cache processes");
  command->add_option("--storage", options->storage,
                      "posix, ceph or ceph:/path/ceph.conf, as for `tailcast up`");
  command->add_option("--kill", options->kill, "kill -9 a process of this role in mid-stream")
      ->check(CLI::IsMember({"reader", "writer", "scheduler", "cache"}))
      ->delimiter(',');
  command->add_flag("--reroute", options->reroute,
                    "Take the last link of the copy tree out of use in mid-stream");
  command->add_flag("--json", options->json, "A line of JSON for each look, for programs");
  AddTraceDir(command);
  command->callback([&action, options] { action = [options] { return RunDemo(*options); }; });
}

}  // namespace tailcast::app
