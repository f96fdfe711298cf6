// tailcast demo: the main job, watched. Starts a deployment of three cells, carries a file's lines
// through it as messages, shows what the consumers of every cell see, breaks something on the way
// if asked to, and compares every byte at the end.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/reroute.h"
#include "tailcast/base/histogram.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/producer/producer.h"

namespace tailcast::app {
namespace {

constexpr char kStream[] = "demo";

struct DemoOptions {
  std::string input;
  std::string topology;
  std::string dir;
  std::string profile = "low-latency";
  std::string durability = "durable";
  std::string cache;    // as for `up`
  std::string storage;  // as for `up`; empty: its default
  double megabytes_per_second = 2;
  int64_t roll_bytes = 4 << 20;
  std::vector<std::string> kill;
  bool reroute = false;
  bool json = false;
  double stall_s = 60;
};

// The file's lines, each with its newline: what consumers must get.
struct Input {
  std::string bytes;
  std::vector<size_t> ends;  // of each message, behind its newline

  size_t size() const { return ends.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
  }
};

Result<Input> ReadInput(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgumentError("--input " + path + " is a folder; name a file");
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "can't read --input " + path);
  std::stringstream text;
  text << in.rdbuf();
  Input input;
  input.bytes = std::move(text).str();
  for (size_t at = 0; at < input.bytes.size();) {
    const size_t newline = input.bytes.find('\n', at);
    at = newline == std::string::npos ? input.bytes.size() : newline + 1;
    input.ends.push_back(at);
  }
  if (input.ends.empty()) return InvalidArgumentError("--input " + path + " is empty");
  return input;
}

// `tailcast up` as a child of the demo.
class UpProcess {
 public:
  static Result<std::unique_ptr<UpProcess>> Start(const DemoOptions& options,
                                                  const std::string& dir) {
    std::vector<std::string> words = {
        "tailcast",      "up",           "--dir",           dir, "--profile",
        options.profile, "--durability", options.durability};
    if (!options.cache.empty()) words.insert(words.end(), {"--cache", options.cache});
    if (!options.storage.empty()) words.insert(words.end(), {"--storage", options.storage});
    if (!options.topology.empty()) words.insert(words.end(), {"--topology", options.topology});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int out[2];
    if (pipe(out) != 0) return ErrnoStatus(errno, "pipe");
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus(errno, "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      setpgid(0, 0);  // Ctrl-C is for the demo
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      close(out[1]);
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(out[1]);
    auto up = std::unique_ptr<UpProcess>(new UpProcess(pid, out[0]));
    std::string said;
    char c;
    ssize_t n;
    while ((n = read(out[0], &c, 1)) == 1 || (n < 0 && errno == EINTR && !Interrupted())) {
      if (n == 1) said.push_back(c);
      if (said.ends_with("ready\n")) return up;
    }
    return UnavailableError("the deployment did not start (see above, and the logs below " + dir +
                            ")");
  }
  ~UpProcess() {
    kill(pid_, SIGTERM);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    close(out_);
  }

 private:
  UpProcess(pid_t pid, int out) : pid_(pid), out_(out) {}
  const pid_t pid_;
  const int out_;
};

// One consumer and what it saw. Its thread writes, the display reads under `mu`.
struct Watcher {
  std::string cell, scheduler, fabric;
  std::mutex mu;
  Histogram delay;   // of all messages
  Histogram recent;  // since the display last looked
  int64_t messages = 0, bytes = 0;
  int64_t lag_bytes = 0;
  consumer::AgentCounters counters;
  std::string state = "opening";
  std::string error;
  bool done = false;
};

void Watch(Watcher& w, const Input& input, const DemoOptions& options, std::atomic<bool>& stop) {
  const auto fail = [&](const std::string& error) {
    std::lock_guard lock(w.mu);
    w.error = error;
    w.state = "failed";
  };
  consumer::Options o;
  o.cell = w.scheduler;
  o.stream = kStream;
  o.start = *consumer::StartPoint::Parse("beginning");
  o.profile = options.profile == "low-latency" ? consumer::Profile::kLowLatency
                                               : consumer::Profile::kDefault;
  o.fabric =
      w.fabric == "shm" ? consumer::FabricPreference::kShm : consumer::FabricPreference::kTcp;
  auto consumer = consumer::Consumer::Open(o);
  if (!consumer.ok()) return fail(consumer.status().message());
  size_t next = 0;
  while (!stop && next < input.size()) {
    const auto batch = (*consumer)->Poll(Duration::Millis(100));
    if (!batch.ok()) return fail(batch.status().message());
    const int64_t now = ReadWallClock().micros();
    std::lock_guard lock(w.mu);
    for (const consumer::Message& message : *batch) {
      if (next >= input.size() || message.payload != input[next]) {
        w.error = "message " + std::to_string(next) + " differs from the input's line " +
                  std::to_string(next + 1);
        w.state = "failed";
        return;
      }
      ++next;
      w.bytes += static_cast<int64_t>(message.payload.size());
      w.delay.Record(now - message.time_us);
      w.recent.Record(now - message.time_us);
    }
    w.messages = static_cast<int64_t>(next);
    w.counters = (*consumer)->counters();
    const auto* agent = (*consumer)->agent(0);
    w.lag_bytes = agent->lag_bytes();
    w.state = consumer::AgentStateName(agent->state());
  }
  // Nothing may come after the last message.
  Result<std::span<const consumer::Message>> extra = std::span<const consumer::Message>();
  if (next == input.size()) extra = (*consumer)->Poll(Duration::Millis(200));
  std::lock_guard lock(w.mu);
  if (!extra.ok()) {
    w.error = extra.status().message();
  } else if (!extra->empty()) {
    w.error = "more messages than the input has";
  }
  w.done = next == input.size() && w.error.empty();
  w.state = w.done ? "identical" : "stopped";
}

struct Publisher {
  std::atomic<int64_t> published{0}, durable{0};
  std::atomic<bool> done{false};
  std::mutex mu;
  std::string error;
  producer::Stats stats;
};

void PublishAll(Publisher& p, const Input& input, const DemoOptions& options,
                const std::string& source, std::atomic<bool>& stop) {
  const auto fail = [&](const Status& status) {
    std::lock_guard lock(p.mu);
    p.error = status.message();
    p.done = true;
  };
  producer::Options o;
  o.cell = source;
  o.stream = kStream;
  o.profile = options.profile == "low-latency" ? producer::Profile::kLowLatency
                                               : producer::Profile::kDefault;
  o.roll_bytes = options.roll_bytes;
  auto producer = producer::Producer::Open(o);
  if (!producer.ok()) return fail(producer.status());
  const MonotonicTime start = ReadMonotonicClock();
  for (size_t i = 0; i < input.size() && !stop; ++i) {
    if (options.megabytes_per_second > 0) {
      const int64_t begin = i == 0 ? 0 : static_cast<int64_t>(input.ends[i - 1]);
      const int64_t due =
          static_cast<int64_t>(static_cast<double>(begin) / options.megabytes_per_second);
      for (Duration ahead;
           (ahead = Duration::Micros(due) - (ReadMonotonicClock() - start)) > Duration() &&
           !stop;) {
        // The pace that was asked for.
        std::this_thread::sleep_for(
            std::chrono::microseconds(std::min<int64_t>(ahead.micros(), 20000)));
      }
    }
    const Status status = (*producer)->Publish(input[i], [&p](const producer::Ack& ack) {
      if (ack.outcome == producer::AckOutcome::kDurable) {
        ++p.durable;
      } else {
        std::lock_guard lock(p.mu);
        if (p.error.empty()) p.error = ack.error.message();
      }
    });
    if (!status.ok()) return fail(status);
    p.published = static_cast<int64_t>(i) + 1;
  }
  const Status flushed = (*producer)->Flush(Duration::Seconds(60));
  const producer::Stats stats = (*producer)->stats();
  Status closed = (*producer)->Close(Duration::Seconds(60));
  if (!flushed.ok()) closed = flushed;
  {
    std::lock_guard lock(p.mu);
    p.stats = stats;
    if (!closed.ok() && p.error.empty()) p.error = closed.message();
  }
  p.done = true;
}

class Display {
 public:
  Display(bool json, bool terminal) : json_(json), terminal_(terminal) {}

  void Say(const std::string& text) {
    if (json_) {
      std::printf("%s\n", nlohmann::json({{"event", text}}).dump().c_str());
    } else {
      std::printf("%s%s%s\n", terminal_ ? "\033[33m" : "", text.c_str(),
                  terminal_ ? "\033[0m" : "");
      lines_ = 0;  // what was said stays above the table
    }
    std::fflush(stdout);
  }

  void Show(const Publisher& publisher, std::vector<std::unique_ptr<Watcher>>& watchers,
            int64_t total, bool last) {
    nlohmann::json rows = nlohmann::json::array();
    std::vector<std::string> text;
    char line[256];
    std::snprintf(line, sizeof line,
                  "producer: %" PRId64 " of %" PRId64 " messages, %" PRId64 " durable",
                  publisher.published.load(), total, publisher.durable.load());
    text.emplace_back(line);
    std::snprintf(line, sizeof line, "%-16s %-4s %9s %9s %8s %8s %8s %8s %7s %9s  %s", "cell",
                  "via", "messages", "lag KB", "p50 ms", "p99 ms", "max ms", "hop ms", "cache %",
                  "fallbacks", "state");
    text.push_back(terminal_ ? "\033[1m" + std::string(line) + "\033[0m" : line);
    double upstream_p50 = 0;
    for (size_t i = 0; i < watchers.size(); ++i) {
      Watcher& w = *watchers[i];
      std::lock_guard lock(w.mu);
      const Histogram& h = last ? w.delay : w.recent;
      const double p50 = static_cast<double>(h.Percentile(50)) / 1e3;
      // What this cell's hop adds to the middle delay of the cell before it.
      const double hop = i >= 2 ? p50 - upstream_p50 : 0;
      const double total_bytes =
          static_cast<double>(w.counters.cache_bytes + w.counters.primary_bytes);
      const double hits =
          total_bytes > 0 ? 100 * static_cast<double>(w.counters.cache_bytes) / total_bytes : 0;
      const int64_t fallbacks = w.counters.fallback_missing_chunk + w.counters.fallback_delayed +
                                w.counters.fallback_no_metadata + w.counters.fallback_corrupt;
      const int64_t behind = publisher.durable - w.messages;
      rows.push_back({{"cell", w.cell},
                      {"fabric", w.fabric},
                      {"messages", w.messages},
                      {"bytes", w.bytes},
                      {"lag_bytes", w.lag_bytes},
                      {"behind_messages", behind},
                      {"delay_us", nlohmann::json::parse(h.ToJson())},
                      {"hop_p50_ms", hop},
                      {"cache_percent", hits},
                      {"fallbacks", fallbacks},
                      {"roll_overs", w.counters.roll_overs},
                      {"state", w.state},
                      {"error", w.error}});
      std::snprintf(line, sizeof line,
                    "%-16s %-4s %9" PRId64 " %9.1f %8.1f %8.1f %8.1f %8.1f %7.1f %9" PRId64 "  ",
                    w.cell.c_str(), w.fabric.c_str(), w.messages,
                    static_cast<double>(w.lag_bytes) / 1e3, p50,
                    static_cast<double>(h.Percentile(99)) / 1e3, static_cast<double>(h.Max()) / 1e3,
                    hop, hits, fallbacks);
      const char* colour = !terminal_         ? ""
                           : !w.error.empty() ? "\033[31m"
                           : w.done           ? "\033[32m"
                                              : "";
      text.push_back(line + std::string(colour) + (w.error.empty() ? w.state : w.error) +
                     (*colour != 0 ? "\033[0m" : ""));
      // Rows come in pairs, shm then tcp; the next cell compares with this one's first.
      if (i % 2 == 0) next_upstream_ = p50;
      if (i % 2 == 1) upstream_p50 = next_upstream_;
      w.recent.Clear();
    }
    if (json_) {
      std::printf("%s\n", nlohmann::json({{last ? "result" : "progress", rows},
                                          {"published", publisher.published.load()},
                                          {"durable", publisher.durable.load()},
                                          {"total", total}})
                              .dump()
                              .c_str());
    } else {
      if (terminal_ && lines_ > 0) std::printf("\033[%zuA", lines_);
      for (const std::string& row : text) {
        std::printf("%s%s\n", terminal_ ? "\033[2K" : "", row.c_str());
      }
      if (!terminal_) std::printf("\n");
      lines_ = terminal_ ? text.size() : 0;
    }
    std::fflush(stdout);
  }

 private:
  const bool json_, terminal_;
  size_t lines_ = 0;
  double next_upstream_ = 0;
};

// Kills one process of the role with -9: of the second cell if there is one, since that one relays.
Status KillOne(const Deployment& deployment, const std::string& role, Display& display) {
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
Status RerouteOnce(const Deployment& deployment, Display& display,
                   stream::TreeVersion* tree_version) {
  TAILCAST_ASSIGN_OR_RETURN(
      auto session, CellSession::OpenAt(deployment.cells.front().scheduler, Duration::Seconds(5)));
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig stream, session->client().FindStream(kStream));
  if (stream.tree().empty()) return FailedPreconditionError("one cell has no route to change");
  const v1::TreeEdge& last = *stream.tree().rbegin();
  TAILCAST_ASSIGN_OR_RETURN(
      const Rerouted rerouted,
      Reroute(*session, {.stream = kStream, .avoid = {{last.from(), last.to()}}}));
  display.Say("re-route: the link " + last.from() + " -> " + last.to() + " goes out of use");
  for (const copytree::Step& step : rerouted.steps) {
    display.Say("  " + std::to_string(step.wave + 1) + ". " +
                std::string(copytree::StepKindName(step.kind)) + " " + step.from + " -> " +
                step.to);
  }
  *tree_version = rerouted.tree_version;
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
  const bool terminal = !options.json && isatty(STDOUT_FILENO) != 0;
  Display display(options.json, terminal);

  std::string dir = options.dir;
  if (dir.empty()) {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/tailcast-demo-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      return Fail(ErrnoStatus(errno, "make a folder " + pattern));
    dir = pattern;
  }
  display.Say("starting the deployment in " + dir);
  auto up = UpProcess::Start(options, dir);
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
  {
    auto session = CellSession::OpenAt(source.scheduler, Duration::Seconds(5));
    if (!session.ok()) return Fail(session.status());
    v1::StreamConfig stream;
    stream.set_name(kStream);
    stream.set_shards(1);
    std::optional<Result<v1::StreamConfig>> made;
    const Scope scope;
    (*session)->client().CreateStream(
        stream, scope.Bind([&](Result<v1::StreamConfig> r) { made.emplace(std::move(r)); }));
    (*session)->Until([&] { return made.has_value(); });
    if (!made->ok()) return Fail(made->status());
    const Status known = WaitForStreamEverywhere(*deployment, **made, Duration::Seconds(20));
    if (!known.ok()) return Fail(known);
  }

  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Watcher>> watchers;
  std::vector<std::thread> threads;
  for (const DeploymentCell& cell : deployment->cells) {
    for (const char* fabric : {"shm", "tcp"}) {
      auto w = std::make_unique<Watcher>();
      w->cell = cell.name;
      w->scheduler = cell.scheduler;
      w->fabric = fabric;
      watchers.push_back(std::move(w));
    }
  }
  for (auto& w : watchers) {
    threads.emplace_back([&, w = w.get()] { Watch(*w, *input, options, stop); });
  }
  Publisher publisher;
  threads.emplace_back([&] { PublishAll(publisher, *input, options, source.scheduler, stop); });

  const auto total = static_cast<int64_t>(input->size());
  size_t killed = 0;
  bool rerouted = !options.reroute;
  stream::TreeVersion tree_version = stream::TreeVersion::kNone;  // of the re-route
  Status error;
  int64_t last_progress = -1;
  MonotonicTime progress_at = ReadMonotonicClock();
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(terminal ? 250 : 1000));  // refresh rate
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
      error = RerouteOnce(*deployment, display, &tree_version);
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
    error = session.ok() ? WaitForTree(**session, kStream, tree_version, Duration::Seconds(20))
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
  command->add_option("--mb-per-s", options->megabytes_per_second, "Pace; 0: as fast as possible")
      ->check(NotNegative())
      ->capture_default_str();
  command->add_option("--roll-bytes", options->roll_bytes, "Size of a message file")
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
