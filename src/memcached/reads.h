// A batch of reads: whom each key asks, and when, is cache::ReadCore's decision; this asks them,
// one request a server at a time, hedges, and ends the batch when every key is finished or the
// deadline passes. What comes after the end is dropped: from then on the caller's chunks are not
// touched.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/value_memory.h"
#include "tailcast/memcached/server_set.h"

namespace tailcast::memcached {

class ReadBatch {
 public:
  // All outlive it.
  ReadBatch(ClientContext& context, ServerSet& servers, cache::ValueMemory& values,
            cache::ReadMode mode);

  void AddChunk(cache::ChunkRead* read);
  void AddValue(const cache::Client::ValueRead& read);
  // `ended`: called once, on a later turn; the batch may be destroyed in it.
  void Start(Duration timeout, Task ended);
  // After the end. The join of each value's answers, or Unavailable.
  Result<cache::Values> TakeValues();

 private:
  struct Key {
    cache::Key key;
    cache::MergeRule rule = cache::MergeRule::kLongerWins;
    cache::ChunkRead* chunk = nullptr;  // null: a value
    std::optional<std::string> value;
    cache::Owners owners;
    cache::ReadCore core;
    bool finished = false;
    const std::string* brought_by = nullptr;  // the server whose bytes came last
  };
  struct Ask {
    uint32_t key = 0;     // of keys_
    uint8_t replica = 0;  // of its owners
  };

  // Notes whom to ask next, or that the key is finished.
  void Go(uint32_t index, cache::Mask ask);
  // Asks those that were noted; ends the batch if all keys are finished.
  void Send();
  void OnAnswer(const std::vector<Ask>& asks, ReadAnswer answer);
  cache::Mask OnValue(Key& key, uint8_t replica, ReadAnswer::Value& value);
  void SetHedge();
  void Hedge();
  void OnDeadline();
  void FinishKey(Key& key);
  void Finish();

  ClientContext& context_;
  ServerSet& servers_;
  cache::ValueMemory& values_;
  const cache::ReadMode mode_;
  std::vector<Key> keys_;
  std::map<uint16_t, std::vector<Ask>> asks_;  // by server
  size_t unfinished_ = 0;
  MonotonicTime deadline_at_;
  Task ended_;
  Timer hedge_, deadline_;
  Scope scope_;
};

}  // namespace tailcast::memcached
