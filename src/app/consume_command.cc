// tailcast consume: the messages of a stream, in order, to standard output.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "tailcast/app/command.h"
#include "tailcast/app/output_positions.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/stream/framing.h"

namespace tailcast::app {
namespace {

// So long nothing came although more is there: worth a word.
constexpr Duration kComplainAfter = Duration::Seconds(5);
// So much longer than --until-idle one that is busy is waited for.
constexpr Duration kBusyMax = Duration::Seconds(20);

struct ConsumeOptions {
  CellOptions cell;
  MetricsOption metrics;
  std::string stream;
  int32_t shard = -1;
  std::string framing = "lines";
  std::string from = "beginning";
  std::string profile = "standard";
  std::string fabric = "auto";
  int64_t count = 0;
  double until_idle_s = 0;
  bool follow = false;
  bool positions = false;
  std::string on_gap = "stop";
};

enum class Written : uint8_t {
  kAll,
  kInterrupted,  // nobody reads at the moment, and an interrupt came
  kReaderGone,
};

// Goes on behind what retention has deleted, where that stopped a shard; false if it stopped none.
bool SkipGap(consumer::Consumer& consumer) {
  bool skipped = false;
  for (int32_t shard : consumer.shards()) {
    const consumer::ConsumerAgent& agent = *consumer.agent(shard);
    if (!IsOutOfRange(agent.status())) continue;
    const auto from = agent.position();
    const auto to = agent.first_available();
    std::fprintf(stderr, "tailcast: shard %d: messages%s%s are not kept any more; going on %s\n",
                 shard, from ? (" from " + std::to_string(from->number)).c_str() : "",
                 to ? (" to " + std::to_string(to->number - 1)).c_str() : "",
                 to ? ("at " + to->ToString()).c_str() : "where they begin");
    const auto start = to ? consumer::StartPoint::At(*to) : consumer::StartPoint::Beginning();
    if (Status s = consumer.Seek(shard, start); !s.ok()) return false;
    skipped = true;
  }
  return skipped;
}

// Adds what was written of `bytes` to `positions`.
Result<Written> WriteAll(const std::string& bytes, OutputPositions& positions) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(STDOUT_FILENO, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) {
      if (Interrupted()) return Written::kInterrupted;
      continue;
    }
    if (n < 0 && errno == EPIPE) return Written::kReaderGone;
    if (n < 0) {
      return UnavailableError(std::string("can't write standard output: ") + std::strerror(errno));
    }
    at += static_cast<size_t>(n);
    positions.OnWritten(n);
    if (at < bytes.size() && Interrupted()) return Written::kInterrupted;  // it had to wait
  }
  return Written::kAll;
}

// How much a pipe holds that nobody has read yet; 0 if standard output is no pipe.
int64_t PipeBytesMax() { return std::max(0, fcntl(STDOUT_FILENO, F_GETPIPE_SZ)); }
// How much it holds now.
int64_t PipeBytes() {
  int bytes = 0;
  return PipeBytesMax() > 0 && ioctl(STDOUT_FILENO, FIONREAD, &bytes) == 0 ? bytes : 0;
}

// Whether a shard is still being looked for, or has bytes that are on their way: then it is not
// idle.
bool Busy(const consumer::Consumer& consumer) {
  for (int32_t shard : consumer.shards()) {
    const consumer::ConsumerAgent* agent = consumer.agent(shard);
    if (agent == nullptr || !agent->trouble().ok()) continue;
    if (agent->state() == consumer::AgentState::kLocating || agent->lag_bytes() > 0 ||
        !agent->missing().ok() || agent->begins_beyond()) {
      return true;
    }
  }
  return false;
}

// What the cell says it has and can't give, or lacks, of all shards; empty if there is nothing of
// the kind.
std::string Unreadable(const consumer::Consumer& consumer) {
  std::string text;
  for (int32_t shard : consumer.shards()) {
    const consumer::ConsumerAgent* agent = consumer.agent(shard);
    if (agent == nullptr) continue;
    std::string what;
    if (!agent->trouble().ok()) {
      what = std::to_string(agent->lag_bytes()) +
             " bytes more are there and can't be read: " + agent->trouble().message();
    } else if (const auto end = agent->begins_beyond()) {
      what = "it is to begin at message " + std::to_string(agent->position()->number) +
             ", which is not in this cell: it has " + std::to_string(*end) + " so far";
    } else if (const Status missing = agent->missing(); !missing.ok()) {
      what = "more was written: " + missing.message();
    } else {
      continue;
    }
    text += (text.empty() ? "" : "; ") + agent->shard().ToString() + ": " + what;
  }
  return text;
}

int Consume(ConsumeOptions& options) {
  const auto framing = stream::ParseFraming(options.framing);
  if (!framing.ok()) return Fail(framing.status());
  const auto profile = cell::ParseProfile(options.profile);
  if (!profile.ok()) return Fail(profile.status());
  const auto start = consumer::StartPoint::Parse(options.from);
  if (!start.ok()) return Fail(start.status().WithContext("--from"));
  if ((options.count > 0) + (options.until_idle_s > 0) + options.follow > 1) {
    return Fail(InvalidArgumentError("give one of --count, --until-idle and --follow"));
  }
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  const auto address = options.cell.Find();
  if (!address.ok()) return Fail(address.status());

  consumer::Options consumer_options;
  consumer_options.cell = *address;
  consumer_options.stream = options.stream;
  if (options.shard >= 0) consumer_options.shards = {options.shard};
  consumer_options.start = *start;
  consumer_options.profile = *profile == cell::Profile::kLowLatency ? consumer::Profile::kLowLatency
                                                                    : consumer::Profile::kDefault;
  consumer_options.fabric = options.fabric == "shm"     ? consumer::FabricPreference::kShm
                            : options.fabric == "tcp"   ? consumer::FabricPreference::kTcp
                            : options.fabric == "verbs" ? consumer::FabricPreference::kVerbs
                                                        : consumer::FabricPreference::kAuto;
  auto consumer = consumer::Consumer::Open(consumer_options);
  if (!consumer.ok()) return Fail(consumer.status());

  CatchInterrupts();
  int64_t got = 0;
  const auto place = [&](const consumer::Message& message, bool behind) {
    const auto size = behind ? static_cast<int64_t>(message.payload.size()) : 0;
    const stream::ShardId& shard = (*consumer)->agent(message.shard)->shard();
    return stream::Position{.incarnation = shard.stream.incarnation,
                            .shard = message.shard,
                            .number = message.number + (behind ? 1 : 0),
                            .byte = message.byte + size};
  };
  OutputPositions positions(PipeBytesMax());
  Written written = Written::kAll;
  Status error;
  std::string out;
  MonotonicTime last = ReadMonotonicClock();
  bool done = false, complained = false, was_busy = false;
  while (!done && error.ok() && !Interrupted()) {
    const auto batch = (*consumer)->Poll(Duration::Millis(100));
    if (!batch.ok()) {
      if (options.on_gap == "skip" && IsOutOfRange(batch.status()) && SkipGap(**consumer)) continue;
      error = batch.status();
      if (IsOutOfRange(error) && options.on_gap != "skip") {
        error = OutOfRangeError(error.message() + " (--on-gap skip goes on there)");
      }
      break;
    }
    out.clear();
    for (const consumer::Message& message : *batch) positions.OnTaken(place(message, false));
    for (const consumer::Message& message : *batch) {
      const size_t before = out.size();
      error = stream::AppendFrame(*framing, message.payload, out);
      if (!error.ok()) break;
      ++got;
      positions.OnFrame(place(message, true), static_cast<int64_t>(out.size() - before));
      if (options.count > 0 && got == options.count) {
        done = true;
        break;
      }
    }
    if (const auto wrote = WriteAll(out, positions); !wrote.ok()) {
      error = wrote.status();
    } else if (*wrote != Written::kAll) {
      written = *wrote;
      done = true;
    }
    const MonotonicTime now = ReadMonotonicClock();
    if (!batch->empty()) {
      last = now;
      complained = false;
      continue;
    }
    // What it waited for may be there from now on, and is to be read first.
    const bool busy = Busy(**consumer);
    if (std::exchange(was_busy, busy) && !busy) last = now;
    const double idle_s = (now - last).seconds() - (busy ? kBusyMax.seconds() : 0);
    if (options.until_idle_s > 0 && idle_s >= options.until_idle_s) {
      done = true;
      if (std::string what = Unreadable(**consumer); !what.empty()) error = UnavailableError(what);
    } else if (!complained && now - last > kComplainAfter) {
      complained = true;
      if (const std::string what = Unreadable(**consumer); !what.empty()) {
        std::fprintf(stderr, "tailcast: %s; going on to try\n", what.c_str());
      }
    }
  }
  if (options.positions) {
    const auto behind = positions.Behind(written == Written::kReaderGone ? PipeBytes() : 0);
    for (int32_t shard : (*consumer)->shards()) {
      // Of a shard that gave nothing: where it begins.
      const auto it = behind.find(shard);
      const auto position =
          it != behind.end() ? std::optional(it->second) : (*consumer)->position(shard);
      if (position) std::fprintf(stderr, "%s\n", position->ToString().c_str());
    }
  }
  return error.ok() ? kExitDone : Fail(error);
}

}  // namespace

void AddConsume(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("consume", "Write a stream's messages to standard output");
  auto options = std::make_shared<ConsumeOptions>();
  options->cell.Add(command, true);
  command->add_option("--stream", options->stream, "Stream to read")->required();
  command
      ->add_option("--shard", options->shard, "One shard; default: all, interleaved as they come")
      ->check(NotNegative());
  command->add_option("--framing", options->framing, "lines or length, as for produce")
      ->capture_default_str();
  command
      ->add_option(
          "--from", options->from,
          "beginning, end, time:T (UTC, as 2013-01-31T12:00:00Z, or microseconds since 1970), "
          "or a position")
      ->capture_default_str();
  command
      ->add_option("--profile", options->profile,
                   "standard: poll every 100 ms; low-latency: doorbells")
      ->capture_default_str();
  command->add_option("--fabric", options->fabric, "How cache memory is read")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs"}))
      ->capture_default_str();
  command
      ->add_option("--on-gap", options->on_gap,
                   "When what comes next is not kept any more: stop with an error, or skip it and "
                   "say so")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();
  command->add_option("--count", options->count, "End after this many messages")
      ->check(AboveZero());
  command
      ->add_option("--until-idle", options->until_idle_s,
                   "End when nothing came for this many seconds")
      ->check(AboveZero());
  command->add_flag("--follow", options->follow, "Go on until Ctrl-C (the default)");
  command->add_flag("--positions", options->positions,
                    "At the end, write the position behind the last message of each shard to "
                    "standard error: `--from` of the next run");
  options->metrics.Add(command);
  AddTraceDir(command);
  command->callback([&action, options] { action = [options] { return Consume(*options); }; });
}

}  // namespace tailcast::app
