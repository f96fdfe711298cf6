// What the parts of one QuorumClient share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/contradictions.h"
#include "tailcast/cache/hedge_core.h"
#include "tailcast/cache/location_table.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/quorum_options.h"
#include "tailcast/cache/read_slots.h"
#include "tailcast/cache/value_memory.h"

namespace tailcast::cache {

class KeyReadPool;
std::shared_ptr<KeyReadPool> MakeKeyReadPool();  // key_read.cc

class ReplicaLink;
using ReplicaLinkPtr = std::shared_ptr<ReplicaLink>;

// This client's configuration, and whether servers have a newer one: then the registry's view of it
// is on its way, or this client is cut off.
class ConfigurationWatch {
 public:
  // `newer`: counts each newer id that was heard of from a server first.
  explicit ConfigurationWatch(OwnedCounter& newer) : newer_(newer) {}

  void SetMine(ConfigurationId id) {
    mine_ = id;
    seen_ = std::max(seen_, id);
  }
  void Saw(ConfigurationId id) {
    if (id <= seen_) return;
    seen_ = id;
    ++newer_;
  }
  // The low half of the id of a server's configuration, as buckets have it.
  void SawLowHalf(uint32_t low) { Saw(FromLowHalf(low)); }
  // The id that is nearest to this client's.
  ConfigurationId FromLowHalf(uint32_t low) const {
    const auto ahead = static_cast<int32_t>(low - static_cast<uint32_t>(Raw(mine_)));
    return ConfigurationId{Raw(mine_) + static_cast<uint64_t>(static_cast<int64_t>(ahead))};
  }
  ConfigurationId mine() const { return mine_; }
  // Whether a server with that low half knows that another ring is read than in `than`: what is
  // acknowledged now is perhaps not written to it any more.
  bool ReadsNewerRing(uint32_t low, ConfigurationId than) const {
    return ReadRing(FromLowHalf(low)) > ReadRing(than);
  }

 private:
  OwnedCounter& newer_;
  ConfigurationId mine_{}, seen_{};
};

// Links with reads that were not given to their endpoints yet. They go out together at the end of
// the loop's turn: endpoints take one system call for a batch.
class Outbox {
 public:
  explicit Outbox(EventLoop& loop) : loop_(loop) {}

  void Add(ReplicaLink* link) {
    if (links_.empty()) loop_.Post(scope_.Bind([this] { SendAll(); }));
    links_.push_back(link);
  }
  void Remove(ReplicaLink* link) { std::replace(links_.begin(), links_.end(), link, kGone); }

 private:
  static constexpr ReplicaLink* kGone = nullptr;
  void SendAll();  // replica_link.cc

  EventLoop& loop_;
  std::vector<ReplicaLink*> links_;
  Scope scope_;
};

// Why a call to a replica brought nothing.
enum class CallFailure : uint8_t {
  kTimeout,
  kUnreachable,
  kOtherIncarnation,
  kNotServing,
  kOldRing,
  kBadReply
};
// `status`: of the call; Ok: its answer does not fit what was asked.
inline CallFailure CallFailureOf(const Status& status) {
  if (IsDeadlineExceeded(status)) return CallFailure::kTimeout;
  if (IsFailedPrecondition(status)) return CallFailure::kOtherIncarnation;
  if (IsNotFound(status)) return CallFailure::kNotServing;
  if (IsAborted(status)) return CallFailure::kOldRing;
  if (status.ok() || IsInvalidArgument(status) || IsUnimplemented(status)) {
    return CallFailure::kBadReply;
  }
  return CallFailure::kUnreachable;
}

struct ClientContext {
  ClientContext(EventLoop& l, QuorumClientOptions o)
      : loop(l),
        options(std::move(o)),
        locations(options.remembered_locations),
        values(options.remembered_values_max),
        hedges(options.hedge_delay),
        slots(l, options.key_reads_max, options.key_reads_waiting_max),
        configuration(counters.newer_rings),
        scratch(layout::kEntryHeaderBytes + layout::kValueBytesMax) {}

  EventLoop& loop;
  const QuorumClientOptions options;
  ClientCounters counters;
  LocationTable locations;
  ValueMemory values;
  HedgeCore hedges;
  ReadSlots slots;
  const std::shared_ptr<KeyReadPool> key_reads = MakeKeyReadPool();
  Outbox outbox{loop};
  ContradictionLog contradictions;
  ConfigurationWatch configuration;
  CacheEpoch epoch{};              // of the newest ring
  int32_t immediate_replicas = 0;  // connected, and read inside the call
  uint32_t relaxed_values = 0;     // read so far: each begins with another replica
  std::vector<char> scratch;       // header and payload of a read inside the call
};

}  // namespace tailcast::cache
