// Names, index records, metadata, locks and keys: what docs/formats draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/rng.h"
#include "tailcast/cache/merge.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/lock.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {
namespace {

using ::testing::HasSubstr;

const Stem kStem{7, 1763722199123456, 12345678, 12345};
constexpr char kStemText[] = "0000000007-0001763722199123456-0000000012345678-00000000012345";

TEST(Stem, PrintsAllFieldsWithFixedWidth) { EXPECT_EQ(kStem.ToString(), kStemText); }

TEST(Stem, ParsesWhatItPrints) {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const Stem stem{rng.Between(1, 9999999999), rng.Between(0, INT64_MAX),
                    rng.Between(0, 9999999999999999), rng.Between(0, 99999999999999)};
    EXPECT_EQ(Stem::Parse(stem.ToString()), stem);
  }
}

TEST(Stem, SaysItsChunkSizeWhereItHasOneOfItsOwn) {
  Stem stem = kStem;
  for (int64_t size = kChunkSizeMin; size <= kChunkSizeMax; size *= 2) {
    stem.chunk_size = size;
    EXPECT_EQ(Stem::Parse(stem.ToString()), stem);
    EXPECT_EQ(ParseFileName(FileName(stem, Part::kIndex))->stem, stem);
    EXPECT_EQ(ChunkSizeOf(stem, 4096), size);
  }
  stem.chunk_size = 512;
  EXPECT_EQ(stem.ToString(), std::string(kStemText) + "-00512");
  EXPECT_EQ(ChunkSizeOf(kStem, 4096), 4096);
  EXPECT_NE(stem, kStem);
  for (const char* bad : {"-00000", "-00256", "-04095", "-99999", "-0512", "00512x", "-"}) {
    EXPECT_FALSE(Stem::Parse(std::string(kStemText) + bad)) << bad;
  }
}

TEST(PairMetadata, CarriesTheChunkSizeOfTheStem) {
  PairMetadata pair;
  pair.created_us = kStem.created_us;
  pair.start_byte = kStem.start_byte;
  pair.start_number = kStem.start_number;
  pair.chunk_size = 4096;
  EXPECT_EQ(StemOf(7, DecodePairMetadata(7, EncodePairMetadata(7, pair))), kStem);
  pair.chunk_size = pair.stem_chunk_size = 16384;
  Stem stem = kStem;
  stem.chunk_size = 16384;
  EXPECT_EQ(StemOf(7, DecodePairMetadata(7, EncodePairMetadata(7, pair))), stem);
  pair.stem_chunk_size = 1000;
  EXPECT_FALSE(DecodePairMetadata(7, EncodePairMetadata(7, pair)).known()) << "no stem says that";
}

TEST(Stem, SortsAsTextLikeItsNumbers) {
  Rng rng(2);
  std::vector<Stem> stems;
  for (int i = 0; i < 300; ++i) {
    stems.push_back({rng.Between(1, 20), rng.Between(1, 2000), rng.Between(0, 300), 0});
  }
  std::sort(stems.begin(), stems.end());
  for (size_t i = 1; i < stems.size(); ++i) {
    EXPECT_LE(stems[i - 1].ToString(), stems[i].ToString());
  }
}

TEST(Stem, RefusesAnythingElse) {
  const std::string good = kStemText;
  EXPECT_TRUE(Stem::Parse(good));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = 'x';
    EXPECT_FALSE(Stem::Parse(bad)) << bad;
    EXPECT_FALSE(Stem::Parse(good.substr(0, i)));
  }
  EXPECT_FALSE(Stem::Parse(good + "0"));
  EXPECT_FALSE(Stem::Parse("0000000000" + good.substr(10))) << "sequence numbers begin at 1";
  EXPECT_FALSE(Stem::Parse("0000000007-9999999999999999999-0000000012345678-00000000012345"))
      << "overflow";
}

TEST(FileNames, CarryTheirPart) {
  for (Part part : {Part::kData, Part::kIndex}) {
    const auto parsed = ParseFileName(FileName(kStem, part));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->stem, kStem);
    EXPECT_EQ(parsed->part, part);
  }
  EXPECT_EQ(FileName(kStem, Part::kData), std::string(kStemText) + ".data");
  EXPECT_FALSE(ParseFileName(kStemText));
  EXPECT_FALSE(ParseFileName(std::string(kStemText) + ".data.e2"));
  EXPECT_FALSE(ParseFileName(".claim-0000000007.data"));
  EXPECT_FALSE(ParseFileName(""));
}

TEST(FileNames, CreationKeysDependOnSequenceNumberAndPartOnly) {
  EXPECT_EQ(CreationKey(7, Part::kData), "0000000007.data");
  EXPECT_EQ(CreationKey(7, Part::kIndex), "0000000007.index");
}

TEST(FileNames, ShardsHaveAFolderPerIncarnation) {
  EXPECT_EQ(ShardDir({{"flights", StreamIncarnation{0xabc}}, 3}),
            "streams/flights/0000000000000abc/00003");
}

TEST(StreamNames, AreCheckedWithTheRule) {
  for (const char* good : {"flights-2013_v.1", "Flights.EU", "A", "com.example.Orders"}) {
    EXPECT_TRUE(ValidateStreamName(good).ok()) << good;
  }
  for (const char* bad : {"", "-a", "a/b", "Ä", "a b", ".a", "_a"}) {
    const Status status = ValidateStreamName(bad);
    EXPECT_TRUE(IsInvalidArgument(status)) << bad;
    EXPECT_THAT(status.message(), HasSubstr("use 1 to 100 of"));
  }
  EXPECT_FALSE(ValidateStreamName(std::string(101, 'a')).ok());
}

TEST(IndexRecord, IsDrawnAsDocumented) {
  std::string bytes;
  IndexRecord{0x0102030405060708, 0x11121314, 0x21222324, 0x3132333435363738, 0x4142}.AppendTo(
      bytes);
  ASSERT_EQ(bytes.size(), 32u);
  const unsigned char expected[28] = {8,    7,    6,    5,    4,    3,    2,    1,    0x14, 0x13,
                                      0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35,
                                      0x34, 0x33, 0x32, 0x31, 0x42, 0x41, 0,    0};
  EXPECT_EQ(bytes.substr(0, 28), std::string(reinterpret_cast<const char*>(expected), 28));
  uint32_t check = 0;
  std::memcpy(&check, bytes.data() + 28, 4);
  EXPECT_EQ(check, Crc32c(bytes.substr(0, 28)));
}

TEST(IndexRecord, DecodesWhatItEncodes) {
  Rng rng(3);
  for (int i = 0; i < 1000; ++i) {
    const IndexRecord record{rng.Between(0, INT64_MAX - UINT32_MAX),
                             static_cast<uint32_t>(rng.Next()), static_cast<uint32_t>(rng.Next()),
                             static_cast<int64_t>(rng.Next()),
                             static_cast<uint16_t>(rng.Between(0, 65535))};
    std::string bytes;
    record.AppendTo(bytes);
    if (record.headers_length > record.length) continue;
    EXPECT_EQ(IndexRecord::Decode(bytes.data()), record);
  }
}

TEST(IndexRecord, AnyFlippedBitIsNoticed) {
  std::string bytes;
  IndexRecord{1000, 200, 0xdeadbeef, 1763722199123456}.AppendTo(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(IndexRecord::Decode(bad.data())) << bit;
  }
  EXPECT_FALSE(IndexRecord::Decode(std::string(32, '\0').data())) << "zeros are no record";
}

TEST(IndexRecord, ImpossibleFieldsAreNoRecordEvenWithAGoodCheck) {
  const auto decode = [](int64_t offset, uint16_t flags, uint32_t length = 0,
                         uint16_t headers = 0) {
    std::string bytes(28, '\0');
    std::memcpy(bytes.data(), &offset, 8);
    std::memcpy(bytes.data() + 8, &length, 4);
    std::memcpy(bytes.data() + 24, &headers, 2);
    std::memcpy(bytes.data() + 26, &flags, 2);
    const uint32_t check = Crc32c(bytes);
    bytes.append(reinterpret_cast<const char*>(&check), 4);
    return IndexRecord::Decode(bytes.data());
  };
  EXPECT_TRUE(decode(5, 0));
  EXPECT_FALSE(decode(-1, 0));
  EXPECT_FALSE(decode(INT64_MAX, 0)) << "its end would overflow";
  EXPECT_FALSE(decode(5, 1)) << "flags of a later version";
  EXPECT_FALSE(decode(5, 0x8000)) << "flags of a later version";
  EXPECT_TRUE(decode(5, 0, 65535, 65535));
  EXPECT_FALSE(decode(5, 0, 65534, 65535)) << "more headers than message";
}

PairMetadata SomeMetadata(Rng& rng) {
  PairMetadata r;
  const auto draw = [&] { return rng.Chance(0.3) ? 0 : rng.Between(0, 1 << 30); };
  r.created_us = draw();
  r.start_byte = draw();
  r.start_number = draw();
  r.cache_length[0] = draw();
  r.cache_length[1] = draw();
  r.primary_length[0] = draw();
  r.primary_length[1] = draw();
  r.primary_epoch = storage::Epoch{static_cast<uint64_t>(draw())};
  if (rng.Chance(0.5)) r.seal[0] = draw();
  if (rng.Chance(0.5)) r.seal[1] = draw();
  r.heartbeat_us = draw();
  r.chunk_size = draw();
  return r;
}

TEST(PairMetadata, DecodesWhatItEncodesAtEverySlot) {
  Rng rng(4);
  for (int64_t seq = 1; seq < 40; ++seq) {
    const PairMetadata metadata = SomeMetadata(rng);
    EXPECT_EQ(DecodePairMetadata(seq, EncodePairMetadata(seq, metadata)), metadata);
  }
}

TEST(PairMetadata, SealedAtZeroIsNotOpen) {
  PairMetadata metadata;
  EXPECT_FALSE(metadata.sealed());
  metadata.seal[0] = 0;
  metadata.seal[1] = 0;
  EXPECT_TRUE(DecodePairMetadata(3, EncodePairMetadata(3, metadata)).sealed());
}

TEST(PairMetadata, CacheMergeIsFieldWiseMaximum) {
  Rng rng(5);
  for (int i = 0; i < 500; ++i) {
    const int64_t seq = rng.Between(1, 16);
    const PairMetadata a = SomeMetadata(rng), b = SomeMetadata(rng);
    std::string value = EncodePairMetadata(seq, a);
    cache::MergeInto(cache::MergeRule::kMaxLanes, value, EncodePairMetadata(seq, b));
    EXPECT_EQ(DecodePairMetadata(seq, value), Merge(a, b));
  }
}

TEST(PairMetadata, NeighboursShareAValueAndDoNotTouchEachOther) {
  Rng rng(6);
  std::vector<PairMetadata> written;
  std::string value;
  for (int64_t seq = 8; seq < 16; ++seq) {
    written.push_back(SomeMetadata(rng));
    cache::MergeInto(cache::MergeRule::kMaxLanes, value, EncodePairMetadata(seq, written.back()));
  }
  for (int64_t seq = 8; seq < 16; ++seq) {
    EXPECT_EQ(DecodePairMetadata(seq, value), written[static_cast<size_t>(seq - 8)]);
    EXPECT_EQ(MetadataGroupOf(seq), 1);
  }
}

TEST(PairMetadata, BadValuesAreNotKnown) {
  PairMetadata metadata;
  metadata.created_us = 5;
  const std::string value = EncodePairMetadata(3, metadata);
  EXPECT_TRUE(DecodePairMetadata(3, value).known());
  EXPECT_FALSE(DecodePairMetadata(3, value.substr(0, value.size() - 8)).known());
  EXPECT_FALSE(DecodePairMetadata(3, value + "x").known());
  // Lanes that no writer gives: later sums of them would overflow.
  for (const int64_t lane : {int64_t{-1}, (int64_t{1} << 56) + 1, INT64_MAX}) {
    for (size_t i = 0; i < kPairLanes; ++i) {
      std::string broken = value;
      std::memcpy(broken.data() + (3 * kPairLanes + i) * 8, &lane, 8);
      EXPECT_FALSE(DecodePairMetadata(3, broken).known()) << i << " " << lane;
    }
  }
  EXPECT_FALSE(DecodePairMetadata(3, "").known());
  EXPECT_FALSE(DecodePairMetadata(0, value).known());
  std::string negative = value;
  negative.back() = '\x80';
  EXPECT_FALSE(DecodePairMetadata(3, negative).known());
}

TEST(Lock, OrderOfBytesIsOrderOfValues) {
  Rng rng(7);
  for (int i = 0; i < 500; ++i) {
    const auto draw = [&] {
      return LockValue{Term::Unpack(rng.Next() >> rng.Between(0, 63)),
                       rng.Next() >> rng.Between(0, 63), static_cast<LockState>(rng.Between(1, 3))};
    };
    const LockValue a = draw(), b = draw();
    EXPECT_EQ(a < b, EncodeLock(a) < EncodeLock(b));
    EXPECT_EQ(DecodeLock(EncodeLock(a)), a);
  }
}

TEST(Lock, RefusesWhatIsNoLock) {
  std::string bytes = EncodeLock({Term::Unpack(1), 2, LockState::kHeld});
  EXPECT_FALSE(DecodeLock(bytes.substr(1)));
  bytes.back() = 4;
  EXPECT_FALSE(DecodeLock(bytes));
  EXPECT_FALSE(DecodeLock(""));
}

TEST(KeyMaker, EverythingThatIsDifferentHasAnotherKey) {
  std::set<cache::Key> keys;
  int made = 0;
  for (uint64_t incarnation : {1, 2}) {
    for (int32_t shard : {0, 1}) {
      const KeyMaker maker({{"s", StreamIncarnation{incarnation}}, shard});
      for (int64_t seq = 1; seq < 20; ++seq) {
        for (Part part : {Part::kData, Part::kIndex}) {
          for (int64_t size : {512, 4096}) {
            for (int64_t number = 0; number < 5; ++number) {
              keys.insert(maker.Chunk(seq, part, size, number));
              ++made;
            }
          }
        }
        for (int layer : {0, 1}) {
          keys.insert(maker.Lock(seq, layer));
          ++made;
        }
      }
      for (int64_t seq : {0, 8, 16}) {
        keys.insert(maker.MetadataGroup(seq));
        ++made;
      }
    }
  }
  EXPECT_EQ(static_cast<int>(keys.size()), made);
}

TEST(KeyMaker, FilesOfAGroupShareTheMetadataKey) {
  const KeyMaker maker({{"s", StreamIncarnation{1}}, 0});
  EXPECT_EQ(maker.MetadataGroup(8), maker.MetadataGroup(15));
  EXPECT_NE(maker.MetadataGroup(7), maker.MetadataGroup(8));
}

TEST(KeyMaker, TheIncarnationIsTheIdentityNotTheName) {
  const KeyMaker maker({{"any name", StreamIncarnation{0x0123456789abcdef}}, 3});
  const KeyMaker other({{"other name", StreamIncarnation{0x0123456789abcdef}}, 3});
  EXPECT_EQ(maker.Chunk(7, Part::kIndex, 4096, 5), other.Chunk(7, Part::kIndex, 4096, 5));
}

}  // namespace
}  // namespace tailcast::stream
