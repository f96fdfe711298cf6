// The two libraries over real threads, a real folder and an in-process cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <latch>
#include <thread>

#include "tailcast/base/thread_loop.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/consumer/on_ports.h"
#include "tailcast/producer/on_ports.h"
#include "tailcast/storage/posix_store.h"

namespace tailcast {
namespace {

using producer::AckOutcome;
using producer::Producer;
using ::testing::HasSubstr;

// A process' ports, made and destroyed on their loop.
struct Ports {
  Ports(ThreadLoop* loop, const std::string& folder, cache::MemoryStore* data,
        cache::MemoryStore* metadata)
      : data_client(loop, data), metadata_client(loop, metadata) {
    storage::PosixStoreOptions options;
    options.durability = storage::posix::Durability::kPageCache;
    auto opened = storage::PosixStore::Open(loop, folder, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    store = std::move(*opened);
    ports = {loop, store.get(), &data_client, &metadata_client};
  }
  std::unique_ptr<storage::Store> store;
  cache::MemoryClient data_client, metadata_client;
  stream::CellPorts ports;
};

// Another loop, but for what it does with what is posted.
class LoopInFront : public EventLoop {
 public:
  explicit LoopInFront(EventLoop& loop) : loop_(loop) {}
  MonotonicTime Now() const override { return loop_.Now(); }
  WallTime WallNow() const override { return loop_.WallNow(); }
  TimerId At(MonotonicTime when, Task task) override { return loop_.At(when, std::move(task)); }
  void Cancel(TimerId id) override { loop_.Cancel(id); }

 protected:
  EventLoop& loop_;
};

// Holds back what some threads post: they stay inside Post until they are released.
class HoldingLoop final : public LoopInFront {
 public:
  HoldingLoop(EventLoop& loop, ptrdiff_t posts) : LoopInFront(loop), arrived(posts) {}
  void Post(Task&& task) override {
    if (hold) {
      arrived.count_down();
      released.wait();
    }
    loop_.Post(std::move(task));
  }

  static thread_local bool hold;
  std::latch arrived;
  std::latch released{1};
};
thread_local bool HoldingLoop::hold = false;

// Counts what a thread posts.
class CountingLoop final : public LoopInFront {
 public:
  using LoopInFront::LoopInFront;
  void Post(Task&& task) override {
    if (counted) ++posts;
    loop_.Post(std::move(task));
  }

  static thread_local bool counted;
  std::atomic<int64_t> posts{0};
};
thread_local bool CountingLoop::counted = false;

class LibraryTest : public ::testing::Test {
 protected:
  LibraryTest() {
    char name[] = "/tmp/tailcast-library-XXXXXX";
    folder_ = mkdtemp(name);
    thread_->Call(
        [this] { ports_ = std::make_unique<Ports>(thread_->loop(), folder_, &data_, &metadata_); });
    options_.profile = producer::Profile::kLowLatency;
    options_.roll_bytes = 200000;
  }
  ~LibraryTest() override {
    producer_.reset();
    thread_->Call([this] { ports_.reset(); });
    thread_.reset();
    std::filesystem::remove_all(folder_);
  }
  void OpenProducer(int32_t shards = 1) {
    auto opened = producer::OnPorts::Open(ports_->ports, stream_, shards, 4096, options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    producer_ = std::move(*opened);
  }
  struct Reader {
    ThreadLoop loop;
    std::unique_ptr<Ports> ports;
    std::unique_ptr<consumer::Consumer> consumer;
    ~Reader() { consumer.reset(); }
  };
  std::unique_ptr<Reader> OpenConsumer(consumer::Options options = {}, int32_t shards = 1) {
    auto reader = std::make_unique<Reader>();
    reader->ports = std::make_unique<Ports>(&reader->loop, folder_, &data_, &metadata_);
    options.profile = consumer::Profile::kLowLatency;
    auto opened =
        consumer::OnPorts::Open(reader->ports->ports, &reader->loop, stream_, shards, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) reader->consumer = std::move(*opened);
    return reader;
  }

  const stream::StreamId stream_{"lib", stream::StreamIncarnation{5}};
  std::string folder_;
  cache::MemoryStore data_, metadata_;
  std::unique_ptr<LoopThread> thread_ = std::make_unique<LoopThread>("test");
  std::unique_ptr<Ports> ports_;
  producer::Options options_;
  std::unique_ptr<Producer> producer_;
};

TEST_F(LibraryTest, ABlockingPublishReturnsWhenTheMessageIsDurable) {
  OpenProducer();
  const producer::Ack ack = producer_->Publish("hello");
  EXPECT_EQ(ack.outcome, AckOutcome::kDurable) << ack.error;
  EXPECT_EQ(ack.position.number, 0);
  auto reader = OpenConsumer();
  auto batch = reader->consumer->Poll(Duration::Seconds(20));
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->size(), 1u);
  EXPECT_EQ((*batch)[0].payload, "hello");
  EXPECT_EQ(reader->consumer->position(0)->number, 1);
}

TEST_F(LibraryTest, APublisherWakesTheLoopForAFlushNotForEachMessage) {
  CountingLoop loop(*thread_->loop());
  stream::CellPorts ports = ports_->ports;
  ports.loop = &loop;
  options_.profile = producer::Profile::kDefault;
  options_.flush_interval = Duration::Millis(20);
  auto opened = producer::OnPorts::Open(ports, stream_, 1, 4096, options_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::unique_ptr<Producer> producer = std::move(*opened);
  constexpr int kMessages = 3000;
  for (int i = 0; i < kMessages; ++i) {
    CountingLoop::counted = true;
    const Status published = producer->Publish("m", [](const producer::Ack&) {});
    CountingLoop::counted = false;
    ASSERT_TRUE(published.ok()) << published;
    (void)producer->durable_position(0);  // the loop has taken what it was told of
  }
  ASSERT_TRUE(producer->Flush(Duration::Seconds(60)).ok());
  const producer::Stats stats = producer->stats();
  EXPECT_EQ(stats.durable, kMessages);
  // The first message after each append; seldom one that comes between two steps of the loop.
  EXPECT_LE(loop.posts, 4 * stats.flushes);
}

TEST_F(LibraryTest, ManyThreadsPublishAndEveryMessageArrivesOnceAndInItsThreadsOrder) {
  OpenProducer(2);
  constexpr int kThreads = 3, kEach = 3000;
  std::atomic<int> durable{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const std::string text = std::to_string(t) + " " + std::to_string(i);
        ASSERT_TRUE(
            producer_
                ->Publish(
                    text,
                    [&](const producer::Ack& a) { durable += a.outcome == AckOutcome::kDurable; },
                    i % 2)
                .ok());
      }
    });
  }
  auto reader = OpenConsumer({}, 2);
  std::map<std::pair<int, int>, int> last;  // by shard and thread
  int got = 0;
  const MonotonicTime deadline = ReadMonotonicClock() + Duration::Seconds(60);
  while (got < kThreads * kEach && ReadMonotonicClock() < deadline) {
    auto batch = reader->consumer->Poll(Duration::Seconds(1));
    ASSERT_TRUE(batch.ok()) << batch.status();
    for (const consumer::Message& m : *batch) {
      int t = 0, i = 0;
      ASSERT_EQ(std::sscanf(std::string(m.payload).c_str(), "%d %d", &t, &i), 2);
      auto [it, first] = last.try_emplace({m.shard, t}, m.shard);
      if (!first) {
        EXPECT_EQ(i, it->second + 2);
        it->second = i;
      }
      ++got;
    }
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got, kThreads * kEach);
  EXPECT_TRUE(producer_->Flush(Duration::Seconds(20)).ok());
  EXPECT_EQ(durable, kThreads * kEach);
  EXPECT_TRUE(producer_->Close(Duration::Seconds(20)).ok());
}

TEST_F(LibraryTest, CloseFlushesAndLaterCallsFail) {
  options_.flush_interval = Duration::Seconds(3600);
  OpenProducer();
  ASSERT_EQ(producer_->Publish("first").outcome, AckOutcome::kDurable);
  int durable = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(
        producer_
            ->Publish("x",
                      [&](const producer::Ack& a) { durable += a.outcome == AckOutcome::kDurable; })
            .ok());
  }
  EXPECT_TRUE(producer_->Close(Duration::Seconds(20)).ok());
  EXPECT_EQ(durable, 10);
  EXPECT_TRUE(IsFailedPrecondition(producer_->Publish("late", producer::AckCallback())));
  EXPECT_TRUE(producer_->Close(Duration::Seconds(20)).ok());
}

TEST_F(LibraryTest, ASecondCloseWaitsForTheFirstButForNoneInACallback) {
  options_.flush_interval = Duration::Seconds(3600);
  OpenProducer();
  Status in_callback, of_thread;
  std::future<void> second;
  ASSERT_TRUE(producer_
                  ->Publish("x",
                            [&](const producer::Ack&) {
                              in_callback = producer_->Close(Duration::Seconds(20));
                              second = std::async(std::launch::async, [&] {
                                of_thread = producer_->Close(Duration::Seconds(20));
                              });
                              // The first one needs this very thread.
                              EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)),
                                        std::future_status::timeout);
                            })
                  .ok());
  EXPECT_TRUE(producer_->Close(Duration::Seconds(20)).ok());
  second.get();
  EXPECT_TRUE(of_thread.ok()) << of_thread;
  EXPECT_EQ(in_callback.code(), StatusCode::kDeadlineExceeded) << in_callback;
  EXPECT_TRUE(producer_->Close(Duration()).ok());
}

TEST_F(LibraryTest, CallsThatACloseOvertakesFindTheirLoop) {
  HoldingLoop loop(*thread_->loop(), 3);
  stream::CellPorts ports = ports_->ports;
  ports.loop = &loop;
  auto opened = producer::OnPorts::Open(ports, stream_, 1, 4096, options_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  producer_ = std::move(*opened);
  std::vector<AckOutcome> outcomes;
  producer::Stats stats;
  const auto held = [](auto call) {
    return std::thread([call] {
      HoldingLoop::hold = true;
      call();
    });
  };
  std::thread publisher = held([&] {
    const Status status = producer_->TryPublish(
        "x", [&](const producer::Ack& ack) { outcomes.push_back(ack.outcome); });
    EXPECT_TRUE(status.ok()) << status;
  });
  std::thread flusher = held([&] { EXPECT_TRUE(producer_->Flush(Duration::Seconds(20)).ok()); });
  std::thread asker = held([&] { stats = producer_->stats(); });
  loop.arrived.wait();
  EXPECT_TRUE(producer_->Close(Duration::Seconds(20)).ok());
  EXPECT_EQ(outcomes, std::vector{AckOutcome::kDurable}) << "it was taken, so it is flushed";
  loop.released.count_down();
  for (std::thread* thread : {&publisher, &flusher, &asker}) thread->join();
  EXPECT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(stats.files_opened, 0) << "the shards had ended";
  producer_.reset();  // before the loop
}

TEST_F(LibraryTest, AFullBufferIsSaidByTryPublishAndWaitedForByPublish) {
  options_.buffer_bytes_max = 5000;
  OpenProducer();
  Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) {
    status = producer_->TryPublish(std::string(1000, 'x'), producer::AckCallback());
  }
  EXPECT_TRUE(IsResourceExhausted(status)) << status;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(producer_->Publish(std::string(1000, 'y'), producer::AckCallback()).ok());
  }
  EXPECT_TRUE(producer_->Flush(Duration::Seconds(20)).ok());
  EXPECT_EQ(producer_->stats().buffered_bytes, 0);
}

TEST_F(LibraryTest, WrongArgumentsAreNamed) {
  options_.message_bytes_max = 100;
  OpenProducer();
  EXPECT_THAT(producer_->Publish(std::string(101, 'x')).error.message(), HasSubstr("limit of 100"));
  EXPECT_THAT(producer_->Publish("x", 7).error.message(), HasSubstr("no shard 7"));
  options_.shards = {3};
  EXPECT_THAT(producer::OnPorts::Open(ports_->ports, stream_, 2, 4096, options_).status().message(),
              HasSubstr("has shards 0 to 1; there is no shard 3"));
  EXPECT_TRUE(IsInvalidArgument(Producer::Open({}).status()));
  EXPECT_TRUE(IsInvalidArgument(consumer::Consumer::Open({}).status()));
}

// What a program goes by that keeps where its own input stood.
TEST_F(LibraryTest, AProducerSaysWhereTheShardEndsAlsoAfterACrash) {
  OpenProducer(2);
  const auto at = [this](int32_t shard) { return *producer_->durable_position(shard); };
  EXPECT_EQ(at(1), (stream::Position{stream_.incarnation, 1, 0, 0}));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(producer_->Publish("hello", 1).outcome, AckOutcome::kDurable);
  }
  EXPECT_EQ(at(1), (stream::Position{stream_.incarnation, 1, 3, 15}));
  EXPECT_EQ(at(0).number, 0);
  EXPECT_TRUE(IsInvalidArgument(producer_->durable_position(2).status()));
  ASSERT_TRUE(producer_->Publish("not waited for", {}, 1).ok());
  producer_.reset();  // without Close
  options_.takeover = true;
  OpenProducer(2);
  EXPECT_GE(at(1).number, 3);
  const producer::Ack next = producer_->Publish("next", 1);
  EXPECT_EQ(next.position.number + 1, at(1).number);
  EXPECT_EQ(next.position.byte + 4, at(1).byte);
  ASSERT_TRUE(producer_->Close(Duration::Seconds(10)).ok());
  EXPECT_TRUE(IsFailedPrecondition(producer_->durable_position(1).status()));
}

TEST_F(LibraryTest, ASecondProducerIsRefusedAndATakeoverStopsTheFirst) {
  OpenProducer();
  ASSERT_EQ(producer_->Publish("one").outcome, AckOutcome::kDurable);
  auto second = producer::OnPorts::Open(ports_->ports, stream_, 1, 4096, options_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("--takeover"));
  options_.takeover = true;
  second = producer::OnPorts::Open(ports_->ports, stream_, 1, 4096, options_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->Publish("two").outcome, AckOutcome::kDurable);
  EXPECT_EQ(producer_->Publish("lost").outcome, AckOutcome::kFailed);
  // The acknowledgement comes before the producer's thread has stopped the shard.
  Status stopped;
  for (const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(20);
       stopped.ok() && ReadMonotonicClock() < end;) {
    stopped = producer_->Publish("lost", producer::AckCallback());
  }
  EXPECT_TRUE(IsFailedPrecondition(stopped)) << stopped;
  auto reader = OpenConsumer();
  std::vector<std::string> got;
  while (got.size() < 2) {
    auto batch = reader->consumer->Poll(Duration::Seconds(20));
    ASSERT_TRUE(batch.ok());
    ASSERT_FALSE(batch->empty());
    for (const consumer::Message& m : *batch) got.emplace_back(m.payload);
  }
  EXPECT_EQ(got, (std::vector<std::string>{"one", "two"}));
}

TEST_F(LibraryTest, SeekResumeAndRunGoWhereTheyAreTold) {
  OpenProducer();
  std::vector<stream::Position> positions;
  for (int i = 0; i < 50; ++i) positions.push_back(producer_->Publish(std::to_string(i)).position);
  consumer::Options options;
  options.resume = {positions[40]};
  auto reader = OpenConsumer(options);
  std::vector<std::string> got;
  const auto collect = [&](std::span<const consumer::Message> batch) {
    for (const consumer::Message& m : batch) got.emplace_back(m.payload);
    return got.empty() || got.back() != "49";
  };
  EXPECT_TRUE(reader->consumer->Run(collect).ok());
  EXPECT_EQ(got.size(), 10u);
  got.clear();
  ASSERT_TRUE(reader->consumer->Seek(0, consumer::StartPoint::Beginning()).ok());
  EXPECT_TRUE(reader->consumer->Run(collect).ok());
  EXPECT_EQ(got.size(), 50u);
  EXPECT_TRUE(IsInvalidArgument(reader->consumer->Seek(9, consumer::StartPoint::End())));
  EXPECT_EQ(reader->consumer->counters().messages, 60);
  // Errors of a shard are given again until it is sought elsewhere.
  stream::Position wrong = positions[3];
  wrong.byte += 1;
  ASSERT_TRUE(reader->consumer->Seek(0, consumer::StartPoint::At(wrong)).ok());
  Status error;
  while (error.ok()) error = reader->consumer->Poll(Duration::Seconds(5)).status();
  EXPECT_TRUE(IsInvalidArgument(error)) << error;
  EXPECT_EQ(reader->consumer->Poll(Duration::Millis(1)).status(), error);
}

TEST_F(LibraryTest, KeysStayWithTheirShard) {
  OpenProducer(8);
  std::set<int32_t> used;
  for (int i = 0; i < 100; ++i) {
    const std::string key = "key" + std::to_string(i);
    EXPECT_EQ(producer_->ShardOf(key), producer_->ShardOf(key));
    used.insert(producer_->ShardOf(key));
  }
  EXPECT_EQ(used.size(), 8u);
  // For ever: what was published years ago lies there.
  std::vector<int32_t> shards;
  for (const char* key : {"", "a", "user-17", "AA1545"}) shards.push_back(producer_->ShardOf(key));
  EXPECT_EQ(shards, (std::vector<int32_t>{0, 2, 4, 2}));
  const producer::Ack ack = producer_->Publish("user-17", "payload");
  ASSERT_EQ(ack.outcome, producer::AckOutcome::kDurable) << ack.error;
  EXPECT_EQ(ack.position.shard, producer_->ShardOf("user-17"));
}

}  // namespace
}  // namespace tailcast
