#include "tailcast/fabric/verbs_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tailcast::fabric {
namespace {

constexpr int kCompletionsPerPoll = 16;

Status Failed(const std::string& what) {
  return UnavailableError(what + " for a message channel by RDMA: " + std::strerror(errno));
}

}  // namespace

Result<std::shared_ptr<VerbsLink>> VerbsLink::Make(VerbsMessagesCore::Side side, rdma_cm_id* id,
                                                   ibv_pd* pd, ibv_comp_channel* events,
                                                   void* context) {
  std::shared_ptr<VerbsLink> link(new VerbsLink(side));
  if (Status status = link->Open(side, id, pd, events, context); !status.ok()) {
    // Before its completion queues.
    if (id->qp != nullptr) rdma_destroy_qp(id);
    return status;
  }
  return link;
}

rdma_conn_param VerbsLink::ConnectionParameters() {
  rdma_conn_param parameters{};
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 0;
  return parameters;
}

Status VerbsLink::Open(VerbsMessagesCore::Side side, rdma_cm_id* id, ibv_pd* pd,
                       ibv_comp_channel* events, void* context) {
  receives_ =
      side == VerbsMessagesCore::Side::kServer ? kVerbsServerReceives : kVerbsClientReceives;
  const uint64_t bytes = Bytes(side);
  TAILCAST_ASSIGN_OR_RETURN(memory_, Mapping::ForDevice(bytes));
  key_.reset(ibv_reg_mr(pd, memory_.data(), bytes, IBV_ACCESS_LOCAL_WRITE));
  if (key_ == nullptr) {
    return Failed("register " + std::to_string(bytes) +
                  " bytes (raise the limit of locked memory, ulimit -l?)");
  }
  receive_cq_.reset(ibv_create_cq(id->verbs, static_cast<int>(receives_ + 1), context, events, 0));
  if (receive_cq_ == nullptr) return Failed("make a completion queue");
  send_cq_.reset(ibv_create_cq(id->verbs, static_cast<int>(kSlots + 1), context, events, 0));
  if (send_cq_ == nullptr) return Failed("make a completion queue");
  ibv_qp_init_attr queue{};
  queue.send_cq = send_cq_.get();
  queue.recv_cq = receive_cq_.get();
  queue.qp_type = IBV_QPT_RC;
  queue.cap = {.max_send_wr = kSlots,
               .max_recv_wr = receives_,
               .max_send_sge = 1,
               .max_recv_sge = 1,
               .max_inline_data = 0};
  errno = 0;
  if (rdma_create_qp(id, pd, &queue) != 0) return Failed("make a queue pair");
  qp_ = id->qp;
  for (uint32_t slot = 0; slot < receives_; ++slot) {
    if (!PostReceive(slot)) return Failed("post a buffer");
  }
  if (IsIwarp(id->verbs)) {
    // siw makes no event of a solicited SEND for who asks for these only.
    solicited_only_ = 0;
    // And of a SEND that is not signaled it copies nothing: TCP reads a slot again when it has to
    // send it once more, whatever lies there by then.
    core_.SignalAll();
  }
  if (ibv_req_notify_cq(receive_cq_.get(), solicited_only_) != 0) {
    return Failed("arm a completion queue");
  }
  return OkStatus();
}

bool VerbsLink::PostReceive(uint32_t slot) {
  ibv_sge place{
      .addr = reinterpret_cast<uintptr_t>(memory_.data() + uint64_t{slot} * kVerbsPacketBytes),
      .length = kVerbsPacketBytes,
      .lkey = key_->lkey};
  ibv_recv_wr work{};
  work.wr_id = slot;
  work.sg_list = &place;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp_, &work, &bad) == 0;
}

void VerbsLink::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

void VerbsLink::Send(std::span<const std::string_view> parts) {
  std::lock_guard lock(mutex_);
  if (closed_ || !wrong_.empty()) return;
  core_.Send(parts);
  Flush();
}

// With one doorbell.
bool VerbsLink::Post() {
  ibv_send_wr works[kSlots];
  ibv_sge places[kSlots];
  uint32_t count = 0;
  char* const slots = memory_.data() + uint64_t{receives_} * kVerbsPacketBytes;
  if (core_.outstanding() == 0) sending_ = ReadMonotonicClock();
  while (count < kSlots) {
    const auto out = core_.Next({slots, size_t{kSlots} * kVerbsPacketBytes});
    if (!out.has_value()) break;
    places[count] = {
        .addr = reinterpret_cast<uintptr_t>(slots + uint64_t{out->slot} * kVerbsPacketBytes),
        .length = out->bytes,
        .lkey = key_->lkey};
    ibv_send_wr& work = works[count];
    work = {};
    work.sg_list = &places[count];
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    work.send_flags = (out->signaled ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                      (out->solicited ? unsigned{IBV_SEND_SOLICITED} : 0u);
    if (count > 0) works[count - 1].next = &work;
    ++count;
  }
  if (core_.outstanding() == 0) sending_ = MonotonicTime::Max();
  if (count == 0) return false;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp_, works, &bad) != 0) Broke("its queue pair takes nothing more");
  return wrong_.empty();
}

void VerbsLink::Flush() {
  for (;;) {
    while (Post()) {
    }
    if (!wrong_.empty() || !core_.waits_for_slot()) return;
    // What was done before this makes no event.
    ibv_req_notify_cq(send_cq_.get(), 0);
    const uint64_t before = core_.outstanding();
    TakeSent();
    if (core_.outstanding() == before) return;
  }
}

void VerbsLink::TakeSent() {
  ibv_wc done[kCompletionsPerPoll];
  int n;
  do {
    n = ibv_poll_cq(send_cq_.get(), kCompletionsPerPoll, done);
    for (int i = 0; i < n; ++i) {
      if (done[i].status != IBV_WC_SUCCESS) {
        Broke(std::string("its queue pair broke: ") + ibv_wc_status_str(done[i].status));
        return;
      }
      core_.OnSent();
      sending_ = core_.outstanding() == 0 ? MonotonicTime::Max() : ReadMonotonicClock();
    }
  } while (n == kCompletionsPerPoll);
  if (n < 0) Broke("its completion queue broke");
}

void VerbsLink::Broke(std::string why) {
  wrong_ = std::move(why);
  broke_ = true;
}

bool VerbsLink::broke() const {
  std::lock_guard lock(mutex_);
  return broke_;
}

bool VerbsLink::TakeArrived(size_t most) {
  bool any = false, more = false;
  while (wrong_.empty()) {
    if (core_.messages().size() >= most) {
      more = true;
      break;
    }
    ibv_wc done[kCompletionsPerPoll];
    const int n = ibv_poll_cq(receive_cq_.get(), kCompletionsPerPoll, done);
    if (n < 0) Broke("its completion queue broke");
    for (int i = 0; i < n && wrong_.empty(); ++i) {
      const auto slot = static_cast<uint32_t>(done[i].wr_id);
      if (done[i].status != IBV_WC_SUCCESS || slot >= receives_ ||
          done[i].byte_len > kVerbsPacketBytes) {
        Broke(std::string("its queue pair broke: ") + ibv_wc_status_str(done[i].status));
        // A packet that is longer than a buffer is the sender's doing.
        if (done[i].status == IBV_WC_SUCCESS || done[i].status == IBV_WC_LOC_LEN_ERR)
          broke_ = false;
        break;
      }
      any = true;
      const char* const bad =
          core_.OnPacket({memory_.data() + uint64_t{slot} * kVerbsPacketBytes, done[i].byte_len});
      if (bad != nullptr) {
        wrong_ = bad;
      } else if (!PostReceive(slot)) {
        Broke("its queue pair takes no more buffers");
      }
    }
    if (n < kCompletionsPerPoll) break;
  }
  if (any) begun_ = core_.begun() ? ReadMonotonicClock() : MonotonicTime::Max();
  return more;
}

std::string VerbsLink::Take(std::vector<std::string>* messages, bool* more) {
  std::lock_guard lock(mutex_);
  *more = false;
  if (closed_) return "";
  if (wrong_.empty()) TakeSent();
  *more = TakeArrived(kTakenMost);
  messages->swap(core_.messages());
  if (wrong_.empty()) Flush();
  return wrong_;
}

void VerbsLink::Arm() {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  ibv_req_notify_cq(receive_cq_.get(), solicited_only_);
}

size_t VerbsLink::queued() const {
  std::lock_guard lock(mutex_);
  return core_.queued();
}

MonotonicTime VerbsLink::stuck_since() {
  std::lock_guard lock(mutex_);
  if (closed_) return MonotonicTime::Max();
  TakeSent();
  // The loop may not have come to it for long. Its own event is on its way: what is looked at here
  // waits for it.
  const bool more = TakeArrived(kTakenMost);
  if (!wrong_.empty()) return broke_ ? MonotonicTime() : MonotonicTime::Max();
  return more ? sending_ : std::min(begun_, sending_);
}

}  // namespace tailcast::fabric
