// The read of one key at one replica (paper §2.2), as a state machine without I/O: it says which
// bytes of the replica's memory are wanted next, is shown private copies of them, and validates.
// One protocol for every path: key_read.h drives it with reads inside the call and with reads that
// complete later; values that come by rpc enter through the same door, AppendValidated.
//
// Start leads to kRemembered if it is known where the entry was the last time, else to kBucket.
//
//   state        what is read                     validated      it grew   torn, moved, too short
//   kRemembered  the entry where it was; perhaps  kDone: found   kRest     next entry; the bucket was
//                the bucket, too                                           torn: again
//   kBucket      the key's bucket                 next entry     -         again
//   kEntry       an entry that it points to       kDone: found   kRest     next entry
//   kRest        what the entry has grown by      kDone: found   -         next entry
//
//   next entry   the bucket was read, and has
//                  another one with the key's tag        ───▶ kEntry
//                  only such as are of no use            ───▶ again
//                  none with this tag                    ───▶ kDone: absent, overflowed
//                it was not read                         ───▶ kBucket
//   again        torn_retries_max times at most          ───▶ kBucket
//                once more, if the reader's bytes may be
//                  no prefix of the value: all of it     ───▶ kBucket
//                after that                              ───▶ kDone: torn
//
// An entry that validates and does not continue what the reader has leads to kDone: contradicts.
// Behind bytes that the reader had when the read began no such entry validates; so when the same
// one did not twice, or the retries are used up, it is read from its first byte on.
//
// kRemembered: of a chunk any bytes that validate are right ones, wherever they lie, so an entry
// that is long enough ends the read. A value may be an old one ("moved"), so the bucket is read
// with it and must still point there.
#pragma once

#include <cstdint>
#include <string_view>

#include "tailcast/cache/client.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

// What reading a key from one replica came to.
enum class KeyOutcome : uint8_t {
  kFound,        // validated
  kAbsent,       // validated too: the bucket does not have it
  kOverflowed,   // its bucket is full: ask by rpc
  kTorn,         // did not validate, too often
  kContradicts,  // validated, but the reader's prefix is not a prefix of it
  kFailed,       // could not be read
};

struct KeyAnswer {
  KeyOutcome outcome = KeyOutcome::kFailed;
  uint32_t length = 0;       // of the value
  uint32_t bytes_added = 0;  // to the chunk, whatever the outcome
  bool saw_bucket = false;
  layout::BucketHeader bucket;                                // if it was seen
  layout::Generation generation = layout::Generation::kNone;  // of the memory that was read
};

// Bytes [from, length) of a value that are validated to follow bytes of crc32c `from_crc`.
struct ValidatedBytes {
  uint32_t from = 0;
  uint32_t from_crc = 0;
  const char* bytes = nullptr;  // byte `from` of the value; may be in the chunk's destination
  uint32_t length = 0;          // of the value
  uint32_t crc = 0;             // crc32c of all of it
};
// Takes what is new of a value into the reader's chunk, up to its capacity. This is the only place
// where bytes enter one. False, and nothing changes, if what the chunk has is no prefix of the
// value: others may have brought bytes since the read began, and replicas may contradict each
// other, but no chunk holds bytes of both.
bool AppendValidated(ChunkRead& read, const ValidatedBytes& value);
// Counts a chunk's read that begins, and one that has ended: a hit, short, or a miss.
void CountBegun(ReadMode mode, ClientCounters& counters);
void CountEnded(const ChunkRead& read, ReadMode mode, ClientCounters& counters);
// As AppendValidated, for a whole value that came by rpc, whose transport validates.
KeyAnswer AnswerByRpc(ChunkRead* chunk, std::string_view value);

class KeyReadCore {
 public:
  enum class State : uint8_t { kRemembered, kBucket, kEntry, kRest, kDone };

  // Of a chunk: it outlives the core, or the core is not used any more. `room`: how long a value
  // may grow where the payload lands; a longer one is asked for anew, from `from()` on, in other
  // memory (`request().to` > room).
  KeyReadCore(const layout::Geometry& geometry, int torn_retries_max, ChunkRead* chunk,
              uint32_t room)
      : KeyReadCore(geometry, torn_retries_max, chunk->key, chunk, room) {}
  // Of a value.
  KeyReadCore(const layout::Geometry& geometry, int torn_retries_max, const Key& key)
      : KeyReadCore(geometry, torn_retries_max, key, nullptr, layout::kValueBytesMax) {}

  // What is to be read next. With `bucket` the key's bucket; with `header` the header of the entry
  // at `entry` (an offset in the data region); of its payload the bytes [from, to).
  struct Request {
    bool bucket = false;
    bool header = false;
    uint64_t entry = 0;
    uint32_t from = 0, to = 0;
  };
  const Request& request() const { return request_; }
  // The first byte of the payload that is wanted at all: Memory::payload begins with it. It may
  // be one that the chunk has; then the payload must not land in the chunk.
  uint32_t from() const { return from_; }

  // `remembered`: where the entry was, and how much of it to read; null: not known.
  void Start(const layout::Location* remembered, bool with_bucket);

  // Private copies, where `request` was read to. All of them stay as they are from one request to
  // the next.
  struct Memory {
    const char* bucket = nullptr;   // kBucketBytes
    const char* header = nullptr;   // kEntryHeaderBytes
    const char* payload = nullptr;  // from byte `from()` on
  };
  // What `request` asked for lies in `memory`.
  void OnRead(const Memory& memory);

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  const KeyAnswer& answer() const { return answer_; }
  // Where the entry that was found lies.
  layout::Location location() const { return {request_.entry, answer_.length}; }
  uint32_t torn_retries() const { return torn_retries_; }

  // The key's bucket, as an offset in the index region.
  uint64_t bucket_offset() const {
    return layout::BucketOffset(layout::BucketOf(key_, geometry_.bucket_count));
  }

 private:
  enum class Check : uint8_t { kValid, kTorn, kGrew, kContradicts };

  KeyReadCore(const layout::Geometry& geometry, int torn_retries_max, const Key& key,
              ChunkRead* chunk, uint32_t room);
  void Become(State state);
  void TakePrefix();
  void AskBucket();
  bool TakeBucket(const char* bucket);
  void AskEntry(const layout::Location& location);
  Check CheckHeader(const Memory& memory);
  Check CheckPayload(const Memory& memory);
  void Judge(Check check, const Memory& memory);
  void NextWay(const char* bucket);
  void DoubtPrefix();
  void Torn();
  void Done(KeyOutcome outcome);

  const layout::Geometry& geometry_;
  const int torn_retries_max_;
  const Key key_;
  ChunkRead* const chunk_;  // null: a value
  const uint32_t room_;

  State state_ = State::kBucket;
  Request request_;
  bool remembered_ = false;   // the entry comes from a remembered place
  bool current_ = false;      // the bucket points to it
  bool have_bucket_ = false;  // the copy in memory is whole
  bool any_way_ = false;      // an entry of this bucket was looked at
  uint32_t way_ = 0;          // of the bucket: where to go on looking
  uint32_t from_ = 0, from_crc_ = 0;
  uint32_t length_ = 0, payload_crc_ = 0;  // of the entry whose header was validated last
  // How often in succession an entry, and which, did not validate behind the bytes before from_.
  uint32_t doubts_ = 0, doubtful_length_ = 0, doubtful_crc_ = 0;
  uint32_t torn_retries_ = 0;
  KeyAnswer answer_;
};

}  // namespace tailcast::cache
