#include "tailcast/consumer/consumer_agent.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"

namespace tailcast::consumer {

using stream::kIndexRecordSize;
using stream::kParts;
using stream::PairMetadata;
using stream::Part;
using stream::Stem;

namespace {

constexpr int64_t kIndexWindowBytes = 64 << 10;
constexpr Duration kRetryMin = Duration::Millis(2);
constexpr Duration kIdleDoorbellPause = Duration::Millis(1);
constexpr Duration kWatchTimeout = Duration::Seconds(1);

int Index(Part part) { return static_cast<int>(part); }
std::string_view PartName(Part part) { return part == Part::kData ? "data" : "index"; }

}  // namespace

std::string_view AgentStateName(AgentState state) {
  switch (state) {
    case AgentState::kLocating:
      return "locating";
    case AgentState::kWaiting:
      return "waiting";
    case AgentState::kTailing:
      return "tailing";
    case AgentState::kQuiet:
      return "quiet";
    case AgentState::kStuck:
      return "stuck";
    case AgentState::kFailed:
      return "failed";
  }
  return "unknown";
}

// The file that is being read.
struct ConsumerAgent::File {
  stream::FileId id;
  int64_t chunk_size = 0;
  bool chunk_size_known = false;
  std::unique_ptr<stream::RangeReader> readers[kParts];
  bool fetching[kParts] = {false, false};
  // Of the fetch under way.
  int64_t wanted[kParts] = {0, 0};
  enum class Why : uint8_t { kCache, kDelayed, kNoMetadata, kCorrupt } why[kParts] = {};

  stream::FileSteps steps;
  int64_t logged_cache[kParts] = {0, 0}, logged_primary[kParts] = {0, 0};  // lengths, there

  PairMetadata metadata;          // field-wise maximum of all that was seen
  PairMetadata next_metadata;     // of the file after it
  std::optional<Stem> next_stem;  // from a listing
  std::optional<stream::Seal> seal;
  bool metadata_read = false;  // the metadata cache was asked
  bool metadata_known = false;

  int64_t at[kParts] = {0, 0};    // given to the user up to here
  bool unverified_start = false;  // a user's position that no record has confirmed yet
  DelayedReadCore delayed[kParts];
  int64_t primary_target[kParts] = {0, 0};  // Algorithm 1 allows the primary up to here
  int64_t distrust_until[kParts] = {0, 0};  // below it the cache has failed a check
  bool discard[kParts] = {false,
                          false};  // the fetch under way goes on from bytes that were dropped

  bool polling = false;
  bool poll_again = false;
  bool poll_was_news = true;  // the last poll changed the metadata
  MonotonicTime next_poll;
  MonotonicTime last_poll;
  MonotonicTime next_primary_poll;
  MonotonicTime next_listing;
  MonotonicTime last_progress;
  bool listing = false;
  Duration retry;  // after a short read
  MonotonicTime retry_at = MonotonicTime::Max();
  MonotonicTime rate_at = MonotonicTime::Max();
  bool waiting_for_next = false;

  explicit File(Duration delay_max)
      : delayed{DelayedReadCore(delay_max), DelayedReadCore(delay_max)} {}
  int64_t seal_of(int part) const { return seal ? seal->length[part] : INT64_MAX; }
  int64_t cache_limit(int part) const {
    return std::min(metadata.cache_length[part], seal_of(part));
  }
  int64_t primary_limit(int part) const {
    return std::min(metadata.primary_length[part], seal_of(part));
  }
};

// Finding the start point.
struct ConsumerAgent::Locator {
  std::vector<Stem> files;  // in order of their numbers; newest last
  std::map<int64_t, PairMetadata> listed;
  int64_t floor = 1;
  bool waiting = false;  // nothing is there yet
  // The search in one file's index.
  size_t file = 0;
  PairMetadata metadata;
  std::unique_ptr<stream::RangeReader> reader;
  int64_t low = 0, high = 0;  // the first record at or after the time lies in [low, high]
  int64_t count = 0;          // records of the file
  int64_t asked = 0;
  std::shared_ptr<std::string> bytes;
};

ConsumerAgent::ConsumerAgent(const stream::CellPorts& ports, stream::ShardId shard,
                             AgentOptions options, Callback<void()> on_ready)
    : ports_(ports),
      shard_(std::move(shard)),
      options_(options),
      on_ready_(std::move(on_ready)),
      dir_(stream::ShardDir(shard_)),
      keys_(shard_),
      step_name_(ports.steps != nullptr ? ports.steps->NewName() : ""),
      buffers_{TailBuffer(options.window_bytes * 2), TailBuffer(kIndexWindowBytes * 2)},
      rate_(options.rate_bytes_per_s, options.rate_burst_bytes) {}

ConsumerAgent::~ConsumerAgent() {
  *alive_ = false;
  ports_.loop->Cancel(timer_);
  if (watch_ != 0) ports_.metadata_cache->CancelWatch(watch_);
}

void ConsumerAgent::Start(const StartPoint& start) {
  TAILCAST_CHECK(!locator_ && !file_, "started twice");
  start_ = start;
  if (start.kind == StartPoint::Kind::kPosition) {
    const stream::Position& p = start.position;
    if (p.incarnation != shard_.stream.incarnation || p.shard != shard_.shard) {
      ports_.loop->Post([this, alive = std::weak_ptr<bool>(alive_)] {
        if (alive.expired()) return;
        Fail(InvalidArgumentError(
            "position " + start_.position.ToString() + " is not one of " + shard_.ToString() +
            (start_.position.incarnation != shard_.stream.incarnation
                 ? ": it is of another stream, or this one was deleted and created again since; "
                   "start from 'beginning'"
                 : "")));
      });
      return;
    }
  }
  Locate();
}

void ConsumerAgent::Fail(Status status) {
  if (failed_) return;
  failed_ = true;
  status_ = status.WithContext(shard_.ToString());
  ports_.loop->Cancel(timer_);
  timer_ = 0;
  if (watch_ != 0) ports_.metadata_cache->CancelWatch(watch_);
  watch_ = 0;
  SignalReady();
}

void ConsumerAgent::SignalReady() {
  if (signalled_) return;
  signalled_ = true;
  ports_.loop->Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired() && signalled_ && on_ready_) on_ready_();
  });
}

// --- Finding the start ---

void ConsumerAgent::Locate() {
  if (!locator_) locator_ = std::make_unique<Locator>();
  locator_->files.clear();
  locator_->listed.clear();
  ++counters_.listings;
  ports_.store->List(dir_, [this, alive = std::weak_ptr<bool>(alive_)](
                               Result<std::vector<storage::DirEntry>> entries) {
    if (alive.expired() || failed_) return;
    if (!entries.ok()) {
      ++counters_.primary_errors;
      LocateAgain();
      return;
    }
    OnListed(*entries);
  });
}

void ConsumerAgent::LocateAgain() {
  locator_->waiting = true;
  locator_->reader.reset();
  ports_.loop->Cancel(timer_);
  timer_ = ports_.loop->After(std::min(options_.primary_poll, Duration::Millis(200)), [this] {
    timer_ = 0;
    Locate();
  });
}

void ConsumerAgent::OnListed(const std::vector<storage::DirEntry>& entries) {
  auto listing = stream::ShardListing::Parse(entries);
  if (!listing.ok()) {
    Fail(listing.status());
    return;
  }
  locator_->floor = listing->floor();
  for (const auto& [seq, pair] : listing->pairs()) {
    // In a cell whose copies race the two files of a pair appear in any order; at the source half a
    // pair is one that is just being opened. Either way its name is settled.
    locator_->files.push_back(pair.stem);
  }
  const int64_t last = listing->pairs().empty() ? listing->floor() : listing->last();
  const int64_t group = stream::MetadataGroupOf(last);
  ++counters_.polls;
  ports_.metadata_cache->ReadValues(
      {{keys_.MetadataGroup(last)}, {keys_.MetadataGroup(last + stream::kPairsPerGroup)}},
      Duration::Seconds(1),
      [this, group, alive = std::weak_ptr<bool>(alive_)](
          Result<std::vector<std::optional<std::string>>> values) {
        if (alive.expired() || failed_) return;
        if (values.ok()) {
          for (int64_t g = 0; g < 2; ++g) {
            const auto& value = (*values)[static_cast<size_t>(g)];
            if (!value) continue;
            const int64_t first = std::max<int64_t>(1, (group + g) * stream::kPairsPerGroup);
            for (int64_t seq = first; seq < (group + g + 1) * stream::kPairsPerGroup; ++seq) {
              const PairMetadata metadata = stream::DecodePairMetadata(seq, *value);
              if (metadata.known() && seq >= locator_->floor) locator_->listed[seq] = metadata;
            }
          }
        } else {
          ++counters_.poll_failures;
        }
        OnListedMetadata();
      });
}

void ConsumerAgent::OnListedMetadata() {
  std::vector<Stem>& files = locator_->files;
  // Files that so far are known by their metadata only: their primary copies lag.
  for (const auto& [seq, metadata] : locator_->listed) {
    const bool listed = std::any_of(files.begin(), files.end(),
                                    [s = seq](const Stem& stem) { return stem.seq == s; });
    if (!listed) files.push_back(stream::StemOf(seq, metadata));
  }
  std::sort(files.begin(), files.end());
  if (!files.empty() && files.front().seq == locator_->floor) {
    first_available_ = stream::Position{shard_.stream.incarnation, shard_.shard,
                                        files.front().start_number, files.front().start_byte};
  }
  if (files.empty()) {  // nobody has produced yet, or nothing has arrived here
    LocateAgain();
    return;
  }
  const bool have_floor = files.front().seq == locator_->floor;
  switch (start_.kind) {
    case StartPoint::Kind::kBeginning:
      if (!have_floor) {
        ++counters_.hole_waits;
        LocateAgain();
        return;
      }
      OpenFile(files.front(), 0, 0);
      return;
    case StartPoint::Kind::kPosition: {
      const stream::Position& p = start_.position;
      if (have_floor && p.number < files.front().start_number) {
        Fail(OutOfRangeError("position " + p.ToString() +
                             " is not kept here any more; the first "
                             "available one is " +
                             first_available_->ToString()));
        return;
      }
      const Stem* best = nullptr;
      for (const Stem& stem : files) {
        if (stem.start_number <= p.number) best = &stem;
      }
      if (best == nullptr) {
        ++counters_.hole_waits;
        LocateAgain();
        return;
      }
      if (p.byte < best->start_byte ||
          (p.number == best->start_number && p.byte != best->start_byte)) {
        Fail(InvalidArgumentError("position " + p.ToString() +
                                  " is not the beginning of a message"));
        return;
      }
      const Stem stem = *best;
      OpenFile(stem, (p.number - stem.start_number) * kIndexRecordSize, p.byte - stem.start_byte);
      file_->unverified_start = true;
      return;
    }
    case StartPoint::Kind::kEnd:
      locator_->file = files.size() - 1;
      SearchFile();
      return;
    case StartPoint::Kind::kTime: {
      // Times within file n lie between its creation and its successor's, or a little before the
      // creation for messages that waited for it; those are found by searching on.
      size_t file = 0;
      for (size_t i = 0; i < files.size(); ++i) {
        if (files[i].created_us < start_.time.micros()) file = i;
      }
      if (file == 0 && !have_floor) {
        ++counters_.hole_waits;
        LocateAgain();
        return;
      }
      locator_->file = file;
      SearchFile();
      return;
    }
  }
}

// Finds out how long the index of the chosen file is, and searches it.
void ConsumerAgent::SearchFile() {
  Locator& l = *locator_;
  const Stem& stem = l.files[l.file];
  l.metadata = PairMetadata();
  if (const auto it = l.listed.find(stem.seq); it != l.listed.end()) l.metadata = it->second;
  const int64_t chunk_size =
      l.metadata.chunk_size > 0 ? l.metadata.chunk_size : options_.chunk_size;
  l.reader = std::make_unique<stream::RangeReader>(
      ports_, stream::FileId{shard_, stem}, Part::kIndex, chunk_size,
      stream::RangeReader::Options{.cache_timeout = options_.cache_timeout});
  std::optional<stream::Seal> seal;
  if (l.file + 1 < l.files.size()) seal = stream::SealBetween(stem, l.files[l.file + 1]);
  const auto search = [this](int64_t length) {
    locator_->count = locator_->high = length / kIndexRecordSize;
    locator_->low = 0;
    SearchStep();
  };
  if (seal) {
    l.metadata.primary_length[1] = seal->length[1];
    search(seal->length[1]);
    return;
  }
  ++counters_.primary_size_polls;
  l.reader->PrimarySize([this, search](Result<storage::FileSize> size) {
    if (failed_ || !locator_) return;
    PairMetadata& metadata = locator_->metadata;
    if (size.ok()) {
      metadata.primary_length[1] = std::max(metadata.primary_length[1], size->committed_length);
    }
    search(std::max(metadata.primary_length[1], metadata.cache_length[1]));
  });
}

void ConsumerAgent::SearchStep() {
  Locator& l = *locator_;
  if (start_.kind == StartPoint::Kind::kEnd) l.low = l.count;
  if (l.low < l.high) {
    l.asked = l.low + (l.high - l.low) / 2;
  } else if (l.count == 0) {
    FoundInIndex(0, 0);
    return;
  } else {
    l.asked = l.low < l.count ? l.low : l.count - 1;  // for its place in the data file
  }
  stream::RangeRequest request;
  request.from = l.asked * kIndexRecordSize;
  request.to = request.from + kIndexRecordSize;
  request.cache_limit = l.metadata.chunk_size > 0 ? l.metadata.cache_length[1] : 0;
  request.primary_limit = l.metadata.primary_length[1];
  const int64_t base = l.reader->ChunkStart(request.from);
  request.room = request.to - base;
  l.bytes = std::make_shared<std::string>(static_cast<size_t>(request.room), '\0');
  request.destination = l.bytes->data();
  request.owner = l.bytes;
  const auto handle = [this, from = request.from - base](const stream::RangeResult& result) {
    const auto have = static_cast<int64_t>(locator_->bytes->size());
    if (result.end < (locator_->asked + 1) * kIndexRecordSize || have < from + kIndexRecordSize) {
      ++counters_.short_reads;
      LocateAgain();
      return;
    }
    const auto record = stream::IndexRecord::Decode(locator_->bytes->data() + from);
    if (!record) {
      // The tail will say whether the primary layer has it right.
      Fail(DataLossError("index record " + std::to_string(locator_->asked) + " of file " +
                         std::to_string(locator_->files[locator_->file].seq) +
                         " fails its check sum"));
      return;
    }
    OnSearchRecord(*record);
  };
  // A chunk that spans records may end inside one: room for whole records is enough.
  const auto now = l.reader->Read(request, [this, handle](stream::RangeResult result) {
    if (!failed_ && locator_) handle(result);
  });
  if (now) {
    ports_.loop->Post([this, handle, result = *now, alive = std::weak_ptr<bool>(alive_)] {
      if (!alive.expired() && !failed_ && locator_) handle(result);
    });
  }
}

void ConsumerAgent::OnSearchRecord(const stream::IndexRecord& record) {
  Locator& l = *locator_;
  if (l.low < l.high) {
    if (record.time_us < start_.time.micros())
      l.low = l.asked + 1;
    else
      l.high = l.asked;
    SearchStep();
    return;
  }
  if (l.low < l.count) {
    FoundInIndex(l.low * kIndexRecordSize, record.offset);
  } else {
    FoundInIndex(l.count * kIndexRecordSize, record.end());
  }
}

void ConsumerAgent::FoundInIndex(int64_t index_at, int64_t data_at) {
  Locator& l = *locator_;
  const Stem stem = l.files[l.file];
  if (start_.kind == StartPoint::Kind::kTime && index_at == l.count * kIndexRecordSize &&
      l.file + 1 < l.files.size() && l.files[l.file + 1].seq == stem.seq + 1) {
    ++l.file;
    SearchFile();
    return;
  }
  OpenFile(stem, index_at, data_at);
}

void ConsumerAgent::OpenFile(const Stem& stem, int64_t index_at, int64_t data_at) {
  const MonotonicTime now = ports_.loop->Now();
  auto file = std::make_unique<File>(options_.delay_max);
  file->id = {shard_, stem};
  file->steps = stream::FileSteps(ports_.steps, file->id, "consumer", step_name_);
  file->chunk_size = options_.chunk_size;
  file->at[0] = data_at;
  file->at[1] = index_at;
  file->last_progress = file->next_listing = now;
  file->next_primary_poll = now + options_.primary_poll;
  file->next_poll = now;
  if (locator_) {
    if (const auto it = locator_->listed.find(stem.seq); it != locator_->listed.end()) {
      file->metadata = it->second;
    }
  } else if (file_ && file_->next_metadata.known()) {
    file->metadata = file_->next_metadata;
  }
  if (file->metadata.chunk_size > 0) {
    file->chunk_size = file->metadata.chunk_size;
    file->chunk_size_known = true;
  }
  for (Part part : {Part::kData, Part::kIndex}) {
    file->readers[Index(part)] = std::make_unique<stream::RangeReader>(
        ports_, file->id, part, file->chunk_size,
        stream::RangeReader::Options{.cache_timeout = options_.cache_timeout,
                                     .steps = file->steps});
    buffers_[Index(part)].Reset(file->at[Index(part)], file->chunk_size);
    file->steps.Write("ConsumerStart", part,
                      {{"at", file->at[Index(part)]}, {"chunkSize", file->chunk_size}});
  }
  if (file_ && watch_ != 0) {
    ports_.metadata_cache->CancelWatch(watch_);
    watch_ = 0;
  }
  ports_.loop->Cancel(timer_);
  timer_ = 0;
  // Perhaps inside a callback of the old file's readers.
  if (file_) ports_.loop->Post([old = std::shared_ptr<File>(std::move(file_))] {});
  if (locator_) ports_.loop->Post([old = std::shared_ptr<Locator>(std::move(locator_))] {});
  file_ = std::move(file);
  Arm(Duration());
}

// --- Lengths ---

void ConsumerAgent::Arm(Duration delay) {
  const MonotonicTime when = ports_.loop->Now() + delay;
  if (timer_ != 0 && timer_at_ <= when) return;
  ports_.loop->Cancel(timer_);
  timer_at_ = when;
  timer_ = ports_.loop->At(when, [this] {
    timer_ = 0;
    Wake();
  });
}

void ConsumerAgent::Wake() {
  if (failed_ || !file_) return;
  const MonotonicTime now = ports_.loop->Now();
  File& file = *file_;
  if (now >= file.next_poll) PollLengths();
  if (failed_ || file_.get() != &file) return;
  if (now >= file.next_primary_poll) PollPrimary();
  if (file.waiting_for_next && now >= file.next_listing) FindNextFile();
  if (now >= file.retry_at) file.retry_at = MonotonicTime::Max();
  if (now >= file.rate_at) file.rate_at = MonotonicTime::Max();
  LengthsChanged();
}

void ConsumerAgent::PollLengths() {
  File& file = *file_;
  file.next_poll = ports_.loop->Now() + options_.poll;
  if (file.polling) {
    file.poll_again = true;
    return;
  }
  file.polling = true;
  file.last_poll = ports_.loop->Now();
  ++counters_.polls;
  const int64_t seq = file.id.stem.seq;
  std::vector<cache::Client::ValueRead> reads = {{keys_.MetadataGroup(seq)}};
  if (stream::MetadataGroupOf(seq + 1) != stream::MetadataGroupOf(seq)) {
    reads.push_back({keys_.MetadataGroup(seq + 1)});
  }
  ports_.metadata_cache->ReadValues(
      std::move(reads), options_.cache_timeout,
      [this, seq, alive = std::weak_ptr<bool>(alive_)](
          Result<std::vector<std::optional<std::string>>> values) {
        if (alive.expired() || failed_ || !file_ || file_->id.stem.seq != seq) return;
        File& current = *file_;
        current.polling = false;
        current.metadata_read = true;
        if (!values.ok()) {
          ++counters_.poll_failures;
        } else {
          PairMetadata metadata, next;
          if ((*values)[0]) metadata = stream::DecodePairMetadata(seq, *(*values)[0]);
          const auto& next_value = values->back();
          if (next_value) next = stream::DecodePairMetadata(seq + 1, *next_value);
          const PairMetadata metadata_before = current.metadata;
          const PairMetadata next_before = current.next_metadata;
          OnMetadata(metadata, next);
          current.poll_was_news =
              current.metadata != metadata_before || current.next_metadata != next_before;
        }
        if (failed_ || file_.get() != &current) return;
        if (std::exchange(current.poll_again, false)) current.next_poll = ports_.loop->Now();
        // A doorbell on lengths that could not be read would notify at once, again and again.
        if (!values.ok()) {
          Arm(options_.poll);
        } else if (options_.doorbell) {
          Watch();
        }
        LengthsChanged();
      });
}

void ConsumerAgent::OnMetadata(const PairMetadata& metadata, const PairMetadata& next) {
  File& file = *file_;
  if (!metadata.known()) {
    ++counters_.metadata_unknown;
    file.metadata_known = false;
  } else if (stream::StemOf(file.id.stem.seq, metadata) != file.id.stem) {
    // Not our file's: of a value that was mixed up. Lengths are hints: do without.
    ++counters_.metadata_unknown;
    file.metadata_known = false;
    return;
  } else {
    file.metadata_known = true;
    file.metadata = stream::Merge(file.metadata, metadata);
  }
  if (next.known()) file.next_metadata = stream::Merge(file.next_metadata, next);
  if (file.metadata.chunk_size > 0 && !file.chunk_size_known) {
    file.chunk_size_known = true;
    if (file.chunk_size != file.metadata.chunk_size) {
      file.chunk_size = file.metadata.chunk_size;
      for (Part part : {Part::kData, Part::kIndex}) {
        file.readers[Index(part)] = std::make_unique<stream::RangeReader>(
            ports_, file.id, part, file.chunk_size,
            stream::RangeReader::Options{.cache_timeout = options_.cache_timeout,
                                         .steps = file.steps});
        // The answer of a read under way is dropped with its reader.
        buffers_[Index(part)].SetChunkSize(file.chunk_size, file.fetching[Index(part)]);
        file.fetching[Index(part)] = false;
      }
    }
  }
}

std::optional<Stem> ConsumerAgent::NextStem() const {
  if (file_->next_stem) return file_->next_stem;
  if (!file_->next_metadata.known()) return std::nullopt;
  return stream::StemOf(file_->id.stem.seq + 1, file_->next_metadata);
}

// Something may be known that was not: the seal, new lengths, or that the cache is late.
void ConsumerAgent::LengthsChanged() {
  File& file = *file_;
  const MonotonicTime now = ports_.loop->Now();
  if (!file.seal) {
    if (file.metadata.sealed()) {
      file.seal = stream::Seal{{*file.metadata.seal[0], *file.metadata.seal[1]}};
    } else if (const auto next = NextStem()) {
      file.seal = stream::SealBetween(file.id.stem, *next);
    }
  }
  for (int part = 0; part < kParts; ++part) {
    const int64_t cache = file.chunk_size_known ? file.cache_limit(part) : 0;
    const int64_t primary = file.primary_limit(part);
    if (!file.chunk_size_known || (file.metadata_read && !file.metadata_known)) {
      // Nobody knows what the cache has. Nothing to wait for.
      file.delayed[part].Clear();
      file.primary_target[part] = std::max(file.primary_target[part], primary);
    } else if (file.delayed[part].OnSizes(now, cache, primary) == DelayedRead::kDelayed) {
      file.primary_target[part] = std::max(file.primary_target[part], primary);
    }
  }
  Round();
}

void ConsumerAgent::PollPrimary() {
  File& file = *file_;
  const MonotonicTime now = ports_.loop->Now();
  file.next_primary_poll = now + options_.primary_poll;
  const bool moving = now - file.last_progress < options_.primary_poll;
  const bool complete = file.seal && file.primary_limit(0) == file.seal->length[0] &&
                        file.primary_limit(1) == file.seal->length[1];
  if ((moving && file.metadata_known) || complete) return;
  ++counters_.primary_size_polls;
  for (Part part : {Part::kData, Part::kIndex}) {
    file.readers[Index(part)]->PrimarySize(
        [this, part, raw = &file](Result<storage::FileSize> size) {
          if (failed_ || file_.get() != raw) return;
          if (!size.ok()) {
            if (!IsNotFound(size.status())) ++counters_.primary_errors;
            return;
          }
          int64_t& length = file_->metadata.primary_length[Index(part)];
          if (size->committed_length <= length) return;
          length = size->committed_length;
          Arm(Duration());
        });
  }
  // The producer's side says nothing: has it gone on in another file?
  const int64_t silent_us = ports_.loop->WallNow().micros() - file.metadata.heartbeat_us;
  if (file.seal) return;
  if (!file.metadata_known || silent_us > options_.stuck_after.micros()) FindNextFile();
}

void ConsumerAgent::Watch() {
  if (watch_ != 0 || !file_) return;
  const int64_t seq = file_->id.stem.seq;
  watch_ = ports_.metadata_cache->WatchValue(
      keys_.MetadataGroup(seq), kWatchTimeout, [this, seq](bool watched) {
        watch_ = 0;
        if (failed_ || !file_ || file_->id.stem.seq != seq) return;
        if (!watched) {
          ++counters_.refused_watches;
          Arm(options_.poll);
          return;
        }
        ++counters_.notifications;
        const MonotonicTime now = ports_.loop->Now();
        // Notifications without news (a neighbour's bucket, a replica that lags) are not followed
        // at any rate.
        const Duration pause = file_->poll_was_news
                                   ? options_.doorbell_pause
                                   : std::max(options_.doorbell_pause, kIdleDoorbellPause);
        const MonotonicTime when = std::max(now, file_->last_poll + pause);
        file_->next_poll = when;
        if (when > now)
          Arm(when - now);
        else
          Wake();
      });
}

// --- Bytes ---

void ConsumerAgent::Round() {
  if (failed_ || !file_ || in_round_) return;
  in_round_ = true;
  File* const file = file_.get();
  // Each fetch that is answered at once may make room for the next; a turn is bounded all the same.
  for (int i = 0; i < 4 && !failed_ && file_.get() == file; ++i) {
    const bool index = Fetch(Part::kIndex);
    const bool data = !failed_ && file_.get() == file && Fetch(Part::kData);
    if (!index && !data) break;
  }
  in_round_ = false;
  if (failed_) return;
  AdvanceFile();
  if (failed_ || file_.get() != file) return;
  if (ready()) SignalReady();
  // When to look again.
  const MonotonicTime now = ports_.loop->Now();
  MonotonicTime next = std::min({file->next_primary_poll, file->retry_at, file->rate_at});
  // With a watch set, polls are what its time-out does.
  if (!(options_.doorbell && watch_ != 0) && !file->polling) next = std::min(next, file->next_poll);
  if (options_.doorbell && watch_ != 0 && file->next_poll <= now) next = now;
  if (file->waiting_for_next) next = std::min(next, file->next_listing);
  for (const DelayedReadCore& delayed : file->delayed) next = std::min(next, delayed.Deadline());
  Arm(std::max(Duration(), next - now));
}

// spec DuelingWriters: PollCache, PollPrimary. The largest lengths that were seen, when they are
// used.
void ConsumerAgent::LogLengths(int part) {
  File& file = *file_;
  if (file.metadata.cache_length[part] > file.logged_cache[part]) {
    file.logged_cache[part] = file.metadata.cache_length[part];
    file.steps.Write("PollCache", static_cast<Part>(part), {{"len", file.logged_cache[part]}});
  }
  if (file.metadata.primary_length[part] > file.logged_primary[part]) {
    file.logged_primary[part] = file.metadata.primary_length[part];
    file.steps.Write("PollPrimary", static_cast<Part>(part), {{"len", file.logged_primary[part]}});
  }
}

// True if bytes arrived inside the call.
bool ConsumerAgent::Fetch(Part part) {
  File& file = *file_;
  const int p = Index(part);
  if (file.fetching[p]) return false;
  const MonotonicTime now = ports_.loop->Now();
  if (file.retry_at != MonotonicTime::Max() || file.rate_at != MonotonicTime::Max()) return false;
  TailBuffer& buffer = buffers_[p];
  const int64_t end = buffer.end();
  int64_t window = part == Part::kData ? options_.window_bytes : kIndexWindowBytes;
  int64_t needed = file.at[p] + (part == Part::kIndex ? kIndexRecordSize : 1);
  if (part == Part::kData) {
    // A message larger than the window has to fit as a whole.
    const TailBuffer& index = buffers_[1];
    if (index.end() >= file.at[1] + kIndexRecordSize) {
      if (const auto record = stream::IndexRecord::Decode(index.at(file.at[1]));
          record && record->length <= options_.message_bytes_max) {
        window = std::max<int64_t>(window, record->length);
        needed = record->end();
      }
    }
  }
  int64_t to = file.at[p] + window;
  // Small top-ups of a window that is nearly full are not worth a fetch.
  if (end >= needed && end >= to - window / 4) return false;
  File::Why why = File::Why::kCache;
  int64_t cache_limit = file.chunk_size_known ? file.cache_limit(p) : 0;
  const int64_t primary_limit = file.primary_limit(p);
  if (end < file.distrust_until[p]) {
    why = File::Why::kCorrupt;
    cache_limit = 0;
    to = std::min({to, file.distrust_until[p], primary_limit});
  } else if (cache_limit > end) {
    to = std::min(to, cache_limit);
  } else {
    why = file.metadata_known ? File::Why::kDelayed : File::Why::kNoMetadata;
    to = std::min({to, file.primary_target[p], primary_limit});
  }
  if (to <= end) return false;
  if (part == Part::kData) {
    const int64_t available = rate_.Available(now);
    const int64_t least = std::min(to - end, file.chunk_size);
    if (available < least) {
      ++counters_.rate_limited;
      file.rate_at = now + rate_.Wait(std::min(to - end, options_.window_bytes / 4));
      return false;
    }
    if (available < to - end) to = end + available;
  }
  stream::RangeRequest request;
  request.from = end;
  request.to = to;
  request.cache_limit = cache_limit;
  request.primary_limit =
      options_.bug == PlantedBug::kDeliverOverHole && part == Part::kData ? 0 : primary_limit;
  request.destination = buffer.Prepare(file.at[p], to, &request.room);
  request.owner = buffer.owner();
  request.prefix_valid = buffer.tail_valid();
  request.prefix_crc = buffer.tail_crc();
  // A chunk may be longer than its published length, never longer than the seal.
  request.room =
      std::min(request.room, std::max(to, std::min(file.seal_of(p), to + file.chunk_size)) -
                                 buffer.ChunkStart(end));
  file.fetching[p] = true;
  file.wanted[p] = to;
  file.why[p] = why;
  ++counters_.fetches;
  if (file.steps.on()) LogLengths(p);
  const auto result = file.readers[p]->Read(request, [this, part](stream::RangeResult late) {
    if (failed_) return;
    OnFetched(part, late);
    LengthsChanged();
  });
  if (!result) return false;
  const int64_t before = buffer.end();
  OnFetched(part, *result);
  return buffer.end() > before;
}

void ConsumerAgent::OnFetched(Part part, const stream::RangeResult& result) {
  File& file = *file_;
  const int p = Index(part);
  TailBuffer& buffer = buffers_[p];
  file.fetching[p] = false;
  counters_.cache_bytes += result.cache_bytes;
  counters_.primary_bytes += result.primary_bytes;
  counters_.short_chunks += result.short_chunks;
  counters_.missing_chunks += result.missing_chunks;
  if (result.primary_reads > 0) {
    switch (file.why[p]) {
      case File::Why::kCache:
        ++counters_.fallback_missing_chunk;
        break;
      case File::Why::kDelayed:
        ++counters_.fallback_delayed;
        break;
      case File::Why::kNoMetadata:
        ++counters_.fallback_no_metadata;
        break;
      case File::Why::kCorrupt:
        ++counters_.fallback_corrupt;
        break;
    }
  }
  if (!result.primary_error.ok() && !IsNotFound(result.primary_error)) ++counters_.primary_errors;
  if (part == Part::kData) rate_.Spend(result.cache_bytes + result.primary_bytes);
  const MonotonicTime now = ports_.loop->Now();
  if (std::exchange(file.discard[p], false)) return;
  if (options_.bug == PlantedBug::kDeliverOverHole && part == Part::kData &&
      result.end < file.wanted[p]) {
    buffer.Extend(file.wanted[p], false, 0);
  } else if (result.end > buffer.end()) {
    buffer.Extend(result.end, result.tail_valid, result.tail_crc);
    file.last_progress = now;
  }
  trouble_[p] = result.end < file.wanted[p] ? result.primary_error : OkStatus();
  if (result.end < file.wanted[p]) {
    ++counters_.short_reads;
    file.retry = std::min(std::max(kRetryMin, file.retry * 2), options_.poll);
    file.retry_at = now + file.retry;
  } else {
    file.retry = Duration();
  }
}

bool ConsumerAgent::ready() const {
  if (failed_) return true;
  if (!file_) return false;
  const TailBuffer& index = buffers_[1];
  if (index.end() < file_->at[1] + kIndexRecordSize) return false;
  const auto record = stream::IndexRecord::Decode(index.at(file_->at[1]));
  if (!record || record->offset != file_->at[0]) return true;  // Take finds out what is wrong
  return record->length > options_.message_bytes_max || buffers_[0].end() >= record->end();
}

size_t ConsumerAgent::Take(std::vector<Message>& out, int64_t bytes_max) {
  signalled_ = false;
  if (failed_ || !file_) return 0;
  File* const file = file_.get();
  const TailBuffer& index = buffers_[1];
  const TailBuffer& data = buffers_[0];
  const Stem& stem = file->id.stem;
  size_t count = 0;
  int64_t bytes = 0;
  const int64_t given[kParts] = {file->at[0], file->at[1]};
  while (bytes < bytes_max && index.end() >= file->at[1] + kIndexRecordSize) {
    const auto record = stream::IndexRecord::Decode(index.at(file->at[1]));
    if (!record) {
      OnCorrupt(Part::kIndex, file->at[1] + kIndexRecordSize, "a record fails its check sum");
      break;
    }
    if (options_.bug == PlantedBug::kSkipRecordAtRollOver && file->at[0] == 0 &&
        file->at[1] == kIndexRecordSize) {
      file->at[0] = record->offset;
    }
    if (record->offset != file->at[0] || record->length > options_.message_bytes_max ||
        record->end() > file->seal_of(0)) {
      if (file->unverified_start) {
        Fail(InvalidArgumentError("position " + start_.position.ToString() +
                                  " is not the beginning of a message"));
        break;
      }
      OnCorrupt(Part::kIndex, file->at[1] + kIndexRecordSize,
                "a record does not continue the one before it");
      break;
    }
    if (data.end() < record->end()) break;
    const std::string_view payload(data.at(record->offset), record->length);
    if (Crc32c(payload) != record->payload_crc && options_.bug != PlantedBug::kSkipPayloadCheck &&
        options_.bug != PlantedBug::kDeliverOverHole) {
      OnCorrupt(Part::kData, record->end(), "a payload fails its check sum");
      break;
    }
    file->unverified_start = false;
    out.push_back({payload, stem.start_number + file->at[1] / kIndexRecordSize,
                   stem.start_byte + record->offset, record->time_us, shard_.shard});
    file->at[1] += kIndexRecordSize;
    file->at[0] = record->end();
    bytes += record->length;
    ++count;
  }
  for (Part part : {Part::kData, Part::kIndex}) {
    const int64_t at = file->at[Index(part)];
    if (at != given[Index(part)]) file->steps.Write("Deliver", part, {{"to", at}});
  }
  counters_.messages += static_cast<int64_t>(count);
  counters_.bytes += bytes;
  if (count > 0) {
    views_out_ = true;
    if (options_.bug != PlantedBug::kKeepViewsUnpinned) {
      for (TailBuffer& buffer : buffers_) buffer.Pin();
    }
  }
  if (!failed_) Arm(Duration());
  return count;
}

void ConsumerAgent::Release() {
  if (views_out_) {
    views_out_ = false;
    for (TailBuffer& buffer : buffers_) buffer.Unpin();
  }
  Round();
}

void ConsumerAgent::OnCorrupt(Part part, int64_t end, const std::string& what) {
  File& file = *file_;
  const int p = Index(part);
  const int64_t at = file.at[p];
  if (end <= file.distrust_until[p]) {
    // All of these bytes came from the primary layer.
    Fail(DataLossError(stream::FileName(file.id.stem, part) + ": " + what + " at byte " +
                       std::to_string(at) + " of the " + std::string(PartName(part)) +
                       " file, in the primary layer too (message " +
                       std::to_string(file.id.stem.start_number + file.at[1] / kIndexRecordSize) +
                       " of the shard); repair the file from another cell's copy, or begin behind "
                       "that message"));
    return;
  }
  file.distrust_until[p] = buffers_[p].end();
  file.discard[p] = file.fetching[p];
  buffers_[p].Truncate(at);
}

// --- From file to file ---

void ConsumerAgent::AdvanceFile() {
  File& file = *file_;
  file.waiting_for_next = false;
  if (!file.seal) return;
  const stream::Seal& seal = *file.seal;
  if (file.at[1] < seal.length[1] || file.fetching[0] || file.fetching[1]) return;
  if (file.at[1] == seal.length[1] && file.at[0] != seal.length[0]) {
    if (file.unverified_start) {
      Fail(InvalidArgumentError("position " + start_.position.ToString() +
                                " is not the beginning of a message"));
      return;
    }
    Fail(DataLossError("file " + std::to_string(file.id.stem.seq) + " ends at data byte " +
                       std::to_string(seal.length[0]) + ", but its records end at " +
                       std::to_string(file.at[0])));
    return;
  }
  const int64_t index_at = file.at[1] - seal.length[1];
  const int64_t data_at = file.at[0] - seal.length[0];
  const auto next = NextStem();
  if (!next) {
    file.waiting_for_next = true;
    return;
  }
  if (data_at < 0) {
    Fail(InvalidArgumentError("position " + start_.position.ToString() +
                              " is not the beginning of a message"));
    return;
  }
  const bool unverified = file.unverified_start;
  ++counters_.roll_overs;
  if (options_.bug == PlantedBug::kSkipRecordAtRollOver) {
    OpenFile(*next, kIndexRecordSize, 0);
    return;
  }
  OpenFile(*next, index_at, data_at);
  file_->unverified_start = unverified;
}

void ConsumerAgent::FindNextFile() {
  File& file = *file_;
  file.next_listing = ports_.loop->Now() + options_.primary_poll;
  if (file.listing) return;
  file.listing = true;
  ++counters_.listings;
  ports_.store->List(dir_, [this, raw = &file, alive = std::weak_ptr<bool>(alive_)](
                               Result<std::vector<storage::DirEntry>> entries) {
    if (alive.expired() || failed_ || file_.get() != raw) return;
    File& current = *file_;
    current.listing = false;
    if (!entries.ok()) {
      ++counters_.primary_errors;
      return;
    }
    const auto listing = stream::ShardListing::Parse(*entries);
    if (!listing.ok()) {
      Fail(listing.status());
      return;
    }
    const int64_t seq = current.id.stem.seq;
    if (listing->floor() > seq + 1 || (listing->floor() > seq && !current.seal)) {
      const stream::ListedPair* first = listing->Find(listing->floor());
      if (first != nullptr) {
        first_available_ = stream::Position{shard_.stream.incarnation, shard_.shard,
                                            first->stem.start_number, first->stem.start_byte};
      }
      Fail(OutOfRangeError("file " + std::to_string(seq) +
                           " is not kept here any more; the first "
                           "available position is " +
                           (first_available_ ? first_available_->ToString() : "not known yet")));
      return;
    }
    if (const stream::ListedPair* next = listing->Find(seq + 1)) {
      current.next_stem = next->stem;
      Arm(Duration());
    } else if (listing->last() > seq) {
      ++counters_.hole_waits;
      if (options_.bug == PlantedBug::kSkipHole && current.seal &&
          current.at[1] == current.seal->length[1]) {
        OpenFile(listing->pairs().upper_bound(seq)->second.stem, 0, 0);
      }
    }
  });
}

std::optional<stream::Position> ConsumerAgent::position() const {
  if (!file_) return std::nullopt;
  const Stem& stem = file_->id.stem;
  return stream::Position{shard_.stream.incarnation, shard_.shard,
                          stem.start_number + file_->at[1] / kIndexRecordSize,
                          stem.start_byte + file_->at[0]};
}

int64_t ConsumerAgent::lag_bytes() const {
  if (!file_) return 0;
  const int64_t known = std::max(file_->cache_limit(0), file_->primary_limit(0));
  return std::max<int64_t>(0, known - file_->at[0]);
}

WallTime ConsumerAgent::as_of() const {
  if (!file_) return WallTime();
  return WallTime::FromMicros(
      std::max(file_->metadata.heartbeat_us, file_->next_metadata.heartbeat_us));
}

std::string ConsumerAgent::DebugString() const {
  std::string text = shard_.ToString() + " " + std::string(AgentStateName(state()));
  if (!file_) return text;
  const File& file = *file_;
  text += " file " + std::to_string(file.id.stem.seq);
  for (Part part : {Part::kData, Part::kIndex}) {
    const int p = Index(part);
    text += "; " + std::string(PartName(part)) + " given " + std::to_string(file.at[p]) + " read " +
            std::to_string(buffers_[p].end()) + " cache " +
            std::to_string(file.metadata.cache_length[p]) + " primary " +
            std::to_string(file.metadata.primary_length[p]) + " allowed " +
            std::to_string(file.primary_target[p]);
    if (file.seal) text += " seal " + std::to_string(file.seal->length[p]);
    if (file.fetching[p]) text += " fetching";
  }
  if (!file.metadata_known) text += "; no metadata";
  if (file.polling) text += "; polling";
  if (watch_ != 0) text += "; watching";
  if (file.listing) text += "; listing";
  if (file.waiting_for_next) text += "; waiting for the next file";
  if (timer_ != 0) {
    text += "; wakes in " + std::to_string((timer_at_ - ports_.loop->Now()).micros()) + " us";
  }
  return text;
}

AgentState ConsumerAgent::state() const {
  if (failed_) return AgentState::kFailed;
  if (!file_) {
    return locator_ && locator_->waiting ? AgentState::kWaiting : AgentState::kLocating;
  }
  if (lag_bytes() > 0) return AgentState::kTailing;
  if (file_->waiting_for_next) return AgentState::kWaiting;
  const Duration silent = ports_.loop->WallNow() - as_of();
  if (silent > options_.stuck_after &&
      ports_.loop->Now() - file_->last_progress > options_.stuck_after) {
    return AgentState::kStuck;
  }
  return AgentState::kQuiet;
}

}  // namespace tailcast::consumer
