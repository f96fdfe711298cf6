#include "tailcast/consumer/start_search_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::consumer {

using stream::IndexRecord;
using stream::kIndexRecordSize;
using stream::PairMetadata;
using stream::Position;
using stream::Stem;

namespace {

FAULT_POINT(kBeginAtFloor, "consumer.begin_at_floor",
            "who comes back behind the floor begins there, and nobody is told");

// Looks in which the metadata cache did not say whether there are files.
constexpr int kUndecidedMax = 10;

Status NoBeginning(const Position& position) {
  return InvalidArgumentError("position " + position.ToString() +
                              " is not the beginning of a message");
}

}  // namespace

StartSearchCore::StartSearchCore(const StartPoint& start, stream::ShardId shard, int64_t chunk_size)
    : start_(start), shard_(std::move(shard)), chunk_size_(chunk_size) {}

StartSearchCore::Step StartSearchCore::Begin() {
  const Position& p = start_.position;
  if (start_.kind == StartPoint::Kind::kPosition &&
      (p.incarnation != shard_.stream.incarnation || p.shard != shard_.shard)) {
    return InvalidArgumentError(
        "position " + p.ToString() + " is not one of " + shard_.ToString() +
        (p.incarnation != shard_.stream.incarnation
             ? ": it is of another stream, or this one was deleted and created again since; "
               "start from 'beginning'"
             : ""));
  }
  files_.clear();
  metadata_.clear();
  return List{};
}

StartSearchCore::Step StartSearchCore::OnListing(const Result<stream::ShardListing>& listing) {
  if (!listing.ok()) return listing.status();
  floor_ = listing->floor();
  listed_ = true;
  // In a cell whose copies race the two files of a pair appear in any order; at the source half a
  // pair is one that is just being opened. Either way its name is settled.
  for (const auto& [seq, pair] : listing->pairs()) files_.push_back(pair.stem);
  listed_files_ = files_;
  return ReadMetadata{listing->pairs().empty() ? floor_ : listing->last()};
}

StartSearchCore::Step StartSearchCore::OnMetadata(std::span<const cache::ValueAnswer> values) {
  const int64_t last = files_.empty() ? floor_ : files_.back().seq;
  int64_t group = stream::MetadataGroupOf(last);
  for (const auto& value : values) {
    const int64_t end = (group + 1) * stream::kPairsPerGroup;
    for (int64_t seq = std::max(floor_, group * stream::kPairsPerGroup);
         value.has_value() && seq < end; ++seq) {
      const PairMetadata metadata = stream::DecodePairMetadata(seq, *value);
      if (metadata.known()) metadata_[seq] = metadata;
    }
    ++group;
  }
  // Files that so far are known by their metadata only: their primary copies lag.
  for (const auto& [seq, metadata] : metadata_) {
    const bool listed = std::any_of(files_.begin(), files_.end(),
                                    [s = seq](const Stem& stem) { return stem.seq == s; });
    if (!listed) files_.push_back(stream::StemOf(seq, metadata));
  }
  std::sort(files_.begin(), files_.end());
  if (files_.empty()) {  // nobody has produced yet, or nothing has arrived here
    if (start_.kind != StartPoint::Kind::kEnd || end_file_) return Wait{};
    const bool known = !values.empty() && std::all_of(values.begin(), values.end(),
                                                      [](const auto& v) { return v.complete; });
    if (!known && (start_.certain || ++undecided_ < kUndecidedMax)) {
      return Wait{.undecided = true};
    }
    end_file_ = floor_;
    return Wait{};
  }
  if (HaveFloor()) {
    first_available_ = Position{shard_.stream.incarnation, shard_.shard,
                                files_.front().start_number, files_.front().start_byte};
  }
  switch (start_.kind) {
    case StartPoint::Kind::kBeginning:
      if (!HaveFloor()) return Wait{.hole = true};
      return PlaceIn(files_.front(), 0, 0);
    case StartPoint::Kind::kPosition:
      return FindPosition();
    case StartPoint::Kind::kEnd:
      return FindEnd();
    case StartPoint::Kind::kTime:
      return FindTime();
    case StartPoint::Kind::kNumber:
      return FindNumber();
  }
  return Wait{};
}

StartSearchCore::Step StartSearchCore::FindPosition() const {
  const Position& p = start_.position;
  if (HaveFloor() && p.number < files_.front().start_number) {
    if (kBeginAtFloor.planted()) return PlaceIn(files_.front(), 0, 0);
    return OutOfRangeError("position " + p.ToString() +
                           " is not kept here any more; the first available one is " +
                           first_available_->ToString());
  }
  const Stem* best = nullptr;
  for (const Stem& stem : files_) {
    if (stem.start_number <= p.number) best = &stem;
  }
  if (best == nullptr) return Wait{.hole = true};
  if (p.byte < best->start_byte || (p.number == best->start_number && p.byte != best->start_byte)) {
    return NoBeginning(p);
  }
  FilePlace place =
      PlaceIn(*best, p.byte - best->start_byte, (p.number - best->start_number) * kIndexRecordSize);
  place.unverified = p;
  return place;
}

StartSearchCore::Step StartSearchCore::FindEnd() {
  if (!end_file_) {
    file_ = files_.size() - 1;
    return SearchFile();
  }
  const auto first = std::find_if(files_.begin(), files_.end(),
                                  [this](const Stem& stem) { return stem.seq >= *end_file_; });
  if (first != files_.end() && first->seq == *end_file_) return PlaceIn(*first, 0, 0);
  if (floor_ <= *end_file_ || !HaveFloor()) return Wait{.hole = true};
  // That nothing is there was never said, only not contradicted.
  if (undecided_ == kUndecidedMax) return PlaceIn(files_.front(), 0, 0);
  return OutOfRangeError("the first messages that came to " + shard_.ToString() +
                         " are not kept here any more; the first available one is at " +
                         first_available_->ToString());
}

// Times within file n lie between its creation and its successor's, or a little before the creation
// for messages that waited for it; those are found by searching on.
StartSearchCore::Step StartSearchCore::FindTime() {
  file_ = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].created_us < start_.time.micros()) file_ = i;
  }
  if (file_ == 0 && !HaveFloor()) return Wait{.hole = true};
  return SearchFile();
}

StartSearchCore::Step StartSearchCore::FindNumber() {
  if (HaveFloor() && start_.number < files_.front().start_number) {
    return OutOfRangeError("message " + std::to_string(start_.number) + " of " + shard_.ToString() +
                           " is not kept here any more; the first available one is " +
                           std::to_string(first_available_->number) + ", at " +
                           first_available_->ToString());
  }
  if (start_.number < files_.front().start_number) return Wait{.hole = true};
  file_ = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].start_number <= start_.number) file_ = i;
  }
  if (files_[file_].start_number == start_.number) return PlaceIn(files_[file_], 0, 0);
  return SearchFile();
}

int64_t StartSearchCore::ChunkSize() const {
  return searched_.chunk_size > 0 ? searched_.chunk_size
                                  : stream::ChunkSizeOf(files_[file_], chunk_size_);
}

// How long is the index of the chosen file?
StartSearchCore::Step StartSearchCore::SearchFile() {
  const Stem& stem = files_[file_];
  const auto known = metadata_.find(stem.seq);
  searched_ = known != metadata_.end() ? known->second : PairMetadata();
  std::optional<stream::Seal> seal;
  if (file_ + 1 < files_.size()) seal = stream::SealBetween(stem, files_[file_ + 1]);
  if (!seal) return AskIndexLength{stem, ChunkSize()};
  searched_.primary_length[1] = seal->length[1];
  return SearchRecords(seal->length[1]);
}

StartSearchCore::Step StartSearchCore::OnIndexLength(const Result<int64_t>& length) {
  // A file of which nothing is known is not an empty one.
  if (!length.ok() && !IsNotFound(length.status()) && !searched_.known()) {
    return Wait{.undecided = true};
  }
  int64_t& primary = searched_.primary_length[1];
  if (length.ok()) primary = std::max(primary, *length);
  return SearchRecords(std::max(primary, searched_.cache_length[1]));
}

StartSearchCore::Step StartSearchCore::SearchRecords(int64_t index_length) {
  count_ = high_ = index_length / kIndexRecordSize;
  low_ = start_.kind == StartPoint::Kind::kEnd ? count_ : 0;
  if (start_.kind == StartPoint::Kind::kNumber) {
    low_ = high_ = start_.number - files_[file_].start_number;
    // A later file that is here would hold it: then one in between is not.
    if (low_ > count_) return Wait{.hole = file_ + 1 < files_.size()};
  }
  return NextRecord();
}

StartSearchCore::Step StartSearchCore::NextRecord() {
  if (count_ == 0) return FoundInIndex(0, 0);
  // Where low and high have met, the record is read for its place in the data file.
  asked_ = low_ < high_ ? low_ + (high_ - low_) / 2 : std::min(low_, count_ - 1);
  return AskRecord(false);
}

StartSearchCore::Step StartSearchCore::AskRecord(bool distrusted) {
  const int64_t cached = searched_.chunk_size > 0 && !distrusted ? searched_.cache_length[1] : 0;
  of_cache_ = cached > asked_ * kIndexRecordSize;
  return ReadRecord{files_[file_], ChunkSize(), asked_,
                    cached,        distrusted,  searched_.primary_length[1]};
}

StartSearchCore::Step StartSearchCore::OnRecord(const char* bytes) {
  if (bytes == nullptr) return Wait{.undecided = true};
  const auto record = IndexRecord::Decode(bytes);
  if (!record) {
    if (of_cache_) return AskRecord(true);
    return DataLossError("index record " + std::to_string(asked_) + " of file " +
                         std::to_string(files_[file_].seq) +
                         " fails its check sum in the primary layer");
  }
  if (low_ < high_) {
    if (record->time_us < start_.time.micros())
      low_ = asked_ + 1;
    else
      high_ = asked_;
    return NextRecord();
  }
  return FoundInIndex(low_, low_ < count_ ? record->offset : record->end());
}

StartSearchCore::Step StartSearchCore::FoundInIndex(int64_t record, int64_t data_at) {
  const Stem& stem = files_[file_];
  if (start_.kind == StartPoint::Kind::kTime && record == count_ && file_ + 1 < files_.size() &&
      files_[file_ + 1].seq == stem.seq + 1) {
    ++file_;
    return SearchFile();
  }
  return PlaceIn(stem, data_at, record * kIndexRecordSize);
}

std::optional<Position> StartSearchCore::begins() const {
  const bool beginning = start_.kind == StartPoint::Kind::kBeginning && listed_ && floor_ == 1;
  if (!beginning && end_file_ != 1) return std::nullopt;
  return Position{.incarnation = shard_.stream.incarnation, .shard = shard_.shard};
}

int64_t StartSearchCore::newest_heartbeat_us() const {
  int64_t newest = 0;
  for (const auto& [seq, metadata] : metadata_) newest = std::max(newest, metadata.heartbeat_us);
  return newest;
}

FilePlace StartSearchCore::PlaceIn(const Stem& stem, int64_t data_at, int64_t index_at) const {
  FilePlace place;
  place.stem = stem;
  place.at[0] = data_at;
  place.at[1] = index_at;
  if (const auto known = metadata_.find(stem.seq); known != metadata_.end()) {
    place.metadata = known->second;
  }
  for (const Stem& later : listed_files_) {
    if (later.seq <= stem.seq) continue;
    place.later = later;
    break;
  }
  return place;
}

}  // namespace tailcast::consumer
