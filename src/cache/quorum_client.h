// The real Client: one-sided reads from replicas found by consistent hashing, mutations over
// message channels to all three with success at two (paper §2.2, r = 3.2). It owns its parts and
// wires them:
//
//   QuorumClient ─┬─ ReplicaSet ─ ReplicaLink     where a key's replicas are; the link to each
//                 ├─ ReadBatch ─ key_read.h       a batch of reads; one key at one replica, whose
//                 │              KeyReadCore      protocol is one for all paths
//                 ├─ BulkWrites                   mutations on their way
//                 ├─ Watches                      doorbells
//                 └─ ClientContext                what is remembered: LocationTable, ValueMemory;
//                                                 what bounds the reads: ReadSlots; counters
//
// Decisions are in quorum_core.h (whom to ask) and key_read_core.h (what to believe), placement in
// ring.h, bytes in memory_layout.h.
//
// Threads: one loop. Bounded: reads under way, bytes in flight to each replica, values and
// locations remembered.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/quorum_options.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cache {

class ReadBatch;

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
  // Replicas that are connected now.
  uint32_t ready_replicas() const;
  // How each replica is reached now; addresses are empty where there is no connection.
  struct Connection {
    std::string replica;
    fabric::Way reads, writes;
  };
  std::vector<Connection> Connections() const;

  bool TryReadChunks(std::span<ChunkRead> reads) override;
  void ReadChunks(std::span<ChunkRead> reads, ReadMode mode, Duration timeout,
                  Callback<void()> done) override;
  void ReadValues(std::vector<ValueRead> reads, Duration timeout,
                  Callback<void(Result<Values>)> done) override;
  bool TryReadValues(std::span<const ValueRead> reads, Values& values) override;
  void Mutate(std::vector<Mutation> mutations, Duration timeout,
              Callback<void(Status)> done) override;
  void Drain(Callback<void()> done) override;
  uint64_t WatchValue(Key key, Duration timeout, Callback<void(bool watched)> notify) override;
  void CancelWatch(uint64_t id) override;
  void WatchEpoch(Callback<void()> changed) override;
  const ClientCounters& counters() const override;

 private:
  struct Parts;

  bool TryReadValue(const ValueRead& read, ValueAnswer& value);
  // Starts the batch; `done` gets it when it has ended.
  template <typename Done>
  void Run(std::unique_ptr<ReadBatch> batch, Duration timeout, Done done);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace tailcast::cache
