// The server's end of the tcp driver: a software engine for remote memory access. One thread
// answers batches of read descriptors straight from the region's memory with sendmsg, holds the
// doorbells, and finds readers that are gone. It runs no code of the memory's owner and takes no
// lock that the owner holds for long.
#pragma once

#include <atomic>
#include <cstdint>
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
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_message_door.h"

namespace tailcast::fabric {

struct TcpDoorOptions {
  std::string name;
  uint32_t connections_max = 0;
  uint32_t watches_max = 0;  // per connection
  uint32_t reads_max = 0;    // outstanding per connection
  Duration peer_timeout;
  Scanner scanner;             // null: scans are not answered
  ScanPrefetch scan_prefetch;  // may be null
};

// Threads: construction, Listen and destruction by one that is not the reactor's; the rest any.
class TcpDoor {
 public:
  // `messages`: null: message channels are refused.
  TcpDoor(Reactor* reactor, const RegionMemory* memory, TcpMessageDoor* messages,
          TcpDoorOptions options);
  ~TcpDoor();
  TcpDoor(const TcpDoor&) = delete;
  TcpDoor& operator=(const TcpDoor&) = delete;

  // "host:port". Returns the port.
  Result<uint16_t> Listen(const std::string& host_port);
  void CloseConnections();
  // See Exporter::Notify. Costs a fence and a load when nobody watches.
  void Notify(RegionId region, uint64_t offset);

 private:
  class Listener;
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

  void OnAccept();
  void OnTick();
  void Drop(int fd);
  // A connection more, of messages or of reads, would be too many.
  bool TooMany(bool messages) const {
    const uint32_t channels = messages_ != nullptr ? messages_->channels() : 0;
    return connections_.size() + channels > options_.connections_max ||
           (messages && channels >= TcpMessageDoor::kChannelsMax);
  }
  void DeliverNotifications();
  uint32_t LoadWord(const WordKey& key) const;
  using WatcherPlace = std::list<Watcher>::iterator;
  WatcherPlace AddWatcher(const WordKey& key, const Watcher& watcher);
  // In constant time: all who watch a word may give up at once.
  void RemoveWatcher(const WordKey& key, WatcherPlace place);

  Reactor* const reactor_;
  const RegionMemory* const memory_;
  TcpMessageDoor* const messages_;
  const TcpDoorOptions options_;
  const std::vector<std::span<const char>> views_;  // of the regions, for the scanner
  std::string address_;                             // for log lines
  Descriptor socket_;
  std::unique_ptr<Listener> listener_;
  uint64_t retry_timer_ = 0;
  uint64_t tick_timer_ = 0;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::unordered_map<WordKey, std::list<Watcher>, WordKeyHash> watchers_;

  std::atomic<int64_t> watch_count_{0};
  std::mutex notified_mutex_;
  std::unordered_set<WordKey, WordKeyHash> notified_;  // guarded; coalesced until the engine looks
  Scope scope_;                                        // reactor thread
};

}  // namespace tailcast::fabric
