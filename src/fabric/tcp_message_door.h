// The server's end of message channels over tcp. They have sockets of their own, so that a spike of
// readers does not stall writers (design: reads and writes apart). The service's loop receives,
// handles and answers: no other thread is woken on the way, unless it waits for words, too
// (base/thread_loop.h). A thread of the door lets clients in, sends what a socket does not take at
// once, and hangs up.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "tailcast/base/scope.h"
#include "tailcast/fabric/message_service.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/verbs_offers.h"

namespace tailcast::fabric {

// Threads: construction and destruction by the service's loop's (or while nobody turns it); the
// rest any.
class TcpMessageDoor {
 public:
  // Each has a buffer of 256 KiB for what comes, and keeps 520 KiB of answers that it does not
  // take.
  static constexpr uint32_t kChannelsMax = 1024;

  // The service outlives it.
  TcpMessageDoor(MessageService* service, std::string name, Duration peer_timeout);
  ~TcpMessageDoor();
  TcpMessageDoor(const TcpMessageDoor&) = delete;
  TcpMessageDoor& operator=(const TcpMessageDoor&) = delete;

  MessageService* service() const { return service_; }
  Reactor* reactor() { return &reactor_; }
  // Clients who ask get RDMA there; `verbs` outlives the door. Before the first Adopt, once.
  void OfferVerbs(VerbsChannelOffers* verbs) { verbs_ = verbs; }
  // That were adopted and are not closed.
  uint32_t channels() const { return channels_.load(std::memory_order_relaxed); }
  // Takes over a connection that has said a good hello; `welcome` is sent first.
  void Adopt(Descriptor fd, std::string peer, MessageService::Life life, std::string welcome);
  // When it returns, those that were adopted before are closed.
  void CloseConnections();

 private:
  class Connection;
  void Drop(int fd);  // reactor thread
  // Hangs up on who does not end what it began.
  void OnTick();
  void SayStuck(const std::string& peer) const;  // any thread

  MessageService* const service_;
  const std::string name_;
  const Duration peer_timeout_;
  VerbsChannelOffers* verbs_ = nullptr;  // null: none
  std::atomic<uint32_t> channels_{0};
  Reactor reactor_;
  std::map<int, std::shared_ptr<Connection>> connections_;  // reactor thread
  uint64_t tick_timer_ = 0;                                 // the same
  std::set<std::shared_ptr<Connection>> attended_;          // loop thread: those that it waits for
  Scope scope_;                                             // reactor thread
  Scope loop_scope_;                                        // loop thread
};

}  // namespace tailcast::fabric
