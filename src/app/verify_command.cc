// tailcast verify: whether a stream is the same in every cell, byte for byte, as consumers get it.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/shard_ends.h"
#include "tailcast/app/stream_digest.h"
#include "tailcast/app/terminal.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/copytree/tree.h"
#include "tailcast/inspect/text.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::app {
namespace {

struct VerifyOptions {
  CellOptions cell;
  std::string stream;
  double patience_s = 30;
};

consumer::Options ConsumerOf(const DeploymentCell& cell, const std::string& stream) {
  consumer::Options options;
  options.cell = cell.scheduler;
  options.stream = stream;
  return options;
}

// Goes on where shards begin by now of which retention has deleted what was read next; of those
// nothing was read before. False if it was another error.
bool SkipDeleted(consumer::Consumer& consumer, CellDigest& digest) {
  bool skipped = false;
  for (const int32_t shard : consumer.shards()) {
    if (!IsOutOfRange(consumer.shard_status(shard).error)) continue;
    if (!consumer.Seek(shard, consumer::StartPoint::Beginning()).ok()) return false;
    digest.shards[shard] = ShardDigest();
    skipped = true;
  }
  return skipped;
}

// Reads all shards of a cell, until the messages before `ends` are there. `read`: how many messages
// there are so far, for others to see.
CellDigest ReadCell(const DeploymentCell& cell, const v1::StreamConfig& stream,
                    const VerifyOptions& options, const std::map<int32_t, int64_t>& ends,
                    std::atomic<int64_t>& read) {
  CellDigest digest;
  auto consumer = consumer::Consumer::Open(ConsumerOf(cell, options.stream));
  if (!consumer.ok()) {
    digest.error = consumer.status().message();
    return digest;
  }
  if ((*consumer)->stream() != stream::IdOf(stream)) {
    digest.error = "it still has an older stream of this name";
    return digest;
  }
  for (const auto& [shard, end] : ends) digest.shards[shard];
  const auto lacking = [&] {
    return std::find_if(ends.begin(), ends.end(), [&](const auto& end) {
      return digest.shards[end.first].end() < end.second;
    });
  };
  MonotonicTime last = ReadMonotonicClock();
  while (lacking() != ends.end() && !Interrupted()) {
    const auto batch = (*consumer)->Poll(Duration::Millis(100));
    if (!batch.ok()) {
      if (IsOutOfRange(batch.status()) && SkipDeleted(**consumer, digest)) continue;
      digest.error = batch.status().message();
      return digest;
    }
    for (const consumer::Message& message : *batch) {
      if (message.number >= ends.at(message.shard)) continue;
      digest.shards[message.shard].Add(message);
      ++read;
    }
    const MonotonicTime now = ReadMonotonicClock();
    if (!batch->empty()) last = now;
    if ((now - last).seconds() < options.patience_s) continue;
    const auto& [shard, end] = *lacking();
    digest.error = "shard " + std::to_string(shard) + " ends at message " +
                   std::to_string(digest.shards[shard].end()) + " rather than " +
                   std::to_string(end) + ", and nothing came for " + inspect::SpanText(now - last) +
                   " (--patience)";
    return digest;
  }
  return digest;
}

// Shows on a terminal how far the threads are, until all `done`.
void ShowProgress(const std::atomic<int64_t>& read, int64_t total, const std::atomic<size_t>& done,
                  size_t cells) {
  const bool terminal = IsTerminal(STDERR_FILENO);
  bool drawn = false;
  while (done < cells) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // refresh rate
    if (!terminal || done == cells) continue;
    std::fprintf(stderr, "\r%3" PRId64 " %%  %" PRId64 " of %" PRId64 " messages\033[K",
                 total == 0 ? 100 : 100 * read / total, read.load(), total);
    drawn = true;
  }
  if (drawn) std::fprintf(stderr, "\r\033[K");
}

Result<v1::StreamConfig> FetchStream(const DeploymentCell& source, const std::string& stream) {
  TAILCAST_ASSIGN_OR_RETURN(auto session,
                            CellSession::OpenAt(source.scheduler, Duration::Seconds(5)));
  return session->client().FindStream(stream);
}

int Verify(const VerifyOptions& options) {
  if (options.cell.dir.empty()) {
    return Fail(InvalidArgumentError("cells are compared with each other: give --dir"));
  }
  const auto deployment = Deployment::Read(options.cell.dir);
  if (!deployment.ok()) return Fail(deployment.status());
  const auto source = FindSource(*deployment, options.stream);
  if (!source.ok()) return Fail(source.status());
  const auto stream = FetchStream(*source, options.stream);
  if (!stream.ok()) return Fail(stream.status());
  const auto tree = copytree::Normalized(TreeOf(*stream));
  if (!tree.ok()) return Fail(tree.status());
  CatchInterrupts();
  const auto ends = EndsNow(ConsumerOf(*source, options.stream));
  if (!ends.ok()) return Fail(ends.status());

  std::vector<std::string> names = {source->name};
  for (const copytree::Edge& edge : tree->edges) names.push_back(edge.to);
  std::vector<CellDigest> digests(names.size());
  std::vector<std::thread> threads;
  std::atomic<int64_t> read{0};
  std::atomic<size_t> done{0};
  for (size_t i = 0; i < names.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto cell = deployment->Find(names[i]);
      if (cell.ok()) {
        digests[i] = ReadCell(*cell, *stream, options, *ends, read);
      } else {
        digests[i].error = cell.status().message();
      }
      ++done;
    });
  }
  int64_t messages = 0;
  for (const auto& [shard, end] : *ends) messages += end;
  ShowProgress(read, messages * static_cast<int64_t>(names.size()), done, names.size());
  for (std::thread& thread : threads) thread.join();
  if (Interrupted()) return Fail(CancelledError("interrupted"));
  if (!digests[0].error.empty()) {
    return Fail(DataLossError("source " + source->name + ": " + digests[0].error));
  }

  int64_t bytes = 0, kept = 0;
  for (const auto& [shard, digest] : digests[0].shards) {
    bytes += digest.bytes();
    kept += digest.end() - digest.first();
  }
  std::printf("stream %s: %" PRId64 " messages, %s in %s, from %s\n", options.stream.c_str(), kept,
              inspect::BytesText(bytes).c_str(), inspect::Counted(ends->size(), "shard").c_str(),
              source->name.c_str());
  std::map<std::string, CellDigest> cells;
  for (size_t i = 0; i < names.size(); ++i) cells[names[i]] = std::move(digests[i]);
  Status error;
  for (const HopFinding& finding : CompareHops(*tree, cells)) {
    const std::string hop = finding.hop.from + " -> " + finding.hop.to;
    std::printf("  %-30s %s\n", hop.c_str(), finding.same ? "the same" : finding.what.c_str());
    if (finding.same || !error.ok()) continue;
    error = DataLossError("the first hop of the copy tree that differs is " + hop + ": " +
                          finding.what);
  }
  return error.ok() ? kExitDone : Fail(error);
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("verify", "Compare a stream byte for byte between all of its cells");
  auto options = std::make_shared<VerifyOptions>();
  options->cell.Add(command, false);
  command->add_option("--stream", options->stream, "Stream to compare")->required();
  command
      ->add_option("--patience", options->patience_s,
                   "Seconds in which a cell that lacks messages must get some")
      ->check(AboveZero())
      ->capture_default_str();
  command->callback([&action, options] { action = [options] { return Verify(*options); }; });
}

}  // namespace tailcast::app
