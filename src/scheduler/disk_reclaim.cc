#include "tailcast/scheduler/disk_reclaim.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"

namespace tailcast::scheduler {
namespace {
const Logger kLog("scheduler");
}  // namespace

DiskReclaim::DiskReclaim(EventLoop& loop, storage::Store& store, DiskReclaimOptions options,
                         std::function<void(const stream::StreamId&)> on_done)
    : loop_(loop), store_(store), options_(options), on_done_(std::move(on_done)) {}

void DiskReclaim::Add(const stream::StreamId& stream, int32_t shards) {
  works_.try_emplace(stream, loop_, shards);
  WorkOn();
}

void DiskReclaim::End() {
  scope_.End();
  works_.clear();
}

void DiskReclaim::WorkOn() {
  if (busy_) return;
  const Place next = std::find_if(works_.begin(), works_.end(),
                                  [](const auto& entry) { return !entry.second.waits; });
  if (next == works_.end()) return;
  busy_ = true;
  List(next);
}

void DiskReclaim::List(Place work) {
  if (work->second.shard >= work->second.shards) return OnLooked(work);
  const stream::ShardId shard{work->first, work->second.shard};
  store_.List(stream::ShardDir(shard),
              scope_.Bind([this, work](const Result<std::vector<storage::DirEntry>>& entries) {
                if (!entries.ok()) {
                  kLog.Warn("the files of the deleted stream ", work->first.name,
                            " are not listed: ", entries.status().ToString());
                  return Wait(work, options_.retry);
                }
                for (const storage::DirEntry& entry : *entries) {
                  work->second.names.push_back(entry.name);
                }
                work->second.found += static_cast<int64_t>(entries->size());
                DeleteNext(work);
              }));
}

void DiskReclaim::DeleteNext(Place work) {
  if (work->second.names.empty()) {
    ++work->second.shard;
    return List(work);
  }
  const std::string name = std::move(work->second.names.back());
  work->second.names.pop_back();
  const stream::ShardId shard{work->first, work->second.shard};
  store_.Delete(stream::ShardDir(shard), name,
                scope_.Bind([this, work, name](const Status& status) {
                  if (!status.ok() && !IsNotFound(status)) {
                    kLog.Warn("file ", name, " of the deleted stream ", work->first.name,
                              " is not deleted: ", status.ToString());
                    return Wait(work, options_.retry);
                  }
                  ++files_deleted_;
                  DeleteNext(work);
                }));
}

void DiskReclaim::OnLooked(Place work) {
  // Nothing at all is looked at again, too: a first file may be on its way.
  if (work->second.found > 0 || !std::exchange(work->second.looked, true)) {
    return Wait(work, options_.look_again);
  }
  const stream::StreamId stream = work->first;
  works_.erase(work);
  busy_ = false;
  const Scope::Watcher self = scope_.Watch();
  on_done_(stream);
  if (!self.ended()) WorkOn();
}

void DiskReclaim::Wait(Place work, Duration how_long) {
  Work& w = work->second;
  w.shard = 0;
  w.found = 0;
  w.names.clear();
  w.waits = true;
  w.timer.After(how_long, scope_.Bind([this, work] {
    work->second.waits = false;
    WorkOn();
  }));
  busy_ = false;
  WorkOn();
}

}  // namespace tailcast::scheduler
