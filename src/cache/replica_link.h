// A client's link to one replica: connects, again and again with back-off, learns the geometry of
// the replica's memory, says whether it is worth asking, gives reads to the endpoint in batches,
// and finds out when the server dies or stops.
//
//            Connect                     the memory's geometry fits
//   kIdle ───────────▶ kConnecting ────────────────────────────────▶ kReady
//     ▲ ▲                   │ no endpoint, no geometry                  │ connection broken, or
//     │ └───────────────────┘                                           │ laid out anew
//     └─────────────────────────────────────────────────────────────────┘
//   each of them ──Retire──▶ kRetired: of no configuration any more
//
// Everything that waits for a connection ends with it: reads are told OnLost, watches answer
// kUnreachable. What endpoints and timers call is bound to a scope that begins anew with each
// connection, so that nothing of an older one comes through.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/key_scan.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/replica_speed.h"
#include "tailcast/cache/write_link.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cache {

// A fabric read under way on an endpoint that is not immediate, with the memory that it lands in.
class FabricRead {
 public:
  // How it is let go of.
  struct Disposer {
    void operator()(FabricRead* read) const { read->Dispose(); }
  };
  using Ptr = std::unique_ptr<FabricRead, Disposer>;

  virtual ~FabricRead() = default;
  // All parts of what was submitted have completed, the worst of them with `status`. `self` is this
  // read: submit it again, or let it go.
  virtual void OnCompleted(Ptr self, fabric::ReadStatus status) = 0;
  // It never completes: its connection is gone. The endpoint may write into its memory until both
  // are freed, on a later turn; a scan's destinations are released.
  virtual void OnLost() = 0;

  // When it was submitted last.
  MonotonicTime submitted_at() const { return submitted_at_; }

 protected:
  // Some part of what was submitted last timed out: the device may write late where it was to land.
  bool timed_out() const { return timed_out_; }
  virtual void Dispose() { delete this; }

 private:
  friend class ReplicaLink;
  MonotonicTime submitted_at_;
  uint64_t token_ = 0;
  uint32_t parts_ = 0;                // that have not completed
  fabric::ScanRead* scan_ = nullptr;  // that has not completed
  fabric::ReadStatus worst_ = fabric::ReadStatus::kOk;
  bool timed_out_ = false;
};

// Memory that a connection's driver registered, in places of which each holds what one read of a
// chunk brings. As long as the connection lives; who holds a place longer keeps the memory.
class ReadPlaces {
 public:
  static constexpr uint32_t kBytes = 4352;
  // Null: the driver has no use for them, or no memory.
  static std::shared_ptr<ReadPlaces> Make(fabric::Endpoint& endpoint);

  // Null: all are taken.
  char* Take() {
    if (free_.empty()) return nullptr;
    const uint32_t place = free_.back();
    free_.pop_back();
    return memory_.get() + size_t{place} * kBytes;
  }
  // Not of a read that timed out: the device may write there late.
  void GiveBack(const char* place) {
    free_.push_back(static_cast<uint32_t>((place - memory_.get()) / kBytes));
  }
  size_t free() const { return free_.size(); }

 private:
  static constexpr uint32_t kCount = 64;
  explicit ReadPlaces(std::shared_ptr<char[]> memory);
  const std::shared_ptr<char[]> memory_;
  std::vector<uint32_t> free_;
};

class ReplicaLink {
 public:
  enum class State : uint8_t { kIdle, kConnecting, kReady, kRetired };

  // The context and both connectors outlive it.
  ReplicaLink(ClientContext& context, fabric::Connector& fabric, rpc::Connector& rpc,
              Replica replica);
  ~ReplicaLink();
  ReplicaLink(const ReplicaLink&) = delete;
  ReplicaLink& operator=(const ReplicaLink&) = delete;

  void Connect();
  // Is kIdle until then, if nobody connects it before.
  void ConnectAfter(Duration delay);
  // For ever.
  void Retire();

  const Replica& replica() const { return replica_; }
  // Of the incarnation that it links to; as the newest ring says.
  bool whole() const { return standing_.read; }
  // In which rings its acknowledgements count.
  MutationCore::Rings standing() const { return standing_; }
  void set_standing(MutationCore::Rings standing) { standing_ = standing; }
  State state() const { return state_; }
  // Of the connection that is ready, or else of the last one.
  const layout::Geometry& geometry() const { return geometry_; }
  bool immediate() const { return immediate_; }
  // How it is connected, if it is kReady.
  const fabric::Way& way() const { return way_; }
  // For keys of overflowed buckets; null: it has no address.
  rpc::Client* rpc() { return rpc_.get(); }
  WriteLink& writes() { return writes_; }

  // Worth asking now.
  bool ReadyNow() const {
    return state_ == State::kReady &&
           (health_.failures() == 0 || health_.Usable(context_.loop.Now()));
  }
  // As ReadyNow, of whoever asks in this very moment: after a failure it is true for one.
  bool TryAsk() {
    return state_ == State::kReady &&
           (health_.failures() == 0 || health_.TryAsk(context_.loop.Now()));
  }
  // Worth asking now or when it has connected. One that failed before makes nobody wait.
  bool Usable() const {
    return state_ == State::kConnecting ? health_.failures() == 0 : ReadyNow();
  }
  // How fast its reads are answered, if they are not inside the call.
  ReplicaSpeed& speed() { return speed_; }
  // A read that was submitted at `asked` came to `status`, which is not kOk. May lose the
  // connection.
  void OnReadError(fabric::ReadStatus status, MonotonicTime asked);
  // The state is kConnecting: `task` runs when it is not any more.
  void WhenConnected(Task task) { waiting_.push_back(std::move(task)); }

  // ---- immediate endpoints, state kReady ----
  // Reads inside the call; at most four. The worst status.
  fabric::ReadStatus ReadNow(std::span<const fabric::ReadDescriptor> descriptors);
  // Fetches what a read of this chunk will look at: the key's bucket; when that is there, the entry
  // that it points to.
  void PrefetchBucket(const ChunkRead& read) { Prefetch(read, 0); }
  void PrefetchEntry(const ChunkRead& read) { Prefetch(read, 1); }
  // The entry, if it is where it was.
  void PrefetchEntry(const ChunkRead& read, const layout::Location& location) {
    const uint32_t from = std::max(read.have, read.length);
    endpoint_->Prefetch(layout::kDataRegion, location.offset, layout::kEntryHeaderBytes);
    if (from >= read.want) return;
    endpoint_->Prefetch(layout::kDataRegion, location.offset + layout::kEntryHeaderBytes + from,
                        std::min(read.want - from, kPrefetchBytesMax));
  }

  // ---- other endpoints, with a connection ----
  // Memory for what is read over this connection; null: any is as good.
  const std::shared_ptr<ReadPlaces>& places() const { return places_; }
  // Whether the server finds keys itself: SubmitScan works.
  bool scans() const { return scans_; }
  // Puts the parts of a read into the next batch. Their tokens are set.
  void Submit(FabricRead::Ptr read, std::span<fabric::ReadDescriptor> descriptors);
  // The same of a scan, which lies in the read.
  void SubmitScan(FabricRead::Ptr read, fabric::ScanRead& scan);
  // Nothing is written any more where the scan that this read has submitted was to land.
  void Release(FabricRead& read);
  // Gives the batch to the endpoint.
  void SendBatch();

  // ---- doorbells, state kReady ----
  bool watchable() const { return endpoint_->capabilities().watch; }
  // As Endpoint::Watch, of a word of the index. While there is one the server's heartbeat is looked
  // at; when it stops, or the connection is lost, the watch answers kUnreachable.
  uint64_t Watch(uint64_t offset, uint32_t last_seen, Duration timeout,
                 Callback<void(fabric::WatchOutcome)> done);
  void CancelWatch(uint64_t id);

 private:
  // Of a chunk's payload.
  static constexpr uint32_t kPrefetchBytesMax = 4096;
  class PageRead;
  struct Remains;
  struct LinkWatch {
    uint64_t endpoint_watch = 0;
    MonotonicTime began;
    Callback<void(fabric::WatchOutcome)> done;
  };

  void Prefetch(const ChunkRead& read, int step) {
    endpoint_->Prefetch(prefetch_,
                        EncodeKeyScan(read.key, std::max(read.have, read.length), read.want), step);
  }
  void Become(State state);
  // It is connected from now on, or not any more.
  void CountReady(bool ready);
  // A read came to its end with bytes.
  void OnBytes() {
    if (health_.failures() != 0) health_.OnSuccess();
  }
  // A token for the read, which is kept under it from now on.
  uint64_t Keep(FabricRead::Ptr read, size_t parts);
  void OnConnected(Result<fabric::BestEndpoint> best);
  bool IsBetter(const std::string& address, const std::string& current) const;
  // Connected by less than the best address: sees now and then whether a better one works.
  void LookForBetter();
  // Reads the header page and hands it over.
  void ReadPage(void (ReplicaLink::*on_page)(fabric::ReadStatus status, const char* page));
  void OnGeometry(fabric::ReadStatus status, const char* page);
  // The cause is counted already.
  void OnConnectFailed();
  // The same of an address that led somewhere, and not to the cache.
  void OnMisled();
  void CountReadError(fabric::ReadStatus status);
  // Gives up the connection, and tries again when the back-off allows.
  void Lose();
  void EndConnection(State next);
  void OnCompletions();
  void OnDoorbell(uint64_t id, fabric::WatchOutcome outcome);
  void EndWatches();
  void BeatAfterInterval();
  void OnHeartbeat(fabric::ReadStatus status, const char* page);

  ClientContext& context_;
  fabric::Connector& fabric_;
  const Replica replica_;
  MutationCore::Rings standing_;
  const std::unique_ptr<rpc::Client> rpc_;
  WriteLink writes_;
  State state_ = State::kIdle;
  bool immediate_ = false, scans_ = false;
  fabric::Way way_;         // of the connection that is, or was last
  std::string misleading_;  // an address that led to no memory of ours: others are tried first
  // Until a better address is tried; longer each time that one misleads.
  Duration better_after_;
  bool told_no_key_ = false;  // that the keys don't fit, since the last connection
  layout::Geometry geometry_;
  fabric::ScanPrefetch prefetch_;  // of it
  ReplicaHealth health_;
  ReplicaSpeed speed_;
  std::vector<Task> waiting_;  // for the end of kConnecting
  Timer retry_;
  Timer better_;

  std::vector<FabricRead::Ptr> reads_;  // under way, by index; null: free
  std::vector<uint32_t> free_reads_;
  uint64_t next_read_ = 1;
  std::vector<fabric::ReadDescriptor> batch_;  // not given to the endpoint yet
  std::vector<fabric::ScanRead*> scan_batch_;  // neither
  MonotonicTime batch_began_;

  std::map<uint64_t, LinkWatch> watches_;
  uint64_t next_watch_ = 1;
  HeartbeatCore heart_;
  MonotonicTime look_began_;  // the read of the heartbeat that is under way, or the last one
  Timer heartbeat_;

  std::unique_ptr<fabric::Endpoint> endpoint_;
  std::shared_ptr<ReadPlaces> places_;  // of it
  Scope connection_;                    // what the endpoint of now, and whoever makes it, calls
  Scope scope_;
};

}  // namespace tailcast::cache
