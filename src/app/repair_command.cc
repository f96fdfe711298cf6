// Reads the message files of a stream in its cells, and has those copied again from the cell above
// that fail their check sums.
#include "tailcast/app/repair_command.h"

#include <time.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/store_reader.h"
#include "tailcast/cell/topology.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/copytree/tree.h"
#include "tailcast/inspect/text.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::app {
namespace {

// So long the cell above may give nothing of a file.
constexpr Duration kPatience = Duration::Seconds(20);

struct RepairOptions {
  CellOptions cell;
  std::string stream;
  bool dry_run = false;
  double wait_s = 120;
};

struct DamagedFile {
  stream::ShardId shard;
  stream::Stem stem;
  int64_t end_number = 0;  // behind its last message
  FileCondition condition;
  std::string Name() const { return shard.ToString() + " file " + std::to_string(stem.seq); }
};

struct Findings {
  int64_t files = 0;    // that were read
  int64_t missing = 0;  // of these: shorter than they will be
  std::vector<DamagedFile> damaged;
  std::vector<std::string> absent;  // names: later files are there, and these, or a part, are not
};

// Of the files of all shards. In the source nothing is still to come: there a file that ends before
// its seal, or its index, is damaged, too.
Result<Findings> FindDamage(StoreReader& store, const v1::StreamConfig& stream, bool source) {
  using Kind = FileCondition::Kind;
  Findings findings;
  for (int32_t i = 0; i < stream.shards(); ++i) {
    const stream::ShardId shard{stream::IdOf(stream), i};
    TAILCAST_ASSIGN_OR_RETURN(const stream::ShardListing listing, store.List(shard));
    for (int64_t seq = std::max<int64_t>(listing.floor(), 1); seq < listing.last(); ++seq) {
      const stream::ListedPair* pair = listing.Find(seq);
      if (pair == nullptr || !pair->complete()) {
        findings.absent.push_back(shard.ToString() + " file " + std::to_string(seq));
      }
    }
    for (const auto& [seq, pair] : listing.pairs()) {
      const auto seal = listing.SealOf(seq);
      // Without one it is the newest, or the next is still to be copied.
      if (seq < listing.floor() || !pair.complete()) continue;
      auto condition = store.Check(shard, pair.stem, seal);
      if (!condition.ok()) {
        return condition.status().WithContext(shard.ToString() + " file " + std::to_string(seq));
      }
      if (condition->kind == Kind::kGone) continue;  // deleted, or set aside, since it was listed
      ++findings.files;
      if (condition->kind == Kind::kWell) continue;
      if (condition->kind == Kind::kMissing && !source) {
        ++findings.missing;
        continue;
      }
      const int64_t end_number = seal ? listing.Find(seq + 1)->stem.start_number
                                      : pair.stem.start_number + condition->messages;
      findings.damaged.push_back({shard, pair.stem, end_number, *std::move(condition)});
    }
  }
  return findings;
}

// Whether the cell at `scheduler` gives all messages of the file to a consumer. Its error says what
// it can't give.
Status ReadFromAbove(const std::string& scheduler, const DamagedFile& file) {
  consumer::Options options;
  options.cell = scheduler;
  options.stream = file.shard.stream.name;
  options.shards = {file.shard.shard};
  options.resume = {{.incarnation = file.shard.stream.incarnation,
                     .shard = file.shard.shard,
                     .number = file.stem.start_number,
                     .byte = file.stem.start_byte}};
  options.open_timeout = Duration::Seconds(5);
  TAILCAST_ASSIGN_OR_RETURN(const auto consumer, consumer::Consumer::Open(options));
  int64_t next = file.stem.start_number;
  MonotonicTime last = ReadMonotonicClock();
  while (next < file.end_number) {
    TAILCAST_ASSIGN_OR_RETURN(const auto batch, consumer->Poll(Duration::Millis(100)));
    if (Interrupted()) return CancelledError("interrupted");
    if (!batch.empty()) {
      next = batch.back().number + 1;
      last = ReadMonotonicClock();
    } else if (ReadMonotonicClock() - last > kPatience) {
      return UnavailableError("message " + std::to_string(next) + " does not come");
    }
  }
  return OkStatus();
}

// Until the file is there again and well.
Status WaitForCopy(StoreReader& store, const DamagedFile& file, MonotonicTime end) {
  for (;;) {
    TAILCAST_ASSIGN_OR_RETURN(const stream::ShardListing listing, store.List(file.shard));
    if (file.stem.seq < listing.floor()) return OkStatus();  // nobody needs it any more
    const stream::ListedPair* pair = listing.Find(file.stem.seq);
    const auto seal = listing.SealOf(file.stem.seq);
    std::string what = "it is not there yet";
    if (pair != nullptr && pair->complete()) {
      TAILCAST_ASSIGN_OR_RETURN(FileCondition condition, store.Check(file.shard, pair->stem, seal));
      if (condition.kind != FileCondition::Kind::kWell) {
        what = std::move(condition.what);
      } else if (seal || pair->stem.start_number + condition.messages >= file.end_number) {
        return OkStatus();
      } else {
        what = "it has " + inspect::Counted(static_cast<uint64_t>(condition.messages), "message");
      }
    }
    if (Interrupted()) return CancelledError("interrupted");
    if (ReadMonotonicClock() >= end) {
      return DeadlineExceededError(file.Name() + " was not copied again in time: " + what +
                                   "; the cell's scheduler goes on with it");
    }
    Sleep(Duration::Millis(200));  // nobody says when a copy is complete
  }
}

// The scheduler of the cell that `view`'s cell gets the stream from.
Result<std::string> SchedulerAbove(const RepairOptions& options, const cell::CellView& view,
                                   const v1::StreamConfig& stream) {
  std::string above;
  for (const v1::TreeEdge& edge : stream.tree()) {
    if (edge.to() == view.cell()) above = edge.from();
  }
  if (!options.cell.dir.empty()) {
    TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(options.cell.dir));
    TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell cell, deployment.Find(above));
    return cell.scheduler;
  }
  TAILCAST_ASSIGN_OR_RETURN(
      const cell::Topology topology,
      cell::ParseTopology(view.topology(), "the cell's topology", cell::Tables::kSkip));
  const cell::TopologyCluster* cluster = topology.FindCluster(above);
  if (cluster != nullptr && !cluster->scheduler.empty()) return cluster->scheduler;
  return FailedPreconditionError("the topology says no address of cell '" + above +
                                 "', from which cell " + view.cell() + " is to get it");
}

// Sets one file aside and waits for its copy, if the cell above has it.
Status RepairFile(const RepairOptions& options, StoreReader& store, const std::string& above,
                  const DamagedFile& file) {
  if (Status had = ReadFromAbove(above, file); !had.ok()) {
    if (IsCancelled(had)) return had;
    return had.WithContext(file.Name() +
                           " stays as it is, because the cell above does not have it whole");
  }
  TAILCAST_RETURN_IF_ERROR(store.TakeAside(file.shard, file.stem, file.condition.part));
  const MonotonicTime end =
      ReadMonotonicClock() + Duration::Micros(static_cast<int64_t>(options.wait_s * 1e6));
  TAILCAST_RETURN_IF_ERROR(WaitForCopy(store, file, end));
  std::printf("  %s: copied again\n", file.Name().c_str());
  std::fflush(stdout);
  return OkStatus();
}

Status RepairCell(const RepairOptions& options, const std::string& scheduler, bool& damage_left) {
  TAILCAST_ASSIGN_OR_RETURN(auto session, CellSession::OpenAt(scheduler, Duration::Seconds(3)));
  const cell::CellView view = session->client().view();
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig stream,
                            session->client().FindStream(options.stream));
  const bool source = stream.source() == view.cell();
  TAILCAST_ASSIGN_OR_RETURN(auto store, StoreReader::Open(view));
  TAILCAST_ASSIGN_OR_RETURN(const Findings findings, FindDamage(*store, stream, source));
  std::printf("cell %s: %s read, %zu damaged", view.cell().c_str(),
              inspect::Counted(static_cast<uint64_t>(findings.files), "file").c_str(),
              findings.damaged.size());
  if (findings.missing > 0) {
    std::printf(", %" PRId64 " not copied to the end yet", findings.missing);
  }
  if (!findings.absent.empty()) std::printf(", %zu not there", findings.absent.size());
  std::printf("\n");
  for (const std::string& name : findings.absent) {
    std::printf("  %s: it, or a part of it, is not there%s\n", name.c_str(),
                source ? "" : " (yet): the cell above copies it");
  }
  for (const DamagedFile& file : findings.damaged) {
    std::printf("  %s: %s\n", file.Name().c_str(), file.condition.what.c_str());
  }
  std::fflush(stdout);
  // Copies of a shard's files come in any order.
  if (findings.damaged.empty() && (!source || findings.absent.empty())) return OkStatus();
  if (options.dry_run) {
    damage_left = true;
    return OkStatus();
  }
  if (source) {
    return FailedPreconditionError(
        "cell " + view.cell() + " is the source of stream '" + options.stream +
        "', so that no cell above has what it lost: put the files back from a backup, or from the "
        "folder of another cell (docs/ops/storage.md)");
  }
  TAILCAST_ASSIGN_OR_RETURN(const std::string above, SchedulerAbove(options, view, stream));
  Status error;
  for (const DamagedFile& file : findings.damaged) {
    Status done = RepairFile(options, *store, above, file);
    if (IsCancelled(done)) return done;
    if (error.ok()) error = std::move(done);
  }
  return error;
}

// Those of the source and below it, parents first: who is copied from is mended first.
Result<std::vector<std::string>> SchedulersOf(const RepairOptions& options) {
  if (options.cell.dir.empty() ||
      (!options.cell.cluster.empty() && !options.cell.cluster_is_default)) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string one, options.cell.Find());
    return std::vector<std::string>{one};
  }
  TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(options.cell.dir));
  TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell source, FindSource(deployment, options.stream));
  TAILCAST_ASSIGN_OR_RETURN(auto session,
                            CellSession::OpenAt(source.scheduler, Duration::Seconds(3)));
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig stream,
                            session->client().FindStream(options.stream));
  TAILCAST_ASSIGN_OR_RETURN(const copytree::Tree ordered, copytree::Normalized(TreeOf(stream)));
  std::vector<std::string> schedulers = {source.scheduler};
  for (const copytree::Edge& edge : ordered.edges) {
    TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell cell, deployment.Find(edge.to));
    schedulers.push_back(cell.scheduler);
  }
  return schedulers;
}

int Repair(const RepairOptions& options) {
  const auto schedulers = SchedulersOf(options);
  if (!schedulers.ok()) return Fail(schedulers.status());
  CatchInterrupts();
  bool damage_left = false;
  Status error;
  for (const std::string& scheduler : *schedulers) {
    Status done = RepairCell(options, scheduler, damage_left);
    if (IsCancelled(done)) return Fail(done);
    if (error.ok()) error = std::move(done);  // other cells are mended all the same
  }
  if (!error.ok()) return Fail(error);
  return damage_left
             ? Fail(DataLossError("files are damaged; without --dry-run they are copied again"))
             : kExitDone;
}

}  // namespace

void AddRepair(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "repair", "Read a stream's files, and copy again what fails its check sums");
  auto options = std::make_shared<RepairOptions>();
  options->cell.Add(command, true);
  command->add_option("--stream", options->stream, "Stream to read")->required();
  command->add_flag("--dry-run", options->dry_run, "Say what is damaged, and change nothing");
  command
      ->add_option("--wait", options->wait_s, "Seconds to wait until the cell above has copied it")
      ->check(AboveZero())
      ->capture_default_str();
  command->callback([&action, options] { action = [options] { return Repair(*options); }; });
}

}  // namespace tailcast::app
