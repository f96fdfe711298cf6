#include "tailcast/producer/open_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::producer {

using stream::kIndexRecordSize;
using stream::Part;
using Kind = OpenEffect::Kind;

namespace {
constexpr int64_t kIndexReadBytes = 64 << 10;
// It may take a moment only: soon at first.
constexpr Duration kLookForRoomMin = Duration::Millis(15);
constexpr Duration kLookForRoomMax = Duration::Millis(250);

FAULT_POINT(kSealOneRecordEarly, "producer.seal_one_record_early",
            "a recovering opener leaves out the last record");
}  // namespace

OpenCore::OpenCore(stream::ShardId shard, OpenOptions options, uint64_t seed)
    : shard_(std::move(shard)), options_(options), rng_(seed) {}

OpenEffect OpenCore::Start() {
  owner_ = false;
  own_seq_ = 0;
  checked_ = options_.takeover;
  observed_seq_ = 0;
  observed_heartbeat_ = -1;
  observations_ = moves_ = 0;
  return List();
}

OpenEffect OpenCore::StartRoll(const stream::Stem& current, const stream::Seal& seal,
                               int64_t last_time_us, WallTime now) {
  owner_ = checked_ = true;
  own_seq_ = current.seq;
  races_ = 0;
  head_ = current;
  have_head_ = true;
  tried_.clear();
  tried_.insert(current);
  return Sealed(seal, last_time_us, now);
}

OpenEffect OpenCore::StartRecovery(const stream::Stem& current) {
  owner_ = checked_ = true;
  own_seq_ = current.seq;
  races_ = 0;
  tried_.insert(current);
  return List();
}

OpenEffect OpenCore::List() {
  step_ = Step::kListing;
  return {.kind = Kind::kList};
}

OpenEffect OpenCore::Fail(Status status) {
  step_ = Step::kIdle;
  return {.kind = Kind::kFailed, .status = std::move(status)};
}

OpenEffect OpenCore::Again() {
  if (++races_ > options_.races_max) {
    return Fail(UnavailableError(shard_.ToString() + ": other producers opened it " +
                                 std::to_string(options_.races_max) +
                                 " times meanwhile; run one producer per shard"));
  }
  // Whoever won is alive: ask again, and without leave to take over, be refused.
  if (!owner_ && !options_.takeover) checked_ = false;
  observations_ = 0;
  return List();
}

OpenEffect OpenCore::Failing(Status status) {
  step_ = Step::kFailing;
  return {.kind = Kind::kFailing, .status = std::move(status)};
}

OpenEffect OpenCore::OnListed(Result<std::vector<storage::DirEntry>> entries, WallTime now) {
  TAILCAST_CHECK(step_ == Step::kListing || step_ == Step::kWeighing ||
                 step_ == Step::kLookingAtFloor);
  if (!entries.ok()) return Failing(entries.status());
  auto listing = stream::ShardListing::Parse(*entries);
  if (!listing.ok()) return Fail(listing.status().WithContext(shard_.ToString()));
  if (step_ == Step::kWeighing) return Weigh(*listing, now);
  if (step_ == Step::kLookingAtFloor) {
    // Below the floor nobody would ever see it. Others went on meanwhile: the next look says who.
    if (listing->floor() > next_.seq) return Again();
    step_ = Step::kIdle;
    return {.kind = Kind::kOpened, .stem = next_};
  }
  listing_ = std::move(*listing);
  const int64_t last = listing_.last();
  have_head_ = last > 0;
  if (have_head_) head_ = listing_.pairs().rbegin()->second.stem;
  if (owner_) {
    for (auto it = listing_.pairs().upper_bound(own_seq_); it != listing_.pairs().end(); ++it) {
      if (tried_.contains(it->second.stem)) continue;
      return Fail(FailedPreconditionError(shard_.ToString() +
                                          ": another producer took it over with file " +
                                          std::to_string(it->first) + "; this one has stopped"));
    }
    if (last < own_seq_) {
      return Fail(DataLossError(shard_.ToString() + ": file " + std::to_string(own_seq_) +
                                ", which was open, is not in its folder any more"));
    }
  }
  if (!have_head_) {
    if (listing_.floor() > 1) {
      return Fail(DataLossError(shard_.ToString() + ": the folder has the floor marker " +
                                stream::FloorName(listing_.floor()) +
                                " but no message file to go on from"));
    }
    head_ = stream::Stem();
    return Sealed(stream::Seal(), 0, now);
  }
  if (checked_) return FenceHead();
  step_ = Step::kReadingMetadata;
  return {.kind = Kind::kReadMetadata, .stem = head_};
}

OpenEffect OpenCore::OnMetadata(Result<std::vector<stream::PairMetadata>> metadata) {
  TAILCAST_CHECK(step_ == Step::kReadingMetadata);
  if (!metadata.ok()) {
    return Fail(FailedPreconditionError(
        shard_.ToString() +
        ": whether another producer is alive is not known, because the metadata "
        "cache can't be read (" +
        metadata.status().message() + "). Try again, or take over with --takeover"));
  }
  // Of the newest file in the folder, and of one that may be newer still.
  int64_t heartbeat = 0;
  bool closed = !metadata->empty() && (*metadata)[0].sealed();
  for (size_t i = 0; i < metadata->size(); ++i) {
    heartbeat = std::max(heartbeat, (*metadata)[i].heartbeat_us);
    if (i > 0 && (*metadata)[i].known()) closed = false;
  }
  if (closed && observed_heartbeat_ < 0) {  // its producer said good-bye
    checked_ = true;
    observed_heartbeat_ = heartbeat;
    observed_seq_ = head_.seq;
    return FenceHead();
  }
  const bool moved =
      observed_heartbeat_ >= 0 && (heartbeat > observed_heartbeat_ || head_.seq > observed_seq_);
  if (moved) {
    // Once may have been a request of a dead producer that was still on its way.
    if (++moves_ >= 2) {
      return Fail(FailedPreconditionError(
          shard_.ToString() +
          " has a live producer: it gave signs of life while it was watched. Stop that one first, "
          "or take over from it with --takeover (it then stops with an error; nothing that it "
          "acknowledged is lost)"));
    }
    observations_ = 0;
  }
  observed_heartbeat_ = heartbeat;
  observed_seq_ = head_.seq;
  if (observations_++ >= options_.observe_steps) {
    checked_ = true;
    return FenceHead();
  }
  step_ = Step::kObserving;
  return {.kind = Kind::kWait, .wait = options_.observe / options_.observe_steps};
}

OpenEffect OpenCore::OnPartialMetadata() {
  TAILCAST_CHECK(step_ == Step::kReadingMetadata);
  const Duration wait = options_.observe / options_.observe_steps;
  waited_for_caches_ = waited_for_caches_ + wait;
  if (waited_for_caches_ > kCachesMax) {
    return Fail(FailedPreconditionError(
        shard_.ToString() +
        ": whether another producer is alive is not known, because too few replicas of the "
        "metadata cache are whole (`tailcast status` says why). Try again, or take over with "
        "--takeover"));
  }
  step_ = Step::kObserving;
  return {.kind = Kind::kWait, .wait = wait};
}

OpenEffect OpenCore::OnWaited() {
  TAILCAST_CHECK(step_ == Step::kObserving || step_ == Step::kFailing || step_ == Step::kFull);
  if (step_ != Step::kFull) return List();
  step_ = Step::kWeighing;
  return {.kind = Kind::kList};
}

OpenEffect OpenCore::FenceHead() {
  const stream::ListedPair& pair = *listing_.Find(head_.seq);
  if (!pair.has[0]) {
    return Fail(DataLossError(shard_.ToString() + ": " + FileName(head_, Part::kIndex) +
                              " is there but its data file is not"));
  }
  if (!pair.has[1]) {
    step_ = Step::kHelping;
    return {.kind = Kind::kCreate, .stem = head_, .part = Part::kIndex, .helping = true};
  }
  return Fence(Part::kIndex);
}

OpenEffect OpenCore::Fence(Part part) {
  step_ = part == Part::kIndex ? Step::kFencingIndex : Step::kFencingData;
  return {.kind = Kind::kFence, .stem = head_, .part = part};
}

OpenEffect OpenCore::OnFenced(Result<int64_t> committed_length, WallTime now) {
  TAILCAST_CHECK(step_ == Step::kFencingIndex || step_ == Step::kFencingData);
  if (!committed_length.ok()) {
    if (IsAborted(committed_length.status()) || IsNotFound(committed_length.status())) {
      return Again();
    }
    return Failing(committed_length.status());
  }
  if (step_ == Step::kFencingIndex) {
    index_length_ = *committed_length / kIndexRecordSize * kIndexRecordSize;
    return Fence(Part::kData);
  }
  data_length_ = *committed_length;
  if (index_length_ == 0) return Sealed(stream::Seal(), head_.created_us, now);
  return ReadEndOfIndex();
}

OpenEffect OpenCore::ReadEndOfIndex() {
  step_ = Step::kReadingIndex;
  read_from_ = std::max<int64_t>(0, index_length_ - kIndexReadBytes);
  return {.kind = Kind::kReadIndex,
          .stem = head_,
          .part = Part::kIndex,
          .from = read_from_,
          .to = index_length_};
}

Result<OpenCore::IndexEnd> OpenCore::EndOfIndex(std::string_view bytes, int64_t at,
                                                int64_t data_length) {
  const auto last = static_cast<int64_t>(bytes.size()) / kIndexRecordSize - 1;
  TAILCAST_CHECK(last >= 0);
  const int64_t index_length = at + (last + 1) * kIndexRecordSize;
  const auto record = stream::IndexRecord::Decode(bytes.data() + last * kIndexRecordSize);
  if (!record) {
    return DataLossError("the index record before byte " + std::to_string(index_length) +
                         " of its index is damaged");
  }
  if (record->end() > data_length) {
    return DataLossError("its data ends at byte " + std::to_string(data_length) +
                         ", and messages up to byte " + std::to_string(record->end()) +
                         " were acknowledged");
  }
  return IndexEnd{stream::Seal{{record->end(), index_length}}, record->time_us};
}

OpenEffect OpenCore::OnIndexRead(Result<std::string> bytes, WallTime now) {
  TAILCAST_CHECK(step_ == Step::kReadingIndex);
  if (!bytes.ok()) return Failing(bytes.status());
  if (kSealOneRecordEarly.planted() && bytes->size() > kIndexRecordSize) {
    bytes->resize(bytes->size() - kIndexRecordSize);
  }
  if (bytes->size() < kIndexRecordSize) {
    return Failing(UnavailableError("the index file reads shorter than its size"));
  }
  const auto end = EndOfIndex(*bytes, read_from_, data_length_);
  if (!end.ok()) {
    return Fail(DataLossError(shard_.ToString() + ": file " + std::to_string(head_.seq) +
                              " is damaged: " + end.status().message() +
                              ". Put both files of the pair " + FileName(head_, Part::kData) +
                              " back from another cell that has them or a backup, or delete the "
                              "stream (docs/ops/storage.md)"));
  }
  return Sealed(end->seal, end->last_time_us, now);
}

OpenEffect OpenCore::Sealed(const stream::Seal& seal, int64_t last_time_us, WallTime now) {
  predecessors_.clear();
  last_time_us_ = std::max(last_time_us, head_.created_us);
  if (have_head_) {
    predecessors_.push_back({head_, seal});
    if (!owner_ || own_seq_ < head_.seq) {
      // The one before may not have been shadowed to its end either.
      const auto before = listing_.SealOf(head_.seq - 1);
      if (before) predecessors_.push_back({listing_.Find(head_.seq - 1)->stem, *before});
    }
  }
  seal_ = seal;
  if (bytes_max_ == 0 || !have_head_) return Name(now);
  look_again_ = kLookForRoomMin;
  step_ = Step::kWeighing;
  return {.kind = Kind::kList};
}

OpenEffect OpenCore::Weigh(const stream::ShardListing& listing, WallTime now) {
  const stream::Stem& oldest =
      listing.pairs().empty() ? head_ : listing.pairs().begin()->second.stem;
  // As the scheduler counts them, who sees the head as the file that is open: or else each would
  // wait for the other.
  const int64_t kept = stream::BytesBetween(oldest, head_);
  if (bytes_max_ == 0 || kept <= bytes_max_ || listing.last() > head_.seq) return Name(now);
  step_ = Step::kFull;
  return {.kind = Kind::kFull,
          .wait = std::exchange(look_again_, std::min(look_again_ * 2, kLookForRoomMax)),
          .status = ResourceExhaustedError(
              shard_.ToString() + " keeps " + std::to_string(kept) +
              " bytes of closed files, and " + std::to_string(bytes_max_) +
              " are its limit: they go when every destination has them, or is left out "
              "(tailcast status names those that do not)")};
}

OpenEffect OpenCore::Name(WallTime now) {
  // A little before now, so that two openers in one microsecond choose different names.
  const int64_t created = now.micros() - static_cast<int64_t>(rng_.Below(1000));
  next_ = stream::Stem{head_.seq + 1, std::max({created, head_.created_us + 1, last_time_us_}),
                       head_.start_byte + seal_.length[0],
                       head_.start_number + seal_.length[1] / kIndexRecordSize, 0};
  if (options_.chunk_size > 0) {
    next_.chunk_size =
        chunk_size_ > 0 ? chunk_size_ : stream::ChunkSizeOf(head_, options_.chunk_size);
  }
  tried_.insert(next_);
  return Create(Part::kData);
}

OpenEffect OpenCore::Create(Part part) {
  step_ = part == Part::kData ? Step::kCreatingData : Step::kCreatingIndex;
  return {.kind = Kind::kCreate, .stem = next_, .part = part};
}

OpenEffect OpenCore::OnCreated(const Status& status) {
  switch (step_) {
    case Step::kHelping:
      // Ours or its owner's: it is there now, and has no metadata.
      if (status.ok() || IsAlreadyExists(status)) return Fence(Part::kIndex);
      return Failing(status);
    case Step::kCreatingData:
      if (status.ok()) return Create(Part::kIndex);
      break;
    case Step::kCreatingIndex:
      if (status.ok()) {
        step_ = Step::kLookingAtFloor;
        return {.kind = Kind::kList};
      }
      break;
    default:
      TAILCAST_CHECK(false, "no creation is outstanding");
  }
  // Somebody else has this number: look again who. Any other error may have left a file behind,
  // which the next listing shows.
  return IsAlreadyExists(status) ? Again() : Failing(status);
}

}  // namespace tailcast::producer
