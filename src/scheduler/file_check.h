// Keeps finding out what this cell lacks of its message files (missing_files.h): hears of listings
// and notices, and looks at a few closed files at a time, one shard after the other, all over
// again.
//
// Threads: everything on one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/registry_core.h"
#include "tailcast/scheduler/disk_progress.h"
#include "tailcast/scheduler/missing_files.h"

namespace tailcast::scheduler {

struct FileCheckOptions {
  std::string cell;
  int files_per_round = 200;                      // that one Look opens
  Duration show_interval = Duration::Seconds(1);  // news are shown no more often
};

class FileCheck {
 public:
  using Show = std::function<void(const std::vector<v1::LackingFile>& lacking, int64_t total)>;

  // All outlive it. `show`: what is lacking has changed.
  FileCheck(EventLoop& loop, DiskProgress& disk, const cell::RegistryCore& registry,
            MetricRegistry& metrics, FileCheckOptions options, Show show);
  FileCheck(const FileCheck&) = delete;
  FileCheck& operator=(const FileCheck&) = delete;

  // A producer or writer of this cell has opened it.
  void OnNotice(const stream::ShardId& shard, int64_t seq);
  void OnListingBegins(const stream::ShardId& shard) { missing_.OnListingBegins(shard); }
  void OnListed(const stream::ShardId& shard, const DiskProgress::Listing& listing);
  // It was deleted, or its copy tree left.
  void OnStreamRemoved(const stream::StreamId& stream);
  // Looks at the next files, unless it still does. Shows what has changed.
  void Look();
  // No more looks.
  void End() { scope_.End(); }

  const MissingFiles& missing() const { return missing_; }

 private:
  // What a cell has of a stream whose copy tree it has left is nobody's concern.
  bool Watches(const stream::ShardId& shard) const;
  std::vector<stream::ShardId> Shards() const;
  void LookAt(size_t shards_left, int files_left);
  void OnLooked(size_t shards_left, int files_left, const ShardProgress& progress);
  void Report(const stream::ShardId& shard, const std::vector<MissingFiles::Found>& found);
  void ShowSoon();
  void ShowNow();

  DiskProgress& disk_;
  const cell::RegistryCore& registry_;
  const FileCheckOptions options_;
  const Show show_;
  Gauge& lacking_;
  MissingFiles missing_;
  bool looking_ = false;
  stream::ShardId next_shard_;
  int64_t next_seq_ = 1;
  Timer show_timer_;
  Scope scope_;
};

}  // namespace tailcast::scheduler
