#include "tailcast/cache/key_read_core.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::cache {

using layout::Location;

namespace {

FAULT_POINT(kSkipPayloadCheck, "cache.skip_payload_check",
            "payloads read from cache memory are not validated");
FAULT_POINT(kTrustLocation, "cache.trust_location",
            "a remembered location is believed without a look at the key");
FAULT_POINT(kSkipPrefixCheck, "cache.skip_prefix_check",
            "a suffix is appended to a chunk whatever the bytes before it are");

using State = KeyReadCore::State;
constexpr uint8_t Bit(State state) { return static_cast<uint8_t>(1u << static_cast<int>(state)); }
// By state: those that may follow it.
constexpr uint8_t kFollowers[] = {
    Bit(State::kBucket) | Bit(State::kEntry) | Bit(State::kRest) | Bit(State::kDone),
    Bit(State::kBucket) | Bit(State::kEntry) | Bit(State::kDone),
    Bit(State::kBucket) | Bit(State::kEntry) | Bit(State::kRest) | Bit(State::kDone),
    Bit(State::kBucket) | Bit(State::kEntry) | Bit(State::kDone),
    0,
};

}  // namespace

bool AppendValidated(ChunkRead& read, const ValidatedBytes& value) {
  const uint32_t have = std::max(read.have, read.length);
  const uint32_t end = std::min(value.length, read.capacity);
  if (end <= have) return true;
  const uint32_t known = have - value.from;
  if (Crc32cExtend(value.from_crc, value.bytes, known) != read.crc && !kSkipPrefixCheck.planted()) {
    return false;
  }
  const char* added = value.bytes + known;
  if (added != read.destination + have) std::memcpy(read.destination + have, added, end - have);
  read.crc = end == value.length ? value.crc : Crc32cExtend(read.crc, added, end - have);
  read.length = end;
  return true;
}

void CountBegun(ReadMode mode, ClientCounters& counters) {
  ++(mode == ReadMode::kAnyOne ? counters.reads_ahead : counters.reads);
  if (mode == ReadMode::kConsistent) ++counters.consistent_reads;
}

void CountEnded(const ChunkRead& read, ReadMode mode, ClientCounters& counters) {
  if (mode == ReadMode::kAnyOne) {
    if (read.length > read.have) ++counters.hits_ahead;
  } else if (read.length >= read.want) {
    ++counters.hits;
  } else if (read.length > read.have) {
    ++counters.short_reads;
  } else {
    ++counters.misses;
  }
}

KeyAnswer AnswerByRpc(ChunkRead* chunk, std::string_view value) {
  KeyAnswer answer;
  answer.outcome = KeyOutcome::kFound;
  answer.length = static_cast<uint32_t>(value.size());
  if (chunk == nullptr) return answer;
  const uint32_t had = std::max(chunk->have, chunk->length);
  if (!AppendValidated(*chunk, {0, 0, value.data(), answer.length, Crc32c(value)})) {
    answer.outcome = KeyOutcome::kContradicts;
  }
  answer.bytes_added = std::max(had, chunk->length) - had;
  return answer;
}

KeyReadCore::KeyReadCore(const layout::Geometry& geometry, int torn_retries_max, const Key& key,
                         ChunkRead* chunk, uint32_t room)
    : geometry_(geometry),
      torn_retries_max_(torn_retries_max),
      key_(key),
      chunk_(chunk),
      room_(room) {
  answer_.generation = geometry.generation;
  TakePrefix();
}

void KeyReadCore::Become(State state) {
  TAILCAST_CHECK((kFollowers[static_cast<int>(state_)] & Bit(state)) != 0,
                 "a key's read takes no such step");
  state_ = state;
}

// What the chunk has is not fetched again.
void KeyReadCore::TakePrefix() {
  if (chunk_ == nullptr) return;
  from_ = std::max(chunk_->have, chunk_->length);
  from_crc_ = chunk_->crc;
}

void KeyReadCore::Start(const Location* remembered, bool with_bucket) {
  TAILCAST_CHECK(remembered == nullptr || with_bucket || chunk_ != nullptr,
                 "a value may have moved: its bucket must be read too");
  request_ = {};
  request_.bucket = true;
  if (remembered == nullptr || !layout::LocationFits(*remembered, geometry_.data_bytes)) return;
  state_ = State::kRemembered;
  remembered_ = true;
  AskEntry(*remembered);
  request_.bucket = with_bucket;
}

void KeyReadCore::AskEntry(const Location& location) {
  request_ = {};
  request_.header = true;
  request_.entry = location.offset;
  request_.from = from_;
  request_.to = std::max(from_, std::min(location.length, room_));
}

void KeyReadCore::AskBucket() {
  Become(State::kBucket);
  remembered_ = current_ = have_bucket_ = false;
  request_ = {};
  request_.bucket = true;
}

void KeyReadCore::OnRead(const Memory& memory) {
  switch (state_) {
    case State::kBucket:
      if (!TakeBucket(memory.bucket)) return Torn();
      return NextWay(memory.bucket);
    case State::kRemembered:
      if (request_.bucket) {
        if (!TakeBucket(memory.bucket)) return Torn();
        uint32_t way = 0;
        const std::optional<Location> location = layout::FindInBucket(memory.bucket, key_, way);
        current_ = location.has_value() && location->offset == request_.entry;
        // Old bytes of a chunk are right bytes; an old value is old.
        if (chunk_ == nullptr && !current_) return Judge(Check::kTorn, memory);
      }
      return Judge(CheckHeader(memory), memory);
    case State::kEntry:
      return Judge(CheckHeader(memory), memory);
    case State::kRest:
      return Judge(CheckPayload(memory), memory);
    case State::kDone:
      TAILCAST_CHECK(false, "nothing was asked for");
  }
}

bool KeyReadCore::TakeBucket(const char* bucket) {
  layout::BucketHeader header;
  if (!layout::ParseBucket(bucket, header)) return false;
  answer_.saw_bucket = true;
  answer_.bucket = header;
  have_bucket_ = true;
  any_way_ = false;
  way_ = 0;
  return true;
}

KeyReadCore::Check KeyReadCore::CheckHeader(const Memory& memory) {
  layout::EntryHeader header;
  if (!layout::ParseEntryHeader(memory.header, key_, geometry_.generation, header)) {
    // The planted bug: a place that held the key once is believed to hold it still.
    if (!(kTrustLocation.planted() && remembered_ && header.length != 0)) return Check::kTorn;
  }
  if (!layout::LocationFits({request_.entry, header.length}, geometry_.data_bytes)) {
    return Check::kTorn;
  }
  length_ = header.length;
  payload_crc_ = header.payload_crc;
  return CheckPayload(memory);
}

KeyReadCore::Check KeyReadCore::CheckPayload(const Memory& memory) {
  if (length_ <= from_) return Check::kValid;
  if (length_ > request_.to) return Check::kGrew;
  const uint32_t crc = Crc32cExtend(from_crc_, memory.payload, length_ - from_);
  if (crc != payload_crc_ && !kSkipPayloadCheck.planted()) {
    DoubtPrefix();
    return Check::kTorn;
  }
  if (chunk_ == nullptr) return Check::kValid;
  const uint32_t had = std::max(chunk_->have, chunk_->length);
  if (!AppendValidated(*chunk_, {from_, from_crc_, memory.payload, length_, crc})) {
    return Check::kContradicts;
  }
  answer_.bytes_added += std::max(had, chunk_->length) - had;
  return Check::kValid;
}

void KeyReadCore::Judge(Check check, const Memory& memory) {
  switch (check) {
    case Check::kValid:
      // A shorter chunk may have moved on since: look it up. What was found stays found.
      if (!remembered_ || current_ || length_ >= chunk_->want) {
        answer_.length = length_;
        return Done(KeyOutcome::kFound);
      }
      TakePrefix();
      break;
    case Check::kGrew:
      Become(State::kRest);
      request_.bucket = request_.header = false;
      request_.from = length_ > room_ ? from_ : request_.to;
      request_.to = length_;
      return;
    case Check::kContradicts:
      answer_.length = length_;
      return Done(KeyOutcome::kContradicts);
    case Check::kTorn:
      break;
  }
  if (have_bucket_) {
    remembered_ = current_ = false;
    return NextWay(memory.bucket);
  }
  AskBucket();
}

void KeyReadCore::NextWay(const char* bucket) {
  while (const std::optional<Location> location = layout::FindInBucket(bucket, key_, way_)) {
    any_way_ = true;
    if (!layout::LocationFits(*location, geometry_.data_bytes)) continue;
    Become(State::kEntry);
    return AskEntry(*location);
  }
  if (any_way_) return Torn();
  Done((answer_.bucket.flags & layout::kFlagOverflow) != 0 ? KeyOutcome::kOverflowed
                                                           : KeyOutcome::kAbsent);
}

// What does not validate behind the reader's bytes is torn, or they are no prefix of it.
void KeyReadCore::DoubtPrefix() {
  if (chunk_ == nullptr || from_ == 0) return;
  const bool again = doubts_ > 0 && doubtful_length_ == length_ && doubtful_crc_ == payload_crc_;
  doubts_ = again ? doubts_ + 1 : 1;
  doubtful_length_ = length_;
  doubtful_crc_ = payload_crc_;
}

void KeyReadCore::Torn() {
  const bool last = torn_retries_ >= static_cast<uint32_t>(torn_retries_max_);
  if (doubts_ > (last ? 0u : 1u)) {
    // All of a value validates by itself: AppendValidated sees what it is to the reader's bytes.
    doubts_ = 0;
    from_ = from_crc_ = 0;
    return AskBucket();
  }
  if (last) return Done(KeyOutcome::kTorn);
  ++torn_retries_;
  AskBucket();
}

void KeyReadCore::Done(KeyOutcome outcome) {
  Become(State::kDone);
  answer_.outcome = outcome;
}

}  // namespace tailcast::cache
