// The server's end of message channels by RDMA: each begins as a message channel of the tcp door,
// which asks for an offer, and gets a queue pair for SENDs (verbs_messages_core.h). Where a device
// can have senders wait, all of them have their receive buffers together (verbs_pool_core.h), else
// each has its own.
//
// The connection manager's events are the tcp message door's reactor's. Messages are taken, handled
// and answered on the service's loop, which the device wakes: no other thread in between, once for
// all that came meanwhile, and not for what was sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/message_service.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/verbs_events.h"
#include "tailcast/fabric/verbs_link.h"
#include "tailcast/fabric/verbs_listener.h"
#include "tailcast/fabric/verbs_offers.h"
#include "tailcast/fabric/verbs_pool.h"

namespace tailcast::fabric {

class VerbsMessageDoor final : public VerbsChannelOffers, private VerbsListener::Owner {
 public:
  // The reactor outlives Shut, the service the door. Threads: construction and Listen by any one,
  // destruction and Shut by the loop's (or while nobody turns it).
  VerbsMessageDoor(Reactor* reactor, MessageService* service, VerbsQueuePairs* queue_pairs,
                   std::string name, std::string host, Duration peer_timeout);
  ~VerbsMessageDoor() = default;
  VerbsMessageDoor(const VerbsMessageDoor&) = delete;
  VerbsMessageDoor& operator=(const VerbsMessageDoor&) = delete;

  Status Listen();
  // Ends all channels. Offers nothing any more. Idempotent.
  void Shut();

  VerbsOffers::Made Offer(MessageService::Life life,
                          Callback<void(const std::string& why)> broke) override;
  void Forget(uint64_t ticket) override;
  MonotonicTime StuckSince(uint64_t ticket) override;

 private:
  struct Client {
    MessageService::Life life = 0;
    Callback<void(const std::string& why)> broke;
    VerbsOwned<rdma_cm_id> connection;  // null: it has not come yet, or is gone
  };
  Status Open();
  // Null: the next channel has buffers of its own.
  VerbsPool* Pool();
  // Few of the pool's buffers are posted.
  void OnLow();
  std::optional<VerbsRefusal> Accept(uint64_t ticket, VerbsOwned<rdma_cm_id>& id,
                                     const rdma_conn_param& asked) override;
  void OnDisconnected(uint64_t ticket) override;
  // Destroys the queue pair.
  void End(uint64_t ticket);
  // Loop.
  void OnCompletions();
  void Serve(uint64_t ticket);
  void Fail(uint64_t ticket, const std::string& why);

  Reactor* const reactor_;
  MessageService* const service_;
  const std::string name_;
  const Duration peer_timeout_;

  // Reactor.
  VerbsListener listener_;
  VerbsOwned<ibv_pd> pd_;
  VerbsOwned<ibv_comp_channel> completions_;  // its events are taken by the loop
  bool shares_ = false;
  std::optional<VerbsEvents> events_;   // if it shares
  std::unique_ptr<VerbsPool> pool_;     // if it shares, and there were channels
  std::map<uint64_t, Client> clients_;  // by ticket
  Scope scope_;

  struct Served {
    MessageService::Life life = 0;
    std::shared_ptr<VerbsLink> link;
  };
  std::mutex served_mutex_;
  std::map<uint64_t, Served> served_;  // guarded

  std::atomic<bool> cannot_watch_ = false;

  // Loop.
  bool watching_ = false;
  std::set<uint64_t> posted_;  // tickets whose next turn is posted
  std::string answer_;
  std::vector<std::string> messages_;
  Scope loop_scope_;
};

}  // namespace tailcast::fabric
