// The server's end of the verbs driver: a tcp door of its own, where connections begin, and queue
// pairs. Those of message channels are verbs_message_door.h's. Readers come with a token that the
// tcp door gave them (verbs_offers.h); each gets a queue pair that it may READ the regions through,
// and nothing else. All of them share a completion queue, which stays empty, and a protection
// domain; the device answers READs alone.
//
// Invalidate ends the generations (RegionMemory), then every queue pair, then the keys. A device
// answers nothing for a queue pair that is destroyed. On iWARP, what it answered before may still
// lie in a send queue, and siw sends from the pages themselves: there the control READ that ends
// each batch of the reader's tells it, since one connection's answers keep their order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/fabric/driver.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/tcp_door.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_listener.h"
#include "tailcast/fabric/verbs_message_door.h"
#include "tailcast/fabric/verbs_offers.h"

namespace tailcast::fabric {

// Threads: as Door's; offers are the reactor's.
class VerbsDoor final : public Door, public VerbsOffers, private VerbsListener::Owner {
 public:
  // `host`: the numeric address of an RDMA device.
  VerbsDoor(const DoorContext& context, std::string host);
  ~VerbsDoor() override;

  // Errors also: Unavailable: no device has the address. ResourceExhausted: the regions can't be
  // registered.
  Result<std::string> Listen() override;
  void CloseConnections() override;
  void Renew() override;
  void Notify(RegionId region, uint64_t offset) override { tcp_->Notify(region, offset); }

  Made Offer() override;
  void Forget(uint64_t ticket) override;

 private:
  Status Open();
  void Shut();
  Status Register();
  void EndAll();
  std::optional<VerbsRefusal> Accept(uint64_t ticket, VerbsOwned<rdma_cm_id>& id,
                                     const rdma_conn_param& asked) override;
  void OnDisconnected(uint64_t ticket) override { connections_.erase(ticket); }

  Reactor* const reactor_;
  const RegionMemory* const memory_;
  const std::string host_;
  const ExporterOptions options_;  // with where the tcp door listens
  VerbsQueuePairs queue_pairs_;
  VerbsListener listener_;
  // In the order of making: each is destroyed before what it is made of.
  VerbsOwned<ibv_pd> pd_;
  VerbsOwned<ibv_cq> cq_;
  std::vector<VerbsOwned<ibv_mr>> keys_;  // of the regions, then of the control page; or none
  std::map<uint64_t, VerbsOwned<rdma_cm_id>> connections_;  // by ticket
  std::unique_ptr<VerbsMessageDoor> messages_;              // null: none are served
  std::unique_ptr<TcpDoor> tcp_;
};

}  // namespace tailcast::fabric
