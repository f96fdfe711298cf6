// Reads a range of bytes of one part of one message file: chunks from the data cache, and what is
// missing there by one combined read of the primary layer (paper §2.4, Figs 5 and 6). Shared by
// consumers and readers.
//
// Bytes land where the caller wants them, chunk after chunk, so that a message that spans chunks is
// contiguous. The destination starts at the beginning of the first byte's chunk, because a chunk's
// check sum covers it from its beginning:
//
//   chunk size 4096, from 5000, to 9000
//   destination -> | chunk 1: 4096 .... 5000 .... 8191 | chunk 2: 8192 ... 9000 ... |
//                    what is before `from`: valid on entry (prefix_valid) or overwritten with the
//                    same file's bytes
//
// A caller that tails a file hands the end of one read, and the check sum that came with it, to the
// next one: then only the new suffix of a partly filled chunk is fetched and validated.
//
// Threads: everything on the loop. The reader's callbacks are dropped when it is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/file_steps.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"

namespace tailcast::stream {

struct RangeRequest {
  int64_t from = 0;  // bytes of the part
  int64_t to = 0;    // > from
  // Bytes below it are asked of the cache first: the published length of the cache layer, 0 to
  // leave the cache alone. A wrong one costs a miss (design rule "lengths are hints").
  int64_t cache_limit = 0;
  // Bytes below it may be read from the primary layer: what is known to be committed there, 0 to
  // leave it alone.
  int64_t primary_limit = 0;
  // Room for bytes [ChunkStart(from), ChunkStart(from) + room); room >= to - ChunkStart(from). With
  // more room than that, a last chunk that holds more than `to` is taken whole. Valid until the
  // answer.
  char* destination = nullptr;
  int64_t room = 0;
  // Kept until the bytes at `destination` are written no more, even if the RangeReader is destroyed
  // before: the owner of that memory.
  std::shared_ptr<const void> owner;
  // destination[0, from - ChunkStart(from)) holds those bytes already and this is their crc32c.
  bool prefix_valid = false;
  uint32_t prefix_crc = 0;
  // A cache that was too late for some of it is not left for the primary layer as long as it gives
  // something: then what it gave is the answer. Under overload the primary layer would be asked for
  // what the cache is still sending.
  bool late_is_short = false;
  // Nobody said that the cache has all of it: what the first replica has is the answer, and nothing
  // counts as missing.
  bool ahead = false;
};

struct RangeResult {
  // [from, end) is at the destination, validated. Less than `to`: neither layer had more, or the
  // cache was late (RangeRequest::late_is_short). More than `to`: a longer chunk was taken whole,
  // within the room.
  int64_t end = 0;
  // The bytes [ChunkStart(end), end) are at the destination too and this is their crc32c: the next
  // request's prefix. False only if `from` lies inside a chunk whose beginning could not be read.
  bool tail_valid = false;
  uint32_t tail_crc = 0;
  int64_t cache_bytes = 0;  // of [from, end), by origin
  int64_t primary_bytes = 0;
  int32_t chunks = 0;          // asked of the cache
  int32_t short_chunks = 0;    // the cache had a part of what it should
  int32_t missing_chunks = 0;  // the cache had nothing new of them
  int32_t late_chunks = 0;     // of either: the cache's time was over
  int32_t primary_reads = 0;   // 0 or 1
  // Why a primary read that was needed failed or gave less than its limit. NotFound: the file is
  // not (yet) there, as in a cell whose cache copy runs ahead.
  Status primary_error;
};

// One part of one file. Several reads may be outstanding.
class RangeReader {
 public:
  struct Options {
    // How long the cache may take before its chunks count as missing.
    Duration cache_timeout = Duration::Millis(250);
    // After this many reads in a row of which the cache had nothing (a late consumer: its chunks
    // have expired), up to `skip_reads_max` reads that the primary can answer whole leave the cache
    // alone.
    int miss_streak = 2;
    int skip_reads_max = 16;
    // Of the consumer that reads: what each read gave is logged there.
    FileSteps steps;
  };
  // One counter per cause, over the reader's life.
  struct Counters {
    int64_t reads = 0, cache_bytes = 0, primary_bytes = 0, primary_reads = 0, short_chunks = 0,
            missing_chunks = 0, primary_errors = 0, short_primary_reads = 0, cache_skips = 0;
  };

  RangeReader(const CellPorts& ports, const FileId& file, Part part, int64_t chunk_size)
      : RangeReader(ports, file, part, chunk_size, Options()) {}
  RangeReader(const CellPorts& ports, const FileId& file, Part part, int64_t chunk_size,
              Options options);
  RangeReader(const RangeReader&) = delete;
  RangeReader& operator=(const RangeReader&) = delete;

  // The answer at once if the cache's memory is readable inside the call and has every byte; else
  // nullopt, and the answer comes by `done`, exactly once, in a later turn. No allocation when at
  // once.
  std::optional<RangeResult> Read(const RangeRequest& request, Callback<void(RangeResult)> done);

  // The committed length of the part in the primary layer, asked of the file itself: the fallback
  // for lengths when the metadata cache is unavailable. NotFound: no such file yet.
  void PrimarySize(Callback<void(Result<storage::FileSize>)> done);

  int64_t chunk_size() const { return chunk_size_; }
  int64_t ChunkStart(int64_t position) const { return position - position % chunk_size_; }
  const Counters& counters() const { return counters_; }

 private:
  struct Job;
  bool SkipCache(const RangeRequest& request);
  void Plan(const RangeRequest& request, std::vector<cache::ChunkRead>& reads) const;
  // The answer from what the cache gave; sets the span that the primary should give (empty: done).
  RangeResult Evaluate(const RangeRequest& request, const std::vector<cache::ChunkRead>& reads,
                       int64_t* primary_from, int64_t* primary_to) const;
  void LogChunks(const std::vector<cache::ChunkRead>& reads, int64_t from) const;
  void AfterCache(const std::shared_ptr<Job>& job);
  void AfterPrimary(const std::shared_ptr<Job>& job, Result<std::string> bytes);
  void Finish(const std::shared_ptr<Job>& job);
  void Count(const RangeResult& result);
  // Calls `then` with the open file, or null and the error; at once if it is open.
  using UseFile = UniqueFunction<void(storage::ReadFile*, Status)>;
  void WithFile(UseFile then);
  // The open file failed: the next use opens it anew.
  void DropFile();

  const CellPorts ports_;
  const FileId file_;
  const Part part_;
  const int64_t chunk_size_;
  const Options options_;
  const KeyMaker keys_;
  std::vector<cache::ChunkRead> scratch_;  // for answers at once
  std::unique_ptr<storage::ReadFile> primary_;
  bool opening_ = false;
  std::vector<UseFile> waiting_for_open_;
  Counters counters_;
  int empty_reads_ = 0;  // in a row, of which the cache had nothing
  int skip_length_ = 0;  // reads to skip when the streak is full; doubles
  int skips_left_ = 0;
  Scope scope_;
};

}  // namespace tailcast::stream
