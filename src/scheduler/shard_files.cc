#include "tailcast/scheduler/shard_files.h"

#include <algorithm>
#include <iterator>

#include "tailcast/stream/index_record.h"

namespace tailcast::scheduler {

const ShardFiles::File* ShardFiles::Find(int64_t seq) const {
  const auto it = files_.find(seq);
  return it == files_.end() ? nullptr : &it->second;
}

const ShardFiles::File* ShardFiles::Newest() const {
  return files_.empty() ? nullptr : &files_.rbegin()->second;
}

const ShardFiles::File* ShardFiles::Before(int64_t seq) const {
  const auto it = files_.lower_bound(seq);
  return it == files_.begin() ? nullptr : &std::prev(it)->second;
}

bool ShardFiles::IsCold(const File& file) const {
  return file.listed && file.stem.seq != files_.rbegin()->first;
}

bool ShardFiles::LeavesHole(int64_t seq) const {
  const int64_t last = files_.empty() ? done_below_ - 1 : files_.rbegin()->first;
  return seq > last + 1;
}

std::vector<stream::Stem> ShardFiles::OnListed(int64_t floor) {
  was_listed_ = true;
  floor_ = std::max(floor_, floor);
  done_below_ = std::max(done_below_, floor);
  std::vector<stream::Stem> gone;
  while (!files_.empty() && files_.begin()->first < floor) {
    gone.push_back(files_.begin()->second.stem);
    files_.erase(files_.begin());
  }
  return gone;
}

std::optional<std::vector<int64_t>> ShardFiles::Add(const stream::Stem& stem, bool listed) {
  if (static_cast<int64_t>(files_.size()) >= files_max_) return std::nullopt;
  const auto it = files_.emplace(stem.seq, File{stem, {}, listed}).first;
  std::vector<int64_t> sealed;
  const auto seal = [&](const stream::Stem& file, const stream::Stem& next) {
    if (next.seq == file.seq + 1 && next.start_byte >= file.start_byte &&
        next.start_number >= file.start_number &&
        Seal(file.seq, next.start_byte - file.start_byte,
             (next.start_number - file.start_number) * stream::kIndexRecordSize)) {
      sealed.push_back(file.seq);
    }
  };
  if (it != files_.begin()) seal(std::prev(it)->second.stem, stem);
  if (const auto next = std::next(it); next != files_.end()) seal(stem, next->second.stem);
  return sealed;
}

bool ShardFiles::Seal(int64_t seq, int64_t data_length, int64_t index_length) {
  const auto it = files_.find(seq);
  if (it == files_.end() || it->second.sealed()) return false;
  it->second.seal[0] = data_length;
  it->second.seal[1] = index_length;
  return true;
}

void ShardFiles::Forget(const std::function<bool(const File&)>& is_over) {
  for (auto it = files_.begin(); it != files_.end() && std::next(it) != files_.end();) {
    if (!it->second.sealed() || !is_over(it->second)) {
      ++it;
      continue;
    }
    done_.insert(it->first);
    it = files_.erase(it);
  }
  RaiseDoneBelow();
}

void ShardFiles::ForgetOne(int64_t seq, const std::function<bool(const File&)>& is_over) {
  const auto it = files_.find(seq);
  if (it == files_.end() || std::next(it) == files_.end()) return;
  if (!it->second.sealed() || !is_over(it->second)) return;
  done_.insert(seq);
  files_.erase(it);
  RaiseDoneBelow();
}

void ShardFiles::RaiseDoneBelow() {
  while (done_.contains(done_below_)) done_.erase(done_below_++);
  done_.erase(done_.begin(), done_.lower_bound(done_below_));
}

bool ShardFiles::Reopen(int64_t seq) {
  if (!IsDone(seq) || seq < floor_) return false;
  while (done_below_ > seq) done_.insert(--done_below_);
  done_.erase(seq);
  return true;
}

void ShardFiles::StartOver() {
  done_below_ = 1;
  done_.clear();
  for (auto& [seq, file] : files_) file.listed = true;
}

}  // namespace tailcast::scheduler
