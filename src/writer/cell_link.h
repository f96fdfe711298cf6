// What the operations of a writer tell its cell's scheduler and hear from it: notices of files, so
// that the next hop starts, and the retention floors of the shards. Internal to the module.
//
// A notice is told now and again until the scheduler has answered, one at a time, those of a shard
// in the order of its files; of a file the newest one counts, and one with the seal is never
// replaced by one without.
//
// Threads: everything on the loop. Destroying it drops what waits.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/names.h"
#include "tailcast/writer/effects.h"

namespace tailcast::writer {

class CellLink {
 public:
  // All outlive it.
  CellLink(EventLoop& loop, storage::Store& store, cell::CellClient& cell, Duration retry,
           Counter& failed);
  CellLink(const CellLink&) = delete;
  CellLink& operator=(const CellLink&) = delete;

  void Notify(const stream::FileId& file, const Seal& seal);
  // `then` gets the lowest sequence number that may be created in the shard. Unavailable: the
  // shard's folder can't be listed; DataLoss: its names contradict each other.
  void AskFloor(const stream::ShardId& shard, Callback<void(Result<int64_t>)> then);
  // The same, from the folder as it is now.
  void LookAtFloor(const stream::ShardId& shard, Callback<void(Result<int64_t>)> then);

 private:
  using FileKey = std::pair<stream::ShardId, int64_t>;  // its sequence number

  void SendNotice();
  int64_t RaiseFloor(const stream::ShardId& shard, int64_t floor);

  EventLoop& loop_;
  storage::Store& store_;
  cell::CellClient& cell_;
  const Duration retry_;
  Counter& failed_;
  std::map<FileKey, v1::FileNotice> notices_;  // that wait
  bool notifying_ = false;
  std::map<stream::ShardId, int64_t> floors_;  // as far as known
  Timer retry_timer_{loop_};
  Scope scope_;
};

}  // namespace tailcast::writer
