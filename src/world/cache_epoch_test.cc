// All replicas of a cell's caches restart while a stream is quiet: what they had acknowledged is
// lost, and its owners publish it again when they hear of the new cache epoch, though there is no
// news of theirs (spec Merge: RaiseEpoch).
#include <algorithm>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/world/hop.h"
#include "tailcast/world/workload.h"

namespace tailcast::world {
namespace {

constexpr int kCaches = 4;
constexpr Duration kSoon = Duration::Seconds(5);

std::string CacheName(int i) { return "cache-" + std::to_string(i); }

// A producer whose heart beats so seldom that it does not matter, over real cache servers.
class QuietCell {
 public:
  QuietCell() : deployment({.caches = CacheKind::kServers}) {
    const NodeSetup setup{.caches = kCaches, .cache_bytes = 2 << 20};
    deployment.Start("cell", "scheduler", RunNode(deployment, setup));
    for (int i = 1; i <= kCaches; ++i) {
      deployment.Start("cell", CacheName(i), RunNode(deployment, setup));
    }
    producer_ = &work.AddProducer("cell", RunClient(deployment));
    time().RunFor(Duration::Seconds(3));
    producer::AgentOptions options;
    options.chunk_size = 256;
    options.roll_bytes = 3000;
    options.heartbeat = Duration::Seconds(1000);
    work.Open(*producer_, options);
    EXPECT_TRUE(time().RunUntil([&] { return producer_->opened.has_value(); }, kSoon));
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(work.Publish(*producer_, 100).ok());
    EXPECT_TRUE(time().RunUntil([&] { return work.AllSettled(); }, kSoon));
    time().RunFor(Duration::Seconds(1));
  }
  sim::VirtualTime& time() { return deployment.time(); }
  // What a client would read: the join of two replicas.
  stream::PairMetadata Metadata(int64_t seq) {
    stream::PairMetadata joined;
    const auto copies = deployment.PeekReplicas("cell", CacheLayer::kMetadata,
                                                stream::KeyMaker(work.shard).MetadataGroup(seq));
    if (copies.size() < 2) return joined;
    for (const Deployment::Copy& copy : copies) {
      joined = stream::Merge(joined, stream::DecodePairMetadata(seq, copy.bytes));
    }
    return joined;
  }
  int64_t current() { return producer_->agent()->current().seq; }
  // The last closed file, and the open one, are there.
  bool Published() {
    return Metadata(current() - 1).sealed() && Metadata(current()).primary_length[1] > 0 &&
           Metadata(current()).cache_length[1] > 0;
  }
  void RestartCaches() {
    for (int i = 1; i <= kCaches; ++i) deployment.Restart("cell", CacheName(i));
  }

  Deployment deployment;
  Workload work{deployment, {{"s", stream::StreamIncarnation{77}}, 0}};

 private:
  Workload::Producer* producer_ = nullptr;
};

TEST(CacheEpoch, ARestartOfAllReplicasHidesNoQuietStream) {
  QuietCell cell;
  ASSERT_GT(cell.current(), 1);
  ASSERT_TRUE(cell.Published());
  cell.RestartCaches();
  EXPECT_FALSE(cell.Published());
  EXPECT_TRUE(cell.time().RunUntil([&] { return cell.Published(); }, kSoon));
  // Who comes now finds the length in the cache, and the seal before it.
  Workload::Consumer& c = cell.work.AddConsumer("cell", RunClient(cell.deployment));
  cell.time().RunFor(Duration::Millis(500));
  cell.work.Start(c, {.chunk_size = 256});
  EXPECT_TRUE(cell.time().RunUntil(
      [&] { return static_cast<int64_t>(c.got.size()) >= cell.work.durable(); }, kSoon));
  EXPECT_EQ(cell.work.Incomplete(c), "");
}

TEST(CacheEpoch, ThatNobodyPublishesAgainWouldBeFound) {
  const PlantedFault fault("producer.forget_epoch");
  QuietCell cell;
  cell.RestartCaches();
  EXPECT_FALSE(cell.time().RunUntil([&] { return cell.Published(); }, Duration::Seconds(30)));
}

// A hop whose source says nothing any more, not even that it lives.
class QuietHop {
 public:
  QuietHop() : hop({.cells = {"us", "eu"}}) {
    hop.CreateStream();
    producer_.emplace(hop.world, "us", hop.shard(), hop.options.chunk_size);
    producer_->Roll();
    producer_->Append(3000);
    truth = {{1, {producer_->data(), producer_->index()}}};
    EXPECT_TRUE(hop.time().RunUntil([&] { return hop.Arrived(truth); }, kSoon));
    hop.time().RunFor(Duration::Seconds(2));
  }
  bool HasLock(int layer) {
    return hop.world.cell("eu").metadata->Get(stream::KeyMaker(hop.shard()).Lock(1, layer)) !=
           std::nullopt;
  }
  // Lengths of both layers, and both locks.
  bool Published() { return hop.Arrived(truth) && HasLock(0) && HasLock(1); }

  Hop hop;
  Truth truth;

 private:
  std::optional<HandProducer> producer_;
};

TEST(CacheEpoch, WritersPublishAgainThoughTheirSourceIsQuiet) {
  QuietHop quiet;
  ASSERT_TRUE(quiet.Published());
  quiet.hop.world.cell("eu").metadata->BeginEpoch();
  EXPECT_FALSE(quiet.Published());
  EXPECT_TRUE(quiet.hop.time().RunUntil([&] { return quiet.Published(); }, Duration::Millis(100)));
}

TEST(CacheEpoch, ThatNoWriterPublishesAgainWouldBeFound) {
  const PlantedFault fault("writer.forget_epoch");
  QuietHop quiet;
  quiet.hop.world.cell("eu").metadata->BeginEpoch();
  EXPECT_FALSE(quiet.hop.time().RunUntil([&] { return quiet.Published(); }, Duration::Seconds(30)));
}

}  // namespace
}  // namespace tailcast::world
