// Reads the message files of a stream in its cells, and has those copied again from the cell above
// that fail their check sums.
#include "tailcast/app/repair_command.h"

#include <time.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/pair_check.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/copytree/tree.h"
#include "tailcast/inspect/text.h"
#include "tailcast/storage/open_store.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::app {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr int64_t kIndexBytesMax = int64_t{1} << 30;

struct RepairOptions {
  CellOptions cell;
  std::string stream;
  bool dry_run = false;
  double wait_s = 120;
};

// The primary layer of one cell, asked one question after the other.
class StoreReader {
 public:
  static Result<std::unique_ptr<StoreReader>> Open(const std::string& url) {
    TAILCAST_ASSIGN_OR_RETURN(const auto parsed, storage::ParseStoreUrl(url));
    auto reader = std::unique_ptr<StoreReader>(new StoreReader);
    TAILCAST_ASSIGN_OR_RETURN(reader->store_, storage::OpenStore(&reader->loop_, parsed));
    return reader;
  }

  Result<stream::ShardListing> List(const stream::ShardId& shard) {
    const auto entries = Wait<Result<std::vector<storage::DirEntry>>>(
        [&](auto done) { store_->List(stream::ShardDir(shard), std::move(done)); });
    if (!entries.ok()) return entries.status();
    return stream::ShardListing::Parse(*entries);
  }

  // What is wrong with a closed file, as PairCheck says; empty: nothing.
  std::string Damage(const stream::ShardId& shard, const stream::Stem& stem,
                     const stream::Seal& seal) {
    const std::string dir = stream::ShardDir(shard);
    std::string index;
    std::string index_error =
        Read(dir, FileName(stem, stream::Part::kIndex), [&](std::string_view bytes) {
          index.append(bytes);
          return static_cast<int64_t>(index.size()) < kIndexBytesMax;
        });
    PairCheck check(seal, index);
    if (!check.damage().empty() && !index_error.empty()) return index_error;
    if (check.done()) return check.damage();
    check.OnEnd(Read(dir, FileName(stem, stream::Part::kData), [&](std::string_view bytes) {
      check.OnData(bytes);
      return !check.done() && !Interrupted();
    }));
    return Interrupted() ? "" : check.damage();
  }

  // Index first: data alone is half a pair, which nobody takes for a file.
  Status TakeAside(const stream::ShardId& shard, const stream::Stem& stem) {
    for (const stream::Part part : {stream::Part::kIndex, stream::Part::kData}) {
      const Status aside = Wait<Status>([&](auto done) {
        store_->Quarantine(stream::ShardDir(shard), stream::FileName(stem, part), std::move(done));
      });
      if (!aside.ok() && !IsNotFound(aside)) {
        return aside.WithContext("take " + stream::FileName(stem, part) + " aside");
      }
    }
    return OkStatus();
  }

 private:
  StoreReader() = default;

  // Gives the file's bytes to `take` until it returns false. Returns why no more could be read.
  template <typename Take>
  std::string Read(const std::string& dir, const std::string& name, Take take) {
    auto file = Wait<Result<std::unique_ptr<storage::ReadFile>>>(
        [&](auto done) { store_->OpenRead(dir, name, std::move(done)); });
    if (!file.ok()) return file.status().message();
    for (int64_t at = 0;;) {
      const auto bytes = Wait<Result<std::string>>(
          [&](auto done) { (*file)->Read(at, kReadBytes, std::move(done)); });
      if (!bytes.ok()) return bytes.status().message();
      if (bytes->empty() || !take(std::string_view(*bytes))) return "";
      at += static_cast<int64_t>(bytes->size());
    }
  }

  template <typename T, typename Ask>
  T Wait(Ask ask) {
    std::optional<T> answer;
    const Scope scope;
    ask(scope.Bind([&](T value) { answer.emplace(std::move(value)); }));
    loop_.RunUntil([&] { return answer.has_value(); }, MonotonicTime::Max());
    return std::move(*answer);
  }

  ThreadLoop loop_;
  std::unique_ptr<storage::Store> store_;
};

struct DamagedFile {
  stream::ShardId shard;
  stream::Stem stem;
  std::string what;
  std::string Name() const { return shard.ToString() + " file " + std::to_string(stem.seq); }
};

// Of the closed files of all shards; how many were read is added to `files`.
Result<std::vector<DamagedFile>> FindDamage(StoreReader& store, const v1::StreamConfig& stream,
                                            int64_t& files) {
  std::vector<DamagedFile> damaged;
  for (int32_t i = 0; i < stream.shards(); ++i) {
    const stream::ShardId shard{stream::IdOf(stream), i};
    TAILCAST_ASSIGN_OR_RETURN(const stream::ShardListing listing, store.List(shard));
    for (const auto& [seq, pair] : listing.pairs()) {
      const auto seal = listing.SealOf(seq);
      if (seq < listing.floor() || !pair.complete() || !seal) continue;
      if (Interrupted()) return CancelledError("interrupted");
      ++files;
      const std::string what = store.Damage(shard, pair.stem, *seal);
      if (!what.empty()) damaged.push_back({shard, pair.stem, what});
    }
  }
  return damaged;
}

// Until the file is there again and well.
Status WaitForCopy(StoreReader& store, const DamagedFile& file, MonotonicTime end) {
  for (;;) {
    TAILCAST_ASSIGN_OR_RETURN(const stream::ShardListing listing, store.List(file.shard));
    const stream::ListedPair* pair = listing.Find(file.stem.seq);
    const auto seal = listing.SealOf(file.stem.seq);
    std::string what = "it is not there yet";
    if (pair != nullptr && pair->complete() && seal) {
      what = store.Damage(file.shard, pair->stem, *seal);
      if (what.empty()) return OkStatus();
    }
    if (Interrupted()) return CancelledError("interrupted");
    if (ReadMonotonicClock() >= end) {
      return DeadlineExceededError(file.Name() + " was not copied again in time: " + what +
                                   "; the cell's scheduler goes on with it");
    }
    const timespec pause{0, 200'000'000};  // nobody says when a copy is complete
    nanosleep(&pause, nullptr);
  }
}

Status RepairCell(const RepairOptions& options, const std::string& scheduler, bool& damage_left) {
  TAILCAST_ASSIGN_OR_RETURN(auto session, CellSession::OpenAt(scheduler, Duration::Seconds(3)));
  const cell::CellView view = session->client().view();
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig stream,
                            session->client().FindStream(options.stream));
  TAILCAST_ASSIGN_OR_RETURN(auto store, StoreReader::Open(view.store()));
  int64_t files = 0;
  TAILCAST_ASSIGN_OR_RETURN(const auto damaged, FindDamage(*store, stream, files));
  std::printf("cell %s: %s read, %zu damaged\n", view.cell().c_str(),
              inspect::Counted(static_cast<uint64_t>(files), "closed file").c_str(),
              damaged.size());
  for (const DamagedFile& file : damaged) {
    std::printf("  %s: %s\n", file.Name().c_str(), file.what.c_str());
  }
  std::fflush(stdout);
  if (damaged.empty()) return OkStatus();
  if (options.dry_run) {
    damage_left = true;
    return OkStatus();
  }
  if (stream.source() == view.cell()) {
    return FailedPreconditionError(
        "cell " + view.cell() + " is the source of stream '" + options.stream +
        "', so that no cell above has what it lost: put the files back from a backup, or from the "
        "folder of another cell (docs/ops/storage.md)");
  }
  for (const DamagedFile& file : damaged) {
    TAILCAST_RETURN_IF_ERROR(store->TakeAside(file.shard, file.stem));
  }
  const MonotonicTime end =
      ReadMonotonicClock() + Duration::Micros(static_cast<int64_t>(options.wait_s * 1e6));
  for (const DamagedFile& file : damaged) {
    TAILCAST_RETURN_IF_ERROR(WaitForCopy(*store, file, end));
    std::printf("  %s: copied again\n", file.Name().c_str());
    std::fflush(stdout);
  }
  return OkStatus();
}

// Those below the source, parents first: who is copied from is mended first.
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
      "repair", "Read a stream's closed files, and copy again what fails its check sums");
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
