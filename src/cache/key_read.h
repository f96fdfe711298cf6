// Drives KeyReadCore over a replica's link: on the caller's stack where the endpoint reads inside
// the call, else by fabric reads whose completions come later.
//
// Inside the call the payload lands straight in the chunk's destination. Elsewhere it lands in
// memory of the read's own, so that a slow replica cannot hold a caller's memory after the read
// ended at another one.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tailcast/cache/client_context.h"
#include "tailcast/cache/key_read_core.h"
#include "tailcast/cache/replica_link.h"

namespace tailcast::cache {

// Both: the link is immediate and ready. No allocation, some hundred nanoseconds for 4 KB.
KeyAnswer ReadChunkNow(ClientContext& context, ReplicaLink& link, ChunkRead& read);
// `value`: in context.scratch, until the next read inside a call.
KeyAnswer ReadValueNow(ClientContext& context, ReplicaLink& link, const Key& key,
                       std::string_view& value);

// Starts a read of `key` by `link`, which is ready and not immediate. `chunk`: null for a value; it
// is not touched once `done` is dropped. `done` runs once, maybe inside the call if the connection
// breaks there; the value's bytes, empty for a chunk, last as long as it runs.
using KeyReadDone = Callback<void(const KeyAnswer& answer, std::string_view value)>;
void StartKeyRead(ClientContext& context, ReplicaLink& link, const Key& key, ChunkRead* chunk,
                  ReadSlots::Slot slot, KeyReadDone done);

}  // namespace tailcast::cache
