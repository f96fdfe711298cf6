#include "tailcast/consumer/tail_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::consumer {

using stream::IndexRecord;
using stream::kIndexRecordSize;
using stream::Part;

namespace {

FAULT_POINT(kSkipPayloadCheck, "consumer.skip_payload_check",
            "payloads are given without their check sum");
FAULT_POINT(kSkipRecordAtRollOver, "consumer.skip_record_at_roll_over",
            "the next file is begun at its second record");
FAULT_POINT(kKeepViewsUnpinned, "consumer.keep_views_unpinned",
            "memory that the user has views of is written again");
FAULT_POINT(kDeliverOverHole, "consumer.deliver_over_hole",
            "payload bytes that the cache lacks are not read, but given");

constexpr int64_t kIndexWindowBytes = 64 << 10;
// Of data: the window becomes half when the cache is late, but not less than this, as few bytes
// cost nearly what many do; and a sixteenth more with each fetch that is not late.
constexpr int64_t kWindowMin = 512 << 10;
constexpr int64_t kWindowGrows = 16;
// After so many late fetches of data in a row what is late again is left for the primary layer.
constexpr int kLateInRowMax = 3;
constexpr Duration kRetryMin = Duration::Millis(2);
// Who has not read ahead for longer begins with a chunk.
constexpr Duration kRateSpan = Duration::Seconds(1);
// Less says of a flush when it came, not how fast they come.
constexpr Duration kRateSpanMin = Duration::Millis(10);

std::string_view PartName(Part part) { return part == Part::kData ? "data" : "index"; }

}  // namespace

TailCore::TailCore(const AgentOptions& options, Counters& counters, stream::ShardId shard)
    : options_(options),
      counters_(counters),
      shard_(std::move(shard)),
      rate_(options.rate_bytes_per_s, options.rate_burst_bytes),
      window_(options.window_bytes),
      parts_{PartState(options.window_bytes * 2), PartState(kIndexWindowBytes * 2)} {}

void TailCore::Open(const FilePlace& place, int64_t chunk_size,
                    std::vector<std::string_view> sources) {
  TAILCAST_CHECK(!sources.empty() && sources.size() <= kSourcesMax);
  stem_ = place.stem;
  chunk_size_ = chunk_size;
  sources_ = std::move(sources);
  seal_.reset();
  unverified_ = place.unverified;
  retry_ = Duration();
  retry_at_ = rate_at_ = MonotonicTime::Max();
  for (Part part : {Part::kData, Part::kIndex}) {
    PartState& state = parts_[Index(part)];
    state.at = place.at[Index(part)];
    state.buffer.Reset(state.at, chunk_size);
    state.ahead_min = 0;
    state.fetch = FetchState::kNone;
    state.distrust_until = 0;
  }
}

void TailCore::SetChunkSize(int64_t chunk_size) {
  chunk_size_ = chunk_size;
  for (PartState& state : parts_) {
    state.buffer.SetChunkSize(chunk_size, state.fetch != FetchState::kNone);
    state.fetch = FetchState::kNone;
  }
}

int64_t TailCore::SealOf(Part part) const { return seal_ ? seal_->length[Index(part)] : INT64_MAX; }

// --- Bytes

std::optional<TailCore::Fetch> TailCore::NextFetch(MonotonicTime now, Part part,
                                                   std::span<const SourceLengths> sources) {
  PartState& state = parts_[Index(part)];
  if (state.fetch != FetchState::kNone || NextWork() != MonotonicTime::Max()) return std::nullopt;
  TailBuffer& buffer = state.buffer;
  const int64_t end = buffer.end();
  int64_t window = part == Part::kData ? window_ : kIndexWindowBytes;
  int64_t needed = state.at + (part == Part::kIndex ? kIndexRecordSize : 1);
  if (part == Part::kData && index().buffer.end() >= index().at + kIndexRecordSize) {
    // A message larger than the window has to fit as a whole.
    if (const auto record = IndexRecord::Decode(index().buffer.at(index().at));
        record && record->length <= options_.message_bytes_max) {
      window = std::max<int64_t>(window, record->length);
      needed = record->end();
    }
  }
  int64_t to = state.at + window;
  // Small top-ups of a window that is nearly full are not worth a fetch.
  if (end >= needed && end >= to - window / 4) return std::nullopt;
  Fetch fetch;
  fetch.distrusted = end < state.distrust_until;
  if (fetch.distrusted) {
    fetch.source = state.trusted_source;
    to = std::min(to, state.distrust_until);
  }
  const auto limit = [&] {
    const SourceLengths& source = sources[fetch.source];
    return fetch.distrusted ? source.known : source.allowed;
  };
  while (fetch.source < sources.size() && limit() <= end) ++fetch.source;
  int64_t known = end;
  if (fetch.source == sources.size()) {
    if (fetch.distrusted) return std::nullopt;
    fetch.source = 0;
    while (fetch.source < sources.size() && sources[fetch.source].perhaps <= end) ++fetch.source;
    if (fetch.source == sources.size()) return std::nullopt;
  } else {
    known = limit();
  }
  const int64_t perhaps = fetch.distrusted ? 0 : sources[fetch.source].perhaps;
  bool ahead = known < std::min(to, perhaps);
  if (ahead) {
    to = std::min({to, perhaps,
                   buffer.ChunkStart(std::max(known, end + AheadBytes(now, state))) + chunk_size_});
  } else {
    to = std::min(to, known);
  }
  if (part == Part::kData) {
    const int64_t available = rate_.Available(now);
    if (ahead && known > end && available < to - end) {  // what is known waits for nothing else
      ahead = false;
      to = std::min(to, known);
    }
    if (available < std::min(to - end, chunk_size_)) {
      if (ahead) return std::nullopt;  // perhaps there is nothing to wait for
      ++counters_.rate_limited;
      rate_at_ = now + rate_.Wait(std::min(to - end, options_.window_bytes / 4));
      return std::nullopt;
    }
    if (available < to - end) to = end + available;
  }
  stream::RangeRequest& request = fetch.request;
  request.from = end;
  request.to = to;
  request.cache_limit = INT64_MAX;
  request.primary_limit = kDeliverOverHole.planted() && part == Part::kData ? 0 : INT64_MAX;
  request.destination = buffer.Prepare(state.at, to, &request.room);
  request.owner = buffer.owner();
  request.prefix_valid = buffer.tail_valid();
  request.prefix_crc = buffer.tail_crc();
  // A chunk may be longer than its published length, never longer than the seal.
  request.room = std::min(request.room, std::max(to, std::min(SealOf(part), to + chunk_size_)) -
                                            buffer.ChunkStart(end));
  request.ahead = ahead;
  request.late_is_short = part == Part::kIndex || late_in_row_ < kLateInRowMax;
  if (fetch.distrusted) state.asked_again.set(fetch.source);
  state.fetch = FetchState::kUnderWay;
  state.asked_from = end;
  state.wanted = to;
  state.asked_at = now;
  state.ahead = ahead;
  ++counters_.fetches;
  return fetch;
}

bool TailCore::OnFetched(MonotonicTime now, Part part, const stream::RangeResult& result) {
  PartState& state = parts_[Index(part)];
  TAILCAST_CHECK(state.fetch != FetchState::kNone, "nothing was asked for");
  counters_.cache_bytes += result.cache_bytes;
  counters_.primary_bytes += result.primary_bytes;
  counters_.short_chunks += result.short_chunks;
  counters_.missing_chunks += result.missing_chunks;
  if (!result.primary_error.ok() && !IsNotFound(result.primary_error)) ++counters_.primary_errors;
  if (part == Part::kData) {
    rate_.Spend(result.cache_bytes + result.primary_bytes);
    if (result.late_chunks > 0) {
      ++late_in_row_;
      window_ = std::min(std::max(window_ / 2, kWindowMin), options_.window_bytes);
    } else {
      late_in_row_ = 0;
      if (!state.ahead || result.end >= state.wanted) {
        window_ = std::min(window_ + window_ / kWindowGrows, options_.window_bytes);
      }
    }
  }
  // The fetch went on from bytes that were dropped meanwhile.
  if (std::exchange(state.fetch, FetchState::kNone) == FetchState::kObsolete) return false;
  bool progress = false;
  if (kDeliverOverHole.planted() && part == Part::kData && result.end < state.wanted) {
    state.buffer.Extend(state.wanted, false, 0);
  } else if (result.end > state.buffer.end()) {
    state.buffer.Extend(result.end, result.tail_valid, result.tail_crc);
    progress = true;
  }
  const bool late = progress && result.late_chunks > 0 && result.primary_error.ok();
  state.came += std::max<int64_t>(0, result.end - state.asked_from);
  state.answered_in = now - state.asked_at;
  if (state.ahead && result.late_chunks == 0) OnAhead(state, result.end);
  if (!state.ahead && result.end < state.wanted && !late) {
    state.trouble = result.primary_error;
    ++counters_.short_reads;
    retry_ = std::min(std::max(kRetryMin, retry_ * 2), options_.poll);
    retry_at_ = now + retry_;
  } else if (!state.ahead || progress) {
    state.trouble = OkStatus();
    retry_ = Duration();
  }
  return progress;
}

int64_t TailCore::AheadBytes(MonotonicTime now, const PartState& state) const {
  if (now - state.even_at > kRateSpan) return state.ahead_min;
  const int64_t us = (now - state.even_at + state.answered_in).micros();
  const int64_t usual = state.rate * us / kRateSpan.micros() * 5 / 4 - state.came;
  return std::min(std::max(usual, state.ahead_min), options_.window_bytes);
}

void TailCore::OnAhead(PartState& state, int64_t end) {
  if (end >= state.wanted) {
    state.ahead_min =
        std::min((state.wanted - state.asked_from) * 2 + chunk_size_, options_.window_bytes);
    return;
  }
  state.ahead_min = 0;
  const Duration span = state.asked_at - state.even_at;
  if (span < kRateSpanMin) return;
  const bool first = state.even_at == MonotonicTime();
  // Nothing may say that the file has ended; twice in a row it says that less comes.
  const bool in_vain = state.came == 0;
  if (in_vain) {
    if (state.in_vain) state.rate = state.rate * 3 / 4;
  } else if (!first) {
    const int64_t most = options_.window_bytes * (kRateSpan.micros() / kRateSpanMin.micros());
    const int64_t rate = state.came * kRateSpan.micros() / span.micros();
    state.rate = std::min(std::max(state.rate * 7 / 8, rate), most);
  }
  state.in_vain = in_vain;
  state.even_at = state.asked_at;
  state.came = 0;
}

void TailCore::DoWork(MonotonicTime now) {
  if (now >= retry_at_) retry_at_ = MonotonicTime::Max();
  if (now >= rate_at_) rate_at_ = MonotonicTime::Max();
}

// --- Messages

bool TailCore::ready() const {
  if (index().buffer.end() < index().at + kIndexRecordSize) return false;
  const auto record = IndexRecord::Decode(index().buffer.at(index().at));
  if (!record || record->offset != data().at) return true;  // Take finds out what is wrong
  return record->length > options_.message_bytes_max || data().buffer.end() >= record->end();
}

size_t TailCore::Take(std::vector<Message>& out, int64_t bytes_max) {
  if (!failure_.ok()) return 0;
  // Copies, which the compiler need not write back for each message.
  int64_t data_at = data().at, index_at = index().at;
  const TailBuffer& payloads = data().buffer;
  const TailBuffer& records = index().buffer;
  const int64_t seal = SealOf(Part::kData);
  size_t count = 0;
  int64_t bytes = 0;
  Part corrupt_part = Part::kIndex;
  int64_t corrupt_end = 0;
  std::string_view corrupt;  // what is wrong
  while (bytes < bytes_max && records.end() >= index_at + kIndexRecordSize) {
    const auto record = IndexRecord::Decode(records.at(index_at));
    if (!record) {
      corrupt = "a record fails its check sum";
      corrupt_end = index_at + kIndexRecordSize;
      break;
    }
    if (kSkipRecordAtRollOver.planted() && data_at == 0 && index_at == kIndexRecordSize) {
      data_at = record->offset;
    }
    if (record->offset != data_at || record->length > options_.message_bytes_max ||
        record->end() > seal) {
      if (unverified_ && count == 0) {
        FailStart();
        break;
      }
      corrupt = "a record does not continue the one before it";
      corrupt_end = index_at + kIndexRecordSize;
      break;
    }
    if (payloads.end() < record->end()) break;
    std::string_view payload(payloads.at(record->offset), record->length);
    if (Crc32c(payload) != record->crc && !kSkipPayloadCheck.planted() &&
        !kDeliverOverHole.planted()) {
      corrupt = "a payload fails its check sum";
      corrupt_part = Part::kData;
      corrupt_end = record->end();
      break;
    }
    std::optional<stream::Headers> headers = stream::Headers();
    if (record->headers_length > 0) {
      headers = stream::Headers::Decode(payload.substr(0, record->headers_length));
      payload.remove_prefix(record->headers_length);
    }
    if (!headers) {
      // Its check sum is right: every layer and every cell has the same.
      Fail(DataLossError(stream::FileName(stem_, Part::kData) + ": message " +
                         std::to_string(stem_.start_number + index_at / kIndexRecordSize) +
                         " of the shard has headers that can't be read; its producer wrote them "
                         "so: begin behind that message"));
      break;
    }
    out.push_back({.payload = payload,
                   .number = stem_.start_number + index_at / kIndexRecordSize,
                   .byte = stem_.start_byte + record->offset,
                   .time_us = record->time_us,
                   .shard = shard_.shard,
                   .headers = *headers});
    index_at += kIndexRecordSize;
    data_at = record->end();
    bytes += record->length;
    ++count;
  }
  data().at = data_at;
  index().at = index_at;
  counters_.messages += static_cast<int64_t>(count);
  counters_.bytes += bytes;
  if (count > 0) {
    unverified_.reset();
    views_out_ = true;
    if (!kKeepViewsUnpinned.planted()) {
      for (PartState& state : parts_) state.buffer.Pin();
    }
  }
  if (!corrupt.empty()) OnCorrupt(corrupt_part, corrupt_end, corrupt);
  return count;
}

void TailCore::Release() {
  if (!std::exchange(views_out_, false)) return;
  for (PartState& state : parts_) state.buffer.Unpin();
}

void TailCore::OnCorrupt(Part part, int64_t end, std::string_view what) {
  PartState& state = parts_[Index(part)];
  const bool again = end <= state.distrust_until;
  const size_t next = again ? state.trusted_source + 1 : 1;
  if (!again) state.asked_again.reset();
  if (next >= sources_.size()) {
    Fail(DataLossError(stream::FileName(stem_, part) + ": " + std::string(what) + " at byte " +
                       std::to_string(state.at) + " of the " + std::string(PartName(part)) +
                       " file" + SourceNames(state) + " (message " +
                       std::to_string(position().number) +
                       " of the shard); `tailcast repair` has it copied again from the cell "
                       "above, or begin behind that message"));
    return;
  }
  state.trusted_source = next;
  state.distrust_until = state.buffer.end();
  if (state.fetch == FetchState::kUnderWay) state.fetch = FetchState::kObsolete;
  state.buffer.Truncate(state.at);
}

std::string TailCore::SourceNames(const PartState& state) const {
  std::string names;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (state.asked_again.test(i)) names.append(names.empty() ? "" : ", ").append(sources_[i]);
  }
  return names.empty() ? ", whose only source is " + std::string(sources_.front())
                       : ", also in what was read again from: " + names;
}

void TailCore::FailStart() {
  Fail(InvalidArgumentError("position " + unverified_->ToString() +
                            " is not the beginning of a message"));
}

void TailCore::FailEnd() {
  if (unverified_) {
    FailStart();
    return;
  }
  Fail(DataLossError("file " + std::to_string(stem_.seq) + " ends at data byte " +
                     std::to_string(seal_->length[0]) + ", but its records end at " +
                     std::to_string(data().at)));
}

void TailCore::Fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

// --- From file to file

bool TailCore::Complete() {
  if (!seal_ || !failure_.ok()) return false;
  if (index().at < seal_->length[1] || fetching(Part::kData) || fetching(Part::kIndex)) {
    return false;
  }
  if (index().at > seal_->length[1] || data().at == seal_->length[0]) return true;
  FailEnd();
  return false;
}

std::optional<FilePlace> TailCore::Follow(const stream::Stem& next) {
  TAILCAST_CHECK(seal_.has_value(), "the file before is not complete");
  FilePlace place;
  place.stem = next;
  if (kSkipRecordAtRollOver.planted()) {
    place.at[1] = kIndexRecordSize;
    return place;
  }
  // Not 0 only behind a user's position that lies beyond this file.
  place.at[0] = data().at - seal_->length[0];
  place.at[1] = index().at - seal_->length[1];
  place.unverified = unverified_;
  if (place.at[0] < 0) {
    FailEnd();
    return std::nullopt;
  }
  return place;
}

const Status& TailCore::trouble() const {
  return data().trouble.ok() ? index().trouble : data().trouble;
}

stream::Position TailCore::position() const {
  return {shard_.stream.incarnation, shard_.shard,
          stem_.start_number + index().at / kIndexRecordSize, stem_.start_byte + data().at};
}

}  // namespace tailcast::consumer
