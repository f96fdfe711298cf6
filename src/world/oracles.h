// What must always hold in a simulated deployment, each named after its design rule, and checked
// against what the deployment really holds, faults and latency aside.
//
//   Oracles oracles(deployment, {.source = "us", .shard = shard});
//   oracles.Watch(load);                 // its consumers too
//   oracles.Check()                      // "", or "committed first: eu file 3 data: ..."
//   oracles.CheckAll()                   // at the end: everything again, from the beginning
//
//   committed first   a published primary length is covered by the primary layer, a published cache
//                     length by chunks (if the caches are sound), an index by its data; what a
//                     cell has, primary or cached, the source has committed; and not only do the
//                     bytes lie there: the file system had acknowledged them to somebody
//   prefix chunks     a cached chunk is a prefix of that chunk's bytes, from its beginning
//   in order          what consumers got (Workload::Violation), and no two values of a chunk
//                     contradict each other
//   progress          once everything is healed: all bytes in every cell (Missing), all messages at
//                     every consumer (Workload::Incomplete)
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/names.h"
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

 private:
  // Of one part of one file.
  using FileKey = std::pair<int64_t, int>;  // sequence number, part
  struct SourceFile {
    std::string name;
    std::string bytes;
    int64_t acknowledged = 0;  // of these, that a process was told to be durable
    bool settled() const { return acknowledged == static_cast<int64_t>(bytes.size()); }
  };
  struct CopiedFile {
    std::string bytes;  // of this cell's primary layer
    int64_t acknowledged = 0;
    bool complete = false;  // there will never be more, and it was right
    int64_t chunks = 0;     // that many from the beginning were seen in the cache, whole and right
  };

  void ReadSource();
  std::string CheckCell(const std::string& cell);
  // All of the file was seen, in both layers: nothing can become wrong any more.
  bool Settled(const std::string& cell, int64_t seq);
  std::string CheckPrimary(const std::string& cell);
  std::string CheckLengths(const std::string& cell, int64_t seq);
  std::string CheckChunks(const std::string& cell, FileKey key, int64_t published);
  std::string CheckIndex(const std::string& cell, int64_t seq);
  std::string Where(const std::string& cell, FileKey key) const;

  Deployment& deployment_;
  const OracleOptions options_;
  const std::string dir_;
  const stream::KeyMaker keys_;
  Workload* load_ = nullptr;
  std::map<FileKey, SourceFile> source_;
  int64_t newest_ = 0;                                           // file of the source
  std::map<std::string, std::map<FileKey, CopiedFile>> copies_;  // by cell
};

}  // namespace tailcast::world
