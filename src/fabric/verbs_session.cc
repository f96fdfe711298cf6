#include "tailcast/fabric/verbs_session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/verbs_reads_core.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
// A reader has so much registered memory at each server.
constexpr uint64_t kArenaBytes = (1 << 20) + (64 << 10);
static_assert(kArenaBytes >= VerbsReadsCore::kArenaBytesMin);
// READs posted at a time; how many are on the wire is the devices' matter (initiator depth).
constexpr uint32_t kWorksMax = 256;

std::string Errno(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace

VerbsSession::VerbsSession(const DialContext& context, HostPort where,
                           ExporterIncarnation expected_incarnation)
    : loop_(context.loop),
      reactor_(context.reactor),
      where_(where),
      read_timeout_(context.read_timeout),
      tcp_(std::make_shared<TcpSession>(context, std::move(where), expected_incarnation)),
      dialer_(reactor_, this, name()) {}

Status VerbsSession::Begin() {
  TAILCAST_RETURN_IF_ERROR(dialer_.Open());
  tcp_->Start(scope().Bind([this](Status status) {
    if (!status.ok()) return Finish(std::move(status));
    tcp_->AskForVerbs(
        scope().Bind([this](const std::string& body, size_t regions) { OnOffer(body, regions); }));
  }));
  tcp_->SetOnDead(scope().Bind([this](const std::string& why) { Die(why); }));
  return OkStatus();
}

void VerbsSession::OnOffer(const std::string& body, size_t regions) {
  std::optional<VerbsOffer> offer = DecodeVerbsOffer(body, regions);
  if (!offer.has_value()) {
    BadInput("verbs", "client").Add();
    return Finish(UnavailableError("the server at " + name() +
                                   " made an offer of RDMA that does not add up"));
  }
  offer_ = std::move(*offer);
  if (regions == 0) {
    return Finish(
        UnavailableError("the server at " + name() + " offers no RDMA: " + offer_.head.host));
  }
  Status status =
      dialer_.Start(offer_.head.host, static_cast<uint16_t>(offer_.head.port), offer_.head.token);
  if (!status.ok()) Finish(std::move(status));
}

void VerbsSession::OnConnected(Status status) {
  open_ = status.ok();
  Finish(std::move(status));
}

Status VerbsSession::Prepare(rdma_cm_id* id, rdma_conn_param* connect) {
  ibv_device_attr device{};
  ibv_context* const context = id->verbs;
  if (const int error = ibv_query_device(context, &device); error != 0) {
    return ErrnoStatus(error, "ask the RDMA device what it can do");
  }
  works_max_ = std::min(kWorksMax, static_cast<uint32_t>(std::max(2, device.max_qp_wr - 1)));
  const auto made = [](const auto& owned) { return owned != nullptr; };
  pd_.reset(ibv_alloc_pd(context));
  if (!made(pd_)) return UnavailableError(Errno("make an RDMA protection domain"));
  // On iWARP the answer to a READ is a write, as the key is concerned.
  access_ = IBV_ACCESS_LOCAL_WRITE | (IsIwarp(context) ? IBV_ACCESS_REMOTE_WRITE : 0);
  completions_.reset(ibv_create_comp_channel(context));
  if (!made(completions_)) return UnavailableError(Errno("make an RDMA event channel"));
  SetNonBlocking(completions_->fd);
  cq_.reset(
      ibv_create_cq(context, static_cast<int>(works_max_ + 1), nullptr, completions_.get(), 0));
  if (!made(cq_)) return UnavailableError(Errno("make an RDMA completion queue"));
  ibv_qp_init_attr queue{};
  queue.send_cq = queue.recv_cq = cq_.get();
  queue.qp_type = IBV_QPT_RC;
  queue.cap = {.max_send_wr = works_max_,
               .max_recv_wr = 1,
               .max_send_sge = 1,
               .max_recv_sge = 1,
               .max_inline_data = 0};
  if (rdma_create_qp(id, pd_.get(), &queue) != 0) {
    return UnavailableError(Errno("make an RDMA queue pair"));
  }
  queue_ = std::make_unique<VerbsPoster>(id->qp, cq_.get(), offer_, works_max_);
  TAILCAST_ASSIGN_OR_RETURN(arena_, Register(kArenaBytes));
  connect->responder_resources = 1;
  connect->initiator_depth = VerbsReadDepth(device.max_qp_init_rd_atom, offer_.head.reads_max);
  connect->retry_count = 7;
  connect->rnr_retry_count = 7;
  return OkStatus();
}

Result<std::span<char>> VerbsSession::Register(uint64_t bytes) {
  TAILCAST_ASSIGN_OR_RETURN(Mapping memory, Mapping::ForDevice(bytes));
  Registered one{.memory = std::make_shared<const Mapping>(std::move(memory)), .key = nullptr};
  one.key.reset(ibv_reg_mr(pd_.get(), one.memory->data(), bytes, access_));
  if (one.key == nullptr) {
    return UnavailableError(
        Errno("register " + std::to_string(bytes) +
              " bytes for RDMA reads (raise the limit of locked memory, ulimit -l?)"));
  }
  queue_->AddMemory(one.memory->data(), one.key->lkey);
  registered_.push_back(std::move(one));
  return std::span<char>(registered_.back().memory->data(), bytes);
}

void VerbsSession::End() {
  if (std::exchange(ended_, true)) return;
  tcp_->Shutdown();
  dialer_.Stop();
}

// No device writes to the arena any more.
void VerbsSession::Discard() {
  queue_ = nullptr;
  cq_ = nullptr;
  completions_ = nullptr;
  registered_.clear();
  pd_ = nullptr;
}

void VerbsSession::Die(const std::string& why) {
  if (!open_) {
    Finish(UnavailableError("the server at " + name() + ": " + why));
    return;
  }
  if (dead_.exchange(true, std::memory_order_acq_rel)) return;
  kLog.Info("the RDMA connection to ", name(), " ended: ", why);
  tcp_->Hangup(why);
  Notice();
}

}  // namespace tailcast::fabric
