// What this cell should have of its message files and lacks, because somebody or something beside
// tailcast removed or damaged it: learnt from listings of the shards' folders and from looks at
// closed files, compared with what was known before. Shown in the cell's view, so that the cells
// above copy it again (CopySet::OnLacking) and people see it.
//
//             listed, and not there; cut; shorter than its seal
//   there  ---------------------------------------------------->  lacking
//          <----------------------------------------------------
//             a writer has opened it again (notice), or a look finds it whole
//
// A file that was never copied here is a hole like any other: the cell above copies it anyway, and
// what is said of it here changes nothing. What is below the floor was collected, and is not
// lacking.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "tailcast/proto/cell.pb.h"
#include "tailcast/scheduler/disk_progress.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

class MissingFiles {
 public:
  static constexpr int kShownMax = 500;      // of a cell
  static constexpr int kPerShardMax = 1000;  // the first ones; the others once these are there

  // `first_look`: greater than all numbers that an earlier scheduler of the cell has given.
  explicit MissingFiles(uint64_t first_look) : next_look_(first_look) {}

  struct Found {
    int64_t seq = 0;
    v1::LackingFile::Kind kind = v1::LackingFile::ABSENT;
    bool was_here = true;  // false: it has not been listed since this scheduler began
  };

  // A producer or writer of this cell has opened it.
  void OnNotice(const stream::ShardId& shard, int64_t seq);
  // Its folder is about to be listed.
  void OnListingBegins(const stream::ShardId& shard);
  // What became of it: returns what is lacking since now. Nothing below `floor` is.
  std::vector<Found> OnListed(const stream::ShardId& shard, int64_t floor,
                              const std::vector<stream::Stem>& complete_pairs);
  // Files from `from_seq` on were looked at. Of those whose successor is listed the length is
  // known.
  std::vector<Found> OnLooked(const stream::ShardId& shard, int64_t from_seq,
                              const ShardProgress& progress);
  void OnStreamRemoved(const stream::StreamId& stream);

  int64_t total() const { return total_; }
  // What is shown is no longer what is lacking.
  bool changed() const { return changes_ != shown_changes_; }
  // And that should not wait: there is something new, or nothing any more, or little is left of
  // what was shown, and there is more. Else it is only that some came back, while a cell catches
  // up.
  bool NewsToShow() const;
  // To be shown from now on: those that have been lacking for longest.
  std::vector<v1::LackingFile> Show();

 private:
  struct Lack {
    v1::LackingFile::Kind kind = v1::LackingFile::ABSENT;
    uint64_t look = 0;  // the number of the finding
  };
  struct Shard {
    int64_t known_to = 0;      // the newest file that was ever here, as far as is known
    int64_t whole_to = 0;      // all files up to this one have been listed, or lay below the floor
    std::set<int64_t> listed;  // and of those above
    int64_t listing_to = 0;    // known_to when the listing began that is under way
    std::set<int64_t> opened;  // since then
    std::map<int64_t, Lack> lacking;
  };

  void Add(Shard& shard, int64_t seq, v1::LackingFile::Kind kind, std::vector<Found>& found);
  void Remove(Shard& shard, int64_t seq);

  std::map<stream::ShardId, Shard> shards_;
  uint64_t next_look_;
  uint64_t changes_ = 0;
  int64_t total_ = 0;
  // What was shown last.
  uint64_t shown_changes_ = 0;
  uint64_t found_before_ = 0;  // the numbers of all findings until then are smaller
  uint64_t shown_below_ = 0;   // those of what was shown
  int64_t shown_left_ = 0;     // of that, what is lacking still
};

}  // namespace tailcast::scheduler
