#include "tailcast/scale/cell_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "tailcast/base/rng.h"
#include "tailcast/cache/ring.h"

namespace tailcast::scale {
namespace {

constexpr int kCopies = static_cast<int>(cache::kReplicasPerKey);
// A complete answer to a read of lengths is that of two (cache/README.md).
constexpr int kAnswers = 2;
// What a connection sends before others get their turn: kTurnBytesMax of fabric/tcp_connection.cc.
constexpr double kTurnBytes = 512 << 10;
constexpr int kSampledKeys = 20'000;

cache::HashRing RingOf(int servers) {
  cache::RingConfig config;
  for (int i = 0; i < servers; ++i) {
    cache::Replica replica;
    replica.name = "cache-" + std::to_string(i + 1);
    config.replicas.push_back(std::move(replica));
  }
  return cache::HashRing(config);
}

}  // namespace

double HottestServer(int servers) {
  const cache::HashRing ring = RingOf(servers);
  Rng rng(static_cast<uint64_t>(servers));
  std::vector<int> load(static_cast<size_t>(servers));
  // A reader asks any of a key's servers.
  for (int i = 0; i < kSampledKeys * std::max(1, servers / 16); ++i) {
    const cache::Owners owners = ring.OwnersOf({.hi = rng.Next(), .lo = rng.Next()});
    for (int owner = 0; owner < owners.count; ++owner) ++load[owners.replica[owner]];
  }
  double sum = 0;
  for (const int one : load) sum += one;
  return *std::max_element(load.begin(), load.end()) * servers / sum;
}

CellModel::CellModel(const CellSetup& setup)
    : setup_(setup), data_servers_(setup.data_servers), metadata_servers_(setup.metadata_servers) {}

void CellModel::SetConsumers(double count, double behind_s) {
  double there = steady_;
  for (const Group& group : groups_) there += group.count;
  if (count < there) {
    const double stay = there > 0 ? count / there : 0;
    steady_ *= stay;
    for (Group& group : groups_) group.count *= stay;
    return;
  }
  const double bytes = ReadingOf(setup_.flow, setup_.poll_s).read_bytes *
                       setup_.shards_per_consumer * std::min(behind_s, setup_.keep_s);
  if (bytes == 0) {
    steady_ += count - there;
  } else if (count > there) {
    groups_.push_back({.count = count - there, .backlog_bytes = bytes});
  }
}

void CellModel::AddBacklog(double seconds) {
  const double bytes =
      ReadingOf(setup_.flow, setup_.poll_s).read_bytes * setup_.shards_per_consumer * seconds;
  for (Group& group : groups_) group.backlog_bytes += bytes;
  if (steady_ > 0) groups_.push_back({.count = steady_, .backlog_bytes = bytes});
  steady_ = 0;
  lag_s_ = 0;
}

void CellModel::LoseServers(int count, double seconds) {
  lost_ = count;
  lost_until_s_ = now_s_ + seconds;
}

double CellModel::Hottest(int servers) {
  const auto known = hottest_.find(servers);
  return known != hottest_.end() ? known->second : hottest_[servers] = HottestServer(servers);
}

double CellModel::UnwritableShare(int servers, int lost) {
  if (lost < 2) return 0;
  const cache::HashRing ring = RingOf(servers);
  Rng rng(static_cast<uint64_t>(servers));
  int unwritable = 0;
  for (int i = 0; i < kSampledKeys; ++i) {
    const cache::Owners owners = ring.OwnersOf({.hi = rng.Next(), .lo = rng.Next()});
    const auto gone = std::count_if(owners.replica.begin(), owners.replica.begin() + owners.count,
                                    [&](uint16_t server) { return server < lost; });
    if (owners.count - gone < 2) ++unwritable;
  }
  return static_cast<double>(unwritable) / kSampledKeys;
}

void CellModel::Scale(Growth& growth, int& servers, int least, double load, double stored_bytes) {
  const Autoscaler& scaler = setup_.autoscaler;
  if (growth.ready_s >= 0) {
    if (now_s_ < growth.ready_s) return;
    servers = growth.servers;
    growth.ready_s = -1;
    return;  // `load` is that of those that were there
  }
  if (!scaler.on || !looks_) return;
  if (load > scaler.idle) growth.idle_since_s = -1;
  if (load > 1) {
    growth.servers = static_cast<int>(std::ceil(servers * load / scaler.aim));
    const int added = growth.servers - servers;
    // Each new one copies its share of what lies in the cache.
    const double share = stored_bytes * kCopies / growth.servers;
    growth.ready_s = now_s_ + scaler.start_s + (added > 0 ? share / scaler.copy_bytes_per_s : 0);
  } else if (load < scaler.idle) {
    if (growth.idle_since_s < 0) growth.idle_since_s = now_s_;
    if (now_s_ - growth.idle_since_s < scaler.idle_s) return;
    servers = std::max(least, static_cast<int>(std::ceil(servers * load / scaler.aim)));
    growth.idle_since_s = -1;
  }
}

// The shortest round of those who keep up that the servers can bear.
double CellModel::Round(double reads_per_s_max, double values_per_s_max, double least_s) const {
  const double readers = steady_ * setup_.shards_per_consumer;
  const auto bearable = [&](double round_s) {
    const Reading reading = ReadingOf(setup_.flow, round_s);
    return readers * reading.chunk_reads <= reads_per_s_max &&
           readers * reading.value_reads * kAnswers <= values_per_s_max;
  };
  if (readers == 0 || bearable(least_s)) return least_s;
  double low = least_s, high = std::max(least_s, setup_.delay_max_s);
  if (!bearable(high)) return high;  // and the rest is late: it is read elsewhere
  for (int i = 0; i < 30; ++i) {
    const double middle = (low + high) / 2;
    (bearable(middle) ? high : low) = middle;
  }
  return high;
}

double CellModel::CatchUp(double left_bytes_per_s, double dt_s) {
  double behind = 0;
  for (const Group& group : groups_) behind += group.count;
  if (behind == 0) return 0;
  const double need = ReadingOf(setup_.flow, setup_.poll_s).read_bytes * setup_.shards_per_consumer;
  double most = std::max(0.0, left_bytes_per_s) / behind;
  if (setup_.catch_up_factor > 0) most = std::min(most, need * setup_.catch_up_factor);
  double taken = 0;
  for (Group& group : groups_) {
    const double want = group.backlog_bytes + need * rate_ * dt_s;
    const double got = std::min(want, most * dt_s);
    group.backlog_bytes = want - got;
    taken += got * group.count;
    // As near as the others: it keeps up from now on.
    if (group.backlog_bytes <= need * setup_.poll_s) {
      steady_ += group.count;
      group.count = 0;
    }
  }
  std::erase_if(groups_, [](const Group& group) { return group.count == 0; });
  return taken / dt_s;
}

CellSample CellModel::Step(double dt_s) {
  const double look_s = setup_.autoscaler.look_s;
  looks_ = std::floor((now_s_ + dt_s) / look_s) > std::floor(now_s_ / look_s);
  now_s_ += dt_s;
  if (lost_ > 0 && now_s_ >= lost_until_s_) lost_ = 0;
  const int serving = std::max(1, data_servers_ - lost_);
  const double hot = Hottest(data_servers_);
  const double metadata_hot = Hottest(metadata_servers_);

  // What writes take of the servers: twice while the ring changes.
  const Writing writing = WritingOf(setup_.flow);
  const double times = setup_.shards * rate_ * kCopies * (data_growth_.ready_s >= 0 ? 2 : 1);
  const double capacity_reads = serving * setup_.limits.reads_per_s / hot;
  const double capacity_bytes = serving * setup_.limits.bytes_per_s / hot;
  double left_reads = capacity_reads - writing.chunk_writes * times;
  double left_bytes = capacity_bytes - writing.payload_bytes * times;
  const double left_values = metadata_servers_ * setup_.limits.reads_per_s / metadata_hot -
                             writing.length_writes * setup_.shards * rate_ * kCopies;
  if (data_growth_.ready_s >= 0) {
    left_bytes -= (data_growth_.servers - data_servers_) * setup_.autoscaler.copy_bytes_per_s;
  }

  // Everybody has the same share; who needs less than it leaves the rest to those behind.
  const Reading each = ReadingOf(setup_.flow, setup_.poll_s);
  const double need = each.read_bytes * setup_.shards_per_consumer * rate_;
  double behind = 0;
  for (const Group& group : groups_) behind += group.count;
  const double share = std::max(0.0, left_bytes) / std::max(1.0, steady_ + behind);
  // In the longest rounds, too, chunks are reads; and so much of them the servers bear.
  const double fewest_reads =
      steady_ * setup_.shards_per_consumer * rate_ *
      ReadingOf(setup_.flow, std::max(setup_.poll_s, setup_.delay_max_s)).chunk_reads;
  const double borne = fewest_reads > 0 ? std::clamp(left_reads / fewest_reads, 0.0, 1.0) : 1;
  const double most = setup_.catch_up_factor > 0 ? need * setup_.catch_up_factor : share;
  const double wanted = std::min(need * (1 + lag_s_ / std::max(dt_s, 1.0)), std::max(need, most));
  const double spare_reads = std::max(0.0, left_reads - fewest_reads) / std::max(1.0, steady_);
  const double served =
      std::min({wanted, need * borne + spare_reads * setup_.flow.chunk_bytes, share});
  const double steady_bytes = served * steady_;
  if (need > 0) lag_s_ = std::max(0.0, lag_s_ + dt_s * (1 - served / need));

  // Those behind always have a request at the servers: whoever else comes waits for one turn.
  const double steady = steady_;
  const double catch_up = CatchUp(left_bytes - steady_bytes, dt_s);
  const double queue_s = catch_up > 0 ? kTurnBytes / setup_.limits.bytes_per_s : 0;
  const double catch_up_reads = catch_up / setup_.flow.chunk_bytes;
  const double round_s = Round(left_reads - catch_up_reads, left_values,
                               std::max(setup_.poll_s, setup_.read_s + queue_s));

  CellSample sample;
  sample.consumers = steady + behind;
  sample.data_servers = data_servers_;
  sample.metadata_servers = metadata_servers_;
  const Reading reading = ReadingOf(setup_.flow, round_s);
  const double done = need > 0 ? std::min(1.0, served / need) : 0;
  const double late_reads =
      std::max(0.0, served - need) * steady / setup_.flow.chunk_bytes;  // of what was missed
  sample.reads_per_s = steady * setup_.shards_per_consumer * reading.chunk_reads * done +
                       catch_up_reads + late_reads;
  sample.read_bytes_per_s = steady_bytes + catch_up;
  sample.value_reads_per_s =
      (steady + behind) * setup_.shards_per_consumer * reading.value_reads * kAnswers;
  sample.round_s = round_s;
  const double use = std::max(sample.reads_per_s / std::max(1.0, left_reads),
                              sample.read_bytes_per_s / std::max(1.0, left_bytes));
  sample.write_s = setup_.write_s / std::max(0.05, 1 - use) + queue_s;

  // What is not in the cache in time is read from the primary layer, one read for the new bytes of
  // a file: of writes that failed, and by those who are behind for too long.
  double missing = UnwritableShare(data_servers_, lost_);
  if (sample.write_s > setup_.write_timeout_s) {
    missing = std::max(missing, 1 - setup_.write_timeout_s / sample.write_s);
  }
  const double late = lag_s_ > setup_.delay_max_s ? 1 : 0;
  const double share_late = std::max(missing, late * (need > 0 ? 1 - done : 0));
  double reads =
      share_late * steady * setup_.shards_per_consumer / std::max(round_s, setup_.delay_max_s) * 2;
  double bytes = share_late * steady * need;
  const double given = std::min({1.0, setup_.primary_reads_per_s / std::max(1.0, reads),
                                 setup_.primary_bytes_per_s / std::max(1.0, bytes)});
  sample.fallbacks_per_s = reads * given;
  sample.late_share = share_late;
  if (late > 0) lag_s_ = std::max(setup_.delay_max_s, lag_s_ - dt_s * share_late * given);
  sample.lag_s = lag_s_;
  double backlog = 0;
  for (const Group& group : groups_) backlog += group.count * group.backlog_bytes;
  const double each_needs = each.read_bytes * setup_.shards_per_consumer;
  if (behind > 0) sample.behind_s = backlog / behind / each_needs;
  sample.behind_share = sample.consumers > 0 ? behind / sample.consumers : 0;

  const double stored = setup_.shards * writing.payload_bytes * setup_.keep_s;
  const double hottest_load =
      std::max(sample.reads_per_s * hot / data_servers_ / setup_.limits.trigger_reads_per_s,
               sample.read_bytes_per_s * hot / data_servers_ / setup_.limits.trigger_bytes_per_s);
  Scale(data_growth_, data_servers_, setup_.data_servers, hottest_load, stored);
  Scale(metadata_growth_, metadata_servers_, setup_.metadata_servers,
        sample.value_reads_per_s * metadata_hot / metadata_servers_ /
            setup_.limits.trigger_reads_per_s,
        0);
  return sample;
}

}  // namespace tailcast::scale
