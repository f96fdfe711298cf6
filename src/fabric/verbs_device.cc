#include "tailcast/fabric/verbs_device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {

Status BindTo(rdma_cm_id* id, const std::string& host) {
  TAILCAST_ASSIGN_OR_RETURN(SocketAddress address, ResolveNumber({.host = host, .port = 0}));
  if (rdma_bind_addr(id, address.get()) == 0 && id->verbs != nullptr) return OkStatus();
  return UnavailableError("no RDMA device has the address " + host);
}

Status FindRdmaDevice(const std::string& host) {
  TAILCAST_ASSIGN_OR_RETURN(const VerbsOwned<rdma_event_channel> events, MakeEventChannel());
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(events.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return ErrnoStatus(errno, "make an RDMA connection");
  }
  const VerbsOwned<rdma_cm_id> owned(id);
  return BindTo(id, host);
}

Result<VerbsOwned<rdma_event_channel>> MakeEventChannel() {
  // Asked first because librdmacm complains on stderr.
  if (access(kConnectionManager, R_OK | W_OK) != 0) {
    return UnavailableError(std::string("this host has no RDMA device that the process may use: ") +
                            kConnectionManager + ": " + std::strerror(errno));
  }
  VerbsOwned<rdma_event_channel> channel(rdma_create_event_channel());
  if (channel == nullptr) {
    return UnavailableError(std::string("no RDMA connections on this host: ") +
                            std::strerror(errno));
  }
  SetNonBlocking(channel->fd);
  return channel;
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

VerbsPoster::VerbsPoster(ibv_qp* qp, ibv_cq* cq, const VerbsOffer& offer, size_t works_max)
    : qp_(qp),
      cq_(cq),
      regions_(offer.regions),
      control_(offer.head.control),
      works_(works_max),
      places_(works_max) {
  for (size_t i = 0; i < works_max; ++i) {
    works_[i] = {};
    works_[i].sg_list = &places_[i];
    works_[i].num_sge = 1;
    works_[i].opcode = IBV_WR_RDMA_READ;
  }
}

bool VerbsPoster::Post(std::span<const VerbsWork> works) {
  if (works.empty() || works.size() > works_.size()) return works.empty();
  for (size_t i = 0; i < works.size(); ++i) {
    const VerbsWork& work = works[i];
    const VerbsKey& key = work.region == kVerbsControl ? control_ : regions_[work.region];
    const Memory& memory = memories_[work.memory];
    places_[i] = {.addr = reinterpret_cast<uintptr_t>(memory.begin + work.memory_offset),
                  .length = work.length,
                  .lkey = memory.key};
    works_[i].wr_id = work.id;
    works_[i].next = i + 1 < works.size() ? &works_[i + 1] : nullptr;
    works_[i].send_flags = work.signaled ? IBV_SEND_SIGNALED : 0;
    works_[i].wr.rdma.remote_addr = key.address + work.offset;
    works_[i].wr.rdma.rkey = key.key;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, works_.data(), &bad) == 0;
}

size_t VerbsPoster::Poll(std::span<VerbsDone> done) {
  ibv_wc completions[32];
  size_t count = 0;
  while (count < done.size()) {
    const int wanted = static_cast<int>(std::min(done.size() - count, std::size(completions)));
    const int n = ibv_poll_cq(cq_, wanted, completions);
    // An error of the queue itself is one of all that wait in it.
    if (n < 0) {
      done[count++] = {.id = ~uint64_t{0}, .status = VerbsStatus::kBroken};
      return count;
    }
    for (int i = 0; i < n; ++i) {
      const ibv_wc& wc = completions[i];
      done[count++] = {.id = wc.wr_id,
                       .status = wc.status == IBV_WC_SUCCESS          ? VerbsStatus::kOk
                                 : wc.status == IBV_WC_REM_ACCESS_ERR ? VerbsStatus::kRemoteAccess
                                                                      : VerbsStatus::kBroken};
    }
    if (n < wanted) break;
  }
  return count;
}

}  // namespace tailcast::fabric
