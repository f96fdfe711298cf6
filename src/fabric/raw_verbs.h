// Readers made by hand of libibverbs, for tests that do what no reader of ours does, and for the
// loop that the driver is measured beside. They are let in over tcp like others.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/tcp_session.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_wire.h"

namespace tailcast::fabric {

// A tcp connection to the server at a "verbs:" address, and what it was offered.
class LetIn {
 public:
  LetIn(ThreadLoop* loop, const std::string& address) {
    const std::string where = address.substr(6, address.rfind('#') - 6);
    tcp_ = std::make_shared<TcpSession>(
        DialContext{.loop = loop, .reactor = &reactor_, .read_timeout = Duration::Seconds(1)},
        ParseHostPort(where).value(), ExporterIncarnation::kAny);
    std::promise<VerbsOffer> offer;
    reactor_.Call([&] {
      tcp_->Start(scope_.Bind([&](const Status& status) {
        TAILCAST_CHECK(status.ok(), status.ToString());
        tcp_->AskForVerbs(scope_.Bind([&](const std::string& body, size_t regions) {
          offer.set_value(DecodeVerbsOffer(body, regions).value());
        }));
      }));
    });
    offer_ = offer.get_future().get();
  }
  ~LetIn() {
    reactor_.Call([this] { tcp_->Shutdown(); });
  }
  const VerbsOffer& offer() const { return offer_; }

 private:
  Reactor reactor_{"let-in"};
  std::shared_ptr<TcpSession> tcp_;
  VerbsOffer offer_;
  Scope scope_;  // reactor thread
};

// A queue pair made by hand, as far as the server lets it.
struct RawQueuePair {
  VerbsOwned<rdma_event_channel> events;
  std::string arena = std::string(1 << 20, '\0');
  VerbsOwned<ibv_mr> key;
  VerbsOwned<ibv_cq> cq;
  VerbsOwned<rdma_cm_id> id;
  rdma_cm_event_type last{};
  int ports_tried = 0;

  void Next() {
    rdma_cm_event* event = nullptr;
    pollfd waits{.fd = events->fd, .events = POLLIN, .revents = 0};
    TAILCAST_CHECK(poll(&waits, 1, 10'000) == 1, "no event of the connection manager");
    TAILCAST_CHECK(rdma_get_cm_event(events.get(), &event) == 0,
                   "the connection manager or the device refuses");
    last = event->event;
    rdma_ack_cm_event(event);
  }
  // What came of it: RDMA_CM_EVENT_ESTABLISHED, or another.
  rdma_cm_event_type Connect(const VerbsOffer& offer, const void* hello, size_t bytes) {
    events = std::move(MakeEventChannel()).value();
    rdma_cm_id* made = nullptr;
    TAILCAST_CHECK(rdma_create_id(events.get(), &made, nullptr, RDMA_PS_TCP) == 0,
                   "the connection manager or the device refuses");
    id.reset(made);
    SocketAddress address =
        ResolveNumber({.host = offer.head.host, .port = static_cast<uint16_t>(offer.head.port)})
            .value();
    TAILCAST_CHECK(rdma_resolve_addr(made, nullptr, address.get(), 2000) == 0,
                   "the connection manager or the device refuses");
    Next();
    TAILCAST_CHECK(rdma_resolve_route(made, 2000) == 0,
                   "the connection manager or the device refuses");
    Next();
    cq.reset(ibv_create_cq(made->verbs, 256, nullptr, nullptr, 0));
    ibv_qp_init_attr queue{};
    queue.send_cq = queue.recv_cq = cq.get();
    queue.qp_type = IBV_QPT_RC;
    queue.cap = {.max_send_wr = 128, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1};
    TAILCAST_CHECK(rdma_create_qp(made, nullptr, &queue) == 0,
                   "the connection manager or the device refuses");
    key.reset(ibv_reg_mr(made->pd, arena.data(), arena.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    rdma_conn_param connect{};
    connect.private_data = hello;
    connect.private_data_len = static_cast<uint8_t>(bytes);
    connect.responder_resources = 1;
    connect.initiator_depth = static_cast<uint8_t>(std::min(offer.head.reads_max, 16u));
    connect.retry_count = connect.rnr_retry_count = 7;
    if (rdma_connect(made, &connect) != 0) {
      if (errno == ECONNREFUSED) return RDMA_CM_EVENT_REJECTED;  // siw, inside the call
      // See kVerbsPortsTried.
      TAILCAST_CHECK(errno == EADDRINUSE && ++ports_tried < kVerbsPortsTried,
                     "the connection manager or the device refuses");
      id = nullptr;  // with its queue pair
      cq = nullptr;
      key = nullptr;
      return Connect(offer, hello, bytes);
    }
    Next();
    return last;
  }
  rdma_cm_event_type Connect(const VerbsOffer& offer) {
    const VerbsHello hello{.magic = kVerbsMagic, .token = offer.head.token};
    return Connect(offer, &hello, sizeof(hello));
  }
  // Of one SEND of the server's.
  void PostReceive() {
    ibv_sge place{.addr = reinterpret_cast<uintptr_t>(arena.data() + arena.size() / 2),
                  .length = 8192,
                  .lkey = key->lkey};
    ibv_recv_wr work{};
    work.sg_list = &place;
    work.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    TAILCAST_CHECK(ibv_post_recv(id->qp, &work, &bad) == 0, "the device refuses");
  }
  // One work, of `opcode`, to the first bytes of region 0 as `offer` has it. Whether it was done.
  // `flags`: beside those that it needs.
  bool Do(const VerbsOffer& offer, ibv_wr_opcode opcode, unsigned flags = 0, uint32_t bytes = 64) {
    ibv_sge place{
        .addr = reinterpret_cast<uintptr_t>(arena.data()), .length = bytes, .lkey = key->lkey};
    ibv_send_wr work{};
    work.sg_list = &place;
    work.num_sge = 1;
    work.opcode = opcode;
    work.send_flags = IBV_SEND_SIGNALED | flags;
    if (opcode != IBV_WR_SEND) {
      work.wr.rdma.remote_addr = offer.regions[0].address;
      work.wr.rdma.rkey = offer.regions[0].key;
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(id->qp, &work, &bad) != 0) return false;
    ibv_wc done{};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < end) {
      if (ibv_poll_cq(cq.get(), 1, &done) == 1) return done.status == IBV_WC_SUCCESS;
      // Some devices end the connection and never flush.
      pollfd waits{.fd = events->fd, .events = POLLIN, .revents = 0};
      if (poll(&waits, 1, 1) == 1)
        return ibv_poll_cq(cq.get(), 1, &done) == 1 && done.status == IBV_WC_SUCCESS;
    }
    return false;
  }
};

}  // namespace tailcast::fabric
