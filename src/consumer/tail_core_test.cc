#include "tailcast/consumer/tail_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::consumer {
namespace {

using stream::kIndexRecordSize;
using stream::Part;
using stream::Position;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kChunk = 64;

MonotonicTime Ms(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

// A file as each of its sources has it, and a user who takes what is ready.
class TailTest : public ::testing::Test {
 protected:
  struct Source {
    std::string bytes[stream::kParts];
    int64_t known[stream::kParts] = {0, 0};
    int64_t allowed[stream::kParts] = {0, 0};
    int64_t perhaps[stream::kParts] = {0, 0};
  };

  TailTest() {
    options_.window_bytes = 256;
    options_.poll = Duration::Millis(10);
    options_.message_bytes_max = 10000;
  }
  void Add(const std::string& payload, const std::string& headers = "") {
    const std::string message = headers + payload;
    stream::IndexRecord{static_cast<int64_t>(bytes_[0].size()),
                        static_cast<uint32_t>(message.size()), Crc32c(message), 1000,
                        static_cast<uint16_t>(headers.size())}
        .AppendTo(bytes_[1]);
    bytes_[0] += message;
  }
  // Everything that was added is in each of `count` sources, which may all be asked at once.
  void Open(size_t count = 1, FilePlace place = {}) {
    place.stem = stem_;
    sources_.assign(count, Source());
    for (Source& source : sources_) {
      for (int part = 0; part < stream::kParts; ++part) {
        source.bytes[part] = bytes_[part];
        source.known[part] = source.allowed[part] = static_cast<int64_t>(bytes_[part].size());
      }
    }
    tail_.emplace(options_, counters_, shard_);
    const std::vector<std::string_view> names = {"one", "two", "three"};
    tail_->Open(place, kChunk, {names.begin(), names.begin() + static_cast<ptrdiff_t>(count)});
  }
  void Seal() {
    tail_->SetSeal(
        {{static_cast<int64_t>(bytes_[0].size()), static_cast<int64_t>(bytes_[1].size())}});
  }
  std::optional<TailCore::Fetch> Next(Part part) {
    std::vector<SourceLengths> lengths;
    for (const Source& source : sources_) {
      lengths.push_back({source.known[static_cast<int>(part)],
                         source.allowed[static_cast<int>(part)],
                         source.perhaps[static_cast<int>(part)]});
    }
    return tail_->NextFetch(now_, part, lengths);
  }
  // As a source reads: whole chunks of what it has, up to the end of the request.
  // `late`: half of that, as the cache's time was over.
  bool Answer(Part part, const TailCore::Fetch& fetch, bool late = false) {
    const stream::RangeRequest& request = fetch.request;
    const std::string& bytes = sources_[fetch.source].bytes[static_cast<int>(part)];
    const int64_t base = request.from - request.from % kChunk;
    stream::RangeResult result;
    result.end = std::max(request.from, std::min(request.to, static_cast<int64_t>(bytes.size())));
    if (late) {
      result.end = request.from + (result.end - request.from) / 2;
      result.late_chunks = 1;
    }
    result.cache_bytes = result.end - request.from;
    const int64_t from = request.prefix_valid ? request.from : base;
    if (result.end > from) {
      std::memcpy(request.destination + (from - base), bytes.data() + from,
                  static_cast<size_t>(result.end - from));
    }
    const int64_t tail = result.end - result.end % kChunk;
    result.tail_valid = true;
    result.tail_crc = Crc32c(std::string_view(bytes).substr(
        static_cast<size_t>(tail), static_cast<size_t>(result.end - tail)));
    if (result.end < request.to && !late) result.primary_error = UnavailableError("not here");
    return tail_->OnFetched(now_, part, result);
  }
  // Reads and takes until nothing moves any more.
  std::vector<std::string> Drain() {
    std::vector<std::string> got;
    for (int still = 0; still < 2; ++still) {
      for (Part part : {Part::kIndex, Part::kData}) {
        if (auto fetch = Next(part)) {
          asked_.push_back(fetch->source);
          Answer(part, *fetch);
          still = 0;
        }
      }
      std::vector<Message> messages;
      if (tail_->Take(messages, 1 << 20) > 0) still = 0;
      for (const Message& m : messages) got.emplace_back(m.payload);
      tail_->Release();
    }
    return got;
  }

  const stream::ShardId shard_{{"s", stream::StreamIncarnation{7}}, 3};
  const stream::Stem stem_{2, 1000, 500, 50};
  AgentOptions options_;
  Counters counters_;
  std::string bytes_[stream::kParts];
  std::vector<Source> sources_;
  std::optional<TailCore> tail_;
  MonotonicTime now_ = Ms(1000);
  bool short_if_late_ = false;  // of the last fetch
  std::vector<size_t> asked_;   // which source, of each fetch of Drain
};

TEST_F(TailTest, MessagesAreGivenInOrderWithTheirPlaces) {
  for (const char* text : {"one", "", "three"}) Add(text);
  Open();
  auto index = Next(Part::kIndex), data = Next(Part::kData);
  ASSERT_TRUE(index && data);
  EXPECT_FALSE(Next(Part::kIndex)) << "one fetch of a part at a time";
  EXPECT_TRUE(Answer(Part::kIndex, *index));
  EXPECT_FALSE(tail_->ready());
  EXPECT_TRUE(Answer(Part::kData, *data));
  EXPECT_TRUE(tail_->ready());
  std::vector<Message> messages;
  ASSERT_EQ(tail_->Take(messages, 1000), 3u);
  EXPECT_EQ(messages[2].payload, "three");
  EXPECT_EQ(messages[2].number, 52);
  EXPECT_EQ(messages[2].byte, 503);
  EXPECT_EQ(messages[2].shard, 3);
  EXPECT_EQ(tail_->position(), (Position{stream::StreamIncarnation{7}, 3, 53, 508}));
}

// What comes in rounds of so many messages of 10 bytes, of which nobody says anything.
TEST_F(TailTest, WhatIsReadAheadFollowsWhatComes) {
  options_.window_bytes = 4096;
  Open();
  Source& source = sources_[0];
  EXPECT_FALSE(Next(Part::kData)) << "nobody may";
  source.perhaps[0] = source.perhaps[1] = INT64_MAX;
  std::vector<int64_t> asked;
  for (const int messages : {0, 50, 50, 50, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) {
    now_ = now_ + Duration::Millis(10);
    for (int i = 0; i < messages; ++i) Add("0123456789");
    for (Part part : {Part::kIndex, Part::kData}) {
      source.bytes[static_cast<int>(part)] = bytes_[static_cast<int>(part)];
      int64_t most = 0;
      for (bool more = true; more;) {
        const auto fetch = Next(part);
        ASSERT_TRUE(fetch);
        EXPECT_TRUE(fetch->request.ahead);
        EXPECT_EQ(fetch->request.to % kChunk, 0) << "whole chunks";
        most = std::max(most, fetch->request.to - fetch->request.from);
        Answer(part, *fetch);
        EXPECT_EQ(tail_->NextWork(), MonotonicTime::Max()) << "less is no reason to wait";
        more = tail_->end(part) >= fetch->request.to;
      }
      if (part == Part::kData) asked.push_back(most);
    }
    std::vector<Message> got;
    EXPECT_EQ(tail_->Take(got, 1 << 20), static_cast<size_t>(messages));
    tail_->Release();
  }
  EXPECT_EQ(asked[0], kChunk);
  EXPECT_GE(asked[2], 500) << "as much as the last time";
  EXPECT_LE(asked[4], 500 + 500 / 4 + 2 * kChunk) << "and a little more";
  EXPECT_LE(asked.back(), 2 * kChunk) << "in the end little, if nothing comes";
  EXPECT_EQ(counters_.short_reads, 0);
}

// Of rounds of much the same size none is asked for in two.
TEST_F(TailTest, ARoundOfTheUsualSizeIsReadAheadAtOnce) {
  options_.window_bytes = 4096;
  Open();
  Source& source = sources_[0];
  source.perhaps[0] = source.perhaps[1] = INT64_MAX;
  int twice = 0;
  for (int round = 0; round < 50; ++round) {
    // Also after a pause that was half as long, or twice.
    const int64_t ms = 10 << (round % 3);
    now_ = now_ + Duration::Millis(ms);
    for (int64_t i = 0; i < 8 * ms + 2 * (round % 4); ++i) Add("0123456789");
    for (Part part : {Part::kIndex, Part::kData}) {
      source.bytes[static_cast<int>(part)] = bytes_[static_cast<int>(part)];
      int fetches = 0;
      for (bool more = true; more; ++fetches) {
        const auto fetch = Next(part);
        ASSERT_TRUE(fetch);
        Answer(part, *fetch);
        more = tail_->end(part) >= fetch->request.to;
        std::vector<Message> got;
        while (tail_->Take(got, 1 << 20) > 0) tail_->Release();
      }
      if (round >= 10 && part == Part::kData && fetches > 1) ++twice;
    }
  }
  EXPECT_LE(twice, 2);
}

// A round comes late after a roll-over: there are lengths to be read, and then bytes that are
// known.
TEST_F(TailTest, ARoundThatIsLateIsReadAheadAtOnce) {
  options_.window_bytes = 1 << 20;
  Open();
  Source& source = sources_[0];
  int64_t most = 0;  // bytes that a fetch of data asked for
  const auto come = [&](int64_t ms, bool known = false, size_t at_once = 0) {
    now_ = now_ + Duration::Millis(ms);
    const size_t messages = at_once > 0 ? at_once : static_cast<size_t>(10 * ms);
    for (size_t i = 0; i < messages; ++i) Add("0123456789");
    int fetches = 0;
    most = 0;
    for (Part part : {Part::kIndex, Part::kData}) {
      const int p = static_cast<int>(part);
      source.bytes[p] = bytes_[p];
      const auto size = static_cast<int64_t>(bytes_[p].size());
      source.perhaps[p] = known ? 0 : INT64_MAX;
      source.known[p] = source.allowed[p] = known ? size : 0;
      for (bool more = true; more; ++fetches) {
        const auto fetch = Next(part);
        EXPECT_TRUE(fetch);
        if (!fetch) return fetches;
        EXPECT_EQ(fetch->request.ahead, !known);
        if (part == Part::kData) most = std::max(most, fetch->request.to - fetch->request.from);
        Answer(part, *fetch);
        more = !known && tail_->end(part) >= fetch->request.to;
      }
    }
    std::vector<Message> got;
    EXPECT_EQ(tail_->Take(got, 1 << 20), messages);
    tail_->Release();
    return fetches;
  };
  for (int i = 0; i < 10; ++i) come(10);
  EXPECT_EQ(come(10), 2) << "one for each part";
  EXPECT_EQ(come(40), 2) << "four times as much";
  EXPECT_LE(most, 4000 * 3 / 2);
  // The file ends, the next one begins: nothing comes of this one, then a little that is known of
  // that.
  now_ = now_ + Duration::Millis(5);
  for (Part part : {Part::kIndex, Part::kData}) Answer(part, *Next(part));
  bytes_[0].clear();
  bytes_[1].clear();
  FilePlace place;
  place.stem = {3, 1000, 500, 50};
  tail_->Open(place, kChunk, {"one"});
  come(5, /*known=*/true);
  EXPECT_EQ(come(30), 2);
  EXPECT_LE(most, 4000 * 3 / 2);
  // Bytes that came together, and are read soon after others, are no rate.
  come(0, /*known=*/true, 100);
  come(1);
  come(10);
  EXPECT_LE(most, 1100 * 3 / 2);
  // Nor is what came of a long time.
  come(5000, /*known=*/true, 100);
  come(1);
  EXPECT_LE(most, 3 * kChunk);
}

// What is known and what may follow it is one request. A cache that has less of it than is known is
// asked again for that, as if nothing had been read ahead.
TEST_F(TailTest, WhatIsKnownIsReadTogetherWithWhatMayFollow) {
  options_.window_bytes = 16 * kChunk;
  Open();
  Source& source = sources_[0];
  for (int i = 0; i < 4; ++i) Add(std::string(kChunk, 'x'));
  for (Part part : {Part::kIndex, Part::kData}) {
    const int p = static_cast<int>(part);
    source.bytes[p] = bytes_[p];
    source.known[p] = source.allowed[p] = part == Part::kData ? kChunk : 32;
    source.perhaps[p] = INT64_MAX;
    const auto fetch = Next(part);
    ASSERT_TRUE(fetch);
    EXPECT_TRUE(fetch->request.ahead);
    EXPECT_EQ(fetch->request.to, (part == Part::kData ? 2 : 1) * kChunk) << "a chunk more";
    Answer(part, *fetch);
  }
  std::vector<Message> messages;
  EXPECT_EQ(tail_->Take(messages, 1 << 20), 2u);
  tail_->Release();
  source.known[0] = source.allowed[0] = 3 * kChunk;
  source.bytes[0].resize(2 * kChunk);
  auto fetch = Next(Part::kData);
  ASSERT_TRUE(fetch && fetch->request.ahead);
  EXPECT_GE(fetch->request.to, 4 * kChunk);
  EXPECT_FALSE(Answer(Part::kData, *fetch));
  EXPECT_EQ(tail_->NextWork(), MonotonicTime::Max());
  source.perhaps[0] = 0;
  fetch = Next(Part::kData);
  ASSERT_TRUE(fetch && !fetch->request.ahead);
  EXPECT_EQ(fetch->request.to, 3 * kChunk);
  // A window that is full of what is known has room for nothing else.
  source.bytes[0] = bytes_[0];
  Answer(Part::kData, *fetch);
  source.known[0] = source.allowed[0] = 100 * kChunk;
  source.perhaps[0] = INT64_MAX;
  fetch = Next(Part::kData);
  ASSERT_TRUE(fetch);
  EXPECT_FALSE(fetch->request.ahead);
}

// On a machine that is full a request is answered late, with all that has come by then.
TEST_F(TailTest, WhatComesUntilTheAnswerIsReadAheadToo) {
  options_.window_bytes = 1 << 20;
  Open();
  Source& source = sources_[0];
  source.perhaps[0] = INT64_MAX;
  const auto round = [&](int64_t answered_in_ms) {
    now_ = now_ + Duration::Millis(10);
    for (int i = 0; i < 100; ++i) Add("0123456789");
    int fetches = 0;
    for (bool more = true; more; ++fetches) {
      const auto fetch = Next(Part::kData);
      EXPECT_TRUE(fetch);
      if (!fetch) break;
      now_ = now_ + Duration::Millis(answered_in_ms);
      for (int64_t i = 0; i < answered_in_ms * 10; ++i) Add("0123456789");
      source.bytes[0] = bytes_[0];
      Answer(Part::kData, *fetch);
      more = tail_->end(Part::kData) >= fetch->request.to;
    }
    return fetches;
  };
  for (int i = 0; i < 10; ++i) round(0);
  EXPECT_EQ(round(0), 1);
  EXPECT_EQ(round(50), 2) << "that could not be known";
  EXPECT_EQ(round(50), 1);
}

TEST_F(TailTest, WhatIsKnownDoesNotWaitForARateThatWhatMayFollowNeeds) {
  options_.rate_bytes_per_s = 1000;
  options_.rate_burst_bytes = kChunk / 2;
  Add(std::string(kChunk / 4, 'x'));
  Open();
  sources_[0].perhaps[0] = INT64_MAX;
  const auto fetch = Next(Part::kData);
  ASSERT_TRUE(fetch);
  EXPECT_FALSE(fetch->request.ahead);
  EXPECT_EQ(fetch->request.to, kChunk / 4);
}

// A cache that was away shows in the trouble until bytes come, however they are asked for.
TEST_F(TailTest, TroubleIsOverWhenBytesComeThatWereReadAhead) {
  Add(std::string(kChunk, 'x'));
  Open();
  Source& source = sources_[0];
  source.bytes[0].clear();
  Answer(Part::kData, *Next(Part::kData));
  EXPECT_FALSE(tail_->trouble().ok());
  source.bytes[0] = bytes_[0];
  source.perhaps[0] = INT64_MAX;
  now_ = tail_->NextWork();
  tail_->DoWork(now_);
  const auto fetch = Next(Part::kData);
  ASSERT_TRUE(fetch && fetch->request.ahead);
  Answer(Part::kData, *fetch);
  EXPECT_TRUE(tail_->trouble().ok());
}

TEST_F(TailTest, WhatMayNotBeThereIsNotWaitedForAndMakesNoWindowLarger) {
  options_.rate_bytes_per_s = 1000;
  options_.rate_burst_bytes = 64;
  options_.window_bytes = 1 << 20;
  Add(std::string(64, 'x'));
  Open();
  Source& source = sources_[0];
  Answer(Part::kIndex, *Next(Part::kIndex));
  auto fetch = Next(Part::kData);
  ASSERT_TRUE(fetch);
  Answer(Part::kData, *fetch, /*late=*/true);
  fetch = Next(Part::kData);
  ASSERT_TRUE(fetch);
  Answer(Part::kData, *fetch);
  std::vector<Message> messages;
  ASSERT_EQ(tail_->Take(messages, 100), 1u);
  tail_->Release();
  source.perhaps[0] = source.perhaps[1] = INT64_MAX;
  EXPECT_FALSE(Next(Part::kData)) << "its rate is used up";
  EXPECT_EQ(tail_->NextWork(), MonotonicTime::Max());
  EXPECT_EQ(counters_.rate_limited, 0);
  EXPECT_TRUE(Next(Part::kIndex)) << "the other part is not held up";
}

TEST_F(TailTest, HeadersAreGivenApartFromThePayload) {
  const std::vector<stream::Header> headers = {{"trace", "a-1"}, {"n", ""}};
  const std::string encoded = *stream::Headers::Encode(headers);
  Add("plain");
  Add("with", encoded);
  Add("", encoded);
  Open();
  Seal();
  Answer(Part::kIndex, *Next(Part::kIndex));
  Answer(Part::kData, *Next(Part::kData));
  std::vector<Message> messages;
  ASSERT_EQ(tail_->Take(messages, 1 << 20), 3u);
  EXPECT_TRUE(messages[0].headers.empty());
  EXPECT_EQ(messages[1].payload, "with");
  EXPECT_EQ(std::vector<stream::Header>(messages[1].headers.begin(), messages[1].headers.end()),
            headers);
  EXPECT_EQ(messages[1].byte, messages[0].end_byte());
  EXPECT_EQ(messages[1].end_byte(), messages[2].byte) << "headers and payload";
  EXPECT_EQ(messages[2].payload, "");
  EXPECT_EQ(tail_->position().byte, messages[2].end_byte());
  EXPECT_TRUE(tail_->Complete());
}

TEST_F(TailTest, HeadersThatAreNoneAreDataLossAlsoWithAGoodCheckSum) {
  Add("payload", std::string("\5cut", 4));
  Open();
  EXPECT_TRUE(Drain().empty());
  EXPECT_TRUE(IsDataLoss(tail_->failure()));
  EXPECT_THAT(tail_->failure().message(),
              HasSubstr("message 50 of the shard has headers that can't be read"));
}

TEST_F(TailTest, TakeStopsAtAboutTheBytesAskedForButGivesOne) {
  for (int i = 0; i < 10; ++i) Add(std::string(10, 'x'));
  Open();
  for (Part part : {Part::kIndex, Part::kData}) Answer(part, *Next(part));
  std::vector<Message> messages;
  EXPECT_EQ(tail_->Take(messages, 1), 1u);
  EXPECT_EQ(tail_->Take(messages, 25), 3u);
  EXPECT_EQ(tail_->Take(messages, 0), 0u);
  EXPECT_EQ(tail_->Take(messages, 1000), 6u);
}

TEST_F(TailTest, AMessageLargerThanTheWindowIsFetchedWhole) {
  const std::string large(3000, 'l');
  Add("a");
  Add(large);
  Add("b");
  Open();
  EXPECT_THAT(Drain(), ElementsAre("a", large, "b"));
}

TEST_F(TailTest, NothingMoreIsFetchedForAUserWhoDoesNotTake) {
  for (int i = 0; i < 100; ++i) Add(std::string(10, 'x'));
  Open();
  for (int i = 0; i < 20; ++i) {
    if (auto fetch = Next(Part::kData)) Answer(Part::kData, *fetch);
  }
  EXPECT_EQ(tail_->end(Part::kData), options_.window_bytes);
}

// Under overload a fetch that asks for less is answered in time; once it is, more is asked for.
TEST_F(TailTest, ACacheThatIsLateIsAskedForLessAtATime) {
  options_.window_bytes = 1 << 20;
  for (int i = 0; i < 10000; ++i) Add(std::string(5000, 'x'));
  Open();
  const auto asked = [&](bool late) {
    while (const auto fetch = Next(Part::kIndex)) Answer(Part::kIndex, *fetch);
    const auto fetch = Next(Part::kData);
    EXPECT_TRUE(fetch) << "without a pause";
    if (!fetch) return int64_t{0};
    short_if_late_ = fetch->request.late_is_short;
    EXPECT_TRUE(Answer(Part::kData, *fetch, late));
    std::vector<Message> messages;
    EXPECT_GT(tail_->Take(messages, 1 << 30), 0u);
    tail_->Release();
    return fetch->request.to - fetch->request.from;
  };
  // What a message's beginning that was read already takes of a window.
  constexpr int64_t kMessage = 5000;
  EXPECT_EQ(asked(true), 1 << 20);
  EXPECT_NEAR(asked(true), 1 << 19, kMessage);
  EXPECT_NEAR(asked(true), 1 << 19, kMessage) << "not less: few bytes cost what many do";
  EXPECT_TRUE(short_if_late_);
  EXPECT_NEAR(asked(true), 1 << 19, kMessage);
  EXPECT_FALSE(short_if_late_) << "late three times in a row: the primary layer is asked";
  EXPECT_NEAR(asked(false), 1 << 19, kMessage) << "a message has to fit";
  EXPECT_NEAR(asked(false), (1 << 19) * 17 / 16, kMessage);
  EXPECT_TRUE(short_if_late_);
  for (int i = 0; i < 40; ++i) asked(false);
  EXPECT_NEAR(asked(false), 1 << 20, kMessage);
}

// --- From where

TEST_F(TailTest, TheFirstSourceThatMayBeAskedIsAsked) {
  for (int i = 0; i < 10; ++i) Add(std::string(10, 'x'));
  Open(3);
  sources_[0].allowed[0] = 40;
  sources_[1].allowed[0] = 0;
  auto fetch = Next(Part::kData);
  ASSERT_TRUE(fetch);
  EXPECT_EQ(fetch->source, 0u);
  EXPECT_EQ(fetch->request.to, 40) << "what the next one may be asked for is another fetch";
  Answer(Part::kData, *fetch);
  fetch = Next(Part::kData);
  ASSERT_TRUE(fetch);
  EXPECT_EQ(fetch->source, 2u);
  EXPECT_EQ(fetch->request.from, 40);
  EXPECT_EQ(fetch->request.to, 100);
}

TEST_F(TailTest, WhatNobodyMayBeAskedForIsNotFetched) {
  Add("one");
  Open(2);
  for (Source& source : sources_) source.allowed[0] = 0;
  EXPECT_FALSE(Next(Part::kData));
}

TEST_F(TailTest, BytesThatFailACheckAreAskedOfTheNextSource) {
  std::vector<std::string> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back("message " + std::to_string(i));
    Add(all.back());
  }
  Open(2);
  sources_[0].bytes[0][200] = '#';
  sources_[0].bytes[1][300] = '#';
  // Algorithm 1 does not let it be asked first.
  sources_[1].allowed[0] = sources_[1].allowed[1] = 0;
  EXPECT_EQ(Drain(), all);
  EXPECT_TRUE(tail_->failure().ok());
  EXPECT_THAT(asked_, ::testing::Contains(1u));
  EXPECT_EQ(asked_.back(), 0u) << "behind them the first one is asked again";
}

TEST_F(TailTest, AThirdSourceIsAskedWhenTheSecondFails) {
  for (int i = 0; i < 10; ++i) Add("message " + std::to_string(i));
  Open(3);
  sources_[0].bytes[0][45] = sources_[1].bytes[0][45] = '#';
  EXPECT_EQ(Drain().size(), 10u);
  EXPECT_TRUE(tail_->failure().ok());
  EXPECT_THAT(asked_, ::testing::Contains(2u));
}

TEST_F(TailTest, BytesThatFailInTheLastSourceAreDataLoss) {
  for (int i = 0; i < 10; ++i) Add("message " + std::to_string(i));
  Open(2);
  for (Source& source : sources_) source.bytes[0][45] = '#';
  EXPECT_EQ(Drain().size(), 5u) << "what came before is given";
  EXPECT_TRUE(IsDataLoss(tail_->failure()));
  EXPECT_THAT(tail_->failure().message(), HasSubstr("payload fails its check sum at byte 45"));
  EXPECT_THAT(tail_->failure().message(), HasSubstr("message 55 of the shard"));
  EXPECT_THAT(tail_->failure().message(), HasSubstr("what was read again from: two (message"));
  std::vector<Message> messages;
  EXPECT_EQ(tail_->Take(messages, 1000), 0u);
}

TEST_F(TailTest, DataLossNamesTheSourcesThatWereAsked) {
  Add("a message");
  Open(1);
  sources_[0].bytes[0][5] = '#';
  Drain();
  EXPECT_THAT(tail_->failure().message(),
              HasSubstr("data file, whose only source is one (message"));
  Open(3);
  for (Source& source : sources_) source.bytes[0][5] = '#';
  sources_[1].known[0] = 0;  // it does not have them
  Drain();
  EXPECT_THAT(tail_->failure().message(), HasSubstr("what was read again from: three (message"));
  Open(3);
  for (Source& source : sources_) source.bytes[0][5] = '#';
  Drain();
  EXPECT_THAT(tail_->failure().message(), HasSubstr("read again from: two, three (message"));
}

TEST_F(TailTest, AFetchThatGoesOnFromDroppedBytesIsDropped) {
  for (int i = 0; i < 60; ++i) Add("message " + std::to_string(i));
  Open(2);
  sources_[0].bytes[0][5] = '#';
  sources_[0].allowed[0] = 100;
  Answer(Part::kIndex, *Next(Part::kIndex));
  Answer(Part::kData, *Next(Part::kData));
  sources_[0].allowed[0] = static_cast<int64_t>(bytes_[0].size());
  auto late = Next(Part::kData);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->request.from, 100);
  std::vector<Message> messages;
  EXPECT_EQ(tail_->Take(messages, 1000), 0u) << "the first one fails its check";
  EXPECT_FALSE(Answer(Part::kData, *late));
  EXPECT_EQ(tail_->end(Part::kData), 0);
  EXPECT_EQ(Drain().size(), 60u);
}

TEST_F(TailTest, AnotherChunkSizeGivesFetchesUp) {
  for (int i = 0; i < 10; ++i) Add("message " + std::to_string(i));
  Open();
  ASSERT_TRUE(Next(Part::kData));
  tail_->SetChunkSize(kChunk);
  EXPECT_FALSE(tail_->fetching(Part::kData));
  EXPECT_EQ(Drain().size(), 10u);
}

// --- Pauses

TEST_F(TailTest, ShortReadsAreTriedAgainEverMoreRarely) {
  Add("one");
  Open();
  sources_[0].bytes[0].clear();
  std::vector<int64_t> pauses;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(Answer(Part::kData, *Next(Part::kData)));
    EXPECT_FALSE(Next(Part::kData));
    pauses.push_back((tail_->NextWork() - now_).millis());
    now_ = tail_->NextWork();
    tail_->DoWork(now_);
  }
  EXPECT_THAT(pauses, ElementsAre(2, 4, 8, 10, 10)) << "no more than a poll's interval";
  EXPECT_TRUE(IsUnavailable(tail_->trouble()));
  sources_[0].bytes[0] = bytes_[0];
  EXPECT_THAT(Drain(), ElementsAre("one"));
  EXPECT_TRUE(tail_->trouble().ok());
}

TEST_F(TailTest, ADataFetchWaitsForTheRateLimit) {
  options_.rate_bytes_per_s = 10000;
  options_.rate_burst_bytes = 100;
  for (int i = 0; i < 40; ++i) Add(std::string(10, 'x'));
  Open();
  auto fetch = Next(Part::kData);
  ASSERT_TRUE(fetch);
  EXPECT_EQ(fetch->request.to, 100) << "the burst";
  Answer(Part::kData, *fetch);
  EXPECT_FALSE(Next(Part::kData));
  EXPECT_EQ(counters_.rate_limited, 1);
  EXPECT_EQ((tail_->NextWork() - now_).millis(), 6) << "for a quarter of the window";
}

// --- Files

TEST_F(TailTest, ACompleteFileIsFollowedByTheNextFromItsBeginning) {
  Add("one");
  Add("two");
  Open();
  EXPECT_THAT(Drain(), ElementsAre("one", "two"));
  EXPECT_FALSE(tail_->Complete()) << "its end is not known";
  Seal();
  ASSERT_TRUE(tail_->Complete());
  const auto place = tail_->Follow({3, 2000, 506, 52});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->stem.seq, 3);
  EXPECT_THAT(place->at, ElementsAre(0, 0));
}

TEST_F(TailTest, NothingBeyondTheSealIsGiven) {
  Add("one");
  Open();
  Seal();
  const auto size = static_cast<int64_t>(bytes_[0].size());
  Add("beyond");
  for (int part = 0; part < stream::kParts; ++part) sources_[0].bytes[part] = bytes_[part];
  sources_[0].known[0] = sources_[0].allowed[0] = size + 6;
  sources_[0].known[1] = sources_[0].allowed[1] = 2 * kIndexRecordSize;
  EXPECT_THAT(Drain(), ElementsAre("one"));
}

TEST_F(TailTest, RecordsThatEndBeforeTheSealAreDataLoss) {
  Add("one");
  Open();
  Drain();
  tail_->SetSeal({{5, kIndexRecordSize}});
  EXPECT_FALSE(tail_->Complete());
  EXPECT_THAT(tail_->failure().message(),
              HasSubstr("ends at data byte 5, but its records end at 3"));
}

TEST_F(TailTest, APositionBeyondTheFileIsCarriedIntoTheNext) {
  Add("one");
  FilePlace place;
  place.at[0] = 10;
  place.at[1] = 3 * kIndexRecordSize;
  place.unverified = Position{stream::StreamIncarnation{7}, 3, 53, 510};
  Open(1, place);
  Seal();
  ASSERT_TRUE(tail_->Complete());
  const auto next = tail_->Follow({3, 2000, 503, 51});
  ASSERT_TRUE(next);
  EXPECT_THAT(next->at, ElementsAre(7, 2 * kIndexRecordSize));
  EXPECT_EQ(next->unverified, place.unverified);
}

TEST_F(TailTest, APositionThatIsNoBeginningIsRefused) {
  Add("one");
  Add("two");
  for (const auto& [data, records] : {std::pair{2, 1}, {4, 2}, {5, 3}}) {
    FilePlace place;
    place.at[0] = data;
    place.at[1] = records * kIndexRecordSize;
    place.unverified = Position{stream::StreamIncarnation{7}, 3, 50 + records, 500 + data};
    Open(1, place);
    Seal();
    Drain();
    if (tail_->Complete()) (void)tail_->Follow({3, 2000, 506, 52});
    EXPECT_TRUE(IsInvalidArgument(tail_->failure())) << data;
    EXPECT_THAT(tail_->failure().message(), HasSubstr(place.unverified->ToString()));
  }
}

TEST_F(TailTest, ViewsStayWhileTheyAreHeldEvenIntoTheNextFile) {
  for (int i = 0; i < 20; ++i) Add("message " + std::to_string(i));
  Open();
  for (Part part : {Part::kIndex, Part::kData}) Answer(part, *Next(part));
  std::vector<Message> messages;
  ASSERT_GT(tail_->Take(messages, 1 << 20), 5u);
  FilePlace place;
  place.stem = {3, 2000, 5000, 70};
  tail_->Open(place, kChunk, {"one"});
  for (std::string& bytes : sources_[0].bytes) bytes.assign(bytes.size(), '#');
  for (Part part : {Part::kIndex, Part::kData}) Answer(part, *Next(part));
  for (size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ(messages[i].payload, "message " + std::to_string(i));
  }
}

TEST_F(TailTest, ASkippedPayloadCheckIsSeen) {
  const PlantedFault fault("consumer.skip_payload_check");
  Add("one");
  Open(2);
  sources_[0].bytes[0][1] = '#';
  EXPECT_THAT(Drain(), ElementsAre("o#e")) << "BytesThatFailACheck... would have failed";
}

}  // namespace
}  // namespace tailcast::consumer
