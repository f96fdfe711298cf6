#include "tailcast/world/world.h"

#include <algorithm>
#include <utility>

#include "tailcast/producer/producer.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/world/bounds.h"

namespace tailcast::world {
namespace {

constexpr char kStreamName[] = "sim";
constexpr Duration kHealedLimit = Duration::Seconds(180);
// Workloads end, even if their producers never get anything done.
constexpr Duration kFaultsLimit = Duration::Seconds(90);

DeploymentOptions ToDeployment(const Options& options) {
  return {.seed = options.seed,
          .cells = options.cells,
          .link_delay = options.link_delay,
          .link_delays = options.link_delays,
          .link_jitter = options.link_jitter,
          .network = {.stream_window_bytes = options.stream_window_bytes,
                      .broken_after = options.broken_after},
          .caches = CacheKind::kServers,
          .clock_drift_us_per_s = options.Has("clock") ? options.clock_drift_us_per_s : 0,
          .steps = options.steps};
}

bool HasView(const Process& p) { return p.cell_client != nullptr && p.cell_client->has_view(); }

}  // namespace

World::World(Options options)
    : options_(std::move(options)),
      deployment_(ToDeployment(options_)),
      rng_(Rng(options_.seed).Fork("scenario")),
      faults_(Rng(options_.seed).Fork("faults")),
      looks_(Rng(options_.seed).Fork("looks")) {
  for (int shard = 0; shard < options_.shards; ++shard) {
    lines_.push_back(std::make_unique<Line>(
        deployment_, shard == 0 ? std::string() : "-shard-" + std::to_string(shard)));
  }
  StartNodes();
  AddFaults();
}

NodeSetup World::Setup() const {
  return {.caches = options_.caches,
          .spares = options_.spares,
          .low_latency = options_.low_latency,
          .cache_bytes = options_.cache_bytes,
          .jump_bytes = options_.jump_bytes};
}

void World::RunFor(Duration d) {
  deployment_.time().RunFor(d);
  if (look_) look_();
}

void World::StartNodes() {
  const Program node = RunNode(deployment_, Setup());
  const auto start = [&](const std::string& cell, const char* role, int count) {
    for (int i = 1; i <= count; ++i) {
      deployment_.Start(cell, std::string(role) + "-" + std::to_string(i), node);
    }
  };
  for (const std::string& cell : options_.cells) {
    deployment_.Start(cell, "scheduler", node);
    start(cell, "cache", options_.caches + options_.spares);
    start(cell, "reader", options_.readers);
    start(cell, "writer", options_.writers);
  }
}

void World::Check() {
  for (const auto& line : lines_) {
    if (problem_.empty() && line->oracles) problem_ = line->oracles->Check();
  }
  if (problem_.empty()) problem_ = CheckBounds(deployment_);
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
    RunFor(Duration::Millis(5));
    Revive();
    if (deployment_.time().now() < check_at) continue;
    Check();
    check_at = deployment_.time().now() + Duration::Millis(200);
  }
  return problem_.empty();
}

std::vector<const Process*> World::Users() const {
  std::vector<const Process*> users;
  for (const auto& line : lines_) {
    users.push_back(line->producer->process);
    for (const auto& c : line->load.consumers) users.push_back(c->process);
  }
  return users;
}

bool World::CreateStream() {
  operator_ = &deployment_.Start(source_cell(), "operator", nullptr);
  for (const auto& line : lines_) {
    line->producer = &line->load.AddProducer(source_cell(), RunClient(deployment_));
    for (const std::string& cell : options_.cells) {
      for (int i = 1; i <= options_.consumers; ++i) {
        line->load.AddConsumer(cell, RunClient(deployment_));
      }
    }
  }
  const auto views = [&] {
    const auto users = Users();
    return std::all_of(users.begin(), users.end(), [](const Process* p) { return HasView(*p); });
  };
  if (!Wait("a view of every cell", Duration::Seconds(20), views)) return false;
  v1::StreamConfig request;
  request.set_name(kStreamName);
  request.set_shards(options_.shards);
  request.set_chunk_size(options_.chunk_size);
  std::optional<Result<v1::StreamConfig>> made;
  const Scope scope;
  lines_[0]->producer->process->cell_client->CreateStream(
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

producer::AgentOptions World::PublisherOptions() const {
  producer::AgentOptions publisher;
  publisher.flush_interval =
      options_.low_latency ? producer::kLowLatencyFlushInterval : Duration::Millis(100);
  publisher.self_clocked = options_.low_latency;
  publisher.chunk_size = options_.chunk_size;
  publisher.roll_bytes = options_.roll_bytes;
  return publisher;
}

consumer::AgentOptions World::SubscriberOptions() const {
  consumer::AgentOptions subscriber;
  subscriber.doorbell = options_.low_latency;
  subscriber.chunk_size = options_.chunk_size;
  return subscriber;
}

void World::StartUsers() {
  for (size_t shard = 0; shard < lines_.size(); ++shard) {
    Line& line = *lines_[shard];
    line.load.shard = {stream::IdOf(stream_), static_cast<int>(shard)};
    line.load.files_go = options_.Has("retain");
    line.oracles.emplace(deployment_, OracleOptions{.source = source_cell(),
                                                    .shard = line.load.shard,
                                                    .chunk_size = options_.chunk_size,
                                                    .caches_are_sound = options_.CachesAreSound(),
                                                    .jumps_allowed = options_.jump_bytes > 0});
    line.oracles->Watch(line.load);
    line.load.Open(*line.producer, PublisherOptions());
    for (auto& consumer : line.load.consumers) line.load.Start(*consumer, SubscriberOptions());
  }
}

void World::Revive() {
  deployment_.ReviveDead();
  for (const auto& line : lines_) {
    Workload::Producer* const p = line->producer;
    if (p == nullptr || !line->oracles) continue;
    // One that did not get the shard is started again, as whoever runs it does.
    const bool refused = p->opened.has_value() && !p->opened->ok();
    if (refused && options_.Has("producer")) {
      line->load.Kill(*p);
      line->producer = &line->load.AddProducer(source_cell(), RunClient(deployment_));
    } else if (p->process->producer == nullptr && HasView(*p->process)) {
      producer::AgentOptions options = PublisherOptions();
      options.takeover = rng_.Chance(0.5);
      line->load.Open(*p, options);
    }
    line->load.ResumeThose(HasView);
    if (options_.Has("retain")) GoOnBehindFloors(*line);
  }
}

bool World::ProducersAreOpen() {
  return std::all_of(lines_.begin(), lines_.end(), [](const auto& line) {
    return line->producer->opened.has_value() && line->producer->opened->ok();
  });
}

void World::PublishNext(Line& line) {
  Workload::Producer& p = *line.producer;
  if (!p.opened.has_value() || !p.opened->ok() || line.published >= options_.messages) return;
  const int64_t before = p.published;
  const Status taken =
      line.load.Publish(p, rng_.Between(options_.message_bytes_min, options_.message_bytes_max));
  line.published += p.published - before;
  if (!taken.ok() && !IsResourceExhausted(taken)) problem_ = "publish: " + taken.ToString();
  if (line.load.failed() > 0 && !options_.MayFail()) {
    problem_ = "a message was not durable: " + p.agent()->status().ToString();
  }
}

bool World::AllPublished() const {
  return std::all_of(lines_.begin(), lines_.end(),
                     [&](const auto& line) { return line->published >= options_.messages; });
}

void World::FollowPlan() {
  constexpr Duration kStep = Duration::Millis(1);
  const Duration last = options_.plan.empty() ? Duration() : options_.plan.back().at;
  const MonotonicTime end =
      *began_ + std::max(last, options_.message_interval * options_.messages) + kFaultsLimit;
  MonotonicTime publish_at = *began_, check_at = *began_;
  size_t next = 0;
  const auto now = [this] { return deployment_.time().now(); };
  while (problem_.empty() && now() < end && (next < options_.plan.size() || !AllPublished())) {
    for (; next < options_.plan.size() && now() >= *began_ + options_.plan[next].at; ++next) {
      options_.plan[next].apply(*this);
    }
    if (now() >= publish_at) {
      for (const auto& line : lines_) PublishNext(*line);
      publish_at = now() + options_.message_interval;
    }
    RunFor(kStep);
    Revive();
    if (now() < check_at) continue;
    Check();
    check_at = now() + Duration::Millis(20);
  }
  if (problem_.empty() && (next < options_.plan.size() || !AllPublished())) {
    problem_ = "the scenario did not come to its end: a producer could not publish";
  }
}

void World::PublishUnderFaults() {
  const MonotonicTime end = deployment_.time().now() + kFaultsLimit;
  MonotonicTime turn_at = deployment_.time().now();
  const auto done = [&] { return deployment_.time().now() > end || AllPublished(); };
  while (problem_.empty() && !done()) {
    for (const auto& line : lines_) PublishNext(*line);
    RunFor(Duration::Micros(static_cast<int64_t>(
        rng_.Exponential(static_cast<double>(options_.message_interval.micros())))));
    Revive();
    // Often enough to catch a length that is ahead for a moment only.
    if (looks_.Chance(0.2)) Check();
    if (deployment_.time().now() < turn_at) continue;
    Check();
    faults_.Turn();
    turn_at = deployment_.time().now() + Duration::Millis(rng_.Between(20, 400));
  }
}

std::string World::Progress() const {
  std::string text;
  for (const auto& line : lines_) {
    text += "\n  shard " + std::to_string(line->load.shard.shard) + ": " +
            std::to_string(line->load.durable()) + " of " + std::to_string(line->published) +
            " durable, " + (line->load.AllSettled() ? "" : "not all answered, ") +
            line->producer->process->name + (line->producer->opened ? " open" : " not open");
    for (const auto& c : line->load.consumers) {
      text += ", " + c->name + " has " + std::to_string(c->got.size()) +
              (c->holds ? ", holds" : "") + (c->resumes ? ", resumes" : "") + " (" +
              (c->agent() == nullptr ? std::string("no agent") : c->agent()->DebugString()) + ")";
    }
  }
  return text;
}

void World::AwaitDelivery() {
  if (!Wait("the opening of every producer", kHealedLimit, [&] { return ProducersAreOpen(); })) {
    problem_ += ": " + Progress();
    return;
  }
  const auto everything = [&] {
    return std::all_of(lines_.begin(), lines_.end(),
                       [](const auto& line) { return line->load.AllGot(); });
  };
  if (!Wait("the delivery of everything acknowledged", kHealedLimit, everything)) {
    problem_ += ": " + Progress();
    return;
  }
  for (const auto& line : lines_) {
    for (const auto& c : line->load.consumers) {
      if (!problem_.empty()) return;
      if (std::string why = line->load.Incomplete(*c); !why.empty()) {
        problem_ = "progress: " + c->name + ": " + why;
      }
    }
  }
}

// Changes of the tree come to their end in every cell, whatever died in the middle.
void World::AwaitSettledTree() {
  const auto over = [](const Process* p) {
    const auto stream = p->cell_client->FindStream(kStreamName);
    return stream.ok() && !stream->has_change() &&
           stream->finished_version() >= stream->tree_version();
  };
  Wait("the end of the change of the copy tree", kHealedLimit, [&] {
    const auto users = Users();
    return std::all_of(users.begin(), users.end(), over);
  });
  // Every cell's primary layer has it all.
  std::string missing;
  const auto complete = [&] {
    missing.clear();
    for (const auto& line : lines_) missing += line->oracles->Missing();
    return missing.empty();
  };
  if (!Wait("the copy of every file", kHealedLimit, complete)) problem_ += ": " + missing;
  // What was deleted is nowhere, what was created everywhere.
  Wait("the streams that are and no others in every cell", kHealedLimit, [&] {
    const auto users = Users();
    return std::all_of(users.begin(), users.end(), [&](const Process* p) {
      const auto knows = [p](const std::string& name) {
        return p->cell_client->FindStream(name).ok();
      };
      return std::none_of(deleted_.begin(), deleted_.end(), knows) &&
             std::all_of(created_.begin(), created_.end(), knows);
    });
  });
}

// What an operator was told to go is gone everywhere.
void World::AwaitTrim() {
  std::string there;
  const auto gone = [&] {
    there.clear();
    for (const auto& line : lines_) there += line->oracles->BelowFloor(line->floor);
    return there.empty();
  };
  if (!Wait("the deletion of what was trimmed", kHealedLimit, gone)) problem_ += ": " + there;
}

// What is to be kept is, and no more.
void World::AwaitRetention() {
  v1::Retention retention;
  retention.set_shard_bytes_max(2 * options_.roll_bytes);
  const int64_t bytes = retention.shard_bytes_max();
  const auto set = [&] { return retained_ == bytes; };
  for (int tries = 0; tries < 5 && problem_.empty() && !set(); ++tries) {
    Retain(retention);
    RunFor(Duration::Seconds(6));
    Revive();  // who was asked may have been fenced
  }
  std::string more;
  const auto kept = [&] {
    more.clear();
    for (const auto& line : lines_) more += line->oracles->BeyondKept(bytes);
    return set() && more.empty();
  };
  if (!Wait("the deletion of what retention lets go of", kHealedLimit, kept))
    problem_ += ": " + more;
}

// Nothing more happens, and nothing grows.
void World::AwaitQuiet() {
  QuietWatch quiet(deployment_);
  for (int i = 0; i < QuietWatch::kSamples && problem_.empty(); ++i) {
    RunFor(QuietWatch::kApart);
    Revive();
    Check();
    quiet.Sample();
  }
  if (problem_.empty()) problem_ = quiet.Grown();
}

Outcome World::Run() {
  if (CreateStream()) {
    StartUsers();
    const auto tried = [&] {
      return std::all_of(lines_.begin(), lines_.end(),
                         [](const auto& line) { return line->producer->opened.has_value(); });
    };
    if (Wait("the producers' start", Duration::Seconds(30), tried) && !ProducersAreOpen()) {
      problem_ = "a producer did not open";
    }
    began_ = deployment_.time().now();
    options_.scripted ? FollowPlan() : PublishUnderFaults();
    deployment_.Say("heal everything");
    faults_.HealAll();
    if (problem_.empty()) AwaitDelivery();
    if (problem_.empty()) AwaitSettledTree();
    if (problem_.empty()) AwaitTrim();
    if (problem_.empty() && options_.Has("retain")) AwaitRetention();
    if (problem_.empty()) AwaitQuiet();
    for (const auto& line : lines_) {
      if (problem_.empty()) problem_ = line->oracles->CheckAll();
    }
  }
  Outcome outcome;
  outcome.problem = problem_;
  outcome.trace_hash = deployment_.time().trace_hash();
  outcome.events = deployment_.time().events_run();
  outcome.virtual_s = static_cast<double>(deployment_.time().now().micros()) / 1e6;
  outcome.faults = options_.scripted ? static_cast<int>(options_.plan.size()) : faults_.applied();
  for (const auto& line : lines_) {
    for (const auto& c : line->load.consumers) {
      outcome.delivered += static_cast<int64_t>(c->got.size());
      if (c->agent() == nullptr) continue;
      const consumer::Counters& n = c->agent()->counters();
      outcome.fallbacks += n.fallback_missing_chunk + n.fallback_delayed + n.fallback_no_metadata;
    }
  }
  return outcome;
}

}  // namespace tailcast::world
