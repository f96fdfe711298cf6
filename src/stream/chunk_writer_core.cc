#include "tailcast/stream/chunk_writer_core.h"

#include <algorithm>
#include <cstring>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::stream {
namespace {

FAULT_POINT(kHoleIsPrefix, "stream.hole_is_prefix",
            "a chunk whose beginning has not come is written as if it had");

}  // namespace

ChunkWriterCore::ChunkWriterCore(ChunkWriterOptions options, int64_t position) : options_(options) {
  TAILCAST_CHECK(options_.chunk_size > 0 && position >= 0);
  options_.window_bytes = std::max(options_.window_bytes, options_.chunk_size);
  start_ = written_end_ = received_end_ = ChunkOf(position) * options_.chunk_size;
}

int64_t ChunkWriterCore::Chunk::prefix() const {
  if (ranges.empty() || (ranges.begin()->first != 0 && !kHoleIsPrefix.planted())) return 0;
  return ranges.begin()->second;
}

bool ChunkWriterCore::Contradicts(int64_t position, std::string_view bytes) const {
  const int64_t end = position + static_cast<int64_t>(bytes.size());
  for (auto it = chunks_.lower_bound(ChunkOf(position)); it != chunks_.end(); ++it) {
    const int64_t base = it->first * options_.chunk_size;
    if (base >= end) break;
    const Chunk& chunk = it->second;
    if (chunk.bytes.empty()) continue;  // whole and written: its bytes are gone
    for (const auto& [range_begin, range_end] : chunk.ranges) {
      const int64_t from = std::max(position, base + range_begin);
      const int64_t to = std::min(end, base + range_end);
      if (from < to &&
          std::memcmp(bytes.data() + (from - position), chunk.bytes.data() + (from - base),
                      static_cast<size_t>(to - from)) != 0) {
        return true;
      }
    }
  }
  return false;
}

ChunkWriterCore::AddOutcome ChunkWriterCore::Add(int64_t position, std::string_view bytes) {
  TAILCAST_CHECK(position >= 0);
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size > INT64_MAX - position) return AddOutcome::kFull;
  const int64_t end = position + size;
  if (end <= start_ || size == 0) return AddOutcome::kAlready;
  if (end - ChunkOf(written_end_) * options_.chunk_size >
      options_.window_bytes + options_.chunk_size) {
    return AddOutcome::kFull;
  }
  if (Contradicts(position, bytes)) return AddOutcome::kConflict;

  // Chunks before the one of written_end_ are whole and written.
  const int64_t first = ChunkOf(written_end_) * options_.chunk_size;
  if (position < first) {
    if (end <= first) return AddOutcome::kAlready;
    bytes.remove_prefix(static_cast<size_t>(first - position));
    position = first;
  }
  bool any_new = false;
  while (!bytes.empty()) {
    const int64_t chunk = ChunkOf(position);
    const int64_t begin = position - chunk * options_.chunk_size;
    const int64_t n =
        std::min<int64_t>(static_cast<int64_t>(bytes.size()), options_.chunk_size - begin);
    AddToChunk(chunk, begin, bytes.substr(0, static_cast<size_t>(n)), &any_new);
    bytes.remove_prefix(static_cast<size_t>(n));
    position += n;
  }
  if (!any_new) return AddOutcome::kAlready;
  Advance();
  return AddOutcome::kTaken;
}

void ChunkWriterCore::AddToChunk(int64_t number, int64_t begin, std::string_view bytes,
                                 bool* any_new) {
  Chunk& chunk = chunks_[number];
  int64_t end = begin + static_cast<int64_t>(bytes.size());
  // Merge [begin, end) into the ranges.
  auto it = chunk.ranges.upper_bound(begin);
  if (it != chunk.ranges.begin() && std::prev(it)->second >= begin) --it;
  int64_t merged_begin = begin;
  int64_t merged_end = end;
  int64_t known = 0;  // bytes of [begin, end) that were received before
  while (it != chunk.ranges.end() && it->first <= merged_end) {
    known += std::max<int64_t>(0, std::min(end, it->second) - std::max(begin, it->first));
    merged_begin = std::min(merged_begin, it->first);
    merged_end = std::max(merged_end, it->second);
    it = chunk.ranges.erase(it);
  }
  chunk.ranges[merged_begin] = merged_end;
  if (known == end - begin) return;
  *any_new = true;
  chunk.received += end - begin - known;
  pending_bytes_ += end - begin - known;
  if (static_cast<int64_t>(chunk.bytes.size()) < end) {
    if (chunk.bytes.empty()) {
      chunk.bytes.reserve(static_cast<size_t>(options_.chunk_size));
      buffered_bytes_ += options_.chunk_size;
    }
    chunk.bytes.resize(static_cast<size_t>(end));
  }
  std::memcpy(chunk.bytes.data() + begin, bytes.data(), bytes.size());
  MarkReady(number, chunk);
}

void ChunkWriterCore::MarkReady(int64_t number, Chunk& chunk) {
  // Serialised per chunk: the next value waits for the answer to the one before.
  if (chunk.ready || chunk.in_flight > 0 || chunk.prefix() <= chunk.written) return;
  chunk.ready = true;
  ready_.insert(number);
}

void ChunkWriterCore::TakeWrites(int64_t bytes_max, std::vector<ChunkWrite>* out) {
  int64_t taken = 0;
  while (!ready_.empty() && taken < bytes_max) {
    const int64_t number = *ready_.begin();
    ready_.erase(ready_.begin());
    Chunk& chunk = chunks_.at(number);
    chunk.ready = false;
    chunk.in_flight = chunk.prefix();
    ++outstanding_;
    taken += chunk.in_flight;
    out->push_back({number, chunk.bytes.substr(0, static_cast<size_t>(chunk.in_flight))});
  }
}

bool ChunkWriterCore::OnWritten(int64_t number, int64_t length, bool ok) {
  const auto it = chunks_.find(number);
  if (it == chunks_.end() || it->second.in_flight != length || length <= 0) return false;
  Chunk& chunk = it->second;
  chunk.in_flight = 0;
  --outstanding_;
  if (ok) {
    pending_bytes_ -= length - chunk.written;
    chunk.written = length;
    if (length == options_.chunk_size) {
      buffered_bytes_ -= options_.chunk_size;
      std::string().swap(chunk.bytes);
    }
  }
  MarkReady(number, chunk);
  Advance();
  return true;
}

void ChunkWriterCore::Advance() {
  // written_end: over whole and written chunks, then into the first that is not.
  while (!chunks_.empty()) {
    const auto it = chunks_.begin();
    if (it->first != ChunkOf(written_end_)) break;
    const int64_t base = it->first * options_.chunk_size;
    written_end_ = std::max(written_end_, base + it->second.written);
    if (it->second.written < options_.chunk_size) break;
    chunks_.erase(it);
  }
  received_end_ = std::max(received_end_, written_end_);
  for (auto it = chunks_.lower_bound(ChunkOf(received_end_)); it != chunks_.end(); ++it) {
    const int64_t base = it->first * options_.chunk_size;
    if (base > received_end_) break;
    received_end_ = std::max(received_end_, base + it->second.prefix());
    if (it->second.prefix() < options_.chunk_size) break;
  }
}

bool ChunkWriterCore::idle() const {
  if (chunks_.empty()) return true;
  if (chunks_.size() > 1) return false;
  const Chunk& chunk = chunks_.begin()->second;
  return chunk.ranges.size() == 1 && chunk.prefix() == chunk.written && chunk.prefix() > 0;
}

void ChunkWriterCore::JumpTo(int64_t position) {
  const int64_t base = ChunkOf(position) * options_.chunk_size;
  if (base <= ChunkOf(written_end_) * options_.chunk_size) return;
  while (!chunks_.empty() && chunks_.begin()->first * options_.chunk_size < base) {
    const auto it = chunks_.begin();
    if (it->second.in_flight > 0) --outstanding_;
    if (!it->second.bytes.empty()) buffered_bytes_ -= options_.chunk_size;
    pending_bytes_ -= it->second.received - it->second.written;
    ready_.erase(it->first);
    chunks_.erase(it);
  }
  start_ = base;
  written_end_ = base;
  received_end_ = std::max(received_end_, base);
  Advance();
}

}  // namespace tailcast::stream
