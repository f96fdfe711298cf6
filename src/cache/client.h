// The cache as its users see it: consumers, readers, writers and producers of one cell.
//
// Client is the port; QuorumClient (quorum_client.h) is the real one: reads one-sided over the
// fabric from replicas found by consistent hashing, writes over its message channels to all three
// with success at two (r = 3.2). Its decisions are in quorum_core.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

struct ChunkRead {
  Key key;
  uint32_t have = 0;      // bytes of the value that are in `destination` already, validated
  uint32_t want = 0;      // bytes of the value that are known to exist: enough to end the read;
                          // > have, or there is nothing to do
  uint32_t capacity = 0;  // room at `destination`; at least `want`. Longer values are cut.
  char* destination = nullptr;
  // In: 0. Result: counts from the value's beginning and is > have only if new validated bytes were
  // written at destination[have, length); else it is `have`. Less than `want`: short or missing.
  // Bytes at and after `length` are undefined, up to `capacity`.
  uint32_t length = 0;
  // In: crc32c of destination[0, have), so that only the new suffix need be fetched and validated;
  // 0 when have == 0. Result: crc32c of destination[0, length). To go on reading a chunk that
  // grows, set have = length, length = 0 and keep the crc.
  uint32_t crc = 0;
  // In: false. Result: the deadline passed before enough replicas had answered to end the read. A
  // client that can't tell that from a miss leaves it.
  bool late = false;
};

// What a read of a value came to.
struct ValueAnswer {
  std::optional<std::string> bytes;  // the join of what was found; nullopt: nothing was
  // Two whole replicas answered (or as many as the ring has), so that the value shows every write
  // that was acknowledged before, in this epoch. Otherwise it is partial: the value, or that there
  // is none, is a lower bound.
  bool complete = false;

  bool has_value() const { return bytes.has_value(); }
  const std::string& operator*() const { return *bytes; }
  const std::string* operator->() const { return &*bytes; }
};
using Values = std::vector<ValueAnswer>;  // in the order of the reads

enum class ReadMode : uint8_t {
  kRelaxed,     // one replica first, hedged when it is slow, then the others for short answers
  kConsistent,  // at least two replicas at once; the longest value counts, a value may be complete
  kAnyOne,      // of chunks that need not all be there: the first replica's answer, whatever it has
};

// What a client counts, each cause on its own: written by its loop, read by any thread.
// client_metrics.h has the name of each as a metric.
// Chunks that need not all be there (ReadMode::kAnyOne) count as reads_ahead, and as hits_ahead if
// they brought bytes; not as reads, hits, short_reads and misses.
struct ClientCounters {
  OwnedCounter reads, hits, short_reads, misses, torn_retries, hedges, hedges_left,
      consistent_reads, widened_reads, overflow_reads, bytes_read, useful_bytes, value_reads,
      partial_values, reads_ahead, hits_ahead, mutations, mutation_failures, watches, notifications,
      watch_refusals;
  // Values that contradict each other, each a DataLoss. By who found it: a read of a chunk, of a
  // value, at two replicas; a read, with what this client was given before; a replica, when it was
  // given what it drops.
  OwnedCounter chunk_mismatches, value_mismatches, remembered_mismatches, write_mismatches;
  OwnedCounter newer_rings;  // that a replica knew and this client did not yet
  // A replica came to be avoided because it is slow; reads that began elsewhere for that reason;
  // reads that were sent there as well, to find out whether it is well again (replica_speed.h).
  OwnedCounter slow_replicas, avoiding_reads, probe_reads;

  OwnedCounter read_deadline;  // of a key, chunk or value, that was not finished in time

  // Why a replica could not be connected to.
  OwnedCounter connect_failed;             // nobody answered, or the connection was refused
  OwnedCounter connect_moved_up;           // to a better address, which works again
  OwnedCounter channel_moved_up;           // the same of a message channel
  OwnedCounter connect_no_key;             // refused by either end: they don't have the same key
  OwnedCounter connect_not_a_cache;        // its memory is no cache's, or of another version
  OwnedCounter connect_other_incarnation;  // another life of it than the ring means
  // Why a one-sided read came to nothing: fabric::ReadStatus.
  OwnedCounter read_out_of_range, read_stale_region, read_unreachable, read_timeout,
      read_overloaded;
  OwnedCounter read_torn;           // no copy of torn_retries_max and one more validated
  OwnedCounter read_not_connected;  // the replica was asked for and there is no connection
  OwnedCounter read_left_alone;     // it has failed: another read finds out whether it is back
  OwnedCounter read_no_slot;        // not made: too many waited for one
  OwnedCounter heartbeat_stopped;   // of a server that was watched
  // Why a replica did not take its part of a bulk write, by call.
  OwnedCounter write_no_address;      // the ring has none: it is not there
  OwnedCounter write_window_full;     // not sent: too much is on its way to the replica
  OwnedCounter write_timeout;         // no answer in time
  OwnedCounter write_unreachable;     // the call did not get there, or the server had not started
  OwnedCounter write_channel_broken;  // the channel broke, or was left, before the answer
  OwnedCounter write_other_incarnation;  // refused: another life
  OwnedCounter write_not_serving;        // refused: in no ring, or not sure of it (server.h)
  OwnedCounter write_old_ring;           // refused: the server knows a newer ring
  OwnedCounter write_old_epoch;          // refused: the server knows a newer epoch
  OwnedCounter write_bad_reply;          // refused as malformed, or the answer is
  // How writes went to replicas: over a message channel, or by calls while there was none; channels
  // that could not be opened, such that broke, and such that were left because nothing was
  // answered.
  OwnedCounter write_messages, write_calls, channel_failed, channel_broken, channel_silent;
  // The same of reads of keys in overflowed buckets, which are calls.
  OwnedCounter get_no_address, get_timeout, get_unreachable, get_other_incarnation, get_not_serving,
      get_old_ring, get_bad_reply;

  OwnedCounter ready_replicas;  // as of now: those that can be read

  uint64_t mismatches() const {
    return chunk_mismatches + value_mismatches + remembered_mismatches + write_mismatches;
  }
};

// Threads: all calls and callbacks on the client's loop.
class Client {
 public:
  virtual ~Client() = default;

  // The fast path of ReadChunks (relaxed), for memory that is read inside the call (fabric
  // capability `immediate`: shm): reads what one replica per key has, on the caller's stack,
  // without allocation or a turn of the loop. True: every read has `want` bytes. False: some have
  // not (those that have keep their results); go on with ReadChunks and the same span, which leaves
  // alone every read whose `length` is `want` or more.
  //   if (!client.TryReadChunks(reads)) client.ReadChunks(reads, ReadMode::kRelaxed, wait, done);
  // About half a microsecond per 4 KB chunk; keep batches to what a turn of the loop may take.
  virtual bool TryReadChunks(std::span<ChunkRead> reads) = 0;

  // Reads a batch of chunks in place; `reads` (and destinations) stay valid until `done`. A read
  // ends at the first validated answer that has `want` bytes; it is short or missing only when all
  // reachable replicas answered or the deadline passed. Never an error: a miss is a normal result.
  // Reads with `length` >= `want` on entry are finished already (see TryReadChunks).
  virtual void ReadChunks(std::span<ChunkRead> reads, ReadMode mode, Duration timeout,
                          Callback<void()> done) = 0;

  // The join (MergeRule) of a value over at least two whole replicas, or a partial answer if so
  // many can't be reached (design rule "lengths are hints"). What is returned is also joined with
  // what this client was given before, so that a value never falls within a client.
  // A relaxed read of a value ends when one whole replica has any, and is partial; of each further
  // one another replica is asked first, so that of a value that goes on nothing stays unseen for
  // long that one of them lacks.
  // Unavailable: of some key no replica answered within the timeout.
  struct ValueRead {
    Key key;
    MergeRule rule = MergeRule::kMaxLanes;
    ReadMode mode = ReadMode::kConsistent;
  };
  virtual void ReadValues(std::vector<ValueRead> reads, Duration timeout,
                          Callback<void(Result<Values>)> done) = 0;
  // The fast path of it, where all replicas are read inside the call: on the caller's stack,
  // without a turn of the loop. True: `values` has what ReadValues would give; its memory is used
  // again. False: it can't be said now, `values` has nothing of use; go on with ReadValues.
  virtual bool TryReadValues(std::span<const ValueRead> reads, Values& values) = 0;

  // Writes to all three replicas of each key, in bulk: one message per server, or a few; timeouts
  // are cut to kWriteDeadlineMax. `done` runs when each key has two acknowledgements or can't get
  // them any more; of values only those of whole replicas count, of chunks (kLongerWins) all do:
  // Ok, Unavailable (some key has fewer than two, or the epoch rose meanwhile), DataLoss (a replica
  // reported kMismatch), ResourceExhausted. A server that fails never blocks the others.
  virtual void Mutate(std::vector<Mutation> mutations, Duration timeout,
                      Callback<void(Status)> done) = 0;

  // `done` runs once, on a later turn, when every message that Mutate sent before has its answer,
  // failure or time-out: also those whose outcome was decided by two replicas without the third.
  // Destroying the client or what it speaks through cancels what is still under way, so whoever
  // ends right after a write that watchers of every replica shall see waits for this first.
  virtual void Drain(Callback<void()> done) = 0;

  // Doorbell for a value: `notify` is called once, on a later turn, when the value may have changed
  // since ReadValues on this client last read it, or at `timeout`; with `watched` false at once
  // when nobody can watch (no replica that knows doorbells is reachable, or the key was never read
  // on this client): poll then. Coalesced. It watches one replica; if that one missed a write, the
  // call comes at the time-out. The callback of a cancelled watch is not called.
  virtual uint64_t WatchValue(Key key, Duration timeout, Callback<void(bool watched)> notify) = 0;
  virtual void CancelWatch(uint64_t id) = 0;

  // `changed` is called at each change of the cache epoch, as long as its scope lives: what was
  // acknowledged before counts for nothing, so whoever published a value that must not be missing
  // writes it again. An acknowledgement that is given after the call may be of a write before it.
  virtual void WatchEpoch(Callback<void()> changed) = 0;

  virtual const ClientCounters& counters() const = 0;
};

// Where the servers of one cache instance are: what the registry publishes (src/cell).
struct Replica {
  std::string name;                                            // stable: the ring hashes it
  std::string rpc_address;                                     // host:port for mutations
  std::vector<std::string> fabric_addresses;                   // "shm:...", "tcp:host:port"
  ProcessIncarnation incarnation = ProcessIncarnation::kNone;  // kNone: not said
  // What the registry says of this incarnation (cell/cache_members.h); a ring that is made by hand
  // has replicas that have nothing to miss.
  bool whole = true;     // its "absent" is an answer, its acknowledgement a vote
  bool excused = false;  // nobody needs to copy from it
  bool rests = false;    // an earlier incarnation was whole: it rests before it copies
  bool in_ring = true;   // that is read; what is said above is said of this one
  // While the ring changes there is another one that writes have to reach as well: the one that
  // comes (RingPhase::kBoth), or the one that goes (kNew).
  bool in_other = false;
  bool votes_in_other = false;  // its acknowledgement counts there
};
struct RingConfig {
  ConfigurationId configuration_id{};
  CacheEpoch epoch{};
  std::vector<Replica> replicas;  // of both rings, while it changes

  // Null: there is none of this name.
  const Replica* Find(std::string_view name) const {
    for (const Replica& replica : replicas) {
      if (replica.name == name) return &replica;
    }
    return nullptr;
  }
};

}  // namespace tailcast::cache
