// Which message files of a shard the scheduler keeps in mind: one that is copied everywhere is
// forgotten, and where there are more than a shard may have, one that nobody copies now is put off.
//
//   new ──▶ in mind ──▶ all of its operations are over ──▶ done
//             ▲  │
//     listed  │  │  a newer file needs its room
//             │  ▼
//           put off                  not done: a listing finds it again when there is room
//
// A cell that is dead lacks ever more files, and the others shall have what is new: it is put off
// what only dead cells lack, where there is such, and not of the oldest, which come first when the
// cell is back, nor of the newest, which others may wait for.
//
// Costs: an event of one file looks at that file; room for a new one costs kLooksPerFile looks or
// less, on average, however many files there are. Only ForgetDone looks at all files of a shard.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tailcast/scheduler/operation_table.h"
#include "tailcast/scheduler/shard_files.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

class FileMemory {
 public:
  static constexpr int64_t kLooksPerFile = 64;

  // `operations` outlives it. `files_per_shard_max`: that of the shards it is given.
  FileMemory(OperationTable& operations, int64_t files_per_shard_max)
      : operations_(operations), files_per_shard_max_(files_per_shard_max) {}
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // Forgets the files of the shard that are copied everywhere, of which a cell that is away may
  // keep many.
  void ForgetDone(const stream::ShardId& id, ShardFiles& shard);
  // The same of one file, after something that may have been the last that was missing.
  void ForgetIfDone(const stream::ShardId& id, ShardFiles& shard, int64_t seq);

  // A file is not taken, because the shard has as many as it may have.
  void OnNoRoom(const stream::ShardId& id);
  // Puts one off for a new one. `cells`: that the stream is copied to. A cell that gets on waits
  // for its files as well, for an answer or its turn: they go only where none was found that it
  // has. False: each one is being copied, or was when it was looked at last.
  bool MakeRoom(const stream::ShardId& id, ShardFiles& shard, const std::set<std::string>& cells);

  void OnStreamRemoved(const stream::StreamId& stream);

  // How often a file was not kept in mind, and the last one's shard.
  int64_t put_off() const { return put_off_; }
  const std::optional<stream::ShardId>& last_put_off() const { return last_put_off_; }
  // How often it was looked whether a file is copied everywhere, or may be put off: what an event
  // costs.
  int64_t looks() const { return looks_; }

 private:
  // From the newest file down, over several calls: what one has passed the next does not look at
  // again, until as many looks are saved as it takes to begin anew. Not even if other cells are
  // spared now, which may change with each call: until then a file may be put off that one of those
  // waits for, though there is another.
  struct Search {
    int64_t below = INT64_MAX;  // the next one looks there
    int64_t passed = 0;
    int64_t saved = 0;
  };

  bool CopiedEverywhere(const stream::ShardId& id, const ShardFiles::File& file);
  bool PutOffOne(const stream::ShardId& id, ShardFiles& shard, const std::set<std::string>& spared);
  bool MayGo(const stream::FileId& file, const std::set<std::string>& spared) const;
  void RemoveOperations(const stream::FileId& file);

  OperationTable& operations_;
  const int64_t files_per_shard_max_;
  std::map<stream::ShardId, std::array<Search, 2>> searches_;  // where some are spared; where none
  int64_t put_off_ = 0;
  std::optional<stream::ShardId> last_put_off_;
  int64_t looks_ = 0;
};

}  // namespace tailcast::scheduler
