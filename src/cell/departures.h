// The copies that cells keep of streams whose copy tree they have left, until they are gone (spec
// Leaving). The stream's source decides; nobody acts on anything of this before it is durable.
//
// In the source, of each cell that was in a tree of the stream and is in its tree no more:
//
//    in the tree ------> leaver ------ named by no open change, no last copy ------> going
//        ^                 |                                                          |
//        +-----------------+ a new tree has it                                        | all are gone
//        +------------------------------------------------------------- forgotten <---+
//
// No tree may name a cell whose copies go: so who comes back has all of them or none.
//
// In the cell, for each order of the source:
//
//    kept ------ order, greater than the last one; no tree that is known names it ------> dropping
//     ^                                                                                   |
//     +---------------------------------------------------------------- nothing is left --+
//
// A part of the catalogue. A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <string>

#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/stream/names.h"

namespace tailcast::cell {

// The cell is the stream's source, or is in its copy tree, or in one that an open change comes
// from.
bool NamesCell(const v1::StreamConfig& stream, const std::string& cell);

class Departures {
 public:
  // `durable` outlives it; of it `leavers`, `last_leave_order` and `dropped`.
  explicit Departures(v1::RegistrySnapshot* durable) : durable_(durable) {}
  Departures(const Departures&) = delete;
  Departures& operator=(const Departures&) = delete;

  // --- in the source
  // `now`, with its change, replaces `before`.
  void OnTree(const v1::StreamConfig& before, const v1::StreamConfig& now);
  // Empty, or a cell of this tree whose copies go still.
  std::string FindGoing(const v1::StreamConfig& stream) const;
  // True if that is news, as of all below.
  bool Add(const stream::StreamId& stream, const std::string& cell);
  bool BeginGoing(const stream::StreamId& stream, const std::string& cell, uint64_t order);
  bool OnGone(const stream::StreamId& stream, const std::string& cell, uint64_t order);

  // --- in a cell that left
  // Null: none was ever ordered.
  const v1::DroppedCopy* FindDropped(const stream::StreamId& stream) const;
  bool IsDropping(const stream::StreamId& stream) const;
  void Drop(const stream::StreamId& stream, int32_t shards, uint64_t order);
  bool OnDropped(const stream::StreamId& stream, uint64_t order);

  // The stream is deleted.
  void Forget(const stream::StreamId& stream);

 private:
  v1::Leaver* Find(const stream::StreamId& stream, const std::string& cell) const;

  v1::RegistrySnapshot* const durable_;
};

}  // namespace tailcast::cell
