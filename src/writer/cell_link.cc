#include "tailcast/writer/cell_link.h"

#include <algorithm>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::writer {
namespace {
const Logger kLog("writer");
}  // namespace

CellLink::CellLink(EventLoop& loop, storage::Store& store, cell::CellClient& cell, Duration retry,
                   Counter& failed)
    : loop_(loop), store_(store), cell_(cell), retry_(retry), failed_(failed) {}

void CellLink::Notify(const stream::FileId& file, const Seal& seal) {
  v1::FileNotice notice;
  stream::SetShard(file.shard, &notice);
  notice.set_stem(file.stem.ToString());
  if (seal) {
    notice.set_sealed(true);
    notice.set_sealed_data_length((*seal)[0]);
    notice.set_sealed_index_length((*seal)[1]);
  }
  v1::FileNotice& waiting = notices_[{file.shard, file.stem.seq}];
  if (!waiting.sealed()) waiting = std::move(notice);
  SendNotice();
}

void CellLink::SendNotice() {
  if (notifying_ || retry_timer_.armed() || notices_.empty()) return;
  notifying_ = true;
  const FileKey key = notices_.begin()->first;  // in order within each shard
  const v1::FileNotice notice = std::move(notices_.begin()->second);
  notices_.erase(notices_.begin());
  cell_.NotifyFile(notice, scope_.Bind([this, key, notice](Result<v1::FileNoticeReply> reply) {
    notifying_ = false;
    if (reply.ok()) {
      RaiseFloor(key.first, reply->floor_seq());
      SendNotice();
      return;
    }
    const Status& status = reply.status();
    if (IsInvalidArgument(status) || IsNotFound(status) || IsFailedPrecondition(status)) {
      kLog.Warn("the scheduler refused the notice of ", notice.stream(), "/", notice.shard(), " ",
                notice.stem(), ": ", status.ToString());
      SendNotice();
      return;
    }
    failed_.Add();
    notices_.emplace(key, notice);  // unless a newer one of the file came
    retry_timer_.After(retry_, scope_.Bind([this] { SendNotice(); }));
  }));
}

int64_t CellLink::RaiseFloor(const stream::ShardId& shard, int64_t floor) {
  int64_t& known = floors_[shard];
  known = std::max(known, floor);
  return known;
}

void CellLink::AskFloor(const stream::ShardId& shard, Callback<void(Result<int64_t>)> then) {
  if (const auto it = floors_.find(shard); it != floors_.end()) {
    loop_.Post(std::move(then).With(Result<int64_t>(it->second)));
    return;
  }
  LookAtFloor(shard, std::move(then));
}

void CellLink::LookAtFloor(const stream::ShardId& shard, Callback<void(Result<int64_t>)> then) {
  store_.List(stream::ShardDir(shard),
              scope_.Bind([this, shard, then = std::move(then)](
                              Result<std::vector<storage::DirEntry>> entries) mutable {
                if (!entries.ok()) return then(entries.status());
                const auto listing = stream::ShardListing::Parse(*entries);
                if (!listing.ok()) return then(listing.status());
                then(RaiseFloor(shard, listing->floor()));
              }));
}

}  // namespace tailcast::writer
