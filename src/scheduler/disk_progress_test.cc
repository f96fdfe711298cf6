#include "tailcast/scheduler/disk_progress.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::scheduler {
namespace {

using stream::Part;
using stream::Stem;

Stem File(int64_t seq) { return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2}; }

class DiskProgressTest : public ::testing::Test {
 protected:
  void Write(int64_t seq, Part part, const std::string& bytes) {
    bool done = false;
    std::unique_ptr<storage::AppendFile> file;
    store_.CreateExclusive(stream::ShardDir(shard_), stream::FileName(File(seq), part),
                           stream::CreationKey(seq, part), scope_.Bind([&](auto created) {
                             ASSERT_TRUE(created.ok()) << created.status();
                             file = std::move(*created);
                             file->AppendAt(0, bytes,
                                            scope_.Bind([&](const auto&) { done = true; }));
                           }));
    ASSERT_TRUE(time_.RunUntil([&] { return done; }, Duration::Seconds(10)));
  }
  ShardProgress Read(int64_t floor, int64_t from_seq, int files_max) {
    std::optional<Result<ShardProgress>> progress;
    disk_progress_.Read(shard_, floor, from_seq, files_max,
                        scope_.Bind([&](Result<ShardProgress> p) { progress = std::move(p); }));
    EXPECT_TRUE(time_.RunUntil([&] { return progress.has_value(); }, Duration::Seconds(10)));
    EXPECT_TRUE(progress->ok()) << progress->status();
    return **progress;
  }

  static std::vector<int64_t> Seqs(const ShardProgress& progress) {
    std::vector<int64_t> seqs;
    for (const PairLengths& file : progress.files) seqs.push_back(file.stem.seq);
    return seqs;
  }

  // A pair as long as its seal says.
  void WriteWhole(int64_t seq) {
    Write(seq, Part::kData, std::string(100, 'x'));
    Write(seq, Part::kIndex, std::string(64, 'x'));
  }
  int64_t FindDone(int64_t floor) {
    std::optional<Result<int64_t>> found;
    disk_progress_.FindDone(shard_, floor,
                            scope_.Bind([&](Result<int64_t> done) { found = std::move(done); }));
    EXPECT_TRUE(time_.RunUntil([&] { return found.has_value(); }, Duration::Seconds(10)));
    EXPECT_TRUE(found->ok()) << found->status();
    return **found;
  }

  const stream::ShardId shard_{{"s", stream::StreamIncarnation{7}}, 0};
  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("scheduler");
  storage::FakeDisk disk_{loop_.get(), 1};
  storage::FakeStore store_{&disk_, loop_.get()};
  DiskProgress disk_progress_{*loop_, store_};
  Scope scope_;
};

TEST_F(DiskProgressTest, AShardThatIsNotThereIsEmpty) {
  const ShardProgress progress = Read(3, 1, 10);
  EXPECT_EQ(progress.floor, 3);
  EXPECT_TRUE(progress.files.empty());
}

// Each of 300 reads fails by one in fifty: an answer that none may fail in never comes.
TEST_F(DiskProgressTest, ADiskThatFailsNowAndThenIsReadAgain) {
  for (int64_t seq = 1; seq <= 150; ++seq) WriteWhole(seq);
  disk_.SetOptions({.read_error_rate = 0.02});
  EXPECT_EQ(Read(1, 1, 1000).files.size(), 150u);
  EXPECT_GT(disk_.counters().injected_errors, 0);
  EXPECT_THAT(disk_progress_.Failing(), ::testing::IsEmpty());
}

TEST_F(DiskProgressTest, AFileThatCanNotBeReadIsNamedAndHoldsUpNoOther) {
  for (int64_t seq = 1; seq <= 5; ++seq) WriteWhole(seq);
  const std::string dir = stream::ShardDir(shard_);
  const std::string bad = stream::FileName(File(3), Part::kIndex);
  disk_.SetUnreadable(dir, bad);
  ShardProgress progress = Read(1, 1, 10);
  EXPECT_THAT(Seqs(progress), ::testing::ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(progress.unread, ::testing::ElementsAre(3));
  EXPECT_THAT(progress.damaged, ::testing::IsEmpty());
  EXPECT_EQ(progress.covered_to, INT64_MAX) << "the last one says how far the shard is";
  EXPECT_THAT(disk_progress_.Failing(),
              ::testing::ElementsAre(::testing::AllOf(::testing::HasSubstr("file 3 of s"),
                                                      ::testing::HasSubstr("Input/output error"))));
  disk_.SetUnreadable(dir, bad, false);
  progress = Read(1, 1, 10);
  EXPECT_EQ(progress.files.size(), 5u);
  EXPECT_EQ(progress.covered_to, INT64_MAX);
  EXPECT_THAT(disk_progress_.Failing(), ::testing::IsEmpty());
}

TEST_F(DiskProgressTest, WhereTheNewestCanNotBeReadItIsNotKnownHowFarTheShardIs) {
  for (int64_t seq = 1; seq <= 3; ++seq) WriteWhole(seq);
  disk_.SetUnreadable(stream::ShardDir(shard_), stream::FileName(File(3), Part::kData));
  EXPECT_EQ(Read(1, 1, 10).covered_to, 3);
  WriteWhole(4);
  EXPECT_EQ(Read(1, 1, 10).covered_to, INT64_MAX);
}

TEST_F(DiskProgressTest, AFileThatIsGoneFailsNoMore) {
  for (int64_t seq = 1; seq <= 2; ++seq) WriteWhole(seq);
  const std::string dir = stream::ShardDir(shard_);
  disk_.SetUnreadable(dir, stream::FileName(File(1), Part::kData));
  Read(1, 1, 10);
  EXPECT_EQ(disk_progress_.Failing().size(), 1u);
  ASSERT_TRUE(disk_.Remove(dir, stream::FileName(File(1), Part::kData)).ok());
  EXPECT_EQ(Read(1, 1, 10).files.size(), 1u);
  EXPECT_THAT(disk_progress_.Failing(), ::testing::IsEmpty());
}

TEST_F(DiskProgressTest, APageEndsAfterManyThatCanNotBeRead) {
  for (int64_t seq = 1; seq <= 40; ++seq) {
    WriteWhole(seq);
    if (seq > 10 && seq <= 30) {
      disk_.SetUnreadable(stream::ShardDir(shard_), stream::FileName(File(seq), Part::kData));
    }
  }
  const ShardProgress first = Read(1, 1, 1000);
  EXPECT_EQ(first.files.size(), 10u);
  EXPECT_EQ(first.unread.size(), static_cast<size_t>(DiskProgress::kUnreadMax));
  EXPECT_EQ(first.covered_to, 26);
  const ShardProgress second = Read(1, 27, 1000);
  EXPECT_THAT(second.unread, ::testing::ElementsAre(27, 28, 29, 30));
  EXPECT_EQ(second.files.size(), 10u);
}

// 300 reads, each of 20 ms or more.
TEST_F(DiskProgressTest, OfASlowDiskTheAnswerComesInTimeWithWhatWasRead) {
  for (int64_t seq = 1; seq <= 150; ++seq) WriteWhole(seq);
  disk_.SetOptions({.request = {.base = Duration::Millis(20)}});
  const MonotonicTime before = time_.now();
  ShardProgress page = Read(1, 1, 1000);
  EXPECT_LE(time_.now(), before + DiskProgress::kReadTime + Duration::Millis(100))
      << "and a listing";
  EXPECT_TRUE(page.early);
  EXPECT_GE(page.files.size(), 20u);
  EXPECT_THAT(page.unread, ::testing::IsEmpty());
  size_t files = page.files.size();
  for (int pages = 1; page.early && pages < 20; ++pages) {
    EXPECT_EQ(page.covered_to, page.files.back().stem.seq);
    EXPECT_EQ(page.listed.back().seq, page.covered_to + 1) << "which says how long that is";
    page = Read(1, page.covered_to + 1, 1000);
    files += page.files.size();
  }
  EXPECT_EQ(files, 150u);
  EXPECT_EQ(page.covered_to, INT64_MAX);
  EXPECT_THAT(disk_progress_.Failing(), ::testing::IsEmpty());
}

TEST_F(DiskProgressTest, AFileThatDoesNotAnswerHoldsUpNoOther) {
  for (int64_t seq = 1; seq <= 4; ++seq) WriteWhole(seq);
  const std::string dir = stream::ShardDir(shard_);
  const std::string bad = stream::FileName(File(3), Part::kIndex);
  disk_.SetHanging(dir, bad);
  const auto calls = [&] { return disk_.counters().injected_errors; };
  ShardProgress page = Read(1, 1, 10);
  EXPECT_THAT(Seqs(page), ::testing::ElementsAre(1, 2));
  EXPECT_THAT(page.unread, ::testing::ElementsAre(3));
  EXPECT_TRUE(page.early);
  EXPECT_EQ(page.covered_to, 3);
  EXPECT_THAT(disk_progress_.Failing(), ::testing::ElementsAre(::testing::HasSubstr("no answer")));
  EXPECT_THAT(Seqs(Read(1, 4, 10)), ::testing::ElementsAre(4));
  // Nobody waits for it again before it has answered, nor soon after the store gave it up.
  for (const Duration passed : {Duration(), storage::FakeDisk::kHangs}) {
    time_.RunFor(passed);
    const MonotonicTime before = time_.now();
    page = Read(1, 1, 10);
    EXPECT_LE(time_.now(), before + Duration::Millis(100));
    EXPECT_THAT(Seqs(page), ::testing::ElementsAre(1, 2, 4));
    EXPECT_THAT(page.unread, ::testing::ElementsAre(3));
    EXPECT_FALSE(page.early);
    EXPECT_EQ(calls(), 1);
  }
  disk_.SetHanging(dir, bad, false);
  time_.RunFor(DiskProgress::kHangsAgain);
  EXPECT_EQ(Read(1, 1, 10).files.size(), 4u);
  EXPECT_THAT(disk_progress_.Failing(), ::testing::IsEmpty());
}

// One page finds out that file 1 hangs while another one is in the middle of it.
TEST_F(DiskProgressTest, PagesAtOnceDoNotMixFiles) {
  WriteWhole(1);
  Write(2, Part::kData, std::string(7, 'x'));
  Write(2, Part::kIndex, std::string(32, 'x'));
  disk_.SetOptions({.request = {.base = Duration::Millis(300)}});
  disk_.SetHanging(stream::ShardDir(shard_), stream::FileName(File(1), Part::kIndex));
  std::vector<ShardProgress> pages;
  for (int i = 0; i < 12; ++i) {
    disk_progress_.Read(shard_, 1, 1, 10, scope_.Bind([&](const Result<ShardProgress>& page) {
      ASSERT_TRUE(page.ok()) << page.status();
      pages.push_back(*page);
    }));
    time_.RunFor(Duration::Millis(250));
  }
  ASSERT_TRUE(time_.RunUntil([&] { return pages.size() == 12; }, Duration::Seconds(20)));
  bool seen = false;
  for (const ShardProgress& page : pages) {
    EXPECT_THAT(page.unread, ::testing::ElementsAre(1));
    for (const PairLengths& file : page.files) {
      EXPECT_EQ(file.stem, File(2));
      EXPECT_EQ(file.length[0], 7);
      EXPECT_EQ(file.length[1], 32);
      seen = true;
    }
  }
  EXPECT_TRUE(seen);
}

TEST_F(DiskProgressTest, AStreamThatIsForgottenMeanwhileFailsNoMore) {
  WriteWhole(1);
  disk_.SetUnreadable(stream::ShardDir(shard_), stream::FileName(File(1), Part::kData));
  bool read = false;
  disk_progress_.Read(shard_, 1, 1, 10, scope_.Bind([&](const auto&) { read = true; }));
  disk_progress_.Forget(shard_.stream);
  ASSERT_TRUE(time_.RunUntil([&] { return read; }, Duration::Seconds(10)));
  EXPECT_THAT(disk_progress_.Failing(), ::testing::IsEmpty());
}

// A file that has failed is tried once; who asks waits for all of them.
TEST_F(DiskProgressTest, AFileThatFailsIsNotTriedAgainAndAgain) {
  for (int64_t seq = 1; seq <= 3; ++seq) WriteWhole(seq);
  disk_.SetUnreadable(stream::ShardDir(shard_), stream::FileName(File(2), Part::kData));
  Read(1, 1, 10);
  const int64_t first = disk_.counters().injected_errors;
  Read(1, 1, 10);
  EXPECT_EQ(disk_.counters().injected_errors, first + 1);
}

TEST_F(DiskProgressTest, APageSaysWhereItEnds) {
  for (int64_t seq = 1; seq <= 5; ++seq) WriteWhole(seq);
  ASSERT_TRUE(disk_.Cut(stream::ShardDir(shard_), stream::FileName(File(2), Part::kData), 5).ok());
  const ShardProgress page = Read(1, 1, 3);
  EXPECT_EQ(page.files.size(), 2u) << "a damaged one is not there";
  EXPECT_EQ(page.covered_to, 3);
  EXPECT_EQ(Read(1, 4, 2).covered_to, INT64_MAX) << "there are no more";
}

TEST_F(DiskProgressTest, LengthsAreOfCompletePairsFromTheOneThatIsAskedFor) {
  for (int64_t seq = 1; seq <= 4; ++seq) {
    Write(seq, Part::kData, std::string(10 * seq, 'x'));
    Write(seq, Part::kIndex, std::string(32 * seq, 'x'));
  }
  Write(5, Part::kData, "half a pair");
  const ShardProgress progress = Read(1, 2, 2);
  ASSERT_EQ(progress.files.size(), 2u);
  EXPECT_EQ(progress.files[0].stem, File(2));
  EXPECT_EQ(progress.files[0].length[0], 20);
  EXPECT_EQ(progress.files[0].length[1], 64);
  EXPECT_EQ(progress.files[1].stem, File(3));
  EXPECT_EQ(Read(1, 4, 10).files.size(), 1u) << "half a pair is no file";
}

TEST_F(DiskProgressTest, ADamagedPairIsNotThereAndIsNamed) {
  for (int64_t seq = 1; seq <= 4; ++seq) {
    Write(seq, Part::kData, std::string(10, 'x'));
    Write(seq, Part::kIndex, std::string(32, 'x'));
  }
  const std::string dir = stream::ShardDir(shard_);
  ASSERT_TRUE(disk_.Cut(dir, stream::FileName(File(2), Part::kData), 5).ok());
  ASSERT_TRUE(disk_.Cut(dir, stream::FileName(File(3), Part::kIndex), 5).ok());
  const ShardProgress progress = Read(1, 1, 10);
  ASSERT_EQ(progress.files.size(), 2u);
  EXPECT_EQ(progress.files[0].stem, File(1));
  EXPECT_EQ(progress.files[1].stem, File(4));
  EXPECT_THAT(progress.damaged, ::testing::ElementsAre(2, 3));
}

TEST_F(DiskProgressTest, AListingHasTheCompletePairs) {
  Write(1, Part::kData, "a");
  Write(1, Part::kIndex, "b");
  Write(2, Part::kIndex, "b");
  std::optional<Result<DiskProgress::Listing>> listing;
  disk_progress_.List(shard_, scope_.Bind([&](auto result) { listing = std::move(result); }));
  time_.RunUntil([&] { return listing.has_value(); }, Duration::Seconds(10));
  ASSERT_TRUE(listing && listing->ok());
  EXPECT_THAT((*listing)->stems, ::testing::ElementsAre(File(1)));
  EXPECT_EQ((*listing)->floor, 1);
}

TEST_F(DiskProgressTest, AnErrorOfTheListingIsPassedOn) {
  Write(1, Part::kData, "a");
  Write(1, Part::kIndex, "b");
  disk_.SetOptions({.open_error_rate = 1});
  std::optional<Result<ShardProgress>> progress;
  disk_progress_.Read(shard_, 1, 1, 10,
                      scope_.Bind([&](Result<ShardProgress> p) { progress = std::move(p); }));
  time_.RunUntil([&] { return progress.has_value(); }, Duration::Seconds(10));
  ASSERT_TRUE(progress.has_value());
  EXPECT_TRUE(IsUnavailable(progress->status())) << progress->status();
}

TEST(ShardProgressTest, IsReadBackFromItsMessageWithoutStemsThatAreNone) {
  ShardProgress progress{5, {{File(5), {10, 32}}, {File(6), {7, 64}}}};
  v1::ShardProgressReply reply = ToProto(progress);
  reply.add_files()->set_stem("no stem");
  v1::FileProgress* negative = reply.add_files();
  negative->set_stem(File(7).ToString());
  negative->set_data_length(-1);
  const ShardProgress back = FromProto(reply, 1000);
  EXPECT_EQ(back.floor, 5);
  ASSERT_EQ(back.files.size(), 2u);
  EXPECT_EQ(back.files[1].stem, File(6));
  EXPECT_EQ(back.files[1].length[0], 7);
  EXPECT_EQ(back.files[1].length[1], 64);
  EXPECT_EQ(back.covered_to, INT64_MAX);
}

TEST(ShardProgressTest, IsInOrderWhateverThePeerSends) {
  v1::ShardProgressReply reply = ToProto({1, {{File(6), {1, 0}}, {File(5), {2, 0}}}});
  *reply.add_files() = reply.files(0);
  for (const int64_t seq : {9, 3, 9}) reply.add_unread_seqs(seq);
  const ShardProgress progress = FromProto(reply, 1000);
  ASSERT_EQ(progress.files.size(), 2u);
  EXPECT_EQ(progress.files[0].stem, File(5));
  EXPECT_EQ(progress.files[1].stem, File(6));
  EXPECT_THAT(progress.unread, ::testing::ElementsAre(3, 9));
}

TEST(ShardProgressTest, SaysWhatIsNotKnown) {
  ShardProgress progress{1, {{File(5), {10, 32}}}};
  progress.unread = {6};
  progress.covered_to = 6;
  v1::ShardProgressReply reply = ToProto(progress);
  const ShardProgress back = FromProto(reply, 1000);
  EXPECT_THAT(back.unread, ::testing::ElementsAre(6));
  EXPECT_EQ(back.covered_to, 6);
  reply.clear_covered_to_seq();
  EXPECT_EQ(FromProto(reply, 1).covered_to, 5) << "of an older cell: a full page";
  EXPECT_EQ(FromProto(reply, 2).covered_to, INT64_MAX);
}

TEST_F(DiskProgressTest, DoneIsUpToTheFirstFileThatIsNotWholeOrNotClosed) {
  EXPECT_EQ(FindDone(1), 1);
  EXPECT_EQ(FindDone(4), 4) << "below the floor nothing is missing";
  disk_progress_.Forget(shard_.stream);
  WriteWhole(1);
  EXPECT_EQ(FindDone(1), 1) << "it may still grow";
  WriteWhole(2);
  Write(3, Part::kData, std::string(99, 'x'));
  Write(3, Part::kIndex, std::string(64, 'x'));
  EXPECT_EQ(FindDone(1), 3);
  WriteWhole(4);
  EXPECT_EQ(FindDone(1), 3) << "a byte of file 3 is missing";
  EXPECT_EQ(FindDone(4), 4);
}

TEST_F(DiskProgressTest, DoneGoesOnWhereTheLastLookEndedUntilAFileIsLost) {
  for (int64_t seq = 1; seq <= 100; ++seq) WriteWhole(seq);
  EXPECT_EQ(FindDone(1), 65) << "a look is short";
  EXPECT_EQ(FindDone(1), 100);
  const std::string name = stream::FileName(File(7), Part::kData);
  store_.Delete(stream::ShardDir(shard_), name, scope_.Bind([](const Status&) {}));
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(FindDone(1), 100) << "as far as known";
  disk_progress_.OnLacking(shard_, 7);
  EXPECT_EQ(FindDone(1), 7);
}

}  // namespace
}  // namespace tailcast::scheduler
