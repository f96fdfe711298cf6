#include "tailcast/scheduler/disk_progress.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {
constexpr int kLookFilesMax = 64;
// How often a file is read before the whole answer fails: of many files on a disk that fails now
// and then one always would.
constexpr int kTriesMax = 4;
}  // namespace

v1::ShardProgressReply ToProto(const ShardProgress& progress) {
  v1::ShardProgressReply reply;
  reply.set_floor_seq(progress.floor);
  for (const PairLengths& file : progress.files) {
    v1::FileProgress* out = reply.add_files();
    out->set_stem(file.stem.ToString());
    out->set_data_length(file.length[0]);
    out->set_index_length(file.length[1]);
  }
  return reply;
}

ShardProgress FromProto(const v1::ShardProgressReply& reply) {
  ShardProgress progress;
  progress.floor = reply.floor_seq();
  for (const v1::FileProgress& file : reply.files()) {
    const auto stem = stream::Stem::Parse(file.stem());
    if (!stem || file.data_length() < 0 || file.index_length() < 0) continue;
    progress.files.push_back({*stem, {file.data_length(), file.index_length()}});
  }
  return progress;
}

void DiskProgress::List(const stream::ShardId& shard, Callback<void(Result<Listing>)> done) {
  store_.List(
      stream::ShardDir(shard),
      scope_.Bind([done = std::move(done)](Result<std::vector<storage::DirEntry>> entries) mutable {
        if (!entries.ok()) return done(entries.status());
        const auto parsed = stream::ShardListing::Parse(*entries);
        if (!parsed.ok()) return done(parsed.status());
        Listing listing{parsed->floor(), {}};
        for (const auto& [seq, pair] : parsed->pairs()) {
          if (pair.complete() && seq >= listing.floor) listing.stems.push_back(pair.stem);
        }
        done(std::move(listing));
      }));
}

struct DiskProgress::Reading {
  std::string dir;
  std::vector<stream::Stem> stems;
  size_t next = 0;  // in parts of files
  int tries = 0;    // of the part before that
  std::unique_ptr<storage::ReadFile> file;
  ShardProgress progress;
  Callback<void(Result<ShardProgress>)> done;
};

void DiskProgress::Read(const stream::ShardId& shard, int64_t floor, int64_t from_seq,
                        int files_max, Callback<void(Result<ShardProgress>)> done) {
  auto reading = std::make_shared<Reading>();
  reading->dir = stream::ShardDir(shard);
  reading->progress.floor = floor;
  reading->done = std::move(done);
  store_.List(reading->dir, scope_.Bind([this, reading, from_seq, files_max](
                                            Result<std::vector<storage::DirEntry>> entries) {
    if (!entries.ok()) return reading->done(entries.status());
    const auto listing = stream::ShardListing::Parse(*entries);
    if (!listing.ok()) return reading->done(listing.status());
    reading->progress.floor = std::max(reading->progress.floor, listing->floor());
    for (const auto& [seq, pair] : listing->pairs()) {
      if (seq >= from_seq && pair.complete() &&
          static_cast<int>(reading->stems.size()) < files_max) {
        reading->stems.push_back(pair.stem);
      }
    }
    ReadNext(reading);
  }));
}

void DiskProgress::ReadNext(const std::shared_ptr<Reading>& reading) {
  if (reading->next == reading->stems.size() * stream::kParts) {
    return reading->done(std::move(reading->progress));
  }
  const stream::Stem& stem = reading->stems[reading->next / stream::kParts];
  const size_t part = reading->next % stream::kParts;
  if (part == 0) reading->progress.files.push_back({stem, {0, 0}});
  ++reading->next;
  // The same part again, or no answer at all.
  const auto failed = [this, reading, part](const Status& why) {
    if (++reading->tries == kTriesMax) return reading->done(why);
    --reading->next;
    if (part == 0) reading->progress.files.pop_back();
    ReadNext(reading);
  };
  // Of a pair that is not whole nothing is said.
  const auto drop_pair = [this, reading, part](const Status& why) {
    if (IsDataLoss(why)) {
      reading->progress.damaged.push_back(reading->progress.files.back().stem.seq);
    }
    reading->progress.files.pop_back();
    reading->next += stream::kParts - 1 - part;
    reading->tries = 0;
    ReadNext(reading);
  };
  const auto is_not_whole = [](const Status& status) {
    return IsDataLoss(status) || IsNotFound(status);
  };
  store_.OpenRead(
      reading->dir, stream::FileName(stem, static_cast<stream::Part>(part)),
      scope_.Bind([this, reading, part, drop_pair, failed,
                   is_not_whole](Result<std::unique_ptr<storage::ReadFile>> file) {
        if (is_not_whole(file.status())) return drop_pair(file.status());
        if (!file.ok()) return failed(file.status());
        reading->file = std::move(*file);
        reading->file->CheckedSize(scope_.Bind(
            [this, reading, part, drop_pair, failed, is_not_whole](Result<storage::FileSize> size) {
              if (is_not_whole(size.status())) return drop_pair(size.status());
              if (!size.ok()) return failed(size.status());
              reading->tries = 0;
              reading->progress.files.back().length[part] = size->committed_length;
              ReadNext(reading);
            }));
      }));
}

struct DiskProgress::Looking {
  stream::ShardId shard;
  std::vector<std::pair<stream::Stem, stream::Seal>> files;  // one after the other
  size_t next = 0;                                           // in parts of files
  int64_t first = 1;                                         // of them
  int64_t done_to = 1;                                       // as found
  uint64_t began = 0;                                        // `lost_` then
  std::unique_ptr<storage::ReadFile> file;
  Callback<void(Result<int64_t>)> done;
};

void DiskProgress::FindDone(const stream::ShardId& shard, int64_t floor,
                            Callback<void(Result<int64_t>)> done) {
  auto looking = std::make_shared<Looking>();
  looking->shard = shard;
  looking->began = lost_;
  looking->done = std::move(done);
  store_.List(stream::ShardDir(shard), scope_.Bind([this, looking,
                                                    floor](Result<std::vector<storage::DirEntry>>
                                                               entries) {
    if (!entries.ok()) return looking->done(entries.status());
    const auto listing = stream::ShardListing::Parse(*entries);
    if (!listing.ok()) return looking->done(listing.status());
    const auto known = done_.find(looking->shard);
    looking->first = std::max({known == done_.end() ? 1 : known->second, floor, listing->floor()});
    looking->done_to = looking->first;
    for (int64_t seq = looking->first; static_cast<int>(looking->files.size()) < kLookFilesMax;
         ++seq) {
      const auto seal = listing->SealOf(seq);
      if (!seal || !listing->Find(seq)->complete()) break;
      looking->files.emplace_back(listing->Find(seq)->stem, *seal);
    }
    LookNext(looking);
  }));
}

void DiskProgress::LookNext(const std::shared_ptr<Looking>& looking) {
  const size_t file = looking->next / stream::kParts;
  if (looking->next % stream::kParts == 0) {  // all before are whole
    looking->done_to = looking->first + static_cast<int64_t>(file);
    // Not if one was found lacking, or the stream deleted, meanwhile.
    if (looking->began == lost_) done_[looking->shard] = looking->done_to;
    if (file == looking->files.size()) return looking->done(looking->done_to);
  }
  const auto part = static_cast<stream::Part>(looking->next++ % stream::kParts);
  const auto& [stem, seal] = looking->files[file];
  store_.OpenRead(stream::ShardDir(looking->shard), stream::FileName(stem, part),
                  scope_.Bind([this, looking, length = seal.length[static_cast<int>(part)]](
                                  Result<std::unique_ptr<storage::ReadFile>> opened) {
                    if (!opened.ok()) return looking->done(looking->done_to);
                    looking->file = std::move(*opened);
                    looking->file->CheckedSize(
                        scope_.Bind([this, looking, length](Result<storage::FileSize> size) {
                          if (!size.ok() || size->committed_length < length) {
                            return looking->done(looking->done_to);
                          }
                          LookNext(looking);
                        }));
                  }));
}

void DiskProgress::OnLacking(const stream::ShardId& shard, int64_t seq) {
  ++lost_;
  if (const auto known = done_.find(shard); known != done_.end()) {
    known->second = std::min(known->second, seq);
  }
}

void DiskProgress::Forget(const stream::StreamId& stream) {
  ++lost_;
  std::erase_if(done_, [&](const auto& entry) { return entry.first.stream == stream; });
}

}  // namespace tailcast::scheduler
