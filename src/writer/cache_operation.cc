#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/writer/operation.h"

namespace tailcast::writer {
namespace {
const Logger kLog("writer");
}

using stream::ChunkWrite;
using stream::ChunkWriterCore;
using stream::PairMetadata;
using stream::Part;

// Bytes of both parts in any order -> chunks in the data cache -> lengths in the metadata cache.
class CacheOperation : public WriterOperation {
 public:
  using WriterOperation::WriterOperation;

 protected:
  void OnStart() override {
    agent_->Notify(file(), seal_);
    if (operation_.fresh) {
      Begin(0, 0);
      return;
    }
    // A successor goes on where the lengths stand.
    ReadMetadata([this](const PairMetadata& metadata) {
      Begin(metadata.cache_length[0], metadata.cache_length[1]);
    });
  }

  Status OnBytes(Part part, int64_t position, const std::string& bytes) override {
    // Before `opened` only the reader of a fresh file sends, and that one began at once.
    if (cores_[0] == nullptr) return InvalidArgumentError("bytes before `opened` of a known file");
    switch (core(part).Add(position, bytes)) {
      case ChunkWriterCore::AddOutcome::kTaken:
      case ChunkWriterCore::AddOutcome::kAlready:
        return OkStatus();
      case ChunkWriterCore::AddOutcome::kFull:
        return ResourceExhaustedError(Name() + ": bytes at " + std::to_string(position) +
                                      " lie beyond the window after " +
                                      std::to_string(core(part).written_end()));
      case ChunkWriterCore::AddOutcome::kConflict:
        return DataLossError(Name() + ": bytes at " + std::to_string(position) +
                             " contradict those received before");
    }
    return InternalError("no such outcome");
  }

  Status OnJump(Part part, int64_t position) override {
    if (cores_[0] == nullptr) return InvalidArgumentError("jump before `opened` of a known file");
    int64_t& wanted = jump_to_[static_cast<int>(part)];
    wanted = std::max(wanted, position);
    if (reading_primary_) return OkStatus();
    reading_primary_ = true;
    // No further than the primary layer of this cell: what was jumped over must be somewhere here.
    ReadMetadata([this](const PairMetadata& metadata) {
      reading_primary_ = false;
      for (Part p : {Part::kData, Part::kIndex}) {
        const int i = static_cast<int>(p);
        const int64_t start = core(p).start();
        core(p).JumpTo(std::min(std::exchange(jump_to_[i], 0), metadata.primary_length[i]));
        if (core(p).start() == start) continue;
        agent_->counters_.jumps.Add();
        steps_.Write("WriterJump", p, {{"at", core(p).start()}});
      }
      Kick();
    });
    return OkStatus();
  }

  Status OnSealKnown() override { return OkStatus(); }
  void OnLockChanged() override { Kick(); }

  int64_t written(Part part) const override {
    return cores_[0] == nullptr ? 0 : cores_[static_cast<int>(part)]->written_end();
  }

  int outstanding() const override { return batches_; }
  bool busy() const override {
    return batches_ > 0 ||
           (cores_[0] != nullptr && (cores_[0]->HasWrites() || cores_[1]->HasWrites()));
  }

  void Work() override {
    if (cores_[0] == nullptr) return;
    while (lock_.MayWork() && retry_timer_ == 0 && batches_ < agent_->options_.cache_batches_max &&
           (cores_[0]->HasWrites() || cores_[1]->HasWrites())) {
      SendBatch();
    }
    PairMetadata metadata;
    for (int p = 0; p < stream::kParts; ++p) {
      metadata.cache_length[p] = agent_->options_.bug == WriterBug::kPublishesBeforeWrite
                                     ? cores_[p]->received_end()
                                     : cores_[p]->written_end();
    }
    Publish(metadata);
    if (seal_[0] && written(Part::kData) >= *seal_[0] && written(Part::kIndex) >= *seal_[1]) {
      Finish();
    }
  }

 private:
  ChunkWriterCore& core(Part part) { return *cores_[static_cast<int>(part)]; }

  // What this cell knows of the file; nothing if the metadata cache does not answer. Unless the
  // operation ended meanwhile.
  void ReadMetadata(Callback<void(const PairMetadata&)> then) {
    const int64_t seq = file().stem.seq;
    agent_->ports_.metadata_cache->ReadValues(
        {{keys_.MetadataGroup(seq), cache::MergeRule::kMaxLanes}}, agent_->options_.cache_timeout,
        [self = weak_from_this(), this, seq,
         then = std::move(then)](Result<std::vector<std::optional<std::string>>> values) mutable {
          const auto op = self.lock();
          if (!op || ended_) return;
          PairMetadata metadata;
          if (values.ok() && (*values)[0])
            metadata = stream::DecodePairMetadata(seq, *(*values)[0]);
          then(metadata);
        });
  }

  void Begin(int64_t data, int64_t index) {
    const stream::ChunkWriterOptions options{operation_.chunk_size,
                                             agent_->options_.cache_window_bytes};
    cores_[0] = std::make_unique<ChunkWriterCore>(options, data);
    cores_[1] = std::make_unique<ChunkWriterCore>(options, index);
    for (Part part : {Part::kData, Part::kIndex}) {
      steps_.Write("WriterStart", part,
                   {{"at", core(part).start()}, {"chunkSize", operation_.chunk_size}});
    }
    SendOpened(cores_[0]->start(), cores_[1]->start(), 0, agent_->options_.cache_window_bytes);
    Kick();
  }

  struct Sent {
    Part part;
    int64_t chunk;
    int64_t length;
  };

  // One bulk write of what is ready in both parts; index first, because it is small and what
  // consumers need to make sense of the data.
  void SendBatch() {
    std::vector<cache::Mutation> mutations;
    std::vector<Sent> sent;
    for (Part part : {Part::kIndex, Part::kData}) {
      std::vector<ChunkWrite> writes;
      core(part).TakeWrites(agent_->options_.cache_batch_bytes, &writes);
      for (ChunkWrite& w : writes) {
        sent.push_back({part, w.chunk, static_cast<int64_t>(w.value.size())});
        steps_.Write("ChunkWrite", part, {{"chunk", w.chunk}, {"len", sent.back().length}});
        cache::Mutation mutation;
        mutation.key = keys_.Chunk(file().stem.seq, part, operation_.chunk_size, w.chunk);
        mutation.rule = cache::MergeRule::kLongerWins;
        mutation.value = std::move(w.value);
        if (agent_->options_.bug == WriterBug::kChunkFromMiddle) {
          const int64_t begin = w.chunk * operation_.chunk_size;
          const int64_t written = core(part).written_end();
          if (written > begin) mutation.value.erase(0, static_cast<size_t>(written - begin));
        }
        mutations.push_back(std::move(mutation));
      }
    }
    ++batches_;
    agent_->ports_.data_cache->Mutate(
        std::move(mutations), agent_->options_.cache_timeout,
        [self = weak_from_this(), this, sent = std::move(sent)](Status status) {
          const auto op = self.lock();
          if (!op) return;
          --batches_;
          if (ended_) return OnIdle();
          OnBatch(sent, status);
        });
  }

  void OnBatch(const std::vector<Sent>& sent, const Status& status) {
    int64_t bytes = 0;
    for (const Sent& s : sent) {
      bytes += s.length;
      if (!core(s.part).OnWritten(s.chunk, s.length, status.ok())) continue;
      steps_.Write(status.ok() ? "ChunkAck" : "ChunkFail", s.part,
                   {{"chunk", s.chunk}, {"len", s.length}});
    }
    if (status.ok()) {
      failures_ = 0;
      agent_->counters_.bytes_cache.Add(bytes);
    } else {
      if (IsDataLoss(status)) {
        agent_->counters_.cache_mismatch.Add();
        kLog.Error(Name(),
                   ": the data cache had other bytes; both were dropped: ", status.message());
      } else {
        agent_->counters_.cache_write_failed.Add();
      }
      ++failures_;
      if (retry_timer_ == 0) {
        const Duration delay =
            std::min(agent_->options_.retry_delay * (1 << std::min(failures_, 8)),
                     agent_->options_.retry_delay_max);
        retry_timer_ = agent_->ports_.loop->After(delay, [self = weak_from_this(), this] {
          const auto op = self.lock();
          if (!op || ended_) return;
          retry_timer_ = 0;
          Kick();
        });
      }
    }
    Kick();
  }

  std::unique_ptr<ChunkWriterCore> cores_[stream::kParts];  // both or none
  int batches_ = 0;
  int failures_ = 0;
  TimerId retry_timer_ = 0;
  int64_t jump_to_[stream::kParts] = {0, 0};  // as far as the reader asked while reading_primary_
  bool reading_primary_ = false;
};

std::shared_ptr<WriterOperation> MakeCacheOperation(WriterAgent& agent, uint64_t id,
                                                    std::unique_ptr<rpc::Stream> stream,
                                                    stream::Operation operation) {
  return std::make_shared<CacheOperation>(agent, id, std::move(stream), std::move(operation));
}

}  // namespace tailcast::writer
