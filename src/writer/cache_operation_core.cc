#include "tailcast/writer/cache_operation_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::writer {
namespace {

FAULT_POINT(kPublishBeforeWrite, "writer.publish_before_write",
            "cache lengths are published when the bytes are received");
FAULT_POINT(kChunkFromMiddle, "writer.chunk_from_middle",
            "a chunk that grows is written from its new bytes on");

}  // namespace

using stream::ChunkWrite;
using stream::ChunkWriterCore;
using stream::LockValue;
using stream::PairMetadata;
using stream::Part;

CacheOperationCore::CacheOperationCore(const CoreContext& context)
    : context_(context), life_(context) {}

void CacheOperationCore::Enter(Phase next) {
  const bool allowed = next == Phase::kCopying      ? phase_ != Phase::kCopying
                       : next == Phase::kAskingJump ? phase_ == Phase::kCopying
                                                    : false;
  TAILCAST_CHECK(allowed && !life_.ended(),
                 PhaseChange(context_, static_cast<int>(phase_), static_cast<int>(next)));
  phase_ = next;
}

LayerView CacheOperationCore::layer() const {
  LayerView view;
  view.outstanding = static_cast<int>(batches_.size());
  if (!begun()) return view;
  for (int p = 0; p < stream::kParts; ++p) {
    view.written[p] = chunks_[p]->written_end();
    view.buffered_bytes += chunks_[p]->pending_bytes();
  }
  return view;
}

MonotonicTime CacheOperationCore::next_due() const {
  if (life_.ended()) return MonotonicTime::Max();
  return std::min(life_.next_due(), retry_at_.value_or(MonotonicTime::Max()));
}

// --- the reader and the lock

void CacheOperationCore::Start(MonotonicTime now, Effects& out) {
  context_.counters.started_cache.Add();
  out.push_back(NotifyScheduler{life_.seal()});
  if (context_.operation.fresh) {
    Begin(now, {0, 0}, out);
  } else {
    out.push_back(ReadMetadata());
  }
}

void CacheOperationCore::Begin(MonotonicTime now, const Lengths& lengths, Effects& out) {
  Enter(Phase::kCopying);
  const stream::ChunkWriterOptions options{context_.operation.chunk_size,
                                           context_.options.cache_window_bytes};
  Lengths start;
  for (Part part : {Part::kData, Part::kIndex}) {
    const int p = static_cast<int>(part);
    chunks_[p].emplace(options, lengths[p]);
    start[p] = chunks_[p]->start();
    context_.steps.Write("WriterStart", part,
                         {{"at", start[p]}, {"chunkSize", context_.operation.chunk_size}});
  }
  life_.Opened(now, start, storage::Epoch::kNone, out);
  out.push_back(DoWorkLater());
}

void CacheOperationCore::OnBytes(MonotonicTime, Part part, int64_t position, std::string bytes,
                                 Effects& out) {
  if (life_.ended()) return;
  life_.OnChecked(Take(part, position, bytes), layer(), out);
}

Status CacheOperationCore::Take(Part part, int64_t position, const std::string& bytes) {
  // Before `opened` only the reader of a fresh file sends, and that one began at once.
  if (!begun()) return InvalidArgumentError("bytes before `opened` of a known file");
  TAILCAST_RETURN_IF_ERROR(life_.OnReceived(part, position, bytes.size()));
  switch (chunks(part).Add(position, bytes)) {
    case ChunkWriterCore::AddOutcome::kTaken:
    case ChunkWriterCore::AddOutcome::kAlready:
      return OkStatus();
    case ChunkWriterCore::AddOutcome::kFull:
      return ResourceExhaustedError(context_.Name() + ": bytes at " + std::to_string(position) +
                                    " lie beyond the window after " +
                                    std::to_string(chunks(part).written_end()));
    case ChunkWriterCore::AddOutcome::kConflict:
      return DataLossError(context_.Name() + ": bytes at " + std::to_string(position) +
                           " contradict those received before");
  }
  return InternalError("no such outcome");
}

void CacheOperationCore::OnJump(MonotonicTime, Part part, int64_t position, Effects& out) {
  if (life_.ended()) return;
  if (!begun()) {
    life_.OnChecked(InvalidArgumentError("jump before `opened` of a known file"), layer(), out);
    return;
  }
  int64_t& wanted = jump_to_[static_cast<int>(part)];
  wanted = std::max(wanted, position);
  if (phase_ != Phase::kAskingJump) {
    Enter(Phase::kAskingJump);
    out.push_back(ReadMetadata());
  }
  out.push_back(DoWorkLater());
}

void CacheOperationCore::OnMetadata(MonotonicTime now, const PairMetadata& metadata, Effects& out) {
  if (life_.ended()) return;
  switch (phase_) {
    case Phase::kReadingLengths:
      Begin(now, {metadata.cache_length[0], metadata.cache_length[1]}, out);
      return;
    case Phase::kAskingJump:
      JumpTowards({metadata.primary_length[0], metadata.primary_length[1]}, out);
      return;
    case Phase::kCopying:
      return;
  }
}

void CacheOperationCore::JumpTowards(const Lengths& primary, Effects& out) {
  Enter(Phase::kCopying);
  for (Part part : {Part::kData, Part::kIndex}) {
    const int p = static_cast<int>(part);
    const int64_t start = chunks(part).start();
    chunks(part).JumpTo(std::min(std::exchange(jump_to_[p], 0), primary[p]));
    if (chunks(part).start() == start) continue;
    context_.counters.jumps.Add();
    context_.steps.Write("WriterJump", part, {{"at", chunks(part).start()}});
  }
  out.push_back(DoWorkLater());
}

void CacheOperationCore::OnSeal(MonotonicTime, const Lengths& lengths, Effects& out) {
  if (life_.ended()) return;
  life_.OnChecked(life_.OnSeal(lengths), layer(), out);
}

void CacheOperationCore::OnHeartbeat(MonotonicTime, int64_t as_of_us, const Lengths& lengths,
                                     Effects& out) {
  life_.OnHeartbeat(as_of_us, lengths);
  life_.OnChecked(OkStatus(), layer(), out);
}

void CacheOperationCore::OnWrongMessage(MonotonicTime, const Status& status, Effects& out) {
  life_.OnChecked(status, layer(), out);
}

void CacheOperationCore::OnReaderGone(MonotonicTime, const Status& status, Effects& out) {
  life_.OnReaderGone(status, layer(), out);
}

void CacheOperationCore::OnLockRead(MonotonicTime now, const std::optional<LockValue>& seen,
                                    Effects& out) {
  life_.OnLockRead(now, seen, layer(), out);
  if (!life_.ended()) out.push_back(DoWorkLater());
}

void CacheOperationCore::OnLockUnavailable(MonotonicTime now, Effects& out) {
  life_.OnLockUnavailable(now);
  if (!life_.ended()) out.push_back(DoWorkLater());
}

void CacheOperationCore::OnPublished(MonotonicTime now, const Status& status, Effects& out) {
  life_.OnPublished(now, status.ok(), layer(), out);
}

// --- the data cache

void CacheOperationCore::DoWork(MonotonicTime now, Effects& out) {
  if (life_.ended()) return;
  if (retry_at_ && now >= *retry_at_) retry_at_.reset();
  if (begun()) {
    while (life_.may_work() && !retry_at_ &&
           static_cast<int>(batches_.size()) < context_.options.cache_batches_max && HasWrites()) {
      WriteBatch(out);
    }
    const LayerView view = layer();
    PairMetadata news;
    for (int p = 0; p < stream::kParts; ++p) {
      news.cache_length[p] =
          kPublishBeforeWrite.planted() ? chunks_[p]->received_end() : view.written[p];
    }
    life_.Publish(now, news, out);
    const Seal& seal = life_.seal();
    if (seal && view.written[0] >= (*seal)[0] && view.written[1] >= (*seal)[1]) {
      life_.Finish(now, view, out);
    }
  }
  life_.DoWork(now, layer(), out);
}

// One bulk write of what is ready in both parts; index first, because it is small and what
// consumers need to make sense of the data.
void CacheOperationCore::WriteBatch(Effects& out) {
  WriteChunks write{next_batch_++, {}};
  Batch& sent = batches_[write.batch];
  for (Part part : {Part::kIndex, Part::kData}) {
    std::vector<ChunkWrite> writes;
    chunks(part).TakeWrites(context_.options.cache_batch_bytes, &writes);
    for (ChunkWrite& w : writes) {
      sent.push_back({part, w.chunk, static_cast<int64_t>(w.value.size())});
      context_.steps.Write("ChunkWrite", part, {{"chunk", w.chunk}, {"len", sent.back().length}});
      if (kChunkFromMiddle.planted()) {
        const int64_t begin = w.chunk * context_.operation.chunk_size;
        const int64_t written = chunks(part).written_end();
        if (written > begin) w.value.erase(0, static_cast<size_t>(written - begin));
      }
      write.chunks.push_back({part, w.chunk, std::move(w.value)});
    }
  }
  out.push_back(std::move(write));
}

void CacheOperationCore::OnChunksWritten(MonotonicTime now, uint64_t batch, const Status& status,
                                         Effects& out) {
  const auto it = batches_.find(batch);
  if (it == batches_.end()) return;
  const Batch sent = std::move(it->second);
  batches_.erase(it);
  if (life_.ended()) return life_.OnCallReturned(layer(), out);
  int64_t bytes = 0;
  for (const Sent& s : sent) {
    bytes += s.length;
    if (!chunks(s.part).OnWritten(s.chunk, s.length, status.ok())) continue;
    context_.steps.Write(status.ok() ? "ChunkAck" : "ChunkFail", s.part,
                         {{"chunk", s.chunk}, {"len", s.length}});
  }
  if (status.ok()) {
    failures_ = 0;
    context_.counters.bytes_cache.Add(bytes);
  } else {
    (IsDataLoss(status) ? context_.counters.cache_mismatch : context_.counters.cache_write_failed)
        .Add();
    ++failures_;
    if (!retry_at_) {
      retry_at_ = now + std::min(context_.options.retry_delay * (1 << std::min(failures_, 8)),
                                 context_.options.retry_delay_max);
    }
  }
  out.push_back(DoWorkLater());
}

}  // namespace tailcast::writer
