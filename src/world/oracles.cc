#include "tailcast/world/oracles.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tailcast/stream/index_record.h"
#include "tailcast/stream/metadata.h"

namespace tailcast::world {
Oracles::Oracles(Deployment& deployment, OracleOptions options)
    : deployment_(deployment),
      options_(std::move(options)),
      dir_(stream::ShardDir(options_.shard)),
      keys_(options_.shard) {}

std::string Oracles::Where(const std::string& cell, FileKey key) const {
  return cell + " file " + std::to_string(key.first) + (key.second == 0 ? " data: " : " index: ");
}

std::string Oracles::Check() {
  ReadSource();
  for (const std::string& cell : deployment_.cell_names()) {
    if (std::string problem = CheckCell(cell); !problem.empty()) return problem;
  }
  if (load_ != nullptr) {
    for (const auto& consumer : load_->consumers) {
      if (consumer->process == nullptr || consumer->agent() == nullptr) continue;
      if (std::string v = load_->NewViolation(*consumer); !v.empty()) {
        return "in order: " + consumer->name + ": " + v;
      }
    }
  }
  return "";
}

std::string Oracles::CheckAll() {
  copies_.clear();
  if (load_ != nullptr) {
    for (const auto& consumer : load_->consumers) consumer->checked = 0;
  }
  return Check();
}

// A file of the source grows while it is the newest, or the one before it (its sealing may be
// under way).
void Oracles::ReadSource() {
  const storage::FakeDisk& disk = *deployment_.cell(options_.source).disk;
  int64_t newest = newest_;
  for (const std::string& name : disk.PeekNames(dir_)) {
    const auto parsed = stream::ParseFileName(name);
    if (!parsed) continue;
    SourceFile& file = source_[{parsed->stem.seq, static_cast<int>(parsed->part)}];
    if (parsed->stem.seq + 1 < newest_ && file.settled() && !file.name.empty()) continue;
    newest = std::max(newest, parsed->stem.seq);
    file.name = name;
    file.acknowledged = disk.PeekAcknowledged(dir_, name);
    if (auto bytes = disk.Peek(dir_, name); bytes.ok()) file.bytes = std::move(*bytes);
  }
  newest_ = newest;
}

std::string Oracles::CheckCell(const std::string& cell) {
  if (std::string problem = CheckPrimary(cell); !problem.empty()) return problem;
  for (int64_t seq = 1; seq <= newest_; ++seq) {
    if (!source_.contains({seq, 0}) || Settled(cell, seq)) continue;
    if (std::string problem = CheckLengths(cell, seq); !problem.empty()) return problem;
    if (std::string problem = CheckIndex(cell, seq); !problem.empty()) return problem;
  }
  if (!options_.foreign_bytes_in_caches && deployment_.cell(cell).data->mismatches() > 0) {
    return "in order: contradicting chunks in the cache of " + cell;
  }
  return "";
}

bool Oracles::Settled(const std::string& cell, int64_t seq) {
  if (seq + 1 >= newest_) return false;
  for (int part = 0; part < 2; ++part) {
    const FileKey key{seq, part};
    const CopiedFile& copy = copies_[cell][key];
    const auto total = static_cast<int64_t>(source_[key].bytes.size());
    if (!copy.complete || copy.chunks * options_.chunk_size < total) return false;
  }
  return true;
}

std::string Oracles::CheckPrimary(const std::string& cell) {
  auto& copies = copies_[cell];
  if (cell == options_.source) {
    for (const auto& [key, file] : source_) {
      CopiedFile& copy = copies[key];
      if (copy.complete) continue;
      copy.bytes = file.bytes;
      copy.acknowledged = file.acknowledged;
      copy.complete = key.first + 1 < newest_ && file.settled();
    }
    return "";
  }
  const storage::FakeDisk& disk = *deployment_.cell(cell).disk;
  for (const std::string& name : disk.PeekNames(dir_)) {
    const auto parsed = stream::ParseFileName(name);
    if (!parsed) continue;
    const FileKey key{parsed->stem.seq, static_cast<int>(parsed->part)};
    CopiedFile& copy = copies[key];
    if (copy.complete) continue;
    const auto want = source_.find(key);
    copy.bytes = *disk.Peek(dir_, name);
    copy.acknowledged = disk.PeekAcknowledged(dir_, name);
    const auto have = static_cast<int64_t>(copy.bytes.size());
    if (want == source_.end() ? have > 0 : !want->second.bytes.starts_with(copy.bytes)) {
      return "committed first: " + cell + ": the primary bytes of " + name +
             " are no prefix of the source's";
    }
    if (want != source_.end() && have > want->second.acknowledged) {
      return "committed first: " + cell + " has " + std::to_string(have) + " bytes of " + name +
             ", of which the source's file system acknowledged " +
             std::to_string(want->second.acknowledged);
    }
    copy.complete = want != source_.end() && key.first + 1 < newest_ && want->second.settled() &&
                    have == want->second.acknowledged && copy.acknowledged == have;
  }
  return "";
}

std::string Oracles::CheckLengths(const std::string& cell, int64_t seq) {
  auto& copies = copies_[cell];
  std::array<int64_t, 2> cached = {0, 0};
  for (const std::string& value :
       deployment_.PeekCaches(cell, CacheLayer::kMetadata, keys_.MetadataGroup(seq))) {
    const stream::PairMetadata metadata = stream::DecodePairMetadata(seq, value);
    for (int part = 0; part < 2; ++part) {
      const FileKey key{seq, part};
      if (metadata.primary_length[part] > copies[key].acknowledged) {
        return "committed first: " + Where(cell, key) +
               "a primary length was published before the flush";
      }
      if (metadata.cache_length[part] > source_[key].acknowledged) {
        return "committed first: " + Where(cell, key) +
               "a cache length is ahead of what the source's file system acknowledged";
      }
      cached[part] = std::max<int64_t>(cached[part], metadata.cache_length[part]);
    }
  }
  if (options_.foreign_bytes_in_caches) return "";
  for (int part = 0; part < 2; ++part) {
    if (std::string problem = CheckChunks(cell, {seq, part}, cached[part]); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

std::string Oracles::CheckChunks(const std::string& cell, FileKey key, int64_t published) {
  const std::string& want = source_[key].bytes;
  CopiedFile& copy = copies_[cell][key];
  const int64_t size = options_.chunk_size;
  const auto total = static_cast<int64_t>(want.size());
  // Where this cell's primary stands, a cache copy may begin.
  const int64_t from =
      options_.jumps_allowed ? static_cast<int64_t>(copy.bytes.size()) / size * size : 0;
  bool unbroken = true;
  for (int64_t n = copy.chunks; n * size < total || n * size < published; ++n) {
    int64_t have = 0;
    const cache::Key name = keys_.Chunk(key.first, static_cast<stream::Part>(key.second), size, n);
    for (const std::string& value : deployment_.PeekCaches(cell, CacheLayer::kData, name)) {
      const auto rest =
          std::string_view(want).substr(static_cast<size_t>(std::min(n * size, total)));
      if (!rest.starts_with(value)) {
        const bool ahead = value.size() > rest.size() && value.starts_with(rest);
        return (ahead ? "committed first: " : "prefix chunks: ") + Where(cell, key) + "chunk " +
               std::to_string(n) +
               (ahead ? " has bytes that the source has not committed"
                      : " is no prefix of its bytes");
      }
      have = std::max(have, static_cast<int64_t>(value.size()));
      if (n * size + have > source_[key].acknowledged) {
        return "committed first: " + Where(cell, key) + "chunk " + std::to_string(n) +
               " has bytes that the source's file system has not acknowledged";
      }
    }
    const int64_t due = std::min(size, published - n * size);
    if (options_.caches_are_sound && n * size >= from && have < due) {
      return "committed first: " + Where(cell, key) +
             "a cache length was published before its chunks were written";
    }
    // The last chunk of a file that will not grow may be short.
    const int64_t whole = key.first + 1 < newest_ ? std::min(size, total - n * size) : size;
    unbroken = unbroken && have == whole;
    if (unbroken) copy.chunks = n + 1;
  }
  return "";
}

// The index never runs ahead of the data that it covers.
std::string Oracles::CheckIndex(const std::string& cell, int64_t seq) {
  auto& copies = copies_[cell];
  const std::string& index = copies[{seq, 1}].bytes;
  const int64_t records = static_cast<int64_t>(index.size()) / stream::kIndexRecordSize;
  if (records == 0) return "";
  const auto last =
      stream::IndexRecord::Decode(index.data() + (records - 1) * stream::kIndexRecordSize);
  if (last && last->end() <= static_cast<int64_t>(copies[{seq, 0}].bytes.size())) return "";
  return "committed first: " + Where(cell, {seq, 1}) + "the index runs ahead of the data";
}

std::string Oracles::Missing() {
  ReadSource();
  std::string out;
  for (const std::string& cell : deployment_.cell_names()) {
    if (cell == options_.source) continue;
    if (std::string problem = CheckPrimary(cell); !problem.empty()) return problem;
    for (const auto& [key, file] : source_) {
      const std::string& have = copies_[cell][key].bytes;
      if (have.size() == file.bytes.size()) continue;
      out += "progress: " + Where(cell, key) + std::to_string(have.size()) + " of " +
             std::to_string(file.bytes.size()) + " bytes\n";
    }
  }
  return out;
}

}  // namespace tailcast::world
