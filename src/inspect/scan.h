// Which keys are in the caches. A key is a hash, of which no name can be read; so the keys of what
// there may be are made (each group of each shard, then the locks and chunks of the files that
// those groups know), and those that are there have a name then. Work and memory are bounded: what
// is beyond stays without a name, or is not listed, and the report says so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/types.h"
#include "tailcast/inspect/key_name.h"
#include "tailcast/proto/cache.pb.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/stream/metadata.h"

namespace tailcast::inspect {

struct KeyHash {
  size_t operator()(const cache::Key& key) const { return key.lo; }  // uniform already
};

// What replicas of one cache have, page by page.
class ScanTable {
 public:
  // Keys that are kept at most; of the metadata cache with their values.
  static constexpr size_t kKeysMax = 4'000'000;

  struct Row {
    cache::MergeRule rule = cache::MergeRule::kLongerWins;
    uint32_t length = 0;            // the longest
    Duration remaining;             // the longest
    std::string value;              // joined, if pages had values
    std::vector<uint16_t> holders;  // places in the ring's replicas
    std::optional<KeyName> name;
  };

  explicit ScanTable(Instance instance, cache::RingConfig ring, size_t keys_max = kKeysMax)
      : instance_(instance),
        ring_(std::move(ring)),
        keys_max_(keys_max),
        hash_ring_(ring_),
        scanned_(ring_.replicas.size()) {}

  // The next page of a replica, by its place in the ring. InvalidArgument: it is malformed.
  Status Add(uint16_t replica, const v1::CacheScanReply& page);
  // All its pages were added.
  void End(uint16_t replica) { scanned_[replica] = true; }
  // It could not be scanned, or not to its end.
  void Fail(uint16_t replica, const Status& why);

  Instance instance() const { return instance_; }
  const cache::RingConfig& ring() const { return ring_; }
  cache::Owners OwnersOf(const cache::Key& key) const { return hash_ring_.OwnersOf(key); }
  std::unordered_map<cache::Key, Row, KeyHash>& rows() { return rows_; }
  const std::unordered_map<cache::Key, Row, KeyHash>& rows() const { return rows_; }
  bool scanned(uint16_t replica) const { return scanned_[replica]; }
  const std::map<uint16_t, Status>& failures() const { return failures_; }
  uint64_t keys_left_out() const { return keys_left_out_; }

 private:
  const Instance instance_;
  const cache::RingConfig ring_;
  const size_t keys_max_;
  const cache::HashRing hash_ring_;
  std::unordered_map<cache::Key, Row, KeyHash> rows_;
  std::vector<bool> scanned_;
  std::map<uint16_t, Status> failures_;
  uint64_t keys_left_out_ = 0;
};

// Which keys are meant; empty: all.
struct ScanFilter {
  std::string stream;
  std::optional<int32_t> shard;
  std::optional<int64_t> seq;

  bool any() const { return !stream.empty(); }
  // InvalidArgument: a shard without a stream, a file without a shard.
  Status Check() const;
  bool Matches(const KeyName& name) const;
};

// Gives rows of `metadata`, of which the files are taken, and of `tables` their names. `streams`:
// of the cell. At most `keys_max` keys are made for the metadata cache, and as many for the data
// cache.
void NameRows(const std::vector<v1::StreamConfig>& streams, const ScanFilter& filter,
              ScanTable& metadata, const std::vector<ScanTable*>& tables,
              uint64_t keys_max = 4'000'000);

// The rows that match, those with a name first and in its order, at most `limit` of them (0: all).
// With a filter only rows with a name match.
std::string ScanText(const ScanTable& table, const ScanFilter& filter, size_t limit, WallTime now);
std::string ScanJson(const std::vector<const ScanTable*>& tables, const ScanFilter& filter,
                     size_t limit, WallTime now);

}  // namespace tailcast::inspect
