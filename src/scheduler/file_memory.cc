#include "tailcast/scheduler/file_memory.h"

#include <algorithm>
#include <iterator>

namespace tailcast::scheduler {

using stream::FileId;
using stream::ShardId;
using Row = OperationTable::Row;

void FileMemory::ForgetDone(const ShardId& id, ShardFiles& shard) {
  shard.Forget([&](const ShardFiles::File& file) { return CopiedEverywhere(id, file); });
}

void FileMemory::ForgetIfDone(const ShardId& id, ShardFiles& shard, int64_t seq) {
  shard.ForgetOne(seq, [&](const ShardFiles::File& file) { return CopiedEverywhere(id, file); });
}

// Its operations are over, and go.
bool FileMemory::CopiedEverywhere(const ShardId& id, const ShardFiles::File& file) {
  ++looks_;
  const FileId file_id{id, file.stem};
  for (Row row = operations_.FirstOf(file_id);
       row != operations_.end() && row->first.file == file_id; ++row) {
    if (!IsOver(row->second.phase)) return false;
  }
  RemoveOperations(file_id);
  return true;
}

void FileMemory::RemoveOperations(const FileId& file) {
  Row row = operations_.FirstOf(file);
  while (row != operations_.end() && row->first.file == file) row = operations_.Remove(row);
}

void FileMemory::OnNoRoom(const ShardId& id) {
  ++put_off_;
  last_put_off_ = id;
}

bool FileMemory::MakeRoom(const ShardId& id, ShardFiles& shard,
                          const std::set<std::string>& cells) {
  std::set<std::string> getting_on;
  for (const std::string& cell : cells) {
    if (operations_.GetsOn(cell)) getting_on.insert(cell);
  }
  // Where all get on, or none, there is nothing to prefer.
  if (getting_on.size() == cells.size()) getting_on.clear();
  return PutOffOne(id, shard, getting_on) || (!getting_on.empty() && PutOffOne(id, shard, {}));
}

// The next older one, from where the search got to, that none of the spared cells lacks now.
bool FileMemory::PutOffOne(const ShardId& id, ShardFiles& shard,
                           const std::set<std::string>& spared) {
  Search& search = searches_[id][spared.empty() ? 1 : 0];
  search.saved += kLooksPerFile;
  const auto& files = shard.files();
  auto next = std::make_reverse_iterator(files.lower_bound(search.below));
  if (search.saved >= search.passed) {
    search = {};
    constexpr int64_t kNewest = 64;
    const int64_t newest =
        std::min({kNewest, files_per_shard_max_ / 2, static_cast<int64_t>(files.size())});
    next = std::next(files.rbegin(), newest);
  }
  for (; next != files.rend(); ++next) {
    ++looks_;
    ++search.passed;
    const FileId file{id, next->second.stem};
    if (!MayGo(file, spared)) continue;
    search.below = file.stem.seq;
    RemoveOperations(file);
    shard.PutOff(file.stem.seq);
    return true;
  }
  search.below = 0;
  return false;
}

bool FileMemory::MayGo(const FileId& file, const std::set<std::string>& spared) const {
  for (Row row = operations_.FirstOf(file); row != operations_.end() && row->first.file == file;
       ++row) {
    const Phase phase = row->second.phase;
    if (IsAssigned(phase) || (!IsOver(phase) && spared.contains(row->first.cell))) return false;
  }
  return true;
}

void FileMemory::OnStreamRemoved(const stream::StreamId& stream) {
  std::erase_if(searches_, [&](const auto& entry) { return entry.first.stream == stream; });
}

}  // namespace tailcast::scheduler
