// Finds the file, and the place in it, at which a consumer's start point lies. Each method takes
// what was learned and returns the next step: what to ask, or the result.
//
//   Begin ─▶ List ─▶ ReadMetadata ─┬─▶ the place              beginning, position
//     ▲                 │          │
//     │                 │          │ end, time, number: a search in the index of a file
//     │                 │          │
//     │                 │          │ the file is not sealed
//     │                 │          ├─────────────────────▶ AskIndexLength
//     │                 │          │ sealed                   │    ▲
//     │                 │          └──────────────┐           │    │ the next file
//     │                 │                         ▼           ▼    │ (one that is sealed: ReadRecord)
//     └───── Wait ◀─────┴─────────────────────── ReadRecord, again and again ─▶ the place
//            not here yet, or can't be read
//
// A record that fails its check sum is read again from the primary layer alone.
//
// A file without records is passed without ReadRecord. Each step but AskIndexLength may lead to a
// Status instead, the end: there is no such place.
//
// Files come from the listing of the shard's folder and, where the primary copies lag, from the
// metadata cache. A file that is missing before the start point (a hole) is waited for.
//
// What could not be listed, asked or read leaves the place undecided: it is looked for again, and
// no guess is made.
//
// What is the end is decided once: that of a shard without files is the beginning of its first one
// that is kept, however full that is when it is seen. That there are none is believed when the
// metadata cache says so, too, or could not be read for a while.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/cache/client.h"
#include "tailcast/consumer/file_place.h"
#include "tailcast/consumer/start_point.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/position.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::consumer {

class StartSearchCore {
 public:
  // The shard's folder: OnListing.
  struct List {};
  // The values of two groups of pairs, that of `seq` and the one after: OnMetadata.
  struct ReadMetadata {
    int64_t seq = 0;
  };
  // The length of the file's index in the primary layer: OnIndexLength.
  struct AskIndexLength {
    stream::Stem stem;
    int64_t chunk_size = 0;
  };
  // One record of the file's index: OnRecord.
  struct ReadRecord {
    stream::Stem stem;
    int64_t chunk_size = 0;
    int64_t record = 0;
    // Bytes of the index that are known to be in each layer; of the cache 0 when what it gave
    // failed its check sum.
    int64_t cache_limit = 0;
    bool distrusted = false;  // that is why
    int64_t primary_limit = 0;
  };
  // The place is not here yet: Begin again after a while.
  struct Wait {
    bool hole = false;       // files are here, but one before them is not
    bool undecided = false;  // it is not known whether there is something, or where
  };
  // A Status is the end, as ConsumerAgent::status (OutOfRange, DataLoss, InvalidArgument) says.
  using Step =
      std::variant<List, ReadMetadata, AskIndexLength, ReadRecord, Wait, FilePlace, Status>;

  // `chunk_size` is that of files whose metadata is not known.
  StartSearchCore(const StartPoint& start, stream::ShardId shard, int64_t chunk_size);

  Step Begin();
  Step OnListing(const Result<stream::ShardListing>& listing);
  // Values as the metadata cache has them; none if it can't be read.
  Step OnMetadata(std::span<const cache::ValueAnswer> values);
  // NotFound: there is none yet. Other errors: it can't be told.
  Step OnIndexLength(const Result<int64_t>& length);
  // The record's bytes; null if they can't be read.
  Step OnRecord(const char* bytes);

  // The oldest message that the cell keeps. nullopt: its file is not here (yet).
  const std::optional<stream::Position>& first_available() const { return first_available_; }
  // After Wait: where the shard will begin, if that is where the search leads and no file was ever
  // deleted: at message 0.
  std::optional<stream::Position> begins() const;
  // Of the metadata that was read; 0: there was none.
  int64_t newest_heartbeat_us() const;

 private:
  bool HaveFloor() const { return files_.front().seq == floor_; }
  Step FindPosition() const;
  Step FindEnd();
  Step FindTime();
  Step FindNumber();
  Step SearchFile();
  Step SearchRecords(int64_t index_length);
  Step NextRecord();
  Step AskRecord(bool distrusted);
  Step FoundInIndex(int64_t record, int64_t data_at);
  FilePlace PlaceIn(const stream::Stem& stem, int64_t data_at, int64_t index_at) const;
  int64_t ChunkSize() const;

  const StartPoint start_;
  const stream::ShardId shard_;
  const int64_t chunk_size_;
  std::optional<stream::Position> first_available_;
  int64_t floor_ = 1;
  bool listed_ = false;
  std::optional<int64_t> end_file_;  // the end is the beginning of this one: nothing was there
  int undecided_ = 0;                // so often that could not be told
  std::vector<stream::Stem> files_;  // in order of their numbers; newest last
  std::vector<stream::Stem> listed_files_;  // of these, by the listing, in order
  std::map<int64_t, stream::PairMetadata> metadata_;
  // The search in the index of files_[file_].
  size_t file_ = 0;
  stream::PairMetadata searched_;  // its metadata
  int64_t low_ = 0, high_ = 0;     // the first record at or after the time lies in [low, high]
  int64_t count_ = 0;              // records of the file
  int64_t asked_ = 0;
  bool of_cache_ = false;  // it may come from the cache
};

}  // namespace tailcast::consumer
