// Who keeps messages back for as long as the agent says that it comes for them loses nothing by it:
// the same messages, in virtual time, once published as they come and once kept back as
// producer.h does, make the same files and are acknowledged at the same times.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"
#include "tailcast/stream/names.h"

namespace tailcast::producer {
namespace {

const bool kQuiet = SetLogLevels("off").ok();
constexpr int kMessages = 400;

struct Outcome {
  std::map<int, std::pair<int64_t, AckOutcome>> acks;  // of each message: when, in us
  std::map<std::string, std::string> files;
  int64_t calls = 0;  // of the agent's Publish
  bool operator==(const Outcome& other) const { return acks == other.acks && files == other.files; }
};

struct Load {
  AgentOptions options;
  storage::FakeDiskOptions disk;
  Duration between_max = Duration::Millis(4);
  size_t bytes_max = 200;
  double empty = 0.1;  // share of messages
};

class Run {
 public:
  Run(const Load& load, uint64_t seed, bool late) : late_(late), load_(load), rng_(seed) {
    EXPECT_TRUE(kQuiet);
    metadata_.SetFaults({.delay = Duration::Micros(300)});
    data_.SetFaults({.delay = Duration::Micros(300)});
    agent_ = std::make_unique<ProducerAgent>(
        stream::CellPorts{loop_.get(), &store_, &data_client_, &metadata_client_}, shard_,
        load.options, ProducerAgent::Hooks{.on_progress = scope_.Bind([this] { Feed(); })}, 1);
    std::optional<Status> opened;
    agent_->Open(scope_.Bind([&](Status status) { opened = std::move(status); }));
    EXPECT_TRUE(time_.RunUntil([&] { return opened.has_value(); }, Duration::Seconds(60)));
    EXPECT_TRUE(opened->ok()) << *opened;
    disk_.SetOptions(load.disk);
    Next();
  }

  Outcome Finish() {
    const auto done = [&] { return outcome_.acks.size() == kMessages; };
    EXPECT_TRUE(time_.RunUntil(done, Duration::Seconds(600))) << outcome_.acks.size();
    const std::string folder = stream::ShardDir(shard_);
    for (const std::string& name : disk_.PeekNames(folder)) {
      const Result<std::string> bytes = disk_.Peek(folder, name);
      EXPECT_TRUE(bytes.ok()) << name;
      if (bytes.ok()) outcome_.files[name] = *bytes;
    }
    return outcome_;
  }

 private:
  void Next() {
    if (number_ == kMessages) return;
    const auto wait = rng_.Below(static_cast<uint64_t>(load_.between_max.micros()));
    timer_.After(Duration::Micros(static_cast<int64_t>(wait)), scope_.Bind([this] {
      const size_t bytes = rng_.Chance(load_.empty) ? 0 : rng_.Below(load_.bytes_max);
      Come(std::string(bytes, static_cast<char>('a' + number_ % 26)));
      Next();
    }));
  }
  void Come(const std::string& payload) {
    Message message = MessageOf({}, payload);
    message.time_us = loop_->WallNow().micros();
    waiting_.bytes += payload;
    waiting_.messages.push_back(message);
    waiting_.acks.emplace_back(
        static_cast<uint32_t>(waiting_.messages.size() - 1), [this, n = number_](const Ack& ack) {
          outcome_.acks[n] = {(time_.now() - MonotonicTime()).micros(), ack.outcome};
        });
    ++number_;
    if (!late_ || static_cast<int64_t>(waiting_.bytes.size()) >= tell_from_) Feed();
  }
  void Feed() {
    if (!waiting_.messages.empty()) {
      ++outcome_.calls;
      Batch batch = std::exchange(waiting_, Batch());
      EXPECT_TRUE(agent_->Publish(std::move(batch)).ok());
    }
    tell_from_ = agent_->bytes_before_progress();
  }

  const bool late_;
  const Load load_;
  Rng rng_;
  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> disk_loop_ = time_.MakeLoop("disk"),
                                loop_ = time_.MakeLoop("producer");
  storage::FakeDisk disk_{disk_loop_.get(), 1, {}};
  storage::FakeStore store_{&disk_, loop_.get()};
  cache::MemoryStore data_, metadata_;
  cache::MemoryClient data_client_{loop_.get(), &data_}, metadata_client_{loop_.get(), &metadata_};
  const stream::ShardId shard_{{"s", stream::StreamIncarnation{3}}, 0};
  Batch waiting_;
  int64_t tell_from_ = 0;
  int number_ = 0;
  Outcome outcome_;
  Timer timer_{*loop_};
  std::unique_ptr<ProducerAgent> agent_;
  const Scope scope_;
};

void ExpectNothingIsLost(const Load& load, uint64_t seed) {
  const Outcome at_once = Run(load, seed, false).Finish(), late = Run(load, seed, true).Finish();
  EXPECT_TRUE(late == at_once) << "seed " << seed;
  EXPECT_LT(late.calls, at_once.calls) << "seed " << seed;
}

TEST(LatePublish, FlushesAtAnInterval) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ExpectNothingIsLost({.options = {.flush_interval = Duration::Millis(20)}}, seed);
  }
}

TEST(LatePublish, FlushesThatFollowEachOther) {
  const AgentOptions options{.flush_interval = Duration::Millis(20), .self_clocked = true};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ExpectNothingIsLost({.options = options, .between_max = Duration::Micros(600)}, seed);
  }
}

TEST(LatePublish, FlushesOfManyBytes) {
  const AgentOptions options{.flush_interval = Duration::Millis(100), .flush_bytes = 1000};
  for (uint64_t seed = 1; seed <= 20; ++seed) ExpectNothingIsLost({.options = options}, seed);
}

TEST(LatePublish, FilesThatAreFull) {
  const AgentOptions options{.flush_interval = Duration::Millis(10), .roll_bytes = 3000};
  for (uint64_t seed = 1; seed <= 20; ++seed) ExpectNothingIsLost({.options = options}, seed);
}

TEST(LatePublish, EmptyMessagesWhoseRecordsTakeLong) {
  Load load{.options = {.flush_interval = Duration::Millis(2)}, .empty = 0.7};
  load.disk.answer.base = Duration::Millis(5);
  for (uint64_t seed = 1; seed <= 20; ++seed) ExpectNothingIsLost(load, seed);
}

TEST(LatePublish, ADiskThatFails) {
  Load load{.options = {.flush_interval = Duration::Millis(10), .roll_bytes = 3000}};
  load.disk.append_unknown_rate = 0.02;
  load.disk.append_io_error_rate = 0.02;
  load.disk.open_error_rate = 0.05;
  load.disk.answer_timeout = Duration::Millis(200);
  for (uint64_t seed = 1; seed <= 40; ++seed) ExpectNothingIsLost(load, seed);
}

}  // namespace
}  // namespace tailcast::producer
