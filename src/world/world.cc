#include "tailcast/world/world.h"

#include <algorithm>
#include <utility>

#include "tailcast/producer/notify.h"
#include "tailcast/producer/producer.h"
#include "tailcast/proto/copy.pb.h"

namespace tailcast::world {
namespace {

constexpr char kStreamName[] = "sim";
constexpr Duration kHealedLimit = Duration::Seconds(180);

}  // namespace

// One process of a cell.
struct World::Process {
  std::string name;
  std::unique_ptr<StepLog> steps;
  node::Role role;
  std::unique_ptr<sim::SimLoop> loop;
  std::unique_ptr<storage::FakeStore> store;
  std::unique_ptr<rpc::Connector> connector;
  std::unique_ptr<fabric::Connector> fabric;
  std::unique_ptr<rpc::Server> server;
  MetricRegistry metrics;
  std::unique_ptr<node::Node> node;
  std::optional<Status> fatal;
};

struct World::Cell {
  std::unique_ptr<StepLog> steps;  // of the disk
  std::unique_ptr<sim::SimLoop> disk_loop;
  std::unique_ptr<storage::FakeDisk> disk;
  std::map<std::string, std::unique_ptr<Process>> processes;
};

// A producer's or consumer's process.
struct World::Client {
  std::string cell, name;
  std::unique_ptr<StepLog> steps;
  std::unique_ptr<sim::SimLoop> loop;
  std::unique_ptr<storage::FakeStore> store;
  std::unique_ptr<rpc::Connector> connector;
  std::unique_ptr<fabric::Connector> fabric;
  std::unique_ptr<cache::QuorumClient> data_cache, metadata_cache;
  std::unique_ptr<cell::CellClient> cell_client;
  std::unique_ptr<producer::ProducerAgent> producer;
  std::unique_ptr<consumer::ConsumerAgent> consumer;
  std::optional<Status> opened;
  int64_t got = 0;

  stream::CellPorts ports() {
    return {loop.get(), store.get(), data_cache.get(), metadata_cache.get(), steps.get()};
  }
  Scope scope;
};

Options Options::Swarm(uint64_t seed) {
  Rng rng = Rng(seed).Fork("swarm");
  Options o;
  o.seed = seed;
  o.caches = static_cast<int>(rng.Between(3, 5));
  o.readers = static_cast<int>(rng.Between(1, 3));
  o.writers = static_cast<int>(rng.Between(1, 3));
  o.consumers = static_cast<int>(rng.Between(1, 2));
  o.low_latency = rng.Chance(0.7);
  o.chunk_size = int64_t{512} << rng.Below(4);
  o.roll_bytes = rng.Chance(0.3) ? rng.Between(5000, 20000) : rng.Between(20000, 200000);
  o.message_bytes_max = rng.Chance(0.5) ? rng.Between(50, 500) : rng.Between(500, 10000);
  o.link_delay = Duration::Millis(rng.Between(1, 120));
  o.message_interval = Duration::Micros(rng.Between(500, 20000));
  o.messages = static_cast<int>(rng.Between(100, 800));
  o.kills = rng.Chance(0.6);
  o.pauses = rng.Chance(0.4);
  o.partitions = rng.Chance(0.4);
  o.bad_fabric = rng.Chance(0.5);
  o.bad_disks = rng.Chance(0.4);
  o.slow_peers = rng.Chance(0.3);
  o.reroutes = rng.Chance(0.3);
  Rng jumps = Rng(seed).Fork("start-position");
  if (jumps.Chance(0.2)) {
    o.jump_bytes = jumps.Between(8 << 10, 64 << 10);
    o.chunk_size = 4096;
    o.roll_bytes = jumps.Between(500'000, 1'500'000);
    o.message_bytes_max = jumps.Between(5000, 10000);
  }
  return o;
}

World::World(Options options)
    : options_(std::move(options)),
      rng_(Rng(options_.seed).Fork("world")),
      time_(options_.seed),
      network_(time_, Rng(options_.seed).Fork("network")) {
  wire_ = time_.MakeLoop("wire");
  fabric_ = std::make_unique<fabric::FakeFabricNetwork>(wire_.get(), rng_.Next());
  for (size_t i = 0; i < options_.cells.size(); ++i) {
    topology_.clusters.push_back(
        {.name = options_.cells[i], .scheduler = SchedulerAddress(options_.cells[i])});
    for (size_t j = 0; j < options_.cells.size(); ++j) {
      if (i == j) continue;
      // Neighbours are cheap, so the planned tree is the chain.
      topology_.links.push_back(
          {.from = options_.cells[i],
           .to = options_.cells[j],
           .usd_per_gb = i + 1 == j || j + 1 == i ? 0.01 : 0.1,
           .rtt_ms = 2.0 * static_cast<double>(options_.link_delay.millis())});
      network_.LinkBetween(options_.cells[i], options_.cells[j]).delay = options_.link_delay;
    }
  }
  for (const std::string& name : options_.cells) {
    auto cell = std::make_unique<Cell>();
    cell->disk_loop = time_.MakeLoop(name + "/disk");
    cell->disk = std::make_unique<storage::FakeDisk>(cell->disk_loop.get(), rng_.Next());
    cell->steps = MakeSteps(name, "disk");
    cell->disk->SetSteps(cell->steps.get());
    cells_[name] = std::move(cell);
    StartProcess(name, "scheduler");
    for (int i = 1; i <= options_.caches; ++i) StartProcess(name, "cache-" + std::to_string(i));
    for (int i = 1; i <= options_.readers; ++i) StartProcess(name, "reader-" + std::to_string(i));
    for (int i = 1; i <= options_.writers; ++i) StartProcess(name, "writer-" + std::to_string(i));
  }
}

World::~World() {
  const auto drop = [&](Client& client) {
    network_.Disconnect(*client.loop);
    client.loop->Kill();
  };
  if (source_ != nullptr) drop(*source_);
  for (auto& sink : sinks_) drop(*sink);
  source_.reset();
  sinks_.clear();
  for (auto& [name, cell] : cells_) {
    while (!cell->processes.empty()) KillProcess(name, cell->processes.begin()->first);
  }
}

std::unique_ptr<StepLog> World::MakeSteps(const std::string& cell, const std::string& name) {
  if (!options_.steps) return nullptr;
  // Nanoseconds of virtual time, a step apart.
  const auto clock = [this] {
    return last_stamp_ = std::max(last_stamp_ + 1, time_.now().micros() * 1000);
  };
  return std::make_unique<StepLog>(cell, name + "." + std::to_string(++step_logs_), clock,
                                   options_.steps);
}

void World::Say(const std::string& text) {
  if (!say_) return;
  char stamp[32];
  std::snprintf(stamp, sizeof stamp, "%10.6f ", static_cast<double>(time_.now().micros()) / 1e6);
  say_(stamp + text);
}

void World::StartProcess(const std::string& cell_name, const std::string& name) {
  Cell& cell = *cells_.at(cell_name);
  auto p = std::make_unique<Process>();
  p->name = name;
  p->role = *node::ParseRole(name.substr(0, name.find('-')));
  const std::string full = cell_name + "/" + name;
  p->steps = MakeSteps(cell_name, name);
  p->loop = time_.MakeLoop(full);
  p->store = std::make_unique<storage::FakeStore>(cell.disk.get(), p->loop.get());
  p->connector = network_.MakeConnector(*p->loop, cell_name);
  p->fabric = fabric_->MakeConnector(full, p->loop.get());
  p->server = network_.MakeServer(*p->loop, cell_name);

  cell::ProcessConfig config;
  config.cell = cell_name;
  config.name = name;
  config.store = "posix:/simulated/" + cell_name;
  config.scheduler = SchedulerAddress(cell_name);
  config.listen = cell_name + ":0";
  config.profile = options_.low_latency ? cell::Profile::kLowLatency : cell::Profile::kDefault;
  config.data_cache_bytes = 8 << 20;
  config.metadata_cache_bytes = 4 << 20;
  for (int i = 1; i <= options_.caches; ++i) config.caches.push_back("cache-" + std::to_string(i));

  node::Ports ports;
  ports.loop = p->loop.get();
  ports.server = p->server.get();
  ports.connector = p->connector.get();
  ports.store = p->store.get();
  ports.fabric = p->fabric.get();
  ports.metrics = &p->metrics;
  ports.seed = rng_.Next();
  ports.steps = p->steps.get();
  ports.jump_bytes = options_.jump_bytes;
  ports.make_exporter = [this, full](const std::string& instance) {
    return fabric_->MakeExporter(full + "." + instance);
  };
  Process* raw = p.get();
  raw->node =
      std::make_unique<node::Node>(ports, config, std::vector<node::Role>{raw->role}, topology_);
  cell.processes[name] = std::move(p);
  raw->loop->Post([raw] {
    const Status started = raw->node->Start("", [raw](Status why) { raw->fatal = std::move(why); });
    if (!started.ok()) raw->fatal = started;
  });
}

void World::KillProcess(const std::string& cell_name, const std::string& name) {
  auto node = cells_.at(cell_name)->processes.extract(name);
  if (node.empty()) return;
  std::erase(paused_, std::pair(cell_name, name));
  Process& p = *node.mapped();
  network_.Disconnect(*p.loop);
  if (p.role == node::Role::kCache) {
    for (const char* instance : {".data", ".metadata"}) {
      fabric_->Kill(cell_name + "/" + name + instance);
    }
  }
  p.loop->Kill();
  p.node.reset();
}

// What an init system does.
void World::ReviveDead() {
  for (auto& [cell_name, cell] : cells_) {
    std::vector<std::string> dead;
    for (auto& [name, p] : cell->processes) {
      if (p->fatal) dead.push_back(name);
    }
    for (const std::string& name : dead) {
      Say(cell_name + "/" + name + " ended: " + cell->processes[name]->fatal->ToString());
      KillProcess(cell_name, name);
      StartProcess(cell_name, name);
    }
  }
}

std::unique_ptr<World::Client> World::MakeClient(const std::string& cell_name,
                                                 const std::string& name) {
  auto client = std::make_unique<Client>();
  Client* raw = client.get();
  raw->cell = cell_name;
  raw->name = cell_name + "/" + name;
  raw->steps = MakeSteps(cell_name, name);
  raw->loop = time_.MakeLoop(raw->name);
  raw->store =
      std::make_unique<storage::FakeStore>(cells_.at(cell_name)->disk.get(), raw->loop.get());
  raw->connector = network_.MakeConnector(*raw->loop, cell_name);
  raw->fabric = fabric_->MakeConnector(raw->name, raw->loop.get());
  raw->cell_client = std::make_unique<cell::CellClient>(*raw->loop, *raw->connector,
                                                        SchedulerAddress(cell_name), "");
  cache::QuorumClientOptions options;
  options.seed = rng_.Next() | 1;
  options.service = cache::kDataService;
  raw->data_cache = std::make_unique<cache::QuorumClient>(
      raw->loop.get(), raw->fabric.get(), raw->connector.get(), options, cache::RingConfig());
  options.service = cache::kMetadataService;
  raw->metadata_cache = std::make_unique<cache::QuorumClient>(
      raw->loop.get(), raw->fabric.get(), raw->connector.get(), options, cache::RingConfig());
  raw->cell_client->SetOnChange([raw](const cell::CellView& view) {
    raw->data_cache->UpdateRing(cell::DataRing(view));
    raw->metadata_cache->UpdateRing(cell::MetadataRing(view));
  });
  raw->loop->Post([raw] { raw->cell_client->Start(Duration::Infinite(), [](Status) {}); });
  return client;
}

bool World::Wait(const std::string& what, Duration limit, const std::function<bool()>& condition) {
  const MonotonicTime end = time_.now() + limit;
  while (!condition()) {
    if (!problem_.empty()) return false;
    if (time_.now() >= end) {
      problem_ = what + " did not happen within " + std::to_string(limit.millis()) + " virtual ms";
      return false;
    }
    time_.RunFor(Duration::Millis(5));
    ReviveDead();
    Collect();
  }
  return true;
}

void World::StartEnds() {
  const stream::ShardId shard{{stream_.name(), stream_.incarnation()}, 0};
  producer::AgentOptions options;
  options.flush_interval =
      options_.low_latency ? producer::kLowLatencyFlushInterval : Duration::Millis(100);
  options.chunk_size = options_.chunk_size;
  options.roll_bytes = options_.roll_bytes;
  Client* source = source_.get();
  producer::ProducerAgent::Hooks hooks;
  hooks.notify =
      source->scope.Bind([source](const producer::FileEvent& event, Callback<void(Status)> done) {
        producer::NotifyScheduler(*source->cell_client, source->scope, event, std::move(done));
      });
  source->producer = std::make_unique<producer::ProducerAgent>(source->ports(), shard, options,
                                                               std::move(hooks), rng_.Next());
  source->producer->Open([source](Status s) { source->opened = std::move(s); });
  for (auto& sink : sinks_) {
    consumer::AgentOptions agent;
    agent.doorbell = options_.low_latency;
    agent.chunk_size = options_.chunk_size;
    sink->consumer = std::make_unique<consumer::ConsumerAgent>(sink->ports(), shard, agent, [] {});
    sink->consumer->Start(consumer::StartPoint::Beginning());
  }
}

void World::PublishNext() {
  // Names its number, and is filled with what follows from it.
  std::string message = std::to_string(published_.size()) + ":";
  const int64_t size = rng_.Between(1, options_.message_bytes_max);
  while (static_cast<int64_t>(message.size()) < size) {
    message.push_back(static_cast<char>('a' + (message.size() * 7 + published_.size()) % 26));
  }
  const Status taken = source_->producer->Publish(message, [this](const producer::Ack& ack) {
    if (ack.outcome == producer::AckOutcome::kDurable) {
      ++durable_;
    } else if (problem_.empty()) {
      problem_ = "a message was not durable: " + ack.error.ToString();
    }
  });
  if (taken.ok())
    published_.push_back(std::move(message));
  else if (!IsResourceExhausted(taken))
    problem_ = "publish: " + taken.ToString();
}

// Takes what the consumers have, and holds it against what was published.
void World::Collect() {
  std::vector<consumer::Message> messages;
  for (auto& sink : sinks_) {
    if (sink->consumer == nullptr || !problem_.empty()) continue;
    messages.clear();
    sink->consumer->Take(messages, 1 << 20);
    for (const consumer::Message& m : messages) {
      if (sink->got >= static_cast<int64_t>(published_.size()) || m.number != sink->got ||
          m.payload != published_[static_cast<size_t>(sink->got)]) {
        problem_ = sink->name + ": message " + std::to_string(sink->got) +
                   " is not what was published (it got message " + std::to_string(m.number) + ", " +
                   std::to_string(m.payload.size()) + " bytes)";
        break;
      }
      ++sink->got;
    }
    sink->consumer->Release();
    if (sink->consumer->state() == consumer::AgentState::kFailed && problem_.empty()) {
      problem_ = sink->name + " failed: " + sink->consumer->status().ToString();
    }
  }
}

void World::Disturb() {
  const std::string& cell_name = options_.cells[rng_.Below(options_.cells.size())];
  auto& processes = cells_.at(cell_name)->processes;
  auto it = processes.begin();
  std::advance(it, static_cast<int64_t>(rng_.Below(processes.size())));
  const std::string name = it->first;
  if (options_.kills && rng_.Chance(0.3)) {
    Say("kill -9 " + cell_name + "/" + name);
    ++faults_;
    KillProcess(cell_name, name);
    StartProcess(cell_name, name);
  } else if (options_.pauses && rng_.Chance(0.2)) {
    Say("stop " + cell_name + "/" + name);
    ++faults_;
    it->second->loop->Pause();
    if (it->second->role == node::Role::kCache) {
      for (const char* instance : {".data", ".metadata"})
        fabric_->Stop(cell_name + "/" + name + instance);
    }
    paused_.emplace_back(cell_name, name);
  }
  if (!paused_.empty() && rng_.Chance(0.3)) {
    const auto [cell, process] = paused_.front();
    paused_.erase(paused_.begin());
    Say("continue " + cell + "/" + process);
    for (const char* instance : {".data", ".metadata"})
      fabric_->Continue(cell + "/" + process + instance);
    cells_.at(cell)->processes.at(process)->loop->Resume();
  }
  if (options_.partitions && rng_.Chance(0.2)) {
    const size_t a = rng_.Below(options_.cells.size());
    const size_t b = (a + 1 + rng_.Below(options_.cells.size() - 1)) % options_.cells.size();
    const bool cut = rng_.Chance(0.5);
    Say((cut ? "cut " : "mend ") + options_.cells[a] + " -> " + options_.cells[b]);
    ++faults_;
    if (rng_.Chance(0.5))
      network_.Partition(options_.cells[a], options_.cells[b], cut);
    else
      network_.LinkBetween(options_.cells[a], options_.cells[b]).cut = cut;
  }
  if (options_.bad_fabric && rng_.Chance(0.3)) {
    fabric::FakeLink& link = fabric_->default_link();
    link = {};
    ++faults_;
    if (rng_.Chance(0.7)) {
      link.torn_probability = rng_.Unit() * 0.2;
      link.late_probability = rng_.Unit() * 0.01;
      link.lost_probability = rng_.Unit() * 0.002;
      link.tail_probability = rng_.Unit() * 0.05;
      link.notification_loss_probability = rng_.Unit() * 0.2;
      link.jitter = Duration::Micros(rng_.Between(0, 500));
    }
  }
  if (options_.slow_peers && rng_.Chance(0.2)) {
    const std::string server = cell_name + "/cache-1.data";
    fabric_->SetServerDelay(server,
                            rng_.Chance(0.5) ? Duration::Millis(rng_.Between(1, 100)) : Duration());
    ++faults_;
  }
  // The producer's own disk is sound: what it acknowledges is what the oracle counts on.
  if (options_.bad_disks && cell_name != options_.cells.front() && rng_.Chance(0.3)) {
    ++faults_;
    storage::FakeDiskOptions disk;
    if (rng_.Chance(0.7)) {
      disk = storage::FakeDiskOptions::Swarm(rng_);
      disk.late_landing_max = Duration::Seconds(3);
    }
    cells_.at(cell_name)->disk->SetOptions(disk);
  }
  if (options_.reroutes && options_.cells.size() >= 3 && rng_.Chance(0.1)) {
    const std::vector<std::string>& c = options_.cells;
    v1::InstallStreamRequest install;
    *install.mutable_stream() = stream_;
    stream_.set_tree_version(stream_.tree_version() + 1);
    install.mutable_stream()->set_tree_version(stream_.tree_version());
    install.mutable_stream()->clear_tree();
    const auto add = [&](const std::string& from, const std::string& to) {
      v1::TreeEdge* edge = install.mutable_stream()->add_tree();
      edge->set_from(from);
      edge->set_to(to);
    };
    switch (rng_.Below(3)) {
      case 0:
        add(c[0], c[1]);
        add(c[1], c[2]);
        break;
      case 1:
        add(c[0], c[2]);
        add(c[2], c[1]);
        break;
      default:
        add(c[0], c[1]);
        add(c[0], c[2]);
        break;
    }
    Say("re-route");
    ++faults_;
    auto client = source_->connector->MakeClient(SchedulerAddress(c[0]), "");
    client->Call("/tailcast.v1.Peer/InstallStream", install.SerializeAsString(),
                 Duration::Seconds(5), [](Result<std::string>) {});
  }
}

void World::Heal() {
  Say("heal everything");
  for (const auto& [cell, process] : paused_) {
    for (const char* instance : {".data", ".metadata"})
      fabric_->Continue(cell + "/" + process + instance);
    cells_.at(cell)->processes.at(process)->loop->Resume();
  }
  paused_.clear();
  fabric_->default_link() = {};
  for (const std::string& a : options_.cells) {
    for (int i = 1; i <= options_.caches; ++i) {
      fabric_->SetServerDelay(a + "/cache-" + std::to_string(i) + ".data", Duration());
    }
    cells_.at(a)->disk->SetOptions({});
    for (const std::string& b : options_.cells) {
      if (a != b) network_.LinkBetween(a, b).cut = false;
    }
  }
}

Outcome World::Run() {
  source_ = MakeClient(options_.cells.front(), "producer");
  for (const std::string& cell : options_.cells) {
    for (int i = 1; i <= options_.consumers; ++i) {
      sinks_.push_back(MakeClient(cell, "consumer-" + std::to_string(i)));
    }
  }
  std::optional<Result<v1::StreamConfig>> made;
  const auto views = [&] {
    bool all = source_->cell_client->has_view();
    for (auto& sink : sinks_) all = all && sink->cell_client->has_view();
    return all;
  };
  bool good = Wait("a view of every cell", Duration::Seconds(20), views);
  if (good) {
    v1::StreamConfig request;
    request.set_name(kStreamName);
    request.set_shards(1);
    request.set_chunk_size(options_.chunk_size);
    source_->cell_client->CreateStream(
        request, [&](Result<v1::StreamConfig> r) { made.emplace(std::move(r)); });
    good = Wait("the stream's creation", Duration::Seconds(20), [&] { return made.has_value(); });
  }
  if (good && !made->ok()) problem_ = "create stream: " + made->status().ToString();
  if (good && made->ok()) {
    stream_ = **made;
    StartEnds();
    good = Wait("the producer's start", Duration::Seconds(30),
                [&] { return source_->opened.has_value(); });
    if (good && !source_->opened->ok()) problem_ = "producer: " + source_->opened->ToString();
    MonotonicTime disturb_at = time_.now();
    while (problem_.empty() && static_cast<int>(published_.size()) < options_.messages) {
      PublishNext();
      time_.RunFor(Duration::Micros(static_cast<int64_t>(
          rng_.Exponential(static_cast<double>(options_.message_interval.micros())))));
      if (time_.now() >= disturb_at) {
        Disturb();
        disturb_at = time_.now() + Duration::Millis(rng_.Between(20, 400));
      }
      ReviveDead();
      Collect();
    }
    Heal();
    if (problem_.empty()) {
      const auto total = static_cast<int64_t>(published_.size());
      Wait("the delivery of everything", kHealedLimit, [&] {
        bool all = durable_ == total;
        for (auto& sink : sinks_) all = all && sink->got == total;
        return all;
      });
      if (!problem_.empty()) {
        problem_ += ": " + std::to_string(durable_) + " of " + std::to_string(total) + " durable";
        for (auto& sink : sinks_) {
          problem_ += ", " + sink->name + " has " + std::to_string(sink->got) + " (" +
                      std::string(consumer::AgentStateName(sink->consumer->state())) + ")";
        }
      }
      // Changes of the tree come to their end in every cell, whatever died in the middle.
      if (problem_.empty()) {
        Wait("the end of the change of the copy tree", kHealedLimit, [&] {
          const auto over = [&](Client& client) {
            const auto stream = client.cell_client->FindStream(kStreamName);
            return stream.ok() && !stream->has_change() &&
                   stream->finished_version() >= stream->tree_version();
          };
          bool all = over(*source_);
          for (auto& sink : sinks_) all = all && over(*sink);
          return all;
        });
      }
    }
  }
  Outcome outcome;
  outcome.problem = problem_;
  outcome.trace_hash = time_.trace_hash();
  outcome.events = time_.events_run();
  outcome.virtual_s = static_cast<double>(time_.now().micros()) / 1e6;
  outcome.faults = faults_;
  for (auto& sink : sinks_) {
    outcome.delivered += sink->got;
    if (sink->consumer == nullptr) continue;
    const consumer::AgentCounters& n = sink->consumer->counters();
    outcome.fallbacks += n.fallback_missing_chunk + n.fallback_delayed + n.fallback_no_metadata;
  }
  return outcome;
}

}  // namespace tailcast::world
