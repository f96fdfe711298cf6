// tailcast monitor: consumes a stream in a cell for ever, as its consumers do, and shows to
// Prometheus how late and how right it is.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/monitor_core.h"
#include "tailcast/base/metrics.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/consumer/consumer.h"

namespace tailcast::app {
namespace {

using From = MonitorCore::From;

struct MonitorOptions {
  CellOptions cell;
  MetricsOption metrics;
  std::string stream, source;
  std::string profile = "standard";
};

// The core, between the two threads that consume, and what is shown of it.
class Monitor {
 public:
  explicit Monitor(const std::string& stream)
      : compared_(Count("compared", stream)),
        different_(Count("different", stream)),
        disorderly_(Count("disorderly", stream)),
        uncompared_(Count("uncompared", stream)),
        restarts_(ProcessMetrics().GetCounter(
            "tailcast_monitor_restarts_total",
            "Times that a shard stopped with an error and was begun again at its end.",
            {{"stream", stream}})) {}

  void OnMessage(From from, const consumer::Message& message) {
    const std::lock_guard lock(mutex_);
    const std::string wrong = core_.OnMessage(from, message);
    if (!wrong.empty()) {
      std::fprintf(stderr, "tailcast: wrong%s: %s\n", from == From::kSource ? " at the source" : "",
                   wrong.c_str());
    }
    const MonitorCore::Counts& now = core_.counts();
    Show(compared_, now.compared);
    Show(different_, now.different);
    Show(disorderly_, now.disorderly);
    Show(uncompared_, now.uncompared);
  }
  // What it came to.
  std::string Summary() const {
    return std::to_string(compared_.value()) + " messages compared, " +
           std::to_string(different_.value()) + " different, " +
           std::to_string(disorderly_.value()) + " out of order, " +
           std::to_string(uncompared_.value()) + " given by one side only";
  }
  // A shard that stopped is begun again at its end: the monitor goes on for ever.
  void OnError(From from, consumer::Consumer& consumer, const Status& error) {
    std::fprintf(stderr, "tailcast: %s; going on at the end\n", error.ToString().c_str());
    restarts_.Add();
    for (int32_t shard : consumer.shards()) {
      if (consumer.shard_status(shard).error.ok()) continue;
      (void)consumer.Seek(shard, consumer::StartPoint::End());  // a shard that it has
      const std::lock_guard lock(mutex_);
      core_.OnSeek(from, shard);
    }
  }

 private:
  static Counter& Count(const char* result, const std::string& stream) {
    return ProcessMetrics().GetCounter("tailcast_monitor_messages_total",
                                       "Messages that were watched, by what they are.",
                                       {{"stream", stream}, {"result", result}});
  }
  static void Show(Counter& counter, int64_t value) {
    if (value > counter.value()) counter.Add(value - counter.value());
  }

  std::mutex mutex_;
  MonitorCore core_;
  Counter &compared_, &different_, &disorderly_, &uncompared_, &restarts_;
};

// Until Ctrl-C, the stream is no more, or `ended`, which it sets when it returns.
Status Watch(consumer::Consumer& consumer, From from, Monitor& monitor, std::atomic<bool>& ended) {
  while (!Interrupted() && !ended) {
    const auto batch = consumer.Poll(Duration::Millis(200));
    if (batch.ok()) {
      for (const consumer::Message& message : *batch) monitor.OnMessage(from, message);
    } else if (IsNotFound(batch.status())) {
      ended = true;
      return batch.status();
    } else {
      monitor.OnError(from, consumer, batch.status());
    }
  }
  return OkStatus();
}

// Until the source's consumer knows where its shards end.
Status Begin(consumer::Consumer& consumer, Monitor& monitor) {
  const auto known = [&](int32_t shard) {
    return consumer.position(shard) ||
           consumer.shard_status(shard).state != consumer::ShardState::kLocating;
  };
  const auto& shards = consumer.shards();
  while (!std::all_of(shards.begin(), shards.end(), known) && !Interrupted()) {
    TAILCAST_ASSIGN_OR_RETURN(const auto batch, consumer.Poll(Duration::Millis(10)));
    for (const consumer::Message& message : batch) monitor.OnMessage(From::kSource, message);
  }
  return OkStatus();
}

// Of the stream's source; nullopt: it is the cell that is watched, or nobody said where it is.
Result<std::optional<std::string>> SourceOf(const MonitorOptions& options,
                                            const std::string& watched) {
  std::string source = options.source;
  if (source.empty() && !options.cell.dir.empty()) {
    TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(options.cell.dir));
    TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell cell, FindSource(deployment, options.stream));
    source = cell.scheduler;
  }
  if (source.empty() || source == watched) return std::optional<std::string>();
  return std::optional<std::string>(source);
}

int RunMonitor(MonitorOptions& options) {
  const auto profile = cell::ParseProfile(options.profile);
  if (!profile.ok()) return Fail(profile.status());
  const auto address = options.cell.Find();
  if (!address.ok()) return Fail(address.status());
  const auto source = SourceOf(options, *address);
  if (!source.ok()) return Fail(source.status());
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  consumer::Options watched;
  watched.cell = *address;
  watched.stream = options.stream;
  watched.start = consumer::StartPoint::End();
  watched.profile = *profile == cell::Profile::kLowLatency ? consumer::Profile::kLowLatency
                                                           : consumer::Profile::kDefault;
  CatchInterrupts();
  Monitor monitor(options.stream);
  std::atomic<bool> ended = false;
  std::unique_ptr<consumer::Consumer> there;
  if (*source) {
    consumer::Options original = watched;
    original.cell = **source;
    original.show_metrics = false;  // what is shown is of the cell that is watched
    auto opened = consumer::Consumer::Open(original);
    if (!opened.ok()) return Fail(opened.status().WithContext("the stream's source"));
    there = std::move(*opened);
    // First it: what the cell gives is then given by the source as well.
    if (Status began = Begin(*there, monitor); !began.ok()) return Fail(began);
    std::fprintf(stderr,
                 "tailcast: what comes from now on is compared with the source, until Ctrl-C\n");
  } else {
    std::fprintf(stderr, "tailcast: %s\n",
                 options.cell.dir.empty()
                     ? "order is watched; with --source ADDRESS bytes are compared, too"
                     : "this cell is the stream's source: its order is watched");
  }
  auto here = consumer::Consumer::Open(watched);
  if (!here.ok()) return Fail(here.status());
  Status at_source;
  std::thread comparing;
  if (there) {
    comparing = std::thread([&] { at_source = Watch(*there, From::kSource, monitor, ended); });
  }
  Status status = Watch(**here, From::kWatched, monitor, ended);
  if (comparing.joinable()) comparing.join();
  if (status.ok()) status = at_source;
  if (there) std::fprintf(stderr, "tailcast: %s\n", monitor.Summary().c_str());
  return status.ok() ? kExitDone : Fail(status);
}

}  // namespace

void AddMonitor(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "monitor",
      "Watch a stream in a cell for ever: how late its messages come, and whether they "
      "are right");
  auto options = std::make_shared<MonitorOptions>();
  options->cell.Add(command, true);
  command->add_option("--stream", options->stream, "Stream to watch")->required();
  command->add_option(
      "--source", options->source,
      "HOST:PORT of the scheduler of the stream's source cell, with which bytes are "
      "compared; default: found with --dir");
  command
      ->add_option("--profile", options->profile,
                   "standard or low-latency, as the consumers that it stands for")
      ->capture_default_str();
  options->metrics.Add(command);
  command->callback([&action, options] { action = [options] { return RunMonitor(*options); }; });
}

}  // namespace tailcast::app
