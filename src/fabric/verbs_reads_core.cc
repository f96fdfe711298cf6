#include "tailcast/fabric/verbs_reads_core.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/fabric/verbs_wire.h"

namespace tailcast::fabric {
namespace {

constexpr uint64_t kArenaAlignment = 64;  // a cache line

// A read is sent with the words whole that its ends are in: whoever copies them takes them at once.
uint64_t WordBegin(const ReadDescriptor& read) { return read.offset & ~uint64_t{7}; }
uint32_t WordBytes(const ReadDescriptor& read) {
  return static_cast<uint32_t>(((read.offset + read.length + 7) & ~uint64_t{7}) - WordBegin(read));
}

}  // namespace

VerbsReadsCore::VerbsReadsCore(Options options, std::span<char> arena)
    : options_(std::move(options)), arena_(arena), heartbeat_(options_.beat_timeout) {
  TAILCAST_CHECK(arena.size() >= kArenaBytesMin && options_.works_max >= 2,
                 "a reader with room for no read");
}

uint32_t VerbsReadsCore::control_bytes() const {
  return VerbsControlBytes(options_.regions.size());
}

ReadStatus VerbsReadsCore::Admit(const ReadDescriptor& read) const {
  if (started_ - returned_ >= kQueuedReadsMax) return ReadStatus::kOverloaded;
  const std::vector<RegionInfo>& infos = options_.regions;
  if (read.region >= infos.size() || read.length > kReadBytesMax ||
      read.offset > infos[read.region].size ||
      read.length > infos[read.region].size - read.offset) {
    return ReadStatus::kOutOfRange;
  }
  return broken_ ? ReadStatus::kUnreachable : ReadStatus::kOk;
}

void VerbsReadsCore::Read(MonotonicTime now, Duration timeout,
                          std::span<const ReadDescriptor> reads) {
  for (const ReadDescriptor& read : reads) {
    const ReadStatus status = Admit(read);
    ++started_;
    if (status == ReadStatus::kOk) {
      backlog_.push_back({.read = read, .deadline = now + timeout});
    } else {
      polled_.push_back({read.token, status});
    }
  }
}

uint32_t VerbsReadsCore::MemoryOf(const ReadDescriptor& read) const {
  // Words are whole only where they lie whole in what is sent.
  const bool words_whole =
      read.length > kVerbsWordAtomicBytesMax || read.offset % 8 + read.length % 8 == 0;
  if (!words_whole) return 0;
  for (uint32_t i = 0; i < memories_.size(); ++i) {
    const std::span<char>& memory = memories_[i];
    if (std::less_equal<>()(memory.data(), read.destination) &&
        std::less_equal<>()(read.destination + read.length, memory.data() + memory.size())) {
      return i + 1;
    }
  }
  return 0;
}

bool VerbsReadsCore::Take(uint64_t bytes, uint64_t* offset) {
  bytes = (bytes + kArenaAlignment - 1) & ~(kArenaAlignment - 1);
  uint64_t begin = arena_head_;
  // A work's bytes lie together.
  const uint64_t place = begin % arena_.size();
  if (place + bytes > arena_.size()) begin += arena_.size() - place;
  if (begin + bytes - arena_tail_ > arena_.size()) return false;
  arena_head_ = begin + bytes;
  *offset = begin % arena_.size();
  return true;
}

std::span<const VerbsWork> VerbsReadsCore::NextBatch(MonotonicTime now) {
  works_.clear();
  if (backlog_.empty() || broken_) return {};
  if (arena_head_ == arena_tail_) arena_head_ = arena_tail_ = 0;
  const uint64_t arena_before = arena_head_;
  uint64_t room = options_.works_max - outstanding();
  Batch batch;
  if (room < 2 || !Take(control_bytes(), &batch.control_offset)) return {};
  --room;
  while (!backlog_.empty() && room > 0 && works_.size() < kBatchMax) {
    Pending& pending = backlog_.front();
    const ReadDescriptor& read = pending.read;
    if (read.length > 0) {
      if (const uint32_t memory = MemoryOf(read); memory > 0) {
        pending.straight = true;
        works_.push_back({.id = next_id_++,
                          .region = read.region,
                          .length = read.length,
                          .offset = read.offset,
                          .memory = memory,
                          .memory_offset = static_cast<uint64_t>(read.destination -
                                                                 memories_[memory - 1].data())});
      } else {
        if (!Take(WordBytes(read), &pending.arena_offset)) break;
        works_.push_back({.id = next_id_++,
                          .region = read.region,
                          .length = WordBytes(read),
                          .offset = WordBegin(read),
                          .memory_offset = pending.arena_offset});
      }
      --room;
    }
    sent_.push_back(pending);
    ++batch.reads;
    backlog_.pop_front();
  }
  if (batch.reads == 0) {  // no room but for the control page; more comes with the batch before
    arena_head_ = arena_before;
    return {};
  }
  works_.push_back({.id = next_id_++,
                    .region = kVerbsControl,
                    .length = control_bytes(),
                    .offset = 0,
                    .memory_offset = batch.control_offset,
                    .signaled = true});
  batch.last_id = works_.back().id;
  batch.arena_end = arena_head_;
  batch.posted = now;
  batches_.push_back(batch);
  return works_;
}

void VerbsReadsCore::OnDone(MonotonicTime now, const VerbsDone& done) {
  if (broken_ || done.id <= done_id_ || done.id >= next_id_) return;
  if (done.status != VerbsStatus::kOk) {
    BreakWith(done.id, done.status == VerbsStatus::kRemoteAccess ? ReadStatus::kStaleRegion
                                                                 : ReadStatus::kUnreachable);
    return;
  }
  // What was posted before it is done, too.
  done_id_ = done.id;
  while (!batches_.empty() && batches_.front().last_id <= done_id_) FinishBatch(now);
}

void VerbsReadsCore::FinishBatch(MonotonicTime now) {
  const Batch batch = batches_.front();
  batches_.pop_front();
  const VerbsControl control(arena_.data() + batch.control_offset);
  const bool at_work = heartbeat_.Observe(control.heartbeat(), batch.posted, now);
  for (size_t i = 0; i < batch.reads; ++i) {
    const Pending& pending = sent_.front();
    const ReadDescriptor& read = pending.read;
    if (!pending.abandoned) {
      ReadStatus status = ReadStatus::kOk;
      if (control.generation(read.region) != options_.regions[read.region].generation) {
        status = ReadStatus::kStaleRegion;
      } else if (!at_work) {
        status = ReadStatus::kUnreachable;
      } else if (read.length > 0 && !pending.straight) {
        std::memcpy(read.destination,
                    arena_.data() + pending.arena_offset + (read.offset - WordBegin(read)),
                    read.length);
      }
      Complete(pending, status);
    }
    sent_.pop_front();
  }
  arena_tail_ = batch.arena_end;
}

MonotonicTime VerbsReadsCore::OnTime(MonotonicTime now) {
  if (!batches_.empty() && batches_.front().posted + options_.stall_timeout <= now) Break();
  MonotonicTime next = MonotonicTime::Max();
  if (!batches_.empty()) next = batches_.front().posted + options_.stall_timeout;
  const auto expired = [&](const Pending& pending) {
    if (pending.deadline <= now) return true;
    next = std::min(next, pending.deadline);
    return false;
  };
  for (Pending& pending : sent_) {
    if (pending.abandoned || !expired(pending)) continue;
    pending.abandoned = true;
    ++timeouts_;
    Complete(pending, ReadStatus::kTimeout);
  }
  std::erase_if(backlog_, [&](const Pending& pending) {
    if (!expired(pending)) return false;
    ++timeouts_;
    Complete(pending, ReadStatus::kTimeout);
    return true;
  });
  return next;
}

void VerbsReadsCore::BreakWith(uint64_t id, ReadStatus status) {
  if (std::exchange(broken_, true)) return;
  uint64_t work = done_id_ + 1;  // of the read, if it has one
  auto pending = sent_.begin();
  for (const Batch& batch : batches_) {
    for (size_t i = 0; i < batch.reads; ++i, ++pending) {
      const bool that_one = pending->read.length > 0 && work == id;
      if (pending->read.length > 0) ++work;
      if (!pending->abandoned) Complete(*pending, that_one ? status : ReadStatus::kUnreachable);
    }
    work = batch.last_id + 1;
  }
  for (const Pending& waiting : backlog_) Complete(waiting, ReadStatus::kUnreachable);
  sent_.clear();
  batches_.clear();
  backlog_.clear();
}

size_t VerbsReadsCore::Poll(std::span<Completion> completions) {
  const size_t n = std::min(completions.size(), polled_.size() - polled_begin_);
  std::copy_n(polled_.begin() + static_cast<ptrdiff_t>(polled_begin_), n, completions.begin());
  polled_begin_ += n;
  returned_ += n;
  if (polled_begin_ == polled_.size()) {
    polled_.clear();
    polled_begin_ = 0;
  }
  return n;
}

}  // namespace tailcast::fabric
