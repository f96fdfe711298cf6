// What a client knows of values from its earlier reads: their joins, so that a value never falls
// within the client, and the doorbells of their buckets, so that a watch is notified of every
// change since the last read. The least recently read are forgotten.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/merge.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

class ValueMemory {
 public:
  struct Value {
    Key key;
    std::string bytes;  // empty: none was found yet
    // The bucket's doorbell when a replica was last read, by the generation of its memory.
    struct Doorbell {
      layout::Generation generation = layout::Generation::kNone;
      uint32_t value = 0;
    };
    std::array<Doorbell, kReplicasPerKey> doorbells{};

    // `replica`: whose place it takes, if this generation is new and none is free.
    void SawDoorbell(uint8_t replica, layout::Generation generation, uint32_t value) {
      for (Doorbell& doorbell : doorbells) {
        if (doorbell.generation == generation || doorbell.generation == layout::Generation::kNone) {
          doorbell.generation = generation;
          doorbell.value = value;
          return;
        }
      }
      doorbells[replica] = {generation, value};
    }
    std::optional<uint32_t> DoorbellOf(layout::Generation generation) const {
      for (const Doorbell& doorbell : doorbells) {
        if (doorbell.generation == generation) return doorbell.value;
      }
      return std::nullopt;
    }
  };

  explicit ValueMemory(uint32_t values_max) : values_max_(values_max) {}

  // The value of `key`, most recently read from now on; made if it is new. Until the next call.
  Value& Remember(const Key& key) {
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      values_.splice(values_.begin(), values_, found->second);
      return values_.front();
    }
    if (values_.size() >= values_max_) {
      by_key_.erase(values_.back().key);
      values_.pop_back();
    }
    values_.emplace_front();
    values_.front().key = key;
    by_key_.emplace(key, values_.begin());
    return values_.front();
  }
  // Joins what earlier reads of `key` gave into `value`, and remembers the join. kMismatch: they
  // contradict each other.
  MutationResult Join(const Key& key, MergeRule rule, std::string& value) {
    Value& remembered = Remember(key);
    const MutationResult result = MergeInto(rule, value, remembered.bytes);
    remembered.bytes = value;
    return result;
  }
  const Value* Find(const Key& key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : &*found->second;
  }

 private:
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.lo ^ (key.hi * 0x9e3779b97f4a7c15); }
  };
  const uint32_t values_max_;
  std::list<Value> values_;  // most recently read first
  std::unordered_map<Key, std::list<Value>::iterator, KeyHash> by_key_;
};

}  // namespace tailcast::cache
