// The message files of one shard as this cell's scheduler knows them: which there are, their final
// lengths, and which of them are copied everywhere and forgotten (paper §2.1).
//
//   done below        done, out of order     known                   newest
//   | 1 | 2 | 3 | 4 |       | 6 |            | 5 | 7 (sealed) | 8 |  9 (open) |
//
// Files arrive out of order, so a hole is not a done file. The newest file is never forgotten: it
// tells the next one.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

// What a cell has of a message file.
struct PairLengths {
  stream::Stem stem;
  int64_t length[stream::kParts] = {0, 0};  // bytes
};

class ShardFiles {
 public:
  struct File {
    stream::Stem stem;
    std::optional<int64_t> seal[stream::kParts];  // final lengths in bytes, both or none
    bool listed = false;  // found in a listing: it may be long closed, and copied
    bool sealed() const { return seal[0].has_value(); }
  };

  explicit ShardFiles(int64_t files_max) : files_max_(files_max) {}

  // Known files by sequence number.
  const std::map<int64_t, File>& files() const { return files_; }
  const File* Find(int64_t seq) const;
  // nullptr: none is known.
  const File* Newest() const;
  // The last known one below `seq`; nullptr: there is none.
  const File* Before(int64_t seq) const;
  // Listed, and not the newest.
  bool IsCold(const File& file) const;
  // Copied everywhere, and forgotten.
  bool IsDone(int64_t seq) const { return seq < done_below_ || done_.contains(seq); }
  // A file of this number would leave a hole: a notice was lost or overtaken.
  bool LeavesHole(int64_t seq) const;
  // Its folder was looked at.
  bool was_listed() const { return was_listed_; }

  // The folder was looked at; what is below `floor` was collected. Returns what is forgotten by it.
  std::vector<stream::Stem> OnListed(int64_t floor);
  // Returns the files that are sealed by it: the stems of two neighbours tell the lengths of the
  // first. Nothing is added, and nullopt returned, beyond files_max.
  std::optional<std::vector<int64_t>> Add(const stream::Stem& stem, bool listed);
  // False if it was sealed before, or is not known.
  bool Seal(int64_t seq, int64_t data_length, int64_t index_length);
  // Forgets the sealed files of which `is_over` holds; tells each one to it in order. Costs all
  // files that are known.
  void Forget(const std::function<bool(const File&)>& is_over);
  // The same of one file.
  void ForgetOne(int64_t seq, const std::function<bool(const File&)>& is_over);
  // Is not kept in mind for a while; it is not done.
  void PutOff(int64_t seq) { files_.erase(seq); }
  // A target lacks it, though it was copied: it is not done. False: it was not, or is below the
  // floor.
  bool Reopen(int64_t seq);
  // A new target may lack any file: none is done, and those that are known count as listed.
  void StartOver();

 private:
  void RaiseDoneBelow();

  const int64_t files_max_;
  std::map<int64_t, File> files_;
  int64_t floor_ = 1;
  int64_t done_below_ = 1;
  std::set<int64_t> done_;  // at or above done_below_
  bool was_listed_ = false;
};

}  // namespace tailcast::scheduler
