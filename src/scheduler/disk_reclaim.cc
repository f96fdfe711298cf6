#include "tailcast/scheduler/disk_reclaim.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");

FAULT_POINT(kByName, "scheduler.reclaim_by_name",
            "files that go are deleted by their names, whichever files have them by then");

}  // namespace

DiskReclaim::DiskReclaim(EventLoop& loop, storage::Store& store, DiskReclaimOptions options,
                         Confirm confirm, std::function<void(const stream::StreamId&)> on_done)
    : loop_(loop),
      store_(store),
      options_(options),
      confirm_(std::move(confirm)),
      on_done_(std::move(on_done)) {}

void DiskReclaim::Add(const stream::StreamId& stream, int32_t shards, What what) {
  Work& work = works_.try_emplace(stream, loop_, shards, what).first->second;
  if (what == What::kAll) work.what = what;
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
                if (!entries.ok()) return Fail(work, "its folder is not listed", entries.status());
                Work& w = work->second;
                for (const storage::DirEntry& entry : *entries) {
                  if (w.what == What::kMessageFiles && stream::ParseFloorName(entry.name)) continue;
                  if (w.names.size() == options_.files_at_once) break;
                  w.names.push_back(entry.name);
                }
                if (w.names.empty()) {
                  ++w.shard;
                  return List(work);
                }
                w.found += static_cast<int64_t>(w.names.size());
                IdentifyNext(work);
              }));
}

void DiskReclaim::IdentifyNext(Place work) {
  if (work->second.names.empty()) return ConfirmAll(work);
  const std::string name = std::move(work->second.names.back());
  work->second.names.pop_back();
  store_.Identify(stream::ShardDir({work->first, work->second.shard}), name,
                  scope_.Bind([this, work, name](const Result<std::string>& id) {
                    if (id.ok()) {
                      work->second.files.emplace_back(name, *id);
                    } else if (!IsNotFound(id.status())) {
                      return Fail(work, "file " + name + " is not found out", id.status());
                    }
                    IdentifyNext(work);
                  }));
}

void DiskReclaim::ConfirmAll(Place work) {
  // Somebody else is at them.
  if (work->second.files.empty()) return Wait(work, options_.retry);
  confirm_(scope_.Bind([this, work](const Status& status) {
    if (!status.ok()) return Fail(work, "nothing is deleted", status);
    DeleteNext(work);
  }));
}

void DiskReclaim::DeleteNext(Place work) {
  if (work->second.files.empty()) return List(work);
  const auto [name, id] = std::move(work->second.files.back());
  work->second.files.pop_back();
  const std::string dir = stream::ShardDir({work->first, work->second.shard});
  auto deleted = scope_.Bind([this, work, file = name](const Status& status) {
    if (!status.ok() && !IsNotFound(status)) {
      return Fail(work, "file " + file + " is not deleted", status);
    }
    if (status.ok()) ++files_deleted_;
    work->second.why.clear();
    DeleteNext(work);
  });
  if (kByName.planted()) return store_.Delete(dir, name, std::move(deleted));
  store_.DeleteExactly(dir, name, id, std::move(deleted));
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

void DiskReclaim::Fail(Place work, const std::string& what, const Status& status) {
  kLog.Warn("the files of stream ", work->first.name, ", which go: ", what, ": ",
            status.ToString());
  work->second.why = what + ": " + status.ToString();
  Wait(work, options_.retry);
}

std::vector<std::string> DiskReclaim::Failing() const {
  std::vector<std::string> failing;
  for (const auto& [stream, work] : works_) {
    if (!work.why.empty()) {
      failing.push_back("the files of stream " + stream.name + ", which go: " + work.why);
    }
  }
  return failing;
}

void DiskReclaim::Wait(Place work, Duration how_long) {
  Work& w = work->second;
  w.shard = 0;
  w.found = 0;
  w.names.clear();
  w.files.clear();
  w.waits = true;
  w.timer.After(how_long, scope_.Bind([this, work] {
    work->second.waits = false;
    WorkOn();
  }));
  busy_ = false;
  WorkOn();
}

}  // namespace tailcast::scheduler
