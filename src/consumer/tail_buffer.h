// Contiguous memory for the bytes of one part of a file between what the user was given and what
// was read: chunks are read straight into it, so a message that spans chunks needs no copy.
//
//   base              consumed            end
//   | ... given ...   | read, not given   | room for the next chunks |
//                           |<- the partly filled last chunk: its check sum is kept, so that only
//                               its new suffix is read when it grows
//
// Bytes move to the front of the memory when the room runs out, unless they are pinned (the user
// holds views): then new memory is taken and the old one kept until Unpin.
//
// Invariant: [consumed, end) is validated and at() of it is valid until the next Prepare, or until
// Unpin if pinned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"

namespace tailcast::consumer {

class TailBuffer {
 public:
  explicit TailBuffer(int64_t capacity_min) : capacity_min_(capacity_min) {}

  // Nothing is buffered; the next byte to read is at `position`.
  void Reset(int64_t position, int64_t chunk_size) {
    if (pins_ && memory_ != nullptr)
      retired_.push_back({std::exchange(memory_, nullptr), capacity_});
    if (memory_ == nullptr) capacity_ = 0;
    chunk_size_ = chunk_size;
    base_ = ChunkStart(position);
    end_ = position;
    tail_valid_ = base_ == position;
    tail_crc_ = 0;
  }
  // Forgets what is at and beyond `position`, which is not before what is consumed.
  void Truncate(int64_t position) {
    if (position >= end_) return;
    end_ = position;
    tail_valid_ = ChunkStart(position) == position;
    tail_crc_ = 0;
  }
  // The chunk size became known: the last chunk's beginning is another one. A read that is under
  // way with the old one is given up, and what it still writes lands in memory that is not used any
  // more.
  void SetChunkSize(int64_t chunk_size, bool reading) {
    if (reading && memory_ != nullptr) {
      std::shared_ptr<char[]> memory(new char[static_cast<size_t>(capacity_)]);
      std::memcpy(memory.get(), memory_.get(), static_cast<size_t>(end_ - base_));
      if (pins_) retired_.push_back({std::move(memory_), capacity_});
      memory_ = std::move(memory);
    }
    chunk_size_ = chunk_size;
    tail_valid_ = ChunkStart(end_) == end_;
    tail_crc_ = 0;
  }

  // Makes room for [ChunkStart(end), want_end rounded up to a chunk) and returns where
  // ChunkStart(end) lies. Bytes before `consumed` may be lost. `room` is what may be written there.
  char* Prepare(int64_t consumed, int64_t want_end, int64_t* room) {
    const int64_t chunk = ChunkStart(end_);
    const int64_t base = std::min(consumed, chunk);
    const int64_t limit = ChunkStart(want_end + chunk_size_ - 1);
    const bool rewrites = !tail_valid_ && end_ > chunk;  // bytes before end_ are written again
    const bool usable = memory_ != nullptr && base_ <= base && !(pins_ && rewrites);
    // With next to nothing left, the front of the memory is the better place: it is used again and
    // again, and stays in the processor's caches.
    const bool nearly_empty = base > base_ && end_ - base <= chunk_size_;
    if (usable && limit - base_ <= capacity_ && (pins_ || !nearly_empty)) {
      // fits as it is
    } else if (usable && !pins_ && limit - base <= capacity_) {
      std::memmove(memory_.get(), memory_.get() + (base - base_), static_cast<size_t>(end_ - base));
      base_ = base;
    } else {
      int64_t capacity = std::max(capacity_min_, capacity_);
      while (capacity < limit - base) capacity *= 2;
      std::shared_ptr<char[]> memory = Take(capacity);
      const int64_t from = std::max(base, base_);
      if (memory_ != nullptr && end_ > from) {
        std::memcpy(memory.get() + (from - base), memory_.get() + (from - base_),
                    static_cast<size_t>(end_ - from));
      }
      if (pins_ && memory_ != nullptr) retired_.push_back({std::move(memory_), capacity_});
      memory_ = std::move(memory);
      capacity_ = capacity;
      base_ = base;
    }
    *room = limit - chunk;
    return memory_.get() + (chunk - base_);
  }
  // Bytes up to `end` were read after Prepare.
  void Extend(int64_t end, bool tail_valid, uint32_t tail_crc) {
    TAILCAST_CHECK(end >= end_ && end - base_ <= capacity_, "read outside the room");
    end_ = end;
    tail_valid_ = tail_valid;
    tail_crc_ = tail_crc;
  }

  const char* at(int64_t position) const { return memory_.get() + (position - base_); }
  int64_t end() const { return end_; }
  bool tail_valid() const { return tail_valid_; }
  uint32_t tail_crc() const { return tail_crc_; }
  int64_t ChunkStart(int64_t position) const { return position - position % chunk_size_; }
  // Keeps the memory while somebody else may write to it.
  std::shared_ptr<const void> owner() const { return memory_; }
  int64_t capacity() const { return capacity_; }

  void Pin() { pins_ = true; }
  void Unpin() {
    pins_ = false;
    if (!retired_.empty() && retired_.back().capacity == capacity_min_) {
      spare_ = std::move(retired_.back());
    }
    retired_.clear();
  }

 private:
  struct Memory {
    std::shared_ptr<char[]> bytes;
    int64_t capacity = 0;
  };
  // The spare one if it is as large and nobody writes to it: pages that the kernel gives anew it
  // has to clear first.
  std::shared_ptr<char[]> Take(int64_t capacity) {
    if (spare_.bytes.use_count() == 1 && spare_.capacity == capacity) {
      return std::exchange(spare_, {}).bytes;
    }
    return std::shared_ptr<char[]>(new char[static_cast<size_t>(capacity)]);
  }

  const int64_t capacity_min_;
  std::shared_ptr<char[]> memory_;
  int64_t capacity_ = 0;
  int64_t chunk_size_ = 1;
  int64_t base_ = 0;
  int64_t end_ = 0;
  bool tail_valid_ = true;
  uint32_t tail_crc_ = 0;
  bool pins_ = false;
  std::vector<Memory> retired_;
  Memory spare_;  // that was retired last, of capacity_min_
};

}  // namespace tailcast::consumer
