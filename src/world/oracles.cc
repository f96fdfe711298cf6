#include "tailcast/world/oracles.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "tailcast/stream/index_record.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::world {
namespace {

constexpr int64_t kNewFiles = 20;  // that each check looks at
constexpr int64_t kTurns = 10;     // in which it has seen the older ones, too

}  // namespace
Oracles::Oracles(Deployment& deployment, OracleOptions options)
    : deployment_(deployment),
      options_(std::move(options)),
      dir_(stream::ShardDir(options_.shard)),
      keys_(options_.shard) {}

std::string Oracles::Where(const std::string& cell, FileKey key) const {
  return cell + " file " + std::to_string(key.first) + (key.second == 0 ? " data: " : " index: ");
}

std::string Oracles::Check() {
  ++turn_;
  if (std::string problem = ReadSource(); !problem.empty()) return problem;
  for (const std::string& cell : deployment_.cell_names()) {
    if (std::string problem = CheckCell(cell); !problem.empty()) return problem;
  }
  if (load_ != nullptr) {
    for (const auto& consumer : load_->consumers) {
      if (consumer->process == nullptr || consumer->agent() == nullptr) continue;
      if (std::string v = CheckConsumer(*consumer); !v.empty()) return v;
    }
  }
  return "";
}

std::string Oracles::CheckConsumer(Workload::Consumer& consumer) {
  if (std::string v = load_->NewViolation(consumer); !v.empty()) {
    return "in order: " + consumer.name + ": " + v;
  }
  // Whoever passes something over was told so, and only of what its cell keeps no more.
  const auto kept = source_.find({floors_[consumer.process->cell], 0});
  if (!consumer.passed.empty() &&
      (kept == source_.end() || consumer.passed.back().second > kept->second.first_number)) {
    return "in order: " + consumer.name + " goes on at message " +
           std::to_string(consumer.passed.back().second) + ", and its cell keeps earlier ones";
  }
  int64_t durable = 0;
  for (const auto& [key, file] : source_) {
    if (key.second != 0) continue;
    durable = std::max(durable, file.first_byte + file.acknowledged);
  }
  if (consumer.next_byte > durable) {
    return "lengths are hints: " + consumer.name + " stands at byte " +
           std::to_string(consumer.next_byte) + ", and " + std::to_string(durable) + " are durable";
  }
  const consumer::Counters& n = consumer.agent()->counters();
  if (n.primary_bytes > 0 &&
      n.fallback_missing_chunk + n.fallback_delayed + n.fallback_no_metadata + n.fallback_corrupt ==
          0) {
    return "nothing silent: " + consumer.name + " read " + std::to_string(n.primary_bytes) +
           " bytes of the primary layer and counted no cause";
  }
  return "";
}

// Nor did a server of the cell have to make room.
bool Oracles::CachesAreSound(const std::string& cell) const {
  if (!options_.caches_are_sound) return false;
  const auto servers = deployment_.CacheServers(cell, CacheLayer::kData);
  return std::all_of(servers.begin(), servers.end(), [](const Deployment::CacheServer& at) {
    const cache::ServerStats stats = at.server->core()->stats();
    return stats.collected == 0 && stats.expired == 0 && stats.refused == 0;
  });
}

std::string Oracles::Fell(const std::string& cell, const cache::Key& key, int part,
                          const Deployment::Copy& copy, int64_t length) {
  if (copy.replica == ProcessIncarnation::kNone) return "";
  Longest& longest = longest_[{cell, key, part, copy.replica}];
  if (length < longest.length && copy.forgotten == longest.forgotten) {
    return "fell from " + std::to_string(longest.length) + " to " + std::to_string(length) +
           " at one replica";
  }
  longest = {length, copy.forgotten};
  return "";
}

std::string Oracles::CheckAll() {
  copies_.clear();
  if (load_ != nullptr) {
    for (const auto& consumer : load_->consumers) consumer->checked = 0;
  }
  all_ = true;
  std::string problem = Check();
  all_ = false;
  return problem;
}

// A file of the source grows while it is the newest, or the one before it (its sealing may be
// under way).
std::string Oracles::ReadSource() {
  const storage::FakeDisk& disk = *deployment_.cell(options_.source).disk;
  int64_t newest = newest_;
  for (const std::string& name : disk.PeekNames(dir_)) {
    const auto parsed = stream::ParseFileName(name);
    if (!parsed) continue;
    SourceFile& file = source_[{parsed->stem.seq, static_cast<int>(parsed->part)}];
    if (parsed->stem.seq + 1 < newest_ && file.settled() && !file.name.empty()) continue;
    newest = std::max(newest, parsed->stem.seq);
    if (file.name.empty()) file.created = read_at_;
    file.name = name;
    file.acknowledged = disk.PeekAcknowledged(dir_, name);
    file.first_byte = parsed->stem.start_byte;
    file.first_number = parsed->stem.start_number;
    file.chunk_size = parsed->stem.chunk_size;
    auto bytes = disk.Peek(dir_, name);
    if (!bytes.ok()) continue;
    if (!bytes->starts_with(std::string_view(file.bytes).substr(0, file.promised))) {
      return "committed first: acknowledged bytes of " + name + " are not there any more";
    }
    file.bytes = std::move(*bytes);
    file.promised = static_cast<size_t>(file.acknowledged);
  }
  newest_ = newest;
  read_at_ = deployment_.time().now();
  return "";
}

int64_t Oracles::Total(FileKey key) const {
  const SourceFile& file = source_.at(key);
  const auto size = static_cast<int64_t>(file.bytes.size());
  const auto next = source_.find({key.first + 1, 0});
  if (next == source_.end()) return size;
  const int64_t sealed =
      key.second == 0 ? next->second.first_byte - file.first_byte
                      : (next->second.first_number - file.first_number) * stream::kIndexRecordSize;
  return std::min(size, sealed);
}

std::string Oracles::CheckCell(const std::string& cell) {
  if (std::string problem = CheckPrimary(cell); !problem.empty()) return problem;
  if (std::string problem = CheckFloor(cell); !problem.empty()) return problem;
  for (int64_t seq = floors_[cell]; seq <= newest_; ++seq) {
    // Of old files a tenth at a time.
    const bool old = seq + kNewFiles < newest_;
    if (old && !all_ && seq % kTurns != turn_ % kTurns) continue;
    if (!source_.contains({seq, 0}) || Settled(cell, seq)) continue;
    if (std::string problem = CheckLengths(cell, seq); !problem.empty()) return problem;
    if (std::string problem = CheckIndex(cell, seq); !problem.empty()) return problem;
  }
  if (!options_.foreign_bytes_in_caches && deployment_.cell(cell).data->mismatches() > 0) {
    return "in order: contradicting chunks in the cache of " + cell;
  }
  return "";
}

int64_t Oracles::KeptBytes(const SourceFile& from, const SourceFile& to) {
  return to.first_byte - from.first_byte +
         (to.first_number - from.first_number) * stream::kIndexRecordSize;
}

void Oracles::Retained(const v1::Retention& retention) {
  if (const int64_t bytes = retention.shard_bytes_max(); bytes > 0) {
    bytes_max_ = std::min(bytes, bytes_max_.value_or(bytes));
  }
  if (retention.age_max_us() > 0) {
    const Duration age = Duration::Micros(retention.age_max_us()) * 99 / 100;
    age_max_ = std::min(age, age_max_.value_or(age));
  }
}

int64_t Oracles::FloorOf(const std::string& cell) const {
  int64_t floor = 1;
  for (const std::string& name : deployment_.cell(cell).disk->PeekNames(dir_)) {
    if (const auto marker = stream::ParseFloorName(name)) floor = std::max(floor, *marker);
  }
  return floor;
}

// As FindWanted of the scheduler's retention decides of the last file below. That there are more
// and older ones by now changes nothing: it is still so.
bool Oracles::MayGo(int64_t floor) const {
  const auto first = source_.find({floor, 0});
  if (first == source_.end()) return false;
  if (first->second.first_byte <= trimmed_) return true;
  if (age_max_ && deployment_.time().now() - first->second.created > *age_max_) return true;
  const auto newest = source_.find({newest_, 0});
  if (!bytes_max_ || newest == source_.end()) return false;
  // The last one below that has data.
  auto last = first;
  do {
    if (last == source_.begin()) return false;
    --last;
  } while (last->first.second != 0);
  return KeptBytes(last->second, newest->second) > *bytes_max_;
}

std::string Oracles::BeyondKept(int64_t bytes) {
  if (std::string problem = ReadSource(); !problem.empty()) return problem;
  const auto newest = source_.find({newest_, 0});
  std::string out;
  for (const std::string& cell : deployment_.cell_names()) {
    const auto first = source_.find({FloorOf(cell), 0});
    if (first == source_.end() || newest == source_.end()) continue;
    const int64_t kept = KeptBytes(first->second, newest->second);
    if (kept > bytes) {
      out += cell + " keeps " + std::to_string(kept) + " bytes of closed files, from " +
             std::to_string(first->first.first) + " on\n";
    }
  }
  return out;
}

stream::Position Oracles::FirstKept(const std::string& cell) {
  ReadSource();
  const auto first = source_.find({FloorOf(cell), 0});
  if (first == source_.end()) return {};
  return {options_.shard.stream.incarnation, options_.shard.shard, first->second.first_number,
          first->second.first_byte};
}

// Retention takes files from the oldest on: those that are wanted away, and of the source's only
// what every cell has or had.
std::string Oracles::CheckFloor(const std::string& cell) {
  const int64_t floor = FloorOf(cell);
  std::set<int64_t> parts[2];
  for (const std::string& name : deployment_.cell(cell).disk->PeekNames(dir_)) {
    const auto parsed = stream::ParseFileName(name);
    if (parsed) parts[static_cast<int>(parsed->part)].insert(parsed->stem.seq);
  }
  std::set<int64_t> here;
  std::set_intersection(parts[0].begin(), parts[0].end(), parts[1].begin(), parts[1].end(),
                        std::inserter(here, here.end()));
  if (floor < floors_[cell]) {
    return "nothing needed goes: the floor of " + cell + " fell from " +
           std::to_string(floors_[cell]) + " to " + std::to_string(floor);
  }
  floors_[cell] = floor;
  if (floor > 1 && !MayGo(floor)) {
    return "nothing needed goes: " + cell + " keeps files from " + std::to_string(floor) +
           " on, what lies before byte " + std::to_string(trimmed_) +
           " was trimmed, and retention never wanted so much away";
  }
  std::set<int64_t>& whole = whole_[cell];
  whole.erase(whole.begin(), whole.lower_bound(floor));
  for (const int64_t seq : whole) {
    if (!here.contains(seq)) {
      return "nothing needed goes: " + Where(cell, {seq, 0}) +
             "it is gone, or its index, and the floor is " + std::to_string(floor);
    }
  }
  const auto has_all = [&](FileKey key) {
    const CopiedFile& copy = copies_[cell][key];
    return source_.contains(key) && source_.contains({key.first + 1, 0}) &&
           copy.acknowledged >= Total(key);
  };
  for (const int64_t seq : here) {
    if (seq >= floor && has_all({seq, 0}) && has_all({seq, 1})) whole.insert(seq);
  }
  // The source's goes last.
  if (cell == options_.source) return "";
  for (int64_t seq = floor; seq < floors_[options_.source]; ++seq) {
    if (!whole.contains(seq)) {
      return "nothing needed goes: " + cell + " lacks file " + std::to_string(seq) +
             ", and the source keeps those from " + std::to_string(floors_[options_.source]) +
             " on";
    }
  }
  return "";
}

std::string Oracles::BelowFloor(int64_t floor) const {
  std::string out;
  for (const std::string& cell : deployment_.cell_names()) {
    for (const std::string& name : deployment_.cell(cell).disk->PeekNames(dir_)) {
      const auto parsed = stream::ParseFileName(name);
      if (parsed && parsed->stem.seq < floor) out += cell + " still has " + name + "\n";
    }
  }
  return out;
}

int64_t Oracles::ChunkSize(int64_t seq) const {
  const auto file = source_.find({seq, 0});
  const int64_t said = file != source_.end() ? file->second.chunk_size : 0;
  return said > 0 ? said : options_.chunk_size;
}

bool Oracles::Settled(const std::string& cell, int64_t seq) {
  if (seq + 1 >= newest_) return false;
  for (int part = 0; part < 2; ++part) {
    const FileKey key{seq, part};
    const CopiedFile& copy = copies_[cell][key];
    const int64_t total = Total(key);
    if (!copy.complete || copy.chunks * ChunkSize(seq) < total) return false;
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
                    have >= Total(key) && copy.acknowledged == have;
  }
  return "";
}

std::string Oracles::CheckLengths(const std::string& cell, int64_t seq) {
  auto& copies = copies_[cell];
  std::array<int64_t, 2> cached = {0, 0};
  const cache::Key group = keys_.MetadataGroup(seq);
  for (const Deployment::Copy& held :
       deployment_.PeekReplicas(cell, CacheLayer::kMetadata, group)) {
    const stream::PairMetadata metadata = stream::DecodePairMetadata(seq, held.bytes);
    for (int part = 0; part < 2; ++part) {
      const FileKey key{seq, part};
      const int row = static_cast<int>(seq) * 4 + part * 2;
      for (const auto& [column, length] : {std::pair(row, metadata.primary_length[part]),
                                           std::pair(row + 1, metadata.cache_length[part])}) {
        if (std::string why = Fell(cell, group, column, held, length); !why.empty()) {
          return "longer wins: " + Where(cell, key) + "a length " + why;
        }
      }
      // Beyond the seal more may come late: an append of which the producer never heard, so that
      // it went on in the next file. It counts for nobody, but it is copied as any other.
      CopiedFile& copy = copies[key];
      if (copy.complete && metadata.primary_length[part] > copy.acknowledged) {
        copy.acknowledged = deployment_.cell(cell).disk->PeekAcknowledged(dir_, source_[key].name);
      }
      if (metadata.primary_length[part] > copy.acknowledged) {
        return "committed first: " + Where(cell, key) + "a primary length of " +
               std::to_string(metadata.primary_length[part]) + " was published, and " +
               std::to_string(copy.acknowledged) + " bytes are durable";
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
  const int64_t size = ChunkSize(key.first);
  const auto total = static_cast<int64_t>(want.size());
  // Where this cell's primary stands, a cache copy may begin.
  const int64_t from =
      options_.jumps_allowed ? static_cast<int64_t>(copy.bytes.size()) / size * size : 0;
  const bool sound = CachesAreSound(cell);
  bool unbroken = true;
  for (int64_t n = copy.chunks; n * size < total || n * size < published; ++n) {
    int64_t have = 0;
    const cache::Key name = keys_.Chunk(key.first, static_cast<stream::Part>(key.second), size, n);
    for (const Deployment::Copy& held : deployment_.PeekReplicas(cell, CacheLayer::kData, name)) {
      const std::string& value = held.bytes;
      const auto length = static_cast<int64_t>(value.size());
      if (std::string why = Fell(cell, name, 0, held, length); !why.empty()) {
        return "longer wins: " + Where(cell, key) + "chunk " + std::to_string(n) + " " + why;
      }
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
    if (sound && n * size >= from && have < due) {
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
  if (std::string problem = ReadSource(); !problem.empty()) return problem;
  std::string out;
  for (const std::string& cell : deployment_.cell_names()) {
    if (cell == options_.source) continue;
    if (std::string problem = CheckPrimary(cell); !problem.empty()) return problem;
    if (std::string problem = CheckFloor(cell); !problem.empty()) return problem;
    for (const auto& [key, file] : source_) {
      if (key.first < floors_[cell]) continue;
      const std::string& have = copies_[cell][key].bytes;
      const int64_t total = Total(key);
      if (static_cast<int64_t>(have.size()) >= total) continue;
      out += Where(cell, key) + std::to_string(have.size()) + " of " + std::to_string(total) +
             " bytes\n";
    }
  }
  return out;
}

}  // namespace tailcast::world
