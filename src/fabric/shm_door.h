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
#include "tailcast/fabric/driver.h"
#include "tailcast/fabric/guest_list.h"
#include "tailcast/fabric/log_limit.h"
#include "tailcast/fabric/message_service.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

class ShmDoor final : public Door {
 public:
  // Each takes one of the words that a loop can sleep on (ThreadLoop::kWatchedWordsMax), and two
  // caches may share a loop. Further clients come over tcp.
  static constexpr size_t kChannelsMax = 48;
  // Connections that have not proven yet that they belong here.
  static constexpr size_t kGuestsMax = 256;

  explicit ShmDoor(const DoorContext& context);
  ~ShmDoor() override;
  ShmDoor(const ShmDoor&) = delete;
  ShmDoor& operator=(const ShmDoor&) = delete;

  Result<std::string> Listen() override;
  void CloseConnections() override;
  void Notify(RegionId region, uint64_t offset) override;

 private:
  class Listener;
  class Connection;
  void OnAccept();
  void Drop(int fd);
  void CountReaders() {
    reader_count_.store(static_cast<int>(connections_.size() - guests_.size() - channels_),
                        std::memory_order_seq_cst);
  }

  Reactor* const reactor_;
  const RegionMemory* const memory_;
  MessageService* const messages_;
  const uint32_t connections_max_;
  const std::string name_;
  const SharedCellKey key_;
  const std::string path_;
  Descriptor socket_;
  std::unique_ptr<Listener> listener_;
  uint64_t retry_timer_ = 0;
  GuestList guests_{kGuestsMax};                            // of connections_; reactor thread
  std::map<int, std::unique_ptr<Connection>> connections_;  // reactor thread
  size_t channels_ = 0;                                     // the same
  LogLimit log_limit_;                                      // reactor thread
  // Who writes messages waits for no word of the regions, and is not among them.
  std::atomic<int> reader_count_{0};
  Scope scope_;  // reactor thread
};

}  // namespace tailcast::fabric
