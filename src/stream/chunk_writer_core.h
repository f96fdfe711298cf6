// Turns bytes of one part of a message file into chunk values for the data cache (paper §2.4
// Writers, Fig 7; spec DuelingWriters: ChunkWrite, ChunkAck, LengthPublish). Used by a writer's
// cache operation, whose bytes come in any order, and by a producer, which shadows what it flushed
// in order.
//
//   W1 = bytes [0, 1000)        W2 = bytes [1000, 13000), arrives first    chunks of 4096
//   Add(W2): chunks 1 and 2 are whole: written at once, in parallel. Chunk 3 is a prefix [0, 712):
//            written too. Chunk 0 lacks its beginning: it waits. written_end() stays 0.
//   Add(W1): chunk 0 becomes whole and is written, once. When all four are acknowledged,
//            written_end() is 13000: the length to publish.
//
// Invariants: a write's value begins at its chunk's beginning (design rule "prefix chunks"); at
// most one write per chunk is outstanding, and the next one of that chunk is longer; written_end()
// is never ahead of what was acknowledged and only grows; memory is at most window_bytes + two
// chunks.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tailcast::stream {

struct ChunkWriterOptions {
  int64_t chunk_size = 4096;  // bytes, > 0
  // How far beyond written_end() bytes are taken; at least a chunk and the largest Add.
  int64_t window_bytes = 8 << 20;
};

// A value to write under the key of chunk `chunk`.
struct ChunkWrite {
  int64_t chunk = 0;  // number of the chunk within the part
  std::string value;  // the chunk's bytes from its beginning
};

class ChunkWriterCore {
 public:
  // Bytes are expected from the beginning of the chunk in which `position` lies.
  ChunkWriterCore(ChunkWriterOptions options, int64_t position);

  enum class AddOutcome : uint8_t {
    kTaken,     // some of the bytes were new
    kAlready,   // all are received already, or lie before the start position
    kFull,      // they end beyond the window: nothing was taken; add them again after progress, or
                // JumpTo
    kConflict,  // they contradict bytes received before (DataLoss); nothing was taken
  };
  // `position` >= 0 in the part.
  AddOutcome Add(int64_t position, std::string_view bytes);

  // Moves the writes that may start now to the end of `out`, lowest chunk first, until their values
  // have `bytes_max` bytes or more. Each is answered by one OnWritten, in any order.
  void TakeWrites(int64_t bytes_max, std::vector<ChunkWrite>* out);
  bool HasWrites() const { return !ready_.empty(); }

  // The write of `length` bytes of `chunk` was acknowledged by a quorum, or failed and will be
  // given out by TakeWrites again (longer, if more came). Answers for chunks that were jumped over,
  // and for unknown ones, are ignored: false.
  bool OnWritten(int64_t chunk, int64_t length, bool ok);

  // Everything from start() up to here is acknowledged: the length to publish. After a JumpTo
  // beyond what was received it is the position that was jumped to.
  int64_t written_end() const { return written_end_; }
  // Everything from start() up to here was received.
  int64_t received_end() const { return received_end_; }
  // First byte that this writer answers for: the beginning of a chunk.
  int64_t start() const { return start_; }
  // Acknowledged all that was received, and nothing lies beyond a hole.
  bool idle() const;
  int64_t outstanding() const { return outstanding_; }  // writes
  // Memory that chunks hold, bytes.
  int64_t buffered_bytes() const { return buffered_bytes_; }
  // Received and not yet acknowledged; bytes that were jumped over do not count.
  int64_t pending_bytes() const { return pending_bytes_; }
  const ChunkWriterOptions& options() const { return options_; }

  // Forgets everything before the beginning of the chunk of `position` and goes on from there
  // (paper §3 Start Position): after a backlog that overflowed, or a cache outage. Bytes at and
  // after that beginning that were received stay. Back is ignored.
  void JumpTo(int64_t position);

 private:
  struct Chunk {
    std::string bytes;                  // as far as received, holes included
    std::map<int64_t, int64_t> ranges;  // received [begin, end) within the chunk, merged
    int64_t received = 0;               // bytes
    int64_t written = 0;                // acknowledged prefix
    int64_t in_flight = 0;              // length of the outstanding write; 0: none
    bool ready = false;                 // in ready_
    int64_t prefix() const;             // received from the chunk's beginning on
  };
  int64_t ChunkOf(int64_t position) const { return position / options_.chunk_size; }
  void AddToChunk(int64_t chunk, int64_t begin, std::string_view bytes, bool* any_new);
  bool Contradicts(int64_t position, std::string_view bytes) const;
  void MarkReady(int64_t number, Chunk& chunk);
  void Advance();

  ChunkWriterOptions options_;
  int64_t start_;
  int64_t written_end_;
  int64_t received_end_;
  // None before the chunk of written_end_. A whole and written chunk beyond a hole keeps its entry,
  // but not its bytes, until the hole is filled.
  std::map<int64_t, Chunk> chunks_;
  std::set<int64_t> ready_;  // chunks with a write that may start
  int64_t outstanding_ = 0;
  int64_t buffered_bytes_ = 0;
  int64_t pending_bytes_ = 0;
};

}  // namespace tailcast::stream
