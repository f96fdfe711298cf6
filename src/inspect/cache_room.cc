#include "tailcast/inspect/cache_room.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "tailcast/cache/server_core.h"
#include "tailcast/inspect/status_facts.h"
#include "tailcast/inspect/text.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::inspect {
namespace {

using nlohmann::json;

constexpr int kCopies = 3;                // of each chunk (DESIGN: r = 3.2, rewrites aside)
constexpr uint32_t kSlotBytesMin = 4096;  // cache::ServerCoreOptions::growth_floor_bytes
constexpr const char* kPrefix = "tailcast_cache_server_";

// A gauge of the data cache of a process; 0: it shows none.
double Gauge(const json& status, const std::string& name) {
  const auto metrics = status.find("metrics");
  if (metrics == status.end() || !metrics->is_array()) return 0;
  for (const json& m : *metrics) {
    if (m.value("name", "") != kPrefix + name || !m.contains("labels")) continue;
    if (m["labels"].value("cache", "") == "data") return m.value("value", 0.0);
  }
  return 0;
}

}  // namespace

CacheRoom RoomOf(const json& cell) {
  CacheRoom room;
  for (const json* status : StatusOfEach(cell)) {
    const double bytes = Gauge(*status, "room_bytes");
    if (bytes <= 0 || Gauge(*status, "serving") <= 0) continue;
    const auto memory = static_cast<int64_t>(Gauge(*status, "memory_bytes"));
    const double wanted_s = Gauge(*status, "ttl_seconds");
    room.data_bytes = room.replicas == 0 ? memory : std::min(room.data_bytes, memory);
    room.wanted_s = std::max(room.wanted_s, wanted_s);
    room.bytes += bytes;
    ++room.replicas;
  }
  if (room.replicas > 0) room.bytes /= std::min(room.replicas, kCopies);
  return room;
}

CacheRoom PlannedRoom(int replicas, int64_t data_bytes, Duration ttl) {
  const auto memory = static_cast<uint64_t>(data_bytes);
  const uint64_t one = cache::RoomBytes(cache::PlanMemory(memory, kSlotBytesMin).data_bytes,
                                        kSlotBytesMin, cache::ServerCoreOptions().collect_from);
  return {.replicas = replicas,
          .bytes = static_cast<double>(one) * replicas / std::clamp(replicas, 1, kCopies),
          .wanted_s = ttl.seconds(),
          .data_bytes = data_bytes};
}

void CacheLoad::Add(const std::string& stream, double data_bytes_per_s, double messages_per_s,
                    int64_t chunk_size) {
  double bytes = data_bytes_per_s + messages_per_s * stream::kIndexRecordSize;
  if (chunk_size > 0 && chunk_size < int64_t{kSlotBytesMin}) {
    bytes *= double{kSlotBytesMin} / static_cast<double>(chunk_size);
  }
  bytes_per_s += bytes;
  if (bytes <= largest_bytes_per_s) return;
  largest = stream;
  largest_bytes_per_s = bytes;
}

CacheLoad LoadOf(const json& cell) {
  CacheLoad load;
  for (const json& stream : cell.value("streams", json::array())) {
    const json shards = stream.value("shards", json::array());
    if (shards.empty()) continue;
    double bytes = 0, messages = 0;
    for (const json& shard : shards) {
      bytes += shard.value("bytes_per_s", 0.0);
      messages += shard.value("messages_per_s", 0.0);
    }
    const auto shown = static_cast<double>(shards.size());
    const double all = 1 + stream.value("shards_not_shown", 0.0) / shown;
    load.Add(stream.value("stream", ""), bytes * all, messages * all,
             stream.value("chunk_size", int64_t{0}));
  }
  return load;
}

std::string CacheRoomTrouble(const CacheRoom& room, const CacheLoad& load) {
  if (room.bytes <= 0 || room.wanted_s <= 0 || load.bytes_per_s <= 0) return "";
  const double held_s = room.bytes / load.bytes_per_s;
  if (held_s >= room.wanted_s) return "";
  const auto rate = [](double bytes) { return BytesText(std::llround(bytes)) + "/s"; };
  const auto span = [](double s) { return SpanText(Duration::Micros(std::llround(s * 1e6))); };
  const double factor = room.wanted_s / held_s;
  return "the data cache holds " + span(held_s) + " of the " + rate(load.bytes_per_s) +
         " of chunks that come, " + rate(load.largest_bytes_per_s) + " of them stream " +
         load.largest + ", and should hold " + span(room.wanted_s) +
         ": who is further behind reads the primary layer. Give its " +
         std::to_string(room.replicas) + " cache processes " +
         BytesText(std::llround(static_cast<double>(room.data_bytes) * factor)) +
         " of cache.data_bytes each (now " + BytesText(room.data_bytes) +
         "), or the cell more of them (docs/caches.md)";
}

}  // namespace tailcast::inspect
