#include "tailcast/reader/copy_core.h"

#include <algorithm>

#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::reader {

using stream::Layer;

namespace {

FAULT_POINT(kWholeChunksOnly, "reader.whole_chunks_only",
            "the beginning of a file's last chunk is not copied");

// What a peer may say at most, so that sums of such numbers do not overflow.
constexpr int64_t kLengthMax = INT64_MAX / 8;
constexpr int64_t kWindowBytesMax = int64_t{1} << 30;
bool IsLength(int64_t bytes) { return bytes >= 0 && bytes <= kLengthMax; }
bool IsWindow(int64_t bytes, int64_t chunk_size) {
  return bytes >= chunk_size && bytes <= kWindowBytesMax;
}
}  // namespace

CopyCore::CopyCore(CopyOptions options, Layer layer, int64_t chunk_size, bool fresh)
    : options_(options), layer_(layer), chunk_size_(chunk_size), may_read_(fresh) {
  TAILCAST_CHECK(chunk_size_ > 0 && options_.piece_bytes_max > 0 && options_.reads_max > 0);
}

Status CopyCore::OnSource(const SourceLengths& s) {
  if (s.seal[0] && source_.seal[0] &&
      (*s.seal[0] != *source_.seal[0] || *s.seal[1] != *source_.seal[1])) {
    return DataLossError("the source has two seals: (" + std::to_string(*source_.seal[0]) + ", " +
                         std::to_string(*source_.seal[1]) + ") and (" + std::to_string(*s.seal[0]) +
                         ", " + std::to_string(*s.seal[1]) + ")");
  }
  for (int p = 0; p < stream::kParts; ++p) {
    source_.cache[p] = std::max(source_.cache[p], s.cache[p]);
    source_.primary[p] = std::max(source_.primary[p], s.primary[p]);
    if (s.seal[p]) source_.seal[p] = s.seal[p];
  }
  source_.heartbeat_us = std::max(source_.heartbeat_us, s.heartbeat_us);
  MaybeJump();
  return OkStatus();
}

Status CopyCore::OnOpened(int64_t data_length, int64_t index_length, int64_t window_bytes) {
  if (opened_ || !IsLength(data_length) || !IsLength(index_length) ||
      !IsWindow(window_bytes, chunk_size_) ||
      (layer_ == Layer::kPrimary && index_length % stream::kIndexRecordSize != 0)) {
    return InvalidArgumentError("the writer opened with (" + std::to_string(data_length) + ", " +
                                std::to_string(index_length) + "), window " +
                                std::to_string(window_bytes) + (opened_ ? ", twice" : ""));
  }
  opened_ = true;
  may_read_ = true;
  SetWindow(window_bytes);
  const int64_t lengths[] = {data_length, index_length};
  for (int p = 0; p < stream::kParts; ++p) OnWritten(parts_[p], lengths[p]);
  MaybeJump();
  return OkStatus();
}

Status CopyCore::OnProgress(int64_t data_length, int64_t index_length, int64_t window_bytes) {
  if (window_bytes != 0 && !IsWindow(window_bytes, chunk_size_)) {
    return InvalidArgumentError("the writer's progress has a window of " +
                                std::to_string(window_bytes) + " bytes");
  }
  const int64_t lengths[] = {data_length, index_length};
  for (int p = 0; p < stream::kParts; ++p) {
    if (!opened_ || !IsLength(lengths[p])) {
      return InvalidArgumentError("the writer's progress is (" + std::to_string(data_length) +
                                  ", " + std::to_string(index_length) + ")" +
                                  (opened_ ? "" : " before it opened"));
    }
    OnWritten(parts_[p], lengths[p]);
  }
  if (window_bytes != 0) SetWindow(window_bytes);
  MaybeJump();
  return OkStatus();
}

void CopyCore::SetWindow(int64_t bytes) {
  window_bytes_ = bytes;
  window_most_ = std::max(window_most_, bytes);
}

void CopyCore::OnWritten(PartState& part, int64_t length) {
  part.written = std::max(part.written, length);
  // A cache operation goes on at a chunk's beginning.
  const int64_t start = layer_ == Layer::kCache ? ChunkStart(length) : length;
  part.next = std::max(part.next, start);
  part.sent = std::max(part.sent, start);
  while (!part.again.empty() && part.again.begin()->first < start) {
    const int64_t to = part.again.begin()->second;
    part.again.erase(part.again.begin());
    if (to > start) part.again[start] = to;
  }
}

int64_t CopyCore::available(Part which) const {
  const int p = static_cast<int>(which);
  int64_t end = layer_ == Layer::kPrimary ? source_.primary[p] : source_.cache[p];
  if (source_.seal[p]) {
    // A closed file may be taken from either layer: nothing waits for anything any more.
    if (layer_ == Layer::kCache && source_.primary[p] >= *source_.seal[p]) end = *source_.seal[p];
    end = std::min(end, *source_.seal[p]);
  }
  if (which == Part::kIndex) end -= end % stream::kIndexRecordSize;
  if (kWholeChunksOnly.planted()) end -= end % chunk_size_;
  return end;
}

void CopyCore::MaybeJump() {
  if (layer_ != Layer::kCache || !opened_) return;
  for (int p = 0; p < stream::kParts; ++p) {
    PartState& part = parts_[p];
    const int64_t end = available(static_cast<Part>(p));
    if (end - part.written <= window_most_ + options_.jump_bytes) continue;
    // The primary downstream may be as far behind: asked again when there is news enough.
    if (end + part.written < part.ask_again) continue;
    part.ask_again = end + part.written + options_.jump_bytes / 2;
    part.jump = ChunkStart(end);
  }
}

std::optional<CopyCore::Read> CopyCore::NextRead() {
  if (!may_read_) return std::nullopt;
  const int reads_max = layer_ == Layer::kCache ? options_.reads_max : stream::kParts;
  if (static_cast<int>(reads_.size()) >= reads_max) return std::nullopt;
  for (int p = 0; p < stream::kParts; ++p) {
    PartState& part = parts_[p];
    if (layer_ == Layer::kPrimary && part.reading > 0) continue;
    // Each part gets its share of the reads, so that neither starves the other.
    if (part.reading > 0 && part.reading >= std::max(1, reads_max / 2)) continue;
    int64_t from;
    int64_t to;
    if (!part.again.empty()) {
      from = part.again.begin()->first;
      to = part.again.begin()->second;
      part.again.erase(part.again.begin());
    } else {
      from = part.next;
      to = std::min({available(static_cast<Part>(p)), part.written + window_bytes_,
                     from + options_.piece_bytes_max});
      if (to <= from) continue;
      part.next = to;
    }
    ++part.reading;
    Read read{next_read_++, static_cast<Part>(p), from, to, source_.cache[p], source_.primary[p]};
    reads_[read.id] = read;
    return read;
  }
  return std::nullopt;
}

std::optional<int64_t> CopyCore::OnReadDone(uint64_t id, int64_t end) {
  const auto it = reads_.find(id);
  if (it == reads_.end()) return std::nullopt;
  const Read read = it->second;
  reads_.erase(it);
  PartState& part = parts_[static_cast<int>(read.part)];
  --part.reading;
  const int64_t base = layer_ == Layer::kCache ? ChunkStart(part.written) : part.written;
  end = std::min(std::max(end, read.from), read.to);
  if (read.to <= base) return std::nullopt;
  if (end < read.to) part.again[std::max(end, base)] = read.to;
  if (end <= base || end <= read.from) return std::nullopt;
  part.sent = std::max(part.sent, end);
  return read.from;
}

std::optional<CopyCore::Jump> CopyCore::TakeJump() {
  for (int p = 0; p < stream::kParts; ++p) {
    if (!parts_[p].jump) continue;
    const Jump jump{static_cast<Part>(p), *parts_[p].jump};
    parts_[p].jump.reset();
    return jump;
  }
  return std::nullopt;
}

std::optional<CopyCore::Lengths> CopyCore::TakeSeal() {
  if (seal_told_ || !source_.seal[0]) return std::nullopt;
  seal_told_ = true;
  return Lengths{0, {*source_.seal[0], *source_.seal[1]}};
}

std::optional<CopyCore::Lengths> CopyCore::TakeHeartbeat() {
  if (source_.heartbeat_us <= heartbeat_told_us_) return std::nullopt;
  Lengths lengths{source_.heartbeat_us, {available(Part::kData), available(Part::kIndex)}};
  for (int p = 0; p < stream::kParts; ++p) {
    if (parts_[p].sent < lengths.length[p]) return std::nullopt;
  }
  heartbeat_told_us_ = source_.heartbeat_us;
  return lengths;
}

int64_t CopyCore::SentWhole(Part which) const {
  const PartState& part = parts_[static_cast<int>(which)];
  int64_t end = part.next;
  if (!part.again.empty()) end = std::min(end, part.again.begin()->first);
  for (const auto& [id, read] : reads_) {
    if (read.part == which) end = std::min(end, read.from);
  }
  return end;
}

CopyCore::Turn CopyCore::in_the_way() const {
  Turn turn = Turn::kNobodys;
  for (int p = 0; p < stream::kParts; ++p) {
    const PartState& part = parts_[p];
    const int64_t have = available(static_cast<Part>(p));
    if (have <= part.written) continue;
    if (!opened_) return Turn::kWriters;
    const bool room = part.next < std::min(have, part.written + window_bytes_);
    if (part.reading > 0 || !part.again.empty() || room) return Turn::kSources;
    turn = Turn::kWriters;
  }
  return turn;
}

CopyCore::Turn CopyCore::turn(Part part) const {
  if (!opened_ || SentWhole(part) > written(part)) return Turn::kWriters;
  return available(part) > written(part) ? Turn::kSources : Turn::kNobodys;
}

}  // namespace tailcast::reader
