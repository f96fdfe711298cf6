#include "tailcast/fabric/verbs_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {
namespace {

constexpr int kCompletionsPerPoll = 16;
// While nobody takes what was looked at no answers go out, so that one packet more is one without a
// credit.
constexpr size_t kMayArrive = kVerbsServerReceives + 1;
// As the connection manager and queue pairs have it.
constexpr uint8_t kForAsLongAsItTakes = 7;
constexpr uint8_t kAfter640Microseconds = 12;

Status Failed(const std::string& what) {
  return UnavailableError(what + " for a message channel by RDMA: " + std::strerror(errno));
}

}  // namespace

Result<std::shared_ptr<VerbsLink>> VerbsLink::Make(VerbsMessagesCore::Side side, rdma_cm_id* id,
                                                   ibv_pd* pd, ibv_comp_channel* events,
                                                   void* context, VerbsPool* pool) {
  if (pool != nullptr) {
    TAILCAST_ASSIGN_OR_RETURN(const bool attached, pool->Attach());
    if (!attached) pool = nullptr;
  }
  std::shared_ptr<VerbsLink> link(new VerbsLink(side, pool));
  if (Status status = link->Open(id, pd, events, context); !status.ok()) {
    // Before its completion queues.
    if (id->qp != nullptr) rdma_destroy_qp(id);
    link->LetGo();
    return status;
  }
  return link;
}

VerbsLink::~VerbsLink() { LockedBytes(/*shared=*/false).Add(-shown_bytes_); }

rdma_conn_param VerbsLink::ConnectionParameters() const {
  rdma_conn_param parameters{};
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = pool_ == nullptr ? 0 : kForAsLongAsItTakes;
  return parameters;
}

Status VerbsLink::Open(rdma_cm_id* id, ibv_pd* pd, ibv_comp_channel* events, void* context) {
  const bool server = side_ == VerbsMessagesCore::Side::kServer;
  const uint32_t may_arrive = server ? kVerbsServerReceives : kVerbsClientReceives;
  receives_ = pool_ != nullptr ? 0 : may_arrive;
  const uint64_t bytes = uint64_t{receives_ + kSlots} * kVerbsPacketBytes;
  TAILCAST_ASSIGN_OR_RETURN(memory_, Mapping::ForDevice(bytes));
  key_.reset(ibv_reg_mr(pd, memory_.data(), bytes, IBV_ACCESS_LOCAL_WRITE));
  if (key_ == nullptr) {
    return Failed("register " + std::to_string(bytes) +
                  " bytes (raise the limit of locked memory, ulimit -l?)");
  }
  if (server) shown_bytes_ = static_cast<int64_t>(bytes);
  LockedBytes(/*shared=*/false).Add(shown_bytes_);
  receive_cq_.reset(ibv_create_cq(id->verbs, static_cast<int>(may_arrive + 1), context, events, 0));
  if (receive_cq_ == nullptr) return Failed("make a completion queue");
  send_cq_.reset(ibv_create_cq(id->verbs, static_cast<int>(kSlots + 1), context, events, 0));
  if (send_cq_ == nullptr) return Failed("make a completion queue");
  ibv_qp_init_attr queue{};
  queue.send_cq = send_cq_.get();
  queue.recv_cq = receive_cq_.get();
  queue.srq = pool_ == nullptr ? nullptr : pool_->queue();
  queue.qp_type = IBV_QPT_RC;
  queue.cap = {.max_send_wr = kSlots,
               .max_recv_wr = receives_,
               .max_send_sge = 1,
               .max_recv_sge = receives_ > 0 ? 1u : 0u,
               .max_inline_data = 0};
  errno = 0;
  if (rdma_create_qp(id, pd, &queue) != 0) return Failed("make a queue pair");
  qp_ = id->qp;
  for (uint32_t slot = 0; slot < receives_; ++slot) {
    if (!PostReceive(slot)) return Failed("post a buffer");
  }
  if (IsIwarp(id->verbs)) {
    // Of a SEND that is not signaled siw copies nothing: TCP reads a slot again when it has to
    // send it once more, whatever lies there by then.
    core_.SignalAll();
  }
  // Each packet is an event, not only the solicited ones that end a message: siw makes none of
  // those for who asks for them alone, and the packets of a message that never ends would lie
  // unseen.
  if (ibv_req_notify_cq(receive_cq_.get(), /*solicited_only=*/0) != 0) {
    return Failed("arm a completion queue");
  }
  return OkStatus();
}

bool VerbsLink::SetRepeats() {
  if (pool_ == nullptr) return true;
  ibv_qp_attr attributes{};
  attributes.min_rnr_timer = kAfter640Microseconds;
  return ibv_modify_qp(qp_, &attributes, IBV_QP_MIN_RNR_TIMER) == 0;
}

bool VerbsLink::PostReceive(uint64_t slot) {
  if (pool_ != nullptr) return pool_->Post(slot);
  ibv_sge place{.addr = reinterpret_cast<uintptr_t>(memory_.data() + slot * kVerbsPacketBytes),
                .length = kVerbsPacketBytes,
                .lkey = key_->lkey};
  ibv_recv_wr work{};
  work.wr_id = slot;
  work.sg_list = &place;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp_, &work, &bad) == 0;
}

// What came in a buffer. Null: the device is wrong.
const char* VerbsLink::Arrived(uint64_t slot) {
  if (pool_ != nullptr) return pool_->Take(slot);
  return slot < receives_ ? memory_.data() + slot * kVerbsPacketBytes : nullptr;
}

void VerbsLink::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  if (pool_ != nullptr) Stop();
}

void VerbsLink::LetGo() {
  std::lock_guard lock(mutex_);
  if (pool_ == nullptr) return;
  GiveBack();  // what came until the queue pair was gone
  pool_->Detach();
  pool_ = nullptr;
  closed_ = true;
}

void VerbsLink::Stop() {
  if (!std::exchange(stopped_, true)) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(qp_, &attributes, IBV_QP_STATE);
  }
  GiveBack();
}

void VerbsLink::GiveBack() {
  ibv_wc done[kCompletionsPerPoll];
  int n;
  while (receive_cq_ != nullptr &&
         (n = ibv_poll_cq(receive_cq_.get(), kCompletionsPerPoll, done)) > 0) {
    for (int i = 0; i < n; ++i) {
      if (pool_->Take(done[i].wr_id) != nullptr) pool_->Post(done[i].wr_id);
    }
  }
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
    for (int i = 0; i < n && (wrong_.empty() || pool_ != nullptr); ++i) OnArrived(done[i]);
    any |= n > 0;
    if (n < kCompletionsPerPoll) break;
  }
  if (any) begun_ = core_.begun() ? ReadMonotonicClock() : MonotonicTime::Max();
  if (!wrong_.empty() && pool_ != nullptr) Stop();
  return more;
}

void VerbsLink::OnArrived(const ibv_wc& done) {
  const char* const packet = Arrived(done.wr_id);
  if (!wrong_.empty()) {
    // It goes back to the pool unseen.
  } else if (done.status != IBV_WC_SUCCESS || packet == nullptr ||
             done.byte_len > kVerbsPacketBytes) {
    Broke(std::string("its queue pair broke: ") + ibv_wc_status_str(done.status));
    // A packet that is longer than a buffer is the sender's doing.
    if (done.status == IBV_WC_SUCCESS || done.status == IBV_WC_LOC_LEN_ERR) broke_ = false;
  } else if (const char* const bad = core_.OnPacket({packet, done.byte_len}); bad != nullptr) {
    wrong_ = bad;
  }
  if (packet == nullptr || (!wrong_.empty() && pool_ == nullptr)) return;
  if (!PostReceive(done.wr_id) && wrong_.empty()) Broke("its queue pair takes no more buffers");
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

std::string VerbsLink::Look() {
  std::lock_guard lock(mutex_);
  if (closed_) return "";
  TakeArrived(kMayArrive);
  return wrong_;
}

void VerbsLink::Arm() {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  ibv_req_notify_cq(receive_cq_.get(), /*solicited_only=*/0);
}

size_t VerbsLink::queued() const {
  std::lock_guard lock(mutex_);
  return core_.queued();
}

MonotonicTime VerbsLink::stuck_since() {
  std::lock_guard lock(mutex_);
  if (closed_) return MonotonicTime::Max();
  if (wrong_.empty()) TakeSent();  // an end that was found says more than what follows from it
  // The loop may not have come to it for long. Its own event is on its way: what is looked at here
  // waits for it.
  const bool more = TakeArrived(kMayArrive);
  if (!wrong_.empty()) return broke_ ? MonotonicTime() : MonotonicTime::Max();
  return more ? sending_ : std::min(begun_, sending_);
}

}  // namespace tailcast::fabric
