#include "tailcast/producer/shadow.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"

namespace tailcast::producer {

using stream::kParts;
using stream::Part;

namespace {

const Logger kLog("producer");

FAULT_POINT(kLengthBeforeChunks, "producer.length_before_chunks",
            "the cache's length is published when the primary's is");

Duration BackOff(Duration now, Duration least, Duration most) {
  return std::min(std::max(least, now * 2), most);
}

}  // namespace

ShadowFile::ShadowFile(const stream::CellPorts& ports, const stream::FileId& file,
                       int64_t chunk_size, storage::Epoch epoch, const int64_t (&from)[kParts],
                       ShadowOptions options, ShadowCounters* counters, Callback<void()> on_change)
    : ports_(ports),
      file_(file),
      keys_(file.shard),
      options_(options),
      counters_(counters),
      steps_(ports.steps, file, "writer", ports.steps != nullptr ? ports.steps->NewName() : ""),
      on_change_(std::move(on_change)),
      parts_{PartState(*ports.loop), PartState(*ports.loop)},
      index_wait_(*ports.loop),
      publish_timer_(*ports.loop) {
  metadata_.created_us = file.stem.created_us;
  metadata_.start_byte = file.stem.start_byte;
  metadata_.start_number = file.stem.start_number;
  metadata_.stem_chunk_size = file.stem.chunk_size;
  metadata_.primary_epoch = epoch;
  metadata_.chunk_size = chunk_size;
  for (int part = 0; part < kParts; ++part) {
    parts_[part].chunks = std::make_unique<stream::ChunkWriterCore>(
        stream::ChunkWriterOptions{chunk_size, std::max(options_.backlog_bytes, chunk_size * 2)},
        from[part]);
    metadata_.primary_length[part] = parts_[part].flushed_end = from[part];
    steps_.Write(
        "WriterStart", static_cast<Part>(part),
        {{"at", parts_[part].chunks->start()}, {"chunkSize", chunk_size}, {"source", true}});
  }
}

void ShadowFile::OnFlushed(Part which, int64_t at, std::string_view bytes) {
  PartState& part = parts_[static_cast<int>(which)];
  const int64_t end = at + static_cast<int64_t>(bytes.size());
  part.flushed_end = std::max(part.flushed_end, end);
  stream::ChunkWriterCore& chunks = *part.chunks;
  // A flush larger than the window is one that the cache does not keep up with either.
  if (chunks.Add(at, bytes) == stream::ChunkWriterCore::AddOutcome::kFull) {
    // §3 Start Position: go on at the chunk where the primary layer stands.
    ++counters_->jumps;
    counters_->jumped_bytes += std::max<int64_t>(0, end - chunks.written_end());
    const int64_t chunk_size = chunks.options().chunk_size;
    // What was received of that chunk before these bytes is still held.
    const int64_t begin = std::max(at, end - end % chunk_size);
    const int64_t start = chunks.start();
    chunks.JumpTo(end);
    if (chunks.start() > start) steps_.Write("WriterJump", which, {{"at", chunks.start()}});
    chunks.Add(begin, bytes.substr(static_cast<size_t>(begin - at)));
  }
  if (which == Part::kData && chunks.pending_bytes() < options_.data_alone_bytes) {
    if (!index_wait_.armed()) {
      index_wait_.After(options_.index_wait, scope_.Bind([this] { Write(); }));
    }
    return;
  }
  index_wait_.Cancel();
  Write();
}

void ShadowFile::Expect(Part which, int64_t end) {
  parts_[static_cast<int>(which)].expected_end = end;
}

void ShadowFile::OnCommitted(int64_t data_length, int64_t index_length) {
  metadata_.primary_length[0] = std::max(metadata_.primary_length[0], data_length);
  metadata_.primary_length[1] = std::max(metadata_.primary_length[1], index_length);
  UpdateCacheLengths();
  LengthsChanged();
}

void ShadowFile::Seal(const stream::Seal& seal) {
  for (int part = 0; part < kParts; ++part) {
    metadata_.seal[part] = seal.length[part];
    metadata_.primary_length[part] = std::max(metadata_.primary_length[part], seal.length[part]);
  }
  UpdateCacheLengths();
  ++version_;
  Publish();
}

void ShadowFile::Heartbeat(Duration interval) {
  if (ports_.loop->Now() - last_publish_ < interval && published_ == version_) return;
  ++version_;
  Publish();
}

void ShadowFile::PublishNow() { Publish(); }

void ShadowFile::PublishAgain() {
  ++version_;  // what is under way was written before, and does not count
  publish_retry_ = Duration();
  Publish();
}

bool ShadowFile::MayWrite(int which) const {
  const PartState& part = parts_[which];
  return !part.retry.armed() && part.in_flight < options_.mutates_in_flight &&
         part.chunks->HasWrites() && (which != 0 || !index_wait_.armed());
}

void ShadowFile::Write() {
  while (MayWrite(0) || MayWrite(1)) {
    std::vector<cache::Mutation> mutations;
    Written written;
    for (int which = 0; which < kParts; ++which) {
      if (!MayWrite(which)) continue;
      PartState& part = parts_[which];
      std::vector<stream::ChunkWrite> writes;
      part.chunks->TakeWrites(options_.mutate_bytes, &writes);
      const int64_t chunk_size = part.chunks->options().chunk_size;
      for (stream::ChunkWrite& write : writes) {
        const auto length = static_cast<int64_t>(write.value.size());
        written.chunks[which].emplace_back(write.chunk, length);
        steps_.Write("ChunkWrite", static_cast<Part>(which),
                     {{"chunk", write.chunk}, {"len", length}});
        ++counters_->chunk_writes;
        counters_->chunk_bytes += length;
        if (length < chunk_size) ++counters_->partial_writes;
        mutations.push_back(
            {keys_.Chunk(file_.stem.seq, static_cast<Part>(which), chunk_size, write.chunk),
             cache::MergeRule::kLongerWins, false, std::move(write.value)});
      }
      if (!writes.empty()) ++part.in_flight;
    }
    if (mutations.empty()) return;
    ++counters_->bulk_writes;
    ports_.data_cache->Mutate(
        std::move(mutations), options_.mutate_timeout,
        scope_.Bind([this, written = std::move(written)](const Status& status) {
          OnWritten(written, status);
        }));
  }
}

void ShadowFile::OnWritten(const Written& written, const Status& status) {
  for (int which = 0; which < kParts; ++which) {
    PartState& part = parts_[which];
    const auto& chunks = written.chunks[which];
    if (chunks.empty()) continue;
    --part.in_flight;
    for (const auto& [chunk, length] : chunks) {
      if (!part.chunks->OnWritten(chunk, length, status.ok())) continue;
      steps_.Write(status.ok() ? "ChunkAck" : "ChunkFail", static_cast<Part>(which),
                   {{"chunk", chunk}, {"len", length}});
    }
    if (status.ok()) {
      part.retry_wait = Duration();
      continue;
    }
    part.retry_wait = BackOff(part.retry_wait, options_.retry_min, options_.retry_max);
    if (!part.retry.armed()) {
      part.retry.After(part.retry_wait, scope_.Bind([this] { Write(); }));
    }
  }
  if (status.ok()) {
    if (UpdateCacheLengths()) LengthsChanged();
  } else {
    ++counters_->bulk_failures;
    if (IsDataLoss(status)) OnDataLoss(status);
  }
  Write();
  if (on_change_ && cached()) on_change_();
}

// The cache's client has said of which key, and where (cache/contradictions.h).
void ShadowFile::OnDataLoss(const Status& status) {
  ++counters_->mismatches;
  kLog.Error(file_.ToString(), ": the cache had other bytes: ", status.message());
}

bool ShadowFile::UpdateCacheLengths() {
  bool changed = false;
  for (int part = 0; part < kParts; ++part) {
    int64_t written = std::min(parts_[part].chunks->written_end(), metadata_.primary_length[part]);
    if (kLengthBeforeChunks.planted()) written = metadata_.primary_length[part];
    if (written <= metadata_.cache_length[part]) continue;
    metadata_.cache_length[part] = written;
    changed = true;
  }
  return changed;
}

bool ShadowFile::cached() const {
  for (int part = 0; part < kParts; ++part) {
    if (metadata_.cache_length[part] < metadata_.primary_length[part]) return false;
  }
  return true;
}

void ShadowFile::LengthsChanged() {
  ++version_;
  if (cached()) {
    Publish();
    return;
  }
  if (publish_timer_.armed()) return;
  publish_timer_.After(options_.primary_length_delay, scope_.Bind([this] {
    ++counters_->primary_alone;
    Publish();
  }));
}

void ShadowFile::Publish() {
  publish_timer_.Cancel();
  if (publishes_in_flight_ >= 2 || sent_ == version_) return;  // OnPublished comes back to it
  sent_ = version_;
  ++publishes_in_flight_;
  ++counters_->publishes;
  MoveHeartbeat();
  for (int part = 0; part < kParts; ++part) {
    if (metadata_.cache_length[part] == 0) continue;
    steps_.Write("LengthPublish", static_cast<Part>(part), {{"len", metadata_.cache_length[part]}});
  }
  std::vector<cache::Mutation> mutations;
  mutations.push_back({keys_.MetadataGroup(file_.stem.seq), cache::MergeRule::kMaxLanes, false,
                       stream::EncodePairMetadata(file_.stem.seq, metadata_)});
  ports_.metadata_cache->Mutate(std::move(mutations), options_.mutate_timeout,
                                scope_.Bind([this, version = version_](const Status& status) {
                                  OnPublished(status, version);
                                }));
}

// Who wants the shard, and who consumes it, watch whether it moves: it does as time passes, also
// when the wall clock was set back.
void ShadowFile::MoveHeartbeat() {
  const MonotonicTime now = ports_.loop->Now();
  int64_t& heartbeat = metadata_.heartbeat_us;
  heartbeat = heartbeat == 0 ? metadata_.created_us
                             : heartbeat + std::max<int64_t>(1, (now - last_publish_).micros());
  heartbeat = std::max(heartbeat, ports_.loop->WallNow().micros());
  last_publish_ = now;
}

void ShadowFile::OnPublished(const Status& status, uint64_t version) {
  --publishes_in_flight_;
  if (status.ok()) {
    publish_retry_ = Duration();
    published_ = std::max(published_, version);
    if (sent_ < version_ && (cached() || !publish_timer_.armed())) Publish();
  } else {
    ++counters_->publish_failures;
    if (IsDataLoss(status)) OnDataLoss(status);
    publish_retry_ = BackOff(publish_retry_, options_.retry_min, options_.retry_max);
    if (published_ < version_) {
      if (publishes_in_flight_ == 0) sent_ = published_;  // it has to go again
      if (!publish_timer_.armed()) {
        publish_timer_.After(publish_retry_, scope_.Bind([this] { Publish(); }));
      }
    }
  }
  if (on_change_ && cached()) on_change_();
}

bool ShadowFile::idle() const {
  for (const PartState& part : parts_) {
    if (part.chunks->written_end() < std::max(part.flushed_end, part.expected_end) ||
        part.in_flight > 0) {
      return false;
    }
  }
  return published_ == version_ && publishes_in_flight_ == 0;
}

}  // namespace tailcast::producer
