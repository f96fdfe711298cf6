#include "tailcast/fabric/fake_wire.h"

#include <algorithm>
#include <cstring>

#include "tailcast/base/fault_point.h"
#include "tailcast/fabric/fake_channel.h"
#include "tailcast/fabric/fake_endpoint.h"
#include "tailcast/fabric/word_copy.h"

namespace tailcast::fabric {
namespace {

FAULT_POINT(kAcceptStaleRegion, "fabric.fake_accept_stale_region",
            "a read of the simulated fabric gets bytes of a generation that has ended");
FAULT_POINT(kIgnoreHeartbeat, "fabric.fake_ignore_heartbeat",
            "a read of the simulated fabric does not look at the server's heartbeat");

constexpr uint64_t kLineBytes = 64;

// How the pieces of one answer are copied.
struct Copy {
  const Range* range;
  size_t to;      // in the answer's bytes
  uint64_t from;  // in the region
  uint32_t length;
};

}  // namespace

bool FakeFabricNetwork::Wire::BeatStopped(const FakeMemory& memory) const {
  return memory.last_beat.has_value() && !kIgnoreHeartbeat.planted() &&
         loop->Now() - *memory.last_beat > memory.options.beat_timeout;
}

void FakeFabricNetwork::Wire::CloseConnections(FakeMemory& memory) {
  memory.watchers.clear();
  for (const std::weak_ptr<FakeClient>& weak : memory.clients) {
    const std::shared_ptr<FakeClient> client = weak.lock();
    if (client == nullptr) continue;
    FakeLink& link = LinkOf(client->name, memory.server);
    if (link.answers_cut) continue;  // a half-open connection: its reads will time out
    After(Latency(link), [this, client] { Break(client); });
  }
  memory.clients.clear();
  CloseChannels(*this, memory);
}

void FakeFabricNetwork::Wire::Break(const std::shared_ptr<FakeClient>& client) {
  AtEndpoint(client, [client](FakeEndpoint& endpoint) {
    if (std::exchange(client->broken, true)) return;
    endpoint.OnBroken();
  });
}

ReadStatus FakeFabricNetwork::Wire::Check(const FakeClient& client, const ScanPlan& plan) {
  const FakeMemory& memory = *client.memory;
  if (!memory.readable) return ReadStatus::kUnreachable;
  if (plan.count > kScanRangesMax) return ReadStatus::kOutOfRange;
  bool stale = memory.regions[0].info.generation != client.infos[0].generation;
  for (uint32_t i = 0; i < plan.count; ++i) {
    const Range& range = plan.ranges[i];
    if (range.region >= memory.regions.size() || range.length > kReadBytesMax) {
      return ReadStatus::kOutOfRange;
    }
    const RegionInfo& info = memory.regions[range.region].info;
    if (range.offset > info.size || range.length > info.size - range.offset) {
      return ReadStatus::kOutOfRange;
    }
    stale |= info.generation != client.infos[range.region].generation;
  }
  if (stale && !kAcceptStaleRegion.planted()) {
    ++counters.stale;
    return ReadStatus::kStaleRegion;
  }
  if (BeatStopped(memory)) {
    ++counters.beat_refusals;
    return ReadStatus::kUnreachable;
  }
  return ReadStatus::kOk;
}

void FakeFabricNetwork::Wire::ServeRead(const std::shared_ptr<FakeClient>& client,
                                        const Range& range, uint64_t id) {
  auto answer = std::make_shared<FakeAnswer>();
  answer->id = id;
  answer->plan = {.ranges = {range}, .count = 1};
  Serve(client, answer);
}

void FakeFabricNetwork::Wire::ServeScan(const std::shared_ptr<FakeClient>& client,
                                        const ScanRequest& request, uint64_t id) {
  auto answer = std::make_shared<FakeAnswer>();
  answer->id = id;
  const FakeMemory& memory = *client->memory;
  if (memory.readable) {
    std::vector<std::span<const char>> views;
    for (const FakeRegion& region : memory.regions) {
      views.emplace_back(region.memory.data(), region.info.size);
    }
    answer->plan = memory.scanner(request, views);
  }
  Serve(client, answer);
}

// Copies at once, or piece by piece.
void FakeFabricNetwork::Wire::Serve(const std::shared_ptr<FakeClient>& client,
                                    const std::shared_ptr<FakeAnswer>& answer) {
  answer->status = Check(*client, answer->plan);
  if (answer->status != ReadStatus::kOk) return Finish(client, answer);
  const std::span<const Range> ranges(answer->plan.ranges.data(), answer->plan.count);
  size_t length = 0;
  for (const Range& range : ranges) length += range.length;
  answer->bytes.resize(length);
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  const bool torn = length > 8 && link.torn_probability > 0 && rng.Chance(link.torn_probability);
  size_t steps = 1;
  if (torn) {
    ++counters.torn;
    steps = 2 + rng.Below(3);
  }
  std::vector<std::vector<Copy>> pieces(steps);
  size_t to = 0;
  for (const Range& range : ranges) {
    for (uint64_t at = range.offset; at < range.offset + range.length;) {
      uint64_t end = range.offset + range.length;
      if (torn) {
        end = std::min((at / kLineBytes + 1) * kLineBytes, end);
        if (rng.Chance(0.25)) {  // cut the line at a word
          const uint64_t word = (at / 8 + 1 + rng.Below(8)) * 8;
          end = std::min(end, word);
        }
      }
      const auto size = static_cast<uint32_t>(end - at);
      pieces[torn ? rng.Below(steps) : 0].push_back({&range, to, at, size});
      to += size;
      at = end;
    }
  }
  const auto copy_all = [](const FakeClient& from, FakeAnswer& into,
                           const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
      CopyWords(into.bytes.data() + copy.to, from.memory->regions[copy.range->region].memory.data(),
                copy.from, copy.length);
    }
  };
  if (!torn) {
    copy_all(*client, *answer, pieces[0]);
    return Finish(client, answer);
  }
  for (size_t step = 0; step < steps; ++step) {
    const Duration delay =
        link.tear_window * static_cast<int64_t>(step) / static_cast<int64_t>(steps - 1);
    After(delay, [this, client, answer, copy_all, last = step + 1 == steps,
                  copies = std::move(pieces[step])] {
      answer->status = Check(*client, answer->plan);
      if (answer->status == ReadStatus::kOk) copy_all(*client, *answer, copies);
      if (last) Finish(client, answer);
    });
  }
}

void FakeFabricNetwork::Wire::Finish(const std::shared_ptr<FakeClient>& client,
                                     const std::shared_ptr<FakeAnswer>& answer) {
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  if (link.answers_cut) {
    ++counters.cut;
    return;
  }
  if (link.lost_probability > 0 && rng.Chance(link.lost_probability)) {
    ++counters.lost;
    AtEndpoint(client, [id = answer->id](FakeEndpoint& endpoint) { endpoint.OnLost(id); });
    return;
  }
  Duration delay = Latency(link);
  if (link.late_probability > 0 && rng.Chance(link.late_probability)) {
    // Past any deadline that is in use; the reader decides which one it has.
    delay =
        delay + Duration::Seconds(1) + Duration::Micros(static_cast<int64_t>(rng.Below(5'000'000)));
  }
  if (link.bytes_per_second > 0) {
    const MonotonicTime start = std::max(loop->Now(), client->busy_until);
    client->busy_until = start + Duration::Micros(static_cast<int64_t>(answer->bytes.size()) *
                                                  1'000'000 / link.bytes_per_second);
    delay = delay + (client->busy_until - loop->Now());
  }
  After(delay, [client, answer] {
    AtEndpoint(client, [answer](FakeEndpoint& endpoint) { endpoint.OnAnswer(*answer); });
  });
}

void FakeFabricNetwork::Wire::ServeWatch(const std::shared_ptr<FakeClient>& client,
                                         FakeWatcher watcher) {
  FakeMemory& memory = *client->memory;
  if (!memory.readable || client->endpoint == nullptr) return;
  if (memory.regions[watcher.region].info.generation != client->infos[watcher.region].generation) {
    return;  // the end of the connection is on its way
  }
  if (LoadLow(memory, watcher.region, watcher.offset) != watcher.last_seen) {
    SendNotification(client, watcher.id, WatchOutcome::kChanged);
  } else {
    memory.watchers.push_back(std::move(watcher));
  }
}

void FakeFabricNetwork::Wire::SendNotification(const std::shared_ptr<FakeClient>& client,
                                               uint64_t id, WatchOutcome outcome) {
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  ++counters.notifications;
  if (link.answers_cut ||
      (link.notification_loss_probability > 0 && rng.Chance(link.notification_loss_probability))) {
    ++counters.notifications_lost;
    return;
  }
  After(Latency(link), [client, id, outcome] {
    AtEndpoint(client, [id, outcome](FakeEndpoint& endpoint) { endpoint.OnDoorbell(id, outcome); });
  });
}

void FakeFabricNetwork::Wire::Notify(FakeMemory& memory, RegionId region, uint64_t offset) {
  if (!memory.listening || region >= memory.regions.size()) return;
  std::vector<std::pair<std::shared_ptr<FakeClient>, uint64_t>> notified;
  std::erase_if(memory.watchers, [&](const FakeWatcher& w) {
    const std::shared_ptr<FakeClient> client = w.client.lock();
    if (client == nullptr || client->endpoint == nullptr) return true;
    if (w.region != region || w.offset != offset) return false;
    if (LoadLow(memory, region, offset) == w.last_seen) return false;
    notified.emplace_back(client, w.id);
    return true;
  });
  for (const auto& [client, id] : notified) SendNotification(client, id, WatchOutcome::kChanged);
}

}  // namespace tailcast::fabric
