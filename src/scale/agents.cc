#include "tailcast/scale/agents.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/consumer/consumer.h"
#include "tailcast/producer/producer.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/world/programs.h"
#include "tailcast/world/workload.h"

namespace tailcast::scale {
namespace {

constexpr Duration kStartLimit = Duration::Seconds(30);
constexpr Duration kDrainLimit = Duration::Seconds(30);
// Of clocks, at most: intervals that are multiples of each other come to lie at any phase, which
// they do over an hour in the field, where clocks drift a thousand times less.
constexpr int64_t kDrift = 10'000;  // us/s
// What is published while connections and agents find each other is not measured.
constexpr Duration kWarmUp = Duration::Seconds(5);

std::vector<std::string> Names(int cells) {
  std::vector<std::string> names;
  for (int i = 0; i < cells; ++i) names.push_back("cell-" + std::to_string(i));
  return names;
}

class Agents {
 public:
  explicit Agents(const AgentSetup& setup)
      : setup_(setup),
        world_({.seed = setup.seed,
                .cells = Names(setup.cells),
                .link_delay = setup.link,
                .caches = world::CacheKind::kServers,
                .clock_drift_us_per_s = kDrift}),
        node_(world::RunNode(
            world_,
            {.caches = setup.caches, .low_latency = setup.low_latency, .cache_bytes = 16 << 20})) {
    for (const std::string& cell : world_.cell_names()) {
      world_.Start(cell, "scheduler", node_);
      Wait();
      for (int i = 1; i <= setup.caches; ++i)
        world_.Start(cell, "cache-" + std::to_string(i), node_);
      if (setup.cells == 1) continue;
      world_.Start(cell, "reader-1", node_);
      Wait();
      world_.Start(cell, "writer-1", node_);
    }
    for (int shard = 0; shard < setup.shards; ++shard) {
      auto load =
          std::make_unique<world::Workload>(world_, stream::ShardId{}, "-" + std::to_string(shard));
      load->AddProducer(first(), world::RunClient(world_));
      for (int c = shard; c < setup.consumers; c += setup.shards) {
        load->AddConsumer(last(), world::RunClient(world_));
      }
      lines_.push_back(std::move(load));
    }
  }

  Result<Observed> Run() {
    TAILCAST_RETURN_IF_ERROR(CreateStream());
    const MonotonicTime warm = Publish(kWarmUp);
    const Observed before = Look();
    const MonotonicTime begin = world_.time().now();
    Publish(setup_.measured);
    const Observed after = Look();
    const double seconds =
        static_cast<double>((world_.time().now() - begin).micros()) / Duration::Seconds(1).micros();
    const auto done = [&] {
      return std::all_of(lines_.begin(), lines_.end(),
                         [](const auto& line) { return line->AllSettled() && line->AllGot(); });
    };
    if (!world_.time().RunUntil(done, kDrainLimit)) return InternalError("not everything arrived");
    Observed observed;
    const auto rate = [&](double Observed::*what, int of) {
      observed.*what = (after.*what - before.*what) / seconds / of;
    };
    for (double Observed::*what :
         {&Observed::value_reads, &Observed::chunk_reads, &Observed::wider_reads,
          &Observed::payload_bytes, &Observed::read_bytes, &Observed::fallbacks}) {
      rate(what, setup_.consumers);
    }
    rate(&Observed::chunk_writes, setup_.shards);
    rate(&Observed::length_writes, setup_.shards);
    for (const auto& line : lines_) {
      for (const auto& consumer : line->consumers) AddDelays(*line, *consumer, warm, observed);
    }
    return observed;
  }

 private:
  const std::string& first() const { return world_.cell_names().front(); }
  const std::string& last() const { return world_.cell_names().back(); }

  void Wait() {
    world_.time().RunFor(Duration::Micros(rng_.Between(0, Duration::Millis(500).micros())));
  }

  Status CreateStream() {
    const auto has_view = [](const world::Process& p) {
      return p.cell_client != nullptr && p.cell_client->has_view();
    };
    const auto views = [&] {
      return std::all_of(lines_.begin(), lines_.end(), [&](const auto& line) {
        return has_view(*line->producers[0]->process) &&
               std::all_of(line->consumers.begin(), line->consumers.end(),
                           [&](const auto& c) { return has_view(*c->process); });
      });
    };
    if (!world_.time().RunUntil(views, kStartLimit))
      return InternalError("the cells did not start");
    v1::StreamConfig request;
    request.set_name("stream");
    request.set_shards(setup_.shards);
    request.set_chunk_size(4096);
    std::optional<Result<v1::StreamConfig>> made;
    const Scope scope;
    lines_[0]->producers[0]->process->cell_client->CreateStream(
        request, scope.Bind([&](Result<v1::StreamConfig> r) { made.emplace(std::move(r)); }));
    if (!world_.time().RunUntil([&] { return made.has_value(); }, kStartLimit)) {
      return InternalError("the stream was not created");
    }
    TAILCAST_RETURN_IF_ERROR(made->status());
    for (size_t shard = 0; shard < lines_.size(); ++shard) {
      world::Workload& line = *lines_[shard];
      line.shard = {stream::IdOf(**made), static_cast<int32_t>(shard)};
      producer::AgentOptions producer;
      producer.self_clocked = setup_.low_latency;
      if (setup_.low_latency) producer.flush_interval = producer::kLowLatencyFlushInterval;
      if (setup_.flush > Duration()) producer.flush_interval = setup_.flush;
      line.Open(*line.producers[0], producer);
      consumer::AgentOptions consumer;
      consumer.doorbell = setup_.low_latency;
      if (setup_.poll > Duration()) consumer.poll = setup_.poll;
      for (const auto& c : line.consumers) {
        Wait();
        line.Start(*c, consumer);
      }
    }
    const auto open = [&] {
      return std::all_of(lines_.begin(), lines_.end(), [](const auto& line) {
        return line->producers[0]->opened.has_value() && line->producers[0]->opened->ok();
      });
    };
    if (!world_.time().RunUntil(open, kStartLimit)) return InternalError("producers did not open");
    Wait();
    return OkStatus();
  }

  // At the asked rate, message by message. When it began.
  MonotonicTime Publish(Duration length) {
    const MonotonicTime begin = world_.time().now();
    const Duration gap = Duration::Micros(setup_.message_bytes * 1'000'000 / setup_.bytes_per_s);
    for (MonotonicTime next = begin; next < begin + length; next = next + gap) {
      world_.time().RunFor(next - world_.time().now());
      for (const auto& line : lines_) {
        if (!line->Publish(*line->producers[0], setup_.message_bytes).ok())
          continue;  // it is missed
      }
    }
    world_.time().RunFor(begin + length - world_.time().now());
    return begin + length;
  }

  // Sums of all consumers, or shards, so far.
  Observed Look() const {
    Observed sum;
    for (const auto& line : lines_) {
      const cache::ClientCounters& chunks = line->producers[0]->process->data_cache->counters();
      const cache::ClientCounters& lengths =
          line->producers[0]->process->metadata_cache->counters();
      sum.chunk_writes += static_cast<double>(chunks.mutations.value());
      sum.length_writes += static_cast<double>(lengths.mutations.value());
      for (const auto& c : line->consumers) {
        const cache::ClientCounters& data = c->process->data_cache->counters();
        const cache::ClientCounters& metadata = c->process->metadata_cache->counters();
        const consumer::Counters& own = c->agent()->counters();
        sum.value_reads += static_cast<double>(metadata.value_reads.value());
        sum.chunk_reads += static_cast<double>(data.reads.value());
        sum.wider_reads += static_cast<double>(data.widened_reads.value());
        sum.read_bytes += static_cast<double>(data.bytes_read.value());
        sum.fallbacks += static_cast<double>(own.fallback_missing_chunk + own.fallback_delayed +
                                             own.fallback_no_metadata + own.fallback_corrupt);
        for (const std::string& message : c->got) {
          sum.payload_bytes += static_cast<double>(message.size());
        }
      }
    }
    return sum;
  }

  static void AddDelays(const world::Workload& line, const world::Workload::Consumer& c,
                        MonotonicTime from, Observed& observed) {
    for (size_t i = 0; i < c.got.size(); ++i) {
      const auto id = world::Workload::IdOf(c.got[i]);
      if (!id) continue;
      const MonotonicTime at = line.published.at(*id).at;
      if (at >= from) observed.delay_us.Record((c.got_at[i] - at).micros());
    }
  }

  const AgentSetup setup_;
  world::Deployment world_;
  Rng rng_{setup_.seed};
  const world::Program node_;
  std::vector<std::unique_ptr<world::Workload>> lines_;
};

}  // namespace

Result<Observed> Observe(const AgentSetup& setup) { return Agents(setup).Run(); }

}  // namespace tailcast::scale
