// What must always hold in a simulated deployment, each named after its design rule, and checked
// against what the deployment really holds, faults and latency aside.
//
//   Oracles oracles(deployment, {.source = "us", .shard = shard});
//   oracles.Watch(load);                 // its consumers too
//   oracles.Check()                      // "", or "committed first: eu file 3 data: ..."
//   oracles.CheckAll()                   // at the end: everything again, from the beginning
//
// The nine rules of ../../ARCHITECTURE.md; each problem begins with the name of its own:
//
//   nothing needed goes   floors do not fall, and pass only what was trimmed or retention wants away;
//                     what lies above them is there, the source's until every cell has it
//   committed first   a published primary length is covered by the primary layer, a published cache
//                     length by chunks (if the caches are sound), an index by its data; what a
//                     cell has, primary or cached, the source has committed; and not only do the
//                     bytes lie there: the file system had acknowledged them to somebody. What it
//                     had acknowledged is there for ever.
//   prefix chunks     a cached chunk is a prefix of that chunk's bytes, from its beginning
//   longer wins       the value that a replica holds of a chunk, and the lengths in one of its
//                     records, do not fall while it lives; no two values contradict (bounds.h)
//   in order          what consumers got (Workload::Violation)
//   progress          once everything is healed: all bytes in every cell (Missing), all that was
//                     acknowledged at every consumer (Workload::Incomplete), within a deadline
//   no server on the read path, bounded   bounds.h
//   lengths are hints no consumer stands beyond what the source's file system acknowledged
//   nothing silent    a consumer that read the primary layer has counted why
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/position.h"
#include "tailcast/world/deployment.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {

struct OracleOptions {
  std::string source;  // the cell whose primary layer is the truth
  stream::ShardId shard;
  int64_t chunk_size = 4096;
  // No cache server dies or forgets: published cache lengths are held to account.
  bool caches_are_sound = false;
  // The test itself writes to the caches.
  bool foreign_bytes_in_caches = false;
  // Cache copies may begin where the cell's primary layer stands (§3 Start Position).
  bool jumps_allowed = false;
};

// Check looks at what is new since the last one, so that it may be called often.
class Oracles {
 public:
  // `deployment` outlives it.
  Oracles(Deployment& deployment, OracleOptions options);

  // `load` outlives it.
  void Watch(Workload& load) { load_ = &load; }

  // "", or the first rule that does not hold now and where.
  std::string Check();
  std::string CheckAll();
  // Progress: "", or what some cell's primary layer has not got yet.
  std::string Missing();
  // An operator may have trimmed what lies before this byte, or have retention set so; nothing else
  // ever goes.
  void Trimmed(int64_t before_byte) { trimmed_ = std::max(trimmed_, before_byte); }
  void Retained(const v1::Retention& retention);
  // Progress: "", or which cell still has closed files of more than `bytes`.
  std::string BeyondKept(int64_t bytes);
  // Where what the cell keeps begins.
  stream::Position FirstKept(const std::string& cell);
  // Progress: "", or which files some cell still has below this floor.
  std::string BelowFloor(int64_t floor) const;

 private:
  // How many bytes of a source's file are to be copied: up to its seal, which the next file's name
  // says. Behind it may lie payload whose index was never written.
  int64_t Total(std::pair<int64_t, int> key) const;
  int64_t ChunkSize(int64_t seq) const;
  struct SourceFile;
  // What the files from `from` up to the one before `to` take, data and index.
  static int64_t KeptBytes(const SourceFile& from, const SourceFile& to);
  // Of one part of one file.
  using FileKey = std::pair<int64_t, int>;  // sequence number, part
  struct SourceFile {
    std::string name;
    std::string bytes;
    int64_t first_byte = 0;    // of the shard, where it begins
    int64_t first_number = 0;  // of its messages
    MonotonicTime created;     // not before
    int64_t chunk_size = 0;    // as its name says it
    int64_t acknowledged = 0;  // of these, that a process was told to be durable
    size_t promised = 0;       // so many had been when we last looked
    bool settled() const { return acknowledged == static_cast<int64_t>(bytes.size()); }
  };
  struct CopiedFile {
    std::string bytes;  // of this cell's primary layer
    int64_t acknowledged = 0;
    bool complete = false;  // there will never be more, and it was right
    int64_t chunks = 0;     // that many from the beginning were seen in the cache, whole and right
  };

  std::string ReadSource();
  std::string CheckCell(const std::string& cell);
  // All of the file was seen, in both layers: nothing can become wrong any more.
  bool Settled(const std::string& cell, int64_t seq);
  std::string CheckPrimary(const std::string& cell);
  std::string CheckFloor(const std::string& cell);
  // Files below `floor` were wanted away at some time.
  bool MayGo(int64_t floor) const;
  int64_t FloorOf(const std::string& cell) const;
  std::string CheckLengths(const std::string& cell, int64_t seq);
  std::string CheckChunks(const std::string& cell, FileKey key, int64_t published);
  std::string CheckIndex(const std::string& cell, int64_t seq);
  std::string CheckConsumer(Workload::Consumer& consumer);
  bool CachesAreSound(const std::string& cell) const;
  // Longer wins, of one replica, unless it let go of the value in between: `length` of what it
  // holds now. "", or "fell from 12 to 8".
  std::string Fell(const std::string& cell, const cache::Key& key, int part,
                   const Deployment::Copy& copy, int64_t length);
  std::string Where(const std::string& cell, FileKey key) const;

  Deployment& deployment_;
  const OracleOptions options_;
  const std::string dir_;
  const stream::KeyMaker keys_;
  Workload* load_ = nullptr;
  std::map<FileKey, SourceFile> source_;
  // Longest value of a key (in its parts) at a replica.
  struct Longest {
    int64_t length = 0;
    uint64_t forgotten = 0;  // Deployment::Copy, when it was this long
  };
  std::map<std::tuple<std::string, cache::Key, int, ProcessIncarnation>, Longest> longest_;
  int64_t turn_ = 0;                                // checks so far
  bool all_ = false;                                // this one sees everything
  int64_t newest_ = 0;                              // file of the source
  MonotonicTime read_at_;                           // the source was read last
  int64_t trimmed_ = 0;                             // byte of the shard
  std::optional<int64_t> bytes_max_;                // the least that retention was set to
  std::optional<Duration> age_max_;                 // too, and by the fastest clock
  std::map<std::string, int64_t> floors_;           // of cells, as their folders say
  std::map<std::string, std::set<int64_t>> whole_;  // files that cells had, above their floors
  std::map<std::string, std::map<FileKey, CopiedFile>> copies_;  // by cell
};

}  // namespace tailcast::world
