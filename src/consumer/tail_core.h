// The tail of a shard, between what its sources give and what the user gets: what to read next of
// which part from where, the checks that every message passes, and the step from file to file.
// Paper §2.4 Consumers, Figs 3, 5, 6.
//
//   NextFetch ──▶ a source reads into the buffer ──▶ OnFetched ──▶ Take ──▶ the user ──▶ Release
//       ▲                                                            │
//       └──────────── from the next source, what failed a check ◀────┘
//
// The life of a fetch, of each part:
//
//            NextFetch             a check failed below its bytes
//     none ───────────▶ under way ──────────────────────────────▶ obsolete
//      ▲                    │ OnFetched: bytes are kept               │ OnFetched: dropped
//      └────────────────────┴─────────────────────────────────────────┘
//        Open, SetChunkSize: given up; the owner sees to it that it is not answered
//
// Invariants (design rule "in order"): what Take gives, end to end, is what the files hold from the
// place on that Open named; a message is given only when its index record and its bytes passed
// their check sums and lie where the one before ended; nothing at or beyond the seal is given.
//
// Distrust: when bytes fail a check they are dropped, and up to there only sources behind the one
// that gave them are asked. When no source is left the tail has failed (DataLoss).
//
// A core: no clock, no I/O, one thread. Nothing is allocated for a message.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/consumer/agent_options.h"
#include "tailcast/consumer/counters.h"
#include "tailcast/consumer/file_place.h"
#include "tailcast/consumer/message.h"
#include "tailcast/consumer/rate_limiter.h"
#include "tailcast/consumer/source.h"
#include "tailcast/consumer/tail_buffer.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/position.h"
#include "tailcast/stream/range_reader.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::consumer {

class TailCore {
 public:
  struct Fetch {
    // Which of the sources reads it.
    size_t source = 0;
    // Its bytes failed a check when an earlier source gave them.
    bool distrusted = false;
    // With open limits: a source lowers them to what it has.
    stream::RangeRequest request;
  };

  // `options` and `counters` outlive this.
  TailCore(const AgentOptions& options, Counters& counters, stream::ShardId shard);

  // Goes on at a place of a file that is read from these sources, at most kSourcesMax, named as
  // Source::name does. Views that the user holds stay valid; no fetch is under way any more.
  void Open(const FilePlace& place, int64_t chunk_size, std::vector<std::string_view> sources);
  // The file's chunk size is another one. Fetches under way are given up.
  void SetChunkSize(int64_t chunk_size);
  // Where the file ends.
  void SetSeal(const stream::Seal& seal) { seal_ = seal; }

  // --- Bytes
  // What to read now of a part; nullopt: nothing, for now. `sources` are the sources' lengths of
  // that part, as many as Open said.
  std::optional<Fetch> NextFetch(MonotonicTime now, stream::Part part,
                                 std::span<const SourceLengths> sources);
  // The answer to NextFetch. True if there are more bytes than before.
  bool OnFetched(MonotonicTime now, stream::Part part, const stream::RangeResult& result);
  // Pauses (after a short read, for the rate limit) that are over end.
  void DoWork(MonotonicTime now);
  // When a pause ends; Max: there is none.
  MonotonicTime NextWork() const { return std::min(retry_at_, rate_at_); }

  // --- Messages
  // Take would give something, or finds out what is wrong.
  bool ready() const;
  // As ConsumerAgent::Take. Afterwards failure() says whether the tail goes on.
  size_t Take(std::vector<Message>& out, int64_t bytes_max);
  // The user is done with all views.
  void Release();

  // --- From file to file
  // Everything of the file was given, and no fetch is under way. May find a failure.
  bool Complete();
  // The place in the next file that follows a complete one. nullopt: a failure.
  std::optional<FilePlace> Follow(const stream::Stem& next);

  // Not ok: the tail has ended, as ConsumerAgent::status (DataLoss, InvalidArgument) says.
  const Status& failure() const { return failure_; }
  // Why the last fetch of what was said to be there gave less; ok once one gave all of it, or bytes
  // came that were read ahead.
  const Status& trouble() const;
  // Behind the last message given.
  stream::Position position() const;
  int64_t at(stream::Part part) const { return parts_[Index(part)].at; }
  // Bytes of the part that were read.
  int64_t end(stream::Part part) const { return parts_[Index(part)].buffer.end(); }
  bool fetching(stream::Part part) const { return parts_[Index(part)].fetch != FetchState::kNone; }

 private:
  enum class FetchState : uint8_t { kNone, kUnderWay, kObsolete };
  struct PartState {
    explicit PartState(int64_t buffer_bytes) : buffer(buffer_bytes) {}
    TailBuffer buffer;
    int64_t at = 0;  // given to the user up to here
    FetchState fetch = FetchState::kNone;
    int64_t asked_from = 0, wanted = 0;  // of the fetch under way
    MonotonicTime asked_at;
    bool ahead = false;  // nobody said that all of it is there
    // Of such bytes so many are asked for, but for the chunk's rest, as lately came at most in the
    // time from when there were no more to when the answer is to be expected, and a quarter; if all
    // of them were there, twice as many.
    MonotonicTime even_at;  // when that was asked for after which there were no more
    int64_t came = 0;       // since then, read ahead or known
    Duration answered_in;   // the last fetch was
    int64_t rate = 0;       // bytes in kRateSpan, lately at most
    bool in_vain = false;   // nothing came in the last such interval
    int64_t ahead_min = 0;
    // Below distrust_until sources before `trusted_source` are not asked.
    int64_t distrust_until = 0;
    size_t trusted_source = 0;
    std::bitset<kSourcesMax> asked_again;  // for bytes that failed
    Status trouble;
  };

  static int Index(stream::Part part) { return static_cast<int>(part); }
  PartState& data() { return parts_[0]; }
  PartState& index() { return parts_[1]; }
  const PartState& data() const { return parts_[0]; }
  const PartState& index() const { return parts_[1]; }
  int64_t SealOf(stream::Part part) const;
  int64_t AheadBytes(MonotonicTime now, const PartState& state) const;
  // The fetch under way, whose answer was not late, brought what there was, up to `end`.
  void OnAhead(PartState& state, int64_t end);
  // The bytes before `end` of what was read of the part, from what was given on, fail a check.
  void OnCorrupt(stream::Part part, int64_t end, std::string_view what);
  // Of those that were asked again.
  std::string SourceNames(const PartState& state) const;
  // The user's position is no message's beginning.
  void FailStart();
  // The place that was reached contradicts the seal.
  void FailEnd();
  void Fail(Status status);

  const AgentOptions& options_;
  Counters& counters_;
  const stream::ShardId shard_;
  RateLimiter rate_;
  int64_t window_;       // data bytes that a fetch asks for at most, now
  int late_in_row_ = 0;  // fetches of data, with something late
  PartState parts_[stream::kParts];
  stream::Stem stem_;
  int64_t chunk_size_ = 1;
  std::vector<std::string_view> sources_;  // their names
  std::optional<stream::Seal> seal_;
  std::optional<stream::Position> unverified_;
  Duration retry_;  // after a short read
  MonotonicTime retry_at_ = MonotonicTime::Max();
  MonotonicTime rate_at_ = MonotonicTime::Max();
  bool views_out_ = false;
  Status failure_;
};

}  // namespace tailcast::consumer
