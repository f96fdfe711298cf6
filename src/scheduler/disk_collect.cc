#include "tailcast/scheduler/disk_collect.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");

FAULT_POINT(kNoMarker, "scheduler.no_marker", "files are deleted and no folder says so");

bool IsBelow(const std::string& name, int64_t floor) {
  if (const auto marker = stream::ParseFloorName(name)) return *marker < floor;
  const auto file = stream::ParseFileName(name);
  return file && file->stem.seq < floor;
}

}  // namespace

DiskCollect::DiskCollect(EventLoop& loop, storage::Store& store, DiskCollectOptions options)
    : loop_(loop), store_(store), options_(options) {}

void DiskCollect::Collect(const stream::ShardId& shard, int64_t floor) {
  const auto [work, added] = works_.try_emplace(shard, loop_, floor);
  if (!added) {
    work->second.floor = std::max(work->second.floor, floor);
    work->second.again = true;
  }
  WorkOn();
}

void DiskCollect::Forget(const stream::StreamId& stream) {
  std::erase_if(works_, [&](const auto& entry) { return entry.first.stream == stream; });
  if (!current_ || current_->stream != stream) return;
  step_.Restart();
  names_.clear();
  current_.reset();
  WorkOn();
}

std::vector<std::string> DiskCollect::Failing() const {
  std::vector<std::string> failing;
  for (const auto& [shard, work] : works_) {
    if (!work.why.empty()) failing.push_back("retention of " + shard.ToString() + ": " + work.why);
  }
  return failing;
}

void DiskCollect::End() {
  step_.End();
  scope_.End();
  works_.clear();
}

void DiskCollect::WorkOn() {
  if (current_) return;
  const auto next = std::find_if(works_.begin(), works_.end(),
                                 [](const auto& entry) { return !entry.second.waits; });
  if (next == works_.end()) return;
  current_ = next->first;
  floor_ = next->second.floor;
  next->second.again = false;
  List();
}

void DiskCollect::List() {
  store_.List(stream::ShardDir(*current_),
              step_.Bind([this](const Result<std::vector<storage::DirEntry>>& entries) {
                if (!entries.ok()) return Fail("its folder is not listed", entries.status());
                bool marked = kNoMarker.planted();
                for (const storage::DirEntry& entry : *entries) {
                  if (IsBelow(entry.name, floor_)) names_.push_back(entry.name);
                  marked |= stream::ParseFloorName(entry.name).value_or(0) >= floor_;
                }
                if (marked) return DeleteNext();
                Mark();
              }));
}

void DiskCollect::Mark() {
  const std::string marker = stream::FloorName(floor_);
  store_.CreateExclusive(
      stream::ShardDir(*current_), marker, marker,
      step_.Bind([this](const Result<std::unique_ptr<storage::AppendFile>>& made) {
        if (!made.ok() && !IsAlreadyExists(made.status())) {
          return Fail("its floor is not written", made.status());
        }
        DeleteNext();
      }));
}

void DiskCollect::DeleteNext() {
  if (names_.empty()) return Done();
  const std::string name = std::move(names_.back());
  names_.pop_back();
  store_.Delete(stream::ShardDir(*current_), name, step_.Bind([this, name](const Status& status) {
    if (!status.ok() && !IsNotFound(status)) return Fail("a file is not deleted", status);
    if (!stream::ParseFloorName(name)) ++files_deleted_;
    DeleteNext();
  }));
}

void DiskCollect::Done() {
  const auto work = works_.find(*current_);
  work->second.why.clear();
  if (!work->second.again) works_.erase(work);
  current_.reset();
  WorkOn();
}

// The others are not held up by it.
void DiskCollect::Fail(const char* what, const Status& status) {
  kLog.Warn("retention of ", current_->ToString(), ": ", what, ": ", status.ToString());
  names_.clear();
  Work& work = works_.find(*current_)->second;
  work.why = std::string(what) + ": " + status.ToString();
  work.waits = true;
  work.timer.After(options_.retry, scope_.Bind([this, &work] {
    work.waits = false;
    WorkOn();
  }));
  current_.reset();
  WorkOn();
}

}  // namespace tailcast::scheduler
