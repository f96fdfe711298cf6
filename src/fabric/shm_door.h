// The server's end of the shm driver: hands the sealed memory to readers over a unix socket. After
// that a read costs the server nothing at all; the socket's end tells each side that the other
// died.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tailcast/base/scope.h"
#include "tailcast/fabric/message_service.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

// Threads: construction, Listen and destruction by one that is not the reactor's; connections()
// any.
class ShmDoor {
 public:
  // Each takes one of the words that a loop can sleep on (ThreadLoop::kWatchedWordsMax), and two
  // caches may share a loop. Further clients come over tcp.
  static constexpr size_t kChannelsMax = 48;

  // `messages`: null: message channels are refused.
  ShmDoor(Reactor* reactor, const RegionMemory* memory, MessageService* messages,
          uint32_t connections_max, std::string name);
  ~ShmDoor();
  ShmDoor(const ShmDoor&) = delete;
  ShmDoor& operator=(const ShmDoor&) = delete;

  Status Listen(const std::string& path);
  // Closes every connection; when it returns none is left.
  void CloseConnections();
  // Readers; who writes messages waits for no word of the regions.
  int readers() const { return reader_count_.load(std::memory_order_seq_cst); }

 private:
  class Listener;
  class Connection;
  void OnAccept();
  void Drop(int fd);
  void CountReaders() {
    reader_count_.store(static_cast<int>(connections_.size() - channels_),
                        std::memory_order_seq_cst);
  }

  Reactor* const reactor_;
  const RegionMemory* const memory_;
  MessageService* const messages_;
  const uint32_t connections_max_;
  const std::string name_;
  std::string path_;
  Descriptor socket_;
  std::unique_ptr<Listener> listener_;
  uint64_t retry_timer_ = 0;
  std::map<int, std::unique_ptr<Connection>> connections_;  // reactor thread
  size_t channels_ = 0;                                     // of connections_; reactor thread
  std::atomic<int> reader_count_{0};
  Scope scope_;  // reactor thread
};

}  // namespace tailcast::fabric
