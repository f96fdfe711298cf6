// When a producer flushes what, and who is acknowledged (paper §2.4 Producers; spec RollOver). One
// message file at a time:
//
//   messages   m1 m2 | m3 m4 m5 | m6
//   data file  [-- flush A --] [--- flush B ---] [- flush C -]        one append at a time
//   index file                 [- records of A -] [ of B ]           one append at a time
//                                               ^ A acknowledged
//
// The data of the next flush is appended while the index of the one before is, because those are
// different files; an index record is appended only after the flush of its message was acknowledged
// (design rule "committed first"). Index records of several flushes that wait go in one append.
//
// A file ends at the first message that reaches `roll_bytes`, data and index together, however much
// waits: the rest goes into the next one.
//
// After an append that failed or whose outcome is unknown the file is given up. What was not
// acknowledged is kept, and once the opener of the next file knows the old one's seal, Open sorts
// it out: messages below the seal are durable, the others are appended to the new file.
//
// The file:
//
//           Open             Hold
//   kNone ────────▶ kOpen ◀────────▶ kHeld      Open of the next file: from kOpen, kHeld and
//                     │                │        kGivenUp to kOpen
//                     ├────────────────┘
//                     ▼ an append failed or nobody knows; GiveUp
//                 kGivenUp                      TakeAll, the end: from all to kEnded
//                     │
//                     ▼ an append was refused: from kOpen and kHeld, too
//                  kFenced
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/producer/ack.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::producer {

// One message on its way in, without its bytes: its headers, and then its payload.
struct Message {
  uint32_t length = 0;  // bytes
  uint32_t crc = 0;     // crc32c of the bytes
  int64_t time_us = 0;  // producer's wall time
  uint16_t headers_length = 0;
};

// Of headers as they are encoded, and a payload.
Message MessageOf(std::string_view headers, std::string_view payload);

// Messages in order, their bytes end to end.
struct Batch {
  std::string bytes;
  std::vector<Message> messages;
  // By index into `messages`, ascending; messages without one are acknowledged silently.
  std::vector<std::pair<uint32_t, AckCallback>> acks;
};

// A batch with its place in the shard.
struct Flush {
  Batch batch;
  int64_t first_number = 0;  // of the shard
  int64_t first_byte = 0;    // of the shard
};

struct AppendOptions {
  Duration flush_interval = Duration::Millis(100);
  int64_t flush_bytes = 1 << 20;
  int64_t roll_bytes = 256 << 20;  // of a file, data and index
  // A flush also starts when the one before is durable and cached (SetCached), and SetPause is
  // over: then each takes what came meanwhile, as fast as the system goes, and the interval bounds
  // what a slow cache costs.
  bool self_clocked = false;
};

struct AppendEffects {
  struct Append {
    int64_t at = 0;  // in the file
    std::string bytes;
  };
  std::optional<Append> data;
  std::optional<Append> index;
  // Flushed to the data file: may be shadowed as chunks. The view is valid until the core's next
  // call.
  struct Committed {
    int64_t at = 0;  // in the file
    std::string_view bytes;
  };
  std::optional<Committed> data_committed;
  // Flushed to the index file, which then covers `covered_data` bytes of data.
  std::optional<Append> index_committed;
  int64_t covered_data = 0;
  // To be acknowledged kDurable, in order.
  std::vector<Flush> durable;
};

class AppendCore {
 public:
  explicit AppendCore(AppendOptions options) : options_(options), roll_bytes_(options.roll_bytes) {}

  // From the open file on.
  void SetRollBytes(int64_t bytes) { roll_bytes_ = bytes; }

  // Takes messages behind those taken before.
  void Add(Batch batch);

  // A new, empty file that begins at these positions of the shard. What was appended to an earlier
  // file and not acknowledged is durable if it lies below, else it is appended again:
  // `out.durable` has the former. False, and nothing has changed: the positions contradict what is
  // known to be durable, or cut a message.
  bool Open(int64_t start_number, int64_t start_byte, AppendEffects& out);
  bool is_open() const { return file_ == FileState::kOpen || file_ == FileState::kHeld; }

  // Whether the cache has a quorum of all that is durable. Of use with self_clocked only.
  void SetCached(bool cached) { cached_ = cached; }
  // The same: flushes start so long after each other, at least.
  void SetPause(Duration pause) { pause_ = pause; }
  // Starts what may start now.
  void Next(MonotonicTime now, AppendEffects& out);
  // When Next would start a flush that waits for its interval only; Max: nothing does.
  MonotonicTime NextFlush() const;
  // How many more bytes may be Added late, when its next call is due: an append ends, or NextFlush
  // has come. Before that they would wait here. 0: the first message is to come at once.
  int64_t bytes_before_call() const {
    if (data_in_flight_) return options_.flush_bytes;
    if (waiting_.bytes.empty()) return 0;
    return std::max<int64_t>(0, options_.flush_bytes - static_cast<int64_t>(waiting_.bytes.size()));
  }
  // Everything taken so far is flushed without waiting for the interval (what a full file has no
  // room for, as soon as the next one is open).
  void FlushSoon() { flush_soon_ = !waiting_.messages.empty(); }
  // Of an open file. While held no data append is started; index appends are. For rolling over.
  void Hold(bool held);
  // The file has its roll_bytes: no data append is started until Open.
  bool full() const { return room() <= 0; }

  // Each append's end, in any order. After anything but kApplied the file is given up: nothing more
  // starts until Open.
  void OnData(storage::AppendOutcome outcome, AppendEffects& out);
  void OnIndex(storage::AppendOutcome outcome, AppendEffects& out);
  // The open file is given up for another reason (it could not be continued, the shard was lost).
  void GiveUp() { Enter(FileState::kGivenUp); }

  // Another opener owns the file: an append was refused. No other is opened.
  bool fenced() const { return file_ == FileState::kFenced; }

  // Nothing is appended that is not acknowledged; messages may wait.
  bool drained() const { return unacked_.empty(); }
  // No append is outstanding.
  bool quiet() const { return !data_in_flight_ && index_append_ != IndexAppend::kInFlight; }
  // Everything taken was appended or at least started.
  bool started() const { return waiting_.messages.empty(); }
  bool empty() const { return drained() && started(); }
  int64_t data_length() const { return data_started_; }   // bytes of the file, in flight included
  int64_t index_length() const { return index_done_; }    // bytes of the file, committed
  int64_t covered_data() const { return covered_data_; }  // bytes of the file, committed by index
  // Of the shard: messages and bytes before it are durable.
  int64_t durable_number() const { return durable_number_; }
  int64_t durable_byte() const { return durable_byte_; }
  int64_t buffered_bytes() const {
    return buffered_bytes_;
  }  // of messages that are not acknowledged
  int64_t unacknowledged() const { return unacknowledged_; }  // messages
  int64_t last_time_us() const { return last_time_us_; }      // of the newest durable message
  int64_t flushes() const { return flushes_; }
  int64_t republished() const { return republished_; }  // messages that were appended again

  // The end: takes out everything that is not acknowledged, in order, for reporting it lost.
  struct Lost {
    std::vector<Batch> unknown;  // appended, and may or may not be in the stream
    std::vector<Batch> failed;   // never appended, or fenced before an index record could cover it
  };
  Lost TakeAll();

 private:
  // The diagram above.
  enum class FileState : uint8_t { kNone, kOpen, kHeld, kGivenUp, kFenced, kEnded };
  // kUnknown: one may or may not have landed in this file.
  enum class IndexAppend : uint8_t { kNone, kInFlight, kUnknown };
  void Enter(FileState next);
  // An append of this file came to anything but kApplied.
  void Fail(storage::AppendOutcome outcome);

  // What a message of `bytes` takes, data and index.
  static int64_t Taken(int64_t bytes) { return bytes + stream::kIndexRecordSize; }
  int64_t room() const {
    return std::max<int64_t>(1, roll_bytes_) - data_started_ -
           (next_number_ - start_number_) * stream::kIndexRecordSize;
  }
  // What is durable ends at this position of the shard, or a message that was appended does.
  bool AtMessageBoundary(int64_t number, int64_t byte) const;
  // When what waits need wait no longer.
  MonotonicTime DueAt() const;
  Batch TakeForFile();  // of what waits, as much as the file has room for

  const AppendOptions options_;
  int64_t roll_bytes_;
  FileState file_ = FileState::kNone;
  bool cached_ = true;
  Duration pause_;
  bool flush_soon_ = false;    // what waits does not wait for the interval
  Batch waiting_;              // not appended
  std::deque<Flush> unacked_;  // appended to data, in order; the first `indexed_` also to the index
  size_t data_done_ = 0;       // of unacked_: data committed
  size_t indexed_ = 0;         // of unacked_: index append in flight
  bool data_in_flight_ = false;
  IndexAppend index_append_ = IndexAppend::kNone;
  std::string index_bytes_;  // of the append in flight
  MonotonicTime last_flush_ = MonotonicTime::FromMicros(INT64_MIN / 4);
  int64_t start_number_ = 0;
  int64_t start_byte_ = 0;
  int64_t data_started_ = 0;
  int64_t index_done_ = 0;
  int64_t covered_data_ = 0;
  int64_t next_number_ = 0;  // of the shard: number of the first waiting message
  int64_t durable_number_ = 0;
  int64_t durable_byte_ = 0;
  int64_t buffered_bytes_ = 0;
  int64_t unacknowledged_ = 0;
  int64_t last_time_us_ = 0;
  int64_t flushes_ = 0;
  int64_t republished_ = 0;
};

}  // namespace tailcast::producer
