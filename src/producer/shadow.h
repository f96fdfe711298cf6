// The shadow of one message file in the cache layer (paper §2.4 Producers, Fig 3; §3 Start
// Position): chunks of both parts into the data cache, then their lengths, with those of the
// primary layer, into the metadata cache.
//
// The cache layer is allowed to be slow or gone: what waits for it is bounded, and once that
// overflows the shadow goes on at the chunk where the primary layer stands. Nothing here ever waits
// on the caller's side.
//
// Lengths of both layers usually travel in one write, so that a consumer at the doorbell is woken
// once per flush and finds the bytes in the cache: the primary's wait up to `primary_length_delay`
// for the cache's to catch up. With 0 they go at once, as in the paper.
//
// Invariants: a chunk is written after the flush of its bytes was acknowledged, from its beginning;
// the cache's length is published after the chunks below it were acknowledged by a quorum, and
// never beyond what the index covers (design rules "committed first", "prefix chunks").
//
// Threads: the loop's. Used by the producer for its own file, and for what a dead producer left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client.h"
#include "tailcast/producer/append_core.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/chunk_writer_core.h"
#include "tailcast/stream/file_steps.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::producer {

struct ShadowOptions {
  // Bytes of one part that may wait for the data cache.
  int64_t backlog_bytes = 32 << 20;
  int64_t mutate_bytes = 1 << 20;  // of one part's chunks in one bulk write
  // Less data than this waits so long for the index that covers it: one bulk write then takes both.
  // A call to each replica costs far more than a few chunks in it, and lengths need the index
  // anyway.
  int64_t data_alone_bytes = 64 << 10;
  Duration index_wait = Duration::Millis(10);
  int mutates_in_flight = 4;  // bulk writes of one part
  Duration mutate_timeout = Duration::Seconds(1);
  Duration retry_min = Duration::Millis(20);
  Duration retry_max = Duration::Seconds(1);
  Duration primary_length_delay = Duration::Millis(5);
};

struct ShadowCounters {
  int64_t chunk_writes = 0, chunk_bytes = 0;  // what the data cache was given
  int64_t partial_writes = 0;                 // of chunk_writes: chunks that will be written again
  int64_t bulk_writes = 0, bulk_failures = 0;
  int64_t publishes = 0, publish_failures = 0;
  int64_t primary_alone = 0;  // lengths of the primary published ahead of the cache's
  int64_t jumps = 0;          // backlog overflows
  int64_t jumped_bytes = 0;   // that will be missing from the cache
  int64_t mismatches = 0;     // DataLoss answers: foreign bytes under our keys
};

class ShadowFile {
 public:
  // Shadowing begins at the chunks of `from` (0 for a new file). `counters` outlives the shadow.
  // `on_change` (may be empty) runs when cached() or idle() may have become true.
  ShadowFile(const stream::CellPorts& ports, const stream::FileId& file, int64_t chunk_size,
             storage::Epoch epoch, const int64_t (&from)[stream::kParts], ShadowOptions options,
             ShadowCounters* counters, Callback<void()> on_change);
  ShadowFile(const ShadowFile&) = delete;
  ShadowFile& operator=(const ShadowFile&) = delete;

  // Bytes that the primary layer has flushed. Chunks of data may go ahead of the index that covers
  // them; lengths do not.
  void OnFlushed(stream::Part part, int64_t at, std::string_view bytes);
  // Bytes up to `end` are on their way to OnFlushed: it is not idle before they came. A smaller end
  // takes it back.
  void Expect(stream::Part part, int64_t end);
  // The index, flushed, now ends at `index_length` and covers `data_length`: both are committed.
  void OnCommitted(int64_t data_length, int64_t index_length);
  // The file is closed and ends there.
  void Seal(const stream::Seal& seal);
  // Publishes the metadata with the present as-of time, unless that was done within `interval`.
  void Heartbeat(Duration interval);
  // Publishes whatever is known now, without waiting for the cache.
  void PublishNow();
  // What was published may be lost (a new cache epoch): publishes all of it again, at once.
  void PublishAgain();

  // A quorum of the cache has everything that is committed.
  bool cached() const;
  // Everything flushed is in the cache, and the metadata says so.
  bool idle() const;
  const stream::FileId& file() const { return file_; }
  const stream::PairMetadata& metadata() const { return metadata_; }

 private:
  struct PartState {
    std::unique_ptr<stream::ChunkWriterCore> chunks;
    explicit PartState(EventLoop& loop) : retry(loop) {}
    int in_flight = 0;    // bulk writes
    Duration retry_wait;  // back-off; 0 while all is well
    Timer retry;
    int64_t flushed_end = 0;
    int64_t expected_end = 0;
  };

  // Chunks of one bulk write, by part: number and length.
  struct Written {
    std::vector<std::pair<int64_t, int64_t>> chunks[stream::kParts];
  };
  bool MayWrite(int part) const;
  void OnDataLoss(const Status& status);
  void Write();
  void OnWritten(const Written& written, const Status& status);
  bool UpdateCacheLengths();  // whether they changed
  void LengthsChanged();
  void Publish();
  void MoveHeartbeat();
  void OnPublished(const Status& status, uint64_t version);

  const stream::CellPorts ports_;
  const stream::FileId file_;
  const stream::KeyMaker keys_;
  const ShadowOptions options_;
  ShadowCounters* const counters_;
  const stream::FileSteps steps_;
  Callback<void()> on_change_;
  stream::PairMetadata metadata_;
  PartState parts_[stream::kParts];
  Timer index_wait_;        // data waits for its index
  uint64_t version_ = 1;    // of metadata_
  uint64_t published_ = 0;  // newest version that was acknowledged
  uint64_t sent_ = 0;       // newest version under way or acknowledged
  int publishes_in_flight_ = 0;
  Duration publish_retry_;
  Timer publish_timer_;
  MonotonicTime last_publish_;
  Scope scope_;
};

}  // namespace tailcast::producer
