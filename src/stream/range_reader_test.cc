// Figs 5 and 6 of the paper, tails of growing chunks, and a sweep against the file's bytes.
#include "tailcast/stream/range_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::stream {
namespace {

constexpr int64_t kChunk = 64;
const FileId kFile{{{"s", StreamIncarnation{9}}, 0}, {1, 1000, 0, 0}};

std::string Bytes(int64_t n) {
  std::string bytes;
  for (int64_t i = 0; i < n; ++i) bytes.push_back(static_cast<char>(i * 7 + i / 251));
  return bytes;
}

// Late for every chunk that it does not have.
class LateClient : public cache::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  void ReadChunks(std::span<cache::ChunkRead> reads, cache::ReadMode mode, Duration timeout,
                  Callback<void()> done) override {
    MemoryClient::ReadChunks(reads, mode, timeout,
                             scope_.Bind([reads, done = std::move(done)]() mutable {
                               for (cache::ChunkRead& read : reads) {
                                 read.late = read.length < read.want;
                               }
                               done();
                             }));
  }

 private:
  Scope scope_;
};

class RangeReaderTest : public ::testing::Test {
 protected:
  RangeReaderTest() {
    ports_ = {loop_.get(), &store_, &data_, &data_};
    reader_ = std::make_unique<RangeReader>(ports_, kFile, Part::kData, kChunk);
  }

  void WriteFile(std::string_view bytes) {
    bool done = false;
    store_.CreateExclusive(
        ShardDir(kFile.shard), FileName(kFile.stem, Part::kData), CreationKey(1, Part::kData),
        scope_.Bind([&, bytes](Result<std::unique_ptr<storage::AppendFile>> file) {
          ASSERT_TRUE(file.ok());
          file_ = std::move(*file);
          file_->AppendAt(0, std::string(bytes),
                          scope_.Bind([&](storage::AppendResult) { done = true; }));
        }));
    ASSERT_TRUE(time_.RunUntil([&] { return done; }, Duration::Seconds(10)));
  }
  void WriteChunk(int64_t number, std::string_view file, int64_t length = kChunk) {
    cache_.Apply({KeyMaker(kFile.shard).Chunk(1, Part::kData, kChunk, number),
                  cache::MergeRule::kLongerWins, false,
                  std::string(file.substr(static_cast<size_t>(number * kChunk),
                                          static_cast<size_t>(length)))});
  }
  // Reads [from, to) with the cache up to `cache` and the primary up to `primary`.
  RangeResult Read(int64_t from, int64_t to, int64_t cache, int64_t primary, int64_t room = 0) {
    RangeRequest request;
    request.from = from;
    request.to = to;
    request.cache_limit = cache;
    request.primary_limit = primary;
    const int64_t base = from - from % kChunk;
    request.room = room > 0 ? room : to - base;
    buffer_.assign(static_cast<size_t>(request.room), '?');
    request.destination = buffer_.data();
    return Run(request);
  }
  RangeResult Run(const RangeRequest& request) {
    std::optional<RangeResult> result;
    auto now = reader_->Read(request, scope_.Bind([&](RangeResult r) { result = std::move(r); }));
    at_once_ = now.has_value();
    if (now) return *now;
    EXPECT_TRUE(time_.RunUntil([&] { return result.has_value(); }, Duration::Seconds(30)));
    return *result;
  }
  // What landed at the destination, from ChunkStart(from) up to result.end.
  std::string Got(int64_t from, const RangeResult& result) {
    return buffer_.substr(static_cast<size_t>(from % kChunk),
                          static_cast<size_t>(result.end - from));
  }

  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("test");
  storage::FakeDisk disk_{loop_.get(), 1};
  storage::FakeStore store_{&disk_, loop_.get()};
  cache::MemoryStore cache_;
  cache::MemoryClient data_{loop_.get(), &cache_};
  CellPorts ports_;
  std::unique_ptr<RangeReader> reader_;
  std::unique_ptr<storage::AppendFile> file_;
  std::string buffer_;
  bool at_once_ = false;
  Scope scope_;
};

TEST_F(RangeReaderTest, WhatIsNotThereIsNotMissedIfNobodySaidSo) {
  const std::string bytes = Bytes(300);
  WriteFile(bytes);
  WriteChunk(0, bytes);
  WriteChunk(1, bytes, 10);
  cache_.SetFaults({.delay = Duration::Millis(1)});
  buffer_.assign(256, '?');
  RangeRequest request;
  request.to = request.room = request.cache_limit = 256;
  request.destination = buffer_.data();
  request.ahead = true;
  const RangeResult result = Run(request);
  EXPECT_EQ(result.end, 74);
  EXPECT_EQ(Got(0, result), bytes.substr(0, 74));
  EXPECT_EQ(result.tail_crc, Crc32c(bytes.substr(64, 10)));
  EXPECT_EQ(result.missing_chunks + result.short_chunks + result.late_chunks, 0);
  EXPECT_EQ(result.primary_reads, 0);
  EXPECT_EQ(data_.counters().reads_ahead, 4u);
  EXPECT_EQ(data_.counters().hits_ahead, 2u);
  EXPECT_EQ(data_.counters().misses + data_.counters().reads, 0u);
}

TEST_F(RangeReaderTest, ReadsWholeChunksFromTheCacheAtOnce) {
  const std::string bytes = Bytes(300);
  for (int64_t c = 0; c < 4; ++c) WriteChunk(c, bytes);
  const RangeResult result = Read(0, 256, 256, 0);
  EXPECT_TRUE(at_once_);
  EXPECT_EQ(result.end, 256);
  EXPECT_EQ(Got(0, result), bytes.substr(0, 256));
  EXPECT_EQ(result.cache_bytes, 256);
  EXPECT_EQ(result.primary_reads, 0);
}

TEST_F(RangeReaderTest, AllMissedChunksAreFetchedInASingleReadOfThePrimary) {  // Fig 6
  const std::string bytes = Bytes(64 * 6);
  WriteFile(bytes);
  WriteChunk(0, bytes);
  WriteChunk(2, bytes);
  WriteChunk(5, bytes);
  const RangeResult result = Read(0, 384, 384, 384);  // 1, 3 and 4 are missing
  EXPECT_EQ(result.end, 384);
  EXPECT_EQ(Got(0, result), bytes);
  EXPECT_EQ(result.missing_chunks, 3);
  EXPECT_EQ(result.primary_reads, 1);
  EXPECT_EQ(result.primary_bytes, 3 * kChunk) << "the span's chunk 2 came from the cache";
  EXPECT_EQ(result.cache_bytes, 3 * kChunk);
}

TEST_F(RangeReaderTest, ThePrimaryIsAskedForWhatIsLateOnlyIfNothingCame) {
  const std::string file = Bytes(5 * kChunk);
  WriteFile(file);
  for (int64_t number : {0, 1, 3}) WriteChunk(number, file, number == 1 ? 20 : kChunk);
  LateClient late(loop_.get(), &cache_);
  ports_.data_cache = &late;
  reader_ = std::make_unique<RangeReader>(ports_, kFile, Part::kData, kChunk);
  const auto read = [&](int64_t from, bool late_is_short) {
    RangeRequest request;
    request.from = from;
    request.to = request.cache_limit = request.primary_limit = 5 * kChunk;
    request.room = request.to - from + from % kChunk;
    request.late_is_short = late_is_short;
    buffer_.assign(static_cast<size_t>(request.room), '?');
    request.destination = buffer_.data();
    return Run(request);
  };
  RangeResult result = read(0, true);
  EXPECT_EQ(result.end, kChunk + 20) << "what came, up to where it is late";
  EXPECT_EQ(result.primary_reads, 0);
  EXPECT_GT(result.late_chunks, 0);
  EXPECT_EQ(Got(0, result), file.substr(0, kChunk + 20));
  EXPECT_EQ(result.tail_crc, Crc32c(std::string_view(file).substr(kChunk, 20)));
  result = read(2 * kChunk, true);
  EXPECT_EQ(result.end, 5 * kChunk) << "nothing came before what is late";
  EXPECT_EQ(result.primary_reads, 1);
  EXPECT_EQ(Got(2 * kChunk, result), file.substr(2 * kChunk));
  result = read(0, false);
  EXPECT_EQ(result.end, 5 * kChunk) << "not asked for";
  EXPECT_EQ(result.primary_reads, 1);
}

TEST_F(RangeReaderTest, ShortChunksAreCompletedFromThePrimary) {
  const std::string bytes = Bytes(64 * 2);
  WriteFile(bytes);
  WriteChunk(0, bytes, 20);
  WriteChunk(1, bytes);
  const RangeResult result = Read(0, 128, 128, 128);
  EXPECT_EQ(Got(0, result), bytes);
  EXPECT_EQ(result.short_chunks, 1);
  EXPECT_EQ(result.primary_bytes, 44);
}

TEST_F(RangeReaderTest, ThePrimaryIsNeverReadBeyondItsLength) {
  const std::string bytes = Bytes(64 * 3);
  WriteFile(bytes);
  WriteChunk(2, bytes);
  const RangeResult result = Read(0, 192, 192, 100);
  EXPECT_EQ(result.end, 100);
  EXPECT_EQ(Got(0, result), bytes.substr(0, 100));
  EXPECT_TRUE(result.tail_valid);
  EXPECT_EQ(result.tail_crc, Crc32c(std::string_view(bytes).substr(64, 36)));
}

TEST_F(RangeReaderTest, ChunksBeyondTheCachesLengthAreNotSoughtThere) {
  const std::string bytes = Bytes(256);
  WriteFile(bytes);
  WriteChunk(0, bytes);
  const RangeResult result = Read(0, 256, 64, 256);
  EXPECT_EQ(result.end, 256);
  EXPECT_EQ(result.chunks, 1);
  EXPECT_EQ(result.missing_chunks, 0);
  EXPECT_EQ(Got(0, result), bytes);
}

TEST_F(RangeReaderTest, AMissingFileIsAShortAnswerWithItsReason) {
  const std::string bytes = Bytes(128);
  WriteChunk(0, bytes);
  const RangeResult result = Read(0, 128, 128, 128);
  EXPECT_EQ(result.end, 64);
  EXPECT_TRUE(IsNotFound(result.primary_error)) << result.primary_error;
}

TEST_F(RangeReaderTest, AGrowingChunkIsFetchedByItsSuffixOnly) {
  const std::string bytes = Bytes(200);
  WriteChunk(0, bytes);
  WriteChunk(1, bytes, 10);
  buffer_.assign(256, '?');
  RangeRequest request;
  request.to = request.cache_limit = 74;
  request.destination = buffer_.data();
  request.room = 256;
  RangeResult result = Run(request);
  ASSERT_EQ(result.end, 74);
  WriteChunk(1, bytes, 50);
  buffer_[64] = '!';  // must not be fetched again
  request.from = result.end;
  request.to = request.cache_limit = 110;
  request.destination = buffer_.data() + 64;
  request.room = 192;
  request.prefix_valid = result.tail_valid;
  request.prefix_crc = result.tail_crc;
  result = Run(request);
  EXPECT_EQ(result.end, 114) << "the chunk had more than was asked for, and there was room";
  EXPECT_EQ(buffer_[64], '!');
  EXPECT_EQ(buffer_.substr(74, 40), bytes.substr(74, 40));
  EXPECT_EQ(result.tail_crc, Crc32c(std::string_view(bytes).substr(64, 50)));
}

TEST_F(RangeReaderTest, AStartInsideAChunkReadsItFromItsBeginning) {
  const std::string bytes = Bytes(128);
  WriteChunk(0, bytes);
  WriteChunk(1, bytes);
  RangeResult result = Read(30, 128, 128, 0);
  EXPECT_EQ(result.end, 128);
  EXPECT_EQ(Got(30, result), bytes.substr(30));
  EXPECT_EQ(result.cache_bytes, 98);
  cache_.EvictAll();
  result = Read(30, 50, 128, 0);
  EXPECT_EQ(result.end, 30);
  EXPECT_FALSE(result.tail_valid) << "nothing of the chunk's beginning was read";
}

TEST_F(RangeReaderTest, ALateConsumerLeavesTheCacheAloneUntilItHasSomethingAgain) {
  const std::string bytes = Bytes(64 * 40);
  WriteFile(bytes);
  for (int64_t c = 20; c < 40; ++c) WriteChunk(c, bytes);
  int64_t at = 0;
  while (at < 64 * 40) {
    const RangeResult result = Read(at, at + 64, 64 * 40, 64 * 40);
    ASSERT_EQ(result.end, at + 64);
    ASSERT_EQ(Got(at, result), bytes.substr(static_cast<size_t>(at), 64));
    at = result.end;
  }
  EXPECT_GT(reader_->counters().cache_skips, 5);
  EXPECT_GT(reader_->counters().cache_bytes, 5 * 64) << "it went back to the cache";
}

TEST_F(RangeReaderTest, DestroyedWhileReadingItsCallbackIsDropped) {
  const std::string bytes = Bytes(128);
  WriteFile(bytes);
  auto owner = std::make_shared<std::string>(128, '?');
  RangeRequest request;
  request.to = request.primary_limit = 128;
  request.destination = owner->data();
  request.room = 128;
  request.owner = owner;
  EXPECT_FALSE(reader_->Read(request, scope_.Bind([](RangeResult) { FAIL(); })).has_value());
  reader_.reset();
  time_.RunFor(Duration::Seconds(5));
}

TEST_F(RangeReaderTest, PrimarySizeIsTheFilesOwn) {
  std::optional<Result<storage::FileSize>> size;
  reader_->PrimarySize(scope_.Bind([&](Result<storage::FileSize> s) { size = std::move(s); }));
  time_.RunFor(Duration::Seconds(1));
  ASSERT_TRUE(size.has_value());
  EXPECT_TRUE(IsNotFound(size->status()));
  WriteFile(Bytes(100));
  reader_->PrimarySize(scope_.Bind([&](Result<storage::FileSize> s) { size = std::move(s); }));
  time_.RunFor(Duration::Seconds(1));
  ASSERT_TRUE(size->ok());
  EXPECT_EQ((**size).committed_length, 100);
}

// Whatever the layers hold, what is given are the file's bytes, and the tail's check sum is right.
TEST_F(RangeReaderTest, SweepGivesTheFilesBytesAndNothingElse) {
  const std::string bytes = Bytes(64 * 12 + 17);
  const auto size = static_cast<int64_t>(bytes.size());
  WriteFile(bytes);
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Rng rng(seed);
    cache_.SetFaults({});
    cache_.EvictAll();
    storage::FakeDiskOptions faults;
    if (rng.Chance(0.3)) faults.read_error_rate = 0.3;
    if (rng.Chance(0.3)) faults.short_read_rate = 0.5;
    disk_.SetOptions(faults);
    for (int64_t c = 0; c * kChunk < size; ++c) {
      if (rng.Chance(0.7)) WriteChunk(c, bytes, rng.Chance(0.7) ? kChunk : rng.Between(1, kChunk));
    }
    cache_.SetFaults({.miss = rng.Chance(0.5) ? 0.2 : 0.0,
                      .short_read = rng.Chance(0.5) ? 0.3 : 0.0,
                      .delay = Duration::Millis(rng.Between(0, 1))});
    reader_ = std::make_unique<RangeReader>(ports_, kFile, Part::kData, kChunk);
    buffer_.assign(static_cast<size_t>(size + kChunk), '?');
    int64_t at = rng.Between(0, size - 1);
    const int64_t first = at;
    RangeResult result;
    for (int step = 0; step < 60 && at < size; ++step) {
      RangeRequest request;
      request.from = at;
      request.to = rng.Between(at + 1, std::min(size, at + 200));
      request.cache_limit = rng.Chance(0.2) ? 0 : rng.Between(0, size);
      request.primary_limit = rng.Chance(0.3) ? 0 : rng.Between(0, size);
      const int64_t base = at - at % kChunk;
      request.destination = buffer_.data() + base;
      request.room = rng.Chance(0.5) ? request.to - base : size + kChunk - base;
      request.prefix_valid = result.tail_valid;
      request.prefix_crc = result.tail_crc;
      const RangeResult next = Run(request);
      ASSERT_GE(next.end, at);
      ASSERT_LE(next.end, size);
      if (next.tail_valid) {
        const int64_t start = next.end - next.end % kChunk;
        ASSERT_EQ(next.tail_crc,
                  Crc32c(std::string_view(bytes).substr(static_cast<size_t>(start),
                                                        static_cast<size_t>(next.end - start))))
            << "seed " << seed << " step " << step;
      }
      at = next.end;
      result = next;
    }
    ASSERT_EQ(buffer_.substr(static_cast<size_t>(first), static_cast<size_t>(at - first)),
              bytes.substr(static_cast<size_t>(first), static_cast<size_t>(at - first)))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace tailcast::stream
