#include "tailcast/consumer/start_search_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/stream/index_record.h"

namespace tailcast::consumer {
namespace {

using stream::kIndexRecordSize;
using stream::Part;
using stream::Position;
using stream::Stem;
using ::testing::HasSubstr;

constexpr int64_t kMessageBytes = 10;

// A shard whose files hold messages of kMessageBytes, as the world would answer the core.
class StartSearchTest : public ::testing::Test {
 protected:
  // A file with messages of these times.
  void AddFile(std::vector<int64_t> times, bool listed = true) {
    Stem stem{static_cast<int64_t>(files_.size()) + 1, 1000, 0, 0};
    if (!files_.empty()) {
      const File& last = files_.back();
      const auto count = static_cast<int64_t>(last.times.size());
      stem.created_us = last.times.empty() ? last.stem.created_us + 1 : last.times.back() + 1;
      stem.start_byte = last.stem.start_byte + count * kMessageBytes;
      stem.start_number = last.stem.start_number + count;
    }
    files_.push_back({stem, std::move(times), listed});
  }
  Result<stream::ShardListing> Listing() const {
    std::vector<storage::DirEntry> entries;
    for (const File& file : files_) {
      if (!file.listed) continue;
      for (Part part : {Part::kData, Part::kIndex}) {
        entries.push_back({stream::FileName(file.stem, part)});
      }
    }
    if (floor_ > 1) entries.push_back({stream::FloorName(floor_)});
    return stream::ShardListing::Parse(entries);
  }
  // One look at a shard of which this is what the metadata cache says.
  StartSearchCore::Step Look(std::span<const cache::ValueAnswer> values) {
    (void)core_->Begin();
    (void)core_->OnListing(Listing());
    return core_->OnMetadata(values);
  }
  // Answers every step until there is a result.
  StartSearchCore::Step Run(const StartPoint& start) {
    core_.emplace(start, shard_, 4096);
    records_read_ = 0;
    StartSearchCore::Step step = core_->Begin();
    for (;;) {
      if (std::holds_alternative<StartSearchCore::List>(step)) {
        step = core_->OnListing(Listing());
      } else if (std::holds_alternative<StartSearchCore::ReadMetadata>(step)) {
        step = core_->OnMetadata(metadata_);
      } else if (const auto* ask = std::get_if<StartSearchCore::AskIndexLength>(&step)) {
        const auto& times = files_[static_cast<size_t>(ask->stem.seq - 1)].times;
        step = core_->OnIndexLength(static_cast<int64_t>(times.size()) * kIndexRecordSize);
      } else if (const auto* read = std::get_if<StartSearchCore::ReadRecord>(&step)) {
        ++records_read_;
        step = core_->OnRecord(Record(read->stem.seq, read->record).data());
      } else {
        return step;
      }
    }
  }
  std::string Record(int64_t seq, int64_t record) const {
    std::string bytes;
    stream::IndexRecord{record * kMessageBytes, kMessageBytes, 0,
                        files_[static_cast<size_t>(seq - 1)].times[static_cast<size_t>(record)]}
        .AppendTo(bytes);
    return bytes;
  }
  // The number of the message that the search found, -1 if it found no place.
  int64_t Found(const StartPoint& start) {
    const StartSearchCore::Step step = Run(start);
    const auto* place = std::get_if<FilePlace>(&step);
    if (place == nullptr) return -1;
    const int64_t number = place->stem.start_number + place->at[1] / kIndexRecordSize;
    EXPECT_EQ(place->stem.start_byte + place->at[0], number * kMessageBytes);
    return number;
  }
  Status Refused(const StartPoint& start) {
    const StartSearchCore::Step step = Run(start);
    const auto* status = std::get_if<Status>(&step);
    return status == nullptr ? OkStatus() : *status;
  }
  Position At(int64_t number) const {
    return {shard_.stream.incarnation, shard_.shard, number, number * kMessageBytes};
  }

  struct File {
    Stem stem;
    std::vector<int64_t> times;
    bool listed = true;
  };
  const stream::ShardId shard_{{"s", stream::StreamIncarnation{7}}, 3};
  std::vector<File> files_;
  cache::Values metadata_;
  // What the metadata cache says when it has none of it.
  const cache::Values nothing_ = cache::Values(2, {.complete = true});
  int64_t floor_ = 1;
  std::optional<StartSearchCore> core_;
  int records_read_ = 0;
};

TEST_F(StartSearchTest, NothingIsWaitedFor) {
  EXPECT_FALSE(std::get<StartSearchCore::Wait>(Run(StartPoint::Beginning())).hole);
  EXPECT_FALSE(std::get<StartSearchCore::Wait>(Run(StartPoint::End())).hole);
}

TEST_F(StartSearchTest, ANumberIsThatMessageInWhicheverFile) {
  AddFile({2000, 3000});
  AddFile({});
  AddFile({4000, 5000, 6000});
  for (int64_t number = 0; number <= 5; ++number) {
    EXPECT_EQ(Found(StartPoint::AtNumber(number)), number);
    EXPECT_LE(records_read_, 1);
  }
}

TEST_F(StartSearchTest, ANumberThatIsNotHereYetIsWaitedFor) {
  AddFile({2000, 3000});
  EXPECT_FALSE(std::get<StartSearchCore::Wait>(Run(StartPoint::AtNumber(3))).hole);
  AddFile({4000, 5000}, false);
  AddFile({6000});
  EXPECT_TRUE(std::get<StartSearchCore::Wait>(Run(StartPoint::AtNumber(3))).hole);
  EXPECT_EQ(Found(StartPoint::AtNumber(4)), 4);
}

TEST_F(StartSearchTest, ANumberThatIsNotKeptIsRefusedWithTheFirstThatIs) {
  AddFile({2000, 3000}, false);
  AddFile({4000});
  floor_ = 2;
  const Status refused = Refused(StartPoint::AtNumber(1));
  EXPECT_TRUE(IsOutOfRange(refused)) << refused.ToString();
  EXPECT_THAT(refused.message(), HasSubstr("the first available one is 2, at t1."));
  EXPECT_EQ(core_->first_available(), At(2));
  EXPECT_EQ(Found(StartPoint::AtNumber(2)), 2);
}

TEST_F(StartSearchTest, BeginningIsTheFirstFileThatIsKept) {
  AddFile({2000, 3000});
  AddFile({4000});
  EXPECT_EQ(Found(StartPoint::Beginning()), 0);
  floor_ = 2;
  files_[0].listed = false;
  EXPECT_EQ(Found(StartPoint::Beginning()), 2);
  EXPECT_EQ(*core_->first_available(), At(2));
}

TEST_F(StartSearchTest, AFirstFileThatIsMissingIsAHole) {
  AddFile({2000, 3000});
  AddFile({4000});
  files_[0].listed = false;
  EXPECT_TRUE(std::get<StartSearchCore::Wait>(Run(StartPoint::Beginning())).hole);
  EXPECT_TRUE(std::get<StartSearchCore::Wait>(Run(StartPoint::At(At(1)))).hole);
  EXPECT_TRUE(std::get<StartSearchCore::Wait>(Run(StartPoint::At(WallTime::FromMicros(1)))).hole);
  EXPECT_FALSE(core_->first_available().has_value());
  EXPECT_EQ(Found(StartPoint::End()), 3) << "what lies behind the hole is searched all the same";
}

TEST_F(StartSearchTest, AFileThatOnlyItsMetadataKnowsIsAFile) {
  AddFile({2000});
  AddFile({}, /*listed=*/false);
  stream::PairMetadata second;
  second.created_us = files_[1].stem.created_us;
  second.start_byte = files_[1].stem.start_byte;
  second.start_number = files_[1].stem.start_number;
  second.chunk_size = 512;
  metadata_ = {{stream::EncodePairMetadata(2, second)}};
  const auto step = Run(StartPoint::End());
  const auto& place = std::get<FilePlace>(step);
  EXPECT_EQ(place.stem, files_[1].stem);
  EXPECT_EQ(place.metadata.chunk_size, 512);
}

TEST_F(StartSearchTest, APlaceSaysWhichFileIsBehindIt) {
  AddFile({2000, 3000});
  AddFile({4000});
  AddFile({5000});
  const auto later = [this](const StartPoint& start) {
    return std::get<FilePlace>(Run(start)).later;
  };
  EXPECT_EQ(later(StartPoint::Beginning()), files_[1].stem);
  EXPECT_EQ(later(StartPoint::End()), std::nullopt);
  files_[1].listed = false;
  EXPECT_EQ(later(StartPoint::At(At(1))), files_[2].stem) << "the next one that is here";
}

TEST_F(StartSearchTest, APositionIsComputedAndNotReadOf) {
  AddFile({2000, 3000, 4000});
  AddFile({5000, 6000});
  for (int64_t number = 0; number <= 9; ++number) {
    EXPECT_EQ(Found(StartPoint::At(At(number))), number);
    EXPECT_EQ(records_read_, 0);
  }
  const auto step = Run(StartPoint::At(At(4)));
  EXPECT_EQ(std::get<FilePlace>(step).unverified, At(4)) << "no record has confirmed it yet";
}

TEST_F(StartSearchTest, PositionsThatAreNoneAreRefused) {
  AddFile({2000, 3000, 4000});
  AddFile({5000, 6000});
  EXPECT_THAT(Refused(StartPoint::At(Position{stream::StreamIncarnation{8}, 3, 1, 10})).message(),
              HasSubstr("deleted and created again"));
  EXPECT_THAT(Refused(StartPoint::At(Position{stream::StreamIncarnation{7}, 2, 1, 10})).message(),
              HasSubstr("is not one of s/3"));
  EXPECT_TRUE(
      IsInvalidArgument(Refused(StartPoint::At(Position{stream::StreamIncarnation{7}, 3, 3, 31}))));
  EXPECT_TRUE(
      IsInvalidArgument(Refused(StartPoint::At(Position{stream::StreamIncarnation{7}, 3, 4, 29}))));
  floor_ = 2;
  files_[0].listed = false;
  const Status below = Refused(StartPoint::At(At(1)));
  EXPECT_TRUE(IsOutOfRange(below));
  EXPECT_THAT(below.message(), HasSubstr(At(3).ToString()));
}

TEST_F(StartSearchTest, EndIsBehindTheLastRecordOfTheNewestFile) {
  AddFile({2000, 3000});
  AddFile({4000, 5000, 6000});
  EXPECT_EQ(Found(StartPoint::End()), 5);
  EXPECT_EQ(records_read_, 1);
  AddFile({});
  EXPECT_EQ(Found(StartPoint::End()), 5);
  EXPECT_EQ(records_read_, 0) << "an empty file has no record to read";
}

// What is the end was decided when it was looked for, and the search that waited is the same one.
TEST_F(StartSearchTest, TheEndOfAShardWithoutFilesIsTheBeginningOfItsFirstOne) {
  core_.emplace(StartPoint::End(), shard_, 4096);
  const auto look = [this]() -> StartSearchCore::Step {
    (void)core_->Begin();
    (void)core_->OnListing(Listing());
    return core_->OnMetadata(nothing_);
  };
  EXPECT_FALSE(core_->begins().has_value());
  EXPECT_FALSE(std::get<StartSearchCore::Wait>(look()).hole);
  EXPECT_EQ(core_->begins(), At(0));
  AddFile({2000, 3000, 4000}, false);
  AddFile({5000});
  EXPECT_TRUE(std::get<StartSearchCore::Wait>(look()).hole) << "its first file is on its way";
  EXPECT_EQ(core_->begins(), At(0));
  files_[0].listed = true;
  const auto step = look();
  const auto& place = std::get<FilePlace>(step);
  EXPECT_EQ(place.stem, files_[0].stem);
  EXPECT_EQ(place.at[0] + place.at[1], 0);
  floor_ = 2;
  files_[0].listed = false;
  const auto gone = look();
  EXPECT_TRUE(IsOutOfRange(std::get<Status>(gone)));
  EXPECT_THAT(std::get<Status>(gone).message(), HasSubstr(At(3).ToString()));
}

TEST_F(StartSearchTest, ThatAShardHasNoFilesIsBelievedWhenTheCacheCanBeRead) {
  core_.emplace(StartPoint::End(), shard_, 4096);
  EXPECT_TRUE(std::get<StartSearchCore::Wait>(Look({})).undecided);
  const std::vector<cache::ValueAnswer> partial(2);
  EXPECT_TRUE(std::get<StartSearchCore::Wait>(Look(partial)).undecided);
  EXPECT_FALSE(core_->begins().has_value());
  AddFile({2000, 3000});  // it was there all the time
  (void)Look({});
  const auto step = core_->OnIndexLength(2 * kIndexRecordSize);
  EXPECT_EQ(std::get<StartSearchCore::ReadRecord>(step).record, 1) << "behind what was there";
}

TEST_F(StartSearchTest, WhoMustBeCertainOfTheEndWaitsAsLongAsTheCacheCannotBeRead) {
  core_.emplace(StartPoint::CertainEnd(), shard_, 4096);
  const std::vector<cache::ValueAnswer> partial(2);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(std::get<StartSearchCore::Wait>(Look(partial)).undecided);
  }
  AddFile({2000, 3000});  // it was there all the time
  (void)Look({});
  const auto step = core_->OnIndexLength(2 * kIndexRecordSize);
  EXPECT_EQ(std::get<StartSearchCore::ReadRecord>(step).record, 1) << "behind what was there";
}

TEST_F(StartSearchTest, ACacheThatCannotBeReadForLongHoldsNobodyUp) {
  core_.emplace(StartPoint::End(), shard_, 4096);
  for (int looks = 0; !core_->begins(); ++looks) {
    ASSERT_LT(looks, 20);
    (void)core_->Begin();
    (void)core_->OnListing(Listing());
    (void)core_->OnMetadata({});
  }
  // It only was not contradicted: what is there begins where the floor is.
  AddFile({2000});
  AddFile({3000});
  files_[0].listed = false;
  floor_ = 2;
  (void)core_->Begin();
  (void)core_->OnListing(Listing());
  EXPECT_EQ(std::get<FilePlace>(core_->OnMetadata(nothing_)).stem, files_[1].stem);
}

TEST_F(StartSearchTest, TheEndOfAShardWhoseFilesWereAllDeletedIsItsNextFile) {
  floor_ = 3;
  core_.emplace(StartPoint::End(), shard_, 4096);
  (void)core_->Begin();
  (void)core_->OnListing(Listing());
  EXPECT_FALSE(std::get<StartSearchCore::Wait>(core_->OnMetadata(nothing_)).hole);
  EXPECT_FALSE(core_->begins().has_value()) << "how many messages there were is not known";
  AddFile({2000}, false);
  AddFile({3000}, false);
  AddFile({4000, 5000});
  (void)core_->Begin();
  (void)core_->OnListing(Listing());
  EXPECT_EQ(std::get<FilePlace>(core_->OnMetadata({})).stem, files_[2].stem);
}

TEST_F(StartSearchTest, ATimeIsTheFirstMessageAtOrAfterIt) {
  std::vector<int64_t> all;
  for (int file = 0; file < 4; ++file) {
    std::vector<int64_t> times;
    for (int i = 0; i < file * 20; ++i) {
      times.push_back(2000 + static_cast<int64_t>(all.size()) / 2 * 10);  // twins
      all.push_back(times.back());
    }
    AddFile(times);
  }
  for (int64_t time = 1990; time <= all.back() + 10; time += 5) {
    const auto first = std::lower_bound(all.begin(), all.end(), time) - all.begin();
    EXPECT_EQ(Found(StartPoint::At(WallTime::FromMicros(time))), first) << time;
    EXPECT_LE(records_read_, 16);
  }
}

TEST_F(StartSearchTest, ABrokenRecordIsDataLossAndAMissingOneIsWaitedFor) {
  AddFile({2000, 3000});
  for (const bool missing : {true, false}) {
    core_.emplace(StartPoint::End(), shard_, 4096);
    (void)core_->Begin();
    (void)core_->OnListing(Listing());
    (void)core_->OnMetadata({});
    const auto read = core_->OnIndexLength(2 * kIndexRecordSize);
    EXPECT_EQ(std::get<StartSearchCore::ReadRecord>(read).record, 1);
    std::string bytes = Record(1, 1);
    bytes[3] = static_cast<char>(bytes[3] ^ 1);
    const auto step = core_->OnRecord(missing ? nullptr : bytes.data());
    if (missing) {
      EXPECT_FALSE(std::get<StartSearchCore::Wait>(step).hole);
      EXPECT_TRUE(std::get<StartSearchCore::Wait>(step).undecided) << "it is there";
    } else {
      EXPECT_TRUE(IsDataLoss(std::get<Status>(step)));
      EXPECT_THAT(std::get<Status>(step).message(), HasSubstr("index record 1 of file 1"));
    }
  }
}

// A length that can't be asked for is none that is 0; a file that is not there (yet) has that.
TEST_F(StartSearchTest, AnIndexThatCannotBeAskedIsNotAnEmptyOne) {
  AddFile({2000, 3000});
  stream::PairMetadata known;
  known.created_us = files_[0].stem.created_us;
  known.cache_length[1] = 2 * kIndexRecordSize;
  known.chunk_size = 512;
  const cache::Values published = {{stream::EncodePairMetadata(1, known)}};
  const StartPoint starts[] = {StartPoint::End(), StartPoint::At(WallTime::FromMicros(2500)),
                               StartPoint::AtNumber(1)};
  for (const StartPoint& start : starts) {
    const auto look = [&](const cache::Values& values, const Status& why) {
      core_.emplace(start, shard_, 4096);
      (void)core_->Begin();
      (void)core_->OnListing(Listing());
      (void)core_->OnMetadata(values);
      return core_->OnIndexLength(why);
    };
    const auto unknown = look({}, UnavailableError("the disk does not answer"));
    EXPECT_TRUE(std::get<StartSearchCore::Wait>(unknown).undecided);
    const auto cached = look(published, UnavailableError("the disk does not answer"));
    EXPECT_EQ(std::get<StartSearchCore::ReadRecord>(cached).record, 1) << "the cache knows";
    const auto absent = look({}, NotFoundError("no such file"));
    if (start.kind == StartPoint::Kind::kNumber) {
      EXPECT_FALSE(std::get<StartSearchCore::Wait>(absent).undecided);
    } else {
      EXPECT_EQ(std::get<FilePlace>(absent).at[1], 0);
    }
  }
}

TEST_F(StartSearchTest, ARecordThatIsBrokenInTheCacheIsReadOfThePrimaryLayer) {
  AddFile({2000, 3000});
  stream::PairMetadata first;
  first.created_us = files_[0].stem.created_us;
  first.cache_length[1] = 2 * kIndexRecordSize;
  first.chunk_size = 512;
  metadata_ = {{stream::EncodePairMetadata(1, first)}};
  for (const bool broken_there_too : {false, true}) {
    core_.emplace(StartPoint::End(), shard_, 4096);
    (void)core_->Begin();
    (void)core_->OnListing(Listing());
    (void)core_->OnMetadata(metadata_);
    auto step = core_->OnIndexLength(2 * kIndexRecordSize);
    EXPECT_EQ(std::get<StartSearchCore::ReadRecord>(step).cache_limit, 2 * kIndexRecordSize);
    const std::string bytes = Record(1, 1);
    std::string broken = bytes;
    broken[3] = static_cast<char>(broken[3] ^ 1);
    step = core_->OnRecord(broken.data());
    const auto* again = std::get_if<StartSearchCore::ReadRecord>(&step);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->record, 1);
    EXPECT_EQ(again->cache_limit, 0);
    EXPECT_EQ(again->primary_limit, 2 * kIndexRecordSize);
    EXPECT_TRUE(again->distrusted);
    step = core_->OnRecord(broken_there_too ? broken.data() : bytes.data());
    EXPECT_EQ(std::holds_alternative<FilePlace>(step), !broken_there_too);
    EXPECT_EQ(std::holds_alternative<Status>(step), broken_there_too);
  }
}

}  // namespace
}  // namespace tailcast::consumer
