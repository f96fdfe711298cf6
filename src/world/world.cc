#include "tailcast/world/world.h"

#include <algorithm>
#include <utility>

#include "tailcast/producer/producer.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/world/programs.h"

namespace tailcast::world {
namespace {

constexpr char kStreamName[] = "sim";
constexpr Duration kHealedLimit = Duration::Seconds(180);

DeploymentOptions ToDeployment(const Options& options) {
  return {.seed = options.seed,
          .cells = options.cells,
          .link_delay = options.link_delay,
          .caches = CacheKind::kServers,
          .steps = options.steps};
}

}  // namespace

const std::vector<std::string>& FaultNames() {
  static const std::vector<std::string> names = {"kill", "stop", "cut",    "fabric",
                                                 "disk", "slow", "reroute"};
  return names;
}

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
  const double chances[] = {0.6, 0.4, 0.4, 0.5, 0.4, 0.3, 0.3};
  for (size_t i = 0; i < FaultNames().size(); ++i) {
    if (rng.Chance(chances[i])) o.faults.insert(FaultNames()[i]);
  }
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
      deployment_(ToDeployment(options_)),
      rng_(Rng(options_.seed).Fork("scenario")),
      faults_(Rng(options_.seed).Fork("faults")),
      load_(deployment_, {}) {
  StartNodes();
  AddFaults();
}

void World::StartNodes() {
  const Program node = RunNode(deployment_, {.caches = options_.caches,
                                             .low_latency = options_.low_latency,
                                             .jump_bytes = options_.jump_bytes});
  const auto start = [&](const std::string& cell, const char* role, int count) {
    for (int i = 1; i <= count; ++i) {
      deployment_.Start(cell, std::string(role) + "-" + std::to_string(i), node);
    }
  };
  for (const std::string& cell : options_.cells) {
    deployment_.Start(cell, "scheduler", node);
    start(cell, "cache", options_.caches);
    start(cell, "reader", options_.readers);
    start(cell, "writer", options_.writers);
  }
}

void World::AddFaults() {
  const auto add = [this](Fault fault, double apply, double heal = 0) {
    if (options_.faults.contains(fault.name)) faults_.Add(std::move(fault), apply, heal);
  };
  // The producer's own disk is sound: what it acknowledges is what the oracles count on.
  const std::vector<std::string> copies(options_.cells.begin() + 1, options_.cells.end());
  add(KillProcess(deployment_), 0.3);
  add(StopProcess(deployment_), 0.17, 0.3);
  add(CutLink(deployment_), 0.2);
  add(BadFabric(deployment_), 0.3);
  add(SlowPeer(deployment_), 0.2);
  add(BadDisk(deployment_, copies), 0.2);
  add(Reroute(), 0.1);
}

// The stream gets another copy tree, as the optimiser gives it one.
Fault World::Reroute() {
  const auto apply = [this](Rng& rng) {
    const std::vector<std::string>& c = options_.cells;
    if (c.size() < 3) return;
    v1::InstallStreamRequest install;
    stream_.set_tree_version(stream_.tree_version() + 1);
    *install.mutable_stream() = stream_;
    install.mutable_stream()->clear_tree();
    const auto add = [&](const std::string& from, const std::string& to) {
      v1::TreeEdge* edge = install.mutable_stream()->add_tree();
      edge->set_from(from);
      edge->set_to(to);
    };
    switch (rng.Below(3)) {
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
    deployment_.Say("re-route");
    operator_ =
        producer_->process->connector->MakeClient(deployment_.SchedulerAddress(source_cell()), "");
    operator_->Call("/tailcast.v1.Peer/InstallStream", install.SerializeAsString(),
                    Duration::Seconds(5), scope_.Bind([](const Result<std::string>&) {}));
  };
  return {.name = "reroute", .apply = apply};
}

void World::Check() {
  if (problem_.empty() && oracles_) problem_ = oracles_->Check();
}

bool World::Wait(const std::string& what, Duration limit, const std::function<bool()>& condition) {
  const MonotonicTime end = deployment_.time().now() + limit;
  MonotonicTime check_at = deployment_.time().now();
  while (problem_.empty() && !condition()) {
    if (deployment_.time().now() >= end) {
      problem_ = "progress: " + what + " did not happen within " + std::to_string(limit.millis()) +
                 " virtual ms";
      break;
    }
    deployment_.time().RunFor(Duration::Millis(5));
    deployment_.ReviveDead();
    if (deployment_.time().now() < check_at) continue;
    Check();
    check_at = deployment_.time().now() + Duration::Millis(200);
  }
  return problem_.empty();
}

bool World::CreateStream() {
  producer_ = &load_.AddProducer(source_cell(), RunClient(deployment_));
  for (const std::string& cell : options_.cells) {
    for (int i = 1; i <= options_.consumers; ++i) {
      load_.AddConsumer(cell, RunClient(deployment_));
    }
  }
  const auto has_view = [](const Process& p) {
    return p.cell_client != nullptr && p.cell_client->has_view();
  };
  const auto views = [&] {
    return has_view(*producer_->process) &&
           std::all_of(load_.consumers.begin(), load_.consumers.end(),
                       [&](const auto& c) { return has_view(*c->process); });
  };
  if (!Wait("a view of every cell", Duration::Seconds(20), views)) return false;
  v1::StreamConfig request;
  request.set_name(kStreamName);
  request.set_shards(1);
  request.set_chunk_size(options_.chunk_size);
  std::optional<Result<v1::StreamConfig>> made;
  const Scope scope;
  producer_->process->cell_client->CreateStream(
      request, scope.Bind([&](Result<v1::StreamConfig> r) { made.emplace(std::move(r)); }));
  if (!Wait("the stream's creation", Duration::Seconds(20), [&] { return made.has_value(); })) {
    return false;
  }
  if (!made->ok()) {
    problem_ = "create stream: " + made->status().ToString();
    return false;
  }
  stream_ = **made;
  return true;
}

void World::StartUsers() {
  load_.shard = {stream::IdOf(stream_), 0};
  oracles_.emplace(deployment_, OracleOptions{.source = source_cell(),
                                              .shard = load_.shard,
                                              .chunk_size = options_.chunk_size,
                                              .caches_are_sound = options_.faults.empty(),
                                              .jumps_allowed = options_.jump_bytes > 0});
  oracles_->Watch(load_);
  producer::AgentOptions publisher;
  publisher.flush_interval =
      options_.low_latency ? producer::kLowLatencyFlushInterval : Duration::Millis(100);
  publisher.self_clocked = options_.low_latency;
  publisher.chunk_size = options_.chunk_size;
  publisher.roll_bytes = options_.roll_bytes;
  load_.Open(*producer_, publisher);
  consumer::AgentOptions subscriber;
  subscriber.doorbell = options_.low_latency;
  subscriber.chunk_size = options_.chunk_size;
  for (auto& consumer : load_.consumers) load_.Start(*consumer, subscriber);
}

void World::PublishNext() {
  const Status taken = load_.Publish(*producer_, rng_.Between(1, options_.message_bytes_max));
  if (!taken.ok() && !IsResourceExhausted(taken)) problem_ = "publish: " + taken.ToString();
  if (load_.failed() > 0) {
    problem_ = "a message was not durable: " + producer_->agent()->status().ToString();
  }
}

void World::PublishUnderFaults() {
  MonotonicTime turn_at = deployment_.time().now();
  while (problem_.empty() && producer_->published < options_.messages) {
    PublishNext();
    deployment_.time().RunFor(Duration::Micros(static_cast<int64_t>(
        rng_.Exponential(static_cast<double>(options_.message_interval.micros())))));
    deployment_.ReviveDead();
    if (deployment_.time().now() < turn_at) continue;
    Check();
    faults_.Turn();
    turn_at = deployment_.time().now() + Duration::Millis(rng_.Between(20, 400));
  }
}

std::string World::Progress() const {
  std::string text =
      std::to_string(load_.durable()) + " of " + std::to_string(producer_->published) + " durable";
  for (const auto& c : load_.consumers) {
    text += ", " + c->name + " has " + std::to_string(c->got.size()) + " (" +
            std::string(consumer::AgentStateName(c->agent()->state())) + ")";
  }
  return text;
}

void World::AwaitDelivery() {
  const auto total = static_cast<size_t>(producer_->published);
  const auto everything = [&] {
    return load_.durable() == static_cast<int64_t>(total) &&
           std::all_of(load_.consumers.begin(), load_.consumers.end(),
                       [&](const auto& c) { return c->got.size() == total && !c->holds; });
  };
  if (!Wait("the delivery of everything", kHealedLimit, everything)) {
    problem_ += ": " + Progress();
  }
}

// Changes of the tree come to their end in every cell, whatever died in the middle.
void World::AwaitSettledTree() {
  const auto over = [](const Process& p) {
    const auto stream = p.cell_client->FindStream(kStreamName);
    return stream.ok() && !stream->has_change() &&
           stream->finished_version() >= stream->tree_version();
  };
  Wait("the end of the change of the copy tree", kHealedLimit, [&] {
    return over(*producer_->process) &&
           std::all_of(load_.consumers.begin(), load_.consumers.end(),
                       [&](const auto& c) { return over(*c->process); });
  });
  // Every cell's primary layer has it all.
  std::string missing;
  const auto complete = [&] { return (missing = oracles_->Missing()).empty(); };
  if (!Wait("the copy of every file", kHealedLimit, complete)) problem_ += ": " + missing;
}

Outcome World::Run() {
  if (CreateStream()) {
    StartUsers();
    if (Wait("the producer's start", Duration::Seconds(30),
             [&] { return producer_->opened.has_value(); }) &&
        !producer_->opened->ok()) {
      problem_ = "producer: " + producer_->opened->ToString();
    }
    PublishUnderFaults();
    deployment_.Say("heal everything");
    faults_.HealAll();
    if (problem_.empty()) AwaitDelivery();
    if (problem_.empty()) AwaitSettledTree();
    if (problem_.empty()) problem_ = oracles_->CheckAll();
  }
  Outcome outcome;
  outcome.problem = problem_;
  outcome.trace_hash = deployment_.time().trace_hash();
  outcome.events = deployment_.time().events_run();
  outcome.virtual_s = static_cast<double>(deployment_.time().now().micros()) / 1e6;
  outcome.faults = faults_.applied();
  for (const auto& c : load_.consumers) {
    outcome.delivered += static_cast<int64_t>(c->got.size());
    if (c->agent() == nullptr) continue;
    const consumer::AgentCounters& n = c->agent()->counters();
    outcome.fallbacks += n.fallback_missing_chunk + n.fallback_delayed + n.fallback_no_metadata;
  }
  return outcome;
}

}  // namespace tailcast::world
