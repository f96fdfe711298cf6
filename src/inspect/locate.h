// One key: which replicas own it, what each of them has, whether they agree, and what a reader
// would be given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/types.h"
#include "tailcast/inspect/key_name.h"
#include "tailcast/proto/cache.pb.h"

namespace tailcast::inspect {

struct Wanted {
  Instance instance = Instance::kData;
  cache::Key key;
  std::optional<KeyName> name;  // nullopt: only the key is known
};

// What an owner has of a key.
struct OwnerReport {
  std::string name;
  // "whole" alone counts: the others are "copying" (as the registry says: not whole), "anew"
  // (another life than the registry knows), "out" (in no ring that it knows), "down", "silent".
  std::string state;
  std::string error;  // why it did not answer
  bool answered = false, whole = false;
  uint64_t bucket = 0;
  // Only if it has the key:
  bool found = false, overflowed = false;
  bool damaged = false;  // its bytes do not fit its crc, or its rule is none
  cache::MergeRule rule = cache::MergeRule::kLongerWins;
  std::string value;
  uint32_t crc = 0;
  uint64_t version = 0;
  Duration remaining;
};

struct LocateReport {
  Wanted wanted;
  cache::ConfigurationId configuration_id{};
  cache::CacheEpoch epoch{};
  std::vector<OwnerReport> owners;  // in the order of the ring
  // What a consistent read would give: the join of what was found. nullopt: nothing was.
  std::optional<std::string> value;
  cache::MergeRule rule = cache::MergeRule::kLongerWins;
  // Two whole owners answered, or as many as there are: as cache::ValueAnswer::complete.
  bool complete = false;
  bool contradicts = false;          // DataLoss
  bool alike = true;                 // the owners that answered have the same
  std::vector<std::string> verdict;  // sentences

  uint32_t answered() const;
};

// The replicas that own `key`, by their place in ring.replicas, in the order of the ring.
std::vector<size_t> OwnersOf(const cache::RingConfig& ring, const cache::Key& key);

// `answers`: of OwnersOf, one each; of an owner without an address any error.
LocateReport Compare(const Wanted& wanted, const cache::RingConfig& ring,
                     const std::vector<Result<v1::CacheLocateReply>>& answers);

std::string LocateText(const LocateReport& report, WallTime now);
// An array with an object for each.
std::string LocateJson(const std::vector<LocateReport>& reports, WallTime now);
// Of what is dumped, for standard error: "data flights/0/1/3: 4096 bytes, crc32c 89abcdef, ..."
std::string DumpSummary(const LocateReport& report);

}  // namespace tailcast::inspect
