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

// How the pieces of one read are copied.
struct Copy {
  uint64_t offset;
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

ReadStatus FakeFabricNetwork::Wire::Check(const FakeClient& client, const ReadDescriptor& read) {
  const FakeMemory& memory = *client.memory;
  if (!memory.readable) return ReadStatus::kUnreachable;
  if (memory.regions[read.region].info.generation != client.infos[read.region].generation &&
      !kAcceptStaleRegion.planted()) {
    ++counters.stale;
    return ReadStatus::kStaleRegion;
  }
  if (BeatStopped(memory)) {
    ++counters.beat_refusals;
    return ReadStatus::kUnreachable;
  }
  return ReadStatus::kOk;
}

// Copies at once, or piece by piece.
void FakeFabricNetwork::Wire::ServeRead(const std::shared_ptr<FakeClient>& client,
                                        const ReadDescriptor& read, uint64_t id) {
  const ReadStatus status = Check(*client, read);
  auto bytes = std::make_shared<std::vector<char>>();
  if (status != ReadStatus::kOk) {
    FinishRead(client, read, id, status, bytes);
    return;
  }
  bytes->resize(read.length);
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  const bool torn =
      read.length > 8 && link.torn_probability > 0 && rng.Chance(link.torn_probability);
  if (!torn) {
    CopyWords(bytes->data(), client->memory->regions[read.region].memory.data(), read.offset,
              read.length);
    FinishRead(client, read, id, status, bytes);
    return;
  }
  ++counters.torn;
  const size_t steps = 2 + rng.Below(3);
  std::vector<std::vector<Copy>> pieces(steps);
  for (uint64_t at = read.offset; at < read.offset + read.length;) {
    uint64_t end = std::min((at / kLineBytes + 1) * kLineBytes, read.offset + read.length);
    if (rng.Chance(0.25)) {  // cut the line at a word
      const uint64_t word = (at / 8 + 1 + rng.Below(8)) * 8;
      end = std::min(end, word);
    }
    pieces[rng.Below(steps)].push_back({at - read.offset, static_cast<uint32_t>(end - at)});
    at = end;
  }
  for (size_t step = 0; step < steps; ++step) {
    const Duration delay =
        link.tear_window * static_cast<int64_t>(step) / static_cast<int64_t>(steps - 1);
    After(delay, [this, client, read, id, bytes, last = step + 1 == steps,
                  copies = std::move(pieces[step])] {
      const ReadStatus now = Check(*client, read);
      if (now == ReadStatus::kOk) {
        const char* memory = client->memory->regions[read.region].memory.data();
        for (const Copy& copy : copies) {
          CopyWords(bytes->data() + copy.offset, memory, read.offset + copy.offset, copy.length);
        }
      }
      if (last) FinishRead(client, read, id, now, bytes);
    });
  }
}

void FakeFabricNetwork::Wire::FinishRead(const std::shared_ptr<FakeClient>& client,
                                         const ReadDescriptor& read, uint64_t id, ReadStatus status,
                                         const std::shared_ptr<std::vector<char>>& bytes) {
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  if (link.answers_cut) {
    ++counters.cut;
    return;
  }
  if (link.lost_probability > 0 && rng.Chance(link.lost_probability)) {
    ++counters.lost;
    AtEndpoint(client, [id](FakeEndpoint& endpoint) { endpoint.OnLost(id); });
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
    client->busy_until = start + Duration::Micros(static_cast<int64_t>(read.length) * 1'000'000 /
                                                  link.bytes_per_second);
    delay = delay + (client->busy_until - loop->Now());
  }
  After(delay, [client, id, status, bytes] {
    AtEndpoint(client, [id, status, bytes](FakeEndpoint& endpoint) {
      endpoint.OnAnswer(id, status, *bytes);
    });
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
