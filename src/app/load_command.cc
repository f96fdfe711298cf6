// tailcast load produce|consume: open-loop load for benchmarks (bench/e2e) and for trying a
// deployment.
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/command.h"
#include "tailcast/app/load_measure.h"
#include "tailcast/app/load_pattern.h"
#include "tailcast/base/histogram.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/producer/producer.h"

namespace tailcast::app {
namespace {

struct LoadOptions {
  CellOptions cell;
  MetricsOption metrics;
  std::string stream;
  int32_t shard = 0;
  std::string profile = "low-latency";
  // produce
  double megabytes_per_second = 4;  // 10^6 bytes; 0: as fast as possible
  int64_t message_bytes = 1024;
  double seconds = 10;
  int64_t roll_bytes = 64 << 20;
  // consume
  int threads = 1;
  std::string fabric = "auto";
  std::string from = "end";
  double warmup_s = 2;
  double until_idle_s = 0;
  double window_s = 0;  // 0: no windows
};

bool LowLatency(const LoadOptions& options) { return options.profile == "low-latency"; }

void Print(const nlohmann::json& json) {
  std::printf("%s\n", json.dump().c_str());
  std::fflush(stdout);
}

int LoadProduce(LoadOptions& options) {
  const auto address = options.cell.Find();
  if (!address.ok()) return Fail(address.status());
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  producer::Options producer_options;
  producer_options.cell = *address;
  producer_options.stream = options.stream;
  producer_options.shards = {options.shard};
  producer_options.profile =
      LowLatency(options) ? producer::Profile::kLowLatency : producer::Profile::kDefault;
  producer_options.roll_bytes = options.roll_bytes;
  auto producer = producer::Producer::Open(producer_options);
  if (!producer.ok()) return Fail(producer.status());

  CatchInterrupts();
  struct Acks {
    std::atomic<int64_t> durable{0}, other{0};
    Histogram delay;  // producer's thread; read after Close
  };
  auto acks = std::make_shared<Acks>();
  Status error;
  const LoadSent sent = SendLoad(
      {options.megabytes_per_second, options.message_bytes, options.seconds},
      [] { return Interrupted(); },
      [&](const std::string& message, int64_t due) {
        error = (*producer)->Publish(
            message,
            [acks, due](const producer::Ack& ack) {
              if (ack.outcome == producer::AckOutcome::kDurable) {
                ++acks->durable;
                acks->delay.Record(ReadWallClock().micros() - due);
              } else {
                ++acks->other;
              }
            },
            options.shard);
        return error.ok();
      });
  const Status flushed = (*producer)->Flush(Duration::Seconds(60));
  const double elapsed = static_cast<double>(ReadWallClock().micros() - sent.start_us) / 1e6;
  const producer::Stats stats = (*producer)->stats();
  const Status closed = (*producer)->Close(Duration::Seconds(60));
  if (error.ok()) error = flushed.ok() ? closed : flushed;
  Print({{"kind", "produce"},
         {"messages", sent.messages},
         {"durable", acks->durable.load()},
         {"not_durable", acks->other.load()},
         {"bytes", static_cast<int64_t>(sent.messages) * options.message_bytes},
         {"seconds", elapsed},
         {"asked_mb_per_s", options.megabytes_per_second},
         {"held_mb_per_s",
          static_cast<double>(acks->durable.load() * options.message_bytes) / elapsed / 1e6},
         {"publish_late_max_us", sent.late_max_us},
         {"publish_seconds", static_cast<double>(sent.end_us - sent.start_us) / 1e6},
         {"flushes", stats.flushes},
         {"files", stats.files_opened},
         {"shadow_jumps", stats.shadow_jumps},
         {"shadow_bytes", stats.shadow_bytes},
         {"acknowledge_us", nlohmann::json::parse(acks->delay.ToJson())},
         {"cpu_s", CpuSecondsOfProcess()},
         {"error", error.ok() ? "" : error.ToString()}});
  return error.ok() ? kExitDone : Fail(error);
}

// One consumer, and what it saw.
struct Seen {
  explicit Seen(double warmup_s) : load(warmup_s) {}
  LoadSeen load;
  std::mutex mutex;  // of window
  Histogram window;  // delays since the last line about a window
  std::atomic<bool> ended = false;
  consumer::Counters counters;
  int64_t remote_bytes = 0;
  Status error;
};

void ConsumeOne(const LoadOptions& options, const std::string& address, std::atomic<int>& ready,
                Seen& seen) {
  consumer::Options consumer_options;
  consumer_options.cell = address;
  consumer_options.stream = options.stream;
  consumer_options.shards = {options.shard};
  consumer_options.start = *consumer::StartPoint::Parse(options.from);
  consumer_options.profile =
      LowLatency(options) ? consumer::Profile::kLowLatency : consumer::Profile::kDefault;
  consumer_options.rate_bytes_per_s = 0;
  consumer_options.fabric = options.fabric == "shm"     ? consumer::FabricPreference::kShm
                            : options.fabric == "tcp"   ? consumer::FabricPreference::kTcp
                            : options.fabric == "verbs" ? consumer::FabricPreference::kVerbs
                                                        : consumer::FabricPreference::kAuto;
  auto consumer = consumer::Consumer::Open(consumer_options);
  if (!consumer.ok()) {
    seen.error = consumer.status();
    ++ready;
    seen.ended = true;
    return;
  }
  bool located = false;
  MonotonicTime last = ReadMonotonicClock();
  while (!Interrupted()) {
    const auto batch = (*consumer)->Poll(Duration::Millis(200));
    // From the beginning there is nothing to be late for; else the place must have been found.
    if (!located &&
        (!batch.ok() || options.from == "beginning" || (*consumer)->position(options.shard))) {
      located = true;
      ++ready;
    }
    if (!batch.ok()) {
      seen.error = batch.status();
      break;
    }
    if (batch->empty()) {
      const Duration idle = ReadMonotonicClock() - last;
      if (seen.load.started() && options.until_idle_s > 0 && idle.seconds() >= options.until_idle_s)
        break;
      continue;
    }
    last = ReadMonotonicClock();
    const int64_t now = ReadWallClock().micros();
    std::unique_lock<std::mutex> window(seen.mutex, std::defer_lock);
    if (options.window_s > 0) window.lock();
    for (const consumer::Message& message : *batch) {
      const auto delay_us = seen.load.OnMessage(message.payload, now);
      if (delay_us.has_value() && options.window_s > 0) seen.window.Record(*delay_us);
    }
    seen.load.OnBatch();
  }
  seen.ended = true;
  seen.counters = (*consumer)->counters();
  seen.remote_bytes = (*consumer)->remote_bytes_read();
}

// A line for each window of time, as long as anybody consumes.
void ShowWindows(const LoadOptions& options, std::deque<Seen>& seen) {
  const Duration window = Duration::Micros(static_cast<int64_t>(options.window_s * 1e6));
  MonotonicTime end = ReadMonotonicClock() + window;
  const auto consuming = [&] {
    return std::any_of(seen.begin(), seen.end(), [](const Seen& s) { return !s.ended; });
  };
  while (consuming()) {
    // It only paces the lines; each has its own time, and nobody waits for one.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (ReadMonotonicClock() < end) continue;
    end = end + window;
    Histogram delay;
    for (Seen& s : seen) {
      const std::lock_guard<std::mutex> lock(s.mutex);
      delay.Merge(s.window);
      s.window = Histogram();
    }
    Print({{"kind", "window"},
           {"at_us", ReadWallClock().micros()},
           {"messages", delay.Count()},
           {"delay_cdf", DelayCdf(delay)}});
  }
}

int LoadConsume(LoadOptions& options) {
  const auto address = options.cell.Find();
  if (!address.ok()) return Fail(address.status());
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  const auto start = consumer::StartPoint::Parse(options.from);
  if (!start.ok()) return Fail(start.status().WithContext("--from"));
  CatchInterrupts();
  std::deque<Seen> seen;  // they stay where they are
  for (int i = 0; i < options.threads; ++i) seen.emplace_back(options.warmup_s);
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (Seen& s : seen) {
    threads.emplace_back([&, out = &s] { ConsumeOne(options, *address, ready, *out); });
  }
  // Whoever starts the producer waits for this line.
  while (ready < options.threads && !Interrupted()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Print({{"kind", "ready"}, {"pid", getpid()}, {"consumers", options.threads}});
  if (options.window_s > 0) ShowWindows(options, seen);
  for (std::thread& thread : threads) thread.join();

  LoadTotal total;
  consumer::Counters counters;
  int64_t remote_bytes = 0;
  Status error;
  for (Seen& s : seen) {
    total.Add(s.load);
    remote_bytes += s.remote_bytes;
    counters += s.counters;
    if (error.ok()) error = s.error;
  }
  nlohmann::json json = total.ToJson();
  json.update({{"cache_bytes", counters.cache_bytes},
               {"remote_bytes_read", remote_bytes},
               {"primary_bytes", counters.primary_bytes},
               {"fallbacks", counters.fallback_missing_chunk + counters.fallback_delayed +
                                 counters.fallback_no_metadata},
               {"roll_overs", counters.roll_overs},
               {"error", error.ok() ? "" : error.ToString()}});
  Print(json);
  if (!error.ok()) return Fail(error);
  return total.intact() ? kExitDone
                        : Fail(DataLossError("a consumer saw gaps, repeats or foreign bytes"));
}

}  // namespace

void AddLoad(CLI::App& app, Action& action) {
  CLI::App* load = app.add_subcommand("load", "Generate and measure load, open loop");
  load->require_subcommand(1);
  auto options = std::make_shared<LoadOptions>();
  const auto add = [&](const char* name, const char* about, int (*run)(LoadOptions&)) {
    CLI::App* command = load->add_subcommand(name, about);
    options->cell.Add(command, true);
    options->metrics.Add(command);
    command->add_option("--stream", options->stream, "Stream")->required();
    command->add_option("--shard", options->shard, "Shard")
        ->check(ShardNumber())
        ->capture_default_str();
    command->add_option("--profile", options->profile, "Flushes, polls and doorbells")
        ->check(CLI::IsMember({"low-latency", "standard"}))
        ->capture_default_str();
    command->callback(
        [&action, options, run] { action = [options, run] { return run(*options); }; });
    return command;
  };
  CLI::App* produce =
      add("produce", "Publish at a fixed rate; one line of JSON at the end", LoadProduce);
  produce
      ->add_option("--mb-per-s", options->megabytes_per_second,
                   "10^6 bytes per second; 0: as fast as possible")
      ->check(NotNegative())
      ->capture_default_str();
  produce->add_option("--message-bytes", options->message_bytes, "Size of a message")
      ->check(CLI::Range(static_cast<int64_t>(kLoadHeaderBytes), int64_t{16} << 20))
      ->capture_default_str();
  produce->add_option("--seconds", options->seconds, "How long")
      ->check(AboveZero())
      ->capture_default_str();
  produce->add_option("--roll-bytes", options->roll_bytes, "Size of a message file")
      ->check(CLI::Range(int64_t{4096}, int64_t{64} << 30))
      ->capture_default_str();
  CLI::App* consume = add(
      "consume", "Read and check until Ctrl-C or idle; a line of JSON when ready, one at the end",
      LoadConsume);
  consume
      ->add_option("--threads", options->threads,
                   "Consumers, each with its own thread, connections and reads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  consume->add_option("--fabric", options->fabric, "How cache memory is read")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs"}))
      ->capture_default_str();
  consume->add_option("--from", options->from, "As for `tailcast consume`")->capture_default_str();
  consume
      ->add_option("--until-idle", options->until_idle_s,
                   "End when nothing came for this many seconds, once something came")
      ->check(AboveZero());
  consume->add_option("--window", options->window_s, "Also a line of JSON each so many seconds")
      ->check(AboveZero());
  consume->add_option("--warmup", options->warmup_s, "Seconds of the load that are not measured")
      ->check(NotNegative())
      ->capture_default_str();
}

}  // namespace tailcast::app
