// A producer that a test drives by hand: it appends to the files of one shard in its source cell
// and shadows them, as src/producer does, a step at a time. The deployment's caches are
// MemoryStores.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "tailcast/base/crc32c.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/world/deployment.h"

namespace tailcast::world {

class HandProducer {
 public:
  HandProducer(Deployment& deployment, const std::string& cell, const stream::ShardId& shard,
               int64_t chunk_size)
      : deployment_(deployment),
        cell_(deployment.cell(cell)),
        shard_(shard),
        keys_(shard),
        chunk_size_(chunk_size),
        process_(deployment.Start(cell, "producer-by-hand", nullptr)),
        client_(*process_.loop, *process_.connector, deployment.SchedulerAddress(cell), "") {}
  HandProducer(const HandProducer&) = delete;
  HandProducer& operator=(const HandProducer&) = delete;

  // Closes the file that is open, opens the next one, and tells everybody. `chunk_size`: that the
  // name says; 0: none.
  void Roll(int64_t chunk_size = 0) {
    if (file_.seq > 0) Seal();
    stream::Stem next;
    next.seq = file_.seq + 1;
    next.created_us = std::max(file_.created_us + 1, process_.loop->WallNow().micros());
    next.start_byte = file_.start_byte + static_cast<int64_t>(data_.size());
    next.start_number =
        file_.start_number + static_cast<int64_t>(index_.size()) / stream::kIndexRecordSize;
    next.chunk_size = chunk_size;
    file_ = next;
    data_.clear();
    index_.clear();
    for (stream::Part part : {stream::Part::kData, stream::Part::kIndex}) {
      auto& handle = handles_[static_cast<int>(part)];
      handle.reset();
      process_.store->CreateExclusive(stream::ShardDir(shard_), stream::FileName(file_, part),
                                      stream::CreationKey(file_.seq, part),
                                      scope_.Bind([&](auto f) { handle = std::move(*f); }));
      deployment_.time().RunUntil([&] { return handle != nullptr; }, Duration::Seconds(60));
    }
    Publish(Metadata());
    Notify();
  }

  // Publishes where the open file ends. The scheduler is told nothing.
  void Seal() {
    stream::PairMetadata r = Metadata();
    r.seal[0] = data_.size();
    r.seal[1] = index_.size();
    Publish(r);
  }

  void Notify() {
    v1::FileNotice notice;
    stream::SetShard(shard_, &notice);
    notice.set_stem(file_.ToString());
    client_.NotifyFile(notice, scope_.Bind([this](const Result<v1::FileNoticeReply>& reply) {
      if (!reply.ok()) again_.After(Duration::Millis(100), scope_.Bind([this] { Notify(); }));
    }));
  }

  // One message of `size` bytes, durable and shadowed when it returns.
  void Append(int64_t size) {
    std::string payload;
    for (int64_t i = 0; i < size; ++i) {
      payload.push_back(static_cast<char>('a' + deployment_.time().rng().Below(26)));
    }
    stream::IndexRecord record{static_cast<int64_t>(data_.size()), static_cast<uint32_t>(size),
                               Crc32c(payload), process_.loop->WallNow().micros()};
    std::string encoded;
    record.AppendTo(encoded);
    Write(0, data_, payload);
    Write(1, index_, encoded);
    if (shadow) Shadow();
    Publish(Metadata());
  }

  stream::PairMetadata Metadata() {
    stream::PairMetadata r;
    r.created_us = file_.created_us;
    r.start_byte = file_.start_byte;
    r.start_number = file_.start_number;
    r.stem_chunk_size = file_.chunk_size;
    r.primary_length[0] = data_.size();
    r.primary_length[1] = index_.size();
    if (shadow) {
      r.cache_length[0] = data_.size();
      r.cache_length[1] = index_.size();
    }
    r.chunk_size = ChunkSize();
    r.heartbeat_us = process_.loop->WallNow().micros();
    return r;
  }

  void Publish(const stream::PairMetadata& metadata) {
    cell_.metadata->Apply({keys_.MetadataGroup(file_.seq), cache::MergeRule::kMaxLanes, false,
                           stream::EncodePairMetadata(file_.seq, metadata)});
  }

  // Of the open file.
  const stream::Stem& file() const { return file_; }
  const std::string& data() const { return data_; }
  const std::string& index() const { return index_; }

  bool shadow = true;  // into the caches

 private:
  int64_t ChunkSize() const { return stream::ChunkSizeOf(file_, chunk_size_); }
  void Shadow() {
    const std::string* parts[] = {&data_, &index_};
    const int64_t chunk = ChunkSize();
    for (int p = 0; p < 2; ++p) {
      const auto size = static_cast<int64_t>(parts[p]->size());
      for (int64_t n = shadowed_[p] / chunk; n * chunk < size; ++n) {
        cell_.data->Apply(
            {keys_.Chunk(file_.seq, static_cast<stream::Part>(p), chunk, n),
             cache::MergeRule::kLongerWins, false,
             parts[p]->substr(static_cast<size_t>(n * chunk), static_cast<size_t>(chunk))});
      }
      shadowed_[p] = size;
    }
  }

  void Write(int part, std::string& have, const std::string& bytes) {
    std::optional<storage::AppendResult> result;
    handles_[part]->AppendAt(static_cast<int64_t>(have.size()), bytes,
                             scope_.Bind([&](storage::AppendResult r) { result = r; }));
    deployment_.time().RunUntil([&] { return result.has_value(); }, Duration::Seconds(60));
    TAILCAST_CHECK(result && result->outcome == storage::AppendOutcome::kApplied,
                   "the test's producer needs a disk without faults");
    have += bytes;
    if (part == 0 && have.size() == bytes.size()) shadowed_[0] = shadowed_[1] = 0;
  }

  Deployment& deployment_;
  Cell& cell_;
  const stream::ShardId shard_;
  const stream::KeyMaker keys_;
  const int64_t chunk_size_;
  Process& process_;
  cell::CellClient client_;
  stream::Stem file_;
  std::string data_, index_;
  int64_t shadowed_[2] = {0, 0};
  std::unique_ptr<storage::AppendFile> handles_[2];
  Timer again_{*process_.loop};
  Scope scope_;
};

}  // namespace tailcast::world
