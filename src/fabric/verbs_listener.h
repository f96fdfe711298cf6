// How queue pairs come in to a server: by a connection request with a token, which its client got
// over tcp, where it was let in. A token is good once, and until its ticket is forgotten.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/fabric/log_limit.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_offers.h"
#include "tailcast/fabric/verbs_wire.h"

namespace tailcast::fabric {

// Why a queue pair does not come in.
struct VerbsRefusal {
  const char* cause;  // of the counter, as RefusedConnections
  Status status;      // for people
};

// Threads: the reactor's; construction and destruction any.
class VerbsListener final : public Reactor::Handler {
 public:
  class Owner {
   public:
    // Of a ticket that is known and not used yet. Makes the queue pair, accepts, and takes `id`; or
    // says why not, and it is refused.
    virtual std::optional<VerbsRefusal> Accept(uint64_t ticket, VerbsOwned<rdma_cm_id>& id,
                                               const rdma_conn_param& asked) = 0;
    // The connection has ended: destroy it. Its ticket stays used until it is forgotten.
    virtual void OnDisconnected(uint64_t ticket) = 0;

   protected:
    ~Owner() = default;
  };
  // `name`: for log lines; `host`: numeric. Everything that is passed outlives it.
  VerbsListener(Reactor* reactor, Owner* owner, VerbsQueuePairs* queue_pairs, std::string name,
                std::string host);
  ~VerbsListener() = default;  // shut, or never open
  VerbsListener(const VerbsListener&) = delete;
  VerbsListener& operator=(const VerbsListener&) = delete;

  Status Open();
  // After the queue pairs were destroyed. Idempotent.
  void Shut();
  bool is_open() const { return listener_ != nullptr; }

  // Of an open one.
  ibv_context* device() const { return listener_->verbs; }
  const ibv_device_attr& attributes() const { return attributes_; }
  const std::string& host() const { return host_; }
  uint16_t port() const { return port_; }

  // A ticket and its token. Nothing: there are no more queue pairs.
  struct Ticket {
    uint64_t number = 0;
    VerbsToken token{};
  };
  std::optional<Ticket> Draw();
  // Its queue pair is the owner's to destroy. Of unknown ones nothing happens.
  void Forget(uint64_t ticket);
  void ForgetAll();

  void OnEvents(uint32_t) override;

 private:
  struct Known {
    VerbsToken token{};
    const rdma_cm_id* id = nullptr;  // null: it has not come yet, or is gone
  };
  void OnRequest(rdma_cm_id* id, const rdma_conn_param& asked,
                 const std::optional<VerbsHello>& hello);
  std::optional<VerbsRefusal> Admit(uint64_t ticket, VerbsOwned<rdma_cm_id>& id,
                                    const rdma_conn_param& asked);
  void Refuse(VerbsOwned<rdma_cm_id> id, const VerbsRefusal& why);

  Reactor* const reactor_;
  Owner* const owner_;
  VerbsQueuePairs* const queue_pairs_;  // one is taken for each ticket
  const std::string name_;
  const std::string host_;
  uint16_t port_ = 0;
  ibv_device_attr attributes_{};
  // In the order of making: each is destroyed before what it is made of.
  VerbsOwned<rdma_event_channel> events_;
  VerbsOwned<rdma_cm_id> listener_;
  std::map<uint64_t, Known> tickets_;
  std::map<VerbsToken, uint64_t> waiting_;  // tokens that were not used yet
  std::unordered_map<const rdma_cm_id*, uint64_t> connected_;
  uint64_t next_ticket_ = 1;
  LogLimit log_limit_;
};

}  // namespace tailcast::fabric
