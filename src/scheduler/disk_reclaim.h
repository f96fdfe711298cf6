// Gives the disk back that deleted streams took: deletes what the shards' folders hold, file by
// file, and looks once more after a while, for those who were slow to hear of the deletion.
// Deleting a file fences whoever appends to it.
//
// Nothing is remembered: what is left is what a listing shows, so it goes on from anywhere.
//
// Threads: everything on the store's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

struct DiskReclaimOptions {
  Duration look_again = Duration::Seconds(5);
  Duration retry = Duration::Seconds(1);  // after an error of the store
};

class DiskReclaim {
 public:
  // Both outlive it. `on_done`: nothing is left of the stream, now and a while ago.
  DiskReclaim(EventLoop& loop, storage::Store& store, DiskReclaimOptions options,
              std::function<void(const stream::StreamId&)> on_done);
  DiskReclaim(const DiskReclaim&) = delete;
  DiskReclaim& operator=(const DiskReclaim&) = delete;

  // The deletion is durable. One that is under way is left as it is. One stream at a time is worked
  // on.
  void Add(const stream::StreamId& stream, int32_t shards);
  int64_t files_deleted() const { return files_deleted_; }
  void End();

 private:
  struct Work {
    Work(EventLoop& loop, int32_t count) : shards(count), timer(loop) {}
    const int32_t shards;
    int32_t shard = 0;               // that is looked at
    int64_t found = 0;               // files, in this look
    bool looked = false;             // before
    std::vector<std::string> names;  // of the shard, still to be deleted
    bool waits = false;              // for its timer
    Timer timer;
  };
  using Place = std::map<stream::StreamId, Work>::iterator;

  void WorkOn();
  void List(Place work);
  void DeleteNext(Place work);
  void OnLooked(Place work);
  // Looks at all of it anew, later.
  void Wait(Place work, Duration how_long);

  EventLoop& loop_;
  storage::Store& store_;
  const DiskReclaimOptions options_;
  const std::function<void(const stream::StreamId&)> on_done_;
  std::map<stream::StreamId, Work> works_;
  bool busy_ = false;  // one is being listed or deleted
  int64_t files_deleted_ = 0;
  Scope scope_;
};

}  // namespace tailcast::scheduler
