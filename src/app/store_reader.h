// The primary layer of one cell, asked one question after the other by a command that runs where it
// is mounted.
//
// Threads: one. Errors: as storage::Store's; Cancelled: an interrupt came; DeadlineExceeded: no
// answer for a minute.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tailcast/app/command.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::app {

// How a message file is.
struct FileCondition {
  enum class Kind : uint8_t {
    kWell,
    kMissing,  // it ends before its seal, or its data before its index
    kDamaged,  // what is there fails its check sums, or of what was committed something is gone
    kGone,     // it, or one of its two parts, is there no more
  };
  Kind kind = Kind::kWell;
  std::string what = {};                    // in words, unless it is well
  stream::Part part = stream::Part::kData;  // of a damaged one: which is
  int64_t messages = 0;                     // so many its index has, sound or not
};

class StoreReader {
 public:
  // The store that `view` names, which is opened on this host. FailedPrecondition: what is there is
  // another cell's, or an older life of this one's.
  static Result<std::unique_ptr<StoreReader>> Open(const v1::CellView& view);

  Result<stream::ShardListing> List(const stream::ShardId& shard);
  // Reads it to its seal, or one that is still written to where it ends now.
  Result<FileCondition> Check(const stream::ShardId& shard, const stream::Stem& stem,
                              const std::optional<stream::Seal>& seal);
  // Both parts, `first` before the other: it is copied again even if this process dies in between.
  Status TakeAside(const stream::ShardId& shard, const stream::Stem& stem, stream::Part first);

 private:
  StoreReader() = default;
  Status CheckOwner(const v1::CellView& view);
  // Gives the file's bytes to `take` until it returns false.
  template <typename Take>
  Status Read(const std::string& dir, const std::string& name, Take take);
  // `ask` gets a callback for the answer, which is a Status or a Result.
  template <typename T, typename Ask>
  T Wait(Ask ask);

  ThreadLoop loop_;
  std::unique_ptr<storage::Store> store_;
};

}  // namespace tailcast::app
