// libibverbs and librdmacm with owners: what the verbs driver's two ends are made of. Only
// verbs_*.cc include it.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/fabric/verbs_queue.h"
#include "tailcast/fabric/verbs_wire.h"

namespace tailcast::fabric {

struct VerbsDeleter {
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
  // With its queue pair; waits until each of its events is acknowledged.
  void operator()(rdma_cm_id* id) const {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
  void operator()(ibv_cq* cq) const { ibv_destroy_cq(cq); }
  void operator()(ibv_srq* queue) const { ibv_destroy_srq(queue); }
  void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
};
template <typename T>
using VerbsOwned = std::unique_ptr<T, VerbsDeleter>;

inline constexpr char kConnectionManager[] = "/dev/infiniband/rdma_cm";

// Unavailable: this host has no RDMA device (that the process may use).
Result<VerbsOwned<rdma_event_channel>> MakeEventChannel();
// To the RDMA device that has this numeric address. Unavailable: none has.
Status BindTo(rdma_cm_id* id, const std::string& host);
Status FindRdmaDevice(const std::string& host);
// The connection manager draws a port without knowing those of tcp, which siw has in common: who is
// told EADDRINUSE draws again, so often.
inline constexpr int kVerbsPortsTried = 32;
// Makes get-calls on it return when there is nothing.
void SetNonBlocking(int fd);

inline bool IsIwarp(const ibv_context* device) {
  return device->device->transport_type == IBV_TRANSPORT_IWARP;
}

// Posts a reader's READs on a queue pair and polls its completion queue; owns neither. Data path:
// nothing else is called between a doorbell and a completion.
class VerbsPoster final : public VerbsQueue {
 public:
  // `offer` says where the regions are.
  VerbsPoster(ibv_qp* qp, ibv_cq* cq, const VerbsOffer& offer, size_t works_max);
  // Where works land: the first is their memory 0.
  void AddMemory(const char* begin, uint32_t key) { memories_.push_back({begin, key}); }
  bool Post(std::span<const VerbsWork> works) override;
  size_t Poll(std::span<VerbsDone> done) override;
  void Arm() override { ibv_req_notify_cq(cq_, 0); }

 private:
  ibv_qp* const qp_;
  ibv_cq* const cq_;
  struct Memory {
    const char* begin = nullptr;
    uint32_t key = 0;
  };
  std::vector<Memory> memories_;
  const std::vector<VerbsKey> regions_;
  const VerbsKey control_;
  std::vector<ibv_send_wr> works_;  // each bound to its sge and its successor
  std::vector<ibv_sge> places_;
};

}  // namespace tailcast::fabric
