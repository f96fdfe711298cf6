#include "tailcast/fabric/verbs_door.h"

#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr int kBacklog = 1024;
// Of the completion queue, which stays empty.
constexpr int kQueueEntries = 16;
// siw's library takes an object that the kernel places at offset 0x90000 of the process's mapping
// for one that failed, and so would each try after it: this queue is so large that it lies there
// itself.
constexpr int kIwarpQueueEntries = 32768;
// Queue pairs of the device that are left to others.
constexpr int kQueuePairsSpared = 16;

Status Failed(const std::string& what) {
  return UnavailableError(what + ": " + std::strerror(errno));
}

VerbsKey KeyOf(const ibv_mr& mr, uint64_t at = 0) {
  return {.address = reinterpret_cast<uintptr_t>(mr.addr) + at, .key = mr.rkey, .reserved = 0};
}

}  // namespace

VerbsDoor::VerbsDoor(const DoorContext& context, std::string host)
    : reactor_(context.reactor), memory_(context.memory), host_(std::move(host)), options_([&] {
        ExporterOptions options = *context.options;
        const bool v6 = host_.find(':') != std::string::npos;
        options.tcp_listen = (v6 ? "[" + host_ + "]" : host_) + ":0";
        options.tcp_advertised_host.clear();
        return options;
      }()) {
  DoorContext tcp = context;
  tcp.options = &options_;
  tcp_ = std::make_unique<TcpDoor>(tcp, this);
}

VerbsDoor::~VerbsDoor() {
  tcp_ = nullptr;
  reactor_->Call([this] { Shut(); });
}

Result<std::string> VerbsDoor::Listen() {
  Status status;
  reactor_->Call([&] {
    status = Open();
    if (!status.ok()) Shut();
  });
  if (!status.ok()) return status;
  return tcp_->Listen();
}

void VerbsDoor::Shut() {
  EndAll();
  if (events_ != nullptr) reactor_->Remove(events_->fd);
  cq_ = nullptr;
  pd_ = nullptr;
  listener_ = nullptr;
  events_ = nullptr;
}

Status VerbsDoor::Open() {
  TAILCAST_ASSIGN_OR_RETURN(events_, MakeEventChannel());
  TAILCAST_RETURN_IF_ERROR(reactor_->Add(events_->fd, EPOLLIN, &events_handler_));
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
  if (const int error = ibv_query_device(id->verbs, &device_); error != 0) {
    return ErrnoStatus(error, "ask the RDMA device what it can do");
  }
  pd_.reset(ibv_alloc_pd(id->verbs));
  if (pd_ == nullptr) return Failed("make an RDMA protection domain");
  const int entries =
      std::min(device_.max_cqe, IsIwarp(id->verbs) ? kIwarpQueueEntries : kQueueEntries);
  cq_.reset(ibv_create_cq(id->verbs, entries, nullptr, nullptr, 0));
  if (cq_ == nullptr) return Failed("make an RDMA completion queue");
  return Register();
}

// Readers can read with these keys, and write with none. The engine's own mapping cannot be
// written, either.
Status VerbsDoor::Register() {
  const auto add = [this](const char* data, uint64_t size, const std::string& what) {
    keys_.emplace_back(
        ibv_reg_mr(pd_.get(), const_cast<char*>(data), size, IBV_ACCESS_REMOTE_READ));
    if (keys_.back() != nullptr) return OkStatus();
    const int error = errno;
    keys_.clear();
    return ResourceExhaustedError("register " + what + " for RDMA, " + std::to_string(size) +
                                  " bytes: " + std::strerror(error) +
                                  " (raise the limit of locked memory, ulimit -l?)");
  };
  for (RegionId id = 0; id < memory_->regions().size(); ++id) {
    const RegionMemory::Region& region = memory_->regions()[id];
    TAILCAST_RETURN_IF_ERROR(
        add(region.readable.data(), region.size, "region " + std::to_string(id)));
  }
  return add(reinterpret_cast<const char*>(&memory_->control()), kControlBytes, "the control page");
}

void VerbsDoor::EndAll() {
  connected_.clear();
  waiting_.clear();
  tickets_.clear();
  keys_.clear();
}

void VerbsDoor::CloseConnections() {
  tcp_->CloseConnections();  // with their queue pairs
  reactor_->Call([this] { EndAll(); });
}

void VerbsDoor::Renew() {
  reactor_->Call([this] {
    if (listener_ == nullptr || !keys_.empty()) return;
    if (const Status status = Register(); !status.ok()) {
      kLog.Error(options_.name, ": no readers by RDMA: ", status.ToString());
    }
  });
}

VerbsOffers::Made VerbsDoor::Offer() {
  if (keys_.empty()) return None("its memory is not registered");
  const uint64_t most =
      std::min<uint64_t>(options_.connections_max,
                         static_cast<uint64_t>(std::max(1, device_.max_qp - kQueuePairsSpared)));
  if (tickets_.size() >= most) {
    RefusedConnections("verbs", HelloStatus::kTooMany).Add();
    return None("it has too many RDMA connections");
  }
  VerbsOffer offer;
  VerbsOfferHead& head = offer.head;
  if (getrandom(head.token.data(), sizeof(head.token), 0) != sizeof(head.token)) {
    return None("it has no random numbers");
  }
  head.version = kVerbsVersion;
  head.port = port_;
  head.beat_timeout_us = static_cast<uint64_t>(options_.beat_timeout.micros());
  head.stall_timeout_us = static_cast<uint64_t>(options_.peer_timeout.micros());
  head.reads_max = static_cast<uint32_t>(std::clamp(device_.max_qp_rd_atom, 1, 255));
  head.control = KeyOf(*keys_.back(), kVerbsControlAt);
  std::snprintf(head.host, sizeof(head.host), "%s", host_.c_str());
  for (size_t i = 0; i + 1 < keys_.size(); ++i) offer.regions.push_back(KeyOf(*keys_[i]));
  const uint64_t ticket = next_ticket_++;
  tickets_[ticket].token = head.token;
  waiting_[head.token] = ticket;
  return {.body = EncodeVerbsOffer(offer), .regions = offer.regions.size(), .ticket = ticket};
}

void VerbsDoor::Forget(uint64_t ticket) {
  auto node = tickets_.extract(ticket);
  if (!node) return;  // Invalidate was before
  waiting_.erase(node.mapped().token);
  connected_.erase(node.mapped().connection.get());
}

void VerbsDoor::OnEvents() {
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(events_.get(), &event) == 0) {
    const rdma_cm_event_type type = event->event;
    rdma_cm_id* const id = event->id;
    const rdma_conn_param asked = event->param.conn;
    VerbsHello hello{};
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST && asked.private_data != nullptr &&
        asked.private_data_len >= sizeof(hello)) {
      std::memcpy(&hello, asked.private_data, sizeof(hello));
    }
    rdma_ack_cm_event(event);  // before anything ends the connection, which waits for it
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      OnRequest(id, asked, hello);
    } else if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_CONNECT_ERROR ||
               type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_REJECTED) {
      // Its ticket stays used until the tcp connection ends.
      const auto it = connected_.find(id);
      if (it == connected_.end()) continue;
      const uint64_t ticket = it->second;
      connected_.erase(it);
      tickets_[ticket].connection = nullptr;
    }
  }
}

void VerbsDoor::OnRequest(rdma_cm_id* id, const rdma_conn_param& asked, const VerbsHello& hello) {
  VerbsOwned<rdma_cm_id> connection(id);
  const auto it = waiting_.find(hello.token);
  if (hello.magic != kVerbsMagic || it == waiting_.end()) {
    BadInput("verbs", "server").Add();
    return Refuse(std::move(connection), "it has no token of ours");
  }
  const uint64_t ticket = it->second;
  waiting_.erase(it);  // once
  if (const Status status = Accept(id, asked); !status.ok()) {
    RefusedConnections("verbs", HelloStatus::kTooMany).Add();
    return Refuse(std::move(connection), status.ToString());
  }
  connected_[id] = ticket;
  tickets_[ticket].connection = std::move(connection);
}

void VerbsDoor::Refuse(VerbsOwned<rdma_cm_id> id, const std::string& why) {
  SocketAddress peer;
  if (const sockaddr* address = rdma_get_peer_addr(id.get()); address != nullptr) {
    peer.length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&peer.storage, address, peer.length);
  }
  if (const auto rest = log_limit_.Admit(reactor_->Now())) {
    kLog.Warn(options_.name, ": refusing the RDMA connection of ", peer.ToString(), ": ", why,
              *rest);
  }
  rdma_reject(id.get(), nullptr, 0);
}

Status VerbsDoor::Accept(rdma_cm_id* id, const rdma_conn_param& asked) {
  if (id->verbs != listener_->verbs) return UnavailableError("it came to another RDMA device");
  ibv_qp_init_attr queue{};
  queue.send_cq = queue.recv_cq = cq_.get();
  queue.qp_type = IBV_QPT_RC;
  queue.cap = {.max_send_wr = 1,
               .max_recv_wr = 1,
               .max_send_sge = 1,
               .max_recv_sge = 1,
               .max_inline_data = 0};
  errno = 0;
  if (rdma_create_qp(id, pd_.get(), &queue) != 0) return Failed("make a queue pair");
  rdma_conn_param accept{};
  // READs that the device answers for this reader at a time; none the other way.
  accept.responder_resources = static_cast<uint8_t>(std::min(
      static_cast<int>(asked.initiator_depth), std::clamp(device_.max_qp_rd_atom, 1, 255)));
  accept.initiator_depth = 1;
  accept.rnr_retry_count = 7;
  if (rdma_accept(id, &accept) != 0) return Failed("accept");
  return OkStatus();
}

}  // namespace tailcast::fabric
