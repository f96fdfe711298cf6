// tailcast load produce|consume: open-loop load for benchmarks (bench/e2e) and for trying a
// deployment.
//
// Open loop: message i is due at start + i * interval, whether or not the system keeps up, and a
// delay counts from then. So a stall costs what it would cost users, and is not hidden by a
// producer that politely waits.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/command.h"
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

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

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
  const double interval_us =
      options.megabytes_per_second > 0
          ? static_cast<double>(options.message_bytes) / options.megabytes_per_second
          : 0;
  std::string message(static_cast<size_t>(options.message_bytes), '\0');
  const int64_t start_us = ReadWallClock().micros() + 1000;
  const int64_t end_us = start_us + static_cast<int64_t>(options.seconds * 1e6);
  uint64_t number = 0;
  int64_t late_max_us = 0;
  int64_t now = ReadWallClock().micros();
  Status error;
  while (error.ok() && !Interrupted()) {
    const int64_t due =
        interval_us > 0 ? start_us + static_cast<int64_t>(static_cast<double>(number) * interval_us)
                        : std::max(now, start_us);
    if (due >= end_us) break;
    now = ReadWallClock().micros();
    if (due > now) {
      // Pacing is what this program is for; half a millisecond keeps bursts below one flush.
      std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(due - now, 500)));
      continue;
    }
    late_max_us = std::max(late_max_us, now - due);
    FillLoadMessage(message, due, number++);
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
  }
  const int64_t published_us = ReadWallClock().micros();
  const Status flushed = (*producer)->Flush(Duration::Seconds(60));
  const double elapsed = static_cast<double>(ReadWallClock().micros() - start_us) / 1e6;
  const producer::Stats stats = (*producer)->stats();
  const Status closed = (*producer)->Close(Duration::Seconds(60));
  if (error.ok()) error = flushed.ok() ? closed : flushed;
  Print({{"kind", "produce"},
         {"messages", number},
         {"durable", acks->durable.load()},
         {"not_durable", acks->other.load()},
         {"bytes", static_cast<int64_t>(number) * options.message_bytes},
         {"seconds", elapsed},
         {"asked_mb_per_s", options.megabytes_per_second},
         {"held_mb_per_s",
          static_cast<double>(acks->durable.load() * options.message_bytes) / elapsed / 1e6},
         {"publish_late_max_us", late_max_us},
         {"publish_seconds", static_cast<double>(published_us - start_us) / 1e6},
         {"flushes", stats.flushes},
         {"files", stats.files_opened},
         {"shadow_jumps", stats.shadow_jumps},
         {"shadow_bytes", stats.shadow_bytes},
         {"acknowledge_us", nlohmann::json::parse(acks->delay.ToJson())},
         {"cpu_s", CpuSeconds()},
         {"error", error.ok() ? "" : error.ToString()}});
  return error.ok() ? kExitDone : Fail(error);
}

// What one consumer saw.
struct Seen {
  Histogram delay;
  std::mutex mutex;                   // of window
  Histogram window;                   // delays since the last line about a window
  int64_t messages = 0, bytes = 0;    // all
  int64_t measured_bytes = 0;         // after the warm-up
  int64_t first_us = 0, last_us = 0;  // wall time of the first and last measured message
  int64_t gaps = 0, repeats = 0, foreign = 0;
  uint64_t next = 0;
  bool started = false;
  std::atomic<bool> ended = false;
  consumer::AgentCounters counters;
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
  consumer_options.fabric = options.fabric == "shm"   ? consumer::FabricPreference::kShm
                            : options.fabric == "tcp" ? consumer::FabricPreference::kTcp
                                                      : consumer::FabricPreference::kAuto;
  auto consumer = consumer::Consumer::Open(consumer_options);
  if (!consumer.ok()) {
    seen.error = consumer.status();
    ++ready;
    seen.ended = true;
    return;
  }
  bool located = false;
  int64_t first_intended = 0;
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
      if (seen.started && options.until_idle_s > 0 && idle.seconds() >= options.until_idle_s) break;
      continue;
    }
    last = ReadMonotonicClock();
    const int64_t now = ReadWallClock().micros();
    std::unique_lock<std::mutex> window(seen.mutex, std::defer_lock);
    if (options.window_s > 0) window.lock();
    for (const consumer::Message& message : *batch) {
      const LoadMessage m = ReadLoadMessage(message.payload);
      if (!m.intact) ++seen.foreign;
      if (!seen.started) {
        seen.started = true;
        seen.next = m.number;
        first_intended = m.intended_us;
      }
      if (m.number > seen.next) ++seen.gaps;
      if (m.number < seen.next) ++seen.repeats;
      seen.next = m.number + 1;
      ++seen.messages;
      seen.bytes += static_cast<int64_t>(message.payload.size());
      if (m.intended_us - first_intended < static_cast<int64_t>(options.warmup_s * 1e6)) continue;
      if (seen.first_us == 0) seen.first_us = now;
      seen.last_us = now;
      seen.measured_bytes += static_cast<int64_t>(message.payload.size());
      seen.delay.Record(now - m.intended_us);
      if (options.window_s > 0) seen.window.Record(now - m.intended_us);
    }
  }
  seen.ended = true;
  seen.counters = (*consumer)->counters();
  seen.remote_bytes = (*consumer)->remote_bytes_read();
}

// [microseconds, records at most that late], 2 % apart, so that processes' results can be added up.
nlohmann::json Cdf(const Histogram& histogram) {
  nlohmann::json cdf = nlohmann::json::array();
  uint64_t before = 0;
  for (double us = 10; before < histogram.Count(); us *= 1.02) {
    const uint64_t count = histogram.CountAtMost(static_cast<int64_t>(us));
    if (count != before) cdf.push_back({static_cast<int64_t>(us), count});
    before = count;
  }
  return cdf;
}

// A line for each window of time, as long as anybody consumes.
void ShowWindows(const LoadOptions& options, std::vector<Seen>& seen) {
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
           {"delay_cdf", Cdf(delay)}});
  }
}

int LoadConsume(LoadOptions& options) {
  const auto address = options.cell.Find();
  if (!address.ok()) return Fail(address.status());
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  const auto start = consumer::StartPoint::Parse(options.from);
  if (!start.ok()) return Fail(start.status().WithContext("--from"));
  CatchInterrupts();
  std::vector<Seen> seen(static_cast<size_t>(options.threads));
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (Seen& s : seen) {
    threads.emplace_back([&, out = &s] { ConsumeOne(options, *address, ready, *out); });
  }
  // Whoever starts the producer waits for this line.
  while (ready < options.threads && !Interrupted()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const double cpu_before = CpuSeconds();
  Print({{"kind", "ready"}, {"pid", getpid()}, {"consumers", options.threads}});
  if (options.window_s > 0) ShowWindows(options, seen);
  for (std::thread& thread : threads) thread.join();
  const double cpu = CpuSeconds() - cpu_before;

  Histogram delay;
  Seen total;
  int64_t low = INT64_MAX, high = 0, end_low = INT64_MAX;
  Status error;
  nlohmann::json each = nlohmann::json::array();
  for (Seen& s : seen) {
    delay.Merge(s.delay);
    total.messages += s.messages;
    total.bytes += s.bytes;
    total.measured_bytes += s.measured_bytes;
    total.gaps += s.gaps;
    total.repeats += s.repeats;
    total.foreign += s.foreign;
    total.remote_bytes += s.remote_bytes;
    total.counters.cache_bytes += s.counters.cache_bytes;
    total.counters.primary_bytes += s.counters.primary_bytes;
    total.counters.fallback_missing_chunk += s.counters.fallback_missing_chunk;
    total.counters.fallback_delayed += s.counters.fallback_delayed;
    total.counters.fallback_no_metadata += s.counters.fallback_no_metadata;
    total.counters.roll_overs += s.counters.roll_overs;
    low = std::min(low, s.messages);
    high = std::max(high, s.messages);
    end_low = std::min(end_low, static_cast<int64_t>(s.next));
    if (error.ok()) error = s.error;
    const double span = static_cast<double>(s.last_us - s.first_us) / 1e6;
    each.push_back({{"messages", s.messages},
                    {"mb_per_s", span > 0 ? static_cast<double>(s.measured_bytes) / span / 1e6 : 0},
                    {"p99_us", s.delay.Percentile(99)}});
  }
  Print({{"kind", "consume"},
         {"consumers", options.threads},
         {"messages", total.messages},
         {"messages_min", low},
         {"messages_max", high},
         {"next_number_min", end_low},
         {"bytes", total.bytes},
         {"measured_bytes", total.measured_bytes},
         {"gaps", total.gaps},
         {"repeats", total.repeats},
         {"foreign", total.foreign},
         {"delay_us", nlohmann::json::parse(delay.ToJson())},
         {"delay_cdf", Cdf(delay)},
         {"each", each},
         {"cache_bytes", total.counters.cache_bytes},
         {"remote_bytes_read", total.remote_bytes},
         {"primary_bytes", total.counters.primary_bytes},
         {"fallbacks", total.counters.fallback_missing_chunk + total.counters.fallback_delayed +
                           total.counters.fallback_no_metadata},
         {"roll_overs", total.counters.roll_overs},
         {"cpu_s", cpu},
         {"error", error.ok() ? "" : error.ToString()}});
  if (!error.ok()) return Fail(error);
  return total.gaps + total.repeats + total.foreign == 0
             ? kExitDone
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
        ->check(NotNegative())
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
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
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
