// Streams that were deleted: what is left to do of them, in the cell and by telling others, and the
// incarnations that never come back. A part of the catalogue (catalogue.h).
//
// The last 10,000 of which nothing is left to do are kept.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tailcast/proto/registry.pb.h"
#include "tailcast/stream/names.h"

namespace tailcast::cell {

class Deletions {
 public:
  // `durable` outlives it; of it `deleted`.
  explicit Deletions(v1::RegistrySnapshot* durable);
  Deletions(const Deletions&) = delete;
  Deletions& operator=(const Deletions&) = delete;

  bool Has(const stream::StreamId& stream) const { return ids_.contains(stream); }
  // Files may be on the disk, and these cells are to be told. It is not there yet. Those that are
  // forgotten for it, and it itself, go to `changed`.
  void Add(const stream::StreamId& stream, int32_t shards, std::vector<std::string> cells_to_tell,
           std::set<stream::StreamId>& changed);
  // True if that is news.
  bool OnTold(const stream::StreamId& stream, const std::string& cell);
  bool SetOnDisk(const stream::StreamId& stream, bool on_disk);

 private:
  v1::DeletedStream* Find(const stream::StreamId& stream);

  v1::RegistrySnapshot* const durable_;
  std::set<stream::StreamId> ids_;  // of durable_
};

// As the entry says.
stream::StreamId IdOf(const v1::DeletedStream& deleted);

}  // namespace tailcast::cell
