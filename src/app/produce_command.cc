// tailcast produce: standard input becomes messages of one shard.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <mutex>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/producer/producer.h"
#include "tailcast/stream/framing.h"

namespace tailcast::app {
namespace {

struct ProduceOptions {
  CellOptions cell;
  MetricsOption metrics;
  std::string stream;
  int32_t shard = 0;
  std::string framing = "lines";
  std::string profile = "standard";
  bool takeover = false;
  bool quiet = false;
  int64_t message_bytes_max = 16 << 20;
};

// The cell that the stream is produced in.
Result<CellOptions> AtSource(const ProduceOptions& options) {
  CellOptions cell = options.cell;
  if (!cell.cell.empty() || cell.dir.empty()) return cell;
  TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(cell.dir));
  TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell source, FindSource(deployment, options.stream));
  cell.cluster = source.name;
  return cell;
}

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

int Produce(ProduceOptions& options) {
  const auto framing = stream::ParseFraming(options.framing);
  if (!framing.ok()) return Fail(framing.status());
  const auto profile = cell::ParseProfile(options.profile);
  if (!profile.ok()) return Fail(profile.status());
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  const auto source = AtSource(options);
  if (!source.ok()) return Fail(source.status());
  const auto address = source->Find();
  if (!address.ok()) return Fail(address.status());

  producer::Options producer_options;
  producer_options.cell = *address;
  producer_options.stream = options.stream;
  producer_options.shards = {options.shard};
  producer_options.profile = *profile == cell::Profile::kLowLatency ? producer::Profile::kLowLatency
                                                                    : producer::Profile::kDefault;
  producer_options.takeover = options.takeover;
  producer_options.message_bytes_max = options.message_bytes_max;
  producer_options.on_trouble = [](const Status& why) {
    std::fprintf(stderr, "tailcast: %s; trying again\n", why.message().c_str());
  };
  auto producer = producer::Producer::Open(producer_options);
  if (!producer.ok()) return Fail(producer.status());

  CatchInterrupts();
  auto outcome = std::make_shared<Outcome>();
  stream::FrameSplitter splitter(*framing, options.message_bytes_max);
  Status error;
  const auto publish_all = [&] {
    while (auto message = splitter.Next()) {
      error = (*producer)->Publish(
          *message,
          [outcome](const producer::Ack& ack) {
            switch (ack.outcome) {
              case producer::AckOutcome::kDurable:
                ++outcome->durable;
                return;
              case producer::AckOutcome::kFailed:
                ++outcome->failed;
                break;
              case producer::AckOutcome::kUnknown:
                ++outcome->unknown;
                break;
            }
            std::lock_guard lock(outcome->mu);
            if (outcome->first_error.empty()) outcome->first_error = ack.error.ToString();
          },
          options.shard);
      if (!error.ok()) return;
    }
    error = splitter.status();
  };
  std::string buffer(256 << 10, '\0');
  while (error.ok() && !Interrupted()) {
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
  if (error.ok()) {
    // What was read before is published whatever the end of the input looks like.
    const Status end = splitter.Finish();
    publish_all();
    if (error.ok()) error = end;
  }
  if (!splitter.status().ok() && IsResourceExhausted(error)) {
    error = ResourceExhaustedError(error.message() +
                                   " (--message-bytes-max). Nothing from there on was published");
  }
  const Status closed = (*producer)->Close(Duration::Seconds(60));
  if (error.ok()) error = closed;
  if (error.ok() && outcome->failed + outcome->unknown > 0) {
    std::lock_guard lock(outcome->mu);
    error = UnavailableError(outcome->first_error);
  }
  if (!options.quiet || !error.ok()) {
    const int64_t durable = outcome->durable.load();
    std::fprintf(stderr, "tailcast: %" PRId64 " message%s durable", durable,
                 durable == 1 ? "" : "s");
    if (outcome->failed > 0) std::fprintf(stderr, ", %" PRId64 " failed", outcome->failed.load());
    if (outcome->unknown > 0)
      std::fprintf(stderr, ", %" PRId64 " unknown", outcome->unknown.load());
    std::fprintf(stderr, "\n");
  }
  if (outcome->durable > 0) ComplainOfSilence(*source);
  return error.ok() ? kExitDone : Fail(error);
}

}  // namespace

void AddProduce(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("produce", "Publish standard input as messages");
  auto options = std::make_shared<ProduceOptions>();
  options->cell.Add(command, false);
  command->add_option("--stream", options->stream, "Stream to publish to")->required();
  command->add_option("--shard", options->shard, "Shard of the stream")
      ->check(NotNegative())
      ->capture_default_str();
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
                   "Largest message that is accepted")
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
