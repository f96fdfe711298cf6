// How the replicas of a cache are, as they say themselves (rpc Stat) and as the registry sees them,
// and what is not right.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/types.h"
#include "tailcast/inspect/key_name.h"
#include "tailcast/proto/cache.pb.h"

namespace tailcast::inspect {

struct ReplicaStat {
  std::string name;
  ProcessIncarnation incarnation = ProcessIncarnation::kNone;  // kNone: not known
  // "whole", "resting", "copying", "copied" (waits to be admitted), "idle" (has seen no ring),
  // "out" (no ring that it knows names it, or it stalled), "anew" (another life than the registry
  // knows), "down" (the registry knows no address), "silent" (it does not answer); while the ring
  // changes "coming" or "going": of the ring that is not read.
  std::string state;
  bool answered = false;
  bool whole = false;  // as the registry says, of this life
  cache::ConfigurationId configuration_id{};
  cache::CacheEpoch epoch{};
  std::map<std::string, uint64_t> values;  // of CacheStatReply; empty unless it answered
  std::vector<std::string> remarks;        // what is not right and what to do; sentences

  // 0 if the replica does not say.
  uint64_t Value(const std::string& key) const;
};

struct StatReport {
  Instance instance = Instance::kData;
  cache::ConfigurationId configuration_id{};  // as the registry says
  cache::CacheEpoch epoch{};
  uint64_t members = 0;               // of the ring that is read
  std::vector<ReplicaStat> replicas;  // of both rings, while it changes

  uint32_t answered() const;
  uint32_t whole() const;
};

// `replies`: of ring.replicas, one each; of one without an address any error.
StatReport MakeStat(Instance instance, const cache::RingConfig& ring,
                    const std::vector<Result<v1::CacheStatReply>>& replies);

// A table of at most kColumns columns with a line for each replica, and the remarks below it.
std::string StatText(const std::vector<StatReport>& reports);
// An object with an array for each cache.
std::string StatJson(const std::vector<StatReport>& reports);

}  // namespace tailcast::inspect
