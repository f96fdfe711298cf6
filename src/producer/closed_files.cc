#include "tailcast/producer/closed_files.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::producer {

using stream::kParts;
using stream::Part;

namespace {
constexpr int64_t kTailBytesMax = 4 << 20;  // of one part of a dead producer's file
constexpr size_t kFilesMax = 8;
constexpr Duration kMetadataTimeout = Duration::Seconds(1);
}  // namespace

struct ClosedFiles::File {
  Scope& scope() { return scope_; }
  std::unique_ptr<ShadowFile> shadow;
  std::unique_ptr<stream::RangeReader> readers[kParts];  // of a dead producer's tail
  Scope scope_;
};

ClosedFiles::ClosedFiles(const stream::CellPorts& ports, stream::ShardId shard, int64_t chunk_size,
                         ShadowOptions options, ShadowCounters* counters, Callback<void()> on_idle)
    : ports_(ports),
      shard_(std::move(shard)),
      keys_(shard_),
      chunk_size_(chunk_size),
      options_(options),
      counters_(counters),
      on_idle_(std::move(on_idle)) {}

ClosedFiles::~ClosedFiles() = default;

void ClosedFiles::Add(std::unique_ptr<ShadowFile> shadow) {
  auto file = std::make_unique<File>();
  file->shadow = std::move(shadow);
  Insert(std::move(file));
}

void ClosedFiles::Insert(std::unique_ptr<File> file) {
  files_.push_back(std::move(file));
  if (files_.size() <= kFilesMax) return;
  ++counters_->jumps;
  Retire(*ports_.loop, std::move(files_.front()));
  files_.erase(files_.begin());
}

void ClosedFiles::Finish(const Predecessor& predecessor) {
  ++asked_;
  ports_.metadata_cache->ReadValues({{keys_.MetadataGroup(predecessor.stem.seq)}}, kMetadataTimeout,
                                    asking_.Bind([this, predecessor](Result<cache::Values> values) {
                                      --asked_;
                                      stream::PairMetadata metadata;
                                      if (values.ok() && (*values)[0].has_value()) {
                                        metadata = stream::DecodePairMetadata(predecessor.stem.seq,
                                                                              *(*values)[0]);
                                      }
                                      OnMetadata(predecessor, metadata);
                                    }));
}

void ClosedFiles::OnMetadata(const Predecessor& predecessor, const stream::PairMetadata& metadata) {
  const int64_t chunk_size = metadata.chunk_size > 0
                                 ? metadata.chunk_size
                                 : stream::ChunkSizeOf(predecessor.stem, chunk_size_);
  int64_t from[kParts];
  for (int part = 0; part < kParts; ++part) {
    const int64_t seal = predecessor.seal.length[part];
    from[part] = std::clamp<int64_t>(metadata.cache_length[part],
                                     std::max<int64_t>(0, seal - kTailBytesMax), seal);
    from[part] -= from[part] % chunk_size;
  }
  auto owned = std::make_unique<File>();
  File& file = *owned;
  file.shadow = std::make_unique<ShadowFile>(ports_, stream::FileId{shard_, predecessor.stem},
                                             chunk_size, metadata.primary_epoch, from, options_,
                                             counters_, scope_.Bind([this] {
                                               DropIdle();
                                               on_idle_();
                                             }));
  Insert(std::move(owned));
  file.shadow->Seal(predecessor.seal);
  for (Part part : {Part::kData, Part::kIndex}) {
    const int64_t begin = from[static_cast<int>(part)];
    const int64_t end = predecessor.seal.length[static_cast<int>(part)];
    if (begin < end) ReadTail(file, part, begin, end, chunk_size);
  }
}

void ClosedFiles::ReadTail(File& file, Part part, int64_t begin, int64_t end, int64_t chunk_size) {
  file.shadow->Expect(part, end);
  auto& reader = file.readers[static_cast<int>(part)];
  reader = std::make_unique<stream::RangeReader>(ports_, file.shadow->file(), part, chunk_size);
  auto bytes = std::make_shared<std::string>(static_cast<size_t>(end - begin), '\0');
  stream::RangeRequest request;
  request.from = begin;
  request.to = request.primary_limit = end;
  request.destination = bytes->data();
  request.room = end - begin;
  request.owner = bytes;
  const auto answer = reader->Read(request, file.scope_.Bind([this, &file, part, begin,
                                                              bytes](stream::RangeResult result) {
    Retire(*ports_.loop, std::move(file.readers[static_cast<int>(part)]));
    // What could not be read is missing from the cache; the primary layer has it.
    file.shadow->Expect(part, result.end);
    file.shadow->OnFlushed(
        part, begin, std::string_view(*bytes).substr(0, static_cast<size_t>(result.end - begin)));
  }));
  TAILCAST_CHECK(!answer.has_value(), "the primary layer answers later");
}

bool ClosedFiles::idle() const {
  return asked_ == 0 && std::all_of(files_.begin(), files_.end(),
                                    [](const auto& file) { return file->shadow->idle(); });
}

void ClosedFiles::PublishAgain() {
  for (const auto& file : files_) file->shadow->PublishAgain();
}

void ClosedFiles::DropIdle() {
  // Consumers that keep up may stand at the end of the newest one: it stays, so that its seal is
  // published again when the caches lose it.
  for (auto it = files_.begin(); it != files_.end();) {
    if (!(*it)->shadow->idle() || it + 1 == files_.end()) {
      ++it;
      continue;
    }
    Retire(*ports_.loop, std::move(*it));  // perhaps we are inside its shadow's callback
    it = files_.erase(it);
  }
}

}  // namespace tailcast::producer
