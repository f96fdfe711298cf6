#include "tailcast/stream/range_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::stream {
namespace {

FAULT_POINT(kReadOverGap, "stream.read_over_gap",
            "a read goes on behind a chunk that neither layer gave whole");

}  // namespace

struct RangeReader::Job {
  RangeRequest request;
  std::vector<cache::ChunkRead> reads;
  RangeResult result;
  int64_t primary_from = 0;
  int64_t primary_to = 0;
  Callback<void(RangeResult)> done;
};

RangeReader::RangeReader(const CellPorts& ports, const FileId& file, Part part, int64_t chunk_size,
                         Options options)
    : ports_(ports),
      file_(file),
      part_(part),
      chunk_size_(chunk_size),
      options_(std::move(options)),
      keys_(file.shard) {
  TAILCAST_CHECK(chunk_size > 0);
}

bool RangeReader::SkipCache(const RangeRequest& request) {
  if (skips_left_ == 0 || request.primary_limit < request.to) return false;
  --skips_left_;
  ++counters_.cache_skips;
  return true;
}

void RangeReader::Plan(const RangeRequest& request, std::vector<cache::ChunkRead>& reads) const {
  const int64_t base = ChunkStart(request.from);
  const int64_t limit = std::min(request.to, request.cache_limit);
  for (int64_t start = base; start < limit; start += chunk_size_) {
    cache::ChunkRead read;
    const int64_t want = std::min(limit - start, chunk_size_);
    if (start == base) {
      if (limit <= request.from) return;
      if (request.prefix_valid) {
        read.have = static_cast<uint32_t>(request.from - start);
        read.crc = request.prefix_crc;
      }
    }
    read.key = keys_.Chunk(file_.stem.seq, part_, chunk_size_, start / chunk_size_);
    read.want = static_cast<uint32_t>(want);
    read.capacity = static_cast<uint32_t>(std::min(chunk_size_, request.room - (start - base)));
    read.destination = request.destination + (start - base);
    reads.push_back(read);
  }
}

RangeResult RangeReader::Evaluate(const RangeRequest& request,
                                  const std::vector<cache::ChunkRead>& reads, int64_t* primary_from,
                                  int64_t* primary_to) const {
  RangeResult result;
  result.chunks = static_cast<int32_t>(reads.size());
  const int64_t base = ChunkStart(request.from);
  *primary_from = *primary_to = 0;
  bool contiguous = true;  // up to the chunk that is looked at
  result.end = request.from;
  if (request.prefix_valid || request.from == base) {
    result.tail_valid = true;
    result.tail_crc = request.from == base ? 0 : request.prefix_crc;
  }
  size_t i = 0;
  for (int64_t start = base; start < request.to; start += chunk_size_, ++i) {
    const int64_t need = std::min(request.to - start, chunk_size_);
    const int64_t before = start == base ? request.from - start : 0;
    const bool prefix = start == base && request.prefix_valid;
    int64_t got = prefix ? before : 0;
    if (i < reads.size()) {
      const cache::ChunkRead& read = reads[i];
      got = std::max<int64_t>(got, read.length);
      if (read.length < read.want) {
        if (!request.ahead)
          ++(read.length > read.have ? result.short_chunks : result.missing_chunks);
        result.late_chunks += read.late ? 1 : 0;
      }
    }
    if (contiguous && got >= before) {
      result.end = start + got;
      result.tail_valid = true;
      if (got == chunk_size_)
        result.tail_crc = 0;
      else if (i < reads.size() && reads[i].length > reads[i].have)
        result.tail_crc = reads[i].crc;
      else if (!prefix)
        result.tail_crc = 0;  // got is 0: nothing of this chunk yet
    }
    // Behind a gap the primary layer fills, which nobody asks if they are read ahead.
    if (contiguous || !request.ahead) result.cache_bytes += std::max<int64_t>(0, got - before);
    if (got < need) {
      const bool late = contiguous && i < reads.size() && reads[i].late;
      if (late && request.late_is_short && result.end > request.from) break;
      contiguous = false;
      // Fig 6: one read spans the combined positions of all the missing chunks.
      if (*primary_to == 0) *primary_from = start + got;
      *primary_to = start + need;
    }
  }
  *primary_to = std::min(*primary_to, request.primary_limit);
  if (*primary_to <= *primary_from) *primary_from = *primary_to = 0;
  return result;
}

std::optional<RangeResult> RangeReader::Read(const RangeRequest& request,
                                             Callback<void(RangeResult)> done) {
  const int64_t base = ChunkStart(request.from);
  TAILCAST_CHECK(request.from >= 0 && request.from < request.to, "an empty range");
  TAILCAST_CHECK(request.room >= request.to - base, "no room for the range");
  scratch_.clear();
  ++counters_.reads;
  bool complete = true;
  if (!SkipCache(request)) {
    Plan(request, scratch_);
    complete = scratch_.empty() || (!request.ahead && ports_.data_cache->TryReadChunks(scratch_));
  }
  int64_t primary_from = 0;
  int64_t primary_to = 0;
  if (complete) {
    RangeResult result = Evaluate(request, scratch_, &primary_from, &primary_to);
    if (primary_to == 0) {
      if (options_.steps.on()) LogChunks(scratch_, request.from);
      Count(result);
      return result;
    }
  }
  auto job = std::make_shared<Job>();
  job->request = request;
  job->reads = std::move(scratch_);
  job->done = std::move(done);
  scratch_ = std::vector<cache::ChunkRead>();
  if (complete) {
    AfterCache(job);
    return std::nullopt;
  }
  const auto mode = job->request.ahead ? cache::ReadMode::kAnyOne : cache::ReadMode::kRelaxed;
  ports_.data_cache->ReadChunks(job->reads, mode, options_.cache_timeout,
                                scope_.Bind([this, job] { AfterCache(job); }));
  return std::nullopt;
}

// spec DuelingWriters: ReadChunk. What the caller had of the first chunk before is not what the
// cache gave.
void RangeReader::LogChunks(const std::vector<cache::ChunkRead>& reads, int64_t from) const {
  int64_t chunk = from / chunk_size_;
  for (const cache::ChunkRead& read : reads) {
    options_.steps.Write("ReadChunk", part_,
                         {{"chunk", chunk++}, {"len", read.length > read.have ? read.length : 0}});
  }
}

void RangeReader::AfterCache(const std::shared_ptr<Job>& job) {
  if (options_.steps.on()) LogChunks(job->reads, job->request.from);
  job->result = Evaluate(job->request, job->reads, &job->primary_from, &job->primary_to);
  if (job->primary_to == 0) {
    Finish(job);
    return;
  }
  ++job->result.primary_reads;
  WithFile([this, job](storage::ReadFile* file, Status error) {
    if (file == nullptr) {
      AfterPrimary(job, std::move(error));
      return;
    }
    file->Read(job->primary_from, job->primary_to - job->primary_from,
               scope_.Bind([this, job](Result<std::string> bytes) {
                 AfterPrimary(job, std::move(bytes));
               }));
  });
}

void RangeReader::AfterPrimary(const std::shared_ptr<Job>& job, Result<std::string> bytes) {
  RangeResult& result = job->result;
  const RangeRequest& request = job->request;
  if (!bytes.ok()) {
    ++counters_.primary_errors;
    result.primary_error = bytes.status();
    if (!IsNotFound(bytes.status())) DropFile();
    Finish(job);
    return;
  }
  const int64_t span = job->primary_to - job->primary_from;
  if (static_cast<int64_t>(bytes->size()) > span) bytes->resize(static_cast<size_t>(span));
  if (static_cast<int64_t>(bytes->size()) < span) {
    ++counters_.short_primary_reads;
    result.primary_error =
        UnavailableError(file_.ToString() + ": the primary layer ends at " +
                         std::to_string(job->primary_from + static_cast<int64_t>(bytes->size())) +
                         ", before its published length");
  }
  const int64_t bytes_end = job->primary_from + static_cast<int64_t>(bytes->size());
  // spec DuelingWriters: ReadPrimary.
  if (bytes_end > job->primary_from) {
    options_.steps.Write("ReadPrimary", part_, {{"from", job->primary_from}, {"to", bytes_end}});
  }
  const int64_t base = ChunkStart(request.from);
  result.end = request.from;
  result.tail_valid = request.prefix_valid || request.from == base;
  result.tail_crc = request.from == base ? 0 : request.prefix_crc;
  size_t i = 0;
  for (int64_t start = base; start < request.to; start += chunk_size_, ++i) {
    char* const destination = request.destination + (start - base);
    const int64_t need = std::min(request.to - start, chunk_size_);
    const int64_t before = start == base ? request.from - start : 0;
    int64_t got = start == base && request.prefix_valid ? before : 0;
    if (i < job->reads.size()) got = std::max<int64_t>(got, job->reads[i].length);
    bool mixed = false;
    if (got < need && start + got >= job->primary_from) {
      const int64_t end = std::min(start + need, bytes_end);
      if (end > start + got) {
        std::memcpy(destination + got, bytes->data() + (start + got - job->primary_from),
                    static_cast<size_t>(end - start - got));
        result.primary_bytes += end - start - std::max(got, before);
        got = end - start;
        mixed = true;
      }
    }
    if (got < before) break;  // nothing of the range, and no valid prefix
    result.end = start + got;
    result.tail_valid = true;
    if (got == chunk_size_) {
      result.tail_crc = 0;
    } else if (mixed) {
      result.tail_crc = Crc32cExtend(0, destination, static_cast<size_t>(got));
    } else if (i < job->reads.size() && job->reads[i].length > job->reads[i].have) {
      result.tail_crc = job->reads[i].crc;
    } else if (got == 0) {
      result.tail_crc = 0;
    }
    if (got < need && !kReadOverGap.planted()) break;
  }
  Finish(job);
}

void RangeReader::Finish(const std::shared_ptr<Job>& job) {
  Count(job->result);
  // Never inside the call that registered it.
  ports_.loop->Post(scope_.Bind([job] { job->done(std::move(job->result)); }));
}

void RangeReader::Count(const RangeResult& result) {
  counters_.cache_bytes += result.cache_bytes;
  counters_.primary_bytes += result.primary_bytes;
  counters_.primary_reads += result.primary_reads;
  counters_.short_chunks += result.short_chunks;
  counters_.missing_chunks += result.missing_chunks;
  if (result.chunks == 0) return;
  if (result.cache_bytes > 0) {
    empty_reads_ = skip_length_ = skips_left_ = 0;
  } else if (result.primary_bytes > 0 && ++empty_reads_ >= options_.miss_streak) {
    skip_length_ = std::min(std::max(1, skip_length_ * 2), options_.skip_reads_max);
    skips_left_ = skip_length_;
  }
}

void RangeReader::WithFile(UseFile then) {
  if (primary_ != nullptr) {
    then(primary_.get(), OkStatus());
    return;
  }
  waiting_for_open_.push_back(std::move(then));
  if (opening_) return;
  opening_ = true;
  ports_.store->OpenRead(ShardDir(file_.shard), FileName(file_.stem, part_),
                         scope_.Bind([this](Result<std::unique_ptr<storage::ReadFile>> file) {
                           opening_ = false;
                           if (file.ok()) primary_ = std::move(*file);
                           auto waiting = std::exchange(waiting_for_open_, {});
                           for (auto& waiter : waiting) {
                             // A waiter may find the file dropped again by the one before it.
                             waiter(primary_.get(), primary_ != nullptr ? OkStatus()
                                                    : file.ok()
                                                        ? UnavailableError("the file was closed")
                                                        : file.status());
                           }
                         }));
}

void RangeReader::DropFile() {
  Retire(*ports_.loop, std::move(primary_));  // we may be inside one of its callbacks
}

void RangeReader::PrimarySize(Callback<void(Result<storage::FileSize>)> done) {
  WithFile([this, done = std::move(done)](storage::ReadFile* file, Status error) mutable {
    if (file == nullptr) {
      ports_.loop->Post(scope_.Bind([done = std::move(done), error = std::move(error)]() mutable {
        done(std::move(error));
      }));
      return;
    }
    file->Size(scope_.Bind([this, done = std::move(done)](Result<storage::FileSize> size) mutable {
      if (!size.ok() && !IsNotFound(size.status())) DropFile();
      done(std::move(size));
    }));
  });
}

}  // namespace tailcast::stream
