// One mutation of one key at one memcached server, as a state machine without I/O: what is to be
// asked of the server next, and what came of it. memcached knows no merges, so a merge is a loop:
//
//   kGet ──absent, not ours──▶ kAdd / kSwap ──stored──▶ kDone: applied
//     │ ──less than given────▶ kSwap        ──others were faster──▶ kGet, rounds_max times at most,
//     │                                                              then kDone: given up
//     │ ──at least as much───▶ kDone: no change (nothing is written: no fresh time to live)
//     │ ──contradicts────────▶ kDelete ─────▶ kDone: mismatch
//   kDelete (an erase begins there)
//
// An item that does not validate is replaced by compare-and-swap, as if nothing were there.
// memcached deletes without comparing: what a third writer put there between the get of a
// contradiction and its delete goes with it, as if it were evicted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/cache/types.h"
#include "tailcast/memcached/item.h"

namespace tailcast::memcached {

// What a server answers to a change.
enum class StoreResult : uint8_t {
  kDone,      // stored; deleted
  kConflict,  // it is another item by now, or gone, or one is there already
  kAbsent,    // nothing to delete
  kRefused,   // no memory for it, or too large
};

class MergeCore {
 public:
  enum class Step : uint8_t { kGet, kAdd, kSwap, kDelete, kDone };

  // Both outlive it.
  MergeCore(const ItemFormat& format, const cache::Mutation& mutation, uint32_t rounds_max);

  Step step() const { return step_; }
  // Answer to kGet. `item`: nullopt if absent; not kept. `version`: what a swap compares with.
  void OnItem(std::optional<std::string_view> item, uint64_t version);
  // Answer to kAdd, kSwap or kDelete.
  void OnStored(StoreResult result);

  // What kAdd and kSwap write.
  const std::string& item() const { return item_; }
  uint64_t version() const { return version_; }

  // Of kDone. nullopt: given up.
  std::optional<cache::MutationResult> result() const { return result_; }
  uint32_t retries() const { return retries_; }
  uint32_t damaged_items() const { return damaged_items_; }

 private:
  void Done(std::optional<cache::MutationResult> result) {
    step_ = Step::kDone;
    result_ = result;
  }

  const ItemFormat& format_;
  const cache::Mutation& mutation_;
  const uint32_t rounds_max_;
  Step step_ = Step::kGet;
  std::string item_;
  uint64_t version_ = 0;
  bool mismatch_ = false;
  uint32_t retries_ = 0, damaged_items_ = 0;
  std::optional<cache::MutationResult> result_;
};

}  // namespace tailcast::memcached
