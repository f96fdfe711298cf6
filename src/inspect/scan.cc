#include "tailcast/inspect/scan.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include <nlohmann/json.hpp>

#include "tailcast/base/strong.h"
#include "tailcast/cache/merge.h"
#include "tailcast/cache/wire.h"
#include "tailcast/inspect/contents.h"
#include "tailcast/inspect/text.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::inspect {
namespace {

// Chunks beyond a file's lengths that are looked for: they are written before the length is.
constexpr int64_t kChunksAhead = 16;

const char* RuleText(cache::MergeRule rule) {
  switch (rule) {
    case cache::MergeRule::kLongerWins:
      return "longer";
    case cache::MergeRule::kMaxLanes:
      return "lanes";
    case cache::MergeRule::kMaxBytes:
      return "bytes";
  }
  return "?";
}

struct File {
  const stream::KeyMaker* keys = nullptr;
  KeyName name;  // of a chunk
  int64_t chunk_size = 0;
  int64_t chunks = 0;  // that there may be
};

// Makes keys, and gives those that are there their names.
class Namer {
 public:
  Namer(std::vector<ScanTable*> tables, uint64_t keys_max)
      : tables_(std::move(tables)), budget_(keys_max) {
    for (const ScanTable* table : tables_) unnamed_ += table->rows().size();
  }
  // False: there is no work left, or no more may be done.
  bool GoesOn() const { return budget_ > 0 && unnamed_ > 0; }
  // The row of the first table that has the key; null: none has.
  ScanTable::Row* Try(const cache::Key& key, const KeyName& name) {
    --budget_;
    ScanTable::Row* first = nullptr;
    for (ScanTable* table : tables_) {
      const auto found = table->rows().find(key);
      if (found == table->rows().end()) continue;
      if (!found->second.name.has_value()) {
        found->second.name = name;
        --unnamed_;
      }
      if (first == nullptr) first = &found->second;
    }
    return first;
  }

 private:
  const std::vector<ScanTable*> tables_;
  uint64_t budget_;
  uint64_t unnamed_ = 0;
};

struct Shard {
  const v1::StreamConfig* stream;
  int32_t number;
  stream::KeyMaker keys;
};

std::vector<Shard> ShardsOf(const std::vector<v1::StreamConfig>& streams,
                            const ScanFilter& filter) {
  std::vector<Shard> shards;
  for (const v1::StreamConfig& stream : streams) {
    if (!filter.stream.empty() && stream.name() != filter.stream) continue;
    for (int32_t i = 0; i < stream.shards(); ++i) {
      if (filter.shard.has_value() && *filter.shard != i) continue;
      shards.push_back({&stream, i, stream::KeyMaker({stream::IdOf(stream), i})});
    }
  }
  return shards;
}

// Names a group and the locks of the files that it knows; adds those files.
void NameGroup(const Shard& shard, int64_t group, Namer& namer, std::vector<File>& files) {
  KeyName name{.stream = shard.stream->name(), .shard = shard.number};
  const int64_t first = std::max<int64_t>(group * stream::kPairsPerGroup, 1);
  name.seq = first;
  ScanTable::Row* const row = namer.Try(shard.keys.MetadataGroup(first), name);
  if (row == nullptr) return;
  const auto known = FilesOf(first, row->value);
  if (known.empty()) return;
  row->name->seq = known.begin()->first;
  for (const auto& [seq, file] : known) {
    name.seq = seq;
    name.kind = KeyName::Kind::kLock;
    for (const stream::Layer layer : {stream::Layer::kPrimary, stream::Layer::kCache}) {
      name.layer = layer;
      namer.Try(shard.keys.Lock(seq, static_cast<int>(layer)), name);
    }
    name.kind = KeyName::Kind::kChunk;
    name.layer = stream::Layer::kPrimary;
    const int64_t chunk_size =
        file.chunk_size > 0 ? file.chunk_size : int64_t{shard.stream->chunk_size()};
    if (chunk_size <= 0) continue;
    for (const stream::Part part : {stream::Part::kData, stream::Part::kIndex}) {
      const auto i = static_cast<size_t>(part);
      name.part = part;
      const int64_t length = std::max(file.cache_length[i], file.primary_length[i]);
      files.push_back({&shard.keys, name, chunk_size, length / chunk_size + 1 + kChunksAhead});
    }
  }
}

// The rows that match, those with a name first.
std::vector<const std::pair<const cache::Key, ScanTable::Row>*> Listed(const ScanTable& table,
                                                                       const ScanFilter& filter) {
  std::vector<const std::pair<const cache::Key, ScanTable::Row>*> rows;
  for (const auto& row : table.rows()) {
    const auto& name = row.second.name;
    if (name.has_value() ? filter.Matches(*name) : !filter.any()) rows.push_back(&row);
  }
  std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
    const auto& left = a->second.name;
    const auto& right = b->second.name;
    if (left.has_value() != right.has_value()) return left.has_value();
    if (left.has_value() && *left != *right) return *left < *right;
    return a->first < b->first;
  });
  return rows;
}

// How an owner, or another holder, stands to a key: has it, lacks it, is not known.
struct Holder {
  std::string name;
  char mark =
      ' ';  // ' ' an owner that has it, '-' lacks it, '?' not known; '+' has it, is no owner
};

std::vector<Holder> HoldersOf(const ScanTable& table, const cache::Key& key,
                              const ScanTable::Row& row) {
  std::vector<Holder> holders;
  const auto has = [&](uint16_t replica) {
    return std::find(row.holders.begin(), row.holders.end(), replica) != row.holders.end();
  };
  const cache::Owners owners = table.OwnersOf(key);
  const auto* const end = owners.replica.begin() + owners.count;
  for (const auto* owner = owners.replica.begin(); owner != end; ++owner) {
    holders.push_back({table.ring().replicas[*owner].name, has(*owner)             ? ' '
                                                           : table.scanned(*owner) ? '-'
                                                                                   : '?'});
  }
  for (const uint16_t holder : row.holders) {
    if (std::find(owners.replica.begin(), end, holder) != end) continue;
    holders.push_back({table.ring().replicas[holder].name, '+'});
  }
  return holders;
}

}  // namespace

Status ScanTable::Add(uint16_t replica, const v1::CacheScanReply& page) {
  TAILCAST_RETURN_IF_ERROR(cache::wire::Reader::Check(page.batch()));
  cache::wire::Reader reader(page.batch());
  const bool lengths = page.value_lengths_size() > 0;
  if (lengths && page.value_lengths_size() != static_cast<int64_t>(reader.size())) {
    return InvalidArgumentError("value_lengths has " + std::to_string(page.value_lengths_size()) +
                                " numbers for " + std::to_string(reader.size()) + " keys");
  }
  cache::wire::Entry entry;
  for (int i = 0; reader.Next(entry); ++i) {
    auto found = rows_.find(entry.key);
    if (found == rows_.end()) {
      if (rows_.size() >= keys_max_) {
        ++keys_left_out_;
        continue;
      }
      found = rows_.try_emplace(entry.key).first;
      found->second.rule = entry.rule;
    }
    Row& row = found->second;
    row.length = std::max(
        row.length, lengths ? page.value_lengths(i) : static_cast<uint32_t>(entry.value.size()));
    row.remaining = std::max(row.remaining, Duration::Millis(entry.remaining_ms.value_or(0)));
    if (row.rule == entry.rule && !entry.value.empty()) {
      MergeInto(row.rule, row.value, entry.value);
    }
    // A value may come twice, when it moved meanwhile.
    if (row.holders.empty() || row.holders.back() != replica) row.holders.push_back(replica);
  }
  return OkStatus();
}

void ScanTable::Fail(uint16_t replica, const Status& why) { failures_.emplace(replica, why); }

Status ScanFilter::Check() const {
  if (shard.has_value() && stream.empty()) {
    return InvalidArgumentError("--shard: of which stream? give --stream, too");
  }
  if (seq.has_value() && !shard.has_value()) {
    return InvalidArgumentError("--seq: of which shard? give --stream and --shard, too");
  }
  return OkStatus();
}

bool ScanFilter::Matches(const KeyName& name) const {
  if (!stream.empty() && name.stream != stream) return false;
  if (shard.has_value() && name.shard != *shard) return false;
  if (!seq.has_value()) return true;
  return name.kind == KeyName::Kind::kMetadata
             ? stream::MetadataGroupOf(name.seq) == stream::MetadataGroupOf(*seq)
             : name.seq == *seq;
}

void NameRows(const std::vector<v1::StreamConfig>& streams, const ScanFilter& filter,
              ScanTable& metadata, const std::vector<ScanTable*>& tables, uint64_t keys_max) {
  std::vector<ScanTable*> values{&metadata}, chunks;
  for (ScanTable* table : tables) {
    if (table == &metadata) continue;
    (table->instance() == Instance::kData ? chunks : values).push_back(table);
  }
  const std::vector<Shard> shards = ShardsOf(streams, filter);
  std::vector<File> files;
  Namer groups(std::move(values), keys_max);
  if (filter.seq.has_value()) {
    for (const Shard& shard : shards) {
      NameGroup(shard, stream::MetadataGroupOf(*filter.seq), groups, files);
    }
    std::erase_if(files, [&](const File& file) { return file.name.seq != *filter.seq; });
  } else {
    for (int64_t group = 0; !shards.empty() && groups.GoesOn(); ++group) {
      for (const Shard& shard : shards) {
        if (groups.GoesOn()) NameGroup(shard, group, groups, files);
      }
    }
  }
  // The newest chunks of all files first: older ones are gone.
  Namer namer(std::move(chunks), keys_max);
  while (namer.GoesOn() && !files.empty()) {
    for (File& file : files) {
      if (!namer.GoesOn()) break;
      file.name.chunk = --file.chunks;
      namer.Try(file.keys->Chunk(file.name.seq, file.name.part, file.chunk_size, file.name.chunk),
                file.name);
    }
    std::erase_if(files, [](const File& file) { return file.chunks == 0; });
  }
}

std::string ScanText(const ScanTable& table, const ScanFilter& filter, size_t limit, WallTime now) {
  const auto rows = Listed(table, filter);
  const size_t shown = limit == 0 ? rows.size() : std::min(limit, rows.size());
  const auto scanned = std::count_if(
      table.ring().replicas.begin(), table.ring().replicas.end(), [&](const cache::Replica& r) {
        return table.scanned(static_cast<uint16_t>(&r - table.ring().replicas.data()));
      });
  std::string text = std::string(InstanceName(table.instance())) +
                     " cache: " + Counted(rows.size(), filter.any() ? "matching key" : "key") +
                     " on " + Counted(static_cast<uint64_t>(scanned), "replica") + "\n";
  for (const auto& [replica, why] : table.failures()) {
    text += Wrapped(2, "PARTIAL: " + table.ring().replicas[replica].name + ": " + why.message());
  }
  if (table.keys_left_out() > 0) {
    text += Wrapped(2, "PARTIAL: " + Counted(table.keys_left_out(), "key") +
                           " left out: there are too many keys; scan one replica (--replica)");
  }
  char line[160];
  if (shown > 0) {
    std::snprintf(line, sizeof line, "  %-32s %-6s %5s %9s %s\n", "key", "rule", "bytes",
                  "time left", "owners");
    text += line;
  }
  for (size_t i = 0; i < shown; ++i) {
    const auto& [key, row] = *rows[i];
    std::snprintf(line, sizeof line, "  %-32s %-6s %5u %9s", KeyText(key).c_str(),
                  RuleText(row.rule), row.length, SpanText(row.remaining).c_str());
    text += line;
    for (const Holder& holder : HoldersOf(table, key, row)) {
      text += " " + holder.name;
      if (holder.mark != ' ') text += holder.mark;
    }
    text += "\n";
    if (!row.name.has_value()) continue;
    text += "    " + row.name->ToString() + "\n";
    for (const std::string& words : Describe(*row.name, row.value, now)) text += Wrapped(6, words);
  }
  if (shown < rows.size()) {
    text += "  " + std::to_string(rows.size() - shown) + " more; --limit 0 lists all\n";
  }
  return text;
}

std::string ScanJson(const std::vector<const ScanTable*>& tables, const ScanFilter& filter,
                     size_t limit, WallTime now) {
  nlohmann::json caches = nlohmann::json::array();
  for (const ScanTable* table : tables) {
    const auto rows = Listed(*table, filter);
    const size_t shown = limit == 0 ? rows.size() : std::min(limit, rows.size());
    nlohmann::json one = {{"cache", std::string(InstanceName(table->instance()))},
                          {"keys_total", rows.size()},
                          {"keys_left_out", table->keys_left_out()},
                          {"failures", nlohmann::json::array()},
                          {"keys", nlohmann::json::array()}};
    for (const auto& [replica, why] : table->failures()) {
      one["failures"].push_back(
          {{"replica", table->ring().replicas[replica].name}, {"error", why.message()}});
    }
    for (size_t i = 0; i < shown; ++i) {
      const auto& [key, row] = *rows[i];
      nlohmann::json k = {{"key", KeyText(key)},
                          {"rule", RuleText(row.rule)},
                          {"length", row.length},
                          {"remaining_ms", row.remaining.millis()},
                          {"owners", nlohmann::json::array()}};
      for (const Holder& holder : HoldersOf(*table, key, row)) {
        k["owners"].push_back(
            {{"name", holder.name},
             {"owner", holder.mark != '+'},
             {"has", holder.mark == ' ' || holder.mark == '+' ? nlohmann::json(true)
                     : holder.mark == '-'                     ? nlohmann::json(false)
                                                              : nlohmann::json()}});
      }
      if (row.name.has_value()) {
        k["name"] = row.name->ToString();
        if (table->instance() == Instance::kMetadata) {
          k["contents"] = Describe(*row.name, row.value, now);
        }
      }
      one["keys"].push_back(std::move(k));
    }
    caches.push_back(std::move(one));
  }
  return nlohmann::json({{"caches", std::move(caches)}})
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tailcast::inspect
