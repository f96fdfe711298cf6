#include "tailcast/fabric/verbs_dialer.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tailcast::fabric {
namespace {

constexpr int kResolveMillis = 2000;

std::string Errno(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace

Status VerbsDialer::Open() {
  TAILCAST_ASSIGN_OR_RETURN(events_, MakeEventChannel());
  return OkStatus();
}

Status VerbsDialer::Start(std::string host, uint16_t port, const VerbsToken& token) {
  where_ = {.host = std::move(host), .port = port};
  hello_ = {.magic = kVerbsMagic, .token = token};
  TAILCAST_RETURN_IF_ERROR(reactor_->Add(events_->fd, EPOLLIN, this));
  watched_ = true;
  return Resolve();
}

void VerbsDialer::Stop() {
  if (std::exchange(stopped_, true)) return;
  if (watched_) reactor_->Remove(events_->fd);
  DestroyQueuePair();
  events_ = nullptr;
}

// The queue pair first: after that no device writes to the owner's memory.
void VerbsDialer::DestroyQueuePair() {
  id_ = nullptr;
  owner_->Discard();
}

Status VerbsDialer::Resolve() {
  Result<SocketAddress> address = ResolveNumber(where_);
  if (!address.ok()) {
    return UnavailableError("the server at " + name_ + " offers RDMA at \"" + where_.host +
                            "\", which is no address");
  }
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(events_.get(), &id, this, RDMA_PS_TCP) != 0) {
    return UnavailableError(Errno("make an RDMA connection"));
  }
  id_.reset(id);
  if (rdma_resolve_addr(id, nullptr, address->get(), kResolveMillis) != 0) {
    return UnavailableError(Errno("find the RDMA device for " + address->ToString()));
  }
  return OkStatus();
}

void VerbsDialer::OnEvents(uint32_t) {
  const auto held = owner_->Hold();
  rdma_cm_event* event = nullptr;
  while (!stopped_ && rdma_get_cm_event(events_.get(), &event) == 0) {
    const rdma_cm_event copy = *event;
    rdma_ack_cm_event(event);  // before anything ends the connection, which waits for it
    OnEvent(copy);
  }
}

void VerbsDialer::OnEvent(const rdma_cm_event& event) {
  if (failed_) return;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_.get(), kResolveMillis) != 0) {
        Fail(UnavailableError(Errno("find the RDMA route to " + name_)));
      }
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (Status status = Connect(); !status.ok()) Fail(std::move(status));
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      open_ = true;
      owner_->OnConnected(OkStatus());
      return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    default:
      break;
  }
  const std::string why =
      std::string(rdma_event_str(event.event)) + ", status " + std::to_string(event.status);
  if (open_) {
    owner_->OnDisconnected(why);
  } else {
    Fail(UnavailableError("the server at " + name_ + ": " + why));
  }
}

Status VerbsDialer::Connect() {
  rdma_conn_param connect{};
  TAILCAST_RETURN_IF_ERROR(owner_->Prepare(id_.get(), &connect));
  connect.private_data = &hello_;
  connect.private_data_len = sizeof(hello_);
  if (rdma_connect(id_.get(), &connect) == 0) return OkStatus();
  if (errno == EADDRINUSE && ++ports_tried_ < kVerbsPortsTried) {
    DestroyQueuePair();
    return Resolve();
  }
  return UnavailableError(Errno("connect by RDMA to " + name_));
}

void VerbsDialer::Fail(Status status) {
  if (std::exchange(failed_, true)) return;
  owner_->OnConnected(std::move(status));
}

}  // namespace tailcast::fabric
