// The rings of a configuration: the one that is read and, while the ring changes, the other one
// (types.h, RingPhase). What places keys for clients, for servers and in their tests.
//
// One thread; a look-up costs some nanoseconds.
#pragma once

#include <cstdint>

#include "tailcast/cache/client.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

// The replicas to which a key is written: all of both rings.
struct WriteOwners {
  Owners all;
  uint8_t read = 0, other = 0;  // how many of them are of either ring

  MutationCore::Rings in[kOwnersMax];  // of each
};

class RingPair {
 public:
  RingPair() = default;
  explicit RingPair(const RingConfig& config) { Update(config); }

  // Makes a ring anew only if its members are others; many changes of a configuration (an address,
  // an incarnation) leave them as they are.
  void Update(const RingConfig& config) {
    if (!read_.IsOf(config)) read_ = HashRing(config);
    if (!other_.IsOf(config, WhichRing::kOther)) other_ = HashRing(config, WhichRing::kOther);
  }

  const HashRing& read() const { return read_; }
  const HashRing& other() const { return other_; }  // empty, unless the ring changes

  WriteOwners WriteOwnersOf(const Key& key) const {
    WriteOwners owners;
    owners.all = read_.OwnersOf(key);
    owners.read = owners.all.count;
    if (other_.empty()) return owners;
    const Owners other = other_.OwnersOf(key);
    owners.other = other.count;
    for (uint8_t i = 0; i < other.count; ++i) owners.all.Add(other.replica[i]);
    for (uint8_t i = 0; i < owners.all.count; ++i) {
      owners.in[i] = {i < owners.read, other.Has(owners.all.replica[i])};
    }
    return owners;
  }

  // Whether the key is written to this replica, an index into RingConfig::replicas.
  bool Owns(const Key& key, uint16_t replica) const {
    return read_.OwnersOf(key).Has(replica) || other_.OwnersOf(key).Has(replica);
  }

  // Whether it will be, and is not yet: while the other ring is the one that comes.
  bool Gains(const Key& key, uint16_t replica) const {
    return other_.OwnersOf(key).Has(replica) && !read_.OwnersOf(key).Has(replica);
  }

 private:
  HashRing read_, other_;
};

}  // namespace tailcast::cache
