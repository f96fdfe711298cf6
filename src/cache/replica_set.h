// The replicas of a client's configuration: the ring that places keys on them, and a link to each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tailcast/cache/client.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/replica_link.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/ring_pair.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cache {

// The links of one configuration, in its order; whoever holds the table may use them.
using LinkTable = std::vector<ReplicaLinkPtr>;

// Of a key's owners, in their order: who can be asked now, and whose word on what is absent counts.
struct Standing {
  Mask usable = 0, whole = 0;
};
inline Standing StandingOf(const LinkTable& links, const Owners& owners) {
  Standing standing;
  for (uint8_t i = 0; i < owners.count; ++i) {
    const ReplicaLink& link = *links[owners.replica[i]];
    if (link.Usable()) standing.usable |= static_cast<Mask>(1u << i);
    if (link.whole()) standing.whole |= static_cast<Mask>(1u << i);
  }
  return standing;
}

class ReplicaSet {
 public:
  ReplicaSet(ClientContext& context, fabric::Connector& fabric, rpc::Connector& rpc);

  // Takes a newer configuration; links to replicas that stay are kept. Older ones are ignored.
  void Update(RingConfig config);

  // The key's replicas in the ring that is read, in this client's order of preference for it.
  Owners PreferredOwners(const Key& key) const;
  // Where a chunk may be found: the same; behind them, while a ring goes that was read until now,
  // those of that one, which were not emptied by the change.
  Owners ChunkOwners(const Key& key) const;
  // The owners of either for reads that are asked one after the other: those that are slow come
  // last. `turn`: the order of the owners of the ring that is read begins so many places later.
  Owners OwnersForRead(const Key& key, bool chunk, uint32_t turn = 0);
  // To be called when reads begin: compares the replicas' speeds, if that was a while ago.
  void JudgeSpeeds();
  // For writers: all are written, in both rings while there are two.
  WriteOwners WriteOwnersOf(const Key& key) const { return rings_.WriteOwnersOf(key); }
  const ReplicaLinkPtr& link(const Owners& owners, uint8_t i) const {
    return (*links_)[owners.replica[i]];
  }
  // Of now.
  const std::shared_ptr<const LinkTable>& links() const { return links_; }
  uint32_t size() const { return static_cast<uint32_t>(links_->size()); }
  // Replicas that are connected now.
  uint32_t ready() const;

 private:
  ClientContext& context_;
  fabric::Connector& fabric_;
  rpc::Connector& rpc_;
  const uint64_t preference_;  // of this client, mixed into the order in which it likes replicas
  bool configured_ = false;
  RingPair rings_;
  std::shared_ptr<const LinkTable> links_ = std::make_shared<const LinkTable>();
  std::vector<uint64_t> liking_;  // of each link: the least comes first
  // The place of each link in that order, and the link of each place.
  std::vector<uint16_t> rank_, by_rank_;
  bool any_avoided_ = false;
  MonotonicTime judge_at_;
};

}  // namespace tailcast::cache
