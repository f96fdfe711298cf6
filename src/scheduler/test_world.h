// A few cells in virtual time for tests of a hop: real scheduler, reader and writer agents over the
// fake store, the in-memory cache and the simulated network. A hand-driven producer appends to the
// source cell's files and shadows them, as src/producer does.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/reader/reader_agent.h"
#include "tailcast/scheduler/scheduler_agent.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"
#include "tailcast/storage/fake_store.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/writer/writer_agent.h"

namespace tailcast::scheduler {

struct WorldOptions {
  uint64_t seed = 1;
  std::vector<std::string> cells = {"us", "eu", "asia"};  // a chain
  int readers = 2;
  int writers = 2;
  int shards = 1;
  bool doorbells = false;
  int64_t chunk_size = 512;
  Duration link_delay = Duration::Millis(30);
  storage::FakeDiskOptions disk;  // of all cells but the first, whose producer needs a sound one
  reader::ReaderOptions reader;
  writer::WriterOptions writer;
  std::function<void(const StepTaken&)> on_step;  // of all schedulers
};

class World {
 public:
  // One process of a cell.
  struct Process {
    std::string cell, name;
    v1::Role role;
    uint64_t incarnation = 0;
    std::unique_ptr<sim::SimLoop> loop;
    std::unique_ptr<storage::FakeStore> store;
    std::unique_ptr<cache::MemoryClient> data_cache, metadata_cache;
    std::unique_ptr<rpc::Connector> connector;
    MetricRegistry metrics;
    std::unique_ptr<cell::CellClient> cell_client;
    std::unique_ptr<SchedulerAgent> scheduler;
    std::unique_ptr<reader::ReaderAgent> reader;
    std::unique_ptr<writer::WriterAgent> writer;
    std::unique_ptr<rpc::Server> server;
    std::optional<Status> fatal;
    std::string address;
    std::unique_ptr<Timer> again;  // the next registration
    Scope scope;
  };
  struct Cell {
    std::unique_ptr<storage::FakeDisk> disk;
    std::unique_ptr<cache::MemoryStore> data, metadata;
    std::map<std::string, std::unique_ptr<Process>> processes;
  };

  explicit World(WorldOptions options)
      : options_(std::move(options)), time_(options_.seed), network_(time_, Rng(options_.seed)) {
    disk_loop_ = time_.MakeLoop("disks");
    for (const std::string& a : options_.cells) {
      for (const std::string& b : options_.cells) {
        if (a != b) network_.LinkBetween(a, b).delay = options_.link_delay;
      }
    }
    for (const std::string& name : options_.cells) {
      Cell& cell = cells_[name];
      cell.disk =
          std::make_unique<storage::FakeDisk>(disk_loop_.get(), time_.rng().Next(), options_.disk);
      cell.data = std::make_unique<cache::MemoryStore>(time_.rng().Next());
      cell.metadata = std::make_unique<cache::MemoryStore>(time_.rng().Next());
      StartProcess(name, "scheduler", v1::ROLE_SCHEDULER);
      for (int i = 0; i < options_.readers; ++i) {
        StartProcess(name, "reader-" + std::to_string(i), v1::ROLE_READER);
      }
      for (int i = 0; i < options_.writers; ++i) {
        StartProcess(name, "writer-" + std::to_string(i), v1::ROLE_WRITER);
      }
    }
  }

  ~World() {
    for (auto& [name, cell] : cells_) {
      while (!cell.processes.empty()) KillProcess(name, cell.processes.begin()->first);
    }
  }

  sim::VirtualTime& time() { return time_; }
  sim::Network& network() { return network_; }
  Cell& cell(const std::string& name) { return cells_.at(name); }
  Process& process(const std::string& cell, const std::string& name) {
    return *cells_.at(cell).processes.at(name);
  }
  SchedulerAgent& scheduler(const std::string& cell) {
    return *process(cell, "scheduler").scheduler;
  }
  const WorldOptions& options() const { return options_; }

  void StartProcess(const std::string& cell_name, const std::string& name, v1::Role role) {
    auto p = std::make_unique<Process>();
    Process* raw = p.get();
    Cell& cell = cells_.at(cell_name);
    raw->cell = cell_name;
    raw->name = name;
    raw->role = role;
    raw->incarnation = ++next_incarnation_;
    raw->loop = time_.MakeLoop(cell_name + "/" + name);
    raw->again = std::make_unique<Timer>(*raw->loop);
    raw->store = std::make_unique<storage::FakeStore>(cell.disk.get(), raw->loop.get());
    raw->data_cache = std::make_unique<cache::MemoryClient>(raw->loop.get(), cell.data.get());
    raw->metadata_cache =
        std::make_unique<cache::MemoryClient>(raw->loop.get(), cell.metadata.get());
    raw->connector = network_.MakeConnector(*raw->loop, cell_name);
    raw->server = network_.MakeServer(*raw->loop, cell_name);
    cell.processes[name] = std::move(p);
    raw->loop->Post(raw->scope.Bind([this, raw] { Run(*raw); }));
  }

  // kill -9.
  void KillProcess(const std::string& cell_name, const std::string& name) {
    auto node = cells_.at(cell_name).processes.extract(name);
    if (node.empty()) return;
    Process& p = *node.mapped();
    network_.Disconnect(*p.loop);
    p.loop->Kill();
    p.scheduler.reset();
    p.reader.reset();
    p.writer.reset();
    p.cell_client.reset();
  }

  void Restart(const std::string& cell_name, const std::string& name) {
    const v1::Role role = process(cell_name, name).role;
    KillProcess(cell_name, name);
    StartProcess(cell_name, name, role);
  }

  // What an init system does: starts processes again that ended with an error. Not in a callback.
  void ReviveDead() {
    for (auto& [cell_name, cell] : cells_) {
      std::vector<std::string> dead;
      for (auto& [name, p] : cell.processes) {
        if (p->fatal) dead.push_back(name);
      }
      for (const std::string& name : dead) Restart(cell_name, name);
    }
  }

  std::string SchedulerAddress(const std::string& cell) const { return cell + ":scheduler"; }

 private:
  void Run(Process& p) {
    Cell& cell = cells_.at(p.cell);
    const stream::CellPorts ports{p.loop.get(), p.store.get(), p.data_cache.get(),
                                  p.metadata_cache.get()};
    (void)cell;
    if (p.role == v1::ROLE_SCHEDULER) {
      SchedulerOptions options;
      options.registry.cell = p.cell;
      options.registry.store = "fake:";
      options.seed = time_.rng().Next();
      options.on_step = options_.on_step;
      for (const std::string& other : options_.cells) {
        if (other != p.cell) options.neighbours.push_back({other, SchedulerAddress(other), ""});
      }
      p.scheduler = std::make_unique<SchedulerAgent>(*p.loop, *p.store, *p.connector, p.metrics,
                                                     std::move(options));
      p.scheduler->Attach(*p.server);
      p.address = *p.server->Start(SchedulerAddress(p.cell));
      Process* raw = &p;
      const auto on_fatal = [raw](const Status& s) {
        if (!s.ok()) raw->fatal = s;
      };
      p.scheduler->Start(p.scope.Bind(on_fatal), p.scope.Bind(on_fatal));
      return;
    }
    p.cell_client =
        std::make_unique<cell::CellClient>(*p.loop, *p.connector, SchedulerAddress(p.cell), "");
    p.cell_client->Start(Duration::Infinite(), p.scope.Bind([](const Status&) {}));
    if (p.role == v1::ROLE_READER) {
      reader::ReaderOptions options = options_.reader;
      options.name = p.name;
      options.cell = p.cell;
      options.incarnation = p.incarnation;
      options.doorbells = options_.doorbells;
      p.reader =
          std::make_unique<reader::ReaderAgent>(ports, *p.connector, p.metrics, std::move(options));
      p.reader->Attach(*p.server);
    } else {
      writer::WriterOptions options = options_.writer;
      options.name = p.name;
      options.cell = p.cell;
      p.writer = std::make_unique<writer::WriterAgent>(ports, *p.cell_client, p.metrics,
                                                       std::move(options));
      p.writer->Attach(*p.server);
    }
    p.address = *p.server->Start("");
    Register(p);
  }

  void Register(Process& p) {
    v1::ProcessInfo info;
    info.set_name(p.name);
    info.set_role(p.role);
    info.set_incarnation(p.incarnation);
    info.set_rpc_address(p.address);
    Process* raw = &p;
    p.cell_client->Register(info, p.scope.Bind([this, raw](const Result<v1::RegisterReply>& reply) {
      const Duration again =
          reply.ok() ? Duration::Millis(reply->lease_ms() / 3) : Duration::Millis(100);
      raw->again->After(again, raw->scope.Bind([this, raw] { Register(*raw); }));
    }));
  }

  const WorldOptions options_;
  sim::VirtualTime time_;
  sim::Network network_;
  std::unique_ptr<sim::SimLoop> disk_loop_;
  std::map<std::string, Cell> cells_;
  uint64_t next_incarnation_ = 100;
};

// Appends to the files of one shard of a stream in its source cell.
class TestProducer {
 public:
  TestProducer(World& world, const std::string& cell, const stream::ShardId& shard)
      : world_(world), cell_(cell), shard_(shard), keys_(shard) {
    loop_ = world.time().MakeLoop("producer");
    store_ = std::make_unique<storage::FakeStore>(world.cell(cell).disk.get(), loop_.get());
    connector_ = world.network().MakeConnector(*loop_, cell);
    client_ =
        std::make_unique<cell::CellClient>(*loop_, *connector_, world.SchedulerAddress(cell), "");
    again_ = std::make_unique<Timer>(*loop_);
  }
  ~TestProducer() {
    world_.network().Disconnect(*loop_);
    loop_->Kill();
  }

  // Closes the file that is open, opens the next one, and tells everybody.
  void Roll() {
    if (file_.seq > 0) {
      stream::PairMetadata r = Metadata();
      r.seal[0] = data_.size();
      r.seal[1] = index_.size();
      Publish(r);
    }
    stream::Stem next;
    next.seq = file_.seq + 1;
    next.created_us = std::max(file_.created_us + 1, loop_->WallNow().micros());
    next.start_byte = file_.start_byte + static_cast<int64_t>(data_.size());
    next.start_number = file_.start_number + static_cast<int64_t>(index_.size()) / 32;
    file_ = next;
    data_.clear();
    index_.clear();
    for (stream::Part part : {stream::Part::kData, stream::Part::kIndex}) {
      auto& handle = handles_[static_cast<int>(part)];
      handle.reset();
      store_->CreateExclusive(stream::ShardDir(shard_), stream::FileName(file_, part),
                              stream::CreationKey(file_.seq, part),
                              scope_.Bind([&](auto f) { handle = std::move(*f); }));
      world_.time().RunUntil([&] { return handle != nullptr; }, Duration::Seconds(60));
    }
    Publish(Metadata());
    Notify();
  }

  void Notify() {
    v1::FileNotice notice;
    notice.set_stream(shard_.stream.name);
    notice.set_incarnation(shard_.stream.incarnation);
    notice.set_shard(shard_.shard);
    notice.set_stem(file_.ToString());
    client_->NotifyFile(notice, scope_.Bind([this](const Result<v1::FileNoticeReply>& reply) {
      if (!reply.ok()) again_->After(Duration::Millis(100), scope_.Bind([this] { Notify(); }));
    }));
  }

  // One message of `size` bytes, durable and shadowed when it returns.
  void Append(int64_t size) {
    std::string payload;
    for (int64_t i = 0; i < size; ++i) {
      payload.push_back(static_cast<char>('a' + world_.time().rng().Below(26)));
    }
    stream::IndexRecord record{static_cast<int64_t>(data_.size()), static_cast<uint32_t>(size),
                               Crc32c(payload), loop_->WallNow().micros()};
    std::string encoded;
    record.AppendTo(encoded);
    Write(0, data_, payload);
    Write(1, index_, encoded);
    all_data_ += payload;
    all_index_ += encoded;
    if (shadow) Shadow();
    Publish(Metadata());
  }

  void Shadow() {
    const int64_t chunk = world_.options().chunk_size;
    const std::string* parts[] = {&data_, &index_};
    for (int p = 0; p < 2; ++p) {
      const int64_t size = static_cast<int64_t>(parts[p]->size());
      for (int64_t n = shadowed_[p] / chunk; n * chunk < size; ++n) {
        world_.cell(cell_).data->Apply(
            {keys_.Chunk(file_.seq, static_cast<stream::Part>(p), chunk, n),
             cache::MergeRule::kLongerWins, false, parts[p]->substr(n * chunk, chunk)});
      }
      shadowed_[p] = size;
    }
  }

  stream::PairMetadata Metadata() {
    stream::PairMetadata r;
    r.created_us = file_.created_us;
    r.start_byte = file_.start_byte;
    r.start_number = file_.start_number;
    r.primary_length[0] = data_.size();
    r.primary_length[1] = index_.size();
    if (shadow) {
      r.cache_length[0] = data_.size();
      r.cache_length[1] = index_.size();
    }
    r.chunk_size = world_.options().chunk_size;
    r.heartbeat_us = loop_->WallNow().micros();
    return r;
  }

  void Publish(const stream::PairMetadata& metadata) {
    if (!publish) return;
    world_.cell(cell_).metadata->Apply({keys_.MetadataGroup(file_.seq), cache::MergeRule::kMaxLanes,
                                        false, stream::EncodePairMetadata(file_.seq, metadata)});
  }

  const stream::Stem& file() const { return file_; }
  const std::string& data() const { return data_; }
  const std::string& index() const { return index_; }
  int64_t total_bytes() const { return static_cast<int64_t>(all_data_.size()); }
  const std::string& all_data() const { return all_data_; }

  bool shadow = true;   // into the caches
  bool publish = true;  // lengths

 private:
  void Write(int part, std::string& have, const std::string& bytes) {
    std::optional<storage::AppendResult> result;
    handles_[part]->AppendAt(static_cast<int64_t>(have.size()), bytes,
                             scope_.Bind([&](storage::AppendResult r) { result = r; }));
    world_.time().RunUntil([&] { return result.has_value(); }, Duration::Seconds(60));
    TAILCAST_CHECK(result && result->outcome == storage::AppendOutcome::kApplied,
                   "the test's producer needs a disk without faults");
    have += bytes;
    if (part == 0 && have.size() == bytes.size()) shadowed_[0] = shadowed_[1] = 0;
  }

  World& world_;
  const std::string cell_;
  const stream::ShardId shard_;
  const stream::KeyMaker keys_;
  std::unique_ptr<sim::SimLoop> loop_;
  std::unique_ptr<storage::FakeStore> store_;
  std::unique_ptr<rpc::Connector> connector_;
  std::unique_ptr<cell::CellClient> client_;
  stream::Stem file_;
  std::string data_, index_, all_data_, all_index_;
  int64_t shadowed_[2] = {0, 0};
  std::unique_ptr<storage::AppendFile> handles_[2];
  std::unique_ptr<Timer> again_;  // the next notice
  Scope scope_;
};

}  // namespace tailcast::scheduler
