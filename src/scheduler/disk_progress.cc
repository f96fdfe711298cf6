#include "tailcast/scheduler/disk_progress.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {
constexpr int kLookFilesMax = 64;
// How often a file is read before it counts as unread: of many files on a disk that fails now and
// then one always would.
constexpr int kTriesMax = 4;
constexpr size_t kFailingMax = 1000;  // of a shard, kept in mind
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
  for (const int64_t seq : progress.unread) reply.add_unread_seqs(seq);
  if (progress.covered_to != INT64_MAX) reply.set_covered_to_seq(progress.covered_to);
  return reply;
}

ShardProgress FromProto(const v1::ShardProgressReply& reply, int files_max) {
  ShardProgress progress;
  progress.floor = reply.floor_seq();
  for (const v1::FileProgress& file : reply.files()) {
    const auto stem = stream::Stem::Parse(file.stem());
    if (!stem || file.data_length() < 0 || file.index_length() < 0) continue;
    progress.files.push_back({*stem, {file.data_length(), file.index_length()}});
  }
  const auto by_seq = [](const PairLengths& a, const PairLengths& b) {
    return a.stem.seq < b.stem.seq;
  };
  const auto same_seq = [](const PairLengths& a, const PairLengths& b) {
    return a.stem.seq == b.stem.seq;
  };
  auto& files = progress.files;
  std::stable_sort(files.begin(), files.end(), by_seq);
  files.erase(std::unique(files.begin(), files.end(), same_seq), files.end());
  const std::set<int64_t> unread(reply.unread_seqs().begin(), reply.unread_seqs().end());
  progress.unread.assign(unread.begin(), unread.end());
  if (reply.covered_to_seq() > 0) {
    progress.covered_to = reply.covered_to_seq();
  } else if (reply.files_size() >= files_max && !progress.files.empty()) {
    progress.covered_to = progress.files.back().stem.seq;
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
  explicit Reading(EventLoop& loop) : timer(loop) {}

  int64_t seq() const { return stems[file].seq; }

  stream::ShardId shard;
  uint64_t began = 0;               // `lost_` then
  std::vector<stream::Stem> stems;  // that were asked for
  size_t end = 0;                   // of the page: so many of them
  size_t file = 0;                  // of them, and `part` of it: read now
  size_t part = 0;
  int failures = 0;          // of that
  MonotonicTime file_began;  // reading it
  std::unique_ptr<storage::ReadFile> open;
  PairLengths pair;
  ShardProgress progress;
  Callback<void(Result<ShardProgress>)> done;  // null: the page has ended
  bool hangs = false;                          // ended, and its last call has no answer
  Timer timer;
};

void DiskProgress::Read(const stream::ShardId& shard, int64_t floor, int64_t from_seq,
                        int files_max, Callback<void(Result<ShardProgress>)> done) {
  auto reading = std::make_shared<Reading>(loop_);
  reading->shard = shard;
  reading->began = lost_;
  reading->progress.floor = floor;
  reading->done = std::move(done);
  store_.List(stream::ShardDir(shard),
              scope_.Bind([this, reading, from_seq,
                           files_max](const Result<std::vector<storage::DirEntry>>& entries) {
                OnListed(reading, from_seq, files_max, entries);
              }));
}

void DiskProgress::OnListed(const std::shared_ptr<Reading>& reading, int64_t from_seq,
                            int files_max, const Result<std::vector<storage::DirEntry>>& entries) {
  const auto listing = entries.ok() ? stream::ShardListing::Parse(*entries)
                                    : Result<stream::ShardListing>(entries.status());
  if (!listing.ok()) return reading->done(listing.status());
  ShardProgress& progress = reading->progress;
  progress.floor = std::max(progress.floor, listing->floor());
  for (const auto& [seq, pair] : listing->pairs()) {
    if (seq < from_seq || !pair.complete()) continue;
    if (static_cast<int>(reading->stems.size()) == files_max) {
      progress.covered_to = reading->stems.back().seq;
      break;
    }
    reading->stems.push_back(pair.stem);
  }
  if (const auto failing = failing_.find(reading->shard); failing != failing_.end()) {
    std::erase_if(failing->second, [&](const auto& file) {
      const stream::ListedPair* pair = listing->Find(file.first);
      return pair == nullptr || !pair->complete();
    });
    if (failing->second.empty()) failing_.erase(failing);
  }
  reading->end = reading->stems.size();
  reading->file_began = loop_.Now();
  reading->timer.After(kReadTime, scope_.Bind([this, weak = std::weak_ptr(reading)] {
    if (const auto reading = weak.lock(); reading != nullptr) OnTimeUp(*reading);
  }));
  ReadNext(reading);
}

void DiskProgress::NextFile(Reading& reading) {
  ++reading.file;
  reading.part = 0;
  reading.failures = 0;
}

bool DiskProgress::Hangs(const stream::ShardId& shard, int64_t seq) {
  const auto it = hanging_.find({shard, seq});
  if (it == hanging_.end()) return false;
  if (loop_.Now() < it->second) return true;
  hanging_.erase(it);
  return false;
}

void DiskProgress::ReadNext(const std::shared_ptr<Reading>& reading) {
  while (reading->file < reading->end && Hangs(reading->shard, reading->seq())) {
    SetUnread(*reading, "no answer");
    NextFile(*reading);
  }
  if (reading->file == reading->end) return End(*reading);
  if (reading->part == 0 && reading->failures == 0) reading->file_began = loop_.Now();
  store_.OpenRead(
      stream::ShardDir(reading->shard),
      stream::FileName(reading->stems[reading->file], static_cast<stream::Part>(reading->part)),
      scope_.Bind([this, reading](Result<std::unique_ptr<storage::ReadFile>> file) {
        if (!file.ok()) return OnPart(reading, file.status());
        if (reading->done == nullptr) return OnPart(reading, CancelledError("nobody waits"));
        reading->open = std::move(*file);
        reading->open->CheckedSize(scope_.Bind(
            [this, reading](const Result<storage::FileSize>& size) { OnPart(reading, size); }));
      }));
}

void DiskProgress::OnPart(const std::shared_ptr<Reading>& reading,
                          const Result<storage::FileSize>& size) {
  if (reading->done == nullptr) {
    const auto it = hanging_.find({reading->shard, reading->seq()});
    if (!reading->hangs || it == hanging_.end()) return;
    if (size.status().code() == StatusCode::kDeadlineExceeded) {  // and goes on to hang
      it->second = loop_.Now() + kHangsAgain;
    } else {
      hanging_.erase(it);
    }
    return;
  }
  ShardProgress& progress = reading->progress;
  if (size.ok()) {
    reading->pair.stem = reading->stems[reading->file];
    reading->pair.length[reading->part] = size->committed_length;
    reading->failures = 0;
    if (++reading->part < stream::kParts) return ReadNext(reading);
    progress.files.push_back(reading->pair);
    OnNotFailing(reading->shard, reading->seq());
  } else if (IsDataLoss(size.status()) || IsNotFound(size.status())) {
    if (IsDataLoss(size.status())) progress.damaged.push_back(reading->seq());
    OnNotFailing(reading->shard, reading->seq());
  } else if (TriesAgain(*reading, size.status())) {
    return ReadNext(reading);
  } else {
    SetUnread(*reading, size.status().message());
  }
  NextFile(*reading);
  ReadNext(reading);
}

// Not if it has failed before: the others wait.
bool DiskProgress::TriesAgain(Reading& reading, const Status& failure) const {
  const auto failing = failing_.find(reading.shard);
  return failure.code() != StatusCode::kDeadlineExceeded &&
         (failing == failing_.end() || !failing->second.contains(reading.seq())) &&
         ++reading.failures < kTriesMax;
}

void DiskProgress::SetUnread(Reading& reading, const std::string& why) {
  auto& failing = failing_[reading.shard];
  const int64_t seq = reading.seq();
  if (failing.contains(seq) || (failing.size() < kFailingMax && reading.began == lost_)) {
    failing[seq] = why;
  }
  if (failing.empty()) failing_.erase(reading.shard);
  reading.progress.unread.push_back(seq);
  // The others are asked for when the first of them is.
  if (static_cast<int>(reading.progress.unread.size()) == kUnreadMax &&
      reading.file + 1 < reading.end) {
    reading.end = reading.file + 1;
    reading.progress.early = true;
  }
}

void DiskProgress::OnTimeUp(Reading& reading) {
  reading.hangs = loop_.Now() - reading.file_began >= kReadTime / 2;
  if (reading.hangs) {
    hanging_[{reading.shard, reading.seq()}] = MonotonicTime::Max();
    SetUnread(reading, "no answer");
  }
  const size_t end = reading.file + (reading.hangs ? 1 : 0);  // else the next page begins with it
  reading.progress.early = reading.progress.early || end < reading.end;
  reading.end = end;
  End(reading);
}

void DiskProgress::End(Reading& reading) {
  reading.timer.Cancel();
  ShardProgress& progress = reading.progress;
  if (reading.end > 0) {
    const int64_t last = reading.stems[reading.end - 1].seq;
    // Also where the last one is unread: how far the shard is is not known.
    if (progress.early || (!progress.unread.empty() && progress.unread.back() == last)) {
      progress.covered_to = std::min(progress.covered_to, last);
    }
  }
  const size_t listed = std::min(reading.stems.size(), reading.end + (progress.early ? 1 : 0));
  progress.listed.assign(reading.stems.begin(),
                         reading.stems.begin() + static_cast<ptrdiff_t>(listed));
  std::exchange(reading.done, nullptr)(std::move(progress));
}

void DiskProgress::OnNotFailing(const stream::ShardId& shard, int64_t seq) {
  const auto failing = failing_.find(shard);
  if (failing == failing_.end()) return;
  failing->second.erase(seq);
  if (failing->second.empty()) failing_.erase(failing);
}

std::vector<std::string> DiskProgress::Failing() const {
  std::vector<std::string> lines;
  for (const auto& [shard, files] : failing_) {
    for (const auto& [seq, why] : files) {
      if (lines.size() == kShownMax) return lines;
      lines.push_back("file " + std::to_string(seq) + " of " + shard.ToString() +
                      " can't be read: " + why);
    }
  }
  return lines;
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
  const auto of_stream = [&](const auto& entry) { return entry.first.stream == stream; };
  std::erase_if(done_, of_stream);
  std::erase_if(failing_, of_stream);
  std::erase_if(hanging_, [&](const auto& entry) { return entry.first.first.stream == stream; });
}

}  // namespace tailcast::scheduler
