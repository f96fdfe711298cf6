// The real Client: one-sided reads from replicas found by consistent hashing, mutations by rpc to
// all three with success at two (paper §2.2, r = 3.2). Decisions are in quorum_core.h, placement in
// ring.h, bytes in memory_layout.h; this file moves bytes between them.
//
// Reading one key from one replica takes two fabric reads: the key's bucket, then the entry that
// the bucket points to. A small table remembers where entries were, so that a chunk that grows, or
// a value that is read again, costs one round trip. Nothing is believed until a private copy was
// validated.
//
// On endpoints that read inside the call (shm) all of it happens on the caller's stack, straight
// into the chunk's destination. On others a read lands in a buffer of the client's own, so that a
// slow replica cannot hold a caller's memory after the read ended at another one.
//
// Threads: one loop. Bounded: operations outstanding, bytes in flight to each replica, values and
// locations remembered.
#pragma once

#include <array>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/drains.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/server.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cache {

// Longest time that a fabric read may take; timeouts of reads are cut to it. Servers let a slot
// rest longer (ServerCoreOptions::rest).
inline constexpr Duration kReadDeadlineMax = Duration::Millis(400);

struct QuorumClientOptions {
  std::string service = kDataService;
  uint64_t seed = 0;  // 0: drawn. Chooses the relaxed read's replica of each key.
  Duration hedge_delay = Duration::Millis(30);
  Duration connect_timeout = Duration::Millis(500);
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
  // Fabric reads outstanding on endpoints that are not immediate; further ones wait.
  uint32_t operations_max = 1024;

  // For tests: bugs to be caught.
  struct {
    bool skip_crc = false;        // payloads are not validated
    bool trust_location = false;  // a remembered location is believed without a look at the key
  } planted;
};

class QuorumClient : public Client {
 public:
  // loop and connectors outlive the client.
  QuorumClient(EventLoop* loop, fabric::Connector* fabric, rpc::Connector* rpc,
               QuorumClientOptions options, RingConfig config);
  // Callbacks that did not run yet never will. Not inside a callback of its own.
  ~QuorumClient() override;

  // Takes a newer configuration; connections to replicas that stay are kept. Older ones are
  // ignored.
  void UpdateRing(RingConfig config);
  // Called on a later turn when a server turns out to have a newer configuration than this client:
  // ask the registry. At most once for each newer id.
  void SetStaleCallback(Callback<void(uint64_t configuration_id)> stale) {
    stale_ = std::move(stale);
  }
  // Replicas that are connected now.
  uint32_t ready_replicas() const;

  bool TryReadChunks(std::span<ChunkRead> reads) override;
  void ReadChunks(std::span<ChunkRead> reads, ReadMode mode, Duration timeout,
                  Callback<void()> done) override;
  void ReadValues(std::vector<ValueRead> reads, Duration timeout,
                  Callback<void(Result<std::vector<std::optional<std::string>>>)> done) override;
  void Mutate(std::vector<Mutation> mutations, Duration timeout,
              Callback<void(Status)> done) override;
  void Drain(Callback<void()> done) override;
  uint64_t WatchValue(Key key, Duration timeout, Callback<void(bool watched)> notify) override;
  void CancelWatch(uint64_t id) override;
  const ClientCounters& counters() const override { return counters_; }

 private:
  struct Connection;
  struct Operation;
  struct Batch;
  struct Item;
  struct Bulk;
  struct Watch;
  using ConnectionPtr = std::shared_ptr<Connection>;
  using BatchPtr = std::shared_ptr<Batch>;

  // What reading a key from one replica came to.
  enum class Outcome : uint8_t {
    kFound,  // validated
    kAbsent,
    kOverflowed,  // its bucket is full: ask by rpc
    kTorn,        // did not validate: try again
    kError,       // unreachable, or torn too often
  };
  struct Found {
    Outcome outcome = Outcome::kError;
    uint32_t length = 0;    // of the value
    uint32_t doorbell = 0;  // of the bucket, if it was read
    bool saw_bucket = false;
  };
  struct RememberedLocation {
    Key key;
    uint64_t epoch = 0;  // of the connection; 0: empty
    uint64_t offset = 0;
    uint32_t length = 0;
  };
  // What is known of a value from earlier reads.
  struct RememberedValue {
    Key key;
    std::string value;
    // The bucket's doorbell when a replica was last read, by connection epoch (0: unknown).
    std::array<uint64_t, kReplicasPerKey> epochs{};
    std::array<uint32_t, kReplicasPerKey> doorbells{};
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.lo ^ (key.hi * 0x9e3779b97f4a7c15); }
  };

  // ---- replicas ----
  // The key's replicas, in this client's order of preference for it.
  Owners PreferredOwners(const Key& key);
  Connection& ConnectionOf(const Owners& owners, uint8_t i) {
    return *connections_[owners.replica[i]];
  }
  void Connect(const ConnectionPtr& connection);
  void OnConnected(const ConnectionPtr& connection, uint64_t attempt,
                   Result<std::unique_ptr<fabric::Endpoint>> endpoint);
  void OnGeometry(Connection& connection, fabric::ReadStatus status, const char* page);
  void OnConnectFailed(Connection& connection);
  // Gives up the endpoint; everything under way on it fails, its watches move.
  void Lose(Connection& connection);
  void OnReadError(Connection& connection, fabric::ReadStatus status);
  // Connects again when the back-off allows.
  void KeepTrying(Connection& connection);
  bool Usable(const Connection& connection) const;
  bool ReadyNow(const Connection& connection) const;
  void SawConfiguration(uint32_t low_bits);
  void SawConfigurationId(uint64_t id);

  // ---- reads inside the call ----
  fabric::ReadStatus ReadNow(Connection& connection,
                             std::span<const fabric::ReadDescriptor> descriptors);
  Found ReadChunkNow(Connection& connection, ChunkRead& read);
  Found ReadValueNow(Connection& connection, const Key& key, std::string_view& value);
  Outcome ReadBucketNow(Connection& connection, const Key& key, char* bucket, Found& found);
  Outcome ReadChunkAt(Connection& connection, ChunkRead& read, uint64_t offset, uint32_t expected,
                      uint32_t& length, bool remembered);
  Outcome CutChunk(Connection& connection, ChunkRead& read, uint64_t offset,
                   const layout::EntryHeader& header);
  bool ParseEntry(const Connection& connection, const char* bytes, const Key& key, uint64_t offset,
                  bool remembered, layout::EntryHeader& header) const;
  bool PayloadFits(uint32_t crc, const layout::EntryHeader& header) const {
    return crc == header.payload_crc || options_.planted.skip_crc;
  }

  // ---- batches ----
  void RunBatch(const BatchPtr& batch, Duration timeout);
  void Hedge(const BatchPtr& batch);
  void Ask(const BatchPtr& batch, size_t index, Mask replicas);
  void AskOne(const BatchPtr& batch, size_t index, uint8_t replica);
  void AskByRpc(const BatchPtr& batch, size_t index, uint8_t replica, uint32_t doorbell);
  // `value`: of a value item, or payload from `from` on of a chunk item that was not read in place.
  void OnFound(const BatchPtr& batch, size_t index, uint8_t replica, const Found& found,
               std::string_view value);
  void FinishItem(Batch& batch, Item& item);
  void FinishBatch(const BatchPtr& batch);

  // ---- reads whose completions come later ----
  void StartOperation(const BatchPtr& batch, size_t index, uint8_t replica);
  Operation* NewOperation(const ConnectionPtr& connection);
  void FreeOperation(Operation* operation);
  // Puts reads into their connection's next batch, which goes out at the end of the outermost
  // BatchScope, or at once outside of any: endpoints take one system call for a batch.
  void Submit(Operation* operation, std::span<fabric::ReadDescriptor> descriptors);
  struct BatchScope {
    explicit BatchScope(QuorumClient* c) : client(c) { ++client->batch_scopes_; }
    ~BatchScope() {
      if (--client->batch_scopes_ == 0) client->SendBatches();
    }
    BatchScope(const BatchScope&) = delete;
    BatchScope& operator=(const BatchScope&) = delete;
    QuorumClient* const client;
  };
  void SendBatches();
  void ReadBucket(Operation* operation);
  void ReadEntry(Operation* operation, layout::Location location);
  void OnReady(const ConnectionPtr& connection, uint64_t attempt);
  void OnCompleted(Operation* operation);
  void OnBucket(Operation* operation);
  // kTorn also if more bytes are there than were read; `length` says how many.
  Outcome CheckEntry(Operation* operation, uint32_t& length);
  void TornOperation(Operation* operation);
  void EndOperation(Operation* operation, Found found, std::string_view value);

  // ---- what is remembered ----
  RememberedLocation& LocationSlot(const Connection& connection, const Key& key);
  RememberedValue& Remember(const Key& key);

  // ---- mutations ----
  void SendMutations(const std::shared_ptr<Bulk>& bulk, size_t request, Duration timeout);
  void OnMutated(const std::shared_ptr<Bulk>& bulk, size_t request, Result<std::string> reply);
  void FinishBulk(const std::shared_ptr<Bulk>& bulk);

  // ---- watches ----
  bool StartWatch(Watch& watch);
  void OnDoorbell(uint64_t id, uint64_t attempt, fabric::WatchOutcome outcome);
  void Notify(uint64_t id, bool watched);
  void PostNotify(uint64_t id, bool watched);
  void MoveWatches(Connection& connection);
  void KeepHeartbeat(const ConnectionPtr& connection);
  void OnHeartbeat(Connection& connection, fabric::ReadStatus status, const char* page);

  EventLoop* const loop_;
  fabric::Connector* const fabric_;
  rpc::Connector* const rpc_;
  const QuorumClientOptions options_;
  // Shared with tasks and callbacks; nullptr inside once the client is gone.
  std::shared_ptr<QuorumClient*> alive_;
  uint64_t preference_ = 0;  // mixed into the choice of each key's first replica
  ClientCounters counters_;
  RingConfig config_;
  HashRing ring_;
  std::vector<ConnectionPtr> connections_;  // in the order of config_.replicas
  uint64_t next_epoch_ = 1;
  uint64_t stale_reported_ = 0;
  Callback<void(uint64_t)> stale_;

  std::vector<RememberedLocation> locations_;
  std::list<RememberedValue> values_;  // most recently read first
  std::unordered_map<Key, std::list<RememberedValue>::iterator, KeyHash> values_by_key_;
  std::vector<std::unique_ptr<Operation>> operations_;  // by index; null: free
  std::vector<uint32_t> free_operations_;
  uint64_t next_generation_ = 1;
  uint32_t operations_in_use_ = 0;
  int batch_scopes_ = 0;
  std::vector<ConnectionPtr> with_batch_;  // connections whose batch is not empty
  std::deque<Task> waiting_;               // asks that wait for a free operation
  Drains drains_{loop_};
  std::unordered_map<uint64_t, std::unique_ptr<Watch>> watches_;
  uint64_t next_watch_ = 1;
  std::vector<char> scratch_;  // header and payload of a read inside the call
};

}  // namespace tailcast::cache
