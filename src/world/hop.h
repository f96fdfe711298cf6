// For tests of hops: a few cells in virtual time with real scheduler, reader and writer agents over
// the fake store and the in-memory cache, and one stream from the first cell to all others.
//
//   Hop hop({.cells = {"us", "eu"}});
//   hop.CreateStream();
//   HandProducer producer = ...;
//   EXPECT_EQ(hop.Check(), "");          // what must hold at any moment (oracles.h)
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/stream/message_ids.h"
#include "tailcast/world/hand_producer.h"
#include "tailcast/world/oracles.h"
#include "tailcast/world/programs.h"

namespace tailcast::world {

struct HopOptions {
  uint64_t seed = 1;
  std::vector<std::string> cells = {"us", "eu", "asia"};  // a chain
  int readers = 2;
  int writers = 2;
  int shards = 1;
  bool doorbells = false;
  int64_t chunk_size = 512;
  Duration link_delay = Duration::Millis(30);
  reader::ReaderOptions reader;
  writer::WriterOptions writer;
  scheduler::LeaverOptions leavers;
  std::function<void(const scheduler::StepTaken&)> on_step;  // of all schedulers
  bool caches_are_sound = true;                              // OracleOptions
  bool jumps_allowed = false;
};

// The bytes of a shard's files, data and index, by sequence number.
using Truth = std::map<int64_t, std::pair<std::string, std::string>>;
using Edges = std::vector<std::pair<std::string, std::string>>;

class Hop {
 public:
  explicit Hop(HopOptions chosen)
      : options(std::move(chosen)),
        world({.seed = options.seed, .cells = options.cells, .link_delay = options.link_delay}) {
    scheduler::SchedulerOptions scheduler;
    scheduler.on_step = options.on_step;
    scheduler.leavers = options.leavers;
    reader::ReaderOptions reader = options.reader;
    reader.doorbells = options.doorbells;
    for (const std::string& cell : options.cells) {
      world.Start(cell, "scheduler", RunScheduler(world, scheduler));
      for (int i = 0; i < options.readers; ++i) {
        world.Start(cell, "reader-" + std::to_string(i), RunReader(world, reader));
      }
      for (int i = 0; i < options.writers; ++i) {
        world.Start(cell, "writer-" + std::to_string(i), RunWriter(world, options.writer));
      }
    }
  }

  sim::VirtualTime& time() { return world.time(); }
  // Null while it is starting.
  scheduler::SchedulerAgent* FindScheduler(const std::string& cell) {
    return world.process(cell, "scheduler").scheduler.get();
  }
  scheduler::SchedulerAgent& scheduler(const std::string& cell) { return *FindScheduler(cell); }
  // Null until it has been read.
  const cell::RegistryCore* registry(const std::string& cell) {
    const scheduler::SchedulerAgent* scheduler = FindScheduler(cell);
    return scheduler == nullptr ? nullptr : scheduler->registry();
  }

  // Creates the stream over the chain of all cells and waits until every scheduler knows it.
  void CreateStream(bool settle = true) {
    const auto& cells = options.cells;
    v1::StreamConfig config;
    config.set_name("flights");
    config.set_shards(options.shards);
    config.set_chunk_size(options.chunk_size);
    config.set_source(cells[0]);
    for (size_t i = 1; i < cells.size(); ++i) {
      config.add_destinations(cells[i]);
      auto* edge = config.add_tree();
      edge->set_from(cells[i - 1]);
      edge->set_to(cells[i]);
    }
    Process& user = world.Start(cells[0], "producer-of-streams", nullptr);
    std::optional<Result<v1::StreamConfig>> made;
    {
      cell::CellClient client(*user.loop, *user.connector, world.SchedulerAddress(cells[0]), "");
      const Scope scope;
      for (int tries = 0; tries < 50 && !(made && made->ok()); ++tries) {
        made.reset();
        client.CreateStream(config, scope.Bind([&](auto r) { made = std::move(r); }));
        time().RunUntil([&] { return made.has_value(); }, Duration::Seconds(10));
        if (!made->ok()) time().RunFor(Duration::Millis(100));
      }
    }
    world.Kill(cells[0], "producer-of-streams");
    EXPECT_TRUE(made->ok()) << made->status();
    id = stream::IdOf(**made);
    oracles.emplace(world, OracleOptions{.source = cells[0],
                                         .shard = shard(),
                                         .chunk_size = options.chunk_size,
                                         .caches_are_sound = options.caches_are_sound,
                                         .jumps_allowed = options.jumps_allowed});
    const auto known = [&] {
      return std::all_of(cells.begin(), cells.end(), [&](const std::string& cell) {
        const cell::RegistryCore* r = registry(cell);
        return r != nullptr && r->view().streams_size() > 0;
      });
    };
    EXPECT_TRUE(time().RunUntil(known, Duration::Seconds(20)));
    if (settle) time().RunFor(Duration::Seconds(3));  // past the grace after a start
  }

  // Gives the stream another copy tree, as an operator or the optimiser does: its cells are the
  // destinations.
  void Reroute(const Edges& edges) {
    const std::string source = options.cells[0];
    const cell::RegistryCore* known = registry(source);
    if (known == nullptr || known->catalogue().FindStream("flights") == nullptr) return;
    v1::InstallStreamRequest request;
    *request.mutable_stream() = *known->catalogue().FindStream("flights");
    request.mutable_stream()->set_tree_version(request.stream().tree_version() + 1);
    request.mutable_stream()->clear_tree();
    request.mutable_stream()->clear_destinations();
    for (const auto& [from, to] : edges) {
      request.mutable_stream()->add_destinations(to);
      auto* edge = request.mutable_stream()->add_tree();
      edge->set_from(from);
      edge->set_to(to);
    }
    Process& user = world.Start(source, "producer-of-trees", nullptr);
    {
      const auto client = user.connector->MakeClient(world.SchedulerAddress(source), "");
      bool answered = false;
      const Scope scope;
      client->Call("/tailcast.v1.Peer/InstallStream", request.SerializeAsString(),
                   Duration::Seconds(2),
                   scope.Bind([&](const Result<std::string>&) { answered = true; }));
      time().RunUntil([&] { return answered; }, Duration::Seconds(3));
    }
    world.Kill(source, "producer-of-trees");
  }

  stream::ShardId shard(int n = 0) const { return {id, n}; }

  std::string Check() { return oracles->Check(); }

  // The committed bytes of a part of a file in a cell.
  std::string Primary(const std::string& cell, const stream::Stem& stem, stream::Part part) {
    auto bytes =
        world.cell(cell).disk->Peek(stream::ShardDir(shard()), stream::FileName(stem, part));
    return bytes.ok() ? *bytes : "";
  }
  stream::PairMetadata Metadata(const std::string& cell, int64_t seq) {
    const auto value = world.cell(cell).metadata->Get(stream::KeyMaker(shard()).MetadataGroup(seq));
    return value ? stream::DecodePairMetadata(seq, *value) : stream::PairMetadata();
  }

  // Every cell says that it has all of these, in its primary layer and, if asked, its cache.
  bool Arrived(const Truth& truth, bool caches = true) {
    for (size_t c = 1; c < options.cells.size(); ++c) {
      for (const auto& [seq, bytes] : truth) {
        const stream::PairMetadata r = Metadata(options.cells[c], seq);
        const auto data = static_cast<int64_t>(bytes.first.size());
        const auto index = static_cast<int64_t>(bytes.second.size());
        if (r.primary_length[0] < data || r.primary_length[1] < index) return false;
        if (caches && (r.cache_length[0] < data || r.cache_length[1] < index)) return false;
      }
    }
    return true;
  }

  // What is missing where, for the message of a failed test.
  std::string Missing(const Truth& truth) {
    std::string out;
    for (size_t c = 1; c < options.cells.size(); ++c) {
      const std::string& cell = options.cells[c];
      for (const auto& [seq, bytes] : truth) {
        const stream::PairMetadata r = Metadata(cell, seq);
        const int64_t want[] = {static_cast<int64_t>(bytes.first.size()),
                                static_cast<int64_t>(bytes.second.size())};
        for (int p = 0; p < 2; ++p) {
          if (r.primary_length[p] >= want[p] && r.cache_length[p] >= want[p]) continue;
          out += cell + " file " + std::to_string(seq) + " part " + std::to_string(p) +
                 ": primary " + std::to_string(r.primary_length[p]) + ", cache " +
                 std::to_string(r.cache_length[p]) + " of " + std::to_string(want[p]) + "\n";
        }
      }
      const std::string& from = options.cells[c - 1];
      for (const std::string& at : {from, cell}) {
        for (const auto& [name, process] : world.cell(at).processes) {
          if (process->IsClient()) continue;
          out += "  " + at + "/" + name + ":";
          for (const auto& m : process->metrics.Snapshot()) {
            std::string labels;
            for (const auto& [k, v] : m.labels) labels += " " + v;
            if (m.value != 0) out += " " + m.name + labels + "=" + std::to_string(m.value);
          }
          out += "\n";
        }
      }
      const scheduler::SchedulerAgent* scheduler = FindScheduler(from);
      const auto* core = scheduler == nullptr ? nullptr : scheduler->core();
      if (core == nullptr) continue;
      for (const auto& [target, op] : core->operations()) {
        out += "  " + target.ToString() + " phase " + std::string(PhaseName(op.phase)) + " " +
               op.workers.reader + " > " + op.workers.writer + " written " +
               std::to_string(op.written[0]) + " of " + std::to_string(op.source[0]) +
               " failures " + std::to_string(op.failures) + " " + op.message + "\n";
      }
    }
    return out;
  }

  const HopOptions options;
  Deployment world;
  stream::StreamId id;
  std::optional<Oracles> oracles;
};

}  // namespace tailcast::world
