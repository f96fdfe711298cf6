// tailcast produce: standard input becomes messages, of one shard or each of that of its key.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/message_key.h"
#include "tailcast/app/publish.h"
#include "tailcast/app/source_cell.h"
#include "tailcast/app/terminal.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/inspect/text.h"
#include "tailcast/producer/producer.h"
#include "tailcast/stream/framing.h"
#include "tailcast/stream/message_headers.h"

namespace tailcast::app {
namespace {

struct ProduceOptions {
  CellOptions cell;
  MetricsOption metrics;
  std::string stream;
  std::optional<int32_t> shard;  // 0 if there is no key
  std::string key, delimiter = ",";
  std::vector<std::string> headers;  // NAME=VALUE, of each message
  double rate = 0;                   // messages a second; 0: as fast as they come
  std::string framing = "lines";
  std::string profile = "standard";
  bool takeover = false;
  bool quiet = false;
  int64_t message_bytes_max = 16 << 20;
};

// So long a standard input that says nothing is waited for before the producer is looked at.
constexpr int kInputWaitMs = 200;

// Whether there is something to read, or the end; false if not after a while, or a signal came.
bool InputIsReady() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, kInputWaitMs) > 0;
}

// At the end the cell has so long to answer.
constexpr Duration kContactTimeout = Duration::Millis(500);

// Acknowledgements, counted on the producer's thread.
struct Outcome {
  std::atomic<int64_t> durable{0}, failed{0}, unknown{0};
  std::mutex mu;
  std::string first_error;

  void OnAck(const producer::Ack& ack) {
    switch (ack.outcome) {
      case producer::AckOutcome::kDurable:
        ++durable;
        return;
      case producer::AckOutcome::kFailed:
        ++failed;
        break;
      case producer::AckOutcome::kUnknown:
        ++unknown;
        break;
    }
    const std::lock_guard lock(mu);
    if (first_error.empty()) first_error = ack.error.ToString();
  }
};

// Says so if the cell cannot be reached: nobody tells the other cells what is new.
void ComplainOfSilence(const CellOptions& source) {
  const auto address = source.Find();  // where it is by now
  const Status there =
      address.ok() ? CellSession::OpenAt(*address, kContactTimeout).status() : address.status();
  if (there.ok()) return;
  std::fprintf(stderr,
               "tailcast: %s. What is durable is in the primary layer of its source cell; other "
               "cells get it when that runs again\n",
               there.message().c_str());
}

// Nothing if standard input is no file.
std::optional<int64_t> InputFileBytes() {
  struct stat info {};
  if (fstat(STDIN_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return info.st_size;
}

// Says on a terminal how far it is.
class Progress {
 public:
  explicit Progress(bool on)
      : on_(on && IsTerminal(STDERR_FILENO)), input_bytes_(InputFileBytes().value_or(0)) {}
  ~Progress() { Clear(); }
  // `bytes` of the input were published.
  void Show(int64_t bytes, int64_t published, int64_t durable) {
    const MonotonicTime now = ReadMonotonicClock();
    if (!on_ || now - shown_ < kShowInterval) return;
    shown_ = now;
    const double seconds = std::max((now - began_).seconds(), 1e-3);
    std::string line =
        std::to_string(durable) + " of " + std::to_string(published) + " messages durable, " +
        inspect::BytesText(bytes) + ", " +
        inspect::BytesText(static_cast<int64_t>(static_cast<double>(bytes) / seconds)) + "/s";
    if (input_bytes_ > 0) {
      line = std::to_string(100 * bytes / input_bytes_) + " %  " + line;
    }
    std::fprintf(stderr, "\r%s\033[K", line.c_str());
    drawn_ = true;
  }
  // So that something else can be said.
  void Clear() {
    if (std::exchange(drawn_, false)) std::fprintf(stderr, "\r\033[K");
  }

 private:
  static constexpr Duration kShowInterval = Duration::Millis(250);
  const bool on_;
  const int64_t input_bytes_;  // 0: not known
  const MonotonicTime began_ = ReadMonotonicClock();
  MonotonicTime shown_;
  bool drawn_ = false;
};

// When the next message may be published: at most `rate` a second, 0: at once. Of time in which
// nothing was published 20 ms are made up for, as many as a sleep may be late.
class Pace {
 public:
  explicit Pace(double rate)
      : interval_(rate > 0 ? Duration::Micros(static_cast<int64_t>(std::ceil(1e6 / rate)))
                           : Duration()) {}
  void OnPublished() {
    const MonotonicTime now = ReadMonotonicClock();
    due_ = (due_ == MonotonicTime() ? now : std::max(due_, now - Duration::Millis(20))) + interval_;
  }
  // Until then; false if an interrupt came, or the producer ended.
  bool Wait(const producer::Producer& producer) const {
    constexpr Duration kLook =
        Duration::Millis(100);  // for interrupts that come just before a wait, too
    for (Duration wait; (wait = due_ - ReadMonotonicClock()) > Duration();) {
      if (Interrupted() || !producer.status().ok()) return false;
      Sleep(std::min(wait, kLook));
    }
    return true;
  }

 private:
  const Duration interval_;
  MonotonicTime due_;
};

Result<producer::Options> ProducerOptionsOf(const ProduceOptions& options,
                                            const CellOptions& source) {
  TAILCAST_ASSIGN_OR_RETURN(const cell::Profile profile, cell::ParseProfile(options.profile));
  producer::Options out;
  TAILCAST_ASSIGN_OR_RETURN(out.cell, source.Find());
  out.stream = options.stream;
  if (options.key.empty()) out.shards = {options.shard.value_or(0)};
  out.profile = profile == cell::Profile::kLowLatency ? producer::Profile::kLowLatency
                                                      : producer::Profile::kDefault;
  out.takeover = options.takeover;
  out.message_bytes_max = options.message_bytes_max;
  out.on_trouble = [](const Status& why) {
    std::fprintf(stderr, "tailcast: %s; trying again\n", why.message().c_str());
  };
  return out;
}

// Views of the options.
Result<std::vector<stream::Header>> HeadersOf(const ProduceOptions& options) {
  std::vector<stream::Header> headers;
  for (const std::string& given : options.headers) {
    const size_t equals = given.find('=');
    if (equals == std::string::npos) {
      return InvalidArgumentError("--header '" + given + "': write NAME=VALUE");
    }
    const std::string_view text = given;
    headers.push_back({.name = text.substr(0, equals), .value = text.substr(equals + 1)});
  }
  return headers;
}

// What they take of each message, bytes.
Result<int64_t> HeaderBytes(const ProduceOptions& options,
                            const std::vector<stream::Header>& headers) {
  const auto encoded = stream::Headers::Encode(headers);
  if (!encoded.ok()) return encoded.status().WithContext("--header");
  const auto bytes = static_cast<int64_t>(encoded->size());
  if (bytes < options.message_bytes_max) return bytes;
  return InvalidArgumentError("--header: they take " + std::to_string(bytes) +
                              " bytes, and a message with them may have " +
                              std::to_string(options.message_bytes_max) + " (--message-bytes-max)");
}

int Produce(ProduceOptions& options) {
  const auto framing = stream::ParseFraming(options.framing);
  if (!framing.ok()) return Fail(framing.status());
  std::optional<MessageKey> key;
  if (!options.key.empty()) {
    if (options.shard) return Fail(InvalidArgumentError("give --key or --shard, not both"));
    auto parsed = MessageKey::Parse(options.key, options.delimiter[0]);
    if (!parsed.ok()) return Fail(parsed.status());
    key = std::move(*parsed);
  }
  const auto headers = HeadersOf(options);
  if (!headers.ok()) return Fail(headers.status());
  const auto header_bytes = HeaderBytes(options, *headers);
  if (!header_bytes.ok()) return Fail(header_bytes.status());
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  const auto source = AtSource(options.cell, options.stream);
  if (!source.ok()) return Fail(source.status());
  const auto producer_options = ProducerOptionsOf(options, *source);
  if (!producer_options.ok()) return Fail(producer_options.status());
  auto producer = producer::Producer::Open(*producer_options);
  if (!producer.ok()) return Fail(producer.status());

  CatchInterrupts();
  auto outcome = std::make_shared<Outcome>();
  stream::FrameSplitter splitter(*framing, options.message_bytes_max - *header_bytes);
  Progress progress(!options.quiet);
  Pace pace(options.rate);
  int64_t published = 0;
  Status error;
  const auto on_ack = [outcome](const producer::Ack& ack) { outcome->OnAck(ack); };
  const auto publish_all = [&] {
    for (;;) {
      if (!pace.Wait(**producer)) {
        error = (*producer)->status();
        return;
      }
      const auto message = splitter.Next();
      if (!message) break;
      int32_t shard = options.shard.value_or(0);
      if (key) {
        const auto of = key->Of(*message);
        if (!of.ok()) {
          error = of.status().WithContext("message " + std::to_string(published + 1) +
                                          "; nothing from there on was published");
          return;
        }
        shard = (*producer)->ShardOf(*of);
      }
      const auto taken = PublishUntilInterrupted(**producer, *message, on_ack, shard, *headers);
      if (!taken.ok()) error = taken.status();
      if (!taken.ok() || !*taken) return;
      pace.OnPublished();
      ++published;
      progress.Show(splitter.taken_bytes(), published, outcome->durable);
    }
    error = splitter.status();
  };
  std::string buffer(256 << 10, '\0');
  while (error.ok() && !Interrupted()) {
    progress.Show(splitter.taken_bytes(), published, outcome->durable);
    if (!InputIsReady()) {
      error = (*producer)->status();
      continue;
    }
    const ssize_t n = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) error = ErrnoStatus(errno, "read standard input");
    if (n <= 0) break;
    splitter.Push(std::string_view(buffer).substr(0, static_cast<size_t>(n)));
    publish_all();
  }
  bool all_published = false;
  // After an interrupt the input's rest, perhaps the beginning of a message, is left.
  if (error.ok() && !Interrupted()) {
    // What was read before is published whatever the end of the input looks like.
    const Status end = splitter.Finish();
    publish_all();
    if (error.ok()) error = end;
    all_published = !Interrupted();
  }
  if (!splitter.status().ok() && IsResourceExhausted(error)) {
    error = ResourceExhaustedError(error.message() +
                                   " (--message-bytes-max). Nothing from there on was published");
  }
  const Status closed = CloseUntilInterrupted(**producer, outcome->durable);
  progress.Clear();
  if (error.ok()) error = closed;
  if (error.ok() && outcome->failed + outcome->unknown > 0) {
    std::lock_guard lock(outcome->mu);
    error = UnavailableError(outcome->first_error);
  }
  if (!options.quiet || !error.ok()) {
    std::fprintf(stderr, "tailcast: %s%s\n", Interrupted() ? "interrupted: " : "",
                 OutcomeText(outcome->durable, outcome->failed, outcome->unknown).c_str());
  }
  if (outcome->durable > 0) ComplainOfSilence(*source);
  // A script must not take a part of its file for all of it; a pipe has no end that is missed.
  if (error.ok() && !all_published && InputFileBytes()) {
    error = CancelledError("interrupted before the end of its input: what comes behind " +
                           std::to_string(splitter.taken_bytes()) + " bytes was not published");
  }
  return error.ok() ? kExitDone : Fail(error);
}

}  // namespace

void AddProduce(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("produce", "Publish standard input as messages");
  auto options = std::make_shared<ProduceOptions>();
  options->cell.Add(command, false);
  command->add_option("--stream", options->stream, "Stream to publish to")->required();
  command->add_option("--shard", options->shard, "Shard of the stream; default: 0, without --key")
      ->check(ShardNumber());
  command->add_option("--key", options->key,
                      "Messages of one key go to one shard. The key is a field: its number in a "
                      "line (from 1), the name of a JSON member, or a JSON pointer");
  command->add_option("--delimiter", options->delimiter, "Of the fields of a line")
      ->check(OneCharacter())
      ->capture_default_str();
  command
      ->add_option("--header", options->headers,
                   "A header that each message gets, NAME=VALUE; once for each")
      ->allow_extra_args(false);
  command->add_option("--rate", options->rate, "At most so many messages a second")
      ->check(AboveZero());
  command
      ->add_option("--framing", options->framing,
                   "lines: each line with its newline is a message; length: 4-byte big-endian "
                   "length, then the payload")
      ->capture_default_str();
  command
      ->add_option("--profile", options->profile,
                   "standard: flush every 100 ms; low-latency: every 2 ms")
      ->capture_default_str();
  command
      ->add_option("--message-bytes-max", options->message_bytes_max,
                   "Largest message that is accepted, its headers included")
      ->check(CLI::Range(int64_t{1}, int64_t{256} << 20))
      ->capture_default_str();
  command->add_flag("--takeover", options->takeover,
                    "Take the shard over from a producer that is alive, or may be");
  command->add_flag("--quiet", options->quiet, "Say nothing but errors");
  options->metrics.Add(command);
  AddTraceDir(command);
  command->callback([&action, options] { action = [options] { return Produce(*options); }; });
}

}  // namespace tailcast::app
