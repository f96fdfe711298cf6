#include "tailcast/fabric/verbs_listener.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/cell_key.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr int kBacklog = 1024;

Status Failed(const std::string& what) {
  return UnavailableError(what + ": " + std::strerror(errno));
}

}  // namespace

VerbsListener::VerbsListener(Reactor* reactor, Owner* owner, VerbsQueuePairs* queue_pairs,
                             std::string name, std::string host)
    : reactor_(reactor),
      owner_(owner),
      queue_pairs_(queue_pairs),
      name_(std::move(name)),
      host_(std::move(host)) {}

Status VerbsListener::Open() {
  TAILCAST_ASSIGN_OR_RETURN(events_, MakeEventChannel());
  TAILCAST_RETURN_IF_ERROR(reactor_->Add(events_->fd, EPOLLIN, this));
  rdma_cm_id* id = nullptr;
  for (int tried = 1;; ++tried) {
    if (rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
      return Failed("make an RDMA listener");
    }
    listener_.reset(id);
    TAILCAST_RETURN_IF_ERROR(BindTo(id, host_));
    if (rdma_listen(id, kBacklog) == 0) break;
    if (errno != EADDRINUSE || tried == kVerbsPortsTried) {
      return Failed("listen by RDMA on " + host_);
    }
  }
  port_ = ntohs(rdma_get_src_port(id));
  if (const int error = ibv_query_device(id->verbs, &attributes_); error != 0) {
    return ErrnoStatus(error, "ask the RDMA device what it can do");
  }
  return OkStatus();
}

void VerbsListener::Shut() {
  ForgetAll();
  if (events_ != nullptr) reactor_->Remove(events_->fd);
  listener_ = nullptr;
  events_ = nullptr;
}

std::optional<VerbsListener::Ticket> VerbsListener::Draw() {
  if (!queue_pairs_->Take(attributes_.max_qp)) return std::nullopt;
  Ticket ticket{.number = next_ticket_++};
  const std::array<char, 32> random = RandomBytes();
  static_assert(sizeof(ticket.token) <= sizeof(random));
  std::memcpy(ticket.token.data(), random.data(), sizeof(ticket.token));
  tickets_[ticket.number].token = ticket.token;
  waiting_[ticket.token] = ticket.number;
  return ticket;
}

void VerbsListener::Forget(uint64_t ticket) {
  const auto node = tickets_.extract(ticket);
  if (!node) return;
  queue_pairs_->GiveBack(1);
  waiting_.erase(node.mapped().token);
  connected_.erase(node.mapped().id);
}

void VerbsListener::ForgetAll() {
  connected_.clear();
  waiting_.clear();
  queue_pairs_->GiveBack(tickets_.size());
  tickets_.clear();
}

void VerbsListener::OnEvents(uint32_t) {
  rdma_cm_event* event = nullptr;
  while (events_ != nullptr && rdma_get_cm_event(events_.get(), &event) == 0) {
    const rdma_cm_event_type type = event->event;
    rdma_cm_id* const id = event->id;
    const rdma_conn_param asked = event->param.conn;
    std::optional<VerbsHello> hello;  // taken before the event goes
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST && asked.private_data != nullptr) {
      hello =
          DecodeVerbsHello({static_cast<const char*>(asked.private_data), asked.private_data_len});
    }
    rdma_ack_cm_event(event);  // before anything ends the connection, which waits for it
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      OnRequest(id, asked, hello);
    } else if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_CONNECT_ERROR ||
               type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_REJECTED) {
      const auto it = connected_.find(id);
      if (it == connected_.end()) continue;
      const uint64_t ticket = it->second;
      connected_.erase(it);
      tickets_[ticket].id = nullptr;
      owner_->OnDisconnected(ticket);
    }
  }
}

void VerbsListener::OnRequest(rdma_cm_id* id, const rdma_conn_param& asked,
                              const std::optional<VerbsHello>& hello) {
  VerbsOwned<rdma_cm_id> connection(id);
  const auto it = hello.has_value() ? waiting_.find(hello->token) : waiting_.end();
  if (it == waiting_.end()) {
    BadInput("verbs", "server").Add();
    return Refuse(std::move(connection),
                  {"no_token", FailedPreconditionError("it has no token of ours")});
  }
  const uint64_t ticket = it->second;
  waiting_.erase(it);  // once
  if (const auto refusal = Admit(ticket, connection, asked)) {
    return Refuse(std::move(connection), *refusal);
  }
  connected_[id] = ticket;
  tickets_[ticket].id = id;
}

std::optional<VerbsRefusal> VerbsListener::Admit(uint64_t ticket, VerbsOwned<rdma_cm_id>& id,
                                                 const rdma_conn_param& asked) {
  if (id->verbs != device()) {
    return VerbsRefusal{"other_device", UnavailableError("it came to another RDMA device")};
  }
  return owner_->Accept(ticket, id, asked);
}

void VerbsListener::Refuse(VerbsOwned<rdma_cm_id> id, const VerbsRefusal& why) {
  RefusedConnections("verbs", why.cause).Add();
  SocketAddress peer;
  if (const sockaddr* address = rdma_get_peer_addr(id.get()); address != nullptr) {
    peer.length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&peer.storage, address, peer.length);
  }
  if (const auto rest = log_limit_.Admit(reactor_->Now())) {
    kLog.Warn(name_, ": refusing the RDMA connection of ", peer.ToString(), ": ", why.status,
              *rest);
  }
  rdma_reject(id.get(), nullptr, 0);
}

}  // namespace tailcast::fabric
