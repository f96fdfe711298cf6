// What this cell's primary layer has of a shard: which files, and how much of each is committed.
// For the answers to neighbours that copy from here or to here, and for comparing with theirs.
//
// Threads: everything on the store's loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/scheduler/shard_files.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

// Of a cell, for one shard.
struct ShardProgress {
  int64_t floor = 1;               // what is below was collected
  std::vector<PairLengths> files;  // ascending
  // Nothing is said of files above. Said also where the last one is unread: then it is not known
  // how far the shard is.
  int64_t covered_to = INT64_MAX;
  std::vector<int64_t> damaged;  // here only: committed bytes of them are missing; not in `files`
  // Ascending, not in `files`: they are there, and reading them fails. Whoever copies there may
  // copy them again, which begins at what is there; nobody may count them as lost, or as copied.
  std::vector<int64_t> unread;
  // Here only: of all complete pairs that were looked at, ascending; and of the one behind them
  // where the page has ended early.
  std::vector<stream::Stem> listed;
  // Here only: the page has fewer files than were asked for, and there are more.
  bool early = false;
};
v1::ShardProgressReply ToProto(const ShardProgress& progress);
// In order, and each file once, whatever the peer sent; files whose stem is none are left out.
// `files_max`: what was asked for.
ShardProgress FromProto(const v1::ShardProgressReply& reply, int files_max);

class DiskProgress {
 public:
  // Both outlive it.
  DiskProgress(EventLoop& loop, storage::Store& store) : loop_(loop), store_(store) {}
  DiskProgress(const DiskProgress&) = delete;
  DiskProgress& operator=(const DiskProgress&) = delete;

  struct Listing {
    int64_t floor = 1;
    std::vector<stream::Stem> stems;  // of complete pairs at or above the floor, ascending
  };
  // Errors: as Store::List; those of stream::ShardListing::Parse.
  void List(const stream::ShardId& shard, Callback<void(Result<Listing>)> done);

  // The lengths of up to `files_max` files from `from_seq` on. One that is damaged, or gone when it
  // is looked at, is not there; one that can't be read, though it was tried again, is unread and
  // holds up no other. The page ends early after kUnreadMax of those, and when kReadTime has passed
  // since the listing, so that who asks has an answer while it waits for one: a file that has had
  // half of that time by then is unread. It hangs, and is not read again before the answer is
  // there, or for kHangsAgain if the store gave the call up. `floor` is the least that the result
  // names. Errors: as Store::List; those of stream::ShardListing::Parse.
  void Read(const stream::ShardId& shard, int64_t floor, int64_t from_seq, int files_max,
            Callback<void(Result<ShardProgress>)> done);

  // The first file from `floor` on of which something is missing here: all before it are complete
  // pairs, and as long as their seals. What a look found is kept, and a look is short: a later one
  // goes on where it ended.
  void FindDone(const stream::ShardId& shard, int64_t floor, Callback<void(Result<int64_t>)> done);
  // The file is not whole any more.
  void OnLacking(const stream::ShardId& shard, int64_t seq);
  void Forget(const stream::StreamId& stream);

  // What Read could not read when it looked last, for people: up to kShownMax files, each with the
  // reason.
  std::vector<std::string> Failing() const;

  static constexpr int kUnreadMax = 16;
  static constexpr Duration kReadTime = Duration::Seconds(2);
  static constexpr Duration kHangsAgain = Duration::Seconds(300);
  static constexpr size_t kShownMax = 20;

 private:
  // A Read under way: one file after the other, so that a long shard does not flood the store.
  struct Reading;
  void OnListed(const std::shared_ptr<Reading>& reading, int64_t from_seq, int files_max,
                const Result<std::vector<storage::DirEntry>>& entries);
  void ReadNext(const std::shared_ptr<Reading>& reading);
  static void NextFile(Reading& reading);
  bool Hangs(const stream::ShardId& shard, int64_t seq);
  void OnPart(const std::shared_ptr<Reading>& reading, const Result<storage::FileSize>& size);
  bool TriesAgain(Reading& reading, const Status& failure) const;
  void SetUnread(Reading& reading, const std::string& why);
  void OnTimeUp(Reading& reading);
  static void End(Reading& reading);
  // It is read, or not there.
  void OnNotFailing(const stream::ShardId& shard, int64_t seq);

  struct Looking;
  void LookNext(const std::shared_ptr<Looking>& looking);

  EventLoop& loop_;
  storage::Store& store_;
  std::map<stream::ShardId, int64_t> done_;                            // as found
  std::map<stream::ShardId, std::map<int64_t, std::string>> failing_;  // by file: why
  // Files that are not read before then; Max(): a call has no answer yet.
  std::map<std::pair<stream::ShardId, int64_t>, MonotonicTime> hanging_;
  uint64_t lost_ = 0;  // grows when something of that is not so any more
  Scope scope_;
};

}  // namespace tailcast::scheduler
