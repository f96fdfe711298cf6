// The server's end of the tcp driver: a software engine for remote memory access. One thread
// answers batches of read descriptors straight from the region's memory with sendmsg, holds the
// doorbells, and finds readers that are gone. It runs no code of the memory's owner and takes no
// lock that the owner holds for long.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/fabric/driver.h"
#include "tailcast/fabric/log_limit.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_entrance.h"
#include "tailcast/fabric/tcp_message_door.h"
#include "tailcast/fabric/verbs_offers.h"

namespace tailcast::fabric {

class TcpDoor final : public Door {
 public:
  // `verbs`: null: readers who ask for RDMA are told that there is none. It outlives the door.
  explicit TcpDoor(const DoorContext& context, VerbsOffers* verbs = nullptr);
  ~TcpDoor() override;
  TcpDoor(const TcpDoor&) = delete;
  TcpDoor& operator=(const TcpDoor&) = delete;

  Result<std::string> Listen() override;
  void CloseConnections() override;
  // Of message channels; null: they are refused.
  TcpMessageDoor* messages() const { return messages_.get(); }
  // Costs a fence and a load when nobody watches.
  void Notify(RegionId region, uint64_t offset) override;

 private:
  class Connection;
  struct WordKey {
    RegionId region;
    uint64_t offset;
    bool operator==(const WordKey&) const = default;
  };
  struct WordKeyHash {
    size_t operator()(const WordKey& k) const {
      return (k.offset * 0x9e3779b97f4a7c15ull) ^ (uint64_t{k.region} << 56);
    }
  };
  struct Watcher {
    Connection* connection;
    uint64_t id;
    uint32_t last_seen;
  };

  // Has proven that it belongs here.
  void Enter(TcpVisitor visitor);
  // Looks from time to time which connections are stuck, as long as there are any that may be.
  void LookAfter();
  void OnTick();
  void Drop(int fd);
  // A connection more, of messages or of reads, would be too many.
  bool TooMany(bool messages) const {
    const uint32_t channels = messages_ != nullptr ? messages_->channels() : 0;
    return connections_.size() + channels >= options_.connections_max ||
           (messages && channels >= TcpMessageDoor::kChannelsMax);
  }
  void DeliverNotifications();
  // A connection that has had its turn and has more to send. Whoever stands in line gets a turn
  // after the other, and between two of them the engine looks at everybody else: so those in line
  // make who asks for little wait for one turn, however many they are. First turns are given as
  // requests, or room for more, are seen: to as many as one look of the reactor finds.
  void StandInLine(Connection* connection);
  void NextInLine();
  uint32_t LoadWord(const WordKey& key) const;
  using WatcherPlace = std::list<Watcher>::iterator;
  WatcherPlace AddWatcher(const WordKey& key, const Watcher& watcher);
  // In constant time: all who watch a word may give up at once.
  void RemoveWatcher(const WordKey& key, WatcherPlace place);

  Reactor* const reactor_;
  const RegionMemory* const memory_;
  const std::unique_ptr<TcpMessageDoor> messages_;  // null: they are refused
  const ExporterOptions options_;
  const Scanner scanner_;                           // null: scans are not answered
  const ScanPrefetch scan_prefetch_;                // may be null
  VerbsOffers* const verbs_;                        // may be null
  const std::vector<std::span<const char>> views_;  // of the regions, for the scanner
  LogLimit log_limit_;                              // reactor thread
  // A thread of its own: what guests cost, readers do not wait for.
  Reactor doorman_{"fabric-door"};
  TcpEntrance entrance_;
  uint64_t tick_timer_ = 0;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::deque<Connection*> line_;
  bool line_moves_ = false;  // NextInLine is posted
  std::unordered_map<WordKey, std::list<Watcher>, WordKeyHash> watchers_;

  std::atomic<int64_t> watch_count_{0};
  std::mutex notified_mutex_;
  std::unordered_set<WordKey, WordKeyHash> notified_;  // guarded; coalesced until the engine looks
  Scope scope_;                                        // reactor thread
};

}  // namespace tailcast::fabric
