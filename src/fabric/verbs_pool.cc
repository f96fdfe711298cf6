#include "tailcast/fabric/verbs_pool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/verbs_events.h"

namespace tailcast::fabric {

bool VerbsPool::Suits(const ibv_context* device, const ibv_device_attr& attributes) {
  return !IsIwarp(device) && attributes.max_srq > 0 &&
         attributes.max_srq_wr >= static_cast<int>(VerbsPoolCore::Most(1));
}

Result<std::unique_ptr<VerbsPool>> VerbsPool::Make(ibv_pd* pd, const ibv_device_attr& attributes,
                                                   uint32_t channels, Duration patience,
                                                   UniqueFunction<void()> low) {
  const uint32_t most =
      std::min(VerbsPoolCore::Most(channels), static_cast<uint32_t>(attributes.max_srq_wr));
  std::unique_ptr<VerbsPool> pool(new VerbsPool(pd, most, patience));
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = most, .max_sge = 1, .srq_limit = 0};
  errno = 0;
  pool->queue_.reset(ibv_create_srq(pd, &init));
  if (pool->queue_ == nullptr) {
    return UnavailableError(std::string("make a shared receive queue: ") + std::strerror(errno));
  }
  VerbsEvents::Watch(pool->queue(), std::move(low));
  return pool;
}

VerbsPool::~VerbsPool() {
  if (queue_ == nullptr) return;
  VerbsEvents::Forget(queue());
  queue_ = nullptr;  // before what its buffers lie in
  for (const Slab& slab : slabs_)
    LockedBytes(/*shared=*/true).Add(-static_cast<int64_t>(slab.memory.size()));
  LostBuffers().Add(-shown_lost_);
}

Result<bool> VerbsPool::Attach() {
  std::lock_guard lock(mutex_);
  const bool ours = core_.Attach(ReadMonotonicClock());
  ShowLost();
  if (!ours) return false;
  if (Status status = Fill(); !status.ok()) {
    core_.Detach(ReadMonotonicClock());
    return status;
  }
  Arm();
  return true;
}

void VerbsPool::Detach() {
  std::lock_guard lock(mutex_);
  core_.Detach(ReadMonotonicClock());
  ShowLost();
}

Status VerbsPool::Fill() {
  for (uint32_t missing = core_.missing(); missing > 0; --missing) {
    if (core_.buffers() == slabs_.size() * VerbsPoolCore::kSlab) {
      constexpr uint64_t kBytes = uint64_t{VerbsPoolCore::kSlab} * kVerbsPacketBytes;
      Slab slab;
      TAILCAST_ASSIGN_OR_RETURN(slab.memory, Mapping::ForDevice(kBytes));
      slab.key.reset(ibv_reg_mr(pd_, slab.memory.data(), kBytes, IBV_ACCESS_LOCAL_WRITE));
      if (slab.key == nullptr) {
        return ResourceExhaustedError("register " + std::to_string(kBytes) +
                                      " bytes of receive buffers: " + std::strerror(errno) +
                                      " (raise the limit of locked memory, ulimit -l?)");
      }
      LockedBytes(/*shared=*/true).Add(static_cast<int64_t>(slab.memory.size()));
      slabs_.push_back(std::move(slab));
    }
    if (!PostLocked(core_.Add())) return UnavailableError("the shared receive queue takes no more");
  }
  return OkStatus();
}

bool VerbsPool::PostLocked(uint32_t buffer) {
  ibv_sge place{.addr = reinterpret_cast<uintptr_t>(At(buffer)),
                .length = kVerbsPacketBytes,
                .lkey = slabs_[buffer / VerbsPoolCore::kSlab].key->lkey};
  ibv_recv_wr work{};
  work.wr_id = buffer;
  work.sg_list = &place;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  core_.OnPosted(buffer);
  return ibv_post_srq_recv(queue(), &work, &bad) == 0;
}

const char* VerbsPool::Take(uint64_t buffer) {
  std::lock_guard lock(mutex_);
  if (buffer >= core_.buffers() || !core_.OnArrived(static_cast<uint32_t>(buffer))) return nullptr;
  return At(static_cast<uint32_t>(buffer));
}

bool VerbsPool::Post(uint64_t buffer) {
  std::lock_guard lock(mutex_);
  return PostLocked(static_cast<uint32_t>(buffer));
}

void VerbsPool::Arm() {
  ibv_srq_attr attributes{.max_wr = 0, .max_sge = 0, .srq_limit = core_.limit()};
  ibv_modify_srq(queue(), &attributes, IBV_SRQ_LIMIT);
}

void VerbsPool::Watch() {
  std::lock_guard lock(mutex_);
  core_.Look(ReadMonotonicClock());
  ShowLost();
  (void)Fill();  // with less it goes on, too
  Arm();
}

void VerbsPool::ShowLost() {
  LostBuffers().Add(core_.lost() - shown_lost_);
  shown_lost_ = core_.lost();
}

bool VerbsPool::spent() const {
  std::lock_guard lock(mutex_);
  return core_.attached() == 0 &&
         (core_.lost() > 0 || core_.buffers() > VerbsPoolCore::kBase + VerbsPoolCore::kShare);
}

}  // namespace tailcast::fabric
