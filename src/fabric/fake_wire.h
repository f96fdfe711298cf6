// What the parts of the fake share: servers' memory, connections, and the wire between them. Only
// fake_*.cc include it.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/fake_fabric.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {
struct FakeRegion {
  Mapping memory;  // and a page behind it that nobody may touch
  RegionInfo info;
};

class FakeEndpoint;
struct FakeClient;
struct FakeChannelEnd;

struct FakeWatcher {
  std::weak_ptr<FakeClient> client;
  uint64_t id = 0;
  RegionId region = 0;
  uint64_t offset = 0;
  uint32_t last_seen = 0;
};

// The memory of one server's incarnation. Lives as long as somebody may read it.
struct FakeMemory {
  std::string server;
  FakeExporterOptions options;
  ExporterIncarnation incarnation{};
  uint64_t next_generation = 0;
  std::vector<FakeRegion> regions;
  Scanner scanner;
  bool listening = false;
  bool readable = true;  // false: the process is dead, and so is its memory
  bool stopped = false;
  Duration delay;
  std::optional<MonotonicTime> last_beat;
  std::vector<std::weak_ptr<FakeClient>> clients;
  std::vector<FakeWatcher> watchers;
  // Messages: who takes them; null scope: nobody does (any more). Channels are of one life of its
  // gate (spec Channel: door).
  MessageHandler handler;
  const Scope* message_scope = nullptr;
  uint64_t life = 1;
  std::vector<std::weak_ptr<FakeChannelEnd>> channels;
  std::vector<UniqueFunction<void()>> held;  // requests that wait for a stopped engine
};

inline uint32_t LoadLow(const FakeMemory& memory, RegionId region, uint64_t offset) {
  uint32_t value;
  std::memcpy(&value, memory.regions[region].memory.data() + offset, sizeof(value));
  return value;
}

// What the wire knows of an endpoint. The endpoint's own state is touched on its loop only.
struct FakeClient {
  std::string name;
  EventLoop* loop = nullptr;
  std::shared_ptr<FakeMemory> memory;
  std::vector<RegionInfo> infos;     // as told at the connection
  MonotonicTime busy_until;          // of the answers' direction
  FakeEndpoint* endpoint = nullptr;  // null once destroyed
  bool broken = false;               // the client's end has noticed
};

// What becomes of a read or a scan on its way through the wire.
struct FakeAnswer {
  uint64_t id = 0;
  ScanPlan plan;  // of a read: one range
  ReadStatus status = ReadStatus::kOk;
  std::vector<char> bytes;  // of the ranges in order
};

struct FakeFabricNetwork::Wire {
  Wire(EventLoop* l, uint64_t seed) : loop(l), rng(seed) {}

  FakeLink& LinkOf(const std::string& client, const std::string& server) {
    return links.try_emplace({client, server}, default_link).first->second;
  }
  Duration Latency(const FakeLink& link) {
    Duration d = link.latency;
    if (link.jitter > Duration()) {
      d = d + Duration::Micros(
                  static_cast<int64_t>(rng.Below(static_cast<uint64_t>(link.jitter.micros()) + 1)));
    }
    if (link.tail_probability > 0 && rng.Chance(link.tail_probability)) {
      d = d + Duration::Micros(static_cast<int64_t>(
                  rng.Exponential(static_cast<double>(link.tail_mean.micros()))));
    }
    return d;
  }
  void Trace(std::string_view bytes) const {
    if (trace) trace(Crc32c(bytes));
  }
  // Runs `task` on the wire; dropped with the network.
  template <typename Function>
  void After(Duration delay, Function function) {
    loop->At(loop->Now() + delay, scope.Bind(std::move(function)));
  }
  // Runs `task` at the server when its engine can.
  void AtServer(const std::shared_ptr<FakeMemory>& memory, UniqueFunction<void()> task) {
    if (memory->stopped && !memory->options.one_sided) {
      // What waits for a process that is gone waits for nobody.
      if (Find(memory->server) == memory) memory->held.push_back(std::move(task));
    } else {
      task();
    }
  }
  bool BeatStopped(const FakeMemory& memory) const;
  std::shared_ptr<FakeMemory> Find(const std::string& server) const {
    const auto it = servers.find(server);
    return it == servers.end() ? nullptr : it->second;
  }

  void CloseConnections(FakeMemory& memory);
  void Break(const std::shared_ptr<FakeClient>& client);
  void ServeRead(const std::shared_ptr<FakeClient>& client, const Range& range, uint64_t id);
  void ServeScan(const std::shared_ptr<FakeClient>& client, const ScanRequest& request,
                 uint64_t id);
  void Serve(const std::shared_ptr<FakeClient>& client, const std::shared_ptr<FakeAnswer>& answer);
  void Finish(const std::shared_ptr<FakeClient>& client, const std::shared_ptr<FakeAnswer>& answer);
  ReadStatus Check(const FakeClient& client, const ScanPlan& plan);
  void ServeWatch(const std::shared_ptr<FakeClient>& client, FakeWatcher watcher);
  void SendNotification(const std::shared_ptr<FakeClient>& client, uint64_t id,
                        WatchOutcome outcome);
  void Notify(FakeMemory& memory, RegionId region, uint64_t offset);

  EventLoop* const loop;
  Rng rng;
  std::function<void(uint64_t)> trace;
  FakeLink default_link;
  std::map<std::pair<std::string, std::string>, FakeLink> links;
  std::map<std::string, std::shared_ptr<FakeMemory>> servers;
  std::map<std::string, Duration> delays;
  FakeFabricCounters counters;
  Scope scope;
};

}  // namespace tailcast::fabric
