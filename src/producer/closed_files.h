// Files of a shard that are closed and not yet whole in the cache layer: those that this producer
// rolled over, whose shadows it goes on with, and what a dead producer committed and had not
// shadowed, which is read from the primary layer.
//
// Bounded: of a dead producer's file only the tail is shadowed, for consumers who were not behind;
// and of many files the oldest are left to the primary layer.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/producer/open_core.h"
#include "tailcast/producer/shadow.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"

namespace tailcast::producer {

class ClosedFiles {
 public:
  // `chunk_size`: of files whose metadata is lost. `counters` outlives it. `on_idle` runs when one
  // file more may be whole in the caches.
  ClosedFiles(const stream::CellPorts& ports, stream::ShardId shard, int64_t chunk_size,
              ShadowOptions options, ShadowCounters* counters, Callback<void()> on_idle);
  ~ClosedFiles();
  ClosedFiles(const ClosedFiles&) = delete;
  ClosedFiles& operator=(const ClosedFiles&) = delete;

  // Goes on with the shadow of a file of ours, which is given everything already.
  void Add(std::unique_ptr<ShadowFile> shadow);
  // Shadows the rest of a file from the primary layer, once the metadata cache has said (or could
  // not) how far its producer came, and publishes its seal.
  void Finish(const Predecessor& predecessor);
  // Begins with no further file; goes on with the others.
  void Stop() {
    asking_.End();
    asked_ = 0;
  }

  // Every file is whole in the caches, and its metadata says so.
  bool idle() const;
  // Lets go of the shadows that are, but for the newest.
  void DropIdle();
  // What was published may be lost (a new cache epoch).
  void PublishAgain();

 private:
  struct File;
  void OnMetadata(const Predecessor& predecessor, const stream::PairMetadata& metadata);
  void ReadTail(File& file, stream::Part part, int64_t begin, int64_t end, int64_t chunk_size);
  void Insert(std::unique_ptr<File> file);

  const stream::CellPorts ports_;
  const stream::ShardId shard_;
  const stream::KeyMaker keys_;
  const int64_t chunk_size_;
  const ShadowOptions options_;
  ShadowCounters* const counters_;
  Callback<void()> on_idle_;
  std::vector<std::unique_ptr<File>> files_;  // oldest first
  int asked_ = 0;                             // files of which the metadata was not read yet
  Scope asking_;
  Scope scope_;
};

}  // namespace tailcast::producer
