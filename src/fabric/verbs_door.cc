#include "tailcast/fabric/verbs_door.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
// Of the completion queue, which stays empty.
constexpr int kQueueEntries = 16;
// siw's library takes an object that the kernel places at offset 0x90000 of the process's mapping
// for one that failed, and so would each try after it: this queue is so large that it lies there
// itself.
constexpr int kIwarpQueueEntries = 32768;

Status Failed(const std::string& what) {
  return UnavailableError(what + ": " + std::strerror(errno));
}

VerbsKey KeyOf(const ibv_mr& mr, uint64_t at = 0) {
  return {.address = reinterpret_cast<uintptr_t>(mr.addr) + at, .key = mr.rkey, .reserved = 0};
}

}  // namespace

VerbsDoor::VerbsDoor(const DoorContext& context, std::string host)
    : reactor_(context.reactor),
      memory_(context.memory),
      host_(std::move(host)),
      options_([&] {
        ExporterOptions options = *context.options;
        const bool v6 = host_.find(':') != std::string::npos;
        options.tcp_listen = (v6 ? "[" + host_ + "]" : host_) + ":0";
        options.tcp_advertised_host.clear();
        return options;
      }()),
      listener_(reactor_, this, &queue_pairs_, options_.name, host_) {
  DoorContext tcp = context;
  tcp.options = &options_;
  tcp_ = std::make_unique<TcpDoor>(tcp, this);
  if (TcpMessageDoor* const messages = tcp_->messages(); messages != nullptr) {
    messages_ =
        std::make_unique<VerbsMessageDoor>(messages->reactor(), messages->service(), &queue_pairs_,
                                           options_.name, host_, options_.peer_timeout);
    messages->OfferVerbs(messages_.get());
  }
}

VerbsDoor::~VerbsDoor() {
  if (messages_ != nullptr) messages_->Shut();
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
  if (messages_ != nullptr) TAILCAST_RETURN_IF_ERROR(messages_->Listen());
  return tcp_->Listen();
}

void VerbsDoor::Shut() {
  EndAll();
  cq_ = nullptr;
  pd_ = nullptr;
  listener_.Shut();
}

Status VerbsDoor::Open() {
  TAILCAST_RETURN_IF_ERROR(listener_.Open());
  ibv_context* const device = listener_.device();
  pd_.reset(ibv_alloc_pd(device));
  if (pd_ == nullptr) return Failed("make an RDMA protection domain");
  const int entries = std::min(listener_.attributes().max_cqe,
                               IsIwarp(device) ? kIwarpQueueEntries : kQueueEntries);
  cq_.reset(ibv_create_cq(device, entries, nullptr, nullptr, 0));
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
  connections_.clear();
  listener_.ForgetAll();
  keys_.clear();
}

void VerbsDoor::CloseConnections() {
  tcp_->CloseConnections();  // with their queue pairs
  reactor_->Call([this] { EndAll(); });
}

void VerbsDoor::Renew() {
  reactor_->Call([this] {
    if (!listener_.is_open() || !keys_.empty()) return;
    if (const Status status = Register(); !status.ok()) {
      kLog.Error(options_.name, ": no readers by RDMA: ", status.ToString());
    }
  });
}

VerbsOffers::Made VerbsDoor::Offer() {
  if (keys_.empty()) return None("its memory is not registered");
  const auto ticket = listener_.Draw();
  if (!ticket.has_value()) {
    RefusedConnections("verbs", HelloStatus::kTooMany).Add();
    return None("it has too many RDMA connections");
  }
  VerbsOffer offer;
  VerbsOfferHead& head = offer.head;
  head.token = ticket->token;
  head.version = kVerbsVersion;
  head.port = listener_.port();
  head.beat_timeout_us = static_cast<uint64_t>(options_.beat_timeout.micros());
  head.stall_timeout_us = static_cast<uint64_t>(options_.peer_timeout.micros());
  head.reads_max = VerbsReadDepth(listener_.attributes().max_qp_rd_atom, 255);
  head.control = KeyOf(*keys_.back(), kVerbsControlAt);
  std::snprintf(head.host, sizeof(head.host), "%s", host_.c_str());
  for (size_t i = 0; i + 1 < keys_.size(); ++i) offer.regions.push_back(KeyOf(*keys_[i]));
  return {
      .body = EncodeVerbsOffer(offer), .regions = offer.regions.size(), .ticket = ticket->number};
}

void VerbsDoor::Forget(uint64_t ticket) {
  connections_.erase(ticket);
  listener_.Forget(ticket);
}

std::optional<VerbsRefusal> VerbsDoor::Accept(uint64_t ticket, VerbsOwned<rdma_cm_id>& id,
                                              const rdma_conn_param& asked) {
  ibv_qp_init_attr queue{};
  queue.send_cq = queue.recv_cq = cq_.get();
  queue.qp_type = IBV_QPT_RC;
  queue.cap = {.max_send_wr = 1,
               .max_recv_wr = 1,
               .max_send_sge = 1,
               .max_recv_sge = 1,
               .max_inline_data = 0};
  errno = 0;
  if (rdma_create_qp(id.get(), pd_.get(), &queue) != 0) {
    return VerbsRefusal{"no_queue_pair", Failed("make a queue pair")};
  }
  rdma_conn_param accept{};
  // READs that the device answers for this reader at a time; one the other way, which nobody uses.
  // An event says what is asked of who gets it: the reader's initiator depth is its responder
  // resources.
  accept.responder_resources =
      VerbsReadDepth(listener_.attributes().max_qp_rd_atom, asked.responder_resources);
  accept.initiator_depth = 1;
  accept.rnr_retry_count = 7;
  if (rdma_accept(id.get(), &accept) != 0) return VerbsRefusal{"not_accepted", Failed("accept")};
  connections_[ticket] = std::move(id);
  return std::nullopt;
}

}  // namespace tailcast::fabric
