// Drives KeyReadCore over a replica's link: on the caller's stack where the endpoint reads inside
// the call, else by scans, or by fabric reads, whose completions come later.
//
// Inside the call the payload lands straight in the chunk's destination. Elsewhere it lands there
// if the driver scans and nobody else reads this chunk at the time (`land` below); else in memory
// of the read's own. What lies in a destination beyond the chunk's bytes is not believed by
// anybody: bytes enter a chunk by AppendValidated only, which finds them in place. Before anybody
// else brings bytes of the same chunk, and before the caller gets its memory back, the landing is
// released.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tailcast/cache/client_context.h"
#include "tailcast/cache/key_read_core.h"
#include "tailcast/cache/replica_link.h"

namespace tailcast::cache {

// Both: the link is immediate and ready. No allocation, some hundred nanoseconds for 4 KB.
// `brought_by`: ChunkTarget's.
KeyAnswer ReadChunkNow(ClientContext& context, ReplicaLink& link, ChunkRead& read,
                       const std::string* brought_by = nullptr);
// `value`: in context.scratch, until the next read inside a call.
KeyAnswer ReadValueNow(ClientContext& context, ReplicaLink& link, const Key& key,
                       std::string_view& value);

class KeyRead;
// A chunk that several replicas may be asked for. Stays where it is until the last of its reads is
// done or dropped.
struct ChunkTarget {
  ChunkRead* chunk = nullptr;
  KeyRead* landing = nullptr;  // whose payload lands in the chunk's destination
  // The replica whose bytes came last; null: those that are there the reader had before.
  const std::string* brought_by = nullptr;
};
// Counts and logs that a replica's value of a chunk contradicts what the reader has of it.
void SayContradicts(ClientContext& context, const ReplicaLink& link, const ChunkRead& read,
                    uint32_t length, const std::string* brought_by);
// From now on nothing is written in the chunk's destination by a read under way.
void ReleaseLanding(ChunkTarget& target);

// Starts a read of `key` by `link`, which is ready and not immediate. `target`: null for a value;
// it is not touched once `done` is dropped, but a landing must be released by then. `land`: nobody
// else reads the chunk now. `done` runs once, maybe inside the call if the connection breaks there;
// the value's bytes, empty for a chunk, last as long as it runs.
using KeyReadDone = Callback<void(const KeyAnswer& answer, std::string_view value)>;
void StartKeyRead(ClientContext& context, ReplicaLink& link, const Key& key, ChunkTarget* target,
                  bool land, ReadSlots::Slot slot, KeyReadDone done);

}  // namespace tailcast::cache
