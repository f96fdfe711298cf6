// Whether the data cache of a cell holds the newest chunks of its streams for as long as they are
// wanted there: for their time to live, a minute by default (paper §3, Data Cache).
//
//   holds      what its replicas hold before the oldest chunks go to make room
//              / copies of each chunk (3) / bytes of chunks that come per second
//   example    3 replicas of 200 MB, 10 MB/s: 600 MB / 3 / 10 MB/s = 20 s, and 60 s are wanted
//
// Who is further behind than that reads the primary layer; nothing is lost.
//
// `cell` is as in status_facts.h. Cores: no I/O, no clock.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tailcast/base/time.h"

namespace tailcast::inspect {

// Of the replicas that serve and answer. Of caches on memcached nothing is known.
struct CacheRoom {
  int replicas = 0;
  double bytes = 0;        // of different chunks, all replicas together
  double wanted_s = 0;     // time to live of a chunk
  int64_t data_bytes = 0;  // memory of the smallest replica
};
CacheRoom RoomOf(const nlohmann::json& cell);
// Of `replicas` with `data_bytes` of memory each.
CacheRoom PlannedRoom(int replicas, int64_t data_bytes, Duration ttl);

// The chunks, data and index, of what is written to a cell.
struct CacheLoad {
  double bytes_per_s = 0;
  std::string largest;  // the stream with the most of them
  double largest_bytes_per_s = 0;

  // `chunk_size`: 0 if not known. A chunk has room for 4096 bytes, however small it is.
  void Add(const std::string& stream, double data_bytes_per_s, double messages_per_s,
           int64_t chunk_size);
};
// As measured. Shards that are not shown are taken to be like the others of their stream.
CacheLoad LoadOf(const nlohmann::json& cell);

// What is wrong and what to do; "": all is held for as long as it is wanted, or that is not known.
std::string CacheRoomTrouble(const CacheRoom& room, const CacheLoad& load);

}  // namespace tailcast::inspect
