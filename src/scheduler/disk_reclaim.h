// Gives the disk back that streams took which were deleted, or whose copy tree this cell has left
// (cell/departures.h): deletes what the shards' folders hold, some files at a time, and looks once
// more after a while, for those who were slow to hear of it. Deleting a file fences whoever appends
// to it.
//
//    list ──▶ which files have the names now ──▶ confirm ──▶ delete exactly these ──┐
//      ▲                                                                            │
//      └────────────────────────────────────────────────────────────────────────────┘
//
// Confirm: this scheduler is the cell's still, as its registry's fence says. It comes after the
// files are known and before they go, so that one that was stopped in between and has a successor
// deletes nothing that came after it (spec Leaving: Delete).
//
// Nothing is remembered: what is left is what a listing shows, so it goes on from anywhere.
//
// Threads: everything on the store's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
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
  size_t files_at_once = 100;
};

class DiskReclaim {
 public:
  enum class What : uint8_t {
    kAll,
    kMessageFiles,  // the marks of retention floors stay
  };
  using Confirm = std::function<void(Callback<void(Status)>)>;

  // All outlive it. `confirm` ends with OK if this scheduler has been the cell's until then.
  // `on_done`: nothing is left of the stream, now and a while ago.
  DiskReclaim(EventLoop& loop, storage::Store& store, DiskReclaimOptions options, Confirm confirm,
              std::function<void(const stream::StreamId&)> on_done);
  DiskReclaim(const DiskReclaim&) = delete;
  DiskReclaim& operator=(const DiskReclaim&) = delete;

  // That they go is durable. What is under way goes on; with kAll, for all. One stream at a time is
  // worked on.
  void Add(const stream::StreamId& stream, int32_t shards, What what = What::kAll);
  int64_t files_deleted() const { return files_deleted_; }
  // What does not get on, and why, for people.
  std::vector<std::string> Failing() const;
  void End();

 private:
  struct Work {
    Work(EventLoop& loop, int32_t count, What of) : shards(count), what(of), timer(loop) {}
    const int32_t shards;
    What what;
    int32_t shard = 0;                                       // that is looked at
    int64_t found = 0;                                       // files, in this look
    bool looked = false;                                     // before
    std::vector<std::string> names;                          // that were listed, of one turn
    std::vector<std::pair<std::string, std::string>> files;  // name, id
    bool waits = false;                                      // for its timer
    std::string why;  // the last time that it failed; empty: it has got on since
    Timer timer;
  };
  using Place = std::map<stream::StreamId, Work>::iterator;

  void WorkOn();
  void List(Place work);
  void IdentifyNext(Place work);
  void ConfirmAll(Place work);
  void DeleteNext(Place work);
  void OnLooked(Place work);
  void Fail(Place work, const std::string& what, const Status& status);
  // Looks at all of it anew, later.
  void Wait(Place work, Duration how_long);

  EventLoop& loop_;
  storage::Store& store_;
  const DiskReclaimOptions options_;
  const Confirm confirm_;
  const std::function<void(const stream::StreamId&)> on_done_;
  std::map<stream::StreamId, Work> works_;
  bool busy_ = false;  // one is being listed or deleted
  int64_t files_deleted_ = 0;
  Scope scope_;
};

}  // namespace tailcast::scheduler
