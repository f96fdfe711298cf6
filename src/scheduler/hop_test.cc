// Hops end to end in virtual time: what a producer committed arrives in every cell of the chain, in
// both layers, whatever dies on the way.
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test_world.h"

namespace tailcast::scheduler {
namespace {

using stream::Part;

class Hop {
 public:
  explicit Hop(WorldOptions options) : world(std::move(options)) {}

  // Creates the stream over the chain of all cells and waits until every scheduler knows it.
  stream::StreamId CreateStream(bool settle = true) {
    const auto& cells = world.options().cells;
    v1::StreamConfig config;
    config.set_name("flights");
    config.set_shards(world.options().shards);
    config.set_chunk_size(world.options().chunk_size);
    config.set_source(cells[0]);
    for (size_t i = 1; i < cells.size(); ++i) {
      config.add_destinations(cells[i]);
      auto* edge = config.add_tree();
      edge->set_from(cells[i - 1]);
      edge->set_to(cells[i]);
    }
    auto loop = world.time().MakeLoop("cli");
    auto connector = world.network().MakeConnector(*loop, cells[0]);
    cell::CellClient client(*loop, *connector, world.SchedulerAddress(cells[0]), "");
    std::optional<Result<v1::StreamConfig>> made;
    for (int tries = 0; tries < 50 && !(made && made->ok()); ++tries) {
      made.reset();
      client.CreateStream(config, [&](auto r) { made = std::move(r); });
      world.time().RunUntil([&] { return made.has_value(); }, Duration::Seconds(10));
      if (!made->ok()) world.time().RunFor(Duration::Millis(100));
    }
    EXPECT_TRUE(made->ok()) << made->status();
    id = {config.name(), (*made)->incarnation()};
    EXPECT_TRUE(world.time().RunUntil(
        [&] {
          for (const auto& cell : cells) {
            const auto* r = world.scheduler(cell).registry();
            if (r == nullptr || r->view().streams_size() == 0) return false;
          }
          return true;
        },
        Duration::Seconds(20)));
    world.network().Disconnect(*loop);
    loop->Kill();
    if (settle) world.time().RunFor(Duration::Seconds(3));  // past the grace after a start
    return id;
  }

  stream::ShardId shard(int n = 0) const { return {id, n}; }

  // The committed bytes of a part of a file in a cell.
  std::string Primary(const std::string& cell, const stream::Stem& stem, Part part) {
    auto bytes =
        world.cell(cell).disk->Peek(stream::ShardDir(shard()), stream::FileName(stem, part));
    return bytes.ok() ? *bytes : "";
  }
  stream::FileRecord Record(const std::string& cell, int64_t seq) {
    const auto value = world.cell(cell).metadata->Get(stream::KeyMaker(shard()).MetadataGroup(seq));
    return value ? stream::DecodeFileRecord(seq, *value) : stream::FileRecord();
  }
  // The bytes of [0, length) that the data cache of a cell has, up to the first that is missing.
  std::string Cached(const std::string& cell, int64_t seq, Part part, int64_t length) {
    std::string out;
    const int64_t chunk = world.options().chunk_size;
    for (int64_t n = 0; n * chunk < length; ++n) {
      const auto value =
          world.cell(cell).data->Get(stream::KeyMaker(shard()).Chunk(seq, part, chunk, n));
      if (!value) break;
      out += *value;
      if (static_cast<int64_t>(value->size()) < chunk) break;
    }
    return out.substr(0, static_cast<size_t>(length));
  }

  // Design rules, checked at any moment: copies are prefixes of what was committed, published
  // lengths are covered, and index never runs ahead of data.
  void CheckSafety(const std::map<int64_t, std::pair<std::string, std::string>>& truth) {
    for (size_t c = 1; c < world.options().cells.size(); ++c) {
      const std::string& cell = world.options().cells[c];
      for (const auto& [seq, bytes] : truth) {
        const stream::FileRecord r = Record(cell, seq);
        const std::string* parts[] = {&bytes.first, &bytes.second};
        for (int p = 0; p < 2; ++p) {
          SCOPED_TRACE(cell + " file " + std::to_string(seq) + " part " + std::to_string(p));
          std::string primary;
          for (const auto& name : world.cell(cell).disk->PeekNames(stream::ShardDir(shard()))) {
            const auto parsed = stream::ParseFileName(name);
            if (parsed && parsed->stem.seq == seq && static_cast<int>(parsed->part) == p) {
              primary = *world.cell(cell).disk->Peek(stream::ShardDir(shard()), name);
            }
          }
          ASSERT_TRUE(parts[p]->starts_with(primary));
          ASSERT_LE(r.primary_length[p], static_cast<int64_t>(primary.size()))
              << "a primary length was published before the flush";
          if (!jumps_allowed) {
            const std::string cached = Cached(cell, seq, static_cast<Part>(p), r.cache_length[p]);
            ASSERT_EQ(static_cast<int64_t>(cached.size()), r.cache_length[p])
                << "a cache length was published before its chunks were written";
            ASSERT_TRUE(parts[p]->starts_with(cached));
          }
        }
      }
    }
  }

  bool Arrived(const std::map<int64_t, std::pair<std::string, std::string>>& truth,
               bool caches = true) {
    for (size_t c = 1; c < world.options().cells.size(); ++c) {
      const std::string& cell = world.options().cells[c];
      for (const auto& [seq, bytes] : truth) {
        const stream::FileRecord r = Record(cell, seq);
        if (r.primary_length[0] < static_cast<int64_t>(bytes.first.size()) ||
            r.primary_length[1] < static_cast<int64_t>(bytes.second.size())) {
          return false;
        }
        if (caches && (r.cache_length[0] < static_cast<int64_t>(bytes.first.size()) ||
                       r.cache_length[1] < static_cast<int64_t>(bytes.second.size()))) {
          return false;
        }
      }
    }
    return true;
  }

  World world;
  stream::StreamId id;
  bool jumps_allowed = false;
};

// What is missing where, for the message of a failed test.
std::string Missing(Hop& hop, const std::map<int64_t, std::pair<std::string, std::string>>& truth) {
  std::string out;
  for (size_t c = 1; c < hop.world.options().cells.size(); ++c) {
    const std::string& cell = hop.world.options().cells[c];
    for (const auto& [seq, bytes] : truth) {
      const stream::FileRecord r = hop.Record(cell, seq);
      const int64_t want[] = {static_cast<int64_t>(bytes.first.size()),
                              static_cast<int64_t>(bytes.second.size())};
      for (int p = 0; p < 2; ++p) {
        if (r.primary_length[p] >= want[p] && r.cache_length[p] >= want[p]) continue;
        out += cell + " file " + std::to_string(seq) + " part " + std::to_string(p) + ": primary " +
               std::to_string(r.primary_length[p]) + ", cache " +
               std::to_string(r.cache_length[p]) + " of " + std::to_string(want[p]) + "\n";
      }
    }
    if (const auto* core = hop.world.scheduler(hop.world.options().cells[c - 1]).core()) {
      for (const auto& op : core->Operations()) {
        out += "  " + op.target->ToString() + " phase " +
               std::to_string(static_cast<int>(op.phase)) + " " + op.reader + " > " + op.writer +
               " written " + std::to_string(op.written[0]) + " of " + std::to_string(op.source[0]) +
               " failures " + std::to_string(op.failures) + " " + op.message + "\n";
      }
    }
  }
  return out;
}

using Truth = std::map<int64_t, std::pair<std::string, std::string>>;

TEST(HopTest, CommittedBytesArriveInEveryCellAndLayerWithinMilliseconds) {
  Hop hop({});
  hop.CreateStream();
  TestProducer producer(hop.world, "us", hop.shard());
  producer.Roll();
  producer.Append(3000);
  Truth truth{{1, {producer.data(), producer.index()}}};
  const MonotonicTime begin = hop.world.time().now();
  ASSERT_TRUE(hop.world.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << Missing(hop, truth);
  // Two hops of 30 ms; each polls lengths every 50 ms; the second hop's file is known by a notice.
  EXPECT_LT((hop.world.time().now() - begin).millis(), 400);
  hop.CheckSafety(truth);
  // A message in the steady state.
  producer.Append(100);
  truth[1] = {producer.data(), producer.index()};
  const MonotonicTime second = hop.world.time().now();
  ASSERT_TRUE(hop.world.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << Missing(hop, truth);
  EXPECT_LT((hop.world.time().now() - second).millis(), 2 * (30 + 50 + 15));
  hop.CheckSafety(truth);
}

TEST(HopTest, DoorbellsMakeAHopAsFastAsItsLink) {
  WorldOptions options;
  options.doorbells = true;
  Hop hop(options);
  hop.CreateStream();
  TestProducer producer(hop.world, "us", hop.shard());
  producer.Roll();
  producer.Append(100);
  Truth truth{{1, {producer.data(), producer.index()}}};
  ASSERT_TRUE(hop.world.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << Missing(hop, truth);
  hop.world.time().RunFor(Duration::Seconds(1));
  for (int i = 0; i < 5; ++i) {
    producer.Append(100);
    truth[1] = {producer.data(), producer.index()};
    const MonotonicTime begin = hop.world.time().now();
    ASSERT_TRUE(hop.world.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
        << Missing(hop, truth);
    EXPECT_LT((hop.world.time().now() - begin).millis(), 2 * 30 + 10);
  }
}

TEST(HopTest, FilesRollOverAndTheirOperationsEnd) {
  Hop hop({});
  hop.CreateStream();
  TestProducer producer(hop.world, "us", hop.shard());
  Truth truth;
  for (int file = 1; file <= 20; ++file) {
    producer.Roll();
    for (int i = 0; i < 3; ++i) producer.Append(hop.world.time().rng().Between(1, 2000));
    truth[file] = {producer.data(), producer.index()};
  }
  ASSERT_TRUE(hop.world.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(20)))
      << Missing(hop, truth);
  hop.CheckSafety(truth);
  hop.world.time().RunFor(Duration::Seconds(3));
  for (const std::string cell : {"us", "eu"}) {
    EXPECT_EQ(hop.world.scheduler(cell).core()->unfinished(), 2) << "the open file's two";
    EXPECT_EQ(hop.world.scheduler(cell).core()->counters().restarted, 0);
  }
  for (int64_t seq = 1; seq < 20; ++seq) {
    const auto r = hop.Record("asia", seq);
    ASSERT_TRUE(r.sealed()) << seq;
    EXPECT_EQ(*r.seal[0], static_cast<int64_t>(truth[seq].first.size()));
  }
}

TEST(HopTest, FilesOfTheFirstMomentsArriveToo) {
  Hop hop({});
  hop.CreateStream(false);
  TestProducer producer(hop.world, "us", hop.shard());
  Truth truth;
  for (int file = 1; file <= 20; ++file) {
    producer.Roll();
    for (int i = 0; i < 3; ++i) producer.Append(hop.world.time().rng().Between(1, 2000));
    truth[file] = {producer.data(), producer.index()};
  }
  const auto arrived = [&] { return hop.Arrived(truth, false); };
  ASSERT_TRUE(hop.world.time().RunUntil(arrived, Duration::Seconds(10))) << Missing(hop, truth);
  hop.CheckSafety(truth);
}

TEST(HopTest, TheHeartbeatOfTheSourceArrivesEverywhere) {
  Hop hop({});
  hop.CreateStream();
  TestProducer producer(hop.world, "us", hop.shard());
  producer.Roll();
  producer.Append(100);
  hop.world.time().RunFor(Duration::Seconds(2));
  stream::FileRecord beat = producer.Record();
  producer.Publish(beat);
  ASSERT_TRUE(hop.world.time().RunUntil(
      [&] { return hop.Record("asia", 1).heartbeat_us == beat.heartbeat_us; },
      Duration::Seconds(2)));
}

TEST(HopTest, WithoutCachesEverythingArrivesByThePrimaryLayer) {
  Hop hop({});
  hop.CreateStream();
  TestProducer producer(hop.world, "us", hop.shard());
  for (const std::string cell : {"us", "eu", "asia"}) {
    hop.world.cell(cell).data->SetFaults({.unavailable = true});
    hop.world.cell(cell).metadata->SetFaults({.unavailable = true});
  }
  producer.Roll();
  producer.Append(5000);
  const auto arrived = [&] {
    return hop.Primary("asia", producer.file(), Part::kIndex) == producer.index() &&
           hop.Primary("asia", producer.file(), Part::kData) == producer.data();
  };
  ASSERT_TRUE(hop.world.time().RunUntil(arrived, Duration::Seconds(20)));
}

// Kills `role` on the path while a file grows; the copy goes on within the time limit.
int64_t LongestGapMs(const std::string& kill, Duration limit) {
  WorldOptions options;
  options.doorbells = true;
  Hop hop(options);
  hop.CreateStream();
  TestProducer producer(hop.world, "us", hop.shard());
  producer.Roll();
  producer.Append(200);
  Truth truth{{1, {producer.data(), producer.index()}}};
  EXPECT_TRUE(hop.world.time().RunUntil([&] { return hop.Arrived(truth); }, Duration::Seconds(5)))
      << Missing(hop, truth);
  hop.world.time().RunFor(Duration::Seconds(2));
  // Both of a kind, one after the other: whoever runs the operations is among them.
  int64_t worst = 0;
  for (const std::string which : {"-0", "-1"}) {
    const std::string cell = kill == "writer" ? "eu" : "us";
    if (kill == "scheduler") {
      hop.world.Restart("us", "scheduler");
      hop.world.Restart("eu", "scheduler");
    } else {
      hop.world.Restart(cell, kill + which);
    }
    producer.Append(200);
    truth[1] = {producer.data(), producer.index()};
    const MonotonicTime begin = hop.world.time().now();
    EXPECT_TRUE(hop.world.time().RunUntil([&] { return hop.Arrived(truth); }, limit));
    worst = std::max(worst, (hop.world.time().now() - begin).millis());
    hop.CheckSafety(truth);
    hop.world.time().RunFor(Duration::Seconds(4));
  }
  return worst;
}

TEST(HopTest, AKilledReaderCostsLittle) {
  EXPECT_LE(LongestGapMs("reader", Duration::Seconds(10)), 100 + 4 * 30 + 60);
}
TEST(HopTest, AKilledWriterCostsLittle) {
  EXPECT_LE(LongestGapMs("writer", Duration::Seconds(10)), 100 + 4 * 30 + 60);
}
TEST(HopTest, AKilledSchedulerCostsNothing) {
  EXPECT_LE(LongestGapMs("scheduler", Duration::Seconds(10)), 2 * 30 + 20);
}

}  // namespace
}  // namespace tailcast::scheduler
