// The catalogue of a cell: its streams, those that were deleted, and the retention floors of their
// shards. A part of the registry: it changes the durable state, which the registry writes
// (registry_core.h); nothing is shown before that.
//
// A core: no clock, no I/O, one thread. All input from peers is checked; errors name the field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/term.h"

namespace tailcast::cell {

struct CatalogueOptions {
  std::string cell;
  std::vector<std::string> known_cells;  // this one included; empty: any name is good
  int streams_max = 10000;
};

class Catalogue {
 public:
  // `durable` outlives it; of it `streams`, `deleted` and `floors`. `seed`: for incarnations.
  Catalogue(CatalogueOptions options, v1::RegistrySnapshot* durable, uint64_t seed);

  // Makes a stream whose source is this cell: gives it an incarnation and tree version 1. `planned`
  // is the copy tree if the request has none.
  //   AlreadyExists, InvalidArgument, ResourceExhausted; FailedPrecondition: this is not the
  //   source.
  Result<v1::StreamConfig> CreateStream(const v1::StreamConfig& request,
                                        const std::vector<v1::TreeEdge>& planned, WallTime now);
  // The configuration of a stream as its parent in the copy tree has it, or a re-route. Returns
  // what is known afterwards; NotFound if that incarnation was deleted.
  //
  // In the stream's source a new tree begins a change: `stream.change` is filled in here (what the
  // request says is ignored), from the last tree that was carried out. Other cells take it as it
  // comes. `settled` and `complete` (cell.proto) are kept for the tree version that they are said
  // of.
  struct Installed {
    bool settled = false, complete = false;
  };
  Result<v1::StreamConfig> InstallStream(const v1::StreamConfig& stream,
                                         const Installed& what = {false, false});
  // All cells below this one are fed as the tree of this version wants it. In the source that ends
  // the change.
  void SetFinished(const std::string& name, stream::TreeVersion tree_version);
  // Returns the configuration it had. `incarnation` kNone: whichever. NotFound.
  Result<v1::StreamConfig> DeleteStream(const std::string& name,
                                        stream::StreamIncarnation incarnation);
  // Known and not written yet, too.
  const v1::StreamConfig* FindStream(const std::string& name) const;
  bool WasDeleted(const stream::StreamId& stream) const;

  // The retention floor of a shard; 1 if none was set. Only grows.
  int64_t Floor(const stream::ShardId& shard) const;
  void SetFloor(const stream::ShardId& shard, int64_t seq);

  // Something changed since OnTaken.
  bool changed() const { return dirty_; }
  // A snapshot of the durable state was taken, to be written.
  void OnTaken() { dirty_ = false; }

 private:
  Status CheckStream(const v1::StreamConfig& stream) const;
  static v1::TreeChange ChangeFrom(const v1::StreamConfig& known, const v1::StreamConfig& next);
  v1::StreamConfig* Mutable(const std::string& name);
  void Put(const v1::StreamConfig& stream);

  const CatalogueOptions options_;
  v1::RegistrySnapshot* const durable_;
  bool dirty_ = false;
  Rng rng_;
};

// InvalidArgument unless the edges are a tree that begins at the stream's source and reaches all of
// its destinations; a cell is entered once.
Status ValidateTree(const v1::StreamConfig& stream);

}  // namespace tailcast::cell
