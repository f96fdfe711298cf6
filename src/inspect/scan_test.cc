#include "tailcast/inspect/scan.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/cache/wire.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/lock.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::inspect {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kLeft = 30'000;  // ms

cache::RingConfig Ring() {
  cache::RingConfig ring;
  for (const char* name : {"cache-1", "cache-2", "cache-3", "cache-4"}) {
    ring.replicas.push_back({name, "host:1", {}});
  }
  return ring;
}

v1::StreamConfig Stream(const std::string& name, uint64_t incarnation, int shards) {
  v1::StreamConfig stream;
  stream.set_name(name);
  stream.set_incarnation(incarnation);
  stream.set_shards(shards);
  stream.set_chunk_size(4096);
  return stream;
}

std::string Record(int64_t seq, int64_t length, int64_t chunk_size) {
  stream::PairMetadata file;
  file.created_us = 1'700'000'000'000'000;
  file.cache_length[0] = length;
  file.chunk_size = chunk_size;
  return stream::EncodePairMetadata(seq, file);
}

// Two streams of two shards; file 11 of s/1 has 10,000 bytes in chunks of 1024.
class ScanTest : public ::testing::Test {
 protected:
  void Put(v1::CacheScanReply& page, const cache::Key& key, cache::MergeRule rule,
           const std::string& value) {
    cache::wire::Append(*page.mutable_batch(), key, rule, false, value, kLeft);
  }
  void PutKey(v1::CacheScanReply& page, const cache::Key& key, uint32_t length) {
    cache::wire::Append(*page.mutable_batch(), key, cache::MergeRule::kLongerWins, false, "",
                        kLeft);
    page.add_value_lengths(length);
  }
  void Fill() {
    v1::CacheScanReply records, chunks;
    Put(records, keys_.MetadataGroup(11), cache::MergeRule::kMaxLanes, Record(11, 10'000, 1024));
    Put(records, keys_.Lock(11, 1), cache::MergeRule::kMaxBytes,
        stream::EncodeLock({stream::Term{}, 5, stream::LockState::kHeld}));
    Put(records, {1, 2}, cache::MergeRule::kMaxLanes, std::string(8, 'x'));
    PutKey(chunks, keys_.Chunk(11, stream::Part::kData, 1024, 9), 784);
    PutKey(chunks, keys_.Chunk(11, stream::Part::kData, 1024, 0), 1024);
    PutKey(chunks, {3, 4}, 10);
    for (const uint16_t replica : {0, 1, 2, 3}) {
      EXPECT_TRUE(metadata_.Add(replica, records).ok());
      EXPECT_TRUE(data_.Add(replica, chunks).ok());
      metadata_.End(replica);
      data_.End(replica);
    }
  }
  void NameAll(const ScanFilter& filter = {}) {
    NameRows(streams_, filter, metadata_, {&data_}, 10'000);
  }

  const std::vector<v1::StreamConfig> streams_{Stream("r", 5, 2), Stream("s", 6, 2)};
  const stream::KeyMaker keys_{{stream::IdOf(streams_[1]), 1}};
  ScanTable metadata_{Instance::kMetadata, Ring()}, data_{Instance::kData, Ring()};
};

TEST_F(ScanTest, FilesThatTheMetadataCacheKnowsGiveTheKeysTheirNames) {
  Fill();
  NameAll();
  EXPECT_EQ(metadata_.rows().at(keys_.MetadataGroup(11)).name->ToString(), "s/1/11");
  EXPECT_EQ(metadata_.rows().at(keys_.Lock(11, 1)).name->ToString(), "s/1/11/lock:cache");
  EXPECT_FALSE(metadata_.rows().at({1, 2}).name.has_value());
  EXPECT_EQ(data_.rows().at(keys_.Chunk(11, stream::Part::kData, 1024, 9)).name->ToString(),
            "s/1/11/9");
  EXPECT_FALSE(data_.rows().at({3, 4}).name.has_value());
}

TEST_F(ScanTest, TheTextListsNamedKeysFirstWithWhatTheySay) {
  Fill();
  NameAll();
  const std::string text = ScanText(data_, {}, 2, {});
  EXPECT_THAT(text, AllOf(HasSubstr("data cache: 3 keys on 4 replicas\n"), HasSubstr("s/1/11/0\n"),
                          HasSubstr("longer  1024      30 s cache-"),
                          HasSubstr("1 more; --limit 0 lists all")));
  EXPECT_LT(text.find("s/1/11/0\n"), text.find("s/1/11/9\n"));
  const std::string records = ScanText(metadata_, {}, 0, {});
  EXPECT_THAT(records, AllOf(HasSubstr("file 11: cache 10000+0"), HasSubstr("held by operation"),
                             HasSubstr("00000000000000010000000000000002")));
}

TEST_F(ScanTest, AFilterShowsNamedKeysAlone) {
  Fill();
  const ScanFilter filter{"s", 1, 11};
  NameAll(filter);
  EXPECT_THAT(ScanText(data_, filter, 0, {}),
              AllOf(HasSubstr("2 matching keys"), Not(HasSubstr("0000000000000003"))));
  EXPECT_THAT(ScanText(metadata_, filter, 0, {}), HasSubstr("2 matching keys"));
  EXPECT_THAT(ScanText(data_, {"r", {}, {}}, 0, {}), HasSubstr("0 matching keys"));
  EXPECT_THAT(ScanText(data_, {"s", 1, 12}, 0, {}), HasSubstr("0 matching keys"));
}

TEST_F(ScanTest, WhoLacksAKeyAndWhoShouldNotHaveItIsMarked) {
  const cache::Key key{7, 8};
  const cache::Owners owners = data_.OwnersOf(key);
  uint16_t stranger = 0;
  while (stranger == owners.replica[0] || stranger == owners.replica[1] ||
         stranger == owners.replica[2]) {
    ++stranger;
  }
  v1::CacheScanReply page;
  PutKey(page, key, 10);
  for (const uint16_t replica : {owners.replica[0], stranger}) {
    ASSERT_TRUE(data_.Add(replica, page).ok());
    data_.End(replica);
  }
  data_.End(owners.replica[1]);
  data_.Fail(owners.replica[2], UnavailableError("gone away"));
  const auto name = [&](uint16_t i) { return data_.ring().replicas[i].name; };
  EXPECT_THAT(ScanText(data_, {}, 0, {}),
              AllOf(HasSubstr(" " + name(owners.replica[0]) + " " + name(owners.replica[1]) + "- " +
                              name(owners.replica[2]) + "? " + name(stranger) + "+\n"),
                    HasSubstr("PARTIAL: " + name(owners.replica[2]) + ": gone away")));
  EXPECT_THAT(ScanJson({&data_}, {}, 0, {}), HasSubstr("\"error\": \"gone away\""));
}

TEST_F(ScanTest, KeysAndWorkAreBounded) {
  ScanTable small(Instance::kData, Ring(), 1);
  v1::CacheScanReply page;
  PutKey(page, {1, 1}, 1);
  PutKey(page, {2, 2}, 1);
  ASSERT_TRUE(small.Add(0, page).ok());
  EXPECT_EQ(small.rows().size(), 1u);
  EXPECT_THAT(ScanText(small, {}, 0, {}), HasSubstr("1 key left out"));
  Fill();
  NameRows(streams_, {}, metadata_, {&data_}, 3);
  EXPECT_FALSE(metadata_.rows().at(keys_.MetadataGroup(11)).name.has_value());
}

TEST_F(ScanTest, MalformedPagesAreRefused) {
  v1::CacheScanReply page;
  PutKey(page, {1, 1}, 1);
  page.add_value_lengths(7);
  EXPECT_TRUE(IsInvalidArgument(data_.Add(0, page)));
  page.mutable_batch()->mutable_keys()->append("x");
  EXPECT_TRUE(IsInvalidArgument(data_.Add(0, page)));
}

TEST_F(ScanTest, AFilterNeedsWhatItIsOf) {
  EXPECT_TRUE(ScanFilter{}.Check().ok());
  EXPECT_TRUE((ScanFilter{"s", 1, 2}).Check().ok());
  EXPECT_TRUE(IsInvalidArgument((ScanFilter{"", 1, {}}).Check()));
  EXPECT_TRUE(IsInvalidArgument((ScanFilter{"s", {}, 2}).Check()));
}

}  // namespace
}  // namespace tailcast::inspect
