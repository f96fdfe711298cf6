// What a memcached-backed client can be told, each with its default, and what it counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/time.h"
#include "tailcast/memcached/server_address.h"

namespace tailcast::memcached {

// memcached takes a longer time to live for a date; longer ones are cut to this.
inline constexpr Duration kTimeToLiveMax = Duration::Seconds(int64_t{30} * 24 * 3600);

struct ClientOptions {
  // 1 to kServersMax. Every client of a cell has the same ones, spelled the same: their text is
  // what the ring hashes.
  std::vector<ServerAddress> servers;
  // Whose values these are, such as "data cache of cell x": the keys of another space are others'
  // keys, so that many caches share the servers.
  std::string key_space;
  // From each write that changes a value, in whole seconds, rounded up.
  Duration time_to_live = Duration::Seconds(60);
  uint64_t seed = 0;  // 0: drawn. Chooses the relaxed read's server of each key.
  Duration hedge_delay = Duration::Millis(30);
  // How long a server may let a connection, or the next bytes of an answer, be waited for.
  Duration server_timeout = Duration::Millis(250);
  // Rounds of get, merge and compare-and-swap for one key at one server. One of those who write a
  // key at once succeeds in each round, and it may be the same one many times.
  uint32_t cas_rounds_max = 64;
  // Of requests on their way to one server, with the room for their answers; beyond it that server
  // counts as failed at once.
  uint64_t inflight_bytes_max = 64u << 20;
  uint32_t remembered_values_max = 16384;
};

// Beside cache::ClientCounters; each cause on its own. Written by the client's loop, read by any
// thread; client_metrics.h has the names as metrics.
struct ClientStats {
  OwnedCounter cas_retries;     // others changed an item between the get and the swap
  OwnedCounter cas_given_up;    // cas_rounds_max was not enough
  OwnedCounter late_mutations;  // not made: it had become too late in the middle of a request
  OwnedCounter damaged_items;   // did not validate: foreign, or damaged
  OwnedCounter reconnections;   // a connection broke in a request, which was made once more
  // A server failed: not connected to, broken off, no answer in time, an answer that it will not.
  OwnedCounter unreachable_requests, broken_requests, timed_out_requests, refused_requests;
  OwnedCounter late_requests;         // not made: it had become too late
  OwnedCounter skipped_requests;      // not made: the one before it failed
  OwnedCounter left_alone_requests;   // not taken: the server has failed, and is left alone
  OwnedCounter window_full_requests;  // not taken: inflight_bytes_max
};

}  // namespace tailcast::memcached
