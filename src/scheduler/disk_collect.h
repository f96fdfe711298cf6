// Gives the disk back that message files below a shard's retention floor take. First the floor is
// written into the shard's folder, as the marker that every reader of a listing sees; then what is
// below is deleted, file by file (specs Retention, Claim).
//
// Nothing is remembered: what is left to do is what a listing shows, so it goes on from anywhere,
// and a file that somebody slow creates below the floor goes with the next look.
//
// Threads: everything on the store's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

struct DiskCollectOptions {
  Duration retry = Duration::Seconds(1);  // after an error of the store
};

class DiskCollect {
 public:
  // Both outlive it.
  DiskCollect(EventLoop& loop, storage::Store& store, DiskCollectOptions options = {});
  DiskCollect(const DiskCollect&) = delete;
  DiskCollect& operator=(const DiskCollect&) = delete;

  // The floor is durable in the registry: looks at the shard's folder, also if it did before. One
  // shard at a time is worked on.
  void Collect(const stream::ShardId& shard, int64_t floor);
  // The stream is no more.
  void Forget(const stream::StreamId& stream);
  // Nothing is left to do.
  bool idle() const { return works_.empty(); }
  int64_t files_deleted() const { return files_deleted_; }
  // What does not get on, and why, for people.
  std::vector<std::string> Failing() const;
  void End();

 private:
  struct Work {
    Work(EventLoop& loop, int64_t at) : floor(at), timer(loop) {}
    int64_t floor;
    bool again = false;  // it was asked for meanwhile
    bool waits = false;  // for its timer
    std::string why;     // the last time that it failed; empty: it did not
    Timer timer;
  };

  void WorkOn();
  // Of the current one, each after the other.
  void List();
  void Mark();
  void DeleteNext();
  void Done();
  void Fail(const char* what, const Status& status);

  EventLoop& loop_;
  storage::Store& store_;
  const DiskCollectOptions options_;
  std::map<stream::ShardId, Work> works_;
  std::optional<stream::ShardId> current_;
  int64_t floor_ = 1;               // to which it is taken
  std::vector<std::string> names_;  // of it, still to be deleted
  int64_t files_deleted_ = 0;
  Scope step_;  // of the current one
  Scope scope_;
};

}  // namespace tailcast::scheduler
