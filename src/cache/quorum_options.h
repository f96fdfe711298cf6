// What a QuorumClient can be told, each with its default.
#pragma once

#include <cstdint>
#include <string>

#include "tailcast/base/time.h"
#include "tailcast/cache/server.h"

namespace tailcast::cache {

// Longest time that a fabric read may take; timeouts of reads are cut to it. Servers let a slot
// rest longer (ServerCoreOptions::rest).
inline constexpr Duration kReadDeadlineMax = Duration::Millis(400);

// Longest time after its begin that a write may still count an acknowledgement; timeouts of writes
// are cut to it. A replica that starts anew rests longer (RepairOptions::rest).
inline constexpr Duration kWriteDeadlineMax = Duration::Seconds(2);

struct QuorumClientOptions {
  std::string service = kDataService;
  uint64_t seed = 0;  // 0: drawn. Chooses the relaxed read's replica of each key.
  Duration hedge_delay = Duration::Millis(30);  // at most: hedge_core.h
  Duration connect_timeout = Duration::Millis(500);
  // Connected by less than the best of a replica's addresses (tcp, where RDMA did not work, say):
  // how long until the better ones are tried again.
  Duration better_address_interval = Duration::Seconds(15);
  // How often the server of a watched doorbell is looked at, and after how long without a heartbeat
  // its watches move to another replica.
  Duration heartbeat_interval = Duration::Millis(250);
  Duration heartbeat_dead = Duration::Seconds(1);
  // Copies of one bucket or entry that may fail validation before the replica counts as failed.
  int torn_retries_max = 8;
  // Mutations on their way to one replica; beyond it that replica counts as failed at once.
  uint64_t inflight_bytes_max = 64u << 20;
  // One call carries at most about so much; larger batches become several calls.
  uint64_t request_bytes_max = 2u << 20;
  uint32_t remembered_values_max = 16384;
  uint32_t remembered_locations = 4096;  // a power of two
  // Reads of keys under way on endpoints that are not immediate; further ones wait, and beyond that
  // fail at once, as if their replica could not be reached.
  uint32_t key_reads_max = 1024;
  uint32_t key_reads_waiting_max = 65536;
};

}  // namespace tailcast::cache
