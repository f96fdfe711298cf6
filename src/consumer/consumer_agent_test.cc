// A consumer's agent whose ports the test answers: what it does at a roll-over; and one that is
// destroyed while its loop and its ports go on: answers that come after it find nobody (worth
// running under asan).
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/cache/quorum_options.h"
#include "tailcast/cache/test_loop.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::consumer {
namespace {

using stream::Part;

using SizeCallback = Callback<void(Result<storage::FileSize>)>;

// A primary layer with one pair, whose sizes are answered when the test says so.
class HeldStore : public storage::Store {
 public:
  HeldStore(EventLoop* loop, const stream::Stem& stem) : loop_(loop), stem_(stem) {}

  // Lets the loop bring all answers that were held.
  void AnswerSizes() {
    for (SizeCallback& done : std::exchange(held_, {})) {
      loop_->Post(std::move(done).With(
          Result<storage::FileSize>(storage::FileSize{1, storage::Epoch::kFirst})));
    }
  }
  size_t held() const { return held_.size(); }

  void List(const std::string&,
            Callback<void(Result<std::vector<storage::DirEntry>>)> done) override {
    std::vector<storage::DirEntry> entries;
    for (Part part : {Part::kData, Part::kIndex}) {
      entries.push_back({stream::FileName(stem_, part)});
    }
    loop_->Post(std::move(done).With(Result<std::vector<storage::DirEntry>>(std::move(entries))));
  }
  void OpenRead(const std::string&, const std::string&,
                Callback<void(Result<std::unique_ptr<storage::ReadFile>>)> done) override {
    loop_->Post(std::move(done).With(
        Result<std::unique_ptr<storage::ReadFile>>(std::make_unique<File>(this))));
  }
  void CreateExclusive(const std::string&, const std::string&, const std::string&,
                       Callback<void(Result<std::unique_ptr<storage::AppendFile>>)>) override {
    FAIL() << "a consumer writes nothing";
  }
  void OpenFencing(const std::string&, const std::string&,
                   Callback<void(Result<std::unique_ptr<storage::AppendFile>>)>) override {
    FAIL() << "a consumer writes nothing";
  }
  void ListDirs(const std::string&, Callback<void(Result<std::vector<std::string>>)>) override {
    FAIL() << "a consumer knows its folder";
  }
  void Delete(const std::string&, const std::string&, Callback<void(Status)>) override {
    FAIL() << "a consumer writes nothing";
  }
  void Identify(const std::string&, const std::string&,
                Callback<void(Result<std::string>)>) override {
    FAIL() << "a consumer deletes nothing";
  }
  void DeleteExactly(const std::string&, const std::string&, const std::string&,
                     Callback<void(Status)>) override {
    FAIL() << "a consumer deletes nothing";
  }
  void Quarantine(const std::string&, const std::string&, Callback<void(Status)>) override {
    FAIL() << "a consumer writes nothing";
  }
  void Room(Callback<void(Result<storage::StoreRoom>)>) override {
    FAIL() << "a consumer writes nothing";
  }

 private:
  class File : public storage::ReadFile {
   public:
    explicit File(HeldStore* store) : store_(store) {}
    void Size(SizeCallback done) override { store_->held_.push_back(std::move(done)); }
    void CheckedSize(SizeCallback) override { FAIL() << "a consumer asks for what is there"; }
    void Read(int64_t, int64_t, Callback<void(Result<std::string>)> done) override {
      store_->loop_->Post(std::move(done).With(Result<std::string>(UnavailableError("broken"))));
    }

   private:
    HeldStore* const store_;
  };

  EventLoop* const loop_;
  const stream::Stem stem_;
  std::vector<SizeCallback> held_;
};

class ConsumerAgentTest : public ::testing::Test {
 protected:
  ConsumerAgentTest() {
    AgentOptions options;
    options.poll = Duration::Millis(10);
    options.primary_poll = Duration::Millis(20);
    options.doorbell = true;
    Start(options, StartPoint::Beginning());
  }
  // In place of the agent before.
  void Start(const AgentOptions& options, const StartPoint& start) {
    agent_ = std::make_unique<ConsumerAgent>(
        stream::CellPorts{&loop_, &store_, &data_client_, &metadata_client_}, shard_, options,
        scope_.Bind([] {}));
    agent_->Start(start);
  }
  // Of file 2, which is empty.
  void PublishSecond(int64_t heartbeat_us) {
    stream::PairMetadata second;
    second.created_us = first_.created_us + 1;
    second.start_byte = 12;
    second.start_number = 1;
    second.chunk_size = 4096;
    second.heartbeat_us = heartbeat_us;
    cache_.Apply({keys_.MetadataGroup(2), cache::MergeRule::kMaxLanes, false,
                  stream::EncodePairMetadata(2, second)});
  }
  // File 1, with one message, is whole in the cache, and file 2 has begun.
  void Publish() {
    const std::string payload = "the only one";
    std::string index;
    stream::IndexRecord{0, static_cast<uint32_t>(payload.size()), Crc32c(payload), 1000}.AppendTo(
        index);
    const auto length = static_cast<int64_t>(payload.size());
    for (const auto& [part, bytes] : {std::pair{Part::kData, payload}, {Part::kIndex, index}}) {
      cache_.Apply({keys_.Chunk(1, part, 4096, 0), cache::MergeRule::kLongerWins, false, bytes});
    }
    stream::PairMetadata first;
    first.created_us = first_.created_us;
    first.chunk_size = 4096;
    first.seal[0] = first.cache_length[0] = first.primary_length[0] = length;
    first.seal[1] = first.cache_length[1] = first.primary_length[1] = stream::kIndexRecordSize;
    cache_.Apply({keys_.MetadataGroup(1), cache::MergeRule::kMaxLanes, false,
                  stream::EncodePairMetadata(1, first)});
    PublishSecond(0);
  }

  const stream::ShardId shard_{{"s", stream::StreamIncarnation{1}}, 0};
  const stream::KeyMaker keys_{shard_};
  const stream::Stem first_{1, 1000, 0, 0};
  cache::TestLoop loop_;
  HeldStore store_{&loop_, first_};
  cache::MemoryStore cache_;
  cache::MemoryClient data_client_{&loop_, &cache_}, metadata_client_{&loop_, &cache_};
  std::unique_ptr<ConsumerAgent> agent_;
  const Scope scope_;
};

TEST(AgentOptionsTest, ACacheIsWaitedForAsLongAsItLetsAReadTake) {
  EXPECT_EQ(AgentOptions().cache_timeout, cache::kReadDeadlineMax);
}

// The size polls of the file before are answered after the roll-over and after the consumer's end.
TEST_F(ConsumerAgentTest, ASizePollThatOutlivesItsFileAndTheAgentFindsNobody) {
  loop_.RunFor(Duration::Millis(50));
  ASSERT_GE(store_.held(), 2u) << "sizes of both parts were asked for";
  Publish();
  std::vector<Message> messages;
  ASSERT_TRUE(loop_.RunUntil([&] { return agent_->ready(); }));
  ASSERT_EQ(agent_->Take(messages, 1 << 20), 1u);
  EXPECT_EQ(messages[0].payload, "the only one");
  store_.AnswerSizes();
  agent_->Release();
  ASSERT_EQ(agent_->counters().roll_overs, 1);
  agent_.reset();
  loop_.RunFor(Duration::Seconds(1));
}

// Of a machine that is full.
std::optional<ThreadTimes> BusyTimes() {
  static ThreadTimes times;
  times.ran = times.ran + Duration::Millis(2);
  times.waited = times.waited + Duration::Millis(20);
  return times;
}

// On a full machine: the file after a roll-over is read no more often than the one before.
TEST_F(ConsumerAgentTest, AFullMachineIsSparedFromTheFirstReadOfAFileOn) {
  AgentOptions options;
  options.poll = Duration::Millis(100);
  options.doorbell = true;
  options.thread_times = BusyTimes;
  Start(options, StartPoint::Beginning());
  loop_.RunFor(Duration::Seconds(60));
  Publish();
  ASSERT_TRUE(loop_.RunUntil([&] { return agent_->ready(); }));
  std::vector<Message> messages;
  ASSERT_EQ(agent_->Take(messages, 1 << 20), 1u);
  agent_->Release();
  ASSERT_EQ(agent_->counters().roll_overs, 1);
  const int64_t polls = agent_->counters().polls;
  for (int64_t ms = 1; ms <= 90; ++ms) {
    PublishSecond(ms);
    loop_.RunFor(Duration::Millis(1));
  }
  EXPECT_GE(agent_->counters().polls, polls + 1);
  EXPECT_LE(agent_->counters().polls, polls + 4);
}

// On a full machine, of caches that answer a round trip later: it asks for what comes next in place
// of its length.
class ReadingAheadAgentTest : public ConsumerAgentTest {
 protected:
  ReadingAheadAgentTest() {
    cache_.SetFaults({.delay = Duration::Micros(100)});
    pair_.created_us = first_.created_us;
    pair_.chunk_size = 4096;
  }
  void StartOnAFullMachine(const StartPoint& start, AgentOptions options = {}) {
    options.poll = Duration::Millis(10);
    options.doorbell = true;
    options.thread_times = BusyTimes;
    Start(options, start);
    loop_.RunFor(Duration::Seconds(60));  // it finds its pause
  }
  void Write(const std::string& payload, bool publish = true) {
    stream::IndexRecord{static_cast<int64_t>(data_.size()), static_cast<uint32_t>(payload.size()),
                        Crc32c(payload), 1000}
        .AppendTo(index_);
    data_ += payload;
    for (const auto& [part, bytes] : {std::pair{Part::kData, data_}, {Part::kIndex, index_}}) {
      cache_.Apply({keys_.Chunk(1, part, 4096, 0), cache::MergeRule::kLongerWins, false, bytes});
    }
    if (publish) {
      pair_.cache_length[0] = static_cast<int64_t>(data_.size());
      pair_.cache_length[1] = static_cast<int64_t>(index_.size());
    }
    ++pair_.heartbeat_us;
    cache_.Apply({keys_.MetadataGroup(1), cache::MergeRule::kMaxLanes, false,
                  stream::EncodePairMetadata(1, pair_)});
  }
  std::string Take() {
    std::vector<Message> messages;
    EXPECT_TRUE(loop_.RunUntil([&] { return agent_->ready(); }));
    EXPECT_EQ(agent_->Take(messages, 1 << 20), 1u) << agent_->DebugString();
    const std::string payload(messages.empty() ? "" : messages[0].payload);
    agent_->Release();
    return payload;
  }

  std::string data_, index_;
  stream::PairMetadata pair_;
};

// What the cache lacks is not there because somebody asked for it.
TEST_F(ReadingAheadAgentTest, WhoBeginsBeyondTheEndStaysThere) {
  Write("one");
  StartOnAFullMachine(StartPoint::At({stream::StreamIncarnation{1}, 0, 4, 14}));
  EXPECT_EQ(agent_->begins_beyond(), 1);
  Write("two");
  loop_.RunFor(Duration::Millis(500));
  Write("three");
  loop_.RunFor(Duration::Millis(500));
  EXPECT_GE(agent_->counters().rounds_ahead, 1);
  EXPECT_EQ(agent_->begins_beyond(), 3);
  Write("six");
  loop_.RunFor(Duration::Millis(500));
  EXPECT_EQ(agent_->begins_beyond(), std::nullopt);
  Write("seven");
  EXPECT_EQ(Take(), "seven");
}

TEST_F(ReadingAheadAgentTest, WhatComesNextIsGivenBeforeItsLengthIsKnown) {
  Write("one");
  StartOnAFullMachine(StartPoint::Beginning());
  EXPECT_EQ(Take(), "one");
  Write("two");
  EXPECT_EQ(Take(), "two");
  Write("three", /*publish=*/false);
  EXPECT_EQ(Take(), "three");
  EXPECT_GE(agent_->counters().rounds_ahead, 1);
  EXPECT_EQ(agent_->lag_bytes(), 0);
  EXPECT_EQ(agent_->begins_beyond(), std::nullopt);
  EXPECT_EQ(agent_->counters().missing_chunks + agent_->counters().short_chunks, 0);
}

// A flush whose data fill the window is in the cache before its index records. The round that finds
// it so can't ask for more of the data; the doorbell says when the records are there.
TEST_F(ReadingAheadAgentTest, ARoundOfWhichNothingCanBeAskedForIsOver) {
  AgentOptions options;
  options.window_bytes = 4096;
  Write("one");
  StartOnAFullMachine(StartPoint::Beginning(), options);
  EXPECT_EQ(Take(), "one");
  Write("two");
  EXPECT_EQ(Take(), "two");
  const std::string payload(4096 - data_.size(), 'x');
  cache_.Apply({keys_.Chunk(1, Part::kData, 4096, 0), cache::MergeRule::kLongerWins, false,
                data_ + payload});
  const int64_t with_it = agent_->counters().cache_bytes + static_cast<int64_t>(payload.size());
  ASSERT_TRUE(loop_.RunUntil([&] { return agent_->counters().cache_bytes >= with_it; }));
  loop_.RunFor(Duration::Millis(20));
  EXPECT_FALSE(agent_->ready());
  Write(payload);
  const MonotonicTime written_at = loop_.Now();
  EXPECT_EQ(Take(), payload);
  EXPECT_LT(loop_.Now() - written_at, Duration::Millis(50));
}

TEST_F(ConsumerAgentTest, ItMayEndAtAnyTurn) {
  for (int turns = 0; turns < 120; ++turns) {
    int left = turns;
    bool published = false;
    (void)loop_.RunUntil([&] {
      if (!published && left < turns / 2) {
        published = true;
        Publish();
      }
      std::vector<Message> messages;
      if (agent_->ready() && agent_->Take(messages, 1 << 20) > 0) agent_->Release();
      if (left % 7 == 0) store_.AnswerSizes();
      return left-- == 0;
    });
    agent_.reset();
    loop_.RunFor(Duration::Millis(300));
    store_.AnswerSizes();
    loop_.RunReady();
    cache_.EvictAll();
    AgentOptions options;
    options.poll = Duration::Millis(1 + turns % 10);
    options.primary_poll = Duration::Millis(3 + turns % 20);
    options.doorbell = turns % 2 == 0;
    Start(options, turns % 3 == 0 ? StartPoint::End() : StartPoint::Beginning());
  }
}

}  // namespace
}  // namespace tailcast::consumer
