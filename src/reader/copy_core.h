// The decisions of one operation at the reader (paper §2.4 Readers, §3 Start Position): which bytes
// to read next and what to tell the writer.
//
//   cache operation    deltas are read in parallel and sent in whatever order they come
//   primary operation  one read per part at a time, sent in order; the cache is read
//                      opportunistically
//
// Available bytes are those that the source has in the same layer (so the two layers never wait for
// each other); a cache operation may also take what a sealed file has in the primary layer.
//
//   window     nothing is read at or beyond written length + window of the part: back-pressure
//   far behind a cache operation more than jump_bytes and the largest window that it was given (what
//              may rightly be under way) behind the source asks to jump; the writer knows where its
//              own cell's primary file stands and goes no further, and what it jumped over comes
//              back as written. A primary operation never jumps
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "tailcast/base/status.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::reader {

struct CopyOptions {
  int64_t piece_bytes_max = 256 << 10;  // of one read and one message; at most 1 MiB
  int reads_max = 8;                    // outstanding in a cache operation, both parts together
  int64_t jump_bytes = 8 << 20;
};

// What is known of the source's file. Fields only grow.
struct SourceLengths {
  int64_t cache[stream::kParts] = {0, 0};
  int64_t primary[stream::kParts] = {0, 0};
  std::optional<int64_t> seal[stream::kParts];  // both or none
  int64_t heartbeat_us = 0;
};

class CopyCore {
 public:
  // A fresh operation begins to read at 0 at once; another one waits for OnOpened.
  CopyCore(CopyOptions options, stream::Layer layer, int64_t chunk_size, bool fresh);

  // Merges by maximum. DataLoss: a second, different seal.
  Status OnSource(const SourceLengths& source);
  // The writer's first answer: what is there already. InvalidArgument: impossible values.
  Status OnOpened(int64_t data_length, int64_t index_length, int64_t window_bytes);
  // Lengths merge by maximum; the window is from now on (0: as before). InvalidArgument: impossible
  // values, or before OnOpened.
  Status OnProgress(int64_t data_length, int64_t index_length, int64_t window_bytes);

  struct Read {
    uint64_t id = 0;
    stream::Part part = stream::Part::kData;
    int64_t from = 0;
    int64_t to = 0;
    int64_t cache_limit = 0;  // see RangeRequest
    int64_t primary_limit = 0;
  };
  // The next read that may start; each is answered by OnReadDone.
  std::optional<Read> NextRead();
  // Bytes [from, end) of it were read; what is missing up to `to` is read again. Returns where the
  // bytes go (= from), or nullopt if they are no longer wanted (jumped over, or known downstream).
  std::optional<int64_t> OnReadDone(uint64_t id, int64_t end);

  // What to tell the writer now, if anything; each is returned once.
  struct Jump {
    stream::Part part = stream::Part::kData;
    int64_t position = 0;  // as far as possible, at most to here: the beginning of a chunk
  };
  std::optional<Jump> TakeJump();
  struct Lengths {
    int64_t as_of_us = 0;
    int64_t length[stream::kParts] = {0, 0};
  };
  std::optional<Lengths> TakeSeal();       // as_of_us is 0
  std::optional<Lengths> TakeHeartbeat();  // once all bytes that it covers are asked for

  const SourceLengths& source() const { return source_; }
  int64_t written(stream::Part part) const { return parts_[static_cast<int>(part)].written; }
  int64_t sent(stream::Part part) const { return parts_[static_cast<int>(part)].sent; }  // up to
  int64_t available(stream::Part part) const;  // what the source has in this layer
  // Whose turn it is with a part. The writer's: it has not opened, or not written all that was
  // sent. The source's: it has more than was sent, and is to be read.
  enum class Turn : uint8_t { kNobodys, kSources, kWriters };
  Turn turn(stream::Part part) const;
  // Who could do more for what is not downstream yet: the source while something is being read, or
  // may be; else the writer, whose window is full or which has everything.
  Turn in_the_way() const;
  // Grows when whoever's turn it is gets on.
  int64_t got_to(stream::Part part) const {
    return turn(part) == Turn::kSources ? SentWhole(part) : written(part);
  }
  bool opened() const { return opened_; }
  int reads_outstanding() const { return static_cast<int>(reads_.size()); }

 private:
  struct PartState {
    int64_t next = 0;             // everything below was asked for
    int64_t sent = 0;             // highest byte handed to the stream
    int64_t written = 0;          // downstream
    std::optional<int64_t> jump;  // to be told
    int64_t ask_again = 0;        // no jump is asked for before source and written reach this sum
    std::map<int64_t, int64_t> again;  // [from, to) of reads that came short
    int reading = 0;
  };
  using Part = stream::Part;
  // Everything below was sent, or is downstream.
  int64_t SentWhole(Part part) const;
  int64_t ChunkStart(int64_t position) const { return position - position % chunk_size_; }
  // The writer has everything below `length`, or needs it no more.
  void OnWritten(PartState& part, int64_t length);
  void SetWindow(int64_t bytes);
  void MaybeJump();

  const CopyOptions options_;
  const stream::Layer layer_;
  const int64_t chunk_size_;
  SourceLengths source_;
  PartState parts_[stream::kParts];
  int64_t window_bytes_ = stream::kInitialWindowBytes;
  int64_t window_most_ = 0;  // of those that the writer gave
  bool opened_ = false;
  bool may_read_;
  bool seal_told_ = false;
  int64_t heartbeat_told_us_ = 0;
  std::map<uint64_t, Read> reads_;
  uint64_t next_read_ = 1;
};

}  // namespace tailcast::reader
